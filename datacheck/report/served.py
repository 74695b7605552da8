"""Which samples of a cache are not served, why, and what a training is given in the place of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from datacheck.build.finish import NOT_MADE
from datacheck.cache import Cache
from datacheck.cache.windows import WindowIndex, Windows
from datacheck.errors import UsageError
from datacheck.report.html import cut, within
from datacheck.rules import catalogue
from datacheck.torch.resample import Items

Array = np.ndarray[Any, Any]

_SEED = _EPOCH = 0
_SHOWN = 10  # samples of each code
_CODES = 200
_OF_CACHES = {NOT_MADE: "read, but refused by a transform or by the layout"}
_ROOM, _KEY = 500_000, 300  # bytes of the page; characters of a key or a reason


def codes(cache: Cache, not_made: Any) -> dict[str, Any]:
    """Return the samples that are not served by what refused them, the most frequent code first.

    Args:
        cache: whose.
        not_made: reasons by key of samples that could not be made, where ``build.json`` has them.

    Raises:
        CorruptionError: what is stored is not what was written.

    Notes:
        What stands in for a sample is that of `CachedDataset` with the windows of the cache, seed 0 and epoch 0; of an
        episode that is cut into windows, what stands in for its first one.
    """
    numbers, made, found = np.flatnonzero(~cache.usable), cache.made, cache.findings()
    keys = cache.keys(numbers)
    of_code: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        for code in found.get(key) or [""]:
            of_code.setdefault(code, []).append(place)
    ordered = sorted(of_code.items(), key=lambda item: (-len(item[1]), item[0]))
    chosen = sorted({place for _, places in ordered[:_CODES] for place in places[:_SHOWN]})
    instead, why = _instead(cache, numbers[chosen])
    reasons = not_made if isinstance(not_made, Mapping) else {}
    rows = {
        place: [
            int(numbers[place]), cut(keys[place], _KEY), bool(made[numbers[place]]),
            cut(" ".join(found.get(keys[place], [])), _KEY), cut(str(reasons.get(keys[place], "")), _KEY), other,
        ]
        for place, other in zip(chosen, instead, strict=True)
    }  # fmt: skip
    known = catalogue()
    groups = (
        {
            "code": cut(code, _KEY), "name": known[code].name if code in known else _OF_CACHES.get(code, ""),
            "rule": code in known, "samples": len(places), "rows": [rows[place] for place in places[:_SHOWN]],
        }
        for code, places in ordered[:_CODES]
    )  # fmt: skip
    return {
        "codes": within(groups, _ROOM), "all_codes": len(ordered), "why": why,
        "seed": _SEED, "epoch": _EPOCH, "windows": cache.root.windows is not None,
    }  # fmt: skip


def _instead(cache: Cache, numbers: Array) -> tuple[list[Any], str]:
    """Return what is served for each of these samples (number, key and step, or None), and why nothing is."""
    nothing = [None] * len(numbers)
    if not len(numbers):
        return nothing, ""
    try:
        index, first, has = _windows(cache, numbers)
        items = Items(cache.usable, "resample", _SEED, index)
    except (UsageError, TypeError) as error:  # nothing is valid, or no episode is long enough for a window
        return nothing, cut(str(error), _KEY)
    served = items.substituted(first[has], _EPOCH)
    samples = items.samples(served)
    steps: Iterable[int | None] = [None] * len(served) if index is None else items.steps(served)[0].tolist()
    rows = zip(samples.tolist(), cache.keys(samples), steps, strict=True)
    found = iter([[number, cut(key, _KEY), step] for number, key, step in rows])
    return [next(found) if there else None for there in has.tolist()], ""


def _windows(cache: Cache, numbers: Array) -> tuple[WindowIndex | None, Array, Array]:
    """Return the windows of a cache, the first item of each sample, and whether it has one."""
    if cache.root.windows is None:
        return None, numbers, np.ones(len(numbers), bool)
    windows = Windows.of(cache.root.windows)
    lengths = cache.lengths(windows.dim)
    counts = windows.counts(lengths)
    first = np.cumsum(counts) - counts
    return WindowIndex(windows, lengths, cache.usable), first[numbers], counts[numbers] > 0
