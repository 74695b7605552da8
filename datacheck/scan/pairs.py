"""The second read: child processes read again the samples that a rule names in pairs, and compare.

A task is a batch of pairs in file order, so that a file is opened once for all its samples in the
batch. The first read has measured the samples' sizes, which bound the memory of a batch.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from datacheck.errors import MissingDependencyError, UsageError
from datacheck.model.finding import Progress, Tick, note_reporter
from datacheck.model.sample import Sample
from datacheck.model.table import Rows, Slot
from datacheck.rules import catalogue
from datacheck.rules.base import Rule, RuleContext
from datacheck.rules.engine import PairReader
from datacheck.runtime.hashing import digest_value
from datacheck.scan.measure_tasks import ScanJob
from datacheck.sources import Item, SourceSetup, Unread
from datacheck.workers.parallel import TaskResult, ordered_map
from datacheck.workers.wire import answers, int64, text

Array = np.ndarray[Any, Any]

TASK_BYTES = 64 << 20
_FEW_TASKS = 4  # one process does these before a cluster has started
_COMPARE = "datacheck.scan.pairs:compare_items"


def value_columns(count: int, found: Iterator[tuple[int, Mapping[str, float]]]) -> dict[str, Array]:
    """Return (number, values) pairs as one array per name, NaN where a number has no value."""
    columns: dict[str, Array] = {}
    for number, values in found:
        for name, value in values.items():
            columns.setdefault(name, np.full(count, np.nan))[number] = value
    return columns


class CachedSecondRead:
    """A `PairReader` that reuses the answers of an earlier scan of the same, unchanged data.

    Args:
        read: reads the pairs without a known answer.
        known: the answers of the earlier scan, by the digest of the question.
    """

    def __init__(self, read: PairReader, known: Mapping[str, Mapping[str, Array]]) -> None:
        self._read = read
        self._known = known
        self.answers: dict[str, Mapping[str, Array]] = {}

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> Mapping[str, Array]:
        """Return the values of `Rule.compare` for each pair."""
        options = {name: repr(value) for name, value in case.options.items()}
        schema = {key: value for key, value in case.schema.as_dict().items() if key != "rules"}
        keys = [rows.table.keys[i] for i in rows.index[pairs].reshape(-1).tolist()]
        question = digest_value([rule.code, case.name, split, options, schema, keys])
        if question not in self.answers:
            cached = self._known.get(question)
            self.answers[question] = (
                self._read(rule, case, split, rows, pairs) if cached is None else cached
            )
        return self.answers[question]


class NoSecondRead:
    """A `PairReader` that reads nothing and remembers which rules asked for a second read."""

    def __init__(self) -> None:
        self.rule_codes: set[str] = set()

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> Mapping[str, Array]:
        """Return no values."""
        del case, split, rows, pairs
        self.rule_codes.add(rule.code)
        return {}


class Rereader:
    """A `PairReader` of samples in files.

    Args:
        job: how the files are read.
        planned: returns the items of the dataset; called only when a pair has to be read.
        progress: called with notes on the progress.
    """

    def __init__(
        self, job: ScanJob, planned: Callable[[], Sequence[Item]], progress: Progress | None = None
    ) -> None:
        self._job = job
        self._planned = planned
        self._report = note_reporter(progress, Tick(0, 0, 0, 0, 0, 0, "comparing"))

    @cached_property
    def _items(self) -> dict[Slot, Item]:
        return {(item.path, item.split): item for item in self._planned()}

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> dict[str, Array]:
        """Return the values of `Rule.compare` for each pair; NaN for a sample that is unreadable.

        Raises:
            RuntimeError: `Rule.compare` raised; the text is its traceback.
        """
        job = self._job
        task = job.source.absolute().as_dict() | {
            "rule": rule.code,
            "name": case.name,
            "split": split,
            "options": dict(case.options),
        }
        tasks = [task | {"items": batch} for batch in self._batches(rows, pairs)]
        workers = job.worker_count(len(tasks), small=len(tasks) <= _FEW_TASKS)
        options: dict[str, Any] = {
            "scheduler": job.scheduler,
            "limits": job.limits,
            "sandbox": job.sandbox,
            "told": self._report,
        }
        outcomes = ordered_map(_COMPARE, tasks, workers=workers, **options)
        with closing(outcomes):  # type: ignore[type-var]
            return value_columns(len(pairs), _pair_values(outcomes))

    def _batches(self, rows: Rows, pairs: Array) -> Iterator[list[dict[str, Any]]]:
        """Yield pairs in file order, in batches whose samples fit into `TASK_BYTES`."""
        table = rows.table
        places = rows.index[pairs]
        slots = [
            tuple((table.files[int(i)], table.splits[int(i)]) for i in pair) for pair in places
        ]
        batch: list[dict[str, Any]] = []
        batch_rows: set[int] = set()
        size = 0
        for number in sorted(range(len(pairs)), key=lambda n: (slots[n], n)):
            if any(slot not in self._items for slot in slots[number]):
                continue
            new_rows = {int(i) for i in places[number]} - batch_rows
            weight = sum(int(table.nbytes[i]) for i in new_rows)
            if batch and size + weight > TASK_BYTES:
                yield batch
                batch = []
                batch_rows = set()
                size = 0
                new_rows = {int(i) for i in places[number]}
                weight = sum(int(table.nbytes[i]) for i in new_rows)
            batch_rows |= new_rows
            size += weight
            sides = [
                replace(self._items[slot], keys=(table.keys[int(i)],)).as_dict()
                for slot, i in zip(slots[number], places[number], strict=True)
            ]
            batch.append({"number": number, "sides": sides})
        if batch:
            yield batch


def _pair_values(outcomes: Iterator[TaskResult]) -> Iterator[tuple[int, Mapping[str, float]]]:
    for outcome in outcomes:
        for payload in outcome.payloads:
            if payload["crash"]:
                raise RuntimeError(payload["crash"])
            yield from payload["values"]


# -------------------------------------------------------------------------------------------- child


def _answers_pairs(answer: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    return {pair["number"] for pair in task["items"]}.issuperset(
        number for number, _ in answer["values"]
    )


@answers(
    {"values": [(int64, {str: float})], "crash": text},
    _answers_pairs,
    raises=(UsageError, MissingDependencyError),
)
def compare_items(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Read the samples of pairs and compare them (see `parallel.run_task`).

    Args:
        task: schema (`Schema.as_dict`), root, roots, rule (code), name (field), split (of the
            judged rows), options, items (number of the pair, its two sides as `Item.as_dict` with
            one key each).
        beat: called with a pair's position before its samples are touched.

    Returns:
        values: (number, values by name) of the pairs whose samples could be read; crash: the
            traceback, or "".
    """
    setup = SourceSetup.from_dict(task)
    schema = setup.schema
    rule = catalogue()[task["rule"]]
    assert rule.compare is not None
    judged = schema.for_split(task["split"]) if task["split"] else schema
    case = RuleContext(judged, task["name"], judged.spec(task["name"]), task["options"])
    source = setup.open(fields=frozenset({case.name}) if case.name else None)
    samples: dict[tuple[Slot, str], Sample] = {}
    for place, item in _items_of_pairs(task["items"]):
        beat(place)
        for block in source.read_all([item], lambda _, place=place: beat(place)):  # type: ignore[misc]
            if not isinstance(block, Unread):
                samples |= {((item.path, item.split), sample.key): sample for sample in block}
    values: list[tuple[int, dict[str, float]]] = []
    for place, pair in enumerate(task["items"]):
        beat(place)
        sides = [
            samples.get(((side["path"], side["split"]), side["keys"][0])) for side in pair["sides"]
        ]
        if sides[0] is None or sides[1] is None:
            continue
        try:
            differences = rule.compare(sides[0], sides[1], case)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  the rule's crash verdict
            return {"values": [], "crash": traceback.format_exc()}
        values.append((pair["number"], {name: float(value) for name, value in differences.items()}))
    return {"values": values, "crash": ""}


def _items_of_pairs(pairs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Item]]:
    """Yield each file once, with all of its requested keys, and the first pair that needs it."""
    first_pair: dict[Slot, int] = {}
    items: dict[Slot, dict[str, Any]] = {}
    keys: dict[Slot, set[str]] = {}
    for place, pair in enumerate(pairs):
        for side in pair["sides"]:
            slot = (side["path"], side["split"])
            first_pair.setdefault(slot, place)
            items.setdefault(slot, side)
            keys.setdefault(slot, set()).update(side["keys"])
    for slot, place in first_pair.items():
        yield place, Item.from_dict(items[slot] | {"keys": sorted(keys[slot])})
