"""Rows added to a model, and taken out: what it predicts is what dense float64 finds at the same hyperparameters."""

from __future__ import annotations

import gc
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gp_truth import h_matrix
from gp_truth import posterior as dense_posterior
from row_noise_truth import posterior as noisy_posterior
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator.drift import Drift
from warmgp.training import loop

HYPER = Hyperparameters.from_vector(torch.tensor([0.1, 1.0, 0.6, 0.8], dtype=torch.float64))
NEW = np.random.default_rng(7).uniform(-2, 2, (40, 2))
KINDS: dict[str, dict[str, Any]] = {
    "exact": {}, "cg": {"solver": "cg"}, "rap": {"solver": "rap"}, "ap": {"solver": "ap"},
    "factor": {"solver": "cholesky", "gradient": "pathwise"}, "double": {"solver": "rap", "dtype": "float64"},
}  # fmt: skip


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=n)


def fitted(X: np.ndarray, y: np.ndarray, **settings: Any) -> GPRegressor:
    usual = {"kernel": "matern32", "init": HYPER, "n_steps": 0, "n_probes": 8, "n_features": 200, "random_state": 0}
    return GPRegressor(**{**usual, **settings}).fit(X, y)


def truth(model: GPRegressor, X: np.ndarray, y: np.ndarray, X_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of new observations by dense algebra, in the units and at the hyperparameters of the model."""
    scaler, theta = model.scaler_, model.hyperparameters_
    x, x_new = (torch.as_tensor(scaler.x(part)) for part in (X, X_new))
    mean, covariance = dense_posterior("matern32", x, torch.as_tensor(scaler.y(y)), x_new, theta)
    std = (covariance.diagonal() + theta.noise_scale**2).sqrt()
    return scaler.y_back(mean.numpy()), scaler.y_scale_back(std.numpy())


def assert_right(model: GPRegressor, X: np.ndarray, y: np.ndarray) -> None:
    """The mean is within 0.1 predictive std of exact, as promised; the std is, too, where it is exact."""
    mean, std = truth(model, X, y, NEW)
    found, spread = model.predict(NEW, return_std=True)
    assert model.converged_ and len(model.posterior_.x) == len(y)
    assert np.abs((found - mean) / std).max() < (1e-6 if model.posterior_.exact else 0.1)
    np.testing.assert_allclose(spread, std, rtol=1e-6 if model.posterior_.exact else 0.3)
    np.testing.assert_allclose(model.y_train_, y)


# -- rows that come, and go ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "share"), [*((kind, share) for kind in ("exact", "rap") for share in (0.01, 0.1, 0.3)),
                        ("cg", 0.1), ("ap", 0.1), ("factor", 0.1), ("double", 0.1)],
)  # fmt: skip
def test_predictions_are_those_of_all_rows(kind: str, share: float) -> None:
    n, m = 200, int(200 * share)
    X, y = rows(n + m)
    model = fitted(X[:n], y[:n], **KINDS[kind])
    before = model.hyperparameters_.vector
    assert model.update(X[n:], y[n:]) is model
    torch.testing.assert_close(model.hyperparameters_.vector, before, rtol=1e-12, atol=0)
    assert_right(model, X, y)
    assert model.updates_[-1].added == m and model.updates_[-1].rows == n + m
    assert f"to which {m}" in str(model.report_)


@pytest.mark.parametrize("kind", ["exact", "rap", "factor", "double"])
def test_rows_that_are_forgotten_are_forgotten(kind: str) -> None:
    X, y = rows(230)
    model = fitted(X, y, **KINDS[kind])
    gone = np.arange(0, 230, 8)
    model.forget(gone)
    kept = np.setdiff1d(np.arange(230), gone)
    assert_right(model, X[kept], y[kept])
    mask = np.zeros(len(kept), dtype=bool)
    mask[:5] = True
    model.forget(mask)
    assert_right(model, X[kept[5:]], y[kept[5:]])
    assert [one.forgotten for one in model.updates_] == [len(gone), 5]


@pytest.mark.parametrize("kind", ["exact", "rap"])
def test_functions_of_the_model_go_on(kind: str) -> None:
    """Far from all data a posterior function is its prior function: it has to be the same one; and rows that come and
    go leave things as they were."""
    X, y = rows(220)
    model = fitted(X[:200], y[:200], **KINDS[kind])
    far, near = [[60.0, -70.0]], X[:5] + 0.01
    there, here = model.sample_y(far, 8), model.sample_y(near, 8)
    model.update(X[200:], y[200:])
    np.testing.assert_allclose(model.sample_y(far, 8), there, rtol=1e-4, atol=1e-4)
    model.forget(np.arange(200, 220))
    std = truth(model, X[:200], y[:200], near)[1]
    assert np.sqrt(np.mean(((model.sample_y(near, 8) - here) / std[:, None]) ** 2)) < 0.3


def test_a_hundred_updates_stay_exact_and_leave_nothing_behind() -> None:
    X, y = rows(200)
    model = fitted(X[:100], y[:100], solver="rap", n_probes=4)
    seen = []
    for i in range(100, 200):
        seen.append(weakref.ref(model.posterior_.solution))
        model.update(X[i : i + 1], y[i : i + 1])
    assert_right(model, X, y)
    gc.collect()
    assert not any(one() is not None for one in seen)
    assert len(model.updates_) == 100 and not model.history_ and not any(one.drifted for one in model.updates_)


def test_epochs_are_a_fifth_of_those_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(2860)
    epochs: list[float] = []
    finish = loop.finish

    def counted(*arguments: Any) -> Any:
        made = finish(*arguments)
        epochs.append(made.final.epochs)
        return made

    monkeypatch.setattr(loop, "finish", counted)
    model = fitted(X[:2600], y[:2600], n_features=100)
    model.update(X[2600:], y[2600:])
    fitted(X, y, n_features=100)
    assert model.converged_ and epochs[1] == model.updates_[-1].epochs
    assert epochs[1] <= 0.2 * epochs[2]


# -- what is said of rows --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["exact", "cg"])
def test_weights_and_known_errors_of_new_rows(kind: str) -> None:
    X, y = rows(200)
    rng = np.random.default_rng(3)
    w, e = rng.uniform(0.2, 5, 200), rng.uniform(0, 0.05, 200)
    w[:150], e[:150] = 1.0, 0.0  # the fit knows of none
    w[170] = 0.0  # one that is left out
    model = fitted(X[:150], y[:150], **KINDS[kind])
    model.update(X[150:], y[150:], sample_weight=w[150:], noise_variance=e[150:])
    used = w > 0
    scaler, theta = model.scaler_, model.hyperparameters_
    mean, variance = noisy_posterior(
        "matern32", torch.as_tensor(scaler.x(X[used])), torch.as_tensor(scaler.y(y[used])),
        torch.as_tensor(scaler.x(NEW)), theta.vector, torch.as_tensor(w[used]),
        torch.as_tensor(e[used]) / scaler.y_scale**2,
    )  # fmt: skip
    std = (variance + theta.noise_scale**2).sqrt().numpy()
    assert np.abs(scaler.y(model.predict(NEW)) - mean.numpy()).max() < (1e-6 if kind == "exact" else 0.1) * std.min()
    assert len(model.posterior_.x) == 199 and model.converged_


@pytest.mark.parametrize("kind", ["exact", "rap"])
def test_a_trend_is_found_anew(kind: str) -> None:
    X, y = rows(160)
    y = y + 3 * X[:, 0] - X[:, 1]
    model = fitted(X[:140], y[:140], trend="linear", **KINDS[kind])
    whole = fitted(X, y, trend="linear", init=model.hyperparameters_, **KINDS[kind])
    model.update(X[140:], y[140:])
    there = np.concatenate([NEW, [[5.0, 5.0]]])
    (mean, std), (found, spread) = (one.predict(there, return_std=True) for one in (whole, model))
    assert np.abs((found - mean) / std).max() < (1e-6 if kind == "exact" else 0.1)
    np.testing.assert_allclose(spread, std, rtol=1e-6 if kind == "exact" else 0.3)
    assert model.trend_ is not None and whole.trend_ is not None
    error = np.abs(model.trend_.coefficients - whole.trend_.coefficients) / whole.trend_.std_errors
    assert error.max() < (1e-6 if kind == "exact" else 0.1)
    np.testing.assert_allclose(model.y_train_, y)


def test_columns_are_read_as_in_the_fit() -> None:
    X, y = rows(80)
    frame = pd.DataFrame({
        "a": X[:, 0], "gap": np.where(np.arange(80) % 9 == 4, np.nan, X[:, 1]),
        "when": pd.date_range("2024-01-01", periods=80).strftime("%d/%m/%Y"), "colour": ["red", "blue"] * 40,
    })  # fmt: skip
    said = {"columns": {"when": "date", "colour": "category"}, "missing": "mean"}
    model = GPRegressor("matern32", n_steps=3, n_probes=8, random_state=0, **said).fit(frame[:60], y[:60])
    model.update(frame[60:], y[60:])
    x, scaled = torch.as_tensor(model.scaler_.x(numbers_of(model, frame))), torch.as_tensor(model.scaler_.y(y))
    mean, _ = dense_posterior("matern32", x, scaled, x[:10], model.hyperparameters_)
    np.testing.assert_allclose(model.scaler_.y(model.predict(frame[:10])), mean, atol=1e-6)
    strange = frame[:1].assign(colour="green")
    with pytest.raises(ValueError, match="green"):
        model.update(strange, y[:1])


def numbers_of(model: GPRegressor, frame: pd.DataFrame) -> np.ndarray:
    """The cells of a table as numbers, as the model's maps take them."""
    from warmgp.data.arrays import check_inputs

    return check_inputs(model, frame)


def test_a_robust_model_leaves_outliers_out() -> None:
    X, y = rows(120)
    model = fitted(X[:100], y[:100], robust=True)
    y[105] += 50.0
    model.update(X[100:], y[100:])
    assert model.robust_weights_ is not None and model.robust_weights_[105] == 0 and len(model.robust_weights_) == 120
    assert not np.isclose(model.y_train_, y[105]).any()
    with pytest.raises(ValueError, match="leaves out all 3 new rows"):
        model.update(X[:3], y[:3] + 100)


def test_float64_stays_and_exact_models_grow_out_of_it() -> None:
    X, y = rows(620)
    model = fitted(X[:480], y[:480], n_features=100)
    assert model.plan_.solver.name == "cholesky" and model.posterior_.exact
    model.update(X[480:], y[480:])
    assert_right(model, X, y)
    double = fitted(X[:200], y[:200], **KINDS["double"]).update(X[200:210], y[200:210])
    assert double.posterior_.x.dtype == torch.float64


# -- steps, drift ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["exact", "cg"])
def test_steps_go_on_where_history_ended(kind: str) -> None:
    X, y = rows(150)
    model = fitted(X[:120], y[:120], n_steps=3, **KINDS[kind])
    model.update(X[120:], y[120:], n_steps=4)
    assert [one.step for one in model.history_] == list(range(7)) and model.n_steps_ == 7
    assert model.updates_[-1].steps == 4
    assert float(model.hyperparameters_.noise_scale) != model.history_[3].noise_scale
    assert_right(model, X, y)


def test_rows_of_another_function_are_told_of_and_nothing_is_decided() -> None:
    X, y = rows(330)
    model = fitted(X[:250], y[:250], init="auto", n_steps=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(X[250:290], y[250:290])
    ours = model.updates_[-1]
    assert not ours.drifted and abs(ours.loss) < 0.25 and abs(ours.log_density - ours.log_density_before) < 0.3
    mean, std = model.predict(X[290:], return_std=True)
    other = -y[290:]
    density = np.mean(-0.5 * ((other - mean) / std) ** 2 - 0.5 * np.log(2 * np.pi * std**2))
    theta = model.hyperparameters_.vector
    with pytest.warns(UserWarning, match="a new fit on all rows is due"):
        model.update(X[290:], other)
    last = model.updates_[-1]
    assert last.drifted and last.log_density == pytest.approx(density, rel=1e-6) and last.loss > 1
    torch.testing.assert_close(model.hyperparameters_.vector, theta)
    assert "a new fit on all rows is due" in str(model.report_)


@pytest.mark.parametrize(
    ("times", "told"), [(3.0, "so error bars near them are too small"), (1.0, "and were 0.1 times")]
)
def test_error_bars_are_called_too_small_only_where_they_are(times: float, told: str) -> None:
    """Where the model's own rows have far smaller errors than predicted, new rows may be unlikely within error bars."""
    drift = Drift(torch.full((60,), times), -1.0, 0.0, 0.01, 2e-4)
    assert drift.is_far and told in drift.told(0)


@pytest.mark.parametrize(("kind", "near"), [("exact", 1e-6), ("rap", 0.15)])
def test_own_rows_are_compared_as_left_out(kind: str, near: float) -> None:
    X, y = rows(260)
    model = fitted(X[:250], y[:250], n_probes=64, **KINDS[kind])
    scaler = model.scaler_
    H = h_matrix("matern32", torch.as_tensor(scaler.x(X[:250])), model.hyperparameters_.vector)
    inverse = torch.linalg.inv(H)
    error, variance = (inverse @ torch.as_tensor(scaler.y(y[:250]))) / inverse.diagonal(), 1 / inverse.diagonal()
    density = -0.5 * (error**2 / variance + torch.log(2 * torch.pi * variance)) - np.log(scaler.y_scale)
    assert model.update(X[250:], y[250:]).updates_[-1].log_density_before == pytest.approx(
        float(density.mean()), abs=near
    )


# -- files, errors ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["exact", "rap", "double"])
def test_a_model_from_a_file_goes_on_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    X, y = rows(200)
    model = fitted(X[:180], y[:180], **KINDS[kind])
    model.save(tmp_path / "m")
    again = GPRegressor.load(tmp_path / "m").update(X[180:], y[180:])
    model.update(X[180:], y[180:])
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    again.save(tmp_path / "m")
    last = GPRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(last.y_train_, model.y_train_)
    assert last.updates_[0].log_density == pytest.approx(model.updates_[0].log_density, rel=1e-9)
    assert str(last.plan_) == str(again.plan_)


@pytest.mark.parametrize("name", ["model-exact", "model-pathwise-float32", "model-sgd-float64"])
def test_files_of_earlier_versions_go_on(name: str) -> None:
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor.load(Path(__file__).parents[1] / "files" / "before_rooms" / f"{name}.safetensors")
        d = model.n_features_in_
        assert model.y_train_ is None
        before = len(model.posterior_.x)
        model.update(rng.uniform(-2, 2, (3, d)), [0.1, 0.2, 0.3])
    assert len(model.posterior_.x) == before + 3 and len(model.y_train_) == before + 3
    assert np.isfinite(model.predict(rng.uniform(-2, 2, (3, d)))).all()


def test_a_model_goes_on_where_it_was_read() -> None:
    X, y = rows(60)
    model = fitted(X[:50], y[:50])
    model.set_params(device="cuda:7")  # it was trained elsewhere
    assert_right(model.update(X[50:], y[50:]), X, y)


BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "other columns": ((np.ones((3, 5)), np.ones(3)), {}, "5 features"),
    "no number": ((np.full((3, 2), np.nan), np.ones(3)), {}, "NaN in row 0"),
    "other lengths": ((np.ones((3, 2)), np.ones(2)), {}, "X has 3 and y has 2"),
    "no steps": ((np.ones((3, 2)), np.ones(3), -1), {}, "n_steps"),
    "bad weight": ((np.ones((3, 2)), np.ones(3)), {"sample_weight": [1, -1, 1]}, "sample_weight.*row 1"),
    "no weight": ((np.ones((1, 2)), np.ones(1)), {"sample_weight": [0]}, "one is needed"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_refused_and_the_model_stays(case: str) -> None:
    X, y = rows(40)
    model = fitted(X, y)
    before, predicted = dict(vars(model)), model.predict(NEW)
    arguments, more, expected = BAD[case]
    with pytest.raises(ValueError, match=expected):
        model.update(*arguments, **more)
    assert dict(vars(model)) == before
    np.testing.assert_array_equal(model.predict(NEW), predicted)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [([40], "from 0 to 39.*got 40"), ([-1], "got -1"), ([0.5], "whole numbers"), ([], "no row"),
     (np.ones(3, dtype=bool), "each of the 40 rows"), (range(39), "1 rows are left")],
)  # fmt: skip
def test_rows_that_are_not_there_cannot_be_forgotten(bad: Any, expected: str) -> None:
    X, y = rows(40)
    model = fitted(X, y)
    with pytest.raises(ValueError, match=expected):
        model.forget(bad)
    assert len(model.posterior_.x) == 40 and not model.updates_


def test_an_interrupted_update_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(120)
    model = fitted(X[:100], y[:100], solver="rap")
    before, predicted = dict(vars(model)), model.predict(NEW)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        model.update(X[100:], y[100:])
    assert dict(vars(model)) == before
    np.testing.assert_array_equal(model.predict(NEW), predicted)


def test_an_interrupt_between_steps_keeps_those_before() -> None:
    X, y = rows(120)
    model = fitted(X[:100], y[:100], solver="cg")

    def stop(record: Any, _: Any) -> None:
        if record.step == 1:
            raise KeyboardInterrupt

    model.set_params(callbacks=[stop])
    with pytest.raises(KeyboardInterrupt, match="after 2 of 5 steps"):
        model.update(X[100:], y[100:], n_steps=5)
    assert model.updates_[-1].steps == 2 and len(model.history_) == 2
    assert_right(model, X, y)


def test_a_model_that_is_not_fitted_has_nothing_to_update() -> None:
    with pytest.raises(ValueError, match="not fitted"):
        GPRegressor().update(np.ones((2, 2)), np.ones(2))
