"""The command that says how good a model is by its own rows."""

from __future__ import annotations

import math
from pathlib import Path

from warmgp.cli.fitting import check_apart
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.terminal import console, lines_of, tell
from warmgp.estimator.left_out import LeaveOneOut
from warmgp.estimator.regressor import GPRegressor

COLUMNS = ("rows", "y", "mean", "std", "residual", "log_density", "mean_error", "std_error", "log_density_error")
"""What is written of each row, by the names of ``model.loo_``."""


def diagnose_model(path: Path, out: Path | None, device: str, *, likelihood: bool) -> None:
    """Prints the diagnosis of a model file, and writes the predictions of left-out rows where that is asked for."""
    check_apart({"MODEL": path, "--out": out})
    writer = None if out is None else TableWriter(out)  # before a model is read
    model = GPRegressor.load(path, device)
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
