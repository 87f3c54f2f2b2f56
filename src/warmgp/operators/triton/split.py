"""Columns of V prepared for a tensor core, and partial products put together again.

A group of columns is at most 64 of them as float16 halves, and what else there is beside 64 probes, which would
otherwise take another look at all of K: one plain column in float32 for one target, or up to 16 more halves for several
targets or a trend. Each column is scaled by a power of two first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from warmgp.operators.triton import columns as triton_columns
from warmgp.operators.triton.launch import run_kernel

PAD = 128  # rows of every operand are padded to a multiple of this: no tile is higher
GROUP, BESIDE = 64, 16  # columns of a group on the tensor core, at most, and those that may be beside them
REGISTERS = 2**16  # those of a multiprocessor
PROCESSORS = 132  # multiprocessors of an H200
LONG = 2**14  # columns from which on a sum over them is compensated: it costs registers, and so a sixth of the time


@dataclass(frozen=True)
class Tile:
    """Holds the shape of a program's tile, and how Triton schedules it.

    ``registers`` bounds those of a thread, so that more programs share a multiprocessor: of programs of 128 threads, 2
    do with 255 registers a thread, 3 with 168, 4 with 128.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """The launch options for these warps and registers."""
        return {"num_warps": self.warps} | ({"maxnreg": self.registers} if self.registers else {})

    @property
    def programs(self) -> int:
        """The number of programs that share a multiprocessor, by their registers."""
        return max(1, REGISTERS // (32 * self.warps * (self.registers or 256)))


@dataclass(frozen=True)
class Columns:
    """Holds a group of columns of V as the kernels take it."""

    first: int  # number in V: of the plain column if there is one, else of the first tensor column
    used: int  # columns of V in this group
    plain: int  # 1 where the group's first column is multiplied in ordinary float32
    size: int  # S, columns on the tensor core (a power of two), or 0
    more: int  # columns on the tensor core beside them, or 0
    high: Tensor  # (padded rows, S + more), float16
    low: Tensor
    single: Tensor  # (padded rows,), float32

    @property
    def width(self) -> int:
        """The number of columns of a partial product."""
        return self.plain + self.size + self.more


def largest_bits(V: Tensor) -> Tensor:
    """Returns max_i |V_ij| per column of a contiguous V as the bits of a float32, (c,), which scales are made from."""
    n, c = V.shape
    bits = torch.zeros(c, dtype=torch.int32, device=V.device)
    rows = 64 * triton.cdiv(triton.cdiv(n, 64), 1024)
    width = triton.next_power_of_2(max(2, c))
    grid = (triton.cdiv(n, rows),)
    run_kernel(triton_columns.column_largest, grid, V, bits, n, c, rows, C=width, BM=64 if width <= 128 else 16)
    return bits


def scales(bits: Tensor) -> Tensor:
    """Returns the powers of two that columns with these bits are scaled by, (c,), in float64, as the kernels do it."""
    exponent = ((bits >> 23) - 127).clamp(-116, 120)
    return torch.where(bits == 0, torch.ones_like(bits, dtype=torch.float64), torch.exp2(9.0 - exponent.double()))


def groups_of(c: int, *, beside: bool = True) -> list[tuple[int, int, int, int, int]]:
    """Groups c columns; returns (first, used, plain, size, more) of each group, as in :class:`Columns`: with more of
    them ``beside`` a full group where they are the last."""
    groups, first = [], 0
    while first < c:
        plain = int(first == 0 and c % 16 == 1)
        left = c - first - plain
        more = beside and GROUP < left <= GROUP + BESIDE
        size = left if more else min(GROUP, left)
        on_core = GROUP if more else max(16, triton.next_power_of_2(size)) if size else 0
        groups.append((first, plain + size, plain, on_core, BESIDE if more else 0))
        first += plain + size
    return groups


def groups64(c: int) -> list[tuple[int, int, int]]:
    """Groups c columns of float64; returns (first, size, more) of each group: the columns of a product and of one more
    beside it, of which those beyond c are zero."""
    groups, first = [], 0
    while first < c:
        left = c - first
        size, more = min(GROUP, max(16, triton.next_power_of_2(left))), 16 if GROUP < left <= GROUP + 16 else 0
        groups.append((first, size, more))
        first += size + more
    return groups


def stages64(D: int) -> int:
    """Returns how many tiles of columns a kernel in float64 loads ahead, with lines of D numbers for distances: as many
    as fit into 99 KiB of shared memory."""
    return 3 if D <= 32 else 2


def split(V: Tensor, bits: Tensor, padded: int, gain: Tensor | None = None, *, beside: bool = True) -> list[Columns]:
    """Splits a contiguous V (n, c) into groups of scaled columns with ``padded`` rows, times ``gain`` (c,)."""
    n, c = V.shape
    groups = []
    for first, used, plain, S, more in groups_of(c, beside=beside):
        high, low = (torch.empty(padded, S + more, device=V.device, dtype=torch.float16) for _ in range(2))
        single = torch.empty(padded if plain else 0, device=V.device, dtype=torch.float32)
        run_kernel(
            triton_columns.split_columns, (triton.cdiv(padded, 64),),
            V, bits, bits if gain is None else gain, high, low, single, n, padded, c, first + plain,
            WEIGHTED=gain is not None, S=triton.next_power_of_2(S + more), STRIDE=S + more, PLAIN=plain, BM=64,
        )  # fmt: skip
        groups.append(Columns(first, used, plain, S, more, high, low, single))
    return groups


@dataclass(frozen=True)
class Job:
    """Says what a product kernel is to do for one group of columns."""

    group: Columns
    tile: Tile
    grid: tuple[int, int]
    columns_per_split: int
    squares: Tensor  # by row of the result, or anything where they are not wanted
    out: Tensor  # the result itself (m, c), or partial products (splits, m, width)
    epilogue: tuple[
        Tensor, Tensor, Tensor, int, int, int, float, float
    ]  # BITS, V, INDEX, c, first, used, factor, noise
    final: bool
    add: bool
    count_squares: int  # 0: no; 1: as the first group; 2: added to those of other groups
    noise: int  # 0: none; 1: own rows by index; 2: own rows are those of the block of columns
    long: bool  # whether sums are over so many columns that their rounding has to be made up for

    @property
    def options(self) -> dict[str, int | bool]:
        """The constants that every product kernel takes."""
        tile, group = self.tile, self.group
        return {
            "S": group.size, "MORE": group.more, "PLAIN": group.plain, "FINAL": self.final, "ADD": self.add,
            "NOISE": self.noise, "SQUARES": self.count_squares, "LONG": self.long,
            "BM": tile.rows, "BN": tile.columns, "STAGES": tile.stages, **tile.options,
        }  # fmt: skip


def multiply(
    V: Tensor,
    m: int,
    launch: Callable[[Job], None],
    tile_of: Callable[[int, int], Tile],
    *,
    factor: float,
    noise: float = 0.0,
    own: Tensor | None = None,
    add_to: Tensor | None = None,
    squares: Tensor | None = None,
    block: bool = True,
) -> Tensor:
    """Returns factor · product / scale + noise · V[own], (m, c), group by group, with parts added in a fixed order.

    With ``add_to`` (m, c) the result is added to it in place, and ``own`` rows are those of the block of columns, or
    there are none where the columns are no ``block``; ``squares`` (m,) then receives the sums of squares of the new
    rows.
    """
    V = V.contiguous()
    b, c = V.shape
    bits = largest_bits(V)
    out = torch.empty(m, c, device=V.device) if add_to is None else add_to
    for group in split(V, bits, triton.cdiv(b, PAD) * PAD):
        tile = tile_of(group.size + group.more, b)
        row_tiles = triton.cdiv(m, tile.rows)
        splits = splits_for(row_tiles, triton.cdiv(b, tile.columns), tile.programs) if add_to is None else 1
        per_split = triton.cdiv(triton.cdiv(b, splits), tile.columns) * tile.columns
        splits = triton.cdiv(b, per_split)
        final = splits == 1
        epilogue = (bits, V, bits if own is None else own, c, group.first, group.used, factor, noise)
        parts = out if final else torch.empty(splits, m, group.width, device=V.device)
        way = int(own is not None) if add_to is None else 2 * block
        count_squares = 0 if squares is None else 1 if group.first == 0 else 2
        launch(
            Job(
                group, tile, (row_tiles, splits), per_split, bits if squares is None else squares, parts, epilogue,
                final, add_to is not None, count_squares, way, b >= LONG,
            )
        )  # fmt: skip
        if not final:
            run_kernel(
                triton_columns.combine, (triton.cdiv(m, 4),),
                parts, *epilogue, out, m, group.width, splits,
                NOISE=own is not None, W=triton.next_power_of_2(max(2, group.width)), BM=4,
            )  # fmt: skip
    return out


def splits_for(row_tiles: int, column_tiles: int, programs: int = 2) -> int:
    """Returns how many programs share the columns of one row tile, so that there is work for every multiprocessor.

    It is at most 16, or, where that is more, what gives each multiprocessor the ``programs`` that its registers hold;
    and at most what gives each of them eight.
    """
    most = max(16, programs * PROCESSORS // max(1, row_tiles))
    return max(1, min(column_tiles, most, 8 * PROCESSORS // max(1, row_tiles)))
