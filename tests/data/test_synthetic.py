"""The synthetic sets: the truth they claim, and plain errors."""

from __future__ import annotations

import numpy as np
import pytest

from warmgp.data import datasets, synthetic
from warmgp.data.synthetic import gp_sample, surface


def test_they_are_found_among_the_datasets() -> None:
    assert datasets.surface is synthetic.surface and datasets.gp_sample is synthetic.gp_sample


def test_surface_is_truth_plus_noise_of_the_given_size() -> None:
    X, y, f_true = surface(20_000, noise=0.25, seed=4)
    assert X.shape == (20_000, 2)
    assert np.abs(X).max() <= 1.0
    residual = y - f_true(X)
    assert residual.std() == pytest.approx(0.25, rel=0.03)
    assert residual.mean() == pytest.approx(0.0, abs=0.01)
    assert np.std(f_true(X)) > 0.3


def test_surface_without_noise_is_the_truth_and_seeds_differ() -> None:
    X, y, f_true = surface(50, noise=0.0, seed=1)
    np.testing.assert_array_equal(y, f_true(X))
    np.testing.assert_array_equal(surface(50, noise=0.0, seed=1)[0], X)
    assert not np.array_equal(surface(50, noise=0.0, seed=2)[0], X)


def test_surface_spans_what_its_docstring_says_and_is_smooth() -> None:
    _, _, f_true = surface(1)
    axis = np.linspace(-1.0, 1.0, 201)
    grid = f_true(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)).reshape(201, 201)
    assert (grid.min(), grid.max()) == pytest.approx((-0.7, 0.9), abs=0.05)
    assert np.abs(np.diff(grid, axis=0)).max() < 0.08
    with pytest.raises(ValueError, match=r"shape \(m, 2\)"):
        f_true(np.zeros((3, 1)))


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("scales", [0.7, (0.5, 2.0)], ids=["one", "each"])
def test_gp_sample_has_the_covariance_it_claims(kernel: str, scales: float | tuple[float, ...]) -> None:
    """Whitened by a covariance built here, pair by pair, the draw is the independent normals it was made from."""
    n, noise, seed = 200, 0.3, 5
    X, y = gp_sample(n, 2, kernel=kernel, noise=noise, length_scale=scales, seed=seed)
    r = np.linalg.norm((X[:, None] - X[None, :]) / np.asarray(scales), axis=-1)
    K = {
        "rbf": np.exp(-(r**2) / 2),
        "matern12": np.exp(-r),
        "matern32": (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        "matern52": (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
    }[kernel]
    rng = np.random.default_rng(seed)
    np.testing.assert_array_equal(X, rng.standard_normal((n, 2)))
    whitened = np.linalg.solve(np.linalg.cholesky(K + noise**2 * np.eye(n)), y)
    np.testing.assert_allclose(whitened, rng.standard_normal(n), atol=1e-9)


def test_noise_free_smooth_draw_succeeds() -> None:
    X, y = gp_sample(1500, 1, kernel="rbf", noise=0.0, length_scale=2.0)
    order = np.argsort(X[:, 0])
    assert np.abs(np.diff(y[order][100:-100])).max() < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
        ({"n": 10.0}, "n must be an integer of at least 1, got 10.0"),
        ({"n": True}, "n must be an integer of at least 1, got True"),
        ({"n": 5001}, "n must be at most 5000"),
        ({"d": 0}, "d must be an integer of at least 1, got 0"),
        ({"d": "2"}, "d must be an integer of at least 1, got '2'"),
        ({"noise": -0.1}, "noise .*not negative"),
        ({"noise": np.nan}, "noise .*finite"),
        ({"kernel": "cosine"}, "kernel must be one of 'rbf', 'matern12'"),
        ({"length_scale": 0.0}, "length_scale must be positive"),
        ({"length_scale": [1.0, 1.0, 1.0]}, "one number or 2 of them"),
    ],
)
def test_gp_sample_names_the_bad_argument(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gp_sample(**{"n": 10, "d": 2, **arguments})


@pytest.mark.parametrize(("arguments", "message"), [({"n": 0}, "n must"), ({"noise": -1.0}, "noise is")])
def test_surface_names_the_bad_argument(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        surface(**arguments)


def test_a_count_may_be_of_any_width() -> None:
    X, y = gp_sample(np.int8(100), np.int8(2), seed=3)
    np.testing.assert_array_equal(y, gp_sample(100, 2, seed=3)[1])
    assert X.shape == surface(np.int8(100))[0].shape == (100, 2)
