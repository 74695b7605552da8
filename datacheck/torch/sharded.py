"""Batches that are sharded already are not to be sharded again: Accelerate would, and lose all but one part of N."""

from __future__ import annotations

import inspect
import sys

from datacheck.errors import UsageError

_DEEP = 16  # calls between what shards and what it asks for batches


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
