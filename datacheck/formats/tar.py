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
from dataclasses import dataclass
from typing import Any

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
from datacheck.formats.tar_headers import BLOCK, Member, read_bytes, read_members
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

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
