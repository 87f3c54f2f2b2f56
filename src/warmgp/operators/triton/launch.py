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
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from typing import Any

import torch
import triton
from torch import Tensor

MOST_THREADS = 8
"""Kernels that are compiled at once, at most."""

_rehearsed: ContextVar[bool] = ContextVar("rehearsed", default=False)

_compiling: dict[Any, list[Any]] = {}
"""What is compiled of a kernel, by its function, until somebody starts it."""


def run_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Starts the kernel with ``data`` as its first argument, on the device of ``data`` and its current stream.

    A graph that is being recorded on that device records it. The change of device costs about a microsecond. Within
    :func:`compile_ahead` the kernel is compiled and not started.
    """
    act = compile_kernel if _rehearsed.get() else start_kernel
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
    """Has the kernel compiled for such arguments, unless it is interpreted."""
    if not isinstance(kernel, triton.JITFunction):
        return
    found = kernel.warmup(data, *arguments, grid=grid, **options)
    if hasattr(found, "result"):  # else it was compiled before
        _compiling.setdefault(kernel.fn, []).append(found)


def hand_over(function: Any) -> None:
    """Waits for what is compiled of a kernel and hands it to Triton, which up to 3.6 does not know of it before, and
    would compile it again. What failed is compiled again, and says why, when it is started."""
    for found in _compiling.pop(function, ()):
        with contextlib.suppress(Exception):
            found.result()


def compile_ahead(calls: Callable[[], None]) -> None:
    """Makes calls whose kernels are compiled instead of started, side by side in threads of their own, and returns
    before they are done; what the calls return is whatever memory holds.

    Whoever starts such a kernel later waits for it. Triton compiles in threads within a mode that it leaves late, and
    not at all after an interrupt: here the mode has a context to itself, and is never left.
    """
    for function in list(_compiling):  # of calls before, so that nothing is compiled twice
        hand_over(function)
    threads = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))
    try:
        alone = Context()
        alone.run(triton.AsyncCompileMode(threads).__enter__)
        alone.run(_rehearsed.set, True)
        alone.run(calls)
    finally:
        threads.shutdown(wait=False)  # when they are done
