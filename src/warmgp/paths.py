"""Paths that cannot work are refused before any work is done, with the reason."""

from __future__ import annotations

import os
from pathlib import Path


def check_readable(path: Path) -> None:
    """Raise unless it is a file that may be read."""
    if path.is_dir():
        raise IsADirectoryError(f"cannot read {path}: it is a folder, give a file")
    if not path.is_file():
        raise FileNotFoundError(f"cannot read {path}: no such file")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"cannot read {path}: no permission to read it")


def check_writable(path: Path) -> None:
    """Raise unless a file of that name can be made, or replaced."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist, make it first")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder, give the name of a file")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: no permission to write in the folder {path.parent}, use another")
