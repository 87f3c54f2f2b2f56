"""What conjugate gradients ask of a preconditioner, and of the options that make one.

Three small contracts. :class:`Preconditioning` is a way to make P ≈ H, a frozen dataclass of its options.
:class:`Preconditioner` is P⁻¹ at one θ, which knows how it goes on to the next. :class:`Recipe` is what a checkpoint
holds of it: enough to go on as if the preconditioner itself were still there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.solvers.base import Packed


class Recipe(ABC):
    """What is left of a preconditioner in a checkpoint."""

    made_by: Preconditioning

    @abstractmethod
    def moved_to(self, operator: KernelOperator) -> Preconditioner | None:
        """Returns what the preconditioner itself would have become at the operator's θ, to the same bits."""

    @abstractmethod
    def pack(self) -> Packed:
        """Returns the recipe as tensors and JSON values."""


class Preconditioner(ABC):
    """P⁻¹ for one H, or for an H nearby."""

    made_by: Preconditioning
    fast: ClassVar[bool] = False  # whether a solve takes a few iterations only with it
    residual_may_rise: ClassVar[bool] = False  # a thousandfold, in a solve that is on its way

    @abstractmethod
    def apply(self, R: Tensor) -> Tensor:
        """Returns P⁻¹R, (n, c), in memory of its own."""

    @abstractmethod
    def moved_to(self, operator: KernelOperator) -> Preconditioner | None:
        """Returns the preconditioner for the operator's θ, from what of this one is still good there; None where that
        is nothing, and it has to be made anew."""

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """What a checkpoint holds of it."""


class Preconditioning(ABC):
    """A way to precondition. Implementations are frozen dataclasses of their options."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, operator: KernelOperator) -> Preconditioner:
        """Makes the preconditioner of an operator from nothing."""

    @abstractmethod
    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> Recipe:
        """Returns the recipe of a checkpoint for inputs of that shape, (n, d); raises ValueError for what cannot be
        one."""

    def at(self, operator: KernelOperator, kept: Preconditioner | Recipe | None) -> Preconditioner:
        """Returns the preconditioner for the operator's θ: from an earlier one of the same options while that is good,
        else from nothing."""
        moved = kept.moved_to(operator) if kept is not None and kept.made_by == self else None
        return moved or self.build(operator)
