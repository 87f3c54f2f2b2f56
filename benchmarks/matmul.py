"""Kernel products on a GPU: picoseconds per kernel entry, error against float64, distance to the roofline.

    python -m benchmarks.matmul --out benchmarks/results/matmul-h200.json

One run times the fused operator, chunked and dense torch on the same inputs, for V of 65 columns; and the
block products of alternating projections (1,000 columns of H, subtracted in place) up to 1,844,352 points, with none,
one and three inputs that spread so widely at low noise that they have to be differenced. An error
above 1e-5 of |HV| makes a result invalid: it is printed as such and the exit code is 1. The two numbers of the
roofline, per kernel entry with 65 columns: tensor-core operations 2·(3·64 + 3·D) on float16 halves (D inputs, padded;
none where distances are exact), against the rate of a large float16 product measured in the same run; and two
special-function operations (square root, power of two) at 16 a clock and multiprocessor. The larger is the floor.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton

from warmgp import ChunkedOperator, DenseOperator, Hyperparameters, KernelOperator, Matern32
from warmgp.operators.triton.fused import FusedOperator
from warmgp.operators.triton.split import Tile

SHAPES = ((13_500, 26, 0), (43_945, 20, 0), (100_000, 11, 0), (391_387, 3, 0), (100_000, 11, 1))
"""Points, inputs, and how many of those spread widely."""

BLOCKS = ((13_500, 26, 0), (43_945, 20, 0), (1_844_352, 11, 0), (1_844_352, 11, 1), (1_844_352, 11, 3))
"""Points, inputs, and how many of those are wide, of the block products."""

COLUMNS = 65
BOUND = 1e-5
TILES = [
    Tile(64, 64, 4, 3), Tile(64, 64, 4, 3, 168), Tile(64, 64, 4, 2, 168), Tile(64, 64, 4, 2, 128),
    Tile(64, 128, 4, 2), Tile(64, 128, 4, 2, 168), Tile(64, 128, 4, 3),
    Tile(64, 32, 4, 3, 168), Tile(64, 32, 4, 3, 128), Tile(128, 64, 8, 2), Tile(128, 64, 8, 2, 128),
    Tile(32, 64, 4, 3), Tile(32, 64, 4, 3, 128), Tile(32, 128, 4, 2, 128),
]  # fmt: skip


def milliseconds(f: Callable[[], object], repeats: int = 5, graph: bool = True) -> float:
    """Median time on the device; replayed from a recorded graph, as solvers do, so that launches are not timed."""
    f()
    torch.cuda.synchronize()
    if graph:
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            f()
        f = recorded.replay
        f()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        f()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def problem(n: int, d: int, wide: int) -> tuple[torch.Tensor, torch.Tensor, Hyperparameters]:
    """Inputs at which kernel entries are neither all 0 nor all 1, V, and θ; noise is low where inputs are wide."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, dtype=torch.float64, generator=generator).cuda()
    x[:, :wide] *= 10.0
    V = torch.randn(n, COLUMNS, dtype=torch.float64, generator=generator).cuda()
    scales = torch.tensor([0.03 if wide else 0.1, 1.0])
    return x, V, Hyperparameters.from_vector(torch.cat([scales, torch.full((d,), 2.0)]))


def error(found: torch.Tensor, x: torch.Tensor, V: torch.Tensor, theta: Hyperparameters) -> float:
    """|found − HV| / |HV| over some 512 rows, with HV in float64 from differences of the very inputs used."""
    n = x.shape[0]
    some = torch.arange(0, n, max(1, n // 512), device="cuda")[:512]
    truth = ChunkedOperator(x.float().double(), Matern32(), theta).rows_matmul(some, V.float().double())
    return float((found[some].double() - truth).norm() / truth.norm())


def ceilings() -> dict[str, float]:
    """Rates of this card: a large float16 product, and special functions from its clock."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    tensor = 2 * 8192**3 / (milliseconds(lambda: a @ a) * 1e-3)
    properties = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    clock = float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) * 1e6
    return {"tensor_flops": tensor, "special_per_s": properties.multi_processor_count * 16 * clock, "clock_hz": clock}


def roofline(rates: dict[str, float], padded: int, exact: bool) -> float:
    """Floor in picoseconds per entry."""
    operations = 2 * (3 * 64 + (16 if exact else 3 * padded))
    return 1e12 * max(operations / rates["tensor_flops"], 2 / rates["special_per_s"])


def measure(n: int, d: int, wide: int, rates: dict[str, float], tune: bool) -> list[dict]:
    x, V64, theta = problem(n, d, wide)
    x32, V = x.float(), V64.float()
    results = []

    def record(name: str, ms: float, entries: float, **more: object) -> None:
        results.append(
            {"n": n, "d": d, "wide": wide, "what": name, "ms": ms, "ps_per_entry": ms * 1e9 / entries, **more}
        )
        print(f"{n} {d} {name} {ms:.3f} ms {ms * 1e9 / entries:.3f} ps", *more.values(), flush=True)

    fused = FusedOperator(x32, Matern32(), theta)
    floor = roofline(rates, fused._points.row_high.shape[1], not fused._points.has_products)
    for tile in TILES if tune else []:
        tuned = FusedOperator(x32, Matern32(), theta, tile=tile)
        try:
            record(
                "fused, tile", milliseconds(lambda tuned=tuned: tuned.matmul(V), 3), n * n, tile=str(tile),
                error=error(tuned.matmul(V), x, V64, theta),
            )  # fmt: skip
        except triton.runtime.errors.OutOfResources:
            print(f"{tile} does not fit")
    ms = milliseconds(lambda: fused.matmul(V))
    record(
        "fused matmul", ms, n * n, error=error(fused.matmul(V), x, V64, theta), differenced=fused._differenced,
        roofline_ps=floor, over_roofline=ms * 1e9 / n / n / floor,
    )  # fmt: skip
    b = 1000
    index = torch.randperm(n, generator=torch.Generator().manual_seed(1))[:b].cuda()
    record("fused rows_matmul", milliseconds(lambda: fused.rows_matmul(index, V)), n * b)
    record("fused columns_matmul, index", milliseconds(lambda: fused.columns_matmul(index, V[:b])), n * b)
    record("fused columns_matmul, slice", milliseconds(lambda: fused.columns_matmul(slice(b, 2 * b), V[:b])), n * b)
    weights = torch.full((COLUMNS,), 0.5, device="cuda")
    gradient = milliseconds(lambda: fused._gradient_sums(V, V, weights), 3)  # without the transfer of its 2 + d numbers
    record("fused quadratic_gradient", gradient, n * n, over_matmul=gradient / ms)
    others: list[tuple[str, type[KernelOperator]]] = (
        [("chunked torch float32", ChunkedOperator)] if n <= 100_000 else []
    )
    if n <= 50_000:
        others.append(("dense torch float32", DenseOperator))
    for name, kind in others:
        plain = kind(x32, Matern32(), theta)
        ms = milliseconds(lambda plain=plain: plain.matmul(V), 3)
        record(name, ms, n * n, error=error(plain.matmul(V), x, V64, theta))
    return results


def measure_block(n: int, d: int, wide: int, tune: bool) -> list[dict]:
    """R −= H[:, block] W for a block of 1,000, as in an iteration of alternating projections."""
    x, R, theta = problem(n, d, wide)
    x, R, first = x.float(), R.float(), torch.tensor([5000], device="cuda")
    W = torch.randn(1000, COLUMNS, generator=torch.Generator().manual_seed(1)).cuda()
    some = torch.arange(0, n, max(1, n // 512), device="cuda")[:512]
    double = ChunkedOperator(torch.cat([x[some], x[5000:6000]]).double(), Matern32(), theta)
    truth = double.columns_matmul(slice(len(some), len(some) + 1000), W.double())[: len(some)]
    results = []
    for tile in [None, *(TILES if tune else [])]:
        operator = FusedOperator(x, Matern32(), theta, tile=tile)
        try:
            ms = milliseconds(lambda operator=operator: operator.subtract_columns(R, first, W))
        except triton.runtime.errors.OutOfResources:
            print(f"{tile} does not fit")
            continue
        out = torch.zeros(n, COLUMNS, device="cuda")
        operator.subtract_columns(out, first, W)
        own = ((some >= 5000) & (some < 6000))[:, None]  # with noise here, and not in the truth
        off = torch.where(own, 0.0, out[some].double() + truth)
        row = {
            "n": n, "d": d, "wide": wide, "what": f"fused subtract_columns, {operator._differenced} differenced",
            "ms": ms, "ps_per_entry": ms * 1e9 / n / 1000, "error": float(off.norm() / truth.norm()),
        }  # fmt: skip
        results.append(row | ({"tile": str(tile)} if tile else {}))
        print(*results[-1].values(), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tune", action="store_true", help="also time every tile shape")
    parser.add_argument("--shapes", type=int, nargs="*", help="indices of the shapes to run; default all and blocks")
    parser.add_argument("--blocks", action="store_true", help="block products, too, where shapes are given")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device")
    rates = ceilings()
    print(json.dumps(rates), flush=True)
    shapes = SHAPES if arguments.shapes is None else [SHAPES[i] for i in arguments.shapes]
    results = [row for shape in shapes for row in measure(*shape, rates, arguments.tune)]
    if arguments.shapes is None or arguments.blocks:
        results += [row for block in BLOCKS for row in measure_block(*block, arguments.tune)]
    machine = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
    if arguments.out:
        arguments.out.write_text(
            json.dumps({"machine": machine, "ceilings": rates, "results": results}, indent=1) + "\n"
        )
    for row in results:
        print(
            f"{row['n']:>9,} x {row['d']:<3} {'wide ' * (row['wide'] > 0):<5}{row['what']:<40} "
            f"{row['ms']:9.3f} ms {row['ps_per_entry']:7.3f} ps/entry"
            + (f"  error {row['error']:.1e}" if "error" in row else "")
            + (f"  {row['over_roofline']:.2f} x roofline" if "over_roofline" in row else "")
            + ("" if row.get("error", 0.0) <= BOUND else "  INVALID")
        )
    sys.exit(0 if all(row.get("error", 0.0) <= BOUND for row in results) else 1)


if __name__ == "__main__":
    main()
