"""Seeds and scale of the battery."""

from __future__ import annotations

import hashlib
from collections.abc import Generator

import numpy as np
import pytest


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> float:
    """How much of the battery to run: 1 is all of it."""
    return float(request.config.getoption("hostile_scale"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of this seed and this test."""
    name = hashlib.sha256(request.node.nodeid.rsplit("/", 1)[-1].encode()).digest()
    return np.random.default_rng([request.config.getoption("hostile_seed"), *name])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        seed, scale = (item.config.getoption(name) for name in ("hostile_seed", "hostile_scale"))
        command = f"python -m pytest --no-cov '{item.nodeid}' --hostile-seed {seed} --hostile-scale {scale:g}"
        report.sections.append(("how to repeat", f"seed {seed}: {command}"))
    return report
