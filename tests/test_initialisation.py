"""The neighbourhood heuristic."""

from __future__ import annotations

import pytest
import torch

from gp_truth import toy
from warmgp import Cholesky, DenseOperator, Exact, Hyperparameters, TrainingOptions
from warmgp.initialisation import subset_heuristic
from warmgp.kernels import get_kernel
from warmgp.training import train_only

KERNEL = get_kernel("matern32")


def test_whole_data_as_neighbourhood_is_exact_training() -> None:
    x, y = toy(50)
    found = subset_heuristic(
        x, y, KERNEL, generator=torch.Generator().manual_seed(0), n_neighbours=80, n_centroids=2, n_steps=15
    )
    options = TrainingOptions(Cholesky(), Exact(), n_steps=15)
    H = DenseOperator(x, KERNEL, Hyperparameters.ones(2))
    truth = train_only(H, y, options, generator=torch.Generator()).theta
    assert torch.allclose(found.vector, truth.vector, rtol=1e-8)


def test_average_over_the_nearest_points_of_each_centroid() -> None:
    """Two far clusters with their own noise: each neighbourhood is one cluster, and θ is the average."""
    x, y = toy(80, 1)
    x[40:] += 100.0
    y[40:] += torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = []
    found = subset_heuristic(
        x, y, KERNEL, generator=torch.Generator().manual_seed(1), n_neighbours=40, n_centroids=6, n_steps=15,
        callbacks=[lambda record, state: sizes.append(state.solution.shape[0])],
    )  # fmt: skip
    options = TrainingOptions(Cholesky(), Exact(), n_steps=15)
    parts = [
        train_only(
            DenseOperator(x[part], KERNEL, Hyperparameters.ones(1)), y[part], options, generator=torch.Generator()
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
    found = subset_heuristic(x, y, KERNEL, generator=generator, ard=False, n_neighbours=20, n_centroids=2, n_steps=3)
    assert found.length_scales.shape == (1,)
    with pytest.raises(ValueError, match="n_neighbours"):
        subset_heuristic(x, y, KERNEL, generator=generator, n_neighbours=1)
