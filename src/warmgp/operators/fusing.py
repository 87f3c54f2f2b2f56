"""Whether H can be evaluated inside of its products, by Triton: the one place that says so."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from warmgp.kernels import Kernel

LEAST_TRITON = (3, 5)
"""The first version of Triton that has products of float64."""

NEEDS_TRITON = "it needs Triton 3.5, which comes with torch 2.9 for CUDA"


def has_triton() -> bool:
    """Says whether Triton is here, and new enough."""
    if find_spec("triton") is None:
        return False
    import triton

    return tuple(map(int, triton.__version__.split(".")[:2])) >= LEAST_TRITON


def why_not_fused(kernel: Kernel, device: torch.device, dtype: torch.dtype, n: int, d: int) -> str:
    """Returns why the fused operator cannot be used for n points of d inputs; an empty text where it can.

    On a CPU it can in Triton's interpreter only, which is for tests.
    """
    if not has_triton():
        return NEEDS_TRITON
    if kernel.fused_form() is None:
        return f"there is no fused form of the kernel {kernel!r}"
    if n * max(128, d + 4) >= 2**31:
        return f"{n:,} rows are too many for 32-bit addresses"
    if device.type != "cuda" and not _is_interpreted():
        return f"it needs a CUDA device, and x is on {device}"
    if dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 or float64, and x is {dtype}"
    return ""


def _is_interpreted() -> bool:
    """Says whether Triton's kernels were made for its interpreter when they were imported."""
    from warmgp.operators.triton.products import product

    return type(product).__name__ == "InterpretedFunction"
