"""Gathers items of a cache into a batch: each field in one call, in memory that the caller provides.

How a field arrives depends on its kind: texts as a list, fixed fields stacked, ragged fields
concatenated, fields of windowed episodes as the steps of each window. Large fields are copied by
several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datacheck.cache import Cache, Windows, parsing
from datacheck.cache.parsing import STEP_OVERHEAD_BYTES
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch.collate import Batch, Column, RaggedColumn, ViewColumn
from datacheck.torch.prefetch import Memory, parallel_copy
from datacheck.torch.resampling import Items

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _GatherRequest:
    """One batch to gather.

    Shapes:
        items, samples: int64 (items)

    Args:
        items: items of the dataset.
        samples: the sample (episode) of each.
        memory: see `Gatherer.gather`.
        parallel: whether several threads may copy parts of a field.
    """

    items: Array
    samples: Array
    memory: Memory
    parallel: bool


class Gatherer:
    """Gathers fields of a cache.

    Args:
        cache: the cache.
        fields: names of the fields, in the order of the columns.
        items: the samples, and in window mode the steps, of the dataset's items.
        windows: how episodes are cut; None: into whole samples.
        limited: whether windows of a batch may take 4 GiB at most. They are limited where the cache
            says how to cut: windows overlap and padding is not stored, so a small cache can ask for
            far more memory than its own size.
        copy: whether to copy the arrays of samples; else they are views of the mapped cache.
    """

    def __init__(
        self,
        cache: Cache,
        fields: Sequence[str],
        items: Items,
        windows: Windows | None,
        *,
        limited: bool,
        copy: bool,
    ) -> None:
        self._cache = cache
        self._fields = fields
        self._items = items
        self._windows = windows
        self._copy = copy
        self._limited_bytes = self._window_bytes() if limited else 0
        # Rows of other caches come from chunks that are fetched or decoded whole, and each thread
        # would do so with the chunks of which it copies a part.
        self._copies_rows = isinstance(cache.path, Path) and cache.compression in {"none", ""}

    def gather(self, items: Array, memory: Memory, *, parallel: bool = False) -> Batch:
        """Return the samples of items as a batch.

        Args:
            items: int64 (items).
            memory: called with a field's name, shape and dtype; returns a contiguous tensor in main
                memory.
            parallel: whether several threads may copy a field, where that is faster.

        Raises:
            UsageError: the windows take more memory than allowed.
            CorruptionError: stored bytes are not those that were written.
        """
        self._check_batch_size(len(items))
        samples = self._items.samples(items)
        request = _GatherRequest(items, samples, memory, parallel and self._copies_rows)
        columns: dict[str, Column] = {}
        for name in self._fields:
            spec = self._cache.fields[name]
            columns |= self._columns_of_field(name, spec, request)
            present = self._cache.present(name, samples) if spec.optional else None
            if present is not None:
                columns[f"{name}_is_present"] = torch.from_numpy(present)
        return Batch(columns, len(items))

    def _columns_of_field(
        self, name: str, spec: ArraySpec, request: _GatherRequest
    ) -> dict[str, Column]:
        if spec.kind != "array":
            return {name: self._cache.texts(name, request.samples)}
        if self._windows is not None and spec.dim == self._windows.dim:
            return self._window_steps(name, spec, self._windows, request)
        if not self._copy and len(request.items):
            views = [self._cache.view(name, sample) for sample in request.samples.tolist()]
            return {name: ViewColumn(views, ragged=spec.dim is not None)}
        if spec.dim is None:
            return {name: self._fixed(name, spec, request)}
        return {name: self._ragged(name, spec, spec.dim, request)}

    def _fixed(self, name: str, spec: ArraySpec, request: _GatherRequest) -> torch.Tensor:
        samples = request.samples
        out = request.memory(name, (len(samples), *spec.item), spec.dtype)
        out_array = out.numpy()

        def copy(first: int, stop: int) -> None:
            self._cache.gather(name, samples[first:stop], out_array[first:stop])

        parallel_copy(copy, len(samples), out.nbytes, parallel=request.parallel)
        return out

    def _ragged(
        self, name: str, spec: ArraySpec, dim: str, request: _GatherRequest
    ) -> RaggedColumn:
        samples = request.samples
        ends = np.cumsum(self._cache.lengths(dim, samples)).tolist()
        starts = [0, *ends]
        out = request.memory(name, (starts[-1], *spec.item), spec.dtype)
        out_array = out.numpy()

        def copy(first: int, stop: int) -> None:
            rows = out_array[starts[first] : starts[stop]]
            self._cache.gather_ragged(name, samples[first:stop], rows)

        parallel_copy(copy, len(samples), out.nbytes, parallel=request.parallel)
        return RaggedColumn(out, ends)

    def _window_steps(
        self, name: str, spec: ArraySpec, windows: Windows, request: _GatherRequest
    ) -> dict[str, Column]:
        """Return the window steps of a field and their padding mask.

        A field without offsets has one step per item: no time axis and no mask.
        """
        samples = request.samples
        item_steps, episode_steps = self._items.steps(request.items)
        offsets = windows.offsets(name)
        step_offsets = np.zeros(1, np.int64) if offsets is None else offsets
        out = request.memory(name, (len(samples), len(step_offsets), *spec.item), spec.dtype)
        out_array = out.numpy()

        def copy(first: int, stop: int) -> None:
            part = slice(first, stop)
            self._cache.gather_steps(
                name, samples[part], item_steps[part], step_offsets, windows.fill, out_array[part]
            )

        parallel_copy(copy, len(samples), out.nbytes, parallel=request.parallel)
        if offsets is None:
            return {name: out[:, 0]}
        steps = item_steps[:, None] + offsets
        is_pad = (steps < 0) | (steps >= episode_steps[:, None])
        return {name: out, f"{name}_is_pad": torch.from_numpy(is_pad)}

    # ------------------------------------------------------------------------------ memory of windows

    def _window_bytes(self) -> int:
        """Return the bytes of one window over all its fields."""
        if self._windows is None:
            return 0
        total = 0
        for name in self._fields:
            spec = self._cache.fields[name]
            if spec.dim == self._windows.dim:
                offsets = self._windows.offsets(name)
                steps = 1 if offsets is None else len(offsets)
                total += steps * (spec.item_bytes + STEP_OVERHEAD_BYTES)
        return total

    def _check_batch_size(self, count: int) -> None:
        size = count * self._limited_bytes
        most = parsing.WINDOWS_BYTES
        if size > most:
            msg = (
                f"{self._cache.path}: {count:,} windows as the cache cuts them take {size:,} bytes; "
                f"at most {most:,} are read at once. Use a smaller batch (at most "
                f"{most // self._limited_bytes:,}), or say how to cut with windows=Windows(...)."
            )
            raise UsageError(msg)
