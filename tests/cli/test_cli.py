"""The command line: the same numbers as the Python API, errors in one line, nothing half written."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import warmgp.cli.commands
from cli_tools import API, FAST, command, read_csv, refused, run, table
from processes import begin, finish
from processes import warmgp as warmgp_command
from warmgp import GPRegressor
from warmgp.cli.commands import main
from warmgp.cli.held_out import split
from warmgp.estimator import prepare
from warmgp.files.format import read


# -- the same numbers ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("extension", [".csv", ".csv.gz", ".parquet", ".npz"])
@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_fit_and_predict_are_the_python_api_to_the_bit(
    extension: str, solver: str, cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table().drop(columns="colour")
    X = data[["a", "b"]].set_axis(["x0", "x1"], axis=1) if extension == ".npz" else data[["a", "b"]]
    model = GPRegressor(solver=solver, **API).fit(X, data["y"])
    source, file = cli_folder / f"numbers{extension}", tmp_path / "m.safetensors"
    assert run(capsys, "fit", source, "--target", "y", "--out", file, "--solver", solver, *FAST)[0] == 0
    assert GPRegressor.load(file, device="cpu").hyperparameters_.equals(model.hyperparameters_)
    for out in ("p.csv", "p.csv.gz", "p.parquet", "p.npz"):
        code, *_ = run(capsys, "predict", file, source, "--out", tmp_path / out, "--std", "--samples", 3, "--quiet")
        assert code == 0
    mean, std = model.predict(X, return_std=True)
    truth = np.column_stack([mean, std, model.sample_y(X, 3)])
    for found in (
        read_csv(tmp_path / "p.csv"),
        read_csv(tmp_path / "p.csv.gz"),
        pd.read_parquet(tmp_path / "p.parquet"),
        pd.DataFrame(dict(np.load(tmp_path / "p.npz"))),
    ):
        assert list(found) == ["mean", "std", "sample_1", "sample_2", "sample_3"]
        np.testing.assert_array_equal(found.to_numpy(), truth)
    code, shown, told = run(capsys, "predict", file, source, "--out", tmp_path / "mean.csv")
    assert code == 0 and "%" not in shown + told  # a bar is for a terminal
    np.testing.assert_array_equal(read_csv(tmp_path / "mean.csv")["mean"], model.predict(X))


def test_one_hot_columns_are_categories(cli_folder: Path, tmp_path: Path) -> None:
    data = table()
    X = data[["a", "b", "colour"]]
    truth = GPRegressor(columns={"colour": "category"}, **API).fit(X, data["y"]).predict(X)
    shuffled = data[["y", "colour", "b", "a"]]  # other columns and orders do not matter
    shuffled.to_csv(tmp_path / "d.csv", index=False)
    out = tmp_path / "p.csv"
    assert main(["predict", str(cli_folder / "colour.model"), str(tmp_path / "d.csv"), "--out", str(out)]) == 0
    np.testing.assert_array_equal(read_csv(out)["mean"], truth)


def test_indicators_of_earlier_models_are_rebuilt_from_their_names(cli_folder: Path, tmp_path: Path) -> None:
    """Before there were categories, --one-hot made columns ``colour=red``, and a model knew their names alone."""
    data = table()
    X = data[["a", "b"]].assign(**{f"colour={c}": (data["colour"] == c).astype(float) for c in ("blue", "red")})
    model, out = GPRegressor(**API).fit(X, data["y"]), tmp_path / "p.csv"
    model.save(tmp_path / "m")
    assert main(["predict", str(tmp_path / "m"), str(cli_folder / "data.csv"), "--out", str(out)]) == 0
    np.testing.assert_array_equal(read_csv(out)["mean"], model.predict(X))


def test_chunks_are_the_same_functions(cli_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [
        "predict",
        str(cli_folder / "numbers.model"),
        str(cli_folder / "numbers.csv"),
        "--std",
        "--samples",
        "2",
    ]
    assert main([*arguments, "--out", str(tmp_path / "whole.csv")]) == 0
    whole = warmgp.cli.at_once.feature_chunks
    monkeypatch.setattr(warmgp.cli.at_once, "feature_chunks", lambda *a, **k: whole(*a, rows=9, **k))
    assert main([*arguments, "--out", str(tmp_path / "parts.csv")]) == 0
    a, b = pd.read_csv(tmp_path / "whole.csv"), pd.read_csv(tmp_path / "parts.csv")
    assert len(a) == 80
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # float32


def test_held_out_score_is_honest(cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.safetensors"
    code, out, _ = run(
        capsys, "fit", cli_folder / "numbers.csv", "--target", "y", "--out", file, "--test-fraction", 0.25, *FAST
    )
    assert code == 0 and "20 held-out rows" in out
    train, test = split(80, 0.25, 0)
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


def test_info_demo_help(cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "info", cli_folder / "colour.model")
    assert code == 0 and not err
    for expected in ("kernel", "80, 3", "colour", "steps between two values", "converged", "Adam steps", "likelihood"):
        assert expected in out
    code, out, _ = run(capsys, "demo", "--out", tmp_path / "demo.png", "--n", 200, "--steps", 2, "--quiet")
    assert code == 0 and (tmp_path / "demo.png").stat().st_size > 1000
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(name in out for name in ("fit", "predict", "score", "info", "demo"))
    assert run(capsys)[0] == 2


def test_a_model_without_names_reads_x0_x1(cli_folder: Path, tmp_path: Path) -> None:
    data = np.load(cli_folder / "numbers.npz")
    model = GPRegressor(**API).fit(data["X"], data["y"])
    model.save(tmp_path / "m")
    assert (
        main(["predict", str(tmp_path / "m"), str(cli_folder / "numbers.npz"), "--out", str(tmp_path / "p.csv")]) == 0
    )
    np.testing.assert_array_equal(read_csv(tmp_path / "p.csv")["mean"], model.predict(data["X"]))


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
    cli_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        assert len(list(tmp_path.iterdir())) == 1  # the temporary file
        raise error

    monkeypatch.setattr(GPRegressor, "predict", fail)
    model, data = cli_folder / "numbers.model", cli_folder / "numbers.csv"
    refused(capsys, ["predict", model, data, "--out", tmp_path / "p.csv", "--quiet"], [text], code)
    assert list(tmp_path.iterdir()) == []


def test_a_short_solve_is_a_warning_in_one_line(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--solver", "ap", "--max-epochs", "0.5", "--tol", "1e-8", *FAST]
    code, _, err = run(capsys, "fit", cli_folder / "numbers.csv", "--target", "y", "--out", tmp_path / "m", *options)
    assert code == 0 and err.startswith("warning: the final solve stopped") and err.count("\n") == 1


# -- kills -----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_kill_minus_nine_and_resume(tmp_path: Path) -> None:
    """A fit killed in the middle and resumed writes the hyperparameters of an undisturbed one."""
    data = tmp_path / "d.csv"
    table(400).to_csv(data, index=False)
    options = ["--target", "y", "--drop", "colour", "--solver", "ap", "--n-steps", "60", "--n-features", "200"]
    options += ["--n-probes", "8", "--device", "cpu", "--quiet", "--checkpoint-every", "1"]
    whole, resumed, checkpoint, shown = (tmp_path / name for name in ("whole", "resumed", "run.ckpt", "shown"))
    assert finish(warmgp_command, shown, "fit", data, "--out", whole, *options) == 0, shown.read_text()

    fit = [warmgp_command, shown, "fit", data, "--out", resumed, "--checkpoint", checkpoint, *options]
    process = begin(*fit)
    while process.is_alive() and not (checkpoint.exists() and read(checkpoint, "checkpoint")[1]["step"] >= 3):
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
    assert 3 <= read(checkpoint, "checkpoint")[1]["step"] < 60 and not resumed.exists()

    assert finish(*fit) == 2 and "--resume" in shown.read_text()
    assert finish(*fit, "--resume") == 0, shown.read_text()
    a, b = read(whole, "model")[0], read(resumed, "model")[0]
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_ctrl_c_in_training_writes_the_model_of_the_steps_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(record, state):  # type: ignore[no-untyped-def]
        if record.step == 1:
            raise KeyboardInterrupt

    table(60).to_csv(tmp_path / "d.csv", index=False)
    plain = GPRegressor.fit

    def interrupted(self: GPRegressor, *data: object) -> GPRegressor:
        return plain(self.set_params(callbacks=(interrupt,)), *data)  # type: ignore[arg-type]

    monkeypatch.setattr(GPRegressor, "fit", interrupted)
    options = ["--target", "y", "--drop", "colour", "--out", tmp_path / "m", *FAST]
    code, out, err = run(capsys, "fit", tmp_path / "d.csv", *options)
    assert code == 130 and "(interrupted after 2 of 4 steps, whose model is kept)" in out
    assert err.endswith("error: interrupted\n") and GPRegressor.load(tmp_path / "m").n_steps_ == 2


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"warmgp {warmgp.__version__}\n", "")


def _hears_ctrl_c() -> None:
    """Undoes what a shell does to commands in the background, and to the tests if they are one: to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_while_initialising(tmp_path: Path) -> None:
    """One line, exit code 130, no model, no checkpoint; and there was a bar to see."""
    table(400).to_csv(tmp_path / "d.csv", index=False)
    options = ["--target", "y", "--drop", "colour", "--solver", "cg", "--init", "subset", "--device", "cpu"]
    fit = command("fit", tmp_path / "d.csv", "--out", tmp_path / "m", "--checkpoint", tmp_path / "c", *options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(fit, **pipes, preexec_fn=_hears_ctrl_c) as process:  # type: ignore[call-overload]
        shown = b""
        while b"neighbourhood 1 of 10" not in shown:
            part = process.stderr.read1()  # type: ignore[union-attr]
            assert part, shown
            shown += part
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate()
    assert process.returncode == 130 and out == b""
    assert b"initialising" in shown and rest.endswith(b"error: interrupted\n") and b"Traceback" not in rest
    assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]


def predict_and_die(*arguments: object) -> None:
    """The command in chunks of ten rows, which ends its process at the third."""
    whole, calls = GPRegressor.predict, []

    def predict(self, X, **options):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(self, X, **options)

    GPRegressor.predict = predict  # type: ignore[method-assign]
    chunks = warmgp.cli.at_once.feature_chunks
    warmgp.cli.at_once.feature_chunks = lambda *a, **k: chunks(*a, rows=10, **k)  # type: ignore[assignment]
    warmgp_command(*arguments)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_killed_predict_leaves_nothing_under_the_final_name(cli_folder: Path, tmp_path: Path) -> None:
    arguments = ["predict", cli_folder / "numbers.model", cli_folder / "numbers.csv", "--out", tmp_path / "p.csv"]
    assert finish(predict_and_die, tmp_path / "shown", *arguments) == -signal.SIGKILL
    assert not (tmp_path / "p.csv").exists()


# -- the plan alone --------------------------------------------------------------------------------------------------
def test_a_dry_run_tells_the_plan_and_writes_nothing(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GPRegressor, "fit", lambda *_, **__: pytest.fail("trained"))
    source = cli_folder / "numbers.csv"
    code, out, _ = run(capsys, "fit", source, "--target", "y", "--dry-run", "--solver", "ap", "--n-steps", 7)
    told = " ".join(out.split())
    assert code == 0 and "80 rows of 2 columns Iterative training, " in told
    assert "Details: 7 Adam steps" in told and "solver ap" in told
    assert not list(tmp_path.iterdir())


def test_out_is_needed_unless_it_is_a_dry_run(cli_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "fit", cli_folder / "numbers.csv", "--target", "y")
    assert code == 2 and "--out is needed" in err and "--dry-run" in err


def test_info_marks_constant_columns_and_how_training_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their length scale is where it started, and would look like that of a column that matters."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[:, 1] = 7.0
    GPRegressor(**API).fit(X, np.sin(X[:, 0])).save(tmp_path / "m")
    code, out, _ = run(capsys, "info", tmp_path / "m")
    assert code == 0 and "4 steps (all of them: more may help)" in out
    rows = [line for line in out.splitlines() if "x1" in line]
    assert len(rows) == 1 and "constant" in rows[0]


def test_a_device_that_is_not_there_is_named_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    pd.DataFrame({"a": [1.0, 2.0], "y": [1.0, 2.0]}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", tmp_path / "t.csv", "--target", "y", "--dry-run", "--device", "cuda:99"]
    refused(capsys, arguments, ["--device cuda:99 but torch sees no CUDA device"])


def test_one_plan_for_a_fit_and_one_for_a_dry_run(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    whole = prepare.plan_for
    monkeypatch.setattr(prepare, "plan_for", lambda request: (made.append(request.n), whole(request))[1])
    fit = ["fit", cli_folder / "numbers.csv", "--target", "y", "--n-steps", 2, "--quiet"]
    assert run(capsys, *fit, "--dry-run")[0] == 0 and len(made) == 1
    assert run(capsys, *fit, "--out", tmp_path / "m")[0] == 0 and len(made) == 2
    code, out, _ = run(capsys, "info", tmp_path / "m")
    told = " ".join(out.replace("│", " ").split())
    assert code == 0 and "Variances are exact, from a factor of H." in told and "Took" in told
