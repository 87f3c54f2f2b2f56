"""What BoTorch is told of a block of points: one normal distribution, from a mean and a covariance."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor


class JointNormal(Model, FantasizeMixin):
    """Answers as a model of one outcome for which mean and covariance of blocks of points are known."""

    likelihood = None
    """There is none of GPyTorch's: the noise is what ``observation_noise`` adds."""

    def joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Returns means, (…, q), and latent covariances, (…, q, q), of points X, (…, q, d), in the user's units."""
        raise NotImplementedError

    @property
    def noise_variance(self) -> float:
        """The variance of the noise of an observation, in squared units of y."""
        raise NotImplementedError

    @property
    def num_outputs(self) -> int:
        """The number of outcomes: one."""
        return 1

    def subset_output(self, idcs: list[int]) -> Model:
        """Returns the model for some of its outcomes, of which there is one: itself."""
        _check_outcomes(idcs)
        return self

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Returns the joint distribution of every block of points, with gradients in X.

        Parameters
        ----------
        X : Tensor, (…, q, d)
            Blocks of q points, in the units that the model was fitted in.
        output_indices : list of int, optional
            The outcomes that are asked for: [0], or None.
        observation_noise : bool or Tensor
            Whether the noise of an observation is part of the variances; or the variances of that noise, in squared
            units of y, (…, q, 1) or anything that broadcasts to it.
        posterior_transform : PosteriorTransform, optional
            What is made of the distribution before it is returned.

        Returns
        -------
        GPyTorchPosterior
            With ``mean`` and ``variance``, (…, q, 1), and ``rsample``, in the units of y, on the device of X and in its
            dtype.
        """
        if output_indices is not None:
            _check_outcomes(output_indices)
        mean, covariance = self.joint(X)
        if observation_noise is not False:
            if isinstance(observation_noise, Tensor):
                noise = observation_noise.to(mean)[..., 0]
            else:
                noise = mean.new_tensor(self.noise_variance)
            covariance = covariance + torch.diag_embed(noise.expand(mean.shape))
        found = GPyTorchPosterior(MultivariateNormal(mean, to_linear_operator(covariance)))
        return found if posterior_transform is None else posterior_transform(posterior=found, X=X)


def _check_outcomes(numbers: list[int]) -> None:
    """Raises unless the outcomes that are asked for are the one that there is."""
    if list(numbers) not in ([0], [-1]):
        raise ValueError(
            f"the outcomes {list(numbers)} are asked for, and a WarmModel has one, of number 0: for several, put a "
            "WarmModel for each into botorch.models.model.ModelList"
        )
