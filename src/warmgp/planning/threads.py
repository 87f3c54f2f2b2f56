"""The threads of the CPU: how many are worth using now, and the one place that sets them.

torch cuts an operation into as many parts as it has threads, and waits for the last part. Where other programs keep the
cores busy, a part waits for a core, and the operation with it, each time for milliseconds. A fit of a thousand points
then takes ten times as long with two threads as with one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache

import torch

FEW_ENTRIES = 2**18
"""The most kernel entries of an operation for which one thread will do. On an idle machine two take 0.8 of the time of
one for exact training on 500 points; on a busy one small operations suffer most."""

MANY_ENTRIES = 2**26
"""Kernel entries of an operation from which all threads work, whoever else does now: operations are then long beside
the slices of time that programs on one core get in turn, and a fit takes minutes, of which one moment tells nothing."""

KEPT = 10.0
"""Seconds after which a measurement is made anew: a machine becomes busy, and idle again."""

PART = 2**16
"""Numbers that each of all threads works on in one operation, for some fifty microseconds."""

TURNS, TURN, STRETCH = 3, 0.002, 0.02
"""How often one thread is timed, for how many seconds, and the seconds that each of several works in one stretch if
none has to wait. That is long beside the slices of time, 3 to 4 ms, that programs on one core get in turn."""

STRETCHES, NEARLY = 3, 0.8
"""The most stretches of several threads, and the share of a stretch that has to be done in time for another try. After
work by one thread several may begin on one core: the first stretch took 0.033 instead of 0.023 s on an idle machine of
two cores, with 0.032 allowed, and a time limit left 60,000 rows instead of 89,000. Beside a program of two threads none
of sixty took less than 0.041 s."""

CLEARLY, SHARE = 0.8, 2.5
"""Several threads are worth it where they take at most ``CLEARLY`` of the time of one, and at most ``SHARE`` times as
long as if none had to wait."""

PROCESS = os.getpid()
"""The process that imported this module; any other is a fork of it."""


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Lets torch use at most so many threads of the CPU (0: as many as before), and sets them back whatever happens.

    torch keeps the number apart for each of Python's threads, so that fits side by side do not meet. Only a thread that
    uses torch for the first time meanwhile begins with this number, and keeps it.
    """
    before = torch.get_num_threads()
    if not 0 < threads < before:
        yield
        return
    try:
        torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)


def free_threads(device: torch.device, entries: int) -> AbstractContextManager[None]:
    """Lets torch use as many threads as are worth it now for operations of so many kernel entries."""
    return limited_threads(choose_threads(device, entries)[0])


def choose_threads(device: torch.device, entries: int) -> tuple[int, str]:
    """Decides how many threads work on operations of so many kernel entries: one where they are few, all where they are
    many, else as many as are worth it now, and never more than torch has; 0, as torch has it, where the device is not a
    CPU."""
    if device.type != "cpu":
        return 0, ""
    allowed = torch.get_num_threads()
    if allowed == 1 or entries <= FEW_ENTRIES:
        return 1, ""
    if os.getpid() != PROCESS:
        return 1, f"One thread of {allowed}, because several may wait for ever in a forked process."
    if entries >= MANY_ENTRIES:
        return allowed, ""
    threads = worth_now(allowed)
    some = "One thread" if threads == 1 else f"{threads} threads"
    return threads, f"{some} of {allowed}, because other programs keep cores busy." if threads < allowed else ""


def worth_now(allowed: int) -> int:
    """Returns how many of so many threads are worth it now, by a measurement of at most ten seconds ago."""
    return _measured(allowed, int(time.monotonic() // KEPT)) if allowed > 1 else allowed


@lru_cache(maxsize=8)
def _measured(allowed: int, when: int) -> int:
    """Measures how many of the allowed threads are worth it, all, a half, a quarter …, once in each time ``when``."""
    numbers = torch.zeros(allowed * PART)

    def work() -> None:
        numbers.exp_().zero_()

    threads = allowed
    while threads > 1 and not worth_it(threads, work):
        threads //= 2
    return threads


def worth_it(threads: int, work: Callable[[], object]) -> bool:
    """Says whether the work goes clearly faster with so many threads than with one, in some 30 milliseconds, or up to
    a hundred where it nearly does.

    The best counts, of one thread because it may have had to wait, too.
    """
    one = min(seconds / calls for calls, seconds in (repeated(work, 1, TURN) for _ in range(TURNS)))
    limit, calls = STRETCH * min(CLEARLY * threads, SHARE), STRETCH * threads / one
    with limited_threads(threads):
        work()  # makes the threads
    for _ in range(STRETCHES):
        done, took = repeated(work, threads, limit, calls=calls)
        if took <= limit or done < NEARLY * calls:
            return took <= limit
    return False


def repeated(work: Callable[[], object], threads: int, seconds: float, calls: float = math.inf) -> tuple[int, float]:
    """Does the work with so many threads until it was called so often, or until that took longer than so many seconds;
    returns (calls, seconds)."""
    with limited_threads(threads):
        began, done, took = time.perf_counter(), 0, 0.0
        while done < calls and took <= seconds:
            work()
            done, took = done + 1, time.perf_counter() - began
    return done, took
