"""What float32 resolves: limits on θ, the residual that rounding leaves, and the last solve that knows of it."""

from __future__ import annotations

import pytest
import torch

from warmgp import Hyperparameters, Matern32, Pathwise, RecombinedProjections, StoppingRule
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.operators.rounding import RESOLVED, resolved_ratio, rounding
from warmgp.solvers.sums import rounded
from warmgp.training import TrainingOptions, train


def test_the_ratio_leaves_the_share() -> None:
    for n, share in ((10_000, 0.1), (10**6, 0.3)):
        ratio = resolved_ratio(n, share)
        assert rounding(ratio, n) == pytest.approx(share)
        assert resolved_ratio(n, share, torch.float64) == pytest.approx(2**14.5 * ratio)  # of its square 29 digits more


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_a_smaller_signal_leaves_the_kernel_as_it_is_at_short_distances(name: str) -> None:
    """The coefficient of |r|^(2ν), the leading rough term of signal² k, is the same before and after the cut."""
    kernel = get_kernel(name)
    theta = Hyperparameters(0.1, 2.0, [3.0])
    cut = theta.with_signal_within(10.0, kernel.follow)
    assert float(cut.signal_scale) == pytest.approx(1.0) and float(cut.noise_scale) == pytest.approx(0.1)
    power = {"matern12": 1, "matern32": 3, "matern52": 5}[name]  # of the first odd term
    leading = [
        float(t.signal_scale) ** 2 / float(t.length_scales[0]) ** power for t in (theta, cut)
    ]  # s²/ℓ^(2ν), the coefficient of |r|^(2ν)
    assert leading[0] == pytest.approx(leading[1])
    assert theta.with_signal_within(20.0, kernel.follow) is theta  # at the limit nothing changes


def test_a_smooth_kernel_keeps_its_length_scales() -> None:
    theta = Hyperparameters(0.1, 2.0, [3.0, 4.0]).with_signal_within(5.0, get_kernel("rbf").follow)
    assert float(theta.signal_scale) == pytest.approx(0.5) and theta.length_scales.tolist() == [3.0, 4.0]


def test_options_hold_both_limits() -> None:
    options = TrainingOptions(RecombinedProjections(), Pathwise(4), noise_floor=0.05, signal_ratio=10.0)
    nu = Hyperparameters(0.01, 3.0, [1.0]).unconstrained
    held = Hyperparameters.from_unconstrained(options.begun(Hyperparameters.from_unconstrained(nu), Matern32()))
    assert float(held.noise_scale) == pytest.approx(0.05) and float(held.signal_scale) == pytest.approx(0.5)
    free = Hyperparameters(0.2, 1.0, [1.0]).unconstrained
    assert torch.equal(options.held(free), free)  # bit for bit where no limit is reached


@pytest.mark.parametrize("noise", [0.02, 0.01])
def test_rounding_is_of_the_size_that_is_said(noise: float) -> None:
    """A solution to float64's precision, multiplied in float32: the error is within a factor of 4 of the formula."""
    g = torch.Generator().manual_seed(0)
    n = 3000
    x = torch.rand(n, 3, generator=g, dtype=torch.float64)
    theta = Hyperparameters(noise, 1.0, [1.0] * 3)
    H = make_operator("dense", x, Matern32(), theta).H
    b = torch.linalg.cholesky(H) @ torch.randn(n, 8, generator=g, dtype=torch.float64)
    v = torch.linalg.solve(H, b)
    single = make_operator("chunked", x.float(), Matern32(), theta)
    left = (single.matmul(v.float()).double() - b).square().mean().sqrt() / noise
    assert single.rounding == rounding(1.0 / noise, n)
    assert 0.25 < float(left) / single.rounding < 4.0


def test_predictions_that_float32_cannot_resolve_are_by_float64() -> None:
    """As those of a model from a GPU are, where products of 1 − k resolve more: a signal of 2,000 noise scales."""
    g = torch.Generator().manual_seed(0)
    x, x_new = (torch.rand(n, 2, generator=g, dtype=torch.float32) for n in (2000, 50))
    theta = Hyperparameters(0.05, 100.0, [60.0] * 2)
    H = make_operator("dense", x.double(), Matern32(), theta).H
    b = torch.linalg.cholesky(H) @ torch.randn(2000, 4, generator=g, dtype=torch.float64)
    v = rounded(torch.linalg.solve(H, b), torch.float32)
    operator = make_operator("chunked", x, Matern32(), theta)
    exact = operator.in_float64().cross_matmul(x_new.double(), v.double())
    assert operator.rounding > RESOLVED
    found = operator.cross_matmul(x_new, v)
    assert found.dtype == torch.float32
    assert float((found.double() - exact).abs().max()) < 0.02 * 0.05  # of the noise; in float32 0.3 and more
    plain = operator.at(Hyperparameters(1.0, 100.0, [60.0] * 2))
    assert plain.rounding < RESOLVED
    rough = plain.cross_matmul(x_new, v).double() - exact  # the kernel is the same, and the noise no part of it
    assert float(rough.abs().max()) > 0.3 * 0.05


def test_training_with_a_limit_ends_within_it() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(120, 2, generator=g)
    y = torch.sin(6 * x[:, 0]) + 0.01 * torch.randn(120, generator=g)
    options = TrainingOptions(
        RecombinedProjections(40), Pathwise(8, 500), rule=StoppingRule(0.01), n_steps=15, signal_ratio=1.5
    )
    operator = make_operator("dense", x, Matern32(), Hyperparameters.ones(2))
    result = train(operator, y, options, generator=torch.Generator().manual_seed(1))
    theta = result.posterior.theta
    assert float(theta.signal_scale / theta.noise_scale) <= 1.5 * (1 + 1e-9)  # 2.3 without the limit
    assert result.accuracy.mean < 0.1
