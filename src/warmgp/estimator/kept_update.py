"""The checkpoint of an update that takes steps: what it is made from, and the state that a resumed one goes on from."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.estimator.settings_json import marked, settings_of
from warmgp.estimator.together import Together
from warmgp.files.checkpoint import VERB, Mark
from warmgp.files.keeper import CheckpointKeeper
from warmgp.planning.plan import Plan
from warmgp.posterior import Posterior
from warmgp.training.state import Callback, TrainingState

OF_THE_MODEL = ("kernel", "init", "n_probes", "n_features", "random_state", "device", "columns")
"""Parameters that an update takes from the fitted model instead: another value of them changes nothing."""


@dataclass
class KeptUpdate:
    """Holds the checkpoint of an update, and what it said at the start.

    Attributes
    ----------
    keeper : CheckpointKeeper
        Writes the file; it is closed with the stack of the update.
    team : Together
        The processes of the update, of which the first one writes.
    state : TrainingState or None
        The state to go on from; None where there was no file.
    plan : Plan
        The plan to go on by: that of the file, or the one that was made now.
    rows : int
        The rows of the model with the new ones, n.
    """

    keeper: CheckpointKeeper
    team: Together
    state: TrainingState | None
    plan: Plan
    rows: int

    @classmethod
    def of(
        cls,
        model: Any,
        mark: tuple[str, Mark],
        plan: Plan,
        shape: tuple[int, int],
        generator: torch.Generator,
        team: Together,
        stack: contextlib.ExitStack,
    ) -> KeptUpdate:
        """Claims the file of an estimator's ``checkpoint`` and reads what is there, for rows of that shape, (n, d);
        refuses that of anything else."""
        keeper = CheckpointKeeper(model.checkpoint, model.checkpoint_every, *mark, generator, team.team)
        state, plan = team.resumed(keeper, plan, shape, stack)
        return cls(keeper, team, state, plan, shape[0])

    def watch(self, state: TrainingState, callbacks: list[Callback]) -> None:
        """Writes where the update starts, and has every step seen by the keeper before the other callbacks."""
        self.team.kept(self.keeper, state, self.plan, self.rows, callbacks)


def update_mark(model: Any, posterior: Posterior, new: Mapping[str, Any], n_steps: int) -> tuple[str, dict[str, str]]:
    """Returns (fingerprint, parts by name) of an update: of the model before it, of the new rows, by the names of the
    arguments and in the model's units, and of every setting that changes the result."""
    settings = {name: value for name, value in settings_of(model).items() if name not in OF_THE_MODEL}
    tensors: dict[str, Tensor] = {
        "the model's rows": posterior.x,
        "the model's hyperparameters": posterior.theta.vector,
        "the model's functions": posterior.prior.sin_weights,
        "the model's solutions": posterior.solution,
    }
    tensors |= {name: torch.as_tensor(values) for name, values in new.items() if values is not None}
    return marked({**settings, "n_steps": n_steps, VERB: "update"}, tensors)
