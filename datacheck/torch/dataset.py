"""CachedDataset: a finished cache as a map-style dataset that never serves a broken sample.

For a list of indices, `CachedDataset` finds the items to serve (substitutes in place of invalid
ones, see `resampling`), gathers them as one batch (see `gatherer`), and calls the transform with each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from datacheck.cache.find import choose_cache, open_cache
from datacheck.cache.manifest import Verify
from datacheck.cache.reader import Cache, Io
from datacheck.cache.windows import WindowIndex, Windows
from datacheck.errors import UsageError, escape_controls
from datacheck.runtime.hashing import digest_bytes, digest_value
from datacheck.torch.collate import Batch, Row, collate_rows
from datacheck.torch.gatherer import Gatherer
from datacheck.torch.order import MAX_SEED, items_of, whole_number
from datacheck.torch.prefetch import Buffers, Memory
from datacheck.torch.resampling import Attempts, Budget, Items, Policy, budget_of, takes_random
from datacheck.torch.sampler import Sampler, SharedEpoch

Array = np.ndarray[Any, Any]

# Attributes that a pickled dataset leaves out; each process makes its own at first use.
_PER_PROCESS = {"cache", "windows", "_items", "_attempts", "_gatherer", "_buffers"}


class CachedDataset(Dataset[Any]):  # type: ignore[misc]  # torch is untyped here
    """Samples of a cache as dicts of tensors, for a plain ``DataLoader``.

    Shapes:
        a fixed field: (*item)
        a ragged field: (rows, *item); in window mode the steps of the window: (steps, *item), or
            the step of the item only: (*item)
        <name>_is_pad: bool (steps), in window mode: True for steps outside the episode
        <name>_is_present: bool (), for an optional field; where it is False, text is "" and a
            value is NaN or 0

    Args:
        path: the cache, or a folder above it that holds no other finished cache (of that split); a
            URL of either.
        split: the split, where the folder holds several.
        fields: names of the fields to serve, in that order; None serves all.
        transform: called with each sample (its own dict of tensors) in the process that loads it.
            If it has a parameter `rng`, it also gets a NumPy generator that depends on (seed,
            epoch, index).
        on_invalid: policy for samples with an error finding. "resample" serves a valid sample in
            their place; "skip" leaves them out of the length; "raise" raises when one is
            requested; "keep" serves them.
        seed: seed of the substitutes and of `rng`, 0 or more.
        verify: "manifest", "touch" (each chunk the first time it is read), "always", "full"
            (everything now).
        windows: how to cut episodes; None: as the cache says; False: serve whole episodes.
        io: "mmap", "pread" or "auto" (mmap on local file systems).
        shards_in, shards_bytes: for a URL: the folder that keeps whole shards, and its size in
            bytes (see `open_cache`).
        catch: exceptions of the transform, besides `InvalidSample`, that mark a sample as unusable.
        budget: how many samples may fail in the transform; it also counts the failures.
            `Budget()` where None.
        copy: False serves arrays of samples as read-only NumPy arrays that point into the mapped
            cache, for transforms that need a part of a large array. Windows and collated batches
            are still copies.

    Raises:
        UsageError: no such cache, field or option; no valid sample, or no window, to serve.
        CorruptionError: at construction or when a sample is read: stored bytes are not those that
            were written.

    Notes:
        A substitute is a pure function of (seed, epoch, index): equal in every worker and on every
        rank. So is the next candidate when the transform refuses a sample (not with "raise").
        Samples that the build could not make are never served. Arrays are writable copies (see
        `copy`); their memory is reused once nothing refers to it. Text is str, JSON is parsed.
        The indices of datacheck's samplers carry epoch and item in one number; a plain index
        belongs to the epoch of `set_epoch`. Safe with fork and spawn; a pickled dataset opens its
        cache on first use.
    """

    # Read by samplers: an index may carry its epoch (`datacheck.torch.order.pack`).
    decodes_epoch = True

    def __init__(
        self,
        path: str | Path,
        *,
        split: str | None = None,
        fields: Sequence[str] | None = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        on_invalid: Policy = "resample",
        seed: int = 0,
        verify: Verify = "touch",
        windows: Windows | Literal[False] | None = None,
        io: Io = "auto",
        shards_in: str | Path | None = None,
        shards_bytes: float | None = None,
        catch: Sequence[type[Exception]] = (),
        budget: Budget | None = None,
        copy: bool = True,
    ) -> None:
        _check_options(fields, transform, windows)
        self._path = choose_cache(path, split)
        self._transform = transform
        self._passes_rng = transform is not None and takes_random(transform)
        self._policy = on_invalid
        self._seed = whole_number("seed", seed, 0, MAX_SEED)
        self._verify = verify
        self._given_windows = windows
        self._io = io
        self._shards_in = shards_in
        self._shards_bytes = shards_bytes
        self._catch = catch
        self._copy = copy
        self._epoch = SharedEpoch()
        self.budget = budget_of(budget)
        self.fields = tuple(self.cache.fields) if fields is None else tuple(fields)
        self._check_fields()
        self._check_window_fields()
        self._check_mask_names()
        self._length = len(self._attempts.items)

    def _check_fields(self) -> None:
        unknown = [name for name in self.fields if name not in self.cache.fields]
        if unknown:
            msg = (
                f"{self._path}: no field {', '.join(unknown)}; there are "
                f"{', '.join(self.cache.fields)}"
            )
            raise UsageError(msg)

    def _check_window_fields(self) -> None:
        """Raise if the windows have offsets of a field that is not served in windows."""
        if self.windows is None:
            return
        served = [name for name in self.fields if self._in_windows(name)]
        unserved = [name for name in self.windows.deltas if name not in served]
        if unserved:
            msg = (
                f"{self._path}: windows: no field {', '.join(unserved)} along {self.windows.dim} is "
                f"served; there is {', '.join(served) or 'none'}"
            )
            raise UsageError(msg)

    def _check_mask_names(self) -> None:
        """Raise if a field has the name of the mask of another."""
        masks = {
            f"{name}_is_present": name for name in self.fields if self.cache.fields[name].optional
        }
        masks |= {f"{name}_is_pad": name for name in self.fields if self._in_windows(name)}
        for name in self.fields:
            if name in masks:
                msg = (
                    f"{self._path}: the field {name} has the name of the mask of {masks[name]}. "
                    f"Leave one of them out with fields=[...], or rename the field where it is "
                    f"written"
                )
                raise UsageError(msg)

    def _in_windows(self, name: str) -> bool:
        return self.windows is not None and self.cache.fields[name].dim == self.windows.dim

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return escape_controls(
            f"<CachedDataset {self._path}: {len(self):,} items of {', '.join(self.fields)}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _PER_PROCESS}
        return state | {"_verify": "touch" if self._verify == "full" else self._verify}

    @cached_property
    def cache(self) -> Cache:
        """The opened cache."""
        cache = open_cache(
            self._path,
            verify=self._verify,
            io=self._io,
            shards_in=self._shards_in,
            shards_bytes=self._shards_bytes,
        )
        cache.load_codecs()
        return cache

    @cached_property
    def windows(self) -> Windows | None:
        """How episodes are cut; None where whole samples are served."""
        if self._given_windows is False:
            return None
        if self._given_windows is not None:
            return self._given_windows
        stored = self.cache.root.windows
        return None if stored is None else Windows.of(stored)

    @cached_property
    def _items(self) -> Items:
        usable = self.cache.made if self._policy == "keep" else self.cache.usable
        index = None
        if self.windows is not None:
            lengths = self.cache.lengths(self.windows.dim)
            index = WindowIndex(self.windows, lengths, usable, skip=self._policy == "skip")
        return Items(usable, self._policy, self._seed, index)

    @cached_property
    def _attempts(self) -> Attempts:
        return Attempts(self._items, self._policy, self._catch, self.budget)

    @cached_property
    def _gatherer(self) -> Gatherer:
        return Gatherer(
            self.cache,
            self.fields,
            self._items,
            self.windows,
            limited=self._given_windows is None,
            copy=self._copy,
        )

    @cached_property
    def _buffers(self) -> Buffers:
        return Buffers(spare=2)  # a loop holds a batch while the next is gathered

    @property
    def epoch(self) -> int:
        """The epoch of plain indices; the indices of datacheck's samplers carry their own."""
        return self._epoch.get()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of plain indices, in all workers too; call it before each epoch."""
        self._epoch.set(epoch)

    def __getitem__(self, index: Any) -> Any:
        """Return one sample, or a collated batch where `index` is a list."""
        if isinstance(index, list | tuple | np.ndarray) or (
            isinstance(index, torch.Tensor) and index.ndim
        ):
            return collate_rows(self.__getitems__(index))
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int] | Array) -> Any:
        """Return the samples at `indices`, in order; each field is gathered in one call.

        Raises:
            IndexError: an index is out of range.
            UsageError: a sample is invalid and ``on_invalid="raise"``; windows of the cache's own
                take more than 4 GiB.
            CorruptionError: stored bytes are not those that were written.
            BudgetExceededError: the transform refused too many samples.
        """
        epochs, items = self._epochs_and_items(indices)
        candidates = self._first_candidates(epochs, items)
        batch = self._gatherer.gather(candidates, self._buffers.empty, parallel=True)
        transform = self._transform
        if transform is None:
            return batch

        def make(place: int, candidate: int, attempt: int) -> Any:
            row = batch[place] if attempt == 0 else self._gather_one(candidate)
            options = {}
            if self._passes_rng:
                item, epoch = int(items[place]), int(epochs[place])
                options["rng"] = self._items.random(item, epoch, attempt)
            return _with_kinds(transform(dict(row), **options), row)

        return self._attempts.served(epochs, items, candidates, make, self.key)

    def _gather_one(self, item: int) -> Row:
        row: Row = self._gatherer.gather(np.array([item]), self._buffers.empty)[0]
        return row

    def sampler(
        self, batch_size: int, *, shuffle: bool = True, seed: int | None = None, **options: Any
    ) -> Sampler:
        """Return batches of indices for ``DataLoader(dataset, batch_sampler=...)``.

        Args:
            batch_size: samples in the batch of one rank.
            shuffle: use a new order in each epoch.
            seed: seed of the order; None takes the dataset's.
            options: see `Sampler`.
        """
        return Sampler(
            self, batch_size, shuffle=shuffle, seed=self._seed if seed is None else seed, **options
        )

    @cached_property
    def fingerprint(self) -> str:
        """Digest of what each index means: content, validity, windows, policy and seed."""
        usable = digest_bytes(np.packbits(self.cache.usable).tobytes())
        cut = self.windows
        windows = None
        if cut is not None:
            windows = [cut.length, cut.stride, cut.pad, cut.short, cut.dim, cut.history, cut.deltas]
        return digest_value(
            [self.cache.manifest.content_root, usable, windows, self._policy, self._seed]
        )

    def shard_starts(self) -> Array:
        """Return the first item of each shard that has any items, int64 (shards)."""
        first_samples = np.arange(0, len(self.cache), self.cache.root.shard_samples)
        low = np.zeros_like(first_samples)
        high = np.full_like(first_samples, len(self))
        # A binary search for all shards at once: items are in the order of their samples.
        while (low < high).any():
            searching = low < high
            middle = (low + high) // 2
            samples = self._items.samples(np.minimum(middle, len(self) - 1))
            is_before = searching & (samples < first_samples)
            low = np.where(is_before, middle + 1, low)
            high = np.where(searching & ~is_before, middle, high)
        return np.unique(low[low < len(self)])

    @property
    def transforms(self) -> bool:
        """Whether the dataset has a transform."""
        return self._transform is not None

    def open(self) -> None:
        """Open the cache now instead of at the first sample, e.g. before threads share it."""
        self._gatherer  # noqa: B018

    def gather(self, indices: Sequence[int] | Array, memory: Memory) -> Batch:
        """Return the samples at `indices` before the transform, in memory that the caller provides.

        Args:
            indices: as for `__getitems__`.
            memory: called with a field's name, shape and dtype; returns a contiguous tensor in main
                memory.
        """
        candidates = self._first_candidates(*self._epochs_and_items(indices))
        return self._gatherer.gather(candidates, memory)

    def substituted(self, index: int) -> int:
        """Return the index served for `index` in this epoch; `index` itself if it is valid."""
        return int(self._first_candidates(*self._epochs_and_items([index]))[0])

    def key(self, index: int) -> str:
        """Return the key of the sample (episode) at `index`, before substitution."""
        _, items = self._epochs_and_items([index])
        return self.cache.key(int(self._items.samples(items)[0]))

    def _epochs_and_items(self, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        return items_of(indices, self.epoch, len(self))

    def _first_candidates(self, epochs: Array, items: Array) -> Array:
        """Return the items to serve: of the policy "resample" substitutes for invalid ones."""
        if self._policy == "skip":  # no item is invalid
            return items
        if self._policy == "raise":
            self._check_usable(items)
            return items
        candidates = self._items.substituted(items, epochs)
        if candidates is not items:
            self.budget.replace(int(np.count_nonzero(candidates != items)))
        return candidates

    def _check_usable(self, items: Array) -> None:
        unusable = self._items.unusable(items)
        if unusable.size:
            item = int(items[unusable[0]])
            key = self.key(item)
            codes = ", ".join(self.cache.codes(key)) or "not made"
            msg = (
                f"{self._path}: item {item}, {key}, is invalid ({codes}). Use "
                f"on_invalid='resample' or 'skip'."
            )
            raise UsageError(msg)


def _with_kinds(sample: Any, row: Row) -> Any:
    """Return what a transform made of a row; a plain dict keeps the kinds of the row's fields."""
    if type(sample) is not dict:
        return sample
    # A value that replaces a text is no longer "object": PyTorch collates it.
    kinds = {
        name: kind
        for name, kind in row.kinds.items()
        if kind != "object" or sample.get(name) is row[name]
    }
    return Row(sample, kinds)


def _check_options(fields: Any, transform: Any, windows: Any) -> None:
    if isinstance(fields, str):
        msg = f"fields={fields!r}; a list of names is wanted"
        raise UsageError(msg)
    if transform is not None and not callable(transform):
        msg = f"transform={transform!r}; a function of a sample is wanted"
        raise UsageError(msg)
    if windows is not None and windows is not False and not isinstance(windows, Windows):
        msg = f"windows={windows!r}; Windows(...) is wanted"
        raise UsageError(msg)
