"""What the tests of the command line share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from warmgp.cli.commands import main
from warmgp.cli.tables import _EXACT

FAST = ["--n-steps", "4", "--n-features", "100", "--n-probes", "6", "--device", "cpu", "--quiet"]
API = {"n_steps": 4, "n_features": 100, "n_probes": 6, "device": "cpu", "random_state": 0}


def table(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(-2, 2, (n, 2)), columns=["a", "b"])
    data["colour"] = np.where(np.arange(n) % 3 == 0, "red", "blue")
    data["y"] = 5 + 3 * np.sin(2 * data["a"]) + (data["colour"] == "red") + 0.3 * rng.normal(size=n)
    return data


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys: pytest.CaptureFixture[str], arguments: list[object], expected: list[str], code: int = 2) -> None:
    """The command fails with that code and one line that has all that is expected."""
    found, out, err = run(capsys, *arguments)
    assert found == code, err
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    for text in expected:
        assert text in err


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """A table with every number to its last bit, which before 3.1 pandas gives only on request."""
    return pd.read_csv(path, **_EXACT, **options)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "warmgp", *map(str, arguments)]
