"""Which samples a batch has: the indices that a loader's sampler gives out, in the order in which batches come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.repro.tensors import as_whole, whole
from datacheck.runtime.hashing import digest64

Array = np.ndarray[Any, Any]

_WORD = (1 << 64) - 1
_WATCH = "_datacheck_watch"  # of a class that looks on
_ITEM = (1 << 40) - 1  # a datacheck sampler packs the epoch above 40 bits of an index


class ObservedPass:
    """One way through a loader.

    Args:
        number: which of the loader's passes, from 0; the sampler's epoch where it has one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: deque[Array | None] = (
            deque()
        )  # indices given out, their batch not seen yet; None: they are none


class SamplerObserver:
    """What a loader's sampler gives out, seen on its way to the loader.

    Args:
        loader: a DataLoader of PyTorch or anything with `batch_sampler` or `sampler`.

    Notes:
        The sampler's class gets a subclass that looks on, so workers, threads and frameworks see
        the same object; `close` takes it back, as soon as nobody looks on who came later. `why`
        says where nothing can be seen, `facts` what the loader is, `plain` which class the sampler
        had, `open` that this one looks on.
    """

    def __init__(self, loader: Any) -> None:
        self.why = ""
        self.open = False
        self._pass: ObservedPass | None = (
            None  # a new one begins when the loop has left the one before
        )
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
        plain, watch = self.plain, self

        def watched(sampler: Any) -> Iterator[Any]:
            indices = iter(plain.__iter__(sampler))
            return watch._observe(sampler, indices) if watch.open else indices

        def reduced(sampler: Any, protocol: Any) -> Any:
            """Say of what a copy or a pickle is made: the sampler as it was, which nobody looks at."""
            said = plain.__reduce_ex__(sampler, protocol)
            if not isinstance(said, tuple):
                return said
            made, given, *state = said
            if (
                getattr(made, "__name__", "") == "__newobj__"
            ):  # pickle insists on the class that the sampler has now
                made = plain.__new__
            return made, tuple(plain if one is type(sampler) else one for one in given), *state

        named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
        more = {"__iter__": watched, "__reduce_ex__": reduced, _WATCH: self, **named}
        try:
            self._sampler.__class__ = type(plain.__name__, (plain,), more)
            self.open = True
        except Exception:  # noqa: BLE001  a class of one's own may refuse it with any
            self.why = f"batches are ordered by a {plain.__name__}, which cannot be watched"

    def _observe(self, sampler: Any, indices: Iterator[Any]) -> Iterator[Any]:
        now: ObservedPass | None = None
        for some in indices:
            if (
                now is None
            ):  # here, not before: a DataLoader with workers calls iter() twice and takes of one only
                epoch = getattr(sampler, "epoch", None)
                known = as_whole(epoch)
                now = ObservedPass(
                    known if known is not None and known >= self._begun else self._begun
                )
                self._begun = now.number + 1
                self._pass = now
            if self.open:  # a pass may go on behind the recording
                now.waiting.append(as_indices(some))  # now, while they are near
            yield some

    def take(self) -> tuple[int, Array | None] | None:
        """Return pass and indices of the next batch that the loop has; None where none was given out."""
        now = self._pass
        return (now.number, now.waiting.popleft()) if now is not None and now.waiting else None

    def close(self) -> None:
        """Look on no more."""
        self.open, self._pass = False, None
        while (last := vars(type(self._sampler)).get(_WATCH)) is not None and not last.open:
            self._sampler.__class__ = last.plain


def _loader_facts(loader: Any) -> dict[str, Any]:
    found = {
        name: getattr(loader, name, None) for name in ("batch_size", "num_workers", "drop_last")
    }
    whole = {name: as_whole(value) for name, value in found.items() if not isinstance(value, bool)}
    found = {
        name: whole.get(name, value)
        for name, value in found.items()
        if whole.get(name, value) is not None
    }
    found |= {"persistent_workers": bool(getattr(loader, "persistent_workers", False))}
    return found | {
        "sampler": type(getattr(loader, "sampler", None)).__name__,
        "class": type(loader).__name__,
    }


def as_indices(said: Any) -> Array | None:
    """Return indices as int64 (samples), without the epoch that a datacheck sampler packs in; None: they are none.

    Args:
        said: a list, tensor or array of whole numbers, or one.
    """
    try:
        numbers = np.asarray(said.detach().cpu() if hasattr(said, "detach") else said).reshape(-1)
        if numbers.dtype.kind not in "iu":
            return None
        whole = numbers.astype(
            np.int64, copy=type(said) is not list
        )  # what is the loop's may change
    except (TypeError, ValueError, OverflowError):
        return None
    return (
        np.where(whole > _ITEM, whole & _ITEM, whole)
        if whole.size and whole.max() > _ITEM
        else whole
    )


class OrderDigest:
    """The order of an epoch's samples, kept as digests.

    Args:
        epoch: which.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch, self.steps, self.samples = epoch, 0, 0
        self._order = 0
        self._set = 0
        self._inputs: int | None = 0
        self._known = True

    def add(self, indices: Array | None, inputs: int | None) -> None:
        """Take one batch: its indices, and the sum that stands for what its samples hold."""
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
        """Return what is written of it: digests of the order, of the set of indices, of the set of samples' values."""
        known = self._known and self.steps > 0
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "samples": self.samples if known else None,
            "order": f"{self._order:016x}" if known else None,
            "set": f"{self._set:016x}" if known else None,
            "values": None if self._inputs is None else f"{self._inputs:016x}",
        }


def _mix_bits(words: Array) -> Array:
    words = (words + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return (words ^ (words >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)


def count_unique(seen: Any) -> int | None:
    """Return how many different samples were seen.

    Args:
        seen: a number, or the indices of all that were seen.

    Raises:
        UsageError: it is neither, or below 0.
    """
    if seen is None:
        return None
    if as_whole(seen) is not None or not hasattr(seen, "__iter__"):
        return whole("seen", seen)
    indices = as_indices(list(seen) if not hasattr(seen, "shape") else seen)
    return None if indices is None else len(np.unique(indices))
