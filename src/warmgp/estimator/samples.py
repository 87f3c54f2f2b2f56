"""New posterior functions for a fitted model: a draw of the prior and one solve."""

from __future__ import annotations

import torch

from warmgp.checks import warn_user
from warmgp.estimator.convergence import ConvergenceWarning, inexact, unsolved
from warmgp.gradient import Pathwise
from warmgp.operators import make_operator
from warmgp.planning.plan import Plan
from warmgp.planning.planner import operator_for
from warmgp.posterior import Posterior
from warmgp.training.accuracy import SAMPLES, accuracy
from warmgp.training.last_solve import last_solve
from warmgp.training.problem import Problem
from warmgp.training.state import SAMPLES_SHARE, TrainingOptions


def new_samples(old: Posterior, plan: Plan, options: TrainingOptions, n_samples: int, seed: int) -> Posterior:
    """Returns the posterior with new functions in the place of its own; warns where their solve fell short."""
    generator = torch.Generator().manual_seed(seed)
    kind = operator_for(plan, len(old.x), old.x.dtype)
    operator = make_operator(kind, old.x, old.kernel, old.theta, rows=old.noise)
    pathwise = Pathwise(n_samples, plan.n_features)
    draw = pathwise.draw(operator, generator)
    targets = pathwise.targets(operator, old.solution[:, 0], draw)[:, 1:]  # the mean is solved already
    solved = last_solve(operator, targets, None, options.for_targets(1), generator, share=SAMPLES_SHARE)
    functions = draw.functions
    assert functions is not None
    own = old.solution[:, : old.n_targets]
    solution = torch.cat([own, solved.solution], 1)
    trend = None if old.trend is None else old.trend.with_functions(old.x, solved.solution)
    new = Posterior(
        old.x, old.kernel, old.theta, solution, functions, trend=trend, noise=old.noise, n_targets=old.n_targets
    )
    y = operator.matmul(own)
    found = accuracy(new, Problem(operator, y if old.n_targets > 1 else y[:, 0]), draw)
    if not solved.converged:
        warn_user(unsolved(solved, plan, found, ("first sample", "other samples")), ConvergenceWarning)
    elif found.samples > SAMPLES:
        warn_user(inexact(found, plan, operator.dtype), ConvergenceWarning)
    return new
