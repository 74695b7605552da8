"""Parquet files."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from corpus.put import put


def written(columns: dict, **options) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


def good() -> None:
    steps = np.arange(12, dtype="f4").reshape(6, 2) / 4
    fixed = pa.FixedSizeListArray.from_arrays(steps.ravel(), 2)
    put(
        "parquet/y_types.parquet",
        written(
            {
                "observation.state": steps.tolist(),
                "action": fixed,
                "done": [False] * 5 + [True],
                "half": steps[:, 0].astype("f2"),
                "index": np.arange(6, dtype="u1"),
                "task": ["a cup", "caf\u00e9", "", "x", "y", "z"],
                "ragged": [[1], [], [2, 3], [], [], [4]],
                "words": [["a"], [], ["b", "c"], [], [], []],
                "pose": [np.eye(2).tolist()] * 6,
                "time": pa.array([0, 1, 2, 3, 4, 5], pa.timestamp("ms")),
                "day": pa.array([0, 1, 2, 3, 4, 5], pa.date32()),
                "label": pa.array(["up", "down"] * 3).dictionary_encode(),
                "picture": [b"\x89PNG"] * 6,
                "record": [{"x": 1}] * 6,
            }
        ),
    )
    put(
        "parquet/y_groups.parquet",
        written({"x": np.arange(10), "v": steps[:5].tolist() * 2}, row_group_size=3),
    )
    packed = {"x": np.arange(300) // 7, "v": np.ones((300, 3)).tolist()}
    put(
        "parquet/y_zstd.parquet",
        written(packed, compression="zstd", write_page_checksum=True, version="2.6"),
    )
    put(
        "parquet/y_no_rows.parquet",
        written({"x": pa.array([], "f4"), "v": pa.array([], pa.list_(pa.float32()))}),
    )
    put(
        "parquet/y_one_each.parquet",
        written({"v": [[1.5], [2.5]], "none": pa.array([[], []], pa.list_(pa.int32()))}),
    )


def bad() -> None:
    whole = written(
        {"x": np.arange(100), "v": np.ones((100, 3)).tolist()},
        write_page_checksum=True,
        compression="none",
        store_schema=False,
    )
    put(
        "parquet/y_null.parquet",
        written({"x": [1.5, None], "t": ["a", None], "v": [[1.5], [None]]}),
    )
    put("parquet/n_null.parquet", written({"x": [1, None]}))
    put("parquet/n_null_inside.parquet", written({"x": [[1], [None]]}))
    put("parquet/n_null_list.parquet", written({"x": [[1.5], None]}))
    put("parquet/n_ragged_nan.parquet", written({"x": [[1.5], [2.5, float("nan")]]}))
    put("parquet/n_truncated.parquet", whole[: len(whole) // 2])
    put("parquet/n_text.parquet", b"not a file of this kind\n")
    put(
        "parquet/n_lfs.parquet",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n",
    )
    put("parquet/n_encrypted.parquet", b"PARE" + whole[4:-4] + b"PARE")
    put("parquet/n_footer.parquet", whole[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1")
    put("parquet/n_footer_zero.parquet", whole[:-8] + bytes(4) + b"PAR1")
    put(
        "parquet/n_footer_junk.parquet",
        b"PAR1" + b"\xff" * 64 + (64).to_bytes(4, "little") + b"PAR1",
    )
    flipped = bytearray(whole)
    flipped[whole.index(np.arange(50, 60).tobytes())] ^= 1
    put("parquet/n_page.parquet", bytes(flipped))
    for i in range(8):
        some = bytearray(whole)
        some[len(whole) - 40 * (i + 1)] ^= 0x81
        put(f"parquet/i_flip{i}.parquet", bytes(some))
    stream = io.BytesIO()
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(twice, stream)
    put("parquet/n_twice.parquet", stream.getvalue())
