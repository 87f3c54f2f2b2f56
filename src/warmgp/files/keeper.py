"""The keeper of a training: a callback that writes checkpoints while it runs, and reads back what a resume needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from warmgp.files.atomic import Claim
from warmgp.files.checkpoint import Mark, read_checkpoint, write_checkpoint
from warmgp.files.format import check_dtypes
from warmgp.files.paths import check_writable
from warmgp.planning.planner import Plan
from warmgp.training.state import StepRecord, TrainingState


class CheckpointKeeper:
    """Saves every so many steps, and once more at the end: a callback for :func:`warmgp.training.loop.train`.

    The random generator's state is taken right after each step, together with the training state: what is written is
    always of one moment, even when a later step was cut in the middle.

    It is a context manager: the file is claimed for as long as that is open, so that no two trainings write over each
    other; leaving it writes the latest whole step.

    Parameters
    ----------
    path
        The checkpoint file.
    every : int
        Steps between two saves.
    fingerprint : str
        The fingerprint of data and settings; a file with another one is refused.
    made_from : Mark
        Data and settings by name, to say what differs.
    generator : torch.Generator
        The generator that training uses.
    """

    def __init__(
        self, path: str | os.PathLike[str], every: int, fingerprint: str, made_from: Mark, generator: torch.Generator
    ) -> None:
        self.path = Path(path)
        self.every = every
        self.fingerprint = fingerprint
        self.made_from = made_from
        self.generator = generator
        self._claim = Claim(path)
        self._latest: tuple[TrainingState, Tensor] | None = None
        self._plan: Plan | None = None
        self._written = -1

    def __enter__(self) -> Self:
        check_writable(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            self._claim.release()

    def resume(self, plan: Plan, shape: tuple[int, int]) -> tuple[TrainingState | None, Plan]:
        """Returns the saved state and plan, and sets the generator to that moment; (None, plan) where there is no file.

        ``shape`` is that of the inputs, (n, d).
        """
        if not self._claim.take():
            return None, plan
        state, random, plan = read_checkpoint(self.path, self.fingerprint, plan, shape, self.made_from)
        self.generator.set_state(random)
        self._written = state.step
        return state, plan

    def keep(self, state: TrainingState, plan: Plan) -> None:
        """Begins at this state; writes it unless it was read from the file."""
        self._plan = plan
        self._latest = state, self.generator.get_state()
        self.flush()

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        if self._latest is not None and not self._latest[0].history and self._plan is not None:
            check_dtypes(self._plan.solver.pack(state.solver_state)[0])  # or raise now, not when it is time to write
            self._plan.gradient.pack(state.draw)
        self._latest = state, self.generator.get_state()
        if state.step % self.every == 0:
            self.flush()

    def flush(self) -> None:
        """Writes the latest whole step, unless it is written already."""
        if self._latest is None or self._plan is None:
            return
        state, random = self._latest
        if state.step != self._written:
            write_checkpoint(self.path, state, random, self._plan, self.fingerprint, self.made_from, self._claim)
            self._written = state.step
