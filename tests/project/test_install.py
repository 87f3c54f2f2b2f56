"""What a release gives: an sdist that is whole, and of it a wheel that works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from test_readme import SHORT

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "COV_"))}
CLEAN["OMP_NUM_THREADS"] = "1"  # small products: on a busy machine several threads wait for each other for minutes
OFFLINE = ["--no-index", "--no-deps", "--disable-pip-version-check", "--quiet"]  # nothing is downloaded
WHERE = """
from pathlib import Path
import warmgp
print(Path(warmgp.__file__).parent)
assert (Path(warmgp.__file__).parent / "py.typed").is_file()
assert abs(mean[0] - 0.259) < 0.1 and std[0] < 0.15 < std[1]
"""


@pytest.mark.whole
@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building needs hatchling: pip install -e '.[dev]'")
    pip = [sys.executable, "-m", "pip"]
    dist = tmp_path / "dist"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(dist)]
    subprocess.run(build, env=CLEAN, cwd=ROOT, check=True, capture_output=True)
    (sdist,) = dist.iterdir()
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("src", "tests", "docs", "examples", "experiments", "benchmarks", ".github"):  # what tests look at
        there = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.*") if path.is_file()}
        assert {name for name in there if name.endswith((".py", ".md", ".yml", ".typed"))} <= packed, folder
    assert {"Makefile", "constraints.txt", "constraints-oldest.txt", "CITATION.cff", "SECURITY.md"} <= packed

    build = [*pip, "wheel", str(sdist), "--no-build-isolation", "--wheel-dir", str(dist), *OFFLINE]
    subprocess.run(build, env=CLEAN, cwd=tmp_path, check=True)
    (wheel,) = dist.glob("*.whl")
    if find_spec("twine"):
        check = [sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)]
        subprocess.run(check, env=CLEAN, check=True, capture_output=True)

    venv.create(tmp_path / "fresh", with_pip=False)
    programs = tmp_path / "fresh" / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    subprocess.run([*pip, "--python", python, "install", str(wheel), *OFFLINE], env=CLEAN, check=True)
    (packages,) = (tmp_path / "fresh").rglob("site-packages")
    # the dependencies of this environment; its own editable warmgp is a .pth file there, which is not read from here
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")

    lines = [[python, "-c", SHORT + WHERE], [str(programs / "warmgp"), "--help"]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(line, env=CLEAN, cwd=tmp_path, text=True, **pipes) for line in lines]
    (shown, wrong), (told, silent) = (process.communicate() for process in running)
    assert [process.returncode for process in running] == [0, 0], wrong + silent
    assert Path(shown.strip()) == packages / "warmgp"
    assert all(name in told for name in ("fit", "predict", "score", "info", "demo")) and silent == ""
