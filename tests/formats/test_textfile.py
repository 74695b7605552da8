"""Text: a table where every line is numbers, text otherwise."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import time
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.parsed import conflict
from datacheck.scan import scan
from tests.formats.reading import CORPUS, read_all


def test_ground_truth_keeps_whole_numbers():
    table = read_all(CORPUS / "text/y_instance_gt.txt")["table"]
    assert table.dtype == np.int64
    assert table.tolist() == [5001, 5001, -100099, 0]


def test_clouds_headers_and_counts():
    cloud = read_all(CORPUS / "text/y_cloud.xyz")["table"]
    assert cloud.tolist() == [[665187.522077, 5648349.895035, 241.767693], [1.5, 2, -0.03]]
    with_header = read_all(CORPUS / "text/y_header.csv")
    assert with_header["columns"] == ["X", "Y", "Z"]
    assert with_header["table"].tolist() == [[289814.15, 4320978.61, 170.76], [1, 2, 3]]
    assert read_all(CORPUS / "text/y_counted.pts")["table"].tolist() == [[0.5, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    "text", ["ABF10/0000\n", "1 2\n3\n", "", "1 2 x\n3 4 5\n", "a b\n1 2 3\n", "1_0 2\n", "0x1F\n"]
)
def test_what_is_no_table_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert read_all(tmp_path / "a.txt") == {"text": text}


@pytest.mark.parametrize(
    ("notes", "columns"),
    [
        ("# ground truth trajectory\n# timestamp tx ty\n", ["timestamp", "tx", "ty"]),
        ("#timestamp, p_x [m], p_y [m]\r\n", ["timestamp", "p_x [m]", "p_y [m]"]),
        ("# Thanks to a friend for the data.\n#\n", None),
    ],
)
def test_lines_of_notes_may_stand_before_a_table(tmp_path, notes, columns):
    """Trajectories of TUM RGB-D and EuRoC were texts, and a NaN or a swapped quaternion in them was one, too."""
    (tmp_path / "a.csv").write_text(notes + "0.5,1,2\n1.5,3,nan\n")
    found = read_all(tmp_path / "a.csv")
    np.testing.assert_array_equal(found["table"], [[0.5, 1, 2], [1.5, 3, np.nan]])
    assert found.get("columns") == columns
    (tmp_path / "a.csv").write_text(notes + "0.5,1,2\nand so on\n")
    assert list(read_all(tmp_path / "a.csv")) == ["text"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1.5,2", "line 42 has 2 columns; the other 99 are rows of 3 numbers"),
        ("1.5,2,", "line 42 has 2 columns"),
        ("1,x,2", "line 42 holds more than numbers"),
    ],
)
def test_a_table_with_a_broken_row_is_no_text(tmp_path, row, said):
    """A file cut short in a row, or ten rows without their last columns, made of a table a text that passed."""
    rows = ["0.5,1,2"] * 100
    (tmp_path / "a.csv").write_text("\n".join(["# x y z", *rows[:40], row, *rows[41:]]))
    with pytest.raises(FormatError, match=said):
        read_all(tmp_path / "a.csv")
    for few in (
        ["# x y z", *rows[:10], row],
        [*rows[:40], *["1 2"] * 20],
        ["a line"] * 40 + rows[:1],
    ):
        (tmp_path / "a.csv").write_text("\n".join(few))
        assert list(read_all(tmp_path / "a.csv")) == ["text"]


def test_a_json_object_gives_its_entries(tmp_path):
    """Motions of DeepMimic are JSON called .txt: of a text nothing was judged."""
    (tmp_path / "a.txt").write_text(
        '{\n"Loop": "wrap",\n"Frames": [[0.5, 1], [0.5, 2]], "x": null\n}\n'
    )
    found = read_all(tmp_path / "a.txt")
    assert (found["Loop"], found["Frames"].tolist(), sorted(found)) == (
        "wrap",
        [[0.5, 1], [0.5, 2]],
        ["Frames", "Loop"],
    )
    for text in (
        '{"one": "line"}\n{"two": "lines"}\n',
        '{"name": {{name}}}',
        '{\n"Be quick',
        "{\n  a poem\n}\n",
    ):
        (tmp_path / "a.txt").write_text(text)
        assert read_all(tmp_path / "a.txt") == {"text": text}


@pytest.mark.parametrize("end", ["", ",", '}, "x": {"y": [2, "z'])
def test_a_json_object_without_its_end_is_no_text(tmp_path, end):
    """A motion cut at 72 % was a text among JSON."""
    (tmp_path / "a.txt").write_text(
        text := '{\n"Loop": "wrap", "é": {"Frames": [[0.5, 1], [0.5]]' + end
    )
    with pytest.raises(FormatError, match=f"without its end: .* behind byte {len(text.encode())}"):
        read_all(tmp_path / "a.txt")


CONFLICT = ["<<<<<<< HEAD", "1.5,2,3", "=======", "4.5,5,6", ">>>>>>> origin/collect"]


@pytest.mark.parametrize(
    ("name", "lines", "at"),
    [
        ("a.csv", [*["0.5,1,2"] * 300, *CONFLICT, "1,2,3"], "lines 301 to 305"),
        ("a.csv", ["time,x,y", *["2020-01-01,1,2"] * 3, *CONFLICT], "lines 5 to 9"),
        ("a.txt", [*CONFLICT, *["0.5 1 2"] * 300], "lines 1 to 5"),
        ("a.json", ['{"a": 1,', *CONFLICT, "}"], "lines 2 to 6"),
    ],
)
def test_markers_of_a_merge_conflict_are_named(tmp_path, name, lines, at):
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(FormatError, match=f"{at} are a git merge conflict"):
        read_all(tmp_path / name)


def test_a_text_that_tells_of_merge_conflicts_is_one(tmp_path):
    (tmp_path / "a.txt").write_text(text := "\n".join(["Git writes", *CONFLICT, "into a file."]))
    assert read_all(tmp_path / "a.txt") == {"text": text}
    assert conflict("\n".join(CONFLICT[::-1]).encode()) == conflict(b"x\n=======\n>>>>>>> y") == ""


def test_numbers_beyond_64_bits_become_floats(tmp_path):
    (tmp_path / "a.txt").write_text("1\n99999999999999999999\n")
    assert read_all(tmp_path / "a.txt")["table"].tolist() == [1.0, 1e20]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(width=32), min_size=width, max_size=width), min_size=1, max_size=5
        )
    ),
    separator=st.sampled_from([" ", ", ", "\t", ";"]),
)
def test_written_numbers_come_back(rows, separator, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(separator.join(map(repr, row)) for row in rows))
    table = read_all(tmp_path / "a.txt")["table"]
    expected = np.array(rows)
    np.testing.assert_array_equal(table, expected[:, 0] if expected.shape[1] == 1 else expected)


def test_real_tables(shared_data):
    folder = shared_data / "a_pointclouds/mikedh-trimesh"
    assert read_all(folder / "points_agisoft.xyz")["table"].shape == (100, 6)
    assert read_all(folder / "points_cloudcompare.xyz")["table"].shape == (101, 7)
    crlf = read_all(shared_data / "f_malformed/PDAL-PDAL/text/crlf_test.txt")
    assert crlf["columns"] == ["X", "Y", "Z", "Intensity"]
    assert crlf["table"].shape == (10, 4)


@pytest.mark.parametrize(
    "line",
    [
        "1234 " * (1 << 20) + "words",
        "1" + " " * (4 << 20) + "x",
        "1" * (4 << 20) + "x",
        "1,," * (1 << 20),
    ],
)
def test_a_long_line_that_only_starts_like_numbers_is_text_at_once(tmp_path, line):
    """Milliseconds where each character is looked at a few times; where each is for each, hours: past any limit."""
    (tmp_path / "a.txt").write_text(line)
    assert read_all(tmp_path / "a.txt") == {"text": line}


@given(
    st.lists(st.integers(0, 10**20) | st.integers(0, 300), min_size=1),
    st.sampled_from(["\n", "\n\n", "\r\n", " \n"]),
    st.booleans(),
)
def test_a_column_of_whole_numbers_is_read_as_any_table(numbers, between, closed):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(between.join(f"{n:02}" for n in numbers).encode() + b"\n" * closed)
        table = read_all(path)["table"]
    wanted = np.array(numbers, np.int64 if max(numbers) < 1 << 63 else np.float64)
    assert table.dtype == wanted.dtype
    np.testing.assert_array_equal(table, wanted)


@given(
    st.lists(st.integers(0, 10**9), min_size=1),
    st.sampled_from(["\n", "\n\n\n"]),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 60),
)
def test_a_column_of_whole_numbers_may_be_cut_anywhere(numbers, between, closed, digits, block):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("datacheck.formats.textfile._BLOCK", block)
        path = Path(folder, "a.txt")
        path.write_bytes(
            between.join(f"{n % 10**digits:03}" for n in numbers).encode() + b"\n" * closed
        )
        table = read_all(path)["table"]
    assert table.dtype == np.int64
    assert table.tolist() == [n % 10**digits for n in numbers]


TABLE = """when,place,count,share,ok,empty
2014-04-01 00:00:00,Köln,20,0.5,true,
2014-04-01 00:05:00,"a, ""b""
c",-3,,false,
"""


@pytest.mark.parametrize(("name", "between"), [("a.csv", ","), ("a.TSV", "\t")])
def test_a_table_of_words_and_times_gives_its_columns(tmp_path, name, between):
    text = TABLE if between == "," else TABLE.replace("a, ", "a ").replace(",", "\t")
    (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
    found = read_all(tmp_path / name)
    # Date -u -d "2014-04-01 00:05:00" +%s
    assert found.pop("when").tolist() == [1396310400.0, 1396310700.0]
    assert found.pop("place") == ["Köln", 'a, "b"\nc' if between == "," else 'a "b"\nc']
    assert (found["count"].dtype, found.pop("count").tolist()) == (np.int64, [20, -3])
    share = found.pop("share")
    assert share[0] == 0.5
    assert np.isnan(share[1])
    assert found.pop("ok").tolist() == [True, False]
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "2014-04-01 00:00:00,20.0\n2014-04-01 00:05:00,21.0\n2014-04-01 00:10:00,22.0\n",  # no line of names
        "a,b\nx,1\n",  # one row
        "a,b\nx,1\ny,2,3\nz,4\n",  # rows of several lengths
        "a,\nx,1\ny,2\n",  # no name
        "one line of prose, with a comma\nand another one\nand a third\n",
        "words\nred\nblue\n",
        "\na,b\nx,1\ny,2\n",  # an empty line in the place of names
    ],
)
def test_what_is_no_table_of_columns_is_a_text(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    assert read_all(tmp_path / "a.csv") == {"text": text}


def test_columns_of_one_name_are_numbered(tmp_path):
    """A table of 53 columns, two of them called as others are, was one text."""
    (tmp_path / "a.csv").write_text("a,b,a,a_2,a\nx,1,2,3,4\ny,5,6,7,8\n")
    found = {
        name: value if isinstance(value, list) else value.tolist()
        for name, value in read_all(tmp_path / "a.csv").items()
    }
    assert found == {"a": ["x", "y"], "b": [1, 5], "a_3": [2, 6], "a_2": [3, 7], "a_4": [4, 8]}


def test_columns_of_one_name_many_times_are_read_in_a_moment(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(["a"] * 30_000) + "\nx,y\nx,y\n")
    began = time.process_time()
    assert list(read_all(tmp_path / "a.csv")) == ["text"]
    assert time.process_time() - began < 5


NAMED = ["when,place,n", *['2014-04-01,"two\nlines",1'] * 30, *["2014-04-01,Rome,1"] * 100]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            {130: "2014-04-01,Ro"},
            "line 161 has 2 cells, the header names 3; the other 129 rows fit",
        ),
        (
            {0: "when,place,n", 40: "Rome"},
            "line 71 has 1 cell, the header names 3; the other 129 rows fit",
        ),
        (
            {9: "2014-04-01,Rome,1,2", 90: "x,y"},
            "line 18 has 4 cells, .* 3, and 1 more do not fit; the other 128 rows",
        ),
    ],
)
def test_a_table_of_columns_with_a_ragged_row_is_no_text(tmp_path, rows, said):
    """One cell fewer made a text of it, in which its columns were "missing"."""
    lines = [rows.get(place, line) for place, line in enumerate(NAMED)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert list(read_all(tmp_path / "a.csv")) == ["text"]  # who asks for the text alone has it
    with open_container(tmp_path / "a.csv") as container, pytest.raises(FormatError, match=said):
        container.read("n")


@pytest.mark.parametrize("long", [1, 200_000])
def test_a_table_cut_within_a_quoted_cell_is_refused(tmp_path, long):
    """All rows behind the quote were the text of one cell."""
    (tmp_path / "a.csv").write_text('n,said\n1,"two\nlines"\n2,5\n3,"' + "4,x\n" * long)
    with pytest.raises(FormatError, match="line 5 opens a quote that does not close"):
        read_all(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('n,said\n1,"two\nlines"\n2,a 5" pipe\n')
    assert read_all(tmp_path / "a.csv")["said"] == ["two\nlines", 'a 5" pipe']


@pytest.mark.parametrize(
    "lines",
    [
        [*NAMED, *["x,y"] * 3],  # too many
        [*NAMED[40:57], "x,y"],  # too few rows
        [*NAMED, "# the end"],
        ["Dear reader, hello", *["a line", "this one, with a comma", "a, b, c"] * 40],
    ],
)
def test_a_text_with_commas_and_a_table_with_notes_stay_texts(tmp_path, lines):
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert list(read_all(tmp_path / "a.csv")) == ["text"]


def test_columns_are_those_of_tables_by_their_ending_alone(tmp_path):
    (tmp_path / "a.txt").write_text(TABLE, encoding="utf-8")
    assert list(read_all(tmp_path / "a.txt")) == ["text"]


def test_cells_of_a_table_that_are_empty_are_nan_and_fractions_of_seconds_stay(tmp_path):
    lines = [
        "time,day,stamp,ok,name",
        "2020-01-01 00:00:00.1,2020-01-02,1403636579763555584,true,a",
        ",,,,b",
        "2020-01-01 00:00:00.35,1970-01-02,1403636579763555600,false,c",
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = read_all(tmp_path / "a.csv")
    assert found["name"] == ["a", "b", "c"]
    assert np.isnan([found[name][1] for name in ("time", "day", "stamp", "ok")]).all()
    assert found["time"][[0, 2]].tolist() == [1577836800.1, 1577836800.35]
    assert found["day"][[0, 2]].tolist() == [1577923200.0, 86400.0]
    assert found["stamp"][0] == 1403636579763555584.0
    assert found["ok"][[0, 2]].tolist() == [1.0, 0.0]


def test_a_table_of_pandas_has_its_index(tmp_path):
    (tmp_path / "a.csv").write_text(",place,n\n0,Rome,1\n1,Oslo,2\n")
    assert {name: list(values) for name, values in read_all(tmp_path / "a.csv").items()} == {
        "index": [0, 1],
        "place": ["Rome", "Oslo"],
        "n": [1, 2],
    }


def test_lines_that_end_as_on_old_macs_are_a_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,b\rx,1\ry,2\r")
    assert list(read_all(tmp_path / "a.csv")) == ["text"]


def test_a_cell_that_tells_of_a_merge_conflict_is_none(tmp_path):
    told = 'id,text\n1,"so:\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main\nor so"\n2,x,3\n'
    (tmp_path / "a.csv").write_text(told)
    assert read_all(tmp_path / "a.csv") == {"text": told}


def _packed_folder(folder, ending, test):
    folder.mkdir()
    rng = np.random.default_rng(0)
    words = [" ".join(rng.choice(["ab", "cd", "ef", "gh", "ij"], 12)) for _ in range(200)]
    between = "," if ending == ".csv" else "\t"
    lines = [f"{word}{between}{i % 2}" for i, word in enumerate(words)]
    names = [] if ending == ".txt" else [f"text{between}label"]
    body = "\n".join([*names, *lines]) + "\n"
    (folder / f"train{ending}.gz").write_bytes(gzip.compress(body.encode()))
    (folder / f"test{ending}.gz").write_bytes(test)
    return folder


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
def test_text_behind_gzip_is_read_as_the_file_inside(tmp_path, ending):
    between = "," if ending == ".csv" else "\t"
    names = "" if ending == ".txt" else f"text{between}label\n"
    lines = [f"another text of number {i} here{between}{i % 2}\n" for i in range(40)]
    test = gzip.compress((names + "".join(lines)).encode())
    run = scan(_packed_folder(tmp_path / "d", ending, test))
    assert (len(run.table.keys), run.report.findings) == (240, [])


def _packed_repeats(part, count):
    stream = zlib.compressobj(9, wbits=31)
    return b"".join([*(stream.compress(part) for _ in range(count)), stream.flush()])


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda good: good[: len(good) // 2], "ended before the end-of-stream marker"),
        (lambda good: good[:-8] + bytes([good[-8] ^ 1]) + good[-7:], "CRC check failed"),
        (lambda good: good + b"garbage", "or other bytes follow the packed ones"),
        (lambda _: b"no gzip at all", "it does not begin as one, or other bytes"),
        (lambda _: _packed_repeats(bytes(1 << 20), 300), "byte 0 is zero: this is no text file"),
        (lambda _: _packed_repeats(b"a b" * (1 << 19), 172), ""),
    ],
)
def test_damaged_gzip_and_bombs_are_unreadable_files(tmp_path, ending, make, reason):
    good = gzip.compress(b"text,label\n" + np.random.default_rng(1).bytes(300).hex().encode())
    data = _packed_folder(tmp_path / "d", ending, make(good))
    path = data / f"test{ending}.gz"
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            open_container(path)
        assert tracemalloc.get_traced_memory()[1] < 600 << 20
    finally:
        tracemalloc.stop()
    assert (reason or "unpacks to more than 268,435,456 bytes") in str(caught.value)
    found = scan(data).report.findings
    assert {f.code for f in found if f.severity.value == "error"} & {"DC101", "DC701"}


def test_packed_text_in_an_archive_stays_bytes(tmp_path):
    packed = gzip.compress(b"a text")
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        member = tarfile.TarInfo("1.txt.gz")
        member.size = len(packed)
        file.addfile(member, io.BytesIO(packed))
    with open_container(tmp_path / "a.tar") as container:
        (name,) = container.names()
        assert bytes(container.read(name)) == packed
