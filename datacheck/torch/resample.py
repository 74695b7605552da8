"""Which sample, or which window of which episode, is served as item i: a pure function of (seed, epoch, i)."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import xxhash
from numpy.random import Generator, Philox  # now: of a thread that imports it, a worker forked meanwhile waits for ever

from datacheck.cache.windows import WindowIndex
from datacheck.errors import BudgetExceededError, InvalidSample, UsageError
from datacheck.torch.budget import Budget, Failure

Array = np.ndarray[Any, Any]
Policy = Literal["resample", "skip", "raise", "keep"]
Make: TypeAlias = Callable[[int, int, int], Any]

_TRIES = 64  # then the draw is made among the usable items directly, which costs a pass over them
_RANDOM = 1 << 32  # attempts beyond are those of random numbers
_SHOWN = 5
_PART = 1 << 20  # samples that are looked at at once
_NEVER = (MemoryError, NameError, ImportError, BudgetExceededError)
_KEY = struct.Struct("<QQQQ")
_MASK = 2**64 - 1


def draw(seed: int, epoch: int, item: int, attempt: int) -> int:
    """Return 64 random bits that belong to (seed, epoch, item, attempt)."""
    return xxhash.xxh3_64_intdigest(_KEY.pack(seed & _MASK, epoch & _MASK, item & _MASK, attempt & _MASK))


class Items:
    """The items of a dataset: samples, or windows of episodes.

    Shapes:
        usable: bool (samples)

    Args:
        usable: which samples may be served.
        policy: "resample" and "keep" put a usable item in the place of each other one, "skip" counts usable items
            only, "raise" leaves the refusal to the caller.
        seed: any integer.
        windows: the windows, made with ``skip`` for that policy; None where an item is a whole sample.

    Raises:
        UsageError: nothing can be served; the policy is unknown.

    Notes:
        A substitute depends on (seed, epoch, item) and the cache only: equal in every worker and on every rank.
        Its draw is uniform over the usable items.
    """

    def __init__(self, usable: Array, policy: Policy, seed: int, windows: WindowIndex | None = None) -> None:
        if policy not in get_args(Policy):
            msg = f"on_invalid={policy!r} is not one of {', '.join(get_args(Policy))}"
            raise UsageError(msg)
        self._usable, self._seed, self._windows = usable, seed, windows
        samples = int(np.count_nonzero(usable))
        if samples == 0:
            msg = f"none of the {len(usable):,} samples is valid. See what is wrong with them: datacheck scan"
            raise UsageError(msg)
        self._count = samples if windows is None else windows.usable
        if self._count == 0 and windows is not None:
            cut = windows.windows
            msg = (
                f"no window: none of the {samples:,} valid episodes has {cut.least} steps; the longest has "
                f"{windows.longest(usable)}. Pad short episodes (short='pad') or use shorter windows."
            )
            raise UsageError(msg)
        skips = policy == "skip" and samples < len(usable) and windows is None
        self._gaps = _gaps(usable) if skips else None
        whole = len(usable) if windows is None else len(windows)
        self._length = self._count if policy == "skip" else whole
        self._perfect = samples == len(usable)

    def __len__(self) -> int:
        return self._length

    def samples(self, items: Array) -> Array:
        """Return the sample (episode) of each item, int64 (items)."""
        if self._windows is not None:
            return self._windows.locate(items)[0]
        return items if self._gaps is None else items + np.searchsorted(self._gaps, items, side="right")

    def steps(self, items: Array) -> tuple[Array, Array]:
        """Return the step of each item, and how many its episode has, int64 (items) each."""
        if self._windows is None:
            msg = "items are whole samples"
            raise UsageError(msg)
        episodes, at = self._windows.locate(items)
        return at, self._windows.lengths(episodes)

    def unusable(self, items: Array) -> Array:
        """Return the positions in `items` whose sample must not be served."""
        if self._perfect:
            return items[:0]
        return np.flatnonzero(~self._usable[self.samples(items)])

    def substituted(self, items: Array, epochs: Array | int) -> Array:
        """Return the items that are served for `items` in an epoch, or each in its own one."""
        wrong = self.unusable(items)
        if wrong.size:
            of = np.broadcast_to(epochs, items.shape)[wrong].tolist()
            items = items.copy()
            items[wrong] = [next(self.candidates(*wanted)) for wanted in zip(items[wrong].tolist(), of, strict=True)]
        return items

    def candidates(self, item: int, epoch: int) -> Iterator[int]:
        """Yield what may be served for an item in an epoch, without end: itself where it is usable, then draws."""
        if not self.unusable(np.array([item])).size:
            yield item
        for attempt in range(_TRIES):
            candidate = draw(self._seed, epoch, item, attempt) % self._length
            if not self.unusable(np.array([candidate])).size:
                yield candidate
        usable = None if self._windows is not None or self._gaps is not None else np.flatnonzero(self._usable)
        for attempt in count(_TRIES):
            number = draw(self._seed, epoch, item, attempt) % self._count
            if usable is not None:
                yield int(usable[number])
            elif self._windows is not None:
                yield self._windows.nth_usable(number, self._usable)
            else:
                yield number  # skipped items have no number

    def random(self, item: int, epoch: int, attempt: int) -> Generator:
        """Return random numbers that belong to (seed, epoch, item, attempt)."""
        return Generator(Philox(key=draw(self._seed, epoch, item, _RANDOM + attempt)))


class Attempts:
    """What takes the place of a sample that fails while it is made: the next of its candidates.

    Args:
        items: the items, and the candidates of each.
        policy: "raise" passes the first failure on.
        catch: exceptions, beside `InvalidSample`, that say that a sample is bad.
        budget: how much may fail.

    Raises:
        UsageError: `catch` names an exception that is no sample's fault, or a class so wide that it holds one.

    Notes:
        What is served depends on (seed, epoch, item) and on what fails: where that depends on the sample (and on the
        random numbers that belong to it) alone, it is equal in every worker and on every rank, and the number of
        samples is always what was asked for.
    """

    def __init__(self, items: Items, policy: Policy, catch: Sequence[type[Exception]], budget: Budget) -> None:
        self.items, self._policy, self._budget = items, policy, budget
        self.catch = checked_catch(catch)

    def served(self, epochs: Array, asked: Array, first: Array, make: Make, name: Callable[[int], str]) -> list[Any]:
        """Return one sample for each item.

        Shapes:
            epochs, asked, first: int64 (items); `first` are the items to try first

        Args:
            epochs: of each item.
            asked: the items.
            first: their first candidates.
            make: called with the place of an item, the candidate and the number of the attempt, from 0.
            name: what an item is called in messages.

        Raises:
            BudgetExceededError: too much failed.
        """
        samples, before = [], 0
        for place, (epoch, item, candidate) in enumerate(
            zip(epochs.tolist(), asked.tolist(), first.tolist(), strict=True)
        ):
            try:
                samples.append(make(place, candidate, 0))
                before += 1
            except self.catch as error:
                if self._policy == "raise":
                    raise
                self._fail(Failure(epoch, item, candidate, _reason(error)), before, name)
                before = 0
                samples.append(self._next(epoch, item, lambda *which, place=place: make(place, *which), name))
        self._budget.serve(int(epochs.max(initial=0)), before)
        return samples

    def _next(self, epoch: int, item: int, make: Callable[[int, int], Any], name: Callable[[int], str]) -> Any:
        tried: set[int] = set()
        for attempt, candidate in enumerate(islice(self.items.candidates(item, epoch), self._budget.run)):
            again = candidate in tried or attempt == 0  # the first one has failed
            tried.add(candidate)
            if again:
                continue
            try:
                sample = make(candidate, attempt)
            except self.catch as error:
                self._fail(Failure(epoch, item, candidate, _reason(error)), 0, name)
            else:
                self._budget.serve(epoch, 1)
                return sample
        msg = f"{name(item)}: none of {len(tried)} candidates can be served in its place. {self._listed(name)}"
        raise BudgetExceededError(msg)

    def _fail(self, failure: Failure, before: int, name: Callable[[int], str]) -> None:
        why = self._budget.fail(failure, before, len(self.items))
        if why is not None:
            msg = f"{why}. {self._listed(name)}"
            raise BudgetExceededError(msg)

    def _listed(self, name: Callable[[int], str]) -> str:
        by_reason: dict[str, list[int]] = {}
        for failure in self._budget.failures:
            by_reason.setdefault(failure.reason, []).append(failure.tried)
        parts = []
        for reason, tried in by_reason.items():
            found = list(dict.fromkeys(tried))
            more = f", … {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            parts.append(f"{reason} ({len(tried)}): {', '.join(map(name, found[:_SHOWN]))}{more}")
        return "; ".join(parts)


def _gaps(usable: Array) -> Array:
    """Return how many usable samples lie before each other one, int64 (unusable): these are few, those are many."""
    parts = [first + np.flatnonzero(~usable[first : first + _PART]) for first in range(0, len(usable), _PART)]
    left_out = np.concatenate(parts)
    gaps: Array = left_out - np.arange(len(left_out))
    return gaps


def checked_catch(catch: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that say that a sample is bad.

    Raises:
        UsageError: one is no sample's fault, or so wide that it holds one.
    """
    if not isinstance(catch, Iterable):
        msg = f"catch={catch!r}; a list of classes of exceptions is wanted: catch=[{getattr(catch, '__name__', catch)}]"
        raise UsageError(msg)
    for kind in catch:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            msg = f"catch: {kind!r} is no class of exceptions"
            raise UsageError(msg)
        held = [never.__name__ for never in _NEVER if issubclass(never, kind) or issubclass(kind, never)]
        if held:
            msg = f"catch: {kind.__name__} would hide {', '.join(held)}; name the exceptions that a bad sample raises"
            raise UsageError(msg)
    return (InvalidSample, *catch)


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())
    if type(error) is InvalidSample:
        return said or "invalid"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def takes_random(transform: Callable[..., Any]) -> bool:
    """Return whether a transform has a parameter `rng`."""
    try:
        return "rng" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # a built-in that says nothing of its parameters
        return False
