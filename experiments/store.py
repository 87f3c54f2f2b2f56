"""Records of finished runs, one JSON file each: easy to read, to diff and to extend, and never torn.

A file is written under a temporary name and renamed, so that a kill at any moment leaves whole records only. What a
run needs to go on after a cut lies beside them in ``unfinished/``, which is not meant to be kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.cells import Item
from experiments.common import write_json

Record = dict[str, Any]


class Store:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unfinished = folder / "unfinished"
        self.unfinished.mkdir(parents=True, exist_ok=True)

    def path(self, item: Item) -> Path:
        return self.folder / f"{item.key}.json"

    def get(self, item: Item) -> Record | None:
        path = self.path(item)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, item: Item, record: Record) -> None:
        write_json(self.path(item), {"key": item.key, **record})

    def checkpoint(self, item: Item) -> Path:
        """Where a run that was cut goes on from."""
        return self.unfinished / f"{item.key}.safetensors"

    def places(self, item: Item, here: str) -> str:
        """Where a run has worked, here included: one that goes on elsewhere keeps the names of both."""
        path = self._places(item)
        before = path.read_text().splitlines() if path.exists() and self.checkpoint(item).exists() else []
        every = list(dict.fromkeys([*before, here]))
        path.write_text("\n".join(every))
        return "; ".join(every)

    def tidy(self, item: Item) -> None:
        """Forget what a run would have gone on from."""
        self.checkpoint(item).unlink(missing_ok=True)
        self._places(item).unlink(missing_ok=True)

    def _places(self, item: Item) -> Path:
        return self.unfinished / f"{item.key}.places"

    def records(self, kind: str = "training") -> Iterator[Record]:
        """All records of a kind, by name."""
        for path in sorted(self.folder.glob("*.json")):
            record = json.loads(path.read_text())
            if record["run"]["kind"] == kind:
                yield record
