"""The paper's tables from the store, ours beside the published ones, and whether they agree.

Two means over splits agree when they differ by at most two standard errors of a mean over as many splits as were run:
the paper's ± are standard errors over ten splits, so over k of them 2 · s.e. · √(10/k).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments.cells import ESTIMATORS, SOLVERS
from experiments.store import Record

Cell = tuple[str, str, str, bool]  # dataset, solver, estimator, warm
LABELS = {"cg": "CG", "ap": "AP", "sgd": "SGD"}
WAYS = [(estimator, warm) for warm in (False, True) for estimator in ESTIMATORS]  # the order of the paper's rows


@dataclass(frozen=True)
class Published:
    """One row of the paper's tables; seconds, and standard errors over ten splits."""

    llh: float
    llh_error: float
    rmse: float
    rmse_error: float
    seconds: float
    solver_seconds: float


def read_published(path: Path | None) -> dict[Cell, Published]:
    """The paper's rows by cell; none without a file."""
    if path is None or not path.exists():
        return {}
    units = {"min": 60.0, "h": 3600.0, "s": 1.0}
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            unit = units.get(row["time_unit"], 60.0)

            def number(name: str, row: dict[str, str] = row) -> float:
                try:
                    return float(row[name])
                except ValueError:
                    return math.nan

            cell = (row["dataset"], row["solver"], row["estimator"], row["warm_start"] == "1")
            found[cell] = Published(
                number("test_llh"), number("test_llh_stderr"), number("test_rmse"), number("test_rmse_stderr"),
                unit * number("total_time"), unit * number("solver_time"),
            )  # fmt: skip
    return found


def cell_of(record: Record) -> Cell:
    run = record["run"]
    return run["dataset"], run["solver"], run["estimator"], run["warm"]


def plain(record: Record) -> bool:
    """Whether a record is a cell of table 1 or of the large tables: nothing beside them was changed."""
    run = record["run"]
    budget = 10.0 if run["settings"]["large"] else None
    return (run["n_probes"], run["n_features"], run["prior"], run["budget"]) == (64, 2000, "features", budget)


@dataclass(frozen=True)
class Summary:
    """A cell over its splits."""

    records: tuple[Record, ...]

    @property
    def finished(self) -> list[Record]:
        return [record for record in self.records if record["outcome"] == "finished"]

    def values(self, name: str) -> list[float]:
        """Test scores of the finished runs; ``epochs`` and times of all."""
        if name in ("llh", "rmse"):
            return [record["test"][name] for record in self.finished]
        return [record[name] for record in self.records]

    def mean(self, name: str) -> float:
        values = self.values(name)
        return fmean(values) if values else math.nan

    def error(self, name: str) -> float:
        """Standard error of the mean; NaN for one split."""
        values = self.values(name)
        return stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan

    @property
    def cut(self) -> bool:
        """Whether a run was cut, so that its epochs and times are lower bounds."""
        return len(self.finished) < len(self.records)


def summaries(records: list[Record]) -> dict[Cell, Summary]:
    """The plain cells, each over its splits."""
    groups: dict[Cell, list[Record]] = defaultdict(list)
    for record in records:
        if plain(record):
            groups[cell_of(record)].append(record)
    return {cell: Summary(tuple(group)) for cell, group in groups.items()}


def agreement(summary: Summary, published: Published, name: str) -> float | None:
    """|ours − theirs| in units of the allowed difference: at most 1 agrees. None where there is nothing to compare."""
    k = len(summary.finished)
    theirs, error = getattr(published, name), getattr(published, f"{name}_error")
    if k == 0 or math.isnan(theirs) or math.isnan(error):
        return None
    return abs(summary.mean(name) - theirs) / (2 * error * (10 / k) ** 0.5)


# -- Markdown --------------------------------------------------------------------------------------------------------
def markdown(head: list[str], rows: list[list[str]]) -> str:
    left = [":--" if k < 2 else "--:" for k in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, left, *rows])


def shown(value: float, digits: int = 3, least: bool = False) -> str:
    if math.isnan(value):
        return "–"
    return ("> " if least else "") + f"{value:.{digits}f}"


def with_error(summary: Summary, name: str, digits: int = 3) -> str:
    error = summary.error(name)
    return shown(summary.mean(name), digits) + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def way(estimator: str, warm: bool) -> str:
    return f"{estimator}, {'warm' if warm else 'cold'}"


def main_table(found: dict[Cell, Summary], published: dict[Cell, Published], datasets: list[str]) -> str:
    """Table 1: test log-likelihoods and total times of the twelve cells, ours / the paper's; the speed-up last."""
    head = ["solver", "way", *[f"LLH {d}" for d in datasets], *[f"s {d}" for d in datasets], "speed-up in epochs"]
    rows = []
    for solver in SOLVERS:
        for estimator, warm in WAYS:
            row = [LABELS[solver], way(estimator, warm)]
            cells = [(dataset, solver, estimator, warm) for dataset in datasets]
            for name, digits in (("llh", 2), ("seconds", 1)):
                for cell in cells:
                    ours = found.get(cell)
                    mine = shown(ours.mean(name), digits, ours.cut and name != "llh") if ours else "–"
                    theirs = shown(getattr(published[cell], name), digits) if cell in published else ""
                    row.append(f"{mine} / {theirs}" if theirs else mine)
            rows.append([*row, average_speed_up(found, cells)])
    return markdown(head, rows)


def speed_up(found: dict[Cell, Summary], cell: Cell, name: str = "epochs") -> tuple[float, bool]:
    """How many times less a cell costs than the standard, cold one, and whether that is a lower bound.

    Over the splits that both were run on. A base that was cut costs more than is known; a cell that was cut, too, but
    then nothing can be said.
    """
    dataset, solver, *_ = cell
    base, own = found.get((dataset, solver, "standard", False)), found.get(cell)
    if base is None or own is None or own.cut:
        return math.nan, False
    mine = {record["run"]["split"]: record[name] for record in own.records}
    pairs = [(r[name], mine[r["run"]["split"]]) for r in base.records if r["run"]["split"] in mine]
    return (sum(a for a, _ in pairs) / sum(b for _, b in pairs) if pairs else math.nan), base.cut


def average_speed_up(found: dict[Cell, Summary], cells: list[Cell]) -> str:
    """The mean over datasets."""
    factors = [speed_up(found, cell) for cell in cells]
    known = [(factor, bound) for factor, bound in factors if not math.isnan(factor)]
    if not known or all(cell[2:] == ("standard", False) for cell in cells):
        return "–"
    return shown(fmean(factor for factor, _ in known), 1, any(bound for _, bound in known)) + " ×"


def dataset_table(
    found: dict[Cell, Summary], published: dict[Cell, Published], dataset: str, truth: Summary | None
) -> str:
    """One dataset's twelve cells: scores with errors, epochs, times, speed-ups, and how far from the paper."""
    head = [
        "solver", "way", "splits", "RMSE", "paper", "LLH", "paper", "LLH, exact prediction", "epochs", "seconds",
        "solver's", "paper's seconds", "speed-up, epochs", "seconds", "paper's", "off (LLH; RMSE)",
    ]  # fmt: skip
    rows = []
    if truth:
        rows.append(["exact", "–", str(len(truth.records)), with_error(truth, "rmse", 4), "", with_error(truth, "llh"),
                     "", with_error(truth, "llh"), "–", shown(truth.mean("seconds"), 1), *[""] * 6])  # fmt: skip
    for solver in SOLVERS:
        for estimator, warm in WAYS:
            cell = (dataset, solver, estimator, warm)
            ours, theirs = found.get(cell), published.get(cell)
            if ours is None and theirs is None:
                continue
            rows.append([LABELS[solver], way(estimator, warm), *_dataset_row(found, published, cell, ours, theirs)])
    return markdown(head, rows)


def _dataset_row(
    found: dict[Cell, Summary],
    published: dict[Cell, Published],
    cell: Cell,
    ours: Summary | None,
    theirs: Published | None,
) -> list[str]:
    base = published.get((cell[0], cell[1], "standard", False))
    their_speed_up = base.seconds / theirs.seconds if base and theirs else math.nan
    their = [
        shown(theirs.rmse, 4) if theirs else "",
        shown(theirs.llh) if theirs else "",
        shown(theirs.seconds, 0) if theirs else "",
        shown(their_speed_up, 1),
    ]
    if ours is None:
        return ["not run", "–", their[0], "–", their[1], *["–"] * 4, their[2], "–", "–", their[3], ""]
    exact = [record["test_exact"]["llh"] for record in ours.finished if record["test_exact"]]
    factors = [speed_up(found, cell, name) for name in ("epochs", "seconds")]
    off = [agreement(ours, theirs, name) if theirs else None for name in ("llh", "rmse")]
    steps = "" if not ours.cut else f" ({min(record['steps'] for record in ours.records)} steps)"
    return [
        f"{len(ours.records)}{steps}",
        with_error(ours, "rmse", 4),
        their[0],
        with_error(ours, "llh"),
        their[1],
        shown(fmean(exact)) if exact else "–",
        shown(ours.mean("epochs"), 0, ours.cut),
        shown(ours.mean("seconds"), 1, ours.cut),
        shown(ours.mean("solver_seconds"), 1, ours.cut),
        their[2],
        *[shown(factor, 1, bound) for factor, bound in factors],
        their[3],
        "; ".join("–" if value is None else f"{value:.2f}" for value in off),
    ]


def outside(found: dict[Cell, Summary], published: dict[Cell, Published]) -> list[tuple[Cell, str, float]]:
    """The cells that do not agree with the paper: (cell, score, how many allowed differences)."""
    missed = []
    for cell, summary in found.items():
        for name in ("llh", "rmse"):
            value = agreement(summary, published[cell], name) if cell in published else None
            if value is not None and value > 1:
                missed.append((cell, name, value))
    return missed


def order_agrees(found: dict[Cell, Summary], published: dict[Cell, Published]) -> list[tuple[Cell, Cell, bool]]:
    """Pairs of cells of one dataset and solver whose solver times differ by over 20% in the paper, and whether our
    solver epochs are in the same order. A pair whose cheaper cell was cut says nothing and is left out."""
    pairs: list[tuple[Cell, Cell, bool]] = []
    for cheap in found:
        for dear in found:
            if cheap[:2] != dear[:2] or cheap not in published or dear not in published:
                continue
            if not published[dear].solver_seconds > 1.2 * published[cheap].solver_seconds or found[cheap].cut:
                continue
            both = {r["run"]["split"] for r in found[cheap].records} & {r["run"]["split"] for r in found[dear].records}
            if both:
                sums = [sum(r["epochs"] for r in found[c].records if r["run"]["split"] in both) for c in (cheap, dear)]
                if sums[1] > sums[0] or not found[dear].cut:
                    pairs.append((cheap, dear, sums[1] > sums[0]))
    return pairs


def by_run(records: list[Record], **match: Any) -> list[Record]:
    """Records whose run has these fields."""
    return [record for record in records if all(record["run"].get(name) == value for name, value in match.items())]
