"""What is left of a scene's instances after each of the loader's own steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.rules.base import Columns, measure
from datacheck.rules.histograms import first_rows, numbered_points, stored_instances
from datacheck.rules.measures import annotated, is_numeric, one_of
from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import Measured
from datacheck.voxel import deciding, occupied, representatives

Array = np.ndarray[Any, Any]

_MANY = 1 << 14  # points of which not every voxel is looked at
_ENOUGH = 4  # times min_points: voxels of an instance that are counted
_PER_INSTANCE = frozenset({"drop_classes", "min_points", "captions"})  # steps that take whole instances


@dataclass(eq=False)
class _Scene:
    """One scene on its way through the loader: which points are left, and which instances live.

    Args:
        ids, which: instance ids in rising order; of each point the place of its instance there from 1, 0 for none.
        size: how many points each has, later the expected number; None where it is to be counted again.
        classes: of each point, or None.

    Attributes:
        rows: points that are left, None for all.
        weight: expected number of points that each of these stands for: one for all, or one each.
        vanish: expected number of instances of which a clip leaves no point.
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
        """Return the expected number of points of each instance, and 0 for those that live no more."""
        return np.where(self.lives, self._counted(), 0.0)

    def _first(self) -> Array:
        return first_rows(self._left(self.which), len(self.ids))

    def first_classes(self) -> Array:
        """Return the class of the first point of each instance that is left, as Mask3D takes it; -1 without one."""
        first = self._first()
        rows = first if self.rows is None or not len(self.rows) else self.rows[first]
        return np.where(first >= 0, rows if self.classes is None else self.classes[rows], -1)

    def step(self, name: str, value: Any, later: tuple[tuple[str, Any], ...]) -> Array | None:
        """Take one step of the loader; return the sizes of the instances that ``min_points`` met, else None.

        Args:
            name, value: the step.
            later: the steps behind it.
        """
        met = None
        if name == "clip":
            left = len(self.which) if self.rows is None else len(self.rows)
            if value < left:
                size = self.sizes()
                self.vanish += float(((1 - value / left) ** size[size > 0]).sum())
            self.weight, self.size = self.weight * min(1.0, value / max(1, left)), None
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
            self.lives = self.lives & np.array([int(i) in self.captions for i in self.ids], dtype=bool)
        return met

    def _keep(self, classes: Array, kept: tuple[int, ...]) -> None:
        """Take the instance off every point whose class is not kept: of an instance of two classes a part is left."""
        found, code = np.unique(classes, return_inverse=True)
        known = np.isin(found, np.asarray(kept, dtype=np.float64))
        if not known.all():
            self.which, self.size = np.where(known[code], self.which, 0), None

    def _voxels(self, xyz: Array, edge: float, later: dict[str, Any]) -> None:
        plain = isinstance(self.weight, float) and self.weight == 1
        if plain and len(xyz) > _MANY and later.keys() <= _PER_INSTANCE:
            owner, least = self._left(self.which), _ENOUGH * later.get("min_points", 1)
            kept = deciding(xyz, edge, owner, self._counted(), self._first(), least)
        elif plain:
            kept = representatives(xyz, edge)
        else:
            kept, points = occupied(xyz, edge)
            each = self.weight[kept] if isinstance(self.weight, np.ndarray) else np.full(len(kept), self.weight)
            self.weight = 1 - (1 - each) ** points
        self.rows, self.size = kept if self.rows is None else self.rows[kept], None


def loader_steps(schema: Schema) -> tuple[tuple[str, Any], ...]:
    """Return the loader's steps, then ``min_points`` of the instance field where the loader has none."""
    steps = schema.loader.steps if schema.loader is not None else ()
    least = next((spec.min_points for _, spec in schema.of_role("instance")), None)
    return (*steps, ("min_points", least)) if least and "min_points" not in dict(steps) else steps


def size_edges(steps: tuple[tuple[str, Any], ...]) -> tuple[int, ...]:
    """Return the numbers of points between which instances are counted: ``min_points``, parts and multiples of it.

    Notes:
        None without that step. The last is as far as sizes are counted to the end.
    """
    least = dict(steps).get("min_points")
    parts = () if least is None else (*(-(-least >> k) for k in (4, 3, 2, 1)), least, 2 * least, _ENOUGH * least)
    return tuple(sorted({*parts}))


@measure(
    "funnel", version=4, per="sample",
    uses=("loader", "fields.role", "fields.ignore", "fields.classes", "fields.min_points", "fields.absent"),
)  # fmt: skip
def funnel(block: Block, schema: Schema) -> Columns:
    """Instances at each stage: `funnel` (stored, with a class, then after each step of the loader).

    `largest`: expected points of the largest instance that met ``min_points``, where there is that step (above 4 times
    ``min_points`` it may be more than that), `sizes`: how many it met below the first of `size_edges`, from each to
    the next, and from the last on; `vanish`: expected number of instances of which ``clip`` leaves no point:
    (1 - clip/N)^n of one with n of N points.
    """
    names = {role: next((n for n, _ in schema.of_role(role)), "") for role in ("instance", "class", "points")}
    found = {role: block.fields.get(name) for role, name in names.items()}
    ids, labels_, points = found["instance"], found["class"], found["points"]
    steps = loader_steps(schema)
    if ids is None or ids.lengths is None or len(steps) > 60:
        return {}
    if not all(column is None or is_numeric(column) for column in (ids, labels_, points)):
        return {}
    counts = np.zeros((len(block), 2 + len(steps)), np.int64)
    largest = np.full(len(block), np.nan)
    edges = size_edges(steps)
    sizes = np.zeros((len(block), len(edges) + 1), np.int64)
    vanish, fits = np.zeros(len(block)), np.ones(len(block), bool)
    spec, class_spec = schema.spec(names["instance"]), schema.spec(names["class"])
    told = block.fields.get(dict(steps).get("captions", ""))
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
        captions = annotated(told, i) if told is not None else frozenset()
        scene = _Scene(*numbered_points(ids, labels_, i, spec, class_spec), classes, xyz, captions)
        counts[i, 1] = len(scene.ids)
        for number, (name, value) in enumerate(steps):
            met = scene.step(name, value, steps[number + 1 :])
            if met is not None:
                largest[i] = met.max(initial=-np.inf)
                sizes[i] = np.bincount(np.searchsorted(edges, met, side="right"), minlength=len(edges) + 1)
            counts[i, 2 + number] = np.count_nonzero(scene.sizes())
        vanish[i] = scene.vanish
    counts[fits, 0] = stored_instances(ids, spec)[fits]
    return {
        "funnel": Measured(counts, fits), "vanish": Measured(vanish, fits),
        "largest": Measured(largest, fits & np.isfinite(largest)),
    } | ({"sizes": Measured(sizes, fits)} if edges else {})  # fmt: skip
