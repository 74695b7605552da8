"""Export caches to formats of other loaders; equal caches give equal bytes.

Nothing is ever overwritten.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from string import ascii_letters, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, Literal

import h5py
import numpy as np

from datacheck.cache import Cache, layout, open_cache
from datacheck.cache.reader import blocks, column, sample_bytes
from datacheck.cache.store import is_url
from datacheck.errors import UsageError
from datacheck.runtime import fsops, new_folder
from datacheck.runtime.hashing import canonical_json, digest_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer


Array = np.ndarray[Any, Any]

EXPORT_DOCUMENT = "export.json"  # next to the samples: the cache they come from
_PLAIN = frozenset(ascii_letters + digits + "_.-~ @+=,()[]")


@dataclass(frozen=True, slots=True)
class ExportedSample:
    """A sample of a cache.

    Args:
        key: its key.
        arrays: its numeric fields.
        texts: its fields of text or canonical JSON, in UTF-8.
    """

    key: str
    arrays: dict[str, Array]
    texts: dict[str, bytes]


def samples(cache: Cache, numbers: Array) -> Iterator[ExportedSample]:
    """Yield samples in the order of `numbers`, without the fields that a sample lacks.

    Raises:
        CorruptionError: the stored data is damaged.
    """
    for block in blocks(sample_bytes(cache, cache.fields, numbers), fields=len(cache.fields)):
        selected = numbers[block]
        columns = {name: column(cache, name, selected) for name in cache.fields}
        for i, key in enumerate(cache.keys(selected)):
            sample_fields = {
                name: value for name, values in columns.items() if (value := values[i]) is not None
            }
            texts = {
                n: v.tobytes() for n, v in sample_fields.items() if cache.fields[n].kind != "array"
            }
            yield ExportedSample(
                key, {n: v for n, v in sample_fields.items() if n not in texts}, texts
            )


def npy(array: Array) -> bytes:
    """Return an array as the bytes of an .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def file_name(key: str, escaped: str = "", *, flat: bool = False) -> str:
    """Return a key as a relative path of plain characters; `urllib.parse.unquote` reverses it.

    Args:
        key: any text; ``/`` separates folders.
        escaped: more characters to escape.
        flat: escape ``/``, too.
    """
    return "/".join(_part(part, escaped) for part in ([key] if flat else key.split("/")))


def _part(part: str, escaped: str) -> str:
    plain = _PLAIN - set(escaped)
    raw = part.encode("utf-8", "surrogatepass")
    quoted = "".join(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in raw)
    # Names that have a meaning for loaders or file systems.
    if quoted.startswith("__") or (quoted and not quoted.strip(".")):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    return quoted or "%00"


class NewFile(io.RawIOBase):
    """A new file, open for reading and writing, that records errors instead of raising them.

    Args:
        path: its path; nothing may exist there.

    Attributes:
        error: the first error of the system, or None. It is not raised, and later writes are
            dropped, because HDF5 kills the process if it cannot write while it closes a file. The
            writer must check it.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: the operating system refuses.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        fsops.write_file(path, b"", sync=False, mode=0o644)
        self.error: OSError | None = None
        self._at = self._size = 0
        SYSTEM = fsops.SYSTEM  # noqa: N806
        self._descriptor = SYSTEM.open(path, os.O_RDWR)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """See `io.RawIOBase`."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        """See `io.RawIOBase`."""
        count = os.preadv(self._descriptor, [buffer], self._at)
        self._at += count
        return count

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`; see `error`."""
        view = memoryview(data).cast("B")
        size = len(view)
        offset = self._at
        SYSTEM = fsops.SYSTEM  # noqa: N806
        try:
            while len(view) and self.error is None:
                written = SYSTEM.write_at(self._descriptor, view, offset)
                view, offset = view[written:], offset + written
        except OSError as error:
            self.error = error
        self._at += size
        self._size = max(self._size, self._at)
        return size

    def truncate(self, size: int | None = None, /) -> int:
        """See `io.RawIOBase`; see `error`."""
        self._size = self._at if size is None else size
        SYSTEM = fsops.SYSTEM  # noqa: N806
        try:
            if self.error is None:
                SYSTEM.truncate(self._descriptor, self._size)
        except OSError as error:
            self.error = error
        return self._size

    def close(self) -> None:
        """See `io.RawIOBase`; see `error`."""
        if not self.closed:
            super().close()
            SYSTEM = fsops.SYSTEM  # noqa: N806
            try:
                SYSTEM.close(self._descriptor)
            except OSError as error:
                self.error = self.error or error

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True


_END = ".npz"
_LONGEST = 230  # of 255 bytes, because a file has a longer name while it is written
_LONGEST_PATH = 2_000  # of 4,095 bytes with the folder of the export
_DEEPEST = 64  # nested folders
_RENAMED = "renamed"  # the folder of samples whose keys cannot be file names
# Field names that a program that unpacks the file would take for another path, or would not print:
# a control character (a NUL ends a name), a drive, an empty part, "." or ".." between slashes of
# either kind. One backslash in a part stays: a cache has names that are no text in that form.
_UNSAFE_MEMBER = re.compile(r"[\0-\x1f\x7f]|^[A-Za-z]:[/\\]|(?:^|[/\\])\.{0,2}(?:[/\\]|$)")


def check_members(cache: Cache) -> None:
    """Raise if the members of an npz file cannot have the names of the fields.

    Raises:
        UsageError: a name is unsafe as a path, or `numpy.load` takes two names for one.
    """
    for name in cache.fields:
        if _UNSAFE_MEMBER.search(name):
            msg = (
                f"{cache.path}: npz has no safe name for the field {name!r}. Rename it in the "
                f"schema (at:), or choose another format."
            )
            raise UsageError(msg)
        # The member of the shorter name is called like the longer one, or like a folder of it.
        stems = [name[: match.start()] for match in re.finditer(r"\.npy(?=/|$)", name)]
        other = next((stem for stem in stems if stem in cache.fields), None)
        if other is not None:
            msg = (
                f"{cache.path}: in npz the fields {other!r} and {name!r} have one name. Rename one "
                f"in the schema (at:), or choose another format."
            )
            raise UsageError(msg)


def write_npz(cache: Cache, samples: Iterable[ExportedSample], folder: Path) -> dict[str, object]:
    """Write a file for each sample; return how keys and texts are stored, for the document.

    Raises:
        UsageError: two keys have one name on this file system.
        OutOfSpaceError: the disk is full.

    Notes:
        A key that is too long for a name, or has too many folders, is listed in "renamed" of the
        result.
    """
    del cache
    renamed: dict[str, str] = {}
    for sample in samples:
        name = _name(sample.key)
        long_part = max(map(len, name.split("/"))) > _LONGEST
        # A key that fits in a cache may be longer than a path once its letters are escaped.
        if long_part or name.count("/") > _DEEPEST or len(name) > _LONGEST_PATH:
            name = f"{_RENAMED}/{digest_bytes(sample.key.encode('utf-8', 'surrogatepass'))}{_END}"
            renamed[name] = sample.key
        path = folder / name
        if path.exists():
            shown = sample.key[:200]
            msg = (
                f"{shown}: another sample has the same file name on this file system. Choose "
                f"another format."
            )
            raise UsageError(msg)
        fsops.make_directory(path.parent, sync=False)
        fsops.write_file(path, _npz_bytes(sample), sync=False)
    description: dict[str, object] = {
        "key": "the path without .npz, unquoted",
        "texts": "uint8, UTF-8",
    }
    return (
        description | {"key": f"{description['key']}, or as renamed says", "renamed": renamed}
        if renamed
        else description
    )


def _name(key: str) -> str:
    *folders, name = file_name(key).split("/")
    return "/".join([*map(_folder, folders), name + _END])


def _folder(part: str) -> str:
    """Return the name of a folder; the last dot is escaped if a file could have this name."""
    stem, dot, end = part.rpartition(".")
    return f"{stem}%2E{end}" if dot + end == _END or part == EXPORT_DOCUMENT else part


def _npz_bytes(sample: ExportedSample) -> bytes:
    file = io.BytesIO()
    texts = {name: np.frombuffer(text, np.uint8) for name, text in sample.texts.items()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for name, array in sorted({**sample.arrays, **texts}.items()):
            entry = zipfile.ZipInfo(f"{name}.npy")  # its default time is 1980-01-01
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            packed.writestr(entry, npy(array))
    return file.getvalue()


FILE = "demo.hdf5"
ACTIONS = "actions"
_AT_ONCE = 65_536  # keys
_AXES = 32  # of an array of HDF5


def check(cache: Cache) -> None:
    """Raise if a cache cannot be written as a robomimic file.

    Raises:
        UsageError: there is no field ``actions`` [steps, numbers], or HDF5 cannot hold a field: it
            would take the name for another, or there are too many axes.
    """
    bad_name = next(
        (name for name in (cache.root.split, *cache.fields) if not _is_name(name)), None
    )
    if bad_name is not None:
        msg = (
            f"{cache.path}: HDF5 has no name {bad_name!r}. Rename it in the schema (at:), or choose "
            f"another format."
        )
        raise UsageError(msg)
    deep = next(
        (n for n, s in cache.fields.items() if len(s.item) + (s.dim is not None) > _AXES), None
    )
    if deep is not None:
        msg = (
            f"{cache.path}: {deep}: HDF5 holds no array of more than {_AXES} axes. Leave it out "
            f"when the cache is "
            "built (transforms: select), or choose another format."
        )
        raise UsageError(msg)
    spec = cache.fields.get(ACTIONS)
    if spec is None or spec.dim is None or spec.kind != "array" or len(spec.item) != 1:
        msg = (
            f"{cache.path}: robomimic needs a field {ACTIONS} of the shape [T, numbers]; there are "
            f"{', '.join(cache.fields)}. Name it so in the schema (at:), or choose another format."
        )
        raise UsageError(msg)


def check_keys(cache: Cache, numbers: Array) -> None:
    """Raise if an HDF5 attribute cannot hold the key of a sample; called before hours of writing.

    Raises:
        UsageError: a key holds a NUL, which would end it, or a lone surrogate.
        CorruptionError: the stored data is damaged.
    """
    for start in range(0, len(numbers), _AT_ONCE):
        bad_key = next(
            (key for key in cache.keys(numbers[start : start + _AT_ONCE]) if not _is_text(key)),
            None,
        )
        if bad_key is not None:
            msg = f"{cache.path}: HDF5 can hold no key {bad_key[:200]!r}. Choose another format."
            raise UsageError(msg)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _is_name(name: str) -> bool:
    return _is_text(name) and not {"", "."} & set(name.split("/"))


def write_robomimic(
    cache: Cache, samples: Iterable[ExportedSample], folder: Path
) -> dict[str, object]:
    """Write the HDF5 file; return its name, its steps and where the keys are, for the document.

    Raises:
        OutOfSpaceError: the disk is full.
    """
    codes = cache.findings()
    split = "train" if cache.root.split == layout.NO_SPLIT else cache.root.split
    place = NewFile(folder / FILE)
    total = 0
    valid = []
    try:
        with h5py.File(place, "w") as file:
            data = file.create_group("data")
            for number, sample in enumerate(samples):
                total += _demo(data.create_group(f"demo_{number}"), sample)
                if sample.key not in codes:
                    valid.append(f"demo_{number}")
                if place.error is not None:
                    break
            data.attrs["total"], data.attrs["env_args"] = total, "{}"
            file.create_dataset(f"mask/{split}", data=np.array(valid, "S"), track_times=False)
    finally:
        place.close()
        if place.error is not None:
            raise fsops.as_storage_error(place.error, folder / FILE) from place.error
    return {"file": FILE, "steps": total, "key": "attrs key of each demo"}


def _demo(group: Any, sample: ExportedSample) -> int:
    """Write one demonstration; return the number of its steps."""
    for name, array in sorted(sample.arrays.items()):
        group.create_dataset(name, data=array, track_times=False)
    for name, text in sorted(sample.texts.items()):
        group.create_dataset(name, data=np.frombuffer(text, np.uint8), track_times=False)
    steps = len(sample.arrays[ACTIONS])
    group.attrs["num_samples"], group.attrs["key"] = steps, sample.key
    return steps


SHARD_BYTES = 256 << 20
_BLOCK = tarfile.BLOCKSIZE
_RECORD = tarfile.RECORDSIZE
_ENDS = {"array": "npy", "text": "txt", "json": "json"}


def write_webdataset(
    cache: Cache, samples: Iterable[ExportedSample], folder: Path
) -> dict[str, object]:
    """Write tar files of about `SHARD_BYTES`; return the extension of each field, for the document.

    Raises:
        OutOfSpaceError: the disk is full.
    """
    names = _extensions({name: spec.kind for name, spec in cache.fields.items()})
    remaining = iter(samples)
    number = 0
    while (first := next(remaining, None)) is not None:
        path = folder / f"shard-{number:06d}.tar"
        fsops.write_file(path, _tar_bytes(chain([first], remaining), names), sync=False)
        number += 1
    return {"key": "what stands before the first dot, unquoted", "fields": names}


def _extensions(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a name after the first dot, by field, in lower case as readers see it."""
    lower_counts = Counter(name.lower() for name in kinds)
    names = {
        name: file_name(name, ascii_uppercase if lower_counts[name.lower()] > 1 else "", flat=True)
        for name in kinds
    }
    return {name: f"{escaped.lower()}.{_ENDS[kinds[name]]}" for name, escaped in names.items()}


def _tar_bytes(samples: Iterator[ExportedSample], names: dict[str, str]) -> Iterator[bytes]:
    """Yield the bytes of a tar file; takes samples until it is full."""
    size = 0
    for sample in samples:
        members = {name: npy(array) for name, array in sample.arrays.items()} | sample.texts
        for name, data in sorted(members.items()):
            # Has no time and no owner, so that equal samples give equal bytes.
            entry = tarfile.TarInfo(f"{file_name(sample.key, '.')}.{names[name]}")
            entry.size, entry.mode = len(data), 0o644
            parts = entry.tobuf(tarfile.GNU_FORMAT), data, bytes(-len(data) % _BLOCK)
            size += sum(map(len, parts))
            yield from parts
        if size >= SHARD_BYTES:
            break
    size += 2 * _BLOCK
    yield bytes(2 * _BLOCK + -size % _RECORD)


Format = Literal["robomimic", "webdataset", "npz"]

_WRITERS = {"robomimic": write_robomimic, "webdataset": write_webdataset, "npz": write_npz}


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Args:
        path: the folder.
        samples: number of samples in it.
        files: number of files.
        nbytes: size of all files.
        left_out: number of samples left out, by reason.
    """

    path: Path
    samples: int
    files: int
    nbytes: int
    left_out: dict[str, int]


def export(
    cache: str | os.PathLike[str],
    to: str | os.PathLike[str],
    form: Format,
    *,
    invalid: bool = False,
    split: str | None = None,
) -> ExportResult:
    """Write the samples of a cache in another format.

    Args:
        cache: the cache, or a folder above it; also a URL.
        to: the new folder.
        form: "robomimic" (one HDF5 file, episodes only), "webdataset" (tar files) or "npz" (a file
            per sample).
        invalid: include samples with error findings; samples that were not made are never written.
        split: the split, if the folder holds several.

    Raises:
        UsageError: `to` exists and is not empty, or is a URL; there is no such cache; it does not
            fit the format; no sample is left.
        CorruptionError: the stored data is damaged; nothing is published.
        OutOfSpaceError: the disk is full.

    Notes:
        Equal caches give equal bytes: in key order, without times or owners. Every inner chunk is
        checked when it is read. The folder appears whole or not at all.
    """
    if is_url(to):
        msg = f"{to}: exports go to a folder. Name a new one, and copy it."
        raise UsageError(msg)
    to = Path(to)
    new_folder.check_new(to)
    opened = open_cache(cache, split=split)
    if form == "robomimic":
        check(opened)
    if form == "npz":
        check_members(opened)
    numbers, left_out = _chosen(opened, form, invalid=invalid)
    if form == "robomimic":
        check_keys(opened, numbers)
    with new_folder.staging(to) as staging:
        names = _WRITERS[form](opened, samples(opened, numbers), staging)
        fsops.write_file(
            staging / EXPORT_DOCUMENT,
            canonical_json(_export_document(opened, form, numbers, left_out, names)),
            sync=False,
        )
        files, size = new_folder.publish(staging, to)
    return ExportResult(to, len(numbers), files, size, left_out)


def _chosen(cache: Cache, form: Format, *, invalid: bool) -> tuple[Array, dict[str, int]]:
    """Return the numbers of the samples to write, and how many are left out by reason."""
    made = cache.made
    selected = cache.made if invalid else cache.usable
    left_out = {"not made": int((~made).sum()), "not valid": int((made & ~selected).sum())}
    rows = np.ones(len(cache), bool)
    if form == "robomimic":
        all_numbers = np.arange(len(cache))
        present = cache.present(ACTIONS, all_numbers)
        rows = cache.lengths(str(cache.fields[ACTIONS].dim), all_numbers) > 0
        rows = rows if present is None else rows & present
    elif all(spec.optional for spec in cache.fields.values()):
        masks = (cache.present(name, np.arange(len(cache))) for name in cache.fields)
        rows = np.any([mask for mask in masks if mask is not None], axis=0)
    left_out["empty"] = int((selected & ~rows).sum())
    numbers = np.flatnonzero(selected & rows)
    left_out = {why: count for why, count in left_out.items() if count}
    if not len(numbers):
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        msg = f"{cache.path}: no sample is left to export ({reasons}). See why: datacheck scan"
        raise UsageError(msg)
    return numbers, left_out


def _export_document(
    cache: Cache, form: Format, numbers: Array, left_out: dict[str, int], names: dict[str, object]
) -> dict[str, Any]:
    root = cache.root
    return {
        "format": form,
        "samples": len(numbers),
        "left_out": left_out,
        "names": names,
        "cache": {
            "pipeline": root.pipeline,
            "split": root.split,
            "key": root.key,
            "digest": cache.manifest.digest,
            "content_root": cache.manifest.content_root,
        },
    }
