"""The standard (Hutchinson) estimator: tr(H⁻¹∂H) = E[(H⁻¹z)ᵀ ∂H z] with z ~ N(0, I).

The systems start at an expected squared distance E|u|²_H = tr(H⁻¹) from zero, which grows as the noise falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.checks import check_count
from warmgp.gradient.base import GradientEstimator, columns, quadratic_weights
from warmgp.gradient.normal import normal_of
from warmgp.operators.base import KernelOperator
from warmgp.schema import TensorRule
from warmgp.solvers.result import SolveResult


@dataclass(frozen=True)
class Standard(GradientEstimator):
    """Takes Gaussian probes z, with one solve and one product with ∂H for each."""

    n_probes: int = 64

    name = "standard"
    draw_rules = {"probes": TensorRule(("n", "s"))}  # noqa: RUF012

    def __post_init__(self) -> None:
        check_count("n_probes", self.n_probes)

    def draw(self, operator: KernelOperator, generator: torch.Generator) -> Tensor:
        """Draws z, (n, s)."""
        return normal_of(operator.part, self.n_probes, generator)

    def targets(self, operator: KernelOperator, y: Tensor, draw: Tensor) -> Tensor:
        return torch.cat([columns(y), draw], 1)

    def gradient(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> Tensor:
        v = result.solution
        q = v.shape[1] - self.n_probes
        right = torch.cat([v[:, :q], targets[:, q:]], 1)  # [v_y, z]
        return operator.part.quadratic_gradient(v, right, quadratic_weights(self.n_probes, q))

    def rehearse(self, operator: KernelOperator, V: Tensor) -> None:
        if operator.fuses_gradients:
            operator.quadratic_gradient(V, V.clone(), quadratic_weights(self.n_probes, V.shape[1] - self.n_probes))

    def pack(self, draw: Tensor | None) -> dict[str, Tensor]:
        return {} if draw is None else {"probes": draw}

    def unpack(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        return tensors.get("probes")
