"""Tar shards as WebDataset writes them; nothing is extracted, linked or followed.

Members are read in place. ``train/0007.points.npy`` is the value ``train/0007/points.npy``: the key
ends at the first dot of the file name. The rest, the ending, decides how the member is read: as
text (.txt), as an integer (.cls), or as a file with that suffix. A member with several values
gives ``0007/json/caption``; a member that no format reads gives its bytes. A key is refused as a
whole if a member of it is a link or a device, occurs twice, or stands apart from the others. Files
without a key (``README``, ``.DS_Store``) are no values, as in WebDataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import HEAD_BYTES, Format, Hint, format_of, parse_container
from datacheck.formats.limits import (
    TEXT_BYTES,
    CountedContainer,
    Values,
    check_bytes,
    text,
    wrap_errors,
)
from datacheck.formats.parsed import from_json, parse_json
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

_BLOCK = 512
_EXTENDED_BYTES = 1 << 20  # of a header that describes the next member
_TAIL_BYTES = 1 << 20  # zeros after the end mark, up to the end of a record
_MOST = 2_000_000
_FILES = (b"0", b"\0", b"7")
_FOLDER = b"5"
_SPARSE = b"S"
_UNSUPPORTED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
_TEXTS = frozenset({"txt", "text", "transcript"})
_COUNTS = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
_JSON = frozenset({"json", "jsn"})
_PLAIN = re.compile(rb"\x93NUMPY.{4,6}\{'descr': '[<>|=]?[biufc]\d+'", re.DOTALL)
_SOLE = {"npy": "array", "image": "image"}  # formats of one value, which is named after its member


class _Member(NamedTuple):
    name: str
    start: int
    size: int
    odd: str = ""  # kind of the member if it is no file


class _ExtendedHeader(NamedTuple):
    """What the headers in front of a member declare for it."""

    name: str = ""
    size: int = -1
    holes: bool = False


# ------------------------------------------------------------------------------------------ headers


def _members(file: BinaryIO, total: int) -> Iterator[_Member]:
    """Yield the members of an archive, without folders.

    Raises:
        FormatError: the file is no tar, damaged, or cut short.
    """
    offset = 0
    count = 0
    extended = None
    while True:
        header = _bytes(file, offset, _BLOCK)
        if extended is None and len(header) == _BLOCK and not any(header):
            _check_end(file, offset, total)
            return
        if len(header) < _BLOCK or not any(header):
            msg = (
                f"byte {offset:,}: the archive ends without its end mark: it is cut short behind "
                f"{_member_count(count)}"
            )
            raise FormatError(msg if offset else _NO_TAR)
        kind = _kind(header, offset)
        start = offset + _BLOCK
        _check_numbers(header, offset)
        is_extended = kind in {b"x", b"X", b"g", b"L", b"K"}
        size = (
            _number(header[124:136], offset)
            if extended is None or extended.size < 0 or is_extended
            else extended.size
        )
        if kind in _UNSUPPORTED_KINDS or kind == _FOLDER:
            size = 0
        if start + size > total:
            msg = (
                f"byte {offset:,}: a member of {size:,} bytes, {total - start:,} are left: the file is "
                f"cut short behind "
                f"{_member_count(count)}"
            )
            raise FormatError(msg)
        if is_extended:
            check_bytes(size, f"byte {offset:,}: a header of the next member", _EXTENDED_BYTES)
            extended = _merge_headers(
                extended or _ExtendedHeader(),
                _apply_header(kind, _bytes(file, start, size), offset, _ExtendedHeader()),
                offset,
            )
        else:
            if kind != _FOLDER:
                count += 1
                yield _Member(
                    (extended and extended.name) or _name(header, offset),
                    start,
                    size,
                    _unsupported_kind(kind, extended),
                )
            extended = None
            start = _sparse_start(file, start, header[482]) if kind == _SPARSE else start
        offset = start + -(-size // _BLOCK) * _BLOCK


def _member_count(count: int) -> str:
    return f"{count:,} whole member{'s' * (count != 1)}"


def _bytes(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _kind(header: bytes, offset: int) -> bytes:
    """Return the type of a member; checks the header's checksum."""
    checksum = header[148:156].strip(b" \0").rjust(6, b"0")
    plain = header[:148] + b" " * 8 + header[156:]
    # Old writers summed signed bytes.
    signed = int(np.frombuffer(plain, np.int8).sum(dtype=np.int64))
    if checksum not in {b"%06o" % sum(plain), b"%06o" % signed}:
        msg = (
            f"byte {offset:,}: the header of a member does not fit its checksum"
            if offset
            else _NO_TAR
        )
        raise FormatError(msg)
    old_folder = header[156:157] == b"\0" and header[:100].partition(b"\0")[0].endswith(b"/")
    return _FOLDER if old_folder else header[156:157]


_NO_TAR = "not a tar archive: its first header does not fit its checksum"


def _sparse_start(file: BinaryIO, start: int, more: int) -> int:
    """Return where the data of a GNU sparse member begin: after the blocks that list its holes."""
    while more:
        block = _bytes(file, start, _BLOCK)
        start, more = start + _BLOCK, block[504] if len(block) == _BLOCK else 0
    return start


def _check_numbers(header: bytes, offset: int) -> None:
    """Refuse a header number at which Python's tarfile, and so webdataset, ends the archive.

    Raises:
        FormatError: a mode, an owner, a time or a device is not a number.
    """
    for start, stop in _NUMBERS:
        field = header[start:stop]
        try:
            if field[0] not in {0x80, 0xFF}:
                int(field.partition(b"\0")[0].decode("ascii").strip() or "0", 8)
        except ValueError as error:
            msg = (
                f"byte {offset + start:,}: {field[:12]!r} stands where a header has a number; "
                f"readers of shards end here"
            )
            raise FormatError(msg) from error


# Mode, owners, time, devices.
_NUMBERS = ((100, 108), (108, 116), (116, 124), (136, 148), (329, 337), (337, 345))


def _number(field: bytes, offset: int) -> int:
    if field[0] == 0x80:  # GNU's encoding of numbers beyond eight octal digits
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not re.fullmatch(rb"[0-7]+", digits):
        msg = f"byte {offset:,}: {digits[:12]!r} stands where a header has a number"
        raise FormatError(msg)
    return int(digits, 8)


def _name(header: bytes, offset: int) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0]
    # GNU tar writes times there, which Python's tarfile reads as a prefix.
    if prefix and header[257:263] != b"ustar\0":
        msg = (
            f"byte {offset:,}: a name with a prefix in a header that is not of the standard; readers "
            f"differ in its name"
        )
        raise FormatError(msg)
    return _text(prefix + b"/" + name if prefix else name, offset)


def _text(raw: bytes, offset: int) -> str:
    return text(raw, f"byte {offset:,}: the name of a member")


def _unsupported_kind(kind: bytes, extended: _ExtendedHeader | None) -> str:
    if kind == _SPARSE or (extended is not None and extended.holes):
        return "stored with holes (sparse)"
    return (
        ""
        if kind in _FILES
        else _UNSUPPORTED_KINDS.get(kind, f"of a kind that is not read ({kind.decode('latin1')!r})")
    )


def _merge_headers(
    earlier: _ExtendedHeader, later: _ExtendedHeader, offset: int
) -> _ExtendedHeader:
    """Merge two headers in front of a member.

    Raises:
        FormatError: they contradict each other; readers disagree on which one applies.
    """
    for earlier_value, later_value in ((earlier.name, later.name), (earlier.size, later.size)):
        if (
            earlier_value != later_value
            and earlier_value not in {"", -1}
            and later_value not in {"", -1}
        ):
            msg = (
                f"byte {offset:,}: two headers say different things of the next member: {earlier_value!r} and "
                f"{later_value!r}"
            )[:300]
            raise FormatError(msg)
    return _ExtendedHeader(
        earlier.name or later.name, max(earlier.size, later.size), earlier.holes or later.holes
    )


def _apply_header(
    kind: bytes, data: bytes, offset: int, extended: _ExtendedHeader
) -> _ExtendedHeader:
    """Return the known facts of the next member after one more header for it."""
    if kind == b"K":  # target of a link
        return extended
    if kind == b"L":
        return extended._replace(name=_text(data.partition(b"\0")[0], offset))
    for key, value in _records(data, offset):
        if kind == b"g":  # a header for all following members: a comment, as Git writes it
            _check_global(key, offset)
        elif key in {b"path", b"GNU.sparse.name"}:
            # The path of a sparse file is a placeholder that GNU tar made up.
            named = extended.holes and key == b"path"
            extended = extended if named else extended._replace(name=_text(value, offset))
        elif key == b"size":
            extended = extended._replace(size=_decimal(value, offset))
        if key.startswith(b"GNU.sparse") and kind != b"g":
            extended = extended._replace(holes=True)
    return extended


def _check_global(key: bytes, offset: int) -> None:
    """Check that a header for all members sets no name or size: readers disagree on its effect.

    Raises:
        FormatError: it sets one.
    """
    if key in {b"path", b"size"} or key.startswith(b"GNU.sparse"):
        msg = f"byte {offset:,}: a header gives one {key.decode('latin1')[:40]!r} to all members"
        raise FormatError(msg)


def _records(data: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of a pax header.

    A record is ``27 path=...`` and a line end; the number counts all bytes of the record.
    """
    position = 0
    while position < len(data):
        size = _decimal(data[position : position + 8].partition(b" ")[0], offset)
        record = data[position : position + size]
        key, equals, value = record.partition(b" ")[2].partition(b"=")
        if not equals or len(record) < size or not value.endswith(b"\n"):
            msg = f"byte {offset:,}: a damaged pax header"
            raise FormatError(msg)
        yield key, value[:-1]
        position += size


def _decimal(digits: bytes, offset: int) -> int:
    if not re.fullmatch(rb"[1-9]\d{0,17}|0", digits):
        msg = f"byte {offset:,}: {digits[:12]!r} stands where a pax header has a number"
        raise FormatError(msg)
    return int(digits)


def _check_end(file: BinaryIO, offset: int, total: int) -> None:
    """Check that nothing follows the end mark.

    Raises:
        FormatError: something follows, such as a second archive, which no reader would see.
    """
    rest = _bytes(file, offset, min(total - offset, _TAIL_BYTES))
    if any(rest) or len(rest) < total - offset:
        msg = (
            f"{total - offset - _BLOCK:,} bytes follow the end mark at byte {offset:,}; archives cannot "
            f"simply be joined"
        )
        raise FormatError(msg)


# ------------------------------------------------------------------------------------------- values


class _Tar(CountedContainer):
    """An open shard and the places of its members."""

    def __init__(self, path: AnyPath) -> None:
        self._members: dict[str, _Member] = {}  # by the name of the value: "0007/points.npy"
        # By key, with the reason if the key is refused.
        self._keys: dict[str, FormatError | None] = {}
        self._last: tuple[str, tuple[Container, str | None]] | None = None
        self._file = path.open("rb")
        try:
            with wrap_errors("damaged tar"):
                self._index(path.stat().st_size)
            self._known = len(self._members)
        except BaseException:
            self.close()
            raise

    def _index(self, total: int) -> None:
        previous_key = ""
        for count, member in enumerate(_members(self._file, total)):
            if count >= _MOST:
                msg = f"more than {_MOST:,} members"
                raise FormatError(msg)
            key, ending = _split(member.name)
            if not key:
                continue
            value = f"{key}/{ending.lower()}"
            reason = f"{member.name!r} is {member.odd}, no file" if member.odd else ""
            if value in self._members:
                reason = f"two members are called {member.name!r}"
            elif key in self._keys and key != previous_key:
                reason = (
                    f"{member.name!r} stands apart from the other members of its key, which "
                    f"loaders take for two"
                )
            self._keys[key] = self._keys.get(key) or (FormatError(reason) if reason else None)
            self._members.setdefault(value, member)
            previous_key = key
        folders = {key[: slash.start()] for key in self._keys for slash in re.finditer("/", key)}
        for folder in folders & self._keys.keys():
            reason = (
                f"{folder!r} is a key and the folder of others: its values cannot be told "
                f"from theirs"
            )
            self._keys[folder] = self._keys[folder] or FormatError(reason)

    def close(self) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        return sorted(self._keys)

    def names(self) -> list[str]:
        return sorted(name for value in self._members for name in self._names_of(value))

    def _names_of(self, value: str) -> list[str]:
        """Return the names of the values in one member.

        A damaged or refused member keeps its own name, and reading it raises the error.
        """
        try:
            if self._is_single_value(value):
                return [value]
            container, sole = self._open_member(value)
            return (
                [value]
                if sole is not None
                else [f"{value}/{name}" for name in container.names() if name]
            )
        except FormatError:
            return [value]

    def _is_single_value(self, value: str) -> bool:
        """Return whether a member certainly holds one value, from its ending or its first block."""
        ending = value.rpartition("/")[2]
        form = _form(ending)
        if form is None:
            return ending.rpartition(".")[2] not in _JSON
        if form.name != "npy":
            return form.name in _SOLE
        return _PLAIN.match(_bytes(self._file, self._members[value].start, _BLOCK)) is not None

    def _open_member(self, value: str) -> tuple[Container, str | None]:
        """Return the contents of a member, and the inner name of the value named after it."""
        if self._last is not None and self._last[0] == value:
            return self._last[1]
        member = self._members[value]
        if (refused := self._keys[_key(value)]) is not None:
            raise refused
        check_bytes(member.size, member.name)
        try:
            contents = _parsed(
                value.rpartition("/")[2], _bytes(self._file, member.start, member.size)
            )
        except FormatError as error:
            msg = f"{member.name}: {error}"
            raise FormatError(msg, error.code) from error
        self._last = value, contents
        return contents

    def _container_of(self, name: str) -> tuple[Container, str]:
        value = name
        while value not in self._members:
            value, slash, _ = value.rpartition("/")
            if not slash:
                raise KeyError(name)
        container, sole = self._open_member(value)
        return container, name[len(value) + 1 :] or sole or ""

    def read(self, name: str) -> Any:
        container, inner = self._container_of(name)
        return container.read(inner)

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        member = self._members.get(name)
        form = _form(name.rpartition("/")[2])
        if (
            member is not None
            and form is not None
            and form.table is not None
            and self._keys[_key(name)] is None
        ):
            table = form.table(
                _bytes(self._file, member.start, min(member.size, HEAD_BYTES)), member.size
            )
            if table is not None:  # the header of a plain table is enough
                return (table.rows, table.columns), table.dtype.str
        container, inner = self._container_of(name)
        return container.peek(inner)


def _key(value: str) -> str:
    return value.rpartition("/")[0]


def _split(name: str) -> tuple[str, str]:
    """Return (key, ending) of a member, such as ("a/0007", "points.npy").

    A file without a key or an ending gives ("", "").

    Raises:
        FormatError: the name leads out of the archive.
    """
    name = name.removeprefix("./")
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or re.search(r"^[A-Za-z]:|[\\\x00-\x1f\x7f]", name):
        msg = f"the archive has a member named {name[:60]!r}; names inside stay relative and plain"
        raise FormatError(msg)
    stem, dot, ending = parts[-1].partition(".")
    return ("/".join([*parts[:-1], stem]), ending) if stem and dot and ending else ("", "")


def _form(ending: str) -> Format | None:
    """Return the format that reads a member with this ending from its bytes, None without one."""
    suffix = ending.rpartition(".")[2]
    if suffix in _TEXTS | _COUNTS | _JSON:
        return None
    file_format = format_of(".pickle" if suffix == "pyd" else f".{ending}")
    return (
        file_format
        if file_format is not None and (file_format.parse or file_format.member)
        else None
    )


def _parsed(ending: str, data: bytes) -> tuple[Container, str | None]:
    """Return the values of a member, and the inner name of the value that is named after it."""
    suffix = ending.rpartition(".")[2]
    form = _form(ending)
    if form is not None:
        container = parse_container(form, data)
        sole = _SOLE.get(form.name)
        return container, sole if container.names() == [sole] else None
    if suffix in _JSON:
        check_bytes(len(data), "a JSON document", TEXT_BYTES)
        root = parse_json(data)
        if isinstance(root, dict):
            entries = {name: from_json(entry) for name, entry in root.items() if entry is not None}
            return Values(entries | {"": root}), None
        return (Values({}), None) if root is None else (Values({"": from_json(root)}), "")
    if suffix in _TEXTS:
        return Values({"": text(data)}), ""
    return Values({"": _count(data) if suffix in _COUNTS else np.frombuffer(data, np.uint8)}), ""


def _count(data: bytes) -> Array:
    number = int(data) if re.fullmatch(rb"\s*[-+]?\d{1,19}\s*", data) else 1 << 64
    if not -(1 << 63) <= number < 1 << 63:
        msg = f"{data[:20]!r} stands where a whole number of 64 bits is expected"
        raise FormatError(msg)
    return np.asarray(number, dtype=np.int64)


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Tar(path)


TAR = Format("tar", (".tar",), _open)
