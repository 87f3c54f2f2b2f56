"""The paper's tables, read from a CSV file."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

Cell = tuple[str, str, str, bool]  # dataset, solver, estimator, warm
NUMBERS = {
    "llh": "test_llh", "llh_error": "test_llh_stderr", "rmse": "test_rmse", "rmse_error": "test_rmse_stderr",
    "residual_mean": "residual_mean", "residual_mean_error": "residual_mean_stderr",
    "residual_probes": "residual_probes", "residual_probes_error": "residual_probes_stderr",
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """One row of the paper's tables: times in seconds, errors over ten splits, NaN where it has none."""

    llh: float
    llh_error: float
    rmse: float
    rmse_error: float
    seconds: float
    solver_seconds: float
    residual_mean: float = math.nan
    residual_mean_error: float = math.nan
    residual_probes: float = math.nan
    residual_probes_error: float = math.nan
    speed_up: float = math.nan  # as it is printed
    unfinished: bool = False  # the times are lower bounds, and the speed-ups over them


Papers = dict[Cell, Published]


def read_published(path: Path | None) -> Papers:
    """The paper's rows by cell; none without a file."""
    if path is None or not path.exists():
        return {}
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            cell = (row["dataset"], row["solver"], row["estimator"], row["warm_start"] == "1")
            found[cell] = Published(
                **{name: _number(row.get(column, "")) for name, column in NUMBERS.items()},
                seconds=_seconds(row.get("total_time", ""), row["time_unit"]),
                solver_seconds=_seconds(row.get("solver_time", ""), row["time_unit"]),
                speed_up=_number(row.get("speed_up", "").lstrip(">")),
                unfinished=row["total_time"].startswith(">"),
            )
    return found


def _number(text: str | None) -> float:
    return float(text) if text else math.nan


def _seconds(text: str, unit: str) -> float:
    """Of "4.8" minutes, or of ">24h"."""
    if text.startswith(">"):
        text, unit = text[1:].removesuffix("h"), "h"
    return _number(text) * {"min": 60.0, "h": 3600.0}[unit]
