"""Tiles of an operator: their size, memory that is used again, because asking the system for a few megabytes per tile
costs more than filling them, and the count of what was evaluated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Counter:
    """Counts the kernel entries that were evaluated; an operator and its twins in float64 share one."""

    entries: int = 0


class Scratch:
    """Holds named buffers, each as large as the largest tile asked of it; on a GPU torch's allocator does this."""

    def __init__(self, like: Tensor) -> None:
        self._like = torch.empty(0, dtype=like.dtype, device=like.device)
        self._kept: dict[str, Tensor] = {}

    def tile(self, name: str, rows: int, columns: int) -> Tensor:
        """Returns an uninitialised (rows, columns) matrix, the same memory at every call of that name."""
        size = rows * columns
        if self._like.device.type != "cpu":
            return self._like.new_empty(rows, columns)
        if name not in self._kept or self._kept[name].numel() < size:
            self._kept[name] = self._like.new_empty(size)
        return self._kept[name][:size].view(rows, columns)


def default_tile_entries(device: torch.device) -> int:
    """Returns how many kernel entries to hold at once: enough work for a GPU, a little more than a CPU's caches hold.

    A quarter of that is 10% faster on an idle CPU, and several times slower on a busy one: every operation on a tile
    waits for the slowest thread.
    """
    return 2**21 if device.type == "cpu" else 2**26
