"""The paper's tables in Markdown, ours beside the published ones; a lower bound is shown as "> …"."""

from __future__ import annotations

import math
import re
from statistics import fmean

from experiments.cells import SETTINGS, SOLVERS
from experiments.published import Cell, Papers, Published
from experiments.summary import LABELS, SCORES, WAYS, Found, Summary, agreement, error_of_mean, less_exact, speed_up


def signed(text: str) -> str:
    """The text with a minus sign before its negative numbers, where Python writes a hyphen."""
    return re.sub(r"(?<![\w`-])-(?=\d)", "−", text)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    left = [":--" if k < 2 else "--:" for k in range(len(head))]
    cells = [[signed(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, left, *cells])


def shown(value: float, digits: int = 3, bound: bool = False, error: float = math.nan) -> str:
    """A number; a bound is rounded down and has no error."""
    if math.isnan(value):
        return "–"
    if bound:
        return f"> {math.floor(value * 10**digits) / 10**digits:,.{digits}f}"
    return f"{value:,.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def ours(summary: Summary | None, name: str, digits: int = 3) -> str:
    """A mean with its error, as a bound where it is one."""
    if summary is None:
        return "–"
    cost = name.removeprefix("sample_") not in SCORES and not name.startswith("residual")
    return shown(summary.mean(name), digits, cost and summary.bound, summary.error(name))


def paper(published: Published | None, name: str, digits: int) -> str:
    if published is None:
        return ""
    return shown(getattr(published, name), digits, error=getattr(published, f"{name}_error", math.nan))


def way(estimator: str, warm: bool) -> str:
    return f"{estimator}, {'warm' if warm else 'cold'}"


# -- table 1 ---------------------------------------------------------------------------------------------------------
def main_table(found: Found, published: Papers, datasets: list[str]) -> str:
    """Test log-likelihoods and total times, ours / the paper's, and the mean speed-ups over the datasets."""
    head = ["solver", "estimator, start", *[f"LLH {d}" for d in datasets], *[f"s {d}" for d in datasets]]
    head += ["speed-up: epochs", "solver's seconds", "the paper's there", "on five sets"]
    rows = []
    for solver in SOLVERS:
        for estimator, warm in WAYS:
            row = [LABELS[solver], way(estimator, warm)]
            cells: list[Cell] = [(dataset, solver, estimator, warm) for dataset in datasets]
            for name, digits in (("llh", 2), ("seconds", 1)):
                row += [_beside(found, published, cell, name, digits) for cell in cells]
            if (estimator, warm) == ("standard", False):
                rows.append([*row, *["–"] * 4])
                continue
            known = [cell for cell in cells if not math.isnan(speed_up(found, cell)[0])]
            rows.append([
                *row,
                mean_of([speed_up(found, cell) for cell in known]),
                mean_of([speed_up(found, cell, "solver_seconds") for cell in known]),
                mean_of([their_speed_up(published, cell) for cell in known]),
                mean_of([their_speed_up(published, cell) for cell in published if cell[1:] == cells[0][1:]]),
            ])  # fmt: skip
    return markdown(head, rows)


def _beside(found: Found, published: Papers, cell: Cell, name: str, digits: int) -> str:
    """Ours / the paper's; with the number of splits where other cells of the dataset have more."""
    own, their, is_cost = found.get(cell), published.get(cell), name not in SCORES
    mine = "–"
    if own and own.values(name):
        most = max(len(summary.values(name)) for other, summary in found.items() if other[0] == cell[0])
        few = f" ({len(own.values(name))})" if len(own.values(name)) < most else ""
        mine = shown(own.mean(name), digits, own.bound and is_cost) + few
    return f"{mine} / {shown(getattr(their, name), digits, their.unfinished and is_cost)}" if their else mine


def their_speed_up(published: Papers, cell: Cell) -> tuple[float, bool]:
    """The paper's, in seconds of training, and whether it is a lower bound."""
    base, own = published.get((*cell[:2], "standard", False)), published.get(cell)
    if base is None or own is None:
        return math.nan, False
    return own.speed_up, base.unfinished


def mean_of(factors: list[tuple[float, bool]]) -> str:
    """The mean of the factors that are known, and of how many datasets that is."""
    known = [(factor, bound) for factor, bound in factors if not math.isnan(factor)]
    if not known:
        return "–"
    return shown(fmean(factor for factor, _ in known), 1, any(bound for _, bound in known)) + f" ({len(known)})"


# -- one dataset -----------------------------------------------------------------------------------------------------
def table_of(found: Found, published: Papers, dataset: str, truth: Summary | None) -> str:
    """The tables of a dataset, small or large."""
    if SETTINGS[dataset].large:
        return large_table(found, published, dataset)
    scores, costs = scores_table(found, published, dataset, truth), costs_table(found, published, dataset)
    return f"{scores}\n\n{costs}"


def _cells_of(found: Found, published: Papers, dataset: str) -> list[Cell]:
    """Those that we or the paper have, in the paper's order."""
    every = [(dataset, solver, estimator, warm) for solver in SOLVERS for estimator, warm in WAYS]
    return [cell for cell in every if cell in found or cell in published]


def scores_table(found: Found, published: Papers, dataset: str, truth: Summary | None) -> str:
    """Twelve cells: scores beside the paper's, and less those of exact training on the same splits."""
    head = [
        "solver", "estimator, start", "splits", "RMSE", "paper's RMSE", "LLH", "paper's LLH", "distance (LLH; RMSE)",
        "LLH − exact training's", "RMSE − exact training's", "LLH from samples", "− exact training's",
    ]  # fmt: skip
    rows = []
    if truth:
        rows.append(["exact", "–", splits_of(truth), ours(truth, "rmse", 4), "", ours(truth, "llh"), *[""] * 6])
    for cell in _cells_of(found, published, dataset):
        own, their = found.get(cell), published.get(cell)
        rows.append([
            LABELS[cell[1]], way(*cell[2:]), splits_of(own),
            ours(own, "rmse", 4), paper(their, "rmse", 4), ours(own, "llh"), paper(their, "llh", 3),
            off(own, their, SCORES), gap(own, truth, "llh", 3), gap(own, truth, "rmse", 4),
            ours(own, "sample_llh"), gap(own, truth, "llh", 3, samples=True),
        ])  # fmt: skip
    return markdown(head, rows)


def costs_table(found: Found, published: Papers, dataset: str) -> str:
    """Twelve cells: epochs, seconds, and speed-ups over the standard estimator without warm starts."""
    head = [
        "solver", "estimator, start", "epochs", "seconds", "solver's seconds", "paper's seconds", "paper's solver's",
        "speed-up: epochs", "seconds", "solver's seconds", "paper's",
    ]  # fmt: skip
    rows = []
    for cell in _cells_of(found, published, dataset):
        own, their = found.get(cell), published.get(cell)
        late = their is not None and their.unfinished
        theirs, bound = their_speed_up(published, cell)
        rows.append([
            LABELS[cell[1]], way(*cell[2:]),
            ours(own, "epochs", 0), ours(own, "seconds", 1), ours(own, "solver_seconds", 1),
            shown(their.seconds, 0, late) if their else "", shown(their.solver_seconds, 0, late) if their else "",
            *[_factor(speed_up(found, cell, name)) for name in ("epochs", "seconds", "solver_seconds")],
            shown(theirs, 1, bound),
        ])  # fmt: skip
    return markdown(head, rows)


def large_table(found: Found, published: Papers, dataset: str) -> str:
    """One large set's six cells: scores, time, and residuals averaged over the steps, beside the paper's."""
    head = [
        "solver", "estimator, start", "splits", "steps", "RMSE", "paper's RMSE", "LLH", "paper's LLH",
        "residual of the mean's system", "paper's", "of the probes'", "paper's", "distance (LLH; RMSE; residuals)",
        "minutes", "paper's minutes",
    ]  # fmt: skip
    rows = []
    for cell in _cells_of(found, published, dataset):
        own, their = found.get(cell), published.get(cell)
        rows.append([
            LABELS[cell[1]], way(*cell[2:]), splits_of(own),
            str(min(record["steps"] for record in own.records)) if own else "–",
            so_far(own, "rmse", 4), paper(their, "rmse", 4), so_far(own, "llh"), paper(their, "llh", 3),
            so_far(own, "residual_mean"), paper(their, "residual_mean", 3),
            so_far(own, "residual_probes"), paper(their, "residual_probes", 3),
            off(own, their, (*SCORES, "residual_mean", "residual_probes")),
            shown(own.mean("seconds") / 60, 1, own.bound) if own else "–",
            shown(their.seconds / 60, 0) if their else "",
        ])  # fmt: skip
    cut = any(not own.finished for cell, own in found.items() if cell[0] == dataset)
    note = "Scores are of the model after one more solve at the last hyperparameters, residuals means over the steps."
    if cut:
        note += " In brackets: of a run that was cut, as far as it came."
    return f"{note}\n\n{markdown(head, rows)}"


def so_far(summary: Summary | None, name: str, digits: int = 3) -> str:
    """Ours, or in brackets what a run that was cut had reached."""
    if summary is None or summary.finished:
        return ours(summary, name, digits)
    history = summary.records[0]["history"]
    value = fmean(history[name]) if name.startswith("residual") else history[f"test_{name}"][-1]
    return f"({value:.{digits}f})"


def splits_of(summary: Summary | None) -> str:
    """How many splits ended, and of those that did not, the least steps that they came to."""
    if summary is None:
        return "not run"
    short = [record["steps"] for record in summary.records if record["outcome"] != "finished"]
    said = [f"{len(summary.finished)}"] if summary.finished else []
    return " + ".join([*said, *([f"{len(short)} cut at step {min(short)}"] if short else [])])


def off(summary: Summary | None, published: Published | None, names: tuple[str, ...]) -> str:
    """Distances from the paper in allowed differences."""
    if summary is None or published is None:
        return ""
    values = [agreement(summary, published, name) for name in names]
    return "; ".join("–" if value is None else f"{value:.2f}" for value in values)


def gap(own: Summary | None, truth: Summary | None, name: str, digits: int, *, samples: bool = False) -> str:
    """The mean difference from exact training on the same splits, with its standard error; and of how many splits where
    exact training has more."""
    gaps = less_exact(own, truth, name, samples=samples) if own and truth else []
    if not gaps or truth is None:
        return "–"
    error = error_of_mean(gaps)
    few = f" ({len(gaps)})" if len(gaps) < len(truth.finished) else ""
    return f"{fmean(gaps):+.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}") + few


def _factor(factor: tuple[float, bool]) -> str:
    return shown(factor[0], 1, factor[1])
