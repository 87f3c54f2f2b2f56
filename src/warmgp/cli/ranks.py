"""The command line of several processes: rank 0 speaks and writes, the others only train."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from warmgp.processes import current_team, leave_team

DIVIDED = ("fit",)
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
