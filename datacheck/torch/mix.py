"""Mix: several datasets as one.

Arithmetic maps item i of an epoch to a dataset and an item of it, so no order is stored. The items
of an epoch are shuffled and laid out dataset by dataset: the first counts[0] places belong to
dataset 0, the next counts[1] to dataset 1, and so on. Each dataset serves its items in an order of
its own; a dataset that is served more than once has a new order each round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from torch.utils.data import Dataset

from datacheck.errors import UsageError
from datacheck.runtime.hashing import digest_value
from datacheck.torch.collate import merge_batches
from datacheck.torch.order import (
    MAX_ITEMS,
    MAX_SEED,
    MIX,
    Array,
    fingerprint_of,
    items_of,
    length_of,
    pack,
    permute,
    whole_number,
)
from datacheck.torch.sampler import SharedEpoch, set_dataset_epoch

Stop = Literal["first_exhausted", "all_exhausted"]


class Mix(Dataset[Any]):  # type: ignore[misc]  # torch is untyped here
    """Several map-style datasets mixed in fixed shares.

    Args:
        datasets: one or more; each sample comes unchanged from one of them.
        weights: the share of each dataset, any scale, above 0; None: in proportion to the lengths,
            so that each item comes once.
        seed: seed of the mixing, 0 or more.
        stop: "first_exhausted": an epoch ends when the first dataset has been served whole;
            "all_exhausted": when all have been, and smaller datasets more than once.

    Raises:
        UsageError: a dataset is empty; weights are not one per dataset, or not above 0; `stop` is
            unknown.

    Notes:
        Item i is a pure function of (seed, epoch, i). An epoch has exactly the shares, rounded to
        whole items, in mixed order. A dataset that is not served whole serves other items each
        epoch. A dataset that repeats serves each item equally often, or some once more. Weights
        are read as exact decimal numbers.
    """

    decodes_epoch = True

    def __init__(
        self,
        datasets: Sequence[Sized],
        *,
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop: Stop = "first_exhausted",
    ) -> None:
        self.datasets: tuple[Any, ...] = tuple(datasets)
        self._lengths = [length_of(dataset) for dataset in self.datasets]
        if not self.datasets or 0 in self._lengths:
            msg = (
                f"a mix of datasets with {', '.join(map(str, self._lengths)) or 'no'} items; "
                f"each needs one or more"
            )
            raise UsageError(msg)
        if stop not in get_args(Stop):
            msg = f"stop={stop!r} is not one of {', '.join(get_args(Stop))}"
            raise UsageError(msg)
        self._seed = whole_number("seed", seed, 0, MAX_SEED)
        self._counts = _counts(self._lengths, _shares(weights, self._lengths), stop)
        self._length = whole_number("items of an epoch", sum(self._counts), 1, MAX_ITEMS - 1)
        self._ends = np.cumsum(self._counts)
        self._epoch = SharedEpoch()

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,}" for count in self._counts)
        return f"<Mix of {len(self.datasets)}: {len(self):,} items, {counts} of each>"

    @property
    def epoch(self) -> int:
        """The epoch of plain indices; the indices of datacheck's samplers carry their own."""
        return self._epoch.get()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of plain indices in all workers and datasets; call it before an epoch."""
        self._epoch.set(epoch)
        for dataset in self.datasets:
            set_dataset_epoch(dataset, epoch)

    @property
    def fingerprint(self) -> str:
        """Digest of what each index means."""
        return digest_value(
            [[fingerprint_of(dataset) for dataset in self.datasets], self._counts, self._seed]
        )

    def locate(self, indices: Sequence[int] | Array) -> tuple[Array, Array, Array]:
        """Return the epoch, the dataset and the item in it for each index, int64 (indices) each.

        Raises:
            IndexError: an index is out of range.
        """
        epochs, items = items_of(indices, self.epoch, len(self))
        numbers = np.empty_like(items)
        inner_items = np.empty_like(items)
        for epoch in np.unique(epochs).tolist():
            positions = np.flatnonzero(epochs == epoch)
            numbers[positions], inner_items[positions] = self._locate_in_epoch(
                epoch, items[positions]
            )
        return epochs, numbers, inner_items

    def _locate_in_epoch(self, epoch: int, items: Array) -> tuple[Array, Array]:
        """Return the dataset and the item in it for each item of one epoch."""
        places = permute(items, len(self), (self._seed, epoch, MIX, 0))
        numbers = np.searchsorted(self._ends, places, side="right")
        inner_items = np.empty_like(items)
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            first_place = int(self._ends[number]) - self._counts[number]
            turns = places[positions] - first_place
            inner_items[positions] = self._items_of_dataset(number, epoch, turns)
        return numbers, inner_items

    def _items_of_dataset(self, number: int, epoch: int, turns: Array) -> Array:
        """Return the items that a dataset serves at its turns 0, 1, 2, ... of an epoch."""
        length = self._lengths[number]
        rounds, round_turns = np.divmod(turns, length)
        items = np.empty_like(turns)
        for round_number in np.unique(rounds).tolist():
            positions = np.flatnonzero(rounds == round_number)
            key = (self._seed, epoch, MIX + 1 + number, round_number)
            items[positions] = permute(round_turns[positions], length, key)
        return items

    def __getitem__(self, index: Any) -> Any:
        """Return one sample."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int] | Array) -> Any:
        """Return the samples at `indices`, in order; each dataset gets one request per epoch.

        Raises:
            IndexError: an index is out of range.
            UsageError: dicts of two datasets have different fields, which no collate can join.
        """
        epochs, numbers, items = self.locate(indices)
        parts: list[tuple[Array, Any]] = []
        first_samples: dict[int, Any] = {}
        for number in np.unique(numbers).tolist():
            for epoch in np.unique(epochs[numbers == number]).tolist():
                positions = np.flatnonzero((numbers == number) & (epochs == epoch))
                samples = _fetch_items(self.datasets[number], epoch, items[positions])
                parts.append((positions, samples))
                first_samples[number] = samples[0]
        _check_same_fields(first_samples)
        merged = merge_batches(parts, len(items))
        return _in_order(parts, len(items)) if merged is None else merged


def _fetch_items(dataset: Any, epoch: int, items: Array) -> Any:
    """Return the samples of one dataset and epoch, in one request where the dataset takes one."""
    decodes_epoch = getattr(dataset, "decodes_epoch", False)
    indices = (pack(epoch, items) if decodes_epoch else items).tolist()
    fetch = getattr(dataset, "__getitems__", None)
    return [dataset[index] for index in indices] if fetch is None else fetch(indices)


def _check_same_fields(first_samples: Mapping[int, Any]) -> None:
    """Raise if the dicts of two datasets, given by number, have different fields."""
    fields = {
        number: set(sample)
        for number, sample in first_samples.items()
        if isinstance(sample, Mapping)
    }
    lowest = min(fields, default=0)
    for number in fields:
        differing = fields[number] ^ fields[lowest]
        if differing:
            msg = (
                f"datasets {lowest} and {number} of a mix have different fields: only one has "
                f"{', '.join(sorted(map(str, differing)))}. "
                f"Choose common ones (fields=[...]), or bring them in line with transform=."
            )
            raise UsageError(msg)


def _in_order(parts: Sequence[tuple[Array, Any]], size: int) -> list[Any]:
    """Return the samples of parts, each given with its positions, as one list."""
    rows: list[Any] = [None] * size
    for positions, samples in parts:
        for position, sample in zip(positions.tolist(), samples, strict=True):
            rows[position] = sample
    return rows


def _shares(weights: Sequence[float] | None, lengths: list[int]) -> list[Fraction]:
    if weights is None:
        return [Fraction(n, sum(lengths)) for n in lengths]
    weight_texts = [str(weight) for weight in np.asarray(weights).ravel().tolist()]
    if len(weight_texts) != len(lengths):
        msg = f"{len(weight_texts)} weights for {len(lengths)} datasets; one each is wanted"
        raise UsageError(msg)
    try:
        exact = [Fraction(weight) for weight in weight_texts]
    except ValueError:  # NaN, infinite, text
        exact = []
    if not exact or min(exact) <= 0:
        msg = (
            f"weights {', '.join(weight_texts)}; each is above 0: leave a dataset out that is never to "
            f"be served"
        )
        raise UsageError(msg)
    return [weight / sum(exact) for weight in exact]


def _counts(lengths: list[int], shares: list[Fraction], stop: Stop) -> list[int]:
    """Return the number of items of each dataset in an epoch, rounded by largest remainder."""
    # How long the epoch would be if each dataset were served exactly once.
    epoch_lengths = [length / share for length, share in zip(lengths, shares, strict=True)]
    total = math.floor(min(epoch_lengths))
    if stop == "all_exhausted":
        total = math.ceil(max(epoch_lengths))
    exact = [share * total for share in shares]
    counts = [math.floor(count) for count in exact]
    by_remainder = sorted(range(len(exact)), key=lambda number: counts[number] - exact[number])
    for number in by_remainder[: total - sum(counts)]:
        counts[number] += 1
    return counts
