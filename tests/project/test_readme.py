"""The README is short, its Python works as printed, and what it names is there."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmgp

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippet(snippet: str) -> None:
    names: dict[str, object] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    mean, std = names["mean"], names["std"]  # near the data the truth is sin(0.5)·cos(1); far away is only the prior
    assert abs(mean[0] - 0.259) < 0.1 and std[0] < 0.15 < std[1]  # type: ignore[index]


SHORT = SNIPPETS[0].replace("random_state=0)", "random_state=0, n_steps=40)")
"""The first snippet where it is not its answer that counts."""
TIMED = """
import sys, time, numpy, torch, warmgp
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - began)
"""


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Another program keeps each core busy."""
    cores = range(os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in cores]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.whole
@pytest.mark.skipif((os.cpu_count() or 1) == 1, reason="with one core there is one thread")
def test_the_snippet_is_not_much_slower_than_with_one_thread_on_a_busy_machine() -> None:
    """Once with one thread and once as it comes, side by side, so that both have the same machine."""
    assert SNIPPETS[0] != SHORT
    source = {"PYTHONPATH": str(Path(warmgp.__file__).parents[1])}
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))} | source
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    one, several = (
        subprocess.Popen([sys.executable, "-c", TIMED, SHORT], env=env, text=True, **pipes)
        for env in (usual | {"OMP_NUM_THREADS": "1"}, usual)
    )
    try:
        for process in (one, several):
            assert process.stdout.readline() == "ready\n"  # all that is imported before
        with busy_cores():
            for process in (one, several):
                process.stdin.write("go\n")
                process.stdin.flush()
            seconds = [float(process.communicate(timeout=300)[0]) for process in (one, several)]
    finally:
        for process in (one, several):
            process.kill()
    assert seconds[1] <= 1.5 * seconds[0], f"{seconds[1]:.1f} s, and {seconds[0]:.1f} s with one thread"


def test_there_is_a_snippet_and_few_lines() -> None:
    assert len(SNIPPETS) == 1
    assert len(README.splitlines()) <= 110, "long passages belong in docs/performance.md or docs/choosing.md"


def test_its_make_targets_are_in_the_makefile() -> None:
    named = set(re.findall(r"^make (\S+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), f"README.md links to {target}, which is missing"


def test_its_figures_are_on_the_page_behind_them() -> None:
    """Every command and every figure of the README's table stands on the performance page, too."""
    page = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    table = README.split("\n| what | figure | command |\n")[1].split("\n\n")[0].splitlines()[1:]
    assert len(table) == 4
    for row in table:
        figure, command = re.findall(r"[^|]+", row)[1:3]
        for number in re.findall(r"\d[\d,.]*\d (?:s|minutes|hours|nats)\b", figure):
            assert number in page, f"docs/performance.md does not have the README's figure {number}"
        assert re.findall(r"`(python [^`]+)`", command)[0] in page, f"docs/performance.md should have {command}"
