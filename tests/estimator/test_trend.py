"""A trend: coefficients, means and deviations are those of universal kriging, in the user's units, from any file."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from trend_truth import in_user_units, kriging, monomials
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator.prepare import training_data

RNG = np.random.default_rng(3)
X = RNG.uniform([100.0, -2.0], [110.0, 1.0], (60, 2))
Y = 40 + 2.5 * X[:, 0] - 4 * X[:, 1] + np.sin(X[:, 0]) + np.cos(3 * X[:, 1]) + 0.2 * RNG.normal(size=60)
NEW = np.vstack([X[:3] + 0.1, [[105.0, 0.0], [130.0, 5.0], [100.0, -30.0]]])
INIT = Hyperparameters(*(torch.tensor(v, dtype=torch.float64) for v in (0.3, 0.8, [0.5, 1.2])))
GIVEN: dict[str, Any] = {"init": INIT, "n_steps": 0, "n_probes": 8, "n_features": 200, "random_state": 0}
FAST: dict[str, Any] = {"n_steps": 4, "n_probes": 6, "n_features": 100, "random_state": 0, "device": "cpu"}


def truth(model: GPRegressor, kind: Any, kernel: str = "matern32") -> Any:
    """Dense universal kriging at the model's θ."""
    return kriging(kernel, X, Y, NEW, monomials(X, kind), monomials(NEW, kind), in_user_units(model))


# -- against dense universal kriging ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", ["matern32", "rbf"])
@pytest.mark.parametrize("kind", ["constant", "linear", "quadratic", [1]], ids=str)
@pytest.mark.parametrize("standardize", [True, False])
def test_an_exact_model_is_universal_kriging(kernel: str, kind: Any, standardize: bool) -> None:
    model = GPRegressor(kernel, trend=kind, solver="cholesky", standardize=standardize, **GIVEN).fit(X, Y)
    exact = truth(model, kind, kernel)
    found = model.trend_
    assert found is not None and model.converged_
    np.testing.assert_allclose(found.coefficients, exact.coefficients, rtol=1e-6, atol=1e-6 * exact.errors.max())
    np.testing.assert_allclose(found.std_errors, exact.errors, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, exact.covariance, rtol=1e-5, atol=1e-7 * exact.covariance.max())
    mean, std = model.predict(NEW, return_std=True, include_noise=False)
    np.testing.assert_allclose(mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(std, exact.std, rtol=1e-6)
    np.testing.assert_allclose(model.predict(NEW), exact.mean, rtol=1e-6)
    covariance = model.predict(NEW, return_cov=True, include_noise=False)[1]
    np.testing.assert_allclose(covariance, exact.latent, rtol=1e-6, atol=1e-6 * exact.latent.max())


def test_terms_have_names() -> None:
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    model = GPRegressor(trend="quadratic", **GIVEN).fit(frame, Y)
    assert model.trend_.names == ("1", "lon", "lat", "lon²", "lon·lat", "lat²")
    shown = str(model.trend_).splitlines()
    assert len(shown) == 7 and "std error" in shown[0] and shown[1].startswith("1 ")
    assert GPRegressor(**GIVEN).fit(X, Y).trend_ is None
    assert not hasattr(GPRegressor(trend="linear"), "trend_")


def test_functions_have_the_covariance_of_universal_kriging() -> None:
    """Stored functions and new ones: their covariance is the dense one but for 2,000 draws, far outside the data, too.

    A covariance c_ij from s draws has the variance (c_ii c_jj + c_ij²)/s; five of its deviations are allowed.
    """
    s = 2000
    settings = {**GIVEN, "n_probes": s, "n_features": 4000}
    model = GPRegressor("rbf", trend="linear", solver="cholesky", **settings).fit(X, Y)
    exact = truth(model, "linear", "rbf")
    deviation = np.sqrt((np.outer(exact.std, exact.std) ** 2 + exact.latent**2) / s)
    for seed in (None, 1):
        functions = model.sample_y(NEW, s, random_state=seed)
        left = functions - exact.mean[:, None]
        assert (np.abs(left @ left.T / s - exact.latent) < 5 * deviation).all()
        assert (np.abs(left.mean(1)) < 5 * exact.std / np.sqrt(s)).all()


def test_a_linear_trend_goes_on_far_outside_the_data() -> None:
    """Beyond the reach of the kernel, where inputs are clamped: the mean is the trend, and its error grows with it."""
    model = GPRegressor(trend="linear", **GIVEN).fit(X, Y)
    far = np.array([[1e6, 0.0], [105.0, -1e5]])
    found = model.trend_
    t = monomials(far, "linear")
    mean, std = model.predict(far, return_std=True, include_noise=False)
    np.testing.assert_allclose(mean, t @ found.coefficients, rtol=1e-9)
    signal = in_user_units(model)[1]
    np.testing.assert_allclose(std**2, signal**2 + ((t @ found.covariance) * t).sum(1), rtol=1e-9)
    assert std[0] > 1000 * signal
    plain = GPRegressor(**GIVEN).fit(X, Y)
    assert abs(plain.predict(far)[0] - Y.mean()) < 1e-6 < abs(mean[0] - Y.mean())


def test_external_drift_by_name_and_by_number_is_the_same() -> None:
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    by_name = GPRegressor(trend=["lat"], **FAST).fit(frame, Y)
    by_number = GPRegressor(trend=(np.int64(1),), **FAST).fit(X, Y)
    assert by_name.trend_.names == ("1", "lat")
    np.testing.assert_array_equal(by_name.predict(frame), by_number.predict(X))


def test_a_steep_trend_leaves_noise_and_signal_of_order_one() -> None:
    """However steep, also in float32: what is trained on is what ordinary least squares leaves, in its own unit."""
    steep = Y + 1e5 * X[:, 0]
    model = GPRegressor(trend="linear", **FAST)
    data = training_data(model, X, steep, None)
    assert abs(data.y.mean()) < 1e-9 and data.y.std() == pytest.approx(1.0)
    single = GPRegressor(trend="linear", solver="cg", dtype="float32", **{**GIVEN, "n_probes": 4}).fit(X, steep)
    exact = GPRegressor(trend="linear", solver="cholesky", **GIVEN).fit(X, Y)
    inside, error = X[:20], exact.predict(X[:20], return_std=True)[1]
    assert (np.abs(single.predict(inside) - 1e5 * inside[:, 0] - exact.predict(inside)) < 0.1 * error).all()
    assert single.trend_.coefficients[1] == pytest.approx(1e5 + exact.trend_.coefficients[1], rel=1e-6)


def test_held_out_scores_have_the_trend() -> None:
    held = (NEW, 40 + 2.5 * NEW[:, 0] - 4 * NEW[:, 1])
    for gradient, solver in (("pathwise", "cg"), ("standard", "cg"), ("exact", "cholesky")):
        model = GPRegressor(trend="linear", solver=solver, gradient=gradient, **{**FAST, "n_steps": 2})
        model.fit(X, Y, validation=held)
        assert model.history_[-1].metrics["rmse"] * model.scaler_.y_scale < 10
        plain = GPRegressor(solver=solver, gradient=gradient, **{**FAST, "n_steps": 2}).fit(X, Y, validation=held)
        assert plain.history_[-1].metrics["rmse"] * plain.scaler_.y_scale > 20


def test_rows_drawn_under_a_time_limit_have_a_trend_of_their_own() -> None:
    model = GPRegressor(trend="linear", **FAST)
    some = training_data(model, X, Y, None).drawn(20, 0)
    columns = some.trend.basis.at(torch.as_tensor(some.x)).numpy()
    np.testing.assert_allclose(columns.T @ columns, 20 * np.eye(3), atol=1e-9)
    np.testing.assert_allclose(columns.T @ some.y, 0, atol=1e-9)


def test_the_plan_counts_the_systems_of_a_trend() -> None:
    settings = {"solver": "ap", "init": "ones", "device": "cpu"}
    plain, rich = (GPRegressor(trend=trend, **settings).plan(X) for trend in (None, "quadratic"))
    assert (plain.trend_terms, rich.trend_terms) == (0, 6) and rich.estimated_bytes > plain.estimated_bytes


# -- files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_files_and_pickles_hold_the_trend(solver: str, tmp_path: Path) -> None:
    model = GPRegressor(trend="quadratic", solver=solver, **FAST).fit(X, Y)
    model.save(tmp_path / "m")
    for other in (GPRegressor.load(tmp_path / "m", device="cpu"), pickle.loads(pickle.dumps(model))):
        assert other.trend == "quadratic"
        np.testing.assert_array_equal(other.predict(NEW, return_std=True), model.predict(NEW, return_std=True))
        np.testing.assert_array_equal(other.sample_y(NEW, 3), model.sample_y(NEW, 3))
        np.testing.assert_array_equal(other.sample_y(NEW, 3, 0), model.sample_y(NEW, 3, 0))
        np.testing.assert_array_equal(other.trend_.std_errors, model.trend_.std_errors)


@pytest.mark.parametrize(("solver", "gradient"), [("cg", "pathwise"), ("sgd", "pathwise"), ("cholesky", "exact")])
def test_a_resumed_fit_ends_with_the_same_bits(solver: str, gradient: str, tmp_path: Path) -> None:
    def crash(record: Any, state: Any) -> None:
        if record.step == 2:
            raise RuntimeError("crash")

    settings = {**FAST, "trend": ["0", "1"], "solver": solver, "gradient": gradient}
    frame = pd.DataFrame(X, columns=["0", "1"])
    whole = GPRegressor(**settings).fit(frame, Y)
    path = tmp_path / "checkpoint"
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(checkpoint=path, checkpoint_every=1, callbacks=[crash], **settings).fit(frame, Y)
    model = GPRegressor(checkpoint=path, **settings).fit(frame, Y)
    assert model.hyperparameters_.equals(whole.hyperparameters_)
    np.testing.assert_array_equal(model.predict(frame, return_std=True), whole.predict(frame, return_std=True))
    np.testing.assert_array_equal(model.trend_.coefficients, whole.trend_.coefficients)
    with pytest.raises(ValueError, match=r"was made with trend=\['0', '1'\], and this fit has trend='linear'"):
        GPRegressor(checkpoint=path, **{**settings, "trend": "linear"}).fit(frame, Y)


def test_an_interrupted_model_has_its_trend() -> None:
    """The model of the last whole step is kept as it is, with the coefficients of that step."""

    def interrupt(record: Any, state: Any) -> None:
        if record.step == 2:
            raise KeyboardInterrupt

    model = GPRegressor(trend="linear", solver="cg", callbacks=[interrupt], **FAST)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.trend_.coefficients[1] == pytest.approx(2.5, abs=5 * model.trend_.std_errors[1])


# -- what is refused -------------------------------------------------------------------------------------------------
NAMED = pd.DataFrame(X, columns=["lon", "lat"])
TWINS = np.column_stack([X, 3 * X[:, 0] - X[:, 1]])
FLAT = np.column_stack([X, np.full(60, 0.1)])
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "name": ("cubic", X, r'trend must be None, "constant", "linear", "quadratic" or a list of columns.*\'cubic\''),
    "number": (2, X, "trend must be None.*got 2"),
    "nothing": ([], X, r"trend must be None.*got \[\]"),
    "truth": ([True], X, "trend must be None.*True"),
    "column": (["height"], NAMED, "trend names the column 'height', which X does not have: it has 'lon', 'lat'"),
    "no names": (["lon"], X, "trend names the column 'lon', but X has no column names: give its number"),
    "index": ([0, 2], X, "trend names column 2, which X does not have: its 2 columns are 0 to 1"),
    "negative": ([-1], X, "trend names column -1, which X does not have"),
    "twice": ([1, 1], X, "trend names the column 1 twice"),
    "rich": ("quadratic", np.hstack([X, X**2, X**3]), "has 28 terms, and X has 50 rows: at least 56 are needed"),
    "richer": ("quadratic", np.tile(X, 10), "has 231 terms with 20 inputs, at most 200"),
    "dependent": ("linear", TWINS, "trend='linear' has the term 'x2', which is a combination of the others"),
    "constant": (["c"], pd.DataFrame(FLAT, columns=["a", "b", "c"]), r"column 'c' of X, which trend=\['c'\] uses, is "),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_trend_that_cannot_be_is_refused(what: str) -> None:
    trend, inputs, told = REFUSED[what]
    with pytest.raises(ValueError, match=told):
        GPRegressor(trend=trend, **FAST).fit(inputs[:50], Y[:50])


def test_a_target_that_is_all_trend() -> None:
    """Nothing but rounding is left for the process: the model says the trend, and does not fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor(trend="linear", **FAST).fit(X, 3 + 2 * X[:, 0])
    np.testing.assert_allclose(model.predict(NEW), 3 + 2 * NEW[:, 0], rtol=1e-4)
