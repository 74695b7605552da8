"""Where reading of a large file can begin: at any sample, or only at some of them.

A child that begins in the middle of a file which is packed as a whole reads what lies before it,
too. The builder asks for these points once, in a child, and cuts its tasks accordingly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from datacheck.build.job import BuildJob, even_fields
from datacheck.build.plan import BuildPlan
from datacheck.build.source_setup import SourceSetup
from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.sources.base import Item
from datacheck.sources.row_slices import LEAST_BYTES
from datacheck.workers.parallel import ordered_map
from datacheck.workers.wire import answers

Array = np.ndarray[Any, Any]

_LOOK = "datacheck.build.seek_points:look"


def seek_points(job: BuildJob, plan: BuildPlan) -> dict[int, Array]:
    """Return, by item, the numbers of the samples at which reading of its file can begin.

    Notes:
        Asks `look` only about large files that several tasks read; skips files of lines with known
        offsets.
    """
    numbers = [number for number in _items_of_several_tasks(plan) if _is_packed(job, number)]
    if not numbers:
        return {}
    even = even_fields(job)
    items = [replace(job.samples.items[n], even=even.get(n, ())) for n in numbers]
    roots = {name: path.absolute() for name, path in job.roots.items()}
    setup = SourceSetup(job.schema, job.root.absolute(), roots)
    task = setup.as_dict() | {"items": [item.as_dict() for item in items]}
    number_of = {(item.path, item.split): n for n, item in zip(numbers, items, strict=True)}
    points_of: dict[int, Array] = {}
    # A file that kills the child has no points; the task that reads it reports why.
    for outcome in ordered_map(_LOOK, [task], limits=job.limits, sandbox=job.sandbox()):
        for path, split, points in chain.from_iterable(outcome.payloads):
            points_of[number_of[path, split]] = points
    return points_of


def _items_of_several_tasks(plan: BuildPlan) -> list[int]:
    """Return the items with samples on both sides of the border between two tasks."""
    per_task = plan.shard_samples * plan.per_task
    first_samples = np.arange(per_task, len(plan.samples), per_task)
    items = plan.samples.item_of[first_samples]
    return sorted(set(items[items == plan.samples.item_of[first_samples - 1]].tolist()))


def _is_packed(job: BuildJob, number: int) -> bool:
    """Return whether a file is large, and not one of lines whose offsets the scan has found."""
    item = job.samples.items[number]
    return item.nbytes >= LEAST_BYTES and item.path not in job.marks


def _points(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == np.int64
        and value.ndim == 1
        and value[:1].tolist() == [0]
        and bool((np.diff(value) > 0).all())
    )


def _of_items(answer: list[Any], task: dict[str, Any]) -> bool:
    return {(path, split) for path, split, _ in answer} <= {
        (item["path"], item["split"]) for item in task["items"]
    }


@answers([(str, str, _points)], _of_items, raises=(UsageError, MissingDependencyError))
def look(task: dict[str, Any], beat: Callable[[int], None]) -> list[list[Any]]:
    """Return path, split and `Source.seek_points` of each file that cannot be entered anywhere.

    Args:
        task: a `SourceSetup` as JSON values, with items (`Item.as_dict`).
        beat: called with an item's number before it is touched.
    """
    source = SourceSetup.from_dict(task).open()
    results = []
    for number, item in enumerate(map(Item.from_dict, task["items"])):
        beat(number)
        try:
            points = source.seek_points(item)
        except FormatError:  # the task that reads the file reports it
            continue
        if points is not None:
            results.append([item.path, item.split, points])
    return results
