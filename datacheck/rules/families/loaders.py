"""Rules about a loader: an index always gives the same sample, and all samples are served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.table import Rows
from datacheck.rules.base import (
    RuleContext,
    count_phrase,
    first_few,
    format_number,
    pluralize,
    rule,
)

Array = np.ndarray[Any, Any]
NoteFields = Mapping[str, Any]

# kind: the factor besides the index; what to do; whether it may be intended (augmentation)
_DECIDES: dict[str, tuple[str, str, bool]] = {
    "seed": (
        "drawn from the global random numbers{drew} while a sample is made, so the order of asking "
        "decides",
        "Draw from a generator of the sample's own: default_rng([seed, epoch, index]).",
        True,
    ),
    "build": (
        "drawn from the global random numbers{drew} when the dataset is built",
        "Give the constructor a seed of its own.",
        True,
    ),
    "repeat": (
        "it differs each time: a generator without a seed (default_rng()), the clock, or memory "
        "nobody has written",
        "Seed the generator with (seed, epoch, index).",
        True,
    ),
    "order": (
        "what was asked before decides: the dataset has a generator, a cursor or a cache of its own",
        "Make a sample from its index alone.",
        True,
    ),
    "again": (
        "reading a sample changes it: an array that the dataset keeps is changed in place",
        "Work on a copy: xyz = xyz - xyz.mean(0), not xyz -= xyz.mean(0).",
        False,
    ),
    "directory": (
        "the order in which the file system lists names decides (os.listdir, os.scandir, glob)",
        "Sort every listing: sorted(os.listdir(...)).",
        False,
    ),
    "hash": (
        "the order of a set, or hash(), decides; it is another one in every process "
        "(PYTHONHASHSEED)",
        "Sort before numbering: {name: i for i, name in enumerate(sorted(names))}.",
        False,
    ),
    "workers": ("asking in worker processes decides", "Make a sample from its index alone.", False),
    "fork": (
        "forked workers share what the dataset has open (an HDF5 file)",
        "Open files when a sample is first asked for, in each process.",
        False,
    ),
    "spawn": (
        "workers that start anew build another dataset",
        "Pass on what was decided at the start.",
        False,
    ),
    "died": (
        "a second pass with 2 workers did not come to its end: {error}",
        "Read the dataset with workers.",
        False,
    ),
    "unknown": (
        "no factor alone explains it: order, workers, seed, directory order, hash seed",
        "",
        True,
    ),
}
_SHOWN = 5
_RANDOM = frozenset({"seed", "build", "repeat", "order"})


@rule(
    "DC904",
    "loader-nondeterminism",
    Severity.WARNING,
    Level.DATASET,
    per="sample",
    span="all",
    defaults={"augmented": ()},
)
def loader_nondeterminism(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A loader returns different bytes for the same index.

    What:
        ``scan --loader`` reads the samples twice in fresh processes. The second pass uses two
        workers, reverse order, another seed, another hash seed and reversed directory listings.
        Some samples are also read several times in one process. Each index must give the same bytes
        every time.
    Why it matters:
        Two runs with the same code and files train on different data, so their losses cannot be
        compared. If a random number does not depend on the index, a resumed run cannot draw it
        again.
    Measure:
        xxh3 digest of each field. If two digests differ, up to 48 such samples are requested again
        with one factor changed at a time; the global generators are seeded before each request. The
        finding names every factor that alone changes the samples.
    When it is wrong:
        Augmentation is intended: list its fields in ``augmented``. Validation data should not be
        augmented.
    Options:
        augmented: fields that random numbers may change (none). Changes due to directory order,
        hash order, workers or reading a sample remain errors.
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 3, x: {normal: [4]}}
        listing:
          - {code: DC904, key: s000001, reason: directory, about: {kind: directory, fields: [x], samples: 3,
             compared: 3, tried: 3, indices: [0, 1, 2], difference: 0.5}}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}, rules: {DC904: {augmented: [x]}}}
        samples:
          - {n: 3, x: {normal: [4]}}
        listing:
          - {code: DC904, key: s000001, reason: seed, about: {kind: seed, fields: [x], samples: 3, compared: 3}}

    Fix:
        Sort every directory listing; seed a separate generator for each sample with (seed, epoch,
        index); work on copies.
    Reference:
        SceneLeap lists objects with an unsorted os.listdir: for two copies of a folder, the first
        batches have only 2 of 64 samples in common.
    """
    meant = set(case.options["augmented"])
    for note in case.notes:
        about = note.about
        kind = str(about.get("kind", "unknown"))
        text, fix, random = _DECIDES.get(kind, _DECIDES["unknown"])
        fields = [
            name for name in about.get("fields", ()) if kind not in _RANDOM or name not in meant
        ]
        if not fields and kind != "died":
            continue
        drew = f" ({', '.join(about['drew'])})" if about.get("drew") else ""
        yield Failure(
            np.zeros(len(rows), bool),
            _difference_text(fields, about)
            if kind != "died"
            else "The loader cannot be read with two workers.",
            measured=dict(about),
            cause=Cause(text.format(drew=drew, error=about.get("error", "")), kind),
            fix=fix or "Make a sample from its index alone.",
            severity=Severity.WARNING if random else Severity.ERROR,
            kind=kind,
            extra=tuple(fields),
        )


def _difference_text(fields: list[str], about: NoteFields) -> str:
    count = int(about.get("samples", 0))
    compared = int(about.get("compared", 0))
    first = [str(i) for i in about.get("indices", ())][:_SHOWN]
    indices = ", ".join(first) + (f" and {count - len(first):,} more" if count > len(first) else "")
    far = float(about.get("difference", 0.0))
    amount = f", numbers by up to {format_number(far)}" if far else ""
    return (
        f"{first_few(fields, 4)} of {count:,} of {pluralize(compared)} that were asked for again "
        f"{'differs' if len(fields) == 1 else 'differ'}{amount} (index {indices})."
    )


@rule(
    "DC905",
    "loader-contract",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    span="all",
    defaults={"dropped": 0.0},
)
def loader_contract(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A loader returns another sample than requested, or other data than the files hold.

    What:
        The loader returns the requested index; no sample replaces another one; the dataset ends
        with IndexError. With DATA: no sample fails a rule that the files pass, and no sample of the
        files is left out.
    Why it matters:
        A loader that hides broken files behind zeros, other samples or a shorter epoch silently
        trains on unchecked data.
    Measure:
        Digests of repeatedly requested samples; the indices that the dataset requests from itself
        inside ``__getitem__``; the share of samples that fail each rule, compared between loader
        and files (clearly larger: three times, and by three standard errors); ``len()`` compared
        with the samples and windows of the files.
    When it is wrong:
        Samples are left out on purpose (valid.json): allow their share with ``dropped``.
    Options:
        dropped: largest share of the files' samples that the loader may leave out (0.0).
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 3, x: {normal: [4]}}
        listing:
          - {code: DC905, key: s000001, reason: "", about: {kind: substituted, instead: s000000}}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}, rules: {DC905: {dropped: 10%}}}
        samples:
          - {n: 3, x: {normal: [4]}}
        listing:
          - {code: DC905, key: "", reason: "", about: {kind: dropped, length: 19, count: 20, unit: samples}}

    Fix:
        Raise an exception, or leave broken samples out before training (valid.json), never inside
        ``__getitem__``.
    Reference:
        RDT draws a random item whatever the index; ExCap3D returns item 0 for two scenes; SceneLeap
        returns zeros.
    """
    of_kind: dict[str, list[tuple[str, NoteFields]]] = {}
    for note in case.notes:
        of_kind.setdefault(str(note.about.get("kind", "")), []).append((note.key, note.about))
    of_dataset = {
        "constant": _constant,
        "index-ignored": _ignored,
        "dropped": _dropped,
        "beyond": _beyond,
    }
    for kind, say in of_dataset.items():
        for _, about in of_kind.get(kind, ()):
            yield from say(np.zeros(len(rows), bool), about, case)
    yield from _substituted(rows, of_kind.get("substituted", []))
    yield from _made(rows, of_kind.get("made", []))


def _constant(nothing: Array, about: NoteFields, case: RuleContext) -> Iterator[Failure]:
    del case
    yield Failure(
        nothing,
        f"Every index gives the same sample ({int(about.get('samples', 0)):,} of them).",
        measured=dict(about),
        cause=Cause("the index is not used", "index-ignored"),
        fix="Use the index that __getitem__ is given.",
        kind="constant",
    )


def _ignored(nothing: Array, about: NoteFields, case: RuleContext) -> Iterator[Failure]:
    del case
    requests = int(about.get("asked", 0))
    moved = int(about.get("moved", 0))
    yield Failure(
        nothing,
        f"Of {requests:,} answers to indices that were asked for again, {moved:,} are the sample of "
        f"another index "
        f"({about.get('key', '')} gave {about.get('other', '')}); an epoch of "
        f"{int(about.get('samples', 0)):,} has "
        f"{int(about.get('distinct', 0)):,} different samples.",
        measured=dict(about),
        cause=Cause(
            "the index is not used: a random item, or the next one, is served", "index-ignored"
        ),
        fix="Use the index that __getitem__ is given.",
        kind="index-ignored",
    )


def _where(rows: Rows, keys: Mapping[str, Any]) -> Array:
    return np.array([key in keys for key in rows.keys], dtype=bool)


def _substituted(rows: Rows, notes: list[tuple[str, NoteFields]]) -> Iterator[Failure]:
    if not notes:
        return
    others = {key: str(about.get("instead", "")) for key, about in notes}
    mask = _where(rows, others)
    places = [key for key, substituted in zip(rows.keys, mask, strict=True) if substituted]
    pairs = first_few(f"{key} is {others[key]}" for key in places)
    yield Failure(
        mask,
        f"{count_phrase(mask, 'are')} another one: {pairs}.",
        measured={"instead": {key: others[key] for key in places[:10]}},
        cause=Cause(
            "__getitem__ asks itself for another index and returns that sample", "substituted"
        ),
        fix="Raise, or leave these samples out before training; a substitute counts twice.",
        kind="substituted",
    )


def _made(rows: Rows, notes: list[tuple[str, NoteFields]]) -> Iterator[Failure]:
    rules: dict[str, tuple[NoteFields, dict[str, None]]] = {}
    for key, about in notes:
        rules.setdefault(str(about["rule"]), (about, {}))[1][key] = None
    for code, (about, keys) in sorted(rules.items()):
        mask = _where(rows, keys)
        yield Failure(
            mask,
            f"{count_phrase(mask, 'fail')} {code} {about['name']} as the loader returns them, in "
            f"the files "
            f"{int(about['failed']):,} of {int(about['of']):,} do. {about['says']}",
            measured=dict(about),
            cause=Cause(f"made by the loader: {code}", f"made:{code}", explains=int(mask.sum())),
            fix="Find where __getitem__ writes these values (an exception, a default, a "
            "conversion) and remove it.",
            severity=Severity(str(about["severity"])),
            kind=code,
            extra=tuple(about.get("fields", ())),
        )


def _dropped(nothing: Array, about: NoteFields, case: RuleContext) -> Iterator[Failure]:
    count = int(about["count"])
    length = int(about["length"])
    if count - length <= float(case.options["dropped"]) * count:
        return
    why = [str(words) for words in about.get("why", ())]
    unit = about.get("unit", "samples")
    yield Failure(
        nothing,
        f"The files hold {count:,} {unit}{about.get('where', '')}, the loader serves {length:,}: "
        f"{count - length:,} "
        f"({100 * (count - length) / count:.2g} %) are left out without a word.",
        measured=dict(about),
        cause=Cause(why[0], "dropped", alternatives=tuple(why[1:])) if why else None,
        fix="Say what is left out and why, or allow it: rules: {DC905: {dropped: 1%}}.",
        severity=Severity.WARNING,
        kind="dropped",
    )


def _beyond(nothing: Array, about: NoteFields, case: RuleContext) -> Iterator[Failure]:
    del case
    length = int(about.get("length", 0))
    how = str(about.get("how", ""))
    served = f"is answered with {about['key']}" if about.get("key") else "is answered with a sample"
    yield Failure(
        nothing,
        f"Index {length:,} of a dataset of {length:,} {f'ends in {how}' if how else served}; it "
        f"must raise IndexError.",
        measured=dict(about),
        cause=Cause("__getitem__ falls back to another index instead of raising", "beyond"),
        fix="Raise IndexError for an index that does not exist; a for loop over the dataset never "
        "ends otherwise.",
        severity=Severity.WARNING,
        kind="beyond",
    )
