"""What the command line says where something fails, and the exit code of it."""

from __future__ import annotations

import numpy as np

from warmgp.cli.terminal import console, say
from warmgp.files.paths import NotAFileError


def fail(error: Exception) -> int:
    """Tells an error in one line on stderr and returns its exit code."""
    if hasattr(error, "format_message"):  # wrong usage, found by typer
        if type(error).__name__ == "NoArgsIsHelpError":
            console(stderr=True).print(error.format_message())
        else:
            say("error", f"{error.format_message()} (see warmgp --help)")
        return 2
    wrong_input = isinstance(
        error, ValueError | FileNotFoundError | IsADirectoryError | NotAFileError | PermissionError
    )
    expected = wrong_input or isinstance(error, OSError | MemoryError | RuntimeError)
    text = str(error) or ("out of memory: try --solver ap, or fewer rows" if isinstance(error, MemoryError) else "")
    say("error", text if expected and text else f"{type(error).__name__}: {text}")
    return 2 if wrong_input and not isinstance(error, np.linalg.LinAlgError) else 1
