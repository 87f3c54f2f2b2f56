"""A device that is not there: tensors that say they are elsewhere, and refuse to meet those of the CPU.

What decides on the host is the same code on a CPU and on a GPU. On a CPU nobody notices where it multiplies a tensor of
one device by one of another, or draws on a GPU from a generator of the CPU; on a GPU that is an error. Here the CPU
computes, and what a GPU would refuse is refused. Code that asks whether it is on a CPU takes its other form; Triton's
kernels, graphs and streams, which are for "cuda" alone, are not reached.

    with other_device() as device:
        GPRegressor(device=device).fit(X, y)

``pytest --elsewhere`` runs every test so whose estimator would take the CPU.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("lazy")
"""A kind of device that torch knows by name, and for which it asks no driver."""

aten = torch.ops.aten

ACROSS = {aten.copy_.default, aten._to_copy.default}
"""What takes numbers from one device to another."""

INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""What takes index tensors of the CPU for a tensor of any device."""

JOINED = {aten.cat.default, aten.stack.default}
"""What takes no single number of the CPU beside tensors of another device, as pointwise operations do."""


class Elsewhere(Tensor):
    """Is a tensor of the CPU, ``here``, that says it is on ``DEVICE``."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> Elsewhere:
        strided = here.layout == torch.strided
        placed = {"strides": here.stride(), "storage_offset": here.storage_offset()} if strided else {}
        made = torch.Tensor._make_wrapper_subclass(
            cls, here.size(), **placed, dtype=here.dtype, layout=here.layout, device=DEVICE
        )
        made.here = here
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.here!r})"

    def tolist(self) -> Any:
        return self.here.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() first.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_listed(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_listed(index), value)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(func, args, kwargs or {})


def _listed(index: Any) -> Any:
    """Returns an index with tensors for its lists, which torch would make on the device where nobody sees it."""
    if isinstance(index, tuple):
        return tuple(_listed(one) for one in index)
    if not isinstance(index, list):
        return index
    return torch.tensor(index, dtype=None if index else torch.long)


class _Given(TorchFunctionMode):
    """Takes numbers to ``DEVICE`` that torch would make there where nobody sees it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func not in (torch.tensor, torch.as_tensor) or kwargs.get("device") != DEVICE:
            return func(*args, **kwargs)
        if isinstance(args[0], Elsewhere):
            return args[0].to(kwargs.get("dtype") or args[0].dtype)
        return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)


class _Made(TorchDispatchMode):
    """Sees to tensors that are made on ``DEVICE``, or taken there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(func, args, kwargs or {})


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns what an operation gives, on the device where it would be; raises where a GPU would."""
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    there = [one for one in tensors if isinstance(one, Elsewhere)]
    asked = kwargs.get("device")
    to_there = bool(there) if asked is None else torch.device(asked).type == DEVICE.type
    if not there and not to_there:
        return func(*args, **kwargs)
    if there:
        _check(func, args, tensors)
    if to_there and kwargs.get("generator") is not None:
        raise RuntimeError(f"Expected a {DEVICE} device type for generator but found cpu")
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    args, kwargs = tree_map_only(Elsewhere, lambda one: one.here, (args, kwargs))
    if func is aten._to_copy.default:
        found = args[0].clone().to(kwargs.get("dtype") or args[0].dtype)
    else:
        found = func(*args, **kwargs)
    known = {id(one.here): one for one in there}

    def placed(one: Tensor) -> Tensor:
        own = known.get(id(one))  # what was changed in its place
        if own is None:
            return Elsewhere(one)
        if own.shape != one.shape:  # squeezed, say
            own.data = Elsewhere(one)
        return own

    return tree_map_only(Tensor, placed, found) if to_there else found


def _check(func: Any, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
    """Raises where tensors of both devices meet."""
    if func in ACROSS:
        return
    here = [one for one in tensors if not isinstance(one, Elsewhere)]
    if func in INDEXED and isinstance(args[0], Elsewhere):
        indices = {id(one) for one in args[1]}
        here = [one for one in here if id(one) not in indices]
    changed = func._schema.is_mutable and not isinstance(args[0], Elsewhere)
    if changed or any(one.dim() > 0 or func in JOINED for one in here):
        raise RuntimeError(f"Expected all tensors to be on the same device, but {func} has some on {DEVICE} and on cpu")


@contextlib.contextmanager
def other_device() -> Iterator[torch.device]:
    """Yields the device, on which tensors can be made within."""
    with _Given(), _Made():
        yield DEVICE


@contextlib.contextmanager
def everything_elsewhere() -> Iterator[None]:
    """Has estimators take the device, within, where they would take the CPU, and files name it."""
    from warmgp.files import plan_json
    from warmgp.planning.devices import resolve_device

    def there(device: Any) -> torch.device:
        found = resolve_device(device)
        return DEVICE if found.type == "cpu" else found

    with pytest.MonkeyPatch.context() as patch, other_device():
        for name, module in list(sys.modules.items()):
            if name.startswith("warmgp.") and getattr(module, "resolve_device", None) is resolve_device:
                patch.setattr(module, "resolve_device", there)
        patch.setattr(plan_json, "DEVICE", re.compile(f"{DEVICE.type}|{plan_json.DEVICE.pattern}"))
        yield
