"""Make the tutorial's tables, run every command and every Python block of the pages, and draw the tutorial's pictures.

    OMP_NUM_THREADS=1 python docs/make_tutorial.py

A fenced ``text`` block is what the block before it printed: it is written anew. A ``console`` block is a command that
warmgp refuses, with what it says. Everything is seeded; only seconds differ from run to run, and a block in which
nothing else has changed stays as it is. A block below a comment ``<!-- not run: why -->`` is left alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from warmgp.cli import commands as cli

DOCS = Path(__file__).resolve().parent
PAGES = (
    "index.md",
    "tutorial.md",
    "choosing.md",
    "maps.md",
    "trend.md",
    "columns.md",
    "intervals.md",
    "known_errors.md",
    "diagnose.md",
    "report.md",
    "command_line.md",
    "grids.md",
    "mathematics.md",
    "extending.md",
    "from_kriging.md",
    "from_sklearn.md",
    "from_gpytorch.md",
    "how_to/time_series.md",
    "how_to/new_data.md",
    "how_to/several_targets.md",
    "how_to/parallel_fits.md",
)
FENCE = re.compile(r"^```(python|sh|console|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: [^\n]+ -->\n+$")

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.45"  # Okabe and Ito: for every kind of colour vision


# -- the data --------------------------------------------------------------------------------------------------------
def river_table(n: int, year: int, seed: int) -> pd.DataFrame:
    """Made-up measurements of river temperature: an S-curve in air temperature, cooled by shade, flow and springs."""
    rng = np.random.default_rng(seed)
    day = rng.integers(1, 366, n)
    elevation = rng.uniform(50, 1400, n)
    shade = rng.beta(1.4, 1.6, n) * 95
    bed = rng.choice(["gravel", "sand", "bedrock", "spring-fed"], n, p=[0.4, 0.25, 0.2, 0.15])
    season = -np.cos(2 * np.pi * (day - 20) / 365)  # −1 in late January, +1 in July
    air = 11 + 9 * season - 0.0062 * (elevation - 300) + rng.normal(0, 3.5, n)
    melt = np.exp(-0.5 * ((day - 135) / 25) ** 2) * elevation / 1400
    flow = np.exp(rng.normal(1.6, 0.7, n) + 0.9 * melt)
    water = 25 / (1 + np.exp(0.17 * (13.5 - air)))
    water -= 0.025 * shade * np.clip(season + 0.2, 0, None) * (water / 15)
    water -= 1.8 * melt + 0.5 * np.log(flow / 5) * season
    spring = bed == "spring-fed"
    water[spring] = 9 + 0.4 * (water[spring] - 9)
    water[bed == "bedrock"] += 0.6 * np.clip(season[bed == "bedrock"], 0, None)
    water += rng.normal(0, 0.5, n)
    return pd.DataFrame(
        {
            "sample": [f"{year % 100}-{i:04d}" for i in range(1, n + 1)],
            "date": [(date(year, 1, 1) + timedelta(days=int(d) - 1)).isoformat() for d in day],
            "day": day,
            "air_c": air.round(1),
            "flow_m3s": flow.round(2),
            "elevation_m": elevation.round(0).astype(int),
            "shade_pct": shade.round(0).astype(int),
            "bed": bed,
            "water_c": water.round(2),
        }
    )


def write_tables(folder: Path, n: int = 900, n_later: int = 1000) -> None:
    """rivers.csv to learn from, later.csv measured in the year after."""
    river_table(n, 2024, seed=1).to_csv(folder / "rivers.csv", index=False)
    river_table(n_later, 2025, seed=2).to_csv(folder / "later.csv", index=False)


# -- running a page --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, where it lies, and on which line it begins."""

    language: str
    text: str
    span: tuple[int, int]
    line: int


def blocks(text: str) -> list[Block]:
    """The python, sh, console and text blocks of a page, in order."""
    return [
        Block(m[1], m[2], m.span(2), text.count("\n", 0, m.start(2)) + 1)
        for m in FENCE.finditer(text)
        if not NOT_RUN.search(text, 0, m.start())
    ]


def commands(block: Block) -> list[list[str]]:
    """The warmgp commands of a block, without the name."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [w[1:] for w in words if w[:1] == ["warmgp"]]


def run_python(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Execute a block in the namespace of its page; a traceback shows the page's own line numbers."""
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


def run_block(block: Block, page: Path, names: dict[str, Any]) -> str:
    """What a block prints. A Python block that begins with the name of a file is also written there."""
    out = io.StringIO()
    if block.language == "python":
        if named := re.match(r"# (\w+\.py)\n", block.text):
            Path(named[1]).write_text(block.text)
        with contextlib.redirect_stdout(out):
            run_python(block, page, names)
        return out.getvalue()
    for command in commands(block):
        said = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = cli.main(command)
        if (code != 0) != (block.language == "console"):
            raise RuntimeError(
                f"{page}:{block.line}: warmgp {shlex.join(command)} ended with {code}: {said.getvalue()}"
            )
        if block.language == "console":
            out.write(said.getvalue())
    return out.getvalue()


def refresh(page: Path, names: dict[str, Any]) -> str:
    """The page with what its blocks print now."""
    text = page.read_text()
    edits: list[tuple[tuple[int, int], str]] = []
    printed = ""
    for block in blocks(text):
        if block.language == "text":
            edits.append((block.span, printed))
            continue
        printed = run_block(block, page, names)
        if block.language == "console":
            shown = block.text[: re.search(r"[^\\]\n", block.text).end()]  # type: ignore[union-attr]
            edits.append((block.span, shown + printed))
    for (start, stop), new in reversed(edits):
        new = "".join(line.rstrip() + "\n" for line in new.splitlines())
        if _without_seconds(new) != _without_seconds(text[start:stop]):
            text = text[:start] + new + text[stop:]
    return text


def _without_seconds(text: str) -> str:
    return re.sub(r" *\d+\.\d+ s\b *", " s ", text)


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A new folder to run a page in."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield Path(name)


# -- pictures --------------------------------------------------------------------------------------------------------
def draw_calibration(names: dict[str, Any], path: Path) -> None:
    """Predicted quantile against the share of rows below it, and how often intervals hold what they should."""
    plt = _pyplot()
    levels, below, n = names["levels"], names["below"], len(names["later"])
    wobble = 1.96 * np.sqrt(levels * (1 - levels) / n)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained")
    quantiles, table = axes
    quantiles.fill_between(
        levels, levels - wobble, levels + wobble, color="0.85", label=f"chance alone (95%, n = {n:,})"
    )
    quantiles.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="perfectly calibrated")
    quantiles.plot(levels, below, "o-", color=BLUE, markersize=4.5, label="this model")
    quantiles.set(
        title="Are the quantiles right?",
        xlabel="predicted quantile",
        ylabel="share of measurements below it",
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
    )
    quantiles.legend(loc="upper left", frameon=False)
    error = names["z"]
    grid = np.linspace(-4, 4, 200)
    table.hist(error, bins=np.linspace(-4, 4, 33), density=True, color="#56B4E9", edgecolor="white", linewidth=0.5)
    table.plot(grid, np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi), color=ORANGE, linewidth=1.8, label="standard normal")
    table.set(
        title="Errors in units of the predicted std",
        xlabel="(measured − predicted) / std",
        ylabel="density",
        xlim=(-4, 4),
        ylim=(0, 0.5),
    )
    table.legend(loc="upper right", frameon=False)
    _save(figure, path)


def draw_predictions(names: dict[str, Any], path: Path) -> None:
    """Later measurements against their predictions, and a year at one imagined site."""
    plt = _pyplot()
    later, mean, std, model = names["later"], names["mean"], names["std"], names["model"]
    figure, (against, year) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1, 1.25))
    few = np.arange(0, len(later), 5)
    against.plot([-2, 26], [-2, 26], color=GREY, linewidth=1)
    against.errorbar(
        mean[few],
        later["water_c"].to_numpy()[few],
        xerr=1.96 * std[few],
        fmt="o",
        color=BLUE,
        ecolor="#9ECAE1",
        markersize=2.8,
        elinewidth=0.9,
    )
    against.set(
        title=f"{len(few)} later measurements, 95% error bars",
        xlabel="predicted water temperature (°C)",
        ylabel="measured water temperature (°C)",
        xlim=(-2, 26),
        ylim=(-2, 26),
        aspect="equal",
    )
    days = np.arange(1, 366)
    season = -np.cos(2 * np.pi * (days - 20) / 365)
    site = pd.DataFrame({"day": days, "air_c": 11 + 9 * season, "flow_m3s": 5.0, "elevation_m": 300, "shade_pct": 30.0})
    for bed, colour, style in (("gravel", BLUE, "-"), ("spring-fed", ORANGE, "--")):
        site["bed"] = bed
        centre, spread = model.predict(site[list(model.feature_names_in_)], return_std=True)
        year.fill_between(days, centre - 1.96 * spread, centre + 1.96 * spread, color=colour, alpha=0.2, linewidth=0)
        year.plot(days, centre, style, color=colour, linewidth=1.8, label=f"{bed} bed")
    year.plot(days, site["air_c"], ":", color=GREY, linewidth=1.5, label="air temperature given")
    year.set(
        title="A year at 300 m: mean and 95% band",
        xlabel="day of the year",
        ylabel="temperature (°C)",
        xlim=(1, 365),
        ylim=(0, 26),
    )
    year.legend(loc="upper left", frameon=False)
    _save(figure, path)


def draw_history(names: dict[str, Any], path: Path) -> None:
    """Noise, residuals and work of every step of iterative training, beside where a climb ended."""
    plt = _pyplot()
    history, exact, scale = names["iterative"].history_, names["model"].noise_std_, names["scale"]
    steps = [h.step for h in history]
    figure, (noise, residuals, work) = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
    noise.axhline(exact, color=GREY, linewidth=4, alpha=0.6, label="by climbing the likelihood")
    noise.plot(steps, [h.noise_scale * scale for h in history], "--", color=BLUE, label="iterative (CG, pathwise)")
    noise.axhline(0.5, color=ORANGE, linewidth=1, linestyle=":", label="truth behind the data")
    noise.set(title="noise", xlabel="step", ylabel="noise scale σ (°C)", ylim=(0, None))
    noise.legend(frameon=False)
    residuals.semilogy(steps, [h.residual_mean for h in history], color=BLUE, label="mean system")
    residuals.semilogy(steps, [h.residual_probes for h in history], "--", color=ORANGE, label="probes (average)")
    residuals.axhline(names["iterative"].plan_.rule.tol, color=GREY, linewidth=1, label="tolerance")
    residuals.set(title="residual after each solve", xlabel="step", ylabel="relative residual", ylim=(5e-4, 0.04))
    residuals.legend(frameon=False, loc="upper right", ncols=2)
    work.bar(steps, [h.epochs for h in history], width=1.0, color="#56B4E9", edgecolor="white", linewidth=0.3)
    work.set(title="work of each warm-started solve", xlabel="step", ylabel="epochs (products with H)")
    _save(figure, path)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
    return plt


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120, metadata={"Software": None})
    _pyplot().close(figure)


def main(arguments: list[str]) -> int:
    os.environ["COLUMNS"] = "100"  # the width of the tables that the commands print
    for name in arguments or PAGES:
        page = DOCS / name
        names: dict[str, Any] = {"__name__": "__main__"}
        with working_folder() as folder:
            if name == "tutorial.md":
                write_tables(folder)
            page.write_text(refresh(page, names))
        if name == "tutorial.md":
            draw_calibration(names, DOCS / "images" / "tutorial-calibration.png")
            draw_predictions(names, DOCS / "images" / "tutorial-predictions.png")
            draw_history(names, DOCS / "images" / "tutorial-history.png")
        if name == "from_kriging.md":
            names["axes"].figure.savefig(DOCS / "images" / "variogram.png", dpi=80)
        print(f"{name} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
