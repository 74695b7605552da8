"""List the files of a dataset: walk the folders, merge each Zarr folder into one entry, digest."""

from __future__ import annotations

import math
import os
import re
import stat
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from datacheck.errors import FormatError, UsageError, check_name
from datacheck.formats.base import format_of, store_markers
from datacheck.runtime.beneath import ConfinedFolder, clamp_stamp, stamp_of
from datacheck.runtime.documents import parse_json
from datacheck.runtime.hashing import digest_bytes, digest_file, digest_value
from datacheck.sources.roots import (
    MOST_ROOTS,
    NOT_WHOLE,
    ByPath,
    Entries,
    Entry,
    Roots,
    locate,
    real_root,
)

DEPTH = 64  # nesting limit of folders
CHUNK = re.compile(r"(c|\d+)(\.\d+)*")  # names of Zarr chunks
_DOCUMENT = "zarr.json"
_DOCUMENT_BYTES = 4 << 20
# Parsing a document of 4 MiB takes up to 0.5 s: hard links to one are parsed once.
_CACHED_FROM_BYTES = 16 << 10
_MOST_CACHED = 4096
_groups: dict[tuple[int, ...], bool] = {}  # `_is_group` of large documents by device and stamp
# Files of a Zarr folder that are neither markers nor chunks.
_PARTS = frozenset({".zattrs", ".zmetadata"})


def is_part(name: str, *, chunks: bool) -> bool:
    """Return whether a file name belongs to a Zarr folder, not to an unrelated file in it.

    Args:
        name: name of the file.
        chunks: result of `has_chunks` for the file's folder.
    """
    return (
        name in store_markers() or name in _PARTS or (chunks and CHUNK.fullmatch(name) is not None)
    )


def has_chunks(opened: int, of_chunks: bool = False) -> bool:  # noqa: FBT001, FBT002
    """Return whether numbered files in a folder of a Zarr store are chunks (not in a group).

    Args:
        opened: descriptor of the folder.
        of_chunks: the folder has a chunk name and lies in an array or in a folder of chunks.

    Notes:
        A damaged or oversized document may belong to an array: reading the Zarr folder reports it.
    """
    if _is_file(".zarray", opened):
        return True
    if _is_file(".zgroup", opened):
        return False
    return not _is_group(opened) if _is_file(_DOCUMENT, opened) else of_chunks


def _is_file(name: str, opened: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_group(opened: int) -> bool:
    try:
        document = os.open(
            _DOCUMENT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened
        )
        with os.fdopen(document, "rb") as file:
            status = os.fstat(document)
            if status.st_size < _CACHED_FROM_BYTES:
                return _names_group(file.read(_DOCUMENT_BYTES))
            identity = status.st_dev, *stamp_of(status)
            if identity not in _groups:
                if len(_groups) >= _MOST_CACHED:
                    _groups.clear()
                _groups[identity] = _names_group(file.read(_DOCUMENT_BYTES))
            return _groups[identity]
    except OSError:
        return False


def _names_group(document: bytes) -> bool:
    try:
        metadata = parse_json(document)
    except ValueError:
        return False
    return isinstance(metadata, dict) and metadata.get("node_type") == "group"


def reason(error: OSError) -> str:
    """Return why the system refused an operation, as the end of a sentence."""
    # Without `strerror` the text is the exception's own, and may name a path.
    return error.strerror.lower() if error.strerror else str(error)


def store_entry(
    path: str, folder: str, real: str, seen_ns: int, beat: Callable[[], object] | None = None
) -> Entry:
    """Return the listing entry of a Zarr folder; its size excludes unrelated files in it.

    Args:
        path: its listing path.
        folder: its path on disk.
        real: the resolved data folder.
        seen_ns: time of this call.
        beat: called for each name in the folder.

    Raises:
        OSError: the status of something in it is unavailable.
    """
    size = 0
    mtime = 0
    ctime = 0
    for inner, status, chunks in _inside(folder, real, beat):
        mtime, ctime = max(mtime, status.st_mtime_ns), max(ctime, status.st_ctime_ns)
        if stat.S_ISREG(status.st_mode) and is_part(inner.rpartition("/")[2], chunks=chunks):
            size += status.st_size
    size, mtime, ctime, inode = clamp_stamp((size, mtime, ctime, os.stat(folder).st_ino))  # noqa: PTH116
    return Entry(path, size, mtime, ctime, inode, seen_ns)


def store_digest(
    folders: Roots,
    path: str,
    folder: str,
    real: str,
    beat: Callable[[], object] | None = None,
    *,
    links: bool = True,
) -> str:
    """Return the digest of a Zarr folder: sorted names and digests of its files, link targets.

    Args:
        folders: opens the files.
        path: listing path of the Zarr folder.
        folder, real, beat: as for `store_entry`.
        links: whether links are allowed. No reader follows them, so nothing depends on their
            targets; but a digest that vouches for all data would not cover the targets.

    Raises:
        OSError: as for `store_entry`, a file is unreadable, or there is a link although `links` is
            False.
    """
    entries = sorted((inner, status.st_mode) for inner, status, _ in _inside(folder, real, beat))
    files = [
        (inner, stat.S_ISLNK(mode))
        for inner, mode in entries
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode)
    ]
    linked = next((inner for inner, is_link in files if is_link), None)
    if linked is not None and not links:
        msg = (
            f"{linked} in it is a link, which is not followed in a Zarr folder; copy the file in "
            f"its place"
        )
        raise OSError(msg)
    return digest_value(
        [
            [inner, {"link": os.fsencode(os.readlink(f"{folder}/{inner}")).hex()}]  # noqa: PTH115  keeps any bytes
            if is_link
            else [inner, digest_file(folders.file(f"{path}/{inner}"), beat)]
            for inner, is_link in files
        ]
    )


def _inside(
    folder: str, real: str, beat: Callable[[], object] | None
) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Yield (path below the folder, status, `has_chunks` of its folder) for a Zarr folder's tree.

    Notes:
        Does not follow links. An unlistable folder is an error, because an entry cannot show that
        parts of it are missing.
    """
    waiting: list[tuple[str, str, bool]] = [(os.path.realpath(folder), "", False)]
    root = ConfinedFolder(real)
    while waiting:
        place, path, of_chunks = waiting.pop()
        opened = _opened(root, place, path)
        try:
            chunks = has_chunks(opened, of_chunks)
            yield path, os.fstat(opened), False
            for entry in _listed(opened, path):
                if beat is not None:
                    beat()
                entry_path = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir(follow_symlinks=False):
                    inner = chunks and CHUNK.fullmatch(entry.name) is not None
                    waiting.append((f"{place}/{entry.name}", entry_path, inner))
                else:
                    yield entry_path, entry.stat(follow_symlinks=False), chunks
        finally:
            os.close(opened)


def _opened(root: ConfinedFolder, place: str, path: str) -> int:
    """Return a descriptor of a folder by its path on disk; refuses a link in its place."""
    if path.count("/") > DEPTH:
        msg = f"{path} in it is more than {DEPTH} folders deep"
        raise OSError(msg)
    try:
        return root.listed(os.path.relpath(place, root.real))
    except OSError as error:
        raise _unread(path, error) from error


def _listed(opened: int, path: str) -> Iterator[os.DirEntry[str]]:
    """Yield the contents of a folder; a full list with status would take 0.7 kB per file."""
    try:
        with os.scandir(opened) as scan:
            yield from scan
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: str, error: OSError) -> OSError:
    return OSError(
        f"folder {path} in it cannot be read: {reason(error)}" if path else reason(error)
    )


Array = np.ndarray[Any, Any]
OnFound = Callable[[list[str], list[int]], None]

# Limit for folders reached by links: a few folders that link to one another have millions of paths.
LINKED = 10_000
BEHIND = 100_000  # files behind links that may be listed on top of as many as exist without links
_BYTECODE = "__pycache__"
# Left out silently, unless they hold data files.
_LEFT_OUT = frozenset({".git", ".datacheck", _BYTECODE})
_ZARR = ".zarr"
# "lost+found" and the two names after it belong to a file system; most users may not list them.
_CLUTTER = frozenset(
    {"Thumbs.db", "desktop.ini", "lost+found", "System Volume Information", "$RECYCLE.BIN"}
)


@dataclass(frozen=True, eq=False)
class Listing:
    """The contents of a dataset's folders.

    Args:
        root: the data folder.
        entries: files sorted by the bytes of their paths.
        skipped: (path, reason) of everything that is not a readable file: links that leave the
            folder, devices, clutter.
        roots: extra folders by name.
        refused: the part of `skipped` that may contain samples: the system refused to list it, or
            it has too many links.
        told: int64 (files): for each entry, its position among the files that the walk reported;
            empty for a listing without a walk.
        alone: path of the Zarr folder that is DATA itself, otherwise "". Its parent is then the
            root, but not the data.
        marks: by path of a large file of lines int64 (lines, 2): byte offsets at which some of its
            lines begin, and their line numbers, so that a search for a line need not start at the
            first.
        nodes: by path of a Zarr folder without a Zarr name, the arrays and groups in it: a marker
            added to a folder of Zarr folders merges them into one.
    """

    root: Path
    entries: Entries
    skipped: list[tuple[str, str]] = field(default_factory=list)
    roots: Mapping[str, Path] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    told: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    marks: Mapping[str, Array] = field(default_factory=dict)
    alone: str = ""
    nodes: Mapping[str, list[str]] = field(default_factory=dict)

    @cached_property
    def by_path(self) -> Mapping[str, Entry]:
        """Entries by path."""
        return ByPath(self.entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return int(self.entries.sizes.sum())

    @property
    def digest(self) -> str:
        """Digest over path, size and known digest of every file; covers neither times nor root."""
        entries = self.entries
        paths = digest_bytes("\0".join(entries.paths).encode())
        sizes = digest_bytes(np.ascontiguousarray(entries.sizes, "<i8").data)
        return digest_value([len(entries), paths, sizes, digest_bytes(entries.digests.tobytes())])

    def holds(self, path: str) -> bool:
        """Return whether a file still is as listed: same size, and same time or digest.

        Notes:
            The listing may come from somebody else: a run that a stranger shared may name any file
            of this machine.
        """
        place = self.entries.find(path)
        current = stat_entry(self.root, path, self.roots)
        if place < 0 or current is None or current.size != self.entries[place].size:
            return False
        listed_entry = self.entries[place]
        if current.mtime_ns == listed_entry.mtime_ns:
            return True
        # Files in /proc report size 0 as well, and may have no end.
        if listed_entry.size == 0:
            return listed_entry.digest == digest_bytes(b"")
        return listed_entry.digest not in {None, NOT_WHOLE} and listed_entry.digest == digest_entry(
            self.root, path, self.roots
        )

    def with_digests(self, digests: Array) -> Listing:
        """Return the listing with other digests: bytes (files), 32 hex digits or b""."""
        entries = Entries(self.entries.paths, self.entries.numbers, digests)
        return replace(self, entries=entries)


def carried_digests(new: Listing, old: Listing) -> Array:
    """Return the digests of files unchanged since `old`, bytes (files), b"" for all others.

    Notes:
        Unchanged means: equal size, mtime, ctime and inode, and `old` saw the file at least 2 s
        after its mtime. Within these 2 s a second write could leave the same times.
    """
    places = new.entries.places_in(old.entries)
    same = new.entries.same(old.entries, places)
    digests = np.zeros(len(new.entries), "S32")
    same[same] = old.entries.settled()[places[same]]
    digests[same] = old.entries.digests[places[same]]
    return digests


def target(data: Path) -> tuple[Path, str | None]:
    """Return (root, only) for the user's DATA argument: a folder, one file, or one Zarr folder.

    Raises:
        UsageError: DATA does not exist.
    """
    check_name(data)
    try:
        data.stat()
    except OSError as error:  # includes names that no file system accepts
        cause = "no such file or folder" if isinstance(error, FileNotFoundError) else reason(error)
        msg = f"{data}: {cause}. Check the path."
        raise UsageError(msg) from error
    if not data.is_dir() or _is_store(data):
        data_path = data.absolute()
        return data_path.parent, data_path.name
    return data, None


def _is_store(folder: Path) -> bool:
    """Return whether a folder is one Zarr store, not a data folder with Zarr markers in it.

    Notes:
        For a Zarr store, the parent folder becomes the root and the store its only sample. A marker
        added to a folder of other files must not have this effect: without a Zarr name, the folder
        must consist of arrays, groups and chunks alone, at every level.
    """
    if folder.name.endswith(_ZARR):  # the user names it as a Zarr store
        return not store_markers().isdisjoint(_names(folder))
    waiting = [(folder, False)]  # with whether it may be a folder of chunks
    while waiting:
        place, of_chunks = waiting.pop()
        inner = _inner(place, of_chunks)
        if inner is None:
            return False
        waiting += inner
    return True


def _inner(folder: Path, of_chunks: bool) -> list[tuple[Path, bool]] | None:  # noqa: FBT001
    """Return the subfolders of an array, a group or a folder of chunks; None for other folders."""
    markers = store_markers()
    entries = _names(folder)
    chunks = _has_chunks(folder, of_chunks)
    parts = {
        name: is_dir
        for name, is_dir in entries.items()
        if not (name.startswith(".") or name in markers)
    }
    if markers.isdisjoint(entries) and not (of_chunks and all(map(CHUNK.fullmatch, parts))):
        return None
    if any(
        name.endswith(_ZARR) if is_dir else not chunks or CHUNK.fullmatch(name) is None
        for name, is_dir in parts.items()
    ):
        return None
    return [
        (folder / name, chunks and CHUNK.fullmatch(name) is not None)
        for name, is_dir in parts.items()
        if is_dir
    ]


def _has_chunks(folder: Path, of_chunks: bool) -> bool:  # noqa: FBT001  as `has_chunks`
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return of_chunks
    try:
        return has_chunks(opened, of_chunks)
    finally:
        os.close(opened)


def _names(folder: Path) -> dict[str, bool]:
    """Return the names in a folder and whether each is a folder; {} for an unlistable folder."""
    try:
        with os.scandir(folder) as scan:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in scan}
    except OSError:  # `list_files` reports it
        return {}


def list_files(
    root: Path,
    roots: Mapping[str, Path] | None = None,
    only: str | None = None,
    found: OnFound | None = None,
) -> Listing:
    """Walk a data folder and its extra folders once.

    Args:
        root: the data folder.
        roots: extra folders by name; their files are listed as ``@name/path``.
        only: list this single file (or Zarr folder) of the root.
        found: called per folder with paths and sizes of its files as soon as they are known, also
            for no files, in no fixed order; its exceptions end the walk.

    Raises:
        UsageError: a folder is missing or unreadable, there are too many, `only` is not in the data
            folder, or Python does not decode file names as UTF-8.

    Notes:
        Sorted by the bytes of the path, regardless of the order on disk. Links are followed inside
        the folder only, one per target folder at a time, and no further once they lead to too many
        folders or files. Folders named .git, .datacheck and __pycache__ are left out; everything
        else that is not listed is in `skipped`.
    """
    if sys.getfilesystemencoding() != "utf-8":
        msg = (
            f"Python takes names of files for {sys.getfilesystemencoding()} here, as the locale "
            f"says: files with other "
            "names would be left out. Set PYTHONUTF8=1."
        )
        raise UsageError(msg)
    roots = dict(sorted((roots or {}).items()))
    if len(roots) > MOST_ROOTS:
        msg = (
            f"{root}: {len(roots):,} extra folders; at most {MOST_ROOTS:,} are read. Name a folder "
            f"above them."
        )
        raise UsageError(msg)
    for folder in (root, *roots.values()):
        _check_folder(folder)
    walk = _Walk(root, "", time.time_ns(), found, frozenset(f"@{name}" for name in roots))
    if only is not None and only.split("/")[0] in walk.taken and os.path.lexists(f"{root}/{only}"):
        msg = (
            f"{root}: {only} is named as files of --root {only.split('/')[0][1:]}= are. Rename "
            f"one of them."
        )
        raise UsageError(msg)
    if only is not None:
        walk.single(only)
    else:
        walk.run()
    for name, folder in roots.items():
        extra_walk = _Walk(folder, f"@{name}/", walk.seen_ns, found)
        extra_walk.run()
        walk.paths += extra_walk.paths
        walk.numbers.extend(extra_walk.numbers)
        walk.skipped += extra_walk.skipped
        walk.refused += extra_walk.refused
        walk.nodes |= extra_walk.nodes
    # Code points sort like their UTF-8 bytes.
    order = sorted(range(len(walk.paths)), key=walk.paths.__getitem__)
    numbers = np.frombuffer(walk.numbers, np.int64).reshape(-1, 5)[order]
    entries = Entries([walk.paths[i] for i in order], numbers, np.zeros(len(order), "S32"))
    return Listing(
        root,
        entries,
        _first_skipped(walk.skipped),
        roots,
        sorted(walk.refused),
        np.array(order, np.int64),
        alone=walk.alone,
        nodes={store: sorted({*inner}) for store, inner in walk.nodes.items()},
    )


def _first_skipped(skipped: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (path, reason) pairs in order, up to a run's limit; the last one counts the rest."""
    ordered = sorted(skipped)
    sizes = np.cumsum([len(path) + len(reason) for path, reason in ordered[:_MOST_SKIPPED]])
    count = int(np.searchsorted(sizes, _SKIPPED_LETTERS, side="right"))
    rest = ordered[count:]
    return [
        *ordered[:count],
        *([(rest[0][0], f"one of {len(rest):,} more names left out")] if rest else []),
    ]


def _check_folder(folder: Path) -> None:
    check_name(folder)
    try:
        with os.scandir(folder):
            return
    except OSError as error:
        msg = f"{folder}: {reason(error)}. DATA and --root name folders that can be read."
        raise UsageError(msg) from error


# limits for skipped names: number, characters
_MOST_SKIPPED = 100_000
_SKIPPED_LETTERS = 8 << 20
_NAMED = 100  # unfollowed links that are reported one by one


def _link_target(
    entry: os.DirEntry[str], place: str, real: str, links: tuple[str, ...]
) -> tuple[str, str]:
    """Return a link's target, and the reason why it is not followed ("" if it is).

    Args:
        entry: the link.
        place: its path, in a resolved folder.
        real: the resolved data folder; targets outside of it are not followed.
        links: targets of the links on the way to this one.
    """
    goal = os.path.realpath(place)
    if not os.path.exists(goal):  # noqa: PTH110  one call per link
        return goal, "a link to nothing"
    if goal != real and not goal.startswith(real + os.sep):
        return (
            goal,
            "a link out of the data folder; copy the file, or name its folder as DATA or --root",
        )
    if entry.is_file():
        return goal, ""
    if not entry.is_dir():
        return goal, "a link to a device, a socket or a pipe"
    back = goal in links or place.startswith(goal + os.sep)
    return goal, "a link that leads back to itself" if back else ""


class _FullError(Exception):
    """There is more behind links than the listing limit."""


class _Walk:
    """The state of one walk: the files found below one root."""

    def __init__(
        self,
        root: Path,
        prefix: str,
        seen_ns: int,
        found: OnFound | None,
        taken: frozenset[str] = frozenset(),
    ) -> None:
        self.taken = taken  # names in the folder that clash with extra folders
        self._root = ConfinedFolder(root)
        self.real = self._root.real
        self.prefix = prefix
        self.seen_ns = seen_ns
        self.paths: list[str] = []
        self.numbers = array("q")  # five per file, as in `Entries`
        self.skipped: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self._found, self._told = found, 0
        self._linked = 0  # folders reached by links
        self._reached: Counter[str] = Counter()  # how often each target was reached
        # By target, a heap of links that are not followed yet.
        self._links: dict[str, list[tuple[int, str, tuple[str, ...]]]] = {}
        # Links with their targets that are in no heap yet.
        self._met: list[tuple[str, int, str, tuple[str, ...]]] = []
        # Names seen in folders; those of them that are reached without links.
        self._looked = self._plain = 0
        self._most = math.inf  # limit for names seen
        # State before the current round of links (see `_snapshot`), and the links of the round.
        self._round: (
            tuple[tuple[int, int, int, int, int], list[tuple[str, str, tuple[str, ...], str]]]
            | None
        ) = None
        self._markers = store_markers()
        self._of_chunks: set[str] = set()  # waiting folders that may hold chunks
        self.alone = ""  # path of the Zarr folder, if DATA is one
        self.nodes: dict[str, list[str]] = {}
        # (folder on disk, its path, links on the way, path of the enclosing Zarr folder or "").
        self._waiting: list[tuple[str, str, tuple[str, ...], str]] = []

    def run(self) -> None:
        """Visit every folder."""
        self._waiting.append((self.real, "", (), ""))
        self._walk()

    def _walk(self) -> None:
        while self._waiting or self._follow():
            try:
                self._enter(*self._waiting.pop())
            except _FullError:
                self._bound_links()
            self._report_found()

    def _enter(self, folder: str, path: str, links: tuple[str, ...], store: str) -> None:
        if path.count("/") > DEPTH:
            self._skip(path, f"more than {DEPTH} folders deep")
            return
        try:
            # By descriptor: a link that replaces the folder now leads nowhere.
            opened = self._root.listed(path)
        except OSError as error:
            self._refuse(path, error, "folder cannot be read: ")
            return
        try:
            self._inspect(opened, folder, path, links, store)
        finally:
            os.close(opened)

    def _follow(self) -> bool:
        """Start the next round: one link to each of the least often reached targets.

        The only link to a folder is therefore followed, however many links lead to other folders.
        """
        if self._round is None:
            self._plain, self._most = self._looked, 2 * self._looked + BEHIND
        self._queue_links()
        least = min((self._reached[goal] for goal in self._links), default=0)
        goals = [goal for goal in self._links if self._reached[goal] == least]
        if (room := LINKED - self._linked) > 0:
            goals = sorted(goals, key=lambda goal: _near_the_top(self._links[goal][0][1]))[:room]
        next_links = [(goal, *heappop(self._links[goal])) for goal in goals]
        for goal in goals:
            self._reached[goal] += 1
            if not self._links[goal]:
                del self._links[goal]
        self._linked += len(next_links)
        self._waiting = [(goal, path, links, "") for goal, _, path, links in next_links]
        self._round = self._snapshot(), self._waiting[:]
        if self._linked > LINKED:
            self._give_up(
                f"links lead to more than {LINKED:,} folders. Remove those that lead from one "
                f"folder to another, or "
                "name the folder that holds the files"
            )
            self._waiting = []
        return bool(self._waiting)

    def _queue_links(self) -> None:
        for goal, depth, path, links in self._met:
            heappush(self._links.setdefault(goal, []), (depth, path, links))
        self._met = []

    def _snapshot(self) -> tuple[int, int, int, int, int]:
        return len(self.paths), len(self.skipped), len(self.refused), len(self._met), self._looked

    def _restore(self, snapshot: tuple[int, int, int, int, int]) -> None:
        """Discard everything found since a snapshot."""
        files, skipped, refused, met, self._looked = snapshot
        del (
            self.paths[files:],
            self.numbers[5 * files :],
            self.skipped[skipped:],
            self.refused[refused:],
        )
        del self._met[met:]
        self._waiting = []

    def _bound_links(self) -> None:
        """Drop some links of a round that exceeds the limit, regardless of the order on disk.

        Links with few files behind them are followed first, so that no link uses up the room of all
        others.
        """
        assert self._round is not None
        snapshot, links = self._round
        name_limit = 2 * self._plain + BEHIND
        self._restore(snapshot)
        links.sort(key=lambda link: _near_the_top(link[1]))
        share = (name_limit - self._looked) // len(links)
        links = [link for link in links if not self._fits(link, self._looked + share)]
        while links and self._fits(links[0], name_limit):
            del links[0]
        self._round = snapshot, links
        self._give_up(
            f"with what lies behind such links there are more than {name_limit:,} files and folders, "
            f"where {self._plain:,} "
            "lie there without links. Name the folders that they lead to as DATA or --root, or "
            "remove the links"
        )

    def _fits(self, link: tuple[str, str, tuple[str, ...], str], name_limit: int) -> bool:
        """Follow one link; undo and return False if it exceeds the limit of names."""
        snapshot, self._most = self._snapshot(), name_limit
        self._waiting = [link]
        try:
            while self._waiting:
                self._enter(*self._waiting.pop())
        except _FullError:
            self._restore(snapshot)
            return False
        return True

    def _give_up(self, cause: str) -> None:
        """Report unfollowed links; omit links below them, which depend on the order on disk."""
        assert self._round is not None
        self._queue_links()
        round_paths = {path for _, path, *_ in self._round[1]}
        other_paths = (path for heap in self._links.values() for _, path, _ in heap)
        unfollowed = [
            *round_paths,
            *(
                path
                for path in other_paths
                if round_paths.isdisjoint(map(str, PurePosixPath(path).parents))
            ),
        ]
        unfollowed.sort(key=_near_the_top)
        self._links = {}
        for path in unfollowed[:_NAMED]:
            self._refuse(path, OSError(f"a link to a folder that is not followed: {cause}"))
        if unfollowed[_NAMED:]:
            message = (
                f"one of {len(unfollowed) - _NAMED:,} more links to folders that are not followed"
            )
            self._refuse(unfollowed[_NAMED], OSError(message))

    def _inspect(
        self, opened: int, folder: str, path: str, links: tuple[str, ...], store: str
    ) -> None:
        try:
            with os.scandir(opened) as scan:
                entries = list(scan)
        except OSError as error:
            self._refuse(path, error, "folder cannot be read: ")
            return
        self._count_names(len(entries))
        if not path and self.taken:
            entries = self._without_taken(entries)
        if path and not self._markers.isdisjoint(child.name for child in entries):
            if not store or self._is_own(path):
                self._store(folder, path)
                store = path
            elif not store.endswith(_ZARR):
                self.nodes.setdefault(self.prefix + store, []).append(self.prefix + path)
        of_chunks = path in self._of_chunks
        self._of_chunks.discard(path)
        if store:
            self._visit_store(
                entries, folder, path, links, store, chunks=has_chunks(opened, of_chunks)
            )
            return
        for entry in self._unusual(entries, path):
            self._visit(entry, folder, path, links)

    def _is_own(self, path: str) -> bool:
        """Return whether a Zarr folder inside another one has its own entry, by its Zarr name."""
        return path.endswith(_ZARR) and not self.alone

    def _without_taken(self, entries: list[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        for entry in entries:
            if entry.name in self.taken:
                self._skip(entry.name, f"named as files of --root {entry.name[1:]}= are; rename it")
        return [entry for entry in entries if entry.name not in self.taken]

    def _visit_store(
        self,
        entries: list[os.DirEntry[str]],
        folder: str,
        path: str,
        links: tuple[str, ...],
        store: str,
        *,
        chunks: bool,
    ) -> None:
        """List unrelated files in a Zarr folder: its marker would hide them from every rule.

        Notes:
            If the Zarr folder is DATA itself, no link is followed, because its parent is the
            root.
        """
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False) and (
                name in self._markers or not name.startswith(".")
            ):
                self._waiting.append((f"{folder}/{name}", f"{path}/{name}", links, store))
                if chunks and CHUNK.fullmatch(name):
                    self._of_chunks.add(f"{path}/{name}")
            elif self._is_part(entry, f"{folder}/{name}", chunks=chunks):
                continue
            elif self.alone and entry.is_symlink():
                self._skip(
                    f"{path}/{name}",
                    "a link in a Zarr folder that is scanned alone; it is not followed",
                )
            else:
                self._visit(entry, folder, path, links)

    def _is_part(self, entry: os.DirEntry[str], place: str, *, chunks: bool) -> bool:
        """Return whether a file, or a link in its place, is part of a Zarr folder."""
        name = entry.name
        return is_part(name, chunks=chunks) and not (
            entry.is_symlink() and os.path.isdir(place)  # noqa: PTH112  Path.is_dir may raise
        )

    def _unusual(self, entries: list[os.DirEntry[str]], path: str) -> list[os.DirEntry[str]]:
        """List the regular files of a folder in a fast loop; return all other entries."""
        head = self.prefix + (f"{path}/" if path else "")
        seen_ns = self.seen_ns
        paths: list[str] = []
        numbers: list[int] = []
        other_entries = []
        for entry in entries:
            name = entry.name
            try:
                if (
                    name.isascii()
                    and name[0] != "."
                    and name not in _CLUTTER
                    and entry.is_file(follow_symlinks=False)
                ):
                    status = entry.stat(follow_symlinks=False)
                    numbers += (
                        status.st_size,
                        status.st_mtime_ns,
                        status.st_ctime_ns,
                        status.st_ino,
                        seen_ns,
                    )
                    paths.append(head + name)
                    continue
            except OSError:  # removed meanwhile
                pass
            other_entries.append(entry)
        try:
            self.numbers.extend(numbers)
        except OverflowError:  # an out-of-range number needs `clamp_stamp`
            del self.numbers[5 * len(self.paths) :]
            return entries
        self.paths += paths
        return other_entries

    def single(self, only: str) -> None:
        """List a single file or Zarr folder."""
        place = Path(self.real, only)
        if Path(only).is_absolute() or not place.exists() or ".." in Path(only).parts:
            msg = f"{self.real}: no file {only} in it. Check the path."
            raise UsageError(msg)
        if place.is_dir():
            self.alone = only
            self._waiting.append((str(place), only, (), ""))
            self._walk()
        elif stat.S_ISREG((status := place.stat()).st_mode):
            self._add(only, status)
        else:
            self._skip(only, "not a regular file")
        self._report_found()

    def _report_found(self) -> None:
        """Report the files found since the last call, or none: the callback may end the walk."""
        if self._found is not None:
            file_count = (
                len(self.paths) if self._round is None or not self._waiting else self._round[0][0]
            )
            self._found(
                self.paths[self._told : file_count],
                self.numbers[5 * self._told : 5 * file_count : 5].tolist(),
            )
            self._told = file_count

    def _visit(
        self, entry: os.DirEntry[str], folder: str, head: str, links: tuple[str, ...]
    ) -> None:
        name = entry.name
        path = f"{head}/{name}" if head else name
        place = f"{folder}/{name}"
        try:
            if not name.isascii() and not _decodable(name):
                self._skip(path, "name is not UTF-8; rename it")
            elif name.startswith(".") or name in _LEFT_OUT or name in _CLUTTER:
                if not self._is_tool_folder(entry, path):
                    self._skip(path, "hidden or left behind by another program")
            elif entry.is_symlink():
                self._link(entry, place, path, links)
            elif entry.is_dir(follow_symlinks=False):
                self._waiting.append((place, path, links, ""))
            elif entry.is_file(follow_symlinks=False):
                self._add(path, entry.stat(follow_symlinks=False))
            else:
                self._skip(path, "not a regular file (a device, a socket or a pipe)")
        except OSError as error:
            self._refuse(path, error)

    def _is_tool_folder(self, entry: os.DirEntry[str], path: str) -> bool:
        """Return whether a name of git, Python or datacheck is theirs, with no data files in it."""
        if entry.name not in _LEFT_OUT or entry.is_symlink():
            return False
        if not entry.is_dir():
            return entry.name == ".git"  # of a submodule or a worktree
        try:
            opened = self._root.listed(path)
        except OSError:  # another user's: treat it like other hidden names
            return False
        try:
            with os.scandir(opened) as scan:
                names = {child.name: child.is_dir(follow_symlinks=False) for child in scan}
        finally:
            os.close(opened)
        deeper = any(names.values()) and (
            entry.name == _BYTECODE or (entry.name == ".git" and "HEAD" not in names)
        )
        return not deeper and all(format_of(name) is None for name in names)

    def _link(self, entry: os.DirEntry[str], place: str, path: str, links: tuple[str, ...]) -> None:
        goal, fault = _link_target(entry, place, self.real, links)
        if fault:
            self._skip(path, fault)
        elif entry.is_file():
            self._add(path, entry.stat())
        else:
            # Links with few links on the way come first.
            self._met.append((goal, len(links), path, (*links, goal)))

    def _add(self, path: str, status: os.stat_result) -> None:
        self._append(_entry(self.prefix + path, status, self.seen_ns))

    def _append(self, entry: Entry) -> None:
        self.paths.append(entry[0])
        self.numbers.extend(entry[1:6])

    def _store(self, folder: str, path: str) -> None:
        """Add the entry of a Zarr folder."""
        try:
            self._append(
                store_entry(self.prefix + path, folder, self.real, self.seen_ns, self._count_names)
            )
        # Includes a folder that changes at this moment: nothing else would report it.
        except OSError as error:
            self._refuse(path, OSError(reason(error)))

    def _count_names(self, names: int = 1) -> None:
        """Count names before a closer look at them.

        Raises:
            _FullError: the count exceeds the limit.
        """
        self._looked += names
        if self._looked > self._most:
            raise _FullError

    def _skip(self, path: str, reason: str) -> None:
        self.skipped.append(
            (os.fsencode(self.prefix + path).decode("utf-8", "backslashreplace"), reason)
        )

    def _refuse(self, path: str, error: OSError, prefix: str = "") -> None:
        self._skip(path, f"{prefix}{reason(error)}")
        # A file removed at this moment holds no sample.
        if not isinstance(error, FileNotFoundError):
            self.refused.append(self.skipped[-1])


def _near_the_top(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _decodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def stat_entry(
    root: Path,
    path: str,
    roots: Mapping[str, Path] | None = None,
    beat: Callable[[], object] | None = None,
) -> Entry | None:
    """Return the current listing entry of one path, None without a readable file.

    Args:
        root, roots, path: as in a listing.
        beat: called for each file of a Zarr folder.
    """
    place = str(locate(root, roots or {}, path)) if path.startswith("@") else f"{root}/{path}"
    seen_ns = time.time_ns()
    try:
        # Called for every file of a scan; takes half the time of Path.stat.
        status = os.stat(place)  # noqa: PTH116
        if stat.S_ISDIR(status.st_mode):
            return store_entry(path, place, real_root(root, roots or {}, path), seen_ns, beat)
    except OSError:
        return None
    return _entry(path, status, seen_ns) if stat.S_ISREG(status.st_mode) else None


def size_of(root: Path, roots: Mapping[str, Path], path: str) -> int:
    """Return `Roots.budget_bytes` of the file at a path now, 0 without a readable file."""
    entry = stat_entry(root, path, roots)
    return 0 if entry is None else Roots(root, roots).budget_bytes(entry)


def limit_files(
    beat: Callable[[int], None], *places: tuple[Mapping[str, Any], Iterable[str]]
) -> None:
    """Limit the memory of a child's current item by the size of the files that it reads.

    Args:
        beat: the child's heartbeat; any other function limits nothing.
        places: the folders of a dataset, as a task names them (root, roots), and listing paths.
    """
    # Only children limit their memory.
    from datacheck.workers.child import Pulse  # noqa: PLC0415

    if not isinstance(beat, Pulse):
        return
    nbytes = 0
    for folders, paths in places:
        roots = {name: Path(folder) for name, folder in folders["roots"].items()}
        nbytes += sum(size_of(Path(folders["root"]), roots, path) for path in paths)
    beat.files(nbytes)


def _entry(path: str, status: os.stat_result, seen_ns: int) -> Entry:
    size, mtime, ctime, inode = stamp_of(status)
    return Entry(path, size, mtime, ctime, inode, seen_ns)


def digest_entry(
    root: Path,
    path: str,
    roots: Mapping[str, Path] | None = None,
    beat: Callable[[], object] | None = None,
) -> str:
    """Return the digest of a listed file or Zarr folder (over sorted names and file digests).

    Args:
        root, roots, path: as in a listing.
        beat: called for each file of a Zarr folder, and for each piece of a file.

    Raises:
        FormatError: it cannot be read (any more).
    """
    roots = roots or {}
    try:
        folders = Roots(root, roots)
        if not folders.file(path).is_dir():
            return digest_file(folders.file(path), beat)
        return store_digest(
            folders, path, str(locate(root, roots, path)), real_root(root, roots, path), beat
        )
    except OSError as error:
        msg = f"{path}: {reason(error)}"
        raise FormatError(msg) from error
