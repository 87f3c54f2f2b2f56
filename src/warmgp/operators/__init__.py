"""H = K(x, x) + σ²I, the only place that evaluates kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import Index, KernelOperator
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.dense import DenseOperator

OPERATORS: dict[str, type[KernelOperator]] = {"dense": DenseOperator, "chunked": ChunkedOperator}


def make_operator(kind: str, x: Tensor, kernel: Kernel, theta: Hyperparameters) -> KernelOperator:
    """The operator of that kind."""
    if kind not in OPERATORS:
        raise ValueError(f"operator must be one of {', '.join(map(repr, OPERATORS))}, got {kind!r}")
    return OPERATORS[kind](x, kernel, theta)


def dense_bytes(n: int, dtype: torch.dtype) -> int:
    """Memory that a stored H takes."""
    return n * n * dtype.itemsize


__all__ = ["OPERATORS", "ChunkedOperator", "DenseOperator", "Index", "KernelOperator", "dense_bytes", "make_operator"]
