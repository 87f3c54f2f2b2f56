"""Whether given hyperparameters fit data: a quick search must beat them by what it predicts, not by what it fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from warmgp import Hyperparameters, Matern32
from warmgp.data.datasets import uci
from warmgp.training.explained import GROUP, GROUPS, quick_gain


def gain(data: tuple[Tensor, Tensor], noise: float, signal: float, lengths: list[float]) -> float:
    theta = Hyperparameters(noise, signal, lengths)
    return quick_gain(*data, Matern32(), theta, torch.Generator().manual_seed(0))[0]


def test_a_few_groups_that_others_fit_better_are_no_reason(uci_folder: Path) -> None:
    """Bike's target is the sum of its last two inputs, and these are about what training ends at. Groups of near points
    alone are likelier by a nat with others, which say less of other points."""
    split = uci("bike", 0, folder=uci_folder)
    x, y = (torch.as_tensor(part[:2_000]) for part in (split.x_train, split.y_train))
    data = x, (y - y.mean()) / y.std()
    assert gain(data, 0.001, 0.9, [1e4] * 15 + [0.9, 0.19]) < 0.1
    assert gain(data, 0.001, 0.9, [1e4] * 15 + [0.9, 1e4]) > 0.5


@pytest.mark.parametrize("n", [300, 2_000])
@pytest.mark.parametrize(("noise", "lengths"), [(0.5, [3.0, 4.0]), (0.003, [0.01, 0.01]), (0.003, [3.0, 1e4])])
def test_bad_ones_are_beaten_by_far(n: int, noise: float, lengths: list[float]) -> None:
    assert (n > GROUPS * GROUP) == (n == 2_000)
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.5 * torch.cos(2 * x[:, 1])
    assert gain((x, (y - y.mean()) / y.std()), noise, 1.5, lengths + [1e4] * 4) > 0.5
