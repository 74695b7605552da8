"""CachedLoader: batches without worker processes, gathered by threads ahead of the loop."""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any
from weakref import ref

import numpy.ma  # noqa: F401  np.unique loads it late; of a thread that does, a worker forked meanwhile waits for ever
import torch
from torch.utils.data import default_collate

from datacheck.errors import UsageError
from datacheck.runtime.machine import usable_cpus
from datacheck.torch.dataset import CachedDataset
from datacheck.torch.order import whole_number
from datacheck.torch.prefetch import Buffers, Make, Memory, pinned, prefetch_batches
from datacheck.torch.sampler import Sampler, set_dataset_epoch

Collate = Callable[[Any], Any]


@dataclass(eq=False)
class _LoaderPass:
    """One way through the batches.

    Args:
        begun: what stands for it at the sampler; None where that does not tell, or it has not begun
            yet.
        tell: called for each batch that the loop has.
        had: batches that the loop has had.
        closed: whether `close` was called.
    """

    begun: Any = None
    tell: Callable[[], None] = lambda: None
    had: int = 0
    closed: bool = False


class _BatchIterator:
    """The iterator of a pass; it counts what the loop has had."""

    def __init__(self, batches: Generator[Any], of: _LoaderPass) -> None:
        self._batches, self._of = batches, of

    def __iter__(self) -> _BatchIterator:
        return self

    def __next__(self) -> Any:
        if self._over():
            raise StopIteration
        try:
            batch = next(self._batches)
        except ValueError:
            if self._over():  # another thread is just closing it
                raise StopIteration from None
            raise
        if self._over():
            raise StopIteration
        self._of.tell()
        self._of.had += 1
        return batch

    def _over(self) -> bool:
        if self._of.closed:
            self.close()
        return self._of.closed

    def close(self) -> None:
        """End the pass; the threads end when what they are making is made."""
        self._of.closed = True
        with suppress(ValueError):  # it is being executed
            self._batches.close()


class CachedLoader:
    """The batches of a dataset, in order, made by threads while the loop works.

    Args:
        dataset: a `CachedDataset`, or any map-style dataset that threads may ask.
        batch_size, shuffle, seed, drop_last: of a `Sampler`; the last batch is full or left out.
        batch_sampler: instead of these: any iterable of lists of indices.
        collate_fn: makes a batch of samples, in the thread; as a DataLoader's.
        threads: how many gather at once; None: as many as processors, 4 at most.
        ahead: batches that are made before they are asked for, 1 or more; None: 2, and of quick
            ones more (see Notes). With a device one more is being copied.
        device: where batches go: "cuda" or "cuda:1"; None or "cpu": they stay in main memory.

    Raises:
        UsageError: options exclude each other or are out of range; the device is not there.

    Notes:
        A batch is the caller's for as long as anything refers to a tensor of it; then its memory is
        used for another. With a device, memory is pinned and the next batch is copied on a stream
        of its own while the loop computes. Each ``iter()`` begins a pass; ``break``, an exception,
        `close` and the collector end its threads. A transform runs in several threads at once. An
        error of a batch is raised in its place, after the batches before it. Where batches are made
        sooner than handed from thread to thread, and their order is a `Sampler`'s or a list, one
        thread makes up to 16 while the loop has as many; not so where `ahead` says how many.
    """

    prefetch_factor = None  # Trainer makes a DataLoader of the attributes, to go on within an epoch

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        *,
        shuffle: bool | None = None,
        seed: int | None = None,
        drop_last: bool | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        collate_fn: Collate | None = None,
        threads: int | None = None,
        ahead: int | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        said = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        given = {name: value for name, value in said.items() if value is not None}
        if batch_sampler is not None and given:
            msg = f"batch_sampler says which samples make a batch: leave {', '.join(given)} out"
            raise UsageError(msg)
        self.dataset = dataset
        self.batch_sampler = _sampler(dataset, given) if batch_sampler is None else batch_sampler
        self.collate_fn: Collate = collate_fn or default_collate
        threads = min(4, usable_cpus()) if threads is None else threads
        self._threads = whole_number("threads", threads, 1, 1024)
        self._several = ahead is None
        self._ahead = whole_number("ahead", 2 if ahead is None else ahead, 1, 1024)
        self._device = _device(device)
        self._buffers = Buffers(spare=self._ahead + 2)
        self._pass = _LoaderPass(self._begun())
        self._passes: set[ref[_BatchIterator]] = (
            set()
        )  # no WeakSet: a Ctrl-C that comes while it forgets is lost

    def __len__(self) -> int:
        length: int = len(self.batch_sampler)  # type: ignore[arg-type]  # TypeError where it has none, as a DataLoader's
        return length

    @property
    def sampler(self) -> Any:
        """The batch sampler's indices one by one, where it has them; frameworks ask for it, as of a DataLoader."""
        return getattr(self.batch_sampler, "sampler", None)

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass; batches come in the order of the sampler."""
        sampler = self.batch_sampler
        known = type(sampler) is Sampler or isinstance(
            sampler, list | tuple
        )  # others may follow the loop
        several = self._several and known
        before, indices, of = self._begun(), iter(sampler), _LoaderPass()
        if (
            before is not None and not known and self._begun() is before
        ):  # its `__iter__` is a generator
            indices = self._beginning(indices, of)
        else:
            self._begin(of)
        batches = prefetch_batches(
            self._maker(), indices, threads=self._threads, ahead=self._ahead, together=several
        )
        if self._device is not None:
            batches = _batches_on_device(batches, self._device)
        counted = _BatchIterator(batches, of)
        self._passes.add(ref(counted, self._passes.discard))
        return counted

    def _begin(self, of: _LoaderPass) -> None:
        """Take the pass that the sampler has begun for the running one."""
        of.begun = self._begun()
        if callable(
            followed := getattr(self.batch_sampler, "followed", None)
        ):  # also what hands on to a Sampler
            of.tell = followed()
        self._pass = of

    def _beginning(self, indices: Iterator[Any], of: _LoaderPass) -> Iterator[Any]:
        """Yield indices of a pass that the sampler begins when it is asked for the first of them."""
        for number, asked in enumerate(indices):
            if not number:
                self._begin(of)
            yield asked

    def __enter__(self) -> CachedLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all passes and their threads; the loader can be iterated again.

        Notes:
            May be called by another thread or the handler of a signal: a pass that waits for a
            batch ends when that is made.
        """
        for one in self._passes.copy():  # in one step: another thread may begin a pass
            if (batches := one()) is not None:
                batches.close()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler and of the dataset, where they have one."""
        for one in (self.batch_sampler, self.dataset):
            set_dataset_epoch(one, epoch)
        if (
            self._pass.had and self._begun() is None
        ):  # what says nothing of its passes begins one here
            self._pass = _LoaderPass(None)

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state after the batches that the loop has had; what was made ahead does not count.

        Raises:
            UsageError: the sampler has no state.
        """
        now = self._pass
        had = (
            now.had if self._begun() is now.begun else 0
        )  # the sampler itself was told of another epoch or state
        state: dict[str, Any] = self._stateful("state_dict")(batches=had)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says, with the next pass.

        Raises:
            UsageError: the sampler has no state, or it refuses this one.
        """
        self._stateful("load_state_dict")(state)
        self._pass = _LoaderPass(self._begun())

    def _begun(self) -> Any:
        return getattr(self.batch_sampler, "begun", None)

    def _stateful(self, name: str) -> Callable[..., Any]:
        call = getattr(self.batch_sampler, name, None)
        if not callable(call):
            msg = (
                f"{type(self.batch_sampler).__name__} has no {name}; a Sampler of "
                f"datacheck.torch has"
            )
            raise UsageError(msg)
        found: Callable[..., Any] = call
        return found

    # --------------------------------------------------------------------------------------- a pass

    def _maker(self) -> Make:
        dataset, collate = self.dataset, self.collate_fn
        if type(dataset) is CachedDataset and not dataset.transforms:
            memory: Memory = self._buffers.empty if self._device is None else pinned
            dataset.open()  # once, and not by each thread
            return lambda asked: collate(dataset.gather(asked, memory))
        if callable(together := getattr(dataset, "__getitems__", None)):
            return lambda asked: collate(together(asked))
        return lambda asked: collate([dataset[index] for index in asked])


def _sampler(dataset: Any, given: dict[str, Any]) -> Sampler:
    return Sampler(dataset, **({"batch_size": 1, "shuffle": False} | given))


# -------------------------------------------------------------------------------------- to a device


def _device(device: str | torch.device | None) -> torch.device | None:
    try:
        asked = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        msg = f"device={device!r} is no device of PyTorch: 'cuda', 'cuda:1', or 'cpu'"
        raise UsageError(msg) from error
    if asked.type == "cpu":
        return None
    if asked.type != "cuda":
        msg = (
            f"device={device!r}: batches are copied to 'cuda' devices; 'cpu' leaves them in main "
            f"memory"
        )
        raise UsageError(msg)
    count = torch.cuda.device_count()
    if (asked.index or 0) >= count:
        msg = f"device={device!r}: PyTorch {torch.__version__} sees {count} CUDA devices here"
        raise UsageError(msg)
    return torch.device("cuda", torch.cuda.current_device() if asked.index is None else asked.index)


def _batches_on_device(batches: Generator[Any], device: torch.device) -> Generator[Any]:
    """Yield batches on `device`; the next is being copied when one is yielded."""
    stream = torch.cuda.Stream(device)
    next_one: tuple[Any, torch.cuda.Event] | None = None
    try:
        for batch in batches:
            last, next_one = next_one, _copy_to_device(batch, device, stream)
            if last is not None:
                yield _wait_for_copy(*last, device)
        if next_one is not None:
            yield _wait_for_copy(*next_one, device)
    finally:
        batches.close()


def _copy_to_device(
    batch: Any, device: torch.device, stream: torch.cuda.Stream
) -> tuple[Any, torch.cuda.Event]:
    def move(tensor: torch.Tensor) -> torch.Tensor:
        source = tensor if tensor.is_pinned() else tensor.pin_memory()
        return source.to(device, non_blocking=True)

    with torch.cuda.stream(stream):
        return _map_tensors(batch, move), stream.record_event()


def _wait_for_copy(batch: Any, copied: torch.cuda.Event, device: torch.device) -> Any:
    """Let the loop's stream wait for the copy, and its memory for the loop's stream."""
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)

    def used(tensor: torch.Tensor) -> torch.Tensor:
        tensor.record_stream(current)
        return tensor

    return _map_tensors(batch, used)


def _map_tensors(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a batch with each tensor changed, in dicts, lists and tuples at any depth."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: _map_tensors(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_map_tensors(value, change) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_map_tensors(value, change) for value in batch)
    return batch


class _LockFreeEvent:
    """An event without a lock: one process sets it, the others only look.

    Args:
        context: how the processes are started.
    """

    def __init__(self, context: BaseContext) -> None:
        self._set = context.RawValue("b", 0)

    def set(self) -> None:
        """Say so."""
        self._set.value = 1

    def is_set(self) -> bool:
        """Return whether it was said."""
        return bool(self._set.value)


def worker_context(start: str | None = None) -> Any:
    """Return what `DataLoader` takes as `multiprocessing_context`, so that it waits for no lock of a worker that ended.

    Args:
        start: "fork", "spawn" or "forkserver"; None: as `multiprocessing` starts processes here.

    Raises:
        UsageError: processes are not started in this way here.

    Notes:
        A worker asks again and again whether it should end, by a `multiprocessing.Event`. Its lock
        is never released by a worker that is killed (out of memory) or gets a Ctrl-C while it asks;
        the DataLoader, which wants to tell that the worker has died, then waits for ever. This
        event has no lock, and the DataLoader raises. Batches and their order are the same. Other
        waits of a DataLoader stay as they are.
    """
    allowed = multiprocessing.get_all_start_methods()  # of which the first is the default
    method = (
        (multiprocessing.get_start_method(allow_none=True) or allowed[0])
        if start is None
        else start
    )
    if method not in allowed:
        msg = f"start={start!r} is no way to start processes here: {', '.join(allowed)}"
        raise UsageError(msg)
    context: Any = copy.copy(multiprocessing.get_context(method))
    context.Event = partial(_LockFreeEvent, context)
    return context
