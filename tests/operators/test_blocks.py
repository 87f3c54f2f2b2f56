"""Blocks of H, many at once, against dense float64."""

from __future__ import annotations

import pytest
import torch

from gp_truth import h_matrix, toy
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator, DenseOperator, KernelOperator
from warmgp.operators.distances import _input_by_input, distances_within


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("kind", [DenseOperator, ChunkedOperator])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_are_those_of_h(kernel: str, kind: type[KernelOperator], dtype: torch.dtype) -> None:
    x = toy(90, 3)[0].to(dtype)
    x[7] = x[8]  # coincident points
    theta = Hyperparameters(0.01, 1.3, [0.5, 1.0, 20.0])
    operator = kind(x + 100.0, get_kernel(kernel), theta)
    H = h_matrix(kernel, operator.x.double(), theta.vector)
    index = torch.tensor([[0, 7, 8, 89], [5, 4, 3, 2], [8, 30, 7, 60]])
    before = operator.entries_evaluated
    found = operator.blocks(index)
    assert found.dtype == torch.float64 and operator.entries_evaluated - before == 3 * 16
    for block, rows in zip(found, index, strict=True):
        assert torch.allclose(block, H[rows][:, rows], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("d", [1, 3, 7])
def test_distances_within_groups_agree_whichever_way(d: int) -> None:
    z = torch.randn(4, 9, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z[:, 1] = z[:, 0]  # coincident points
    truth = (z[:, :, None] - z[:, None]).square().sum(3).sqrt()
    assert torch.equal(_input_by_input(z)[:, 0, 1], torch.zeros(4, dtype=torch.float64))
    for found in (_input_by_input(z), distances_within(z, exact=True)):
        assert torch.allclose(found, truth, rtol=1e-14, atol=0.0)
    assert torch.allclose(distances_within(z, exact=False), truth, rtol=1e-7, atol=1e-7)
