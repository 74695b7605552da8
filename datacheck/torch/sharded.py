"""Which rank this is; and batches that are sharded already, which Accelerate would shard again and lose."""

from __future__ import annotations

import inspect
import sys

from torch import distributed

from datacheck.errors import UsageError
from datacheck.torch.order import whole_number

_DEEP = 16  # calls between what shards and what it asks for batches


def placed(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
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
        UsageError: what asks is a loader that Accelerate's `prepare` made, in a run of several processes.

    Notes:
        Nothing on a batch sampler tells Accelerate that it is sharded, and nothing tells a batch sampler who asks; so
        the callers are looked at.

    Reference:
        https://github.com/huggingface/accelerate/issues/4199
    """
    accelerate = sys.modules.get("accelerate.data_loader")
    if world_size == 1 or accelerate is None:
        return
    kinds = (accelerate.BatchSamplerShard, accelerate.DataLoaderDispatcher)
    frame = inspect.currentframe()
    for _ in range(_DEEP):
        if frame is None:
            return
        asks = frame.f_locals.get("self")
        if type(asks) in kinds and getattr(asks, "num_processes", world_size) > 1:
            msg = (
                f"accelerator.prepare() shards what is the part of one of {world_size} ranks already: of {world_size} "
                f"samples {world_size - 1} would be lost. Leave the loader out of prepare(), or give the sampler "
                "rank=0, world_size=1."
            )
            raise UsageError(msg)
        frame = frame.f_back
