"""MDS shards of MosaicML Streaming."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
from corpus.put import put

COLUMNS = {"caption": ("str", None), "label": ("int", 8), "points": ("ndarray", None)}
# Dtype, axes and width of a size, sizes
POINTS = bytes([34, 2 << 2, 2, 3]) + np.arange(6, dtype="<f4").tobytes()
SAMPLES = [(b"a cup", struct.pack("<q", 3), POINTS), (b"", struct.pack("<q", -1), POINTS)]


def mds(columns: dict = COLUMNS, samples: list = SAMPLES, **changed) -> bytes:
    said = {"version": 2, "format": "mds", "column_names": list(columns)}
    said |= {
        "column_encodings": [e for e, _ in columns.values()],
        "column_sizes": [s for _, s in columns.values()],
    }
    head = json.dumps(said | changed).encode()
    bodies = []
    for sample in samples:
        sizes = [
            len(part)
            for part, (_, size) in zip(sample, columns.values(), strict=True)
            if size is None
        ]
        bodies.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(sample))
    first = 8 + 4 * len(samples) + len(head)
    stops = np.cumsum([first, *map(len, bodies)]).astype("<u4")
    return struct.pack("<I", len(samples)) + stops.tobytes() + head + b"".join(bodies)


def one(encoding: str, value: bytes, size: int | None = None) -> bytes:
    return mds({"x": (encoding, size)}, [(value,)])


def good() -> None:
    for kind in ("plain/shard.00000.mds", "zstd/shard.00000.mds.zstd"):
        name = "y_streaming" + kind.partition("00000")[2]
        put(f"mds/{name}", (Path("tests/sources/mds") / kind).read_bytes())
    put("mds/y_by_hand.mds", mds())
    put("mds/y_empty.mds", mds(samples=[]))
    put("mds/y_unread.mds", mds({"x": ("str", None), "y": ("jpeg_array", None)}, [(b"a", b"b")]))


def bad() -> None:
    whole = mds()
    put("mds/n_text.mds", b"not a file of this kind\n" * 4)
    put("mds/n_short.mds", b"\1\0")
    put("mds/n_truncated.mds", whole[:-3])
    put("mds/n_count.mds", b"\xff" * 4 + whole[4:])
    put("mds/n_stops.mds", whole[:8] + struct.pack("<I", 5) + whole[12:])
    put("mds/n_version.mds", mds(version=3))
    put("mds/n_header.mds", whole.replace(b'"format"', b'"format '))
    put("mds/n_names.mds", mds(column_names=["caption", "label", "label"]))
    put("mds/n_fewer.mds", mds(column_sizes=[None]))
    put("mds/n_size.mds", mds(column_sizes=[None, 4, None]))
    put("mds/n_huge_size.mds", mds(column_sizes=[1 << 40, 8, None]))
    put("mds/n_encoding.mds", one("ndarray:object", b"1"))
    put(
        "mds/n_sizes.mds",
        whole.replace(struct.pack("<II", 5, len(POINTS)), struct.pack("<II", 4, len(POINTS))),
    )
    put("mds/n_shape.mds", one("ndarray", bytes([34, 2 << 2, 2, 4]) + POINTS[4:]))
    huge = struct.pack("<QQ", 1 << 40, 1 << 40)
    put("mds/n_huge_shape.mds", one("ndarray", bytes([34, (2 << 2) | 3]) + huge + bytes(8)))
    put("mds/n_no_shape.mds", one("ndarray", bytes([34, 63 << 2, 1])))
    put("mds/n_dtype.mds", one("ndarray", bytes([99, 1 << 2, 1, 0])))
    put("mds/n_utf8.mds", one("str", b"caf\xe9"))
    put("mds/n_json.mds", one("json", b"NaN"))
    put("mds/n_int.mds", one("str_int", b"9" * 40))
    put("mds/n_float.mds", one("str_float", b"1_0"))
    put("mds/n_png.mds", one("png", b"no picture"))
    put("mds/n_system.mds", one("pkl", b"cos\nsystem\n(S'touch hacked'\ntR."))
    put("mds/n_mapping.mds", one("pkl", pickle.dumps({"x": 1, "y": 2}, protocol=2)))
    put("mds/n_zstd.mds.zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 20)
    put("mds/n_zstd_cut.mds.zstd", pa.compress(whole, codec="zstd", asbytes=True)[:-9])
    put("mds/i_repeated.mds", whole + whole)
