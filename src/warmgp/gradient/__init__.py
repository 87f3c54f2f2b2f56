"""Gradients of the marginal likelihood: exact (Cholesky), standard (Hutchinson) and pathwise."""

from warmgp.gradient.base import GradientEstimator
from warmgp.gradient.exact import Exact
from warmgp.gradient.pathwise import Pathwise, PathwiseDraw
from warmgp.gradient.standard import Standard

__all__ = ["Exact", "GradientEstimator", "Pathwise", "PathwiseDraw", "Standard"]
