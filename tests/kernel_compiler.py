"""Compiles the Triton kernels for a GPU that need not be there, and writes what each needs, one JSON object a line.

    python tests/kernel_compiler.py 90              # compute capability 9.0
    python tests/kernel_compiler.py 86 wide         # 8.6, of what is in CASES this one

Triton's compiler and assembler run on any machine; only starting a kernel takes a GPU. So operators are given data on
the CPU, and where they would start a kernel it is compiled instead. Results are whatever memory holds; nothing looks at
them. Triton's interpreter must be off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from warmgp import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators.triton import fused, launch, split
from warmgp.solvers.triangular import inverse_factors
from warmgp.solvers.triton import steps
from warmgp.solvers.triton.packed import packed_size


class Absent:
    """Stands for the driver of a GPU of this compute capability: as much of it as the compiler asks for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compile_kernel(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Takes the place of ``start_kernel``."""
    compiled = kernel.warmup(*arguments, grid=grid, **options)
    line = {"kernel": kernel.fn.__name__, "shared": compiled.metadata.shared}
    line.update({name: value for name, value in options.items() if isinstance(value, int)})
    print(json.dumps(line), flush=True)  # noqa: T201


def operator_on(
    kernel: str, n: int, d: int, noise: float, dtype: torch.dtype, falling: bool | None = None
) -> fused.FusedOperator:
    theta = Hyperparameters.from_vector(torch.cat([torch.tensor([noise, 1.2]), torch.linspace(0.7, 2.0, d)]))
    return fused.FusedOperator(torch.randn(n, d, dtype=dtype), get_kernel(kernel), theta, falling=falling)


def use(
    kernel: str,
    n: int,
    d: int,
    c: int,
    *,
    noise: float = 0.3,
    dtype: torch.dtype = torch.float32,
    falling: bool | None = None,
) -> None:
    """Calls what solvers call."""
    operator = operator_on(kernel, n, d, noise, dtype, falling)
    V = torch.randn(n, c, dtype=dtype)
    operator.matmul(V)
    if dtype == torch.float32:
        operator.subtract_columns(V.clone(), torch.zeros(1, dtype=torch.int64), V[:128], torch.zeros(n))
        operator.subtract_columns_at(V.clone(), torch.arange(128), V[:128])
    operator.quadratic_gradient(V, V, torch.ones(c))
    operator.quadratic_gradient(V, V.clone(), torch.ones(c))
    operator.cross_gradient(slice(0, 100), slice(100, n), V, V, torch.ones(c))


def use_blocks() -> None:
    """Calls what recombined projections do beside products."""
    for kernel, d in (("matern12", 5), ("matern32", 61)):
        operator = operator_on(kernel, 300, d, 1.0, torch.float32)
        inverse_factors(operator.blocks(torch.arange(160).view(2, 80)), by_triton=True)


def use_steps() -> None:
    """Calls what alternating projections do without the operator."""
    blocks, b = 3, 64
    one = torch.zeros(1, dtype=torch.int64)
    steps.pick_block(torch.ones(blocks), one, one, one, b, blocks * b)
    r = torch.zeros(blocks * b, 65)
    steps.project_block(torch.zeros(blocks, packed_size(b)), one, r, r.clone(), b)


CASES: dict[str, Callable[[], object]] = {
    "long": lambda: use("matern12", 2 * split.LONG, 11, 65),
    "short": lambda: use("matern32", 300, 11, 65, noise=1.0),
    "wide": lambda: use("rbf", 300, 120, 65, noise=3.0),
    "beside": lambda: use("matern32", 300, 2, 74),
    "falling": lambda: use("matern52", 300, 61, 65, noise=1.0, falling=True),
    "falling, long": lambda: [use(name, split.LONG, 5, 65, falling=True) for name in ("rbf", "matern12", "matern32")],
    "double": lambda: use("matern52", 300, 3, 17, dtype=torch.float64),
    "double wide": lambda: use("matern32", 300, 61, 65, dtype=torch.float64),
    "double wider": lambda: use("matern32", 300, 200, 65, dtype=torch.float64),
    "blocks": use_blocks,
    "steps": use_steps,
}


def main(capability: int, cases: Sequence[str]) -> None:
    driver.set_active(Absent(capability))
    fused.why_not_fused = lambda *_: None  # type: ignore[assignment]
    launch.start_kernel = compile_kernel
    for case in cases or CASES:
        CASES[case]()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
