"""Rules about names: files that should lie beside a sample, names that collide, junk, holes in a numbering."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import DIGITS, Case, Columns, counted, listed, measure, natural, rule, stretches, those
from datacheck.sample import Block
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Rows, Texts

Array = np.ndarray[Any, Any]


def _companions(schema: Schema) -> dict[str, FieldSpec]:
    wanted = {n: s for n, s in schema.stored.items() if s.file is not None and not s.optional and not s.absent}
    return dict(sorted(wanted.items()))


def _no_companions(schema: Schema) -> str:
    return "" if _companions(schema) else "no field that must be there lies in a file of its own"


@measure("companions", per="sample", uses=("fields.file", "fields.optional", "fields.absent"), depth="structure")
def companions(block: Block, schema: Schema) -> Columns:
    """Which file of its own a field has not: ``lacks/<field>``, its path (and entry in it), "" where it is there."""
    found: dict[str, Measured] = {}
    for name in _companions(schema):
        column = block.facts.get(f"absent/{name}")
        paths = [""] * len(block) if column is None else [str(path) for path in column.objects]
        found[f"lacks/{name}"] = Measured(np.array(paths, dtype=object), np.ones(len(block), bool))
    return found


@rule(
    "DC104", "missing-companion", Severity.ERROR, Level.SAMPLE, per="sample", measures=(companions,),
    unless=_no_companions,
)  # fmt: skip
def missing_companion(rows: Rows, case: Case) -> Iterator[Failure]:
    """A file that belongs to a sample is not there.

    What:
        Every field with ``file`` has its file, and where one file serves all samples its entry in it, unless the field
        is ``optional`` or ``absent`` in this split.
    Why it matters:
        Loaders pass over such samples without a word, or put zeros where the mesh, the depth or the caption should be.
    Measure:
        The path that the pattern gives for each sample; runs of numbered samples are told as one.
    When it is wrong:
        Not every sample has such a file: ``optional: true``. It lies elsewhere: correct ``file``, or name the folder
        with ``--root NAME=DIR``.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}, depth: {role: depth, file: "{seq}/depth/{frame}.png"}}}
        samples:
          - {n: 2, x: {normal: [4]}, depth: {full: [3, 4], value: 2}}
          - {key: ABF12/0678, x: {normal: [4]}, facts: {absent/depth: ABF12/depth/0678.png}}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}, depth: {role: depth, file: "{seq}/depth/{frame}.png"}}}
        samples:
          - {n: 2, x: {normal: [4]}, depth: {full: [3, 4], value: 2}}

    Fix:
        Restore the files, or take the samples off the list.
    Reference:
        UTNet and RDT skip such samples inside their loaders; hold issue 32: HO3D without frames 0678 to 0728 of ABF12.
    """
    for name in _companions(case.schema):
        if f":lacks/{name}" not in rows:
            continue
        paths = rows[f":lacks/{name}"]
        missing = rows.measured(f":lacks/{name}") & (paths != "")
        if missing.any():
            keys = stretches(key for key, gone in zip(rows.keys, missing, strict=True) if gone)
            yield Failure(
                missing,
                f"{those(missing, 'have')} no {name}: {listed(sorted(set(paths[missing])))} not found; these are "
                f"{listed(keys)}.",
                measured={"files": sorted(set(paths[missing]))[:10], "samples": keys[:20]},
                fix="Restore the files, take the samples off the list, or declare the field optional: true.",
                kind=name,
                extra=(name,),
            )


@measure("called", version=2, per="sample", depth="structure")
def called(block: Block, schema: Schema) -> Columns:
    """What a sample is called beside its path: `id`; nothing where that is its key, which no two samples share."""
    del schema
    column = block.facts.get("id")
    if column is None or column.kind == "array" or column.objects == block.keys:
        return {}
    return {"id": [str(name) for name in column.objects]}


def _folded(names: Sequence[str]) -> list[str]:
    """Return what names are on a disk that knows neither case nor two ways to write an accent."""
    text = "\0".join(names)
    if text.isascii() and text.count("\0") == len(names) - 1:
        return text.lower().split("\0")
    return [unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()) for name in names]


def _alike(names: Sequence[str]) -> Array:
    """Return bool (names): those that stand more than once."""
    if len(set(names)) == len(names):
        return np.zeros(len(names), bool)
    count = Counter(names)
    return np.array([count[name] > 1 for name in names])


@rule("DC106", "duplicate-id", Severity.ERROR, Level.DATASET, per="sample", measures=(called,), span="all", sees="all")
def duplicate_id(rows: Rows, case: Case) -> Iterator[Failure]:
    """Two samples have one name, or would have on another disk.

    What:
        The placeholders of a file pattern tell the samples of a split apart (error). No two files have names that
        differ in upper and lower case, or in how an accent is written, alone (warning).
    Why it matters:
        One of the two replaces the other in every table keyed by name, and on the disk of the next machine that does
        not tell case apart.
    Measure:
        Names of samples within a split; paths of files after Unicode NFC and case folding.
    When it is wrong:
        Two patterns of ``samples: {files: ...}`` claim two forms of one sample on purpose: name one of them.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {key: scenes/mug.npy, x: {normal: [4]}}
          - {key: scenes/Mug.npy, x: {normal: [4]}}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {key: scenes/mug_1.npy, x: {normal: [4]}}
          - {key: scenes/mug_2.npy, x: {normal: [4]}}

    Fix:
        Rename one of them, in the lists too.
    Reference:
        Git for Windows FAQ and Apple File System reference: both file systems fold case by default.
    """
    del case
    if len(rows):
        yield from _same_name(rows)
        yield from _collide(rows)


def _same_name(rows: Rows) -> Iterator[Failure]:
    known = rows.measured(":id")
    if not known.any():
        return
    told = rows[":id"][known].tolist()
    if len(set(told)) == len(told):
        return
    names = Texts.of(told)
    pairs = rows.splits.rows[known].astype(np.int64) * max(1, len(names.words)) + names.rows
    _, place, count = np.unique(pairs, return_inverse=True, return_counts=True)
    same = known.copy()
    same[known] = count[place] > 1
    if same.any():
        few = sorted(set(rows[":id"][same]))
        yield Failure(
            same,
            f"{those(same, 'share')} {counted(len(few), 'name')} with another one: {listed(few)}.",
            measured={"names": few[:10]},
            fix="Narrow samples: {files: ...} to one form of each sample, or rename.",
            kind="same",
        )


def _collide(rows: Rows) -> Iterator[Failure]:
    files = rows.files
    every = files.present()
    folded = _alike(_folded(every))
    if folded.any():
        few = [name for name, alike in zip(every, folded, strict=True) if alike]
        yield Failure(
            np.isin(files.rows, [number for number, name in enumerate(files.words) if name in set(few)]),
            f"{counted(len(few), 'file')} would collide where case or accents do not count: {listed(few)}.",
            measured={"files": few[:10]},
            fix="Rename them before the data are copied to another disk.",
            severity=Severity.WARNING,
            kind="folded",
        )


@rule("DC107", "junk-file", Severity.WARNING, Level.FILE, per="sample", span="all", sees="all")
def junk_file(rows: Rows, case: Case) -> Iterator[Failure]:
    """A file was left behind by another program, or has a name with characters that nobody sees.

    What:
        ``._*``, ``.DS_Store``, ``Thumbs.db``, ``desktop.ini``, ``*~``, ``*.tmp``, ``*.part``, ``*.crdownload`` and
        ``*.swp``; names with control, direction or zero-width characters, but for the joiner between two emoji;
        names that begin or end with a space.
    Why it matters:
        ``Path.glob("*.npy")`` matches ``._scene.npy``, which is no array; a half download has the name of a whole one;
        a name with an invisible character is not the name in the list.
    Measure:
        Names of the listing. Files of the first kind are never read as samples here.
    When it is wrong:
        Such a file is meant to be there: waive it with ``ignore`` and a ``reason``.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
        listing:
          - {code: DC107, key: train/._scene.npy, reason: left behind by another program}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}

    Fix:
        Delete them; rename what has an invisible character.
    Reference:
        Apple "AppleDouble" (RFC 1740): ``._name`` holds the other half of a file. Unicode TR 36: invisible characters.
    """
    reasons: dict[str, list[str]] = {}
    for note in case.notes:
        reasons.setdefault(note.reason, []).append(note.key)
    for reason, keys in sorted(reasons.items()):
        shown = ["".join(c if c.isprintable() else repr(c)[1:-1] for c in key) for key in sorted(keys)]
        said = reason if len(keys) == 1 else reason.replace("has a", "have a").replace("begins or ends", "begin or end")
        yield Failure(
            np.zeros(len(rows), bool),
            f"{counted(len(keys), 'name')} ({listed(shown)}): {said}.",
            measured={"names": len(keys), "first": shown[:10]},
            kind=reason.partition(":")[0],
            fix="Delete them, or rename those that are data.",
        )


def _ungrouped(schema: Schema) -> str:
    if schema.samples.each is not None:
        return "samples.each: what lies inside a file has no numbering to lose"
    return "" if schema.samples.group else "samples.group names no sequence"


@rule(
    "DC112", "sequence-gap", Severity.WARNING, Level.GROUP, per="sample", unless=_ungrouped, sees="all",
    defaults={"least": 20, "contiguous": 0.9},
)  # fmt: skip
def sequence_gap(rows: Rows, case: Case) -> Iterator[Failure]:
    """The numbering of a sequence has holes.

    What:
        Where the frames of a group are numbered and most of them follow one another, all of them do.
    Why it matters:
        A clip that is cut across a hole jumps; velocities, optical flow and tracking learn the jump.
    Measure:
        The one number that tells the names of a group apart; its usual step (the median); where the step is larger.
    When it is wrong:
        Frames were left out on purpose: switch the rule off, or ``ignore`` the frame behind the hole, with a reason.
    Options:
        least: fewest frames of a group to judge (20). contiguous: share of steps that must be the usual one for the
        rest to count as holes (0.9).
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
            for before, after in ends.tolist():
                last = f"-{after - usual}" if after > before + 2 * usual else ""
                holes.append(f"{group} {before + usual}{last}")
    if behind.any():
        yield Failure(
            behind,
            f"{counted(missing, 'frame')} gone in {counted(cut, 'group')}: {listed(holes)}; named are those behind.",
            measured={"missing": missing, "holes": holes[:20]},
            fix="Restore the frames, or cut the sequence at the hole.",
        )


def _holes(numbers: Array, case: Case) -> tuple[Array, int]:
    """Return the numbers before and behind each hole, int64 (holes, 2), and the usual step; none where most differ."""
    every = np.unique(numbers)
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
        self._by_place: dict[int, dict[Any, list[Any]]] = {}

    def numbers(self, parts: tuple[str | int, ...], place: int) -> list[Any]:
        """Return the numbers at `place` of the names that are equal to `parts` elsewhere."""
        if place not in self._by_place:
            known = self._by_place[place] = {}
            for one in self._parts:
                if len(one) > place:
                    known.setdefault((one[:place], one[place + 1 :]), []).append(one[place])
        return self._by_place[place].get((parts[:place], parts[place + 1 :]), [])


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
            plain = bool(((digits >= 0) & (digits <= 9)).all()) and len(np.unique(values)) == len(names)
            return (values, 2 * number + 1) if plain else None
    return None
