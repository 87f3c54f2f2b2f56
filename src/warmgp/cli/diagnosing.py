"""The command that says how good a model is by its own rows."""

from __future__ import annotations

import math
from pathlib import Path

from warmgp.cli.columns import UsageError
from warmgp.cli.fitting import check_apart
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.terminal import console, lines_of, tell
from warmgp.estimator.left_out import LeaveOneOut
from warmgp.estimator.regressor import GPRegressor

COLUMNS = ("rows", "y", "mean", "std", "residual", "log_density", "mean_error", "std_error", "log_density_error")
"""What is written of each row, by the names of ``model.loo_``."""


def diagnose_model(
    path: Path, out: Path | None, device: str, *, target: str | None = None, likelihood: bool = False
) -> None:
    """Prints the diagnosis of a model file, and writes the predictions of left-out rows where that is asked for.

    Several targets are diagnosed one after the other, or the one that is named.
    """
    check_apart({"MODEL": path, "--out": out})
    writer = None if out is None else TableWriter(out)  # before a model is read
    model = GPRegressor.load(path, device)
    if target is not None and target not in (model.target_names_ or (model.target_name_,)):
        known = ", ".join(model.target_names_) or str(model.target_name_)
        raise UsageError(f"--target {target}: {path} has no such target, but {known}")
    if model.target_names_ and target is None and out is not None:
        raise UsageError(f"--out takes the rows of one target, and {path} has {model.n_targets_}: name it, --target")
    for name in [target] if target is not None else model.target_names_ or [None]:
        if name is not None and model.target_names_:
            tell(f"target {name}")
        _diagnose(model if name is None else model.of_target(name), out, writer, likelihood=likelihood)


def _diagnose(model: GPRegressor, out: Path | None, writer: TableWriter | None, *, likelihood: bool) -> None:
    """Prints the diagnosis of a model of one target, and writes its left-out rows."""
    console().print(lines_of(str(model.diagnose())))
    if likelihood:
        value, error = model.log_marginal_likelihood_value_, model.log_marginal_likelihood_error_
        in_units = value - len(model.posterior_.x) * math.log(model.scaler_.y_scale)
        tell(f"log marginal likelihood {value:.6g} ± {error:.2g} in standardised units, {in_units:.6g} in units of y")
    if writer is not None:
        with writer:
            writer.write(columns_of(model.loo_))
        tell(f"{len(model.loo_.rows):,} left-out rows written to {out}")


def columns_of(loo: LeaveOneOut) -> dict[str, object]:
    """Returns left-out rows by column, "row" for the number of the row in the data of the fit."""
    found = {name: getattr(loo, name) for name in COLUMNS}
    return {"row": found.pop("rows"), **found}
