"""A posterior as the tensors of a file, and back: of a model, and of targets that are known in rows of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from warmgp.control import Targets
from warmgp.estimator.several import Pattern
from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.posterior import Posterior
from warmgp.schema import DOUBLE, TensorRule, check_tensors, expect, list_of, record, truth, whole
from warmgp.trend import Basis, Trend

TENSORS = {
    "x": TensorRule(("n", "d")),
    "solution": TensorRule(("n", "1 + s")),
    "frequencies": TensorRule(("m", "d")),
    "sin_weights": TensorRule(("m", "s")),
    "cos_weights": TensorRule(("m", "s")),
}
"""Tensors of every posterior; of several targets the second size of the solution is their number and s."""
TREND = {
    "trend_transform": TensorRule(("p", "p"), DOUBLE),
    "trend_solution": TensorRule(("n", "p")),
    "trend_coefficients": TensorRule(("p", "1 + s"), DOUBLE),
    "trend_covariance": TensorRule(("p", "p"), DOUBLE),
}
"""Tensors of a model with a trend, whose terms the content names."""
TARGETS = {
    "targets": TensorRule(("n", "s"), (torch.int16, torch.int32)),
    "targets_step": TensorRule((1,), DOUBLE, positive=True),
}
"""What the samples were solved for, where variances come from them; files of earlier versions have none."""
NOISE = {
    "noise_shares": TensorRule(("n",), DOUBLE, positive=True),
    "noise_known": TensorRule(("n",), DOUBLE),
}
"""What the noise of each row is made of, where rows have noise of their own."""


PATTERN = record({"which": list_of(whole(0)), "exact": truth}, {})
"""What the content says of targets that are known in rows of their own; their tensors begin with ``prefix``."""


def prefix(number: int) -> str:
    """Returns how the names of the tensors of a pattern begin, counted from 1."""
    return f"pattern{number}_"


def posterior_tensors(posterior: Posterior) -> dict[str, Tensor]:
    """Returns all of a posterior that a file holds, but for θ, by name."""
    prior, trend, targets, noise = posterior.prior, posterior.trend, posterior.targets, posterior.noise
    tensors = {"x": posterior.x, "solution": posterior.solution, **vars(prior)}
    if trend is not None:
        tensors["trend_transform"] = trend.basis.transform
        tensors |= {f"trend_{name}": getattr(trend, name) for name in ("solution", "coefficients", "covariance")}
    if targets is not None:
        tensors["targets"] = targets.codes
        tensors["targets_step"] = torch.tensor([targets.step], dtype=torch.float64)
    if noise is not None:
        tensors |= {"noise_shares": noise.shares, "noise_known": noise.known}
    return tensors


def rules_of(tensors: Mapping[str, Tensor], terms: Any) -> dict[str, TensorRule]:
    """Returns the rules of the tensors of a posterior, with a trend where there are terms."""
    rules = TENSORS | (TREND if terms is not None else {})
    for some in (TARGETS, NOISE):
        rules |= some if some.keys() & tensors.keys() else {}
    return rules


def posterior_of(
    tensors: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    place: torch.device,
    kernel: Kernel,
    theta: Hyperparameters,
    *,
    exact: bool,
    n_targets: int = 1,
    trend: Trend | None = None,
) -> Posterior:
    """Returns a posterior of q targets from tensors that fit their rules, on a device."""
    columns = n_targets + sizes["s"]
    expect(sizes["1 + s"] == columns, "solution", f"of {columns} columns", sizes["1 + s"])
    there = {name: tensors[name].to(place) for name in TENSORS}
    prior = FeaturePrior(there["frequencies"], there["sin_weights"], there["cos_weights"])
    targets = None
    if "targets" in tensors:
        targets = Targets(tensors["targets"].to(place), float(tensors["targets_step"]))
    return Posterior(
        there["x"], kernel, theta, there["solution"], prior, exact=exact, trend=trend, targets=targets,
        noise=_noise(tensors, place), n_targets=n_targets,
    )  # fmt: skip


# -- targets that are known in rows of their own ---------------------------------------------------------------------
def pattern_tensors(pattern: Pattern, number: int) -> dict[str, Tensor]:
    """Returns all of a pattern that a file holds, by name."""
    own = posterior_tensors(pattern.posterior)
    own |= {"y_train": torch.as_tensor(pattern.y), "training_rows": torch.as_tensor(pattern.rows)}
    return {prefix(number) + name: tensor for name, tensor in own.items()}


def pattern_of(
    content: Mapping[str, Any],
    tensors: dict[str, Tensor],
    number: int,
    place: torch.device,
    kernel: Kernel,
    theta: Hyperparameters,
    d: int,
) -> Pattern:
    """Takes the tensors of a pattern out of those of a file, and returns it, checked."""
    begin, which = prefix(number), tuple(content["which"])
    own = {name.removeprefix(begin): tensors.pop(name) for name in list(tensors) if name.startswith(begin)}
    rules = rules_of(own, None) | target_rules(len(which))
    sizes = check_tensors(own, rules, {"d": d})
    posterior = posterior_of(own, sizes, place, kernel, theta, exact=content["exact"], n_targets=len(which))
    return Pattern(which, posterior, own["training_rows"].numpy(), own["y_train"].numpy())


def target_rules(q: int) -> dict[str, TensorRule]:
    """Returns the rules of the values of q targets in the user's units, and of the numbers of their rows."""
    shape: tuple[str | int, ...] = ("n",) if q == 1 else ("n", q)
    return {"y_train": TensorRule(shape, DOUBLE), "training_rows": TensorRule(("n",), (torch.int64,))}


def _noise(tensors: Mapping[str, Tensor], place: torch.device) -> RowNoise | None:
    """Returns what the noise of each row of a file is made of; None where it is the same for all."""
    if "noise_known" not in tensors:
        return None
    expect(bool((tensors["noise_known"] >= 0).all()), "noise_known", "variances of at least 0", "negative ones")
    return RowNoise(tensors["noise_shares"], tensors["noise_known"]).to(place)


def trend_of(
    terms: list[list[int]], tensors: Mapping[str, Tensor], sizes: Mapping[str, int], angle: float, n_targets: int
) -> Trend:
    """Returns the trend of a file, checked, over inputs that are turned by the angle."""
    expect(len(terms) == sizes["p"], "trend_terms", f"{sizes['p']} terms", len(terms))
    for term in terms:
        known = len(term) <= 2 and all(column < sizes["d"] for column in term) and term == sorted(term)
        expect(known, "trend_terms", f"products of at most two of {sizes['d']} columns", str(term))
    whole = {(), *((column,) for term in terms for column in term)} <= {tuple(term) for term in terms}
    expect(whole, "trend_terms", "a trend with the constant and every column of a product", str(terms))
    basis = Basis(tuple(tuple(term) for term in terms), tensors["trend_transform"], angle)
    solution, coefficients, covariance = (
        tensors[f"trend_{name}"] for name in ("solution", "coefficients", "covariance")
    )
    return Trend(basis, solution, coefficients, covariance, n_targets)
