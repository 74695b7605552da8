"""The `Format` type, and `open_container`: picks a format by suffix, then by magic bytes."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.model.sample import Container
from datacheck.plugins import discover
from datacheck.runtime.beneath import AnyPath

_LFS_POINTER = b"version https://git-lfs"
_PAGES = (b"<!doctype html", b"<html", b"<?xml")
_HEAD_BYTES = 32
HEAD_BYTES = 1 << 14  # enough for every header of a plain table
_POINTER_BYTES = 1024  # a pointer has about 130 bytes; larger files are not searched for one
# Byte order marks of UTF-16 and UTF-32.
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_SHARD = re.compile(r"-\d+-of-\d+$")
# Zero bytes are a valid file of these formats: no label, no record, no point.
_MAY_BE_EMPTY = frozenset({"text", "jsonl", "conllu", "yaml", "kitti"})


@dataclass(frozen=True, slots=True)
class Hint:
    """What the schema expects of a file that does not describe its own values (a raw ``.bin``).

    Args:
        dtype: NumPy name of the values ("float32"), or "" for the format's own default.
        item: sizes of the axes after the first; () for a flat array.
    """

    dtype: str = ""
    item: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Layout of a file that is one plain table: rows of numbers from byte `start` to the end.

    Args:
        name: name of the table's field.
        dtype, rows, columns: type and shape of the table.
        start: offset of the first value, in bytes.
    """

    name: str
    dtype: np.dtype[Any]
    rows: int
    columns: int
    start: int


@dataclass(frozen=True, eq=False)
class Format:
    """One file format.

    Args:
        name: short name ("npy").
        suffixes: lower-case suffixes of the format's files, longest first, with the dot
            (".pcd.bin").
        open: ``(path, hint) -> Container``; raises `FormatError` for bytes that are not of this
            format.
        parse: ``(data, hint) -> Container``, the same from the bytes of a whole file; None for a
            format that reads parts of a file.
        table: ``(first bytes, size of the file) -> TableLayout``, or None for a file that is not
            one plain table; it receives the first `HEAD_BYTES` bytes, or the whole file if shorter.
        magic: first bytes, for files without a known suffix.
        fits: ``(first bytes) -> bool``, for files without a known suffix or magic bytes; it
            receives the first `HEAD_BYTES` bytes, or the whole file if shorter.
        directory: names of files that make a folder one container (Zarr).
        beside: names of files in the same folder that the format reads too.
        member: as `parse`, for a file inside an archive; set by formats that read parts of a file
            on disk.
        points: whether reading can start only at some rows (`Container.seek_points`).
        stems: ends of names before the suffix, in lower case, if the suffix alone may also mean
            another format: most .ts files are videos or code.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[AnyPath, Hint], Container]
    parse: Callable[[bytes, Hint], Container] | None = None
    table: Callable[[bytes, int], TableLayout | None] | None = None
    magic: tuple[bytes, ...] = ()
    fits: Callable[[bytes], bool] | None = None
    directory: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    member: Callable[[bytes, Hint], Container] | None = None
    points: bool = False
    stems: tuple[str, ...] = ("",)

    @property
    def may_be_empty(self) -> bool:
        """Whether a file of zero bytes is valid: no label, no record, no point."""
        return self.name in _MAY_BE_EMPTY


@cache
def formats() -> dict[str, Format]:
    """Return every format by name, built-in and from plug-ins."""
    return {f.name: f for f in discover("datacheck.formats", Format)}


@cache
def _by_suffix() -> dict[str, Format]:
    # Reversed, so that the first format listed keeps a suffix that several formats claim.
    return {suffix: f for f in reversed(formats().values()) for suffix in f.suffixes}


def format_of(name: str) -> Format | None:
    """Return the format that claims a file name, or None; opens nothing."""
    by_suffix = _by_suffix()
    lowered = unnumbered(name.lower())
    # Try the longest suffix first.
    dot = lowered.find(".", lowered.rfind("/") + 1)
    while dot >= 0:
        found = by_suffix.get(lowered[dot:])
        if found is not None and lowered.endswith(found.stems, 0, dot):
            return found
        dot = lowered.find(".", dot + 1)
    return None


def unnumbered(name: str) -> str:
    """Return a file name without its shard number, ``-00000-of-00008`` at the end."""
    return _SHARD.sub("", name) if "-of-" in name else name


@cache
def store_markers() -> frozenset[str]:
    """Return the file names that make a folder one container."""
    return frozenset(marker for f in formats().values() for marker in f.directory)


def open_container(path: AnyPath, hint: Hint | None = None) -> Container:
    """Open a file (or a Zarr folder).

    Raises:
        FormatError: no format reads the file, or its bytes are damaged or refused.
        MissingDependencyError: the format's library is not installed; the message names the extra.
    """
    hint = hint or Hint()
    file_format: Format | None = None
    try:
        status = path.stat()
        file_format = _format(path, status.st_mode)
        if status.st_size < _POINTER_BYTES and not file_format.directory:
            _check_placeholder(_head(path), file_format, status.st_size)
        return file_format.open(path, hint)
    except OSError as error:
        msg = error.strerror or str(error)
        raise FormatError(msg) from error
    except FormatError as error:
        if error.code == "DC101" and path.is_file() and _is_page(file_format, _head(path)):
            raise FormatError(_PAGE_REASON, "DC102") from error
        raise


def _format(path: AnyPath, mode: int) -> Format:
    if stat.S_ISDIR(mode):
        file_format = next(
            (f for f in formats().values() if any((path / m).is_file() for m in f.directory)), None
        )
    elif stat.S_ISREG(mode):
        file_format = format_of(path.name) or _by_content(path)
    else:
        msg = "not a regular file (a device, a socket or a pipe)"
        raise FormatError(msg)
    if file_format is None:
        msg = (
            f"no format reads {path.suffix or 'files without a suffix'}; known are "
            f"{', '.join(sorted(formats()))}"
        )
        raise FormatError(msg)
    return file_format


def parse_container(found: Format, data: bytes, hint: Hint | None = None) -> Container:
    """Open the bytes of a whole file of a format that has `Format.parse` or `Format.member`.

    Raises:
        FormatError: the bytes are damaged or refused.
    """
    parse = found.parse or found.member
    assert parse is not None
    head = data[:_HEAD_BYTES]
    try:
        if len(data) < _POINTER_BYTES:
            _check_placeholder(head, found, len(data))
        return parse(data, hint or Hint())
    except FormatError as error:
        if error.code == "DC101" and _is_page(found, head):
            raise FormatError(_PAGE_REASON, "DC102") from error
        raise


def _is_page(file_format: Format | None, head: bytes) -> bool:
    """Return whether a file starts like an HTML page, or like XML unless its format is XML."""
    pages = _PAGES[:2] if file_format is not None and file_format.name == "xml" else _PAGES
    return head.lstrip().lower().startswith(pages)


_PAGE_REASON = (
    "an HTML or XML page, not the data: most likely what a server sent in place of the file"
)


def _check_placeholder(head: bytes, file_format: Format, size: int) -> None:
    """Refuse placeholders that some formats would read as data.

    Raises:
        FormatError: the file is empty (DC103), a Git LFS pointer (DC102), or a page in place of
            JSON lines (DC102).
    """
    if size == 0 and not file_format.may_be_empty:
        msg = "the file is empty (0 bytes)"
        raise FormatError(msg, "DC103")
    check_pointer(head)
    if file_format.name in {"jsonl", "lines"} and head.lstrip().lower().startswith(_PAGES):
        raise FormatError(_PAGE_REASON, "DC102")


def check_pointer(head: bytes) -> None:
    """Refuse bytes that start like a Git LFS pointer.

    Raises:
        FormatError: the bytes are a pointer (DC102).
    """
    if head.startswith(_LFS_POINTER):
        msg = "a Git LFS pointer, not the data: git lfs pull"
        raise FormatError(msg, "DC102")


def check_lines(path: AnyPath) -> None:
    """Refuse a file that is not JSON lines at all, with one error instead of one per line.

    Raises:
        FormatError: the file is a pointer or a page (DC102), text in UTF-16 or UTF-32, or one JSON
            document over several lines in place of JSON lines (DC101), or it cannot be opened.
    """
    head = _head(path)
    file_format = format_of(path.name)
    check_pointer(head)
    if file_format is None or file_format.name not in {"jsonl", "json"}:
        return
    if head.lstrip().lower().startswith(_PAGES):
        raise FormatError(_PAGE_REASON, "DC102")
    if file_format.name == "jsonl" and head.startswith(_WIDE_BOMS):
        msg = "text in UTF-16 or UTF-32: JSON lines are UTF-8; convert the file"
        raise FormatError(msg)
    first_line, ended, _ = head.lstrip().partition(b"\n")
    if (
        file_format.name == "jsonl"
        and ended
        and first_line.removeprefix(b"\xef\xbb\xbf").strip() in {b"[", b"{"}
    ):
        msg = (
            "one JSON document over several lines, not a value on each line: call it .json, or "
            "write JSON lines"
        )
        raise FormatError(msg)


def _head(path: AnyPath, size: int = _HEAD_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise FormatError(error.strerror or str(error)) from error


def _by_content(path: AnyPath) -> Format | None:
    head = _head(path, HEAD_BYTES)
    by_magic = next(
        (f for f in formats().values() if any(head.startswith(m) for m in f.magic)), None
    )
    return by_magic or next(
        (f for f in formats().values() if f.fits is not None and f.fits(head)), None
    )
