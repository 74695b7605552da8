"""Open files by listing path, and check that they do not change while they are read.

Files that a parser takes whole are read once: the parser and the digest share these bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import (
    HEAD_BYTES,
    Format,
    Hint,
    TableLayout,
    format_of,
    open_container,
    parse_container,
)
from datacheck.model.sample import Container
from datacheck.runtime.aligned import empty
from datacheck.runtime.beneath import HOLE_BYTES, File, check_holes, stamp_of
from datacheck.runtime.hashing import Digester, digest_bytes
from datacheck.schema.patterns import Template
from datacheck.sources.listing import LINKED, size_of
from datacheck.sources.roots import HOLE, Roots, locate
from datacheck.sources.values import ColumnMajorTable

Array = np.ndarray[Any, Any]

WHOLE_BYTES = 64 << 20  # larger files are read in pieces or mapped
_PLANAR_BYTES = 1 << 20  # tables from this size are transposed while reading
_PIECE_BYTES = 1 << 19  # piece of a table that is read and transposed within a core's cache
_MOST_COLUMNS = 64
_WRITTEN = "changed while it was read"


class Opener:
    """Opens the files of one dataset.

    Args:
        root, roots: the data folder and the extra ones.
        whole: read files whole where their format allows it; a scan of headers alone does not.
        together: return large tables with contiguous columns; tables of one layout share a buffer
            with this many bytes per column. 0: return tables as stored.

    Attributes:
        folders: opens the files.
        digests: digests of the files that were read whole, by listing path.
    """

    def __init__(
        self, root: Path, roots: Mapping[str, Path], *, whole: bool, together: int = 0
    ) -> None:
        self.folders = Roots(root, roots)
        self._root, self._roots, self._whole, self._together = root, roots, whole, together
        self._base = os.fspath(root)
        # Buffer of the last tables; the first `_filled` rows are used.
        self._room: Array | None = None
        self._filled = 0
        self.digests: dict[str, str] = {}
        self._matching: dict[str, list[str]] = {}  # matching files by pattern

    def exists(self, path: str) -> bool:
        """Return whether something has this listing path, even if it may not be opened."""
        return os.path.exists(self._place(path))  # noqa: PTH110  called for every sample

    def _place(self, path: str) -> str:
        return (
            str(locate(self._root, self._roots, path))
            if path.startswith("@")
            else f"{self._base}/{path}"
        )

    def takes(self, path: str, nbytes: int) -> Format | None:
        """Return the format that parses a file of this size whole; None where none does."""
        file_format = format_of(path) if self._whole and 0 < nbytes <= WHOLE_BYTES else None
        return None if file_format is None or file_format.parse is None else file_format

    def parsed(self, found: Format, path: str, nbytes: int, hint: Hint | None) -> Container:
        """Read a file whole and parse it.

        Raises:
            FormatError: the file cannot be read, has changed, or is damaged.
        """
        if self._together and found.table is not None and nbytes >= _PLANAR_BYTES:
            planar_table = self._planar_table(path, nbytes, found)
            if planar_table is not None:
                return planar_table
        return self._parsed(found, path, nbytes, hint)

    def _parsed(self, file_format: Format, path: str, nbytes: int, hint: Hint | None) -> Container:
        data = _read(self.folders, path, nbytes)
        self.digests[path] = digest_bytes(data)
        return parse_container(file_format, data, hint)

    def _planar_table(self, path: str, nbytes: int, file_format: Format) -> Container | None:
        """Return the table of a file with contiguous columns; None for other layouts."""
        assert file_format.table is not None
        with _open_unchanged(self.folders, path, nbytes) as file:
            table = file_format.table(os.pread(file, HEAD_BYTES, 0), nbytes)
            if table is None or not 1 < table.columns <= _MOST_COLUMNS:
                return None
            planes = self._column_buffer(table)
            digest = _read_planes(file, table, planes)
        self._filled += table.rows
        self.digests[path] = digest
        return ColumnMajorTable({table.name: planes.T})

    def _column_buffer(self, table: TableLayout) -> Array:
        """Return a buffer for a table's columns next to the last table's: blocks need no copy.

        Shapes:
            returns: any (columns, rows), each column contiguous

        Notes:
            A table of another layout than the one before gets a buffer of its own size: with
            alternating layouts, shared buffers would take many times the memory.
        """
        buffer = self._room
        same_layout = buffer is None or (
            buffer.dtype == table.dtype and len(buffer) == table.columns
        )
        if buffer is None or not same_layout or buffer.shape[1] - self._filled < table.rows:
            rows = self._together // table.dtype.itemsize if same_layout else 0
            buffer = empty((table.columns, max(rows, table.rows)), table.dtype)
            self._room, self._filled = buffer, 0
        return buffer[:, self._filled : self._filled + table.rows]

    def opened(self, path: str, hint: Hint) -> Container:
        """Open a companion of any size.

        Raises:
            FormatError: it cannot be read, or is damaged.
        """
        try:
            nbytes = os.stat(self._place(path)).st_size  # noqa: PTH116  called for every sample
            if nbytes > HOLE_BYTES:
                check_holes(self.folders.file(path))
        except OSError as error:
            raise FormatError((error.strerror or str(error)).lower()) from error
        file_format = self.takes(path, nbytes)
        if file_format is not None:
            return self._parsed(file_format, path, nbytes, hint)
        return open_container(self.file(path), hint)

    @contextmanager
    def listed(
        self, path: str, nbytes: int, hint: Hint | None, *, whole: bool
    ) -> Iterator[Container]:
        """Open a file that no parser takes whole; check that it does not change meanwhile.

        Args:
            path, nbytes: its listing path and size.
            hint: what the schema expects.
            whole: False keeps the file open for the next part.

        Raises:
            FormatError: it cannot be opened, or it changed.
        """
        with (
            self.unchanged(path, nbytes) as file,
            open_container(file, hint) if whole else _HELD.opened(file, hint) as container,
        ):
            yield container

    @contextmanager
    def unchanged(self, path: str, nbytes: int = 0) -> Iterator[File]:
        """Check that a file has the listed size and does not change while it is read.

        Zarr folders are not checked.

        Raises:
            FormatError: it changed, vanished, or the operating system refused access.
        """
        file = self.file(path)
        try:
            status_before = file.stat()
            if nbytes and status_before.st_size != nbytes and not file.is_dir():
                msg = (
                    f"changed after it was listed: {nbytes} bytes then, {status_before.st_size} now"
                )
                raise FormatError(msg)
            check_holes(file)
            yield file
            if _state(file.stat()) != _state(status_before) and not file.is_dir():
                raise FormatError(_WRITTEN)
        except OSError as error:
            raise FormatError((error.strerror or str(error)).lower()) from error

    def file(self, path: str) -> File:
        """Return a file by its listing path, for a format that reads parts of it.

        Raises:
            FormatError: its folder cannot be opened.
        """
        try:
            return self.folders.file(path)
        except OSError as error:
            raise FormatError((error.strerror or str(error)).lower()) from error

    def beside(self, path: str) -> list[str]:
        """Return the existing files next to a file that its format reads too."""
        form = format_of(path)
        folder = path.rpartition("/")[0]
        sibling_paths = [f"{folder}/{name}".lstrip("/") for name in (form.beside if form else ())]
        return [path for path in sibling_paths if self.file(path).is_file()]

    def matching(self, template: Template, names: Mapping[str, str]) -> list[str]:
        """Return the files that may match a pattern where only some placeholders are known.

        Names of groups inside a file supply the other placeholders.
        """
        pattern = template.substitute({name: names.get(name, HOLE) for name in template.names})
        if pattern not in self._matching:
            candidates = self.folders.matching(pattern, LINKED)
            self._matching[pattern] = [
                path for path in candidates if template.match(path) and self.is_inside(path)
            ]
        return self._matching[pattern]

    def is_inside(self, path: str) -> bool:
        """Return whether a file exists and no link leads out of its folder."""
        try:
            self.folders.file(path).stat()
        except OSError:
            return False  # a link out of the folder: never list its names
        return True

    def budget_bytes(self, paths: Iterable[str]) -> int:
        """Return the bytes of files that justify a memory budget; see `Roots.budget_bytes`."""
        return sum(size_of(self._root, self._roots, path) for path in paths)


class _OpenLargeFile:
    """Keeps a large file open between parts, so that a read of the next part continues there.

    Notes:
        A compressed stream or a single row group cannot be entered in the middle. Several tasks of
        one process often read the parts of one file.
    """

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        self._container: Container | None = None

    @contextmanager
    def opened(self, path: File, hint: Hint | None) -> Iterator[Container]:
        """Open a file, or continue with the open one.

        Raises:
            FormatError: it cannot be opened.
        """
        status = path.stat()
        identity = path.name, status.st_dev, *stamp_of(status), hint
        container = self._taken(identity) or open_container(path, hint)
        try:
            yield container
        except BaseException:
            container.close()
            raise
        self._close()
        self._known, self._container = identity, container

    def _taken(self, identity: tuple[object, ...]) -> Container | None:
        """Take the open file, which has one user at a time; close it if it is another file."""
        if identity != self._known:
            self._close()
        container, self._container = self._container, None
        return container

    def _close(self) -> None:
        if self._container is not None:
            self._container.close()
        self._container = None


_HELD = _OpenLargeFile()


@contextmanager
def _open_unchanged(folders: Roots, path: str, nbytes: int) -> Iterator[int]:
    """Open a file; check that it has the listed size and does not change meanwhile."""
    try:
        file = folders.descriptor(path)
        try:
            before = os.fstat(file)
            if before.st_size != nbytes:
                msg = f"changed after it was listed: {nbytes} bytes then, {before.st_size} now"
                raise FormatError(msg)
            yield file
            after = os.fstat(file)
        finally:
            os.close(file)
    except OSError as error:
        raise FormatError((error.strerror or str(error)).lower()) from error
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise FormatError(_WRITTEN)


def _state(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _read(folders: Roots, path: str, nbytes: int) -> bytes:
    """Return the bytes of a file."""
    with _open_unchanged(folders, path, nbytes) as file:
        data = os.read(file, nbytes + 1)
        while len(data) < nbytes and (chunk := os.read(file, nbytes + 1 - len(data))):
            data += chunk
    if len(data) != nbytes:
        raise FormatError(_WRITTEN)
    return data


def _read_planes(file: int, table: TableLayout, planes: Array) -> str:
    """Fill in the columns of a table and return the digest of its file.

    Shapes:
        planes: any (columns, rows)

    Notes:
        Transposing only after the whole read takes half as long again: by then the data have left
        the cache.
    """
    digester = Digester()
    digester.update(os.read(file, table.start))
    width = table.columns * table.dtype.itemsize
    step = max(1, _PIECE_BYTES // width)
    piece = empty((min(step, table.rows), table.columns), table.dtype)
    for start in range(0, table.rows, step):
        rows = piece[: table.rows - start]
        view = memoryview(rows.data).cast("B")
        bytes_read = 0
        while bytes_read < len(view):
            byte_count = os.readv(file, [view[bytes_read:]])
            if not byte_count:
                raise FormatError(_WRITTEN)
            bytes_read += byte_count
        digester.update(view)
        planes[:, start : start + len(rows)] = rows.T
    return digester.hexdigest()
