"""Columns that are periods, dates, categories or have gaps: the exact process on inputs made by hand, and files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gp_truth
from warmgp import GPRegressor, Hyperparameters
from warmgp.files.format import FileError

FAST: dict[str, Any] = {"n_steps": 8, "n_features": 40, "n_probes": 8, "random_state": 0, "device": "cpu"}
COLUMNS: dict[Any, Any] = {"when": ("date", "year", "day"), "hour": ("periodic", 24), "colour": "category"}


def circle(t: Any, period: float) -> np.ndarray:
    """Points of the unit circle, written apart from the library."""
    angle = 2 * np.pi * np.asarray(t, dtype=float) / period
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def table(n: int = 70, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A date, an hour, a colour and a number, and a target that depends on all of them."""
    rng = np.random.default_rng(seed)
    day = np.round(rng.uniform(19000, 19700, n), 4)
    X = pd.DataFrame(
        {
            "when": pd.to_datetime(day, unit="D", origin="unix"),
            "hour": rng.uniform(0, 24, n),
            "colour": rng.choice(["red", "blue", "green"], n),
            "age": rng.normal(40, 10, n),
        }
    )
    y = np.cos(2 * np.pi * day / 365.2425) + np.sin(2 * np.pi * X["hour"] / 24) + (X["colour"] == "red") + X["age"] / 30
    return X, np.asarray(y + 0.1 * rng.normal(size=n))


def with_gaps(X: pd.DataFrame) -> pd.DataFrame:
    X = X.copy()
    for name, rows in {"age": [3, 9, 40], "colour": [5, 9], "when": [2, 60], "hour": [11]}.items():
        X.loc[rows, name] = None
    return X


def close(found: Any, truth: Any, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(found, truth, rtol=0, atol=tolerance)


# -- the exact process ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["periodic", "category"])
def test_a_fit_is_that_of_inputs_made_by_hand_with_one_length_scale(kind: str) -> None:
    """With ``ard=False`` all inputs made by hand share a length scale, as those of one thing do: the steps agree."""
    X, y = table()
    y = (y - y.mean()) / y.std()
    settings = {**FAST, "kernel": "matern52", "standardize": False, "n_steps": 25}
    name = {"periodic": "hour", "category": "colour"}[kind]
    by_hand = {
        "periodic": circle(X["hour"], 24),
        "category": np.stack([X["colour"] == value for value in ("blue", "green", "red")], 1).astype(float),
    }[kind]
    truth = GPRegressor(ard=False, **settings).fit(by_hand, y)
    model = GPRegressor(columns={name: COLUMNS[name]}, **settings).fit(X[[name]], y)
    lengths = model.hyperparameters_.length_scales
    assert lengths.numel() == by_hand.shape[1] and len(set(lengths.tolist())) == 1 and model.n_steps_ == 25
    close(lengths[0].item(), truth.hyperparameters_.length_scales.item())
    for found, its in zip(
        model.predict(X[[name]], return_std=True), truth.predict(by_hand, return_std=True), strict=True
    ):
        close(found, its)
    assert model.length_scales_.shape == (1,) and model.columns_.things == (name,)


def _days(X: pd.DataFrame) -> Any:
    return (X["when"] - pd.Timestamp(0)) / pd.Timedelta(days=1)


def inputs_by_hand(X: pd.DataFrame, train: int) -> np.ndarray:
    """All inputs of ``table`` with gaps, standardised by its first rows: everything written out."""
    day = _days(X)
    indicators = np.stack([X["colour"] == value for value in ("blue", "green", "red")], 1).astype(float)
    made = []
    for missing, part in (
        (X["when"].isna(), day.to_numpy()[:, None]),
        (X["when"].isna(), circle(day, 365.2425)),
        (X["when"].isna(), circle(day, 1.0)),
        (X["hour"].isna(), circle(X["hour"], 24.0)),
        (X["colour"].isna(), indicators),
        (X["age"].isna(), X["age"].to_numpy(float)[:, None]),
    ):
        missing = missing.to_numpy()
        known = part[:train][~missing[:train]]
        variance = known.var(0).sum()
        if missing[:train].any():
            part = np.where(missing[:, None], known.mean(0), part)
            part = np.concatenate([part, np.sqrt(variance) * missing[:, None]], 1)
        made.append((part - part[:train].mean(0)) / np.sqrt(part[:train].var(0).sum()))
    return np.concatenate(made, 1)


@pytest.mark.parametrize("gaps", [False, True])
def test_predictions_are_those_of_a_dense_process(gaps: bool) -> None:
    X, y = table(90)
    X = with_gaps(X) if gaps else X
    X.loc[80, "colour"] = "violet"  # no indicator at all
    settings = {**FAST, "missing": "mean", "unknown_category": "zero", "kernel": "matern32"}
    model = GPRegressor(columns=COLUMNS, **settings).fit(X[:60], y[:60])
    things = ["when", "when: year", "when: day", "hour", "colour", "age"]
    assert list(model.columns_.things) == things and model.length_scales_.shape == (6,)
    if not gaps:
        standardised = model.hyperparameters_.length_scales[[0, -1]].numpy()
        close(model.length_scales_[[0, 5]], standardised * [np.std(_days(X[:60])), X["age"][:60].std(ddof=0)])
    assert (model.length_scales_ > 0).all() and len(set(model.hyperparameters_.length_scales.tolist())) <= len(things)
    later = X[60:] if not gaps else X[60:].fillna({"when": X["when"].iloc[0]})
    x = torch.tensor(inputs_by_hand(pd.concat([X[:60], later]), 60))
    assert x.shape[1] == model.posterior_.x.shape[1]
    centre, scale = y[:60].mean(), y[:60].std()
    theta = model.hyperparameters_
    mean, covariance = gp_truth.posterior("matern32", x[:60], torch.tensor((y[:60] - centre) / scale), x[60:], theta)
    found, std = model.predict(later, return_std=True)
    close(found, centre + scale * mean.numpy())
    close(std, scale * (covariance.diagonal() + theta.noise_scale**2).sqrt().numpy())


def test_midnight_is_near_midnight() -> None:
    """Predictions from the evening alone hold for a minute past midnight; plain hours go back to the mean there."""
    rng = np.random.default_rng(0)
    hour = rng.uniform(15, 24, 80)
    X, y = hour[:, None], 3 + np.cos(2 * np.pi * hour / 24)
    model = GPRegressor(columns={0: ("periodic", 24)}, **{**FAST, "n_steps": 30}).fit(X, y)
    late, early = model.predict([[23 + 59 / 60], [1 / 60]])
    assert abs(late - 4) < 0.01 and abs(early - 4) < 0.01
    plain = GPRegressor(**{**FAST, "n_steps": 30}).fit(X, y).predict([[1 / 60]])[0]
    assert abs(plain - 4) > 0.3


def test_a_category_of_many_values() -> None:
    """40 values with an effect each, ten rows a value: nearly all of the variance, with one length scale."""
    rng = np.random.default_rng(0)
    shop = rng.integers(0, 40, 500)
    t = rng.uniform(-2, 2, 500)
    y = rng.normal(size=40)[shop] + np.sin(2 * t) + 0.1 * rng.normal(size=500)
    X = pd.DataFrame({"shop": [f"shop {k}" for k in shop], "t": t})
    model = GPRegressor(columns={"shop": "category"}, **{**FAST, "n_steps": 40}).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.97 and len(model.length_scales_) == 2


# -- gaps and new values ----------------------------------------------------------------------------------------------
def test_a_gap_that_training_did_not_have_is_refused_by_row_and_column() -> None:
    X, y = table()
    model = GPRegressor(columns=COLUMNS, missing="mean", **FAST).fit(X.assign(age=with_gaps(X)["age"]), y)
    model.predict(X.assign(age=np.nan))
    with pytest.raises(ValueError, match=r"NaN in row 11, column 'hour'.*fill in or leave out.*No row of the training"):
        model.predict(X.assign(hour=with_gaps(X)["hour"]))
    with pytest.raises(ValueError, match=r"NaN in row 5, column 'colour'.*1 more cells"):
        model.predict(X.assign(colour=with_gaps(X)["colour"]))
    with pytest.raises(ValueError, match="infinity in row 0, column 'age'"):
        model.predict(X.assign(age=np.inf))
    with pytest.raises(ValueError, match=r"NaN in row 3, column 'age'.*let missing=\"mean\" fill them in"):
        GPRegressor(columns=COLUMNS, **FAST).fit(with_gaps(X).assign(when=X["when"], hour=1.0, colour="a"), y)
    with pytest.raises(ValueError, match=r"column 'age', is missing in all 70 rows"):
        GPRegressor(columns=COLUMNS, missing="mean", **FAST).fit(X.assign(age=np.nan), y)


def test_masked_cells_are_missing_ones() -> None:
    X, y = table()
    plain = with_gaps(X)[["age"]].to_numpy(float)
    model = GPRegressor(missing="mean", **FAST).fit(plain, y)
    masked = GPRegressor(missing="mean", **FAST).fit(np.ma.masked_invalid(plain), y)
    np.testing.assert_array_equal(masked.predict(plain), model.predict(plain))


def test_a_new_value_is_named_or_has_no_indicator() -> None:
    X, y = table()
    model = GPRegressor(columns=COLUMNS, **FAST).fit(X, y)
    new = X[:3].assign(colour=["red", "violet", "pink"])
    message = r"X, column 'colour', row 1, counted from 0 \(and 1 more rows\), is 'violet'.*'blue', 'green', 'red'"
    with pytest.raises(ValueError, match=message):
        model.predict(new)
    mean = GPRegressor(columns=COLUMNS, unknown_category="zero", **FAST).fit(X, y).predict(new)
    known = model.predict(X[:3].assign(colour="red"))
    assert abs(mean[0] - known[0]) < 1e-8 and (np.abs(mean[1:] - known[1:]) > 0.01).all()


def test_declared_values_are_known() -> None:
    """A category of pandas may have values that no training row has: they are as far from the others as these are."""
    X, y = table()
    some = X["colour"] != "red"
    X["colour"] = pd.Categorical(X["colour"], categories=["blue", "green", "red"])
    model = GPRegressor(columns=COLUMNS, **FAST).fit(X[some], y[some])
    bare = X.assign(colour=X["colour"].astype(object))
    truth = GPRegressor(columns=COLUMNS, **FAST).fit(bare[some], y[some])
    close(model.predict(bare[some]), truth.predict(bare[some]), 1e-6)
    assert np.isfinite(model.predict(bare)).all()


# -- tables of other kinds, files, scikit-learn ------------------------------------------------------------------------
def test_other_tables_say_the_same() -> None:
    polars = pytest.importorskip("polars")
    X, y = table()
    X = with_gaps(X)
    truth = GPRegressor(columns=COLUMNS, missing="mean", **FAST).fit(X, y).predict(X)
    written = X.assign(when=X["when"].dt.strftime("%Y-%m-%dT%H:%M:%S.%f"))
    numbered = {0: ("date", "year", "day"), 1: ("periodic", 24), 2: "category"}
    for columns, one in (
        (COLUMNS, polars.from_pandas(X)),
        (COLUMNS, written),
        (numbered, X),
        (numbered, X.astype(object).to_numpy()),
        (numbered, X.astype(object).to_numpy().tolist()),
    ):
        close(GPRegressor(columns=columns, missing="mean", **FAST).fit(one, y).predict(one), truth)


def test_files_pickles_and_clones(tmp_path: Path) -> None:
    X, y = table()
    X = with_gaps(X)
    model = GPRegressor(columns=COLUMNS, missing="mean", unknown_category="zero", **FAST).fit(X, y)
    file = tmp_path / "m.safetensors"
    model.save(file)
    truth = model.predict(X, return_std=True)
    for again in (GPRegressor.load(file, "cpu"), pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)):
        np.testing.assert_array_equal(again.predict(X, return_std=True), truth)
        np.testing.assert_array_equal(again.predict(X.assign(colour="violet")), model.predict(X.assign(colour="mauve")))
        assert again.get_params()["missing"] == "mean" and (again.length_scales_ == model.length_scales_).all()
    assert GPRegressor.load(file, "cpu").columns == {**COLUMNS, "hour": ("periodic", 24.0)}


def test_a_resumed_fit_ends_at_the_same_numbers(tmp_path: Path) -> None:
    X, y = table()
    X, settings = with_gaps(X), {**FAST, "columns": COLUMNS, "missing": "mean", "checkpoint_every": 1}

    def stop(record: Any, _: Any) -> bool:
        return bool(record.step == 3)

    truth = GPRegressor(**settings).fit(X, y).predict(X)
    file = tmp_path / "c.ckpt"
    GPRegressor(**settings, checkpoint=file, callbacks=[stop]).fit(X, y)
    with pytest.raises(FileError, match="columns"):
        GPRegressor(**{**settings, "columns": {**COLUMNS, "hour": ("periodic", 12)}}, checkpoint=file).fit(X, y)
    resumed = GPRegressor(**settings, checkpoint=file).fit(X, y)
    np.testing.assert_array_equal(resumed.predict(X), truth)


def test_pipelines_and_cross_validation() -> None:
    X, y = table()
    model = GPRegressor(columns=COLUMNS, missing="mean", **{**FAST, "n_steps": 2})
    pipe = make_pipeline(FunctionTransformer(), model)
    found = cross_val_predict(pipe, X.assign(age=with_gaps(X)["age"]), y, cv=2)  # both halves lack some
    assert found.shape == (70,) and np.isfinite(found).all()
    assert model.__sklearn_tags__().input_tags.allow_nan and not GPRegressor().__sklearn_tags__().input_tags.allow_nan


def test_plan_and_validation_read_the_same_table() -> None:
    X, y = table()
    model = GPRegressor(columns=COLUMNS, missing="mean", **FAST)
    assert "70 points" in str(model.plan(with_gaps(X)))
    model.fit(with_gaps(X), y, validation=(with_gaps(X)[:20], y[:20]))
    assert model.history_[-1].metrics["rmse"] > 0
    with pytest.raises(ValueError, match=r"validation X, column 'colour', row 0, counted from 0.*'violet'"):
        model.fit(X, y, validation=(X.assign(colour="violet"), y))


def test_a_trend_has_a_term_for_every_value_but_the_first() -> None:
    X, y = table()
    model = GPRegressor(columns={"colour": "category"}, trend="linear", **FAST).fit(X[["colour", "age"]], y)
    assert model.trend_ is not None and model.trend_.names == ("1", "colour: green", "colour: red", "age")
    with pytest.raises(ValueError, match=r"trend names the column 'colour', which is part of the category \(colour\)"):
        GPRegressor(columns={"colour": "category"}, trend=["colour"], **FAST).fit(X[["colour", "age"]], y)
    with pytest.raises(ValueError, match="'quadratic' is not possible with colour"):
        GPRegressor(columns={"colour": "category"}, trend="quadratic", **FAST).fit(X[["colour", "age"]], y)
    dated = GPRegressor(columns={"when": "date"}, trend=["when"], **FAST).fit(X[["when", "age"]], y)
    assert dated.trend_ is not None and dated.trend_.names == ("1", "when")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"missing": "median"}, "missing must be 'error' or 'mean', got 'median'"),
        ({"missing": None}, "missing must be"),
        ({"unknown_category": "nearest"}, "unknown_category must be 'error' or 'zero', got 'nearest'"),
        ({"columns": {"hour": ("periodic", -1)}}, r"columns\['hour'\]: the period must be a number above 0"),
        ({"columns": {"hours": ("periodic", 24)}}, "columns names 'hours', which X does not have: did you mean 'hour'"),
        ({"columns": {"hour": "date"}}, r"X, column 'hour', row 0.*is not a date such as 2024-03-01"),
        ({"init": Hyperparameters.ones(3)}, r"3 entries but columns make 4 inputs \(1 for hour, 3 for colour\)"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    X, y = table(20)
    with pytest.raises(ValueError, match=message):
        GPRegressor(**{**FAST, "columns": {"colour": "category"}, **settings}).fit(X[["hour", "colour"]], y)
