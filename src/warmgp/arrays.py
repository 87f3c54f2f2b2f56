"""At the border: numpy in, numpy out; tensor in, tensor out on the same device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def to_numpy(values: Any) -> Any:
    """A tensor as a numpy array, wherever it is; anything else as it came."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    return values


def like(values: Any, result: np.ndarray) -> Any:
    """The result as what ``values`` are: a tensor of their device and floating dtype, or a numpy array."""
    if isinstance(values, torch.Tensor):
        dtype = values.dtype if values.dtype.is_floating_point else torch.float64
        return torch.as_tensor(result).to(device=values.device, dtype=dtype)
    return result
