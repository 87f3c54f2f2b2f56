"""The rooms of the house: who may import whom, that nothing goes in circles, and that the picture shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmgp

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(warmgp.__file__).parent

ROOMS = (
    "checks",
    "schema",
    "hyperparameters",
    "kernels",
    "operators",
    "solvers",
    "gradient",
    "posterior",
    "training",
    "planning",
    "data",
    "files",
    "estimator",
    "cli",
)
"""Lowest first: a room imports from those before it and from itself."""

SHORT_NAMES = ("callbacks", "datasets", "demo", "features", "planner")
"""Modules that only give a documented name to something of a room; nothing inside imports them."""

STATES = (
    "BlockFactors",
    "CGState",
    "CholeskyState",
    "NeighbourFactor",
    "NeighbourRecipe",
    "PivotedCholesky",
    "Pivots",
    "Preconditioner",
    "Products",
    "Recipe",
    "SGDState",
    "StaleFactor",
    "StaleRecipe",
    "Substitution",
)
"""States of solvers and what is in them: nobody but the solvers' room looks at what they are."""

OUTSIDE = ("warmgp", "warmgp.__main__")
"""The front door, which shows what is inside."""


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path) -> dict[str, ast.Module]:
    return {module_name(path, root): ast.parse(path.read_text()) for path in root.rglob("*.py")}


def imports_of(name: str, tree: ast.Module, known: set[str], *, running: bool = False) -> Iterator[str]:
    """The modules of warmgp that one imports: anywhere, or where ``running`` only when it is itself imported."""
    skipped: set[ast.AST] = set()
    if running:
        for node in ast.walk(tree):
            typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if typing_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                skipped |= set(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "warmgp")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports by dots"
            if node.module and node.module.split(".")[0] == "warmgp":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield whole if whole in known else node.module


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def upward(root: Path) -> list[str]:
    """Imports from a room further down the list, and of short names."""
    trees = modules(root)
    order = {room: place for place, room in enumerate(ROOMS)}
    found = []
    for name, tree in trees.items():
        if name in OUTSIDE or room_of(name) in SHORT_NAMES:
            continue
        assert room_of(name) in order, f"{name} is in no room"
        for other in imports_of(name, tree, set(trees)):
            if other == "warmgp":  # for the version alone
                continue
            if room_of(other) in SHORT_NAMES or order[room_of(other)] > order[room_of(name)]:
                found.append(f"{name} imports {other}")
    return found


def circles(root: Path) -> list[str]:
    """Modules that reach themselves by what they import when they are imported; a package is its ``__init__``."""
    trees = modules(root)
    graph = {name: set(imports_of(name, tree, set(trees), running=True)) - {name} for name, tree in trees.items()}
    found = []
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name == start:
                found.append(start)
                break
            if name not in seen:
                seen.add(name)
                waiting += graph.get(name, ())
    return found


def looks_at_states(root: Path) -> list[str]:
    """Questions, outside of the solvers' room, whether something is a state of a solver or a preconditioner."""
    found = []
    for name, tree in modules(root).items():
        if room_of(name) == "solvers":
            continue
        froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        really = {alias.asname: alias.name for node in froms for alias in node.names if alias.asname}
        for node in ast.walk(tree):
            asked: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = node.args[1:]
            elif isinstance(node, ast.MatchClass):
                asked = [node.cls]
            parts = [part for one in asked for part in ast.walk(one)]
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            names += [part.attr for part in parts if isinstance(part, ast.Attribute)]
            found += [f"{name} asks for {one}" for one in (really.get(n, n) for n in names) if one in STATES]
    return found


def test_no_room_imports_from_one_above_it() -> None:
    assert upward(SOURCE) == []


def test_nothing_imports_itself_in_a_circle() -> None:
    assert circles(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("solvers/bad.py", "from warmgp.training.problem import Problem"),
        ("kernels/bad.py", "import warmgp.operators.base"),
        ("data/bad.py", "def f():\n    from warmgp.estimator import regressor"),
        ("operators/bad.py", "if TYPE_CHECKING:\n    from warmgp.posterior import Posterior"),
        ("training/bad.py", "from warmgp.datasets import surface"),
    ],
)
def test_an_upward_import_is_seen(file: str, line: str, tmp_path: Path) -> None:
    """The test above is red for an import that goes up: at the top, in a function, for a type, by a short name."""
    root = tmp_path / "warmgp"
    for path in SOURCE.rglob("*.py"):
        copy = root / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    (root / file).write_text(line + "\n")
    found = upward(root)
    assert len(found) == 1 and found[0].startswith(f"warmgp.{file.split('/')[0]}.bad imports warmgp.")


def test_nobody_but_the_solvers_looks_at_their_states() -> None:
    assert looks_at_states(SOURCE) == []


def test_those_states_are_there() -> None:
    """A class that gets another name gets it in ``STATES``, too, or nothing would be found any more."""
    trees = modules(SOURCE / "solvers").values()
    classes = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert set(STATES) <= classes


@pytest.mark.parametrize(
    ("file", "lines", "seen"),
    [
        ("files/bad.py", "isinstance(state, CGState)", ["CGState"]),
        ("training/bad.py", "isinstance(state, int | SGDState)", ["SGDState"]),
        ("training/bad.py", "isinstance(state, (int, cg.CGState, Pivots))", ["Pivots", "CGState"]),
        ("estimator/bad.py", "from a import Pivots as P\nisinstance(state, P)", ["Pivots"]),
        ("planning/bad.py", "match state:\n    case BlockFactors(block_size=b):\n        b", ["BlockFactors"]),
        ("solvers/good.py", "isinstance(state, CGState)", []),
        ("files/good.py", "isinstance(solver, ConjugateGradients)\nCGState(None)\nstate is CGState", []),
    ],
)
def test_a_look_at_a_state_is_seen(file: str, lines: str, seen: list[str], tmp_path: Path) -> None:
    path = tmp_path / "warmgp" / file
    path.parent.mkdir(parents=True)
    path.write_text(lines + "\n")
    module = file.removesuffix(".py").replace("/", ".")
    assert looks_at_states(tmp_path / "warmgp") == [f"warmgp.{module} asks for {name}" for name in seen]


def test_a_circle_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "warmgp"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "a.py").write_text("import warmgp.b\n")
    (root / "b.py").write_text("from warmgp.c import x\n")
    (root / "c.py").write_text("from warmgp import a\n")
    assert sorted(circles(root)) == ["warmgp.a", "warmgp.b", "warmgp.c"]


def test_the_picture_shows_these_rooms_in_this_order() -> None:
    page = (ROOT / "docs/design.md").read_text()
    picture = page[page.index("```rooms") :].split("```")[1].splitlines()[1:]
    shown = [line.split()[0].removesuffix("/").removesuffix(".py") for line in picture if line[:1].strip()]
    assert shown == list(ROOMS)


def test_every_room_says_what_it_is_for() -> None:
    for room in ROOMS:
        path = SOURCE / room / "__init__.py"
        text = ast.get_docstring(ast.parse((path if path.exists() else SOURCE / f"{room}.py").read_text())) or ""
        assert text, room
        if path.exists():
            assert "may import" in text and "Add " in text, path


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


LONG: dict[str, str] = {}
"""Functions of more than 60 lines of code, and why they are."""


Definition = ast.FunctionDef | ast.ClassDef


def definitions(tree: ast.Module) -> Iterator[tuple[Definition, ast.ClassDef | None]]:
    """Yields the functions and classes of a module and the methods of its classes, each method with its class."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield node, None
        if isinstance(node, ast.ClassDef):
            yield from ((part, node) for part in node.body if isinstance(part, ast.FunctionDef))


def inherited(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Returns the names that a class has from the classes of warmgp that it is made from, by the name of the class."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases: dict[str, set[str]] = {}
    own: dict[str, set[str]] = {}
    for node in classes:
        bases.setdefault(node.name, set()).update(ast.unparse(base).split(".")[-1].split("[")[0] for base in node.bases)
        own.setdefault(node.name, set()).update(part.name for part in node.body if isinstance(part, ast.FunctionDef))

    def above(name: str) -> set[str]:
        return set().union(*(own.get(base, set()) | above(base) for base in bases.get(name, set()) - {name}))

    return {name: above(name) for name in bases}


def is_decorated(node: ast.AST, *names: str) -> bool:
    """Says whether one of the decorators has one of these names, whatever stands before it and it is called with."""
    decorators = [ast.unparse(decorator).split("(")[0] for decorator in getattr(node, "decorator_list", ())]
    return any(name.split(".")[-1] in names for name in decorators)


def is_property(node: ast.AST) -> bool:
    return is_decorated(node, "property", "cached_property", "setter")


def is_command(node: ast.AST) -> bool:
    """Says whether ``--help`` shows the docstring: what a command does is told there as an order."""
    return is_decorated(node, "command", "callback")


def undocumented(root: Path, rooms: tuple[str, ...]) -> list[str]:
    """Returns the public classes, functions and methods of these rooms that say nothing of themselves.

    A method that overrides one of a base class need not, nor a property, nor one signature of several.
    """
    trees = modules(root)
    known = inherited(trees)
    found = []
    for name, tree in trees.items():
        for node, of in definitions(tree) if room_of(name) in rooms else ():
            place = f"{of.name}.{node.name}" if of else node.name
            overrides = of is not None and node.name in known[of.name]
            said = overrides or is_property(node) or is_decorated(node, "overload")
            if not (ast.get_docstring(node) or said or any(part.startswith("_") for part in place.split("."))):
                found.append(f"{name}: {place}")
    return found


def unclear(root: Path, rooms: tuple[str, ...]) -> list[str]:
    """Returns the docstrings of functions in these rooms that do not begin, or whose first paragraph does not end, like
    a sentence: with a capital letter, a verb in the third person (but for properties and commands) and a full stop or
    colon."""
    found = []
    for name, tree in modules(root).items():
        for node in ast.walk(tree) if room_of(name) in rooms else ():
            text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            if text is None:
                continue
            first = text.split("\n\n")[0]
            word = first.split()[0].rstrip(",;:")
            verb = word.endswith("s") or is_property(node) or is_command(node)
            if not (word[0].isupper() and verb and first.rstrip().endswith((".", ":"))):
                found.append(f"{name}: {node.name}: {first[:60]}")
    return found


def test_whatever_is_public_says_what_it_is() -> None:
    assert undocumented(SOURCE, ROOMS) == []


def test_docstrings_of_functions_are_sentences() -> None:
    assert unclear(SOURCE, ROOMS) == []


@pytest.mark.parametrize(
    ("text", "silent", "wrong"),
    [
        ("def f():\n    return 1", ["f"], []),
        ("class A:\n    pass", ["A"], []),
        ('class A:\n    """Does."""\n    def f(self): ...', ["A.f"], []),
        ('class A(Solver):\n    """Does."""\n    def solve(self): ...\n    def _own(self): ...', [], []),
        ('class A(Cholesky):\n    """Does."""\n    def options(self): ...\n    def more(self): ...', ["A.more"], []),
        ('class A:\n    """Does."""\n    @property\n    def size(self): ...', [], []),
        ('class A:\n    """Does."""\n    @property\n    def size(self):\n        """The size."""', [], []),
        ("def _f(): ...\nclass _A:\n    def f(self): ...", [], []),
        ('@overload\ndef f(x: int): ...\ndef f(x):\n    """Returns x."""', [], []),
        ("@overload\ndef f(x: int): ...\ndef f(x):\n    return x", ["f"], []),
        ('@app.command()\ndef f():\n    """Return one."""', [], []),
        ('@app.callback("f")\ndef f():\n    """Return one"""', [], ["f"]),
        ('@triton.jit\ndef f():\n    """OUT = 1."""', [], ["f"]),
        ('def f():\n    """Returns one."""', [], []),
        ('def f():\n    """Returns\n    one:\n\n    1\n    """', [], []),
        ('def f():\n    """returns one."""', [], ["f"]),
        ('def f():\n    """Returns one"""', [], ["f"]),
        ('def f():\n    """None of them yet."""', [], ["f"]),
        ('def _f():\n    """As it is."""', [], []),  # which only a reader notices
        ('def _f():\n    """Of each half is kept."""', [], ["_f"]),
        ('def f():\n    """Returns one.\n    """\n    def g():\n        """one"""', [], ["g"]),
    ],
)
def test_a_bad_docstring_is_seen(text: str, silent: list[str], wrong: list[str], tmp_path: Path) -> None:
    root = tmp_path / "warmgp"
    for path in (SOURCE / "solvers").glob("*.py"):
        (root / "solvers").mkdir(parents=True, exist_ok=True)
        (root / "solvers" / path.name).write_text(path.read_text())
    (root / "solvers" / "new.py").write_text(text + "\n")
    assert undocumented(root, ROOMS) == [f"warmgp.solvers.new: {name}" for name in silent]
    assert [line.split(": ")[1] for line in unclear(root, ROOMS)] == wrong
    assert undocumented(root, ("files",)) == unclear(root, ("files",)) == []


def test_the_page_names_every_file() -> None:
    """design.md says of every module what it is for: it stands in the picture, or in the table of its room."""
    page = (ROOT / "docs/design.md").read_text()
    rows = {row.split("|")[1].strip(" `"): row for row in page.splitlines() if row.startswith("| `")}
    missing = []
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        room = f"{inside.parent}/" if inside.parent != Path() else ""
        row = rows.get(room) or rows.get(f"{inside.parts[0]}/", "") if room else page
        if f"`{path.name}`" not in row and f"{path.name} " not in page:
            missing.append(str(inside))
    assert missing == []
