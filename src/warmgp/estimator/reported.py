"""A fitted estimator as a page: what the page is about is gathered here, made in ``reporting/`` and written whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from warmgp.data.arrays import check_inputs, check_targets, integer_rest, to_numpy
from warmgp.data.reading import is_frame
from warmgp.estimator.diagnosis import diagnosed, effects_of, relevance_of
from warmgp.files.atomic import whole_file
from warmgp.files.paths import check_writable
from warmgp.processes import writes
from warmgp.reporting.page import FAILURES, page_of
from warmgp.reporting.subject import HeldOut, Subject, Target
from warmgp.reporting.things import things_of

FloatArray = NDArray[np.float64]

GATHERED = 0.6
"""The share of the work that is done when all is gathered, by experience: left-out rows are most of it."""


@dataclass(frozen=True)
class Asked:
    """Holds what a user wants of a page beside the model.

    Attributes
    ----------
    held_out : pair of X and y, or None
        Rows that the model was not trained on.
    units : dict of str to str
        Units of columns and of the target, by their names.
    model_called, data_called : str
        What the page calls the model and these rows: the names of their files; "" where they have none.
    tell : callable
        Told what is being made, and the share that is done.
    """

    held_out: tuple[ArrayLike, ArrayLike] | None = None
    units: Mapping[str, str] | None = None
    model_called: str = ""
    data_called: str = ""
    tell: Callable[[str, float], None] = lambda what, share: None


def report_on(model: Any, path: str | os.PathLike[str], asked: Asked) -> None:
    """Writes the page about a fitted estimator; what cannot work is refused before any of it is made."""
    from warmgp import __version__  # which is not there yet when this module is imported

    check_is_fitted(model, "hyperparameters_")
    if not writes():
        return
    check_writable(Path(path))
    units = dict(asked.units or {})
    _check_units(model, units)
    given = None if asked.held_out is None else _checked(model, asked.held_out)
    subject = _subject(model, units, asked, given)
    text = page_of(subject, __version__, lambda what, share: asked.tell(what, GATHERED + (1 - GATHERED) * share))
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))
    asked.tell("done", 1.0)


def _subject(model: Any, units: Mapping[str, str], asked: Asked, given: tuple[Any, FloatArray] | None) -> Subject:
    """Returns what the page is about: everything that is known of the model, and of its targets."""
    relevance, models = relevance_of(model), _by_target(model)
    found = None
    if given is not None:
        asked.tell("held-out rows", 0.0)
        found = model.predict(given[0], return_std=True)
    targets = []
    for number, one in enumerate(models):
        asked.tell("left-out rows", GATHERED * (0.1 + 0.9 * number / len(models)))
        rows = None if given is None or found is None else _held_out(one, number, given, found, asked.data_called)
        targets.append(_target(one, number, units, relevance, rows))
    known = [one.training_rows_ for one in models if one.training_rows_ is not None]
    count = len(np.unique(np.concatenate(known))) if known else len(model.posterior_.x)
    return Subject(model, count, tuple(targets), relevance, asked.model_called)


def _by_target(model: Any) -> list[Any]:
    """Returns the model of each target alone."""
    return [model.of_target(number) for number in range(model.n_targets_)]


def _target(
    model: Any, number: int, units: Mapping[str, str], relevance: Mapping[str, float], held_out: HeldOut | None
) -> Target:
    """Returns what is known of one target, by its model."""
    loo, diagnosis, why_not = _left_out(model)
    name = model.target_name_ or "y"
    return Target(
        number=number,
        name=name,
        unit=units.get(name, ""),
        model=model,
        things=things_of(model, units),
        y=loo.y if loo is not None else _targets(model),
        noise_std=model.noise_std_,
        signal_std=model.signal_std_,
        loo=loo,
        diagnosis=diagnosis,
        why_not=why_not,
        effects=effects_of(model, relevance),
        held_out=held_out,
    )


def _held_out(
    model: Any, number: int, given: tuple[Any, FloatArray], found: tuple[FloatArray, FloatArray], called: str
) -> HeldOut:
    """Returns the held-out rows that have one target, with their predictions."""
    X, y = given
    y, mean, std = (values if values.ndim == 1 else values[:, number] for values in (y, *map(np.asarray, found)))
    there = np.isfinite(y)
    return HeldOut(called, y[there], mean[there], std[there], _repeated(model, X, y))


def _left_out(model: Any) -> tuple[Any, Any, str]:
    """Returns left-out rows and the diagnosis, or why there are none."""
    try:
        loo = model.loo_
        return loo, diagnosed(model, loo), ""
    except FAILURES as error:
        return None, None, f"{str(error) or type(error).__name__}."


def _targets(model: Any) -> FloatArray:
    """Returns the targets of the training rows, as far as they are known without left-out rows, (n,)."""
    known = model.y_train_
    return np.full(len(model.posterior_.x), model.scaler_.y_mean) if known is None else np.asarray(known)


def _check_units(model: Any, units: Mapping[str, str]) -> None:
    """Refuses a unit of what the model does not know."""
    columns = model.scaler_.columns
    known = [*map(str, columns.names), *columns.things, *(model.target_names_ or [model.target_name_ or "y"])]
    for name, unit in units.items():
        if name not in known:
            raise ValueError(f"units: the model has no column {name!r}; it has {', '.join(dict.fromkeys(known))}")
        if not isinstance(unit, str):
            raise ValueError(f"units[{name!r}] must be text such as 'km', got {unit!r}")


def _checked(model: Any, given: Any) -> tuple[Any, FloatArray]:
    """Returns held-out inputs and targets, checked before any long work."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"held_out must be a pair (X, y) of rows to be scored, got {type(given).__name__}")
    X = to_numpy(given[0])
    names = getattr(model, "feature_names_in_", None)
    if names is not None and is_frame(X):
        lacking = [str(name) for name in names if name not in X.columns]
        if lacking:
            which = ("column " if len(lacking) == 1 else "columns ") + ", ".join(map(repr, lacking))
            raise ValueError(f"held_out X lacks {which}, which the model was trained on: add what is missing")
        X = X[list(names)]
    rows = len(check_inputs(model, X, name="held_out X"))
    about: Any = {"q": model.n_targets_, "known": model.target_names_, "may_lack": True}
    return X, check_targets(given[1], rows, "held_out y", "held_out X", **about)


def _repeated(model: Any, X: Any, y: FloatArray) -> int:
    """Returns how many rows have the inputs and the target of a training row."""
    new = model.scaler_.x(check_inputs(model, X), integer_rest(X))
    old, known = model.posterior_.x.cpu().numpy(), model.y_train_
    rows = []
    for x, own in ((old, known), (new.astype(old.dtype), y)):
        table = x if known is None else np.column_stack([x, own])
        rows.append(pd.util.hash_pandas_object(pd.DataFrame(table + 0.0), index=False).to_numpy())
    return int(np.isin(rows[1], rows[0]).sum())
