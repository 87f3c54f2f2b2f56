"""The contracts of a preconditioner of conjugate gradients, of the options that make it, and of its checkpoint.

:class:`Preconditioning` is a way to make P ≈ H, a frozen dataclass of its options. :class:`Preconditioner` is P⁻¹ at
one θ, which knows how it goes on to the next. :class:`Recipe` is what a checkpoint holds of it: enough to go on as if
the preconditioner itself were still there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.schema import SchemaError
from warmgp.solvers.base import Packed


class Recipe(ABC):
    """Holds what a checkpoint keeps of a preconditioner."""

    made_by: Preconditioning

    @abstractmethod
    def moved_to(self, operator: KernelOperator) -> Preconditioner | None:
        """Returns what the preconditioner itself would have become at the operator's θ, to the same bits."""

    @abstractmethod
    def pack(self) -> Packed:
        """Returns the recipe as tensors and JSON values."""


class Preconditioner(ABC):
    """Applies P⁻¹ ≈ H⁻¹, made for one H or for an H nearby."""

    made_by: Preconditioning
    fast: ClassVar[bool] = False  # whether a solve with it takes only a few iterations
    residual_may_rise: ClassVar[bool] = False  # whether it may do so a thousandfold in a solve that goes well

    @abstractmethod
    def apply(self, R: Tensor) -> Tensor:
        """Returns P⁻¹R, (n, c), in memory of its own."""

    def moved_to(self, operator: KernelOperator) -> Preconditioner | None:
        """Returns the preconditioner for the operator's θ, made from what of this one is still good there.

        Returns None where that is nothing: then it has to be made anew.
        """
        return None

    @property
    def recipe(self) -> Recipe:
        """The recipe that a checkpoint holds. A preconditioner that goes on from an earlier one overrides it."""
        return MadeAnew(self.made_by)


class Preconditioning(ABC):
    """A way to make a preconditioner. Implementations are frozen dataclasses of their options."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, operator: KernelOperator) -> Preconditioner:
        """Makes the preconditioner of an operator from nothing."""

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> Recipe:
        """Returns the recipe of a checkpoint for inputs of shape (n, d); raises ValueError for what cannot be one."""
        for name in (*tensors, *content):
            raise SchemaError(f"has {name!r} of a preconditioner, which {self.name!r} does not know")
        return MadeAnew(self)

    def at(self, operator: KernelOperator, kept: Preconditioner | Recipe | None) -> Preconditioner:
        """Returns the preconditioner for the operator's θ.

        It goes on from ``kept`` where that has the same options and is still good, else it is built from nothing.
        """
        moved = kept.moved_to(operator) if kept is not None and kept.made_by == self else None
        return moved or self.build(operator)


@dataclass(frozen=True)
class MadeAnew(Recipe):
    """The recipe of a preconditioner that nothing goes on from: it is made from its options at every θ."""

    made_by: Preconditioning

    def moved_to(self, operator: KernelOperator) -> Preconditioner:
        return self.made_by.build(operator)

    def pack(self) -> Packed:
        return {}, {}
