"""The rule about sequences: holes in the numbering of their frames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import DIGITS, Case, counted, listed, natural, rule
from datacheck.schema.model import Schema
from datacheck.table import Rows

Array = np.ndarray[Any, Any]

_NAMED = 5  # holes in a message
_DIGITS = re.compile(r"\d+")
_ENDING = re.compile(r"\A[^.]+")
_PLACES = 4  # in names, for which lost names are kept by what they are elsewhere


def _ungrouped(schema: Schema) -> str:
    return "" if schema.samples.each is None else "samples.each: what lies inside a file has no numbering to lose"


@rule(
    "DC112", "sequence-gap", Severity.WARNING, Level.GROUP, per="sample", unless=_ungrouped, sees="all",
    defaults={"least": 20, "contiguous": 0.9, "folders": 10, "whole": 0.85},
)  # fmt: skip
def sequence_gap(rows: Rows, case: Case) -> Iterator[Failure]:
    """The numbering of a sequence has holes.

    What:
        Where the frames of a group are numbered and most of them follow one another, all of them do. Without
        ``samples: {group: ...}`` the files of a folder are a group; they are judged where there are many such folders
        and nearly all of them have no hole.
    Why it matters:
        A clip that is cut across a hole jumps; velocities, optical flow and tracking learn the jump.
    Measure:
        The one number that tells the names of a group apart; its usual step (the median); where the step is larger.
    When it is wrong:
        Frames were left out on purpose: switch the rule off, or ``ignore`` the frame behind the hole, with a reason.
    Options:
        least: fewest frames of a group to judge (20). contiguous: share of steps that must be the usual one for the
        rest to count as holes (0.9). folders: without a group, fewest folders as deep with files of one ending (10).
        whole: share of them that must have no hole (0.85).
    Bad::

        schema: {samples: {files: "{seq}/{frame}.pkl", group: "{seq}"}, fields: {x: {role: value, shape: [4]}},
                 rules: {DC112: {least: 4, contiguous: 0.5}}}
        samples:
          - {key: ABF12/0676.pkl, group: ABF12, x: {normal: [4]}}
          - {key: ABF12/0677.pkl, group: ABF12, x: {normal: [4]}}
          - {key: ABF12/0729.pkl, group: ABF12, x: {normal: [4]}}
          - {key: ABF12/0730.pkl, group: ABF12, x: {normal: [4]}}

    Good::

        schema: {samples: {files: "{seq}/{frame}.pkl", group: "{seq}"}, fields: {x: {role: value, shape: [4]}},
                 rules: {DC112: {least: 4, contiguous: 0.5}}}
        samples:
          - {key: ABF12/0676.pkl, group: ABF12, x: {normal: [4]}}
          - {key: ABF12/0677.pkl, group: ABF12, x: {normal: [4]}}
          - {key: ABF12/0678.pkl, group: ABF12, x: {normal: [4]}}
          - {key: ABF12/0679.pkl, group: ABF12, x: {normal: [4]}}

    Fix:
        Restore the frames, or cut the sequence in two at the hole.
    Reference:
        hold issue 32: a copy of HO3D v3 without frames 0678 to 0728 of ABF12.
    """
    if not case.schema.samples.group:
        yield from _in_folders(rows, case)
        return
    keys, groups = rows.keys, dict(rows.by_group())
    lost = _Lost([keys[i] for i in groups.pop("", np.zeros(0, np.int64)).tolist()])
    holes, behind = list[str](), np.zeros(len(rows), bool)
    missing = cut = 0
    for group, places in groups.items():
        numbers = _numbers([keys[i] for i in places.tolist()], lost)
        ends, usual = (np.zeros((0, 2), np.int64), 1) if numbers is None else _holes(np.concatenate(numbers), case)
        if numbers is not None and len(ends):
            cut += 1
            missing += int((np.diff(ends, axis=1) // usual - 1).sum())
            behind[places[np.isin(numbers[0], ends[:, 1])]] = True
            holes += _named(group, ends, usual)
    if behind.any():
        yield Failure(
            behind,
            f"{counted(missing, 'frame')} gone in {counted(cut, 'group')}: {listed(holes)}; named are those behind.",
            measured={"missing": missing, "holes": holes[:20]},
            fix="Restore the frames, or cut the sequence at the hole.",
        )


def _in_folders(rows: Rows, case: Case) -> Iterator[Failure]:
    """Yield the holes in folders, where nearly all folders as deep have files of that ending without a hole."""
    files = rows.files
    kinds: dict[tuple[int, str], dict[str, list[int]]] = {}
    for place, path in enumerate(files.words):
        folder, _, name = path.rpartition("/")
        kinds.setdefault((path.count("/"), _ENDING.sub("", name)), {}).setdefault(folder, []).append(place)
    for _, folders in sorted(kinds.items()):
        if len(folders) >= int(case.options["folders"]):
            yield from _of_kind(folders, rows, case)


def _of_kind(folders: dict[str, list[int]], rows: Rows, case: Case) -> Iterator[Failure]:
    """Yield the holes in folders of one kind; `folders` holds the places of their files in `rows.files.words`."""
    words, lost = rows.files.words, _Lost([])
    behind, holes = np.zeros(len(words), bool), list[str]()
    missing = cut = whole = every = 0
    for folder, places in sorted(folders.items(), key=lambda item: natural(item[0])):
        names = [words[i] for i in places] if len(places) >= int(case.options["least"]) else []
        few = {_DIGITS.sub("#", name) for name in names[:: max(1, len(names) // 3)]}  # most folders differ here already
        numbers = _numbers(names, lost) if len(few) == 1 else None
        if numbers is None:
            continue
        every += 1
        ends, usual = _holes(numbers[0], case)
        gone = int((np.diff(ends, axis=1) // usual - 1).sum())
        if gone > len(places):  # a date among the frames: no such number of files is gone
            continue
        whole += len(set(np.diff(np.sort(numbers[0])).tolist())) == 1
        if len(ends):
            cut += 1
            missing += gone
            behind[np.array(places)[np.isin(numbers[0], ends[:, 1])]] = True
            holes += _named(folder, ends, usual)
    if cut and every >= int(case.options["folders"]) and whole >= float(case.options["whole"]) * every:
        mask = behind[rows.files.rows]
        yield Failure(
            mask,
            f"{counted(missing, 'file')} gone in {cut:,} of {counted(every, 'folder')}: {listed(holes, _NAMED)}; named "
            f"are those behind. {whole:,} folders are numbered without a hole.",
            measured={"missing": missing, "holes": holes[:20]},
            fix="Restore the files, or cut the sequence at the hole.",
            kind="folders",
        )


def _named(group: str, ends: Array, usual: int) -> Iterator[str]:
    """Yield each hole by the name of the group and the numbers that are gone."""
    for before, after in ends.tolist():
        last = f"-{after - usual}" if after > before + 2 * usual else ""
        yield f"{group} {before + usual}{last}"


def _holes(numbers: Array, case: Case) -> tuple[Array, int]:
    """Return the numbers before and behind each hole, int64 (holes, 2), and the usual step; none where most differ."""
    every = np.array(sorted(set(numbers.tolist())), np.int64)  # np.unique imports numpy.ma
    step = np.diff(every)
    usual = int(np.median(step)) if len(step) else 1
    wide = np.flatnonzero(step > usual)
    few = len(every) < max(3, int(case.options["least"]))
    if few or np.count_nonzero(step == usual) < float(case.options["contiguous"]) * len(step):
        wide = wide[:0]
    return np.stack([every[wide], every[wide + 1]], axis=1), usual


class _Lost:
    """Names that no group is known of: what a list names and what is not there.

    Args:
        names: as they are.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._parts = [natural(name) for name in names]
        self._by_place: dict[int, dict[int, list[Any]]] = {}

    def numbers(self, parts: tuple[str | int, ...], place: int) -> list[Any]:
        """Return the numbers at `place` of the names that are equal to `parts` elsewhere."""
        if place not in self._by_place:
            if len(self._by_place) == _PLACES:
                del self._by_place[next(iter(self._by_place))]
            known = self._by_place[place] = {}
            for one in self._parts:
                if len(one) > place:
                    known.setdefault(hash((one[:place], one[place + 1 :])), []).append(one[place])
        return self._by_place[place].get(hash((parts[:place], parts[place + 1 :])), [])


def _numbers(names: Sequence[str], lost: _Lost) -> tuple[Array, Array] | None:
    """Return the one number that tells names apart, and those of lost names like them; None without such a number.

    Shapes:
        first: int64 (names)
        second: int64 (lost)
    """
    if (quick := _counter(names)) is not None:
        numbers, place = quick
        return numbers, np.array(lost.numbers(natural(names[0]), place), dtype=np.int64)
    parts = [natural(name) for name in names]
    if len({len(part) for part in parts}) > 1:
        return None
    columns = list(zip(*parts, strict=True))
    varying = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1 or not varying[0] % 2 or len(set(columns[varying[0]])) < len(names):
        return None
    more = lost.numbers(parts[0], varying[0])
    return np.array(columns[varying[0]], dtype=np.int64), np.array(more, dtype=np.int64)


def _counter(names: Sequence[str]) -> tuple[Array, int] | None:
    """Return what `_numbers` and `natural` find where all names are as long and differ in the digits of one number.

    Returns:
        the number in each name, int64 (names), and its place among the parts of a name; None where names are otherwise.

    Notes:
        Frames are mostly named so; as an array of characters they take a third of the time.
    """
    width, text = len(names[0]), "".join(names)
    if len(names) < 2 or not text.isascii() or {len(name) for name in names} != {width}:
        return None
    signs = np.frombuffer(text.encode(), np.uint8).reshape(len(names), width)
    varying = np.flatnonzero((signs != signs[0]).any(axis=0))
    for number, run in enumerate(re.finditer(r"\d+", names[0])):
        if len(varying) and run.start() <= varying[0] and varying[-1] < run.end() and run.end() - run.start() <= DIGITS:
            digits = signs[:, run.start() : run.end()] - np.int64(ord("0"))
            values = digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
            plain = bool(((digits >= 0) & (digits <= 9)).all()) and len(set(values.tolist())) == len(names)
            return (values, 2 * number + 1) if plain else None
    return None
