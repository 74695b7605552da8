"""Rules about boxes around objects: they have an extent, and points inside, or lie in their picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, those
from datacheck.rules.measures import column_of, form, is_numeric
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_FEW = 4096  # points that are tried first: most boxes hold one of them
_EDGE = 1.0  # pixels beside a picture that are no fault: some count from 0, some from 1
_PICTURE = 8  # fewest pixels of a picture's edge at which a box of one pixel is none that somebody drew
_STATS = ("boxes", "zero", "flat", "nan", "empty", "first")


@measure(
    "boxes", version=2, per="sample",
    uses=("fields.role", "fields.encloses", "fields.pixels_of", "fields.columns", "fields.absent"),
)  # fmt: skip
def boxes(block: Block, schema: Schema) -> Columns:
    """What boxes are like: centre, size, and perhaps yaw about z [rad]; in a picture x_min, y_min, x_max, y_max [px].

    Counts, for each field: `<field>:boxes`; `:zero` all numbers 0; `:flat` otherwise with a size that is not above 0;
    `:nan` with a number that is none; `:empty` sound ones without a point of the field that they enclose, whichever
    way the yaw turns. `:first`: the first box that is one of these, -1 for none. Of sound boxes in a picture
    `:box_ends`: smallest x_min and y_min, largest x_max and y_max; `:box_centres`: the same of their centres.
    """
    columns: dict[str, Measured] = {}
    for name, spec in schema.of_role("boxes"):
        column = column_of(block, schema, name)
        if column is None or not is_numeric(column) or column.values.ndim != 2:
            continue
        width = column.values.shape[1]
        if width in {6, 7}:
            around = column_of(block, schema, spec.encloses) if spec.encloses else None
            found = [_kinds(column[i], around, i) for i in range(len(block))]
        elif width == 4 and spec.pixels_of:
            both = [_in_pixels(column[i]) for i in range(len(block))]
            found = [counts for counts, _ in both]
            ends = np.array([end for _, end in both])
            sound = np.isfinite(ends[:, 0])
            columns |= {
                f"{name}:box_ends": Measured(ends[:, :4], sound),
                f"{name}:box_centres": Measured(ends[:, 4:], sound),
            }
        else:
            continue
        for stat, values in zip(_STATS, np.array(found).T, strict=True):
            columns[f"{name}:{stat}"] = Measured(values, np.ones(len(block), bool))
    return dict(columns)


def _in_pixels(rows: Array) -> tuple[tuple[int, ...], Array]:
    """Return what `boxes` counts of boxes [N, 4] in pixels, and how far sound ones and their centres reach.

    Shapes:
        returns: float64 (8), NaN where no box is sound
    """
    values = rows.astype(np.float64)
    nan = ~np.isfinite(values).all(axis=1)
    zero = (values == 0).all(axis=1)
    low, high = values[:, :2], values[:, 2:]
    flat = ~nan & ~zero & (high <= low).any(axis=1)
    bad = nan | zero | flat
    counts = (len(values), int(zero.sum()), int(flat.sum()), int(nan.sum()), 0, _first(bad))
    if bad.all():
        return counts, np.full(8, np.nan)
    low, high = low[~bad], high[~bad]
    middle = low / 2 + high / 2  # the sum may be too large
    ends = low.min(axis=0), high.max(axis=0), middle.min(axis=0), middle.max(axis=0)
    return counts, np.concatenate(ends)


def _kinds(rows: Array, around: Column | None, i: int) -> tuple[int, ...]:
    values = rows.astype(np.float64)
    nan = ~np.isfinite(values).all(axis=1)
    zero = (values == 0).all(axis=1)
    flat = ~nan & ~zero & (values[:, 3:6] <= 0).any(axis=1)
    empty = np.zeros(len(values), bool)
    sound = np.flatnonzero(~nan & ~zero & ~flat)
    if around is not None and is_numeric(around) and around.values.ndim == 2 and around.values.shape[1] >= 3:
        xyz = np.ascontiguousarray(around[i][:, :3].T)
        empty[sound] = [not _holds(xyz, values[k]) for k in sound]
    bad = nan | zero | flat | empty
    return len(values), int(zero.sum()), int(flat.sum()), int(nan.sum()), int(empty.sum()), _first(bad)


def _first(bad: Array) -> int:
    return int(np.argmax(bad)) if bad.any() else -1


def _holds(xyz: Array, box: Array) -> bool:
    """Tell whether a point lies in a box: few points are tried first, then all."""
    step = xyz.shape[1] // _FEW
    return (step > 1 and _any_inside(xyz[:, ::step], box)) or _any_inside(xyz, box)


def _any_inside(xyz: Array, box: Array) -> bool:
    half = box[3:6] / 2
    level = np.abs(xyz[2] - box[2]) <= half[2]
    x, y = xyz[0][level] - box[0], xyz[1][level] - box[1]
    yaw = float(box[6]) if len(box) > 6 else 0.0
    for turn in {yaw, -yaw}:  # which way is positive differs from dataset to dataset
        along, across = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
        if bool(((np.abs(along) <= half[0]) & (np.abs(across) <= half[1])).any()):
            return True
    return False


@rule(
    "DC409", "degenerate-box", Severity.ERROR, Level.SAMPLE, per="sample", measures=(boxes, form),
    needs=("DC109", "DC121", "DC122", "DC201", "DC221"),
    unless=lambda s: "" if any(s.of_role("boxes")) else "no field of role boxes",
)  # fmt: skip
def degenerate_box(rows: Rows, case: Case) -> Iterator[Failure]:
    """A box has no extent, no point inside, or lies outside of its picture.

    What:
        Sizes are above 0, no box is all zeros, every number is one. With ``encloses`` each box holds a point (warning).
        With ``pixels_of`` the centre of each box lies in the picture and not all boxes in its first pixel (errors), and
        each box does, but for one pixel (warning).
    Why it matters:
        A size of 0 gives an infinite or NaN regression target; an empty box teaches to see what is not there.
    Measure:
        Boxes by kind. Points in a box are looked for in its own axes, with the yaw turned either way; pictures give
        their size alone.
    When it is wrong:
        Boxes of objects that the sensor did not hit are wanted: drop ``encloses``. Boxes go on where the picture ends,
        as of hidden objects: drop ``pixels_of``.
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
        OpenPCDet issue 330: boxes of zeros. torchvision's detection models refuse boxes without an extent.
    """
    for name, spec in case.schema.of_role("boxes"):
        known = rows.measured(f":{name}:boxes")
        if not known.any():
            continue
        zero, flat, nan, empty = (np.where(known, rows[f":{name}:{s}"], 0) for s in ("zero", "flat", "nan", "empty"))
        bad = zero + flat + nan
        if (bad > 0).any():
            yield _degenerate(rows, name, spec, zero, flat, nan)
        if spec.pixels_of:
            yield from _outside(rows, name, spec, spec.pixels_of)
        hollow = (empty > 0) & (bad == 0)
        if hollow.any():
            total = int(rows[f":{name}:boxes"][hollow].sum())
            yield Failure(
                hollow,
                f"{name}: {int(empty[hollow].sum()):,} of {counted(total, 'box').replace('boxs', 'boxes')} in "
                f"{counted(int(hollow.sum()))} hold no point of {spec.encloses}.",
                measured={"empty": int(empty[hollow].sum()), "boxes": total},
                expected={"points": "1.."},
                cause=_all_empty(rows, name, hollow, empty),
                severity=Severity.WARNING,
                fix="Remove them, or check the frame and the unit of the boxes.",
                kind="empty",
                order=empty,
                extra=(name,),
            )


def _outside(rows: Rows, name: str, spec: FieldSpec, picture: str) -> Iterator[Failure]:
    """Yield the samples with a box whose centre is not in the picture, and others with one that reaches beyond it."""
    if f":{name}:box_ends" not in rows or f"{picture}:dims" not in rows or rows[f"{picture}:dims"].shape[1] < 2:
        return
    known = rows.measured(f":{name}:box_ends") & (rows[f"{picture}:ndim"] > 1)
    edge = rows[f"{picture}:dims"][:, 1::-1]

    def beyond(stat: str) -> Array:
        ends = rows[f":{name}:{stat}"]
        return np.where(known, np.maximum(-ends[:, :2], ends[:, 2:] - edge).max(axis=1), 0)

    reach, away = beyond("box_ends"), beyond("box_centres") > _EDGE
    where = f" ({spec.file})" if spec.file else ""
    ends = rows[f":{name}:box_ends"]
    tiny = known & (ends.min(axis=1) >= 0) & (ends.max(axis=1) <= 1) & (edge.min(axis=1) >= _PICTURE)
    if tiny.any():
        yield Failure(
            tiny,
            f"{name}{where}: all boxes of {counted(int(tiny.sum()))} lie within the first pixel of {picture}.",
            measured={"pixels": float(ends[tiny].max())},
            cause=Cause("divided by the width and height of the picture: shares of it, not pixels", "normalised"),
            fix="Write them in pixels: x times the width of the picture, y times its height. Look first whether they "
            "are corners, or centre and size.",
            kind="normalised",
            extra=(name,),
        )
    if away.any():
        yield Failure(
            away,
            f"{name}{where}: {those(away, 'have')} boxes whose centre lies outside of {picture}; they reach up to "
            f"{float(reach[away].max()):,.0f} pixels beyond it.",
            measured={"pixels": float(reach[away].max())},
            expected={"pixels": f"..{_EDGE:g}"},
            fix="Hold the boxes against their picture: it may have had another size when they were drawn.",
            kind="outside",
            order=reach,
            extra=(name,),
        )
    over = (reach > _EDGE) & ~away
    if over.any():
        yield Failure(
            over,
            f"{name}{where}: {those(over, 'have')} boxes that reach beyond {picture}, by up to "
            f"{float(reach[over].max()):,.0f} pixels.",
            measured={"pixels": float(reach[over].max())},
            expected={"pixels": f"..{_EDGE:g}"},
            severity=Severity.WARNING,
            fix="Hold the boxes against their picture; clip those that fit it.",
            kind="edge",
            order=reach,
            extra=(name,),
        )


def _degenerate(rows: Rows, name: str, spec: FieldSpec, zero: Array, flat: Array, nan: Array) -> Failure:
    bad = zero + flat + nan
    kinds = {"are all zeros": zero, "have a size that is not above 0": flat, "hold NaN or infinity": nan}
    said = [f"{int(count.sum()):,} {what}" for what, count in kinds.items() if count.any()]
    first = int(rows[f":{name}:first"][bad > 0][0])
    only = bool((zero == bad).all())
    return Failure(
        bad > 0,
        f"{name}: {', '.join(said)} in {counted(int((bad > 0).sum()))}; the first is box {first}.",
        measured={"zero": int(zero.sum()), "flat": int(flat.sum()), "nan": int(nan.sum())},
        expected={"size": "above 0"},
        cause=Cause("rows of zeros that fill an array up to a fixed number of boxes", "padding") if only else None,
        fix=f"Remove these boxes, or {'draw them again' if spec.pixels_of else 'compute them again from the points'}.",
        kind="zero" if only else "flat",
        order=bad,
        extra=(name,),
    )


def _all_empty(rows: Rows, name: str, hollow: Array, empty: Array) -> Cause | None:
    every = hollow & (empty == rows[f":{name}:boxes"])
    if not every.any():
        return None
    return Cause("not one box of these samples holds a point: another frame or unit than the points", "frame",
                 explains=int(every.sum()))  # fmt: skip
