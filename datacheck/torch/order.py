"""The item at each position of each epoch: pure functions, no stored permutation, no PyTorch."""

from __future__ import annotations

import operator
import struct
from typing import Any, TypeAlias

import numpy as np
import xxhash

from datacheck.cache.row_readers import all_below, sample_numbers
from datacheck.errors import UsageError
from datacheck.runtime.hashing import digest_bytes, digest_value

Array = np.ndarray[Any, Any]
Key: TypeAlias = tuple[int, int, int, int]  # seed, epoch, purpose, number

_ITEM_BITS = 40
MAX_ITEMS = 1 << _ITEM_BITS
MAX_EPOCH = (1 << (63 - _ITEM_BITS)) - 2
MAX_SEED = (1 << 63) - 1

_ROUNDS = 16  # even; with 8 or fewer, orders of 5 to 16 items are visibly not uniform
# Purposes of keys; from MIX on they belong to `Mix`
_ITEMS, _BLOCKS, _POOLS, _DRAWS, MIX = range(5)
_KEY = struct.Struct("<QQQQQ")
_U = np.uint64


def whole_number(name: str, value: Any, least: int = 0, most: int = MAX_EPOCH) -> int:
    """Return `value` as an int.

    Raises:
        UsageError: it is not a whole number in [least, most].
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        msg = f"{name}={value!r} is no whole number from {least} to {most}"
        raise UsageError(msg)
    return number


def pack(epoch: int, items: Array) -> Array:
    """Return one number per item that holds epoch and item: ``(epoch + 1) << 40 | item``.

    Shapes:
        items: int64 (items), each in [0, 2**40)
        returns: int64 (items)

    Args:
        epoch: 0 to 8,388,606.

    Raises:
        UsageError: the epoch is out of range.
    """
    packed: Array = items | ((whole_number("epoch", epoch) + 1) << _ITEM_BITS)
    return packed


def unpack(numbers: Array, epoch: int) -> tuple[Array, Array]:
    """Return epoch and item of each number; a plain index (below 2**40, or negative) has `epoch`.

    Shapes:
        numbers: int64 (items)
        returns: int64 (items), int64 (items)
    """
    packed = numbers >= MAX_ITEMS
    epochs = np.where(packed, (numbers >> _ITEM_BITS) - 1, epoch)
    return epochs, np.where(packed, numbers & (MAX_ITEMS - 1), numbers)


def items_of(indices: Any, epoch: int, length: int) -> tuple[Array, Array]:
    """Return epoch and item of each index, int64 (indices) each.

    A negative index counts from the end of the dataset.

    Raises:
        IndexError: an index is out of range.
        TypeError: an index is not a whole number.
    """
    numbers = sample_numbers(indices)
    if all_below(numbers, length):  # plain ones, none from the end
        return np.full(len(numbers), epoch, np.int64), numbers
    epochs, items = unpack(numbers, epoch)
    wrong = np.flatnonzero((items < -length) | (items >= length))
    if wrong.size:
        msg = (
            f"index {items[wrong[0]]} is out of range: the dataset has {length:,} items, 0 to "
            f"{length - 1}"
        )
        raise IndexError(msg)
    return epochs, np.where(items < 0, items + length, items)


def length_of(dataset: Any) -> int:
    """Return the number of items of a map-style dataset.

    Raises:
        UsageError: the dataset has no length.
    """
    if not hasattr(dataset, "__len__"):
        msg = (
            f"{type(dataset).__name__} has no length; a map-style dataset is wanted, with "
            f"__len__ and __getitem__"
        )
        raise UsageError(msg)
    return len(dataset)


def fingerprint_of(dataset: Any) -> str:
    """Return the dataset's own fingerprint, or else a digest of its length."""
    fingerprint = getattr(
        dataset, "fingerprint", None
    )  # a foreign dataset may use the name for anything
    return fingerprint if isinstance(fingerprint, str) else digest_value({"items": len(dataset)})


# ----------------------------------------------------------------------------------- random numbers


def _random_words(key: Key, count: int) -> Array:
    """Return `count` words of 64 random bits as a function of `key`."""
    return np.array(
        [xxhash.xxh3_64_intdigest(_KEY.pack(*key, number)) for number in range(count)],
        dtype=np.uint64,
    )


def _mix_bits(words: Array, key: Any) -> Array:
    """Return 64 random bits for each (word, key): the finalizer of SplitMix64."""
    words = words ^ key
    words = (words ^ (words >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> _U(27))) * _U(0x94D049BB133111EB)
    mixed: Array = words ^ (words >> _U(31))
    return mixed


def permute(numbers: Array, n: int, key: Key) -> Array:
    """Return each of `numbers` under the permutation of [0, n) that `key` selects.

    Shapes:
        numbers: int64 (numbers), each in [0, n)
        returns: int64 (numbers)

    Notes:
        A Feistel network over the bits of n - 1, with halves that differ by at most one bit. A
        result of n or more is permuted again (cycle walking), less than once per number on average.

    Reference:
        Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002.
    """
    bits = (n - 1).bit_length()
    low = _U(bits // 2)
    masks = (_U((1 << (bits - bits // 2)) - 1), _U((1 << (bits // 2)) - 1))
    keys = _random_words(key, _ROUNDS)
    words = numbers.astype(np.uint64)
    walking = np.arange(len(words))
    while walking.size:
        upper = words[walking] >> low
        lower = words[walking] & masks[1]
        for number in range(0, _ROUNDS, 2):
            upper ^= _mix_bits(lower, keys[number]) & masks[0]
            lower ^= _mix_bits(upper, keys[number + 1]) & masks[1]
        words[walking] = permuted = upper << low | lower
        walking = walking[permuted >= n]
    return words.astype(np.int64)


# ---------------------------------------------------------------------------------------- the order


class Order:
    """The order of a dataset's items: (epoch, position) -> item.

    Shapes:
        blocks: int64 (blocks); weights: float64 (items)

    Args:
        n: number of items, 1 to 2**40 - 1.
        seed: 0 or more.
        shuffle: False: position is item.
        blocks: shuffle `pool` blocks at a time: the first item of each block, or the number of
            items in a block.
        pool: how many blocks are shuffled together, 1 or more.
        weights: how often each item is drawn, with replacement; any scale, 0 means never.
        samples: positions of an epoch with weights; None: the number of items.

    Raises:
        UsageError: a value is out of range, or two of them exclude each other.

    Notes:
        A pure function, equal in every process. Memory: none; with blocks, 32 bytes a block; with
        weights, 8 bytes an item. Without weights every item has exactly one position, and each
        position is equally likely. With blocks, two items of one block are neighbours about n /
        (items of a pool) times as often as in a full shuffle.
    """

    def __init__(
        self,
        n: int,
        seed: int,
        *,
        shuffle: bool = True,
        blocks: Array | int | None = None,
        pool: int = 16,
        weights: Any = None,
        samples: int | None = None,
    ) -> None:
        self.n = whole_number("items", n, 1, MAX_ITEMS - 1)
        self.seed = whole_number("seed", seed, 0, MAX_SEED)
        self.shuffle, self.pool = shuffle, whole_number("pool", pool, 1, MAX_ITEMS)
        for name, value in (("blocks", blocks), ("weights", weights)):
            if value is not None and not shuffle:
                msg = f"{name} say how to shuffle; shuffle=False keeps the order of the items"
                raise UsageError(msg)
        if blocks is not None and weights is not None:
            msg = "blocks and weights exclude each other: a draw by weight has no neighbours"
            raise UsageError(msg)
        if samples is not None and weights is None:
            msg = (
                f"samples={samples!r} is for weights; without them an epoch has each of the "
                f"{n:,} items once"
            )
            raise UsageError(msg)
        self._starts = None if blocks is None else _starts(blocks, self.n)
        self._sums = None if weights is None else _sums(weights, self.n)
        self._length = (
            self.n if samples is None else whole_number("samples", samples, 1, MAX_ITEMS - 1)
        )
        # Epoch, its order of blocks, the end of each block
        self._last: tuple[int, Array, Array] | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def digest(self) -> str:
        """Digest of the parameters: equal orders have equal digests."""
        parameters: dict[str, Any] = {
            "n": self.n,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "samples": self._length,
        }
        for name, array in (("blocks", self._starts), ("weights", self._sums)):
            if array is not None:
                parameters[name] = digest_bytes(np.ascontiguousarray(array).tobytes())
        return digest_value(
            parameters if self._starts is None else parameters | {"pool": self.pool}
        )

    def items(self, epoch: int, positions: Array) -> Array:
        """Return the items at positions of an epoch.

        Shapes:
            positions: int64 (positions), each in [0, len)
            returns: int64 (positions)
        """
        epoch = whole_number("epoch", epoch)
        if self._sums is not None:
            return self._weighted_items(self._sums, epoch, positions)
        if not self.shuffle:
            return positions
        if self._starts is None:
            return permute(positions, self.n, (self.seed, epoch, _ITEMS, 0))
        return self._block_shuffled(self._starts, epoch, positions)

    def _weighted_items(self, sums: Array, epoch: int, positions: Array) -> Array:
        first_word, second_word = _random_words((self.seed, epoch, _DRAWS, 0), 2)
        uniform = (
            _mix_bits(_mix_bits(positions.astype(np.uint64), first_word), second_word) >> _U(11)
        ) * 2.0**-53
        # Rounding can lift a product to the whole sum, where there is no item
        drawn: Array = np.searchsorted(
            sums, np.minimum(uniform * sums[-1], np.nextafter(sums[-1], 0)), side="right"
        )
        return drawn

    def _block_shuffled(self, starts: Array, epoch: int, positions: Array) -> Array:
        cached = self._last  # read once: threads may share an order, each in its own epoch
        if cached is None or cached[0] != epoch:
            blocks = permute(np.arange(len(starts)), len(starts), (self.seed, epoch, _BLOCKS, 0))
            cached = self._last = (epoch, blocks, np.cumsum(np.diff(starts, append=self.n)[blocks]))
        _, blocks, ends = cached
        # Rotate the epoch: otherwise the items of a short last block would be more likely at its
        # end.
        rotation = int(permute(np.zeros(1, np.int64), self.n, (self.seed, epoch, _BLOCKS, 1))[0])
        positions = (positions + rotation) % self.n
        pool_ends = np.append(ends[self.pool - 1 : -1 : self.pool], self.n)
        pools = np.searchsorted(pool_ends, positions, side="right")
        places = np.empty_like(positions)
        for pool in np.unique(pools).tolist():
            members = np.flatnonzero(pools == pool)
            start = int(pool_ends[pool - 1]) if pool else 0
            size = int(pool_ends[pool]) - start
            places[members] = start + permute(
                positions[members] - start, size, (self.seed, epoch, _POOLS, pool)
            )
        slots = np.searchsorted(ends, places, side="right")
        before = np.where(slots > 0, ends[slots - 1], 0)
        items: Array = starts[blocks[slots]] + places - before
        return items


def _starts(blocks: Array | int, n: int) -> Array:
    if not isinstance(blocks, np.ndarray):
        return np.arange(0, n, whole_number("block", blocks, 1, MAX_ITEMS))
    if not len(blocks) or blocks[0] != 0 or blocks[-1] >= n or (np.diff(blocks) <= 0).any():
        msg = f"blocks: first items of blocks rise from 0 to below {n}"
        raise UsageError(msg)
    return blocks.astype(np.int64)


def _sums(weights: Any, n: int) -> Array:
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # RuntimeError: a tensor that requires a gradient
        msg = f"weights: {error}; one number per item is wanted"
        raise UsageError(msg) from error
    if array.shape != (n,):
        msg = f"weights of shape {array.shape}; one per item is wanted: ({n},)"
        raise UsageError(msg)
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        msg = (
            f"weights: {wrong.size} are negative or not finite, the first at item {wrong[0]}: "
            f"{array[wrong[0]]}"
        )
        raise UsageError(msg)
    largest = array.max()
    if largest == 0:
        msg = f"weights: all {n} are 0, so nothing can be drawn"
        raise UsageError(msg)
    sums: Array = np.cumsum(array / largest)
    return sums
