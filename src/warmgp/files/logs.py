"""Logs of a training: callbacks that write every step to a file or to TensorBoard.

A log is the log of one training: step 0 begins it anew, and a training that goes on from a checkpoint goes on with it,
taking the place of the steps that were logged after the checkpoint was written, and adding those that a kill between
checkpoint and log has left out. So each step stands there once, however often training was killed.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmgp.files.atomic import full_disk
from warmgp.files.paths import check_writable
from warmgp.training.state import StepRecord, TrainingState


class _LineLog(ABC):
    """Writes one line of text for each step, at once: ``tail -f`` shows training, and a kill loses nothing.

    Parameters
    ----------
    path : path
        The log. A file that is there already must be such a log.
    """

    _begins: bytes
    """The bytes with which the file begins, by which it is known."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_writable(self.path)
        self._whole_lines()  # or refuse at once what is no log
        self._next: int | None = None

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        if record.step != self._next:
            self._catch_up((*state.history[:-1], record) if record.step else (record,))
        else:
            self._append(self._line(record))
        self._next = record.step + 1

    def resumed(self, state: TrainingState) -> None:
        """Brings the log to where the training goes on."""
        self._catch_up(state.history)
        self._next = state.step

    def _catch_up(self, history: Sequence[StepRecord]) -> None:
        """Makes the file the log of these records: cuts it before the last one's step, and adds those it lacks."""
        last = history[-1]
        lines = self._whole_lines() if last.step else []
        head = self._head(last)
        if lines and head and lines[0][0] != head.encode():
            raise ValueError(f"{self.path} is the log of another training, with other columns: give another path")
        kept = list(itertools.takewhile(lambda line: line[1] < last.step, lines))
        if self.path.exists():
            os.truncate(self.path, sum(len(line) for line, _ in kept))
        since = kept[-1][1] if kept else -1
        added = [self._line(record) for record in history if record.step > since]
        self._append(("" if kept else head) + "".join(added))

    def _append(self, text: str) -> None:
        """Writes a text at the end of the file, all of it or nothing."""
        whole = text.encode()
        with full_disk(self.path), self.path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                done = 0
                while done < len(whole):
                    done += file.write(whole[done:])
            except OSError:
                os.truncate(self.path, size)
                raise

    def _whole_lines(self) -> list[tuple[bytes, int]]:
        """Returns (line, its step) of every line but a last one that a kill has left incomplete."""
        found: list[tuple[bytes, int]] = []
        if self.path.exists():
            with self.path.open("rb") as file:
                for line in file:
                    try:
                        if not found and line[: len(self._begins)] != self._begins[: len(line)]:
                            raise ValueError("another heading")
                        if line.endswith(b"\n"):
                            found.append((line, self._step(line.decode(), len(found))))
                    except (ValueError, KeyError, TypeError) as error:
                        told = f"{self.path} is there, and is no log of a {type(self).__name__}: give another path"
                        raise ValueError(told) from error
        return found

    def _head(self, record: StepRecord) -> str:
        """Returns the heading of the file; "" for none."""
        return ""

    @abstractmethod
    def _line(self, record: StepRecord) -> str:
        """Returns the record as one line."""

    @abstractmethod
    def _step(self, line: str, number: int) -> int:
        """Returns the step of the line of that number, −1 for the heading; raises for what is not of this log."""


class JSONLines(_LineLog):
    """Logs every step's record to a file, one JSON object a line.

    Parameters
    ----------
    path : path
        The log. A file that is there already must be such a log.
    """

    _begins = b'{"step": '

    def _line(self, record: StepRecord) -> str:
        return json.dumps(dataclasses.asdict(record)) + "\n"

    def _step(self, line: str, number: int) -> int:
        return int(json.loads(line)["step"])


class CSVLog(_LineLog):
    """Logs every step's record to a CSV file, one row a step under a header.

    The columns are those of :class:`warmgp.StepRecord`, with one ``length_scale_j`` for each length scale, and ``rmse``
    and ``llh`` for the held-out metrics; what a step does not have is blank. Numbers read back to the same bits.

    Parameters
    ----------
    path : path
        The log. A file that is there already must be such a log.
    """

    _begins = b"step,noise_scale,"

    def _head(self, record: StepRecord) -> str:
        return _csv_line(_row(record))

    def _line(self, record: StepRecord) -> str:
        return _csv_line(_row(record).values())

    def _step(self, line: str, number: int) -> int:
        return int(line.split(",", 1)[0]) if number else -1


def _row(record: StepRecord) -> dict[str, Any]:
    """Returns a record as one flat row, by column."""
    row: dict[str, Any] = {}
    for name, value in dataclasses.asdict(record).items():
        if name == "length_scales":
            row |= {f"length_scale_{j}": length for j, length in enumerate(value)}
        elif name == "metrics":
            row |= {metric: value.get(metric) for metric in ("rmse", "llh")}
        else:
            row[name] = "; ".join(value) if name == "notes" else value
    return row


def _csv_line(cells: Any) -> str:
    """Returns the cells as one line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        " ".join(cell.split()) if isinstance(cell, str) else cell for cell in cells
    )
    return line.getvalue()


class TensorBoard:
    """Logs hyperparameters, work, residuals, times and held-out metrics of every step for TensorBoard.

    Needs the package tensorboard (``pip install tensorboard``); look at the log with ``tensorboard --logdir log_dir``.

    Parameters
    ----------
    log_dir : path
        The folder for the event files; made if missing.
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "TensorBoard needs the package tensorboard, which cannot be imported: pip install tensorboard"
            ) from error
        self.log_dir = Path(log_dir)
        self._writer: Any = None
        self._next: int | None = None

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        if record.step != self._next:
            self._begin(record.step)
        self._write(record)

    def resumed(self, state: TrainingState) -> None:
        """Logs the last step again, which a kill between checkpoint and log may have left out."""
        self._begin(state.history[-1].step)
        self._write(state.history[-1])

    def _begin(self, step: int) -> None:
        """Begins an event file: what was logged of this step and later ones before is no longer shown."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._writer = SummaryWriter(str(self.log_dir), purge_step=step)

    def _write(self, record: StepRecord) -> None:
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, record.step)
        self._writer.flush()
        self._next = record.step + 1

    def close(self) -> None:
        """Closes the event file. Every step is flushed as it comes, so that nothing is lost without it."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._next = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the open file, which copies and pickles of an estimator do not hold."""
        return {**vars(self), "_writer": None, "_next": None}


def _scalars(record: StepRecord) -> dict[str, float]:
    """Returns the numbers of a record, by TensorBoard's names: group/name."""
    scalars: dict[str, float] = {
        "hyperparameters/noise_scale": record.noise_scale,
        "hyperparameters/signal_scale": record.signal_scale,
        **{f"hyperparameters/length_scale_{j}": length for j, length in enumerate(record.length_scales)},
        "solver/iterations": record.iterations,
        "solver/epochs": record.epochs,
        "solver/residual_mean": record.residual_mean,
        "solver/residual_probes": record.residual_probes,
        "seconds/solver": record.solver_seconds,
        "seconds/step": record.step_seconds,
        **{f"held_out/{name}": value for name, value in record.metrics.items()},
    }
    if record.log_marginal_likelihood is not None:
        scalars["log_marginal_likelihood"] = record.log_marginal_likelihood
    return scalars
