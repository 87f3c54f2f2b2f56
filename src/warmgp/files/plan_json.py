"""Plans, solvers, estimators and histories as JSON, and the checks of what is read back."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from warmgp.files.format import to_json
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.kernels import KERNELS
from warmgp.operators import OPERATORS, TRITON_OPERATORS
from warmgp.planning.plan import INITS, Plan
from warmgp.planning.planner import plan_read_on
from warmgp.planning.request import DTYPES
from warmgp.schema import (
    SchemaError,
    dict_of,
    expect,
    list_of,
    maybe,
    nothing,
    number,
    of_class,
    one_of,
    record,
    text,
    whole,
)
from warmgp.solvers import SOLVERS, Solver, StoppingRule
from warmgp.training.exact_climb import ExactClimb
from warmgp.training.local_start import LocalStart
from warmgp.training.near_start import NearStart
from warmgp.training.state import StepRecord
from warmgp.trend import MOST_TERMS

GRADIENTS: dict[str, type[GradientEstimator]] = {"exact": Exact, "standard": Standard, "pathwise": Pathwise}
DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:[0-9]{1,3})?")
UNLIMITED = {name: maybe(number(finite=False)) for name in ("max_epochs", "grow_after", "stall_epochs")}
"""Checks of budgets, which may be infinite, and None."""

CODE = {"preconditioner": nothing}
"""Checks of options that hold code, which a file does not: they must be None."""


# -- what is allowed -------------------------------------------------------------------------------------------------
def options(value: Any, name: str) -> None:
    """Raises unless ``value`` is a name with options: ours must fit their fields, those of others are not looked at."""
    record({"name": text, "options": dict_of(lambda *_: None)})(value, name)
    cls = SOLVERS.get(value["name"]) or GRADIENTS.get(value["name"])
    if cls is None:
        return
    own = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    special = {key: check for key, check in {**UNLIMITED, **CODE}.items() if key in own}
    of_class(cls, **special)(value["options"], f"{name}.options")
    try:
        cls(**value["options"])
    except ValueError as error:
        raise SchemaError(f"{name}.options: {error}") from error


def gradient(value: Any, name: str) -> None:
    """Raises unless ``value`` is the name and the options of an estimator of ours."""
    options(value, name)
    one_of(GRADIENTS)(value["name"], f"{name}.name")


def solver(value: Any, name: str) -> None:
    """Raises unless ``value`` is the name and the options of a solver, of ours or not."""
    options(value, name)
    expect(value["name"] not in GRADIENTS, name, "a solver", value["name"])


def device(value: Any, name: str) -> None:
    """Raises unless ``value`` is the name of a device, which need not be here."""
    expect(isinstance(value, str) and DEVICE.fullmatch(value) is not None, name, "a device", value)


def rule(value: Any, name: str) -> None:
    """Raises unless ``value`` holds the fields of a stopping rule."""
    of_class(StoppingRule, max_epochs=UNLIMITED["max_epochs"])(value, name)
    try:
        StoppingRule(**value)
    except ValueError as error:
        raise SchemaError(f"{name}: {error}") from error


_plan = of_class(
    Plan,
    device=device,
    dtype=one_of(DTYPES),
    operator=one_of((*OPERATORS, *TRITON_OPERATORS)),
    solver=solver,
    gradient=gradient,
    rule=rule,
    learning_rate=number(5e-324),
    init=one_of(INITS),
    n_features=whole(2, 2**31),
    start_solver=maybe(solver),
    local=maybe(of_class(LocalStart, learning_rate=number(5e-324))),
    near=maybe(of_class(NearStart)),
    climb=maybe(of_class(ExactClimb)),
    kernel=one_of(("", *KERNELS)),
    first_epochs=UNLIMITED["max_epochs"],
    last_epochs=UNLIMITED["max_epochs"],
    signal_ratio=number(finite=False),
    rows=whole(0),
    trend_terms=whole(0, MOST_TERMS),
)
_any_number = number(-math.inf, finite=False, nan=True)
_record = of_class(
    StepRecord,
    residual_mean=number(finite=False, nan=True),
    residual_probes=number(finite=False, nan=True),
    log_marginal_likelihood=maybe(_any_number),
    gain=_any_number,
    metrics=dict_of(_any_number),
)


def history(value: Any, name: str) -> None:
    """Raises unless ``value`` is a list of the records of all steps, in order."""
    list_of(_record)(value, name)
    for number_, one in enumerate(value):
        expect(one["step"] == number_, f"{name}[{number_}].step", str(number_), one["step"])


# -- there and back --------------------------------------------------------------------------------------------------
def options_to_json(thing: Solver | GradientEstimator) -> dict[str, Any]:
    """Returns the name and the options of a solver or an estimator, as a file holds them."""
    if isinstance(thing, Solver):
        return {"name": thing.saved_name, "options": thing.options()}
    return {"name": thing.name, "options": dataclasses.asdict(thing)}  # type: ignore[call-overload]


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Returns a plan as a file holds it; refuses an estimator that is not ours."""
    if GRADIENTS.get(plan.gradient.name) is not type(plan.gradient):
        raise ValueError(
            f"gradient {plan.gradient.name!r} is not part of warmgp, and a file holds no code: a model or a checkpoint "
            "with it cannot be saved"
        )
    values = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return {
        **values,
        "device": str(plan.device),
        "dtype": str(plan.dtype).removeprefix("torch."),
        "solver": options_to_json(plan.solver),
        "start_solver": None if plan.start_solver is None else options_to_json(plan.start_solver),
        "local": None if plan.local is None else dataclasses.asdict(plan.local),
        "near": None if plan.near is None else dataclasses.asdict(plan.near),
        "climb": None if plan.climb is None else dataclasses.asdict(plan.climb),
        "gradient": options_to_json(plan.gradient),
        "rule": dataclasses.asdict(plan.rule),
        "why": list(plan.why),
    }


def plan_from_json(
    values: Mapping[str, Any], *, solver: Solver | None = None, device: torch.device | None = None
) -> Plan:
    """Returns the plan of a file. ``solver`` stands in for one that is not ours; ``device`` is that of the reader."""
    values = _as_now(values)
    _plan(values, "plan")
    saved, start, near = values["solver"], values.get("start_solver"), values.get("near")
    if saved["name"] in SOLVERS:
        solver = SOLVERS[saved["name"]](**saved["options"])
    elif solver is None or solver.saved_name != saved["name"]:
        raise SchemaError(f"was made with solver {saved['name']!r}, which a file does not hold: pass it as solver=")
    elif (own := json.loads(to_json(solver.options()))) != saved["options"]:
        raise SchemaError(
            f"was made with solver {saved['name']!r} of options {saved['options']}, got {own}: pass that one"
        )
    plan = Plan(
        **{
            **values,
            "device": torch.device(values["device"]),
            "dtype": DTYPES[values["dtype"]],
            "solver": solver,
            "start_solver": SOLVERS[start["name"]](**start["options"]) if start and start["name"] in SOLVERS else None,
            "local": LocalStart(**values["local"]) if values.get("local") else None,
            "near": NearStart(**near) if near else None,
            "climb": ExactClimb(**values["climb"]) if values.get("climb") else None,
            "gradient": GRADIENTS[values["gradient"]["name"]](**values["gradient"]["options"]),
            "rule": StoppingRule(**values["rule"]),
            "why": tuple(values.get("why", ())),
        }
    )
    return plan if device is None else plan_read_on(plan, device)


def _as_now(values: Any) -> Any:
    """Returns a plan of format 2 as it is written now.

    The size of a neighbourhood had another name, and the seconds of training were part of the plan.
    """
    if not isinstance(values, dict):
        return values
    now = {{"n_neighbours": "neighbourhood_size"}.get(name, name): value for name, value in values.items()}
    now.pop("took_seconds", None)
    return now


def seconds_taken(values: Mapping[str, Any]) -> float | None:
    """Returns the seconds of training by a plan of format 2; None where it does not say."""
    seconds = values.get("took_seconds")
    maybe(number())(seconds, "plan.took_seconds")
    return seconds


def history_to_json(history: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """Returns the records of all steps as a file holds them."""
    return [dataclasses.asdict(record) for record in history]


def history_from_json(values: list[dict[str, Any]]) -> tuple[StepRecord, ...]:
    """Returns the records of all steps, which :func:`history` has checked."""
    return tuple(
        StepRecord(**{**v, "length_scales": tuple(v["length_scales"]), "notes": tuple(v.get("notes", ()))})
        for v in values
    )
