"""Which solver "auto" takes, and with which options a name comes: by points, inputs, memory, device and rates."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from warmgp.kernels import Kernel, Matern32
from warmgp.operators import dense_bytes
from warmgp.planning.costs import Rates, exact_seconds, factor_cg_seconds
from warmgp.planning.memory import preconditioner_bytes, vector_bytes
from warmgp.solvers import AlternatingProjections, ConjugateGradients, Solver, get_solver

SMALL = 500
"""Up to here exact training costs about as much as anything else, and is exact."""

CLEARLY = 0.5
"""By how much exact training has to be cheaper above that: measured rates vary, and a choice should not."""

LARGE = 50_000
EXACT_UP_TO_ON_GPU = 8_000
MAP_INPUTS = 3
"""Up to so many inputs near neighbours tell what there is to know of a point: with a Matérn kernel a solve then takes a
few iterations."""

NEAR, RANK_BESIDE, NEAR_FROM = 30, 100, 6_000
"""Neighbours, the low rank beside them, and where they begin to beat whole factors on a CPU (seen: 3,000 to 8,000)."""

GROW_AFTER = 20.0
"""Epochs of AP that cost about as much as factors of twice the block."""

LARGEST_BLOCK_ON_GPU = 20_000


def choose_solver(
    solver: str | Solver,
    gradient: str,
    n: int,
    d: int,
    n_probes: int,
    features: int,
    place: torch.device,
    budget: int,
    rates: Rates,
    kernel: Kernel | None = None,
) -> tuple[Solver, list[str]]:
    """The solver, and why."""
    why: list[str] = []
    if solver == "auto":
        fits = 3 * dense_bytes(n, torch.float64) + vector_bytes(n, d, n_probes, torch.float64) <= budget
        on_gpu = place.type == "cuda"
        cg = conjugate_gradients(n, d, 1 + n_probes, place, budget, kernel)
        if gradient == "exact":
            solver = "cholesky"
        elif gradient == "auto" and fits and (n <= EXACT_UP_TO_ON_GPU if on_gpu else n <= LARGE):
            direct = exact_seconds(rates, n, 100)
            iterative = factor_cg_seconds(rates, n, 100, features, cg.factor_after or 0)
            if on_gpu or n <= SMALL or direct <= CLEARLY * iterative:
                solver = "cholesky"
                why.append(f"Exact Cholesky: {n:,} points are few enough.")
        if solver == "auto":
            small = has_neighbours(cg) or (n < LARGE if on_gpu else cg.factor_after is not None)
            solver = "cg" if small else "ap"
            kind = "near neighbours" if has_neighbours(cg) else "a factor of low rank"
            kind = "a whole factor now and then" if cg.factor_after else kind
            why.append(
                f"Conjugate gradients with {kind} as their preconditioner, for {n:,} points."
                if small
                else f"Alternating projections, ten epochs a step, for {n:,} points."
            )
    if solver == "cg":
        return conjugate_gradients(n, d, 1 + n_probes, place, budget, kernel), why
    if solver == "ap":
        largest = min(n, _largest_block(n, budget), LARGEST_BLOCK_ON_GPU if place.type == "cuda" else n)
        return AlternatingProjections(_block_size(n, place, budget), GROW_AFTER, largest), why
    given = get_solver(solver)
    if isinstance(given, AlternatingProjections):
        largest = min(n, _largest_block(n, budget))
        if min(n, given.block_size) > largest:
            why.append(f"Blocks of {largest:,} rows instead of {given.block_size:,}, whose factors would not fit.")
            given = replace(given, block_size=largest)
        if given.grow_after is not None:
            given = replace(given, largest_block=min(largest, given.largest_block or largest))
    return given, why


def conjugate_gradients(
    n: int, d: int, columns: int, place: torch.device, budget: int, kernel: Kernel | None = None
) -> ConjugateGradients:
    """Conjugate gradients as they suit n points: a whole factor now and then where it fits, else one of low rank; near
    neighbours for maps, where the kernel is so smooth that they do not tell enough (RBF) only if no factor fits.

    A factor costs n³/3 operations, an iteration 2n² for the product and 2n² for the factor, per column; on a GPU
    the factor is the cheaper of the two.
    """
    most = 3 * dense_bytes(n, torch.float64)  # H, the old and the new factor, should all have to be float64
    whole = most <= budget and n < LARGE
    near_suffice = (kernel or Matern32()).near_neighbours_suffice
    if d <= MAP_INPUTS and not (whole and (place.type == "cuda" or n < NEAR_FROM or not near_suffice)):
        left = budget - vector_bytes(n, d, columns - 1, torch.float32)
        for rank in (RANK_BESIDE, 0):
            near = ConjugateGradients(rank, pivot_every=20, neighbours=NEAR)
            if preconditioner_bytes(near, n) <= left:
                return near
    if whole:
        after = n // 300 if place.type == "cuda" else n // (12 * columns)
        return ConjugateGradients(0, factor_after=max(2, after))
    return ConjugateGradients(max(100, min(1000, n // 10)), pivot_every=20)


def has_neighbours(solver: Solver) -> bool:
    return isinstance(solver, ConjugateGradients) and solver.neighbours > 0


def _block_size(n: int, place: torch.device, budget: int) -> int:
    """Rows per block of AP: 1,000, or fewer where their factors would not fit.

    On a CPU more, √(900 n), so that the factors cost about as much as five epochs.
    """
    most = 1000 if place.type == "cuda" or n >= LARGE else max(1000, int((900 * n) ** 0.5) // 8 * 8)
    return min(most, _largest_block(n, budget))


def _largest_block(n: int, budget: int) -> int:
    """Rows per block of AP whose factors, in float64, take a third of the memory, as do a block and its factor."""
    return max(64, min(budget // (3 * 8 * n), math.isqrt(budget // (6 * 8))) // 8 * 8)
