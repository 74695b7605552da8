"""Samples of which most was not read are no copies of one another, however equal the rest is."""

from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.rules.similarity import content
from datacheck.schema.load import parse_schema
from datacheck.sources import open_source
from datacheck.sources.base import Item

N = 12
CAPTION = [f"a photo of the dog number {i % 3} in the park" for i in range(N)]
PICTURE = [{"bytes": bytes([i] * 50), "path": None} for i in range(N)]
NOTE = [{"day": date(2026, 1, 1 + i)} for i in range(N)]  # dates in records are not read


@pytest.mark.parametrize(
    ("columns", "copies"),
    [
        ({"caption": CAPTION}, N - 3),
        # Two were read, one was not
        ({"caption": CAPTION, "label": [i % 3 for i in range(N)], "meta": NOTE}, N - 3),
        ({"caption": CAPTION, "meta": NOTE}, 0),
        ({"caption": CAPTION, "label": [i % 3 for i in range(N)], "picture": PICTURE}, 0),
        (
            {
                "caption": CAPTION,
                "label": [i % 3 for i in range(N)],
                "sound": [bytes([i]) * 40 for i in range(N)],
            },
            0,
        ),
        (
            {
                "caption": CAPTION,
                "label": [i % 3 for i in range(N)],
                "pictures": [[one] for one in PICTURE],
            },
            0,
        ),
    ],
)
@pytest.mark.parametrize(
    "fields", ['{"*": {}}', "{caption: {role: text}, label: {optional: true}}"]
)
def test_equal_leftovers_are_no_copies(tmp_path, columns, copies, fields):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    schema = parse_schema(
        f"datacheck: 1\nname: x\nsamples: {{files: '*.parquet', each: row}}\nfields: {fields}\n"
    )
    item = Item("a.parquet", nbytes=(tmp_path / "a.parquet").stat().st_size)
    for level in (None, "numeric"):
        (block,) = open_source(schema, tmp_path, level=level).read(item)
        found = content.function(block, schema)
        known = found["content"].values[found["content"].present] if found else []
        assert len(known) - len(set(known)) == copies
