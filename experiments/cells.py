"""Every run of the paper, as data: what is trained, on what, and how.

A :class:`Run` is one training. What distinguishes it is its fields; what the paper fixes per dataset (block sizes,
SGD's rates, steps, start) is looked up in :data:`SETTINGS`. :data:`STUDIES` names the lists that belong together; runs
that two studies share are the same run and are trained once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from warmgp.solvers import AlternatingProjections, Cholesky, ConjugateGradients, Solver, StochasticGradientDescent

SOLVERS = ("cg", "ap", "sgd")
ESTIMATORS = ("standard", "pathwise")
BUDGETS = (10.0, 20.0, 30.0, 40.0, 50.0)
PROBES = (4, 8, 16, 32, 64, 128, 256)
FEATURES = (500, 1000, 2000, 4000, 8000, 16000)
LARGE_BUDGET = 10.0
NEAR = "near"


@dataclass(frozen=True)
class Settings:
    """What the paper fixes for a dataset."""

    sgd_rate: float | str
    block_size: int = 1000
    batch_size: int = 500
    rank: int = 100
    n_steps: int = 100
    learning_rate: float = 0.1
    large: bool = False  # ten epochs a solve, start on neighbourhoods, test scores at every step
    n_neighbours: int = 10_000


SETTINGS: dict[str, Settings] = {
    "pol": Settings(30.0),
    "elevators": Settings(20.0),
    "bike": Settings(30.0),
    "protein": Settings(20.0, block_size=2000),
    "keggdirected": Settings(20.0, block_size=2000),
    "3droad": Settings(10.0, n_steps=30, learning_rate=0.03, large=True),
    "song": Settings(50.0, n_steps=30, learning_rate=0.03, large=True),
    "buzz": Settings(10.0, n_steps=30, learning_rate=0.03, large=True),
    # 391,387 points of height by longitude and latitude: a real set of 3droad's size, and not the paper's
    "terrain": Settings("auto", n_steps=30, learning_rate=0.03, large=True),
    "houseelectric": Settings(50.0, n_steps=15, learning_rate=0.03, large=True),
    # made-up data of a few hundred points, on which everything can be run in minutes
    "toy-quiet": Settings("auto", block_size=50, batch_size=50, rank=20, n_steps=20),
    "toy-noisy": Settings("auto", block_size=50, batch_size=50, rank=20, n_steps=20),
    "toy-large": Settings(
        "auto", block_size=50, batch_size=50, rank=20, n_steps=8, learning_rate=0.03, large=True, n_neighbours=100
    ),
}
SMALL_SETS = ("pol", "elevators", "bike", "protein", "keggdirected")
LARGE_SETS = ("3droad", "song", "buzz", "houseelectric", "terrain")
TOY_SETS = ("toy-quiet", "toy-noisy")


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes
    ----------
    dataset, split
    solver : "cg", "ap", "sgd", "exact" or "near"
        The last is conjugate gradients with near neighbours, which are not the paper's.
    estimator : "standard", "pathwise" or "exact"
    warm : bool
        Whether solves start from the last solution.
    budget : float or None
        Epochs a solve may take; None until the tolerance.
    n_probes, n_features : int
    prior : "plain", "features", "exact" or "product"
        Where the prior functions of the pathwise estimator come from: random features as in the paper, with more
        frequencies in the tail of the spectrum, exact samples, or features of another kernel
        (:mod:`experiments.product_prior`).
    """

    dataset: str
    split: int = 0
    solver: str = "cg"
    estimator: str = "pathwise"
    warm: bool = True
    budget: float | None = None
    n_probes: int = 64
    n_features: int = 2000
    prior: str = "plain"

    kind = "training"

    @property
    def key(self) -> str:
        """The run's name, and its file's: what differs from a cell of table 1 comes last."""
        start = "warm" if self.warm else "cold"
        cell = ["exact"] if self.solver == "exact" else [self.solver, self.estimator, start]
        more = [
            f"{self.budget:g}epochs" if self.budget else "",
            f"{self.n_probes}probes" if self.n_probes != 64 else "",
            f"{self.n_features}features" if self.n_features != 2000 else "",
            {"plain": "", "features": "spread", "exact": "exactprior", "product": "productprior"}[self.prior],
        ]
        return "_".join([f"{self.dataset}-{self.split}", *cell, *filter(None, more)])

    @property
    def settings(self) -> Settings:
        return SETTINGS[self.dataset]

    def make_solver(self) -> Solver:
        """The solver with the paper's options for this dataset."""
        own = self.settings
        if self.solver == "exact":
            return Cholesky()
        if self.solver == "cg":
            return ConjugateGradients(own.rank)
        if self.solver == NEAR:
            return ConjugateGradients(own.rank, pivot_every=20, neighbours=30)
        if self.solver == "ap":
            return AlternatingProjections(own.block_size)
        return StochasticGradientDescent(own.batch_size, own.sgd_rate)


@dataclass(frozen=True)
class _OfASplit:
    """What there is one of for a split."""

    dataset: str
    split: int = 0

    kind = ""

    @property
    def key(self) -> str:
        return f"{self.dataset}-{self.split}_{self.kind}"


class Start(_OfASplit):
    """The initial hyperparameters of a large set: the mean of exact trainings on neighbourhoods."""

    kind = "start"


class Distances(_OfASplit):
    """How far solves start from their solutions, at steps along exact training; see :mod:`experiments.measures`."""

    kind = "distances"


class Section(_OfASplit):
    """The quadratic of a solve in the plane of its two steepest directions; see :mod:`experiments.measures`."""

    kind = "section"


Item = Run | Start | Distances | Section


def exact(dataset: str, split: int) -> Run:
    return Run(dataset, split, "exact", "exact", warm=False)


def cells(dataset: str, split: int, budget: float | None = None) -> Iterator[Run]:
    """The twelve cells of table 1, cheapest kinds first: warm before cold, pathwise before standard."""
    for solver in SOLVERS:
        for warm in (True, False):
            for estimator in reversed(ESTIMATORS):
                yield Run(dataset, split, solver, estimator, warm, budget)


def table1(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """Exact training and the twelve cells, solved to the tolerance."""
    for dataset in datasets:
        for split in splits:
            yield exact(dataset, split)
            yield from cells(dataset, split)


def budgets(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """The twelve cells under budgets of 10 to 50 epochs a solve."""
    for dataset in datasets:
        for split in splits:
            for budget in BUDGETS:
                yield from cells(dataset, split, budget)


def large(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """Large sets: the pathwise estimator, ten epochs a solve, cold and warm."""
    for dataset in datasets:
        for split in splits:
            yield Start(dataset, split)
            for solver in ("ap", "cg", "sgd"):
                for warm in (True, False):
                    yield Run(dataset, split, solver, "pathwise", warm, LARGE_BUDGET)


def solved(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """Large sets solved to the tolerance: what a budget costs there, and what the features do."""
    for dataset in datasets:
        for split in splits:
            yield Start(dataset, split)
            yield Run(dataset, split, NEAR)
            yield Run(dataset, split, NEAR, prior="features")
            yield Run(dataset, split, NEAR, "standard")


def probes(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """The number of probe vectors, which is also the number of posterior samples."""
    for dataset in datasets:
        for split in splits:
            for n_probes in PROBES:
                yield Run(dataset, split, "ap", n_probes=n_probes)


def features(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """The number of random features, drawn plainly and with more in the tail, up to exact prior samples."""
    for dataset in datasets:
        for split in splits:
            yield exact(dataset, split)
            for n_features in FEATURES:
                yield Run(dataset, split, n_features=n_features)
                yield Run(dataset, split, n_features=n_features, prior="features")
            yield Run(dataset, split, prior="exact")


def spectrum(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """Random features of the kernel, and of the product of one-dimensional kernels."""
    for dataset in datasets:
        for split in splits:
            yield exact(dataset, split)
            yield Run(dataset, split)
            yield Run(dataset, split, prior="product")


def distances(datasets: Iterable[str], splits: Iterable[int]) -> Iterator[Item]:
    """Initial distances, top eigenvalues and noise along exact training, and the section of one quadratic."""
    for dataset in datasets:
        for split in splits:
            yield exact(dataset, split)
            yield Distances(dataset, split)
            yield Section(dataset, split)


STUDIES = {
    "table1": (table1, SMALL_SETS, TOY_SETS),
    "budgets": (budgets, SMALL_SETS, TOY_SETS[:1]),
    "large": (large, LARGE_SETS, ("toy-large",)),
    "solved": (solved, ("terrain",), ("toy-large",)),
    "probes": (probes, ("pol",), TOY_SETS[:1]),
    "features": (features, ("pol", "elevators", "bike", "protein"), TOY_SETS[1:]),
    "spectrum": (spectrum, ("pol", "elevators", "bike", "protein"), TOY_SETS[1:]),
    "distances": (distances, ("pol", "elevators"), TOY_SETS),
}
"""Name: (list of runs, the paper's datasets, made-up ones for the small version)."""


def describe(item: Item) -> dict[str, Any]:
    """An item as JSON, with what its dataset fixes."""
    return {"kind": item.kind, **asdict(item), "settings": asdict(SETTINGS[item.dataset])}
