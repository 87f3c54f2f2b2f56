"""Steps along a limit: the signal is at most so many times the noise.

Where data want more, noise and signal move together, by the slope along the limit; a step that ends beyond it goes back
to the nearest θ within, by their logarithms. To cut the signal after every step instead, with the length scales that
keep the kernel at short distances what it is, leads astray: Adam does not know of the cut, pushes on, and Matérn-1/2 on
1.8 million points of houseelectric ended with length scales of a thousandth.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters

AT = 1.0 - 1e-9
"""The share of the limit from which on θ is at it: rounding leaves as much."""


def excess(theta: Hyperparameters, ratio: float) -> float:
    """Returns how many times the limit signal/noise is: above 1 beyond it."""
    return float(theta.signal_scale / theta.noise_scale) / ratio


def within(theta: Hyperparameters, ratio: float, *, learn_noise: bool = True) -> Hyperparameters:
    """Returns the nearest θ whose signal is at most ``ratio`` times the noise: half of the excess is of either, or
    all of it the signal's where the noise is not learned."""
    beyond = excess(theta, ratio)
    if beyond <= 1.0:
        return theta
    raised = math.sqrt(beyond) if learn_noise else 1.0
    return Hyperparameters(raised * theta.noise_scale, raised / beyond * theta.signal_scale, theta.length_scales)


def along(slope: Tensor, theta: Hyperparameters, ratio: float, noise_floor: float = 0.0) -> Tensor:
    """Returns the slope by ν along the limit, where θ is at it and the slope leads beyond: the mean of those by the
    logarithms of noise and signal, for both of them; the slope itself elsewhere.

    With h = log θ, ∂θ/∂ν = 1 − exp(−θ) and ∂θ/∂h = θ. Where the noise is at its floor, too, and both would fall, it
    stays, and the signal falls only if its own slope says so.
    """
    if excess(theta, ratio) < AT:
        return slope
    per_nu = theta.chain_rule(torch.ones_like(slope))[:2] / theta.vector[:2]  # ∂h/∂ν of noise and signal
    by_log = slope[:2] / per_nu
    if by_log[1] <= by_log[0]:  # back into the allowed
        return slope
    both = by_log.mean() * per_nu
    if both[0] < 0 and float(theta.noise_scale) * AT <= noise_floor:
        both = torch.stack([torch.zeros_like(slope[0]), slope[1].clamp_max(0.0)])
    return torch.cat([both, slope[2:]])
