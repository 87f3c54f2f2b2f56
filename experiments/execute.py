"""Do one item of a study: train, score, and return the record that the store keeps."""

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from experiments.cells import Distances, Item, Run, Section, Start, describe, exact
from experiments.common import exact_scores, machine, sample_scores
from experiments.data import split_of
from experiments.measures import initial_distances, section
from experiments.product_prior import ProductPathwise
from experiments.store import Record, Store
from warmgp import ConvergenceWarning, GPRegressor, Hyperparameters
from warmgp.data.datasets import Split
from warmgp.files.format import FileError
from warmgp.files.plan_json import plan_to_json
from warmgp.gradient import Pathwise
from warmgp.kernels import Matern32
from warmgp.operators import DenseOperator
from warmgp.posterior import Posterior
from warmgp.solvers import StoppingRule
from warmgp.training.initialisation import subset_heuristic
from warmgp.training.loop import train as train_with
from warmgp.training.state import StepRecord, TrainingOptions, TrainingState

EXACT_SCORES_UP_TO = {"cuda": 50_000, "cpu": 6_000}
NOISE_FLOOR = 1e-4

Trained = tuple[Posterior, bool, Sequence[StepRecord], dict[str, Any]]
"""A posterior, whether its solve converged, the steps that led to it, and the plan behind them."""


@dataclass(frozen=True)
class Place:
    """Where and how long runs may work.

    Attributes
    ----------
    device : str
    folder : str or None
        Of the data.
    store : Store
    deadline : float
        On ``time.monotonic()``'s clock: a run that would pass it is left for another time.
    cap : float
        Seconds of training a run may take: one that would take longer is recorded as cut, with how far it came.
    sharing : int
        How many runners work on the device at once, this one included. Recorded: seconds are longer then.
    """

    device: str
    folder: str | None
    store: Store
    deadline: float = math.inf
    cap: float = math.inf
    sharing: int = 1


class Missing(Exception):  # noqa: N818 (nothing is wrong: another record has to come first)
    """The item needs a record that the store does not have."""


class Unfinished(Exception):  # noqa: N818
    """The deadline came first; a checkpoint has what was done, where there is one."""


class _Capped(Exception):  # noqa: N818
    """The run has used its time."""


class Clock:
    """A callback that ends a training in time, expecting the next step to take as long as the last.

    After the last step there is a solve and the scoring to come, for which there must be as much time.
    """

    def __init__(self, place: Place, n_steps: int) -> None:
        self.place, self.n_steps = place, n_steps
        self.history: Sequence[StepRecord] = ()
        self.last = time.monotonic()

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        self.history = state.history
        now = time.monotonic()
        took, self.last = now - self.last, now
        if state.step < self.n_steps and state.elapsed + record.step_seconds > self.place.cap:
            raise _Capped
        if now + 1.5 * took > self.place.deadline:
            raise Unfinished


def execute(item: Item, place: Place) -> Record:
    """The record of an item."""
    if place.device == "cuda":  # what the last item left is not free until then
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    data = split_of(item.dataset, item.split, place.folder)
    needed = needs(item)
    if needed is not None and not is_finished(place.store.get(needed)):
        raise Missing(needed.key)
    where = machine(place.device)
    if place.sharing > 1:
        where["device"] += f", shared by {place.sharing}"
    where["device"] = place.store.places(item, where["device"])
    if isinstance(item, Run):
        found = train(item, data, place)
    elif isinstance(item, Start):
        found = start(item, data, place)
    else:
        found = measure(item, data, place)
    return {"run": describe(item), "seed": item.split, "machine": where, **found}


def peak_gib(place: Place) -> float | None:
    """The most of a GPU's memory that was in use since the item began."""
    return torch.cuda.max_memory_allocated() / 2**30 if place.device == "cuda" else None


def is_finished(record: Record | None) -> bool:
    return record is not None and record["outcome"] == "finished"


def needs(item: Item) -> Item | None:
    """The item whose record this one starts from."""
    if isinstance(item, Run):
        return Start(item.dataset, item.split) if item.settings.large else None
    return None if isinstance(item, Start) else exact(item.dataset, item.split)


def train(run: Run, data: Split, place: Place) -> Record:
    """One training with its test scores."""
    clock = Clock(place, run.settings.n_steps)
    how = with_exact_prior if run.prior == "exact" else fit
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            posterior, converged, history, plan = how(run, data, place, clock)
        except _Capped:
            return {
                "outcome": "cut", "cap_seconds": place.cap, **progress(clock.history), "peak_gib": peak_gib(place),
            }  # fmt: skip
    if len(history) < run.settings.n_steps:  # a step failed, and the model of those before it was kept
        why = "; ".join(str(warning.message) for warning in caught if warning.category is ConvergenceWarning)
        return {"outcome": "failed", "why": why, **progress(history)}
    peak = peak_gib(place)  # of training: exact scores may take more
    dtype, device = posterior.x.dtype, posterior.x.device
    x_test, y_test, y = (torch.as_tensor(part).to(device) for part in (data.x_test, data.y_test, data.y_train))
    affordable = len(y) <= EXACT_SCORES_UP_TO[place.device]
    return {
        "outcome": "finished",
        **progress(history),
        "theta": posterior.theta.vector.tolist(),
        "plan": plan,
        "dtype": str(dtype).removeprefix("torch."),
        "final_converged": converged,
        "test": sample_scores(posterior, x_test.to(dtype), y_test),
        "test_exact": exact_scores(posterior, y, x_test, y_test) if affordable else None,
        "peak_gib": peak,
    }


def fit(run: Run, data: Split, place: Place, clock: Clock) -> Trained:
    """Train as a user would, with a checkpoint; without one where the estimator is not the library's own."""
    own, checkpoint = run.settings, place.store.checkpoint(run)
    model = GPRegressor(
        kernel="matern32",  # the paper's
        solver=run.make_solver(),
        gradient=estimator_of(run),
        solver_warm_start=run.warm,
        n_probes=run.n_probes,
        n_features=run.n_features,
        tol=0.01,
        max_epochs=run.budget,
        n_steps=own.n_steps,
        learning_rate=own.learning_rate,
        init=given_start(run, place) if own.large else "ones",
        noise_floor=NOISE_FLOOR,
        standardize=False,  # the loader has done it, with the training split's mean and deviation
        device=place.device,
        checkpoint=None if run.prior == "product" else checkpoint,
        checkpoint_every=1 if own.large else 10,
        callbacks=(clock,),
        random_state=run.split,
    )
    held_out = (data.x_test, data.y_test) if own.large else None
    try:
        model.fit(data.x_train, data.y_train, held_out)
    except FileError:  # a checkpoint of other settings or another device, or one that is damaged
        checkpoint.unlink()
        model.fit(data.x_train, data.y_train, held_out)
    plan = {"options": repr(model.plan_)} if run.prior == "product" else plan_to_json(model.plan_)
    return model.posterior_, model.converged_, model.history_, plan


def estimator_of(run: Run) -> str | Pathwise:
    if run.estimator != "pathwise":
        return run.estimator
    if run.prior == "product":
        return ProductPathwise(run.n_probes, run.n_features)
    return Pathwise(run.n_probes, run.n_features, run.prior)


def with_exact_prior(run: Run, data: Split, place: Place, clock: Clock) -> Trained:
    """The pathwise estimator with exact prior samples, which is for studies: not an option of the estimator."""
    own = run.settings
    x, y = (torch.as_tensor(part).to(place.device) for part in (data.x_train, data.y_train))
    options = TrainingOptions(
        run.make_solver(),
        Pathwise(run.n_probes, run.n_features, "exact"),
        rule=StoppingRule(0.01, run.budget),
        n_steps=own.n_steps,
        learning_rate=own.learning_rate,
        warm_start=run.warm,
        noise_floor=NOISE_FLOOR,
    )
    operator = DenseOperator(x, Matern32(), Hyperparameters.ones(x.shape[1]))
    result = train_with(operator, y, options, generator=torch.Generator().manual_seed(run.split), callbacks=[clock])
    return result.posterior, result.final.converged, result.history, {"options": repr(options)}


def progress(history: Sequence[StepRecord]) -> Record:
    """How far a training came: sums, and the history as columns."""
    names = [f.name for f in fields(StepRecord) if f.name not in ("notes", "metrics", "log_marginal_likelihood")]
    columns: dict[str, list[Any]] = {name: [record[name] for record in history] for name in names}
    for name in history[0].metrics:
        columns[f"test_{name}"] = [record.metrics[name] for record in history]
    if history[0].log_marginal_likelihood is not None:
        columns["log_marginal_likelihood"] = [record.log_marginal_likelihood for record in history]
    return {
        "steps": len(history),
        "iterations": sum(columns["iterations"]),
        "epochs": sum(columns["epochs"]),
        "seconds": sum(columns["step_seconds"]),
        "solver_seconds": sum(columns["solver_seconds"]),
        "converged": all(columns["converged"]),
        "notes": {record.step: record.notes for record in history if record.notes},
        "history": columns,
    }


def given_start(run: Run, place: Place) -> Hyperparameters:
    """The initial hyperparameters of a large set, from the store."""
    record = place.store.get(Start(run.dataset, run.split))
    assert record is not None  # looked for before
    return Hyperparameters.from_vector(torch.tensor(record["theta"], dtype=torch.float64))


def start(item: Start, data: Split, place: Place) -> Record:
    """The subset heuristic, once."""
    x, y = (torch.as_tensor(part).to(place.device) for part in (data.x_train, data.y_train))
    own = describe(item)["settings"]
    began = time.perf_counter()
    theta = subset_heuristic(
        x,
        y,
        Matern32(),
        generator=torch.Generator().manual_seed(item.split),
        neighbourhood_size=own["n_neighbours"],
        noise_floor=NOISE_FLOOR,
        callbacks=[lambda record, state: _not_too_late(place)],
    )
    return {"outcome": "finished", "seconds": time.perf_counter() - began, "theta": theta.vector.tolist()}


def _not_too_late(place: Place) -> None:
    if time.monotonic() > place.deadline:
        raise Unfinished


def measure(item: Distances | Section, data: Split, place: Place) -> Record:
    """What is measured along the hyperparameters of exact training."""
    record = place.store.get(exact(item.dataset, item.split))
    assert record is not None
    past = record["history"]
    thetas = [
        Hyperparameters(*values)
        for values in zip(past["noise_scale"], past["signal_scale"], past["length_scales"], strict=True)
    ]
    x, y = (torch.as_tensor(part).to(place.device) for part in (data.x_train, data.y_train))
    if isinstance(item, Distances):
        found = initial_distances(x, y, thetas, lambda: _not_too_late(place))
    else:
        found = section(x, y, thetas)
    return {"outcome": "finished", **found}
