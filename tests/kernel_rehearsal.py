"""Rehearses a training for a GPU that is not there, then asks for the same, and writes where each kernel was compiled.

    python tests/kernel_rehearsal.py 90              # compute capability 9.0: a JSON object for every kernel

A kernel that is to be started is asked for instead, which compiles it unless Triton has it. See ``kernel_compiler.py``.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import torch
from triton import knobs
from triton.runtime import driver

from kernel_compiler import Absent, operator_on
from warmgp import Pathwise, RecombinedProjections
from warmgp.operators.triton import fused, launch
from warmgp.training.problem import Problem
from warmgp.training.rehearsal import ask
from warmgp.training.state import TrainingOptions


def tell(**compiled: Any) -> None:
    thread = threading.current_thread()
    line = {"kernel": compiled["src"].fn.__name__, "ahead": thread is not threading.main_thread()}
    sys.stdout.write(json.dumps(line) + "\n")  # at once: threads write, too


def start_kernel(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Takes the place of the one in ``launch``."""
    launch.hand_over(kernel.fn)
    kernel.warmup(*arguments, grid=grid, **options)


def main(capability: int) -> None:
    driver.set_active(Absent(capability))
    fused.why_not_fused = lambda *_: None  # type: ignore[assignment]
    launch.start_kernel = start_kernel
    knobs.compilation.listener = tell
    operator = operator_on("matern52", 300, 7, 0.3, torch.float32)
    problem = Problem(operator, torch.zeros(300))
    options = TrainingOptions(RecombinedProjections(64), Pathwise(16, 32))
    for _ in range(2):  # as at the begin of a fit, and once its start has ended
        launch.compile_ahead(lambda: ask(problem, options, operator.theta))
    ask(problem, options, operator.theta)


if __name__ == "__main__":
    main(int(sys.argv[1]))
