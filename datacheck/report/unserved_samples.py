"""The samples that a cache does not serve, by the code that refused them, with their substitutes.

A loader serves a valid sample in the place of each; which one follows from seed, epoch and index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from datacheck.build.provenance import NOT_MADE
from datacheck.cache import Cache
from datacheck.cache.reader import KEYS_AT_ONCE
from datacheck.cache.windows import WindowIndex, Windows
from datacheck.errors import UsageError
from datacheck.report.rendering import items_within, shortened
from datacheck.rules import catalogue
from datacheck.torch.resampling import Items

Array = np.ndarray[Any, Any]

# The substitutes are those of a loader's first epoch with its default seed.
_SEED = 0
_EPOCH = 0
_MAX_CODES = 200
_SAMPLES_PER_CODE = 10
_BUDGET = 500_000  # bytes of the page
_MAX_TEXT = 300  # characters of a key or a reason
_CACHE_CODE_NAMES = {NOT_MADE: "read, but refused by a transform or by the layout"}


def unserved_samples(cache: Cache, not_made: Any) -> dict[str, Any]:
    """Return the unserved samples by the code that refused them, the most frequent code first.

    Args:
        cache: the cache.
        not_made: reasons by key of samples that could not be made, from ``build.json``.

    Returns:
        Among others ``codes``, each with ``rows``: number, key, whether the sample was made, its
        codes, the reason why it was not made, and the substitute (number, key, step; or None).

    Raises:
        CorruptionError: the stored bytes differ from what was written.

    Notes:
        Substitutes are those of `CachedDataset` with the windows of the cache, seed 0 and epoch 0.
        For an episode cut into windows, the substitute of its first window.
    """
    numbers = np.flatnonzero(~cache.usable)
    findings = cache.findings()
    counts, places = _places_by_code(cache, numbers, findings)
    shown = {code: places[code] for code in list(counts)[:_MAX_CODES]}
    listed = sorted({place for found in shown.values() for place in found})
    keys = dict(zip(listed, cache.keys(numbers[listed]), strict=True))
    substitutes, why_none = _substitutes(cache, numbers[listed])
    reasons = not_made if isinstance(not_made, Mapping) else {}
    made = cache.made
    rows = {}
    for place, substitute in zip(listed, substitutes, strict=True):
        number = int(numbers[place])
        key = keys[place]
        rows[place] = [
            number,
            _short(key),
            bool(made[number]),
            _short(" ".join(findings.get(key, []))),
            _short(str(reasons.get(key, ""))),
            substitute,
        ]
    groups = (
        _code(code) | {"samples": counts[code], "rows": [rows[place] for place in found]}
        for code, found in shown.items()
    )
    return {
        "codes": items_within(groups, _BUDGET),
        "all_codes": len(counts),
        "why": why_none,
        "seed": _SEED,
        "epoch": _EPOCH,
        "windows": cache.root.windows is not None,
    }


def shown_substitutes(unserved: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the substitutes in `unserved_samples`, each once."""
    numbers: dict[int, None] = {}
    for group in unserved["codes"]:
        for *_, substitute in group["rows"]:
            if substitute is not None:
                number, _, _ = substitute
                numbers[number] = None
    return list(numbers)


def _places_by_code(
    cache: Cache, numbers: Array, findings: Mapping[str, Collection[str]]
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return the samples of each code, the most frequent code first, and the first few places.

    A place is a position in `numbers`; "" stands for samples without a code.
    """
    counts: Counter[str] = Counter()
    places: dict[str, list[int]] = {}
    for start in range(0, len(numbers), KEYS_AT_ONCE):
        keys = cache.keys(numbers[start : start + KEYS_AT_ONCE])
        for place, key in enumerate(keys, start):
            for code in findings.get(key) or [""]:
                counts[code] += 1
                found = places.setdefault(code, [])
                if len(found) < _SAMPLES_PER_CODE:
                    found.append(place)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))), places


def _code(code: str) -> dict[str, Any]:
    """Return a code with its name, and whether it is that of a rule."""
    rule = catalogue().get(code)
    name = _CACHE_CODE_NAMES.get(code, "") if rule is None else rule.name
    return {"code": _short(code), "name": name, "rule": rule is not None}


def _short(text: str) -> str:
    return shortened(text, _MAX_TEXT)


# -------------------------------------------------------------------------------------- substitutes


def _substitutes(cache: Cache, numbers: Array) -> tuple[list[Any], str]:
    """Return each sample's substitute (number, key and step, or None), and why there is none."""
    if not len(numbers):
        return [], ""
    substitutes: list[Any] = [None] * len(numbers)
    try:
        index, first_items, has_item = _first_items(cache, numbers)
        items = Items(cache.usable, "resample", _SEED, index)
    except (UsageError, TypeError) as error:  # no sample is valid, or no episode fits a window
        return substitutes, _short(str(error))
    served = items.substituted(first_items[has_item], _EPOCH)
    samples = items.samples(served)
    steps: list[int | None] = [None] * len(served)
    if index is not None:
        steps = items.steps(served)[0].tolist()
    places = np.flatnonzero(has_item).tolist()
    keys = cache.keys(samples)
    for place, number, key, step in zip(places, samples.tolist(), keys, steps, strict=True):
        substitutes[place] = [number, _short(key), step]
    return substitutes, ""


def _first_items(cache: Cache, numbers: Array) -> tuple[WindowIndex | None, Array, Array]:
    """Return the windows of a cache, the first item of each sample, and whether it has one."""
    if cache.root.windows is None:
        return None, numbers, np.ones(len(numbers), bool)
    windows = Windows.of(cache.root.windows)
    lengths = cache.lengths(windows.dim)
    counts = windows.counts(lengths)
    first_items = np.cumsum(counts) - counts
    return WindowIndex(windows, lengths, cache.usable), first_items[numbers], counts[numbers] > 0
