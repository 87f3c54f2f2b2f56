"""What the figures need beside trainings: how far a solve starts from its solution, and what its quadratic looks like.

Everything is computed in float64 by Cholesky at the hyperparameters θ_t of a recorded exact training. For a system
H_t u = b_t the distance of a start u₀ from the solution u* is |u₀ − u*|_H = ((u₀ − u*)ᵀ H_t (u₀ − u*))^½, root mean
square over the probes. Cold starts are u₀ = 0; warm ones the solution at θ_{t−1} with the same draw of probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from warmgp.gradient import GradientEstimator, Pathwise, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Matern32
from warmgp.operators import ChunkedOperator
from warmgp.solvers.cholesky import factorise

SECTION_AT = 20
POWER_STEPS = 60


def initial_distances(
    x: Tensor, y: Tensor, thetas: list[Hyperparameters], check: Callable[[], None], points: int = 20
) -> dict[str, Any]:
    """Distances of cold and warm starts by estimator, the top eigenvalue of H⁻¹ and the noise precision, over steps.

    ``check`` is called between steps and may raise to end this.
    """
    every = max(1, len(thetas) // points)
    steps = list(range(1, len(thetas), every))
    found: dict[str, list[float]] = {name: [] for name in ("top_eigenvalue", "noise_precision")}
    estimators: tuple[GradientEstimator, ...] = (Standard(64), Pathwise(64, 2000))
    start = ChunkedOperator(x, Matern32(), thetas[0])
    draws = [estimator.draw(start, torch.Generator().manual_seed(0)) for estimator in estimators]
    for step in steps:
        check()
        before = _solutions(x, y, thetas[step - 1], estimators, draws)
        now = list(_solutions(x, y, thetas[step], estimators, draws))
        operator = ChunkedOperator(x, Matern32(), thetas[step])
        for estimator, (last, _, _), (solution, targets, _) in zip(estimators, before, now, strict=True):
            cold = (solution * targets).sum(0).mean().sqrt()  # H u* = b
            away = last - solution
            warm = (away * operator.matmul(away)).sum(0).mean().sqrt()
            for start_name, value in (("cold", cold), ("warm", warm)):
                found.setdefault(f"{estimator.name}_{start_name}", []).append(float(value))
        found["top_eigenvalue"].append(_top_eigenvalue_of_inverse(now[0][2]))
        found["noise_precision"].append(float(thetas[step].noise_scale) ** -2)
    return {"steps": steps, **found}


def _solutions(
    x: Tensor, y: Tensor, theta: Hyperparameters, estimators: tuple[GradientEstimator, ...], draws: list[Any]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """By estimator: solutions of the probe systems, their targets, and the factor of H."""
    operator = ChunkedOperator(x, Matern32(), theta)
    factor = factorise(operator)
    for estimator, draw in zip(estimators, draws, strict=True):
        targets = estimator.targets(operator, y, draw)[:, 1:]
        yield torch.cholesky_solve(targets, factor), targets, factor


def _top_eigenvalue_of_inverse(factor: Tensor) -> float:
    """1/λ_min(H) by power iteration with H⁻¹."""
    v = torch.ones(len(factor), 1, dtype=factor.dtype, device=factor.device)
    for _ in range(POWER_STEPS):
        v = torch.cholesky_solve(v / v.norm(), factor)
    return float(v.norm())


def section(x: Tensor, y: Tensor, thetas: list[Hyperparameters]) -> dict[str, Any]:
    """Curvatures along the two steepest directions of the quadratic, and where solves of one probe start in that plane.

    The solution is the origin, so that the quadratic is ½(λ₁a² + λ₂b²) there, and a start u₀ lies at eᵀ(u₀ − u*).
    """
    at = min(SECTION_AT, len(thetas) - 1)
    estimators: tuple[GradientEstimator, ...] = (Standard(64), Pathwise(64, 2000))
    operator = ChunkedOperator(x, Matern32(), thetas[at])
    draws = [estimator.draw(operator, torch.Generator().manual_seed(0)) for estimator in estimators]
    directions = torch.randn(len(x), 6, dtype=x.dtype, generator=torch.Generator().manual_seed(1)).to(x.device)
    for _ in range(POWER_STEPS):
        directions = torch.linalg.qr(operator.matmul(directions)).Q
    values, rotation = torch.linalg.eigh(directions.T @ operator.matmul(directions))
    plane = directions @ rotation[:, [-1, -2]]  # (n, 2)
    starts = {}
    before = _solutions(x, y, thetas[at - 1], estimators, draws)
    for estimator, (last, _, _), (solution, _, _) in zip(
        estimators, before, _solutions(x, y, thetas[at], estimators, draws), strict=True
    ):
        starts[estimator.name] = {
            "cold": (-plane.T @ solution).T.tolist(),  # (s, 2)
            "warm": (plane.T @ (last - solution)).T.tolist(),
        }
    return {"step": at, "curvatures": values[[-1, -2]].tolist(), "starts": starts}
