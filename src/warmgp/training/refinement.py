"""Iterative refinement: a solution to float64's precision from residuals in float64 and corrections in float32.

    r = b − H v  (float64),   H δ ≈ r  (float32, to a tenth),   v ← v + δ

A correction need not be precise, so all iterations of a solver run in float32, where they are many times faster on most
devices; only one product a round is in float64. Each round leaves about a tenth of the residual before it.
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

CORRECTION = StoppingRule(0.1, 50.0)
"""How well a correction is solved, and within how many epochs."""

LEAST_GAIN = 0.5
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
        r = b - double.matmul(v)
        overhead += 1.0
        before, now = max(norms), summarise(torch.linalg.vector_norm(r, dim=0))
        if max(now) < before:
            best, norms = v, now
        if rule.met(now):
            reason = "converged"
            break
        if left == 0 or not max(now) <= LEAST_GAIN * before:
            break
        size = torch.linalg.vector_norm(r, dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        found = solver.solve(single, (r / size).to(single.dtype), rule=CORRECTION, generator=generator, state=state)
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
