"""The names of architectures and cases in specifications and reports; known here without importing torch."""

from __future__ import annotations

# The architectures that checkpoints.py builds a checkpoint for.
ARCHITECTURES = ("llama", "qwen3", "deepseek_v3", "kimi_k25", "gemma3", "mistral", "stablelm")
# The name of each case in a specification, and in a report.
NAMES = {
    "one": "one sequence",
    "mixed": "shared prefixes, equal sequences, mixed lengths",
    "again": "the same call again",
    "order": "more than ten sequences of one length",
    "many": "more sequences than the engine runs at once",
    "budget": "more tokens than one step takes",
    "short": "one short sequence after a large call",
    "files": "streamed to files",
    "failed": "after calls that failed",
    "alone": "one by one",
    "files_failed": "streamed to files after a stream that broke off",
}
# Calls without a comparison; a specification may name them beside the cases.
CALLS = ("bad_calls", "over")
# The cases for a small step and cache, in which prefills are split and pre-empted; the others would add nothing.
SMALL = ("mixed", "budget", "short", "files", "failed", "alone", "files_failed", *CALLS)
# The last log line that begins so names the case in which an engine gave up.
ASKED_FOR = "asked for: "
