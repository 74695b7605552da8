"""Evaluation over ranks: each sample on one rank, all results in dataset order on every rank."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.utils.data.distributed import DistributedSampler

from datacheck.errors import IncompleteError
from datacheck.torch.order import MAX_ITEMS, whole_number
from datacheck.torch.sampler import rank_and_world, refuse_second_sharding

Array = np.ndarray[Any, Any]

_LISTED = 10


class EvalSampler(DistributedSampler[int]):  # type: ignore[misc]  # torch is untyped here
    """The indices that this rank evaluates: no sample is repeated, left out or on two ranks.

    Args:
        dataset: the dataset to evaluate, or its length.
        rank, world_size: default: those of ``torch.distributed`` if it is initialised, else 0 of 1.

    Raises:
        UsageError: a number is out of range; when indices are requested: Accelerate would shard
            them again.

    Notes:
        The base class tells Lightning that the indices are already sharded. Rank r has the r-th of
        equal ranges, in order; lengths differ by at most one, and may be 0. Ranks may therefore
        have different numbers of batches: call the bare module (``ddp.module``), since DDP may wait
        for the other ranks in forward.
    """

    def __init__(
        self, dataset: Sized | int, *, rank: int | None = None, world_size: int | None = None
    ) -> None:
        size = whole_number(
            "dataset", len(dataset) if isinstance(dataset, Sized) else dataset, most=MAX_ITEMS
        )
        rank, self._ranks = rank_and_world(rank, world_size)
        self._mine = range(size * rank // self._ranks, size * (rank + 1) // self._ranks)

    def __iter__(self) -> Iterator[int]:
        refuse_second_sharding(self._ranks)
        return iter(self._mine)

    def __len__(self) -> int:
        return len(self._mine)


def gather(
    samples: Mapping[int, Any] | Iterable[tuple[int, Any]], size: int, *, group: Any = None
) -> list[Any]:
    """Return the results of all ranks, one per sample, in dataset order, on every rank.

    Args:
        samples: this rank's results by index: pairs or a mapping, e.g. ``zip(sampler, results,
            strict=True)``. A result is any object that can be pickled; tensors arrive in main
            memory.
        size: length of the dataset.
        group: the process group; default: the initialised one, on gloo or NCCL; without one there
            is one rank.

    Raises:
        IncompleteError: a sample is missing or doubled, an index is outside the dataset, or a rank
            could not send its results; the same error on every rank.

    Notes:
        Every rank must call it, also one without results. Ranks may have any number of results, of
        any size. NCCL sends from the memory of the current device: call ``torch.cuda.set_device``
        first.
    """
    sent = _payload(samples, size)
    running = distributed.is_available() and distributed.is_initialized()
    payloads: list[Any] = [sent]
    if running and distributed.get_world_size(group) > 1:
        payloads = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(payloads, sent, group=group)
    if failed := [
        f"rank {rank}: {payload['error']}"
        for rank, payload in enumerate(payloads)
        if payload["error"]
    ]:
        raise IncompleteError("; ".join(failed))
    if len({payload["size"] for payload in payloads}) > 1:
        sizes = ", ".join(
            f"{payload['size']:,} on rank {rank}" for rank, payload in enumerate(payloads)
        )
        msg = f"the ranks do not evaluate one dataset: its length is {sizes}"
        raise IncompleteError(msg)
    _check([payload["indices"] for payload in payloads], size)
    results: list[Any] = [None] * size
    for payload in payloads:
        for index, result in zip(
            payload["indices"].tolist(),
            pickle.loads(payload["results"]),  # noqa: S301
            strict=True,
        ):
            results[index] = result
    return results


def _payload(samples: Mapping[int, Any] | Iterable[tuple[int, Any]], size: int) -> dict[str, Any]:
    """Return this rank's message; it includes a failure, since the other ranks already wait."""
    try:
        whole_number("size", size, most=MAX_ITEMS)
        pairs = list(samples.items() if isinstance(samples, Mapping) else samples)
        indices = np.array(
            [whole_number("index", index, -(2**62), 2**62) for index, _ in pairs], dtype=np.int64
        )
        results = io.BytesIO()
        _Pickler(results, pickle.HIGHEST_PROTOCOL).dump([result for _, result in pairs])
    except Exception as error:  # noqa: BLE001  a user's iterator or object may raise anything
        return {"error": f"{type(error).__name__}: {error}", "size": size}
    return {"error": "", "size": size, "indices": indices, "results": results.getvalue()}


class _Pickler(pickle.Pickler):
    """Pickles tensors of any device as copies in main memory.

    Pickling a view would send its whole storage.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().cpu().clone().__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def _check(indices: list[Array], size: int) -> None:
    """Raise unless each index of [0, size) occurs once.

    Raises:
        IncompleteError: lists missing, doubled and outside indices.
    """
    every = np.concatenate(indices)
    outside = np.unique(every[(every < 0) | (every >= size)])
    counts = np.bincount(every[(every >= 0) & (every < size)], minlength=size)
    missing = np.flatnonzero(counts == 0)
    doubled = np.flatnonzero(counts > 1)
    if not (len(outside) or len(missing) or len(doubled)):
        return
    faults = (
        [f"{len(missing):,} missing: {_join_limited(*_index_runs(missing))}"]
        if len(missing)
        else []
    )
    if len(doubled):
        ranks = np.repeat(np.arange(len(indices)), [len(rank_indices) for rank_indices in indices])
        twice = [
            f"{i} (ranks {', '.join(map(str, ranks[every == i]))})"
            for i in doubled[:_LISTED].tolist()
        ]
        faults.append(f"{len(doubled):,} doubled: {_join_limited(twice, len(doubled))}")
    if len(outside):
        words = [str(index) for index in outside[:_LISTED].tolist()]
        faults.append(f"{len(outside):,} outside the dataset: {_join_limited(words, len(outside))}")
    per_rank = ", ".join(f"{len(rank_indices):,}" for rank_indices in indices)
    msg = (
        f"results are not one per sample of {size:,}: {'; '.join(faults)}. The ranks sent "
        f"{per_rank}. "
        "Evaluate with EvalSampler, and give each result the index of its sample."
    )
    raise IncompleteError(msg)


def _index_runs(numbers: Array) -> tuple[list[str], int]:
    """Return the first runs of consecutive numbers as text, and the number of runs."""
    ends = np.append(np.flatnonzero(np.diff(numbers) != 1), len(numbers) - 1)
    starts = np.append(0, ends[:-1] + 1)
    runs = zip(numbers[starts[:_LISTED]].tolist(), numbers[ends[:_LISTED]].tolist(), strict=True)
    return [f"{first}" if first == last else f"{first} to {last}" for first, last in runs], len(
        ends
    )


def _join_limited(words: list[str], count: int) -> str:
    return ", ".join(words[:_LISTED]) + (
        f" and {count - _LISTED:,} more" if count > _LISTED else ""
    )
