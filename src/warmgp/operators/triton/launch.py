"""The one way in which Triton kernels are started: on the device of their data; or compiled before they are needed.

Triton starts a kernel on the current device of the process, which is the first one unless somebody changed it; data
on another (``device="cuda:1"``) would be read through a foreign address.

A kernel is compiled when it is first started on a machine, for every number of inputs and kernel function anew: half a
second to two seconds each, one after the other. :func:`compiling_ahead` has them compiled side by side, while something
else is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import torch
import triton
from torch import Tensor

_rehearsed: ContextVar[bool] = ContextVar("rehearsed", default=False)


def run_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Starts the kernel with ``data`` as its first argument, on the device of ``data`` and its current stream.

    A graph that is being recorded on that device records it. The change of device costs about a microsecond. Within
    :func:`rehearsal` the kernel is compiled and not started.
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


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """Keeps kernels from being started within its block, in this thread: they are compiled, and their results are
    whatever memory holds."""
    token = _rehearsed.set(True)
    try:
        yield
    finally:
        _rehearsed.reset(token)


@contextlib.contextmanager
def compiling_ahead() -> Iterator[None]:
    """Compiles the kernels that this thread needs within its block side by side in threads of their own, which it waits
    for at the end of the block, or when one of them is started. What fails to compile says so when it is started."""
    with (
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads,
        triton.AsyncCompileMode(threads, ignore_errors=True),
    ):
        yield
