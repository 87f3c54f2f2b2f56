"""Places on the globe: no edge anywhere, one length scale, and the exact process on straight distances."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gp_truth
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator import prepare, start
from warmgp.files.format import FileError, read, write
from warmgp.planning.planner import plan_for
from warmgp.planning.request import Request
from warmgp.training.initialisation import subset_heuristic
from warmgp.training.local_start import LocalStart, local_start
from warmgp.training.state import TrainingOptions

PLACE = {(0, 1): "geographic"}
FAST: dict[str, Any] = {"n_steps": 8, "n_features": 100, "n_probes": 8, "random_state": 0, "device": "cpu"}


def sphere(X: np.ndarray) -> np.ndarray:
    """Points of the unit sphere from degrees, written apart from the library."""
    north, east = np.deg2rad(X[:, 0]), np.deg2rad(X[:, 1])
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], 1)


def world(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Places all over the globe and a smooth function of them, with noise."""
    rng = np.random.default_rng(seed)
    X = np.stack([np.rad2deg(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)], 1)
    p = sphere(X)
    return X, 10 + 3 * np.sin(3 * p[:, 0]) + 2 * p[:, 1] * p[:, 2] + 0.2 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted() -> GPRegressor:
    return GPRegressor(columns=PLACE, **FAST).fit(*world())


def close(model: GPRegressor, other: GPRegressor, here: np.ndarray, there: np.ndarray, of_a_std: float = 1e-5) -> None:
    """Whether two models say the same, each of its own places."""
    (mean, std), (its_mean, its_std) = model.predict(here, return_std=True), other.predict(there, return_std=True)
    assert np.abs(mean - its_mean).max() <= of_a_std * std.min()
    assert np.abs(std - its_std).max() <= of_a_std * std.min()


# -- no edges --------------------------------------------------------------------------------------------------------
def test_whole_turns_of_longitudes_change_nothing(fitted: GPRegressor) -> None:
    X, y = world()
    moved = X + 360.0 * np.stack([np.zeros(len(X)), np.arange(len(X)) % 3 - 1], 1)
    close(fitted, GPRegressor(columns=PLACE, **FAST).fit(moved, y), X, moved)
    close(fitted, fitted, X, moved)


def test_a_turn_about_the_pole_changes_nothing(fitted: GPRegressor) -> None:
    X, y = world()
    turned = X + np.array([0.0, 77.0])
    close(fitted, GPRegressor(columns=PLACE, **FAST).fit(turned, y), X, turned)


def test_a_pole_is_one_place_whatever_its_longitude(fitted: GPRegressor) -> None:
    poles = np.array([[90.0, 0.0], [90.0, 123.0], [90.0 - 1e-9, -60.0]])
    mean, std = fitted.predict(poles, return_std=True)
    assert np.ptp(mean) < 1e-6 * std.min() and np.ptp(std) < 1e-6 * std.min()


def test_a_gap_across_the_date_line_is_bridged() -> None:
    """Data on both sides of 180° predict what is between, as they do on the other side of the globe; plain degrees,
    for which the sides are the two ends of the world, do not, and jump where the world ends."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(-30, 30, 300), rng.uniform(-40, 40, 300)], 1)
    y = np.cos(X[:, 1] / 12) + np.cos(X[:, 0] / 15) + 0.05 * rng.normal(size=300)
    gap = np.abs(X[:, 1]) < 8
    across = X + np.array([0.0, 180.0])
    across[:, 1] -= 360.0 * (across[:, 1] > 180)
    line = np.stack([np.linspace(-30, 30, 20), np.full(20, 180.0)], 1)
    models, errors, jumps = {}, {}, {}
    for name, inputs, columns in (
        ("globe", across, PLACE),
        ("elsewhere", X, PLACE),
        ("plain", across, None),
        ("plain elsewhere", X, None),
    ):
        model = GPRegressor(columns=columns, **{**FAST, "n_steps": 20}).fit(inputs[~gap], y[~gap])
        models[name], errors[name] = model, float(np.sqrt(np.mean((model.predict(inputs[gap]) - y[gap]) ** 2)))
        jumps[name] = float(np.abs(model.predict(line) - model.predict(line * [1.0, -1.0])).max())
    close(models["globe"], models["elsewhere"], across[gap], X[gap])
    assert errors["globe"] < 1.1 * errors["plain elsewhere"] and errors["plain"] > 1.5 * errors["globe"]
    assert jumps["globe"] < 1e-9 and jumps["plain"] > 0.1


# -- the exact process -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("standardize", [True, False])
def test_predictions_are_those_of_a_dense_process_on_chords(standardize: bool) -> None:
    X, y = world(90)
    depth = np.random.default_rng(1).uniform(0, 500, 90)
    y = y - y.mean() + 0.01 * depth
    table = np.stack([X[:, 0], depth, X[:, 1]], 1)
    init = Hyperparameters.from_vector(torch.tensor([0.2, 1.1, 0.8, 0.8, 0.8, 40.0 if not standardize else 2.0]))
    model = GPRegressor(
        columns={(0, 2): "geographic"}, standardize=standardize, init=init, **{**FAST, "n_steps": 0}
    ).fit(table[:60], y[:60])
    p = sphere(X)
    unit = np.sqrt(p[:60].var(0).sum() / 2) if standardize else 1.0
    level = depth[:60].std() if standardize else 1.0
    inputs = torch.tensor(np.concatenate([p / unit, depth[:, None] / level], 1))
    centre, scale = (y[:60].mean(), y[:60].std()) if standardize else (0.0, 1.0)
    mean, covariance = gp_truth.posterior(
        "matern32", inputs[:60], torch.tensor((y[:60] - centre) / scale), inputs[60:], init
    )
    std = (covariance.diagonal() + init.noise_scale**2).sqrt().numpy() * scale
    found, its_std = model.predict(table[60:], return_std=True)
    np.testing.assert_allclose(found, centre + scale * mean.numpy(), atol=1e-8 * std.min())
    np.testing.assert_allclose(its_std, std, rtol=1e-8)


# -- one length scale ------------------------------------------------------------------------------------------------
def tied_equal(model: GPRegressor) -> None:
    """Whether the three length scales of a place are one number in all steps, and none stayed where it began."""
    lengths = [record.length_scales[:3] for record in model.history_]
    assert all(len(set(three)) == 1 for three in [*lengths, tuple(model.hyperparameters_.length_scales[:3].tolist())])
    assert len({three[0] for three in lengths}) == len(lengths) > 1


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "cholesky"},
        {"solver": "cg", "dtype": "float32", "learning_rate": 0.1},
        {"solver": "ap", "gradient": "standard"},
        {"solver": "cg", "init": "sample"},
        {"solver": "cg", "init": "subset", "n_steps": 3},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_length_scales_of_a_place_stay_equal_to_the_bit(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "N_STEPS", 5)
    monkeypatch.setattr(start, "subset_heuristic", partial(subset_heuristic, n_steps=4, n_centroids=2))
    X, y = world(60)
    table = np.concatenate([X, np.random.default_rng(2).normal(size=(60, 1))], 1)
    model = GPRegressor(columns=PLACE, **{**FAST, "n_steps": 5, **settings}).fit(table, y)
    tied_equal(model)
    assert len(set(model.hyperparameters_.length_scales.tolist())) == 2


def test_a_shared_length_scale_takes_the_steps_of_a_single_one(fitted: GPRegressor) -> None:
    """The slope of a group is that of its one number: training with ard=False, where there is but one, is the same."""
    one = GPRegressor(columns=PLACE, ard=False, **FAST).fit(*world())
    assert one.hyperparameters_.length_scales.numel() == 1
    single = one.hyperparameters_.vector[[0, 1, 2, 2, 2]]
    np.testing.assert_allclose(fitted.hyperparameters_.vector, single, rtol=1e-8)
    gains = [[record.gain for record in model.history_] for model in (fitted, one)]
    np.testing.assert_allclose(*gains, rtol=1e-6)


def test_groups_of_near_points_move_tied_length_scales_together() -> None:
    X, y = world(80)
    x, y_ = torch.tensor(sphere(X)), torch.tensor((y - y.mean()) / y.std())
    model = GPRegressor(columns=PLACE, **FAST)
    options = TrainingOptions(model.plan(X).solver, model.plan(X).gradient, tied=(0, 0, 0))
    kernel = GPRegressor(**FAST).fit(X[:5], y[:5]).posterior_.kernel
    theta = local_start(
        x, y_, kernel, Hyperparameters.ones(3), LocalStart(4, 20, 10), generator=torch.Generator().manual_seed(0),
        tie=options.allowed,
    )  # fmt: skip
    assert len(set(theta.length_scales.tolist())) == 1 and float(theta.length_scales[0]) != 1.0


def test_summed_slopes_and_held_numbers() -> None:
    fast = GPRegressor(**FAST).plan(world()[0])
    options = TrainingOptions(fast.solver, fast.gradient, tied=(0, 1, 0, 2, 1))
    slope, theta = torch.arange(1.0, 8.0, dtype=torch.float64), Hyperparameters.ones(5)
    assert options.allowed(slope, theta).tolist() == [1, 2, 3 + 5, 4 + 7, 3 + 5, 6, 4 + 7]
    assert options.held(slope).tolist() == [1, 2, 3, 4, 3, 6, 4]
    plain = TrainingOptions(fast.solver, fast.gradient)
    assert plain.allowed(slope, theta) is slope


# -- tables, files ---------------------------------------------------------------------------------------------------
def test_columns_by_name_are_those_by_number(fitted: GPRegressor) -> None:
    X, y = world()
    table = pd.DataFrame(X, columns=["lat", "lon"])
    model = GPRegressor(columns={("lat", "lon"): "geographic"}, **FAST).fit(table, y, validation=(table[:9], y[:9]))
    np.testing.assert_array_equal(model.predict(table), fitted.predict(X))
    np.testing.assert_array_equal(model.sample_y(table, 2), fitted.sample_y(X, 2))
    assert model.n_features_in_ == 2 and model.feature_names_in_.tolist() == ["lat", "lon"]
    assert "rmse" in model.history_[0].metrics
    assert fitted.n_features_in_ == 2 and fitted.posterior_.x.shape == (120, 3)
    assert fitted.anisotropy_ is None


def test_files_and_pickles_keep_places(fitted: GPRegressor, tmp_path: Path) -> None:
    X, y = world()
    path = tmp_path / "m.safetensors"
    fitted.save(path)
    loaded = GPRegressor.load(path, "cpu")
    assert loaded.columns == PLACE and loaded.scaler_.columns == fitted.scaler_.columns and loaded.n_features_in_ == 2
    for model in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(model.predict(X[:, ::-1] / 2, True), fitted.predict(X[:, ::-1] / 2, True))
        with pytest.raises(ValueError, match="X, column 0, row 2, counted from 0, is 91, but latitudes"):
            model.predict([[0.0, 0.0], [90.0, 3.0], [91.0, 0.0]])
    np.testing.assert_array_equal(loaded.fit(X, y).predict(X), fitted.predict(X))
    tensors, content = read(path, "model")
    for wrong in ({"count": 3, "parts": []}, {"count": 2, "parts": [{"kind": "geographic", "columns": [0, 0]}]}):
        if wrong["count"] == 3:
            content = {**content, "feature_names": ["a", "b"]}
        write(tmp_path / "wrong.safetensors", "model", tensors, {**content, "columns": wrong})
        with pytest.raises(FileError, match=r"columns|feature_names"):
            GPRegressor.load(tmp_path / "wrong.safetensors", "cpu")


def test_a_resumed_fit_has_the_same_bits(fitted: GPRegressor, tmp_path: Path) -> None:
    X, y = world()

    def crash(record: Any, state: Any) -> None:
        if record.step == 4:
            raise RuntimeError("crash")

    settings = {**FAST, "columns": PLACE, "checkpoint": tmp_path / "c", "checkpoint_every": 2}
    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(callbacks=[crash], **settings).fit(X, y)
    with pytest.raises(ValueError, match="columns"):
        GPRegressor(**{**settings, "columns": None}).fit(X, y)
    seen: list[int] = []
    model = GPRegressor(callbacks=[lambda record, state: seen.append(record.step)], **settings).fit(X, y)
    assert seen == [5, 6, 7]
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


# -- what is refused -------------------------------------------------------------------------------------------------
def test_bad_places_are_refused_before_any_work() -> None:
    X, y = world(20)
    bad = X.copy()
    bad[3, 0] = 90.5
    for call in (lambda m: m.fit(bad, y), lambda m: m.plan(bad)):
        with pytest.raises(
            ValueError, match=r"X, column 0, row 3, counted from 0, is 90\.5, but latitudes are between"
        ):
            call(GPRegressor(columns=PLACE))
    with pytest.raises(ValueError, match="validation X, column 0, row 3"):
        GPRegressor(columns=PLACE, **FAST).fit(X, y, validation=(bad, y))
    for columns, message in (
        ("lat", "columns must be a dict"),
        ({(0, 1): "flat"}, "one of 'geographic'"),
        ({(0, 2): "geographic"}, "columns names 2, which X does not have"),
    ):
        with pytest.raises(ValueError, match=message):
            GPRegressor(columns=columns).fit(X, y)
        with pytest.raises(ValueError, match=message):
            GPRegressor(columns=columns).plan(X)


def test_initial_length_scales_fit_the_inputs_of_places() -> None:
    X, y = world(20)
    for lengths, message in (
        ([1.0, 1.0], r"2 entries but columns make 3 inputs \(3 for 0, 1\)"),
        ([1.0, 1.0, 2.0], r"length scales \[1.0, 1.0, 2.0\] for 0, 1, whose inputs share one"),
    ):
        init = Hyperparameters.from_vector(torch.tensor([0.1, 1.0, *lengths]))
        with pytest.raises(ValueError, match=message):
            GPRegressor(columns=PLACE, init=init, **FAST).fit(X, y)
    one = Hyperparameters.from_vector(torch.tensor([0.1, 1.0, 0.7]))
    tied_equal(GPRegressor(columns=PLACE, init=one, **FAST).fit(X, y))


def test_a_plan_counts_the_inputs_of_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair alone has three inputs, which is a map by the planner's rule: a plan is for what is trained on."""
    asked: list[Request] = []

    def noted(request: Request) -> Any:
        asked.append(request)
        return plan_for(request)

    monkeypatch.setattr(prepare, "plan_for", noted)
    X, y = world(20)
    GPRegressor(columns=PLACE, **FAST).plan(X)
    GPRegressor(columns=PLACE, **FAST).fit(np.concatenate([X, y[:, None]], 1), y)
    assert [(request.n, request.d) for request in asked] == [(20, 3), (20, 4)]
