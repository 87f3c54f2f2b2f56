"""The value of the marginal likelihood of a trained model, for any number of points, and how far it may be off.

    L = −½ (yᵀH⁻¹y + log|H| + n log 2π)

By a factor of H it is exact. Otherwise log|H| comes from near neighbours and probes
(:mod:`warmgp.solvers.log_determinant`), and yᵀH⁻¹y from the solution v of the mean, whose residual r = y − H v leaves

    yᵀH⁻¹y = yᵀv + vᵀr + rᵀH⁻¹r,

of which the last is small and never negative; a few conjugate gradients make it smaller. With a trend y is what its
estimated coefficients leave: the profile likelihood, the greatest over all coefficients.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.gradient.base import columns
from warmgp.gradient.exact import log_marginal_likelihood
from warmgp.operators import make_operator
from warmgp.operators.base import KernelOperator
from warmgp.posterior import Posterior
from warmgp.solvers.log_determinant import AT_FIRST, AT_MOST, log_determinant, near_factor
from warmgp.solvers.preconditioners.neighbour_factor import NeighbourFactor
from warmgp.solvers.triangular import solve_with_factor

logger = logging.getLogger(__name__)

EXACT_UP_TO = 2_500
"""Points up to which a factor of H is made for this where the model has none."""

USUAL_STEPS = 20
"""The steps of the recurrence that a probe usually takes: n/(6 · these) probes take the n³/3 operations of a factor."""

WANTED = 0.001
"""The error of L that is aimed for, in nats a point: half of what is promised."""

QUADRATIC_SHARE, QUADRATIC_STEPS = 0.05, 30
"""The share of it that is left of ½ rᵀH⁻¹r, and the most conjugate gradients for that."""


@dataclass(frozen=True)
class Likelihood:
    """Holds the log marginal likelihood in standardised units, and its standard error: 0 where it is exact."""

    value: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.value:.6g}" + (f" ± {self.error:.2g}" if self.error else "")


def likelihood_of(posterior: Posterior, y: Tensor | None, *, stored: bool, exact: bool | None = None) -> Likelihood:
    """Returns the likelihood of a posterior.

    Parameters
    ----------
    posterior : Posterior
    y : Tensor or None, (n,), or (n, q) for several targets, of which the sum is returned
        The targets in standardised units, with any trend; None for what the solutions were solved for, H v.
    stored : bool
        Whether H in float64 fits the memory: it is then kept between products, and a factor may take over.
    exact : bool, optional
        Whether by a factor of H; by default where the posterior is exact, and up to ``EXACT_UP_TO`` points.
    """
    if exact is None:
        exact = posterior.exact or len(posterior.x) <= EXACT_UP_TO
    if y is not None:
        y = y.to(device=posterior.x.device, dtype=torch.float64)
        y = y if posterior.trend is None else y - posterior.trend.mean(posterior.x)
    if exact:
        try:
            return _by_factor(posterior, y)
        except torch.linalg.LinAlgError as error:
            logger.warning("the likelihood is estimated, because H has no factor: %s", error)
            return _by_probes(posterior, y, stored=False)
    return _by_probes(posterior, y, stored=stored)


def _by_factor(posterior: Posterior, y: Tensor | None) -> Likelihood:
    """Returns it by the Cholesky factor of H, with generalised least squares anew where there is a trend."""
    L = posterior.cholesky_factor(keep=posterior.exact)
    if y is None:
        half = L.T @ posterior.solution[:, : posterior.n_targets].double()
        y = L @ half
    y = columns(y)  # (n, q)
    v = solve_with_factor(L, y)
    if posterior.trend is not None:
        T = posterior.trend.basis.at(posterior.x)
        V = solve_with_factor(L, T)
        beta = torch.linalg.solve(T.T @ V, T.T @ v)
        y, v = y - T @ beta, v - V @ beta
    return Likelihood(log_marginal_likelihood(y, v, L))


def _by_probes(posterior: Posterior, y: Tensor | None, *, stored: bool) -> Likelihood:
    """Returns it by near neighbours and probes; by a factor where the spread of the probes makes that cheaper."""
    n = len(posterior.x)
    kind = "dense" if stored else "auto"
    operator = make_operator(kind, posterior.x.double(), posterior.kernel, posterior.theta, rows=posterior.noise)
    factor = near_factor(operator)
    wanted = 2.0 * WANTED * n  # of log|H|
    few = max(AT_FIRST, min(AT_MOST, n // (6 * USUAL_STEPS))) if stored else AT_MOST
    found = log_determinant(operator, wanted, factor, most=few)
    if stored and found.error > wanted:
        return _by_factor(posterior, y)
    value = error = 0.0
    for j in range(posterior.n_targets):
        own = None if y is None else columns(y)[:, j]
        fit, left = _quadratic(operator, factor, posterior.solution[:, j].double(), own, QUADRATIC_SHARE * wanted)
        value += -0.5 * (fit + found.value + n * math.log(2 * math.pi))
        error += 0.5 * (found.error + left)
    return Likelihood(value, error)


def _quadratic(
    operator: KernelOperator, factor: NeighbourFactor, v: Tensor, y: Tensor | None, wanted: float
) -> tuple[float, float]:
    """Returns yᵀH⁻¹y, and how far it may be off, from v ≈ H⁻¹y, (n,): by conjugate gradients on what is left."""
    product = operator.matmul(v[:, None])[:, 0]
    if y is None:
        return float(v @ product), 0.0
    r, v = y - product, v.clone()
    z = factor.root_transposed(factor.root(r[:, None]))[:, 0]
    p, rz = z, float(r @ z)  # rᵀP⁻¹r is about rᵀH⁻¹r
    for _ in range(QUADRATIC_STEPS):
        if rz <= wanted:
            break
        Hp = operator.matmul(p[:, None])[:, 0]
        step = rz / float(p @ Hp)
        v, r = v + step * p, r - step * Hp
        z = factor.root_transposed(factor.root(r[:, None]))[:, 0]
        new = float(r @ z)
        p, rz = z + (new / rz) * p, new
    return float(y @ v) + float(v @ r) + rz, rz
