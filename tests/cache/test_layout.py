"""Names on disk: every field has a path of its own that Zarr and file systems take, and comes back from it."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from datacheck.cache import layout, open_cache
from datacheck.cache.codec import Codec
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache

PARTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=8
)
NAMES = st.lists(
    PARTS | st.sampled_from([".", "..", "...", "__x", "zarr.json", "c", "c.0.0"]),
    min_size=1,
    max_size=3,
)


@given(NAMES)
def test_a_name_comes_back_from_its_path(parts):
    name = "/".join(parts)
    path = layout.field_path(name)
    assert layout.field_name(path) == name
    assert path.isascii()
    for part in path.split("/"):
        assert part.strip(".")
        assert part != "zarr.json"
        assert not part.startswith("__")


def test_only_the_part_that_needs_it_is_escaped():
    assert layout.field_path("obs/../__x/zarr.json/c") == "fields/obs/%2E./%5F_x/%7Aarr.json/c"


@pytest.mark.parametrize("item", [(), (3,), (21, 3)])
def test_zarr_finds_a_shard_under_the_name_that_the_layout_gives_it(tmp_path, item):
    grid = layout.Grid("float32", (300, *item), 8, 8)
    array = zarr.create_array(
        tmp_path / "x",
        shape=grid.shape,
        shards=(8, *item),
        chunks=(8, *item),
        dtype="float32",
        chunk_key_encoding=layout.array_document(grid, {})["chunk_key_encoding"],
    )
    array[96:104] = 1
    (file,) = (p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("c*"))
    assert file == f"x/{grid.shard_file(12)}"
    assert layout.shard_of(file) == ("x", 12)


@pytest.mark.parametrize(
    "file", ["zarr.json", "fields/x/zarr.json", "fields/x/c.1.2", "fields/c.0/zarr.json", "c", ""]
)
def test_what_is_no_shard_is_none(file):
    assert layout.shard_of(file) is None


ALLOWED = (
    "azAZ09_.-~@+=,()[] %"  # every kind of character that a path may have, and one that is escaped
)


def test_names_of_every_allowed_character_are_found_by_zarr_and_by_us(tmp_path):
    names = [f"a{character}b" for character in ALLOWED] + [
        "größe/手",
        "x y/[0]/zarr.json",
        "__a",
        "...",
        " a ",
    ]
    specs = {name: ArraySpec("int32", (2,)) for name in names}
    samples = [
        {name: np.array([i, place], np.int32) for place, name in enumerate(names)} for i in range(3)
    ]
    for codec in ("none", "zstd"):
        folder = make_cache(tmp_path / codec, specs, samples, codec=Codec.parse(codec))
        cache, group = open_cache(folder, verify="full"), zarr.open_group(folder, mode="r")
        assert set(cache.fields) == set(names)
        for place, name in enumerate(names):
            assert cache.gather(name, [2]).tolist() == [[2, place]]
            assert group[layout.field_path(name)][:].tolist() == [
                [0, place],
                [1, place],
                [2, place],
            ]


@given(st.integers(1, 1 << 28), st.lists(st.integers(1, 1 << 24), max_size=4))
def test_a_shard_is_at_most_twice_what_it_is_meant_to_be(sample_bytes, sizes):
    specs = [ArraySpec("uint8", (size,)) for size in sizes]
    k = layout.samples_per_shard(sample_bytes, specs)
    assert k & (k - 1) == 0
    assert k <= 2 or k * sample_bytes <= 2 * layout.SHARD_BYTES
    assert k == layout.samples_per_shard(sample_bytes, specs[::-1])


def test_shards_end_on_a_page_where_that_is_cheap():
    odd = ArraySpec("uint8", (6000,))  # 16 bytes divide it and a page: 256 samples end on one
    assert layout.samples_per_shard(64 << 18, [odd]) == 4
    assert layout.samples_per_shard((64 << 20) // 128, [odd]) == 256
    assert layout.samples_per_shard((64 << 20) // 64, [odd]) == 64
    assert 256 * 6000 % layout.PAGE == 0
