"""Inputs prepared for the Triton kernels: one input per line for differences, and for products float16 halves, or in
float64 one point per line."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from warmgp.operators.triton import centred
from warmgp.operators.triton.launch import run_kernel
from warmgp.operators.triton.split import PAD

LARGEST_SQUARE = 1.5e4
"""The largest |αz|² of a point: from the centre of a block it may be four times that, which float16 halves hold."""

ROUNDING = 2.0**-21
"""The rounding of a squared distance by products, relative to |z|²."""


@dataclass(frozen=True)
class Doubles:
    """Holds inputs in float64 for distances by products: rows αz with zeros after them, (padded, D), and |αz|²,
    (padded,)."""

    rows: Tensor
    squares: Tensor

    @classmethod
    def prepare(cls, z: Tensor, padded: int) -> Doubles:
        """Prepares inputs αz, (n, d), with so many rows."""
        n, d = z.shape
        rows = z.new_zeros(padded, max(16, triton.next_power_of_2(d)))
        rows[:n, :d] = z
        return cls(rows, rows.square().sum(1))

    def at(self, index: Tensor) -> Doubles:
        """Returns those at ``index``."""
        return Doubles(self.rows.index_select(0, index), self.squares.index_select(0, index))


@dataclass(frozen=True)
class Points:
    """Holds one set of inputs for the kernels: lines for differences (d, padded), halves of augmented rows (padded, D).

    The first ``differenced`` inputs are for differences and the others for products; where there are no others, and in
    float64, the halves are zeros of (PAD, 16). All inputs have their line. In float64 all inputs are for differences,
    or none is, and ``doubles`` has them.
    """

    n: int
    differenced: int
    lines: Tensor  # αz, one input per line, (d, padded)
    row_high: Tensor  # halves of [−2αz, |αz|², 1] of the other inputs, |αz|² in two parts
    row_low: Tensor
    column_high: Tensor  # halves of [αz, 1, |αz|²]
    column_low: Tensor
    doubles: Doubles | None = None

    @classmethod
    def prepare(cls, z: Tensor, differenced: int) -> Points:
        """Prepares inputs αz, (n, d), the first ``differenced`` of them for differences: in float64 all or none."""
        n, d = z.shape
        padded = triton.cdiv(n, PAD) * PAD
        lines = torch.zeros(d, padded, device=z.device, dtype=z.dtype)
        lines[:, :n] = z.T
        if differenced == d or z.dtype == torch.float64:
            nought = torch.zeros(PAD, 16, device=z.device, dtype=torch.float16)
            doubles = None if differenced == d else Doubles.prepare(z, padded)
            return cls(n, differenced, lines, nought, nought, nought, nought, doubles)
        z, d = z[:, differenced:], d - differenced
        D = max(16, triton.next_power_of_2(d + 4))
        rows, columns = (torch.zeros(padded, D, device=z.device, dtype=torch.float32) for _ in range(2))
        high, low = (half.double() for half in _halves(z))
        square = (high * (high + 2.0 * low)).sum(1)  # |z|² as the three products see it: coincident points cancel
        coarse = (
            torch.stack(_halves(square.float())).float().sum(0)
        )  # what two halves hold; the rest has its own column
        rest = (square - coarse.double()).float()
        rows[:n, :d], rows[:n, d], rows[:n, d + 1], rows[:n, d + 2 : d + 4] = -2.0 * z, coarse, rest, 1.0
        columns[:n, :d], columns[:n, d : d + 2], columns[:n, d + 2], columns[:n, d + 3] = z, 1.0, coarse, rest
        return cls(n, differenced, lines, *_halves(rows), *_halves(columns))

    def at(self, index: Tensor) -> Points:
        """Returns the points at ``index``, (b,), one after the other in memory, where a kernel reads them fastest."""
        b = index.numel()
        index = torch.nn.functional.pad(index, (0, -b % PAD))
        lines = self.lines.index_select(1, index)
        halves = self.row_high, self.row_low, self.column_high, self.column_low
        if self.doubles is not None:
            return Points(b, self.differenced, lines, *halves, self.doubles.at(index))
        if not self.has_products:
            return Points(b, self.differenced, lines, *halves)
        row_high, row_low, column_high, column_low = (half.index_select(0, index) for half in halves)
        return Points(b, self.differenced, lines, row_high, row_low, column_high, column_low)

    def around(self, centre: Tensor) -> Points:
        """Returns the same points as rows of products from that centre, (d,), in float32."""
        high, low = augmented(self.lines, centre, self.differenced, self.row_high.shape[1], rows=True)
        return replace(self, row_high=high, row_low=low)

    def block(self, index: Tensor) -> tuple[Points, Tensor]:
        """Returns the points at ``index``, (b,), as columns of products from their centre, and that centre, (d,)."""
        b = index.numel()
        lines = self.lines.index_select(1, torch.nn.functional.pad(index, (0, -b % PAD)))
        centre = lines[:, :b].mean(1)
        high, low = augmented(lines, centre, self.differenced, self.row_high.shape[1], rows=False)
        return replace(self, n=b, lines=lines, column_high=high, column_low=low), centre

    @property
    def has_products(self) -> bool:
        return self.differenced < self.lines.shape[0]

    @property
    def distances(self) -> dict[str, int | bool]:
        """The constants that tell a Triton kernel how to make distances."""
        return {"PRODUCTS": self.has_products, "DIFFERENCED": self.differenced, "D": self.row_high.shape[1]}


def augmented(lines: Tensor, centre: Tensor, first: int, width: int, *, rows: bool) -> tuple[Tensor, Tensor]:
    """Returns the halves, (padded, width) each, of the inputs from ``first`` on, of ``lines`` (d, padded), less their
    centre (d,): for the rows of a product, or for its columns."""
    d, padded = lines.shape
    high, low = (torch.empty(padded, width, device=lines.device, dtype=torch.float16) for _ in range(2))
    BM = 64 if width <= 32 else 16  # padded is a multiple of 128
    run_kernel(
        centred.augment, (padded // BM,), lines, centre, high, low, lines.stride(0), first, d - first,
        ROWS=rows, D=width, BM=BM,
    )  # fmt: skip
    return high, low


def _halves(values: Tensor) -> tuple[Tensor, Tensor]:
    """Returns hi and lo in float16 with hi + lo = values to 22 bits."""
    high = values.to(torch.float16)
    return high, (values - high.to(torch.float32)).to(torch.float16)
