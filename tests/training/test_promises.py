"""What ``converged_`` promises, tried on what used to break it: low noise, rounded inputs, offsets, far points.

The truth is a dense float64 GP in numpy, from the inputs as they are.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from gp_truth import exact_prediction
from warmgp import ConvergenceWarning, GPRegressor, Hyperparameters
from warmgp.data.arrays import integer_rest
from warmgp.data.float32_resolution import unresolved_columns
from warmgp.data.scaling import Standardizer
from warmgp.estimator.convergence import inexact
from warmgp.gradient.features import FeaturePrior
from warmgp.kernels import KERNELS
from warmgp.planning.planner import make_plan
from warmgp.training import last_solve
from warmgp.training.accuracy import MEAN, Accuracy

NANOSECONDS = 1_700_000_000_000_000_000


def off_by(model: GPRegressor, X: np.ndarray, y: np.ndarray, X_new: np.ndarray) -> np.ndarray:
    """|mean − exact mean| in predictive standard deviations, (m,)."""
    mean, std = exact_prediction(X, y, X_new, model.posterior_.kernel.name, model.hyperparameters_.vector.numpy())
    return np.abs(model.predict(X_new) - mean) / std


def step(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, (n, d))
    return X, np.sign(X[:, 0] + 0.3 * X[:, -1]), rng.uniform(-1.7, 1.7, (200, d))


# -- the last solve --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "d", "noise", "signal"), [("matern32", 2, 1e-4, 0.5), ("rbf", 3, 1e-2, 1.0), ("matern52", 1, 1e-4, 1.0)]
)
@pytest.mark.parametrize("settings", [{}, {"solver": "cg"}, {"solver": "ap"}, {"solver": "cholesky"}], ids=str)
def test_a_fit_that_has_converged_is_exact(kernel: str, d: int, noise: float, signal: float, settings: dict) -> None:
    """Within 0.1 predictive std everywhere, for a step function that only a huge v fits."""
    X, y, X_new = step(700, d)
    model = GPRegressor(
        kernel, init=Hyperparameters(noise, signal, [1.0] * d), n_steps=0, n_probes=8, random_state=0, **settings
    ).fit(X, y)
    assert model.converged_ and model.solve_error_ <= MEAN
    assert off_by(model, X, y, X_new).max() <= 0.1


@pytest.mark.parametrize("solver", ["cholesky", "auto"])
def test_float32_that_is_not_enough_is_told(solver: str) -> None:
    X, y, _ = step(700, 2)
    model = GPRegressor(
        solver=solver, dtype="float32", init=Hyperparameters(1e-4, 0.5, [1.0, 1.0]), n_steps=0, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match=r'predictive standard deviations: float32 rounds.*use dtype="auto"'):
        model.fit(X, y)
    assert not model.converged_ and off_by(model, X, y, X).max() > 0.1
    assert model.solve_error_ >= off_by(model, X, y, X).mean()


def test_a_tolerance_that_is_coarse_beside_the_noise_is_told() -> None:
    """SGD meets 0.1 and cannot go on to a share of the noise: that is no convergence."""
    X, y, _ = step(300, 2)
    settings = {"init": Hyperparameters(0.05, 1.0, [1.0, 1.0]), "n_steps": 0, "random_state": 0, "dtype": "float64"}
    with pytest.warns(ConvergenceWarning, match=r"tol=0.5 is coarse beside so little noise.*smaller tol"):
        model = GPRegressor(solver="sgd", tol=0.5, **settings).fit(X, y)
    assert not model.converged_ and model.solve_error_ > MEAN


def test_an_interrupted_fit_keeps_the_promise_too() -> None:
    """The model of the last step is judged like any other: solved to tol=0.01, at a noise where that is not enough."""
    X, y, X_new = step(600, 2)

    def press(record: object, state: object) -> None:
        raise KeyboardInterrupt

    model = GPRegressor(
        solver="cg", n_probes=4, callbacks=[press], n_steps=3, learning_rate=1e-6, tol=0.05, random_state=0,
        init=Hyperparameters(1e-3, 1.0, [1.0, 1.0]), noise_floor=1e-6,
    )  # fmt: skip
    with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert not model.converged_ or off_by(model, X, y, X_new).max() <= 0.1


def test_rows_in_turn_do_not_hide_what_is_left() -> None:
    """Every tenth row is alone, and solved at once; the dense ones between are not. Of 2,551 rows those at even
    distances would all be alone (2,550 = 10 · 255), and the fit would seem exact."""
    rng, alone = np.random.default_rng(3), np.arange(2551) % 10 == 0
    X = rng.uniform(0, 60, (2551, 1))
    X[alone, 0] = 1e3 + 50 * np.arange(alone.sum())
    y = np.where(alone, 0.5 * rng.normal(size=2551), np.sin(X[:, 0]) + np.cos(0.7 * X[:, 0]))
    model = GPRegressor(
        solver="sgd", tol=0.05, max_epochs=300, n_steps=0, n_probes=4, n_features=200, random_state=0,
        standardize=False, init=Hyperparameters(0.03, 1.0, [1.0]),
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match=r"raise max_epochs"):
        model.fit(X, y)
    assert not model.converged_ and model.solve_error_ > 0.1


@pytest.mark.parametrize(
    ("found", "enough"),
    [((0.04, 0.2, 0.2), True), ((0.06, 0.2, 0.2), False), ((0.01, 0.4, 0.0), False), ((0.01, 0.1, 0.4), False)],
)
def test_what_is_left_may_sit_nowhere(found: tuple[float, float, float], enough: bool) -> None:
    """Neither in the mean of all rows, nor in a few of them, nor in the samples."""
    assert Accuracy(*found).suffices == enough


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"dtype": "float32"}, 'float32 rounds.*use dtype="auto"'),
        ({"dtype": "auto", "max_epochs": 5.0}, '5 epochs leave too much.*raise max_epochs, or use dtype="float64"'),
        ({"dtype": "auto", "solver": "cg"}, "tol=0.01 is coarse.*smaller tol"),
    ],
)
def test_the_remedy_is_for_the_cause(plan: dict, told: str) -> None:
    found = Accuracy(0.2, 0.9, 0.1)
    text = inexact(found, make_plan(3000, 5, **{"solver": "cg", **plan}), torch.float32)
    assert re.search(rf"the mean by about 0.2 \(at single points 0.9\).*{told}", text)
    assert re.search("time limit ended.*raise time_limit", inexact(found, make_plan(3000, 5), torch.float32, "time"))


@pytest.mark.parametrize("time_left", [True, False])
def test_a_time_limit_that_is_over_ends_a_fit_before_float64(time_left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is whole, in float32, and the warning names the limit and not the epochs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(2600, 2))  # too many for an exact posterior
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.1 * rng.normal(size=2600)
    monkeypatch.setattr(last_solve, "accuracy", lambda *_: Accuracy(0.2, 0.9, 0.1))  # float32 is not enough
    monkeypatch.setattr(last_solve, "_time_for_more", lambda *_: time_left)
    theta = Hyperparameters(0.1, 1.0, [1.0, 1.0])
    model = GPRegressor("matern32", solver="rap", init=theta, n_steps=0, n_probes=8, random_state=0, time_limit=1e4)
    with pytest.warns(ConvergenceWarning, match="smaller tol" if time_left else "raise time_limit"):
        model.fit(X, y)
    assert model.posterior_.x.dtype == (torch.float64 if time_left else torch.float32)
    assert np.isfinite(model.predict(X)).all()


# -- inputs that float32, or float64, does not tell apart --------------------------------------------------------------
def recordings(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Eight recordings of one second, a year apart."""
    rng, year = np.random.default_rng(0), 365.25 * 86400
    t = np.concatenate([k * year + np.sort(rng.uniform(0, 1, n)) for k in range(8)])
    return t[:, None], np.sin(2 * np.pi * (t % year))


@pytest.mark.parametrize("length", [3e-9, 3e-8, 1e-7])
def test_points_that_float32_merges_are_told_apart(length: float) -> None:
    X, y = recordings()
    model = GPRegressor(init=Hyperparameters(0.01, 1.0, [length]), n_steps=0, random_state=0).fit(X, y)
    assert off_by(model, X, y, X).max() <= 0.1 and 1 - np.var(model.predict(X) - y) / np.var(y) > 0.98
    assert model.converged_ and model.plan_.dtype == torch.float64
    assert "float32 does not tell apart" in str(model.plan_)
    assert "float32 does not tell apart" in str(GPRegressor(init=Hyperparameters(0.01, 1.0, [1.0])).plan(X))


def test_rounded_inputs_are_seen_by_the_check_of_a_fit() -> None:
    """In float32 by its own inputs all is well; the check has those that came in."""
    X, y = recordings()
    model = GPRegressor(solver="cg", dtype="float32", init=Hyperparameters(0.1, 1.0, [1e-7]), n_steps=0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="float32"), pytest.warns(UserWarning, match="column 0 has groups"):
        model.fit(X, y)
    assert not model.converged_


def test_groups_that_training_may_not_find_are_told() -> None:
    X, y = recordings(80)
    with pytest.warns(UserWarning, match=r"'t' has groups of points 1e-08 of its std wide.*a column of its own"):
        GPRegressor(n_steps=1, n_probes=2, random_state=0).fit(pd.DataFrame({"t": X[:, 0]}), y)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (np.random.default_rng(0).uniform(-1, 1, 50_000), False),
        (np.linspace(-1, 1, 3_000_000), False),  # dense everywhere, and closer than float32 numbers
        (np.repeat(np.arange(40.0), 50), False),  # duplicates
        (np.repeat(np.arange(400.0), 2) + np.tile([0.0, 1e-9], 400), False),  # near duplicates
        (recordings()[0][:, 0], True),
        (np.r_[np.random.default_rng(0).normal(size=1000), 5 + 1e-8 * np.arange(100)], True),
        (np.r_[np.random.default_rng(0).normal(size=1000), 5 + 1e-8 * np.arange(20)], False),  # few of many
    ],
)
def test_groups_are_found_where_there_are_any(column: np.ndarray, told: bool) -> None:
    other = np.random.default_rng(1).normal(size=len(column))
    x = np.stack([other, column - column.mean()], 1)
    assert list(unresolved_columns(x)) == ([1] if told else [])


# -- offsets ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["array", "frame", "tensor", "float"])
def test_nanoseconds_since_1970_keep_their_digits(kind: str) -> None:
    """600 points one nanosecond apart, 256 of them one float64 number; as floats 2 µs apart."""
    rng = np.random.default_rng(0)
    ticks = np.arange(600)
    y = np.sin(ticks / 40) + 0.02 * rng.normal(size=600)
    stamps = NANOSECONDS + ticks[:, None] * (2000 if kind == "float" else 1)
    X = {
        "array": stamps,
        "frame": pd.DataFrame({"t": stamps[:, 0]}),
        "tensor": torch.tensor(stamps),
        "float": stamps.astype(float),
    }[kind]
    model = GPRegressor(init=Hyperparameters(0.05, 1.0, [0.5]), n_steps=0, random_state=0).fit(X, y)
    assert 1 - np.var(np.asarray(model.predict(X)) - y) / np.var(y) > 0.99
    at = X.iloc[:5] if kind == "frame" else X[:5]
    np.testing.assert_allclose(np.asarray(model.predict(at)), np.asarray(model.predict(X))[:5], rtol=1e-9)


def test_what_float64_cannot_hold_is_kept_exactly() -> None:
    whole = np.array([[2**60 + 3, 1], [2**53 + 1, 2], [-(2**62) - 5, 3]])
    rest = integer_rest(whole)
    assert [int(a) + int(b) for a, b in zip(whole[:, 0].astype(float), rest[:, 0], strict=True)] == whole[:, 0].tolist()
    assert (rest[:, 1] == 0).all() and integer_rest(whole[:, 1:]) is None and integer_rest(whole.astype(float)) is None
    largest = np.array([[2**64 - 1], [2**63]], dtype=np.uint64)
    assert integer_rest(largest).tolist() == [[-1.0], [0.0]]
    assert integer_rest(np.array([[2**63 - 1], [0]])).tolist() == [[-1.0], [0.0]]


@pytest.mark.parametrize("kind", [list, tuple, "arrow"])
def test_tables_of_any_kind_are_taken(kind: object) -> None:
    y = np.sin(np.arange(60) / 9)
    X = [[NANOSECONDS + i] for i in range(60)]
    if kind == "arrow":
        given = pytest.importorskip("pyarrow").table({"t": np.arange(60.0)})
    else:
        given = kind(map(kind, X))  # type: ignore[operator]
    model = GPRegressor(init=Hyperparameters(0.05, 1.0, [0.5]), n_steps=0, random_state=0).fit(given, y)
    assert np.abs(model.predict(given) - y).max() < 0.2


def test_a_column_of_lost_digits_does_no_harm() -> None:
    """Ten float64 numbers about 1.7e18 are told, and count as one; beside integers whose digits are kept, too."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=80), 1.7e18 + 256.0 * rng.integers(0, 10, 80)], 1)
    with pytest.warns(UserWarning, match="column 1 of X varies by"):
        scaler = Standardizer.fit(X, X[:, 0])
    assert np.abs(scaler.x(X)[:, 1]).max() < 1e-6
    stamps = np.stack([NANOSECONDS + rng.integers(0, 1000, 80), np.zeros(80, dtype=int)], 1)
    inputs, rest = stamps.astype(float), integer_rest(stamps)
    inputs[:, 1] = rng.choice([0.3, 0.1 + 0.2], 80)
    assert np.abs(Standardizer.fit(inputs, X[:, 0], rest).x(inputs, rest)[:, 1]).max() < 1e-6


def test_a_column_that_float64_has_few_numbers_for_is_told() -> None:
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=50), 1e16 + 64.0 * rng.integers(0, 20, 50)], 1)
    with pytest.warns(UserWarning, match=r"column 1 of X varies by .* about 1e\+16.*digits are lost.*pass integers"):
        scaler = Standardizer.fit(X, X[:, 0])
    assert scaler.x(X).std(0) == pytest.approx([1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        constant = Standardizer.fit(np.stack([X[:, 0], np.full(50, 0.1 + 0.2)], 1), X[:, 0])
    assert constant.x_scale[1] == 1.0


# -- far inputs -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [{}, {"solver": "cg", "dtype": "float32"}, {"solver": "cholesky"}], ids=str)
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_far_from_all_data_the_prior_is_back(kernel: str, settings: dict) -> None:
    """1e20 and 9.97e36 are codes for missing values; 1e300 is infinite in float32."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (520, 2))
    y = 3.0 + np.sin(X[:, 0])
    model = GPRegressor(
        kernel, init=Hyperparameters(0.1, 1.5, [1.0, 700.0]), n_steps=0, random_state=0, **settings
    ).fit(X, y)
    far = np.array([[1e20, 0], [9.97e36, 0], [-1e300, 1e300], [0, 1e38], [1e8, 0], [-1e308, 1e308]])
    mean, std = model.predict(far, return_std=True)
    np.testing.assert_allclose(mean, y.mean(), rtol=1e-6)
    prior = y.std() * (1.5**2 + 0.1**2) ** 0.5
    np.testing.assert_allclose(std, prior, rtol=1e-6 if model.posterior_.exact else 0.4)  # else of 64 functions
    assert np.isfinite(model.sample_y(far, 3)).all() and np.isfinite(model.predict(far, return_cov=True)[1]).all()
    near = model.predict(X[:3])
    np.testing.assert_allclose(model.predict(np.r_[far, X[:3]])[-3:], near, rtol=1e-5)


def test_a_prediction_that_is_no_number_is_an_error() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (30, 1))
    model = GPRegressor(n_steps=1, random_state=0).fit(X, X[:, 0])
    model.scaler_ = Standardizer(model.scaler_.x_mean, model.scaler_.x_scale, 0.0, 1e308)
    with pytest.raises(FloatingPointError, match="prediction of row 0, counted from 0, is not a finite number"):
        model.predict([[50.0]], return_cov=True)


# -- the std from samples ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "d", "noise", "length"),
    [("rbf", 5, 1e-3, 1.5), ("rbf", 8, 1e-4, 5.0), ("matern52", 3, 1e-3, 1.5), ("matern32", 2, 1e-4, 5.0),
     ("matern32", 1, 1e-4, 5.0), ("matern12", 1, 1e-4, 5.0), ("matern32", 20, 1e-2, 5.0)],
)  # fmt: skip
def test_random_features_know_what_the_data_leave_open(kernel: str, d: int, noise: float, length: float) -> None:
    """The predictive std of infinitely many functions of 2,000 features over the exact one, over three draws: within
    12% as a root mean square and 6% in the median. What the functions' number adds is left out."""
    rng = np.random.default_rng(0)
    x, x_new = (torch.tensor(rng.uniform(-1.7, 1.7, (n, d)) / length) for n in (500, 40))

    def k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return KERNELS[kernel].profile(torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"))

    H, cross = k(x, x) + noise**2 * torch.eye(500), k(x, x_new)
    W = torch.linalg.solve(H, cross)
    exact = (1 - (cross * W).sum(0)).clamp_min(0) + noise**2
    logs = []
    for seed in range(3):
        prior = FeaturePrior.draw(KERNELS[kernel], d, 2000, 1, generator=torch.Generator().manual_seed(seed))
        at, at_new = x @ prior.frequencies.T, x_new @ prior.frequencies.T
        sin, cos = (part(at_new) - W.T @ part(at) for part in (torch.sin, torch.cos))
        amplitudes = _amplitudes(kernel, d, prior.frequencies)
        latent = ((sin.square() + cos.square()) * amplitudes).mean(1) + noise**2 * W.square().sum(0)
        logs.append(0.5 * ((latent + noise**2) / exact).log())
    off = torch.cat(logs)
    assert float(off.square().mean().sqrt()) <= 0.12 and abs(float(off.median())) <= 0.06


def _amplitudes(kernel: str, d: int, frequencies: torch.Tensor) -> torch.Tensor:
    """p/q of frequencies of which half are from p and half from p stretched, in equal parts."""
    p = KERNELS[kernel].spectral_log_density
    scales = KERNELS[kernel].tail_scales(d)
    log_q = [p(frequencies) - np.log(2)]
    log_q += [p(frequencies / c) - d * np.log(c) - np.log(2 * len(scales)) for c in scales]
    return (p(frequencies) - torch.stack(log_q).logsumexp(0)).exp()
