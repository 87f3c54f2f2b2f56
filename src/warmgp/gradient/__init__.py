"""The gradient's room: ∂L/∂θ of the marginal likelihood, exact (Cholesky), standard (Hutchinson) or pathwise.

``base`` holds the contract, ``features`` the prior functions behind pathwise probes. It may import the rooms up to
solvers, and evaluates no kernel itself. Add an estimator as one file with a frozen dataclass, and its name where the
planner chooses (:mod:`warmgp.planning`) and where a file names it (:mod:`warmgp.files.plan_json`).
"""

from warmgp.gradient.base import GradientEstimator
from warmgp.gradient.exact import Exact
from warmgp.gradient.pathwise import Pathwise, PathwiseDraw, functions_of
from warmgp.gradient.standard import Standard

__all__ = ["Exact", "GradientEstimator", "Pathwise", "PathwiseDraw", "Standard", "functions_of"]
