"""The problem that is trained on: inputs as an operator, targets, what is held out, and the same in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.trend import TrendColumns


@dataclass(frozen=True)
class Problem:
    """Holds what is trained on, in one dtype and on one device.

    Attributes
    ----------
    operator : KernelOperator
    y : Tensor, (n,) or (n, q)
        One target, or several that share H.
    held_out : (x, y) or None
    original : (x, y) or None
        The inputs and targets in float64, as they were before they were rounded to the operator's dtype; None where
        they were not. Answers are judged by these: float32 may have merged points that differ.
    promote : callable or None
        Makes the same problem in float64. With it every solve in float32 is checked against float64 (see
        :mod:`warmgp.training.precision`), and the first that fails is done again in float64, from where it got to,
        like all solves after it. A posterior by a factor is float64, too.
    single : KernelOperator or None
        The same H in float32, where this problem is in float64 and that one was not enough: corrections may be solved
        with it (:mod:`warmgp.training.refinement`).
    trend : TrendColumns or None
        The trend whose coefficients are found beside the process; ``y`` is then without its offset.
    """

    operator: KernelOperator
    y: Tensor
    held_out: tuple[Tensor, Tensor] | None = None
    original: tuple[Tensor, Tensor] | None = None
    promote: Callable[[], Problem] | None = None
    single: KernelOperator | None = None
    trend: TrendColumns | None = None

    @property
    def n_targets(self) -> int:
        """The number of targets, q: the first so many systems of a solve are theirs."""
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    @property
    def watched(self) -> bool:
        """Whether float32 is watched, and left for float64 where it is not enough."""
        return self.promote is not None and self.operator.dtype == torch.float32

    def unwatched(self) -> Problem:
        """Returns the same problem, solved in its own precision whatever comes of it."""
        return replace(self, promote=None)

    @property
    def x_exact(self) -> Tensor:
        """The inputs in float64, (n, d), unrounded where the originals are known."""
        return self.operator.x.double() if self.original is None else self.original[0]

    @property
    def y_exact(self) -> Tensor:
        """The targets in float64, shaped like ``y``, unrounded where the originals are known."""
        return self.y.double() if self.original is None else self.original[1]

    def moved_to(self, theta: Hyperparameters) -> Problem:
        """Returns the problem at another θ. The operator's memory moves along: this one must not be used again."""
        return replace(self, operator=self.operator.moved_to(theta))

    def in_float64_at(self, theta: Hyperparameters) -> Problem:
        """Returns the same problem in float64, at θ."""
        assert self.promote is not None
        return self.promote().moved_to(theta)

    def check(self) -> None:
        """Raises unless x and y are finite and fit each other."""
        operator, y = self.operator, self.y
        if len(y) != operator.n or not (y.ndim == 1 or (y.ndim == 2 and y.shape[1] > 1)):
            several = f"or ({operator.n}, q) for several targets"
            raise ValueError(f"y must have shape ({operator.n},) like the rows of x, {several}, got {tuple(y.shape)}")
        if y.dtype != operator.dtype or y.device != operator.device:
            raise ValueError(f"y must be {operator.dtype} on {operator.device} like x, got {y.dtype} on {y.device}")
        if not bool(torch.isfinite(operator.x).all()):
            raise ValueError("x must be finite, got NaN or infinity")
        if not bool(torch.isfinite(y).all()):
            raise ValueError("y must be finite, got NaN or infinity")
        for name, pair in (("original", self.original), ("validation", self.held_out)):
            if pair is not None and (len(pair[0]) != len(pair[1]) or pair[0].shape[1:] != operator.x.shape[1:]):
                shapes = " and ".join(str(tuple(part.shape)) for part in pair)
                raise ValueError(f"{name} must be x (m, {operator.x.shape[1]}) and y (m,), got shapes {shapes}")
        if self.original is not None and len(self.original[0]) != operator.n:
            raise ValueError(f"original must have the {operator.n} rows of x, got {len(self.original[0])}")
