"""Small iterations recorded once and replayed: on a GPU their launches would cost more than their work."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch

from warmgp.operators.base import KernelOperator
from warmgp.solvers.streams import recording


class Recorded:
    """Runs a function of no arguments that works on tensors in place: from its second call on, as a CUDA graph.

    The first call runs as usual, which compiles and initialises what it needs; the second records a graph, which it and
    all later calls replay. On a CPU, and with other processes, every call is a plain one. The function must not
    transfer anything to the host.
    Kernel entries that a replay evaluates are counted in the operator like those of a call.
    """

    def __init__(self, function: Callable[[], None], operator: KernelOperator) -> None:
        self.function = function
        self.operator = operator
        self.calls = 0
        self._entries = 0  # kernel entries that one replay evaluates
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1 or self.operator.device.type != "cuda" or not self.operator.part.alone:
            self.function()
            return
        if self._graph is None:
            before = self.operator.entries_evaluated
            self._graph = self._record()
            self._entries = self.operator.entries_evaluated - before
            self.operator.entries_evaluated = before
        self._graph.replay()
        self.operator.entries_evaluated += self._entries

    def _record(self) -> torch.cuda.CUDAGraph:
        """Returns the function as a graph.

        ``torch.cuda.graph`` would also collect garbage and empty caches, which takes longer. Here garbage waits until
        the recording is over: an old graph that were freed meanwhile would end it.
        """
        graph, stream = torch.cuda.CUDAGraph(), recording(self.operator.device)
        stream.wait_stream(torch.cuda.current_stream(self.operator.device))
        with torch.cuda.stream(stream), _garbage_waits():
            graph.capture_begin()
            try:
                self.function()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.operator.device).wait_stream(stream)
        return graph


@contextlib.contextmanager
def _garbage_waits() -> Iterator[None]:
    """Collects no garbage within its block."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
