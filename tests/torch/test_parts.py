"""A large batch is copied by several threads: the same bytes, the same errors, no thread left."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from datacheck.cache.codec import Codec
from datacheck.cache.row_readers import ChunkRows
from datacheck.errors import CorruptionError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, CachedLoader, Windows, collate_ragged, prefetch
from tests.cache.make import make_cache

SPECS = {
    "cloud": ArraySpec("float32", (500,)),
    "few": ArraySpec("int64", ()),
    "rows": ArraySpec("uint8", (7,), "T"),
}
LENGTHS = [40, 0, 3, 17, 64, 1, 25, 90, 8]
ORDER = [7, 0, 1, 4, 4, 2, 8, 3, 6, 5, 0]


def samples():
    rng = np.random.default_rng(5)
    return [
        {
            "cloud": rng.random(500, np.float32),
            "few": np.int64(i),
            "rows": rng.integers(0, 256, (count, 7), np.uint8),
        }
        for i, count in enumerate(LENGTHS)
    ]


@pytest.fixture
def path(tmp_path):
    return make_cache(tmp_path, SPECS, samples(), k=2)


@pytest.fixture
def used(monkeypatch):
    """Have every batch copied in parts, of three threads at most; say which parts were copied by which threads."""
    said, real = [], prefetch.parallel_copy
    monkeypatch.setattr(prefetch, "_PART", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(prefetch, "usable_cpus", lambda: 4)  # however many this machine has

    def in_parts(copy, count, size, *, parallel):
        def told(first, stop):
            said.append((first, stop, threading.current_thread()))
            copy(first, stop)

        real(told, count, size, parallel=parallel)

    monkeypatch.setattr("datacheck.torch.gatherer.parallel_copy", in_parts)
    return said


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("verify", ["manifest", "touch", "always"])
def test_samples_copied_in_parts_are_those_of_the_files(path, used, io, verify):
    before = set(threading.enumerate())
    data = CachedDataset(path, verify=verify, io=io, on_invalid="keep")
    for _ in range(2):
        batch = collate_ragged(data.__getitems__(ORDER))
        for name in ("cloud", "few"):
            np.testing.assert_array_equal(batch[name], [samples()[i][name] for i in ORDER])
        np.testing.assert_array_equal(
            batch["rows"], np.concatenate([samples()[i]["rows"] for i in ORDER])
        )
        assert batch["rows_offset"].tolist() == np.cumsum([LENGTHS[i] for i in ORDER]).tolist()
    assert [span[:2] for span in sorted(used[:3], key=lambda span: span[0])] == [
        (0, 3),
        (3, 7),
        (7, 11),
    ]
    assert threading.main_thread() in {thread for *_, thread in used}
    assert set(threading.enumerate()) == before


def test_windows_copied_in_parts_are_those_of_the_files(path, used):
    data = CachedDataset(path, fields=["rows"], windows=Windows(6, 4, short="drop"))
    episodes = [sample["rows"] for sample in samples()]
    expected = [
        rows[first : first + 6] for rows in episodes for first in range(0, len(rows) - 5, 4)
    ]
    assert len(data) == len(expected)
    asked = list(range(0, len(data), 2))[::-1]
    np.testing.assert_array_equal(
        collate_ragged(data.__getitems__(asked))["rows"], [expected[i] for i in asked]
    )
    assert sum(stop - first for first, stop, _ in used) == len(asked)
    assert len(used) == 3


@pytest.mark.parametrize("sample", [1, 5, 8])  # of the first part, of the second, of the third
def test_damage_in_any_part_is_the_error_of_the_batch(path, used, sample):
    (file,) = (path / "fields/few").glob(f"c.{sample // 2}")
    raw = bytearray(file.read_bytes())
    raw[sample % 2 * 8] ^= 1
    file.write_bytes(raw)
    before = set(threading.enumerate())
    with pytest.raises(CorruptionError, match=rf"fields/few/c\.{sample // 2}"):
        CachedDataset(path, fields=["few"]).__getitems__(list(range(9)))
    assert set(threading.enumerate()) == before


def test_of_two_damaged_samples_the_first_part_names_its_own(path, used):
    for sample in (8, 1):
        (file,) = (path / "fields/few").glob(f"c.{sample // 2}")
        raw = bytearray(file.read_bytes())
        raw[sample % 2 * 8] ^= 1
        file.write_bytes(raw)
    with pytest.raises(CorruptionError, match=r"sample/00000[89]|c\.4"):  # 8 is asked for first
        CachedDataset(path, fields=["few"]).__getitems__([8, 7, 6, 5, 4, 3, 2, 1, 0])


def test_where_no_thread_can_be_had_one_copies_all(path, used, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    batch = CachedDataset(path, fields=["cloud"]).__getitems__(ORDER)
    np.testing.assert_array_equal(
        [row["cloud"] for row in batch], [samples()[i]["cloud"] for i in ORDER]
    )
    assert [span[:2] for span in used] == [(0, 11)]


def test_a_chunk_that_is_decoded_is_decoded_once_for_a_batch(tmp_path, used, monkeypatch):
    path = make_cache(tmp_path, SPECS, samples(), k=9, codec=Codec("zstd", 3))
    decoded, real = [], ChunkRows._decode
    monkeypatch.setattr(
        ChunkRows, "_decode", lambda rows, stored: decoded.append(1) or real(rows, stored)
    )
    data = CachedDataset(path, fields=["few"])
    decoded.clear()  # of the tables
    assert [row["few"].item() for row in data.__getitems__(ORDER)] == ORDER
    assert len(decoded) == 1  # all nine samples lie in it


class Threads(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return prefetch.threads_here()


def test_workers_and_threads_copy_alone(path, used, monkeypatch):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(prefetch.threads_here).result() == 1
    assert prefetch.threads_here() == 3
    list(CachedLoader(CachedDataset(path, fields=["cloud"]), 9, threads=2))
    assert {(first, stop) for first, stop, _ in used} == {(0, 9)}
    monkeypatch.undo()
    assert torch.cat(list(DataLoader(Threads(), num_workers=1))).tolist() == [1, 1]


def test_small_batches_are_copied_in_one_part(path, monkeypatch):
    said = []
    monkeypatch.setattr(prefetch, "threads_here", lambda: 4)
    prefetch.parallel_copy(lambda *span: said.append(span), 64, (1 << 25) - 1)
    assert said == [(0, 64)]
    prefetch.parallel_copy(lambda *span: said.append(span), 64, 1 << 25)
    assert sorted(said[1:]) == [(0, 32), (32, 64)]
    said.clear()
    prefetch.parallel_copy(lambda *span: said.append(span), 3, 1 << 40)
    assert sorted(said) == [(0, 1), (1, 2), (2, 3)]
    said.clear()
    prefetch.parallel_copy(lambda *span: said.append(span), 64, 1 << 25, parallel=False)
    assert said == [(0, 64)]
