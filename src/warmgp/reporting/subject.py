"""What a page is about: a fitted model, its things in the user's terms, and what is known of each of its targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmgp.planning.threads import free_threads
from warmgp.reporting.things import Thing

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class HeldOut:
    """Holds rows that a model was not trained on, with its predictions, in units of y.

    Attributes
    ----------
    called : str
        Where they come from, the name of a file; "" where that is not known.
    y, mean, std : ndarray, (m,)
        Their targets, and what the model says of them, with noise.
    repeated : int
        How many of them are rows of the training, too.
    """

    called: str
    y: FloatArray
    mean: FloatArray
    std: FloatArray
    repeated: int


@dataclass(frozen=True, eq=False)
class Target:
    """Holds what is known of one target of a model.

    Attributes
    ----------
    number : int
        Its place among the targets of the model.
    name, unit : str
        What it is called, and its unit; "" where that is not known.
    model : GPRegressor
        The model of this target alone.
    things : tuple of Thing
        What has a length scale, in the rows that have this target.
    y : ndarray, (n,)
        Its values in the training rows.
    noise_std, signal_std : float
        Of noise and function, in units of y.
    loo, diagnosis : LeaveOneOut, Diagnosis, or None
        Every row predicted from all others, and what follows; None where that failed.
    why_not : str
        Why it failed.
    effects : dict of str to float
        How much the function changes along each thing, in units of y, by :class:`Diagnosis`.
    held_out : HeldOut or None
        Rows that the model was not trained on.
    """

    number: int
    name: str
    unit: str
    model: Any
    things: tuple[Thing, ...]
    y: FloatArray
    noise_std: float
    signal_std: float
    loo: Any = None
    diagnosis: Any = None
    why_not: str = ""
    effects: Mapping[str, float] = field(default_factory=dict)
    held_out: HeldOut | None = None

    @property
    def label(self) -> str:
        """Its name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def in_unit(self) -> str:
        """Its unit behind a number, with a space before it; "" where it is not known."""
        return f" {self.unit}" if self.unit else ""

    @property
    def varying(self) -> list[Thing]:
        """The things that are not the same in all rows."""
        return [thing for thing in self.things if not thing.constant]

    @cached_property
    def middle(self) -> FloatArray:
        """The inputs at which things stand that are not looked at, (d,): medians, and the commonest categories."""
        middle = np.empty(sum(len(thing.inputs) for thing in self.things))
        for thing in self.things:
            middle[list(thing.inputs)] = thing.inputs_at(thing.middle[None])[0]
        return middle

    def by_effect(self) -> list[Thing]:
        """Returns the things that vary, the one along which the function changes most first."""
        return sorted(self.varying, key=lambda thing: -self.effects.get(thing.name, 0.0))

    def at(self, changed: Mapping[Thing, FloatArray]) -> FloatArray:
        """Returns inputs, (m, d), with the cells (m, columns) of some things and all others in the middle."""
        m = len(next(iter(changed.values())))
        inputs = np.tile(self.middle, (m, 1))
        for thing, cells in changed.items():
            inputs[:, list(thing.inputs)] = thing.inputs_at(cells)
        return inputs

    def predicted(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns mean and std of the function, without noise, at inputs (m, d), (m,) each, in units of y."""
        scaler, posterior = self.model.scaler_, self.model.posterior_
        x = torch.as_tensor(scaler.turn((inputs - scaler.x_mean) / scaler.x_scale)).to(posterior.x)
        rows = len(posterior.x) if posterior.exact else len(x)
        with free_threads(x.device, rows * len(posterior.x)):
            mean, variance = posterior.mean_and_variance(x)
        std = variance.double().clamp_min(0.0).sqrt().cpu().numpy()
        return scaler.y_back(mean.double().cpu().numpy()), scaler.y_scale_back(std)


@dataclass(frozen=True, eq=False)
class Subject:
    """Holds all that a page is made from.

    Attributes
    ----------
    model : GPRegressor
        The fitted estimator.
    rows : int
        The rows that have a target, or one of several.
    targets : tuple of Target
    relevance : dict of str to float
        The length scale of each thing in units of its spread, shortest first.
    called : str
        The name of the model's file; "" where there is none.
    """

    model: Any
    rows: int
    targets: tuple[Target, ...]
    relevance: Mapping[str, float]
    called: str = ""

    @property
    def things(self) -> tuple[Thing, ...]:
        """What has a length scale, in the order of the model and in the rows of the target that has most."""
        return max(self.targets, key=lambda target: len(target.y)).things
