"""Tar shards as WebDataset writes them; nothing is extracted, linked or followed.

An archive is a sequence of members: a header of 512 bytes, then the data, padded to 512 bytes. Other
headers may precede that of a member and declare a name or size that does not fit into it (pax and
GNU headers). Where readers of shards disagree on what an archive holds, it is refused.

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
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

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

# ------------------------------------------------------------------------------------------ members

BLOCK = 512
_EXTENDED_BYTES = 1 << 20  # of a header that describes the next member
# Sizes of a record, up to whose end a writer adds zeros: a power of two of blocks (up to 1 MiB, for
# tapes), the default of tar, 20 blocks, times a power of two, and 126 blocks, which its manual names.
_RECORD_SIZES = [
    *(BLOCK << shift for shift in range(12)),
    *(20 * BLOCK << shift for shift in range(7)),
    126 * BLOCK,
]
_DEFAULT_RECORD_BYTES = 20 * BLOCK
_TAIL_BYTES = 1 << 20
_FILES = frozenset({b"0", b"\0", b"7"})
_FOLDER = b"5"
_SPARSE = b"S"
# Headers that describe the next member, or all that follow (g).
_EXTENDED = frozenset({b"x", b"X", b"g", b"L", b"K"})
_UNSUPPORTED_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
}
# Mode, owners, time, devices.
_NUMBERS = ((100, 108), (108, 116), (116, 124), (136, 148), (329, 337), (337, 345))
_NO_TAR = "not a tar archive: its first header does not fit its checksum"


@dataclass(frozen=True, slots=True)
class Member:
    """One member that is no folder.

    Args:
        name: its path in the archive.
        start, size: where its data are [bytes].
        unsupported: what it is, if it is no plain file; else "".
    """

    name: str
    start: int
    size: int
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class _Extended:
    """What the headers in front of a member declare for it.

    Args:
        name: "" if they declare none.
        size: None if they declare none.
        holes: whether the member is stored without its zeros (sparse).
    """

    name: str = ""
    size: int | None = None
    holes: bool = False


def read_members(file: BinaryIO, total: int) -> Iterator[Member]:
    """Yield the members of an archive of `total` bytes, without folders.

    Raises:
        FormatError: the file is no tar, damaged, or cut short.
    """
    offset = 0
    count = 0
    extended: _Extended | None = None
    while True:
        header = read_bytes(file, offset, BLOCK)
        is_end_mark = len(header) == BLOCK and not any(header)
        if is_end_mark and extended is None:
            _check_end(file, offset, total)
            return
        if is_end_mark or len(header) < BLOCK:
            raise _end_error(offset, count)
        kind = _kind(header, offset)
        _check_numbers(header, offset)
        start = offset + BLOCK
        size = _data_size(header, kind, extended, offset)
        if start + size > total:
            msg = (
                f"byte {offset:,}: a member of {size:,} bytes, {total - start:,} are left: the file "
                f"is cut short behind {_member_count(count)}"
            )
            raise FormatError(msg)
        if kind in _EXTENDED:
            check_bytes(size, f"byte {offset:,}: a header of the next member", _EXTENDED_BYTES)
            declared = _parse_extended(kind, read_bytes(file, start, size), offset)
            extended = _merged(extended or _Extended(), declared, offset)
        else:
            if kind != _FOLDER:
                count += 1
                yield _member(header, kind, extended or _Extended(), start, size, offset)
            if kind == _SPARSE:
                start = _sparse_start(file, start, header[482])
            extended = None
        offset = start + -(-size // BLOCK) * BLOCK


def read_bytes(file: BinaryIO, start: int, size: int) -> bytes:
    """Return up to `size` bytes of a file from `start` on."""
    file.seek(start)
    return file.read(size)


def _end_error(offset: int, count: int) -> FormatError:
    if offset == 0:
        return FormatError(_NO_TAR)
    return FormatError(
        f"byte {offset:,}: the archive ends without its end mark: it is cut short behind "
        f"{_member_count(count)}"
    )


def _member_count(count: int) -> str:
    return f"{count:,} whole member{'s' * (count != 1)}"


def _check_end(file: BinaryIO, offset: int, total: int) -> None:
    """Check that nothing follows the end mark but the zeros up to the end of a record.

    Raises:
        FormatError: something follows, such as a second archive, which no reader would see; or more
            zeros, which stand where members were.
    """
    rest = read_bytes(file, offset, min(total - offset, _TAIL_BYTES))
    if any(rest) or len(rest) < total - offset:
        msg = (
            f"{total - offset - BLOCK:,} bytes follow the end mark at byte {offset:,}; archives cannot "
            f"simply be joined"
        )
        raise FormatError(msg)
    # The end mark has two blocks, and some writers leave out records.
    sizes = [size for size in _RECORD_SIZES if total % size == 0]
    record = max(_DEFAULT_RECORD_BYTES, *sizes) if sizes else _DEFAULT_RECORD_BYTES
    if len(rest) >= record + 2 * BLOCK:
        msg = (
            f"{len(rest):,} zeros stand at the end, from byte {offset:,} on; a record of this archive "
            f"has {record:,} bytes at most: members are lost"
        )
        raise FormatError(msg)


# ------------------------------------------------------------------------- the header of a member


def _kind(header: bytes, offset: int) -> bytes:
    """Return the type of a member; checks the header's checksum."""
    checksum = header[148:156].strip(b" \0").rjust(6, b"0")
    plain = header[:148] + b" " * 8 + header[156:]
    # Old writers summed signed bytes.
    if checksum != b"%06o" % sum(plain) and checksum != b"%06o" % sum(memoryview(plain).cast("b")):
        msg = _NO_TAR
        if offset:
            msg = f"byte {offset:,}: the header of a member does not fit its checksum"
        raise FormatError(msg)
    kind = header[156:157]
    # Before there was a type for folders, their names ended in a slash.
    is_old_folder = kind == b"\0" and header[:100].partition(b"\0")[0].endswith(b"/")
    return _FOLDER if is_old_folder else kind


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


def _data_size(header: bytes, kind: bytes, extended: _Extended | None, offset: int) -> int:
    """Return the size of the data that follow a header."""
    if extended is None or extended.size is None or kind in _EXTENDED:
        size = _number(header[124:136], offset)
    else:
        size = extended.size
    has_data = kind != _FOLDER and kind not in _UNSUPPORTED_KINDS
    return size if has_data else 0


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


def _member(
    header: bytes, kind: bytes, extended: _Extended, start: int, size: int, offset: int
) -> Member:
    name = extended.name or _name(header, offset)
    if kind == _SPARSE or extended.holes:
        return Member(name, start, size, "stored with holes (sparse)")
    if kind in _FILES:
        return Member(name, start, size)
    other = f"of a kind that is not read ({kind.decode('latin1')!r})"
    return Member(name, start, size, _UNSUPPORTED_KINDS.get(kind, other))


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


def _sparse_start(file: BinaryIO, start: int, more: int) -> int:
    """Return where the data of a GNU sparse member begin: after the blocks that list its holes."""
    while more:
        block = read_bytes(file, start, BLOCK)
        start += BLOCK
        more = block[504] if len(block) == BLOCK else 0
    return start


# -------------------------------------------------------------------------------- extended headers


def _parse_extended(kind: bytes, data: bytes, offset: int) -> _Extended:
    """Return what a header in front of a member declares for it."""
    if kind == b"K":  # target of a link
        return _Extended()
    if kind == b"L":
        return _Extended(name=_text(data.partition(b"\0")[0], offset))
    if kind == b"g":  # for all following members: a comment, as Git writes it
        for key, _ in _records(data, offset):
            _check_global(key, offset)
        return _Extended()
    return _parse_pax(data, offset)


def _parse_pax(data: bytes, offset: int) -> _Extended:
    extended = _Extended()
    for key, value in _records(data, offset):
        # The path of a sparse file is a placeholder that GNU tar made up.
        if key == b"GNU.sparse.name" or (key == b"path" and not extended.holes):
            extended = replace(extended, name=_text(value, offset))
        elif key == b"size":
            extended = replace(extended, size=_decimal(value, offset))
        if key.startswith(b"GNU.sparse"):
            extended = replace(extended, holes=True)
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


def _merged(earlier: _Extended, later: _Extended, offset: int) -> _Extended:
    """Merge two headers in front of a member.

    Raises:
        FormatError: they contradict each other; readers disagree on which one applies.
    """
    if earlier.name and later.name and earlier.name != later.name:
        raise _contradiction(earlier.name, later.name, offset)
    if earlier.size is not None and later.size is not None and earlier.size != later.size:
        raise _contradiction(earlier.size, later.size, offset)
    return _Extended(
        earlier.name or later.name,
        later.size if earlier.size is None else earlier.size,
        earlier.holes or later.holes,
    )


def _contradiction(earlier: str | int, later: str | int, offset: int) -> FormatError:
    text = (
        f"byte {offset:,}: two headers say different things of the next member: {earlier!r} and "
        f"{later!r}"
    )
    return FormatError(text[:300])


# ---------------------------------------------------------------------------- the values of a shard

_MOST = 2_000_000
_TEXTS = frozenset({"txt", "text", "transcript"})
_INTEGERS = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
_JSON = frozenset({"json", "jsn"})
# The start of an .npy file of numbers.
_PLAIN_NPY = re.compile(rb"\x93NUMPY.{4,6}\{'descr': '[<>|=]?[biufc]\d+'", re.DOTALL)
_SOLE = {"npy": "array", "image": "image"}  # formats of one value, which is named after its member


@dataclass(frozen=True, slots=True)
class _Contents:
    """The values of one member.

    Args:
        container: the values by inner name.
        sole: the inner name of the value that is named after the member; None if each value has a
            name of its own behind the member's.
    """

    container: Container
    sole: str | None = None


class _Tar(CountedContainer):
    """An open shard and the places of its members."""

    def __init__(self, path: AnyPath) -> None:
        self._members: dict[str, Member] = {}  # by the name of the value: "0007/points.npy"
        # By key, with the reason if the key is refused.
        self._keys: dict[str, FormatError | None] = {}
        self._last: tuple[str, _Contents] | None = None
        self._file = path.open("rb")
        try:
            with wrap_errors("damaged tar"):
                self._index(path.stat().st_size)
                self._refuse_folders()
            self._known = len(self._members)
        except BaseException:
            self.close()
            raise

    def _index(self, total: int) -> None:
        previous_key = ""
        for count, member in enumerate(read_members(self._file, total)):
            if count >= _MOST:
                msg = f"more than {_MOST:,} members"
                raise FormatError(msg)
            key, ending = _split(member.name)
            if not key:
                continue
            value = f"{key}/{ending.lower()}"
            reason = ""
            if value in self._members:
                reason = f"two members are called {member.name!r}"
            elif key in self._keys and key != previous_key:
                reason = (
                    f"{member.name!r} stands apart from the other members of its key, which "
                    f"loaders take for two"
                )
            elif member.unsupported:
                reason = f"{member.name!r} is {member.unsupported}, no file"
            self._keys.setdefault(key, None)
            if reason:
                self._refuse(key, reason)
            self._members.setdefault(value, member)
            previous_key = key

    def _refuse_folders(self) -> None:
        folders = {key[: slash.start()] for key in self._keys for slash in re.finditer("/", key)}
        for folder in folders & self._keys.keys():
            self._refuse(
                folder,
                f"{folder!r} is a key and the folder of others: its values cannot be told from "
                f"theirs",
            )

    def _refuse(self, key: str, reason: str) -> None:
        """Refuse a key; the first reason stays."""
        self._keys[key] = self._keys[key] or FormatError(reason)

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
            contents = self._open_member(value)
            if contents.sole is not None:
                return [value]
            return [f"{value}/{name}" for name in contents.container.names() if name]
        except FormatError:
            return [value]

    def _is_single_value(self, value: str) -> bool:
        """Return whether a member certainly holds one value, from its ending or its first block."""
        ending = value.rpartition("/")[2]
        file_format = _format_of(ending)
        if file_format is None:
            return _suffix(ending) not in _JSON
        if file_format.name != "npy":
            return file_format.name in _SOLE
        head = read_bytes(self._file, self._members[value].start, BLOCK)
        return _PLAIN_NPY.match(head) is not None

    def _open_member(self, value: str) -> _Contents:
        if self._last is not None and self._last[0] == value:
            return self._last[1]
        member = self._members[value]
        refused = self._keys[_key(value)]
        if refused is not None:
            raise refused
        check_bytes(member.size, member.name)
        data = read_bytes(self._file, member.start, member.size)
        try:
            contents = _parse_member(value.rpartition("/")[2], data)
        except FormatError as error:
            msg = f"{member.name}: {error}"
            raise FormatError(msg, error.code) from error
        self._last = value, contents
        return contents

    def _container_of(self, name: str) -> tuple[Container, str]:
        """Return the container of a value, and the value's name in it."""
        value = name
        while value not in self._members:
            value, slash, _ = value.rpartition("/")
            if not slash:
                raise KeyError(name)
        contents = self._open_member(value)
        inner = name[len(value) + 1 :]
        return contents.container, inner or contents.sole or ""

    def read(self, name: str) -> Any:
        container, inner = self._container_of(name)
        return container.read(inner)

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        member = self._members.get(name)
        file_format = _format_of(name.rpartition("/")[2])
        read_table = None if file_format is None else file_format.table
        if member is not None and read_table is not None and self._keys[_key(name)] is None:
            head = read_bytes(self._file, member.start, min(member.size, HEAD_BYTES))
            table = read_table(head, member.size)
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
    stem, _, ending = parts[-1].partition(".")
    if not stem or not ending:
        return "", ""
    return "/".join([*parts[:-1], stem]), ending


def _suffix(ending: str) -> str:
    return ending.rpartition(".")[2]


def _format_of(ending: str) -> Format | None:
    """Return the format that reads a member with this ending from its bytes, None without one."""
    suffix = _suffix(ending)
    if suffix in _TEXTS | _INTEGERS | _JSON:
        return None
    # WebDataset calls its pickles .pyd.
    file_format = format_of(".pickle" if suffix == "pyd" else f".{ending}")
    if file_format is None or (file_format.parse is None and file_format.member is None):
        return None
    return file_format


def _parse_member(ending: str, data: bytes) -> _Contents:
    suffix = _suffix(ending)
    file_format = _format_of(ending)
    if file_format is not None:
        container = parse_container(file_format, data)
        sole = _SOLE.get(file_format.name)
        return _Contents(container, sole if container.names() == [sole] else None)
    if suffix in _JSON:
        return _parse_json_member(data)
    if suffix in _TEXTS:
        value: Any = text(data)
    elif suffix in _INTEGERS:
        value = _integer(data)
    else:
        value = np.frombuffer(data, np.uint8)
    return _Contents(Values({"": value}), sole="")


def _parse_json_member(data: bytes) -> _Contents:
    """Return the entries of a JSON object, which also has a value of its own, or any other value."""
    check_bytes(len(data), "a JSON document", TEXT_BYTES)
    root = parse_json(data)
    if root is None:
        return _Contents(Values({}))
    if not isinstance(root, dict):
        return _Contents(Values({"": from_json(root)}), sole="")
    entries = {name: from_json(entry) for name, entry in root.items() if entry is not None}
    return _Contents(Values(entries | {"": root}))


def _integer(data: bytes) -> Array:
    number = int(data) if re.fullmatch(rb"\s*[-+]?\d{1,19}\s*", data) else None
    if number is None or not -(1 << 63) <= number < 1 << 63:
        msg = f"{data[:20]!r} stands where a whole number of 64 bits is expected"
        raise FormatError(msg)
    return np.asarray(number, dtype=np.int64)


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Tar(path)


TAR = Format("tar", (".tar",), _open)
