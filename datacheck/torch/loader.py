"""CachedLoader: batches without worker processes; threads gather them ahead of the loop."""

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

# np.unique imports numpy.ma on first use. A worker forked while a thread holds that import lock
# waits for it forever.
import numpy.ma  # noqa: F401
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
    """One pass over the batches.

    Args:
        begun: the sampler's token for the pass; None if the sampler has none, or the pass has not
            begun.
        tell: called for each batch that the loop receives.
        had: number of batches that the loop has received.
        closed: whether `close` was called.
    """

    begun: Any = None
    tell: Callable[[], None] = lambda: None
    had: int = 0
    closed: bool = False


class _BatchIterator:
    """The iterator of a pass; counts the batches that the loop receives."""

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
            if self._over():  # another thread is closing the generator
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
        """End the pass; the threads stop after the batches that they are making."""
        self._of.closed = True
        with suppress(ValueError):  # another thread is executing the generator
            self._batches.close()


class CachedLoader:
    """The batches of a dataset, in order, made by threads while the loop works.

    Args:
        dataset: a `CachedDataset`, or any map-style dataset that threads may share.
        batch_size, shuffle, seed, drop_last: options of a `Sampler`, which replace its own
            defaults; without drop_last the last batch is filled up.
        batch_sampler: replaces these: any iterable of lists of indices.
        collate_fn: makes a batch of samples, in the thread; as a DataLoader's.
        threads: how many gather at once; None: the number of processors, at most 4.
        ahead: batches made before the loop requests them, 1 or more; None: 2, and more if they are
            quick (see Notes). With a device, one more is being copied.
        device: target of the batches: "cuda" or "cuda:1"; None or "cpu" leaves them in main memory.

    Raises:
        UsageError: options exclude each other or are out of range; the device does not exist.

    Notes:
        A batch belongs to the caller while anything refers to one of its tensors; then its memory
        is reused. With a device, memory is pinned and the next batch is copied on a stream of its
        own while the loop computes. Each ``iter()`` begins a pass; ``break``, an exception, `close`
        and the garbage collector end its threads. A transform runs in several threads at once. An
        error in a batch is raised in its place, after the batches before it. Where a batch takes
        less time to make than to hand from thread to thread, and the order is a `Sampler`'s or a
        list, one thread makes up to 16 in advance while the loop uses as many; `ahead` turns this
        off.
    """

    # Trainer builds a DataLoader from these attributes to resume within an epoch.
    prefetch_factor = None

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
        options = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "drop_last": drop_last,
        }
        given_options = {name: value for name, value in options.items() if value is not None}
        if batch_sampler is not None and given_options:
            msg = f"batch_sampler says which samples make a batch: leave {', '.join(given_options)} out"
            raise UsageError(msg)
        self.dataset = dataset
        self.batch_sampler = (
            _sampler(dataset, given_options) if batch_sampler is None else batch_sampler
        )
        self.collate_fn: Collate = collate_fn or default_collate
        threads = min(4, usable_cpus()) if threads is None else threads
        self._threads = whole_number("threads", threads, 1, 1024)
        self._several = ahead is None
        self._ahead = whole_number("ahead", 2 if ahead is None else ahead, 1, 1024)
        self._device = _device(device)
        self._buffers = Buffers(spare=self._ahead + 2)
        self._pass = _LoaderPass(self._begun())
        # Not a WeakSet: its callback is Python code, and a Ctrl-C raised inside it is lost.
        self._passes: set[ref[_BatchIterator]] = set()

    def __len__(self) -> int:
        # TypeError where the sampler has no length, as in a DataLoader.
        length: int = len(self.batch_sampler)  # type: ignore[arg-type]
        return length

    @property
    def sampler(self) -> Any:
        """The batch sampler's indices one by one, or None; frameworks read it on any loader."""
        return getattr(self.batch_sampler, "sampler", None)

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass; batches come in the order of the sampler."""
        sampler = self.batch_sampler
        # Other samplers may react to the loop, so their batches are not taken far ahead.
        known_sampler = type(sampler) is Sampler or isinstance(sampler, list | tuple)
        several = self._several and known_sampler
        before = self._begun()
        indices = iter(sampler)
        loader_pass = _LoaderPass()
        # The sampler's `__iter__` is a generator: its pass begins with the first index.
        if before is not None and not known_sampler and self._begun() is before:
            indices = self._beginning(indices, loader_pass)
        else:
            self._begin(loader_pass)
        batches = prefetch_batches(
            self._maker(), indices, threads=self._threads, ahead=self._ahead, together=several
        )
        if self._device is not None:
            batches = _batches_on_device(batches, self._device)
        counted = _BatchIterator(batches, loader_pass)
        self._passes.add(ref(counted, self._passes.discard))
        return counted

    def _begin(self, loader_pass: _LoaderPass) -> None:
        """Make the pass that the sampler has begun the current one."""
        loader_pass.begun = self._begun()
        # Looked up by name: a wrapper may forward it to its Sampler.
        if callable(followed := getattr(self.batch_sampler, "followed", None)):
            loader_pass.tell = followed()
        self._pass = loader_pass

    def _beginning(self, indices: Iterator[Any], loader_pass: _LoaderPass) -> Iterator[Any]:
        """Yield the indices of a sampler whose pass begins when the first index is requested."""
        for number, batch_indices in enumerate(indices):
            if not number:
                self._begin(loader_pass)
            yield batch_indices

    def __enter__(self) -> CachedLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all passes and their threads; the loader can be iterated again.

        Notes:
            Another thread or a signal handler may call this. A pass that waits for a batch ends
            once the batch is made.
        """
        for reference in self._passes.copy():  # copied in one step: another thread may begin a pass
            if (batches := reference()) is not None:
                batches.close()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the sampler and of the dataset, where they have one."""
        for target in (self.batch_sampler, self.dataset):
            set_dataset_epoch(target, epoch)
        # Without a token of its passes, a sampler begins a new pass here.
        if self._pass.had and self._begun() is None:
            self._pass = _LoaderPass(None)

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state after the batches that the loop has received.

        Batches made ahead of the loop do not count.

        Raises:
            UsageError: the sampler has no state.
        """
        current_pass = self._pass
        # 0 if the sampler itself was given another epoch or state meanwhile.
        received = current_pass.had if self._begun() is current_pass.begun else 0
        state: dict[str, Any] = self._stateful("state_dict")(batches=received)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state with the next pass.

        Raises:
            UsageError: the sampler has no state, or rejects this one.
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
        method: Callable[..., Any] = call
        return method

    # --------------------------------------------------------------------------------------- a pass

    def _maker(self) -> Make:
        dataset, collate = self.dataset, self.collate_fn
        if type(dataset) is CachedDataset and not dataset.transforms:
            memory: Memory = self._buffers.empty if self._device is None else pinned
            dataset.open()  # once here, not in each thread
            return lambda batch_indices: collate(dataset.gather(batch_indices, memory))
        if callable(together := getattr(dataset, "__getitems__", None)):
            return lambda batch_indices: collate(together(batch_indices))
        return lambda batch_indices: collate([dataset[index] for index in batch_indices])


def _sampler(dataset: Any, options: dict[str, Any]) -> Sampler:
    return Sampler(dataset, **({"batch_size": 1, "shuffle": False} | options))


# -------------------------------------------------------------------------------------- to a device


def _device(device: str | torch.device | None) -> torch.device | None:
    try:
        requested = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        msg = f"device={device!r} is no device of PyTorch: 'cuda', 'cuda:1', or 'cpu'"
        raise UsageError(msg) from error
    if requested.type == "cpu":
        return None
    if requested.type != "cuda":
        msg = (
            f"device={device!r}: batches are copied to 'cuda' devices; 'cpu' leaves them in main "
            f"memory"
        )
        raise UsageError(msg)
    count = torch.cuda.device_count()
    if (requested.index or 0) >= count:
        msg = f"device={device!r}: PyTorch {torch.__version__} sees {count} CUDA devices here"
        raise UsageError(msg)
    return torch.device(
        "cuda", torch.cuda.current_device() if requested.index is None else requested.index
    )


def _batches_on_device(batches: Generator[Any], device: torch.device) -> Generator[Any]:
    """Yield batches on `device`; while one is in use, the next is being copied."""
    stream = torch.cuda.Stream(device)
    next_one: tuple[Any, torch.cuda.Event] | None = None
    try:
        for batch in batches:
            previous, next_one = next_one, _copy_to_device(batch, device, stream)
            if previous is not None:
                yield _wait_for_copy(*previous, device)
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
    """Make the current stream wait for the copy, and keep the memory until that stream is done."""
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)

    def used(tensor: torch.Tensor) -> torch.Tensor:
        tensor.record_stream(current)
        return tensor

    return _map_tensors(batch, used)


def _map_tensors(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a batch with `change` applied to each tensor in nested dicts, lists and tuples."""
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
    """An event without a lock: one process sets it, the others only read it.

    Args:
        context: the multiprocessing context of the processes.
    """

    def __init__(self, context: BaseContext) -> None:
        self._set = context.RawValue("b", 0)

    def set(self) -> None:
        """Set the event."""
        self._set.value = 1

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return bool(self._set.value)


def worker_context(start: str | None = None) -> Any:
    """Return a ``multiprocessing_context`` for `DataLoader` that survives a killed worker.

    Args:
        start: "fork", "spawn" or "forkserver"; None: the start method of `multiprocessing` here.

    Raises:
        UsageError: this start method is not available here.

    Notes:
        A worker polls a `multiprocessing.Event` to see whether it should end. A worker that is
        killed (out of memory) or gets a Ctrl-C while it polls never releases the event's lock; the
        DataLoader, about to report the dead worker, then waits forever. The event of this context
        has no lock, so the DataLoader raises. Batches and their order are unchanged, and so are
        the other waits of a DataLoader.
    """
    allowed = multiprocessing.get_all_start_methods()  # the first is the default
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
