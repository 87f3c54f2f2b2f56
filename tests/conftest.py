"""Shared by all tests: where the data is, and which tests can run here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def uci_folder() -> Path:
    """The UCI folder: WARMGP_DATA, or shared/uci beside the checkout. Skips where there is none."""
    named = os.environ.get("WARMGP_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "uci"
    if not (folder / "pol").is_dir():
        pytest.skip(f"no UCI data in {folder.name}/: set WARMGP_DATA to a folder that holds pol/data.csv.gz")
    return folder
