"""What specs and reports call architectures and cases; apart from both, so that it is known without torch."""

from __future__ import annotations

# The architectures that there are checkpoints for (checkpoints.py builds them).
ARCHITECTURES = ("llama", "qwen3", "deepseek_v3", "kimi_k25", "gemma3")
# What a spec calls each case, and what a report does.
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
# Calls that are no comparison; a spec may name them beside the cases.
CALLS = ("bad_calls", "over")
# With a small step and cache, what splits prefills and pre-empts them; the others have nothing to add.
SMALL = ("mixed", "budget", "short", "files", "failed", "alone", "files_failed", *CALLS)
# The last line of this kind in a log names the case in which an engine gave up.
ASKED_FOR = "asked for: "
