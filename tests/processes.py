"""Processes for tests that kill one: forked from a process that has imported warmgp, which saves each some seconds.

What a test calls in one is a function at the top of a module (it is found there by its name), with one thread, as the
same bits need.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from warmgp.cli import commands

CONTEXT = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
if hasattr(os, "fork"):
    CONTEXT.set_forkserver_preload(["pytest", "warmgp.cli.commands", "torch.utils.tensorboard"])

SOURCE = str(Path(commands.__file__).parents[2])  # the library that is tested here, wherever a test has gone to
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH", "")])),
}


def begin(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """The process that calls ``function``, which has begun."""
    process = CONTEXT.Process(target=_with_one_thread, args=(function, *arguments), daemon=True)
    with patch.dict(os.environ, ENVIRONMENT):  # the process they are forked from starts with the first of them
        process.start()
    return process


def finish(function: Callable[..., Any], *arguments: Any) -> int | None:
    """The exit code of a process that calls ``function``, once it has ended."""
    process = begin(function, *arguments)
    process.join()
    return process.exitcode


def _with_one_thread(function: Callable[..., Any], *arguments: Any) -> None:
    torch.set_num_threads(1)
    function(*arguments)


def warmgp(shown: Path, *arguments: object) -> None:
    """The command ``warmgp``; what it prints, and what it complains of, goes to a file."""
    with shown.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        sys.exit(commands.main([str(argument) for argument in arguments]))
