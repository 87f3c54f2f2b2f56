"""What several processes make of a plan: larger blocks, and less time for what they divide.

Products with H, gradients, prior functions and the factors of small blocks are divided; a whole factor of H, near
neighbours, the choice of a kernel and the start are not. What they exchange takes its own time.
"""

from __future__ import annotations

from dataclasses import replace

from warmgp.planning.costs import Rates
from warmgp.planning.request import Request
from warmgp.solvers import AlternatingProjections, RecombinedProjections, Solver, StochasticGradientDescent

EXCHANGE = {True: 5e-5, False: 2e-4}
"""Seconds of one exchange, by whether it is between GPUs: assumed."""

BYTES_A_SECOND = {True: 4e10, False: 1e9}
"""What reaches a process in a second, likewise: that of a network."""

OF_BLOCK = {"rap": 2, "ap": 3, "sgd": 2}
"""Exchanges for each block, or batch, of rows."""

OF_PRODUCT = 4
"""Exchanges of an iteration of conjugate gradients: what is multiplied, and three sums."""


def choose_blocks(request: Request, solver: Solver) -> tuple[Solver, str]:
    """Returns the solver for so many processes, with the reason: where blocks are not a user's own they are larger,
    because an exchange costs the same for every block.

    Blocks of alternating projections, whose factors are kept, are as many times as large. Those of recombined
    projections are factored in every sweep, which costs n b²: with 2 n/b exchanges that is least for b³ in proportion
    to the number of processes.
    """
    size = request.processes
    if size == 1:
        return solver, ""
    reason = f"{size} processes share products, blocks and gradients; rank 0 alone chooses a kernel and starts."
    if not isinstance(request.settings.solver, str) or not isinstance(
        solver, AlternatingProjections | RecombinedProjections
    ):
        return solver, reason
    times = size if isinstance(solver, AlternatingProjections) else size ** (1 / 3)
    block = max(solver.block_size, min(round(times * solver.block_size), request.n // (2 * size)))
    return replace(solver, block_size=block), f"{reason} Blocks have {block:,} rows, so that there are fewer exchanges."


def shared_rates(
    rates: Rates, solver: Solver, n: int, columns: int, processes: int, *, itemsize: int, on_gpu: bool
) -> Rates:
    """Returns the rates of one of several processes in the steps of a solver on n points: what is divided takes less,
    and a product with H has what is exchanged meanwhile. An exact solver does all of it on every process."""
    if processes == 1 or solver.leaves_factor:
        return rates
    count: float = OF_PRODUCT
    if isinstance(solver, AlternatingProjections | RecombinedProjections):
        count = OF_BLOCK[solver.name] * n / min(n, solver.block_size)
    elif isinstance(solver, StochasticGradientDescent):
        count = OF_BLOCK[solver.name] * n / min(n, solver.batch_size)
    moved = 2 * n * columns * itemsize / BYTES_A_SECOND[on_gpu]  # at most: a residual and a step of every row
    exchanged = (count * EXCHANGE[on_gpu] + moved) / n**2
    divided = {name: getattr(rates, name) / processes for name in ("gradient", "feature", "exact")}
    return replace(
        rates, product=rates.product / processes + exchanged, recompute=rates.recompute / processes + exchanged,
        **divided,
    )  # fmt: skip
