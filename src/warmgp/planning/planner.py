"""What "auto" means: device, dtype, operator, solver, estimator, budget and start, decided once before training.

- the GPU if there is one;
- exact Cholesky training where H fits the memory, up to 500 points, on a GPU up to 8,000, and on a CPU where it should
  be clearly faster by the rates of this machine (:mod:`warmgp.planning.costs`);
- conjugate gradients with a whole factor now and then while that fits the memory and is not clearly dearer than
  recombined projections (:mod:`warmgp.solvers.rap`), which are for all larger data;
- with up to three inputs (maps) hyperparameters come from the near-neighbour likelihood above 2,500 points (not for
  RBF), and the one solve is by recombined projections; where steps or another start were asked for, conjugate gradients
  have near neighbours where no whole factor fits, and on a CPU from 6,000 points in the place of whole factors;
- float32, watched against float64 and left for it when they disagree (:mod:`warmgp.training.precision`); exact training
  is float64 always;
- H is stored where it fits a third of the memory budget, else recomputed in tiles; in float32 on a GPU it is evaluated
  inside the products (fused), which is as fast as reading it;
- Adam's steps are relative for large hyperparameters, and end when the likelihood is expected to rise no more;
- up to 6,000 points with more than three inputs, up to 2,500 with fewer, training starts where climbs of the likelihood
  itself end, of 1,000 points at most (:mod:`warmgp.training.exact_climb`);
- from 6,000 points training starts on a random sample of a fifth of them; with recombined projections groups of near
  points come next, and steps on all where they are cheap (:mod:`warmgp.planning.starts`);
- up to 2,500 points the last solve is by a factor of H, and variances are exact;
- random features: a quarter as many as points, between 2,000 (8,000 for Matérn-1/2 with one input) and 16,000: m of
  them cost about m/n of an epoch;
- on a CPU one thread for up to 512 points, above that torch's threads, up to 8,192 points fewer while other
  programs keep cores busy.

Each is one function, in :mod:`warmgp.planning.decisions`, :mod:`warmgp.planning.solver_choice` and
:mod:`warmgp.planning.threads`; here they are put together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch

from warmgp.kernels import Kernel
from warmgp.operators import TRITON_OPERATORS
from warmgp.planning import decisions
from warmgp.planning.costs import choice_seconds, for_inputs, rates_for
from warmgp.planning.estimates import check_memory, training_seconds
from warmgp.planning.memory import H_fits, peak_bytes
from warmgp.planning.plan import Plan as Plan
from warmgp.planning.request import Request, Settings
from warmgp.planning.sharing import choose_blocks
from warmgp.planning.solver_choice import choose_solver
from warmgp.planning.starts import (
    choose_climb,
    choose_factor_last,
    choose_first_epochs,
    choose_local_start,
    choose_signal_ratio,
)
from warmgp.planning.threads import choose_threads
from warmgp.planning.time_limit import within_time

Value = TypeVar("Value")


def make_plan(n: int, d: int = 10, *, kernel: str | Kernel | None = None, **settings: Any) -> Plan:
    """Decides every "auto" for n training points of d inputs, and refuses what cannot fit.

    Parameters
    ----------
    n, d : int
        The numbers of training points and of inputs.
    kernel : str, Kernel or None
        The kernel; None for one that the data choose, as ``GPRegressor`` does, planned for as Matérn-3/2.
    **settings
        The fields of :class:`warmgp.planning.request.Settings`, named as in ``GPRegressor``: solver, gradient,
        n_probes, n_features, tol, max_epochs, n_steps, learning_rate, init, device, dtype, memory_budget, time_limit,
        trend.

    Raises
    ------
    ValueError
        For a setting that no data could make right, naming it and what is accepted.
    MemoryError
        For training that would not fit ``memory_budget``, before anything is computed.
    """
    return plan_for(Request.of(n, d, Settings(kernel="auto" if kernel is None else kernel, **settings)))


def plan_for(request: Request) -> Plan:
    """Decides everything about a training; refuses what cannot fit the memory, and fits itself into a time limit."""
    return within_time(request, _planned)


def _planned(request: Request) -> Plan:
    """Decides everything about a training of all points, one decision after the other."""
    why: list[str] = []

    def decided(decision: tuple[Value, str]) -> Value:
        """Returns what was decided, and keeps the reason."""
        if decision[1]:
            why.append(decision[1])
        return decision[0]

    threads = decided(choose_threads(request.device, request.n**2))
    rates = rates_for(request, threads)
    chooses = decided(decisions.choose_kernel_first(request))
    n_features = decided(decisions.choose_features(request))
    solver = decided(choose_solver(request, n_features, rates))
    solver = decided(choose_blocks(request, solver))
    gradient = decided(decisions.choose_gradient(request, solver, n_features))
    init = decided(decisions.choose_start(request, solver, gradient))
    local = decided(choose_local_start(request, solver, init))
    near = decided(decisions.choose_near_start(request, init))
    climb = decided(choose_climb(request, init))
    sample_size = decided(decisions.choose_sample_size(request, init, local))
    dtype = decided(decisions.choose_dtype(request, solver))
    plan = Plan(
        device=request.device,
        dtype=dtype,
        operator=decided(decisions.choose_operator(request, solver, dtype)),
        solver=solver,
        gradient=gradient,
        rule=decided(decisions.choose_rule(request, solver)),
        n_steps=decided(decisions.choose_steps(request, solver, init, local)),
        learning_rate=decided(decisions.choose_learning_rate(request, init)),
        init=init,
        neighbourhood_size=decided(decisions.choose_neighbourhood_size(request)),
        n_features=n_features,
        memory_budget=request.memory_budget,
        promote=decided(decisions.choose_promotion(request, dtype)),
        relative_steps=decided(decisions.choose_relative_steps(request)),
        settle=decided(decisions.choose_settling(request)),
        exact_posterior=decided(decisions.choose_exact_posterior(request, solver)),
        factor_last=decided(choose_factor_last(request, solver)),
        sample_size=sample_size,
        start_solver=decided(decisions.choose_start_solver(request, sample_size, local)),
        local=local,
        near=near,
        climb=climb,
        first_epochs=decided(choose_first_epochs(request, solver)),
        last_epochs=decided(decisions.choose_last_epochs(request, solver)),
        signal_ratio=decided(choose_signal_ratio(request, solver, dtype)),
        threads=threads,
        trend_terms=request.trend_terms,
    )
    needs = peak_bytes(plan, request.n, request.d, request.processes)
    check_memory(plan, request.n, needs)
    on_gpu = request.device.type == "cuda"
    wide = for_inputs(rates, request.d, on_gpu=on_gpu)
    seconds = training_seconds(plan, request.n, request.d, wide, request.processes)
    if chooses:
        seconds += choice_seconds(rates, request.n, is_map=request.is_map, on_gpu=on_gpu)
    return replace(plan, why=tuple(why), estimated_seconds=seconds, estimated_bytes=needs)


# -- reading a plan ----------------------------------------------------------------------------------------------------
def operator_for(plan: Plan, n: int, dtype: torch.dtype) -> str:
    """Returns the plan's operator, or one that stores nothing where H in another dtype would not fit."""
    stored = plan.operator == "dense" and dtype != plan.dtype
    return "chunked" if stored and not H_fits(n, dtype, plan.memory_budget) else plan.operator


def plan_read_on(plan: Plan, device: torch.device) -> Plan:
    """Returns what a plan that was made elsewhere comes to on this device, with an operator that runs there."""
    elsewhere = plan.operator in TRITON_OPERATORS and device.type != "cuda"
    return replace(plan, device=device, operator="chunked" if elsewhere else plan.operator)
