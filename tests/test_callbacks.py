"""Validation metrics in the history, early stopping on them, and the log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from warmgp import GPRegressor
from warmgp.callbacks import EarlyStopping, JSONLines

FAST = {"n_steps": 6, "n_features": 200, "n_probes": 8, "random_state": 0}


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 10 + 4 * np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=n)


def test_metrics_are_those_of_the_model_at_that_step() -> None:
    """The metrics of step k are the scores of a model whose training ended before it (same θ, probes and solutions)."""
    X, y = data(100, 0)
    held = data(40, 1)
    model = GPRegressor(solver="cg", tol=1e-6, **FAST).fit(X, y, validation=held)
    short = GPRegressor(solver="cg", tol=1e-6, **{**FAST, "n_steps": 5}).fit(X, y)
    error = (held[1] - short.predict(held[0])) / y.std()
    density = short.log_predictive_density(*held) + np.log(y.std())
    metrics = model.history_[5].metrics
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert metrics["llh"] == pytest.approx(density.mean(), rel=1e-4)
    assert model.history_[5].metrics["rmse"] < model.history_[0].metrics["rmse"]
    assert all(h.metrics == {} for h in short.history_)


@pytest.mark.parametrize("settings", [{"solver": "cg", "gradient": "standard"}, {"solver": "cholesky"}])
def test_without_functions_there_is_the_rmse_alone(settings: dict[str, str]) -> None:
    model = GPRegressor(**settings, **FAST).fit(*data(60, 0), validation=data(20, 1))
    assert set(model.history_[0].metrics) == {"rmse"}


def test_validation_is_checked() -> None:
    X, y = data(60, 0)
    with pytest.raises(ValueError, match="features"):
        GPRegressor(**FAST).fit(X, y, validation=(X[:, :1], y))
    with pytest.raises(ValueError, match="inconsistent"):
        GPRegressor(**FAST).fit(X, y, validation=(X, y[:-1]))


@pytest.mark.parametrize("metric", ["rmse", "llh"])
def test_early_stopping(metric: str) -> None:
    X, y = data(80, 0)
    rng = np.random.default_rng(2)
    noise = rng.normal(size=40)  # nothing can be learnt about these: the metric must stop improving
    settings = {**FAST, "n_steps": 100, "solver": "cg"}
    stopping = EarlyStopping(metric, patience=4, min_delta=1e-3)
    model = GPRegressor(callbacks=[stopping], **settings).fit(X, y, validation=(rng.uniform(-2, 2, (40, 2)), noise))
    sign = 1 if metric == "rmse" else -1
    losses = [sign * h.metrics[metric] for h in model.history_]
    assert 5 <= model.n_steps_ < 100
    assert min(losses[-4:]) >= min(losses[:-4]) - 1e-3  # four steps without an improvement, and not before
    assert model.converged_
    again = GPRegressor(callbacks=[stopping], **settings).fit(X, y, validation=data(40, 1))  # it starts afresh
    assert again.n_steps_ > 5


def test_early_stopping_without_a_validation_set_says_so() -> None:
    with pytest.raises(ValueError, match="validation="):
        GPRegressor(callbacks=[EarlyStopping()], **FAST).fit(*data(60, 0))
    with pytest.raises(ValueError, match="metric"):
        EarlyStopping("r2")
    with pytest.raises(ValueError, match="patience"):
        EarlyStopping(patience=0)


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    model = GPRegressor(solver="cg", callbacks=[JSONLines(path)], **FAST).fit(*data(60, 0))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(6))
    assert lines[3]["noise_scale"] == model.history_[3].noise_scale
    with pytest.raises(FileNotFoundError, match="folder"):
        JSONLines(tmp_path / "no" / "log")
