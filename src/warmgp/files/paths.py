"""Checks of paths: those that cannot work are refused before any work is done, with the reason."""

from __future__ import annotations

import os
import stat
from pathlib import Path

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class NotAFileError(OSError):
    """Says that a path names a pipe, a device or a socket where a plain file is needed, or cannot be a name."""


def check_readable(path: Path) -> None:
    """Raises unless ``path`` is a file that may be read."""
    found = _status(path, "read")
    if found is None:
        raise FileNotFoundError(f"cannot read {path}: no such file")
    _check_plain(path, found, "read", "give a file")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"cannot read {path}: no permission to read it")


def check_writable(path: Path) -> Path:
    """Raises unless a plain file of that name can be made or replaced; returns the path to write at, links followed."""
    found = _status(path, "write")
    if found is not None:
        _check_plain(path, found, "write", "give the name of a file")
        _check_not_standard(path, found)
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise NotAFileError(f"cannot write {path}: its links lead nowhere ({error}), give another name") from error
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {target.parent} does not exist, make it first")
    if found is not None and not (target.exists() and os.path.samestat(found, target.stat())):
        raise NotAFileError(f"cannot write {path}: what it leads to has no name of its own, give the name of a file")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: no permission to write in the folder {target.parent}, use another")
    return target


def _status(path: Path, verb: str) -> os.stat_result | None:
    """Returns the status of what is there, links followed; None for nothing. Raises for a name that cannot be."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise PermissionError(f"cannot {verb} {path}: no permission to look into its folder, use another") from error
    except (OSError, ValueError) as error:  # a name too long, links in a circle, a NUL
        told = getattr(error, "strerror", None) or str(error)
        raise NotAFileError(f"cannot {verb} {path}: {told.lower()}, give another name") from error


def _check_plain(path: Path, found: os.stat_result, verb: str, remedy: str) -> None:
    for is_kind, name in KINDS:
        if is_kind(found.st_mode):
            error = IsADirectoryError if name == "a folder" else NotAFileError
            raise error(f"cannot {verb} {path}: it is {name}, {remedy}")


def _check_not_standard(path: Path, found: os.stat_result) -> None:
    """Raises for a file that this process reads or prints to: it would be replaced under the hands of the shell."""
    for number, name in ((0, "input"), (1, "output"), (2, "errors")):
        try:
            same = os.path.samestat(found, os.fstat(number))
        except OSError:  # it is closed
            continue
        if same:
            raise NotAFileError(
                f"cannot write {path}: it is the standard {name} of this process, give the name of another file"
            )
