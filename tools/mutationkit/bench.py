"""A copied environment, the stack it belongs to, and the rungs that judge it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from aerie_paths import CHECKOUT, HOST_PROGRAM

from ansible.module_utils.aerie.audit.run import Demand, run
from ansible.module_utils.aerie.distributions import written
from ansible.module_utils.aerie.distributions.installed import site_packages_of
from ansible.module_utils.aerie.distributions.lock import parse
from ansible.module_utils.aerie.patching import engine
from ansible.module_utils.aerie.patching.observe import Missing, observe
from ansible.module_utils.aerie.patching.request import Request
from ansible.module_utils.aerie.patching.series import Series, from_raw, read_directory
from tools.mutationkit import mutating
from tools.mutationkit.preloaded import Preloaded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Commands of the host program that judge an environment, after the audit, cheapest first.
HOST_RUNGS = ("imports", "truth")


@dataclass
class Bench:
    """The copied environment, the stack it belongs to, and how it is judged."""

    environment: Path
    stack: dict[str, Any]
    raws: list[dict[str, Any]]
    rungs: list[str]
    specs: dict[str, dict[str, Any]]
    _preloaded: Preloaded | None = None
    _sound: set[str] = field(default_factory=set)

    @property
    def series(self) -> list[Series]:
        """The stack's series, unbroken."""
        return [from_raw(raw) for raw in self.raws]

    @property
    def site(self) -> Path:
        """site-packages of the copy."""
        return site_packages_of(self.environment)[0]

    def pristine(self, series: Series) -> dict[str, bytes]:
        """The wheel's bytes of each file that a series edits."""
        memory = written.read(self.environment).of(series.distribution)
        observed = observe(self.environment, series.distribution, [series], memory, rollback=False)
        files = () if isinstance(observed, Missing) else observed.files
        return {file.path: file.pristine or b"" for file in files if file.path in series.files}

    def converge(self, raws: list[dict[str, Any]]) -> None:
        """Patch the copy with these series, whatever it was before."""
        result = engine.run(Request(self.environment, [from_raw(raw) for raw in raws], restore=True))
        if result.checks.failed:
            raise mutating.CannotMutateError(str(result.checks.failed[0]))

    def judge(self, raws: list[dict[str, Any]], about: str) -> tuple[str, str]:
        """The first rung, of all that are asked for, that fails, and what it says; ("", "") when none does."""
        failed = self.audit(raws)
        return ("audit", sentence(failed, about)) if failed else self.judge_running(about, {})

    def judge_running(
        self, about: str, truth: dict[str, Any], edited: Iterable[Path] = (), fresh: bool = False
    ) -> tuple[str, str]:
        """The same without the audit, which sees every edited file; ``truth`` adds to the inputs of that rung."""
        for rung in HOST_RUNGS:
            if rung in self.rungs:
                failed = self.truth(truth, edited, fresh) if rung == "truth" else self.host(rung, {})
                if failed:
                    return rung, sentence(failed, about)
        return "", ""

    def audit(self, raws: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The failing checks of the audit."""
        lock = (CHECKOUT / "stacks" / self.stack["lock"]).read_text(encoding="utf-8")
        demand = Demand(
            environment=self.environment,
            stack=self.stack["name"],
            pins=parse(lock),
            series=[from_raw(raw) for raw in raws],
            faults=[str(fault) for fault in self.stack["faults"]],
            vllm_distribution=self.stack["vllm_distribution"],
        )
        return [check.as_data() for check in run(demand).checks.failed]

    def host(self, rung: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
        """The failing checks of a command of the host program, with some of its inputs changed."""
        done = subprocess.run(
            [str(self.environment / "bin/python"), "-m", "aerie_host", rung, "--spec", "-"],
            input=json.dumps({**self.specs.get(rung, {}), **changes}), env=self.process,
            capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
        lines = done.stdout.strip().splitlines()
        return failures(rung, json.loads(lines[-1]) if lines else {"failed": True, "msg": done.stderr[-500:]})

    def truth(self, changes: dict[str, Any], edited: Iterable[Path], fresh: bool = False) -> list[dict[str, Any]]:
        """The failing checks of the rung truth, by a fork of an interpreter that has not loaded what is ``edited``.

        By a ``fresh`` interpreter when told to, and when that one has loaded it.
        """
        if self._preloaded is None:
            self._preloaded = Preloaded(self.environment, self.process)
        if fresh or self._preloaded.files & {str(path) for path in edited}:
            return self.host("truth", changes)
        return failures("truth", self._preloaded.ask({**self.specs["truth"], **changes}))

    def sound(self, spec: dict[str, Any]) -> None:
        """Make sure, once, that these inputs of truth pass undamaged. Raises ``CannotMutateError`` otherwise."""
        key = json.dumps(spec, sort_keys=True)
        if key not in self._sound:
            failed = self.truth(spec, ())
            if failed:
                raise mutating.CannotMutateError(f"fails undamaged: {sentence(failed, '')}")
            self._sound.add(key)

    @property
    def process(self) -> dict[str, str]:
        """Environment variables of the host program."""
        # Bytecode stays in the copy, whatever the caller's Python is told: the next row starts sooner.
        ours = {"PYTHONPATH": str(HOST_PROGRAM), "PYTHONDONTWRITEBYTECODE": ""}
        return {**os.environ, **self.stack.get("environment", {}), **ours}


def failures(rung: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    """The failing checks of a document; of one that failed without, its message as one."""
    if not document.get("failed"):
        return []
    checks = (document.get("aerie") or {}).get("checks", [])
    named = [one for one in checks if one["status"] == "fail"]
    return named or [{"name": rung, "found": document.get("msg", "failed"), "wanted": "", "remedy": ""}]


def sentence(failed: list[dict[str, Any]], about: str) -> str:
    """What a person reads first: a failing check that names the patch or a call, with its place."""

    def rank(check: dict[str, Any]) -> tuple[bool, bool, bool, bool]:
        name = str(check["name"])
        # A call with its place tells most, then a probe with its file, then whatever names the patch.
        probe = name.startswith(f"probe {about}") and bool(about)
        return not name.startswith("call of"), not probe, about not in name, not name.startswith("file ")

    one = min(failed, key=rank)
    place = f" ({one['file']}{':' + str(one['line']) if one.get('line') else ''})" if one.get("file") else ""
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return f"{one['name']}{place}: {one['found']}{others}"


def make_bench(environment: Path, work: Path, name: str, rungs: list[str]) -> Bench:
    """Copy an environment to ``work`` and read the stack ``name`` that it belongs to."""
    stack = yaml.safe_load((CHECKOUT / f"stacks/{name}.yml").read_text(encoding="utf-8"))
    raws = [read_directory(CHECKOUT / "files/patches" / series, yaml.safe_load) for series in stack["series"]]
    mutating.link_copy(environment, work)
    promised = {symbol: patch.id for raw in raws for patch in from_raw(raw).patches for symbol in patch.imports}
    specs = {
        "imports": {"device": stack["device"], "vllm_distribution": stack["vllm_distribution"], "symbols": promised},
        "truth": {
            "architectures": ["llama"],
            "device": stack["device"],
            "proofs": str(work / "proofs"),
            "again": True,
            "identity": {},
        },
    }
    return Bench(work, stack, raws, rungs, specs)
