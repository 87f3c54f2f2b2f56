"""Several targets by their names and units: what comes later has to mean the same targets, rows and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning

from warmgp import GPRegressor
from warmgp.estimator.scorers import crps_scorer

pytestmark = pytest.mark.filterwarnings("ignore:the hyperparameters that init gives do not fit")

N, NAMES = 120, ["a", "b", "c"]
SETTINGS: dict[str, Any] = {"kernel": "matern32", "n_probes": 8, "n_features": 100, "n_steps": 4, "random_state": 0}
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-2, 2, (N, 2)), RNG.uniform(-2, 2, (30, 2))
Y = np.stack([np.sin(2 * X[:, 0]), 100 + 10 * np.cos(2 * X[:, 1]), 0.01 * X[:, 0] * X[:, 1] - 3], 1)
Y += 0.1 * RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.01]
GAPS = Y.copy()
GAPS[:30, 0] = GAPS[90:, 1] = np.nan
GAPS[7] = np.nan  # nobody knows anything there


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor(**SETTINGS, solver="cg", tol=1e-4).fit(X, pd.DataFrame(Y, columns=NAMES))


@pytest.fixture(scope="module")
def gappy() -> GPRegressor:
    return GPRegressor(**SETTINGS, solver="cg", tol=1e-4).fit(X, pd.DataFrame(GAPS, columns=NAMES))


@pytest.mark.cpu
def test_missing_values_are_missing_however_a_table_has_them(gappy: GPRegressor) -> None:
    """NA of pandas' own types and None, too; rows without any value are no rows with weights."""
    table = pd.DataFrame(GAPS, columns=NAMES)
    for one in (table.astype("Float64"), table.astype(object).where(table.notna(), None)):
        found = GPRegressor(**SETTINGS, solver="cg", tol=1e-4).fit(X, one)
        np.testing.assert_array_equal(found.predict(NEW), gappy.predict(NEW))
    assert gappy.posterior_.noise is None and all(one.posterior.noise is None for one in gappy.patterns_)
    with pytest.raises(ValueError, match="y: 1 of 120 rows have the value of any target, and at least two are needed"):
        GPRegressor(**SETTINGS).fit(X, table[3:4].reindex(range(N)))
    with pytest.raises(ValueError, match="y contains NaN in row 0"):
        GPRegressor(**SETTINGS).fit(X, table["a"].astype("Float64"))


def test_hyperparameters_of_several_targets_know_the_units_of_inputs(model: GPRegressor, tmp_path: Path) -> None:
    """Half the range of an input has half its spread: a length scale in units of X stays what it was."""
    half = X[:, 0] > 0
    settings = SETTINGS | {"init": model.hyperparameters_, "n_steps": 0}
    for targets in (Y, Y[:, 1]):  # several, and one
        other = GPRegressor(**settings).fit(X[half], targets[half])
        assert other.length_scales_ == pytest.approx(model.length_scales_, rel=1e-6)
        assert float(other.hyperparameters_.noise_scale) == float(model.hyperparameters_.noise_scale)
    several = GPRegressor(**settings).fit(X[half], Y[half])
    several.save(tmp_path / "m")
    kept = GPRegressor.load(tmp_path / "m").init.units
    assert kept == model.hyperparameters_.units and kept.y is None
    one = GPRegressor(**settings | {"init": model.of_target("b").hyperparameters_}).fit(X[half], Y[half])
    assert one.length_scales_ == pytest.approx(model.length_scales_, rel=1e-6)


def test_targets_in_another_order_are_refused(model: GPRegressor, tmp_path: Path) -> None:
    """An update by numbers alone would give one target the values of another."""
    told, wrong = r"has the columns 'c', 'b', 'a', and the model was fitted to 'a', 'b', 'c'", ["c", "b", "a"]
    table = pd.DataFrame(Y, columns=NAMES)
    asked = {
        "y": [lambda y: model.update(X, y), lambda y: model.score(X, y), lambda y: model.log_predictive_density(X, y),
              lambda y: crps_scorer(model, X, y)],
        "held_out y": [lambda y: model.report(tmp_path / "page.html", (X, y))],
        "validation y": [lambda y: GPRegressor(**SETTINGS).fit(X, table, validation=(X, y))],
    }  # fmt: skip
    for name, calls in asked.items():
        for call in calls:
            with pytest.raises(ValueError, match=f"^{name} {told}: give these, in the same order"):
                call(table[wrong])
    assert model.score(X, table) == model.score(X, Y) > 0.5  # an array has no names
    plain = GPRegressor(**SETTINGS).fit(X, Y)
    assert plain.score(X, table[wrong]) < plain.score(X, table)  # it knows none
    with pytest.raises(ValueError, match="y contains NaN in row 0, column 'a'"):
        model.score(X, pd.DataFrame(GAPS, columns=NAMES))


def test_a_table_of_one_column_names_the_target() -> None:
    with pytest.warns(DataConversionWarning):
        found = GPRegressor(**SETTINGS).fit(X, pd.DataFrame(Y[:, :1], columns=["ozone"]))
    assert found.target_name_ == "ozone" and found.target_names_ == ()


def test_more_targets_than_functions_are_refused_unless_new_ones_are_drawn() -> None:
    """Function 8 of 8 is function 0 again: targets 0 and 8 would have one deviation."""
    y = np.random.default_rng(0).normal(size=(N, 9)) * 0.3 + np.sin(X[:, :1])
    many = GPRegressor(**SETTINGS).fit(X, y)
    with pytest.raises(ValueError, match=r"8 functions .* too few for 9 targets, .* random_state .* n_probes=9"):
        many.sample_y(NEW, 1)
    off = many.sample_y(NEW, 1, random_state=0)[..., 0] - many.predict(NEW)
    assert np.abs(off[:, 0] / off[:, 0].std() - off[:, 8] / off[:, 8].std()).max() > 0.1


def test_one_target_that_drifts_is_not_lost_among_the_others() -> None:
    """Over ten targets its loss is a tenth: below what is said to be far."""
    rng = np.random.default_rng(4)
    names = [f"t{j}" for j in range(10)]
    y = pd.DataFrame(np.sin(2 * X[:, :1]) + 0.2 * rng.normal(size=(N, 10)), columns=names)
    new = y[90:].assign(t7=y["t7"][90:] + 0.3 * rng.normal(size=30))
    settings = SETTINGS | {"n_steps": 40, "solver": "cholesky"}
    model = GPRegressor(**settings).fit(X[:90], y[:90])
    with pytest.warns(UserWarning, match="the 30 new rows of 't7' are .* nats a row less likely"):
        model.update(X[90:], new)
    done = model.updates_[-1]
    assert done.drifted and done.loss < 0.25
    assert not GPRegressor(**settings).fit(X[:90], y[:90]).update(X[90:], y[90:]).updates_[-1].drifted
