"""What "auto" means: device, dtype, operator, solver, estimator, budget and start, decided once before training.

A plain rule, in one place:

- the GPU if there is one;
- exact Cholesky training while n is small; conjugate gradients below 50,000 points; alternating projections with ten
  epochs a step above, as the paper does;
- float64: at low noise float32 cannot solve the systems, and nothing yet notices that in time;
- H is stored when it fits a third of the memory budget, else recomputed in tiles; in float32 on a GPU it is evaluated
  inside the products (fused), which is as fast as reading it;
- a GPU has a preconditioner of larger rank, whose pivots serve 20 steps;
- random features: half as many as points, between 2,000 and 16,000, because m of them cost about m/n of an epoch.
"""

from __future__ import annotations

import numbers
import os
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.kernels import KERNELS, Kernel
from warmgp.operators import dense_bytes, has_triton
from warmgp.solvers import AlternatingProjections, ConjugateGradients, Solver, StoppingRule, get_solver
from warmgp.solvers.base import is_number

LARGE = 50_000
EXACT_UP_TO = {"cpu": 2_000, "cuda": 8_000}
GRADIENTS = ("exact", "standard", "pathwise")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Plan:
    """Everything that "auto" decided, and why. ``print(plan)`` reads as a paragraph."""

    device: torch.device
    dtype: torch.dtype
    operator: str
    solver: Solver
    gradient: GradientEstimator
    rule: StoppingRule
    n_steps: int
    learning_rate: float
    init: str
    n_neighbours: int
    n_features: int
    memory_budget: int
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        budget = "" if self.rule.max_epochs is None else f", at most {self.rule.max_epochs:g} epochs"
        solving = f"solver {self.solver.name} to tolerance {self.rule.tol:g}{budget}"
        dtype = str(self.dtype).removeprefix("torch.")
        head = (
            f"{self.n_steps} Adam steps of {self.learning_rate:g} from {self.init} hyperparameters; "
            f"{self.gradient.name} gradient, {'solver cholesky' if self.solver.name == 'cholesky' else solving}; "
            f"{self.operator} operator in {dtype} on {self.device}."
        )
        return " ".join([head, *self.why])


def make_plan(
    n: int,
    *,
    solver: str | Solver = "auto",
    gradient: str = "auto",
    n_probes: int = 64,
    n_features: int | str = "auto",
    tol: float = 0.01,
    max_epochs: float | str | None = "auto",
    n_steps: int | str = "auto",
    learning_rate: float | str = "auto",
    init: str = "auto",
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    memory_budget: int | None = None,
    kernel: Kernel | None = None,
) -> Plan:
    """Decide every "auto" for n training points, and refuse what cannot fit.

    Raises
    ------
    ValueError
        For an unknown option, naming the argument and what is accepted.
    MemoryError
        For exact training whose factor would not fit ``memory_budget``.
    """
    why: list[str] = []
    place = resolve_device(device)
    if memory_budget is not None and not (is_number(memory_budget) and memory_budget > 0):
        raise ValueError(f"memory_budget must be a positive number of bytes or None, got {memory_budget!r}")
    budget = int(memory_budget) if memory_budget else available_memory(place)
    if gradient not in ("auto", *GRADIENTS):
        raise ValueError(f'gradient must be "auto", {", ".join(map(repr, GRADIENTS))}, got {gradient!r}')
    if solver == "auto":
        limit = EXACT_UP_TO.get(place.type, EXACT_UP_TO["cpu"])
        if gradient == "exact":
            solver = "cholesky"
        elif gradient == "auto" and n <= limit and 3 * dense_bytes(n, torch.float64) <= budget:
            solver = "cholesky"
            why.append(f"Exact Cholesky: {n:,} points are few enough.")
        else:
            solver = "cg" if n < LARGE else "ap"
            why.append(f"{solver.upper()}: iterative solves, for {n:,} points.")
    chosen: Solver
    if solver == "cg" and place.type == "cuda":
        chosen = ConjugateGradients(max(100, min(1000, n // 10)), pivot_every=20)
    elif solver == "ap":
        chosen = AlternatingProjections(_block_size(n, budget))
    else:
        chosen = get_solver(solver)
    if gradient == "auto":
        gradient = "exact" if chosen.name == "cholesky" else "pathwise"
    if gradient == "exact" and chosen.name != "cholesky":
        raise ValueError(f'gradient="exact" needs solver="cholesky" or "auto", got {chosen.name!r}')
    exact = chosen.name == "cholesky"
    if exact and 3 * dense_bytes(n, torch.float64) > budget:
        need, have = 3 * dense_bytes(n, torch.float64) / 2**30, budget / 2**30
        raise MemoryError(
            f'solver="cholesky" needs about {need:.1f} GiB for {n:,} points and the memory budget is {have:.1f} GiB: '
            f'use solver="cg" or "ap", or raise memory_budget'
        )
    number = _dtype(dtype)
    stored = not exact and dense_bytes(n, number) <= budget / 3  # Cholesky keeps its factor, not H
    features = _n_features(n_features, n)
    estimator: GradientEstimator
    if gradient == "exact":
        estimator = Exact()
    else:
        estimator = Standard(n_probes) if gradient == "standard" else Pathwise(n_probes, features)
    large = n >= LARGE
    if isinstance(max_epochs, str):
        _only_auto("max_epochs", max_epochs)
        max_epochs = 10.0 if large and not exact else None
    if isinstance(n_steps, str):
        _only_auto("n_steps", n_steps)
        n_steps = 30 if large else 100
    if isinstance(learning_rate, str):
        _only_auto("learning_rate", learning_rate)
        learning_rate = 0.03 if large else 0.1
    if init not in ("auto", "ones", "subset", "given"):
        raise ValueError(f'init must be "auto", "ones", "subset" or Hyperparameters, got {init!r}')
    if init == "auto":
        init = "subset" if large else "ones"
    return Plan(
        device=place,
        dtype=number,
        operator=_operator(place, number, stored, exact, kernel),
        solver=chosen,
        gradient=estimator,
        rule=StoppingRule(tol, max_epochs),
        n_steps=n_steps,
        learning_rate=learning_rate,
        init=init,
        n_neighbours=min(n, 10_000 if place.type == "cuda" else 1_000),
        n_features=features,
        memory_budget=budget,
        why=tuple(why),
    )


def _operator(place: torch.device, number: torch.dtype, stored: bool, exact: bool, kernel: Kernel | None) -> str:
    """Which operator: the fused one where it exists and something is multiplied."""
    fusable = kernel is None or kernel in KERNELS.values()
    if not exact and place.type == "cuda" and number == torch.float32 and fusable and has_triton():
        return "fused"
    return "dense" if stored else "chunked"


def _block_size(n: int, budget: int) -> int:
    """Rows per block of AP: 1,000, or fewer where the blocks' float64 factors would take over half of the memory."""
    return max(64, min(1000, budget // (2 * 8 * n) // 8 * 8))


def available_memory(device: torch.device) -> int:
    """Free bytes on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [
        _number_in("/proc/meminfo", r"MemAvailable:\s+(\d+) kB", 1024),
        _number_in("/sys/fs/cgroup/memory.max", r"(\d+)"),
    ]
    known = [bytes_ for bytes_ in found if bytes_]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return 4 * 2**30


def _number_in(path: str, pattern: str, unit: int = 1) -> int | None:
    """The number that the pattern finds in a system file, times the unit; None where there is none."""
    try:
        match = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return unit * int(match[1]) if match else None


def resolve_device(device: str | torch.device) -> torch.device:
    """The device of that name, "auto" being the GPU if there is one; raises where it is not to be had."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device must be "auto" or a torch device such as "cpu" or "cuda", got {device!r}') from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f'device={device!r} but torch sees no CUDA device: use device="cpu" or "auto"')
    return place


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    if dtype == "auto":
        return torch.float64
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f'dtype must be "auto", "float32" or "float64", got {dtype!r}')
    return DTYPES[dtype]


def _n_features(n_features: int | str, n: int) -> int:
    if n_features == "auto":
        return min(16_000, max(2_000, n // 4 * 2))
    if isinstance(n_features, bool) or not isinstance(n_features, numbers.Integral) or n_features < 2 or n_features % 2:
        raise ValueError(f'n_features must be "auto" or an even integer of at least 2, got {n_features!r}')
    return int(n_features)


def _only_auto(name: str, value: str) -> None:
    if value != "auto":
        raise ValueError(f'{name} must be a number or "auto", got {value!r}')
