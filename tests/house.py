"""The library's source as trees, which the tests of its rooms, of its docstrings and of its picture read."""

from __future__ import annotations

import ast
from pathlib import Path

import warmgp

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(warmgp.__file__).parent

ROOMS = (
    "checks",
    "schema",
    "processes",
    "hyperparameters",
    "kernels",
    "operators",
    "solvers",
    "gradient",
    "trend",
    "control",
    "joint",
    "posterior",
    "differentiable",
    "leave_one_out",
    "likelihood",
    "training",
    "planning",
    "data",
    "files",
    "reporting",
    "estimator",
    "botorch",
    "cli",
)
"""Lowest first: a room imports from those earlier in this list and from itself."""

Trees = dict[str, ast.Module]
"""Modules by their names with dots; a package is its ``__init__``."""


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


HOUSE: Trees = {module_name(path, SOURCE): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def house_with(module: str, text: str) -> Trees:
    """Returns the house with one module more."""
    return HOUSE | {f"warmgp.{module}": ast.parse(text)}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def dotted(node: ast.expr) -> str:
    """Returns a name with its dots, and nothing for what is no such name."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def classes_of(trees: Trees) -> list[ast.ClassDef]:
    return [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def ancestors(trees: Trees) -> dict[str, set[str]]:
    """Returns the names of the classes that a class is made from, and those from, by the name of the class."""
    bases: dict[str, set[str]] = {}
    for node in classes_of(trees):
        bases.setdefault(node.name, set()).update(ast.unparse(base).split(".")[-1].split("[")[0] for base in node.bases)

    def above(name: str) -> set[str]:
        direct = bases.get(name, set()) - {name}
        return direct.union(*map(above, direct))

    return {name: above(name) for name in bases}
