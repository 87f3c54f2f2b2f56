"""A model given observations that were not made: fantasies, for acquisition functions that look ahead.

For points f with targets Y and noise N, and points * that are asked about, all from the model's joint distribution,

    mean = m_* + C_*f (C_ff + N)⁻¹ (Y − m_f),      covariance = C_** − C_*f (C_ff + N)⁻¹ C_f*.

That is what an update would give, up to the error of C, without a solve, for whole batches of targets and with
gradients in the points of both kinds.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.model import Model
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from warmgp.botorch.joint_normal import JointNormal


def check_observations(X: Tensor, Y: Tensor, n_columns: int) -> None:
    """Raises unless X (…, m, d) and Y (…, m, 1) are points with a target each."""
    if X.ndim < 2 or Y.ndim < 2 or X.shape[-1] != n_columns or Y.shape[-1] != 1 or X.shape[-2] != Y.shape[-2]:
        raise ValueError(
            f"X must have shape (…, m, {n_columns}) and Y (…, m, 1), a target for each of m points; got "
            f"{tuple(X.shape)} and {tuple(Y.shape)}"
        )


class FantasyModel(JointNormal):
    """Answers as a model that was told observations which were not made, in batches.

    Parameters
    ----------
    base : JointNormal
        The model before.
    X : Tensor, (…, m, d)
    Y : Tensor, (…, m, 1)
    noise : Tensor, optional
        The variances of the noise of Y, in squared units of y, which broadcast to Y; by default the model's own.
    """

    def __init__(self, base: JointNormal, X: Tensor, Y: Tensor, noise: Tensor | None = None) -> None:
        super().__init__()
        self.base, self.X, self.Y = base, X, Y
        own = Y.new_full((1, 1), base.noise_variance) if noise is None else noise.to(Y)
        self.noise = own.expand(*own.shape[:-2], *Y.shape[-2:])

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of the batch of fantasies."""
        return torch.broadcast_shapes(self.X.shape[:-2], self.Y.shape[:-2])

    @property
    def noise_variance(self) -> float:
        """The variance of the noise of an observation, in squared units of y."""
        return self.base.noise_variance

    def joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Returns means, (…, q), and latent covariances, (…, q, q), of points X, (…, q, d), given the fantasies."""
        batch, m = torch.broadcast_shapes(X.shape[:-2], self.batch_shape), self.X.shape[-2]
        points = torch.cat([part.expand(*batch, *part.shape[-2:]) for part in (self.X.to(X), X)], -2)
        mean, covariance = self.base.joint(points)
        if not m:
            return mean, covariance
        noise = torch.diag_embed(self.noise.to(X)[..., 0].expand(*batch, m))
        L = psd_safe_cholesky(covariance[..., :m, :m] + noise)
        half = torch.linalg.solve_triangular(L, covariance[..., :m, m:], upper=False)  # (…, m, q)
        told = (self.Y.to(X)[..., 0] - mean[..., :m])[..., None]
        moved = half.mT @ torch.linalg.solve_triangular(L, told, upper=False)
        return mean[..., m:] + moved[..., 0], covariance[..., m:, m:] - half.mT @ half

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Model:
        """Returns the model given these fantasies, and those that it was given before."""
        check_observations(X, Y, self.X.shape[-1])
        batch = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self.batch_shape)
        own = Y.new_full((1, 1), self.noise_variance) if noise is None else noise.to(Y)
        pairs = ((self.X, X), (self.Y, Y), (self.noise, own.expand(*own.shape[:-2], *Y.shape[-2:])))
        both = [torch.cat([part.expand(*batch, *part.shape[-2:]) for part in pair], -2) for pair in pairs]
        return FantasyModel(self.base, *both)
