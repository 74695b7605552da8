"""Previews of a run: choose the worst samples of each finding, read them again and draw them.

For fields of joints, failing samples are laid over the mean of fit ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.model.finding import Finding, Severity
from datacheck.model.table import CHECKED, Table, Texts
from datacheck.preview.drawings import Array, NotDrawableError, mark_trained_ranges
from datacheck.preview.overlays import FailingPose, overlay
from datacheck.preview.pictures import POINTS, SAMPLE_BYTES
from datacheck.preview.sample_reader import (
    NOT_IN_FILE,
    ChosenSample,
    PreviewChild,
    PreviewTasks,
    without_pictures,
)
from datacheck.rules.base import pluralize
from datacheck.runtime import fsops
from datacheck.scan.run_documents import PREVIEWS, PREVIEWS_FORMAT, ranges
from datacheck.scan.scan_run import ScanRun
from datacheck.schema.grammar import factor
from datacheck.schema.model import FieldSpec, Schema

MAX_PER_FINDING = 12
MAX_SAMPLES = 60
# samples whose joints are read
MAX_FIT = 48
MAX_FAILING = 24
BYTES = 1_500_000
OVERLAY_BYTES = 100_000  # part of `BYTES` reserved for overlays of joints
# share of the scan's time, and a minimum in seconds; the page takes further time
_TIME_SHARE = 0.04
_SECONDS = 0.5


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


# ------------------------------------------------------------------------------------------ writing


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
        self._child = PreviewChild.of_data(data, roots)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="datacheck-drawer")
        self._thread.submit(self._child.wait_until_ready)

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
        # the sandbox of this child does not include a tokenizer: start another child then
        child = self._child if run.schema.tokenizer is None else None
        return self._thread.submit(write_previews, run, child=child).result


def write_previews(
    run: ScanRun, seconds: float | None = None, child: PreviewChild | None = None
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
    run: ScanRun, seconds: float | None = None, child: PreviewChild | None = None
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


class _PreviewSession:
    """Reads samples again, in one child and within one time limit."""

    def __init__(self, reader: PreviewTasks, seconds: float, child: PreviewChild | None) -> None:
        self._reader, self._seconds = reader, seconds
        self._child, self._end, self._dead = child or PreviewChild(reader.sandbox), 0.0, ""

    def close(self) -> None:
        self._child.close()

    def _start(self) -> str:
        """Start the time limit once the child has started; return why it has not, or ""."""
        if not self._end:
            self._dead = self._child.wait_until_ready()
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
            yield from without_pictures(chosen, why)
            return
        for file, file_samples in _by_file(chosen):
            seconds_left = self._seconds_left
            if seconds_left <= 0:
                yield from without_pictures(file_samples, _NO_TIME)
            elif refusal := self._reader.refusal(file, file_samples):
                yield from without_pictures(file_samples, refusal)
            else:
                task = self._reader.task(file, file_samples, POINTS, SAMPLE_BYTES)
                yield from self._child.draw(task, file_samples, seconds_left)

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
                task = self._reader.joints(file, file_samples, field)
                read, why = self._child.joints(task, seconds_left)
            if why:
                unread += [why] * len(file_samples)
            else:
                read_keys = {sample["key"] for sample in read}
                unread += [NOT_IN_FILE for sample in file_samples if sample.key not in read_keys]
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
