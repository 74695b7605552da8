"""Observes the indices that a loader's sampler yields, to tell which samples a batch has."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.repro.tensors import as_whole, whole
from datacheck.runtime.hashing import digest64

Array = np.ndarray[Any, Any]

_WORD = (1 << 64) - 1
_WATCH = "_datacheck_watch"  # attribute of the subclasses that observe
# Mask of the item: a datacheck sampler packs the epoch above 40 bits of an index
_ITEM = (1 << 40) - 1


class ObservedPass:
    """One pass over a loader.

    Args:
        number: number of the pass over the loader, from 0; the sampler's epoch if it has one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        # Indices yielded by the sampler whose batch has not come yet; None: not indices.
        self.waiting: deque[Array | None] = deque()


class SamplerObserver:
    """Observes the indices that a sampler yields to its loader.

    Args:
        loader: a DataLoader of PyTorch or anything with `batch_sampler` or `sampler`.

    Notes:
        The sampler object gets a subclass of its class that observes it, so workers, threads and
        frameworks keep the same object. `close` restores the class once all later observers are
        closed, too. `why` says why nothing can be observed, `facts` describes the loader, `plain`
        is the sampler's own class, `open` tells whether this observer is active.
    """

    def __init__(self, loader: Any) -> None:
        self.why = ""
        self.open = False
        # A new pass starts when the loop has left the one before.
        self._pass: ObservedPass | None = None
        self._begun = 0
        self.facts = _loader_facts(loader)
        sampler = getattr(loader, "batch_sampler", None)
        self._sampler = getattr(loader, "sampler", None) if sampler is None else sampler
        self.plain: Any = type(self._sampler)
        if not getattr(loader, "in_order", True):
            self.why = "the loader gives batches as they are ready (in_order=False)"
        elif self.plain.__name__ == "_InfiniteConstantSampler":
            self.why = "an iterable dataset has no indices"
        else:
            self._attach()

    def _attach(self) -> None:
        original_class, watch = self.plain, self

        def watched(sampler: Any) -> Iterator[Any]:
            indices = iter(original_class.__iter__(sampler))
            return watch._observe(sampler, indices) if watch.open else indices

        def reduced(sampler: Any, protocol: Any) -> Any:
            """Reduce a copy or a pickle to the sampler's own class, without an observer."""
            reduction = original_class.__reduce_ex__(sampler, protocol)
            if not isinstance(reduction, tuple):
                return reduction
            constructor, arguments, *state = reduction
            # pickle requires the sampler's current class with __newobj__.
            if getattr(constructor, "__name__", "") == "__newobj__":
                constructor = original_class.__new__
            return (
                constructor,
                tuple(
                    original_class if argument is type(sampler) else argument
                    for argument in arguments
                ),
                *state,
            )

        identity = {
            "__module__": original_class.__module__,
            "__qualname__": original_class.__qualname__,
        }
        attributes = {"__iter__": watched, "__reduce_ex__": reduced, _WATCH: self, **identity}
        try:
            self._sampler.__class__ = type(original_class.__name__, (original_class,), attributes)
            self.open = True
        except Exception:  # noqa: BLE001  a user's class may refuse with any error
            self.why = (
                f"batches are ordered by a {original_class.__name__}, which cannot be watched"
            )

    def _observe(self, sampler: Any, indices: Iterator[Any]) -> Iterator[Any]:
        current_pass: ObservedPass | None = None
        for drawn in indices:
            # Set here, not earlier: a DataLoader with workers calls iter() twice and consumes only
            # one.
            if current_pass is None:
                epoch = getattr(sampler, "epoch", None)
                epoch_number = as_whole(epoch)
                current_pass = ObservedPass(
                    epoch_number
                    if epoch_number is not None and epoch_number >= self._begun
                    else self._begun
                )
                self._begun = current_pass.number + 1
                self._pass = current_pass
            if self.open:  # a pass may outlive the recording
                current_pass.waiting.append(
                    as_indices(drawn)
                )  # now, while they are in the CPU cache
            yield drawn

    def take(self) -> tuple[int, Array | None] | None:
        """Return pass and indices of the loop's next batch; None if no indices were seen."""
        current_pass = self._pass
        return (
            (current_pass.number, current_pass.waiting.popleft())
            if current_pass is not None and current_pass.waiting
            else None
        )

    def close(self) -> None:
        """Stop observing."""
        self.open, self._pass = False, None
        while (observer := vars(type(self._sampler)).get(_WATCH)) is not None and not observer.open:
            self._sampler.__class__ = observer.plain


def _loader_facts(loader: Any) -> dict[str, Any]:
    settings = {
        name: getattr(loader, name, None) for name in ("batch_size", "num_workers", "drop_last")
    }
    whole_numbers = {
        name: as_whole(value) for name, value in settings.items() if not isinstance(value, bool)
    }
    settings = {
        name: whole_numbers.get(name, value)
        for name, value in settings.items()
        if whole_numbers.get(name, value) is not None
    }
    settings |= {"persistent_workers": bool(getattr(loader, "persistent_workers", False))}
    return settings | {
        "sampler": type(getattr(loader, "sampler", None)).__name__,
        "class": type(loader).__name__,
    }


def as_indices(said: Any) -> Array | None:
    """Return indices as int64 (samples), without a packed epoch; None if they are not indices.

    Args:
        said: one whole number, or a list, tensor or array of them.
    """
    try:
        numbers = np.asarray(said.detach().cpu() if hasattr(said, "detach") else said).reshape(-1)
        if numbers.dtype.kind not in "iu":
            return None
        # A copy, unless it is a list: the loop may change its own array.
        integers = numbers.astype(np.int64, copy=type(said) is not list)
    except (TypeError, ValueError, OverflowError):
        return None
    return (
        np.where(integers > _ITEM, integers & _ITEM, integers)
        if integers.size and integers.max() > _ITEM
        else integers
    )


class OrderDigest:
    """The order of an epoch's samples, kept as digests.

    Args:
        epoch: the epoch.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch, self.steps, self.samples = epoch, 0, 0
        self._order = 0
        self._set = 0
        self._inputs: int | None = 0
        self._known = True

    def add(self, indices: Array | None, inputs: int | None) -> None:
        """Add one batch: its indices, and the sum over its samples' values."""
        self.steps += 1
        if indices is None:
            self._known = False
        else:
            self.samples += len(indices)
            self._order = digest64(
                self._order.to_bytes(8, "little") + digest64(indices.data).to_bytes(8, "little")
            )
            self._set = (
                self._set + int(_mix_bits(indices.view(np.uint64)).sum(dtype=np.uint64))
            ) & _WORD
        self._inputs = (
            None if inputs is None or self._inputs is None else (self._inputs + inputs) & _WORD
        )

    def line(self) -> dict[str, Any]:
        """Return the line of the epoch: digests of the order, the index set and the value set."""
        has_indices = self._known and self.steps > 0
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "samples": self.samples if has_indices else None,
            "order": f"{self._order:016x}" if has_indices else None,
            "set": f"{self._set:016x}" if has_indices else None,
            "values": None if self._inputs is None else f"{self._inputs:016x}",
        }


def _mix_bits(words: Array) -> Array:
    words = (words + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return (words ^ (words >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)


def count_unique(seen: Any) -> int | None:
    """Return the number of different samples.

    Args:
        seen: the number, or the indices of all samples seen.

    Raises:
        UsageError: it is neither, or below 0.
    """
    if seen is None:
        return None
    if as_whole(seen) is not None or not hasattr(seen, "__iter__"):
        return whole("seen", seen)
    indices = as_indices(list(seen) if not hasattr(seen, "shape") else seen)
    return None if indices is None else len(np.unique(indices))
