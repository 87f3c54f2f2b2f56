"""What "auto" means: device, dtype, operator, solver, estimator, budget and start, decided once before training.

- the GPU if there is one;
- of exact Cholesky training and conjugate gradients, what should be faster by the rates of this machine
  (:mod:`warmgp.planning.costs`), while the factor of H fits the memory; alternating projections with ten epochs a
  step where it does not, and from 50,000 points, as the paper does;
- with up to three inputs (maps) conjugate gradients with near neighbours instead, and on a CPU from 6,000 points in the
  place of whole factors;
- float32, watched against float64 and left for it when they disagree (:mod:`warmgp.training.precision`); exact training
  is float64 always;
- H is stored when it fits a third of the memory budget, else recomputed in tiles; in float32 on a GPU it is evaluated
  inside the products (fused), which is as fast as reading it;
- Adam's steps are relative for large hyperparameters, and end when the likelihood is expected to rise no more;
- from 6,000 points training starts on a random sample of a fifth of them; from 50,000 on neighbourhoods;
- up to 2,500 points the last solve is by a factor of H, and variances are exact;
- random features: a quarter as many as points, between 2,000 (8,000 for Matérn-1/2 with one input) and 16,000: m of
  them cost about m/n of an epoch.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace

import torch

from warmgp.checks import is_number
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.kernels import Kernel, Matern32
from warmgp.operators import TRITON_OPERATORS, dense_bytes, why_not_fused
from warmgp.planning.costs import (
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
from warmgp.planning.devices import available_memory, resolve_device
from warmgp.planning.memory import training_bytes
from warmgp.planning.solver_choice import LARGE, MAP_INPUTS, choose_solver, conjugate_gradients, has_neighbours
from warmgp.solvers import ConjugateGradients, Solver, StoppingRule

SAMPLE_FROM = 6_000
SAMPLE_SHARE = 5
EXACT_POSTERIOR_UP_TO = 2_500
"""Up to here variances from a factor of H, n² operations a new point, are cheap enough to have them without the error
of 64 samples."""

MOST_BYTES = 2**53
"""More than there is anywhere."""

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
        See :class:`warmgp.training.state.TrainingOptions`.
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
    budget = bytes_of(memory_budget) if memory_budget else available_memory(place)
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
    features = _n_features(n_features, n, d, kernel)
    rates = rates_for(place, kernel or Matern32(), n, d, 1 + n_probes)
    large = n >= LARGE
    given_steps = n_steps
    factor_last = n <= EXACT_POSTERIOR_UP_TO and solver == "auto" and gradient == "auto"
    factor_last = factor_last and 3 * dense_bytes(n, torch.float64) <= budget
    chosen, why = choose_solver(solver, gradient, n, d, n_probes, features, place, budget, rates, kernel)
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
        max_epochs = (100.0 if has_neighbours(chosen) else 10.0) if limited else None
    if isinstance(n_steps, str):
        n_steps = 30 if not exact and (large or init == "sample") else 200
    relative = learning_rate == "auto"
    if isinstance(learning_rate, str):
        learning_rate = 0.03 if large else 0.1
    stored = not exact and dense_bytes(n, number) <= budget / 3  # Cholesky keeps its factor, not H
    plan = Plan(
        device=place,
        dtype=torch.float64 if exact and dtype == "auto" else number,
        operator=_operator(place, number, stored, exact, kernel or Matern32(), n, d),
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
    sampled_by = conjugate_gradients(plan.sample_size, d, 1 + n_probes, place, budget, kernel)
    needs = training_bytes(plan, n, d, sampled_by if init == "sample" else None)
    if needs > budget:
        raise MemoryError(_too_large(plan, n, needs, budget))
    return replace(plan, estimated_seconds=_seconds(plan, n, d, rates), estimated_bytes=needs)


def bytes_of(budget: float) -> int:
    """A number of bytes as a file may hold it."""
    return int(min(budget, MOST_BYTES))


# -- choices ---------------------------------------------------------------------------------------------------------
def _operator(
    place: torch.device, number: torch.dtype, stored: bool, exact: bool, kernel: Kernel, n: int, d: int
) -> str:
    """Which operator: the fused one where it exists and something is multiplied."""
    on_gpu = place.type == "cuda" and number == torch.float32
    if not exact and on_gpu and not why_not_fused(kernel, place, number, n, d):
        return "fused"
    return "dense" if stored else "chunked"


def operator_for(plan: Plan, n: int, dtype: torch.dtype) -> str:
    """The plan's operator, or one that stores nothing where H in another dtype would not fit."""
    stored = plan.operator == "dense"
    return "chunked" if stored and dense_bytes(n, dtype) > plan.memory_budget / 2 else plan.operator


def moved_to(plan: Plan, device: torch.device) -> Plan:
    """The plan on another device, with an operator that runs there."""
    elsewhere = plan.operator in TRITON_OPERATORS and device.type != "cuda"
    return replace(plan, device=device, operator="chunked" if elsewhere else plan.operator)


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
    elif has_neighbours(solver):
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


def _n_features(n_features: int | str, n: int, d: int, kernel: Kernel | None) -> int:
    if n_features == "auto":
        return min(16_000, max((kernel or Matern32()).least_features(d), n // 8 * 2))
    if isinstance(n_features, bool) or not isinstance(n_features, numbers.Integral) or n_features < 2 or n_features % 2:
        raise ValueError(f'n_features must be "auto" or an even integer of at least 2, got {n_features!r}')
    return int(n_features)
