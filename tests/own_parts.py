"""A solver and a preconditioner as a user would write them, each with something to keep from one θ to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp import Hyperparameters, KernelOperator, Solver, SolveResult, StoppingRule
from warmgp.operators.indices import ranges
from warmgp.operators.origin import Origin
from warmgp.schema import DOUBLE, TensorRule, check_tensors, expect, record, whole
from warmgp.solvers.base import Packed, Progress, Stall, check_count, factor_or_raise
from warmgp.solvers.preconditioners import Preconditioner, Preconditioning, Recipe


# -- a solver --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Turns(Solver):
    """Exact solves on blocks of rows in turn. On a budget it matters whose turn it is: that is its state.

    It does not say how a checkpoint holds that.
    """

    block_size: int = 10

    name = "turns"

    def solve(
        self,
        operator: KernelOperator,
        targets: Tensor,
        start: Tensor | None = None,
        *,
        rule: StoppingRule,
        generator: torch.Generator | None = None,
        state: int | None = None,
    ) -> SolveResult:
        progress = Progress.begin(operator, targets, start, rule)
        blocks = list(ranges(operator.n, self.block_size))
        stall = Stall(200.0)
        turn = state or 0
        while True:
            rows = blocks[turn % len(blocks)]
            cost = (rows.stop - rows.start) / operator.n
            norms = progress.norms()
            if progress.exploded(norms) or stall.update(max(norms), progress.iteration_epochs):
                progress.give_up("stagnated")
                break
            if progress.finished(norms, cost):
                break
            factor = factor_or_raise(operator.block(rows), "a block of H").to(operator.dtype)
            step = torch.cholesky_solve(progress.r[rows], factor)
            progress.v[rows] += step
            progress.r -= operator.columns_matmul(rows, step)
            progress.count(cost)
            turn += 1
        return progress.result(turn % len(blocks))


class KeptTurns(Turns):
    """The same, and a checkpoint holds whose turn it is."""

    name = "kept turns"

    def pack(self, state: int | None) -> Packed:
        return {}, {} if state is None else {"turn": state}

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], *_: object) -> int | None:
        record({}, {"turn": whole()})(content, "")
        return content.get("turn")


class LostTurns(KeptTurns):
    """The same, but a checkpoint forgets it: what a state that is left out silently would do."""

    def pack(self, state: int | None) -> Packed:
        return {}, {}


# -- a preconditioner ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FirstBlocks(Preconditioning):
    """P is the diagonal blocks of H at the first θ, and stays that for all θ after it."""

    block_size: int = 10

    name = "first blocks"

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size)

    def build(self, operator: KernelOperator) -> Blocks:
        return Blocks(self, operator)

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> BlocksOf:
        record({})(content, "")
        lengths = check_tensors(tensors, {"theta": TensorRule(("t",), DOUBLE, positive=True)})["t"] - 2
        expect(lengths in (1, shape[1]), "theta", f"of {shape[1]} inputs", lengths)
        return BlocksOf(self, Hyperparameters.from_vector(tensors["theta"]))


class Blocks(Preconditioner):
    """P⁻¹ by the Cholesky factors of the blocks."""

    def __init__(self, made_by: FirstBlocks, operator: KernelOperator) -> None:
        self.made_by = made_by
        self.origin: Origin = operator.origin
        self.rows = list(ranges(operator.n, made_by.block_size))
        self.factors = [factor_or_raise(operator.block(rows), "a block of H").to(operator.dtype) for rows in self.rows]

    def apply(self, R: Tensor) -> Tensor:
        return torch.cat([torch.cholesky_solve(R[i], L) for i, L in zip(self.rows, self.factors, strict=True)])

    def at(self, operator: KernelOperator) -> Blocks | None:
        return self if self.origin.same_data(operator.origin) else None

    @property
    def recipe(self) -> BlocksOf:
        return BlocksOf(self.made_by, self.origin.theta)


@dataclass(frozen=True)
class BlocksOf(Recipe):
    """The θ that the blocks are of."""

    made_by: FirstBlocks
    theta: Hyperparameters

    def at(self, operator: KernelOperator) -> Blocks:
        return self.made_by.build(operator.at(self.theta))

    def pack(self) -> Packed:
        return {"theta": self.theta.vector}, {}
