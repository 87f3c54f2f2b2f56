"""Hyperparameters: softplus and back, the chain rule, refusals, the noise floor."""

from __future__ import annotations

import math

import pytest
import torch

from warmgp.hyperparameters import Hyperparameters, inverse_softplus

MIXED = (0.07, 1.5, [0.3, 2.0, 30.0])


@pytest.mark.parametrize("value", [1e-6, 1e-3, 0.5, 1.0, 19.9, 20.1, 35.9, 36.1, 50.0, 1e3])
def test_softplus_round_trip_keeps_ten_digits(value: float) -> None:
    """Around 20 and 36, too: there torch's softplus, and ours, switch to the identity."""
    theta = Hyperparameters(value, 1.0, [value, 2.0])
    back = Hyperparameters.from_unconstrained(theta.unconstrained)
    torch.testing.assert_close(back.vector, theta.vector, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("value", [1e-6, 0.3, 1.0, 5.0])
def test_inverse_softplus_is_log_of_expm1(value: float) -> None:
    nu = inverse_softplus(torch.tensor(value, dtype=torch.float64))
    assert float(nu) == pytest.approx(math.log(math.expm1(value)), rel=1e-12)


def test_from_unconstrained_is_log_of_one_plus_exp() -> None:
    nu = torch.tensor([-3.0, 0.0, 2.0, 25.0], dtype=torch.float32)
    theta = Hyperparameters.from_unconstrained(nu)
    expected = [math.log1p(math.exp(value)) for value in nu.tolist()]
    assert theta.vector.tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("values", [MIXED, (1e-6, 50.0, [1e3]), (1e-4, 1.0, [1e-6, 21.0])])
def test_chain_rule_is_autograd_through_log_of_one_plus_exp(values: tuple[float, float, list[float]]) -> None:
    theta = Hyperparameters(*values)
    nu = theta.unconstrained.requires_grad_()
    gradient = torch.linspace(-2.0, 3.0, nu.numel(), dtype=torch.float64)
    (torch.logaddexp(nu, torch.zeros_like(nu)) * gradient).sum().backward()
    torch.testing.assert_close(theta.chain_rule(gradient), nu.grad, rtol=1e-10, atol=0.0)


def test_vector_is_noise_signal_lengths() -> None:
    theta = Hyperparameters(*MIXED)
    assert theta.vector.tolist() == [0.07, 1.5, 0.3, 2.0, 30.0]
    again = Hyperparameters.from_vector(theta.vector)
    assert (float(again.noise_scale), float(again.signal_scale), again.length_scales.tolist()) == MIXED
    assert again.equals(theta)


def test_ones_has_every_scale_at_one() -> None:
    assert Hyperparameters.ones(4).vector.tolist() == [1.0] * 6


def test_values_are_float64_copies_without_graph() -> None:
    lengths = torch.ones(3, dtype=torch.float32, requires_grad=True)
    source = torch.tensor(0.5, dtype=torch.float64)
    theta = Hyperparameters(source, 1, lengths)
    source.fill_(9.0)
    assert float(theta.noise_scale) == 0.5
    for value in (theta.noise_scale, theta.signal_scale, theta.length_scales):
        assert value.dtype == torch.float64
        assert not value.requires_grad


def test_equals_sees_the_last_bit() -> None:
    theta = Hyperparameters(*MIXED)
    vector = theta.vector
    vector[3] = torch.nextafter(vector[3], torch.tensor(10.0, dtype=torch.float64))
    assert theta.equals(Hyperparameters(*MIXED))
    assert not theta.equals(Hyperparameters.from_vector(vector))
    assert not theta.equals(Hyperparameters(0.07, 1.5, [0.3, 2.0]))


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["noise_scale", "signal_scale", "length_scales"])
def test_values_that_are_not_positive_and_finite_are_refused(name: str, bad: float) -> None:
    values = {"noise_scale": 0.1, "signal_scale": 1.0, "length_scales": [1.0, 2.0]}
    values[name] = [1.0, bad] if name == "length_scales" else bad
    with pytest.raises(ValueError, match=f"{name} must be positive and finite"):
        Hyperparameters(**values)


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_scale", [0.1]), ("signal_scale", [[1.0]]), ("length_scales", 1.0), ("length_scales", [[1.0, 2.0]])],
)
def test_wrong_number_of_dimensions_is_refused(name: str, value: object) -> None:
    values = {"noise_scale": 0.1, "signal_scale": 1.0, "length_scales": [1.0]} | {name: value}
    with pytest.raises(ValueError, match=rf"{name} must have \d dimension"):
        Hyperparameters(**values)


def test_no_length_scale_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="length_scales must be positive"):
        Hyperparameters(0.1, 1.0, [])


def test_noise_floor_raises_only_the_noise_and_only_from_below() -> None:
    theta = Hyperparameters(*MIXED)
    raised = theta.with_noise_floor(0.1)
    assert raised.vector.tolist() == [0.1, 1.5, 0.3, 2.0, 30.0]
    assert theta.with_noise_floor(0.05).equals(theta)
    assert theta.with_noise_floor(0.07).equals(theta)


@pytest.mark.parametrize(
    ("count", "d", "fits"), [(3, 3, True), (1, 3, True), (1, 1, True), (3, 1, False), (2, 3, False)]
)
def test_check_dimension_wants_one_per_column_or_one_for_all(count: int, d: int, fits: bool) -> None:
    theta = Hyperparameters.ones(count)
    if fits:
        theta.check_dimension(d)
    else:
        with pytest.raises(ValueError, match=f"length_scales has {count} entries but the inputs have {d} columns"):
            theta.check_dimension(d)
