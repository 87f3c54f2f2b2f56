"""A bar that shows where training is: step, noise, residuals, epochs used, time left."""

from __future__ import annotations

from typing import Self

from tqdm.auto import tqdm

from warmgp.training import StepRecord, TrainingState


class ProgressBar:
    """A callback for :func:`warmgp.training.train`; a context manager that closes the bar."""

    def __init__(self, n_steps: int, title: str = "training", done: int = 0) -> None:
        self._bar = tqdm(total=n_steps, desc=title, unit="step", initial=done)
        self._epochs = 0.0

    def __call__(self, record: StepRecord, state: TrainingState) -> None:
        self._epochs += record.epochs
        self._bar.set_postfix_str(
            f"noise {record.noise_scale:.4g}, residuals {record.residual_mean:.2g}/{record.residual_probes:.2g}, "
            f"{self._epochs:.0f} epochs",
            refresh=False,
        )
        self._bar.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
