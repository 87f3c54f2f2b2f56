"""Values that rule a column are found, and heavy tails, indicators and counts are not taken for such."""

from __future__ import annotations

import numpy as np
import pytest

from warmgp.data.outliers import outliers, outliers_of


def column(n: int = 500, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(5.0, 2.0, n)


@pytest.mark.parametrize("values", [(1e6,), (-1e6,), (1e6, 9e5), (1e6, -1e6, 8e5)])
def test_a_few_values_that_rule_are_named(values: tuple[float, ...]) -> None:
    y = column()
    y[[7, 100, 41][: len(values)]] = values
    found = outliers(y)
    assert found is not None
    assert dict(zip(found.rows, found.values, strict=True)) == dict(zip((7, 100, 41), values, strict=False))
    assert -5 < found.usual[0] < found.usual[1] < 15 and found.times > 1e4


def test_many_far_values_are_a_distribution() -> None:
    y = column()
    y[:20] = 1e6
    assert outliers(y) is None


@pytest.mark.parametrize("seed", range(5))
def test_ordinary_columns_have_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    indicator = np.zeros(300)
    indicator[5] = 1.0
    columns = {
        "normal": rng.normal(size=300), "heavy": rng.lognormal(sigma=2.0, size=300), "t": rng.standard_t(2.5, 300),
        "indicator": indicator, "counts": rng.poisson(0.02, 300).astype(float), "constant": np.full(300, 3.0),
        "few": np.array([0.0, 1.0, 1e6]),
    }  # fmt: skip
    assert [name for name, values in columns.items() if outliers(values) is not None] == []


def test_columns_are_named() -> None:
    X = np.stack([column(), column(seed=1)], 1)
    X[3, 1] = 1e5
    assert [(name, found.rows) for name, found in outliers_of(X, ["a", "b"])] == [("b", (3,))]
