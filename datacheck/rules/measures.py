"""The measurements that many families share, and the expected form of all built-in columns.

The form of a column is text or numbers, one or several for a sample. The rules index, compare and
add these columns. A column of another form, which only a compromised child process sends, would
fail a rule for the samples of all files. Statistics that are not listed here may have any form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows, Table
from datacheck.rules.base import DIGITS, Columns, measure
from datacheck.schema.grammar import ANGLE
from datacheck.schema.model import ANY, FieldSpec, Range, Schema

_TEXT = frozenset(
    [
        "called",
        "dropped",
        "dtype",
        "ending",
        "eos",
        "far_field",
        "id",
        "image_convention",
        "joints",
        "lacking",
        "makeup",
        "missing",
        "refused",
        "sequence_field",
        "spelled",
        "split_key",
        "strange",
        "taken",
        "transposed_at",
        "turns",
        "why",
        "worst",
    ]
)
# Integers, whatever the field holds.
_WHOLE = frozenset(
    [
        "bad_row",
        "breaks",
        "calls",
        "count",
        "dims",
        "joint_columns",
        "ndim",
        "nonfinite",
        "rows_before",
        "rows_lacking",
    ]
)
_ONE = frozenset(
    [
        "absent",
        "again",
        "alike_value",
        "angle",
        "answers",
        "area_corners",
        "area_first",
        "area_large",
        "area_same",
        "area_stated",
        "asks_grasp",
        "astray",
        "astray_bytes",
        "astray_cased",
        "astray_lost",
        "astray_past",
        "astray_shift",
        "astray_units",
        "audios_given",
        "audios_marks",
        "back",
        "bad_row",
        "bare",
        "begins",
        "behind",
        "bom",
        "bone",
        "box",
        "boxes",
        "breaks",
        "bytes",
        "calls",
        "characters",
        "class",
        "closed",
        "content",
        "copies",
        "count",
        "cut",
        "declared",
        "depth",
        "distinct",
        "empty",
        "ends",
        "equal",
        "errand",
        "euler",
        "exact",
        "faces",
        "far_high",
        "far_label",
        "far_low",
        "far_of",
        "far_rest",
        "far_rows",
        "fast_joint",
        "final",
        "first_dark",
        "first_sides",
        "flat",
        "flatness",
        "follows",
        "foreign",
        "frames",
        "front",
        "grain",
        "halves",
        "head",
        "held_xy",
        "held_xz",
        "held_yz",
        "high",
        "highest",
        "hollow",
        "ids",
        "ignored",
        "images_given",
        "images_marks",
        "instance",
        "jerk",
        "kept",
        "largest",
        "last_column",
        "last_row",
        "leap",
        "leap_at",
        "lengthless",
        "lone",
        "longest",
        "low",
        "lowest",
        "malformed",
        "mark",
        "marked",
        "marker",
        "markers",
        "matrices",
        "moments",
        "moves",
        "mute",
        "n",
        "nan",
        "ndim",
        "near",
        "negative",
        "none",
        "nonfinite",
        "noop",
        "norm",
        "normals",
        "objects",
        "octets",
        "odd_column",
        "odd_factor",
        "odd_first",
        "odd_high",
        "odd_low",
        "odd_rows",
        "odd_usual",
        "order",
        "over",
        "p99",
        "pad",
        "partner",
        "path",
        "peak",
        "peak_pace",
        "piled",
        "placed",
        "plain",
        "points",
        "poses",
        "prompt_bytes",
        "prompt_mismatch",
        "prompts",
        "q_rows",
        "quaternions",
        "question_id",
        "reach",
        "repeats",
        "rows",
        "rows_before",
        "rows_lacking",
        "same",
        "scripts",
        "second_sides",
        "sequence_column",
        "sequence_first",
        "sequence_kind",
        "sequence_last",
        "sequence_value",
        "set",
        "shortest",
        "shuffled",
        "signs",
        "skew",
        "spacing",
        "span",
        "span_capitals",
        "span_late",
        "span_marks",
        "span_orphans",
        "span_starts",
        "spans",
        "stated_rows",
        "step",
        "step_least",
        "step_most",
        "steps",
        "strays",
        "tagged",
        "tags_short",
        "tail",
        "tail_hash",
        "tail_trained",
        "tick",
        "tokens",
        "told",
        "told_high",
        "told_low",
        "top",
        "trained",
        "transposed",
        "turned_at",
        "turnless",
        "twins",
        "two_bos",
        "unanswerable",
        "uncut",
        "unpaired",
        "unsaid",
        "upright",
        "usual_pace",
        "vanish",
        "vectors",
        "videos_given",
        "videos_marks",
        "vocabulary",
        "wanted",
        "whole",
        "word_count",
        "words_empty",
        "worst_id",
        "wrapped",
        "wrong",
        "zero",
        "zeros",
    ]
)
_SEVERAL = frozenset(
    [
        "absolute",
        "agree",
        "at_high",
        "at_low",
        "at_minus",
        "at_plus",
        "average",
        "bands",
        "box_centres",
        "box_ends",
        "broken",
        "busy",
        "centre",
        "centroid",
        "channels",
        "classes",
        "column_mean",
        "column_moves",
        "column_scatter",
        "column_step",
        "column_unit",
        "column_whole",
        "compared",
        "course",
        "course_range",
        "dark",
        "delta",
        "det",
        "dims",
        "driven",
        "end",
        "excess",
        "extent",
        "flat_axis",
        "follow",
        "frozen",
        "funnel",
        "gain",
        "gap",
        "gap_spread",
        "home",
        "inside",
        "joint_beside",
        "joint_high",
        "joint_low",
        "joint_turned",
        "lens",
        "longer",
        "lost",
        "lower",
        "max",
        "mean",
        "middle",
        "min",
        "minhash",
        "mixed",
        "off",
        "pairs",
        "parts_high",
        "parts_low",
        "pauses",
        "pose_rows",
        "posed",
        "purity",
        "q_below",
        "q_high",
        "q_low",
        "q_upto",
        "q_whole",
        "size",
        "sizes",
        "stated",
        "stats_off",
        "stats_worst",
        "std",
        "stored",
        "strain",
        "stuck",
        "sway",
        "swing",
        "turn_size",
        "turned",
        "unit",
        "upper",
        "variance",
        "wobble",
        "wxyz",
        "xyzw",
    ]
)

# One number or several.
_EITHER = frozenset(["alike", "between", "first", "least", "most", "outside", "seen", "still"])
_LISTED = _TEXT | _WHOLE | _ONE | _SEVERAL | _EITHER
_ATTRIBUTE = ":attr/"  # prefix of an HDF5 attribute's name, which may be anything


def in_form(columns: Mapping[str, Measured]) -> bool:
    """Tell whether columns, by their full names, have the form of their statistic."""
    return all(_in_form(name, column) for name, column in columns.items())


def is_listed(name: str) -> bool:
    """Tell whether a column, by its full name, must have a known form."""
    return name.startswith(_ATTRIBUTE) or name.rpartition(":")[2] in _LISTED


def _in_form(name: str, column: Measured) -> bool:
    stat = "count" if name.startswith(_ATTRIBUTE) else name.rpartition(":")[2]
    kind = column.values.dtype.kind
    several = column.values.ndim > 1
    return stat not in _LISTED or (
        (kind in "OU") == (stat in _TEXT)
        and (stat not in _WHOLE or kind in "iu")
        and (stat in _EITHER or stat in (_SEVERAL if several else _LISTED - _SEVERAL))
    )


Array = np.ndarray[Any, Any]

MOST_COMPONENTS = 64  # numbers a row that are measured one by one
_LARGE = 4096  # a sample with so many rows is reduced on its own
PLACED = frozenset({"points", "joints", "position", "pose"})
TURNING = frozenset({"joint_angle", "rotvec"})


def leaf(spec: FieldSpec) -> bool:
    """Tell whether a field is an array that is measured as a whole, not by its parts."""
    return not spec.is_text and spec.columns is None


def of_role(*roles: str) -> Any:
    """Return a predicate: whether a field is a leaf with one of these roles."""
    return lambda spec: leaf(spec) and spec.role in roles


def no_lerobot(schema: Schema) -> str:
    """Return why a rule about LeRobot datasets does not apply to a schema, "" where it does."""
    return "" if schema.samples.each == "episode" else "samples are no episodes of LeRobot"


def lost_digits(count: int, size: Array) -> Array:
    """Return what a variance loses as a difference of squares in 32 bits, as LeRobot computes it.

    Args:
        count: rows that are added up one after the other.
        size: the largest value of each column.
    """
    lost: Array = count * float(np.finfo(np.float32).eps) * np.square(size)
    return lost


def turns(spec: FieldSpec) -> bool:
    """Tell whether a field holds angles: by its role, or by its unit where no role tells."""
    return leaf(spec) and (
        spec.role in TURNING or (spec.role in {None, "value"} and spec.unit in ANGLE)
    )


def is_numeric(column: Column) -> bool:
    """Tell whether the values are plain numbers or booleans."""
    return column.kind == "array" and column.values.dtype.kind in "biuf"


def reduced(ufunc: np.ufunc, rows: Array, lengths: Array | None) -> Array:
    """Reduce along the last axis to one value per sample.

    Shapes:
        rows: any (..., rows), contiguous
        lengths: int64 (samples), None where each row is a sample
        returns: (..., samples); samples without rows give 0; sums are float64 or int64
    """
    dtype: Any = None
    if ufunc is np.add:
        dtype = np.float64 if rows.dtype.kind == "f" else np.int64
    if lengths is None:
        return rows if dtype is None else rows.astype(dtype)
    if (
        len(lengths) == 1
        and rows.shape[-1]
        and (rows.shape[-1] >= _LARGE or dtype is not np.float64)
    ):
        if rows.dtype.kind == "b" and dtype is not None and rows.ndim == 1:
            return np.array([np.count_nonzero(rows)])
        # The same bits as in a block with other samples, see below.
        whole: Array = ufunc.reduce(rows, axis=-1, dtype=dtype)
        return whole[..., None]
    out = np.zeros((*rows.shape[:-1], len(lengths)), dtype=rows.dtype if dtype is None else dtype)
    starts = np.cumsum(lengths) - lengths
    large = lengths >= _LARGE
    # One reduction of a whole sample is several times faster than `reduceat`. The choice depends on
    # the sample alone, so its sums have the same bits in every block.
    for i in np.flatnonzero(large):
        piece = rows[..., starts[i] : starts[i] + lengths[i]]
        if piece.dtype.kind == "b" and ufunc is np.add and piece.ndim == 1:
            out[i] = np.count_nonzero(piece)
        else:
            out[..., i] = ufunc.reduce(piece, axis=-1, dtype=dtype)
    small = (lengths > 0) & ~large
    if small.any():
        rest = rows if not large.any() else rows[..., np.repeat(~large, lengths)]
        small_starts = np.cumsum(np.where(large, 0, lengths)) - lengths
        out[..., small] = ufunc.reduceat(rest, small_starts[small], axis=-1, dtype=dtype)
    return out


def flat(column: Column) -> tuple[Array, Array]:
    """Return all numbers of a field, booleans as uint8, and the count of each sample.

    Shapes:
        values: any (numbers)
        lengths: int64 (samples)
    """
    size = prod(column.values.shape[1:])
    lengths = (np.ones(len(column), np.int64) if column.lengths is None else column.lengths) * size
    values = column.values.reshape(-1)
    return (values.astype(np.uint8) if values.dtype.kind == "b" else values), lengths


def too_wide(rows: Rows, spec: FieldSpec) -> Array:
    """Tell where a field's rows have too many numbers to be measured one by one.

    The rows need the columns of `form` and `numbers`.
    """
    if "dims" not in rows or "min" not in rows or rows["min"].shape[1] > 1:
        return np.zeros(len(rows), bool)
    shape = spec.shape or ()
    vector = len(shape) == 1 and isinstance(shape[0], int) and shape[0] > MOST_COMPONENTS
    wide: Array = rows.measured("dims") & (
        vector | (rows["dims"][:, 1:].prod(axis=1) > MOST_COMPONENTS)
    )
    return wide


def one_of(values: Array, numbers: Iterable[float]) -> Array:
    """Tell which values equal one of a few numbers."""
    mask: Array | None = None
    for number in numbers:
        mask = values == number if mask is None else mask | (values == number)
    return np.zeros(values.shape, bool) if mask is None else mask


def in_classes(values: Array, spec: FieldSpec) -> Array:
    """Tell which values are classes: integers of 0 or more, of the declared ones if any.

    Ignored values are no classes.
    """
    whole = values == np.floor(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    declared = spec.classes
    if declared is None:
        allowed = values >= 0
    elif isinstance(declared, int):
        allowed = (values >= 0) & (values < declared)
    elif isinstance(declared, Range):
        low, high = declared.low, declared.high
        allowed = (values >= (-np.inf if low is None else low)) & (
            values <= (np.inf if high is None else high)
        )
    else:
        allowed = np.isin(values, declared)
    return np.asarray(allowed & whole & ~one_of(values, spec.ignore), dtype=bool)


def norms(vectors: Array) -> Array:
    """Return the lengths of vectors in float64, with the same bits for any number of vectors.

    Shapes:
        vectors: any (components, vectors)
    """
    total = np.zeros(vectors.shape[1:])
    for component in vectors.astype(np.float64, copy=False):
        total += component * component
    return np.sqrt(total)


def quantile(values: Array, lengths: Array | None, share: float) -> Array:
    """Return the `share` quantile of each sample's rows, the lower of two neighbours.

    Shapes:
        values: float (rows)
        returns: float64 (samples); NaN for samples without rows; NaN counts as largest
    """
    if lengths is None:
        return values.astype(np.float64)
    starts = np.cumsum(lengths) - lengths
    place = np.floor(share * np.maximum(lengths - 1, 0)).astype(np.int64)
    out = np.full(len(lengths), np.nan)
    full = lengths > 0
    if len(values) > 256 * len(lengths):
        for i in np.flatnonzero(full):
            out[i] = np.partition(values[starts[i] : starts[i] + lengths[i]], place[i])[place[i]]
    elif full.any() and bool((lengths == lengths[0]).all()):
        out[:] = np.sort(values.reshape(len(lengths), -1), axis=1)[:, place[0]]
    else:
        ordered = values[np.lexsort((values, np.repeat(np.arange(len(lengths)), lengths)))]
        out[full] = ordered[(starts + place)[full]]
    return out


def components(column: Column, spec: FieldSpec) -> tuple[Array, Array | None, Array]:
    """Return a field's values with components first.

    Shapes:
        values: (components, rows), contiguous; one component where there are more than 64
        lengths: int64 (samples): rows of each sample, None where each row is a sample
        fits: bool (samples): False where a declared vector ([48]) has another length and so no
            components
    """
    values, lengths = column.values, column.lengths
    fits = np.ones(len(column), bool)
    if (
        spec.shape is not None
        and len(spec.shape) == 1
        and isinstance(spec.shape[0], int)
        and values.ndim == 1
    ):
        size = spec.shape[0]
        if lengths is not None and 0 < size <= MOST_COMPONENTS:
            fits = lengths == size
            whole = values if fits.all() else values[np.repeat(fits, lengths)]
            spread = np.zeros((size, len(column)), values.dtype)
            spread[:, fits] = whole.reshape(-1, size).T
            return spread, None, fits
    count = prod(values.shape[1:])
    if count > MOST_COMPONENTS:
        return (
            values.reshape(1, -1),
            (np.ones(len(column), np.int64) if lengths is None else lengths) * count,
            fits,
        )
    return column.planes, lengths, fits


@measure("form", applies=lambda spec: True, unlisted=True, depth="structure")
def form(column: Column, spec: FieldSpec) -> Columns:
    """Shape and dtype of each sample: `dims` (axes), `ndim`, `dtype`."""
    del spec
    if column.kind != "array":
        return {"ndim": np.full(len(column), -1), "dtype": [column.kind] * len(column)}
    item = column.values.shape[1:]
    first = [] if column.lengths is None else [column.lengths]
    dims = [*first, *(np.full(len(column), size, np.int64) for size in item)]
    columns: dict[str, Array | list[str]] = {
        "ndim": np.full(len(column), len(dims)),
        "dtype": [column.values.dtype.name] * len(column),
    }
    return columns | ({"dims": np.stack(dims, axis=1)} if 0 < len(dims) <= 8 else {})


def extremes(column: Column) -> tuple[Array, Array, Array | None]:
    """Return the smallest and the largest number of each sample, per component.

    More than 64 components count as one.

    Shapes:
        low, high: any (components, samples), booleans as uint8; NaN if a row is NaN; 0 for samples
            without rows
        lengths: int64 (samples) [rows]; None where each row is a sample
    """
    cached: tuple[Array, Array, Array | None] | None = column.__dict__.get("_extremes")
    if cached is None:
        count = prod(column.values.shape[1:])
        few = count <= MOST_COMPONENTS
        values, lengths = (
            (column.planes, column.lengths)
            if few
            else (column.values.reshape(1, -1), flat(column)[1])
        )
        values = values.astype(np.uint8) if values.dtype.kind == "b" else values
        cached = reduced(np.minimum, values, lengths), reduced(np.maximum, values, lengths), lengths
        column.__dict__["_extremes"] = cached
    return cached


@measure("finite", undeclared=True, worst="nonfinite")
def finite(column: Column, spec: FieldSpec) -> Columns:
    """Non-finite numbers of each sample: `count`, `nonfinite`, `bad_row`.

    `count` counts all values; `bad_row` is the first row with a non-finite value, -1 without any.
    """
    del spec
    if not is_numeric(column):
        return {}
    size = prod(column.values.shape[1:])
    lengths = np.ones(len(column), np.int64) if column.lengths is None else column.lengths
    columns = {
        "count": lengths * size,
        "nonfinite": np.zeros(len(column), np.int64),
        "bad_row": np.full(len(column), -1),
    }
    if column.values.dtype.kind != "f":
        return columns
    low, high, _ = extremes(column)
    if np.isfinite(low).all() and np.isfinite(high).all():
        return columns
    bad = (~np.isfinite(column.values.reshape(len(column.values), size))).sum(axis=1)
    columns["nonfinite"] = reduced(np.add, bad, column.lengths)
    within = np.arange(len(bad)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    first_bad = reduced(np.minimum, np.where(bad > 0, within, len(bad)), column.lengths)
    columns["bad_row"] = np.where(columns["nonfinite"] > 0, first_bad, -1)
    return columns


@measure("numbers", version=2, uses=("shape",), unlisted=True)
def numbers(column: Column, spec: FieldSpec) -> Columns:
    """Smallest and largest value per component: `min`, `max`.

    A sample with more than 64 components has one value for all of them.
    """
    if not is_numeric(column):
        return {}
    values, lengths, fits = components(column, spec)
    filled = fits if lengths is None else fits & (lengths > 0)
    if lengths is not None or values is column.planes:
        low, high, _ = extremes(column)
    else:
        values = values.astype(np.uint8) if values.dtype.kind == "b" else values
        low, high = values, values
    return {
        "min": Measured(low.T.astype(np.float64), filled),
        "max": Measured(high.T.astype(np.float64), filled),
    }


def unlisted_fields(table: Table, schema: Schema) -> list[str]:
    """Return the measured numeric fields that the schema does not list, sorted."""
    listed = {ANY, *schema.fields, *(name for fields in schema.when.values() for name in fields)}
    names = {column.removesuffix(":max") for column in table.columns if column.endswith(":max")}
    return sorted(name for name in names - listed if f"{name}:ndim" in table.columns)


def positions(column: Column) -> tuple[Array, Array | None] | None:
    """Return a field's positions, coordinates first, or None where it holds none.

    Shapes:
        positions: float (3, rows), contiguous: the first three of a pose's columns
        lengths: int64 (samples), None where each sample is one position
    """
    values, lengths = column.values, column.lengths
    if not is_numeric(column):
        return None
    if values.ndim == 1 and lengths is not None:
        whole = lengths == 3
        return np.ascontiguousarray(
            values[np.repeat(whole, lengths)].reshape(-1, 3).T
        ), whole.astype(np.int64)
    if values.ndim == 1 or values.shape[-1] < 3:
        return None
    if values.ndim == 2 and values.shape[1] <= MOST_COMPONENTS:
        return column.planes[:3], lengths
    inner = prod(values.shape[1:-1])
    if values.ndim > 2:
        lengths = (np.ones(len(column), np.int64) if lengths is None else lengths) * inner
    return np.ascontiguousarray(values.reshape(-1, values.shape[-1])[:, :3].T), lengths


@measure("place", applies=of_role(*sorted(PLACED)), uses=("role",))
def place(column: Column, spec: FieldSpec) -> Columns:
    """Location of positions, in the field's unit.

    `box` diagonal of the bounding box; `middle` (3) its centre; `centroid` (3); `first` (3)
    position; `front` and `behind`: shares with z above and below 0; `norm`: median distance from
    the origin (positions and poses).
    """
    coordinates = positions(column)
    if coordinates is None:
        return {}
    xyz, lengths = coordinates
    if xyz.dtype.kind != "f":
        xyz = xyz.astype(np.float64)
    count = np.ones(len(column), np.int64) if lengths is None else lengths
    filled = count > 0
    size = np.maximum(count, 1)
    if column.values.ndim == 2 and column.values.shape[1] <= MOST_COMPONENTS:
        low, high = (ends[:3].astype(np.float64) for ends in extremes(column)[:2])
    else:
        low = reduced(np.minimum, xyz, lengths).astype(np.float64)
        high = reduced(np.maximum, xyz, lengths).astype(np.float64)
    first = np.zeros((3, len(column)))
    first[:, filled] = xyz[:, (np.cumsum(count) - count)[filled]]
    z = xyz[2]
    values = {
        "box": np.sqrt(((high - low) ** 2).sum(axis=0)),
        "middle": ((low + high) / 2).T,
        "centroid": (reduced(np.add, xyz, lengths) / size).T,
        "first": first.T,
        "front": reduced(np.add, z > 0, lengths) / size,
        "behind": reduced(np.add, z < 0, lengths) / size,
    }
    if spec.role in {"position", "pose"}:
        values["norm"] = quantile(norms(xyz), lengths, 0.5)
    return {name: Measured(value, filled) for name, value in values.items()}


def column_of(block: Block, schema: Schema, name: str) -> Column | None:
    """Return the column of a field or of a declared part, None where the block lacks it."""
    part = schema.part_of(name)
    if part is None:
        return block.fields.get(name)
    column = block.fields.get(part[0])
    if (
        column is None
        or not is_numeric(column)
        or (column.lengths is None and column.values.ndim == 1)
    ):
        return None  # scalars have no parts
    if column.values.ndim > 1 and column.values.shape[-1] < part[1][1]:
        return None  # too narrow for the part
    return column.slice_items(*part[1])


def annotated(column: Column, i: int) -> frozenset[int]:
    """Return the ids that a sample's captions, list, groups or array name.

    Captions name ids by their keys, also below ``objects``.

    Notes:
        A group is a mapping in a list, as in ScanNet's ``segGroups``: its ``segments`` list ids.
    """
    if column.kind == "array":
        values = column[i].reshape(-1) if is_numeric(column) else np.zeros(0)
        return frozenset(int(v) for v in values[np.isfinite(values)].tolist())
    content = column.objects[i] if column.kind == "json" else {}
    content = content.get("objects", content) if isinstance(content, dict) else content
    if isinstance(content, list):
        parts = [
            p for group in content if isinstance(group, dict) for p in listed_in(group, "segments")
        ]
        return frozenset(v for v in (*content, *parts) if type(v) is int)
    keys = (
        (k for k in content if k.isdecimal() and len(k) <= DIGITS)
        if isinstance(content, dict)
        else ()
    )
    return frozenset(map(int, keys))


def listed_in(record: dict[str, Any], key: str) -> list[Any]:
    """Return the list at a key of a JSON record, an empty list where there is none."""
    value = record.get(key)
    return value if isinstance(value, list) else []


@measure("turn", applies=turns)
def turn(column: Column, spec: FieldSpec) -> Columns:
    """Size of angles in the field's unit: `p99` and `peak` of their absolute values."""
    del spec
    if not is_numeric(column):
        return {}
    values, lengths = flat(column)
    values = np.abs(values.astype(np.float64))
    return {
        "p99": Measured(quantile(values, lengths, 0.99), lengths > 0),
        "peak": Measured(reduced(np.maximum, values, lengths), lengths > 0),
    }
