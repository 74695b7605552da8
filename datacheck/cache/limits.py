"""How much one document of a cache may be: checked before memory is taken, as anybody may have written it."""

from __future__ import annotations

from datacheck.cache import layout

DOCUMENT_BYTES = 4 << 20  # zarr.json, inputs.json, commit.json
SOURCES = 2_500_000  # files that a cache is made of
_OF_SOURCES = {layout.SOURCES, layout.FINDINGS, layout.BUILD}
_BYTES = {layout.MANIFEST: 64 << 20}  # 700,000 files
VALUES = 8_000_000  # of one JSON document: an empty object takes 3 bytes in the file and 72 in memory
LEVELS = 254  # of a value of a JSON field: what orjson writes
SAMPLES = 1 << 32
SHARDS = 100_000  # that a cache has beside those that are files of it
CHUNK_BYTES = 4 << 30  # one inner chunk, decoded: of one row
ROWS_BYTES = 1 << 20  # an inner chunk of several rows, decoded for any of them: 16 times what a build writes
SAMPLE_BYTES = 4 << 30  # the fixed fields of one sample, and its rows of one other field
TEXT_BYTES = 512 << 20  # one text or JSON value: as an object of Python it takes up to seven times as much
WINDOW_BYTES = 1 << 30  # one window as the cache cuts them by default
WINDOW_STEPS = 1 << 20  # the same, of one field
WINDOWS_BYTES = 4 << 30  # such windows of one batch
ABSENT_BYTES = 256 << 20  # chunks of a field that are not stored, as other writers leave out what is all fill value
ABSENT_TABLE_BYTES = 16 << 20  # the same of a table, which is read as a whole


def most_bytes(path: str) -> int:
    """Return how many bytes a JSON document of a cache may have."""
    return 512 << 20 if path in _OF_SOURCES else _BYTES.get(path, DOCUMENT_BYTES)


def most_values(path: str) -> int:
    """Return how many values a JSON document of a cache may have."""
    return 2 * VALUES if path in _OF_SOURCES else VALUES


def check_chunk(grid: layout.Grid) -> None:
    """Raise `ValueError` where an inner chunk has more bytes than may be decoded."""
    most, rows = (CHUNK_BYTES, "one row") if grid.chunk == 1 else (ROWS_BYTES, f"{grid.chunk:,} rows")
    if grid.chunk_bytes > most:
        msg = f"inner chunks of {grid.chunk_bytes:,} bytes; at most {most:,} are read of one that holds {rows}"
        raise ValueError(msg)
