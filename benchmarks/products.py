"""Kernel products on this machine against the limits that it shows in the same run.

    python -m benchmarks.products --out benchmarks/results/products-local.json

For each size: one H·V with 65 columns by the dense operator (H stored), the chunked operator (H recomputed) and one
quadratic gradient. Two limits, measured beside them: the matrix product that every one of them contains (n² · 65 · 2
operations at this machine's rate), and one exponential per kernel entry (n² of them). The error of each product against
float64 is checked on a few hundred rows: a result that misses 1e-5 is refused.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.common import machine, write_json
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import ChunkedOperator, DenseOperator

SIZES = ((4_000, 3), (4_000, 26), (8_000, 11))


def seconds(function: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """Median time after one warm-up."""
    times = []
    for i in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        if i:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(n: int, d: int, device: str) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator).to(device)
    V = torch.randn(n, 65, generator=generator).to(device)
    kernel, theta = get_kernel("matern32"), Hyperparameters.ones(d)
    dense, chunked = DenseOperator(x, kernel, theta), ChunkedOperator(x, kernel, theta)
    rows = torch.arange(0, n, max(1, n // 256), device=device)
    truth = ChunkedOperator(x.double(), kernel, theta).rows_matmul(rows, V.double())
    for name, product in (("dense", dense.matmul(V)), ("chunked", chunked.matmul(V))):
        error = float((product[rows].double() - truth).norm() / truth.norm())
        if not error <= 1e-5:
            raise SystemExit(f"{name} product at n={n}, d={d} misses its accuracy: {error:.1e} > 1e-5")
    entries = n * n
    matrix = torch.randn(n, n, device=device)
    picoseconds = {
        "limit_product": seconds(lambda: matrix @ V, device),
        "limit_exponential": seconds(lambda: torch.exp(matrix), device),
        "dense_matmul": seconds(lambda: dense.matmul(V), device),
        "chunked_matmul": seconds(lambda: chunked.matmul(V), device),
        "quadratic_gradient": seconds(lambda: chunked.quadratic_gradient(V, V, torch.ones(65)), device),
    }
    return {name: 1e12 * value / entries for name, value in picoseconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    print("picoseconds per kernel entry, float32, 65 columns")
    print("      n   d   limits: product     exp |    dense  chunked  gradient")
    records = []
    for n, d in SIZES:
        found = measure(n, d, args.device)
        records.append({"n": n, "d": d, "picoseconds_per_entry": found})
        print(
            f"{n:>7,} {d:>3}   {found['limit_product']:>15,.0f} {found['limit_exponential']:>7,.0f} | "
            f"{found['dense_matmul']:>8,.0f} {found['chunked_matmul']:>8,.0f} {found['quadratic_gradient']:>9,.0f}",
            flush=True,
        )
    if args.out:
        write_json(args.out, {"machine": machine(args.device), "columns": 65, "dtype": "float32", "sizes": records})
    return 0


if __name__ == "__main__":
    sys.exit(main())
