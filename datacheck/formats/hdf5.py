"""HDF5, walked link by link: nothing outside the file is read.

Sizes and filters are checked before reading. Names are full inner paths ("data/demo_0/actions").
Values are numbers (a compound's members as ``name.member``), text, and variable-length numbers as
two values (``name``: all numbers in one flat array, ``name.lengths``: the count of each entry).
References, opaque bytes, variable-length lists of anything but numbers and empty dataspaces are no
values: they are not listed, and reading one raises an error that says why; `passed` names them once
the values are listed, except for empty dataspaces, which hold nothing. Damaged or refused values
are listed, so that none goes unnoticed, and raise when they are read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from datacheck.errors import DatacheckError, FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    DEPTH,
    FIELDS,
    CountedContainer,
    check_bytes,
    check_expansion,
    expand,
    matching,
    plain,
    plain_type,
    strings,
    wrap_errors,
)
from datacheck.formats.parsed import from_python
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_ATTRIBUTE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 30
_BEHIND_BYTES = 64 << 20  # of rows that are kept for calls that read on
_OBJECTS = 1_000_000
_OPEN_GROUPS = 4096
_LENGTHS = ".lengths"
_MOST_PASSED = 30_000  # names of entries that are no values, and characters of one
_LONGEST_PASSED = 1_000


@cache
def _library() -> Any:
    import h5py  # noqa: PLC0415  0.1 s, for files of this format only

    with wrap_errors("HDF5 plug-in path"):
        while h5py.h5pl.size():  # a file must not be able to load a shared library
            h5py.h5pl.remove(0)
    return h5py


class _TooManyObjectsError(DatacheckError):
    """The file holds more objects than the limit.

    Args:
        count: number of objects that were listed.
    """

    def __init__(self, count: int) -> None:
        super().__init__(f"{count:,} objects")
        self.count = count


class _NotAValueError(FormatError):
    """A kind of object that is no value for datacheck; the file is not damaged."""


class _EmptyError(_NotAValueError):
    """An object that holds nothing."""


class _Hdf5(CountedContainer):
    """An open HDF5 file."""

    counted = "objects or more"

    def __init__(self, path: AnyPath) -> None:
        self._h5 = _library()
        with wrap_errors("damaged HDF5 file"):
            self._file = self._h5.File(path, "r", locking=False)
            self._groups: dict[str, Any] = {"": self._h5.h5g.open(self._file.id, b"/")}
        self._refused: dict[str, FormatError] = {}
        self._names: list[str] | None = None
        self.passed: list[str] = []
        self._asked: tuple[Any, Any] = (None, None)
        # By dataset: rows already read but not yet returned, and the number of the first of them.
        self._behind: dict[str, tuple[int, Array]] = {}

    def close(self) -> None:
        with wrap_errors("cannot close the file"):
            self._groups.clear()
            self._asked = (None, None)
            self._file.close()

    # Finding objects

    def _object(self, path: str, hops: int = 16) -> Any:
        """Return the low-level object at `path`; checks every link on the way."""
        parent, _, leaf = path.rpartition("/")
        if leaf in {"", "."}:
            raise KeyError(path)
        group = self._group(parent, hops)
        raw = leaf.encode("utf-8", "surrogateescape")
        links = group.links
        try:
            kind = links.get_info(raw).type
        except (KeyError, RuntimeError):
            if links.exists(raw):
                raise
            raise KeyError(path) from None
        if kind == self._h5.h5l.TYPE_SOFT:
            return self._follow_link(path, parent, group.links.get_val(raw), hops)
        if kind != self._h5.h5l.TYPE_HARD:
            what = (
                "an external link to another file"
                if kind == self._h5.h5l.TYPE_EXTERNAL
                else "a user-defined link"
            )
            msg = f"{path}: {what}; only links inside the file are followed"
            raise FormatError(msg)
        return self._h5.h5o.open(group, raw)

    def _follow_link(self, path: str, parent: str, target: bytes, hops: int) -> Any:
        inner = target.decode("utf-8", "surrogateescape")
        full = inner if inner.startswith("/") else f"{parent}/{inner}"
        parts = [part for part in full.split("/") if part not in {"", "."}]
        if hops == 0 or len(parts) > DEPTH:
            msg = f"{path}: a chain or circle of soft links"
            raise FormatError(msg)
        try:
            return self._object("/".join(parts), hops - 1) if parts else self._groups[""]
        except KeyError as error:
            msg = f"{path}: a soft link to {inner}, which does not exist"
            raise FormatError(msg) from error

    def _group(self, path: str, hops: int = 16) -> Any:
        group = self._groups.get(path)
        if group is None:
            group = self._object(path, hops)
            if not isinstance(group, self._h5.h5g.GroupID):
                raise KeyError(path)
            self._keep_open(path, group)
        return group

    def _keep_open(self, path: str, group: Any) -> None:
        """Hold a group open in place of the one that was opened first; the root stays."""
        if len(self._groups) >= _OPEN_GROUPS:
            del self._groups[next(islice(self._groups, 1, None))]
        self._groups[path] = group

    # Listing objects

    def least(self) -> int:
        """Return the number of values, or of values and groups once they exceed twice `FIELDS`."""
        if not self._known:
            try:
                self._known = len(self._value_names(2 * FIELDS))
            except _TooManyObjectsError as error:
                self._known = error.count
        return self._known

    def names(self) -> list[str]:
        try:
            return self._value_names(_OBJECTS)
        except _TooManyObjectsError:
            msg = f"more than {_OBJECTS:,} objects"
            raise FormatError(msg) from None

    def _value_names(self, most: int) -> list[str]:
        """Return the names of all values, sorted.

        Raises:
            _TooManyObjectsError: the groups list more than `most` objects; no object of the group
                that exceeds the limit is opened, nor of the other groups beside it.
        """
        if self._names is None:
            names: list[str] = []
            self.passed = []
            with wrap_errors("damaged HDF5 group"):
                seen = {_address(self._h5, self._groups[""])}
                stack = [""]
                listed = len(self._groups[""])
                while stack:
                    if listed > most:
                        raise _TooManyObjectsError(listed)
                    links = self._entries(stack.pop(), names)
                    groups = self._visit(links, seen, names)
                    stack.extend(groups)
                    listed += sum(groups.values())
            self._names = sorted(set(names))  # a damaged group may list a link twice
            self.passed.sort()
            if len(self._names) < len(names):
                _check_unique_names(names)
        return self._names

    def _visit(self, links: list[str], seen: set[Any], names: list[str]) -> dict[str, int]:
        """Add the values of a group to `names`.

        Returns:
            The number of links of each group in it that was not seen before.
        """
        groups = {}
        for inner in links:
            try:
                with wrap_errors(inner):
                    item = self._object(inner)
            except FormatError as error:
                self._refuse(inner, error, names)
                continue
            if isinstance(item, self._h5.h5d.DatasetID):
                names += self._names_of(inner, item)
            elif isinstance(item, self._h5.h5g.GroupID) and inner.count("/") < DEPTH:
                address = _address(self._h5, item)
                if address not in seen:  # seen: a second link to a group, or a cycle
                    seen.add(address)
                    groups[inner] = self._link_count(item)
                    self._keep_open(inner, item)  # its links are listed next
        return groups

    def _link_count(self, group: Any) -> int:
        """Return the number of links of a group, 0 if it is damaged."""
        try:
            return int(group.get_num_objs())
        except (RuntimeError, OSError, ValueError):  # listing its links raises the error, too
            return 0

    def _refuse(self, path: str, error: FormatError, names: list[str]) -> None:
        self._refused[path] = error
        names.append(path)

    def _entries(self, path: str, names: list[str] | None = None) -> list[str]:
        """Return the paths of all links of one group; adds an unreadable group to `names`."""
        prefix = f"{path}/" if path else ""
        try:
            with wrap_errors(path or "/"):
                return [
                    prefix + raw.decode("utf-8", "surrogateescape") for raw in self._group(path)
                ]
        except FormatError as error:
            if not path:
                raise
            if names is not None:
                self._refuse(path, error, names)
            return []

    def _names_of(self, path: str, item: Any) -> list[str]:
        try:
            with wrap_errors(path):
                dtype = self._dtype(path, item)
        except _EmptyError:
            return []
        except _NotAValueError:
            self._pass_over(path, opaque=not self._is_reference(item))
            return []
        except FormatError:
            return [path]
        for member, opaque in _unread_members(path, dtype, self._h5):
            self._pass_over(member, opaque=opaque)
        if dtype.kind == "O" and self._h5.check_string_dtype(dtype) is None:
            return [path, path + _LENGTHS]
        return sorted(_members(path, dtype, self._h5))

    def _pass_over(self, path: str, *, opaque: bool) -> None:
        """Note an entry that is no value."""
        self.opaque = self.opaque or opaque
        if len(self.passed) < _MOST_PASSED:
            self.passed.append(path[:_LONGEST_PASSED])

    def _is_reference(self, item: Any) -> bool:
        try:
            return self._h5.check_ref_dtype(item.dtype) is not None
        except TypeError:  # a type that NumPy lacks
            return False

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match ``/data/demo_*``, sorted; ``*`` stays in one level."""
        with wrap_errors("damaged HDF5 group"):
            return matching(pattern, self._entries, self._is_group)

    def _is_group(self, path: str) -> bool:
        try:
            with wrap_errors(path):
                return isinstance(self._object(path), self._h5.h5g.GroupID)
        except FormatError:
            return True  # broken: reading from it raises the error

    # Values

    def read(self, name: str) -> Any:
        name = name.strip("/")
        if name in self._refused:
            raise self._refused[name]
        path, item, dtype, member_path = self._dataset(name)
        with wrap_errors(name):
            self._check(path, item, dtype)
            if dtype.kind == "O":
                return self._ragged(item, dtype, lengths=member_path == (_LENGTHS,))
            if dtype.kind in "biuf":
                return plain(self._numbers(item, dtype))
            dataset = self._h5.Dataset(item)
            array = np.asarray(dataset.fields(member_path[0])[()] if member_path else dataset[()])
            for member in member_path[1:]:
                array = array[member]
            return _texts(array) if array.dtype.kind == "O" else _value(name, array)

    def _numbers(self, item: Any, dtype: np.dtype[Any]) -> Array:
        """Read a whole dataset of numbers; small ones in a third of h5py's time."""
        array = np.empty(item.shape, dtype)
        if array.size:
            item.read(self._h5.h5s.ALL, self._h5.h5s.ALL, array)
        return array

    def _dataset(self, name: str) -> tuple[str, Any, np.dtype[Any], tuple[str, ...]]:
        """Return (path, dataset, its dtype, members on the way down) of a value.

        "a/table.x" is the member x of "a/table".
        """
        parent, _, leaf = name.rpartition("/")
        cut = len(leaf)
        while cut > 0:
            path = f"{parent}/{leaf[:cut]}" if parent else leaf[:cut]
            item = self._open_object(path)
            if isinstance(item, self._h5.h5d.DatasetID):
                with wrap_errors(name):
                    dtype = self._dtype(path, item)
                return path, item, dtype, self._member_paths(path, dtype)[name]
            cut = leaf.rfind(".", 0, cut)
        raise KeyError(name)

    def _member_paths(self, path: str, dtype: np.dtype[Any]) -> dict[str, tuple[str, ...]]:
        ways: dict[str, tuple[str, ...]] = (
            {path: ()} if dtype.names is None else _members(path, dtype, self._h5)
        )
        if dtype.kind == "O":
            ways[path + _LENGTHS] = (_LENGTHS,)
        return ways

    def _open_object(self, path: str) -> Any:
        with wrap_errors(path):
            try:
                return self._object(path)
            except KeyError as error:
                missing = str(error.args[0])
                # Raised by `_object`: this link or one on the way does not exist.
                if path == missing or path.startswith(f"{missing}/"):
                    return None
                raise

    def _dtype(self, path: str, item: Any) -> np.dtype[Any]:
        self._check_own(path, item)
        if item.get_space().get_simple_extent_type() == self._h5.h5s.NULL:
            msg = f"{path}: an empty dataspace"
            raise _EmptyError(msg)
        try:
            dtype: np.dtype[Any] = item.dtype
        except TypeError as error:
            msg = f"{path}: {error}"
            raise _NotAValueError(msg) from error
        if not _readable(dtype, self._h5):
            msg = f"{path}: values of type {dtype} are not read; numbers and text are"
            raise _NotAValueError(msg)
        return dtype

    def sliced(self, name: str) -> int | None:
        _, item, dtype, member_path = self._dataset(name.strip("/"))
        return (
            int(item.shape[0]) if not member_path and dtype.kind in "biuf" and item.shape else None
        )

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        path, item, dtype, member_path = self._dataset(name.strip("/"))
        with wrap_errors(name):
            if member_path or dtype.kind not in "biuf":
                return super().read_rows(name, start, stop)
            start, stop = max(0, start), min(stop, item.shape[0])
            kept_start, rows = self._behind.pop(path, (0, np.empty((0, *item.shape[1:]), dtype)))
            values = (
                rows[start - kept_start :]
                if kept_start <= start < kept_start + len(rows)
                else rows[:0]
            )
            if start + len(values) < stop:
                begin = start + len(values)
                end = self._chunk_end(item, dtype, stop)
                self._check(path, item, dtype, (end - begin, *item.shape[1:]))
                read = np.asarray(self._h5.Dataset(item)[begin:end])
                values = np.concatenate([values, read]) if len(values) else read
            count = max(0, stop - start)
            if count < len(values):
                # A copy, because a view would keep all of the rows in memory.
                self._behind[path] = (start + count, values[count:].copy())
            return plain(values[:count])

    def _chunk_end(self, item: Any, dtype: np.dtype[Any], stop: int) -> int:
        """Return the row to read up to, so that the rows after `stop` need no chunk read twice.

        Notes:
            The library reads a whole chunk, whatever part of it is requested, if the chunk is
            compressed or fits into the chunk cache.
        """
        plist = self._properties(item)
        if plist.get_layout() != self._h5.h5d.CHUNKED:
            return stop
        chunk = plist.get_chunk()
        row, size = (math.prod(shape) * dtype.itemsize for shape in (item.shape[1:], chunk))
        taken = sum(rows.nbytes for _, rows in self._behind.values())
        direct = not plist.get_nfilters() and size > item.get_access_plist().get_chunk_cache()[1]
        if direct or chunk[0] * row > _BEHIND_BYTES - taken:
            return stop
        return int(min(item.shape[0], -(-stop // chunk[0]) * chunk[0]))

    def _properties(self, item: Any) -> Any:
        """Return a dataset's creation properties; cached for the last one, as a call takes 9 us."""
        if self._asked[0] is not item:
            self._asked = item, item.get_create_plist()
        return self._asked[1]

    def _check_own(self, path: str, item: Any) -> None:
        """Refuse a dataset whose values are in other files.

        Notes:
            Must run before the shape is read: the library opens the sources of a virtual dataset to
            compute the shape.
        """
        plist = self._properties(item)
        if plist.get_layout() == self._h5.h5d.VIRTUAL or plist.get_external_count():
            msg = (
                f"{path}: its values lie in other files, which are not read; copy them into this "
                f"one"
            )
            raise FormatError(msg)

    def _check(
        self, path: str, item: Any, dtype: np.dtype[Any], shape: tuple[int, ...] | None = None
    ) -> None:
        """Refuse a dataset whose values, or a part of shape `shape`, need too much memory."""
        plist = self._properties(item)
        if plist.get_layout() == self._h5.h5d.CHUNKED:  # no other layout has filters
            filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
            unknown = [f for f in filters if f not in _FILTERS]
            if unknown:
                allowed = ", ".join(_FILTERS.values())
                msg = (
                    f"{path}: compressed with filter {unknown[0]}; {allowed} are read: rewrite "
                    f"it with one of these"
                )
                raise FormatError(msg)
            check_bytes(
                math.prod(plist.get_chunk()) * dtype.itemsize, f"{path}: one chunk", _CHUNK_BYTES
            )
        size = math.prod(item.shape if shape is None else shape) * dtype.itemsize
        if size:
            check_expansion(size, item.get_storage_size(), path)

    def _ragged(self, item: Any, dtype: np.dtype[Any], *, lengths: bool) -> Any:
        raw = np.asarray(self._h5.Dataset(item)[()], dtype=object).ravel().tolist()
        if self._h5.check_string_dtype(dtype) is not None:
            if not lengths:
                return _texts(np.array(raw, dtype=object).reshape(item.shape))
            raw = [np.frombuffer(part, dtype=np.uint8) for part in raw]
        if lengths:
            return np.array([len(part) for part in raw], dtype=np.int64)
        base = plain_type(self._h5.check_vlen_dtype(dtype))
        return np.concatenate([np.asarray(part, dtype=base) for part in raw] or [np.empty(0, base)])

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        _, item, dtype, member_path = self._dataset(name.strip("/"))
        with wrap_errors(name):
            shape = tuple(item.shape)
            for member in member_path if dtype.names else ():
                shape, dtype = (*shape, *dtype.shape), dtype.base[member]
            if dtype.base.kind not in "biufcMm":
                return super().peek(name)
            pair = (2,) if dtype.base.kind == "c" else ()
            return (*shape, *dtype.shape, *pair), plain_type(dtype.base).str

    def stores_text(self, name: str) -> bool:
        _, _, dtype, member_path = self._dataset(name.strip("/"))
        for member in member_path if dtype.names else ():
            dtype = dtype.base[member]
        return dtype.base.kind in "SU" or (
            not member_path and self._h5.check_string_dtype(dtype) is not None
        )

    def attrs(self, name: str = "") -> dict[str, Any]:
        """Return the readable attributes of a group or dataset: arrays, text, lists of text."""
        name = name.strip("/")
        with wrap_errors(f"attributes of {name or '/'}"):
            item = self._groups[""] if not name else self._object(name)
            manager = self._h5.AttributeManager(_AttributeParent(item))
            attributes = {key: self._attribute(manager, key) for key in sorted(manager)}
        return {key: value for key, value in attributes.items() if value is not None}

    def _attribute(self, manager: Any, key: str) -> Any:
        try:
            with wrap_errors(key):
                if manager.get_id(key).get_storage_size() > _ATTRIBUTE_BYTES:
                    return None
                value = manager[key]
                if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "SUO":
                    value = np.asarray(value)
                    return strings(value) if value.dtype.kind != "O" else _texts(value)
                if isinstance(value, np.ndarray | np.generic):
                    return expand(key, np.asarray(value)).get(key)
                return from_python(value if isinstance(value, str) else None)
        except FormatError:
            return None


class _AttributeParent:
    """The parent object that h5py's attribute manager expects: it needs an identifier only."""

    def __init__(self, identifier: Any) -> None:
        self.id = identifier


def _address(h5: Any, item: Any) -> tuple[int, int]:
    info = h5.h5o.get_info(item)
    return info.fileno, info.addr


def _check_unique_names(names: Iterable[str]) -> None:
    """Refuse two values of one name where one is a member of a table or the lengths of a list.

    Raises:
        FormatError: there are two such values.
    """
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    made = next((name for name in duplicates if "." in name.rpartition("/")[2]), None)
    if made is not None:
        msg = f"two values are named {made[:60]}"
        raise FormatError(msg)


def _readable(dtype: np.dtype[Any], h5: Any) -> bool:
    """Return whether values of this type (or some of its members) are numbers or text."""
    if dtype.subdtype is not None:
        return dtype.base.kind != "O" and _readable(dtype.base, h5)
    if dtype.names is not None:
        return any(_readable(dtype[m], h5) for m in dtype.names)
    inner = h5.check_vlen_dtype(dtype)
    if inner is not None and not h5.check_string_dtype(dtype):
        return np.dtype(inner).kind in "biuf"
    return dtype.kind in "biufcMmSU" or (
        dtype.kind == "O" and h5.check_string_dtype(dtype) is not None
    )


def _members(path: str, dtype: np.dtype[Any], h5: Any) -> dict[str, tuple[str, ...]]:
    """Return {name: members on the way down} of the values in one dataset.

    A dataset without members gives {path: ()}; a compound dataset gives one entry per member.
    """
    if dtype.base.names is None:
        string = h5.check_string_dtype(dtype) is not None
        return {path: ()} if _readable(dtype, h5) and (dtype.kind != "O" or string) else {}
    member_paths: dict[str, tuple[str, ...]] = {}
    for member in dtype.base.names:
        for name, member_path in _members(f"{path}.{member}", dtype.base[member], h5).items():
            member_paths[name] = (member, *member_path)
    return member_paths


def _unread_members(path: str, dtype: np.dtype[Any], h5: Any) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it holds bytes) of the members of a compound that are no values."""
    for member in dtype.base.names or ():
        name, inner = f"{path}.{member}", dtype.base[member]
        if inner.base.names is not None:
            yield from _unread_members(name, inner, h5)
        elif not _members(name, inner, h5):
            yield name, h5.check_ref_dtype(inner) is None


def _value(name: str, array: Array) -> Any:
    value = expand(name, array)[name]
    if isinstance(value, FormatError):
        raise value
    return value


def _texts(array: Array) -> Any:
    """Return an object array of bytes or `str` as text; as flat uint8 if an entry is not UTF-8."""
    items = [
        item.encode("utf-8") if isinstance(item, str) else bytes(item)
        for item in array.ravel().tolist()
    ]
    try:
        decoded = np.empty(len(items), dtype=object)
        decoded[:] = [item.decode("utf-8") for item in items]
    except UnicodeDecodeError:
        return np.frombuffer(b"".join(items), dtype=np.uint8)
    return decoded.reshape(array.shape).tolist()


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Hdf5(path)


HDF5 = Format("hdf5", (".hdf5", ".h5", ".hdf", ".he5", ".nc"), _open, magic=(b"\x89HDF\r\n\x1a\n",))
