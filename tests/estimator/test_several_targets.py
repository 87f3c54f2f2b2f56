"""Several targets in one model: each is as if it had been fitted alone at the same hyperparameters."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

from gp_truth import exact_prediction
from warmgp import GPRegressor
from warmgp.data.named_grids import grid
from warmgp.estimator.scorers import coverage_scorer, crps_scorer, log_density_scorer
from warmgp.estimator.variogram import variogram
from warmgp.files.format import FileError, read, write

pytestmark = pytest.mark.filterwarnings("ignore:the hyperparameters that init gives do not fit")

N, Q = 120, 3
SCALES, OFFSETS = np.array([1.0, 10.0, 0.01]), np.array([0.0, 100.0, -3.0])
SETTINGS: dict[str, Any] = {"kernel": "matern32", "n_probes": 8, "n_features": 100, "n_steps": 4, "random_state": 0}


def data(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    F = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]], 1)
    return X, (F + 0.1 * rng.normal(size=F.shape)) * SCALES + OFFSETS


X, Y = data()
NEW = np.random.default_rng(1).uniform(-2, 2, (30, 2))
GAPS = Y.copy()
GAPS[:30, 0] = GAPS[90:, 1] = np.nan
GAPS[7] = np.nan  # nobody knows anything there


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor(**SETTINGS, solver="cg", tol=1e-4).fit(X, pd.DataFrame(Y, columns=["a", "b", "c"]))


@pytest.fixture(scope="module")
def gappy() -> GPRegressor:
    return GPRegressor(**SETTINGS, solver="cg", tol=1e-4).fit(X, pd.DataFrame(GAPS, columns=["a", "b", "c"]))


def truth(model: GPRegressor, j: int, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return exact_prediction(x, y, NEW, "matern32", model.of_target(j).hyperparameters_.vector.numpy())


# -- as if alone -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["cholesky", "cg", "rap", "ap", "sgd"])
def test_means_and_stds_are_those_of_single_fits(solver: str) -> None:
    """Against a dense float64 truth, and against q fits at the same hyperparameters with the same functions."""
    settings = SETTINGS | {"solver": solver, "tol": 1e-4, "dtype": "float64"}
    several = GPRegressor(**settings).fit(X, Y)
    mean, std = several.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (30, Q) and several.converged_
    assert len(several.hyperparameters_.vector) == 4 and several.plan_.rule.n_targets == Q
    for j in range(Q):
        exact, spread = truth(several, j, X, Y[:, j])
        assert np.abs(mean[:, j] - exact).max() <= 0.01 * spread.min()
        assert std[:, j] == pytest.approx(spread, rel=1e-6 if solver == "cholesky" else 0.25)  # from 8 samples
        own = several.of_target(j).hyperparameters_
        alone = GPRegressor(**settings | {"init": own, "n_steps": 0}).fit(X, Y[:, j])
        its, its_std = alone.predict(NEW, return_std=True)
        assert np.abs(mean[:, j] - its).max() <= 0.01 * its_std.min()
        assert std[:, j] == pytest.approx(its_std, rel=0.01)


def test_the_model_of_one_target_says_what_all_of_them_say(model: GPRegressor) -> None:
    mean, std = model.predict(NEW, return_std=True)
    for j, name in enumerate(("a", "b", "c")):
        one = model.of_target(name)
        assert one.target_name_ == name and one.n_targets_ == 1 and one.y_train_.shape == (N,)
        found, spread = one.predict(NEW, return_std=True)
        assert found == pytest.approx(mean[:, j], rel=1e-5, abs=1e-5 * SCALES[j])
        assert spread == pytest.approx(std[:, j], rel=1e-5)
        assert one.loo_.rmse < 0.35 * SCALES[j] and len(one.diagnose().worst) > 0
        assert one.signal_std_ == pytest.approx(model.signal_std_[j]) and one.noise_std_ == model.noise_std_[j]
    assert model.of_target(np.int64(1)).target_name_ == "b"
    with pytest.raises(ValueError, match="one of the targets a, b, c, or its number, got 'd'"):
        model.of_target("d")
    for wrong in (3, -1, 1.5, None):
        with pytest.raises(ValueError, match=f"got {wrong}"):
            model.of_target(wrong)  # type: ignore[arg-type]


# -- predictions -----------------------------------------------------------------------------------------------------
def test_everything_predicted_has_a_column_for_each_target(model: GPRegressor) -> None:
    mean, std = model.predict(NEW, return_std=True)
    _, covariance = model.predict(NEW, return_cov=True)
    assert covariance.shape == (30, 30, Q)
    assert np.sqrt(np.einsum("iij->ij", covariance)) == pytest.approx(std, rel=1e-4)
    interval, quantiles = model.predict_interval(NEW, 0.9), model.predict_quantiles(NEW, [0.1, 0.5, 0.9])
    assert interval.shape == (30, Q, 2) and quantiles.shape == (30, Q, 3)
    assert interval[..., 1] - mean == pytest.approx(1.6448536 * std, rel=1e-6)
    assert quantiles[..., 1] == pytest.approx(mean)
    assert model.std_error(NEW).shape == (30, Q)
    density = model.log_predictive_density(X, Y)
    assert density.shape == (N, Q) and log_density_scorer(model, X, Y) == pytest.approx(density.mean())
    assert 0.5 < coverage_scorer(model, X, Y) <= 1 and crps_scorer(model, X, Y) < 0 < model.score(X, Y)
    blocks = model.predict_blocks(NEW, np.repeat([0, 1, 2], 10))
    assert blocks[0].shape == blocks[1].shape == (3, Q)
    assert blocks[0] == pytest.approx(mean.reshape(3, 10, Q).mean(1), rel=1e-4)
    assert isinstance(model.predict(torch.as_tensor(NEW)), torch.Tensor)


def test_functions_of_targets_are_independent(model: GPRegressor) -> None:
    """Means over functions are near the mean, and two targets of one function have nothing in common."""
    mean, spread = model.predict(NEW, return_std=True, include_noise=False)
    stored = model.sample_y(NEW, 8)
    new = model.sample_y(NEW, 300, random_state=3)
    assert stored.shape == (30, Q, 8) and new.shape == (30, Q, 300)
    z = (new - mean[..., None]) / spread[..., None]
    assert np.abs(z.mean(2)).max() < 0.35
    together = np.einsum("mks,mls->kl", z, z) / z[:, 0].size
    assert np.abs(together - np.diag(np.diag(together))).max() < 0.15 * np.diag(together).min()
    assert model.sample_y(NEW, 1, random_state=3)[:, 0, 0] == pytest.approx(
        model.sample_y(NEW, 1, random_state=3)[:, 0, 0]
    )
    one = model.sample_y(NEW, 1, random_state=5)[..., 0]
    assert np.abs(np.corrcoef(((one - mean) / spread).T)[0, 1]) < 0.9  # no copy of the other


def test_a_named_grid_has_variables_by_target(model: GPRegressor) -> None:
    xarray = pytest.importorskip("xarray")
    cells = grid(x0=(0, 1, 0.5), x1=(0, 1, 1))
    plain = GPRegressor(**SETTINGS, init=model.hyperparameters_).fit(X, Y)
    found = plain.predict(cells, return_std=True)
    assert isinstance(found, xarray.Dataset)
    assert set(found.data_vars) == {f"{what}_y{j}" for what in ("mean", "std") for j in range(3)}
    rows = np.stack([found["x0"].broadcast_like(found["mean_y1"]), found["x1"].broadcast_like(found["mean_y1"])], -1)
    assert found["mean_y1"].values.ravel() == pytest.approx(plain.predict(rows.reshape(-1, 2))[:, 1])
    ends = {f"{end}_y{j}" for end in ("lower", "upper") for j in range(3)}
    assert set(plain.predict_interval(cells).data_vars) == ends
    assert set(plain.predict_blocks(cells, points=2).data_vars) == set(found.data_vars)
    assert found.attrs["target"] == "y0, y1, y2" and found["std_y1"].values == pytest.approx(
        plain.of_target(1).predict(cells, return_std=True)["std"].values
    )
    asked: list[int] = []
    counting = plain.predict
    plain.predict = lambda *a, **k: asked.append(1) or counting(*a, **k)  # type: ignore[method-assign, func-returns-value]
    assert plain.predict(cells) is not None and len(asked) == 2  # the grid, and its rows once for all targets


# -- missing values --------------------------------------------------------------------------------------------------
def test_every_pattern_of_missing_values_has_a_solve_on_its_own_rows(gappy: GPRegressor) -> None:
    """Three patterns: c is known in 119 rows, which are the most; each target is as if fitted on its rows alone."""
    mean, std = gappy.predict(NEW, return_std=True)
    assert gappy.which_ == (2,) and [one.which for one in gappy.patterns_] == [(0,), (1,)] and gappy.converged_
    assert "hyperparameters come from the 119 rows in which 'c' is known" in str(gappy.plan_)
    for j in range(Q):
        there = ~np.isnan(GAPS[:, j])
        one = gappy.of_target(j)
        assert one.training_rows_.tolist() == np.flatnonzero(there).tolist()
        x = (X - gappy.scaler_.x_mean) / gappy.scaler_.x_scale  # of all rows, which exact_prediction would not know
        new = (NEW - gappy.scaler_.x_mean) / gappy.scaler_.x_scale
        theta = one.hyperparameters_.vector.numpy().copy()
        theta[2:] /= x[there].std(0)
        exact, spread = exact_prediction(x[there], GAPS[there, j], new, "matern32", theta)
        assert np.abs(mean[:, j] - exact).max() <= 0.02 * spread.min()
        assert std[:, j] == pytest.approx(spread, rel=0.3)
    assert gappy.sample_y(NEW, 2).shape == (30, Q, 2)
    value = sum(gappy.of_target(j).log_marginal_likelihood_value_ for j in range(Q))
    assert gappy.log_marginal_likelihood_value_ == pytest.approx(value, rel=1e-6)


def test_targets_that_lack_the_same_rows_are_one_pattern() -> None:
    y = Y.copy()
    y[:20, :2] = np.nan
    found = GPRegressor(**SETTINGS).fit(X, y)
    assert found.which_ == (0, 1) and found.patterns_[0].which == (2,) and found.predict(NEW).shape == (30, Q)
    assert found.posterior_.n_targets == 2 and len(found.posterior_.x) == N - 20


def test_many_patterns_are_refused_with_the_remedy() -> None:
    y = np.tile(Y, 4)[:, :10]
    y[np.arange(10), np.arange(10)] = np.nan
    with pytest.raises(ValueError, match=r"missing in 10 different sets of rows.*at most 8.*fit the targets apart"):
        GPRegressor(**SETTINGS).fit(X, y)
    y[8:10] = np.tile(Y, 4)[8:10, :10]  # nine patterns: eight, and those without gaps
    with pytest.raises(ValueError, match="missing in 9 different"):
        GPRegressor(**SETTINGS).fit(X, y)


def test_targets_that_do_not_share_a_kernel_are_warned_of() -> None:
    """One target is mostly noise, the other hardly has any: error bars cannot fit both."""
    y = np.column_stack([np.sin(X[:, 0]), np.sin(X[:, 0]) + 2 * np.random.default_rng(3).normal(size=N)])
    with pytest.warns(UserWarning, match=r"do not share one kernel well: .* off in 'y1', .* too narrow.*targets apart"):
        found = GPRegressor("matern32", random_state=0).fit(X, y)
    assert "share one kernel" in str(found.report_)
    assert "share one kernel" not in str(GPRegressor("matern32", random_state=0).fit(X, Y).report_)
    y[:20, 1] = np.nan  # hyperparameters are those of the other alone: the more is there to be said
    with pytest.warns(UserWarning, match=r"do not share one kernel well: .* off in 'y1', .* and .* in 'y0'"):
        GPRegressor("matern32", random_state=0).fit(X, y)


# -- what is kept ----------------------------------------------------------------------------------------------------
def test_files_and_pickles_hold_all_targets(model: GPRegressor, gappy: GPRegressor, tmp_path: Path) -> None:
    for k, one in enumerate((model, gappy)):
        one.save(tmp_path / f"{k}")
        for other in (GPRegressor.load(tmp_path / f"{k}"), pickle.loads(pickle.dumps(one))):
            np.testing.assert_array_equal(other.predict(NEW), one.predict(NEW))
            np.testing.assert_array_equal(other.predict(NEW, return_std=True)[1], one.predict(NEW, return_std=True)[1])
            assert other.target_names_ == ("a", "b", "c") and other.which_ == one.which_
            assert other.of_target("b").loo_.rmse == pytest.approx(one.of_target("b").loo_.rmse)


def test_a_file_whose_targets_do_not_add_up_is_refused(gappy: GPRegressor, tmp_path: Path) -> None:
    gappy.save(tmp_path / "m")
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"which": [0]}, "every target once"),
        ({"target_names": ["a", "a", "c"]}, "different names"),
        ({"patterns": []}, "every target once"),
        ({"patterns": [{"which": [0], "exact": False}, {"which": [3], "exact": False}]}, "every target once"),
    )
    for change, message in changes:
        tensors, content = read(tmp_path / "m", "model")
        write(tmp_path / "bad", "model", tensors, {**content, **change})
        with pytest.raises(FileError, match=message):
            GPRegressor.load(tmp_path / "bad")
    del tensors["pattern1_solution"]
    write(tmp_path / "bad", "model", tensors, content)
    with pytest.raises(FileError, match="lacks 'solution'"):
        GPRegressor.load(tmp_path / "bad")


def test_a_resumed_fit_is_the_same(tmp_path: Path) -> None:
    settings = SETTINGS | {"solver": "cg", "trend": "linear"}
    whole = GPRegressor(**settings).fit(X, Y)

    def enough(record: Any, state: Any) -> bool:
        return bool(state.step == 2)

    kept: dict[str, Any] = {"checkpoint": tmp_path / "c", "checkpoint_every": 1}
    GPRegressor(**settings, **kept, callbacks=[enough]).fit(X, Y)
    resumed = GPRegressor(**settings, **kept).fit(X, Y)
    np.testing.assert_array_equal(resumed.predict(NEW), whole.predict(NEW))
    with pytest.raises(ValueError, match="y"):
        GPRegressor(**settings, **kept).fit(X, Y[:, :2])


def test_an_update_goes_on_with_all_targets() -> None:
    first = GPRegressor(**SETTINGS, solver="cg", tol=1e-4).fit(X[:100], Y[:100])
    theta, scaler = first.posterior_.theta, first.scaler_  # in standardised units
    first.update(X[100:], Y[100:])
    assert first.y_train_.shape == (N, Q) and first.updates_[-1].added == 20 and not first.updates_[-1].drifted
    z = (Y - scaler.y_mean) / scaler.y_scale
    x, new = ((values - scaler.x_mean) / scaler.x_scale for values in (X, NEW))
    settings = SETTINGS | {"solver": "cholesky", "init": theta, "n_steps": 0, "standardize": False}
    again = GPRegressor(**settings).fit(x, z)
    found = (first.predict(NEW) - scaler.y_mean) / scaler.y_scale
    assert np.abs(found - again.predict(new)).max() < 0.02 * float(theta.noise_scale)
    with pytest.raises(ValueError, match=r"the model's 3 targets, \(2, 3\), got shape \(2,\)"):
        first.update(X[:2], Y[:2, 0])
    before = len(first.y_train_)
    first.forget([0, 1])
    assert first.y_train_.shape == (before - 2, Q)


def test_a_trend_of_each_target_is_that_of_a_single_fit() -> None:
    steep = Y + 5 * X[:, :1] * SCALES
    settings = SETTINGS | {"trend": "linear", "solver": "cholesky"}
    weight = np.random.default_rng(2).uniform(0.5, 2, N)
    several = GPRegressor(**settings).fit(X, steep, sample_weight=weight)
    far = np.array([[9.0, 9.0]])
    for j in range(Q):
        own = several.of_target(j)
        kept = settings | {"init": own.hyperparameters_, "n_steps": 0}
        alone = GPRegressor(**kept).fit(X, steep[:, j], sample_weight=weight)
        assert own.trend_.coefficients == pytest.approx(alone.trend_.coefficients, rel=1e-6)
        for there in (NEW, far):
            ours, theirs = several.predict(there, return_std=True), alone.predict(there, return_std=True)
            assert ours[0][:, j] == pytest.approx(theirs[0], rel=1e-7) and ours[1][:, j] == pytest.approx(theirs[1])
    with pytest.raises(AttributeError, match=r"trend_ is for one target.*of_target\('y0'\)"):
        _ = several.trend_


@pytest.mark.parametrize("init", ["climb", "near", "sample"])
def test_every_start_and_choice_takes_several_targets(init: str) -> None:
    found = GPRegressor(**SETTINGS | {"init": init, "kernel": "auto", "n_steps": 1}, anisotropy="rotated").fit(X, Y)
    assert found.score(X, Y) > 0.8 and found.anisotropy_ is not None
    held = GPRegressor(**SETTINGS).fit(X, Y, validation=(NEW, np.ones((30, Q)))).history_[0].metrics
    assert set(held) == {"rmse", "llh"} and np.isfinite(list(held.values())).all()


# -- what is for one target ------------------------------------------------------------------------------------------
def test_what_is_for_one_target_says_where_to_get_it(model: GPRegressor, gappy: GPRegressor) -> None:
    for ask in (lambda: model.loo_, model.diagnose, lambda: variogram(model)):
        with pytest.raises(ValueError, match=r"is for one target, and the model has 3: use model.of_target\('a'\)"):
            ask()
    assert not hasattr(model, "loo_")
    for change in (lambda: gappy.update(X[:2], Y[:2]), lambda: gappy.forget([0])):
        with pytest.raises(ValueError, match=r"fit it anew on all rows, or .* the models of single targets"):
            change()


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], np.ndarray, str]] = {
    "robust": ({"robust": True}, {}, Y, "robust=True weighs the rows of one: fit the targets apart"),
    "known errors": ({}, {"noise_variance": np.ones(N)}, Y, "noise_variance is in the units of one.*targets apart"),
    "trend with gaps": ({"trend": "linear"}, {}, GAPS, "some values are missing, which trend='linear' does not allow"),
    "constant": ({}, {}, Y * [1, 0, 1], "the target 'y1' is constant .*leave it out"),
    "one value": ({}, {}, np.where(np.arange(N)[:, None] > 0, Y * [1, np.nan, 1], Y), "'y1' has 1 values.*two are"),
    "infinity": ({}, {}, np.where(Y[3, 1] == Y, np.inf, Y), "y contains infinity in row 3, column 1"),
    "rows": ({}, {}, Y[:-1], "X has 120 and y has 119"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_several_targets_cannot_have_is_refused_before_training(case: str) -> None:
    settings, arguments, y, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        GPRegressor(**SETTINGS | settings).fit(X, y, **arguments)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two columns 'a'"):
        GPRegressor(**SETTINGS).fit(X, pd.DataFrame(Y[:, :2], columns=["a", "a"]))


# -- what they cost --------------------------------------------------------------------------------------------------
def test_ten_targets_take_about_the_products_of_one() -> None:
    """Ten columns beside 64 probes: as many products with H, of 74 columns instead of 65."""
    ten = np.tile(Y, 4)[:, :10] + 0.1 * np.random.default_rng(4).normal(size=(N, 10)) * np.tile(SCALES, 4)[:10]
    settings = SETTINGS | {"n_probes": 64, "solver": "cg"}
    one, several = (GPRegressor(**settings).fit(X, y) for y in (ten[:, 0], ten))
    taken = [sum(record.epochs for record in found.history_) for found in (one, several)]
    assert taken[1] <= 1.1 * taken[0]
    assert several.posterior_.solution.shape == (N, 74) and several.plan_.columns == 74


def test_the_measured_costs_are_within_what_is_promised() -> None:
    rows = json.loads((Path(__file__).parents[2] / "benchmarks/results/targets-cpu.json").read_text())["rows"]
    assert len(rows) >= 5 and all(row["ratio"] <= 1.3 and row["off"] <= 0.1 and row["converged"] for row in rows)


# -- scikit-learn ----------------------------------------------------------------------------------------------------
def test_scikit_learn_knows() -> None:
    tags = get_tags(GPRegressor()).target_tags
    assert tags.multi_output and tags.single_output
    one = GPRegressor(**SETTINGS)
    with pytest.warns(DataConversionWarning):  # as scikit-learn's own forests have it: one target, in one dimension
        assert one.fit(X, Y[:, :1]).predict(NEW).shape == (30,)
    assert cross_val_score(GPRegressor(**SETTINGS), X, Y, cv=2).min() > 0.3
