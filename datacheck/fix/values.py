"""Units: values of the failing samples times one factor, in .npy, .npz, pickled dicts and HDF5."""

from __future__ import annotations

import math
import pickle
import shutil
import zipfile
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from datacheck.errors import UsageError
from datacheck.finding import Finding
from datacheck.fix import Asked, Edit, Plan, Repair
from datacheck.formats.base import open_container
from datacheck.formats.pickle_safe import unpickle_whole
from datacheck.runtime.beneath import File
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.values import parse_columns
from datacheck.sources.roots import Roots

Array = np.ndarray[Any, Any]

_SOLE = "array"  # what the array of an .npy is called
_FLOAT32, _FLOAT64 = 2**24, 2**53  # up to which they hold every whole number
_WRITTEN = (".npy", ".npz", ".h5", ".hdf5", ".pkl", ".pickle")


@dataclass(frozen=True)
class _Spot:
    """Values inside a file that are multiplied.

    Args:
        name: of the array, "" for the only one.
        columns: [start, stop) of the last axis, None for all.
        row: one row of the first axis, None for all.
        factor: what they are multiplied by.
    """

    name: str
    columns: tuple[int, int] | None
    row: int | None
    factor: float


def _scaled(asked: Asked) -> Plan:
    """Return the multiplications of each file, and of which findings the factor is not clear.

    Raises:
        UsageError: that of none is clear.
    """
    spots: dict[str, list[_Spot]] = {}
    table, unclear, keys, odd = asked.run.table, list[str](), set[str](), set[str]()
    for finding in asked.findings:
        try:
            factor = _factor(asked, finding)
        except UsageError as error:
            unclear.append(str(error))
            continue
        rows = finding.rows.tolist()
        odd.update(path for path in (table.files[row] for row in rows) if not path.lower().endswith(_WRITTEN))
        rows = [row for row in rows if table.files[row] not in odd]
        keys.update(table.keys[row] for row in rows)
        for name in finding.fields[:1]:
            for row in rows:
                schema = asked.schema.for_split(table.splits[row])
                path, inner = table.files[row], table.inner[row].strip("/")
                spots.setdefault(path, []).append(_spot(schema, name, path, inner, table.keys[row], factor))
    only = f"values are repaired in {', '.join(_WRITTEN)} only. Convert the file, or declare its unit."
    unclear += [f"{path}: {only}" for path in sorted(odd)]
    if not spots and not unclear:
        msg = f"{', '.join(finding.id for finding in asked.findings)}: names no samples whose values could be repaired"
        raise UsageError(msg)
    if not spots:
        raise UsageError(unclear[0] + (f" (and {len(unclear) - 1:,} more)" if len(unclear) > 1 else ""))
    edits = {
        path: Edit("datacheck.fix.values:write", [vars(spot) for spot in dict.fromkeys(found)])
        for path, found in spots.items()
    }
    return Plan(edits, tuple(unclear), frozenset(keys))


def _factor(asked: Asked, finding: Finding) -> float:
    """Return the factor that the user gives, or that of the cause.

    Raises:
        UsageError: there is none, as the cause is unknown or not clear.
    """
    cause = finding.cause
    factor = asked.scale or (cause.factor if cause and cause.kind and not cause.alternatives else None)
    if factor and math.isfinite(factor):
        return factor
    if cause is not None and cause.kind and cause.factor is None:
        msg = f"{finding.id}: {cause.text}. No factor repairs that: {finding.fix}"
    elif cause is None or not cause.alternatives:
        msg = f"{finding.id}: no known factor explains these samples, so none is applied. Say it: --scale 0.001"
    else:
        ways = ", ".join(cause.alternatives)
        msg = f"{finding.id}: these fit: {ways}; and so may others. Find out which, and say it: --scale 0.001"
    raise UsageError(msg)


def _spot(schema: Schema, name: str, path: str, inner: str, key: str, factor: float) -> _Spot:
    part = schema.part_of(name)
    field, columns = part or (name, None)
    spec = schema.fields.get(field, FieldSpec())
    if spec.file is not None or (schema.samples.each not in {None, "row"} and not inner):
        msg = f"{name}: lies in another file or between other samples of {path}. Mend it where it is written."
        raise UsageError(msg)
    if schema.columns:
        return _Spot("", parse_columns(schema.columns)[name], None, factor)
    at = spec.at if spec.at is not None else field
    array = at[1:] if at.startswith("/") else f"{inner}/{at}" if inner else at
    row = int(key[-12:]) if schema.samples.each == "row" else None
    return _Spot(array, columns, row, factor)


def write(said: list[dict[str, Any]], source: File, goal: Path) -> None:
    """Write a file with the values of these spots multiplied."""
    spots = [_Spot(**one) for one in said]
    suffix = source.suffix.lower()
    if suffix in {".h5", ".hdf5"}:
        shutil.copyfile(source, goal)
        with closing(open_container(Roots(goal.parent, {}).file(goal.name))) as container:
            for spot in spots:  # of the copy, which nobody changes: no value lies in another file
                container.peek(spot.name)
        with h5py.File(goal, "r+") as file:
            for spot in _distinct(spots, lambda name: h5py.h5o.get_info(file[name].id).addr):
                file[spot.name][...] = _times(file[spot.name][...], spot, keep=True)
        return
    with closing(open_container(source)) as container:
        values = {name: container.read(name) for name in container.names()}
    scaled: dict[str, Array] = {}
    held = partial(_held, values)
    for spot in _distinct(spots, held):
        name = held(spot.name)
        scaled[name] = values[name] = _times(np.asarray(values[name]), spot, keep=False)
    with goal.open("wb") as file:  # numpy adds an ending to names that do not end as it likes
        if suffix == ".npz":
            _write_npz(file, source, scaled)
        elif suffix == ".npy":
            _write_npy(file, source, scaled)
        else:
            pickle.dump(_with_values(unpickle_whole(source.read_bytes()), scaled), file, protocol=2)


def _held(values: Mapping[str, Any], name: str) -> str:
    return name if name in values else next(iter(values))


def _distinct(spots: Iterable[_Spot], stored: Callable[[str], Hashable]) -> list[_Spot]:
    """Return spots without those whose values another one names too.

    Args:
        spots: of one file.
        stored: from the name of an array to what is stored under it: in HDF5, several names may lead to one dataset.

    Raises:
        UsageError: two have some values in common, and not all.
    """
    found: dict[Hashable, dict[int | None, list[_Spot]]] = {}
    kept: list[_Spot] = []
    for spot in spots:
        rows = found.setdefault(stored(spot.name), {})
        others = (
            chain.from_iterable(rows.values()) if spot.row is None else [*rows.get(spot.row, ()), *rows.get(None, ())]
        )
        shared = [other for other in others if _share(spot, other)]
        if any((other.row, other.columns, other.factor) != (spot.row, spot.columns, spot.factor) for other in shared):
            msg = f"{spot.name}: values that several findings name. Repair them where they are written."
            raise UsageError(msg)
        if not shared:
            kept.append(spot)
        rows.setdefault(spot.row, []).append(spot)
    return kept


def _share(one: _Spot, other: _Spot) -> bool:
    """Tell whether two spots of one array have columns in common."""
    if one.columns is None or other.columns is None:
        return True
    return one.columns[0] < other.columns[1] and other.columns[0] < one.columns[1]


def _write_npy(file: BinaryIO, source: File, scaled: Mapping[str, Array]) -> None:
    """Write an .npy with other values of its array, or of these arrays of the mapping that it holds."""
    if not _boxed(source):
        if scaled.keys() != {_SOLE}:
            raise _is_part(next(iter(scaled)))
        np.save(file, scaled[_SOLE])
        return
    with source.open("rb") as stored:
        first = np.lib.format.read_magic(stored) == (1, 0)
        (np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0)(stored)
        whole = _with_values(unpickle_whole(stored.read()), scaled)
    boxed = np.empty((), dtype=object)
    boxed[()] = whole
    np.save(file, boxed, allow_pickle=True)


def _is_part(name: str) -> UsageError:
    return UsageError(f"{name}: part of a structured array. Mend the values where they are written.")


def _with_values(whole: Any, scaled: Mapping[str, Array]) -> Any:
    """Return what a pickle holds with other values of these arrays; all else stays as it is.

    Raises:
        UsageError: one of them is no array of a mapping.
    """
    for name, values in scaled.items():
        place, key = _place_of(whole, name)
        if isinstance(place[key], np.ndarray | list):
            place[key] = values if isinstance(place[key], np.ndarray) else values.tolist()
        else:
            msg = f"{name}: is a {type(place[key]).__name__} in the pickle; arrays and lists of mappings are repaired."
            raise UsageError(msg)
    return whole


def _place_of(whole: Any, name: str) -> tuple[dict[Any, Any], Any]:
    """Return the mapping and the key under which a value stands that is called `name`, as ``outer/inner``."""
    for key, value in whole.items() if isinstance(whole, dict) else ():
        if str(key) == name:
            return whole, key
        if isinstance(value, dict) and name.startswith(f"{key}/"):
            return _place_of(value, name[len(str(key)) + 1 :])
    msg = f"{name}: no entry of a mapping in the pickle. Mend the values where they are written."
    raise UsageError(msg)


def _write_npz(file: BinaryIO, source: File, scaled: Mapping[str, Array]) -> None:
    """Write an .npz with other values of these arrays; its other members stay as they are, arrays or not."""
    with (
        source.open("rb") as stored, zipfile.ZipFile(stored) as before,
        zipfile.ZipFile(file, "w") as after,
    ):  # fmt: skip
        members = {member.filename.removesuffix(".npy") for member in before.infolist()}
        if part := next((name for name in scaled if name not in members), None):
            raise _is_part(part)
        for member in before.infolist():
            values = scaled.get(member.filename.removesuffix(".npy"))
            written = zipfile.ZipInfo(member.filename, member.date_time)
            written.compress_type = member.compress_type
            with after.open(written, "w", force_zip64=True) as out:
                if values is not None:
                    np.lib.format.write_array(out, values, allow_pickle=False)
                    continue
                with before.open(member) as held:
                    shutil.copyfileobj(held, out)


def _boxed(source: File) -> bool:
    """Tell whether an .npy holds Python objects (a pickled dict) rather than numbers."""
    with source.open("rb") as file:
        return b"'|O'" in file.read(256)


def _times(values: Array, spot: _Spot, *, keep: bool) -> Array:
    """Return the array with the spot's values multiplied.

    Raises:
        UsageError: the array cannot hold the result, or would lose other numbers.

    Notes:
        An array of whole numbers becomes float32, or float64 where it has such that float32 cannot hold, unless `keep`.
    """
    if values.dtype.kind != "f":
        whole = values.dtype.kind in "iu" and spot.row is None and spot.columns is None
        most = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0)))) if whole else 0
        if keep or not whole or most > _FLOAT64:
            msg = f"{spot.name}: holds {values.dtype.name}, which cannot hold the result. Write the file again."
            raise UsageError(msg)
        values = values.astype(np.float32 if most <= _FLOAT32 else np.float64)
    out = values.copy()
    view = out if spot.row is None else out[spot.row : spot.row + 1]
    view = view if spot.columns is None else view[..., spot.columns[0] : spot.columns[1]]
    finite = np.isfinite(view)
    with np.errstate(over="ignore"):
        view *= np.asarray(spot.factor, dtype=out.dtype)
    if not np.array_equal(np.isfinite(view), finite):
        msg = f"{spot.name}: {values.dtype.name} cannot hold the result. Write the file again, in float32."
        raise UsageError(msg)
    return out


LENGTHS = Repair("DC201", "lengths times the factor of the cause, or --scale", _scaled)
ANGLES = Repair("DC202", "angles times the factor of the cause, or --scale", _scaled)
