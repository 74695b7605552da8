"""Safe repairs that are written into a copy of the dataset: `fix`.

The scanned dataset itself is never changed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from datacheck.errors import (
    FormatError,
    MissingDependencyError,
    OutOfSpaceError,
    StorageError,
    UsageError,
)
from datacheck.model.finding import Finding, Progress
from datacheck.plugins import discover, resolve
from datacheck.runtime import folders, fsops
from datacheck.runtime.beneath import File
from datacheck.scan import Request, ScanRun, run_scan
from datacheck.schema.model import Schema
from datacheck.sources.planning import place_text
from datacheck.sources.roots import Roots, root_of, sandbox_of
from datacheck.workers.parallel import Limits, ordered_map
from datacheck.workers.wire import Json, answers, text

# a repair reports no progress until it is done
_MEND = "datacheck.fix:mend"
_PATIENCE_S = 600.0
_PIECE_BYTES = 1 << 20
REJECTED = ".rejected"  # suffix of the file with the lines left out of a repaired file

__all__ = ["Asked", "Edit", "Plan", "Repair", "Repaired", "fix", "repairs"]


@dataclass(frozen=True)
class Edit:
    """The edit of one file; it runs in a child process, because the parsed file may be malicious.

    Args:
        function: ``module:function`` with the signature ``(said, source, goal)``: JSON arguments,
            the original file, and the path of the repaired one.
        said: JSON arguments.
    """

    function: str
    said: Json


@dataclass(frozen=True, eq=False)
class Asked:
    """The input of a repair's plan.

    Args:
        run: the finished scan.
        schema: the schema in force.
        findings: those of the rule.
        scale: the factor that the user gives; None for the one that the finding names.
    """

    run: ScanRun
    schema: Schema
    findings: tuple[Finding, ...]
    scale: float | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """The edits that a repair would make.

    Args:
        edits: the edit of each file (path relative to the data folder).
        unclear: why some of the findings are left to the user, one sentence each.
        keys: the samples that are repaired; None for all samples in the files.
    """

    edits: Mapping[str, Edit]
    unclear: tuple[str, ...] = ()
    keys: frozenset[str] | None = None


@dataclass(frozen=True, eq=False)
class Repair:
    """The repair of one rule's findings.

    Args:
        code: of the rule.
        what: its effect, for the help.
        plan: returns the edits for the findings.
        renumbers: samples get other keys, as lines move up where others are removed.
    """

    code: str
    what: str
    plan: Callable[[Asked], Plan]
    renumbers: bool = False


@dataclass(frozen=True)
class Repaired:
    """The result of a repair.

    Args:
        folder: the copy.
        changed: files that differ from the data, by relative path.
        copied: count of unchanged files.
        left: unchanged files that the repair would not have corrected; they count as copied.
        unclear: why some of the findings are left to the user, one sentence each.
        dropped: paths missing from the copy, and why: names that the listing leaves out, and in
            Zarr folders links, which no reader follows, devices, sockets and pipes.
    """

    folder: Path
    changed: tuple[str, ...] = ()
    copied: int = field(default=0)
    left: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()


@cache
def repairs() -> dict[str, Repair]:
    """Return the repairs by code."""
    return {repair.code: repair for repair in discover("datacheck.fix", Repair)}


def fix(
    run: ScanRun,
    schema: Schema,
    code: str,
    target: Path,
    *,
    scale: float | None = None,
    link: bool = False,
    paths: Sequence[str] = (),
    progress: Progress | None = None,
) -> Repaired:
    """Write a copy of a scanned dataset in which one rule's findings are repaired.

    Args:
        run: the finished scan.
        schema: the schema that it used.
        code: the rule.
        target: folder of the copy; must not exist.
        scale: factor for units, in place of the one that the finding names.
        link: hard links in place of copies of unchanged files (same file system only).
        paths: as of the scan: where the schema's own checks are found.
        progress: called after each task of the scan of the copy.

    Raises:
        UsageError: the rule has no safe repair, found nothing, would not correct anything, or the
            target exists.
        OutOfSpaceError: the copy does not fit on the disk.
        StorageError: another disk error; nothing remains under the target's name.

    Notes:
        The copy is scanned before it gets its name. A repaired file is replaced by its original if
        the rule still fails in it, or if it makes a valid sample invalid.
    """
    repair = _repair_of(code)
    findings = tuple(f for f in run.report.findings if f.code == code)
    if not findings:
        msg = f"{code} found nothing in {run.report.dataset['root']}: there is nothing to repair."
        raise UsageError(msg)
    _check_target(target, run.listing.root)
    plan = repair.plan(Asked(run, schema, findings, scale))
    edits = plan.edits
    if outside := sorted(path for path in edits if root_of(run.listing.roots, path)[0]):
        msg = f"{outside[0]}: lies below a --root; only files of the data folder are repaired."
        raise UsageError(msg)
    staged = target.absolute().with_name(f".{target.name}.{os.urandom(6).hex()}.part")
    # The child writes here: it must not write into a folder with hard links to the data.
    mended = staged.with_suffix(".mended")
    results = staged.with_suffix(".run")
    try:
        staged.mkdir(parents=True)
        mended.mkdir()
        results.mkdir()
        if not link:
            _check_space(run, staged, edits)
        copied, dropped = _copy(run, staged, edits, link=link)
        failed = _repair_files(run, mended, edits)
        failed |= _collect_repaired(
            mended, staged, {path: edit for path, edit in edits.items() if path not in failed}
        )
        if len(failed) == len(edits):
            raise UsageError(failed[min(failed)])
        copied += _copy(run, staged, {}, link=link, only=failed)[0]
        plan = replace(
            plan,
            edits={path: edit for path, edit in edits.items() if path not in failed},
            unclear=(*plan.unclear, *(why for _, why in sorted(failed.items()))),
        )
        edits = plan.edits
        still_failing = _still_failing(
            run, repair, plan, Request(staged, run.listing.roots, paths=paths), results, progress
        )
        if still_failing and len(still_failing) == len(edits):
            raise _no_effect(code, still_failing)
        copied += _copy(run, staged, {}, link=link, only=still_failing)[0]
        fsops.rename(staged, target)
    except OSError as error:
        raise fsops.as_storage_error(error, target) from error
    finally:
        for folder in (staged, mended, results):
            folders.remove_tree(folder)
    absent = tuple(sorted((_unlisted(run, target) | dict(dropped)).items()))
    return Repaired(
        target,
        tuple(sorted(set(edits) - still_failing)),
        copied,
        tuple(sorted(still_failing)),
        plan.unclear,
        absent,
    )


def _unlisted(run: ScanRun, target: Path) -> dict[str, str]:
    """Return the paths that the listing leaves out and the copy lacks, and why.

    A Zarr folder is copied with all its files, also those that the listing leaves out. Elsewhere a
    file of that name in the copy is another one: names that are no UTF-8 are escaped, and a repair
    may write a file.
    """
    find = run.listing.entries.find
    return {
        path: why
        for path, why in run.listing.skipped
        if not root_of(run.listing.roots, path)[0]
        and not (
            any(find(str(folder)) >= 0 for folder in PurePosixPath(path).parents)
            and os.path.lexists(target / path)
        )
    }


def _still_failing(
    run: ScanRun,
    repair: Repair,
    plan: Plan,
    request: Request,
    results: Path,
    progress: Progress | None,
) -> set[str]:
    """Return the files whose repair is ineffective, after removing them from the copy.

    A repair is ineffective where the rule still fails in the file or a valid sample becomes
    invalid.

    Args:
        run, repair, plan: of the dataset.
        request: the scan of the copy.
        results: an empty folder for its results and its unfinished parts.
        progress: see `fix`.
    """
    staged = request.data
    rescan = _scan_copy(run, replace(request, output=results / "run"), progress)
    rows_failing = [
        row for f in rescan.report.findings if f.code == repair.code for row in f.rows.tolist()
    ]
    failing = {
        rescan.table.files[row]
        for row in rows_failing
        if plan.keys is None or rescan.table.keys[row] in plan.keys
    }
    edited = {place_text(path): path for path in plan.edits} if rows_failing else {}
    # The row of a list's line without a file has that missing file's path; its note names the list.
    for note in rescan.work.notes if rows_failing else ():
        if note.code == repair.code and note.missing and note.about.get("list") in edited:
            failing.add(edited[note.about["list"]])
    if not repair.renumbers:
        fit = {key for key, valid in zip(run.table.keys, run.valid.tolist(), strict=True) if valid}
        if not fit <= set(rescan.table.keys):
            failing |= set(plan.edits)
        rows = zip(rescan.table.keys, rescan.table.files, rescan.valid.tolist(), strict=True)
        failing |= {file for key, file, valid in rows if key in fit and not valid}
    ineffective = failing & set(plan.edits)
    for path in ineffective:
        for name in (path, path + REJECTED):
            if (name == path or name not in run.listing.by_path) and os.path.lexists(staged / name):
                (staged / name).unlink()
    return ineffective


def _scan_copy(run: ScanRun, request: Request, progress: Progress | None) -> ScanRun:
    try:
        return run_scan(
            run.schema, replace(request, level=run.report.run.get("level", "numeric")), progress
        )
    except UsageError as error:
        msg = f"The copy cannot be scanned, so nothing is written: {error}".replace(
            str(request.data), "the copy"
        )
        raise UsageError(msg) from error
    except KeyboardInterrupt as stop:
        stop.__notes__ = []  # no command goes on with the finished parts of this scan
        raise


def _no_effect(code: str, paths: Iterable[str]) -> UsageError:
    files = sorted(paths)
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return UsageError(
        f"{files[0]}{more}: {code} still fails once repaired, or samples that were fit no longer "
        f"are. "
        "Nothing is written."
    )


def _repair_of(code: str) -> Repair:
    if code not in repairs():
        descriptions = "; ".join(f"{r.code}: {r.what}" for r in repairs().values())
        msg = (
            f"{code} has no repair that is safe; datacheck explain {code} says what to do. "
            f"Repairs: {descriptions}."
        )
        raise UsageError(msg)
    return repairs()[code]


def _check_target(target: Path, root: Path) -> None:
    if target.exists() or target.is_symlink():
        msg = f"{target}: exists. --to names a new folder; nothing is ever repaired in place."
        raise UsageError(msg)
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(root)):
        msg = f"{target}: lies in the data. --to names a folder beside them."
        raise UsageError(msg)


def _copy(
    run: ScanRun,
    staged: Path,
    edits: Mapping[str, Edit],
    *,
    link: bool,
    only: Container[str] | None = None,
) -> tuple[int, list[tuple[str, str]]]:
    """Write all files of the listing, or these, below `staged`.

    Returns:
        The count of files, and the dropped paths with reasons.
    """
    roots = Roots(run.listing.root, run.listing.roots)
    copied = 0
    dropped = list[tuple[str, str]]()
    roots.expected.update((entry.path, entry[1:5]) for entry in run.listing.entries)
    stores: set[str] = set()  # paths are sorted, so a store comes before its members
    for entry in run.listing.entries:
        if root_of(run.listing.roots, entry.path)[0]:
            continue  # below an extra root; only the data folder is copied
        if entry.path in edits or (only is not None and entry.path not in only):
            continue
        source = roots.file(entry.path)
        goal = staged / entry.path
        if goal.exists() or (stores and _is_below(entry.path, stores)):
            continue  # in a Zarr store, which was copied as a whole, or behind a link in one
        goal.parent.mkdir(parents=True, exist_ok=True)
        copy = _link if link else _copied
        if source.is_dir():
            stores.add(entry.path)
            dropped += _copy_folder(source.without_links(), entry.path, goal, copy, edits)
        else:
            _copy_file(source, goal, copy)
        copied += 1
    return copied, dropped


def _is_below(path: str, folders: Container[str]) -> bool:
    return any(path[:place] in folders for place, letter in enumerate(path) if letter == "/")


def _repair_files(run: ScanRun, mended: Path, edits: Mapping[str, Edit]) -> dict[str, str]:
    """Write the repaired files below `mended`, in a child; return reasons of failures by path."""
    root = run.listing.root.absolute()
    taken = {*edits, *(str(folder) for path in edits for folder in PurePosixPath(path).parents)}
    failed = {
        path: f"{path}: rejected lines would go to {path + REJECTED}, which is in the data. Move or "
        f"rename that."
        for path in edits
        if path + REJECTED in taken
    }
    entries = [run.listing.by_path[path] for path in sorted(edits) if path not in failed]
    for entry in entries:
        (mended / entry.path).parent.mkdir(parents=True, exist_ok=True)
    tasks = (
        {
            "root": str(root),
            "stamp": list(entry[1:5]),
            "goal": str(mended / entry.path),
            **vars(edits[entry.path]),
            "items": [{"path": entry.path, "nbytes": entry.size}],
        }
        for entry in entries
    )
    roots = Roots(root, {})
    # Bytes on disk: a sparse file holds less than its size.
    stored = max((512 * roots.file(path).stat().st_blocks for path in edits), default=0)
    box = sandbox_of(root, {}, write=[str(mended)])
    outcomes = ordered_map(_MEND, tasks, limits=Limits.of_file(_PATIENCE_S, stored), sandbox=box)
    with closing(outcomes):  # type: ignore[type-var]
        for outcome in outcomes:
            (item,) = outcome.task["items"]
            path = item["path"]
            reasons = [
                _beyond_repair(path, death.how.strip().splitlines()[-1]) for death in outcome.deaths
            ]
            failed.update((path, why) for why in [*reasons, *outcome.payloads] if why)
    return failed


def _collect_repaired(mended: Path, staged: Path, edits: Mapping[str, Edit]) -> dict[str, str]:
    """Move repaired files into the copy, and no other files that the child wrote.

    Returns:
        Reasons why some are not moved, by path: a file with the name of their rejected lines
            exists.

    Raises:
        StorageError: a repaired file is missing.
    """
    folders.drop_links(mended)
    failed: dict[str, str] = {}
    for path in edits:
        if not (mended / path).is_file():
            msg = (
                f"{path}: the repaired file was not written. This is a fault of datacheck; "
                f"nothing is changed."
            )
            raise StorageError(msg)
        (staged / path).parent.mkdir(parents=True, exist_ok=True)
        # Not `Path.is_file`, which raises where a name is too long.
        repaired = [name for name in (path, path + REJECTED) if os.path.isfile(mended / name)]  # noqa: PTH113
        if existing := [name for name in repaired if (staged / name).exists()]:
            failed[path] = (
                f"{existing[0]}: is in the data already, from an earlier repair. Move or rename the "
                f"file."
            )
            continue
        for name in repaired:
            fsops.rename(mended / name, staged / name)
    return failed


def _beyond_repair(path: str, why: str) -> str:
    return (
        f"{path}: cannot be repaired ({why}). Correct the program that writes it, or leave it out."
    )


@answers(text, raises=(StorageError, MissingDependencyError), of_items=True)
def mend(task: dict[str, Any], beat: Callable[[int], None]) -> str:
    """Write one repaired file (see `parallel.run_task`).

    Returns:
        Why it cannot be repaired, else "".
    """
    beat(0)
    (item,) = task["items"]
    roots = Roots(task["root"], {})
    roots.expected[item["path"]] = tuple(task["stamp"])
    source = roots.file(item["path"])
    try:
        with fsops.guarded(str(source)):
            fsops.refuse_holes(source)
            resolve(task["function"])(task["said"], source, Path(task["goal"]))
            os.close(source.descriptor())  # raises if the file changed since the scan
    except FormatError as error:
        return _beyond_repair(item["path"], str(error))
    except UsageError as error:
        return str(error)
    return ""


def _copied(source: File, goal: Path) -> None:
    """Copy a file and its times, but not its mode and attributes: they may include a setuid bit."""
    fsops.refuse_holes(source)
    with source.open("rb", buffering=0) as stored, goal.open("xb", buffering=0) as copy:
        _copy_data(stored.fileno(), copy.fileno())
    status = source.stat()
    os.utime(goal, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_data(source: int, goal: int) -> None:
    """Copy the data of an open file into an empty one; holes stay holes."""
    size = os.fstat(source).st_size
    stop = 0
    while stop < size:
        try:
            start = os.lseek(source, stop, os.SEEK_DATA)
            stop = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # a hole up to the end
            if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:
                raise
            start, stop = stop, size  # a file system that does not tell holes
        while start < stop and (piece := os.pread(source, min(_PIECE_BYTES, stop - start), start)):
            start += os.pwrite(goal, piece, start)
    os.ftruncate(goal, size)


def _check_space(run: ScanRun, staged: Path, edits: Container[str]) -> None:
    """Refuse a copy that exceeds the free space, before anything is written.

    Raises:
        OutOfSpaceError: the unchanged files have more bytes on disk than are free for the copy.
    """
    disk = os.statvfs(staged)
    free = disk.f_bavail * disk.f_frsize
    if not disk.f_blocks or run.listing.entries.sizes.sum() <= free:  # some servers report no size
        return
    roots = Roots(run.listing.root, run.listing.roots)
    stores: set[str] = set()
    needed = 0
    for entry in run.listing.entries:
        if root_of(run.listing.roots, entry.path)[0] or entry.path in edits:
            continue
        if stores and _is_below(entry.path, stores):
            continue
        source = roots.file(entry.path)
        if source.is_dir():
            stores.add(entry.path)
            needed += entry.size
        else:
            with fsops.guarded(str(source)):
                needed += min(entry.size, 512 * source.stat().st_blocks)  # without holes
    if needed > free:
        msg = (
            f"{staged.parent}: the copy needs {needed:,} bytes or more, {free:,} are free. Free some "
            f"space, choose another folder or use --link, then run the same command again."
        )
        raise OutOfSpaceError(msg)


def _link(source: File, goal: Path) -> None:
    """Make a hard link to an open file."""
    with folders.open_folder(goal.parent) as folder:
        # With a dir_fd Python calls linkat and follows /proc/self/fd to the file.
        os.link(source, goal.name, dst_dir_fd=folder)


def _copy_file(source: File, goal: Path, copy: Callable[[File, Path], object]) -> None:
    """Copy or link a file.

    Raises:
        StorageError: it cannot be opened.
    """
    with fsops.guarded(str(source)):
        os.close(source.descriptor())
    copy(source, goal)


def _copy_folder(
    source: File, path: str, goal: Path, copy: Callable[[File, Path], object], edits: Container[str]
) -> Iterator[tuple[str, str]]:
    """Copy or link the files of a folder (a Zarr store) except those that are repaired.

    Yields:
        The paths left out, and why.

    Raises:
        StorageError: a file cannot be opened.
    """
    goal.mkdir()
    for name in source.names():
        inner = f"{path}/{name}"
        if inner in edits:
            continue
        try:
            os.close((source / name).descriptor())
        except OSError as error:
            if error.errno not in _NO_PART:
                raise fsops.as_storage_error(error, str(source / name)) from error
            yield os.fsencode(inner).decode("utf-8", "backslashreplace"), _NO_PART[error.errno]
            continue
        if (source / name).is_dir():
            yield from _copy_folder(source / name, inner, goal / name, copy, edits)
        else:
            _copy_file(source / name, goal / name, copy)


_NO_PART = {
    errno.EINVAL: "not a regular file (a device, a socket or a pipe)",
    errno.ELOOP: "a link in a Zarr folder, which no reader follows",
}
