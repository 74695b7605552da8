"""Compares how fast a deep scan decodes the pictures of a LeRobot dataset with PyAV alone.

Both decode the same pictures of the same videos with one thread: PyAV alone seeks to the key frame
before the time of each picture and decodes up to it. The scan also scales the pictures down,
measures them and reads the headers. Prints frames per second and the ratio; wanted is 0.7 or more.

    python scripts/bench/video_decode.py [DATASET] [--rounds 5]

Without a dataset, one is written: 10 episodes of 300 rows of 640 x 480 pixels, H.264, a key frame
at every second picture as LeRobot writes it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from datacheck.sources.lerobot_clips import TAIL, list_clips, read_clips

FPS, EPISODES, ROWS, WIDTH, HEIGHT, GOP = 30, 10, 300, 640, 480, 2


def write_video(path: Path) -> None:
    """Write a texture that moves, with noise."""
    rng = np.random.default_rng(0)
    texture = np.kron(rng.integers(0, 255, (60, 160, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    noise = rng.integers(0, 8, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = WIDTH, HEIGHT, "yuv420p", GOP
        for number in range(EPISODES * ROWS):
            left = number % WIDTH
            picture = texture[:, left : left + WIDTH] // 2 + np.roll(noise, number, axis=1)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def written(folder: Path) -> list[dict[str, Any]]:
    """Return the files of a dataset of one video, as `list_clips` does."""
    write_video(folder / "video.mp4")
    clips = [[f"e:{e}", ROWS, e * ROWS / FPS, (e + 1) * ROWS / FPS] for e in range(EPISODES)]
    return [{"path": "video.mp4", "camera": "top", "fps": FPS, "depth": False, "clips": clips}]


def listed(folder: Path) -> list[dict[str, Any]]:
    """Return the files of a dataset."""
    task = {"root": str(folder), "roots": {}, "items": [{"path": "meta/info.json"}]}
    return [file for record in list_clips(task, lambda item: None) for file in record["files"]]


def by_scan(folder: Path, files: Sequence[Any]) -> list[list[Any]]:
    """Return the clips of each file, as the child of a scan reads them."""
    task = {"root": str(folder), "roots": {}, "items": files}
    return [record["clips"] for record in read_clips(task, lambda item: None)]


def times(file: dict[str, Any], clips: list[Any]) -> list[float]:
    """Return the times of the pictures that the scan decoded of a file."""
    wanted = []
    for place, ((_, rows, start, _), clip) in enumerate(zip(file["clips"], clips, strict=True)):
        tail = range(max(0, rows - TAIL), rows) if place + 1 < len(clips) else ()
        wanted += [start + row / file["fps"] for row in sorted({*clip[3], *tail})]
    return wanted


def by_pyav(path: Path, wanted: Sequence[float]) -> int:
    """Decode the pictures at these times, and return how many were found."""
    found = 0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        last = -1.0
        frames = iter(())
        for at in wanted:
            # Neighbouring pictures are decoded one after the other.
            if not 0 < at - last < 1.5 / float(stream.average_rate):
                container.seek(int(at / stream.time_base), stream=stream)
                frames = container.decode(stream)
            for frame in frames:
                if frame.time >= at - 1e-3:
                    found += 1
                    break
            last = at
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dataset", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.dataset or Path(temporary)
        files = listed(folder) if options.dataset else written(folder)
        clips = by_scan(folder, files)
        wanted = [times(file, of) for file, of in zip(files, clips, strict=True)]
        count = sum(map(len, wanted))
        print(f"{count:,} pictures of {sum(len(f['clips']) for f in files):,} clips")
        ratios = []
        for _ in range(options.rounds):
            begin = time.process_time()
            found = sum(by_pyav(folder / f["path"], w) for f, w in zip(files, wanted, strict=True))
            alone = time.process_time() - begin
            assert found == count, (found, count)
            begin = time.process_time()
            by_scan(folder, files)
            scanned = time.process_time() - begin
            ratios.append(alone / scanned)
            print(f"PyAV {count / alone:,.0f}/s, scan {count / scanned:,.0f}/s: {ratios[-1]:.2f}")
        print(f"ratio {statistics.median(ratios):.2f} (wanted: 0.7 or more)")


if __name__ == "__main__":
    main()
