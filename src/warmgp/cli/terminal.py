"""What the command line says: text from files and paths is shown so that it can only be read, never obeyed."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid
from rich.text import Text


def printable(text: str) -> str:
    r"""Returns the text as one line of visible characters, others as escapes such as ``\x1b``.

    A terminal obeys escape sequences, and a name in a file may hold them; it also may hold bytes that are no text.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def console(stderr: bool = False, quiet: bool = False) -> Console:
    """Makes a console that prints what it is given: no markup, no emoji names, no colours of numbers."""
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)


def tell(text: str, stderr: bool = False) -> None:
    """Prints one line, however long."""
    console(stderr).print(Text(printable(text)), soft_wrap=True)


def say(kind: str, text: str) -> None:
    """Writes one line ``kind: text`` to stderr, line ends as spaces."""
    sys.stderr.write(f"{kind}: {printable(' '.join(text.split()))}\n")


def bar(quiet: bool) -> Progress:
    """Makes a bar with a share done and a count of ``rows``; none where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rows]}"))
    quiet = quiet or not sys.stderr.isatty()  # the console, too: rich before 15 ends even a hidden bar with a line
    return Progress(*columns, TimeRemainingColumn(), console=console(stderr=True, quiet=quiet), disable=quiet)


def lines_of(text: str) -> Text:
    """Returns a text of several lines, each of visible characters, which a console wraps at its width."""
    return Text("\n".join(map(printable, text.splitlines())))


def show(title: str, rows: Mapping[str, str | Text]) -> None:
    """Prints a title and a table of two columns."""
    tell(title)
    grid = Grid(show_header=False)
    for name, value in rows.items():
        grid.add_row(*cells(name, value))
    console().print(grid)


def cells(*texts: str | Text) -> list[Text]:
    """Returns the cells of a table's row, which rich prints as they are."""
    return [text if isinstance(text, Text) else Text(printable(text)) for text in texts]
