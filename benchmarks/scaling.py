"""A model of the time of a large fit on several GPUs: operations, bytes and exchanges, with rates measured on one.

    python -m benchmarks.scaling --out benchmarks/results/scaling-model.json

Nothing is run: docs/scaling.md says where the rates come from, and what the model leaves out.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import write_json

COLUMNS = 65  # the mean system and 64 probes
ENTRY = 1.42e-12  # seconds an entry of H with 65 columns, Matérn-3/2, 11 inputs, one H200 (measured)
INVERSE = 3.5e-14  # seconds for each of n·b² of inverting blocks in float64 on one H200 (37 ms at 200,000 and 1,024)
LATENCY = 50e-6  # seconds of one exchange between GPUs
LINK = {"NVLink": 350e9, "network": 40e9}  # bytes a second that reach a GPU, within a machine and between machines
BLOCK = 2048  # rows of a block on one GPU at a million points and more
EPOCHS = 24  # sweeps, checks and corrections of a fit of 1.8 million rows: 173 s on one H200, of which 50 in float64
DOUBLE = 2 * 7.4e-12  # seconds an entry for the two residuals in float64 (measured: 25 s each at 1.84 million)
START = 5.0  # seconds of the choice of a kernel and of the start, on rank 0


@dataclass(frozen=True)
class Job:
    """Holds the size of a fit, and what it runs on."""

    n: int
    d: int
    gpus: int

    @property
    def link(self) -> float:
        return LINK["NVLink" if self.gpus <= 8 else "network"]

    @property
    def block(self) -> int:
        return round(BLOCK * self.gpus ** (1 / 3))

    def sweep(self) -> dict[str, float]:
        """Returns the seconds of one sweep of recombined projections, by part."""
        n, b, P = self.n, self.block, self.gpus
        exchanges = 2 * n / b if P > 1 else 0.0  # the residual of a block, and its step
        payload = 4 * b * COLUMNS
        return {
            "products": n**2 * ENTRY / P,
            "inverses": n * b**2 * INVERSE / P,
            "latency": exchanges * LATENCY,
            "bytes": exchanges * payload / self.link,
        }

    def iteration_of_cg(self) -> dict[str, float]:
        """Returns the seconds of one iteration of conjugate gradients: a product, and one array gathered."""
        gathered = 4 * self.n * COLUMNS * (self.gpus - 1) / self.gpus
        return {"products": self.n**2 * ENTRY / self.gpus, "bytes": gathered / self.link, "latency": 5 * LATENCY}

    def fit(self) -> float:
        return START + EPOCHS * sum(self.sweep().values()) + self.n**2 * DOUBLE / self.gpus

    def memory(self) -> dict[str, float]:
        """Returns the GiB that a GPU holds, by part."""
        array = self.n * COLUMNS * 4 / 2**30
        return {
            "inputs": self.n * self.d * (4 + 8 + 4) / 2**30,
            "arrays of a solve": 8 * array / self.gpus,
            "targets, solutions and probes": 3 * array / self.gpus,
            "the same in float64, at the end": 6 * array / self.gpus,
            "the model: solutions in float64, targets in 16 bits": 2.5 * array if self.gpus > 1 else 0.0,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    jobs = [Job(1_844_352, 11, gpus) for gpus in (1, 2, 4, 8)]
    jobs += [Job(n, 10, gpus) for n in (10**7, 10**8, 10**9) for gpus in (8, 64)]
    results: list[dict[str, Any]] = []
    print("| points | GPUs | rows of a block | a sweep | of it exchanges | a fit | memory of a GPU |")
    print("|---|---|---|---|---|---|---|")
    for job in jobs:
        parts, memory = job.sweep(), job.memory()
        total, moved = sum(parts.values()), parts["latency"] + parts["bytes"]
        results.append({"n": job.n, "d": job.d, "gpus": job.gpus, "block": job.block, "sweep": parts,
                        "cg": job.iteration_of_cg(), "fit": job.fit(), "memory": memory})  # fmt: skip
        print(
            f"| {job.n:,} | {job.gpus} | {job.block:,} | {_time(total)} | {moved / total:.1%} | {_time(job.fit())} | "
            f"{sum(memory.values()):,.0f} GiB |"
        )
    write_json(asked.out, {"rates": {"entry": ENTRY, "inverse": INVERSE, "latency": LATENCY, "link": LINK},
                           "results": results})  # fmt: skip


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


if __name__ == "__main__":
    main()
