"""Drafts a schema for documents with a record for each of many files: COCO, nerfstudio, tables.

The documents name the files, so the samples are the records: a file that is not there, and a file
that no longer fits its record, are then faults of a sample. The records of a table are its rows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from datacheck.errors import SchemaError
from datacheck.infer.data_files import OUTWEIGHED, PICTURES, SOUNDS, VIDEOS, DataFiles
from datacheck.infer.guess import guess_fields
from datacheck.infer.inner_samples import FILES, InnerSamples
from datacheck.infer.profile import FieldProfile
from datacheck.infer.profiling import any_field_schema, find_inner_samples, profile_files
from datacheck.infer.writing import Draft, Guess, class_numbers, write_draft
from datacheck.rules.base import pluralize
from datacheck.schema.model import Schema
from datacheck.schema.patterns import PATTERN_SIGNS
from datacheck.sources.named_files import TABLES

_MOST_DOCUMENTS = 200
# Share of the files of a document that all others together must name if it is the whole of them.
_NEARLY_ALL = 0.9
# Share of the named files that must be there.
_FOUND = 0.5
# The same for COCO and nerfstudio.
_SOME = 0.25
# Values that tell kinds of documents apart which name the same files.
_KINDS = ("boxes", "caption", "keypoints")
# Names of the fields with the file itself.
_PICTURE, _OTHER_FILE = "picture", "file"
# Fields that repeat the name of the file, or "size".
_REPEATED = frozenset({"file_name", "file_path", "filename", "filepath", "width", "height"})
# Classes that a schema lists.
_MOST_CLASSES = 2_000
# Words of a path that may name its split.
_MOST_WORDS = 30
# First folders of names in a table that need not be there.
_MOST_FOLDERS = 16
_FOLDER = "{folder}/"


@dataclass(frozen=True)
class _Document:
    """A document, and where the files of its records are.

    Args:
        path: of the document.
        inner: what the document says of its records.
        folder: before the names of the files, "" or with "/" at its end.
        ending: that the names lack, or "".
        away: number of first folders in the names that are not there.
    """

    path: str
    inner: InnerSamples
    folder: str
    ending: str
    away: int = 0

    def file(self, name: str) -> str:
        """Return the path of the file with a name."""
        return f"{self.folder}{_without_folders(name, self.away)}{self.ending}"


def draft_file_records(files: DataFiles) -> tuple[Draft | None, dict[str, str]]:
    """Return a draft with a sample for each record of such documents, None where there are none.

    Returns:
        The draft; without one, a note on each document of COCO and nerfstudio by its path: no rule
        judges its records then.
    """
    paths = [path for path in files.readable if _is_document(path)]
    paths += _tables(files)
    if not 0 < len(paths) <= _MOST_DOCUMENTS or len(paths) == len(files.readable):
        return None, {}
    inner = find_inner_samples(files.listing.root, paths)
    by_stem = _by_stem(files)
    found = {path: samples for path, samples in inner.items() if samples.kind == FILES}
    located = {path: _located(path, samples, by_stem) for path, samples in found.items()}
    draft = _first_draft([document for document in located.values() if document], files)
    if draft is not None:
        return draft, {}
    known = {path: samples for path, samples in found.items() if samples.known}
    return None, {path: _note(samples, located[path]) for path, samples in known.items()}


def _first_draft(located: Sequence[_Document], files: DataFiles) -> Draft | None:
    """Return a draft for the largest documents of one kind that are most of the data, or None."""
    kinds: dict[Any, list[_Document]] = defaultdict(list)
    for document in located:
        kind = tuple(key for key in _KINDS if key in document.inner.keys)
        kinds[document.inner.pattern, kind, document.ending].append(document)
    for documents in sorted(kinds.values(), key=lambda d: -files.size(x.path for x in d)):
        # A name in the documents may be one that a schema cannot hold.
        with suppress(SchemaError):
            draft = _draft(documents, located, files)
            if draft is not None:
                return draft
    return None


def _note(samples: InnerSamples, document: _Document | None) -> str:
    """Return why the records of a document are no samples."""
    if document is not None:
        return "no schema could be drafted for its records"
    if samples.files:
        return "most of the files that its records name are not there"
    return "its records name no file below the folder"


def _is_document(path: str) -> bool:
    return path.lower().endswith(".json")


def _is_table(path: str) -> bool:
    return path.lower().endswith(TABLES)


def _tables(files: DataFiles) -> list[str]:
    """Return the tables beside many more pictures, videos and sounds, [] if they are not many more."""
    tables = [path for path in files.readable if _is_table(path)]
    media = len(files.readable) - len(files.without_media().readable)
    return tables if OUTWEIGHED * len(tables) <= media else []


def _by_stem(files: DataFiles) -> Mapping[str, Sequence[str]]:
    """Return the paths of pictures, videos and other data by their name without its ending."""
    by_stem: dict[str, list[str]] = defaultdict(list)
    for path in files.listing.entries.paths:
        if not _is_document(path):
            by_stem[PurePosixPath(path).stem].append(path)
    return by_stem


def _located(
    path: str, inner: InnerSamples, by_stem: Mapping[str, Sequence[str]]
) -> _Document | None:
    """Return a document with the place of its files, None where most are not there.

    Rows of a table may name folders of another computer, which are not there.
    """
    places = Counter[tuple[str, str]]()
    away = 0
    while not places and away <= _MOST_FOLDERS:
        for name in inner.files:
            places.update(set(_places(_without_folders(name, away), by_stem)))
        if not _is_table(path):
            break
        away += not places
    if not places:
        return None
    own = path.rpartition("/")[0]
    (folder, ending), found = max(
        places.items(), key=lambda item: (item[1], _shared(own, item[0][0]), item[0])
    )
    # Where the layout says that these are names of files, each that is not there is a fault; with
    # a few of them there, the folder is a part of the dataset.
    if found < (_SOME if inner.known else _FOUND) * len(inner.files):
        return None
    if PATTERN_SIGNS.intersection(folder + ending):
        return None
    return _Document(path, inner, folder, ending, away)


def _without_folders(name: str, count: int) -> str:
    """Return a path without some of its first folders."""
    return name.split("/", count)[-1] if count else name


def _places(name: str, by_stem: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield (folder, ending) of the files that a name may mean."""
    for stem in {PurePosixPath(name).stem, PurePosixPath(name).name}:
        for path in by_stem.get(stem, ()):
            ending = "" if path.endswith(name) else PurePosixPath(path).suffix
            full = name + ending
            if path == full or path.endswith(f"/{full}"):
                yield path[: len(path) - len(full)], ending


def _shared(folder: str, other: str) -> int:
    """Return how many levels two folders share."""
    pairs = zip(folder.split("/"), other.split("/"), strict=False)
    return sum(1 for one, two in pairs if one == two)


def _draft(
    documents: Sequence[_Document], located: Sequence[_Document], files: DataFiles
) -> Draft | None:
    """Return the draft for documents of one kind, None if they are not most of the data.

    Args:
        documents: of one kind.
        located: of all kinds: the pattern may match further ones.
        files: of the dataset.
    """
    parts = _without_whole(documents)
    pattern, folder = _together(parts)
    if len(parts) < len(documents):
        pattern = _of_these_splits(pattern, parts)
    matched = _matching(pattern, files)
    documents = [document for document in located if document.path in matched]
    names = [name for document in documents for name in document.inner.files]
    inner = _inner_folder(names)
    if inner is None:
        return None
    first = documents[0]
    views = _views_of(documents, inner)
    inner = views.get(first.inner.pattern, inner)
    annotated, annotations = _annotations(names, files)
    image = f"{{image}}{annotated}"
    places = {
        column: f"{folder}{_without_folders(start, first.away)}{image}{first.ending}"
        for column, start in {first.inner.pattern: inner, **views}.items()
    }
    place = places.pop(first.inner.pattern)
    described = {document.path for document in documents}
    # The folder of each document, which may hold the name of its split.
    described |= {d.file(name) for d in documents for name in d.inner.files}
    described &= set(files.readable)
    described |= set[str]().union(*map(files.matching, [*places.values(), *annotations]))
    if not files.are_half(described) and not _name_many(documents, files):
        return None
    name = first.inner.pattern
    head = files.head(files=pattern, each=f"/{name}/{inner}{image}".replace("//", "/"))
    profile = profile_files(any_field_schema(head), files.listing)
    if not profile.fields:
        return None
    guesses = guess_fields(
        {
            name: field
            for name, field in profile.fields.items()
            if name not in _REPEATED and name not in places
        },
        profile.samples,
        f"{files.name} {pattern}",
        episodes=False,
    )
    ending = (PurePosixPath(names[0]).suffix + first.ending).lower()
    classes = sorted({number for document in documents for number in document.inner.classes})
    if ending in SOUNDS:
        named = _with_sound(guesses, place, ending, files)
    elif ending in PICTURES | VIDEOS or _is_one_value(head, place, files):
        unit, boxes_why = _unit_of_boxes(first.path, profile.fields)
        named = _with_file(guesses, place, ending, classes, unit, boxes_why)
    else:
        return None
    named = {**_of_views(places, ending, head, files), **_with_annotations(named, annotations)}
    why = (
        f"{pluralize(len(documents), 'table')}, each row of which names a file in its column {name}"
        if _is_table(first.path)
        else f"{pluralize(len(documents), 'document')}, each record of which names a file "
        f"({name or 'its key'})"
    )
    unnamed = files.matching(place) - described
    if unnamed:  # a scan should say that most files are left out, if they are
        head["rules"] = {"DC113": {"left_out": True}}
    return write_draft(head, named, profile.samples, [*files.notes(described), *profile.notes], why)


def _annotations(names: Sequence[str], files: DataFiles) -> tuple[str, list[str]]:
    """Return the ending of all names, and the pattern of XML files of nearly all of these names.

    ("", []) where the names have several endings or folders, or no folder holds such files.
    """
    paths = [PurePosixPath(name) for name in names]
    endings = {path.suffix for path in paths}
    stems = {path.stem for path in paths}
    if len(endings) != 1 or len(stems) != len(set(names)) or any("/" in name for name in names):
        return "", []
    places = (PurePosixPath(path) for path in files.readable if path.endswith(".xml"))
    folders = Counter(str(place.parent) for place in places if place.stem in stems)
    folder, count = max(folders.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    if count < _NEARLY_ALL * len(stems) or PATTERN_SIGNS.intersection(folder):
        return "", []
    return endings.pop(), [f"{folder}/{{image}}.xml".removeprefix("./")]


def _with_annotations(guesses: Mapping[str, Guess], annotations: Sequence[str]) -> dict[str, Guess]:
    """Return the guesses with the boxes of Pascal VOC beside those of the records."""
    result = dict(guesses)
    boxes = guesses.get("boxes", Guess()).spec
    for place in annotations if boxes.get("role") == "boxes" and boxes["unit"] == "px" else ():
        spec: dict[str, Any] = {"role": "boxes", "shape": ["A", 4], "unit": "px", "file": place}
        spec |= {"at": "boxes", "optional": True, "pixels_of": boxes["pixels_of"]}
        result["xml_boxes"] = Guess(spec, ("the same pictures in XML",))
    return result


def _unit_of_boxes(path: str, fields: Mapping[str, FieldProfile]) -> tuple[str, str]:
    """Return the unit of the boxes of a document, and the reason."""
    if not _is_table(path):
        return "px", "bbox of COCO, as corners"
    high = fields["boxes"].high if "boxes" in fields else None
    return "1" if high is not None and high <= 1 else "px", "four columns with corners"


def _views_of(documents: Sequence[_Document], folder: str) -> dict[str, str]:
    """Return the starts of the names in several columns, {} where these are not all in a folder."""
    views = dict(documents[0].inner.views)
    if any(document.inner.views != views for document in documents):
        return {}
    if any(PATTERN_SIGNS.intersection(start) for start in views.values()):
        return {}
    own = views.get(documents[0].inner.pattern, "")
    return views if own.rpartition("/")[0] == folder.rstrip("/") else {}


def _of_views(
    places: Mapping[str, str], ending: str, head: Mapping[str, Any], files: DataFiles
) -> dict[str, Guess]:
    """Return the guesses for the files that further columns of a table name."""
    if not places:
        return {}
    specs = {name: {"file": place} for name, place in places.items()}
    profile = profile_files(Schema.model_validate({**head, "fields": specs}), files.listing)
    guesses = guess_fields(profile.fields, profile.samples, files.name, episodes=False)
    why = ("named by the row, with another start than the first name",)
    is_picture = ending in PICTURES
    return {
        name: Guess(specs[name], why).plus(
            guess if "role" in guess.spec or not is_picture else Guess({"role": "image"})
        )
        for name, guess in guesses.items()
    }


def _with_sound(
    guesses: Mapping[str, Guess], place: str, ending: str, files: DataFiles
) -> dict[str, Guess]:
    """Return the guesses with the values of the named sounds."""
    profile = profile_files(any_field_schema(files.head(files=place)), files.listing)
    values = guess_fields(profile.fields, profile.samples, place + ending, episodes=False)
    sound = {}
    for name, guess in values.items():
        spec = {"file": place, "at": name}
        sound[f"sound_{name}" if name in guesses else name] = Guess(spec).plus(guess)
    return {**sound, **guesses}


def _is_one_value(head: Mapping[str, Any], place: str, files: DataFiles) -> bool:
    """Tell whether the named files can be read as one value; an archive holds several."""
    field = {_OTHER_FILE: {"file": place}}
    profile = profile_files(Schema.model_validate({**head, "fields": field}), files.listing)
    return _OTHER_FILE in profile.fields


def _name_many(documents: Sequence[_Document], files: DataFiles) -> bool:
    """Tell whether documents of known layouts name at least half as many files as are there."""
    names = sum(len(document.inner.files) for document in documents)
    known = all(document.inner.known for document in documents)
    return known and 2 * names >= len(files.readable)


def _matching(pattern: str | list[str], files: DataFiles) -> set[str]:
    patterns = pattern if isinstance(pattern, list) else [pattern]
    return set().union(*(files.matching(one) for one in patterns))


def _with_file(
    guesses: Mapping[str, Guess],
    place: str,
    ending: str,
    classes: Sequence[int],
    unit: str,
    why: str,
) -> dict[str, Guess]:
    """Return the guesses with the named file, and with the values that belong to a picture.

    Args:
        guesses: of the records.
        place: of the named file.
        ending: of its name.
        classes: numbers of the categories.
        unit: of boxes.
        why: the reason for it.
    """
    name = _PICTURE if ending in PICTURES else _OTHER_FILE
    while name in guesses:
        name += "_"
    spec: dict[str, Any] = {"file": place}
    if ending in PICTURES:
        spec["role"] = "image"
    elif ending in VIDEOS:
        spec["role"] = "video"
    values = _with_pixels(guesses, name, unit, why) if ending in PICTURES else dict(guesses)
    if "classes" in values and 0 < len(classes) <= _MOST_CLASSES:
        numbers = Guess(
            {"role": "class", "classes": class_numbers(classes)}, ("ids of the categories",)
        )
        values["classes"] = values["classes"].without("range").plus(numbers)
    return {name: Guess(spec, ("named by the record",)), **values}


def _with_pixels(
    guesses: Mapping[str, Guess], picture: str, unit: str, why: str
) -> dict[str, Guess]:
    """Return the guesses, with the boxes and the size that are stated as those of the picture."""
    result = dict(guesses)
    if "boxes" in result and "dtype" not in result["boxes"].spec:
        # A few pictures show no limit of the areas and counts of all.
        result = {name: guess.without("range") for name, guess in result.items()}
        boxes = {"role": "boxes", "unit": unit, "pixels_of": picture}
        if "area" in result:
            boxes["areas"] = "area"
        result["boxes"] = result["boxes"].plus(Guess(boxes, (why,)))
    if "size" in result:
        size = Guess({"role": "value", "pixels_of": picture}, ("width and height",))
        result["size"] = result["size"].without("range").plus(size)
    return result


def _without_whole(documents: Sequence[_Document]) -> Sequence[_Document]:
    """Return the documents without one that names the files of all others: train, test and all."""
    named = [{document.file(name) for name in document.inner.files} for document in documents]
    for place, whole in enumerate(named):
        others = [files for other, files in enumerate(named) if other != place]
        union = set[str]().union(*others)
        if len(others) > 1 and union <= whole and len(union) > _NEARLY_ALL * len(whole):
            return [*documents[:place], *documents[place + 1 :]]
    return documents


def _of_these_splits(pattern: str | list[str], documents: Sequence[_Document]) -> str | list[str]:
    """Return a pattern with ``{split}`` that matches no other document."""
    if isinstance(pattern, list) or pattern.count("{split}") != 1 or "*" in pattern:
        return pattern
    start, end = pattern.split("{split}")
    names = sorted({d.path.removeprefix(start).removesuffix(end) for d in documents})
    return f"{start}{{split:{'|'.join(map(re.escape, names))}}}{end}"


def _together(documents: Sequence[_Document]) -> tuple[str | list[str], str]:
    """Return the pattern of documents and the folder of their files, with ``{split}`` in both."""
    first = documents[0]
    if len(documents) == 1:
        return _pattern_of(first.path), first.folder
    for word in _words(first):
        form = _form(first, word)
        if all(any(_form(d, other) == form for other in _words(d)) for d in documents[1:]):
            return form
    paths = [document.path for document in documents if document.folder == first.folder]
    return [_pattern_of(path) for path in paths], first.folder


def _pattern_of(path: str) -> str:
    """Return a pattern that matches a path, also where its name holds signs of patterns."""
    return re.sub(f"[{re.escape(''.join(PATTERN_SIGNS))}]+", "*", path)


def _words(document: _Document) -> list[str]:
    """Return the words of a path that may be the name of a split."""
    folder = document.folder.rstrip("/").rpartition("/")[2]
    words = re.split(r"[/_.-]", document.path)
    found = dict.fromkeys(word for word in (folder, *words) if word and word in document.path)
    return list(found)[:_MOST_WORDS]


def _form(document: _Document, word: str) -> tuple[str, str]:
    """Return path and folder with ``{split}`` in place of a word, which a year may follow."""
    after = "[A-Za-z0-9]" if word[-1].isdigit() else "[A-Za-z]"
    parts = re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?!{after})")
    return parts.sub("{split}", _pattern_of(document.path), count=1), parts.sub(
        "{split}", document.folder, count=1
    )


def _inner_folder(names: Sequence[str]) -> str | None:
    """Return the folder in most names of files, "" or with "/" at its end; None if they differ."""
    folders = Counter(name.rpartition("/")[0] for name in names)
    folder, count = folders.most_common(1)[0]
    if len(folders) == 1 or 10 * count > 9 * len(names):
        return None if PATTERN_SIGNS.intersection(folder) else f"{folder}/" if folder else ""
    has_one_level = all(folder and "/" not in folder for folder in folders)
    return _FOLDER if has_one_level else None
