"""What is used of each GPU's memory, asked of the driver: a CUDA context of our own would take memory itself."""

from __future__ import annotations

import os
from pathlib import Path

CONTROL = Path("/dev/nvidiactl")


def used_bytes() -> list[int]:
    """Bytes used on each GPU that the job may see, by all processes; empty where there is none or none can tell."""
    if not CONTROL.exists():
        return []
    try:
        from vllm.third_party import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - without the numbers the job goes on; what is missing has its own message
        return []
    try:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        numbers = [int(number) for number in visible.split(",") if number.strip().isdigit()]
        places = numbers or range(pynvml.nvmlDeviceGetCount())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(place) for place in places]
        return [int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
