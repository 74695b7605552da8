"""One sample of a finished run, of unscanned data or of a cache, drawn in full."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import replace
from difflib import get_close_matches
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from datacheck.cache import Cache
from datacheck.errors import CorruptionError, DatacheckError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.model.table import CHECKED, Table, Texts
from datacheck.preview.drawings import MAX_POINTS, mark_trained_ranges
from datacheck.preview.pictures import PreviewBuilder
from datacheck.preview.reading import draw_within
from datacheck.preview.run_previews import (
    POINTS,
    SAMPLE_BYTES,
    ChosenSample,
    PreviewTasks,
    read_samples,
)
from datacheck.rules.base import pluralize
from datacheck.runtime.beneath import ConfinedFolder
from datacheck.scan.run_documents import (
    SAMPLES,
    read_result,
    read_schema,
    read_valid,
    reading,
    run_in,
    unread,
)
from datacheck.scan.run_state import RunState, read_state
from datacheck.scan.samples import read_failing
from datacheck.scan.scanned_dataset import list_dataset
from datacheck.schema.model import Schema
from datacheck.sources import check_alone, plan_work, with_rate
from datacheck.sources.listing import Listing, target
from datacheck.tokenization import FILES
from datacheck.workers.budget import Limits
from datacheck.workers.child import PARSER, Child

_BYTES = 20_000_000  # of all pictures of the sample
_SECONDS = 120.0
_CANDIDATES = 8  # files tried for a key
_FOREIGN_TOKENIZER = (
    "texts not tokenized: no file outside of the data folder is opened because the schema.yaml of "
    "a run names it. Name "
    "the schema: datacheck view KEY --data DATA --schema FILE"
)
_MAX_KEY_CHARS = 200  # longer keys are not compared for a "Did you mean"
_MAX_KEYS_COMPARED = 2000  # keys compared for a "Did you mean"


def sample_of_run(run: Path, key: str) -> dict[str, Any]:
    """Return the data of a page for a sample of a finished run: its pictures and findings.

    Args:
        run: its folder, or the folder of all runs for the newest.
        key: the sample's key, or a unique suffix of it.

    Raises:
        UsageError: the run or the sample does not exist, or the run is of a loader.
    """
    place = run_in(run)
    if place is None:
        msg = (
            f"{run}: is no finished run. Scan the data first, or name them: datacheck view KEY "
            f"--data DATA"
        )
        raise UsageError(msg)
    try:
        result = read_result(place)
        past = read_state(place)
        schema = read_schema(place)
        failing = read_failing(place / SAMPLES)
        valid = read_valid(place, len(past.table))
    except Exception as error:
        raise unread(run, error) from error
    if not past.measured:
        msg = (
            f"{run}: is of a loader, whose samples are in no file. Name the data: datacheck view "
            f"KEY --data DATA"
        )
        raise UsageError(msg)
    with reading(run):
        return _scanned_sample(run, key, result, past, schema, failing, valid)


def _scanned_sample(
    run: Path,
    key: str,
    result: Mapping[str, Any],
    past: RunState,
    schema: Schema,
    failing: Texts,
    valid: Mapping[str, Any],
) -> dict[str, Any]:
    row = row_of(past.table, key, f"{run}, a scan of {result['dataset']['root']}")
    listing, table = past.listing, past.table
    codes = failing[row].split()
    findings = list(_findings_of(result["findings"], codes, table.splits[row], set(table.splits)))
    wanted_fields = list(dict.fromkeys(name for finding in findings for name in finding["fields"]))
    why = "" if table.status[row] == CHECKED else table.reasons[row]
    chosen = ChosenSample(table.keys[row], table.splits[row], table.files[row], why, wanted_fields)
    own = _with_own_tokenizer(schema, listing)
    placed = with_rate(own.placed(listing.roots, listing.root), listing, [table.files[row]]).schema
    sample: dict[str, Any] = {"fields": [], "why": why, "left_out": []}
    if not why:
        sample = _read_sample(
            PreviewTasks(placed, listing.root, listing.roots, listing, strict=True), [chosen]
        )
    mark_trained_ranges(
        sample["fields"], valid.get("ranges", {}).get(chosen.key), schema.for_split(chosen.split)
    )
    return _sample_view(chosen, sample, schema, listing.root) | {
        "run": result["run"]["id"],
        "codes": codes,
        "findings": findings,
        **({} if own is schema else {"notes": [_FOREIGN_TOKENIZER]}),
    }


def _with_own_tokenizer(schema: Schema, listing: Listing) -> Schema:
    """Return the schema of a run, without a tokenizer from outside the data folder."""
    if schema.tokenizer is None or schema.tokenizer.path is None:
        return schema
    path = PurePosixPath(schema.tokenizer.path)
    names = [path, *((path / name) for name in FILES), *(path.parent / name for name in FILES)]
    try:
        with ConfinedFolder(listing.root) as folder:
            folder.stat(str(path))
            for name in names:
                with suppress(FileNotFoundError, NotADirectoryError):
                    folder.stat(str(name))
    except OSError:
        return schema.model_copy(
            update={"tokenizer": schema.tokenizer.model_copy(update={"path": None})}
        )
    return schema


def _findings_of(
    findings: Sequence[Mapping[str, Any]],
    codes: Sequence[str],
    split: str,
    splits: AbstractSet[str],
) -> Iterator[dict[str, Any]]:
    """Yield the findings of the rules that a sample fails.

    They are those of its split, of all splits, or of splits judged as one.
    """
    own = {finding["rule"] for finding in findings if finding["split"] == split}
    for finding in findings:
        others = finding["split"] not in {"", *splits} and finding["rule"] not in own
        if finding["rule"] in codes and (finding["split"] in {"", split} or others):
            yield {
                name: finding[name]
                for name in ("rule", "name", "severity", "fields", "message", "fix")
            }


def sample_of_data(
    data: Path, key: str, schema: Schema, roots: Mapping[str, Path]
) -> dict[str, Any]:
    """Return the data of a page for a sample of unscanned data: its pictures.

    Args:
        data: folder or file.
        key: the sample's key as a scan names it: the file relative to `data`, then ":" and the
            place in it.
        schema: of the data.
        roots: extra folders by name.

    Raises:
        UsageError: the data is missing, or holds no such sample.
    """
    root, _ = target(data)
    listing = list_dataset(data, roots)
    placed = schema.placed(roots, root)
    check_alone(placed, listing.alone, schema.tokenizer)
    items = plan_work(placed, listing).items
    within = sorted(
        (item for item in items if key.startswith(item.path)), key=lambda item: -len(item.path)
    )
    why = ""
    for item in within[:_CANDIDATES]:
        chosen = ChosenSample(key, item.split, item.path)
        own = with_rate(placed, listing, [item.path]).schema
        sample = _read_sample(PreviewTasks(own, root, listing.roots, listing), [chosen])
        if sample["fields"]:
            return _sample_view(chosen, sample, schema, root) | {
                "run": "",
                "codes": [],
                "findings": [],
            }
        why = sample["why"]
    if within and within[0].path == key:
        msg = f"{data}: nothing can be shown of {key!r}: {why}"
        raise UsageError(msg)
    hint = _key_hint(key, [item.path for item in items[:_MAX_KEYS_COMPARED]])
    msg = f"{data}: no sample {key!r}{f' ({why})' if why else ''}. {hint}"
    raise UsageError(msg)


def row_of(table: Table, key: str, run: str) -> int:
    """Return the row of a key, or of the only key with this suffix.

    Args:
        table: of a run.
        key: whole, or its end.
        run: name of the table's origin, for messages.

    Raises:
        UsageError: no key, or more than one, has this suffix.
    """
    matches = (
        [row for row, table_key in enumerate(table.keys) if table_key.endswith(key)] if key else []
    )
    exact = [row for row in matches if table.keys[row] == key]
    if exact or len(matches) == 1:
        return (exact or matches)[0]
    if matches:
        examples = ", ".join(table.keys[row] for row in matches[:3])
        msg = f"{run}: {len(matches):,} samples end with {key!r}: {examples} ... Write more of the key."
        raise UsageError(msg)
    hint = _key_hint(key, [table.keys[row] for row in range(min(len(table), _MAX_KEYS_COMPARED))])
    msg = (
        f"{run}: no sample {key!r}. {hint} Of another scan: --run DIR; of other data: --data DATA."
    )
    raise UsageError(msg)


def _key_hint(key: str, keys: Sequence[str]) -> str:
    near = (
        get_close_matches(
            key, [known_key for known_key in keys if len(known_key) <= _MAX_KEY_CHARS], n=1
        )
        if len(key) <= _MAX_KEY_CHARS
        else []
    )
    return (
        f"Did you mean {near[0]}?"
        if near
        else f"Keys look like {keys[0]}"
        if keys
        else "The data hold no sample."
    )


def _read_sample(reader: PreviewTasks, samples: Sequence[ChosenSample]) -> dict[str, Any]:
    """Return the pictures of one sample, or why there are none."""
    if refusal := reader.refusal(samples[0].file, samples):
        return {"fields": [], "why": refusal, "left_out": []}
    limits = Limits(item_s=_SECONDS)
    with closing(Child(limits, replace(PARSER, sandbox=reader.sandbox))) as child:
        task = reader.task(samples[0].file, samples, MAX_POINTS, _BYTES)
        (sample,) = list(read_samples(child, task, samples, _SECONDS))[:1]
    return sample


def _sample_view(
    chosen: ChosenSample, sample: Mapping[str, Any], schema: Schema, root: Path
) -> dict[str, Any]:
    place = {
        "key": chosen.key,
        "split": chosen.split,
        "file": chosen.file,
        "root": str(root),
        "schema": schema.name,
    }
    return place | {"sample": {"key": chosen.key, "split": chosen.split, **sample}}


Array = np.ndarray[Any, Any]

# For all samples. A started field is read to its end; one of 100,000 shards takes some seconds to
# open.
_CACHE_SECONDS = 10.0
_READ = 64_000_000  # bytes of values of one sample
_NO_TIME = "there was no more time"
# attributes that the cache stores for its fields
_KEPT_ATTRS = ("role", "unit", "frame", "columns", "order", "skeleton")


def samples_of_cache(
    cache: Cache, declared: object, numbers: Iterable[int], seconds: float = _CACHE_SECONDS
) -> tuple[list[dict[str, Any]], list[str], list[CorruptionError]]:
    """Return pictures of samples of a cache.

    Args:
        cache: the cache.
        declared: the schema that its data was read with, from its provenance.
        numbers: of served samples.
        seconds: after this, no further field is read.

    Returns:
        For each sample, an entry as in previews.json; notes on samples without pictures; the damage
        found.
    """
    numbers, schema, end = list(numbers), _schema(cache, declared), time.monotonic() + seconds
    samples = []
    damage = []
    late = 0
    for number, key in zip(numbers, cache.keys(numbers), strict=True):
        fields = []
        why = ""
        if time.monotonic() > end:
            late, why = late + 1, _NO_TIME
        else:
            try:
                fields = _draw_cached(cache, number, schema, end)
            except DatacheckError as error:
                why = f"it could not be read: {error}"
                damage += [error] if isinstance(error, CorruptionError) else []
        samples.append(
            {"key": key, "split": "", "fields": fields, "left_out": [], "why": why[:300]}
        )
    notes = (
        [f"{pluralize(late, 'sample')} not drawn: reading may take {seconds:g} s in all"]
        if late
        else []
    )
    return samples, notes, damage


def _schema(cache: Cache, declared: object) -> Schema:
    """Return the schema of the fields after the transforms; parts that are invalid are left out."""
    declaration = declared if isinstance(declared, Mapping) else {}
    declared_fields = declaration.get("fields")
    declared_fields = (
        {name: spec for name, spec in declared_fields.items() if isinstance(spec, Mapping)}
        if isinstance(declared_fields, Mapping)
        else {}
    )
    fields = {
        name: _declared(spec, declared_fields.get(name, {})) for name, spec in cache.fields.items()
    }
    about = {"datacheck": 1, "name": "cache", "samples": {"files": "*"}}
    full_schema = (
        about
        | {"fields": declared_fields | fields}
        | {name: declaration[name] for name in ("episode",) if name in declaration}
    )
    for candidate in (full_schema, about | {"fields": fields}, about):
        try:
            return Schema.model_validate(candidate)
        except (ValueError, TypeError, DatacheckError):
            continue
    raise AssertionError  # the last one holds only constants


def _declared(spec: ArraySpec, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field as the cache stores it: transforms may change its shape, unit or frame."""
    stored_attributes = {name: spec.attrs[name] for name in _KEPT_ATTRS if name in spec.attrs}
    replaced = {
        *_KEPT_ATTRS,
        "shape",
        "dtype",
        *({"up"} if before.get("frame") != stored_attributes.get("frame") else ()),
    }
    unchanged = {name: value for name, value in before.items() if name not in replaced}
    if spec.kind != "array":
        return unchanged | stored_attributes
    named = spec.dim if spec.dim is None or not spec.dim.startswith("fields.") else "N"
    return (
        unchanged | stored_attributes | {"shape": [*([] if named is None else [named]), *spec.item]}
    )


def _draw_cached(cache: Cache, number: int, schema: Schema, end: float) -> list[dict[str, Any]]:
    """Return the pictures of one sample, and notes on fields without one.

    Raises:
        DatacheckError: the sample cannot be read.
    """
    values, notes = _values(cache, number, end)
    drawn = draw_within(PreviewBuilder(values, schema, points=POINTS), SAMPLE_BYTES)
    notes |= dict.fromkeys(drawn["left_out"], "no room for its picture in this page")
    return [
        *drawn["fields"],
        *({"field": name, "kind": "note", "about": about} for name, about in notes.items()),
    ]


def _values(cache: Cache, number: int, end: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a sample by field, and notes.

    Of long axes only the first rows are read, the same number for all fields of an axis.
    """
    values: dict[str, Any] = {}
    notes: dict[str, str] = {}
    sample_index = np.array([number])
    axes = {spec.dim: 0 for spec in cache.fields.values()}
    for spec in cache.fields.values():
        axes[spec.dim] += spec.item_bytes
    room = _READ // max(1, len(axes))
    for name, spec in cache.fields.items():
        if time.monotonic() > end:
            notes[name] = _NO_TIME
            continue
        present = cache.present(name, sample_index)
        if present is not None and not present[0]:
            continue
        rows = 1 if spec.dim is None else int(cache.lengths(spec.dim, sample_index)[0])
        read = int(min(rows, room / axes[spec.dim] if axes[spec.dim] else inf))
        if read < rows and (spec.kind != "array" or not read):
            notes[name] = f"{rows * spec.item_bytes:,} bytes: too large to be drawn here"
            continue
        values[name] = _read_field(cache, name, spec, sample_index, read if read < rows else None)
        if read < rows:
            notes[str(spec.dim)] = f"the first {read:,} of {rows:,} rows are drawn"
    return values, notes


def _read_field(
    cache: Cache, name: str, spec: ArraySpec, sample_index: Array, rows: int | None
) -> Any:
    """Return a field of one sample: its first `rows` rows, or all for None."""
    if spec.kind != "array":
        return cache.texts(name, sample_index)[0]
    if spec.dim is None:
        return cache.gather(name, sample_index)[0]
    if rows is None:
        return cache.gather_ragged(name, sample_index)[0]
    return cache.gather_steps(name, sample_index, np.zeros(1, np.int64), np.arange(rows), "edge")[0]
