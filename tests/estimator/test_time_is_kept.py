"""A time limit kept: by the books of a solve, the loop, a start, the estimator, a checkpoint and the command line."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from solver_problems import ITERATIVE, SOLVERS, make_problem
from warmgp import GPRegressor, Hyperparameters, Matern32, Pathwise, RecombinedProjections, StoppingRule
from warmgp.cli.columns import UsageError
from warmgp.cli.commands import app
from warmgp.cli.fitting import seconds
from warmgp.estimator.start import begin, options_of
from warmgp.operators import make_operator
from warmgp.training import Problem, TrainingOptions, train
from warmgp.training.local_start import LocalStart, local_start


def wavy(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 4))
    return x, np.sin(6 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_solve_ends_when_time_is_up(name: str) -> None:
    problem = make_problem()
    rule = StoppingRule(1e-12, until=time.perf_counter() - 1.0)
    generator = torch.Generator().manual_seed(0)
    result = SOLVERS[name].solve(problem.operator(), problem.targets, rule=rule, generator=generator)
    assert result.stop_reason == "time" and not result.converged and result.iterations > 0


def test_training_keeps_time_for_the_last_solve() -> None:
    x, y = (torch.as_tensor(part).float() for part in wavy(800))
    operator = make_operator("dense", x, Matern32(), Hyperparameters.ones(4))
    limit, began = 1.5, time.perf_counter()
    options = TrainingOptions(
        RecombinedProjections(200), Pathwise(16, 500), rule=StoppingRule(0.01), n_steps=10_000, until=began + limit
    )
    result = train(operator, y, options, generator=torch.Generator().manual_seed(0))
    took = time.perf_counter() - began
    assert result.stopped_early == "time" and 0 < len(result.history) < 10_000
    assert 0.3 * limit < took < 1.5 * limit and result.final.converged


@pytest.mark.parametrize("share", [0.0, 1e9])
def test_a_start_on_a_sample_looks_for_waves_only_while_it_has_time(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (torch.as_tensor(part) for part in wavy(300))
    plan = GPRegressor("matern32", init="sample", solver="rap", random_state=0).plan(x.numpy())
    options = options_of(plan, warm_start=True, noise_floor=1e-3, n_samples=4, until=time.perf_counter() + 1.0)
    looks = []
    monkeypatch.setattr("warmgp.estimator.start.START_SHARE", share)
    monkeypatch.setattr("warmgp.estimator.start.finer", lambda *_, **__: looks.append(1))
    problem = Problem(make_operator("chunked", x, Matern32(), Hyperparameters.ones(4)), y)
    begin(plan, options, problem, None, generator=torch.Generator().manual_seed(0))
    assert len(looks) == (share > 0)


def test_a_start_by_near_neighbours_can_be_ended() -> None:
    x, y = (torch.as_tensor(part) for part in wavy(200))
    steps = []

    def third(record: object, state: object) -> bool:
        steps.append(record)
        return len(steps) == 3

    how = LocalStart(4, 16, 40)
    local_start(x, y, Matern32(), Hyperparameters.ones(4), how, generator=torch.Generator(), callbacks=[third])
    assert len(steps) == 3


@pytest.mark.cpu
@pytest.mark.slow
def test_a_fit_ends_in_time_with_a_whole_model(whole_rates: None) -> None:
    """60,000 rows, which take minutes, within 8 s: by plan, and by the clock within twice that on a busy machine."""
    x, y = wavy(60_000)
    began = time.perf_counter()
    model = GPRegressor(time_limit=8.0, device="cpu", random_state=0).fit(x, y)
    took = time.perf_counter() - began
    assert took < 16.0 and 0 < model.plan_.rows < 60_000 and len(model.posterior_.x) == model.plan_.rows
    mean, std = model.predict(x[:500], return_std=True)
    assert np.sqrt(np.mean((mean - y[:500]) ** 2)) < 0.2 and np.isfinite(std).all()
    assert f"{model.plan_.rows:,} of 60,000 rows" in str(model.plan_)
    assert f"Trained on {model.plan_.rows:,} rows, drawn at random" in str(model.report_)


def test_too_little_time_still_gives_a_model_with_a_warning(tmp_path: Path) -> None:
    x, y = wavy(600)
    model = GPRegressor(time_limit=1e-3, n_steps=50, solver="sgd", device="cpu", random_state=0)
    with pytest.warns(UserWarning, match="raise time_limit"):
        model.fit(x, y)
    assert model.stop_reason_ == "time" and not model.converged_
    assert np.isfinite(model.predict(x[:5])).all()
    model.save(tmp_path / "m.gp")
    assert GPRegressor.load(tmp_path / "m.gp").stop_reason_ == "time"


def test_a_checkpoint_goes_on_under_another_limit(tmp_path: Path) -> None:
    x, y = wavy(400)
    settings = {"solver": "cg", "device": "cpu", "random_state": 0, "checkpoint": tmp_path / "c", "n_steps": 6}
    first = GPRegressor(time_limit=1e5, **settings).fit(x, y)
    again = GPRegressor(time_limit=1e6, **settings).fit(x, y)  # the limit does not make it another fit
    assert again.hyperparameters_.equals(first.hyperparameters_)


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("2 min", 120.0), (None, None)]
)
def test_times_on_the_command_line(text: str | None, value: float | None) -> None:
    assert seconds("--time-limit", text) == value


@pytest.mark.parametrize("text", ["", "0", "m", "-5s", "5 parsecs", "1.2.3s", "nan"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--time-limit must be a time such as 90s, 10m or 2h"):
        seconds("--time-limit", text)


def test_the_command_line_takes_it(tmp_path: Path) -> None:
    x, y = wavy(300)
    table = tmp_path / "t.csv"
    lines = ["a,b,c,d,y", *(",".join(map(repr, map(float, (*row, target)))) for row, target in zip(x, y, strict=True))]
    table.write_text("\n".join(lines))
    asked = ["fit", str(table), "--target", "y", "--dry-run", "--device", "cpu", "--time-limit"]
    assert CliRunner().invoke(app, [*asked, "10m"]).exit_code == 0
    assert CliRunner().invoke(app, [*asked, "soon"]).exit_code != 0
    out = ["--out", str(tmp_path / "m.gp"), "--time-limit", "0.001", "--quiet"]
    told = CliRunner().invoke(app, ["fit", str(table), "--target", "y", "--device", "cpu", *out])
    assert "on 100 of them, drawn at random" in " ".join(told.output.split())
