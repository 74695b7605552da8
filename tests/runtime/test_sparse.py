"""Sparse files: refused by their holes, never by their size; what has few keeps its digest."""

import os

import pytest
import xxhash

from datacheck.errors import FormatError
from datacheck.formats.base import Hint
from datacheck.runtime import beneath
from datacheck.runtime.beneath import check_holes
from datacheck.runtime.hashing import digest_file
from datacheck.sources.file_digests import digest_files
from datacheck.sources.opening import Opener


@pytest.fixture
def terabyte(tmp_path):
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY")
        file.truncate(1 << 40)
        if 512 * os.fstat(file.fileno()).st_blocks > 1 << 30:
            pytest.skip("this file system stores holes")
    return path


def test_a_file_of_holes_is_refused_by_path_and_by_descriptor(terabyte):
    with pytest.raises(OSError, match="a sparse file: 1,099,511,627,776 bytes"):
        check_holes(terabyte)
    with terabyte.open("rb") as file:
        file.seek(3)
        with pytest.raises(OSError, match="at most 17,179,869,184 may be holes"):
            check_holes(file.fileno())
        assert file.tell() == 3


def test_holes_before_behind_and_between_data_count(tmp_path, monkeypatch):
    monkeypatch.setattr(beneath, "HOLE_BYTES", 4 << 20)
    for places in ((0,), (7 << 20,), (1 << 20, 3 << 20, 5 << 20, 7 << 20)):
        path = tmp_path / "file"
        with path.open("wb") as file:
            for place in places:
                file.seek(place)
                file.write(b"x")
            file.truncate(8 << 20)
        with pytest.raises(OSError, match="sparse"):
            check_holes(path)


def test_fewer_holes_are_read_as_zeros(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"head")
        file.truncate(3 << 20)
    check_holes(path)
    assert digest_file(path) == xxhash.xxh3_128_hexdigest(b"head" + bytes((3 << 20) - 4))


def test_what_a_file_system_compresses_is_no_hole(tmp_path, monkeypatch):
    """Fewer blocks than bytes, and no hole by its extents: as ZFS and Btrfs store what they compress."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8 << 20))
    monkeypatch.setattr(beneath, "HOLE_BYTES", -1)  # whatever its blocks, its extents are looked at
    monkeypatch.setattr(
        os, "lseek", lambda descriptor, place, how: place if how == os.SEEK_DATA else 8 << 20
    )
    with pytest.raises(OSError, match="sparse"):  # no hole is more than -1 of them: the control
        check_holes(path)
    monkeypatch.setattr(beneath, "HOLE_BYTES", 0)
    check_holes(path)


def test_nobody_reads_or_digests_a_file_of_holes(terabyte):
    with pytest.raises(OSError, match="sparse"):
        digest_file(terabyte)
    opener = Opener(terabyte.parent, {}, whole=True)
    with pytest.raises(FormatError, match="sparse"), opener.unchanged("large.npy"):
        pass
    with pytest.raises(FormatError, match="sparse"):
        opener.opened("large.npy", Hint())
    said = digest_files(
        {"root": str(terabyte.parent), "roots": {}, "items": ["large.npy"]}, lambda _: None
    )
    ((path, reason),) = said["refused"]
    assert (path, "sparse" in reason) == ("large.npy", True)
