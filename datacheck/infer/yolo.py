"""Labels of YOLO in a draft: a line for each box with class, centre and size.

The numbers of the box are fractions of the picture. The document of the dataset names the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from datacheck.infer.data_files import DataFiles
from datacheck.infer.profile import FieldProfile
from datacheck.infer.profiling import find_inner_samples
from datacheck.infer.writing import Guess, class_numbers

_WIDTH = 5  # class, centre x and y, width, height
# Fractions that were rounded up reach a little above 1.
_MOST_FRACTION = 1.001
_MOST_CLASSES = 10_000
_DOCUMENTS = (".yaml", ".yml")
_MOST_DOCUMENTS = 5
_MOST_BYTES = 1 << 20


def with_yolo_boxes(
    guesses: Mapping[str, Guess], profiles: Mapping[str, FieldProfile], files: DataFiles
) -> dict[str, Guess]:
    """Return the guesses, with tables of YOLO's labels cut into class and box of the one picture.

    Args:
        guesses: by field.
        profiles: of the fields.
        files: of the dataset.
    """
    pictures = [name for name, guess in guesses.items() if guess.spec.get("role") == "image"]
    tables = [
        name
        for name, guess in guesses.items()
        if name in profiles and _is_text(guess) and _is_table(profiles[name])
    ]
    if len(pictures) != 1 or not tables:
        return dict(guesses)
    classes, document = _stated_classes(files)
    result = dict(guesses)
    for name in tables:
        named = _is_named(guesses[name])
        # With names and a document, odd rows are faults that a scan should find.
        if (named and document) or (
            (named or document) and _holds_boxes(profiles[name], fractions=not document)
        ):
            result |= _cut(name, guesses[name], pictures[0], classes, document)
    return result


def _cut(
    name: str, table: Guess, picture: str, classes: Sequence[int], document: str
) -> dict[str, Guess]:
    """Return the guesses for a table of labels and for its columns."""
    form = {"columns": "class boxes:4", "shape": ["N", _WIDTH], "optional": True}
    kinds = Guess({"role": "class"}, ("the first number of each line",))
    if classes:
        numbers = Guess({"classes": class_numbers(classes)}, (f"names of {document}",))
        kinds = kinds.plus(numbers)
    boxes = {"role": "boxes", "unit": "1", "box_format": "cxcywh", "pixels_of": picture}
    return {
        name: table.without("range").plus(
            Guess(form, ("labels of YOLO: a picture of the background has none",))
        ),
        f"{name}.class": kinds,
        f"{name}.boxes": Guess(boxes, ("fractions of the picture",)),
    }


def _is_text(guess: Guess) -> bool:
    return str(guess.spec.get("file", "")).lower().endswith(".txt")


def _is_named(guess: Guess) -> bool:
    """Tell whether the folder or the name of the files says that they are labels."""
    return "label" in str(guess.spec["file"]).lower()


def _is_table(profile: FieldProfile) -> bool:
    """Tell whether the rows of most files can have five numbers."""
    return profile.item in ([_WIDTH], None) and profile.ndims.keys() == {"2"}


def _holds_boxes(profile: FieldProfile, *, fractions: bool) -> bool:
    """Tell whether each row is a whole number and four more numbers, none below 0.

    Args:
        profile: of the tables.
        fractions: whether the four must be fractions.
    """
    if len(profile.columns) != _WIDTH:
        return False
    (_, highest, whole), *numbers = profile.columns
    is_class = bool(whole) and highest < _MOST_CLASSES
    if not is_class or any(low < 0 for low, _, _ in profile.columns):
        return False
    are_fractions = all(high <= _MOST_FRACTION for _, high, _ in numbers)
    return not fractions or (are_fractions and not all(whole for _, _, whole in numbers))


def _stated_classes(files: DataFiles) -> tuple[Sequence[int], str]:
    """Return the classes that the document of the dataset names, and its path; "" without one."""
    paths = [
        path
        for path in _documents(files.listing.entries.paths)
        if files.listing.by_path[path].size <= _MOST_BYTES
    ]
    for path, document in find_inner_samples(files.listing.root, paths).items():
        if document.classes:
            return document.classes, path
    return (), ""


def _documents(paths: Iterable[str]) -> list[str]:
    """Return the paths of a few YAML files, those of the outermost folders first."""
    found = [path for path in paths if PurePosixPath(path).suffix.lower() in _DOCUMENTS]
    return sorted(found, key=lambda path: (path.count("/"), path))[:_MOST_DOCUMENTS]
