"""Faults of scenes with instance labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from datacheck.testing.faults.base import Fault, Planted, Site, add_lines, names, truncate
from datacheck.testing.synth.draw import Array
from datacheck.testing.synth.scannet import FLOOR, IGNORE, WALL

SEGMENT = 9
SEMANTIC = 10
INSTANCE = 11
_SEGS = "_vh_clean_2.0.010000.segs.json"


def _victim(site: Site) -> str:
    return site.pick(names(site, "train/*.npy"))[0]


def _truth(site: Site, key: str) -> Path:
    return site.folder / "instance_gt" / Path(key).with_suffix(".txt")


def save(site: Site, key: str, cloud: Array) -> None:
    """Write a scene and its labels."""
    np.save(site.folder / key, cloud)
    labels = (
        np.nan_to_num(cloud[:, SEMANTIC]).astype(np.int64) * 1000
        + cloud[:, INSTANCE].astype(np.int64)
        + 1
    )
    _truth(site, key).write_text("\n".join(map(str, labels.tolist())) + "\n", encoding="utf-8")


def _edit(
    name: str, code: str, what: str, change: Callable[[Array, np.random.Generator], None]
) -> Fault:
    def plant(site: Site) -> list[Planted]:
        key = _victim(site)
        cloud = np.load(site.folder / key)
        change(cloud, site.rng)
        save(site, key, cloud)
        return [Planted((key,), code, what)]

    return Fault(name, "scannetpp", code, plant)


def _no_instances(cloud: Array, rng: np.random.Generator) -> None:
    cloud[:, INSTANCE] = IGNORE


def _only_dropped(cloud: Array, rng: np.random.Generator) -> None:
    in_instance = cloud[:, INSTANCE] >= 0
    cloud[in_instance, SEMANTIC] = np.where(cloud[in_instance, INSTANCE] % 2 == 0, WALL, FLOOR)


def _too_small(cloud: Array, rng: np.random.Generator) -> None:
    """Keep 5 points of every instance; the other points lose their label."""
    for instance in np.unique(cloud[cloud[:, INSTANCE] >= 0, INSTANCE]):
        rows = np.flatnonzero(cloud[:, INSTANCE] == instance)
        cloud[rows[5:], INSTANCE] = IGNORE


def _unknown_class(cloud: Array, rng: np.random.Generator) -> None:
    instance = rng.choice(np.unique(cloud[cloud[:, INSTANCE] >= 0, INSTANCE]))
    cloud[cloud[:, INSTANCE] == instance, SEMANTIC] = 150


def _two_classes(cloud: Array, rng: np.random.Generator) -> None:
    """Give a fifth of an instance another class."""
    instance = np.unique(cloud[cloud[:, INSTANCE] >= 0, INSTANCE])[0]
    rows = np.flatnonzero(cloud[:, INSTANCE] == instance)
    cloud[rows[: len(rows) // 5], SEMANTIC] = 40 if cloud[rows[0], SEMANTIC] != 40 else 41


def _segment_gaps(cloud: Array, rng: np.random.Generator) -> None:
    cloud[:, SEGMENT] *= 3


def _other_ignore(cloud: Array, rng: np.random.Generator) -> None:
    cloud[cloud[:, SEMANTIC] == IGNORE, SEMANTIC] = -1


def _millimetres(cloud: Array, rng: np.random.Generator) -> None:
    cloud[:, :3] *= 1000


def _unscaled(cloud: Array, rng: np.random.Generator) -> None:
    cloud[:, 3:6] /= 255


def _nan_point(cloud: Array, rng: np.random.Generator) -> None:
    cloud[int(rng.integers(len(cloud))), :3] = np.nan


def _no_normals(cloud: Array, rng: np.random.Generator) -> None:
    cloud[:, 6:9] = 0.0


def _truncated(site: Site) -> list[Planted]:
    key = _victim(site)
    truncate(site.folder / key)
    return [Planted((key,), "DC101", "half of a scene file is missing")]


def _rows_differ(site: Site) -> list[Planted]:
    key = _victim(site)
    path = _truth(site, key)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:-10]) + "\n", encoding="utf-8")
    return [Planted((key,), "DC123", "the label file lacks 10 rows")]


def _no_captions(site: Site) -> list[Planted]:
    """Give the captions the instance ids of another scene."""
    key = _victim(site)
    path = site.folder / "captions" / f"{Path(key).stem}.json"
    captions = json.loads(path.read_text(encoding="utf-8"))["objects"]
    moved = {str(int(instance) + 500): caption for instance, caption in captions.items()}
    path.write_text(json.dumps({"objects": moved}), encoding="utf-8")
    return [Planted((key,), "DC402", "captions of another scene")]


def _orphan_captions(site: Site) -> list[Planted]:
    """Add three captions with ids that no point has."""
    key = _victim(site)
    path = site.folder / "captions" / f"{Path(key).stem}.json"
    captions = json.loads(path.read_text(encoding="utf-8"))["objects"]
    captions |= {str(900 + i): caption for i, caption in enumerate(list(captions.values())[:3])}
    path.write_text(json.dumps({"objects": captions}), encoding="utf-8")
    return [Planted((key,), "DC408", "captions of three absent objects")]


def _old_truth(site: Site) -> list[Planted]:
    """Correct the labels, but not the ground truth."""
    key = _victim(site)
    cloud = np.load(site.folder / key)
    instance = np.unique(cloud[cloud[:, INSTANCE] >= 0, INSTANCE])[0]
    rows = cloud[:, INSTANCE] == instance
    cloud[rows, SEMANTIC] = 40 if cloud[rows, SEMANTIC][0] != 40 else 41
    np.save(site.folder / key, cloud)
    return [Planted((key,), "DC411", "the ground truth is of older labels")]


def _large_id(site: Site) -> list[Planted]:
    """Give one instance an id that the ground truth cannot hold."""
    key = _victim(site)
    cloud = np.load(site.folder / key)
    instance = np.unique(cloud[cloud[:, INSTANCE] >= 0, INSTANCE])[0]
    cloud[cloud[:, INSTANCE] == instance, INSTANCE] = 1203
    save(site, key, cloud)
    path = site.folder / "captions" / f"{Path(key).stem}.json"
    captions = json.loads(path.read_text(encoding="utf-8"))["objects"]
    captions["1203"] = captions.pop(str(int(instance)))
    path.write_text(json.dumps({"objects": captions}), encoding="utf-8")
    return [Planted((key,), "DC410", "an instance with id 1203")]


def _captions_gone(site: Site) -> list[Planted]:
    key = _victim(site)
    (site.folder / "captions" / f"{Path(key).stem}.json").unlink()
    return [Planted((key,), "DC104", "a scene has no captions")]


def _copied_to_validation(site: Site) -> list[Planted]:
    key = _victim(site)
    name = site.rng.bytes(5).hex()
    copy = f"validation/{name}.npy"
    site.taken.add(copy)
    save(site, copy, np.load(site.folder / key))
    captions = site.folder / "captions"
    (captions / f"{name}.json").write_bytes((captions / f"{Path(key).stem}.json").read_bytes())
    add_lines(site.folder / "val_list.txt", [name])
    return [Planted((copy,), "DC801", "a scene of train, copied to validation", (key,))]


def _raw(
    name: str, code: str, what: str, file: str, change: Callable[[dict[str, Any], Site], None]
) -> Fault:
    """Return a fault of one JSON file of a scene in ScanNet's own files."""

    def plant(site: Site) -> list[Planted]:
        key = site.pick(names(site, "*/*_vh_clean_2.ply"))[0]
        path = site.folder / f"{key.removesuffix('_vh_clean_2.ply')}{file}"
        record = json.loads(path.read_text(encoding="utf-8"))
        change(record, site)
        path.write_text(json.dumps(record), encoding="utf-8")
        return [Planted((key,), code, what)]

    return Fault(name, "scannet_raw", code, plant)


def _renumbered(record: dict[str, Any], site: Site) -> None:
    ids = record["segIndices"]
    record["segIndices"] = np.unique(ids, return_inverse=True)[1].tolist()


def _fewer_vertices(record: dict[str, Any], site: Site) -> None:
    record["segIndices"] = record["segIndices"][:-100]


def _absent_segment(record: dict[str, Any], site: Site) -> None:
    group = record["segGroups"][int(site.rng.integers(len(record["segGroups"])))]
    group["segments"].append(10_000_000)


def _groups_twice(record: dict[str, Any], site: Site) -> None:
    count = len(record["segGroups"])
    copies = [
        group | {"id": count + i, "objectId": count + i}
        for i, group in enumerate(record["segGroups"])
    ]
    record["segGroups"] += copies


def _failed_preprocessing(site: Site) -> list[Planted]:
    """Let two scenes fail: their entries in the database are None."""
    path = site.folder / "train_database.yaml"
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    indices = [int(i) for i in sorted(site.rng.choice(len(entries) + 2, 2, replace=False))]
    for index in indices:
        entries.insert(index, None)
    path.write_text(yaml.safe_dump(entries), encoding="utf-8")
    keys = tuple(f"train_database.yaml[{index}]" for index in indices)
    return [Planted(keys, "DC105", "None in the database")]


def _old_length(site: Site) -> list[Planted]:
    """Make a scene's recorded length larger than the scene, as if rows were filtered later."""
    key = _victim(site)
    path = site.folder / "train_database.yaml"
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    for entry in entries:
        if entry is not None and entry["filepath"] == key:
            entry["file_len"] += 12
    path.write_text(yaml.safe_dump(entries), encoding="utf-8")
    return [Planted((key,), "DC111", "a file_len of more rows than there are")]


FAULTS = (
    _edit("no-instances", "DC401", "no point has an instance", _no_instances),
    _edit("only-dropped-classes", "DC402", "every instance is wall or floor", _only_dropped),
    _edit("too-small-instances", "DC402", "no instance has over 5 points", _too_small),
    Fault("captions-of-another-scene", "scannetpp", "DC402", _no_captions),
    _edit("unknown-class", "DC404", "an instance of class 150", _unknown_class),
    _edit("other-ignore-label", "DC405", "-1 where -100 is declared", _other_ignore),
    _edit("points-in-mm", "DC201", "points in millimetres", _millimetres),
    _edit("colours-of-0-to-1", "DC205", "colours of 0..1 where 0..255 is declared", _unscaled),
    _edit("nan-point", "DC221", "one point is NaN", _nan_point),
    _edit("two-classes", "DC406", "an instance of two classes", _two_classes),
    _edit("segment-gaps", "DC412", "segments numbered 0, 3, 6", _segment_gaps),
    Fault("orphan-captions", "scannetpp", "DC408", _orphan_captions),
    Fault("old-ground-truth", "scannetpp", "DC411", _old_truth),
    Fault("large-instance-id", "scannetpp", "DC410", _large_id),
    _edit("no-normals", "DC311", "normals of zeros", _no_normals),
    Fault("label-rows-differ", "scannetpp", "DC123", _rows_differ),
    Fault("truncated-scene", "scannetpp", "DC101", _truncated),
    Fault("captions-gone", "scannetpp", "DC104", _captions_gone),
    Fault("copied-to-validation", "scannetpp", "DC801", _copied_to_validation),
    Fault("none-in-the-database", "scannet", "DC105", _failed_preprocessing),
    Fault("old-file-len", "scannet", "DC111", _old_length),
    _raw("other-segments", "DC408", "segments of another run", _SEGS, _renumbered),
    _raw(
        "segments-of-fewer-vertices",
        "DC123",
        "segs.json lacks 100 vertices",
        _SEGS,
        _fewer_vertices,
    ),
    _raw(
        "absent-segment",
        "DC408",
        "a group names a segment that is not there",
        ".aggregation.json",
        _absent_segment,
    ),
    _raw("groups-twice", "DC408", "every group stands twice", ".aggregation.json", _groups_twice),
)
