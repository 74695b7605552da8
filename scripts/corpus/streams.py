"""Arrow IPC and TFRecord files: good ones, and ones with wrong lengths, checksums and buffers."""

from __future__ import annotations

import io
import json
import struct

import google_crc32c
import numpy as np
import pyarrow as pa
from corpus.put import put
from pyarrow import feather, ipc

STEPS = np.arange(12, dtype="f4").reshape(6, 2) / 4


def table() -> pa.Table:
    return pa.table(
        {
            "state": STEPS.tolist(),
            "action": pa.FixedSizeListArray.from_arrays(STEPS.ravel(), 2),
            "done": [False] * 5 + [True],
            "half": STEPS[:, 0].astype("f2"),
            "task": ["a cup", "caf\u00e9", "", "x", "y", "z"],
            "ragged": [[1], [], [2, 3], [], [], [4]],
            "time": pa.array(range(6), pa.timestamp("ms")),
            "label": pa.array(["up", "down"] * 3).dictionary_encode(),
            "picture": [b"\x89PNG"] * 6,
        }
    )


def written(data: pa.Table, open_with=ipc.new_file, rows: int = 4, **options: object) -> bytes:
    stream = io.BytesIO()
    with open_with(stream, data.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(data, max_chunksize=rows)
    return stream.getvalue()


def arrow() -> None:
    whole, stream = written(table()), written(table(), ipc.new_stream)
    put("arrow/y_file.arrow", whole)
    put("arrow/y_stream.arrow", stream)
    put("arrow/y_lz4.arrow", written(table(), compression="lz4"))
    packed = io.BytesIO()
    feather.write_feather(table(), packed, compression="zstd")
    put("arrow/y_zstd.feather", packed.getvalue())
    put("arrow/y_no_rows.feather", written(table().slice(0, 0)))
    put("arrow/n_text.arrow", b"not a file of this kind\n")
    put("arrow/n_cut.arrow", whole[: len(whole) // 2])
    put("arrow/n_stream_cut.arrow", stream[: len(stream) * 2 // 3])
    put("arrow/n_first.feather", b"FEA1" + bytes(60) + b"FEA1")
    put("arrow/y_null.arrow", written(pa.table({"x": [1.5, None], "t": ["a", None]})))
    put("arrow/n_null.arrow", written(pa.table({"x": [1, None]})))
    numbers = written(pa.table({"x": np.arange(2000.0)}), rows=2000, compression="lz4")
    plain = struct.pack("<q", 16000)
    put("arrow/n_bomb.arrow", numbers.replace(plain, struct.pack("<q", 1 << 50), 1))
    texts = written(pa.table({"x": ["abcd", "efgh", "ijkl"]}))
    put(
        "arrow/n_offsets.arrow",
        texts.replace(struct.pack("<3i", 4, 8, 12), struct.pack("<3i", 4, 1 << 30, 12)),
    )
    put("arrow/n_utf8.arrow", texts.replace(b"efgh", b"ef\xff\xfe"))
    put(
        "arrow/n_twice.arrow",
        written(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])),
    )
    for i in range(8):
        some = bytearray(whole)
        some[200 + 150 * i] ^= 0x81
        put(f"arrow/i_flip{i}.arrow", bytes(some))


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features: object) -> bytes:
    """Return a tf.train.Example: lists of floats, of whole numbers, of bytes."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, list):
            inner = field(1, b"".join(field(1, one) for one in value))
        elif value.dtype.kind == "f":
            inner = field(2, field(1, value.astype("<f4").tobytes()))
        else:
            inner = field(3, field(1, b"".join(map(varint, value.ravel().tolist()))))
        entries += field(1, field(1, name.encode()) + field(2, inner))
    return field(1, entries)


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    return size + masked(size) + data + masked(data)


def tfrecords() -> None:
    episodes = [
        record(
            example(
                **{
                    "steps/action": STEPS[:n],
                    "steps/reward": np.zeros(n, "f4"),
                    "steps/is_last": np.arange(n) == n - 1,
                    "steps/count": np.array([0, 1, 127, 128, -1, 1 << 62][:n]),
                    "steps/language": [b"a cup"] * n,
                    "steps/image": [b"\x89PNG\xff"] * n,
                    "metadata/path": ["caf\u00e9".encode()],
                }
            )
        )
        for n in (6, 4)
    ]
    whole = b"".join(episodes)
    put("tfrecord/y_rlds.tfrecord-00000-of-00001", whole)
    put("tfrecord/y_empty_list.tfrecord", record(example(x=np.zeros(3), none=[])))
    put("tfrecord/n_cut.tfrecord", whole[:-3])
    put("tfrecord/n_head_cut.tfrecord", whole + whole[:7])
    put("tfrecord/n_text.tfrecord", b"not a file of this kind\n")
    put("tfrecord/n_length.tfrecord", struct.pack("<Q", 1 << 60) + whole[8:])
    put(
        "tfrecord/n_huge.tfrecord",
        struct.pack("<Q", 1 << 60) + masked(struct.pack("<Q", 1 << 60)) + whole[12:],
    )
    flipped = bytearray(whole)
    flipped[60] ^= 1
    put("tfrecord/n_flipped.tfrecord", bytes(flipped))
    put("tfrecord/n_frames.tfrecord", record(b"\x08\x01\x12\x03abc"))
    put(
        "tfrecord/n_varint.tfrecord",
        record(field(1, field(1, field(1, b"x") + field(2, field(3, field(1, b"\xff" * 20)))))),
    )
    put(
        "tfrecord/n_floats.tfrecord",
        record(field(1, field(1, field(1, b"x") + field(2, field(2, field(1, bytes(7))))))),
    )


def features() -> bytes:
    """Return what TensorFlow Datasets writes beside these records."""

    def tensor(*sizes: int) -> dict:
        return {
            "tensor": {
                "shape": {"dimensions": [str(n) for n in sizes]} if sizes else {},
                "dtype": "float32",
            }
        }

    steps = {"action": tensor(2), "reward": tensor(), "is_last": tensor(), "count": tensor()}
    inner = {"sequence": {"feature": {"featuresDict": {"features": steps}}}}
    return json.dumps({"featuresDict": {"features": {"steps": inner}}}).encode()
