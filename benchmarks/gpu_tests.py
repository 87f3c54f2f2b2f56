"""Every test that is written for a GPU, or for either device: the files that name one, or the mark ``gpu``.

    PYTHONPATH=src:. python -m benchmarks.gpu_tests --out benchmarks/results/gpu-tests-h200.json

Compiling takes the time, so they are cut into three processes for every two cores, neighbours together. The exit status
says whether each of them passed: a test that was skipped, or never ran, is one that did not, and so is every test of a
process that was ended.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from experiments.common import machine, write_json

SAYS_SO = re.compile(r'mark\.gpu|fused_tools|"cuda" if')
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PYTEST = (sys.executable, "-m", "pytest", "--no-cov", "-p", "no:cacheprovider")


def collected() -> list[str]:
    """The names of all such tests, in the order of their files."""
    files = sorted(str(path) for path in Path("tests").rglob("test_*.py") if SAYS_SO.search(path.read_text()))
    found = subprocess.run([*PYTEST, "--collect-only", *files], capture_output=True, text=True, check=False)
    names = [line for line in found.stdout.splitlines() if "::" in line]
    if found.returncode or not names:
        raise SystemExit(f"the tests could not be collected:\n{found.stdout}{found.stderr}")
    return names


def run(names: list[str], processes: int, seconds: float) -> tuple[Counter[str], str]:
    """How many passed, failed and so on, and what failed said."""
    size = -(-len(names) // processes)
    counts: Counter[str] = Counter()
    told = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(first)) for first in range(0, len(names), size)]
        running = []
        for log in logs:
            some = names[int(log.name) : int(log.name) + size]
            with log.open("w") as out:  # the process keeps a handle of its own
                running.append(subprocess.Popen([*PYTEST, "-rA", *some], stdout=out, stderr=out, env=ENVIRONMENT))
        end = time.monotonic() + seconds
        for one in running:
            try:
                one.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
                told.append(f"ended after {seconds:.0f} s: {' '.join(one.args[len(PYTEST) + 1 :])}")
        for log in logs:
            text = log.read_text()
            counts.update(OUTCOME.findall(text))
            if "FAILED" in text or "ERROR" in text or "passed" not in text:
                told.append(text[-3000:])
    return counts, "\n".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=-(-3 * (os.cpu_count() or 1) // 2))
    parser.add_argument("--seconds", type=float, default=300.0, help="after which those that still run are ended")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    names, began = collected(), time.perf_counter()
    counts, failures = run(names, asked.processes, asked.seconds)
    found = {"tests": len(names), "seconds": time.perf_counter() - began, **counts}
    files = Counter(name.split("::")[0] for name in names)
    write_json(asked.out, {"machine": machine("cuda" if torch.cuda.is_available() else "cpu"), **found, "files": files})
    print(failures, found, sep="\n")
    sys.exit(counts["PASSED"] != len(names))


if __name__ == "__main__":
    main()
