"""Means and standard deviations on hostile data sets, against the exact GP at the hyperparameters that a fit has found.

What is promised of a fit with ``converged_``: means within 0.1 predictive standard deviations (those of a new
observation) at 99.9% of points over the battery, standard deviations within 20%. One data set is held to 99% and to no
point off by a whole one. A fit that did not converge has to warn; one that refuses has to say why.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi

from hostile.datasets import LARGE_FROM, PARTS, Attack, draw
from hostile.reference import Answer, Reference
from hostile.tally import POINTS
from warmgp import ConvergenceWarning, GPRegressor

CASES = LARGE_FROM + 10
MEAN, WORST, WRONG = 0.1, 1.0, 0.01
STD = 0.2


def test_answers(case: int, rng: np.random.Generator, record_property: pytest.RecordProperty) -> None:
    attack = draw(rng, case)
    counts, faults = judge(attack)
    record_property(POINTS, counts)
    if faults:
        pytest.fail(f"{attack.name}:\n  " + "\n  ".join(faults), pytrace=False)


def judge(attack: Attack) -> tuple[dict[str, int], list[str]]:
    """What goes into the tally, and all that is wrong with the answers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = GPRegressor(**attack.settings).fit(attack.X, attack.y)
        except (ValueError, MemoryError) as error:
            named = attack.may_refuse and "column" in str(error)
            return {"fits": 1, "refused": 1}, [] if named else [f"refused: {type(error).__name__}: {error}"]
        mean, std = model.predict(attack.X_new, return_std=True)
        latent = model.predict(attack.X_new, return_std=True, include_noise=False)[1]
    faults = [f"warned {w.category.__name__}: {w.message}" for w in caught if issubclass(w.category, RuntimeWarning)]
    for name, values in (("mean", mean), ("std", std), ("latent std", latent)):
        if not np.isfinite(values).all():
            faults.append(f"{(~np.isfinite(values)).sum()} of {len(values)} values of the {name} are not finite")
    if not model.converged_:
        said = any(issubclass(w.category, ConvergenceWarning) for w in caught)
        return {"fits": 1}, faults + ([] if said else ["not converged, and no warning"])
    theta = model.hyperparameters_
    exact = Reference(
        attack.X, attack.y, attack.settings["kernel"], theta.noise_scale, theta.signal_scale, theta.length_scales
    )
    answer = exact.predict(attack.X_new)
    found = exact.standard_mean(mean), exact.standard_std(std), exact.standard_std(latent)
    wrong, more = compare(exact, answer, *found, model)
    faults += more
    if hasattr(model, "posterior_"):
        residual = exact.residual(model.posterior_.solution[:, 0].double().cpu().numpy())
        if not residual <= 1.5 * model.tol:
            faults.append(f"converged, with a residual of {residual:.2g} where tol is {model.tol:g}")
    if faults:
        faults.append(
            f"where θ = {np.array2string(theta.vector.numpy(), precision=4, max_line_width=999, threshold=9)}"
        )
        faults.append(f"by {model.plan_}")
    return {"fits": 1, "converged": 1, "points": len(mean), "wrong": wrong}, faults


def compare(
    exact: Reference, answer: Answer, mean: np.ndarray, std: np.ndarray, latent: np.ndarray, model: Any
) -> tuple[int, list[str]]:
    """How many means are wrong, and what breaks a promise. All in standardised units."""
    faults = []
    predictive = np.hypot(answer.latent, exact.noise)
    error = np.abs(mean - answer.mean) / predictive
    doubt = (answer.doubt + exact.rounding) / predictive
    wrong = ~(error <= MEAN + doubt)
    if wrong.mean() > WRONG or not (error <= WORST + doubt).all():
        faults.append(
            f"{100 * wrong.mean():.1f}% of the means off by more than {MEAN} predictive std, "
            f"the worst by {np.nanmax(error):.3g}, where the reference is in doubt by {doubt[np.nanargmax(error)]:.1g}"
        )
    ratio = std / predictive
    if model.report_.exact_variances:
        if not (np.abs(ratio - 1) <= STD).all():
            faults.append(f"exact std between {np.nanmin(ratio):.3g} and {np.nanmax(ratio):.3g} of what it should be")
        apart = np.abs(latent - answer.latent)
        if not (apart <= STD * answer.latent + 0.02 * predictive).all():
            faults.append(f"latent std off by {np.nanmax(apart / predictive):.2g} predictive std")
    else:
        faults += judge_sampled(ratio, model.n_probes)
    return int(wrong.sum()), faults


def judge_sampled(ratio: np.ndarray, samples: int) -> list[str]:
    """Faults of standard deviations from samples, each of which is off by chance, by 9% with 64 samples.

    One point leaves the range from the 10⁻⁵ to the 1 − 10⁻⁵ quantile with probability 2·10⁻⁵. So, by Markov, 2% of the
    points do with probability 10⁻³ at most, however they hang together. Random features add an error of their own, 7%
    at most as a root mean square: twice that is allowed on either side. The median and the root of the mean square
    of points in each part of the space are held to 20%, or to 3 standard errors of one point, if that is more.
    """
    faults = []
    low, high = (float(chi.ppf(q, samples)) / samples**0.5 for q in (1e-5, 1 - 1e-5))
    low, high = low / 1.14, high * 1.14
    outside = ~((ratio >= low) & (ratio <= high))
    if outside.mean() > 0.02:
        faults.append(
            f"{100 * outside.mean():.0f}% of the stds from {samples} samples outside {low:.2f} to {high:.2f} of the "
            f"exact ones: from {np.nanmin(ratio):.2f} to {np.nanmax(ratio):.2f}"
        )
    bound = max(STD, 3 / (2 * samples) ** 0.5)
    for where, part in PARTS.items():
        for name, value in (
            ("median", np.median(ratio[part])),
            ("root mean square", np.sqrt(np.mean(ratio[part] ** 2))),
        ):
            if not abs(value - 1) <= bound:
                faults.append(f"{name} of std/exact std from {samples} samples is {value:.2f} {where}")
    return faults
