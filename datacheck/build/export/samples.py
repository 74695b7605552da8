"""The samples of a cache, one after the other, as what they are: arrays, and texts as their bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

import numpy as np

from datacheck.cache import Cache
from datacheck.cache.columns import blocks, column, sample_bytes

Array = np.ndarray[Any, Any]

ABOUT = "export.json"  # beside the samples: of which cache they are
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
    for block in blocks(sample_bytes(cache, cache.fields, numbers), fields=len(cache.fields)):
        some = numbers[block]
        columns = {name: column(cache, name, some) for name in cache.fields}
        for i, key in enumerate(cache.keys(some)):
            found = {name: value for name, values in columns.items() if (value := values[i]) is not None}
            texts = {n: v.tobytes() for n, v in found.items() if cache.fields[n].kind != "array"}
            yield Exported(key, {n: v for n, v in found.items() if n not in texts}, texts)


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
