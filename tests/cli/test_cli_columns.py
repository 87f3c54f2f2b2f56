"""The command line on a table as people have them: dates, categories, blanks, an id. The numbers are Python's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import warmgp.cli.commands
from cli_tools import API, FAST, read_csv, refused, run
from warmgp import GPRegressor
from warmgp.cli.held_out import split
from warmgp.cli.kinds import answerable, columns_asked, labels_among, repeated

ASKED = ["--target", "y", "--keep", "id,name", "--category", "colour,shape,site", "--date", "when",
         "--periodic", "when=year,hour=24", "--missing", "mean"]  # fmt: skip
SAID: dict[Any, Any] = {
    "colour": "category",
    "shape": "category",
    "site": "category",
    "when": ("date", "year"),
    "hour": ("periodic", 24),
}


def sales(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Rows with an id, a name, a date, three categories (one of numbers), blanks, and a target."""
    rng = np.random.default_rng(seed)
    day = rng.integers(0, 700, n)
    data = pd.DataFrame(
        {
            "id": np.arange(n) + 1000,
            "name": [f"00{i}" for i in range(n)],
            "when": [f"{d:%d.%m.%Y}" for d in pd.Timestamp("2023-01-01") + pd.to_timedelta(day, unit="D")],
            "hour": np.round(rng.uniform(0, 24, n), 2),
            "colour": rng.choice(["red", "blue", "green"], n),
            "shape": rng.choice(["round", "long"], n),
            "site": rng.integers(1, 4, n),
            "age": np.round(rng.normal(40, 10, n), 1),
        }
    )
    data["y"] = np.cos(2 * np.pi * data["hour"] / 24) + (data["colour"] == "red") + data["age"] / 20
    data["y"] += np.sin(2 * np.pi * day / 365.2425) + 0.1 * rng.normal(size=n)
    data.loc[[3, 9, 17], "age"] = np.nan
    data.loc[[5, 11], "colour"] = None
    data.loc[[7], "when"] = None
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns")
    sales().to_csv(path / "sales.csv", index=False)
    sales(20, seed=1).drop(columns="y").to_csv(path / "later.csv", index=False)
    arguments = ["fit", path / "sales.csv", *ASKED, "--out", path / "m.safetensors", *FAST]
    assert warmgp.cli.commands.main([str(one) for one in arguments]) == 0
    return path


def test_from_file_to_predictions_as_in_python(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, later = read_csv(folder / "sales.csv"), read_csv(folder / "later.csv")
    X = data.drop(columns=["id", "name", "y"])
    model = GPRegressor(columns=SAID, missing="mean", **API).fit(X, data["y"])
    mean, std = model.predict(later[X.columns], return_std=True)
    whole = warmgp.cli.at_once.feature_chunks
    for rows in (100_000, 7):
        monkeypatch.setattr(warmgp.cli.at_once, "feature_chunks", lambda *a, rows=rows, **k: whole(*a, rows=rows, **k))
        out = tmp_path / f"{rows}.csv"
        code, *_ = run(
            capsys, "predict", folder / "m.safetensors", folder / "later.csv", "--out", out, "--std", "--keep",
            "id,name", "--keep", "age", "--quiet",
        )  # fmt: skip
        assert code == 0
        found = read_csv(out, dtype={"name": str})
        assert list(found) == ["id", "name", "age", "mean", "std"]
        assert found["name"].tolist() == [f"00{i}" for i in range(20)] and found["id"].tolist() == later["id"].tolist()
        np.testing.assert_array_equal(found["age"], later["age"])
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-12)
        np.testing.assert_allclose(found["std"], std, rtol=1e-12)


def test_info_tells_every_thing_once_with_its_length_scale(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = run(capsys, "info", folder / "m.safetensors")[1]
    rows = [line.split("│")[1].strip() for line in told.split("length scales")[1].splitlines() if "│" in line]
    assert rows == ["when", "when: year", "hour", "colour", "shape", "site", "age"]
    assert "days" in told and "steps between two values" in told
    model = GPRegressor.load(folder / "m.safetensors", "cpu")
    assert list(model.columns_.things) == rows and len(model.length_scales_) == len(rows)
    assert model.feature_names_in_.tolist() == ["when", "hour", "colour", "shape", "site", "age"]


@pytest.mark.parametrize("format", ["parquet", "npz"])
def test_kept_columns_in_other_formats(
    format: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = read_csv(folder / "later.csv", dtype={"name": str}).assign(when=pd.Timestamp("2024-02-03"))
    later.to_parquet(tmp_path / "later.parquet")
    out = tmp_path / f"p.{format}"
    asked = ["--out", out, "--keep", "id,name,when", "--quiet"]
    code, _, err = run(capsys, "predict", folder / "m.safetensors", tmp_path / "later.parquet", *asked)
    assert code == 2 and "'2024-02-03 00:00:00', which is not a date written as %d.%m.%Y" in err
    later.assign(when="03.02.2024").to_parquet(tmp_path / "later.parquet")
    code, _, err = run(capsys, "predict", folder / "m.safetensors", tmp_path / "later.parquet", *asked)
    assert code == 0, err
    found = pd.read_parquet(out) if format == "parquet" else pd.DataFrame(dict(np.load(out)))
    assert found["name"].tolist() == later["name"].tolist() and found["id"].dtype == np.int64
    assert set(found) == {"id", "name", "when", "mean"}


def test_one_hot_is_the_same_as_category(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--one-hot", "--category"):
        options = ["--target", "y", option, "shape", option, "site", "--keep", "id,name,when,colour,age"]
        code, *_ = run(capsys, "fit", folder / "sales.csv", *options, "--out", tmp_path / option, *FAST)
        assert code == 0
    one, other = (GPRegressor.load(tmp_path / option, "cpu") for option in ("--one-hot", "--category"))
    assert one.columns == other.columns == {"shape": "category", "site": "category"} and one.columns_ == other.columns_


def test_held_out_rows_know_what_the_table_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A value, a format or a gap that is in one held-out row alone ends no fit after its training."""
    data = sales()
    _, test = split(60, 0.2, 0)
    data["when"] = np.where(np.arange(60) % 2, "03/04/2024", "05/06/2024")
    data.loc[test[0], ["colour", "when"]] = ["violet", "25/04/2024"]
    data.loc[test[1], "shape"] = None
    data.to_csv(tmp_path / "d.csv", index=False)
    out = tmp_path / "m"
    asked = [*ASKED, "--test-fraction", 0.2, "--out", out, *FAST]
    code, told, err = run(capsys, "fit", tmp_path / "d.csv", *asked)
    assert code == 0, err
    assert "11 held-out rows, which the model has not seen" in told
    assert "note: 1 of 12 held-out rows lack a value that every training row has: they are not scored" in err
    model = GPRegressor.load(out, "cpu")
    assert {part.date_format for part in model.columns_.dates} == {"%d/%m/%Y"}


def test_remarks_on_labels_and_on_repeated_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = sales()[["id", "hour", "y"]]
    data.to_csv(tmp_path / "labels.csv", index=False)
    options = ["--target", "y", "--out", tmp_path / "m", *FAST]
    code, _, err = run(capsys, "fit", tmp_path / "labels.csv", *options)
    assert code == 0 and "note: column 'id' of" in err and "--keep 'id'" in err and "'hour'" not in err
    twice = pd.concat([data, data.iloc[:30]]).drop(columns="id")
    twice.to_csv(tmp_path / "twice.csv", index=False)
    code, told, err = run(capsys, "fit", tmp_path / "twice.csv", *options, "--test-fraction", 0.3)
    train, test = split(90, 0.3, 0)
    known = set(map(tuple, twice.to_numpy()[train]))
    again = sum(tuple(row) in known for row in twice.to_numpy()[test])
    assert code == 0 and again > 0
    assert f"27 held-out rows, {again} of which repeat a training row" in told
    assert f"note: {again} of 27 held-out rows have the same cells as a training row" in err


def test_what_counts_as_a_label_and_as_repeated() -> None:
    n = np.arange(20)
    frame = pd.DataFrame({"t": n + 1, "day": n + 5, "row_id": n[::-1] * 7, "year": n * 3, "x": n / 2, "same": n // 2})
    frame["text"] = "a"
    assert labels_among(frame) == ["t", "row_id"] and labels_among(frame[:5]) == []
    numbers = np.array([[1.0, np.nan], [1.0, np.nan], [-0.0, 2.0], [0.0, 2.0], [3.0, 4.0]])
    y = np.array([1.0, 1.0, 2.0, 2.0, 2.0])
    assert repeated(numbers, y, np.array([0, 2]), np.array([1, 3, 4])) == 2
    assert repeated(numbers, np.arange(5.0), np.array([0, 2]), np.array([1, 3, 4])) == 0
    assert answerable(numbers, np.array([2, 3]), np.array([0, 4])).tolist() == [4]
    assert answerable(numbers, np.array([1, 3]), np.array([0, 4])).tolist() == [0, 4]


def test_options_as_python_says_them() -> None:
    periods = ["h=24", "when=year, when=week", "z=day"]
    found = columns_asked(["lat, lon"], ["a,b"], ["c, d"], ["when", "t=%b %d, %Y"], periods)
    assert found == {
        ("lat", "lon"): "geographic", "a": "category", "b": "category", "c, d": "category",
        "when": ("date", "year", "week"), "t": ("date", "%b %d, %Y"), "h": ("periodic", 24.0), "z": ("periodic", "day"),
    }  # fmt: skip
    assert columns_asked(None, None, None, None, None) is None


BAD = {
    "an unknown category": (["--category", "color"], ["--category", "'color'", "did you mean 'colour'"]),
    "an empty name": (["--category", "colour,"], ["--category takes columns with commas"]),
    "the target": (["--category", "y"], ["'y' is the target"]),
    "a dropped one": (["--drop", "colour", "--category", "colour"], ["'colour' is in --drop or --keep, too"]),
    "a kept one": (["--keep", "colour", "--category", "colour"], ["'colour' is in --drop or --keep, too"]),
    "no such column to keep": (["--keep", "ident"], ["--keep", "'ident'"]),
    "two kinds": (["--category", "when", "--date", "when"], ["--category and --date both name 'when'"]),
    "a period of a category": (["--category", "hour", "--periodic", "hour=24"], ["--category and --periodic both"]),
    "no period": (["--periodic", "hour"], ["--periodic takes COL=PERIOD", "'hour'"]),
    "a wrong period": (["--periodic", "hour=month"], ["--periodic takes COL=PERIOD", "'hour=month'"]),
    "a negative period": (["--periodic", "hour=-3"], ["--periodic takes COL=PERIOD"]),
    "a wrong way to fill in": (["--missing", "median"], ["--missing must be 'error' or 'mean', got 'median'"]),
    "a wrong way with new values": (["--unknown-category", "x"], ["--unknown-category must be 'error' or 'zero'"]),
    "text columns": (["--drop", "name"], ["'when' (", "'colour' ('", "--date 'when', --category 'colour'", "--drop"]),
    "blanks of a category": (
        ["--keep", "name", "--category", "colour,shape", "--date", "when"],
        ["column 'when' of", "is blank in row 8", "--missing mean"],
    ),
    "blanks of numbers": (
        ["--keep", "name", "--drop", "colour", "--drop", "shape", "--drop", "when"],
        ["column 'age' of", "is blank in row 4 and 2 more", "--missing mean"],
    ),
    "no dates": (["--date", "shape", *ASKED[2:4], "--category", "colour", "--date", "when", "--missing", "mean"],
                 ["column 'shape' of", "row 1 and 59 more, is '", "which is not a date such as 2024-03-01"]),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, expected = BAD[what]
    refused(capsys, ["fit", folder / "sales.csv", "--target", "y", "--out", tmp_path / "m", *FAST, *options], expected)


CELLS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "one bad number": ({"age": "n/a?"}, ["d.csv, row 17, column 'age': 'n/a?' is not a number: correct it"]),
    "a bad date": ({"when": "31.02.2024"}, ["column 'when' of", "row 17, is '31.02.2024'", "written as %d.%m.%Y"]),
    "an infinite number": ({"hour": "inf"}, ["column 'hour' of", "infinite in row 17"]),
}


@pytest.mark.parametrize("what", CELLS)
def test_a_bad_cell_is_named_by_row_and_column(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, expected = CELLS[what]
    data = sales().astype(object)
    for name, value in change.items():
        data.loc[16, name] = value
    data.to_csv(tmp_path / "d.csv", index=False)
    refused(capsys, ["fit", tmp_path / "d.csv", *ASKED, "--out", tmp_path / "m", *FAST], expected)
    assert not (tmp_path / "m").exists()


NEW: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a new value": ({"colour": "violet"}, ["column 'colour' of", "row 17, is 'violet', which training has not seen",
                                           "'blue', 'green', 'red'", "--unknown-category zero"]),
    "a gap": ({"shape": None}, ["column 'shape' of", "is blank in row 17"]),
    "text": ({"hour": "noon"}, ["column 'hour' of", "is not a number in row 17 ('noon')"]),
    "another format": ({"when": "2024-01-01"}, ["column 'when' of", "row 17, is '2024-01-01'"]),
}  # fmt: skip


@pytest.mark.parametrize("what", NEW)
def test_predictions_name_a_bad_cell_by_its_row_in_the_file(
    what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change, expected = NEW[what]
    later = sales(20, seed=1).astype(object)
    for name, value in change.items():
        later.loc[16, name] = value
    later.to_csv(tmp_path / "d.csv", index=False)
    whole = warmgp.cli.at_once.feature_chunks
    monkeypatch.setattr(warmgp.cli.at_once, "feature_chunks", lambda *a, **k: whole(*a, rows=7, **k))
    out = tmp_path / "p.csv"
    refused(capsys, ["predict", folder / "m.safetensors", tmp_path / "d.csv", "--out", out, "--quiet"], expected)
    assert not out.exists()


def test_what_predict_does_not_keep(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = folder / "m.safetensors", tmp_path / "p.csv"
    later = sales(20, seed=1).rename(columns={"name": "mean"})
    later.to_csv(tmp_path / "d.csv", index=False)
    predict = ["predict", model, tmp_path / "d.csv", "--out", out, "--quiet"]
    refused(capsys, [*predict, "--keep", "mean"], ["--keep mean: the predictions have a column of that name"])
    refused(capsys, [*predict, "--keep", "nme"], ["--keep", "no column 'nme'"])
    grid = ["predict", model, "--grid", "hour=0:24:1", "--out", out, "--quiet", "--keep", "id"]
    refused(capsys, grid, ["--keep carries columns of a table"])


@pytest.mark.parametrize("format", ["csv", "nc"])
def test_a_grid_fixes_categories_and_dates_by_text(
    format: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if format == "nc":
        pytest.importorskip("h5netcdf", reason="maps need xarray and h5netcdf: pip install 'warmgp[maps]'")
    fixed = {"when": "01.02.2024", "colour": "red", "shape": "long", "site": "2", "age": 40.0}
    spec = "hour=0:24:6," + ",".join(f"{name}={value}" for name, value in fixed.items())
    out = tmp_path / f"map.{format}"
    predict = ["predict", folder / "m.safetensors", "--out", out, "--quiet", "--grid"]
    assert run(capsys, *predict, spec)[0] == 0
    if format == "csv":
        X = pd.DataFrame({"hour": np.arange(0, 25, 6.0)}).assign(**fixed)
        mean = GPRegressor.load(folder / "m.safetensors", "cpu").predict(
            X[["when", "hour", "colour", "shape", "site", "age"]]
        )
        np.testing.assert_array_equal(read_csv(out)["mean"], mean)
        refused(capsys, [*predict, spec.replace("red", "violet")], ["column 'colour' of --grid", "is 'violet'"])


def test_a_name_like_an_indicator_is_no_clash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Categories were columns ``name=value`` once, which other columns could be mistaken for."""
    (tmp_path / "d.csv").write_text("a,a=1,y\n1,2,3\n1,3,4\n2,3,5\nb=c,1,1\n")
    options = ["--target", "y", "--category", "a", "--out", tmp_path / "m", *FAST]
    assert run(capsys, "fit", tmp_path / "d.csv", *options)[0] == 0
    assert run(capsys, "predict", tmp_path / "m", tmp_path / "d.csv", "--out", tmp_path / "p.csv", "--quiet")[0] == 0
    assert GPRegressor.load(tmp_path / "m", "cpu").columns_.things == ("a", "a=1")


def test_dates_that_could_be_others_need_their_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = sales().drop(columns=["when", "age", "colour"]).assign(when=["03/04/2024", "05/06/2024"] * 30)
    data.to_csv(tmp_path / "d.csv", index=False)
    asked = ["--target", "y", "--keep", "id,name", "--category", "shape,site", "--out", tmp_path / "m", *FAST]
    refused(
        capsys,
        ["fit", tmp_path / "d.csv", *asked, "--date", "when"],
        ["row 1, is '03/04/2024', which is another date by %d/%m/%Y than by %m/%d/%Y", '--date "when=%d/%m/%Y"'],
    )
    assert run(capsys, "fit", tmp_path / "d.csv", *asked, "--date", "when=%m/%d/%Y")[0] == 0
    assert GPRegressor.load(tmp_path / "m", "cpu").columns["when"] == ("date", "%m/%d/%Y")  # type: ignore[index]
