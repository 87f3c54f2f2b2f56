"""A solve leaves nothing behind in circles: what it held goes when it returns, not when garbage is collected.

On a GPU a recorded graph that is destroyed while another is being recorded would spoil that one, and n × (1 + s)
tensors would wait for a collection that may not come.
"""

from __future__ import annotations

import gc

import pytest
import torch

from warmgp import (
    AlternatingProjections,
    Cholesky,
    ChunkedOperator,
    ConjugateGradients,
    Hyperparameters,
    Matern32,
    Pathwise,
    Solver,
    StochasticGradientDescent,
    StoppingRule,
    TrainingOptions,
    train,
)

SOLVERS = [
    Cholesky(),
    ConjugateGradients(10),
    ConjugateGradients(5, neighbours=4),
    ConjugateGradients(0, factor_after=1),
    AlternatingProjections(20),
    AlternatingProjections(20, on_device=True),
    StochasticGradientDescent(20),
]


def garbage_of(work: object) -> list[object]:
    """Tensors that only a collection of garbage finds after the work is done."""
    gc.collect()
    gc.freeze()  # all that is there already need not be looked at again
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()  # type: ignore[operator]
        gc.collect()
        return [thing for thing in gc.garbage if isinstance(thing, torch.Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_a_solve_leaves_no_circle(solver: Solver) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, dtype=torch.float64, generator=generator)
    operator = ChunkedOperator(x, Matern32(), Hyperparameters.ones(2))
    b = torch.randn(60, 3, dtype=torch.float64, generator=generator)
    rule = StoppingRule(1e-3, 20.0)
    assert garbage_of(lambda: solver.solve(operator, b, rule=rule, generator=generator)) == []


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_a_training_leaves_no_circle(solver: Solver) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, dtype=torch.float64, generator=generator)
    options = TrainingOptions(solver, Pathwise(3, 20), rule=StoppingRule(0.01, 20.0), n_steps=2)
    operator = ChunkedOperator(x, Matern32(), Hyperparameters.ones(2))
    assert garbage_of(lambda: train(operator, x.sum(1), options, generator=generator)) == []


def test_a_circle_is_seen() -> None:
    def work() -> None:
        circle: list[object] = [torch.ones(3)]
        circle.append(circle)

    assert len(garbage_of(work)) == 1
