"""Previews of a run: choose the worst samples of each finding, read them again and draw them.

For fields of joints, failing samples are laid over the mean of fit ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck import tokenization
from datacheck.errors import DatacheckError
from datacheck.model.finding import Finding, Severity
from datacheck.model.table import CHECKED, Table, Texts
from datacheck.preview.drawings import mark_trained_ranges
from datacheck.preview.encoding import Array, NotDrawableError
from datacheck.preview.overlays import FailingPose, overlay
from datacheck.rules.base import pluralize
from datacheck.runtime import fsops
from datacheck.runtime.sandbox import Sandbox
from datacheck.scan.run_documents import PREVIEWS, PREVIEWS_FORMAT, ranges
from datacheck.scan.scan_run import ScanRun
from datacheck.schema.grammar import factor
from datacheck.schema.model import FieldSpec, Schema, file_templates
from datacheck.schema.patterns import Template
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source
from datacheck.sources.listing import Listing, target
from datacheck.sources.roots import sandbox_of
from datacheck.workers.budget import Limits
from datacheck.workers.child import PARSER, Child

MAX_PER_FINDING = 12
MAX_SAMPLES = 60
# samples whose joints are read
MAX_FIT = 48
MAX_FAILING = 24


@dataclass(eq=False)
class ChosenSample:
    """A sample to draw, and the fields that its findings are about."""

    key: str
    split: str
    file: str
    why: str = ""
    first: list[str] = field(default_factory=list)


def choose_samples(
    findings: Sequence[Finding], table: Table
) -> tuple[list[ChosenSample], dict[str, list[int]], list[str]]:
    """Return the samples to draw: the worst of each finding, then the second of each, ...

    Returns:
        The samples, the places among them for each finding (by id), and notes on those left out.
    """
    chosen: list[ChosenSample] = []
    chosen_index: dict[int, int] = {}
    places: dict[str, list[int]] = {}
    finding_rows = [worst_rows(finding) for finding in findings]
    for rank in range(MAX_PER_FINDING):
        for finding, rows in zip(findings, finding_rows, strict=True):
            if rank >= len(rows):
                continue
            row = rows[rank]
            if row not in chosen_index and len(chosen) == MAX_SAMPLES:
                continue
            number = chosen_index.setdefault(row, len(chosen))
            if number == len(chosen):
                chosen.append(_chosen_sample(table, row))
            finding_places = places.setdefault(finding.id, [])
            if number not in finding_places:
                finding_places.append(number)
            chosen[number].first += [
                name for name in finding.fields if name not in chosen[number].first
            ]
    missing = len({row for rows in finding_rows for row in rows} - chosen_index.keys())
    notes = (
        [f"{pluralize(missing, 'sample')} not drawn: at most {MAX_SAMPLES} are"] if missing else []
    )
    return chosen, places, notes


def worst_rows(finding: Finding) -> list[int]:
    """Return the rows of a finding's worst samples, then further ones, evenly spread."""
    rows = finding.rows
    many = min(MAX_PER_FINDING, len(finding.rows))
    spread = [int(rows[place * len(rows) // many]) for place in range(many)]
    return list(dict.fromkeys([*finding.worst, *spread]))[:MAX_PER_FINDING]


def _chosen_sample(table: Table, row: int) -> ChosenSample:
    why = "" if table.status[row] == CHECKED else table.reasons[row] or "it could not be read"
    return ChosenSample(table.keys[row], table.splits[row], table.files[row], why)


# ------------------------------------------------------------------------------------------- joints


@dataclass(frozen=True)
class OverlayRequest:
    """Failing joints to lay over the mean of fit ones.

    Args:
        field: of role joints.
        failing: samples of findings about the field: (round, rule, sample), the worst of each
            finding first.
        fit: fit samples, evenly spread over the table. Every fourth comes first, so that a prefix
            of them is spread, too.
    """

    field: str
    failing: Sequence[tuple[int, str, ChosenSample]]
    fit: Sequence[ChosenSample]


def overlay_requests(
    findings: Sequence[Finding], table: Table, valid: Array, schema: Schema
) -> Iterator[OverlayRequest]:
    """Yield a request for each field of joints with a finding.

    Args:
        valid: bool (rows): fit for training.
    """
    for name, _ in schema.of_role("joints"):
        field_findings = [
            finding
            for finding in findings
            if name in finding.fields and len(finding.rows) and finding.severity != Severity.INFO
        ]
        ranks = [
            (rank, finding.code, row)
            for finding in field_findings
            for rank, row in enumerate(worst_rows(finding))
        ]
        best_ranks: dict[int, tuple[int, str]] = {}
        for rank, code, row in sorted(ranks, key=lambda place: place[0]):
            if table.status[row] == CHECKED:
                best_ranks.setdefault(row, (rank, code))
        failing = list(best_ranks.items())[:MAX_FAILING]
        if not failing:
            continue
        fit = valid & _rows_of_splits(table, {table.splits[row] for row, _ in failing})
        for finding in field_findings:
            fit[finding.rows] = False
        rows = np.flatnonzero(fit)
        many = min(MAX_FIT, len(rows))
        spread = rows[np.arange(many) * len(rows) // max(many, 1)]
        yield OverlayRequest(
            name,
            [(rank, code, _chosen_sample(table, row)) for row, (rank, code) in failing],
            [_chosen_sample(table, int(row)) for start in range(4) for row in spread[start::4]],
        )


def _rows_of_splits(table: Table, splits: set[str]) -> Array:
    """Return bool (rows): the row is in one of these splits."""
    texts = Texts.of(table.splits)
    return np.array([word in splits for word in texts.words], bool)[texts.rows]


BYTES = 1_500_000
SAMPLE_BYTES = 25_000
OVERLAY_BYTES = 100_000  # part of `BYTES` reserved for overlays of joints
POINTS = 1024  # of a cloud: sixty clouds of 2,048 points would not leave room for others
# share of the scan's time, and a minimum in seconds; the page takes further time
_TIME_SHARE = 0.04
_SECONDS = 0.5
_START_SECONDS = 20.0
_MEMORY = 4 << 30
_DRAW, _JOINTS, _READY = (
    f"datacheck.preview.reading:{name}" for name in ("draw_items", "read_joints", "ready")
)


@dataclass(frozen=True)
class PreviewTasks:
    """Builds the tasks for the child that reads samples.

    Args:
        schema, root, roots: as for a source.
        listing: the files as scanned; None if they were not listed.
        strict: read only files that are unchanged since the scan: the documents of a shared run may
            name any folder.
    """

    schema: Schema
    root: Path
    roots: Mapping[str, Path]
    listing: Listing | None = None
    strict: bool = False

    def task(
        self, file: str, asked: Sequence[ChosenSample], points: int, most: int
    ) -> dict[str, Any]:
        """Return the task (see `reading.draw_items`) that draws samples of one file."""
        return self._task(file, asked, first={sample.key: sample.first for sample in asked}) | {
            "points": points,
            "most": most,
        }

    def joints(self, file: str, asked: Sequence[ChosenSample], field: str) -> dict[str, Any]:
        """Return the task (see `reading.read_joints`) that reads joints of samples of one file."""
        return self._task(file, asked) | {"field": field}

    def refusal(self, file: str, asked: Sequence[ChosenSample]) -> str:
        """Return why samples of a file are not read; "" if they may be."""
        if not self.strict or self.listing is None:
            return ""
        try:
            files = self._source.files(self._item(file, asked))
        except DatacheckError as error:
            return str(error)
        for path in files:
            if path not in self._as_scanned:
                self._as_scanned[path] = self.listing.holds(path)  # may read the whole file
        changed_path = next((path for path in files if not self._as_scanned[path]), None)
        return "" if changed_path is None else _FILE_CHANGED.format(changed_path)

    def _item(self, file: str, samples: Sequence[ChosenSample]) -> Item:
        names = next((n for t in self._templates if (n := t.match(file)) is not None), {})
        entry = None if self.listing is None else self.listing.by_path.get(file)
        return Item(
            file,
            samples[0].split,
            names,
            tuple(dict.fromkeys(sample.key for sample in samples)),
            0 if entry is None else entry.size,
        )

    def _task(self, file: str, samples: Sequence[ChosenSample], **more: Any) -> dict[str, Any]:
        item = self._item(file, samples)
        return {
            "schema": self._schema,
            "root": str(self.root),
            "items": [{"item": item.as_dict(), **more}],
            "roots": {name: str(path) for name, path in self.roots.items()},
        }

    @property
    def sandbox(self) -> Sandbox | None:
        """The files that the reading child may reach: the data, and the schema's tokenizer."""
        tokenizer = self.schema.tokenizer.path if self.schema.tokenizer is not None else None
        return sandbox_of(
            self.root,
            self.roots,
            read=[] if tokenizer is None else tokenization.tokenizer_places(tokenizer),
        )

    @cached_property
    def _as_scanned(self) -> dict[str, bool]:
        """Whether files are unchanged since the scan, by path."""
        return {}

    @cached_property
    def _source(self) -> Source:
        return open_source(self.schema, self.root, self.roots)

    @cached_property
    def _templates(self) -> list[Template]:
        return file_templates(self.schema)

    @cached_property
    def _schema(self) -> dict[str, Any]:
        return self.schema.as_dict()


class PreviewProcess:
    """A child that starts during the scan, so that pictures need not wait for Python to start.

    It draws in a thread.

    Notes:
        Use it in a ``with``, which ends it however the scan ends. A scan without findings starts it
        in vain.

    Args:
        data: the scanned data.
        roots: extra folders by name.

    Raises:
        UsageError: the data does not exist.
    """

    def __init__(self, data: Path, roots: Mapping[str, Path]) -> None:
        self._child = _child(sandbox_of(target(data)[0], roots))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="datacheck-drawer")
        self._thread.submit(self._child.run, _READY, {"items": []})

    def __enter__(self) -> PreviewProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()
        self._thread.shutdown(cancel_futures=True)
        self._child.close()

    def write(self, run: ScanRun) -> Callable[[], Path | None]:
        """Start writing the previews.json of a run; return a function that waits for it.

        The function returns or raises as `write_previews` does.
        """
        # the sandbox of `_child` does not include a tokenizer: start another child then
        child = self._child if run.schema.tokenizer is None else None
        return self._thread.submit(write_previews, run, child=child).result


def write_previews(
    run: ScanRun, seconds: float | None = None, child: Child | None = None
) -> Path | None:
    """Write previews.json next to a run's result.json; return its path, None if nothing was drawn.

    Args:
        run: a scan of files; they may have changed since, or be gone.
        seconds: for reading and drawing; None: 4 % of the scan's time, at least 0.5.
        child: the child to read in, which ends afterwards; None: a new one.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: any other refusal of the operating system.
    """
    document = previews_of(run, seconds, child)
    drawn = [
        *(entry for entry in document["overlays"] if "joints" in entry),
        *(entry for entry in document["samples"] if entry["fields"]),
    ]
    if not drawn and not document["left_out"]:
        return None
    path = Path(run.report.folder) / PREVIEWS
    fsops.write_file(path, orjson.dumps(document), mode=0o666)
    return path


def previews_of(
    run: ScanRun, seconds: float | None = None, child: Child | None = None
) -> dict[str, Any]:
    """Return the contents of previews.json (see `write_previews`).

    Returns:
        Samples, their places for each finding, joints laid over the mean of fit ones, and notes on
        what was left out.
    """
    if seconds is None:
        seconds = max(_SECONDS, _TIME_SHARE * run.report.run["seconds"])
    chosen, places, notes = choose_samples(run.report.findings, run.table)
    requests = list(overlay_requests(run.report.findings, run.table, run.valid, run.schema))
    rescored = "rescored" in run.report.run
    reader = PreviewTasks(
        run.schema, run.listing.root, run.listing.roots, run.listing, strict=rescored
    )
    samples = [
        {"key": sample.key, "split": sample.split, "fields": [], "left_out": [], "why": sample.why}
        for sample in chosen
    ]
    positions = {(sample.key, sample.split): number for number, sample in enumerate(chosen)}
    trained_ranges = {
        run.table.keys[row]: sample_ranges
        for row, sample_ranges in ranges([*run.report.findings, *run.report.suppressed]).items()
    }
    room = BYTES - len(orjson.dumps([samples, places])) - (OVERLAY_BYTES if requests else 0)
    with closing(_PreviewSession(reader, seconds, child)) as reading:
        for drawn in reading.drawn([sample for sample in chosen if not sample.why]):
            number = positions.get((drawn["key"], drawn["split"]))
            if number is None:
                continue
            mark_trained_ranges(
                drawn["fields"],
                trained_ranges.get(drawn["key"]),
                run.schema.for_split(drawn["split"]),
            )
            size = len(orjson.dumps(drawn))
            if drawn["fields"] and size > room:
                drawn = drawn | {"fields": [], "why": _NO_ROOM}
            else:
                room -= size
            samples[number] = drawn
        overlays, overlay_notes = reading.overlays(requests)
    whys = [
        str(drawn["why"]) for drawn, sample in zip(samples, chosen, strict=True) if not sample.why
    ]
    notes += _left_out_notes(whys, seconds)
    return {
        "format": PREVIEWS_FORMAT,
        "samples": samples,
        "findings": places,
        "overlays": overlays,
        "left_out": [*notes, *overlay_notes],
    }


def _left_out_notes(whys: Sequence[str], seconds: float) -> list[str]:
    """Return notes on samples without a picture, by reason.

    Args:
        whys: the reasons; "" for a sample with a picture.
    """
    late = whys.count(_NO_TIME)
    full = whys.count(_NO_ROOM)
    unread = [why for why in whys if why not in {"", _NO_TIME, _NO_ROOM}]
    notes = [f"{pluralize(len(unread), 'sample')} not drawn: {unread[0]}"] if unread else []
    if late:
        notes.append(
            f"{pluralize(late, 'sample')} not drawn: reading again may take {seconds:.2g} s in all"
        )
    if full:
        notes.append(
            f"{pluralize(full, 'sample')} not drawn: pictures may take {BYTES / 1e6:g} MB in all"
        )
    return notes


# ------------------------------------------------------------------------------------------ reading

_NO_TIME = "there was no time left to read it again"
_NO_ROOM = "its picture found no room"
_NOT_IN_FILE = "it is no longer in its file"
_FILE_CHANGED = "{} is not what was scanned; datacheck view KEY --data DATA shows it as it is now"


class _PreviewSession:
    """Reads samples again, in one child and within one time limit."""

    def __init__(self, reader: PreviewTasks, seconds: float, child: Child | None) -> None:
        self._reader, self._seconds = reader, seconds
        self._child, self._end, self._dead = child or _child(reader.sandbox), 0.0, ""

    def close(self) -> None:
        self._child.close()

    def _start(self) -> str:
        """Start the time limit once the child has started; return why it has not, or ""."""
        if not self._end:
            self._dead = _run_child(self._child, _READY, {"items": []})[1]
            self._end = time.monotonic() + self._seconds
        return self._dead

    @property
    def _seconds_left(self) -> float:
        return self._end - time.monotonic()

    def drawn(self, chosen: Sequence[ChosenSample]) -> Iterator[dict[str, Any]]:
        """Yield the pictures of samples, or why a sample has none."""
        if not chosen:
            return
        if why := self._start():
            yield from _without_pictures(chosen, why)
            return
        for file, file_samples in _by_file(chosen):
            seconds_left = self._seconds_left
            if seconds_left <= 0:
                yield from _without_pictures(file_samples, _NO_TIME)
            elif refusal := self._reader.refusal(file, file_samples):
                yield from _without_pictures(file_samples, refusal)
            else:
                yield from read_samples(
                    self._child,
                    self._reader.task(file, file_samples, POINTS, SAMPLE_BYTES),
                    file_samples,
                    seconds_left,
                )

    def overlays(self, wanted: Sequence[OverlayRequest]) -> tuple[list[dict[str, Any]], list[str]]:
        """Return overlays of joints, or why there is none, and notes on those left out."""
        field_overlays = []
        notes = []
        room = OVERLAY_BYTES
        for request in wanted if not (wanted and self._start()) else ():
            chosen = [*(sample for *_, sample in request.failing), *request.fit]
            spec = self._spec(request.field, chosen[0].split)
            poses, unread, late = self._joints(chosen, request.field, spec.unit)
            fit = [
                poses[name][0]
                for sample in request.fit
                if (name := (sample.key, sample.split)) in poses
            ]
            worst = [
                FailingPose(*name, poses[name][0], rank, rule, poses[name][1])
                for rank, rule, sample in request.failing
                if (name := (sample.key, sample.split)) in poses
            ]
            if late:
                notes.append(
                    f"{late} of {pluralize(len(chosen), 'sample')} of {request.field} not overlaid: no "
                    f"time left"
                )
            if unread:
                unread[0] = f"{pluralize(len(unread), 'sample')} without joints: {unread[0][:300]}"
            try:
                overlay_data = overlay(fit, worst, spec.skeleton, spec.unit or "")
            except NotDrawableError as error:
                reasons = [*unread[:1], *(["the others found no time"] if late else [])]
                field_overlays.append(
                    {"field": request.field, "why": "; ".join([str(error), *reasons])}
                )
                continue
            overlay_data["left_out"] += unread[:1]
            size = len(orjson.dumps(overlay_data))
            if size > room:
                notes.append(f"{request.field} not overlaid: no room")
                continue
            room -= size
            field_overlays.append({"field": request.field} | overlay_data)
        return field_overlays, notes

    def _spec(self, field: str, split: str) -> FieldSpec:
        return self._reader.schema.for_split(split).spec(field)

    def _joints(
        self, chosen: Sequence[ChosenSample], field: str, unit: str | None
    ) -> tuple[dict[tuple[str, str], tuple[Array, str]], list[str], int]:
        """Return the joints of samples in a unit, with their moment.

        Also return why other samples have none, and how many found no time.
        """
        poses: dict[tuple[str, str], tuple[Array, str]] = {}
        unread: list[str] = []
        late = 0
        for file, file_samples in _by_file(chosen):
            seconds_left = self._seconds_left
            if seconds_left <= 0:
                late += len(file_samples)
                continue
            read: Any = ()
            why = self._reader.refusal(file, file_samples)
            if not why:
                read, why = _run_child(
                    self._child,
                    _JOINTS,
                    self._reader.joints(file, file_samples, field),
                    seconds_left,
                )
            if why:
                unread += [why] * len(file_samples)
            else:
                read_keys = {sample["key"] for sample in read}
                unread += [_NOT_IN_FILE for sample in file_samples if sample.key not in read_keys]
            own = self._spec(field, file_samples[0].split).unit
            to_unit = factor(own) / factor(unit) if own and unit else 1.0
            for sample in read or ():
                if sample["why"]:
                    unread.append(sample["why"])
                else:
                    poses[sample["key"], sample["split"]] = (
                        sample["joints"] * to_unit,
                        sample["moment"],
                    )
        return poses, unread, late


def _by_file(chosen: Iterable[ChosenSample]) -> Iterable[tuple[str, list[ChosenSample]]]:
    """Return (file, samples) for each file and split."""
    files: dict[tuple[str, str], list[ChosenSample]] = {}
    for sample in chosen:
        files.setdefault((sample.file, sample.split), []).append(sample)
    return [(file, file_samples) for (file, _), file_samples in files.items()]


def _child(sandbox: Sandbox | None) -> Child:
    return Child(
        # only a minimum: each call of `Child.run` passes the time that is left as its patience
        Limits(item_s=0.1, memory_b=_MEMORY),
        replace(PARSER, start_s=_START_SECONDS, sandbox=sandbox),
    )


def read_samples(
    child: Child, task: dict[str, Any], asked: Sequence[ChosenSample], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield the pictures of samples of one file; a sample without pictures has a reason.

    Args:
        child: the file may kill it.
        task: see `reading.draw_items`.
        asked: the samples.
        seconds: allowed time without a heartbeat.
    """
    drawn, why = _run_child(child, _DRAW, task, seconds)
    if why:
        yield from _without_pictures(asked, why)
        return
    yield from drawn
    drawn_keys = {sample["key"] for sample in drawn}
    yield from _without_pictures(
        [sample for sample in asked if sample.key not in drawn_keys], _NOT_IN_FILE
    )


def _run_child(
    child: Child, function: str, task: dict[str, Any], seconds: float = 0.0
) -> tuple[Any, str]:
    """Return the child's answer, and why there is none, or ""."""
    try:
        answer, death = child.run(function, task, patience=seconds)
    except (DatacheckError, OSError) as error:  # OSError: the system may refuse another process
        return None, f"it could not be read again: {error}"
    if death is None:
        return answer, ""
    how = death.how.strip().splitlines()[-1] if death.how.strip() else "the parser ended"
    return None, f"it could not be read again: {how[:300]}"


def _without_pictures(samples: Iterable[ChosenSample], why: str) -> Iterator[dict[str, Any]]:
    for sample in samples:
        yield {"key": sample.key, "split": sample.split, "fields": [], "left_out": [], "why": why}
