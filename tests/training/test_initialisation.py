"""The neighbourhood heuristic, alone and in the estimator: shown, interrupted, kept in a checkpoint."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from tqdm.auto import tqdm

import gp_truth
import warmgp.training.initialisation
from gp_truth import toy
from warmgp import (
    Cholesky,
    ConjugateGradients,
    DenseOperator,
    Exact,
    GPRegressor,
    Hyperparameters,
    Pathwise,
    TrainingOptions,
)
from warmgp.estimator.start import begin, options_of
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.training import Problem, train_only
from warmgp.training.bars import StartBar
from warmgp.training.exact_climb import ExactClimb, climbed_on
from warmgp.training.initialisation import sample_start, subset_heuristic
from warmgp.training.local_start import LocalStart
from warmgp.training.state import Callback, record_without_solve
from warmgp.training.step import initial_state

KERNEL = get_kernel("matern32")


def test_whole_data_as_neighbourhood_is_exact_training() -> None:
    x, y = toy(50)
    found = subset_heuristic(
        x, y, KERNEL, generator=torch.Generator().manual_seed(0), neighbourhood_size=80, n_centroids=2, n_steps=15
    )
    options = TrainingOptions(Cholesky(), Exact(), n_steps=15)
    H = DenseOperator(x, KERNEL, Hyperparameters.ones(2))
    truth = train_only(Problem(H, y), options, generator=torch.Generator()).theta
    assert torch.allclose(found.vector, truth.vector, rtol=1e-8)


def test_average_over_the_nearest_points_of_each_centroid() -> None:
    """Two far clusters with their own noise: each neighbourhood is one cluster, and θ is the average."""
    x, y = toy(80, 1)
    x[40:] += 100.0
    y[40:] += torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = []
    found = subset_heuristic(
        x, y, KERNEL, generator=torch.Generator().manual_seed(1), neighbourhood_size=40, n_centroids=6, n_steps=15,
        callbacks=[lambda record, state: sizes.append(state.solution.shape[0])],
    )  # fmt: skip
    options = TrainingOptions(Cholesky(), Exact(), n_steps=15)
    parts = [
        train_only(
            Problem(DenseOperator(x[part], KERNEL, Hyperparameters.ones(1)), y[part]),
            options,
            generator=torch.Generator(),
        ).theta.vector
        for part in (slice(0, 40), slice(40, 80))
    ]
    share = (found.vector - parts[1]) / (parts[0] - parts[1])
    assert set(sizes) == {40} and len(sizes) == 6 * 15
    assert torch.allclose(share, share[0].expand_as(share), atol=1e-6)  # one convex combination for every entry
    assert float(share[0] * 6) == pytest.approx(round(float(share[0] * 6)), abs=1e-5)


def test_shared_length_scale_and_checks() -> None:
    x, y = toy(30)
    generator = torch.Generator().manual_seed(0)
    found = subset_heuristic(
        x, y, KERNEL, generator=generator, ard=False, neighbourhood_size=20, n_centroids=2, n_steps=3
    )
    assert found.length_scales.shape == (1,)
    with pytest.raises(ValueError, match="neighbourhood_size"):
        subset_heuristic(x, y, KERNEL, generator=generator, neighbourhood_size=1)


# -- in the estimator ------------------------------------------------------------------------------------------------
SETTINGS = {"init": "subset", "solver": "cg", "n_steps": 3, "n_features": 100, "n_probes": 6, "random_state": 0}


def data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x, y = toy(n)
    return x.numpy(), y.numpy()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps on each neighbourhood instead of a hundred."""
    monkeypatch.setattr("warmgp.estimator.start.N_STEPS", 3)
    monkeypatch.setattr("warmgp.estimator.start.subset_heuristic", functools.partial(subset_heuristic, n_steps=3))


def interrupt(monkeypatch: pytest.MonkeyPatch, neighbourhood: int) -> list[int]:
    """Ctrl-C in the training of that neighbourhood (from 1); returns a list that grows with every one begun."""
    begun: list[int] = []

    def cut(*arguments, callbacks=(), **options):  # type: ignore[no-untyped-def]
        begun.append(1)

        def press(record, state):  # type: ignore[no-untyped-def]
            if record.step == 1 and len(begun) == neighbourhood:
                raise KeyboardInterrupt

        return train_only(*arguments, callbacks=[*callbacks, press], **options)

    monkeypatch.setattr(warmgp.training.initialisation, "train_only", cut)
    return begun


def test_progress_is_shown(short: None, capsys: pytest.CaptureFixture[str]) -> None:
    GPRegressor(verbose=True, **SETTINGS).fit(*data())
    shown = capsys.readouterr().err
    assert "initialising" in shown and "30/30" in shown and "neighbourhood 10 of 10" in shown
    assert shown.index("30/30") < shown.index("training")
    GPRegressor(verbose=True, **SETTINGS).fit(*data(4))
    assert "12/12" in capsys.readouterr().err  # no more neighbourhoods than points
    GPRegressor(**SETTINGS).fit(*data())
    assert capsys.readouterr().err == ""


def test_what_it_took_is_in_the_report(short: None, tmp_path: Path) -> None:
    model = GPRegressor(**SETTINGS).fit(*data())
    assert "Started from 10 neighbourhoods of 60 points, trained exactly in" in str(model.report_)
    assert 0 < model.report_.start_seconds < model.report_.seconds
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m", device="cpu")
    assert str(loaded.plan_) == str(model.plan_) and loaded.report_ == model.report_
    ones = GPRegressor(**{**SETTINGS, "init": "ones"}).fit(*data()).report_
    assert "neighbourhoods" not in str(ones) and ones.start_seconds == 0


@pytest.mark.parametrize("neighbourhood", [1, 4])
def test_an_interrupt_leaves_everything_as_it_was(
    neighbourhood: int,
    short: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in training: an interrupt before anything is solved ends fit; nothing is half fitted, no file is there."""
    X, y = data()
    whole = GPRegressor(**SETTINGS).fit(X, y)
    model = GPRegressor(verbose=True, checkpoint=tmp_path / "c", **SETTINGS)
    with monkeypatch.context() as patch:
        begun = interrupt(patch, neighbourhood)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert len(begun) == neighbourhood
        with pytest.raises(NotFittedError):
            model.predict(X)
        assert list(tmp_path.iterdir()) == [] and len(tqdm._instances) == 0  # the bar is closed
        refitted = GPRegressor(**SETTINGS).set_params(init="ones").fit(X, y)
        before = refitted.predict(X)
        begun.clear()
        with pytest.raises(KeyboardInterrupt):
            refitted.set_params(init="subset").fit(X[:, :1], y)
        np.testing.assert_array_equal(refitted.predict(X), before)
    np.testing.assert_array_equal(model.fit(X, y).predict(X), whole.predict(X))


def test_a_finished_initialisation_is_kept_before_the_first_step(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in the very first solve, a resume begins with that solve and ends with the same bits."""
    X, y = data()
    whole = GPRegressor(**SETTINGS).fit(X, y)
    settings = {**SETTINGS, "checkpoint": tmp_path / "c"}
    with monkeypatch.context() as patch:
        patch.setattr(ConjugateGradients, "solve", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            GPRegressor(**settings).fit(X, y)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    monkeypatch.setattr("warmgp.estimator.start.subset_heuristic", lambda *_, **__: pytest.fail("done already"))
    resumed = GPRegressor(**settings).fit(X, y)
    assert [h.step for h in resumed.history_] == [0, 1, 2]
    assert resumed.history_[0].noise_scale == whole.history_[0].noise_scale
    assert resumed.hyperparameters_.equals(whole.hyperparameters_)
    np.testing.assert_array_equal(resumed.predict(X, return_std=True), whole.predict(X, return_std=True))
    assert "Started from 10 neighbourhoods" in str(resumed.report_) and resumed.report_.start_seconds > 0


# -- a start on a random sample ------------------------------------------------------------------------------------
def test_a_sample_start_is_a_training_on_those_rows() -> None:
    x, y = toy(90, 2)
    options = TrainingOptions(ConjugateGradients(10), Pathwise(5, 100), n_steps=4, noise_floor=1e-3)
    theta = Hyperparameters.ones(2)
    generator = torch.Generator().manual_seed(3)
    state = sample_start(x, y, KERNEL, theta, options, size=30, generator=generator)
    generator.manual_seed(3)
    rows = torch.randperm(90, generator=generator)[:30]
    problem = Problem(DenseOperator(x[rows], KERNEL, theta), y[rows])
    truth = train_only(problem, options, generator=generator)
    assert torch.equal(state.nu, truth.nu) and torch.equal(state.adam.second, truth.adam.second)
    assert state.adam.t == 4 and state.step == 0 and state.history == ()
    assert state.solution is None and state.draw is None  # they belong to the sample


@pytest.mark.parametrize(
    ("init", "phase"), [("climb", "by climbs"), ("near", "by near neighbours"), ("sample", "on a sample")]
)
def test_the_bar_of_a_start_names_its_phase(capsys: pytest.CaptureFixture[str], init: str, phase: str) -> None:
    GPRegressor(**{**SETTINGS, "init": init, "verbose": True}).fit(*data())
    shown = capsys.readouterr().err
    assert f"{phase}, noise" in shown
    others = {"by climbs", "by near neighbours", "on a sample", "by groups", "neighbourhood"} - {phase}
    assert not any(other in shown for other in others)


def test_a_phase_of_a_start_has_its_share_of_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    theta = Hyperparameters.ones(1)
    state = initial_state(DenseOperator(torch.zeros(2, 1), KERNEL, theta), TrainingOptions(Cholesky(), Exact()))

    def show(callback: Callback, steps: int) -> int:
        for step in range(steps):
            callback(record_without_solve(theta, step, 0.0, 0.1), state)
        return int(bar._bar.n)

    with StartBar({"first": 5, "second": 3, "third": 4}) as bar:
        both = bar.of("first", "second")
        assert show(both, 2) == 2
        assert show(both, 1) == 6  # the first is over, and has left the rest of its share
        third = bar.of("third")
        assert show(third, 9) == 12  # no further than its share
        assert show(third, 1) == 12
        assert "third, noise 1" in bar._bar.postfix


def test_the_regressor_starts_on_a_sample(short: None, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data()
    settings = {**SETTINGS, "init": "sample", "verbose": True}
    model = GPRegressor(**settings).fit(X, y)
    assert model.plan_.init == "sample" and model.plan_.sample_size == len(X)
    assert "Started on a sample of 60 points in" in str(model.report_)
    assert model.history_[0].noise_scale != 1.0 and model.n_steps_ == 3
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize("promote", [True, False])
def test_a_sample_goes_over_to_float64_only_where_that_is_wanted(
    promote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmgp.training.precision.doubts", lambda *_, **__: "made up")
    x, y = (part.float() for part in toy(60, 2))
    seen: list[torch.dtype] = []
    options = TrainingOptions(ConjugateGradients(10), Pathwise(5, 100), n_steps=2)
    sample_start(
        x, y, KERNEL, Hyperparameters.ones(2), options, size=30, generator=torch.Generator().manual_seed(0),
        promote=promote, callbacks=[lambda record, state: seen.append(state.solution.dtype)],
    )  # fmt: skip
    assert seen == [torch.float64 if promote else torch.float32] * 2


def test_one_initial_length_scale_serves_all_inputs() -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    start = Hyperparameters(0.3, 1.0, [2.0])
    given = GPRegressor(init=start, n_steps=5, random_state=0).fit(X, np.sin(2 * X[:, 0]))
    assert given.hyperparameters_.length_scales.numel() == 3
    assert given.history_[0].length_scales == (2.0, 2.0, 2.0)
    shared = GPRegressor(init=start, ard=False, n_steps=5, random_state=0).fit(X, np.sin(2 * X[:, 0]))
    assert shared.hyperparameters_.length_scales.numel() == 1


def quiet() -> tuple[torch.Tensor, torch.Tensor]:
    """600 points of a smooth function of one of three inputs, without noise."""
    x = torch.rand(600, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x, torch.sin(7 * x[:, 0])


@pytest.mark.parametrize(("noise", "again"), [(1e-4, True), (0.9, False)])
def test_a_sample_is_trained_again_from_a_better_place(noise: float, again: bool) -> None:
    """Of two other starts the one with hardly any noise is clearly likelier than where ten steps lead, one with noise
    alone is not."""
    (x, y), steps = quiet(), []
    options = TrainingOptions(Cholesky(), Exact(), n_steps=10, learning_rate=0.1)
    other = Hyperparameters.from_vector(torch.tensor([noise, 1.0, 1.0, 100.0, 100.0]))
    found = sample_start(
        x, y, KERNEL, Hyperparameters.ones(3), options, size=300, generator=torch.Generator().manual_seed(1),
        callbacks=[lambda record, state: steps.append(record.noise_scale)], other=other,
    )  # fmt: skip
    assert len(steps) == (20 if again else 10)
    assert (float(found.theta.noise_scale) < 1e-3) == again


def test_a_sample_that_no_other_start_beats_is_trained_as_before() -> None:
    (x, y), options = quiet(), TrainingOptions(Cholesky(), Exact(), n_steps=10)
    kept, held = (
        sample_start(
            x, y, KERNEL, Hyperparameters.ones(3), options, size=300, generator=torch.Generator().manual_seed(1),
            other=other,
        )
        for other in (None, Hyperparameters.ones(3))
    )  # fmt: skip
    assert torch.equal(kept.nu, held.nu)


def test_where_groups_of_near_points_are_of_no_use_more_random_ones_are_climbed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a smooth function groups say less than a sample does."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.05 * rng.normal(size=400)
    plan = GPRegressor("matern52", init="sample", random_state=0).plan(X)
    plan = replace(plan, local=LocalStart(4, 32, 3), sample_size=60, near=None, climb=None)
    options = options_of(plan, warm_start=True, noise_floor=0.0, n_samples=4)
    x, t = torch.tensor(X), torch.tensor((y - y.mean()) / y.std())
    operator = make_operator("dense", x, get_kernel("matern52"), Hyperparameters.ones(4))
    problem, climbed = Problem(operator, t), []

    def seen(*args: Any, **settings: Any) -> Hyperparameters:
        climbed.append((args[4].points, climbed_on(*args, **settings)))
        return climbed[-1][1]

    monkeypatch.setattr("warmgp.estimator.start.climbed_on", seen)
    begun = partial(begin, plan, options, problem, None, verbose=True)
    state = begun(generator=torch.Generator().manual_seed(0))
    assert [points for points, _ in climbed] == [2_000]
    assert torch.allclose(state.theta.vector, climbed[0][1].vector)
    shown = [int(found) for found in re.findall(r" (\d+)/", capsys.readouterr().err)]
    assert shown == sorted(shown)  # the bar does not go back to the sample
    monkeypatch.setattr("warmgp.estimator.start.local_start", lambda *args, **_: args[3])
    begun(generator=torch.Generator().manual_seed(0))
    assert len(climbed) == 1


def test_a_climb_on_more_points_is_uphill_from_where_it_begins() -> None:
    X, y = data()
    x, t = torch.tensor(X), torch.tensor(y)
    begun = Hyperparameters(0.9, 0.3, [3.0] * x.shape[1])
    how = ExactClimb(len(x))
    found = climbed_on(x, t, KERNEL, begun, how, generator=torch.Generator().manual_seed(0))
    values = [gp_truth.log_marginal_likelihood("matern32", x, t, theta.vector) for theta in (begun, found)]
    assert values[1] > values[0]
