"""From a user's X and y to what is trained on: checked, standardised, planned for, and made into a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from warmgp.checks import warn_user
from warmgp.data.arrays import check_inputs, check_targets, check_validation, integer_rest, target_name, target_names
from warmgp.data.float32_resolution import too_fine
from warmgp.data.input_map import InputMap
from warmgp.data.scaling import Standardizer, check_vary, warn_of_units
from warmgp.estimator.parameters import check_flat, check_start
from warmgp.estimator.remarks import remark_outliers
from warmgp.estimator.row_weights import RowWeights, row_weights
from warmgp.estimator.several import any_value, check_several
from warmgp.estimator.trend import OrdinaryTrend, check_inputs_of, detrended
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators import make_operator
from warmgp.operators.row_noise import RowNoise
from warmgp.operators.sharded import ShardedOperator
from warmgp.planning.plan import Plan
from warmgp.planning.planner import operator_for, plan_for
from warmgp.planning.request import Request, Settings
from warmgp.processes import Team
from warmgp.training.problem import Problem
from warmgp.trend import TrendColumns, check_rich

FloatArray = NDArray[np.float64]

FINE_GROUPS = (
    "training is in float64, but from length scales of 1 it may not find what varies within a group. Make the position "
    "within a group a column of its own, or give init=Hyperparameters(...) with a length scale of that size"
)
"""The remedy for groups of points so tight that float32 does not tell them apart."""


@dataclass(frozen=True)
class TrainingData:
    """Holds checked training data in standardised units, in float64.

    Attributes
    ----------
    scaler : Standardizer
        The maps from the user's units to these, and back.
    x : ndarray, (n, d)
    y : ndarray, (n,), or (n, q) for several targets, NaN where a value is missing
    held_out : (x, y) or None
    as_given : dict of ndarrays
        The same data in the user's units, by the names that a checkpoint tells them apart by.
    too_fine : str
        Why float32 does not tell the inputs apart; "" where it does.
    trend : OrdinaryTrend or None
        What has been taken off y, where there is a trend.
    said : RowWeights
        Weights of rows, and variances of their noise that are known.
    known_noise : bool
        Whether noise is known beside what is learned, or in its place.
    rows : ndarray of int, (n,)
        The numbers of the rows in the user's X.
    y_given : ndarray, (n,)
        Their targets in the user's units.
    team : Team or None
        The processes that train on them together, if there are several.
    which : tuple of int
        The numbers of the targets that y has among those of the fit; empty where the fit has one target.
    """

    scaler: Standardizer
    x: FloatArray
    y: FloatArray
    held_out: tuple[FloatArray, FloatArray] | None
    as_given: dict[str, FloatArray]
    too_fine: str
    trend: OrdinaryTrend | None
    said: RowWeights
    known_noise: bool
    rows: NDArray[np.int64]
    y_given: FloatArray
    team: Team | None = None
    which: tuple[int, ...] = ()

    @property
    def n_targets(self) -> int:
        """The number of targets that y has."""
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    def row_noise(self, device: torch.device) -> RowNoise | None:
        """Returns what the noise of each row is made of; None where all have the same."""
        return self.said.row_noise(device)

    @property
    def targets(self) -> FloatArray:
        """The targets in the units of y, shaped like ``y``, with what a trend has taken off them."""
        if self.trend is None:
            return self.scaler.y_back(self.y)
        return self.scaler.y_back(self.y + self.trend.basis.at(torch.as_tensor(self.x)).numpy() @ self.trend.offset)

    def drawn(self, rows: int, seed: int) -> TrainingData:
        """Returns so many of the rows, drawn at random; all of them where ``rows`` is 0."""
        if not rows:
            return self
        some = np.sort(np.random.default_rng(seed).permutation(len(self.x))[:rows])
        trend, y, said = self.trend, self.y[some], self.said.at(some)
        if trend is not None:
            trend, y = trend.refitted(self.x, self.y, some, said.of_targets(y))
        return replace(
            self, x=self.x[some], y=y, trend=trend, said=said, rows=self.rows[some], y_given=self.y_given[some]
        )

    def turned(self, angle: float) -> TrainingData:
        """Returns the same data with the two standardised inputs turned by an angle in degrees."""
        scaler = self.scaler.turned(angle)
        held_out = self.held_out and (scaler.turn(self.held_out[0]), self.held_out[1])
        trend = self.trend and self.trend.turned(angle)
        return replace(self, scaler=scaler, x=scaler.turn(self.x), held_out=held_out, trend=trend)

    def problem(self, plan: Plan, kernel: Kernel, theta: Hyperparameters, dtype: torch.dtype) -> Problem:
        """Makes the problem at θ in that precision, on the plan's device.

        Where the plan promotes, the problem can be made again in float64.
        """

        def tensor(values: FloatArray, dtype: torch.dtype = dtype) -> Tensor:
            return torch.as_tensor(values).to(device=plan.device, dtype=dtype)

        kind, noise = operator_for(plan, len(self.x), dtype), self.row_noise(plan.device)
        operator = make_operator(kind, tensor(self.x), kernel, theta, rows=noise)
        operator = operator if self.team is None else ShardedOperator(operator, self.team)
        held_out = (tensor(self.held_out[0]), tensor(self.held_out[1])) if self.held_out else None
        trend = None
        if self.trend is not None:
            basis, offset = self.trend.basis, tensor(self.trend.offset, torch.float64)
            trend = TrendColumns(basis, tensor(basis.at(operator.part.own(torch.as_tensor(self.x))).numpy()), offset)
        if dtype == torch.float64:
            return Problem(operator, tensor(self.y), held_out, trend=trend)
        original = tensor(self.x, torch.float64), tensor(self.y, torch.float64)
        promote = partial(self.problem, plan, kernel, theta, torch.float64) if plan.promote else None
        return Problem(operator, tensor(self.y), held_out, original, promote, trend=trend)


def training_data(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    validation: tuple[ArrayLike, ArrayLike] | None,
    sample_weight: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
) -> TrainingData:
    """Checks and standardises what an estimator is to be fitted to; sets names and number of inputs on it, and the
    name of the target. Rows of weight zero, or of infinite noise, are left out of everything."""
    inputs = check_inputs(model, X, reset=True, least=2)
    targets, rest = check_targets(y, len(inputs), q=None, may_lack=True), integer_rest(X)
    names = target_names(y, targets)
    check_several(model, names, targets, noise_variance)
    said, used = row_weights(any_value(targets, sample_weight), noise_variance, len(inputs))
    rows = np.arange(len(inputs)) if used is None else np.flatnonzero(used)
    if used is not None:
        inputs, targets, rest = inputs[used], targets[used], None if rest is None else rest[used]
    model.target_name_, model.target_names_ = None if names else target_name(y), names
    columns = columns_of(model, model.columns_)
    check_start(model.init, columns, model.ard)
    check_vary(targets, names)
    if not model.standardize and not isinstance(model.init, Hyperparameters):
        warn_of_units(inputs, targets, columns)
    if model.standardize:
        scaler = Standardizer.fit(inputs, targets, rest, columns, said.weights, said.of_targets(targets))
    else:
        scaler = Standardizer.centring(inputs, columns)
        if names:
            scaler = replace(scaler, y_mean=np.zeros(len(names)), y_scale=np.ones(len(names)))
    remark_outliers(inputs, targets, columns.names, names)
    x, given, held_out = scaler.x(inputs, rest), {"X": inputs, "y": targets, **said.given}, None
    trend, left, scaler = detrended(model, inputs, x, targets, scaler, said.of_targets(targets))
    if rest is not None:
        given["last digits of X"] = rest
    if validation is not None:
        given["validation X"], given["validation y"] = check_validation(model, validation, names)
        held_out = (
            scaler.x(given["validation X"], integer_rest(validation[0]), "validation X"),
            scaler.y(given["validation y"]),
        )
    known, said = said.variances is not None or not model.learn_noise, said.in_units(scaler.y_scale)
    return TrainingData(
        scaler, x, left, held_out, given, too_fine(columns, x), trend, said, known, rows, np.array(targets),
        which=tuple(range(len(names))),
    )  # fmt: skip


def columns_of(model: Any, columns: InputMap) -> InputMap:
    """Returns what the columns of X are, as they were read; raises where an estimator's parameters do not fit them."""
    check_flat(model.anisotropy, columns)
    check_inputs_of(model.trend, columns)
    return columns


def reader_of(model: Any) -> Any:
    """Returns an estimator that reads tables as this one does, and on which what it learns of columns may be set."""
    probe = type(model)()
    probe.columns, probe.missing, probe.unknown_category = model.columns, model.missing, model.unknown_category
    return probe


def plan_on(model: Any, settings: Settings, X: ArrayLike, n_targets: int = 1) -> Plan:
    """Returns how an estimator would train on such inputs; nothing is set on it."""
    probe = reader_of(model)
    inputs = check_inputs(probe, X, reset=True, least=2)
    columns = columns_of(model, probe.columns_)
    centred = Standardizer.centring(inputs, columns).x(inputs, integer_rest(X))
    return plan_and_warn(settings, centred.shape, too_fine(columns, centred), not model.learn_noise, n_targets)


def plan_and_warn(
    settings: Settings, shape: tuple[int, ...], fine: str, known_noise: bool = False, n_targets: int = 1
) -> Plan:
    """Plans a training on inputs of that shape, (n, d); warns where it may not find what ``fine`` says of them.

    ``known_noise`` says whether noise is known beside what is learned, or in its place; ``n_targets`` how many targets
    share H.
    """
    n, d = shape
    check_rich(settings.trend, n, d)
    plan = plan_for(Request.of(n, d, settings, fine, known_noise, n_targets))
    single = plan.dtype == torch.float32
    if fine and (single or not isinstance(settings.init, Hyperparameters)):
        remedy = 'use dtype="auto" or "float64"' if single else FINE_GROUPS
        warn_user(f"{fine}: {remedy}")
    return plan
