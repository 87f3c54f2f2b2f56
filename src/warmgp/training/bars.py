"""Bars that show where training is: step, noise, residuals, epochs used, time left."""

from __future__ import annotations

from typing import Self

from tqdm.auto import tqdm

from warmgp.training.state import StepRecord, TrainingState


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
    """Shows a start on part of the data: one bar over the steps of all neighbourhoods, or of a sample and of the
    ``more`` steps that correct it; with no neighbourhood, over evaluations by near points."""

    def __init__(self, n_neighbourhoods: int, n_steps: int, more: int = 0, title: str = "initialising") -> None:
        super().__init__(n_neighbourhoods * n_steps + more, title)
        self._of, self._number = n_neighbourhoods, 0

    def _told(self, record: StepRecord) -> str:
        self._number += record.step == 0
        if self._of == 0 or (self._of == 1 and self._number > 1):
            return f"by near neighbours, noise {record.noise_scale:.4g}"
        if self._of == 0:
            return f"by climbs, noise {record.noise_scale:.4g}"
        if self._of == 1:
            return f"on a sample, noise {record.noise_scale:.4g}"
        return f"neighbourhood {self._number} of {self._of}, noise {record.noise_scale:.4g}"
