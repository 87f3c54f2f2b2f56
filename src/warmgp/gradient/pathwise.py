"""The pathwise estimator: tr(H⁻¹∂H) = E[ẑᵀ ∂H ẑ] with ẑ = H⁻¹ξ and ξ = f(x) + ε ~ N(0, H).

f is a prior function, and ε = σw, or √d_i w_i where rows have noise of their own, with w standard normal. The systems
start at an expected squared distance E|u|²_H = n from zero whatever the noise, and their solutions are posterior
samples for free: (f|y)(·) = f(·) + k(·, x)(v_y − ẑ).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count, check_features
from warmgp.gradient.base import GradientEstimator, columns, quadratic_weights
from warmgp.gradient.features import ExactPrior, FeaturePrior
from warmgp.gradient.normal import normal_of
from warmgp.operators.base import KernelOperator
from warmgp.schema import TensorRule
from warmgp.solvers.result import SolveResult


@dataclass(frozen=True)
class PathwiseDraw:
    """Holds prior functions and noise, both independent of θ until evaluated."""

    prior: FeaturePrior | ExactPrior
    noise: Tensor  # w, (n, s), of the rows of this process

    @property
    def functions(self) -> FeaturePrior | None:
        """The prior functions where they can be evaluated anywhere, else None."""
        return self.prior if isinstance(self.prior, FeaturePrior) else None

    def in_float64(self) -> PathwiseDraw:
        """Returns the same draw in float64."""
        prior = self.prior.in_float64() if isinstance(self.prior, FeaturePrior) else self.prior
        return PathwiseDraw(prior, self.noise.double())

    def by_rows(self, change: Callable[[Tensor], Tensor]) -> PathwiseDraw:
        """Returns the draw with other rows of what it holds by rows."""
        return replace(self, noise=change(self.noise))


def functions_of(draw: Any) -> FeaturePrior | None:
    """Returns the prior functions behind probes, whose solutions are then posterior samples.

    Returns None where there are none that can be evaluated anywhere: for the draws of other estimators, and for exact
    prior samples.
    """
    return draw.functions if isinstance(draw, PathwiseDraw) else None


@dataclass(frozen=True)
class Pathwise(GradientEstimator):
    """Takes prior functions plus noise as probes.

    Parameters
    ----------
    n_probes : int
    n_features : int
        Random features of the prior functions (even: sin/cos pairs). More features, less deviation from exact training.
    prior : "features", "plain" or "exact"
        "features" takes more frequencies from the tail of the spectrum than it has, "plain" takes them from the
        spectrum itself, as in the paper. "exact" prior samples cost a Cholesky factorisation a step and exist at the
        training points only: for studies.
    """

    n_probes: int = 64
    n_features: int = 2000
    prior: str = "features"

    name = "pathwise"
    draw_rules = {  # noqa: RUF012
        "noise": TensorRule(("n", "s")),
        "frequencies": TensorRule(("m", "d")),
        "sin_weights": TensorRule(("m", "s")),
        "cos_weights": TensorRule(("m", "s")),
    }

    def __post_init__(self) -> None:
        check_count("n_probes", self.n_probes)
        if self.prior not in ("features", "plain", "exact"):
            raise ValueError(f'prior must be "features", "plain" or "exact", got {self.prior!r}')
        check_features(self.n_features)

    def draw(self, operator: KernelOperator, generator: torch.Generator) -> PathwiseDraw:
        prior: FeaturePrior | ExactPrior
        if self.prior == "exact":
            prior = ExactPrior.draw(operator.n, self.n_probes, generator=generator)
        else:
            prior = FeaturePrior.draw(
                operator.kernel,
                operator.x.shape[1],
                self.n_features,
                self.n_probes,
                generator=generator,
                device=operator.device,
                dtype=operator.dtype,
                plain=self.prior == "plain",
            )
        return PathwiseDraw(prior, normal_of(operator.part, self.n_probes, generator))

    def targets(self, operator: KernelOperator, y: Tensor, draw: PathwiseDraw) -> Tensor:
        part = operator.part
        f = (
            part.own(draw.prior.evaluate(operator))
            if isinstance(draw.prior, ExactPrior)
            else draw.prior.evaluate(part.own(operator.x), operator.theta)
        )
        return torch.cat([columns(y), f + self._noise(operator, draw)], 1)

    @staticmethod
    def _noise(operator: KernelOperator, draw: PathwiseDraw) -> Tensor:
        """Returns ε = √d w of the own rows, (n, s)."""
        scale = operator.noise.scale_at(operator.part.here)
        return (scale.to(draw.noise.dtype) if isinstance(scale, Tensor) else scale) * draw.noise

    def gradient(self, operator: KernelOperator, result: SolveResult, targets: Tensor) -> Tensor:
        v = result.solution
        return operator.part.quadratic_gradient(v, v, quadratic_weights(self.n_probes, v.shape[1] - self.n_probes))

    def rehearse(self, operator: KernelOperator, V: Tensor) -> None:
        if operator.fuses_gradients:
            operator.quadratic_gradient(V, V, quadratic_weights(self.n_probes, V.shape[1] - self.n_probes))

    def pack(self, draw: PathwiseDraw | None) -> dict[str, Tensor]:
        if draw is None or draw.functions is None:
            return super().pack(None if draw is None else draw.prior)
        return {"noise": draw.noise, **vars(draw.functions)}

    def unpack(self, tensors: Mapping[str, Tensor]) -> PathwiseDraw | None:
        if "noise" not in tensors:
            return None
        functions = FeaturePrior(*(tensors[name] for name in ("frequencies", "sin_weights", "cos_weights")))
        return PathwiseDraw(functions, tensors["noise"])
