"""One long-running command of the host program: started once, found again, stopped only when proven to be ours."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.aerie.jobs.program import command_line, process_variables, run_program, tail
from ansible.module_utils.aerie.shared.durable import read_json, write_json
from ansible.module_utils.aerie.shared.hold import hold_at_once
from ansible.module_utils.aerie.shared.processes import MARKER, end, identity, is_alive, marked
from ansible.module_utils.aerie.shared.refusal import Refusal

ORPHAN_GRACE = 10
LOG_TAIL_BYTES = 20000
# Seconds to wait for a hold that no living main process has.
HOLD_WAIT = 30


class HostJob:
    """The job whose record, hold, log and result lie in ``job_dir``."""

    def __init__(self, job_dir: str) -> None:
        self.folder = Path(job_dir).absolute()
        self.marker = str(self.folder)
        self.record = self.folder / "job.json"
        self.log = self.folder / "job.log"
        self.result = self.folder / "result.json"
        self.progress = self.folder / "progress.json"

    def _main(self) -> dict[str, Any] | None:
        """Identity of the job's main process, if it runs."""
        known = (read_json(self.record) or {}).get("process")
        return known if is_alive(known) else None

    def _workers(self) -> list[dict[str, Any]]:
        """Running processes with the job's marker, other than the main one."""
        main = self._main()
        return [process for process in marked(self.marker) if process != main]

    def _hold(self) -> int | None:
        """Take the job's hold; its descriptor, None while any process of the job has it. Raises ``Refusal``."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / "job.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise self._not_writable() from error
        if hold_at_once(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def _not_writable(self) -> Refusal:
        """The refusal of a folder that cannot be written to: most often this run is another user than the job's."""
        main, place = self._main(), self.folder
        # Below a folder that is closed to this user, even looking is refused.
        while not os.access(str(place), os.F_OK):
            place = place.parent
        state = f"; its job runs, process {main['pid']}" if main else ""
        owner = place.stat().st_uid
        found = f"user {os.geteuid()} cannot write to {place}, which belongs to user {owner}{state}"
        return Refusal("job", found, "", "run as that user (ansible_become_user), or name another aerie_home")

    def _log_tail(self) -> str:
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return tail(stream.read().decode(errors="replace"))
        except OSError:
            return ""

    def _last_words(self) -> str:
        """For a message: the log's last line that the host program wrote, or else its last line."""
        lines = [line for line in self._log_tail().splitlines() if line.strip()]
        own = [line for line in lines if line.startswith("aerie: ")]
        return f". Its log ends: {(own or lines)[-1].strip()[:300]}" if lines else ""

    def clean(self) -> int:
        """End the workers that a killed job left; return how many there were. Raises ``Refusal``."""
        orphans = [] if self._main() else self._workers()
        left = end(orphans, ORPHAN_GRACE)
        if left:
            found = f"processes {_pids(left)} of an earlier run cannot be ended"
            raise Refusal("job", found, "", "end them by hand, as the user who owns them")
        return len(orphans)

    def _take(self, digest: str) -> tuple[int | None, int]:
        """The hold, or None when the job already runs; and how many orphans were ended on the way."""
        hold = self._hold()
        cleaned = 0
        deadline = time.monotonic() + HOLD_WAIT
        while hold is None:
            if self._main():
                if (read_json(self.record) or {}).get("digest") != digest:
                    found = f"a job with other inputs runs in {self.folder}"
                    raise Refusal("job", found, "", "wait for it, or stop it (playbooks/stop.yml)")
                return None, cleaned
            # Held, but by no living main process: another run is just starting one, or orphans have the hold.
            time.sleep(1)
            hold = self._hold()
            if hold is None and not self._main():
                cleaned += self.clean()
                hold = self._hold()
            if hold is None and time.monotonic() > deadline:
                found = f"{self.folder}/job.lock is held by a process that is not of the job"
                raise Refusal("job", found, "", f"see which with fuser {self.folder}/job.lock")
        return hold, cleaned + self.clean()

    def start(
        self,
        python: str,
        program: str,
        command: str,
        spec: dict[str, Any],
        variables: dict[str, str],
        plan_timeout: float,
        check: bool,
    ) -> dict[str, Any]:
        """Plan, and start the command when there is work; find it when it already runs.

        The result is that of a module, with ``failed`` for a plan that failed. Raises ``Refusal``.
        """
        digest = hashlib.sha256(json.dumps([command, spec, variables], sort_keys=True).encode()).hexdigest()
        running = {"changed": False, "running": True, "finished": False, "msg": "the job runs already"}
        plan_line = command_line(python, program, command, "-", check=True)
        if check:
            return running if self._main() else self._plan(plan_line, spec, variables, plan_timeout)
        hold, cleaned = self._take(digest)
        if hold is None:
            return running
        try:
            result = self._plan(plan_line, spec, variables, plan_timeout)
            if result.get("failed"):
                return result
            result["orphans_ended"] = cleaned
            if not result["finished"]:
                self._launch(hold, plan_line, spec, variables, digest)
                result["running"] = True
                # These are the checks of the plan; those of the job come with its result.
                result.pop("aerie", None)
            result["changed"] = result["changed"] or cleaned > 0
            return result
        finally:
            # A started job has the hold through its own descriptor.
            os.close(hold)

    def _plan(self, line: list[str], spec: dict[str, Any], variables: dict[str, str], timeout: float) -> dict[str, Any]:
        """Ask the command what it would do; ``finished`` when that is nothing."""
        plan, log = run_program(line, spec, process_variables(line[1], variables), timeout)
        if plan.get("failed"):
            return _failed(plan, log)
        needed = bool(plan.get("changed", True))
        return {**plan, "changed": needed, "running": False, "finished": not needed}

    def _marks(self) -> dict[str, str]:
        # SPT_NOENV: without it setproctitle, which vLLM's workers call, overwrites the variables that we look at.
        return {MARKER: self.marker, "SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"}

    def _launch(
        self, hold: int, plan_line: list[str], spec: dict[str, Any], variables: dict[str, str], digest: str
    ) -> None:
        self.result.unlink(missing_ok=True)
        self.progress.unlink(missing_ok=True)
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        write_json(self.folder / "spec.json", {**spec, "progress": str(self.progress)})
        python, program, command = plan_line[:3]
        line = command_line(python, program, command, str(self.folder / "spec.json"), False, str(self.result))
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=process_variables(program, {**variables, **self._marks()}),
                cwd=str(self.folder),
                start_new_session=True,
                pass_fds=(hold,),
            )
        started = {"process": identity(process.pid), "digest": digest, "line": line, "started": int(time.time())}
        write_json(self.record, started)

    def poll(self, wait: float) -> dict[str, Any]:
        """Wait up to ``wait`` seconds for the end; the job's state, or its result, ``failed`` where the job failed.

        Raises ``Refusal`` when no job was started, or when it left workers that cannot be ended.
        """
        if not self.record.exists():
            raise Refusal("job", f"no job was started in {self.folder}", "", "start it: --tags extract")
        deadline = time.monotonic() + wait
        while self._main() and time.monotonic() < deadline:
            time.sleep(0.2)
        progress = read_json(self.progress) or {}
        main = self._main()
        if main:
            done, total = progress.get("samples", 0), progress.get("total", "?")
            text = f"{self.folder} still runs, process {main['pid']}, {done} of {total} samples"
            text += f"; running the playbook again goes on waiting{self._last_words()}"
            return {"changed": False, "running": True, "finished": False, "progress": progress, "msg": text}
        self.clean()
        result = read_json(self.result)
        if result is None:
            return _failed({"msg": self._without_result(progress)}, self._log_tail())
        if result.get("failed"):
            return _failed(result, self._log_tail())
        return {**result, "changed": False, "running": False, "finished": True, "progress": progress}

    def _without_result(self, progress: dict[str, Any]) -> str:
        """The message about a job that ended without a result."""
        process = (read_json(self.record) or {}).get("process") or {}
        # A job that ends itself says so in its progress before it goes.
        how = "gave up" if progress.get("phase") == "failed" else "was killed, or the host went down"
        text = f"the job (process {process.get('pid')}) ended without a result: it {how}"
        return f"{text}. Running the playbook again continues it{self._last_words()}"

    def stop(self, wait: float, check: bool, remove: bool) -> dict[str, Any]:
        """End the job and its workers; with ``remove`` also remove its folder. Raises ``Refusal``."""
        main = self._main()
        ours = ([main] if main else []) + self._workers()
        changed = bool(ours) or (remove and self.folder.exists())
        if not check:
            # The main process first: it ends its workers itself and leaves a state that can be continued.
            left = end([main], wait) if main else []
            left += end(self._workers(), ORPHAN_GRACE)
            if left:
                found = f"processes {_pids(left)} cannot be ended"
                raise Refusal("job", found, "", "end them by hand, as the user who owns them")
            if remove and self.folder.exists():
                shutil.rmtree(self.folder)
        message = f"{'would end' if check else 'ended'} processes {_pids(ours)}" if ours else "no job runs"
        done = {"name": "no process of the job runs", "status": "pass", "found": message, "wanted": "none"}
        section = {"section": "extract", "checks": [{**done, "remedy": ""}], "data": {"summary": message}}
        return {"changed": changed, "running": False, "finished": True, "msg": message, "aerie": section}


def _pids(processes: list[dict[str, Any]]) -> str:
    return ", ".join(str(process["pid"]) for process in processes)


def _failed(document: dict[str, Any], log: str) -> dict[str, Any]:
    """The result of a module whose command failed."""
    return {"msg": "no message", **document, "failed": True, "changed": False, "finished": True, "stderr": log}
