"""Tar shards: members are found as Python's tarfile finds them, and read where they lie."""

from __future__ import annotations

import io
import os
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all

TAR = CORPUS / "tar"


def archive(path, files, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=form) as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@settings(max_examples=40)
@given(
    files=st.dictionaries(
        st.from_regex(r"([a-zé]{1,90}/){0,3}[a-z0-9]{1,40}\.bytes", fullmatch=True),
        st.binary(max_size=1200),
        max_size=6,
    ),
    form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_every_member_has_the_bytes_that_were_put_in(tmp_path_factory, files, form):
    path = archive(tmp_path_factory.mktemp("tar") / "a.tar", dict(sorted(files.items())), form)
    found = {name: value.tobytes() for name, value in read_all(path).items()}
    assert found == {name.replace(".bytes", "/bytes"): data for name, data in files.items()}


def test_the_end_of_a_name_says_what_a_member_is(tmp_path):
    points = np.arange(6, dtype=np.float32).reshape(2, 3)
    files = {
        "a/7.points.npy": npy(points),
        "a/7.cls": b" -3\n",
        "a/7.txt": b"42",
        "a/7.mp4": b"\0\1",
        "a/7.JSON": b'{"n": [1, 2], "m": {"k": 0}}',
        "a/7.list.json": b'["x", 1]',
        "a/7.table.csv": b"x,y\n1,2\n3,4\n",
    }
    found = read_all(archive(tmp_path / "a.tar", files))
    assert np.array_equal(found.pop("a/7/points.npy"), points)
    assert found.pop("a/7/cls") == -3
    assert found.pop("a/7/txt") == "42"
    assert found.pop("a/7/json/n").tolist() == [1, 2]
    assert found.pop("a/7/json/m") == {"k": 0}
    assert found.pop("a/7/list.json") == ["x", 1]
    assert found.pop("a/7/table.csv/table").tolist() == [[1, 2], [3, 4]]
    assert found.pop("a/7/table.csv/columns") == ["x", "y"]
    assert found.pop("a/7/mp4").tolist() == [0, 1]
    assert found == {}
    with open_container(tmp_path / "a.tar") as shard:
        assert shard.read("a/7/json") == {"n": [1, 2], "m": {"k": 0}}
        assert shard.keys() == ["a/7"]
        with pytest.raises(KeyError):
            shard.read("a/7/png")


def test_pictures_are_decoded_when_they_are_asked_for(tmp_path):
    picture = Image.new("RGB", (5, 4), (9, 8, 7))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    path = archive(
        tmp_path / "a.tar", {"0.png": stream.getvalue(), "1.png": stream.getvalue()[:-12]}
    )
    with open_container(path) as shard:
        assert shard.peek("0/png") == ((4, 5, 3), "|u1")
        assert (shard.read("0/png") == [9, 8, 7]).all()
        with pytest.raises(FormatError, match="truncated image"):
            shard.peek("1/png")


def test_of_a_table_only_the_header_is_read_where_it_is_asked_for(tmp_path):
    path = archive(
        tmp_path / "a.tar",
        {"0.points.npy": npy(np.zeros((50_000, 3), "f4")), "1.npy": npy(np.zeros(4))},
    )
    with open_container(path) as shard:
        places = []
        real = shard._file.read
        shard._file = SimpleNamespace(
            seek=shard._file.seek,
            read=lambda n: places.append(n) or real(n),
            close=shard._file.close,
        )
        assert shard.peek("0/points.npy") == ((50_000, 3), "<f4")
        assert sum(places) <= 1 << 14
        assert shard.peek("1/npy") == ((4,), "<f8")


def test_one_bad_member_takes_its_own_key_with_it_and_no_other(tmp_path):
    path = archive(tmp_path / "a.tar", {"0.txt": b"a", "1.txt": b"b", "0.cls": b"1"})
    with open_container(path) as shard:
        assert shard.keys() == ["0", "1"]
        assert shard.read("1/txt") == "b"
        for name in ("0/txt", "0/cls"):
            with pytest.raises(FormatError, match="stands apart"):
                shard.read(name)


def test_a_shard_that_ends_early_is_never_read_as_a_shorter_one(tmp_path):
    data = (TAR / "y_ustar.tar").read_bytes()
    assert not any(data[-1024:])
    for end in range(0, len(data) - 1024, 64):
        (tmp_path / "cut.tar").write_bytes(data[:end])
        with pytest.raises(FormatError):
            read_all(tmp_path / "cut.tar")


def test_a_header_of_more_than_a_mebibyte_is_not_read(tmp_path):
    member = tarfile.TarInfo("pax")
    member.type, member.size = tarfile.XHDTYPE, 2 << 20
    (tmp_path / "a.tar").write_bytes(member.tobuf())
    os.truncate(tmp_path / "a.tar", 3 << 20)
    with pytest.raises(FormatError, match="2,097,152 bytes; at most 1,048,576"):
        read_all(tmp_path / "a.tar")


def test_holes_behind_the_end_mark_are_not_read(tmp_path):
    (tmp_path / "a.tar").write_bytes((TAR / "y_ustar.tar").read_bytes())
    os.truncate(tmp_path / "a.tar", 1 << 40)
    with pytest.raises(FormatError, match="bytes follow the end mark"):
        read_all(tmp_path / "a.tar")


def test_a_sparse_member_of_many_holes_costs_its_own_key_and_no_other(tmp_path):
    """Blocks with the places of further holes stand between its header and its bytes, and no size counts them."""
    path = archive(
        tmp_path / "a.tar", {"0.txt": b"a", "1.bin": b"x" * 512, "2.txt": b"b"}, tarfile.GNU_FORMAT
    )
    data = path.read_bytes()
    header = bytearray(data[1024:1536])
    header[156:157], header[482], header[148:156] = b"S", 1, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    first, second = bytearray(512), bytes(512)
    first[504] = 1
    path.write_bytes(data[:1024] + header + first + second + data[1536:])
    with tarfile.open(path) as other:
        assert other.getnames() == ["0.txt", "1.bin", "2.txt"]
    with open_container(path) as shard:
        assert (shard.read("0/txt"), shard.read("2/txt")) == ("a", "b")
        with pytest.raises(FormatError, match=r"'1\.bin' is stored with holes"):
            shard.read("1/bin")


def test_a_sparse_member_of_a_pax_archive_has_its_own_name(tmp_path):
    """GNU tar makes up a path, under which nobody would miss the file."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo("GNUSparseFile.7/1.bin")
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.name": "1.bin",
            "path": "GNUSparseFile.7/1.bin",
        }
        out.addfile(info)
    with open_container(tmp_path / "a.tar") as shard:
        assert shard.keys() == ["1"]
        with pytest.raises(FormatError, match="stored with holes"):
            shard.read("1/bin")


@pytest.mark.parametrize(
    "common", [{"path": "9.txt"}, {"size": "3"}, {"GNU.sparse.major": "1"}, {"comment": "b2f7"}]
)
def test_a_header_for_all_members_is_a_comment_at_most(tmp_path, common):
    """Python, and so WebDataset, gives every member the path or size in it; others do not."""
    with tarfile.open(
        tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT, pax_headers=common
    ) as out:
        out.addfile(tarfile.TarInfo("0.bytes"))
    if "comment" in common:
        assert read_all(tmp_path / "a.tar")["0/bytes"].size == 0
        return
    with pytest.raises(FormatError, match="to all members"):
        read_all(tmp_path / "a.tar")


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_whole_numbers_have_64_bits(tmp_path, number):
    path = archive(
        tmp_path / "a.tar",
        {"0.id": str(number).encode(), "1.id": b"9" * 19, "2.id": b"9" * 100_000},
    )
    with open_container(path) as shard:
        assert shard.read("0/id") == number
        for name in ("1/id", "2/id"):
            with pytest.raises(FormatError, match="where a whole number of 64 bits is expected"):
                shard.read(name)


@pytest.mark.parametrize("start", [100, 108, 116, 136, 329, 337])  # mode, owners, time, devices
def test_a_header_at_which_tarfile_ends_in_silence_is_refused(tmp_path, start):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("0.txt", "1.txt", "2.txt"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"a"))
    data = bytearray((tmp_path / "a.tar").read_bytes())
    header = memoryview(data)[1024:1536]
    header[start] = ord("L")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "b.tar").write_bytes(data)
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.getnames() == ["0.txt"]
    with open_container(tmp_path / "a.tar") as container:
        assert container.keys() == ["0", "1", "2"]
    with pytest.raises(FormatError, match=rf"byte {1024 + start:,}: .* readers of shards end here"):
        open_container(tmp_path / "b.tar")


def member(name, data=b"", kind=b"0", prefix=b"", magic=b"ustar\x0000"):
    """Return a member as it stands in an archive: its header, and its bytes in whole blocks."""
    header = bytearray(512)
    header[: len(name)] = name
    header[100:124] = b"0000644\0" + b"0000000\0" * 2
    header[124:148] = b"%011o\0" % len(data) + b"00000000000\0"
    header[156:157] = kind
    header[257 : 257 + len(magic)] = magic
    header[345 : 345 + len(prefix)] = prefix
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data + b"\0" * (-len(data) % 512)


def speaks(kind=b"x", **said):
    """Return a pax header (or with kind L a name as GNU writes it) of the next member."""
    if kind == b"L":
        return member(b"././@LongLink", said["path"].encode() + b"\0", b"L")
    records = b""
    for key, value in said.items():
        rest = f" {key}={value}\n".encode()
        size = next(n for n in range(len(rest), len(rest) + 9) if n == len(rest) + len(str(n)))
        records += str(size).encode() + rest
    return member(b"pax", records, kind)


INSIDE = member(b"9.txt", b"inside")
STRANGE = {
    "a folder by its old name": speaks(path="README") + member(b"x/", INSIDE, b"\0"),
    "the same with a long name": speaks(b"L", path="README") + member(b"x/", INSIDE, b"\0"),
    "an old folder": member(b"x/", b"", b"\0"),
    "Solaris": speaks(b"X", path="9.txt") + member(b"README", b"a"),
    "no folder": speaks(path="8.txt") + member(b"x/", INSIDE, b"0"),
    "one name twice": speaks(path="8.txt") + speaks(path="8.txt") + member(b"q", b"a"),
    "a prefix": member(b"9.txt", b"a", prefix=b"deep"),
}
UNCLEAR = {
    "two names": speaks(path="9.txt") + speaks(path="README") + member(b"q", b"a"),
    "two long names": speaks(b"L", path="9.txt") + speaks(b"L", path="README") + member(b"q", b"a"),
    "a name and a long one": speaks(path="9.txt")
    + speaks(b"L", path="README")
    + member(b"q", b"a"),
    "a long name and another": speaks(b"L", path="9.txt")
    + speaks(path="README")
    + member(b"q", b"a"),
    "two sizes": speaks(size="0") + speaks(path="README", size="1024") + member(b"q", INSIDE),
    "a prefix of no standard": member(b"9.txt", b"a", prefix=b"deep", magic=b"ustar  \0"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_members_are_those_that_tarfile_finds(tmp_path, what):
    path = tmp_path / "a.tar"
    path.write_bytes(member(b"0.txt", b"a") + STRANGE[what] + b"\0" * 1024)
    with tarfile.open(path) as tar:
        wanted = {one.name for one in tar if one.isreg() and "." in one.name}
    with open_container(path) as shard:
        assert {f"{key}.txt" for key in shard.keys()} == wanted  # noqa: SIM118  a container


@pytest.mark.parametrize("what", UNCLEAR)
def test_a_member_of_which_readers_make_different_things_is_refused(tmp_path, what):
    path = tmp_path / "a.tar"
    path.write_bytes(member(b"0.txt", b"a") + UNCLEAR[what] + b"\0" * 1024)
    with pytest.raises(
        FormatError, match=r"byte [\d,]+: (two headers say different|a name with a prefix)"
    ):
        open_container(path)


@pytest.mark.parametrize("blocks", [1, 2, 8, 20, 64, 126, 160, 1024, 2048])
def test_zeros_up_to_the_end_of_a_record_follow_the_end_mark(tmp_path, blocks):
    path = archive(tmp_path / "a.tar", {f"{n}.bin": bytes(range(256)) * 4 for n in range(3)})
    data = path.read_bytes().rstrip(b"\0")
    data += bytes(-len(data) % 512 + 1024)
    path.write_bytes(data + bytes(-len(data) % (512 * blocks)))
    assert len(read_all(path)) == 3


@pytest.mark.parametrize("left", [1, 30, 80])
def test_members_that_became_zeros_are_lost_not_absent(tmp_path, left):
    path = archive(tmp_path / "a.tar", {f"{n:02}.bin": bytes(range(256)) * 10 for n in range(100)})
    data = path.read_bytes()
    stop = left * (512 + 2560)
    path.write_bytes(data[:stop] + bytes(len(data) - stop))
    with pytest.raises(FormatError, match="zeros stand at the end"):
        read_all(path)
