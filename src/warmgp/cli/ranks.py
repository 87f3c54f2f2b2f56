"""The command line of several processes: rank 0 speaks and writes, the others train and predict their part."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.processes import current_team, leave_team

Columns = dict[str, NDArray[np.float64]]

DIVIDED = ("fit", "predict", "update")
"""The commands that several processes do together; the others are rank 0's alone."""


@contextlib.contextmanager
def ranks(arguments: Sequence[str] | None) -> Iterator[bool]:
    """Says whether this process has anything to do in the command of these arguments, by default the program's.

    Within its block what all but rank 0 print is not shown: they say the same. Their errors are raised, and so are
    shown.
    """
    team = current_team()
    if team is None:
        yield True
        return
    try:
        if team.first:
            yield True
            return
        asked = sys.argv[1:] if arguments is None else arguments
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            yield bool(asked) and asked[0] in DIVIDED
    finally:
        leave_team()


def answered(X: Any, rows: Any, make: Callable[[Any, Any], Columns]) -> Columns:
    """Returns what ``make`` gives for rows of a table and their numbers, by column; several processes make a part each.

    X is a DataFrame, and ``rows`` a range or an array of as many numbers. All processes have to ask for the same rows,
    and all have the whole answer.
    """
    return in_parts(len(X), lambda some: make(X.iloc[some], rows[some]))


def in_parts(n: int, make: Callable[[slice], Columns]) -> Columns:
    """Returns what ``make`` gives for n rows, by column; several processes make a part each, and all have the whole."""
    team = current_team()
    if team is None:
        return make(slice(0, n))
    parts = team.divided(n, make)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
