"""The preconditioner that does nothing: P = I."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.operators.part import Part
from warmgp.solvers.preconditioners.base import Preconditioner, Preconditioning


@dataclass(frozen=True)
class Unpreconditioned(Preconditioning):
    """Makes the identity, which leaves the systems as they are."""

    name = "none"

    def build(self, operator: KernelOperator) -> Identity:
        return Identity()


class Identity(Preconditioner):
    """Applies P⁻¹ = I."""

    made_by = Unpreconditioned()

    def apply_to(self, part: Part, R: Tensor) -> Tensor:
        return R

    def apply(self, R: Tensor) -> Tensor:
        return R
