"""The solvers' room: H v = b for all systems at once, from any start, to a tolerance, within a budget of epochs.

``base`` holds the contract, ``progress`` the books that every solver keeps, and ``preconditioners/`` what conjugate
gradients precondition with. It may import the rooms up to operators, and evaluates no kernel itself. Add a solver as
one file with a frozen dataclass, and a line in ``SOLVERS``.
"""

from __future__ import annotations

from warmgp.solvers.ap import AlternatingProjections
from warmgp.solvers.base import Solver
from warmgp.solvers.cg import ConjugateGradients
from warmgp.solvers.cholesky import Cholesky
from warmgp.solvers.rap import RecombinedProjections
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.sgd import StochasticGradientDescent

SOLVERS: dict[str, type[Solver]] = {
    s.name: s
    for s in (
        Cholesky,
        ConjugateGradients,
        AlternatingProjections,
        StochasticGradientDescent,
        RecombinedProjections,
    )
}


def get_solver(solver: str | Solver) -> Solver:
    """Returns the solver of that name with its default options, or ``solver`` itself where it is one."""
    if isinstance(solver, Solver):
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        names = ", ".join(map(repr, SOLVERS))
        raise ValueError(
            f"solver must be 'auto', {names} or an object such as warmgp.ConjugateGradients(), got {solver!r}"
        )
    return SOLVERS[solver]()


__all__ = [
    "SOLVERS",
    "AlternatingProjections",
    "Cholesky",
    "ConjugateGradients",
    "RecombinedProjections",
    "SolveResult",
    "Solver",
    "StochasticGradientDescent",
    "StoppingRule",
    "get_solver",
]
