"""Fits by several processes: the same models as by one, one that dies, one that differs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed.teams import LIMIT, start, together
from distributed.workers import FITS, WATCHED, fits, resumed


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What three processes do for these tests."""
    path = tmp_path_factory.mktemp("models")
    return path, together(3, "several", {"fits": (str(path),), "watched": tuple(WATCHED)})


def test_fits_of_three_processes_are_those_of_one(three: tuple[Path, list[dict[str, Any]]]) -> None:
    """Hyperparameters to 1e-5; a fit as it comes within its tolerance; every rank has the model, and one file."""
    path, every = three
    alone = fits(None, str(path))
    for rank, found in enumerate(one["fits"] for one in every):
        for name, (theta, mean, std) in found.items():
            expected, its_mean, its_std = alone[name]
            tolerance = 0.02 if name == "as it comes" else 1e-5 if FITS.get(name, {}).get("dtype") else 1e-3
            assert theta == pytest.approx(expected, rel=tolerance), f"rank {rank}, {name}"
            assert np.abs(mean - its_mean).max() <= 0.05 * its_std.mean(), f"rank {rank}, {name}"
            assert std == pytest.approx(its_std, rel=0.05), f"rank {rank}, {name}"
    assert (path / "model-3.warmgp").exists()


def test_no_process_has_all_rows_while_it_trains(three: tuple[Path, list[dict[str, Any]]]) -> None:
    """Of targets, solutions, probes and the like; what is gathered at the end is the model's, once."""
    for one in (every["watched"] for every in three[1]):
        for name, (steps, found, gathered) in one.items():
            assert steps == 2 and not found, f"{name}: {found}"
            kinds = [kind for columns, kind in gathered if columns > 8]  # of solutions; others are targets in 16 bits
            assert len(kinds) == (2 if name == "rap" else 1), f"{name}: {gathered}"  # with those of the trend
            assert set(kinds) == {"torch.float64" if name == "ap" else "torch.float32"}


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
