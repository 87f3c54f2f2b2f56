"""What the pathwise estimator does with prior functions of the product kernel, beside the paper's pathwise cells."""

from __future__ import annotations

from experiments.published import Papers
from experiments.store import Record
from experiments.summary import SCORES, Summary, by_run, is_finished
from experiments.tables import markdown, off, ours, paper

WHY = (
    "The paper's pathwise cells score differently from its standard ones, more so than ours: by −0.09 of "
    "log-likelihood on bike, by −0.03 and −0.011 of RMSE on protein. A public copy of its code "
    "(github.com/otss2/iterative-gaussian-processes, commit ba1b7cff) draws the frequencies of the random features "
    "with an independent Student t for each input; a later commit, 11123c65, with one χ² for all inputs of a "
    "frequency. Only the latter are features of the Matérn kernel of a distance; the former are those of a product of "
    "one-dimensional kernels (`experiments/product_prior.py`), and a gradient from them balances data and trace for "
    "two different kernels."
)
WHAT = "CG, warm starts; random features of the kernel, and of the product of one-dimensional kernels."


def spectrum_table(records: list[Record], papers: Papers) -> str:
    """Scores of exact training and of both kinds of features, on the splits that have all three, beside the paper's.

    Empty where there is neither a paper nor a run with features of the product kernel.
    """
    done = [record for record in records if is_finished(record)]
    same = {"solver": "cg", "estimator": "pathwise", "warm": True, "budget": None, "n_probes": 64, "n_features": 2000}
    rows = []
    for dataset in dict.fromkeys(record["run"]["dataset"] for record in by_run(done, prior="product")):
        product, plain, exact = (
            {record["run"]["split"]: record for record in by_run(done, dataset=dataset, **match)}
            for match in ({"prior": "product", **same}, {"prior": "plain", **same}, {"solver": "exact"})
        )
        splits = sorted(set(product) & set(plain) & set(exact))
        if not splits:
            continue
        ways = {
            "exact": (exact, ("standard", True)),
            "pathwise": (plain, ("pathwise", True)),
            "pathwise, product kernel": (product, ("pathwise", True)),
        }
        for label, (runs, way) in ways.items():
            own, their = Summary(tuple(runs[split] for split in splits)), papers.get((dataset, "cg", *way))
            rows.append([
                dataset, label, str(len(splits)), ours(own, "llh"), paper(their, "llh", 3), ours(own, "rmse", 4),
                paper(their, "rmse", 4), f"{_noise(own):.4f}",
                off(own, their, SCORES),
            ])  # fmt: skip
    why = [WHY] if papers else []
    if not rows:
        return "\n\n".join([*why, "Whether that explains the cells outside was not tried yet."]) if papers else ""
    head = ["set", "training", "splits", "LLH", "paper's LLH", "RMSE", "paper's RMSE", "noise scale", "off (LLH; RMSE)"]
    return "\n\n".join([*why, WHAT, markdown(head, rows)])


def _noise(summary: Summary) -> float:
    return sum(record["history"]["noise_scale"][-1] for record in summary.records) / len(summary.records)
