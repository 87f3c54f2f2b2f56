"""What a process beside ours is given to do; apart, because it imports what it runs, and these need no torch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Say = Callable[..., None]


def counts(to: int, pause: float, say: Say) -> None:
    say(doing="counting")
    for number in range(to):
        say(counted=number + 1)
        time.sleep(pause)


def breaks(say: Say) -> None:
    say(doing="breaking", pid=os.getpid())
    raise ValueError("no such thing")


def dies(say: Say) -> None:
    say(counted=1)
    os._exit(7)
