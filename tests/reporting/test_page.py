"""The page about a model: one whole file, nothing from elsewhere, and the numbers of the model itself."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import warmgp
from pages import COLUMNS, Page, table
from warmgp import GPRegressor
from warmgp.estimator import insight, reported
from warmgp.reporting.page import page_of
from warmgp.reporting.reproduce import reproduce
from warmgp.reporting.words import number

SMALL: dict[str, Any] = {"kernel": "matern32", "n_steps": 2, "n_probes": 8, "n_features": 100, "random_state": 0}
ALL = ["summary", "remarks", "data", "decisions", "training", "inputs", "calibration", "sections", "map", "held-out",
       "reproduce"]  # fmt: skip
UNITS = {"flow & <i>": "m³/s", '<b onclick="x()">T</b>': "°C"}


@pytest.fixture(scope="module")
def fitted() -> tuple[GPRegressor, pd.DataFrame, pd.Series]:
    X, y = table()
    return GPRegressor(columns=COLUMNS, missing="mean", **SMALL).fit(X[:100], y[:100]), X, y


@pytest.fixture(scope="module")
def written(fitted: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    model, X, y = fitted
    path = tmp_path_factory.mktemp("page") / "report.html"
    model.report(path, (X[90:], y[90:]), units=UNITS)
    return path.read_text()


@pytest.fixture(scope="module")
def page(written: str) -> Page:
    return Page(written)


def subject_of(model: GPRegressor) -> Any:
    return reported._subject(model, {}, reported.Asked(), None)


# -- the file --------------------------------------------------------------------------------------------------------
def test_it_is_one_page_without_scripts_that_loads_nothing(written: str, page: Page) -> None:
    assert page.ids == ALL and "script" not in page.tags and "iframe" not in page.tags
    assert {link for link in page.links if link.startswith("#")} == {f"#{name}" for name in ALL}
    assert "default-src 'none'" in html.unescape(written) and "http://" not in written and "https://" not in written
    assert "prefers-color-scheme: dark" in written and "@media print" in written and 'name="viewport"' in written
    assert len(written.encode()) < 400_000
    assert "nan" not in written.lower().replace("anan", "") and "None" not in page.text["calibration"]


def test_names_are_shown_and_not_obeyed(written: str, page: Page) -> None:
    """Column names, the name of the target and values of a category are text, wherever they are."""
    assert "<script>alert" not in written and "<b onclick" not in written and "& <i>" not in written
    for section in ("data", "sections"):
        assert "<script>alert(1)</script>"[:10] in page.text[section]
        assert "flow & <i>" in page.text[section] and '<b onclick="x()">T</b>' in page.text[section]


def test_a_parser_that_sees_nothing_would_be_no_test() -> None:
    for wrong in ("<p><b></p></b>", "<section id='a'>", '<img src="https://a.b/c.png">', '<a href="x.css">a</a>',
                  '<p onclick="x()">a</p>', "<style>a { background: url(b) }</style>"):  # fmt: skip
        with pytest.raises(AssertionError):
            Page(wrong)


# -- what it says ----------------------------------------------------------------------------------------------------
def test_the_numbers_are_those_of_the_diagnosis(fitted: Any, page: Page) -> None:
    model = fitted[0]
    found, told = model.diagnose(), page.text["calibration"]
    for value in (found.rmse, found.log_density):
        assert number(value) in told
    for level, share in found.coverage.items():
        assert f"{level:.0%}\n{share:.1%}\n" in told
    for worst in found.worst:
        assert f"{worst.row}\n{number(worst.y)}\n{number(worst.mean)}\n{number(worst.std, 3)}\n" in told
    assert found.remarks and all(remark in page.items for remark in found.remarks)
    for name, length in found.relevance.items():
        assert f"{name}\n{number(found.effects[name], 3)}\n" in page.text["inputs"]
        assert f"\n{number(length, 3)}\n" in page.text["inputs"]


def test_the_data_are_told_in_the_users_terms(fitted: Any, page: Page) -> None:
    X, told = fitted[1][:100], page.text["data"]
    days = pd.to_datetime(X["when"])
    assert "\n".join(str(value.date()) for value in (days.min(), days.median(), days.max())) in told
    assert "date, and what repeats every year" in told and "m³/s" in told and "number, constant" in told
    counts = X["bed"].value_counts()
    assert f"gravel ({counts['gravel']}), sand ({counts['sand']})" in told
    flow = X["flow & <i>"]
    ends = "\n".join(number(value) for value in (flow.min(), flow.median(), flow.max()))
    assert f"{ends}\n{flow.isna().sum()}\n" in told
    assert f"longitude\ndegrees\n{number(X['lon'].min())}\n{number(X['lon'].median())}\n" in told


def test_held_out_rows_are_scored_and_repeated_ones_named(fitted: Any, page: Page) -> None:
    model, X, y = fitted
    mean, std = model.predict(X[90:], return_std=True)
    error, told = y[90:].to_numpy() - mean, page.text["held-out"]
    assert f"{number(float(np.sqrt(np.mean(error**2))))} °C" in told
    density = -0.5 * ((error / std) ** 2 + np.log(2 * np.pi * std**2))
    assert number(float(density.mean())) in told
    assert f"90%\n{np.mean(np.abs(error) <= 1.6448536 * std):.1%}\n" in told
    assert "30 rows that were given." in told and "10 of them stand in the training data" in told


def test_plan_training_and_the_way_back_are_told(fitted: Any, page: Page) -> None:
    model = fitted[0]
    assert all(reason in page.items for reason in model.plan_.why) and model.plan_.headline in page.text["decisions"]
    assert "2 steps of Adam" in page.text["training"] and "all steps were taken" in page.text["training"]
    told = page.text["reproduce"]
    assert warmgp.__version__ in told and "random_state 0" in told
    for option in ("--date when", "--periodic when=year", "--category bed", "--geographic lat,lon", "--seed 0",
                   "--periodic hour=24", "--missing mean", "--kernel matern32", "--n-steps 2"):  # fmt: skip
        assert option in told


def test_the_way_back_has_what_rows_had_and_is_understood(tmp_path: Path) -> None:
    """A category with a comma in its name, weights, known errors, and rows that came later."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": np.linspace(0, 6, 40), "bed, kind": rng.choice(["sand", "mud"], 40)})
    y = pd.Series(np.sin(X["x"]) + 0.1 * rng.normal(size=40), name="y")
    settings: dict[str, Any] = {"n_steps": 1, "n_probes": 4, "random_state": 0}
    model = GPRegressor("matern32", columns={"bed, kind": "category"}, **settings)
    model.fit(X, y, sample_weight=rng.uniform(0.5, 2, 40), noise_variance=np.full(40, 0.01))
    told = " ".join(str(reproduce(subject_of(model), "1")).split())
    assert "--one-hot &#x27;bed, kind&#x27;" in told and "--category" not in told
    assert ".fit(X, y, sample_weight=sample_weight, noise_variance=noise_variance)" in told
    assert "--weight-column weight" in told and "--noise-column error" in told and "updated" not in told
    model.update(X[:3], y[:3])
    assert "The model was updated since its fit." in str(reproduce(subject_of(model), "1"))
    plain = GPRegressor("matern32", columns={"bed, kind": "category"}, **settings).fit(X, y)
    assert ".fit(X, y)" in str(reproduce(subject_of(plain), "1"))


# -- sections and maps -----------------------------------------------------------------------------------------------
def test_sections_are_predictions_of_the_model(fitted: Any) -> None:
    """Along a category, a number, a missing cell, an hour and a place, as predict says of a table with such rows."""
    model, subject = fitted[0], subject_of(fitted[0])
    target = subject.targets[0]
    things = {thing.name: thing for thing in target.things}
    assert [thing.missing for thing in subject.things if thing.name == "flow & <i>"] == [12]
    row = {}
    for thing in subject.things:
        if thing.name != "when: year":
            row |= dict(zip(thing.columns, thing.middle.tolist(), strict=True))
    levels = things["bed"].part.levels
    row |= {"bed": levels[int(row["bed"])], "when": pd.Timestamp("1970-01-01") + pd.Timedelta(days=row["when"])}
    row["when"] = row["when"].isoformat()
    year = things["when: year"].part.cells(things["when: year"].part.inputs(np.array([things["when"].middle])))
    cases: list[tuple[str, list[list[float]], dict[str, list[Any]]]] = [
        ("bed", [[0.0], [1.0], [2.0]], {"bed": list(levels)}),
        ("flow & <i>", [[1.0], [4.0], [np.nan]], {"flow & <i>": [1.0, 4.0, np.nan]}),
        ("hour", [[3.0], [23.0]], {"hour": [27.0, 23.0]}),
        ("lat, lon", [[45.0, 179.0], [47.0, -179.0]], {"lat": [45.0, 47.0], "lon": [179.0, 181.0]}),
    ]
    for name, cells, columns in cases:
        X = pd.DataFrame([row] * len(cells)).assign(**columns)[list(model.feature_names_in_)]
        mean, std = model.predict(X, return_std=True, include_noise=False)
        changed = {things[name]: np.array(cells), things["when: year"]: np.repeat(year, len(cells), 0)}
        found = target.predicted(target.at(changed))
        np.testing.assert_allclose(found[0], mean, rtol=1e-6)
        np.testing.assert_allclose(found[1], std, rtol=1e-5)


def test_a_map_of_places_goes_across_the_date_line(fitted: Any) -> None:
    subject = subject_of(fitted[0])
    x, y = next(thing for thing in subject.things if thing.is_place).place_axes()
    assert 174 < x.low < 175.5 and 184.5 < x.high < 186 and 43.5 < y.low < 44.3
    assert "180°" in [text for _, text in x.ticks] and all(text.endswith("°N") for _, text in y.ticks)


# -- other models ----------------------------------------------------------------------------------------------------
def small_fit(width: int, **settings: Any) -> GPRegressor:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (45, width)).round(1)
    extra = settings.pop("fit", {})
    return GPRegressor(**{**SMALL, **settings}).fit(X, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=45), **extra)


@pytest.mark.parametrize(
    ("width", "settings", "section", "told"),
    [
        (1, {}, "map", "no two inputs"),
        (1, {"columns": {0: "category"}}, "sections", "12: "),
        (2, {"trend": "linear"}, "decisions", "The trend"),
        (2, {"fit": {"sample_weight": np.linspace(0.5, 2, 45)}}, "data", "weights or known errors"),
        (2, {"anisotropy": "rotated"}, "inputs", "across"),
        (2, {"columns": {(0, 1): "geographic"}}, "sections", "only input is a place"),
        (3, {"ard": False, "standardize": False}, "reproduce", "no options for some"),
        (2, {"robust": True}, "data", "Outliers were set aside"),
    ],
    ids=["one", "levels", "trend", "weights", "turned", "place", "plain", "robust"],
)
def test_every_model_has_a_page(width: int, settings: Any, section: str, told: str, tmp_path: Path) -> None:
    model = small_fit(width, **settings)
    model.report(tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert page.ids == ALL and told in page.text[section]
    assert "No other rows were given" in page.text["held-out"]


def test_without_left_out_rows_the_page_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_fit(2)

    def fails(_: object) -> None:
        raise RuntimeError("no memory for so many rows")

    monkeypatch.setattr(insight, "leave_one_out_of", fails)
    model.report(tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert page.ids == ALL
    for section in ("calibration", "remarks"):
        assert "no memory for so many rows" in page.text[section]
    assert "in spreads of the data" in page.text["inputs"] and "x0" in page.text["sections"]


def test_several_targets_have_sections_of_their_own() -> None:
    subject = subject_of(small_fit(2))
    second = replace(subject.targets[0], number=1, name="b")
    page = Page(page_of(replace(subject, targets=(*subject.targets, second)), "1"))
    assert page.ids[:4] == ["data", "decisions", "training", "inputs"] and page.ids[-1] == "reproduce"
    assert "calibration-1" in page.ids and "map-2" in page.ids and len(set(page.ids)) == len(page.ids) == 17
    assert "b along x0" in page.text["sections-2"] and "b along x0" not in page.text["sections-1"]


def test_other_columns_of_held_out_rows_are_left_alone_and_lacking_ones_named(fitted: Any, tmp_path: Path) -> None:
    model, X, y = fitted
    model.report(tmp_path / "report.html", (X[90:].assign(T=y)[["T", *X.columns[::-1]]], y[90:]))
    assert "30 rows that were given." in Page((tmp_path / "report.html").read_text()).text["held-out"]
    with pytest.raises(ValueError, match="held_out X lacks columns 'bed', 'lat', which the model was trained on"):
        model.report(tmp_path / "other.html", (X.drop(columns=["bed", "lat"]), y))


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"held_out": np.zeros((3, 2))}, "held_out must be a pair"),
        ({"held_out": (np.zeros((3, 5)), np.zeros(3))}, "5 features"),
        ({"held_out": (np.zeros((3, 2)), np.zeros(2))}, "held_out X has 3 and held_out y has 2"),
        ({"units": {"depth": "m"}}, "no column 'depth'"),
        ({"units": {"x0": 3}}, "must be text"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    arguments: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_fit(2)
    monkeypatch.setattr(insight, "leave_one_out_of", lambda _: pytest.fail("work was done"))
    with pytest.raises(ValueError, match=told):
        model.report(tmp_path / "report.html", **arguments)
    with pytest.raises(IsADirectoryError, match="a folder"):
        model.report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr(reported, "page_of", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        small_fit(2).report(tmp_path / "report.html")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_model_of_several_targets(tmp_path: Path) -> None:
    """Each target has its own numbers, those of its model alone, also where values are missing in some rows."""
    rng = np.random.default_rng(2)
    X = pd.DataFrame(rng.uniform(-1, 1, (60, 2)), columns=["a", "b"])
    Y = pd.DataFrame({"wet": np.sin(3 * X["a"]), "<dry>": 100 * X["b"]}) + 0.1 * rng.normal(size=(60, 2))
    Y.iloc[:9, 1] = np.nan
    model = GPRegressor(**SMALL).fit(X[:45], Y[:45])
    model.report(tmp_path / "report.html", (X[45:], Y[45:]), units={"<dry>": "km"})
    page = Page((tmp_path / "report.html").read_text())
    assert len(page.ids) == 17 and "could not be made" not in "".join(page.text.values())
    mean = model.predict(X[45:])
    for k, name in enumerate(Y.columns):
        found = model.of_target(name).diagnose()
        assert number(found.rmse) in page.text[f"calibration-{k + 1}"]
        assert f"{found.rows:,}\n" in page.text[f"summary-{k + 1}"]
        error = Y.to_numpy()[45:, k] - mean[:, k]
        assert number(float(np.sqrt(np.mean(error**2)))) in page.text[f"held-out-{k + 1}"]
        assert f"{name} along a" in page.text[f"sections-{k + 1}"]
    assert "<dry>\ntarget\nkm\n" in page.text["data"] and "\n9\n" in page.text["data"]
