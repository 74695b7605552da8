"""SceneLeapUltra, object-centric: a pickled dict of grasps per object, and the objects' meshes.

Layout::

    train/{object}_{32 hex}.npy      {"grasp_qpos": (N, 23), "obj_pose": (7,)}
    test/{object}_{32 hex}.npy
    objects/{object}_{32 hex}/mesh/simplified.obj
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datacheck.testing.synth.draw import (
    Array,
    generator,
    lognormal,
    quaternion_product,
    unit_vectors,
)

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
