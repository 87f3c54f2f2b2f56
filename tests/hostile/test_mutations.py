"""Files that were changed: refused by name, or read as what was written; never a raw error, never other numbers.

A change of bytes must be noticed by the checksum. Changes that come with a checksum that fits ("sealed", as only an
enemy makes them) are held against the schema: they may give another model, but no error of the machinery.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warmgp import ConjugateGradients, GPRegressor, StochasticGradientDescent
from warmgp.estimator.settings_json import made_from
from warmgp.files.checkpoint import read_checkpoint
from warmgp.files.format import FileError

SETTINGS: dict[str, Any] = {"n_steps": 3, "n_features": 12, "n_probes": 3, "random_state": 0}
KINDS: dict[str, dict[str, Any]] = {
    "pivots": {"solver": ConjugateGradients(4)},
    "factor": {"solver": ConjugateGradients(0, factor_after=2), "dtype": "float64"},
    "neighbours": {"solver": ConjugateGradients(4, neighbours=3)},
    "blocks": {"solver": "ap", "gradient": "standard"},
    "rates": {"solver": StochasticGradientDescent(10), "max_epochs": 5},
    "exact": {"solver": "cholesky"},
}
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**53 + 1, 2**63, 10**40, -(10**40), 0.5, -0.0, 1e308, -1e308, 5e-324,
    math.nan, math.inf, -math.inf, "", "auto", "cpu", "cuda", "nan", "__class__", "\ud800", "\x00", "é" * 1000, [], {},
    [[]], [0], [None] * 3, {"name": "cg"}, {"name": "cg", "options": {}}, {"hyperparameters": []},
    {"hyperparameters": [1e-320, 1, 1]}, {"": {"": {"": []}}},
]  # fmt: skip
NUMERICAL = (FloatingPointError, torch.linalg.LinAlgError)
"""What a file that is allowed, but was made by an enemy, may end in when it is used."""


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (25, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=25)


class Subject:
    """A file, how it is read, and what must come of it."""

    def __init__(self, folder: Path, kind: str, what: str) -> None:
        self.settings = {**SETTINGS, **KINDS[kind]}
        self.what, self.changed = what, folder / "changed"
        X, y = data()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = GPRegressor(checkpoint=folder / "c", **self.settings).fit(X, y)
        model.save(folder / "m")
        self.whole = (folder / ("m" if what == "model" else "c")).read_bytes()
        self.model = GPRegressor(**self.settings)
        self.mark = made_from(self.model, {"X": X, "y": y}, int(np.random.RandomState(0).randint(2**31 - 1)))
        self.plan = self.model.plan(X)
        self.expected = self.read(self.whole)

    def read(self, whole: bytes) -> list[bytes]:
        """Everything that comes of a file, as bytes."""
        X, _ = data()
        self.changed.write_bytes(whole)
        if self.what == "model":
            model = GPRegressor.load(self.changed, device="cpu")
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parts = [*model.predict(X[:4], return_std=True), model.sample_y(X[:4], 1)]
            return [*(np.asarray(part).tobytes() for part in parts), repr(model.history_).encode()]
        state, random, plan = read_checkpoint(self.changed, self.mark[0], self.plan, X.shape, self.mark[1])
        tensors = [state.nu, state.adam.first, state.adam.second, random]
        return [*(t.numpy().tobytes() for t in tensors), repr((state.history, state.step, plan)).encode()]

    def attack(self, whole: bytes, sealed: bool, told: str) -> bool:
        """Whether the file is refused; fails for anything but that, or what was written."""
        try:
            found = self.read(whole)
        except FileError as error:
            assert "changed" in str(error), f"{told}: no path in {error}"
            return True
        except NUMERICAL:
            assert sealed, told
            return False
        except Exception as error:
            raise AssertionError(f"{told} ended in {type(error).__name__}: {error}") from error
        assert sealed or found == self.expected, f"{told} was read as other numbers"
        return False


@pytest.fixture(scope="module", params=["model", "checkpoint"])
def subjects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    return [Subject(tmp_path_factory.mktemp(kind), kind, request.param) for kind in KINDS]


# -- how files are changed -------------------------------------------------------------------------------------------
def parts(whole: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(whole[:8], "little")
    return json.loads(whole[8:end]), whole[end:]


def sealed(header: str, body: bytes) -> bytes:
    """A file of that header, with the checksum that it should have: written apart from the library."""
    text = re.sub(r'("checksum": ?")[0-9a-f]{64}"', rf'\g<1>{"0" * 64}"', header, count=1).encode(
        errors="surrogatepass"
    )
    text += b" " * (-len(text) % 8)
    whole = len(text).to_bytes(8, "little") + text + body
    return whole.replace(b"0" * 64, hashlib.sha256(whole).hexdigest().encode(), 1)


def with_content(whole: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    header, body = parts(whole)
    content = json.loads(header["__metadata__"]["content"])
    change(content)
    header["__metadata__"]["content"] = json.dumps(content)
    return sealed(json.dumps(header), body)


def bytes_changed(whole: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A random change of bytes, more often in the header."""
    changed = bytearray(whole)
    end = 8 + int.from_bytes(whole[:8], "little")
    a, b = sorted(int(k) for k in rng.integers(0, end if rng.random() < 0.5 else len(whole), 2))
    what = rng.choice(["flip", "flips", "cut", "insert", "drop", "repeat", "blank", "swap", "digit", "random"])
    if what == "flip":
        changed[a] ^= 1 << int(rng.integers(8))
    elif what == "flips":
        for at in rng.integers(0, len(whole), 8):
            changed[at] ^= int(rng.integers(1, 256))
    elif what == "cut":
        del changed[a:]
    elif what == "insert":
        changed[a:a] = rng.bytes(int(rng.integers(1, 9)))
    elif what == "drop":
        del changed[a : a + int(rng.integers(1, 9))]
    elif what == "repeat":
        changed[a:a] = changed[a : a + 16]
    elif what == "blank":
        changed[a : a + 8] = bytes([int(rng.choice([0, 0x20, 0xFF]))]) * 8
    elif what == "swap":
        changed[a : a + 8], changed[b : b + 8] = changed[b : b + 8], changed[a : a + 8]
    elif what == "digit":
        digits = [k for k in range(8, end) if chr(whole[k]).isdigit()]
        changed[int(rng.choice(digits))] = ord("0") + int(rng.integers(10))
    else:
        changed[a : a + 64] = rng.bytes(64)
    return bytes(changed), f"{what} at {a}, {b}"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value, objects and lists included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from leaves(item, (*path, key))


def put(content: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


def header_changed(whole: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A random change of what the header says of tensors, or of how it is written, with a checksum that fits."""
    header, body = parts(whole)
    names = [name for name in header if name != "__metadata__"]
    one, other = (names[int(k)] for k in rng.integers(0, len(names), 2))
    what = rng.choice(
        ["swap", "shape", "dtype", "offsets", "drop", "rename", "value", "twice", "deep", "long", "meta", "body"]
    )
    text = None
    if what == "swap":
        header[one], header[other] = header[other], header[one]
    elif what == "shape":
        shape = header[one]["shape"]
        header[one]["shape"] = [shape[::-1], [*shape, 1], [1, *shape], shape[:-1], [math.prod(shape)]][
            int(rng.integers(5))
        ]
    elif what == "dtype":
        header[one]["dtype"] = str(rng.choice(["F64", "F32", "I64", "U8", "F16", "I32", "BOOL", ""]))
    elif what == "offsets":
        header[one]["data_offsets"][int(rng.integers(2))] += int(rng.choice([-8, -1, 1, 8, 2**40, -(2**40)]))
    elif what == "drop":
        del header[one]
    elif what == "rename":
        header[f"{one}_"] = header.pop(one)
    elif what == "value":
        put(
            header, (one, str(rng.choice(["shape", "dtype", "data_offsets"]))), HOSTILE[int(rng.integers(len(HOSTILE)))]
        )
    elif what == "twice":
        text = json.dumps(header)[:-1] + f', "{one}": {json.dumps(header[one])}}}'
    elif what == "deep":
        text = json.dumps(header)[:-1] + ', "a": ' + "[" * 20_000 + "]" * 20_000 + "}"
    elif what == "long":
        text = json.dumps(header)[:-1] + ', "a": ' + "9" * 6000 + "}"
    elif what == "meta":
        key = str(rng.choice(list(header["__metadata__"])))
        header["__metadata__"][key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
    else:
        place = int(rng.integers(0, len(body) // 8)) * 8
        value = np.array([rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, -1e300])]).tobytes()
        body = body[:place] + value + body[place + 8 :]
    return sealed(text or json.dumps(header), body), f"{what} of {one}, {other}"


# -- the attacks -----------------------------------------------------------------------------------------------------
def test_changed_bytes(subjects: list[Subject], rng: np.random.Generator, scale: float) -> None:
    """2,500 for models and 2,500 for checkpoints."""
    refused = 0
    for k in range(max(50, round(2500 * scale))):
        subject = subjects[k % len(subjects)]
        changed, told = bytes_changed(subject.whole, rng)
        refused += subject.attack(changed, False, told)
    assert refused > 0


def test_hostile_values(subjects: list[Subject], rng: np.random.Generator, scale: float) -> None:
    """2,500 of each kind of file: every value of the content in turn, by everything hostile."""
    ways = [(subject, path) for subject in subjects for path in leaves(_content(subject)) if path]
    refused = 0
    count = max(100, round(2500 * scale))
    for k in rng.choice(len(ways), count, replace=count > len(ways)):
        subject, path = ways[int(k)]
        value = HOSTILE[int(rng.integers(len(HOSTILE)))]
        drop = rng.random() < 0.1 and isinstance(path[-1], str)

        def change(content: Any, path: tuple[Any, ...] = path, value: Any = value, drop: bool = drop) -> None:
            if drop:
                for key in path[:-1]:
                    content = content[key]
                del content[path[-1]]
            else:
                put(content, path, copy.deepcopy(value))

        told = f"{subject.settings['solver']}: {path} = {'nothing' if drop else repr(value)[:40]}"
        refused += subject.attack(with_content(subject.whole, change), True, told)
    assert refused > 0.5 * count


def test_hostile_headers(subjects: list[Subject], rng: np.random.Generator, scale: float) -> None:
    """750 of each kind of file."""
    refused = 0
    count = max(50, round(750 * scale))
    for k in range(count):
        subject = subjects[k % len(subjects)]
        changed, told = header_changed(subject.whole, rng)
        refused += subject.attack(changed, True, told)
    assert refused > 0.5 * count


def test_the_seal_is_what_the_library_checks(subjects: list[Subject]) -> None:
    """Else the sealed attacks would all end at the checksum."""
    for subject in subjects:
        assert subject.read(with_content(subject.whole, lambda _: None)) == subject.expected


def _content(subject: Subject) -> Any:
    return json.loads(parts(subject.whole)[0]["__metadata__"]["content"])
