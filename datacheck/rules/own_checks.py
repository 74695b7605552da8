"""User-defined checks: each ``checks: [package.module:function]`` of a schema becomes a rule."""

from __future__ import annotations

import inspect
import math
import numbers
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import Block
from datacheck.model.table import Measured, Rows
from datacheck.plugins import resolve
from datacheck.rules.base import (
    Columns,
    Measure,
    Rule,
    RuleContext,
    count_phrase,
    format_number,
    pluralize,
)
from datacheck.runtime.hashing import digest_file
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_MOST = 500  # characters of a check's message that are kept


def check_rules(schema: Schema) -> dict[str, Rule]:
    """Return a rule for each of the schema's own checks, by its name ``package.module:function``.

    Notes:
        ``function(sample: Sample)`` returns None or True for a good sample, and False or a sentence
        for a bad one. It may also return a number, which
        ``rules: {package.module:function: {low: ..., high: ...}}`` judges.
    """
    return {name: _rule(name) for name in schema.checks}


def _rule(name: str) -> Rule:
    measure = Measure(
        f"check {name}", 1, "sample", partial(_run_check, name), outside=partial(_source, name)
    )
    return Rule(
        name,
        "own-check",
        Severity.ERROR,
        Level.SAMPLE,
        _judge_of(name),
        per="sample",
        measures=(measure,),
        suppressed_by=("DC109", "DC121", "DC122", "DC123", "DC221"),
        defaults={"low": None, "high": None},
    )


def _function(name: str) -> Callable[..., Any]:
    function = resolve(name)
    if not callable(function):
        msg = (
            f"checks: {name} is not a function. A check is called with a sample: its key and its "
            f"fields."
        )
        raise UsageError(msg)
    return function  # type: ignore[no-any-return]


def _source(name: str, schema: Schema) -> str:
    """Return the digest of the file that defines the check: an edited check measures again."""
    del schema
    source = inspect.getsourcefile(inspect.unwrap(_function(name)))
    return digest_file(source) if source is not None and Path(source).is_file() else ""


def _run_check(name: str, block: Block, schema: Schema) -> Columns:
    """Run the user's function on each sample: `bad`, `value`, what it `said`, if it `raised`."""
    del schema
    function = _function(name)
    count = len(block)
    bad = np.zeros(count, bool)
    raised = np.zeros(count, bool)
    messages = [""] * count
    value = np.zeros(count)
    has_value = np.zeros(count, bool)
    for place, sample in enumerate(block):
        try:
            answer = _check_result(function(sample))
        # The judge decides: a sample that fails one of `suppressed_by` gives no crash verdict.
        except Exception:  # noqa: BLE001
            raised[place], messages[place] = True, traceback.format_exc()[-_MOST:]
            continue
        if isinstance(answer, float):
            value[place], has_value[place] = answer, True
        else:
            bad[place], messages[place] = answer != "", answer.strip()[:_MOST]
    numbers_said = Measured(value, has_value)
    return {
        f"{name}:bad": bad,
        f"{name}:value": numbers_said,
        f"{name}:said": messages,
        f"{name}:raised": raised,
    }


def _check_result(result: Any) -> float | str:
    """Return a check's number or complaint.

    The complaint is "" for a good sample, a blank for a bad one without a reason.
    """
    if result is None or isinstance(result, bool | np.bool_):
        return "" if result is None or result else " "
    if isinstance(result, str):
        return result or " "
    if isinstance(result, numbers.Real | np.number) or (
        isinstance(result, np.ndarray) and result.size == 1
    ):
        return " it is NaN" if math.isnan(float(result)) else float(result)
    msg = f"a check returns None, a bool, a number or a sentence, not {type(result).__name__}"
    raise TypeError(msg)


def _judge_of(name: str) -> Callable[[Rows, RuleContext], Iterator[Failure]]:
    def judge(rows: Rows, case: RuleContext) -> Iterator[Failure]:
        """A check of your own fails.

        What:
            What your function says of each sample.
        Why it matters:
            You know things of your data that no schema says.
        Measure:
            None and True are good, False and a sentence are bad, a number is held against ``low``
            and ``high``.
        When it is wrong:
            Mend the function.
        Options:
            low, high: allowed numbers.
        Fix:
            As your check says.
        Reference:
            The function named by the rule.
        """
        column = f":{name}:"
        if f"{column}bad" not in rows:
            return
        raised = rows[f"{column}raised"]
        if raised.any():
            raise RuntimeError(str(rows[f"{column}said"][np.flatnonzero(raised)[0]]))
        yield from _failures(rows, case, column)

    return judge


def _failures(rows: Rows, case: RuleContext, column: str) -> Iterator[Failure]:
    bad = rows[f"{column}bad"]
    value = rows[f"{column}value"]
    messages = rows[f"{column}said"]
    if bad.any():
        first_message = str(messages[np.flatnonzero(bad)[0]])
        yield Failure(
            bad,
            f"{count_phrase(bad, 'fail')} this check{': ' + first_message if first_message else ''}.",
            fix="As your check says.",
        )
    low, high = (
        math.nan if case.options[k] is None else float(case.options[k]) for k in ("low", "high")
    )
    off = rows.measured(f"{column}value") & ((value < low) | (value > high))
    if off.any():
        span = f"{'' if math.isnan(low) else f'{low:g}'}..{'' if math.isnan(high) else f'{high:g}'}"
        yield Failure(
            off,
            f"{pluralize(int(off.sum()))} at {format_number(float(np.median(value[off])))} "
            f"(median), allowed {span}.",
            measured={"median": float(np.median(value[off]))},
            expected={"range": span},
            kind="range",
            fix="As your check says.",
            order=np.abs(value),
        )
