"""The demo runs, says what it found and draws it; the paper's order of work holds at a small size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from warmgp import demo

ROOT = Path(__file__).resolve().parents[1]


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "demo.png"
    assert demo.main(["--n", "300", "--steps", "25", "--out", str(picture), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "noise" in shown and "to tolerance" in shown and "NOT" not in shown
    assert picture.read_bytes()[:4] == b"\x89PNG" and picture.stat().st_size > 20_000


@pytest.mark.slow
def test_elevators_order_at_a_small_size(uci_folder: Path, tmp_path: Path) -> None:
    """standard cold > pathwise cold > standard warm > pathwise warm, in AP iterations."""
    command = [sys.executable, "-m", "experiments.elevators", "--n", "400", "--steps", "20", "--block-size", "50"]
    command += ["--device", "cpu", "--out", str(tmp_path)]
    environment = {**os.environ, "WARMGP_DATA": str(uci_folder)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "order as in the paper" in done.stdout
    assert len(list(tmp_path.glob("*.json"))) == 4


def test_committed_pol_histories_hold_their_bounds() -> None:
    """The histories under experiments/results keep the bounds that experiments/pol.py states."""
    from experiments.pol import RUNS, compare

    folder = ROOT / "experiments" / "results"
    records = {name: json.loads((folder / f"pol-split0-{name}.json").read_text()) for name in RUNS}
    for name, record in records.items():
        row, good = compare(record, records["exact"], RUNS[name][2])
        assert good, row
        assert len(record["history"]) == 100
