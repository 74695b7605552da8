"""Caps on what untrusted bytes may cost, and conversion to plain arrays and text.

Parsers run in an expendable child process under time and memory limits. The caps here come first: a
hostile file ends in one error message instead of a killed child.
"""

from __future__ import annotations

import fnmatch
import glob
import math
import os
import posixpath
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from datacheck.errors import DatacheckError, FormatError, TooManySamplesError
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath
from datacheck.workers import budget

VALUE_BYTES = 4 << 30  # one value in memory; the child process of a scan has 8 GiB
TEXT_BYTES = 1 << 30  # one text, JSON, YAML or pickle file: its objects take a multiple of its size
FLOOR_BYTES = 256 << 20  # expansions below this are harmless whatever their ratio
RATIO = 1100  # deflate cannot expand further than 1032:1
_MAP_BYTES = 16 << 20  # larger arrays are mapped, not read
DEPTH = 64
SAMPLES = 1 << 28  # of one file
# As stored: a row of a label column that compresses well takes a tenth of a byte.
SAMPLES_PER_BYTE = 16
SAMPLES_FREE = 1 << 18  # of one file, however small
_AXIS = 1 << 24  # largest axis next to an axis of size 0
FIELDS = 30_000  # of one sample
KEYS = 16 * FIELDS  # of one document; a schema may declare only a few of them
# characters of one name, and of all names of a sample
_NAME = 1000
_NAMES = 1 << 20
# The filter that warnings.simplefilter("ignore") puts first.
_SILENCE = [("ignore", None, Warning, None, 0)]
# How an error message of a library names a file that is held open.
_HANDLE = re.compile(r"'?/proc/self/fd/\d+'?")
# How libraries report that memory ran out.
_NO_ROOM = re.compile(
    r"\b\w*alloc(at(e|ing|ion))?\b|out of memory|not enough memory", re.IGNORECASE
)
# The address of an object in memory: without it two scans of one file report the same text.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


# A class, because it is entered about a hundred times per file: as a generator it takes three
# times as long.
class wrap_errors:  # noqa: N801
    """Turn any error of a library on damaged bytes into a `FormatError` that starts with `what`.

    Notes:
        Rust libraries raise ``PanicException``, which derives from BaseException only. Warnings are
        silenced.
    """

    __slots__ = ("_quiet", "_what")

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._quiet = None if warnings.filters[:1] == _SILENCE else warnings.catch_warnings()
        if self._quiet is not None:
            self._quiet.__enter__()
            warnings.simplefilter("ignore")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        if self._quiet is not None:
            self._quiet.__exit__(kind, error, trace)
        if error is None or isinstance(
            error, DatacheckError | KeyboardInterrupt | SystemExit | GeneratorExit
        ):
            return
        if budget.BY_SIZE and (isinstance(error, MemoryError) or _NO_ROOM.search(str(error))):
            raise MemoryError(str(error)) from error  # a scan may retry the file with more memory
        # The argument of a KeyError or IndexError is often a bare number, which explains nothing.
        detail = error.args[0] if isinstance(error, KeyError) and error.args else error
        if isinstance(error, KeyError | IndexError) and not isinstance(detail, str):
            detail = f"the library that reads it fails ({type(error).__name__}: {detail})"
        reason = (
            _HANDLE.sub("the file", _ADDRESS.sub("", " ".join(str(detail).split())))[:300]
            or type(error).__name__
        )
        msg = f"{self._what}: {reason}"
        raise FormatError(msg) from error


def damaged_gzip(error: Exception) -> FormatError:
    """Return the `FormatError` for an error of the gzip module."""
    reason = str(error)
    if "Not a gzipped file" in reason:  # raised for the bytes after the packed ones as well
        reason = "it does not begin as one, or other bytes follow the packed ones"
    return FormatError(f"damaged gzip file: {reason}")


def check_bytes(size: int, what: str, limit: int = VALUE_BYTES) -> None:
    """Refuse more bytes than a value may have.

    Raises:
        FormatError: `size` is above `limit`.
    """
    if size > limit:
        msg = f"{what}: {size:,} bytes; at most {limit:,} are read at once"
        raise FormatError(msg)


def check_expansion(size: int, stored: int, what: str) -> None:
    """Refuse values far larger than the bytes that store them (a bomb, or missing storage).

    Raises:
        FormatError: `size` is above the cap, or above 1,100 times `stored` and above 256 MiB.
    """
    check_bytes(size, what)
    if size > max(FLOOR_BYTES, RATIO * stored):
        msg = (
            f"{what}: {size:,} bytes are declared but only {stored:,} stored; at most {RATIO}:1 "
            f"is read"
        )
        raise FormatError(msg)


def check_samples(count: int, stored: int) -> None:
    """Refuse a file with far more samples than its bytes can hold (a bomb, rows without bytes).

    Args:
        count: number of samples.
        stored: size of the file on disk, in bytes.

    Raises:
        TooManySamplesError: `count` is above 268,435,456, or above 16 times `stored` and above
            262,144.
    """
    if count > min(SAMPLES, max(SAMPLES_FREE, SAMPLES_PER_BYTE * stored)):
        msg = (
            f"{count:,} samples or more in a file of {stored:,} bytes; at most {SAMPLES_PER_BYTE} "
            f"a byte are read, and "
            f"{SAMPLES:,} of a file. Cut it into several, or store it with less compression"
        )
        raise TooManySamplesError(msg)


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse an array without values whose shape no honest empty array has: [0, 2**60].

    Raises:
        FormatError: a shape has an axis of size 0 and one of more than 16,777,216.
    """
    if 0 in shape and max(shape) > _AXIS:
        msg = (
            f"shape {list(shape)} has no values; beside an axis of size 0 at most {_AXIS:,} are "
            f"read"
        )
        raise FormatError(msg)


def check_fields(count: int, counted: str = "values") -> None:
    """Refuse more values than one sample may have; each one costs as much as a column of a table.

    Raises:
        FormatError: `count` is above `FIELDS`.
    """
    if count > FIELDS:
        msg = f"holds {count:,} {counted}; at most {FIELDS:,} are read as one sample"
        raise FormatError(msg)


def check_keys(count: int) -> None:
    """Refuse a document with more keys than datacheck handles one by one, declared or not.

    Raises:
        FormatError: `count` is above `KEYS`.
    """
    if count > KEYS:
        msg = (
            f"holds {count:,} values or more under names of their own; at most {KEYS:,} are told "
            f"apart"
        )
        raise FormatError(msg)


def check_names(names: Collection[str]) -> None:
    """Refuse more or longer names than one sample may have; the scan's main process holds them all.

    Raises:
        FormatError: more than `FIELDS` names, more than 1,048,576 characters in all, or a name that
            `check_longest` refuses.
    """
    check_fields(len(names))
    check_longest(names)
    length = sum(map(len, names))
    if length > _NAMES:
        msg = (
            f"holds {len(names):,} names of {length:,} characters in all; at most {_NAMES:,} are "
            f"read as one sample"
        )
        raise FormatError(msg)


def check_longest(names: Iterable[str]) -> None:
    """Refuse names that are too long.

    Raises:
        FormatError: a name has more than 1,000 characters.
    """
    longest = max(names, key=len, default="")
    if len(longest) > _NAME:
        msg = (
            f"holds a name of {len(longest):,} characters, {longest[:20]!r}...; at most "
            f"{_NAME:,} are read"
        )
        raise FormatError(msg)


def check_path(path: str) -> None:
    """Refuse a file whose path is too long; the path is part of the key of each of its samples.

    Raises:
        FormatError: the path has more than 1,000 characters.
    """
    if len(path) > _NAME:
        msg = f"lies at a path of {len(path):,} characters; at most {_NAME:,} are read"
        raise FormatError(msg)


def path_below(name: str) -> str | None:
    """Return the normalised path of a file that a document names; None if it is not below a folder.

    Notes:
        Libraries join such names to a folder: ``./a``, ``b/../a`` and ``a`` name the same file.
    """
    path = posixpath.normpath(name)
    leads_out = path in {".", ".."} or path.startswith(("/", "../"))
    return None if leads_out or "\0" in path else path


class CountedContainer(Container):
    """A container with a lower bound of its number of values, known before it reads any of them.

    Attributes:
        counted: plural noun for the objects that `least` counts.
    """

    counted = "values"
    _known = 0

    def least(self) -> int:
        """Return a lower bound of the number of values."""
        return self._known


class Values(CountedContainer):
    """A container whose values are in memory; reading a value that is a `FormatError` raises it.

    Args:
        values: the values by name.
        nulls: names that the file has without a value; a sample treats them as absent.
    """

    def __init__(self, values: Mapping[str, Any], nulls: Sequence[str] = ()) -> None:
        self._values = values
        self.nulls = nulls
        self._known = len(values)

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._values)

    def read(self, name: str) -> Any:
        """Return one value.

        Raises:
            KeyError: no value has this name.
            FormatError: this value is damaged or refused; the others can still be read.
        """
        value = self._values[name]
        if isinstance(value, FormatError):
            raise value
        return value

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        """Return (shape, dtype); text and JSON have shape () and the dtype "text" or "json"."""
        value = self.read(name)
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype.str
        return (), "text" if isinstance(value, str) else "json"


def plain_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that `plain` converts to: bool, integer or float, little-endian.

    Notes:
        Long doubles become float64; dates and durations their int64 count; complex numbers floats
        (see `plain`).

    Raises:
        FormatError: objects, opaque bytes, structures, strings.
    """
    if dtype.kind in "Mm":
        return np.dtype("<i8")
    if dtype.kind == "c":
        return np.dtype("<f4" if dtype.itemsize == 8 else "<f8")
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype("<f8")
    if dtype.kind in "biuf":
        return dtype.newbyteorder("<")
    msg = f"values of type {dtype} are not read; numbers and text are"
    raise FormatError(msg)


def plain(array: Array) -> Array:
    """Return `array` as little-endian numbers in C order; a view where it already is.

    Shapes:
        array: any (*shape)
        returns: bool, int or float (*shape), or (*shape, 2) [real, imaginary] for complex numbers

    Raises:
        FormatError: the values are not numbers.
    """
    target = plain_type(array.dtype)
    if array.dtype.kind in "Mm":
        return np.asarray(array.astype("<i8", order="C"))
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1).astype(target)
    return np.asarray(array, dtype=target, order="C")


def matching(
    pattern: str, below: Callable[[str], Iterable[str]], is_group: Callable[[str], bool]
) -> list[str]:
    """Return the groups that match ``/data/demo_*``, sorted; ``*`` stays within one level.

    A schema's patterns follow the same rule.

    Args:
        pattern: levels with "/" between them.
        below: returns the paths inside a group.
        is_group: whether a path is a group.

    Raises:
        FormatError: a path is longer than `check_longest` allows: a group's path becomes the key of
            a sample.
    """
    paths = [""]
    for level in pattern.strip("/").split("/"):
        # `*` is the only wildcard that is left: matching takes linear time.
        fits = re.compile(fnmatch.translate(glob.escape(level).replace("[*]", "*"))).fullmatch
        inside = [
            inner for path in paths for inner in below(path) if fits(inner.rpartition("/")[2])
        ]
        paths = [inner for inner in inside if is_group(inner)]
    check_longest(paths)
    return sorted(paths)


def stored(path: AnyPath, dtype: np.dtype[Any], shape: tuple[int, ...], start: int = 0) -> Array:
    """Return raw numbers of a file from byte `start`: read, or memory-mapped from 16 MiB on.

    Raises:
        FormatError: the file is shorter, or cannot be read.
    """
    count = math.prod(shape)
    with wrap_errors("the file cannot be read"):
        if count * dtype.itemsize < _MAP_BYTES:
            return np.fromfile(path, dtype=dtype, count=count, offset=start).reshape(shape)
        # A string, because np.memmap takes every PathLike for a pathlib.Path.
        mapped = np.memmap(os.fspath(path), dtype=dtype, mode="r", offset=start, shape=(count,))
        return mapped.view(np.ndarray).reshape(shape)


def text(data: bytes, what: str = "text") -> str:
    """Return UTF-8 text without a byte order mark.

    Raises:
        FormatError: not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{what}: byte {error.start} ({data[error.start]:#04x}) is not UTF-8"
        raise FormatError(msg) from error


def strings(array: Array) -> Any:
    """Return an array of strings as `str` (no axes) or nested lists; undecodable bytes as uint8.

    Shapes:
        array: bytes or unicode (*shape)
        returns: str, JSON, or uint8 (*shape, width) where an entry is not UTF-8 (images stored as
            strings)

    Raises:
        FormatError: an entry holds half of a surrogate pair or a number that is no code point.
    """
    if array.dtype.kind == "S":
        try:
            return _nested(array, lambda item: item.rstrip(b"\0").decode("utf-8"))
        except UnicodeDecodeError:
            flat = np.ascontiguousarray(array).view(np.uint8)
            return flat.reshape(*array.shape, array.dtype.itemsize)
    if array.dtype.kind == "U" and array.size:
        points = np.ascontiguousarray(array).view(array.dtype.byteorder.replace("=", "<") + "u4")
        # 0xD800 to 0xDFFF are halves of surrogate pairs. Above 0x10FFFF no Python string exists.
        if ((points > 0x10FFFF) | (points >> 11 == 0x1B)).any():
            msg = "text with a code point that Unicode does not have"
            raise FormatError(msg)
    return _nested(array, str)


def _nested(array: Array, convert: Any) -> Any:
    flat = np.empty(array.size, dtype=object)
    flat[:] = [convert(item) for item in array.ravel().tolist()]
    return flat.reshape(array.shape).tolist()


def add_values(values: dict[str, Any], more: Iterable[tuple[str, Any]]) -> None:
    """Add values by name.

    Raises:
        FormatError: a name is taken, by a field of the file or by a member of a structured field.
    """
    for name, value in more:
        if name in values:
            msg = f"two values are named {name[:60]}"
            raise FormatError(msg)
        values[name] = value


def expand(name: str, array: Array) -> dict[str, Any]:
    """Return an array as named values: itself, or ``name.member`` per member of a structured one.

    Notes:
        A member that is neither numbers nor text becomes a `FormatError` under its name; the others
        stay readable.
    """
    if array.dtype.names is not None:
        parts = [expand(f"{name}.{m}", array[m]) for m in array.dtype.names if m]
        values: dict[str, Any] = {}
        add_values(values, chain.from_iterable(part.items() for part in parts))
        return values
    try:
        return {name: strings(array) if array.dtype.kind in "SUT" else plain(array)}
    except FormatError as error:
        return {name: FormatError(f"{name}: {error}")}


_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r")


def text_lines(data: bytes) -> list[bytes]:
    r"""Return the lines of a text file without line ends, which are all \n (or \r\n) or all \r.

    Raises:
        FormatError: the text has other control characters, or \r within lines: readers disagree on
            where such lines end.
    """
    if len(data.translate(None, _CONTROLS)) < len(data):
        control = next(code for code in _CONTROLS if code in data)
        msg = f"a control character (code {control}) in text; readers differ in what it means"
        raise FormatError(msg)
    if b"\n" not in data:
        return data.split(b"\r")
    if data.count(b"\r") > data.count(b"\r\n"):
        msg = "some lines end in \\n and some in \\r; readers differ in where they end"
        raise FormatError(msg)
    return data.replace(b"\r\n", b"\n").split(b"\n")


def numbers(data: bytes) -> Array:
    """Return the numbers of a text that white space separates.

    Shapes:
        returns: float64 (tokens)

    Raises:
        FormatError: a token is not a number.
    """
    if not data.strip():
        return np.empty(0)
    try:
        with warnings.catch_warnings():
            # Before NumPy 2.4 a bad token raised only a DeprecationWarning.
            warnings.simplefilter("error")
            return np.fromstring(data.decode("ascii"), dtype=np.float64, sep=" ")
    except (ValueError, DeprecationWarning) as error:
        msg = f"{_first_bad(data)!r} stands where a number is expected"
        raise FormatError(msg) from error


def declared(column: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Return numbers that were read from text in the dtype that the file's header declares.

    Shapes:
        column: float64 (rows) or (rows, count)

    Raises:
        FormatError: a number does not fit into the dtype.
    """
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return column.astype(dtype)
    low = float(np.iinfo(dtype).min)
    high = float(np.iinfo(dtype).max + 1)
    if not ((column >= low) & (column < high) & (column == np.trunc(column))).all():
        msg = f"{name} is declared {dtype} but holds other numbers"
        raise FormatError(msg)
    return column.astype(dtype)


def _first_bad(data: bytes) -> str:
    for token in data.split():
        try:
            float(token)
        except ValueError:
            return token[:40].decode("ascii", "backslashreplace")
    return data[:40].decode("ascii", "backslashreplace")


def triangles(counts: Array, corners: Array) -> Array:
    """Return polygons as triangles, each polygon as a fan around its first corner.

    Shapes:
        counts: int (polygons) [corners]
        corners: int (corners of all polygons, one after another)
        returns: int64 (triangles, 3)
    """
    per_polygon = np.maximum(counts.astype(np.int64) - 2, 0)
    polygon_starts = np.cumsum(counts, dtype=np.int64) - counts
    root = np.repeat(polygon_starts, per_polygon)
    step = np.arange(len(root)) - np.repeat(np.cumsum(per_polygon) - per_polygon, per_polygon)
    picks = np.stack([root, root + step + 1, root + step + 2], axis=-1)
    triangle_corners: Array = np.asarray(corners, dtype=np.int64)[picks]
    return triangle_corners
