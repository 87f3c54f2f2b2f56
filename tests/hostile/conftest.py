"""The battery's seed and scale, and how to repeat what failed; how to use it stands in the package's docstring."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with ``case`` runs ``metafunc.module.CASES`` times at full scale."""
    if "case" in metafunc.fixturenames and hasattr(metafunc.module, "CASES"):
        count = max(1, round(metafunc.module.CASES * metafunc.config.getoption("hostile_scale")))
        metafunc.parametrize("case", range(count), ids=[f"{case:03d}" for case in range(count)])


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> float:
    """How much of the battery to run: 1 is all of it."""
    return float(request.config.getoption("hostile_scale"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of this seed and this test."""
    name = hashlib.sha256(request.node.nodeid.rsplit("/", 1)[-1].encode()).digest()
    return np.random.default_rng([request.config.getoption("hostile_seed"), *name])


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Each worker computes on one thread: two of them have two cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        seed, scale = (item.config.getoption(name) for name in ("hostile_seed", "hostile_scale"))
        command = f"python -m pytest --no-cov '{item.nodeid}' --hostile-seed {seed} --hostile-scale {scale:g}"
        report.sections.append(("how to repeat", f"seed {seed}: {command}"))
    return report
