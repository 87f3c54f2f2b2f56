"""Every training point predicted from all others, without another fit: what H⁻¹ has on its diagonal.

    error_i = (P y)_i / P_ii,      variance_i = 1/P_ii,      P = H⁻¹, or H⁻¹ − V A⁻¹Vᵀ with a trend

of the observation y_i, whose own noise the variance includes. P y is the solution of the mean at hand. (H⁻¹)_ii comes
from the factor of H where there may be one. Beyond that it comes from the probes: their targets b ~ N(0, H) have
solutions ẑ = H⁻¹b with Var(ẑ_i) = (H⁻¹)_ii. What near points N say of the same target has the error e = b_i − wᵀb_N,
whose variance u is known exactly, and Cov(ẑ_i, e) = 1 whatever they are, so that

    (H⁻¹)_ii = 1/u + Var(ẑ_i − e/u),

of which only the second part is left to s probes. With t = 1/(u (H⁻¹)_ii), the share that near points tell, the
relative error is (1 − t) √(2/s): nothing where they tell all, √(2/s) where they tell nothing.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators import make_operator
from warmgp.operators.base import KernelOperator
from warmgp.operators.indices import ranges
from warmgp.operators.new_points import NearPoints
from warmgp.operators.row_noise import Noise
from warmgp.posterior import Posterior
from warmgp.solvers.triangular import inverse_from_factor, solve_with_factor

logger = logging.getLogger(__name__)

EXACT_UP_TO = 2_500
"""Points up to which a factor of H is made for this where the model has none."""

NEAR = {True: 32, False: 64}
"""Near points by which a point is predicted, by whether inputs are few."""

FEW_INPUTS = 3

AT_ONCE = {True: 2**10, False: 2**14}
"""Points that are predicted from near ones at once, by whether that is on a CPU."""

PRODUCTS_UP_TO = {True: 30_000, False: 3_000_000}
"""Points up to which products with H are taken for it, by whether that is on a CPU: a minute or so. Beyond, targets are
those that were kept with the samples, and what solves have left of them is looked at in ``SEEN`` rows."""

SEEN = 512

LEAST_SHARE = 1e-6
"""The least share of (H⁻¹)_ii that a trend may leave: a row that alone tells a coefficient is not predicted at all."""


@dataclass(frozen=True)
class LeftOut:
    """Holds what all others say of each training point, in standardised units and float64 on the CPU.

    Attributes
    ----------
    error : Tensor, (n,)
        y_i less its prediction.
    variance : Tensor, (n,)
        Of that error, with the noise of the row.
    uncertain : Tensor, (n,)
        The relative error by chance of the variance, and of the error; zero where both are exact.
    left : Tensor, (n,)
        What the solve for the mean may have left of ``error``, a standard deviation.
    """

    error: Tensor
    variance: Tensor
    uncertain: Tensor
    left: Tensor

    def on_cpu(self) -> LeftOut:
        """Returns the same on the CPU."""
        return LeftOut(*(part.cpu() for part in vars(self).values()))


def left_out(posterior: Posterior, y: Tensor | None = None, *, exact: bool | None = None) -> tuple[LeftOut, bool]:
    """Returns what all others say of each training point, and whether that is exact.

    Parameters
    ----------
    posterior : Posterior
    y : Tensor, (n,), optional
        The targets in standardised units, with any trend; by default what the solutions were solved for, H v.
    exact : bool, optional
        Whether to take a factor of H; by default where the posterior is exact, and up to ``EXACT_UP_TO`` points.
    """
    if exact is None:
        exact = posterior.exact or len(posterior.x) <= EXACT_UP_TO
    y = None if y is None else y.to(device=posterior.x.device, dtype=torch.float64)
    if exact:
        try:
            return _by_factor(posterior, y).on_cpu(), True
        except torch.linalg.LinAlgError as error:
            logger.warning("left-out points are predicted from samples: %s", error)
    return _by_probes(posterior, y).on_cpu(), False


def targets_of(posterior: Posterior) -> Tensor:
    """Returns what the solution of the mean was solved for, with any trend, (n,), in float64 on the CPU: y, but for
    what that solve has left."""
    operator = make_operator("auto", posterior.x, posterior.kernel, posterior.theta, rows=posterior.noise)
    y = operator.in_float64().matmul(posterior.solution[:, :1].double())[:, 0]
    return (y if posterior.trend is None else y + posterior.trend.mean(posterior.x)).cpu()


# -- by a factor -----------------------------------------------------------------------------------------------------
def _by_factor(posterior: Posterior, y: Tensor | None) -> LeftOut:
    """Returns it exactly; the targets are solved for anew where they are known."""
    L = posterior.cholesky_factor(keep=posterior.exact)
    diagonal = inverse_from_factor(L).diagonal().clone()
    v = posterior.solution[:, 0].double() if y is None else solve_with_factor(L, y[:, None])[:, 0]
    if posterior.trend is not None:
        T = posterior.trend.basis.at(posterior.x)  # (n, p)
        V = solve_with_factor(L, T)
        VA = torch.linalg.solve(T.T @ V, V.T).T  # V A⁻¹
        v = v - VA @ (T.T @ v)
        diagonal = _with_trend(diagonal, V, VA)
    nothing = torch.zeros_like(v)
    return LeftOut(v / diagonal, 1.0 / diagonal, nothing, nothing)


def _with_trend(diagonal: Tensor, V: Tensor, VA: Tensor) -> Tensor:
    """Returns P_ii = (H⁻¹)_ii − (V A⁻¹Vᵀ)_ii, (n,)."""
    return torch.maximum(diagonal - (V * VA).sum(1), LEAST_SHARE * diagonal)


# -- by probes -------------------------------------------------------------------------------------------------------
def _by_probes(posterior: Posterior, y: Tensor | None) -> LeftOut:
    """Returns it from the solutions at hand, with near points as control: for one product with H for all of them, or
    none where that would take long."""
    operator = make_operator("auto", posterior.x, posterior.kernel, posterior.theta, rows=posterior.noise)
    kept = posterior.targets if operator.n > PRODUCTS_UP_TO[operator.device.type == "cpu"] else None
    if kept is None:
        targets = operator.matmul(posterior.solution)  # what the solutions are exact for
        targets[:, 0] = 0.0 if y is None else _residual(posterior, operator, y).to(targets)
        missed = 0.0, 0.0
    else:
        targets = torch.cat([torch.zeros(operator.n, 1).to(posterior.x), kept.values().to(posterior.x)], 1)
        missed = _missed(posterior, operator, targets[:, 1:], y)
    parts = _given_near(posterior, operator, targets)
    diagonal, uncertain, correction, told = (torch.cat(part) for part in zip(*parts, strict=True))
    v, whole = posterior.solution[:, 0].double() + correction, diagonal
    if posterior.trend is not None:
        V = posterior.trend.solution.double()
        diagonal = _with_trend(diagonal, V, V @ posterior.trend.covariance)
    uncertain = torch.hypot(uncertain, missed[1] ** 2 * whole) * whole / diagonal
    variance = (1.0 - uncertain.square()).clamp_min(0.1) / diagonal  # E[1/â] is larger than 1/a by that
    left = (1.0 - told).sqrt() * (correction * variance).abs()
    return LeftOut(v * variance, variance, uncertain, left.clamp_min(missed[0]))


def _missed(posterior: Posterior, operator: KernelOperator, targets: Tensor, y: Tensor | None) -> tuple[float, float]:
    """Returns what the solves have left of the mean's system and of the samples', a root mean square each, as ``SEEN``
    random rows have it, in float64; without targets y nothing is left of the mean's, which is solved for H v.

    A residual ρ of a sample that looks like noise adds ρ² (H⁻²)_ii to the square of ẑ_i, at least ρ² (H⁻¹)_ii², which
    is taken: the relative error ρ² (H⁻¹)_ii. One of the mean moves a left-out error by about as much as itself.
    """
    rows = torch.randperm(operator.n, generator=torch.Generator().manual_seed(0))[:SEEN].to(posterior.x.device)
    v, double = posterior.solution.double(), operator.in_float64()
    found = double.cross_matmul(double.x[rows], v) + double.noise.times(v[rows], rows)  # of H v, (rows, 1 + s)
    of_samples = float((targets[rows].double() - found[:, 1:]).square().mean().sqrt())
    if y is None:
        return 0.0, of_samples
    if posterior.trend is not None:
        y = y - posterior.trend.mean(posterior.x)
    return float((y[rows] - found[:, 0]).square().mean().sqrt()), of_samples


def _residual(posterior: Posterior, operator: KernelOperator, y: Tensor) -> Tensor:
    """Returns what the solve for the mean has left, (n,), in float64: in float32 rounding may be as large."""
    if posterior.trend is not None:
        y = y - posterior.trend.mean(posterior.x)
    return y - operator.in_float64().matmul(posterior.solution[:, :1].double())[:, 0]


def _given_near(
    posterior: Posterior, operator: KernelOperator, targets: Tensor
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Returns for one stretch of points after the other (H⁻¹)_ii, its relative error, what the residual of the first
    system moves v by, and the share t that near points tell, (b,) each.

    H⁻¹r is (r_i − wᵀr_N)/u by near points: most of what the solve for the mean has left.
    """
    n, d = posterior.x.shape
    near = NearPoints(
        posterior.x, posterior.kernel, posterior.theta, min(n - 1, NEAR[d <= FEW_INPUTS]), posterior.noise
    )
    groups, noise = near.nearest_others(), Noise(posterior.theta, posterior.noise)
    samples = posterior.n_samples
    parts = []
    for rows in ranges(n, AT_ONCE[posterior.x.device.type == "cpu"]):
        weights, variance = near.given(posterior.x[rows], groups[rows])
        good = torch.isfinite(variance)
        u = torch.where(good, variance + noise.at(rows), 1.0)
        by_near = torch.bmm(weights[:, None].to(targets), targets[groups[rows]])[:, 0]
        e = (targets[rows] - by_near).double() / u[:, None]  # (b, 1 + s)
        e = torch.where(good[:, None], e, 0.0)
        known = torch.where(good, 1.0 / u, 0.0)
        rest = (posterior.solution[rows, 1:].double() - e[:, 1:]).square().mean(1)
        diagonal = known + rest
        told = known / diagonal
        parts.append((diagonal, (1.0 - told) * math.sqrt(2.0 / samples), e[:, 0], told))
    return parts
