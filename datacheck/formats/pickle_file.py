"""Pickle files (.pickle, .pkl), also compressed; reads many of one form without unpickling each.

A dataset often has thousands of pickles that differ only in the numbers of their arrays. The first
ones of a size are unpickled by `pickle_safe`. From the second one a template is made: it knows at
which offsets the bytes of each array are, and cuts the arrays of the next pickles out of them.
"""

from __future__ import annotations

import contextlib
import pickletools
import zlib
from collections.abc import Set
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    FLOOR_BYTES,
    RATIO,
    TEXT_BYTES,
    Values,
    check_bytes,
    check_expansion,
    wrap_errors,
)
from datacheck.formats.pickle_safe import unpickle
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath

_MAX_TEMPLATES = 64  # sizes that are remembered
_TEMPLATES_PER_SIZE = 8
_TEMPLATE_BYTES = 1 << 20  # larger pickles are unpickled
# By size; None stands for a pickle that was tried without success.
_templates: dict[int, list[_PickleTemplate | None]] = {}


def _open(path: AnyPath, hint: Hint) -> Container:
    check_bytes(path.stat().st_size, "the pickle", TEXT_BYTES)
    return _parse(path.read_bytes(), hint)


def _parse(data: bytes, hint: Hint) -> Container:
    """Parse a pickle; of many that differ only in the data of their arrays, unpickles the first."""
    del hint
    if data[:2] in _COMPRESSED:
        data = _decompressed(data)
    size = len(data)
    if size > _TEMPLATE_BYTES:
        return Values(unpickle(data))
    templates = _templates.get(size)
    for template in templates or ():
        filled = None if template is None else template.filled(data)
        if filled is not None:
            return filled
    values = unpickle(data)
    if templates is None:
        if len(_templates) >= _MAX_TEMPLATES:
            del _templates[next(iter(_templates))]
        _templates[size] = []  # a second pickle of this size is worth the search
    elif len(templates) < _TEMPLATES_PER_SIZE:
        templates.append(_make_template(data, values))
    return Values(values)


# The first bytes of zlib, as joblib writes it, and of gzip.
_COMPRESSED = frozenset({b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b"})


def _decompressed(data: bytes) -> bytes:
    with wrap_errors("damaged compressed pickle"):
        stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects zlib and gzip by their headers
        most = min(TEXT_BYTES, max(FLOOR_BYTES, RATIO * len(data)))
        unpacked = stream.decompress(data, most + 1)
        check_expansion(len(unpacked), len(data), "the pickle")
        if not stream.eof:
            msg = "a compressed pickle that is cut short"
            raise FormatError(msg)
        return unpacked


# ---------------------------------------------------------------------------------------- templates


class _PickleTemplate(Container):
    """A pickle whose values are cut out of its bytes, at places known from another pickle.

    Args:
        data: the bytes of the pickle.
        fixed: where the bytes between the data of arrays lie.
        offsets: where the data of an array start, by name.
        values: values of the pickle that the places were found in.
    """

    def __init__(
        self, data: bytes, fixed: list[slice], offsets: dict[str, int], values: dict[str, Any]
    ) -> None:
        self._data = data
        self._fixed = fixed
        self._offsets = offsets
        self._values = values
        self._fixed_bytes = b"".join([data[part] for part in fixed])
        self._names = sorted(values)

    def filled(self, data: bytes) -> _PickleTemplate | None:
        """Return another pickle of this form, None if more than the data of its arrays differs."""
        if b"".join([data[part] for part in self._fixed]) != self._fixed_bytes:
            return None
        other = object.__new__(_PickleTemplate)
        other.__dict__.update(self.__dict__)
        other._data = data
        return other

    def names(self) -> list[str]:
        return self._names

    def read(self, name: str) -> Any:
        value = self._values[name]
        if name not in self._offsets:
            return value
        flat = np.frombuffer(self._data, value.dtype, value.size, self._offsets[name])
        return flat.reshape(value.shape)

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        return Values(self._values).peek(name)


def _make_template(data: bytes, values: dict[str, Any]) -> _PickleTemplate | None:
    """Return the template of a pickle, None unless it is certain which bytes belong to which array.

    Notes:
        Proof: with other bytes in these places, the unpickler returns exactly these other arrays
        and changes nothing else.
    """
    found = {name: _data_offset(data, value) for name, value in values.items()}
    offsets = {name: offset for name, offset in found.items() if offset is not None}
    spans = sorted({(offset, offset + values[name].nbytes) for name, offset in offsets.items()})
    if not spans or not _are_used_once(data, {start for start, _ in spans}):
        return None
    edges = [0, *(edge for span in spans for edge in span), len(data)]
    have_errors = any(isinstance(value, FormatError) for value in values.values())
    if have_errors or edges != sorted(edges):
        return None
    fixed = [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    template = _PickleTemplate(data, fixed, offsets, values)
    return template if _is_proven(template, data, spans) else None


def _is_proven(template: _PickleTemplate, data: bytes, spans: list[tuple[int, int]]) -> bool:
    """Return whether the template reads a pickle with other bytes as the unpickler does."""
    changed = bytearray(data)
    for start, stop in spans:
        changed[start:stop] = bytes(byte ^ 0x55 for byte in data[start:stop])
    filled = template.filled(bytes(changed))
    try:
        wanted = unpickle(bytes(changed))
    except FormatError:
        return False
    if filled is None or filled.names() != sorted(wanted):
        return False
    return all(_equal(filled.read(name), wanted[name]) for name in wanted)


def _are_used_once(data: bytes, starts: Set[int]) -> bool:
    """Return whether a pickle never fetches the strings at `starts` again: one may also be a key.

    Notes:
        `_make_template`'s trial with other bytes cannot prove that: what the strings are equal to
        shows only in some files.
    """
    memo = set[int]()
    string_indices = set[int]()
    just_pushed = False
    with contextlib.suppress(Exception):
        for code, number, offset in pickletools.genops(data):
            name = code.name
            if name in _PUTS:
                index = len(memo) if number is None else int(number)
                memo.add(index)
                if just_pushed:
                    string_indices.add(index)
                else:
                    string_indices.discard(index)
            elif name == "DUP" or (name in _GETS and int(str(number)) in string_indices):
                return False
            just_pushed = (
                name in _STRINGS and offset is not None and bool({offset + 2, offset + 5} & starts)
            )
        return True
    return False


_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_STRINGS = {"BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"}


def _data_offset(data: bytes, value: Any) -> int | None:
    """Return the offset of an array's bytes, if they occur once, as one string, in a pickle."""
    if not isinstance(value, np.ndarray) or not value.nbytes or not value.flags.c_contiguous:
        return None
    raw = value.tobytes()
    size = len(raw).to_bytes(4, "little")
    heads = [b"T" + size, b"B" + size]
    if len(raw) < 256:
        heads += [b"U" + size[:1], b"C" + size[:1]]
    matches = [(data.find(head + raw), len(head)) for head in heads]
    offsets = [position + length for position, length in matches if position >= 0]
    return offsets[0] if len(offsets) == 1 and data.count(raw) == 1 else None


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return type(one) is type(other) and bool(one == other)
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"(dp")
PICKLE = Format("pickle", (".pickle", ".pkl"), _open, _parse, magic=_STARTS)
