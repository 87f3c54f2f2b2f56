"""Rehearses a training for a GPU that is not there, then asks for the same, and writes where each kernel was compiled.

    python tests/kernel_rehearsal.py 90                 # compute capability 9.0: a JSON object for every kernel
    python tests/kernel_rehearsal.py 90 forgetful       # as Triton up to 3.6, which does not know of what is compiled
    python tests/kernel_rehearsal.py 90 interrupted     # what is compiled in a thread fails, as after Ctrl-C

A kernel that is to be started is asked for instead, which compiles it unless Triton has it. See ``kernel_compiler.py``.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from triton import JITFunction, knobs
from triton.runtime import driver

from kernel_compiler import Absent, operator_on
from warmgp import Pathwise, RecombinedProjections
from warmgp.operators.triton import fused, launch
from warmgp.training.problem import Problem
from warmgp.training.rehearsal import ask
from warmgp.training.state import TrainingOptions

compile_kernel = launch.compile_kernel


def tell(**compiled: Any) -> None:
    line = {"kernel": compiled["src"].fn.__name__, "ahead": in_a_thread()}
    sys.stdout.write(json.dumps(line) + "\n")  # at once: threads write, too


def in_a_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


def start(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """Takes the place of a start: the attribute is asked for as Triton does, which waits for a kernel."""

    def ask_for(*arguments: Any, **options: Any) -> None:
        assert kernel.warmup(*arguments, grid=grid, **options).metadata.shared >= 0

    return ask_for


def forget(kernel: Any, *arguments: Any, **options: Any) -> None:
    compile_kernel(kernel, *arguments, **options)
    for found, *_ in kernel.device_caches.values():
        for key in [key for key, one in found.items() if isinstance(one, launch.Awaited)]:
            del found[key]


def fail(real: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*arguments: Any, **options: Any) -> Any:
        if in_a_thread():
            raise RuntimeError("interrupted")
        return real(*arguments, **options)

    return compiled


def main(capability: int, trouble: str = "") -> None:
    driver.set_active(Absent(capability))
    fused.why_not_fused = lambda *_: None  # type: ignore[assignment]
    JITFunction.__getitem__ = start
    knobs.compilation.listener = tell
    if trouble == "forgetful":
        launch.compile_kernel = forget
    if trouble == "interrupted":
        launch.Awaited.__init__ = interrupted(launch.Awaited.__init__)  # type: ignore[method-assign]
    operator = operator_on("matern52", 300, 7, 0.3, torch.float32)
    problem = Problem(operator, torch.zeros(300))
    options = TrainingOptions(RecombinedProjections(64), Pathwise(16, 32))
    for _ in range(2):  # as at the begin of a fit, and once its start has ended
        launch.compile_ahead(lambda: ask(problem, options, operator.theta))
    for _ in range(2):
        ask(problem, options, operator.theta)


def interrupted(real: Callable[..., None]) -> Callable[..., None]:
    def begin(self: launch.Awaited, threads: Any, compile_one: Callable[[], Any], keep: Callable[[Any], None]) -> None:
        real(self, threads, fail(compile_one), keep)

    return begin


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
