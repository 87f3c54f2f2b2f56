"""Rows whose targets do not belong to the rest: found by a rough model's own residuals, and given less weight, or none.

A row is predicted from near rows, without itself, by a model of the rows that count. Its residual z in predicted
standard deviations says what weight it gets in the next round:

    w = 1  for |z| ≤ c,        (c/z)²  up to 1.5 c, so that no row pulls harder than one at c,        0  beyond.

Weights are made anew in every round: a row that was left out for a bad model comes back with a better one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.new_points import NearPoints
from warmgp.operators.row_noise import Noise, RowNoise, rows_at
from warmgp.training.exact_climb import starting_places
from warmgp.training.fine_structure import finer
from warmgp.training.limits import Limits
from warmgp.training.near_likelihood import Climbed, Terms, climb, near_terms

FloatArray = NDArray[np.float64]

TOLERATED, BEYOND = 7.0, 1.5
"""Predicted standard deviations up to which a row counts in full, c, and the multiple of it beyond which it counts no
more. The tails of ordinary tables reach so far, and noise that does not know of them is too small for new rows."""

FIRST = 3.5
"""Where rows end that count in the first two models: those beyond are left out, with another chance each. One row in
twenty that is out can hide by raising the noise, but not beyond √20 standard deviations of it."""

HARMLESS = 0.05
"""The share of the standard deviation of y that a predicted standard deviation is at least: where a function is known
to a thousandth, what a rough model does not know of it is no outlier."""

ROUNDS, SETTLED = 6, 0.05
"""The most rounds of a rough model and weights from its residuals, and the change of a weight that asks for another."""

POINTS, SHORT, LONG = 400, 10, 30
"""The rows that a rough model learns hyperparameters from, and the evaluations of its climbs."""

TERMS = 20, 200
"""On maps of more rows: the near rows that each of so many random ones is asked for given."""

FINE_ASKED = 1_000
"""The rows that are asked for finer structure: more than elsewhere, since outliers among them spread what they say."""

FIRST_NEAR, NEAR = 10, 40
"""The near rows that a row is compared with before there is a model, and predicted from."""

DEVIATIONS = 30
"""The weighted least squares that least absolute deviations are found by."""

MAP, FEW_INPUTS = 3, 5
"""The inputs up to which points given near ones tell hyperparameters, at the density of all rows, and up to which near
rows are sought by a tree."""

AT_ONCE = 2_000
"""Rows whose near rows' covariances are held at once."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Holds rows of which some may not belong to the rest, in float64 on one device.

    Attributes
    ----------
    x : Tensor, (n, d)
        Standardised inputs.
    y : Tensor, (n,)
        Targets, in any units.
    noise : RowNoise or None
        What is known of the noise of rows, in units of y; None where nothing is.
    trend : Tensor, (n, p), or None
        The columns of a trend beside the process.
    """

    x: Tensor
    y: Tensor
    noise: RowNoise | None = None
    trend: Tensor | None = None


def outlying_weights(
    rows: Rows, kernel: Kernel, lengths: int, limits: Limits, generator: torch.Generator
) -> tuple[FloatArray, FloatArray]:
    """Returns the weights of rows, (n,), each from 0 to 1, and the residuals z that they come from, (n,).

    The generator draws the rows that rough models, with so many length scales, learn from.
    """
    z = _first_residuals(rows, kernel)
    weights, theta = (np.abs(z) <= FIRST).astype(np.float64), None
    order = torch.randperm(len(z), generator=generator).to(rows.x.device)
    for number in range(ROUNDS):
        model = _Rough(rows, kernel, weights)
        theta = model.climbed(order, theta, lengths, limits)
        z = model.residuals(theta)
        before, weights = weights, weights_of(z) if number else (np.abs(z) <= FIRST).astype(np.float64)
        if number and np.abs(weights - before).max() < SETTLED:
            break
    return weights, z


def weights_of(z: FloatArray) -> FloatArray:
    """Returns the weights of rows by their residuals, (n,)."""
    times = np.abs(z) / TOLERATED
    return np.where(times <= BEYOND, np.square(1.0 / np.maximum(times, 1.0)), 0.0)


def robust_scale(values: FloatArray) -> float:
    """Returns a standard deviation of values, (n,), that a tenth of them on either side cannot move far.

    It comes from the range of the inner four fifths, which is less often zero where values repeat than the median of
    deviations is; from that of more of them where it is zero all the same.
    """
    for tail in (0.1, 0.05, 0.01, 0.0):
        low, high = np.quantile(values, [tail, 1.0 - tail])
        if high > low:
            return float(high - low) / (2.0 * 1.2816)
    return 1.0


def _first_residuals(rows: Rows, kernel: Kernel) -> FloatArray:
    """Returns how far each target is from the median of near ones, (n,), in robust standard deviations."""
    x, y = rows.x, (rows.y if rows.trend is None else _without(rows.trend, rows.y)).cpu().numpy()
    everyone = torch.arange(len(x), device=x.device)
    near = _others(_near(x, everyone, min(FIRST_NEAR + 1, len(x)), kernel)).cpu().numpy()
    apart = y - np.median(y[near], axis=1)
    return np.asarray((apart - np.median(apart)) / robust_scale(apart))


def _without(T: Tensor, y: Tensor) -> Tensor:
    """Returns what a trend of the columns T, (n, p), leaves of y, (n,), by least absolute deviations."""
    left, root = y, torch.ones_like(y)
    for _ in range(DEVIATIONS):
        left = y - (T @ torch.linalg.lstsq(T * root[:, None], (y * root)[:, None]).solution)[:, 0]
        root = left.abs().clamp_min(1e-6 * float(left.abs().median()) or 1.0).rsqrt()
    return left


class _Rough:
    """Predicts rows from near ones, by weights: outliers set neither its unit of y nor its hyperparameters."""

    def __init__(self, rows: Rows, kernel: Kernel, weights: FloatArray) -> None:
        w, y = torch.as_tensor(weights, device=rows.x.device), rows.y
        self.kernel, self.x, self.used = kernel, rows.x, torch.nonzero(w > 0)[:, 0]
        part = w[self.used, None]  # (u, 1)
        if rows.trend is not None:
            T, root = rows.trend, part.sqrt()
            y = y - (T @ torch.linalg.lstsq(T[self.used] * root, y[self.used, None] * root).solution)[:, 0]
        middle = float((part[:, 0] * y[self.used]).sum() / part.sum())
        scale = float(((part[:, 0] * (y[self.used] - middle).square()).sum() / part.sum()).sqrt()) or 1.0
        self.y = (y - middle) / scale
        shares, known = torch.ones_like(w), torch.zeros_like(w)
        if rows.noise is not None:
            shares, known = rows.noise.shares, rows.noise.known / scale**2
        self.noise = RowNoise(shares, known)  # of rows that do belong to the rest
        w = torch.where(w > 0, w, torch.ones_like(w))  # rows of no weight are in no group
        self.weighted = RowNoise(shares / w, known / w)

    def climbed(self, order: Tensor, theta: Hyperparameters | None, lengths: int, limits: Limits) -> Hyperparameters:
        """Returns likely hyperparameters of rows that count, the first in an order; from θ, or from several places."""
        starts = starting_places(self.x.shape[1], lengths) if theta is None else [theta]
        some = order[torch.isin(order, self.used)]
        if self.x.shape[1] <= MAP and len(some) > 2 * POINTS:
            terms = near_terms(self.x[some], starts[0], *TERMS, torch.Generator().manual_seed(0), even=True)[1]
            terms = Terms(some[terms.groups], 1)
        else:
            terms = Terms(some[None, :POINTS], min(POINTS, len(some)))
        best = max((self._climb(terms, start, limits, SHORT) for start in starts), key=lambda one: one.value).theta
        fine = None
        if theta is None:  # a later round begins where this one ends
            fine = finer(
                self.x[some], self.y[some], self.kernel, best, limits, generator=torch.Generator().manual_seed(0),
                noise=self.weighted.at(some), asked=FINE_ASKED,
            )  # fmt: skip
        return self._climb(terms, fine or best, limits, LONG).theta

    def _climb(self, terms: Terms, theta: Hyperparameters, limits: Limits, evaluations: int) -> Climbed:
        return climb(self.x, self.y, terms, self.kernel, theta, limits, evaluations=evaluations, noise=self.weighted)

    def residuals(self, theta: Hyperparameters) -> FloatArray:
        """Returns z of all rows, (n,), each given near rows that count and are not itself.

        Where half of them are further out than half of a normal distribution is, the model is too sure: they are
        divided by that.
        """
        z = self.x / theta.length_scales.to(self.x.device)
        groups = _others(_near(z, self.used, min(NEAR + 1, len(self.used)), self.kernel))
        parts = torch.arange(len(z), device=z.device).split(AT_ONCE)
        found = torch.cat([self._standardised(theta, some, groups[some]) for some in parts]).cpu().numpy()
        return np.asarray(found / max(1.0, float(np.median(np.abs(found))) / 0.6745))

    def _standardised(self, theta: Hyperparameters, some: Tensor, groups: Tensor) -> Tensor:
        """Returns the residuals of some rows, (b,), given groups of near ones, (b, m)."""
        near = NearPoints(self.x, self.kernel, theta, groups.shape[1], self.weighted)
        weights, variance = near.given(self.x[some], groups)
        error = self.y[some] - (weights * self.y[groups]).sum(1)
        own = Noise(theta, rows_at(self.noise, some)).at()
        return error / (variance.nan_to_num(0.0) + own + HARMLESS**2).sqrt()


def _near(z: Tensor, used: Tensor, m: int, kernel: Kernel) -> Tensor:
    """Returns the m rows among those used that are nearest to each row of z, (n, m), which may be among them itself."""
    among = z[used]
    if z.shape[1] <= FEW_INPUTS:
        found = cKDTree(among.cpu().numpy()).query(z.cpu().numpy(), m, workers=torch.get_num_threads())[1]
        return used[torch.as_tensor(found.reshape(len(z), m), device=z.device)]
    return used[NearPoints(among, kernel, Hyperparameters.ones(1), m).nearest(z)]


def _others(near: Tensor) -> Tensor:
    """Returns near rows that are not the row itself, (n, m), from m + 1 near rows of each."""
    itself = near == torch.arange(len(near), device=near.device)[:, None]
    itself[:, -1] |= ~itself.any(1)
    return near[~itself].reshape(len(near), -1)
