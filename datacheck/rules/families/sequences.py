"""Rules about rows that follow one another in time: a table of a log, a trajectory, a recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, format_number, measure, pluralize, rule
from datacheck.rules.measures import is_numeric
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

_ROWS = 500  # fewest rows of a sequence
_MOST_ROWS = 4_000_000
_PROBED = 256  # rows that tell which columns to look at
_COLUMNS = 64
# Rows that repeat: in samples of so many rows, fewest of all columns, fewest of one column, and how
# many times the next run.
_LONG = 1000
_FROZEN_ROWS = 100
_FROZEN_NUMBERS = 200
_FROZEN_RATIO = 10
_USUAL = 0.2  # if more samples than this share have such runs, things rest in these data
_DISTINCT = 100  # different numbers of a column that measures something
# Of a column that rises, so many steps go up; at most this share goes back.
_RISES = 0.95
_BACK = 0.002
_RESET = 10  # steps from the first number: a fall to here begins anew
# A fall by one of these is an angle or a counter that begins again.
_TURNS = np.array([2 * np.pi, 360.0, *(2.0**bits for bits in (8, 16, 24, 32))])
_TURN_SLACK = 0.05
# The two largest steps of a column frame a block: against the third, and the median.
_STEP_RATIO = 50
_STEP_MEDIAN = 1000
_BLOCK = 0.2  # largest share of the rows
_FIT = 0.2  # how near the rows around a block come to it, times the factor
_FACTORS = (1000.0, 100.0, 10.0, float(np.degrees(1)), 1 / 0.3048)
_UNIT = 0.02  # tolerance of the length of a quaternion
# Tokens of one id in succession: in streams of so many tokens, fewest, and share of the stream.
_STREAM = 65_536
_SAME_TOKENS = 4096
_LONGEST_PACK = 500_000  # tokens of a sample, which may end in padding
_SAME_SHARE = 0.01
_TURNED, _STEADY = 0.9, 0.99  # |q . q'| at the ends of a block, and elsewhere


class _Fault(NamedTuple):
    """A part of a sequence that does not go on from the rows before it.

    Args:
        kind: frozen, backwards, scaled, block or quaternion.
        first, last: rows.
        column: of the field, -1 for all, or if it has one only.
        value: rows back, the factor, or the largest number.
    """

    kind: int
    first: int
    last: int
    column: int
    value: float


_FROZEN, _BACKWARDS, _SCALED, _APART, _QUATERNION = range(1, 6)


@measure("sequence", version=3, per="sample", uses=("fields.role", "fields.shape"))
def sequence(block: Block, schema: Schema) -> Columns:
    """Field with rows that break its sequence: `sequence_field` (its name), kind and place.

    `sequence_kind`: 1 frozen rows, 2 a column goes back, 3 rows times a factor, 4 rows apart, 5
    another order of a quaternion; `sequence_first` and `sequence_last`, rows; `sequence_column`, -1
    for all; `sequence_value`, the factor or the number.
    """
    found: dict[int, tuple[str, _Fault]] = {}
    for name, column in block.fields.items():
        spec = schema.spec(name)
        is_stream = spec.role == "tokens" and is_numeric(column) and not column.peeked
        if is_stream or _is_sequence(name, column, spec):
            for sample in (number for number in range(len(block)) if number not in found):
                fault = (
                    _same_tokens(np.asarray(column[sample]))
                    if is_stream
                    else _fault(_rows_of(column, sample))
                )
                if fault is not None:
                    found[sample] = name, fault
    if not found:
        return {}
    present = np.isin(np.arange(len(block)), list(found))
    names = np.array([found[i][0] if i in found else "" for i in range(len(block))], dtype=object)
    values = np.zeros((len(block), len(_Fault._fields)))
    for sample, (_, fault) in found.items():
        values[sample] = fault
    return {
        "sequence_field": Measured(names, present),
        **{
            f"sequence_{part}": Measured(values[:, place], present)
            for place, part in enumerate(_Fault._fields)
        },
    }


def _is_sequence(name: str, column: Column, spec: FieldSpec) -> bool:
    """Tell whether the rows of a field may follow one another: it has no role that says otherwise.

    Notes:
        Several writers of a bag have clocks of their own (`publish_time`).
    """
    return (
        is_numeric(column)
        and not column.peeked
        and column.values.dtype.kind in "fiu"
        and spec.role in {None, "value"}
        and not name.endswith("publish_time")
    )


def _same_tokens(tokens: Array) -> _Fault | None:
    """Return the longest run of one id in a stream of tokens, if no text has such a run.

    Notes:
        A run at the end of fewer than `_LONGEST_PACK` tokens is the padding of a sample. The memory
        is that of a block.
    """
    if tokens.ndim != 1 or len(tokens) < _STREAM:
        return None
    least = max(_SAME_TOKENS, int(_SAME_SHARE * len(tokens)))
    # Every run of that length covers two neighbouring places of this grid.
    step = least // 2
    grid = tokens[::step]
    longest, end = (0, 0), 0
    for place in (np.flatnonzero(grid[1:] == grid[:-1]) * step).tolist():
        if place < end or not (tokens[place : place + step] == tokens[place]).all():
            continue
        first, end = _run_around(tokens, place)
        is_padding = end == len(tokens) < _LONGEST_PACK
        if not is_padding and end - first > longest[1] - longest[0]:
            longest = first, end
    first, end = longest
    if end - first < least:
        return None
    return _Fault(_FROZEN, first, end - 1, -1, float(tokens[first]))


def _run_around(tokens: Array, place: int) -> tuple[int, int]:
    """Return where the run of one id that covers a place begins, and where it ends."""
    first = end = place
    while first > 0:
        others = np.flatnonzero(tokens[max(0, first - _STREAM) : first] != tokens[place])
        first = max(0, first - _STREAM) + (int(others[-1]) + 1 if len(others) else 0)
        if len(others):
            break
    while end < len(tokens):
        others = np.flatnonzero(tokens[end : end + _STREAM] != tokens[place])
        end += int(others[0]) if len(others) else min(_STREAM, len(tokens) - end)
        if len(others):
            break
    return first, end


def _rows_of(column: Column, sample: int) -> Array | None:
    """Return a sample, (columns, rows), None where there are too few or too many."""
    values = np.asarray(column[sample])
    if not 1 <= values.ndim <= 2 or not _ROWS <= len(values) <= _MOST_ROWS:
        return None
    table = values.reshape(len(values), -1)
    if table.shape[1] > _COLUMNS:
        return None
    # Rows last: reductions along the last axis are fast.
    return np.ascontiguousarray(table.T, None if table.dtype.kind == "f" else np.float64)


def _fault(table: Array | None) -> _Fault | None:
    """Return the first kind of fault that a sequence has.

    Shapes:
        table: float (columns, rows)
    """
    if table is None or not len(table):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.diff(table, axis=1)
    low, high = steps.min(axis=1), steps.max(axis=1)
    if not (np.isfinite(low) & np.isfinite(high)).all():
        return None
    probed = np.arange(0, steps.shape[1], max(1, steps.shape[1] // _PROBED))
    largest = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
    usual = np.median(np.abs(steps[:, probed]), axis=1).astype(np.float64)
    rising = (steps[:, probed] > 0).mean(axis=1) > _RISES
    # Columns that may have a fault; most sequences have none, and are not looked at again.
    apart = np.flatnonzero((usual > 0) & (largest > _STEP_MEDIAN / 4 * usual))
    back = np.flatnonzero(rising & (low < 0))
    fault = (
        _turned(table, probed)
        or _apart(table, steps, apart)
        or _backwards(table, steps, back)
        or _frozen(table, steps)
    )
    if fault is None or len(table) > 1:
        return fault
    return fault._replace(column=-1)


def _frozen(table: Array, steps: Array) -> _Fault | None:
    """Return rows that repeat one row, or one number of a column, far longer than others do."""
    if table.shape[1] < _LONG:
        return None
    still = steps == 0
    counts = np.array([np.count_nonzero(column) for column in still])
    if counts.max() < _FROZEN_ROWS:
        return None
    moving = counts < steps.shape[1]
    # at least two columns move, else each column speaks for itself
    if moving.sum() > 1:
        judged = moving & ~((steps > 0).mean(axis=1) > _RISES)
        run = _longest_run(still[judged].all(axis=0)) if judged.any() else None
        long = run is not None and run[1] - run[0] >= _FROZEN_ROWS
        if run is not None and long and any(map(_measures, table[judged])):
            return _Fault(_FROZEN, run[0], run[1], -1, 0.0)
    for place in np.flatnonzero(moving & (counts >= _FROZEN_NUMBERS)).tolist():
        run = _longest_run(still[place])
        if run is None or not _FROZEN_NUMBERS <= run[1] - run[0] <= _BLOCK * table.shape[1]:
            continue
        if _measures(table[place]):
            return _Fault(_FROZEN, run[0], run[1], place, float(table[place, run[0]]))
    return None


def _measures(column: Array) -> bool:
    """Return whether the numbers have fractions, and many differ."""
    fractions = np.count_nonzero(column != np.rint(column))
    return bool(fractions > len(column) / 2) and len(np.unique(column)) >= _DISTINCT


def _longest_run(still: Array) -> tuple[int, int] | None:
    """Return (first row, last row) of the longest run, if it is far longer than the next.

    Notes:
        Runs at the beginning and the end are rests and padding: they count as others only.
    """
    edges = np.diff(np.concatenate([[0], still.astype(np.int8), [0]]))
    first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    lengths = last - first
    if not len(lengths):
        return None
    longest = int(lengths.argmax())
    others = np.delete(lengths, longest)
    if first[longest] == 0 or last[longest] == len(still):
        return None
    if lengths[longest] < _FROZEN_RATIO * (int(others.max(initial=0)) + 1):
        return None
    return int(first[longest]), int(last[longest])


def _backwards(table: Array, steps: Array, places: Array) -> _Fault | None:
    """Return the place at which a column that rises goes back, without beginning anew."""
    for place in places.tolist():
        column, step = table[place], steps[place]
        falls = np.flatnonzero(step < 0)
        rises = np.count_nonzero(step > 0) > _RISES * len(step)
        if not rises or len(falls) > max(1, int(_BACK * len(step))):
            continue
        usual = float(np.median(step[step > 0]))
        for fall in falls.tolist():
            begins_anew = abs(column[fall + 1] - column[0]) <= _RESET * usual
            wraps = np.abs(-step[fall] / _TURNS - 1).min() <= _TURN_SLACK
            if -step[fall] >= usual and not begins_anew and not wraps:
                return _Fault(_BACKWARDS, fall, fall + 1, place, float(-step[fall]))
    return None


def _apart(table: Array, steps: Array, places: Array) -> _Fault | None:
    """Return a block of rows whose numbers stand apart, framed by the two largest steps."""
    for place in places.tolist():
        column, size = table[place], np.abs(steps[place])
        largest = np.argpartition(size, -3)[-3:]
        third, second = np.sort(size[largest])[:2]
        first, last = np.sort(largest[np.argsort(size[largest])[1:]]).tolist()
        median = float(np.median(size))
        if median == 0 or second < _STEP_RATIO * third or second < _STEP_MEDIAN * median:
            continue
        inside = np.abs(column[first + 1 : last + 1])
        outside = np.abs(np.delete(column, slice(first + 1, last + 1)))
        if len(inside) > _BLOCK * len(column) or inside.min() <= outside.max():
            continue
        factor = _factor(column[[first, first + 1, last, last + 1]])
        if factor:
            return _Fault(_SCALED, first + 1, last, place, factor)
        return _Fault(_APART, first + 1, last, place, float(inside.max()))
    return None


def _factor(ends: Array) -> float:
    """Return the factor by which a block differs from the rows before and after it, or 0."""
    before, begin, end, after = ends.tolist()
    fitting = [
        factor
        for factor in _FACTORS
        if abs(begin - before * factor) <= _FIT * abs(begin)
        and abs(end - after * factor) <= _FIT * abs(end)
    ]
    return fitting[0] if len(fitting) == 1 else 0.0


def _turned(table: Array, probed: Array) -> _Fault | None:
    """Return a block of rows whose quaternion is in the other order than before and after it."""
    for place in range(len(table) - 3):
        if not _are_unit(table[place : place + 4, probed]):
            continue
        quaternions = table[place : place + 4].T.astype(np.float64)
        if not _are_unit(quaternions.T):
            continue
        near = np.abs((quaternions[1:] * quaternions[:-1]).sum(axis=1))
        jumps = np.flatnonzero(near < _TURNED)
        if len(jumps) != 2 or np.delete(near, jumps).min() < _STEADY:
            continue
        first, last = int(jumps[0]) + 1, int(jumps[1])
        if last + 1 - first > _BLOCK * len(quaternions):
            continue
        for shift in (1, -1):
            begin, end = (np.roll(quaternions[row], shift) for row in (first, last))
            fits = abs(begin @ quaternions[first - 1]) >= _STEADY
            if fits and abs(end @ quaternions[last + 1]) >= _STEADY:
                return _Fault(_QUATERNION, first, last, place, float(shift))
    return None


def _are_unit(quaternions: Array) -> bool:
    """Tell whether all quaternions, (4, rows), have length 1."""
    lengths = (quaternions.astype(np.float64) ** 2).sum(axis=0)
    return bool((np.abs(lengths - 1) <= _UNIT).all())


@rule(
    "DC231", "broken-sequence", Severity.WARNING, Level.SAMPLE, per="sample", measures=(sequence,)
)
def broken_sequence(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Rows of a table break the sequence of the rows before and after them.

    What:
        In numbers without a role, of 500 rows or more: a column that rises does not go back, but
        for one turn of an angle or counter; no block of rows is far away from the rows before and
        after it; a quaternion does not change its order for some rows. In 1,000 rows or more, no
        row repeats itself 100 times and 10 times longer than in every other run, nor one column 200
        times and in a fifth of the rows at most: one thing may rest for longer. In 65,536 tokens or
        more, no id repeats itself 4,096 times and in a hundredth of the tokens.
    Why it matters:
        A sensor or a topic froze, a clock was set, or a part of the log was written in another
        unit. Each window over these rows teaches a motion that never happened. An array of tokens
        was never filled to its end: the model learns to repeat one id.
    Measure:
        The differences of consecutive rows. Runs at the beginning and the end of a sample count as
        rests or padding, in tokens those at the end of fewer than 500,000; if more than a fifth of
        the samples have runs, things rest in these data. A block is a fifth of the rows at most;
        its first and last step are 50 times the next largest and 1,000 times the median step. A
        unit is named if the rows before and after a block continue it at one factor only.
    When it is wrong:
        The rows do not follow one another, or the machine stood still: give the field its role, or
        switch the rule off. Longer samples of tokens are padded: switch it off.
    Options:
        none
    Bad::

        schema: {fields: {x: {shape: [N]}}}
        samples:
          - {x: {walk: [1200], hold: [150, 360]}}

    Good::

        schema: {fields: {x: {shape: [N]}}}
        samples:
          - {x: {walk: [1200]}}

    Fix:
        Look at these rows in the source. Convert rows of another unit, or drop the part.
    Reference:
        Logs of a hand and of a transformer repeated one row for minutes, and a trajectory had a
        part in millimetres; nothing reported them.
    """
    if ":sequence_field" not in rows:
        return
    measured = rows.measured(":sequence_field")
    names = rows[":sequence_field"]
    kinds = rows[":sequence_kind"]
    for name in sorted(set(names[measured])):
        for kind in sorted(set(kinds[measured & (names == name)].tolist())):
            mask = measured & (names == name) & (kinds == kind)
            if kind == _FROZEN and 1 < mask.sum() > _USUAL * len(rows):
                continue
            tokens = case.schema.spec(str(name)).role == "tokens"
            yield _failure(rows, str(name), int(kind), mask, tokens=tokens)


_WORDS = {
    _FROZEN: ("frozen", "repeat themselves"),
    _BACKWARDS: ("backwards", "go back"),
    _SCALED: ("scaled", "stand apart from the rows around them"),
    _APART: ("apart", "stand apart from the rows around them"),
    _QUATERNION: ("quaternion", "hold the quaternion in another order"),
}


def _failure(rows: Rows, name: str, kind: int, mask: Array, *, tokens: bool) -> Failure:
    sample = int(np.flatnonzero(mask)[0])
    first, last, column, value = (
        rows[f":sequence_{part}"][sample] for part in ("first", "last", "column", "value")
    )
    word, said = _WORDS[kind]
    count = int(last - first) + 1
    where = "" if column < 0 else f" of column {int(column)}"
    unit = "rows"
    if tokens:
        unit, said = "tokens", f"are all {int(value)}"
    text = (
        f"{name}, {pluralize(int(mask.sum()), 'sample')}: {unit} {int(first):,} to {int(last):,}{where} "
        f"{said}"
    )
    cause = None
    fix = "Look at these rows in the source; drop the part, or record it again."
    if kind == _BACKWARDS:
        text += f" by {format_number(float(value))}"
        fix = "Sort the rows if only their order is wrong; else find out where the clock was set."
    elif kind == _SCALED:
        text += f", which continue at {format_number(float(value))} times"
        cause = Cause(f"these rows are in another unit: x{format_number(float(value))}", "unit")
        fix = "Convert these rows."
    elif kind == _FROZEN and tokens:
        fix = "Look at these tokens in the source; write them again if the array was not filled."
    elif kind == _APART:
        text += f": up to {format_number(float(value))}"
    elif kind == _QUATERNION:
        cause = Cause("these rows have the scalar part of the quaternion at the other end", "order")
        fix = "Write these rows in the order of the others."
    return Failure(
        mask,
        f"{text}.",
        measured={"first": int(first), "last": int(last), "rows": count},
        cause=cause,
        fix=fix,
        kind=f"{name}, {word}",
        extra=(name,),
    )
