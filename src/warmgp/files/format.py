"""The file format: a model or a checkpoint is one safetensors file, written whole or not at all, and never unpickled.

Tensors are stored as they are; everything else is JSON in the file's header, under the keys ``format`` (always
"warmgp"), ``format_version``, ``kind`` ("model" or "checkpoint"), ``warmgp_version``, ``checksum`` and ``content``. The
checksum is the SHA-256 of the whole file with zeros in its own place: no byte can change unnoticed. It costs about a
second for each gigabyte, at saving and at loading. Files of format 1 have none; from format 2 on one must be there.

A file is read into memory and closed: what happens to it afterwards changes nothing. A damaged file, a file of another
kind, or one of a newer format is refused with a message that says which. What content and tensors mean, and what is
allowed there, is the matter of :mod:`warmgp.estimator.model_file` and :mod:`warmgp.files.checkpoint`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warmgp.files.atomic import Claim, whole_file
from warmgp.files.paths import check_readable

logger = logging.getLogger(__name__)

FORMAT_VERSION = 3
"""2 has a checksum; 3 has a solver's state under a name of its own in checkpoints, reports in models, and threads in
plans."""
TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "U8": np.uint8,
}
"""Kinds of numbers that a file may hold, by safetensors' names."""
LONGEST_HEADER = 100_000_000
"""The most bytes of a header: the limit of safetensors."""
NO_CHECKSUM = "0" * 64


class FileError(ValueError):
    """Says that a file is not what it should be."""


# -- writing ---------------------------------------------------------------------------------------------------------
def write(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    content: Mapping[str, Any],
    claim: Claim | None = None,
) -> None:
    """Writes tensors and JSON content to ``path``, whole or not at all; with ``claim`` only over its file."""
    from warmgp import __version__

    metadata = {
        "format": "warmgp",
        "format_version": str(FORMAT_VERSION),
        "kind": kind,
        "warmgp_version": __version__,
        "checksum": NO_CHECKSUM,
        "content": json.dumps(content, default=_plain),
    }
    check_dtypes(tensors)
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    names = {np.dtype(kind): name for name, kind in TYPES.items()}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so that each is aligned
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        shape = list(arrays[name].shape)
        header[name] = {"dtype": names[arrays[name].dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(head)
    with whole_file(path, claim) as file:
        file.write(head)
        for name in order:
            part = _bytes(arrays[name])
            digest.update(part)
            file.write(part)
        file.seek(head.index(NO_CHECKSUM.encode()))
        file.write(digest.hexdigest().encode())


def check_dtypes(tensors: Mapping[str, Tensor]) -> None:
    """Raises unless a file can hold the tensors: of float64, float32, int64, int32, int16 or uint8."""
    held = tuple(torch.from_numpy(np.empty(0, kind)).dtype for kind in TYPES.values())
    for name, tensor in tensors.items():
        if tensor.dtype not in held:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in held)
            raise ValueError(f"a file holds tensors of {names}, and {name!r} is {tensor.dtype}: convert it in pack")


def _bytes(array: NDArray[Any]) -> memoryview:
    """Returns the memory of an array as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def to_json(value: Any) -> str:
    """Returns a value as JSON with sorted keys; numbers of numpy's are numbers."""
    return json.dumps(value, default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    """Returns a number of numpy's, such as a search over an array passes, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


# -- reading ---------------------------------------------------------------------------------------------------------
def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors, on the CPU, and the content of a file of that kind; raises FileError for anything else."""
    path = Path(path)
    check_readable(path)
    try:
        with path.open("rb") as file:
            metadata, tensors, checksum = _parts(file, os.fstat(file.fileno()).st_size)
        if metadata.get("format") == "warmgp":
            version = _version(metadata)
            if version <= FORMAT_VERSION and (version > 1 or "checksum" in metadata):
                _expect(metadata.get("checksum") == checksum, "its checksum is wrong")
    except (ValueError, OSError, MemoryError) as error:
        raise FileError(
            f"{path} is not a whole warmgp file (damaged, cut short, or another format): give one that is, such as a "
            f"copy made before. {error}"
        ) from error
    if metadata.get("format") != "warmgp":
        raise FileError(f"{path} is a safetensors file, but not one of warmgp: give one that is")
    if version > FORMAT_VERSION:
        raise FileError(
            f"{path} has format {version}, written by warmgp {metadata.get('warmgp_version')!r}; this version reads "
            f"up to {FORMAT_VERSION}: upgrade warmgp"
        )
    if metadata.get("kind") != kind:
        raise FileError(f"{path} is a warmgp {metadata.get('kind')}, not a {kind}: give another file")
    if version == 1:
        logger.warning("%s is of format 1, which has no checksum: damage may go unnoticed. Save it anew", path)
    try:
        content = parse(metadata.get("content", ""))
        _expect(isinstance(content, dict), "its content is no JSON object")
    except ValueError as error:
        raise FileError(
            f"{path} is damaged, and cannot be used ({error}): give a whole copy, or make it anew"
        ) from error
    return tensors, content


def _version(metadata: Mapping[str, str]) -> int:
    text = metadata.get("format_version", "")
    _expect(text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) > 0, "its format has no number")
    return int(text)


def _parts(file: IO[bytes], size: int) -> tuple[dict[str, str], dict[str, Tensor], str]:
    """Returns (metadata, tensors, the checksum that the file should have).

    Each tensor is read once, to its place in memory.
    """
    start = file.read(8)
    length = int.from_bytes(start, "little")
    _expect(len(start) == 8 and length <= min(size - 8, LONGEST_HEADER), "its header is longer than the file")
    text = file.read(length)
    _expect(len(text) == length, "it is cut short")
    header = parse(text.decode())
    _expect(isinstance(header, dict), "its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    _expect(
        isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()), "its metadata is no text"
    )
    digest = hashlib.sha256(
        start + text.replace(metadata.get("checksum", NO_CHECKSUM).encode(), NO_CHECKSUM.encode(), 1)
    )
    places = {name: _place(name, value) for name, value in header.items()}
    tensors, end = {}, 0
    for name, (begin, stop, dtype, shape) in sorted(places.items(), key=lambda item: item[1][:2]):
        _expect(begin == end, "its tensors overlap or leave gaps")
        _expect(stop <= size - 8 - length, "its tensors are larger than the file")
        end = stop
        array = np.empty(shape, dtype)
        part = _bytes(array)
        _expect(_fill(file, part) == len(part), "it is cut short")
        digest.update(part)
        tensors[name] = torch.from_numpy(array)
    _expect(8 + length + end == size, "it has bytes at its end that belong to nothing")
    return metadata, tensors, digest.hexdigest()


def _place(name: str, value: Any) -> tuple[int, int, Any, tuple[int, ...]]:
    """Returns (begin, end, dtype, shape) of a tensor, as the header says."""
    wrong = f"its header says nonsense about {name[:40]!r}"
    _expect(isinstance(value, dict) and set(value) == {"dtype", "shape", "data_offsets"}, wrong)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    _expect(isinstance(dtype, str) and dtype in TYPES, wrong)
    for numbers in (shape, offsets):
        _expect(isinstance(numbers, list) and all(type(k) is int and 0 <= k < 2**48 for k in numbers), wrong)
    _expect(len(offsets) == 2 and len(shape) <= 8, wrong)
    _expect(math.prod(shape) * np.dtype(TYPES[dtype]).itemsize == offsets[1] - offsets[0], wrong)
    return offsets[0], offsets[1], TYPES[dtype], tuple(shape)


def _fill(file: IO[bytes], part: memoryview) -> int:
    """Reads until the memory is full or the file ends; returns how many bytes came."""
    done = 0
    while done < len(part):
        count = file.readinto(part[done:])  # type: ignore[attr-defined]
        if not count:
            break
        done += count
    return done


def parse(text: str) -> Any:
    """Returns what JSON says, each key once; raises ValueError for anything else, however deep or long it is."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        _expect(len(found) == len(pairs), "it says something twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("its JSON is nested too deep") from None


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)


# -- fingerprints ----------------------------------------------------------------------------------------------------
def fingerprint(*parts: Tensor | str) -> str:
    """Returns the SHA-256 over tensors (bytes, shapes and dtypes) and strings."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{tuple(part.shape)} {part.dtype}".encode())
            digest.update(_bytes(part.detach().cpu().contiguous().numpy()))
    return digest.hexdigest()
