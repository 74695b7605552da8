"""JSON lines: numbered from the file's first line, one bad line loses one record, streamed."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.errors import FormatError
from datacheck.formats import jsonl
from datacheck.formats.jsonl import batches, lines
from tests.formats.reading import CORPUS, read_all


def test_blank_lines_count_but_hold_nothing():
    assert [number for number, _ in lines(CORPUS / "jsonl/y_blank.jsonl")] == [0, 3]


def test_byte_order_mark_is_passed_over():
    ((number, record),) = lines(CORPUS / "jsonl/y_bom.jsonl")
    assert (number, list(record)) == (0, ["conversations"])


def test_bad_lines_say_line_and_byte(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": }\n{"a": "\xff"}\n[1]\n{"a": NaN}\n{"cut')
    found = dict(lines(path))
    assert found[0] == {"a": 1}
    assert found[4] == [1]
    starts = {2: 10, 3: 18, 5: 33, 6: 44}
    assert sorted(found) == [0, 2, 3, 4, 5, 6]
    for number, start in starts.items():
        assert isinstance(found[number], FormatError)
        assert found[number].code == "DC701"
        assert f"line {number + 1} (byte {start})" in str(found[number])


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_part_is_the_part_of_the_whole(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    data = b"".join(orjson.dumps({"i": i}) + b"\n" for i in range(50))
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    whole = list(lines(path))
    assert whole == [(i, {"i": i}) for i in range(50)]
    assert picked(path, (10, 12)) == whole[10:13]
    assert picked(path, (49,)) == whole[49:]
    assert picked(path, (7, 60)) == whole[7:8]
    assert picked(path, (60,)) == picked(path, ()) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@given(wanted=st.sets(st.integers(0, 420)).map(sorted))
def test_of_pieces_only_lines_that_are_wanted_are_parsed(suffix, wanted, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / f"many{suffix}"
    if not path.exists():
        data = b"".join(b"[%d]\n" % i if i % 7 else b" \n" for i in range(400))
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_PIECE_BYTES", 64)
        whole, found = picked(path), picked(path, wanted)
        assert [one for one in found if one[0] in wanted] == [
            one for one in whole if one[0] in wanted
        ]
        assert all(wanted[0] <= number <= wanted[-1] for number, _ in found)
        assert len(found) <= 20 * len(wanted)  # 70 bytes hold no more: seven lines take 26 at least


def picked(path, wanted=None):
    return [
        pair for first, values in batches(path, wanted=wanted) for pair in enumerate(values, first)
    ]


def test_json_files_that_hold_a_list_and_json_lines_that_are_named_json(tmp_path):
    (tmp_path / "list.json").write_bytes(b'\xef\xbb\xbf[{"a": 1},\n {"a": 2}]')
    assert list(lines(tmp_path / "list.json")) == [(0, {"a": 1}), (1, {"a": 2})]
    assert (1, {"a": 2}) in picked(tmp_path / "list.json", (1,))
    (tmp_path / "lines.json").write_bytes(b'{"a": 1}\n{"a": 2}\n')
    assert list(lines(tmp_path / "lines.json")) == [(0, {"a": 1}), (1, {"a": 2})]
    (tmp_path / "one.json").write_bytes(b'{\n"a": 1}\n')
    assert list(lines(tmp_path / "one.json")) == [(0, {"a": 1})]
    assert read_all(CORPUS / "jsonl/y_list.json.gz") == {"records": [1, {}]}


def test_lines_that_are_too_long_are_one_fault_and_do_not_fill_memory(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n"')
        for _ in range(40):
            file.write(b"x" * (1 << 20))
        file.write(b'"\n{"a": 2}\n')
    tracemalloc.start()
    found = dict(lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[0] == {"a": 1}
    assert found[2] == {"a": 2}
    assert "line 2 (byte 9): more than 16 MiB long" in str(found[1])
    assert peak < 80 << 20


def test_a_damaged_gzip_file_ends_in_a_format_error(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 3)[:-9])
    with pytest.raises(FormatError, match="damaged gzip file"):
        list(lines(path))


TEXT = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(TEXT, max_size=5), newline=st.sampled_from(["\n", "\r\n"]))
def test_what_json_wrote_comes_back(records, newline, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        newline.join(json.dumps(r, ensure_ascii=False) for r in records).encode(
            "utf-8", "surrogatepass"
        )
    )
    assert [record for _, record in lines(path)] == records


def test_lines_as_one_value_are_capped_by_what_they_unpack_to(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "TEXT_BYTES", 1000)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 112))
    with pytest.raises(FormatError, match="1,008 bytes; at most 1,000"):
        read_all(tmp_path / "a.jsonl.gz")
    assert len(list(lines(tmp_path / "a.jsonl.gz"))) == 112


@given(
    st.lists(st.sampled_from([b"", b"[1]", b"  ", b'{"a": "b"}']), max_size=9),
    st.booleans(),
    st.integers(1, 4),
)
def test_a_piece_that_is_cut_loses_no_line_and_knows_where_each_is(held, ended, most):
    data = b"\n".join(held) + b"\n" * ended
    texts = data.splitlines(keepends=True)
    parts = list(jsonl.LineChunk(7, 100, data, len(texts)).cut(most)) if texts else []
    assert b"".join(part.data for part in parts) == data
    assert [part.count for part in parts] == [
        len(texts[i : i + most]) for i in range(0, len(texts), most)
    ]
    for place, part in enumerate(parts):
        first = place * most
        assert (part.number, part.offset) == (7 + first, 100 + len(b"".join(texts[:first])))
        assert part.data == b"".join(texts[first : first + most])


def test_a_carriage_return_within_a_line_makes_it_two_for_loaders_of_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\r\n{"a":\r2}\n{"a": 3}\r')
    (_, one), (_, two), (_, three) = lines(path)
    assert (one, three) == ({"a": 1}, {"a": 3})
    assert "line 2 (byte 10): a carriage return within the line" in str(two)


def test_an_unfinished_read_is_silent_at_the_end_of_the_interpreter(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 600_000))
    program = """if True:
        import ctypes, pathlib, sys
        from datacheck.formats import jsonl
        next(jsonl.batches(pathlib.Path(sys.argv[1]), wanted=[3]))
        # A module that outlives the collection of garbage has its names cleared.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(jsonl))
    """
    command = [sys.executable, "-c", program, str(tmp_path / "a.jsonl.gz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
