"""Several processes on this machine that run one function together, over gloo: for tests."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

LIMIT = 150
"""Seconds that the processes may take: a machine that is busy starts them slowly."""


def start(world: int, function: str, folder: Path, *arguments: Any) -> list[subprocess.Popen[bytes]]:
    """Starts so many processes that call ``workers.function(team, *arguments)`` and write what it returns."""
    (folder / "arguments").write_bytes(pickle.dumps(arguments))
    command = [sys.executable, str(HERE / "workers.py"), function, str(folder), str(world)]
    return [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=HERE.parent)
        for rank in range(world)
    ]


def together(world: int, function: str, *arguments: Any) -> list[Any]:
    """Returns what each of so many processes returns from ``workers.function(team, *arguments)``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = start(world, function, folder, *arguments)
        try:
            told = [process.communicate(timeout=LIMIT)[0].decode() for process in processes]
        finally:
            for process in processes:
                process.kill()
        for rank, process in enumerate(processes):
            assert process.returncode == 0, f"rank {rank} of {world}:\n{told[rank]}"
        return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(world)]
