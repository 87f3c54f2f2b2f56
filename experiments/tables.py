"""The paper's tables from the store, ours beside the published ones, and whether they agree.

Two means over splits agree when they differ by at most two standard errors of a mean over as many splits as were run:
the paper's ± are standard errors over ten splits, so over k of them 2 · s.e. · √(10/k).

A run that was cut, that failed, or in which a solve ended short of the tolerance (where there is no budget) has cost
less than it should have: its epochs and seconds are lower bounds, shown as "> …".
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments.cells import ESTIMATORS, SETTINGS, SOLVERS
from experiments.store import Record

Cell = tuple[str, str, str, bool]  # dataset, solver, estimator, warm
LABELS = {"cg": "CG", "ap": "AP", "sgd": "SGD"}
WAYS = [(estimator, warm) for warm in (False, True) for estimator in ESTIMATORS]  # the order of the paper's rows
SCORES = ("llh", "rmse")


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
    residual_probes: float = math.nan
    unfinished: bool = False  # the times are lower bounds


def read_published(path: Path | None) -> dict[Cell, Published]:
    """The paper's rows by cell; none without a file."""
    if path is None or not path.exists():
        return {}
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            names = ("test_llh", "test_llh_stderr", "test_rmse", "test_rmse_stderr")
            times = [_seconds(row.get(name, ""), row["time_unit"]) for name in ("total_time", "solver_time")]
            residuals = [_number(row.get(name, "")) for name in ("residual_mean", "residual_probes")]
            cell = (row["dataset"], row["solver"], row["estimator"], row["warm_start"] == "1")
            scores = [_number(row[name]) for name in names]
            found[cell] = Published(*scores, *times, *residuals, unfinished=row["total_time"].startswith(">"))
    return found


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _seconds(text: str, unit: str) -> float:
    """Of "4.8" minutes, or of ">24h"."""
    if text.startswith(">"):
        text, unit = text[1:].removesuffix("h"), "h"
    return _number(text) * {"min": 60.0, "h": 3600.0}[unit]


def cell_of(record: Record) -> Cell:
    run = record["run"]
    return run["dataset"], run["solver"], run["estimator"], run["warm"]


def plain(record: Record) -> bool:
    """Whether a record is a cell of table 1 or of the large tables: nothing beside them was changed."""
    run = record["run"]
    budget = 10.0 if run["settings"]["large"] else None
    return (run["n_probes"], run["n_features"], run["prior"], run["budget"]) == (64, 2000, "plain", budget)


def is_bound(record: Record) -> bool:
    """Whether what the run cost is only a lower bound."""
    return record["outcome"] != "finished" or (record["run"]["budget"] is None and not record["converged"])


@dataclass(frozen=True)
class Summary:
    """A cell over its splits."""

    records: tuple[Record, ...]

    @property
    def finished(self) -> list[Record]:
        return [record for record in self.records if record["outcome"] == "finished"]

    def values(self, name: str) -> list[float]:
        """Of the finished runs for scores; of all for costs; residuals are means over the steps of a run."""
        if name in SCORES:
            return [record["test"][name] for record in self.finished]
        if name.startswith("residual"):
            return [fmean(record["history"][name]) for record in self.finished]
        return [record[name] for record in self.records]

    def mean(self, name: str) -> float:
        values = self.values(name)
        return fmean(values) if values else math.nan

    def error(self, name: str) -> float:
        """Standard error of the mean; NaN for one split."""
        values = self.values(name)
        return stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan

    @property
    def bound(self) -> bool:
        return any(is_bound(record) for record in self.records)


def summaries(records: list[Record]) -> dict[Cell, Summary]:
    """The plain cells, each over its splits."""
    groups: dict[Cell, list[Record]] = defaultdict(list)
    for record in records:
        if plain(record):
            groups[cell_of(record)].append(record)
    return {cell: Summary(tuple(group)) for cell, group in groups.items()}


# -- comparing -------------------------------------------------------------------------------------------------------
def agreement(summary: Summary, published: Published, name: str) -> float | None:
    """|ours − theirs| in units of the allowed difference: at most 1 agrees. None where there is nothing to compare."""
    k = len(summary.finished)
    theirs, error = getattr(published, name), getattr(published, f"{name}_error")
    if k == 0 or math.isnan(theirs) or math.isnan(error):
        return None
    return abs(summary.mean(name) - theirs) / (2 * error * (10 / k) ** 0.5)


def compared(found: dict[Cell, Summary], published: dict[Cell, Published]) -> dict[tuple[Cell, str], float]:
    """All agreements that there are, by cell and score."""
    every = {
        (cell, name): agreement(summary, published[cell], name)
        for cell, summary in found.items()
        if cell in published
        for name in SCORES
    }
    return {key: value for key, value in every.items() if value is not None}


def outside(found: dict[Cell, Summary], published: dict[Cell, Published]) -> list[tuple[Cell, str, float]]:
    """What does not agree with the paper: (cell, score, how many allowed differences)."""
    every = compared(found, published).items()
    return [(cell, name, value) for (cell, name), value in every if not value <= 1]  # NaN does not agree


def paired(one: Summary, other: Summary, name: str) -> list[tuple[Record, Record]]:
    """Records of the same split; for seconds, of the same device, too."""
    others = {record["run"]["split"]: record for record in other.records}
    pairs = [(r, others[r["run"]["split"]]) for r in one.records if r["run"]["split"] in others]
    same = [(a, b) for a, b in pairs if a["machine"]["device"] == b["machine"]["device"]]
    return same if name.endswith("seconds") else pairs


def speed_up(
    found: dict[Cell, Summary], cell: Cell, name: str = "epochs", base: tuple[str, bool] = ("standard", False)
) -> tuple[float, bool]:
    """How many times less a cell costs than ``base``, and whether that is a lower bound: NaN where nothing is known.

    Over the splits that both were run on. A base that was cut costs more than is known; of a cell that was cut nothing
    can be said.
    """
    whole, own = found.get((cell[0], cell[1], *base)), found.get(cell)
    if whole is None or own is None:
        return math.nan, False
    pairs = [(a, b) for a, b in paired(whole, own, name) if not is_bound(b)]
    if not pairs:
        return math.nan, False
    return sum(a[name] for a, _ in pairs) / sum(b[name] for _, b in pairs), any(is_bound(a) for a, _ in pairs)


def order_agrees(found: dict[Cell, Summary], published: dict[Cell, Published]) -> list[tuple[Cell, Cell, bool]]:
    """Pairs of cells of one dataset and solver whose solver times differ by over 20% in the paper, and whether our
    solver epochs are in the same order. A pair about which cut runs leave a doubt is left out."""
    pairs: list[tuple[Cell, Cell, bool]] = []
    for cheap in found:
        for dear in found:
            if cheap[:2] != dear[:2] or cheap not in published or dear not in published:
                continue
            theirs = published[cheap], published[dear]
            if theirs[0].unfinished or not theirs[1].solver_seconds > 1.2 * theirs[0].solver_seconds:
                continue
            known = [(a, b) for a, b in paired(found[cheap], found[dear], "epochs") if not is_bound(a)]
            if known:
                low, high = (sum(pair[k]["epochs"] for pair in known) for k in (0, 1))
                if high > low or not any(is_bound(b) for _, b in known):
                    pairs.append((cheap, dear, high > low))
    return pairs


def by_run(records: list[Record], **match: Any) -> list[Record]:
    """Records whose run has these fields."""
    return [record for record in records if all(record["run"].get(name) == value for name, value in match.items())]


# -- Markdown --------------------------------------------------------------------------------------------------------
def markdown(head: list[str], rows: list[list[str]]) -> str:
    left = [":--" if k < 2 else "--:" for k in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, left, *rows])


def shown(value: float, digits: int = 3, bound: bool = False, error: float = math.nan) -> str:
    if math.isnan(value):
        return "–"
    return ("> " if bound else "") + f"{value:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def ours(summary: Summary | None, name: str, digits: int = 3) -> str:
    """A mean with its error, as a bound where it is one."""
    if summary is None:
        return "–"
    cost = name not in SCORES and not name.startswith("residual")
    return shown(summary.mean(name), digits, cost and summary.bound, summary.error(name))


def way(estimator: str, warm: bool) -> str:
    return f"{estimator}, {'warm' if warm else 'cold'}"


def main_table(found: dict[Cell, Summary], published: dict[Cell, Published], datasets: list[str]) -> str:
    """Table 1: test log-likelihoods and total times, ours / the paper's, and the mean speed-ups over the datasets."""
    head = ["solver", "way", *[f"LLH {d}" for d in datasets], *[f"s {d}" for d in datasets]]
    head += ["mean speed-up, epochs", "seconds", "paper's"]
    rows = []
    for solver in SOLVERS:
        for estimator, warm in WAYS:
            row = [LABELS[solver], way(estimator, warm)]
            cells = [(dataset, solver, estimator, warm) for dataset in datasets]
            for name, digits in (("llh", 2), ("seconds", 1)):
                for cell in cells:
                    own, their = found.get(cell), published.get(cell)
                    mine = shown(own.mean(name), digits, own.bound and name != "llh") if own else "–"
                    late = their is not None and their.unfinished and name != "llh"
                    row.append(f"{mine} / {shown(getattr(their, name), digits, late)}" if their else mine)
            is_base = (estimator, warm) == ("standard", False)
            means = ["–"] * 3 if is_base else [
                mean_of([speed_up(found, cell) for cell in cells]),
                mean_of([speed_up(found, cell, "seconds") for cell in cells]),
                mean_of([their_speed_up(published, cell) for cell in cells]),
            ]  # fmt: skip
            rows.append([*row, *means])
    return markdown(head, rows)


def their_speed_up(published: dict[Cell, Published], cell: Cell) -> tuple[float, bool]:
    """The paper's, in seconds of training, and whether it is a lower bound."""
    base, own = published.get((*cell[:2], "standard", False)), published.get(cell)
    if base is None or own is None:
        return math.nan, False
    return base.seconds / own.seconds, base.unfinished


def mean_of(factors: list[tuple[float, bool]]) -> str:
    """The mean of the factors that are known, and of how many datasets that is where some are not."""
    known = [(factor, bound) for factor, bound in factors if not math.isnan(factor)]
    if not known:
        return "–"
    some = f" (of {len(known)})" if len(known) < len(factors) else ""
    return shown(fmean(factor for factor, _ in known), 1, any(bound for _, bound in known)) + f" ×{some}"


def dataset_table(
    found: dict[Cell, Summary], published: dict[Cell, Published], dataset: str, truth: Summary | None
) -> str:
    """One dataset's twelve cells: scores, epochs, times and speed-ups with errors, beside the paper's."""
    head = [
        "solver", "way", "splits", "RMSE", "paper", "LLH", "paper", "LLH less exact's; at its θ", "epochs", "seconds",
        "solver's", "paper's seconds", "solver's", "speed-up, epochs", "seconds", "paper's", "off (LLH; RMSE)",
    ]  # fmt: skip
    rows = []
    if truth:
        rows.append(["exact", "–", str(len(truth.records)), ours(truth, "rmse", 4), "", ours(truth, "llh"),
                     "", "", "–", shown(truth.mean("seconds"), 1), *[""] * 7])  # fmt: skip
    for solver in SOLVERS:
        for estimator, warm in WAYS:
            cell = (dataset, solver, estimator, warm)
            own, their = found.get(cell), published.get(cell)
            if own is None and their is None:
                continue
            late = their is not None and their.unfinished
            rows.append([
                LABELS[solver], way(estimator, warm), splits_of(own),
                ours(own, "rmse", 4), paper(their, "rmse", 4), ours(own, "llh"), paper(their, "llh", 3),
                less_exact(own, truth),
                ours(own, "epochs", 0), ours(own, "seconds", 1), ours(own, "solver_seconds", 1),
                shown(their.seconds, 0, late) if their else "", shown(their.solver_seconds, 0, late) if their else "",
                *[shown(*_flip(speed_up(found, cell, name))) for name in ("epochs", "seconds")],
                shown(*_flip(their_speed_up(published, cell))), off(own, their),
            ])  # fmt: skip
    return markdown(head, rows)


def less_exact(summary: Summary | None, truth: Summary | None) -> str:
    """Log-likelihood less that of exact training on the same splits: from the samples, and by exact prediction at the
    trained hyperparameters, which is what training alone has cost."""
    if summary is None or truth is None:
        return "–"
    pairs = [(a, b) for a, b in paired(summary, truth, "llh") if a["outcome"] == "finished"]
    said = []
    for kind in ("test", "test_exact"):
        gaps = [a[kind]["llh"] - b["test"]["llh"] for a, b in pairs if a[kind]]
        said.append(f"{fmean(gaps):+.3f}" if gaps else "–")
    return "; ".join(said)


def large_table(found: dict[Cell, Summary], published: dict[Cell, Published], dataset: str) -> str:
    """One large set's six cells: scores, time, and residuals averaged over the steps, beside the paper's."""
    head = [
        "solver", "way", "splits", "steps", "RMSE", "paper", "LLH", "paper", "residual, mean", "paper",
        "residual, probes", "paper", "minutes", "paper's", "off (LLH; RMSE)",
    ]  # fmt: skip
    rows = []
    for solver in SOLVERS:
        for warm in (False, True):
            cell = (dataset, solver, "pathwise", warm)
            own, their = found.get(cell), published.get(cell)
            if own is None and their is None:
                continue
            minutes = shown(own.mean("seconds") / 60, 1, own.bound) if own else "–"
            rows.append([
                LABELS[solver], way("pathwise", warm), splits_of(own),
                str(min(record["steps"] for record in own.records)) if own else "–",
                ours(own, "rmse", 4), paper(their, "rmse", 4), ours(own, "llh"), paper(their, "llh", 3),
                ours(own, "residual_mean"), paper(their, "residual_mean", 3),
                ours(own, "residual_probes"), paper(their, "residual_probes", 3),
                minutes, shown(their.seconds / 60, 0) if their else "", off(own, their),
            ])  # fmt: skip
    return markdown(head, rows)


def table_of(found: dict[Cell, Summary], published: dict[Cell, Published], dataset: str, truth: Summary | None) -> str:
    """The table of a dataset, small or large."""
    if SETTINGS[dataset].large:
        return large_table(found, published, dataset)
    return dataset_table(found, published, dataset, truth)


def splits_of(summary: Summary | None) -> str:
    """How many splits, and how far runs came that did not end."""
    if summary is None:
        return "not run"
    short = [record["steps"] for record in summary.records if record["outcome"] != "finished"]
    return f"{len(summary.records)}" + (f" ({min(short)} steps)" if short else "")


def paper(published: Published | None, name: str, digits: int) -> str:
    if published is None:
        return ""
    return shown(getattr(published, name), digits, error=getattr(published, f"{name}_error", math.nan))


def off(summary: Summary | None, published: Published | None) -> str:
    """Distances from the paper in allowed differences."""
    if summary is None or published is None:
        return ""
    values = [agreement(summary, published, name) for name in SCORES]
    return "; ".join("–" if value is None else f"{value:.2f}" for value in values)


def _flip(factor: tuple[float, bool]) -> tuple[float, int, bool]:
    return factor[0], 1, factor[1]
