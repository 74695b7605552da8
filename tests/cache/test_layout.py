"""Names on disk: every field has a path of its own that Zarr and file systems take, and comes back from it."""

from __future__ import annotations

import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from datacheck.cache import layout

PARTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=8)
NAMES = st.lists(PARTS | st.sampled_from([".", "..", "...", "__x", "zarr.json", "c", "c.0.0"]), min_size=1, max_size=3)


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
        tmp_path / "x", shape=grid.shape, shards=(8, *item), chunks=(8, *item), dtype="float32",
        chunk_key_encoding=layout.array_document(grid, {})["chunk_key_encoding"],
    )  # fmt: skip
    array[96:104] = 1
    (file,) = (p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("c*"))
    assert file == f"x/{grid.shard_file(12)}"
    assert layout.shard_of(file) == ("x", 12)


@pytest.mark.parametrize("file", ["zarr.json", "fields/x/zarr.json", "fields/x/c.1.2", "fields/c.0/zarr.json", "c", ""])
def test_what_is_no_shard_is_none(file):
    assert layout.shard_of(file) is None
