"""The operators' room: H = K(x, x) + σ²I and its products, the only place that evaluates kernels to fit and predict.

``base`` holds the contract, with what every operator shares; ``dense`` and ``chunked`` are operators in plain torch,
for any device; ``triton`` has the fused one, for CUDA. ``fusing`` says what can be fused, ``factory`` makes operators
by name; ``distances``, ``indices``, ``scratch`` and ``tall`` are their tools. Whoever multiplies with H does not know
whether it is stored or recomputed. It may import ``processes``, ``hyperparameters`` and ``kernels``.

Add an operator as a file with a subclass of :class:`KernelOperator`, and one line in ``factory.OPERATORS``: the tests
run over all of them.
"""

from __future__ import annotations

from warmgp.operators.base import KernelOperator
from warmgp.operators.chunked import ChunkedOperator
from warmgp.operators.dense import DenseOperator, dense_bytes
from warmgp.operators.factory import OPERATORS, TRITON_OPERATORS, make_operator
from warmgp.operators.fusing import has_triton, why_not_fused
from warmgp.operators.indices import Index

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
    "why_not_fused",
]
