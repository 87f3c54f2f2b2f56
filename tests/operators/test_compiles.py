"""Triton's kernels compile for GPUs that are not here, and fit what those have: the interpreter shows neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warmgp.operators import has_triton

if not has_triton():
    pytest.skip("Triton 3.5 comes with torch 2.9 for CUDA on Linux", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "kernel_compiler.py"
KERNELS = {
    "augment", "column_largest", "split_columns", "combine", "product", "product64", "gradient", "gradient_rows",
    "gradient_rows64", "pick", "project", "entries_within", "invert_factor",
}  # fmt: skip


def compiled(capability: int, folder: Path, *cases: str) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(capability), *cases], capture_output=True, text=True, timeout=300,
        env={**environment, "TRITON_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_compiles_for_hopper_and_fits_into_its_shared_memory(tmp_path: Path) -> None:
    found = compiled(90, tmp_path, "long", "falling", "double", "blocks", "steps")
    assert {one["kernel"] for one in found} == KERNELS
    assert {(one["LONG"], one["FALLING"]) for one in found if one["kernel"] == "product"} == {
        (True, False), (False, False), (False, True),
    }  # fmt: skip
    assert [one for one in found if one["shared"] > 227 * 1024] == []


@pytest.mark.whole
def test_the_largest_fit_into_the_shared_memory_of_consumers_cards(tmp_path: Path) -> None:
    found = compiled(86, tmp_path, "wide", "beside", "falling", "falling, long", "double wide", "double wider")
    assert {one["kernel"] for one in found} >= {"product", "gradient_rows", "gradient_rows64", "combine"}
    assert [one for one in found if one["shared"] > 99 * 1024] == []
