"""Docstrings: whatever is public has one, and each begins with a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from house import HOUSE, ROOMS, Trees, ancestors, classes_of, room_of

Definition = ast.FunctionDef | ast.ClassDef


def definitions(tree: ast.Module) -> Iterator[tuple[Definition, ast.ClassDef | None]]:
    """Yields the functions and classes of a module and the methods of its classes, each method with its class."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield node, None
        if isinstance(node, ast.ClassDef):
            yield from ((part, node) for part in node.body if isinstance(part, ast.FunctionDef))


def inherited(trees: Trees) -> dict[str, set[str]]:
    """Returns the names that a class has from the classes of warmgp that it is made from, by the name of the class."""
    own: dict[str, set[str]] = {}
    for node in classes_of(trees):
        own.setdefault(node.name, set()).update(part.name for part in node.body if isinstance(part, ast.FunctionDef))
    return {name: set().union(*(own.get(base, set()) for base in above)) for name, above in ancestors(trees).items()}


def is_decorated(node: ast.AST, *names: str) -> bool:
    """Says whether one of the decorators has one of these names, whatever stands before it and it is called with."""
    decorators = [ast.unparse(decorator).split("(")[0] for decorator in getattr(node, "decorator_list", ())]
    return any(name.split(".")[-1] in names for name in decorators)


def is_property(node: ast.AST) -> bool:
    return is_decorated(node, "property", "cached_property", "setter")


def is_command(node: ast.AST) -> bool:
    """Says whether ``--help`` shows the docstring: what a command does is told there as an order."""
    return is_decorated(node, "command", "callback")


def undocumented(trees: Trees, rooms: tuple[str, ...]) -> list[str]:
    """Returns the public classes, functions and methods of these rooms that say nothing of themselves.

    A method that overrides one of a base class need not, nor a property, nor one signature of several.
    """
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


def unclear(trees: Trees, rooms: tuple[str, ...]) -> list[str]:
    """Returns the docstrings in these rooms that do not begin, or whose first paragraph does not end, like a sentence.

    One begins with a capital letter and a verb in the third person, whose subject is the function or the class (but for
    properties and commands), and ends with a full stop or colon.
    """
    found = []
    for name, tree in trees.items():
        for node in ast.walk(tree) if room_of(name) in rooms else ():
            text = ast.get_docstring(node) if isinstance(node, Definition) else None
            if text is None:
                continue
            first = text.split("\n\n")[0]
            word = first.split()[0].rstrip(".,;:")
            verb = word.endswith("s") or is_property(node) or is_command(node)
            if not (word[0].isupper() and verb and first.rstrip().endswith((".", ":"))):
                found.append(f"{name}: {node.name}: {first[:60]}")
    return found


def test_whatever_is_public_says_what_it_is() -> None:
    assert undocumented(HOUSE, ROOMS) == []


def test_docstrings_are_sentences() -> None:
    assert list(unclear(HOUSE, ROOMS)) == []


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
        ('class A:\n    """Holds one."""\nclass _B:\n    """Keeps b numbers.\n\n    of one kind"""', [], []),
        ('class A:\n    """The operator that keeps H."""', [], ["A"]),
        ('class A(Solver):\n    """CG with a preconditioner."""', [], ["A"]),
        ('class _A(ValueError):\n    """Raised for a file."""', [], ["_A"]),
        ('class A:\n    """Holds one"""\n    class B:\n        """A way."""', [], ["A", "B"]),
        ('def f():\n    """Returns one.\n    """\n    def g():\n        """one"""', [], ["g"]),
    ],
)
def test_a_bad_docstring_is_seen(text: str, silent: list[str], wrong: list[str]) -> None:
    trees = {name: tree for name, tree in HOUSE.items() if room_of(name) == "solvers"}
    new = {"warmgp.solvers.new": ast.parse(text)}
    assert undocumented(trees | new, ROOMS) == [f"warmgp.solvers.new: {name}" for name in silent]
    assert [line.split(": ")[1] for line in unclear(new, ROOMS)] == wrong
    assert undocumented(trees | new, ("files",)) == unclear(new, ("files",)) == []
