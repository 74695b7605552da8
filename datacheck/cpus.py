"""How many processors this process has for its work."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """Return how many processors this process may use: ``taskset``, a container or a batch system may leave it few."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1
