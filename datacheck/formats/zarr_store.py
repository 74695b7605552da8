"""Zarr stores in a folder, versions 2 and 3, as containers of arrays and text.

The store finds the arrays and reads their chunks by handle, without following links. What zarr may
decode is decided elsewhere: `zarr_metadata` checks the documents that describe an array, and
`zarr_codecs` limits what its chunks expand to.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from operator import ge
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    DEPTH,
    check_bytes,
    check_expansion,
    expand,
    matching,
    plain,
    plain_type,
    wrap_errors,
)
from datacheck.formats.parsed import from_python
from datacheck.formats.zarr_codecs import bounded
from datacheck.formats.zarr_metadata import (
    V3_DOCUMENT,
    ArrayMetadata,
    Consolidated,
    check_consolidated,
    node_kind,
    read_array_metadata,
    read_consolidated,
    read_mapping,
)
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath, ConfinedFolder, File

_CHUNK_BYTES = 1 << 30
_NODES = 100_000
_CHUNKS = 1_000_000
_ABSENT = 10_000  # from so many missing chunks on, only existing chunks are read
# But only up to so many existing ones; with more, reading all costs little extra.
_PRESENT = 100_000
_SOLE = "array"  # the name of the value of a store that is one array
_ROOT = ""
_LINK = "a link inside a store is not followed"


@dataclass(frozen=True, slots=True)
class _StoredChunks:
    """The chunk files of an array.

    Args:
        size: bytes of all files.
        files: number of files.
        paths: the paths of the first `_PRESENT` files, relative to the array.
    """

    size: int
    files: int
    paths: list[str]


class _ZarrStore(Container):
    """A Zarr store in a folder."""

    def __init__(self, root: AnyPath) -> None:
        self._root = (
            root.without_links()
            if isinstance(root, File)
            else File(ConfinedFolder(root), "", links=False)
        )
        self._is_array = node_kind(self._root) == "array"
        # Both cached: rows of one array are read in many calls.
        self._chunks: dict[File, _StoredChunks] = {}
        self._consolidated: dict[str, list[Consolidated]] = {}

    def names(self) -> list[str]:
        if self._is_array:
            return self._names_of(_ROOT)
        names: list[str] = []
        waiting = [_ROOT]
        folders = 0
        while waiting:
            for inner in self._below(waiting.pop()):
                folders += 1
                if self._kind_of(inner) == "array":
                    names += self._names_of(inner)
                elif inner.count("/") < DEPTH:
                    waiting.append(inner)
            if folders > _NODES:
                msg = f"more than {_NODES:,} folders"
                raise FormatError(msg)
        if not names:
            msg = "a Zarr store that holds no array"
            raise FormatError(msg)
        return sorted(names)

    def _kind_of(self, inner: str) -> str:
        try:
            return node_kind(self._root / inner)
        except FormatError:
            return "array"  # broken: reading it raises the error

    def _below(self, inner: str) -> list[str]:
        """Return the inner paths of the folders directly below one, sorted."""
        with os.scandir(self._root / inner) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or _hides_folder(entry)
            ]
        prefix = f"{inner}/" if inner else ""
        return [f"{prefix}{name}" for name in sorted(names) if not name.startswith(".")]

    def _names_of(self, inner: str) -> list[str]:
        """Return the names of an array's values: one, or one for each member of a structure."""
        name = inner or _SOLE
        try:
            dtype = read_array_metadata(self._folder(inner)).dtype
        except FormatError:
            return [name]
        if dtype is not None and dtype.names is not None:
            return sorted(expand(name, np.empty(0, dtype)))
        return [name]

    def _folder(self, inner: str) -> File:
        """Return the folder of an inner path; the path stays inside the store."""
        parts = [part for part in inner.split("/") if part]
        if any(part in {".", ".."} or "\0" in part for part in parts):
            raise KeyError(inner)
        folder = self._root / "/".join(parts) if parts else self._root
        try:
            folder.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                msg = f"{inner}: {_LINK}"
                raise FormatError(msg) from error
        return folder

    def _locate(self, name: str) -> tuple[str, File]:
        """Return (inner path, folder) of the array that holds a value."""
        name = name.strip("/")
        cut = len(name)
        while cut > 0:
            inner = _ROOT if self._is_array else name[:cut]
            folder = self._folder(inner)
            if (
                folder.is_dir()
                and self._kind_of(inner) == "array"
                and name.startswith(inner or _SOLE)
            ):
                return inner, folder
            cut = name.rfind(".", 0, cut)  # a dot precedes a member of a structure
        raise KeyError(name)

    def read(self, name: str) -> Any:
        inner, folder = self._locate(name)
        name = name.strip("/")
        try:
            self._check_consolidated(inner, read_array_metadata(folder))
            values = expand(inner or _SOLE, self._decoded(folder))
        except FormatError as error:
            msg = f"{inner or _SOLE}: {error}"
            raise FormatError(msg) from error
        value = values[name]
        if isinstance(value, FormatError):
            raise value
        return value

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        inner, folder = self._locate(name)
        meta = read_array_metadata(folder)
        if meta.dtype is None or meta.dtype.kind not in "biuf" or not meta.shape:
            return super().read_rows(name, start, stop)
        if name.strip("/") != (inner or _SOLE):
            raise KeyError(name)
        try:
            self._check_consolidated(inner, meta)
            return plain(self._decoded(folder, (start, min(stop, meta.shape[0]))))
        except FormatError as error:
            msg = f"{inner or _SOLE}: {error}"
            raise FormatError(msg) from error

    def _check_consolidated(self, inner: str, meta: ArrayMetadata) -> None:
        """Refuse an array that the consolidated metadata of a group contradict: zarr reads by them.

        Raises:
            FormatError: they contradict it, or cannot be read.
        """
        parts = inner.split("/") if inner else []
        for depth in range(len(parts)):
            group = "/".join(parts[:depth])
            path = "/".join(parts[depth:])
            if group not in self._consolidated:
                folder = self._root / group if group else self._root
                self._consolidated[group] = read_consolidated(folder)
            for consolidated in self._consolidated[group]:
                check_consolidated(meta, path, consolidated)

    def _decoded(self, folder: File, rows: tuple[int, int] | None = None) -> Array:
        """Return all values of one array, or its rows [start, stop)."""
        meta = read_array_metadata(folder)
        if folder not in self._chunks:
            self._chunks[folder] = _stored_chunks(folder, meta)
        stored = self._chunks[folder]
        first, stop = (0, meta.shape[0] if meta.shape else 0) if rows is None else rows
        shape = meta.shape if rows is None else (max(0, stop - first), *meta.shape[1:])
        chunk_count = math.prod(
            -(-size // chunk) for size, chunk in zip(meta.shape, meta.chunks, strict=True)
        )
        _check_array_size(meta, shape, stored, chunk_count)
        import zarr  # noqa: PLC0415  0.2 s, for stores of this format only

        with wrap_errors("damaged Zarr array"):
            store = _folder_store()(folder, meta)
            array = bounded(zarr.open_array(store, mode="r", zarr_format=meta.version))
            all_listed = stored.files == len(stored.paths)
            if chunk_count - stored.files > _ABSENT and all_listed and meta.dtype is not None:
                return _read_present(array, stored.paths, meta, first, stop)
            values = np.asarray(array[...] if rows is None else array[first:stop])
            return values.astype(str) if values.dtype.kind == "O" else values

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        _, folder = self._locate(name)
        meta = read_array_metadata(folder)
        if meta.dtype is None or meta.dtype.kind not in "biufcMm":
            return super().peek(name)
        pair = (2,) if meta.dtype.kind == "c" else ()
        return (*meta.shape, *pair), plain_type(meta.dtype).str

    def stores_text(self, name: str) -> bool:
        _, folder = self._locate(name)
        dtype = read_array_metadata(folder).dtype
        return dtype is None or dtype.kind in "SU"

    def attrs(self, name: str = "") -> dict[str, Any]:
        """Return the attributes of a group or array: arrays, text, JSON."""
        is_root = self._is_array and name == _SOLE
        folder = self._folder(_ROOT if is_root else name.strip("/"))
        attributes: Any = {}
        if (folder / V3_DOCUMENT).is_file():
            attributes = read_mapping(folder / V3_DOCUMENT).get("attributes")
        elif (folder / ".zattrs").is_file():
            attributes = read_mapping(folder / ".zattrs")
        items = sorted(attributes.items()) if isinstance(attributes, dict) else []
        return {key: from_python(value) for key, value in items if value is not None}

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match ``/data/demo_*``, sorted; ``*`` stays in one level."""
        return matching(pattern, self._below, lambda inner: self._kind_of(inner) != "array")


def _hides_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a link hides an array or a group; a link to a file is no part of a store."""
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:  # the link leads to itself, or to a folder without permission
        return True


def _check_array_size(
    meta: ArrayMetadata, shape: tuple[int, ...], stored: _StoredChunks, chunk_count: int
) -> None:
    """Refuse to read values of `shape`: too large, of too many chunks, or of missing ones."""
    itemsize = 16 if meta.dtype is None else meta.dtype.itemsize
    check_bytes(math.prod(meta.chunks) * itemsize, "one chunk", _CHUNK_BYTES)
    check_expansion(math.prod(shape) * itemsize, stored.size, "the array")
    if chunk_count > _CHUNKS:
        msg = f"{chunk_count:,} chunks; at most {_CHUNKS:,} are read"
        raise FormatError(msg)
    if meta.fill is None and stored.files < chunk_count:
        msg = (
            f"{chunk_count - stored.files:,} of {chunk_count:,} chunks are missing, and there is no "
            f"fill value for them to stand for"
        )
        raise FormatError(msg)


def _read_present(
    array: Any, chunk_paths: list[str], meta: ArrayMetadata, first: int, stop: int
) -> Array:
    """Return rows [first, stop) of an array; reads only existing chunks.

    Asking zarr for a missing chunk costs as much as reading an existing one.
    """
    values = np.full((max(0, stop - first), *meta.shape[1:]), array.fill_value, array.dtype)
    for path in chunk_paths:
        spans = [
            slice(index * chunk, min(size, (index + 1) * chunk))
            for index, chunk, size in zip(_grid_index(path), meta.chunks, meta.shape, strict=True)
        ]
        rows = slice(max(spans[0].start, first), min(spans[0].stop, stop))
        if rows.start < rows.stop:
            target = slice(rows.start - first, rows.stop - first)
            values[target, *spans[1:]] = array[rows, *spans[1:]]
    return values


def _grid_index(path: str) -> list[int]:
    """Return the place of a chunk in the grid, from its path."""
    return [int(number) for number in re.findall(r"[0-9]+", path)]


def _stored_chunks(folder: File, meta: ArrayMetadata) -> _StoredChunks:
    """Return the chunk files of an array.

    Raises:
        FormatError: the folder holds a link, a file that is no chunk, or a chunk outside of the
            array.
    """
    grid = [-(-size // chunk) for size, chunk in zip(meta.shape, meta.chunks, strict=True)]
    size = 0
    files = 0
    paths: list[str] = []
    for inner, entry in _below(folder):
        if entry.is_symlink():
            msg = f"{inner}: {_LINK}"
            raise FormatError(msg)
        if entry.is_dir() or entry.name.startswith(".") or inner == V3_DOCUMENT:
            continue
        # zarr would not read this file and would give the fill value instead.
        if not meta.chunk_path.fullmatch(inner):
            msg = (
                f"{inner} is no chunk by the store's own naming ({meta.chunk_path.pattern}); its "
                f"values would be passed over"
            )
            raise FormatError(msg)
        if any(map(ge, _grid_index(inner), grid)):
            msg = (
                f"the chunk {inner} lies outside of the shape {list(meta.shape)}; its values would "
                f"be passed over"
            )
            raise FormatError(msg)
        size += entry.stat(follow_symlinks=False).st_size
        files += 1
        if len(paths) < _PRESENT:
            paths.append(inner)
    return _StoredChunks(size, files, paths)


def _below(folder: File) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield (relative path, entry) of everything below a folder.

    Does not follow links and does not enter hidden folders.
    """
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        current = folder / relative if relative else folder
        with os.scandir(current) as entries:
            for entry in entries:
                inner = f"{relative}/{entry.name}" if relative else entry.name
                yield inner, entry
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    waiting.append(inner)


def _byte_range(request: Any, size: int) -> tuple[int, int]:
    """Return the byte range [start, stop) of a request by zarr to a file of `size` bytes."""
    # Imported together with zarr only.
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: PLC0415

    if isinstance(request, RangeByteRequest):
        return request.start, min(request.end, size)
    if isinstance(request, OffsetByteRequest):
        return request.offset, size
    if isinstance(request, SuffixByteRequest):
        return max(0, size - request.suffix), size
    return 0, size


@cache
def _folder_store() -> Any:
    """Return zarr's store class for a folder; it opens chunks by handle and follows no link."""
    import asyncio  # noqa: PLC0415  with zarr

    import zarr  # noqa: PLC0415  as above

    class ConfinedStore(zarr.storage.LocalStore):  # type: ignore[misc]
        def __init__(self, folder: File, meta: ArrayMetadata) -> None:
            super().__init__(Path(os.fspath(folder)), read_only=True)
            self._folder = folder
            self._meta = meta

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            return await asyncio.to_thread(self._read, key, prototype, byte_range)

        def _read(self, key: str, prototype: Any, byte_range: Any) -> Any:
            # The bytes that were checked, even if the file has changed since.
            if key == self._meta.document_name:
                return _buffer(self._meta.document, prototype)
            if not self._meta.chunk_path.fullmatch(key):  # other metadata: attributes
                return None
            try:
                with (self._folder / key).open(buffering=0) as file:
                    start, stop = _byte_range(byte_range, os.fstat(file.fileno()).st_size)
                    check_bytes(stop - start, f"chunk {key}", _CHUNK_BYTES)
                    file.seek(start)
                    data = file.read(max(0, stop - start))
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None
            return _buffer(data, prototype)

    def _buffer(data: bytes, prototype: Any) -> Any:
        return (prototype or zarr.core.buffer.default_buffer_prototype()).buffer.from_bytes(data)

    return ConfinedStore


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _ZarrStore(path)


ZARR = Format("zarr", (".zarr",), _open, directory=(".zgroup", ".zarray", V3_DOCUMENT))
