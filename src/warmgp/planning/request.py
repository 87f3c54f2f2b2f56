"""What a plan is asked for: settings as they were given, checked, and the data and the machine that they are for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from warmgp.checks import check_count, check_features, check_learning_rate, is_number
from warmgp.gradient import GradientEstimator, Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel, get_kernel
from warmgp.planning.devices import available_memory, resolve_device
from warmgp.planning.gpu_pace import Pace, pace_of
from warmgp.processes import team_size
from warmgp.solvers import Solver, StoppingRule, get_solver
from warmgp.trend import Asked, check_trend, term_count

GRADIENTS = ("exact", "standard", "pathwise")
STARTS = ("auto", "ones", "climb", "sample", "near", "subset")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

MAP_INPUTS = 3
"""The most inputs of a map, where near neighbours tell what there is to know of a point: with a Matérn kernel a solve
then takes a few iterations."""

EXACT_POSTERIOR_UP_TO = 2_500
"""The most points whose variances come from a factor of H: n² operations a new point are cheap enough to have them
without the error of 64 samples. Above them hyperparameters of a map come from its near-neighbour likelihood."""

MOST_BYTES = 2**53
"""The most bytes of a budget: more than any machine has, and a number that a file may hold."""


@dataclass(frozen=True)
class Settings:
    """Holds the settings that a plan depends on, as they were given; making one refuses what no data could make right.

    Attributes
    ----------
    solver : str or Solver
    gradient : str or GradientEstimator
    n_probes : int
    n_features : int or "auto"
    tol : float
    max_epochs : float, None or "auto"
    n_steps : int or "auto"
    learning_rate : float or "auto"
    init : str or Hyperparameters
    device : str or torch.device
    dtype : str or torch.dtype
    memory_budget : int or None
        The bytes that training may use; None for what is free.
    time_limit : float or None
        The seconds that a fit may take; None for as long as it takes.
    kernel : str or Kernel
        "auto" stands for one that is chosen by the data; a plan without them is made for Matérn-3/2.
    trend : str, list of columns or None
    """

    solver: str | Solver = "auto"
    gradient: str | GradientEstimator = "auto"
    n_probes: int = 64
    n_features: int | str = "auto"
    tol: float = 0.01
    max_epochs: float | str | None = "auto"
    n_steps: int | str = "auto"
    learning_rate: float | str = "auto"
    init: str | Hyperparameters = "auto"
    device: str | torch.device = "auto"
    dtype: str | torch.dtype = "auto"
    memory_budget: int | None = None
    time_limit: float | None = None
    kernel: str | Kernel = "matern32"
    trend: Asked = None

    def __post_init__(self) -> None:
        """Raises a ValueError that names the first wrong setting, what came, and what is accepted."""
        if not is_auto(self.kernel):
            get_kernel(self.kernel, ' or "auto"')
        check_trend(self.trend)
        if not is_auto(self.solver):
            get_solver(self.solver)
        _check_gradient(self.gradient)
        check_count("n_probes", self.n_probes)
        if not is_auto(self.n_features):
            check_features(self.n_features, ' or "auto"')
        for name, none in (("max_epochs", ", None"), ("n_steps", ""), ("learning_rate", "")):
            value = getattr(self, name)
            if (isinstance(value, str) and not is_auto(value)) or (value is None and not none):
                raise ValueError(f'{name} must be a number{none} or "auto", got {value!r}')
        StoppingRule(self.tol, None if isinstance(self.max_epochs, str) else self.max_epochs)
        if not is_auto(self.n_steps):
            check_count("n_steps", self.n_steps, least=0)
        if not is_auto(self.learning_rate):
            check_learning_rate(self.learning_rate)
        _check_init(self.init)
        resolve_device(self.device)
        resolve_dtype(self.dtype)
        _check_memory_budget(self.memory_budget)
        if self.time_limit is not None and not (is_number(self.time_limit) and 0 < self.time_limit < float("inf")):
            raise ValueError(f"time_limit must be a positive number of seconds or None, got {self.time_limit!r}")
        exact = self.gradient == "exact" or getattr(self.gradient, "name", "") == "exact"
        if exact and not is_auto(self.solver) and get_solver(self.solver).name != "cholesky":
            name = get_solver(self.solver).name
            raise ValueError(f'gradient="exact" needs solver="cholesky" or "auto", got {name!r}')


@dataclass(frozen=True)
class Request:
    """Holds what is to be planned: n training points of d inputs on one machine, and the settings for them.

    Attributes
    ----------
    n, d : int
    settings : Settings
        The settings as they were given, checked.
    device : torch.device
        Where training is to run.
    memory_budget : int
        The bytes that it may use there.
    pace : Pace
        How long that device takes beside the one that rates are tabulated for.
    too_fine : str
        Why float32 does not tell the inputs apart; "" where it does.
    known_noise : bool
        Whether rows have noise that is known beside what is learned, or in its place.
    n_targets : int
        The number of targets, q, which share all else.
    chosen : Kernel or None
        The kernel that the data have chosen; None until then, and where one was given.
    processes : int
        How many processes share the work.
    """

    n: int
    d: int
    settings: Settings
    device: torch.device
    memory_budget: int
    pace: Pace = field(default_factory=Pace)
    too_fine: str = ""
    known_noise: bool = False
    chosen: Kernel | None = None
    n_targets: int = 1
    processes: int = 1

    @classmethod
    def of(
        cls, n: int, d: int, settings: Settings, too_fine: str = "", known_noise: bool = False, n_targets: int = 1
    ) -> Request:
        """Makes the request for this machine: its device, the memory that is free there, its pace, and the processes
        that share it."""
        device = resolve_device(settings.device)
        budget = settings.memory_budget
        memory = bytes_of(budget) if budget is not None else available_memory(device)
        return cls(
            n, d, settings, device, memory, pace_of(device), too_fine, known_noise, n_targets=n_targets,
            processes=team_size(),
        )  # fmt: skip

    @property
    def kernel(self) -> Kernel:
        """The kernel, also where only its name was given; Matérn-3/2 where it is still to be chosen."""
        if self.chosen is not None:
            return self.chosen
        return get_kernel("matern32" if is_auto(self.settings.kernel) else self.settings.kernel)

    @property
    def chooses_kernel(self) -> bool:
        """Whether the data choose the kernel: not where hyperparameters are given, which belong to one already."""
        return is_auto(self.settings.kernel) and not isinstance(self.settings.init, Hyperparameters)

    @property
    def is_map(self) -> bool:
        """Whether there are so few inputs that near points tell nearly everything."""
        return self.d <= MAP_INPUTS

    @property
    def trains_near(self) -> bool:
        """Whether the hyperparameters come from the near-neighbour likelihood, without a step on all points, where
        training is not exact: on a map, with a kernel for which near points tell enough, where nobody has asked for a
        start, for steps or for another gradient."""
        init = self.settings.init
        left_open = isinstance(init, str) and init in ("auto", "near") and is_auto(self.settings.n_steps)
        pathwise = self.gradient_name in ("auto", "pathwise")
        suffice = self.kernel.near_neighbours_suffice
        return self.is_map and suffice and self.n > EXACT_POSTERIOR_UP_TO and left_open and pathwise

    @property
    def given_gradient(self) -> GradientEstimator | None:
        """The estimator, where one was given as an object."""
        gradient = self.settings.gradient
        return gradient if isinstance(gradient, GradientEstimator) else None

    @property
    def gradient_name(self) -> str:
        """The name of the estimator that was given, or "auto"."""
        gradient = self.settings.gradient
        return gradient.name if isinstance(gradient, GradientEstimator) else gradient

    @property
    def n_probes(self) -> int:
        """The probes of the estimator that was given, else those of the settings."""
        given = self.given_gradient
        return int((given.n_probes if given else 0) or self.settings.n_probes)

    @property
    def n_features(self) -> int | str:
        """The random features of the estimator that was given, else those of the settings."""
        given = self.given_gradient
        return given.n_features if isinstance(given, Pathwise) else self.settings.n_features

    @property
    def trend_terms(self) -> int:
        """The systems of a trend, p, which are solved for beside those."""
        return term_count(self.settings.trend, self.d)

    @property
    def columns(self) -> int:
        """The systems of a solve: one for each target and one for each probe, q + s."""
        return self.n_targets + self.n_probes

    @property
    def others(self) -> int:
        """The systems beside that of the first target, with those of a trend."""
        return self.columns - 1 + self.trend_terms


def is_auto(value: Any) -> bool:
    """Says whether a setting is left to the planner."""
    return isinstance(value, str) and value == "auto"


def bytes_of(budget: float) -> int:
    """Returns a budget in bytes as a whole number that a file may hold."""
    return int(min(budget, MOST_BYTES))


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Returns the dtype of that name, float32 for "auto"; raises where it is another than float32 or float64."""
    if is_auto(dtype):
        return torch.float32
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f'dtype must be "auto", "float32" or "float64", got {dtype!r}')
    return DTYPES[dtype]


def _check_gradient(gradient: Any) -> None:
    if isinstance(gradient, GradientEstimator) or (isinstance(gradient, str) and gradient in ("auto", *GRADIENTS)):
        return
    names = ", ".join(map(repr, GRADIENTS))
    raise ValueError(f'gradient must be "auto", {names} or a GradientEstimator, got {gradient!r}')


def _check_init(init: Any) -> None:
    if not isinstance(init, Hyperparameters) and not (isinstance(init, str) and init in STARTS):
        names = ", ".join(f'"{name}"' for name in STARTS)
        raise ValueError(f"init must be {names} or Hyperparameters, got {init!r}")


def _check_memory_budget(budget: Any) -> None:
    if budget is None:
        return
    if not (is_number(budget) and 0 < budget < float("inf")):
        raise ValueError(f"memory_budget must be a positive number of bytes or None, got {budget!r}")
    if budget < 2**10:
        raise ValueError(f"memory_budget is in bytes, got {budget!r}: for {budget} GiB pass {budget} * 2**30")
