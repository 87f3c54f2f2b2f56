"""Data sets to fit: UCI's benchmarks with their published splits, and those of :mod:`warmgp.data.synthetic`.

:func:`uci` returns one train/test split of a benchmark dataset, standardised by its training part as the paper does::

    split = uci("pol")  # 13,500 training rows, 1,500 test rows, 26 inputs
    model.fit(split.x_train, split.y_train)

The files are those of the public collection github.com/treforevans/uci_datasets (MIT; the data itself is UCI's, CC BY
4.0). They are looked for in the ``folder`` argument, else in the folder named by the environment variable
``WARMGP_DATA``, else in a per-user cache that is filled by download on first use. Whoever names a folder means that
folder, so nothing is downloaded then, and its files are read as they are. A download is put in place only after its
SHA-256 checksum was verified, and it is verified again whenever it is read from the cache: a file that has changed
there is an error, not a new download, since whoever changed it may want to know. A file without a known checksum is
never downloaded.

A dataset is a folder of two files: ``data.csv.gz`` (no header, the last column is the target; or ``data.npz`` with
arrays ``X`` and ``y``) and ``test_mask.csv.gz`` (one column for each of ten splits, 1 marks a test row).
"""

from __future__ import annotations

import hashlib
import http.client
import operator
import os
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warmgp.data.scaling import Standardizer
from warmgp.data.synthetic import gp_sample, surface

__all__ = ["UCI_NAMES", "DownloadError", "Split", "fetch", "gp_sample", "surface", "uci"]

FloatArray = NDArray[np.float64]

#: Names that :func:`uci` knows, in the order of their numbers of rows.
UCI_NAMES: tuple[str, ...] = ("pol", "elevators", "bike", "protein", "keggdirected", "houseelectric")

_N_SPLITS = 10
_ENVIRONMENT = "WARMGP_DATA"
_CSV, _NPZ, _MASK = "data.csv.gz", "data.npz", "test_mask.csv.gz"

#: The address that :func:`fetch` downloads from; a dataset's name and a file's follow.
BASE_URL = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets"

#: SHA-256 of each file of the collection, taken from our copies; they equal the object ids of the Git LFS pointers in
#: the collection's history (commit d5061ad). houseelectric is missing on purpose: we have no copy of its public
#: data file to take a checksum from, so it is not downloaded but read from a folder the user provides.
CHECKSUMS: Mapping[str, Mapping[str, str]] = {
    "pol": {
        _CSV: "1c16126352954571e78f52d5a9d1b947a38655885d7cadd9407a4c9615fe4e04",
        _MASK: "c5540259aabe58f5c7a534ed6f5141f8c1157d5de592e45884b7fced6091e981",
    },
    "elevators": {
        _CSV: "e39bc18a80ec3611e4fd76d0f86ee377e96ba21b568b9997576d538dafe56b7b",
        _MASK: "9fe662eacca95ae2c9301cbc4c4134e55d58e903cb0cfb683771ffdd2d248eb5",
    },
    "bike": {
        _CSV: "411f76ae426c0e348a2629dcf6b3b29102c7db465eae780a3454c39db1dfac4f",
        _MASK: "cf13dc25e80c03019cf2b01666f9cc29b03ea222f5c519536023ea56669bf337",
    },
    "protein": {
        _CSV: "f709d0107c3ee90ab019b9e5d77fc2ae182158958cb70b1903236a51334fd01b",
        _MASK: "22afe05e8d17c428558d78a77efeecc08d58004b6c95741d1c533c3207c69fe9",
    },
    "keggdirected": {
        _CSV: "51b7bb56e3f3eae36273cdd5a549c042bdf0ec10948a6f8e6b01a1d6912212cd",
        _MASK: "b8a7fc902444fdbc5866e8bf314e4778a303d675ef5267c83c5c25b70dacd357",
    },
}

_TIMEOUT_SECONDS = 60
_CHUNK_BYTES = 1 << 20
_BY_HAND = (
    f"Get {_CSV} and {_MASK} by another way (the collection is github.com/treforevans/uci_datasets), place them in "
    f"<folder>/<name>/ and set the environment variable {_ENVIRONMENT} to <folder>."
)


class DownloadError(OSError):
    """Says that a dataset cannot or must not be downloaded, or that what arrived or is in the cache is another file."""


@dataclass(frozen=True, eq=False)
class Split:
    """Holds one train/test split of a dataset.

    Parameters
    ----------
    name : str
        The dataset.
    split : int
        Which of the ten splits.
    x_train, y_train : ndarray of shape (n, d) and (n,)
        Training rows, float64, in the order of the file.
    x_test, y_test : ndarray of shape (m, d) and (m,)
        Test rows, float64, in the units of the training rows.
    standardizer : Standardizer
        The map that was applied, fitted on the training rows only; the identity if the data was left as it is. Its
        ``y_back`` returns predictions to the units of the file.
    """

    name: str
    split: int
    x_train: FloatArray
    y_train: FloatArray
    x_test: FloatArray
    y_test: FloatArray
    standardizer: Standardizer


def uci(
    name: str,
    split: int = 0,
    *,
    folder: str | os.PathLike[str] | None = None,
    standardize: bool = True,
    download: bool = True,
) -> Split:
    """Loads one published split of a UCI regression dataset.

    Parameters
    ----------
    name : str
        One of :data:`UCI_NAMES`.
    split : int, default 0
        Which of the ten published splits, 0 to 9; each holds out a tenth of the rows.
    folder : path, optional
        A folder that holds one folder per dataset. Without it, the environment variable ``WARMGP_DATA`` names that
        folder; without that, it is a cache below ``$XDG_CACHE_HOME`` or ``~/.cache``.
    standardize : bool, default True
        Whether inputs and target are standardised with the mean and standard deviation of the training rows, the units
        of the paper's tables. Otherwise the values are as in the file.
    download : bool, default True
        Whether a dataset that is missing from the cache may be downloaded. A folder that was named, by argument or
        variable, is never written to.

    Returns
    -------
    Split

    Raises
    ------
    ValueError
        For an unknown name, a split outside 0 to 9, or files that do not fit together.
    FileNotFoundError
        If the dataset is not in the named folder, or not in the cache and ``download`` is false.
    DownloadError
        If it has to be downloaded and that fails or is refused, or if a file of the cache is not what was downloaded.

    Notes
    -----
    houseelectric is not downloaded (no verified checksum). Where its ``data.npz`` was rebuilt from UCI's raw table
    rather than converted from the public file, single rows may differ: say so beside figures that use it.
    """
    if name not in UCI_NAMES:
        raise ValueError(f"unknown dataset {name!r}; available: {', '.join(UCI_NAMES)}")
    split = operator.index(split)
    if not 0 <= split < _N_SPLITS:
        raise ValueError(f"split must be 0 to {_N_SPLITS - 1}; got {split}")

    path = _locate(name, folder, download)
    X, y = _read_data(path)
    test = _read_test_rows(path / _MASK, split, rows=y.shape[0])
    x_train, y_train, x_test, y_test = X[~test], y[~test], X[test], y[test]
    if not standardize:
        return Split(name, split, x_train, y_train, x_test, y_test, Standardizer.identity(X.shape[1]))
    scaling = Standardizer.fit(x_train, y_train)
    return Split(
        name, split, scaling.x(x_train), scaling.y(y_train), scaling.x(x_test), scaling.y(y_test), standardizer=scaling
    )


def fetch(
    name: str,
    folder: str | os.PathLike[str],
    *,
    base_url: str = BASE_URL,
    checksums: Mapping[str, Mapping[str, str]] = CHECKSUMS,
) -> Path:
    """Downloads a dataset into a folder, and verifies it.

    All files are downloaded beside their destination and verified before the first is moved into place, so that an
    interrupted, damaged or altered download leaves nothing behind and a dataset is never half there.

    Parameters
    ----------
    name : str
        A dataset with an entry in ``checksums``.
    folder : path
        The folder that will hold ``<name>/``; made if missing. Files of that dataset already there are replaced.
    base_url : str
        The address that ``<name>/<file>`` is appended to; a mirror, or a ``file://`` address.
    checksums : mapping
        Dataset to file name to SHA-256 in hexadecimal. It also says which files make up the dataset.

    Returns
    -------
    Path
        ``<folder>/<name>``.

    Raises
    ------
    DownloadError
        If no checksum is known, the download fails, or a checksum differs.
    """
    if name not in checksums:
        raise DownloadError(
            f"{name} is not downloaded: no checksum is known for it, so the files could not be verified. {_BY_HAND}"
        )
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as scratch:
        for file, expected in checksums[name].items():
            url = f"{base_url.rstrip('/')}/{name}/{file}"
            got = _download(url, Path(scratch) / file)
            if got != expected:
                raise DownloadError(
                    f"{url} is not the expected file: SHA-256 expected {expected}, got {got}. Nothing was kept. "
                    "Try again in case the transfer was damaged; if it stays, the file at the source has changed. "
                    f"{_BY_HAND}"
                )
        target.mkdir(exist_ok=True)
        for file in checksums[name]:
            (Path(scratch) / file).replace(target / file)
    return target


def _download(url: str, path: Path) -> str:
    """Streams ``url`` into ``path`` and returns the SHA-256 of what arrived."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response, path.open("wb") as out:
            while chunk := response.read(_CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"could not download {url}: {error}. If this machine is offline: {_BY_HAND}") from error
    return digest.hexdigest()


def _cache_folder() -> Path:
    """Returns the per-user cache; a relative XDG_CACHE_HOME is ignored, as its specification asks."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "warmgp" / "uci"


def _verify(path: Path, checksums: Mapping[str, str]) -> None:
    """Raises where a file of a dataset folder is not what its checksum says."""
    for file, expected in checksums.items():
        with (path / file).open("rb") as data:
            got = hashlib.file_digest(data, "sha256").hexdigest()
        if got != expected:
            raise DownloadError(
                f"{path / file} is not the file that was downloaded into the cache (SHA-256 expected {expected}, got "
                f"{got}): it is damaged or was changed. Delete it to download it anew, or, to use a file of your own, "
                f"place it in <folder>/<name>/ and set the environment variable {_ENVIRONMENT} to <folder>."
            )


def _missing(path: Path) -> list[str]:
    """Names the files that a dataset folder lacks."""
    missing = [] if (path / _MASK).is_file() else [_MASK]
    if not any((path / file).is_file() for file in (_CSV, _NPZ)):
        missing.insert(0, f"{_CSV} (or {_NPZ})")
    return missing


def _locate(name: str, folder: str | os.PathLike[str] | None, download: bool) -> Path:
    """Finds the folder of a dataset; downloads only where the user named no folder."""
    environment = os.environ.get(_ENVIRONMENT)
    if folder is not None:
        root, origin = Path(folder).expanduser(), "the argument folder"
    elif environment:
        root, origin = Path(environment).expanduser(), f"the environment variable {_ENVIRONMENT}"
    else:
        root, origin = _cache_folder(), "the cache"
    path = root / name
    checksums = CHECKSUMS.get(name) if origin == "the cache" else None
    missing = _missing(path) if checksums is None else [file for file in checksums if not (path / file).is_file()]
    if not missing:
        _verify(path, checksums or {})
        return path
    if origin != "the cache":
        raise FileNotFoundError(
            f"{path} lacks {' and '.join(missing)} ({origin} names {root}). Place the files there, or name no folder "
            f"(neither the argument nor {_ENVIRONMENT}) to download the dataset into a cache."
        )
    if not download:
        raise FileNotFoundError(
            f"{path} lacks {' and '.join(missing)} and download=False. Allow the download, or place the files in "
            f"<folder>/{name}/ and set the environment variable {_ENVIRONMENT} to <folder>."
        )
    return fetch(name, root)


def _read_data(path: Path) -> tuple[FloatArray, FloatArray]:
    """Reads inputs (n, d) and target (n,) of a dataset folder: from the csv, the published form, if there is one."""
    if (file := path / _CSV).is_file():
        table = np.loadtxt(file, delimiter=",", dtype=np.float64, ndmin=2)
        if table.shape[1] < 2:
            raise ValueError(f"{file} needs at least one input column and the target; it has {table.shape[1]} column")
        return table[:, :-1], table[:, -1]
    file = path / _NPZ
    with np.load(file) as arrays:
        if not {"X", "y"} <= set(arrays.files):
            raise ValueError(f"{file} must hold the arrays X and y; it holds {', '.join(arrays.files) or 'none'}")
        X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
    if X.ndim != 2 or y.shape not in {(X.shape[0],), (X.shape[0], 1)}:
        raise ValueError(f"{file} must hold X of shape (n, d) and y of shape (n,); got {X.shape} and {y.shape}")
    return X, y.reshape(-1)


def _read_test_rows(file: Path, split: int, rows: int) -> NDArray[np.bool_]:
    """Reads which rows one split holds out for testing, (rows,)."""
    mask = np.loadtxt(file, delimiter=",", dtype=np.int8, ndmin=2)
    if mask.shape[0] != rows:
        raise ValueError(f"{file} has {mask.shape[0]} rows but the data beside it has {rows}; they must match")
    if mask.shape[1] != _N_SPLITS:
        raise ValueError(f"{file} must have {_N_SPLITS} columns, one per split; it has {mask.shape[1]}")
    return mask[:, split] == 1
