"""The child's side of ``datacheck init``: profiles the fields of some samples of each file.

`profile_samples` runs in an expendable child and answers with JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.infer.profile import PROFILE_WIRE, FieldProfile
from datacheck.model.row_keys import storable
from datacheck.model.sample import Block
from datacheck.schema.model import MOST_FIELDS
from datacheck.sources import Item, Source, SourceSetup, Unread
from datacheck.workers.wire import answers, natural, text

Array = np.ndarray[Any, Any]
Beat = Callable[[int], None]

# Fields that an answer holds; beyond `MOST_FIELDS` a draft declares none of them.
_MOST_PROFILES = 5 * MOST_FIELDS
# Bytes of the samples that a few are drawn from: files are rarely shuffled.
_MOST_BYTES = 32 << 20
# Reasons why samples could not be read that an answer holds.
_MOST_REASONS = 3
_MOST_NAMES = 50  # of entries without a format


@answers(
    {
        "fields": {text: PROFILE_WIRE},
        "samples": natural,
        "unread": [text],
        "failed": natural,
        "unsupported": [text],
        "near_names": {text: text},
    },
    lambda answer, _: all(
        profile.keys() == PROFILE_WIRE.keys() for profile in answer["fields"].values()
    ),
    raises=(UsageError, MissingDependencyError),
)
def profile_samples(task: dict[str, Any], beat: Beat) -> dict[str, Any]:
    """Return profiles of the fields in a few samples.

    Args:
        task: a `SourceSetup` as JSON values, items (`Item.as_dict`), most (samples in all).
        beat: called with an item's number before it is touched and after each of its blocks.

    Returns:
        fields (`FieldProfile` by name, of very many the first), samples, unread (a few reasons),
        failed (how many could not be read), unsupported (names of values of an unsupported kind),
        near_names (by the field that they were read for).
    """
    source = SourceSetup.from_dict(task).open()
    profiler = _Profiler(source)
    items = task["items"]
    for number, data in enumerate(items):
        item = Item.from_dict(data)
        beat(number)
        source.limit_item(item, beat)
        # Samples of every file, because files may have different fields.
        share = (task["most"] - profiler.samples) // (len(items) - number)
        reservoir = _SampleReservoir(max(1, share), _MOST_BYTES // len(items))
        profiler.read(item, reservoir, partial(beat, number))
    return {
        "fields": profiler.fields(),
        "samples": profiler.samples,
        "unread": storable(profiler.unread),
        "failed": profiler.failed,
        "unsupported": storable(sorted(source.passed)[:_MOST_NAMES]),
        "near_names": profiler.near_names,
    }


class _Profiler:
    """Profiles the fields of some samples of several files.

    Attributes:
        samples: how many were profiled.
        unread: the first few reasons why samples could not be read.
        failed: how many samples could not be read.
        near_names: the names that fields were read under, by field.
    """

    def __init__(self, source: Source) -> None:
        self.samples = 0
        self.unread: list[str] = []
        self.failed = 0
        self.near_names: dict[str, str] = {}
        self._source = source
        self._profiles: dict[str, FieldProfile] = {}
        self._thinned = False

    def read(self, item: Item, reservoir: _SampleReservoir, beat: Callable[[], None]) -> None:
        """Draw samples of a file and add them to the profiles of their fields."""
        beat()
        try:
            for block in self._source.read(item):
                beat()
                if isinstance(block, Unread):
                    self._note_failure(f"{block.key}: {block.reason}")
                    continue
                self._add_order(block)
                reservoir.add(block)
                if reservoir.full:
                    break
        except FormatError as error:
            self._note_failure(f"{item.path}: {error}")
        for block in reservoir.blocks():
            self.samples += len(block)
            for name, column in block.fields.items():
                self._profiles[name].add(column)
        self._thinned |= reservoir.thinned

    def fields(self) -> dict[str, dict[str, Any]]:
        """Return the profiles as JSON values, by field; of very many the first."""
        names = [name for name, profile in self._profiles.items() if profile.samples]
        fields = {name: self._profiles[name] for name in names[:_MOST_PROFILES]}
        return {
            name: asdict(profile) | {"thinned": self._thinned} for name, profile in fields.items()
        }

    def _add_order(self, block: Block) -> None:
        """Add what needs all samples in their order, also those that are not drawn."""
        for name, column in block.fields.items():
            self._profiles.setdefault(name, FieldProfile()).add_order(column)
        for name, column in block.facts.items():
            if name.startswith("near/"):
                self.near_names[name.removeprefix("near/")] = str(column.objects[0])

    def _note_failure(self, reason: str) -> None:
        self.failed += 1
        if len(self.unread) < _MOST_REASONS:
            self.unread.append(reason)


class _SampleReservoir:
    """Draws a few samples from a stream of any length, with equal chances and reproducibly.

    Args:
        most_samples: how many samples are kept.
        most_bytes: how much of the stream is read.

    Notes:
        Not every hundredth sample: left and right hands, or two cameras, may alternate.
    """

    def __init__(self, most_samples: int, most_bytes: int) -> None:
        self._most_samples = most_samples
        self._most_bytes = most_bytes
        self._samples = 0
        self._nbytes = 0
        self._random = np.random.Philox(0)  # NumPy guarantees its stream of words
        # Blocks with the number that each sample drew; the lowest stay.
        self._kept: list[tuple[Array, Block]] = []

    @property
    def full(self) -> bool:
        """Whether enough of the stream was read."""
        return self._nbytes > self._most_bytes

    @property
    def thinned(self) -> bool:
        """Whether the stream has more samples than were kept, or may have."""
        return self._samples > self._most_samples or self.full

    def add(self, block: Block) -> None:
        """Draw for the next samples; keep the lowest draws."""
        self._kept.append((self._random.random_raw(len(block)), block))
        self._samples += len(block)
        self._nbytes += sum(
            column.values.nbytes for column in block.fields.values() if not column.peeked
        )
        draws = np.concatenate([drawn for drawn, _ in self._kept])
        if len(draws) > self._most_samples:
            self._keep_lowest(np.partition(draws, self._most_samples - 1)[self._most_samples - 1])

    def _keep_lowest(self, threshold: Any) -> None:
        kept = []
        for drawn, block in self._kept:
            rows = np.flatnonzero(drawn <= threshold)
            if len(rows):
                kept.append((drawn[rows], _take_rows(block, rows)))
        self._kept = kept

    def blocks(self) -> list[Block]:
        """Return the kept samples, in the order of the stream."""
        return [block for _, block in self._kept]


def _take_rows(block: Block, rows: Array) -> Block:
    fields = {name: column.take(rows) for name, column in block.fields.items()}
    return Block(
        [block.keys[i] for i in rows], fields, [block.origins[i] for i in rows], block.split
    )
