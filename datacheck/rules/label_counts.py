"""Counts of labels: distinct numbers and their frequency, points of instances, loader steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured
from datacheck.model.voxel_grid import deciding_rows, occupied, representatives
from datacheck.rules.base import Columns, measure
from datacheck.rules.measures import (
    annotated,
    flat,
    in_classes,
    is_numeric,
    of_role,
    one_of,
    reduced,
)
from datacheck.schema.model import FieldSpec, Range, Schema

Array = np.ndarray[Any, Any]

_BINS = 1 << 16
_MOST_CELLS = 1 << 24
_STRIP = 1 << 15  # rows processed together
_FIRST = 1 << 10  # rows searched first for the first point of each instance


def whole(values: Array) -> Array | None:
    """Return values as integers, int32; None where a value is no integer or too large."""
    numbers = np.empty(values.shape, np.int32)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(values), _STRIP):
            part = _whole(values[start : start + _STRIP])
            if part is None:
                return None
            numbers[start : start + _STRIP] = part
    return numbers


def _whole(values: Array) -> Array | None:
    # Compare as int32, not in the dtype of the values, where float16 would turn large numbers into
    # infinity and uint32 would turn -1 into 4,294,967,295.
    back = (
        values.dtype
        if values.dtype.kind == "f" and values.dtype.itemsize > 2
        else np.dtype(np.int32)
    )
    numbers = values.astype(np.int32)
    return numbers if (numbers.astype(back, copy=False) == values).all() else None


def distinct(column: Column) -> tuple[Array, Array, Array]:
    """Return the distinct numbers of each sample, ascending, and how often each occurs.

    Shapes:
        values: any (numbers)
        often: int64 (numbers)
        lengths: int64 (samples) [numbers]

    Notes:
        Labels are few numbers, repeated often. Where values are no integers, or far apart, they are
        returned ungrouped and each counts once.
    """
    cached: tuple[Array, Array, Array] | None = column.__dict__.get("_distinct")
    if cached is None:
        counted = column.__dict__.get("_counted", {})
        each = [counted[i] for i in range(len(column))] if len(counted) == len(column) else []
        cached = column.__dict__["_distinct"] = _beside(each) if each else _distinct(column)
    return cached


def _beside(each: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    values, often = (np.concatenate(parts) for parts in zip(*each, strict=True))
    return values, often, np.array([len(part) for part, _ in each])


def _distinct(column: Column) -> tuple[Array, Array, Array]:
    values, lengths = flat(column)
    numbers = whole(column.values)
    if numbers is None or not numbers.size:
        return values, np.ones(len(values), np.int64), lengths
    low = int(numbers.min())
    width = int(numbers.max()) - low + 1
    if width * len(column) > max(_BINS, 4 * numbers.size):
        return values, np.ones(len(values), np.int64), lengths
    code = numbers.reshape(-1) - low if low else numbers.reshape(-1)
    if len(column) > 1:
        code = code + np.repeat(np.arange(len(column)) * width, lengths)
    bins = np.bincount(code, minlength=width * len(column)).reshape(len(column), width)
    sample, place = np.nonzero(bins)
    return place + low, bins[sample, place], np.bincount(sample, minlength=len(column))


@dataclass(frozen=True, eq=False)
class ContingencyTable:
    """The points of one sample, counted by instance and class.

    Shapes:
        ids: int64 (ids), ascending: all that may occur
        classes: int64 (classes), likewise; one 0 where there is no class field
        cells: int64 (ids, classes): points of each pair
        code: int64 (points): the flat place in `cells`

    Args:
        whole: all values are integers; else fractions were truncated.
    """

    ids: Array
    classes: Array
    cells: Array
    code: Array
    whole: bool


def contingency_table(ids: Column, classes: Column | None, i: int) -> ContingencyTable | None:
    """Count one sample's points by instance and class; the result is cached.

    Returns:
        None where lengths differ, where a number is not finite, or where there are too many pairs.
    """
    kept = ids.__dict__.setdefault("_pairs", {})
    key = (i, id(classes))
    if key not in kept:
        kept[key] = pairs = _contingency_table(
            ids[i].reshape(-1), None if classes is None else classes[i].reshape(-1)
        )
        if pairs is not None and pairs.whole:
            _keep_counts(pairs, ids, classes, i)
    table: ContingencyTable | None = kept[key]
    return table


def _keep_counts(pairs: ContingencyTable, ids: Column, classes: Column | None, i: int) -> None:
    """Cache the counts by id and by class, so that `distinct` need not count them again."""
    for column, values, axis in ((ids, pairs.ids, 1), (classes, pairs.classes, 0)):
        if column is not None:
            often = pairs.cells.sum(axis=axis)
            occurring = np.flatnonzero(often)
            column.__dict__.setdefault("_counted", {})[i] = values[occurring], often[occurring]


def _contingency_table(ids: Array, classes: Array | None) -> ContingencyTable | None:
    values = [ids] if classes is None else [ids, classes]
    if len(values[-1]) != len(ids):
        return None
    rooms = max(65_536, len(ids)), 4096
    spans = [
        span for v, room in zip(values, rooms, strict=False) if (span := _span(v, room)) is not None
    ]
    code = _code(values, spans) if len(spans) == len(values) else None
    plain = code is not None or not any(whole(v) is None for v in values)
    numbers = [np.arange(low, high + 1) for low, high in spans]
    if code is None:
        coded = [
            places
            for v, room in zip(values, rooms, strict=False)
            if (places := _places(v, room)) is not None
        ]
        numbers = [distinct_values for distinct_values, _ in coded]
        if len(coded) < len(values) or prod(map(len, numbers)) > _MOST_CELLS:
            return None
        code = np.zeros(len(ids), np.intp)
        for distinct_values, which in coded:
            code *= max(1, len(distinct_values))
            code += which
    height = len(numbers[0])
    width = 1 if classes is None else max(1, len(numbers[1]))
    cells = np.bincount(code, minlength=height * width).reshape(height, width)
    return ContingencyTable(
        numbers[0], np.zeros(1, np.int64) if classes is None else numbers[1], cells, code, plain
    )


def _span(values: Array, room: int) -> tuple[int, int] | None:
    """Return the smallest and the largest value.

    None where they are `room` or more apart, or where int32 does not hold them.
    """
    low, high = (values.min().item(), values.max().item()) if len(values) else (0.0, np.inf)
    return (int(low), int(high)) if high - low < room and max(-low, high) < 1 << 31 else None


def _code(values: list[Array], spans: list[tuple[int, int]]) -> Array | None:
    """Return the place of each point among all pairs of numbers within the spans.

    None where a number is no integer, or where there are too many pairs.
    """
    if prod(high - low + 1 for low, high in spans) > _MOST_CELLS:
        return None
    code = np.empty(len(values[0]), np.intp)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(code), _STRIP):
            place: Any = 0
            for v, (low, high) in zip(values, spans, strict=True):
                number = _whole(v[start : start + _STRIP])
                if number is None:
                    return None
                number -= low
                place = number if v is values[0] else place * (high - low + 1) + number
            code[start : start + _STRIP] = place
    return code


def _places(values: Array, room: int) -> tuple[Array, Array] | None:
    """Return the numbers that may occur, ascending, and the place of each value among them.

    Notes:
        All numbers of the span where that is below `room`, else the distinct ones; None where a
        value is not finite.
    """
    if len(values) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    # In the dtype of the values: float64 rounds large integers.
    low = values.min().item()
    high = values.max().item()
    if not (np.isfinite(low) and np.isfinite(high)) or max(-low, high) > 2.0**62:
        return None
    numbers = values if values.dtype == np.int32 else values.astype(np.int64)
    if high - low < room:
        return np.arange(int(low), int(high) + 1), numbers - int(low)
    distinct_values, which = np.unique(numbers, return_inverse=True)
    return distinct_values.astype(np.int64), which


def numbered(ids: Array, good: Array) -> tuple[Array, Array]:
    """Return the distinct ids of the `good` points, and the place of each point's id.

    The ids are ascending; places start at 1, and 0 marks points that are not good.
    """
    if ids.dtype.kind == "f":
        good = good & (ids < 2.0**62)  # infinity is no id
    numbers = ids.astype(np.int64)
    numbers += 1
    numbers *= good  # 0 stands for none
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if low < 0 or high > 1 << 20:
        which = np.zeros(len(ids), np.int64)
        distinct_ids, inverse = np.unique(ids[good].astype(np.int64), return_inverse=True)
        which[good] = inverse + 1
        return distinct_ids, which
    distinct_ids = np.flatnonzero(np.bincount(numbers, minlength=1)[1:])
    place = np.zeros(high + 1, np.int64)
    place[distinct_ids + 1] = np.arange(1, len(distinct_ids) + 1)
    return distinct_ids, place[numbers]


def numbered_points(
    ids: Column, classes: Column | None, i: int, spec: FieldSpec, class_spec: FieldSpec
) -> tuple[Array, Array, Array]:
    """Return the result of `numbered` for the points of one sample with a valid instance and class.

    Without a class field only the instance counts.

    Shapes:
        returns: the ids, the place of each point, and int64 (ids): how many points each has
    """

    def good(values: Array) -> Array:
        return np.asarray((values >= 0) & ~one_of(values, spec.ignore))

    pairs = contingency_table(ids, classes, i)
    if pairs is None or not pairs.whole:
        mine = ids[i].reshape(-1)
        fits = (
            good(mine)
            if classes is None
            else good(mine) & in_classes(classes[i].reshape(-1), class_spec)
        )
        instance_ids, which = numbered(mine, fits)
        return instance_ids, which, np.bincount(which, minlength=len(instance_ids) + 1)[1:]
    valid_class = np.ones(1, bool) if classes is None else in_classes(pairs.classes, class_spec)
    fits = good(pairs.ids)
    size: Array = np.where(
        fits, pairs.cells[:, : len(valid_class)] @ valid_class.astype(np.int64), 0
    )
    nonempty = size > 0
    place = np.zeros(len(nonempty), np.int32)
    place[nonempty] = np.arange(1, np.count_nonzero(nonempty) + 1)
    which = np.multiply.outer(place, valid_class, dtype=np.int32).reshape(-1).take(pairs.code)
    return pairs.ids[nonempty], which, size[nonempty]


def first_rows(which: Array, count: int) -> Array:
    """Return the first row of each number from 1 to `count`, -1 without one: int64 (count)."""
    first = np.full(count + 1, -1)
    start, size = 0, _FIRST  # mostly the first few rows contain all instances
    while start < len(which) and (first[1:] < 0).any():
        part_rows = np.full(len(first), -1)
        part = which[start : start + size]
        # Written in reverse order, so that the lowest row is written last and stays.
        part_rows[part[::-1]] = np.arange(start, start + len(part))[::-1]
        first = np.where(first < 0, part_rows, first)
        start, size = start + size, min(2 * size, _STRIP)
    return first[1:]


def stored_instances(ids: Column, spec: FieldSpec) -> Array:
    """Return how many instances each sample holds, before any class or step."""
    values, _, lengths = distinct(ids)
    good = (values >= 0) & ~one_of(values, spec.ignore)
    if len(values) == len(ids.values):  # `distinct` did not group the values
        parts = np.split(np.arange(len(values)), np.cumsum(lengths)[:-1])
        return np.array(
            [len(numbered(values[rows], good[rows])[0]) for rows in parts], dtype=np.int64
        )
    totals: Array = reduced(np.add, good, lengths)
    return totals


PLACES = 64
_NAMED = 10_000  # a wider range of classes is not listed one by one


@measure("shares", applies=of_role("class"), uses=("ignore",))
def shares(column: Column, spec: FieldSpec) -> Columns:
    """Class counts of a sample: `classes` (64), by class number modulo 64, without ``ignore``.

    Counts of classes that share a place are added up: a difference between two such counts is a
    difference between the classes.
    """
    if not is_numeric(column):
        return {}
    values, often, lengths = distinct(column)
    with np.errstate(invalid="ignore"):
        counted: Array = np.abs(values.astype(np.float64)) < 2.0**31
        labels = np.where(counted, values, 0).astype(np.int64)
    for ignored in spec.ignore:
        counted &= labels != ignored
    slots = np.repeat(np.arange(len(lengths)), lengths) * PLACES + labels % PLACES
    counts = np.bincount(slots[counted], often[counted], minlength=len(lengths) * PLACES).reshape(
        -1, PLACES
    )
    return {"classes": Measured(counts.astype(np.int32), counts.sum(axis=1) > 0)}


def declared(spec: FieldSpec) -> list[int]:
    """Return the declared classes without ignored ones.

    Open ranges, and ranges of more than 10,000 classes, give an empty list.
    """
    classes: Iterable[int] | int | Range | None = spec.classes
    if isinstance(classes, Range):
        low = int(classes.low or 0)
        high = -1 if classes.high is None else int(classes.high)
        classes = range(low, high + 1) if high - low < _NAMED else ()
    elif isinstance(classes, int):
        classes = range(classes) if classes <= _NAMED else ()
    return [c for c in classes or () if c not in spec.ignore]


def class_names(spec: FieldSpec) -> list[str]:
    """Return the name of each of the 64 places: the declared classes that share it."""
    classes = declared(spec)
    classes_by_place = [[str(c) for c in classes if c % PLACES == place] for place in range(PLACES)]
    return [" or ".join(words[:3]) or str(place) for place, words in enumerate(classes_by_place)]


_MANY = 1 << 14  # with more points not every voxel is computed
_ENOUGH = 4  # multiple of min_points up to which voxels of an instance are counted
_PER_INSTANCE = frozenset({"drop_classes", "min_points", "captions"})  # steps on whole instances


@dataclass(eq=False)
class _Scene:
    """One scene on its way through the loader: the remaining points and instances.

    Args:
        ids, which: instance ids, ascending; the place of each point's instance there from 1, 0 for
            none.
        size: points of each instance, later the expected number; None until counted again.
        classes: of each point, or None.

    Attributes:
        rows: remaining points, None for all.
        weight: expected number of points that each of these stands for: one for all, or one each.
        vanish: expected number of instances that lose all their points in a clip.
        lives: bool (instances).
    """

    ids: Array
    which: Array
    size: Array | None
    classes: Array | None
    xyz: Array | None
    captions: frozenset[int]
    rows: Array | None = None
    weight: Array | float = 1.0

    def __post_init__(self) -> None:
        self.vanish = 0.0
        self.lives: Array = np.ones(len(self.ids), bool)

    def _left(self, values: Array) -> Array:
        return values if self.rows is None else values[self.rows]

    def _counted(self) -> Array:
        if self.size is None:
            which = self._left(self.which)
            plain = isinstance(self.weight, float) and self.weight == 1
            weights = None if plain else np.broadcast_to(self.weight, which.shape)
            self.size = np.bincount(which, weights=weights, minlength=len(self.ids) + 1)[1:]
        return self.size

    def sizes(self) -> Array:
        """Return the expected number of points of each instance, 0 for removed ones."""
        return np.where(self.lives, self._counted(), 0.0)

    def _first(self) -> Array:
        return first_rows(self._left(self.which), len(self.ids))

    def first_classes(self) -> Array:
        """Return the class of each instance's first remaining point (Mask3D's choice), or -1."""
        first = self._first()
        rows = first if self.rows is None or not len(self.rows) else self.rows[first]
        return np.where(first >= 0, rows if self.classes is None else self.classes[rows], -1)

    def step(self, name: str, value: Any, later: tuple[tuple[str, Any], ...]) -> Array | None:
        """Take one step of the loader.

        Args:
            name, value: the step.
            later: the steps after it.

        Returns:
            The sizes of the instances before ``min_points``; None for any other step.
        """
        met = None
        if name == "clip":
            remaining = len(self.which) if self.rows is None else len(self.rows)
            if value < remaining:
                size = self.sizes()
                self.vanish += float(((1 - value / remaining) ** size[size > 0]).sum())
            self.weight, self.size = self.weight * min(1.0, value / max(1, remaining)), None
        elif name == "voxel" and self.xyz is not None:
            self._voxels(self._left(self.xyz), float(value), dict(later))
        elif name == "drop_classes" and self.classes is not None:
            self.lives = self.lives & ~one_of(self.first_classes(), tuple(value))
        elif name == "keep_classes" and self.classes is not None and not isinstance(value, str):
            self._keep(self.classes, tuple(value))
        elif name == "min_points":
            size = self.sizes()
            met = size[size > 0]
            self.lives = self.lives & (size >= value)
        elif name == "captions":
            self.lives = self.lives & np.array(
                [int(i) in self.captions for i in self.ids], dtype=bool
            )
        return met

    def _keep(self, classes: Array, kept: tuple[int, ...]) -> None:
        """Remove the instance from every point whose class is not kept.

        An instance of two classes may keep a part of its points.
        """
        distinct_classes, code = np.unique(classes, return_inverse=True)
        kept_mask = np.isin(distinct_classes, np.asarray(kept, dtype=np.float64))
        if not kept_mask.all():
            self.which, self.size = np.where(kept_mask[code], self.which, 0), None

    def _voxels(self, xyz: Array, edge: float, later: dict[str, Any]) -> None:
        plain = isinstance(self.weight, float) and self.weight == 1
        if plain and len(xyz) > _MANY and later.keys() <= _PER_INSTANCE:
            owner = self._left(self.which)
            least = _ENOUGH * later.get("min_points", 1)
            kept = deciding_rows(xyz, edge, owner, self._counted(), self._first(), least)
        elif plain:
            kept = representatives(xyz, edge)
        else:
            kept, points = occupied(xyz, edge)
            each = (
                self.weight[kept]
                if isinstance(self.weight, np.ndarray)
                else np.full(len(kept), self.weight)
            )
            self.weight = 1 - (1 - each) ** points
        self.rows, self.size = kept if self.rows is None else self.rows[kept], None


def loader_steps(schema: Schema) -> tuple[tuple[str, Any], ...]:
    """Return the loader's steps, and ``min_points`` of the instance field if it has none."""
    steps = schema.loader.steps if schema.loader is not None else ()
    least = next((spec.min_points for _, spec in schema.of_role("instance")), None)
    return (*steps, ("min_points", least)) if least and "min_points" not in dict(steps) else steps


def size_edges(steps: tuple[tuple[str, Any], ...]) -> tuple[int, ...]:
    """Return the edges of the histogram of instance sizes: ``min_points``, parts and multiples.

    Notes:
        Empty without that step. The last edge is the largest size that is counted completely.
    """
    least = dict(steps).get("min_points")
    parts = (
        ()
        if least is None
        else (*(-(-least >> k) for k in (4, 3, 2, 1)), least, 2 * least, _ENOUGH * least)
    )
    return tuple(sorted({*parts}))


@measure(
    "funnel",
    version=4,
    per="sample",
    uses=(
        "loader",
        "fields.role",
        "fields.ignore",
        "fields.classes",
        "fields.min_points",
        "fields.absent",
    ),
)
def funnel(block: Block, schema: Schema) -> Columns:
    """Instances at each stage: `funnel` (stored, with a class, then after each step of the loader).

    `largest`: expected points of the largest instance before ``min_points``, where there is that
    step (a value above 4 times ``min_points`` is a lower bound). `sizes`: the histogram of sizes
    before that step: below the first of `size_edges`, from each to the next, and from the last on.
    `vanish`: expected number of instances that lose all points in ``clip``: (1 - clip/N)^n for one
    with n of N points.
    """
    names = {
        role: next((n for n, _ in schema.of_role(role)), "")
        for role in ("instance", "class", "points")
    }
    columns = {role: block.fields.get(name) for role, name in names.items()}
    ids = columns["instance"]
    labels_ = columns["class"]
    points = columns["points"]
    steps = loader_steps(schema)
    if ids is None or ids.lengths is None or len(steps) > 60:
        return {}
    if not all(column is None or is_numeric(column) for column in (ids, labels_, points)):
        return {}
    counts = np.zeros((len(block), 2 + len(steps)), np.int64)
    largest = np.full(len(block), np.nan)
    edges = size_edges(steps)
    sizes = np.zeros((len(block), len(edges) + 1), np.int64)
    vanish = np.zeros(len(block))
    fits = np.ones(len(block), bool)
    spec = schema.spec(names["instance"])
    class_spec = schema.spec(names["class"])
    caption_column = block.fields.get(dict(steps).get("captions", ""))
    for i in range(len(block)):
        mine = ids[i].reshape(-1)
        classes = None if labels_ is None else labels_[i].reshape(-1)
        places = None if points is None else points[i]
        if places is not None and (places.ndim < 2 or places.shape[-1] < 3):
            fits[i] = False
            continue
        xyz = None if places is None else places[..., :3].reshape(-1, 3)
        fits[i] = all(other is None or len(other) == len(mine) for other in (classes, xyz))
        if not fits[i]:
            continue
        captions = annotated(caption_column, i) if caption_column is not None else frozenset()
        scene = _Scene(*numbered_points(ids, labels_, i, spec, class_spec), classes, xyz, captions)
        counts[i, 1] = len(scene.ids)
        for number, (name, value) in enumerate(steps):
            met = scene.step(name, value, steps[number + 1 :])
            if met is not None:
                largest[i] = met.max(initial=-np.inf)
                sizes[i] = np.bincount(
                    np.searchsorted(edges, met, side="right"), minlength=len(edges) + 1
                )
            counts[i, 2 + number] = np.count_nonzero(scene.sizes())
        vanish[i] = scene.vanish
    counts[fits, 0] = stored_instances(ids, spec)[fits]
    return {
        "funnel": Measured(counts, fits),
        "vanish": Measured(vanish, fits),
        "largest": Measured(largest, fits & np.isfinite(largest)),
    } | ({"sizes": Measured(sizes, fits)} if edges else {})
