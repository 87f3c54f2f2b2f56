"""A table as people have it, from file to intervals in one command; the same numbers from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from warmgp import GPRegressor
from warmgp.cli.commands import main

SAID = [
    "--date", "when", "--periodic", "when=year", "--category", "soil,crop,farm", "--missing", "mean", "--keep", "id",
    "--noise-column", "error", "--kernel", "matern32", "--device", "cpu", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Fields with a date, three categories, blanks, an id and known errors, to train on; and new ones."""
    rng, n = np.random.default_rng(0), 140
    table = pd.DataFrame(
        {
            "id": [f"f{i:03d}" for i in range(n)],
            "when": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), "D"),
            "soil": rng.choice(["clay", "sand", "loam"], n),
            "crop": rng.choice(["rye", "oats"], n),
            "farm": rng.choice(["north", "south", "east", "west"], n),
            "rain": rng.normal(50, 10, n).round(2),
            "error": rng.choice([0.1, 1.0], n),
        }
    )
    season = np.sin(2 * np.pi * table["when"].dt.day_of_year / 365.25)
    table["yield"] = 2 * season + (table["soil"] == "clay") + table["rain"] / 20 + table["error"] * rng.normal(size=n)
    table.loc[::9, "rain"] = np.nan
    folder = tmp_path_factory.mktemp("fields")
    table[:120].to_csv(folder / "fields.csv", index=False)
    table[120:].drop(columns=["yield", "error"]).to_csv(folder / "new.csv", index=False)
    return folder / "fields.csv", folder / "new.csv"


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_from_file_to_intervals(tables: tuple[Path, Path], tmp_path: Path) -> None:
    data, new = tables
    out, model = tmp_path / "answers.csv", tmp_path / "m.safetensors"
    words = [*SAID, "--predict", new, "--predictions", out, "--interval", 0.9]
    assert run("fit", data, "--target", "yield", "--out", model, *words) == 0
    told = pd.read_csv(out)
    assert list(told.columns) == ["id", "mean", "std", "lower_90", "upper_90"] and len(told) == 20

    fields, more = pd.read_csv(data), pd.read_csv(new)
    columns = {"when": ("date", "year"), "soil": "category", "crop": "category", "farm": "category"}
    same = GPRegressor("matern32", columns=columns, missing="mean", device="cpu", random_state=0)
    same.fit(fields.drop(columns=["id", "error", "yield"]), fields["yield"], noise_variance=fields["error"] ** 2)
    mean, std = same.predict(more.drop(columns="id"), return_std=True)
    np.testing.assert_allclose(told["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(told["std"], std, rtol=1e-6)
    np.testing.assert_allclose(told[["lower_90", "upper_90"]], same.predict_interval(more.drop(columns="id"), 0.9))
    assert list(told["id"]) == list(more["id"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--predict", "NEW"], "belong together"),
        (["--interval", "0.9"], "belong together"),
        (["--predict", "NEW", "--predictions", "DATA"], "the same file"),
        (["--predict", "LESS", "--predictions", "OUT"], "lacks 'rain'"),
        (["--predict", "NEW", "--predictions", "OUT", "--interval", "9"], "interval"),
        (["--predict", "NEW", "--predictions", "OUT", "--dry-run"], "dry-run"),
    ],
)
def test_a_bad_request_is_refused_before_training(
    tables: tuple[Path, Path], tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, new = tables
    less = tmp_path / "less.csv"
    pd.read_csv(new).drop(columns="rain").to_csv(less, index=False)
    paths = {"NEW": new, "DATA": data, "LESS": less, "OUT": tmp_path / "out.csv"}
    given = [paths.get(word, word) for word in words]
    assert run("fit", data, "--target", "yield", "--out", tmp_path / "m", *SAID, *given) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "m").exists()
