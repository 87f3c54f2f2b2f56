"""What ``warmgp fit`` does: options refused by their names, a table read, a model trained, written and scored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.table import Table as Grid

from warmgp.cli.answers import answer
from warmgp.cli.columns import UsageError, training_columns
from warmgp.cli.held_out import split
from warmgp.cli.kinds import (
    answerable,
    cells_of,
    check_cells,
    check_said,
    declared,
    kept_columns,
    labels_among,
    repeated,
)
from warmgp.cli.row_columns import RowColumns
from warmgp.cli.tables import GRID, open_table, table_format
from warmgp.cli.targets import parts_of, show_scores, targets_of
from warmgp.cli.terminal import cells, console, lines_of, say, tell
from warmgp.data.arrays import check_inputs
from warmgp.data.scaling import check_varies
from warmgp.estimator.parameters import check_parameters
from warmgp.estimator.prepare import reader_of
from warmgp.estimator.regressor import GPRegressor
from warmgp.files.paths import check_writable
from warmgp.processes import current_team
from warmgp.trend import NAMED

FloatArray = NDArray[np.float64]


def number(option: str, text: str, kind: Callable[[str], Any], none: bool = False) -> Any:
    """Returns "auto", a number, or None for "none" where that is allowed; refuses anything else by the option."""
    if text == "auto" or (none and text == "none"):
        return text if text == "auto" else None
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{option} must be {what}{', none' if none else ''} or auto, got {text!r}") from None


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(option: str, text: str | None) -> float | None:
    """Returns a time such as 90s, 10m or 1.5h in seconds; None where there is none."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text)
    try:
        value = float(found[1]) * UNITS[found[2]] if found else 0.0
    except (ValueError, KeyError):
        value = 0.0
    if value <= 0:
        raise UsageError(f"{option} must be a time such as 90s, 10m or 2h, got {text!r}")
    return value


def trend_asked(option: str, text: str | None) -> str | list[str] | None:
    """Returns a trend such as linear, or the columns of drift:COL,COL."""
    if text is None or text in NAMED:
        return text
    columns = [name.strip() for name in text.removeprefix("drift:").split(",")]
    if not text.startswith("drift:") or not all(columns):
        raise UsageError(f"{option} must be {', '.join(NAMED)} or drift:COL,COL, got {text!r}")
    return columns


def parsed(
    n_features: str,
    max_epochs: str,
    n_steps: str,
    learning_rate: str,
    noise_floor: str,
    time_limit: str | None,
    trend: str | None,
) -> dict[str, Any]:
    """Returns the parameters whose options are text that has to be read: numbers or "auto", a time, a trend."""
    return {
        "n_features": number("--n-features", n_features, int),
        "max_epochs": number("--max-epochs", max_epochs, float, none=True),
        "n_steps": number("--n-steps", n_steps, int),
        "learning_rate": number("--learning-rate", learning_rate, float),
        "noise_floor": number("--noise-floor", noise_floor, float),
        "time_limit": seconds("--time-limit", time_limit),
        "trend": trend_asked("--trend", trend),
    }


def show_trend(model: GPRegressor) -> None:
    """Prints the coefficients of a model's trend, in the units of the table, where it has one."""
    if model.posterior_.trend is None:
        return
    for target in model.target_names_ or ("",):
        found = model.trend_ if not target else model.of_target(target).trend_
        assert found is not None
        title = f"trend of {target}" if target else "trend"
        grid = Grid("term", "coefficient", "std error", title=title, title_justify="left")
        for name, value, error in zip(found.names, found.coefficients, found.std_errors, strict=True):
            grid.add_row(*cells(name, f"{value:.6g}", f"{error:.3g}"))
        console().print(grid)


def check_settings(model: GPRegressor, test_fraction: float | None = None) -> None:
    """Refuses wrong options by their names, before a table is read."""
    if test_fraction is not None and not 0 < test_fraction < 1:
        raise UsageError(f"--test-fraction must be between 0 and 1, got {test_fraction:g}")
    seed = model.random_state
    if not 0 <= seed < 2**32:
        raise UsageError(f"--seed must be between 0 and 2**32 - 1, got {seed}")
    parameters = model.get_params(deep=False)
    try:
        check_parameters(parameters)
    except ValueError as error:
        named = "|".join(parameters)
        text = re.sub(rf"\b({named})=[\"']?([\w.:]+)[\"']?", lambda m: f"--{m[1].replace('_', '-')} {m[2]}", str(error))
        text = re.sub(rf"^({named})\b", lambda m: f"--{m[1].replace('_', '-')}", text)
        raise UsageError(re.sub(r" or an object such as [\w.()]+", "", text)) from error


def check_fit(
    model: GPRegressor, data: Path, out: Path | None, test_fraction: float | None, *, resume: bool, dry_run: bool
) -> None:
    """Refuses what a fit cannot be asked for, by the names of the options, before anything is read."""
    if out is None and not dry_run:
        raise UsageError("--out is needed: the model file to write (or --dry-run, to see the plan only)")
    check_settings(model, test_fraction)
    check_paths(data, out, None if model.checkpoint is None else Path(model.checkpoint), resume)


def check_paths(data: Path, out: Path | None, checkpoint: Path | None, resume: bool) -> None:
    """Refuses files that cannot be written, a checkpoint that is there by accident, and writing over what is read."""
    if out is not None:
        check_writable(out)
    if checkpoint is None and resume:
        raise UsageError("--resume needs --checkpoint PATH, the file to go on from")
    if checkpoint is not None:
        check_writable(checkpoint)
        if checkpoint.exists() and not resume:
            raise UsageError(
                f"the checkpoint {checkpoint} exists: add --resume to go on from it, or delete it to start anew"
            )
    check_apart({"DATA": data, "--out": out, "--checkpoint": checkpoint})


def check_request(
    data: Path | None, grid: str | None, blocks: int | None, samples: int, keep: Sequence[str] | None = None
) -> bool:
    """Returns whether a grid is to be predicted; refuses options of predict that do not go together."""
    if (data is None) == (grid is None):
        both = "not both" if grid is not None else 'such as --grid "lon=5:17:0.05,lat=43:49:0.05"'
        raise UsageError(f"predict needs DATA, a file with what to predict, or --grid, {both}")
    gridded = data is None or (not data.is_dir() and table_format(data) == GRID)
    if gridded and keep:
        raise UsageError("--keep carries columns of a table over, and a map has its coordinates anyway: leave it out")
    if blocks is not None:
        if not gridded:
            raise UsageError(f"--blocks averages over cells, and {data} has rows: use --grid")
        if blocks < 1:
            raise UsageError(f"--blocks must be a count of points along a cell's side, 1 or more, got {blocks}")
        if samples:
            raise UsageError("--samples and --blocks do not go together: leave one out")
    return gridded


def check_apart(paths: dict[str, Path | None]) -> None:
    """Refuses two paths, by what they are for, that are the same file: nothing is written over what is read."""
    seen: dict[Path, str] = {}
    for what, path in paths.items():
        if path is not None and (other := seen.setdefault(Path(os.path.realpath(path)), what)) != what:
            raise UsageError(f"{other} and {what} are the same file {path}: give another name")


def fit_table(
    model: GPRegressor,
    data: Path,
    target: Sequence[str],
    out: Path | None,
    *,
    drop: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    rows: RowColumns | None = None,
    test_fraction: float | None = None,
) -> None:
    """Trains on a table, writes the model to ``out`` and scores it on rows held out; without ``out`` tells the plan.

    The model of an interrupted training is written, too, before the interrupt goes on.
    """
    rows = RowColumns() if rows is None else rows
    table = open_table(data, [*parts_of(target), *rows.names])
    table.team = current_team()
    names = targets_of(table, target)
    left_out = [*(drop or ()), *kept_columns(table, keep)]
    said_of = [one for key in model.columns or () for one in (key if isinstance(key, tuple) else (key,))]
    rows.check(table, names, [*left_out, *said_of])
    check_said(table, names, model.columns, left_out)
    X, values, beside = training_columns(table, names, left_out, model.columns, model.missing == "mean", rows.names)
    said = rows.arguments(beside, data)
    X, train, test, again = _prepared(model, X, values, data, test_fraction)
    y = pd.Series(values, name=names[0]) if len(names) == 1 else pd.DataFrame(values, columns=names)
    if table.left_out:
        tell(f"{table.left_out:,} cells of {data} lack a value and are left out: {len(y):,} are used", stderr=True)
    for j, column in enumerate(values[train].reshape(len(train), -1).T):
        if len(there := column[~np.isnan(column)]) > 1:  # or it is refused by the fit
            check_varies(there, f"the target {names[j]!r} of {data}", "check --target")
    size = f"{len(train):,} rows of {X.shape[1]} columns"
    if out is None:
        console().print(lines_of(f"{size}\n{model.plan(X.iloc[train], n_targets=len(names))}"))
        return
    try:
        model.fit(X.iloc[train], y.iloc[train], **{argument: values[train] for argument, values in said.items()})
    except KeyboardInterrupt as interrupted:
        if hasattr(model, "history_"):
            model.save(out)
            tell(f"fitted {size}: {out} (interrupted {interrupted})")
        raise
    model.save(out)
    used = (
        f" (on {model.plan_.rows:,} of them, drawn at random: --time-limit allows no more)" if model.plan_.rows else ""
    )
    tell(f"fitted {size}: {out}{used}")
    if model.robust_weights_ is not None:
        gone = int((model.robust_weights_ == 0).sum())
        more = ": warmgp info names some" if gone else ""
        tell(f"left out {gone:,} of {len(train):,} rows as outliers (--robust){more}")
    show_trend(model)
    if len(test):
        found = answer(model, X.iloc[test], data, test + 1, std=True)
        seen = f"{again:,} of which repeat a training row" if again else "which the model has not seen"
        title = f"{len(test):,} held-out rows, {seen}"
        show_scores(title, names, values[test], found["mean"], found["std"])


def _prepared(
    model: GPRegressor, X: pd.DataFrame, y: FloatArray, data: Path, test_fraction: float | None
) -> tuple[pd.DataFrame, NDArray[np.intp], NDArray[np.intp], int]:
    """Returns the inputs, the rows to train on and to score, and how many of the latter repeat the former.

    The table is read as a whole before any rows are held out: categories then know the values of all rows, and
    ``model.columns`` how dates are written. What is odd, and no error, is remarked.
    """
    probe, rows = reader_of(model), range(1, len(X) + 1)
    with cells_of(data, rows):
        numbers = check_inputs(probe, X, reset=True)
    check_cells(probe.columns_, numbers, data, rows)
    X, model.columns = declared(X, model.columns, probe.columns_)
    train, held_out = split(len(X), test_fraction, model.random_state)
    for name in labels_among(X):
        what = f"column {name!r} of {data} has another whole number in every row"
        say("note", f"{what}: if that is a label, which says nothing of the target, leave it out: --keep {name!r}")
    test = answerable(numbers, train, held_out)
    if len(test) < len(held_out):
        what = f"{len(held_out) - len(test):,} of {len(held_out):,} held-out rows lack a value"
        say("note", f"{what} that every training row has: they are not scored")
    again = repeated(numbers, y, train, test)
    if again:
        what = f"{again:,} of {len(test):,} held-out rows have the same cells as a training row"
        say("note", f"{what}: the score flatters the model; leave repeated rows out of {data} for one of new rows")
    return X, train, test, again
