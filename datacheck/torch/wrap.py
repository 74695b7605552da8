"""Adds CachedDataset's resampling to any map-style dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from datacheck.errors import InvalidSample, UsageError
from datacheck.runtime.documents import MIB, VALUES, read_json
from datacheck.runtime.hashing import digest_bytes, digest_value
from datacheck.torch.order import MAX_SEED, fingerprint_of, items_of, length_of, pack, whole_number
from datacheck.torch.resampling import Attempts, Budget, Items, Policy, budget_of
from datacheck.torch.sampler import SharedEpoch, set_dataset_epoch

Array = np.ndarray[Any, Any]
# Size limits of valid.json: a base, plus a size per sample
VALID_BYTES = 4 * MIB
VALID_BYTES_EACH = 32_768
Keys = Sequence[str] | Callable[[int], str]


class ResamplingDataset(Dataset[Any]):  # type: ignore[misc]  # torch is untyped here
    """A map-style dataset that replaces broken samples, equally in every worker and on every rank.

    Args:
        dataset: has ``__len__`` and ``__getitem__``, and optionally ``__getitems__``.
        is_valid: called with each loaded sample; another sample replaces one for which it is false.
        valid: samples known to be valid: the ``valid.json`` of a scan, the folder of that scan, or
            one bool per index.
        keys: the scan's key of each index, in order, or a function of the index; needed with a
            ``valid.json``.
        on_invalid: policy for samples that are known to be invalid: "resample", "skip", "raise" or
            "keep" (see `CachedDataset`). A sample that fails is replaced, except with "raise".
        seed: seed of the substitutes, 0 or more.
        catch: exceptions, besides `InvalidSample`, that mark a sample as unusable.
        budget: how many samples may fail; it also counts the failures. `Budget()` where None.

    Raises:
        UsageError: an option is unknown, no sample is valid, or no key is one of that scan.

    Notes:
        A substitute depends on (seed, epoch, index) and on which samples fail; failing must depend
        on the sample alone. The indices of datacheck's samplers carry epoch and item in one number;
        a plain index belongs to the epoch of `set_epoch`.
    """

    decodes_epoch = True

    def __init__(
        self,
        dataset: Any,
        *,
        is_valid: Callable[[Any], Any] | None = None,
        valid: str | Path | Sequence[bool] | Array | None = None,
        keys: Keys | None = None,
        on_invalid: Policy = "resample",
        seed: int = 0,
        catch: Sequence[type[Exception]] = (),
        budget: Budget | None = None,
    ) -> None:
        self._dataset, self._is_valid, self._policy = dataset, is_valid, on_invalid
        self._seed = whole_number("seed", seed, 0, MAX_SEED)
        self._keys, self._epoch = keys, SharedEpoch()
        self.budget = budget_of(budget)
        self.known = _valid_mask(length_of(dataset), valid, keys)
        usable = np.ones_like(self.known) if on_invalid == "keep" else self.known
        self._items = Items(usable, on_invalid, self._seed)
        self._attempts = Attempts(self._items, on_invalid, catch, self.budget)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<ResamplingDataset of {len(self):,} items of {self._dataset!r}>"

    @property
    def fingerprint(self) -> str:
        """Digest of what each index means: the dataset's own, known validity, policy and seed."""
        known_digest = digest_bytes(np.packbits(self.known).tobytes())
        return digest_value([fingerprint_of(self._dataset), known_digest, self._policy, self._seed])

    @property
    def epoch(self) -> int:
        """The epoch of plain indices; the indices of datacheck's samplers carry their own."""
        return self._epoch.get()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of plain indices, in all workers too, and of a dataset that has one."""
        self._epoch.set(epoch)
        set_dataset_epoch(self._dataset, epoch)

    def key(self, index: int) -> str:
        """Return the key of the sample at `index`, before substitution.

        Without keys it is the sample's number in the dataset.
        """
        _, items = self._epochs_and_items([index])
        number = int(self._items.samples(items)[0])
        if self._keys is None:
            return str(number)
        return self._keys(number) if callable(self._keys) else self._keys[number]

    def substituted(self, index: int) -> int:
        """Return the first candidate for `index`: itself unless it is known to be invalid."""
        return int(self._first_candidates(*self._epochs_and_items([index]))[0])

    def __getitem__(self, index: Any) -> Any:
        """Return one sample, or a list of samples where `index` is a list."""
        if isinstance(index, list | tuple | np.ndarray) or (
            isinstance(index, torch.Tensor) and index.ndim
        ):
            return self.__getitems__(index)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int] | Array) -> Any:
        """Return the samples at `indices`, in that order.

        Raises:
            IndexError: an index is out of range.
            UsageError: a sample is invalid and ``on_invalid="raise"``.
            BudgetExceededError: too many samples failed.
        """
        epochs, items = self._epochs_and_items(indices)
        candidates = self._first_candidates(epochs, items)
        batch = self._fetch_batch(epochs, candidates)
        if batch is not None and self._is_valid is None:
            self.budget.serve(int(epochs.max(initial=0)), len(items))
            return batch

        def make(place: int, candidate: int, attempt: int) -> Any:
            if attempt == 0 and batch is not None:
                sample = batch[place]
            else:
                sample = self._dataset[
                    self._dataset_indices(epochs[place : place + 1], np.array([candidate]))[0]
                ]
            if self._is_valid is not None and not self._is_valid(sample):
                msg = "is_valid said no"
                raise InvalidSample(msg)
            return sample

        return self._attempts.served(epochs, items, candidates, make, self.key)

    def _epochs_and_items(self, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        return items_of(indices, self.epoch, len(self))

    def _first_candidates(self, epochs: Array, items: Array) -> Array:
        if self._policy == "raise":
            invalid_positions = self._items.unusable(items)
            if invalid_positions.size:
                msg = (
                    f"item {items[invalid_positions[0]]}, {self.key(int(items[invalid_positions[0]]))}, is known to be "
                    f"invalid"
                )
                raise UsageError(msg)
            return items
        candidates = self._items.substituted(items, epochs)
        if candidates is not items:
            self.budget.replace(int(np.count_nonzero(candidates != items)))
        return candidates

    def _dataset_indices(self, epochs: Array, items: Array) -> list[int]:
        """Return the wrapped dataset's indices, with the epoch if that dataset decodes it."""
        numbers: list[int] = self._items.samples(items).tolist()
        if not getattr(self._dataset, "decodes_epoch", False):
            return numbers
        return [
            int(pack(epoch, np.array(n))) for epoch, n in zip(epochs.tolist(), numbers, strict=True)
        ]

    def _fetch_batch(self, epochs: Array, items: Array) -> Any:
        """Return a batch from ``__getitems__``; None without one or if a sample failed."""
        fetch = getattr(self._dataset, "__getitems__", None)
        if fetch is None:
            return None
        try:
            batch = fetch(self._dataset_indices(epochs, items))
        except self._attempts.catch:
            return None  # the caller then fetches one by one to find the sample that failed
        if len(batch) != len(items):
            msg = (
                f"{type(self._dataset).__name__}.__getitems__ returned {len(batch)} samples for "
                f"{len(items)} indices"
            )
            raise UsageError(msg)
        return batch


def _valid_mask(
    count: int, valid: str | Path | Sequence[bool] | Array | None, keys: Keys | None
) -> Array:
    """Return which samples are not known to be invalid, bool (samples)."""
    if valid is None:
        return np.ones(count, bool)
    if not isinstance(valid, str | Path):
        mask = np.asarray(valid)
        if mask.dtype != bool or mask.shape != (count,):
            msg = (
                f"valid: {mask.dtype} {mask.shape}; needed is one bool for each of the {count} "
                f"samples"
            )
            raise UsageError(msg)
        return mask
    path = Path(valid) / "valid.json" if Path(valid).is_dir() else Path(valid)
    excluded = _excluded_keys(path, count)
    if keys is None:
        msg = f"{path}: say which key each index has: keys=[...], or a function of the index"
        raise UsageError(msg)
    named = [keys(i) for i in range(count)] if callable(keys) else list(keys)
    if len(named) != count:
        msg = f"{len(named)} keys for {count} samples"
        raise UsageError(msg)
    mask = np.array([key not in excluded for key in named], dtype=bool)
    if excluded and mask.all():
        msg = (
            f"{path}: none of its {len(excluded)} excluded samples is in this dataset; they are "
            f"named like "
            f"{next(iter(excluded))!r}, these like {named[0]!r}. Where none is meant to be, leave "
            f"valid= out"
        )
        raise UsageError(msg)
    return mask


def _excluded_keys(path: Path, count: int) -> dict[str, Any]:
    try:
        document = read_json(path, VALID_BYTES + VALID_BYTES_EACH * count, VALUES + 32 * count)
    except (OSError, ValueError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise UsageError(msg) from error
    excluded = document.get("excluded") if isinstance(document, dict) else None
    if not isinstance(excluded, dict) or document.get("format") != "datacheck.valid/1":
        msg = f"{path}: no valid.json of a scan"
        raise UsageError(msg)
    return excluded
