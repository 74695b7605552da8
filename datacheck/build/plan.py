"""The plan of a build: samples of a split, layout of fields, cut into shards and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from datacheck.build.field_stats import FieldStats, Signature
from datacheck.cache import layout
from datacheck.cache.codec import PLAIN, Codec
from datacheck.errors import UsageError
from datacheck.model.finding import Tick
from datacheck.model.sample import ArraySpec
from datacheck.schema.model import FieldSpec, Schema
from datacheck.sources.base import Item

Array = np.ndarray[Any, Any]

# Longest name in a folder, and longest path inside a cache [bytes].
_PART_BYTES = 255
_PATH_BYTES = 2048
SOURCE_BYTES = 256 << 20  # source bytes of one task
_MOST_REREAD = 1 / 16  # share of the source bytes of a task that other tasks may read, too
_RARE_SHARE = 0.5  # share of samples; a field of fewer samples is ragged, so absence costs no space
# Share of samples; if fewer have floats, the dtype stays an integer.
_ODD_SHARE = 0.05
_FLOAT_SHARE = 0.2
# Roles that seldom hold floats.
_INTEGER_ROLES = frozenset({"class", "id", "instance", "labels", "segment", "timestamp", "tokens"})
_ATTRIBUTES = ("role", "unit", "frame", "centered", "columns", "order", "skeleton")


@dataclass(frozen=True, eq=False)
class SplitSamples:
    """Every listed sample of one split, in bytewise key order, valid or not.

    Shapes:
        item_of: int64 (samples), positions in `items`
        readable, valid: bool (samples)
        nbytes: int64 (samples) [bytes] of all fields as read

    Args:
        keys: unique and ascending.
        items: the files of the samples.
        inner: the path inside the file.
        codes: the finding codes that made a sample invalid.
    """

    keys: list[str]
    items: list[Item]
    item_of: Array
    inner: list[str]
    readable: Array
    valid: Array
    codes: list[tuple[str, ...]]
    nbytes: Array

    def __len__(self) -> int:
        return len(self.keys)


def resolve(
    schema: Schema, seen: Mapping[str, FieldStats], valid: Array, *, own_code: bool = False
) -> dict[str, ArraySpec]:
    """Return the layout of every field as the sources give it, before any transform.

    Args:
        schema: the declarations in force for the split.
        seen: the statistics of each field.
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
    for name in sorted(seen):
        declared = schema.fields.get(name)
        if declared is not None and declared.absent:
            continue
        present = seen[name].which >= 0
        counted = present & valid if (present & valid).any() else present
        if counted.any():
            share = float(present[valid].mean()) if valid.any() else 1.0
            specs[name] = _resolved(
                name, declared, seen[name], counted, share=share, own_code=own_code
            )
    return specs


def _resolved(
    name: str,
    declared: FieldSpec | None,
    stats: FieldStats,
    counted: Array,
    *,
    share: float,
    own_code: bool,
) -> ArraySpec:
    spec = declared or FieldSpec()
    counts = Counter(stats.which[counted].tolist())
    signatures = sorted(
        ((n, stats.signatures[i]) for i, n in counts.items()),
        key=lambda f: (-f[0], f[1].item, f[1].dtype),
    )
    kind = _most_common((n, s.kind) for n, s in signatures)
    optional = spec.optional if declared is not None else share < 1
    attrs = {k: v for k in _ATTRIBUTES if (v := spec.model_dump(mode="json").get(k)) is not None}
    if kind != "array":
        return ArraySpec("uint8", (), layout.text_dim(name), kind, optional, attrs)
    signatures = [(n, s) for n, s in signatures if s.kind == "array"]
    rank = (
        len(spec.shape)
        if spec.shape is not None
        else _most_common((n, s.rank) for n, s in signatures)
    )
    signatures = [(n, s) for n, s in signatures if s.rank == rank] or signatures
    dim, item = _axes(name, spec, rank, signatures, stats, counted)
    tail = item if dim is not None else item[1:]
    fit = (
        signatures if own_code else [(n, s) for n, s in signatures if s.item == tail] or signatures
    )
    dtype = (
        spec.dtype if spec.dtype not in {None, "text", "json"} else _common_dtype(fit, spec.role)
    )
    if spec.shape is None and dim is None and item and share < _RARE_SHARE:
        dim, item = layout.text_dim(name), item[1:]
    return ArraySpec(str(dtype), item, dim, "array", optional, attrs)


def _axes(
    name: str,
    spec: FieldSpec,
    rank: int,
    signatures: Sequence[tuple[int, Signature]],
    stats: FieldStats,
    counted: Array,
) -> tuple[str | None, tuple[int, ...]]:
    """Return the ragged dimension (None for a fixed field) and the item sizes."""
    if rank == 0:
        return None, ()
    tails = [(n, s.item) for n, s in signatures if s.rank == rank]
    tail = (
        _most_common(tails)
        if tails
        else tuple(d if isinstance(d, int) else 1 for d in (spec.shape or ())[1:])
    )
    if spec.shape is not None:
        tail = tuple(d if isinstance(d, int) else tail[i] for i, d in enumerate(spec.shape[1:]))
        first_axis = spec.shape[0]
        return (first_axis, tail) if isinstance(first_axis, str) else (None, (first_axis, *tail))
    fits = [
        i
        for i, s in enumerate(stats.signatures)
        if (s.kind, s.rank, s.item) == ("array", rank, tail)
    ]
    # Samples of other axes cannot be made in any case.
    lengths = stats.length[counted & np.isin(stats.which, fits)]
    if len(lengths) and int(lengths.min()) == int(lengths.max()) > 0:
        return None, (int(lengths[0]), *tail)
    return layout.text_dim(name), tail


def _most_common(counted: Iterable[tuple[int, Any]]) -> Any:
    """Return the value with the largest total; ties go to the smallest value."""
    totals: Counter[Any] = Counter()
    for n, value in counted:
        totals[value] += n
    return min(totals, key=lambda value: (-totals[value], value))


def _common_dtype(found: Sequence[tuple[int, Signature]], role: str | None) -> str:
    """Return the smallest dtype that holds the dtypes of all samples that count.

    Args:
        found: the number of samples of each signature.
        role: the role of the field.

    Notes:
        Integers become no floats if none are floats; NumPy would do so for int64 with uint64. Nor
        do they if a few odd samples are floats: for roles of classes, ids and times, and for arrays
        of two axes or more, such as pictures. For other numbers all samples count, because JSON
        writes 1 and 0.5.
    """
    counts: Counter[str] = Counter()
    for n, signature in found:
        counts[signature.dtype] += n
    commonest = _most_common((n, dtype) for dtype, n in counts.items())
    floats = {dtype for dtype in counts if np.dtype(dtype).kind in "fc"}
    max_share = (
        _FLOAT_SHARE if role in _INTEGER_ROLES else _ODD_SHARE if found[0][1].rank > 1 else 0.0
    )
    if (
        commonest not in floats
        and sum(counts[dtype] for dtype in floats) < max_share * counts.total()
    ):
        counts = Counter({dtype: n for dtype, n in counts.items() if dtype not in floats})
    common = np.result_type(*sorted(counts))
    return layout.zarr_type(
        commonest if common.kind == "f" and floats.isdisjoint(counts) else common.name
    )


# --------------------------------------------------------------------------------- shards and tasks


def without_unstorable(
    specs: Mapping[str, ArraySpec],
    schema: Schema,
    seen: Mapping[str, FieldStats],
    samples: SplitSamples,
) -> tuple[dict[str, ArraySpec], list[str]]:
    """Return the storable fields, and a sentence for each rare field that no cache can hold.

    Notes:
        This way one odd file does not fail the build of the others. An unstorable field that the
        schema lists, or that half of the valid samples have, stays, and `storage_specs` refuses it.
    """
    valid = samples.valid & samples.readable
    present = {name: (seen[name].which >= 0) & valid for name in specs}
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
        if reason := _refused(name, spec) or next(
            (_nesting_message(outer, name) for outer in _enclosing_fields(name, specs)), ""
        ):
            raise UsageError(reason)
    return {
        n: s if s.kind == "array" else replace(s, dim=layout.text_dim(n))
        for n, s in sorted(specs.items())
    }


def unfit(specs: Mapping[str, ArraySpec], seen: Mapping[str, FieldStats]) -> dict[str, Array]:
    """Return which samples have another kind or other sizes of a field than the cache holds.

    Covers only fields that were read.

    Shapes:
        returns: each bool (samples)
    """
    misfits: dict[str, Array] = {}
    for name, spec in specs.items():
        if name not in seen:
            continue
        stats = seen[name]
        odd_signatures = [
            i for i, signature in enumerate(stats.signatures) if not _holds(spec, signature)
        ]
        misfits[name] = np.isin(stats.which, odd_signatures)
        if spec.kind == "array" and spec.dim is None and spec.item:
            misfits[name] |= (stats.which >= 0) & (stats.length != spec.item[0])
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
    seen: Mapping[str, FieldStats],
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
    lengths = {
        s.dim: seen[n].length[counted]
        for n, s in before.items()
        if s.dim is not None and s.kind == "array"
    }
    field_lengths = {n: seen[n].length[counted] for n in before}
    arrays: Array = np.zeros(int(counted.sum()), np.int64)
    for spec in before.values():
        if spec.kind == "array":
            arrays = arrays + spec.item_bytes * (1 if spec.dim is None else lengths[spec.dim])
    other_bytes = np.maximum(samples.nbytes[counted] - arrays, 0)
    texts = sum(spec.kind != "array" for spec in before.values())
    total: Array = np.zeros(len(other_bytes), np.int64)
    for name, spec in after.items():
        if spec.dim is None:
            total = total + spec.item_bytes
        elif spec.kind == "array" and (spec.dim in lengths or name in field_lengths):
            total = (
                total
                + (lengths[spec.dim] if spec.dim in lengths else field_lengths[name])
                * spec.item_bytes
            )
        else:
            total = total + (other_bytes // texts if texts else samples.nbytes[counted])
    return int(np.median(total)) if len(total) else 0


@dataclass(frozen=True, eq=False)
class BuildPlan:
    """Everything that decides the bytes of a cache.

    Args:
        split: the split's folder name.
        samples: in key order.
        specs: the fields of the cache, by name.
        k: samples per shard.
        per_task: shards of one task.
        codec: the codec of the fields' chunks.
        left_out: a sentence for each field that is left out, see `without_unstorable`.
        unchanged_axes: the fields whose axes no step changes.
    """

    split: str
    samples: SplitSamples
    specs: dict[str, ArraySpec]
    k: int
    per_task: int = 1
    codec: Codec = PLAIN
    left_out: Sequence[str] = ()
    unchanged_axes: frozenset[str] = frozenset()

    @property
    def shards(self) -> int:
        """Number of shards of every field."""
        return -(-len(self.samples) // self.k)

    @property
    def dims(self) -> dict[str, list[str]]:
        """The fields of each ragged dimension."""
        by_dim: dict[str, list[str]] = {}
        for name, spec in self.specs.items():
            if spec.dim is not None:
                by_dim.setdefault(spec.dim, []).append(name)
        return dict(sorted(by_dim.items()))

    def shard(self, g: int) -> slice:
        """Return the samples of shard `g`."""
        return slice(g * self.k, min(len(self.samples), (g + 1) * self.k))

    def series(self, points: Mapping[int, Array] | None = None) -> Iterator[list[list[int]]]:
        """Yield series of tasks, each a list of shards; one process runs a whole series.

        Args:
            points: by item, the numbers of the samples at which reading of its file can begin,
                ascending from 0; the file of another item can be entered at any sample.

        Notes:
            A process that begins after such a point also reads the samples in between, which the
            process before it has read. A series ends where that overhead is small compared to the
            bytes it reads itself.
        """
        sizes = np.add.reduceat(self.samples.nbytes, range(0, len(self.samples), self.k)).tolist()
        start = size = 0
        for g in range(1, self.shards + 1):
            size += sizes[g - 1]
            full = (
                g - start >= self.per_task and self._again(g, points or {}) <= size * _MOST_REREAD
            )
            if full or g == self.shards:
                yield [
                    list(range(i, min(g, i + self.per_task)))
                    for i in range(start, g, self.per_task)
                ]
                start, size = g, 0

    def _again(self, g: int, points: Mapping[int, Array]) -> int:
        """Return the bytes of samples that are read again if a process begins with shard `g`."""
        index = self.shard(g).start
        if index >= len(self.samples) or (item := int(self.samples.item_of[index])) not in points:
            return 0
        number = int(self.samples.keys[index].rpartition(":")[2])
        point = int(points[item][np.searchsorted(points[item], number, side="right") - 1])
        reread = slice(max(0, index - (number - point)), index)
        return int(self.samples.nbytes[reread][self.samples.item_of[reread] == item].sum())

    def before(self, doing: str, shards: Sequence[int]) -> Tick:
        """Return the progress before work on these shards; bytes are those of samples as read."""
        nbytes = sum(int(self.samples.nbytes[self.shard(g)].sum()) for g in shards)
        return Tick(0, len(shards), 0, nbytes, 0, 0, f"{doing} {self.split}", "shards")

    def after(self, tick: Tick, shards: Collection[int]) -> Tick:
        """Return the progress after these shards are done as well."""
        parts = [self.shard(g) for g in shards]
        nbytes = sum(int(self.samples.nbytes[part].sum()) for part in parts)
        samples = sum(part.stop - part.start for part in parts)
        return tick._replace(
            files=tick.files + len(parts),
            nbytes=tick.nbytes + nbytes,
            samples=tick.samples + samples,
        )


def make_plan(
    split: str,
    samples: SplitSamples,
    specs: dict[str, ArraySpec],
    sample_bytes: int,
    codec: Codec = PLAIN,
) -> BuildPlan:
    """Return the plan: shards of about 64 MiB, tasks of about 256 MiB of source."""
    k = layout.samples_per_shard(sample_bytes, specs.values())
    median_bytes = int(np.median(samples.nbytes[samples.readable])) if samples.readable.any() else 1
    return BuildPlan(
        split, samples, specs, k, max(1, SOURCE_BYTES // max(1, k * median_bytes)), codec
    )
