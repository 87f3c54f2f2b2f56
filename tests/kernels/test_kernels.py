"""Kernels: profiles, weights and spectra against forms written down independently."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import gamma, kv
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.gaussian_process import kernels as sklearn_kernels

from warmgp.kernels import KERNELS, RBF, FusedForm, Kernel, Matern12, Matern32, get_kernel

NU = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
NAMES = pytest.mark.parametrize("name", list(NU))


def grid(low: float = 1e-3, high: float = 8.0, count: int = 60) -> torch.Tensor:
    return torch.logspace(math.log10(low), math.log10(high), count, dtype=torch.float64)


def bessel_matern(r: np.ndarray, nu: float) -> np.ndarray:
    """2^(1−ν)/Γ(ν) · a^ν K_ν(a) with a = √(2ν) r; its limit exp(−r²/2) for ν = ∞."""
    if math.isinf(nu):
        return np.exp(-(r**2) / 2)
    a = math.sqrt(2 * nu) * r
    return 2 ** (1 - nu) / gamma(nu) * a**nu * kv(nu, a)


def test_these_are_all_kernels() -> None:
    """A kernel added to the registry without a row here would go untested."""
    assert set(KERNELS) == set(NU)
    assert all(kernel.name == name for name, kernel in KERNELS.items())


@NAMES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_profile_is_one_at_zero_and_keeps_the_dtype(name: str, dtype: torch.dtype) -> None:
    value = get_kernel(name).profile(torch.zeros(2, 3, dtype=dtype))
    assert value.dtype == dtype
    assert torch.equal(value, torch.ones(2, 3, dtype=dtype))


@NAMES
def test_profile_is_the_bessel_form_and_sklearns_kernel(name: str) -> None:
    r = grid()
    profile = get_kernel(name).profile(r).numpy()
    np.testing.assert_allclose(profile, bessel_matern(r.numpy(), NU[name]), rtol=1e-12)
    sklearn = sklearn_kernels.RBF() if name == "rbf" else sklearn_kernels.Matern(nu=NU[name])
    np.testing.assert_allclose(profile, sklearn(r.numpy()[:, None], np.zeros((1, 1)))[:, 0], rtol=1e-12)


@NAMES
def test_length_weight_is_minus_the_profiles_derivative_over_r(name: str) -> None:
    """Central differences with h = 1e-5 err by h²|k‴|/6 ≤ 1e-10·10 and by rounding of about 1e-16/h = 1e-11."""
    kernel, h = get_kernel(name), 1e-5
    r = grid(low=1e-2)
    difference = (kernel.profile(r + h) - kernel.profile(r - h)) / (2 * h)
    torch.testing.assert_close(-r * kernel.length_weight(r), difference, rtol=1e-8, atol=1e-9)


@NAMES
def test_length_weight_keeps_its_digits_near_zero(name: str) -> None:
    """−k′(r)/r written down without the difference of two numbers near each other."""
    r = grid(low=1e-6)
    expected = {
        "rbf": torch.exp(-(r**2) / 2),
        "matern12": torch.exp(-r) / r,
        "matern32": 3 * torch.exp(-math.sqrt(3) * r),
        "matern52": 5 / 3 * (1 + math.sqrt(5) * r) * torch.exp(-math.sqrt(5) * r),
    }
    torch.testing.assert_close(get_kernel(name).length_weight(r), expected[name], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("name", "limit"), [("rbf", 1.0), ("matern12", 0.0), ("matern32", 3.0), ("matern52", 5 / 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_length_weight_at_zero_is_minus_the_second_derivative_or_zero(
    name: str, limit: float, dtype: torch.dtype
) -> None:
    """ω(0) = −k″(0) where k is smooth. Matérn-1/2 has no limit there: zero, without touching its neighbours."""
    r = torch.tensor([0.0, 0.5, 0.0], dtype=dtype)
    weight = get_kernel(name).length_weight(r)
    assert weight.dtype == dtype
    assert weight[[0, 2]].tolist() == pytest.approx([limit, limit], rel=1e-6)
    assert float(weight[1]) == pytest.approx(float(get_kernel(name).length_weight(r[1:2].double())), rel=1e-6)


@NAMES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_evaluate_is_profile_and_weight(name: str, dtype: torch.dtype) -> None:
    kernel, r = get_kernel(name), torch.cat([torch.zeros(2), torch.linspace(0.001, 9.0, 50)]).to(dtype).view(4, 13)
    k, weight = kernel.evaluate(r.clone(), torch.empty_like(r))
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(k, kernel.profile(r), rtol=tolerance, atol=0.0)
    torch.testing.assert_close(weight, kernel.length_weight(r), rtol=tolerance, atol=0.0)
    assert k.data_ptr() != weight.data_ptr()


def test_evaluate_follows_functions_of_ones_own() -> None:
    class Doubled(Matern32):
        def profile(self, r: torch.Tensor) -> torch.Tensor:
            return 2.0 * super().profile(r)

    class Mixin:
        def profile(self, r: torch.Tensor) -> torch.Tensor:
            return 3.0 * torch.exp(-r)

    class Mixed(Mixin, RBF):
        pass

    r = torch.ones(1, 3)
    assert torch.equal(Mixed().evaluate(r.clone(), torch.empty_like(r))[0], 3.0 * torch.exp(-r))
    assert Matern32.evaluate is not Kernel.evaluate
    assert torch.equal(Doubled().evaluate(r.clone(), torch.empty_like(r))[0], Doubled().profile(r))


def test_a_fused_form_is_of_the_functions_that_it_stands_for() -> None:
    """Inherited with both functions, by a kernel of another name too, and not beside one that was replaced."""
    pytest.importorskip("triton", reason="the forms are Triton's")

    class Renamed(Matern32):
        name = "renamed"

    class Reweighed(Matern32):
        def length_weight(self, r: torch.Tensor) -> torch.Tensor:
            return 2.0 * super().length_weight(r)

    class Heavier(Reweighed):
        pass

    class WithForm(Reweighed):
        def fused_form(self) -> FusedForm | None:
            return RBF().fused_form()

    for kernel in KERNELS.values():
        assert isinstance(kernel.fused_form(), FusedForm)
    assert len({kernel.fused_form() for kernel in KERNELS.values()}) == len(KERNELS)
    assert Renamed().fused_form() is Matern32().fused_form()
    assert Reweighed().fused_form() is None and Heavier().fused_form() is None
    assert WithForm().fused_form() is RBF().fused_form()


@NAMES
def test_nothing_writes_into_the_distances(name: str) -> None:
    r = grid()
    kernel, before = get_kernel(name), r.clone()
    kernel.profile(r), kernel.length_weight(r)
    assert torch.equal(r, before)


@NAMES
def test_far_away_everything_is_zero_and_finite(name: str) -> None:
    r = torch.tensor([1e3, 1e6], dtype=torch.float32)
    kernel = get_kernel(name)
    for value in (kernel.profile(r), kernel.length_weight(r)):
        assert value.tolist() == [0.0, 0.0]


@NAMES
@pytest.mark.parametrize("r", [0.0, 0.3, 1.0, 2.5])
def test_spectrum_in_one_dimension_transforms_to_the_profile(name: str, r: float) -> None:
    """k(r) = 2 ∫₀^∞ p(ω) cos(ωr) dω."""
    kernel = get_kernel(name)

    def density(omega: float) -> float:
        return math.exp(kernel.spectral_log_density(torch.tensor([[omega]], dtype=torch.float64)))

    integral = quad(density, 0, np.inf)[0] if r == 0 else quad(density, 0, np.inf, weight="cos", wvar=r)[0]
    assert 2 * integral == pytest.approx(float(kernel.profile(torch.tensor(r, dtype=torch.float64))), abs=1e-7)


@NAMES
@pytest.mark.parametrize("r", [0.4, 1.0, 2.5])
def test_spectrum_in_three_dimensions_transforms_to_the_profile(name: str, r: float) -> None:
    """Over the sphere cos becomes sin(ωr)/(ωr): k(r) = 4π/r ∫₀^∞ p(ω) ω sin(ωr) dω. The dimension enters p."""
    kernel = get_kernel(name)

    def integrand(omega: float) -> float:
        vector = torch.tensor([[omega, 0.0, 0.0]], dtype=torch.float64)
        return omega * math.exp(kernel.spectral_log_density(vector))

    integral = quad(integrand, 0, np.inf, weight="sin", wvar=r)[0]
    expected = float(kernel.profile(torch.tensor(r, dtype=torch.float64)))
    assert 4 * math.pi / r * integral == pytest.approx(expected, abs=1e-7)


@NAMES
@pytest.mark.parametrize("d", [1, 4])
def test_spectral_log_density_is_scipys_normal_or_t(name: str, d: int) -> None:
    omega = np.random.default_rng(0).standard_normal((20, d)) * 3
    reference = multivariate_normal(np.zeros(d)) if name == "rbf" else multivariate_t(np.zeros(d), df=2 * NU[name])
    value = get_kernel(name).spectral_log_density(torch.from_numpy(omega))
    assert value.shape == (20,)
    np.testing.assert_allclose(value.numpy(), reference.logpdf(omega), rtol=1e-12)


@NAMES
@pytest.mark.parametrize("d", [1, 4])
def test_sampled_frequencies_average_to_the_profile(name: str, d: int) -> None:
    """mean cos(ω·δ) within 5 standard errors of k(|δ|), at six δ: a false alarm once in 300,000 runs of new seeds."""
    m = 100_000
    kernel = get_kernel(name)
    omega = kernel.sample_frequencies(m, d, torch.Generator().manual_seed(d))
    assert omega.shape == (m, d)
    assert omega.dtype == torch.float64
    direction = torch.randn(6, d, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    radius = torch.tensor([0.1, 0.3, 0.7, 1.0, 2.0, 4.0], dtype=torch.float64)
    delta = radius[:, None] * direction / direction.norm(dim=1, keepdim=True)
    cosine = torch.cos(omega @ delta.T)
    error = (cosine.mean(0) - kernel.profile(radius)).abs()
    assert bool((error <= 5 * cosine.std(0) / math.sqrt(m)).all()), error


@NAMES
def test_frequencies_follow_the_generator(name: str) -> None:
    kernel, generator = get_kernel(name), torch.Generator().manual_seed(5)
    first, second = (kernel.sample_frequencies(4, 3, generator) for _ in range(2))
    again = kernel.sample_frequencies(4, 3, torch.Generator().manual_seed(5))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_get_kernel_takes_a_name_or_a_kernel() -> None:
    assert isinstance(get_kernel("matern32"), Matern32)
    kernel = RBF()
    assert get_kernel(kernel) is kernel


@pytest.mark.parametrize("bad", ["matern", "RBF", "", None, 1.5])
def test_get_kernel_refuses_what_it_does_not_know_and_names_the_choices(bad: object) -> None:
    with pytest.raises(ValueError, match="kernel must be one of 'rbf', 'matern12', 'matern32', 'matern52'") as error:
        get_kernel(bad)
    assert repr(bad) in str(error.value)


def test_only_matern12_is_rough_at_zero() -> None:
    """Operators choose how to measure distances by this flag."""
    assert [name for name, kernel in KERNELS.items() if not kernel.smooth_at_zero] == [Matern12.name]


def test_what_a_plan_asks_of_a_kernel() -> None:
    """Near neighbours do not tell enough for RBF alone; Matérn-1/2 with one input needs more features."""
    assert [name for name, kernel in KERNELS.items() if not kernel.near_neighbours_suffice] == [RBF.name]
    counts = {(name, d): kernel.least_features(d) for name, kernel in KERNELS.items() for d in (1, 2, 20)}
    assert counts.pop((Matern12.name, 1)) == 8_000
    assert set(counts.values()) == {2_000}
