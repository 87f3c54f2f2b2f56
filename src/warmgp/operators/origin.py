"""Which H something was computed from: its inputs, the noise of its rows, its kernel and its θ."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import RowNoise


@dataclass(frozen=True, eq=False)
class Origin:
    """Says which H something was computed from: a solver's state is good for an operator of the same origin only."""

    x: Tensor
    kernel: Kernel
    theta: Hyperparameters
    rows: RowNoise | None = None

    def same_data(self, other: Origin) -> bool:
        """Says whether both have the very same inputs and noise of rows, and the same kernel."""
        return self.x is other.x and self.rows is other.rows and self.kernel == other.kernel

    def same(self, other: Origin) -> bool:
        """Says whether both are the same H."""
        return self.same_data(other) and self.theta.equals(other.theta)
