"""Export the valid episodes of a LeRobot dataset (v2.0, v2.1, v3.0) as a LeRobot v3.0 dataset.

A child writes rows and documents (`lerobot_child`); this process copies the videos, which nothing
decodes. The source is never written to.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.errors import DatacheckError, OutOfSpaceError, StorageError, UsageError
from datacheck.export.verdict import ScannedSamples
from datacheck.formats.limits import path_below
from datacheck.runtime import folders, fsops, new_folder
from datacheck.runtime.beneath import File, stamp_of
from datacheck.sources.lerobot import INFO, folder_of
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Roots, sandbox_of
from datacheck.workers.parallel import Limits, ordered_map

_WRITE = "datacheck.export.lerobot_child:write"
_PATIENCE_S = 600.0  # without a heartbeat, such as while a column is sorted
_KEY = re.compile(r"(.+):\d{12}")
_WRITTEN = re.compile(
    r"meta/(info\.json|stats\.json|tasks\.parquet|modality\.json|subtasks\.parquet)"
    r"|(data|meta/episodes)/chunk-\d{3,}/file-\d{3,}\.parquet"
)
_VIDEO = re.compile(r"videos/[^/]+/chunk-\d{3,}/file-\d{3,}\.[0-9A-Za-z]{1,8}")


@dataclass(frozen=True)
class ExportedDataset:
    """The result of an export.

    Args:
        path: the folder.
        episodes: exported episodes.
        of: episodes of the source.
        rows: exported rows.
        files: number of files.
        nbytes: size of all files.
        left_out: number of episodes that are left out, by reason.
        notes: sentences about what else the export lacks.
    """

    path: Path
    episodes: int
    of: int
    rows: int
    files: int
    nbytes: int
    left_out: Mapping[str, int]
    notes: Sequence[str]


def check_target(to: Path, data: Path) -> None:
    """Raise unless the export may be written to a folder; call it before a scan.

    Raises:
        UsageError: something is there already, or it lies in the data.
    """
    new_folder.check_new(to)
    if Path(os.path.realpath(to)).is_relative_to(os.path.realpath(data)):
        msg = f"{to}: lies in the data. --to names a folder beside them."
        raise UsageError(msg)


def export(verdict: ScannedSamples, to: Path) -> ExportedDataset:
    """Write the valid episodes of a scanned LeRobot dataset as a dataset of version 3.0.

    Args:
        verdict: the scan's, with an episode as a sample.
        to: the new folder.

    Raises:
        UsageError: `to` exists or lies in the data; the data hold no LeRobot dataset, or several;
            no valid episode is left; the dataset contradicts itself.
        StorageError: a file has changed since the scan, or the operating system refuses.
        OutOfSpaceError: the disk is full. Nothing is left under the name `to`.

    Notes:
        Equal data and verdicts give equal bytes with one version of pyarrow. Values, time stamps
        and pictures of the rows are those of the source; numbers of rows, episodes and tasks count
        from 0. The folder appears whole or not at all.
    """
    listing = verdict.listing
    check_target(to, listing.root)
    folder = _folder(listing)
    valid = [key for key, is_valid in verdict.valid.items() if is_valid and _is_in(key, folder)]
    total = sum(_is_in(key, folder) for key in verdict.valid)
    if not valid:
        raise _nothing_left(listing.root, total)
    stamps = {
        entry.path: list(entry[1:5])
        for entry in listing.entries
        if entry.path.startswith((f"{folder}data/", f"{folder}meta/"))
    }
    with new_folder.staging(to) as staged:
        answer = _write(listing, folder, valid, stamps, staged)
        if answer["refused"]:
            msg = f"{_shown(listing, folder)}: {answer['refused']}. Nothing is exported."
            raise UsageError(msg)
        if not answer["episodes"]:
            raise _nothing_left(listing.root, total)
        _check_written(staged)
        _copy_videos(listing, folder, answer["videos"], staged)
        files, nbytes = new_folder.publish(staged, to)
    counts = {"not valid": total - len(valid), "without rows": len(valid) - answer["episodes"]}
    return ExportedDataset(
        to,
        answer["episodes"],
        total,
        answer["rows"],
        files,
        nbytes,
        {why: count for why, count in counts.items() if count},
        answer["notes"],
    )


def _nothing_left(root: Path, total: int) -> UsageError:
    why = (
        f"none of the {total:,} episodes is valid. See why: datacheck scan"
        if total
        else "the scan could judge no episode: its schema has other samples, or the files cannot be "
        "read. See why: datacheck scan"
    )
    return UsageError(f"{root}: {why}.")


def _folder(listing: Listing) -> str:
    """Return the folder of the only LeRobot dataset, which ends in "/" or is "".

    Raises:
        UsageError: there is none, or several.
    """
    found = [
        entry.path.removesuffix(INFO)
        for entry in listing.entries
        if f"/{entry.path}".endswith(f"/{INFO}")
    ]
    if len(found) == 1:
        return found[0]
    why = (
        f"holds {len(found):,} LeRobot datasets, such as {found[0] or '.'} and {found[1]}. Scan one "
        f"of them and export it"
        if found
        else f"holds no LeRobot dataset: there is no {INFO}"
    )
    msg = f"{listing.root}: {why}."
    raise UsageError(msg)


def _is_in(key: str, folder: str) -> bool:
    """Return whether a key is that of an episode of the dataset."""
    match = _KEY.fullmatch(key)
    return match is not None and folder_of(match[1])[0] == folder


def _shown(listing: Listing, folder: str) -> Path:
    return listing.root / folder


def _write(
    listing: Listing,
    folder: str,
    valid: Sequence[str],
    stamps: Mapping[str, Sequence[int]],
    staged: Path,
) -> dict[str, Any]:
    """Write rows and documents, in a child; return its answer.

    Raises:
        UsageError: the child ended over the data.
        StorageError: this machine ended it, or another process did.
        DatacheckError: it failed unexpectedly.
    """
    root = listing.root.absolute()
    sizes = [entry.size for entry in listing.entries if entry.path in stamps]
    task = {
        "root": str(root),
        "folder": folder,
        "stamps": stamps,
        "valid": valid,
        "to": str(staged.absolute()),
        "items": [{"path": folder + INFO, "nbytes": sum(sizes)}],
    }
    outcomes = ordered_map(
        _WRITE,
        [task],
        limits=Limits.of_file(_PATIENCE_S, max(sizes)),
        sandbox=sandbox_of(root, {}, write=[str(staged.absolute())]),
    )
    with closing(outcomes):  # type: ignore[type-var]
        for outcome in outcomes:
            if outcome.payloads:
                answer: dict[str, Any] = outcome.payloads[0]
                return answer
            death = outcome.deaths[0]
    how = death.how.strip().splitlines()[-1]
    msg = f"{_shown(listing, folder)}: cannot be exported ({how}). Nothing is written."
    if death.crash:
        raise DatacheckError(msg)
    raise StorageError(msg) if death.machine or death.kind == "killed" else UsageError(msg)


def _check_written(staged: Path) -> None:
    """Remove links that the child has left, which would lead the copies elsewhere.

    Raises:
        StorageError: it has written other files than those of an export.
    """
    with fsops.guarded(staged):
        folders.drop_links(staged)
    for place, _, names in os.walk(staged):
        for name in names:
            path = Path(place, name).relative_to(staged).as_posix()
            if _WRITTEN.fullmatch(path) is None:
                msg = f"{path}: no export has such a file. This is a fault of datacheck."
                raise StorageError(msg)


def _copy_videos(
    listing: Listing, folder: str, videos: Iterable[Sequence[str]], staged: Path
) -> None:
    """Copy the videos that the export needs.

    Raises:
        UsageError: a video is missing, or is no regular file.
        StorageError: a video has changed since the scan, or the operating system refuses.
    """
    roots = Roots(listing.root, {})
    roots.expected.update((entry.path, entry[1:5]) for entry in listing.entries)
    pairs = list(videos)
    _check_space(roots, folder, pairs, staged)
    for source, target in pairs:
        if path_below(source) is None or _VIDEO.fullmatch(target) is None:
            msg = f"{source}: is no path of a video. Nothing is exported."
            raise UsageError(msg)
        video = roots.file(folder + source)
        _check_unchanged(roots, folder + source, video)
        if not video.is_file():
            msg = f"{video}: this video is missing or no regular file. Nothing is exported."
            raise UsageError(msg)
        goal = staged / target
        fsops.make_directory(goal.parent, sync=False)
        with fsops.guarded(str(video)):
            fsops.refuse_holes(video)
            opened = video.open("rb", buffering=0)
        with opened:
            before = stamp_of(os.fstat(opened.fileno()))
            fsops.copy_file(opened.fileno(), goal)
            if stamp_of(os.fstat(opened.fileno())) != before:
                msg = f"{video}: changed while it was copied. Nothing is exported."
                raise StorageError(msg)


def _check_unchanged(roots: Roots, path: str, video: File) -> None:
    try:
        os.close(roots.descriptor(path))
    except OSError as error:
        if error.errno == errno.ESTALE:
            msg = f"{video}: has changed since the scan. Scan again. Nothing is exported."
            raise StorageError(msg) from error


def _check_space(roots: Roots, folder: str, videos: Sequence[Sequence[str]], staged: Path) -> None:
    """Refuse videos that exceed the free space, unless the file system may share their blocks.

    Raises:
        OutOfSpaceError: they have more bytes than are free, and lie on another file system.
    """
    with fsops.guarded(staged):
        disk, device = os.statvfs(staged), staged.stat().st_dev
    needed = 0
    for source, _ in videos:
        video = roots.file(folder + source)
        if video.is_file():
            status = video.stat()
            needed += status.st_size if status.st_dev != device else 0
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed > free:
        msg = (
            f"{staged.parent}: the videos need {needed:,} bytes, {free:,} are free. Free some space "
            f"or choose another folder, then run the same command again."
        )
        raise OutOfSpaceError(msg)
