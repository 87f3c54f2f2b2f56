"""The pages are true: their Python and their commands run, their pictures exist, the site builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import warmgp
from warmgp.cli import commands as cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("there is no docs folder beside the tests", allow_module_level=True)

FOLDERS = ("", "gallery", "how_to")
PAGES = sorted(page for name in FOLDERS for page in (DOCS / name).glob("*.md") if page.name != "design.md")
NAMES = [str(page.relative_to(DOCS)) for page in PAGES]


def load(name: str) -> ModuleType:
    """A script of the docs folder as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


make_tutorial = load("make_tutorial")


# -- what the pages say ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All Python of a page in one namespace and all its commands, in order, on a table of few rows."""
    monkeypatch.chdir(tmp_path)
    if page.name == "grids.md":
        pytest.importorskip("h5netcdf", reason="maps need xarray and h5netcdf: pip install 'warmgp[maps]'")
    if page.name == "botorch.md":
        pytest.importorskip("botorch", reason="the page needs BoTorch: pip install 'warmgp[botorch]'")
    if page.name == "tutorial.md":
        make_tutorial.write_tables(tmp_path, n=150, n_later=100)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in make_tutorial.blocks(page.read_text()):
        if block.language != "text":
            make_tutorial.run_block(block, page, names)  # raises where a command ends otherwise than the page says


def test_there_are_blocks_of_every_kind() -> None:
    """The pattern that finds blocks finds them: a page whose fences it misses would pass the test above."""
    found = {page.name: {b.language for b in make_tutorial.blocks(page.read_text())} for page in PAGES}
    assert found["tutorial.md"] == {"python", "sh", "console", "text"}
    for name in ("index.md", "choosing.md", "mathematics.md", "extending.md"):
        assert "python" in found[name]
    for page in PAGES:
        text = page.read_text()
        fences = len(re.findall(r"^\s*```(?:python|sh|console)\b", text, re.MULTILINE)) - text.count("<!-- not run: ")
        runnable = [b for b in make_tutorial.blocks(text) if b.language != "text"]
        assert fences == len(runnable), f"{page.name} has a fence that is not run, and does not say why"


def test_a_failing_command_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit, refused = "warmgp info missing.safetensors\n", "$ warmgp --help\n"
    for language, text in (("sh", fit), ("console", refused)):
        (block,) = make_tutorial.blocks(f"```{language}\n{text}```\n")
        with pytest.raises(RuntimeError, match="ended with"):
            make_tutorial.run_block(block, Path("page.md"), {})


def test_outputs_are_refreshed(tmp_path: Path) -> None:
    """A text block becomes what the block before it prints; where only seconds differ it stays."""
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("a 2.5 s")\nprint(1 + 1)\n```\n\n```text\nold\n```\n')
    fresh = make_tutorial.refresh(page, {})
    assert "```text\na 2.5 s\n2\n```" in fresh
    page.write_text(fresh.replace("```text\na 2.5 s", "```text\na 9.9 s"))
    assert make_tutorial.refresh(page, {}) == page.read_text()


def test_the_tables_are_the_same_every_time(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        make_tutorial.write_tables(folder, n=50, n_later=20)
    for name in ("rivers.csv", "later.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("command", ["fit", "plan", "predict", "score", "update", "info", "report", "demo"])
def test_the_command_line_page_has_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Stale? python docs/make_tutorial.py command_line.md"""
    assert cli.main([command, "--help"]) == 0
    options = set(re.findall(r"^ +(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    section = (DOCS / "command_line.md").read_text().split(f"\n## {command}\n")[1].split("\n## ")[0]
    shown = set(re.findall(r"^ +(--[a-z-]+)", section, re.MULTILINE))
    assert shown == options


def test_the_api_page_has_every_public_name() -> None:
    shown = set(re.findall(r"^::: warmgp\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    assert shown == set(warmgp.__all__)


# -- the site --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", [*PAGES, DOCS / "design.md"], ids=[*NAMES, "design.md"])
def test_images_exist(page: Path) -> None:
    for image in re.findall(r"!\[[^\]]*\]\(([^)\s]+)[^)]*\)", page.read_text()):
        assert (page.parent / image).is_file(), f"{page.name} shows {image}, which is missing"


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml", reason="formulas need latex2mathml: pip install 'warmgp[docs]'")
    made = load("hooks").on_page_content(
        r'<p>a <span class="arithmatex">\(a &lt; b\)</span></p><div class="arithmatex">\[\frac{1}{2}\]</div>'
    )
    assert made.count("<math") == 2 and "<mfrac>" in made and 'display="block"' in made and "arithmatex" not in made


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """As `mkdocs build --strict`: no broken link, no page missing, no formula left over, nothing fetched."""
    for module in ("mkdocs", "material", "mkdocstrings_handlers", "latex2mathml"):
        pytest.importorskip(module, reason=f"the site needs {module}: pip install 'warmgp[docs]'")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    config.plugins.on_shutdown()
    html = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {Path("index.html"), Path("api/index.html"), Path("gallery/terrain/index.html")} <= set(html)
    for path, text in html.items():
        assert "arithmatex" not in text and "<mi>&</mi>" not in text, f"a formula of {path} was not understood"
        assert not re.search(r":(?:class|func|meth|mod):", text), f"a docstring on {path} shows a Sphinx role"
        fetched = re.findall(r'(?:src|href)="((?:https?:)?//[^"]+\.(?:js|css|png|svg|woff2?))"', text)
        assert not fetched, f"{path} needs the network: {fetched}"
    assert html[Path("mathematics/index.html")].count("<math") > 50
    assert 'id="warmgp.GPRegressor.predict"' in html[Path("api/index.html")]
