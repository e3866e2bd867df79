# SPDX-License-Identifier: Apache-2.0
"""Make the bundle of a stack on a connected machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_bundle
short_description: Make the bundle of a stack for hosts without a network
description:
  - Downloads the wheels of the lock for one Python and one kind of machine, by hash. Adds uv and, where O(model) is
    set, a model. Writes C(manifest.json) with the sha256 of each file last.
  - A bundle that is complete and made from the same lock is left as it is, without using the network.
  - Runs on the controller (connection local), whose Python must have pip.
options:
  path: {description: Folder of the bundle, type: path, required: true}
  stack: {description: Name of the stack, type: str, required: true}
  lock: {description: The stack's lock, type: path, required: true}
  python: {description: 'Python of the hosts, as C(3.12)', type: str, required: true}
  glibc: {description: Oldest C library of the hosts, type: str, required: true}
  machine: {description: Processor of the hosts, type: str, required: true}
  model: {description: Folder of a checkpoint to take along; empty for none, type: path, default: ''}
  environment: {description: 'Variables for pip: mirror, proxy, certificates', type: dict, default: {}}
  wheel: {description: Where vLLM comes from when it is not in the lock (docs/stacks.md), type: dict, default: {}}
  wheel_record: {description: Lock of that one wheel, type: path, default: ''}
  trust_first_download:
    description: Record the digest of the wheel at its first download, where none is known.
    type: bool
    default: false
attributes:
  check_mode: {support: full, description: Says whether the bundle would be made anew}
  diff_mode: {support: none, description: Thousands of files}
author: [Aerie contributors]
"""

EXAMPLES = r"""
- name: Bundle the stack
  stack_bundle:
    path: /media/usb/aerie
    stack: vllm-0.16-cuda
    lock: /srv/aerie/stacks/vllm-0.16-cuda.lock
    python: "3.12"
    glibc: "2.31"
    machine: x86_64
"""

RETURN = r"""
aerie: {description: Section C(bundle) of the report, type: dict, returned: always}
"""

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible.module_utils.aerie.environment import bundle, uv, vllm_wheel, wheel_record
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.gates.machine import size
from ansible.module_utils.aerie.module_io import secrets
from ansible.module_utils.aerie.module_io.result import finish
from ansible.module_utils.aerie.module_io.variables import as_text
from ansible.module_utils.aerie.shared.checks import Check, Checks
from ansible.module_utils.aerie.shared.refusal import Refusal

REMEDY = "see what pip said; mirrors, proxies and certificates go into bundle_environment"


def download(params: dict[str, Any], wanted: str, wheels: Path) -> None:
    """Download the wheels into a folder. Raises `Refusal` with what pip said."""
    digits = params["python"].replace(".", "")
    tags = [part for tag in bundle.platforms(params["glibc"], params["machine"]) for part in ("--platform", tag)]
    abis = [part for abi in (f"cp{digits}", "abi3", "none") for part in ("--abi", abi)]
    with tempfile.TemporaryDirectory(prefix="aerie-bundle-") as scratch:
        lines = Path(scratch) / "requirements.txt"
        lines.write_text(wanted, encoding="utf-8")
        command = [
            # A quiet pip does not say that a certificate was the reason.
            sys.executable, "-m", "pip", "download", "--progress-bar", "off", "--no-deps", "--require-hashes",
            "--only-binary", ":all:", "--implementation", "cp", "--python-version", params["python"],
            *abis, *tags, "--dest", str(wheels), "--requirement", str(lines),
        ]  # fmt: skip
        done = subprocess.run(command, env=variables(params), capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-uv.TAIL :])
        found = f"pip download ended with {done.returncode}: {said}"
        raise Refusal("bundle", found, "every wheel of the lock", REMEDY)


def variables(params: dict[str, Any]) -> dict[str, str]:
    """The controller's variables and those added; a file of certificates under every name that tools look for."""
    added = as_text(params["environment"])
    merged = {**os.environ, **added}
    # Added certificates replace the controller's: pip would use its REQUESTS_CA_BUNDLE first.
    authorities = added.get("PIP_CERT") or added.get("SSL_CERT_FILE")
    if authorities:
        return {**merged, **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"), authorities), **added}
    if merged.get("SSL_CERT_FILE"):
        merged.setdefault("PIP_CERT", merged["SSL_CERT_FILE"])
    return merged


def with_wheel(params: dict[str, Any], text: str, dry: bool) -> str:
    """The complete lock. Where the stack's lock leaves vLLM out, its wheel goes into the bundle, its digest on record.

    Raises `Refusal` or `OSError`.
    """
    source = vllm_wheel.source_of(params["wheel"])
    if source is None:
        return text
    folder, reached = Path(params["path"]) / "wheels", uv.clean_variables(variables(params), {})

    def fetch() -> wheel_record.RecordedWheel:
        wheel = vllm_wheel.obtain(source, folder, "", reached)
        return wheel_record.RecordedWheel(wheel.version, wheel.sha256)

    known = wheel_record.settle(Path(params["wheel_record"]), source, params["trust_first_download"], fetch, dry)
    if known is None:
        return text
    if not dry:
        vllm_wheel.obtain(dataclasses.replace(source, sha256=known.sha256), folder, known.version, reached)
    return text.rstrip("\n") + "\n" + vllm_wheel.pin_line(source.distribution, known.version, known.sha256)


def drop_others(wheels: Path, wanted: str) -> None:
    """Remove wheels whose digest is not in the requirements: they are of an earlier lock."""
    for path in wheels.iterdir():
        if f"sha256:{file_digest(path)}" not in wanted:
            path.unlink()


def copy_model(model: Path, target: Path) -> None:
    """The checkpoint's files as the bundle's `model`: links where they can be, as nothing writes to either."""
    if target.exists():
        shutil.rmtree(str(target))

    def link(source: str, place: str) -> str:
        try:
            os.link(os.path.realpath(source), place)
        except OSError:
            shutil.copy2(source, place)
        return place

    shutil.copytree(str(model), str(target), copy_function=link)


def complete(folder: Path, facts: dict[str, Any]) -> bool:
    """Whether the folder is a bundle with these facts and without damage."""
    manifest = bundle.read(folder)
    same = bool(manifest) and all(manifest.get(name) == value for name, value in facts.items())
    return same and not bundle.damages(folder, manifest)


def make(params: dict[str, Any], stack_text: str, text: str, facts: dict[str, Any]) -> None:
    """Make the bundle, or complete one; wheels that are there and intact stay."""
    folder = Path(params["path"])
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    (folder / bundle.MANIFEST).unlink(missing_ok=True)
    download(params, bundle.requirements(stack_text, f"{params['python']}.0"), wheels)
    drop_others(wheels, bundle.requirements(text, f"{params['python']}.0"))
    (folder / "lock.txt").write_text(text, encoding="utf-8")
    uv.install(Path(sys.executable).parent / "uv", folder / "bin" / "uv")
    if params["model"]:
        copy_model(Path(params["model"]), folder / "model")
    bundle.write(folder, facts)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "stack": {"type": "str", "required": True},
            "lock": {"type": "path", "required": True},
            "python": {"type": "str", "required": True},
            "glibc": {"type": "str", "required": True},
            "machine": {"type": "str", "required": True},
            "model": {"type": "path", "default": ""},
            "environment": {"type": "dict", "default": {}, "no_log": True},
            "wheel": {"type": "dict", "default": {}, "no_log": True},
            "wheel_record": {"type": "path", "default": ""},
            "trust_first_download": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params, checks, folder = module.params, Checks(), Path(module.params["path"])
    secrets.hide(module, params["environment"], os.environ, *secrets.addresses_of(params["wheel"]))
    facts = {name: params[name] for name in ("stack", "python", "glibc", "machine", "model")}
    changed = True
    try:
        stack_text = Path(params["lock"]).read_text(encoding="utf-8")
        text = with_wheel(params, stack_text, module.check_mode)
        facts["lock_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        changed = not complete(folder, facts)
        if changed and not module.check_mode:
            make(params, stack_text, text, facts)
    except Refusal as refusal:
        checks.append(refusal.as_check())
        finish(module, "bundle", checks, False, {})
        return
    except OSError as error:
        checks.append(Check("bundle", "fail", str(error), "every wheel of the lock", REMEDY))
        finish(module, "bundle", checks, False, {})
        return
    files = bundle.read(folder).get("files", {})
    total = size(sum(entry["bytes"] for entry in files.values()))
    text = f"{len(files)} files, {total}" if files else "would be made"
    checks.add("bundle", "pass", text, f"the lock of {params['stack']} for Python {params['python']}")
    finish(module, "bundle", checks, changed, {"path": str(folder), "summary": f"{params['stack']}: {text}"})


if __name__ == "__main__":
    main()
