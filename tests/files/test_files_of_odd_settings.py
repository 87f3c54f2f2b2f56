"""What can be fitted can be saved, read and resumed, whatever kind of number its settings are; and written anywhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli_tools import run
from warmgp import AlternatingProjections, ConjugateGradients, GPRegressor, Pathwise, Standard
from warmgp.files.atomic import Claim, InUseError, whole_file

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.sin(X[:, 0])


@pytest.mark.parametrize(
    "settings",
    [
        {"memory_budget": 1e9},
        {"memory_budget": np.float64(1e9)},
        {"memory_budget": 10**17},
        {"random_state": True},
        {"random_state": np.int64(3)},
        {"solver": ConjugateGradients(preconditioner_rank=np.int64(10))},
        {"solver": AlternatingProjections(np.int32(20))},
        {"solver": "cg", "gradient": Pathwise(np.int64(4), np.int64(50))},
        {"solver": "cg", "gradient": Standard(np.int64(4))},
    ],
    ids=str,
)
def test_what_is_fitted_is_saved_and_resumed(settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {"random_state": 0, **settings, "n_steps": 2, "n_probes": 4}
    model = GPRegressor(checkpoint=tmp_path / "c", **settings).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m")
    again = GPRegressor(checkpoint=tmp_path / "c", **settings).fit(X, Y)
    for other in (loaded, again):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_a_last_checkpoint_that_fails_leaves_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    model = GPRegressor(n_steps=3, checkpoint=tmp_path / "c", checkpoint_every=10, random_state=0)
    monkeypatch.setattr("warmgp.files.keeper.CheckpointKeeper.keep", lambda self, state, plan, n: self.__dict__.update(
        _plan=plan, _latest=(state, self.generator.get_state())))  # fmt: skip
    monkeypatch.setattr("warmgp.files.keeper.write_checkpoint", full)
    with pytest.raises(OSError, match="No space"):
        model.fit(X, Y)
    assert model.n_steps_ == 3 and np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "npz", "parquet"])
def test_an_error_in_a_later_chunk_is_one_line(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A blank in row 17,001, where a first chunk has been predicted; nothing is left, and nothing else is said."""
    GPRegressor(n_steps=1, random_state=0).fit(pd.DataFrame({"a": X[:, 0]}), Y).save(tmp_path / "m")
    rows = [f"{i % 7}" for i in range(17_000)] + ["", "1"]
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{row},0\n" for row in rows))
    code, _, err = run(capfd, "predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / f"p.{kind}", "--quiet")
    import gc

    gc.collect()
    err += capfd.readouterr().err
    assert code == 2 and err.count("\n") == 1 and "row 17001" in err, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "t.csv"]


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def refuses(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(22, "Invalid argument")
        sync(handle)

    monkeypatch.setattr(os, "fsync", refuses)
    with whole_file(tmp_path / "f") as file:
        file.write(b"whole")
    assert (tmp_path / "f").read_bytes() == b"whole"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_claim_ends_with_its_fit_and_not_with_a_forked_child(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"x")
    first, second = Claim(path), Claim(path)
    assert first.take()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent is done
        os._exit(0)
    try:
        with pytest.raises(InUseError):
            second.take()
        first.release()
        assert second.take()
        second.release()
    finally:
        os.close(writing)
        os.waitpid(child, 0)
