"""Faults of grasp files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from datacheck.formats.base import open_container
from datacheck.testing.faults.base import Fault, Planted, Site, names, truncate
from datacheck.testing.synth.draw import Array

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
