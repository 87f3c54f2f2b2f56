"""What is read from a file is what was written, whatever happened to the file before or after."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from warmgp import ConjugateGradients, GPRegressor
from warmgp.files.format import FileError, read, write

FAST = {"n_steps": 4, "n_features": 40, "n_probes": 4, "random_state": 0, "solver": "cg"}


def data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 5 + 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor(**FAST).fit(*data())


@pytest.fixture
def path(model: GPRegressor, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    GPRegressor(checkpoint=tmp_path / "c", **FAST).fit(*data())
    return tmp_path / "c"


# -- after loading ---------------------------------------------------------------------------------------------------
def test_a_file_that_is_written_over_changes_no_loaded_model(path: Path, model: GPRegressor) -> None:
    X, _ = data()
    loaded = GPRegressor.load(path)
    before = loaded.predict(X)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    np.testing.assert_array_equal(loaded.predict(X), before)
    np.testing.assert_array_equal(before, model.predict(X))


def test_a_file_that_is_cut_kills_no_process(path: Path) -> None:
    script = (
        "import sys, os, numpy as np; from warmgp import GPRegressor; m = GPRegressor.load(sys.argv[1]);"
        "os.truncate(sys.argv[1], 0); print(np.isfinite(m.predict(np.zeros((3, 2)), return_std=True)).all())"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# -- the format ------------------------------------------------------------------------------------------------------
def test_files_are_safetensors_files(path: Path) -> None:
    """Others read what we write, and we read what others write."""
    tensors, content = read(path, "model")
    with safe_open(str(path), framework="pt") as file:
        assert set(file.keys()) == set(tensors) and json.loads(file.metadata()["content"]) == content
        for name, tensor in tensors.items():
            assert torch.equal(file.get_tensor(name), tensor) and file.get_tensor(name).dtype == tensor.dtype


def test_a_changed_byte_anywhere_is_noticed(path: Path, checkpoint: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = data()
    for source, load in (
        (path, lambda f: GPRegressor.load(f)),
        (checkpoint, lambda f: GPRegressor(checkpoint=f, **FAST).fit(X, y)),
    ):
        whole = source.read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        for at in (*rng.integers(0, header, 60), *rng.integers(header, len(whole), 60)):
            changed = bytearray(whole)
            changed[at] ^= 1 << int(rng.integers(8))
            (tmp_path / "changed").write_bytes(changed)
            with pytest.raises(FileError, match="changed"):
                load(tmp_path / "changed")


def test_files_of_the_first_format_still_load(
    path: Path, model: GPRegressor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They have no checksum, and one line says so; what is allowed in them is the same."""
    X, _ = data()
    with safe_open(str(path), framework="pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118
    metadata.pop("checksum", None)
    save_file(tensors, tmp_path / "new", metadata=metadata)
    with pytest.raises(FileError, match="checksum"):  # of the second format one is missed
        GPRegressor.load(tmp_path / "new")
    metadata["format_version"] = "1"
    save_file(tensors, tmp_path / "old", metadata=metadata)
    with caplog.at_level(logging.WARNING):
        loaded = GPRegressor.load(tmp_path / "old")
    assert len(caplog.records) == 1 and "no checksum" in caplog.text and "old" in caplog.text
    np.testing.assert_array_equal(loaded.predict(X, return_std=True), model.predict(X, return_std=True))
    save_file({**tensors, "x": tensors["x"][1:]}, tmp_path / "old", metadata=metadata)
    with pytest.raises(FileError, match="solution must have shape"):
        GPRegressor.load(tmp_path / "old")


def remade(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object], kind: str = "model") -> None:
    """Change tensors and content of a file, and give it a checksum that fits."""
    tensors, content = read(path, kind)
    change(tensors, content)
    write(path, kind, tensors, content)


def header_of(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("whole", "told"),
    [
        (b"", "longer than the file"),
        (b"\x10", "longer than the file"),
        ((2**63).to_bytes(8, "little") + b"{}", "longer than the file"),
        (header_of(b"[" * 100_000), ""),
        (header_of(b'{"__metadata__": 5}'), "metadata"),
        (header_of(b'{"__metadata__": {"format": 5}}'), "metadata"),
        (header_of(b'{"__metadata__": {"format": "warmgp", "format": "warmgp"}}'), "twice"),
        (header_of(b'{"a": {"dtype": "F32", "shape": [1e3], "data_offsets": [0, 4]}}') + b"1234", "nonsense"),
        (header_of(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}') + b"1234", "nonsense"),
        (header_of(b'{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}') + b"1234", "nonsense"),
        (header_of(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}') + b"12345678", "gaps"),
        (header_of(b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}') + b"1234", "larger"),
        (header_of(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}') + b"12345", "belong to nothing"),
        (header_of(b"\xff\xfe"), ""),
        (header_of(b'{"__metadata__": {"format": "warmgp", "format_version": "two"}}'), "no number"),
        (header_of(b'{"a": 1' + b"0" * 5000 + b"}"), ""),
    ],
)
def test_nonsense_in_the_header_is_refused(whole: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(whole)
    with pytest.raises(FileError, match=f"m is not a whole warmgp file.*{told}"):
        GPRegressor.load(tmp_path / "m")


# -- what is allowed -------------------------------------------------------------------------------------------------
def at(*keys: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    """A change of one value of the content."""

    def change(tensors: dict[str, Any], content: dict[str, Any]) -> None:
        place: Any = content
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, Any], Any], object]:
    return lambda tensors, _: tensors.update({name: change(tensors[name]).contiguous()})


MODELS = {
    "kernel": at("kernel", value="__class__"),
    "dtype": at("plan", "dtype", value="Tensor"),
    "operator": at("plan", "operator", value="__init__"),
    "device": at("plan", "device", value="nowhere:99"),
    "negative steps": at("plan", "n_steps", value=-1),
    "infinite rate": at("plan", "learning_rate", value=float("inf")),
    "tolerance": at("plan", "rule", "tol", value=float("nan")),
    "unknown option": at("plan", "solver", "options", "evil", value=1),
    "option's type": at("plan", "solver", "options", "preconditioner_rank", value=[1]),
    "option's range": at("plan", "solver", "options", "preconditioner_rank", value=-7),
    "solver that is an estimator": at("plan", "solver", value={"name": "pathwise", "options": {}}),
    "estimator": at("plan", "gradient", "name", value="cg"),
    "why": at("plan", "why", value="text"),
    "plan": at("plan", value=None),
    "unknown plan": at("plan", "evil", value=1),
    "history": at("history", value={}),
    "step": at("history", 2, "step", value=-1e308),
    "epochs": at("history", 2, "epochs", value=-1.0),
    "lengths": at("history", 0, "length_scales", value=[1.0]),
    "metrics": at("history", 0, "metrics", value={"rmse": "0"}),
    "names": at("feature_names", value=["a"]),
    "a name": at("feature_names", value=["a", 5]),
    "a name that is no text": at("feature_names", value=["a", "\ud800"]),
    "exact": at("exact", value=1),
    "converged": at("converged", value=None),
    "likelihood": at("log_marginal_likelihood", value="0"),
    "settings": at("settings", value=[]),
    "unknown setting": at("settings", "evil", value=1),
    "setting's type": at("settings", "n_probes", value=1e300),
    "setting's range": at("settings", "tol", value=2.0),
    "setting's solver": at("settings", "solver", value={"name": "cg", "options": {"preconditioner_rank": -1}}),
    "seed": at("settings", "random_state", value=-1),
    "init": at("settings", "init", value={"hyperparameters": [1.0]}),
    "huge whole number": at("settings", "n_steps", value=10**400),
    "rows": tensor("x", lambda x: x[1:]),
    "columns": tensor("x", lambda x: x[:, :1]),
    "dimensions": tensor("x", lambda x: x[None]),
    "no rows": tensor("x", lambda x: x[:0]),
    "numbers": tensor("x", lambda x: x.long()),
    "NaN": tensor("solution", lambda v: v * torch.nan),
    "infinity": tensor("frequencies", lambda w: w / 0),
    "functions": tensor("sin_weights", lambda w: w[:, 1:]),
    "theta's length": tensor("theta", lambda t: torch.cat([t, t])),
    "theta's sign": tensor("theta", lambda t: -t),
    "theta's precision": tensor("theta", lambda t: t.float()),
    "scale": tensor("x_scale", lambda s: 0 * s),
    "scale of y": tensor("y_scaling", lambda s: -s),
    "means": tensor("x_mean", lambda m: m[:1]),
    "unknown tensor": lambda tensors, _: tensors.update(evil=torch.zeros(1)),
    "missing tensor": lambda tensors, _: tensors.pop("x_mean"),
}


@pytest.mark.parametrize("change", MODELS.values(), ids=MODELS)
def test_a_model_that_cannot_be_is_refused(change: Any, path: Path) -> None:
    """Though its checksum is right."""
    remade(path, lambda *_: None)
    GPRegressor.load(path)
    remade(path, change)
    with pytest.raises(FileError, match=r"model is not a model .*(copy|anew)"):
        GPRegressor.load(path)


CHECKPOINTS = {
    "step": at("step", value=-1e308),
    "another step": at("step", value=3),
    "adam": at("adam_t", value=-1),
    "seconds": at("elapsed", value=float("nan")),
    "spent": at("solver_state", "spent", value="0"),
    "block size of another solver": at("solver_state", "block_size", value=5),
    "rate of another solver": at("solver_state", "learning_rate", value=5.0),
    "pivots without rows": at("solver_state", "pivots", value=None),
    "pivots": at("solver_state", "pivots", value=[1, 2, 3]),
    "a solver's state": at("solver_state", value=[]),
    "a solver's state of the version before": at("spent", value=0),
    "history": at("history", value=[]),
    "features": at("plan", "n_features", value=2**30),
    "features of the estimator": at("plan", "gradient", "options", "n_features", value=2**30),
    "probes": at("plan", "gradient", "options", "n_probes", value=10**12),
    "estimator": at("plan", "gradient", value={"name": "standard", "options": {"n_probes": 4}}),
    "plan": at("plan", value={}),
    "fingerprint": at("fingerprint", value=5),
    "made from": at("made_from", value=5),
    "generator": tensor("generator", lambda g: g[:-1]),
    "generator's state": tensor("generator", lambda g: torch.full_like(g, 255)),
    "nu's length": tensor("nu", lambda nu: nu[1:]),
    "nu's range": tensor("nu", lambda nu: 0 * nu - 1e300),
    "Adam's moments": tensor("adam_second", lambda m: -1 - m),
    "rows": tensor("solution", lambda v: v[1:]),
    "precision": tensor("noise", lambda w: w.double()),
    "rows of pivots": tensor("solver_state.pivots", lambda index: index + 1000),
    "half a draw": lambda tensors, _: tensors.pop("frequencies"),
    "another draw": lambda tensors, _: tensors.update(probes=tensors["noise"]),
    "unknown": lambda tensors, _: tensors.update(evil=torch.zeros(1)),
    "unknown to the solver": lambda tensors, _: tensors.update({"solver_state.evil": torch.zeros(1)}),
}


@pytest.mark.parametrize("change", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_is_refused(change: Any, tmp_path: Path) -> None:
    X, y = data()
    settings = {**FAST, "solver": ConjugateGradients(5), "checkpoint": tmp_path / "c", "dtype": "float32"}
    GPRegressor(**settings).fit(X, y)
    remade(tmp_path / "c", lambda *_: None, "checkpoint")
    GPRegressor(**settings).fit(X, y)
    remade(tmp_path / "c", change, "checkpoint")
    with pytest.raises(FileError, match=r"the checkpoint .*c .*delete it to start anew"):
        GPRegressor(**settings).fit(X, y)


def test_what_did_not_converge_is_saved_and_read(tmp_path: Path) -> None:
    """Residuals that are infinite or not a number are part of a history, and budgets may be infinite."""
    X, y = data()
    model = GPRegressor(
        **{**FAST, "max_epochs": float("inf"), "solver": ConjugateGradients(5, stall_epochs=float("inf"))}
    )
    model.fit(X, y)

    model.history_[0] = replace(model.history_[0], residual_mean=float("inf"), residual_probes=float("nan"))
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m")
    assert loaded.history_[0].residual_mean == float("inf") and np.isnan(loaded.history_[0].residual_probes)
    assert loaded.max_epochs == float("inf") and loaded.solver == model.solver


def test_a_large_file_is_not_held_twice(tmp_path: Path) -> None:
    """Reading takes the memory of the tensors, not a copy of the file beside them."""
    write(tmp_path / "m", "model", {"a": torch.zeros(20, 2**17, dtype=torch.float64)}, {})
    tracemalloc.start()
    try:
        tensors, _ = read(tmp_path / "m", "model")
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tensors["a"].numel() == 20 * 2**17 and held > 20 * 2**20 and peak < 1.1 * 20 * 2**20
