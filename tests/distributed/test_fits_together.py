"""Fits by several processes: the same models as by one, one that dies, one that differs."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from distributed.teams import LIMIT, start, together
from distributed.workers import FITS, fits, resumed


def test_fits_of_three_processes_are_those_of_one(tmp_path: Path) -> None:
    """Hyperparameters to 1e-5; a fit as it comes within its tolerance; every rank has the model, and one file."""
    alone = fits(None, str(tmp_path))
    for rank, found in enumerate(together(3, "fits", str(tmp_path))):
        for name, (theta, mean, std) in found.items():
            expected, its_mean, its_std = alone[name]
            tolerance = 0.02 if name == "as it comes" else 1e-5 if FITS.get(name, {}).get("dtype") else 1e-3
            assert theta == pytest.approx(expected, rel=tolerance), f"rank {rank}, {name}"
            assert np.abs(mean - its_mean).max() <= 0.05 * its_std.mean(), f"rank {rank}, {name}"
            assert std == pytest.approx(its_std, rel=0.05), f"rank {rank}, {name}"
    assert (tmp_path / "model-3.warmgp").exists()


def test_a_process_that_is_killed_ends_the_others_and_two_go_on(tmp_path: Path) -> None:
    """SIGKILL in the sixth solve of three processes: an error that says what to do, then two resume."""
    (tmp_path / "alone").mkdir()
    expected, steps = resumed(None, str(tmp_path / "alone"))
    processes = start(3, "killed", tmp_path, str(tmp_path))
    told = [process.communicate(timeout=LIMIT)[0].decode() for process in processes]
    assert processes[2].returncode == -9
    for rank in (0, 1):
        assert processes[rank].returncode == 0, told[rank]
        said = pickle.loads((tmp_path / f"result-{rank}").read_bytes())
        assert "has ended" in said and "checkpoint" in said, said
        assert int(said.split(" s")[0]) < 60
    for theta, taken in together(2, "resumed", str(tmp_path)):
        assert taken == steps
        assert theta == pytest.approx(expected, rel=1e-5)
