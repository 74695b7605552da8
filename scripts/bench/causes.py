"""Causes against one another: every fault of unit, centre, frame, order, scale and convention, alone and two at once.

    python scripts/bench/causes.py [WORLD ...] [--seeds 3] [--pairs 1] [--workers 2] [--verbose]

Six small datasets are made in memory (hands, grasps, centred clouds, clouds, robots, depth). Each
fault of a dataset is planted in 1 %, 10 %, 50 % and all of its samples, then each two faults
together in 10 %, but no two of the same values or axes, which would make one other fault. The whole
catalogue judges. A run counts as right where a finding names the planted cause; as silent where no
finding that touches a broken sample names any, or says that several fit; as wrong where one names
another cause. Faults that nothing can tell from good data, or that have no known cause (a scale of
1/512), must stay silent.

Ends with 1 where right and silent are less than 0.99 of the runs, or where a factor that
`datacheck fix` would use is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.model.finding import Finding, Severity
from datacheck.testing.draw import rotation, unit_vectors
from datacheck.testing.ho3d import articulated, placed

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.trials.base import Samples, changed, sample
from tests.trials.memory import scan_pieces, schema_of

Array = np.ndarray[Any, Any]
Values = dict[str, Array]
GROUP = 20  # samples of a recording
SHARES = (0.01, 0.1, 0.5, 1.0)


@dataclass(frozen=True)
class Fault:
    """One way to break a sample.

    Args:
        kinds: causes that are right, as `Cause.kind` says them; none: nothing may be named.
        change: returns the fields that differ.
        part: of which field or part of one the values change as a whole; "" where other things do.
        back: what these must be multiplied by to be good again, where a factor mends them.
    """

    kinds: frozenset[str]
    change: Callable[[Values], Values]
    part: str = ""
    back: float | None = None


@dataclass(frozen=True)
class World:
    """A dataset: what its schema declares, how a sample is made, how it breaks."""

    schema: Mapping[str, Any]
    make: Callable[[np.random.Generator, int], Values]
    faults: Mapping[str, Fault]
    grouped: bool = False  # in recordings
    count: int = 200


def scaled(
    name: str, by: float, *kinds: str, columns: slice = slice(None), part: str = ""
) -> Fault:
    """Multiply the values of a field, or some columns of them."""

    def change(values: Values) -> Values:
        out = values[name].copy()
        out[..., columns] = out[..., columns] * by
        return {name: out}

    return Fault(frozenset(kinds), change, part or name, 1 / by)


def edited(name: str, change: Callable[[Array], Array], *kinds: str, part: str = "") -> Fault:
    """Change a field in another way."""
    return Fault(frozenset(kinds), lambda values: {name: change(values[name].copy())}, part)


def set_columns(columns: slice, change: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return what changes some columns of an array."""

    def changed(values: Array) -> Array:
        values[..., columns] = change(values[..., columns])
        return values

    return changed


def lengths(name: str, columns: slice = slice(None), part: str = "") -> dict[str, Fault]:
    """Return faults of the unit of lengths."""
    which: dict[str, Any] = {"columns": columns, "part": part}
    units = {"mm": 1000.0, "cm": 100.0, "in": 1 / 0.0254, "ft": 1 / 0.3048}
    found = {
        f"{name} in {unit}": scaled(name, by, unit, "mixed", **which) for unit, by in units.items()
    }
    for unit, by in (("mm", 1000.0), ("cm", 100.0)):
        found[f"{name} twice from {unit}"] = scaled(name, 1 / by, f"twice-{unit}", "mixed", **which)
    # Of no known unit, nor nearer than 1.4 times to one
    for by in (1 / 512, 5.0, 7.0, 60.0, 200.0):
        found[f"{name} x{by:.3g}"] = scaled(name, by, **which)
    return found


# -------------------------------------------------------------------------------------------- hands

HANDS = {
    "fields": {
        "j": {
            "role": "joints",
            "shape": [21, 3],
            "unit": "m",
            "skeleton": "mano21_ho3d",
            "frame": "camera_opengl",
            "centered": "no",
            "size": "0.014..0.056",
            "distance": "0.2..1.5",
            "intrinsics": "k",
            "image_size": [640, 480],
        },
        "k": {"role": "intrinsics", "shape": [3, 3], "unit": "px"},
        "pose": {"role": "rotvec", "shape": [48], "unit": "rad"},
    },
    "samples": {"files": "*", "group": "{seq}"},
}


def hand(rng: np.random.Generator, number: int) -> Values:
    """Return a hand in view of its camera; the twenty of a recording are about in one place."""
    joints = placed(rng, articulated(rng, 1), unit_vectors(rng, 1) * rng.uniform(0.4, 1.8))[0]
    place = np.random.default_rng(number // GROUP).uniform([-0.15, -0.08, -0.7], [0.15, 0.08, -0.5])
    joints += place + rng.normal(0, 0.01, 3) - joints.mean(axis=0)
    focal = 617 + 3 * rng.standard_normal()
    k = np.array(
        [
            [focal, 0, 312 + rng.standard_normal()],
            [0, focal, 241 + rng.standard_normal()],
            [0, 0, 1],
        ]
    )
    return {"j": joints, "k": k, "pose": rng.normal(0, 0.4, 48)}


def hand_faults() -> dict[str, Fault]:
    """Return how hands break."""
    flip = np.array([1.0, -1.0, -1.0])
    swap = list(range(21))
    swap[7:10], swap[10:13] = swap[10:13], swap[7:10]
    swap[19], swap[20] = swap[20], swap[19]
    return lengths("j") | {
        "root at the origin": edited("j", lambda j: j - j[0], "root"),
        "mean at the origin": edited("j", lambda j: j - j.mean(axis=0), "centroid"),
        "OpenCV": edited("j", lambda j: j * flip, "camera_opencv", part="axes of j"),
        "root subtracted twice": edited("j", lambda j: j - 2 * j[0], "twice-root"),
        "mean subtracted twice": edited("j", lambda j: j - 2 * j.mean(axis=0), "twice-centroid"),
        "x reversed": edited(
            "j", lambda j: j * np.array([-1.0, 1, 1]), "reversed-x", part="axes of j"
        ),
        "y reversed": edited(
            "j", lambda j: j * np.array([1.0, -1, 1]), "reversed-y", part="axes of j"
        ),
        "y and z swapped": edited("j", lambda j: j[:, [0, 2, 1]]),
        "ring and pinky swapped": edited("j", lambda j: j[swap], "order"),
        "copies of the root": edited("j", lambda j: np.repeat(j[:1], 21, axis=0), "copies"),
        "pose in degrees": scaled("pose", 180 / math.pi, "deg"),
        "pose x1000": scaled("pose", 1000.0),
    }


# ------------------------------------------------------------------------------------------- grasps

GRASPS = {
    "fields": {
        "grasp": {"role": "pose", "shape": ["G", 23], "columns": "pos:3 quat:4 joints:16"},
        "grasp.pos": {"role": "position", "unit": "m", "near": "obj.pos", "distance": "0.02..0.5"},
        "grasp.quat": {"role": "quaternion", "order": "wxyz"},
        "grasp.joints": {"role": "joint_angle", "unit": "rad", "robot": "leap"},
        "obj": {"role": "pose", "shape": [7], "columns": "pos:3 quat:4"},
        "obj.pos": {"role": "position", "unit": "m"},
        "obj.quat": {"role": "quaternion", "order": "wxyz"},
        "verts": {
            "role": "points",
            "shape": ["V", 3],
            "size": "0.1..6",
            "scale": 0.1,
            "posed_by": "obj",
        },
    }
}


def quaternions(rng: np.random.Generator, count: int) -> Array:
    """Return unit quaternions, w first and not negative."""
    q = rng.normal(size=(count, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    return q * np.where(q[:, :1] < 0, -1.0, 1.0)


def grasp(rng: np.random.Generator, number: int) -> Values:
    """Return grasps of an object that stands on a table a metre away."""
    del number
    at = np.array([rng.uniform(0.2, 0.8), rng.uniform(-0.3, 0.3), rng.uniform(0.05, 0.15)])
    way = unit_vectors(rng, 60) * rng.uniform(0.06, 0.2, (60, 1))
    joints = rng.uniform(0.0, 1.2, (60, 16))
    yaw = rng.uniform(-math.pi, math.pi)
    verts = rng.uniform(-0.5, 0.5, (80, 3)) * rng.uniform(0.4, 1.6, 3)
    return {
        "grasp": np.concatenate([at + way, quaternions(rng, 60), joints], axis=1),
        "obj": np.array([*at, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]),
        "verts": verts,
    }


def moved(times: float) -> Callable[[Values], Values]:
    """Return what subtracts the object's position from the palms so many times."""

    def change(values: Values) -> Values:
        out = values["grasp"].copy()
        out[:, :3] -= times * values["obj"][:3]
        return {"grasp": out}

    return change


def turned(values: Values) -> Values:
    """Return palms in the axes of the object."""
    out = values["grasp"].copy()
    yaw = 2 * math.atan2(values["obj"][6], values["obj"][3])
    axes = np.array(
        [[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]]
    )
    out[:, :3] = (out[:, :3] - values["obj"][:3]) @ axes
    return {"grasp": out}


def grasp_faults() -> dict[str, Fault]:
    """Return how grasps break."""
    pos, quat, joints = slice(0, 3), slice(3, 7), slice(7, 23)
    return lengths("grasp", pos, "grasp.pos") | {
        "object subtracted": Fault(frozenset({"relative"}), moved(1.0), "grasp.pos"),
        "object subtracted twice": Fault(frozenset({"subtracted-twice"}), moved(2.0), "grasp.pos"),
        "relative, turned": Fault(frozenset({"relative"}), turned, "grasp.pos"),
        "signs reversed": edited("grasp", set_columns(pos, np.negative), part="grasp.pos"),
        "object reversed": edited("obj", set_columns(pos, np.negative)),
        "object added": Fault(frozenset({"added"}), moved(-1.0), "grasp.pos"),
        "quaternions xyzw": edited(
            "grasp", set_columns(quat, lambda q: np.roll(q, -1, axis=-1)), "xyzw"
        ),
        "joints in degrees": scaled(
            "grasp", 180 / math.pi, "deg", columns=joints, part="grasp.joints"
        ),
        "joints x1000": scaled("grasp", 1000.0, columns=joints, part="grasp.joints"),
        "joints x0.5": scaled("grasp", 0.5, columns=joints, part="grasp.joints"),
        "joints before the quaternion": edited(
            "grasp",
            lambda g: np.concatenate([g[:, pos], g[:, joints], g[:, quat]], axis=1),
            "order",
        ),
        "verts in mm": scaled("verts", 1000.0, "mm", "mixed"),
        "verts /1000": scaled("verts", 0.001, "twice-mm", "mixed"),
    }


# ------------------------------------------------------------------------------------------- clouds

CENTRED = {
    "fields": {
        "p": {
            "role": "points",
            "shape": ["P", 3],
            "unit": "m",
            "centered_on": "c",
            "size": "0.05..1",
        },
        "c": {"role": "position", "shape": [3], "unit": "m"},
    }
}
CLOUDS = {
    "fields": {
        "p": {"role": "points", "shape": ["P", 3], "unit": "m", "size": "1..30", "up": "z"},
        "rgb": {"role": "color", "shape": ["P", 3], "range": "0..255"},
    }
}


def centred(rng: np.random.Generator, number: int) -> Values:
    """Return a body from which a stored centre was subtracted."""
    del number
    points = rng.uniform(-0.5, 0.5, (200, 3)) * rng.uniform(0.3, 1, 3) * rng.uniform(0.1, 0.5)
    points = points @ rotation(rng.normal(size=(1, 3)))[0].T + rng.normal(0, 0.02, 3)
    return {"p": points.astype(np.float32), "c": unit_vectors(rng, 1)[0] * rng.uniform(0.25, 0.9)}


def centred_faults() -> dict[str, Fault]:
    """Return how centred bodies break."""

    def times(count: float) -> Callable[[Values], Values]:
        return lambda values: {
            "p": values["p"] + np.float32(1 - count) * values["c"].astype(np.float32)
        }

    return lengths("p") | {
        "centre subtracted twice": Fault(frozenset({"double"}), times(2), "p"),
        "centre never subtracted": Fault(frozenset({"never"}), times(0), "p"),
        "centre in mm": scaled("c", 1000.0, "mm", "mixed"),
    }


def cloud(rng: np.random.Generator, number: int) -> Values:
    """Return a room with colours."""
    del number
    size = np.array([rng.uniform(3, 8), rng.uniform(3, 8), rng.uniform(2.4, 3)])
    points = rng.uniform(0, 1, (400, 3))
    points[:250, 2] = 0.0
    return {
        "p": points * size + rng.normal(0, 0.5, 3) * [1, 1, 0],
        "rgb": rng.integers(0, 256, (400, 3)).astype(np.float32),
    }


def cloud_faults() -> dict[str, Fault]:
    """Return how rooms break."""
    return lengths("p") | {
        "y up": edited("p", lambda p: p[:, [0, 2, 1]] * np.array([1.0, 1, -1]), "y"),
        "colours in 0..1": scaled("rgb", 1 / 255, "unit"),
        "colours divided twice": scaled("rgb", 1 / 255**2, "twice"),
        "colours normalised": edited("rgb", lambda c: (c / 255 - 0.5) / 0.25, "signed"),
        "colours of 65535": scaled("rgb", 257.0),
    }


# ------------------------------------------------------------------------------------ robots, depth

ROBOTS = {
    "episode": {"fps": 20},
    "fields": {
        "q": {"role": "joint_angle", "shape": ["T", 7], "unit": "rad"},
        "ee": {"role": "position", "shape": ["T", 3], "unit": "m", "distance": "0.1..1.5"},
        "quat": {"role": "quaternion", "shape": ["T", 4], "order": "xyzw"},
        "t": {"role": "timestamp", "shape": ["T"], "unit": "s"},
    },
}
DEPTH = {"fields": {"d": {"role": "depth", "shape": [24, 32], "unit": "m", "scale": 0.001}}}


def robot(rng: np.random.Generator, number: int) -> Values:
    """Return an episode of an arm."""
    del number
    steps = int(rng.integers(60, 120))
    way = np.linspace(0, 1, steps)[:, None]
    q = rng.uniform(-1.2, 1.2, 7) + way * rng.uniform(-1, 1, 7) + 0.02 * np.sin(9 * way)
    ee = np.array([0.4, 0.0, 0.3]) + rng.uniform(-0.15, 0.15, 3) + way * rng.uniform(-0.2, 0.2, 3)
    tilt = rng.normal(0, 0.15, 4) + [0.0, 1.0, 0.0, 0.0] + way * rng.normal(0, 0.05, 4)
    quat = tilt / np.linalg.norm(tilt, axis=1, keepdims=True)
    return {"q": q, "ee": ee, "quat": quat[:, [1, 2, 3, 0]], "t": np.arange(steps) / 20}


def robot_faults() -> dict[str, Fault]:
    """Return how episodes break."""
    return lengths("ee") | {
        "q in degrees": scaled("q", 180 / math.pi, "deg"),
        "q x1000": scaled("q", 1000.0),
        "q twice to degrees": scaled("q", (180 / math.pi) ** 2),
        "quat wxyz": edited("quat", lambda q: np.roll(q, 1, axis=-1), "wxyz"),
        "t in ms": scaled("t", 1000.0, "ms"),
        "t in ns": scaled("t", 1e9, "ns"),
        "t as frames": scaled("t", 20.0, "index"),
        "t x3": scaled("t", 3.0, "thinned"),
    }


def depth(rng: np.random.Generator, number: int) -> Values:
    """Return a depth map of a room, in millimetres."""
    del number
    near, far = rng.uniform(0.7, 1.2), rng.uniform(1.6, 3.0)
    return {
        "d": np.round(1000 * (near + (far - near) * rng.uniform(0, 1, (24, 32)))).astype(np.float32)
    }


def depth_faults() -> dict[str, Fault]:
    """Return how depth breaks."""
    kinds = {"1/1": 0.001, "1/5000": 5.0, "1/10000": 10.0}
    return {f"d at {kind}": scaled("d", by, kind) for kind, by in kinds.items()} | {
        "d x40": scaled("d", 40.0),
        "d /45": scaled("d", 1 / 45),
    }


WORLDS = {
    "hands": World(HANDS, hand, hand_faults(), grouped=True),
    "grasps": World(GRASPS, grasp, grasp_faults()),
    "centred": World(CENTRED, centred, centred_faults()),
    "clouds": World(CLOUDS, cloud, cloud_faults()),
    "robots": World(ROBOTS, robot, robot_faults()),
    "depth": World(DEPTH, depth, depth_faults()),
}


# ------------------------------------------------------------------------------------------ judging


def judged(
    world: World, names: tuple[str, ...], share: float, seed: int
) -> tuple[str, list[str], bool]:
    """Return "right", "silent" or "wrong", the causes that were named, and whether a factor would spoil data."""
    rng = np.random.default_rng([seed, 7])
    samples: Samples = [
        sample(f"s{i:04d}", world.make(rng, i), group=f"g{i // GROUP}" * world.grouped)
        for i in range(world.count)
    ]
    count = max(2, round(share * world.count))
    victims = set(rng.choice(world.count, count, replace=False).tolist())
    faults = [world.faults[name] for name in names]
    for place in victims:
        for fault in faults:
            split, piece = samples[place]
            samples[place] = split, changed(piece, **fault.change(dict(piece.fields)))
    found = scan_pieces(schema_of(world.schema), samples)
    keys = {samples[place][1].key for place in victims}
    order = sorted(piece.key for _, piece in samples)
    allowed = frozenset[str]().union(*(fault.kinds for fault in faults))
    said, right, wrong, spoiled = [], False, False, False
    for finding in found.findings:
        touched = {order[int(row)] for row in finding.rows} & keys
        if (
            finding.cause is None
            or not finding.cause.kind
            or finding.severity is Severity.INFO
            or not (touched or not len(finding.rows))
        ):
            continue
        said.append(
            f"{finding.code} {finding.severity.value}: {finding.cause.kind} ({finding.cause.text})"
        )
        names_it = finding.cause.kind in allowed
        right, wrong = right or names_it, wrong or not names_it
        spoiled = spoiled or _spoils(finding, faults)
    return "wrong" if wrong else "right" if right else "silent", said, spoiled


def _spoils(finding: Finding, faults: list[Fault]) -> bool:
    """Tell whether `datacheck fix` would multiply by a factor that does not bring values back."""
    cause = finding.cause
    if (
        finding.code not in {"DC201", "DC202"}
        or cause is None
        or cause.factor is None
        or cause.alternatives
    ):
        return False
    mine = [fault for fault in faults if finding.fields and finding.fields[0] == fault.part]
    back = math.prod(fault.back or math.nan for fault in mine) if mine else math.nan
    return not math.isclose(cause.factor, back, rel_tol=0.01)


def apart(world: str, one: str, other: str) -> bool:
    """Tell whether two faults stay two: two factors on the same values are one that nobody knows."""
    parts = {WORLDS[world].faults[name].part for name in (one, other)}
    return len(parts) > 1 or parts == {""}


def one(job: tuple[str, tuple[str, ...], float, int]) -> tuple[str, list[str], bool]:
    name, faults, share, seed = job
    return judged(WORLDS[name], faults, share, seed)


def main() -> int:
    """Run the matrix; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; all")
    parser.add_argument("--seeds", type=int, default=3, help="datasets of each fault and share")
    parser.add_argument("--pairs", type=int, default=1, help="datasets of each two faults")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--verbose", action="store_true", help="print every run, not only the wrong ones"
    )
    asked = parser.parse_args()
    jobs = []
    for name in asked.worlds or WORLDS:
        alone = [((fault,), share) for fault in WORLDS[name].faults for share in SHARES]
        jobs += [
            (name, faults, share, seed) for faults, share in alone for seed in range(asked.seeds)
        ]
        both = [
            pair for pair in itertools.combinations(WORLDS[name].faults, 2) if apart(name, *pair)
        ]
        jobs += [(name, pair, 0.1, seed) for pair in both for seed in range(asked.pairs)]
    totals: dict[str, Counter[str]] = {}
    spoils = 0
    with ProcessPoolExecutor(asked.workers) as pool:
        for (name, faults, share, seed), (verdict, said, spoiled) in zip(
            jobs, pool.map(one, jobs, chunksize=8), strict=True
        ):
            kind = f"{name}, {'two at once' if len(faults) > 1 else 'alone'}"
            totals.setdefault(kind, Counter())[verdict] += 1
            spoils += spoiled
            if asked.verbose or verdict == "wrong" or spoiled:
                print(
                    f"{verdict:7}{' SPOILS' if spoiled else ''} {name}: {' + '.join(faults)}, "
                    f"{share:g}, seed {seed}"
                )
                for line in said:
                    print(f"        {line[:200]}")
    every: Counter[str] = sum(totals.values(), Counter())
    print(f"\n{'':24}{'right':>8}{'silent':>8}{'wrong':>8}  right or silent")
    for kind, found in [*totals.items(), ("all", every)]:
        share = 1 - found["wrong"] / found.total()
        print(f"{kind:24}{found['right']:8}{found['silent']:8}{found['wrong']:8}{share:17.4f}")
    print(f"factors that would spoil data: {spoils}")
    return int(every["wrong"] > 0.01 * every.total() or spoils > 0)


if __name__ == "__main__":
    sys.exit(main())
