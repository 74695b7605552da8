"""How much one document of a cache may be: checked before memory is taken, as anybody may have written it."""

from __future__ import annotations

from datacheck.cache import layout

DOCUMENT_BYTES = 4 << 20  # zarr.json, inputs.json, commit.json
SOURCES = 2_500_000  # files that a cache is made of
_OF_SOURCES = {layout.SOURCES, layout.FINDINGS, layout.BUILD}
_BYTES = {layout.MANIFEST: 64 << 20}  # 700,000 files
VALUES = 8_000_000  # of one JSON document: an empty object takes 3 bytes in the file and 72 in memory
SAMPLES = 1 << 32
CHUNK_BYTES = 4 << 30  # one inner chunk, decoded
SAMPLE_BYTES = 4 << 30  # the fixed fields of one sample, and its rows of one other field
WINDOW_BYTES = 1 << 30  # one window as the cache cuts them by default
ABSENT_BYTES = 256 << 20  # chunks of an array that are not stored, as other writers leave out what is all fill value


def most_bytes(path: str) -> int:
    """Return how many bytes a JSON document of a cache may have."""
    return 512 << 20 if path in _OF_SOURCES else _BYTES.get(path, DOCUMENT_BYTES)


def most_values(path: str) -> int:
    """Return how many values a JSON document of a cache may have."""
    return 2 * VALUES if path in _OF_SOURCES else VALUES


def check_chunk(size: int) -> None:
    """Raise `ValueError` where an inner chunk has more bytes than may be decoded."""
    if size > CHUNK_BYTES:
        msg = f"inner chunks of {size:,} bytes; at most {CHUNK_BYTES:,} are read"
        raise ValueError(msg)
