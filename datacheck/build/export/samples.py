"""The samples of a cache, one after the other, as what they are: arrays, and texts as their bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

import numpy as np

from datacheck.cache import Cache

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 64 << 20
_PLAIN = frozenset(ascii_letters + digits + "_.-~ @+=,()[]")


@dataclass(frozen=True, slots=True)
class Exported:
    """A sample of a cache.

    Args:
        key: its key.
        arrays: its fields that are numbers.
        texts: its fields that are text or canonical JSON, in UTF-8.
    """

    key: str
    arrays: dict[str, Array]
    texts: dict[str, bytes]


def samples(cache: Cache, numbers: Array) -> Iterator[Exported]:
    """Yield samples in the order of `numbers`; a field that a sample lacks is left out.

    Raises:
        CorruptionError: what is stored is not what was written.
    """
    size = sum(count for count, _ in cache.manifest.files.values())
    block = max(1, _BLOCK_BYTES * len(cache) // max(1, size))
    for first in range(0, len(numbers), block):
        some = numbers[first : first + block]
        keys = cache.keys(some)
        columns = {name: _column(cache, name, some) for name in cache.fields}
        for i, key in enumerate(keys):
            found = {name: value for name, values in columns.items() if (value := values[i]) is not None}
            texts = {n: v.tobytes() for n, v in found.items() if cache.fields[n].kind != "array"}
            yield Exported(key, {n: v for n, v in found.items() if n not in texts}, texts)


def _column(cache: Cache, name: str, numbers: Array) -> list[Array | None]:
    present = cache.present(name, numbers)
    if cache.fields[name].dim is None:
        values = [np.asarray(value) for value in cache.gather(name, numbers)]
    else:
        rows, lengths = cache.gather_ragged(name, numbers)
        values = np.split(rows, np.cumsum(lengths)[:-1])
    if present is None:
        return list(values)
    return [value if ok else None for value, ok in zip(values, present.tolist(), strict=True)]


def npy(array: Array) -> bytes:
    """Return an array as the bytes of an .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def file_name(key: str, escaped: str = "", *, flat: bool = False) -> str:
    """Return a key as a relative path of plain characters; `urllib.parse.unquote` gives the key again.

    Args:
        key: any text; ``/`` separates folders.
        escaped: more characters to escape.
        flat: escape ``/``, too.
    """
    return "/".join(_part(part, escaped) for part in ([key] if flat else key.split("/")))


def _part(part: str, escaped: str) -> str:
    plain = _PLAIN - set(escaped)
    raw = part.encode("utf-8", "surrogatepass")
    said = "".join(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in raw)
    if said.startswith("__") or (said and not said.strip(".")):  # what loaders or file systems take for something else
        said = f"%{ord(said[0]):02X}{said[1:]}"
    return said or "%00"
