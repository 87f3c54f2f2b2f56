"""What is trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator


@dataclass(frozen=True)
class Problem:
    """What is trained on, in one dtype and on one device.

    Attributes
    ----------
    operator : KernelOperator
    y : Tensor, (n,)
    held_out : (x, y) or None
    """

    operator: KernelOperator
    y: Tensor
    held_out: tuple[Tensor, Tensor] | None = None

    def at(self, theta: Hyperparameters) -> Problem:
        """The same problem at another θ. The operator's memory moves along: this problem must not be used again."""
        return replace(self, operator=self.operator.moved_to(theta))
