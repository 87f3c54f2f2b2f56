"""A fitted estimator in a file, and in a pickle."""

from __future__ import annotations

import os
from typing import Any, Self

import torch
from sklearn.utils.validation import check_is_fitted

from warmgp.estimator import model_file
from warmgp.estimator.report import Report
from warmgp.estimator.several import Pattern
from warmgp.planning.devices import device_or_cpu
from warmgp.planning.plan import Plan
from warmgp.planning.planner import plan_read_on
from warmgp.posterior import Posterior
from warmgp.processes import writes
from warmgp.solvers import Solver


class Stored:
    """Saves, loads and pickles a fitted estimator: what it needs of it are the posterior, the plan and the report."""

    plan_: Plan
    posterior_: Posterior
    report_: Report
    patterns_: tuple[Pattern, ...]

    def __getstate__(self) -> dict[str, Any]:
        """Returns what pickles and copies hold: the posterior on the CPU, to be read where there is no GPU, too."""
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        if "posterior_" in state:
            state["posterior_"] = state["posterior_"].to("cpu")
            if "patterns_" in state:
                state["patterns_"] = tuple(one.to("cpu") for one in state["patterns_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickle or a copy, on the device of the plan, or on the CPU where that is not to be had."""
        super().__setstate__(state)  # type: ignore[misc]
        if hasattr(self, "posterior_"):
            device = device_or_cpu(self.plan_.device)
            self.plan_, self.posterior_ = plan_read_on(self.plan_, device), self.posterior_.to(device)
            self.patterns_ = tuple(one.to(device) for one in self.patterns_)
            self.report_ = self.report_.read_on(device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to one safetensors file, whole or not at all. Of several processes rank 0 writes."""
        check_is_fitted(self, "hyperparameters_")
        if writes():
            model_file.save(self, path)  # type: ignore[arg-type]

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: str | torch.device = "auto", solver: Solver | None = None
    ) -> Self:
        """Reads a model that :meth:`save` wrote, onto ``device``; it predicts at once, with no solve.

        ``solver`` is needed only for a model that was trained with a solver of your own.
        """
        return model_file.load(cls, path, device, solver)  # type: ignore[arg-type]
