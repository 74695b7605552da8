"""Indoor scenes for instance segmentation: 12 columns per point, as Mask3D and ExCap3D read them.

ExCap3D is a fork of Mask3D. Layout ("scannetpp")::

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from datacheck.testing.synth.draw import Array, generator, lognormal

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
