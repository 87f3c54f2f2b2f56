"""What a model explains: how much likelier points are given near ones than by a constant with noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.operators.row_noise import RowNoise
from warmgp.training.kernel_choice import rough_start
from warmgp.training.near_likelihood import Terms, climb

ASKED, NEAR = 256, 30
"""The points that are asked for, at random, and the near ones that each is asked for given."""

GROUPS, GROUP, EVALUATIONS = 8, 50, 15
"""The groups of near points of a quick climb, the points of each, and about how often it evaluates them."""

AT_ONCE = 2**24
"""Distances that are held at once."""


def constant_likelihood(y: Tensor) -> float:
    """Returns log p(y) by the likeliest constant with noise, for targets with mean zero, (n,); the sum of several."""
    variances = y.double().square().mean(0).reshape(-1).tolist()
    return -0.5 * len(y) * sum(math.log(2 * math.pi * variance) + 1.0 for variance in variances)


def near_gain(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    generator: torch.Generator,
    noise: RowNoise | None = None,
) -> tuple[float, float]:
    """Returns how many nats likelier a point is given near ones than by a constant with noise, and its standard error.

    Near ones are sought among all points, x is (n, d) and y (n,), or (n, q), of which the mean counts, by the length
    scales of θ. ``noise`` is that of rows.
    """
    n = len(x)
    asked = torch.randperm(n, generator=generator)[:ASKED].to(x.device)
    z = x.double() / theta.length_scales.to(x.device)
    near = _nearest(z, asked, min(NEAR, n - 1))
    groups = torch.cat([near, asked[:, None]], 1)
    given = Terms(groups, 1).densities(x, y, kernel, theta, noise)
    variance = y.double().square().mean(0)
    alone = -0.5 * (y[asked].double().square() / variance + torch.log(2 * math.pi * variance))
    gain = given - alone if y.ndim == 1 else (given - alone.sum(1)) / y.shape[1]
    return float(gain.mean()), float(gain.std()) / len(gain) ** 0.5


def quick_gain(
    x: Tensor,
    y: Tensor,
    kernel: Kernel,
    theta: Hyperparameters,
    generator: torch.Generator,
    noise: RowNoise | None = None,
) -> tuple[float, float]:
    """Returns how many nats likelier a point is after a quick climb than at θ, and than by a constant with noise, of
    which the first is 0 or more.

    Few points, x of (n, d), are likely as a whole. More are climbed by groups of near points, as dense as all of them,
    and judged by what near ones say of others: a few groups can be made likely by hyperparameters that predict worse.
    Near ones may say less of a point at θ than all others do; the second number is what those have to say to match.
    """
    n, few = len(x), len(x) <= GROUPS * GROUP
    if few:
        terms = Terms(torch.arange(n, device=x.device)[None], n)
    else:
        centres = torch.randperm(n, generator=generator)[:GROUPS].to(x.device)
        near = _nearest(x.double(), centres, GROUP - 1)
        terms = Terms(torch.cat([near, centres[:, None]], 1), GROUP)
    starts = theta, rough_start(x.shape[1], theta.length_scales.numel(), False)
    climbs = [climb(x, y, terms, kernel, start, evaluations=EVALUATIONS, noise=noise) for start in starts]
    if few:
        here, best = float(terms.densities(x, y, kernel, theta, noise).mean()), max(one.value for one in climbs)
        each = 1 if y.ndim == 1 else y.shape[1]
        return max(0.0, best - here) / each, math.inf
    asked = generator.get_state()

    def told(these: Hyperparameters) -> float:
        generator.set_state(asked)  # the same points for all
        return near_gain(x, y, kernel, these, generator, noise)[0]

    best = max(told(one.theta) for one in climbs)
    return max(0.0, best - told(theta)), best


def _nearest(z: Tensor, asked: Tensor, m: int) -> Tensor:
    """Returns the m nearest points of some others, (p, m), none of them itself."""
    best = torch.full((len(asked), m), math.inf, dtype=z.dtype, device=z.device)
    where = torch.zeros(len(asked), m, dtype=torch.long, device=z.device)
    size = max(1, AT_ONCE // len(asked))
    for begin in range(0, len(z), size):
        distances = torch.cdist(z[asked], z[begin : begin + size])
        here = torch.arange(begin, begin + distances.shape[1], device=z.device)
        distances[asked[:, None] == here] = math.inf
        both = torch.cat([best, distances], 1), torch.cat([where, here.expand(len(asked), -1)], 1)
        best, order = both[0].topk(m, largest=False)
        where = both[1].gather(1, order)
    return where
