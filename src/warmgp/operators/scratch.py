"""Memory for tiles that is used again: asking the system for a few megabytes per tile costs more than filling them."""

from __future__ import annotations

import torch
from torch import Tensor


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
