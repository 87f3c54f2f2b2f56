"""Files: a model or a checkpoint is one safetensors file, written whole or not at all, and never unpickled.

Tensors are stored as they are; everything else is JSON in the file's header, under the keys ``format`` (always
"warmgp"), ``format_version``, ``kind`` ("model" or "checkpoint"), ``warmgp_version`` and ``content``. A file is written
to a temporary name beside its target, synced and renamed. A truncated file, a file of another kind, or one of a newer
format is refused with a message that says which.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from warmgp.adam import Adam
from warmgp.features import FeaturePrior
from warmgp.gradient import Exact, GradientEstimator, Pathwise, PathwiseDraw, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.neighbour_factor import NeighbourFactor, NeighbourRecipe
from warmgp.operators import TRITON_OPERATORS
from warmgp.paths import check_readable, check_writable
from warmgp.planner import Plan
from warmgp.posterior import Posterior
from warmgp.preconditioners import PivotedCholesky, Pivots
from warmgp.solvers import SOLVERS, Solver, StoppingRule
from warmgp.solvers.cg import CGState
from warmgp.solvers.sgd import SGDState
from warmgp.stale_factor import Recipe, StaleFactor
from warmgp.training_state import StepRecord, TrainingState

FORMAT_VERSION = 1
GRADIENTS: dict[str, type[GradientEstimator]] = {"exact": Exact, "standard": Standard, "pathwise": Pathwise}


class FileError(ValueError):
    """A file that is not what it should be."""


# -- files -----------------------------------------------------------------------------------------------------------
def _plain(value: Any) -> Any:
    """A number of numpy's, such as a search over an array passes, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def write(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write tensors and JSON content to ``path``: temporary name, sync, rename."""
    from warmgp import __version__

    path = Path(path)
    check_writable(path)
    metadata = {
        "format": "warmgp",
        "format_version": str(FORMAT_VERSION),
        "kind": kind,
        "warmgp_version": __version__,
        "content": json.dumps(content, default=_plain),
    }
    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        save_file(flat, temporary, metadata=metadata)
        with Path(temporary).open("rb") as file:
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
        _sync_folder(path.parent)
    finally:
        Path(temporary).unlink(missing_ok=True)


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and content of a file of that kind, on the CPU; raises FileError for anything else."""
    path = Path(path)
    check_readable(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, ValueError, OSError) as error:
        raise FileError(
            f"{path} is not a whole warmgp file (damaged, cut short, or another format): give one that is. {error}"
        ) from error
    if metadata.get("format") != "warmgp":
        raise FileError(f"{path} is a safetensors file, but not one of warmgp")
    version = int(metadata.get("format_version", "0"))
    if version > FORMAT_VERSION:
        raise FileError(
            f"{path} has format {version}, written by warmgp {metadata.get('warmgp_version')}; this version reads "
            f"up to {FORMAT_VERSION}: upgrade warmgp"
        )
    if metadata.get("kind") != kind:
        raise FileError(f"{path} is a warmgp {metadata.get('kind')}, not a {kind}")
    return tensors, json.loads(metadata["content"])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be synced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fingerprint(*parts: Tensor | str) -> str:
    """SHA-256 over tensors (bytes and shapes) and strings."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{tuple(part.shape)} {part.dtype}".encode())
            digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# -- plans, solvers, estimators as JSON ------------------------------------------------------------------------------
def options_to_json(thing: Solver | GradientEstimator) -> dict[str, Any]:
    """A solver's or an estimator's name and options."""
    return {"name": thing.name, "options": dataclasses.asdict(thing)}  # type: ignore[call-overload]


def plan_to_json(plan: Plan) -> dict[str, Any]:
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
        "gradient": options_to_json(plan.gradient),
        "rule": dataclasses.asdict(plan.rule),
    }


def plan_from_json(
    values: Mapping[str, Any], *, solver: Solver | None = None, device: torch.device | None = None
) -> Plan:
    """The plan of a file. ``solver`` stands in for one that is not ours; ``device`` replaces the one it was made on."""
    saved = values["solver"]
    if saved["name"] in SOLVERS:
        solver = SOLVERS[saved["name"]](**saved["options"])
    elif solver is None or solver.name != saved["name"]:
        raise FileError(
            f"the file was made with solver {saved['name']!r}, which is not part of warmgp: pass it as solver="
        )
    place = device or torch.device(values["device"])
    elsewhere = values["operator"] in TRITON_OPERATORS and place.type != "cuda"
    return Plan(
        **{
            **values,
            "device": place,
            "operator": "chunked" if elsewhere else values["operator"],
            "dtype": getattr(torch, values["dtype"]),
            "solver": solver,
            "gradient": GRADIENTS[values["gradient"]["name"]](**values["gradient"]["options"]),
            "rule": StoppingRule(**values["rule"]),
            "why": tuple(values["why"]),
        }
    )


def history_to_json(history: tuple[StepRecord, ...] | list[StepRecord]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(record) for record in history]


def history_from_json(values: list[dict[str, Any]]) -> tuple[StepRecord, ...]:
    return tuple(
        StepRecord(**{**v, "length_scales": tuple(v["length_scales"]), "notes": tuple(v["notes"])}) for v in values
    )


# -- posteriors ------------------------------------------------------------------------------------------------------
def posterior_tensors(posterior: Posterior) -> dict[str, Tensor]:
    """What a posterior needs to predict; an exact model's factor is rebuilt on demand, never stored."""
    return {
        "x": posterior.x,
        "theta": posterior.theta.vector,
        "solution": posterior.solution,
        "frequencies": posterior.prior.frequencies,
        "sin_weights": posterior.prior.sin_weights,
        "cos_weights": posterior.prior.cos_weights,
    }


def posterior_from_tensors(tensors: Mapping[str, Tensor], kernel: str, exact: bool, device: torch.device) -> Posterior:
    there = {name: tensor if name == "theta" else tensor.to(device) for name, tensor in tensors.items()}
    return Posterior(
        there["x"],
        get_kernel(kernel),
        Hyperparameters.from_vector(there["theta"]),
        there["solution"],
        FeaturePrior(there["frequencies"], there["sin_weights"], there["cos_weights"]),
        exact=exact,
    )


# -- checkpoints -----------------------------------------------------------------------------------------------------
def write_checkpoint(path: str | os.PathLike[str], state: TrainingState, random: Tensor, plan: Plan, mark: str) -> None:
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
        "history": history_to_json(state.history),
        # what else solvers keep belongs to the last θ and is rebuilt at the next one anyway
        "pivots": [pivots.rank, pivots.age] if pivots is not None else None,
        "factor": [recipe.double, recipe.half] if recipe is not None else None,
        "spent": cg.spent,
        "block_size": state.solver_state if isinstance(state.solver_state, int) else None,
        "learning_rate": state.solver_state.learning_rate if isinstance(state.solver_state, SGDState) else None,
        "plan": plan_to_json(plan),
        "fingerprint": mark,
    }
    write(path, "checkpoint", tensors, content)


def read_checkpoint(
    path: str | os.PathLike[str], mark: str, *, solver: Solver | None = None, device: torch.device | None = None
) -> tuple[TrainingState, Tensor, Plan]:
    """(state, generator state, plan) of a checkpoint of the same data and settings."""
    tensors, content = read(path, "checkpoint")
    if content["fingerprint"] != mark:
        raise FileError(
            f"the checkpoint {path} belongs to other data or settings: delete it to start anew, or use another path "
            f"(one for each fit: in a cross-validation leave checkpoint out)"
        )
    plan = plan_from_json(content["plan"], solver=solver, device=device)
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
        solver_state = CGState(Recipe(theta_of_factor, *content.get("factor", ())), spent)
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
        history=history_from_json(content["history"]),
        elapsed=content["elapsed"],
    )
    return state, tensors["generator"], plan
