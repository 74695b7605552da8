"""Rules about boxes: their extent, the points and pictures around them, their stated areas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.rotation import inverse
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, count_phrase, measure, pluralize, rule
from datacheck.rules.measures import column_of, form, is_numeric
from datacheck.rules.placement import first_poses
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

# Corners of one box in two annotations differ by less [px], as pixels may be counted from 0 or 1.
_SAME_BOX = 1.5
_MOST_PAIRS = 1 << 20
# Share of the samples, and fewest of them, whose two annotations must be the same boxes.
_SAME_SHARE = 0.5
_FEWEST_SAME = 8
_FEW = 4096  # points tried first: most boxes hold one of them
# Fewest boxes of a camera without a point, and their least share of the sample's: a lidar does not
# hit what is far or hidden.
_FEWEST_HOLLOW = 2
_HOLLOW = 1 / 3
_EDGE = 1.0  # tolerance [px] at the edge of a picture: some writers count from 0, some from 1
_PICTURE = 8  # shortest edge [px] of a picture in which a box of one pixel is suspicious
_STATS = ("boxes", "zero", "flat", "nan", "empty", "first")
# Pairs of axes of which two numbers of a centre may be exchanged.
_PAIRS = {"held_xy": (0, 1), "held_xz": (0, 2), "held_yz": (1, 2)}
# Share of the boxes without a point that hold one once two axes are exchanged, and how many more
# than with any other two.
_EXPLAINED = 0.9
_MORE_EXPLAINED = 3


@measure(
    "boxes",
    version=4,
    per="sample",
    uses=(
        "fields.role",
        "fields.encloses",
        "fields.extrinsics",
        "fields.order",
        "fields.pixels_of",
        "fields.box_format",
        "fields.columns",
        "fields.absent",
    ),
)
def boxes(block: Block, schema: Schema) -> Columns:
    """Defects of boxes: counts by kind, and the extent of boxes in pictures.

    A box is centre, size, and perhaps yaw about z [rad], about y in the camera of its `extrinsics`;
    in a picture the numbers of its `box_format`, in pixels or in fractions of the picture. Counts,
    for each field: `<field>:boxes`; `:zero` all numbers 0; `:flat` otherwise with a size not above
    0; `:nan` with a number that is not finite; `:empty` sound ones without a point of the field
    that they enclose, for either sign of the yaw; `:held_xy`, `:held_xz`, `:held_yz` those of them
    that hold one once these two numbers of their place are exchanged. `:first`: the first box with
    a defect, -1 for none. For sound boxes in a picture `:box_ends`: smallest x_min and y_min,
    largest x_max and y_max; `:box_centres`: the same of their centres.
    """
    columns: dict[str, Measured] = {}
    for name, spec in schema.of_role("boxes"):
        column = column_of(block, schema, name)
        if column is None or not is_numeric(column) or column.values.ndim != 2:
            continue
        width = column.values.shape[1]
        if width in {6, 7}:
            box_counts = _counts_in_space(column, block, schema, spec)
        elif width == 4 and spec.pixels_of:
            both = [_in_picture(to_corners(column[i], spec)) for i in range(len(block))]
            box_counts = [counts for counts, _ in both]
            ends = np.array([end for _, end in both])
            sound = np.isfinite(ends[:, 0])
            columns |= {
                f"{name}:box_ends": Measured(ends[:, :4], sound),
                f"{name}:box_centres": Measured(ends[:, 4:], sound),
            }
        else:
            continue
        stats = (*_STATS, *_PAIRS) if width > 4 else _STATS
        for stat, values in zip(stats, np.array(box_counts).T, strict=True):
            columns[f"{name}:{stat}"] = Measured(values, np.ones(len(block), bool))
    return dict(columns)


def to_corners(rows: Array, spec: FieldSpec) -> Array:
    """Return boxes in the form x_min, y_min, x_max, y_max.

    Shapes:
        rows: real (boxes, 4), in the format of the field
        returns: float64 (boxes, 4), in the same unit
    """
    values = rows.astype(np.float64)
    low, size = values[:, :2], values[:, 2:]
    if spec.box_format == "cxcywh":
        low = low - size / 2
    if spec.box_format in {"cxcywh", "xywh"}:
        # A box of all zeros stays one, and a size of 0 or below gives corners in that order.
        return np.concatenate([low, low + size], axis=1)
    return values


def _in_picture(values: Array) -> tuple[tuple[int, ...], Array]:
    """Return the counts of `boxes` for corners in a picture, and the extent of the sound ones.

    Shapes:
        values: float64 (boxes, 4)
        returns: the counts; float64 (8), boxes and then centres, NaN where no box is sound
    """
    nan = ~np.isfinite(values).all(axis=1)
    zero = (values == 0).all(axis=1)
    low = values[:, :2]
    high = values[:, 2:]
    flat = ~nan & ~zero & (high <= low).any(axis=1)
    bad = nan | zero | flat
    counts = (len(values), int(zero.sum()), int(flat.sum()), int(nan.sum()), 0, _first(bad))
    if bad.all():
        return counts, np.full(8, np.nan)
    low, high = low[~bad], high[~bad]
    middle = low / 2 + high / 2  # halves first: the sum may overflow
    ends = low.min(axis=0), high.max(axis=0), middle.min(axis=0), middle.max(axis=0)
    return counts, np.concatenate(ends)


def _counts_in_space(
    column: Column, block: Block, schema: Schema, spec: FieldSpec
) -> list[tuple[int, ...]]:
    """Return the counts of `boxes` for those of each sample."""
    points = column_of(block, schema, spec.encloses) if spec.encloses else None
    if (
        points is None
        or not is_numeric(points)
        or points.values.ndim != 2
        or points.values.shape[1] < 3
    ):
        return [_kinds(column[i], None) for i in range(len(block))]
    if not spec.extrinsics:
        return [_kinds(column[i], points[i][:, :3].T) for i in range(len(block))]
    poses = first_poses(block, schema, spec.extrinsics)
    known = np.zeros(len(block), bool) if poses is None else poses[1]
    into_camera = inverse(poses[0]) if poses is not None else ()
    counts = []
    for i in range(len(block)):
        xyz = None
        if known[i]:
            xyz = into_camera[i][:3, :3] @ points[i][:, :3].T + into_camera[i][:3, 3:]
        # The yaw of a box is about its last axis.
        order = [0, 2, 1, 3, 5, 4, 6][: column.values.shape[1]]
        around = None if xyz is None else xyz[[0, 2, 1]]
        # KITTI writes the middle of the underside.
        *kinds, xz, xy, zy = _kinds(column[i][:, order], around, underside=True)
        counts.append((*kinds, xy, xz, zy))
    return counts


def _kinds(rows: Array, around: Array | None, *, underside: bool = False) -> tuple[int, ...]:
    """Return the counts of `boxes` of one sample.

    Shapes:
        rows: real (boxes, 6 or 7)
        around: real (3, points), None without any

    Args:
        rows: the boxes.
        around: the points.
        underside: whether axes are exchanged in the middle of a box's underside, not in its centre.
    """
    values = rows.astype(np.float64)
    nan = ~np.isfinite(values).all(axis=1)
    zero = (values == 0).all(axis=1)
    flat = ~nan & ~zero & (values[:, 3:6] <= 0).any(axis=1)
    empty = np.zeros(len(values), bool)
    exchanged = [0] * len(_PAIRS)
    sound = np.flatnonzero(~nan & ~zero & ~flat)
    if around is not None:
        xyz = np.ascontiguousarray(around)
        empty[sound] = [not _box_contains(xyz, values[k]) for k in sound]
        exchanged = [
            sum(
                _box_contains(xyz, _exchanged(values[k], *pair, underside=underside))
                for k in np.flatnonzero(empty)
            )
            for pair in _PAIRS.values()
        ]
    bad = nan | zero | flat | empty
    return (
        len(values),
        int(zero.sum()),
        int(flat.sum()),
        int(nan.sum()),
        int(empty.sum()),
        _first(bad),
        *exchanged,
    )


def _exchanged(box: Array, one: int, other: int, *, underside: bool) -> Array:
    """Return a box with two numbers of its centre, or of the middle of its underside, exchanged."""
    result = box.copy()
    lift = box[5] / 2 if underside else 0.0
    result[2] += lift
    result[[one, other]] = result[[other, one]]
    result[2] -= lift
    return result


def _first(bad: Array) -> int:
    return int(np.argmax(bad)) if bad.any() else -1


def _box_contains(xyz: Array, box: Array) -> bool:
    """Tell whether a point lies in a box; tries a few points first, then all."""
    step = xyz.shape[1] // _FEW
    return (step > 1 and _any_inside(xyz[:, ::step], box)) or _any_inside(xyz, box)


def _any_inside(xyz: Array, box: Array) -> bool:
    half = box[3:6] / 2
    level = np.abs(xyz[2] - box[2]) <= half[2]
    x = xyz[0][level] - box[0]
    y = xyz[1][level] - box[1]
    yaw = float(box[6]) if len(box) > 6 else 0.0
    for turn in {yaw, -yaw}:  # the sign of yaw differs between datasets
        along = np.cos(turn) * x + np.sin(turn) * y
        across = np.cos(turn) * y - np.sin(turn) * x
        if bool(((np.abs(along) <= half[0]) & (np.abs(across) <= half[1])).any()):
            return True
    return False


@measure(
    "two-annotations",
    per="sample",
    uses=("fields.role", "fields.pixels_of", "fields.box_format", "fields.absent"),
)
def two_annotations(block: Block, schema: Schema) -> Columns:
    """Boxes of one picture in two fields, for each first one of these.

    Counts: `<field>:unpaired`, boxes of either field without the same box in the other;
    `:first_sides` and `:second_sides`, those of the first and the second field that the other holds
    once their last two numbers are taken as width and height.
    """
    columns: dict[str, Measured] = {}
    for name, other in _of_one_picture(schema):
        pair = [column_of(block, schema, field) for field in (name, other)]
        one, two = pair
        if one is None or two is None or not all(map(_are_boxes, (one, two))):
            continue
        specs = schema.fields[name], schema.fields[other]
        counts = [
            _unpaired(to_corners(one[i], specs[0]), to_corners(two[i], specs[1]))
            for i in range(len(block))
        ]
        present = np.array([count is not None for count in counts], bool)
        values = np.array([count or (0, 0, 0) for count in counts])
        for stat, numbers in zip(
            ("unpaired", "first_sides", "second_sides"), values.T, strict=True
        ):
            columns[f"{name}:{stat}"] = Measured(numbers, present)
    return dict(columns)


def _of_one_picture(schema: Schema) -> list[tuple[str, str]]:
    """Return the fields of boxes that have the same picture, each with the next one."""
    by_picture: dict[str, list[str]] = {}
    for name, spec in schema.of_role("boxes"):
        if spec.pixels_of:
            by_picture.setdefault(spec.pixels_of, []).append(name)
    return [pair for names in by_picture.values() for pair in pairwise(sorted(names))]


def _are_boxes(column: Column) -> bool:
    return is_numeric(column) and column.values.ndim == 2 and column.values.shape[1] == 4


def _unpaired(one: Array, two: Array) -> tuple[int, int, int] | None:
    """Return the counts of `two_annotations` of one sample, None for no boxes or far too many.

    Shapes:
        one, two: float64 (boxes, 4), corners
    """
    if not max(len(one), len(two)) > 0 or len(one) * len(two) > _MOST_PAIRS:
        return None
    mine, others = ~_held(one, two), ~_held(two, one)
    first, second = (
        int(_held(np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]), whole).sum())
        for boxes, whole in ((one[mine], two[others]), (two[others], one[mine]))
    )
    return int(mine.sum() + others.sum()), first, second


def _held(some: Array, among: Array) -> Array:
    """Tell which boxes are among others, but for a pixel."""
    if len(some) < len(among):
        return np.array([bool(_held(among, box[None]).any()) for box in some], bool)
    held = np.zeros(len(some), bool)
    for box in among:
        held |= (np.abs(some - box) < _SAME_BOX).all(axis=1)
    return held


@rule(
    "DC409",
    "degenerate-box",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(boxes, two_annotations, form),
    suppressed_by=("DC109", "DC121", "DC122", "DC201", "DC203", "DC221", "DC414"),
    unless=lambda s: "" if any(s.of_role("boxes")) else "no field of role boxes",
)
def degenerate_box(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A box has no extent, contains no point, or lies outside its image.

    What:
        Every box has a size above 0 and finite numbers, and is not all zeros. With ``encloses``,
        each box contains a point (warning); with ``extrinsics``, too, the boxes lie in the axes of
        a camera, y down, and only samples fail in which 2 boxes or more, and a third of all, are
        without a point. With ``pixels_of``, the centre of each box (error) and
        the whole box (warning) lie in the image, with a tolerance of one pixel, and not all boxes
        of a sample lie within the first pixel (error). Boxes in fractions of the image (``unit:
        "1"``) are not in pixels (error). If two fields of one image hold the same boxes in most
        samples, 8 or more, they do so in all (error).
    Why it matters:
        A size of 0 gives an infinite or NaN regression target. An empty box teaches the model to
        see objects that are not there.
    Measure:
        Counts of boxes by defect. Points are searched in the axes of the box, for both signs of the
        yaw. Of an image, only its size is used.
    When it is wrong:
        Boxes of objects that the sensor did not hit are intended: remove ``encloses``. Boxes extend
        beyond the image border, such as those of partly hidden objects: remove ``pixels_of``.
    Options:
        none
    Bad::

        schema: {fields: {box: {role: boxes, shape: [N, 6]}}}
        samples:
          - {box: [[0, 0, 0, 1, 2, 1.5]]}
          - {box: [[3, 1, 0, 4, 2, 1.5]]}
          - {box: [[0, 0, 0, 1, 2, 1.5], [1, 1, 0, 2, 0, 1.0]]}

    Good::

        schema: {fields: {box: {role: boxes, shape: [N, 6]}}}
        samples:
          - {box: [[0, 0, 0, 1, 2, 1.5]]}
          - {box: [[3, 1, 0, 4, 2, 1.5]]}

    Fix:
        Remove these boxes, or compute them again from the points.
    Reference:
        OpenPCDet issue 330: boxes of zeros. torchvision's detection models reject boxes without an
        extent.
    """
    for name, other in _of_one_picture(case.schema):
        yield from _contradictory(rows, case.schema, name, other)
    for name, spec in case.schema.of_role("boxes"):
        measured = rows.measured(f":{name}:boxes")
        if not measured.any():
            continue
        zero, flat, nan, empty = (
            np.where(measured, rows[f":{name}:{s}"], 0) for s in ("zero", "flat", "nan", "empty")
        )
        bad = zero + flat + nan
        if (bad > 0).any():
            yield _degenerate(rows, name, spec, zero, flat, nan)
        if spec.pixels_of:
            yield from _outside(rows, name, spec, spec.pixels_of)
        hollow = (empty > 0) & (bad == 0)
        if spec.extrinsics:
            hollow &= empty >= np.maximum(_FEWEST_HOLLOW, _HOLLOW * rows[f":{name}:boxes"])
        if hollow.any():
            total = int(rows[f":{name}:boxes"][hollow].sum())
            yield Failure(
                hollow,
                f"{name}: {int(empty[hollow].sum()):,} of "
                f"{pluralize(total, 'box').replace('boxs', 'boxes')} in "
                f"{pluralize(int(hollow.sum()))} hold no point of {spec.encloses}.",
                measured={"empty": int(empty[hollow].sum()), "boxes": total},
                expected={"points": "1.."},
                cause=_axes_exchanged(rows, name, hollow, empty)
                or _all_empty(rows, name, hollow, empty),
                severity=Severity.WARNING,
                fix="Remove them, or check the frame and the unit of the boxes.",
                kind="empty",
                order=empty,
                extra=(name,),
            )


def _contradictory(rows: Rows, schema: Schema, name: str, other: str) -> Iterator[Failure]:
    """Yield the samples of which two annotations differ, where those of most are the same."""
    in_pixels = "1" not in {schema.fields[name].unit, schema.fields[other].unit}
    if not in_pixels or f":{name}:unpaired" not in rows:
        return
    measured = rows.measured(f":{name}:unpaired")
    unpaired = np.where(measured, rows[f":{name}:unpaired"], 0)
    bad = unpaired > 0
    same = int((measured & ~bad).sum())
    if not bad.any() or same < max(_FEWEST_SAME, _SAME_SHARE * measured.sum()):
        return
    # Each box that is wrong leaves the right one alone, too.
    sides = {name: rows[f":{name}:first_sides"], other: rows[f":{name}:second_sides"]}
    wrong, explained = max(sides.items(), key=lambda item: int(item[1][bad].sum()))
    fits = bad & (2 * explained == unpaired)
    cause = None
    if fits.sum() >= _EXPLAINED * bad.sum():
        text = f"{wrong} holds width and height where x_max and y_max belong"
        cause = Cause(text, "sides", explains=int(fits.sum()))
    yield Failure(
        bad,
        f"{name} and {other} differ in {pluralize(int(bad.sum()))}; in {same:,} they are the same "
        f"boxes.",
        measured={"samples": int(bad.sum()), "same": same},
        cause=cause,
        fix="Hold both against the picture, and write the one that is wrong again.",
        kind="contradictory",
        order=unpaired,
        extra=(name, other),
    )


def _outside(rows: Rows, name: str, spec: FieldSpec, picture: str) -> Iterator[Failure]:
    """Yield samples with boxes whose centre is outside of the picture, or that reach beyond it."""
    if (
        f":{name}:box_ends" not in rows
        or f"{picture}:dims" not in rows
        or rows[f"{picture}:dims"].shape[1] < 2
    ):
        return
    measured = rows.measured(f":{name}:box_ends") & (rows[f"{picture}:ndim"] > 1)
    edge = rows[f"{picture}:dims"][:, 1::-1].astype(np.float64)
    is_share = spec.unit == "1"
    pixels = np.concatenate([edge, edge], axis=1) if is_share else 1.0

    def beyond(stat: str) -> Array:
        ends = rows[f":{name}:{stat}"] * pixels
        return np.where(measured, np.maximum(-ends[:, :2], ends[:, 2:] - edge).max(axis=1), 0)

    reach = beyond("box_ends")
    away = beyond("box_centres") > _EDGE
    where = f" ({spec.file})" if spec.file else ""
    ends = rows[f":{name}:box_ends"]
    large = edge.min(axis=1) >= _PICTURE
    tiny = measured & (ends.min(axis=1) >= 0) & (ends.max(axis=1) <= 1) & large & (not is_share)
    # In pixels the centre of each box is above 1, and most of them far above.
    in_pixels = (
        measured
        & large
        & is_share
        & (ends.max(axis=1) >= _PICTURE / 2)
        & (rows[f":{name}:box_centres"].min(axis=1) >= 1)
        & (ends.min(axis=1) >= -_EDGE)
        & (ends[:, 2:] <= edge + _EDGE).all(axis=1)
    )
    if in_pixels.any():
        away &= ~in_pixels
        reach = np.where(in_pixels, 0, reach)
        yield Failure(
            in_pixels,
            f"{name}{where}: the boxes of {pluralize(int(in_pixels.sum()))} reach up to "
            f"{float(ends[in_pixels].max()):,.0f}; fractions of {picture} are at most 1.",
            measured={"largest": float(ends[in_pixels].max())},
            expected={"largest": "..1"},
            cause=Cause("in pixels, not divided by the width and height of the picture", "pixels"),
            fix="Divide x by the width of the picture, and y by its height.",
            kind="pixels",
            order=ends.max(axis=1),
            extra=(name,),
        )
    if tiny.any():
        yield Failure(
            tiny,
            f"{name}{where}: all boxes of {pluralize(int(tiny.sum()))} lie within the first pixel "
            f"of {picture}.",
            measured={"pixels": float(ends[tiny].max())},
            cause=Cause(
                "divided by the width and height of the picture: shares of it, not pixels",
                "normalised",
            ),
            fix="Write them in pixels: x times the width of the picture, y times its height. Look "
            "first whether they "
            "are corners, or centre and size.",
            kind="normalised",
            extra=(name,),
        )
    if away.any():
        yield Failure(
            away,
            f"{name}{where}: {count_phrase(away, 'have')} boxes whose centre lies outside of "
            f"{picture}; they reach up to "
            f"{float(reach[away].max()):,.0f} pixels beyond it.",
            measured={"pixels": float(reach[away].max())},
            expected={"pixels": f"..{_EDGE:g}"},
            fix="Hold the boxes against their picture: it may have had another size when they were "
            "drawn.",
            kind="outside",
            order=reach,
            extra=(name,),
        )
    over = (reach > _EDGE) & ~away
    if over.any():
        yield Failure(
            over,
            f"{name}{where}: {count_phrase(over, 'have')} boxes that reach beyond {picture}, by up "
            f"to "
            f"{float(reach[over].max()):,.0f} pixels.",
            measured={"pixels": float(reach[over].max())},
            expected={"pixels": f"..{_EDGE:g}"},
            severity=Severity.WARNING,
            fix="Hold the boxes against their picture; clip those that fit it.",
            kind="edge",
            order=reach,
            extra=(name,),
        )


def _degenerate(
    rows: Rows, name: str, spec: FieldSpec, zero: Array, flat: Array, nan: Array
) -> Failure:
    bad = zero + flat + nan
    kinds = {
        "are all zeros": zero,
        "have a size that is not above 0": flat,
        "hold NaN or infinity": nan,
    }
    phrases = [f"{int(count.sum()):,} {what}" for what, count in kinds.items() if count.any()]
    first_box = int(rows[f":{name}:first"][bad > 0][0])
    only = bool((zero == bad).all())
    return Failure(
        bad > 0,
        f"{name}: {', '.join(phrases)} in {pluralize(int((bad > 0).sum()))}; the first is box {first_box}.",
        measured={"zero": int(zero.sum()), "flat": int(flat.sum()), "nan": int(nan.sum())},
        expected={"size": "above 0"},
        cause=Cause("rows of zeros that fill an array up to a fixed number of boxes", "padding")
        if only
        else None,
        fix=_mend_boxes(spec, only=only),
        kind="zero" if only else "flat",
        order=bad,
        extra=(name,),
    )


def _mend_boxes(spec: FieldSpec, *, only: bool) -> str:
    """Return what to do about boxes without an extent; `only`: all of them are zeros."""
    if not spec.pixels_of:
        return "Remove these boxes, or compute them again from the points."
    again = "Remove these boxes, or draw them again."
    if only or spec.box_format not in {None, "xyxy"}:
        return again
    return (
        "Look first whether the last two numbers are width and height: then convert all boxes of "
        f"these files. Else: {again[0].lower()}{again[1:]}"
    )


def _axes_exchanged(rows: Rows, name: str, hollow: Array, empty: Array) -> Cause | None:
    """Return the exchange of two axes after which nearly all boxes hold a point, or None."""
    held = {pair: rows[f":{name}:{pair}"] for pair in _PAIRS if f":{name}:{pair}" in rows}
    if not held:
        return None
    (second, _), (best, pair) = sorted(
        (int(values[hollow].sum()), pair) for pair, values in held.items()
    )[-2:]
    if best < _EXPLAINED * empty[hollow].sum() or best - second < _MORE_EXPLAINED:
        return None
    explains = int((hollow & (held[pair] == empty)).sum())
    text = f"{pair[-2]} and {pair[-1]} of the centres exchanged: so these boxes hold points"
    return Cause(text, "exchanged", explains=explains)


def _all_empty(rows: Rows, name: str, hollow: Array, empty: Array) -> Cause | None:
    every = hollow & (empty == rows[f":{name}:boxes"])
    if not every.any():
        return None
    return Cause(
        "not one box of these samples holds a point: another frame or unit than the points",
        "frame",
        explains=int(every.sum()),
    )


_SAME = 0.01  # relative difference of two areas that rounding explains
_BORDER = 1.0  # pixels that an outline may lie outside of its box on each side
_FEWEST = 8  # boxes whose areas tell how the others were written
_MOST_SAME = 0.8  # share of boxes whose area is their own, or that of their numbers as corners


@measure(
    "areas",
    version=2,
    per="sample",
    uses=("fields.role", "fields.areas", "fields.box_format", "fields.absent"),
)
def areas(block: Block, schema: Schema) -> Columns:
    """Stated areas of boxes [N, 4] against the boxes, for each field that has them.

    Counts: `<field>:area_stated`, areas above 0 of boxes with an extent; `:area_same`, those that are
    the area of their box; `:area_corners`, others that are the area of the box if its x_max and
    y_max were x_min + x_max and y_min + y_max; `:area_large`, areas that do not fit into the box;
    `:area_first`, the first box that `:area_corners` or else `:area_large` counts, -1 for none.
    """
    columns: dict[str, Measured] = {}
    for name, spec in schema.of_role("boxes"):
        column = column_of(block, schema, name)
        stated = block.fields.get(spec.areas or "")
        if column is None or stated is None or not is_numeric(column) or not is_numeric(stated):
            continue
        if column.values.ndim != 2 or column.values.shape[1] != 4 or stated.values.ndim != 1:
            continue
        pairs = [(to_corners(column[i], spec), np.atleast_1d(stated[i])) for i in range(len(block))]
        fits = np.array([len(rows) == len(numbers) for rows, numbers in pairs])
        counts = np.array(
            [
                _area_counts(rows, numbers) if fit else (0, 0, 0, 0, -1)
                for fit, (rows, numbers) in zip(fits.tolist(), pairs, strict=True)
            ]
        )
        for stat, values in zip(
            ("stated", "same", "corners", "large", "first"), counts.T, strict=True
        ):
            columns[f"{name}:area_{stat}"] = Measured(values, fits)
    return dict(columns)


def _area_counts(values: Array, stated: Array) -> tuple[int, ...]:
    """Return the counts of `areas` of one sample.

    Shapes:
        values: float64 (boxes, 4), corners
        stated: real (boxes)
    """
    area = stated.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sides = values[:, 2:] - values[:, :2]
        judged = np.isfinite(values).all(axis=1) & (sides > 0).all(axis=1) & (area > 0)
        same = judged & _is_near(area, sides.prod(axis=1))
        # Read as corners, the stored width and height are x_max and y_max.
        others = sides - values[:, :2]
        corners = judged & ~same & (others > 0).all(axis=1) & _is_near(area, others.prod(axis=1))
        large = judged & ~same & ~corners & (area > (sides + 2 * _BORDER).prod(axis=1))
    if not (values[judged] > 1).any():  # shares of the picture, whose areas are in pixels
        large[:] = False
    bad = corners if corners.any() else large
    return int(judged.sum()), int(same.sum()), int(corners.sum()), int(large.sum()), _first(bad)


def _is_near(area: Array, other: Array) -> Array:
    near: Array = np.isfinite(area) & (np.abs(area - other) <= _SAME * area)
    return near


@rule(
    "DC414",
    "box-area",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    measures=(areas,),
    suppressed_by=("DC109", "DC121", "DC122", "DC201", "DC221"),
    unless=lambda s: (
        ""
        if any(spec.areas for _, spec in s.of_role("boxes"))
        else "no field of role boxes has areas"
    ),
)
def box_area(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The stated area of a box is not that of the box.

    What:
        With ``areas``, no box is smaller than its stated area, which is that of the box or of the
        outline in it.
    Why it matters:
        Corners written where width and height belong give boxes that cover half of the picture.
        Evaluation sorts objects into small, medium and large by the stated area.
    Measure:
        The area against width times height, to 1 %. If in 80 % of the boxes, 8 or more, the area is
        that of the box or of its numbers read as corners, the latter are named as corners (error).
        An area that does not fit into its box with a border of 1 pixel is a warning.
    When it is wrong:
        The areas are in another unit, or were not changed when the pictures were resized: leave
        out ``areas``.
    Options:
        none
    Bad::

        schema:
          fields: {box: {role: boxes, shape: [N, 4], unit: px, areas: area}, area: {shape: [N]}}
          duplicates: {exact: off}
        samples:
          - {n: 8, box: [[10, 20, 30, 50]], area: [600]}
          - {box: [[10, 20, 40, 70]], area: [600]}

    Good::

        schema:
          fields: {box: {role: boxes, shape: [N, 4], unit: px, areas: area}, area: {shape: [N]}}
          duplicates: {exact: off}
        samples:
          - {n: 8, box: [[10, 20, 30, 50]], area: [600]}
          - {box: [[10, 20, 40, 70]], area: [1500]}

    Fix:
        Write x_min, y_min, width and height, or compute the areas again.
    Reference:
        COCO: ``bbox`` is x, y, width, height, and ``area`` that of the outline. pycocotools loads
        corners in ``bbox`` without an error.
    """
    for name, spec in case.schema.of_role("boxes"):
        if f":{name}:area_stated" not in rows:
            continue
        measured = rows.measured(f":{name}:area_stated")
        judged, same, corners, large = (
            np.where(measured, rows[f":{name}:area_{stat}"], 0)
            for stat in ("stated", "same", "corners", "large")
        )
        alike = same.sum() + corners.sum()
        if corners.any() and alike >= max(_FEWEST, _MOST_SAME * judged.sum()):
            yield _as_corners(rows, name, corners, int(judged.sum()))
        if (large > 0).any() and spec.unit in {None, "px"}:
            yield Failure(
                large > 0,
                f"{name}: {spec.areas} does not fit into {int(large.sum()):,} of "
                f"{int(judged.sum()):,} boxes, in {pluralize(int((large > 0).sum()))}.",
                measured={"boxes": int(large.sum()), "of": int(judged.sum())},
                severity=Severity.WARNING,
                fix="Hold box and outline against the picture: one of them was moved, or made for "
                "another size.",
                kind="large",
                order=large,
                extra=(name,),
            )


def _as_corners(rows: Rows, name: str, corners: Array, total: int) -> Failure:
    where = corners > 0
    count = int(corners.sum())
    first = int(rows[f":{name}:area_first"][where][0])
    return Failure(
        where,
        f"{name}: {count:,} of {total:,} boxes have the area of their numbers read as corners, in "
        f"{pluralize(int(where.sum()))}; the first is box {first}.",
        measured={"boxes": count, "of": total},
        cause=Cause(
            "x_min, y_min, x_max, y_max where x_min, y_min, width, height belong", "corners"
        ),
        fix="Subtract x_min and y_min from the last two numbers of these boxes.",
        kind="corners",
        order=corners,
        extra=(name,),
    )
