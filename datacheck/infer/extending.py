"""Drafts a schema that extends a built-in one, where exactly one built-in schema fits the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from datacheck.infer.axes import name_axes
from datacheck.infer.data_files import DataFiles, is_accompanying
from datacheck.infer.guess import guess
from datacheck.infer.profiling import SampleProfile, profile_by_schema, profile_files
from datacheck.infer.suggest import patterns
from datacheck.infer.writing import Draft, Guess, extending_text
from datacheck.rules.base import pluralize
from datacheck.schema.load import chosen_by_files, without_narrower
from datacheck.schema.model import ANY, FieldSpec, Schema, exceeded_limit
from datacheck.sources import matches, plan_work
from datacheck.sources.lerobot import EPISODE

# Files whose content tells their layout under any name.
_STORES = frozenset({".hdf5", ".h5", ".zarr"})
# Columns by which LeRobot finds its rows: no fields of a sample.
_LEROBOT_INDEXES = frozenset({"index", EPISODE})


class _BuiltinFit(NamedTuple):
    """A built-in schema that fits files, their profile, and their pattern if it is another one."""

    name: str
    schema: Schema
    profile: SampleProfile
    files: str = ""


def draft_extending(files: DataFiles) -> Draft | None:
    """Return a draft that extends the one built-in schema that fits most files.

    None where no schema or several fit.
    """
    schemas = chosen_by_files()
    by_name = {fit.name: fit for fit in _fitting_by_name(schemas, files)}
    counts = {name: matches(fit.schema, files.listing) for name, fit in by_name.items()}
    fitting = [by_name[name] for name in without_narrower(by_name, schemas, counts)]
    fitting = fitting or list(_fitting_by_content(schemas, files))
    return _draft(fitting[0], files) if len(fitting) == 1 else None


def _fitting_by_name(schemas: Mapping[str, Schema], files: DataFiles) -> Iterator[_BuiltinFit]:
    """Yield the schemas whose patterns match most files and whose fields the files have."""
    main_paths = {path for path in files.readable if not is_accompanying(path)}
    main_paths = main_paths or set(files.readable)
    for name, schema in schemas.items():
        if not matches(schema, files.listing):
            continue
        unclaimed = main_paths.intersection(plan_work(schema, files.listing).unclaimed)
        if 2 * len(unclaimed) > len(main_paths):
            continue
        profile = profile_files(_with_any_field(schema), files.listing)
        if _has_most_fields(schema, profile):
            yield _BuiltinFit(name, schema, profile)


def _fitting_by_content(schemas: Mapping[str, Schema], files: DataFiles) -> Iterator[_BuiltinFit]:
    """Yield the built-in robot schemas that best fit the content of files with other names."""
    ending, paths = files.main_kind()
    if ending.lower() not in _STORES:
        return
    (pattern,) = patterns([(paths, ending)])
    ranked: list[tuple[float, _BuiltinFit]] = []
    robots = [
        (name, schema)
        for name, schema in schemas.items()
        if not schema.samples.list and _is_of_stores(schema)
    ]
    profiles = profile_by_schema(
        [_with_any_field(_with_files(schema, pattern)) for _, schema in robots], files.listing
    )
    for (name, schema), profile in zip(robots, profiles, strict=True):
        matching = _matching_fields(schema, profile)
        has_half = 2 * len(matching) >= len(schema.stored)
        if profile.samples and has_half and matching.issuperset(_required_fields(schema)):
            share = len(matching) / len(schema.stored)
            ranked.append((share, _BuiltinFit(name, schema, profile, pattern)))
    best = max((share for share, _ in ranked), default=0.0)
    yield from (fit for share, fit in ranked if share == best)


def _is_of_stores(schema: Schema) -> bool:
    return all(PurePosixPath(text).suffix in _STORES for text in schema.samples.files)


def _with_files(schema: Schema, pattern: str) -> Schema:
    samples = schema.samples.model_copy(update={"files": (pattern,)})
    return schema.model_copy(update={"samples": samples})


def _with_any_field(schema: Schema) -> Schema:
    """Return a schema that also reads the fields that it does not list."""
    return schema.model_copy(update={"fields": schema.fields | {ANY: FieldSpec()}})


def _required_fields(schema: Schema) -> set[str]:
    return {name for name, spec in schema.stored.items() if not spec.optional and not spec.absent}


def _matching_fields(schema: Schema, profile: SampleProfile) -> set[str]:
    """Return the fields of a schema that samples have in the declared kind and sizes."""
    return {
        name
        for name, spec in schema.stored.items()
        if name in profile.fields and profile.fields[name].fits(spec)
    }


def _has_most_fields(schema: Schema, profile: SampleProfile) -> bool:
    """Tell whether files have at least half of the fields that a schema requires.

    Files of another layout may have the same names.
    """
    # The files are damaged, or have the schema's names and another content.
    if not profile.samples:
        return not profile.lacks_group
    required = {name for name, spec in schema.stored.items() if not spec.optional}
    return 2 * len(required & profile.fields.keys()) >= len(required)


def _draft(fit: _BuiltinFit, files: DataFiles) -> Draft:
    """Return a draft that extends a built-in schema by what differs.

    That is file names, names of fields, absent fields, and additional fields.
    """
    guesses = _changed_fields(fit) | _additional_fields(fit, str(files.data))
    described = _described_files(fit, files)
    notes = [*files.notes(described), *_misfits(fit), *fit.profile.notes]
    why = f"{pluralize(len(described), 'file')} of its layout"
    if fit.files:
        why += ", under other names"
    elif not guesses:
        why += f"; datacheck scan DATA --schema {fit.name} works as it is"
    text = extending_text(fit.name, fit.files, guesses, notes, why)
    fields = fit.schema.fields.keys() | guesses.keys()
    return Draft(text, len(fields), fit.profile.samples, tuple(notes), extends=True)


def _changed_fields(fit: _BuiltinFit) -> dict[str, Guess]:
    """Return the guesses for the schema's fields that samples have under another name, or lack."""
    guesses = {}
    profile = fit.profile
    for name, spec in sorted(fit.schema.stored.items()):
        if near_name := profile.near_names.get(name):
            guesses[name] = Guess({"at": near_name}, ("called so in these samples",))
            continue
        may_lack = spec.optional or fit.schema.when or spec.file
        if profile.samples and name not in profile.fields and not may_lack:
            why = f"in none of {pluralize(profile.samples)} that were looked at"
            guesses[name] = Guess({"optional": True}, (why,))
    return guesses


def _additional_fields(fit: _BuiltinFit, data: str) -> dict[str, Guess]:
    """Return the guesses for the fields of samples that the schema does not list."""
    schema, profile = fit.schema, fit.profile
    known = schema.fields.keys() | _LEROBOT_INDEXES | _used_near_names(fit)
    additional = {name: field for name, field in profile.fields.items() if name not in known}
    changed = (name for changes in schema.when.values() for name in changes)
    if exceeded := exceeded_limit({*schema.fields, *additional, *changed}):
        return {ANY: Guess({}, (exceeded,))}
    has_time = any("T" in (spec.shape or ()) for spec in schema.stored.values())
    axes = name_axes(profile.fields, episodes=has_time)
    return {
        name: guess(name, field, axes, profile.samples, data)
        for name, field in sorted(additional.items())
    }


def _used_near_names(fit: _BuiltinFit) -> set[str]:
    return {fit.profile.near_names.get(name, "") for name in fit.schema.stored}


def _misfits(fit: _BuiltinFit) -> list[str]:
    """Return notes on fields of another shape or kind than the schema declares."""
    fields = fit.profile.fields
    return [
        f"{name}: not of the shape {list(spec.shape or ())} or the kind that {fit.name} declares"
        for name, spec in sorted(fit.schema.stored.items())
        if name in fields and not fit.profile.near_names.get(name) and not fields[name].fits(spec)
    ]


def _described_files(fit: _BuiltinFit, files: DataFiles) -> set[str]:
    if fit.files:
        return files.matching(fit.files)
    paths = set(files.listing.entries.paths)
    return paths.difference(plan_work(fit.schema, files.listing).unclaimed)
