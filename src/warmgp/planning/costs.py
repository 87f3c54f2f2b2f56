"""What training costs, from rates measured on this machine in a fraction of a second, or tabulated for a GPU.

A step is a few operations of n² or n³ work each. :func:`measured_rates` times the library's own code for each of them
at a small n; the models below scale that up. How many iterations a solve takes is not known beforehand: what is assumed
is said beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch

from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators import make_operator
from warmgp.planning.gpu_pace import Pace
from warmgp.planning.request import Request
from warmgp.planning.threads import limited_threads, worth_now
from warmgp.solvers.triangular import inverse_from_factor, solve_with_factor
from warmgp.training.kernel_choice import work_of_choice
from warmgp.training.local_start import LocalStart
from warmgp.training.near_start import NearStart

SIZE = 1500
"""Points that rates are measured with."""

ITERATIONS = 3
"""Iterations of conjugate gradients with a whole factor of an earlier step, in a warm-started step. Seen: 1 to 8."""

STEPS_PER_FACTOR = 9
"""Steps that one whole factor serves. Seen: 7 to 12 while the noise falls, many more at the end."""

AP_EPOCHS = 40
"""Epochs of AP to a tolerance of 0.01, in a warm-started step. Seen: 5 at first, 200 at low noise."""

CG_EPOCHS = 60
"""Epochs of conjugate gradients with a low-rank preconditioner, likewise. Seen: 10 to 140."""

NEAR_EPOCHS, NEAR_EPOCHS_OF_MANY_INPUTS = 4, 20
"""Epochs of conjugate gradients with near neighbours, likewise: on a map, where 2 to 6 were seen, and with many inputs,
where 10 to 40 were seen from zero."""

BLOCK_WORK = {True: 2.6, False: 0.3}
"""The factors of blocks beside the Cholesky factor and the inverse that ``Rates.exact`` is of, by whether it is on a
GPU: inverses of many small blocks by halves, or factors alone."""

RAP_EPOCHS, FIRST_RAP_EPOCHS, LAST_RAP_EPOCHS = 5, 4, {True: 12, False: 7}
"""Epochs of recombined projections in a warm-started step, those that the first step has more, and those of the last
solve by whether it is on a GPU, where there are more points. Seen: 2 to 6, 2 to 14, and 6 to 20."""

SWEEP, SWEEP_CALL = {True: 1.4, False: 1.05}, {True: 8e-3, False: 0.0}
"""How much longer a sweep takes than a product, as its columns are gathered, and seconds of its own, for trees and
launches, by whether it is on a GPU. On two cores a sweep of 65,800 points took 14.1 s, a product 14.7."""

GATHERED = 2.0
"""How much longer a sweep over a stored H takes than a product with it: scattered rows are copied. On two cores 7.2 s
instead of 3.3 (53,700 points)."""

BLOCK_CALL = {True: 1.2e-4, False: 0.0}
"""Seconds in which the host launches what a block of a sweep needs, likewise, where about half are replayed from a
graph: the device works meanwhile."""

WIDER = {28: 1.0, 60: 1.5, 124: 2.5}
"""How much longer a product takes on a GPU with up to so many inputs: distances are products of rows of 16, 32, 64 or
128 numbers. Seen on an H200: 1.6, 1.8, 2.4 and 4.1 ps a pair with 9, 26, 41 and 61 inputs."""

DOUBLE = {True: 8.0, False: 2.0}
"""How many times longer a product takes in float64, by whether it is on a GPU."""

GROUP_WORK = {True: 1.0, False: 2.5}
"""The likelihood of a small group of points and its gradient, beside exact training, by whether it is on a GPU."""

TERM_WORK = 2.5
"""The likelihood of a point given 30 near ones and its gradient, beside a row of their sparse factor."""

CHOICE_TERM = 0.4
"""The same for a term of 20 near points in the choice of a kernel, whose climbs end sooner than they may. Seen on one
core: 0.4 and 0.6 s for 5,000 and 20,000 points of a map, and 4 s for the sample of 800 of 5,000 points elsewhere."""

STEPS_PER_SEARCH = 15
"""Steps between two searches for neighbours. Seen: 10 to 30."""


@dataclass(frozen=True)
class Rates:
    """Holds seconds per unit of work on one device, for one number of inputs and of columns."""

    build: float  # evaluate and store H in float32, per n²
    product: float  # stored H times the columns, per n²
    recompute: float  # the same with H recomputed, per n²
    substitute: float  # two triangular solves for the columns, per n²
    gradient: float  # one quadratic gradient, per n²
    factor: float  # Cholesky in float32, per n³
    exact: float  # Cholesky and inverse in float64, per n³
    exact_pass: float  # H and the gradient in float64, per n²
    feature: float  # one random feature at one point, for all columns
    search: float  # for near neighbours, per n²
    sparse: float  # a factor from 30 neighbours and rank 100, per n
    apply: float  # that factor to the columns, per n
    call: float = 0.003  # what a step costs at any size

    def at(self, pace: Pace) -> Rates:
        """Returns the rates of a device of that pace, from those of an H200; a call is the CPU's work and stays."""
        slower = {
            **dict.fromkeys(("build", "product", "recompute", "gradient", "search"), pace.half),
            **dict.fromkeys(("substitute", "factor", "feature", "apply"), pace.single),
            **dict.fromkeys(("exact", "exact_pass", "sparse"), pace.double),
        }
        return replace(self, **{name: times * getattr(self, name) for name, times in slower.items()})


TYPICAL = Rates(
    build=2e-9, product=1e-9, recompute=2e-9, substitute=1.4e-9, gradient=2e-9, factor=3e-12, exact=2e-11,
    exact_pass=7e-9, feature=2e-9, search=1e-9, sparse=3e-5, apply=4e-6, call=0.006,
)  # fmt: skip
"""The rates of two cores of a server with AVX-512, rounded: for sizes where measuring takes longer than training."""

H200 = Rates(
    build=1.5e-12, product=1.4e-12, recompute=1.4e-12, substitute=3e-12, gradient=2e-12, factor=2e-14, exact=3e-14,
    exact_pass=5e-11, feature=1e-12, search=1.8e-11, sparse=5e-7, apply=1e-7, call=0.008,
)  # fmt: skip
"""The rates of one NVIDIA H200 for 65 columns, from benchmarks/results; for other cards see :meth:`Rates.at`. By them
100 steps of conjugate gradients with whole factors are estimated at 1.8 s for pol (took 1.3), 22 for protein (13 to
19) and 26 for keggdirected (15); exact training at 10 s (11), 221 s (213) and 268 s (252)."""


def usual_rates(request: Request) -> Rates:
    """Returns the rates of the device's kind without measuring: for decisions that should be the same every time."""
    if request.device.type != "cpu":
        return H200.at(request.pace)
    cores = torch.get_num_threads() / 2  # the table is of two
    return TYPICAL.at(Pace(1 / cores, 1 / cores, 1 / cores))


def rates_for(request: Request, threads: int) -> Rates:
    """Returns the rates for an estimate: measured on a CPU, with the threads of the plan that are worth it now, for all
    but the smallest n; tabulated elsewhere."""
    if request.device.type != "cpu":
        return H200.at(request.pace)
    if request.n <= SIZE // 3:
        return TYPICAL
    what = request.kernel, request.d, request.columns, worth_now(threads)
    try:
        return measured_rates(*what)
    except TypeError:  # a kernel that cannot be hashed, and so not remembered
        return measured_rates.__wrapped__(*what)


def for_inputs(rates: Rates, d: int, *, on_gpu: bool) -> Rates:
    """Returns the rates with d inputs: tabulated ones are of few, measured ones of d."""
    if not on_gpu:
        return rates
    slower = next((times for most, times in WIDER.items() if d <= most), max(WIDER.values()) * d / max(WIDER))
    return replace(rates, recompute=slower * rates.recompute, gradient=slower * rates.gradient)


@lru_cache(maxsize=32)
def measured_rates(kernel: Kernel, d: int, columns: int, threads: int) -> Rates:
    """Times each operation on this CPU with so many threads; rates are kept for the life of the process.

    Of one thread the time counts in which it worked, not that in which others had its core: so rates are the same on a
    busy machine, where a fit takes longer by what others take.
    """
    with limited_threads(threads):
        return _rates(kernel, d, columns, time.thread_time if threads == 1 else time.perf_counter)


def _rates(kernel: Kernel, d: int, columns: int, clock: Callable[[], float]) -> Rates:
    """Times each operation on this CPU by that clock."""
    seconds = partial(_seconds, clock=clock)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, d, generator=generator)
    V = torch.randn(SIZE, columns, generator=generator)
    theta = Hyperparameters.from_vector(torch.tensor([0.5, 1.0, *[float(d) ** 0.5] * d], dtype=torch.float64))
    dense, chunked = make_operator("dense", x, kernel, theta), make_operator("chunked", x, kernel, theta)
    double = dense.in_float64()
    H, H64 = dense.H, dense.in_float64("dense").H
    L, L64 = torch.linalg.cholesky(H), torch.linalg.cholesky(H64)
    inverse = inverse_from_factor(L64)
    prior = FeaturePrior.draw(kernel, d, 1000, columns, generator=generator, dtype=torch.float32)
    square, cube = SIZE**2, SIZE**3
    weights = torch.ones(columns)
    used = make_operator("dense", x, kernel, theta)
    product = seconds(lambda: dense.matmul(V)) / square
    pace = product / TYPICAL.product  # for what would take long to measure

    def build() -> torch.Tensor:
        nonlocal used
        used = used.moved_to(theta)
        return used.H

    return Rates(
        build=seconds(build) / square,
        product=product,
        recompute=seconds(lambda: chunked.matmul(V)) / square,
        substitute=seconds(lambda: solve_with_factor(L, V)) / square,
        gradient=seconds(lambda: chunked.quadratic_gradient(V, V, weights)) / square,
        factor=seconds(lambda: torch.linalg.cholesky_ex(H)) / cube,
        exact=seconds(lambda: inverse_from_factor(torch.linalg.cholesky_ex(H64)[0])) / cube,
        exact_pass=(
            seconds(lambda: dense.in_float64("dense").H)
            + seconds(lambda: double.gradient_from_weights(lambda a, b: inverse[a, b], 1.0))
        )
        / square,
        feature=seconds(lambda: prior.evaluate(x, theta)) / (SIZE * 1000),
        search=TYPICAL.search * pace,
        sparse=TYPICAL.sparse * pace,
        apply=TYPICAL.apply * pace,
    )


def _seconds(function: Callable[[], object], clock: Callable[[], float], repeats: int = 2) -> float:
    """Returns the least seconds of a few calls. The first counts only where it was so long that no other follows."""
    times = []
    for _ in range(repeats + 1):
        began = clock()
        function()
        times.append(clock() - began)
        if times[-1] > 0.25:
            break
    return min(times[1:] or times)


# -- whole trainings -------------------------------------------------------------------------------------------------
def exact_seconds(rates: Rates, n: int, steps: int) -> float:
    """Estimates the seconds of exact training: a factor and an inverse a step."""
    return (steps + 1) * (n**3 * rates.exact + n**2 * rates.exact_pass + 1.5 * rates.call)


def factor_cg_seconds(rates: Rates, n: int, steps: int, features: int, factor_after: int) -> float:
    """Estimates the seconds of conjugate gradients with whole factors, the first after ``factor_after`` iterations."""
    step = (
        n**2 * (rates.build + (2 + ITERATIONS) * rates.product + (1 + ITERATIONS) * rates.substitute + rates.gradient)
        + n * features * rates.feature
        + rates.call
    )
    factors = 1 + steps // STEPS_PER_FACTOR
    return (steps + 1) * step + factors * n**3 * rates.factor + factor_after * n**2 * rates.product


def epochs_seconds(rates: Rates, n: int, steps: int, features: int, epochs: float, *, stored: bool) -> float:
    """Estimates the seconds of any solver that takes so many epochs a step, and two more for residuals."""
    product = rates.product if stored else rates.recompute
    step = n**2 * ((epochs + 2) * product + rates.gradient) + n * features * rates.feature + rates.call
    return (steps + 1) * (step + n**2 * rates.build * stored)


def near_cg_seconds(rates: Rates, n: int, steps: int, features: int, epochs: float, *, stored: bool) -> float:
    """Estimates the seconds with near neighbours: so many epochs and a sparse factor a step, a search now and then."""
    step = n * (rates.sparse + epochs * rates.apply)
    searches = 1 + steps // STEPS_PER_SEARCH
    return (
        epochs_seconds(rates, n, steps, features, epochs, stored=stored)
        + (steps + 1) * step
        + searches * n**2 * rates.search
    )


def local_seconds(rates: Rates, n: int, how: LocalStart, *, on_gpu: bool) -> float:
    """Estimates the seconds of a start by groups of near points: a search, a factor and a gradient for each."""
    g = min(how.size, n)
    group = GROUP_WORK[on_gpu] * (g**3 * rates.exact + g**2 * rates.exact_pass) + n * rates.search
    return how.n_steps * (how.groups * group + rates.call)


def near_seconds(rates: Rates, n: int, how: NearStart) -> float:
    """Estimates the seconds in which the near-neighbour likelihood of a map is climbed."""
    climbs = (how.terms, how.neighbours, how.evaluations), (
        how.rough_terms, how.rough_neighbours, how.rough_evaluations
    )  # fmt: skip
    return sum(min(n, terms) * times * TERM_WORK * rates.sparse * (m / 30) ** 2 for terms, m, times in climbs)


def choice_seconds(rates: Rates, n: int, *, is_map: bool, on_gpu: bool) -> float:
    """Estimates the seconds in which a kernel is chosen: by terms of near points on a map, by one sample elsewhere."""
    groups, size, evaluations = work_of_choice(n, is_map=is_map, on_gpu=on_gpu)
    terms, sample = CHOICE_TERM * rates.sparse * (size / 30) ** 2, size**3 * rates.exact + size**2 * rates.exact_pass
    return evaluations * ((groups * terms if groups > 1 else sample) + rates.call)


def projections_seconds(
    rates: Rates, n: int, steps: int, features: int, epochs: float, sweep: float, *, on_gpu: bool
) -> float:
    """Estimates the seconds of recombined projections: so many epochs a step, of which each is a sweep."""
    step = epochs * sweep + n**2 * (2 * rates.recompute + rates.gradient) + n * features * rates.feature + rates.call
    return steps * step + LAST_RAP_EPOCHS[on_gpu] * sweep + 2 * n**2 * rates.recompute


def stored_rates(rates: Rates) -> Rates:
    """Returns the rates of projections where H is stored: nothing is computed again, but rows are copied."""
    return replace(rates, recompute=GATHERED * rates.product)


def sweep_seconds(rates: Rates, n: int, block_size: int, *, on_gpu: bool) -> float:
    """Estimates the seconds of a sweep of recombined projections: a product, factors of all blocks, and calls."""
    b = min(block_size, n)
    product = max(SWEEP[on_gpu] * n**2 * rates.recompute, n / b * BLOCK_CALL[on_gpu])
    return SWEEP_CALL[on_gpu] + product + BLOCK_WORK[on_gpu] * n * b**2 * rates.exact
