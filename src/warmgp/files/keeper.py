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
from warmgp.processes import Team
from warmgp.training.state import StepRecord, TrainingState


class CheckpointKeeper:
    """Saves every so many steps, and once more at the end: a callback for :func:`warmgp.training.loop.train`.

    The random generator's state is taken right after each step, together with the training state: what is written is
    always of one moment, even when a later step was cut in the middle.

    It is a context manager: the file is claimed for as long as that is open, so that no two trainings write over each
    other; leaving it writes the latest whole step.

    Of several processes each has a keeper, and each has to call it: they gather the rows of all at the steps that are
    written, and rank 0, whose keeper alone is opened, writes. After an error nothing more is gathered, since not all of
    them may be there: the file then has the last step that was due.

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
    team : Team, optional
        The processes that train together, if there are several.
    """

    everywhere = True  # a callback of every process, not of rank 0 alone

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int,
        fingerprint: str,
        made_from: Mark,
        generator: torch.Generator,
        team: Team | None = None,
    ) -> None:
        self.path = Path(path)
        self.every = every
        self.fingerprint = fingerprint
        self.made_from = made_from
        self.generator = generator
        self.team = team if team is not None and team.size > 1 else None
        self._claim = Claim(path)
        self._latest: tuple[TrainingState, Tensor] | None = None  # of this process
        self._ready: tuple[TrainingState, Tensor] | None = None  # with all rows, and not written yet
        self._plan: Plan | None = None
        self._written = -1
        self._rows = 0

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
        return self.read(plan, shape)

    def read(self, plan: Plan, shape: tuple[int, int]) -> tuple[TrainingState, Plan]:
        """Returns what :meth:`resume` does where there is a file, which this process need not have claimed."""
        state, random, plan = read_checkpoint(self.path, self.fingerprint, plan, shape, self.made_from, self.team)
        self.generator.set_state(random)
        self._written = state.step
        return state, plan

    def keep(self, state: TrainingState, plan: Plan, n: int) -> None:
        """Begins at this state of a training of n rows; writes it unless it was read from the file."""
        self._plan, self._rows = plan, n
        self._note(state)
        self._write()

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        if self._latest is not None and not self._latest[0].history and self._plan is not None:
            check_dtypes(self._plan.solver.pack(state.solver_state)[0])  # or raise now, not when it is time to write
            self._plan.gradient.pack(state.draw)
        self._note(state)
        if state.step % self.every == 0:
            self._write()

    def gather(self) -> None:
        """Makes the latest whole step what :meth:`flush` writes: of several processes all have to call it."""
        if self._latest is None or self._plan is None or self._latest[0].step == self._written:
            return
        (state, random), gradient, team = self._latest, self._plan.gradient, self.team
        if team is not None:
            state = state.by_rows(gradient, lambda own: team.gather_to_first(own, self._rows))
        self._ready = state, random

    def flush(self) -> None:
        """Writes the latest whole step that is there with all rows, unless it is written already."""
        if self._ready is None or self._plan is None:
            return
        state, random = self._ready
        if state.step != self._written:
            write_checkpoint(self.path, state, random, self._plan, self.fingerprint, self.made_from, self._claim)
            self._written = state.step

    def _note(self, state: TrainingState) -> None:
        """Takes a state as the latest one, with the generator's state of this moment."""
        self._latest = state, self.generator.get_state()
        if self.team is None:
            self._ready = self._latest

    def _write(self) -> None:
        """Writes the latest whole step, on rank 0; an error of it is raised on every rank."""
        self.gather()
        if self.team is None:
            self.flush()
        else:
            self.team.from_first(self.flush)
            self._ready, self._written = None, self._latest[0].step if self._latest else -1
