"""A fit by several processes: what rank 0 decides for all, and what the others keep to themselves."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar

import torch

from warmgp.files.keeper import CheckpointKeeper
from warmgp.planning.plan import Plan
from warmgp.processes import Team, current_team
from warmgp.training.state import Callback, StepRecord, TrainingState

Made = TypeVar("Made")

logger = logging.getLogger("warmgp")


class Together:
    """Holds the team of a fit, or none: rank 0 plans, chooses, starts, writes and speaks; all of them train."""

    def __init__(self, device: object) -> None:
        self.team: Team | None = current_team()
        if self.team is not None and self.team.size > 1 and ":" in str(device):
            raise ValueError(
                f'device={str(device)!r} would put every process on one GPU: say device="cuda", and each takes its own'
            )

    @property
    def first(self) -> bool:
        """Whether this process decides, writes and speaks."""
        return self.team is None or self.team.first

    def decided(self, make: Callable[[], Made]) -> Made:
        """Returns what rank 0 makes."""
        return make() if self.team is None else self.team.from_first(make)

    def check_same(self, marks: Mapping[str, str], **others: object) -> None:
        """Raises, by name, where a process has another version, other data or other settings than rank 0; ``others``
        are those that no mark has."""
        from warmgp import __version__  # which is there once the package is loaded

        if self.team is not None:
            more = [(name, str(value)) for name, value in others.items()]
            self.team.check_same([("version of warmgp", __version__), *more, *marks.items()])

    def resumed(
        self,
        keeper: CheckpointKeeper,
        plan: Plan,
        shape: tuple[int, int],
        stack: contextlib.ExitStack,
    ) -> tuple[TrainingState | None, Plan]:
        """Returns state and plan of the checkpoint, and sets the generator; (None, plan) where there is none.

        Rank 0 claims the file until the stack is closed; the others read it, too, and each keeps its own rows: all of
        them have to see it. An error of one is raised by all.
        """
        mine: list[Any] = [None, plan]

        def by_first() -> bool:
            stack.enter_context(keeper)
            mine[:] = keeper.resume(plan, shape)
            return mine[0] is not None

        def by_others() -> None:
            if not self.first:
                mine[:] = keeper.read(plan, shape)

        if self.decided(by_first) and self.team is not None:
            self.team.every_made(by_others)
        return mine[0], mine[1]

    def started(self, make: Callable[[], TrainingState], generator: torch.Generator) -> TrainingState:
        """Returns the state that rank 0 starts from, and leaves the generator where rank 0 has it."""
        if self.team is None:
            return make()
        state, random = self.team.from_first(lambda: (make(), generator.get_state()))
        generator.set_state(random)
        return state

    @contextlib.contextmanager
    def speaking(self) -> Iterator[Together]:
        """Keeps warnings and logs of all but rank 0 to themselves within its block, which is given this object."""
        if self.first:
            yield self
            return
        level = logger.level
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logger.setLevel(logging.CRITICAL)
            try:
                yield self
            finally:
                logger.setLevel(level)

    def kept(
        self, keeper: CheckpointKeeper, state: TrainingState, plan: Plan, n: int, callbacks: list[Callback]
    ) -> None:
        """Writes the first checkpoint of n rows, and puts its keeper before the other callbacks, on every process."""
        keeper.keep(state, plan, n)
        callbacks.insert(0, keeper)

    def callbacks(self, asked: Sequence[Callback], stack: contextlib.ExitStack) -> list[Callback]:
        """Returns the callbacks of this process: rank 0 has them all, and Ctrl-C; the others those that are for all.

        Ctrl-C reaches every process, each at another moment. Rank 0 raises it after the step, for all of them.
        """
        if self.team is None:
            return list(asked)
        interrupt = stack.enter_context(_interrupts())
        return [*asked, interrupt] if self.first else [one for one in asked if getattr(one, "everywhere", False)]


@contextlib.contextmanager
def _interrupts() -> Iterator[Callback]:
    """Gives a callback that raises KeyboardInterrupt after a step in which Ctrl-C was pressed. A second Ctrl-C ends the
    process at once."""
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:  # the process ends here: another path than that of the others would leave them waiting
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        pressed = True

    def callback(record: StepRecord, state: TrainingState) -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield callback
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield callback
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed and sys.exc_info()[0] is None:  # in the last solve, after which no callback came
            signal.raise_signal(signal.SIGINT)
