"""JSON files, and what the JSON test suite says must be accepted and refused."""

from __future__ import annotations

import json
import time
import tracemalloc

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.jsonl import lines
from tests.formats.reading import CORPUS, read_all


def test_mappings_give_entries_and_numbers_arrays():
    values = read_all(CORPUS / "json/y_captions.json")
    assert values["objects"] == {"7": {"text": "a cup"}}
    assert values["box"].tolist() == [[0, 1], [2, 3]]
    assert values["n"].shape == ()
    assert values["n"] == 3


def test_lists_lines_and_single_values(tmp_path):
    assert read_all(CORPUS / "json/y_list.json") == {"records": [{"a": 1}, {"a": 2}]}
    assert read_all(CORPUS / "json/y_lines.json") == {"records": [{"a": 1}, {"a": 2}]}
    assert read_all(CORPUS / "json/y_null.json") == {}
    assert read_all(CORPUS / "json/y_number.json") == {"value": np.array(-2.5)}
    (tmp_path / "a.json").write_text(
        '{"ragged": [[1], [2, 3]], "none": null, "empty": [], "mixed": [1, "a"], "t": "x"}'
    )
    expected = {"ragged": [[1], [2, 3]], "empty": [], "mixed": [1, "a"], "t": "x"}
    assert read_all(tmp_path / "a.json") == expected


def test_the_json_test_suite(shared_data):
    folder = shared_data / "f_malformed/nst-JSONTestSuite"
    counts = {"y": 0, "n": 0, "i": 0}
    for path in sorted(folder.rglob("*.json")):
        start = time.process_time()
        try:
            read_all(path)
            accepted = True
        except FormatError:
            accepted = False
        assert time.process_time() - start < 1
        kind = path.name[0] if path.name[1] == "_" else "i"
        counts[kind] += 1
        assert kind == "i" or accepted == (kind == "y"), path.name
    assert counts["y"] > 20
    assert counts["n"] > 20


def test_real_annotations_are_what_json_reads(shared_data):
    path = shared_data / "d_hand_joints/open-mmlab-mmpose/freihand/test_freihand.json"
    values, reference = read_all(path), json.loads(path.read_bytes())
    assert values["annotations"] == reference["annotations"]
    assert len(values["images"]) == 8


def test_a_long_text_between_numbers_costs_its_own_length(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"mixed": [1, "x" * 20_000] + [2] * 20_000}))
    tracemalloc.start()  # an array of texts would take 20,002 times 80 kB
    values = read_all(tmp_path / "a.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert values["mixed"][1] == "x" * 20_000


def test_a_byte_order_mark_and_space_around_change_nothing(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": "b"}\n\n')
    assert read_all(tmp_path / "a.json") == {"a": "b"}
    (tmp_path / "lines.json").write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": 2}\n')
    assert read_all(tmp_path / "lines.json") == {"records": [{"a": 1}, {"a": 2}]}
    assert [value for _, value in lines(tmp_path / "lines.json")] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(("count", "is_read"), [(1_000_000, True), (10_000_000, False)])
def test_a_document_of_millions_of_empty_lists_is_refused_before_it_is_parsed(
    tmp_path, count, is_read
):
    """3 bytes of text become 72 of memory. 4,000,000 and one for each 6 of 30,000,000 bytes are read."""
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a":[' + b"[]," * (count - 1) + b"[]]}")
    if is_read:
        with open_container(path) as container:
            assert container.names() == ["a"]
        return
    with pytest.raises(FormatError, match=r"^10,000,002 lists and mappings in 30,000,007"):
        open_container(path)
