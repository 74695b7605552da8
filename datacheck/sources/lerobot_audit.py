"""Compare the documents in the meta folder of a LeRobot dataset with each other.

A child reads them. Each contradiction is one that LeRobot or a policy's normalizer meets: totals,
splits, positions of episodes, tasks, features, statistics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.jsonl import lines as read_lines
from datacheck.runtime.beneath import File
from datacheck.runtime.hashing import shortened
from datacheck.sources.lerobot import (
    INFO,
    STATISTIC_LINES,
    STATS,
    STATS_BYTES,
    Meta,
    is_dtype,
    is_v3,
    read_info,
    read_json,
    video_features,
)

Array = np.ndarray[Any, Any]
Vectors = Mapping[str, Array]

MODALITY = "meta/modality.json"
AUDITED = (STATS, MODALITY)  # documents that only this audit reads
# Columns that LeRobot reads of each row, whatever the robot.
_REQUIRED = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_VERSIONS = ("v2.0", "v2.1", "v3.0")
_PICTURES = ("image", "video")
_PLACEHOLDERS = ("test", "asdf", "todo", "tbd", "n/a", "na", "xxx", "placeholder", "task")
_RANGE = re.compile(r"(\d{1,12}):(\d{1,12})")
_STATISTICS = ("min", "max", "mean", "std")
_QUANTILES = ("q01", "q10", "q50", "q90", "q99")
_SHOWN = 5
_FEATURES = 1_000  # of each kind that a policy may ask for
_MOST = 20  # contradictions of a kind that are named one by one
# Share of a square by which a variance is off that LeRobot computes in 32 bits: DC228 judges it.
_LOST = 4096 * float(np.finfo(np.float32).eps)
_OFF = 0.01  # of a colour
_ROUNDING = 1e-3  # share of a range by which rounded statistics may leave it


class Contradiction(NamedTuple):
    """Two statements of a dataset's documents that cannot both be true.

    Args:
        kind: keys, templates, dtypes, totals, counts, splits, positions, tasks, version, features, names,
            videos, statistics, missing, rows or modality.
        document: path below the dataset's folder of the document to correct first.
        words: what was found, and what is expected: a phrase without a full stop.
    """

    kind: str
    document: str
    words: str


def contradictions(base: File, meta: Meta) -> list[Contradiction]:
    """Return the contradictions in the meta folder of the dataset in `base`.

    Args:
        base: the dataset's folder.
        meta: its episodes, files and tasks.

    Raises:
        FormatError: the info is damaged.

    Notes:
        At most 20 contradictions of a kind are returned; the last one then counts the others.
    """
    info = read_info(base)
    found = [
        *_keys(info),
        *_totals(info, meta),
        *_splits(info, len(meta.lengths)),
        *_positions(meta),
        *_tasks(meta, info),
        *_features(info),
        *_dtypes(base, meta),
        *_statistics(base, info, meta),
        *_modality(base, info),
    ]
    return [shown for kind in dict.fromkeys(c.kind for c in found) for shown in _first(found, kind)]


def dataset_facts(base: File, info: Mapping[str, Any], meta: Meta) -> dict[str, Any]:
    """Return what a policy asks of a dataset, as JSON values.

    Args:
        base: the dataset's folder.
        info: the values of its info.
        meta: its episodes, files and tasks.

    Returns:
        cameras: by name the sizes of the pictures; widths: by name the numbers of each vector;
        statistics: by name the statistics that ``meta/stats.json`` has; tasks: whether tasks have
        texts; modality: whether GR00T's document is there. At most 1,000 features of each kind.
    """
    features = info.get("features")
    known = features if isinstance(features, Mapping) else {}
    try:
        stats = read_json(base, STATS, STATS_BYTES) if (base / STATS).is_file() else {}
    except FormatError:  # `contradictions` reports it
        stats = {}
    widths = {name: _width(feature) for name, feature in known.items() if _is_number(feature)}
    cameras = {name: known[name].get("shape") for name in _named(info, _PICTURES)}
    statistics = {
        name: sorted(set(values) & {*_STATISTICS, *_QUANTILES})
        for name, values in stats.items()
        if name in known and isinstance(values, Mapping)
    }
    if not statistics and not is_v3(info):
        statistics = _of_first_episode(base, known)
    facts = {"cameras": cameras, "widths": widths, "statistics": statistics}
    return {
        **{part: dict(islice(sorted(named.items()), _FEATURES)) for part, named in facts.items()},
        "tasks": any(text.strip() for text in (meta.tasks or {}).values()),
        "modality": (base / MODALITY).is_file(),
    }


def _of_first_episode(base: File, features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return by feature the statistics that LeRobot 2.1 keeps of each episode: of the first one."""
    path = base / STATISTIC_LINES
    _, line = next(iter(read_lines(path)), (0, None)) if path.is_file() else (0, None)
    stats = line.get("stats") if isinstance(line, Mapping) else None
    return {
        name: sorted(set(values) & {*_STATISTICS, *_QUANTILES})
        for name, values in (stats.items() if isinstance(stats, Mapping) else ())
        if name in features and isinstance(values, Mapping)
    }


def _first(found: Sequence[Contradiction], kind: str) -> list[Contradiction]:
    of_kind = [contradiction for contradiction in found if contradiction.kind == kind]
    rest = len(of_kind) - _MOST
    if rest <= 0:
        return of_kind
    last = of_kind[_MOST - 1]
    return [*of_kind[: _MOST - 1], last._replace(words=f"{last.words}; {rest:,} more of this kind")]


# ------------------------------------------------------------------------------------------- totals


def _keys(info: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Yield values without which LeRobot opens no dataset."""
    if "fps" not in info:
        yield Contradiction("keys", INFO, "has no fps")
    if is_v3(info):
        for name in ("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb"):
            value = info.get(name, 1)
            if type(value) in {int, float} and value <= 0:
                yield Contradiction("keys", INFO, f"{name} is {value:g}; it must be above 0")
    if not str(info.get("codebase_version")).startswith("v2"):
        return
    if foreign := [n for n in ("data_path", "video_path") if "{chunk_index" in str(info.get(n))]:
        words = (
            f"{' and '.join(foreign)} with {{chunk_index}}; LeRobot v2 fills in {{episode_chunk}}"
        )
        yield Contradiction("templates", INFO, words)


def _totals(info: Mapping[str, Any], meta: Meta) -> Iterator[Contradiction]:
    episodes = len(meta.lengths)
    yield from _total(info, "totals", "total_episodes", episodes, "the episodes' table names {:,}")
    frames = sum(meta.lengths.values())
    yield from _total(
        info, "totals", "total_frames", frames, "the episodes' lengths add up to {:,}"
    )
    if meta.tasks is not None:
        yield from _total(
            info, "counts", "total_tasks", len(meta.tasks), "the tasks' table has {:,}"
        )
    if is_v3(info):
        return
    videos = episodes * len(video_features(info))
    yield from _total(info, "counts", "total_videos", videos, "its episodes and cameras make {:,}")
    size = info.get("chunks_size")
    if type(size) is int and size > 0:
        chunks = ceil(episodes / size)
        yield from _total(info, "counts", "total_chunks", chunks, "its episodes fill {:,}")


def _total(
    info: Mapping[str, Any], kind: str, key: str, count: int, counted: str
) -> Iterator[Contradiction]:
    stated = info.get(key)
    if stated is None and kind == "totals":
        yield Contradiction(kind, INFO, f"has no {key}; {counted.format(count)}")
    elif stated is not None and stated != count:
        shown = f"{stated:,}" if type(stated) is int else repr(stated)[:40]
        yield Contradiction(kind, INFO, f"{key} is {shown}; {counted.format(count)}")


def _splits(info: Mapping[str, Any], episodes: int) -> Iterator[Contradiction]:
    """Yield contradictions of the splits, each a range ``first:stop`` of episodes."""
    splits = info.get("splits")
    if splits is None:
        return
    if not isinstance(splits, Mapping):
        yield Contradiction("splits", INFO, "splits is no mapping of names to ranges")
        return
    ranges: list[tuple[int, int, str]] = []
    for name, value in splits.items():
        match = _RANGE.fullmatch(value) if isinstance(value, str) else None
        shown = f"split {shortened(str(name), 60)!r} is {str(value)[:40]!r}"
        if match is None:
            yield Contradiction(
                "splits", INFO, f"{shown}; a range such as '0:{episodes}' is expected"
            )
            continue
        first, stop = int(match[1]), int(match[2])
        if stop > episodes or first > stop:
            yield Contradiction("splits", INFO, f"{shown}; the episodes are 0 to {episodes - 1:,}")
        else:
            ranges.append((first, stop, shortened(str(name), 60)))
    ranges.sort()
    for (_, stop, name), (first, other_stop, other) in pairwise(ranges):
        if first < stop:
            words = f"the splits {name!r} and {other!r} share the episodes {first:,} to {min(stop, other_stop) - 1:,}"
            yield Contradiction("splits", INFO, words)


def _positions(meta: Meta) -> Iterator[Contradiction]:
    numbers = list(meta.lengths)
    for position, number in enumerate(numbers):
        if number != position:
            words = (
                f"episode {number:,} has position {position:,} of {len(numbers):,}: LeRobot looks "
                f"episodes up by position, so from there on it takes another episode's tasks, rows "
                f"and videos"
            )
            yield Contradiction("positions", "meta/episodes", words)
            return


def _tasks(meta: Meta, info: Mapping[str, Any]) -> Iterator[Contradiction]:
    if meta.tasks is None:
        features = info.get("features")
        if isinstance(features, Mapping) and "task_index" in features:
            words = "is missing, so the numbers of tasks in the rows have no text"
            yield Contradiction("tasks", "meta/tasks", words)
        return
    numbers: dict[str, list[int]] = {}
    for number, text in meta.tasks.items():
        numbers.setdefault(" ".join(text.split()), []).append(number)
    for text, same in numbers.items():
        have = "has" if len(same) == 1 else "have"
        if not text:
            yield Contradiction("tasks", "meta/tasks", f"{_listed('task', same)} {have} no text")
        elif text.lower() in _PLACEHOLDERS:
            words = f"{_listed('task', same)} {have} the text {text!r}, a placeholder"
            yield Contradiction("tasks", "meta/tasks", words)
        elif len(same) > 1:
            words = f"{_listed('task', same)} have one text: {shortened(text, 60)!r}"
            yield Contradiction("tasks", "meta/tasks", words)


def _listed(noun: str, values: Sequence[object]) -> str:
    """Return a noun and the first values, each shortened, with the number of the others."""
    more = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
    return f"{noun}{'s' * (len(values) > 1)} {', '.join(shortened(str(v), 60) for v in values[:_SHOWN])}{more}"


# ----------------------------------------------------------------------------------------- features


def _named(info: Mapping[str, Any], dtypes: Sequence[str]) -> list[str]:
    """Return the names of the features that have one of these dtypes."""
    features = info.get("features")
    return [
        name
        for name, feature in (features.items() if isinstance(features, Mapping) else ())
        if isinstance(feature, Mapping) and feature.get("dtype") in dtypes
    ]


def _features(info: Mapping[str, Any]) -> Iterator[Contradiction]:
    version = info.get("codebase_version")
    if version not in _VERSIONS:
        words = f"codebase_version is {str(version)[:20]!r}; {', '.join(_VERSIONS)} are known"
        yield Contradiction("version", INFO, words)
    features = info.get("features")
    if not isinstance(features, Mapping):
        return
    if missing := [name for name in _REQUIRED if name not in features]:
        yield Contradiction("features", INFO, f"lacks {_listed('the feature', missing)}")
    videos = video_features(info)
    # LeRobot 3 has a template of its own where the key is absent.
    has_default = is_v3(info) and "video_path" not in info
    if videos and not isinstance(info.get("video_path"), str) and not has_default:
        words = f"declares {_listed('the video', videos)}, and video_path is no template"
        yield Contradiction("videos", INFO, words)
    if slashed := [name for name in features if "/" in name]:
        words = f"LeRobot refuses to create or merge datasets with a '/' in {_listed('the name', slashed)}"
        yield Contradiction("names", INFO, words)
    for name, feature in features.items():
        if isinstance(feature, Mapping):
            yield from _feature(shortened(name, 60), feature)


def _dtypes(base: File, meta: Meta) -> Iterator[Contradiction]:
    """Yield the features whose numbers the first file of data stores in another width."""
    path = min(meta.files, default="")
    if not (base / path).is_file():
        return
    try:
        with open_container(base / path) as container:
            names = meta.features.keys() & set(container.names())
            stored = {name: container.peek(name)[1] for name in sorted(names)}
    except FormatError:  # its episodes are unreadable, which says why
        return
    for name, dtype in stored.items():
        declared, _ = meta.features[name]
        if dtype != "json" and np.dtype(dtype).name != declared and is_dtype(dtype, declared):
            words = f"feature {shortened(name, 60)!r} is {declared}; {path} stores {np.dtype(dtype).name}"
            yield Contradiction("dtypes", INFO, words)


def _feature(name: str, feature: Mapping[str, Any]) -> Iterator[Contradiction]:
    shape = feature.get("shape")
    sizes = shape if isinstance(shape, list) and all(type(n) is int for n in shape) else None
    if feature.get("dtype") in _PICTURES:
        if sizes is None or len(sizes) != 3:
            words = f"feature {name!r} has the shape {str(shape)[:40]}; a picture has three sizes"
            yield Contradiction("features", INFO, words)
        return
    names = feature.get("names")
    # Writers wrap the list: {"motors": [...]}, [[...]].
    while isinstance(names, Mapping) and len(names) == 1:
        names = next(iter(names.values()))
    while isinstance(names, list) and len(names) == 1 and isinstance(names[0], list):
        names = names[0]
    # A single name may stand for the whole vector.
    if not isinstance(names, list) or len(names) == 1 or sizes is None or len(sizes) != 1:
        return
    if len(names) != sizes[0]:
        words = f"feature {name!r} has {len(names):,} names for {sizes[0]:,} numbers"
        yield Contradiction("names", INFO, words)
        return
    texts = [text for text in names if isinstance(text, str)]
    if twice := [text for text, count in Counter(texts).items() if count > 1]:
        words = f"feature {name!r} has {_listed('the name', twice)} more than once"
        yield Contradiction("names", INFO, words)


# --------------------------------------------------------------------------------------- statistics


def _statistics(base: File, info: Mapping[str, Any], meta: Meta) -> Iterator[Contradiction]:
    features = info.get("features")
    if not isinstance(features, Mapping) or not (base / STATS).is_file():
        return
    try:
        stats = read_json(base, STATS, STATS_BYTES)
    except FormatError as error:
        yield Contradiction("statistics", STATS, str(error).removeprefix(f"{STATS}: "))
        return
    pictures = set(_named(info, _PICTURES))
    numbers = {name for name in features if name in pictures or _is_number(features[name])}
    # No policy reads the others.
    read = {
        name
        for name in numbers
        if name in pictures or (_is_float(features[name]) and not name.startswith("next."))
    }.difference(_REQUIRED)
    # LeRobot 2.1 reads the statistics of episodes; other tools write this document for themselves.
    missing = sorted(read - stats.keys()) if is_v3(info) else []
    if missing:
        yield Contradiction("missing", STATS, f"has no statistics of {_listed('feature', missing)}")
    if foreign := sorted(stats.keys() - features.keys()):
        words = f"has statistics of {_listed('feature', foreign)}, which {INFO} does not declare"
        yield Contradiction("missing", STATS, words)
    frames = sum(meta.lengths.values())
    for name in sorted(numbers & stats.keys()):
        yield from _of_feature(shortened(name, 60), features[name], stats[name], frames)


def _is_float(feature: Any) -> bool:
    return isinstance(feature, Mapping) and str(feature.get("dtype")).startswith("float")


def _is_number(feature: Any) -> bool:
    return isinstance(feature, Mapping) and str(feature.get("dtype")).startswith(
        ("float", "int", "uint", "bool")
    )


def _of_feature(
    name: str, feature: Mapping[str, Any], stats: Any, frames: int
) -> Iterator[Contradiction]:
    """Yield the contradictions in the statistics of one feature."""
    if not isinstance(stats, Mapping):
        yield Contradiction("statistics", STATS, f"{name!r} is no mapping of statistics")
        return
    try:
        vectors = {
            key: np.asarray(stats[key], dtype=np.float64).reshape(-1)
            for key in (*_STATISTICS, *_QUANTILES)
            if key in stats
        }
        counts = np.asarray(stats.get("count", frames)).reshape(-1)
    except (TypeError, ValueError):
        yield Contradiction("statistics", STATS, f"{name!r} holds something other than numbers")
        return
    if lacking := [key for key in _STATISTICS if key not in vectors]:
        yield Contradiction("statistics", STATS, f"{name!r} has no {', '.join(lacking)}")
    words = (
        _wrong_width(feature, vectors)
        or _not_finite(vectors)
        or _impossible(vectors)
        or _no_colours(feature, vectors)
    )
    if words:
        yield Contradiction("statistics", STATS, f"{name!r}: {words}")
    # Pictures are counted by another measure: LeRobot samples them.
    is_counted = feature.get("dtype") not in _PICTURES and counts.dtype.kind in "iu" and len(counts)
    if is_counted and int(counts[0]) != frames:
        words = f"{name!r} counts {int(counts[0]):,} rows; the episodes have {frames:,}"
        yield Contradiction("rows", STATS, words)


def _wrong_width(feature: Mapping[str, Any], vectors: Vectors) -> str:
    # LeRobot itself reduces features of several axes over the wrong ones.
    expected = 3 if feature.get("dtype") in _PICTURES else _width(feature)
    if expected is None:
        return ""
    for key, vector in vectors.items():
        # A picture has a number for each colour, or one.
        if len(vector) != expected and not (feature.get("dtype") in _PICTURES and len(vector) == 1):
            return f"{key} has {len(vector):,} numbers; the feature has {expected:,}"
    return ""


def _not_finite(vectors: Vectors) -> str:
    bad = [key for key, vector in vectors.items() if not np.isfinite(vector).all()]
    return f"NaN or infinity in {', '.join(bad)}" if bad else ""


def _impossible(vectors: Vectors) -> str:
    """Return which of the statistics no data can have, "" if all are possible."""
    sizes = {len(vector) for vector in vectors.values()}
    if len(sizes) != 1 or not sizes.pop():
        return ""
    std = vectors.get("std", np.zeros(1))
    if (std < 0).any():
        return f"the std {std.min():g} is below 0"
    if "min" not in vectors or "max" not in vectors:
        return ""
    low, high = vectors["min"], vectors["max"]
    room = _ROUNDING * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high)) + 1e-9
    return (
        _above("min", low, "max", high)
        or _outside(vectors, low, high, room)
        or _too_wide(std, low, high, room)
        or _falling(vectors, room)
    )


def _no_colours(feature: Mapping[str, Any], vectors: Vectors) -> str:
    """Return which statistics of a colour picture lie outside of 0 to 1, as LeRobot scales it."""
    stated = feature.get("info") or feature.get("video_info")
    is_depth = isinstance(stated, Mapping) and bool(stated.get("video.is_depth_map"))
    if feature.get("dtype") not in _PICTURES or is_depth:
        return ""
    for key in ("min", "max", "mean"):
        vector = vectors.get(key, np.zeros(0))
        if len(vector) == 3 and ((vector < -_OFF) | (vector > 1 + _OFF)).any():
            return f"the {key} is {float(vector[np.argmax(np.abs(vector))]):g}; LeRobot scales colours to 0 to 1"
    return ""


def _above(name: str, smaller: Array, other: str, larger: Array) -> str:
    if not (smaller > larger).any():
        return ""
    at = int(np.argmax(smaller - larger))
    return f"number {at} has the {name} {smaller[at]:g} above the {other} {larger[at]:g}"


def _outside(vectors: Vectors, low: Array, high: Array, room: Array) -> str:
    for key in ("mean", *_QUANTILES):
        vector = vectors.get(key, low)
        outside = (vector < low - room) | (vector > high + room)
        if outside.any():
            at = int(np.argmax(outside))
            return (
                f"number {at} has the {key} {vector[at]:g} outside of its min and max, "
                f"{low[at]:g} to {high[at]:g}"
            )
    return ""


def _too_wide(std: Array, low: Array, high: Array, room: Array) -> str:
    # Values spread most with half of them at each end.
    wide = (
        std**2 > ((high - low) / 2 + room) ** 2 + _LOST * np.maximum(np.abs(low), np.abs(high)) ** 2
    )
    if not wide.any():
        return ""
    at = int(np.argmax(wide))
    return (
        f"number {at} has the std {std[at]:g}; values from {low[at]:g} to {high[at]:g} have at "
        f"most {(high[at] - low[at]) / 2:g}"
    )


def _falling(vectors: Vectors, room: Array) -> str:
    for smaller, larger in pairwise([key for key in _QUANTILES if key in vectors]):
        falls = vectors[smaller] > vectors[larger] + room
        if falls.any():
            return _above(smaller, vectors[smaller], larger, vectors[larger])
    return ""


# ----------------------------------------------------------------------------------------- modality

# By the part of the document: the feature that a key takes its numbers from by default.
_SLICED = {"state": "observation.state", "action": "action"}
_MODALITY_BYTES = 4 << 20


def _modality(base: File, info: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Yield contradictions between the features and GR00T's document of modalities."""
    features = info.get("features")
    if not isinstance(features, Mapping) or not (base / MODALITY).is_file():
        return
    try:
        document = read_json(base, MODALITY, _MODALITY_BYTES)
    except FormatError as error:
        yield Contradiction("modality", MODALITY, str(error).removeprefix(f"{MODALITY}: "))
        return
    for part, default in _SLICED.items():
        entries = document.get(part)
        yield from _slices(part, entries if isinstance(entries, Mapping) else {}, default, features)
    videos = document.get("video")
    for key, entry in videos.items() if isinstance(videos, Mapping) else ():
        given = entry.get("original_key") if isinstance(entry, Mapping) else None
        names = [str(given)] if given else [f"observation.images.{key}", str(key)]
        if not any(name in features for name in names):
            words = (
                f"video {shortened(str(key), 60)!r} takes the feature {names[0][:60]!r}, which "
                f"{INFO} does not declare"
            )
            yield Contradiction("modality", MODALITY, words)


class _Slice(NamedTuple):
    start: int
    end: int
    shown: str


def _slices(
    part: str, entries: Mapping[str, Any], default: str, features: Mapping[str, Any]
) -> Iterator[Contradiction]:
    """Yield contradictions of the slices of one part, each ``start`` to ``end`` of a feature."""
    taken: dict[str, list[_Slice]] = {}
    for key, entry in entries.items():
        shown = f"{part} {shortened(str(key), 60)!r}"
        fields = entry if isinstance(entry, Mapping) else {}
        name = str(fields.get("original_key") or default)
        start, end = fields.get("start"), fields.get("end")
        if name not in features:
            words = f"{shown} takes the feature {name[:60]!r}, which {INFO} does not declare"
            yield Contradiction("modality", MODALITY, words)
        elif type(start) is not int or type(end) is not int or not 0 <= start < end:
            words = f"{shown} has the start {str(start)[:20]} and the end {str(end)[:20]}"
            yield Contradiction("modality", MODALITY, words)
        else:
            taken.setdefault(name, []).append(_Slice(start, end, shown))
    for name, slices in taken.items():
        for words in _misfits(sorted(slices), name[:60], _width(features[name])):
            yield Contradiction("modality", MODALITY, words)


def _misfits(slices: Sequence[_Slice], name: str, width: int | None) -> Iterator[str]:
    for start, end, shown in slices:
        if width is not None and end > width:
            yield f"{shown} takes the numbers {start} to {end} of {name!r}, which has {width}"


def _width(feature: Any) -> int | None:
    shape = feature.get("shape") if isinstance(feature, Mapping) else None
    if not isinstance(shape, list) or len(shape) != 1 or type(shape[0]) is not int:
        return None
    return shape[0]
