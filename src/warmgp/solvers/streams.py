"""The streams of a GPU beside the one that programs run on: one for what is made ahead, one for recordings.

Each is taken once for a device and kept. A new one for every use would come from a ring of 32 that PyTorch hands out in
turn, and sooner or later a recording would have that of what is made ahead. Both then share what cuBLAS keeps for a
stream, its workspace, at the same time, because a graph goes on to use it: reads from anywhere followed (illegal memory
accesses in fits of protein, every time the two were made the same, never since they differ).
"""

from __future__ import annotations

from functools import lru_cache

import torch


def beside(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream of a device on which things are made ahead of their use."""
    return _streams(_number(device))[0]


def recording(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream of a device on which graphs are recorded; they are replayed on the current one."""
    return _streams(_number(device))[1]


def _number(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


@lru_cache(maxsize=64)
def _streams(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Takes both at once: streams that follow each other in the ring differ."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)
