"""Keeping a training safe while it runs: a callback that writes checkpoints, and what a resume reads back."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from warmgp.paths import check_writable
from warmgp.persistence import FileError, read_checkpoint, write_checkpoint
from warmgp.planner import Plan
from warmgp.training_state import StepRecord, TrainingState


class CheckpointKeeper:
    """A callback for :func:`warmgp.training.train` that saves every so many steps, and once more at :meth:`flush`.

    The random generator's state is taken right after each step, together with the training state: what is written is
    always of one moment, even when a later step was cut in the middle.

    Parameters
    ----------
    path
        The checkpoint file.
    every : int
        Steps between two saves.
    mark : str
        Fingerprint of data and settings; a file with another one is refused.
    generator : torch.Generator
        The generator that training uses.
    """

    def __init__(self, path: str | os.PathLike[str], every: int, mark: str, generator: torch.Generator) -> None:
        self.path = Path(path)
        self.every = every
        self.mark = mark
        self.generator = generator
        self._latest: tuple[TrainingState, Tensor] | None = None
        self._plan: Plan | None = None
        self._written = -1

    def resume(self, plan: Plan) -> tuple[TrainingState | None, Plan]:
        """The saved state and plan, with the generator set to that moment; (None, plan) where there is no file."""
        if not self.path.exists():
            check_writable(self.path)
            return None, plan
        try:
            state, random, plan = read_checkpoint(self.path, self.mark, solver=plan.solver, device=plan.device)
        except (KeyError, TypeError) as error:
            raise FileError(f"the checkpoint {self.path} lacks {error}: delete it to start anew") from error
        self.generator.set_state(random)
        self._written = state.step
        return state, plan

    def keep(self, state: TrainingState, plan: Plan) -> None:
        """Begin at this state; writes it unless it was read from the file."""
        self._plan = plan
        self._latest = state, self.generator.get_state()
        self.flush()

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        self._latest = state, self.generator.get_state()
        if state.step % self.every == 0:
            self.flush()

    def flush(self) -> None:
        """Write the latest whole step, unless it is written already."""
        if self._latest is None or self._plan is None:
            return
        state, random = self._latest
        if state.step != self._written:
            write_checkpoint(self.path, state, random, self._plan, self.mark)
            self._written = state.step
