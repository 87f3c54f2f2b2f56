"""Bars that show where training is: step, noise, residuals, epochs used, time left."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Self

from tqdm.auto import tqdm

from warmgp.training.state import Callback, StepRecord, TrainingState


class TrainingBar:
    """Shows the steps of a training: a callback for :func:`warmgp.train`, and a context manager that closes the bar."""

    def __init__(self, n_steps: int, title: str = "training", done: int = 0) -> None:
        self._bar = tqdm(total=n_steps, desc=title, unit="step", initial=done)
        self._epochs = 0.0

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        self._bar.set_postfix_str(self._told(record), refresh=False)
        self._bar.update()

    def _told(self, record: StepRecord) -> str:
        self._epochs += record.epochs
        return (
            f"noise {record.noise_scale:.4g}, residuals {record.residual_mean:.2g}/{record.residual_probes:.2g}, "
            f"{self._epochs:.0f} epochs"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


class StartBar(TrainingBar):
    """Shows a start on part of the data: one bar over its phases, of which each has as many steps as it may take.

    A phase that ends sooner leaves the rest of its share at once, and one that goes on longer stays at the end of it.
    """

    def __init__(self, phases: Mapping[str, int], title: str = "initialising") -> None:
        super().__init__(sum(phases.values()), title)
        ends = accumulate(phases.values())
        self._shares = {phase: (end - steps, end) for (phase, steps), end in zip(phases.items(), ends, strict=True)}

    def of(self, *phases: str) -> Callback:
        """Returns the callback that shows a phase, or several in turn, of which each begins with a step 0.

        The share of a phase begins where those before it should have ended.
        """
        coming, (phase, first, last) = iter(phases), ("", 0, 0)

        def show(record: StepRecord, _: TrainingState) -> None:
            nonlocal phase, first, last
            if record.step == 0 and (name := next(coming, None)):
                phase, (first, last) = name, self._shares[name]
            self._bar.set_postfix_str(f"{phase}, noise {record.noise_scale:.4g}", refresh=False)
            self._bar.update(max(0, min(last, max(first, int(self._bar.n)) + 1) - int(self._bar.n)))

        return show
