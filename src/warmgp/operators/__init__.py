"""H = K(x, x) + σ²I, the only place that evaluates kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import Index, KernelOperator
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.dense import DenseOperator
from warmgp.operators.fusing import has_triton, why_not_fused

OPERATORS: dict[str, type[KernelOperator]] = {"dense": DenseOperator, "chunked": ChunkedOperator}
"""The operators in plain torch, which run anywhere."""

TRITON_OPERATORS = ("fused",)


def operator_class(kind: str) -> type[KernelOperator]:
    """The operator of that name; those that need Triton are imported when first asked for."""
    if kind in OPERATORS:
        return OPERATORS[kind]
    if kind not in TRITON_OPERATORS:
        raise ValueError(
            f"operator must be one of {', '.join(map(repr, (*OPERATORS, *TRITON_OPERATORS)))}, got {kind!r}"
        )
    if not has_triton():
        raise ValueError(
            f"operator={kind!r} needs Triton 3.5, which comes with torch 2.9 for CUDA: use 'dense' or 'chunked'"
        )
    from warmgp.operators.triton.fused import FusedOperator

    return FusedOperator


def make_operator(kind: str, x: Tensor, kernel: Kernel, theta: Hyperparameters) -> KernelOperator:
    """The operator of that kind."""
    return operator_class(kind)(x, kernel, theta)


def recomputing_operator(x: Tensor, kernel: Kernel, theta: Hyperparameters) -> KernelOperator:
    """The operator that stores nothing: fused where that is possible, else chunked."""
    if x.device.type == "cuda" and has_triton():
        from warmgp.operators.triton.fused import FusedOperator

        if not why_not_fused(kernel, x.device, x.dtype, *x.shape):
            return FusedOperator(x, kernel, theta)
    return ChunkedOperator(x, kernel, theta)


def dense_bytes(n: int, dtype: torch.dtype) -> int:
    """Memory that a stored H takes."""
    return n * n * dtype.itemsize


__all__ = [
    "OPERATORS",
    "TRITON_OPERATORS",
    "ChunkedOperator",
    "DenseOperator",
    "Index",
    "KernelOperator",
    "dense_bytes",
    "has_triton",
    "make_operator",
    "operator_class",
    "recomputing_operator",
    "why_not_fused",
]
