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
    original : (x, y) or None
        The inputs and targets in float64, as they were before they were rounded to the operator's dtype; None where
        they were not. Answers are judged by these: float32 may have merged points that differ.
    """

    operator: KernelOperator
    y: Tensor
    held_out: tuple[Tensor, Tensor] | None = None
    original: tuple[Tensor, Tensor] | None = None

    @property
    def x_exact(self) -> Tensor:
        """The inputs in float64, (n, d), unrounded where the originals are known."""
        return self.operator.x.double() if self.original is None else self.original[0]

    @property
    def y_exact(self) -> Tensor:
        """The targets in float64, (n,), unrounded where the originals are known."""
        return self.y.double() if self.original is None else self.original[1]

    def at(self, theta: Hyperparameters) -> Problem:
        """The same problem at another θ. The operator's memory moves along: this problem must not be used again."""
        return replace(self, operator=self.operator.moved_to(theta))
