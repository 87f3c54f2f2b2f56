"""The direction of the longest range of two inputs, by the likelihood of groups of near points.

With x turned by an angle φ, u = (cos φ x₁ + sin φ x₂, cos φ x₂ − sin φ x₁), and two length scales along u, the squared
distance of two points, r² = Δu₁²/ℓ₁² + Δu₂²/ℓ₂², is any quadratic form that there is: three numbers. Its slope by the
angle is

    ∂r²/∂φ = 2 Δu₁ Δu₂ (1/ℓ₁² − 1/ℓ₂²),

and with T_ab = Σ_ij ∂L/∂r²_ij Δu_a Δu_b for the pairs of all groups, ∂L/∂φ = 2 T₁₂ (1/ℓ₁² − 1/ℓ₂²). The likelihood of
groups gives slopes by length scales, which are those of T₁₁ and T₂₂. A third input u₁ + u₂ with a length scale so long
that it changes nothing has the slope of T₁₁ + 2 T₁₂ + T₂₂, and so gives T₁₂.

Groups are taken at several densities: those of all points tell what happens over short distances, thinned ones what
happens over long ones, where near points differ by their noise alone.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.conditionals import conditionals
from warmgp.operators.row_noise import RowNoise, rows_at
from warmgp.training.adam import Adam
from warmgp.training.local_start import nearest
from warmgp.training.state import TrainingOptions

logger = logging.getLogger(__name__)

FAR = 1e4
"""How many times the longer length scale that of the third input is: it adds 10⁻⁸ of itself to r²."""


@dataclass(frozen=True)
class AngleSearch:
    """Says how the angle is sought.

    Attributes
    ----------
    groups, size : int
        Groups of near points, at all densities together, and their points. There are no more groups than have three
        times the points of all data.
    sparsest : int
        Points that the thinnest sample of all keeps; densities fall to it by a factor of ``thinning``.
    thinning : int
    isotropic_steps, steps : int
        Steps of Adam with one length scale, and with two and the angle.
    learning_rate : float
        Their size at first, relative for hyperparameters above 1; it falls to ``least_rate`` of it, evenly.
    least_rate : float
    """

    groups: int = 32
    size: int = 96
    sparsest: int = 800
    thinning: int = 16
    isotropic_steps: int = 25
    steps: int = 60
    learning_rate: float = 0.1
    least_rate: float = 0.05


def find_angle(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    options: TrainingOptions,
    *,
    generator: torch.Generator,
    how: AngleSearch | None = None,
    noise: RowNoise | None = None,
) -> float:
    """Returns the angle in degrees, from 0 to 90, by which inputs x (n, 2) should be turned for y (n,).

    The same generator gives the same angle. ν is held within the limits of ``options``, and ``noise``
    is what that of each row is made of. Where numbers fail on the way,
    the angle of the last good step counts, with a line in the log.
    """
    how = AngleSearch() if how is None else how
    groups = _groups(x.double(), how, generator)
    x, y, noise = x.double()[groups], y.double()[groups], rows_at(noise, groups)
    try:
        theta = _isotropic(x, y, kernel, options, how, noise)
        phi = _principal(x, y, kernel, theta, noise)
    except torch.linalg.LinAlgError as error:
        logger.info("no angle was found, inputs are not turned: %s", error)
        return 0.0
    nu = torch.cat([theta.unconstrained, torch.tensor([phi], dtype=torch.float64)])
    adam, total = Adam.zeros(nu.numel()), 0.0
    for step in range(how.steps):
        theta = Hyperparameters.from_unconstrained(nu[:-1])
        try:
            total, slope, cross = _likelihood(_turned(x, float(nu[-1])), y, kernel, theta, noise)
        except torch.linalg.LinAlgError as error:
            logger.info("the search for an angle ends after %d of %d steps: %s", step, how.steps, error)
            break
        squares = theta.length_scales.square().reciprocal()
        by_angle = (2.0 * cross * (squares[0] - squares[1]))[None]
        rate = how.learning_rate * (1.0 + (how.least_rate - 1.0) * step / how.steps)
        stretch = torch.cat([theta.vector.clamp_min(1.0), torch.ones(1, dtype=torch.float64)])
        nu, adam = adam.ascend(nu, torch.cat([options.allowed(slope, theta), by_angle]), rate * stretch)
        nu = torch.cat([options.held(nu[:-1]), nu[-1:]])
    angle = math.degrees(float(nu[-1])) % 90.0
    logger.info("inputs are turned by %.2f degrees, log-density of the groups %.1f", angle, total)
    return angle


# -- groups ----------------------------------------------------------------------------------------------------------
def _groups(x: Tensor, how: AngleSearch, generator: torch.Generator) -> Tensor:
    """Returns the numbers of the points of groups at several densities, (p, g): all that the search looks at."""
    n = x.shape[0]
    size = min(how.size, n)
    z = (x - x.mean(0)).float()
    least, kept_points = max(how.sparsest, size), [n]
    while kept_points[-1] > least:
        kept_points.append(max(least, kept_points[-1] // how.thinning))
    number = -(-min(how.groups, -(-3 * n // size)) // len(kept_points))  # of each density
    found = []
    for count in kept_points:
        kept = torch.randperm(n, generator=generator)[:count].sort().values.to(x.device)
        centres = torch.randint(count, (number,), generator=generator).to(x.device)
        found.append(kept[nearest(z[kept], centres, size)])
    return torch.cat(found)


def _turned(x: Tensor, phi: float) -> Tensor:
    """Returns points x (p, g, 2) by their distances along the direction at φ, in radians, and across."""
    c, s = math.cos(phi), math.sin(phi)
    return torch.stack([c * x[..., 0] + s * x[..., 1], c * x[..., 1] - s * x[..., 0]], -1)


def _likelihood(
    u: Tensor, y: Tensor, kernel: Kernel, theta: Hyperparameters, noise: RowNoise | None = None
) -> tuple[float, Tensor, Tensor]:
    """Returns the log-density of all groups, its slope by ν, (4,), and T₁₂, for points u (p, g, 2) and y (p, g)
    or (p, g, q).

    θ has two length scales; ``noise`` is that of the points, (p, g).
    """
    p, size = y.shape[:2]
    far = FAR * theta.length_scales.max()
    wide = Hyperparameters(theta.noise_scale, theta.signal_scale, torch.cat([theta.length_scales, far[None]]))
    points = torch.cat([u, u.sum(-1, keepdim=True)], -1).reshape(p * size, 3)
    groups = torch.arange(p * size, device=y.device).reshape(p, size)
    flat = None if noise is None else RowNoise(noise.shares.reshape(-1), noise.known.reshape(-1))
    densities, gradient = conditionals(points, y.flatten(0, 1), groups, kernel, wide, size, flat)
    first, second, both = -0.5 * gradient[2:] * wide.length_scales.pow(3)  # ∂L/∂ℓ = −2 T/ℓ³
    return float(densities.sum()), theta.chain_rule(gradient[:-1]), 0.5 * (both - first - second)


# -- the start -------------------------------------------------------------------------------------------------------
def _isotropic(
    x: Tensor, y: Tensor, kernel: Kernel, options: TrainingOptions, how: AngleSearch, noise: RowNoise | None
) -> Hyperparameters:
    """Returns θ with two equal length scales that the groups are likely by, from ones."""
    theta = Hyperparameters.ones(2)
    nu, adam = options.begun(theta, kernel), Adam.zeros(4)
    for _ in range(how.isotropic_steps):
        theta = Hyperparameters.from_unconstrained(nu)
        _, slope, _ = _likelihood(x, y, kernel, theta, noise)
        slope[2:] = slope[2:].sum()
        nu, adam = adam.ascend(nu, options.allowed(slope, theta), how.learning_rate * theta.vector.clamp_min(1.0))
        nu = options.held(nu)
    return Hyperparameters.from_unconstrained(nu)


def _principal(x: Tensor, y: Tensor, kernel: Kernel, theta: Hyperparameters, noise: RowNoise | None) -> float:
    """Returns an axis, in radians, of the slope T of the likelihood by the metric: where the first gain is largest."""
    (first, second), cross = _slopes_by_metric(x, y, kernel, theta, noise)
    return 0.5 * math.atan2(2.0 * cross, first - second)


def _slopes_by_metric(
    x: Tensor, y: Tensor, kernel: Kernel, theta: Hyperparameters, noise: RowNoise | None
) -> tuple[tuple[float, float], float]:
    """Returns (T₁₁, T₂₂) and T₁₂ at θ."""
    _, slope, cross = _likelihood(x, y, kernel, theta, noise)
    by_length = slope[2:] / -torch.expm1(-theta.length_scales)
    first, second = (-0.5 * by_length * theta.length_scales.pow(3)).tolist()
    return (first, second), float(cross)
