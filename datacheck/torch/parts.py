"""A large batch is copied by several threads, each a part of it: one alone does not fill the bus of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

_PART = 1 << 24  # bytes; of less, starting a thread takes longer than it saves

Copy = Callable[[int, int], object]


def threads_here() -> int:
    """Return how many threads may copy: those of PyTorch; 1 in a worker, and where the caller is a thread itself."""
    return torch.get_num_threads() if threading.current_thread() is threading.main_thread() else 1


def in_parts(copy: Copy, count: int, size: int, threads: int) -> None:
    """Call ``copy(first, stop)`` until each of `count` samples is copied.

    Args:
        copy: copies samples [first, stop) of a batch; may be called by several threads at once.
        count: samples of the batch.
        size: their bytes.
        threads: how many at most.

    Raises:
        Exception: that of the first part that failed; all parts have ended then, and no thread is left.
    """
    parts = min(threads, count, size // _PART)
    if parts < 2:
        copy(0, count)
        return
    ends = [count * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        rest = [pool.submit(copy, first, stop) for first, stop in pairwise(ends[1:])]
        copy(0, ends[1])
    for one in rest:
        one.result()
