"""Kernel entries and products whose slope in the points is known: what gradients in x are made of.

With z = x/ℓ, r = |z − z'| and ω(r) = −k′(r)/r,

    ∂k(z, z')/∂z = −ω(r)(z − z'),

which is finite everywhere: ω of a kernel that is smooth at zero has a limit there, and that of Matérn-1/2 counts zero
at coincident points, where z − z' is zero, too. Products with many training points are made tile by tile, forwards and
again backwards, so that no n × m entries are kept for a slope.

All is float64: a search for a top compares values that differ in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warmgp.kernels import Kernel
from warmgp.operators.distances import distances
from warmgp.operators.indices import ranges

TILE = {True: 2**20, False: 2**26}
"""Kernel entries that are held at once, by whether that is on a CPU."""


def check_first() -> None:
    """Raises where a slope is computed with ``create_graph=True``: it would have no derivative, and look constant."""
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "a second derivative in x was asked for (create_graph=True), and there are first ones only: take "
            "differences of first derivatives"
        )


class _Known(torch.autograd.Function):
    """Evaluates a function of points whose slope is computed on its own, from the same points."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[Tensor], Tensor], slope: Callable[..., Tensor]) -> Tensor:
        """Returns value(x)."""
        ctx.save_for_backward(x)
        ctx.slope = slope
        return value(x)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None]:
        """Returns Σ weights · ∂value/∂x, in the shape of x."""
        check_first()
        (x,) = ctx.saved_tensors
        return ctx.slope(x, weights), None, None


def with_slope(x: Tensor, value: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns value(x), (m, c), whose gradient in x is slope(x, weights), (m, d), for weights of (m, c)."""
    found: Tensor = _Known.apply(x, value, slope)
    return found


class _Entries(torch.autograd.Function):
    """Evaluates k between two sets of points, with the slope in both."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, kernel: Kernel) -> Tensor:
        """Returns k(|a_i − b_j|)."""
        ctx.save_for_backward(a, b)
        ctx.kernel = kernel
        return kernel.profile(_apart(a, b))

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Returns the slopes in a and in b."""
        check_first()
        a, b = ctx.saved_tensors
        W = ctx.kernel.length_weight(_apart(a, b)).mul_(weights)
        of_a, of_b, _ = ctx.needs_input_grad
        return (
            W @ b - W.sum(-1, keepdim=True) * a if of_a else None,
            W.mT @ a - W.sum(-2)[..., None] * b if of_b else None,
            None,
        )


def entries(a: Tensor, b: Tensor, kernel: Kernel) -> Tensor:
    """Returns k between points in units of the length scales, (…, p, q), for a of (…, p, d) and b of (…, q, d).

    The signal is one. Centre the points: a slope is the difference of two sums of their size.
    """
    found: Tensor = _Entries.apply(a, b, kernel)
    return found


def products(a: Tensor, b: Tensor, V: Tensor, kernel: Kernel) -> Tensor:
    """Returns k(a, b) V, (m, c), for points a of (m, d) and b of (n, d) in units of the length scales, and V of (n, c).

    The signal is one. There is a slope in a alone.
    """
    size = max(1, TILE[a.device.type == "cpu"] // max(1, len(a)))

    def value(a: Tensor) -> Tensor:
        found = a.new_zeros(len(a), V.shape[1])
        for rows in ranges(len(b), size):
            found.addmm_(kernel.profile(_apart(a, b[rows])), V[rows].to(a.dtype))
        return found

    def slope(a: Tensor, weights: Tensor) -> Tensor:
        found = torch.zeros_like(a)
        for rows in ranges(len(b), size):
            W = kernel.length_weight(_apart(a, b[rows])).mul_(weights @ V[rows].to(a.dtype).T)
            found.addmm_(W, b[rows]).sub_(W.sum(1, keepdim=True) * a)
        return found

    return with_slope(a, value, slope)


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """Returns |a_i − b_j|, (…, p, q), zero to the bit where points coincide."""
    if a.ndim == 2 and b.ndim == 2:
        return distances(a, b, exact=True)
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
