"""The command line: from a table in a file to predictions with error bars, without writing Python.

Exit codes: 0 done; 1 a failure while running; 2 wrong usage or input; 130 interrupted; 143 terminated (nothing is left
half written, and the checkpoint has every whole step). An error is one line on stderr.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

import warmgp
from warmgp.cli import demo as demonstration
from warmgp.cli import options as opt
from warmgp.cli.answers import levels_asked
from warmgp.cli.at_once import AtOnce, predict_rows
from warmgp.cli.columns import UsageError
from warmgp.cli.diagnosing import diagnose_model
from warmgp.cli.failing import fail
from warmgp.cli.fitting import check_apart, check_fit, check_request, fit_table, parsed
from warmgp.cli.info import tell_model
from warmgp.cli.kinds import columns_asked, text_inputs
from warmgp.cli.maps import cells_in, check_map_path, predict_map
from warmgp.cli.ranks import ranks
from warmgp.cli.reporting import report_model
from warmgp.cli.row_columns import RowColumns
from warmgp.cli.scoring import score_file
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.targets import parts_of
from warmgp.cli.terminal import say, tell
from warmgp.cli.termination import Terminated, terminated
from warmgp.cli.updating import Keeping, update_file
from warmgp.data.grids import parse_grid
from warmgp.estimator.convergence import ConvergenceWarning
from warmgp.estimator.maps import feature_names
from warmgp.estimator.regressor import GPRegressor
from warmgp.files.paths import check_writable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
    data: opt.Data,
    target: opt.Target,
    out: opt.OutModel = None,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    category: opt.Category = None,
    one_hot: opt.OneHot = None,
    date: opt.Date = None,
    periodic: opt.Periodic = None,
    geographic: opt.Geographic = None,
    missing: opt.Missing = "error",
    unknown_category: opt.UnknownCategory = "error",
    weight_column: opt.WeightColumn = None,
    noise_column: opt.NoiseColumn = None,
    test_fraction: opt.TestFraction = None,
    predict: opt.PredictToo = None,
    predictions: opt.Predictions = None,
    interval: opt.Interval = None,
    kernel: opt.KernelName = "auto",
    ard: opt.Ard = True,
    anisotropy: opt.AnisotropyName = None,
    solver: opt.SolverName = "auto",
    gradient: opt.GradientName = "auto",
    n_probes: opt.Probes = 64,
    n_features: opt.Features = "auto",
    tol: opt.Tolerance = 0.01,
    max_epochs: opt.MaxEpochs = "auto",
    n_steps: opt.Steps = "auto",
    learning_rate: opt.LearningRate = "auto",
    init: opt.Init = "auto",
    trend: opt.Trend = None,
    noise_floor: opt.NoiseFloor = "auto",
    no_learn_noise: opt.NoNoise = False, robust: opt.Robust = False,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    time_limit: opt.TimeLimit = None,
    seed: opt.Seed = 0,
    checkpoint: opt.Checkpoint = None,
    checkpoint_every: opt.CheckpointEvery = 10,
    resume: opt.Resume = False,
    dry_run: opt.DryRun = False,
    quiet: opt.Quiet = False,
) -> None:  # fmt: skip
    """Train on a table and write a model file.

    With --test-fraction the model is trained on the other rows only, and scored on those held out.
    """
    model = GPRegressor(
        kernel,
        ard=ard,
        columns=columns_asked(geographic, category, one_hot, date, periodic),
        missing=missing,
        unknown_category=unknown_category,
        anisotropy=anisotropy,
        solver=solver,
        gradient=gradient,
        n_probes=n_probes,
        tol=tol,
        init=init,
        learn_noise=not no_learn_noise, robust=robust,
        dtype=dtype, device=device,
        checkpoint=checkpoint, checkpoint_every=checkpoint_every,
        verbose=not quiet, random_state=seed,
        **parsed(n_features, max_epochs, n_steps, learning_rate, noise_floor, time_limit, trend),
    )  # fmt: skip
    check_fit(model, data, out, test_fraction, resume=resume, dry_run=dry_run)
    where, rows = None if dry_run else out, RowColumns(weight_column, noise_column)
    then = AtOnce(predict, predictions, interval)
    then.check(data, where, [*target, *parts_of(target), *(drop or []), *rows.names], keep)
    fit_table(model, data, target, where, drop=drop, keep=keep, rows=rows, test_fraction=test_fraction)
    then.answer(model, keep, quiet=quiet)


@app.command()
def plan(
    data: opt.Data,
    target: opt.Target,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    category: opt.Category = None,
    one_hot: opt.OneHot = None,
    date: opt.Date = None,
    periodic: opt.Periodic = None,
    geographic: opt.Geographic = None,
    missing: opt.Missing = "error",
    kernel: opt.KernelName = "auto",
    solver: opt.SolverName = "auto",
    n_steps: opt.Steps = "auto",
    trend: opt.Trend = None,
    device: opt.Device = "auto",
    time_limit: opt.TimeLimit = None,
) -> None:
    """Say how fit would train on a table, how long that takes, and why; nothing is trained.

    For other options of fit use its --dry-run.
    """
    model = GPRegressor(
        kernel,
        columns=columns_asked(geographic, category, one_hot, date, periodic),
        missing=missing,
        solver=solver,
        device=device,
        random_state=0,
        **parsed("auto", "auto", n_steps, "auto", "auto", time_limit, trend),
    )
    check_fit(model, data, None, None, resume=False, dry_run=True)
    fit_table(model, data, target, None, drop=drop, keep=keep)


@app.command()
def predict(
    model: opt.Model,
    out: opt.OutTable,
    data: opt.MaybeData = None,
    grid: opt.GridText = None,
    blocks: opt.Blocks = None,
    std: opt.Std = False,
    interval: opt.Interval = None,
    quantiles: opt.Quantiles = None,
    samples: opt.Samples = 0,
    keep: opt.Carried = None,
    device: opt.Device = "auto",
    quiet: opt.Quiet = False,
) -> None:
    """Predict every row of a table, or every cell of a grid.

    In chunks, so that the table may be larger than memory; the output appears when it is whole.
    """
    check_apart({"MODEL": model, "DATA": data, "--out": out})
    gridded, levels = check_request(data, grid, blocks, samples, keep), levels_asked(interval, quantiles)
    check_map_path(out) if gridded else TableWriter(out)  # before a model is read
    fitted = GPRegressor.load(model, device)
    most = fitted.posterior_.n_samples
    if not 0 <= samples <= most:
        raise UsageError(
            f"--samples must be between 0 and the {most} functions of {model}, got {samples}: fit with a larger "
            f"--n-probes for more"
        )
    names = feature_names(fitted)
    if data is None or gridded:
        texts = text_inputs(fitted)
        cells = parse_grid(grid or "", names, texts) if data is None else cells_in(data, names, texts)
        std = std or data is None or blocks is not None  # a map without its uncertainty is half a map
        source = data or Path("--grid")
        predict_map(
            fitted, cells, source, out, std=std, samples=samples, blocks=blocks, quantiles=levels, quiet=quiet
        )  # fmt: skip
    else:
        predict_rows(fitted, data, out, std=std, samples=samples, quantiles=levels, quiet=quiet, keep=keep)


@app.command()
def score(
    model: opt.Model,
    data: opt.Data,
    target: opt.Truth = None,
    device: opt.Device = "auto",
    quiet: opt.Quiet = False,
) -> None:
    """Compare predictions with true values.

    In the units of the target, and for each of several targets apart.
    """
    score_file(model, data, target=target or [], device=device, quiet=quiet)


@app.command()
def update(
    model: opt.Model,
    data: opt.Data,
    out: opt.OutUpdated,
    target: opt.NewTarget = None,
    weight_column: opt.WeightColumn = None,
    noise_column: opt.NoiseColumn = None,
    n_steps: opt.MoreSteps = 0,
    checkpoint: opt.Checkpoint = None,
    checkpoint_every: opt.CheckpointEvery = 1,
    resume: opt.Resume = False,
    device: opt.Device = "auto",
) -> None:
    """Add the rows of a table to a model, without starting over.

    Hyperparameters stay as they are, unless --n-steps says otherwise; a warning says when a new fit is due. The file
    at --out is replaced once the new one is whole. Steps that were cut short go on from a --checkpoint.
    """
    rows, keeping = RowColumns(weight_column, noise_column), Keeping(checkpoint, checkpoint_every, resume)
    update_file(model, data, out, target=target or [], rows=rows, n_steps=n_steps, device=device, keeping=keeping)


@app.command()
def info(model: opt.Model) -> None:
    """Say what a model file holds."""
    tell_model(model)


@app.command()
def diagnose(
    model: opt.Model,
    out: opt.OutLeftOut = None,
    target: opt.OneTarget = None,
    likelihood: opt.WithLikelihood = False,
    device: opt.Device = "auto",
) -> None:
    """Say how good a model is by its own rows, each predicted from all others, and what to do about it."""
    diagnose_model(model, out, device, target=target, likelihood=likelihood)


@app.command()
def report(
    model: opt.Model,
    out: opt.OutPage,
    data: opt.HeldOut = None,
    target: opt.HeldOutTarget = None,
    unit: opt.Unit = None,
    device: opt.Device = "auto",
    quiet: opt.Quiet = False,
) -> None:
    """Write one page about a model, to read, print and attach: data, plan, training, calibration, sections, maps.

    With DATA, rows that the model has not seen, also how well it predicts them.
    """
    report_model(model, data, out, target=target or [], units=unit or [], device=device, quiet=quiet)


@app.command()
def demo(
    out: opt.OutPicture = Path("demo.png"),
    n: opt.Points = 5000,
    steps: opt.DemoSteps = 50,
    quiet: opt.Quiet = False,
) -> None:
    """Fit a noisy surface and draw mean, uncertainty and convergence."""
    check_writable(out)
    if importlib.util.find_spec("matplotlib") is None:
        raise RuntimeError("the demo draws with matplotlib, which is not installed: pip install 'warmgp[plot]'")
    options = ["--out", str(out), "--n", str(n), "--steps", str(steps)]
    demonstration.main([*options, "--quiet"] if quiet else options)


# -- the way in and out ----------------------------------------------------------------------------------------------
def main(arguments: Iterable[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    with warnings.catch_warnings(), terminated():
        warnings.filterwarnings("always", category=ConvergenceWarning)
        warnings.showwarning = lambda message, *_, **__: say("warning", str(message))
        try:
            asked = None if arguments is None else list(arguments)
            with ranks(asked) as busy:
                code = app(asked, prog_name="warmgp", standalone_mode=False) if busy else 0
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Terminated:
            code = 143
        except Exception as error:
            code = fail(error)
    if code in (130, 143):
        say("error", "interrupted" if code == 130 else "terminated")
    return code if isinstance(code, int) else 0
