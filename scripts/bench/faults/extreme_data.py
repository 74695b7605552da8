"""The small sound folders of extremes.py, one writer for each kind of data, and the extremes that are put into them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import pickle
import struct
import unicodedata
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from attacks import npy
from PIL import Image

COUNT, AT = 16, 5  # samples, and the odd one
FPS = 10
# One value of one sample, all of one sample, all of all samples
REACHES = ("value", "sample", "all")
Sample = dict[str, Any]


class UnfitError(Exception):
    """A kind of data has no such value, or nothing writes it."""


@dataclass
class Case:
    """The samples of a folder, and what is odd about them.

    Args:
        kind: of data.
        names: of each sample: the stem of its file, or of its group.
        samples: the fields of each.
        all_odd: every sample is odd.
        twice: a field that the file of the odd sample names twice.
        odd: samples beside `AT` that are odd.
    """

    kind: str
    names: list[str]
    samples: list[Sample]
    at: int = AT
    all_odd: bool = False
    twice: str = ""
    odd: set[int] = field(default_factory=set)

    @classmethod
    def sound(cls, kind: str) -> Case:
        """Return the sound samples of a kind."""
        made = [KINDS[kind].make(i, np.random.default_rng([i, len(kind)])) for i in range(COUNT)]
        return cls(kind, [f"{i:06d}" for i in range(COUNT)], made)

    def touched(self) -> set[int]:
        """Return the samples that may be judged otherwise: odd ones, and those whose columns lie in the same file."""
        if self.all_odd:
            return set(range(COUNT))
        shared = KINDS[self.kind].shared
        return {
            i for odd in (self.at, *self.odd) for i in range(COUNT) if i // shared == odd // shared
        }

    def each(self) -> list[Sample]:
        """Return the samples that are to be odd."""
        return self.samples if self.all_odd else [self.samples[self.at]]


@dataclass(frozen=True)
class Kind:
    """One kind of data.

    Args:
        make: returns the fields of a sample of a number.
        write: writes the samples of a case to a folder.
        shared: so many samples have the types of their columns in common.
    """

    make: Callable[[int, np.random.Generator], Sample]
    write: Callable[[Case, Path], None]
    shared: int = 1


def written(case: Case, folder: Path) -> None:
    """Write a case.

    Raises:
        UnfitError: the library that writes such files refuses it.
    """
    folder.mkdir()
    if case.twice and case.kind in {
        "poses",
        "episodes",
        "lerobot2",
        "lerobot3",
        "arrays",
        "sounds",
    }:
        raise UnfitError
    try:
        KINDS[case.kind].write(case, folder)
    except MemoryError:
        raise
    except Exception as error:  # writers refuse by exceptions of any kind
        raise UnfitError(str(error)) from error


# ------------------------------------------------------------------------------------------ writers


def twice(case: Case, i: int) -> str:
    return case.twice if i == case.at else ""


def json_text(sample: Any, again: str = "") -> bytes:
    """Return JSON; a byte that is no UTF-8 stays one, half of a surrogate pair is an escape."""
    raw = any("\udc80" <= sign <= "\udcff" for sign in str(sample))
    plain = {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in sample.items()
    }
    text = dumped(plain, raw=raw)
    if again:
        text = f"{text[:-1]}, {dumped({again: plain[again]}, raw=raw)[1:]}"
    return text.encode("utf-8", "surrogateescape" if raw else "strict")


def dumped(value: Any, *, raw: bool) -> str:
    """Return JSON of any depth, which Python's own writer has not."""
    if isinstance(value, Deep):
        return value.text
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{json.dumps(k, ensure_ascii=not raw)}: {dumped(v, raw=raw)}"
                for k, v in value.items()
            )
            + "}"
        )
    if isinstance(value, list) and any(isinstance(one, dict | Deep) for one in value):
        return "[" + ", ".join(dumped(one, raw=raw) for one in value) + "]"
    return json.dumps(value, ensure_ascii=not raw)


@dataclass(frozen=True)
class Deep:
    """A value of so many levels of lists, or of objects."""

    levels: int
    objects: bool

    @property
    def text(self) -> str:
        begin, end = ('{"a": ', "}") if self.objects else ("[", "]")
        return begin * self.levels + "1" + end * self.levels

    @property
    def value(self) -> Any:
        value: Any = 1
        for _ in range(self.levels):
            value = {"a": value} if self.objects else [value]
        return value


def per_file(ending: str, data: Callable[[Sample, str], bytes]) -> Callable[[Case, Path], None]:
    """Return a writer of one file for each sample."""

    def write(case: Case, folder: Path) -> None:
        for i, (name, sample) in enumerate(zip(case.names, case.samples, strict=True)):
            path = folder / f"{name}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data(sample, twice(case, i)))

    return write


def npz(sample: Sample, again: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in [*sample, *filter(None, [again])]:
            value = sample[name]
            if isinstance(value, Deep | list | dict):
                raise UnfitError
            file.writestr(
                f"{name}.npy", value.head if isinstance(value, Claimed) else npy(np.asarray(value))
            )
    return out.getvalue()


@dataclass(frozen=True)
class Claimed:
    """An array of which the head says more rows than there are bytes."""

    rows: int

    @property
    def head(self) -> bytes:
        out = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            out, {"descr": "<f4", "fortran_order": False, "shape": (self.rows, 3)}
        )
        return out.getvalue()


def pkl(sample: Sample, again: str) -> bytes:
    return pickle.dumps(
        {key: value.value if isinstance(value, Deep) else value for key, value in sample.items()}
    )


def lines(case: Case, folder: Path) -> None:
    text = [json_text(sample, twice(case, i)) for i, sample in enumerate(case.samples)]
    (folder / f"{case.kind}.jsonl").write_bytes(b"\n".join(text) + b"\n")


def episodes(case: Case, folder: Path) -> None:
    for i, sample in enumerate(case.samples):
        with h5py.File(folder / f"demo_v{i // 4}.hdf5", "a") as file:
            group = file.require_group(f"data/demo_{case.names[i]}")
            group.attrs["num_samples"] = len(np.atleast_1d(sample["actions"]))
            for name, value in sample.items():
                if isinstance(value, Claimed):
                    group.create_dataset(name, (value.rows, 3), "f4", chunks=(1 << 16, 3))
                elif isinstance(value, Deep):
                    group[name + "/g" * value.levels] = 1
                else:
                    group[name] = np.asarray(value)


def columns(samples: list[Sample], again: str = "") -> pa.Table:
    names = list(dict.fromkeys(itertools.chain.from_iterable(samples)))
    found = []
    for name in [*names, *filter(None, [again])]:
        values = [sample.get(name) for sample in samples]
        values = [value.value if isinstance(value, Deep) else value for value in values]
        found.append(
            pa.array(
                [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
            )
        )
    return pa.table(found, names=[*names, *filter(None, [again])])


def rows(case: Case, folder: Path) -> None:
    for first in range(0, len(case.samples), 4):
        again = case.twice if first <= case.at < first + 4 else ""
        table = columns(case.samples[first : first + 4], again)
        pq.write_table(table, folder / f"part-{first // 4:05d}.parquet")


def steps(sample: Sample, i: int, first: int) -> pa.Table:
    """Return the rows of one episode of a LeRobot dataset."""
    count = len(np.atleast_1d(sample["action"]))
    t = np.arange(count)
    whole = {
        "timestamp": (t / FPS).astype("f4"),
        "frame_index": t,
        "episode_index": np.full(count, i),
        "index": t + first,
        "task_index": np.zeros(count, int),
    }
    whole |= sample
    found = {}
    for name, value in whole.items():
        if not isinstance(value, np.ndarray):
            raise UnfitError
        kept = value.dtype.newbyteorder("=")
        found[name] = (
            pa.array(value.tolist(), pa.list_(pa.from_numpy_dtype(kept)))
            if value.ndim > 1
            else pa.array(value.astype(kept))
        )
    return pa.table(found)


def lerobot(version: str) -> Callable[[Case, Path], None]:
    def write(case: Case, folder: Path) -> None:
        lengths = [len(np.atleast_1d(sample["action"])) for sample in case.samples]
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        tables = [steps(sample, i, starts[i]) for i, sample in enumerate(case.samples)]
        (folder / "meta/episodes/chunk-000").mkdir(parents=True)
        (folder / "data/chunk-000").mkdir(parents=True)
        v2 = version == "v2.1"
        path = ("episode_{episode_index:06d}" if v2 else "file-{file_index:03d}") + ".parquet"
        chunk = "{episode_chunk:03d}" if v2 else "{chunk_index:03d}"
        features = {
            name: {"dtype": str(np.asarray(v).dtype), "shape": list(np.shape(v)[1:]) or [1]}
            for name, v in case.samples[0].items()
        }
        said = {
            "codebase_version": version,
            "fps": FPS,
            "chunks_size": 1000,
            "features": features,
            "data_path": f"data/chunk-{chunk}/{path}",
        }
        (folder / "meta/info.json").write_text(json.dumps(said))
        if v2:
            told = [
                {"episode_index": i, "tasks": ["lift"], "length": n} for i, n in enumerate(lengths)
            ]
            (folder / "meta/episodes.jsonl").write_text(
                "".join(json.dumps(line) + "\n" for line in told)
            )
            (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "lift"}\n')
            for i, table in enumerate(tables):
                pq.write_table(table, folder / f"data/chunk-000/episode_{i:06d}.parquet")
            return
        told = {
            "episode_index": list(range(len(lengths))),
            "tasks": [["lift"]] * len(lengths),
            "length": lengths,
        }
        told |= {
            "data/chunk_index": [0] * len(lengths),
            "data/file_index": [i // 4 for i in range(len(lengths))],
        }
        pq.write_table(pa.table(told), folder / "meta/episodes/chunk-000/file-000.parquet")
        pq.write_table(
            pa.table({"task_index": [0], "task": ["lift"]}), folder / "meta/tasks.parquet"
        )
        for first in range(0, len(tables), 4):
            pq.write_table(
                pa.concat_tables(tables[first : first + 4]),
                folder / f"data/chunk-000/file-{first // 4:03d}.parquet",
            )

    return write


def png(array: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, "png")
    return out.getvalue()


def images(case: Case, folder: Path) -> None:
    for i, (name, sample) in enumerate(zip(case.names, case.samples, strict=True)):
        rest = {key: value for key, value in sample.items() if key != "image"}
        (folder / f"{name}.png").write_bytes(png(sample["image"]))
        (folder / f"{name}.json").write_bytes(json_text(rest, twice(case, i)))


def table_text(sample: Sample, again: str) -> bytes:
    names = [*sample, *filter(None, [again])]
    if any(np.ndim(sample[name]) != 1 for name in names):
        raise UnfitError
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows(
        itertools.zip_longest(*(np.asarray(sample[name]).tolist() for name in names), fillvalue="")
    )
    return out.getvalue().encode("utf-8", "surrogateescape")


def stores(case: Case, folder: Path) -> None:
    for name, sample in zip(case.names, case.samples, strict=True):
        group = zarr.open_group(str(folder / f"{name}.zarr"), mode="w")
        for key, value in sample.items():
            if isinstance(value, Claimed):
                group.create_array(key, shape=(value.rows, 3), dtype="f4", chunks=(1 << 16, 3))
            else:
                group.create_array(key, data=np.asarray(value))


def wav(sample: Sample, again: str) -> bytes:
    """Return a WAV file: integers as PCM, floats as IEEE floats."""
    data = np.asarray(sample["audio"])
    if len(sample) > 2 or data.dtype.kind not in "iuf" or data.ndim > 2:
        raise UnfitError
    channels = data.shape[1] if data.ndim > 1 else 1
    raw, size, rate = (
        data.astype(data.dtype.newbyteorder("<")).tobytes(),
        data.dtype.itemsize,
        int(sample["rate"]),
    )
    form = struct.pack(
        "<HHIIHH",
        3 if data.dtype.kind == "f" else 1,
        channels,
        rate,
        rate * size * channels & 0xFFFFFFFF,
        size * channels,
        8 * size,
    )
    body = (
        b"WAVEfmt "
        + struct.pack("<I", len(form))
        + form
        + b"data"
        + struct.pack("<I", len(raw))
        + raw
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def xml(sample: Sample, again: str) -> str:
    from xml.sax.saxutils import escape

    height, width = sample["image"].shape[:2]
    parts = [f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"]
    for name, box in zip(sample["names"], np.asarray(sample["boxes"]).tolist(), strict=False):
        corners = "".join(
            f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        )
        parts.append(f"<object><name>{escape(name)}</name><bndbox>{corners}</bndbox></object>")
    for key, value in sample.items():
        if key not in {"image", "boxes", "names"}:
            deep = isinstance(value, Deep)
            parts.append(
                "<g>" * value.levels + "</g>" * value.levels if deep else f"<{key}>{value}</{key}>"
            )
    return f"<annotation>{''.join(parts)}{parts[0] if again else ''}</annotation>"


def boxes(case: Case, folder: Path) -> None:
    for place in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / place).mkdir(parents=True)
    for i, (name, sample) in enumerate(zip(case.names, case.samples, strict=True)):
        (folder / f"JPEGImages/{name}.png").write_bytes(png(sample["image"]))
        text = xml(sample, twice(case, i)).encode("utf-8", "surrogateescape")
        (folder / f"Annotations/{name}.xml").write_bytes(text)
    names = "".join(f"{name}\n" for name in case.names)
    (folder / "ImageSets/Main/train.txt").write_bytes(os.fsencode(names))


# -------------------------------------------------------------------------------- the sound samples


def picture(rng: np.random.Generator) -> Any:
    return rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)


def said(i: int, rng: np.random.Generator) -> str:
    words = [
        "the",
        "cup",
        "stands",
        "on",
        "red",
        "table",
        "near",
        "an",
        "open",
        "door",
        "while",
        "two",
        "birds",
        "sing",
    ]
    words += ["of", "rain", "and", "old", "light"]
    return " ".join(rng.permutation(words)) + f", number {i}."


def chat(i: int, rng: np.random.Generator) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": said(i, rng)} for n in range(4)]


KINDS: dict[str, Kind] = {
    "clouds": Kind(
        lambda i, rng: {
            "points": rng.uniform(0, 1, (40 + i, 3)).astype("f4"),
            "label": rng.integers(0, 5, 40 + i).astype("i4"),
            "score": np.float64(rng.uniform()),
        },
        per_file(".npz", npz),
    ),
    "poses": Kind(
        lambda i, rng: {
            "joints": rng.normal(size=(21, 3)),
            "beta": rng.normal(size=10).astype("f4"),
            "frame": i,
            "said": said(i, rng),
        },
        per_file(".pkl", pkl),
    ),
    "episodes": Kind(
        lambda i, rng: {
            "actions": rng.uniform(-1, 1, (30 + i, 7)),
            "obs/pos": rng.uniform(0, 1, (30 + i, 3)).cumsum(0) / 9,
            "rewards": rng.uniform(0, 1, 30 + i),
        },
        episodes,
    ),
    "lerobot2": Kind(
        lambda i, rng: {
            "action": rng.uniform(-1, 1, (20 + i, 2)).astype("f4"),
            "observation.state": rng.uniform(-1, 1, (20 + i, 3)).astype("f4"),
        },
        lerobot("v2.1"),
    ),
    "lerobot3": Kind(
        lambda i, rng: {
            "action": rng.uniform(-1, 1, (20 + i, 2)).astype("f4"),
            "observation.state": rng.uniform(-1, 1, (20 + i, 3)).astype("f4"),
        },
        lerobot("v3.0"),
        shared=4,
    ),
    "rows": Kind(
        lambda i, rng: {
            "id": i,
            "x": rng.uniform(),
            "y": rng.normal(),
            "n": int(rng.integers(0, 90)),
            "said": said(i, rng),
        },
        rows,
        shared=4,
    ),
    "texts": Kind(lambda i, rng: {"text": said(i, rng), "id": i, "score": rng.uniform()}, lines),
    "chats": Kind(lambda i, rng: {"conversations": chat(i, rng), "id": i}, lines),
    "documents": Kind(
        lambda i, rng: {
            "name": f"n{i}",
            "pose": rng.normal(size=(4, 3)).tolist(),
            "n": i,
            "meta": {"a": 1.5 * i},
        },
        per_file(".json", json_text),
    ),
    "images": Kind(
        lambda i, rng: {
            "image": picture(rng),
            "label": int(rng.integers(0, 4)),
            "name": said(i, rng),
            "box": rng.uniform(0, 16, 4).tolist(),
        },
        images,
    ),
    "series": Kind(
        lambda i, rng: {
            "t": np.arange(20 + i) / FPS,
            "x": rng.normal(size=20 + i).round(4),
            "n": rng.integers(0, 9, 20 + i),
        },
        per_file(".csv", table_text),
    ),
    "arrays": Kind(
        lambda i, rng: {
            "pos": rng.uniform(0, 1, (20, 3)),
            "vel": rng.normal(size=(20, 3)).astype("f4"),
            "class": rng.integers(0, 6, 20),
        },
        stores,
    ),
    "sounds": Kind(
        lambda i, rng: {"audio": (rng.normal(size=800) * 3000).astype("i2"), "rate": 16000},
        per_file(".wav", wav),
    ),
    "boxes": Kind(
        lambda i, rng: {
            "image": picture(rng),
            "names": ["cat", "dog"],
            "boxes": np.array([[1, 2, 9, 8 + i % 4], [3, 3, 12, 14]]),
        },
        boxes,
    ),
}


# ------------------------------------------------------------------------------------- the extremes

Extreme = Callable[[Case, Random], None]
EXTREMES: dict[str, Extreme] = {}


def numeric(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(numeric(one) for one in value)
    return not isinstance(value, bool | str) and np.asarray(value).dtype.kind in "iuf"


def some(case: Case, rng: Random, fit: Callable[[Any], bool]) -> str:
    """Return a field of the odd sample that fits."""
    names = [name for name, value in case.samples[case.at].items() if fit(value)]
    if not names:
        raise UnfitError
    return rng.choice(names)


def filled(value: Any, number: Any, *, everywhere: bool) -> Any:
    """Return a value with a number in the place of its first one, or of all; of a dtype that holds it, if any does."""
    if isinstance(value, list):
        kept = [filled(one, number, everywhere=everywhere) for one in value]
        return kept if everywhere else [kept[0], *value[1:]]
    if not isinstance(value, np.ndarray):
        return number
    wanted = np.asarray(number).dtype
    if wanted.kind == "O":
        raise UnfitError
    if value.dtype.kind in "iu" and not (
        wanted.kind in "iu" and np.can_cast(np.min_scalar_type(number), value.dtype)
    ):
        value = value.astype(wanted)
    if (
        value.dtype.kind == "f"
        and math.isfinite(number)
        and not np.isfinite(np.array(number).astype(value.dtype))
    ):
        value = value.astype("f8")
    value = value.copy()
    value.reshape(-1)[slice(None) if everywhere else 3 % max(value.size, 1)] = number
    return value


NUMBERS = {
    "0": 0,
    "-0.0": -0.0,
    "1": 1,
    "-1": -1,
    "2**31-1": 2**31 - 1,
    "-2**31": -(2**31),
    "2**53+1": 2**53 + 1,
    "2**63-1": 2**63 - 1,
    "-2**63": -(2**63),
    "2**63": 2**63,
    "2**64-1": 2**64 - 1,
    "2**64": 2**64,
    "10**400": 10**400,
    "1e308": 1e308,
    "1.79e308": 1.79e308,
    "-1.79e308": -1.79e308,
    "3.4e38": 3.4e38,
    "1e-308": 1e-308,
    "5e-324": 5e-324,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "255": 255,
    "-128": -128,
    "1e16": 1e16,
}


def number(value: Any, reach: str) -> Extreme:
    def put(case: Case, rng: Random) -> None:
        name = some(case, rng, numeric)
        case.all_odd = reach == "all"
        for sample in case.each():
            sample[name] = filled(sample[name], value, everywhere=reach != "value")

    return put


def mixed(case: Case, rng: Random) -> None:
    """Put the ends of floats side by side: their sums and differences are no floats."""
    name = some(case, rng, lambda v: isinstance(v, np.ndarray) and v.dtype.kind == "f" and v.size)
    value = case.samples[case.at][name].astype("f8")
    value.reshape(-1)[:] = np.resize(
        [1.79e308, -1.79e308, 5e-324, -0.0, math.inf, math.nan, 1.0], value.size
    )
    case.samples[case.at][name] = value


for name, value in NUMBERS.items():
    for reach in REACHES:
        EXTREMES[f"number: {name}, {reach}"] = number(value, reach)
EXTREMES["number: mixed ends"] = mixed

DTYPES = [
    "?",
    "i1",
    "u8",
    "f2",
    "f4",
    ">f8",
    ">i4",
    "c8",
    "c16",
    "g",
    "U5",
    "S3",
    "O",
    "M8[s]",
    "m8[ns]",
]


def dtype(wanted: str, reach: str) -> Extreme:
    def put(case: Case, rng: Random) -> None:
        name = some(case, rng, lambda v: isinstance(v, np.ndarray | np.generic))
        case.all_odd = reach == "all"
        for sample in case.each():
            value = np.asarray(sample[name])
            sample[name] = (value.astype("i8") if wanted[0] in "Mm" else value).astype(wanted)

    return put


def structured(case: Case, rng: Random) -> None:
    name = some(case, rng, lambda v: isinstance(v, np.ndarray) and v.ndim)
    value = case.samples[case.at][name]
    case.samples[case.at][name] = np.zeros(
        len(value), [("a", value.dtype), ("b", "f8", (2,)), ("a b", "S4")]
    )


def other(value: Any, reach: str) -> Extreme:
    """Return an extreme that puts a value of another type in the place of a number."""

    def put(case: Case, rng: Random) -> None:
        name = some(case, rng, numeric)
        if isinstance(case.samples[case.at][name], np.ndarray):
            raise UnfitError
        case.all_odd = reach == "all"
        for sample in case.each():
            sample[name] = value

    return put


for reach in ("sample", "all"):
    for wanted in DTYPES:
        EXTREMES[f"dtype: {wanted}, {reach}"] = dtype(wanted, reach)
    for value in (None, True, "12", "", [], {}, [[]], [1, "a"]):
        EXTREMES[f"dtype: {value!r}, {reach}"] = other(value, reach)
EXTREMES["dtype: structured"] = structured

SHAPES: dict[str, Callable[[Any], Any]] = {
    "0-d": lambda v: v.reshape(-1)[0],
    "no rows": lambda v: v[:0],
    "one row": lambda v: v[:1],
    "two rows": lambda v: v[:2],
    "32 axes": lambda v: v.reshape(*v.shape, *[1] * (32 - v.ndim)),
    "62 axes": lambda v: v.reshape(*[1] * (62 - v.ndim), *v.shape),
    "rows of length 0": lambda v: np.zeros((len(v), 0), v.dtype),
    "another axis": lambda v: v[None],
    "transposed": lambda v: v.T.copy(),
    "one column more": lambda v: np.concatenate([v, v[..., :1]], -1),
    "2**24 x 0": lambda v: np.zeros((2**24, 0), v.dtype),
    "many rows": lambda v: np.resize(v, (300_000, *v.shape[1:])),
}


def shape(change: Callable[[Any], Any], reach: str) -> Extreme:
    def put(case: Case, rng: Random) -> None:
        name = some(case, rng, lambda v: isinstance(v, np.ndarray) and v.ndim)
        case.all_odd = reach == "all"
        for sample in case.each():
            sample[name] = change(sample[name])

    return put


def claimed(case: Case, rng: Random) -> None:
    name = some(case, rng, lambda v: isinstance(v, np.ndarray) and v.ndim)
    case.samples[case.at][name] = Claimed(2**40)


for name, change in SHAPES.items():
    for reach in ("sample", "all")[: 1 if "many" in name else 2]:
        EXTREMES[f"shape: {name}, {reach}"] = shape(change, reach)
EXTREMES["shape: 2**40 rows claimed"] = claimed

STRINGS = {
    "empty": "",
    "NUL": "a\0b",
    "only NUL": "\0",
    "newlines": "\n\r\n\n",
    "U+2028": "a\u2028b\x85c",
    "bidi marks": "\u202eabc\u2066",
    "high surrogate": "a\ud800",
    "low surrogate": "\udc00b",
    "1 MB in one line": "x" * 1_000_000,
    "1 MB of words": "ab " * 330_000,
    "invalid UTF-8": "a\udcff\udcfe",
    "combining marks": "e" + "\u0301" * 5000,
    "only spaces": " " * 300,
    "zero width": "\u200b\u200d\ufeff",
    "emoji": "👩‍👩‍👧‍👦" * 200,
    "not a character": "\uffff\U0010ffff",
    "markup": "<b>&amp;</script>{{x}} %s {0}",
    "nan": "nan",
    "a number": "1e999",
    "control": "\x1b[2J\x07",
    "one letter": "a",
    "words of one letter": "a " * 10_000,
    "formula": "=1+1",
    "quotes": '"\'"',
    "CJK": "汉" * 5000,
}


def worded(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], str | dict)
    )


def string(text: str, reach: str) -> Extreme:
    def put(case: Case, rng: Random) -> None:
        name = some(case, rng, worded)
        case.all_odd = reach == "all"
        for sample in case.each():
            value = sample[name]
            if isinstance(value, str):
                sample[name] = text
            elif isinstance(value[0], dict):
                value[1][
                    rng.choice(["content", "content", "role"]) if reach == "sample" else "content"
                ] = text
            else:
                sample[name] = [text, *value[1:]]

    return put


for name, text in STRINGS.items():
    for reach in ("sample", "all")[: 1 if len(text) > 100_000 else 2]:
        EXTREMES[f"string: {name}, {reach}"] = string(text, reach)


def nested(levels: int, reach: str, *, objects: bool) -> Extreme:
    def put(case: Case, rng: Random) -> None:
        del rng
        case.all_odd = reach == "all"
        for sample in case.each():
            sample["deep"] = Deep(levels, objects)

    return put


for levels in (2, 63, 64, 65, 200, 253, 254, 255, 1020):
    for reach in ("sample", "all"):
        EXTREMES[f"nesting: {levels} lists, {reach}"] = nested(levels, reach, objects=False)
        EXTREMES[f"nesting: {levels} objects, {reach}"] = nested(levels, reach, objects=True)


def keys(count: int, reach: str) -> Extreme:
    def put(case: Case, rng: Random) -> None:
        del rng
        case.all_odd = reach == "all"
        for sample in case.each():
            one = next(iter(sample.values()))
            more = (
                np.asarray(one)
                if isinstance(one, np.ndarray) and case.kind == "series"
                else np.float32(0.5)
            )
            plain = not isinstance(one, np.ndarray)
            sample |= {
                f"k{n}": 0.5 if plain or case.kind in {"images", "boxes"} else more
                for n in range(count)
            }

    return put


def classes(case: Case, rng: Random) -> None:
    """Give each sample many classes of its own."""
    name = some(
        case, rng, lambda v: isinstance(v, np.ndarray) and v.dtype.kind in "iu" and v.ndim == 1
    )
    case.all_odd = True
    for i, sample in enumerate(case.samples):
        sample[name] = np.resize(np.arange(10_000) + i, sample[name].shape).astype("i4")


def turns(case: Case, rng: Random) -> None:
    name = some(case, rng, lambda v: isinstance(v, list) and isinstance(v[0], dict | str))
    case.samples[case.at][name] = case.samples[case.at][name] * 5000


def splits(case: Case, rng: Random) -> None:
    """Add samples, each in a folder of its own."""
    del rng
    for n in range(2000):
        case.names.append(f"split{n}/{n:06d}")
        case.samples.append(case.samples[n % COUNT])
    case.all_odd = True


def one_sample(case: Case, rng: Random) -> None:
    del rng
    case.all_odd, case.at = True, 0
    case.names, case.samples = case.names[:1], case.samples[:1]


def words(case: Case, rng: Random) -> None:
    name = some(case, rng, lambda v: isinstance(v, list) and numeric(v))
    case.samples[case.at][name] = [1.5] * 100_000


for count in (65, 1000, 10_000):
    for reach in ("sample", "all")[: 1 if count > 1000 else 2]:
        EXTREMES[f"count: {count} keys, {reach}"] = keys(count, reach)
EXTREMES |= {
    "count: classes": classes,
    "count: turns": turns,
    "count: splits": splits,
    "count: one sample": one_sample,
    "count: 100,000 numbers": words,
}

NAMES = {
    "dash": "-rf",
    "%s": "a%s%d%%",
    "braces": "{x}{0}{",
    "quotes": "a'b\"c`d",
    "255 bytes": "n" * 250,
    "newline": "a\nb",
    "invalid UTF-8": "a\udcff",
    "dot": ".hidden",
    "dots": "a..b",
    "tilde": "~",
    "star": "a*[b]?",
    "NFD": "e\u0301",
    "space": " a ",
    "U+2028": "a\u2028b",
    "bidi": "\u202eabc",
    "colon": "a:000000000003",
    "percent": "%2e%2e%2f",
    "backslash": "a\\b",
    "hash": "#a",
    "comma": "a,b;c",
    "at": "@a",
    "dollar": "$HOME",
    "nul-like": "CON",
    "number": "1e5",
    "digit": "٣",
    "equals": "=1+1",
    "pipe": "a|b>c",
    "tab": "a\tb",
    "surrogate": "a\ud800",
    "empty": "",
    "slash": "a/b/c",
    "is_pad": "x_is_pad",
    "is_present": "x_is_present",
    "key": "key",
    "datacheck": "datacheck",
    "bang": "!a",
    "yaml": "yes",
    "null": "null",
    "long": "n" * 5000,
}


def named(text: str) -> Extreme:
    """Return an extreme that gives the file, or group, of one sample a name."""

    def put(case: Case, rng: Random) -> None:
        del rng
        if (
            case.kind in {"lerobot2", "lerobot3", "rows", "texts", "chats"}
            or not text
            or (text == "NFD")
        ):
            raise UnfitError
        case.names[case.at] = text

    return put


def keyed(text: str, reach: str) -> Extreme:
    """Return an extreme that gives one field a name, in one sample or in all."""

    def put(case: Case, rng: Random) -> None:
        name = rng.choice(
            [
                n
                for n in case.samples[case.at]
                if n not in {"image", "audio", "boxes", "actions", "action"}
            ]
            or [""]
        )
        if not name:
            raise UnfitError
        case.all_odd = reach == "all"
        for sample in case.each():
            sample[text] = sample.pop(name)

    return put


def twin(change: Callable[[str], str], *, field_too: bool) -> Extreme:
    """Return an extreme that gives two samples, or two fields, names that a reader may take for one."""

    def put(case: Case, rng: Random) -> None:
        del rng
        if field_too:
            for sample in case.each():
                one = next(iter(sample))
                sample["caf\u00e9"] = sample[change("caf\u00e9")] = sample[one]
        else:
            if KINDS[case.kind].shared > 1 or case.kind in {"lerobot2", "texts", "chats"}:
                raise UnfitError
            case.names[case.at], case.names[case.at + 1] = "caf\u00e9", change("caf\u00e9")
            case.odd = {case.at + 1}

    return put


for name, text in NAMES.items():
    EXTREMES[f"name: file {name}"] = named(text)
    for reach in ("sample", "all"):
        EXTREMES[f"name: field {name}, {reach}"] = keyed(text, reach)
for name, change in {
    "case": str.upper,
    "NFD": lambda text: unicodedata.normalize("NFD", text),
}.items():
    EXTREMES[f"name: file twins by {name}"] = twin(change, field_too=False)
    EXTREMES[f"name: field twins by {name}"] = twin(change, field_too=True)


def repeated(case: Case, rng: Random) -> None:
    case.twice = rng.choice([name for name in case.samples[case.at] if name != "image"])


def constant(reach: str) -> Extreme:
    """Return an extreme that repeats one value in a whole sample, or one sample in the whole folder."""

    def put(case: Case, rng: Random) -> None:
        name = some(case, rng, numeric)
        if reach == "samples":
            case.all_odd, case.samples = True, [case.samples[0]] * COUNT
            return
        case.all_odd = reach == "all"
        for sample in case.each():
            first = np.asarray(sample[name]).reshape(-1)[:1].tolist()[0]
            sample[name] = filled(sample[name], first, everywhere=True)

    return put


def copied(case: Case, rng: Random) -> None:
    del rng
    case.samples[case.at], case.odd = case.samples[case.at + 1], {case.at + 1}


def one_id(case: Case, rng: Random) -> None:
    name = some(case, rng, lambda v: isinstance(v, int | str))
    case.samples[case.at][name], case.odd = case.samples[case.at + 1][name], {case.at + 1}


def lacking(case: Case, rng: Random) -> None:
    case.samples[case.at].pop(rng.choice(list(case.samples[case.at])))


EXTREMES |= {
    "repeat: key": repeated,
    "repeat: value, sample": constant("sample"),
    "repeat: value, all": constant("all"),
    "repeat: all samples": constant("samples"),
    "repeat: sample": copied,
    "repeat: id": one_id,
    "repeat: no field": lacking,
}
