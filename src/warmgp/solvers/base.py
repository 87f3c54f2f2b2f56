"""The contract of a solver of H v = b: how it is called, what it may keep from one θ to the next, and in a checkpoint.

Nobody but a solver knows what its state is. Training hands it from solve to solve through :meth:`Solver.carry`, and a
checkpoint holds what :meth:`Solver.pack` makes of it.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from warmgp.checks import check_count
from warmgp.operators.base import KernelOperator
from warmgp.schema import SchemaError
from warmgp.solvers.progress import Progress, Stall
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.triangular import factor_or_raise

__all__ = [
    "Packed",
    "Progress",
    "SolveResult",
    "Solver",
    "Stall",
    "StoppingRule",
    "check_count",
    "factor_or_raise",
]

Packed = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors on any device and JSON values, each by name: what a checkpoint holds of a state."""


class Solver(ABC):
    """Solves H v = b. Implementations are frozen dataclasses of their options."""

    name: str
    leaves_factor: ClassVar[bool] = False  # whether a solve from zero returns a Cholesky factor of H

    @abstractmethod
    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: Any = None,
    ) -> SolveResult:
        """Solves H v = b for all columns of ``targets`` (n, 1 + s), from ``start`` or zero."""

    def refines_within(self, n: int) -> float:
        """Returns within how many epochs it gets from a usual tolerance to one far below; 0 where that costs much.

        It costs little where a solver turns to a whole factor of H when iterations take long, or where few suffice.
        """
        return 0.0

    def rehearse(self, operator: KernelOperator, V: Tensor) -> None:
        """Asks the operator for what a solve will, with V of (n, 1 + s) that holds anything, so that what is to be
        compiled for it is compiled. Override it to add what else a solver asks for."""
        operator.residual(V, V)

    # -- its state ---------------------------------------------------------------------------------------------------
    def carry(self, state: Any) -> Any:
        """Returns what the next θ may keep of a state. Override it to let go of what belongs to one H alone."""
        return state

    def in_float64(self, state: Any) -> Any:
        """Returns what a carried state is worth after training has gone over to float64: nothing, unless overridden."""
        return None

    def pack(self, state: Any) -> Packed:
        """Returns a carried state as tensors and JSON values, for a checkpoint.

        :meth:`unpack` makes a state from them that goes on to the same bits. A solver with a state overrides both: a
        checkpoint never leaves one out silently.
        """
        if state is None:
            return {}, {}
        raise ValueError(
            f"solver {self.name!r} keeps a {type(state).__name__} between solves, and does not say how a checkpoint "
            f"holds it: give {type(self).__name__} the methods pack and unpack, or fit without checkpoint"
        )

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> Any:
        """Returns the state of a checkpoint for inputs of that shape, (n, d); raises ValueError for what cannot be one.

        The tensors are on the CPU.
        """
        for name in (*tensors, *content):
            raise SchemaError(f"has {name!r} of a solver's state, which {self.name!r} does not know")
        return None

    # -- its options -------------------------------------------------------------------------------------------------
    @property
    def saved_name(self) -> str:
        """The solver's name in a file. It differs from ``name`` where options hold code, which a file cannot."""
        return self.name

    def options(self) -> dict[str, Any]:
        """Returns the options by name, as JSON values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]
