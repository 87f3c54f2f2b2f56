"""Posterior functions as deterministic models: the same function wherever it is asked, with gradients.

BoTorch's own ``draw_matheron_paths``, and with it ``PathwiseThompsonSampling``, takes them for a :class:`WarmModel`:
functions are drawn among those that came with the fit, by torch's generator, without a solve.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.deterministic import DeterministicModel
from torch import Tensor

from warmgp.differentiable import Differentiable


class PathModel(DeterministicModel):
    """Answers with posterior functions, without noise, in the units of X and y.

    Parameters
    ----------
    model : WarmModel
        Whose units they are in.
    answers : Differentiable
        The posterior that holds them.
    numbers : Tensor, (k,)
        Which of its functions.
    shape : torch.Size
        (k,), or empty for a single one.
    """

    def __init__(self, model: Any, answers: Differentiable, numbers: Tensor, shape: torch.Size) -> None:
        super().__init__()
        self._num_outputs = 1
        self.model, self.answers, self.numbers, self.shape = model, answers, numbers, shape

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of the batch of functions."""
        return self.shape

    def __len__(self) -> int:
        """Returns the number of functions."""
        return len(self.numbers)

    def __getitem__(self, number: int) -> PathModel:
        """Returns one of the functions alone."""
        return PathModel(self.model, self.answers, self.numbers[[number]], torch.Size())

    def forward(self, X: Tensor) -> Tensor:
        """Returns values, (…, q, 1), at points X, (…, q, d); the batch of X broadcasts with that of the functions."""
        batch = torch.broadcast_shapes(X.shape[:-2], self.shape)
        X = X.expand(*batch, *X.shape[-2:])
        scaler = self.model.regressor.scaler_
        values = self.answers.samples(self.model.inputs(X), self.numbers)  # every function at every point
        values = values.reshape(*batch, X.shape[-2], len(self.numbers))
        if self.shape:  # each at its own points
            values = values.diagonal(dim1=-3, dim2=-1).movedim(-1, -2)[..., None]
        return (scaler.y_mean + scaler.y_scale * values).to(X)
