"""SceneLeapUltra, object-centric: a pickled dict of grasps per object, meshes; and their faults.

Layout::

    train/{object}_{32 hex}.npy      {"grasp_qpos": (N, 23), "obj_pose": (7,)}
    test/{object}_{32 hex}.npy
    objects/{object}_{32 hex}/mesh/simplified.obj
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datacheck.formats.base import open_container
from datacheck.testing.draw import Array, generator, lognormal, quaternion_product, unit_vectors
from datacheck.testing.fault import Fault, Planted, Site, names, truncate

MESH_SCALE = 0.1
OBJECTS = (
    "mug",
    "bowl",
    "bottle",
    "hammer",
    "stapler",
    "camera",
    "kettle",
    "shoe",
    "lamp",
    "toy_car",
    "wrench",
)

# Limits of the LEAP hand, rad: four joints of each of three fingers, then the thumb's.
_FINGER = ((-1.047, 1.047), (-0.314, 2.23), (-0.506, 1.885), (-0.366, 2.042))
_THUMB = ((-0.349, 2.094), (-0.47, 2.443), (-1.2, 1.9), (-1.34, 1.88))
_LIMITS = np.array(_FINGER * 3 + _THUMB)
_CLOSED = np.array([0.0, 1.1, 0.7, 0.5] * 3 + [1.1, 0.9, 0.4, 0.5])


@dataclass(frozen=True)
class SceneleapSize:
    """Size of the dataset.

    Args:
        train, test: objects per split.
        grasps: median number of grasps of an object; `spread` is the log-normal sigma, `low` and
            `high` clip it.
        rings: rings of a mesh; it has about 3/2 rings squared vertices.
    """

    train: int = 40
    test: int = 8
    grasps: int = 140
    spread: float = 0.4
    low: int = 72
    high: int = 600
    rings: int = 10


REAL = SceneleapSize(train=285, test=32, grasps=1786, spread=0.8, low=12, high=9008, rings=24)


def write(folder: Path, seed: int, size: SceneleapSize) -> None:
    """Write a clean dataset."""
    for split, count in (("train", size.train), ("test", size.test)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            rng = generator(seed, "sceneleap", split, number)
            code = f"{OBJECTS[number % len(OBJECTS)]}_{rng.bytes(16).hex()}"
            vertices, faces = mesh(rng, size.rings)
            rows = lognormal(rng, size.grasps, size.spread, size.low, size.high)
            record = grasps(rng, rows, vertices * MESH_SCALE)
            np.save(folder / split / f"{code}.npy", np.array(record, dtype=object))
            mesh_folder = folder / "objects" / code / "mesh"
            mesh_folder.mkdir(parents=True, exist_ok=True)
            (mesh_folder / "simplified.obj").write_text(obj_text(vertices, faces), encoding="utf-8")


def mesh(rng: np.random.Generator, rings: int) -> tuple[Array, Array]:
    """Return a closed, star-shaped object about 6 to 18 cm across.

    It is enlarged ten times, as Objaverse meshes are.

    Shapes:
        returns: float64 (V, 3) [0.1 m] around its own origin; int64 (F, 3)
    """
    around = 3 * rings // 2
    polar = np.pi * np.arange(1, rings) / rings
    azimuth = 2 * np.pi * np.arange(around) / around
    body = np.stack(
        [
            np.outer(np.sin(polar), np.cos(azimuth)),
            np.outer(np.sin(polar), np.sin(azimuth)),
            np.outer(np.cos(polar), np.ones(around)),
        ],
        axis=-1,
    ).reshape(-1, 3)
    sphere = np.concatenate([[[0.0, 0.0, 1.0]], body, [[0.0, 0.0, -1.0]]])
    bumps = 1 + 0.12 * np.sin(sphere @ rng.uniform(1, 4, (3, 2)) + rng.uniform(0, 6, 2)).sum(axis=1)
    vertices = sphere * bumps[:, None] * rng.uniform(0.25, 0.7, 3)
    return vertices, np.array(_triangles(rings, around), dtype=np.int64)


def _triangles(rings: int, around: int) -> list[tuple[int, int, int]]:
    last_vertex = 1 + (rings - 1) * around
    faces = []
    for j in range(around):
        k = (j + 1) % around
        faces += [
            (0, 1 + j, 1 + k),
            (last_vertex, last_vertex - around + k, last_vertex - around + j),
        ]
        for i in range(rings - 2):
            a = 1 + i * around
            b = 1 + (i + 1) * around
            faces += [(a + j, b + j, b + k), (a + j, b + k, a + k)]
    return faces


def grasps(rng: np.random.Generator, rows: int, vertices: Array) -> dict[str, Array]:
    """Return the record of one object: grasps around it, and its pose on the table.

    Shapes:
        vertices: float (V, 3) [m], in the object's own frame
        returns: grasp_qpos float64 (rows, 23): palm position [m], quaternion w x y z, 16 joints
            [rad]; grasp-world frame, table at z = 0; obj_pose float64 (7): translation [m],
            quaternion w x y z
    """
    yaw = rng.uniform(-np.pi, np.pi)
    object_position = np.array([*rng.uniform(-0.15, 0.15, 2), -vertices[:, 2].min()])
    centre = object_position + np.array(
        [0.0, 0.0, (vertices[:, 2].min() + vertices[:, 2].max()) / 2]
    )
    directions = unit_vectors(rng, rows)
    directions[:, 2] = np.abs(directions[:, 2]) * 0.9 + 0.05  # the hand comes from above
    directions /= np.sqrt(np.einsum("ij,ij->i", directions, directions))[:, None]
    palm = centre + directions * rng.uniform(0.14, 0.26, rows)[:, None]
    toward = -directions
    # Rotates +z to `toward`.
    turn = np.stack([1 + toward[:, 2], -toward[:, 1], toward[:, 0], np.zeros(rows)], axis=1)
    roll = rng.uniform(-np.pi, np.pi, rows) / 2
    quaternion = quaternion_product(
        turn, np.stack([np.cos(roll), 0 * roll, 0 * roll, np.sin(roll)], axis=1)
    )
    quaternion /= np.sqrt(np.einsum("ij,ij->i", quaternion, quaternion))[:, None]
    closing = rng.uniform(0.5, 1.15, (rows, 1))
    joints = np.clip(
        _CLOSED * closing + 0.18 * rng.standard_normal((rows, 16)), _LIMITS[:, 0], _LIMITS[:, 1]
    )
    pose = np.concatenate([object_position, [np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]])
    return {"grasp_qpos": np.concatenate([palm, quaternion, joints], axis=1), "obj_pose": pose}


def obj_text(vertices: Array, faces: Array) -> str:
    """Return the Wavefront text of a triangle mesh."""
    lines = [f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in vertices.tolist()]
    lines += [f"f {a} {b} {c}" for a, b, c in (faces + 1).tolist()]
    return "\n".join(lines) + "\n"


Record = dict[str, Array]


def _read(path: Path) -> Record:
    container = open_container(path)
    try:
        return {name: np.array(container.read(name)) for name in container.names()}
    finally:
        container.close()


def _write(path: Path, record: Record) -> None:
    np.save(path, np.array(record, dtype=object))


def _victim(site: Site, split: str = "train") -> str:
    return site.pick(names(site, f"{split}/*.npy"))[0]


def _edit(
    name: str, code: str, what: str, change: Callable[[Record, np.random.Generator], None]
) -> Fault:
    def plant(site: Site) -> list[Planted]:
        key = _victim(site)
        record = _read(site.folder / key)
        change(record, site.rng)
        _write(site.folder / key, record)
        return [Planted((key,), code, what)]

    return Fault(name, "sceneleap", code, plant)


def _millimetres(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"][:, :3] *= 1000


def _degrees(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"][:, 7:] = np.rad2deg(record["grasp_qpos"][:, 7:])


def _nan_row(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"][int(rng.integers(len(record["grasp_qpos"])))] = np.nan


def _zeros(record: Record, rng: np.random.Generator) -> None:
    for name in record:
        record[name] = np.zeros_like(record[name])


def _minus_one_rows(record: Record, rng: np.random.Generator) -> None:
    grasps = record["grasp_qpos"]
    grasps[rng.choice(len(grasps), len(grasps) // 6, replace=False)] = -1.0


def _scalar_last(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"][:, 3:7] = np.roll(record["grasp_qpos"][:, 3:7], -1, axis=1)


def _beyond(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"][:, 8] = 2.5


def _floating(record: Record, rng: np.random.Generator) -> None:
    for part in (record["grasp_qpos"][:, 2], record["obj_pose"][2:3]):
        part += 0.15


def _zero_quaternion(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"][int(rng.integers(len(record["grasp_qpos"]))), 3:7] = 0.0


def _one_column_less(record: Record, rng: np.random.Generator) -> None:
    record["grasp_qpos"] = record["grasp_qpos"][:, :22].copy()


def _no_pose(record: Record, rng: np.random.Generator) -> None:
    del record["obj_pose"]


def _truncated(site: Site) -> list[Planted]:
    key = _victim(site)
    truncate(site.folder / key)
    return [Planted((key,), "DC101", "half of a grasp file is missing")]


def _garbage(site: Site) -> list[Planted]:
    key = _victim(site)
    (site.folder / key).write_bytes(site.rng.bytes(4096))
    return [Planted((key,), "DC101", "a grasp file holds random bytes")]


def _copied(site: Site, source: str, target: str) -> None:
    """Give the copied object a mesh too, so that only the intended fault shows."""
    a, b = (site.folder / "objects" / Path(name).stem for name in (source, target))
    if not b.exists():
        shutil.copytree(a, b)


def _new_name(site: Site, split: str, like: str) -> str:
    name = f"{split}/{Path(like).stem.rpartition('_')[0]}_{site.rng.bytes(16).hex()}.npy"
    site.taken.add(name)
    return name


def _duplicate(site: Site) -> list[Planted]:
    key = _victim(site)
    copy = _new_name(site, "train", key)
    shutil.copyfile(site.folder / key, site.folder / copy)
    _copied(site, key, copy)
    first, second = sorted((key, copy))
    return [Planted((second,), "DC803", "one object's grasps, twice in train", (first,))]


def _copied_to_test(site: Site) -> list[Planted]:
    key = _victim(site)
    copy = _new_name(site, "test", key)
    shutil.copyfile(site.folder / key, site.folder / copy)
    _copied(site, key, copy)
    return [Planted((copy,), "DC801", "a file of train, copied to test and renamed", (key,))]


def _leaked(site: Site) -> list[Planted]:
    key = _victim(site)
    other = f"test/{Path(key).name}"
    site.taken.add(other)
    record = _read(site.folder / key)
    half = len(record["grasp_qpos"]) // 2
    _write(site.folder / other, record | {"grasp_qpos": record["grasp_qpos"][half:].copy()})
    _write(site.folder / key, record | {"grasp_qpos": record["grasp_qpos"][:half].copy()})
    return [Planted((other,), "DC802", "one object's grasps in train and in test", (key,))]


def _changed_byte(site: Site) -> list[Planted]:
    """Flip the last bit of one number: no value reveals it, only the digest does."""
    key = _victim(site)
    path = site.folder / key
    grasps = _read(path)["grasp_qpos"]
    data = bytearray(path.read_bytes())
    data[data.index(grasps[len(grasps) // 2, 0].tobytes())] ^= 1
    path.write_bytes(bytes(data))
    return [Planted((key,), "DC108", "one byte changed since the last scan")]


def _pointer(site: Site) -> list[Planted]:
    key = _victim(site)
    size = (site.folder / key).stat().st_size
    text = (
        f"version https://git-lfs.github.com/spec/v1\noid "
        f"sha256:{site.rng.bytes(32).hex()}\nsize {size}\n"
    )
    (site.folder / key).write_text(text, encoding="ascii")
    return [Planted((key,), "DC102", "a Git LFS pointer in place of a grasp file")]


def _empty(site: Site) -> list[Planted]:
    key = _victim(site)
    (site.folder / key).write_bytes(b"")
    return [Planted((key,), "DC103", "a grasp file of 0 bytes")]


class _PickledCall:
    """Pickles as a call of a function, which no data needs."""

    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        return str.upper, ("not data",)


def _unsafe(site: Site) -> list[Planted]:
    key = _victim(site)
    record = _read(site.folder / key) | {"note": np.array(_PickledCall(), dtype=object)}
    _write(site.folder / key, record)
    return [Planted((key,), "DC110", "a grasp file whose pickle calls a function")]


def _two_faces(site: Site) -> list[Planted]:
    key = _victim(site)
    path = site.folder / "objects" / Path(key).stem / "mesh" / "simplified.obj"
    lines = path.read_text(encoding="ascii").splitlines(keepends=True)
    faces = [line for line in lines if line.startswith("f ")]
    path.write_text(
        "".join([line for line in lines if not line.startswith("f ")] + faces[:2]), encoding="ascii"
    )
    return [Planted((key,), "DC128", "a mesh of two faces")]


def _other_order(record: Record, rng: np.random.Generator) -> None:
    grasps = record["grasp_qpos"]
    record["grasp_qpos"] = np.concatenate([grasps[:, :3], grasps[:, 7:], grasps[:, 3:7]], axis=1)


def _apple_double(site: Site) -> list[Planted]:
    key = names(site, "train/*.npy")[0]
    (site.folder / f"train/._{Path(key).name}").write_bytes(b"\0\5\x16\7" + bytes(78))
    return [Planted((), "DC107", "macOS left half a file beside a file")]


FAULTS = (
    _edit("grasps-in-mm", "DC201", "palm positions in millimetres", _millimetres),
    _edit("joints-in-degrees", "DC202", "hand joints in degrees", _degrees),
    _edit("nan-row", "DC221", "one grasp is NaN", _nan_row),
    _edit("minus-one-rows", "DC222", "a sixth of the grasps is -1", _minus_one_rows),
    _edit("beyond-the-limit", "DC603", "a finger bent further than it can", _beyond),
    _edit("floating-object", "DC313", "an object 15 cm above the table", _floating),
    _edit("zero-quaternion", "DC304", "one quaternion is 0 0 0 0", _zero_quaternion),
    _edit("quaternions-xyzw", "DC305", "quaternions as x y z w", _scalar_last),
    _edit("zero-placeholder", "DC109", "an object of zeros after an exception", _zeros),
    _edit("one-column-less", "DC122", "grasps of 22 numbers", _one_column_less),
    _edit("no-object-pose", "DC121", "obj_pose is missing", _no_pose),
    _edit("cache-order", "DC125", "grasps in the order of the cache", _other_order),
    Fault("two-faces", "sceneleap", "DC128", _two_faces),
    Fault("truncated-file", "sceneleap", "DC101", _truncated),
    Fault("lfs-pointer", "sceneleap", "DC102", _pointer),
    Fault("empty-file", "sceneleap", "DC103", _empty),
    Fault("apple-double", "sceneleap", "DC107", _apple_double),
    Fault("unsafe-pickle", "sceneleap", "DC110", _unsafe),
    Fault("garbage-file", "sceneleap", "DC101", _garbage),
    Fault("duplicate-file", "sceneleap", "DC803", _duplicate),
    Fault("copied-to-test", "sceneleap", "DC801", _copied_to_test),
    Fault("leaked-object", "sceneleap", "DC802", _leaked),
    Fault("changed-byte", "sceneleap", "DC108", _changed_byte, later=True),
)
