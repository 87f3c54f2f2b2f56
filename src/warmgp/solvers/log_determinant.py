"""The logarithm of the determinant of H, for any number of points: near neighbours exactly, what they miss by probes.

With the sparse factor P⁻¹ = SᵀS of near neighbours (:mod:`warmgp.solvers.preconditioners.neighbour_factor`)

    log|H| = −2 log|S| + tr log M,      M = S H Sᵀ,

log|S| is a sum, and M is near to I. For probes z of ±1 the expectation of zᵀ(log M)z is that trace; k steps of Lanczos'
recurrence from z give a quadrature of it with k nodes, the eigenvalues of a tridiagonal matrix. It is an upper bound
that falls with every step, for a logarithm. The error of the trace is what chance leaves of the probes' mean, and what
the last steps say of those not taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.operators.base import KernelOperator
from warmgp.solvers.preconditioners.neighbour_factor import NearNeighbours, NeighbourFactor

NEIGHBOURS = 30

AT_FIRST, AT_MOST = 16, 128
"""Probes that are taken at first, all at once, and in all where their spread asks for more."""

STEPS, CHECKED = 60, 5
"""The most steps of the recurrence, and those between two looks at what they still change."""

SHARE = 0.05
"""What the steps that are not taken may change, beside the error that is asked for."""

SEED = 0


@dataclass(frozen=True)
class LogDeterminant:
    """Holds an estimate of log|H|.

    Attributes
    ----------
    value : float
    error : float
        One standard error, with what the recurrence may have left.
    probes, steps : int
        What it took, for those who count.
    """

    value: float
    error: float
    probes: int
    steps: int


def near_factor(operator: KernelOperator) -> NeighbourFactor:
    """Returns the factor of near neighbours by which a determinant is found."""
    return NearNeighbours(NEIGHBOURS).build(operator)


def log_determinant(
    operator: KernelOperator, wanted: float, factor: NeighbourFactor | None = None, *, most: int = AT_MOST
) -> LogDeterminant:
    """Returns log|H| with an error of at most ``wanted`` where ``most`` probes suffice; the same bits every time.

    ``operator`` should be in float64: M is near to I by what cancels.
    """
    factor = factor or near_factor(operator)
    generator = torch.Generator().manual_seed(SEED)
    values, left, steps = _traces(operator, factor, min(AT_FIRST, most), wanted, generator)
    while _spread(values) + left > wanted and len(values) < most:
        more = min(AT_FIRST, most - len(values))
        others, their_left, their_steps = _traces(operator, factor, more, wanted, generator)
        values = torch.cat([values, others])
        left, steps = max(left, their_left), max(steps, their_steps)
    value = float(values.mean()) - 2.0 * factor.root_log_determinant
    return LogDeterminant(value, _spread(values) + left, len(values), steps)


def _spread(values: Tensor) -> float:
    """Returns the standard error of a mean."""
    return float(values.std()) / math.sqrt(len(values))


def _traces(
    operator: KernelOperator, factor: NeighbourFactor, count: int, wanted: float, generator: torch.Generator
) -> tuple[Tensor, float, int]:
    """Returns zᵀ(log M)z of so many new probes, (count,), what steps that were not taken may change, and the steps."""
    n, device = operator.n, operator.device
    signs = torch.randint(0, 2, (n, count), generator=generator).mul_(2).sub_(1)
    q = signs.to(device=device, dtype=torch.float64) / math.sqrt(n)
    before, beta = torch.zeros_like(q), q.new_zeros(count)
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    found: list[Tensor] = []
    left = math.inf
    for step in range(1, STEPS + 1):
        w = factor.root(operator.matmul(factor.root_transposed(q).to(operator.dtype))).sub_(beta * before)
        alphas.append((w * q).sum(0))
        w.sub_(alphas[-1] * q)
        if step % CHECKED == 0:
            found.append(n * _quadrature(alphas, betas))
            left = _left(found)
            if left <= SHARE * wanted:
                break
        beta = torch.linalg.vector_norm(w, dim=0)
        ended = beta <= 1e-9 * alphas[0].abs()  # an invariant space: what is there is all
        beta = torch.where(ended, 0.0, beta)
        betas.append(beta)
        before, q = q, torch.where(ended, 0.0, w / torch.where(ended, 1.0, beta))
    return found[-1].cpu(), left, step


def _quadrature(alphas: list[Tensor], betas: list[Tensor]) -> Tensor:
    """Returns e₁ᵀ(log T)e₁ of the tridiagonal matrices so far, (count,)."""
    T = torch.diag_embed(torch.stack(alphas, 1))
    off = torch.stack(betas, 1)
    T += torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    nodes, vectors = torch.linalg.eigh(T)
    tiny = torch.finfo(torch.float64).tiny
    return (vectors[:, 0].square() * nodes.clamp_min(tiny).log()).sum(1)


def _left(found: list[Tensor]) -> float:
    """Returns what the steps that were not taken would change in the mean, by how fast the changes have fallen."""
    if len(found) < 2:
        return math.inf
    change = abs(float((found[-1] - found[-2]).mean()))
    if len(found) < 3:
        return change
    earlier = abs(float((found[-2] - found[-3]).mean()))
    ratio = min(0.9, change / earlier) if earlier > 0 else 0.0
    return change * ratio / (1.0 - ratio)
