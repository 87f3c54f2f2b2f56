"""Limits of memory, threads, processes and seeds: answers stay the same, nothing else changes, nothing dies."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed

from hostile.datasets import log_uniform
from warmgp import GPRegressor, Hyperparameters

Rng = np.random.Generator
SOLVERS = ("auto", "cg", "ap", "cholesky", "sgd")


def problem(rng: Rng, n: int = 120, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n)


def settings(rng: Rng) -> dict[str, Any]:
    """A short fit by any solver."""
    dtype = str(rng.choice(["auto", "float32", "float64"]))
    solver = str(rng.choice(SOLVERS))
    return {"solver": solver, "dtype": dtype, "n_steps": 3, "max_epochs": 30.0, "random_state": int(rng.integers(99))}


def answers(X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a budget of 30 epochs may not do
        model = GPRegressor(**options).fit(X, y)
    return np.array(model.predict(X[:40], return_std=True))


# -- memory ----------------------------------------------------------------------------------------------------------
def test_memory_budgets(rng: Rng, scale: float) -> None:
    """A budget shrinks blocks and drops what is stored, or is refused with a remedy; it does not change answers."""
    X, y = problem(rng, 700, 3)
    theta = Hyperparameters(0.2, 1.0, [1.0, 1.0, 1.0])
    unlimited = GPRegressor(init=theta, n_steps=0, random_state=0).fit(X, y).predict(X[:50], return_std=True)
    fitted = 0
    for number in range(max(8, round(60 * scale))):
        budget, solver = int(log_uniform(rng, 2e3, 1e9)), str(rng.choice(["auto", "cg", "ap", "rap", "cholesky"]))
        budget = budget if number else 10**9  # one that is enough is among them
        model = GPRegressor(init=theta, n_steps=0, random_state=0, memory_budget=budget, solver=solver, max_epochs=None)
        try:
            model.fit(X, y)
        except MemoryError as error:
            assert "memory_budget" in str(error) and "use " in str(error)
            continue
        fitted += 1
        assert model.plan_.estimated_bytes <= budget
        mean = model.predict(X[:50])
        assert np.abs((mean - unlimited[0]) / unlimited[1]).max() <= 0.1
    assert fitted


def test_blocks_shrink(rng: Rng) -> None:
    X = rng.normal(size=(20_000, 5))
    blocks = [
        GPRegressor(solver="ap", memory_budget=budget).plan(X).solver.block_size for budget in (2**34, 2**30, 2**28)
    ]
    assert blocks[0] > blocks[1] > blocks[2] > 0


CHILD = """
import resource, sys
import numpy as np
from warmgp import GPRegressor, Hyperparameters
rng = np.random.default_rng(0)
X = rng.normal(size=({n}, 2))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size={n})
small = GPRegressor(n_steps=1).fit(X[:50], y[:50])  # what is imported late is there
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (held + {more}, held + {more}))
try:
    model = GPRegressor(solver={solver!r}, n_steps=1).fit(X, y)
    model.predict(X[:100], return_std=True)
except (MemoryError, RuntimeError) as error:
    print("refused:", type(error).__name__, str(error)[:300])
print(float(small.predict(X[:1])[0]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_limit_of_the_system(rng: Rng, scale: float) -> None:
    """Less address space than a fit needs: an error in Python, never a death by signal, and what was there works on."""
    for _ in range(max(1, round(12 * scale))):
        n, more = int(rng.integers(1_500, 3_500)), int(log_uniform(rng, 2e6, 3e8))
        code = CHILD.format(n=n, more=more, solver=str(rng.choice(["auto", "cg", "ap", "cholesky"])))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=_alone())
        assert done.returncode == 0, f"n={n}, {more} bytes: {done.returncode}\n{done.stderr[-2000:]}"
        if "refused" in done.stdout:
            assert "memory" in done.stdout.lower(), done.stdout


def _alone() -> dict[str, str]:
    """An environment of one thread, in which the library that is tested here is found."""
    source = str(Path(sys.modules["warmgp"].__file__ or "").resolve().parents[1])
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": source}


# -- threads and processes -------------------------------------------------------------------------------------------
@pytest.mark.whole
def test_threads_do_not_meet(rng: Rng, scale: float) -> None:
    """Fits of different models, and predictions of one model, side by side: the bits of each alone."""
    count = max(4, round(24 * scale))
    tasks = [(*problem(rng, int(rng.integers(20, 600))), settings(rng)) for _ in range(count)]
    alone = [answers(*task) for task in tasks]
    shared = GPRegressor(n_steps=2, random_state=0).fit(*tasks[0][:2])
    queries = [rng.normal(size=(int(rng.integers(1, 200)), 2)) for _ in range(count)]
    expected = [shared.predict(query, return_std=True) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        fits = [pool.submit(answers, *task) for task in tasks]
        predictions = [pool.submit(shared.predict, query, return_std=True) for query in queries]
        for task, one, other in zip(tasks, alone, fits, strict=True):
            assert np.array_equal(one, other.result()), task[2]
        for one, other in zip(expected, predictions, strict=True):
            assert np.array_equal(one, other.result())


@pytest.mark.cpu
def test_an_exact_model_shared_before_it_has_its_factor(rng: Rng, tmp_path: Path) -> None:
    """A loaded exact model makes its factor at the first std: four threads at once get the same."""
    X, y = problem(rng, 300)
    GPRegressor(n_steps=1, random_state=0).fit(X, y).save(tmp_path / "model")
    model, other = (GPRegressor.load(tmp_path / "model") for _ in range(2))
    expected = other.predict(X, return_std=True)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model.predict(X, return_std=True), range(8)):
            assert np.array_equal(found, expected)


@pytest.mark.whole
def test_processes(rng: Rng) -> None:
    """Spawned and forked children come to the parent's bits."""
    X, y = problem(rng)
    options = settings(rng) | {"solver": str(rng.choice(["auto", "cg", "ap"]))}
    expected = answers(X, y, options)
    for found in Parallel(n_jobs=2, backend="loky")(delayed(_in_child)(X, y, options) for _ in range(2)):
        assert np.array_equal(found, expected)
    model = GPRegressor(n_steps=1, random_state=0).fit(X, y)
    for found in Parallel(n_jobs=2, backend="loky")(delayed(model.predict)(X[:20]) for _ in range(2)):
        assert np.allclose(found, model.predict(X[:20]), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child(rng: Rng) -> None:
    X, y = problem(rng)
    options = settings(rng)
    expected = answers(X, y, options)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(theirs, X, y, options))
    child.start()
    theirs.close()
    try:
        assert mine.poll(120), "the child did not answer in two minutes"
        assert np.array_equal(mine.recv(), expected)
    finally:
        child.kill()
        child.join()


def _in_child(X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    torch.set_num_threads(1)
    return answers(X, y, options)


def _send(pipe: Any, X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> None:
    pipe.send(answers(X, y, options))


# -- seeds and global state ------------------------------------------------------------------------------------------
def test_the_same_seed_is_the_same_bits(rng: Rng, scale: float) -> None:
    for _ in range(max(2, round(30 * scale))):
        X, y = problem(rng, int(rng.integers(5, 800)))
        options = settings(rng)
        noise = np.random.default_rng().normal(size=3)  # what happens in between must not matter
        one = answers(X, y, options)
        torch.rand(3), np.random.seed(int(abs(noise[0] * 1e6))), random.random()  # noqa: NPY002
        assert np.array_equal(one, answers(X.copy(order="F"), y.copy(), options)), options


@pytest.fixture
def two_threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def test_any_number_of_threads(rng: Rng, scale: float, two_threads: None) -> None:
    """Two threads add in another order: means move by a hundredth of a standard deviation at most."""
    for _ in range(max(1, round(8 * scale))):
        X, y = problem(rng, int(rng.integers(300, 1_500)))
        options = {"init": Hyperparameters(0.2, 1.0, [0.7, 0.7]), "n_steps": 0, "random_state": 0}
        torch.set_num_threads(1)
        one = answers(X, y, options)
        torch.set_num_threads(2)
        assert np.abs((one[0] - answers(X, y, options)[0]) / one[1]).max() <= 0.01


def state() -> dict[str, Any]:
    """What a library could change behind the back of who uses it."""
    numbers = np.random.get_state()  # noqa: NPY002
    return {
        "torch dtype": torch.get_default_dtype(),
        "torch device": torch.get_default_device(),
        "torch threads": torch.get_num_threads(),
        "torch random": torch.get_rng_state().tolist(),
        "torch grad": torch.is_grad_enabled(),
        "torch matmul": torch.get_float32_matmul_precision(),
        "torch deterministic": torch.are_deterministic_algorithms_enabled(),
        "numpy random": (numbers[0], numbers[1].tolist(), *numbers[2:]),
        "numpy errors": np.geterr(),
        "python random": random.getstate(),
        "warnings": list(warnings.filters),
        "logging": (logging.getLogger().level, list(logging.getLogger().handlers)),
        "environment": dict(os.environ),
        "folder": Path.cwd(),
    }


@pytest.mark.filterwarnings("ignore::warmgp.ConvergenceWarning")
def test_global_state_is_left_alone(rng: Rng, tmp_path: Path) -> None:
    GPRegressor(n_steps=0).fit(*problem(rng, 10))  # what importing does is done
    for solver in SOLVERS:
        X, y = problem(rng)
        before, data = state(), (X.copy(), y.copy())
        model = GPRegressor(solver=solver, n_steps=2, max_epochs=20.0, tol=0.5, random_state=0)
        model.fit(X, y, validation=(X[:9], y[:9])).predict(X[:5], return_std=True)
        model.sample_y(X[:5], 2, random_state=1)
        model.save(tmp_path / "model")
        GPRegressor.load(tmp_path / "model").predict(X[:5], return_cov=True)
        after = state()
        assert [name for name in before if before[name] != after[name]] == []
        assert np.array_equal(X, data[0]) and np.array_equal(y, data[1])
