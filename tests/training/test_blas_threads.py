"""SciPy's BLAS has one thread while a likelihood is climbed, and as many as before afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import ThreadpoolController

from gp_truth import toy
from warmgp import GPRegressor
from warmgp.training import near_likelihood
from warmgp.training.blas_threads import one_blas_thread

if not torch.backends.mkl.is_available():
    pytest.skip("torch has no MKL of its own, and may use the same BLAS", allow_module_level=True)


def numbers() -> set[int]:
    return {one["num_threads"] for one in ThreadpoolController().select(internal_api="openblas").info()}


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    """Every OpenBLAS has two threads, also where another of Python's threads, of another test, has set theirs."""
    libraries = ThreadpoolController().select(internal_api="openblas")
    for one in libraries.lib_controllers:
        getattr(one, "clear_controlling_thread", lambda **_: None)(force=True)
    with libraries.limit(limits=2):
        if numbers() != {2}:
            pytest.skip("SciPy and numpy come without an OpenBLAS whose threads can be set")
        yield


def test_one_within_and_two_again() -> None:
    with one_blas_thread():
        assert numbers() == {1}
        with one_blas_thread():
            assert numbers() == {1}
        assert numbers() == {1}
    assert numbers() == {2}


def test_two_again_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert numbers() == {2}


def test_who_finds_it_set_leaves_it_alone() -> None:
    """In another of Python's threads."""

    def another() -> None:
        with one_blas_thread():
            pass

    with one_blas_thread():
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
        assert numbers() == {1}
    assert numbers() == {2}


def test_a_climb_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = near_likelihood.conditionals

    def conditionals(*arguments: object) -> object:
        seen.append(numbers())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(near_likelihood, "conditionals", conditionals)
    x, y = toy(40, 2)
    GPRegressor(random_state=0).fit(x.numpy(), y.numpy())
    assert seen and all(one == {1} for one in seen) and numbers() == {2}
