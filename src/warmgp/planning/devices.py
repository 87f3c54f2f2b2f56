"""What the machine has: devices by name, and their free memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

CONTROL_GROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory")
"""The folders that hold a container's limit, by either version of control groups."""
NAMES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The files of a limit and of the memory in use, likewise."""


def available_memory(device: torch.device) -> int:
    """Returns the free bytes of a device."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # free to torch alone
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    found = [
        _number_in("/proc/meminfo", r"MemAvailable:\s+(\d+) kB", 1024),
        *(_left_in_group(Path(root)) for root in CONTROL_GROUPS),
    ]
    known = [bytes_ for bytes_ in found if bytes_ is not None]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return 4 * 2**30


def _left_in_group(root: Path) -> int | None:
    """Returns the bytes that a container may still use, cached files counted as free; None without a limit."""
    cached = _number_in(str(root / "memory.stat"), r"(?m)^(?:total_)?inactive_file (\d+)") or 0
    for limit_name, used_name in NAMES:
        limit, used = (_number_in(str(root / name), r"(\d+)") for name in (limit_name, used_name))
        if limit is not None and limit < 2**60:  # no limit is "max", or a number near 2**63
            return max(0, limit - max(0, (used or 0) - cached))
    return None


def _number_in(path: str, pattern: str, unit: int = 1) -> int | None:
    """Returns the number that the pattern finds in a system file, times the unit; None where there is none."""
    try:
        match = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return unit * int(match[1]) if match else None


def resolve_device(device: str | torch.device) -> torch.device:
    """Returns the device of that name, the GPU if there is one for "auto"; raises where it is not to be had."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device must be "auto" or a torch device such as "cpu" or "cuda", got {device!r}') from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f'device={device!r} but torch sees no CUDA device: use device="cpu" or "auto"')
    if place.type == "cuda" and place.index is not None and place.index >= torch.cuda.device_count():
        there = ", ".join(f"cuda:{i}" for i in range(torch.cuda.device_count()))
        raise ValueError(f"device={device!r} but torch sees {there} only: use one of them")
    return place


def device_or_cpu(device: torch.device) -> torch.device:
    """Returns the device if it is here, else the CPU."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # what torch raises depends on how it was built
        return torch.device("cpu")
    return device
