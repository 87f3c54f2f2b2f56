"""Work that may take too long, or end its process: done in another process, which is ended when its time is over.

Some libraries cannot be asked to stop: a call of theirs is one long call of compiled code. So the work is done in a
process beside ours, one piece after another, since starting one costs seconds. What a piece says on its way is kept
even if it never ends::

    with Worker() as worker:
        found = worker.do(partial(count_to, 10), limit=60.0)  # {"counted": 10}, or {"counted": 7, "cut": True}

where ``count_to(10, say)`` calls ``say(counted=…)``. A piece whose last word was ``doing=…`` has ``limit`` seconds
from there; before its first it may take as long as it likes (to read data, to compile).
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

Say = Callable[..., None]
Work = Callable[[Say], None]


class Worker:
    """A process for one piece of work after another; a new one after a piece that was cut or has ended it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def __init__(self) -> None:
        self._process: Any = None

    def do(self, work: Work, limit: float) -> dict[str, Any]:
        """All that ``work`` says; with ``cut`` where its time was over, with ``failed`` and why where it broke."""
        if self._process is None:
            self._start()
        self._pipe.send(work)
        found: dict[str, Any] = {}
        end = None
        while True:
            if not self._pipe.poll(None if end is None else max(0.0, end - time.monotonic())):
                self.end()
                return found | {"cut": True}
            try:
                part = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                self._process.join()
                code = self._process.exitcode
                self.end()
                return found | {"failed": f"its process ended with exit code {code}"}
            if part is None:
                found.pop("doing", None)
                return found
            found |= part
            if "doing" in part:
                end = time.monotonic() + limit

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share threads and a GPU that cannot be shared
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()


def _serve(pipe: Connection) -> None:
    """What the other process does: work that comes, until nobody is there to send any."""

    def say(**found: Any) -> None:
        pipe.send(found)

    while True:
        try:
            work = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            work(say)
        except Exception as error:
            say(failed=" ".join(f"{type(error).__name__}: {error}".split())[:500])
        pipe.send(None)
