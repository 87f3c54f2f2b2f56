"""Which solver "auto" takes, and with which options a name comes: by points, inputs, memory, device and rates."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from warmgp.planning.costs import (
    BLOCK_CALL,
    BLOCK_WORK,
    RAP_EPOCHS,
    SWEEP,
    Rates,
    exact_seconds,
    factor_cg_seconds,
    projections_seconds,
    stored_rates,
    sweep_seconds,
    usual_rates,
)
from warmgp.planning.gpu_pace import Pace
from warmgp.planning.memory import (
    H_fits,
    H_fits_alone,
    correction_bytes,
    exact_fits,
    preconditioner_bytes,
    projection_bytes,
    vector_bytes,
)
from warmgp.planning.request import Request, is_auto
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    RecombinedProjections,
    Solver,
    get_solver,
)

SMALL = 500
"""The most points whose exact training costs about as much as any other."""

CLEARLY = 0.5
"""The share of another training's time that an exact one may take above that: rates vary, and a choice should not."""

LARGE = 50_000
"""The points from which on a solver that was named, or one with neighbours, gets the paper's budget and small steps."""

DEARER = 1.05
"""How many times longer than recombined projections a training with whole factors may take. Both are as fast where it
is 1 (10,000 points of houseelectric and protein on two cores: 51 and 72 s with factors, 52 and 68 s with
projections)."""

AFTER_SAMPLE = 30
"""The most steps on all points after a start on a sample."""

FIRST_EPOCHS, STEP_EPOCHS, LAST_EPOCHS = 20.0, 6.0, 60.0
"""Budgets of recombined projections in epochs: of the first solve, which starts from nothing, of a step, whose solve
goes on in the next one, and of the last solve."""

WAYS = ((2, 64), (2, 8), (1, 1))
"""Ways to sweep, the best one first: sweeps that are recombined, and blocks that are inverted at once. On an H200 a
block of 2,656 rows takes 3.5 ms in fours and 0.7 ms in 38s; a sweep of 200,000 rows in blocks of 1,024 takes 116, 103
and 98 ms with 16, 32 and 64 of them at once."""

MADE_AT_ONCE = 2**26
"""The most entries of blocks that are inverted at once: 3 GiB with what the work needs."""

FACTOR_SHARE = {True: 0.1, False: 0.133}
"""The share of a sweep that factors of its blocks may take, by whether it is on a GPU."""

LEAST_BLOCK, LEAST_BLOCK_BY_LAUNCHES, MOST_BLOCK = {True: 1_024, False: 500}, 1_536, 2_048
"""Rows of a block: the fewest, by whether it is on a GPU; the fewest where launches take longer than the product of a
block; and the most, because larger ones bring little, on a map none beyond the fewest: 12,000 pixels of the satellite
map took 5.1 epochs with blocks of 500 and of 1,000, and conjugate gradients with 30 to 100 neighbours 17."""

SINGLE = torch.float32

EXACT_UP_TO_ON_GPU = 8_000
"""The most points whose training is exact on an H200; see :func:`exact_up_to`."""

NEAR, RANK_BESIDE, NEAR_FROM = 30, 100, 6_000
"""Neighbours, the low rank beside them, and the points from which on both beat whole factors on a CPU (seen: 3,000 to
8,000)."""

GROW_AFTER = 20.0
"""Epochs of AP that cost about as much as factors of twice the block."""

LARGEST_BLOCK_ON_GPU = 20_000


FASTER = "For {:,} points approximate steps are faster than exact ones: each solves for all points,"
"""How the reason for conjugate gradients begins."""


def choose_solver(request: Request, n_features: int, rates: Rates) -> tuple[Solver, str]:
    """Decides the solver: the one that was asked for; for "auto" exact Cholesky where that is cheap, conjugate
    gradients where a good preconditioner fits and pays, recombined projections otherwise."""
    asked = request.settings.solver
    if not is_auto(asked):
        return _as_asked(asked, request)
    if request.gradient_name == "exact":
        return Cholesky(), ""
    if request.gradient_name == "auto" and _exact_is_cheap(request, n_features, rates):
        return Cholesky(), f"{request.n:,} points are few enough to train exactly, without approximation."
    if request.trains_near:
        inputs = "1 input" if request.d == 1 else f"{request.d} inputs"
        return recombined_projections(request), (
            f"{request.n:,} points of {inputs} are a map, where near points tell nearly everything: one approximate "
            "solution for all of them, at the end, is enough."
        )
    cg = conjugate_gradients(request, request.n)
    if has_neighbours(cg):
        return cg, f"{FASTER.format(request.n)} with the near neighbours of every point as a guide."
    rap = recombined_projections(request)
    if cg.factor_after is not None and (request.is_map or not _dearer(request, cg, rap, n_features)):
        return cg, f"{FASTER.format(request.n)} with an exact solution of an earlier step as a guide."
    return rap, (
        f"{request.n:,} points are too many for exact solutions: approximate ones are put together from blocks of "
        f"{rap.block_size:,} near points."
    )


def _dearer(request: Request, cg: ConjugateGradients, rap: RecombinedProjections, n_features: int) -> bool:
    """Says whether whole factors would take ``DEARER`` times as long as projections, by the usual rates."""
    rates, n, on_gpu = usual_rates(request), request.n, request.device.type == "cuda"
    stored = not on_gpu and H_fits_alone(n, SINGLE, request.memory_budget)
    sweeps = stored_rates(rates) if stored else rates
    sweep = sweep_seconds(sweeps, n, rap.block_size, on_gpu=on_gpu)
    whole = factor_cg_seconds(rates, n, AFTER_SAMPLE, n_features, cg.factor_after or 0)
    rest = projections_seconds(sweeps, n, AFTER_SAMPLE, n_features, RAP_EPOCHS, sweep, on_gpu=on_gpu)
    return whole > DEARER * rest


def _as_asked(asked: str | Solver, request: Request) -> tuple[Solver, str]:
    """Decides what a name stands for here, and keeps the blocks of a solver that was given within the memory."""
    if asked == "cg":
        return conjugate_gradients(request, request.n), ""
    if asked == "ap":
        return alternating_projections(request), ""
    if asked == "rap":
        return recombined_projections(request), ""
    given, why = get_solver(asked), ""
    if isinstance(given, AlternatingProjections):
        largest = min(request.n, _largest_block(request.n, request.memory_budget))
        if min(request.n, given.block_size) > largest:
            why = f"Blocks of {largest:,} rows instead of {given.block_size:,}, which would not fit the memory."
            given = replace(given, block_size=largest)
        if given.grow_after is not None:
            given = replace(given, largest_block=min(largest, given.largest_block or largest))
    return given, why


def _exact_is_cheap(request: Request, n_features: int, rates: Rates) -> bool:
    """Says whether exact training fits the memory, and has few points or is clearly faster than iterative training."""
    n = request.n
    if not exact_fits(n, request.d, request.others, request.memory_budget):
        return False
    if request.device.type == "cuda":
        return n <= exact_up_to(request.pace)
    if n <= SMALL or n > LARGE:
        return n <= SMALL
    after = conjugate_gradients(request, n).factor_after or 0
    return exact_seconds(rates, n, 100) <= CLEARLY * factor_cg_seconds(rates, n, 100, n_features, after)


def exact_up_to(pace: Pace) -> int:
    """Returns up to how many points training is exact on a GPU.

    Beside the products of iterative training, its float64 work of n³ operations is to take no longer than that of
    ``EXACT_UP_TO_ON_GPU`` points does on an H200.
    """
    slower = max(1.0, pace.double / pace.half)
    return round(EXACT_UP_TO_ON_GPU / slower ** (1 / 3))


def max_epochs(request: Request, solver: Solver) -> float | None:
    """Returns the budget of a solve in epochs, None for none: what was given; for "auto" there is one for projections
    that "auto" chose, and the paper's for large data, but none with whole factors."""
    given = request.settings.max_epochs
    if not isinstance(given, str):
        return given
    if solver.name == "rap":
        return STEP_EPOCHS if is_auto(request.settings.solver) else None
    if solver.name == "cholesky" or request.n < LARGE or _has_factor(solver):
        return None
    return 100.0 if has_neighbours(solver) else 10.0


def conjugate_gradients(request: Request, n: int) -> ConjugateGradients:
    """Returns conjugate gradients as they suit n of the points: with a whole factor now and then where that fits, else
    with near neighbours for maps, else with a factor of low rank.

    On a CPU neighbours come first for maps of ``NEAR_FROM`` points and more, unless the kernel is so smooth that they
    do not tell enough (RBF). A whole factor costs n³/3 operations; an iteration costs 2n² a column for the product and
    2n² to apply the factor, which on a GPU is the cheaper of the two.
    """
    on_gpu, budget = request.device.type == "cuda", request.memory_budget
    whole = H_fits(n, torch.float64, budget)  # should all have to be float64
    whole = whole and (n < LARGE or not request.is_map)
    suffice = request.kernel.near_neighbours_suffice
    if request.is_map and not (whole and (on_gpu or n < NEAR_FROM or not suffice)):
        left = budget - vector_bytes(n, request.d, request.others, torch.float32, request.processes)
        for rank in (RANK_BESIDE, 0):
            near = ConjugateGradients(rank, pivot_every=20, neighbours=NEAR)
            if preconditioner_bytes(near, n) <= left:
                return near
    if whole:
        after = n // 300 if on_gpu else n // (12 * request.columns)
        return ConjugateGradients(0, factor_after=max(2, after))
    return ConjugateGradients(max(100, min(1000, n // 10)), pivot_every=20)


def alternating_projections(request: Request) -> AlternatingProjections:
    """Returns alternating projections with blocks of 1,000 rows that may grow, or fewer where factors would not fit.

    On a CPU, below ``LARGE`` points, blocks begin larger, with √(900 n) rows: the factors cost about as much as five
    epochs.
    """
    n, on_gpu = request.n, request.device.type == "cuda"
    largest = _largest_block(n, request.memory_budget)
    first = 1000 if on_gpu or n >= LARGE else max(1000, int((900 * n) ** 0.5) // 8 * 8)
    most = min(n, largest, LARGEST_BLOCK_ON_GPU if on_gpu else n)
    return AlternatingProjections(min(first, largest), GROW_AFTER, most)


def recombined_projections(request: Request, n: int | None = None) -> RecombinedProjections:
    """Returns recombined projections as they suit n of the points.

    Blocks are as large as their factors are worth, and fewer of them are in the making where memory is short.
    """
    n, on_gpu = n or request.n, request.device.type == "cuda"
    rates, budget, size = usual_rates(request), request.memory_budget, request.processes
    vectors = vector_bytes(n, request.d, request.others, SINGLE, size)
    least, product = LEAST_BLOCK[on_gpu], SWEEP[on_gpu] * n * rates.recompute  # of one column
    if least * product < BLOCK_CALL[on_gpu]:
        least = LEAST_BLOCK_BY_LAUNCHES
    b = int((FACTOR_SHARE[on_gpu] * product / (BLOCK_WORK[on_gpu] * rates.exact)) ** 0.5) // 32 * 32
    b = min(n, least if request.is_map else MOST_BLOCK, max(least, b))

    def fits(solver: RecombinedProjections) -> bool:
        sweeps = vectors + projection_bytes(solver, n, request.columns, SINGLE, on_gpu, size)
        columns = request.columns + request.trend_terms
        return max(sweeps, correction_bytes(solver, n, request.d, columns, on_gpu, size)) <= budget

    for directions, together in WAYS:
        solver = RecombinedProjections(b, directions, max(1, min(together, MADE_AT_ONCE // b**2)))
        if fits(solver):
            return solver
    while solver.block_size > 1 and not fits(solver):
        solver = replace(solver, block_size=solver.block_size // 2)
    return solver


def _has_factor(solver: Solver) -> bool:
    """Says whether a solver preconditions with whole factors."""
    return isinstance(solver, ConjugateGradients) and solver.factor_after is not None


def few_steps(solver: Solver) -> bool:
    """Says whether training with a solver costs full products with H at every step, so that few steps are taken."""
    return solver.name == "rap"


def starts_on_sample(solver: Solver) -> bool:
    """Says whether training with a solver starts on a sample at any number of points; others are the paper's."""
    return few_steps(solver) or _has_factor(solver)


def has_neighbours(solver: Solver) -> bool:
    """Says whether a solver preconditions with near neighbours."""
    return isinstance(solver, ConjugateGradients) and solver.neighbours > 0


def _largest_block(n: int, budget: int) -> int:
    """Returns the most rows of AP's blocks: in float64 the factors of all blocks may take a third of the memory, and so
    may a block with its factor."""
    return max(64, min(budget // (3 * 8 * n), math.isqrt(budget // (6 * 8))) // 8 * 8)
