"""Write the results page: tables and figures from the store, ours beside the published ones, and what follows.

    python -m experiments.page --store experiments/store --paper paper_results.csv --out docs/results.md

Nothing is computed here but means and ratios: whatever the page says is in the store. ``--paper`` names a CSV file with
the paper's tables (columns ``dataset, solver, estimator, warm_start, test_llh, …``); without it that half stays empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from experiments import figures
from experiments.cells import SETTINGS, SOLVERS
from experiments.coverage import coverage, is_current
from experiments.findings import checks, findings
from experiments.overview import in_short
from experiments.published import Papers, read_published
from experiments.spectrum import spectrum_table
from experiments.store import Record, Store
from experiments.summary import LABELS, Summary, by_run, is_finished, summaries
from experiments.tables import main_table, markdown, table_of

HEAD = """\
Tables and figures of *Improving Linear System Solvers for Hyperparameter Optimisation in Iterative Gaussian Processes*
(Lin et al., NeurIPS 2024), trained again by this library. A program writes this page from the records in
`experiments/store`; [how to add to them](reproducing.md).

Scores are in standardised units: LLH is the mean test log-likelihood in nats a point. Below 50,000 points they are by
exact prediction at the trained hyperparameters, so that they tell what training has found. The paper does not say how
it predicted; its standard cells of CG and AP agree to 0.001, as exact predictions do and those from samples do not.
*From samples* are what the library predicts with: the last solve and 64 posterior samples. *Distance* is |ours − the
paper's| in units of the allowed difference, two standard errors of a mean over as many splits as we ran, so that 1 is
the limit.

An *epoch* is as many kernel entries as one product with H has; the true residuals with which a solve begins and ends
are counted, too, and come on top of a budget. *Warm* solves start from the last step's solutions, *cold* ones from
zero. *> …* is a lower bound, because a run was cut at its time limit."""


def all_figures(store: Store, records: list[Record]) -> Iterator[tuple[str, str, Figure | None]]:
    """(file name, caption, figure) in the order of the paper, each drawn when it is asked for."""
    distances, cuts = (by_run(list(store.records(kind)), split=0) for kind in ("distances", "section"))
    caption = (
        "Training time relative to the standard estimator without warm start; hatched: the solver. Runs that were cut "
        "have no bar, and where the standard one was cut the others' bars are upper bounds."
    )
    yield "runtimes", caption, figures.runtimes(records)
    caption = (
        "How far solves start from their solution along exact training, measured at every fifth step; AP's iterations; "
        "the largest eigenvalue of the inverse and the noise precision behind them."
    )
    yield "distances", caption, figures.starting_distances(distances, records)
    caption = "The number of probe vectors, which are the posterior samples."
    yield "probes", caption, figures.probe_counts(records)
    caption = (
        "Hyperparameters at all steps against those of exact training, all finished runs; the last two panels of one "
        "set and solver. The outermost bars hold whatever is beyond. Not shown are length scales that exact training "
        "does not move, of inputs that hardly vary."
    )
    yield "differences", caption, figures.differences(records)
    caption = (
        "Random features against the deviation from exact training; “more in the tail” are the library's own, with "
        "more frequencies where the spectrum is thin."
    )
    yield "features", caption, figures.feature_counts(records)
    caption = (
        "CG: the two length scales on which 2,000 random features with warm starts end farthest from exact training, "
        "less exact training's; and what more features, exact prior samples, new draws and the standard estimator do "
        "there."
    )
    yield "exact-prior", caption, figures.deviating_lengths(records)
    caption = (
        "The quadratic of a solve in its two steepest directions, and where the solves of 64 probes start, at two "
        "scales. In this plane, where solvers are fast, warm starts need not be nearer to the solution than zero; over "
        "all directions they are (see the distances above)."
    )
    yield "sections", caption, figures.sections(cuts)
    caption = "Iterations to the tolerance (×: cut there), and final test log-likelihoods; split 0."
    yield "iterations", caption, figures.iterations(records)
    for solver in SOLVERS:
        caption = (
            f"Noise, signal and the two shortest length scales over the steps, {LABELS[solver]}, beside exact training."
        )
        yield f"trajectories-{solver}", caption, figures.trajectories(records, solver)
    for dataset in SETTINGS:
        for residual, what in (("residual_probes", "probes"), ("residual_mean", "mean")):
            caption = (
                f"{dataset}: residuals of the {what}' systems under a budget of epochs, and scores by exact prediction "
                "at the trained hyperparameters."
                if what == "probes"
                else f"{dataset}: residuals of the mean's system under a budget of epochs, and the RMSE of that mean."
            )
            yield f"budgets-{dataset}-{what}", caption, figures.under_budgets(records, dataset, residual)
    for solver in SOLVERS:
        caption = f"Large sets, {LABELS[solver]}, ten epochs a step: residuals and test scores after each step."
        yield f"large-{solver}", caption, figures.large_sets(records, solver)
    caption = (
        "Large sets solved to the tolerance at every step, by conjugate gradients with near neighbours: residuals, "
        "test scores and noise. Not in the paper."
    )
    yield "solved", caption, figures.solved_sets(records)


PAPERS_FIGURES = {
    "1: relative runtimes": "runtimes",
    "3: initial distances": "distances",
    "4: number of probes": "probes",
    "5: random features, exact prior samples": "differences exact-prior features",
    "6: section of the quadratic": "sections",
    "7, 21: iterations to the tolerance": "iterations",
    "8: warm starts beside exact training": "trajectories differences",
    "9, 14 to 17: residuals under budgets": "budgets",
    "10, 18 to 20: large sets": "large",
    "11 to 13: hyperparameters over steps": "trajectories",
}
"""Number and subject in the paper: how our files begin."""


def concordance(drawn: list[str]) -> str:
    """Which of the figures below stand for which of the paper's."""
    rows = []
    for theirs, ours in PAPERS_FIGURES.items():
        there = [name for name in drawn if name.startswith(tuple(ours.split()))]
        rows.append([theirs, ", ".join(there) or "not run"])
    head = "The paper's figures and ours; its table 1 and tables 2 to 10 are the sections above, by set."
    return f"{head}\n\n{markdown(['the paper’s figure', 'here'], rows)}"


def trainings(store: Store) -> list[Record]:
    """Those of the settings that the lists have now."""
    return [record for record in store.records() if is_current(record)]


def tables(store: Store, papers: Papers) -> list[str]:
    """All sections but the figures."""
    records = trainings(store)
    found = summaries(records)
    others = {record["key"] for kind in ("distances", "section", "start") for record in store.records(kind)}
    small = [d for d in SETTINGS if not SETTINGS[d].large and any(cell[0] == d for cell in found)]
    parts = [f"# Results\n\n{HEAD}"]
    short = in_short(records, found)
    if short:
        parts.append(f"## In short\n\n{short}")
    parts.append(f"## What was run\n\n{coverage(records, found, papers, others)}")
    parts.append(f"## What was found\n\n{findings(records, found, papers)}")
    parts.append(f"## Against the paper\n\n{checks(found, papers)}")
    why = spectrum_table(records, papers)
    if why:
        parts.append(f"## Where we differ, and why\n\n{why}")
    parts.append(
        "## Table 1\n\nOurs / the paper's: mean test log-likelihood and seconds of training, with the number of splits "
        "in brackets where other cells of the set have more. Speed-ups over *standard, cold* are means over the sets "
        "where ours is known (how many). The paper's times are those of another GPU, and those of its appendix: its "
        "own table 1 has the times of AP's *pathwise, cold* and *standard, warm* the other way round.\n\n"
        + main_table(found, papers, small)
    )
    for dataset in [d for d in SETTINGS if any(cell[0] == d for cell in found)]:
        truths = tuple(r for r in by_run(records, dataset=dataset, solver="exact") if is_finished(r))
        table = table_of(found, papers, dataset, Summary(truths) if truths else None)
        parts.append(f"## {dataset}\n\n{table}")
    return parts


def write(store: Store, paper: Path | None, out: Path) -> None:
    """The page, and its figures in a folder beside it."""
    parts, pictures, drawn = tables(store, read_published(paper)), [], []
    images = out.parent / out.stem
    images.mkdir(parents=True, exist_ok=True)
    for name, caption, figure in all_figures(store, trainings(store)):
        if figure is None:
            continue
        figure.savefig(images / f"{name}.png", dpi=130)
        plt.close(figure)
        drawn.append(name)
        pictures.append(f"![{caption}]({images.name}/{name}.png)\n\n**{name}.** *{caption}*")
    parts += ["## Figures", concordance(drawn), *pictures]
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
