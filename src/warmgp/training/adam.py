"""Adam (Kingma & Ba 2015) as a value: a step returns a new state, so an interrupted step leaves nothing half done."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Adam:
    """Holds the first and second moments of the gradient after ``t`` steps, in float64."""

    first: Tensor
    second: Tensor
    t: int = 0

    @classmethod
    def zeros(cls, size: int) -> Adam:
        """Returns the moments before the first step, (size,) each."""
        return cls(torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64))

    def ascend(self, nu: Tensor, gradient: Tensor, learning_rate: float | Tensor) -> tuple[Tensor, Adam]:
        """Returns ν and the moments after one step uphill, with the usual β = (0.9, 0.999), ε = 10⁻⁸."""
        t = self.t + 1
        first = 0.9 * self.first + 0.1 * gradient
        second = 0.999 * self.second + 0.001 * gradient.square()
        step = (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
        return nu + learning_rate * step, Adam(first, second, t)
