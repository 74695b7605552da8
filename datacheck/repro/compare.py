"""Compares two things of a kind: datasets, manifests or caches; and tells the kind of a path."""

from __future__ import annotations

import os
import stat
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from datacheck.errors import UsageError
from datacheck.repro import manifest as manifests
from datacheck.repro.recorded import ENVIRONMENT, is_run, is_run_file, trace_name
from datacheck.runtime import fsops

if TYPE_CHECKING:
    from datacheck.cache import Cache
    from datacheck.model.finding import Progress
    from datacheck.repro.values import ValueChanges
    from datacheck.schema.model import Schema

Kind = Literal["dataset", "file", "manifest", "cache", "run"]
Place = str | os.PathLike[str]

FORMAT = "datacheck.diff/1"
_KIND_NAMES = {
    "dataset": "a folder",
    "file": "a file",
    "manifest": "a manifest",
    "cache": "a cache",
    "run": "a recorded run",
}
Content = Any  # a digest, or several: hashable, and equal for equal content
_COPIED = 4096  # length limit of a name as the origin of copies, which is repeated for each copy
# Letters of all repeated origins: two manifests of 6 MB would otherwise make 480 MB of JSON.
_COPIED_LETTERS = 8 * 1024 * 1024
_DATA_KINDS = {"dataset", "file", "manifest"}


@dataclass(frozen=True)
class TreeDiff:
    """The differences of two sets of named contents; every name that differs has one entry.

    Args:
        added: only in the second, with a content that no name of the first has lost.
        removed: only in the first, with a content that no added name has.
        changed: in both, with a content that no other name had before, or that another one still
            has.
        renamed: (name in the first, name in the second) of the same content.
        swapped: pairs in both that have exchanged contents; the smaller name first.
        reordered: in both; by name, the name that held its content before and lost it.
        copies: by added or changed name, the name of the first that had the same content; names of
            more than 4,096 letters are left out, and all beyond 8,388,608 letters of such names.
        more_copies: number of copies that `copies` leaves out because of their number.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    swapped: list[tuple[str, str]] = field(default_factory=list)
    reordered: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    more_copies: int = 0

    def __bool__(self) -> bool:
        return bool(
            self.added
            or self.removed
            or self.changed
            or self.renamed
            or self.swapped
            or self.reordered
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the differences as JSON values."""
        return {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "renamed": [list(pair) for pair in self.renamed],
            "swapped": [list(pair) for pair in self.swapped],
            "reordered": self.reordered,
            "copies": self.copies,
            "more_copies": self.more_copies,
        }


@dataclass(frozen=True)
class Comparison:
    """The differences between two datasets, or two caches.

    Args:
        first, second: kind, path, number of files or samples, and digest of each.
        files: differences in files; empty for caches, as their files say nothing about their
            content.
        samples: differences in samples; None if they were not compared (see `notes`).
        fields: the fields that differ, for each changed sample.
        values: how values differ, if both were available: by key (for files without a schema: by
            path) and field.
        stored: for caches, fields that are stored differently: the description of each.
        verdicts: for caches, samples with different verdicts: the codes of each.
        notes: what was not compared, and why.
    """

    first: Mapping[str, Any]
    second: Mapping[str, Any]
    files: TreeDiff = field(default_factory=TreeDiff)
    samples: TreeDiff | None = None
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: ValueChanges = field(default_factory=dict)
    stored: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    verdicts: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.samples or self.stored or self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values (``datacheck.diff/1``)."""
        return {
            "format": FORMAT,
            "equal": not self,
            "first": dict(self.first),
            "second": dict(self.second),
            "files": self.files.as_dict(),
            "samples": None if self.samples is None else self.samples.as_dict(),
            "fields": {key: list(names) for key, names in self.fields.items()},
            "values": self.values,
            "stored": {name: list(pair) for name, pair in self.stored.items()},
            "verdicts": {
                key: [list(codes) for codes in pair] for key, pair in self.verdicts.items()
            },
            "notes": list(self.notes),
        }


def kind_of(place: Place) -> Kind:
    """Return the kind of a path; reads only the first bytes of a file, and never blocks.

    Raises:
        UsageError: the path does not exist, or is a pipe or device.
        StorageError: the path cannot be accessed.
    """
    # Importing `datacheck.repro` must stay light
    from datacheck.cache.find import find_caches  # noqa: PLC0415
    from datacheck.cache.store import is_url  # noqa: PLC0415  as above

    if is_url(place):
        return "cache"
    path = Path(place)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            if next(find_caches(path, 0), None) is not None:
                return "cache"
            return "run" if _is_run(path) else "dataset"
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"{path}: no such file or folder. Check the path."
        raise UsageError(msg) from error
    except (OSError, ValueError) as error:
        raise fsops.as_storage_error(
            error if isinstance(error, OSError) else OSError(str(error)), path
        ) from error
    if not stat.S_ISREG(mode):
        msg = (
            f"{path}: is a pipe, a socket or a device. Name a folder, a manifest, a cache or a "
            f"recorded run."
        )
        raise UsageError(msg)
    return "manifest" if manifests.is_manifest(path) else "file"


def _is_run(path: Path) -> bool:
    """Return whether a folder holds a run, without listing it: it may hold a million files."""
    return (path / trace_name(0)).is_file() or ((path / ENVIRONMENT).is_file() and is_run(path))


def _refuse_mixture(place: Place, kind: Kind) -> None:
    """Refuse a run or a cache with other files: they may be a dataset, and would not be compared.

    Raises:
        UsageError: there is such a file.
        StorageError: a folder cannot be listed.
    """
    from datacheck.cache.find import is_cache_file  # noqa: PLC0415  as above
    from datacheck.cache.store import is_url  # noqa: PLC0415  as above

    if kind not in {"cache", "run"} or is_url(place):
        return
    name = _foreign_file(Path(place), is_run_file if kind == "run" else is_cache_file)
    if name is not None:
        command = "datacheck repro diff" if kind == "run" else "datacheck cache diff"
        msg = (
            f"{place}: looks like {_KIND_NAMES[kind]}, but holds other files, such as {name}. "
            f"Compare it with {command}, or all files of both: write a manifest of each "
            f"(datacheck manifest DATA -o FILE) and name the manifests."
        )
        raise UsageError(msg)


def _foreign_file(folder: Path, belongs: Callable[[str], bool]) -> str | None:
    """Return a file below a folder that does not belong to it; hidden names do not count."""
    pending = [""]
    while pending:
        above = pending.pop()
        try:
            with os.scandir(folder / above) as entries:
                for entry in entries:
                    name = above + entry.name
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{name}/")
                    elif not belongs(name):
                        return name
        except OSError as error:
            raise fsops.as_storage_error(error, folder / above) from error
    return None


def kinds_of(first: Place, second: Place) -> tuple[Kind, Kind]:
    """Return the kinds of two paths that can be compared.

    Raises:
        UsageError: they cannot be compared, one does not exist, or a run or cache holds other
            files.
        StorageError: one cannot be accessed.
    """
    kinds = kind_of(first), kind_of(second)
    for kind, other, place in ((kinds[0], kinds[1], first), (kinds[1], kinds[0], second)):
        if kind == "file" and other not in {"file", "cache", "run"}:
            msg = (
                f"{place}: is no manifest (datacheck manifest DATA -o FILE makes one) and no "
                f"folder of data."
            )
            raise UsageError(msg)
    if kinds[0] == kinds[1] or set(kinds) <= _DATA_KINDS:
        for kind, place in zip(kinds, (first, second), strict=True):
            _refuse_mixture(place, kind)
        return kinds
    msg = (
        f"{first} is {_KIND_NAMES[kinds[0]]} and {second} {_KIND_NAMES[kinds[1]]}. Name two "
        f"datasets (folders or manifests), two "
        f"caches or two recorded runs."
    )
    raise UsageError(msg)


def compare(
    first: Place,
    second: Place,
    *,
    schema: Schema | None = None,
    roots: Mapping[str, Place] | None = None,
    deep: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Return the differences of two datasets, two manifests, one of each, or two caches.

    Args:
        first, second: folders, files, manifests; or caches, also by URL.
        schema: the schema of the datasets; None: only files are compared, and samples if both
            manifests have them.
        roots: extra folders of the datasets, by name.
        deep: hash every file, even if size and times are unchanged since it was last hashed.
        workers: processes that read; None: as many as help.
        progress: called after each part.

    Raises:
        UsageError: one does not exist, or the kinds cannot be compared; see `kinds_of`.
        StorageError: a file or folder cannot be read.

    Notes:
        Two recorded runs are compared by `datacheck.repro.run_diff`.
    """
    kinds = kinds_of(first, second)
    if kinds[0] == "run":
        msg = f"{first} and {second} are recorded runs. Compare them with datacheck repro diff."
        raise UsageError(msg)
    if kinds[0] == "cache":
        return _compare_caches(first, second)
    options = {
        "schema": schema,
        "roots": roots,
        "deep": deep,
        "workers": workers,
        "progress": progress,
    }
    sides = [
        manifests.read(place) if kind == "manifest" else manifests.make(place, **options)  # type: ignore[arg-type]
        for place, kind in zip((first, second), kinds, strict=True)
    ]
    single_names = [
        None if kind == "manifest" else _alone(place)
        for place, kind in zip((first, second), kinds, strict=True)
    ]
    if (
        single_names[0] is not None and single_names[1] is not None
    ):  # two single files compare under any names
        sides[1] = replace(
            sides[1], files=_rename_file(sides[1].files, single_names[1], single_names[0])
        )
    comparison = _compare_manifests(*sides)
    descriptions = [
        _side_json(place, kind, manifest)
        for place, kind, manifest in zip((first, second), kinds, sides, strict=True)
    ]
    comparison = replace(comparison, first=descriptions[0], second=descriptions[1])
    if comparison.files and "manifest" not in kinds:
        comparison = _with_values(
            comparison,
            Path(first),
            Path(second),
            {n: Path(p) for n, p in (roots or {}).items()},
            schema,
        )
    return comparison


def _alone(place: Place) -> str | None:
    # Importing `datacheck.repro` must stay light
    from datacheck.sources.listing import target  # noqa: PLC0415

    return target(Path(place))[1]


def _rename_file(files: manifests.Files, name: str, new_name: str) -> manifests.Files:
    """Return the files with one of them renamed, sorted again: extra folders may precede it."""
    paths = [new_name if path == name else path for path in files.paths]
    order = sorted(range(len(paths)), key=paths.__getitem__)
    return manifests.Files([paths[i] for i in order], files.sizes[order], files.digests[order])


def _side_json(place: Place, kind: Kind, manifest: manifests.DatasetManifest) -> dict[str, Any]:
    record = {
        "path": os.fspath(place),
        "kind": kind,
        "root": manifest.root,
        "files": len(manifest.files),
    }
    record |= {"bytes": manifest.files.nbytes}
    return record if manifest.samples is None else record | {"samples": len(manifest.samples.rows)}


# ------------------------------------------------------------------------------------------ data


def _compare_manifests(
    first: manifests.DatasetManifest, second: manifests.DatasetManifest
) -> Comparison:
    notes = [note for manifest in (first, second) for note in manifest.notes]
    for manifest, name in ((first, "first"), (second, "second")):
        if manifest.skipped:
            path, reason = manifest.skipped[0]
            notes.append(
                f"not compared: {len(manifest.skipped):,} names of the {name}, such as {path}: {reason}"
            )
    files = TreeDiff() if first.root == second.root else _file_diff(first, second)
    samples: TreeDiff | None = None
    fields: Mapping[str, Sequence[str]] = {}
    if (
        first.samples is not None
        and second.samples is not None
        and first.samples.same_reading(second.samples)
    ):
        samples = tree_diff(first.samples.contents(), second.samples.contents())
        fields = first.samples.differing_fields(second.samples, samples.changed)
        if not (first.samples.reading and second.samples.reading):
            notes.append(
                "of one manifest only the schema's name is known: an older datacheck made it. Make "
                "it again."
            )
    elif first.samples is not None or second.samples is not None:
        names = [_schema_of(manifest) for manifest in (first, second)]
        notes.append(
            f"samples were not compared: the first is of {names[0]}, the second of {names[1]}. "
            f"Give --schema."
        )
    return Comparison({}, {}, files, samples, fields, notes=tuple(notes))


def _schema_of(manifest: manifests.DatasetManifest) -> str:
    if manifest.samples is None:
        return "no schema"
    return f"{manifest.samples.schema} ({manifest.samples.reading[:8] or 'of an older datacheck'})"


def _file_diff(first: manifests.DatasetManifest, second: manifests.DatasetManifest) -> TreeDiff:
    first_files, second_files = first.files, second.files
    if first_files.paths == second_files.paths:  # equal entries need not become objects
        differing = np.flatnonzero(first_files.digests != second_files.digests).tolist()
        other_digests = {digest.decode() for digest in second_files.digests[differing].tolist()}
        row_indices = set(differing) | {
            i for i, d in enumerate(first_files.digests.astype(str).tolist()) if d in other_digests
        }
        sorted_indices = sorted(row_indices)
        left, right = (
            {f.paths[i]: f.digests[i].decode() for i in sorted_indices}
            for f in (first_files, second_files)
        )
        return tree_diff(left, right)
    return tree_diff(first_files.by_path(), second_files.by_path())


def _with_values(
    comparison: Comparison,
    first: Path,
    second: Path,
    roots: Mapping[str, Path],
    schema: Schema | None,
) -> Comparison:
    """Return the comparison with the changes of values added."""
    # Importing `datacheck.repro` must stay light
    from datacheck.repro import values  # noqa: PLC0415
    from datacheck.sources.listing import list_files, target  # noqa: PLC0415  as above

    (first_root, first_file), (second_root, second_file) = target(first), target(second)
    if schema is None or first_file is not None:
        pairs = [(first_file or path, second_file or path) for path in comparison.files.changed]
        changes = values.file_changes(first_root, second_root, roots, pairs)
        compared = len(pairs)
    else:
        touched = [
            *comparison.files.changed,
            *comparison.files.reordered,
            *(path for pair in comparison.files.swapped for path in pair),
        ]
        changes = values.sample_changes(
            schema, list_files(first_root, roots), list_files(second_root, roots), touched
        )
        compared = len(touched)
    notes = comparison.notes
    if compared > values.MOST:
        notes = (*notes, f"values were compared in {values.MOST:,} of {compared:,} changed files")
    if len(changes) >= values.MOST_SAMPLES:
        notes = (
            *notes,
            f"values are compared in the first {values.MOST_SAMPLES:,} samples that differ",
        )
    return replace(comparison, values=changes, notes=notes)


# ------------------------------------------------------------------------------------------ caches


def _compare_caches(first: Place, second: Place) -> Comparison:
    from datacheck.cache import open_cache  # noqa: PLC0415  as above
    from datacheck.cache.diff import MOST_CHANGES, diff  # noqa: PLC0415  as above
    from datacheck.repro.values import change_json  # noqa: PLC0415  as above

    a = open_cache(first)
    b = open_cache(second)
    differences = diff(a, b)
    descriptions = [
        {
            "path": str(cache.path),
            "kind": "cache",
            "digest": cache.manifest.digest,
            "samples": len(cache),
        }
        for cache in (a, b)
    ]
    for description, cache in zip(descriptions, (a, b), strict=True):
        description["content_root"] = cache.manifest.content_root
    if differences.fields:  # the digests cover different fields
        samples = TreeDiff(differences.added, differences.removed, list(differences.changed))
    else:
        samples = tree_diff(_digests(a), _digests(b))
    return Comparison(
        descriptions[0],
        descriptions[1],
        TreeDiff(),
        samples,
        {key: list(changes) for key, changes in differences.changed.items()},
        {
            key: {name: change_json(change) for name, change in changes.items()}
            for key, changes in differences.changed.items()
        },
        differences.fields,
        differences.verdicts,
        (
            f"{differences.unread:,} samples that both have were not looked at, as {MOST_CHANGES:,} "
            f"values had changed before",
        )
        if differences.unread
        else (),
    )


def _digests(cache: Cache) -> dict[str, int | str]:
    """Return the digest of each sample; a sample that was not made gets its own, unique key."""
    made = cache.made
    contents: dict[str, int | str] = {}
    for keys in cache.key_blocks():
        numbers = np.arange(len(contents), len(contents) + len(keys))
        rows = zip(keys, cache.digests(numbers).tolist(), made[numbers].tolist(), strict=True)
        contents |= {key: digest if is_made else key for key, digest, is_made in rows}
    return contents


# --------------------------------------------------------------------------- sets of named contents


def tree_diff(first: Mapping[str, Content], second: Mapping[str, Content]) -> TreeDiff:
    """Return the differences of two sets of named contents.

    Args:
        first, second: contents by name; contents are compared by ``==`` and hashed.

    Notes:
        The order of names changes nothing. Swaps are matched first, then renames (names with the
        same last part first), then contents that another name held before; equal contents are
        paired in the order of their names.
    """
    shared_names = first.keys() & second.keys()
    differing = sorted(name for name in shared_names if first[name] != second[name])
    removed = sorted(first.keys() - shared_names)
    added = sorted(second.keys() - shared_names)
    if not (differing or removed or added):
        return TreeDiff()
    swapped = _swaps(first, second, differing)
    paired = {name for pair in swapped for name in pair}
    unpaired = [name for name in differing if name not in paired]
    renamed = _renames(first, second, removed, added)
    old_names = {old_name for old_name, _ in renamed}
    new_names = {new_name for _, new_name in renamed}
    removed, added = (
        [name for name in removed if name not in old_names],
        [name for name in added if name not in new_names],
    )
    moved_pairs = _pairs(
        ((first[name], name) for name in [*unpaired, *removed]),
        ((second[name], name) for name in unpaired),
    )
    reordered = {name: before for before, name in sorted(moved_pairs, key=lambda pair: pair[1])}
    changed = [name for name in unpaired if name not in reordered]
    first_names = _first_names(first, {second[name] for name in [*added, *changed]})
    copied = [name for name in [*added, *changed] if second[name] in first_names]
    letters = accumulate(len(first_names[second[name]]) for name in copied)
    count = sum(total <= _COPIED_LETTERS for total in letters)
    copies = {name: first_names[second[name]] for name in copied[:count]}
    more_copies = len(copied) - count
    return TreeDiff(added, removed, changed, renamed, swapped, reordered, copies, more_copies)


def _swaps(
    first: Mapping[str, Content], second: Mapping[str, Content], differing: list[str]
) -> list[tuple[str, str]]:
    """Return pairs of names that have exchanged contents."""
    waiting: dict[tuple[Content, Content], deque[str]] = defaultdict(deque)
    swapped = []
    for name in differing:
        before = first[name]
        after = second[name]
        if partners := waiting[after, before]:
            swapped.append((partners.popleft(), name))
        else:
            waiting[before, after].append(name)
    return sorted(swapped)


def _renames(
    first: Mapping[str, Content],
    second: Mapping[str, Content],
    removed: list[str],
    added: list[str],
) -> list[tuple[str, str]]:
    """Return pairs (gone, come) of equal content; names with the same last part pair first."""
    renamed: list[tuple[str, str]] = []
    for part in (_last_part, lambda _: ""):
        old_names = {old_name for old_name, _ in renamed}
        new_names = {new_name for _, new_name in renamed}
        renamed += _pairs(
            (((first[name], part(name)), name) for name in removed if name not in old_names),
            (((second[name], part(name)), name) for name in added if name not in new_names),
        )
    return sorted(renamed)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


def _pairs(
    before: Iterable[tuple[Content, str]], after: Iterable[tuple[Content, str]]
) -> list[tuple[str, str]]:
    """Pair names of equal content, in the order given; each name is used once."""
    holders: dict[Content, list[str]] = defaultdict(list)
    for content, name in before:
        holders[content].append(name)
    ahead = {content: iter(names) for content, names in holders.items()}
    pairs = ((next(ahead[content], None), name) for content, name in after if content in ahead)
    return [(old_name, name) for old_name, name in pairs if old_name is not None]


def _first_names(first: Mapping[str, Content], contents: set[Content]) -> dict[Content, str]:
    """Return the smallest name with each of these contents, among names of at most `_COPIED`."""
    content_names: dict[Content, str] = {}
    for name in sorted(
        name for name, content in first.items() if content in contents and len(name) <= _COPIED
    ):
        content_names.setdefault(first[name], name)
    return content_names
