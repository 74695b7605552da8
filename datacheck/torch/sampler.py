"""Sampler: batches of indices for one rank, with shared epochs and a state to resume from.

It also detects the rank, and refuses to let Accelerate shard batches that are already sharded.
"""

from __future__ import annotations

import inspect
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any, Literal

import numpy as np
import torch
from torch import distributed
from torch.utils.data import ConcatDataset, Subset
from torch.utils.data import Sampler as TorchSampler
from torch.utils.data.distributed import DistributedSampler

from datacheck.errors import UsageError
from datacheck.torch.order import Array, Order, fingerprint_of, length_of, pack, whole_number

_MOST_NESTED = 16  # frames searched between the loader of Accelerate and this sampler


def rank_and_world(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return rank and world size: as given, else of the process group, else (0, 1).

    Raises:
        UsageError: one is missing or out of range.
    """
    running = distributed.is_available() and distributed.is_initialized()
    if (rank is None) != (world_size is None):
        msg = f"rank={rank!r}, world_size={world_size!r}: give both or none"
        raise UsageError(msg)
    if rank is None or world_size is None:
        return (distributed.get_rank(), distributed.get_world_size()) if running else (0, 1)
    world_size = whole_number("world_size", world_size, least=1)
    return whole_number("rank", rank, most=world_size - 1), world_size


def refuse_second_sharding(world_size: int) -> None:
    """Refuse to give the batches of one rank to a loader that shards them again.

    Raises:
        UsageError: the caller is a loader made by Accelerate's `prepare`, in a run of several
            processes.

    Notes:
        A batch sampler cannot tell Accelerate that it is sharded, and cannot see who requests a
        batch, so this function inspects the calling frames.

    Reference:
        https://github.com/huggingface/accelerate/issues/4199
    """
    accelerate = sys.modules.get("accelerate.data_loader")
    if world_size == 1 or accelerate is None:
        return
    kinds = (accelerate.BatchSamplerShard, accelerate.DataLoaderDispatcher)
    frame = inspect.currentframe()
    for _ in range(_MOST_NESTED):
        if frame is None:
            return
        asks = frame.f_locals.get("self")
        if type(asks) in kinds and getattr(asks, "num_processes", world_size) > 1:
            msg = (
                f"accelerator.prepare() shards what is the part of one of {world_size} ranks "
                f"already: of {world_size} "
                f"samples {world_size - 1} would be lost. Leave the loader out of prepare(), or "
                f"give the sampler "
                "rank=0, world_size=1."
            )
            raise UsageError(msg)
        frame = frame.f_back


def set_dataset_epoch(dataset: Any, epoch: int) -> None:
    """Set the epoch of a dataset that has one, also inside a `Subset` or `ConcatDataset`."""
    if callable(set_epoch := getattr(dataset, "set_epoch", None)):
        set_epoch(epoch)
    elif isinstance(dataset, Subset):
        set_dataset_epoch(dataset.dataset, epoch)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            set_dataset_epoch(part, epoch)


class SharedEpoch:
    """A number that this process sets and its workers read.

    Notes:
        Forked workers share anonymous memory; spawned ones share a file in /dev/shm, created with
        the first spawn. A copy, pickled or deep, starts with the same number and is independent.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._cell = torch.frombuffer(mmap.mmap(-1, 8), dtype=torch.int64)
        self._cell[0] = epoch

    def get(self) -> int:
        """Return the epoch."""
        return int(self._cell.item())

    def set(self, epoch: int) -> None:
        """Set the epoch, 0 or more.

        Raises:
            UsageError: the epoch is out of range.
        """
        self._cell[0] = whole_number("epoch", epoch)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:  # on its way to a spawned worker
            self._cell.share_memory_()
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        cell = state["_cell"]
        SharedEpoch.__init__(self, int(cell.item()))
        # A cell that is not shared was pickled for no worker: keep the new one, for later workers.
        if cell.is_shared():
            self._cell = cell


VERSION = 1  # of the state format
# Positions ordered per call: one by one costs a hundred times as much.
_POSITIONS_AT_ONCE = 8192


@dataclass
class _EpochPass:
    """One pass over an epoch.

    Args:
        epoch: the epoch.
        start: positions consumed before this pass.
        batches: global batches handed out.
        followed: whether the consumer reports which of them the loop has received.
    """

    epoch: int
    start: int
    batches: int = 0
    followed: bool = False


class Sampler(TorchSampler[list[int]]):  # type: ignore[misc]  # torch is untyped here
    """Batches of indices: ``DataLoader(dataset, batch_sampler=Sampler(dataset, batch_size))``.

    Args:
        dataset: the dataset to index; one that decodes epochs (`CachedDataset`, `Mix`) gets the
            epoch in each index.
        batch_size: samples in the batch of one rank, 1 or more.
        shuffle: False: in the order of the items, each epoch.
        seed: 0 or more.
        drop_last: leave out positions that do not fill a global batch; otherwise the last one is
            filled up from the start of the same epoch, so that every batch of every rank is full.
        block: shuffle blocks, not samples: "shard" of the cache, or the number of items in a block.
        pool: how many blocks are shuffled together.
        weights: how often each item is drawn, with replacement (items); any scale, 0 means never.
        samples: positions of an epoch with weights; None: the number of items.
        rank, world_size: None: as torch.distributed says when batches are requested, else 0 and 1.

    Raises:
        UsageError: a value is out of range, two of them exclude each other, or drop_last leaves no
            batch; when batches are requested: Accelerate would shard them again.

    Notes:
        A global batch is batch_size * world_size positions of the epoch; rank r has the r-th part.
        Order and batches depend on (seed, epoch, position) only: with a constant global batch,
        world size and workers change nothing. Each ``iter()`` is an epoch: the one that was set or
        loaded (until its first batch is requested), else the next. All ranks get equally many
        batches.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        block: int | Literal["shard"] | None = None,
        pool: int = 16,
        weights: Any = None,
        samples: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.batch_size, self.drop_last = whole_number("batch_size", batch_size, 1), drop_last
        self._place = rank, world_size
        # Validates now; the values are read again later, when a process group may have started.
        rank_and_world(rank, world_size)
        _check_dataset(dataset)
        self._dataset, self._packed = dataset, bool(getattr(dataset, "decodes_epoch", False))
        blocks = _shards(dataset) if block == "shard" else block
        self.order = Order(
            length_of(dataset),
            seed,
            shuffle=shuffle,
            blocks=blocks,
            pool=pool,
            weights=weights,
            samples=samples,
        )
        self._pass = _EpochPass(0, 0)
        self._next: _EpochPass | None = None  # set while a pass is under way
        if not len(self):
            msg = (
                f"{len(self.order):,} samples are fewer than a global batch ({self.batch_size:,} "
                f"on each of "
                f"{self.world_size} ranks), and drop_last=True leaves nothing"
            )
            raise UsageError(msg)

    # ---------------------------------------------------------------------------------------- shape

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return rank_and_world(*self._place)[1]

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return rank_and_world(*self._place)[0]

    @property
    def global_batch(self) -> int:
        """Samples in a batch of all ranks together."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, the same on every rank."""
        return self._left(0)

    @property
    def repeated(self) -> int:
        """How many positions are repeated to fill the last global batch of an epoch."""
        return 0 if self.drop_last else len(self) * self.global_batch - len(self.order)

    @property
    def dropped(self) -> int:
        """How many positions of an epoch `drop_last` leaves out."""
        return len(self.order) % self.global_batch if self.drop_last else 0

    def __repr__(self) -> str:
        remainder = (
            f"{self.dropped} left out"
            if self.drop_last
            else f"{self.repeated} repeated in the last"
        )
        return (
            f"<Sampler {len(self.order):,} samples, {len(self):,} batches of {self.batch_size} on "
            f"each of "
            f"{self.world_size} ranks, {remainder}>"
        )

    def _left(self, consumed: int) -> int:
        remaining = len(self.order) - consumed
        return (
            remaining // self.global_batch if self.drop_last else -(-remaining // self.global_batch)
        )

    # --------------------------------------------------------------------------------------- epochs

    @property
    def epoch(self) -> int:
        """The epoch of the pass begun last, or of the next pass if none has begun."""
        return (self._next or self._pass).epoch

    @property
    def begun(self) -> object:
        """A token of the pass begun last, by `iter`, `set_epoch` or `load_state_dict`."""
        return self._next or self._pass

    def followed(self) -> Callable[[], None]:
        """Return a callback to call for each batch of the current pass that the loop receives.

        For loaders that take batches ahead of the loop.
        """
        epoch_pass = self._pass
        epoch_pass.followed = True
        return lambda: self._continue_pass(epoch_pass)

    def _continue_pass(self, epoch_pass: _EpochPass) -> None:
        """Undo a `set_epoch` to this pass's own epoch when the loop takes more of its batches."""
        if (
            epoch_pass is self._pass
            and self._next is not None
            and self._next.epoch == epoch_pass.epoch
        ):
            self._next = None

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the epoch of the next pass; after loading a state of it, the rest of it.

        Raises:
            UsageError: the epoch is not a whole number of 0 or more.

        Notes:
            If the epoch of the running pass is set after its ``iter()``, it refers to that pass if
            the loop takes more batches of it. With a DataLoader whose workers already hold the last
            batch,
            the two cases look the same: the next pass is then of that epoch, too. Set it before
            ``iter()``.
        """
        epoch = whole_number("epoch", epoch)
        if self._pass.batches:
            self._next = _EpochPass(epoch, 0)
        elif epoch != self._pass.epoch:
            # In place, so that an existing iterator follows: Lightning sets the epoch after iter().
            self._pass.epoch, self._pass.start = epoch, 0
        set_dataset_epoch(self._dataset, epoch)

    def _begin(self, new: _EpochPass) -> None:
        self._pass, self._next = new, None
        set_dataset_epoch(self._dataset, new.epoch)

    def __iter__(self) -> Iterator[list[int]]:
        """Begin a pass over the batches of this rank."""
        refuse_second_sharding(self.world_size)
        previous = self._next or self._pass
        # A DataLoader with workers calls iter() twice before it takes a batch, so a pass that
        # handed out nothing starts over.
        self._begin(
            _EpochPass(previous.epoch + 1, 0)
            if previous.batches
            else _EpochPass(previous.epoch, previous.start)
        )
        return self._batches(self._pass)

    def _batches(self, epoch_pass: _EpochPass) -> Iterator[list[int]]:
        size = self.batch_size
        rank = self.rank
        global_batch = self.global_batch
        batches_left = self._left(epoch_pass.start)
        step = max(1, _POSITIONS_AT_ONCE // size)
        for first in range(0, batches_left, step):
            numbers = np.arange(first, min(first + step, batches_left))
            positions = (
                epoch_pass.start + numbers[:, None] * global_batch + (rank * size + np.arange(size))
            )
            items = self.order.items(epoch_pass.epoch, positions.reshape(-1) % len(self.order))
            indices = pack(epoch_pass.epoch, items) if self._packed else items
            for batch in indices.reshape(-1, size).tolist():
                epoch_pass.batches += 1
                if not epoch_pass.followed:
                    self._continue_pass(epoch_pass)
                yield batch

    @property
    def sampler(self) -> IndexSampler:
        """The same indices one by one, for ``DataLoader(dataset, batch_size=..., sampler=...)``."""
        return IndexSampler(self)

    # ---------------------------------------------------------------------------------------- state

    @property
    def fingerprint(self) -> str:
        """Digest of the data and the order's parameters; not of batch size, ranks, `drop_last`."""
        return f"{fingerprint_of(self._dataset)[:16]}-{self.order.digest[:16]}"

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the position of the loop: epoch, samples consumed by all ranks, seed, fingerprint.

        Args:
            batches: how many batches the loop has received since this pass over the loader began.
                None: as many as were handed out, which is right with ``num_workers=0`` only:
                workers fetch ahead, and without `batches` the samples that they hold are lost.

        Raises:
            UsageError: `batches` is more than were handed out.
        """
        current_pass = self._next or self._pass
        # The epoch was set again while workers were ahead of the loop.
        if batches and current_pass.epoch == self._pass.epoch:
            current_pass = self._pass
        received = (
            current_pass.batches
            if batches is None
            else whole_number("batches", batches, 0, current_pass.batches)
        )
        consumed = current_pass.start + received * self.global_batch
        ended = self._left(consumed) <= 0
        position = (
            {"epoch": current_pass.epoch + 1, "consumed": 0}
            if ended
            else {"epoch": current_pass.epoch, "consumed": consumed}
        )
        return {
            "version": VERSION,
            **position,
            "seed": self.order.seed,
            "fingerprint": self.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state: the next pass is the rest of its epoch, later passes are whole.

        Args:
            state: from `state_dict`, also with another batch size or number of ranks: the order
                goes on at its position.

        Raises:
            UsageError: not a state, or one of another version, seed, cache or order; nothing has
                changed then.
        """
        names = {"version", "epoch", "consumed", "seed", "fingerprint"}
        if not isinstance(state, Mapping) or "version" not in state:
            msg = (
                "this is no state of a Sampler; it has version, epoch, consumed, seed, fingerprint"
            )
            raise UsageError(msg)
        if state["version"] != VERSION:
            msg = f"a state of version {state['version']!r}; this datacheck reads version {VERSION}"
            raise UsageError(msg)
        if set(state) != names:
            msg = (
                f"a state of a Sampler has {', '.join(sorted(names))}; this one has "
                f"{', '.join(map(str, state))}"
            )
            raise UsageError(msg)
        if state["seed"] != self.order.seed:
            msg = f"a state of seed {state['seed']!r}; this sampler has seed {self.order.seed}"
            raise UsageError(msg)
        self._check_fingerprint(state["fingerprint"])
        epoch = whole_number("epoch", state["epoch"])
        consumed = whole_number("consumed", state["consumed"], 0, len(self.order) - 1)
        self._begin(
            _EpochPass(epoch, consumed) if self._left(consumed) > 0 else _EpochPass(epoch + 1, 0)
        )

    def _check_fingerprint(self, saved: Any) -> None:
        own = self.fingerprint
        if saved == own:
            return
        data = str(saved).partition("-")[0] != own.partition("-")[0]
        difference = (
            "another cache, other windows or another policy for invalid samples"
            if data
            else "another order: shuffle, block, pool, weights or samples differ"
        )
        msg = (
            f"a state of {difference} ({saved}; here it is {own}). Open what the state was saved "
            f"with, or begin anew."
        )
        raise UsageError(msg)


class IndexSampler(DistributedSampler[int]):  # type: ignore[misc]
    """The indices of a `Sampler` one by one; `set_epoch` is forwarded to the sampler.

    Notes:
        The base class tells Lightning that the indices are already sharded.
    """

    def __init__(self, batches: Sampler) -> None:
        # The sampler reads the rank on demand; no attribute of the base class is used.
        self._batches = batches
        self._given = 0  # indices taken from the current batch

    def __len__(self) -> int:
        return len(self._batches) * self._batches.batch_size

    def __iter__(self) -> Iterator[int]:
        return self._one_by_one(iter(self._batches))

    def _one_by_one(self, batches: Iterator[list[int]]) -> Iterator[int]:
        for batch in batches:
            for yielded, index in enumerate(batch, 1):
                self._given = yielded % len(batch)
                yield index

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the epoch of the next pass."""
        self._batches.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the sampler.

        Raises:
            UsageError: the loader's batches are not those of the sampler.
        """
        if self._given:
            msg = (
                f"a state {self._given} samples into a batch of {self._batches.batch_size}: give "
                f"the loader that size"
            )
            raise UsageError(msg)
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state with the next pass.

        Raises:
            UsageError: as `Sampler.load_state_dict`.
        """
        self._batches.load_state_dict(state)
        self._given = 0


def _check_dataset(dataset: Any) -> None:
    if isinstance(dataset, TorchSampler):
        msg = (
            f"{type(dataset).__name__} is a sampler, no dataset. Where Lightning put it here: "
            "Trainer(use_distributed_sampler=False), since batches are sharded already; a "
            "CachedLoader needs no such "
            "flag. For predict and overfit_batches give a DataLoader(dataset, batch_size)."
        )
        raise UsageError(msg)


def _shards(dataset: Any) -> Array:
    starts = getattr(dataset, "shard_starts", None)
    if starts is None:
        msg = (
            f"block='shard': {type(dataset).__name__} has no shards; say how many items make a "
            f"block"
        )
        raise UsageError(msg)
    shard_starts: Array = starts()
    return shard_starts
