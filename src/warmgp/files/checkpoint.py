"""What a checkpoint holds: the whole state of a training, the generator's, the plan, and what it was made from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from warmgp.files import plan_json
from warmgp.files.atomic import Claim
from warmgp.files.format import FileError, read, write
from warmgp.gradient import Pathwise, PathwiseDraw, Standard
from warmgp.gradient.features import FeaturePrior
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.memory import training_bytes
from warmgp.planning.planner import Plan
from warmgp.schema import (
    DOUBLE,
    SchemaError,
    TensorRule,
    check_tensors,
    dict_of,
    expect,
    list_of,
    maybe,
    number,
    record,
    text,
    truth,
    whole,
)
from warmgp.solvers import SOLVERS, AlternatingProjections, ConjugateGradients, Solver, StochasticGradientDescent
from warmgp.solvers.cg import CGState
from warmgp.solvers.preconditioners.neighbour_factor import NeighbourFactor, NeighbourRecipe
from warmgp.solvers.preconditioners.pivoted import PivotedCholesky, Pivots
from warmgp.solvers.preconditioners.stale import Recipe, StaleFactor
from warmgp.solvers.sgd import SGDState
from warmgp.training.adam import Adam
from warmgp.training.state import TrainingState

Mark = Mapping[str, str]
"""What a training is made from, by name: its settings as text, its data as fingerprints."""

CONTENT = record(
    {
        "step": whole(),
        "adam_t": whole(),
        "elapsed": number(),
        "history": plan_json.history,
        "pivots": maybe(list_of(whole(), 2)),
        "learning_rate": maybe(number(5e-324)),
        "plan": lambda *_: None,  # checked when it is read
        "fingerprint": text,
    },
    {
        "factor": maybe(list_of(truth, 2)),
        "spent": whole(),
        "block_size": maybe(whole(1)),
        "made_from": dict_of(text),
    },
)
THETA = TensorRule(("t",), DOUBLE, positive=True)
TENSORS = {
    "nu": TensorRule(("t",), DOUBLE),
    "adam_first": TensorRule(("t",), DOUBLE),
    "adam_second": TensorRule(("t",), DOUBLE),
    "generator": TensorRule(("g",), (torch.uint8,)),
    "solution": TensorRule(("n", "1 + s")),
    "solution_theta": THETA,
    "noise": TensorRule(("n", "s")),
    "frequencies": TensorRule(("m", "d")),
    "sin_weights": TensorRule(("m", "s")),
    "cos_weights": TensorRule(("m", "s")),
    "probes": TensorRule(("n", "s")),
    "pivots": TensorRule(("k",), (torch.int64,)),
    "factor_theta": THETA,
    "neighbour_lengths": TensorRule(("l",), DOUBLE, positive=True),
}
WORKING = ("solution", "noise", "frequencies", "sin_weights", "cos_weights", "probes")
"""In the precision that training has got to."""
KEPT_BY: dict[str, type[Solver]] = {
    "learning_rate": StochasticGradientDescent,
    "block_size": AlternatingProjections,
    "pivots": ConjugateGradients,
    "factor_theta": ConjugateGradients,
    "neighbour_lengths": ConjugateGradients,
    "spent": ConjugateGradients,
}
NEEDED = ("nu", "adam_first", "adam_second", "generator")
TOGETHER = (("solution", "solution_theta"), ("noise", "frequencies", "sin_weights", "cos_weights"))


def write_checkpoint(
    path: str | os.PathLike[str],
    state: TrainingState,
    random: Tensor,
    plan: Plan,
    fingerprint: str,
    made_from: Mark | None = None,
    claim: Claim | None = None,
) -> None:
    """Save all that a resume needs, with the generator's state and the fingerprint of data and settings."""
    tensors = {
        "nu": state.nu,
        "adam_first": state.adam.first,
        "adam_second": state.adam.second,
        "generator": random,
    }
    if state.solution is not None and state.solution_theta is not None:
        tensors |= {"solution": state.solution, "solution_theta": state.solution_theta.vector}
    draw = state.draw
    if isinstance(draw, PathwiseDraw) and isinstance(draw.prior, FeaturePrior):
        tensors |= {
            "noise": draw.noise,
            "frequencies": draw.prior.frequencies,
            "sin_weights": draw.prior.sin_weights,
            "cos_weights": draw.prior.cos_weights,
        }
    elif isinstance(draw, Tensor):
        tensors["probes"] = draw
    elif draw is not None:
        raise ValueError(f"a checkpoint cannot hold probes of kind {type(draw).__name__}")
    cg = state.solver_state if isinstance(state.solver_state, CGState) else CGState()
    kept: Any = cg.preconditioner
    if isinstance(kept, NeighbourFactor):
        kept = kept.recipe
    if isinstance(kept, NeighbourRecipe):
        tensors["neighbour_lengths"] = kept.length_scales
        kept = kept.low
    pivots = kept.pivots if isinstance(kept, PivotedCholesky) else kept if isinstance(kept, Pivots) else None
    if pivots is not None:
        tensors["pivots"] = pivots.index
    recipe = kept.recipe if isinstance(kept, StaleFactor) else kept if isinstance(kept, Recipe) else None
    if recipe is not None:
        tensors["factor_theta"] = recipe.theta.vector
    content = {
        "step": state.step,
        "adam_t": state.adam.t,
        "elapsed": state.elapsed,
        "history": plan_json.history_to_json(state.history),
        # what else solvers keep belongs to the last θ and is rebuilt at the next one anyway
        "pivots": [pivots.rank, pivots.age] if pivots is not None else None,
        "factor": [recipe.double, recipe.half] if recipe is not None else None,
        "spent": cg.spent,
        "block_size": state.solver_state if isinstance(state.solver_state, int) else None,
        "learning_rate": state.solver_state.learning_rate if isinstance(state.solver_state, SGDState) else None,
        "plan": plan_json.plan_to_json(plan),
        "fingerprint": fingerprint,
        "made_from": dict(made_from or {}),
    }
    write(path, "checkpoint", tensors, content, claim)


def read_checkpoint(
    path: str | os.PathLike[str], fingerprint: str, plan: Plan, shape: tuple[int, int], made_from: Mark | None = None
) -> tuple[TrainingState, Tensor, Plan]:
    """(state, generator state, plan) of a checkpoint of the same data and settings.

    ``plan`` is what would be done without the file, for data of that ``shape``: it says where, and stands in for a
    solver that is not ours.
    """
    tensors, content = read(path, "checkpoint")
    try:
        CONTENT(content, "")
        if content["fingerprint"] != fingerprint:
            raise FileError(
                f"the checkpoint {path} belongs to other data or settings: delete it to start anew, or use another "
                f"path (one for each fit: in a cross-validation leave checkpoint out)"
                f"{_differences(content, made_from or {})}"
            )
        saved = plan_json.plan_from_json(content["plan"], solver=plan.solver, device=plan.device)
        _check(tensors, content, saved, plan, shape)
        return _state(tensors, content, saved), tensors["generator"], saved
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"the checkpoint {path} {error}: delete it to start anew") from error


def _differences(content: Mapping[str, Any], now: Mark) -> str:
    """Which data and settings differ, where the file says what it was made from."""
    then = content.get("made_from", {})
    told = []
    for name in {**then, **now} if then else ():
        old, new = then.get(name, "none"), now.get(name, "none")
        if old != new:
            short = len(old) <= 60 and len(new) <= 60  # fingerprints of data are not
            told.append(f"{name} ({old} there, {new} now)" if short else name)
    return f". What differs: {', '.join(told)}" if told else ""


def _check(
    tensors: Mapping[str, Tensor], content: Mapping[str, Any], saved: Plan, plan: Plan, shape: tuple[int, int]
) -> None:
    """Hold the tensors against their rules, against each other, against the content and the plan."""
    n, d = shape
    for names in TOGETHER:
        if any(name in tensors for name in names):
            for name in names:
                if name not in tensors:
                    raise SchemaError(f"lacks {name!r}")
    rules = {name: rule for name, rule in TENSORS.items() if name in tensors or name in NEEDED}
    probes, features = saved.gradient.n_probes, getattr(saved.gradient, "n_features", saved.n_features)
    known = {"n": n, "d": d, "s": probes, "1 + s": 1 + probes, "m": features // 2}
    lengths = check_tensors(tensors, rules, known)["t"] - 2
    expect(lengths in (1, d), "nu", f"{2 + d} or 3 numbers", 2 + lengths)
    expect(len({tensors[name].dtype for name in WORKING if name in tensors}) <= 1, "solution", "like its probes", "not")
    expect(bool((tensors["adam_second"] >= 0).all()), "adam_second", "at least 0", "negative numbers")
    expect(
        len(content["history"]) == content["step"], "step", f"{len(content['history'])} as in history", content["step"]
    )
    for one in content["history"]:
        expect(len(one["length_scales"]) == lengths, "length_scales", f"{lengths} numbers", len(one["length_scales"]))
    draw = {Pathwise: "noise", Standard: "probes"}.get(type(saved.gradient), "")
    for name in ("noise", "probes"):
        expect(name not in tensors or name == draw, name, f"missing with gradient {saved.gradient.name!r}", "there")
    for name, given in (("plan.n_features", saved.n_features), ("plan.gradient.n_features", features)):
        expect(given == plan.n_features, name, f"{plan.n_features} as by the settings", given)
    for name, cls in KEPT_BY.items():
        there = name in tensors or content.get(name)
        own = isinstance(saved.solver, tuple(SOLVERS.values())) and not isinstance(saved.solver, cls)
        expect(not (there and own), name, f"missing with solver {saved.solver.name!r}", "there")
    expect(
        ("pivots" in tensors) == (content["pivots"] is not None), "pivots", "there as a tensor and as numbers", "one"
    )
    if "pivots" in tensors:
        index = tensors["pivots"]
        expect(bool(((index >= 0) & (index < n)).all()), "pivots", f"numbers of the {n} rows", "others")
    needs = training_bytes(saved, n, d)
    if needs > 2 * plan.memory_budget:  # what is free changes from day to day
        raise SchemaError(
            f"needs about {needs / 2**30:.1f} GiB, and the memory budget is {plan.memory_budget / 2**30:.1f} GiB"
        )


def _state(tensors: Mapping[str, Tensor], content: Mapping[str, Any], plan: Plan) -> TrainingState:
    """The training state, on the plan's device."""
    try:
        torch.Generator().set_state(tensors["generator"])
    except RuntimeError as error:
        raise SchemaError("has a random generator's state that torch does not take") from error
    there = {name: tensor.to(plan.device) for name, tensor in tensors.items()}
    draw: Any = there.get("probes")
    if "noise" in there:
        prior = FeaturePrior(there["frequencies"], there["sin_weights"], there["cos_weights"])
        draw = PathwiseDraw(prior, there["noise"])
    theta = tensors.get("solution_theta")
    solver_state: Any = content.get("block_size")
    if content["learning_rate"] is not None:
        solver_state = SGDState(content["learning_rate"])
    spent = content.get("spent", 0)
    pivots = Pivots(there["pivots"], *content["pivots"]) if "pivots" in there else None
    if "neighbour_lengths" in tensors:
        solver_state = CGState(NeighbourRecipe(tensors["neighbour_lengths"], pivots), spent)
    elif pivots is not None:
        solver_state = CGState(pivots, spent)
    elif "factor_theta" in tensors:
        theta_of_factor = Hyperparameters.from_vector(tensors["factor_theta"])
        solver_state = CGState(Recipe(theta_of_factor, *(content.get("factor") or ())), spent)
    elif spent:
        solver_state = CGState(None, spent)
    state = TrainingState(
        step=content["step"],
        nu=tensors["nu"],
        adam=Adam(tensors["adam_first"], tensors["adam_second"], content["adam_t"]),
        draw=draw,
        solution=there.get("solution"),
        solution_theta=Hyperparameters.from_vector(theta) if theta is not None else None,
        solver_state=solver_state,
        history=plan_json.history_from_json(content["history"]),
        elapsed=content["elapsed"],
    )
    _ = state.theta  # or raise, where ν is out of the range of softplus
    return state
