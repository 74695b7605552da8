"""LeRobot datasets of a seven-jointed arm with two cameras, versions 3.0 and 2.1; and their faults.

Layout of 3.0, several episodes in each file::

    meta/{info.json, stats.json, tasks.parquet}
    meta/episodes/chunk-000/file-000.parquet    a row per episode: length, files, spans, statistics
    data/chunk-000/file-{000}.parquet           a row per step
    videos/{camera}/chunk-000/file-{000}.mp4

Layout of 2.1, files of one episode, with the slices that GR00T takes::

    meta/{info.json, episodes.jsonl, tasks.jsonl, episodes_stats.jsonl, modality.json}
    data/chunk-000/episode_{000000}.parquet
    videos/chunk-000/{camera}/episode_{000000}.mp4

The pictures of a video are PNG images, which FFmpeg reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datacheck.testing.draw import Array, curves, generator, lognormal
from datacheck.testing.fault import Fault, Planted, Site, names, truncate
from datacheck.testing.video import CODEC, mp4, png

CAMERAS = ("observation.images.top", "observation.images.wrist")
JOINTS = ("base", "shoulder", "elbow", "forearm", "wrist_pitch", "wrist_roll", "gripper")
TASKS = (
    "Put the red cube into the bowl.",
    "Stack the green block on the blue one.",
    "Hand the screwdriver over.",
    "Close the drawer.",
    "Fold the towel once.",
)
_RATE = 30
_HEIGHT, _WIDTH = 48, 64
_MOVING = 16  # pixels, of what moves in a picture
_HOME = np.array([0.0, -35.0, 60.0, 0.0, 40.0, 5.0])  # degrees
_REACH = np.array([30.0, 22.0, 25.0, 18.0, 16.0, 35.0])  # degrees
_OPEN, _CLOSED = 70.0, 18.0  # of 100
_LEAD = 2  # steps by which the arm follows its commands
_QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)
_NUMBERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")

Columns = dict[str, Array]


@dataclass(frozen=True)
class LerobotSize:
    """Size of the dataset.

    Args:
        episodes: their number.
        steps: median length of an episode; `spread` is the log-normal sigma, `low` and `high` clip
            it.
        tasks: number of tasks, at most 5.
        rows_files, video_files: episodes in each file of rows, and in each video (3.0).
    """

    episodes: int = 24
    steps: int = 110
    spread: float = 0.2
    low: int = 60
    high: int = 240
    tasks: int = 3
    rows_files: int = 14
    video_files: int = 9


REAL = LerobotSize(episodes=50, steps=450, low=150, high=1200, rows_files=50, video_files=25)


def write(folder: Path, seed: int, size: LerobotSize) -> None:
    """Write a clean dataset of version 3.0."""
    episodes = _episodes(seed, size)
    lengths = [len(episode["timestamp"]) for episode in episodes]
    tasks = TASKS[: size.tasks]
    for number, first in enumerate(range(0, len(episodes), size.rows_files)):
        path = folder / f"data/chunk-000/file-{number:03d}.parquet"
        _write_table(path, _rows(episodes[first : first + size.rows_files]))
    begins = list(accumulate(lengths, initial=0))
    spans = _spans(lengths, size.video_files)
    for camera in CAMERAS:
        for number, first in enumerate(range(0, len(episodes), size.video_files)):
            inside = lengths[first : first + size.video_files]
            _write_video(folder / _video(camera, number), (seed, camera, number), inside)
    table: dict[str, Any] = {
        "episode_index": list(range(len(episodes))),
        "tasks": [[tasks[int(episode["task_index"][0])]] for episode in episodes],
        "length": lengths,
        "data/chunk_index": [0] * len(episodes),
        "data/file_index": [i // size.rows_files for i in range(len(episodes))],
        "dataset_from_index": begins[:-1],
        "dataset_to_index": begins[1:],
    }
    for camera in CAMERAS:
        table[f"videos/{camera}/chunk_index"] = [0] * len(episodes)
        table[f"videos/{camera}/file_index"] = [i // size.video_files for i in range(len(episodes))]
        table[f"videos/{camera}/from_timestamp"] = [start for start, _ in spans]
        table[f"videos/{camera}/to_timestamp"] = [stop for _, stop in spans]
    statistics = [_statistics(seed, i, episode) for i, episode in enumerate(episodes)]
    for name, values in statistics[0].items():
        for key in values:
            table[f"stats/{name}/{key}"] = [numbers[name][key] for numbers in statistics]
    table["meta/episodes/chunk_index"] = table["meta/episodes/file_index"] = [0] * len(episodes)
    _write_table(folder / "meta/episodes/chunk-000/file-000.parquet", table)
    named = {"task_index": list(range(len(tasks))), "__index_level_0__": list(tasks)}
    _write_table(folder / "meta/tasks.parquet", named)
    whole = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    _write_json(folder / "meta/stats.json", _statistics(seed, len(episodes), whole))
    info = _info("v3.0", lengths, size) | {
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    _write_json(folder / "meta/info.json", info)


def write_v21(folder: Path, seed: int, size: LerobotSize) -> None:
    """Write a clean dataset of version 2.1, with the modalities of GR00T."""
    episodes = _episodes(seed, size)
    lengths = [len(episode["timestamp"]) for episode in episodes]
    tasks = TASKS[: size.tasks]
    named, statistics = [], []
    for number, episode in enumerate(episodes):
        _write_table(folder / f"data/chunk-000/episode_{number:06d}.parquet", _rows([episode]))
        for camera in CAMERAS:
            path = folder / f"videos/chunk-000/{camera}/episode_{number:06d}.mp4"
            _write_video(path, (seed, camera, number), [lengths[number]])
        text = tasks[int(episode["task_index"][0])]
        named.append({"episode_index": number, "tasks": [text], "length": lengths[number]})
        stats = _statistics(seed, number, episode)
        statistics.append({"episode_index": number, "stats": stats})
    _write_lines(folder / "meta/episodes.jsonl", named)
    _write_lines(folder / "meta/episodes_stats.jsonl", statistics)
    _write_lines(
        folder / "meta/tasks.jsonl", [{"task_index": i, "task": t} for i, t in enumerate(tasks)]
    )
    slices = {"arm": {"start": 0, "end": 6}, "gripper": {"start": 6, "end": 7}}
    modality = {
        "state": slices,
        "action": slices,
        "video": {name.rpartition(".")[2]: {"original_key": name} for name in CAMERAS},
        "annotation": {"human.task_description": {"original_key": "task_index"}},
    }
    _write_json(folder / "meta/modality.json", modality)
    info = _info("v2.1", lengths, size) | {
        "total_videos": len(CAMERAS) * len(episodes),
        "total_chunks": -(-len(episodes) // 1000),
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    _write_json(folder / "meta/info.json", info)


def _video(camera: str, number: int) -> str:
    return f"videos/{camera}/chunk-000/file-{number:03d}.mp4"


def _spans(lengths: Sequence[int], of_file: int) -> list[tuple[float, float]]:
    """Return start and stop [s] of each episode in its video."""
    spans = []
    for first in range(0, len(lengths), of_file):
        ends = list(accumulate(lengths[first : first + of_file], initial=0))
        spans += [(a / _RATE, b / _RATE) for a, b in pairwise(ends)]
    return spans


def _episodes(seed: int, size: LerobotSize) -> list[Columns]:
    """Return the columns of each episode; its motion does not depend on how many others there are.

    Shapes:
        action, observation.state: float32 (steps, 7): six joints [degree], gripper [0..100]
        timestamp: float32 (steps,) [s]; the numbers of rows, episodes and tasks: int64 (steps,)
    """
    episodes: list[Columns] = []
    begin = 0
    for number in range(size.episodes):
        rng = generator(seed, "lerobot", number)
        steps = lognormal(rng, size.steps, size.spread, size.low, size.high)
        path = _motion(rng, steps + _LEAD)
        tremor, noise = rng.normal(0, 0.05, (2, steps, len(JOINTS)))
        count = np.arange(steps)
        episodes.append(
            {
                "action": (path[_LEAD:] + tremor).astype(np.float32),
                "observation.state": (path[:-_LEAD] + noise).astype(np.float32),
                "timestamp": (count / _RATE).astype(np.float32),
                "frame_index": count,
                "episode_index": np.full(steps, number),
                "index": count + begin,
                "task_index": np.full(steps, number % size.tasks),
            }
        )
        begin += steps
    return episodes


def _motion(rng: np.random.Generator, steps: int) -> Array:
    """Return a path from the home pose and back, closing the gripper in between."""
    # The arm leaves and reaches the home pose within half a second.
    edge = np.minimum(np.arange(steps), np.arange(steps)[::-1]) / (_RATE / 2)
    weight = np.sin(np.pi / 2 * np.minimum(edge, 1.0)) ** 2
    home = _HOME + rng.normal(0, 1.5, len(_HOME))
    joints = home + weight[:, None] * _REACH * curves(rng, steps, len(_HOME))
    closes, opens = rng.uniform(0.3, 0.4) * steps, rng.uniform(0.75, 0.85) * steps
    time = np.arange(steps)
    # The fingers need about a third of a second.
    closed = _step(time - closes) - _step(time - opens)
    wide, narrow = _OPEN + rng.normal(0, 3), _CLOSED + rng.normal(0, 3)
    gripper = wide + (narrow - wide) * closed + 0.4 * curves(rng, steps, 1)[:, 0]
    return np.column_stack([joints, gripper])


def _step(time: Array) -> Array:
    out: Array = 1 / (1 + np.exp(-time / 2.5))
    return out


def _statistics(seed: int, number: int, columns: Columns) -> dict[str, dict[str, Any]]:
    """Return the statistics of each feature; quantiles are exact, those of pictures are drawn."""
    statistics = {name: _exact(values) for name, values in columns.items()}
    for camera in CAMERAS:
        rng = generator(seed, "lerobot", camera, "pictures", number)
        levels = np.sort(rng.uniform(0.05, 0.95, (len(_QUANTILES), 3)), axis=0)
        described = {
            "min": np.zeros(3),
            "max": np.ones(3),
            "mean": rng.uniform(0.4, 0.6, 3),
            "std": rng.uniform(0.15, 0.25, 3),
        } | {f"q{int(100 * q):02d}": row for q, row in zip(_QUANTILES, levels, strict=True)}
        statistics[camera] = {
            key: value.reshape(3, 1, 1).tolist() for key, value in described.items()
        }
        statistics[camera]["count"] = [min(100, len(columns["timestamp"]))]
    return statistics


def _exact(values: Array) -> dict[str, list[Any]]:
    wide = values.reshape(len(values), -1)
    numbers = wide.astype(np.float64)
    return {
        "min": wide.min(axis=0).tolist(),
        "max": wide.max(axis=0).tolist(),
        "mean": numbers.mean(axis=0).tolist(),
        "std": numbers.std(axis=0).tolist(),
        "count": [len(values)],
        **{f"q{int(100 * q):02d}": np.quantile(numbers, q, axis=0).tolist() for q in _QUANTILES},
    }


def _info(version: str, lengths: Sequence[int], size: LerobotSize) -> dict[str, Any]:
    vector = {"dtype": "float32", "shape": [len(JOINTS)], "names": [f"{j}.pos" for j in JOINTS]}
    camera = {
        "dtype": "video",
        "shape": [_HEIGHT, _WIDTH, 3],
        "names": ["height", "width", "channels"],
        "info": {
            "video.height": _HEIGHT,
            "video.width": _WIDTH,
            "video.codec": CODEC,
            "video.pix_fmt": "rgb24",
            "video.is_depth_map": False,
            "video.fps": _RATE,
            "video.channels": 3,
            "has_audio": False,
        },
    }
    features = {"action": vector, "observation.state": vector, **dict.fromkeys(CAMERAS, camera)}
    for name in _NUMBERS:
        dtype = "float32" if name == "timestamp" else "int64"
        features[name] = {"dtype": dtype, "shape": [1], "names": None}
    return {
        "codebase_version": version,
        "robot_type": "arm7",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": size.tasks,
        "chunks_size": 1000,
        "fps": _RATE,
        "splits": {"train": f"0:{len(lengths)}"},
        "features": features,
    }


def _rows(episodes: Sequence[Columns]) -> dict[str, Any]:
    joined = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    return {
        name: pa.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])
        if values.ndim == 2
        else pa.array(values)
        for name, values in joined.items()
    }


def _write_table(path: Path, columns: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)


def _write_video(
    path: Path, stream: tuple[int, str, int], lengths: Sequence[int], rate: int = _RATE
) -> None:
    """Write a video of episodes of these lengths: in each, something moves through another scene."""
    rng = generator(stream[0], "lerobot", *stream[1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    room = _WIDTH - _MOVING
    pictures = []
    for frames in lengths:
        blocks = rng.integers(40, 200, (_HEIGHT // 8, _WIDTH // 8, 3), dtype=np.uint8)
        scene = blocks.repeat(8, axis=0).repeat(8, axis=1)
        for step in range(frames):
            picture = scene.copy()
            left = abs(step % (2 * room) - room)  # forth and back
            picture[8 : 8 + _MOVING, left : left + _MOVING] = 250
            pictures.append(png(picture))
    path.write_bytes(mp4(pictures, rate, _HEIGHT, _WIDTH))


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=4), encoding="utf-8")


def _write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


# ------------------------------------------------------------------------------------------- faults

_INFO, _STATS = "meta/info.json", "meta/stats.json"
_EPISODES = "meta/episodes/chunk-000/file-000.parquet"

Info = dict[str, Any]


def _read_json(site: Site, name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((site.folder / name).read_text(encoding="utf-8"))
    return values


def _document(
    name: str,
    code: str,
    kind: str,
    what: str,
    document: str,
    change: Callable[[Info], None],
    *,
    batch: int = 0,
    system: str = "lerobot",
) -> Fault:
    """Return a fault of a JSON document in the meta folder."""

    def plant(site: Site) -> list[Planted]:
        values = _read_json(site, document)
        change(values)
        _write_json(site.folder / document, values)
        return [Planted((), code, what, kind=kind)]

    return Fault(name, system, code, plant, batch=batch)


def _more(name: str, count: int) -> Callable[[Info], None]:
    def change(info: Info) -> None:
        info[name] += count

    return change


def _newer_version(info: Info) -> None:
    info["codebase_version"] = "v3.9"


def _split_beyond(info: Info) -> None:
    info["splits"] = {"train": f"0:{info['total_episodes'] + 5}"}


def _name_lost(info: Info) -> None:
    info["features"]["action"]["names"].pop()


def _no_template(info: Info) -> None:
    info["video_path"] = None


def _two_sizes(info: Info) -> None:
    info["features"][CAMERAS[0]]["shape"] = [_HEIGHT, _WIDTH]


def _below_zero(stats: Info) -> None:
    stats["observation.state"]["std"][2] *= -1


def _exchanged(stats: Info) -> None:
    low, high = stats["observation.state"]["q01"], stats["observation.state"]["q99"]
    low[2], high[2] = high[2], low[2]


def _no_statistics(stats: Info) -> None:
    del stats["action"]


def _earlier_count(stats: Info) -> None:
    stats["frame_index"]["count"][0] -= 100


def _mean_of_others(stats: Info) -> None:
    action = stats["action"]
    action["mean"][1] = (action["mean"][1] + action["max"][1]) / 2


def _wrong_q99(stats: Info) -> None:
    action = stats["action"]
    action["q99"][1] = (action["q50"][1] + action["q90"][1]) / 2
    action["q90"][1] = action["q50"][1]


def _no_room(info: Info) -> None:
    info["data_files_size_in_mb"] = 0


def _of_another(statistic: str) -> Callable[[Site], list[Planted]]:
    """Return a fault that raises a statistic of the action of one episode."""

    def plant(site: Site) -> list[Planted]:
        path = site.folder / _EPISODES
        table = pq.read_table(path)
        keys = _keys(site)
        at = keys.index(site.pick(keys)[0])
        name = f"stats/action/{statistic}"
        values = table[name].to_pylist()
        values[at] = [value + 5 for value in values[at]]
        new = pa.array(values, table.schema.field(name).type)
        pq.write_table(table.set_column(table.schema.get_field_index(name), name, new), path)
        what = f"an episode's {statistic} of the action is 5 degrees too high"
        kind = {"mean": "mean", "q90": "quantiles"}[statistic]
        return [Planted((keys[at],), "DC519", what, kind=f"{kind}:action")]

    return plant


def _other_lines(site: Site) -> list[Planted]:
    """Exchange the statistics of two episodes."""
    path = site.folder / "meta/episodes_stats.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    keys = _keys(site)
    one, other = (keys.index(key) for key in site.pick(keys, 2))
    lines[one]["stats"], lines[other]["stats"] = lines[other]["stats"], lines[one]["stats"]
    _write_lines(path, lines)
    what = "the statistics of two episodes are exchanged"
    return [Planted((keys[one], keys[other]), "DC519", what, kind="range:action")]


def _beyond_width(modality: Info) -> None:
    modality["action"]["gripper"]["end"] = len(JOINTS) + 1


def _gap(site: Site) -> list[Planted]:
    """Number the episodes from a random one on one higher, in the table and in the rows."""
    path = site.folder / _EPISODES
    numbers = pq.read_table(path)["episode_index"].to_numpy()
    first = int(site.rng.integers(2, len(numbers) - 2))
    for name in (_EPISODES, *names(site, "data/*/*.parquet")):

        def raised(values: Array) -> Array:
            return values + (values >= first)

        _edit_column(site.folder / name, "episode_index", raised)
    return [Planted((), "DC114", "the episode numbers have a gap", kind="positions")]


def _no_text(site: Site) -> list[Planted]:
    path = site.folder / "meta/tasks.parquet"
    table = pq.read_table(path).to_pydict()
    table["__index_level_0__"][1] = ""
    _write_table(path, table)
    return [Planted((), "DC114", "a task has no text", kind="tasks")]


def _edit_column(path: Path, name: str, change: Callable[[Array], Array]) -> None:
    table = pq.read_table(path)
    column = table[name]
    values = np.array(column.to_numpy())
    new = pa.array(change(values).astype(values.dtype), column.type)
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, new), path)


def _key(path: str, episode: int) -> str:
    return f"{path}:{episode:012d}"


def _keys(site: Site) -> list[str]:
    """Return the key of each episode, in order."""
    found = []
    for path in names(site, "data/*/*.parquet"):
        numbers = np.unique(pq.read_table(site.folder / path)["episode_index"].to_numpy())
        found += [_key(path, int(number)) for number in numbers]
    return found


def _column(
    name: str,
    code: str,
    kind: str,
    what: str,
    column: str,
    change: Callable[[Array, np.random.Generator], Array],
    *,
    batch: int = 2,
    system: str = "lerobot",
    every: bool = False,
) -> Fault:
    """Return a fault of one column of an episode's rows, or of all episodes."""

    def plant(site: Site) -> list[Planted]:
        keys = _keys(site)
        chosen = keys if every else site.pick(keys)
        for key in chosen:
            path, _, number = key.rpartition(":")
            mine = pq.read_table(site.folder / path)["episode_index"].to_numpy() == int(number)

            def changed(values: Array, mine: Array = mine) -> Array:
                values[mine] = change(values[mine], site.rng)
                return values

            _edit_column(site.folder / path, column, changed)
        return [Planted(tuple(chosen), code, what, kind=kind)]

    return Fault(name, system, code, plant, batch=batch)


def _repeated(values: Array, rng: np.random.Generator) -> Array:
    at = int(rng.integers(5, len(values) - 5))
    values[at] = values[at - 1]
    return values


def _shifted(values: Array, rng: np.random.Generator) -> Array:
    return values + 100


def _from_one(values: Array, rng: np.random.Generator) -> Array:
    return values + 1


def _late_stamp(values: Array, rng: np.random.Generator) -> Array:
    values[int(rng.integers(5, len(values) - 5))] += 0.006
    return values


def _from_three_seconds(values: Array, rng: np.random.Generator) -> Array:
    return values + 3


def _slow_clock(values: Array, rng: np.random.Generator) -> Array:
    return values * 1.01


@dataclass(frozen=True)
class _Film:
    """A video of several episodes.

    Args:
        camera: name of its feature; `path`: below the dataset's folder.
        rows: row numbers of its episodes in their table; `keys`: of these episodes.
        frames: number of frames.
    """

    camera: str
    path: str
    rows: Array
    keys: tuple[str, ...]
    frames: int


def _films(site: Site) -> list[_Film]:
    table, keys = pq.read_table(site.folder / _EPISODES), _keys(site)
    lengths = table["length"].to_numpy()
    films = []
    for camera in CAMERAS:
        files = table[f"videos/{camera}/file_index"].to_numpy()
        for number in np.unique(files):
            rows = np.flatnonzero(files == number)
            mine = tuple(keys[int(row)] for row in rows)
            path = _video(camera, int(number))
            films.append(_Film(camera, path, rows, mine, int(lengths[rows].sum())))
    return films


def _filmed(
    name: str, kind: str, what: str, change: Callable[[Site, _Film], Sequence[str]], batch: int = 2
) -> Fault:
    """Return a fault of one video and the episodes in it; `change` returns those to be named."""

    def plant(site: Site) -> list[Planted]:
        films = {film.path: film for film in _films(site)}
        film = films[site.pick(list(films))[0]]
        keys = change(site, film)
        others = tuple(key for key in film.keys if key not in keys)
        return [Planted(tuple(keys), "DC515", what, others, f"{kind}:{film.camera}")]

    return Fault(name, "lerobot", "DC515", plant, batch=batch)


def _later(*ends: str) -> Callable[[Site, _Film], Sequence[str]]:
    def change(site: Site, film: _Film) -> Sequence[str]:
        at = int(site.rng.integers(len(film.rows)))

        def later(values: Array) -> Array:
            values[film.rows[at]] += 0.5
            return values

        for end in ends:
            name = f"videos/{film.camera}/{end}_timestamp"
            _edit_column(site.folder / _EPISODES, name, later)
        return [film.keys[at]]

    return change


def _drift(site: Site, film: _Film) -> Sequence[str]:
    """Let each episode of a video seem 4 ms longer than it is, as sums of rounded durations do."""
    for end, first in (("from", 0), ("to", 1)):

        def later(values: Array, first: int = first) -> Array:
            values[film.rows] += 0.004 * (first + np.arange(len(film.rows)))
            return values

        _edit_column(site.folder / _EPISODES, f"videos/{film.camera}/{end}_timestamp", later)
    # The last rows of the last episode may lie more than half a step behind the end.
    return film.keys[1:-1]


def _cut(site: Site, film: _Film) -> Sequence[str]:
    truncate(site.folder / film.path)
    return film.keys


def _rewritten(site: Site, path: str, frames: int, rate: int = _RATE) -> None:
    (site.folder / path).unlink()
    _write_video(site.folder / path, (int(site.rng.integers(1 << 30)), "again", 0), [frames], rate)


def _frames_lost(site: Site, film: _Film) -> Sequence[str]:
    _rewritten(site, film.path, film.frames - 8)
    return film.keys[-1:]


def _other_rate(site: Site, film: _Film) -> Sequence[str]:
    _rewritten(site, film.path, film.frames, 25)
    return film.keys


def _declared(
    name: str, kind: str, what: str, camera: str, change: Callable[[Info], None]
) -> Fault:
    """Return a fault of what info.json declares of a camera: a video's first episode is named."""

    def plant(site: Site) -> list[Planted]:
        info = _read_json(site, _INFO)
        change(info["features"][camera])
        _write_json(site.folder / _INFO, info)
        keys = tuple(film.keys[0] for film in _films(site) if film.camera == camera)
        return [Planted(keys, "DC515", what, kind=f"{kind}:{camera}")]

    return Fault(name, "lerobot", "DC515", plant, batch=3)


def _larger(feature: Info) -> None:
    feature["shape"] = [4 * _HEIGHT, 4 * _WIDTH, 3]


def _h264(feature: Info) -> None:
    feature["info"]["video.codec"] = "h264"


def _single(name: str, kind: str, what: str, lost: int, rate: int) -> Fault:
    """Return a fault of the video of one episode of version 2.1."""

    def plant(site: Site) -> list[Planted]:
        key = site.pick(_keys(site))[0]
        path = Path(key.rpartition(":")[0])
        frames = pq.read_metadata(site.folder / path).num_rows
        _rewritten(site, f"videos/chunk-000/{CAMERAS[1]}/{path.stem}.mp4", frames - lost, rate)
        return [Planted((key,), "DC515", what, kind=f"{kind}:{CAMERAS[1]}")]

    return Fault(name, "lerobot_v21", "DC515", plant)


FAULTS = (
    _document(
        "total-episodes",
        "DC114",
        "totals",
        "total_episodes is 2 too many",
        _INFO,
        _more("total_episodes", 2),
    ),
    _document(
        "total-tasks",
        "DC114",
        "counts",
        "total_tasks is 1 too many",
        _INFO,
        _more("total_tasks", 1),
    ),
    _document(
        "codebase-version", "DC114", "version", "codebase_version is v3.9", _INFO, _newer_version
    ),
    _document(
        "split-beyond", "DC114", "splits", "a split has 5 episodes too many", _INFO, _split_beyond
    ),
    _document("name-lost", "DC114", "names", "6 names for 7 actions", _INFO, _name_lost),
    _document(
        "two-sizes", "DC114", "features", "a camera's shape has two sizes", _INFO, _two_sizes
    ),
    _document(
        "std-below-zero", "DC114", "statistics", "a standard deviation below 0", _STATS, _below_zero
    ),
    _document(
        "no-statistics", "DC114", "missing", "no statistics of the action", _STATS, _no_statistics
    ),
    _document(
        "earlier-count",
        "DC114",
        "rows",
        "statistics count 100 rows too few",
        _STATS,
        _earlier_count,
    ),
    Fault("task-without-text", "lerobot", "DC114", _no_text),
    _document(
        "total-frames",
        "DC114",
        "totals",
        "total_frames is 30 too many",
        _INFO,
        _more("total_frames", 30),
        batch=1,
    ),
    Fault("gap-in-episode-index", "lerobot", "DC114", _gap, batch=1),
    _document(
        "no-video-path", "DC114", "videos", "video_path is null", _INFO, _no_template, batch=1
    ),
    _document(
        "quantiles-exchanged",
        "DC114",
        "statistics",
        "q01 lies above q99",
        _STATS,
        _exchanged,
        batch=1,
    ),
    _document(
        "mean-of-others",
        "DC228",
        "",
        "the mean of an action lies halfway to its largest value",
        _STATS,
        _mean_of_others,
        batch=1,
    ),
    _document(
        "no-room-for-files", "DC114", "keys", "data_files_size_in_mb is 0", _INFO, _no_room, batch=4
    ),
    _document(
        "wrong-q99",
        "DC519",
        "whole:action",
        "q99 of an action lies halfway to its median",
        _STATS,
        _wrong_q99,
        batch=4,
    ),
    Fault("episode-mean", "lerobot", "DC519", _of_another("mean"), batch=4),
    Fault("episode-q90", "lerobot", "DC519", _of_another("q90"), batch=5),
    Fault("exchanged-statistics", "lerobot_v21", "DC519", _other_lines, batch=1),
    _filmed("late-start", "span", "from_timestamp is 0.5 s too late", _later("from")),
    _filmed("late-span", "gap", "a span is 0.5 s too late", _later("from", "to"), batch=3),
    _filmed("drifting-spans", "time", "spans drift by 4 ms with each episode", _drift),
    _filmed("truncated-video", "unreadable", "half of a video is missing", _cut),
    _filmed("frames-lost", "end", "a video ends 8 frames early", _frames_lost),
    _filmed("other-rate", "time", "a video of 25 frames a second among rows at 30", _other_rate),
    _column("index-repeated", "DC514", "order", "an index stands there twice", "index", _repeated),
    _column(
        "index-shifted", "DC514", "shift", "an episode's index is 100 too high", "index", _shifted
    ),
    _column(
        "frame-index-from-1",
        "DC514",
        "frames",
        "frame_index counts from 1",
        "frame_index",
        _from_one,
    ),
    _column("late-stamp", "DC516", "step", "a time stamp is 6 ms late", "timestamp", _late_stamp),
    _column(
        "from-three-seconds",
        "DC516",
        "start-frames",
        "an episode begins at 3 s",
        "timestamp",
        _from_three_seconds,
    ),
    _column(
        "slow-clock",
        "DC516",
        "step",
        "all time stamps are 1 % too large",
        "timestamp",
        _slow_clock,
        batch=3,
        every=True,
    ),
    _declared(
        "other-shape", "size", "a camera's shape is four times its video", CAMERAS[0], _larger
    ),
    _declared("other-codec", "info", "info.json states h264 for PNG", CAMERAS[1], _h264),
    _document(
        "total-videos",
        "DC114",
        "counts",
        "total_videos is 2 too many",
        _INFO,
        _more("total_videos", 2),
        system="lerobot_v21",
    ),
    _document(
        "modality-beyond-width",
        "DC114",
        "modality",
        "modality.json takes 8 of 7 actions",
        "meta/modality.json",
        _beyond_width,
        system="lerobot_v21",
    ),
    _single("frame-lost", "frames", "a video has a frame fewer than rows", 1, _RATE),
    _single("other-rate", "time", "a video of 25 frames a second among rows at 30", 0, 25),
    _column(
        "index-shifted",
        "DC514",
        "shift",
        "an episode's index is 100 too high",
        "index",
        _shifted,
        batch=0,
        system="lerobot_v21",
    ),
    _column(
        "late-stamp",
        "DC516",
        "step",
        "a time stamp is 6 ms late",
        "timestamp",
        _late_stamp,
        batch=0,
        system="lerobot_v21",
    ),
)
