"""Symmetric matrices in half the memory: the tiles of T × T on and below the diagonal, one after the other.

Tile (I, J), I ≥ J, is number I(I + 1)/2 + J, whole and row by row, so that a kernel reads it at a stretch. Rows and
columns are filled up with zeros to whole tiles.
"""

from __future__ import annotations

import torch
from torch import Tensor

T = 32


def packed_size(b: int) -> int:
    """Returns how many numbers a packed b × b matrix takes."""
    tiles = -(-b // T)
    return tiles * (tiles + 1) // 2 * T**2


def pack_symmetric(matrices: Tensor) -> Tensor:
    """Packs symmetric matrices, (k, b, b), into (k, packed size) numbers."""
    k, b, _ = matrices.shape
    tiles = -(-b // T)
    padded = torch.nn.functional.pad(matrices, (0, tiles * T - b) * 2) if b % T else matrices
    split = padded.view(k, tiles, T, tiles, T)
    packed = matrices.new_empty(k, packed_size(b))
    first = 0
    for row in range(tiles):  # tiles (row, 0) to (row, row)
        size = (row + 1) * T**2
        packed[:, first : first + size].view(k, row + 1, T, T).copy_(split[:, row, :, : row + 1].transpose(1, 2))
        first += size
    return packed


def unpack_symmetric(packed: Tensor, b: int) -> Tensor:
    """Returns one whole matrix, (b, b), from its packed numbers."""
    tiles = -(-b // T)
    i = torch.arange(tiles, device=packed.device)
    low, high = torch.minimum(i[:, None], i), torch.maximum(i[:, None], i)
    whole = packed.view(-1, T, T)[high * (high + 1) // 2 + low]  # (tiles, tiles, T, T)
    above = (i[:, None] < i)[:, :, None, None]
    whole = torch.where(above, whole.mT, whole)
    return whole.transpose(1, 2).reshape(tiles * T, tiles * T)[:b, :b]
