"""The one way in which Triton kernels are started: on the device of their data; or compiled before they are needed.

Triton starts a kernel on the current device of the process, which is the first one unless somebody changed it; data
on another (``device="cuda:1"``) would be read through a foreign address.

A kernel is compiled when it is first started on a machine, for every number of inputs and kernel function anew: half a
second to two seconds each, one after the other. :func:`compile_ahead` has them compiled side by side, while something
else is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context, ContextVar
from typing import Any

import torch
import triton
from torch import Tensor

MOST_THREADS = 8
"""Kernels that are compiled at once, at most."""


def run_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Starts the kernel with ``data`` as its first argument, on the device of ``data`` and its current stream.

    A graph that is being recorded on that device records it. The change of device costs about a microsecond. Within
    :func:`compile_ahead` the kernel is compiled and not started.
    """
    act = start_kernel if _ahead.get() is None else compile_kernel
    if not data.is_cuda:
        act(kernel, grid, data, *arguments, **options)
        return
    with torch.cuda.device(data.get_device()):
        act(kernel, grid, data, *arguments, **options)


def start_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Starts the kernel on the current device, or in Triton's interpreter, once what is compiled of it is done."""
    if _compiling:
        hand_over(kernel.fn)
    kernel[grid](data, *arguments, **options)


def compile_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Has the kernel compiled ahead for such arguments, unless it is interpreted."""
    ahead = _ahead.get()
    if ahead is not None and isinstance(kernel, triton.JITFunction):
        ahead.function = kernel.fn
        kernel.warmup(data, *arguments, grid=grid, **options)


def compile_ahead(calls: Callable[[], None]) -> None:
    """Makes calls whose kernels are compiled instead of started, side by side in threads of their own, and returns
    before they are done; what the calls return is whatever memory holds.

    Whoever starts such a kernel later waits for it. Triton leaves its mode of compiling in threads late, and not at all
    after an interrupt: here the mode has a context to itself, and is never left.
    """
    threads = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))
    ahead, alone = Ahead(threads), Context()
    try:
        alone.run(ahead.__enter__)
        alone.run(_ahead.set, ahead)
        alone.run(calls)
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown(wait=False)  # when they are done


def hand_over(function: Any) -> None:
    """Waits for what is compiled of a kernel and hands it to Triton, which up to 3.6 does not know of it before, and
    would compile it again. What does not compile says so where it is started."""
    for one in _compiling.pop(function, {}).values():
        with contextlib.suppress(Exception):
            one.result()


class Ahead(triton.AsyncCompileMode):
    """Compiles in threads what Triton is asked for in its context."""

    function: Any = None  # of the kernel that is asked for

    def submit(self, key: str, compile_one: Callable[[], Any], keep: Callable[[Any], None]) -> Awaited:
        """Returns what is compiled for this key, now or since calls before: Triton keeps it, or asks again."""
        mine = _compiling.setdefault(self.function, {})
        if key not in mine:
            mine[key] = Awaited(self.executor, compile_one, keep)
        return mine[key]


class Awaited:
    """Stands for a kernel while a thread compiles it, also in Triton's memory of kernels, where what failed once must
    not fail for good: an interrupt ends the assembler of every thread."""

    def __init__(self, threads: Executor, compile_one: Callable[[], Any], keep: Callable[[Any], None]) -> None:
        self._compile, self._keep = compile_one, keep
        self._future = threads.submit(compile_one)
        self._kernel: Any = None

    def result(self) -> Any:
        """Returns the kernel once it is compiled, here if it failed to compile there, and lets Triton keep it."""
        if self._kernel is None:
            try:
                kernel = self._future.result()
            except Exception:
                kernel = self._compile()
            self._keep(kernel)
            self._kernel = kernel
        return self._kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.result(), name)


_ahead: ContextVar[Ahead | None] = ContextVar("ahead", default=None)

_compiling: dict[Any, dict[str, Awaited]] = {}
"""What is compiled of each kernel, by its function and Triton's key, until somebody starts it."""
