"""Episodes as robomimic's `SequenceDataset` reads them: one HDF5 file with a group per demonstration.

/data                   attrs total (steps of all), env_args ({}: a cache knows of no simulator)
/data/demo_<n>          attrs num_samples (its steps), key (in the cache)
    actions, obs/..., every other field by its name
/mask/<split>           the names of the valid demonstrations; train where the cache has no splits
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from datacheck import fsops
from datacheck.build.export.positions import NewFile
from datacheck.build.export.samples import Exported
from datacheck.cache import Cache, layout
from datacheck.errors import UsageError

Array = np.ndarray[Any, Any]

FILE = "demo.hdf5"
ACTIONS = "actions"
_AT_ONCE = 65_536  # keys
_AXES = 32  # of an array of HDF5


def check(cache: Cache) -> None:
    """Raise where a cache cannot be written so.

    Raises:
        UsageError: no field ``actions`` [steps, numbers], or a field that HDF5 cannot hold: with a name that it would
            take for another, or too many axes.
    """
    odd = next((name for name in (cache.root.split, *cache.fields) if not _is_name(name)), None)
    if odd is not None:
        msg = f"{cache.path}: HDF5 has no name {odd!r}. Rename it in the schema (at:), or choose another format."
        raise UsageError(msg)
    deep = next((n for n, s in cache.fields.items() if len(s.item) + (s.dim is not None) > _AXES), None)
    if deep is not None:
        msg = (
            f"{cache.path}: {deep}: HDF5 holds no array of more than {_AXES} axes. Leave it out when the cache is "
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
    """Raise where HDF5 can hold the key of a sample in no attribute, before hours of writing.

    Raises:
        UsageError: a key holds a NUL, which would end it, or half of a surrogate pair.
        CorruptionError: what is stored is not what was written.
    """
    for first in range(0, len(numbers), _AT_ONCE):
        odd = next((key for key in cache.keys(numbers[first : first + _AT_ONCE]) if not _is_text(key)), None)
        if odd is not None:
            msg = f"{cache.path}: HDF5 can hold no key {odd[:200]!r}. Choose another format."
            raise UsageError(msg)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _is_name(name: str) -> bool:
    return _is_text(name) and not {"", "."} & set(name.split("/"))


def write(cache: Cache, samples: Iterable[Exported], folder: Path) -> dict[str, object]:
    """Write the file; return what is to be known of it.

    Raises:
        OutOfSpaceError: the disk is full.
    """
    codes = cache.findings()
    split = "train" if cache.root.split == layout.WHOLE else cache.root.split
    place = NewFile(folder / FILE)
    total, valid = 0, []
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
            raise fsops.refused(place.error, folder / FILE) from place.error
    return {"file": FILE, "steps": total, "key": "attrs key of each demo"}


def _demo(group: Any, sample: Exported) -> int:
    """Write one demonstration; return its steps."""
    for name, array in sorted(sample.arrays.items()):
        group.create_dataset(name, data=array, track_times=False)
    for name, text in sorted(sample.texts.items()):
        group.create_dataset(name, data=np.frombuffer(text, np.uint8), track_times=False)
    steps = len(sample.arrays[ACTIONS])
    group.attrs["num_samples"], group.attrs["key"] = steps, sample.key
    return steps
