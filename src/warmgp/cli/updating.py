"""What ``warmgp update`` does: new rows read as the model knows its columns, added to it, and written whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from warmgp.cli.answers import inputs_for
from warmgp.cli.columns import UsageError, feature_chunks, resolve
from warmgp.cli.fitting import check_apart, check_paths
from warmgp.cli.kinds import cells_of
from warmgp.cli.row_columns import RowColumns
from warmgp.cli.tables import TableError, open_table
from warmgp.cli.targets import parts_of, targets_of_model
from warmgp.cli.terminal import show, tell
from warmgp.estimator.drift import Update
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor


@dataclass(frozen=True)
class Keeping:
    """Holds what is said of the checkpoint of an update: its path, the steps between two saves, whether to go on."""

    path: Path | None
    every: int
    resume: bool

    def check(self, model: Path, data: Path, out: Path, n_steps: int) -> None:
        """Refuses files that are the same or cannot be written, and a checkpoint of no steps, before any is read."""
        check_paths(data, out, self.path, self.resume)
        check_apart({"MODEL": model, "--checkpoint": self.path})
        if self.path is not None and not n_steps:
            raise UsageError(
                "--checkpoint keeps the steps of an update, and this one has none, only a solve: leave it out, or give "
                "--n-steps"
            )
        if self.every < 1:
            raise UsageError(f"--checkpoint-every must be a count of steps, 1 or more, got {self.every}")


def update_file(
    path: Path,
    data: Path,
    out: Path,
    *,
    target: Sequence[str],
    rows: RowColumns,
    n_steps: int,
    device: str,
    keeping: Keeping,
) -> None:
    """Adds the rows of a table to a model in a file and writes it to ``out``, which may be that very file.

    Whatever ends it before, the file at ``out`` stays as it was: a new one takes its place once it is whole. Of several
    processes rank 0 writes it.
    """
    keeping.check(path, data, out, n_steps)
    model = GPRegressor.load(path, device)
    every = model.checkpoint_every
    model.set_params(checkpoint=keeping.path, checkpoint_every=keeping.every)
    names = feature_names(model)
    table = open_table(data, [*parts_of(target), *rows.names, *names])
    targets = targets_of_model(model, table, target, path)
    resolve(names, table)
    rows.check(table, targets, names)
    parts = list(feature_chunks(table, names, [*targets, *rows.names], columns=model.scaler_.columns))
    if not parts:
        raise TableError(f"{data} has no row to add to {path}")
    X = pd.concat([part for part, _ in parts], ignore_index=True)
    beside = {key: np.concatenate([others[key] for _, others in parts]) for key in (*targets, *rows.names)}
    y = np.stack([beside[name] for name in targets], 1) if len(targets) > 1 else beside[targets[0]]
    with cells_of(data, range(1, len(X) + 1)):
        model.update(inputs_for(model, X), y, n_steps, **rows.arguments(beside, data))
    model.set_params(checkpoint=None, checkpoint_every=every).save(out)  # which are of this command alone
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
