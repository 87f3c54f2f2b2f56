"""What is random in the probes: packed and unpacked, in float64, and as functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from gp_truth import toy
from warmgp import DenseOperator, Exact, Hyperparameters, Pathwise, Standard
from warmgp.gradient import GradientEstimator, PathwiseDraw, functions_of, normal
from warmgp.gradient.features import ExactPrior, FeaturePrior
from warmgp.kernels import get_kernel
from warmgp.schema import check_tensors

THETA = Hyperparameters(0.3, 1.2, [0.8, 1.5])
KEPT: dict[str, GradientEstimator] = {
    "standard": Standard(5),
    "pathwise": Pathwise(5, 40),
    "plain": Pathwise(5, 40, "plain"),
}
"""Estimators whose draws a checkpoint holds."""
ESTIMATORS: dict[str, GradientEstimator] = {**KEPT, "exact prior": Pathwise(5, 40, "exact"), "exact": Exact()}
WHERE = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def problem(dtype: torch.dtype = torch.float64) -> tuple[DenseOperator, Tensor]:
    x, y = toy(30)
    return DenseOperator(x.to(dtype), get_kernel("matern32"), THETA), y.to(dtype)


def drawn(estimator: GradientEstimator, operator: DenseOperator) -> Any:
    return estimator.draw(operator, torch.Generator().manual_seed(0))


# -- in a checkpoint -------------------------------------------------------------------------------------------------
@WHERE
@pytest.mark.parametrize("name", KEPT)
def test_a_draw_that_was_packed_has_the_same_targets(name: str, dtype: torch.dtype) -> None:
    """At any θ, bit for bit; and by the names and shapes that the file is held against."""
    estimator, (operator, y) = KEPT[name], problem(dtype)
    draw = drawn(estimator, operator)
    packed = estimator.pack(draw)
    assert packed.keys() == estimator.draw_rules.keys()
    check_tensors(packed, estimator.draw_rules, {"n": 30, "d": 2, "s": 5, "m": 20})
    again = estimator.unpack({key: tensor.clone() for key, tensor in packed.items()})
    assert type(again) is type(draw)
    for theta in (THETA, Hyperparameters(0.1, 0.7, [1.4, 0.3])):
        there = operator.at(theta)
        assert torch.equal(estimator.targets(there, y, again), estimator.targets(there, y, draw))
    other = estimator.draw(operator, torch.Generator().manual_seed(1))
    assert not torch.equal(estimator.targets(operator, y, other), estimator.targets(operator, y, draw))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_draw_is_no_draw(name: str) -> None:
    assert ESTIMATORS[name].pack(None) == {}
    assert ESTIMATORS[name].unpack({}) is None
    assert functions_of(None) is None


@pytest.mark.parametrize("name", KEPT)
def test_tensors_of_others_are_no_draw(name: str) -> None:
    """A checkpoint holds more than the draw."""
    tensors = {"nu": torch.zeros(4), "solution": torch.zeros(30, 6), "generator": torch.zeros(8)}
    assert KEPT[name].unpack(tensors) is None
    operator, y = problem()
    draw = drawn(KEPT[name], operator)
    again = KEPT[name].unpack({**tensors, **KEPT[name].pack(draw)})
    assert torch.equal(KEPT[name].targets(operator, y, again), KEPT[name].targets(operator, y, draw))


def test_draws_that_a_checkpoint_cannot_hold_say_so() -> None:
    operator, _ = problem()
    exact = ESTIMATORS["exact prior"]
    with pytest.raises(ValueError, match="cannot hold probes of kind ExactPrior: fit without checkpoint"):
        exact.pack(drawn(exact, operator))


@dataclass(frozen=True)
class Own(GradientEstimator):
    """An estimator of one's own that says nothing about its draws."""

    name = "own"
    n_probes = 1

    def draw(self, operator: Any, generator: torch.Generator) -> Any:
        return {"signs": torch.ones(operator.n, 1)}

    def targets(self, operator: Any, y: Tensor, draw: Any) -> Tensor:
        return torch.cat([y[:, None], draw["signs"]], 1)

    def gradient(self, operator: Any, result: Any, targets: Tensor) -> Tensor:
        return torch.zeros(4, dtype=torch.float64)


def test_an_estimator_of_ones_own_is_never_left_out_silently() -> None:
    operator, _ = problem()
    own = Own()
    draw = drawn(own, operator)
    with pytest.raises(ValueError, match="cannot hold probes of kind dict: fit without checkpoint"):
        own.pack(draw)
    assert functions_of(draw) is None and own.in_float64(draw) is draw
    assert own.pack(None) == {} and own.draw_rules == {}


# -- in float64 ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["standard", "pathwise", "plain", "exact prior"])
def test_the_same_draw_in_float64(name: str) -> None:
    estimator = ESTIMATORS[name]
    (single, y), (double, y64) = problem(torch.float32), problem()
    draw = drawn(estimator, single)
    moved = estimator.in_float64(draw)
    before, after = estimator.targets(single, y, draw), estimator.targets(double, y64, moved)
    assert before.dtype == torch.float32 and after.dtype == torch.float64
    assert (after - before.double()).norm() <= 1e-4 * after.norm()
    assert type(moved) is type(draw)
    again = estimator.in_float64(moved)
    assert torch.equal(estimator.targets(double, y64, again), after)  # nothing is left to change
    if name in KEPT:
        packed = estimator.pack(moved)
        assert {tensor.dtype for tensor in packed.values()} == {torch.float64}
        assert all(torch.equal(packed[key], tensor.double()) for key, tensor in estimator.pack(draw).items())


def test_no_draw_in_float64() -> None:
    assert Exact().in_float64(None) is None


# -- as functions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["pathwise", "plain"])
def test_the_functions_behind_the_probes(name: str) -> None:
    """Probes are their values at the inputs, and noise."""
    estimator, (operator, y) = ESTIMATORS[name], problem()
    draw = drawn(estimator, operator)
    functions = functions_of(draw)
    assert isinstance(functions, FeaturePrior) and isinstance(draw, PathwiseDraw)
    assert functions.n_functions == 5 and functions.n_features == 40
    probes = functions.evaluate(operator.x, THETA) + 0.3 * draw.noise
    torch.testing.assert_close(estimator.targets(operator, y, draw)[:, 1:], probes)


@pytest.mark.parametrize("name", ["standard", "exact prior", "exact"])
def test_probes_that_are_no_functions(name: str) -> None:
    operator, _ = problem()
    draw = drawn(ESTIMATORS[name], operator)
    assert functions_of(draw) is None
    assert name != "exact prior" or isinstance(draw.prior, ExactPrior)


# -- by rows ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "columns"), [(1003, 5), (163, 7), (33, 1), (16, 1), (3, 2)])
def test_rows_are_drawn_in_chunks_to_the_bits_of_one_draw(
    n: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps which of them, and the generator goes on from the same place."""
    monkeypatch.setattr(normal, "AT_ONCE", 160)
    whole, generator = torch.Generator().manual_seed(1), torch.Generator()
    expected = torch.randn(n, columns, dtype=torch.float64, generator=whole)
    for here in (slice(0, n), slice(n // 3, 2 * n // 3), slice(n, n)):
        generator.manual_seed(1)
        found = normal.normal_rows(n, columns, here, generator, dtype=torch.float64, device=torch.device("cpu"))
        assert torch.equal(found, expected[here])
        assert torch.equal(generator.get_state(), whole.get_state())
