"""What ``warmgp score`` does: a table predicted, and compared with the values that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warmgp.cli.answers import FarInputs, answer
from warmgp.cli.columns import feature_chunks, resolve
from warmgp.cli.tables import Table, open_table
from warmgp.cli.targets import check_known, parts_of, show_scores, targets_of, targets_of_model
from warmgp.cli.terminal import bar, say
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor

FloatArray = NDArray[np.float64]


def score_file(path: Path, data: Path, *, target: Sequence[str], device: str, quiet: bool) -> None:
    """Prints how well a model in a file predicts the rows of a table; of several targets those that are named."""
    model = GPRegressor.load(path, device)
    names = feature_names(model)
    table = open_table(data, [*parts_of(target), *names])
    targets = _scored(model, table, target, path)
    resolve(names, table)
    far, rows = FarInputs(model), 0
    which = [model.target_names_.index(name) for name in targets] if model.target_names_ else None
    parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    with bar(quiet) as shown:
        task = shown.add_task("predicting", total=1.0, rows="")
        for X, others in feature_chunks(table, names, targets, columns=model.scaler_.columns):
            numbers = range(rows + 1, rows + len(X) + 1)
            far.look(X, data, numbers)
            found = answer(model, X, data, numbers, std=True)
            mean, std = (found[name] if which is None else found[name][:, which] for name in ("mean", "std"))
            truth = others[targets[0]] if which is None else np.stack([others[name] for name in targets], 1)
            parts.append((truth, mean, std))
            rows += len(X)
            shown.update(task, completed=table.fraction)
        shown.update(task, completed=1.0)
    truth, mean, std = (np.concatenate(values) for values in zip(*parts, strict=True))
    if far.warning:
        say("warning", far.warning)
    show_scores(f"{len(truth):,} rows of {data}", targets, truth, mean, std)


def _scored(model: GPRegressor, table: Table, given: Sequence[str], path: Path) -> list[str]:
    """Returns the columns that hold the truth: of several targets any of them, by their names."""
    if not given or not model.target_names_:
        return targets_of_model(model, table, given, path)
    names = targets_of(table, given)
    check_known(model, names, path)
    return names
