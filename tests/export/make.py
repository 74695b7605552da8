"""LeRobot datasets to export; each number is its own, and expected values follow from `rows`."""

from __future__ import annotations

import json
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FPS = 10
LENGTHS = [5, 3, 7, 4, 6]
TASKS = ["lift the cup", "café", "never done", "wipe"]
TASK_OF = [0, 1, 0, 3, 3]  # by episode
CAMERAS = ("observation.images.top", "observation.images.hand")
INTEGERS = ("frame_index", "episode_index", "index", "task_index")
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def features(*, videos=True):
    return {
        "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "observation.state": {"dtype": "float32", "shape": [3], "names": ["a", "b", "c"]},
        "matrix": {"dtype": "float64", "shape": [2, 2], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None, "note": "kept"},
        "comment": {"dtype": "string", "shape": [1], "names": None},
        "wrist": {"dtype": "image", "shape": [2, 2, 3], "names": ["height", "width", "channels"]},
        **{
            name: {"dtype": "video", "shape": [48, 64, 3], "names": None, "info": {"x": 1}}
            for name in (CAMERAS if videos else ())
        },
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        **{name: {"dtype": "int64", "shape": [1], "names": None} for name in INTEGERS},
    }


def rows(episode):
    """The columns of one episode; texts and pictures as lists."""
    length = LENGTHS[episode]
    t = np.arange(length)
    return {
        "action": np.sin(t[:, None] + [0, 7] + 3 * episode).astype(np.float32),
        "observation.state": np.sin(t[:, None] * 2 + np.arange(3) + episode).astype(np.float32),
        "matrix": np.cos(np.arange(4 * length) * 1.7 + episode).reshape(length, 2, 2),
        "next.done": t == length - 1,
        "comment": [f"{episode}/{i}" for i in t],
        "wrist": [{"bytes": f"picture {episode}/{i}".encode(), "path": None} for i in t],
        "timestamp": (t / FPS).astype(np.float32),
        "frame_index": t,
        "episode_index": np.full(length, episode),
        "index": t + sum(LENGTHS[:episode]),
        "task_index": np.full(length, TASK_OF[episode]),
    }


def table(*episodes):
    parts = [rows(episode) for episode in episodes]
    columns = {}
    for name in parts[0]:
        values = [value for part in parts for value in list(part[name])]
        kind = {
            "action": pa.list_(pa.float32(), 2),
            "observation.state": pa.list_(pa.float32()),
            "timestamp": pa.float32(),
        }.get(name)
        if name == "matrix":
            kind, values = pa.list_(pa.list_(pa.float64())), [v.tolist() for v in values]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def picture_stats(episode, number):
    """The statistics of a picture feature in an episode, of other numbers for each feature."""
    mean = 0.15 + np.arange(3).reshape(3, 1, 1) / 10 + episode / 100 + number / 50
    found = {"min": mean - 0.1, "max": mean + 0.2, "mean": mean, "std": mean / 7}
    found |= {name: mean + share / 100 for name, share in QUANTILES.items()}
    return {k: v.tolist() for k, v in found.items()} | {"count": [LENGTHS[episode] + 1]}


def info(folder, version, template, video, **changed):
    (folder / "meta").mkdir(parents=True)
    said = {
        "codebase_version": version,
        "robot_type": "arm",
        "mine": {"kept": [1, 2.5]},
        "total_episodes": len(LENGTHS),
        "total_frames": sum(LENGTHS),
        "total_tasks": len(TASKS),
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": "0:3", "val": "3:5"},
        "data_path": template,
        "video_path": video,
        "features": features(videos=video is not None),
    }
    (folder / "meta/info.json").write_text(json.dumps(said | changed))


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
V2_VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
V3_VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


def video(folder, path, text):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(text.encode() * 1000)


def v2(folder, version="v2.1", *, videos=True):
    changed = {"total_videos": 10 * videos, "total_chunks": 1}
    info(folder, version, V2, V2_VIDEO if videos else None, **changed)
    numbers = range(len(LENGTHS))
    write_lines(
        folder / "meta/episodes.jsonl",
        [
            {"episode_index": i, "tasks": [TASKS[TASK_OF[i]]], "length": LENGTHS[i]}
            for i in reversed(numbers)
        ],
    )
    write_lines(
        folder / "meta/tasks.jsonl",
        [{"task_index": i, "task": task} for i, task in enumerate(TASKS)],
    )
    pictures = [*(CAMERAS if videos else ()), "wrist"]
    if version == "v2.1":
        write_lines(
            folder / "meta/episodes_stats.jsonl",
            [
                {
                    "episode_index": i,
                    "stats": {name: picture_stats(i, n) for n, name in enumerate(pictures)},
                }
                for i in numbers
            ],
        )
    (folder / "data/chunk-000").mkdir(parents=True)
    for i in numbers:
        pq.write_table(table(i), folder / f"data/chunk-000/episode_{i:06d}.parquet")
        for camera in CAMERAS if videos else ():
            video(
                folder,
                V2_VIDEO.format(episode_chunk=0, video_key=camera, episode_index=i),
                f"{camera} {i}",
            )
    return folder


FILES = [0, 0, 0, 1, 1]  # of the rows
# By camera, the video of each episode.
VIDEOS = {CAMERAS[0]: [0, 0, 1, 1, 2], CAMERAS[1]: [0, 1, 1, 1, 1]}


def spans(camera):
    """From and to [s] of each episode in its video."""
    found = []
    for i, file in enumerate(VIDEOS[camera]):
        start = sum(LENGTHS[e] for e in range(i) if VIDEOS[camera][e] == file) / FPS
        found.append((start, start + LENGTHS[i] / FPS))
    return found


def v3(folder, *, videos=True):
    info(folder, "v3.0", V3, V3_VIDEO if videos else None, data_files_size_in_mb=50)
    stops = list(accumulate(LENGTHS))
    said = {
        "episode_index": range(len(LENGTHS)),
        "tasks": [[TASKS[number]] for number in TASK_OF],
        "length": LENGTHS,
        "data/chunk_index": [0] * 5,
        "data/file_index": FILES,
        "dataset_from_index": [0, *stops[:-1]],
        "dataset_to_index": stops,
    }
    for camera in CAMERAS if videos else ():
        said[f"videos/{camera}/chunk_index"] = [0] * 5
        said[f"videos/{camera}/file_index"] = VIDEOS[camera]
        for end, times in zip(("from", "to"), zip(*spans(camera), strict=True), strict=True):
            said[f"videos/{camera}/{end}_timestamp"] = list(times)
        for file in set(VIDEOS[camera]):
            path = V3_VIDEO.format(video_key=camera, chunk_index=0, file_index=file)
            video(folder, path, f"{camera} {file}")
    for number, name in enumerate([*(CAMERAS if videos else ()), "wrist"]):
        stats = [picture_stats(i, number) for i in range(5)]
        for key in stats[0]:
            said[f"stats/{name}/{key}"] = [found[key] for found in stats]
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    pq.write_table(
        pa.table({n: list(v) for n, v in said.items()}),
        folder / "meta/episodes/chunk-000/file-000.parquet",
    )
    pq.write_table(
        pa.table({"task_index": range(len(TASKS)), "__index_level_0__": TASKS}),
        folder / "meta/tasks.parquet",
    )
    (folder / "data/chunk-000").mkdir(parents=True)
    for file in set(FILES):
        episodes = [i for i in range(5) if FILES[i] == file]
        path = folder / f"data/chunk-000/file-{file:03d}.parquet"
        pq.write_table(table(*episodes), path, row_group_size=4)
    return folder
