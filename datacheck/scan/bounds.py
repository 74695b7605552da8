"""How large result.json may become: what is too much is left out, and the file says how much; Parquet has all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

MOST_BYTES = 900_000

_TEXT, _NAME, _TRACE = 1_000, 4_200, 4_000  # characters of a sentence; of a path, which is no use when it is cut
_SHORT = 300  # of a sentence about a rule, of a name
_LIST = 128  # numbers, names or options kept of a list
_FINDING = 40_000  # bytes; of a larger one the numbers behind it are left out
_COMPARED = 120_000  # bytes of what a rule has compared; it says of how much
_UNSEEN, _UNCHECKED, _CRASHES, _SPLITS = 3, 50, 20, 200
_DEEP = 6


def bounded(said: Mapping[str, Any], size: Callable[[Any], int]) -> dict[str, Any]:
    """Return a result of less than 1 MB.

    Args:
        said: ``datacheck.result/1``; findings come worst first, and the last are left out first.
        size: bytes of a value as it will be written.

    Notes:
        ``left_out`` says how many findings, sentences, crashes and splits are not in the file, where there are any;
        findings that a baseline knows come after all others.
    """
    full = dict(said)
    dataset, splits = dict(full["dataset"]), full["dataset"]["splits"]
    dataset["splits"] = {_cut(name, _SHORT): splits[name] for name in list(splits)[:_SPLITS]}
    crashes = [_crash(crash) for crash in full["crashes"][:_CRASHES]]
    rules = {code: _rule(rule, size) for code, rule in full["rules"].items()}
    unchecked = [_cut(text, _TEXT) for text in full["unchecked"][:_UNCHECKED]]
    full |= {"dataset": dataset, "rules": rules, "unchecked": unchecked, "crashes": crashes, "findings": []}
    full["run"] = {name: _cut(v, _NAME) if isinstance(v, str) else v for name, v in full["run"].items()}
    known = said.get("suppressed", [])
    full |= {"suppressed": []} if known else {}
    room = MOST_BYTES - size(full)
    for number, finding in enumerate([*said["findings"], *known]):
        short = _plain(finding, _TEXT) | {"examples": [_cut(key, _NAME) for key in finding["examples"]]}
        if size(short) > _FINDING:
            short |= {"measured": {}, "expected": {}}
        room -= size({"findings": [short]})
        if room < 0:
            break
        full["findings" if number < len(said["findings"]) else "suppressed"].append(short)
    left_out = {
        name: len(before) - len(after)
        for name, before, after in (
            ("findings", said["findings"], full["findings"]), ("suppressed", known, full.get("suppressed", [])),
            ("unchecked", said["unchecked"], unchecked), ("crashes", said["crashes"], crashes),
            ("splits", splits, dataset["splits"]),
        )
        if len(after) < len(before)
    }  # fmt: skip
    return full | ({"left_out": left_out} if left_out else {})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 2]} …"


def _crash(crash: Mapping[str, str]) -> dict[str, str]:
    trace = crash["traceback"]
    return {name: _cut(text, _SHORT) for name, text in crash.items()} | {
        "traceback": trace if len(trace) <= _TRACE else f"… {trace[2 - _TRACE :]}"  # the end says what happened
    }


def _rule(rule: Mapping[str, Any], size: Callable[[Any], int]) -> dict[str, Any]:
    short: dict[str, Any] = _plain(rule, _SHORT)
    if "compared" in short:
        ends = accumulate(size({"measures": [one]}) for one in short["compared"]["measures"])
        kept = sum(end <= _COMPARED for end in ends)
        short["compared"] |= {"measures": short["compared"]["measures"][:kept]}
    return short | ({"unseen": short["unseen"][:_UNSEEN]} if "unseen" in short else {})


def _plain(value: Any, text: int, depth: int = 0) -> Any:
    """Return JSON values with long texts, lists and dicts cut."""
    if isinstance(value, str):
        return _cut(value, text)
    if isinstance(value, Mapping):
        kept = list(value.items())[:_LIST] if depth < _DEEP else []
        return {_cut(str(name), _SHORT): _plain(item, text, depth + 1) for name, item in kept}
    if isinstance(value, Sequence):
        return [_plain(item, text, depth + 1) for item in value[:_LIST]] if depth < _DEEP else []
    return value
