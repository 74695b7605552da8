"""The built-in repairs: lists of samples, JSON lines, statistics, lengths and angles."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from datacheck.errors import UsageError
from datacheck.fix import REJECTED, Asked, Edit, Plan, Repair
from datacheck.formats.base import open_container
from datacheck.formats.pickle_safe import unpickle_whole
from datacheck.model.finding import Finding
from datacheck.model.table import UNREADABLE
from datacheck.runtime.beneath import File
from datacheck.schema.grammar import parse_columns
from datacheck.schema.model import RECORDS, FieldSpec, Schema, StatsSpec
from datacheck.sources.loader_tables import stored_at
from datacheck.sources.planning import place_text
from datacheck.sources.roots import Roots

_BOM = b"\xef\xbb\xbf"
_LONGEST = 255  # bytes in a file name


def _lists_plan(request: Asked) -> Plan:
    """Plan to drop from each list the lines that name no file, and repeated lines but the first."""
    lists = {place_text(path): path for path in request.run.listing.by_path}
    bad_lines: dict[str, set[str]] = {}
    for note in request.run.work.notes:
        if note.code == LISTS.code and "list" in note.about:
            lines = bad_lines.setdefault(lists[note.about["list"]], set())
            lines.update([note.about["line"]] if note.missing else [])
    if not bad_lines:
        msg = "DC105: no line of a list is wrong; files that no list names are for you to add."
        raise UsageError(msg)
    records = sorted(path for path in bad_lines if path.lower().endswith(RECORDS))
    unclear = tuple(
        f"{path}: only lists of lines are repaired. Let the preprocessing write it again."
        for path in records
    )
    if len(records) == len(bad_lines):
        raise UsageError(unclear[0])
    edits = {
        path: Edit("datacheck.fix.edits:without", sorted(bad_lines[path]))
        for path in bad_lines.keys() - {*records}
    }
    return Plan(edits, unclear)


def without(gone: list[str], source: File, goal: Path) -> None:
    """Write a list without these lines (as `place_text` names them) and without repeated lines."""
    left_out = set(gone)
    # Universal newlines, as a scan splits the lines.
    with source.open() as stored, io.TextIOWrapper(stored, encoding="utf-8-sig") as text:
        lines = [line.strip() for line in text]
    kept_lines = [
        line for line in dict.fromkeys(lines) if line and place_text(line) not in left_out
    ]
    goal.write_text("".join(f"{line}\n" for line in kept_lines), encoding="utf-8")


def _lines_plan(request: Asked) -> Plan:
    """Plan to keep the readable lines, without byte order mark, and to move the others.

    They go into FILE.rejected next to the repaired file.
    """
    table = request.run.table
    bad: dict[str, set[int]] = {}
    of_sentences = set[str]()  # their numbers are not those of lines
    for finding in request.findings:
        for row in finding.rows.tolist():
            numbers = bad.setdefault(table.files[row], set())
            if table.reasons[row].startswith("DC701 sentence "):
                of_sentences.add(table.files[row])
            elif table.status[row] == UNREADABLE:
                numbers.add(_line_of(table.keys[row], table.files[row]))
    packed = sorted(
        path for path in bad if path in of_sentences or not path.lower().endswith(_PLAIN_LINES)
    )
    unclear = tuple(
        f"{path}: sentences of words and tags are repaired by hand."
        if path in of_sentences
        else _packed(path)
        for path in packed
    )
    for path in packed:
        del bad[path]
    if unclear and not bad:
        raise UsageError(unclear[0])
    if not bad:
        msg = "DC701: no line is bad; empty ones are for your loader to skip."
        raise UsageError(msg)
    return Plan(
        {
            path: Edit("datacheck.fix.edits:good_lines", sorted(numbers))
            for path, numbers in bad.items()
        },
        unclear,
    )


_PLAIN_LINES = (".jsonl", ".ndjson", ".txt", ".tsv", ".tab", ".dict")


def _packed(path: str) -> str:
    unpack = " Unpack it first." if path.lower().endswith(".gz") else ""
    return f"{path}: only .jsonl, .ndjson and text files are repaired line by line.{unpack}"


def _line_of(key: str, path: str) -> int:
    number = key[-12:]
    if not (number.isascii() and number.isdecimal()):
        msg = (
            f"{path}: only files whose lines are the samples (each: line) are repaired line by "
            f"line."
        )
        raise UsageError(msg)
    return int(number)


def good_lines(bad: list[int], source: File, goal: Path) -> None:
    """Write the lines that are not empty; lines with these numbers go into FILE.rejected.

    Raises:
        UsageError: the name of FILE.rejected would be too long.
    """
    bad_numbers = set(bad)
    if bad_numbers and len(os.fsencode(goal.name + REJECTED)) > _LONGEST:
        msg = (
            f"{source}: its name is too long for a copy with {REJECTED} behind it. Rename the file."
        )
        raise UsageError(msg)
    with ExitStack() as open_files:
        lines = open_files.enter_context(source.open("rb"))
        good = open_files.enter_context(goal.open("wb"))
        rejected = (
            open_files.enter_context(goal.with_name(goal.name + REJECTED).open("wb"))
            if bad_numbers
            else good
        )
        for number, line in enumerate(lines):
            text = line.removeprefix(_BOM) if number == 0 else line
            if number in bad_numbers:
                rejected.write(line.rstrip(b"\r\n") + b"\n")
            elif not text.isspace():
                good.write(text.rstrip(b"\r\n") + b"\n")


LISTS = Repair("DC105", "lists without the lines that name no file or stand twice", _lists_plan)
LINES = Repair(
    "DC701",
    "JSON lines without the bad ones, which go to FILE.rejected",
    _lines_plan,
    renumbers=True,
)


_FULL = 255.0

StatsUpdate = tuple[StatsSpec, dict[str, Any]]  # location in the file, correct values


def _statistics_plan(request: Asked) -> Plan:
    files: dict[str, list[StatsUpdate]] = {}
    for finding in request.findings:
        stats = _stats_of(request, finding)
        path = stats.file or ""
        if path not in request.run.listing.by_path or not path.lower().endswith(".json"):
            msg = (
                f"{finding.id}: {path} is no JSON file below the data folder. Write it again "
                f"from result.json."
            )
            raise UsageError(msg)
        colour = request.run.schema.fields[finding.fields[0]].role == "color"
        files.setdefault(path, []).append((stats, _in_unit(finding.measured, stats, colour=colour)))
    updates = {
        path: [[stats.at, values] for stats, values in file_stats]
        for path, file_stats in files.items()
    }
    return Plan(
        {
            path: Edit("datacheck.fix.edits:write_statistics", file_stats)
            for path, file_stats in updates.items()
        }
    )


def _stats_of(request: Asked, finding: Finding) -> StatsSpec:
    stats = request.run.schema.for_split(finding.split).fields[finding.fields[0]].stats
    if stats is None or stats.file is None:
        statistics = ", ".join(
            f"{name}: {[float(f'{v:.6g}') for v in values]}"
            for name, values in finding.measured.items()
        )
        msg = (
            f"{finding.id}: these statistics stand in the schema itself. Write there: {statistics}"
        )
        raise UsageError(msg)
    return stats


def _in_unit(measured: Mapping[str, Any], stats: StatsSpec, *, colour: bool) -> dict[str, Any]:
    """Return the statistics; colours 0..255 as 0..1 where the file stores them like that."""
    stored = [value for values in (stats.mean, stats.max) for value in values]
    scale = _FULL if colour and stored and max(stored) <= 1 < max(measured["max"]) else 1.0
    return {name: (np.array(values) / scale).tolist() for name, values in measured.items()}


def write_statistics(found: list[list[Any]], source: File, goal: Path) -> None:
    """Write a JSON file with these statistics in their places."""
    document = json.loads(source.read_bytes())
    for location, values in found:
        place, names = stored_at(document, location)
        for name, key in names.items():
            # `place` comes from json.loads, so it is a dict.
            place[key] = _reshaped(values[name], place[key])  # type: ignore[index]
    goal.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _reshaped(values: list[float], stored_value: Any) -> Any:
    """Return the numbers in the shape that the file has, flat where its count differs."""
    shape = np.shape(stored_value)
    return (
        np.array(values).reshape(shape).tolist() if int(np.prod(shape)) == len(values) else values
    )


STATISTICS = Repair("DC228", "statistics in a JSON file, computed again", _statistics_plan)


Array = np.ndarray[Any, Any]

_ONLY_ARRAY = "array"  # name of the array in an .npy
# up to here they hold every integer
_FLOAT32 = 2**24
_FLOAT64 = 2**53
_SUPPORTED = (".npy", ".npz", ".h5", ".hdf5", ".pkl", ".pickle")


@dataclass(frozen=True)
class _Spot:
    """A part of an array in a file that is multiplied.

    Args:
        name: of the array, "" for the only one.
        columns: [start, stop) of the last axis, None for all.
        row: one row of the first axis, None for all.
        factor: the multiplier.
    """

    name: str
    columns: tuple[int, int] | None
    row: int | None
    factor: float


def _scaling_plan(request: Asked) -> Plan:
    """Return the plan that multiplies values; findings without a clear factor are left to the user.

    Raises:
        UsageError: no finding has a clear factor.
    """
    spots: dict[str, list[_Spot]] = {}
    table = request.run.table
    unclear = list[str]()
    keys = set[str]()
    unsupported = set[str]()
    for finding in request.findings:
        try:
            factor = _factor(request, finding)
        except UsageError as error:
            unclear.append(str(error))
            continue
        rows = finding.rows.tolist()
        unsupported.update(
            path
            for path in (table.files[row] for row in rows)
            if not path.lower().endswith(_SUPPORTED)
        )
        rows = [row for row in rows if table.files[row] not in unsupported]
        keys.update(table.keys[row] for row in rows)
        for name in finding.fields[:1]:
            for row in rows:
                schema = request.schema.for_split(table.splits[row])
                path = table.files[row]
                inner = table.inner[row].strip("/")
                spots.setdefault(path, []).append(
                    _spot(schema, name, path, inner, table.keys[row], factor)
                )
    only = (
        f"values are repaired in {', '.join(_SUPPORTED)} only. Convert the file, or declare its "
        f"unit."
    )
    unclear += [f"{path}: {only}" for path in sorted(unsupported)]
    if not spots and not unclear:
        msg = (
            f"{', '.join(finding.id for finding in request.findings)}: names no samples whose "
            f"values could be repaired"
        )
        raise UsageError(msg)
    if not spots:
        raise UsageError(
            unclear[0] + (f" (and {len(unclear) - 1:,} more)" if len(unclear) > 1 else "")
        )
    edits = {
        path: Edit(
            "datacheck.fix.edits:write_values", [vars(spot) for spot in dict.fromkeys(file_spots)]
        )
        for path, file_spots in spots.items()
    }
    return Plan(edits, tuple(unclear), frozenset(keys))


def _factor(request: Asked, finding: Finding) -> float:
    """Return the factor that the user gives, or that of the cause.

    Raises:
        UsageError: there is none, because the cause is unknown or not clear.
    """
    cause = finding.cause
    factor = request.scale or (
        cause.factor if cause and cause.kind and not cause.alternatives else None
    )
    if factor and math.isfinite(factor):
        return factor
    if cause is not None and cause.kind and cause.factor is None:
        msg = f"{finding.id}: {cause.text}. No factor repairs that: {finding.fix}"
    elif cause is None or not cause.alternatives:
        msg = (
            f"{finding.id}: no known factor explains these samples, so none is applied. Say it: "
            f"--scale 0.001"
        )
    else:
        causes = ", ".join(cause.alternatives)
        msg = (
            f"{finding.id}: these fit: {causes}; and so may others. Find out which, and say it: "
            f"--scale 0.001"
        )
    raise UsageError(msg)


def _spot(schema: Schema, name: str, path: str, inner: str, key: str, factor: float) -> _Spot:
    part = schema.part_of(name)
    field, columns = part or (name, None)
    spec = schema.fields.get(field, FieldSpec())
    if spec.file is not None or (schema.samples.each not in {None, "row"} and not inner):
        msg = (
            f"{name}: lies in another file or between other samples of {path}. Mend it where it "
            f"is written."
        )
        raise UsageError(msg)
    if schema.columns:
        return _Spot("", parse_columns(schema.columns)[name], None, factor)
    location = spec.at if spec.at is not None else field
    array = (
        location[1:] if location.startswith("/") else f"{inner}/{location}" if inner else location
    )
    row = int(key[-12:]) if schema.samples.each == "row" else None
    return _Spot(array, columns, row, factor)


def write_values(said: list[dict[str, Any]], source: File, goal: Path) -> None:
    """Write a file with the values of these spots multiplied."""
    spots = [_Spot(**record) for record in said]
    suffix = source.suffix.lower()
    if suffix in {".h5", ".hdf5"}:
        shutil.copyfile(source, goal)
        with closing(open_container(Roots(goal.parent, {}).file(goal.name))) as container:
            # On the copy, which no other process changes: `peek` rejects values in other files.
            for spot in spots:
                container.peek(spot.name)
        with h5py.File(goal, "r+") as file:
            for spot in _distinct(spots, lambda name: h5py.h5o.get_info(file[name].id).addr):
                file[spot.name][...] = _multiplied(file[spot.name][...], spot, keep=True)
        return
    with closing(open_container(source)) as container:
        values = {name: container.read(name) for name in container.names()}
    scaled: dict[str, Array] = {}
    stored_name = partial(_array_name, values)
    for spot in _distinct(spots, stored_name):
        name = stored_name(spot.name)
        scaled[name] = values[name] = _multiplied(np.asarray(values[name]), spot, keep=False)
    # As an open file: for a path numpy appends a suffix that it misses.
    with goal.open("wb") as file:
        if suffix == ".npz":
            _write_npz(file, source, scaled)
        elif suffix == ".npy":
            _write_npy(file, source, scaled)
        else:
            pickle.dump(_with_values(unpickle_whole(source.read_bytes()), scaled), file, protocol=2)


def _array_name(values: Mapping[str, Any], name: str) -> str:
    return name if name in values else next(iter(values))


def _distinct(spots: Iterable[_Spot], stored: Callable[[str], Hashable]) -> list[_Spot]:
    """Return the spots, each part of a stored array once.

    Args:
        spots: of one file.
        stored: maps the name of an array to its identity in the file: in HDF5, several names may
            lead to one dataset.

    Raises:
        UsageError: two spots overlap without being equal.
    """
    by_array: dict[Hashable, dict[int | None, list[_Spot]]] = {}
    distinct: list[_Spot] = []
    for spot in spots:
        rows = by_array.setdefault(stored(spot.name), {})
        candidates = (
            chain.from_iterable(rows.values())
            if spot.row is None
            else [*rows.get(spot.row, ()), *rows.get(None, ())]
        )
        shared = [other for other in candidates if _overlap(spot, other)]
        if any(
            (other.row, other.columns, other.factor) != (spot.row, spot.columns, spot.factor)
            for other in shared
        ):
            msg = (
                f"{spot.name}: values that several findings name. Repair them where they are "
                f"written."
            )
            raise UsageError(msg)
        if not shared:
            distinct.append(spot)
        rows.setdefault(spot.row, []).append(spot)
    return distinct


def _overlap(spot: _Spot, other: _Spot) -> bool:
    """Tell whether two spots of one array have columns in common."""
    if spot.columns is None or other.columns is None:
        return True
    return spot.columns[0] < other.columns[1] and other.columns[0] < spot.columns[1]


def _write_npy(file: BinaryIO, source: File, scaled: Mapping[str, Array]) -> None:
    """Write an .npy with its array, or arrays of the mapping that it holds, replaced."""
    if not _is_pickled(source):
        if scaled.keys() != {_ONLY_ARRAY}:
            raise _is_part(next(iter(scaled)))
        np.save(file, scaled[_ONLY_ARRAY])
        return
    with source.open("rb") as stored:
        version_1 = np.lib.format.read_magic(stored) == (1, 0)
        (np.lib.format.read_array_header_1_0 if version_1 else np.lib.format.read_array_header_2_0)(
            stored
        )
        content = _with_values(unpickle_whole(stored.read()), scaled)
    boxed = np.empty((), dtype=object)
    boxed[()] = content
    np.save(file, boxed, allow_pickle=True)


def _is_part(name: str) -> UsageError:
    return UsageError(
        f"{name}: part of a structured array. Mend the values where they are written."
    )


def _with_values(content: Any, scaled: Mapping[str, Array]) -> Any:
    """Return the content of a pickle with these arrays replaced and all else unchanged.

    Raises:
        UsageError: one of the names is no array of a mapping.
    """
    for name, values in scaled.items():
        place, key = _place_of(content, name)
        if isinstance(place[key], np.ndarray | list):
            place[key] = values if isinstance(place[key], np.ndarray) else values.tolist()
        else:
            msg = (
                f"{name}: is a {type(place[key]).__name__} in the pickle; arrays and lists of "
                f"mappings are repaired."
            )
            raise UsageError(msg)
    return content


def _place_of(content: Any, name: str) -> tuple[dict[Any, Any], Any]:
    """Return the mapping that holds the value `name`, as ``outer/inner``, and its key there."""
    for key, value in content.items() if isinstance(content, dict) else ():
        if str(key) == name:
            return content, key
        if isinstance(value, dict) and name.startswith(f"{key}/"):
            return _place_of(value, name[len(str(key)) + 1 :])
    msg = f"{name}: no entry of a mapping in the pickle. Mend the values where they are written."
    raise UsageError(msg)


def _write_npz(file: BinaryIO, source: File, scaled: Mapping[str, Array]) -> None:
    """Write an .npz with these arrays replaced; its other members are copied, arrays or not."""
    with (
        source.open("rb") as stored,
        zipfile.ZipFile(stored) as source_zip,
        zipfile.ZipFile(file, "w") as target_zip,
    ):
        members = {member.filename.removesuffix(".npy") for member in source_zip.infolist()}
        if part := next((name for name in scaled if name not in members), None):
            raise _is_part(part)
        for member in source_zip.infolist():
            values = scaled.get(member.filename.removesuffix(".npy"))
            target_info = zipfile.ZipInfo(member.filename, member.date_time)
            target_info.compress_type = member.compress_type
            with target_zip.open(target_info, "w", force_zip64=True) as out:
                if values is not None:
                    np.lib.format.write_array(out, values, allow_pickle=False)
                    continue
                with source_zip.open(member) as member_file:
                    shutil.copyfileobj(member_file, out)


def _is_pickled(source: File) -> bool:
    """Tell whether an .npy holds Python objects (a pickled dict) rather than numbers."""
    with source.open("rb") as file:
        return b"'|O'" in file.read(256)


def _multiplied(values: Array, spot: _Spot, *, keep: bool) -> Array:
    """Return the array with the spot's values multiplied.

    Raises:
        UsageError: the array cannot hold the result, or would lose other numbers.

    Notes:
        Unless `keep` is set, an array of integers becomes float32, or float64 where float32 cannot
        hold all of them.
    """
    if values.dtype.kind != "f":
        whole_integers = values.dtype.kind in "iu" and spot.row is None and spot.columns is None
        largest = (
            max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
            if whole_integers
            else 0
        )
        if keep or not whole_integers or largest > _FLOAT64:
            msg = (
                f"{spot.name}: holds {values.dtype.name}, which cannot hold the result. Write "
                f"the file again."
            )
            raise UsageError(msg)
        values = values.astype(np.float32 if largest <= _FLOAT32 else np.float64)
    out = values.copy()
    view = out if spot.row is None else out[spot.row : spot.row + 1]
    view = view if spot.columns is None else view[..., spot.columns[0] : spot.columns[1]]
    finite = np.isfinite(view)
    with np.errstate(over="ignore"):
        view *= np.asarray(spot.factor, dtype=out.dtype)
    if not np.array_equal(np.isfinite(view), finite):
        msg = (
            f"{spot.name}: {values.dtype.name} cannot hold the result. Write the file again, in "
            f"float32."
        )
        raise UsageError(msg)
    return out


LENGTHS = Repair("DC201", "lengths times the factor of the cause, or --scale", _scaling_plan)
ANGLES = Repair("DC202", "angles times the factor of the cause, or --scale", _scaling_plan)
