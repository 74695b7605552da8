"""Indoor scenes for instance segmentation, 12 columns per point, and their faults.

Mask3D and ExCap3D, a fork of it, read them. Layout ("scannetpp")::

    {train,validation}/{scene}.npy        float32 (N, 12): xyz rgb normal segment semantic instance
    instance_gt/{mode}/{scene}.txt        semantic * 1000 + instance + 1, one integer per point
    {train,validation}_database.yaml      one entry per scene
    label_database.yaml, color_mean_std.yaml
    captions/{scene}.json                 {"objects": {"<instance>": {...}}}
    train_list.txt, val_list.txt

"scannet" differs in names (scene0000_00), labels (nyu40) and the mark of unlabelled points
(instance -1), and has no captions. "scannet_raw" has the files that ScanNet itself publishes for
each scene of "scannet"::

    {scene}/{scene}_vh_clean_2.ply                  vertices, colours, faces
    {scene}/{scene}_vh_clean_2.labels.ply           the same with the label of each vertex
    {scene}/{scene}_vh_clean_2.0.010000.segs.json   {"segIndices": [segment of each vertex]}
    {scene}/{scene}.aggregation.json                {"segGroups": [{"id", "objectId", "segments",
    "label"}]}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from datacheck.testing.draw import Array, generator, lognormal
from datacheck.testing.fault import Fault, Planted, Site, add_lines, names, truncate

NAMES = (
    "wall",
    "ceiling",
    "floor",
    "table",
    "door",
    "ceiling_lamp",
    "cabinet",
    "blinds",
    "curtain",
    "chair",
    "storage_cabinet",
    "office_chair",
    "bookshelf",
    "whiteboard",
    "window",
    "box",
    "window_frame",
    "monitor",
    "shelf",
    "doorframe",
    "pipe",
    "heater",
    "kitchen_cabinet",
    "sofa",
    "windowsill",
    "bed",
    "shower_wall",
    "trash_can",
    "book",
    "plant",
    "blanket",
    "tv",
    "computer_tower",
    "kitchen_counter",
    "refrigerator",
    "jacket",
    "electrical_duct",
    "sink",
    "bag",
    "picture",
    "pillow",
    "towel",
    "suitcase",
    "backpack",
    "crate",
    "keyboard",
    "rack",
    "toilet",
    "paper",
    "printer",
    "poster",
    "painting",
    "microwave",
    "board",
    "shoes",
    "socket",
    "bottle",
    "bucket",
    "cushion",
    "basket",
    "shoe_rack",
    "telephone",
    "file_folder",
    "cloth",
    "blind_rail",
    "laptop",
    "plant_pot",
    "exhaust_fan",
    "cup",
    "coat_hanger",
    "light_switch",
    "speaker",
    "table_lamp",
    "air_vent",
    "clothes_hanger",
    "kettle",
    "smoke_detector",
    "container",
    "power_strip",
    "slippers",
    "paper_bag",
    "mouse",
    "cutting_board",
    "toilet_paper",
    "paper_towel",
    "pot",
    "clock",
    "pan",
    "tap",
    "jar",
    "soap_dispenser",
    "binder",
    "bowl",
    "tissue_box",
    "whiteboard_eraser",
    "toilet_brush",
    "spray_bottle",
    "headphones",
    "stapler",
    "marker",
)
CEILING = 1
FLOOR = 2
WALL = 0
IGNORE = -100
_TINT = np.array([0.476, 0.428, 0.373])  # mean colour of ScanNet
_FACES = np.array(
    [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], dtype=np.float64
)


@dataclass(frozen=True)
class ScannetSize:
    """Size of the dataset.

    Args:
        train, validation: scenes per split.
        points: median points of a scene; `spread` is the log-normal sigma, `low` and `high` clip
            it.
        instances: fewest and most objects of a scene.
    """

    train: int = 24
    validation: int = 6
    points: int = 24_000
    spread: float = 0.15
    low: int = 16_000
    high: int = 40_000
    instances: tuple[int, int] = (20, 26)


REAL = ScannetSize(
    train=1201,
    validation=312,
    points=131_730,
    spread=0.567,
    low=9_237,
    high=537_406,
    instances=(20, 60),
)


@dataclass(frozen=True)
class _Variant:
    name: str
    classes: tuple[int, ...]
    wall: int
    floor: int
    ceiling: int
    ignored: tuple[int, int]  # semantic label and instance of an unlabelled point
    lists: dict[str, str]
    captions: bool


_SCANNETPP = _Variant(
    "scannetpp",
    tuple(range(3, len(NAMES))),
    WALL,
    FLOOR,
    CEILING,
    (IGNORE, IGNORE),
    {"train": "train_list.txt", "validation": "val_list.txt"},
    captions=True,
)
_SCANNET = _Variant(
    "scannet",
    tuple(range(3, 40)),
    1,
    2,
    22,
    (0, -1),
    {"train": "train_list.txt", "validation": "val_list.txt"},
    captions=False,
)


def write(folder: Path, seed: int, size: ScannetSize, *, variant: str = "scannetpp") -> None:
    """Write a clean dataset."""
    like = _SCANNETPP if variant == "scannetpp" else _SCANNET
    entries: dict[str, list[dict[str, Any]]] = {}
    for split, count in (("train", size.train), ("validation", size.validation)):
        for subfolder in (split, f"instance_gt/{split}", "captions" if like.captions else split):
            (folder / subfolder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            rng = generator(seed, like.name, split, number)
            entries.setdefault(split, []).append(
                _write_scene(folder, split, number, rng, size, like)
            )
        names = [Path(entry["filepath"]).stem for entry in entries.get(split, [])]
        (folder / like.lists[split]).write_text(
            "".join(f"{name}\n" for name in names), encoding="utf-8"
        )
        _dump(folder / f"{split}_database.yaml", entries.get(split, []))
    labels = range(len(NAMES)) if like.captions else range(41)
    _dump(
        folder / "label_database.yaml",
        {i: {"color": _color(i), "name": NAMES[i], "validation": True} for i in labels},
    )
    means = np.array([e["color_mean"] for e in entries.get("train", [])])
    squares = np.array([e["color_std"] for e in entries.get("train", [])])
    if len(means):
        std = np.sqrt(squares.mean(axis=0) - means.mean(axis=0) ** 2)
        _dump(
            folder / "color_mean_std.yaml",
            {"mean": means.mean(axis=0).tolist(), "std": std.tolist()},
        )


def write_raw(folder: Path, seed: int, size: ScannetSize) -> None:
    """Write a clean dataset in ScanNet's own files, all scenes in one folder."""
    for number in range(size.train):
        rng = generator(seed, "scannet_raw", number)
        name = f"scene{number:04d}_00"
        points = lognormal(rng, size.points, size.spread, size.low, size.high)
        cloud = scene(
            rng, points, int(rng.integers(size.instances[0], size.instances[1] + 1)), _SCANNET
        )
        # Sorted by segment: three consecutive points make a face.
        cloud = cloud[np.lexsort((cloud[:, 0], cloud[:, 9]))]
        (folder / name).mkdir(parents=True)
        for end, labelled in (("", False), (".labels", True)):
            (folder / name / f"{name}_vh_clean_2{end}.ply").write_bytes(
                _mesh(cloud, labelled=labelled)
            )
        # ScanNet names a segment by one of its vertices.
        segments = np.unique(cloud[:, 9], return_index=True)[1][cloud[:, 9].astype(np.int64)]
        segmentation = {
            "params": {"kThresh": "0.0100", "segMinVerts": "20"},
            "sceneId": name,
            "segIndices": segments.tolist(),
        }
        (folder / name / f"{name}_vh_clean_2.0.010000.segs.json").write_text(
            json.dumps(segmentation), encoding="utf-8"
        )
        (folder / name / f"{name}.aggregation.json").write_text(
            json.dumps(
                {
                    "sceneId": f"scannet.{name}",
                    "appId": "Aggregator.v2",
                    "segGroups": _groups(cloud, segments),
                }
            ),
            encoding="utf-8",
        )


def _mesh(cloud: Array, *, labelled: bool) -> bytes:
    """Return a binary PLY file of a scene."""
    kinds = [
        ("x", "<f4"),
        ("y", "<f4"),
        ("z", "<f4"),
        *((c, "u1") for c in ("red", "green", "blue", "alpha")),
    ]
    vertices = np.zeros(len(cloud), dtype=[*kinds, *([("label", "<u2")] if labelled else [])])
    for column, (name, _) in enumerate(kinds[:6]):
        vertices[name] = cloud[:, column]
    vertices["alpha"] = 255
    if labelled:
        vertices["label"] = cloud[:, 10]
    faces = np.zeros(len(cloud) - 2, dtype=[("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, np.arange(len(faces))[:, None] + [0, 1, 2]
    words = {"<f4": "float", "u1": "uchar", "<u2": "ushort"}
    lines = [
        f"property {words[str(vertices.dtype[n].str).replace('|', '')]} {n}"
        for n in vertices.dtype.names or ()
    ]
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(vertices)}", *lines]
    head += [
        f"element face {len(faces)}",
        "property list uchar int vertex_indices",
        "end_header",
        "",
    ]
    return "\n".join(head).encode() + vertices.tobytes() + faces.tobytes()


def _groups(cloud: Array, segments: Array) -> list[dict[str, Any]]:
    groups = []
    for number, instance in enumerate(np.unique(cloud[cloud[:, 11] >= 0, 11]).tolist()):
        in_instance = cloud[:, 11] == instance
        label = NAMES[int(cloud[in_instance, 10][0])].replace("_", " ")
        segment_ids = np.unique(segments[in_instance]).tolist()
        groups.append({"id": number, "objectId": number, "segments": segment_ids, "label": label})
    return groups


def _color(i: int) -> list[int]:
    return [(37 * i) % 256, (91 * i + 40) % 256, (151 * i + 90) % 256]


def _dump(path: Path, value: Any) -> None:
    path.write_text(
        yaml.safe_dump(value, sort_keys=False, default_flow_style=None), encoding="utf-8"
    )


def _write_scene(
    folder: Path,
    split: str,
    number: int,
    rng: np.random.Generator,
    size: ScannetSize,
    like: _Variant,
) -> dict[str, Any]:
    name = (
        rng.bytes(5).hex()
        if like.captions
        else f"scene{number + (0 if split == 'train' else 2000):04d}_00"
    )
    points = lognormal(rng, size.points, size.spread, size.low, size.high)
    cloud = scene(rng, points, int(rng.integers(size.instances[0], size.instances[1] + 1)), like)
    np.save(folder / split / f"{name}.npy", cloud)
    labels = cloud[:, 10].astype(np.int64) * 1000 + cloud[:, 11].astype(np.int64) + 1
    truth = f"instance_gt/{split}/{name}.txt"
    (folder / truth).write_text("\n".join(map(str, labels.tolist())) + "\n", encoding="utf-8")
    if like.captions:
        (folder / "captions" / f"{name}.json").write_text(
            json.dumps(_captions(rng, cloud)), encoding="utf-8"
        )
    color = cloud[:, 3:6].astype(np.float64) / 255
    return {
        "filepath": f"{split}/{name}.npy",
        "raw_filepath": f"raw/{name}.pth",
        "scene": name,
        "file_len": len(cloud),
        "instance_gt_filepath": truth,
        "color_mean": color.mean(axis=0).tolist(),
        "color_std": (color**2).mean(axis=0).tolist(),
    }


def scene(
    rng: np.random.Generator, points: int, instances: int, like: _Variant = _SCANNETPP
) -> Array:
    """Return a furnished room.

    Shapes:
        returns: float32 (points, 12): xyz [m] with z up, rgb 0..255, unit normal, segment 0..S-1,
            semantic, instance
    """
    room = np.array([rng.uniform(4.0, 7.5), rng.uniform(3.5, 6.0), rng.uniform(2.4, 3.0)])
    boxes = _furniture(rng, room, instances)
    area = 2 * (boxes[:, 3] * boxes[:, 4] + boxes[:, 3] * boxes[:, 5] + boxes[:, 4] * boxes[:, 5])
    share = np.floor(0.62 * points * area / area.sum()).astype(np.int64)
    stray = points // 25
    ids = np.sort(rng.choice(np.arange(1, 400), instances, replace=False))
    classes = rng.choice(like.classes, instances)
    parts = [
        _surface(rng, box[:3], box[3:], int(n), int(c), int(i))
        for box, n, c, i in zip(boxes, share, classes, ids, strict=True)
    ]
    parts.append(_shell(rng, room, points - int(share.sum()) - stray, like))
    parts.append(_surface(rng, room * 0.1, room * 0.8, stray, *like.ignored))
    cloud = np.concatenate(parts)[rng.permutation(points)]
    cloud[:, 9] = np.unique(cloud[:, 9], return_inverse=True)[1]
    return cloud.astype(np.float32)


def _furniture(rng: np.random.Generator, room: Array, count: int) -> Array:
    """Return float64 (count, 6): corner and extent of boxes in separate cells of a grid."""
    columns = int(np.ceil(np.sqrt(count * room[0] / room[1])))
    rows = -(-count // columns)
    cell = np.array([room[0] / columns, room[1] / rows])
    spot = rng.permutation(columns * rows)[:count]
    width = cell * rng.uniform(0.55, 0.9, (count, 2))
    extent = np.concatenate([width, rng.uniform(0.4, 1.6, (count, 1))], axis=1)
    corner = np.stack(
        [(spot % columns) * cell[0], (spot // columns) * cell[1], rng.uniform(0, 0.3, count)],
        axis=1,
    )
    corner[:, :2] += (cell - extent[:, :2]) * rng.uniform(0.1, 0.9, (count, 2))
    return np.concatenate([corner, extent], axis=1)


def _surface(
    rng: np.random.Generator, corner: Array, extent: Array, count: int, semantic: int, instance: int
) -> Array:
    """Return float64 (count, 12): points on a box, one segment per face."""
    area = np.repeat([extent[1] * extent[2], extent[0] * extent[2], extent[0] * extent[1]], 2)
    face = rng.choice(6, size=count, p=area / area.sum())
    xyz = rng.uniform(size=(count, 3))
    axis = face // 2
    rows = np.arange(count)
    xyz[rows, axis] = 1.0 - face % 2
    xyz = corner + xyz * extent + 0.002 * rng.standard_normal((count, 3))
    return _dressed(rng, xyz, _FACES[face], face, semantic, instance)


def _shell(rng: np.random.Generator, room: Array, count: int, like: _Variant) -> Array:
    """Return float64 (count, 12): floor, ceiling and walls, with a class but no instance."""
    cloud = _surface(rng, np.zeros(3), room, count, like.wall, like.ignored[1])
    cloud[:, 6:9] *= -1.0  # seen from the inside
    cloud[cloud[:, 8] > 0.5, 10] = like.floor
    cloud[cloud[:, 8] < -0.5, 10] = like.ceiling
    return cloud


def _dressed(
    rng: np.random.Generator, xyz: Array, normal: Array, face: Array, semantic: int, instance: int
) -> Array:
    count = len(xyz)
    base = np.clip(_TINT + 0.22 * rng.standard_normal() + 0.06 * rng.standard_normal(3), 0.06, 0.92)
    rgb = np.round(255 * np.clip(base + 0.07 * rng.standard_normal((count, 3)), 0.0, 1.0))
    segment = face + 8.0 * rng.integers(1, 1 << 20)
    labels = np.broadcast_to([float(semantic), float(instance)], (count, 2))
    return np.concatenate([xyz, rgb, normal, segment[:, None], labels], axis=1)


def _captions(rng: np.random.Generator, cloud: Array) -> dict[str, Any]:
    ids, first_rows = np.unique(cloud[:, 11], return_index=True)
    objects = {}
    for instance, row in zip(ids.tolist(), first_rows.tolist(), strict=True):
        if instance >= 0:
            name = NAMES[int(cloud[row, 10])].replace("_", " ")
            tone = ("dark", "light", "wooden", "metal", "plain", "worn")[int(rng.integers(6))]
            objects[str(int(instance))] = {
                "summarized_local_caption_16": f"a {tone} {name} in the room",
                "summarized_parts_caption_16": f"the {name} has a {tone} surface and straight edges",
            }
    return {"objects": objects}


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
