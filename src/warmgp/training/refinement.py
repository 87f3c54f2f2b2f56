"""Iterative refinement: a solution to float64's precision from residuals in float64 and corrections in float32.

    r = b − H v  (float64),   H δ ≈ r  (float32, to a tenth or more),   v ← v + δ

A correction need not be precise, so all iterations of a solver run in float32, where they are many times faster on most
devices; only one product a round is in float64. Each round leaves what the rule needs, but no less than a tenth of the
residual before it. Once the probes have what they need the targets alone are corrected: a product of one column in
float64 takes half as long on a CPU as one of 65, and a sweep of a solver two thirds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.operators.part import Part
from warmgp.solvers import Solver, SolveResult, StoppingRule
from warmgp.solvers.progress import summarise

ROUNDS = 8
"""The most corrections."""

FINEST, COARSEST, EPOCHS = 0.1, 0.5, 30.0
"""The relative residuals between which a correction is solved, and the most epochs that it takes."""

ROWS_AT_ONCE = 2**24
"""Numbers of a product in float64 that are held at once."""

MARGIN = 0.7
"""The share of what would do that a correction aims for."""

AT_ONCE, FEWEST_COLUMNS = 2**25, 33
"""Numbers of a residual that are corrected at once, but no fewer columns than these: the solver holds ten times as
many, and a product of few columns takes hardly less time than one of many."""

LEAST_GAIN = 0.7
"""The share of its residual above which a round was in vain: float32 is then of no use for these systems."""


def refined(
    double: KernelOperator,
    single: KernelOperator,
    targets: Tensor,
    start: Tensor,
    rule: StoppingRule,
    solver: Solver,
    *,
    generator: torch.Generator | None = None,
    state: Any = None,
) -> SolveResult:
    """Returns the solution of H v = b in float64, as far as corrections in float32 get it to the rule.

    ``double`` and ``single`` are the same H in both precisions, ``targets`` and ``start`` are float64; the solution is
    written over ``start``, since millions of points leave no room for copies. Of several processes each has its own
    rows of them. ``state`` is the solver's in float32.
    Where corrections are of no use, the result has not converged, and says "stagnated".
    """
    began = time.perf_counter()
    part = double.part
    scale = _or_one(part.norms(targets))
    v, last = start, None  # the last correction, with columns of norm one, and their norms
    epochs, overhead, iterations = 0.0, 0.0, 0
    norms = (float("inf"), float("inf"))  # of the best
    reason = "stagnated"
    sizes = torch.full_like(scale, float("inf"))  # what is left of each column
    columns = v.shape[1]  # that are corrected
    for left in reversed(range(ROUNDS + 1)):
        r, sizes[:columns] = _residual(part, v[:, :columns].contiguous(), targets[:, :columns], single.dtype)
        overhead += 1.0
        before, now = _worst(norms, rule), summarise(sizes / scale, rule.n_targets)
        if _worst(now, rule) < before:
            norms = now
        elif last is not None:  # back to the best
            _add(v, -1.0, *last)
        if rule.met(now):
            reason = "converged"
            break
        late = rule.until is not None and not part.agreed(rule.in_time(0.0))
        if left == 0 or not _worst(now, rule) <= LEAST_GAIN * before or late:
            break
        if columns > rule.n_targets and now[1] <= rule.probes:
            columns, state = rule.n_targets, None  # which may be of all columns
            r = r[:, :columns].contiguous()
        enough = replace(_correction(rule, now), n_targets=rule.n_targets)
        state, more, swept, beside = _corrected(single, r, enough, solver, generator, state)
        iterations, epochs, overhead = iterations + more, epochs + swept, overhead + beside
        if not part.all_finite(r):
            break
        last = r, _or_one(sizes[:columns])
        _add(v, 1.0, *last)
    return SolveResult(
        solution=v,
        residual_mean=norms[0],
        residual_probes=norms[1],
        residual_checked=True,
        iterations=iterations,
        iteration_epochs=epochs,
        overhead_epochs=overhead,
        converged=reason == "converged",
        stop_reason=reason,
        seconds=time.perf_counter() - began,
    )


def _corrected(
    single: KernelOperator,
    r: Tensor,
    rule: StoppingRule,
    solver: Solver,
    generator: torch.Generator | None,
    state: Any,
) -> tuple[Any, int, float, float]:
    """Solves for the columns of r in float32, some at a time, into the memory of r; returns the solver's state, and the
    iterations, the epochs and those beside iterations that it took."""
    groups, done = r.split(columns_at_once(single.n, r.shape[1]), 1), 0
    iterations, epochs, overhead = 0, 0.0, 0.0
    for some in groups:
        first = max(1, min(some.shape[1], rule.n_targets - done))  # of the targets' systems; else any one
        own = replace(rule, n_targets=first)
        found = solver.solve(single, some.contiguous(), rule=own, generator=generator, state=state)
        done += some.shape[1]
        state = found.state if len(groups) == 1 else None  # which may be of as many columns
        iterations += found.iterations
        epochs += found.iteration_epochs * some.shape[1] / r.shape[1]
        overhead += found.overhead_epochs * some.shape[1] / r.shape[1]
        some.copy_(found.solution)
    return state, iterations, epochs, overhead


def columns_at_once(n: int, columns: int) -> int:
    """Returns how many of the columns are corrected at once, in groups of the same size."""
    most = min(columns, max(FEWEST_COLUMNS, AT_ONCE // n))
    return -(-columns // -(-columns // most))


def _worst(norms: tuple[float, float], rule: StoppingRule) -> float:
    """Returns the larger of two relative residuals in units of what the rule allows each."""
    return max(norms[0] / rule.tol, norms[1] / rule.probes)


def _residual(part: Part, v: Tensor, targets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns b − H v, computed in float64 and kept in another dtype with columns of norm one, and their norms."""
    r, squares = torch.empty(v.shape, dtype=dtype, device=v.device), v.new_zeros(v.shape[1])
    parts = _parts(v) if part.alone else [slice(0, len(v))]  # of several processes each has few rows
    for rows in parts:
        product = part.matmul(v) if len(parts) == 1 else part.operator.rows_matmul(rows, v)
        left = torch.sub(targets[rows], product, out=product)
        squares += left.square().sum(0)
        r[rows] = left
    size = part.sum(squares).sqrt()
    return r.div_(_or_one(size)), size


def _add(v: Tensor, sign: float, correction: Tensor, size: Tensor) -> None:
    """Adds the columns of a correction, times their norms, to the first columns of v in place."""
    for rows in _parts(v):
        v[rows, : correction.shape[1]] += correction[rows].double() * (sign * size)


def _parts(v: Tensor) -> list[slice]:
    """Cuts the rows of v into parts that may be copied in float64."""
    return list(ranges(len(v), max(1, ROWS_AT_ONCE // v.shape[1])))


def _or_one(norms: Tensor) -> Tensor:
    """Returns norms that can be divided by: 1 where one is zero."""
    return torch.where(norms > 0, norms, 1.0)


def _correction(rule: StoppingRule, norms: tuple[float, float]) -> StoppingRule:
    """Returns how well the correction of these residuals has to be solved to meet the rule."""
    wanted = (rule.tol, norms[0]), (rule.probes, norms[1])
    mean, probes = (min(COARSEST, max(FINEST, MARGIN * tol / max(norm, tol))) for tol, norm in wanted)
    return StoppingRule(mean, EPOCHS, probes, rule.until)
