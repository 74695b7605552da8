"""What is known of fields that no schema lists: from headers, and the same as from the values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from datacheck.build import seen
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
    for record in seen.look(task, lambda number: None):
        for place, key in enumerate(record["keys"]):
            found[key] = {name: (sign, int(sizes[place])) for name, (sign, sizes) in record["fields"].items()}
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
                one = seen.of_blocks(block.keys, [block])
                signs = {name: (field.signatures[0], int(field.length[place])) for name, field in one.items()}
                found[key] = {n: ([s.kind, s.dtype, s.rank, list(s.item)], size) for n, (s, size) in signs.items()}
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
    monkeypatch.setattr(seen, "_MOST_FIELDS", 10)
    for i, count in enumerate((10, 11)):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "a.json").write_text(json.dumps({f"v{n}": n for n in range(count)}))
        spec, items = work(folder)
        if count == 10:
            found = seen.survey(spec, folder, {}, items, ["a.json"])
            assert np.array_equal([field.which[0] for field in found.values()], np.zeros(10))
        else:
            with pytest.raises(UsageError, match=r"more than 10 fields\. List those"):
                seen.survey(spec, folder, {}, items, ["a.json"])


def test_what_is_known_of_many_samples_has_a_limit_and_a_few_fields_are_always_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "_FEW_FIELDS", 2)
    monkeypatch.setattr(seen, "_BYTES", 12 * 50 * 3)
    for samples, most in ((50, 3), (90, 2)):
        keys = ["a.json", *(f"k{n}" for n in range(1, samples))]
        for count in (most, most + 1):
            folder = tmp_path / f"{samples}-{count}"
            folder.mkdir()
            (folder / "a.json").write_text(json.dumps({f"v{n}": n for n in range(count)}))
            spec, items = work(folder)
            if count == most:
                assert len(seen.survey(spec, folder, {}, items, keys)) == most
            else:
                with pytest.raises(UsageError, match=f"{samples} samples have more than {most} fields"):
                    seen.survey(spec, folder, {}, items, keys)
