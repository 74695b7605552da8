"""Which rank this is; and batches that are sharded already, which Accelerate would shard again and lose."""

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

_MOST_NESTED = 16  # calls between what shards and what it asks for batches


def rank_and_world(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return rank and number of ranks: those given, else those of the process group, else 0 of 1.

    Raises:
        UsageError: they are no such numbers.
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
    """Refuse to give batches of one rank of several to what shards them among the ranks.

    Raises:
        UsageError: what asks is a loader that Accelerate's `prepare` made, in a run of several
            processes.

    Notes:
        Nothing on a batch sampler tells Accelerate that it is sharded, and nothing tells a batch
        sampler who asks; so the callers are looked at.

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
    """Set the epoch of a dataset that has one, also of those in a `Subset` or `ConcatDataset` of PyTorch."""
    if callable(tell := getattr(dataset, "set_epoch", None)):
        tell(epoch)
    elif isinstance(dataset, Subset):
        set_dataset_epoch(dataset.dataset, epoch)
    elif isinstance(dataset, ConcatDataset):
        for one in dataset.datasets:
            set_dataset_epoch(one, epoch)


class SharedEpoch:
    """A number that this process sets and its workers read.

    Notes:
        Forked workers share anonymous memory; spawned ones share a file of /dev/shm, made when the
        first is spawned. A copy, pickled or deep, begins with the same number and goes its own way.
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
            UsageError: it is no such number.
        """
        self._cell[0] = whole_number("epoch", epoch)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:  # on its way to a spawned worker
            self._cell.share_memory_()
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        cell = state["_cell"]
        SharedEpoch.__init__(self, int(cell.item()))
        if (
            cell.is_shared()
        ):  # else it was pickled for no worker, and those of this process are to share a new one
            self._cell = cell


VERSION = 1  # of the state
_POSITIONS_AT_ONCE = (
    8192  # positions that are put in order at once: one by one costs a hundred times as much
)


@dataclass
class _EpochPass:
    """One way through an epoch.

    Args:
        epoch: which.
        start: positions that were consumed before it.
        batches: global batches handed out.
        followed: whether who takes them says which of them the loop has had.
    """

    epoch: int
    start: int
    batches: int = 0
    followed: bool = False


class Sampler(TorchSampler[list[int]]):  # type: ignore[misc]  # torch is untyped here
    """Batches of indices: ``DataLoader(dataset, batch_sampler=Sampler(dataset, batch_size))``.

    Args:
        dataset: what is indexed; one that decodes epochs (`CachedDataset`, `Mix`) gets them in each
            index.
        batch_size: samples of a batch of one rank, 1 or more.
        shuffle: False: in the order of the items, each epoch.
        seed: 0 or more.
        drop_last: leave the positions out that fill no global batch; otherwise the last one is
            filled up from the beginning of the same epoch, so that every batch of every rank is
            full.
        block: shuffle blocks, not samples: "shard" of the cache, or how many items make one.
        pool: how many blocks are shuffled together.
        weights: how often each item is drawn, with replacement (items); any scale, 0 is never.
        samples: positions of an epoch, where there are weights; as many as items where it is None.
        rank, world_size: where None, as torch.distributed says when it is asked for batches, else 0
            and 1.

    Raises:
        UsageError: a value is out of range, two of them exclude each other, or there is no whole
            batch to drop to;
            when it is asked for batches: Accelerate would shard again what it gives.

    Notes:
        A global batch is batch_size * world_size positions of the epoch; rank r has the r-th part.
        Order and batches depend on (seed, epoch, position) only: with a constant global batch,
        world size and workers change nothing. Each ``iter()`` is an epoch: the one that was set or
        loaded (until its first batch is asked for), else the next. All ranks get equally many
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
        rank_and_world(rank, world_size)  # for what it raises; later it may say something else
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
        """How many ranks there are."""
        return rank_and_world(*self._place)[1]

    @property
    def rank(self) -> int:
        """Which of them this is."""
        return rank_and_world(*self._place)[0]

    @property
    def global_batch(self) -> int:
        """Samples of a batch of all ranks together."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Return the batches of a whole epoch, the same on every rank."""
        return self._left(0)

    @property
    def repeated(self) -> int:
        """How many positions of an epoch's last global batch are repeated to fill it."""
        return 0 if self.drop_last else len(self) * self.global_batch - len(self.order)

    @property
    def dropped(self) -> int:
        """How many positions of an epoch are left out."""
        return len(self.order) % self.global_batch if self.drop_last else 0

    def __repr__(self) -> str:
        last = (
            f"{self.dropped} left out"
            if self.drop_last
            else f"{self.repeated} repeated in the last"
        )
        return (
            f"<Sampler {len(self.order):,} samples, {len(self):,} batches of {self.batch_size} on "
            f"each of "
            f"{self.world_size} ranks, {last}>"
        )

    def _left(self, consumed: int) -> int:
        left = len(self.order) - consumed
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    # --------------------------------------------------------------------------------------- epochs

    @property
    def epoch(self) -> int:
        """The epoch of the pass that was begun last, or that the next one is of, if none was."""
        return (self._next or self._pass).epoch

    @property
    def begun(self) -> object:
        """What stands for the pass that was begun last, by `iter`, `set_epoch` or `load_state_dict`."""
        return self._next or self._pass

    def followed(self) -> Callable[[], None]:
        """Return what to call for each batch of the pass just begun that the loop has, where they are taken ahead."""
        of = self._pass
        of.followed = True
        return lambda: self._continue_pass(of)

    def _continue_pass(self, of: _EpochPass) -> None:
        """Forget that the epoch of a pass was set meanwhile, as the loop takes more of its batches."""
        if of is self._pass and self._next is not None and self._next.epoch == of.epoch:
            self._next = None

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be of `epoch`; where a state of that epoch was just loaded, the rest of it.

        Raises:
            UsageError: it is no whole number of 0 or more.

        Notes:
            The epoch of the pass that is under way, set behind its ``iter()``, means that pass
            where the loop takes more of it. Of a DataLoader with workers nobody can tell once they
            have been given its last batch: then the next pass is of that epoch, too. Set it before
                ``iter()``.
        """
        epoch = whole_number("epoch", epoch)
        if self._pass.batches:
            self._next = _EpochPass(epoch, 0)
        elif epoch != self._pass.epoch:
            self._pass.epoch, self._pass.start = (
                epoch,
                0,
            )  # also of an iterator: Lightning sets it behind iter()
        set_dataset_epoch(self._dataset, epoch)

    def _begin(self, new: _EpochPass) -> None:
        self._pass, self._next = new, None
        set_dataset_epoch(self._dataset, new.epoch)

    def __iter__(self) -> Iterator[list[int]]:
        """Begin a pass; batches are those of this rank."""
        refuse_second_sharding(self.world_size)
        last = self._next or self._pass
        # a DataLoader with workers calls this twice before it takes a batch: what handed out
        # nothing is begun anew
        self._begin(
            _EpochPass(last.epoch + 1, 0) if last.batches else _EpochPass(last.epoch, last.start)
        )
        return self._batches(self._pass)

    def _batches(self, of: _EpochPass) -> Iterator[list[int]]:
        size, rank, whole = self.batch_size, self.rank, self.global_batch
        left = self._left(of.start)
        step = max(1, _POSITIONS_AT_ONCE // size)
        for first in range(0, left, step):
            numbers = np.arange(first, min(first + step, left))
            positions = of.start + numbers[:, None] * whole + (rank * size + np.arange(size))
            items = self.order.items(of.epoch, positions.reshape(-1) % len(self.order))
            indices = pack(of.epoch, items) if self._packed else items
            for batch in indices.reshape(-1, size).tolist():
                of.batches += 1
                if not of.followed:
                    self._continue_pass(of)
                yield batch

    @property
    def sampler(self) -> IndexSampler:
        """The same indices one by one: ``DataLoader(dataset, batch_size=..., sampler=batches.sampler)``."""
        return IndexSampler(self)

    # ---------------------------------------------------------------------------------------- state

    @property
    def fingerprint(self) -> str:
        """Digest of what is served and of the order's parameters; batch, ranks and `drop_last` are not among them."""
        return f"{fingerprint_of(self._dataset)[:16]}-{self.order.digest[:16]}"

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return where the loop is: epoch, samples consumed by all ranks, seed, fingerprint.

        Args:
            batches: how many batches the loop has had since this pass over the loader began. None:
                as many as were handed out, which is true with ``num_workers=0``; workers fetch
                ahead, and what they have fetched is lost where `batches` does not say so.

        Raises:
            UsageError: `batches` is more than were handed out.
        """
        now = self._next or self._pass
        if (
            batches and now.epoch == self._pass.epoch
        ):  # set again while workers were ahead of the loop
            now = self._pass
        had = now.batches if batches is None else whole_number("batches", batches, 0, now.batches)
        consumed = now.start + had * self.global_batch
        ended = self._left(consumed) <= 0
        where = (
            {"epoch": now.epoch + 1, "consumed": 0}
            if ended
            else {"epoch": now.epoch, "consumed": consumed}
        )
        return {
            "version": VERSION,
            **where,
            "seed": self.order.seed,
            "fingerprint": self.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says; the next pass is the rest of that epoch, and later ones are whole.

        Args:
            state: of `state_dict`, also of another batch size or number of ranks: the order goes on
                at its position.

        Raises:
            UsageError: it is of another version, seed, cache or order, or no state; nothing has
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

    def _check_fingerprint(self, theirs: Any) -> None:
        ours = self.fingerprint
        if theirs == ours:
            return
        data = str(theirs).partition("-")[0] != ours.partition("-")[0]
        what = (
            "another cache, other windows or another policy for invalid samples"
            if data
            else "another order: shuffle, block, pool, weights or samples differ"
        )
        msg = (
            f"a state of {what} ({theirs}; here it is {ours}). Open what the state was saved "
            f"with, or begin anew."
        )
        raise UsageError(msg)


class IndexSampler(DistributedSampler[int]):  # type: ignore[misc]
    """The indices of a `Sampler` one by one; `set_epoch` is its.

    Notes:
        By its type Lightning knows that it is of one rank, and does not shard it again.
    """

    def __init__(self, batches: Sampler) -> None:
        self._batches = (
            batches  # which knows the rank when it is asked: nothing of the base is used
        )
        self._given = 0  # of the batch that was begun

    def __len__(self) -> int:
        return len(self._batches) * self._batches.batch_size

    def __iter__(self) -> Iterator[int]:
        return self._one_by_one(iter(self._batches))

    def _one_by_one(self, batches: Iterator[list[int]]) -> Iterator[int]:
        for batch in batches:
            for given, index in enumerate(batch, 1):
                self._given = given % len(batch)
                yield index

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be of `epoch`."""
        self._batches.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the batches.

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
        """Go on where a state says, with the next pass.

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
    found: Array = starts()
    return found
