"""Cells as numbers: dates and categories of every type, learned once and read alike afterwards; bad ones are named."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from warmgp import GPRegressor
from warmgp.data.categories import as_text, codes_of, levels_of
from warmgp.data.dates import BadDateError, looks_like_dates, read_dates
from warmgp.data.input_map import InputMap
from warmgp.data.reading import read_columns, text_problem

MOMENT = datetime.datetime(2024, 3, 1, 12, 30)
TRUTH = (MOMENT - datetime.datetime(1970, 1, 1)).total_seconds() / 86400


WRITTEN = {
    "ISO": "2024-03-01 12:30",
    "ISO with T and seconds": "2024-03-01T12:30:00",
    "in UTC": "2024-03-01T12:30Z",
    "of another zone": "2024-03-01T14:30+02:00",
    "German": "01.03.2024 12:30",
    "with slashes, the day first": "25/02/2024 12:30",
    "with slashes, the month first": "02/25/2024 12:30",
    "by name": "1 Mar 2024 12:30",
    "American": "Mar 01, 2024 12:30",
}


@pytest.mark.parametrize("what", WRITTEN)
def test_ways_of_writing_dates(what: str) -> None:
    found, date_format = read_dates([WRITTEN[what], None, " "], learn=True)
    truth = TRUTH - (5 if "slashes" in what else 0)  # 25 February of a leap year
    assert abs(found[0] - truth) < 1e-9 and np.isnan(found[1:]).all()
    again, _ = read_dates([WRITTEN[what]], date_format)
    assert again[0] == found[0]


def test_types_of_dates() -> None:
    polars = pytest.importorskip("polars")
    for column in (
        pd.Series([MOMENT, pd.NaT]),
        pd.Series([MOMENT, pd.NaT]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        pd.Series([MOMENT, None], dtype=object),
        np.array([MOMENT, "NaT"], dtype="M8[s]"),
        np.array([MOMENT, None], dtype=object),
        polars.Series([MOMENT, None]).to_numpy(),
    ):
        days, _ = read_dates(column, learn=True)
        assert abs(days[0] - TRUTH) < 1e-9 and np.isnan(days[1])
    assert read_dates([20240301, 20240301.0, datetime.date(2024, 3, 1)], learn=True)[0].tolist() == [19783.0] * 3


@pytest.mark.parametrize(
    ("cells", "given", "row", "rows", "message"),
    [
        (["2024-01-01", "soon", "never", "2024-01-02", "2024-01-03"], "", 1, 2, "is 'soon', which is not a date such"),
        (["13.01.2024", "31.02.2024", "14.01.2024"], "", 1, 1, "is '31.02.2024'.*written as %d.%m.%Y"),
        (["2024-01-01", "1.1.2024"], "%Y-%m-%d", 1, 1, "written as %Y-%m-%d"),
        (["01/02/2024", "03/04/2024"], "", 0, 1, "another date by %d/%m/%Y than by %m/%d/%Y.*give the format"),
        (["red", "blue"], "", 0, 2, "is 'red', which is not a date"),
    ],
)  # fmt: skip
def test_cells_that_are_no_dates(cells: list[str], given: str, row: int, rows: int, message: str) -> None:
    with pytest.raises(BadDateError, match=message) as error:
        read_dates(cells, given, learn=True)
    assert (error.value.row, error.value.rows) == (row, rows)


def test_a_format_decides_what_is_ambiguous() -> None:
    days = [read_dates(["01/02/2024"], form)[0][0] for form in ("%d/%m/%Y", "%m/%d/%Y")]
    assert days[0] - days[1] == 30  # 1 February and 2 January
    assert looks_like_dates(["01/02/2024", "x", "03/04/2024"]) and not looks_like_dates(["red", "2024-01-01", "blue"])


def test_values_of_categories_are_text() -> None:
    cells = np.array([1, 2.0, " a ", None, np.nan, "", "2"], dtype=object)
    assert as_text(cells[:6]).tolist() == ["1", "2", "a", None, None, None]
    assert levels_of(cells) == ("1", "2", "a") and levels_of(np.array([True, False])) == ("False", "True")
    whole = pd.Series([3, 1, 2])
    assert levels_of(whole) == levels_of(whole.astype(float)) == levels_of(whole.astype(str)) == ("1", "2", "3")
    declared = pd.Series(pd.Categorical(["a"], categories=["b", "a"]))
    assert levels_of(declared) == ("a", "b")
    np.testing.assert_array_equal(codes_of(["b", None, "c", "a"], ("a", "b"), zero=True), [1, np.nan, 2, 0])


def estimator(**settings: Any) -> Any:
    return SimpleNamespace(columns={"when": ("date", "week"), "colour": "category"}, **settings)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {"when": ["13.01.2024", "14.01.2024", None], "age": [1, 2, 3], "colour": ["red", "blue", "red"]}
    )


def test_frames_and_arrays_are_read_alike() -> None:
    polars = pytest.importorskip("polars")
    numbers, columns = read_columns(estimator(), frame(), learn=True, name="X")
    assert columns is not None and list(numbers.columns) == ["when", "age", "colour"]
    np.testing.assert_array_equal(numbers.to_numpy(), [[19735, 1, 1], [19736, 2, 0], [np.nan, 3, 1]])
    assert {part.date_format for part in columns.dates} == {"%d.%m.%Y"} and len(columns.dates) == 2
    fitted = estimator(columns_=columns)
    for table in (polars.from_pandas(frame()), frame().to_numpy(), frame().to_numpy().tolist()):
        again, _ = read_columns(fitted, table, learn=False, name="X")
        np.testing.assert_array_equal(np.asarray(again, dtype=float), numbers)
    by_number = SimpleNamespace(columns={0: ("date", "week"), 2: "category"})
    again, learned = read_columns(by_number, frame().to_numpy(), learn=True, name="X")
    assert learned is not None and learned.parts == columns.parts


def test_what_was_learned_stays() -> None:
    """A later table is read by the values and the format of the training, in chunks, too; new values are named."""
    _, columns = read_columns(estimator(), frame(), learn=True, name="X")
    fitted = estimator(columns_=columns)
    later = pd.DataFrame({"when": ["02.01.2024"], "age": [1], "colour": ["red"]})
    assert read_columns(fitted, later, learn=False, name="X")[0].to_numpy().tolist() == [[19724, 1, 1]]
    bad = pd.concat([frame(), later.assign(colour="violet"), later.assign(colour="pink")])
    with pytest.raises(
        ValueError, match=r"X, column 'colour', row 3, counted from 0 \(and 1 more rows\), is 'violet', wh"
    ):
        read_columns(fitted, bad, learn=False, name="X")
    zero = estimator(columns_=columns, unknown_category="zero")
    assert read_columns(zero, bad, learn=False, name="X")[0]["colour"].tolist() == [1, 0, 1, 2, 2]
    with pytest.raises(
        ValueError, match="X, column 'when', row 0, counted from 0, is '2024-01-02', which is not a date w"
    ):
        read_columns(fitted, later.assign(when="2024-01-02"), learn=False, name="X")
    other = frame()[["age", "when", "colour"]]
    found, known = read_columns(fitted, other, learn=False, name="X")
    assert found is other and known is None  # scikit-learn refuses it


def test_too_many_values_are_no_category() -> None:
    many = pd.DataFrame({"when": "2024-01-01", "colour": [f"k{i}" for i in range(201)]})
    with pytest.raises(ValueError, match=r"X, column 'colour', has 201 different values, too many.*leave it out"):
        read_columns(estimator(), many, learn=True, name="X")


def test_nothing_said_nothing_read() -> None:
    X = np.ones((3, 2))
    plain = SimpleNamespace(columns=None)
    assert read_columns(plain, X, learn=True, name="X") == (X, None)
    known = SimpleNamespace(columns_=InputMap.plain(2))
    assert read_columns(known, X, learn=False, name="X")[0] is X


def test_one_bad_cell_is_named_and_a_column_of_text_gets_its_remedy() -> None:
    X = pd.DataFrame({"age": ["1", "2", "n/a?", "4", None], "colour": ["red"] * 5, "when": ["2024-01-01"] * 5})
    for column, where, remedy in (
        (
            "age",
            ", column 'age', row 2, counted from 0, is 'n/a?', which is not a number",
            "correct it or leave the row",
        ),
        ("colour", ", column 'colour', is not numbers", "columns={'colour': \"category\"}"),
        ("when", ", column 'when', is not numbers", "columns={'when': \"date\"}"),
    ):
        found = text_problem(X[[column]])
        assert found is not None and found[0] == where and remedy in found[1]
    assert text_problem(np.ones((2, 2))) is None and text_problem([[1.0], [1.0, 2.0]]) is None


def test_all_columns_of_text_are_named_at_once_with_one_setting_that_helps() -> None:
    X = pd.DataFrame(
        {
            "id": [f"k{i}" for i in range(6)], "age": range(6), "colour": ["red", "blue"] * 3,
            "shape": pd.Categorical(["round", "square"] * 3), "when": ["2024-01-01"] * 6,
        }
    )  # fmt: skip
    found = text_problem(X)
    assert found is not None
    assert found[0] == ", columns 'id', 'colour', 'shape', 'when', are not numbers"
    assert "columns={'colour': \"category\", 'shape': \"category\", 'when': \"date\"} ('id': too many" in found[1]
    said = {"colour": "category", "shape": "category", "when": "date"}
    model = GPRegressor(columns=said, n_steps=1).fit(X.drop(columns="id"), [1.0, 2.0, 3.0, 4.0, 5.0, 7.0])
    assert len(model.columns_.things) == 4  # the setting is one that fit takes
    spoilt = X.assign(age=["0", "1", "?", "3", "4", "5"])  # one bad cell comes first: it is no matter of settings
    assert ", column 'age', row 2" in text_problem(spoilt)[0]  # type: ignore[index]
    only = text_problem(X[["id"]])
    remedy = "turn it into numbers or leave it out ('id': too many different values, or no text)"
    assert only == (", column 'id', is not numbers", remedy)


def test_cells_of_other_kinds_and_names_that_are_there_twice_are_named_too() -> None:
    lists = pd.DataFrame({"a": ["x", [1], "y", "z"], "b": [1.0, 2.0, 3.0, 4.0]})
    remedy = "turn it into numbers or leave it out ('a': too many different values, or no text)"
    assert text_problem(lists) == (", column 'a', is not numbers", remedy)
    arrays = pd.DataFrame({"a": ["x", np.ones(2), ([1],), "z"]})
    assert text_problem(arrays) == (", column 'a', is not numbers", remedy)
    mixed = pd.DataFrame({"a": [1, "r", "g", "r", "g", "r"]}, dtype=object)
    assert "columns={'a': \"category\"}" in text_problem(mixed)[1]  # type: ignore[index]
    twice = pd.DataFrame([["r", "g"]] * 4, columns=["a", "a"])
    assert text_problem(twice)[0] == ", columns 'a', 'a', are not numbers"  # type: ignore[index]
