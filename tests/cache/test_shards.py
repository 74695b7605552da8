"""What a folder of kept shards removes: what lies there of its own, and nothing else."""

from __future__ import annotations

import os

import pytest

from datacheck.cache.shards import ShardCache
from datacheck.errors import UsageError
from datacheck.runtime.hashing import digest_bytes


def test_only_shards_and_what_is_left_of_them_give_way(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    os.utime(outside, (1, 1))
    folder = tmp_path / "near"
    folder.mkdir()
    (folder / "LOCK").touch()
    old, left = "0" * 32, [f".{'1' * 32}.0123456789ab.partial", ".LOCK.0123456789ab.partial"]
    foreign = [
        "movie.partial",
        ".movie.partial",
        f"{'2' * 32}.partial",
        f"{'3' * 33}",
        f".{'4' * 32}.partial",
    ]
    for name in (old, *left, *foreign):
        (folder / name).write_bytes(b"x" * 60)
        os.utime(folder / name, (1, 1))
    (folder / ("5" * 32)).symlink_to(outside)
    data = b"y" * 50
    assert (
        bytes(ShardCache(folder, 100).get(digest_bytes(data), 50, lambda: [memoryview(data)]))
        == data
    )
    assert sorted(os.listdir(folder)) == sorted([*foreign, "LOCK", "5" * 32, digest_bytes(data)])
    assert (outside.read_bytes(), outside.stat().st_mtime) == (b"mine", 1)


def test_a_folder_of_other_files_is_not_taken(tmp_path):
    """A store of somebody else may name its files as shards are named; those would give way."""
    (tmp_path / ("0" * 32)).write_bytes(b"mine")
    with pytest.raises(UsageError, match="holds other files, such as 0000"):
        ShardCache(tmp_path, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["0" * 32]
