"""No preconditioner: P = I."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.schema import SchemaError
from warmgp.solvers.base import Packed
from warmgp.solvers.preconditioners.base import Preconditioner, Preconditioning, Recipe


@dataclass(frozen=True)
class Unpreconditioned(Preconditioning):
    """Leaves the systems as they are."""

    name = "none"

    def build(self, operator: KernelOperator) -> Preconditioner:
        return Identity()

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> Recipe:
        for name in (*tensors, *content):
            raise SchemaError(f"has {name!r} of a preconditioner, and there is none")
        return Identity()


class Identity(Preconditioner, Recipe):
    """P⁻¹ = I, which is its own recipe."""

    made_by = Unpreconditioned()

    def apply(self, R: Tensor) -> Tensor:
        return R.clone()

    def moved_to(self, operator: KernelOperator) -> Identity:
        return self

    @property
    def recipe(self) -> Recipe:
        return self

    def pack(self) -> Packed:
        return {}, {}
