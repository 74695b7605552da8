"""NumPy's .npy and .npz files.

The header is parsed here, and sizes are checked before anything is allocated. Arrays of objects (a
dict saved with ``np.save``) go through the restricted unpickler only.
"""

from __future__ import annotations

import ast
import io
import math
import re
import zipfile
from functools import lru_cache
from itertools import pairwise
from typing import IO, Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint, TableLayout
from datacheck.formats.limits import (
    DEPTH,
    VALUE_BYTES,
    CountedContainer,
    Values,
    check_bytes,
    expand,
    plain_type,
    stored,
    wrap_errors,
)
from datacheck.formats.pickle_safe import unpickle
from datacheck.formats.zip_extents import check_extents
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

_MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 10_000  # NumPy's own limit
_FIRST_READ = 1 << 16  # most of 83,000 pose files fit into it
_ZIPPED = b"PK\x03\x04"
# Python 2 wrote (5L, 3L); the first alternative skips strings: a column may be called q1L.
_LONG = re.compile(r"""('[^']*'|"[^"]*")|(\d)L\b""")
_PART = re.compile(r"[<>|=]?[?biufcSUVOMm]\d*(\[[\w/]+\])?")
# Of a zip member: how far it may expand, and the size that is always allowed.
_RATIO = 200
_FLOOR_BYTES = 64 << 20
_SKIPPED = 1 << 20  # bytes of a member that are unpacked at once to skip them
_SOLE = "array"  # name of the array in an .npy file


class _Header(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  # of the data


def _header(head: bytes) -> _Header:
    """Return the header of an .npy file from its first 10,016 bytes or more, or all of it."""
    if head[:6] != _MAGIC:
        msg = f"not an .npy file: it starts with {head[:6]!r}, not with {_MAGIC!r}"
        raise FormatError(msg)
    if len(head) < 12 or head[6] not in {1, 2, 3} or head[7]:
        msg = f".npy version {head[6:8].hex(' ') or 'missing'}; versions 1.0, 2.0 and 3.0 are read"
        raise FormatError(msg)
    width = 2 if head[6] == 1 else 4
    size = int.from_bytes(head[8 : 8 + width], "little")
    start = 8 + width + size
    if size > _HEADER_BYTES or start > len(head):
        msg = (
            f"an .npy header of {size:,} bytes is cut short, or longer than the "
            f"{_HEADER_BYTES:,} that are read"
        )
        raise FormatError(msg)
    dtype, shape, fortran = _parse(head[8 + width : start], head[6])
    return _Header(dtype, shape, fortran, start)


@lru_cache(maxsize=4096)
def _parse(raw: bytes, version: int) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    with wrap_errors("damaged .npy header"):
        source = raw.decode("utf-8" if version == 3 else "latin1")
        try:
            header = ast.literal_eval(source.strip(" \n"))
        except SyntaxError:
            if version == 3:
                raise
            header = ast.literal_eval(
                _LONG.sub(lambda part: part[1] or part[2], source).strip(" \n")
            )
        if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
            msg = "an .npy header holds descr, fortran_order and shape"
            raise FormatError(msg)
        shape = header["shape"]
        fortran = header["fortran_order"]
        if type(fortran) is not bool or not isinstance(shape, tuple) or len(shape) > DEPTH:
            msg = f"an .npy header with shape {str(shape)[:60]}"
            raise FormatError(msg)
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in shape):
            msg = f"an .npy header with shape {str(shape)[:60]}"
            raise FormatError(msg)
        _check_descr(header["descr"], DEPTH)
        return np.lib.format.descr_to_dtype(header["descr"]), shape, fortran


def _check_descr(descr: Any, depth: int) -> None:
    if isinstance(descr, str) and _PART.fullmatch(descr):
        return
    if isinstance(descr, list) and depth:
        for member in descr:
            if not isinstance(member, tuple) or len(member) not in {2, 3}:
                break
            _check_descr(member[1], depth - 1)
        else:
            return
    msg = f"an .npy header with type {str(descr)[:60]}"
    raise FormatError(msg)


def _check_size(header: _Header, size: int) -> None:
    if header.dtype.itemsize == 0:
        msg = f"an array of type {header.dtype}, which has no bytes"
        raise FormatError(msg)
    needed = math.prod(header.shape) * header.dtype.itemsize
    if header.start + needed != size:
        actual_size = size - header.start
        msg = (
            f"shape {header.shape} of {header.dtype} needs {needed:,} bytes, the file holds "
            f"{actual_size:,}"
        )
        raise FormatError(msg)


def _shaped(header: _Header, flat: Array) -> Array:
    with wrap_errors(f"shape {header.shape}"):
        return flat.reshape(header.shape[::-1]).T if header.fortran else flat.reshape(header.shape)


def _peeked(header: _Header) -> tuple[tuple[int, ...], str]:
    pair = (2,) if header.dtype.kind == "c" else ()
    return (*header.shape, *pair), plain_type(header.dtype).str


def _values(data: bytes, name: str) -> dict[str, Any]:
    """Return the values of one whole .npy in memory."""
    header = _header(data[: _HEADER_BYTES + 16])
    if header.dtype.hasobject:
        return _objects(header, data, name)
    _check_size(header, len(data))
    return expand(
        name, _shaped(header, np.frombuffer(data, dtype=header.dtype, offset=header.start))
    )


def _objects(header: _Header, data: bytes, name: str) -> dict[str, Any]:
    if header.dtype != np.dtype("O"):
        msg = f"a structured array with objects in it ({header.dtype}); save its members one by one"
        raise FormatError(msg)
    return unpickle(data[header.start :], sole=name, prefix="" if name == _SOLE else f"{name}/")


class _LazyArray(Container):
    """An .npy file of numbers, read or memory-mapped on access."""

    def __init__(self, path: AnyPath, header: _Header) -> None:
        self._path = path
        self._header = header

    def names(self) -> list[str]:
        return [_SOLE]

    def read(self, name: str) -> Any:
        if name != _SOLE:
            raise KeyError(name)
        header, dtype = self._header, self._header.dtype
        if dtype == plain_type(dtype) and not header.fortran:
            return stored(self._path, dtype, header.shape, header.start)
        check_bytes(math.prod(header.shape) * dtype.itemsize, _SOLE)
        return _values(self._path.read_bytes(), name)[name]

    def sliced(self, name: str) -> int | None:
        if name != _SOLE:
            raise KeyError(name)
        header, dtype = self._header, self._header.dtype
        return (
            header.shape[0]
            if header.shape and dtype == plain_type(dtype) and not header.fortran
            else None
        )

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        header, dtype = self._header, self._header.dtype
        if self.sliced(name) is None:
            return super().read_rows(name, start, stop)
        count = max(0, min(stop, header.shape[0]) - start)
        row = math.prod(header.shape[1:])
        with wrap_errors("the file cannot be read"):
            flat = np.fromfile(
                self._path, dtype, count * row, offset=header.start + start * row * dtype.itemsize
            )
            return flat.reshape(count, *header.shape[1:])

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        if name != _SOLE:
            raise KeyError(name)
        return _peeked(self._header)


def _table(head: bytes, size: int) -> TableLayout | None:
    """Return the layout of a plain table, None for other files; `_values` reports what is wrong."""
    try:
        header = _header(head)
        _check_size(header, size)
    except FormatError:
        return None
    if len(header.shape) != 2 or header.fortran or header.dtype.kind not in "biuf":
        return None
    plain = header.dtype == plain_type(header.dtype)
    return TableLayout(_SOLE, header.dtype, *header.shape, start=header.start) if plain else None


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        head = file.read(_FIRST_READ)
    if len(head) >= size:
        return Values(_values(head, _SOLE))
    header = _header(head)
    if header.dtype.kind in "biufc":
        _check_size(header, size)
        return _LazyArray(path, header)
    check_bytes(size, "the file")
    return Values(_values(path.read_bytes(), _SOLE))


class _Npz(CountedContainer):
    """A zip of .npy members, each read on access."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members = {_member_name(info): info for info in archive.infolist()}
        self._known = len(self._members)
        # The names of a structured member are read one after another.
        self._last: tuple[str, Values] | None = None
        self._headers: dict[str, _Header] = {}
        # By member: a stream that was read up to a row, and that row.
        self._streams: dict[str, tuple[IO[bytes], int]] = {}
        if len(self._members) != len(archive.infolist()):
            msg = "two members of the archive have one name"
            raise FormatError(msg)
        check_bytes(
            sum(info.file_size for info in archive.infolist()),
            "the members together",
            4 * VALUE_BYTES,
        )

    def names(self) -> list[str]:
        names = sorted(name for member in self._members for name in self._names_of(member))
        # Can happen for a member of a structured array and an array of that name.
        duplicate = next((name for name, other in pairwise(names) if name == other), None)
        if duplicate is not None:
            msg = f"two values are named {duplicate[:60]}"
            raise FormatError(msg)
        return names

    def _names_of(self, member: str) -> list[str]:
        """Return the names in one member; most members need only the header for that."""
        try:
            plain = self._header(member).dtype.kind not in "VO"
            return [member] if plain else self._values_of(member).names()
        except FormatError:
            return [member]  # broken: reading it raises the error

    def _header(self, member: str) -> _Header:
        if member not in self._headers:
            with self._stream(member) as stream, wrap_errors(member):
                self._headers[member] = _header(stream.read(_HEADER_BYTES + 16))
        return self._headers[member]

    def _stream(self, member: str) -> IO[bytes]:
        info = self._members[member]
        if not info.filename.endswith(".npy") or info.flag_bits & 1:
            msg = f"{member}: only plain .npy members are read"
            raise FormatError(msg)
        check_bytes(info.file_size, member)
        if info.file_size > max(_FLOOR_BYTES, _RATIO * info.compress_size):
            msg = (
                f"{member}: {info.file_size:,} bytes in {info.compress_size:,}; at most "
                f"{_RATIO}:1 is read"
            )
            raise FormatError(msg)
        with wrap_errors(member):
            return self._archive.open(info)

    def _values_of(self, member: str) -> Values:
        if self._last is not None and self._last[0] == member:
            return self._last[1]
        size = self._members[member].file_size
        with self._stream(member) as stream, wrap_errors(member):
            data = stream.read(size + 1)  # zipfile checks the CRC when it reaches the end
        if len(data) != size:
            msg = f"{member}: {size:,} bytes are declared, {len(data):,} unpacked"
            raise FormatError(msg)
        try:
            values = Values(_values(data, member))
        except FormatError as error:
            msg = f"{member}: {error}"
            raise FormatError(msg) from error
        self._last = member, values
        return values

    def _owner(self, name: str) -> str:
        owners = [m for m in self._members if name == m or name.startswith((f"{m}.", f"{m}/"))]
        if not owners:
            raise KeyError(name)
        return max(owners, key=len)

    def read(self, name: str) -> Any:
        return self._values_of(self._owner(name)).read(name)

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        owner = self._owner(name)
        header = self._header(owner)
        return (
            _peeked(header) if header.dtype.kind in "biufcMm" else self._values_of(owner).peek(name)
        )

    def stores_text(self, name: str) -> bool:
        return self._header(self._owner(name)).dtype.kind in "SU"

    def sliced(self, name: str) -> int | None:
        owner = self._owner(name)
        header = self._header(owner)
        try:
            _check_size(header, self._members[owner].file_size)
            plain = (
                header.dtype == plain_type(header.dtype) and not header.fortran and owner == name
            )
        except FormatError:
            return None  # reading the whole member raises the error
        return header.shape[0] if plain and header.shape else None

    def seek_points(self, name: str) -> Array | None:
        return np.zeros(1, np.int64)

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        """Return rows of a member.

        Compressed data cannot be entered in the middle: the stream is read on, or from the start.
        """
        if self.sliced(name) is None:
            return super().read_rows(name, start, stop)
        header = self._header(name)
        total = header.shape[0]
        width = math.prod(header.shape[1:]) * header.dtype.itemsize
        start, stop = max(0, start), max(start, min(stop, total))
        stream, stream_row = self._streams.pop(name, (None, 0))
        with wrap_errors(name):
            if stream is None or stream_row > start:
                stream = self._stream(name)
                stream_row = 0
                stream.read(header.start)
            for position in range(stream_row * width, start * width, _SKIPPED):
                stream.read(min(_SKIPPED, start * width - position))
            rows = np.empty((stop - start, *header.shape[1:]), header.dtype)
            view = rows.reshape(-1).view(np.uint8).data
            got = 0
            while got < len(view) and (more := stream.readinto(view[got : got + _SKIPPED])):  # type: ignore[attr-defined]
                got += more
            # zipfile checks the CRC when it reaches the end.
            if got < len(view) or (stop == total and stream.read(1)):
                size = self._members[name].file_size
                msg = f"{name}: {size:,} bytes are declared, but not as many unpacked"
                raise FormatError(msg)
        if stop < total:
            self._streams[name] = stream, stop
        return rows

    def close(self) -> None:
        for stream, _ in self._streams.values():
            stream.close()
        self._archive.close()


def _member_name(info: zipfile.ZipInfo) -> str:
    name = info.filename
    parts = name.split("/")
    if (
        name.startswith("/")
        or ".." in parts
        or "" in parts
        or re.search(r"^[A-Za-z]:|[\\\0]", info.orig_filename)
    ):
        msg = (
            f"the archive has a member named {info.orig_filename[:60]!r}; names inside stay "
            f"relative and plain"
        )
        raise FormatError(msg)
    return name.removesuffix(".npy")


def _open_npz(file: AnyPath | IO[bytes], hint: Hint) -> Container:
    del hint
    with wrap_errors("damaged .npz"):
        archive = zipfile.ZipFile(file)
        assert archive.fp is not None
        archive.fp.seek(0)
        begin = archive.fp.read(len(_ZIPPED))
    if begin != _ZIPPED and archive.filelist:
        archive.close()
        msg = f"a zip behind {begin!r}: NumPy goes by the first bytes of a file"
        raise FormatError(msg)
    try:
        with wrap_errors("damaged .npz"):
            check_extents(archive)
        return _Npz(archive)
    except FormatError:
        archive.close()
        raise


def _parse_npz(data: bytes, hint: Hint) -> Container:
    del hint
    return Values(_values(data, _SOLE))


def _open_npz_member(data: bytes, hint: Hint) -> Container:
    return _open_npz(io.BytesIO(data), hint)


NPY = Format("npy", (".npy",), _open, _parse_npz, _table, magic=(_MAGIC,))
NPZ = Format("npz", (".npz",), _open_npz, magic=(_ZIPPED,), member=_open_npz_member, points=True)
