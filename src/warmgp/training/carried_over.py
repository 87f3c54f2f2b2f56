"""A posterior carried over to other rows: its functions, its solutions and its trend as the start of a training.

Prior functions evaluate anywhere, so the posterior samples of a model go on to new rows with new noise there:

    ξ_new = f(x_new) + √d w_new,        w_new standard normal.

The noise of old rows is what their targets have beside the functions. Solutions for other rows come from near points
(:mod:`warmgp.solvers.new_rows`), and what they leave a solver takes away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.gradient import PathwiseDraw
from warmgp.gradient.base import columns
from warmgp.gradient.normal import normal_rows
from warmgp.operators import make_operator
from warmgp.operators.indices import Index
from warmgp.operators.row_noise import Noise
from warmgp.posterior import Posterior
from warmgp.solvers.new_rows import grown, shrunk
from warmgp.training.problem import Problem
from warmgp.trend import TrendSolution


@dataclass(frozen=True)
class Carried:
    """Holds what the training on other rows starts from.

    Attributes
    ----------
    draw : PathwiseDraw
        The functions of the model, and their noise at all rows.
    solution : Tensor or None, (n, q + s)
        Solutions of about the right size; None where a factor of H is made anyway.
    trend : TrendSolution or None
        The same for the trend, whose coefficients so far have been taken off y.
    """

    draw: PathwiseDraw
    solution: Tensor | None = None
    trend: TrendSolution | None = None


def noise_draws(old: Posterior, generator: torch.Generator, rows: Index) -> Tensor:
    """Returns the noise w behind the functions of a posterior at some of its rows, (rows, s) in float64.

    It is what their targets have beside the functions; the targets of an exact posterior are H ẑ. Where neither is
    known, because the samples were never solved for well, noise is drawn anew.
    """
    if old.targets is not None:
        targets = old.targets.at(rows).values()
    elif old.exact:
        operator = make_operator("auto", old.x.double(), old.kernel, old.theta, rows=old.noise)
        targets = operator.matmul(old.solution[:, old.n_targets :].double())[rows]
    elif isinstance(rows, slice):
        return normal_rows(len(old.x), old.n_samples, rows, generator, dtype=torch.float64, device=old.x.device)
    else:
        return _normal(len(old.x), old, generator)[rows]
    functions = old.prior.evaluate(old.x[rows], old.theta).double()
    return (targets - functions) / Noise(old.theta, old.noise).scale_at(rows)


def with_rows(old: Posterior, problem: Problem, generator: torch.Generator, *, solved: bool = True) -> Carried:
    """Returns a posterior carried over to a problem whose last rows are new; without ``solved`` the functions alone.

    Of several processes each has its own rows, and what is there of the new ones.
    """
    operator, count, part = problem.operator, len(old.x), problem.operator.part
    here = part.here
    kept = slice(min(here.start, count), min(here.stop, count))  # old rows of this process
    before = noise_draws(old, generator, kept)
    drawn = _normal(operator.n - count, old, generator)
    draw = _draw(old, problem, torch.cat([before, drawn[max(here.start - count, 0) : max(here.stop - count, 0)]]))
    if not solved:
        return Carried(draw)
    v = _all_solutions(old, problem, kept).to(operator.dtype)
    new = torch.arange(count, operator.n, device=operator.device)
    assert draw.functions is not None
    targets = draw.functions.evaluate(operator.x[new], operator.theta).double()
    targets += operator.noise.scale_at(new) * drawn
    parts = [columns(problem.y[new]).double(), targets]
    if problem.trend is not None:
        parts.append(part.take(problem.trend.columns, new).double())
    known = torch.arange(kept.start, kept.stop, device=new.device)
    residual = torch.cat(parts, 1) - part.sum(operator.kernel_matmul(new, known, v).double())
    start = grown(operator, residual, generator, here)
    start[: len(v)] += v
    return _apart(draw, start.to(operator.dtype), problem)


def without_rows(
    old: Posterior, problem: Problem, kept: Tensor, generator: torch.Generator, *, solved: bool = True
) -> Carried:
    """Returns a posterior carried over to a problem of those of its rows that are kept, by their numbers, (k,).

    Of several processes each has its own rows.
    """
    here = problem.operator.part.here
    draw = _draw(old, problem, noise_draws(old, generator, kept[here]))
    if not solved:
        return Carried(draw)
    goes = torch.ones(len(old.x), dtype=torch.bool, device=kept.device)
    goes[kept] = False
    gone = torch.nonzero(goes)[:, 0]
    order = torch.cat([kept, gone])
    rows = None if old.noise is None else old.noise.at(order)
    operator = make_operator("chunked", old.x[order], old.kernel, old.theta, rows=rows)
    known = _all_solutions(old, problem, torch.cat([kept[here], gone]))
    start = shrunk(operator, known, len(kept), generator, here)
    return _apart(draw, start.to(problem.operator.dtype), problem)


def _normal(rows: int, old: Posterior, generator: torch.Generator) -> Tensor:
    """Returns standard normal numbers for so many rows, (rows, s)."""
    return torch.randn(rows, old.n_samples, dtype=torch.float64, generator=generator).to(old.x.device)


def _draw(old: Posterior, problem: Problem, noise: Tensor) -> PathwiseDraw:
    """Returns functions and noise in the precision of a problem."""
    draw, dtype = PathwiseDraw(old.prior, noise).in_float64(), problem.operator.dtype
    if dtype == torch.float64:
        return draw
    parts = (part.to(dtype) for part in vars(old.prior).values())
    return PathwiseDraw(type(old.prior)(*parts), noise.to(dtype))


def _all_solutions(old: Posterior, problem: Problem, rows: Index) -> Tensor:
    """Returns [v_y, ẑ_1 … ẑ_s, V] at some rows, (rows, q + s + p) in float64, with the trend's functions as the problem
    has them."""
    v = old.solution[rows].double()
    if old.trend is None or problem.trend is None:
        return v
    turned = old.trend.basis.into(problem.trend.basis).to(v.device)
    return torch.cat([v, old.trend.solution[rows].double() @ turned], 1)


def _apart(draw: PathwiseDraw, start: Tensor, problem: Problem) -> Carried:
    """Returns solutions of all systems as a training takes them: those of the trend by themselves."""
    if problem.trend is None:
        return Carried(draw, start.contiguous())
    count = start.shape[1] - problem.trend.columns.shape[1]
    none = torch.zeros_like(problem.trend.offset)
    return Carried(draw, start[:, :count].contiguous(), TrendSolution(start[:, count:].contiguous(), none))
