"""What the pathwise estimator does with prior functions of the product kernel, beside the paper's pathwise cells."""

from __future__ import annotations

from experiments.published import Papers, Published
from experiments.store import Record
from experiments.summary import SCORES, Summary, agreement, by_run, is_finished
from experiments.tables import gap, markdown, off, ours, paper

WHY = (
    "The paper's pathwise cells score differently from its standard ones, more so than ours: by −0.09 of "
    "log-likelihood on bike, by −0.03 and −0.011 of RMSE on protein. A public copy of its code "
    "(github.com/otss2/iterative-gaussian-processes, commit ba1b7cff) draws the frequencies of the random features "
    "with an independent Student t for each input; a later commit, 11123c65, with one χ² for all inputs of a "
    "frequency. Only the latter are features of the Matérn kernel of a distance; the former are those of a product of "
    "one-dimensional kernels (`experiments/product_prior.py`), and a gradient from them balances data and trace for "
    "two different kernels."
)
WHAT = (
    "So both were trained (CG, warm starts). *Less exact's* compares with exact training on the same splits, *the "
    "paper's* there its pathwise cell with its standard one."
)
SAME = {"solver": "cg", "estimator": "pathwise", "warm": True, "budget": None, "n_probes": 64, "n_features": 2000}


def spectrum_table(records: list[Record], papers: Papers) -> str:
    """Scores of exact training and of both kinds of features, on the splits that have all three, beside the paper's.

    Empty where there is neither a paper nor a run with features of the product kernel.
    """
    done = [record for record in records if is_finished(record)]
    rows, verdicts = [], []
    for dataset in dict.fromkeys(record["run"]["dataset"] for record in by_run(done, prior="product")):
        product, plain, exact = (
            {record["run"]["split"]: record for record in by_run(done, dataset=dataset, **match)}
            for match in ({"prior": "product", **SAME}, {"prior": "plain", **SAME}, {"solver": "exact"})
        )
        splits = sorted(set(product) & set(plain) & set(exact))
        if not splits:
            continue
        truth, of_kernel, of_product = (Summary(tuple(r[split] for split in splits)) for r in (exact, plain, product))
        their, standard = (papers.get((dataset, "cg", estimator, True)) for estimator in ("pathwise", "standard"))
        rows.append(_row(dataset, "exact training", truth, standard))
        rows.append(_row("", "of the kernel", of_kernel, their, truth, standard))
        rows.append(_row("", "of the product", of_product, their, truth, standard))
        if their is not None:
            verdicts.append(_verdict(dataset, of_kernel, of_product, their))
    why = [WHY] if papers else []
    if not rows:
        return "\n\n".join([*why, "Whether that explains the cells outside was not tried yet."]) if papers else ""
    head = [
        "set", "features", "splits", "noise scale", "LLH", "paper's LLH", "off (LLH; RMSE)",
        "LLH less exact's", "at its θ", "the paper's", "RMSE less exact's", "the paper's",
    ]  # fmt: skip
    said = []
    if verdicts:
        how = "Distance from the paper in allowed differences, features of the kernel → of the product"
        said = [f"{how}: {'; '.join(verdicts)}."]
    return "\n\n".join([*why, WHAT, markdown(head, rows), *said])


def _row(
    dataset: str,
    label: str,
    own: Summary,
    their: Published | None,
    truth: Summary | None = None,
    standard: Published | None = None,
) -> list[str]:
    """One training; its differences from exact training where that is given, the paper's own where its cells are."""
    gaps = [""] * 5
    if truth is not None:
        gaps[0], gaps[1] = gap(own, truth, "llh", 3), gap(own, truth, "llh", 3, exactly=True)
        gaps[3] = gap(own, truth, "rmse", 4)
    if their is not None and standard is not None:
        gaps[2], gaps[4] = f"{their.llh - standard.llh:+.3f}", f"{their.rmse - standard.rmse:+.4f}"
    noise = sum(record["history"]["noise_scale"][-1] for record in own.records) / len(own.records)
    return [
        dataset, label, str(len(own.records)), f"{noise:.4f}", ours(own, "llh"), paper(their, "llh", 3),
        off(own, their, SCORES), *gaps,
    ]  # fmt: skip


def _verdict(dataset: str, of_kernel: Summary, of_product: Summary, their: Published) -> str:
    """Log-likelihood and RMSE with either kind of features, in allowed differences."""
    changes = []
    for name in SCORES:
        one, two = agreement(of_kernel, their, name), agreement(of_product, their, name)
        if one is not None and two is not None:
            changes.append(f"{name.upper()} {one:.2f} → {two:.2f}")
    return f"{dataset} {', '.join(changes)}"
