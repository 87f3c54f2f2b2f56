"""How far a kernel reaches: beyond it points keep the prior, and a kernel with a heavy tail has no such border."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warmgp import Kernel, Matern32
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import KERNELS
from warmgp.posterior import within_reach


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_a_kernel_is_zero_at_its_reach(kernel: Kernel) -> None:
    far = torch.tensor([kernel.reach], dtype=torch.float64)
    assert float(kernel.profile(far)) == 0.0


class Heavy(Matern32):
    """k(r) = 1/(1 + r²), which is a millionth at a thousand length scales."""

    name = "heavy"
    reach = torch.inf

    def profile(self, r: Tensor) -> Tensor:
        return 1 / (1 + r * r)

    def length_weight(self, r: Tensor) -> Tensor:
        return 2 / (1 + r * r) ** 2


def test_a_heavy_tail_is_not_cut() -> None:
    x, far = torch.zeros(3, 1, dtype=torch.float64), torch.tensor([[5e3]], dtype=torch.float64)
    theta = Hyperparameters.ones(1)
    assert float(within_reach(far, x, theta, Heavy())) == 5e3
    assert float(within_reach(far, x, theta, Matern32())) == 1e3


def test_a_subclass_with_a_profile_of_its_own_does_not_inherit_a_border() -> None:
    class Wide(Matern32):
        name = "wide"

        def profile(self, r: Tensor) -> Tensor:
            return 1 / (1 + r)

    assert Wide.reach == torch.inf and Heavy.reach == torch.inf and Matern32.reach == 1e3
