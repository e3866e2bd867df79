"""Runs in the ML environment: imports once what no row of the table damages, and forks an engine for each run of truth.

Reads specifications of the command, one a line; writes the files of every module that it has loaded, then one document
a line. A row takes a fifth of what fresh interpreters take, and imports what is damaged afresh all the same.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

from vllm.v1.executor import multiproc_executor

from aerie_host.shared.refusal import UsageRefusal
from aerie_host.spec import Spec
from aerie_host.truth import command as ladder
from aerie_host.truth import engine

PRELOADED = (
    "transformers.models.llama.modeling_llama",
    "transformers.tokenization_utils_fast",
    "vllm.config",
    "vllm.sampling_params",
    "vllm.transformers_utils.config",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.request",
    "vllm.v1.structured_output",
)


def run_engine(job: dict[str, Any], timeout: float) -> tuple[int, str]:
    """In place of ``ladder.run_engine``: the job in a fork. Raises ``subprocess.TimeoutExpired``."""
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            work(job, log.fileno())
        deadline = time.monotonic() + timeout
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise subprocess.TimeoutExpired("engine", timeout, output=b"")
            time.sleep(0.05)
        log.seek(0)
        return os.waitstatus_to_exitcode(status), log.read().decode(errors="replace")


def work(job: dict[str, Any], log: int) -> None:
    """What the fork does; it never returns."""
    code = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(log, stream)
        # vLLM would have its workers import all of it again.
        multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")
        engine.write_report(job)
        code = 0
    except BaseException:  # noqa: BLE001 - this process ends here, and its log is all that is left of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Answer specifications until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["HF_HUB_OFFLINE"] = "1"
    ladder.run_engine = run_engine
    for name in PRELOADED:
        importlib.import_module(name)
    files = sorted({str(getattr(module, "__file__", None)) for module in list(sys.modules.values())})
    print(json.dumps(files), file=answers, flush=True)
    for line in sys.stdin:
        try:
            document = ladder.run(Spec(json.loads(line), "truth"), check=True).as_document()
        except UsageRefusal as error:
            document = {"failed": True, "msg": str(error)}
        print(json.dumps(document), file=answers, flush=True)


if __name__ == "__main__":
    main()
