"""The one way in which the library makes an operator: by the name of its kind."""

from __future__ import annotations

from typing import Any, Literal, overload

from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.base import KernelOperator
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.dense import DenseOperator
from warmgp.operators.fusing import NEEDS_TRITON, has_triton, why_not_fused

OPERATORS: dict[str, type[KernelOperator]] = {"dense": DenseOperator, "chunked": ChunkedOperator}
"""The operators in plain torch, which run anywhere."""

TRITON_OPERATORS = ("fused",)
"""The operators in Triton, imported where they are asked for. With ``OPERATORS`` they are all that a file may name."""


@overload
def make_operator(
    kind: Literal["dense"], x: Tensor, kernel: Kernel, theta: Hyperparameters, **options: Any
) -> DenseOperator: ...
@overload
def make_operator(
    kind: Literal["chunked"], x: Tensor, kernel: Kernel, theta: Hyperparameters, **options: Any
) -> ChunkedOperator: ...
@overload
def make_operator(kind: str, x: Tensor, kernel: Kernel, theta: Hyperparameters, **options: Any) -> KernelOperator: ...
def make_operator(kind: str, x: Tensor, kernel: Kernel, theta: Hyperparameters, **options: Any) -> KernelOperator:
    """Makes the operator H(θ) of that kind on the inputs x.

    Parameters
    ----------
    kind : str
        "dense" keeps H, "chunked" recomputes it tile by tile at every product, "fused" inside of every product. "auto"
        keeps nothing either: it is fused on a GPU where that can be (:func:`why_not_fused`), else chunked.
    x : Tensor, (n, d)
    kernel : Kernel
    theta : Hyperparameters
    options
        Options of the operator's class, such as ``tile_entries``.
    """
    if kind == "auto":
        kind = "fused" if x.is_cuda and not why_not_fused(kernel, x.device, x.dtype, *x.shape) else "chunked"
    if kind in OPERATORS:
        return OPERATORS[kind](x, kernel, theta, **options)
    if kind not in TRITON_OPERATORS:
        names = ", ".join(map(repr, (*OPERATORS, *TRITON_OPERATORS, "auto")))
        raise ValueError(f"operator must be one of {names}, got {kind!r}")
    if not has_triton():
        raise ValueError(f"operator={kind!r} cannot be used here: {NEEDS_TRITON}: use 'dense' or 'chunked'")
    from warmgp.operators.triton.fused import FusedOperator

    return FusedOperator(x, kernel, theta, **options)
