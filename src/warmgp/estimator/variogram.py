"""The variogram of a fitted model beside that of its data: nugget, sill and range, as kriging calls them.

The semivariance of two observations is half the expected square of their difference, in units of y². By the model it is

    γ = ½ E (y(x) − y(x'))² = σ² + s² (1 − k(r)),        r = |(x − x')/ℓ|.

Kriging fits γ to averages over pairs; here σ, s and ℓ come from the likelihood of all data, and pairs are only shown
beside it, to look at. The distance of a pair is the model's own, r in units of the length scales: pairs of all
directions share one curve, whatever the anisotropy. It is told as the distance along one column that counts as much, in
the units of that column, h = r·ℓ_j, or in kilometres where columns are a place on the globe. With a trend y is what the
trend leaves of the targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from warmgp.checks import check_count, is_number
from warmgp.data.arrays import check_inputs, check_targets, integer_rest
from warmgp.data.column_kinds import ColumnKind
from warmgp.estimator.pairs import Pairs, binned, draw_pairs
from warmgp.estimator.regressor import GPRegressor
from warmgp.estimator.targets import check_one_target
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import Noise
from warmgp.planning.threads import free_threads

FloatArray = NDArray[np.float64]

LEFT = 0.05
"""The share of the correlation that is left at the range."""

ENTRIES = 10**10
"""The most kernel entries that are evaluated to have targets from the solution: about a minute on two cores."""


@dataclass(frozen=True, eq=False)
class Variogram:
    """Holds the variogram of a model and that of its data, in the units of the user's X and y.

    Attributes
    ----------
    lags : ndarray, (m,)
        The mean distance of the pairs in each bin, in units of the column ``along``.
    semivariance : ndarray, (m,)
        Half the mean square of their differences, in units of y².
    counts : ndarray of int, (m,)
        The number of pairs in each bin.
    nugget : float
        σ², the variance of the noise: γ just above a distance of zero.
    sill : float
        σ² + s², what γ comes to at large distances.
    range : float
        The distance along the column at which 5% of the correlation is left: 3.0 length scales for Matérn-1/2.
    length_scales : ndarray, (k,)
        ℓ along every column, in its own units; of a place on the globe one, in kilometres.
    along : int
        Which of them distances are told by.
    name : str
        The name of that column, or of the columns of a place.
    kernel : Kernel
    unit : str
        The unit of distances, "km" of a place; "" for that of the column.
    """

    lags: FloatArray
    semivariance: FloatArray
    counts: NDArray[np.int64]
    nugget: float
    sill: float
    range: float
    length_scales: FloatArray
    along: int
    name: str
    kernel: Kernel
    unit: str = ""

    @property
    def partial_sill(self) -> float:
        """The variance s² of the function without noise, in units of y²."""
        return self.sill - self.nugget

    def model(self, h: ArrayLike) -> FloatArray:
        """Returns γ(h) = σ² + s²(1 − k(h/ℓ)) at distances along the column, of any shape; at zero its limit, σ²."""
        r = torch.as_tensor(np.asarray(h, dtype=np.float64) / self.length_scales[self.along])
        return np.asarray(self.nugget + self.partial_sill * (1.0 - self.kernel.profile(r).numpy()))

    def plot(self, ax: Any = None) -> Any:
        """Draws both with nugget, sill and range, on matplotlib's ``ax`` or axes of its own; returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "a variogram is drawn with matplotlib, which is not installed: pip install 'warmgp[plot]'. Its numbers "
                "are to be had without: warmgp.variogram(model)"
            ) from error
        if ax is None:
            ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
        end = 1.04 * float(self.lags.max())
        h = np.linspace(0.0, end, 300)
        ax.plot(h, self.model(h), color="C0", label=f"model ({self.kernel.name})")
        size = 12 + 60 * np.sqrt(self.counts / self.counts.max())
        ax.scatter(self.lags, self.semivariance, s=size, color="C1", zorder=3, label="data (area by pairs)")
        ax.axhline(self.sill, color="0.4", ls="--", lw=1, label=f"sill {self.sill:.3g}")
        ax.axhline(self.nugget, color="0.4", ls=":", lw=1, label=f"nugget {self.nugget:.3g}")
        if self.range <= end:
            ax.axvline(self.range, color="0.7", lw=1, label=f"range {self.range:.3g}")
        unit = self.unit or f"units of {self.name}"
        ax.set(xlabel=f"distance ({unit})", ylabel="semivariance (units of y²)", xlim=(0.0, end))
        ax.set_ylim(bottom=0.0)
        ax.legend()
        return ax

    def __str__(self) -> str:
        lengths = ", ".join(f"{value:.4g}" for value in self.length_scales)
        reach = f"{self.range:.4g} {self.unit}".strip()
        return (
            f"nugget {self.nugget:.4g}, partial sill {self.partial_sill:.4g}, sill {self.sill:.4g}, range "
            f"{reach} along {self.name} ({self.kernel.name}, length scales {lengths}); {len(self.lags)} lags "
            f"up to {self.lags.max():.4g}, from {int(self.counts.sum()):,} pairs"
        )


def variogram(
    model: GPRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    along: int | str = 0,
    tolerance: float = 90.0,
    max_lag: float | None = None,
    n_lags: int = 15,
    random_state: int = 0,
) -> Variogram:
    """Returns the variogram of a fitted model beside that of data, to see whether the one describes the other.

    Up to 1,000 points every pair counts. Of more, pairs are drawn: 2,000 random points with their nearest neighbours
    among all points, among a random quarter of them, a sixteenth and so on, so that every distance has pairs, the
    shortest, too. Which are drawn does not depend on y.

    Parameters
    ----------
    model : GPRegressor
        Fitted.
    X, y : arrays of (n, d) and (n,), optional
        The data, those of the training or others. Without them the targets of the training come from the solution,
        y = H v, to the accuracy that it was solved to; of very many points fewer are then taken.
    along : int or str
        The column, by number or name, in whose units distances are told.
    tolerance : float
        The angle in degrees, in units of the length scales, between a pair and that column up to which the pair counts.
        90 takes all pairs; 22.5 makes a directional variogram, for a look at the anisotropy. A place on the globe has
        no direction.
    max_lag : float or None
        The largest distance; by default a third of the diagonal of the data, and at most three times the range.
    n_lags : int
        Bins of equal width from zero to it. Those without a pair are left out.
    random_state : int
        The seed of the draw.

    Returns
    -------
    Variogram
    """
    _check(model, X, y, tolerance, max_lag, n_lags, random_state)
    check_one_target(model, "variogram")
    j, things = _thing(model, along), _things(model)
    name, (lead, *others), kind = things[j]
    if others and tolerance < 90.0:
        raise ValueError(f"the place {name!r} has no direction, and tolerance must be 90 degrees, got {tolerance!r}")
    steps = _steps(model)
    units = np.array([1.0 if one is None else one.unit_length for *_, one in things])
    lengths = units / np.linalg.norm(steps[[inputs[0] for _, inputs, _ in things]], axis=1)
    x = _points(model, X)
    z = x / model.hyperparameters_.length_scales.numpy()
    targets = None if y is None else _without_trend(model, x, check_targets(y, len(z)))
    pairs = draw_pairs(z, ENTRIES // (len(z) if y is None else 1), np.random.default_rng(random_state))
    if tolerance < 90.0:
        pairs = pairs.along(z, steps[lead] * lengths[j], math.cos(math.radians(tolerance)))
    reach = correlation_range(model.posterior_.kernel)
    widest = min(float(np.linalg.norm(np.ptp(z, axis=0))) / 3, 3 * reach) if max_lag is None else max_lag / lengths[j]
    if not (pairs.distance <= widest).any() or widest == 0:
        raise ValueError(
            f"no pair of points is within max_lag={widest * lengths[j]:.4g} of {name}"
            + ("" if tolerance == 90.0 else f" and {tolerance:g} degrees of its direction")
            + ": give a larger max_lag" + ("" if tolerance == 90.0 else " or tolerance")
        )  # fmt: skip
    squares = 0.5 * _differences(model, pairs, targets) ** 2
    lags, semivariance, counts = binned(pairs.distance, squares, widest, n_lags)
    theta, unit = model.hyperparameters_, model.scaler_.y_scale**2
    nugget, partial = (unit * float(scale) ** 2 for scale in (theta.noise_scale, theta.signal_scale))
    return Variogram(
        lags * lengths[j], semivariance, counts, nugget, nugget + partial, reach * lengths[j], lengths, j, name,
        model.posterior_.kernel, "" if kind is None else kind.unit,
    )  # fmt: skip


def plot_variogram(
    model: GPRegressor, X: ArrayLike | None = None, y: ArrayLike | None = None, *, ax: Any = None, **options: Any
) -> Any:
    """Draws the variogram of a fitted model beside that of its data, and returns matplotlib's axes.

    ``options`` are those of :func:`warmgp.variogram`. Points that leave the curve, beyond what few pairs explain, say
    that the kernel, or one nugget, sill and range for all places, does not describe the data. Drawing needs matplotlib
    (``pip install 'warmgp[plot]'``); without ``ax`` it makes axes of its own.
    """
    return variogram(model, X, y, **options).plot(ax)


def correlation_range(kernel: Kernel) -> float:
    """Returns the scaled distance at which 5% of the correlation is left, k(r) = 0.05; infinite beyond 10⁶."""

    def left(r: float) -> float:
        return float(kernel.profile(torch.tensor([r], dtype=torch.float64))[0])

    low, high = 0.0, 1.0
    while left(high) > LEFT:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > LEFT else (low, middle)
    return high


# -- from the user's arguments to numbers ----------------------------------------------------------------------------
def _check(model: Any, X: Any, y: Any, tolerance: Any, max_lag: Any, n_lags: Any, random_state: Any) -> None:
    """Raises where an argument is not one, before any work."""
    check_is_fitted(model, "hyperparameters_")
    if (X is None) != (y is None):
        raise ValueError("X and y belong together: give both, or neither to take the data of the training")
    check_count("n_lags", n_lags)
    check_count("random_state", random_state, least=0)
    if not (is_number(tolerance) and 0 < tolerance <= 90):
        raise ValueError(f"tolerance must be an angle above 0 and of at most 90 degrees, got {tolerance!r}")
    if max_lag is not None and not (is_number(max_lag) and 0 < max_lag < math.inf):
        raise ValueError(f"max_lag must be a positive number or None, got {max_lag!r}")


def _names(model: Any) -> list[str]:
    """Returns what the columns of X are called."""
    unnamed = [f"column {j}" for j in range(model.n_features_in_)]
    return [str(name) for name in getattr(model, "feature_names_in_", unnamed)]


def _things(model: Any) -> tuple[tuple[str, tuple[int, ...], ColumnKind | None], ...]:
    """Returns (name, numbers of the inputs, kind or None) of everything that has a length scale: columns and places."""
    return replace(model.scaler_.columns, names=tuple(_names(model))).groups


def _thing(model: Any, along: Any) -> int:
    """Returns which of the things the column that was asked for is, or is part of; raises where there is none."""
    d, names, columns = model.n_features_in_, _names(model), model.scaler_.columns
    if isinstance(along, str) and along in names:
        along = names.index(along)
    if isinstance(along, int | np.integer) and not isinstance(along, bool) and 0 <= along < d:
        return next(
            number
            for number, (_, inputs, kind) in enumerate(columns.groups)
            if along == columns.sources[inputs[0]] or (kind is not None and along in kind.columns)
        )
    known = f" or one of {', '.join(map(repr, names))}" if hasattr(model, "feature_names_in_") else ""
    raise ValueError(f"along must be a number from 0 to {d - 1}{known}, got {along!r}")


def _steps(model: Any) -> FloatArray:
    """Returns by how many length scales one unit of each input moves a point, (d, d): one row for each input."""
    moved = model.scaler_.turn(np.diag(1.0 / model.scaler_.x_scale))
    return np.asarray(moved / model.hyperparameters_.length_scales.numpy())


def _points(model: Any, X: Any) -> FloatArray:
    """Returns the inputs, or those of the training where X is None, as the model has them, (n, d)."""
    if X is None:
        return np.asarray(model.posterior_.x.double().cpu().numpy())
    return np.asarray(model.scaler_.x(check_inputs(model, X, least=2), integer_rest(X)))


def _without_trend(model: Any, x: FloatArray, targets: FloatArray) -> FloatArray:
    """Returns targets at inputs x, (n, d), less the trend there, where the model has one."""
    posterior = model.posterior_
    if posterior.trend is None:
        return targets
    trend = posterior.trend.mean(torch.as_tensor(x).to(posterior.x.device)).cpu().numpy()
    return targets - np.asarray(model.scaler_.y_scale_back(trend))


def _differences(model: Any, pairs: Pairs, targets: FloatArray | None) -> FloatArray:
    """Returns y(first) − y(second) of each pair, (p,), without a trend; targets not given come from y = K v + d v."""
    if targets is not None:
        return np.asarray(targets[pairs.first] - targets[pairs.second])
    posterior = replace(model.posterior_, trend=None)
    rows, where = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    index = torch.as_tensor(rows, device=posterior.x.device)
    with free_threads(posterior.x.device, len(rows) * len(posterior.x)):
        smooth = posterior.mean(posterior.x[index])
    noise = Noise(posterior.theta, posterior.noise).times(posterior.solution[index, :1], index)[:, 0]
    found = (smooth + noise).double().cpu().numpy()
    first, second = np.split(found[where], 2)
    return np.asarray(model.scaler_.y_scale_back(first - second))
