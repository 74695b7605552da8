"""The layout of the fields of a cache: dtype, axes and item sizes of each, and what no cache holds.

`resolve` chooses it from the schema and from what the samples have. `without_unstorable` leaves out
rare fields that no cache can hold, so that one odd file does not fail the build of the others;
`storage_specs` refuses the rest of them. After the build, `count_unfit` counts the samples whose
sizes differ from those of the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from datacheck.build.field_stats import FieldStats, Signature
from datacheck.build.job import SplitSamples
from datacheck.cache import layout
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

# Longest name in a folder, and longest path inside a cache [bytes].
_PART_BYTES = 255
_PATH_BYTES = 2048
_RARE_SHARE = 0.5  # share of samples; a field of fewer samples is ragged, so absence costs no space
# Share of samples; if fewer have floats, the dtype stays an integer: of arrays of two axes or more,
# and of roles that seldom hold floats.
_ODD_SHARE = 0.05
_FLOAT_SHARE = 0.2
_INTEGER_ROLES = frozenset({"class", "id", "instance", "labels", "segment", "timestamp", "tokens"})
_ATTRIBUTES = ("role", "unit", "frame", "centered", "columns", "order", "skeleton")


def resolve(
    schema: Schema, field_stats: Mapping[str, FieldStats], valid: Array, *, own_code: bool = False
) -> dict[str, ArraySpec]:
    """Return the layout of every field as the sources give it, before any transform.

    Args:
        schema: the declarations in force for the split.
        field_stats: the statistics of each field.
        valid: bool (samples): the samples that decide; if none is valid, all decide.
        own_code: a step is the user's function, which may give minority samples the axes of the
            majority.

    Notes:
        Declarations of the schema win. Open properties follow the majority of valid samples, ties
        go to the smaller sizes. An undeclared dtype is the smallest that holds the dtypes of all
        these samples, except for a few odd ones (see `_common_dtype`) and, without own code,
        samples of other axes. An undeclared first axis is fixed if all samples that fit the other
        axes agree and half of the samples have the field, else ragged. Samples that do not fit
        cannot be made.
    """
    specs: dict[str, ArraySpec] = {}
    for name in sorted(field_stats):
        declared = schema.fields.get(name)
        if declared is not None and declared.absent:
            continue
        present = field_stats[name].which >= 0
        counted = present & valid if (present & valid).any() else present
        if counted.any():
            share = float(present[valid].mean()) if valid.any() else 1.0
            specs[name] = _resolve_field(
                name, declared, field_stats[name], counted, share=share, own_code=own_code
            )
    return specs


class _Counted(NamedTuple):
    """How many samples have a signature."""

    samples: int
    signature: Signature


def _resolve_field(
    name: str,
    declared: FieldSpec | None,
    stats: FieldStats,
    counted: Array,
    *,
    share: float,
    own_code: bool,
) -> ArraySpec:
    """Return the layout of one field.

    Args:
        name: of the field.
        declared: what the schema says of it, or None.
        stats: its statistics.
        counted: bool (samples): the samples that decide.
        share: share of the valid samples that have the field.
        own_code: as in `resolve`.
    """
    spec = declared or FieldSpec()
    optional = spec.optional if declared is not None else share < 1
    attributes = spec.model_dump(mode="json")
    attrs = {key: attributes[key] for key in _ATTRIBUTES if attributes.get(key) is not None}
    found = _count_signatures(stats, counted)
    kind = _most_common((one.samples, one.signature.kind) for one in found)
    if kind != "array":
        return ArraySpec("uint8", (), layout.text_dim(name), kind, optional, attrs)
    arrays = [one for one in found if one.signature.kind == "array"]
    if spec.shape is not None:
        rank = len(spec.shape)
    else:
        rank = _most_common((one.samples, one.signature.rank) for one in arrays)
    of_rank = [one for one in arrays if one.signature.rank == rank] or arrays
    dim, item = _axes(name, spec, rank, of_rank, stats, counted)
    if spec.dtype not in {None, "text", "json"}:
        dtype = str(spec.dtype)
    else:
        tail = item if dim is not None else item[1:]
        fitting = [one for one in of_rank if one.signature.item == tail] or of_rank
        dtype = _common_dtype(of_rank if own_code else fitting, spec.role)
    if spec.shape is None and dim is None and item and share < _RARE_SHARE:
        dim, item = layout.text_dim(name), item[1:]
    return ArraySpec(dtype, item, dim, "array", optional, attrs)


def _count_signatures(stats: FieldStats, counted: Array) -> list[_Counted]:
    """Return the signatures of the samples that decide, the most frequent first."""
    counts = Counter(stats.which[counted].tolist())
    found = [_Counted(samples, stats.signatures[i]) for i, samples in counts.items()]
    return sorted(found, key=lambda one: (-one.samples, one.signature.item, one.signature.dtype))


def _axes(
    name: str,
    spec: FieldSpec,
    rank: int,
    found: Sequence[_Counted],
    stats: FieldStats,
    counted: Array,
) -> tuple[str | None, tuple[int, ...]]:
    """Return the ragged dimension (None for a fixed field) and the item sizes."""
    if rank == 0:
        return None, ()
    tails = [(one.samples, one.signature.item) for one in found if one.signature.rank == rank]
    if spec.shape is not None:
        return _declared_axes(spec.shape, _most_common(tails) if tails else None)
    tail = _most_common(tails)
    fitting = [
        number
        for number, signature in enumerate(stats.signatures)
        if (signature.kind, signature.rank, signature.item) == ("array", rank, tail)
    ]
    # Samples of other axes cannot be made in any case.
    lengths = stats.length[counted & np.isin(stats.which, fitting)]
    if len(lengths) and int(lengths.min()) == int(lengths.max()) > 0:
        return None, (int(lengths[0]), *tail)
    return layout.text_dim(name), tail


def _declared_axes(
    shape: Sequence[str | int], found_tail: tuple[int, ...] | None
) -> tuple[str | None, tuple[int, ...]]:
    """Return the axes of a declared shape; a named inner axis has the size that was found, or 1."""
    tail = tuple(
        size if isinstance(size, int) else (1 if found_tail is None else found_tail[i])
        for i, size in enumerate(shape[1:])
    )
    first_axis = shape[0]
    return (first_axis, tail) if isinstance(first_axis, str) else (None, (first_axis, *tail))


def _most_common(counted: Iterable[tuple[int, Any]]) -> Any:
    """Return the value with the largest total; ties go to the smallest value."""
    totals: Counter[Any] = Counter()
    for count, value in counted:
        totals[value] += count
    return min(totals, key=lambda value: (-totals[value], value))


def _common_dtype(found: Sequence[_Counted], role: str | None) -> str:
    """Return the smallest dtype that holds the dtypes of all samples that count.

    Args:
        found: the signatures of the samples, the most frequent first.
        role: the role of the field.

    Notes:
        Integers become no floats if none are floats; NumPy would do so for int64 with uint64. Nor
        do they if a few odd samples are floats: for roles of classes, ids and times, and for arrays
        of two axes or more, such as pictures. For other numbers all samples count, because JSON
        writes 1 and 0.5.
    """
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.signature.dtype] += one.samples
    commonest = _most_common((samples, dtype) for dtype, samples in counts.items())
    floats = {dtype for dtype in counts if np.dtype(dtype).kind in "fc"}
    float_samples = sum(counts[dtype] for dtype in floats)
    most_odd = _odd_share(role, found[0].signature.rank) * counts.total()
    if commonest not in floats and float_samples < most_odd:
        for dtype in floats:
            del counts[dtype]
    common = np.result_type(*sorted(counts))
    if common.kind == "f" and floats.isdisjoint(counts):
        return layout.zarr_type(commonest)
    return layout.zarr_type(common.name)


def _odd_share(role: str | None, rank: int) -> float:
    """Return the share of samples below which floats do not make an integer field one of floats."""
    if role in _INTEGER_ROLES:
        return _FLOAT_SHARE
    return _ODD_SHARE if rank > 1 else 0.0


def without_unstorable(
    specs: Mapping[str, ArraySpec],
    schema: Schema,
    field_stats: Mapping[str, FieldStats],
    samples: SplitSamples,
) -> tuple[dict[str, ArraySpec], list[str]]:
    """Return the storable fields, and a sentence for each rare field that no cache can hold.

    Notes:
        This way one odd file does not fail the build of the others. An unstorable field that the
        schema lists, or that half of the valid samples have, stays, and `storage_specs` refuses it.
    """
    valid = samples.valid & samples.readable
    present = {name: (field_stats[name].which >= 0) & valid for name in specs}
    counts = {name: int(mask.sum()) for name, mask in present.items()}
    rare = {
        name for name in specs if name not in schema.fields and 2 * counts[name] < int(valid.sum())
    }
    why = {name: reason for name in sorted(rare) if (reason := _refused(name, specs[name]))}
    for name in sorted(specs):
        for outer in _enclosing_fields(name, specs):
            rarer, other = sorted((outer, name), key=counts.__getitem__)
            rarer = name if counts[rarer] == counts[other] and name in rare else rarer
            if rarer in rare and why.keys().isdisjoint((outer, name)):
                why[rarer] = _nesting_message(outer, name)
    messages = [
        f"{reason} ({counts[name]:,} of {int(valid.sum()):,} samples, such as "
        f"{samples.keys[int(present[name].argmax())]})"
        for name, reason in sorted(why.items())
    ]
    return {name: spec for name, spec in specs.items() if name not in why}, messages


def storage_specs(specs: Mapping[str, ArraySpec]) -> dict[str, ArraySpec]:
    """Return the specs in name order, with a dimension of its own for every text and JSON field.

    Raises:
        UsageError: a field has an axis of size 0, lies inside another, or has a name with an empty
            part or that is too long: no cache holds these.
    """
    for name, spec in specs.items():
        reason = _refused(name, spec)
        if reason:
            raise UsageError(reason)
        for outer in _enclosing_fields(name, specs):
            raise UsageError(_nesting_message(outer, name))
    return {
        name: spec if spec.kind == "array" else replace(spec, dim=layout.text_dim(name))
        for name, spec in sorted(specs.items())
    }


def count_unfit(
    specs: Mapping[str, ArraySpec], field_stats: Mapping[str, FieldStats], not_made: Array
) -> dict[str, tuple[int, str]]:
    """Return, by field, how many samples have other sizes than the cache, and the sizes it holds.

    Shapes:
        not_made: bool (samples)

    Args:
        specs: fields whose axes no step changes.
        field_stats: as read.
        not_made: the samples to explain; each counts for its first such field.
    """
    unexplained = not_made.copy()
    counts: dict[str, tuple[int, str]] = {}
    for name, spec in specs.items():
        if name not in field_stats:
            continue
        misfits = unexplained & _misfits(spec, field_stats[name])
        if misfits.any():
            counts[name] = (int(misfits.sum()), describe_shape(spec))
            unexplained &= ~misfits
    return counts


def _misfits(spec: ArraySpec, stats: FieldStats) -> Array:
    """Return bool (samples): which have another kind or other sizes of a field than the cache."""
    odd_signatures = [
        i for i, signature in enumerate(stats.signatures) if not _holds(spec, signature)
    ]
    misfits: Array = np.isin(stats.which, odd_signatures)
    if spec.kind == "array" and spec.dim is None and spec.item:
        misfits |= (stats.which >= 0) & (stats.length != spec.item[0])
    return misfits


def describe_shape(spec: ArraySpec) -> str:
    """Return the sizes of a field in a cache, for example "[n, 259, 3]", or "text", "JSON"."""
    if spec.kind != "array":
        return "JSON" if spec.kind == "json" else spec.kind
    leading = [] if spec.dim is None else ["n" if spec.dim.startswith("fields.") else spec.dim]
    return f"[{', '.join(map(str, [*leading, *spec.item]))}]"


def _holds(spec: ArraySpec, signature: Signature) -> bool:
    item = spec.item if spec.dim is not None else spec.item[1:]
    if spec.kind != "array" or signature.kind != "array":
        return spec.kind == signature.kind
    return (signature.rank, signature.item) == (len(spec.item) + (spec.dim is not None), item)


def _refused(name: str, spec: ArraySpec) -> str:
    """Return why no cache can hold a field; "" if one can."""
    if "\0" in name or not all(name.split("/")):
        return (
            f"{name!r}: an empty part or a NUL, so no cache has such a field. Rename it: at: in "
            f"the schema"
        )
    path = layout.rows_path(layout.text_dim(name), "start")
    if len(path) > _PATH_BYTES or max(map(len, path.split("/"))) > _PART_BYTES:
        return f"{name[:60]}...: too long for the name of a file. Rename it: at: in the schema"
    if len(spec.item) >= layout.AXES:
        axes = len(spec.item) + (spec.dim is not None)
        most = layout.AXES - (spec.dim is None)
        return (
            f"{name}: {axes} axes; a cache holds at most {most}. Leave it out: transforms: select"
        )
    if 0 in spec.item:
        return (
            f"{name}: an axis of size 0 ({list(spec.item)}) cannot be stored. Leave it out: "
            f"transforms: select"
        )
    return ""


def _enclosing_fields(name: str, specs: Mapping[str, ArraySpec]) -> list[str]:
    """Return the fields that a field lies inside, by its name."""
    return [
        outer
        for position, letter in enumerate(name)
        if letter == "/" and (outer := name[:position]) in specs
    ]


def _nesting_message(outer: str, inner: str) -> str:
    return (
        f"a cache cannot hold both {outer} and {inner}. Leave one out or rename it: at: in the "
        f"schema"
    )


def estimate_sample_bytes(
    before: Mapping[str, ArraySpec],
    after: Mapping[str, ArraySpec],
    field_stats: Mapping[str, FieldStats],
    samples: SplitSamples,
) -> int:
    """Return the bytes of a median sample after the transforms.

    Notes:
        Uses the lengths before the transforms. The bytes of a sample beyond its arrays are its
        texts, in equal parts. A ragged field that only a transform makes counts as much as one text
        field, or as the whole sample if there are no texts.
    """
    counted = samples.readable & samples.valid
    counted = counted if counted.any() else samples.readable
    rows_of = {name: field_stats[name].length[counted] for name in before}
    rows_of_dim: dict[str | None, Array] = {
        spec.dim: rows_of[name]
        for name, spec in before.items()
        if spec.dim is not None and spec.kind == "array"
    }
    arrays: Array = np.zeros(int(counted.sum()), np.int64)
    for spec in before.values():
        if spec.kind == "array":
            items = 1 if spec.dim is None else rows_of_dim[spec.dim]
            arrays = arrays + spec.item_bytes * items
    other_bytes = np.maximum(samples.nbytes[counted] - arrays, 0)
    texts = sum(spec.kind != "array" for spec in before.values())
    text_bytes = other_bytes // texts if texts else samples.nbytes[counted]
    total: Array = np.zeros(len(other_bytes), np.int64)
    for name, spec in after.items():
        rows = rows_of_dim.get(spec.dim, rows_of.get(name))
        if spec.dim is None:
            total = total + spec.item_bytes
        elif spec.kind == "array" and rows is not None:
            total = total + rows * spec.item_bytes
        else:
            total = total + text_bytes
    return int(np.median(total)) if len(total) else 0


def default_windows(schema: Schema, specs: Mapping[str, ArraySpec]) -> dict[str, Any] | None:
    """Return the default windows over episodes, with the dimension that is time.

    That is the dimension of the actions, else the most frequent one.
    """
    if schema.windows is None:
        return None
    ragged = {
        name: spec for name, spec in specs.items() if spec.dim is not None and spec.kind == "array"
    }
    actions = [spec.dim for spec in ragged.values() if spec.attrs.get("role") == "action"]
    dims = actions or [spec.dim for spec in ragged.values()]
    if not dims:
        return None
    dim = min(set(dims), key=lambda d: (-dims.count(d), str(d)))
    declared = schema.windows
    return {
        "dim": dim,
        "length": declared.length,
        "stride": declared.stride,
        "pad": declared.pad,
        "short": declared.short,
    }
