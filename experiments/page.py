"""Write the results page: tables and figures from the store, ours beside the published ones, and what follows.

    python -m experiments.page --store experiments/store --paper paper_results.csv --out docs/results.md

Nothing is computed here but means and ratios: whatever the page says is in the store. ``--paper`` names a CSV file with
the paper's tables (columns ``dataset, solver, estimator, warm_start, test_llh, …``); without it that half stays empty.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from experiments import figures
from experiments.cells import SETTINGS, SOLVERS
from experiments.spectrum import spectrum_table
from experiments.store import Record, Store
from experiments.tables import (
    LABELS,
    Cell,
    Published,
    Summary,
    by_run,
    compared,
    main_table,
    order_agrees,
    outside,
    plain,
    read_published,
    shown,
    speed_up,
    summaries,
    table_of,
    way,
)

Found = dict[Cell, Summary]
Papers = dict[Cell, Published]

HEAD = (
    "The paper's tables and figures, trained again by this library. This page is written by a program from the records "
    "in `experiments/store`; `python -m experiments.run --help` says how to add to them. Scores are in standardised "
    "units."
)


def all_figures(store: Store, records: list[Record]) -> Iterator[tuple[str, str, Figure | None]]:
    """(file name, caption, figure) in the order of the paper, each drawn when it is asked for."""
    distances, cuts = (by_run(list(store.records(kind)), split=0) for kind in ("distances", "section"))
    caption = (
        "Training time relative to the standard estimator without warm start; hatched: the solver. Runs that were cut "
        "have no bar, and where the standard one was cut the others' bars are upper bounds."
    )
    yield "runtimes", caption, figures.runtimes(records)
    caption = (
        "How far solves start from their solution along exact training; AP's iterations; the largest eigenvalue of the "
        "inverse and the noise precision behind them."
    )
    yield "distances", caption, figures.starting_distances(distances, records)
    caption = "The number of probe vectors, which are the posterior samples."
    yield "probes", caption, figures.probe_counts(records)
    caption = "Hyperparameters at all steps less those of exact training; the outermost bars hold whatever is beyond."
    yield "differences", caption, figures.differences(records)
    yield "features", "Random features against the deviation from exact training.", figures.feature_counts(records)
    caption = "The two length scales on which random features deviate most, and what exact prior samples do there."
    yield "exact-prior", caption, figures.deviating_lengths(records)
    caption = "The quadratic of a solve in its two steepest directions, and where 64 probes start."
    yield "sections", caption, figures.sections(cuts)
    caption = "Iterations to the tolerance, and final test log-likelihoods."
    yield "iterations", caption, figures.iterations(records)
    for solver in SOLVERS:
        caption = f"Hyperparameters over the steps, {LABELS[solver]}, beside exact training."
        yield f"trajectories-{solver}", caption, figures.trajectories(records, solver)
    for dataset in SETTINGS:
        for residual, what in (("residual_probes", "probes"), ("residual_mean", "mean")):
            caption = f"{dataset}: residuals of the {what} under a budget of epochs."
            yield f"budgets-{dataset}-{what}", caption, figures.under_budgets(records, dataset, residual)
    for solver in SOLVERS:
        caption = f"Large sets, {LABELS[solver]}, ten epochs a step: residuals and test scores."
        yield f"large-{solver}", caption, figures.large_sets(records, solver)


def coverage(records: list[Record], found: Found, papers: Papers) -> str:
    """What was run and what was not."""
    machines = sorted({record["machine"]["device"] for record in records})
    failed = sorted(f"{record['key']} ({record['why']})" for record in records if record["outcome"] == "failed")
    lines = [
        f"{len(records)} trainings on {'; '.join(machines)}: "
        f"{sum(r['seconds'] for r in records) / 60:.0f} minutes of training in all.",
        "",
    ]
    for dataset in [d for d in SETTINGS if any(cell[0] == d for cell in found)]:
        own = {cell: summary for cell, summary in found.items() if cell[0] == dataset and cell[1] != "exact"}
        splits = sorted({record["run"]["split"] for summary in own.values() for record in summary.records})
        total = 6 if SETTINGS[dataset].large else 12
        on = f"splits {', '.join(map(str, splits))}" if splits else "exact training only"
        lines.append(f"- **{dataset}**: {len(own)} of {total} cells; {on}.")
    absent = sorted({cell[0] for cell in papers} - {cell[0] for cell in found})
    if absent:
        lines.append(f"- Not run at all: {', '.join(absent)}.")
    cut = [record for record in records if record["outcome"] == "cut"]
    if cut:
        lines += ["", f"Cut at their time limit, so that epochs and seconds are lower bounds: {listed(cut)}."]
    if failed:
        lines += ["", f"Failed: {'; '.join(failed)}."]
    unsolved = [r for r in records if r["outcome"] == "finished" and r["run"]["budget"] is None and not r["converged"]]
    if unsolved:
        keys = ", ".join(sorted(record["key"] for record in unsolved))
        lines += ["", f"Runs in which a solve ended short of the tolerance, so that costs are lower bounds: {keys}."]
    if any("shared" in name for name in machines):
        lines += ["", "Several runners shared the device for most of the runs: seconds depend on what the others did, "
                  "and two splits of a cell differ by up to a factor of two. Epochs do not."]  # fmt: skip
    if any("H200" in name for name in machines):
        lines += ["", "On a GPU conjugate gradients look at their residual every eight iterations, and so their epochs "
                  "come in eights."]  # fmt: skip
    if any(cell[0] == "houseelectric" for cell in found):
        lines += ["", "The rows of houseelectric were put in order again from the public file; a few single rows may "
                  "differ from it."]  # fmt: skip
    return "\n".join(lines)


def listed(records: list[Record]) -> str:
    """Runs by dataset: the rest of their keys, with the splits."""
    groups: dict[str, dict[str, list[str]]] = {}
    for record in sorted(records, key=lambda r: r["key"]):
        run, what = record["run"], record["key"].split("_", 1)[1].replace("_", " ")
        groups.setdefault(run["dataset"], {}).setdefault(what, []).append(str(run["split"]))
    return "; ".join(
        f"**{dataset}** " + ", ".join(f"{what} ({'/'.join(splits)})" for what, splits in own.items())
        for dataset, own in groups.items()
    )


# -- findings --------------------------------------------------------------------------------------------------------
def ratios(found: Found, own: tuple[str, bool], base: tuple[str, bool]) -> str:
    """How many times fewer epochs one way takes than another, per dataset and solver."""
    said = []
    for dataset in [d for d in SETTINGS if not SETTINGS[d].large]:
        for solver in SOLVERS:
            factor, bound = speed_up(found, (dataset, solver, *own), "epochs", base)
            if not math.isnan(factor):
                said.append(f"{dataset} {LABELS[solver]} {shown(factor, 1, bound)}")
    return "; ".join(said) or "not run"


def findings(records: list[Record], found: Found) -> str:
    """One paragraph a question, from the numbers."""
    base = ("standard", False)
    pathwise, warm, both = (
        ratios(found, way, base) for way in (("pathwise", False), ("standard", True), ("pathwise", True))
    )
    return "\n\n".join(
        [
            "**Does the pathwise estimator cut iterations?** Epochs of the standard estimator over the pathwise one, "
            f"both from zero: {pathwise}. With warm starts on top, against the standard "
            f"estimator from zero: {both}.",
            "**Does warm starting bias?** Epochs of cold over warm starts, standard estimator: "
            f"{warm}. Test log-likelihood with warm starts less that without, same split, by exact prediction where "
            f"there is one: {warm_bias(records) or 'not run'}.",
            f"**Does progress accumulate under a budget?** {accumulation(records) or 'Not run.'}",
            f"**Is a low residual needed for good predictions?** {need_of_residuals(records) or 'Not run.'}",
        ]
    )


def warm_bias(records: list[Record]) -> str:
    done = [r for r in records if plain(r) and r["outcome"] == "finished" and not r["run"]["settings"]["large"]]
    said = []
    for dataset in SETTINGS:
        gaps = []
        for record in by_run(done, dataset=dataset, warm=True):
            run = record["run"]
            same = {name: run[name] for name in ("dataset", "split", "solver", "estimator")}
            for cold in by_run(done, warm=False, **same):
                exact = record["test_exact"] and cold["test_exact"]  # other samples, other scores: not what is asked
                name = "test_exact" if exact else "test"
                gaps.append(record[name]["llh"] - cold[name]["llh"])
        if gaps:
            said.append(f"{dataset} {min(gaps):+.4f} to {max(gaps):+.4f} ({len(gaps)} pairs)")
    return "; ".join(said)


def accumulation(records: list[Record]) -> str:
    """Residual of the probes at the last step, cold and warm, under the least budget."""
    said = []
    for record in by_run(records, budget=10.0, warm=True, estimator="pathwise", split=0):
        run = record["run"]
        colds = by_run(records, budget=10.0, warm=False, estimator="pathwise", split=0, dataset=run["dataset"],
                       solver=run["solver"])  # fmt: skip
        for cold in colds:
            if cold["steps"] != record["steps"]:  # one of them was cut
                continue
            last = [r["history"]["residual_probes"][-1] for r in (cold, record)]
            said.append(f"{run['dataset']} {LABELS[run['solver']]} {last[0]:.3f} → {last[1]:.3f}")
    if not said:
        return ""
    return "Residual of the probes after the last step at ten epochs a step, from zero → warm: " + "; ".join(said) + "."


def need_of_residuals(records: list[Record]) -> str:
    """The score at the least budget beside the score at the tolerance."""
    said = []
    for record in by_run(records, budget=10.0, warm=True, estimator="pathwise", split=0):
        run = record["run"]
        same = by_run(records, budget=None, warm=True, estimator="pathwise", split=0, dataset=run["dataset"],
                      solver=run["solver"], n_probes=64, n_features=2000, prior="plain")  # fmt: skip
        if same and record["outcome"] == same[0]["outcome"] == "finished":
            said.append(
                f"{run['dataset']} {LABELS[run['solver']]}: residual {record['history']['residual_probes'][-1]:.3f}, "
                f"LLH {record['test']['llh']:.3f} (to the tolerance {same[0]['test']['llh']:.3f})"
            )
    if not said:
        return ""
    return "Pathwise with warm starts, ten epochs a step against solving to the tolerance: " + "; ".join(said) + "."


def checks(found: Found, papers: Papers) -> str:
    """Agreement with the paper: scores, order of costs, and the speed-up of AP on elevators."""
    if not papers:
        return "The paper's numbers were not at hand when this page was written."
    scores_there, missed = compared(found, papers), outside(found, papers)
    pairs = order_agrees(found, papers)
    wrong = [(cheap, dear) for cheap, dear, good in pairs if not good]
    scores = "".join(
        f"; {dataset} {LABELS[solver]} {way(estimator, warm)}: {name.upper()} {value:.1f} times the allowed difference"
        for (dataset, solver, estimator, warm), name, value in missed
    )
    orders = "".join(
        f"; {dear[0]} {LABELS[dear[1]]}: {way(*dear[2:])} is not dearer than {way(*cheap[2:])}" for cheap, dear in wrong
    )
    lines = [
        f"- Scores: of {len(scores_there)} (log-likelihoods and RMSEs of cells) {len(missed)} differ from the paper's "
        f"by more than two standard errors of a mean over as many splits{scores}.",
        "- Order of two cells of one dataset and solver by solver epochs, where the paper's solver times differ by "
        "more than 20% and no cut run leaves a doubt: "
        f"{len(pairs) - len(wrong)} of {len(pairs)} pairs as in the paper{orders}.",
    ]
    cell: Cell = ("elevators", "ap", "pathwise", True)
    ours, bound = speed_up(found, cell)
    base = papers.get(("elevators", "ap", "standard", False))
    if base and not math.isnan(ours):
        theirs = base.solver_seconds / papers[cell].solver_seconds
        lines.append(
            f"- AP on elevators, pathwise and warm against standard and cold: {'over ' if bound else ''}{ours:.0f} "
            f"times fewer epochs; in the paper {theirs:.0f} times less solver time."
        )
    return "\n".join(lines)


def tables(records: list[Record], papers: Papers) -> list[str]:
    """All sections but the figures."""
    found = summaries(records)
    small = [d for d in SETTINGS if not SETTINGS[d].large and any(cell[0] == d for cell in found)]
    parts = [f"# Results\n\n{HEAD}", f"## What was run\n\n{coverage(records, found, papers)}"]
    parts.append(f"## What was found\n\n{findings(records, found)}")
    parts.append(f"## Against the paper\n\n{checks(found, papers)}")
    why = spectrum_table(records, papers)
    if why:
        parts.append(f"## Where we differ, and why\n\n{why}")
    parts.append(
        "## Table 1\n\nOurs / the paper's: mean test log-likelihood and seconds of training. The paper's times are "
        "those of another GPU.\n\n" + main_table(found, papers, small)
    )
    for dataset in [d for d in SETTINGS if any(cell[0] == d for cell in found)]:
        truths = tuple(r for r in by_run(records, dataset=dataset, solver="exact") if r["outcome"] == "finished")
        table = table_of(found, papers, dataset, Summary(truths) if truths else None)
        parts.append(f"## {dataset}\n\n{table}")
    return parts


def write(store: Store, paper: Path | None, out: Path) -> None:
    """The page, and its figures in a folder beside it."""
    records = list(store.records())
    parts = [*tables(records, read_published(paper)), "## Figures"]
    images = out.parent / out.stem
    images.mkdir(parents=True, exist_ok=True)
    for name, caption, figure in all_figures(store, records):
        if figure is None:
            continue
        figure.savefig(images / f"{name}.png", dpi=130)
        plt.close(figure)
        parts.append(f"![{caption}]({images.name}/{name}.png)\n\n*{caption}*")
    out.write_text("\n\n".join(parts) + "\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("experiments/store"))
    parser.add_argument("--paper", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    args = parser.parse_args(arguments)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write(Store(args.store), args.paper, args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
