"""Rows of a table predicted, by a model from a file, or at once after the fit that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from warmgp.cli.answers import FarInputs, answer, levels_asked
from warmgp.cli.columns import UsageError, feature_chunks, resolve
from warmgp.cli.fitting import check_apart
from warmgp.cli.kinds import kept_columns
from warmgp.cli.ranks import answered
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.tables import TableError, open_table
from warmgp.cli.targets import by_target, names_of_answers
from warmgp.cli.terminal import bar, say, tell
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor
from warmgp.processes import writes

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class AtOnce:
    """Names the table that a fit predicts when it is done, where its predictions go, and the share of an interval."""

    table: Path | None
    out: Path | None
    interval: float | None

    def check(self, data: Path, model: Path | None, left_out: Sequence[str], keep: Sequence[str] | None) -> None:
        """Refuses, before any training, half a request, a table that lacks columns, and files that are the same.

        ``data`` is the table to train on, of which ``left_out`` and ``keep`` are no inputs, and ``model`` the file to
        write; None where nothing is trained.
        """
        if self.table is None and self.out is None and self.interval is None:
            return
        if self.table is None or self.out is None:
            raise UsageError("--predict NEW, --predictions OUT and --interval belong together: give both tables")
        if model is None:
            raise UsageError("--predict predicts with the model that is trained, and --dry-run trains none")
        check_apart({"DATA": data, "--predict": self.table, "--out": model, "--predictions": self.out})
        levels_asked(self.interval, None)
        TableWriter(self.out)
        new, old = open_table(self.table), open_table(data)
        kept = {*left_out, *kept_columns(old, keep)}
        lacking = [name for name in old.columns if name not in kept and name not in new.columns]
        if lacking:
            told = ", ".join(map(repr, lacking[:5])) + (" …" if len(lacking) > 5 else "")
            raise TableError(
                f"{self.table} lacks {told}, which {data} has as inputs: --drop them, or correct the table"
            )
        kept_columns(new, keep)

    def answer(self, model: GPRegressor, keep: list[str] | None, *, quiet: bool) -> None:
        """Predicts the table, with the std and the interval, beside the columns that are kept."""
        if self.table is not None and self.out is not None:
            levels = levels_asked(self.interval, None)
            predict_rows(model, self.table, self.out, std=True, samples=0, quantiles=levels, quiet=quiet, keep=keep)


def predict_rows(
    model: GPRegressor, data: Path, out: Path, *, std: bool, samples: int, quantiles: Mapping[str, float], quiet: bool,
    keep: list[str] | None = None,
) -> None:  # fmt: skip
    """Predicts every row of a table and writes what comes of it, beside the columns that are kept.

    Of several processes each predicts a part of every chunk, and rank 0 writes.
    """
    table = open_table(data)
    names = feature_names(model)
    resolve(names, table)
    plain = ["mean", *(["std"] if std else []), *quantiles, *(f"sample_{k + 1}" for k in range(samples))]
    kept = kept_columns(table, keep, names_of_answers(model, plain))
    far, rows = FarInputs(model), 0

    def asked(X: pd.DataFrame, which: range) -> dict[str, FloatArray]:
        return answer(model, X, data, which, std=std, samples=samples, quantiles=quantiles)

    with TableWriter(out) if writes() else nullcontext() as writer, bar(quiet) as shown:
        task = shown.add_task("predicting", total=1.0, rows="0 rows")
        for X, others in feature_chunks(table, names, columns=model.scaler_.columns, keep=kept):
            which = range(rows + 1, rows + len(X) + 1)
            far.look(X, data, which)
            found = answered(X, which, asked)
            if writer is not None:
                writer.write({name: others[name] for name in kept} | by_target(model, found))
            rows += len(X)
            shown.update(task, completed=table.fraction, rows=f"{rows:,} rows")
        shown.update(task, completed=1.0)
    if far.warning:
        say("warning", far.warning)
    if not quiet:
        tell(f"predicted {rows:,} rows: {out}", stderr=True)
