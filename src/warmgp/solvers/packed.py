"""Symmetric matrices in half the memory: of tiles of T × T, those on and below the diagonal, one after the other.

Tile (I, J), I ≥ J, is number I(I + 1)/2 + J, whole and row by row, so that a kernel reads it at a stretch. Rows are
filled up with zeros to whole tiles.
"""

from __future__ import annotations

import torch
from torch import Tensor

T = 32


def packed_size(b: int) -> int:
    """Numbers that a b × b matrix takes."""
    tiles = -(-b // T)
    return tiles * (tiles + 1) // 2 * T**2


def pack(matrices: Tensor) -> Tensor:
    """Symmetric (k, b, b) as (k, packed size)."""
    k, b, _ = matrices.shape
    tiles = -(-b // T)
    padded = torch.nn.functional.pad(matrices, (0, tiles * T - b) * 2)
    whole = padded.view(k, tiles, T, tiles, T).transpose(2, 3).reshape(k, tiles**2, T**2)
    below = torch.ones(tiles, tiles, dtype=torch.bool, device=matrices.device).tril_().flatten().nonzero()[:, 0]
    return whole.index_select(1, below).flatten(1)


def places(b: int, device: torch.device) -> Tensor:
    """Where the entries (i, j) of a b × b matrix are, (b·b,)."""
    i = torch.arange(b, device=device)
    tile, within = i // T, i % T
    upper, lower = torch.maximum(tile[:, None], tile), torch.minimum(tile[:, None], tile)
    above = tile[:, None] < tile
    row = torch.where(above, within, within[:, None])
    column = torch.where(above, within[:, None], within)
    return ((upper * (upper + 1) // 2 + lower) * T**2 + row * T + column).flatten()
