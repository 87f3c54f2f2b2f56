"""What a checkpoint holds: the whole state of a training, the generator's, the plan, and what it was made from.

What the solver and the estimator keep is packed by themselves (:meth:`Solver.pack`, :meth:`GradientEstimator.pack`). A
solver's part stands under ``solver_state``, in the content and before the names of its tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from warmgp.files import plan_json
from warmgp.files.atomic import Claim
from warmgp.files.format import FileError, read, write
from warmgp.hyperparameters import Hyperparameters
from warmgp.planning.memory import training_bytes
from warmgp.planning.planner import Plan
from warmgp.processes import Team
from warmgp.schema import (
    DOUBLE,
    SchemaError,
    TensorRule,
    check_tensors,
    dict_of,
    expect,
    number,
    record,
    text,
    whole,
)
from warmgp.training.adam import Adam
from warmgp.training.state import TrainingState
from warmgp.trend import TrendSolution

Mark = Mapping[str, str]
"""What a training is made from, by name: its settings as text, its data as fingerprints."""

VERB = "verb"
"""The name under which a mark says what is trained, "update"; that of a fit does not say it."""

STARTS = ("init", "sample_size", "local", "near", "learning_rate", "relative_steps")
"""What of a plan depends on whether the number of steps was given, and decides where training starts and goes."""

SOLVER = "solver_state"
CONTENT = record(
    {
        "step": whole(),
        "adam_t": whole(),
        "elapsed": number(),
        "history": plan_json.history,
        "plan": lambda *_: None,  # checked when it is read
        "fingerprint": text,
        SOLVER: dict_of(lambda *_: None),  # checked by the solver
    },
    {"made_from": dict_of(text)},
)
TENSORS = {
    "nu": TensorRule(("t",), DOUBLE),
    "adam_first": TensorRule(("t",), DOUBLE),
    "adam_second": TensorRule(("t",), DOUBLE),
    "generator": TensorRule(("g",), (torch.uint8,)),
}
TREND = {"trend_solution": TensorRule(("n", "p")), "trend_coefficients": TensorRule(("p",), DOUBLE)}
SEVERAL = {"trend_coefficients": TensorRule(("p", "q"), DOUBLE)}
"""What is shaped otherwise with several targets."""
SOLVED = {"solution": TensorRule(("n", "q + s")), "solution_theta": TensorRule(("t",), DOUBLE, positive=True)}


def write_checkpoint(
    path: str | os.PathLike[str],
    state: TrainingState,
    random: Tensor,
    plan: Plan,
    fingerprint: str,
    made_from: Mark | None = None,
    claim: Claim | None = None,
) -> None:
    """Writes all that a resume needs, with the generator's state and the fingerprint of data and settings."""
    tensors = {
        "nu": state.nu,
        "adam_first": state.adam.first,
        "adam_second": state.adam.second,
        "generator": random,
        **plan.gradient.pack(state.draw),
    }
    if state.solution is not None and state.solution_theta is not None:
        tensors |= {"solution": state.solution, "solution_theta": state.solution_theta.vector}
    if state.trend is not None:
        tensors |= {"trend_solution": state.trend.solution, "trend_coefficients": state.trend.coefficients}
    solver_tensors, solver_content = plan.solver.pack(state.solver_state)
    tensors |= {f"{SOLVER}.{name}": tensor for name, tensor in solver_tensors.items()}
    content = {
        "step": state.step,
        "adam_t": state.adam.t,
        "elapsed": state.elapsed,
        "history": plan_json.history_to_json(state.history),
        SOLVER: solver_content,
        "plan": plan_json.plan_to_json(plan),
        "fingerprint": fingerprint,
        "made_from": dict(made_from or {}),
    }
    write(path, "checkpoint", tensors, content, claim)


def read_checkpoint(
    path: str | os.PathLike[str],
    fingerprint: str,
    plan: Plan,
    shape: tuple[int, int],
    made_from: Mark | None = None,
    team: Team | None = None,
) -> tuple[TrainingState, Tensor, Plan]:
    """Returns (state, generator state, plan) of a checkpoint of the same data and settings; only the number of steps
    may be another, if no fewer than were taken.

    ``plan`` is what would be done without the file, for data of that ``shape``: its device is taken, and its solver
    where the file names one that is not ours. The state has the rows of this process of a ``team``.
    """
    tensors, content = read(path, "checkpoint")
    try:
        tensors, content = _as_now(tensors, content)
        CONTENT(content, "")
        differ = content["fingerprint"] != fingerprint
        more_steps = differ and _differing(content, made_from or {}) == ["n_steps"]
        if differ and not more_steps:
            raise FileError(_refusal(path, content, made_from or {}))
        saved = plan_json.plan_from_json(content["plan"], solver=plan.solver, device=plan.device)
        if more_steps:
            if why := _why_no_more(saved, plan, content["step"]):
                raise FileError(_refusal(path, content, made_from or {}, f"; {why}"))
            saved = replace(
                saved, n_steps=plan.n_steps, settle=plan.settle, estimated_seconds=plan.estimated_seconds,
                signal_ratio=plan.signal_ratio,
            )  # fmt: skip
        expect(saved.rows <= shape[0], "plan.rows", f"at most {shape[0]}", saved.rows)
        shape = saved.rows or shape[0], shape[1]
        solver_tensors = {name: tensors.pop(name) for name in list(tensors) if name.startswith(f"{SOLVER}.")}
        _check(tensors, content, saved, plan, shape, 1 if team is None else team.size)
        packed = {name.removeprefix(f"{SOLVER}."): tensor for name, tensor in solver_tensors.items()}
        solver_state = saved.solver.unpack(packed, content[SOLVER], shape)
        own = tensors if team is None else _own_rows(tensors, saved, team)
        return _state(own, content, saved, solver_state), tensors["generator"], saved
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"the checkpoint {path} {error}: delete it to start anew") from error


def _as_now(tensors: dict[str, Tensor], content: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns a checkpoint of format 2, where a solver's state stood among everything else, as it is written now."""
    if SOLVER in content:
        return tensors, content
    values = ("pivots", "factor", "spent", "block_size", "learning_rate")
    parts = ("pivots", "factor_theta", "neighbour_lengths")
    others = {name: value for name, value in content.items() if name not in values}
    kept = {name: content[name] for name in values if content.get(name)}  # 0 and null stood for nothing
    moved = {f"{SOLVER}.{name}" if name in parts else name: tensor for name, tensor in tensors.items()}
    return moved, {**others, SOLVER: kept}


def _refusal(path: str | os.PathLike[str], content: Mapping[str, Any], now: Mark, why: str = "") -> str:
    """Returns the message about a checkpoint of another fit, or of another update."""
    then, verb = _verb(content.get("made_from", {})), _verb(now)
    if then != verb:
        other, this = ("an update", "a fit") if verb == "fit" else ("a fit", "an update")
        return (
            f"the checkpoint {path} is one of {other}, and this is {this}: use another path for the checkpoint, or "
            f"delete the file if what it belongs to has ended"
        )
    among = "fit: in a cross-validation leave checkpoint out" if verb == "fit" else "update"
    ended = ""
    if "the model's rows" in _differing(content, now):
        ended = ". If that update has ended, its model has the new rows already"
    return (
        f"the checkpoint {path} belongs to other data or settings{_differences(content, now)}{why}{ended}. "
        "Give what it was made with to go on from it, delete it to start anew, or use another path "
        f"(one for each {among})"
    )


def _verb(mark: Mark) -> str:
    """Returns what a mark is of, "fit" or "update"."""
    return "fit" if VERB not in mark else "update"


def _differing(content: Mapping[str, Any], now: Mark) -> list[str]:
    """Returns the names of data and settings that differ, where the file says what it was made from."""
    then = content.get("made_from", {})
    return [name for name in ({**then, **now} if then else ()) if then.get(name) != now.get(name)]


def _differences(content: Mapping[str, Any], now: Mark) -> str:
    """Tells which data and settings differ: ": it was made with kernel='matern32', and this fit has kernel='rbf'"."""
    then, names = content.get("made_from", {}), _differing(content, now)
    settings = [name for name in names if _is_told(then.get(name)) and _is_told(now.get(name))]
    others = [name for name in names if name not in settings]
    told = []
    if settings:
        before, after = (", ".join(_told(name, mark.get(name)) for name in settings) for mark in (then, now))
        told.append(f"it was made with {before}, and this {_verb(now)} has {after}")
    if others:
        told.append(f"{', '.join(others)} {'differs' if len(others) == 1 else 'differ'}")
    return f": {'; '.join(told)}" if told else ""


def _is_told(value: str | None) -> bool:
    """Says whether the value of a setting is short enough for a message; fingerprints of data are longer."""
    return value is None or len(value) <= 60


def _told(name: str, value: str | None) -> str:
    """Returns a setting as a user writes it, from its JSON; one that is not there has its default."""
    try:
        return f"the default {name}" if value is None else f"{name}={json.loads(value)!r}"
    except ValueError:  # a file may say anything
        return f"{name}={value}"


def _why_no_more(saved: Plan, plan: Plan, step: int) -> str:
    """Says why a training cannot go on with another number of steps; "" where it ends as if it had begun with it."""
    if plan.settle:
        return "a number of steps cannot become n_steps='auto'"
    if plan.n_steps < step:
        return f"it has taken {step} steps already"
    if any(getattr(saved, name) != getattr(plan, name) for name in STARTS):
        return "with this number it would have started elsewhere (begin at its end: init=model.hyperparameters_)"
    return ""


def _check(
    tensors: Mapping[str, Tensor],
    content: Mapping[str, Any],
    saved: Plan,
    plan: Plan,
    shape: tuple[int, int],
    processes: int,
) -> None:
    """Raises unless the tensors fit their rules, each other, the content and the plan."""
    n, d = shape
    draw = saved.gradient.draw_rules
    rules = dict(TENSORS)
    for together in (SOLVED, draw):
        if any(name in tensors for name in together):
            rules |= together
    if "solution" in tensors and saved.trend_terms:
        rules |= TREND if saved.rule.n_targets == 1 else TREND | SEVERAL
    probes, features = saved.gradient.n_probes, getattr(saved.gradient, "n_features", saved.n_features)
    q = saved.rule.n_targets
    expect(q == plan.rule.n_targets, "plan.rule.n_targets", f"{plan.rule.n_targets}", q)
    known = {"p": saved.trend_terms, "n": n, "d": d, "s": probes, "q": q, "q + s": q + probes, "m": features // 2}
    lengths = check_tensors(tensors, rules, known)["t"] - 2
    expect(lengths in (1, d), "nu", f"{2 + d} or 3 numbers", 2 + lengths)
    working = {tensors[name].dtype for name in ("solution", "trend_solution", *draw) if name in tensors}
    expect(len(working) <= 1, "solution", "like its probes", "not")
    expect(bool((tensors["adam_second"] >= 0).all()), "adam_second", "at least 0", "negative numbers")
    expect(
        len(content["history"]) == content["step"], "step", f"{len(content['history'])} as in history", content["step"]
    )
    for one in content["history"]:
        expect(len(one["length_scales"]) == lengths, "length_scales", f"{lengths} numbers", len(one["length_scales"]))
    for name, given in (("plan.n_features", saved.n_features), ("plan.gradient.n_features", features)):
        expect(
            given == plan.n_features or saved.rows != plan.rows, name, f"{plan.n_features} as by the settings", given
        )
    expect(saved.trend_terms == plan.trend_terms, "plan.trend_terms", f"{plan.trend_terms}", saved.trend_terms)
    needs = training_bytes(saved, n, d, processes)
    if needs > 2 * plan.memory_budget:  # what is free changes from day to day
        raise SchemaError(
            f"needs about {needs / 2**30:.1f} GiB, and the memory budget is {plan.memory_budget / 2**30:.1f} GiB"
        )


def _own_rows(tensors: Mapping[str, Tensor], plan: Plan, team: Team) -> dict[str, Tensor]:
    """Returns the tensors of a checkpoint with the rows of this process alone, where they have a row for each point."""
    rules = {**SOLVED, **TREND, **plan.gradient.draw_rules}
    by_rows = {name for name, rule in rules.items() if rule.shape[0] == "n"}
    return {
        name: tensor[team.rows(len(tensor))].clone() if name in by_rows else tensor for name, tensor in tensors.items()
    }


def _state(tensors: Mapping[str, Tensor], content: Mapping[str, Any], plan: Plan, solver_state: Any) -> TrainingState:
    """Returns the training state, on the plan's device."""
    try:
        torch.Generator().set_state(tensors["generator"])
    except RuntimeError as error:
        raise SchemaError("has a random generator's state that torch does not take") from error
    there = {name: tensor.to(plan.device) for name, tensor in tensors.items()}
    theta = tensors.get("solution_theta")
    state = TrainingState(
        step=content["step"],
        nu=tensors["nu"],
        adam=Adam(tensors["adam_first"], tensors["adam_second"], content["adam_t"]),
        draw=plan.gradient.unpack(there),
        solution=there.get("solution"),
        solution_theta=Hyperparameters.from_vector(theta) if theta is not None else None,
        solver_state=solver_state,
        trend=TrendSolution(there["trend_solution"], there["trend_coefficients"])
        if "trend_solution" in there
        else None,
        history=plan_json.history_from_json(content["history"]),
        elapsed=content["elapsed"],
    )
    _ = state.theta  # or raise, where ν is out of the range of softplus
    return state
