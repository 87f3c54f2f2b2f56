"""Files that appear whole or not at all, and belong to one writer at a time.

A file is written to a temporary name beside its target, synced and renamed. The temporary name is random and made
exclusively, so that nothing can wait there for us; it is gone after any exception. A full disk is told by the name of
the file that did not fit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from warmgp.files.paths import check_writable

try:
    import fcntl
except ImportError:  # not a POSIX system: files are not claimed there
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of systems where a disk, a quota or the limit on a file's size is exhausted."""


NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EBADF)
"""Error numbers of file systems without locks; EBADF comes where a file that may not be written cannot be locked."""


class DiskFullError(OSError):
    """Says that a file did not fit on its disk."""


class InUseError(OSError):
    """Says that another writer holds a file, or has put one in the place of ours."""


@contextlib.contextmanager
def full_disk(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns the error of a full disk into one that says which file did not fit, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or isinstance(error, DiskFullError):
            raise
        told = DiskFullError(
            f"cannot write {path} ({os.strerror(error.errno)}): make room, or use another disk. Nothing of it is kept; "
            f"a file that was there is as it was"
        )
        told.errno = error.errno
        raise told from error


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], claim: Claim | None = None) -> Iterator[IO[bytes]]:
    """Yields a binary file to write to, which takes the place of ``path`` when the block ends without an exception.

    A link is followed: what it leads to is replaced. With ``claim`` a file is replaced only if the claim holds it.
    """
    target = check_writable(Path(path))
    temporary = target.with_name(f".warmgp-{secrets.token_hex(8)}.tmp")
    try:  # before there is a file: a signal may raise anywhere
        with full_disk(path):
            with _new(temporary, path) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if claim is not None:
                    claim.adopt(file.fileno())
            if claim is None:  # a file that is open cannot be renamed on every system
                temporary.replace(target)
            else:
                claim.put(temporary, target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _new(temporary: Path, path: str | os.PathLike[str]) -> IO[bytes]:
    """Opens the temporary file, made exclusively; an error names the file that was asked for."""
    try:
        return temporary.open("xb")
    except OSError as error:
        if error.errno in FULL:
            raise
        raise type(error)(f"cannot write {path}: {error.strerror}. Use another folder") from error


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable, where the system lets a folder be synced; the file is whole either way."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Claim:
    """Holds a path for one writer for as long as it works, by a lock on the very file that is there.

    Each new file is locked before it takes the place of the last one, so that at no moment a file without a lock is
    there. The system takes locks away with their process, however it ends: nothing has to be cleaned up. Where a file
    system has no locks, only a file of others that appears in the place of ours is noticed; where the operating system
    has none (Windows), nothing is.

    Parameters
    ----------
    path
        The file, which need not be there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._held: list[int] = []  # descriptors of what is ours: the file that is there, and one about to be

    def take(self) -> bool:
        """Claims the file that is there; returns False where there is none. Raises where another writer holds it."""
        if fcntl is None:
            return self.path.exists()
        try:
            self._held.append(self._open())
        except FileNotFoundError:
            return False
        try:
            self._lock(self._held[-1])
            if not self._is_there():  # replaced before it was locked
                raise self._in_use()
        except BaseException:
            self.release()
            raise
        return True

    def _open(self) -> int:
        """Returns a descriptor that can be locked: over NFS only one that may write can."""
        try:
            return os.open(self.path, os.O_RDWR)
        except PermissionError:
            return os.open(self.path, os.O_RDONLY)

    def adopt(self, handle: int) -> None:
        """Locks a new file while it is open, before it has its name."""
        if fcntl is not None:
            self._lock(handle)
            self._held.append(os.dup(handle))

    def put(self, temporary: Path, target: Path) -> None:
        """Renames an adopted file to the target, if that is ours or not there; raises otherwise."""
        if fcntl is None:
            temporary.replace(target)
        elif target.exists():
            if not self._is_there():
                raise self._in_use()
            temporary.replace(target)
        else:
            try:
                os.link(temporary, target)  # unlike a rename it replaces nothing
            except FileExistsError:
                raise self._in_use() from None
            except OSError:  # a file system without links
                temporary.replace(target)
        while len(self._held) > 1:
            os.close(self._held.pop(0))

    def release(self) -> None:
        """Lets the file go."""
        while self._held:
            handle = self._held.pop()
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a child that was forked meanwhile has it open, too
                    fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _is_there(self) -> bool:
        """Says whether the file of that name is ours."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return any(os.path.samestat(there, os.fstat(handle)) for handle in self._held)

    def _lock(self, handle: int) -> None:
        assert fcntl is not None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise

    def _in_use(self) -> InUseError:
        return InUseError(
            f"{self.path} is in use by another fit, or was replaced by one: wait until that has ended, or use another "
            f"path. Nothing was written over"
        )
