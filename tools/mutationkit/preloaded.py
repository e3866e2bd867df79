"""The other end of ``forked.py``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import IO, Any, cast

from tools.mutationkit.mutating import CannotMutateError


class Preloaded:
    """The host program of an environment, ready to run truth by a fork.

    Args:
        environment: whose Python runs it; its log goes there.
        process: environment variables.

    Attributes:
        files: what it has loaded, and would not see damaged.
    """

    def __init__(self, environment: Path, process: dict[str, str]) -> None:
        self._log = environment / "forked.log"
        with self._log.open("w") as log:
            self._program = subprocess.Popen(
                [str(environment / "bin/python"), str(Path(__file__).with_name("forked.py"))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd="/",
                # A process forked from one with threads of its own would wait for them. Standard output is for answers.
                env={**process, "OMP_NUM_THREADS": "1", "VLLM_LOGGING_STREAM": "ext://sys.stderr"},
            )  # fmt: skip
        self.files = {str(file) for file in self._answer()}

    def ask(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The document of the command truth for a specification."""
        requests = cast("IO[str]", self._program.stdin)
        requests.write(json.dumps(spec) + "\n")
        requests.flush()
        document: dict[str, Any] = self._answer()
        return document

    def _answer(self) -> Any:
        line = cast("IO[str]", self._program.stdout).readline()
        if not line:
            raise CannotMutateError(f"the host program ended: {self._log.read_text(encoding='utf-8')[-500:]}")
        return json.loads(line)
