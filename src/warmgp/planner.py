"""What "auto" means: device, dtype, operator, solver, estimator, budget and start, decided once before training.

- the GPU if there is one;
- of exact Cholesky training and conjugate gradients, what should be faster by the rates of this machine
  (:mod:`warmgp.costs`), while the factor of H fits the memory; alternating projections with ten epochs a step where it
  does not, and from 50,000 points, as the paper does;
- with up to three inputs (maps) conjugate gradients with near neighbours instead, and on a CPU from 6,000 points in the
  place of whole factors;
- float32, watched against float64 and left for it when they disagree (:mod:`warmgp.precision`); exact training is
  float64 always;
- H is stored when it fits a third of the memory budget, else recomputed in tiles; in float32 on a GPU it is evaluated
  inside the products (fused), which is as fast as reading it;
- Adam's steps are relative for large hyperparameters, and end when the likelihood is expected to rise no more;
- from 6,000 points training starts on a random sample of a fifth of them; from 50,000 on neighbourhoods;
- up to 2,500 points the last solve is by a factor of H, and variances are exact;
- random features: a quarter as many as points, between 2,000 and 16,000: m of them cost about m/n of an epoch.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace

import torch

from warmgp.costs import (
    AP_EPOCHS,
    CG_EPOCHS,
    NEAR_EPOCHS,
    NEAR_EPOCHS_OF_MANY_INPUTS,
    Rates,
    epochs_seconds,
    exact_seconds,
    factor_cg_seconds,
    near_cg_seconds,
    rates_for,
)
from warmgp.devices import available_memory, resolve_device
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.kernels import KERNELS, Kernel, Matern32
from warmgp.memory import training_bytes, vector_bytes
from warmgp.operators import dense_bytes, has_triton
from warmgp.solvers import AlternatingProjections, ConjugateGradients, Solver, StoppingRule, get_solver
from warmgp.solvers.base import is_number

SMALL = 500
"""Up to here exact training costs about as much as anything else, and is exact."""

CLEARLY = 0.5
"""By how much exact training has to be cheaper above that: measured rates vary, and a choice should not."""

LARGE = 50_000
MAP_INPUTS = 3
"""Up to so many inputs near neighbours tell what there is to know of a point: a solve then takes a few iterations."""

NEAR, RANK_BESIDE, NEAR_FROM = 30, 100, 6_000
"""Neighbours, the low rank beside them, and where they begin to beat whole factors on a CPU (seen: 3,000 to 8,000)."""

SAMPLE_FROM = 6_000
SAMPLE_SHARE = 5
EXACT_UP_TO_ON_GPU = 8_000
EXACT_POSTERIOR_UP_TO = 2_500
"""Up to here variances from a factor of H, n² operations a new point, are cheap enough to have them without the error
of 64 samples."""

GROW_AFTER = 20.0
"""Epochs of AP that cost about as much as factors of twice the block."""

LARGEST_BLOCK_ON_GPU = 20_000
GRADIENTS = ("exact", "standard", "pathwise")
INITS = ("auto", "ones", "sample", "subset", "given")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Plan:
    """Everything that "auto" decided, and why. ``print(plan)`` reads as a paragraph.

    Attributes
    ----------
    promote : bool
        Whether float32 is watched and left for float64 when it is not enough.
    relative_steps, settle : bool
        See :class:`warmgp.training_state.TrainingOptions`.
    exact_posterior : bool
        Whether the last solve is by a factor of H, from which variances are then exact.
    sample_size : int
        Points of the sample that training starts on, where ``init`` is "sample".
    estimated_seconds, estimated_bytes : float, int
        Of the whole training, on this machine.
    took_seconds : float or None
        What it took in the end.
    """

    device: torch.device
    dtype: torch.dtype
    operator: str
    solver: Solver
    gradient: GradientEstimator
    rule: StoppingRule
    n_steps: int
    learning_rate: float
    init: str
    n_neighbours: int
    n_features: int
    memory_budget: int
    why: tuple[str, ...] = ()
    promote: bool = False
    relative_steps: bool = False
    settle: bool = False
    exact_posterior: bool = False
    sample_size: int = 0
    estimated_seconds: float = 0.0
    estimated_bytes: int = 0
    took_seconds: float | None = None

    def __str__(self) -> str:
        budget = "" if self.rule.max_epochs is None else f", at most {self.rule.max_epochs:g} epochs"
        solving = f"solver {self.solver.name} to tolerance {self.rule.tol:g}{budget}"
        dtype = str(self.dtype).removeprefix("torch.") + (" (float64 if that is not enough)" if self.promote else "")
        start = f"a sample of {self.sample_size:,} points" if self.init == "sample" else f"{self.init} hyperparameters"
        head = (
            f"{'At most ' if self.settle else ''}{self.n_steps} Adam steps of {self.learning_rate:g} from {start}; "
            f"{self.gradient.name} gradient, {'solver cholesky' if self.solver.name == 'cholesky' else solving}; "
            f"{self.operator} operator in {dtype} on {self.device}."
        )
        cost = f"Estimated: {_duration(self.estimated_seconds)} and {self.estimated_bytes / 2**30:.2g} GiB."
        exactly = "Variances are exact, from a factor of H." if self.exact_posterior else ""
        took = "" if self.took_seconds is None else f"Took {_duration(self.took_seconds)}."
        return " ".join(part for part in (head, *self.why, exactly, cost, took) if part)


def make_plan(
    n: int,
    d: int = 10,
    *,
    solver: str | Solver = "auto",
    gradient: str | GradientEstimator = "auto",
    n_probes: int = 64,
    n_features: int | str = "auto",
    tol: float = 0.01,
    max_epochs: float | str | None = "auto",
    n_steps: int | str = "auto",
    learning_rate: float | str = "auto",
    init: str = "auto",
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    memory_budget: int | None = None,
    kernel: Kernel | None = None,
) -> Plan:
    """Decide every "auto" for n training points of d inputs, and refuse what cannot fit.

    Raises
    ------
    ValueError
        For an unknown option, naming the argument and what is accepted.
    MemoryError
        For training that would not fit ``memory_budget``, before anything is computed.
    """
    place = resolve_device(device)
    if memory_budget is not None and not (is_number(memory_budget) and 0 < memory_budget < float("inf")):
        raise ValueError(f"memory_budget must be a positive number of bytes or None, got {memory_budget!r}")
    if memory_budget is not None and memory_budget < 2**10:
        raise ValueError(
            f"memory_budget is in bytes, got {memory_budget!r}: for {memory_budget} GiB pass {memory_budget} * 2**30"
        )
    budget = int(memory_budget) if memory_budget else available_memory(place)
    given = gradient if isinstance(gradient, GradientEstimator) else None
    if given is not None:
        gradient, n_probes = given.name, given.n_probes or n_probes
        n_features = given.n_features if isinstance(given, Pathwise) else n_features
    elif gradient not in ("auto", *GRADIENTS):
        names = ", ".join(map(repr, GRADIENTS))
        raise ValueError(f'gradient must be "auto", {names} or a GradientEstimator, got {gradient!r}')
    if init not in INITS:
        raise ValueError(f'init must be "auto", "ones", "sample", "subset" or Hyperparameters, got {init!r}')
    for name, value in (("max_epochs", max_epochs), ("n_steps", n_steps), ("learning_rate", learning_rate)):
        if (isinstance(value, str) and value != "auto") or (value is None and name != "max_epochs"):
            none = ", None" if name == "max_epochs" else ""
            raise ValueError(f'{name} must be a number{none} or "auto", got {value!r}')
    number = _dtype(dtype)
    features = _n_features(n_features, n)
    rates = rates_for(place, kernel or Matern32(), n, d, 1 + n_probes)
    large = n >= LARGE
    given_steps = n_steps
    factor_last = n <= EXACT_POSTERIOR_UP_TO and solver == "auto" and gradient == "auto"
    factor_last = factor_last and 3 * dense_bytes(n, torch.float64) <= budget
    chosen, why = _solver(solver, gradient, n, d, n_probes, features, place, budget, rates)
    if gradient == "auto":
        gradient = "exact" if chosen.name == "cholesky" else "pathwise"
    if gradient == "exact" and chosen.name != "cholesky":
        raise ValueError(f'gradient="exact" needs solver="cholesky" or "auto", got {chosen.name!r}')
    exact = chosen.name == "cholesky"
    estimator = given
    if estimator is None:
        estimator = {"exact": Exact(), "standard": Standard(n_probes)}.get(gradient, Pathwise(n_probes, features))
    if init == "auto":
        sampled = SAMPLE_FROM <= n < LARGE and not exact and given_steps == "auto" and gradient == "pathwise"
        init = "subset" if large else "sample" if sampled else "ones"
    if isinstance(max_epochs, str):
        limited = not exact and (large or (chosen.name == "ap" and solver == "auto"))
        max_epochs = (100.0 if _near(chosen) else 10.0) if limited else None
    if isinstance(n_steps, str):
        n_steps = 30 if not exact and (large or init == "sample") else 200
    relative = learning_rate == "auto"
    if isinstance(learning_rate, str):
        learning_rate = 0.03 if large else 0.1
    stored = not exact and dense_bytes(n, number) <= budget / 3  # Cholesky keeps its factor, not H
    plan = Plan(
        device=place,
        dtype=torch.float64 if exact and dtype == "auto" else number,
        operator=_operator(place, number, stored, exact, kernel),
        solver=chosen,
        gradient=estimator,
        rule=StoppingRule(tol, max_epochs),
        n_steps=n_steps,
        learning_rate=learning_rate,
        init=init,
        n_neighbours=min(n, 10_000 if place.type == "cuda" else 1_000),
        n_features=features,
        memory_budget=budget,
        why=tuple(why),
        promote=dtype == "auto" and not exact,
        relative_steps=relative,
        settle=given_steps == "auto",
        exact_posterior=factor_last and not exact,
        sample_size=min(n, 10_000, max(2_000, n // SAMPLE_SHARE)) if init == "sample" else 0,
    )
    needs = training_bytes(plan, n, d)
    if needs > budget:
        raise MemoryError(_too_large(plan, n, needs, budget))
    return replace(plan, estimated_seconds=_seconds(plan, n, d, rates), estimated_bytes=needs)


# -- choices ---------------------------------------------------------------------------------------------------------
def _solver(
    solver: str | Solver,
    gradient: str,
    n: int,
    d: int,
    n_probes: int,
    features: int,
    place: torch.device,
    budget: int,
    rates: Rates,
) -> tuple[Solver, list[str]]:
    """The solver, and why."""
    why: list[str] = []
    if solver == "auto":
        fits = 3 * dense_bytes(n, torch.float64) + vector_bytes(n, d, n_probes, torch.float64) <= budget
        on_gpu = place.type == "cuda"
        cg = conjugate_gradients(n, d, 1 + n_probes, place, budget)
        if gradient == "exact":
            solver = "cholesky"
        elif gradient == "auto" and fits and (n <= EXACT_UP_TO_ON_GPU if on_gpu else n <= LARGE):
            direct = exact_seconds(rates, n, 100)
            iterative = factor_cg_seconds(rates, n, 100, features, cg.factor_after or 0)
            if on_gpu or n <= SMALL or direct <= CLEARLY * iterative:
                solver = "cholesky"
                why.append(f"Exact Cholesky: {n:,} points are few enough.")
        if solver == "auto":
            small = _near(cg) or (n < LARGE if on_gpu else cg.factor_after is not None)
            solver = "cg" if small else "ap"
            kind = "near neighbours" if _near(cg) else "a factor of low rank"
            kind = "a whole factor now and then" if cg.factor_after else kind
            why.append(
                f"Conjugate gradients with {kind} as their preconditioner, for {n:,} points."
                if small
                else f"Alternating projections, ten epochs a step, for {n:,} points."
            )
    if solver == "cg":
        return conjugate_gradients(n, d, 1 + n_probes, place, budget), why
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


def conjugate_gradients(n: int, d: int, columns: int, place: torch.device, budget: int) -> ConjugateGradients:
    """Conjugate gradients as they suit n points: a whole factor now and then where it fits, else one of low rank; near
    neighbours for maps.

    A factor costs n³/3 operations, an iteration 2n² for the product and 2n² for the factor, per column; on a GPU
    the factor is the cheaper of the two.
    """
    most = 3 * dense_bytes(n, torch.float64)  # H, the old and the new factor, should all have to be float64
    whole = most <= budget and n < LARGE
    if d <= MAP_INPUTS and not (whole and (place.type == "cuda" or n < NEAR_FROM)):
        return ConjugateGradients(RANK_BESIDE, pivot_every=20, neighbours=NEAR)
    if whole:
        after = n // 300 if place.type == "cuda" else n // (12 * columns)
        return ConjugateGradients(0, factor_after=max(2, after))
    return ConjugateGradients(max(100, min(1000, n // 10)), pivot_every=20)


def _near(solver: Solver) -> bool:
    return isinstance(solver, ConjugateGradients) and solver.neighbours > 0


def _operator(place: torch.device, number: torch.dtype, stored: bool, exact: bool, kernel: Kernel | None) -> str:
    """Which operator: the fused one where it exists and something is multiplied."""
    fusable = kernel is None or kernel in KERNELS.values()
    if not exact and place.type == "cuda" and number == torch.float32 and fusable and has_triton():
        return "fused"
    return "dense" if stored else "chunked"


def operator_for(plan: Plan, n: int, dtype: torch.dtype) -> str:
    """The plan's operator, or one that stores nothing where H in another dtype would not fit."""
    stored = plan.operator == "dense"
    return "chunked" if stored and dense_bytes(n, dtype) > plan.memory_budget / 2 else plan.operator


def _block_size(n: int, place: torch.device, budget: int) -> int:
    """Rows per block of AP: 1,000, or fewer where their factors would not fit.

    On a CPU more, √(900 n), so that the factors cost about as much as five epochs.
    """
    most = 1000 if place.type == "cuda" or n >= LARGE else max(1000, int((900 * n) ** 0.5) // 8 * 8)
    return min(most, _largest_block(n, budget))


def _largest_block(n: int, budget: int) -> int:
    """Rows per block of AP whose factors, in float64, take a third of the memory, as do a block and its factor."""
    return max(64, min(budget // (3 * 8 * n), math.isqrt(budget // (6 * 8))) // 8 * 8)


# -- estimates -------------------------------------------------------------------------------------------------------
def _seconds(plan: Plan, n: int, d: int, rates: Rates) -> float:
    """The whole training, its start and its last solve included; a training that settles may take less."""
    steps, features, solver = plan.n_steps, plan.n_features, plan.solver
    if solver.name == "cholesky":
        return exact_seconds(rates, n, steps)
    slower = 2.0 if plan.dtype == torch.float64 else 1.0
    stored = plan.operator == "dense"
    after = solver.factor_after if isinstance(solver, ConjugateGradients) else None
    if after is not None:
        seconds = factor_cg_seconds(rates, n, steps, features, after)
    elif _near(solver):
        usual = NEAR_EPOCHS if d <= MAP_INPUTS else NEAR_EPOCHS_OF_MANY_INPUTS
        epochs = min(usual, plan.rule.max_epochs or usual)
        seconds = near_cg_seconds(rates, n, steps, features, epochs, stored=stored)
    else:
        usual = {"ap": AP_EPOCHS, "cg": CG_EPOCHS}.get(solver.name, 100)
        epochs = min(usual, plan.rule.max_epochs or usual)
        seconds = epochs_seconds(rates, n, steps, features, epochs, stored=stored)
    if plan.init == "sample":
        seconds += factor_cg_seconds(rates, plan.sample_size, 100, features, 1 + (after or 0))
    seconds *= slower
    if plan.init == "subset":
        seconds += 10 * exact_seconds(rates, plan.n_neighbours, 100)
    return seconds


def _too_large(plan: Plan, n: int, needs: int, budget: int) -> str:
    exact = plan.solver.name == "cholesky"
    rank = plan.solver.preconditioner_rank if isinstance(plan.solver, ConjugateGradients) else 0
    ranks = "a smaller preconditioner_rank or " if rank > plan.gradient.n_probes else ""
    remedy = 'use solver="cg" or "ap"' if exact else f"use {ranks}fewer n_probes"
    return (
        f"solver={plan.solver.name!r} needs about {needs / 2**30:.1f} GiB for {n:,} points and the memory budget is "
        f"{budget / 2**30:.1f} GiB: {remedy}, or raise memory_budget"
    )


def _duration(seconds: float) -> str:
    """Seconds in the unit that people would say them in."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (float("inf"), "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.2g} {unit}" if seconds / size < 10 else f"{seconds / size:.0f} {unit}"
    raise AssertionError(seconds)


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    if dtype == "auto":
        return torch.float32
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f'dtype must be "auto", "float32" or "float64", got {dtype!r}')
    return DTYPES[dtype]


def _n_features(n_features: int | str, n: int) -> int:
    if n_features == "auto":
        return min(16_000, max(2_000, n // 8 * 2))
    if isinstance(n_features, bool) or not isinstance(n_features, numbers.Integral) or n_features < 2 or n_features % 2:
        raise ValueError(f'n_features must be "auto" or an even integer of at least 2, got {n_features!r}')
    return int(n_features)
