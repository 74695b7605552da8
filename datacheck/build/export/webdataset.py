"""Tar files as WebDataset reads them: the files of a sample lie together, its key stands before the first dot.

``<key>.<field>.npy``, ``.txt`` and ``.json``. Keys and fields are percent-encoded, dots of keys and slashes of fields
too; fields are in small letters, into which readers turn them.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from string import ascii_uppercase

from datacheck import fsops
from datacheck.build.export.samples import Exported, file_name, npy
from datacheck.cache import Cache

SHARD_BYTES = 256 << 20
_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
_ENDS = {"array": "npy", "text": "txt", "json": "json"}


def write(cache: Cache, samples: Iterable[Exported], folder: Path) -> dict[str, object]:
    """Write tar files of about `SHARD_BYTES`; return what each field is called in them.

    Raises:
        OutOfSpaceError: the disk is full.
    """
    names = _extensions({name: spec.kind for name, spec in cache.fields.items()})
    left, number = iter(samples), 0
    while (first := next(left, None)) is not None:
        path = folder / f"shard-{number:06d}.tar"
        fsops.write_file(path, _tarred(chain([first], left), names), sync=False)
        number += 1
    return {"key": "what stands before the first dot, unquoted", "fields": names}


def _extensions(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return what stands behind the first dot, by field: in small letters, as readers see it."""
    alike = Counter(name.lower() for name in kinds)
    names = {name: file_name(name, ascii_uppercase if alike[name.lower()] > 1 else "", flat=True) for name in kinds}
    return {name: f"{said.lower()}.{_ENDS[kinds[name]]}" for name, said in names.items()}


def _tarred(samples: Iterator[Exported], names: dict[str, str]) -> Iterator[bytes]:
    """Yield the bytes of a tar file; takes samples until it is full."""
    size = 0
    for sample in samples:
        members = {name: npy(array) for name, array in sample.arrays.items()} | sample.texts
        for name, data in sorted(members.items()):
            entry = tarfile.TarInfo(f"{file_name(sample.key, '.')}.{names[name]}")  # no time, no owner
            entry.size, entry.mode = len(data), 0o644
            parts = entry.tobuf(tarfile.GNU_FORMAT), data, bytes(-len(data) % _BLOCK)
            size += sum(map(len, parts))
            yield from parts
        if size >= SHARD_BYTES:
            break
    size += 2 * _BLOCK
    yield bytes(2 * _BLOCK + -size % _RECORD)
