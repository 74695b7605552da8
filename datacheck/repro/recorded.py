"""Reads a recorded run: its folder, its environment, and the traces of its ranks line by line.

Files may be torn, foreign or of another version. The reader notes the damage and reads the rest.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from datacheck.errors import UsageError
from datacheck.runtime.beneath import read_file
from datacheck.runtime.documents import MIB, VALUES, check_values, count_values, open_document

VERSION = 1
ENVIRONMENT = "env.json"
CONFIG = "config.json"
_TRACE = re.compile(r"trace-(\d+)\.jsonl")
_KINDS = {"start", "step", "epoch", "eval", "loader", "note", "end"}
# Logs and checkpoints that a training writes beside its trace
_BESIDE = (
    *("*.log", "*.out", "*.err", "events.out.tfevents.*", "*.safetensors"),
    *("*.ckpt", "checkpoint*.pt", "checkpoint*.pth"),
)
_SHOWN = 5  # runs named in a message, the newest
_LARGEST = 1 << 63  # exclusive limit of a number
_MOST_METRICS = 1000  # limits: metrics of one evaluation
_NAME_CHARS = 1000  # characters of a name
_MOST_GENERATORS = 64  # limit of generators in one step; a Recorder writes four
_LINE_BYTES = 16 * MIB  # the start line names every tensor of a model
_FILE_BYTES = 16 * MIB
_TRACE_BYTES = 64 << 30
_MOST_RANKS = 65_536
# Limits: notes of a trace (and loaders of a run); characters of a note; bytes of a loader
_MOST_NOTES = 1000
_NOTE_CHARS = 4000
_LOADER_BYTES = 1 << 16
_NOTED = 64 * MIB  # limit in bytes of the notes over all ranks
_STATUS_CHARS = 200  # characters of how a rank ended: "done", or the name of an exception
_STARTS = 96 * MIB  # limit in bytes over all ranks
_START_VALUES = 500_000  # limit for one rank
_DOCUMENT_VALUES = 500_000
_STATES = ("weights", "optimizer")  # large parts of a start: a value for each tensor
_VALUE_BYTES = 64  # memory of each value
# Limits over all ranks, since all evaluations of both runs are held: values, and bytes
_EVALUATIONS = 500_000
_EVALUATED = 128 * MIB
_EVALUATION_BYTES = 700  # memory of each evaluation besides its values
_DIFFERENCE_BYTES = 200  # memory of each value that differs besides its name
_STEPS = 10_000_000  # limit for a rank: the number of each step is held

Line = dict[str, Any]


def trace_name(rank: int) -> str:
    """Return the name of a rank's trace."""
    return f"trace-{rank:05d}.jsonl"


def is_run(path: Path) -> bool:
    """Return whether a folder holds a recorded run, complete or not."""
    try:
        return path.is_dir() and any(_rank_of(place.name) is not None for place in path.iterdir())
    except OSError:
        return False


def is_run_file(path: str) -> bool:
    """Return whether a path in the folder of a run is one of a Recorder, or a log or checkpoint."""
    name = path.rpartition("/")[2]
    recorded = path in {ENVIRONMENT, CONFIG} or _rank_of(path) is not None
    return recorded or any(fnmatchcase(name, pattern) for pattern in _BESIDE)


def _rank_of(name: str) -> int | None:
    """Return the rank of a trace by its name; None for any other name, as of a second file of a rank."""
    match = _TRACE.fullmatch(name)
    return int(match[1]) if match and name == trace_name(int(match[1])) else None


@dataclass
class Trace:
    """The trace of one rank.

    Args:
        path: the file.
        notes: what the reader left out, and the recorder's own notes; filled by `read_run`.
        unread: number of lines that could not be read; filled by `read_run`.
    """

    path: Path
    notes: list[str] = field(default_factory=list)
    unread: int = 0

    def lines(self) -> Iterator[Line]:
        """Yield the readable lines, in order, without a torn last line."""
        return (line for line, _ in self.sized())

    def sized(self) -> Iterator[tuple[Line, int]]:
        """Yield the readable lines with their sizes in bytes."""
        bad = 0
        for raw in self._raw():
            if (line := _line(raw)) is None:
                bad += 1
            else:
                yield line, len(raw)
        self.unread = bad
        if bad:
            count_text = "1 line" if bad == 1 else f"{bad:,} lines"
            self.notes.append(f"{self.path.name}: {count_text} could not be read and are left out")

    def of(self, kind: str) -> Iterator[Line]:
        """Yield the lines of a kind."""
        # Most lines are steps: decode only the lines of this kind.
        matches_kind = _kind_pattern(kind).search
        lines = (
            line for raw in self._raw() if matches_kind(raw) and (line := _line(raw)) is not None
        )
        return (line for line in lines if line["kind"] == kind)

    def _raw(self) -> Iterator[bytes]:
        """Yield raw lines, without a torn last line; an oversized line becomes b""."""
        with open_document(self.path, _TRACE_BYTES, links=False) as file:
            while raw := file.readline(_LINE_BYTES):
                if raw.endswith(b"\n"):
                    yield raw
                elif len(raw) == _LINE_BYTES:
                    _skip_line(file)
                    yield b""


@lru_cache
def _kind_pattern(kind: str) -> re.Pattern[bytes]:
    return re.compile(rf'"kind"\s*:\s*"{kind}"'.encode())


def _skip_line(file: Any) -> None:
    while (raw := file.readline(_LINE_BYTES)) and not raw.endswith(b"\n"):
        pass


def _loaded(raw: bytes, most: int = VALUES) -> Any:
    """Return a JSON value; texts may hold lone surrogates (from file names), numbers any digits.

    Raises:
        ValueError: the bytes are not JSON, nested too deep, or hold too many values.
    """
    check_values(raw, most)
    if not _BEYOND.search(raw):
        return orjson.loads(raw)
    try:
        return json.loads(raw, parse_constant=_no_number)
    except RecursionError as error:
        msg = "nested too deep"
        raise ValueError(msg) from error


# orjson rejects these, or turns them into a float.
_BEYOND = re.compile(rb"\\u[dD][89a-fA-F]|[0-9]{19}")


def _no_number(constant: str) -> Any:
    msg = f"{constant} is no JSON"
    raise ValueError(msg)


def _line(raw: bytes) -> Line | None:
    try:
        line = _loaded(raw)
    except ValueError:
        return None
    if not isinstance(line, dict) or not _is_known(line.get("kind"), raw):
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


def _is_known(kind: Any, raw: bytes) -> bool:
    """Return whether a line has a kind that a Recorder writes, in the spelling `Trace.of` searches.

    JSON allows escapes in it, with which one reader would see the line and the other would not.
    """
    return isinstance(kind, str) and kind in _KINDS and bool(_kind_pattern(kind).search(raw))


def _is_step(line: Line) -> bool:
    """Return whether a step has few enough generators, and short enough names, to be compared."""
    generators = line.get("random")
    return not isinstance(generators, dict) or (
        len(generators) <= _MOST_GENERATORS and all(len(name) <= _NAME_CHARS for name in generators)
    )


def _is_evaluation(line: Line) -> bool:
    """Return whether an evaluation has few enough metrics, and short enough names, to be shown."""
    values = line.get("values")
    name = line.get("name", "")
    if not isinstance(values, dict) or len(values) > _MOST_METRICS:
        return False
    return all(len(text) <= _NAME_CHARS for text in (name, *values) if isinstance(text, str))


def is_flat(value: Any) -> bool:
    """Return whether a value is a scalar or a list of scalars, as a Recorder writes.

    Deeper nesting is not compared: a file may nest without limit.
    """
    return not any(
        isinstance(item, dict | list) for item in (value if isinstance(value, list) else [value])
    )


@dataclass
class RecordedRun:
    """A recorded run.

    Args:
        path: its folder.
        environment: the sections of a capture; empty if there is none.
        config: the resolved configuration, None if there is none.
        traces: by rank, in ascending order.
        starts: the first line of each trace; `initial` returns the states in it, which are held as
            bytes.
        loaders: the recorded loaders of the lowest rank.
        ended: how each rank ended; a killed rank has no entry.
        steps: number of steps by rank.
        notes: what could not be read or is missing.
        held: bytes of the lines in `starts` and `loaders`.
        evaluations: by rank and name, in order; only values that are `is_flat`.
        evaluated: number of values in `evaluations`, and bytes of their lines.
        strangers: files that are named like a trace, and are the trace of no rank.
        noted: bytes of the notes of all ranks.
        nested: number of metrics left out because their values are not `is_flat`.
        restarts: number of starts after the first one of a trace.
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
    strangers: list[str] = field(default_factory=list)
    noted: int = 0
    nested: int = 0
    restarts: int = 0

    @property
    def uncompared(self) -> list[str]:
        """What is not compared besides lines that cannot be read, in phrases."""
        counts = {
            "start{} after the first of a trace": self.restarts,
            "metric{} with nested values": self.nested,
            "file{} that no rank is named after": len(self.strangers),
        }
        phrases = [
            f"{count:,} {phrase.format('s' * (count > 1))}"
            for phrase, count in counts.items()
            if count
        ]
        if self.strangers:
            phrases[-1] += f" ({self.strangers[0]})"
        return phrases

    def initial(self, rank: int, name: str) -> Any:
        """Return an initial state ("weights", "optimizer") of a rank; None if there is none."""
        value = self.starts.get(rank, {}).get(name)
        return orjson.loads(value) if isinstance(value, bytes) else value

    @property
    def world(self) -> int:
        """The number of ranks, as recorded."""
        worlds = [start.get("world") for start in self.starts.values()]
        return max(
            [
                *(count for count in worlds if type(count) is int),
                *(rank + 1 for rank in self.traces),
            ]
        )

    @property
    def missing(self) -> list[int]:
        """Ranks without a trace."""
        return [rank for rank in range(min(self.world, 1 << 20)) if rank not in self.traces]


def read_run(path: Path) -> RecordedRun:
    """Return a recorded run.

    Raises:
        UsageError: the folder does not exist, holds no run, or holds one of a version that this
            datacheck does not know.
    """
    try:
        named = [place for place in path.iterdir() if _TRACE.fullmatch(place.name)]
        ranked = [(rank, place) for place in named if (rank := _rank_of(place.name)) is not None]
        trace_files = sorted((rank, place) for rank, place in ranked if place.is_file())
    except OSError as error:
        msg = (
            f"{path}: {(error.strerror or str(error)).lower()}. A folder that a Recorder wrote "
            f"is wanted."
        )
        raise UsageError(msg) from error
    if not trace_files:
        runs = sorted(place.parent for place in path.glob(f"*/{trace_name(0)}"))
        run_list = ", ".join(map(str, runs[-_SHOWN:])) + (", ..." if len(runs) > _SHOWN else "")
        hint = (
            f"In it are {run_list}: name one of them."
            if runs
            else "A folder that a Recorder wrote is wanted."
        )
        msg = f"{path}: no recorded run, there is no {trace_name(0)}. {hint}"
        raise UsageError(msg)
    if len(trace_files) > _MOST_RANKS:
        raise _limit_error(path, f"traces of more than {_MOST_RANKS:,} ranks")
    notes: list[str] = []
    config = _document(path / CONFIG, notes)
    run = RecordedRun(
        path,
        _document(path / ENVIRONMENT, notes),
        config.get("config"),
        {r: Trace(p) for r, p in trace_files},
        strangers=sorted(
            {place.name for place in named} - {place.name for _, place in trace_files}
        ),
    )
    for rank, trace in run.traces.items():
        _read_trace(run, rank, trace)
    if not run.starts and not any(run.steps.values()):
        msg = f"{path}: a run of which nothing can be read: no start and no step. {' '.join(notes)}".rstrip()
        raise UsageError(msg)
    run.notes = [*notes, *(note for trace in run.traces.values() for note in trace.notes)]
    run.notes += [f"not compared: {part}" for part in run.uncompared]
    if missing := run.missing:
        ranks = ", ".join(map(str, missing[:10])) + ", ..." * (len(missing) > 10)
        run.notes.append(f"of {run.world} ranks {len(missing)} left no trace: {ranks}")
    return run


def _read_trace(run: RecordedRun, rank: int, trace: Trace) -> None:
    """Read a trace once to collect what concerns the whole run."""
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
    """Add one line to the run if it concerns the whole run.

    Raises:
        UsageError: the version is unknown, or the run exceeds a limit.
    """
    trace = run.traces[rank]
    kind = line["kind"]
    if kind == "step":
        run.steps[rank] += 1
        if run.steps[rank] > _STEPS:
            raise _limit_error(trace.path, f"more than {_STEPS:,} steps")
    elif kind == "start":
        _add_start(run, rank, line, nbytes)
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
    elif kind == "note" and len(trace.notes) < _MOST_NOTES and run.noted < _NOTED:
        note = line["said"][:_NOTE_CHARS]
        run.noted += sys.getsizeof(note)
        trace.notes.append(note)
    elif kind == "end":
        run.ended[rank] = line["status"][:_STATUS_CHARS]


def _add_start(run: RecordedRun, rank: int, line: Line, nbytes: int) -> None:
    if rank in run.starts:
        run.restarts += 1
        return
    _check_version(run.traces[rank].path, line)
    if count_values(line, _START_VALUES) > _START_VALUES:
        raise _limit_error(run.path, f"more than {_START_VALUES:,} values in the start of a rank")
    packed = {name: _packed(line[name]) for name in _STATES if name in line}
    run.starts[rank] = line | packed
    # Packed numbers may be longer than in the trace.
    packed_bytes = sum(len(value) for value in packed.values() if isinstance(value, bytes))
    _count_held_bytes(run, run.starts[rank], max(nbytes, packed_bytes))


def _packed(value: Any) -> Any:
    """Return a value as bytes, which take a fraction of its memory; itself if orjson cannot write it."""
    try:
        return bytes(memoryview(orjson.dumps(value)))  # a copy: orjson reserves ten times as much
    except orjson.JSONEncodeError:
        return value


def _add_evaluation(run: RecordedRun, rank: int, line: Line, nbytes: int) -> None:
    """Keep an evaluation.

    Raises:
        UsageError: there are too many values or bytes.
    """
    name = line["name"] if isinstance(line.get("name"), str) else "?"
    values = max(count_values(line["values"], _EVALUATIONS), 1)
    count, held_bytes = run.evaluated
    # A name is repeated for each value that differs.
    held_bytes += nbytes + _EVALUATION_BYTES + values * (sys.getsizeof(name) + _DIFFERENCE_BYTES)
    run.evaluated = (count + values, held_bytes)
    if run.evaluated[0] > _EVALUATIONS or run.evaluated[1] > _EVALUATED:
        bytes_of = f"more than {_EVALUATED:,} bytes of them and their names"
        limit = f"more than {_EVALUATIONS:,} values of evaluations, or {bytes_of}"
        raise _limit_error(run.path, limit)
    fields = {
        key: field_value for key in ("step", "seen", "of") if is_flat(field_value := line.get(key))
    }
    metrics = {metric: value for metric, value in line["values"].items() if is_flat(value)}
    run.nested += len(line["values"]) - len(metrics)
    run.evaluations.setdefault((rank, name), []).append(fields | {"values": metrics})


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
        version_text = version if type(version) is int else "none"
        msg = (
            f"{path}: recorded in version {version_text}; this datacheck reads version {VERSION}. "
            f"Compare with that one's."
        )
        raise UsageError(msg)


def _document(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        value = _loaded(read_file(path, _FILE_BYTES, links=False), _DOCUMENT_VALUES)
    except FileNotFoundError:
        notes.append(f"{path.name}: is missing")
    except OSError as error:
        notes.append(f"{path.name}: {(error.strerror or str(error)).lower()}")
    except ValueError:
        notes.append(f"{path.name}: is no JSON of at most {_DOCUMENT_VALUES:,} values")
    else:
        if isinstance(value, dict):
            return value
        notes.append(f"{path.name}: is no JSON object")
    return {}
