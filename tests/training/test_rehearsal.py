"""What a rehearsal has compiled is what a training then starts: see ``test_fused.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fused_tools import DEVICE, columns, theta_of
from gp_truth import toy
from warmgp import ConjugateGradients, Pathwise, RecombinedProjections, Solver
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator, has_triton
from warmgp.solvers import StoppingRule
from warmgp.training.problem import Problem
from warmgp.training.rehearsal import _rehearse, compiled_ahead
from warmgp.training.state import TrainingOptions

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux", allow_module_level=True)

from warmgp.operators.triton import launch
from warmgp.operators.triton.fused import FusedOperator


def asked(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> tuple[Any, ...]:
    """What a kernel is compiled for, but for the alignment of its arguments."""
    kinds = tuple(one.dtype if isinstance(one, torch.Tensor) else type(one) for one in arguments)
    return (kernel.fn.__name__, *kinds, *sorted((name, str(value)) for name, value in options.items()))


@pytest.mark.parametrize("solver", [RecombinedProjections(64, together=1), ConjugateGradients()])
@pytest.mark.parametrize(("kernel", "d"), [("matern12", 2), ("matern32", 5)])
def test_all_that_a_step_starts_was_compiled_before(
    solver: Solver, kernel: str, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the solve and its gradient, and of predictions. Nothing is started before that."""
    x = toy(130, d)[0].float().to(DEVICE)
    operator = FusedOperator(x, get_kernel(kernel), theta_of(d))
    options = TrainingOptions(solver, Pathwise(16, 32))
    compiled: set[Any] = set()
    started: set[Any] = set()
    real = launch.start_kernel
    monkeypatch.setattr(launch, "compile_kernel", lambda *a, **o: compiled.add(asked(*a, **o)))
    monkeypatch.setattr(launch, "start_kernel", lambda *a, **o: (started.add(asked(*a, **o)), real(*a, **o))[1])
    _rehearse(Problem(operator, columns(130, 1)[:, 0].to(DEVICE)), options, operator.theta)
    assert compiled and not started
    V = columns(130, 17).to(DEVICE)
    found = solver.solve(operator, V, rule=StoppingRule(1e-3, 3.0), generator=torch.Generator().manual_seed(0))
    operator.quadratic_gradient(found.solution, found.solution, torch.ones(17))
    operator.cross_matmul(x[:50] + 0.1, found.solution)
    assert started - compiled == set()


def test_a_rehearsal_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = FusedOperator(toy(20, 2)[0].float().to(DEVICE), get_kernel("rbf"), theta_of(2))
    V = columns(20, 3).to(DEVICE)
    truth = operator.matmul(V)
    with pytest.raises(KeyError), launch.rehearsal():
        raise KeyError
    assert torch.equal(operator.matmul(V), truth)


def test_where_nothing_is_compiled_there_is_no_rehearsal() -> None:
    x = toy(20, 2)[0]
    problem = Problem(ChunkedOperator(x, get_kernel("rbf"), theta_of(2)), columns(20, 1)[:, 0].double())
    before = problem.operator.entries_evaluated
    with compiled_ahead(problem, TrainingOptions(RecombinedProjections(8), Pathwise(4, 32))) as compile_at:
        compile_at(theta_of(2))
    assert problem.operator.entries_evaluated == before


@pytest.mark.gpu
def test_kernels_are_compiled_side_by_side_and_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, with an empty cache: what was compiled ahead is started, and is right."""
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    x = toy(300, 7)[0].float().cuda()
    operator = FusedOperator(x, get_kernel("matern52"), theta_of(7))
    V = columns(300, 17).cuda()
    options = TrainingOptions(RecombinedProjections(64), Pathwise(16, 32))
    with compiled_ahead(Problem(operator, V[:, 0].contiguous()), options) as compile_at:
        compile_at(operator.theta)
        early = operator.matmul(V)  # waits for its own kernel alone
    compiled: list[str] = []
    monkeypatch.setattr(
        knobs.compilation, "listener", lambda **told: None if told["cache_hit"] else compiled.append(told["src"].name)
    )
    options.solver.solve(operator, V, rule=StoppingRule(1e-3, 3.0), generator=torch.Generator().manual_seed(0))
    operator.quadratic_gradient(V, V, torch.ones(17))
    assert compiled == []
    assert torch.allclose(early.cpu(), ChunkedOperator(x.cpu(), operator.kernel, operator.theta).matmul(V.cpu()), 1e-3)
