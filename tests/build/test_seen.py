"""What is known of fields that no schema lists: from headers, and the same as from the values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from datacheck.build import field_stats
from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.sources import Unread, list_files, open_source, plan_work
from tests.formats.reading import CORPUS
from tests.sources.schemas import schema

KINDS = sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir())


def work(folder, each=None):
    spec = schema({"files": "**/*"} | ({} if each is None else {"each": each}))
    return spec, plan_work(spec, list_files(folder)).items


def surveyed(spec, folder, item):
    """What `seen.look` says of each sample of an item: (signature, length) by field."""
    task = {"schema": spec.as_dict(), "root": str(folder), "roots": {}, "items": [item.as_dict()]}
    found = {}
    for record in field_stats.look(task, lambda number: None):
        for place, key in enumerate(record["keys"]):
            found[key] = {
                name: (sign, int(sizes[place])) for name, (sign, sizes) in record["fields"].items()
            }
    return found


def read(spec, folder, item):
    """The same, from the values themselves."""
    found = {}
    try:
        parts = list(open_source(spec, Path(folder)).read(item))
    except (FormatError, MissingDependencyError):
        return {}
    for block in parts:
        if not isinstance(block, Unread):
            for place, key in enumerate(block.keys):
                one = field_stats.stats_of_blocks(block.keys, [block])
                signs = {
                    name: (field.signatures[0], int(field.length[place]))
                    for name, field in one.items()
                }
                found[key] = {
                    n: ([s.kind, s.dtype, s.rank, list(s.item)], size)
                    for n, (s, size) in signs.items()
                }
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_headers_say_what_the_values_are(kind):
    folder = CORPUS / kind
    spec, items = work(folder, "key" if kind in {"tar", "mds"} else None)
    for item in items:
        wanted = read(spec, folder, item)
        found = surveyed(spec, folder, item)
        assert {key: found[key] for key in wanted} == wanted, item.path


def test_a_file_of_more_values_than_can_be_fields_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(field_stats, "_MOST_FIELDS", 10)
    for i, count in enumerate((10, 11)):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "a.json").write_text(json.dumps({f"v{n}": n for n in range(count)}))
        spec, items = work(folder)
        if count == 10:
            found, others = field_stats.measure_fields(spec, folder, {}, items, ["a.json"])
            assert others == 0
            assert np.array_equal([field.which[0] for field in found.values()], np.zeros(10))
        else:
            with pytest.raises(UsageError, match=r"more than 10 fields\. List those"):
                field_stats.measure_fields(spec, folder, {}, items, ["a.json"])


def test_what_is_known_of_many_samples_has_a_limit_and_a_few_fields_are_always_allowed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(field_stats, "_FEW_FIELDS", 2)
    monkeypatch.setattr(field_stats, "_BYTES", 12 * 50 * 3)
    for samples, most in ((50, 3), (90, 2)):
        keys = ["a.json", *(f"k{n}" for n in range(1, samples))]
        for count in (most, most + 1):
            folder = tmp_path / f"{samples}-{count}"
            folder.mkdir()
            (folder / "a.json").write_text(json.dumps({f"v{n}": n for n in range(count)}))
            spec, items = work(folder)
            found, others = field_stats.measure_fields(spec, folder, {}, items, keys)
            assert (list(found), others) == ([f"v{n}" for n in range(most)], count - most)


def test_fields_of_one_odd_file_are_left_out_where_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(field_stats, "_MOST_FIELDS", 3)
    # The odd one comes first
    for name, fields in (("a", "qrstu"), ("b", "xyz"), ("c", "xyz"), ("d", "xy")):
        (tmp_path / f"{name}.json").write_text(json.dumps(dict.fromkeys(fields, 1)))
    spec, items = work(tmp_path)
    keys = [f"{name}.json" for name in "abcd"]
    found, others = field_stats.measure_fields(spec, tmp_path, {}, items, keys)
    assert {name: (one.which >= 0).tolist() for name, one in found.items()} == {
        "x": [False, True, True, True],
        "y": [False, True, True, True],
        "z": [False, True, True, False],
    }
    assert others == 5
    monkeypatch.setattr(field_stats, "_MOST_FIELDS", 2)  # half of the samples have z, too
    monkeypatch.setattr(field_stats, "_FEW_FIELDS", 1)
    with pytest.raises(UsageError, match="4 samples have more than 2 fields"):
        field_stats.measure_fields(spec, tmp_path, {}, items, keys)
    monkeypatch.setattr(field_stats, "_MOST_NAMES", 7)
    with pytest.raises(UsageError, match="4 samples have more than 7 fields"):
        field_stats.measure_fields(spec, tmp_path, {}, items, keys)


def test_fields_that_the_schema_lists_are_not_left_out_for_others():
    counts = {"rare": 1, **{f"v{n}": 9 for n in range(5)}, "odd": 1}
    assert field_stats._most_common(counts, 20, 3, {"rare", "*"}) == {"rare", "v0", "v1"}
