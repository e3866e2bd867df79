"""One long-running command of the host program: started once, found again, stopped only when proven to be ours."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.aerie.jobs.program import command_line, process_variables, run_program, tail
from ansible.module_utils.aerie.shared.processes import MARKER, end, identity, is_alive, marked

ORPHAN_GRACE = 10
LOG_TAIL_BYTES = 20000


class HostJobError(Exception):
    """The job cannot go on; ``result`` holds more for the caller."""

    def __init__(self, message: str, **result: Any) -> None:
        super().__init__(message)
        self.result = result


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _write(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(value, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


class HostJob:
    """The job whose record, lock, log and result lie in ``job_dir``."""

    def __init__(self, job_dir: str) -> None:
        self.folder = Path(job_dir).absolute()
        self.marker = str(self.folder)
        self.record = self.folder / "job.json"
        self.log = self.folder / "job.log"
        self.result = self.folder / "result.json"
        self.progress = self.folder / "progress.json"

    def _main(self) -> dict[str, Any] | None:
        """Identity of the job's main process, if it runs."""
        known = (_read(self.record) or {}).get("process")
        return known if is_alive(known) else None

    def _workers(self) -> list[dict[str, Any]]:
        """Running processes with the job's marker, other than the main one."""
        main = self._main()
        return [one for one in marked(self.marker) if one != main]

    def _lock(self) -> int | None:
        """Take the job's lock; None while any process of the job holds it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / "job.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise HostJobError(self._foreign()) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _foreign(self) -> str:
        """Why a job's folder cannot be written to: most often the run has become another user than the job's."""
        main, place = self._main(), self.folder
        # Below a folder that is closed to this user even asking is refused.
        while not os.access(str(place), os.F_OK):
            place = place.parent
        state = f"; its job runs, process {main['pid']}" if main else ""
        return (
            f"user {os.geteuid()} cannot write to {place}, which belongs to user {place.stat().st_uid}{state}: "
            "run as that user (ansible_become_user), or name another aerie_home"
        )

    def _log_tail(self) -> str:
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return tail(stream.read().decode(errors="replace"))
        except OSError:
            return ""

    def _last_words(self) -> str:
        """The last line of the log that is the program's own, else its last line, for a message."""
        lines = [line for line in self._log_tail().splitlines() if line.strip()]
        own = [line for line in lines if line.startswith("aerie: ")]
        return f". Its log ends: {(own or lines)[-1].strip()[:300]}" if lines else ""

    def clean(self) -> int:
        """End what a killed job left running; return how many processes that were."""
        orphans = [] if self._main() else self._workers()
        left = end(orphans, ORPHAN_GRACE)
        if left:
            pids = ", ".join(str(one["pid"]) for one in left)
            raise HostJobError(f"processes {pids} of an earlier run cannot be ended: end them by hand")
        return len(orphans)

    def _take(self, digest: str) -> tuple[int | None, int]:
        """The lock, or None when the job already runs; and how many orphans were ended on the way."""
        lock = self._lock()
        cleaned = 0
        deadline = time.monotonic() + 30
        while lock is None:
            if self._main():
                if (_read(self.record) or {}).get("digest") != digest:
                    text = (
                        f"a job with other inputs runs in {self.folder}: wait for it, or stop it (playbooks/stop.yml)"
                    )
                    raise HostJobError(text)
                return None, cleaned
            # Held, but not by a living main process: either another start is on its way or orphans hold it.
            time.sleep(1)
            lock = self._lock()
            if lock is None and not self._main():
                cleaned += self.clean()
                lock = self._lock()
            if lock is None and time.monotonic() > deadline:
                raise HostJobError(f"{self.folder}/job.lock is held by a process that is not the job: look with fuser")
        return lock, cleaned + self.clean()

    def start(
        self,
        python: str,
        program: str,
        command: str,
        spec: dict[str, Any],
        environment: dict[str, str],
        plan_timeout: float,
        check: bool,
    ) -> dict[str, Any]:
        """Plan, and start the command when there is work; find it when it already runs."""
        digest = hashlib.sha256(json.dumps([command, spec, environment], sort_keys=True).encode()).hexdigest()
        running = {"changed": False, "running": True, "finished": False, "msg": "the job runs already"}
        plan_line = command_line(python, program, command, "-", check=True)
        if check:
            return running if self._main() else self._plan(plan_line, spec, environment, plan_timeout)
        lock, cleaned = self._take(digest)
        if lock is None:
            return running
        try:
            result = self._plan(plan_line, spec, environment, plan_timeout)
            result["orphans_ended"] = cleaned
            if not result["finished"]:
                self._launch(lock, plan_line, spec, environment, digest)
                result["running"] = True
                # The plan's checks are not the job's: those come with its result.
                result.pop("aerie", None)
            result["changed"] = result["changed"] or cleaned > 0
            return result
        finally:
            # The job, if it was started, holds the same lock through its own descriptor.
            os.close(lock)

    def _plan(
        self, line: list[str], spec: dict[str, Any], environment: dict[str, str], timeout: float
    ) -> dict[str, Any]:
        """Ask the command what it would do; ``finished`` when that is nothing."""
        plan, log = run_program(line, spec, process_variables(line[1], environment), timeout)
        if plan.pop("failed", False):
            raise HostJobError(str(plan.pop("msg", "no message")), stderr=log, **plan)
        needed = bool(plan.get("changed", True))
        return {**plan, "changed": needed, "running": False, "finished": not needed}

    def _marks(self) -> dict[str, str]:
        # SPT_NOENV: without it setproctitle, which vLLM's workers call, overwrites the environment that we look at.
        return {MARKER: self.marker, "SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"}

    def _launch(
        self, lock: int, plan_line: list[str], spec: dict[str, Any], environment: dict[str, str], digest: str
    ) -> None:
        self.result.unlink(missing_ok=True)
        self.progress.unlink(missing_ok=True)
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        _write(self.folder / "spec.json", {**spec, "progress": str(self.progress)})
        python, program, command = plan_line[:3]
        line = command_line(python, program, command, str(self.folder / "spec.json"), False, str(self.result))
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=process_variables(program, {**environment, **self._marks()}),
                cwd=str(self.folder),
                start_new_session=True,
                pass_fds=(lock,),
            )
        started = {"process": identity(process.pid), "digest": digest, "line": line, "started": int(time.time())}
        _write(self.record, started)

    def poll(self, wait: float) -> dict[str, Any]:
        """Wait up to ``wait`` seconds for the end; report how far the job is, or what came of it."""
        if not self.record.exists():
            raise HostJobError(f"no job was started in {self.folder}")
        deadline = time.monotonic() + wait
        while self._main() and time.monotonic() < deadline:
            time.sleep(0.2)
        progress = _read(self.progress) or {}
        main = self._main()
        if main:
            done, total = progress.get("samples", 0), progress.get("total", "?")
            text = f"{self.folder} still runs, process {main['pid']}, {done} of {total} samples"
            text += f"; running the playbook again goes on waiting{self._last_words()}"
            return {"changed": False, "running": True, "finished": False, "progress": progress, "msg": text}
        self.clean()
        document = _read(self.result)
        if document is None:
            known = (_read(self.record) or {}).get("process") or {}
            # A job that ended itself says so before it goes.
            how = "gave up" if progress.get("phase") == "failed" else "was killed, or the host went down"
            text = f"the job (process {known.get('pid')}) ended without a result: it {how}"
            text += f". Running the playbook again continues it{self._last_words()}"
            raise HostJobError(text, stderr=self._log_tail())
        document["changed"] = False
        if document.pop("failed", False):
            raise HostJobError(str(document.pop("msg", "no message")), stderr=self._log_tail(), **document)
        return {**document, "running": False, "finished": True, "progress": progress}

    def stop(self, wait: float, check: bool, remove: bool) -> dict[str, Any]:
        """End the job and its workers; with ``remove`` also drop its folder."""
        main = self._main()
        ours = ([main] if main else []) + self._workers()
        changed = bool(ours) or (remove and self.folder.exists())
        if not check:
            # The main process first: it ends its workers itself and leaves a state that can be continued.
            left = end([main], wait) if main else []
            left += end(self._workers(), ORPHAN_GRACE)
            if left:
                raise HostJobError(f"processes {', '.join(str(one['pid']) for one in left)} cannot be ended")
            if remove and self.folder.exists():
                shutil.rmtree(self.folder)
        pids = ", ".join(str(one["pid"]) for one in ours)
        message = f"{'would end' if check else 'ended'} processes {pids}" if ours else "no job runs"
        check_done = {"name": "no process of the job runs", "status": "pass", "found": message, "wanted": "none"}
        section = {"section": "extract", "checks": [{**check_done, "remedy": ""}], "data": {"summary": message}}
        return {"changed": changed, "running": False, "finished": True, "msg": message, "aerie": section}
