"""File patterns derived from paths, and advice for data that no schema fits."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from datacheck.errors import ManyLines
from datacheck.formats.base import format_of, formats
from datacheck.formats.foreign import UnsupportedFormat, unsupported_format
from datacheck.rules.base import pluralize
from datacheck.schema.load import FILES, builtin, chosen_by_files
from datacheck.schema.model import Schema, file_templates
from datacheck.schema.patterns import PATTERN_SIGNS
from datacheck.sources import matches
from datacheck.sources.listing import Listing, target

SPLITS = frozenset(
    {
        "train",
        "training",
        "val",
        "valid",
        "validation",
        "test",
        "testing",
        "eval",
        "evaluation",
        "dev",
    }
)
_SPLIT_IN = re.compile(
    rf"(?:|.*[^A-Za-z])({'|'.join(sorted(SPLITS, key=len, reverse=True))})(?![A-Z])(.*)"
)
NUMBER = "-{shard}"  # ends an ending that is followed by the number of a shard
# The digits at the end are those of a digest.
_IN_SHARDS = re.compile(r"[^-]+-[0-9]+-of-[0-9]+(?:-[0-9a-f]+)?")


def patterns(files: Sequence[tuple[Sequence[str], str]]) -> list[str]:
    """Return for each kind of file a pattern that fits all of its paths.

    The same level of folders has the same placeholder in all patterns.

    Args:
        files: the paths of each kind, and their ending.

    Returns:
        [] where there are several kinds, and no placeholders tell which files of the kinds belong
        together.
    """
    kinds = [[path.split("/") for path in paths] for paths, _ in files]
    endings = [ending for _, ending in files]
    depths = {len(path) for kind in kinds for path in kind}
    if len(depths) > 1 and len(files) == 1:
        return [f"**/*{endings[0]}"]
    # Files of --root have paths that start with @.
    rooted = any(path[0].startswith("@") for kind in kinds for path in kind)
    if len(depths) > 1 or (
        len(files) > 1 and (rooted or any(map(PATTERN_SIGNS.intersection, endings)))
    ):
        return []
    levels: list[list[str]] = []
    for level in range(depths.pop() - 1):
        levels.append(_folders([{path[level] for path in kind} for kind in kinds], level, levels))
        if not levels[-1]:
            return []
    stems = {
        _stem(path[-1], end) for kind, end in zip(kinds, endings, strict=True) for path in kind
    }
    is_one_file = [len(kind) for kind in kinds] == [1]
    if is_one_file and not PATTERN_SIGNS.intersection("".join(stems)):
        stem = stems.pop()
    else:
        stem = "" if stems == {""} else _stem_pattern(stems, endings, levels)
    return [
        "/".join([*(level[n] for level in levels), stem + end]) for n, end in enumerate(endings)
    ]


def _stem(name: str, ending: str) -> str:
    return (
        name[: name.rindex(ending.removesuffix(NUMBER))]
        if ending.endswith(NUMBER)
        else name[: -len(ending) or None]
    )


def _folders(
    values: Sequence[set[str]], level: int, upper_levels: Sequence[Sequence[str]]
) -> list[str]:
    """Return the pattern of each kind at one level of folders.

    [] where the kinds differ in names that no pattern can hold.
    """
    every = set[str]().union(*values)
    alone = all(len(kind) == 1 for kind in values) and not every & SPLITS
    if alone and not any(map(PATTERN_SIGNS.intersection, every)):
        return [name for kind in values for name in kind]
    if alone and len(every) > 1:
        return []
    if len(values) > 1 and not any("{split}" in upper for upper in upper_levels):
        named = _around_splits(values)
        if named:
            return named
    return ["{split}" if _splits(every, upper_levels) else f"{{folder{level + 1}}}"] * len(values)


def _around_splits(values: Sequence[set[str]]) -> list[str]:
    """Return the pattern of each kind whose folders name the split and the kind, [] if they do not.

    The placeholder lists the splits: else the folder train would also stand for trainannot.
    """
    found = [[around_split(name) for name in kind] for kind in values]
    known = [[one for one in kind if one is not None] for kind in found]
    if known != found or any(len({one[:2] for one in kind}) > 1 for kind in known):
        return []
    if len({kind[0][:2] for kind in known}) == 1:  # another level tells the kinds apart
        return []
    names = "|".join(sorted({one[2] for kind in known for one in kind}))
    return [f"{kind[0][0]}{{split:{names}}}{kind[0][1]}" for kind in known]


def around_split(folder: str) -> tuple[str, str, str] | None:
    """Return what stands before and after the name of a split in that of a folder, and the split.

    None if there is no such name, or nothing beside it that a pattern can hold.
    """
    found = _SPLIT_IN.fullmatch(folder)
    if found is None or PATTERN_SIGNS.intersection(folder):
        return None
    return folder[: found.start(1)], found[2], found[1]


def _stem_pattern(
    stems: set[str], endings: Sequence[str], upper_levels: Sequence[Sequence[str]]
) -> str:
    """Return a pattern of the names of files without their endings."""
    if _splits(stems, upper_levels):
        return "{split}"
    suffixes = {name.rpartition("-")[2] for name in stems}
    if endings[0].endswith(NUMBER) and _splits(suffixes, upper_levels):
        # As TensorFlow Datasets names its files: bridge-train.tfrecord-00000-of-00512
        return "{id}-{split}"
    prefixes = {name.partition("-")[0] for name in stems}
    if _splits(prefixes, upper_levels) and all(map(_IN_SHARDS.fullmatch, stems)):
        # As Hugging Face names its files: train-00000-of-00003.parquet
        return "{split}-{shard}-of-{shards}"
    ends = {stem.rpartition("_")[2].lower() if stem.find("_") > 0 else "" for stem in stems}
    if len(endings) == 1 and len(ends) > 1 and _splits(ends, upper_levels):
        # As archives name the parts of each dataset: Vowels_TRAIN.ts, Vowels_TEST.ts
        return "{id}_{split}"
    return "{id}"


def _splits(names: set[str], upper_levels: Sequence[Sequence[str]]) -> bool:
    """Tell whether names are split names; {split} stands in a pattern once at most."""
    return names <= SPLITS and not any("{split}" in level for level in upper_levels)


_ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii "
    "ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr "
    "ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl "
    "sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh "
    "zu"
).replace(" ", "|")
_SIDE = re.compile(
    rf"(?:(?:{_ISO_639_1})(?:[_-][A-Z]\w{{1,9}})?|[a-z]{{3}}_[A-Z][a-z]{{3}}|src|tgt|source|target)"
)
# Parts of one split (train-00001-of-00002, train.part1, train-aa); train.clean and train.noisy may
# be two splits.
_SHARD = re.compile(r"train(?:ing)?(?:[^a-z]|of|part|shard|chunk|split|file)*(?:[^a-z][a-z]{2})?")
_NEARLY_ALL = 0.8  # a language of this share of the texts should be in all; a rarer one is optional
_EQUAL = 0.01  # share of lines by which two files may differ that should have equally many
_LOOKED = 5  # texts whose lines are counted
_MOST_SIDES = 64

LineCounter = Callable[[Sequence[str]], Mapping[str, int]]


@dataclass(frozen=True)
class Corpus:
    """A parallel corpus: files whose lines correspond.

    Args:
        sides: pattern of the files by language, the samples' own file first.
        optional: languages that some of the texts do not have.
        paths: of all files.
        lines: of the files that were counted.
    """

    sides: dict[str, str]
    optional: frozenset[str]
    paths: tuple[str, ...]
    lines: int


def texts_by_language(paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the texts that have files in at least two languages, as text: {language: path}.

    A text is the part of the paths before the language.
    """
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        stem, _, side = path.rpartition(".")
        if stem.rpartition("/")[2] and _SIDE.fullmatch(side) and format_of(path) is None:
            texts[stem][side] = path
    return {
        stem: by_language for stem, by_language in sorted(texts.items()) if len(by_language) > 1
    }


def corpus_of(paths: Sequence[str], count: LineCounter) -> Corpus | None:
    """Return the parallel corpus that files form, or None.

    Args:
        paths: relative POSIX paths of all files.
        count: returns the number of lines by file, without files that are not text.

    Notes:
        The endings must be languages, or source and target, and at least half of the files must
        have as many lines as the first file of their text. Code in several programming languages
        does not.
    """
    texts = texts_by_language(paths)
    side_counts = Counter(side for by_side in texts.values() for side in by_side)
    if not side_counts or len(side_counts) > _MOST_SIDES:
        return None
    main_side = min(side_counts, key=lambda side: (-side_counts[side], side))
    texts = {stem: by_side for stem, by_side in texts.items() if main_side in by_side}
    stems = list(texts)[:: max(1, len(texts) // _LOOKED)][:_LOOKED]
    lines = count([path for stem in stems for path in texts[stem].values()])
    pairs = [
        (lines.get(texts[stem][main_side], 0), lines.get(path, -1))
        for stem in stems
        for side, path in texts[stem].items()
        if side != main_side
    ]
    if 2 * sum(abs(one - two) <= _EQUAL * max(one, two) for one, two in pairs) < len(pairs):
        return None
    sides = sorted(
        {side for by_side in texts.values() for side in by_side},
        key=lambda side: (side != main_side, side),
    )
    by_side = _patterns(texts, sides)
    optional = {
        side
        for side in sides
        if sum(side in by_side for by_side in texts.values()) < _NEARLY_ALL * len(texts)
    }
    every = tuple(sorted(path for by_side in texts.values() for path in by_side.values()))
    counted = sum(lines.get(texts[stem][main_side], 0) for stem in stems)
    if not by_side or not counted:
        return None
    return Corpus(dict(zip(sides, by_side, strict=True)), frozenset(optional), every, counted)


def _patterns(texts: Mapping[str, Mapping[str, str]], sides: Sequence[str]) -> list[str]:
    """Return the pattern of each language; with ``{split}`` where all names begin with a split."""
    names = [stem.rpartition("/")[2] for stem in texts]
    tail = _tail(names)
    kinds = [
        ([by_side[side] for by_side in texts.values() if side in by_side], f"{tail}.{side}")
        for side in sides
    ]
    by_side = patterns(kinds)
    words = Counter(re.split(r"[^a-z]", name, maxsplit=1)[0] for name in set(names))
    shards = sum(_SHARD.fullmatch(name.removesuffix(tail)) is not None for name in set(names))
    if words.keys() <= SPLITS and shards < 2 and not any("{split}" in text for text in by_side):
        return [text.replace("{id}", "{split}") for text in by_side]
    return by_side


def _tail(names: Sequence[str]) -> str:
    """Return the common end of all names, from a word separator on; "" for a single name."""
    shared = min(names, key=len) if len(set(names)) > 1 else ""
    while not all(name.endswith(shared) for name in names):
        shared = shared[1:]
    separator = re.search(r"[._-]", shared)
    return shared[separator.start() :] if separator else ""


_PATHS = 5_000  # paths of a folder that are examined
_LEVELS = 3  # folders examined above, and below
_ANYWHERE = "**/"
_NO_HEADER = ".bin"  # the name says nothing of the content
_KINDS = 6  # endings named in one line
_OWN_CODE = "scan what your own code reads from them: datacheck scan --loader MODULE:FUNCTION"


def mismatch_error(schema: Schema, listing: Listing, data: Path) -> str:
    """Return the error about data in which the schema fits no file."""
    count = len(listing.entries)
    fitting = matches(schema, listing)
    if fitting:
        fitting_text = f"{fitting:,} of its {count:,} files fit schema {schema.name}"
        return f"{data}: {fitting_text}, but the lists of samples (samples.list) name none. Mend the lists."
    misfit_text = f"none of its {count:,} files fits" if count > 1 else "its only file does not fit"
    patterns = ", ".join(schema.samples.files)
    first = listing.entries[0].path
    # Lines of advice follow: a line break in a name must not fake one.
    first = first if first.isprintable() else repr(first)
    message = f"{data}: {misfit_text} schema {schema.name} (samples.files: {patterns}); the first is {first}."
    if schema.name == "files":
        lines = [f"{message} No format reads them; known are {', '.join(sorted(formats()))}."]
        return ManyLines.of(
            [*lines, *(f"    {line}" for line in foreign_lines(listing) if line.isprintable())]
        )
    advice_text = (
        ""
        if unreadable(data, listing)
        else " Choose another schema; --schema files takes any folder"
    )
    return ManyLines.of([f"{message}{advice_text}", *advice(data, listing, schema)])


_MOST_LISTED = 2  # formats without a reader that an error names


def foreign_lines(listing: Listing) -> list[str]:
    """Return a line for each of the largest formats without a reader: its name, and a way in."""
    byte_counts: Counter[UnsupportedFormat] = Counter()
    examples: dict[UnsupportedFormat, str] = {}
    for path, nbytes in zip(listing.entries.paths, listing.entries.sizes.tolist(), strict=True):
        if format_of(path) is None and (file_format := unsupported_format(path)) is not None:
            byte_counts[file_format] += nbytes
            examples.setdefault(file_format, path)
    return [
        f"no format reads {file_format.name} ({examples[file_format]}): {file_format.way}"
        for file_format, _ in byte_counts.most_common(_MOST_LISTED)
    ]


def no_schema_fits(data: Path, listing: Listing) -> str:
    """Return the error about data that no built-in schema fits."""
    message = (
        "no built-in schema fits the files found here. Say what they are: --schema NAME|FILE "
        f"(built in are {', '.join(builtin())}); --schema {FILES} checks any folder"
    )
    return ManyLines.of([message, *advice(data, listing)])


def advice(data: Path, listing: Listing, wanted: Schema | None = None) -> list[str]:
    """Return indented lines that say which commands to type.

    Args:
        data: folder or file, as the user named it.
        listing: its files.
        wanted: the schema that fits none of them; None: no built-in one does.

    Notes:
        Only names are used; of a large folder only some. A line is left out if it has a name that
        cannot be typed as it is shown (a line break, a terminal command).
    """
    schemas = chosen_by_files()
    if wanted is None:
        lines = [*elsewhere(data, listing), *_other_names(listing, schemas)]
    else:
        fitting = {
            name: count for name, schema in schemas.items() if (count := matches(schema, listing))
        }
        candidates = {wanted.name: wanted} if schemas.get(wanted.name) == wanted else {}
        lines = [
            f"schema {name} fits {count:,} of them: --schema {name}"
            for name, count in fitting.items()
        ]
        lines += [*elsewhere(data, listing, candidates), *_other_names(listing, candidates)]
    lines += foreign_lines(listing)
    byte_counts = _bytes_by_ending(listing)
    sides = {
        path for text in texts_by_language(listing.entries.paths).values() for path in text.values()
    }
    readable = [ending for ending in byte_counts if format_of(f"x{ending}") is not None]
    if 2 * sum(byte_counts[ending] for ending in readable) <= byte_counts.total():
        unknown = [
            path
            for path in listing.entries.paths
            if format_of(path) is None and unsupported_format(path) is None
        ]
        unknown = sorted(set(unknown) - sides)
        lines += [f"no format reads {by_ending(unknown)}: {_OWN_CODE}"] if unknown else []
    if readable or sides:
        lines.append(f"datacheck init {typed(data)} drafts a schema from what is in them")
    return [f"    {line}" for line in lines if line.isprintable()]


def unreadable(data: Path, listing: Listing) -> str:
    """Return a message for data without a file of a known format; "" where there is one."""
    if any(format_of(path) is not None for path in listing.entries.paths):
        return ""
    problem = (
        f"{data}: no format reads any of its {len(listing.entries):,} files: "
        f"{by_ending(listing.entries.paths)}"
    )
    suffixes = sorted(
        suffix for file_format in formats().values() for suffix in file_format.suffixes
    )
    first = f"{problem}. Read are {' '.join(suffixes)}. Convert the data to one of these, or {_OWN_CODE}"
    return ManyLines.of(
        [first, *(f"    {line}" for line in foreign_lines(listing) if line.isprintable())]
    )


def by_ending(paths: Iterable[str]) -> str:
    """Return the number of files by ending, the most frequent first; rare ones are summed up."""
    kinds = Counter(PurePosixPath(path).suffix for path in paths).most_common()
    phrases = [pluralize(count, f"{ending} file".strip()) for ending, count in kinds[:_KINDS]]
    remaining = sum(count for _, count in kinds[_KINDS:])
    return ", ".join(
        [*phrases, f"{pluralize(remaining, 'file')} of other kinds"] if remaining else phrases
    )


def elsewhere(
    data: Path, listing: Listing, schemas: Mapping[str, Schema] | None = None
) -> list[str]:
    """Return a line for each schema that fits a folder above or below: a usual mistake.

    Args:
        data: folder or file, as the user named it.
        listing: its files.
        schemas: by name; None: the built-in ones.
    """
    schemas = chosen_by_files() if schemas is None else schemas
    lines = []
    paths = [path for path in listing.entries.paths[:: _step(listing)] if not path.startswith("@")]
    root, _ = target(data)
    for name, schema in schemas.items():
        folder = _above(schema, root, paths) or _below(schema, root, paths)
        if folder is not None:
            lines.append(
                f"schema {name} fits the folder {folder}: datacheck scan {typed(folder)} "
                f"--schema {name}"
            )
    return lines


def _above(schema: Schema, root: Path, paths: list[str]) -> Path | None:
    root = root.resolve()  # a scan of a folder above does not follow links that lead out of it
    folders = root.parts[1:]
    for level in range(1, min(_LEVELS, len(folders) - 1) + 1):
        prefix = "/".join(folders[-level:])
        if any(_fits(schema, f"{prefix}/{path}") for path in paths):
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
    working_folder = Path.cwd()
    return folder.relative_to(working_folder) if folder.is_relative_to(working_folder) else folder


def typed(path: Path) -> str:
    """Return a path as typed in a shell, protected from being taken for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _step(listing: Listing) -> int:
    return max(1, len(listing.entries) // _PATHS)


def _bytes_by_ending(listing: Listing) -> Counter[str]:
    """Return the bytes by file ending; of a large folder those of some files."""
    step = _step(listing)
    byte_counts: Counter[str] = Counter()
    for path, nbytes in zip(
        listing.entries.paths[::step], listing.entries.sizes[::step].tolist(), strict=True
    ):
        byte_counts[PurePosixPath(path).suffix] += nbytes
    return byte_counts


def _fits(schema: Schema, path: str) -> bool:
    return any(
        template.tail and path.endswith(template.tail) and template.match(path) is not None
        for template in file_templates(schema)
    )


def _other_names(listing: Listing, schemas: Mapping[str, Schema]) -> Iterator[str]:
    """Yield a one-line schema that applies a built-in schema to files with other names."""
    byte_counts = _bytes_by_ending(listing)  # the ending with most bytes is the data, not notes
    ending = max(
        (suffix for suffix in byte_counts if format_of(f"x{suffix}") is not None),
        key=lambda suffix: byte_counts[suffix],
        default="",
    )
    fitting = [
        name
        for name, schema in schemas.items()
        if ending
        and ending != _NO_HEADER
        and all(
            t.text.startswith(_ANYWHERE) and t.tail.endswith(ending) for t in file_templates(schema)
        )
    ]
    if fitting:
        name, alternatives = (
            (fitting[0], "")
            if len(fitting) == 1
            else ("NAME", f" (NAME is {' or '.join(fitting)})")
        )
        schema_line = (
            f'{{datacheck: 1, name: mine, extends: {name}, samples: {{files: "**/*{ending}"}}}}'
        )
        yield f"the same layout, other file names: --schema mine.yaml with the line {schema_line}{alternatives}"
