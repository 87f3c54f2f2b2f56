"""The command line: from a table in a file to predictions with error bars, without writing Python.

Exit codes: 0 done; 1 a failure while running; 2 wrong usage or input; 130 interrupted; 143 terminated (nothing is left
half written, and the checkpoint has every whole step). An error is one line on stderr.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

import warmgp
from warmgp.cli import demo as demonstration
from warmgp.cli.answers import FarInputs, answer, feature_names
from warmgp.cli.columns import UsageError, feature_chunks, one_target, resolve, training_table
from warmgp.cli.held_out import metrics, split
from warmgp.cli.tables import TableError, TableWriter, open_table
from warmgp.cli.terminal import cells, console, say, show, tell
from warmgp.cli.termination import Terminated, terminated
from warmgp.estimator.convergence import ConvergenceWarning
from warmgp.estimator.regressor import GPRegressor
from warmgp.files.paths import NotAFileError, check_writable

FloatArray = NDArray[np.float64]

STOPPED = {"settled": "until it settled", "steps": "all of them: more may help"}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DataArgument = Annotated[Path, typer.Argument(metavar="DATA", help="table: .csv, .csv.gz, .parquet or .npz")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="model file written by fit")]
DeviceOption = Annotated[str, typer.Option(help='"auto", "cpu", "cuda", …')]
QuietOption = Annotated[bool, typer.Option("--quiet", help="no progress bar")]


def _version(asked: bool) -> None:
    if asked:
        tell(f"warmgp {warmgp.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Gaussian-process regression on tables: CSV (also .csv.gz), Parquet and npz files."""


# -- commands --------------------------------------------------------------------------------------------------------
@app.command()
def fit(
    data: DataArgument,
    target: Annotated[list[str], typer.Option(metavar="COL", help="column to predict")],
    out: Annotated[Path | None, typer.Option(help="model file to write")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COL", help="column to leave out (repeatable)")] = None,
    one_hot: Annotated[list[str] | None, typer.Option(metavar="COL", help="text column to encode (repeatable)")] = None,
    test_fraction: Annotated[float | None, typer.Option(help="share of rows to hold out and score on")] = None,
    kernel: Annotated[str, typer.Option(help="rbf, matern12, matern32 or matern52")] = "matern32",
    ard: Annotated[bool, typer.Option(help="one length scale per column, or one for all")] = True,
    solver: Annotated[str, typer.Option(help="auto, cholesky, cg, ap or sgd")] = "auto",
    gradient: Annotated[str, typer.Option(help="auto, exact, standard or pathwise")] = "auto",
    n_probes: Annotated[int, typer.Option(help="probes, also the posterior functions behind std")] = 64,
    n_features: Annotated[str, typer.Option(help="random features, an even number, or auto")] = "auto",
    tol: Annotated[float, typer.Option(help="relative residual at which a solve has converged")] = 0.01,
    max_epochs: Annotated[str, typer.Option(help="budget of a solve in epochs, none, or auto")] = "auto",
    n_steps: Annotated[str, typer.Option(help="Adam steps, or auto")] = "auto",
    learning_rate: Annotated[str, typer.Option(help="of Adam, or auto")] = "auto",
    init: Annotated[str, typer.Option(help="where to start: ones, sample, subset or auto")] = "auto",
    noise_floor: Annotated[float, typer.Option(help="least noise scale, in standardised units")] = 1e-4,
    dtype: Annotated[str, typer.Option(help="auto, float32 or float64")] = "auto",
    device: DeviceOption = "auto",
    seed: Annotated[int, typer.Option(help="of all randomness, the held-out rows included")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="keep the state of training in this file")] = None,
    checkpoint_every: Annotated[int, typer.Option(help="steps between checkpoints")] = 10,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the checkpoint, if there is one")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say how it would train, and the cost")] = False,
    quiet: QuietOption = False,
) -> None:
    """Train on a table and write a model file.

    With --test-fraction the model is trained on the other rows only, and scored on those held out.
    """
    if out is None and not dry_run:
        raise UsageError("--out is needed: the model file to write (or --dry-run, to see the plan only)")
    model = GPRegressor(
        kernel,
        ard=ard,
        solver=solver,
        gradient=gradient,
        n_probes=n_probes,
        n_features=_number("--n-features", n_features, int),
        tol=tol,
        max_epochs=_number("--max-epochs", max_epochs, float, none=True),
        n_steps=_number("--n-steps", n_steps, int),
        learning_rate=_number("--learning-rate", learning_rate, float),
        init=init,
        noise_floor=noise_floor,
        dtype=dtype,
        device=device,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        verbose=not quiet,
        random_state=seed,
    )
    if not 0 <= seed < 2**32:
        raise UsageError(f"--seed must be between 0 and 2**32 - 1, got {seed}")
    _check_settings(model)
    if test_fraction is not None and not 0 < test_fraction < 1:
        raise UsageError(f"--test-fraction must be between 0 and 1, got {test_fraction:g}")
    if out is not None:
        check_writable(out)
    _check_checkpoint(checkpoint, resume)
    _check_apart({"DATA": data, "--out": out, "--checkpoint": checkpoint})
    table = open_table(data)
    name = one_target(table, target)
    X, y = training_table(table, name, drop or [], one_hot or [])
    train, test = split(len(y), test_fraction, seed)
    if np.ptp(y[train]) == 0:
        raise TableError(
            f"the target {name!r} of {data} is constant ({y[train][0]:g}): nothing to learn, check --target"
        )
    if dry_run:
        told = f"{len(train):,} rows of {X.shape[1]} columns. {model.plan(X.iloc[train])}"
        tell(told)
        return
    interrupted = None
    try:
        model.fit(X.iloc[train], y[train])
    except KeyboardInterrupt as error:
        if not hasattr(model, "history_"):
            raise
        interrupted = error
    assert out is not None
    model.save(out)
    told = f"fitted {len(train):,} rows of {X.shape[1]} columns: {out}"
    if interrupted:
        told += f" (interrupted {interrupted})"
    tell(told)
    if interrupted:
        raise interrupted
    if len(test):
        found = answer(model, X.iloc[test], data, test + 1, std=True)
        show(
            f"{len(test):,} held-out rows, which the model has not seen", metrics(y[test], found["mean"], found["std"])
        )


@app.command()
def predict(
    model: ModelArgument,
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="table to write: .csv, .csv.gz, .parquet or .npz")],
    std: Annotated[bool, typer.Option("--std", help="also the standard deviation of a new observation")] = False,
    samples: Annotated[int, typer.Option(help="also this many posterior functions, without noise")] = 0,
    device: DeviceOption = "auto",
    quiet: QuietOption = False,
) -> None:
    """Predict every row of a table.

    In chunks, so that the table may be larger than memory; the output appears when it is whole.
    """
    _check_apart({"MODEL": model, "DATA": data, "--out": out})
    writer = TableWriter(out)
    fitted = GPRegressor.load(model, device)
    if not 0 <= samples <= fitted._posterior.n_samples:
        raise UsageError(
            f"--samples must be between 0 and the {fitted._posterior.n_samples} functions of {model}, got {samples}: "
            f"fit with a larger --n-probes for more"
        )
    table = open_table(data)
    names = feature_names(fitted)
    resolve(names, table)
    far, rows = FarInputs(fitted), 0
    with writer, _bar(quiet) as bar:
        task = bar.add_task("predicting", total=1.0, rows="0 rows")
        for X, _ in feature_chunks(table, names):
            far.look(X, data, rows + 1)
            numbers = range(rows + 1, rows + len(X) + 1)
            writer.write(answer(fitted, X, data, numbers, std=std, samples=samples))
            rows += len(X)
            bar.update(task, completed=table.fraction, rows=f"{rows:,} rows")
        bar.update(task, completed=1.0)
    if far.warning:
        say("warning", far.warning)
    if not quiet:
        tell(f"predicted {rows:,} rows: {out}", stderr=True)


@app.command()
def score(
    model: ModelArgument,
    data: DataArgument,
    target: Annotated[list[str], typer.Option(metavar="COL", help="column that holds the truth")],
    device: DeviceOption = "auto",
    quiet: QuietOption = False,
) -> None:
    """Compare predictions with true values.

    In the units of the target.
    """
    fitted = GPRegressor.load(model, device)
    table = open_table(data)
    name = one_target(table, target)
    names = feature_names(fitted)
    resolve(names, table)
    far, rows = FarInputs(fitted), 0
    parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    with _bar(quiet) as bar:
        task = bar.add_task("predicting", total=1.0, rows="")
        for X, others in feature_chunks(table, names, [name]):
            far.look(X, data, rows + 1)
            found = answer(fitted, X, data, range(rows + 1, rows + len(X) + 1), std=True)
            parts.append((others[name], found["mean"], found["std"]))
            rows += len(X)
            bar.update(task, completed=table.fraction)
        bar.update(task, completed=1.0)
    truth, mean, spread = (np.concatenate(values) for values in zip(*parts, strict=True))
    if far.warning:
        say("warning", far.warning)
    show(f"{len(truth):,} rows of {data}", metrics(truth, mean, spread))


@app.command()
def info(model: ModelArgument) -> None:
    """Say what a model file holds."""
    fitted = GPRegressor.load(model, "cpu")
    theta, scaler, history = fitted.hyperparameters_, fitted._scaler, fitted.history_
    x = fitted._posterior.x
    rows: dict[str, str] = {
        "kernel": fitted._posterior.kernel.name,
        "rows, columns": f"{x.shape[0]:,}, {x.shape[1]}",
        "noise": f"{float(theta.noise_scale):.6g} ({float(theta.noise_scale) * scaler.y_scale:.6g} in units of y)",
        "signal": f"{float(theta.signal_scale):.6g} ({float(theta.signal_scale) * scaler.y_scale:.6g} in units of y)",
        "plan": str(fitted.plan_),
        "converged": "yes"
        if fitted.converged_
        else f"no: the mean may be {fitted.solve_error_:.2g} predictive std from exact",
    }
    if history:
        seconds, epochs = sum(h.step_seconds for h in history), sum(h.epochs for h in history)
        rows["training"] = f"{fitted.n_steps_} steps ({STOPPED.get(fitted.stop_reason_, fitted.stop_reason_)}), " + (
            f"{epochs:.0f} epochs, {seconds:.1f} s"
        )
        rows["last residuals"] = f"{history[-1].residual_mean:.3g} (mean), {history[-1].residual_probes:.3g} (probes)"
    if fitted.log_marginal_likelihood_value_ is not None:
        rows["log marginal likelihood"] = f"{fitted.log_marginal_likelihood_value_:.6g} (standardised units)"
    show(str(model), rows)
    lengths = theta.length_scales.expand(x.shape[1]).tolist()
    grid = Grid("column", "length scale", "in its units", title="length scales", title_justify="left")
    constant = (x == x[0]).all(0).tolist()
    for name, length, unit, same in zip(feature_names(fitted), lengths, scaler.x_scale, constant, strict=True):
        told = ("constant", "–") if same else (f"{length:.6g}", f"{length * float(unit):.6g}")
        grid.add_row(*cells(name, *told))
    console().print(grid)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="where the picture goes")] = Path("demo.png"),
    n: Annotated[int, typer.Option("--n", min=10, help="training points")] = 5000,
    steps: Annotated[int, typer.Option(min=1, help="optimiser steps")] = 50,
    quiet: QuietOption = False,
) -> None:
    """Fit a noisy surface and draw mean, uncertainty and convergence."""
    check_writable(out)
    if importlib.util.find_spec("matplotlib") is None:
        raise RuntimeError("the demo draws with matplotlib, which is not installed: pip install 'warmgp[plot]'")
    options = ["--out", str(out), "--n", str(n), "--steps", str(steps)]
    demonstration.main([*options, "--quiet"] if quiet else options)


# -- what the commands are made of -----------------------------------------------------------------------------------
def _check_settings(model: GPRegressor) -> None:
    """Refuse wrong options by their name here, before a table is read."""
    try:
        model._check_settings()
    except ValueError as error:
        named = "|".join(model.get_params())
        text = re.sub(rf"\b({named})=[\"']?([\w.:]+)[\"']?", lambda m: f"--{m[1].replace('_', '-')} {m[2]}", str(error))
        text = re.sub(rf"^({named})\b", lambda m: f"--{m[1].replace('_', '-')}", text)
        raise UsageError(re.sub(r" or an object such as [\w.()]+", "", text)) from error


def _number(option: str, text: str, kind: Callable[[str], Any], none: bool = False) -> Any:
    """ "auto", a number, or None for "none" where that is allowed."""
    if text == "auto" or (none and text == "none"):
        return text if text == "auto" else None
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{option} must be {what}{', none' if none else ''} or auto, got {text!r}") from None


def _check_checkpoint(path: Path | None, resume: bool) -> None:
    if path is None:
        if resume:
            raise UsageError("--resume needs --checkpoint PATH, the file to go on from")
        return
    check_writable(path)
    if path.exists() and not resume:
        raise UsageError(f"the checkpoint {path} exists: add --resume to go on from it, or delete it to start anew")


def _check_apart(paths: dict[str, Path | None]) -> None:
    """Refuse to write over what is read."""
    seen: dict[Path, str] = {}
    for what, path in paths.items():
        if path is not None and (other := seen.setdefault(Path(os.path.realpath(path)), what)) != what:
            raise UsageError(f"{other} and {what} are the same file {path}: give another name")


def _bar(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rows]}"))
    quiet = quiet or not sys.stderr.isatty()  # a quiet console, too: before 15 rich ends even no bar with a line
    return Progress(*columns, TimeRemainingColumn(), console=console(stderr=True, quiet=quiet), disable=quiet)


# -- the way in and out ----------------------------------------------------------------------------------------------
def main(arguments: Iterable[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    with warnings.catch_warnings(), terminated():
        warnings.filterwarnings("always", category=ConvergenceWarning)
        warnings.showwarning = lambda message, *_, **__: say("warning", str(message))
        try:
            code = app(None if arguments is None else list(arguments), prog_name="warmgp", standalone_mode=False)
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Terminated:
            code = 143
        except Exception as error:
            code = _fail(error)
    if code in (130, 143):
        say("error", "interrupted" if code == 130 else "terminated")
    return code if isinstance(code, int) else 0


def _fail(error: Exception) -> int:
    """Tell an error in one line; its exit code."""
    if hasattr(error, "format_message"):  # wrong usage, found by typer
        if type(error).__name__ == "NoArgsIsHelpError":
            console(stderr=True).print(error.format_message())
        else:
            say("error", f"{error.format_message()} (see warmgp --help)")
        return 2
    wrong_input = isinstance(
        error, ValueError | FileNotFoundError | IsADirectoryError | NotAFileError | PermissionError
    )
    expected = wrong_input or isinstance(error, OSError | MemoryError | RuntimeError)
    text = str(error) or ("out of memory: try --solver ap, or fewer rows" if isinstance(error, MemoryError) else "")
    say("error", text if expected and text else f"{type(error).__name__}: {text}")
    return 2 if wrong_input and not isinstance(error, np.linalg.LinAlgError) else 1
