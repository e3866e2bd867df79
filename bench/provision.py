#!/usr/bin/env python3
"""Measure provisioning on this machine: the role ml_env beside bare uv, and a converge that has nothing to do.

Both build the same lock from the same warm cache, without the network, in pairs, in one run; medians are given, of
seconds and of the ratios of pairs. The idle converge, of which the least is given, is gates, environment, patches and
audit, by the connection "local" and, as root, over SSH to a host that tools/ssh_hosts.py makes.
Run with the controller's Python (.venv/bin/python bench/provision.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from aerie_paths import CHECKOUT

from tools import ssh_hosts

BIN = Path(sys.executable).parent

# An index, which uv asks again also for what it has, answers in times that vary more than what is measured here.
OFFLINE = {"UV_OFFLINE": "1"}
NAMES = ("`uv venv` + `uv pip sync`, bare", "ml_env, the module", "ml_env, the whole command")


def timed(command: list[str], **more: str) -> tuple[float, str]:
    """Seconds and output of a command, which must end well."""
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=CHECKOUT, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.monotonic() - began, done.stdout


class Site:
    """An inventory of one host in a scratch folder, and runs of the playbooks on it."""

    def __init__(self, work: Path, stack: str, host: dict[str, Any], home: Path) -> None:
        self.work, self.home = work, home
        values = yaml.safe_load((CHECKOUT / "inventory/local/group_vars/extraction_hosts.yml").read_text())
        values.update(
            aerie_stack_name=stack,
            aerie_home=str(home),
            # The files of the demonstration, by the path that they have here and below a test host's root.
            hidden_states_data_path=str(CHECKOUT / "files/conversations/demo.jsonl"),
            ml_env_python=sys.executable,
            ml_env_uv_environment=OFFLINE,
            truth_architectures=[],
            # Imports are no part of what is measured.
            package_patches_verify_imports=False,
        )
        self.inventory = work / "inventory.json"
        document = {"extraction_hosts": {"hosts": {"measured": {**host}}, "vars": values}}
        self.inventory.write_text(json.dumps(document))

    def play(self, *tags: str, skip: str = "") -> tuple[float, dict[str, Any], int]:
        """Wall time, the report, and the number of tasks that the host ran."""
        line = [str(BIN / "ansible-playbook"), "site.yml", "-i", str(self.inventory), "--tags", ",".join(tags)]
        more = {"AERIE_REPORTS": str(self.work / "reports"), "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
        seconds, said = timed([*line, *(["--skip-tags", skip] if skip else [])], **more)
        recap = re.search(r"^measured\s+: ok=(\d+) .* skipped=(\d+)", said, re.MULTILINE)
        if not recap:
            raise SystemExit(f"no recap of the host in: {said[-2000:]}")
        report = json.loads((self.work / "reports/latest/report.json").read_text())
        return seconds, report, int(recap.group(1)) + int(recap.group(2))

    def idle(self, repeats: int) -> tuple[float, int]:
        """Least wall time and tasks of a converge that changes nothing, after one that does."""
        self.play("gates", "provision", "patch", "audit")
        runs = [self.play("gates", "provision", "patch", "audit") for _ in range(repeats)]
        if any(report["counts"]["changed"] for _, report, _ in runs):
            raise SystemExit("a second run changed something")
        return min(seconds for seconds, _, _ in runs), runs[0][2]


def cleared(*places: Path) -> None:
    """Remove what was built before, and let the disk come to rest."""
    for place in places:
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            shutil.rmtree(place)
    os.sync()


def bare(home: Path, lock: Path, **more: str) -> float:
    """Seconds of `uv venv` and `uv pip sync`, as the role requires, and where it builds: folders differ in speed."""
    place, uv = home / "ml-env.d" / "bare", str(BIN / "uv")
    cleared(home / "ml-env", place.parent)
    place.parent.mkdir(parents=True)
    first, _ = timed([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(place)])
    sync = [uv, "pip", "sync", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    second, _ = timed([*sync, "--python", str(place / "bin/python"), str(lock)], **more)
    return first + second


def role(site: Site) -> tuple[float, float]:
    """Seconds of the module, as it reports them, and of the whole command, for an environment made anew."""
    cleared(site.home / "ml-env", site.home / "ml-env.d")
    seconds, report, _ = site.play("provision", skip="gates")
    return float(report["hosts"]["measured"]["sections"]["provision"]["data"]["seconds"]), seconds


def over_ssh(work: Path, stack: str, repeats: int) -> tuple[float, int]:
    """The idle converge over SSH, as a user who becomes root."""
    cache = timed([str(BIN / "uv"), "cache", "dir"])[1].strip()
    ssh_hosts.create(work / "lab", ["measured"])
    try:
        host = {**ssh_hosts.inventory(work / "lab", "measured"), "ansible_python_interpreter": "/usr/bin/python3"}
        # The Python below .venv: a checkout under /tmp is not seen from there.
        host["ml_env_python"] = os.path.realpath(sys.executable)
        host["ml_env_uv_environment"] = {**OFFLINE, "UV_CACHE_DIR": cache}
        return Site(work, stack, host, Path("/srv/aerie")).idle(repeats)
    finally:
        ssh_hosts.remove(work / "lab")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="vllm-0.16-cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder on the filesystem of uv's cache (default: ~)")
    given = parser.parse_args()
    lock = CHECKOUT / "stacks" / f"{given.stack}.lock"
    with tempfile.TemporaryDirectory(prefix=".aerie-bench-", dir=given.work or Path.home()) as scratch:
        work = Path(scratch)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        site = Site(work, given.stack, local, work / "home")
        bare(site.home, lock)  # the cache is warm from here on
        triples = []
        for number in range(given.repeats):
            # In changing order: a filesystem gets slower, or faster, from one build to the next.
            first = role(site) if number % 2 else None
            plain = bare(site.home, lock, **OFFLINE)
            triples.append((plain, *(first or role(site))))
        print("| what | seconds | |\n|---|---|---|")
        for name, column in zip(NAMES, zip(*triples, strict=True), strict=True):
            ratios = [mine / triple[0] for mine, triple in zip(column, triples, strict=True)]
            print(f"| {name} | {statistics.median(column):.2f} | {statistics.median(ratios):.2f} of bare |")
        seconds, tasks = site.idle(given.repeats)
        print(f"| nothing to do, local | {seconds:.1f} | {tasks} tasks |")
        lacking = ssh_hosts.missing()
        if lacking:
            print(f"| nothing to do, over SSH | not measured | needs {', '.join(lacking)} |")
        else:
            seconds, tasks = over_ssh(work, given.stack, given.repeats)
            print(f"| nothing to do, over SSH | {seconds:.1f} | {tasks} tasks |")
    print(f"\n{os.cpu_count()} cores, load averages at the end {', '.join(f'{one:.1f}' for one in os.getloadavg())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
