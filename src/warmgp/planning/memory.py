"""How much memory a planned training holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from warmgp.operators import dense_bytes
from warmgp.solvers import AlternatingProjections, ConjugateGradients, StoppingRule

if TYPE_CHECKING:
    from warmgp.planning.planner import Plan

LOW_RANK_COPIES = 6
"""Of (n, k) in float64, while pivots are carried to a new factor beside the old one."""

NEIGHBOUR_BYTES = 80
"""Of a point and its neighbour: its number, two sparse factors with columns, and one more being sorted beside them."""


def training_bytes(plan: Plan, n: int, d: int, sample_solver: ConjugateGradients | None = None) -> int:
    """What training holds at its peak: H and factors, solutions, and a few copies of them.

    ``sample_solver`` is what a start on a sample is solved with.
    """
    size = plan.dtype.itemsize
    vectors = vector_bytes(n, d, plan.gradient.n_probes, plan.dtype)
    if plan.solver.name == "cholesky":
        return 3 * dense_bytes(n, torch.float64) + vectors
    matrices = dense_bytes(n, plan.dtype) if plan.operator == "dense" else 0
    if isinstance(plan.solver, ConjugateGradients):
        whole = plan.solver.factor_after is not None
        # a new factor is made beside the old one
        matrices += 2 * dense_bytes(n, torch.float32) if whole else preconditioner_bytes(plan.solver, n)
    if isinstance(plan.solver, AlternatingProjections):
        matrices += _block_bytes(plan.solver, plan.rule, n, size)
    if sample_solver is not None:
        whole = sample_solver.factor_after is not None
        factors = 2 * dense_bytes(plan.sample_size, torch.float32)
        factors = factors if whole else preconditioner_bytes(sample_solver, plan.sample_size)
        matrices = max(matrices, dense_bytes(plan.sample_size, torch.float32) + factors)
    return matrices + vectors


def preconditioner_bytes(solver: ConjugateGradients, n: int) -> int:
    """The low rank and the neighbours."""
    near = NEIGHBOUR_BYTES * n * (solver.neighbours + 1) if solver.neighbours else 0
    return LOW_RANK_COPIES * 8 * n * solver.preconditioner_rank + near


def _block_bytes(solver: AlternatingProjections, rule: StoppingRule, n: int, size: int) -> int:
    """Factors of all blocks, and a block with its factor in float64; of grown ones where they may grow."""
    b, grown = min(n, solver.block_size), solver.largest_block
    if grown and solver.grow_after and (rule.max_epochs is None or rule.max_epochs > solver.grow_after) and grown > b:
        b, size = grown, 8
    return size * n * b + 2 * 8 * b**2


def vector_bytes(n: int, d: int, n_probes: int, dtype: torch.dtype) -> int:
    """Solutions, targets, residuals and their copies; inputs."""
    return 8 * n * (1 + max(1, n_probes)) * dtype.itemsize + 4 * n * d * 8
