"""The contracts of a preconditioner of conjugate gradients, of the options that make it, and of its checkpoint.

:class:`Preconditioning` is a way to make P ≈ H, a frozen dataclass of its options. :class:`Preconditioner` is P⁻¹ at
one θ, which knows how it goes on to the next. :class:`Recipe` is what a checkpoint holds of it: enough to go on as if
the preconditioner itself were still there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from warmgp import processes
from warmgp.operators.base import KernelOperator
from warmgp.operators.part import Part
from warmgp.schema import SchemaError
from warmgp.solvers.base import Packed


class Recipe(ABC):
    """Holds what a checkpoint keeps of a preconditioner."""

    made_by: Preconditioning

    @abstractmethod
    def at(self, operator: KernelOperator) -> Preconditioner | None:
        """Returns what the preconditioner itself would have become at the operator's θ.

        To the same bits where length scales have moved, as they do at every step of a training.
        """

    @abstractmethod
    def pack(self) -> Packed:
        """Returns the recipe as tensors and JSON values."""


class Preconditioner(ABC):
    """Applies P⁻¹ ≈ H⁻¹, made for one H or for an H nearby."""

    made_by: Preconditioning
    residual_may_rise: ClassVar[bool] = False  # whether it may do so a thousandfold in a solve that goes well

    @abstractmethod
    def apply(self, R: Tensor) -> Tensor:
        """Returns P⁻¹R, (n, c).

        On a GPU the call is recorded and replayed, unless the way it was made is ``fast``: it works on memory that
        stays where it is, and transfers nothing to the host.
        """

    def apply_to(self, part: Part, R: Tensor) -> Tensor:
        """Returns the own rows of P⁻¹R, for the own rows of R. Override it where that needs no whole array."""
        if part.alone:
            return self.apply(R)
        few = R.split(max(1, processes.PANEL // part.operator.n), 1)  # so many columns that all of their rows have room
        return torch.cat([part.own(self.apply(part.whole(some))) for some in few], 1)

    def at(self, operator: KernelOperator) -> Preconditioner | None:
        """Returns the preconditioner for the operator's θ, made from what of this one is still good there.

        Returns None where that is nothing: then it has to be made anew.
        """
        return None

    @property
    def recipe(self) -> Recipe | None:
        """The recipe that a checkpoint holds; None where nothing goes on from it, and it is made anew at every θ."""
        return None


class Preconditioning(ABC):
    """Makes a preconditioner of an operator. Implementations are frozen dataclasses of their options."""

    name: ClassVar[str]
    fast: ClassVar[bool] = False  # whether a solve takes only a few iterations with what it makes

    @abstractmethod
    def build(self, operator: KernelOperator) -> Preconditioner:
        """Makes the preconditioner of an operator from nothing."""

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> Recipe:
        """Returns the recipe of a checkpoint for inputs of shape (n, d); raises ValueError for what cannot be one."""
        raise SchemaError(f"has a preconditioner's recipe, which {self.name!r} does not know")

    def at(self, operator: KernelOperator, kept: Preconditioner | Recipe | None) -> Preconditioner:
        """Returns the preconditioner for the operator's θ.

        It goes on from ``kept`` where that has the same options and is still good, else it is built from nothing.
        """
        made = kept.at(operator) if kept is not None and kept.made_by == self else None
        if made is None:
            made = self.build(operator)
        if getattr(made, "made_by", None) != self:
            raise TypeError(f"{type(made).__name__} must have made_by, the {type(self).__name__} that built it")
        return made
