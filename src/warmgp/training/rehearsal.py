"""Kernels of a GPU compiled before a training needs them, side by side, while it starts on part of the data.

On a machine that has seen neither the kernel nor the number of inputs, the first fit of 41,000 points spent 6.6 of its
15 s in compilers, one after the other (one H200).
"""

from __future__ import annotations

import logging

import torch

from warmgp.hyperparameters import Hyperparameters
from warmgp.training.problem import Problem
from warmgp.training.state import TrainingOptions

logger = logging.getLogger(__name__)

PREDICTED = 1_024
"""Points that predictions are rehearsed for."""


def rehearse(problem: Problem, options: TrainingOptions, theta: Hyperparameters) -> None:
    """Begins to compile what steps at θ, the last solve and predictions will start on a GPU, and does not wait for it.

    It asks H for all of that, without an answer, in the precision that training begins in: what float64 takes over
    later is compiled then. Which kernels are needed depends a little on θ. Where nothing is compiled it does nothing,
    nor in one of several processes; what fails here is logged, and told where it matters.
    """
    operator = problem.operator
    if not operator.uses_triton or operator.device.type != "cuda" or not operator.part.alone:
        return
    from warmgp.operators.triton.launch import compile_ahead

    try:
        compile_ahead(lambda: ask(problem, options, theta))
    except Exception as error:
        logger.info("kernels are compiled when they are first started: %s", error)


def ask(problem: Problem, options: TrainingOptions, theta: Hyperparameters) -> None:
    """Asks H at θ for what a training in its precision will."""
    operator = problem.operator.at(theta)  # whose counts of evaluated entries nobody reads
    probes = options.gradient.n_probes or options.n_samples
    V = torch.zeros(operator.n, problem.n_targets + probes, dtype=operator.dtype, device=operator.device)
    options.solver.rehearse(operator, V)
    if options.n_steps:
        options.gradient.rehearse(operator, V)
    operator.cross_matmul(operator.x[:PREDICTED], V)
