"""The demo runs, says what it found and draws it."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmgp.cli import demo


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "demo.png"
    assert demo.main(["--n", "300", "--steps", "25", "--out", str(picture), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "noise" in shown and "to tolerance" in shown and "NOT" not in shown
    assert picture.read_bytes()[:4] == b"\x89PNG" and picture.stat().st_size > 20_000
