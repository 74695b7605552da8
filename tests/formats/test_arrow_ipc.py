"""Arrow IPC: columns have the values that pyarrow reads, whole and in part, from files and from streams."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all

ARROW = CORPUS / "arrow"
GOOD = ["y_file.arrow", "y_stream.arrow", "y_lz4.arrow", "y_zstd.feather"]


@pytest.mark.parametrize("name", GOOD)
def test_columns_are_those_that_pyarrow_reads(name):
    data = (ARROW / name).read_bytes()
    table = (ipc.open_stream if name == "y_stream.arrow" else ipc.open_file)(data).read_all()
    found = read_all(ARROW / name)
    for column in ("state", "action", "done", "half"):
        assert np.array_equal(found[column], np.array(table[column].to_pylist()))
    assert (found["state"].dtype, found["action"].dtype, found["half"].dtype) == ("f8", "f4", "f2")
    for column in ("task", "ragged", "label"):
        assert found[column] == table[column].to_pylist()
    assert found["time"].tolist() == list(range(6))
    assert "picture" not in found


@pytest.mark.parametrize("name", GOOD)
def test_rows_of_a_part_are_those_of_the_whole(name):
    whole = read_all(ARROW / name)["state"]
    with open_container(ARROW / name) as container:
        assert container.sliced("state") == 6
        assert container.seek_points("state").tolist() == (
            [0] if name == "y_zstd.feather" else [0, 4]
        )
        for start, stop in ((3, 5), (0, 2), (4, 6), (2, 2)):
            assert np.array_equal(container.read_rows("state", start, stop), whole[start:stop])


def test_bytes_are_told_as_passed_over():
    with open_container(ARROW / "y_file.arrow") as container:
        assert (container.passed, container.opaque) == (["picture"], True)
        with pytest.raises(FormatError, match="picture: values of type binary"):
            container.read("picture")


@pytest.mark.parametrize("name", ["y_file.arrow", "y_stream.arrow"])
def test_a_file_cut_anywhere_is_refused(tmp_path, name):
    data = (ARROW / name).read_bytes()
    for size in range(1, len(data), 7):
        (tmp_path / "x.arrow").write_bytes(data[:size])
        with pytest.raises(FormatError):
            read_all(tmp_path / "x.arrow")


def test_a_stream_cut_between_two_batches_or_overwritten_there_is_refused(tmp_path):
    whole, first = written(numbered(3), ipc.new_stream), written(numbered(1), ipc.new_stream)
    end = len(first) - 8  # of the first batch: the end mark has 8 bytes
    assert whole[:end] == first[:end]
    for rest, words in (
        (b"", "without an end mark"),
        (bytes(len(whole) - end), "bytes follow the end mark"),
        (first[end:] + whole[end:], "bytes follow the end mark"),
    ):
        (tmp_path / "x.arrow").write_bytes(whole[:end] + rest)
        with pytest.raises(FormatError, match=words):
            read_all(tmp_path / "x.arrow")
    (tmp_path / "x.arrow").write_bytes(whole + bytes(56))  # padding
    assert len(read_all(tmp_path / "x.arrow")["x"]) == 24


def test_a_large_column_is_read_over_many_batches(tmp_path):
    numbers = np.random.default_rng(0).normal(size=10_000)
    feather.write_feather(pa.table({"x": numbers}), tmp_path / "x.feather", chunksize=300)
    with open_container(tmp_path / "x.feather") as container:
        parts = [container.read_rows("x", at, at + 1000) for at in range(0, 10_000, 1000)]
    assert np.array_equal(np.concatenate(parts), numbers)


def written(batches, how=ipc.new_file, **options):
    sink = pa.BufferOutputStream()
    with how(sink, batches[0].schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def numbered(count, name="x"):
    return [pa.record_batch({name: np.arange(8.0) + at}) for at in range(count)]


def block(data, number):
    """Return where the footer says where record batch `number` lies: 24 bytes each, one after another."""
    sought = struct.pack("<I", ipc.open_file(data).num_record_batches)
    at = next(
        at
        for at in range(len(data) - 10, 0, -1)
        if data[at : at + 4] == sought and data[at + 4 : at + 6] != b"\0\0"
    )
    return at + 4 + 24 * number


def refused(path, data, match):
    path.write_bytes(data)
    with pytest.raises(FormatError, match=match):
        read_all(path)


def test_a_footer_that_names_one_batch_less_is_refused(tmp_path):
    data = bytearray(written(numbered(3)))
    data[block(data, 0) - 4] = 2
    assert ipc.open_file(bytes(data)).num_record_batches == 2  # a loader does not see the last one
    refused(tmp_path / "x.arrow", data, "footer names 2 record batches, 3 are there")


def test_a_footer_that_names_a_batch_twice_or_in_another_order_is_refused(tmp_path):
    good = written(numbered(3))
    first, second = block(good, 0), block(good, 1)
    twice, turned = bytearray(good), bytearray(good)
    twice[second : second + 24] = good[first : first + 24]
    turned[first : first + 48] = good[second : second + 24] + good[first : first + 24]
    assert ipc.open_file(bytes(turned)).get_batch(0).column(0)[0].as_py() == 1
    for data in (twice, turned):
        refused(
            tmp_path / "x.arrow", data, "footer names other places than those of the record batches"
        )


def test_a_footer_with_other_columns_is_refused(tmp_path):
    data = bytearray(written([pa.record_batch({"left": [1.0], "right": [2.0]})]))
    foot = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    left, right = data.index(b"left", foot), data.index(b"right", foot)
    data[left : left + 4], data[right : right + 5] = b"each", b"other"
    assert ipc.open_file(bytes(data)).schema.names == ["each", "other"]
    refused(tmp_path / "x.arrow", data, "footer declares other columns")


def test_files_without_rows_and_with_dictionaries_agree_with_their_footers(tmp_path):
    empty = pa.schema({"x": pa.float64()}).empty_table()
    with ipc.new_file(tmp_path / "x.arrow", empty.schema):
        pass
    assert read_all(tmp_path / "x.arrow")["x"].shape == (0,)
    two = {name: pa.array(list("abba")).dictionary_encode() for name in "xy"}
    (tmp_path / "x.arrow").write_bytes(written([pa.record_batch(two)] * 3))
    assert read_all(tmp_path / "x.arrow") == {"x": list("abba") * 3, "y": list("abba") * 3}


def coded(words, indices):
    return pa.record_batch(
        {"x": pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(words))}
    )


@pytest.mark.parametrize(
    "entry",
    ["a" * 200_000, [0.5] * 25_000, ["a" * 1000] * 200],
    ids=["text", "numbers", "lists of text"],
)
def test_a_dictionary_that_unpacks_to_far_more_than_the_file_is_refused(tmp_path, entry):
    data = written([coded([entry], np.zeros(4000, np.int8))], ipc.new_stream, compression="zstd")
    assert len(data) < 4000
    refused(
        tmp_path / "x.arrow",
        data,
        r"entries of a dictionary: \d+,\d+,\d+ bytes are declared but only",
    )


def test_a_long_entry_that_few_rows_have_is_read(tmp_path):
    batch = coded(["a" * 2_000_000, "b"], (np.arange(1000) > 0).astype(np.int16))
    (tmp_path / "x.arrow").write_bytes(written([batch], compression="zstd"))
    assert read_all(tmp_path / "x.arrow")["x"] == ["a" * 2_000_000, *["b"] * 999]


@pytest.mark.parametrize("how", [ipc.new_file, ipc.new_stream])
def test_a_dictionary_that_many_batches_share_counts_once(tmp_path, how):
    # 0.9 MB, in all batches together 2.2 GB
    words = [f"word {number}" * 12 for number in range(8000)]
    batch = coded(words, np.arange(5, dtype=np.int32))
    (tmp_path / "x.arrow").write_bytes(written([batch] * 2500, how))
    with open_container(tmp_path / "x.arrow") as container:
        assert container.read("x") == words[:5] * 2500


def _arrow_file(rows: int) -> bytes:
    table = pa.table({"a": np.arange(float(rows))})
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("rows", [1, 1000])
def test_two_files_joined_are_refused(tmp_path, rows):
    path = tmp_path / "a.arrow"
    data = _arrow_file(rows)
    path.write_bytes(data * 2)
    with pytest.raises(
        FormatError, match=r"bytes at byte .* belong to no message.*two files joined"
    ):
        open_container(path)


@pytest.mark.parametrize(
    ("gap", "fits"), [(b"x" * 63, True), (b"x" * 64, False), (bytes(5000), True)]
)
def test_padding_may_lie_before_the_footer(tmp_path, gap, fits):
    data = _arrow_file(10)
    tail = int.from_bytes(data[-10:-6], "little") + 10
    path = tmp_path / "a.arrow"
    path.write_bytes(data[:-tail] + gap + data[-tail:])
    if fits:
        assert read_all(path)["a"].tolist() == list(range(10))
    else:
        with pytest.raises(FormatError, match="72 bytes at byte"):  # with the end mark of 8
            open_container(path)


# Written by Polars 2.1.0: pl.DataFrame({"t": ["hi", "a text of more than twelve letters", None], "n": [1.5, 2.5, 3.5],
# "c": pl.Series(["a", "b", "a"], dtype=pl.Categorical), "l": [["x"], [], ["y", "z"]]}).write_ipc(...)
POLARS = zlib.decompress(
    base64.b85decode(
        "c-rk%y-"
        "EW?5S~j;33`Y|g=n={Sy)7Ega{_6h#)9I&`zVAM2J7=snN;@u(Yu70W5ulJc0NWR#qY+8a%(*or`htF9=pH%+1cse)"
        "G4?UM`=XT^J;CiRdm2!!F{zgKrD9QUYI>Qqa3(&J4g*1z!~T`Xvk}z(+v|kkd^X&9+<EQsC{8jRn!OeLe6uSgt~5Ob"
        "K*@Sf}78pdx4)l+xHF^>QxM1799|cGcqC1Eat_9mj(%q2r}9>CE2nP=+LjrMa1<@!b66)NFowJU25$vL1mq*o5}@Ap"
        "VG&p>gRvH2JN9Dq^eE6gNJeppW5vvvhBh>x6CqT-"
        "9n|ToNbRsY9bZjjihb8eAYbK^1O0(nstoj?tU@i38cGeQ~wiGf9JPxo$Z})P}gO?iOoeWbVdZt#$jzo)w-"
        "Jek{CCc*XJ&$tl~BC3}&7%O1%pif7p)IbEk~0>!OxaVu=2@-zKzagU4ZZ!-"
        "6*paTD=cs^SW)Yh8X*xK<`P%Lb!;J`2K`>Nyzfxol+6EBZrhP!f&Ubc}M9QyrozPXpLaAiwAwB(~N@H{sc^fot9;bv"
        "}P@8-"
        "sy`x`yOX3c~8Kba%vgFF9hDJ%Eb2lW;#d8L6qbG=koFTcwpwR(BplE~WC?;`s?ljO_7E6)4a*RI)LTJOOBKj1I_0as"
        "u-{bzm!G6LKq"
    )
)


def test_a_file_of_polars_is_read(tmp_path):
    """Its first schema is no message, and its texts are views."""
    file = tmp_path / "x.arrow"
    file.write_bytes(POLARS)
    found = read_all(file)
    assert found["t"] == ["hi", "a text of more than twelve letters", ""]  # as of a plain text
    assert found["n"].tolist() == [1.5, 2.5, 3.5]
    assert found["c"] == ["a", "b", "a"]
    assert found["l"] == [["x"], [], ["y", "z"]]
    with open_container(file) as container:
        assert container.read_rows("n", 1, 3).tolist() == [2.5, 3.5]


def test_a_file_of_polars_cut_anywhere_is_refused(tmp_path):
    for size in range(1, len(POLARS), 7):
        (tmp_path / "x.arrow").write_bytes(POLARS[:size])
        with pytest.raises(FormatError):
            read_all(tmp_path / "x.arrow")


def test_more_than_a_schema_before_the_first_message_is_refused(tmp_path):
    """The messages move, and the places in the footer with them: 24 bytes each, by the format."""
    places = [place.to_bytes(8, "little") for place in _places(POLARS)]
    hidden = bytes(range(1, 65)) * 32
    moved = POLARS[:8] + POLARS[8 : _places(POLARS)[0]] + hidden + POLARS[_places(POLARS)[0] :]
    footer = moved.rfind(places[0])
    for place in places:
        at = moved.index(place, footer)
        new = int.from_bytes(place, "little") + len(hidden)
        moved = moved[:at] + new.to_bytes(8, "little") + moved[at + 8 :]
    (tmp_path / "x.arrow").write_bytes(moved)
    with pytest.raises(FormatError, match="before its first message"):
        read_all(tmp_path / "x.arrow")


def _places(data: bytes) -> list[int]:
    """Return the offsets of the messages that a footer lists, ascending."""
    first = data.index(b"\xff\xff\xff\xff", 8)
    size = struct.unpack("<i", data[first + 4 : first + 8])[0]
    return [first] if size else []


def test_texts_that_share_their_bytes_are_refused_beyond_the_limit(tmp_path):
    """16 bytes of a view name a text of 1 MB: 100,000 rows would be 100 GB."""
    text = "x" * 1_000_000
    view = struct.pack("<i4sii", len(text), text[:4].encode(), 0, 0)
    rows = 100_000
    column = pa.Array.from_buffers(
        pa.string_view(), rows, [None, pa.py_buffer(view * rows), pa.py_buffer(text.encode())]
    )
    with ipc.new_file(tmp_path / "x.arrow", pa.schema([("t", pa.string_view())])) as writer:
        writer.write_batch(pa.record_batch([column], names=["t"]))
    with pytest.raises(FormatError, match="at most"):
        read_all(tmp_path / "x.arrow")
