"""Rows and columns of H, by slices or by tensors of indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import torch
from torch import Tensor

Index = slice | Tensor
"""Rows or columns of H: a slice with explicit bounds, or an int64 tensor."""


def index_size(index: Index) -> int:
    """Returns how many rows or columns an index selects."""
    return index.stop - index.start if isinstance(index, slice) else int(index.numel())


@overload
def part_of(index: slice, part: slice) -> slice: ...
@overload
def part_of(index: Index, part: slice) -> Index: ...
def part_of(index: Index, part: slice) -> Index:
    """Returns the index of some of the rows that ``index`` selects: those at the places ``part`` among them."""
    return slice(index.start + part.start, index.start + part.stop) if isinstance(index, slice) else index[part]


def ranges(n: int, size: int) -> Iterator[slice]:
    """Cuts the numbers 0 … n − 1 into slices of at most ``size`` each."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def cut_tiles(m: int, n: int, entries: int) -> Iterator[tuple[slice, slice]]:
    """Cuts an m × n rectangle into tiles of at most so many entries, as near to squares as it goes."""
    height = max(1, min(m, int(entries**0.5)))
    width = max(1, min(n, entries // height))
    return ((rows, columns) for rows in ranges(m, height) for columns in ranges(n, width))


def upper_tiles(n: int, entries: int) -> Iterator[tuple[slice, slice]]:
    """Returns square tiles on and above the diagonal: all of a symmetric matrix for half the evaluations."""
    side = max(1, int(entries**0.5))
    return (
        (slice(i, min(i + side, n)), slice(j, min(j + side, n))) for i in range(0, n, side) for j in range(i, n, side)
    )


def zero_own(r: Tensor, rows: Index, columns: Index) -> None:
    """Sets the distance of every point from itself to 0 in place, exactly, whatever kind the indices of r are."""
    if isinstance(rows, slice) and isinstance(columns, slice):
        low, high = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if low < high:
            r[low - rows.start : high - rows.start, low - columns.start : high - columns.start].fill_diagonal_(0.0)
    elif isinstance(rows, slice):
        zero_own(r.T, columns, rows)
    elif isinstance(columns, slice):
        position = rows - columns.start
        inside = (position >= 0) & (position < columns.stop - columns.start)
        position = position.clamp(0, columns.stop - columns.start - 1)
        own = torch.arange(rows.numel(), device=r.device), position
        r[own] = torch.where(inside, torch.zeros_like(r[own]), r[own])
    else:
        r.masked_fill_(rows[:, None] == columns, 0.0)


def check_rows(V: Tensor, count: int) -> None:
    """Raises unless V has as many rows as there are columns to multiply them with."""
    if V.shape[0] != count:
        raise ValueError(f"V must have a row for each of the {count} columns of K, got {V.shape[0]} rows")
