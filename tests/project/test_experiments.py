"""The experiments' harness: what it lists, what it keeps, and that cuts and kills lose nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cells import BUDGETS, FEATURES, PROBES, SETTINGS, STUDIES, Item, Run, Start, cells, describe, exact
from experiments.data import TOYS
from experiments.run import main, splits
from experiments.store import Store
from processes import begin
from warmgp.training.state import TrainingState

ONE = ["table1", "--small", "--solvers", "cg", "--estimators", "pathwise", "--warm", "--device", "cpu"]


def items(name: str, *, small: bool = False, n_splits: int = 1) -> list[Item]:
    study, published, made_up = STUDIES[name]
    return list(study(made_up if small else published, range(n_splits)))


def quietly(arguments: list[str]) -> None:
    """The command, in a process of its own."""
    with contextlib.redirect_stdout(io.StringIO()):
        sys.exit(main(arguments))


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of a hundred points and eight steps, for tests of what is kept."""
    for name in ("toy-quiet", "toy-noisy"):
        monkeypatch.setitem(TOYS, name, (100, TOYS[name][1]))
        monkeypatch.setitem(SETTINGS, name, replace(SETTINGS[name], n_steps=8))


def test_the_lists_are_the_papers() -> None:
    assert len(items("table1", n_splits=10)) == 5 * 10 * (12 + 1)
    assert len(items("budgets")) == 5 * 12 * len(BUDGETS)
    assert len(items("large")) == 5 * (1 + 6)
    assert [item.key for item in items("solved")] == [
        "terrain-0_start",
        "terrain-0_near_pathwise_warm",
        "terrain-0_near_pathwise_warm_spread",
        "terrain-0_near_standard_warm",
    ]
    assert len(items("probes")) == len(PROBES)
    assert [item.prior for item in items("spectrum") if isinstance(item, Run)][:3] == ["plain", "plain", "product"]
    assert len(items("features")) == 4 * (2 + 2 * len(FEATURES))
    assert len(items("distances")) == 2 * 3
    assert len(set(cells("pol", 0))) == 12
    assert SETTINGS["keggdirected"].block_size == SETTINGS["protein"].block_size == 2000
    rates = [SETTINGS[name].sgd_rate for name in ("pol", "elevators", "bike", "protein", "keggdirected")]
    assert rates == [30, 20, 30, 20, 20]
    assert SETTINGS["houseelectric"].n_steps == 15 and SETTINGS["houseelectric"].learning_rate == 0.03


@pytest.mark.parametrize("small", [False, True])
def test_one_key_for_one_run(small: bool) -> None:
    everything = {item for name in STUDIES for item in items(name, small=small, n_splits=3)}
    assert len({item.key for item in everything}) == len(everything)
    assert Run("pol").key == "pol-0_cg_pathwise_warm"
    assert Run("bike", 2, "ap", warm=False, budget=10.0, n_probes=8).key == "bike-2_ap_pathwise_cold_10epochs_8probes"


def test_solvers_have_the_papers_options() -> None:
    assert Run("protein", solver="ap").make_solver().block_size == 2000
    sgd = Run("pol", solver="sgd").make_solver()
    assert (sgd.batch_size, sgd.learning_rate, sgd.momentum) == (500, 30.0, 0.9)
    assert Run("pol").make_solver().preconditioner_rank == 100
    assert exact("pol", 0).make_solver().name == "cholesky"


def test_splits_are_read() -> None:
    assert splits("0-2,5") == [0, 1, 2, 5]
    for bad in ("x", "3-1", "10", ""):
        with pytest.raises(Exception, match="splits"):
            splits(bad)


def test_a_store_keeps_whole_records_only(tmp_path: Path) -> None:
    store = Store(tmp_path)
    item = Start("toy-large")
    assert store.get(item) is None
    store.put(item, {"run": {"kind": "start"}, "theta": [1.0, 2.0]})
    store.path(item).with_name("toy-large-1_start.json.tmp").write_text('{"run": {"ki')  # a kill while writing
    assert [record["theta"] for record in store.records("start")] == [[1.0, 2.0]]
    assert list(store.records()) == []


def test_what_is_done_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*ONE, "--store", str(tmp_path)]
    assert main([*command, "--time-limit", "0"]) == 3
    assert not list(tmp_path.glob("*.json"))
    assert main(command) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert {path.stem for path in before} == {
        f"{name}-0_{cell}" for name in ("toy-quiet", "toy-noisy") for cell in ("exact", "cg_pathwise_warm")
    }
    capsys.readouterr()
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")} == before
    assert capsys.readouterr().out == "all done\n"
    assert main([*command, "--list"]) == 0
    assert capsys.readouterr().out.count("LLH") == 4
    record = json.loads((tmp_path / "toy-quiet-0_cg_pathwise_warm.json").read_text())
    assert record["steps"] == len(record["history"]["noise_scale"]) == 20 and record["converged"]
    assert record["epochs"] == pytest.approx(sum(record["history"]["epochs"]), rel=1e-5)
    assert record["machine"]["torch"] and record["run"]["settings"]["rank"] == 20
    truth = json.loads((tmp_path / "toy-quiet-0_exact.json").read_text())
    assert abs(record["test_exact"]["llh"] - truth["test"]["llh"]) < 0.05


@pytest.mark.usefixtures("smaller")
def test_a_capped_run_is_a_lower_bound_and_can_be_gone_on_with(tmp_path: Path) -> None:
    command = [*ONE, "--store", str(tmp_path)]
    assert main([*command, "--cap", "0"]) == 0
    path = tmp_path / "toy-noisy-0_cg_pathwise_warm.json"
    cut = json.loads(path.read_text())
    assert (cut["outcome"], cut["steps"]) == ("cut", 1) and "test" not in cut
    assert main([*command, "--cap", "0"]) == 0  # no larger cap: nothing to do
    assert json.loads(path.read_text()) == cut
    assert main([*command, "--cap", "1000"]) == 0
    whole = json.loads(path.read_text())
    assert whole["outcome"] == "finished" and not list((tmp_path / "unfinished").iterdir())
    assert main([*ONE, "--store", str(tmp_path / "other")]) == 0
    other = json.loads((tmp_path / "other" / path.name).read_text())
    assert whole["history"]["length_scales"] == other["history"]["length_scales"] and whole["theta"] == other["theta"]


@pytest.mark.usefixtures("smaller")
def test_a_shared_device_is_recorded(tmp_path: Path) -> None:
    assert main([*ONE, "--store", str(tmp_path), "--cap", "0", "--sharing", "3"]) == 0
    record = json.loads((tmp_path / "toy-noisy-0_cg_pathwise_warm.json").read_text())
    alone = record["machine"]["device"].removesuffix(", shared by 3")
    assert record["machine"]["device"] == f"{alone}, shared by 3"
    assert main([*ONE, "--store", str(tmp_path)]) == 0  # goes on alone
    record = json.loads((tmp_path / "toy-noisy-0_cg_pathwise_warm.json").read_text())
    assert record["machine"]["device"] == f"{alone}, shared by 3; {alone}"
    assert not list((tmp_path / "unfinished").iterdir())


@pytest.mark.usefixtures("smaller")
def test_other_settings_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [*ONE, "--store", str(tmp_path)]
    assert main([*command, "--cap", "0"]) == 0  # leaves checkpoints behind, too
    for name in ("toy-quiet", "toy-noisy"):
        monkeypatch.setitem(SETTINGS, name, replace(SETTINGS[name], n_steps=2, rank=10))
    assert main([*command, "--cap", "0"]) == 0
    assert main(command) == 0
    record = json.loads((tmp_path / "toy-noisy-0_cg_pathwise_warm.json").read_text())
    assert (record["steps"], record["run"]["settings"]["rank"]) == (2, 10)
    assert record["seed"] == 0 and record["plan"]["solver"]["options"]["preconditioner_rank"] == 10


def test_one_failure_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from experiments import run as runner

    def execute(item: Item, place: object) -> dict[str, object]:
        if item.dataset == "toy-quiet":
            raise MemoryError("too large")
        return {"run": {"kind": "start"}, "outcome": "finished"}

    monkeypatch.setattr(runner, "execute", execute)
    assert main([*ONE, "--store", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert shown.count("failed: MemoryError: too large") == 2 and shown.count("done") == 2 and "2 of 4 left" in shown


def test_a_step_that_fails_is_not_a_whole_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warmgp.training import loop as training

    step = training.take_step

    def fails(problem: object, options: object, state: TrainingState, *rest: object, **more: object) -> TrainingState:
        if state.step == 3:
            raise FloatingPointError("the gradient at step 3 is not finite")
        return step(problem, options, state, *rest, **more)

    monkeypatch.setattr(training, "take_step", fails)
    assert main([*ONE, "--store", str(tmp_path)]) in (0, 1)  # exact training has no samples to fall back on: it raises
    record = json.loads((tmp_path / "toy-noisy-0_cg_pathwise_warm.json").read_text())
    assert (record["outcome"], record["steps"]) == ("failed", 3) and "not finite" in record["why"]


@pytest.mark.whole
def test_a_kill_loses_no_record_and_the_run_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle of a study; the same command then ends where an uninterrupted one does."""
    arguments = ["table1", "--small", "--solvers", "cg", "--estimators", "pathwise", "--device", "cpu"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = begin(quietly, [*arguments, "--store", str(killed)])
    while process.is_alive() and not list(killed.glob("*.json")):
        time.sleep(0.01)
    time.sleep(0.2)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
    for path in killed.glob("*.json"):
        json.loads(path.read_text())
    assert main([*arguments, "--store", str(killed)]) == 0
    assert main([*arguments, "--store", str(whole)]) == 0
    names = sorted(path.name for path in whole.glob("*.json"))
    assert names == sorted(path.name for path in killed.glob("*.json")) and len(names) == 6
    for name in names:
        one, other = (json.loads((folder / name).read_text()) for folder in (killed, whole))
        assert one["theta"] == other["theta"], name


def test_ctrl_c_records_nothing_and_the_run_goes_on(tmp_path: Path) -> None:
    arguments = ["budgets", "--small", "--solvers", "ap", "--no-warm", "--budgets", "50", "--device", "cpu"]
    process = begin(quietly, [*arguments, "--store", str(tmp_path)])
    while not list((tmp_path / "unfinished").glob("*.safetensors")):
        assert process.is_alive()
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert all(json.loads(path.read_text())["steps"] == 20 for path in tmp_path.glob("*.json"))
    assert list((tmp_path / "unfinished").glob("*.safetensors"))


def test_what_is_not_at_hand_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is not left to do: a loop until nothing is left would not end."""
    assert main(["large", "--datasets", "song", "--store", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "skipped: song is not at hand" in shown and "all done, 7 skipped" in shown
    (tmp_path / "uci").mkdir()
    for name in ("pol", "terrain"):
        study = "large" if name == "terrain" else "table1"
        assert main([study, "--datasets", name, "--data", str(tmp_path / "uci"), "--store", str(tmp_path)]) == 0
        assert "skipped: " in capsys.readouterr().out


def test_the_list_tells_other_settings_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("pol")
    settings = {**describe(run), "n_probes": 3}
    Store(tmp_path).put(run, {"run": settings, "outcome": "finished"})
    assert main(["table1", "--datasets", "pol", "--store", str(tmp_path), "--list"]) == 0
    assert f"{run.key:<48} of other settings" in capsys.readouterr().out


def test_a_large_set_asks_for_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from experiments.execute import Place
    from experiments.run import work

    place = Place("cpu", None, Store(tmp_path))
    assert work([Run("toy-large", solver="ap", budget=10.0)], place) == 3
    assert "run toy-large-0_start first" in capsys.readouterr().out


def test_the_runner_refuses_nonsense(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, message in (
        (["table9"], "invalid choice"),
        (["table1", "--datasets", "pol", "nosuch"], "unknown datasets nosuch"),
        (["table1", "--datasets", "houseelectric"], "nothing matches"),
        (["table1", "--splits", "12"], "splits go from 0 to 9"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--store", str(tmp_path)])
        assert stopped.value.code == 2 and message in capsys.readouterr().err
