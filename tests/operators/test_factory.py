"""Operators by name, their twins in float64, and that the library makes them nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import warmgp
from warmgp import ChunkedOperator, DenseOperator, Hyperparameters, Matern32
from warmgp.operators import OPERATORS, TRITON_OPERATORS, has_triton, make_operator

SOURCE = Path(warmgp.__file__).parent
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
V = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
THETA = Hyperparameters(0.3, 1.2, [0.7, 1.0, 2.0])
KINDS = pytest.mark.parametrize("kind", [*OPERATORS, *TRITON_OPERATORS])


def operator_of(kind: str, **options: int) -> warmgp.KernelOperator:
    if kind in TRITON_OPERATORS and not has_triton():
        pytest.skip("needs Triton")
    x = X.cuda() if kind in TRITON_OPERATORS and torch.cuda.is_available() else X
    return make_operator(kind, x, Matern32(), THETA, **options)


def test_auto_stores_nothing_and_leaves_the_interpreter_alone() -> None:
    """Also where Triton's interpreter could fuse on a CPU, as in these tests."""
    assert type(make_operator("auto", X, Matern32(), THETA)) is ChunkedOperator


@pytest.mark.gpu
def test_auto_is_fused_on_a_gpu_where_the_kernel_has_a_form() -> None:
    class Other(Matern32):
        def profile(self, r: torch.Tensor) -> torch.Tensor:
            return super().profile(2.0 * r)

    assert type(make_operator("auto", X.cuda(), Matern32(), THETA)).__name__ == "FusedOperator"
    assert type(make_operator("auto", X.cuda(), Other(), THETA)) is ChunkedOperator


@KINDS
def test_options_go_to_the_operator(kind: str) -> None:
    assert operator_of(kind, tile_entries=123).tile_entries == 123


@pytest.mark.parametrize("twin", ["chunked", "dense"])
@KINDS
def test_a_twin_in_float64_has_the_same_data_and_tiles_and_counts_in_the_original(kind: str, twin: str) -> None:
    operator = operator_of(kind, tile_entries=40**2)
    operator.entries_evaluated = 7
    double = operator.in_float64(twin)
    assert type(double) is OPERATORS[twin]
    assert double.dtype == torch.float64 and double.device == operator.device and double.tile_entries == 40**2
    fresh = make_operator(twin, operator.x.double(), Matern32(), THETA, tile_entries=40**2)
    columns = V.to(operator.device, torch.float64)
    assert torch.equal(double.matmul(columns), fresh.matmul(columns))
    assert operator.entries_evaluated == double.entries_evaluated == 7 + 40**2
    operator.entries_evaluated = 0
    assert double.entries_evaluated == 0
    operator.at(THETA).in_float64().matmul(columns)
    assert operator.entries_evaluated == 0  # an operator of its own since then


def test_a_twin_on_inputs_before_rounding() -> None:
    exact = X.double() + 1e-9
    operator = make_operator("dense", X, Matern32(), THETA)
    assert type(operator.in_float64()) is ChunkedOperator
    assert operator.in_float64(x=exact).x is exact
    double = make_operator("dense", exact, Matern32(), THETA)
    assert double.in_float64("dense").x is exact  # nothing to convert
    with pytest.raises(ValueError, match=r"x must be float64, got torch\.float32"):
        operator.in_float64(x=X)


def made_directly(root: Path) -> list[str]:
    """Where an operator is made by its class, outside of the room of operators."""
    names = {DenseOperator.__name__, ChunkedOperator.__name__, "FusedOperator"}
    found = []
    for path in root.rglob("*.py"):
        room = path.relative_to(root).parts[0]
        if room == "operators":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
            if called in names:
                found.append(f"{path.relative_to(root)}:{node.lineno} {called}")
    return found


def test_the_library_makes_operators_by_the_factory_alone() -> None:
    assert made_directly(SOURCE) == []


def test_an_operator_made_directly_is_seen(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "bad.py").write_text(
        "a = DenseOperator(x, k, t)\nb = operators.ChunkedOperator(x, k, t)\n"
    )
    assert made_directly(tmp_path) == ["training/bad.py:1 DenseOperator", "training/bad.py:2 ChunkedOperator"]
