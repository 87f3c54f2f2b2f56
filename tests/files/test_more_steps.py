"""More steps from the same checkpoint: they end where an undisturbed training with that number ends, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warmgp import GPRegressor
from warmgp.files.format import FileError, read

FAST = {"kernel": "matern32", "n_features": 60, "n_probes": 4, "random_state": 0, "device": "cpu"}


def data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


def same(one: GPRegressor, other: GPRegressor) -> bool:
    X = data()[0]
    both = [np.stack([*model.predict(X, return_std=True), *model.sample_y(X, 2).T]) for model in (one, other)]
    return one.hyperparameters_.equals(other.hyperparameters_) and np.array_equal(*both)


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "cholesky"}, {"solver": "cg"}, {"solver": "cg", "solver_warm_start": False}, {"solver": "ap"},
        {"solver": "sgd"}, {"solver": "cg", "trend": "linear"}, {"solver": "cg", "init": "sample"}, {"kernel": "auto"},
    ],
    ids=str,
)  # fmt: skip
def test_a_fit_that_ended_goes_on(settings: dict[str, Any], tmp_path: Path) -> None:
    X, y = data()
    settings = FAST | settings
    whole = GPRegressor(n_steps=9, **settings).fit(X, y)
    first = GPRegressor(n_steps=4, checkpoint=tmp_path / "c", **settings).fit(X, y)
    assert first.n_steps_ == 4 and first.stop_reason_ == "steps"
    seen: list[int] = []
    more = GPRegressor(n_steps=9, checkpoint=tmp_path / "c", callbacks=[lambda r, s: seen.append(r.step)], **settings)
    more.fit(X, y)
    assert seen == [4, 5, 6, 7, 8] and more.n_steps_ == 9 and more.plan_.n_steps == 9
    assert same(more, whole) and not same(more, first)
    assert read(tmp_path / "c", "checkpoint")[1]["made_from"]["n_steps"] == "9"
    assert same(GPRegressor(n_steps=9, checkpoint=tmp_path / "c", **settings).fit(X, y), whole)  # nothing left to do


def test_fewer_steps_will_do_where_no_more_were_taken(tmp_path: Path) -> None:
    X, y = data()

    def crash(record: Any, state: Any) -> None:
        if record.step == 2:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        GPRegressor(solver="cg", n_steps=50, checkpoint=tmp_path / "c", callbacks=[crash], **FAST).fit(X, y)
    found = GPRegressor(solver="cg", n_steps=5, checkpoint=tmp_path / "c", **FAST).fit(X, y)
    assert same(found, GPRegressor(solver="cg", n_steps=5, **FAST).fit(X, y))
    with pytest.raises(
        FileError, match=r"made with n_steps=5, and this fit has n_steps=4; it has taken 5 steps already"
    ):
        GPRegressor(solver="cg", n_steps=4, checkpoint=tmp_path / "c", **FAST).fit(X, y)


def test_a_number_after_auto_goes_on_where_it_would_have_started_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a learning rate given training starts at ones either way; settled or not, it takes all steps asked for."""
    X, y = data()
    settings = {**FAST, "learning_rate": 0.1}
    monkeypatch.setattr("warmgp.training.settling.LEAST_GAIN", 0.02)  # soon
    auto = GPRegressor(solver="cholesky", checkpoint=tmp_path / "c", **settings).fit(X, y)
    assert auto.stop_reason_ == "settled"
    more = GPRegressor(solver="cholesky", n_steps=auto.n_steps_ + 5, checkpoint=tmp_path / "c", **settings).fit(X, y)
    assert more.n_steps_ == auto.n_steps_ + 5 and more.stop_reason_ == "steps"
    assert same(more, GPRegressor(solver="cholesky", n_steps=more.n_steps_, **settings).fit(X, y))
    with pytest.raises(FileError, match=r"this fit has n_steps='auto'; a number of steps cannot become n_steps='auto'"):
        GPRegressor(solver="cholesky", checkpoint=tmp_path / "c", **settings).fit(X, y)


def test_a_number_after_auto_is_refused_where_it_would_have_started_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmgp.planning.decisions.SAMPLE_FROM", 50)
    X, y = data()
    GPRegressor(solver="cg", checkpoint=tmp_path / "c", **FAST).fit(X, y)
    with pytest.raises(
        FileError, match=r"n_steps='auto', and this fit has n_steps=99; .* would have started elsewhere"
    ):
        GPRegressor(solver="cg", n_steps=99, checkpoint=tmp_path / "c", **FAST).fit(X, y)


def test_other_settings_are_still_refused_with_more_steps(tmp_path: Path) -> None:
    X, y = data()
    GPRegressor(solver="cg", n_steps=2, checkpoint=tmp_path / "c", **FAST).fit(X, y)
    told = r"it was made with n_steps=2, tol=0.01, and this fit has n_steps=4, tol=0.02\. Give"
    with pytest.raises(FileError, match=told):
        GPRegressor(solver="cg", n_steps=4, tol=0.02, checkpoint=tmp_path / "c", **FAST).fit(X, y)
    with pytest.raises(FileError, match=r"made with n_steps=2, and this fit has n_steps=4; y differs"):
        GPRegressor(solver="cg", n_steps=4, checkpoint=tmp_path / "c", **FAST).fit(X, y + 1)
