"""The paper's questions, answered in numbers from the records, and where ours agree with its."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np

from experiments.budget_findings import accumulation, need_of_residuals
from experiments.cells import SETTINGS, SOLVERS
from experiments.published import Cell, Papers
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
    speed_up,
)
from experiments.tables import shown, way
from experiments.trajectories import apart, truths

Way = tuple[str, bool]
NEAR = 0.05


# -- epochs ----------------------------------------------------------------------------------------------------------
def ratio(own: Summary, base: Summary) -> tuple[float, int | None]:
    """Epochs of ``base`` over those of ``own`` on the same splits; with the number of steps that both have where one
    of them was cut, and then over those steps."""
    pairs = paired(base, own, "epochs")
    if not pairs:
        return math.nan, None
    if not any(is_bound(a) or is_bound(b) for a, b in pairs):
        return sum(a["epochs"] for a, _ in pairs) / sum(b["epochs"] for _, b in pairs), None
    steps = min(record["steps"] for pair in pairs for record in pair)
    most, least = (sum(sum(pair[k]["history"]["epochs"][:steps]) for pair in pairs) for k in (0, 1))
    return most / least, steps


def ratios(found: Found, own: Way, base: Way) -> tuple[str, list[float]]:
    """How many times fewer epochs one way takes than another: in words by dataset and solver, and the numbers."""
    said, numbers = [], []
    for dataset in [d for d in SETTINGS if not SETTINGS[d].large]:
        for solver in SOLVERS:
            mine, other = (found.get((dataset, solver, *cell)) for cell in (own, base))
            factor, steps = ratio(mine, other) if mine and other else (math.nan, None)
            if not math.isnan(factor):
                numbers.append(factor)
                said.append(f"{dataset} {LABELS[solver]} {factor:.1f}" + (f" (in {steps} steps)" if steps else ""))
    return "; ".join(said) or "not run", numbers


def pathwise_finding(found: Found) -> str:
    cold, cold_numbers = ratios(found, ("pathwise", False), ("standard", False))
    warm, warm_numbers = ratios(found, ("pathwise", True), ("standard", True))
    both, _ = ratios(found, ("pathwise", True), ("standard", False))
    return (
        f"**Does the pathwise estimator cut iterations?** From zero it takes {_verdict(cold_numbers)}; with warm "
        f"starts for both, {_verdict(warm_numbers)}. Epochs of the standard estimator over those of the pathwise one, "
        f"both from zero: {cold}. Both with warm starts: {warm}. Both changes at once, against the standard estimator "
        f"from zero: {both}."
    )


def _verdict(numbers: list[float]) -> str:
    """How many of the factors are savings."""
    if not numbers:
        return "nothing that is known"
    fewer = sum(number > 1.05 for number in numbers)
    more = sum(number < 0.95 for number in numbers)
    return f"over 5% fewer epochs in {fewer} of {len(numbers)} cases and over 5% more in {more}"


# -- warm starts -----------------------------------------------------------------------------------------------------
def warm_pairs(records: list[Record], **match: object) -> list[tuple[Record, Record]]:
    """Finished runs with warm starts and the same ones without."""
    done = [r for r in records if plain(r) and is_finished(r) and not r["run"]["settings"]["large"]]
    pairs = []
    for warm in by_run(done, warm=True, **match):
        same = {name: warm["run"][name] for name in ("dataset", "split", "solver", "estimator")}
        pairs += [(warm, cold) for cold in by_run(done, warm=False, **same)]
    return pairs


def warm_bias(records: list[Record]) -> tuple[str, list[float]]:
    """Test log-likelihoods with warm starts less those without, by dataset and estimator: in words, and the means."""
    said, means = [], []
    for dataset in SETTINGS:
        for estimator in ("standard", "pathwise"):
            gaps = []
            for warm, cold in warm_pairs(records, dataset=dataset, estimator=estimator):
                exact = warm["test_exact"] and cold["test_exact"]  # other samples, other scores: not what is asked
                name = "test_exact" if exact else "test"
                gaps.append(warm[name]["llh"] - cold[name]["llh"])
            if gaps:
                error = error_of_mean(gaps)
                spread = "" if math.isnan(error) else f" ± {error:.4f}"
                means.append(fmean(gaps))
                said.append(f"{dataset} {estimator} {means[-1]:+.4f}{spread} ({len(gaps)})")
    return "; ".join(said) or "not run", means


def warm_distances(records: list[Record]) -> str:
    """How far hyperparameters are from exact training's, cold and warm, over the same runs."""
    exact, said = truths(records), []
    for estimator in ("standard", "pathwise"):
        pairs = [
            (apart(warm, exact), apart(cold, exact)) for warm, cold in warm_pairs(records, estimator=estimator)
        ]  # fmt: skip
        there = [(a, b) for a, b in pairs if a is not None and b is not None]
        if there:
            warm, cold = (np.concatenate([pair[k] for pair in there]) for k in (0, 1))
            shares = [f"{np.mean(np.abs(values) < NEAR):.1%}" for values in (cold, warm)]
            sizes = [f"{np.sqrt(np.mean(values**2)):.3f}" for values in (cold, warm)]
            said.append(
                f"{estimator}: {shares[0]} → {shares[1]} within {NEAR} of exact training's, root mean square "
                f"{sizes[0]} → {sizes[1]} ({len(there)} runs)"
            )
    return "; ".join(said)


def warm_finding(records: list[Record], found: Found) -> str:
    saved, _ = ratios(found, ("standard", True), ("standard", False))
    bias, means = warm_bias(records)
    lead = ""
    if means:
        lead = f"The test log-likelihood changes by {max(means, key=abs):+.4f} where it changes most. "
    return (
        f"**Does warm starting bias?** {lead}Hyperparameters at all steps, without → with warm starts: "
        f"{warm_distances(records) or 'not run'}. Test log-likelihood with warm starts less that without, same split, "
        f"by exact prediction where there is one, with its standard error (number of runs): {bias}. What it spares, "
        f"epochs of cold over warm starts, standard estimator: {saved}."
    )


# -- all of them -----------------------------------------------------------------------------------------------------
def findings(records: list[Record], found: Found, papers: Papers) -> str:
    """One paragraph a question, from the numbers."""
    return "\n\n".join(
        [
            pathwise_finding(found),
            warm_finding(records, found),
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
    scores = "".join(
        f"; {dataset} {LABELS[solver]} {way(estimator, warm)}: {name.upper()} {value:.1f} times the allowed difference"
        for (dataset, solver, estimator, warm), name, value in missed
    )
    lines = [
        f"- Scores: of {len(scores_there)} (log-likelihoods and RMSEs of cells) {len(missed)} differ from the paper's "
        f"by more than two standard errors of a mean over as many splits{scores}"
        + (" (see *Where we differ, and why*)." if missed else "."),
        order_line(found, papers),
    ]
    cell: Cell = ("elevators", "ap", "pathwise", True)
    ours, bound = speed_up(found, cell)
    base = papers.get(("elevators", "ap", "standard", False))
    if base and not math.isnan(ours):
        theirs = base.solver_seconds / papers[cell].solver_seconds
        lines.append(
            f"- AP on elevators, pathwise and warm against standard and cold: {shown(ours, 1, bound)} "
            f"times fewer epochs; in the paper {theirs:.0f} times less solver time, {papers[cell].speed_up:.1f} times "
            "less time in all."
        )
    return "\n".join(lines)


def order_line(found: Found, papers: Papers) -> str:
    pairs, across = orders(found, papers), orders(found, papers, across=True)
    wrong = "".join(
        f"; {pair.dear[0]} {LABELS[pair.dear[1]]}: {way(*pair.dear[2:])} is not dearer than {way(*pair.cheap[2:])}"
        for pair in pairs
        if not pair.good
    )
    short = sum(not pair.whole for pair in pairs)
    return (
        "- Order of two cells of one dataset and solver by epochs, where the paper's solver times differ by more than "
        f"20%: as in the paper for {sum(pair.good for pair in pairs)} of {len(pairs)} pairs ({short} of them over the "
        f"steps that both have, because a run was cut){wrong}. Between cells of two solvers, an epoch of which takes "
        f"different times, for {sum(pair.good for pair in across)} of {len(across)}."
    )
