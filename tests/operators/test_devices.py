"""Kernels start on the device of their data, and a device that is not there is refused by name."""

from __future__ import annotations

import ast
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import torch

import warmgp
from warmgp.operators.triton.launch import run_kernel
from warmgp.planning.devices import resolve_device


class _Guard:
    """In the place of torch.cuda.device: what is current, innermost last."""

    current: list[int]

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        _Guard.current.append(self.index)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _Guard.current.pop()


class _Kernel:
    """A kernel that tells on which device it was started, and with what."""

    def __init__(self) -> None:
        self.started: list[tuple[int, Any, tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **options: self.started.append((_Guard.current[-1], grid, arguments, options))


class _Data:
    """A tensor of that GPU, as far as it matters."""

    is_cuda = True

    def __init__(self, index: int) -> None:
        self.index = index

    def get_device(self) -> int:
        return self.index


def test_a_kernel_starts_on_the_device_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", _Guard)
    _Guard.current = [0]
    kernel, data = _Kernel(), [_Data(1), _Data(0)]
    for each in data:
        run_kernel(kernel, (2, 3), each, 5, S=16)  # type: ignore[arg-type]
    assert kernel.started == [(1, (2, 3), (data[0], 5), {"S": 16}), (0, (2, 3), (data[1], 5), {"S": 16})]
    assert _Guard.current == [0]


def test_no_kernel_is_started_in_another_way() -> None:
    """kernel[grid](...) stands in one file only: anywhere else it would start on the current device."""
    root = Path(warmgp.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text())
        triton = any(isinstance(node, ast.Import) and node.names[0].name == "triton" for node in ast.walk(tree))
        if not triton and path.name != "launch.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                found.add(path.relative_to(root).as_posix())
    assert found == {"operators/triton/launch.py"}


def test_a_gpu_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    assert resolve_device("cuda") == torch.device("cuda")
    with pytest.raises(ValueError, match=r"device='cuda:2' but torch sees cuda:0, cuda:1 only: use one of them"):
        resolve_device("cuda:2")
