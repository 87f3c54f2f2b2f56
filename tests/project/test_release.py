"""What a release promises and what its workflows call: versions at both ends, targets, Pythons, citation, safety.

Nobody runs the workflows before they are needed, so these tests read them: a target that is renamed, a Python that is
no longer listed or a version bound that moves without its other end is red here, not at the next release.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import warmgp

yaml = pytest.importorskip("yaml", reason="reading workflows needs PyYAML: pip install -e '.[test]'")
ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(ROOT.glob(".github/workflows/*.yml"))}
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PYTHONS = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)}
FOR_USERS = ("botorch", "maps", "plot", "parquet", "tensorboard")
"""The extras that people install to use the library, beside those for its developers."""


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for job, content in workflow["jobs"].items():
            yield f"{name}: {job}", content


def pins(name: str) -> dict[str, Version]:
    """The versions of a file of constraints, by package."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    split = [line.split("==") for line in lines]
    return {canonicalize_name(package): Version(version) for package, version in split}


def requirements(*extras: str) -> dict[str, Requirement]:
    """What the library needs itself and with some of its extras."""
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    found = [Requirement(line) for lines in lists for line in lines]
    return {canonicalize_name(each.name): each for each in found if each.name != PROJECT["name"]}


def lowest(requirement: Requirement) -> Version:
    (bound,) = [part for part in requirement.specifier if part.operator == ">="]
    return Version(bound.version)


# -- versions at both ends -------------------------------------------------------------------------------------------
def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """Tested at just the versions that are promised: a bound that moves takes its pin along."""
    oldest = pins("constraints-oldest.txt")
    bounds = {name: lowest(each) for name, each in requirements(*FOR_USERS).items()}
    assert {name: oldest.get(name) for name in bounds} == bounds


def test_the_pinned_versions_are_allowed_and_complete() -> None:
    every = tuple(PROJECT["optional-dependencies"].keys() - {"bench"})
    newest, needed = pins("constraints.txt"), requirements(*every)
    assert not needed.keys() - newest.keys(), "development would get another version every day"
    assert not [name for name, each in needed.items() if not each.specifier.contains(newest[name])]


def test_every_supported_python_is_tested_and_no_other() -> None:
    first = Requirement(f"python{PROJECT['requires-python']}")
    assert str(lowest(first)) == min(PYTHONS, key=Version)
    tested = set()
    for _, job in jobs():
        listed = job.get("strategy", {}).get("matrix", {}).get("python", [])
        given = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
        assert all(isinstance(version, str) for version in [*listed, *given]), "3.10 without quotes is 3.1"
        tested |= {*listed, *(version for version in given if "${{" not in version)}
    assert tested == PYTHONS
    oldest = WORKFLOWS["ci.yml"]["jobs"]["oldest"]["steps"][1]["with"]["python-version"]
    assert oldest == min(PYTHONS, key=Version), "the oldest versions have no wheels for later Pythons"


# -- workflows -------------------------------------------------------------------------------------------------------
def test_workflows_call_what_exists() -> None:
    runs = [step["run"] for _, job in jobs() for step in job["steps"] if "run" in step]
    called = {
        target for run in runs for line in re.findall(r"^make (.+)$", run, re.MULTILINE) for target in line.split()
    }
    assert {"lint", "test", "test-oldest", "test-newest", "docs", "torture", "dist"} == called <= TARGETS
    for name in re.findall(r"-c (constraints\S+)", MAKEFILE):
        assert (ROOT / name).is_file(), f"the Makefile installs by {name}, which is missing"
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == TARGETS
    (extras,) = re.findall(r"^EXTRAS := (.+)$", MAKEFILE, re.MULTILINE)
    assert {"dev", *FOR_USERS} <= {"dev", *extras.split(",")} <= set(PROJECT["optional-dependencies"])


def test_workflows_may_do_little() -> None:
    """Read the code, in bounded time, by actions that are pinned; only the job that publishes proves who it is."""
    assert set(WORKFLOWS) == {"ci.yml", "nightly.yml", "release.yml"}
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"} and "concurrency" in workflow, name
        assert "secrets." not in (ROOT / ".github/workflows" / name).read_text(), name
    for name, job in jobs():
        assert job["timeout-minutes"] <= 90, name
        assert job.get("permissions", {}) == ({"id-token": "write"} if name == "release.yml: publish" else {}), name
        for step in job["steps"]:
            if "uses" in step:
                assert re.search(r"^[\w./-]+@(v\d+(\.\d+)*|[0-9a-f]{40})$", step["uses"]), step["uses"]
                assert "checkout" not in step["uses"] or step["with"]["persist-credentials"] is False, name


def test_only_what_was_tested_is_published() -> None:
    build, publish = (WORKFLOWS["release.yml"]["jobs"][name] for name in ("build", "publish"))
    assert publish["needs"] == "build" and publish["environment"] == "pypi" and "tag" in publish["if"]
    steps = [step.get("run") or step["uses"].partition("@")[0] for step in build["steps"]]
    order = [steps.index(name) for name in ("make lint", "make test", "make dist", "actions/upload-artifact")]
    assert order == sorted(order)
    got, sent = publish["steps"]
    assert got["with"] == {key: build["steps"][-1]["with"][key] for key in ("name", "path")}
    assert sent["uses"].startswith("pypa/gh-action-pypi-publish@") and "with" not in sent  # no password, no other index


# -- what is said of it ----------------------------------------------------------------------------------------------
def test_the_citation_is_of_this_version_and_of_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format asks for
    assert str(citation["version"]) == PROJECT["version"] == warmgp.__version__
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert paper["title"] in readme and paper["url"] in readme
    assert paper["authors"][0]["family-names"] == "Lin" and len(paper["authors"]) == 5


def test_nothing_in_the_library_runs_what_a_file_says() -> None:
    """SECURITY.md: no unpickling, no evaluation, no other programs."""
    banned = r"\b(pickle\.loads?|torch\.load|joblib\.load|marshal|shelve|subprocess|os\.system|allow_pickle=True)\b"
    banned += r"|(?<![.\w])(eval|exec)\("
    for path in sorted((ROOT / "src").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not re.search(banned, line.partition("#")[0]), f"{path.name}:{number}: {line.strip()}"
