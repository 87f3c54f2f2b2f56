"""The data of the experiments, standardised: UCI sets with the paper's splits, terrain, and made-up sets."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from warmgp.data.datasets import UCI_NAMES, Split, uci
from warmgp.data.scaling import Standardizer
from warmgp.data.synthetic import gp_sample

TOYS = {"toy-quiet": (300, 0.05), "toy-noisy": (300, 0.5), "toy-large": (1200, 0.1)}  # points and noise


class NotAtHandError(Exception):
    """The data of a set are not on this machine."""


def split_of(name: str, split: int, folder: str | None = None) -> Split:
    """One split of a dataset.

    Parameters
    ----------
    name : str
        A UCI set, "terrain", or one of :data:`TOYS`.
    split : int
    folder : str, optional
        Of the UCI sets; terrain is looked for in ``../terrain`` beside it. Default: the variable ``WARMGP_DATA``.
    """
    if name in TOYS:
        n, noise = TOYS[name]
        x, y = gp_sample(n + 200, 3, noise=noise, length_scale=[0.7, 1.5, 4.0], seed=split)
        return _divide(name, split, x, y, np.arange(len(y)) >= n)
    if name == "terrain":
        return terrain(split, folder)
    if name not in UCI_NAMES:
        raise NotAtHandError(f"{name} is not at hand")
    try:
        return uci(name, split, folder=folder)
    except FileNotFoundError as absent:
        raise NotAtHandError(str(absent)) from absent


def terrain(split: int, folder: str | None = None) -> Split:
    """Heights by longitude and latitude, 434,874 points, a tenth of them held out at random by the split's number."""
    root = folder or os.environ.get("WARMGP_DATA")
    if root is None:
        raise NotAtHandError("terrain is not downloaded: name the folder beside terrain/ in WARMGP_DATA or --data")
    path = Path(root).parent / "terrain" / "data.npz"
    if not path.exists():
        raise NotAtHandError(f"terrain is not at hand: there is no {path}")
    with np.load(path) as file:
        x, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    test = np.random.default_rng(split).random(len(y)) < 0.1
    return _divide("terrain", split, x, y, test)


def _divide(name: str, split: int, x: np.ndarray, y: np.ndarray, test: np.ndarray) -> Split:
    scaler = Standardizer.fit(x[~test], y[~test])
    parts = scaler.x(x[~test]), scaler.y(y[~test]), scaler.x(x[test]), scaler.y(y[test])
    return Split(name, split, *parts, standardizer=scaler)
