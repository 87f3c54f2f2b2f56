"""What came of a plan: seconds, the start, where float64 took over, where variances come from, where it was loaded."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from warmgp import GPRegressor, StepRecord
from warmgp.estimator.report import Report, float64_takeover

FAST = {"n_features": 100, "n_probes": 4, "random_state": 0, "device": "cpu"}


def data(noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 1))
    return X, np.sin(6 * X[:, 0]) + noise * rng.normal(size=150)


def step(number: int, *notes: str) -> StepRecord:
    return StepRecord(number, 1.0, 1.0, (1.0,), 1, 1.0, 1.0, 0.1, 0.1, 0.0, 0.5, True, "converged", notes)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (Report(4.0, samples=64), "Took 4 s in all. Variances come from 64 posterior samples."),
        (Report(14.2, exact_variances=True), "Took 14 s in all. Variances are exact, from a factor of H."),
        (
            Report(600.0, "on a sample of 2,000 points", 3.14, 30, samples=8),
            "Started on a sample of 2,000 points in 3.14 s. Took 10 min in all. "
            "Variances come from 8 posterior samples.",
        ),
        (
            Report(1.0, steps=9, float64_from=3, float64_why="rounding", samples=8),
            "Took 1 s in all. Float64 took over at step 3: rounding. Variances come from 8 posterior samples.",
        ),
        (
            Report(1.0, steps=9, float64_from=9, exact_variances=True),
            "Took 1 s in all. Float64 took over for the last solve. Variances are exact, from a factor of H.",
        ),
        (
            Report(samples=8, device="cuda", loaded_on="cpu"),
            "Variances come from 8 posterior samples. Trained on cuda, loaded on cpu.",
        ),
    ],
)
def test_it_reads_well(report: Report, text: str) -> None:
    assert str(report) == text


def test_notes_say_where_float64_took_over() -> None:
    assert float64_takeover([step(0), step(1, "a lower rate")]) == (None, "")
    assert float64_takeover([step(0), step(1, "a note", "float64 from here on: lost"), step(2)]) == (1, "lost")
    assert float64_takeover([step(0), step(1, "the last solve in float64: late")]) == (2, "late")
    assert float64_takeover([]) == (None, "")


def test_float64_that_took_over_is_reported() -> None:
    model = GPRegressor("rbf", solver="cg", n_steps=150, **FAST).fit(*data(0.0))
    report, first = model.report_, model.history_[model.report_.float64_from or 0]
    assert report.float64_from is not None and report.float64_from < report.steps == 150
    assert any(report.float64_why in note for note in first.notes) and "float32" in report.float64_why
    assert f"Float64 took over at step {report.float64_from}: float32" in str(report)
    noisy = GPRegressor(solver="cg", n_steps=5, **FAST).fit(*data()).report_
    assert noisy.float64_from is None and not noisy.exact_variances and noisy.samples == 4


def test_a_factor_is_float64_without_a_note() -> None:
    X, y = np.random.default_rng(0).normal(size=(520, 3)), np.random.default_rng(1).normal(size=520)
    model = GPRegressor(n_steps=1, **FAST).fit(X, y)
    if model.plan_.solver.name == "cholesky":
        pytest.skip("on this machine exact training is faster at 520 points")
    assert model.report_.exact_variances and model.report_.float64_from == 1
    assert "Float64 took over for the last solve: a factor of H is made in float64." in str(model.report_)


def test_seconds_are_those_of_all_steps_and_the_last_solve() -> None:
    model = GPRegressor(n_steps=5, **FAST).fit(*data())
    steps = sum(record.step_seconds for record in model.history_)
    assert steps <= model.report_.seconds < steps + 5 and model.report_.start_seconds == 0


def test_a_model_keeps_its_report(tmp_path: Path) -> None:
    model = GPRegressor(n_steps=5, **FAST).fit(*data())
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m", device="cpu")
    assert loaded.report_ == model.report_ and loaded.report_.loaded_on == ""


BEFORE = Path(__file__).resolve().parents[1] / "files" / "before_rooms"


def test_a_model_of_version_0_1_has_what_its_plan_said() -> None:
    """It had the seconds in its plan, and the size of a neighbourhood under another name."""
    model = GPRegressor.load(BEFORE / "model-exact.safetensors", device="cpu")
    assert model.report_.seconds is not None and model.report_.seconds > 0 and model.report_.exact_variances
    assert model.report_.steps == model.n_steps_ and "Took" in str(model.report_)
    assert model.plan_.neighbourhood_size > 0 and model.plan_.start_solver is None
    sampled = GPRegressor.load(BEFORE / "model-pathwise-float32.safetensors", device="cpu")
    assert not sampled.report_.exact_variances and sampled.report_.samples == sampled.plan_.gradient.n_probes


@pytest.mark.cpu
def test_a_model_that_was_trained_elsewhere_says_so(tmp_path: Path) -> None:
    """A device that is not here is no reason to refuse a file: neither in its plan nor among its settings."""
    model = GPRegressor(n_steps=3, **FAST).fit(*data())
    before = model.predict(data()[0])
    model.device, model.report_ = "cuda:7", replace(model.report_, device="cuda:7")
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m", device="cpu")
    assert loaded.device == "cuda:7" and loaded.report_.loaded_on == "cpu"
    assert str(loaded.report_).endswith("Trained on cuda:7, loaded on cpu.")
    np.testing.assert_array_equal(loaded.predict(data()[0]), before)
    copied = pickle.loads(pickle.dumps(model))
    assert copied.report_.loaded_on == "cpu" and model.report_.loaded_on == ""
