"""The rooms of the house: who may import whom, that nothing goes in circles, and that each says what it is for."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from house import HOUSE, ROOMS, SOURCE, Trees, ancestors, classes_of, dotted, house_with, room_of

SHORT_NAMES = ("callbacks", "datasets", "demo", "features", "metrics", "planner")
"""Modules that only give a documented name to something of a room; nothing inside imports them."""

PUBLIC = ("Solver", "SolveResult", "StoppingRule")
"""What the solvers' room has for everyone, beside the solvers themselves."""

OUTSIDE = ("warmgp", "warmgp.__main__")
"""The front door, which shows what is inside."""

VERSION = "warmgp.__version__"
"""All of the front door that a room below the command line may use."""

LATE_CIRCLES = {
    ("warmgp.operators.base", "warmgp.operators.factory"): (
        "every operator makes its twin in float64 and its dense form by the name of a kind; the factory knows all kinds"
    ),
    ("warmgp.operators.base", "warmgp.operators.dense"): "for types alone: what in_float64 returns, kind by kind",
    ("warmgp.operators.base", "warmgp.operators.chunked"): "the same",
    ("warmgp.operators.factory", "warmgp.operators.triton.fused"): (
        "Triton need not be there; the fused operator is made from base, which asks the factory as above"
    ),
    ("warmgp.estimator.model_file", "warmgp.estimator.regressor"): (
        "for types alone: the file is made from a regressor, and the regressor saves and loads by it"
    ),
    ("warmgp.files.format", "warmgp"): "for the version alone, which a file names",
    ("warmgp.estimator.together", "warmgp"): "for the version alone, which has to be that of every process",
    ("warmgp.estimator.reported", "warmgp"): "for the version alone, which a page names",
    ("warmgp.operators.part", "warmgp.operators.base"): "for types alone: an operator has a part, which is of it",
}
"""Imports in a function or for types that close a circle, and why each may."""


# -- imports ---------------------------------------------------------------------------------------------------------
def real_names(tree: ast.Module) -> dict[str, str]:
    """Returns what stands behind the names that a module gives to what it imports from others."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname: alias.name for node in froms for alias in node.names if alias.asname}


def imported_by_call(node: ast.Call, really: dict[str, str]) -> list[str]:
    """Returns the name that a call imports, if it imports; one that is not written out may be any of warmgp's."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
    if really.get(called, called) not in ("import_module", "__import__"):
        return []
    value = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "name")][0]
    written = isinstance(value, ast.Constant) and not str(value.value).startswith(".")
    return [str(ast.literal_eval(value)) if written else "warmgp"]


@cache
def imported(tree: ast.Module, *, running: bool) -> frozenset[str]:
    """Returns the names, from ``warmgp`` on, that a module imports: by a statement, by a call, or by dots alone.

    The last may be there by another's import. Where ``running``, it is what happens when the module is itself imported.
    """
    skipped: set[ast.AST] = set()
    if running:
        for node in ast.walk(tree):
            typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if typing_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                skipped |= set(ast.walk(node))
    really = real_names(tree)
    found: list[str] = []
    for node in set(ast.walk(tree)) - skipped:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"an import by dots: {ast.unparse(node)}"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            found += imported_by_call(node, really)
        elif isinstance(node, ast.Attribute):
            found += [dotted(node)]
    return frozenset(name for name in found if name.split(".")[0] == "warmgp")


def imports_of(tree: ast.Module, trees: Trees, *, running: bool = False) -> set[str]:
    """Returns the modules of warmgp that one imports: anywhere, or where ``running`` only when it is itself imported.

    What is no module and shown by the front door counts as ``warmgp``, the version as ``VERSION``.
    """
    known = {*trees, VERSION}
    return {module_in(name, known) for name in imported(tree, running=running)}


def module_in(name: str, known: set[str]) -> str:
    """Returns the longest beginning of a name with dots that is a module."""
    while name not in known and "." in name:
        name = name.rpartition(".")[0]
    return name


def upward(trees: Trees) -> list[str]:
    """Returns the imports from a room later in the list, of short names, and from the front door.

    The front door shows what is in the rooms below the command line, which alone may use it.
    """
    order = {room: place for place, room in enumerate(ROOMS)}
    order["warmgp"] = order["cli"]
    found = []
    for name, tree in trees.items():
        if name in OUTSIDE or room_of(name) in SHORT_NAMES:
            continue
        assert room_of(name) in order, f"{name} is in no room"
        for other in sorted(imports_of(tree, trees) - {VERSION}):
            if room_of(other) in SHORT_NAMES or order[room_of(other)] > order[room_of(name)]:
                found.append(f"{name} imports {other}")
    return found


# -- circles ---------------------------------------------------------------------------------------------------------
Graph = dict[str, set[str]]


def graph_of(trees: Trees, *, running: bool) -> Graph:
    graph = {name: imports_of(tree, trees, running=running) for name, tree in trees.items()}
    return {name: {"warmgp" if other == VERSION else other for other in graph[name]} - {name} for name in graph}


def reached(graph: Graph, start: str) -> set[str]:
    """Returns all that a module imports, and what that imports, and so on."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        more = graph.get(waiting.pop(), set()) - seen
        seen |= more
        waiting += more
    return seen


def circles(trees: Trees) -> list[str]:
    """Returns the modules that reach themselves by what they import when they are imported."""
    graph = graph_of(trees, running=True)
    return [name for name in graph if name in reached(graph, name)]


def late_circles(trees: Trees) -> set[tuple[str, str]]:
    """Returns the imports in functions and for types whose target comes back to them, by imports of any kind."""
    whole, at_once = graph_of(trees, running=False), graph_of(trees, running=True)
    late = [(name, other) for name in whole for other in whole[name] - at_once[name]]
    return {(name, other) for name, other in late if name in reached(whole, other)}


# -- states ----------------------------------------------------------------------------------------------------------
def hidden(trees: Trees) -> set[str]:
    """Returns the names of the solvers' own classes, which nobody else looks at: states, preconditioners, the books."""
    room = {name: tree for name, tree in trees.items() if room_of(name) == "solvers"}
    above = ancestors(trees)
    return {node.name for node in classes_of(room) if node.name not in PUBLIC and "Solver" not in above[node.name]}


def looks_at_states(trees: Trees) -> list[str]:
    """Returns the questions, outside of the solvers' room, whether something is one of the solvers' own classes."""
    own = hidden(trees)
    found = []
    for name, tree in trees.items():
        if room_of(name) == "solvers":
            continue
        really = real_names(tree)
        for node in ast.walk(tree):
            asked: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = node.args[1:]
            elif isinstance(node, ast.MatchClass):
                asked = [node.cls]
            parts = [part for one in asked for part in ast.walk(one)]
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            names += [part.attr for part in parts if isinstance(part, ast.Attribute)]
            found += [f"{name} asks for {one}" for one in (really.get(n, n) for n in names) if one in own]
    return found


# -- the rooms -------------------------------------------------------------------------------------------------------
def test_no_room_imports_from_a_later_one() -> None:
    assert upward(HOUSE) == []


@pytest.mark.parametrize(
    ("module", "line", "seen"),
    [
        ("solvers.bad", "from warmgp.training.problem import Problem", "warmgp.training.problem"),
        ("kernels.bad", "import warmgp.operators.base", "warmgp.operators.base"),
        ("data.bad", "def f():\n    from warmgp.estimator import regressor", "warmgp.estimator.regressor"),
        ("operators.bad", "if TYPE_CHECKING:\n    from warmgp.posterior import Posterior", "warmgp.posterior"),
        ("training.bad", "from warmgp.datasets import surface", "warmgp.datasets"),
        ("kernels.bad", "from warmgp import GPRegressor", "warmgp"),
        ("estimator.bad", "from warmgp import train, __version__", "warmgp"),
        ("kernels.bad", "def f():\n    import warmgp as w\n    return w.GPRegressor", "warmgp"),
        ("kernels.bad", "from warmgp import *", "warmgp"),
        ("kernels.bad", "import warmgp.checks\nwarmgp.estimator.regressor.GPRegressor()", "warmgp.estimator"),
        ("kernels.bad", "import warmgp.checks\nwarmgp.GPRegressor()", "warmgp"),
        ("kernels.bad", 'importlib.import_module("warmgp.estimator.regressor")', "warmgp.estimator.regressor"),
        ("kernels.bad", 'def f():\n    return __import__("warmgp.training")', "warmgp.training"),
        ("data.bad", 'from importlib import import_module as load\nload(name="warmgp.cli.demo")', "warmgp.cli.demo"),
        ("kernels.bad", 'import_module(f"{package}.estimator")', "warmgp"),
        ("kernels.bad", 'import_module(".estimator", "warmgp")', "warmgp"),
    ],
)
def test_an_upward_import_is_seen(module: str, line: str, seen: str) -> None:
    """The test above is red for an import that goes up, however it is written."""
    found = upward(house_with(module, line))
    assert found and found[0] == f"warmgp.{module} imports {seen}"


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("kernels.good", "from warmgp import __version__"),
        ("training.good", "from warmgp import kernels, solvers\nkernels.Kernel"),
        ("training.good", "import warmgp.kernels.base\nwarmgp.kernels.base.Kernel"),
        ("training.good", 'import_module("warmgp.kernels.base")\nimport_module("tensorboard")'),
        ("cli.good", "from warmgp import GPRegressor"),
        ("cli.good", "import warmgp\nwarmgp.__version__"),
    ],
)
def test_other_imports_are_free(module: str, line: str) -> None:
    assert upward(house_with(module, line)) == []


def test_nothing_imports_itself_in_a_circle() -> None:
    assert circles(HOUSE) == []


def test_a_circle_is_seen() -> None:
    lines = {"a": "import warmgp.b", "b": "from warmgp.c import x", "c": "from warmgp import a", "d": "import warmgp.a"}
    trees = {f"warmgp.{name}": ast.parse(line) for name, line in lines.items()}
    assert circles(trees) == ["warmgp.a", "warmgp.b", "warmgp.c"]


def test_late_circles_have_their_reasons() -> None:
    """A new one is red, and so is a reason for one that is no more."""
    assert late_circles(HOUSE) == set(LATE_CIRCLES)


@pytest.mark.parametrize(
    ("module", "line", "seen"),
    [
        ("solvers.progress", "def f():\n    from warmgp.solvers.cg import CGState", ["warmgp.solvers.cg"]),
        ("solvers.progress", "if TYPE_CHECKING:\n    from warmgp.solvers import Solver", ["warmgp.solvers"]),
        ("solvers.result", "def f():\n    import_module('warmgp.solvers.sgd')", ["warmgp.solvers.sgd"]),
        ("hyperparameters", "def f():\n    from warmgp import __version__", ["warmgp"]),
        ("solvers.cg", "def f():\n    from warmgp.solvers.progress import Progress", []),
        ("solvers.progress", "def f():\n    from warmgp.operators.base import Origin", []),
    ],
)
def test_a_late_circle_is_seen(module: str, line: str, seen: list[str]) -> None:
    new = late_circles(house_with(module, line)) - set(LATE_CIRCLES)
    assert sorted(new) == [(f"warmgp.{module}", other) for other in seen]


def test_nobody_but_the_solvers_looks_at_their_states() -> None:
    assert looks_at_states(HOUSE) == []


@pytest.mark.parametrize(
    ("module", "lines", "seen"),
    [
        ("files.bad", "isinstance(state, CGState)", ["CGState"]),
        ("files.bad", "isinstance(state.preconditioner, Identity)", ["Identity"]),
        ("training.bad", "isinstance(state, int | SGDState)", ["SGDState"]),
        ("training.bad", "isinstance(state, (int, cg.CGState, Pivots))", ["Pivots", "CGState"]),
        ("estimator.bad", "from a import Neighbours as N\nisinstance(state, N)", ["Neighbours"]),
        ("planning.bad", "match state:\n    case BlockFactors(block_size=b):\n        b", ["BlockFactors"]),
        ("solvers.good", "isinstance(state, CGState)", []),
        ("files.good", "isinstance(solver, ConjugateGradients)\nCGState(None)\nstate is CGState", []),
    ],
)
def test_a_look_at_a_state_is_seen(module: str, lines: str, seen: list[str]) -> None:
    assert looks_at_states(house_with(module, lines)) == [f"warmgp.{module} asks for {name}" for name in seen]


@pytest.mark.parametrize(
    ("module", "line", "new"),
    [
        ("solvers.new", "class NewState: ...", {"NewState"}),
        ("solvers.preconditioners.new", "class Nested(Preconditioner):\n    class Inner: ...", {"Nested", "Inner"}),
        ("solvers.new", "class NewSolver(Solver): ...\nclass Newer(ConjugateGradients): ...", set()),
        ("gradient.new", "class NewDraw: ...", set()),
    ],
)
def test_a_new_class_of_the_solvers_is_their_own(module: str, line: str, new: set[str]) -> None:
    assert hidden(house_with(module, line)) - hidden(HOUSE) == new


def test_what_the_solvers_show_is_not_hidden() -> None:
    from warmgp import solvers

    shown = {name for name in solvers.__all__ if isinstance(getattr(solvers, name), type)}
    assert {"Solver", "Cholesky", "SolveResult"} <= shown and not shown & hidden(HOUSE)
    assert {"CGState", "BlockFactors", "Identity", "Neighbours", "LowRank", "Progress"} <= hidden(HOUSE)


def test_every_room_says_what_it_is_for() -> None:
    for room in ROOMS:
        path = SOURCE / room / "__init__.py"
        text = ast.get_docstring(ast.parse((path if path.exists() else SOURCE / f"{room}.py").read_text())) or ""
        assert text, room
        if path.exists():
            assert "may import" in text and "Add " in text, path


def said_of(room: str, text: str) -> set[str]:
    """Returns the rooms that a docstring says its room may import: by name, up to one of them, or all before it."""
    sentence = re.split(r"\.(?:\s|$)", text[text.index("may import") :])[0]
    given = re.split(r"\b(?:never|but|it knows)\b", " ".join(sentence.split()).replace("``", ""))[0]
    if "everything" in given:
        return set(ROOMS[: ROOMS.index(room)])
    if up_to := re.search(r"the rooms up to (\w+)", given):
        return set(ROOMS[: ROOMS.index(up_to[1]) + 1])
    return set(re.findall(r"\w+", given)) & set(ROOMS)


def untrue(room: str, text: str) -> set[str]:
    """Returns the rooms that one imports and its docstring leaves out, and those that it names and may not import."""
    inside = [tree for name, tree in HOUSE.items() if room_of(name) == room]
    used = {room_of(other) for tree in inside for other in imports_of(tree, HOUSE) - {VERSION}} - {room, "warmgp"}
    return (used - said_of(room, text)) | (said_of(room, text) - set(ROOMS[: ROOMS.index(room) + 1]))


def test_every_room_says_whom_it_may_import() -> None:
    packages = [room for room in ROOMS if (SOURCE / room).is_dir()]
    assert {room: untrue(room, ast.get_docstring(HOUSE[f"warmgp.{room}"]) or "") for room in packages} == {
        room: set() for room in packages
    }


@pytest.mark.parametrize(
    ("room", "text", "wrong"),
    [
        ("data", "It may import kernels and hyperparameters. Add checks.", {"checks"}),
        ("data", "It may import ``checks`` and\n``kernels``.", set()),
        ("data", "It may import checks, kernels and files.", {"files"}),
        ("training", "It may import the rooms up to ``posterior``; it knows no files.", set()),
        ("training", "It may import the rooms up to solvers.", {"gradient", "trend", "control", "posterior"}),
        ("training", "It may import the rooms up to planning.", {"planning"}),
        ("kernels", "This room knows nothing of data, and may import torch only (``fused``: Triton). Add one.", set()),
        ("estimator", "It may import everything but the command line.", set()),
    ],
)
def test_an_untrue_word_about_imports_is_seen(room: str, text: str, wrong: set[str]) -> None:
    assert untrue(room, text) == wrong


def test_files_and_functions_are_short() -> None:
    """At most 400 lines a file, 60 lines of code a function; what is longer has its reason in ``LONG``."""
    found = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        name = str(path.relative_to(SOURCE))
        if len(text.splitlines()) > 400:
            found.append(f"{name}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                lines = code_lines(node, text)
                if lines > 60 and f"{name}:{node.name}" not in LONG:
                    found.append(f"{name}: {node.name} has {lines} lines of code")
    assert found == []


def code_lines(node: ast.FunctionDef, text: str) -> int:
    """Lines of a function without its docstring, blank lines and comments."""
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    first = node.body[0]
    doc = 0
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        doc = (first.end_lineno or first.lineno) - first.lineno + 1
    blank = sum(not line.strip() or line.strip().startswith("#") for line in lines)
    return len(lines) - blank - doc


LONG: dict[str, str] = {
    "estimator/regressor.py:__init__": "a line for each parameter and one that keeps it, as scikit-learn wants them",
    "cli/commands.py:fit": "a line for each option and one that hands it on",
}
"""Functions of more than 60 lines of code, and why they are."""
