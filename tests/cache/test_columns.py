"""Blocks of samples: whatever a sample or a codec is like, memory stays about that of a block."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.build.export import samples as exported
from datacheck.cache import layout, open_cache, reader
from datacheck.cache.codec import Codec
from datacheck.cache.diff import diff
from datacheck.cache.reader import blocks, sample_bytes
from datacheck.cache.verify import verify
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache


@given(st.lists(st.integers(0, 30)), st.integers(1, 40))
def test_blocks_are_all_samples_in_order_and_no_larger_than_they_must_be(sizes, most):
    found = list(blocks(np.array(sizes, np.int64), most))
    assert [i for block in found for i in range(block.start, block.stop)] == list(range(len(sizes)))
    for block in found:
        assert block.stop - block.start == 1 or sum(sizes[block]) <= most
        if block.stop < len(sizes):
            assert sum(sizes[block.start : block.stop + 1]) > most  # one more would be too much


def test_a_sample_has_the_bytes_of_its_values_however_they_are_stored(tmp_path):
    specs = {
        "x": ArraySpec("float32", (5,)),
        "points": ArraySpec("float64", (3,), "P"),
        "label": ArraySpec("uint8", (), "P"),
        "say": ArraySpec("uint8", (), layout.text_dim("say"), "text"),
    }
    samples = [
        {"x": np.zeros(5), "points": np.zeros((n, 3)), "label": np.zeros(n, np.uint8), "say": "é"}
        for n in (0, 7)
    ]
    cache = open_cache(make_cache(tmp_path, specs, samples, k=2, codec=Codec("zstd")))
    assert sample_bytes(cache, list(specs), np.array([1, 0])).tolist() == [
        20 + 7 * 24 + 7 + 2,
        20 + 2,
    ]
    assert sample_bytes(cache, ["points"], np.array([1])).tolist() == [168]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(reader.blocks, "__defaults__", (4 << 20,))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("what", ["verify", "diff"])
def test_values_that_compress_to_nothing_are_not_all_held_at_once(tmp_path, what):
    """64 MB of zeros are a few kB on the disk: what is stored says nothing of what is decoded."""
    spec = {"x": ArraySpec("float32", (512, 512))}
    one, two = (
        make_cache(
            tmp_path / name,
            spec,
            [{"x": np.full((512, 512), value, np.float32)}] * 64,
            k=1,
            codec=Codec("zstd"),
        )
        for name, value in (("one", 0), ("two", 1))
    )
    a, b = open_cache(one), open_cache(two)
    tracemalloc.start()
    if what == "verify":
        assert verify(one, "values") == []
    else:
        assert len(diff(a, b).changed) == 64
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


@pytest.fixture(scope="module")
def bytes_alone(tmp_path_factory):
    """A cache of 30,000 samples of ten fields of one byte."""
    names = [f"x{number}" for number in range(10)]
    specs = {name: ArraySpec("uint8", ()) for name in names}
    samples = [dict.fromkeys(names, np.uint8(1))] * 30_000
    return make_cache(tmp_path_factory.mktemp("bytes"), specs, samples, k=1 << 15)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("what", ["verify", "export"])
def test_values_of_one_byte_are_not_all_arrays_at_once(bytes_alone, what):
    """Each takes a hundred bytes as an array: a block of so many bytes of values took gigabytes."""
    path = bytes_alone
    tracemalloc.start()
    if what == "verify":
        assert verify(path, "values") == []
    else:
        assert sum(1 for _ in exported(open_cache(path), np.arange(30_000))) == 30_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
