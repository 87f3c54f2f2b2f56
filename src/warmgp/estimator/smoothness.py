"""The kernel of a fit where ``kernel="auto"`` leaves it to the data: chosen before training, kept in the plan."""

from __future__ import annotations

from dataclasses import replace

import torch

from warmgp.checks import warn_user
from warmgp.estimator.prepare import TrainingData
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel, get_kernel
from warmgp.planning.decisions import TO_BE_CHOSEN
from warmgp.planning.plan import Plan
from warmgp.planning.planner import plan_for
from warmgp.planning.request import Request, Settings, is_auto
from warmgp.planning.threads import limited_threads
from warmgp.training.kernel_choice import USUAL, choose_kernel
from warmgp.training.limits import Limits


def is_chosen(settings: Settings) -> bool:
    """Says whether the data choose the kernel: not where hyperparameters are given, which belong to one already; warns
    where nobody says to which."""
    if not is_auto(settings.kernel):
        return False
    if isinstance(settings.init, Hyperparameters):
        warn_user(
            "init gives hyperparameters, which belong to one kernel, and kernel is not given: Matérn-3/2 is taken. If "
            'they come from another model, pass kernel=model.kernel_ with them, or else kernel="matern32"'
        )
        return False
    return True


def kernel_of(plan: Plan, settings: Settings) -> Kernel:
    """Returns the kernel of a fit: the one that the plan has chosen, else the one that was given."""
    return get_kernel(plan.kernel or (USUAL if is_auto(settings.kernel) else settings.kernel))


def with_kernel(
    plan: Plan,
    settings: Settings,
    data: TrainingData,
    *,
    lengths: int,
    limits: Limits,
    seed: int,
) -> tuple[Plan, Hyperparameters | None]:
    """Chooses a kernel by the data; returns the plan for it, with the reason, and where its climb ended, if it climbed.

    ``plan`` is the one for Matérn-3/2. The choice has a generator of its own, so that the same seed and data choose the
    same, and training draws what it would have drawn.
    """
    rows = data.drawn(plan.rows, seed)
    x, y = (torch.as_tensor(values).to(plan.device) for values in (rows.x, rows.y))
    request = Request.of(len(data.x), data.x.shape[1], settings, data.too_fine, data.known_noise, data.n_targets)
    with limited_threads(plan.threads):
        choice = choose_kernel(
            x, y, lengths, generator=torch.Generator().manual_seed(seed), is_map=request.is_map,
            limits=replace(limits, ratio=plan.signal_ratio), noise=rows.row_noise(plan.device),
        )  # fmt: skip
    if choice.kernel.name != USUAL:
        plan = plan_for(replace(request, chosen=choice.kernel))
    others = (reason for reason in plan.why if reason != TO_BE_CHOSEN)
    return replace(plan, kernel=choice.kernel.name, why=(choice.reason, *others)), choice.theta
