"""Prior functions by the name that documentation uses; they live in :mod:`warmgp.gradient.features`."""

from warmgp.gradient.features import ExactPrior, FeaturePrior

__all__ = ["ExactPrior", "FeaturePrior"]
