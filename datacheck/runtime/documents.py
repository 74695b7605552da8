"""Read untrusted documents: check sizes and counts before allocating memory."""

from __future__ import annotations

import errno
import io
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from datacheck.runtime.beneath import is_mostly_holes, open_regular, read_file

Array = np.ndarray[Any, Any]

MIB = 1 << 20
DEPTH = 64  # levels of lists and objects of one JSON document
VALUES = 2_000_000  # of one JSON document; an empty list or mapping takes up to 72 bytes
_CONTAINERS = frozenset({dict, list})  # a parser makes no subclasses of them
_MEMBERS = 10_000
_DIRECTORY_BYTES = 4 * MIB
_HEADER_BYTES = 10_000
_KINDS = "biufcSU"


def open_document(path: str | os.PathLike[str], limit: int, *, links: bool = True) -> BinaryIO:
    """Open a regular file of at most `limit` bytes that is not mostly holes.

    Args:
        path: the file.
        limit: bytes.
        links: follow a link at `path`.

    Raises:
        OSError: the file is missing, not a regular file, larger than `limit` (EFBIG), or mostly
            holes (a sparse file).
    """
    file = os.fdopen(open_regular(path, links=links), "rb")
    try:
        _check_size(file.fileno(), limit)
    except OSError:
        file.close()
        raise
    return file


def _check_size(descriptor: int, limit: int) -> None:
    status = os.fstat(descriptor)
    size = status.st_size
    if size > limit:
        raise OSError(errno.EFBIG, f"{size:,} bytes; at most {limit:,} are read")
    if is_mostly_holes(descriptor, status):
        raise OSError(
            errno.EFBIG, f"{size:,} bytes, most of which were never written (a sparse file)"
        )


def read_json(
    path: str | os.PathLike[str], limit: int, values: int = VALUES, *, links: bool = True
) -> Any:
    """Return the value of a JSON file.

    Args:
        path: the file.
        limit: bytes.
        values: approximate limit on the number of lists, mappings and scalars.
        links: follow a link at `path`.

    Raises:
        OSError: the file is missing, not a regular file, or larger than `limit`.
        ValueError: the file is not JSON, is nested too deep, or holds more than `values` values.
    """
    return parse_json(read_file(path, limit, links=links), values)


def parse_json(data: bytes, values: int = VALUES) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: the text is not JSON, is nested too deep, or holds more than `values` values.
    """
    check_values(data, values)
    value = orjson.loads(data)
    if count_brackets(data) > DEPTH:
        check_depth(value)
    return value


def count_brackets(data: bytes) -> int:
    """Return the number of opening brackets in JSON text: no value is nested deeper.

    Counts those inside strings, too.
    """
    return data.count(b"[") + data.count(b"{")


def check_depth(said: Any) -> None:
    """Refuse lists and objects nested deeper than `DEPTH`: later steps recurse over them.

    Raises:
        ValueError: the nesting is deeper.
    """
    level = [said]
    for _ in range(DEPTH):
        inner = (
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)
        )
        # Not isinstance: a document may hold millions of values, and it takes twice the time.
        level = [item for item in inner if type(item) in _CONTAINERS]
        if not level:
            return
    msg = f"nested deeper than {DEPTH} levels"
    raise ValueError(msg)


def check_values(data: bytes, most: int = VALUES) -> None:
    """Refuse JSON with too many values.

    In ``[[],[],...]`` every three bytes of text take 64 bytes of memory.

    Raises:
        ValueError: the text has more than `most` commas and opening brackets.
    """
    if len(data) > most and (count := count_json(data)) > most:
        msg = f"about {count:,} values; at most {most:,} are read"
        raise ValueError(msg)


def count_json(data: bytes) -> int:
    """Return the approximate number of values in JSON text.

    Counts commas and opening brackets, including those inside strings.
    """
    return sum(map(data.count, (b",", b"[", b"{")))


def count_values(value: Any, most: int) -> int:
    """Return the number of values in a mapping or list, at all depths.

    Counting stops soon after `most` is exceeded.
    """
    count = 0
    waiting = [value]
    while waiting and count <= most:
        container = waiting.pop()
        container = container.values() if isinstance(container, dict) else container
        count += len(container)
        waiting += [element for element in container if isinstance(element, dict | list)]
    return count


class Arrays(Mapping[str, Array]):
    """The arrays of an .npz file written by `numpy.savez`.

    Its members are stored, not compressed, so no array is larger than the file.

    Raises:
        OSError: see `open_document`.
        ValueError: the file is not such an archive.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int, *, links: bool = True) -> None:
        self._path = Path(path)
        self._file = open_document(path, limit, links=links)
        try:
            size = self._file.seek(0, io.SEEK_END)
            _check_directory(self._file, size)
            self._zip = zipfile.ZipFile(self._file)
            self._infos = {
                info.filename.removesuffix(".npy"): info for info in self._zip.infolist()
            }
            self._check(size)
        except (
            zipfile.BadZipFile,
            NotImplementedError,
            EOFError,
            OverflowError,
            UnicodeError,
            LookupError,
        ) as error:
            self._file.close()
            msg = f"{self._path.name} is damaged ({error})"
            raise ValueError(msg) from error
        except BaseException:
            self._file.close()
            raise

    def _check(self, size: int) -> None:
        infos = self._zip.infolist()
        packed = any(
            info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos
        )
        if packed or len(infos) > _MEMBERS or sum(info.file_size for info in infos) > size:
            msg = f"{self._path.name}: not as datacheck writes it, its arrays are packed or overlap"
            raise ValueError(msg)

    def __getitem__(self, name: str) -> Array:
        """Return an array.

        Raises:
            KeyError: the archive has no array of that name.
            ValueError: the array is damaged, or its header does not match its size.
        """
        info = self._infos[name]
        try:
            with self._zip.open(info) as member:
                return _array(member, info.file_size)
        except (
            zipfile.BadZipFile,
            EOFError,
            OSError,
            OverflowError,
            RecursionError,
            SyntaxError,
            TypeError,
        ) as error:
            msg = f"{self._path.name}: the array {name!r} is damaged ({error})"
            raise ValueError(msg) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()


def _check_directory(file: BinaryIO, size: int) -> None:
    """Refuse an archive with a long list of members, because `zipfile` reads all of it.

    Raises:
        ValueError: the list is too long, or bytes follow the archive's end record (`numpy.savez`
            writes none).
    """
    # ZIP64 end record (56 bytes), its locator (20), end record (22)
    file.seek(max(0, size - 98))
    tail = file.read()
    end = tail[-22:]
    pointer = tail[-42:-22]
    large = tail[-98:-42]
    sizes = (
        [struct.unpack_from("<I", end, 12)[0]]
        if end.startswith(b"PK\5\6") and len(end) == 22
        else []
    )
    if pointer.startswith(b"PK\6\7"):
        sizes.append(struct.unpack_from("<Q", large, 40)[0] if len(large) == 56 else size)
    if not sizes or max(sizes) > _DIRECTORY_BYTES:
        msg = "a list of members that datacheck does not write"
        raise ValueError(msg)


def _array(member: Any, size: int) -> Array:
    version = np.lib.format.read_magic(member)
    if version != (1, 0):
        msg = f"of version {version}"
        raise ValueError(msg)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(
        member, max_header_size=_HEADER_BYTES
    )
    remaining = size - member.tell()
    sound = dtype.kind in _KINDS and dtype.itemsize > 0 and min(shape, default=0) >= 0
    if not sound or dtype.itemsize * prod(shape) != remaining:
        msg = f"its header says {dtype.str} {shape}, and {remaining:,} bytes are there"
        raise ValueError(msg)
    flat = np.empty(remaining, np.uint8)
    if member.readinto(flat) != remaining or member.read(1):
        msg = "it ends too soon"
        raise ValueError(msg)
    array: Array = (
        flat.view(dtype).reshape(shape, order="F" if fortran else "C")
        if remaining
        else np.empty(shape, dtype)
    )
    return array
