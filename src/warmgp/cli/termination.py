"""SIGTERM as an exception, for the command line: the library itself handles no signals."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(SystemExit):
    """Says that the system wants this process to end: what is open is closed on the way."""


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """Turns SIGTERM into :class:`Terminated`, once; a second one ends the process at once, as it always did."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated(143)

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)  # None: it was not set from Python
