"""The one way in which Triton kernels are started: on the device of their data; or compiled before they are needed.

Triton starts a kernel on the current device of the process, which is the first one unless somebody changed it; data
on another (``device="cuda:1"``) would be read through a foreign address.

A kernel is compiled when it is first started on a machine, for every number of inputs and kernel function anew: half a
second to two seconds each, one after the other. :func:`compile_ahead` has them compiled side by side, while something
else is done.
"""

from __future__ import annotations

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
    """Starts the kernel on the current device, or in Triton's interpreter."""
    kernel[grid](data, *arguments, **options)


def compile_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Compiles the kernel for such arguments, unless it is interpreted."""
    if data.is_cuda:
        kernel.warmup(data, *arguments, grid=grid, **options)


def compile_ahead(calls: Callable[[], None]) -> None:
    """Makes calls whose kernels are compiled instead of started, side by side in threads of their own, and returns
    before they are done; what the calls return is whatever memory holds.

    Whoever starts such a kernel later waits for it, and is told there if it does not compile. Triton compiles in
    threads within a mode that it leaves late, and not at all after an interrupt: here the mode has a context to itself,
    and is never left.
    """
    threads = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))
    try:
        alone = Context()
        alone.run(triton.AsyncCompileMode(threads).__enter__)
        alone.run(_rehearsed.set, True)
        alone.run(calls)
    finally:
        threads.shutdown(wait=False)  # when they are done
