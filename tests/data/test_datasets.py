"""The UCI loader, on small files made here, and on the real ones where they are at hand."""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from warmgp.data import datasets
from warmgp.data.datasets import UCI_NAMES, DownloadError, fetch, uci

REAL = Path(os.environ.get("WARMGP_DATA") or Path(__file__).resolve().parents[3] / "shared" / "uci")
ROWS, INPUTS = 40, 3


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, an empty cache, no WARMGP_DATA."""
    real = urllib.request.urlopen

    def files_only(url: str, **options: object) -> object:
        assert url.startswith("file://"), f"a test tried to reach {url}"
        return real(url, **options)

    monkeypatch.setattr(urllib.request, "urlopen", files_only)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("WARMGP_DATA", raising=False)


def table() -> np.ndarray:
    return np.random.default_rng(0).normal(3.0, 2.0, size=(ROWS, INPUTS + 1)).round(4)


def mask(rows: int = ROWS, columns: int = 10) -> np.ndarray:
    return (np.arange(rows)[:, None] % 10 == np.arange(columns)).astype(int)


def write_csv(path: Path, values: np.ndarray, fmt: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as out:
        np.savetxt(out, values, fmt=fmt, delimiter=",")


def write_dataset(folder: Path, name: str = "pol", *, npz: bool = False, mask_values: np.ndarray | None = None) -> Path:
    values = table()
    write_csv(folder / name / "test_mask.csv.gz", mask() if mask_values is None else mask_values, "%d")
    if npz:
        np.savez(folder / name / "data.npz", X=values[:, :-1].astype(np.float32), y=values[:, -1:])
    else:
        write_csv(folder / name / "data.csv.gz", values, "%.4f")
    return folder


def checksums_of(folder: Path, name: str = "pol") -> dict[str, dict[str, str]]:
    return {name: {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted((folder / name).iterdir())}}


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "mirror")


# Reading ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("npz", [False, True], ids=["csv", "npz"])
@pytest.mark.parametrize("split", [0, 9])
def test_rows_and_columns_go_where_the_files_say(tmp_path: Path, npz: bool, split: int) -> None:
    got = uci("pol", split, folder=write_dataset(tmp_path, npz=npz), standardize=False)
    values, test = table(), mask()[:, split] == 1
    assert (got.name, got.split) == ("pol", split)
    for array, want in [
        (got.x_train, values[~test, :-1]),
        (got.y_train, values[~test, -1]),
        (got.x_test, values[test, :-1]),
        (got.y_test, values[test, -1]),
    ]:
        assert array.dtype == np.float64
        assert array.shape == want.shape
        np.testing.assert_allclose(array, want, rtol=1e-6)
    np.testing.assert_array_equal(got.standardizer.x_scale, np.ones(INPUTS))


def test_standardised_by_the_training_part_alone(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path)
    got, raw = uci("pol", 2, folder=folder), uci("pol", 2, folder=folder, standardize=False)
    np.testing.assert_allclose(got.x_train.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(got.x_train.std(axis=0), 1.0, rtol=1e-12)
    assert np.abs(got.x_test.mean(axis=0)).min() > 1e-3
    np.testing.assert_allclose(got.x_test, (raw.x_test - raw.x_train.mean(axis=0)) / raw.x_train.std(axis=0))
    np.testing.assert_allclose(got.standardizer.y_back(got.y_test), raw.y_test, rtol=1e-12)


@pytest.mark.parametrize("name", ["Pol", "3droad", "../pol", ""])
def test_unknown_name_lists_the_known(name: str) -> None:
    with pytest.raises(ValueError, match=", ".join(UCI_NAMES)):
        uci(name)


@pytest.mark.parametrize("split", [-1, 10])
def test_split_out_of_range(split: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"split must be 0 to 9; got {split}"):
        uci("pol", split, folder=write_dataset(tmp_path))


@pytest.mark.parametrize("npz", [False, True], ids=["csv", "npz"])
def test_mask_of_other_length_names_both_counts(tmp_path: Path, npz: bool) -> None:
    write_dataset(tmp_path, npz=npz, mask_values=mask(ROWS + 7))
    with pytest.raises(ValueError, match=f"test_mask.csv.gz has {ROWS + 7} rows .* has {ROWS};"):
        uci("pol", folder=tmp_path)


def test_mask_without_ten_splits(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="10 columns, one per split; it has 4"):
        uci("pol", folder=write_dataset(tmp_path, mask_values=mask(columns=4)))


def test_csv_without_inputs(tmp_path: Path) -> None:
    write_csv(write_dataset(tmp_path) / "pol" / "data.csv.gz", table()[:, :1], "%.4f")
    with pytest.raises(ValueError, match="at least one input column"):
        uci("pol", folder=tmp_path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((ROWS, 2)), "y": np.zeros(ROWS)}, "arrays X and y; it holds x, y"),
        ({"X": np.zeros((ROWS, 2)), "y": np.zeros(ROWS - 1)}, rf"got \({ROWS}, 2\) and \({ROWS - 1},\)"),
        ({"X": np.zeros(ROWS), "y": np.zeros(ROWS)}, r"X of shape \(n, d\)"),
    ],
)
def test_npz_with_other_contents(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    write_dataset(tmp_path, npz=True)
    np.savez(tmp_path / "pol" / "data.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        uci("pol", folder=tmp_path)


# Finding ------------------------------------------------------------------------------------------------------------


def test_argument_goes_before_variable_before_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place holds the dataset with another first target; the earliest one named is read."""
    places = {"argument": 1.0, "variable": 2.0, "cache/warmgp/uci": 3.0}
    for place, first in places.items():
        values = table()
        values[1, -1] = first
        write_csv(write_dataset(tmp_path / place) / "pol" / "data.csv.gz", values, "%.4f")
    monkeypatch.setattr(datasets, "CHECKSUMS", checksums_of(tmp_path / "cache/warmgp/uci"))
    load = functools.partial(uci, "pol", standardize=False, download=False)
    assert load().y_train[0] == 3.0
    monkeypatch.setenv("WARMGP_DATA", str(tmp_path / "variable"))
    assert load().y_train[0] == 2.0
    assert load(folder=tmp_path / "argument").y_train[0] == 1.0
    monkeypatch.setenv("WARMGP_DATA", "")
    assert load().y_train[0] == 3.0


@pytest.mark.parametrize("lacking", ["data.csv.gz", "test_mask.csv.gz"])
@pytest.mark.parametrize("by", ["argument", "variable"])
def test_named_folder_without_the_dataset_is_an_error_not_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, lacking: str
) -> None:
    monkeypatch.setattr(datasets, "fetch", lambda *_: pytest.fail("downloaded although a folder was named"))
    (write_dataset(tmp_path / "mine") / "pol" / lacking).unlink()
    if by == "variable":
        monkeypatch.setenv("WARMGP_DATA", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError) as error:
        uci("pol", folder=tmp_path / "mine" if by == "argument" else None)
    text = str(error.value)
    assert str(tmp_path / "mine" / "pol") in text
    assert lacking in text
    assert by in text
    assert "Place the files there" in text


def test_empty_cache_without_download(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="download=False"):
        uci("pol", download=False)
    assert not (tmp_path / "cache").exists()


def test_first_use_fills_the_cache_and_the_second_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Path
) -> None:
    served = functools.partial(fetch, base_url=mirror.as_uri(), checksums=checksums_of(mirror))
    monkeypatch.setattr(datasets, "fetch", served)
    monkeypatch.setattr(datasets, "CHECKSUMS", checksums_of(mirror))
    first = uci("pol")
    assert (tmp_path / "cache" / "warmgp" / "uci" / "pol" / "data.csv.gz").is_file()
    monkeypatch.setattr(datasets, "fetch", lambda *_: pytest.fail("downloaded twice"))
    np.testing.assert_array_equal(uci("pol").x_train, first.x_train)


@pytest.mark.parametrize("value", [None, "", "relative/cache"])
def test_cache_is_below_home_without_a_usable_xdg_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    folder = write_dataset(tmp_path / ".cache" / "warmgp" / "uci")
    monkeypatch.setattr(datasets, "CHECKSUMS", checksums_of(folder))
    assert uci("pol", download=False).x_train.shape == (36, INPUTS)


@pytest.mark.parametrize("file", ["data.csv.gz", "test_mask.csv.gz"])
def test_a_file_of_the_cache_is_verified_whenever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Path, file: str
) -> None:
    served = functools.partial(fetch, base_url=mirror.as_uri(), checksums=checksums_of(mirror))
    monkeypatch.setattr(datasets, "fetch", served)
    monkeypatch.setattr(datasets, "CHECKSUMS", checksums_of(mirror))
    first = uci("pol")
    cached = tmp_path / "cache" / "warmgp" / "uci" / "pol" / file
    values, form = (table() + 1.0, "%.4f") if file == "data.csv.gz" else (1 - mask(), "%d")
    write_csv(cached, values, form)  # well formed, and another data set
    with pytest.raises(DownloadError, match=r"is not the file that was downloaded.*Delete it to download it anew") as e:
        uci("pol")
    assert str(cached) in str(e.value)
    assert uci("pol", folder=cached.parents[1]).x_train.shape[1] == INPUTS  # who names a folder means its files
    cached.unlink()
    np.testing.assert_array_equal(uci("pol").x_train, first.x_train)


def test_the_cache_holds_nothing_that_cannot_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Path
) -> None:
    write_dataset(tmp_path / "cache" / "warmgp" / "uci", npz=True)
    monkeypatch.setattr(datasets, "CHECKSUMS", checksums_of(mirror))
    with pytest.raises(FileNotFoundError, match=r"lacks data\.csv\.gz"):
        uci("pol", download=False)


# Downloading --------------------------------------------------------------------------------------------------------


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_fetch_puts_identical_files_in_place_and_nothing_else(tmp_path: Path, mirror: Path) -> None:
    path = fetch("pol", tmp_path / "new" / "cache", base_url=mirror.as_uri() + "/", checksums=checksums_of(mirror))
    assert path == tmp_path / "new" / "cache" / "pol"
    assert checksums_of(path.parent) == checksums_of(mirror)
    assert files_below(path.parent) == [path, path / "data.csv.gz", path / "test_mask.csv.gz"]


@pytest.mark.parametrize("file", ["data.csv.gz", "test_mask.csv.gz"])
def test_altered_file_is_refused_and_leaves_nothing(tmp_path: Path, mirror: Path, file: str) -> None:
    checksums = checksums_of(mirror)
    altered = mirror / "pol" / file
    altered.write_bytes(altered.read_bytes() + b"x")
    got = hashlib.sha256(altered.read_bytes()).hexdigest()
    with pytest.raises(DownloadError) as error:
        fetch("pol", tmp_path / "to", base_url=mirror.as_uri(), checksums=checksums)
    for part in (f"pol/{file}", f"expected {checksums['pol'][file]}", f"got {got}", "Try again", "WARMGP_DATA"):
        assert part in str(error.value)
    assert files_below(tmp_path / "to") == []


def test_failed_refresh_keeps_the_good_files(tmp_path: Path, mirror: Path) -> None:
    checksums = checksums_of(mirror)
    fetch("pol", tmp_path / "to", base_url=mirror.as_uri(), checksums=checksums)
    (mirror / "pol" / "data.csv.gz").write_bytes(b"not the data")
    with pytest.raises(DownloadError):
        fetch("pol", tmp_path / "to", base_url=mirror.as_uri(), checksums=checksums)
    assert checksums_of(tmp_path / "to") == checksums


def test_missing_at_the_source_names_address_and_remedy(tmp_path: Path, mirror: Path) -> None:
    checksums = checksums_of(mirror)
    (mirror / "pol" / "test_mask.csv.gz").unlink()
    with pytest.raises(DownloadError, match=r"could not download file://.*/pol/test_mask.csv.gz.*WARMGP_DATA"):
        fetch("pol", tmp_path / "to", base_url=mirror.as_uri(), checksums=checksums)
    assert files_below(tmp_path / "to") == []


def test_without_a_checksum_there_is_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_download", lambda *_: pytest.fail("unverified download"))
    with pytest.raises(DownloadError, match=r"houseelectric .*no checksum is known.*WARMGP_DATA"):
        uci("houseelectric")
    assert not (tmp_path / "cache").exists()


def test_checksum_table_covers_both_files_of_every_other_set() -> None:
    assert set(datasets.CHECKSUMS) == set(UCI_NAMES) - {"houseelectric"}
    assert all(set(files) == {"data.csv.gz", "test_mask.csv.gz"} for files in datasets.CHECKSUMS.values())
    assert len({digest for files in datasets.CHECKSUMS.values() for digest in files.values()}) == 10


# The real files -----------------------------------------------------------------------------------------------------


def real(name: str) -> Path:
    if not (REAL / name).is_dir():
        pytest.skip(f"the real {name} is not at hand: no folder {REAL / name}; set WARMGP_DATA to the UCI folder")
    return REAL


@pytest.mark.parametrize(
    ("name", "train", "test", "inputs"),
    [
        ("pol", 13_500, 1_500, 26),
        ("elevators", 14_940, 1_659, 18),
        ("bike", 15_642, 1_737, 17),
        ("protein", 41_157, 4_573, 9),
        ("keggdirected", 43_945, 4_882, 20),
    ],
)
def test_real_sets_have_the_paper_s_sizes_and_load_fast(name: str, train: int, test: int, inputs: int) -> None:
    folder = real(name)
    start = time.perf_counter()
    got = uci(name, folder=folder)
    assert time.perf_counter() - start < 5.0
    assert got.x_train.shape == (train, inputs)
    assert got.y_train.shape == (train,)
    assert got.x_test.shape == (test, inputs)
    assert got.y_test.shape == (test,)
    np.testing.assert_allclose(got.x_train.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(got.x_train.std(axis=0), 1.0, rtol=1e-9)
    assert got.y_train.mean() == pytest.approx(0.0, abs=1e-9)
    assert got.y_train.std() == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("name", sorted(datasets.CHECKSUMS))
def test_real_files_have_the_checksums_of_the_table(name: str) -> None:
    folder = real(name)
    if not (folder / name / "data.csv.gz").is_file():
        pytest.skip(f"{folder / name} holds no data.csv.gz to take a checksum of")
    for file, expected in datasets.CHECKSUMS[name].items():
        assert hashlib.sha256((folder / name / file).read_bytes()).hexdigest() == expected


def test_splits_of_pol_hold_out_every_row_once() -> None:
    folder = real("pol")
    held_out = [uci("pol", split, folder=folder, standardize=False).y_test for split in range(10)]
    whole = uci("pol", folder=folder, standardize=False)
    np.testing.assert_array_equal(
        np.sort(np.concatenate(held_out)), np.sort(np.concatenate([whole.y_train, whole.y_test]))
    )
