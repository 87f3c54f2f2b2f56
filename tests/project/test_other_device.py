"""The device that is not there: it refuses what a GPU refuses, and computes what a CPU does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from other_device import DEVICE, Elsewhere, everything_elsewhere, other_device
from warmgp import GPRegressor

HERE = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "refused",
    [
        lambda there: there + HERE,
        lambda there: HERE @ there.T,
        lambda there: there.T @ HERE,
        lambda there: HERE[there[:, 0].long() % 3],
        lambda there: HERE.add_(there.sum()),
        lambda there: there.add_(HERE),
        lambda there: torch.cat([there, HERE]),
        lambda there: torch.stack([there[0, 0], HERE[0, 0]]),
        lambda there: torch.where(there > 1, there, HERE),
        lambda there: torch.linalg.solve_triangular(torch.eye(3), there, upper=False),
        lambda there: torch.addmm(HERE, there, torch.eye(4), out=there),
        lambda there: there.numpy(),
        lambda there: np.asarray(there),
        lambda there: torch.randn(3, device=there.device, generator=torch.Generator()),
        lambda there: torch.randperm(3, device=there.device, generator=torch.Generator()),
    ],
)
def test_what_a_gpu_refuses_is_refused(refused: Callable[[Tensor], object]) -> None:
    with other_device() as device:
        there = HERE.to(device)
        with pytest.raises((RuntimeError, TypeError)):
            refused(there)


@pytest.mark.parametrize(
    "allowed",
    [
        lambda t: t + HERE[0, 1],
        lambda t: 2.0 * t - t.mean(),
        lambda t: t[torch.tensor([2, 0])],
        lambda t: t[:, [1, 3]],
        lambda t: t[[True, False, True]],
        lambda t: t[[]],
        lambda t: t[t > 3],
        lambda t: t.clone().copy_(HERE),
        lambda t: t.clone().index_put_((torch.tensor([1]),), t[0]),
        lambda t: torch.linalg.cholesky(t @ t.T + 100.0 * torch.eye(3, device=t.device)),
        lambda t: t[0] @ t.T,
        lambda t: torch.as_tensor(HERE, device=t.device) * torch.tensor([1.0, 2.0, 3.0, 4.0], device=t.device),
        lambda t: torch.as_tensor(t, device=t.device, dtype=torch.float64),
        lambda t: torch.stack([t.new_ones(4), torch.zeros(4, device=t.device)]),
        lambda t: t.to_sparse_csr() @ t.T,
        lambda t: torch.tensor(t.tolist()),
        lambda t: torch.tensor(float(t.sum())),
    ],
)
def test_what_a_gpu_computes_is_what_a_cpu_does(allowed: Callable[[Tensor], Tensor]) -> None:
    with other_device() as device:
        there = HERE.to(device)
        assert isinstance(there, Elsewhere) and there.device == DEVICE
        found = allowed(there)
        assert torch.equal(found.cpu(), allowed(HERE))


def test_gradients_go_through_it() -> None:
    with other_device() as device:
        there = HERE.to(device).requires_grad_()
        (there.sin() * 2.0).sum().backward()
        assert there.grad is not None
        assert torch.allclose(there.grad.cpu(), 2.0 * HERE.cos())


def test_a_copy_is_another_tensor_and_a_change_in_place_is_seen_by_views() -> None:
    with other_device() as device:
        here = HERE.clone()
        there = here.to(device)
        view = there[1]
        there += 1.0
        assert torch.equal(view.cpu(), HERE[1] + 1.0) and torch.equal(here, HERE)
        there.cpu().zero_()
        assert torch.equal(view.cpu(), HERE[1] + 1.0)


def test_estimators_take_it_where_they_would_take_the_cpu() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    with everything_elsewhere():
        model = GPRegressor(n_steps=1).fit(X, X[:, 0])
        assert model.plan_.device == DEVICE and isinstance(model.posterior_.solution, Elsewhere)
    assert GPRegressor(n_steps=1).fit(X, X[:, 0]).plan_.device.type != DEVICE.type
