"""Scorers of error bars: right by hand, and in scikit-learn's pipelines, searches and cross-validations."""

from __future__ import annotations

import pickle
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from warmgp import GPRegressor, metrics
from warmgp.metrics import coverage_scorer, crps_scorer, log_density_scorer

GP = GPRegressor("matern32", solver="cholesky", n_steps=3, n_probes=4, n_features=40, random_state=0, device="cpu")


def data(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


def test_scores_by_hand() -> None:
    """Densities and shares by the standard library's normal; the CRPS as an integral of (F − 1[y ≤ ·])²."""
    model = clone(GP).fit(*data())
    X, y = data(25, 1)
    mean, std = model.predict(X, return_std=True)
    normals = [NormalDist(m, s) for m, s in zip(mean, std, strict=True)]
    density = np.mean([np.log(one.pdf(value)) for one, value in zip(normals, y, strict=True)])
    assert log_density_scorer(model, X, y) == pytest.approx(density)
    inside = [one.inv_cdf(0.25) <= value <= one.inv_cdf(0.75) for one, value in zip(normals, y, strict=True)]
    assert coverage_scorer(model, X, y, coverage=0.5) == np.mean(inside)
    scores = []
    for one, value in zip(normals, y, strict=True):
        grid = np.linspace(one.mean - 9 * one.stdev, one.mean + 9 * one.stdev, 4001)
        below = np.array([one.cdf(place) for place in grid])
        scores.append(np.trapezoid((below - (grid >= value)) ** 2, grid))
    assert crps_scorer(model, X, y) == pytest.approx(-np.mean(scores), rel=1e-3)


def test_a_pipeline_scores_what_comes_to_its_end() -> None:
    X, y = data()
    pipe = Pipeline([("units", StandardScaler()), ("turn", PCA(2)), ("gp", clone(GP))]).fit(X, y)
    alone = clone(GP).fit(pipe[:-1].transform(X), y)
    for scorer in (log_density_scorer, crps_scorer, coverage_scorer):
        assert scorer(pipe, X, y) == scorer(alone, pipe[:-1].transform(X), y)
    passed = Pipeline([("nothing", "passthrough"), ("gp", clone(GP))]).fit(X, y)
    single, within = make_pipeline(clone(GP)).fit(X, y), make_pipeline(make_pipeline(clone(GP))).fit(X, y)
    expected = log_density_scorer(clone(GP).fit(X, y), X, y)
    assert [log_density_scorer(one, X, y) for one in (passed, single, within)] == [expected] * 3


def test_in_a_cross_validation() -> None:
    X, y = data()
    pipe = make_pipeline(StandardScaler(), clone(GP))
    scores = cross_val_score(pipe, X, y, cv=3, scoring=log_density_scorer)
    assert scores.shape == (3,) and np.isfinite(scores).all() and (scores > -3).all()
    half = partial(coverage_scorer, coverage=0.5)
    several = {"density": log_density_scorer, "crps": crps_scorer, "inside": coverage_scorer, "half": half}
    found = cross_validate(pipe, X, y, cv=3, scoring=several)
    np.testing.assert_array_equal(found["test_density"], scores)
    assert (found["test_crps"] < 0).all() and (found["test_half"] <= found["test_inside"]).all()


def test_in_a_search_and_a_search_within_a_cross_validation() -> None:
    """A floor of three times the noise is worse by its density, whatever it does to the mean."""
    X, y = data()
    pipe = make_pipeline(StandardScaler(), clone(GP).set_params(n_steps=25))
    search = GridSearchCV(pipe, {"gpregressor__noise_floor": [1e-4, 2.0]}, cv=2, scoring=log_density_scorer)
    found = search.fit(X, y)
    assert found.best_params_ == {"gpregressor__noise_floor": 1e-4}
    assert found.score(X, y) == log_density_scorer(found, X, y) == log_density_scorer(found.best_estimator_, X, y)
    again = pickle.loads(pickle.dumps(clone(search)))
    assert cross_val_score(again.set_params(cv=2), X, y, cv=2, scoring=log_density_scorer).shape == (2,)


@pytest.mark.parametrize("name", metrics.__all__)
def test_they_are_pickled_by_name(name: str) -> None:
    scorer = getattr(metrics, name)
    assert pickle.loads(pickle.dumps(scorer)) is scorer


def test_what_has_no_error_bars_is_named() -> None:
    X, y = data()
    with pytest.raises(TypeError, match=r"needs a GPRegressor, or a Pipeline .* got LinearRegression$"):
        log_density_scorer(LinearRegression().fit(X, y), X, y)
    with pytest.raises(TypeError, match="got Pipeline with LinearRegression in it"):
        crps_scorer(make_pipeline(StandardScaler(), LinearRegression()).fit(X, y), X, y)
    with pytest.raises(TypeError, match="TransformedTargetRegressor"):
        coverage_scorer(TransformedTargetRegressor(clone(GP)).fit(X, y), X, y)
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        coverage_scorer(clone(GP).fit(X, y), X, y, coverage=95)
