"""The benchmark on the satellite map: its scores against integrals and by hand, its table, and what it leaves out."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import heaton
from benchmarks.heaton import crps, interval_score, main, measure, scored, table

MACHINE = {"machine": {"device": "a computer", "threads": 2}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smooth map of few points in the form of the satellite data."""
    rng = np.random.default_rng(0)
    x = rng.uniform((-96.0, 34.0), (-91.0, 37.0), (160, 2))
    y = 40 + 3 * np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.3 * rng.standard_normal(160)
    path = tmp_path_factory.mktemp("heaton")
    np.savez(path / "satellite.npz", x_train=x[:120], y_train=y[:120], x_test=x[120:], y_test=y[120:])
    return path


def measured(method: str, folder: Path | None, rows: int = 100) -> dict[str, Any]:
    """A method on the small map, in this process."""
    found: dict[str, Any] = {}
    measure(method, rows, "cpu", 60.0, None if folder is None else str(folder), lambda **part: found.update(part))
    return found


def test_crps_is_its_integral() -> None:
    """∫ (F(t) − 1[t ≥ y])² dt by the trapezoidal rule, for y on both sides of the mean and far from it."""
    y, mean, std = np.array([0.3, -2.0, 9.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0]), np.array([1.0, 0.5, 2.0, 3.0])
    for i, value in enumerate(crps(y, mean, std)):
        below, above = (np.linspace(a, b, 200_001) for a, b in ((mean[i] - 40, y[i]), (y[i], mean[i] + 40)))
        parts = []
        for t, step in ((below, 0.0), (above, 1.0)):
            F = torch.special.ndtr(torch.as_tensor((t - mean[i]) / std[i]))
            parts.append(float(torch.trapezoid((F - step) ** 2, torch.as_tensor(t))))
        assert value == pytest.approx(sum(parts), rel=1e-6)


def test_interval_score_by_hand() -> None:
    y = np.array([0.0, 5.0, -3.0])
    assert interval_score(y, np.full(3, -1.0), np.full(3, 2.0)) == pytest.approx([3.0, 3 + 40 * 3, 3 + 40 * 2])
    assert interval_score(y, np.full(3, -1.0), np.full(3, 2.0), level=0.8)[1] == pytest.approx(3 + 10 * 3)


def test_scores_by_hand() -> None:
    y, mean, std = np.array([1.0, 10.0]), np.array([0.0, 0.0]), np.array([1.0, 2.0])
    found = scored(y, mean, std, unit=4.0)
    assert found["mae"] == 5.5 and found["rmse"] == pytest.approx(math.sqrt(50.5)) and found["coverage"] == 0.5
    densities = [-0.5, -12.5 - math.log(2)]
    assert found["llh"] == pytest.approx(np.mean(densities) - 0.5 * math.log(2 * math.pi) + math.log(4))
    z = 1.959963984540054
    assert found["interval"] == pytest.approx((2 * z + 4 * z + 40 * (10 - 2 * z)) / 2)
    assert found["crps"] == pytest.approx(crps(y, mean, std).mean())


def test_ours_on_a_small_map(folder: Path) -> None:
    found = measured("matern12", folder)
    assert (found["n"], found["n_test"], found["kernel"]) == (100, 40, "matern12")
    assert found["converged"] and found["seconds"] > 0 and found["predict_seconds"] > 0
    assert found["crps"] < found["mae"] < found["rmse"] < 1.2 and 0.8 < found["coverage"] <= 1


@pytest.mark.parametrize("method", ["gpboost", "pykrige"])
def test_peers_where_they_are_installed(method: str, folder: Path) -> None:
    if find_spec(heaton.PACKAGES[method]) is None:
        pytest.skip(f"{method} is not installed: pip install 'warmgp[bench]'")
    found = measured(method, folder)
    assert found["rmse"] < 1.5 and found["crps"] < 1.0 and 0.5 < found["coverage"] <= 1


def test_data_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARMGP_DATA", raising=False)
    assert "--data" in measured("ours", None)["left_out"]
    assert "satellite.npz" in measured("ours", tmp_path)["left_out"]


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not installed is named and tried again; what --out has of others stays as it is."""
    monkeypatch.setattr(heaton, "find_spec", lambda name: None)
    out = tmp_path / "heaton.json"
    done = {"rows": 50, "method": "ours", "device": "cpu", "limit": 9.0, "n": 50, "rmse": 1.5, "cut": False}
    done |= {"seconds": 3.0, "machine": {"device": "here"}}
    out.write_text(json.dumps({"rows": [done]}))
    command = ["--rows", "50", "--device", "cpu", "--out", str(out), "--methods", "ours", "gpboost", "pykrige"]
    main(command)
    rows = json.loads(out.read_text())["rows"]
    assert rows[0] == done and [row["method"] for row in rows] == ["ours", "gpboost", "pykrige"]
    assert [row["left_out"] for row in rows[1:]] == ["not installed"] * 2
    main(command)
    assert [row["method"] for row in json.loads(out.read_text())["rows"]] == ["ours", "gpboost", "pykrige"]


def test_the_table_marks_what_is_published(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scores = {"mae": 1.0, "rmse": 1.36, "crps": 0.735, "interval": 7.52, "coverage": 0.953, "llh": -0.2}
    ran = {"n": 105_569, "seconds": 73.0, "predict_seconds": 1.5, "cut": False, "limit": 9.0, **MACHINE}
    rows = [
        {"method": "matern12", "converged": False, **scores, **ran},
        {"method": "pykrige", "n_used": 8000, **scores, **ran, "rmse": 1.70},
        {"method": "gpboost", "left_out": "not installed", **MACHINE},
    ]
    out = tmp_path / "heaton.json"
    out.write_text(json.dumps({"rows": rows}))
    main(["--table", "--out", str(out)])
    shown = capsys.readouterr().out.splitlines()
    assert shown == table(rows).splitlines()
    ours = '| `GPRegressor(kernel="matern12")`, not converged | 105,569 | 1.00 | 1.36 | 0.735 | 7.52 | 0.953 | −0.200 |'
    assert shown[2] == f"{ours} 73.0 s | 1.5 s |"
    assert shown[3].startswith("| SPDE (published) | 105,569 | 1.10 | 1.53 | 0.83 |  | 0.97 |")
    assert shown[7].startswith("| PyKrige | 8,000 of 105,569 | 1.00 | 1.70 |")
    assert sum("(published)" in line for line in shown) == len(heaton.PUBLISHED) == 11
    assert "| GPBoost |  |  |  |  |  |  |  | not installed |  |" in shown
    assert len({line.count("|") for line in shown if line.startswith("|")}) == 1
    assert shown[-1] == '- `GPRegressor(kernel="matern12")`, PyKrige: a computer (threads 2)'
