"""A diagnosis names what is wrong with a model and its data, by row and by column, and is silent where nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli_tools import refused, run
from warmgp import GPRegressor, Hyperparameters
from warmgp.estimator.dependence import ORDER, PREDICTION, explained
from warmgp.estimator.diagnosis import Diagnosis

FAST: dict[str, Any] = {"n_probes": 8, "n_features": 100, "random_state": 0}


def table(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A function of place and month, with noise of std 0.3."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"east": rng.uniform(0, 100, n), "north": rng.uniform(0, 50, n), "month": rng.integers(1, 13, n)})
    y = 2 * np.sin(X["east"] / 15) + np.cos(X["north"] / 8) + 0.3 * rng.normal(size=n)
    return X, y.to_numpy().copy()


def diagnosis(X: pd.DataFrame, y: np.ndarray, **more: Any) -> Diagnosis:
    return GPRegressor("matern52", **FAST, **more).fit(X, y).diagnose()


@pytest.fixture(scope="module")
def good() -> tuple[GPRegressor, Diagnosis]:
    X, y = table()
    model = GPRegressor("matern52", **FAST).fit(X, y)
    return model, model.diagnose()


def test_figures_are_those_of_the_left_out_rows(good: tuple[GPRegressor, Diagnosis]) -> None:
    model, found = good
    loo, n = model.loo_, 600
    assert found.rmse == pytest.approx(np.sqrt(np.mean((loo.y - loo.mean) ** 2))) and 0.25 < found.rmse < 0.4
    assert found.r2 == pytest.approx(1 - found.rmse**2 / np.var(loo.y))
    assert found.log_density == pytest.approx(loo.log_density.mean()) and found.exact and found.error == 0.0
    for level, z in {0.5: 0.67449, 0.8: 1.28155, 0.9: 1.64485, 0.95: 1.95996, 0.99: 2.57583}.items():
        assert found.coverage[level] == np.mean(np.abs(loo.y - loo.mean) <= z * loo.std)
        assert abs(found.coverage[level] - level) < 4 * np.sqrt(level * (1 - level) / n)
    assert found.pit.shape == (10,) and found.pit.sum() == pytest.approx(1) and found.pit_probability > 0.001
    worst = np.argmax(np.abs(loo.residual))
    assert found.worst[0].row == worst and found.worst[0].y == loo.y[worst] and len(found.worst) == 10
    sizes = [abs(one.residual) for one in found.worst]
    assert sizes == sorted(sizes, reverse=True)


def test_relevance_is_in_spreads_of_the_data(good: tuple[GPRegressor, Diagnosis]) -> None:
    model, found = good
    assert set(found.relevance) == {"east", "north", "month"} and list(found.relevance)[-1] == "month"
    spread = table()[0]["east"].std(ddof=0)
    assert found.relevance["east"] == pytest.approx(model.length_scales_[0] / spread, rel=1e-6)
    assert found.effects["month"] < 0.2 * model.noise_std_ < found.effects["east"]
    assert any(one.startswith("month: along these") for one in found.remarks)


def test_an_input_along_which_the_function_is_a_line_is_not_called_idle() -> None:
    """Its length scale is long, and the signal as large as it has to be: that is how a process draws a line."""
    X, y = table(300)
    line = Hyperparameters(0.1, 60.0, [100.0, 100.0, 5000.0])
    found = diagnosis(X, X["east"].to_numpy() / 10 + 0.1 * y, init=line, n_steps=0)
    assert found.relevance["east"] > 50 and found.effects["east"] > 1.0
    assert not any("east" in one.split(": along")[0] for one in found.remarks if "along these" in one)


def test_a_good_model_is_let_alone(good: tuple[GPRegressor, Diagnosis]) -> None:
    _, found = good
    assert not any(one.mean_seen or one.size_seen for one in found.dependences)
    assert [one.name for one in found.dependences] == ["east", "north", "month", ORDER, PREDICTION]
    assert not any(word in remark for remark in found.remarks for word in ("residuals", "error bars", "std from"))
    text = str(found)
    assert "600 rows" in text and "90%:" in text and all(len(line) <= 100 for line in text.splitlines())


def test_few_false_alarms_over_many_draws() -> None:
    """Of 200 draws without any pattern at most one is said to have one; a pattern of 4% of the variance is always."""
    rng = np.random.default_rng(0)
    alarms = missed = 0
    for _ in range(200):
        z, by = rng.normal(size=(2, 2000))
        share, p = explained(z, by)
        alarms += share > 0.01 and p < 0.001
        share, p = explained(z + 0.3 * np.sin(by), by)
        missed += not (share > 0.01 and p < 0.001)
    assert alarms <= 1 and missed == 0
    assert explained(np.ones(100), np.arange(100.0)) == (0.0, 1.0) == explained(np.arange(9.0), np.arange(9.0))


def test_an_outlier_is_named_by_its_row() -> None:
    X, y = table(300)
    y[217] += 6.0
    found = diagnosis(X, y)
    assert found.worst[0].row == 217
    (remark,) = [one for one in found.remarks if "217" in one]
    assert remark.startswith("1 row is") and "robust=True" in remark


def test_rows_are_numbered_as_in_the_data_of_the_user() -> None:
    X, y = table(300)
    y[217] += 6.0
    weight = np.ones(300)
    weight[:100] = 0.0
    found = GPRegressor("matern52", **FAST).fit(X, y, sample_weight=weight).diagnose()
    assert found.rows == 200 and found.worst[0].row == 217


def test_residuals_that_depend_on_an_input_are_said_to() -> None:
    """Hyperparameters that see no month, on data that have one: the remedy is named with its period."""
    X, y = table(500)
    y = y + np.sin(2 * np.pi * X["month"].to_numpy() / 12)
    blind = Hyperparameters(0.4, 1.0, [0.8, 1.0, 1000.0])
    found = diagnosis(X, y, init=blind, n_steps=0)
    seen = {one.name: one for one in found.dependences}
    assert seen["month"].mean_seen and seen["month"].of_mean > 0.3 and not seen["east"].mean_seen
    (remark,) = [one for one in found.remarks if "residuals depend on month" in one]
    assert '"month": ("periodic", 12)' in remark and 'trend=["month"]' in remark


def test_noise_that_grows_with_an_input_is_said_to() -> None:
    X, y = table(500)
    rng = np.random.default_rng(1)
    y = y + 0.03 * X["east"].to_numpy() * rng.normal(size=500)
    found = diagnosis(X, y, init=Hyperparameters(0.8, 1.0, [0.8, 1.0, 50.0]), n_steps=0)
    assert {one.name for one in found.dependences if one.size_seen} >= {"east"}
    assert any("the size of residuals depends on east" in one and "noise_variance=" in one for one in found.remarks)


def test_a_drift_over_the_rows_is_said_to_be_one() -> None:
    X, y = table(500)
    found = diagnosis(X, y + np.linspace(-1, 1, 500), init=Hyperparameters(0.4, 1.0, [0.8, 1.0, 50.0]), n_steps=0)
    assert any(f"residuals depend on {ORDER}" in one for one in found.remarks)
    assert found.in_turn > 0.3 and not any("follow each other" in one for one in found.remarks)  # said once


def test_rows_that_follow_each_other_alike_are_said_to() -> None:
    """A wave of ten rows, which groups of dozens of rows do not show."""
    X, y = table(500)
    wave = np.sin(2 * np.pi * np.arange(500) / 10)
    found = diagnosis(X, y + wave, init=Hyperparameters(0.5, 1.0, [0.8, 1.0, 50.0]), n_steps=0)
    assert found.in_turn > 0.3 and any("follow each other" in one for one in found.remarks)


@pytest.mark.parametrize(("times", "word"), [(0.4, "too small"), (2.5, "too wide")])
def test_error_bars_that_are_wrong_are_said_to_be(times: float, word: str) -> None:
    X, y = table(400)
    scale = np.std(y)
    wrong = Hyperparameters(0.3 * times / scale, 1.0, [0.8, 1.0, 50.0])
    found = diagnosis(X, y, init=wrong, n_steps=0)
    assert any(f"error bars are {word}" in one for one in found.remarks)
    assert (found.residual_std > 1.15) == (word == "too small")


def test_what_the_fit_remarked_comes_first() -> None:
    X, y = table(200)
    model = GPRegressor("matern52", noise_floor=1.5, n_steps=5, **FAST).fit(X, y)
    assert any("floor" in one for one in model.report_.remarks)
    assert model.diagnose().remarks[: len(model.report_.remarks)] == model.report_.remarks


def test_turned_inputs_are_told_along_and_across() -> None:
    X, y = table(200)
    model = GPRegressor("matern52", anisotropy="rotated", n_steps=3, **FAST).fit(X[["east", "north"]], y)
    assert set(model.diagnose().relevance) == {"along", "across"}


# -- the command line --------------------------------------------------------------------------------------------------
def test_the_command_line_diagnoses_a_model_file(
    tmp_path: Path, good: tuple[GPRegressor, Diagnosis], capsys: pytest.CaptureFixture[str]
) -> None:
    model, found = good
    path, out = tmp_path / "m.safetensors", tmp_path / "loo.csv"
    model.save(path)
    code, said, _ = run(capsys, "diagnose", path, "--out", out, "--likelihood")
    assert code == 0 and "600 rows, each predicted from all others" in said
    assert f"RMSE {found.rmse:.4g}" in said and f"likelihood {model.log_marginal_likelihood_value_:.6g} ± 0 " in said
    written = pd.read_csv(out)
    np.testing.assert_array_equal(written["row"], model.loo_.rows)
    np.testing.assert_allclose(written["mean"], model.loo_.mean, rtol=1e-9)
    np.testing.assert_allclose(written["residual"], model.loo_.residual, rtol=1e-6)


def test_the_command_line_refuses_before_it_works(
    tmp_path: Path, good: tuple[GPRegressor, Diagnosis], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.safetensors"
    good[0].save(path)
    refused(capsys, ["diagnose", path, "--out", path], ["the same file"])
    refused(capsys, ["diagnose", path, "--out", tmp_path / "loo.nc"], ["NetCDF"])
    refused(capsys, ["diagnose", path, "--out", tmp_path / "nowhere" / "loo.csv"], ["nowhere"])
    refused(capsys, ["diagnose", tmp_path / "none"], ["none"])


def test_a_model_without_a_fit_is_refused() -> None:
    for ask in ("loo_", "log_marginal_likelihood_value_", "log_marginal_likelihood_error_"):
        with pytest.raises(AttributeError, match="not fitted"):
            getattr(GPRegressor(), ask)
    with pytest.raises(AttributeError, match="not fitted"):
        GPRegressor().diagnose()
