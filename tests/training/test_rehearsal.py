"""What a rehearsal has compiled is what a training then starts: see ``test_fused.py``."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from fused_tools import DEVICE, columns, theta_of
from gp_truth import toy
from solver_problems import by_inverses
from warmgp import Cholesky, ConjugateGradients, GPRegressor, Pathwise, RecombinedProjections, Solver
from warmgp.estimator import start
from warmgp.gradient import Exact, GradientEstimator, Standard
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator, has_triton
from warmgp.solvers import StoppingRule
from warmgp.training import rehearsal
from warmgp.training.problem import Problem
from warmgp.training.rehearsal import ask, rehearse
from warmgp.training.state import TrainingOptions

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux", allow_module_level=True)

from warmgp.operators.triton import launch
from warmgp.operators.triton.fused import FusedOperator


def asked(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> tuple[Any, ...]:
    """What Triton compiles a kernel for: types, whether integers are 1 or divisible by 16, and constants."""
    options_of = kernel.kwargs if hasattr(kernel, "kwargs") else {"do_not_specialize": kernel.do_not_specialize}
    free = options_of.get("do_not_specialize") or ()
    kinds = []
    for name, one in zip(inspect.signature(kernel.fn).parameters, arguments, strict=False):
        if isinstance(one, torch.Tensor):
            kinds.append(one.dtype)
        elif isinstance(one, int) and name not in free:
            kinds.append((one == 1, one % 16 == 0))
        else:
            kinds.append(type(one))
    return (kernel.fn.__name__, *kinds, *sorted((name, str(value)) for name, value in options.items()))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """What is compiled instead of started."""
    found: set[Any] = set()
    monkeypatch.setattr(launch, "compile_kernel", lambda *a, **o: found.add(asked(*a, **o)))
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """What is started."""
    found: set[Any] = set()
    real = launch.start_kernel

    def start(*arguments: Any, **options: Any) -> None:
        found.add(asked(*arguments, **options))
        real(*arguments, **options)

    monkeypatch.setattr(launch, "start_kernel", start)
    return found


@pytest.mark.parametrize("gradient", [Pathwise(16, 32), Standard(16)])
@pytest.mark.parametrize("solver", [RecombinedProjections(64, together=1), ConjugateGradients()])
@pytest.mark.parametrize(("kernel", "d"), [("matern12", 2), ("matern32", 5)])
def test_all_that_a_step_starts_was_compiled_before(
    solver: Solver,
    gradient: GradientEstimator,
    kernel: str,
    d: int,
    compiled: set[Any],
    started: set[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the solve and its gradient, and of predictions of any number of points. Nothing is started before that."""
    by_inverses(monkeypatch)
    n, q = 130, 17
    x = toy(n, d)[0].float().to(DEVICE)
    operator = FusedOperator(x, get_kernel(kernel), theta_of(d))
    y = columns(n, 1)[:, 0].to(DEVICE)
    launch.compile_ahead(lambda: ask(Problem(operator, y), TrainingOptions(solver, gradient), operator.theta))
    assert compiled and not started
    V, generator = columns(n, q).to(DEVICE), torch.Generator().manual_seed(0)
    found = solver.solve(operator, V, rule=StoppingRule(1e-3, 3.0), generator=generator)
    gradient.gradient(operator, found, V)
    for points in (50, 16, 1):
        operator.cross_matmul(x[:points] + 0.1, found.solution)
    assert started - compiled == set()


@pytest.mark.parametrize("gradient", [Pathwise(16, 32), Standard(16), Exact()])
def test_what_torch_makes_is_not_rehearsed(gradient: GradientEstimator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matérn-1/2 in float64 has its gradients by torch, which would really make them: n² operations."""
    monkeypatch.setattr(ChunkedOperator, "quadratic_gradient", None)
    operator = FusedOperator(toy(40, 2)[0].to(DEVICE), get_kernel("matern12"), theta_of(2))
    problem = Problem(operator, columns(40, 1)[:, 0].double().to(DEVICE))
    solver = Cholesky() if gradient.needs_factor else ConjugateGradients()
    launch.compile_ahead(lambda: ask(problem, TrainingOptions(solver, gradient), operator.theta))


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_whatever_ends_a_rehearsal_ends_it(error: type[BaseException], compiled: set[Any]) -> None:
    """Kernels are started again, and another rehearsal can begin."""
    operator = FusedOperator(toy(20, 2)[0].float().to(DEVICE), get_kernel("rbf"), theta_of(2))
    V = columns(20, 3).to(DEVICE)
    truth = operator.matmul(V)

    def fails() -> None:
        operator.matmul(V)
        raise error

    for _ in range(2):
        with pytest.raises(error):
            launch.compile_ahead(fails)
        assert compiled
        assert torch.equal(operator.matmul(V), truth)


def test_who_starts_a_kernel_waits_for_what_is_compiled_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and where that failed the start says why."""
    seen: list[str] = []

    class Found:
        def result(self) -> None:
            seen.append("compiled")
            raise RuntimeError  # the start says why

    class Kernel:
        fn = object()

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *_: seen.append("started")

    monkeypatch.setitem(launch._compiling, Kernel.fn, {"one": Found(), "another": Found()})  # type: ignore[dict-item]
    for _ in range(2):
        launch.run_kernel(Kernel(), (1,), torch.zeros(1))
    assert seen == ["compiled", "compiled", "started", "started"]


@pytest.mark.parametrize(
    ("trouble", "ahead"),
    [
        (None, 15),
        ("forgetful", 15),  # Triton up to 3.6 does not know of what is being compiled
        ("interrupted", 0),  # what failed in a thread is compiled where it is started
    ],
)
def test_what_is_compiled_ahead_is_not_compiled_again(trouble: str | None, ahead: int, tmp_path: Path) -> None:
    """By Triton itself, for a GPU that need not be there."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).parents[1] / "kernel_rehearsal.py"
    done = subprocess.run(
        [sys.executable, str(script), "90", *filter(None, [trouble])], capture_output=True, text=True, timeout=300,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["kernel"] for one in found} >= {"product", "gradient", "combine", "entries_within", "invert_factor"}
    assert len(found) == 15 and sum(one["ahead"] for one in found) == ahead


def test_where_nothing_is_compiled_there_is_no_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(rehearsal, "ask", lambda *_: seen.append("asked"))
    x = toy(20, 2)[0]
    problem = Problem(ChunkedOperator(x, get_kernel("rbf"), theta_of(2)), columns(20, 1)[:, 0].double())
    rehearse(problem, TrainingOptions(RecombinedProjections(8), Pathwise(4, 32)), theta_of(2))
    assert seen == []


def test_a_fit_rehearses_where_it_begins_and_where_its_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(start, "rehearse", lambda problem, options, theta: seen.append(theta.vector))
    x, y = toy(60, 2)
    model = GPRegressor("matern32", n_steps=0, random_state=0).fit(x.numpy(), y.numpy())
    assert len(seen) == 2 and torch.equal(seen[1], model.hyperparameters_.vector)
    given = GPRegressor("matern32", n_steps=0, init=model.hyperparameters_).fit(x.numpy(), y.numpy())
    assert torch.allclose(seen[2], given.hyperparameters_.vector)


@pytest.mark.gpu
def test_kernels_are_compiled_side_by_side_and_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, with an empty cache: what was compiled ahead is started, and is right."""
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    x = toy(300, 7)[0].float().cuda()
    operator = FusedOperator(x, get_kernel("matern52"), theta_of(7))
    V = columns(300, 17).cuda()
    options = TrainingOptions(RecombinedProjections(64), Pathwise(16, 32))
    threads: list[str] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **_: threads.append(threading.current_thread().name))
    rehearse(Problem(operator, V[:, 0].contiguous()), options, operator.theta)
    product = operator.matmul(V)  # waits for its own kernels alone
    options.solver.solve(operator, V, rule=StoppingRule(1e-3, 3.0), generator=torch.Generator().manual_seed(0))
    operator.quadratic_gradient(V, V, torch.ones(17))
    assert threads and threading.main_thread().name not in threads
    truth = ChunkedOperator(x.cpu(), operator.kernel, operator.theta).matmul(V.cpu())
    assert torch.allclose(product.cpu(), truth, rtol=1e-3, atol=1e-3)
