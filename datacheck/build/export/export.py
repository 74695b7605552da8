"""From a cache to a folder that other loaders read: checked while it is read, named by one rename.

.<name>.<uuid>.partial    what it is until then, locked; the next export to that name removes those of the killed
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck import folders, fsops, mounts
from datacheck.build.export import npz, robomimic, webdataset
from datacheck.build.export.samples import ABOUT, samples
from datacheck.cache import Cache, open_cache
from datacheck.cache.store import is_url
from datacheck.digest import canonical_json
from datacheck.errors import StorageError, SyncFailedError, UsageError

Array = np.ndarray[Any, Any]
Format = Literal["robomimic", "webdataset", "npz"]

_TRIES = 20
_WRITERS = {"robomimic": robomimic, "webdataset": webdataset, "npz": npz}


@dataclass(frozen=True)
class Written:
    """What was written.

    Args:
        path: the folder.
        samples: how many are in it.
        files: how many files.
        nbytes: of all files.
        left_out: how many samples were left out, by why.
    """

    path: Path
    samples: int
    files: int
    nbytes: int
    left_out: dict[str, int]


def export(
    cache: str | os.PathLike[str], to: str | os.PathLike[str], form: Format, *, invalid: bool = False,
    split: str | None = None,
) -> Written:  # fmt: skip
    """Write the samples of a cache in another format.

    Args:
        cache: the cache, or a folder above it; also a URL.
        to: the new folder.
        form: "robomimic" (one HDF5 file, episodes only), "webdataset" (tar files) or "npz" (a file per sample).
        invalid: also samples that have an error finding; what could not be made is never written.
        split: the split, where the folder holds several.

    Raises:
        UsageError: `to` is there and not empty, or a URL; there is no such cache; it does not fit the format; nothing
            is left.
        CorruptionError: what is stored is not what was written; nothing is published.
        OutOfSpaceError: the disk is full.

    Notes:
        Equal caches give equal bytes: in key order, without times or owners. Every inner chunk is checked when it is
        read. The folder appears whole or not at all.
    """
    if is_url(to):
        msg = f"{to}: exports go to a folder. Name a new one, and copy it."
        raise UsageError(msg)
    to = Path(to)
    full = to.exists() and (not to.is_dir() or any(to.iterdir()) or to.samefile(Path.cwd()))  # a shell may be in it
    if full or to.is_symlink():
        msg = f"{to}: is there already, and nothing is overwritten. Name a new folder."
        raise UsageError(msg)
    opened = open_cache(cache, split=split)
    if form == "robomimic":
        robomimic.check(opened)
    numbers, left_out = _chosen(opened, form, invalid=invalid)
    if form == "robomimic":
        robomimic.check_keys(opened, numbers)
    with _growing(to) as staging:
        names = _WRITERS[form].write(opened, samples(opened, numbers), staging)
        fsops.write_file(staging / ABOUT, canonical_json(_about(opened, form, numbers, left_out, names)), sync=False)
        files = sorted(_files(staging))
        fsops.sync_files(files)
        for place, _, _ in os.walk(staging, topdown=False):
            fsops.sync_directory(Path(place))
        size = sum(path.stat().st_size for path in files)
        _named(staging, to)
    return Written(to, len(numbers), len(files), size, left_out)


@contextlib.contextmanager
def _growing(to: Path) -> Iterator[Path]:
    """Make the folder that becomes `to`, beside it, and remove what is left of it and of those of killed exports."""
    parent = to.absolute().parent
    fsops.make_directory(parent)
    local = mounts.is_local(parent)
    if local:
        _clear(parent, to.name)
    held = None
    for _ in range(_TRIES if local else 1):
        staging = parent / f".{to.name}.{uuid.uuid4().hex}.partial"
        fsops.make_directory(staging, sync=False)
        if not local or (held := _locked(staging)) is not None:
            break  # else another export to that name took it for one that was left
    try:
        yield staging
    finally:
        folders.remove_tree(staging)  # where it has not got its name
        if held is not None:
            held.close()


def _clear(parent: Path, name: str) -> None:
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}\.partial")
    for left in sorted(path for path in parent.glob(".*.partial") if ours.fullmatch(path.name)):
        with contextlib.suppress(StorageError):  # somebody else's
            if not left.is_symlink() and (held := _locked(left)) is not None:
                with held:
                    folders.remove_tree(left)


def _locked(folder: Path) -> fsops.Hold | None:
    """Lock a folder; return None where another has it, or it is gone."""
    try:
        held = fsops.hold(folder, shared=False)
    except FileNotFoundError:
        return None
    if held is not None and not folder.exists():
        held.close()
        return None
    return held


def _chosen(cache: Cache, form: Format, *, invalid: bool) -> tuple[Array, dict[str, int]]:
    """Return the numbers of the samples to write, and how many are left out, by why."""
    made, wanted = cache.made, cache.made if invalid else cache.usable
    left_out = {"not made": int((~made).sum()), "not valid": int((made & ~wanted).sum())}
    rows = np.ones(len(cache), bool)
    if form == "robomimic":
        whole = np.arange(len(cache))
        present = cache.present(robomimic.ACTIONS, whole)
        rows = cache.lengths(str(cache.fields[robomimic.ACTIONS].dim), whole) > 0
        rows = rows if present is None else rows & present
    elif all(spec.optional for spec in cache.fields.values()):
        has = (cache.present(name, np.arange(len(cache))) for name in cache.fields)
        rows = np.any([mask for mask in has if mask is not None], axis=0)
    left_out["empty"] = int((wanted & ~rows).sum())
    numbers = np.flatnonzero(wanted & rows)
    left_out = {why: count for why, count in left_out.items() if count}
    if not len(numbers):
        said = ", ".join(f"{count:,} {why}" for why, count in left_out.items())
        msg = f"{cache.path}: no sample is left to export ({said}). See why: datacheck scan"
        raise UsageError(msg)
    return numbers, left_out


def _about(
    cache: Cache, form: Format, numbers: Array, left_out: dict[str, int], names: dict[str, object]
) -> dict[str, Any]:
    root = cache.root
    return {
        "format": form, "samples": len(numbers), "left_out": left_out, "names": names,
        "cache": {
            "pipeline": root.pipeline, "split": root.split, "key": root.key, "digest": cache.manifest.digest,
            "content_root": cache.manifest.content_root,
        },
    }  # fmt: skip


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _named(staging: Path, to: Path) -> None:
    """Give the finished folder its name; a folder that came meanwhile stays as it is."""
    try:
        fsops.rename(staging, to)
    except OSError as error:
        if to.exists():
            msg = f"{to}: came while this was written, and nothing is overwritten. Name a new folder."
            raise UsageError(msg) from error
        raise fsops.refused(error, to) from error
    try:
        fsops.sync_directory(to.absolute().parent)
    except SyncFailedError:
        folders.remove_tree(to)
        raise
