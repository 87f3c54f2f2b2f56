"""Models and checkpoints that an earlier version wrote: they load, predict and go on as they did then."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warmgp import (
    AlternatingProjections,
    ConjugateGradients,
    GPRegressor,
    Hyperparameters,
    StochasticGradientDescent,
)

FOLDER = Path(__file__).parent / "before_rooms"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
MODELS = [name for name in EXPECTED if name.startswith("model")]
CHECKPOINTS = [name for name in EXPECTED if name.startswith("checkpoint")]
SOLVERS = {"cg": ConjugateGradients, "ap": AlternatingProjections, "sgd": StochasticGradientDescent}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # they were cut short after a few steps


def data(d: int) -> tuple[np.ndarray, np.ndarray]:
    """What they were fitted to."""
    rng = np.random.default_rng(d)
    X = np.round(rng.uniform(-2, 2, (40, d)), 3)
    return X, np.round(np.sin(2 * X[:, 0]) + 0.3 * X[:, -1] + 0.1 * rng.standard_normal(40), 3)


def settings(name: str) -> dict[str, Any]:
    values = dict(EXPECTED[name]["settings"])
    if isinstance(values.get("solver"), list):
        kind, options = values["solver"]
        values["solver"] = SOLVERS[kind](**options)
    if isinstance(values.get("init"), list):
        values["init"] = Hyperparameters.from_vector(torch.tensor(values["init"][1], dtype=torch.float64))
    return values


def agrees(model: GPRegressor, name: str) -> None:
    """Whether it says what it said then. Processors round differently: to a thousandth of the predictive std.

    Then the std was that of the samples alone, without a control.
    """
    expected = EXPECTED[name]
    model.posterior_ = replace(model.posterior_, targets=None)
    X, _ = data(expected["d"])
    mean, std = model.predict(X[:7] + 0.05, return_std=True)
    sample = model.sample_y(X[:7] + 0.05, 1)[:, 0]
    assert model.n_steps_ == expected["n_steps"]
    scale = np.array(expected["std"])
    assert np.abs(mean - expected["mean"]).max() <= 1e-3 * scale.min()
    assert np.abs(std - scale).max() <= 1e-3 * scale.min()
    assert np.abs(sample - expected["sample"]).max() <= 1e-2 * scale.min()
    assert np.allclose(model.hyperparameters_.vector, expected["theta"], rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_version_before_predicts_the_same(name: str, tmp_path: Path) -> None:
    model = GPRegressor.load(FOLDER / f"{name}.safetensors", "cpu")
    agrees(model, name)
    model.save(tmp_path / "again.safetensors")
    agrees(GPRegressor.load(tmp_path / "again.safetensors", "cpu"), name)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_of_the_version_before_goes_on_to_the_same_model(name: str, tmp_path: Path) -> None:
    """Each kind of state that a solver keeps: pivots, a whole factor, neighbours, a block size, a learning rate."""
    path = tmp_path / "state.safetensors"
    shutil.copy(FOLDER / f"{name}.safetensors", path)
    seen: list[int] = []
    given = {**settings(name), "checkpoint": path, "checkpoint_every": 1}
    model = GPRegressor(**{"kernel": "matern32", **given}, callbacks=[lambda record, state: seen.append(record.step)])
    model.fit(*data(EXPECTED[name]["d"]))
    assert seen and seen[0] == 5  # it did not begin anew
    agrees(model, name)
