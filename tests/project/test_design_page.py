"""The page docs/design.md: it shows the rooms and every file, and what it names is where it says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from house import HOUSE, ROOMS, ROOT, SOURCE, dotted, room_of
from warmgp.operators.row_noise import Noise

PAGE = (ROOT / "docs/design.md").read_text()

MODEL = ("operators", "solvers", "gradient", "posterior", "training")
"""The rooms that compute with θ."""


def test_the_picture_shows_these_rooms_in_this_order() -> None:
    picture = PAGE[PAGE.index("```rooms") :].split("```")[1].splitlines()[1:]
    shown = [line.split()[0].removesuffix("/").removesuffix(".py") for line in picture if line[:1].strip()]
    assert shown == list(ROOMS)


def test_the_page_names_every_file() -> None:
    """design.md says of every module what it is for: it stands in the picture, or in the table of its room."""
    rows = {row.split("|")[1].strip(" `"): row for row in PAGE.splitlines() if row.startswith("| `")}
    missing = []
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        room = f"{inside.parent}/" if inside.parent != Path() else ""
        row = rows.get(room) or rows.get(f"{inside.parts[0]}/", "") if room else PAGE
        if f"`{path.name}`" not in row and f"{path.name} " not in PAGE:
            missing.append(str(inside))
    assert missing == []


@cache
def words_of(tree: ast.AST) -> set[str]:
    """Returns the names that a tree uses for anything, and its texts, which may be names in a file."""
    words: set[str] = set()
    for node in ast.walk(tree):
        words |= {str(getattr(node, field)) for field in ("name", "id", "attr", "arg", "value") if hasattr(node, field)}
    return words


def is_there(name: str) -> bool:
    """Says whether there is what stands in backticks: a folder, a file, a name in a module, or names with dots."""
    if name.endswith(("/", ".py", ".md")):
        return (ROOT / name).exists() or (SOURCE.parent / name).exists() or any(SOURCE.rglob(name))
    place, *names = name.removeprefix(".").split(".")
    if "/" in place:
        tree = HOUSE.get(f"warmgp.{place.replace('/', '.')}")
        return tree is not None and set(names) <= words_of(tree)
    return {place, *names} <= set(ROOMS).union(*map(words_of, HOUSE.values()))


def gone(text: str) -> list[str]:
    """Returns what a text names in backticks and is not there; calls and arguments count by their names."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    names = [re.split(r"[=(]", name)[0] for name in re.findall(r"`([^`]+)`", plain)]
    return [name for name in names if re.fullmatch(r"[\w./]+", name) and not is_there(name)]


def where_is(question: str) -> str:
    """Returns the answer that design.md gives to one question of its table."""
    rows = [row.split("|") for row in PAGE.splitlines() if row.startswith("| ")]
    return next(row[2] for row in rows if row[1].strip() == question)


def names_file(answer: str, module: str) -> bool:
    """Says whether an answer names a module: its file, something in it, or a folder that it is in."""
    inside = module.removeprefix("warmgp.").replace(".", "/")
    folders = [f"{'/'.join(inside.split('/')[:k])}/" for k in range(1, inside.count("/") + 1)]
    return any(f"`{folder}`" in answer for folder in folders) or re.search(rf"`{inside}\b", answer) is not None


def uses_noise(tree: ast.Module) -> bool:
    """Says whether a module computes with σ: a record's is only shown."""
    read = [dotted(node).split(".") for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return any(
        parts[-1] in ("noise_variance", "noise_floor")
        or parts[-2:] == ["theta", "noise_scale"]
        or (parts[-2:-1] == ["noise"] and parts[-1] in vars(Noise))
        for parts in read
    )


def chooses_float64(tree: ast.Module) -> bool:
    """Says whether a module takes float64 by a condition: for a part of its own, or for the rest of a training."""
    choices = [node for node in ast.walk(tree) if isinstance(node, ast.IfExp)]
    values = {ast.unparse(value) for node in choices for value in (node.body, node.orelse)}
    return "torch.float64" in values or "in_float64_at" in words_of(tree) - words_defined(tree)


def words_defined(tree: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_what_the_page_names_is_there() -> None:
    assert gone(PAGE) == []


def test_the_page_says_where_the_noise_is() -> None:
    answer = where_is("the noise σ²")
    found = [name for name, tree in HOUSE.items() if room_of(name) in MODEL and uses_noise(tree)]
    assert found
    assert [name for name in found if not names_file(answer, name)] == []


def test_the_page_says_where_float64_is_decided() -> None:
    answer = where_is("float64 decided")
    found = [name for name, tree in HOUSE.items() if room_of(name) in MODEL and chooses_float64(tree)]
    assert found
    assert [name for name in found if not names_file(answer, name)] == []
    functions = [node for node in ast.walk(HOUSE["warmgp.training.loop"]) if isinstance(node, ast.FunctionDef)]
    callers = [function.name for function in functions if "in_float64_at" in words_of(function)]
    assert callers
    assert [name for name in callers if not re.search(rf"[`.]{name}`", answer)] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("In `training/loop._ready`, `operators/` and `operators/base.py` (`_exact`), `include_noise=False`.", []),
        ("```\n`nowhere`\n```\n`BlockFactors.of`, `block_factors.py`, `kernel_…`, `at(theta)`", []),
        (
            "`training/loop._gone`, `nowhere/`, `operators/gone.py`",
            ["training/loop._gone", "nowhere/", "operators/gone.py"],
        ),
        ("`BlockFactors.no_such`, `training/gone.train`", ["BlockFactors.no_such", "training/gone.train"]),
    ],
)
def test_what_is_gone_is_seen(text: str, wrong: list[str]) -> None:
    assert gone(text) == wrong


@pytest.mark.parametrize(
    ("line", "noise", "float64"),
    [
        ("s = operator.noise_variance", True, False),
        ("s = float(self.theta.noise_scale)", True, False),
        ("s = operator.noise.times(V)", True, False),
        ("s = draw.noise.shape", False, False),
        ("s = record.noise_scale", False, False),
        ("dtype = x.dtype if safe else torch.float64", False, True),
        ("dtype = torch.float64", False, False),
        ("problem.in_float64_at(theta)", False, True),
        ("def in_float64_at(self): ...", False, False),
    ],
)
def test_what_the_page_has_to_say_is_seen(line: str, noise: bool, float64: bool) -> None:
    tree = ast.parse(line)
    assert (uses_noise(tree), chooses_float64(tree)) == (noise, float64)


@pytest.mark.parametrize(
    ("answer", "module", "named"),
    [
        ("`operators/`", "warmgp.operators.triton.fused", True),
        ("`training/loop._ready`", "warmgp.training.loop", True),
        ("`training/step.py`", "warmgp.training.step", True),
        ("`posterior.py`", "warmgp.posterior", True),
        ("`training/step.py`", "warmgp.training.steps", False),
        ("`solvers/preconditioners/`", "warmgp.solvers.block_factors", False),
        ("the posterior", "warmgp.posterior", False),
    ],
)
def test_what_an_answer_names_is_seen(answer: str, module: str, named: bool) -> None:
    assert names_file(answer, module) is named
