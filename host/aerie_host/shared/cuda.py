"""What CUDA needs on a host: code built for its GPUs, and a compiler for kernels that are compiled at first use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Iterable, Tuple

from .checks import Check

# Major and minor: of a toolkit's release, or of a GPU's compute capability.
Version = Tuple[int, int]
# The first toolkit whose compiler knows a compute capability (release notes of the CUDA toolkit).
FIRST_TOOLKIT = {(12, 0): (12, 8), (10, 0): (12, 8), (9, 0): (11, 8), (8, 9): (11, 8), (8, 0): (11, 0)}
ARCHITECTURE = re.compile(r"(?:(sm|compute)_(\d+)(\d)|(\d+)\.(\d))([af]?)")


def version(written: str) -> Version:
    """Major and minor of a version text, ``(0, 0)`` when it has none: "12.8.93" gives ``(12, 8)``."""
    match = re.match(r"(\d+)\.(\d+)", written)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def text(number: Version) -> str:
    """A version as text: "12.8"."""
    return f"{number[0]}.{number[1]}"


def runs_on(capability: str, architectures: Iterable[str]) -> bool:
    """Whether code built for these architectures runs on a GPU of this compute capability ("12.0").

    Architectures are written as ``torch.cuda.get_arch_list()`` gives them or as capabilities. Binary code (``sm_XY``,
    ``X.Y``) runs on the same major with the same or a later minor; ``sm_90a`` on exactly its own; intermediate code
    (``compute_XY``) on everything from there on.
    """
    wanted = version(capability)
    for name in architectures:
        match = ARCHITECTURE.fullmatch(name)
        if not match:
            continue
        kind, suffix = match.group(1), match.group(6)
        built = (int(match.group(2) or match.group(4)), int(match.group(3) or match.group(5)))
        if suffix == "a":
            fits = built == wanted
        elif kind == "compute":
            fits = built <= wanted
        else:
            fits = built[0] == wanted[0] and built[1] <= wanted[1]
        if fits:
            return True
    return False


def architecture_check(
    name: str, gpus: Iterable[tuple[str, str]], architectures: Iterable[str], stated_by: str
) -> Check:
    """Whether the code runs on every GPU.

    Args:
        name: the name of the check.
        gpus: compute capability and name of each GPU; the name may be empty.
        architectures: what the code was built for.
        stated_by: who states the architectures: "torch", "the stack".

    """
    gpus, architectures = list(gpus), list(architectures)
    bad = sorted({capability for capability, _ in gpus if not runs_on(capability, architectures)})
    there = sorted({f"{capability} ({model})" if model else capability for capability, model in gpus})
    wanted = f"code for it: {stated_by} has {', '.join(architectures) or 'none'}"
    remedy = ""
    if bad:
        toolkits = [f"sm_{c.replace('.', '')}" + _first_toolkit(version(c)) for c in bad]
        remedy = f"choose a stack whose torch and vLLM are built for {', '.join(toolkits)}"
    elif not gpus:
        remedy = "see whether nvidia-smi finds a GPU, or choose a stack for CPU"
    return Check(name, "fail" if remedy else "pass", ", ".join(there) or "no GPU", wanted, remedy)


def _first_toolkit(capability: Version) -> str:
    first = FIRST_TOOLKIT.get(capability)
    return f" (CUDA {text(first)} or newer)" if first else ""


def find_nvcc() -> str:
    """Path of the CUDA compiler that FlashInfer and others find; empty when there is none."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    places = [f"{home}/bin/nvcc" for home in homes if home]
    return shutil.which("nvcc") or next((place for place in places if os.access(place, os.X_OK)), "")


def nvcc_release(path: str) -> str:
    """Release of the CUDA compiler at ``path``, "12.8"; empty when it does not say one."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"release (\d+\.\d+)", done.stdout)
    return match.group(1) if match else ""


def wanted_nvcc(cuda: str, capabilities: Iterable[str]) -> Version:
    """The oldest compiler that does: of torch's CUDA at least, and one that knows every GPU."""
    return max([version(cuda), *(FIRST_TOOLKIT.get(version(capability), (0, 0)) for capability in capabilities)])


def compiler_check(name: str, path: str, release: str, cuda: str, capabilities: Iterable[str]) -> Check:
    """Whether kernels can be compiled at first use; a warning when not, because not every model needs one.

    Args:
        name: the name of the check.
        path: the CUDA compiler; empty for none.
        release: its release; empty when it does not say one.
        cuda: the CUDA version of the stack, as ``torch.version.cuda`` gives it.
        capabilities: compute capabilities of the GPUs; may be empty.

    """
    oldest = wanted_nvcc(cuda, capabilities)
    good = bool(path) and bool(release) and version(release) >= oldest
    found = f"{path}, release {release or 'unknown'}" if path else "no nvcc"
    remedy = (
        f"install the CUDA toolkit {text(oldest)} or newer (package cuda-nvcc), or choose kernels that are compiled "
        "already: VLLM_USE_FLASHINFER_SAMPLER=0 and VLLM_ATTENTION_BACKEND=FLASH_ATTN in hidden_states_job_environment"
    )
    wanted = f"nvcc {text(oldest)} or newer, where FlashInfer compiles kernels at first use"
    return Check(name, "pass" if good else "warn", found, wanted, "" if good else remedy)
