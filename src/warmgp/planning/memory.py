"""How much memory a planned training holds, in bytes, and whether H has room."""

from __future__ import annotations

import torch

from warmgp.operators import dense_bytes
from warmgp.planning.plan import Plan
from warmgp.solvers import (
    AlternatingProjections,
    ConjugateGradients,
    RecombinedProjections,
    Solver,
    StoppingRule,
)
from warmgp.training.exact_climb import INSTEAD_OF_GROUPS
from warmgp.training.refinement import columns_at_once

LOW_RANK_COPIES = 6
"""Matrices of (n, k) in float64 that are held while pivots are carried to a new factor beside the old one."""

NEIGHBOUR_BYTES = 80
"""Bytes for each neighbour of a point: its number, two sparse factors with columns, and one more being sorted beside
them."""


def H_fits(n: int, dtype: torch.dtype, budget: float) -> bool:
    """Says whether H and two more matrices of its size fit the budget, in bytes.

    The two are a factor of H and the one that is made beside it, or an inverse; what stores H alone leaves that room
    for all that is not counted.
    """
    return 3 * dense_bytes(n, dtype) <= budget


def H_fits_alone(n: int, dtype: torch.dtype, budget: float) -> bool:
    """Says whether H fits the budget, in bytes, with as much again for all else: no factor of its size is made."""
    return 2 * dense_bytes(n, dtype) <= budget


def exact_fits(n: int, d: int, n_probes: int, budget: int) -> bool:
    """Says whether exact training, in float64, fits the budget."""
    return H_fits(n, torch.float64, budget - vector_bytes(n, d, n_probes, torch.float64))


def training_bytes(plan: Plan, n: int, d: int, processes: int = 1) -> int:
    """Returns the bytes that steps hold at their peak: H and factors, solutions, and a few copies of them; on each of
    several processes that share them by rows."""
    vectors = vector_bytes(n, d, plan.columns - 1 + plan.trend_terms, plan.dtype, processes)
    if plan.solver.name == "cholesky":
        return 3 * dense_bytes(n, torch.float64) + vectors
    matrices = dense_bytes(n, plan.dtype) if plan.operator == "dense" else 0
    matrices += factor_bytes(plan.solver, n)
    if isinstance(plan.solver, AlternatingProjections):
        matrices += _block_bytes(plan.solver, plan.rule, n, plan.dtype.itemsize, processes)
    if isinstance(plan.solver, RecombinedProjections):
        on_gpu = plan.device.type == "cuda"
        matrices += projection_bytes(plan.solver, n, plan.columns, plan.dtype, on_gpu, processes)
    return matrices + vectors


CLIMBED_BYTES = 80
"""The bytes that each pair of points takes whose likelihood is climbed: H, its factor, its inverse, and what the
gradient is made of, in float64."""


def peak_bytes(plan: Plan, n: int, d: int, processes: int = 1) -> int:
    """Returns the bytes that a whole training holds at its peak: that of its steps, of its start on a sample, or of a
    correction at its end; on each of several processes."""
    steps = training_bytes(plan, n, d, processes)
    if isinstance(plan.solver, RecombinedProjections) and plan.promote:
        columns, on_gpu = plan.columns + plan.trend_terms, plan.device.type == "cuda"
        steps = max(steps, correction_bytes(plan.solver, n, d, columns, on_gpu, processes))
    if plan.climb is not None:
        steps = max(steps, CLIMBED_BYTES * plan.climb.points**2)
    if plan.local is not None:
        steps = max(steps, CLIMBED_BYTES * min(n, INSTEAD_OF_GROUPS) ** 2)
    if plan.start_solver is None:
        return steps
    sample = dense_bytes(plan.sample_size, torch.float32) + factor_bytes(plan.start_solver, plan.sample_size)
    return max(steps, sample + vector_bytes(n, d, plan.columns - 1 + plan.trend_terms, plan.dtype, processes))


def correction_bytes(
    solver: RecombinedProjections, n: int, d: int, columns: int, on_gpu: bool, processes: int = 1
) -> int:
    """Returns the bytes of a correction to float64 at the end of recombined projections in float32: probes, solutions
    and targets in float64, a residual, and what the solver holds of the columns that are corrected at once.

    Other solvers are corrected, too, but not at sizes where that counts.
    """
    at_once = columns_at_once(n, columns)
    held = 4 * rows_of(n, processes) * (7 * columns + 6 * at_once) + 4 * n * d * 8
    held += model_bytes(n, columns, torch.float64, processes)
    return held + projection_bytes(solver, n, at_once, torch.float32, on_gpu, processes)


def factor_bytes(solver: Solver, n: int) -> int:
    """Returns the bytes that conjugate gradients hold to precondition with; 0 for other solvers.

    Of whole factors there are two, since a new one is made beside the old one.
    """
    if not isinstance(solver, ConjugateGradients):
        return 0
    if solver.factor_after is not None:
        return 2 * dense_bytes(n, torch.float32)
    return preconditioner_bytes(solver, n)


def preconditioner_bytes(solver: ConjugateGradients, n: int) -> int:
    """Returns the bytes of the low rank and the neighbours."""
    near = NEIGHBOUR_BYTES * n * (solver.neighbours + 1) if solver.neighbours else 0
    return LOW_RANK_COPIES * 8 * n * solver.preconditioner_rank + near


def _block_bytes(solver: AlternatingProjections, rule: StoppingRule, n: int, size: int, processes: int) -> int:
    """Returns the bytes of all blocks' factors and of one block with its factor in float64; grown, if they may grow."""
    b, grown = min(n, solver.block_size), solver.largest_block
    if grown and solver.grow_after and (rule.max_epochs is None or rule.max_epochs > solver.grow_after) and grown > b:
        b, size = grown, 8
    return size * rows_of(n, processes) * b + 2 * 8 * b**2


def projection_bytes(
    solver: RecombinedProjections, n: int, columns: int, dtype: torch.dtype, on_gpu: bool, processes: int = 1
) -> int:
    """Returns the bytes of the blocks of recombined projections in the making, in float64, of the inverses that are
    made, that wait and that are projected onto, and of the sweeps that are recombined."""
    b, size = min(n, solver.block_size), dtype.itemsize
    at_once = on_gpu and processes == 1  # else each process makes a block
    making = (4 * 8 + 3 * size) * min(solver.together * b**2, n * b) if at_once else 2 * 8 * b**2
    return making + 2 * solver.directions * rows_of(n, processes) * columns * size


def vector_bytes(n: int, d: int, n_probes: int, dtype: torch.dtype, processes: int = 1) -> int:
    """Returns the bytes of solutions, targets, residuals and their copies, which several processes share, and of the
    inputs."""
    columns = 1 + max(1, n_probes)
    shared = 8 * rows_of(n, processes) * columns * dtype.itemsize
    return shared + model_bytes(n, columns, dtype, processes) + 4 * n * d * 8


def model_bytes(n: int, columns: int, dtype: torch.dtype, processes: int) -> int:
    """Returns the bytes of what each of several processes has of all rows at the end, the model: its solutions, and its
    targets in 16 bits; 0 for one process, where copies of them are counted already."""
    return n * columns * (dtype.itemsize + 2) if processes > 1 else 0


def rows_of(n: int, processes: int) -> int:
    """Returns how many of n rows one of several processes has, at most."""
    return -(-n // processes)
