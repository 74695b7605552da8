"""How much one document of a cache may be: checked before memory is taken, as anybody may have written it."""

from __future__ import annotations

from datacheck.cache import layout

DOCUMENT_BYTES = 4 << 20  # zarr.json, inputs.json, commit.json
_BYTES = {
    layout.MANIFEST: 64 << 20,  # 700,000 files
    **dict.fromkeys((layout.SOURCES, layout.FINDINGS, layout.BUILD), 256 << 20),  # 2.5 million source files
}
VALUES = 8_000_000  # of one JSON document: an empty object takes 3 bytes in the file and 72 in memory
DEPTH = 64  # levels of objects and lists
SAMPLES = 1 << 32
CHUNK_BYTES = 4 << 30  # one inner chunk, decoded
WINDOW_BYTES = 1 << 30  # one window as the cache cuts them by default


def most_bytes(path: str) -> int:
    """Return how many bytes a JSON document of a cache may have."""
    return _BYTES.get(path, DOCUMENT_BYTES)


def check_chunk(size: int) -> None:
    """Raise `ValueError` where an inner chunk has more bytes than may be decoded."""
    if size > CHUNK_BYTES:
        msg = f"inner chunks of {size:,} bytes; at most {CHUNK_BYTES:,} are read"
        raise ValueError(msg)
