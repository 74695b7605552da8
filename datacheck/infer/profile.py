"""The profile of a field: what the guesses of ``datacheck init`` know of its values.

A child process adds the columns of a few samples to a `FieldProfile` and sends it as JSON;
`PROFILE_WIRE` is the form that the parent accepts. A profile holds a bounded number of values,
whatever the file holds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datacheck.model.row_keys import storable
from datacheck.model.sample import Column
from datacheck.rules.families.media import MEDIA, count_marks
from datacheck.rules.measures import positions, reduced
from datacheck.schema.grammar import JOINT_COUNTS
from datacheck.schema.model import FieldSpec
from datacheck.sources.fields import fits
from datacheck.tokenization import MESSAGE_NAMES, messages_of, role_of
from datacheck.workers.wire import finite, int64, natural, text

Array = np.ndarray[Any, Any]

# The lowest number that may be a label. Below it, float64 does not represent every whole number,
# and NaN that was cast to int64 is -2**63.
LEAST_LABEL = -(2**53)
# Share of the samples that must have the usual length. The others more likely have a fault that a
# scan should find.
NEARLY_ALL = 0.8
# Different whole numbers of a field that are kept: more of them are no classes.
DISTINCT = 64
# Characters of the name of a key or speaker that are kept.
MOST_NAME = 100

# `NEARLY_ALL` for rows of numbers, and the fewest samples that show it. Below these the rows count
# as ragged.
_NEARLY_ALL_ROWS = 0.9
_FEWEST_ROWS = 20
# Samples whose lengths are kept, to find fields that share an axis.
_MOST_LENGTHS = 200
# Keys, speakers and first messages of JSON values that are kept.
_MOST_KEYS = 12
# JSON values of a block, and rows of each, that are looked at.
_MOST_JSON_VALUES = 20
_MOST_JSON_ROWS = 1_000
# Fewest rows whose words can show that they are shuffled, and share of them that then differ from
# the row before. The share is that of an order by chance, up to a difference, also between rows with
# others between them.
_FEWEST_SHUFFLED = 256
_OFTEN = 0.25
_CHANCE = 0.1
_LAGS = (1, 2, 3)
# Correlation of the numbers of a recording with those of the row before.
_SMOOTH = 0.5
# Numbers of a block among which different whole numbers are counted.
_MOST_WHOLE = 100_000
# Columns of tables that may have coordinates, colours, normals and labels.
_POINT_TABLE_WIDTHS = range(4, 14)
# Length of normals that rounding to a few digits leaves.
_UNIT_LENGTH = (0.98, 1.02)


def _most_common(counts: Mapping[str, int]) -> set[str]:
    """Return the kind that nearly all samples have, else all kinds: a few others are faults."""
    most = max(counts.values(), default=0)
    usual = {kind for kind, count in counts.items() if count == most}
    return usual if most >= NEARLY_ALL * sum(counts.values()) else set(counts)


@dataclass(eq=False)
class FieldProfile:
    """What was measured of one field in a few samples; sent as JSON between processes."""

    samples: int = 0
    """Samples that have the field."""
    dtypes: dict[str, int] = field(default_factory=dict)
    """Samples by dtype, with "text" and "json"."""
    ndims: dict[str, int] = field(default_factory=dict)
    """Samples by number of axes."""
    item: list[int] | None = None
    """Sizes of the axes after the first; None where they differ."""
    lengths: list[int] = field(default_factory=list)
    """Size of the first axis in the first samples."""
    low: float | None = None
    """Smallest finite number."""
    high: float | None = None
    """Largest finite number."""
    nonfinite_samples: int = 0
    """Samples with NaN or infinity."""
    nonfinite_share: float = 0.0
    """Largest share of NaN and infinity among the numbers of a block with any."""
    whole: bool = True
    """Whether all values are whole numbers."""
    distinct: list[int] = field(default_factory=list)
    """Different values of few whole numbers; [] if there are more than `DISTINCT`."""
    negative: list[int] = field(default_factory=list)
    """Different whole numbers from `LEAST_LABEL` to -1; of many the lowest `DISTINCT` and one."""
    row_norms: list[float] = field(default_factory=list)
    """Smallest and largest length of the rows along a last axis of 3 or 4."""
    box_diagonals: list[float] = field(default_factory=list)
    """Smallest and largest diagonal of the bounding box, for rows of 3."""
    mostly_rising: bool = True
    """Whether most values in the samples rise: many rows with the same time are no clock."""
    falling_samples: int = 0
    """Samples in which a value falls."""
    tied_samples: int = 0
    """Samples in which a value equals the one before it."""
    trailing_nonzero: list[int] = field(default_factory=list)
    """Fewest and most nonzero steps at the end of a sample."""
    record_keys: list[str] = field(default_factory=list)
    """Keys of JSON objects, or of the first element of lists."""
    chat_samples: int = 0
    """Samples that are a message, or a list of messages."""
    speakers: dict[str, int] = field(default_factory=dict)
    """Chats by speaker."""
    marked: dict[str, int] = field(default_factory=dict)
    """Chats that refer to pictures, videos or sounds, by the medium (`MEDIA`)."""
    varied_lists: int = 0
    """Samples that are lists of texts most of which differ, of lists of several lengths, or of lists of
    records (chats): a row of such a table is no step of an episode.
    """
    shuffled_lists: int = 0
    """Samples that are lists of words in an order like that of chance: classes of shuffled rows."""
    smooth_samples: int = 0
    """Samples whose fractions follow one another along the first axis, as those of a recording do."""
    longest_text: int = 0
    """Bytes of the longest text."""
    empty_texts: int = 0
    """Texts of no bytes."""
    rises: int = 0
    """How often the number of a sample was compared with the one before, if it always rises; -1 if
    not."""
    columns: list[list[float]] = field(default_factory=list)
    """Of each column of a table: smallest number, largest number, whether all are whole (1, 0)."""
    unit_triples: list[int] = field(default_factory=list)
    """Columns from which on three columns of a table are rows of length 1."""
    thinned: bool = False
    """Whether there are more samples than were read."""

    @property
    def usual_length(self) -> int:
        """The length that nearly all samples have, or 0."""
        return _usual(self.lengths, NEARLY_ALL)

    @property
    def fixed_row_length(self) -> int:
        """The usual length of rows of numbers if the few others share another one, else 0."""
        # Exactly two lengths: a single one leaves nothing to decide.
        if self.item or len(self.lengths) < _FEWEST_ROWS or len(set(self.lengths)) != 2:
            return 0
        return _usual(self.lengths, _NEARLY_ALL_ROWS)

    @property
    def joint_count(self) -> int:
        """The number of 3D joints that nearly all samples have in each of their steps, or 0."""
        sizes = list(self.item or [])
        if self.lengths:
            sizes.insert(0, self.usual_length)
        if len(sizes) < 2 or sizes[-1] != 3:
            return 0
        return sizes[-2] if sizes[-2] in JOINT_COUNTS else 0

    def fits(self, spec: FieldSpec) -> bool:
        """Tell whether a declaration has the kind and the sizes of the values."""
        has_text = not self.dtypes.keys().isdisjoint({"text", "json"})
        if has_text or spec.is_text:
            return has_text == spec.is_text
        if spec.shape is None or self.item is None or len(self.ndims) != 1:
            return True
        first = [self.usual_length] if self.lengths else []
        return fits([*first, *self.item], spec)

    def is_like(self, other: FieldProfile) -> bool:
        """Tell whether two fields have the same kind of values; images may have several sizes."""
        for own, others in ((self.dtypes, other.dtypes), (self.ndims, other.ndims)):
            if (own or others) and _most_common(own).isdisjoint(_most_common(others)):
                return False
        if self._is_picture() and other._is_picture():
            return True
        return None in (self.item, other.item) or self.item == other.item

    def is_same_column(self, other: FieldProfile) -> bool:
        """Tell whether fields are alike; arrays of several widths are tables of several kinds."""
        is_text = not self.dtypes.keys().isdisjoint({"text", "json"})
        has_same_width = self.item is not None and self.item == other.item
        return self.is_like(other) and (is_text or has_same_width)

    def _is_picture(self) -> bool:
        return "uint8" in self.dtypes and max(map(int, self.ndims), default=0) > 1

    def add_order(self, column: Column) -> None:
        """Note whether the field rises from sample to sample, as a sample number or a time does."""
        is_number = column.kind == "array" and column.values.dtype.kind in "iuf"
        if not is_number or column.lengths is not None or column.peeked:
            return
        is_rising = self.rises >= 0 and bool((column.values[1:] > column.values[:-1]).all())
        self.rises = self.rises + len(column) - 1 if is_rising else -1

    def add(self, column: Column) -> None:
        """Add the values of some samples."""
        self.samples += len(column)
        kind = column.kind if column.kind != "array" else column.values.dtype.name
        self.dtypes[kind] = self.dtypes.get(kind, 0) + len(column)
        if column.kind != "array":
            self._add_texts(column)
            return
        self._add_shape(column)
        if column.values.dtype.kind in "biuf" and column.values.size and not column.peeked:
            self._add_numbers(column)

    def _add_texts(self, column: Column) -> None:
        if column.lengths is not None and len(column):
            self.longest_text = max(self.longest_text, int(column.lengths.max()))
            self.empty_texts += int(np.count_nonzero(column.lengths == 0))
        if column.kind == "json":
            for value in column.objects[:_MOST_JSON_VALUES]:
                self._add_json(value)

    def _add_json(self, value: Any) -> None:
        if isinstance(value, list):
            self.varied_lists += _is_varied(value[:_MOST_JSON_ROWS])
            self.shuffled_lists += _is_shuffled(value[:_MOST_JSON_ROWS])
        first = value[0] if isinstance(value, list) and value else value
        if not isinstance(first, Mapping):
            return
        keys = storable([str(key) for key in first])
        self.record_keys = list(dict.fromkeys([*self.record_keys, *keys]))[:_MOST_KEYS]
        speakers = dict.fromkeys(storable(_speakers(value)))
        self.chat_samples += bool(speakers)
        for key, medium in MEDIA.items() if speakers else ():
            if count_marks(messages_of(value), medium):
                self.marked[key] = self.marked.get(key, 0) + 1
        for name in speakers:
            if name in self.speakers or len(self.speakers) < _MOST_KEYS:
                self.speakers[name] = self.speakers.get(name, 0) + 1

    def _add_shape(self, column: Column) -> None:
        ndim = str(column.values.ndim - (column.lengths is None))
        is_first = not self.ndims
        self.ndims[ndim] = self.ndims.get(ndim, 0) + len(column)
        item = list(column.values.shape[1:])
        self.item = item if is_first or self.item == item else None
        if column.lengths is not None:
            missing = max(0, _MOST_LENGTHS - len(self.lengths))
            self.lengths += [int(length) for length in column.lengths[:missing]]

    def _add_numbers(self, column: Column) -> None:
        values = column.values.astype(np.float64)
        is_finite = np.isfinite(values)
        self._add_nonfinite(column, is_finite)
        numbers = values[is_finite]
        if not len(numbers):
            return
        self._add_extremes(numbers)
        self.whole &= bool((numbers == np.floor(numbers)).all())
        if self.whole:
            self._add_whole(numbers, is_first=self.samples == len(column))
        if column.lengths is not None and values.ndim == 1:
            self._add_series([np.asarray(column[i]) for i in range(len(column))])
        if column.lengths is not None and values.ndim == 2:
            self._add_columns(values)
        width = values.shape[-1] if values.ndim > 1 else int(column.uniform or 0)
        if width in {3, 4}:
            _extend(self.row_norms, _norms(values.reshape(-1, width)))
        if width == 3 or self.columns:
            self._add_boxes(column)

    def _add_nonfinite(self, column: Column, is_finite: Array) -> None:
        if is_finite.all():
            return
        rows = np.any(~is_finite.reshape(len(is_finite), -1), axis=1)
        samples = reduced(np.logical_or, rows, column.lengths)
        self.nonfinite_samples += int(np.count_nonzero(samples))
        self.nonfinite_share = max(self.nonfinite_share, 1 - float(is_finite.mean()))

    def _add_extremes(self, numbers: Array) -> None:
        low = float(numbers.min())
        high = float(numbers.max())
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def _add_whole(self, numbers: Array, *, is_first: bool) -> None:
        # An empty list of distinct numbers means too many, except before the first block.
        if self.distinct or is_first:
            values = _integers(np.unique(numbers[:_MOST_WHOLE]))
            distinct = sorted({*self.distinct, *values})
            self.distinct = distinct if len(distinct) <= DISTINCT else []
        labels = np.unique(numbers[(numbers < 0) & (numbers >= LEAST_LABEL)])
        lowest = _integers(labels[: DISTINCT + 1])
        self.negative = sorted({*self.negative, *lowest})[: DISTINCT + 1]

    def _add_series(self, series: list[Array]) -> None:
        """Add values along the first axis of samples: whether they rise, and how they end."""
        # Compared, because the difference of unsigned numbers can wrap.
        self.falling_samples += sum(bool((steps[1:] < steps[:-1]).any()) for steps in series)
        self.tied_samples += sum(bool((steps[1:] == steps[:-1]).any()) for steps in series)
        rises = sum(int(np.count_nonzero(steps[1:] > steps[:-1])) for steps in series)
        pairs = sum(max(0, len(steps) - 1) for steps in series)
        self.mostly_rising &= 2 * rises >= pairs
        self.smooth_samples += sum(map(_is_smooth, series))
        trailing = [int(np.cumprod(steps[::-1] != 0).sum()) for steps in series]
        trailing += self.trailing_nonzero
        self.trailing_nonzero = [min(trailing), max(trailing)]

    def _add_columns(self, values: Array) -> None:
        """Add the columns of tables that may hold points."""
        if values.shape[1] not in _POINT_TABLE_WIDTHS:
            return
        rows = values[np.isfinite(values).all(axis=1)]
        if not len(rows):
            return
        lows = rows.min(axis=0).tolist()
        highs = rows.max(axis=0).tolist()
        wholes = (rows == np.floor(rows)).all(axis=0).astype(float).tolist()
        unit_triples = [start for start in (3, 6) if _are_unit_rows(rows[:, start : start + 3])]
        if not self.columns:
            self.unit_triples = unit_triples
        self.unit_triples = [start for start in self.unit_triples if start in unit_triples]
        if len(self.columns) == len(lows):
            known_lows, known_highs, known_wholes = zip(*self.columns, strict=True)
            lows = list(map(min, lows, known_lows))
            highs = list(map(max, highs, known_highs))
            wholes = list(map(min, wholes, known_wholes))
        self.columns = [list(column) for column in zip(lows, highs, wholes, strict=True)]

    def _add_boxes(self, column: Column) -> None:
        """Add the diagonals of the samples' bounding boxes."""
        placed = positions(column)
        if placed is None or placed[1] is None:
            return
        xyz, lengths = placed
        low = reduced(np.minimum, xyz, lengths).astype(np.float64)
        high = reduced(np.maximum, xyz, lengths).astype(np.float64)
        _extend(self.box_diagonals, np.sqrt(((high - low) ** 2).sum(axis=0)))


def _usual(lengths: Sequence[int], share: float) -> int:
    """Return the most frequent length if at least this share of the samples has it, else 0."""
    ((length, frequency),) = Counter(lengths).most_common(1)
    return length if frequency >= share * len(lengths) else 0


def _speakers(value: Any) -> list[str]:
    """Return the speakers in a message, or in the first messages of a list."""
    messages = value if isinstance(value, list) else [value]
    return [
        role_of(message)[:MOST_NAME]
        for message in messages[:_MOST_KEYS]
        if isinstance(message, Mapping) and any(name in message for name, _ in MESSAGE_NAMES)
    ]


def _is_varied(rows: list[Any]) -> bool:
    """Tell whether rows are no steps of an episode.

    They are texts most of which differ, lists of several lengths, or lists of records.
    """
    texts = {row for row in rows if isinstance(row, str)}
    lengths = {len(row) for row in rows if isinstance(row, list)}
    records = any(isinstance(row, list) and row and isinstance(row[0], Mapping) for row in rows)
    return records or 2 * len(texts) > max(2, len(rows)) or len(lengths) > 1


def _is_shuffled(rows: list[Any]) -> bool:
    """Tell whether rows are words that change as often as words in an order by chance do.

    Those of a recording hold for a while, alternate, or come in a cycle.
    """
    if len(rows) < _FEWEST_SHUFFLED or not all(isinstance(row, str) for row in rows):
        return False
    words = np.unique(rows, return_inverse=True)[1]
    expected = 1 - float(((np.bincount(words) / len(words)) ** 2).sum())
    return expected >= _OFTEN and all(
        abs(float(np.mean(words[lag:] != words[:-lag])) - expected) <= _CHANCE for lag in _LAGS
    )


def _is_smooth(series: Array) -> bool:
    """Tell whether each number of a series is near the one before; not of whole numbers (ids)."""
    numbers = series[np.isfinite(series)]
    if len(numbers) < 3 or bool((numbers == np.floor(numbers)).all()):
        return False
    # Scaled, because squares of very large numbers are infinite.
    centred = numbers / np.abs(numbers).max()
    centred = centred - centred.mean()
    power = float((centred**2).sum())
    return power > 0 and float((centred[1:] * centred[:-1]).sum()) > _SMOOTH * power


def _integers(numbers: Array) -> list[int]:
    integers: list[int] = numbers.astype(np.int64).tolist()
    return integers


def _norms(rows: Array) -> Array:
    norms: Array = np.sqrt((rows**2).sum(axis=1))
    return norms


def _are_unit_rows(rows: Array) -> bool:
    if rows.shape[1] != 3:
        return False
    shortest, longest = _UNIT_LENGTH
    norms = _norms(rows)
    return bool(norms.min() >= shortest and norms.max() <= longest)


def _extend(extremes: list[float], values: Array) -> None:
    """Extend the smallest and the largest value by the finite ones of some others."""
    values = values[np.isfinite(values)]
    if len(values):
        low = float(values.min())
        high = float(values.max())
        extremes[:] = [min([low, *extremes[:1]]), max([high, *extremes[1:]])]


def _is_dtype(name: Any) -> bool:
    return text(name) and (name in {"text", "json"} or np.dtype(name[:40]).name == name)


def _is_axis_count(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch("[0-9]{1,2}", name, re.ASCII) is not None


def _are_sizes(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(natural, value)))


def _is_optional_number(value: Any) -> bool:
    return value is None or finite(value)


# The form of each entry; `datacheck.workers.wire` describes the notation.
PROFILE_WIRE: Mapping[str, Any] = {
    "samples": natural,
    "dtypes": {_is_dtype: natural},
    "ndims": {_is_axis_count: natural},
    "item": _are_sizes,
    "lengths": [natural],
    "low": _is_optional_number,
    "high": _is_optional_number,
    "nonfinite_samples": natural,
    "nonfinite_share": finite,
    "whole": bool,
    "distinct": [int64],
    "negative": [int64],
    "row_norms": [finite],
    "box_diagonals": [finite],
    "mostly_rising": bool,
    "falling_samples": natural,
    "tied_samples": natural,
    "trailing_nonzero": [natural],
    "record_keys": [text],
    "chat_samples": natural,
    "speakers": {text: natural},
    "marked": {text: natural},
    "varied_lists": int64,
    "shuffled_lists": natural,
    "smooth_samples": natural,
    "longest_text": int64,
    "empty_texts": int64,
    "rises": int64,
    "columns": [[finite]],
    "unit_triples": [natural],
    "thinned": bool,
}
