"""What is true of models whose rows come and go, of several targets, and of the pages about them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from hostile.datasets import INPUTS, TARGETS, Rng, standardised
from hostile.laws import Array, World, law, worlds
from hostile.test_properties import WAYS, alike, answers, ways
from pages import Page
from warmgp import GPRegressor

CASES = 120
"""Pages at full scale."""

ACTS = st.lists(st.tuples(st.sampled_from(["update", "forget"]), st.floats(0.05, 0.7)), min_size=1, max_size=4)


# -- rows that come and go -------------------------------------------------------------------------------------------
def truth(world: World, X: Array, y: Array, weights: Array, X_new: Array) -> tuple[Array, Array]:
    """Mean and std of a new observation by the reference, where row i has the noise σ²/w_i."""
    exact = world.reference(X, y, standardize=False)
    exact.__dict__["H"] = exact.H + world.noise**2 * np.diag(1 / weights - 1)
    found = exact.predict(X_new)
    return found.mean, np.hypot(found.latent, world.noise)


def acted(model: GPRegressor, X: Array, y: Array, w: Array, first: int, acts: Any, rng: Rng) -> Array:
    """Does to a model of the first rows what ``acts`` say; returns the numbers of the rows that it has then."""
    rows, later = np.arange(first)[w[:first] > 0], first
    for act, share in acts:
        if act == "update" and later < len(X):
            new = np.arange(later, min(len(X), later + max(1, round(share * (len(X) - first)))))
            later = new[-1] + 1
            if not (w[new] > 0).any():  # which is refused
                continue
            model.update(X[new], y[new], sample_weight=None if (w[new] == 1).all() else w[new])
            rows = np.concatenate([rows, new[w[new] > 0]])
        elif act == "forget" and len(rows) > 2:
            gone = rng.permutation(len(rows))[: min(len(rows) - 2, max(1, round(share * len(rows))))]
            model.forget(gone)
            rows = np.delete(rows, gone)
    return rows


@law(worlds(40), ways, ACTS, st.integers(1, 3), st.booleans(), st.booleans(), examples=200)
def test_any_rows_that_come_and_go(world: World, way: str, acts: Any, q: int, weighed: bool, lacking: bool) -> None:
    """A model of q targets, some values of which may be missing, ends as one of the rows that it has in the end."""
    assume(world.n >= 6)
    X, y, X_new = world.data
    rng, first = np.random.default_rng(world.seed), max(4, world.n // 2)
    Y = np.stack([y, *(np.cos(X[:, -1]) + rng.normal(size=world.n) for _ in range(q - 1))], 1)
    w = np.where(rng.random(world.n) < 0.1, 0.0, rng.uniform(0.2, 5.0, world.n)) if weighed else np.ones(world.n)
    w[:3] = 1.0  # as many are left of the first ones whatever goes
    settings = {**WAYS[way], "standardize": False, "n_probes": 8}
    said = {"sample_weight": w[:first]} if weighed else {}
    if q == 1 or not lacking:
        y = Y if q > 1 else Y[:, 0]
        model = world.fit(X[:first], y[:first], said, **settings)
        models = {None: (model, acted(model, X, y, w, first, acts, rng))}
    else:
        part = Y[:first].copy()
        part[2:4, -1] = np.nan  # two patterns of rows
        whole = world.fit(X[:first], part, said, **settings)
        with pytest.raises(ValueError, match="of_target"):
            whole.update(X[first:], Y[first:])
        there = [np.flatnonzero(~np.isnan(np.concatenate([part[:, j], Y[first:, j]]))) for j in range(q)]
        models = {}
        for j, known in enumerate(there):
            model = whole.of_target(j)
            found = acted(model, X[known], Y[known, j], w[known], first - (world.n - len(known)), acts, rng)
            models[j] = model, known[found]
    for j, (model, rows) in models.items():
        assert len(model.posterior_.x) == len(rows)
        mean, std = answers(model, X_new)
        for k in range(q) if j is None else [j]:
            expected = truth(world, X[rows], Y[rows, k], w[rows], X_new)
            several = j is None and q > 1
            alike(expected, (mean[:, k], std[:, k]) if several else (mean, std), 1e-4, std=way == "exact")


# -- pages -----------------------------------------------------------------------------------------------------------
def drawn(rng: Rng) -> tuple[str, Any, Array, dict[str, Any]]:
    """Hostile data of few rows, with one target or several, and settings; the text says what they are."""
    kind, n, d = str(rng.choice(list(INPUTS))), int(rng.choice([2, 3, 8, 30, 90])), int(rng.choice([1, 2, 3, 6]))
    X = INPUTS[kind](rng, n, d)
    laws = [str(name) for name in rng.choice(list(TARGETS), int(rng.choice([1, 1, 2, 3])))]
    Y = np.stack([TARGETS[name](rng, standardised(X)) for name in laws], 1).astype(float)
    Y[0] += np.ptp(Y, axis=0) == 0  # a step that all points are on one side of
    Y *= float(rng.choice([1.0, 1e-9, 1e9]))
    settings: dict[str, Any] = {"n_steps": int(rng.choice([0, 3])), "n_probes": 8, "random_state": 0}
    settings |= {"kernel": "matern32", "n_features": 100, "solver": str(rng.choice(["auto", "auto", "cg", "rap"]))}
    if len(laws) > 1 and len(X) > 8 and rng.random() < 0.4:
        Y[rng.integers(len(X), size=2), 0] = np.nan
    elif rng.random() < 0.3:
        settings["trend"] = "linear"
    return f"{kind} X of {X.shape}, {laws}, {settings}", X, Y if len(laws) > 1 else Y[:, 0], settings


def test_pages(case: int, rng: Rng, tmp_path: Path) -> None:
    """The page of any model that could be fitted is well formed and shows no number that is none."""
    name, X, y, settings = drawn(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = GPRegressor(**settings).fit(X, y)
        except ValueError:  # see test_answers
            return
        some = X[:3] if isinstance(X, np.ndarray) else X.iloc[:3]
        if rng.random() < 0.5 and not np.isnan(y).any():
            model.update(some, y[:3])
    held_out = (some, y[:3]) if rng.random() < 0.5 and not np.isnan(y[:3]).any() else None
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.report(tmp_path / "page.html", held_out)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page, seen = Page(text), re.sub(r"data:[^\"')]*", "", text[text.index("<body") :])
    if found := re.search(r"(?<![a-z])(?i:nan|inf|infinity)(?![a-z])|\bNone\b", seen):
        pytest.fail(f"{name}: …{seen[max(0, found.start() - 80) : found.end() + 40]}…")
    assert len(page.ids) >= 5, name
