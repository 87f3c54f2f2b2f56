"""The options of the command line: what each takes, and how ``--help`` explains it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# -- of several commands ---------------------------------------------------------------------------------------------
Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="table: .csv, .csv.gz, .npz, .parquet or a folder of those; grid: .nc")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="model file written by fit")]
Device = Annotated[str, typer.Option(help='"auto", "cpu", "cuda", …')]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress bar")]

# -- of fit ----------------------------------------------------------------------------------------------------------
Target = Annotated[list[str], typer.Option(metavar="COL,COL", help="column to predict, or several")]
OutModel = Annotated[Path | None, typer.Option(help="model file to write")]
Drop = Annotated[list[str] | None, typer.Option(metavar="COL", help="column to leave out (repeatable)")]
Keep = Annotated[list[str] | None, typer.Option(metavar="COL,COL", help="columns that are no inputs, such as an id")]
OneHot = Annotated[list[str] | None, typer.Option(metavar="COL", help="the same as --category, for one column")]
Category = Annotated[
    list[str] | None, typer.Option(metavar="COL,COL", help="columns of a few different values, as text")
]
Date = Annotated[list[str] | None, typer.Option(metavar="COL,COL", help="columns of dates; COL=%d/%m/%Y as written")]
Periodic = Annotated[
    list[str] | None, typer.Option(metavar="COL=PERIOD", help="hour=24, or when=year (week, day) of dates")
]
Missing = Annotated[str, typer.Option(help="blank inputs: error, or mean to fill them in")]
UnknownCategory = Annotated[str, typer.Option(help="a value not seen in training: error, or zero")]
Geographic = Annotated[
    list[str] | None, typer.Option(metavar="LAT,LON", help="two columns in degrees: a place (repeatable)")
]
WeightColumn = Annotated[str | None, typer.Option(metavar="COL", help="column of weights: no input")]
NoiseColumn = Annotated[str | None, typer.Option(metavar="COL", help="column of known errors, each a std: no input")]
TestFraction = Annotated[float | None, typer.Option(help="share of rows to hold out and score on")]
KernelName = Annotated[str, typer.Option(help="auto, matern12, matern32, matern52 or rbf")]
Ard = Annotated[bool, typer.Option(help="one length scale per column, or one for all")]
AnisotropyName = Annotated[str | None, typer.Option(help="rotated: find the direction of the longest range")]
SolverName = Annotated[str, typer.Option(help="auto, cholesky, cg, ap, sgd or rap")]
GradientName = Annotated[str, typer.Option(help="auto, exact, standard or pathwise")]
Probes = Annotated[int, typer.Option(help="probes, also the posterior functions behind std")]
Features = Annotated[str, typer.Option(help="random features, an even number, or auto")]
Tolerance = Annotated[float, typer.Option(help="relative residual at which a solve has converged")]
MaxEpochs = Annotated[str, typer.Option(help="budget of a solve in epochs, none, or auto")]
Trend = Annotated[str | None, typer.Option(help="constant, linear, quadratic or drift:COL,COL")]
Steps = Annotated[str, typer.Option(help="Adam steps, or auto")]
LearningRate = Annotated[str, typer.Option(help="of Adam, or auto")]
Init = Annotated[str, typer.Option(help="where to start: ones, sample, subset or auto")]
NoNoise = Annotated[bool, typer.Option("--no-learn-noise", help="no noise beside the known errors")]
Robust = Annotated[bool, typer.Option("--robust", help="outliers of the target lose weight, or are left out")]
NoiseFloor = Annotated[str, typer.Option(help="auto, or the least noise scale in standardised units")]
Dtype = Annotated[str, typer.Option(help="auto, float32 or float64")]
TimeLimit = Annotated[str | None, typer.Option(metavar="TIME", help="what fit may take: 90s, 10m or 2h")]
Seed = Annotated[int, typer.Option(help="of all randomness, the held-out rows included")]
Checkpoint = Annotated[Path | None, typer.Option(help="keep the state of training in this file")]
CheckpointEvery = Annotated[int, typer.Option(help="steps between checkpoints")]
Resume = Annotated[bool, typer.Option("--resume", help="go on from the checkpoint, if there is one")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only say how it would train, and the cost")]

# -- of predict, score, diagnose and demo ----------------------------------------------------------------------------
MaybeData = Annotated[
    Path | None,
    typer.Argument(metavar="DATA", help="table: .csv, .csv.gz, .npz, .parquet or a folder of those; grid: .nc"),
]
OutTable = Annotated[Path, typer.Option(help="to write: .csv, .csv.gz, .parquet, .npz; of a grid also .nc")]
GridText = Annotated[
    str | None, typer.Option("--grid", metavar="SPEC", help='cells instead of DATA: "x=0:9:0.1,y=0:5:0.1,day=180"')
]
Blocks = Annotated[int | None, typer.Option(metavar="K", help="average each cell of a grid by K points a side")]
Carried = Annotated[
    list[str] | None, typer.Option("--keep", metavar="COL,COL", help="columns to carry over to the output (repeatable)")
]
PredictToo = Annotated[Path | None, typer.Option("--predict", metavar="NEW", help="a table to predict after the fit")]
Predictions = Annotated[Path | None, typer.Option(metavar="OUT", help="where those predictions go, with their std")]
Std = Annotated[bool, typer.Option("--std", help="also the standard deviation of a new observation")]
Interval = Annotated[
    float | None, typer.Option(metavar="SHARE", help="also lower and upper end that hold this share, such as 0.9")
]
Quantiles = Annotated[str | None, typer.Option(metavar="Q,Q", help="also these quantiles, such as 0.05,0.5,0.95")]
Samples = Annotated[int, typer.Option(help="also this many posterior functions, without noise")]
OutLeftOut = Annotated[
    Path | None, typer.Option("--out", help="table of left-out rows to write: .csv, .csv.gz, .parquet or .npz")
]
WithLikelihood = Annotated[bool, typer.Option("--likelihood", help="also the log marginal likelihood")]
NewTarget = Annotated[
    list[str] | None, typer.Option("--target", metavar="COL,COL", help="column of targets, if not that of the fit")
]
OutUpdated = Annotated[Path, typer.Option(help="model file to write; may be MODEL itself")]
MoreSteps = Annotated[int, typer.Option("--n-steps", min=0, help="Adam steps that hyperparameters take on all rows")]
HeldOut = Annotated[Path | None, typer.Argument(metavar="DATA", help="table of rows that the model has not seen")]
HeldOutTarget = Annotated[
    list[str] | None,
    typer.Option("--target", metavar="COL", help="column of DATA with the truth, if not that of the fit"),
]
OutPage = Annotated[Path, typer.Option(help="page to write: .html")]
Unit = Annotated[list[str] | None, typer.Option(metavar="COL=UNIT", help="unit of a column or of the target")]
Truth = Annotated[
    list[str] | None, typer.Option("--target", metavar="COL,COL", help="column that holds the truth, or several")
]
OneTarget = Annotated[
    str | None, typer.Option("--target", metavar="COL", help="of several targets the one to diagnose")
]
OutPicture = Annotated[Path, typer.Option(help="where the picture goes")]
Points = Annotated[int, typer.Option("--n", min=10, help="training points")]
DemoSteps = Annotated[int, typer.Option(min=1, help="optimiser steps")]
