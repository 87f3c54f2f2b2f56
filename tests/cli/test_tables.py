"""Tables in files: the same numbers in every format, in chunks of any size, and nothing half written."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tools import FAST, run
from warmgp import GPRegressor
from warmgp.cli.columns import feature_chunks, resolve
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.tables import CHUNK_ROWS, FORMATS, TableError, open_table


def frame(n: int = 57) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.integers(-30, 30, (n, 2))
    return pd.DataFrame(rng.normal(size=(n, 2)) * scale, columns=["a", "b"])


@pytest.mark.parametrize("extension", FORMATS)
def test_what_is_written_reads_back_to_the_bit(extension: str, tmp_path: Path) -> None:
    path, data = tmp_path / f"t{extension}", frame()
    with TableWriter(path) as writer:
        for start in range(0, len(data), 10):
            part = data.iloc[start : start + 10]
            if extension == ".npz":
                writer.write({"X": part["a"].to_numpy()})
            else:
                writer.write({name: part[name].to_numpy() for name in part})
        assert not path.exists()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if extension == ".npz":
        np.testing.assert_array_equal(np.load(path)["X"], data["a"])
        return
    table = open_table(path)
    assert table.columns == ["a", "b"]
    pd.testing.assert_frame_equal(table.read(["b", "a"]), data[["b", "a"]], check_exact=True)
    assert table.fraction == 1.0


@pytest.mark.parametrize("extension", [".csv", ".csv.gz", ".parquet", ".npz"])
@pytest.mark.parametrize("rows", [1, 7, 57, 100])
def test_chunks_have_the_size_asked_for(extension: str, rows: int, tmp_path: Path) -> None:
    path, data = tmp_path / f"t{extension}", frame()
    if extension == ".npz":
        np.savez(path, X=data.to_numpy(), y=data["a"])
    elif extension == ".parquet":
        data.to_parquet(path, row_group_size=5)
    else:
        data.to_csv(path, index=False)
    table = open_table(path)
    names = ["x0", "x1"] if extension == ".npz" else ["a", "b"]
    chunks = [chunk for chunk, _ in feature_chunks(table, names, rows=rows)]
    assert [len(c) for c in chunks[:-1]] == [rows] * (len(chunks) - 1)
    np.testing.assert_array_equal(pd.concat(chunks).to_numpy(), data.to_numpy())


def test_a_chunk_is_whole_batches_of_the_posterior() -> None:
    from warmgp.posterior import Posterior

    assert CHUNK_ROWS % Posterior.batch_size == 0


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), TableWriter(path) as writer:
        writer.write({"a": np.arange(3.0)})
        raise RuntimeError
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_text_columns_become_indicators_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("colour,n,extra=x,k=v\nNA,1,5,a\n red ,2,6,b\nNA,1,7,a\n")
    table = open_table(path)
    names = ["extra=x", "colour=NA", "colour=red", "n=1", "n=2", "k=v=a", "k=v=b"]
    assert resolve(names, table) == (["extra=x"], {"colour": ["NA", "red"], "n": ["1", "2"], "k=v": ["a", "b"]})
    ((chunk, _),) = feature_chunks(table, names)
    expected = [[5, 1, 0, 1, 0, 1, 0], [6, 0, 1, 0, 1, 0, 1], [7, 1, 0, 1, 0, 1, 0]]
    np.testing.assert_array_equal(chunk.to_numpy(), expected)
    assert list(chunk) == names


def test_categories_and_booleans_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"c": pd.Categorical(["u", "v"]), "f": [True, False], "z": [2.0, 3.0]}).to_parquet(path)
    ((chunk, _),) = feature_chunks(open_table(path), ["c=u", "c=v", "f", "z=2", "z=3"])
    np.testing.assert_array_equal(chunk.to_numpy(), [[1, 0, 1, 1, 0], [0, 1, 0, 0, 1]])


def test_a_blank_line_of_a_single_column_is_a_missing_value_not_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n\n3\n")
    with pytest.raises(TableError, match=r"'a'.*blank in row 2"):
        list(feature_chunks(open_table(path), ["a"]))


def test_row_numbers_count_across_chunks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 11 + "1,x\n")
    with pytest.raises(TableError, match=r"'b'.*row 12 \('x'\)"):
        list(feature_chunks(open_table(path), ["a", "b"], rows=5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,a\n1,2,3\n", "more than one column named 'a'"),
        ("\n1,2\n", "is empty"),
        ("1.5,2\n3,4\n", "no header"),
        ("a;b\n1;2\n", "not separated by commas"),
        ("a,b\n1,2,3\n1,2\n", "more cells than the header"),
        ("a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        ('a,b\n1,"2\n', "cannot be read"),
        ("a,b\n1\n", "'b'.*blank in row 1"),
        ("a,b\n", "no rows"),
    ],
)
def test_malformed_csv(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TableError, match=message) as caught:
        list(feature_chunks(open_table(path), ["a", "b"]))
    assert "t.csv" in str(caught.value)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    bad = {
        "cut.csv.gz": whole[: len(whole) // 2],
        "no.csv.gz": b"a,b\n1,2\n",
        "no.parquet": b"a,b\n1,2\n",
        "no.npz": b"a,b\n1,2\n",
        "latin.csv": "a,b\n1,é\n".encode("latin-1"),
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=name):
            list(open_table(tmp_path / name).chunks(["a", "b"]))
    np.savez(tmp_path / "objects.npz", X=np.array([[1, "a", None]], dtype=object))
    with pytest.raises(TableError, match=r"objects\.npz"):
        open_table(tmp_path / "objects.npz")
    np.savez(tmp_path / "short.npz", X=np.ones((3, 2)), y=np.ones(2))
    with pytest.raises(TableError, match=r"y in .*short\.npz"):
        open_table(tmp_path / "short.npz")


# -- folders of Parquet files ----------------------------------------------------------------------------------------
def parts(folder: Path, *frames: pd.DataFrame) -> Path:
    folder.mkdir()
    for number, frame in enumerate(frames):
        frame.to_parquet(folder / f"part-{number}.parquet", index=False, row_group_size=3)
    return folder


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    whole = pd.DataFrame({"a": np.arange(20.0), "b": [f"k{i % 3}" for i in range(20)], "y": np.arange(20.0) ** 2})
    folder = parts(tmp_path / "big", whole[:7], whole[["y", "b", "a"]][7:8], whole[8:])
    (folder / "_SUCCESS").touch()
    (folder / "_metadata.parquet").write_bytes(b"not a table")
    table = open_table(folder)
    assert table.columns == ["a", "b", "y"] and table.fraction == 0.0
    read = list(table.chunks(["y", "b"], rows=6))
    assert [len(part) for part in read] == [6, 6, 6, 2] and table.fraction == 1.0
    pd.testing.assert_frame_equal(pd.concat(read, ignore_index=True), whole[["y", "b"]])


def test_a_folder_of_parquet_files_goes_through_all_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.linspace(0, 6, 60)
    whole = pd.DataFrame({"x": x, "y": np.sin(x) + 0.01 * np.cos(40 * x)})
    old, new = parts(tmp_path / "old", whole[::3], whole[1::3]), parts(tmp_path / "new", whole[2::6], whole[5::6])
    model, out = tmp_path / "model", tmp_path / "out.parquet"
    assert run(capsys, "fit", old, "--target", "y", "--out", model, *FAST)[0] == 0
    assert run(capsys, "predict", model, new, "--out", out, "--quiet")[0] == 0
    told = pd.concat([whole[2::6], whole[5::6]])["y"].to_numpy()
    assert np.abs(pd.read_parquet(out)["mean"].to_numpy() - told).max() < 0.5
    assert run(capsys, "score", model, new, "--quiet")[0] == 0
    assert run(capsys, "update", model, new, "--out", model)[0] == 0
    assert len(GPRegressor.load(model).y_train_) == 60


def test_a_folder_whose_files_differ_is_refused_by_name(tmp_path: Path) -> None:
    one = pd.DataFrame({"a": [1.0], "y": [1.0]})
    folder = parts(tmp_path / "big", one, one.rename(columns={"a": "c"}))
    with pytest.raises(TableError, match=r"part-1\.parquet and .*part-0\.parquet differ in 'a', 'c'"):
        open_table(folder)
    (folder / "part-1.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(TableError, match=r"part-1\.parquet cannot be read"):
        open_table(folder)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    with pytest.raises(TableError, match="is a folder without a Parquet file in it"):
        open_table(tmp_path)
