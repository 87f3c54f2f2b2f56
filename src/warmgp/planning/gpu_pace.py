"""How fast a CUDA device is beside the NVIDIA H200 that rates are tabulated for.

A few matrix products in each precision say it, in a tenth of a second, once per process and device. Cards differ most
in float64: one for games takes about thirty times as long for it as one for computing, and no longer for float32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

SIZES = {torch.float16: 4096, torch.float32: 2048, torch.float64: 2048}
"""The rows and columns of the products: enough to keep a large card busy, and few enough for a small one."""

H200_SECONDS = {torch.float16: 2.1e-4, torch.float32: 4.0e-4, torch.float64: 3.8e-4}
"""The seconds of one such product on an H200: 650, 43 and 45 TFLOP/s."""

WARM_UP = 0.05
"""Seconds of work before anything is timed: an idle card runs at a fraction of its clock."""

REPEATS, PRODUCTS = 5, 4
"""How often a time is taken, and of how many products in a row; the least counts."""


@dataclass(frozen=True)
class Pace:
    """Holds how many times as long as an H200 a device takes, by precision; all are powers of two.

    Attributes
    ----------
    half : float
        For products of float16 on tensor cores, which the fused products are made of.
    single : float
        For float32.
    double : float
        For float64.
    """

    half: float = 1.0
    single: float = 1.0
    double: float = 1.0


def pace_of(device: torch.device) -> Pace:
    """Returns the pace of a device, measured on CUDA; that of an H200 elsewhere, and where it cannot be measured."""
    if device.type != "cuda":
        return Pace()
    try:
        return _measured(torch.cuda.current_device() if device.index is None else device.index)
    except (RuntimeError, AssertionError):  # no memory left for the products; torch without CUDA
        return Pace()


@lru_cache(maxsize=64)
def _measured(index: int) -> Pace:
    """Measures the pace of CUDA device number ``index``, once in the life of the process."""
    device = torch.device("cuda", index)
    with torch.cuda.device(device):  # whose events are recorded
        _product_seconds(device, torch.float32, until=time.perf_counter() + WARM_UP)
        return pace_from(partial(_product_seconds, device))


def pace_from(seconds: Callable[[torch.dtype], float]) -> Pace:
    """Returns the pace of a device on which one product of ``SIZES[dtype]`` takes ``seconds(dtype)``.

    Times are rounded to powers of two, so that noise changes no plan.
    """
    ratios = {dtype: seconds(dtype) / usual for dtype, usual in H200_SECONDS.items()}
    rounded = {dtype: 2.0 ** round(math.log2(ratio)) for dtype, ratio in ratios.items()}
    return Pace(rounded[torch.float16], rounded[torch.float32], rounded[torch.float64])


def _product_seconds(device: torch.device, dtype: torch.dtype, until: float = 0.0) -> float:
    """Returns the seconds of one product on the current device, timed at least until the clock shows ``until``."""
    size = SIZES[dtype]
    a = torch.linspace(-1, 1, size * size, device=device).reshape(size, size).to(dtype)
    out = torch.mm(a, a)  # which also lets the library load what it needs
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    least, taken = math.inf, 0
    while taken < REPEATS or time.perf_counter() < until:
        begin.record()
        for _ in range(PRODUCTS):
            torch.mm(a, a, out=out)
        end.record()
        end.synchronize()
        least = min(least, begin.elapsed_time(end) / 1000 / PRODUCTS)
        taken += 1
    return least
