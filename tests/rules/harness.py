"""A scan without files: samples written in a compact YAML, measured in blocks, judged by the whole catalogue.

A sample is a mapping of fields; ``n`` repeats it, ``key``, ``file``, ``split``, ``group``, ``facts`` and
``unreadable`` say the rest. A value is a number, a list, a text, ``{json: ...}``, or one of the makers:

    {normal: shape, scale}  {box: [P, 3], size, at}  {full: shape, value}  {choice: shape, among}
    {ramp: [T, k], to, moves, clip, at}: waves of that amplitude around `at`; only the first `moves` steps move; cut
        at +-`clip`
    {walk: shape, lag, scale, at}: sums of what {normal: shape} gives, so many steps later, from `at` on
    {hand: unit factor, root, flip, order, scale, copies}: joints of the MANO hand in HO3D order
    {film: T, stops}: pictures [T, 4, 4, 3] that all differ; from step `stops` on they are one
    {view: P, pose: true, inverted, aside}: a cloud of one scene in a camera's own frame, or that camera's pose in the
        world (4 x 4); a function of the sample's number, so that both agree
    {standing: size, above}: the pose (7) of a box of that diagonal, turned about z, on the floor or above it
    {picture: side, turned}: a bright sky over dark ground, uint8
    {room: P}: points on floor, ceiling and walls of a room, z up
    {arm: T, shift, jump}: a Panda's seven joints in motion, radians; the first one moved or jumping by so much
    {circle: [T, k]}: angles that go round once, wrapped into -pi..pi
    {directions: N, length}: random vectors of that length
    {turns: N, scale, order}: random quaternions, w x y z
    {counted: text, ahead}: a text with two numbers of the sample so many places ahead, for the two {}
    {grasps: N, at, order}: position and quaternion (w x y z) of grippers whose z axis points at `at`

``dtype`` casts. Values differ from sample to sample and are the same in every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from datacheck.model.sample import Origin, Piece, stack
from datacheck.model.table import CHECKED, UNREADABLE, Note, Table, concatenate
from datacheck.rules import catalogue
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.measurement import MeasurementRunner
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.schema.model import Schema
from datacheck.testing.ho3d import articulated
from tests.trials import memory as trials
from tests.trials.memory import Reader

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's takes a tenth of the time

ORDERS = {
    "tips": [16, 17, 18, 20, 19],  # ring and pinky tips swapped
    "rolled": [17, 18, 19, 20, 16],
    "mano": [17, 18, 20, 19, 16],  # as the chains: index, middle, pinky, ring, thumb
}


def schema_of(text: str | dict[str, Any]) -> Schema:
    """Return a schema from its YAML, with what every schema needs filled in."""
    data = yaml.load(text, _Loader) if isinstance(text, str) else dict(text)
    return trials.schema_of(data)


def view(number, count, pose=False, inverted=False, aside=0.0):
    """Return the pose of camera `number`, or what it sees of the one scene there is, in its own frame."""
    around = 0.7 * number
    eye = (1.5 + 0.3 * (number % 3)) * np.array(
        [np.cos(around), np.sin(around), 0.9 * np.sin(1.9 * number)]
    )
    z = -eye / np.linalg.norm(eye)
    x = np.cross(z, [0, 0, 1.0])
    x /= np.linalg.norm(x)
    to_world = np.eye(4)
    to_world[:3, :3] = np.stack([x, np.cross(z, x), z], axis=1)
    to_world[:3, 3] = eye
    if pose:
        return np.linalg.inv(to_world) if inverted else to_world
    scene = directions(np.random.default_rng(0), 4 * count) * [0.5, 0.3, 0.15]
    seen = np.random.default_rng(number).choice(len(scene), count, replace=False)
    return (scene[seen] + [aside, 0, 0] - eye) @ to_world[:3, :3]


def value_of(said: Any, number: int) -> Any:
    """Return what a YAML value stands for in sample `number`."""
    if isinstance(said, str):
        return said
    if not isinstance(said, dict):
        array = np.array(said)
        return array.astype(np.float64) if array.dtype.kind == "f" else array
    if "json" in said:
        return said["json"]
    rng = np.random.default_rng([number, 7])
    if "prose" in said or "counted" in said:
        return _text(rng, number, **said)
    if "view" in said:
        return view(number, said["view"], **{k: v for k, v in said.items() if k != "view"})
    maker = next(name for name in MAKERS if name in said)
    rest = {k: v for k, v in said.items() if k not in {maker, "dtype"}}
    array = MAKERS[maker](rng, said[maker], **rest)
    return array.astype(said.get("dtype", array.dtype))


def _text(rng, number, prose=(0, 0), cut=None, counted="", ahead=0):
    place = number + ahead
    return counted.format(1000 + place, 5000 + 3 * place) or _prose(rng, prose, cut)


def _prose(rng, characters, cut=None):
    """Return sentences of about so many characters (between two numbers), without what is behind `cut`."""
    text, least = "", rng.integers(*characters)
    while len(text) < least:
        words = rng.choice(
            ["cups", "on", "red", "shelf", "moves", "lifts", "robots", "a", "near"], 7
        )
        text += " ".join(words).capitalize() + ". "
    return text.strip()[:cut]


def _normal(rng, shape, scale=1.0, far=0):
    values = scale * rng.standard_normal(shape)
    values[:far] *= 1000  # of so many rows
    return values.astype(np.float32)


def _box(rng, shape, size=1.0, at=(0.3, 0.2, 0.1)):
    points = rng.uniform(-0.5, 0.5, shape)
    points[:2] = [[-0.5] * 3, [0.5] * 3]  # the diagonal is exact
    return (points * size / np.sqrt(3) + np.array(at) * size).astype(np.float32)


def _ramp(rng, shape, to=1.0, moves=None, clip=None, at=0.0):
    steps = np.arange(shape[0])[:, None]
    if moves is not None:
        steps = np.minimum(steps, moves)
    phase = rng.uniform(0, 2 * np.pi, shape[1:])
    waves = (np.array(at) + np.array(to) * np.sin(0.21 * steps + phase)).astype(np.float64)
    return waves if clip is None else np.clip(waves, -clip, clip)


def _walk(rng, shape, lag=0, scale=1.0, at=0.0, hold=None):
    steps = _normal(rng, shape).astype(np.float64)
    late = np.concatenate([np.zeros((lag, *shape[1:])), steps])[: shape[0]]
    walked = at + scale * np.cumsum(late, axis=0)
    if hold is not None:
        walked[hold[0] : hold[1]] = walked[hold[0]]
    return walked


def _film(rng, steps, stops=None):
    film = rng.integers(20, 200, (steps, 4, 4, 3)).astype(np.uint8)
    return film if stops is None else film[np.minimum(np.arange(steps), stops)]


def _choice(rng, shape, among):
    return rng.choice(np.array(among), shape)


def hand(rng, frames=1, root=(0.1, 0.05, -0.6), order=None, scale=1.0):
    """Return float64 (frames, 21, 3): a hand that opens and closes, wrist at `root`."""
    joints = articulated(rng, frames, scale) + np.array(root)
    if order in ORDERS:
        joints[:, 16:21] = joints[:, ORDERS[order]]
    elif order == "complete":
        joints[:, [7, 8, 9, 20, 10, 11, 12, 19]] = joints[:, [10, 11, 12, 19, 7, 8, 9, 20]]
    elif order == "chains":
        joints[:, [7, 8, 9, 10, 11, 12]] = joints[:, [10, 11, 12, 7, 8, 9]]
    elif order == "openpose":
        joints = joints[
            :, [0, 13, 14, 15, 16, 1, 2, 3, 17, 4, 5, 6, 18, 10, 11, 12, 19, 7, 8, 9, 20]
        ]
    return joints


def _hand(rng, unit, root=(0.1, 0.05, -0.6), flip=False, order=None, scale=1.0, copies=1):
    joints = unit * hand(rng, 1, root, order, scale)[0]
    joints[1:copies] = joints[0]
    return joints * [1, -1, -1] if flip else joints


PANDA = (0.0, -0.16, 0.0, -2.44, 0.0, 2.23, 0.79)


def standing(rng, size, above=0.0):
    """Return float64 (7): position and quaternion (w x y z) of a cube that stands on z = 0."""
    half = rng.uniform(-1.5, 1.5)
    return np.array(
        [
            *rng.uniform(-0.3, 0.3, 2),
            size / np.sqrt(3) / 2 + above,
            np.cos(half),
            0,
            0,
            np.sin(half),
        ]
    )


def picture(rng, side, turned=False):
    """Return uint8 (side, side, 3): a sky that is brighter than the ground, its first row on top."""
    rows = np.where(np.arange(side) < 0.4 * side, 190, 60) + 30 * np.sin(np.arange(side) / 7)
    image = rows[:, None, None] + rng.normal(0, 12, (side, side, 3))
    image = np.clip(image, 0, 255).astype(np.uint8)
    return image[::-1].copy() if turned else image


def room(rng, count):
    """Return float64 (count, 3): a room 5 m wide and 2.6 m high, some metres from the origin."""
    points = rng.uniform(0, 1, (count, 3))
    points[np.arange(count), rng.choice(3, count, p=[0.2, 0.2, 0.6])] = rng.integers(0, 2, count)
    return points * [rng.uniform(4, 6), rng.uniform(4, 6), 2.6] + [3, 1, 0.5]


def arm(rng, steps, shift=0.0, jump=0.0):
    """Return float64 (steps, 7): a Panda near its home pose; joint 1 sweeps over most of its range."""
    joints = np.array(PANDA) + 0.1 * np.sin(0.1 * np.arange(steps)[:, None] + rng.uniform(0, 6, 7))
    joints[:, 0] = 2.6 * np.sin(np.linspace(-1.4, 1.4, steps)) + shift
    joints[steps // 2 :, 1] += jump
    return joints


def circle(rng, shape):
    """Return float64 (T, k): angles that go round once."""
    angle = np.linspace(0, 2 * np.pi, shape[0])[:, None] + rng.uniform(0.5, 2.5, shape[1])
    return (angle + np.pi) % (2 * np.pi) - np.pi


def directions(rng, count, length=1.0):
    """Return float64 (count, 3): random directions."""
    v = rng.standard_normal((count, 3))
    return length * v / np.linalg.norm(v, axis=1)[:, None]


def turns(rng, count, scale=1.0, order="wxyz"):
    """Return float64 (count, 4): random rotations."""
    q = rng.standard_normal((count, 4))
    q *= scale / np.linalg.norm(q, axis=1)[:, None]
    return q if order == "wxyz" else np.roll(q, -1, axis=1)


def grasps(rng, count, at=(0.0, 0.0, 0.0), order="wxyz"):
    """Return float64 (count, 7): hands around an object, each with its z axis on it."""
    away = rng.standard_normal((count, 3))
    away /= np.linalg.norm(away, axis=1)[:, None]
    z = -away
    # Takes +z to where it points
    q = np.stack([1 + z[:, 2], -z[:, 1], z[:, 0], np.zeros(count)], axis=1)
    roll = rng.uniform(0, np.pi, count)
    w, x, y, _ = q.T
    c, s = np.cos(roll), np.sin(roll)
    q = np.stack([w * c, x * c + y * s, y * c - x * s, w * s], axis=1)
    q /= np.linalg.norm(q, axis=1)[:, None]
    return np.concatenate(
        [np.array(at) + 0.2 * away, q if order == "wxyz" else np.roll(q, -1, axis=1)], axis=1
    )


MAKERS = {
    "picture": picture,
    "room": room,
    "standing": standing,
    "arm": arm,
    "circle": circle,
    "directions": directions,
    "turns": turns,
    "grasps": grasps,
    "normal": _normal,
    "box": _box,
    "choice": _choice,
    "ramp": _ramp,
    "walk": _walk,
    "film": _film,
    "hand": _hand,
    "full": lambda rng, shape, value: np.full(shape, value, dtype=np.float32),
}
_WORDS = {"n", "key", "file", "split", "group", "facts", "unreadable"}


def pieces_of(samples: list[dict[str, Any]]) -> list[tuple[str, Piece | str]]:
    """Return (split, piece) of every sample, or (split, key and reason) of an unreadable one."""
    found: list[tuple[str, Any]] = []
    for sample in samples:
        for _ in range(sample.get("n", 1)):
            number = len(found)
            key = sample.get("key", f"s{number:06d}")
            if "unreadable" in sample:
                found.append((sample.get("split", ""), f"{key}\0{sample['unreadable']}"))
                continue
            fields = {
                name: value_of(said, number) for name, said in sample.items() if name not in _WORDS
            }
            facts = {"id": key} | {
                name: value_of(v, number) for name, v in sample.get("facts", {}).items()
            }
            origin = Origin(sample.get("file", key))
            found.append(
                (
                    sample.get("split", ""),
                    Piece(key, fields, origin, sample.get("group", ""), facts),
                )
            )
    return found


def measured(schema: Schema, samples: list[tuple[str, Any]], *, alone: bool = False) -> Table:
    """Measure pieces in blocks of one split (`alone`: each in a block of its own)."""
    bench = MeasurementRunner(schema, measures_of(choose_rules(schema, catalogue())))
    tables = [_unread(split, said) for split, said in samples if isinstance(said, str)]
    for split in sorted({split for split, _ in samples}):
        pieces = [piece for s, piece in samples if s == split and not isinstance(piece, str)]
        for batch in [[p] for p in pieces] if alone else [pieces]:
            for block in stack(batch, split):
                columns = bench.measure(block)
                size = len(block)
                tables.append(
                    Table(
                        keys=block.keys,
                        files=[o.file or k for o, k in zip(block.origins, block.keys, strict=True)],
                        inner=[""] * size,
                        splits=[split] * size,
                        groups=block.groups,
                        status=np.full(size, CHECKED, np.int8),
                        reasons=[""] * size,
                        nbytes=np.zeros(size, np.int64),
                        columns=columns,
                    )
                )
    assert bench.crashes == {}, next(iter(bench.crashes.values()))["traceback"]
    return concatenate(tables)


def _unread(split: str, said: str) -> Table:
    key, _, reason = said.partition("\0")
    return Table(
        [key],
        [key],
        [""],
        [split],
        [""],
        np.array([UNREADABLE], np.int8),
        [reason],
        np.zeros(1, np.int64),
    )


def judged(
    schema: Schema, table: Table, notes: list[Note] = (), *, reference=None, pieces=()
) -> RuleResults:
    """Judge a table with every rule of the catalogue; `pieces` are what its second read sees."""
    samples = [(split, piece) for split, piece in pieces if not isinstance(piece, str)]
    choices = choose_rules(schema, catalogue())
    found = judge(table, schema, choices, notes, reference=reference, second=Reader(samples))
    assert found.crashes == [], found.crashes[0]["traceback"]
    return found


def scan(text: str) -> tuple[RuleResults, Table]:
    """Scan the samples of a YAML text (keys: schema, samples, listing, reference: the samples to compare with)."""
    data = yaml.load(text, _Loader)
    schema = schema_of(data.get("schema", {}))
    pieces = pieces_of(data["samples"])
    table = measured(schema, pieces)
    notes = [Note(**note) for note in data.get("listing", [])]
    before = measured(schema, pieces_of(data["reference"])) if "reference" in data else None
    return judged(schema, table, notes, reference=before, pieces=pieces), table


def codes(
    found: RuleResults, *, severities: tuple[str, ...] = ("error", "warning", "info")
) -> list[str]:
    """Return the codes of the findings, each once, sorted."""
    return sorted({f.code for f in found.findings if f.severity in severities})
