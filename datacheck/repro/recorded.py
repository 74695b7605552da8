"""Read what was recorded: a run's folder, its environment, and the traces of its ranks line by line.

What lies there may be torn, foreign or of another version: that is said, and what can be read is
read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from datacheck.errors import UsageError
from datacheck.runtime.beneath import read_file
from datacheck.runtime.documents import MIB, check_values, count_values, open_document

VERSION = 1
ENVIRONMENT = "env.json"
CONFIG = "config.json"
_TRACE = re.compile(r"trace-(\d{5,})\.jsonl")
_SHOWN = 5  # runs that a message names, the newest
_LARGEST = 1 << 63  # of a number
_MOST_METRICS, _NAME_CHARS = 1000, 1000  # of one evaluation; characters of a name
_MOST_GENERATORS = 64  # generators of one step; a Recorder tells four
_LINE_BYTES = 16 * MIB  # the line of a start names every tensor of a model
_FILE_BYTES = 16 * MIB
_TRACE_BYTES = 64 << 30
_MOST_RANKS = 65_536
_MOST_NOTES, _NOTE_CHARS, _LOADER_BYTES = (
    1000,
    4000,
    1 << 16,
)  # loaders, notes of a trace; characters of a note, bytes of a loader
_STARTS, _VALUE_BYTES = 256 * MIB, 64  # bytes of all ranks; of memory for each value
_EVALUATIONS, _EVALUATED = (
    1_000_000,
    256 * MIB,
)  # values of all ranks, and their bytes: each is held
_STEPS = 10_000_000  # of a rank: of each the number is held

Line = dict[str, Any]


def trace_name(rank: int) -> str:
    """Return the name of a rank's trace."""
    return f"trace-{rank:05d}.jsonl"


def is_run(path: Path) -> bool:
    """Tell whether a folder holds a recorded run, whole or not."""
    try:
        return path.is_dir() and any(_TRACE.fullmatch(place.name) for place in path.iterdir())
    except OSError:
        return False


@dataclass
class Trace:
    """The trace of one rank.

    Args:
        path: the file.
        notes: what was left out when it was read, and what the recorder noted; filled by
            `read_run`.
    """

    path: Path
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[Line]:
        """Yield the lines that can be read, in order; a torn last one is none."""
        return (line for line, _ in self.sized())

    def sized(self) -> Iterator[tuple[Line, int]]:
        """Yield the lines that can be read, and their bytes."""
        bad = 0
        for raw in self._raw():
            if (line := _line(raw)) is None:
                bad += 1
            else:
                yield line, len(raw)
        if bad:
            said = "1 line" if bad == 1 else f"{bad:,} lines"
            self.notes.append(f"{self.path.name}: {said} could not be read and are left out")

    def of(self, kind: str) -> Iterator[Line]:
        """Yield the lines of a kind."""
        # most lines are of steps: what is not asked for is not decoded
        found = re.compile(rf'"kind"\s*:\s*"{kind}"'.encode()).search
        lines = (line for raw in self._raw() if found(raw) and (line := _line(raw)) is not None)
        return (line for line in lines if line["kind"] == kind)

    def _raw(self) -> Iterator[bytes]:
        """Yield lines as they are, without one that was being written when the run was killed; of a huge one a part."""
        with open_document(self.path, _TRACE_BYTES, links=False) as file:
            while raw := file.readline(_LINE_BYTES):
                if raw.endswith(b"\n"):
                    yield raw
                elif len(raw) == _LINE_BYTES:
                    _skip_line(file)
                    yield b""


def _skip_line(file: Any) -> None:
    while (raw := file.readline(_LINE_BYTES)) and not raw.endswith(b"\n"):
        pass


def _loaded(raw: bytes) -> Any:
    """Return a JSON value; texts may hold half a surrogate pair (a file name that is no UTF-8), numbers any digits.

    Raises:
        ValueError: it is no JSON, nested too deep, or of too many values.
    """
    check_values(raw)
    if not _BEYOND.search(raw):
        return orjson.loads(raw)
    try:
        return json.loads(raw, parse_constant=_no_number)
    except RecursionError as error:
        msg = "nested too deep"
        raise ValueError(msg) from error


_BEYOND = re.compile(
    rb"\\u[dD][89a-fA-F]|[0-9]{19}"
)  # orjson takes none of these, or makes a float of them


def _no_number(said: str) -> Any:
    msg = f"{said} is no JSON"
    raise ValueError(msg)


def _line(raw: bytes) -> Line | None:
    try:
        line = _loaded(raw)
    except ValueError:
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    if any(type(value) is int and abs(value) >= _LARGEST for value in line.values()):
        return None
    counted = {"step": ("step", "eval", "end"), "epoch": ("epoch",)}
    for name, kinds in counted.items():
        if line["kind"] in kinds and not (type(line.get(name)) is int and line[name] >= 0):
            return None
    holds = {"eval": ("values", dict), "note": ("said", str), "end": ("status", str)}
    name, kind = holds.get(line["kind"], ("kind", str))
    fits = {"eval": _is_evaluation, "step": _is_step}.get(line["kind"])
    if fits is not None and not fits(line):
        return None
    return line if isinstance(line.get(name), kind) else None


def _is_step(line: Line) -> bool:
    """Tell whether a step has no more generators, and names no longer, than may be compared."""
    told = line.get("random")
    return not isinstance(told, dict) or (
        len(told) <= _MOST_GENERATORS and all(len(name) <= _NAME_CHARS for name in told)
    )


def _is_evaluation(line: Line) -> bool:
    """Tell whether an evaluation has as many metrics, and names as long, as somebody may look at."""
    values, name = line.get("values"), line.get("name", "")
    if not isinstance(values, dict) or len(values) > _MOST_METRICS:
        return False
    return all(len(one) <= _NAME_CHARS for one in (name, *values) if isinstance(one, str))


def is_flat(value: Any) -> bool:
    """Tell what a Recorder writes, scalars and lists of them; what is nested as deep as it likes is not compared."""
    return not any(
        isinstance(one, dict | list) for one in (value if isinstance(value, list) else [value])
    )


@dataclass
class RecordedRun:
    """A recorded run.

    Args:
        path: its folder.
        environment: the sections of a capture; empty where there is none.
        config: the resolved configuration, None where there is none.
        traces: by rank, the first one first.
        starts: the first line of each trace, with what the run began with.
        loaders: what is known of the loader of rank 0.
        ended: how each rank ended; a rank that was killed has no word.
        notes: what could not be read, what is missing.
        held: bytes of the lines in `starts`.
        evaluations: of each rank and name, in order; of their values those that are `is_flat`.
        evaluated: bytes of the lines in `evaluations`, and how many they are.
    """

    path: Path
    environment: dict[str, Any]
    config: Any
    traces: dict[int, Trace]
    starts: dict[int, Line] = field(default_factory=dict)
    loaders: list[Line] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    held: int = 0
    evaluations: dict[tuple[int, str], list[Line]] = field(default_factory=dict)
    evaluated: tuple[int, int] = (0, 0)

    @property
    def world(self) -> int:
        """How many ranks there were, by what they said."""
        said = [start.get("world") for start in self.starts.values()]
        return max(
            [*(one for one in said if type(one) is int), *(rank + 1 for rank in self.traces)]
        )

    @property
    def missing(self) -> list[int]:
        """Ranks that left no trace."""
        return [rank for rank in range(min(self.world, 1 << 20)) if rank not in self.traces]


def read_run(path: Path) -> RecordedRun:
    """Return a recorded run.

    Raises:
        UsageError: there is no folder, or no run in it, or one of a version that this datacheck
            does not know.
    """
    try:
        named = [
            (name, place) for place in path.iterdir() if (name := _TRACE.fullmatch(place.name))
        ]
        found = sorted((int(name[1]), place) for name, place in named if place.is_file())
    except OSError as error:
        msg = (
            f"{path}: {(error.strerror or str(error)).lower()}. A folder that a Recorder wrote "
            f"is wanted."
        )
        raise UsageError(msg) from error
    if not found:
        runs = sorted(place.parent for place in path.glob(f"*/{trace_name(0)}"))
        some = ", ".join(map(str, runs[-_SHOWN:])) + (", ..." if len(runs) > _SHOWN else "")
        hint = (
            f"In it are {some}: name one of them."
            if runs
            else "A folder that a Recorder wrote is wanted."
        )
        msg = f"{path}: no recorded run, there is no {trace_name(0)}. {hint}"
        raise UsageError(msg)
    if len(found) > _MOST_RANKS:
        raise _limit_error(path, f"traces of more than {_MOST_RANKS:,} ranks")
    notes: list[str] = []
    config = _document(path / CONFIG, notes)
    run = RecordedRun(
        path,
        _document(path / ENVIRONMENT, notes),
        config.get("config"),
        {r: Trace(p) for r, p in found},
    )
    for rank, trace in run.traces.items():
        _read_trace(run, rank, trace)
    if not run.starts and not any(run.steps.values()):
        msg = f"{path}: a run of which nothing can be read: no start and no step. {' '.join(notes)}".rstrip()
        raise UsageError(msg)
    run.notes = [*notes, *(note for trace in run.traces.values() for note in trace.notes)]
    if missing := run.missing:
        ranks = ", ".join(map(str, missing[:10])) + ", ..." * (len(missing) > 10)
        run.notes.append(f"of {run.world} ranks {len(missing)} left no trace: {ranks}")
    return run


def _read_trace(run: RecordedRun, rank: int, trace: Trace) -> None:
    """Read a trace once for what it says of the run as a whole."""
    run.steps[rank] = 0
    try:
        for line, nbytes in trace.sized():
            _apply_line(run, rank, line, nbytes)
    except OSError as error:
        msg = (
            f"{trace.path}: {(error.strerror or str(error)).lower()}. A folder that a Recorder "
            f"wrote is wanted."
        )
        raise UsageError(msg) from error


def _apply_line(run: RecordedRun, rank: int, line: Line, nbytes: int) -> None:
    """Keep what one line says of the run as a whole.

    Raises:
        UsageError: of a version that is not read, or too much to hold.
    """
    trace, kind = run.traces[rank], line["kind"]
    if kind == "step":
        run.steps[rank] += 1
        if run.steps[rank] > _STEPS:
            raise _limit_error(trace.path, f"more than {_STEPS:,} steps")
    elif kind == "start" and rank not in run.starts:
        _check_version(trace.path, line)
        run.starts[rank] = line
        _count_held_bytes(run, line, nbytes)
    elif kind == "eval":
        _add_evaluation(run, rank, line, nbytes)
    elif (
        kind == "loader"
        and rank == next(iter(run.traces))
        and len(run.loaders) < _MOST_NOTES
        and nbytes <= _LOADER_BYTES
    ):
        run.loaders.append(line)
        _count_held_bytes(run, line, nbytes)
    elif kind == "note" and len(trace.notes) < _MOST_NOTES:
        trace.notes.append(line["said"][:_NOTE_CHARS])
    elif kind == "end":
        run.ended[rank] = line["status"]


def _add_evaluation(run: RecordedRun, rank: int, line: Line, nbytes: int) -> None:
    """Keep an evaluation.

    Raises:
        UsageError: there are too many.
    """
    name = line["name"] if isinstance(line.get("name"), str) else "?"
    values = max(count_values(line["values"], _EVALUATIONS), 1)
    count, held = run.evaluated
    run.evaluated = (
        count + values,
        held + nbytes + values * sys.getsizeof(name),
    )  # beside each value that differs
    if run.evaluated[0] > _EVALUATIONS or run.evaluated[1] > _EVALUATED:
        bytes_of = f"more than {_EVALUATED:,} bytes of them and their names"
        what = f"more than {_EVALUATIONS:,} values of evaluations, or {bytes_of}"
        raise _limit_error(run.path, what)
    kept = {key: said for key in ("step", "seen", "of") if is_flat(said := line.get(key))}
    metrics = {metric: value for metric, value in line["values"].items() if is_flat(value)}
    run.evaluations.setdefault((rank, name), []).append(kept | {"values": metrics})


def _count_held_bytes(run: RecordedRun, line: Line, nbytes: int) -> None:
    run.held += nbytes + _VALUE_BYTES * count_values(line, _STARTS // _VALUE_BYTES)
    if run.held > _STARTS:
        raise _limit_error(
            run.path, f"more than {_STARTS:,} bytes of starts of its ranks and of loaders"
        )


def _limit_error(path: Path, what: str) -> UsageError:
    return UsageError(f"{path}: has {what}. A folder of one run is wanted.")


def _check_version(path: Path, start: Line) -> None:
    version = start.get("version")
    if version != VERSION:
        said = version if type(version) is int else "none"
        msg = (
            f"{path}: recorded in version {said}; this datacheck reads version {VERSION}. "
            f"Compare with that one's."
        )
        raise UsageError(msg)


def _document(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        value = _loaded(read_file(path, _FILE_BYTES, links=False))
    except FileNotFoundError:
        notes.append(f"{path.name}: is missing")
    except OSError as error:
        notes.append(f"{path.name}: {(error.strerror or str(error)).lower()}")
    except ValueError:
        notes.append(f"{path.name}: is no JSON")
    else:
        if isinstance(value, dict):
            return value
        notes.append(f"{path.name}: is no JSON object")
    return {}
