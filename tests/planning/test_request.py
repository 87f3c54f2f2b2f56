"""Settings are checked where they are made, each by itself; a request adds the data and the machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmgp import Hyperparameters, Matern32, Pathwise, Standard
from warmgp.checks import check_features, check_learning_rate, check_noise_floor
from warmgp.gradient.features import FeaturePrior
from warmgp.planning.planner import make_plan
from warmgp.planning.request import MOST_BYTES, Request, Settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kernel": "cosine"}, "kernel must be one of"),
        ({"solver": "lu"}, "solver must be 'auto', 'cholesky'"),
        ({"gradient": "finite"}, "gradient must be \"auto\", 'exact'.*got 'finite'"),
        ({"gradient": ["pathwise"]}, "gradient must be"),
        ({"gradient": "exact", "solver": "cg"}, 'gradient="exact" needs solver="cholesky" or "auto", got \'cg\''),
        ({"n_probes": 0}, "n_probes must be an integer of at least 1, got 0"),
        ({"n_features": 7}, "n_features must be an even number of at least 2.*got 7"),
        ({"n_features": 2.0}, "n_features must be an even number.*got 2.0"),
        ({"tol": 1.0}, "tol must be a positive number below 1, got 1.0"),
        ({"tol": math.nan}, "tol must be"),
        ({"tol": True}, "tol must be"),
        ({"max_epochs": 0}, "max_epochs must be a positive number or None, got 0"),
        ({"max_epochs": "none"}, "max_epochs must be a number, None or \"auto\", got 'none'"),
        ({"n_steps": None}, 'n_steps must be a number or "auto", got None'),
        ({"n_steps": 1.5}, "n_steps must be an integer of at least 0, got 1.5"),
        ({"learning_rate": math.inf}, "learning_rate must be a positive number, got inf"),
        ({"learning_rate": "fast"}, "learning_rate must be a number or \"auto\", got 'fast'"),
        (
            {"init": "given"},
            'init must be "auto", "ones", "climb", "sample", "near", "subset" or Hyperparameters, got \'given\'',
        ),
        ({"init": np.ones(3)}, "init must be"),
        ({"device": "gpu9"}, 'device must be "auto" or a torch device'),
        ({"dtype": torch.float16}, 'dtype must be "auto", "float32" or "float64", got torch.float16'),
        ({"memory_budget": "1GB"}, "memory_budget must be a positive number of bytes or None, got '1GB'"),
        ({"memory_budget": 8}, r"memory_budget is in bytes, got 8: for 8 GiB pass 8 \* 2\*\*30"),
    ],
)
def test_what_no_data_could_make_right_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**given)
    with pytest.raises(ValueError, match=message):
        make_plan(100, **given)


def test_what_may_be_given() -> None:
    Settings(
        kernel=Matern32(), solver="cg", gradient=Standard(3), n_probes=np.int64(3), n_features=np.int64(4), tol=0.5,
        max_epochs=math.inf, n_steps=0, learning_rate=np.float32(0.1), init=Hyperparameters.ones(2),
        device=torch.device("cpu"), dtype=torch.float64, memory_budget=2.5e9,
    )  # fmt: skip
    assert Settings() == Settings(solver="auto", max_epochs="auto")
    Settings(gradient="exact", solver="cholesky")


def test_a_request_says_what_is_asked_of_which_machine() -> None:
    asked = Request.of(100, 3, Settings(device="cpu", memory_budget=10**300, n_probes=7), "too fine")
    assert (asked.n, asked.d, asked.columns, asked.too_fine) == (100, 3, 8, "too fine")
    assert asked.device == torch.device("cpu") and asked.memory_budget == MOST_BYTES and asked.kernel == Matern32()
    assert Request.of(100, 3, Settings(device="cpu")).memory_budget > 2**20  # what is free


def test_the_probes_and_features_of_an_estimator_count() -> None:
    own = Request.of(100, 3, Settings(gradient=Pathwise(5, 60), n_probes=7, n_features=20, device="cpu"))
    assert (own.columns, own.n_features, own.gradient_name) == (6, 60, "pathwise")
    named = Request.of(100, 3, Settings(gradient="standard", n_probes=7, n_features=20, device="cpu"))
    assert (named.columns, named.n_features, named.given_gradient) == (8, 20, None)


def test_a_rule_of_single_numbers_has_one_home() -> None:
    """The same refusal from whoever takes the number."""
    generator = torch.Generator()
    for refuse in (
        lambda: check_features(7),
        lambda: Settings(n_features=7),
        lambda: Pathwise(4, 7),
        lambda: FeaturePrior.draw(Matern32(), 2, 7, 4, generator=generator),
    ):
        with pytest.raises(
            ValueError, match=r'^n_features must be an even number of at least 2 \(sin/cos pairs\)( or "auto")?, got 7$'
        ):
            refuse()
    for check, bad in ((check_learning_rate, 0), (check_learning_rate, True), (check_noise_floor, -1.0)):
        with pytest.raises(ValueError, match=f"got {bad!r}"):
            check(bad)
    check_noise_floor(0)
