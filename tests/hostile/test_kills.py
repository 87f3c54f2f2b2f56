"""Processes that are killed at any moment, disks that fill up, folders that cannot be written.

What must hold: every file that is there is whole; a resume ends with the bits of the undisturbed run; logs have each
step once; who is asked to end (SIGTERM) leaves nothing temporary behind.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warmgp
from warmgp import GPRegressor
from warmgp.files.format import read

KINDS = ("pivots", "factor", "neighbours", "blocks", "cold", "rates", "exact", "update", "exact update")
FULL, REFUSED = 28, 13
FILES = {"checkpoint", "log.csv", "log.jsonl", "model", "predictions.csv"}
SIGNALS = (signal.SIGKILL, signal.SIGTERM)


class Server:
    """The process that forks those that are killed."""

    def __init__(self) -> None:
        paths = [str(Path(warmgp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        script = Path(__file__).with_name("kill_server.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, folder: Path, kind: str, every: int = 1, **how: Any) -> tuple[int, float]:
        """(exit code, seconds) of one child."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "kind": kind, "every": every, **how}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["code"], answer["seconds"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.process.stdin.close()  # type: ignore[union-attr]
    started.process.wait(10)


@pytest.fixture(scope="module")
def truth(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, float]]:
    """(what an undisturbed run leaves, its seconds) by kind, made when first asked for."""

    class Lazy(dict[str, tuple[Any, float]]):
        def __missing__(self, kind: str) -> tuple[Any, float]:
            folder = tmp_path_factory.mktemp(kind)
            code, seconds = server.run(folder, kind)
            assert code == 0
            self[kind] = outcome(folder), seconds
            return self[kind]

    return Lazy()


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves, without the times that it took."""
    assert {path.name for path in folder.iterdir()} == FILES
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for row in (*rows, *lines):
        del row["solver_seconds"], row["step_seconds"]
    steps = list(range(30))
    assert [int(row["step"]) for row in rows] == steps and [line["step"] for line in lines] == steps
    left: dict[str, Any] = {"csv": rows, "jsonl": lines, "table": (folder / "predictions.csv").read_bytes()}
    for kind in ("model", "checkpoint"):
        tensors, content = read(folder / kind, kind)
        left |= {f"{kind} {name}": tensor.numpy().tobytes() for name, tensor in tensors.items()}
        left[f"{kind} history"] = [{k: v for k, v in h.items() if "seconds" not in k} for h in content["history"]]
    return left


def check_whole(folder: Path, terminated: bool) -> None:
    """Nothing that has a name is damaged."""
    for path in folder.iterdir():
        if path.name.startswith(".warmgp-"):
            assert not terminated, f"{path.name} is left"
            path.unlink()
            continue
        assert path.name in FILES
        if path.name == "checkpoint":
            assert read(path, "checkpoint")[1]["step"] >= 0
        elif path.name == "model":
            assert GPRegressor.load(path).n_steps_ == 30
        elif path.name == "predictions.csv":
            assert len(path.read_text().splitlines()) == 151


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def attacked(server: Server, folder: Path, kind: str, truth: Any, every: int, hows: list[dict[str, Any]]) -> int:
    """Run again and again, each time killed in some way, and once undisturbed; how many were killed."""
    killed = 0
    for how in hows:
        code, _ = server.run(folder, kind, every, **how)
        before_it_began = code == -signal.SIGTERM  # nobody handles signals yet
        assert code in (0, -signal.SIGKILL, 143) or before_it_began, (code, kind, how)
        killed += code != 0
        check_whole(folder, terminated=code != -signal.SIGKILL)
    code, _ = server.run(folder, kind, every)
    assert code == 0, (kind, hows)
    found = outcome(folder)
    for name, expected in truth[kind][0].items():
        assert found[name] == expected, f"{name} of {kind} differs after {hows}"
    return killed


@pytest.mark.whole
def test_kills_at_random_times(
    server: Server, truth: Any, rng: np.random.Generator, scale: float, tmp_path: Path
) -> None:
    """120 signals, three to a training; more, and sooner, where the machine was busier when the truth was made."""
    killed = tried = 0
    trials, share = max(2, round(40 * scale)), 0.8
    while tried < trials or (killed < trials and tried < 5 * trials):
        kind, every = str(rng.choice(KINDS)), int(rng.choice([1, 1, 4]))
        longest = share * truth[kind][1]
        hows = [{"signal": int(rng.choice(SIGNALS)), "delay": float(rng.uniform(0, longest))} for _ in range(3)]
        before, tried = killed, tried + 1
        killed += attacked(server, fresh(tmp_path / "run"), kind, truth, every, hows)
        share *= 1.0 if killed > before else 0.5
    assert killed >= trials, "too few kills to show anything"


def test_kills_inside_writes(
    server: Server, truth: Any, rng: np.random.Generator, scale: float, tmp_path: Path
) -> None:
    """80 signals before or after a call that opens, syncs, links, renames or removes a file."""
    killed = 0
    trials = max(2, round(40 * scale))
    for _ in range(trials):
        kind = str(rng.choice(KINDS))
        hows = [{"signal": int(rng.choice(SIGNALS)), "which": int(rng.integers(1, 300))} for _ in range(2)]
        killed += attacked(server, fresh(tmp_path / "run"), kind, truth, 1, hows)
    assert killed >= trials


def test_files_that_grow_too_large(
    server: Server, truth: Any, rng: np.random.Generator, scale: float, tmp_path: Path
) -> None:
    """The limit on the size of a file is a full disk for each file on its own."""
    for _ in range(max(2, round(20 * scale))):
        kind, folder = str(rng.choice(KINDS)), fresh(tmp_path / "run")
        limit = int(rng.integers(100, 12_000))
        code, _ = server.run(folder, kind, limit=limit)
        assert code == FULL, (kind, limit)
        check_whole(folder, terminated=True)
        attacked(server, folder, kind, truth, 1, [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB in memory, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no permission to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def test_a_disk_that_is_full(
    server: Server, truth: Any, rng: np.random.Generator, scale: float, small_disk: Path
) -> None:
    for _ in range(max(1, round(15 * scale))):
        for path in small_disk.iterdir():
            path.unlink()
        kind = str(rng.choice(KINDS))
        taken = int(rng.integers(20, 60)) * 1024
        (small_disk / "other").write_bytes(b"x" * taken)
        code, _ = server.run(small_disk, kind)
        assert code in (0, FULL), (kind, taken)
        (small_disk / "other").unlink()
        check_whole(small_disk, terminated=True)
        remount(small_disk, "size=1m")
        attacked(server, small_disk, kind, truth, 1, [])
        for path in small_disk.iterdir():
            path.unlink()
        remount(small_disk, "size=64k")


def test_a_folder_that_cannot_be_written(server: Server, truth: Any, small_disk: Path) -> None:
    remount(small_disk, "size=1m")
    remount(small_disk, "ro")
    assert server.run(small_disk, "pivots")[0] == REFUSED
    remount(small_disk, "rw")
    code, _ = server.run(small_disk, "pivots", signal=int(signal.SIGKILL), which=100)
    assert code == -signal.SIGKILL
    remount(small_disk, "ro")
    assert server.run(small_disk, "pivots")[0] == REFUSED
    remount(small_disk, "rw")
    check_whole(small_disk, terminated=False)
    attacked(server, small_disk, "pivots", truth, 1, [])
