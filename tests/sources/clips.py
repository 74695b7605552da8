"""Small LeRobot 3 datasets with real videos, written with PyAV and PyArrow, and damage to them."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FPS = 10
ROWS = 40
SIZE = 96
# Codecs that take most of a test's time at their usual settings; the frames are reordered as before
FAST = {"libx264": {"preset": "veryfast"}, "libsvtav1": {"preset": "12"}}
Draw = Callable[[int, int, int], np.ndarray]


def scene(camera: int, episode: int, row: int) -> np.ndarray:
    """A texture of each camera and episode, before which a square moves with the row."""
    grid = np.indices((SIZE, SIZE)).sum(axis=0)
    texture = 90 + 60 * np.sin(grid / (4 + camera) + 1.7 * episode)
    left = int(8 + 60 * row / ROWS)
    texture[30 + 10 * camera : 60 + 10 * camera, left : left + 20] = 240
    return np.repeat(texture[:, :, None], 3, axis=2).astype(np.uint8)


def motion(episode: int, row: int) -> list[float]:
    """The state of a robot that moves all the time."""
    return [row / ROWS + 0.01 * episode, np.sin(row / 6), np.cos(row / 9), 0.1 * episode]


def write(
    folder: Path,
    draw: Draw = scene,
    *,
    episodes: int = 6,
    cameras: Sequence[str] = ("top", "wrist"),
    state: Callable[[int, int], list[float]] = motion,
    codec: str = "libx264",
    gop: int = 2,
) -> list[Path]:
    """Write a dataset, and return the paths of its videos."""
    total = episodes * ROWS
    names = [f"observation.images.{camera}" for camera in cameras]
    videos = []
    for number, name in enumerate(names):
        path = folder / f"videos/{name}/chunk-000/file-000.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures = (draw(number, e, r) for e in range(episodes) for r in range(ROWS))
        encode(path, pictures, codec=codec, gop=gop)
        videos.append(path)
    _write_rows(folder, episodes, state)
    _write_meta(folder, episodes, names)
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_episodes": episodes,
        "total_frames": total,
        "total_tasks": 1,
        "chunks_size": 1000,
        "splits": {"train": f"0:{episodes}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            **{n: {"dtype": "float32", "shape": [4]} for n in ("action", "observation.state")},
            "timestamp": {"dtype": "float32", "shape": [1]},
            **{
                n: {"dtype": "int64", "shape": [1]}
                for n in ("frame_index", "episode_index", "index", "task_index")
            },
            **{n: {"dtype": "video", "shape": [SIZE, SIZE, 3]} for n in names},
        },
    }
    (folder / "meta/info.json").write_text(json.dumps(info))
    return videos


@contextmanager
def same_scheduling() -> Iterator[None]:
    """Undo what SVT-AV1 does where root calls it: this thread, and all that it starts, go before all others."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, priority)


def encode(path: Path, pictures: Iterator[np.ndarray], *, codec: str, gop: int) -> None:
    import av

    with same_scheduling(), av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=FPS)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, FPS)
        stream.gop_size = gop
        stream.options = FAST.get(codec, {})
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = number
            frame.time_base = Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _write_rows(folder: Path, episodes: int, state: Callable[[int, int], list[float]]) -> None:
    rows = [(e, r) for e in range(episodes) for r in range(ROWS)]
    vectors = [[float(v) for v in state(e, r)] for e, r in rows]
    vector = pa.list_(pa.float32(), 4)
    table = pa.table(
        {
            "action": pa.array(vectors, vector),
            "observation.state": pa.array(vectors, vector),
            "timestamp": pa.array([r / FPS for _, r in rows], pa.float32()),
            "frame_index": pa.array([r for _, r in rows], pa.int64()),
            "episode_index": pa.array([e for e, _ in rows], pa.int64()),
            "index": pa.array(range(len(rows)), pa.int64()),
            "task_index": pa.array([0] * len(rows), pa.int64()),
        }
    )
    (folder / "data/chunk-000").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "data/chunk-000/file-000.parquet")


def _write_meta(folder: Path, episodes: int, names: Sequence[str]) -> None:
    numbers = list(range(episodes))
    columns: dict[str, Any] = {
        "episode_index": numbers,
        "length": [ROWS] * episodes,
        "dataset_from_index": [ROWS * e for e in numbers],
        "dataset_to_index": [ROWS * (e + 1) for e in numbers],
        "data/chunk_index": [0] * episodes,
        "data/file_index": [0] * episodes,
    }
    for name in names:
        columns |= {
            f"videos/{name}/chunk_index": [0] * episodes,
            f"videos/{name}/file_index": [0] * episodes,
            f"videos/{name}/from_timestamp": [ROWS * e / FPS for e in numbers],
            f"videos/{name}/to_timestamp": [ROWS * (e + 1) / FPS for e in numbers],
        }
    (folder / "meta/episodes/chunk-000").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "meta/episodes/chunk-000/file-000.parquet")
    tasks = pa.table({"task_index": [0], "task": ["lift the cube"]})
    pq.write_table(tasks, folder / "meta/tasks.parquet")


# ------------------------------------------------------------------------------------------- damage


def boxes(data: bytes, start: int = 0, stop: int | None = None) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start and stop of the boxes in a range of an MP4 file's bytes."""
    stop = len(data) if stop is None else stop
    while start + 8 <= stop:
        size = struct.unpack(">I", data[start : start + 4])[0]
        yield data[start + 4 : start + 8], start, start + size
        start += size


def replace_box(data: bytes, path: Sequence[bytes], new: bytes, skip: int = 8) -> bytes:
    """Return a file whose box at `path` is replaced; `b""` at the end of the path appends one."""
    if path == (b"",):
        return data + new
    for kind, start, stop in boxes(data, 0):
        if kind != path[0]:
            continue
        if len(path) == 1:
            return data[:start] + new + data[stop:]
        head = {b"stsd": 16, b"avc1": 86}.get(kind, 8)
        body = data[start + head : stop]
        inner = replace_box(body, path[1:], new)
        size = struct.pack(">I", head + len(inner))
        return data[:start] + size + data[start + 4 : start + head] + inner + data[stop:]
    raise AssertionError(path)


class _Bits:
    def __init__(self) -> None:
        self.text = ""

    def put(self, value: int, width: int) -> None:
        self.text += format(value, f"0{width}b")

    def golomb(self, value: int) -> None:
        code = format(value + 1, "b")
        self.text += "0" * (len(code) - 1) + code

    def data(self) -> bytes:
        text = self.text + "1"
        text += "0" * (-len(text) % 8)
        return int(text, 2).to_bytes(len(text) // 8, "big")


def huge_h264_config(side: int) -> bytes:
    """An avcC box whose sequence parameter set (ITU-T H.264, 7.3.2.1.1) states this many pixels."""
    bits = _Bits()
    for value in (66, 0, 51):
        bits.put(value, 8)
    for value in (0, 0, 2, 1):  # id, frame numbers, order count, reference frames
        bits.golomb(value)
    bits.put(0, 1)
    bits.golomb(side // 16 - 1)
    bits.golomb(side // 16 - 1)
    for value in (1, 1, 0, 0):  # frames only, direct inference, no cropping, no VUI
        bits.put(value, 1)
    sps = b"\x67" + bits.data()
    bits = _Bits()
    bits.golomb(0)
    bits.golomb(0)
    bits.put(0, 2)
    for value in (0, 0, 0):
        bits.golomb(value)
    bits.put(0, 3)
    for value in (0, 0, 0):
        bits.golomb(value)
    bits.put(0, 3)
    pps = b"\x68" + bits.data()
    body = bytes([1, 66, 0, 51, 0xFF, 0xE1]) + struct.pack(">H", len(sps)) + sps
    body += b"\x01" + struct.pack(">H", len(pps)) + pps
    return struct.pack(">I", 8 + len(body)) + b"avcC" + body


def endless_edits(count: int) -> bytes:
    """An edts box that plays the whole video `count` times."""
    entry = struct.pack(">IiI", 24_000, 0, 0x10000)
    body = b"\0\0\0\0" + struct.pack(">I", count) + entry * count
    elst = struct.pack(">I", 8 + len(body)) + b"elst" + body
    return struct.pack(">I", 8 + len(elst)) + b"edts" + elst
