"""Prior functions: covariance by counting, frozen parameters at a moving θ, blocks, dtypes, exact draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import Matern
from torch import Tensor

from warmgp.gradient.features import ExactPrior, FeaturePrior, spread_frequencies
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS, get_kernel
from warmgp.operators import OPERATORS, DenseOperator

NU = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
NAMES = pytest.mark.parametrize("name", list(KERNELS))
SIGNAL = 1.3
THETA = Hyperparameters(0.2, SIGNAL, [0.8, 1.5, 2.5])


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def points(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=rng(seed))


def unit_kernel(name: str, x: Tensor, lengths: Tensor) -> Tensor:
    return torch.from_numpy(Matern(length_scale=lengths.numpy(), nu=NU[name])(x.numpy()))


def draw(name: str = "matern32", n_features: int = 66, n_functions: int = 4, seed: int = 1, **options) -> FeaturePrior:
    return FeaturePrior.draw(get_kernel(name), 3, n_features, n_functions, generator=rng(seed), **options)


# -- random features -------------------------------------------------------------------------------------------------
@NAMES
def test_a_function_is_the_weighted_sum_of_sines_and_cosines(name: str) -> None:
    prior, x = draw(name), points(5)
    omega, sin_weights, cos_weights = (
        part.numpy() for part in (prior.frequencies, prior.sin_weights, prior.cos_weights)
    )
    expected = np.zeros((5, 4))
    for i in range(33):
        phase = (x.numpy() / THETA.length_scales.numpy()) @ omega[i]
        expected += np.outer(np.sin(phase), sin_weights[i]) + np.outer(np.cos(phase), cos_weights[i])
    np.testing.assert_allclose(prior.evaluate(x, THETA).numpy(), SIGNAL * expected / math.sqrt(33), atol=1e-11)


def test_the_covariance_given_the_frequencies_is_the_sum_of_cosines() -> None:
    """With only 3 frequencies but 40,000 functions: E[f(x) f(x')] = s²/m Σ cos(ω·(x − x')/ℓ) exactly, and the sample
    mean is within 5 standard errors of it, √((C_ii C_jj + C_ij²)/40,000). So few features would betray sin and cos
    that share their weights, and a wrong number under the root."""
    functions = 40_000
    prior, x = draw(n_features=6, n_functions=functions, plain=True), points(6)
    f = prior.evaluate(x, THETA)
    delta = (x[:, None] - x) / THETA.length_scales
    C = SIGNAL**2 * torch.cos(delta @ prior.frequencies.T).mean(-1)
    error = (f @ f.T / functions - C).abs()
    standard_error = ((C.diagonal()[:, None] * C.diagonal() + C**2) / functions).sqrt()
    assert bool((error <= 5 * standard_error).all()), error / standard_error
    assert bool((f.mean(1).abs() <= 5 * SIGNAL / math.sqrt(functions)).all())


@NAMES
def test_the_covariance_over_functions_and_frequencies_is_the_kernel(name: str) -> None:
    """20 draws of 500 frequencies and 500 functions. The mean of f(x) f(x') has variance s⁴(1 + k²)/10,000 from the
    weights and s⁴((1 + k(2r))/2 − k²)/10,000 from the frequencies, nearly independent: 5 standard errors."""
    draws, m, functions = 20, 500, 500
    x, generator = points(6), rng(7)
    total = torch.zeros(6, 6, dtype=torch.float64)
    for _ in range(draws):
        prior = FeaturePrior.draw(get_kernel(name), 3, 2 * m, functions, generator=generator)
        f = prior.evaluate(x, THETA)
        total += f @ f.T / functions
    k = unit_kernel(name, x, THETA.length_scales)
    k_double = unit_kernel(name, 2 * x, THETA.length_scales)
    variance = (1 + k**2) / (draws * functions) + ((1 + k_double) / 2 - k**2) / (draws * m)
    error = (total / draws - SIGNAL**2 * k).abs()
    assert bool((error <= 5 * SIGNAL**2 * variance.sqrt()).all()), error


@pytest.mark.parametrize("c", [0.3, 2.0])
@NAMES
def test_a_new_theta_moves_the_same_functions(name: str, c: float) -> None:
    """Length scales times c are inputs divided by c, and the signal scale is a factor; nothing is drawn again."""
    prior, x = draw(name), points(20)
    before = [part.clone() for part in (prior.frequencies, prior.sin_weights, prior.cos_weights)]
    stretched = Hyperparameters(0.9, 2 * SIGNAL, c * THETA.length_scales)
    moved = prior.evaluate(x, stretched)
    torch.testing.assert_close(moved, 2 * prior.evaluate(x / c, THETA), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(moved, 2 * prior.evaluate(x, THETA), rtol=1e-2, atol=1e-2)
    after = (prior.frequencies, prior.sin_weights, prior.cos_weights)
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_one_shared_length_scale_is_that_length_for_every_input() -> None:
    prior, x = draw(), points(20)
    shared, repeated = (Hyperparameters(0.2, SIGNAL, [1.7] * count) for count in (1, 3))
    assert torch.equal(prior.evaluate(x, shared), prior.evaluate(x, repeated))


@pytest.mark.parametrize("tile_entries", [1, 7, 33, 100, 10**4])
@pytest.mark.parametrize("n", [1, 37])
def test_blocks_give_the_unblocked_result(n: int, tile_entries: int) -> None:
    prior, x = draw(), points(n)
    whole = prior.evaluate(x, THETA)
    assert whole.shape == (n, 4)
    torch.testing.assert_close(prior.evaluate(x, THETA, tile_entries=tile_entries), whole, rtol=1e-12, atol=1e-12)


@NAMES
def test_float32_is_the_same_functions_rounded(name: str) -> None:
    """Phases ω·x of a few hundred keep 1e-5 in float32; Matérn-1/2 draws some frequencies in the thousands (Cauchy
    tails), each worth 1/√m of a function: hence 1e-3 for it and 1e-4 for the others."""
    exact, rounded = (draw(name, n_features=400, dtype=dtype) for dtype in (torch.float64, torch.float32))
    assert torch.equal(rounded.frequencies, exact.frequencies.float())
    assert torch.equal(rounded.sin_weights, exact.sin_weights.float())
    assert torch.equal(rounded.cos_weights, exact.cos_weights.float())
    x = points(50).float()
    f = rounded.evaluate(x, THETA)
    assert f.dtype == torch.float32
    truth = exact.evaluate(x.double(), THETA)
    assert float((f.double() - truth).norm() / truth.norm()) <= (1e-3 if name == "matern12" else 1e-4)
    torch.testing.assert_close(exact.evaluate(x, THETA), f, rtol=1e-4, atol=1e-5)  # the inputs decide the dtype


def test_a_seed_means_the_same_functions() -> None:
    x = points(8)
    assert torch.equal(draw(seed=3).evaluate(x, THETA), draw(seed=3).evaluate(x, THETA))
    assert not torch.allclose(draw(seed=3).evaluate(x, THETA), draw(seed=4).evaluate(x, THETA))
    generator = rng(3)
    first, second = (FeaturePrior.draw(get_kernel("rbf"), 3, 8, 2, generator=generator) for _ in range(2))
    assert not torch.equal(first.frequencies, second.frequencies)


def test_evaluating_leaves_the_inputs_alone_and_knows_its_sizes() -> None:
    prior, x = draw(n_features=10, n_functions=7), points(9)
    before = x.clone()
    assert prior.evaluate(x, THETA).shape == (9, 7)
    assert torch.equal(x, before)
    assert (prior.n_features, prior.n_functions) == (10, 7)
    assert prior.frequencies.shape == (5, 3)


@pytest.mark.parametrize("n_features", [-2, 0, 1, 3, 1001])
def test_a_number_of_features_that_is_not_pairs_is_refused(n_features: int) -> None:
    with pytest.raises(ValueError, match=f"n_features must be an even number of at least 2 .* got {n_features}"):
        draw(n_features=n_features)


# -- exact draws -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", list(OPERATORS))
@NAMES
def test_exact_draws_are_the_cholesky_factor_times_frozen_normals(name: str, kind: str) -> None:
    """At two θ with the same u. The allowance is for the jitter of 1e-10 against the smallest eigenvalues of K."""
    x, prior = points(12), ExactPrior.draw(12, 5, generator=rng(2))
    operator = OPERATORS[kind](x, get_kernel(name), THETA)
    for theta in (THETA, Hyperparameters(0.9, 0.7, [0.5, 0.6, 0.7])):
        K = theta.signal_scale**2 * unit_kernel(name, x, theta.length_scales)
        f = prior.evaluate(operator.at(theta))
        torch.testing.assert_close(f, torch.linalg.cholesky(K) @ prior.normal, rtol=1e-6, atol=1e-6)


def test_exact_draws_have_the_kernel_as_covariance() -> None:
    """20,000 draws: within 5 standard errors √((K_ii K_jj + K_ij²)/20,000). The noise is no part of it."""
    functions, x = 20_000, points(7)
    operator = OPERATORS["dense"](x, get_kernel("matern32"), THETA)
    f = ExactPrior.draw(7, functions, generator=rng(5)).evaluate(operator)
    K = SIGNAL**2 * unit_kernel("matern32", x, THETA.length_scales)
    error = (f @ f.T / functions - K).abs()
    assert bool((error <= 5 * ((SIGNAL**4 + K**2) / functions).sqrt()).all()), error


@NAMES
def test_exact_draws_agree_at_repeated_points(name: str) -> None:
    """K is singular there; jitter of 1e-10 makes it factor, and parts the two values by about √1e-10 = 1e-5."""
    x = points(10).repeat(2, 1)
    operator = OPERATORS["dense"](x, get_kernel(name), THETA)
    f = ExactPrior.draw(20, 3, generator=rng(2)).evaluate(operator)
    assert float((f[:10] - f[10:]).abs().max()) <= 1e-4
    assert float(f.abs().max()) > 0.1


def test_exact_draws_follow_seed_and_dtype() -> None:
    first, again, other = (ExactPrior.draw(6, 2, generator=rng(seed)) for seed in (0, 0, 1))
    assert first.normal.shape == (6, 2)
    assert first.normal.dtype == torch.float64
    assert torch.equal(first.normal, again.normal)
    assert not torch.equal(first.normal, other.normal)
    f = first.evaluate(OPERATORS["chunked"](points(6).float(), get_kernel("matern32"), THETA))
    assert f.dtype == torch.float32
    truth = first.evaluate(OPERATORS["chunked"](points(6).float().double(), get_kernel("matern32"), THETA))
    torch.testing.assert_close(f.double(), truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "d", "repeat"), [("rbf", 2, 1), ("matern32", 4, 2), ("matern12", 4, 2)])
def test_exact_prior_of_a_float32_operator(name: str, d: int, repeat: int) -> None:
    """K is evaluated in float64: in float32 it would not be positive definite here (close or duplicated rows)."""
    x = torch.randn(50, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).repeat(repeat, 1)
    prior = ExactPrior.draw(len(x), 2, generator=torch.Generator().manual_seed(0))
    truth = prior.evaluate(DenseOperator(x, get_kernel(name), Hyperparameters.ones(d)))
    found = prior.evaluate(DenseOperator(x.float(), get_kernel(name), Hyperparameters.ones(d)))
    assert found.dtype == torch.float32
    assert (found - truth).norm() <= 1e-2 * truth.norm()


@pytest.mark.parametrize("d", [1, 3, 26])
@pytest.mark.parametrize("name", list(KERNELS))
def test_spread_frequencies_keep_the_kernel(name: str, d: int) -> None:
    """E[p/q · cos(ω·δ)] = k(|δ|) within 4 standard errors, and p/q ≤ 2 because half of q is p."""
    kernel = KERNELS[name]
    frequencies, amplitudes = spread_frequencies(kernel, 40_000, d, rng(3), kernel.tail_scales(d))
    assert float(amplitudes.max()) <= 2**0.5 * (1 + 1e-9)
    for r in (0.0, 0.1, 1.0):
        delta = torch.full((d,), r / d**0.5, dtype=torch.float64)
        terms = amplitudes.square() * torch.cos(frequencies @ delta)
        expected = float(kernel.profile(torch.tensor(r, dtype=torch.float64)))
        assert abs(float(terms.mean()) - expected) <= 4 * float(terms.std()) / 200 + 1e-12


@pytest.mark.parametrize("m", [1, 2, 3, 11, 100])
def test_any_number_of_frequencies_can_be_spread(m: int) -> None:
    kernel = KERNELS["matern32"]
    frequencies, amplitudes = spread_frequencies(kernel, m, 2, rng(0), kernel.tail_scales(2))
    assert frequencies.shape == (m, 2) and amplitudes.shape == (m,) and bool((amplitudes > 0).all())
    if m == 1:
        assert float(amplitudes) == 1.0  # all of q is p


def test_plain_frequencies_are_those_of_the_spectrum() -> None:
    kernel = KERNELS["matern32"]
    prior = FeaturePrior.draw(kernel, 2, 10, 3, generator=rng(5), plain=True)
    again = rng(5)
    assert torch.equal(prior.frequencies, kernel.sample_frequencies(5, 2, again))
    assert torch.equal(prior.sin_weights, torch.randn(2, 5, 3, dtype=torch.float64, generator=again)[0])


def variance_off(plain: bool, noise: float = 1e-3) -> torch.Tensor:
    """log(variance from samples / exact variance) between 300 points on a line of 30 length scales."""
    kernel, theta = KERNELS["matern32"], Hyperparameters(noise, 1.0, [1.0])
    x = torch.linspace(0, 30, 300, dtype=torch.float64)[:, None]
    x_new = x[:-1] + 0.05
    H = kernel.profile((x - x.T).abs()) + noise**2 * torch.eye(300, dtype=torch.float64)
    k_new = kernel.profile((x_new - x.T).abs())
    exact = 1.0 - (k_new * torch.linalg.solve(H, k_new.T).T).sum(1)
    prior = FeaturePrior.draw(kernel, 1, 2000, 256, generator=rng(0), plain=plain)
    w = torch.randn(300, 256, dtype=torch.float64, generator=rng(1))
    z = torch.linalg.solve(H, prior.evaluate(x, theta) + noise * w)
    sampled = (prior.evaluate(x_new, theta) - k_new @ z).square().mean(1)
    return (sampled / exact).log()


def test_spread_frequencies_make_low_variances_right() -> None:
    """256 samples have a standard deviation of √(2/256) = 0.09 in the log; as many plain features are lost."""
    spread, plain = variance_off(plain=False), variance_off(plain=True)
    assert abs(float(spread.mean())) < 0.1 and float(spread.std()) < 0.13
    assert abs(float(plain.mean())) > 0.3 or float(plain.std()) > 0.3


@pytest.mark.parametrize("length", [3.0, 30.0])
def test_variances_of_a_rough_kernel_with_one_input(length: float) -> None:
    """Matérn-1/2 needs frequencies up to the inverse spacing over the length scale: std from 512 functions within 15%
    (they alone are known to 3%, their frequencies to about 5%)."""
    n, theta = 500, Hyperparameters(0.002, 1.0, [length])
    x = torch.linspace(-2, 2, n, dtype=torch.float64)[:, None]
    new = x[:-1] + 2 / (n - 1)  # halfway
    kernel = get_kernel("matern12")
    K, cross = (torch.exp(-(a - b.T).abs() / length) for a, b in ((x, x), (new, x)))
    H = K + 0.002**2 * torch.eye(n, dtype=torch.float64)
    exact = (1 - (cross * torch.linalg.solve(H, cross.T).T).sum(1)).mean().sqrt()
    prior = FeaturePrior.draw(kernel, 1, 2000, 512, generator=rng(3))
    f = prior.evaluate(torch.cat([x, new]), theta)
    noise = 0.002 * torch.randn(n, 512, dtype=torch.float64, generator=rng(4))
    away = f[n:] - cross @ torch.linalg.solve(H, f[:n] + noise)
    assert 0.85 < float(away.square().mean().sqrt() / exact) < 1.15


def test_fast_frequencies_keep_their_phase_in_float32() -> None:
    theta = Hyperparameters(0.1, 1.0, [0.05])
    prior = FeaturePrior.draw(get_kernel("matern12"), 1, 2000, 4, generator=rng(5))
    x = torch.linspace(-2, 2, 300, dtype=torch.float32)[:, None]
    parts = (prior.frequencies, prior.sin_weights, prior.cos_weights)
    single = FeaturePrior(*(part.float() for part in parts))
    double = FeaturePrior(*(part.float().double() for part in parts))
    same_scale = Hyperparameters(0.1, 1.0, theta.length_scales)
    whole = single.evaluate(x, same_scale)
    scaled_like = (x / theta.length_scales.to(x)).double() * theta.length_scales  # the same rounding of x/ℓ
    assert float((whole.double() - double.evaluate(scaled_like, same_scale)).abs().max()) < 1e-3
    assert torch.allclose(torch.cat([single.evaluate(row[None], same_scale) for row in x[:20]]), whole[:20], atol=1e-4)
