"""The manifest of a dataset: size and digest of every file, a root digest, digests per sample.

It holds nothing else, so two manifests are equal if the data are, wherever and whenever they were
made.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from datacheck import __version__
from datacheck.errors import StorageError, UsageError
from datacheck.repro.sample_digests import DigestRows, SampleDigests, digest_samples
from datacheck.runtime import folders, fsops, outputs
from datacheck.runtime.documents import VALUES, Arrays, check_values, open_document
from datacheck.runtime.hashing import Digester, digest_bytes, digest_value
from datacheck.sources.roots import SETTLED_NS, Entries
from datacheck.workers.budget import usable_memory

if TYPE_CHECKING:
    from datacheck.model.finding import Progress
    from datacheck.schema.model import Schema
    from datacheck.sources.listing import Listing, OnFound

Array = np.ndarray[Any, Any]

FORMAT = "datacheck.manifest/1"
HEAD = f'{{"format": "{FORMAT}",'.encode()
_FORMATS = b'{"format": "datacheck.manifest/'
_COMMAND = "datacheck manifest"
_MOST_BYTES = 4 << 30  # enough for 40 million files
_MEMORY_EACH = 20  # memory per byte of the file, at most
_BYTES_EACH = 8  # bytes per JSON value, at least: a file has four values in 44 bytes or more
_CLOSING_DIGEST = re.compile(rb'\n"digest": "([0-9a-f]{32})"}\n\Z')
_HEX = re.compile(r"(?:[0-9a-f]{32})+")
_PIECE_BYTES = 1 << 20
_HEX64 = re.compile(r"[0-9a-f]{16}")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')  # in JSON; all other characters stand for themselves
_REMAKE_HINT = "Make it again: datacheck manifest DATA -o FILE"


@dataclass(frozen=True, eq=False)
class Files:
    """Files sorted by the bytes of their paths.

    Shapes:
        paths: list of text (files)
        sizes: int64 (files) [bytes]
        digests: bytes (files), 32 hex digits each
    """

    paths: list[str]
    sizes: Array
    digests: Array

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return int(self.sizes.sum())

    def by_path(self) -> dict[str, str]:
        """Return the digest of each file."""
        return dict(zip(self.paths, self.digests.astype(str).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class DatasetManifest:
    """The content of a dataset.

    Args:
        files: of the folder and, as ``@name/path``, of the extra folders.
        samples: digests of samples, if a schema was given.
        skipped: (path, reason) of entries that are not files of the dataset; not part of `root`.
        read, kept: how many files were hashed now, and how many digests were known; both 0 for a
            manifest read from a file.
        notes: facts for the user, a sentence each.
    """

    files: Files
    samples: SampleDigests | None = None
    skipped: list[tuple[str, str]] = field(default_factory=list)
    read: int = 0
    kept: int = 0
    notes: tuple[str, ...] = ()

    @cached_property
    def root(self) -> str:
        """Digest over path, size and digest of every file, 32 hex digits.

        It equals the digest of a scan's listing.
        """
        from datacheck.sources.listing import Listing  # noqa: PLC0415  `datacheck.repro` is light

        numbers = np.zeros((len(self.files), 5), np.int64)
        numbers[:, 0] = self.files.sizes
        return Listing(Path(), Entries(self.files.paths, numbers, self.files.digests)).digest


# ------------------------------------------------------------------------------------------- making


def make(
    data: str | os.PathLike[str],
    *,
    roots: Mapping[str, str | os.PathLike[str]] | None = None,
    schema: Schema | None = None,
    deep: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DatasetManifest:
    """Return the manifest of a dataset.

    Args:
        data: folder, file or Zarr folder.
        roots: extra folders by name.
        schema: how to read samples; None: no samples.
        deep: hash every file, even if size and times are unchanged since it was last hashed.
        workers: processes that read; None: as many as help.
        progress: called after each part.

    Raises:
        UsageError: the data are missing or empty.
        StorageError: a file or folder cannot be read, or changed meanwhile: a manifest without it
            would be wrong.

    Notes:
        The order on disk, times, owners and the place of the data change nothing. Sizes, times and
        digests of files are kept in ``.datacheck/manifests`` of the working folder, so that the
        next call hashes only files that changed. They are also kept if this call fails because a
        file cannot be read or changes.
    """
    # Importing `datacheck.repro` must stay light
    from datacheck.sources import file_digests  # noqa: PLC0415
    from datacheck.sources.listing import target  # noqa: PLC0415  as above

    root, file_name = target(Path(data))
    extra = {name: Path(path) for name, path in (roots or {}).items()}
    place = _store_path(root, extra, file_name)
    walk = partial(_list_files, Path(data), root, extra, file_name)
    # Path.exists raises if a folder may not be searched.
    if deep or not os.path.exists(place):  # noqa: PTH110
        listing, digests, fault = file_digests.digest_while_listed(
            root, extra, walk, workers, progress
        )
        known_digests = _recall(place, listing)
        unread_indices = np.arange(len(digests))
    else:
        listing = walk()
        known_digests = _recall(place, listing)
        unread_indices = np.flatnonzero(known_digests == b"")
        digests = known_digests.copy()
        digests[unread_indices], fault = file_digests.digest_listed(
            listing, unread_indices, workers, progress
        )
    # The next call reads the rest. Known digests stay, so that it still reports silent changes.
    if fault is not None:
        _remember(
            place, listing.with_digests(np.where(known_digests == b"", digests, known_digests))
        )
        raise fault
    listing = listing.with_digests(digests)
    notes = _silent_changes(listing, known_digests)
    if len(unread_indices) and not _remember(place, listing):
        notes.append(
            f"{place.parent}: cannot be written, so the next manifest of these data reads all "
            f"files again."
        )
    files = Files(listing.entries.paths, listing.entries.sizes, digests)
    manifest = DatasetManifest(
        files,
        None,
        listing.skipped,
        len(unread_indices),
        len(known_digests) - len(unread_indices),
        tuple(notes),
    )
    if schema is None:
        return manifest
    samples_file = place.with_name(
        f"{place.stem}-{digest_value([__version__, schema.as_dict()])[:16]}.json"
    )
    samples = None if deep else _stored_samples(samples_file, manifest.root)
    if samples is not None:
        return replace(manifest, samples=samples)
    manifest = replace(manifest, samples=digest_samples(schema, listing, workers, progress))
    _check_unchanged(listing, walk())
    return _store_manifest(manifest, samples_file)


def _store_manifest(manifest: DatasetManifest, place: Path) -> DatasetManifest:
    """Return a manifest after storing it for the next call.

    It is stored only if the next call may reuse its samples, and if the folder is writable.
    """
    # Store lasting results only: after others, the next call may read more samples.
    if manifest.samples is not None and manifest.samples.lasting:
        with suppress(StorageError):  # then the next call takes as long
            for folder in (place.parent.parent, place.parent):
                folders.check_own(folder, "")
            fsops.write_file(place, _pieces(manifest), sync=False, mode=0o644)
    return manifest


def _check_unchanged(before: Listing, after: Listing) -> None:
    """Raise `StorageError` unless two listings have the same files, sizes, times and inodes."""
    old_entries, new_entries = before.entries, after.entries
    unchanged = old_entries.same(new_entries, old_entries.places_in(new_entries))
    if unchanged.all() and old_entries.paths == new_entries.paths:
        return
    changed_path = (
        min({*new_entries.paths} - {*old_entries.paths})
        if unchanged.all()
        else old_entries.paths[int(unchanged.argmin())]
    )
    advice = "Run the same command again when nothing writes to the data."
    msg = f"{before.root}: {changed_path} changed while samples were read. {advice}"
    raise StorageError(msg)


def _stored_samples(manifest_path: Path, root: str) -> SampleDigests | None:
    """Return the samples of the last manifest with this schema, None if the data have changed."""
    with suppress(UsageError, StorageError):
        before = read(manifest_path)
        has_reading = (
            before.samples is not None and before.samples.reading
        )  # not of an older datacheck
        return before.samples if has_reading and before.root == root else None
    return None


def _list_files(
    data: Path,
    root: Path,
    roots: Mapping[str, Path],
    only: str | None,
    found: OnFound | None = None,
) -> Listing:
    """Return the listing of all files for a manifest.

    Raises:
        UsageError: there are no files.
        StorageError: a part of the data cannot be listed.
    """
    # Importing `datacheck.repro` must stay light
    from datacheck.sources.listing import list_files  # noqa: PLC0415

    listing = list_files(root, roots, only, found)
    if listing.refused:
        path, reason = listing.refused[0]
        others_text = (
            f" (and {len(listing.refused) - 1:,} more)" if len(listing.refused) > 1 else ""
        )
        msg = (
            f"{data}: {path}{others_text}: {reason}. A manifest names every file: make it readable, or "
            f"move it away."
        )
        raise StorageError(msg)
    if not len(listing.entries):
        path, reason = listing.skipped[0] if listing.skipped else ("", "")
        left_out = f" ({len(listing.skipped):,} left out; {path}: {reason})" if path else ""
        msg = f"{data}: holds no files{left_out}. Check the path."
        raise UsageError(msg)
    return listing


def _silent_changes(listing: Listing, known_digests: Array) -> list[str]:
    """Return a note if files have other bytes though size, times and inode are unchanged."""
    changed_indices = np.flatnonzero(
        (known_digests != b"") & (known_digests != listing.entries.digests)
    )
    if not len(changed_indices):
        return []
    first_path = listing.entries.paths[int(changed_indices[0])]
    return [
        f"{len(changed_indices):,} files have other bytes than before with equal size, times and inode; the "
        f"first is {first_path}. "
        f"Something wrote through a memory map or past the file system, or the disk loses bits."
    ]


# --------------------------------------------------------------------------- digests of files, kept

# ``.datacheck/manifests/<data>.npz`` in the working folder saves reading and is never identity:
# ``--deep`` hashes again, and deleting it only costs time.
_STORE_FORMAT = 1
_STORE_BYTES = 8 << 30  # about 120 bytes a file


def _store_path(root: Path, roots: Mapping[str, Path], only: str | None) -> Path:
    """Return the path of the stored digests of these data."""
    # `resolve` raises on link loops.
    real_roots = {name: os.path.realpath(path) for name, path in sorted(roots.items())}
    slot = digest_value([os.path.realpath(root), only, real_roots])[:16]
    return Path.cwd() / ".datacheck" / "manifests" / f"{slot}.npz"


def _recall(place: Path, listing: Listing) -> Array:
    """Return the stored digests of unchanged files: bytes (files), b"" for all others.

    Notes:
        See `sources.listing.carried_digests` for when a file counts as unchanged; in addition its
        ctime must be 2 s older than the listing that hashed it. An unreadable store counts as
        empty.
    """
    # Importing `datacheck.repro` must stay light
    from datacheck.sources.listing import Listing, carried_digests  # noqa: PLC0415

    # A damaged store counts as empty, whatever the error.
    with suppress(Exception):
        before = _read_entries(place)
        # mtime can be set to any value. A file that changed shortly before it was listed may change
        # again within the same ctime.
        before.digests[before.numbers[:, 4] - SETTLED_NS < before.numbers[:, 2]] = b""
        return carried_digests(listing, Listing(listing.root, before))
    return np.zeros(len(listing.entries), "S32")


def _read_entries(place: Path) -> Entries:
    with Arrays(place, _STORE_BYTES) as arrays:
        numbers = arrays["numbers"]
        digests = arrays["digests"]
        octets = arrays["paths"].tobytes()
        count = octets.count(b"\0") + 1 if len(numbers) else 0  # counted before they become texts
        sound = numbers.dtype == np.int64 and numbers.shape == (count, 5)
        if (
            int(arrays["format"]) != _STORE_FORMAT
            or not sound
            or digests.dtype != "S32"
            or digests.shape != (count,)
        ):
            msg = f"{place}: not what this version writes"
            raise ValueError(msg)
        return Entries(octets.decode().split("\0") if count else [], numbers, digests)


def _remember(place: Path, listing: Listing) -> bool:
    """Store the digests of files for the next call; return whether that succeeded."""
    entries = listing.entries
    file = io.BytesIO()
    paths = np.frombuffer("\0".join(entries.paths).encode(), np.uint8)
    np.savez(
        file,
        allow_pickle=False,
        format=np.int64(_STORE_FORMAT),
        paths=paths,
        numbers=entries.numbers,
        digests=entries.digests,
    )
    try:
        for folder in (place.parent.parent, place.parent):
            folders.check_own(folder, "")
        fsops.make_directory(place.parent, sync=False)
        fsops.write_file(place, file.getbuffer(), sync=False, mode=0o644)
    except StorageError:
        # A folder that is not ours, a link, a full disk: the next call takes as long again.
        return False
    return True


# ---------------------------------------------------------------------------------------- as a file


def document(manifest: DatasetManifest) -> bytes:
    """Return a manifest as the bytes of its file.

    JSON with one file or sample per line; the last entry is the digest of the bytes before it.
    """
    return b"".join(_pieces(manifest))


def _pieces(manifest: DatasetManifest) -> Iterator[bytes]:
    """Yield the bytes of a manifest's file in pieces: with samples they may be gigabytes."""
    digester = Digester()
    for piece in _body(manifest):
        digester.update(piece)
        yield piece
    yield f'\n"digest": "{digester.hexdigest()}"}}\n'.encode()


def _body(manifest: DatasetManifest) -> Iterator[bytes]:
    files, samples = manifest.files, manifest.samples
    yield f'{HEAD.decode()}\n"root": "{manifest.root}",\n"files": ['.encode()
    yield from _lines(_rows(files))
    yield b"]"
    if samples is not None:
        yield (
            b',\n"schema": '
            + orjson.dumps(samples.schema)
            + b',\n"reading": '
            + orjson.dumps(samples.reading)
        )
        yield b',\n"samples": ['
        yield from _lines(orjson.dumps([key, row]) for key, row in samples.rows.items())
        yield b'],\n"unread": ['
        yield from _lines(orjson.dumps(pair) for pair in samples.unread.items())
        yield b"]"
    yield b',\n"skipped": ['
    yield from _lines(orjson.dumps(pair) for pair in manifest.skipped)
    yield b"],"


def _rows(files: Files) -> Iterator[bytes]:
    # A third of the time of a text array.
    joined_digests = files.digests.tobytes().decode()
    digests = [joined_digests[i : i + 32] for i in range(0, len(joined_digests), 32)]
    rows = zip(files.paths, files.sizes.tolist(), digests, strict=True)
    # Nearly always true: each path is its own JSON text.
    if _ESCAPED.search("".join(files.paths)) is None:
        yield ",\n".join([f'["{path}",{size},"{digest}"]' for path, size, digest in rows]).encode()
    else:
        yield from (orjson.dumps(row) for row in rows)


def _lines(rows: Iterator[bytes]) -> Iterator[bytes]:
    """Yield rows, one per line, in large pieces.

    No list of rows is kept: bytes from orjson hold 4 kB, however short they are.
    """
    piece = bytearray()
    comma = b"\n"
    for row in rows:
        piece += comma + row
        comma = b",\n"
        if len(piece) > _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def write(manifest: DatasetManifest, path: str | os.PathLike[str]) -> None:
    """Write a manifest so that it appears whole or not at all; an older one is replaced.

    Raises:
        UsageError: the path is a link, or a file that is not a manifest.
        OutOfSpaceError: the disk is full.
        StorageError: any other failure.
    """
    check_output(Path(path))
    outputs.write_output(
        Path(path), _pieces(manifest), _COMMAND, outputs.begins_with(_FORMATS), mode=0o644
    )


def check_output(path: Path, data: Sequence[Path] = ()) -> None:
    """Raise unless a manifest may be written to a path.

    Raises:
        UsageError: the path is a link or a file that is not a manifest, or lies in the data.
        StorageError: the folder is not writable.
    """
    absolute_path = path.absolute()
    # resolve() raises RuntimeError for circular links.
    real = Path(os.path.realpath(absolute_path))
    for folder in data:
        if real.is_relative_to(os.path.realpath(folder)):
            msg = (
                f"{path}: lies in the data, and the next manifest would name it. Choose a place "
                f"outside of {folder}."
            )
            raise UsageError(msg)
    if not absolute_path.parent.is_dir():
        msg = (
            f"{path}: there is no folder {absolute_path.parent}. Make it, or choose another place."
        )
        raise UsageError(msg)
    outputs.check_output(path, _COMMAND, outputs.begins_with(_FORMATS))
    fsops.check_writable(absolute_path.parent)


def is_manifest(path: Path) -> bool:
    """Return whether a path is a file that begins like a manifest of any version.

    A pipe is not opened, so the call never blocks.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return file.read(len(_FORMATS)) == _FORMATS
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # also links without a target
            return False
        raise fsops.as_storage_error(error, path) from error


def read(path: str | os.PathLike[str]) -> DatasetManifest:
    """Read a manifest.

    Raises:
        UsageError: the file does not exist, is not a manifest, has another version, or is damaged:
            its own digest does not match.
        StorageError: the file cannot be read.
    """
    path = Path(path)
    data = _bytes_of(path)
    seal = _CLOSING_DIGEST.search(data, max(0, len(data) - 64))
    if seal is None or digest_bytes(memoryview(data)[: seal.start()]) != seal[1].decode():
        fault = (
            "ends too soon"
            if seal is None
            else "is not what was written, its own digest does not fit"
        )
        msg = f"{path}: the manifest {fault}. {_REMAKE_HINT}"
        raise UsageError(msg)
    try:
        check_values(data, VALUES + len(data) // _BYTES_EACH)
        return _parsed(orjson.loads(data))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        msg = (
            f"{path}: no manifest that datacheck wrote: {str(error).splitlines()[0]}. "
            f"{_REMAKE_HINT}"
        )
        raise UsageError(msg) from error


def _bytes_of(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            msg = f"{path}: is no file. Name a manifest: datacheck manifest DATA -o FILE"
            raise UsageError(msg)
        with open_document(path, min(_MOST_BYTES, usable_memory() // 2 // _MEMORY_EACH)) as file:
            head = file.read(len(HEAD))
            if head != HEAD:
                other_version = head.startswith(_FORMATS)
                reason = (
                    f"is of another version; this datacheck reads {FORMAT}"
                    if other_version
                    else "is no manifest"
                )
                msg = f"{path}: {reason}. {_REMAKE_HINT}"
                raise UsageError(msg)
            file.seek(0)
            return file.read()
    except FileNotFoundError as error:
        msg = f"{path}: no such file. {_REMAKE_HINT}"
        raise UsageError(msg) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            msg = f"{path}: {error.strerror}. Name a manifest."
            raise UsageError(msg) from error
        raise fsops.as_storage_error(error, path) from error


def _parsed(record: dict[str, Any]) -> DatasetManifest:
    rows = record["files"]
    paths = [row[0] for row in rows]
    sizes = [row[1] for row in rows]
    hexes = "".join(row[2] for row in rows)
    _require(all(type(path) is str for path in paths), "a path is no text")
    _require(
        all(one < other for one, other in pairwise(paths)),
        "files are not in the order of their paths",
    )
    _require(all(type(size) is int and size >= 0 for size in sizes), "a size is no number")
    _require(
        len(hexes) == 32 * len(rows) and (not rows or _HEX.fullmatch(hexes) is not None),
        "a digest is none",
    )
    digests = np.frombuffer(hexes.encode(), "S32") if rows else np.zeros(0, "S32")
    files = Files(paths, np.array(sizes, np.int64), digests)
    skipped = [(_text(path), _text(reason)) for path, reason in record["skipped"]]
    samples = None
    if "samples" in record:
        sample_rows = DigestRows(_row(key, row) for key, row in record["samples"])
        unread = {_text(key): _text(fault) for key, fault in record["unread"]}
        samples = SampleDigests(
            _text(record["schema"]), sample_rows, unread, _text(record.get("reading", ""))
        )
    manifest = DatasetManifest(files, samples, skipped)
    _require(record["root"] == manifest.root, "its root is not that of its files")
    return manifest


def _row(key: Any, row: dict[str, Any]) -> tuple[str, tuple[str, ...], bytes]:
    _require(all(map(_HEX64.fullmatch, row.values())), "a digest is none")
    return _text(key), tuple(sorted(row)), bytes.fromhex("".join(row[name] for name in sorted(row)))


def _text(value: Any) -> str:
    _require(type(value) is str, "a name is no text")
    return str(value)


# Reads as a sentence at the call
def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise ValueError(otherwise)
