"""What to type where no file of a folder fits: the folder above or below that does, another schema, one of your own."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from datacheck.errors import ManyLines
from datacheck.formats.base import format_of, formats
from datacheck.formats.foreign import foreign_of
from datacheck.rules.base import counted
from datacheck.scan.corpora import texts_of
from datacheck.scan.coverage import foreign_lines
from datacheck.schema.load import FILES, WHOLE, builtin, load_schema
from datacheck.schema.model import Schema
from datacheck.sources import matches
from datacheck.sources.base import file_templates
from datacheck.sources.listing import Listing, target

_PATHS = 5_000  # of a folder, by which it is judged
_LEVELS = 3  # folders looked at above, and below
_ANYWHERE = "**/"
_NO_HEADER = ".bin"  # names of such files say nothing of what they hold
_KINDS = 6  # of files, named in one line
_OWN_CODE = "scan what your own code reads from them: datacheck scan --loader MODULE:FUNCTION"


def advice(data: Path, listing: Listing, wanted: Schema | None = None) -> list[str]:
    """Return lines that say what to type, indented.

    Args:
        data: folder or file, as it was named.
        listing: its files.
        wanted: the schema that fits none of them; None: no built-in one does.

    Notes:
        Only names are looked at. Of a large folder some of them decide. A line with a name that cannot be typed as it
        is shown (a line break, a command to the terminal) is left out.
    """
    known = {name: load_schema(name) for name in builtin() if name not in {FILES, *WHOLE}}
    if wanted is None:
        lines = [*_elsewhere(data, listing, known), *_other_names(listing, known)]
    else:
        here = {name: count for name, schema in known.items() if (count := matches(schema, listing))}
        mine = {wanted.name: wanted} if known.get(wanted.name) == wanted else {}
        lines = [f"schema {name} fits {count:,} of them: --schema {name}" for name, count in here.items()]
        lines += [*_elsewhere(data, listing, mine), *_other_names(listing, mine)]
    lines += foreign_lines(listing)
    held = _held(listing)
    sides = {path for text in texts_of(listing.entries.paths).values() for path in text.values()}
    readable = [ending for ending in held if format_of(f"x{ending}") is not None]
    if 2 * sum(held[ending] for ending in readable) <= held.total():
        unknown = [path for path in listing.entries.paths if format_of(path) is None and foreign_of(path) is None]
        unknown = sorted(set(unknown) - sides)
        lines += [f"no format reads {by_ending(unknown)}: {_OWN_CODE}"] if unknown else []
    if readable or sides:
        lines.append(f"datacheck init {typed(data)} drafts a schema from what is in them")
    return [f"    {line}" for line in lines if line.isprintable()]


def unreadable(data: Path, listing: Listing) -> str:
    """Return what to say of data of which no file is of a known format; "" where one is."""
    if any(format_of(path) is not None for path in listing.entries.paths):
        return ""
    none = f"{data}: no format reads any of its {len(listing.entries):,} files: {by_ending(listing.entries.paths)}"
    known = sorted(suffix for one in formats().values() for suffix in one.suffixes)
    first = f"{none}. Read are {' '.join(known)}. Convert the data to one of these, or {_OWN_CODE}"
    return ManyLines.of([first, *(f"    {line}" for line in foreign_lines(listing) if line.isprintable())])


def by_ending(paths: Iterable[str]) -> str:
    """Return how many files have which ending, the most frequent ones first; of many kinds the last are counted."""
    kinds = Counter(PurePosixPath(path).suffix for path in paths).most_common()
    said = [counted(count, f"{ending} file".strip()) for ending, count in kinds[:_KINDS]]
    rest = sum(count for _, count in kinds[_KINDS:])
    return ", ".join([*said, f"{counted(rest, 'file')} of other kinds"] if rest else said)


def _elsewhere(data: Path, listing: Listing, schemas: Mapping[str, Schema]) -> Iterator[str]:
    """Yield which schema fits a folder above or below: the wrong level is the usual mistake."""
    paths = [path for path in listing.entries.paths[:: _step(listing)] if not path.startswith("@")]
    root, _ = target(data)
    for name, schema in schemas.items():
        folder = _above(schema, root, paths) or _below(schema, root, paths)
        if folder is not None:
            yield f"schema {name} fits the folder {folder}: datacheck scan {typed(folder)} --schema {name}"


def _above(schema: Schema, root: Path, paths: list[str]) -> Path | None:
    root = root.resolve()  # a scan of a folder above follows no link that leads out of it
    folders = root.parts[1:]
    for level in range(1, min(_LEVELS, len(folders) - 1) + 1):
        within = "/".join(folders[-level:])
        if any(_fits(schema, f"{within}/{path}") for path in paths):
            return _shown(root.parents[level - 1])
    return None


def _below(schema: Schema, root: Path, paths: list[str]) -> Path | None:
    for level in range(1, _LEVELS + 1):
        split = [path.split("/", level) for path in paths if path.count("/") >= level]
        counted = Counter(tuple(folders) for *folders, path in split if _fits(schema, path))
        if counted:
            return root.joinpath(*max(counted, key=lambda folder: counted[folder]))
    return None


def _shown(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def typed(path: Path) -> str:
    """Return a path as a shell takes it, and a command that could take it for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _step(listing: Listing) -> int:
    return max(1, len(listing.entries) // _PATHS)


def _held(listing: Listing) -> Counter[str]:
    """Return the bytes of some files by the ending of their names."""
    step = _step(listing)
    held: Counter[str] = Counter()
    for path, nbytes in zip(listing.entries.paths[::step], listing.entries.sizes[::step].tolist(), strict=True):
        held[PurePosixPath(path).suffix] += nbytes
    return held


def _fits(schema: Schema, path: str) -> bool:
    return any(template.tail and template.match(path) is not None for template in file_templates(schema))


def _other_names(listing: Listing, schemas: Mapping[str, Schema]) -> Iterator[str]:
    """Yield how a schema of one line takes the fields of a built-in one for files of other names."""
    held = _held(listing)  # what the data are; notes beside them are not
    ending = max((one for one in held if format_of(f"x{one}") is not None), key=lambda one: held[one], default="")
    alike = [
        name
        for name, schema in schemas.items()
        if ending
        and ending != _NO_HEADER
        and all(t.text.startswith(_ANYWHERE) and t.tail.endswith(ending) for t in file_templates(schema))
    ]
    if alike:
        name, which = (alike[0], "") if len(alike) == 1 else ("NAME", f" (NAME is {' or '.join(alike)})")
        own = f'{{datacheck: 1, name: mine, extends: {name}, samples: {{files: "**/*{ending}"}}}}'
        yield f"the same layout, other file names: --schema mine.yaml with the line {own}{which}"
