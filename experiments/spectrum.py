"""What the pathwise estimator does with prior functions of the product kernel, beside the paper's pathwise cells."""

from __future__ import annotations

from statistics import fmean

from experiments.published import Papers, Published
from experiments.store import Record
from experiments.summary import SCORES, Summary, by_run, is_finished, less_exact
from experiments.tables import gap, markdown, off, ours, paper, signed

WHY = (
    "The paper's pathwise cells score differently from its standard ones, and ours hardly do: on bike by −0.09 of "
    "log-likelihood, on protein by −0.034 with an RMSE that is 0.011 *lower*. A third party's copy of its code "
    "(github.com/otss2/iterative-gaussian-processes, commit ba1b7cff; the original was not at hand) draws the "
    "frequencies of the random features with an independent Student t for each input; another commit there, 11123c65, "
    "with one χ² for all inputs of a frequency. Only the latter are features of the Matérn kernel of a distance; the "
    "former are those of a product of one-dimensional kernels (`experiments/product_prior.py`), and then the data term "
    "of the gradient is of the Matérn kernel and its trace term of the product kernel. We do not know which version "
    "made the paper's tables."
)
WHAT = "So both kinds of features were trained with, by CG with warm starts."
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
        rows.append(_row("", "of the kernel", of_kernel, their, truth))
        rows.append(_row("", "of the product kernel", of_product, their, truth))
        if their is not None and standard is not None:
            verdicts.append(_verdict(dataset, of_kernel, of_product, truth, their, standard))
    why = [WHY] if papers else []
    if not rows:
        return "\n\n".join([*why, "Whether that explains the cells outside was not tried yet."]) if papers else ""
    head = [
        "set", "features", "splits", "noise scale", "epochs", "LLH", "paper's LLH", "RMSE", "paper's RMSE",
        "distance (LLH; RMSE)", "LLH − exact training's", "RMSE − exact training's",
    ]  # fmt: skip
    said = []
    if verdicts:
        said = [
            "What the product kernel's features change is what the paper's pathwise cells have over its standard ones, "
            f"by exact prediction: {'; '.join(verdicts)}."
        ]
    return "\n\n".join([*why, WHAT, markdown(head, rows), *said])


def _row(dataset: str, label: str, own: Summary, their: Published | None, truth: Summary | None = None) -> list[str]:
    """One training; its differences from exact training where that is given."""
    noise = sum(record["history"]["noise_scale"][-1] for record in own.records) / len(own.records)
    return [
        dataset, label, str(len(own.records)), f"{noise:.4f}", ours(own, "epochs", 0) if truth else "–",
        ours(own, "llh"), paper(their, "llh", 3), ours(own, "rmse", 4), paper(their, "rmse", 4),
        off(own, their, SCORES), gap(own, truth, "llh", 3), gap(own, truth, "rmse", 4),
    ]  # fmt: skip


def _verdict(
    dataset: str, of_kernel: Summary, of_product: Summary, truth: Summary, their: Published, standard: Published
) -> str:
    """Pathwise minus standard in the paper, beside the two kinds of features minus exact training here."""
    said = []
    for name, digits in (("llh", 3), ("rmse", 4)):
        gaps = [fmean(less_exact(own, truth, name)) for own in (of_product, of_kernel)]
        paper_gap = getattr(their, name) - getattr(standard, name)
        said.append(
            f"{name.upper()} {gaps[0]:+.{digits}f} (the paper's {paper_gap:+.{digits}f}; features of the kernel "
            f"{gaps[1]:+.{digits}f})"
        )
    return signed(f"{dataset} {', '.join(said)}")
