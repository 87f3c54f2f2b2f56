"""A start by near neighbours: the right neighbours, a likelihood that rises, and what dense data show."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gp_truth import toy
from warmgp import RBF, GPRegressor, Hyperparameters, Matern32
from warmgp.operators.conditionals import conditional_densities, conditionals
from warmgp.planning import starts
from warmgp.training.local_start import LARGEST_SIGNAL, LocalStart, _rest, groups_around, local_start, nearest


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("tile", [1, 10**6])
def test_the_nearest_points(tile: int) -> None:
    z, of = torch.randn(80, 3, generator=seeded()), torch.tensor([3, 70, 3])
    found = nearest(z, of, 7, tile)
    assert torch.equal(found, (z[of][:, None] - z).norm(dim=2).argsort(1)[:, :7])  # the point itself is the first


def wavy(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """y of a smooth input and of a fast one, which only dense data show, and a third that does not matter."""
    x = torch.rand(n, 3, dtype=torch.float64, generator=seeded(2))
    noise = 0.05 * torch.randn(n, dtype=torch.float64, generator=seeded(3))
    return x, torch.sin(3 * x[:, 0]) + 0.5 * torch.sin(20 * x[:, 1]) + noise


def test_it_finds_what_only_dense_data_show() -> None:
    """From a θ that takes the fast input for noise, as one of too few points does."""
    x, y = wavy(6_000)
    blind = Hyperparameters(0.35, 1.0, [1.0, 5.0, 5.0])
    values: list[float] = []
    found = local_start(
        x, y, Matern32(), blind, LocalStart(16, 64, 80), generator=seeded(),
        callbacks=[lambda record, state: values.append(record.log_marginal_likelihood / 6_000)],
    )  # fmt: skip
    slow, fast, nothing = found.length_scales.tolist()
    assert 0.04 < float(found.noise_scale) < 0.06  # 0.05 is true
    assert fast < slow / 3 and nothing > 10 * slow
    assert len(values) == 80 and np.mean(values[-10:]) > np.mean(values[:10]) + 0.5  # nats a point
    again = local_start(x, y, Matern32(), blind, LocalStart(16, 64, 80), generator=seeded())
    assert again.equals(found)


def test_limits_hold_and_few_points_do() -> None:
    x, y = toy(30, 2)
    found = local_start(x, y * 0, Matern32(), Hyperparameters.ones(2), LocalStart(4, 64, 40), generator=seeded(),
                        hold=lambda nu: nu.clamp_min(0.5))  # fmt: skip
    assert float(found.unconstrained.min()) >= 0.5 * (1 - 1e-9)


def test_the_signal_comes_back_along_its_ridge() -> None:
    """A linear function wants ever longer length scales, and near points do not say where to stop: what the start ends
    at has an ordinary signal, and left-out points are as likely by it as by any other on the ridge."""
    x, y = toy(4_000, 3)
    y = (x @ torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)) / 1.2 + 0.1 * y
    far = Hyperparameters(0.1, 40.0, [40.0, 80.0, 120.0])
    found = local_start(x, y, Matern32(), far, LocalStart(16, 64, 40), generator=seeded())
    assert float(found.signal_scale) == pytest.approx(LARGEST_SIGNAL * float(y.std()), rel=1e-9)
    smooth = local_start(x, y, RBF(), far, LocalStart(16, 64, 5), generator=seeded())
    assert float(smooth.signal_scale) > 2 * LARGEST_SIGNAL  # which has no ridge
    away = Hyperparameters(found.noise_scale, 10 * found.signal_scale, 10**Matern32.follow * found.length_scales)
    scaled = Hyperparameters(10 * far.noise_scale, 10 * far.signal_scale, far.length_scales)
    tenfold = local_start(x, 10 * y, Matern32(), scaled, LocalStart(16, 64, 40), generator=seeded())
    assert float(tenfold.signal_scale) == pytest.approx(LARGEST_SIGNAL * float((10 * y).std()), rel=1e-9)
    groups, last = groups_around(x.float(), found, torch.arange(0, 4_000, 100), 128)
    near, afar = (conditional_densities(x, y, groups, Matern32(), theta, last) / last for theta in (found, away))
    assert float((near - afar).mean()) > -0.005  # nats a point


@pytest.mark.parametrize("failure", ["factor", "gradient"])
def test_numbers_that_fail_end_it_at_the_last_good_step(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = toy(60, 2)
    calls, seen = [], []

    def fails(*args: object) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(args[4])
        densities, gradient = conditionals(*args)
        if len(calls) == 5:
            if failure == "factor":
                raise torch.linalg.LinAlgError("no factor")
            gradient = gradient * torch.nan
        return densities, gradient

    monkeypatch.setattr("warmgp.training.local_start.conditionals", fails)
    found = local_start(
        x, y, Matern32(), Hyperparameters.ones(2), LocalStart(4, 16, 40), generator=seeded(),
        callbacks=[lambda record, state: seen.append(record)],
    )  # fmt: skip
    assert len(seen) == 4 and found.equals(calls[3])  # whose conditionals were numbers


def test_coincident_points_without_noise_have_no_factor() -> None:
    x = torch.zeros(3, 1, dtype=torch.float64)
    theta = Hyperparameters(1e-9, 1.0, [1.0])
    with pytest.raises(torch.linalg.LinAlgError, match="raise noise_floor"):
        conditionals(x, x[:, 0], torch.tensor([[0, 1, 2]]), Matern32(), theta)


def test_steps_come_to_rest() -> None:
    shares = [_rest(step, 80) for step in range(80)]
    assert shares[:56] == [1.0] * 56 and shares == sorted(shares, reverse=True) and 0.2 < shares[-1] < 0.3


def test_draws_of_groups_are_averaged() -> None:
    """ν is the mean over the last 30% of the steps: every draw of groups has an optimum of its own."""
    x, y = wavy(400)
    seen: list[torch.Tensor] = []
    found = local_start(
        x, y, Matern32(), Hyperparameters.ones(3), LocalStart(4, 16, 20), generator=seeded(),
        callbacks=[lambda record, state: seen.append(state.nu)],
    )  # fmt: skip
    assert torch.allclose(found.unconstrained, torch.stack(seen[14:]).mean(0))


def test_where_it_predicts_no_better_it_is_left(caplog: pytest.LogCaptureFixture) -> None:
    x, y = wavy(400)
    theta = Hyperparameters(0.05, 1.0, [0.5, 0.1, 5.0])
    with caplog.at_level("INFO", logger="warmgp"):  # by steps that are far too large
        found = local_start(x, y, Matern32(), theta, LocalStart(4, 32, 10, 3.0), generator=seeded())
    assert found is None and "the start by near points is left" in caplog.text


def test_copies_of_points_leave_length_scales_as_they_are() -> None:
    """A group of copies of one point says what the noise is, and nothing of length scales: these follow the signal
    where that is cut, all by one factor."""
    places = torch.rand(10, 2, dtype=torch.float64, generator=seeded())
    x = places.repeat(400, 1)
    y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(len(x), dtype=torch.float64, generator=seeded(1))
    theta = Hyperparameters(0.5, 1.0, [0.5, 0.7])
    found = local_start(x, y, Matern32(), theta, LocalStart(16, 64, 60), generator=seeded())
    factor = found.length_scales / theta.length_scales
    assert torch.allclose(factor, factor[0]) and 0.9 < float(factor[0]) <= 1.0
    assert float(factor[0]) == 1.0 or float(found.signal_scale) == pytest.approx(LARGEST_SIGNAL * float(y.std()))
    assert 0.08 < float(found.noise_scale) < 0.12


def test_the_estimator_uses_it_where_steps_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "GROUPS", {False: LocalStart(8, 32, 12)})
    monkeypatch.setattr("warmgp.planning.decisions.SAMPLE_BEFORE_GROUPS", 200)
    monkeypatch.setattr("warmgp.planning.decisions.SAMPLE_FROM", 500)
    monkeypatch.setattr("warmgp.estimator.start.N_STEPS", 15)
    x, y = wavy(900)
    model = GPRegressor(solver="rap", n_probes=8, random_state=0, device="cpu", verbose=True).fit(x.numpy(), y.numpy())
    assert model.plan_.local == LocalStart(8, 32, 12) and model.plan_.sample_size == 200
    assert "and groups of near ones" in str(model.report_) and model.report_.start_seconds > 0
    assert model.converged_


def test_a_sample_of_many_inputs_does_not_learn_its_noise_by_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 inputs and a sample of 500: after steps on it the noise was 0.63 in the end, and 0.11 from where the choice of
    a kernel had ended."""
    monkeypatch.setattr(starts, "GROUPS", {False: LocalStart(16, 64, 5)})
    monkeypatch.setattr("warmgp.planning.decisions.SAMPLE_BEFORE_GROUPS", 500)
    monkeypatch.setattr("warmgp.planning.decisions.SAMPLE_FROM", 500)
    g = seeded()
    x = torch.randn(1_500, 60, generator=g, dtype=torch.float64)
    y = torch.tanh(x[:, 0]) + 0.5 * x[:, 1] + torch.randn(1_500, generator=g, dtype=torch.float64)
    model = GPRegressor("matern32", solver="rap", n_probes=4, n_features=100, random_state=0, device="cpu")
    model.fit(x[:1_200].numpy(), y[:1_200].numpy())
    assert model.plan_.local is not None and float(model.hyperparameters_.noise_scale) > 0.69  # 0.77 is true
    left = y[1_200:].numpy() - model.predict(x[1_200:].numpy())
    assert left.std() < 1.02  # 1 is the noise; 1.03 after steps
