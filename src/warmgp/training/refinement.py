"""Iterative refinement: a solution to float64's precision from residuals in float64 and corrections in float32.

    r = b − H v  (float64),   H δ ≈ r  (float32, to a tenth or more),   v ← v + δ

A correction need not be precise, so all iterations of a solver run in float32, where they are many times faster on most
devices; only one product a round is in float64. Each round leaves what the rule needs, but no less than a tenth of the
residual before it.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.solvers import Solver, SolveResult, StoppingRule
from warmgp.solvers.progress import normalise, summarise

ROUNDS = 8
"""The most corrections."""

FINEST, COARSEST, EPOCHS = 0.1, 0.5, 30.0
"""The relative residuals between which a correction is solved, and the most epochs that it takes."""

MARGIN = 0.7
"""The share of what would do that a correction aims for."""

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

    ``double`` and ``single`` are the same H in both precisions, ``targets`` and ``start`` are float64. ``state`` is the
    solver's in float32. Where corrections are of no use, the result has not converged, and says "stagnated".
    """
    began = time.perf_counter()
    b, scale = normalise(targets)
    v = best = start / scale
    epochs, overhead, iterations = 0.0, 0.0, 0
    norms = (float("inf"), float("inf"))  # of the best
    reason = "stagnated"
    for left in reversed(range(ROUNDS + 1)):
        r = double.matmul(v)
        torch.sub(b, r, out=r)
        overhead += 1.0
        before, now = max(norms), summarise(torch.linalg.vector_norm(r, dim=0))
        if max(now) < before:
            best, norms = v, now
        if rule.met(now):
            reason = "converged"
            break
        if left == 0 or not max(now) <= LEAST_GAIN * before or not rule.in_time(0.0):
            break
        size = torch.linalg.vector_norm(r, dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        enough = _correction(rule, now)
        found = solver.solve(single, (r / size).to(single.dtype), rule=enough, generator=generator, state=state)
        state, iterations = found.state, iterations + found.iterations
        epochs, overhead = epochs + found.iteration_epochs, overhead + found.overhead_epochs
        v = v + found.solution.double() * size
    return SolveResult(
        solution=best * scale,
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


def _correction(rule: StoppingRule, norms: tuple[float, float]) -> StoppingRule:
    """Returns how well the correction of these residuals has to be solved to meet the rule."""
    wanted = rule.tol, rule.probes_tol or rule.tol
    mean, probes = (
        min(COARSEST, max(FINEST, MARGIN * tol / max(norm, tol)))
        for tol, norm in zip(wanted, norms, strict=True)
    )  # fmt: skip
    return StoppingRule(mean, EPOCHS, probes, rule.until)
