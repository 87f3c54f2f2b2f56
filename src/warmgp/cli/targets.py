"""Several targets on the command line: the columns that --target names, and what is told of each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmgp.cli.columns import UsageError, check_column
from warmgp.cli.held_out import metrics
from warmgp.cli.tables import Table
from warmgp.cli.terminal import show
from warmgp.estimator.regressor import GPRegressor

FloatArray = NDArray[np.float64]


def parts_of(given: Sequence[str]) -> list[str]:
    """Returns the names in --target a,b --target c, whatever a table has."""
    return [part.strip() for text in given for part in text.split(",")]


def targets_of(table: Table, given: Sequence[str]) -> list[str]:
    """Returns the columns that --target names, a,b,c or one; refuses one that the table lacks, and one named twice."""
    names: list[str] = []
    for text in given:
        parts = parts_of([text])
        listed = text not in table and len(parts) > 1 and any(part in table for part in parts)
        names += parts if listed else [text]
    for j, name in enumerate(names):
        check_column(table, name, "--target")
        if name in names[:j]:
            raise UsageError(f"--target names {name!r} twice: name each column once")
    return names


def targets_of_model(model: GPRegressor, table: Table, given: Sequence[str], path: Path) -> list[str]:
    """Returns the columns that hold the targets of a model from ``path``: those that are named, or of its own names.

    A model of several targets takes columns of their names alone, in any order, and all of them; that of one takes any.
    """
    known = list(model.target_names_) or ([model.target_name_] if model.target_name_ else [])
    if not given and not known:
        raise UsageError(f"{path} does not say what its target is called: name the column with --target")
    if not given:
        for name in known:
            check_column(table, name, f"the target of {path}")
        return known
    names = targets_of(table, given)
    if not model.target_names_:
        if len(names) > 1:
            raise UsageError(f"--target takes one column, got {', '.join(names)}: {path} has one target")
        return names
    check_known(model, names, path)
    lacking = [name for name in known if name not in names]
    if lacking:
        raise UsageError(f"--target lacks {', '.join(map(repr, lacking))}: {path} has the targets {', '.join(known)}")
    return known


def check_known(model: GPRegressor, names: Sequence[str], path: Path) -> None:
    """Refuses names of targets that a model of several targets from ``path`` does not have."""
    strange = [name for name in names if name not in model.target_names_]
    if strange:
        known = ", ".join(model.target_names_)
        raise UsageError(f"--target {strange[0]}: {path} has no such target, but {known}: name some of these")


def names_of_answers(model: GPRegressor, plain: Sequence[str]) -> list[str]:
    """Returns the columns of predictions: those of one target, or mean_a, std_a, …, mean_b, … of several."""
    return [f"{one}_{name}" for name in model.target_names_ for one in plain] or list(plain)


def by_target(model: GPRegressor, made: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Returns what was predicted by column, (m,) each, from (m, q) of several targets."""
    if not model.target_names_:
        return dict(made)
    return {f"{one}_{name}": made[one][:, j] for j, name in enumerate(model.target_names_) for one in made}


def show_scores(title: str, names: Sequence[str], y: FloatArray, mean: FloatArray, std: FloatArray) -> None:
    """Prints scores of predictions: a table for each of several targets, of the rows that have its value.

    Arrays are (m,) for one target, whose name is not told, and (m, q) for several.
    """
    if y.ndim == 1:
        show(title, metrics(y, mean, std))
        return
    for j, name in enumerate(names):
        there = ~np.isnan(y[:, j])
        if there.any():
            lack = "" if there.all() else f" ({int(there.sum()):,} have it)"
            show(f"{name}: {title}{lack}", metrics(y[there, j], mean[there, j], std[there, j]))


def in_units_of_targets(model: GPRegressor, values: Any) -> str:
    """Returns a number for each target as text: "0.1" for one, "a 0.1, b 2" for several."""
    if not model.target_names_:
        return f"{values:.6g}"
    return ", ".join(f"{name} {value:.6g}" for name, value in zip(model.target_names_, values, strict=True))
