"""Which rank of how many a process is, and a name for the run that all of them know."""

from __future__ import annotations

import datetime
import os

from datacheck.errors import UsageError
from datacheck.registry import require


def place() -> tuple[int, int]:
    """Return rank and number of ranks."""
    distributed = require("torch", "torch").distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (0, 1)


def agreed(name: str | None, world: int) -> str:
    """Return the name of the run, the same on all ranks."""
    distributed = require("torch", "torch").distributed
    if name is not None:
        return name
    now = datetime.datetime.now(datetime.UTC)
    said = [f"{now:%Y%m%d-%H%M%S}-{os.urandom(3).hex()}"]
    if world > 1:
        if not (distributed.is_available() and distributed.is_initialized()):
            msg = f"{world} ranks and no process group: record behind init_process_group, or give all the same name="
            raise UsageError(msg)
        distributed.broadcast_object_list(said, src=0)
    return said[0]
