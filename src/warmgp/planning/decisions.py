"""Every decision of a plan but those of solver and threads, a function each: from the request and the decisions before
it to (value, why).

``why`` is a sentence for the plan, "" where nothing needs saying. The solver is chosen in
:mod:`warmgp.planning.solver_choice`, threads in :mod:`warmgp.planning.threads`; the order of all decisions is in
:mod:`warmgp.planning.planner`.
"""

from __future__ import annotations

import torch

from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.operators import why_not_fused
from warmgp.planning.memory import H_fits, H_fits_alone
from warmgp.planning.request import EXACT_POSTERIOR_UP_TO, Request, is_auto, resolve_dtype
from warmgp.planning.solver_choice import (
    AFTER_SAMPLE,
    LARGE,
    LAST_EPOCHS,
    conjugate_gradients,
    few_steps,
    max_epochs,
    starts_on_sample,
)
from warmgp.planning.starts import SAMPLE_BEFORE_GROUPS, can_climb, climbs_all, final_steps
from warmgp.solvers import Cholesky, Solver, StoppingRule
from warmgp.training.local_start import LocalStart
from warmgp.training.near_start import NearStart

SAMPLE_FROM = 6_000
"""The points from which on training starts on a random sample: steps on all of them are dear enough."""

SAMPLE_SHARE, LEAST_SAMPLE, LARGEST_SAMPLE, LARGEST_SAMPLE_ON_CPU = 5, 2_000, 10_000, 5_000
"""The sample is one point in ``SAMPLE_SHARE``, but no fewer and no more points than these numbers."""

FEATURE_SHARE, MOST_FEATURES = 4, 16_000
"""There is one random feature for ``FEATURE_SHARE`` points, up to a most: m features cost about m/n of an epoch."""

NEAR = {
    True: NearStart(terms=120_000, neighbours=40, evaluations=40),
    False: NearStart(terms=10_000, neighbours=30, evaluations=12),
}
"""How the near-neighbour likelihood of a map is climbed, by whether that is on a GPU. What N terms leave unknown of θ
costs (2 + d)/2N nats a point where points are as dense as the data, and more in gaps, for which the place along the
ridge s²/ℓ matters: the satellite map on an H200 had RMSE 1.44 below the clouds with 60,000 terms of 30 neighbours in 8
evaluations, 1.405 in 40, and 1.396 with all 105,569 terms of 40 neighbours, in 7 s."""

AFTER_CLIMB, SMALL_STEP = 10, 0.001
"""Steps after climbs of all points, and their size. They leave hyperparameters where the climbs ended, which was not
the top where that would predict worse, and are there for records, callbacks and scores of held-out data."""

NEIGHBOURHOOD, NEIGHBOURHOOD_ON_GPU = 1_000, 10_000
"""Points of a neighbourhood that training starts on: on a CPU, and on a GPU, where they are the paper's."""


TO_BE_CHOSEN = (
    "How smooth the function is (the kernel) is learned from the data first; until then the plan is for Matérn-3/2."
)
"""What a plan says that was made before the choice of a kernel."""


def choose_kernel_first(request: Request) -> tuple[bool, str]:
    """Decides whether the data choose a kernel before training, which takes time of its own."""
    return request.chooses_kernel, TO_BE_CHOSEN if request.chooses_kernel and request.chosen is None else ""


def choose_features(request: Request) -> tuple[int, str]:
    """Decides the number of random features: a quarter as many as points, but no fewer than the kernel needs."""
    given = request.n_features
    if not isinstance(given, str):
        return int(given), ""
    least = request.kernel.least_features(request.d)
    return min(MOST_FEATURES, max(least, 2 * (request.n // (2 * FEATURE_SHARE)))), ""


def choose_gradient(request: Request, solver: Solver, n_features: int) -> tuple[GradientEstimator, str]:
    """Decides the estimator: exact where the solver leaves a factor, pathwise otherwise."""
    if request.given_gradient is not None:
        return request.given_gradient, ""
    name = request.gradient_name
    if name == "auto":
        name = "exact" if solver.name == "cholesky" else "pathwise"
    if name == "exact":
        return Exact(), ""
    if name == "standard":
        return Standard(request.n_probes), ""
    return Pathwise(request.n_probes, n_features), ""


def choose_start(request: Request, solver: Solver, gradient: GradientEstimator) -> tuple[str, str]:
    """Decides where training starts: by climbs of the likelihood, at ones where steps are named, by near points of a
    map, on a random sample, or for large data on neighbourhoods.

    A sample is for those who leave the number of steps open: after it few are needed. Who names their number, or
    another estimator, gets the paper's neighbourhoods for large data.
    """
    init = request.settings.init
    if isinstance(init, Hyperparameters):
        return "given", ""
    if not is_auto(init):
        return init, ""
    iterative = solver.name != "cholesky" and gradient.name == "pathwise"
    if iterative and request.trains_near:
        return "near", ""
    sampled = iterative and request.n >= SAMPLE_FROM and is_auto(request.settings.n_steps)
    if request.n >= LARGE and not (sampled and starts_on_sample(solver)):
        return "subset", ""
    if sampled:
        return "sample", ""
    return ("climb" if can_climb(request) else "ones"), ""


def choose_near_start(request: Request, init: str) -> tuple[NearStart | None, str]:
    """Decides how many terms of the near-neighbour likelihood are climbed; None where it is not."""
    if init != "near":
        return None, ""
    how = NEAR[request.device.type == "cuda"]
    terms = min(request.n, how.terms)
    return how, (
        f"Length scales, signal and noise are learned from {terms:,} points, each predicted from its {how.neighbours} "
        "near neighbours."
    )


def choose_sample_size(request: Request, init: str, local: LocalStart | None) -> tuple[int, str]:
    """Decides how many points a sample has, few where groups of near points follow; 0 where there is none."""
    if init != "sample":
        return 0, ""
    if local is not None:
        return min(request.n, SAMPLE_BEFORE_GROUPS), ""
    most = LARGEST_SAMPLE if request.device.type == "cuda" else LARGEST_SAMPLE_ON_CPU
    size = min(request.n, most, max(LEAST_SAMPLE, request.n // SAMPLE_SHARE))
    return size, f"Training starts on {size:,} points drawn at random, so that few steps on all points are needed."


def choose_start_solver(request: Request, sample_size: int, local: LocalStart | None) -> tuple[Solver | None, str]:
    """Decides what a sample is solved with: a factor where it is small because groups of near points follow, conjugate
    gradients as they suit it otherwise; None where there is none."""
    if not sample_size:
        return None, ""
    return (conjugate_gradients(request, sample_size) if local is None else Cholesky()), ""


def choose_neighbourhood_size(request: Request) -> tuple[int, str]:
    """Decides how many points a neighbourhood has."""
    most = NEIGHBOURHOOD_ON_GPU if request.device.type == "cuda" else NEIGHBOURHOOD
    return min(request.n, most), ""


def choose_rule(request: Request, solver: Solver) -> tuple[StoppingRule, str]:
    """Decides when a solve may stop: at the tolerance, or when its budget is spent."""
    q = request.n_targets
    why = f"{q} targets share one kernel and its matrix: their systems are solved together." if q > 1 else ""
    return StoppingRule(request.settings.tol, max_epochs(request, solver), n_targets=q), why


def choose_steps(request: Request, solver: Solver, init: str, local: LocalStart | None) -> tuple[int, str]:
    """Decides the most Adam steps that are taken: few for large data, after a start on a sample, and where time is
    short, hardly any after climbs of all points, which leave nothing to find; after groups of near points none where
    they are dear, and none after the likelihood of a map."""
    given = request.settings.n_steps
    if not isinstance(given, str):
        return int(given), ""
    if init == "near":
        return 0, ""
    if local is not None:
        return final_steps(request), ""
    if init == "climb" and climbs_all(request):
        return AFTER_CLIMB, ""
    few = solver.name != "cholesky" and (request.n >= LARGE or init == "sample")
    return (AFTER_SAMPLE if few or request.settings.time_limit is not None else 200), ""


def choose_learning_rate(request: Request, init: str) -> tuple[float, str]:
    """Decides the size of an Adam step: the paper's, which is smaller for large data unless few steps after a start on
    a sample have to go all the way."""
    given = request.settings.learning_rate
    if not isinstance(given, str):
        return float(given), ""
    if init == "climb" and climbs_all(request):
        return SMALL_STEP, ""
    return (0.03 if request.n >= LARGE and init != "sample" else 0.1), ""


def choose_last_epochs(request: Request, solver: Solver) -> tuple[float | None, str]:
    """Decides the budget of the last solve where that of the steps is smaller; None where both are the same."""
    own = solver.name == "rap" and is_auto(request.settings.max_epochs) and is_auto(request.settings.solver)
    return (LAST_EPOCHS if own else None), ""


def choose_relative_steps(request: Request) -> tuple[bool, str]:
    """Decides whether steps are relative for large hyperparameters: where their size was not given."""
    return is_auto(request.settings.learning_rate), ""


def choose_settling(request: Request) -> tuple[bool, str]:
    """Decides whether training ends once the likelihood has settled: where the number of steps was not given."""
    return is_auto(request.settings.n_steps), ""


def choose_dtype(request: Request, solver: Solver) -> tuple[torch.dtype, str]:
    """Decides the precision: float32 unless training is exact or float32 does not tell the inputs apart."""
    dtype = resolve_dtype(request.settings.dtype)
    if is_auto(request.settings.dtype) and (solver.name == "cholesky" or request.too_fine):
        dtype = torch.float64
    return dtype, f"In float64: {request.too_fine}." if request.too_fine and dtype == torch.float64 else ""


def choose_promotion(request: Request, dtype: torch.dtype) -> tuple[bool, str]:
    """Decides whether float32 is watched and left for float64: where the precision was not given."""
    return is_auto(request.settings.dtype) and dtype == torch.float32, ""


def choose_operator(request: Request, solver: Solver, dtype: torch.dtype) -> tuple[str, str]:
    """Decides how H is multiplied with: fused where that exists, stored where H fits, recomputed in tiles otherwise.

    Exact training stores no H: it keeps a factor.
    """
    if solver.name == "cholesky":
        return "chunked", ""
    on_gpu = request.device.type == "cuda" and dtype == torch.float32
    if on_gpu and not why_not_fused(request.kernel, request.device, dtype, request.n, request.d):
        return "fused", ""
    fits = H_fits_alone if few_steps(solver) else H_fits
    return ("dense" if fits(request.n, dtype, request.memory_budget) else "chunked"), ""


def choose_exact_posterior(request: Request, solver: Solver) -> tuple[bool, str]:
    """Decides whether the last solve is by a factor of H: for few points, where nothing else was asked for."""
    free = is_auto(request.settings.solver) and request.gradient_name == "auto" and solver.name != "cholesky"
    few = request.n <= EXACT_POSTERIOR_UP_TO and H_fits(request.n, torch.float64, request.memory_budget)
    exact = free and few
    return (
        exact,
        "The last solution is exact, and with it the error bars: there are few enough points." if exact else "",
    )
