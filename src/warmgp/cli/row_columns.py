"""Columns of a table that say how well its target was measured: weights, and standard deviations of known errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.cli.columns import UsageError, check_column
from warmgp.cli.tables import Table, TableError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RowColumns:
    """Names the columns of --weight-column and --noise-column; None where an option is not given."""

    weight: str | None = None
    noise: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The columns by their options, those that are given."""
        both = {"--weight-column": self.weight, "--noise-column": self.noise}
        return {option: name for option, name in both.items() if name is not None}

    @property
    def names(self) -> list[str]:
        """The columns, none of which is an input."""
        return list(self.options.values())

    def check(self, table: Table, targets: Sequence[str], others: Sequence[str]) -> None:
        """Refuses columns that the table lacks, that are a target, one another, or in ``others``."""
        for option, name in self.options.items():
            check_column(table, name, option)
            if name in targets:
                raise UsageError(f"{option} {name}: that is the target")
            if name in others:
                raise UsageError(f"{option} {name}: another option names that column, too: choose one")
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"--weight-column and --noise-column both name {self.weight!r}: choose one")

    def arguments(self, read: dict[str, FloatArray], path: Path) -> dict[str, Any]:
        """Returns what a fit is told of the noise of rows, (n,) each, from the columns as they were read."""
        for option, name in self.options.items():
            bad = read[name] < 0
            if bad.any():
                more = f" and {int(bad.sum()) - 1} more" if bad.sum() > 1 else ""
                row = int(bad.argmax())
                raise TableError(
                    f"column {name!r} of {path} is negative in row {row + 1} ({read[name][row]:g}){more}: "
                    f"{option} takes numbers of at least 0; correct it or leave the row out"
                )
        said: dict[str, Any] = {}
        if self.weight is not None:
            if not read[self.weight].any():
                raise TableError(
                    f"column {self.weight!r} of {path} is 0 in every row, and a weight of 0 leaves a row out: check "
                    f"--weight-column"
                )
            said["sample_weight"] = read[self.weight]
        if self.noise is not None:
            said["noise_variance"] = read[self.noise] ** 2
        return said
