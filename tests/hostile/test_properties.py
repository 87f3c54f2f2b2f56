"""What is true of predictions on any data: order, units, repeated rows, far inputs, batches, samples, gradients."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume
from hypothesis import strategies as st

from hostile.laws import NEW, Array, World, law, worlds
from warmgp import Cholesky, DenseOperator, Exact, GPRegressor, Hyperparameters, Pathwise, Standard, StoppingRule
from warmgp.gradient import GradientEstimator
from warmgp.kernels import get_kernel

WAYS = {
    "exact": {},
    "cg": {"solver": "cg", "dtype": "float64", "tol": 1e-9},
    "ap": {"solver": "ap", "dtype": "float64", "tol": 1e-8, "max_epochs": None},
}
"""Ways to solve so exactly that two fits of the same posterior can be held against each other."""

ways = st.sampled_from(list(WAYS))


def answers(model: GPRegressor, X_new: Array) -> tuple[Array, Array]:
    return model.predict(X_new, return_std=True)


def alike(one: tuple[Array, Array], other: tuple[Array, Array], bound: float, *, std: bool = True) -> None:
    """Means apart by at most ``bound`` standard deviations, and standard deviations by that share."""
    apart = np.abs(one[0] - other[0]) / one[1]
    assert apart.max() <= bound, f"means {apart.max():.2g} std apart"
    if std:
        ratio = np.abs(other[1] / one[1] - 1)
        assert ratio.max() <= bound, f"std apart by {ratio.max():.2g}"


@law(worlds(), ways, examples=300)
def test_the_reference_agrees(world: World, way: str) -> None:
    X, y, X_new = world.data
    found, exact = answers(world.fit(X, y, **WAYS[way]), X_new), world.reference(X, y)
    truth = exact.predict(X_new)
    mean = float(exact.target.mean) + float(exact.target.scale) * truth.mean
    std = float(exact.target.scale) * np.hypot(truth.latent, world.noise)
    alike((mean, std), found, 1e-4, std=way == "exact")


@law(worlds(), ways, examples=200)
def test_order_of_rows(world: World, way: str) -> None:
    X, y, X_new = world.data
    order = np.random.default_rng(world.seed).permutation(len(y))
    one, other = (answers(world.fit(X[rows], y[rows], **WAYS[way]), X_new) for rows in (slice(None), order))
    alike(one, other, 1e-4, std=way == "exact")


@law(worlds(), ways, st.floats(0.05, 0.95), examples=200)
def test_rows_that_come_later_and_go(world: World, way: str, share: float) -> None:
    """In units that stay, a model that is updated is a model of all rows, and one that forgets a model of the rest."""
    X, y, X_new = world.data
    first = min(len(y) - 1, max(2, round(share * len(y))))
    settings = {**WAYS[way], "standardize": False}
    whole, part = (world.fit(X[:rows], y[:rows], **settings) for rows in (len(y), first))
    before, there = answers(part, X_new), answers(whole, X_new)
    alike(there, answers(part.update(X[first:], y[first:]), X_new), 1e-4, std=way == "exact")
    alike(before, answers(part.forget(range(first, len(y))), X_new), 1e-4, std=way == "exact")


@law(worlds(), ways, st.floats(-1e3, 1e3), st.floats(1e-9, 1e9), examples=200)
def test_units_of_y(world: World, way: str, shift: float, scale: float) -> None:
    X, y, X_new = world.data
    mean, std = answers(world.fit(X, y, **WAYS[way]), X_new)
    other = answers(world.fit(X, scale * (y + shift), **WAYS[way]), X_new)
    alike((scale * (mean + shift), scale * std), other, 1e-4)


@law(worlds(), ways, st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), examples=200)
def test_a_line_added_to_y_is_added_to_predictions(world: World, way: str, height: float, slope: float) -> None:
    """With a trend in one column, whatever the line: it is part of the trend, and nothing else changes."""
    assume(world.n >= 6)
    X, y, X_new = world.data
    column = next(j for j in range(world.d) if np.ptp(X[:, j]))
    one = answers(world.fit(X, y, trend=[column], **WAYS[way]), X_new)
    other = answers(world.fit(X, y + height + slope * X[:, column], trend=[column], **WAYS[way]), X_new)
    alike((one[0] + height + slope * X_new[:, column], one[1]), other, 1e-4)


@law(worlds(), ways, st.floats(-1e4, 1e4), st.floats(-9, 9), st.booleans(), examples=200)
def test_units_of_x(world: World, way: str, shift: float, power: float, mirrored: bool) -> None:
    X, y, X_new = world.data
    scale = 10.0 ** np.linspace(power, -power, world.d) * (-1 if mirrored else 1)
    one = answers(world.fit(X, y, **WAYS[way]), X_new)
    other = answers(world.fit(scale * (X + shift), y, **WAYS[way]), scale * (X_new + shift))
    alike(one, other, 1e-4, std=way == "exact" or not mirrored)


@law(worlds(), ways, st.floats(-720.0, 720.0), st.integers(-2, 2), examples=200)
def test_the_globe_has_no_edge(world: World, way: str, turn: float, turns: int) -> None:
    """Two columns in degrees, with poles among them: where longitudes begin, and whole turns, do not matter."""
    X, y, X_new = world.data
    place = Hyperparameters(world.noise, world.signal, [world.length] * 3 + [world.length] * max(0, world.d - 2))

    def degrees(inputs: Array, east: float = 0.0) -> Array:
        """The first two columns as places, some of them poles, every other one turns later."""
        lat = np.clip(40.0 * inputs[:, :1], -90.0, 90.0)
        lon = 90.0 * inputs[:, min(1, world.d - 1)][:, None] + east
        lon[::2] += 360.0 * turns * (east != 0.0)
        return np.concatenate([lat, lon, inputs[:, 2:]], 1)

    settings = {"columns": {(0, 1): "geographic"}, "init": place, **WAYS[way]}
    one = answers(world.fit(degrees(X), y, **settings), degrees(X_new))
    other = answers(world.fit(degrees(X, turn), y, **settings), degrees(X_new, turn))
    alike(one, other, 1e-4, std=way == "exact")


@law(worlds(40), ways, examples=200)
def test_rows_twice_are_half_the_noise(world: World, way: str) -> None:
    """n rows with noise variance σ² say what they say twice with 2σ²; standardisation does not see the difference."""
    X, y, X_new = world.data
    louder = Hyperparameters(2**0.5 * world.noise, world.signal, world.lengths)
    single = world.fit(X, y, **WAYS[way]).predict(X_new, return_std=True, include_noise=False)
    both = world.fit(np.tile(X, (2, 1)), np.tile(y, 2), init=louder, **WAYS[way])
    double = both.predict(X_new, return_std=True, include_noise=False)
    unit = np.hypot(single[1], world.noise * y.std())
    assert (np.abs(single[0] - double[0]) / unit).max() <= 1e-4
    if way == "exact":
        assert (np.abs(single[1] - double[1]) / unit).max() <= 1e-4


@law(worlds(40), ways, st.booleans(), examples=200)
def test_weights_are_copies(world: World, way: str, known: bool) -> None:
    """Of any row any number of times, none included; noise that is known has each of the copies."""
    X, y, X_new = world.data
    rng = np.random.default_rng(world.seed)
    count = rng.integers(0, 4, len(y))
    assume(np.ptp(y[count > 0], axis=0) > 0 if (count > 0).sum() > 1 else False)
    e = np.where(known, world.noise**2 * rng.uniform(0, 9, len(y)), 0.0)
    rows = np.repeat(np.arange(len(y)), count)
    used = np.maximum(count, 1)
    one = world.fit(X, y, {"sample_weight": count.astype(float), "noise_variance": e / used}, **WAYS[way])
    other = world.fit(X[rows], y[rows], {"noise_variance": e[rows]}, **WAYS[way])
    alike(answers(one, X_new), answers(other, X_new), 1e-4, std=way == "exact")


FAR = st.sampled_from([1e6, 1e20, 9.97e36, 1e38, 3.5e38, 1e100, 1e300])
PRECISIONS = st.sampled_from(["auto", "float32", "float64"])


@law(worlds(), FAR, PRECISIONS, st.sampled_from(["auto", "cg"]), st.booleans(), examples=300)
def test_far_away_is_the_prior(world: World, far: float, dtype: str, solver: str, negative: bool) -> None:
    X, y, X_new = world.data
    free = [j for j in range(world.d) if np.ptp(X[:, j])]
    X_new[:, free[world.seed % len(free)]] = -far if negative else far
    model = world.fit(X, y, dtype=dtype, solver=solver)
    mean, std = answers(model, X_new)
    prior = np.hypot(world.signal, world.noise) * y.std()
    assert np.isfinite(mean).all() and np.isfinite(std).all()
    assert np.abs(mean - y.mean()).max() <= 1e-3 * prior
    # 64 samples: the standard error of one std is 9%
    assert np.abs(std / prior - 1).max() <= (1e-3 if solver == "auto" else 0.45)
    assert np.isfinite(model.predict(X_new, return_std=True, include_noise=False)[1]).all()
    assert np.isfinite(model.sample_y(X_new, 3)).all()


@law(worlds(), PRECISIONS, st.sampled_from(["auto", "cg"]), st.integers(1, NEW - 1), examples=200)
def test_batches(world: World, dtype: str, solver: str, cut: int) -> None:
    X, y, X_new = world.data
    model = world.fit(X, y, dtype=dtype, solver=solver)
    parts = [answers(model, X_new[rows]) for rows in (slice(0, cut), slice(cut, None))]
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    single = model.posterior_.x.dtype == torch.float32
    assume(model.converged_ or not single)
    bound = 0.1 if single else 1e-6  # each is promised to be within 0.1 of the same truth; float64 rounds v/σ² alone
    alike(answers(model, X_new), (mean, std), bound)
    alike(answers(model, X_new), (model.predict(X_new), std), bound)


@law(worlds(40, 0.1), st.sampled_from(["auto", "cg"]), examples=40)
def test_samples_have_the_posteriors_moments(world: World, solver: str) -> None:
    """Of s functions the mean at a point is off by its std/√s, and the covariance in squared norm by
    (tr²C + |C|²)/s on average; five times either passes, and 16,000 features are allowed 10% of the covariance."""
    X, y, X_new = world.data
    s = 400
    model = world.fit(X, y, solver=solver, n_features=16_000)
    drawn = model.sample_y(X_new, s, random_state=world.seed)
    exact = world.reference(X, y)
    C, scale = exact.covariance(X_new), float(exact.target.scale)
    truth = float(exact.target.mean) + scale * exact.predict(X_new).mean
    error = np.abs(drawn.mean(1) - truth) / (scale * np.sqrt(np.diag(C) + 1e-6))
    assert error.max() <= 5 / s**0.5 + 0.1 * world.noise, f"means {error.max() * s**0.5:.1f} standard errors apart"
    centred = (drawn - truth[:, None]) / scale
    apart, size = np.linalg.norm(centred @ centred.T / s - C), np.linalg.norm(C)
    assert apart <= 5 * ((np.trace(C) ** 2 + size**2) / s) ** 0.5 + 0.1 * size + 1e-3 * world.noise**2 * NEW


@law(worlds(), st.integers(1, NEW), examples=100)
def test_averages_over_blocks(world: World, count: int) -> None:
    """Block kriging: the mean and std of the field's average over a group are those of the exact posterior."""
    X, y, X_new = world.data
    groups = np.arange(NEW) % count
    mean, std = world.fit(X, y).predict_blocks(X_new, groups)
    exact = world.reference(X, y)
    A = (np.arange(count)[:, None] == groups) / np.bincount(groups)[:, None]
    scale = float(exact.target.scale)
    centre = float(exact.target.mean) + scale * (A @ exact.predict(X_new).mean)
    spread = scale * np.sqrt(np.maximum(np.diag(A @ exact.covariance(X_new) @ A.T), 0))
    unit = np.hypot(spread, scale * world.noise)
    assert (np.abs(mean - centre) / unit).max() <= 1e-4 and (np.abs(std - spread) / unit).max() <= 1e-4


@law(worlds(), ways, st.floats(1e-3, 0.999), st.booleans(), st.floats(1e-6, 1e6), examples=100)
def test_intervals(world: World, way: str, coverage: float, noise: bool, scale: float) -> None:
    """An interval holds the mean, is the pair of its quantiles, grows with its coverage, and has the units of y."""
    X, y, X_new = world.data
    model = world.fit(X, scale * y, **WAYS[way])
    lower, upper = model.predict_interval(X_new, coverage, include_noise=noise).T
    mean, _ = answers(model, X_new)
    assert np.isfinite([lower, upper]).all() and (lower <= mean).all() and (mean <= upper).all()
    ends = [(1 - coverage) / 2, (1 + coverage) / 2]
    np.testing.assert_array_equal(model.predict_quantiles(X_new, ends, include_noise=noise).T, [lower, upper])
    wider = model.predict_interval(X_new, (1 + coverage) / 2, include_noise=noise)
    assert (wider[:, 0] <= lower).all() and (upper <= wider[:, 1]).all()
    assert abs(model.noise_std_ / (world.noise * np.std(scale * y)) - 1) < 1e-6


@law(worlds(), ways, examples=100)
def test_a_row_left_out_is_a_row_that_was_never_there(world: World, way: str) -> None:
    X, y, _ = world.data
    assume(world.n > 3)
    settings = WAYS[way] | {"standardize": False}
    model, i = world.fit(X, y, **settings), world.seed % world.n
    mean, std = answers(world.fit(np.delete(X, i, 0), np.delete(y, i), **settings), X[[i]])
    loo = model.loo_
    alike((loo.mean[[i]], loo.std[[i]]), (mean, std), 1e-4, std=way == "exact")
    truth = world.reference(X, y, standardize=False).log_likelihood()
    assert abs(model.log_marginal_likelihood_value_ - truth) <= 1e-6 * (world.n + abs(truth))


# -- gradients -------------------------------------------------------------------------------------------------------
def slopes(world: World, x: Array, y: Array) -> Array:
    """∂L/∂θ by central differences of the reference's likelihood."""
    theta = np.array([world.noise, world.signal, *world.lengths])

    def value(vector: Array) -> float:
        moved = type(world.reference(x, y))(x, y, world.kernel, vector[0], vector[1], vector[2:], False)
        return moved.log_likelihood()

    steps = 1e-4 * theta
    return np.array([(value(theta + e) - value(theta - e)) / (2 * e.sum()) for e in np.diag(steps)])


def estimate(world: World, x: Array, y: Array, way: GradientEstimator, seed: int) -> Array:
    operator = DenseOperator(torch.as_tensor(x), get_kernel(world.kernel), world.theta)
    targets = way.targets(operator, torch.as_tensor(y), way.draw(operator, torch.Generator().manual_seed(seed)))
    result = Cholesky().solve(operator, targets, rule=StoppingRule(1e-9))
    return way.gradient(operator, result, targets).numpy()


@law(worlds(40, 0.05), examples=200)
def test_exact_gradients(world: World) -> None:
    X, y, _ = world.data
    truth = slopes(world, X, y)
    found = estimate(world, X, y, Exact(), 0)
    assert np.linalg.norm(found - truth) <= 1e-4 * np.linalg.norm(truth) + 1e-5


@law(worlds(30, 0.1), st.sampled_from([Standard(100), Pathwise(100, prior="exact")]), examples=40)
def test_estimated_gradients(world: World, way: GradientEstimator) -> None:
    """Fifty estimates of a hundred probes: their mean within 6 of its standard errors, one for each hyperparameter."""
    X, y, _ = world.data
    truth = slopes(world, X, y)
    found = np.array([estimate(world, X, y, way, world.seed + k) for k in range(50)])
    error = np.abs(found.mean(0) - truth)
    assert (error <= 6 * found.std(0, ddof=1) / 50**0.5 + 1e-4 * np.abs(truth) + 1e-5).all()
