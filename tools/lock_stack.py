#!/usr/bin/env python3
"""Renew the lock of a stack with `uv pip compile`, or check without network that locks still answer to their inputs."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from aerie_paths import CHECKOUT

from ansible.module_utils.aerie.distributions.versions import release, satisfies
from ansible.module_utils.aerie.environment import comparison
from ansible.module_utils.aerie.environment.wheel_name import NEWEST, file_of, parse_name

STACKS = CHECKOUT / "stacks"
DIGEST_LINE = re.compile(r"^# inputs sha256:([0-9a-f]{64})$", re.MULTILINE)
NEEDS_LINE = re.compile(r"^# needs glibc (\S+), (\S+)$", re.MULTILINE)
FILE = re.compile(r'(?:url|path) = "([^"]+)".*?sha256 = "([0-9a-f]{64})"')
PIN_LINE = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\]+?)? \\$", re.MULTILINE)


def load(name: str) -> dict[str, Any]:
    """The parsed stack file `stacks/<name>.yml`; exits with the known names when there is none."""
    path = STACKS / f"{name}.yml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in STACKS.glob("*.yml")))
        raise SystemExit(f"no stack {name!r}: there are {known}. Usage: make lock STACK=<name>")
    stack: dict[str, Any] = yaml.safe_load(path.read_text())
    return stack


def inputs_digest(stack: dict[str, Any]) -> str:
    """sha256 over everything that the lock is made from: inputs, overrides and the resolver's options."""
    digest = hashlib.sha256()
    for suffix in ("in", "overrides"):
        digest.update((STACKS / f"{stack['name']}.{suffix}").read_bytes() + b"\0")
    digest.update("\0".join(stack["lock_options"]).encode())
    return digest.hexdigest()


def requirements(path: Path) -> list[Requirement]:
    """The requirements of a file that holds requirements and comments only."""
    lines = (line.split(" #")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def left_out(stack: dict[str, Any]) -> set[str]:
    """Distributions that are resolved for their requirements' sake and come from elsewhere."""
    options = stack["lock_options"]
    return {canonicalize_name(after) for one, after in itertools.pairwise(options) if one == "--no-emit-package"}


def lock(stack: dict[str, Any], wheel: str = "") -> None:
    """Resolve the stack anew and write its lock, with the digest of its inputs in the head.

    With a wheel, its own requirements count instead of those of the release that stands in for it.
    """
    name = stack["name"]
    target = STACKS / stack["lock"]
    command = ["uv", "pip", "compile", "--quiet", "--upgrade", "--generate-hashes", "--only-binary", ":all:"]
    # Where the files come from is the site's affair; what they are is ours.
    command += ["--no-emit-index-url", "--no-emit-find-links", "--no-header", *stack["lock_options"]]
    command += ["--overrides", f"{name}.overrides", "-"]
    lines = (STACKS / f"{name}.in").read_text().splitlines()
    if wheel:
        owner = canonicalize_name(Path(wheel).name.split("-")[0])
        lines = [line for line in lines if canonicalize_name(line.split("==")[0]) != owner]
        lines.append(f"{owner} @ {wheel if '://' in wheel else Path(wheel).absolute().as_uri()}")
    done = subprocess.run(command, cwd=STACKS, input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: the resolver found no answer; {target.name} is as it was")
    asked = f" WHEEL={Path(wheel).name}" if wheel else ""
    target.write_text(head(stack, done.stdout, asked) + done.stdout)
    print(f"{target.name}: {len(PIN_LINE.findall(done.stdout))} distributions")


def head(stack: dict[str, Any], text: str, asked: str = "") -> str:
    """The first lines of a lock: how it was made, from what, and what its wheels need of a host."""
    made = f"# Made by: make lock STACK={stack['name']}{asked}\n# inputs sha256:{inputs_digest(stack)}\n"
    return made + f"# needs glibc {glibc_of(stack, text)}, {stack['machine']}\n"


def glibc_of(stack: dict[str, Any], text: str) -> str:
    """The oldest C library that has a wheel of every pin, on each Python of the stack, by the names of the files."""
    # Of all forms of a lock this one alone names files.
    command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--only-binary", ":all:", "--format", "pylock.toml"]
    command += [*stack["lock_options"], "-"]
    done = subprocess.run(command, cwd=STACKS, input=text, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{stack['name']}: the index does not name the files of the lock")
    files = {f"sha256:{digest}": parse_name(file_of(place)) for place, digest in FILE.findall(done.stdout)}
    needs: list[tuple[int, ...]] = [(0,)]
    for minor in (one for one in range(NEWEST) if satisfies(f"3.{one}", stack["python"])):
        for name, wants in comparison.locked_versions(text, f"3.{minor}.0").items():
            wheels = [file for digest in wants.hashes if (file := files.get(digest)) is not None]
            fits = [one for one in wheels if one.runs_on(stack["machine"], f"==3.{minor}")]
            if not fits:
                raise SystemExit(f"{stack['name']}: no wheel of {name} for Python 3.{minor} on {stack['machine']}")
            needs.append(min(one.glibc(stack["machine"]) or () for one in fits))
    return ".".join(map(str, max(needs)))


def unfit(stack: dict[str, Any], text: str) -> list[str]:
    """Where the stack, and so its gates, would let in a host on which a wheel of the lock does not run."""
    needs = NEEDS_LINE.search(text)
    if needs is None:
        return [f"{stack['lock']} does not say what it needs of a host: run make lock STACK={stack['name']}"]
    if release(needs[1]) <= release(str(stack["glibc"])) and needs[2] == stack["machine"]:
        return []
    says = f"glibc {stack['glibc']}, {stack['machine']}; its lock needs {needs[1]}, {needs[2]}"
    return [f"{stack['name']}.yml: {says}"]


def problems(stack: dict[str, Any]) -> list[str]:
    """What is wrong with the lock of a stack, judged from the files alone."""
    name = stack["name"]
    target = STACKS / stack["lock"]
    remedy = f"run make lock STACK={name}"
    if not target.is_file():
        return [f"{target.name} is missing: {remedy}"]
    text = target.read_text()
    found = []
    digest = DIGEST_LINE.search(text)
    if digest is None or digest[1] != inputs_digest(stack):
        found.append(f"{target.name} was made from other inputs: {remedy}")
    found += unfit(stack, text)
    if "://" in text:
        found.append(f"{target.name} names an address; a lock holds names, versions and digests only")
    pins: dict[str, list[str]] = {}
    for pin, version in PIN_LINE.findall(text):
        pins.setdefault(canonicalize_name(pin), []).append(version)
    entries = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    if len(entries) != sum(len(group) for group in pins.values()):
        found.append(f"{target.name} has an entry that is not a pin with hashes")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    found += [f"{target.name}: {b.split()[0]} has no hash" for b in blocks if "--hash=sha256:" not in b]
    for suffix in ("in", "overrides"):
        for wanted in requirements(STACKS / f"{name}.{suffix}"):
            if wanted.marker is not None and not wanted.marker.evaluate():
                continue
            versions = pins.get(canonicalize_name(wanted.name), [])
            if not versions and canonicalize_name(wanted.name) in left_out(stack):
                continue
            if not versions or not all(wanted.specifier.contains(v, prereleases=True) for v in versions):
                found.append(
                    f"{target.name} has {wanted.name} {versions or 'not at all'}, {name}.{suffix} wants {wanted}"
                )
    return found


def main() -> int:
    """Command line; 0 done, 1 a lock is stale, 2 usage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stack", nargs="?", default="")
    parser.add_argument("--wheel", default="", help="file or address of a wheel whose requirements count")
    parser.add_argument("--check", action="store_true", help="check all locks, resolve nothing")
    arguments = parser.parse_args()
    if not arguments.check:
        lock(load(arguments.stack), arguments.wheel)
        return 0
    stacks = sorted(STACKS.glob("*.yml"))
    found = [problem for path in stacks for problem in problems(load(path.stem))]
    print("\n".join(found) or f"locks: {len(stacks)} stacks, each lock answers to its inputs")
    return 1 if found or not stacks else 0


if __name__ == "__main__":
    sys.exit(main())
