"""Prior functions of another kernel: what becomes of the pathwise estimator when frequencies are drawn input by input.

The spectrum of a Matérn-3/2 kernel of r = |x − x'|/ℓ is a multivariate Student t with 3 degrees of freedom: one χ² for
all inputs of a frequency. With a χ² for each input the features are those of the product of one-dimensional kernels,

    E[f(x) f(x')] = s² Π_k k(|x_k − x'_k|/ℓ_k),

which is the same for one input, and rougher the more inputs differ. A public copy of the
paper's code draws them so, and this is here to see whether that is where its pathwise cells differ from ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from warmgp.gradient import Pathwise
from warmgp.gradient.features import FeaturePrior
from warmgp.gradient.pathwise import PathwiseDraw
from warmgp.operators.base import KernelOperator

DEGREES = 3  # of freedom: twice the smoothness of Matérn-3/2


@dataclass(frozen=True)
class ProductPathwise(Pathwise):
    """The pathwise estimator with prior functions of the product kernel."""

    prior: str = "plain"

    def draw(self, operator: KernelOperator, generator: torch.Generator) -> PathwiseDraw:
        draw = super().draw(operator, generator)
        assert isinstance(draw.prior, FeaturePrior)
        m, d = draw.prior.frequencies.shape
        frequencies = by_input(m, d, generator).to(draw.prior.frequencies)
        return replace(draw, prior=replace(draw.prior, frequencies=frequencies))


def by_input(m: int, d: int, generator: torch.Generator) -> torch.Tensor:
    """m frequencies (m, d) whose inputs are independent Student t."""
    normal = torch.randn(m, d, dtype=torch.float64, generator=generator)
    chi2 = torch.randn(m, d, DEGREES, dtype=torch.float64, generator=generator).square().sum(2)
    return normal * torch.sqrt(DEGREES / chi2)
