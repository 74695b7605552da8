"""Which rank records, and under what name: the same on all of them."""

from __future__ import annotations

import datetime
import itertools
import os

from datacheck.errors import UsageError
from datacheck.registry import require

_COUNT = itertools.count()  # of names that the ranks agreed on; each rank counts alike


def place() -> tuple[int, int]:
    """Return rank and number of ranks."""
    distributed = require("torch", "torch").distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (0, 1)


def agreed(name: str | None, rank: int, world: int) -> str:
    """Return the name of the run, the same on all ranks: rank 0 lays it down, where the others fetch it.

    Raises:
        UsageError: there are several ranks and no process group; rank 0 lays down none.

    Notes:
        No collective: where rank 0 alone records, the others would meet it with another one.
    """
    if name is not None:
        return name
    now = datetime.datetime.now(datetime.UTC)
    own = f"{now:%Y%m%d-%H%M%S}-{os.urandom(3).hex()}"
    if world == 1:
        return own
    distributed = require("torch", "torch").distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        msg = f"{world} ranks and no process group: record behind init_process_group, or give all the same name="
        raise UsageError(msg)
    store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001  nothing public gives it
    key = f"datacheck.repro.Recorder/{next(_COUNT)}"
    try:
        if rank == 0:
            store.set(key, own)
            return own
        return str(store.get(key).decode())
    except (RuntimeError, AttributeError) as error:  # it waits as long as init_process_group(timeout=) says
        msg = (
            f"rank {rank}: no name of the run came from rank 0 ({str(error).splitlines()[0]}). Record on all ranks, "
            "on rank 0 alone, or give all the same name="
        )
        raise UsageError(msg) from error
