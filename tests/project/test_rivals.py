"""The benchmark beside what people would pick instead: its scores, what it does again, and whom it cuts."""

from __future__ import annotations

import json
import math
import os
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import rivals
from benchmarks.limits import Worker
from benchmarks.rivals import main, measure, pinball, scored, svgp_steps, table
from small_jobs import breaks, counts, dies

TOY = ["--datasets", "toy-quiet", "--device", "cpu"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["rows"]


def measured(method: str, limit: float) -> dict[str, Any]:
    """A method on a toy, in this process."""
    found: dict[str, Any] = {}
    measure(method, "toy-quiet", 100, "cpu", limit, None, lambda **part: found.update(part))
    return found


# -- scores ----------------------------------------------------------------------------------------------------------
def test_pinball_loss_by_hand() -> None:
    y, quantile = np.array([1.0, 2.0, 5.0]), np.array([2.0, 2.0, 1.0])
    assert pinball(y, quantile, 0.05) == pytest.approx((0.95 * 1 + 0 + 0.05 * 4) / 3)
    assert pinball(y, quantile, 0.95) == pytest.approx((0.05 * 1 + 0 + 0.95 * 4) / 3)
    assert pinball(y, quantile, 0.5) == pytest.approx(0.5 * np.abs(y - quantile).mean())


def test_scores_of_quantiles_by_hand() -> None:
    y = np.array([0.0, 1.0, 2.0, 3.0])
    quantiles = np.array([[0.0, 1.5, 1.0, 0.0], [0.5, 2.0, 2.0, 1.0], [1.0, 2.5, 4.0, 2.0]])
    found = scored(y, y + 2.0, quantiles=quantiles)
    assert found["rmse"] == 2.0 and found["llh"] is None
    assert found["coverage"] == 0.5  # 0 on its edge and 2 are inside
    assert found["width"] == pytest.approx((1 + 1 + 3 + 2) / 4)
    by_hand = [(0 + 0.95 * 0.5 + 0.05 * 1 + 0.05 * 3) / 4, (0.25 + 0.5 + 0 + 1.0) / 4]
    by_hand.append((0.05 * 1 + 0.05 * 1.5 + 0.05 * 2 + 0.95 * 1) / 4)
    assert found["pinball"] == pytest.approx(by_hand)


def test_scores_of_a_gaussian_by_hand() -> None:
    z = 1.6448536269514722  # the standard normal's quantile of 95%
    found = scored(np.array([0.0, 2 * z, -1.0]), np.zeros(3), std=np.array([1.0, 1.0, 2.0]))
    assert found["coverage"] == pytest.approx(2 / 3) and found["width"] == pytest.approx(2 * z * 4 / 3)
    densities = [0.0, -0.5 * (2 * z) ** 2, -0.125 - math.log(2)]
    assert found["llh"] == pytest.approx(np.mean(densities) - 0.5 * math.log(2 * math.pi))
    assert found["pinball"][1] == pytest.approx((2 * z + 1) / 6)
    assert found["pinball"][2] == pytest.approx((0.05 * z + 0.95 * z + 0.05 * (1 + 2 * z)) / 3)


def test_what_is_not_predicted_has_no_score() -> None:
    assert scored(np.ones(2), np.zeros(2)) == {
        "rmse": 1.0, "llh": None, "pinball": None, "coverage": None, "width": None
    }  # fmt: skip


def test_svgp_gets_its_epochs() -> None:
    assert svgp_steps(300) == 2000 and svgp_steps(41_157) == 4100 and svgp_steps(500_000) == 20 * 489


# -- the process beside ours -----------------------------------------------------------------------------------------
def test_a_process_is_used_again_and_replaced_when_it_is_late_or_dead() -> None:
    with Worker() as worker:
        assert worker.do(partial(counts, 3, 0.0), limit=60) == {"counted": 3}
        first = worker.do(breaks, limit=60)
        assert first == {"pid": first["pid"], "failed": "ValueError: no such thing"}
        assert worker.do(breaks, limit=60)["pid"] == first["pid"] != os.getpid()
        began = time.monotonic()
        late = worker.do(partial(counts, 2, 300.0), limit=0.5)
        assert late == {"doing": "counting", "counted": 1, "cut": True} and time.monotonic() - began < 100
        assert worker.do(dies, limit=60) == {"counted": 1, "failed": "its process ended with exit code 7"}
        assert worker.do(breaks, limit=60)["pid"] != first["pid"]


# -- what is done, done again, cut and left out ----------------------------------------------------------------------
@pytest.mark.whole
def test_ours_and_trees_on_a_toy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores of both; a second run does nothing, a larger limit what was cut."""
    out = tmp_path / "rivals.json"
    command = [*TOY, "--rows", "100", "--methods", "ours", "trees", "--out", str(out)]
    main([*command, "--limit", "0"])
    cut = rows_of(out)
    assert [(row["method"], row["cut"], row["progress"]) for row in cut] == [
        ("ours", True, "1 steps"),
        ("trees", True, "1 of 4 models"),
    ]
    assert cut[0]["llh"] is not None and cut[1]["rmse"] < 1.2 and cut[1]["pinball"] is None
    main([*command, "--limit", "0"])
    assert rows_of(out) == cut

    main([*command, "--limit", "500"])
    whole = rows_of(out)
    mine, trees = whole
    assert [row["method"] for row in whole] == ["ours", "trees"] and not (mine["cut"] or trees["cut"])
    assert (mine["n"], mine["d"], mine["n_test"]) == (100, 3, 200) and mine["converged"]
    assert mine["rmse"] < 1.01 * cut[0]["rmse"] and mine["llh"] > -1.0
    assert mine["seconds"] > 0 and mine["predict_seconds"] > 0
    assert 0.75 < mine["coverage"] <= 1 and len(mine["pinball"]) == len(trees["pinball"]) == 3
    assert trees["llh"] is None and 0 < trees["coverage"] < 1 and len(trees["trees"]) == 4
    assert mine["machine"]["scikit-learn"] and mine["machine"]["torch"]
    assert mine["settings"].startswith("Exact training")
    main([*command, "--limit", "1000"])
    assert rows_of(out) == whole

    capsys.readouterr()
    main(["--table", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "| 100 of *toy-quiet* (3 inputs) | `GPRegressor()` | " in shown and "\n|  | boosted trees | " in shown
    assert f"{mine['rmse']:.4f}" in shown and f"{100 * trees['coverage']:.1f}%" in shown


def test_who_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "find_spec", lambda name: None)
    out = tmp_path / "rivals.json"
    main([*TOY, "--methods", "svgp", "gpboost", "--out", str(out)])
    rows = rows_of(out)
    assert [(row["method"], row["left_out"]) for row in rows] == [
        ("svgp", "not installed"),
        ("gpboost", "not installed"),
    ]
    assert "| GPyTorch's SVGP | not installed |" in table(rows) and "| GPBoost | not installed |" in table(rows)
    assert not any(rivals.is_done(row, 1.0) for row in rows)  # it may be installed by then


def test_data_that_are_not_there_are_named() -> None:
    found: dict[str, Any] = {}
    measure("trees", "no-such-set", 0, "cpu", 1.0, None, lambda **part: found.update(part))
    assert found == {"left_out": "no-such-set is not at hand"}


@pytest.mark.parametrize("method", ["svgp", "gpboost"])
def test_peers_where_they_are_installed(method: str) -> None:
    package = rivals.PACKAGES[method]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'warmgp[bench]'")
    found = measured(method, limit=2.0)
    assert found["rmse"] < 1.2 and found["llh"] > -2 and 0.3 < found["coverage"] <= 1


def test_a_row_says_how_far_it_came() -> None:
    row = {"dataset": "bike", "rows": 0, "method": "gpboost", "limit": 60.0, "machine": {"device": "cpu"}}
    cut = row | {"n": 10, "d": 2, "cut": True, "doing": "training"}
    assert "| 10 of *bike* (2 inputs) | GPBoost | cut at 60 s |  |" in table([cut])
    assert "| GPBoost | 12.5 s | cut |" in table([cut | {"doing": "predicting", "seconds": 12.5}])
    assert "| GPBoost | cut at 60 s, 3 steps |" in table([cut | {"progress": "3 steps"}])
    assert "| *bike* | GPBoost | failed: too large |" in table([row | {"failed": "too large"}])
