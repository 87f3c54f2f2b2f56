"""Missing cells, filled in: the mean of what is there, and an input that says that it was missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmgp.data.column_kinds import BadCell, ColumnKind, FloatArray


@dataclass(frozen=True)
class Gaps(ColumnKind):
    """Fills missing cells in, for a kind whose columns had some in training.

    A row that lacks a cell has the mean of the inputs of the others, and one more input, ``missing``, which is
    ``jump`` there and 0 elsewhere. The jump squared is the sum of the inputs' variances, so that a missing cell is as
    far from a present one as two present ones are from each other, in the root mean square; two missing ones are at
    the same place. The length scale is that of the kind: what does not matter does not matter when it is missing.

    Attributes
    ----------
    of : ColumnKind
        What the columns are.
    mean : tuple of float
        The means of its inputs over the training rows that have them, (width of it,).
    jump : float
        The value of the last input where a cell is missing.
    """

    of: ColumnKind
    mean: tuple[float, ...]
    jump: float

    name = "with missing cells"
    takes = "another kind"

    @classmethod
    def fit(cls, of: ColumnKind, X: FloatArray) -> Gaps:
        """Makes it from a training table X (n, columns of the user), in which a row at least has all cells."""
        there = of.inputs(X[~np.isnan(X[:, list(of.columns)]).any(1)])
        moved = there - there[0]
        jump = math.sqrt(float(moved.var(0).sum()))
        return cls(of.columns, of, tuple((there[0] + moved.mean(0)).tolist()), jump or 1.0)

    @property
    def reads(self) -> str:
        """What the kind reads."""
        return self.of.reads

    @property
    def dimension(self) -> int:
        """That of the kind."""
        return self.of.dimension

    @property
    def axes(self) -> tuple[str, ...]:
        """Those of the kind, and one for whether a cell is missing."""
        return (*self.of.axes, "missing")

    @property
    def unit(self) -> str:
        """That of the kind."""
        return self.of.unit

    @property
    def unit_length(self) -> float:
        """That of the kind."""
        return self.of.unit_length

    @property
    def redundant(self) -> int:
        """As many as the kind has: the mean of indicators adds up to one, too."""
        return self.of.redundant

    def bad_cell(self, X: FloatArray) -> BadCell | None:
        """Returns the first bad cell among rows that lack none."""
        rows = np.flatnonzero(~np.isnan(X[:, list(self.columns)]).any(1))
        bad = self.of.bad_cell(X[rows])
        return bad and bad._replace(row=int(rows[bad.row]))

    def inputs(self, X: FloatArray) -> FloatArray:
        """Returns the inputs of the kind, filled in, and whether they were missing, (m, width)."""
        missing = np.isnan(X[:, list(self.columns)]).any(1)
        made = np.tile(np.array([*self.mean, self.jump]), (len(X), 1))
        made[~missing, :-1] = self.of.inputs(X[~missing])
        made[~missing, -1] = 0.0
        return made

    def cells(self, inputs: FloatArray) -> FloatArray:
        """Returns the cells of the kind, (m, columns), NaN where they were missing."""
        found = self.of.cells(inputs[:, :-1]).astype(np.float64)
        found[inputs[:, -1] > 0.5 * self.jump] = np.nan
        return found

    def label(self, names: Sequence[str | int]) -> str:
        """Returns the name of the kind."""
        return self.of.label(names)

    def input_names(self, label: str) -> tuple[str, ...]:
        """Returns the names of the kind, and "… missing"."""
        return (*self.of.input_names(label), f"{label}: missing")
