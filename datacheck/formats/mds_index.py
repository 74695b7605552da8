"""The ``index.json`` of a folder of MDS shards: which shards it lists, and whether a shard fits it.

Streaming finds shards, samples and columns by the index alone. A shard that its index does not
list, or describes otherwise, would be served differently from what its own header says, so it is
refused. The index is untrusted: a field of it may have any JSON type.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

import xxhash

from datacheck.errors import FormatError
from datacheck.formats.limits import TEXT_BYTES, check_bytes, wrap_errors
from datacheck.formats.parsed import parse_json
from datacheck.runtime.beneath import AnyPath

INDEX = "index.json"
_READ_BYTES = 1 << 20
_XXHASHES = frozenset({"xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"})


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """The entry of one shard in an index.

    Args:
        values: the JSON object.
    """

    values: Mapping[str, Any]

    def names(self) -> list[str]:
        """Return the names of the shard's plain and of its compressed file, where declared."""
        declared = [self._file(key).get("basename") for key in ("raw_data", "zip_data")]
        return [name for name in declared if isinstance(name, str)]

    def check_plain(self, file: BinaryIO) -> None:
        """Check size and hashes of the plain file; also that of an unpacked shard.

        Raises:
            FormatError: the index declares others, or a hash that is not known.
        """
        _check_file(file, self._file("raw_data"))

    def check_compressed(self, file: BinaryIO) -> None:
        """Check size and hashes of the compressed file.

        Raises:
            FormatError: the index declares others, or a hash that is not known.
        """
        _check_file(file, self._file("zip_data"))

    def check_header(self, header: Mapping[str, Any]) -> None:
        """Check that the index repeats the header of the shard.

        Args:
            header: what the shard has, by the keys of an index entry.

        Raises:
            FormatError: the index says something else.
        """
        for key, actual in header.items():
            declared = self.values.get(key)
            if declared != actual:
                msg = (
                    f"{INDEX} says {key} {str(declared)[:100]}, but the shard has "
                    f"{str(actual)[:100]}"
                )
                raise FormatError(msg)

    def _file(self, key: str) -> Mapping[str, Any]:
        return _mapping(self.values.get(key))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _check_file(file: BinaryIO, declared: Mapping[str, Any]) -> None:
    size = file.seek(0, io.SEEK_END)
    declared_size = declared.get("bytes")
    if size != declared_size:
        msg = f"{size:,} bytes, but {INDEX} says {str(declared_size)[:40]}"
        raise FormatError(msg)
    hashes = _mapping(declared.get("hashes"))
    for name, digest in _digests(file, list(hashes)).items():
        if digest != hashes[name]:
            msg = f"its {name} is {digest}, but {INDEX} says {str(hashes[name])[:140]}"
            raise FormatError(msg)


def _digests(file: BinaryIO, names: Sequence[str]) -> dict[str, str]:
    """Return the hexadecimal digest of a file by each of the named hashes, read once for all."""
    hashers = {name: _hasher(name) for name in names}
    file.seek(0)
    while hashers and (data := file.read(_READ_BYTES)):
        for hasher in hashers.values():
            hasher.update(data)
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def _hasher(name: str) -> Any:
    if name in _XXHASHES:
        return getattr(xxhash, name)()
    # The shake hashes have no fixed length: their hexdigest needs one as an argument.
    if name in hashlib.algorithms_guaranteed and not name.startswith("shake"):
        return hashlib.new(name)
    msg = f"{INDEX} declares the hash {name[:40]!r}, which is not known"
    raise FormatError(msg)


def shard_entry(path: AnyPath) -> ShardEntry | None:
    """Return the entry of a shard in the index of its folder; None if there is no index.

    Raises:
        FormatError: the index is damaged, or does not list the shard exactly once.
    """
    index = path.with_name(INDEX)
    if not index.is_file():
        return None
    with wrap_errors(INDEX):
        status = index.stat()
    entries = _entries_by_name(index, status.st_size, status.st_mtime_ns).get(path.name, [])
    if not entries:
        msg = f"{INDEX} in its folder does not list it, so Streaming does not read it"
        raise FormatError(msg)
    if len(entries) > 1:
        msg = f"{INDEX} in its folder lists it {len(entries)} times, so Streaming reads it as often"
        raise FormatError(msg)
    return entries[0]


# A folder may have thousands of shards, each of which needs the same index.
@lru_cache(maxsize=1)
def _entries_by_name(index: AnyPath, size: int, modified: int) -> dict[str, list[ShardEntry]]:
    """Return the entries of an index by file name; `size` and `modified` tell its versions apart."""
    del size, modified
    by_name: dict[str, list[ShardEntry]] = {}
    for entry in _read_entries(index):
        # Normalised, as Streaming joins the name to the folder.
        for name in {posixpath.normpath(name) for name in entry.names()}:
            by_name.setdefault(name, []).append(entry)
    return by_name


def named_shards(index: AnyPath) -> list[tuple[list[str], Any]]:
    """Return, for each MDS shard of an index, its possible file names and its number of samples.

    The names are those of the plain and of the compressed file.

    Raises:
        FormatError: the index cannot be read.
    """
    shards: list[tuple[list[str], Any]] = []
    for entry in _read_entries(index):
        names = [name for name in entry.names() if _stays_in_folder(name)]
        if entry.values.get("format") == "mds" and names:
            shards.append((names, entry.values.get("samples")))
    return shards


def _stays_in_folder(name: str) -> bool:
    return {"", ".", ".."}.isdisjoint(name.split("/")) and "\0" not in name


def _read_entries(index: AnyPath) -> list[ShardEntry]:
    with wrap_errors(INDEX):
        check_bytes(index.stat().st_size, INDEX, TEXT_BYTES)
        data = index.read_bytes()
    try:
        shards = _mapping(parse_json(data)).get("shards")
    except FormatError as error:
        msg = f"{INDEX}: {error}"
        raise FormatError(msg) from error
    if not isinstance(shards, list):
        return []
    return [ShardEntry(shard) for shard in shards if isinstance(shard, Mapping)]
