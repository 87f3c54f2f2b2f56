"""Kernels of a GPU compiled before a training needs them, side by side, while it starts on part of the data.

On a machine that has seen neither the kernel nor the number of inputs, the first fit of 41,000 points spent 6.6 of its
15 s in compilers, one after the other (one H200).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from warmgp.gradient.pathwise import quadratic_weights
from warmgp.hyperparameters import Hyperparameters
from warmgp.training.problem import Problem
from warmgp.training.state import TrainingOptions

PREDICTED = 1_024
"""Points that predictions are rehearsed for."""


@contextlib.contextmanager
def compiled_ahead(problem: Problem, options: TrainingOptions) -> Iterator[Callable[[Hyperparameters], None]]:
    """Gives a function that has the kernels of a training at θ compiled, beside whatever else its block does; the end
    of the block waits for them. It does nothing where kernels are not compiled."""
    operator = problem.operator
    if not operator.uses_triton or operator.device.type != "cuda" or not operator.part.alone:
        yield lambda theta: None
        return
    from warmgp.operators.triton.launch import compiling_ahead

    with compiling_ahead():
        yield lambda theta: _rehearse(problem, options, theta)


def _rehearse(problem: Problem, options: TrainingOptions, theta: Hyperparameters) -> None:
    """Asks H at θ for all that steps, the last solve and predictions will, without an answer."""
    from warmgp.operators.triton.launch import rehearsal

    operator = problem.operator.at(theta)  # whose counts of evaluated entries nobody reads
    probes = options.gradient.n_probes or options.n_samples
    with rehearsal():
        V = torch.zeros(operator.n, problem.n_targets + probes, dtype=operator.dtype, device=operator.device)
        options.solver.rehearse(operator, V)
        if options.n_steps:
            operator.quadratic_gradient(V, V, quadratic_weights(probes, problem.n_targets))
        operator.cross_matmul(operator.x[:PREDICTED], V)
