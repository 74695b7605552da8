"""The pictures of a run: the worst samples of its findings, read again in a child, within bounds of size and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from datacheck import fsops
from datacheck.child import PARSER, Child, Limits
from datacheck.errors import DatacheckError
from datacheck.finding import Finding
from datacheck.preview.timeline import with_ranges
from datacheck.rules.base import counted
from datacheck.scan.runner import ScanRun
from datacheck.scan.store import PREVIEWS, PREVIEWS_FORMAT, ranges
from datacheck.schema.model import Schema
from datacheck.sources.base import Item, file_templates
from datacheck.sources.listing import Listing
from datacheck.table import CHECKED, Table

OF_FINDING, IN_ALL = 12, 60
BYTES = 1_500_000
SAMPLE_BYTES = 25_000
POINTS = 1024  # of a cloud: sixty clouds of 2,048 points would fill the room
_SHARE, _SECONDS = 0.04, 0.5  # of a scan's time, and at least so many seconds: the page itself takes the rest
_START_SECONDS = 20.0
_MEMORY = 4 << 30
_DRAW, _READY = "datacheck.preview.reading:draw_items", "datacheck.preview.reading:ready"


@dataclass(eq=False)
class Chosen:
    """A sample that is to be drawn, and the fields that its findings are about."""

    key: str
    split: str
    file: str
    why: str = ""
    first: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reader:
    """What the child has to know to read samples.

    Args:
        schema, root, roots: as for a source.
        listing: the files as they were scanned; None where nobody has listed them.
    """

    schema: Schema
    root: Path
    roots: Mapping[str, Path]
    listing: Listing | None = None

    def task(self, file: str, asked: Sequence[Chosen], points: int, most: int) -> dict[str, Any]:
        """Return the task (see `reading.draw_items`) that draws samples of one file."""
        names = next((n for t in file_templates(self.schema) if (n := t.match(file)) is not None), {})
        entry = None if self.listing is None else self.listing.by_path.get(file)
        keys = tuple(dict.fromkeys(one.key for one in asked))
        item = Item(file, asked[0].split, names, keys, 0 if entry is None else entry.size)
        return {
            "schema": self.schema.as_dict(), "root": str(self.root), "points": points, "most": most,
            "roots": {name: str(path) for name, path in self.roots.items()},
            "items": [{"item": item.as_dict(), "first": {one.key: one.first for one in asked}}],
        }  # fmt: skip


class Drawer:
    """A child that starts while the scan runs, so that the pictures wait for no start of Python, and draws in a thread.

    Notes:
        To be used in a ``with``, which ends it however the scan does. One that finds nothing has started it in vain.
    """

    def __init__(self) -> None:
        self._child = _child()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="datacheck-drawer")
        self._thread.submit(self._child.run, _READY, {"items": []})

    def __enter__(self) -> Drawer:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()
        self._thread.shutdown(cancel_futures=True)
        self._child.close()

    def write(self, run: ScanRun) -> Callable[[], Path | None]:
        """Begin to write the previews.json of a run; return what waits for it, and returns or raises as that does."""
        return self._thread.submit(write_previews, run, child=self._child).result


def write_previews(run: ScanRun, seconds: float | None = None, child: Child | None = None) -> Path | None:
    """Write previews.json beside a run's result.json; return its path, None where nothing could be drawn.

    Args:
        run: a scan of files; those may have changed since, or be gone.
        seconds: for reading and drawing; None: 4 % of what the scan took, at least 0.5.
        child: to read in, that is ended then; None: a new one.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: another refusal.
    """
    made = previews_of(run, seconds, child)
    if not any(sample["fields"] for sample in made["samples"]):
        return None
    path = Path(run.report.folder) / PREVIEWS
    fsops.write_file(path, orjson.dumps(made), mode=0o666)
    return path


def previews_of(run: ScanRun, seconds: float | None = None, child: Child | None = None) -> dict[str, Any]:
    """Return what previews.json holds: samples, of each finding their places, and what was left out (see above)."""
    if seconds is None:
        seconds = max(_SECONDS, _SHARE * run.report.run["seconds"])
    chosen, places, said = choose(run.report.findings, run.table)
    reader = Reader(run.schema, run.listing.root, run.listing.roots, run.listing)
    samples = [{"key": one.key, "split": one.split, "fields": [], "left_out": [], "why": one.why} for one in chosen]
    at = {(one.key, one.split): number for number, one in enumerate(chosen)}
    kept = {run.table.keys[row]: some for row, some in ranges(run.report.findings).items()}
    room, late, full = BYTES - len(orjson.dumps([samples, places])), 0, 0
    for drawn in _drawn(reader, [one for one in chosen if not one.why], seconds, child):
        number = at.get((drawn["key"], drawn["split"]))
        if number is None:
            continue
        with_ranges(drawn["fields"], kept.get(drawn["key"]), run.schema.for_split(drawn["split"]))
        size = len(orjson.dumps(drawn))
        if drawn["fields"] and size > room:
            drawn, full = drawn | {"fields": [], "why": "its picture found no room"}, full + 1
        else:
            room -= size
            late += drawn["why"] == _LATE
        samples[number] = drawn
    if late:
        said.append(f"{counted(late, 'sample')} not drawn: reading again may take {seconds:.2g} s in all")
    if full:
        said.append(f"{counted(full, 'sample')} not drawn: pictures may take {BYTES / 1e6:g} MB in all")
    return {"format": PREVIEWS_FORMAT, "samples": samples, "findings": places, "left_out": said}


def choose(findings: Sequence[Finding], table: Table) -> tuple[list[Chosen], dict[str, list[int]], list[str]]:
    """Return the samples to draw: the worst of each finding, then the second of each, ...

    Returns:
        The samples, of each finding (by id) the places of its own among them, and what is to be said.
    """
    chosen: list[Chosen] = []
    at: dict[int, int] = {}
    places: dict[str, list[int]] = {}
    wanted = [worst_of(finding) for finding in findings]
    for rank in range(OF_FINDING):
        for finding, rows in zip(findings, wanted, strict=True):
            if rank >= len(rows):
                continue
            row = rows[rank]
            if row not in at and len(chosen) == IN_ALL:
                continue
            number = at.setdefault(row, len(chosen))
            if number == len(chosen):
                chosen.append(_chosen(table, row))
            mine = places.setdefault(finding.id, [])
            if number not in mine:
                mine.append(number)
            chosen[number].first += [name for name in finding.fields if name not in chosen[number].first]
    missing = len({row for rows in wanted for row in rows} - at.keys())
    said = [f"{counted(missing, 'sample')} not drawn: at most {IN_ALL} are"] if missing else []
    return chosen, places, said


def worst_of(finding: Finding) -> list[int]:
    """Return the rows of a finding's worst samples, then some more of it evenly."""
    rows, many = finding.rows, min(OF_FINDING, len(finding.rows))
    spread = [int(rows[place * len(rows) // many]) for place in range(many)]
    return list(dict.fromkeys([*finding.worst, *spread]))[:OF_FINDING]


def _chosen(table: Table, row: int) -> Chosen:
    why = "" if table.status[row] == CHECKED else table.reasons[row] or "it could not be read"
    return Chosen(table.keys[row], table.splits[row], table.files[row], why)


# ------------------------------------------------------------------------------------------------- reading

_LATE = "there was no time left to read it again"


def _drawn(
    reader: Reader, chosen: Sequence[Chosen], seconds: float, child: Child | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what the child says of samples; of one that it does not live to speak of, why."""
    if not chosen:
        return
    files: dict[tuple[str, str], list[Chosen]] = {}
    for one in chosen:
        files.setdefault((one.file, one.split), []).append(one)
    with closing(child or _child()) as child:
        why = _answer(child, _READY, {"items": []})[1]
        if why:
            yield from _without(chosen, why)
            return
        end = time.monotonic() + seconds
        for (file, _), asked in files.items():
            left = end - time.monotonic()
            if left <= 0:
                yield from _without(asked, _LATE)
            else:
                yield from read_samples(child, reader.task(file, asked, POINTS, SAMPLE_BYTES), asked, left)


def _child() -> Child:
    return Child(Limits(item_s=0.1, memory_b=_MEMORY), replace(PARSER, start_s=_START_SECONDS))


def read_samples(
    child: Child, task: dict[str, Any], asked: Sequence[Chosen], seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield the pictures of samples of one file; of each that gives none a reason.

    Args:
        child: may die of the file.
        task: of `reading.draw_items`.
        asked: the samples.
        seconds: without a sign of life that reading may take.
    """
    drawn, why = _answer(child, _DRAW, task, seconds)
    if why:
        yield from _without(asked, why)
        return
    yield from drawn
    told = {one["key"] for one in drawn}
    yield from _without([one for one in asked if one.key not in told], "it is no longer in its file")


def _answer(child: Child, function: str, task: dict[str, Any], seconds: float = 0.0) -> tuple[Any, str]:
    """Return what the child answers, and why it gives no answer, else ""."""
    try:
        answer, death = child.run(function, task, patience=seconds)
    except (DatacheckError, OSError) as error:  # of the system, too: there may be no room for another process
        return None, f"it could not be read again: {error}"
    if death is None:
        return answer, ""
    how = death.how.strip().splitlines()[-1] if death.how.strip() else "the parser ended"
    return None, f"it could not be read again: {how[:300]}"


def _without(asked: Iterable[Chosen], why: str) -> Iterator[dict[str, Any]]:
    for one in asked:
        yield {"key": one.key, "split": one.split, "fields": [], "left_out": [], "why": why}
