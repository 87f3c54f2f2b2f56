"""The command that writes a page about a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from warmgp.cli.answers import inputs_for
from warmgp.cli.columns import UsageError, feature_chunks, resolve
from warmgp.cli.fitting import check_apart
from warmgp.cli.kinds import cells_of
from warmgp.cli.tables import TableError, open_table
from warmgp.cli.targets import parts_of, targets_of_model
from warmgp.cli.terminal import bar, tell
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor
from warmgp.estimator.reported import Asked, report_on
from warmgp.files.paths import check_writable


def report_model(
    path: Path, data: Path | None, out: Path, *, target: Sequence[str], units: Sequence[str], device: str, quiet: bool
) -> None:
    """Writes the page about a model file, with the scores of a table's rows where one is given."""
    check_apart({"MODEL": path, "DATA": data, "--out": out})
    check_writable(out)
    if data is None and target:
        raise UsageError("--target names the column of DATA that holds the truth: give DATA, too, or leave it out")
    said = units_of(units)
    model = GPRegressor.load(path, device)
    rows = None if data is None else held_out(model, data, target, path)
    with bar(quiet) as shown:
        task = shown.add_task("report", total=1.0, rows="")

        def progress(what: str, share: float) -> None:
            shown.update(task, completed=share, rows=what)

        called = "" if data is None else data.name
        count = 0 if rows is None else len(rows[1])
        with cells_of(data or path, range(1, count + 1)):
            report_on(model, out, Asked(rows, said, path.name, called, progress))
    tell(f"report written to {out}")


def units_of(given: Sequence[str]) -> dict[str, str]:
    """Returns units by columns, from "air=°C" each."""
    found = {}
    for text in given:
        name, equals, unit = text.rpartition("=")
        if not (equals and name and unit):
            raise UsageError(f"--unit must be a column and its unit, such as air=°C, got {text!r}")
        found[name] = unit
    return found


def held_out(model: GPRegressor, data: Path, target: Sequence[str], path: Path) -> tuple[Any, Any]:
    """Returns the inputs and the truth of a table's rows, all checked."""
    names = feature_names(model)
    table = open_table(data, [*parts_of(target), *names])
    targets = targets_of_model(model, table, target, path)
    resolve(names, table)
    parts = list(feature_chunks(table, names, targets, columns=model.scaler_.columns))
    if not parts:
        raise TableError(f"{data} has no row to be scored by {path}: give another table, or none")
    X = pd.concat([part for part, _ in parts], ignore_index=True)
    columns = [np.concatenate([others[name] for _, others in parts]) for name in targets]
    return inputs_for(model, X), columns[0] if len(columns) == 1 else np.stack(columns, 1)
