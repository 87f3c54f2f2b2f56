"""What ``warmgp update`` does: new rows read as the model knows its columns, added to it, and written whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from warmgp.cli.answers import inputs_for
from warmgp.cli.columns import UsageError, check_column, feature_chunks, one_target, resolve
from warmgp.cli.kinds import cells_of
from warmgp.cli.row_columns import RowColumns
from warmgp.cli.tables import Table, TableError, open_table
from warmgp.cli.terminal import show, tell
from warmgp.estimator.drift import Update
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor


def update_file(
    path: Path, data: Path, out: Path, *, target: Sequence[str], rows: RowColumns, n_steps: int, device: str
) -> None:
    """Adds the rows of a table to a model in a file and writes it to ``out``, which may be that very file.

    Whatever ends it before, the file at ``out`` stays as it was: a new one takes its place once it is whole.
    """
    model = GPRegressor.load(path, device)
    names = feature_names(model)
    table = open_table(data, [*target, *rows.names, *names])
    name = target_of(model, table, target, path)
    resolve(names, table)
    rows.check(table, name, names)
    parts = list(feature_chunks(table, names, [name, *rows.names], columns=model.scaler_.columns))
    if not parts:
        raise TableError(f"{data} has no row to add to {path}")
    X = pd.concat([part for part, _ in parts], ignore_index=True)
    beside = {key: np.concatenate([others[key] for _, others in parts]) for key in (name, *rows.names)}
    with cells_of(data, range(1, len(X) + 1)):
        model.update(inputs_for(model, X), beside[name], n_steps, **rows.arguments(beside, data))
    model.save(out)
    done = model.updates_[-1]
    tell(f"added {done.added:,} rows to {done.rows - done.added:,}: {out}")
    shown = {
        "mean log predictive density of the new rows": f"{done.log_density:.6g}",
        "the same of those before, left out": f"{done.log_density_before:.6g}",
        "converged": "yes" if model.converged_ else "no",
        "solve": f"{done.epochs:.3g} epochs, {done.seconds:.2g} s",
    }
    show("update", shown)


def told_of(updates: Sequence[Update]) -> str:
    """Says what updates have done to a model since its fit."""
    added, gone = sum(one.added for one in updates), sum(one.forgotten for one in updates)
    told = f"{len(updates)} since the fit: {added:,} rows added, {gone:,} forgotten"
    return told + ("; a new fit is due" if any(one.drifted for one in updates) else "")


def target_of(model: GPRegressor, table: Table, given: Sequence[str], path: Path) -> str:
    """Returns the column of new targets: the one that is named, or that of the model's own name."""
    if given:
        return one_target(table, given)
    if model.target_name_ is None:
        raise UsageError(f"{path} does not say what its target is called: name the column with --target")
    check_column(table, model.target_name_, f"the target of {path}")
    return model.target_name_
