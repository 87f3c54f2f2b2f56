"""The paper's questions, answered in numbers from the records, and where ours agree with its."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from experiments.budget_findings import accumulation, need_of_residuals
from experiments.cells import SETTINGS, SOLVERS
from experiments.published import Cell, Papers, Published
from experiments.store import Record
from experiments.summary import (
    LABELS,
    Found,
    Summary,
    by_run,
    compared,
    error_of_mean,
    is_bound,
    is_finished,
    orders,
    outside,
    paired,
    plain,
    score,
    seconds_in_order,
    speed_up,
)
from experiments.tables import markdown, shown, way
from experiments.trajectories import apart, truths

Way = tuple[str, bool]
NEAR = 0.05
COMPARED: dict[str, tuple[Way, Way]] = {
    "both cold": (("pathwise", False), ("standard", False)),
    "both warm": (("pathwise", True), ("standard", True)),
    "standard cold / pathwise warm": (("pathwise", True), ("standard", False)),
    "standard cold / standard warm": (("standard", True), ("standard", False)),
}
"""Column: the way that should be cheaper, and the one it is compared with."""


# -- epochs ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ratio:
    """How many times fewer epochs one way takes; of the first ``steps`` where a run was cut, else None."""

    value: float
    steps: int | None

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "–"
        return f"{self.value:.2f}" + (f" (in {self.steps} steps)" if self.steps else "")


def ratio(own: Summary, base: Summary) -> Ratio:
    """Epochs of ``base`` over those of ``own`` on the same splits."""
    pairs = paired(base, own, "epochs")
    if not pairs:
        return Ratio(math.nan, None)
    if not any(is_bound(a) or is_bound(b) for a, b in pairs):
        return Ratio(sum(a["epochs"] for a, _ in pairs) / sum(b["epochs"] for _, b in pairs), None)
    steps = min(record["steps"] for pair in pairs for record in pair)
    most, least = (sum(sum(pair[k]["history"]["epochs"][:steps]) for pair in pairs) for k in (0, 1))
    return Ratio(most / least, steps)


def ratios(found: Found, own: Way, base: Way) -> dict[tuple[str, str], Ratio]:
    """By dataset and solver, where both ways were run."""
    every = {}
    for dataset in [d for d in SETTINGS if not SETTINGS[d].large]:
        for solver in SOLVERS:
            mine, other = (found.get((dataset, solver, *cell)) for cell in (own, base))
            if mine and other:
                every[dataset, solver] = ratio(mine, other)
    return {key: value for key, value in every.items() if not math.isnan(value.value)}


def ratios_table(found: Found, papers: Papers) -> str:
    """Ours in epochs, the paper's in seconds of the solver."""
    columns = {name: ratios(found, *ways) for name, ways in COMPARED.items()}
    rows = []
    for dataset in [d for d in SETTINGS if not SETTINGS[d].large]:
        for solver in SOLVERS:
            if any((dataset, solver) in column for column in columns.values()):
                row = [dataset, LABELS[solver]]
                for name, (own, base) in COMPARED.items():
                    row.append(str(columns[name].get((dataset, solver), "–")))
                    their = [papers.get((dataset, solver, *cell)) for cell in (base, own)]
                    row.append(_their_ratio(*their) if papers else "")
                rows.append(row)
    head = ["set", "solver", *[text for name in COMPARED for text in (name, "the paper's")]]
    return markdown(head, rows)


def _their_ratio(base: Published | None, own: Published | None) -> str:
    if base is None or own is None or own.unfinished:
        return "–"
    return shown(base.solver_seconds / own.solver_seconds, 2, base.unfinished)


def pathwise_finding(found: Found, papers: Papers) -> str:
    cold, warm = (ratios(found, *COMPARED[name]) for name in ("both cold", "both warm"))
    if not cold and not warm:
        return "**Does the pathwise estimator cut iterations?** Not run."
    return (
        f"**Does the pathwise estimator cut iterations?** From zero it takes {_verdict(cold)}; with warm starts for "
        f"both, {_verdict(warm)}. Ratios over the first steps only can differ from those of whole runs in either "
        "direction.\n\nEpochs, standard over pathwise (and cold over warm in the last two); the paper's are of its "
        f"solver's time:\n\n{ratios_table(found, papers)}"
    )


def _verdict(factors: dict[tuple[str, str], Ratio]) -> str:
    """How many of the factors are savings: of whole runs, and of the first steps."""
    said = []
    for whole, kind in ((True, "whole runs"), (False, "more that were cut")):
        numbers = [factor.value for factor in factors.values() if (factor.steps is None) == whole]
        if numbers:
            fewer, more = sum(number > 1.05 for number in numbers), sum(number < 0.95 for number in numbers)
            said.append(f"over 5% fewer epochs in {fewer} and over 5% more in {more} of {len(numbers)} {kind}")
    return ", ".join(said) or "nothing that is known"


# -- warm starts -----------------------------------------------------------------------------------------------------
def warm_pairs(records: list[Record], **match: object) -> list[tuple[Record, Record]]:
    """Finished runs with warm starts and the same ones without."""
    done = [r for r in records if plain(r) and is_finished(r) and not r["run"]["settings"]["large"]]
    pairs = []
    for warm in by_run(done, warm=True, **match):
        same = {name: warm["run"][name] for name in ("dataset", "split", "solver", "estimator")}
        pairs += [(warm, cold) for cold in by_run(done, warm=False, **same)]
    return pairs


def warm_finding(records: list[Record]) -> str:
    """How far hyperparameters are from exact training's, and what predictions change by, over the same runs."""
    exact, rows, means, single = truths(records), [], [], []
    for dataset in SETTINGS:
        for estimator in ("standard", "pathwise"):
            pairs = warm_pairs(records, dataset=dataset, estimator=estimator)
            if not pairs or (dataset, pairs[0][0]["run"]["split"]) not in exact:
                continue
            gaps = [score(warm, "llh") - score(cold, "llh") for warm, cold in pairs]
            error = error_of_mean(gaps)
            means.append(fmean(gaps))
            single += gaps
            row = [dataset, estimator, str(len(pairs))]
            for k in (1, 0):
                away = np.concatenate([there for pair in pairs if (there := apart(pair[k], exact)) is not None])
                row.append(f"{np.mean(np.abs(away) < NEAR):.1%}; {np.sqrt(np.mean(away**2)):.3f}")
            rows.append([*row, f"{means[-1]:+.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")])
    if not rows:
        return "**Does warm starting bias?** Not run."
    head = ["set", "estimator", "pairs of runs", "within 5%; rms, cold", "warm", "LLH, warm − cold"]
    return (
        "**Does warm starting bias?** By exact prediction the test log-likelihood changes by at most "
        f"{max(map(abs, means)):.4f} in the mean of a set and estimator, by {max(map(abs, single)):.3f} in a single "
        "run. Hyperparameters move: how many at all steps are within 5% of exact training's, and the root mean square "
        "of log(own/exact), without and with warm starts, for those that exact training moves at all:\n\n"
        f"{markdown(head, rows)}{_frozen_draw(records)}"
    )


def _frozen_draw(records: list[Record]) -> str:
    """Whether it is the random features or the warm start, where both were varied."""
    exact, said = truths(records), []
    ways = {
        "2,000 features, new ones at every step": {"warm": False, "n_features": 2000, "prior": "plain"},
        "2,000, frozen": {"warm": True, "n_features": 2000, "prior": "plain"},
        "16,000, frozen": {"warm": True, "n_features": 16000, "prior": "plain"},
        "exact prior samples, frozen": {"warm": True, "prior": "exact"},
    }
    same = {"solver": "cg", "estimator": "pathwise", "budget": None, "n_probes": 64, "split": 0}
    for dataset in SETTINGS:
        runs = {label: by_run(records, dataset=dataset, **same, **match) for label, match in ways.items()}
        if all(len(own) == 1 and is_finished(own[0]) for own in runs.values()) and (dataset, 0) in exact:
            there = [(label, apart(own[0], exact)) for label, own in runs.items()]
            shares = [f"{label} {np.mean(np.abs(away) < NEAR):.1%}" for label, away in there if away is not None]
            said.append(f"{dataset}, CG: {', '.join(shares)}")
    if not said:
        return ""
    return (
        "\n\nWhere both were varied, that is the frozen draw of few random features rather than the start itself. "
        f"Within 5%, by what the pathwise probes are made of: {'; '.join(said)}."
    )


# -- all of them -----------------------------------------------------------------------------------------------------
def findings(records: list[Record], found: Found, papers: Papers) -> str:
    """One paragraph and one table a question, from the numbers."""
    return "\n\n".join(
        [
            pathwise_finding(found, papers),
            warm_finding(records),
            f"**Does progress accumulate under a budget?** {accumulation(records)}",
            f"**Is a low residual needed for good predictions?** {need_of_residuals(records, papers)}",
        ]
    )


# -- against the paper -----------------------------------------------------------------------------------------------
def checks(found: Found, papers: Papers) -> str:
    """Agreement with the paper: scores, order of costs, and the speed-up of AP on elevators."""
    if not papers:
        return "The paper's numbers were not at hand when this page was written."
    scores_there, missed = compared(found, papers), outside(found, papers)
    sets = {cell[0] for (cell, _) in scores_there}
    lines = [
        f"- Scores: of {len(scores_there)} (log-likelihoods and RMSEs of cells) {len(missed)} differ from the paper's "
        "by more than two standard errors of a mean over as many splits"
        + (f": {_outsiders(missed)} (see *Where we differ, and why*)." if missed else ".")
        + f" Cells of one set share their splits and nearly their hyperparameters, so there are some "
        f"{2 * len(sets)} independent comparisons; and with one split only what is beyond 6.3 of the paper's standard "
        "errors is outside.",
        order_line(found, papers),
    ]
    cell: Cell = ("elevators", "ap", "pathwise", True)
    ours, bound = speed_up(found, cell)
    base = papers.get(("elevators", "ap", "standard", False))
    if base and not math.isnan(ours):
        theirs = base.solver_seconds / papers[cell].solver_seconds
        lines.append(
            f"- AP on elevators, pathwise and warm against standard and cold: {shown(ours, 1, bound)} "
            f"times fewer epochs (split 0); in the paper {theirs:.0f} times less solver time, "
            f"{papers[cell].speed_up:.1f} times less time in all."
        )
    return "\n".join(lines)


def _outsiders(missed: list[tuple[Cell, str, float]]) -> str:
    """Cells by dataset, estimator and score, with the distances."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (dataset, solver, estimator, warm), name, value in missed:
        groups[dataset, estimator, name].append(f"{LABELS[solver]} {'warm' if warm else 'cold'} {value:.2f}")
    return "; ".join(
        f"{dataset} {estimator}, {name.upper()}, distance {', '.join(cells)}"
        for (dataset, estimator, name), cells in groups.items()
    )


def order_line(found: Found, papers: Papers) -> str:
    pairs, across = orders(found, papers), orders(found, papers, across=True)
    wrong = "".join(
        f"; {pair.dear[0]} {LABELS[pair.dear[1]]}: {way(*pair.dear[2:])} is not dearer than {way(*pair.cheap[2:])}"
        for pair in pairs
        if not pair.good
    )
    short = sum(not pair.whole for pair in pairs)
    sizes = [
        ratio(found[pair.cheap], found[pair.dear]).value
        / (papers[pair.dear].solver_seconds / papers[pair.cheap].solver_seconds)
        for pair in pairs
        if pair.whole and not papers[pair.dear].unfinished and not found[pair.dear].bound
    ]
    others = [pair for pair in across if not pair.good]
    solvers = Counter(f"{LABELS[pair.cheap[1]]} below {LABELS[pair.dear[1]]}" for pair in others)
    rest = (
        f" Of the other {len(others)} (in the paper {', '.join(f'{k} {count} times' for k, count in solvers.items())}) "
        f"{sum(seconds_in_order(found, pair) for pair in others)} are in the paper's order by our solver's seconds."
    )
    size = f" Of whole runs our factor is {median(sizes):.2f} times the paper's in the median." if sizes else ""
    return (
        "- Order of two cells of one dataset and solver by epochs, where the paper's solver times differ by more than "
        f"20%: as in the paper for {sum(pair.good for pair in pairs)} of {len(pairs)} pairs ({short} of them over the "
        f"steps that both have, because a run was cut){wrong}. Between cells of two solvers, an epoch of which takes "
        f"different times, for {sum(pair.good for pair in across)} of {len(across)}.{rest if others else ''}{size}"
    )
