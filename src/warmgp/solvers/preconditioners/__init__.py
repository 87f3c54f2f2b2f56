"""P⁻¹ ≈ H⁻¹ for conjugate gradients: a low rank, near neighbours beside it, a whole factor of an earlier θ.

``base`` holds the contracts. Add a preconditioner as one file with a :class:`Preconditioning`, and pass it:
``ConjugateGradients(preconditioner=…)``.
"""

from warmgp.solvers.preconditioners.base import Preconditioner, Preconditioning, Recipe
from warmgp.solvers.preconditioners.low_rank import LowRank, PivotedCholesky
from warmgp.solvers.preconditioners.neighbour_factor import NearNeighbours, NeighbourFactor
from warmgp.solvers.preconditioners.none import Identity, Unpreconditioned
from warmgp.solvers.preconditioners.whole_factor import StaleFactor, WholeFactor

__all__ = [
    "Identity",
    "LowRank",
    "NearNeighbours",
    "NeighbourFactor",
    "PivotedCholesky",
    "Preconditioner",
    "Preconditioning",
    "Recipe",
    "StaleFactor",
    "Unpreconditioned",
    "WholeFactor",
]
