"""Preconditioned conjugate gradients on all systems at once (the paper's algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.checks import check_count, check_positive
from warmgp.operators.base import KernelOperator
from warmgp.schema import dict_of, one_of, record, whole
from warmgp.solvers.base import Packed, Solver
from warmgp.solvers.graphs import Recorded
from warmgp.solvers.preconditioners import (
    LowRank,
    NearNeighbours,
    Preconditioner,
    Preconditioning,
    Recipe,
    StaleFactor,
    Unpreconditioned,
    WholeFactor,
)
from warmgp.solvers.progress import Progress, Stall
from warmgp.solvers.result import SolveResult, StoppingRule
from warmgp.solvers.sums import add_up

CHECK_EVERY = 8
"""Iterations between two looks at the residual on a GPU, where the preconditioner is not a fast one."""

REFINED_WITHIN = 50.0
"""Epochs within which a good preconditioner gets to a tolerance far below the usual one; 1 to 49 were seen."""

FREE = 3
"""Iterations of a solve that no new factor would save."""


@dataclass(frozen=True)
class CGState:
    """Holds what the next solve may reuse.

    Attributes
    ----------
    preconditioner : Preconditioner, Recipe or None
        P⁻¹ of this θ or, with a whole factor, of an earlier one; after a resume, the recipe from which it goes on.
    spent : int
        Iterations since the last whole factor, without the ``FREE`` ones of each solve.
    """

    preconditioner: Preconditioner | Recipe | None = None
    spent: int = 0


@dataclass(frozen=True)
class ConjugateGradients(Solver):
    """Solves by conjugate gradients with a pivoted-Cholesky preconditioner, or a better one.

    An iteration is one product with H: one epoch.

    The preconditioner is returned in the state and reused while the length scales stay the same. On a GPU the residual
    is looked at every ``CHECK_EVERY`` iterations only (every two with a fast preconditioner), so that the device does
    not wait.

    With ``factor_after`` the preconditioner becomes a whole Cholesky factor of H once that many iterations have been
    spent without one (or with the last one), in the middle of a solve if need be, and serves the solves after it. Like
    renting skis until the rent has reached their price, that costs at most about twice the best choice in hindsight.

    With ``neighbours`` the preconditioner also knows how each point depends on that many near ones, which the low rank
    leaves out (:mod:`warmgp.solvers.preconditioners.neighbour_factor`). For Matérn kernels with little noise that
    spares most iterations, at any number of points; it spares fewer for RBF, and hardly any where noise rules.

    Parameters
    ----------
    preconditioner_rank : int
        Columns of the pivoted Cholesky factor; 0 for none.
    pivot_every : int
        New pivots are sought at every ``pivot_every``-th change of the length scales; in between the old pivots make a
        new factor, which costs matrix products only.
    factor_after : int or None
        Iterations that cost as much as a whole factor, which keeps n² numbers; None for no such factor, as in the
        paper.
    stall_epochs : float
        Without 1% of progress for that many epochs the solve gives up. CG's residual may rise for long before it
        falls, so this is generous.
    neighbours : int
        Near points that a point is conditioned on; 0 for none, as in the paper.
    preconditioner : Preconditioning or None
        A preconditioning of your own, in the place of low rank and neighbours.
    """

    preconditioner_rank: int = 100
    pivot_every: int = 1
    factor_after: int | None = None
    stall_epochs: float = 1000.0
    neighbours: int = 0
    preconditioner: Preconditioning | None = None

    name = "cg"

    def __post_init__(self) -> None:
        check_count("preconditioner_rank", self.preconditioner_rank, least=0)
        check_count("pivot_every", self.pivot_every)
        check_count("neighbours", self.neighbours, least=0)
        if self.factor_after is not None:
            check_count("factor_after", self.factor_after)
        if self.preconditioner is not None and not isinstance(self.preconditioner, Preconditioning):
            raise ValueError(f"preconditioner must be a Preconditioning or None, got {self.preconditioner!r}")
        if self.preconditioner == WholeFactor():
            raise ValueError("preconditioner=WholeFactor() would never be renewed: use factor_after=… instead")
        if self.preconditioner is not None and (self.preconditioner_rank, self.pivot_every, self.neighbours) != (
            100,
            1,
            0,
        ):
            raise ValueError(
                "preconditioner takes the place of preconditioner_rank, pivot_every and neighbours: leave those out"
            )
        check_positive("stall_epochs", self.stall_epochs)

    @property
    def preconditioning(self) -> Preconditioning:
        """The way in which P is made before there is a whole factor."""
        if self.preconditioner is not None:
            return self.preconditioner
        low = LowRank(self.preconditioner_rank, self.pivot_every) if self.preconditioner_rank else None
        return NearNeighbours(self.neighbours, low) if self.neighbours else low or Unpreconditioned()

    def refines_within(self, n: int) -> float:
        return REFINED_WITHIN if self.factor_after is not None or self.preconditioning.fast else 0.0

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: CGState | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        norms = progress.norms()
        if progress.finished(norms, 1.0):
            return progress.result(state)
        progress.exploded(norms)  # keeps the start
        iteration = _Iteration(progress, self._first_preconditioner(operator, state))
        recorded = Recorded(iteration.step, operator)
        rent = _Rent(self.factor_after, state.spent if state else 0)
        stall = Stall(self.stall_epochs)
        anew = True  # whether the next directions begin at the present residual
        while True:
            if rent.due(progress.iterations):
                factor = _next_factor(iteration.preconditioner, operator)
                anew = rent.paid(factor, iteration, progress.iterations) or anew
                rent.allowed = factor is not None
            if progress.renewed() or anew:
                iteration.begin()
                anew = False
            count = progress.affordable(1.0, iteration.at_once)
            # a good preconditioner leaves too few iterations to be worth recording
            step = iteration.step if iteration.preconditioner.made_by.fast else recorded
            for _ in range(count):
                step()
            progress.count(float(count), count)
            norms = progress.norms()
            exploded = progress.exploded(norms)
            if iteration.preconditioner.residual_may_rise:
                exploded = not all(map(math.isfinite, norms))
            lost = bool(iteration.indefinite.any()) or exploded
            if lost and rent.allowed and isinstance(iteration.preconditioner, StaleFactor):
                factor = iteration.preconditioner.successor(operator)  # of more digits, or of this H
                if rent.paid(factor, iteration, progress.iterations):
                    iteration.indefinite.zero_()
                    progress.back_to_best()
                    continue
            if lost or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
            if progress.stop_reason or progress.finished(norms, 1.0):
                free = 0 if progress.stop_reason == "budget" else FREE  # on a budget every iteration was wanted
                return progress.result(CGState(iteration.preconditioner, rent.spent(progress.iterations, free)))

    def _first_preconditioner(self, operator: KernelOperator, state: CGState | None) -> Preconditioner:
        """Returns the first P⁻¹: the whole factor of the state where it has one, else what the options say."""
        kept = state.preconditioner if state else None
        if kept is not None and kept.made_by == WholeFactor() and self._serves(kept.made_by):
            factor = kept.at(operator)
            if factor is not None:
                return factor
        return self.preconditioning.at(operator, kept)

    def _serves(self, way: Preconditioning) -> bool:
        """Says whether the options make use of what was made in that way."""
        return way == self.preconditioning or (way == WholeFactor() and self.factor_after is not None)

    # -- its state ---------------------------------------------------------------------------------------------------
    def pack(self, state: CGState | None) -> Packed:
        if state is None:
            return {}, {}
        kept = state.preconditioner
        recipe = kept.recipe if isinstance(kept, Preconditioner) else kept
        if recipe is None:
            return {}, {"spent": state.spent}
        tensors, content = recipe.pack()
        return tensors, {"spent": state.spent, "preconditioner": {**content, "made_by": recipe.made_by.name}}

    def unpack(
        self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]
    ) -> CGState | None:
        if not tensors and not content:
            return None
        content = _as_now(tensors, content)
        record({}, {"spent": whole(), "preconditioner": dict_of(lambda *_: None)})(content, "")
        spent, made = content.get("spent", 0), dict(content.get("preconditioner", {}))
        if not made and not tensors:
            return CGState(None, spent)
        ways = {way.name: way for way in (self.preconditioning, WholeFactor()) if self._serves(way)}
        one_of(ways)(made.pop("made_by", None), "preconditioner.made_by")
        way = ways[content["preconditioner"]["made_by"]]
        return CGState(way.unpack(tensors, made, shape), spent)

    # -- its options -------------------------------------------------------------------------------------------------
    @property
    def saved_name(self) -> str:
        return self.name if self.preconditioner is None else f"{self.name} with {self.preconditioner.name}"

    def options(self) -> dict[str, Any]:
        values = super().options()
        if self.preconditioner is None:
            del values["preconditioner"]
        return values


def _as_now(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the content of a state of format 2, which did not say how a preconditioner was made, as it is now."""
    if "preconditioner" in content or not tensors:
        return content
    made = {"factor_theta": WholeFactor.name, "neighbour_lengths": NearNeighbours.name, "pivots": LowRank.name}
    name = next((made[part] for part in made if part in tensors), "")
    others = {key: value for key, value in content.items() if key != "spent"}
    return {"spent": content.get("spent", 0), "preconditioner": {**others, "made_by": name}}


def _next_factor(preconditioner: Preconditioner, operator: KernelOperator) -> StaleFactor | None:
    """Returns the whole factor that takes the place of a preconditioner."""
    if isinstance(preconditioner, StaleFactor):
        return preconditioner.successor(operator)
    return StaleFactor.build(operator)


class _Rent:
    """Counts the iterations that a whole factor would have saved, and says when they have reached its price."""

    def __init__(self, price: int | None, spent: int) -> None:
        self.price = price
        self.allowed = price is not None
        self._spent = spent  # in the solves before
        self._since = 0  # iterations of this solve before its own factor

    def spent(self, iterations: int, free: int = FREE) -> int:
        """Returns the iterations spent since the last factor, up to ``iterations`` of this solve less ``free`` ones."""
        return self._spent + max(0, iterations - self._since - free)

    def due(self, iterations: int) -> bool:
        """Says whether a factor would have paid by now."""
        return self.allowed and self.spent(iterations) >= (self.price or 0)

    def paid(self, factor: StaleFactor | None, iteration: _Iteration, iterations: int) -> bool:
        """Puts the factor to use, if there is one, and begins to count anew; returns whether there is."""
        if factor is None:
            return False
        iteration.preconditioner = factor
        self._spent, self._since = 0, iterations
        return True


class _Iteration:
    """Takes steps of CG on all systems, which write v, r and the directions d in place.

    α = γ/dᵀHd,  v ← v + αd,  r ← r − αHd,  p = P⁻¹r,  d ← p + (rᵀp/γ) d,  γ ← rᵀp.
    """

    def __init__(self, progress: Progress, preconditioner: Preconditioner) -> None:
        self.operator, self.part = progress.operator, progress.part
        self.v, self.r = progress.v, progress.r
        self.d = torch.empty_like(self.r)
        self.gamma = torch.empty_like(self.r[0])  # rᵀP⁻¹r, (1 + s,)
        self.indefinite = torch.zeros_like(self.gamma, dtype=torch.bool)  # systems with dᵀHd < 0, by rounding
        self.preconditioner = preconditioner  # another may take its place: call begin before the next step

    @property
    def at_once(self) -> int:
        """Iterations between two looks at the residual."""
        if self.operator.device.type == "cpu":
            return 1
        return 2 if self.preconditioner.made_by.fast else CHECK_EVERY

    def begin(self) -> None:
        """Begins a new sequence of directions at the present residual."""
        p = self.preconditioner.apply_to(self.part, self.r)
        self.d.copy_(p)
        self.gamma.copy_(self.part.sum((self.r * p).sum(0)))

    def step(self) -> None:
        """Takes one step."""
        Hd = self.part.matmul(self.d)
        curvature = self.part.sum((self.d * Hd).sum(0))
        self.indefinite.logical_or_(curvature < 0)  # no step along such a d can be trusted
        alpha = _ratio(self.gamma, curvature)
        add_up(self.operator, self.v, 1.0, (alpha, self.d))
        self.r.addcmul_(alpha, Hd, value=-1.0)
        p = self.preconditioner.apply_to(self.part, self.r)
        gamma_new = self.part.sum((self.r * p).sum(0))
        torch.addcmul(p, _ratio(gamma_new, self.gamma), self.d, out=self.d)
        self.gamma.copy_(gamma_new)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """Returns a/b per system, and 0 where a system has nothing left to do (b ≤ 0 only by rounding)."""
    return torch.where(b > 0, a / b.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(a))
