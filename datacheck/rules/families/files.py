"""Rules about files: unreadable ones, mismatched lists, changes, a loader's placeholders."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Origins
from datacheck.model.table import FAULT, NOT_LISTED, Measured, Note, Rows, Texts
from datacheck.rules.base import (
    DIGITS,
    Columns,
    RuleContext,
    collapse_ranges,
    count_phrase,
    first_few,
    match_texts,
    measure,
    natural_key,
    pluralize,
    rule,
    unreadable,
)
from datacheck.rules.measures import form, numbers
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

# Other rules that judge unreadable rows.
_OTHER_CODES = ("DC102", "DC103", "DC105", "DC110", "DC701")
_FIXES = {  # by the kind of a DC105 note
    "videos": "Restore the videos.",
    "outside": "Correct the paths in the index, and move the files below its folder.",
    "gone": "Restore the files, or take out what speaks of them.",
    "unnamed": "Add the rows that are missing, or move these files out of the folder.",
    "rows": "Keep the row that is right.",
    "unpaired": "Restore the pictures, or take out their rows: behind the first one that is gone, every "
    "picture gets the camera of another.",
    "partly": "Copy the other files, too, if training reads them.",
    "twice": "Take them off one of the lists.",
    "uncompared": "Scan its folders one by one to have them compared.",
    "unsought": "Correct the indexes that name far more files than are there, or scan their "
    "folders one by one.",
    "rates": "Scan its folders one by one to have each dataset judged by its rate.",
}
# None: an error, as for a missing file.
_SEVERITIES = {
    "videos": None,
    "outside": None,
    "unsought": None,
    "unpaired": None,
    "rates": None,
    "uncompared": Severity.INFO,
    "partly": Severity.INFO,
}
# So many zeros are no coincidence; a force at rest or a single position has fewer numbers.
_LEAST = 8
_NOT_DATA = frozenset(
    {
        "flag",
        "mask",
        "segment",
        "class",
        "instance",
        "reward",
        "id",
        "faces",
        "timestamp",
        "tokens",
        "labels",
    }
)


@rule("DC101", "unreadable-file", Severity.ERROR, Level.FILE, per="sample", sees="all")
def unreadable_file(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A file is damaged or its bytes are refused, or a folder cannot be listed.

    What:
        Every listed file was opened, and every declared value in it was read, not only the header.
        Every folder was listed; a folder that could not be listed counts as one unreadable sample,
        because it may hold any number of them.
    Why it matters:
        Loaders skip such files silently, or crash in the middle of an epoch. A truncated download
        looks intact until the missing part is read.
    Measure:
        The parser's own message for each sample that could not be read.
    When it is wrong:
        The file is in a variant of its format that datacheck does not know; the message says what
        was found.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {x: {normal: [4]}}
          - {unreadable: "DC101 truncated: 2,061,429,892 of 2,095,674,688 bytes"}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}

    Fix:
        Download or write the file again, and compare its size and digest with the source.
    Reference:
        LIBERO issue 76: a file on the hub ends after 590,254,080 of 806,284,784 bytes.
    """
    del case
    unlisted = unreadable(rows, lambda reason: reason.startswith(f"DC101 {NOT_LISTED}"))
    if unlisted.any():
        yield _unlisted(rows, unlisted)
    mask = unreadable(rows, lambda reason: not reason.startswith(_OTHER_CODES)) & ~unlisted
    if mask.any():
        reasons = [rows.table.reasons[int(i)] for i in rows.index[mask]]
        kinds = Counter(r.partition(" ")[2] or r for r in reasons)
        ours = sum(FAULT in kind for kind in kinds)
        ways = [
            "Write or download them again, or correct the schema where the files are right."
        ] * (ours < len(kinds))
        ways += ["Report the fault of datacheck, and leave its samples out until then."] * (
            ours > 0
        )
        yield Failure(
            mask,
            f"{pluralize(int(mask.sum()))} cannot be read: {_most_common(kinds)}.",
            measured={"reasons": dict(kinds.most_common(10))},
            fix=" ".join(ways),
        )


def _unlisted(rows: Rows, mask: Array) -> Failure:
    """Return the finding of folders that could not be listed."""
    whys = Counter(rows.table.reasons[int(i)].partition(NOT_LISTED)[2] for i in rows.index[mask])
    names = collapse_ranges(key for key, unlisted in zip(rows.keys, mask, strict=True) if unlisted)
    return Failure(
        mask,
        f"{pluralize(int(mask.sum()), 'folder')} cannot be listed, and may hold samples: "
        f"{first_few(names)}: "
        f"{_most_common(whys)}.",
        measured={"folders": names[:20], "reasons": dict(whys.most_common(10))},
        kind="not listed",
        fix="Give the user who scans the right to read them, or move them out of DATA. For links, "
        "follow the message.",
    )


def _most_common(kinds: Counter[str], most: int = 3) -> str:
    """Return the most common reasons with counts; many different ones are grouped first.

    Reasons of a group have the same beginning.
    """
    if len(kinds) == 1:
        return next(iter(kinds))
    if len(kinds) > most:
        grouped = Counter[str]()
        for reason, count in kinds.items():
            head, _, rest = reason.partition(": ")
            # A reason about one value begins with the name of that value.
            value = f"{head}: {rest.partition(': ')[0]}"
            grouped[head if " " in head or not rest else value] += count
        kinds = grouped
    phrases = [f"{reason} ({count:,})" for reason, count in kinds.most_common(most)]
    more = [pluralize(len(kinds) - most, "other reason")] if len(kinds) > most else []
    return "; ".join(phrases + more)


@rule("DC102", "lfs-pointer", Severity.ERROR, Level.FILE, per="sample", sees="all")
def lfs_pointer(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A Git LFS pointer, or a web page from a server, lies in place of the data.

    What:
        No file begins with the bytes of a Git LFS pointer, or with those of an HTML or XML page
        where no format expects one.
    Why it matters:
        A clone without LFS looks complete, because every file has its name. Loaders then say
        "invalid load key, 'v'".
    Measure:
        The first bytes of files below 1 kB, and of every file that its parser refuses.
    When it is wrong:
        No case is known: no format that datacheck reads begins like this.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
          - {n: 2, unreadable: "DC102 a Git LFS pointer, not the data: git lfs pull"}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}

    Fix:
        Run ``git lfs pull`` in the clone. If the file is a web page, download it again and look at
        the server's response.
    Reference:
        Git LFS specification 1.0: pointer files begin with ``version https://git-lfs``.
    """
    del case
    mask = unreadable(rows, lambda reason: reason.startswith("DC102"))
    if mask.any():
        kinds = Counter(rows.table.reasons[int(i)].partition(" ")[2] for i in rows.index[mask])
        pointers = any("LFS" in reason for reason in kinds)
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} no data: {_most_common(kinds)}.",
            measured={"reasons": dict(kinds.most_common(10))},
            cause=Cause("cloned without Git LFS", "lfs")
            if pointers
            else Cause("a failed download", "page"),
            fix="git lfs pull" if pointers else "Download them again.",
        )


@rule("DC105", "list-mismatch", Severity.ERROR, Level.DATASET, per="sample", sees="all")
def list_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The lists of a split and the files on disk do not name the same samples.

    What:
        Each line of ``samples: {list: ...}`` has its file, and no entry of a YAML or JSON list is
        empty (errors). Each matching file is in one list, once (warning). Each file that the
        ``index.json`` of MDS shards or the meta folder of a LeRobot dataset names exists below the
        folder of the dataset, including videos (error). If most files that a JSON document or a
        column of a table (.csv, .tsv) names exist, all of them do. If rows, one for each file, name
        nearly all files of a folder, they name all of them. Two rows of one file do not differ only
        in a label. If two kinds of files side by side (such as images and depth maps) have the same
        names, a third kind that has most of these names has all of them (warnings). No file name is
        both in ``train.txt`` and in the ``val.txt`` or ``test.txt`` beside it (warning). The folders
        of pictures (``images``, ``images_4``) beside ``poses_bounds.npy`` of LLFF hold as many
        pictures as it has rows (error).
    Why it matters:
        Loaders skip a missing file silently, so an epoch is shorter than the list says.
    Measure:
        Two set differences, computed from the listing and the lists alone. In documents (16 MiB at
        most), all texts that are file names, up to 200,000; an info says so if there are more. In
        tables, columns of file names, with or without ending, up to 100,000 each; names are looked
        for below the folder of the table, else by the longest end of their paths that nearly all of
        them share with files. An info counts the files of a column most of which are absent.
    When it is wrong:
        Files are left out of every list on purpose: switch the warning off, or narrow ``samples:
        {files: ...}``. A table leaves out a few pictures of its folder on purpose. In the YOLO
        layout an image without objects may have no label file; it is reported if two other kinds of
        files have its name.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
          - {key: ABF12/0678, unreadable: "DC105 train.txt names ABF12/0678, but there is no such file"}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 3, x: {normal: [4]}}

    Fix:
        Restore the files, or write the list again without them.
    Reference:
        hold issue 32: a copy of HO3D v3 without meta ABF12/0678 to 0728.
    """
    empty = unreadable(rows, lambda reason: reason.startswith("DC105 is an empty entry"))
    if empty.any():
        yield _empty(rows, empty)
    missing = unreadable(rows, lambda reason: reason.startswith("DC105")) & ~empty
    if missing.any():
        missing_names = collapse_ranges(
            key for key, lost in zip(rows.keys, missing, strict=True) if lost
        )
        yield Failure(
            missing,
            f"{count_phrase(missing, 'are')} in a list but not on disk: {first_few(missing_names)}.",
            measured={"missing": missing_names[:20]},
            kind="missing",
            fix="Restore the files, or take their names off the list.",
        )
    reasons: dict[tuple[str, str], list[str]] = {}
    for note in case.notes:
        if not note.missing:
            reasons.setdefault((note.reason, note.about.get("kind", "")), []).append(note.key)
    for (reason, kind), keys in sorted(reasons.items()):
        yield Failure(
            np.zeros(len(rows), bool),
            f"{pluralize(len(keys), 'name')} ({first_few(sorted(keys))}): {reason}.",
            measured={"names": len(keys), "first": sorted(keys)[:10]},
            severity=_SEVERITIES.get(kind, Severity.WARNING),
            # Without counts and the path that follows.
            kind=re.sub(r"\d[\d,.]*", "N", re.split(r":|, | in ", reason)[0]),
            fix=_FIXES.get(
                kind, "Correct the list, or move what it does not name out of the folder."
            ),
        )


def _empty(rows: Rows, empty: Array) -> Failure:
    """Return the finding of entries that name no sample."""
    places = collapse_ranges(key for key, lost in zip(rows.keys, empty, strict=True) if lost)
    return Failure(
        empty,
        f"{pluralize(int(empty.sum()), 'place')} in a list "
        f"{'holds' if empty.sum() == 1 else 'hold'} None, or no path: "
        f"{first_few(places)}.",
        measured={"empty": places[:20]},
        cause=Cause("preprocessing failed for them, and wrote None in their place", "none"),
        kind="none",
        fix="Look up in the log of the preprocessing which these are, run it again for them, or "
        "take them out.",
    )


@rule("DC108", "changed-since-last-listing", Severity.WARNING, Level.FILE, per="sample", sees="all")
def changed_since_last_listing(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The content of a file has changed since the last scan.

    What:
        The digests of this listing are compared with those of the last listing of the same root.
    Why it matters:
        Two runs "on the same data" are not comparable if one byte of one file differs.
    Measure:
        xxh3 digests, per file; a file with the same size and times counts as unchanged unless
        ``--rehash`` is given.
    When it is wrong:
        The file was replaced on purpose; the next scan does not report it again.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
        listing:
          - {code: DC108, key: s000001, reason: "content differs from the last scan"}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}

    Fix:
        If the change was not intended, restore the file from its source; then build the cache
        again.
    Reference:
        Two validation losses, 7.86 and 8.89, with "identical" code and data on two machines.
    """
    changed = {note.key for note in case.notes}
    if changed:
        files = rows.table.files
        mask = np.array(
            [
                k in changed or files[int(i)] in changed
                for k, i in zip(rows.keys, rows.index, strict=True)
            ]
        )
        yield Failure(
            mask.astype(bool),
            f"{pluralize(len(changed), 'file')} changed since the last scan: "
            f"{first_few(sorted(changed))}.",
            measured={"changed": sorted(changed)[:10]},
            fix="Restore the files if nobody meant to change them; otherwise build the cache again.",
        )


@rule("DC110", "unsafe-pickle", Severity.ERROR, Level.FILE, per="sample", sees="all")
def unsafe_pickle(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A pickle refers to code: it holds more than NumPy arrays and plain values.

    What:
        Pickles, and ``.npy`` and ``.npz`` files of objects, refer to NumPy's own constructors and
        to nothing else.
    Why it matters:
        ``pickle.load`` and ``allow_pickle=True`` run the code to which such a file refers, so its
        author controls the machine.
    Measure:
        The first name that the restricted reader refuses; datacheck never runs anything that a
        pickle names.
    When it is wrong:
        The file holds objects of the project that wrote it (torch tensors, configuration classes).
        They may be harmless, but no other program can read them without running that code.
    Options:
        none
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
          - {unreadable: "DC110 the pickle asks for os.system; only NumPy arrays and plain values are read"}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}

    Fix:
        Convert the files at their source to ``.npz`` or HDF5.
    Reference:
        Python documentation of pickle: "never unpickle data that could have come from an untrusted
        source".
    """
    del case
    mask = unreadable(rows, lambda reason: reason.startswith("DC110"))
    if mask.any():
        kinds = Counter(rows.table.reasons[int(i)].partition(" ")[2] for i in rows.index[mask])
        yield Failure(
            mask,
            f"{count_phrase(mask, 'ask')} for more than data: {_most_common(kinds)}.",
            measured={"reasons": dict(kinds.most_common(10))},
            fix="Do not load them with pickle. Convert them at their source to .npz or HDF5.",
        )


def _placeholder_signs(rows: Rows, schema: Schema) -> tuple[Array, Array, list[str], Array]:
    """Return the signs of a placeholder sample, one without recorded data.

    Shapes:
        data: int (rows): declared float fields with values; 0 for a sample of fewer than 8 numbers,
            which may all be 0 in earnest
        zero: int (rows): those of them that are 0 throughout
        flags: names of the fields that must have one value, and wrong: bool (flags, rows) where
            they have another
    """
    data, zero, size = (np.zeros(len(rows), np.int64) for _ in range(3))
    flags: list[str] = []
    wrong: list[Array] = []
    for name, spec in sorted(schema.stored.items()):
        measured = rows.measured(f"{name}:min", f"{name}:dtype")
        if not measured.any():
            continue
        low = rows[f"{name}:min"].min(axis=1)
        high = rows[f"{name}:max"].max(axis=1)
        if spec.must_be is not None:
            flags.append(name)
            wrong.append(measured & ((low != spec.must_be) | (high != spec.must_be)))
        # A companion file, such as a mesh, is not part of the recording.
        elif spec.role is not None and spec.role not in _NOT_DATA and spec.file is None:
            measured &= match_texts(rows[f"{name}:dtype"], lambda dtype: dtype.startswith("float"))
            data += measured
            zero += measured & (low == 0) & (high == 0)
            size += np.where(measured, _size(rows, name), 0)
    return (
        np.where(size < _LEAST, 0, data),
        zero,
        flags,
        np.array(wrong, dtype=bool).reshape(len(flags), len(rows)),
    )


def _size(rows: Rows, name: str) -> Array:
    """Return how many numbers a field holds: int64 (rows)."""
    if f"{name}:dims" not in rows:
        return np.ones(len(rows), np.int64)
    dims = rows[f"{name}:dims"].astype(np.int64)
    # Entries after the last axis are padding.
    dims[np.arange(dims.shape[1]) >= rows[f"{name}:ndim"][:, None]] = 1
    return np.asarray(dims.prod(axis=1))


@rule(
    "DC109",
    "placeholder-sample",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(numbers, form),
    defaults={"fields": 1},
)
def placeholder_sample(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A sample is a placeholder for one that failed: all zeros, or with its error flag set.

    What:
        A sample fails if every declared float field of the file itself is zero throughout (8
        numbers or more in all), or if a field with ``must_be`` has another value. Fields that need
        not hold measurements, such as those of role mask or reward, do not count.
    Why it matters:
        Training learns from zeros without any message. Most other rules skip such a sample.
    Measure:
        Smallest and largest value of each float field; flags.
    When it is wrong:
        Zero is a valid value of the only declared float field: declare the others, or its role
        (``mask``, ``reward``).
    Options:
        fields: fewest declared float fields that a sample needs to be judged by zeros (1).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}, is_error: {role: flag, must_be: false}}}
        samples:
          - {n: 3, xyz: {box: [20, 3]}, is_error: {full: [], value: 0, dtype: bool}}
          - {xyz: {full: [20, 3], value: 0}, is_error: {full: [], value: 0, dtype: bool}}
          - {xyz: {box: [20, 3]}, is_error: {full: [], value: 1, dtype: bool}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}, is_error: {role: flag, must_be: false}}}
        samples:
          - {n: 3, xyz: {box: [20, 3]}, is_error: {full: [], value: 0, dtype: bool}}

    Fix:
        Repair the sources and build again; until then valid.json leaves these samples out.
    Reference:
        SceneLeap stores zeros after any exception, and no consumer looks at the flag.
    """
    data, zeros, flags, wrong = _placeholder_signs(rows, case.schema)
    zero = (data >= max(1, int(case.options["fields"]))) & (zeros == data)
    flagged = wrong.any(axis=0)
    mask = zero | flagged
    if mask.any():
        raised = [name for name, where in zip(flags, wrong, strict=True) if where.any()]
        parts = [f"zeros in every float field ({int(zero.sum()):,})"] if zero.any() else []
        parts += [f"{first_few(raised)} set ({int(flagged.sum()):,})"] if flagged.any() else []
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} no data: {', '.join(parts)}.",
            measured={"zero": int(zero.sum()), "flagged": int(flagged.sum())},
            cause=Cause(
                "written by a loader after an exception; training would learn from zeros",
                "placeholder",
            ),
            fix="Repair the sources and build again; they are left out of valid.json.",
        )


# Kinds of unread files that a message names; fewest files that may accompany samples.
_NAMED = 3
_MANY = 10


@rule(
    "DC113",
    "unread-data",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    sees="all",
    span="all",
    defaults={"share": 0.5, "each": 0.5, "not_read": (), "left_out": False},
)
def unread_data(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Most bytes of the folder are in files that were not opened.

    What:
        At least half of the bytes below DATA are in files from which samples were read. These files
        do not count: readmes, licences, code, checksums and logs; files of a format that datacheck
        reads but that the schema's patterns leave out (the verdict counts them as not read);
        companions that hold no field; files that the schema names in ``not_read``. Files that no
        format reads, one for every second sample or more, are a warning, however small.
    Why it matters:
        A verdict is about the data that were read. In the folder of a ROS bag or of an Arrow
        dataset these may be some kB of configuration, and "nothing found" says nothing about the
        data.
    Measure:
        Sizes of the files that no format reads, and of those whose library is not installed, by
        format. An image or video counts as opened if the level of the scan reads its header.
    When it is wrong:
        The other files are not used for training: ``--allow-unread``, or name them in ``not_read``.
    Options:
        share: smallest share of the bytes that must be read (0.5).
        each: number of files of one format per sample from which they are a warning (0.5), from ten
        files on.
        not_read: patterns of paths (``"*/rgb/*"``, where ``*`` also stands for ``/``) that need not
        be read (none).
        left_out: also count files of a format that datacheck reads but that the schema's patterns
        leave out (false); ``datacheck init`` writes it into its draft if its patterns are a guess.
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
        listing:
          - {code: DC113, key: run_0.rrd, reason: Rerun, about: {files: 1, bytes: 900, of: 1000, way: ""}}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 2, x: {normal: [4]}}
        listing:
          - {code: DC113, key: run_0.rrd, reason: Rerun, about: {files: 1, bytes: 100, of: 1000, way: ""}}

    Fix:
        Convert the files, scan the output of your own loader (``--loader``), or choose the schema
        whose samples they are.
    Reference:
        Of 37 folders from other projects, 5 ended with "all samples are fit" although their data
        had not been opened.
    """
    kinds = sorted(case.notes, key=lambda note: (-int(note.about["bytes"]), note.reason))
    unread = sum(int(note.about["bytes"]) for note in kinds)
    every = max((int(note.about["of"]) for note in kinds), default=0)
    if not every or every - unread >= case.options["share"] * every:
        yield from _one_for_each(kinds, rows, case)
        return
    descriptions = [
        f"{note.reason} ({pluralize(int(note.about['files']), 'file')}, "
        f"{_percent(note.about['bytes'] / every)}, such as "
        f"{note.key})"
        for note in kinds
    ]
    named: dict[str, list[str]] = {}
    for note in kinds[:_NAMED]:
        named.setdefault(note.about["way"], []).append(note.reason)
    ways = [f"{', '.join(reasons)}: {way}" for way, reasons in named.items() if way]
    yield Failure(
        np.zeros(len(rows), bool),
        f"{_percent(unread / every)} of the bytes are in files that were not opened: "
        f"{first_few(descriptions, _NAMED)}.",
        measured={"unread": unread, "bytes": every},
        expected={"share": case.options["share"]},
        fix=f"{'. '.join([*ways, 'If training does not use them'])}: "
        "--allow-unread, or not_read of DC113 in the schema.",
    )


def _one_for_each(kinds: Sequence[Note], rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield the kinds of unread files that accompany samples, such as annotations."""
    for note in kinds:
        files = int(note.about["files"])
        if files >= max(_MANY, case.options["each"] * len(rows)):
            yield Failure(
                np.zeros(len(rows), bool),
                f"{pluralize(files, 'file')} that were not read ({note.reason}, such as "
                f"{note.key}) lie beside "
                f"{pluralize(len(rows), 'sample')}: what they say of these was not judged.",
                measured={"files": files},
                severity=Severity.WARNING,
                kind=note.reason,
                fix=f"{note.about['way'] + '. ' if note.about['way'] else ''}If training does not "
                f"use them: "
                "--allow-unread, or not_read of DC113 in the schema.",
            )


def _percent(share: float) -> str:
    """Return a share as text that is "all" only for 1: 99.96 % are not 100 %."""
    return "all" if share == 1 else f"{min(99.9, share * 100):.3g} %"


def _companions(schema: Schema) -> dict[str, FieldSpec]:
    wanted = {
        n: s
        for n, s in schema.stored.items()
        if s.file is not None and not s.optional and not s.absent
    }
    return dict(sorted(wanted.items()))


def _no_companions(schema: Schema) -> str:
    return "" if _companions(schema) else "no field that must be there lies in a file of its own"


@measure(
    "companions",
    per="sample",
    uses=("fields.file", "fields.optional", "fields.absent"),
    depth="structure",
)
def companions(block: Block, schema: Schema) -> Columns:
    """Missing companion file of a field: ``lacks/<field>``, its path (and entry in it), else ""."""
    columns: dict[str, Measured] = {}
    for name in _companions(schema):
        column = block.facts.get(f"absent/{name}")
        paths = [""] * len(block) if column is None else [str(path) for path in column.objects]
        columns[f"lacks/{name}"] = Measured(
            np.array(paths, dtype=object), np.ones(len(block), bool)
        )
    return columns


@rule(
    "DC104",
    "missing-companion",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(companions,),
    unless=_no_companions,
)
def missing_companion(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A file that belongs to a sample is missing.

    What:
        Every field with ``file`` has its file, and its entry in the file if one file serves all
        samples, unless the field is ``optional``, or ``absent`` in this split.
    Why it matters:
        Loaders skip such samples silently, or put zeros in place of the mesh, the depth or the
        caption.
    Measure:
        The path that the pattern gives for each sample; consecutively numbered samples are reported
        as one range.
    When it is wrong:
        Not every sample has such a file: ``optional: true``. The file lies elsewhere: correct
        ``file``, or name the folder with ``--root NAME=DIR``.
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
        UTNet and RDT skip such samples inside their loaders; hold issue 32: HO3D without frames
        0678 to 0728 of ABF12.
    """
    for name in _companions(case.schema):
        if f":lacks/{name}" not in rows:
            continue
        paths = rows[f":lacks/{name}"]
        missing = rows.measured(f":lacks/{name}") & (paths != "")
        if missing.any():
            keys = collapse_ranges(
                key for key, is_missing in zip(rows.keys, missing, strict=True) if is_missing
            )
            yield Failure(
                missing,
                f"{count_phrase(missing, 'have')} no {name}: "
                f"{first_few(sorted(set(paths[missing])))} not found; these are "
                f"{first_few(keys)}.",
                measured={"files": sorted(set(paths[missing]))[:10], "samples": keys[:20]},
                fix="Restore the files, take the samples off the list, or declare the field "
                "optional: true.",
                kind=name,
                extra=(name,),
            )


@measure("called", version=2, per="sample", depth="structure")
def called(block: Block, schema: Schema) -> Columns:
    """Name of a sample besides its path: `id`; absent where it equals the key, which is unique."""
    del schema
    column = block.facts.get("id")
    if column is None or column.kind == "array" or column.objects == block.keys:
        return {}
    return {"id": [str(name) for name in column.objects]}


def _folded(names: Sequence[str]) -> list[str]:
    """Return names as on a disk that ignores case and the two encodings of an accent."""
    text = "\0".join(names)
    if text.isascii() and text.count("\0") == len(names) - 1:
        return text.lower().split("\0")
    return [
        unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        for name in names
    ]


def _duplicates(names: Sequence[str]) -> Array:
    """Return bool (names): those that occur more than once."""
    if len(set(names)) == len(names):
        return np.zeros(len(names), bool)
    count = Counter(names)
    return np.array([count[name] > 1 for name in names])


@rule(
    "DC106",
    "duplicate-id",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    measures=(called,),
    span="all",
    sees="all",
)
def duplicate_id(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Two samples have the same name, or would have it on another disk.

    What:
        The placeholders of a file pattern give every sample of a split its own name (error). No two
        file names differ only in upper and lower case, or only in how an accent is written
        (warning).
    Why it matters:
        One of the two replaces the other in every table keyed by name, and on a disk that ignores
        case.
    Measure:
        Names of samples within a split; paths of files after Unicode NFC and case folding.
    When it is wrong:
        Two patterns of ``samples: {files: ...}`` match two forms of one sample on purpose: keep
        only one of them.
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
    measured = rows.measured(":id")
    if not measured.any():
        return
    sample_names = rows[":id"][measured].tolist()
    if len(set(sample_names)) == len(sample_names):
        return
    names = Texts.of(sample_names)
    pairs = rows.splits.rows[measured].astype(np.int64) * max(1, len(names.words)) + names.rows
    _, place, count = np.unique(pairs, return_inverse=True, return_counts=True)
    same = measured.copy()
    same[measured] = count[place] > 1
    if same.any():
        few = sorted(set(rows[":id"][same]))
        yield Failure(
            same,
            f"{count_phrase(same, 'share')} {pluralize(len(few), 'name')} with another one: "
            f"{first_few(few)}.",
            measured={"names": few[:10]},
            fix="Narrow samples: {files: ...} to one form of each sample, or rename.",
            kind="same",
        )


def _collide(rows: Rows) -> Iterator[Failure]:
    files = rows.files
    every = files.present()
    folded = _duplicates(_folded(every))
    if folded.any():
        few = {name: None for name, collides in zip(every, folded, strict=True) if collides}
        yield Failure(
            np.isin(files.rows, [number for number, name in enumerate(files.words) if name in few]),
            f"{pluralize(len(few), 'file')} would collide where case or accents do not count: "
            f"{first_few(list(few))}.",
            measured={"files": list(few)[:10]},
            fix="Rename them before the data are copied to another disk.",
            severity=Severity.WARNING,
            kind="folded",
        )


# The escape that `storable` writes for a lone surrogate.
_ESCAPED = re.compile(r"\\ud[89a-f][0-9a-f]{2}")
_UNSEEN = {"Cc", "Cf"}


def _is_odd_name(name: str) -> bool:
    """Tell whether a name from inside a file holds invalid Unicode or invisible characters.

    Notes:
        A name of one character is an entry of a vocabulary of characters, not a mistake.
    """
    if len(name.rpartition("/")[2]) == 1:
        return False
    if name.isascii() and name.isprintable() and "\\ud" not in name:
        return False
    return _ESCAPED.search(name) is not None or any(
        unicodedata.category(c) in _UNSEEN for c in name
    )


_SHOWN = 60  # characters of a name that are kept: each sample may have a different name


@measure("odd_names", version=2, per="sample", depth="structure")
def odd_names(block: Block, schema: Schema) -> Columns:
    """Name inside the file with bytes that are no UTF-8 or invisible characters: `odd_name`."""
    fields = [name for name in block.fields if name not in schema.fields and _is_odd_name(name)]
    inner = (
        []
        if isinstance(block.origins, Origins)
        else [o.inner if _is_odd_name(o.inner) else "" for o in block.origins]
    )
    if not fields and not any(inner):
        return {}
    names = [own or (fields[0] if fields else "") for own in inner or [""] * len(block)]
    names = [name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…" for name in names]
    return {
        "odd_name": Measured(
            np.array(names, dtype=object), np.array([bool(name) for name in names])
        )
    }


@rule(
    "DC107",
    "junk-file",
    Severity.WARNING,
    Level.FILE,
    per="sample",
    measures=(odd_names,),
    span="all",
    sees="all",
)
def junk_file(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    r"""Another program left a file behind, or a name has invisible characters or bytes that are not text.

    What:
        No file is called ``._*``, ``.DS_Store``, ``Thumbs.db``, ``desktop.ini``, ``*~``, ``*.tmp``,
        ``*.part``, ``*.crdownload`` or ``*.swp``. No name has control, direction or zero-width
        characters, except for the joiner between two emoji, and none begins or ends with a space.
        Inside files, the names of groups, and of fields that the schema does not list, have neither
        such characters nor bytes that are not UTF-8, which are shown escaped (``\udc80``).
    Why it matters:
        ``Path.glob("*.npy")`` matches ``._scene.npy``, which is not an array. A partial download
        has the name of a whole file. A name with an invisible character is not the name in the
        list. Loaders fail at a name that is not text.
    Measure:
        Names in the listing, and names inside the files as they are read. Files left behind by
        other programs are never read as samples.
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
        Delete these files; rename those with an invisible character.
    Reference:
        Apple "AppleDouble" (RFC 1740): ``._name`` holds the other half of a file. Unicode TR 36:
        invisible characters.
    """
    reasons: dict[str, list[str]] = {}
    for note in case.notes:
        reasons.setdefault(note.reason, []).append(note.key)
    for reason, keys in sorted(reasons.items()):
        shown = [_shown(key) for key in sorted(keys)]
        message = (
            reason
            if len(keys) == 1
            else reason.replace("has a", "have a").replace("begins or ends", "begin or end")
        )
        yield Failure(
            np.zeros(len(rows), bool),
            f"{pluralize(len(keys), 'name')} ({first_few(shown)}): {message}.",
            measured={"names": len(keys), "first": shown[:10]},
            kind=reason.partition(":")[0],
            fix="Delete them, or rename those that are data.",
        )
    if ":odd_name" in rows and (misnamed := rows.measured(":odd_name")).any():
        shown = sorted({_shown(name) for name in rows[":odd_name"][misnamed]})
        yield Failure(
            misnamed,
            f"{count_phrase(misnamed, 'have')} a name inside with bytes that are no UTF-8 or a "
            f"character that nobody sees: "
            f"{first_few(shown)}.",
            measured={"names": shown[:10]},
            kind="inside",
            fix="Rename them in the file; a schema can name a field by its escaped form.",
        )


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


_LISTED = 5  # gaps that a message lists
_DIGITS = re.compile(r"\d+")
_ENDING = re.compile(r"\A[^.]+")
_PLACES = 4  # places in names for which an index of the missing names is kept


def _ungrouped(schema: Schema) -> str:
    return (
        ""
        if schema.samples.each is None
        else "samples.each: what lies inside a file has no numbering to lose"
    )


@rule(
    "DC112",
    "sequence-gap",
    Severity.WARNING,
    Level.GROUP,
    per="sample",
    unless=_ungrouped,
    sees="all",
    defaults={"least": 20, "contiguous": 0.9, "folders": 10, "whole": 0.85},
)
def sequence_gap(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The numbering of a sequence has gaps.

    What:
        If the frames of a group are numbered and most of them follow one another, all of them do.
        Without ``samples: {group: ...}`` the files of a folder form a group; they are judged only
        if there are many such folders and nearly all of them have no gap.
    Why it matters:
        A clip that spans a gap jumps, and velocities, optical flow and tracking learn the jump.
    Measure:
        The one number in which the names of a group differ, its usual step (the median), and where
        the step is larger.
    When it is wrong:
        Frames were left out on purpose: switch the rule off, or ``ignore`` the frame after the gap,
        with a reason.
    Options:
        least: fewest frames of a group to judge (20).
        contiguous: share of steps that must equal the usual one for the rest to count as gaps
        (0.9).
        folders: without a group, fewest folders of the same depth with files of one suffix (10).
        whole: share of these folders that must have no gap (0.85).
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
        Restore the frames, or cut the sequence in two at the gap.
    Reference:
        hold issue 32: a copy of HO3D v3 without frames 0678 to 0728 of ABF12.
    """
    if not case.schema.samples.group:
        yield from _in_folders(rows, case)
        return
    keys = rows.keys
    groups = dict(rows.by_group())
    lost = _MissingNames([keys[i] for i in groups.pop("", np.zeros(0, np.int64)).tolist()])
    holes = list[str]()
    after_gap = np.zeros(len(rows), bool)
    missing = cut = 0
    for group, places in groups.items():
        numbers = _numbers([keys[i] for i in places.tolist()], lost)
        ends, usual = (
            (np.zeros((0, 2), np.int64), 1)
            if numbers is None
            else _holes(np.concatenate(numbers), case)
        )
        if numbers is not None and len(ends):
            cut += 1
            missing += int((np.diff(ends, axis=1) // usual - 1).sum())
            after_gap[places[np.isin(numbers[0], ends[:, 1])]] = True
            holes += _named(group, ends, usual)
    if after_gap.any():
        yield Failure(
            after_gap,
            f"{pluralize(missing, 'frame')} gone in {pluralize(cut, 'group')}: {first_few(holes)}; "
            f"named are those behind.",
            measured={"missing": missing, "holes": holes[:20]},
            fix="Restore the frames, or cut the sequence at the hole.",
        )


def _in_folders(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield the gaps in folders, if nearly all folders of that depth and file suffix have none."""
    files = rows.files
    kinds: dict[tuple[int, str], dict[str, list[int]]] = {}
    for place, path in enumerate(files.words):
        folder, _, name = path.rpartition("/")
        kinds.setdefault((path.count("/"), _ENDING.sub("", name)), {}).setdefault(
            folder, []
        ).append(place)
    for _, folders in sorted(kinds.items()):
        if len(folders) >= int(case.options["folders"]):
            yield from _of_kind(folders, rows, case)


def _of_kind(folders: dict[str, list[int]], rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield the gaps in folders of one kind.

    `folders` holds the places of their files in `rows.files.words`.
    """
    words = rows.files.words
    lost = _MissingNames([])
    after_gap = np.zeros(len(words), bool)
    holes = list[str]()
    missing = cut = whole = every = 0
    for folder, places in sorted(folders.items(), key=lambda item: natural_key(item[0])):
        names = [words[i] for i in places] if len(places) >= int(case.options["least"]) else []
        # A cheap test first: in most folders a few names differ in more than digits.
        few = {_DIGITS.sub("#", name) for name in names[:: max(1, len(names) // 3)]}
        numbers = _numbers(names, lost) if len(few) == 1 else None
        if numbers is None:
            continue
        every += 1
        ends, usual = _holes(numbers[0], case)
        lost_count = int((np.diff(ends, axis=1) // usual - 1).sum())
        if lost_count > len(places):  # more gaps than files: the numbers are dates or the like
            continue
        whole += len(set(np.diff(np.sort(numbers[0])).tolist())) == 1
        if len(ends):
            cut += 1
            missing += lost_count
            after_gap[np.array(places)[np.isin(numbers[0], ends[:, 1])]] = True
            holes += _named(folder, ends, usual)
    if (
        cut
        and every >= int(case.options["folders"])
        and whole >= float(case.options["whole"]) * every
    ):
        mask = after_gap[rows.files.rows]
        yield Failure(
            mask,
            f"{pluralize(missing, 'file')} gone in {cut:,} of {pluralize(every, 'folder')}: "
            f"{first_few(holes, _LISTED)}; "
            f"named are those behind. {whole:,} folders are numbered without a hole.",
            measured={"missing": missing, "holes": holes[:20]},
            fix="Restore the files, or cut the sequence at the hole.",
            kind="folders",
        )


def _named(group: str, ends: Array, usual: int) -> Iterator[str]:
    """Yield each gap as the group's name and the missing numbers."""
    for before, after in ends.tolist():
        last = f"-{after - usual}" if after > before + 2 * usual else ""
        yield f"{group} {before + usual}{last}"


def _holes(numbers: Array, case: RuleContext) -> tuple[Array, int]:
    """Return the numbers before and after each gap, int64 (gaps, 2), and the usual step.

    No gaps where most steps differ from the usual one.
    """
    every = np.array(sorted(set(numbers.tolist())), np.int64)  # np.unique imports numpy.ma
    step = np.diff(every)
    usual = int(np.median(step)) if len(step) else 1
    wide = np.flatnonzero(step > usual)
    few = len(every) < max(3, int(case.options["least"]))
    if few or np.count_nonzero(step == usual) < float(case.options["contiguous"]) * len(step):
        wide = wide[:0]
    return np.stack([every[wide], every[wide + 1]], axis=1), usual


class _MissingNames:
    """Names without a known group: a list names them, but their files are missing.

    Args:
        names: the full names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._parts = [natural_key(name) for name in names]
        self._by_place: dict[int, dict[int, list[Any]]] = {}

    def numbers(self, parts: tuple[str | int, ...], place: int) -> list[Any]:
        """Return the numbers at `place` of the names that equal `parts` at all other places."""
        if place not in self._by_place:
            if len(self._by_place) == _PLACES:
                del self._by_place[next(iter(self._by_place))]
            index = self._by_place[place] = {}
            for name_parts in self._parts:
                if len(name_parts) > place:
                    index.setdefault(
                        hash((name_parts[:place], name_parts[place + 1 :])), []
                    ).append(name_parts[place])
        return self._by_place[place].get(hash((parts[:place], parts[place + 1 :])), [])


def _numbers(names: Sequence[str], lost: _MissingNames) -> tuple[Array, Array] | None:
    """Return the one number that distinguishes names, and those of missing names like them.

    None where names do not differ in exactly one number.

    Shapes:
        first: int64 (names)
        second: int64 (missing)
    """
    if (quick := _counter(names)) is not None:
        numbers, place = quick
        return numbers, np.array(lost.numbers(natural_key(names[0]), place), dtype=np.int64)
    parts = [natural_key(name) for name in names]
    if len({len(part) for part in parts}) > 1:
        return None
    columns = list(zip(*parts, strict=True))
    varying = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1 or not varying[0] % 2 or len(set(columns[varying[0]])) < len(names):
        return None
    more = lost.numbers(parts[0], varying[0])
    return np.array(columns[varying[0]], dtype=np.int64), np.array(more, dtype=np.int64)


def _counter(names: Sequence[str]) -> tuple[Array, int] | None:
    """Return the varying number of names of equal length that differ in its digits alone.

    Returns:
        The number in each name, int64 (names), and its place among the parts of `natural_key`; None
        for other names.

    Notes:
        Frames are mostly named like that; as an array of characters they take a third of the time.
    """
    width = len(names[0])
    text = "".join(names)
    if len(names) < 2 or not text.isascii() or {len(name) for name in names} != {width}:
        return None
    signs = np.frombuffer(text.encode(), np.uint8).reshape(len(names), width)
    varying = np.flatnonzero((signs != signs[0]).any(axis=0))
    for number, run in enumerate(re.finditer(r"\d+", names[0])):
        if (
            len(varying)
            and run.start() <= varying[0]
            and varying[-1] < run.end()
            and run.end() - run.start() <= DIGITS
        ):
            digits = signs[:, run.start() : run.end()] - np.int64(ord("0"))
            values = digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
            plain = bool(((digits >= 0) & (digits <= 9)).all()) and len(
                set(values.tolist())
            ) == len(names)
            return (values, 2 * number + 1) if plain else None
    return None
