"""Replaces samples that are invalid or fail, and stops a run in which too many of them fail.

`Budget` counts failures over all processes of a loader. `Items` draws the substitutes of samples
known to be invalid. `Attempts` tries further candidates where a sample fails while it is made.
"""

from __future__ import annotations

import fcntl
import inspect
import math
import mmap
import os
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import xxhash

# Imported here, not in the thread that first uses it: a worker forked while a thread holds the
# import lock waits for it forever.
from numpy.random import Generator, Philox

from datacheck.cache.windows import WindowIndex
from datacheck.errors import BudgetExceededError, InvalidSample, UsageError
from datacheck.torch.order import MAX_ITEMS, whole_number

INVALID = (
    "known to be invalid"  # the reason counted for samples that were invalid before they were read
)

_MOST_REASONS = 32
_MOST_FAILURES = 1000
_REASON_CHARS = 120
_COUNTERS = np.dtype(
    [
        ("epoch", "<i8"),
        ("served", "<i8"),  # in this epoch
        ("failed", "<i8"),  # in this epoch
        ("run", "<i8"),  # failures since a sample was last served
        ("counts", "<i8", _MOST_REASONS),
        ("reasons", f"S{_REASON_CHARS}", _MOST_REASONS),
        ("listed", "<i8", (_MOST_FAILURES, 4)),  # epoch, item, candidate, reason
    ]
)
_JUDGED_FROM = 10_000  # samples; a share of fewer (unless a whole epoch has fewer) says little


class SampleFailure(NamedTuple):
    """One failure: item `tried` failed, either as a substitute for `item` or as `item` itself."""

    epoch: int
    item: int
    tried: int
    reason: str


class Budget:
    """How much may fail at run time before the run stops, and a count of the failures.

    Args:
        share: allowed share of failures in an epoch, 0 to 1, measured over at least 10,000 samples,
            or over a whole epoch if that is shorter.
        run: failures in a row that stop the run, and candidates tried for one item, 1 or more.

    Raises:
        UsageError: a value is out of range.

    Notes:
        Counts cover this process and its workers, forked or spawned, in shared memory. Each rank
        has its own budget and stops alone; with several ranks, `guard` stops them together. A
        killed worker leaves no lock behind. A pickled budget starts from zero, except in a new
        worker.
    """

    def __init__(self, share: float = 0.01, run: int = 100) -> None:
        self.run = whole_number("budget: run", run, 1, MAX_ITEMS)
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            msg = f"budget: share={share!r}; a share of the samples is a number from 0 to 1"
            raise UsageError(msg)
        self.share = share
        self._share_memory(_zeroed_file())

    def _share_memory(self, file: int) -> None:
        self._file = file
        weakref.finalize(self, os.close, file)
        self._now: Any = np.frombuffer(mmap.mmap(file, _COUNTERS.itemsize), _COUNTERS)
        self._lock = os.getpid(), threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        file = DupFd(self._file) if get_spawning_popen() is not None else None
        return {"share": self.share, "run": self.run, "file": file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.share, self.run, file = state["share"], state["run"], state["file"]
        self._share_memory(_zeroed_file() if file is None else file.detach())

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        # In a forked child, another thread of the parent may have held the lock at the fork.
        if self._lock[0] != os.getpid():
            self._lock = os.getpid(), threading.Lock()
        with self._lock[1]:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield self._now
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    # ------------------------------------------------------------------------------------- counting

    def serve(self, epoch: int, count: int) -> None:
        """Count samples that were served."""
        if count:
            with self._locked() as counters:
                _served(counters, epoch, count)

    def replace(self, count: int) -> None:
        """Count substitutes for samples that are known to be invalid; they are not failures."""
        if count:
            with self._locked() as counters:
                counters["counts"][0, _reason_slot(counters, INVALID)] += count

    def fail(self, failure: SampleFailure, before: int, items: int) -> str | None:
        """Count a failure.

        Args:
            failure: the failure.
            before: samples served since the last count.
            items: number of items of the dataset.

        Returns:
            Why the run must stop; None if it may go on.
        """
        with self._locked() as counters:
            _served(counters, failure.epoch, before)
            slot = _reason_slot(counters, failure.reason)
            place = int(counters["failed"][0])
            if place < _MOST_FAILURES:
                counters["listed"][0, place] = failure.epoch, failure.item, failure.tried, slot
            counters["counts"][0, slot] += 1
            counters["failed"] += 1
            counters["run"] += 1
            return self._exceeded(counters, items)

    def _exceeded(self, counters: Any, items: int) -> str | None:
        failed, served, run = (int(counters[name][0]) for name in ("failed", "served", "run"))
        if run >= self.run:
            return f"{run} samples failed in a row; allowed are fewer than {self.run}"
        if failed > math.ceil(self.share * max(served + failed, min(items, _JUDGED_FROM))):
            epoch = int(counters["epoch"][0])
            return (
                f"{failed} of {served + failed:,} samples failed in epoch {epoch}; allowed are "
                f"{self.share:.3g} of them"
            )
        return None

    # --------------------------------------------------------------------------------------- counts

    @property
    def served(self) -> int:
        """Samples that passed a transform in the newest epoch."""
        return int(self._now["served"][0])

    @property
    def failed(self) -> int:
        """Failures of the newest epoch."""
        return int(self._now["failed"][0])

    @property
    def reasons(self) -> dict[str, int]:
        """How often samples were replaced, by reason, over all epochs.

        At most 31 reasons are kept apart; the others share one entry.
        """
        with self._locked() as counters:
            texts = counters["reasons"][0].tolist()
            counts = counters["counts"][0].tolist()
        return {
            text.decode("utf-8", "replace"): count
            for text, count in zip(texts, counts, strict=True)
            if count
        }

    @property
    def failures(self) -> list[SampleFailure]:
        """The first 1,000 failures of the newest epoch, in order of occurrence."""
        with self._locked() as counters:
            listed = counters["listed"][
                0, : min(int(counters["failed"][0]), _MOST_FAILURES)
            ].tolist()
            texts = [text.decode("utf-8", "replace") for text in counters["reasons"][0].tolist()]
        return [
            SampleFailure(epoch, item, tried, texts[slot]) for epoch, item, tried, slot in listed
        ]


def budget_of(given: Any) -> Budget:
    """Return `given`, or a new `Budget` where it is None.

    Raises:
        UsageError: `given` is not a `Budget`.
    """
    if given is not None and not isinstance(given, Budget):
        msg = f"budget={given!r}; Budget(share=..., run=...) is wanted"
        raise UsageError(msg)
    return given or Budget()


def _zeroed_file() -> int:
    """Return an anonymous file of zeros; a lock on it ends with the process that holds it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("datacheck-budget")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.truncate(file, _COUNTERS.itemsize)
    return file


def _served(counters: Any, epoch: int, count: int) -> None:
    if epoch > counters["epoch"][0]:
        counters["epoch"], counters["served"], counters["failed"] = epoch, 0, 0
    if count:
        counters["served"] += count
        counters["run"] = 0


def _reason_slot(counters: Any, reason: str) -> int:
    """Return the slot that counts a reason; the last slot counts all reasons that have none."""
    text = (
        reason.encode("utf-8", "replace")[:_REASON_CHARS]
        .decode("utf-8", "ignore")
        .strip("\0 \n")
        .encode()
        or b"no reason"
    )
    texts = counters["reasons"][0]
    for slot in range(_MOST_REASONS - 1):
        if texts[slot] in (text, b""):
            texts[slot] = text
            return slot
    texts[-1] = b"other reasons"
    return _MOST_REASONS - 1


Array = np.ndarray[Any, Any]
Policy = Literal["resample", "skip", "raise", "keep"]
Make: TypeAlias = Callable[[int, int, int], Any]

_TRIES = 64  # after these, draw from the usable items directly: costs a pass over all items
_RANDOM = 1 << 32  # attempt numbers from here on seed the random numbers of `Items.random`
_SHOWN = 5
_PART = 1 << 20  # samples per block, to bound memory
_NEVER_CAUGHT = (MemoryError, NameError, ImportError, BudgetExceededError)
_KEY = struct.Struct("<QQQQ")
_MASK = 2**64 - 1


def draw(seed: int, epoch: int, item: int, attempt: int) -> int:
    """Return 64 random bits as a function of (seed, epoch, item, attempt)."""
    return xxhash.xxh3_64_intdigest(
        _KEY.pack(seed & _MASK, epoch & _MASK, item & _MASK, attempt & _MASK)
    )


class Items:
    """The items of a dataset: samples, or windows of episodes.

    Shapes:
        usable: bool (samples)

    Args:
        usable: which samples may be served.
        policy: "resample" and "keep" serve a usable item in place of each unusable one, "skip"
            counts usable items only, "raise" leaves the refusal to the caller.
        seed: any integer.
        windows: the windows, made with ``skip`` for that policy; None where an item is a whole
            sample.

    Raises:
        UsageError: nothing can be served; the policy is unknown.

    Notes:
        A substitute depends only on (seed, epoch, item) and the cache: equal in every worker and on
        every rank. It is drawn uniformly from the usable items.
    """

    def __init__(
        self, usable: Array, policy: Policy, seed: int, windows: WindowIndex | None = None
    ) -> None:
        if policy not in get_args(Policy):
            msg = f"on_invalid={policy!r} is not one of {', '.join(get_args(Policy))}"
            raise UsageError(msg)
        self._usable, self._seed, self._windows = usable, seed, windows
        samples = int(np.count_nonzero(usable))
        if samples == 0:
            msg = (
                f"none of the {len(usable):,} samples is valid. See what is wrong with them: "
                f"datacheck scan"
            )
            raise UsageError(msg)
        self._count = samples if windows is None else windows.usable
        if self._count == 0 and windows is not None:
            cut = windows.windows
            msg = (
                f"no window: none of the {samples:,} valid episodes has {cut.least} steps; the "
                f"longest has "
                f"{windows.longest(usable)}. Pad short episodes (short='pad') or use shorter "
                f"windows."
            )
            raise UsageError(msg)
        skips = policy == "skip" and samples < len(usable) and windows is None
        self._gaps = _gaps(usable) if skips else None
        full_length = len(usable) if windows is None else len(windows)
        self._length = self._count if policy == "skip" else full_length
        self._perfect = samples == len(usable)

    def __len__(self) -> int:
        return self._length

    def samples(self, items: Array) -> Array:
        """Return the sample (episode) of each item, int64 (items)."""
        if self._windows is not None:
            return self._windows.locate(items)[0]
        return (
            items
            if self._gaps is None
            else items + np.searchsorted(self._gaps, items, side="right")
        )

    def steps(self, items: Array) -> tuple[Array, Array]:
        """Return the step of each item and the length of its episode, int64 (items) each."""
        if self._windows is None:
            msg = "items are whole samples"
            raise UsageError(msg)
        episodes, step_numbers = self._windows.locate(items)
        return step_numbers, self._windows.lengths(episodes)

    def unusable(self, items: Array) -> Array:
        """Return the positions in `items` whose sample must not be served."""
        if self._perfect:
            return items[:0]
        return np.flatnonzero(~self._usable[self.samples(items)])

    def substituted(self, items: Array, epochs: Array | int) -> Array:
        """Return the items served in place of `items`, in one epoch or in one epoch per item."""
        unusable_positions = self.unusable(items)
        if unusable_positions.size:
            item_epochs = np.broadcast_to(epochs, items.shape)[unusable_positions].tolist()
            items = items.copy()
            items[unusable_positions] = [
                next(self.candidates(*item_epoch))
                for item_epoch in zip(items[unusable_positions].tolist(), item_epochs, strict=True)
            ]
        return items

    def candidates(self, item: int, epoch: int) -> Iterator[int]:
        """Yield candidates for an item in an epoch, endlessly: the item if usable, then draws."""
        if not self.unusable(np.array([item])).size:
            yield item
        for attempt in range(_TRIES):
            candidate = draw(self._seed, epoch, item, attempt) % self._length
            if not self.unusable(np.array([candidate])).size:
                yield candidate
        usable = (
            None
            if self._windows is not None or self._gaps is not None
            else np.flatnonzero(self._usable)
        )
        for attempt in count(_TRIES):
            number = draw(self._seed, epoch, item, attempt) % self._count
            if usable is not None:
                yield int(usable[number])
            elif self._windows is not None:
                yield self._windows.nth_usable(number, self._usable)
            else:
                yield number  # skipped items have no number, so every number is usable

    def random(self, item: int, epoch: int, attempt: int) -> Generator:
        """Return a random generator seeded with (seed, epoch, item, attempt)."""
        return Generator(Philox(key=draw(self._seed, epoch, item, _RANDOM + attempt)))


class Attempts:
    """Replaces a sample that fails while it is made by the next of its candidates.

    Args:
        items: the items, and the candidates of each.
        policy: "raise" passes the first failure on.
        catch: exceptions, besides `InvalidSample`, that mark a sample as bad.
        budget: how much may fail.

    Raises:
        UsageError: `catch` names an exception that no sample causes, or a class so wide that it
            includes one.

    Notes:
        The result depends on (seed, epoch, item) and on which samples fail. If failing depends on
        the sample (and its own random numbers) alone, the result is equal in every worker and on
        every rank. The number of samples is always the number requested.
    """

    def __init__(
        self, items: Items, policy: Policy, catch: Sequence[type[Exception]], budget: Budget
    ) -> None:
        self.items, self._policy, self._budget = items, policy, budget
        self.catch = check_catch(catch)

    def served(
        self, epochs: Array, asked: Array, first: Array, make: Make, name: Callable[[int], str]
    ) -> list[Any]:
        """Return one sample for each item.

        Shapes:
            epochs, asked, first: int64 (items)

        Args:
            epochs: the epoch of each item.
            asked: the items.
            first: the first candidate of each item.
            make: called with the position of an item, the candidate and the number of the attempt,
                from 0.
            name: returns the name of an item for messages.

        Raises:
            BudgetExceededError: too many samples failed.
        """
        samples = []
        before = 0
        for place, (epoch, item, candidate) in enumerate(
            zip(epochs.tolist(), asked.tolist(), first.tolist(), strict=True)
        ):
            try:
                samples.append(make(place, candidate, 0))
                before += 1
            except self.catch as error:
                if self._policy == "raise":
                    raise
                self._fail(SampleFailure(epoch, item, candidate, _reason(error)), before, name)
                before = 0
                samples.append(
                    self._next(
                        epoch,
                        item,
                        lambda *attempt_arguments, place=place: make(place, *attempt_arguments),
                        name,
                    )
                )
        self._budget.serve(int(epochs.max(initial=0)), before)
        return samples

    def _next(
        self, epoch: int, item: int, make: Callable[[int, int], Any], name: Callable[[int], str]
    ) -> Any:
        tried: set[int] = set()
        for attempt, candidate in enumerate(
            islice(self.items.candidates(item, epoch), self._budget.run)
        ):
            # Attempt 0 repeats the candidate that `served` tried
            already_tried = candidate in tried or attempt == 0
            tried.add(candidate)
            if already_tried:
                continue
            try:
                sample = make(candidate, attempt)
            except self.catch as error:
                self._fail(SampleFailure(epoch, item, candidate, _reason(error)), 0, name)
            else:
                self._budget.serve(epoch, 1)
                return sample
        msg = (
            f"{name(item)}: none of {len(tried)} candidates can be served in its place. "
            f"{self._listed(name)}"
        )
        raise BudgetExceededError(msg)

    def _fail(self, failure: SampleFailure, before: int, name: Callable[[int], str]) -> None:
        reason = self._budget.fail(failure, before, len(self.items))
        if reason is not None:
            msg = f"{reason}. {self._listed(name)}"
            raise BudgetExceededError(msg)

    def _listed(self, name: Callable[[int], str]) -> str:
        by_reason: dict[str, list[int]] = {}
        for failure in self._budget.failures:
            by_reason.setdefault(failure.reason, []).append(failure.tried)
        parts = []
        for reason, tried in by_reason.items():
            distinct = list(dict.fromkeys(tried))
            more_text = f", … {len(distinct) - _SHOWN} more" if len(distinct) > _SHOWN else ""
            parts.append(
                f"{reason} ({len(tried)}): {', '.join(map(name, distinct[:_SHOWN]))}{more_text}"
            )
        return "; ".join(parts)


def _gaps(usable: Array) -> Array:
    """Return how many usable samples come before each unusable one, int64 (unusable).

    Few samples are unusable, so this is shorter than a list of the usable ones.
    """
    parts = [
        offset + np.flatnonzero(~usable[offset : offset + _PART])
        for offset in range(0, len(usable), _PART)
    ]
    left_out = np.concatenate(parts)
    gaps: Array = left_out - np.arange(len(left_out))
    return gaps


def check_catch(catch: Any) -> tuple[type[Exception], ...]:
    """Return `catch` as a tuple of exception classes, with `InvalidSample` first.

    Raises:
        UsageError: an exception is one that no sample causes, or a class so wide that it includes
            one.
    """
    if not isinstance(catch, Iterable):
        msg = (
            f"catch={catch!r}; a list of classes of exceptions is wanted: "
            f"catch=[{getattr(catch, '__name__', catch)}]"
        )
        raise UsageError(msg)
    for kind in catch:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            msg = f"catch: {kind!r} is no class of exceptions"
            raise UsageError(msg)
        hidden = [
            never.__name__
            for never in _NEVER_CAUGHT
            if issubclass(never, kind) or issubclass(kind, never)
        ]
        if hidden:
            msg = (
                f"catch: {kind.__name__} would hide {', '.join(hidden)}; name the exceptions that "
                f"a bad sample raises"
            )
            raise UsageError(msg)
    return (InvalidSample, *catch)


def _reason(error: Exception) -> str:
    message = " ".join(str(error).split())
    if type(error) is InvalidSample:
        return message or "invalid"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def takes_random(transform: Callable[..., Any]) -> bool:
    """Return whether a transform has a parameter `rng`."""
    try:
        return "rng" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return False
