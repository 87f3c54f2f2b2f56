"""The command line: the same numbers as the Python API, errors in one line, nothing half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import warmgp.cli
from warmgp import GPRegressor
from warmgp.cli import main
from warmgp.persistence import read

FAST = ["--n-steps", "4", "--n-features", "100", "--n-probes", "6", "--device", "cpu", "--quiet"]
API = {"n_steps": 4, "n_features": 100, "n_probes": 6, "device": "cpu", "random_state": 0}


def table(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(-2, 2, (n, 2)), columns=["a", "b"])
    data["colour"] = np.where(np.arange(n) % 3 == 0, "red", "blue")
    data["y"] = 5 + 3 * np.sin(2 * data["a"]) + (data["colour"] == "red") + 0.3 * rng.normal(size=n)
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in every format, and a model of it."""
    path = tmp_path_factory.mktemp("cli")
    data, numbers = table(), table().drop(columns="colour")
    data.to_csv(path / "data.csv", index=False)
    numbers.to_csv(path / "numbers.csv", index=False)
    numbers.to_csv(path / "numbers.csv.gz", index=False)
    numbers.to_parquet(path / "numbers.parquet")
    np.savez(path / "numbers.npz", X=numbers[["a", "b"]].to_numpy(), y=numbers["y"].to_numpy())
    GPRegressor(solver="cg", **API).fit(numbers[["a", "b"]], numbers["y"]).save(path / "numbers.model")
    one_hot = [str(path / "data.csv"), "--target", "y", "--out", str(path / "colour.model"), "--one-hot", "colour"]
    assert main(["fit", *one_hot, *FAST]) == 0
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# -- the same numbers ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("extension", [".csv", ".csv.gz", ".parquet", ".npz"])
@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_fit_and_predict_are_the_python_api_to_the_bit(
    extension: str, solver: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table().drop(columns="colour")
    X = data[["a", "b"]].set_axis(["x0", "x1"], axis=1) if extension == ".npz" else data[["a", "b"]]
    model = GPRegressor(solver=solver, **API).fit(X, data["y"])
    source, file = folder / f"numbers{extension}", tmp_path / "m.safetensors"
    assert run(capsys, "fit", source, "--target", "y", "--out", file, "--solver", solver, *FAST)[0] == 0
    assert GPRegressor.load(file, device="cpu").hyperparameters_.equals(model.hyperparameters_)
    for out in ("p.csv", "p.csv.gz", "p.parquet", "p.npz"):
        code, *_ = run(capsys, "predict", file, source, "--out", tmp_path / out, "--std", "--samples", 3, "--quiet")
        assert code == 0
    mean, std = model.predict(X, return_std=True)
    truth = np.column_stack([mean, std, model.sample_y(X, 3)])
    for found in (
        pd.read_csv(tmp_path / "p.csv"),
        pd.read_csv(tmp_path / "p.csv.gz"),
        pd.read_parquet(tmp_path / "p.parquet"),
        pd.DataFrame(dict(np.load(tmp_path / "p.npz"))),
    ):
        assert list(found) == ["mean", "std", "sample_1", "sample_2", "sample_3"]
        np.testing.assert_array_equal(found.to_numpy(), truth)
    assert run(capsys, "predict", file, source, "--out", tmp_path / "mean.csv")[0] == 0
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "mean.csv")["mean"], model.predict(X))


def test_one_hot_columns_are_rebuilt_from_their_names(folder: Path, tmp_path: Path) -> None:
    data = table()
    X = data[["a", "b"]].assign(**{f"colour={c}": (data["colour"] == c).astype(float) for c in ("blue", "red")})
    truth = GPRegressor(**API).fit(X, data["y"]).predict(X)
    shuffled = data[["y", "colour", "b", "a"]]  # other columns and orders do not matter
    shuffled.to_csv(tmp_path / "d.csv", index=False)
    assert (
        main(["predict", str(folder / "colour.model"), str(tmp_path / "d.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    )
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "p.csv")["mean"], truth)


def test_chunks_are_the_same_functions(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["predict", str(folder / "numbers.model"), str(folder / "numbers.csv"), "--std", "--samples", "2"]
    assert main([*arguments, "--out", str(tmp_path / "whole.csv")]) == 0
    whole = warmgp.cli.feature_chunks
    monkeypatch.setattr(warmgp.cli, "feature_chunks", lambda table, names: whole(table, names, rows=9))
    assert main([*arguments, "--out", str(tmp_path / "parts.csv")]) == 0
    a, b = pd.read_csv(tmp_path / "whole.csv"), pd.read_csv(tmp_path / "parts.csv")
    assert len(a) == 80
    np.testing.assert_allclose(a, b, rtol=1e-10)


def test_held_out_score_is_honest(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.safetensors"
    code, out, _ = run(
        capsys, "fit", folder / "numbers.csv", "--target", "y", "--out", file, "--test-fraction", 0.25, *FAST
    )
    assert code == 0 and "20 held-out rows" in out
    train, test = warmgp.cli.split(80, 0.25, 0)
    assert sorted([*train, *test]) == list(range(80))
    data = table()
    X, y = data[["a", "b"]], data["y"].to_numpy()
    model = GPRegressor(**API).fit(X.iloc[train], y[train])
    mean, std = model.predict(X.iloc[test], return_std=True)
    assert f"{np.sqrt(np.mean((mean - y[test]) ** 2)):.6g}" in out
    assert f"{model.log_predictive_density(X.iloc[test], y[test]).mean():.6g}" in out
    assert f"{np.mean(np.abs(mean - y[test]) <= 1.959964 * std):.1%}" in out
    data.iloc[test].to_csv(tmp_path / "test.csv", index=False)
    code, scored, _ = run(capsys, "score", file, tmp_path / "test.csv", "--target", "y")
    assert code == 0 and f"{np.sqrt(np.mean((mean - y[test]) ** 2)):.6g}" in scored
    assert f"{model.score(X.iloc[test], y[test]):.6g}" in scored


def test_info_demo_help(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "info", folder / "colour.model")
    assert code == 0 and not err
    for expected in ("matern32", "80, 4", "colour=red", "converged", "Adam steps", "likelihood"):
        assert expected in out
    code, out, _ = run(capsys, "demo", "--out", tmp_path / "demo.png", "--n", 200, "--steps", 2, "--quiet")
    assert code == 0 and (tmp_path / "demo.png").stat().st_size > 1000
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(name in out for name in ("fit", "predict", "score", "info", "demo"))
    assert run(capsys)[0] == 2


def test_a_model_without_names_reads_x0_x1(folder: Path, tmp_path: Path) -> None:
    data = np.load(folder / "numbers.npz")
    model = GPRegressor(**API).fit(data["X"], data["y"])
    model.save(tmp_path / "m")
    assert main(["predict", str(tmp_path / "m"), str(folder / "numbers.npz"), "--out", str(tmp_path / "p.csv")]) == 0
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "p.csv")["mean"], model.predict(data["X"]))


# -- bad input -------------------------------------------------------------------------------------------------------
ROWS = "a,b,y\n" + "".join(f"{i},{i * i % 7},{i % 5}\n" for i in range(12))
FIT_ERRORS = {
    "unknown extension": ("d.xlsx", "x", [], ["d.xlsx", ".parquet"]),
    "empty file": ("d.csv", "", [], ["d.csv", "empty"]),
    "header only": ("d.csv", "a,b,y\n", [], ["d.csv", "no rows"]),
    "target not there": ("d.csv", ROWS.replace("y", "yield"), [], ["--target", "'y'", "'yield'"]),
    "text column": ("d.csv", "a,colour,y\n1,red,2\n2,blue,3\n", [], ["'colour'", "'red'", "--drop", "--one-hot"]),
    "blank cell": ("d.csv", ROWS.replace("\n3,2,", "\n3,,"), [], ["'b'", "blank in row 4"]),
    "NaN cell": ("d.csv", ROWS.replace("\n3,2,", "\n3,NaN,"), [], ["'b'", "blank in row 4"]),
    "blank target": ("d.csv", ROWS.replace("\n3,2,3", "\n3,2,"), [], ["'y'", "blank in row 4"]),
    "text target": ("d.csv", ROWS.replace("\n3,2,3", "\n3,2,high"), [], ["'y'", "row 4 ('high')"]),
    "infinite": ("d.csv", ROWS.replace("\n3,2,", "\n3,inf,"), [], ["'b'", "infinite in row 4"]),
    "constant target": ("d.csv", "a,y\n1,2\n2,2\n3,2\n", [], ["'y'", "constant"]),
    "duplicated column": ("d.csv", "a,a,y\n1,2,3\n", [], ["more than one column named 'a'"]),
    "drop unknown": ("d.csv", ROWS, ["--drop", "c"], ["--drop", "'c'", "'a', 'b'"]),
    "drop target": ("d.csv", ROWS, ["--drop", "y"], ["--drop y", "target"]),
    "drop all": ("d.csv", ROWS, ["--drop", "a", "--drop", "b"], ["no column left"]),
    "one-hot unknown": ("d.csv", ROWS, ["--one-hot", "c"], ["--one-hot", "'c'"]),
    "one-hot and drop": ("d.csv", ROWS, ["--one-hot", "a", "--drop", "a"], ["--drop and --one-hot", "'a'"]),
    "one-hot clash": ("d.csv", "a,a=1,y\n1,2,3\n1,3,4\n", ["--one-hot", "a"], ["'a=1'", "rename"]),
    "one-hot ambiguous": ("d.csv", "a,a=b,y\nb=c,2,3\nd,3,4\n", ["--one-hot", "a"], ["'a=b=c'", "rename"]),
    "nameless column": ("d.csv", ",a,y\n0,1,3\n1,3,4\n", [], ["no name", "--drop 'Unnamed: 0'"]),
    "unknown solver": ("d.csv", ROWS, ["--solver", "magic"], ["solver", "'magic'", "'cg'"]),
    "unknown kernel": ("d.csv", ROWS, ["--kernel", "magic"], ["kernel", "'magic'", "'rbf'"]),
    "negative tol": ("d.csv", ROWS, ["--tol", "-1"], ["tol must be positive"]),
    "tol no number": ("d.csv", ROWS, ["--tol", "abc"], ["--tol", "number"]),
    "steps no number": ("d.csv", ROWS, ["--n-steps", "many"], ["--n-steps", "'many'", "auto"]),
    "unknown option": ("d.csv", ROWS, ["--magic"], ["--magic"]),
    "test fraction": ("d.csv", ROWS, ["--test-fraction", "1.5"], ["--test-fraction", "1.5"]),
    "test fraction too small": ("d.csv", ROWS, ["--test-fraction", "0.001"], ["--test-fraction", "12 rows"]),
    "negative seed": ("d.csv", ROWS, ["--seed", "-1"], ["--seed", "-1"]),
    "resume what": ("d.csv", ROWS, ["--resume"], ["--resume", "--checkpoint"]),
}


@pytest.mark.parametrize("case", FIT_ERRORS)
def test_fit_refuses(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, content, options, expected = FIT_ERRORS[case]
    (tmp_path / name).write_text(content)
    arguments = ["fit", tmp_path / name, "--target", "y", "--out", tmp_path / "m.model", "--device", "cpu", "--quiet"]
    refused(capsys, [*arguments, *options], expected)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def refused(capsys: pytest.CaptureFixture[str], arguments: list[object], expected: list[str], code: int = 2) -> None:
    """The command fails with that code and one line that has all that is expected."""
    found, out, err = run(capsys, *arguments)
    assert found == code, err
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    for text in expected:
        assert text in err


def test_fit_refuses_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = folder / "numbers.csv", tmp_path / "m.model"
    target = ["--target", "y", *FAST]
    refused(capsys, ["fit", tmp_path / "no.csv", "--out", out, *target], ["no.csv", "no such file"])
    refused(capsys, ["fit", data, "--out", tmp_path / "no" / "m", *target], ["folder", "does not exist"])
    refused(capsys, ["fit", data, "--out", tmp_path, *target], ["is a folder"])
    refused(capsys, ["fit", data, "--out", data, *target], ["DATA and --out", "same file"])
    refused(capsys, ["fit", data, *target], ["--out"])
    np.savez(tmp_path / "d.npz", Z=np.ones((3, 2)), y=np.ones(3))
    refused(capsys, ["fit", tmp_path / "d.npz", "--out", out, *target], ["no array named X", "'Z'"])
    (tmp_path / "c.ckpt").write_text("something")
    with_checkpoint = ["fit", data, "--out", out, "--checkpoint", tmp_path / "c.ckpt", *target]
    refused(capsys, with_checkpoint, ["c.ckpt exists", "--resume"])
    refused(capsys, [*with_checkpoint, "--resume"], ["c.ckpt", "not a whole warmgp file"])
    assert not out.exists() and (tmp_path / "c.ckpt").read_text() == "something"


PREDICT_ERRORS = {
    "missing column": ("b,colour\n1,red\n", ["'a'", "lacks column"]),
    "missing text column": ("a,b\n1,2\n", ["'colour=blue', 'colour=red'"]),
    "unseen category": ("a,b,colour\n1,2,red\n1,2,green\n", ["'colour'", "'green' in row 2", "'blue', 'red'"]),
    "blank category": ("a,b,colour\n1,2,red\n1,2,\n", ["'colour'", "blank in row 2"]),
    "text in a number": ("a,b,colour\n1,2,red\n1,two,red\n", ["'b'", "row 2 ('two')"]),
    "blank": ("a,b,colour\n1,2,red\n,2,red\n", ["'a'", "blank in row 2"]),
    "infinite": ("a,b,colour\n1,2,red\n1e999,2,red\n", ["'a'", "infinite in row 2"]),
    "header only": ("a,b,colour\n", ["no rows"]),
}


@pytest.mark.parametrize("case", PREDICT_ERRORS)
def test_predict_refuses(case: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = PREDICT_ERRORS[case]
    (tmp_path / "d.csv").write_text(content)
    arguments = ["predict", folder / "colour.model", tmp_path / "d.csv", "--out", tmp_path / "p.csv", "--quiet"]
    refused(capsys, arguments, ["d.csv", *expected])
    assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]


def test_predict_refuses_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data, out = folder / "numbers.model", folder / "numbers.csv", tmp_path / "p.csv"
    (tmp_path / "cut").write_bytes(model.read_bytes()[:-10])
    for bad, expected in (
        (folder / "data.csv", "not a whole"),
        (tmp_path / "cut", "not a whole"),
        (tmp_path / "no", "no such file"),
    ):
        for command in (["predict", bad, data, "--out", out], ["info", bad], ["score", bad, data, "--target", "y"]):
            refused(capsys, [*command], [bad.name, expected])
    refused(capsys, ["predict", model, tmp_path / "no.csv", "--out", out], ["no.csv"])
    refused(capsys, ["predict", model, data, "--out", tmp_path / "no" / "p.csv"], ["folder", "does not exist"])
    refused(capsys, ["predict", model, data, "--out", tmp_path / "p.txt"], ["p.txt", ".csv"])
    refused(capsys, ["predict", model, data, "--out", data], ["same file"])
    refused(capsys, ["predict", model, data, "--out", out, "--samples", 7], ["--samples", "6 functions", "--n-probes"])
    refused(capsys, ["score", model, data, "--target", "z"], ["--target", "'z'"])
    assert [p.name for p in tmp_path.iterdir()] == ["cut"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device"), 1, "No space left"),
        (np.linalg.LinAlgError("not positive definite"), 1, "positive"),
        (KeyError("x"), 1, "KeyError"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_failing_prediction_leaves_no_file(
    error: BaseException,
    code: int,
    text: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        assert len(list(tmp_path.iterdir())) == 1  # the temporary file
        raise error

    monkeypatch.setattr(GPRegressor, "predict", fail)
    model, data = folder / "numbers.model", folder / "numbers.csv"
    refused(capsys, ["predict", model, data, "--out", tmp_path / "p.csv", "--quiet"], [text], code)
    assert list(tmp_path.iterdir()) == []


def test_a_short_solve_is_a_warning_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--solver", "ap", "--max-epochs", "0.5", "--tol", "1e-8", *FAST]
    code, _, err = run(capsys, "fit", folder / "numbers.csv", "--target", "y", "--out", tmp_path / "m", *options)
    assert code == 0 and err.startswith("warning: the final solve stopped") and err.count("\n") == 1


# -- kills -----------------------------------------------------------------------------------------------------------
def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "warmgp", *map(str, arguments)]


@pytest.mark.slow
def test_kill_minus_nine_and_resume(tmp_path: Path) -> None:
    """A fit killed in the middle and resumed writes the hyperparameters of an undisturbed one."""
    data = tmp_path / "d.csv"
    table(400).to_csv(data, index=False)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = ["--target", "y", "--drop", "colour", "--solver", "ap", "--n-steps", "60", "--n-features", "200"]
    options += ["--n-probes", "8", "--device", "cpu", "--quiet", "--checkpoint-every", "1"]
    whole, resumed, checkpoint = tmp_path / "whole", tmp_path / "resumed", tmp_path / "run.ckpt"
    subprocess.run(command("fit", data, "--out", whole, *options), env=environment, check=True)

    fit = command("fit", data, "--out", resumed, "--checkpoint", checkpoint, *options)
    process = subprocess.Popen(fit, env=environment)
    while process.poll() is None and not (checkpoint.exists() and read(checkpoint, "checkpoint")[1]["step"] >= 3):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert 3 <= read(checkpoint, "checkpoint")[1]["step"] < 60 and not resumed.exists()

    refused_run = subprocess.run(fit, env=environment, capture_output=True, text=True)
    assert refused_run.returncode == 2 and "--resume" in refused_run.stderr
    subprocess.run([*fit, "--resume"], env=environment, check=True)
    a, b = read(whole, "model")[0], read(resumed, "model")[0]
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


KILLED_PREDICT = """
import os, signal, sys
from warmgp import GPRegressor, cli
whole, calls = GPRegressor.predict, []
def predict(self, X, **options):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, X, **options)
GPRegressor.predict = predict
chunks = cli.feature_chunks
cli.feature_chunks = lambda table, names: chunks(table, names, rows=10)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_killed_predict_leaves_nothing_under_the_final_name(folder: Path, tmp_path: Path) -> None:
    arguments = ["predict", folder / "numbers.model", folder / "numbers.csv", "--out", tmp_path / "p.csv"]
    process = subprocess.run([sys.executable, "-c", KILLED_PREDICT, *map(str, arguments)], capture_output=True)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "p.csv").exists()
