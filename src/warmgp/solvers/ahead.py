"""Things that are made one ahead of their use: on a GPU on a stream of its own, while the one before is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from warmgp.solvers.streams import beside


class HasTensors(Protocol):
    """Names the tensors that it holds, which is all that is asked of what is made ahead."""

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...


Made = TypeVar("Made", bound=HasTensors)


class Ahead(Generic[Made]):
    """Takes one thing after another from an iterator, whose kernels run beside those that use the thing before.

    Small kernels that wait for one another, such as factorisations, leave most of a GPU idle; a product fills it. On a
    CPU things are made when they are taken.
    """

    def __init__(self, things: Iterator[Made], device: torch.device) -> None:
        self._things, self._device = things, device
        self._stream = beside(device) if device.type == "cuda" else None
        self._next: tuple[Made, torch.cuda.Event] | None = None
        if self._stream is not None:  # it reads what was written until now
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def prepare(self) -> None:
        """Starts to make the next thing; the host does not wait for it."""
        if self._stream is None or self._next is not None:
            return
        with torch.cuda.stream(self._stream):
            made = next(self._things)
            self._next = made, self._stream.record_event()

    def take(self) -> Made:
        """Returns the next thing, which kernels launched from now on may use."""
        if self._stream is None:
            return next(self._things)
        self.prepare()
        assert self._next is not None
        (made, ready), self._next = self._next, None
        current = torch.cuda.current_stream(self._device)
        current.wait_event(ready)
        for tensor in made.tensors:  # their memory is not used again before this stream has read it
            tensor.record_stream(current)
        return made

    def end(self) -> None:
        """Makes the current stream wait for what was made in vain, so that what it reads may be freed; the host does
        not wait. Nothing can be taken afterwards."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._next = None
