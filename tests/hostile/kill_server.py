"""Children that train and write until they are killed: a process that has imported everything once, and forks.

It reads a job of JSON a line from its input and answers with the exit code of the child.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warmgp import ConjugateGradients, CSVLog, GPRegressor, Hyperparameters, JSONLines, StochasticGradientDescent
from warmgp.cli.table_writer import TableWriter
from warmgp.cli.termination import Terminated, terminated
from warmgp.files.format import FileError

SOLVERS: dict[str, dict[str, Any]] = {
    "pivots": {"solver": ConjugateGradients(10, pivot_every=3)},
    "factor": {"solver": ConjugateGradients(0, factor_after=4)},
    "neighbours": {"solver": ConjugateGradients(5, neighbours=6)},
    "blocks": {"solver": "ap", "gradient": "standard"},
    "cold": {"solver": "cg", "solver_warm_start": False},
    "rates": {"solver": StochasticGradientDescent(50), "max_epochs": 5},
    "exact": {"solver": "cholesky"},
    "update": {"solver": "rap", "trend": "linear"},
    "exact update": {"solver": "cholesky"},
}
FULL, REFUSED = 28, 13


def train(folder: Path, kind: str, every: int) -> None:
    """A fit, or an update, with a checkpoint and logs, a model, and a table of predictions."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (150, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=150)
    settings: dict[str, Any] = {"n_steps": 30, "n_features": 50, "n_probes": 4, "random_state": 0, **SOLVERS[kind]}
    logs = [CSVLog(folder / "log.csv"), JSONLines(folder / "log.jsonl")]
    kept = {"checkpoint": folder / "checkpoint", "checkpoint_every": every, "callbacks": logs}
    if kind.endswith("update"):
        start = Hyperparameters(0.3, 1.0, [1.0, 1.0])
        model = GPRegressor(**settings | {"kernel": "matern32", "init": start, "n_steps": 0}).fit(X[:120], y[:120])
        model.set_params(**kept).update(X[120:], y[120:], n_steps=settings["n_steps"])
    else:
        model = GPRegressor(**kept, **settings).fit(X, y)
    model.save(folder / "model")
    with TableWriter(folder / "predictions.csv") as writer:
        for rows in (slice(0, 75), slice(75, 150)):
            writer.write(dict(zip(("mean", "std"), model.predict(X[rows], return_std=True), strict=True)))


def kill_inside_writes(number: int, which: int) -> None:
    """Send this process a signal before or after the system call of that number among those that make a file whole."""
    calls = 0

    def watched(module: Any, name: str) -> None:
        call = getattr(module, name)

        def one(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == which:
                os.kill(os.getpid(), number)
            done = call(*arguments, **options)
            calls += 1
            if calls == which:
                os.kill(os.getpid(), number)
            return done

        setattr(module, name, one)

    watched(os, "fsync")
    watched(os, "link")
    watched(Path, "replace")
    watched(Path, "unlink")
    watched(Path, "open")


def child(job: dict[str, Any]) -> int:
    """What a child does; its exit code."""
    if job.get("limit"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], resource.RLIM_INFINITY))
    with terminated():
        try:
            if job.get("which"):
                kill_inside_writes(job["signal"], job["which"])
            train(Path(job["folder"]), job["kind"], job["every"])
        except Terminated:
            return 143
        except FileError:
            return 2
        except PermissionError:
            return REFUSED
        except OSError as error:
            return FULL if f"cannot write {job['folder']}" in str(error) and "make room" in str(error) else 1
    return 0


def run(job: dict[str, Any]) -> int:
    """Fork a child, kill it after a while, and wait for its end."""
    number = os.fork()
    if number == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = child(job)
        os._exit(code)
    if job.get("delay") is not None:
        time.sleep(job["delay"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, job["signal"])
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        began = time.perf_counter()
        code = run(json.loads(line))
        sys.stdout.write(json.dumps({"code": code, "seconds": time.perf_counter() - began}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
