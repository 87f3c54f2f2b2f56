"""Shared by all tests: where the data is, and which tests can run here."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hostile import tally
from other_device import everything_elsewhere

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton: its kernels then run on the CPU


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the battery in ``tests/hostile``: here, because pytest knows them only from a folder it starts in."""
    group = parser.getgroup("hostile")
    group.addoption("--hostile-scale", type=float, default=0.02, help="how much of the battery to run; 1 is all of it")
    group.addoption("--hostile-seed", type=int, default=None, help="its seed; a new one every run unless given")
    parser.addoption("--elsewhere", action="store_true", help="estimators take a device that is not there for the CPU")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist has the seed of who leads it
        config.option.hostile_seed = config.workerinput["hostile_seed"]
    elif config.option.hostile_seed is None:
        config.option.hostile_seed = secrets.randbelow(2**31)
    config.pluginmanager.register(tally, "hostile-tally")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the seed of this run."""
    node.workerinput["hostile_seed"] = node.config.option.hostile_seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"hostile data: --hostile-seed {config.option.hostile_seed} --hostile-scale {config.option.hostile_scale:g}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage does not see the tests of pages, which reach hardly a line that others do not, nor those in Triton's
    interpreter, which takes more than twice as long when it does. (pytest-cov's own mark does nothing in a worker.)"""
    tracer = sys.gettrace()
    if type(tracer).__name__ != "CTracer" or not (
        item.path.parent.name == "project" or item.path.stem.startswith("test_fused")
    ):
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {} if torch.cuda.is_available() else {"gpu": "needs a CUDA device"}
    if config.option.elsewhere:
        missing["cpu"] = "says what a CPU does"
    for item in items:
        for mark in missing.keys() & set(item.keywords):
            item.add_marker(pytest.mark.skip(reason=missing[mark]))


@pytest.fixture(autouse=True)
def elsewhere(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--elsewhere`` estimators find tensors of one device beside those of another, as on a GPU."""
    if not request.config.option.elsewhere:
        yield
        return
    with everything_elsewhere():
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_rates() -> Iterator[None]:
    """The rates behind the estimate of a plan are measured with few points: a second less for each kernel and shape."""
    from warmgp.planning import costs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "SIZE", costs.SIZE // 5)
        yield


@pytest.fixture
def whole_rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They are measured as a user has it, where a fit has to keep to an estimate."""
    from warmgp.planning import costs

    monkeypatch.setattr(costs, "SIZE", 5 * costs.SIZE)
    costs.measured_rates.cache_clear()
    yield
    costs.measured_rates.cache_clear()


@pytest.fixture(scope="session")
def uci_folder() -> Path:
    """The UCI folder: WARMGP_DATA, or shared/uci beside the checkout. Skips where there is none."""
    named = os.environ.get("WARMGP_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "uci"
    if not (folder / "pol").is_dir():
        pytest.skip(f"no UCI data in {folder.name}/: set WARMGP_DATA to a folder that holds pol/data.csv.gz")
    return folder


@pytest.fixture(scope="session")
def cli_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables in every format, and models of them."""
    import numpy as np  # here: tests/operators/test_gpu.py also runs where not all of this is installed

    from cli_tools import API, FAST, table
    from warmgp import GPRegressor
    from warmgp.cli.commands import main

    path = tmp_path_factory.mktemp("cli")
    data, numbers = table(), table().drop(columns="colour")
    data.to_csv(path / "data.csv", index=False)
    numbers.to_csv(path / "numbers.csv", index=False)
    numbers.to_csv(path / "numbers.csv.gz", index=False)
    numbers.to_parquet(path / "numbers.parquet")
    np.savez(path / "numbers.npz", X=numbers[["a", "b"]].to_numpy(), y=numbers["y"].to_numpy())
    GPRegressor(solver="cg", **API).fit(numbers[["a", "b"]], numbers["y"]).save(path / "numbers.model")
    one_hot = [str(path / "data.csv"), "--target", "y", "--out", str(path / "colour.model"), "--one-hot", "colour"]
    assert main(["fit", *one_hot, *FAST]) == 0
    return path
