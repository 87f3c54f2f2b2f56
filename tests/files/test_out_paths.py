"""Where commands and models may write: plain files, through links, and never in the place of anything else."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli_tools import FAST, refused, run
from processes import finish, warmgp
from warmgp import CSVLog, GPRegressor, JSONLines
from warmgp.cli.table_writer import TableWriter
from warmgp.files.format import read
from warmgp.training import loop as training

API = {"n_steps": 3, "n_features": 40, "n_probes": 4, "random_state": 0, "solver": "cg"}


def data() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    return X, np.sin(2 * X[:, 0])


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor(**API).fit(*data())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_table(path: Path) -> None:
    with TableWriter(path) as writer:
        writer.write({"mean": np.arange(100_000.0)})


def log_all(kind: type[CSVLog] | type[JSONLines]) -> Callable[[Path], object]:
    return lambda path: GPRegressor(callbacks=[kind(path)], **{**API, "n_steps": 20}).fit(*data())


WRITERS: dict[str, Callable[[GPRegressor, Path], object]] = {
    "model": lambda model, path: model.save(path),
    "table": lambda _, path: write_table(path),
    "checkpoint": lambda _, path: GPRegressor(checkpoint=path, **API).fit(*data()),
    "csv log": lambda _, path: log_all(CSVLog)(path),
    "json log": lambda _, path: log_all(JSONLines)(path),
}


# -- what is no file -------------------------------------------------------------------------------------------------
def special(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"{kind}.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "circle":
        path.symlink_to(path)
    return path


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "circle"])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_plain_file_is_refused_and_stays(kind: str, writer: str, model: GPRegressor, tmp_path: Path) -> None:
    path = special(tmp_path, kind)
    before = os.lstat(path)
    with pytest.raises(OSError, match=rf"cannot write .*{kind}\.csv: .*give"):
        WRITERS[writer](model, path)
    assert os.path.samestat(os.lstat(path), before) and names(tmp_path) == [path.name]


@pytest.mark.parametrize("option", ["--out", "--checkpoint"])
def test_commands_refuse_it_before_they_work(
    option: str, cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GPRegressor, "fit", lambda *_: pytest.fail("long work"))
    pipe = special(tmp_path, "pipe")
    paths = {"--out": tmp_path / "m", "--checkpoint": tmp_path / "c", option: pipe}
    fit = ["fit", cli_folder / "numbers.csv", "--target", "y", *FAST, *(x for pair in paths.items() for x in pair)]
    refused(capsys, fit, [str(pipe), "it is a pipe"])
    refused(capsys, ["demo", "--out", pipe], [str(pipe), "it is a pipe"])
    predict = ["predict", cli_folder / "numbers.model", cli_folder / "numbers.csv", "--out"]
    refused(capsys, [*predict, pipe], [str(pipe), "it is a pipe"])
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_is_refused(cli_folder: Path, tmp_path: Path) -> None:
    """Also where it is a file: what the shell has opened would be replaced under its hands."""
    link = tmp_path / "out.csv"
    link.symlink_to("/dev/stdout")
    predict = ["predict", cli_folder / "numbers.model", cli_folder / "numbers.csv", "--quiet", "--out", link]
    assert finish(warmgp, tmp_path / "shell", *predict) == 2
    told = (tmp_path / "shell").read_text()  # and nothing but that
    assert link.is_symlink() and told.count("\n") == 1 and "standard output of this process" in told


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_is_written_through(there: bool, writer: str, model: GPRegressor, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target.csv", tmp_path / "link.csv"
    link.symlink_to(target)
    if there:
        WRITERS[writer](model, target)
    WRITERS[writer](model, link)
    assert link.is_symlink() and not target.is_symlink() and target.stat().st_size > 0
    assert names(tmp_path) == ["far", "link.csv"] and names(tmp_path / "far") == ["target.csv"]


# -- temporary files -------------------------------------------------------------------------------------------------
def test_nothing_can_wait_at_a_temporary_name(
    model: GPRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is not to be guessed, and it is made exclusively: a link that waits there is not followed."""
    used = []
    whole = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: (used.append(self.name), whole(self, target))[1])
    for _ in range(2):
        write_table(tmp_path / "t.csv")
        model.save(tmp_path / "m")
    assert len(set(used)) == 4 and not any(str(os.getpid()) in name for name in used)
    (tmp_path / "victim").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda *_: "known")
    (tmp_path / ".warmgp-known.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        model.save(tmp_path / "m")
    assert (tmp_path / "victim").read_text() == "mine"


def test_the_mask_of_the_process_is_kept_and_never_changed(
    model: GPRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking for it would mean to set it, for all threads."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda _: pytest.fail("all threads see it"))
            model.save(tmp_path / "m")
            write_table(tmp_path / "t.csv")
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o640
        assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o640
    finally:
        os.umask(before)


# -- full disks ------------------------------------------------------------------------------------------------------
@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("writer", [*WRITERS, "gz", "parquet", "npz"])
def test_a_full_disk_is_told_by_name_and_nothing_is_left(writer: str, model: GPRegressor, tmp_path: Path) -> None:
    path = tmp_path / {"gz": "f.csv.gz", "parquet": "f.parquet", "npz": "f.npz"}.get(writer, "f.csv")
    write = WRITERS.get(writer, WRITERS["table"])
    with largest_file(3000), pytest.raises(OSError, match=rf"cannot write {path} .*make room") as caught:
        write(model, path)
    assert caught.value.errno == errno.EFBIG
    left = names(tmp_path)
    if "log" in writer:  # what was logged before stays, in whole lines
        assert left == ["f.csv"] and path.read_bytes().endswith(b"\n") and path.stat().st_size > 2000
        logs = {"csv log": CSVLog, "json log": JSONLines}
        GPRegressor(callbacks=[logs[writer](path)], **API).fit(*data())
    else:
        assert left == []


def test_a_full_disk_keeps_the_file_before(model: GPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    with largest_file(3000), pytest.raises(OSError, match="as it was"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before and names(tmp_path) == ["m"]


# -- SIGTERM ---------------------------------------------------------------------------------------------------------
def test_a_terminated_command_leaves_no_temporary_file(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(signal.SIGTERM)

    def terminated(*_: object, **__: object) -> None:
        assert len(names(tmp_path)) == 1
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        pytest.fail("it went on")

    if handler is signal.SIG_DFL:  # where a command does not handle it, this process must not end
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        handler = signal.SIG_IGN
    monkeypatch.setattr(GPRegressor, "predict", terminated)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    code, _, told = run(
        capsys,
        "predict",
        cli_folder / "numbers.model",
        cli_folder / "numbers.csv",
        "--out",
        tmp_path / "p.csv",
        "--quiet",
    )
    assert code == 143 and told == "error: terminated\n" and names(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_terminated_fit_keeps_the_steps_done(
    cli_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fit = ["fit", cli_folder / "numbers.csv", "--target", "y", "--out", tmp_path / "m", "--solver", "cg", *FAST]
    fit += ["--checkpoint", tmp_path / "c"]
    step = training.take_step

    def third(problem: object, options: object, state: training.TrainingState, *a: object, **k: object) -> object:
        if state.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(problem, options, state, *a, **k)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(training, "take_step", third)
        assert run(capsys, *fit)[0] == 143
    assert names(tmp_path) == ["c"] and read(tmp_path / "c", "checkpoint")[1]["step"] == 3
    assert run(capsys, *fit, "--resume")[0] == 0


def test_commands_run_in_any_thread(cli_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Signals can be handled in the main one only."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(capsys, "info", cli_folder / "numbers.model")[0]))
    thread.start()
    thread.join()
    assert codes == [0]


def test_names_as_long_as_the_system_allows(model: GPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / ("m" * 255))
    with pytest.raises(OSError, match="name too long, give another name"):
        model.save(tmp_path / ("m" * 256))


def test_a_damaged_parquet_writer_says_nothing_afterwards(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(RuntimeError, match="stop"), TableWriter(tmp_path / "t.parquet") as writer:
        writer.write({"mean": np.arange(5.0)})
        raise RuntimeError("stop")
    assert names(tmp_path) == []
    write_table(tmp_path / "t.parquet")
    assert len(pd.read_parquet(tmp_path / "t.parquet")) == 100_000
