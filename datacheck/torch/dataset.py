"""CachedDataset: a finished cache as a map-style dataset that never serves a broken sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from datacheck.cache import Cache, Windows, open_cache, parsing
from datacheck.cache.find import choose_cache
from datacheck.cache.manifest import Verify
from datacheck.cache.parsing import STEP_OVERHEAD_BYTES
from datacheck.cache.reader import Io
from datacheck.cache.windows import WindowIndex
from datacheck.errors import UsageError, escape_controls
from datacheck.runtime.hashing import digest_bytes, digest_value
from datacheck.torch.collate import Batch, Column, RaggedColumn, Row, ViewColumn, collate_rows
from datacheck.torch.order import MAX_SEED, items_of, whole_number
from datacheck.torch.prefetch import Buffers, Memory, parallel_copy
from datacheck.torch.resampling import Attempts, Budget, Items, Policy, budget_of, takes_random
from datacheck.torch.sampler import Sampler, SharedEpoch

Array = np.ndarray[Any, Any]

# Rebuilt in each process that receives a pickled dataset.
_PER_PROCESS = {"cache", "windows", "_by_rows", "_items", "_attempts", "_buffers"}


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
        self._transform, self._policy, self._windows_asked = transform, on_invalid, windows
        self._copy = copy
        self._seed = whole_number("seed", seed, 0, MAX_SEED)
        self._verify, self._io, self._shards = verify, io, (shards_in, shards_bytes)
        self._epoch = SharedEpoch()
        self._catch, self._random = catch, transform is not None and takes_random(transform)
        self.budget = budget_of(budget)
        self.fields = tuple(self.cache.fields) if fields is None else tuple(fields)
        unknown = [name for name in self.fields if name not in self.cache.fields]
        if unknown:
            msg = (
                f"{self._path}: no field {', '.join(unknown)}; there are "
                f"{', '.join(self.cache.fields)}"
            )
            raise UsageError(msg)
        self._check_deltas()
        self._check_masks()
        self._length = len(self._attempts.items)

    def _check_deltas(self) -> None:
        if self.windows is None:
            return
        dim = self.windows.dim
        unserved = [
            name
            for name in self.windows.deltas
            if name not in self.fields or self.cache.fields[name].dim != dim
        ]
        if unserved:
            served_names = (
                ", ".join(name for name in self.fields if self.cache.fields[name].dim == dim)
                or "none"
            )
            msg = (
                f"{self._path}: windows: no field {', '.join(unserved)} along {dim} is served; "
                f"there is {served_names}"
            )
            raise UsageError(msg)

    def _check_masks(self) -> None:
        fields, windows = self.cache.fields, self.windows
        padded = [n for n in self.fields if windows is not None and fields[n].dim == windows.dim]
        masks = {f"{n}_is_present": n for n in self.fields if fields[n].optional} | {
            f"{n}_is_pad": n for n in padded
        }
        for name in self.fields:
            if name in masks:
                msg = (
                    f"{self._path}: the field {name} has the name of the mask of {masks[name]}. "
                    f"Leave one of them out "
                    "with fields=[...], or rename the field where it is written"
                )
                raise UsageError(msg)

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
        shards_in, shards_bytes = self._shards
        cache = open_cache(
            self._path,
            verify=self._verify,
            io=self._io,
            shards_in=shards_in,
            shards_bytes=shards_bytes,
        )
        cache.load_codecs()
        return cache

    @cached_property
    def windows(self) -> Windows | None:
        """How episodes are cut; None where whole samples are served."""
        if self._windows_asked is None:
            stored = self.cache.root.windows
            return None if stored is None else Windows.of(stored)
        return self._windows_asked or None

    @cached_property
    def _items(self) -> Items:
        index = None
        usable = self.cache.made if self._policy == "keep" else self.cache.usable
        if self.windows is not None:
            lengths = self.cache.lengths(self.windows.dim)
            index = WindowIndex(self.windows, lengths, usable, skip=self._policy == "skip")
        return Items(usable, self._policy, self._seed, index)

    @cached_property
    def _buffers(self) -> Buffers:
        return Buffers(spare=2)  # a loop holds a batch while the next is gathered

    @cached_property
    def _attempts(self) -> Attempts:
        return Attempts(self._items, self._policy, self._catch, self.budget)

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
        if self._transform is None:
            return self._gather(
                self._served(*self._checked(indices)), self._buffers.empty, apart=self._by_rows
            )
        epochs, items = self._checked(indices)
        served = self._served(epochs, items)
        batch = self._gather(served, self._buffers.empty, apart=self._by_rows)

        def make(place: int, candidate: int, attempt: int) -> Any:
            row = (
                batch[place]
                if attempt == 0
                else self._gather(np.array([candidate]), self._buffers.empty)[0]
            )
            return self._transformed(row, int(items[place]), int(epochs[place]), attempt)

        return self._attempts.served(epochs, items, served, make, self.key)

    def _transformed(self, row: Row, item: int, epoch: int, attempt: int) -> Any:
        random = {"rng": self._items.random(item, epoch, attempt)} if self._random else {}
        # The caller checks that there is a transform
        sample = self._transform(dict(row), **random)  # type: ignore[misc]
        if type(sample) is not dict:
            return sample
        # A value that replaces a text is no longer "object": PyTorch collates it
        return Row(
            sample, {n: k for n, k in row.kinds.items() if k != "object" or sample.get(n) is row[n]}
        )

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
        windows = cut and [
            cut.length,
            cut.stride,
            cut.pad,
            cut.short,
            cut.dim,
            cut.history,
            cut.deltas,
        ]
        return digest_value(
            [self.cache.manifest.content_root, usable, windows, self._policy, self._seed]
        )

    def shard_starts(self) -> Array:
        """Return the first item of each shard that has any items, int64 (shards)."""
        boundaries = np.arange(0, len(self.cache), self.cache.root.shard_samples)
        low = np.zeros_like(boundaries)
        high = np.full_like(boundaries, len(self))
        while (
            searched := low < high
        ).any():  # binary search of all shards at once: items are in sample order
            middle = (low + high) // 2
            before = searched & (
                self._items.samples(np.minimum(middle, len(self) - 1)) < boundaries
            )
            low, high = (
                np.where(before, middle + 1, low),
                np.where(searched & ~before, middle, high),
            )
        return np.unique(low[low < len(self)])

    @property
    def transforms(self) -> bool:
        """Whether the dataset has a transform."""
        return self._transform is not None

    def open(self) -> None:
        """Open the cache now instead of at the first sample, e.g. before threads share it."""
        self._items  # noqa: B018

    def gather(self, indices: Sequence[int] | Array, memory: Memory) -> Batch:
        """Return the samples at `indices` before the transform, in memory that the caller provides.

        Args:
            indices: as for `__getitems__`.
            memory: called with a field's name, shape and dtype; returns a contiguous tensor in main
                memory.
        """
        return self._gather(self._served(*self._checked(indices)), memory)

    def substituted(self, index: int) -> int:
        """Return the index served for `index` in this epoch; `index` itself if it is valid."""
        return int(self._served(*self._checked([index]))[0])

    def key(self, index: int) -> str:
        """Return the key of the sample (episode) at `index`, before substitution."""
        return self.cache.key(int(self._items.samples(self._checked([index])[1])[0]))

    def _checked(self, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        return items_of(indices, self.epoch, len(self))

    def _served(self, epochs: Array, items: Array) -> Array:
        if self._policy in {"resample", "keep"}:
            served = self._items.substituted(items, epochs)
            if served is not items:
                self.budget.replace(int(np.count_nonzero(served != items)))
            return served
        if self._policy == "skip":
            return items
        wrong = self._items.unusable(items)
        if wrong.size:
            item = int(items[wrong[0]])
            key = self.key(item)
            codes = ", ".join(self.cache.codes(key)) or "not made"
            msg = (
                f"{self._path}: item {item}, {key}, is invalid ({codes}). Use "
                f"on_invalid='resample' or 'skip'."
            )
            raise UsageError(msg)
        return items

    @cached_property
    def _by_rows(self) -> bool:
        """Whether rows are copied straight from local, uncompressed files.

        Otherwise a chunk is fetched or decoded whole, by each thread that copies a part of it.
        """
        return isinstance(self.cache.path, Path) and self.cache.compression in {"none", ""}

    @cached_property
    def _window_bytes(self) -> int:
        """Bytes of one window as the cache cuts it; 0 where the caller chose the windows."""
        windows = self.windows if self._windows_asked is None else None
        if windows is None:
            return 0
        own = [
            (name, spec)
            for name in self.fields
            if (spec := self.cache.fields[name]).dim == windows.dim
        ]
        steps = (
            (windows.offsets(name), spec.item_bytes + STEP_OVERHEAD_BYTES) for name, spec in own
        )
        return sum((1 if offsets is None else len(offsets)) * size for offsets, size in steps)

    def _check_windows(self, count: int) -> None:
        """Refuse a batch whose windows, as the cache cuts them, exceed `parsing.WINDOWS_BYTES`.

        Windows overlap and padding is not stored, so a small cache can ask for far more memory
        than its own size.
        """
        size = count * self._window_bytes
        most = parsing.WINDOWS_BYTES
        if size > most:
            msg = (
                f"{self._path}: {count:,} windows as the cache cuts them take {size:,} bytes; at "
                f"most {most:,} are "
                f"read at once. Use a smaller batch (at most {most // self._window_bytes:,}), or "
                f"say how to cut with "
                "windows=Windows(...)."
            )
            raise UsageError(msg)

    def _gather(self, items: Array, memory: Memory, *, apart: bool = False) -> Batch:
        self._check_windows(len(items))
        samples = self._items.samples(items)
        cache = self.cache
        windows = self.windows
        columns: dict[str, Column] = {}
        for name in self.fields:
            spec = cache.fields[name]
            if spec.kind != "array":
                columns[name] = cache.texts(name, samples)
            elif not self._copy and len(items) and (windows is None or spec.dim != windows.dim):
                columns[name] = ViewColumn(
                    [cache.view(name, i) for i in samples.tolist()], spec.dim is not None
                )
            elif spec.dim is None:
                columns[name] = out = memory(name, (len(items), *spec.item), spec.dtype)
                parallel_copy(
                    partial(self._fixed, name, samples, out.numpy()),
                    len(items),
                    out.nbytes,
                    apart=apart,
                )
            elif windows is not None and spec.dim == windows.dim:
                columns |= self._window(name, windows, items, memory, apart=apart)
            else:
                ends = np.cumsum(cache.lengths(spec.dim, samples)).tolist()
                out = memory(name, (ends[-1] if ends else 0, *spec.item), spec.dtype)
                parallel_copy(
                    partial(self._ragged, name, samples, [0, *ends], out.numpy()),
                    len(items),
                    out.nbytes,
                    apart=apart,
                )
                columns[name] = RaggedColumn(out, ends)
            present = cache.present(name, samples) if spec.optional else None
            if present is not None:
                columns[f"{name}_is_present"] = torch.from_numpy(present)
        return Batch(columns, len(items))

    def _fixed(self, name: str, samples: Array, out: Array, first: int, stop: int) -> None:
        self.cache.gather(name, samples[first:stop], out[first:stop])

    def _ragged(
        self, name: str, samples: Array, starts: list[int], out: Array, first: int, stop: int
    ) -> None:
        self.cache.gather_ragged(name, samples[first:stop], out[starts[first] : starts[stop]])

    def _window(
        self, name: str, windows: Windows, items: Array, memory: Memory, *, apart: bool
    ) -> dict[str, Column]:
        """Return the window steps of a field and their padding mask.

        A field without offsets has one step per item: no time axis and no mask.
        """
        item_steps, size = self._items.steps(items)
        offsets = windows.offsets(name)
        step_offsets = np.zeros(1, np.int64) if offsets is None else offsets
        spec = self.cache.fields[name]
        samples = self._items.samples(items)
        out = memory(name, (len(items), len(step_offsets), *spec.item), spec.dtype)
        out_array = out.numpy()

        def copy(first: int, stop: int) -> None:
            part = slice(first, stop)
            self.cache.gather_steps(
                name, samples[part], item_steps[part], step_offsets, windows.fill, out_array[part]
            )

        parallel_copy(copy, len(items), out.nbytes, apart=apart)
        if offsets is None:
            return {name: out[:, 0]}
        steps = item_steps[:, None] + offsets
        is_pad = (steps < 0) | (steps >= size[:, None])
        return {name: out, f"{name}_is_pad": torch.from_numpy(is_pad)}


def _check_options(fields: Any, transform: Any, windows: Any) -> None:
    for name, value, valid, requirement in (
        ("fields", fields, not isinstance(fields, str), "a list of names"),
        (
            "transform",
            transform,
            transform is None or callable(transform),
            "a function of a sample",
        ),
        (
            "windows",
            windows,
            windows is None or windows is False or isinstance(windows, Windows),
            "Windows(...)",
        ),
    ):
        if not valid:
            msg = f"{name}={value!r}; {requirement} is wanted"
            raise UsageError(msg)
