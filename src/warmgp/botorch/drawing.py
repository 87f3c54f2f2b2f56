"""How BoTorch draws functions from a :class:`WarmModel`: among those that came with the fit, without a solve.

``draw_matheron_paths``, ``get_matheron_path_model`` and ``PathwiseThompsonSampling`` ask for it by the model's class.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from torch import Tensor

from warmgp.botorch.model import WarmModel
from warmgp.botorch.paths import PathModel


class DrawnPath(SamplePath):
    """Evaluates posterior functions without a dimension for the outcome, as BoTorch's sample paths do.

    Parameters
    ----------
    functions : PathModel
    """

    input_transform = output_transform = None

    def __init__(self, functions: PathModel) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """Returns values, (…, q), at points x, (…, q, d)."""
        return self.functions(x)[..., 0]

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Accepts what is said of ensembles: this is none."""


@DrawMatheronPaths.register(WarmModel)
def _draw(model: WarmModel, *, sample_shape: torch.Size, **kwargs: Any) -> DrawnPath:
    """Returns functions of that shape, different ones, drawn by torch's generator; new ones where there are too few."""
    if len(sample_shape) > 1:
        raise ValueError(f"functions can be drawn in a shape of one number, such as (4,), got {tuple(sample_shape)}")
    count, stored = sample_shape.numel(), model.answers.posterior.n_samples
    if count > stored:
        return DrawnPath(model.paths(count, random_state=int(torch.randint(2**31 - 1, ()))))
    return DrawnPath(PathModel(model, model.answers, torch.randperm(stored)[:count], sample_shape))
