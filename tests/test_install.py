"""What ``pip install .`` gives: a wheel that works away from the checkout, with its command and the README example."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from test_readme import SNIPPETS

ROOT = Path(__file__).resolve().parents[1]
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


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building needs hatchling: pip install -e '.[dev]'")
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", str(ROOT), "--no-build-isolation", "--wheel-dir", str(tmp_path / "dist"), *OFFLINE]
    subprocess.run(build, env=CLEAN, cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "dist").iterdir()

    venv.create(tmp_path / "fresh", with_pip=False)
    programs = tmp_path / "fresh" / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    subprocess.run([*pip, "--python", python, "install", str(wheel), *OFFLINE], env=CLEAN, check=True)
    (packages,) = (tmp_path / "fresh").rglob("site-packages")
    # the dependencies of this environment; its own editable warmgp is a .pth file there, which is not read from here
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")

    lines = [[python, "-c", SNIPPETS[0] + WHERE], [str(programs / "warmgp"), "--help"]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(line, env=CLEAN, cwd=tmp_path, text=True, **pipes) for line in lines]
    (shown, wrong), (told, silent) = (process.communicate() for process in running)
    assert [process.returncode for process in running] == [0, 0], wrong + silent
    assert Path(shown.strip()) == packages / "warmgp"
    assert all(name in told for name in ("fit", "predict", "score", "info", "demo")) and silent == ""
