"""The schema as frozen pydantic models.

``schemas/README.md`` describes the language for users; every key there is an attribute here.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    model_validator,
)

from datacheck import tokenization
from datacheck.errors import UsageError
from datacheck.runtime.hashing import digest_value
from datacheck.schema.grammar import (
    CENTRES,
    DTYPES,
    FRAMES,
    ROBOTS,
    ROLES,
    SAMPLES,
    SKELETONS,
    SUM,
    UNITS,
    Classes,
    Columns,
    Counts,
    File,
    Files,
    Interval,
    Lists,
    MustBe,
    Range,
    Regex,
    Shape,
    Share,
    Strings,
    as_tuple,
    one_of,
    parse_columns,
    suggestion,
    word_no,
    word_off,
)
from datacheck.schema.patterns import Template, parse

__all__ = ["ANY", "FieldSpec", "Range", "Schema", "parse_columns"]

# The rule about fields that a schema does not list; a scan reads them unless the rule is off.
UNLISTED = "DC130"
RECORDS = (".yaml", ".yml", ".json")  # list formats whose entries may be mappings
ANY = "*"  # field name for all fields that a schema does not list

Ints = Annotated[tuple[int, ...], BeforeValidator(as_tuple)]
Floats = Annotated[tuple[float, ...], BeforeValidator(as_tuple)]
Count = Annotated[int, Field(gt=0)]
Level = Literal["error", "warning", "info", "off"]
Pair = Annotated[tuple[str, str], BeforeValidator(as_tuple)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )


class StatsSpec(_Model):
    """The normalization statistics of a field: one number per column, declared or read from a file.

    Args:
        optional: the normalizer works without the file, so the schema accepts its absence.
    """

    file: File | None = None
    optional: bool = False
    at: str | None = None
    mean: Floats = ()
    std: Floats = ()
    min: Floats = ()
    max: Floats = ()


class FieldSpec(_Model):
    """One field: its role, its shape and dtype, and the conditions on its values."""

    role: Annotated[str | None, one_of(ROLES, "role")] = None
    shape: Shape | None = None
    dtype: Annotated[str | None, one_of(DTYPES, "dtype")] = None
    unit: Annotated[str | None, one_of(UNITS, "unit")] = None
    optional: bool = False
    absent: bool = False
    at: str | None = None
    file: File | None = None
    columns: Columns | None = None
    range: Interval | None = None
    size: Interval | None = None
    distance: Interval | None = None
    finite: bool = True
    centered: Annotated[str | None, one_of(CENTRES, "centre"), BeforeValidator(word_no)] = None
    centered_on: str | None = None
    frame: Annotated[str | None, one_of(FRAMES, "frame")] = None
    up: Literal["x", "y", "z", "-x", "-y", "-z"] | None = None
    intrinsics: str | None = None
    extrinsics: str | None = None
    scale: Annotated[float, Field(gt=0)] | None = None
    channels: Floats = ()
    origin: Literal["top_left", "bottom_left"] | None = None
    image_size: Annotated[tuple[Count, Count], BeforeValidator(as_tuple)] | None = None
    skeleton: Annotated[str | None, one_of(SKELETONS, "skeleton")] = None
    robot: Annotated[str | None, one_of(ROBOTS, "robot")] = None
    max_speed: Annotated[float, Field(gt=0)] | None = None
    drives: str | None = None
    lag: int | None = None
    values: Floats = ()
    order: Literal["wxyz", "xyzw"] | None = None
    near: str | None = None
    posed_by: str | None = None
    rests: Interval | None = None
    indexes: str | None = None
    encloses: str | None = None
    pixels_of: str | None = None
    annotates: str | None = None
    encodes: Pair | None = None
    share: Interval | None = None
    stats: StatsSpec | None = None
    ignore: Ints = ()
    sentinels: Floats = ()
    classes: Classes | None = None
    min_points: Count | None = None
    min_instances: Count | None = None
    must_be: MustBe | None = None
    speakers: Strings = ()
    train_on: str | None = None
    preferred_over: str | None = None
    label_of: str | None = None
    shift: Literal[0, 1] | None = None
    min_trained_tokens: Count | None = None

    @property
    def ragged(self) -> str | None:
        """The name of the first axis if it has one: its size then differs between samples."""
        return self.shape[0] if self.shape and isinstance(self.shape[0], str) else None

    @property
    def is_text(self) -> bool:
        """Whether the values are text or JSON rather than arrays."""
        return self.role in {"text", "chat", "captions"} or self.dtype in {"text", "json"}


class SamplesSpec(_Model):
    """Where samples come from: their files, lists, contents, groups and companions."""

    files: Files
    split: dict[str, Files] = Field(default_factory=dict)
    list: Lists | None = None
    records: File | None = None
    counts: dict[str, Counts] = Field(default_factory=dict)
    companions: dict[str, Files] = Field(default_factory=dict)
    each: str | None = None
    group: str | None = None
    masks: str | None = None


class EpisodeSpec(_Model):
    """The time axis: rate, allowed lengths, share of idle steps."""

    fps: Annotated[float, Field(ge=1e-6, le=1e9)] | None = None  # a time step is 1 / fps
    length: Interval | None = None
    max_idle: Share | None = None


class WindowsSpec(_Model):
    """How training cuts episodes: window length in steps, stride, padding, short episodes."""

    length: Count
    stride: Count = 1
    pad: Literal["none", "edge", "zero"] = "none"
    short: Literal["drop", "pad", "raise"] = "drop"


def _loader_steps(value: object) -> object:
    if isinstance(value, dict):
        for name, setting in value.items():
            _loader_step(name, setting)
    return value


def _loader_step(name: object, value: object) -> None:
    kinds: dict[object, tuple[str, bool]] = {
        "clip": ("a whole number of points above 0", _above_0(value, int)),
        "voxel": ("an edge above 0 in the unit of the points", _above_0(value, int, float)),
        "drop_classes": ("a list of class numbers", _class_numbers(value)),
        "keep_classes": (
            "a list of class numbers, or the file of the table that holds them, below the data "
            "folder",
            _class_numbers(value) or (isinstance(value, str) and _inside(value)),
        ),
        "min_points": ("a whole number of points above 0", _above_0(value, int)),
        "captions": ("the name of the field that holds the captions", isinstance(value, str)),
    }
    if name not in kinds:
        msg = f"unknown step {name!r}" + (
            suggestion(name, map(str, kinds)) or f"; known are {', '.join(map(str, kinds))}"
        )
        raise ValueError(msg)
    takes, fits = kinds[name]
    if not fits:
        msg = f"{name}: found {value!r}; this step takes {takes}"
        raise ValueError(msg)


def _class_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(v) is int for v in value)


def _inside(path: str) -> bool:
    return (
        bool(path)
        and "\0" not in path
        and not Path(path).is_absolute()
        and ".." not in Path(path).parts
    )


def _above_0(value: Any, *kinds: type) -> bool:
    # `type()`, not `isinstance`: True is not a number.
    return type(value) in kinds and bool(0 < value < float("inf"))


class LoaderSpec(RootModel[Annotated[dict[str, Any], BeforeValidator(_loader_steps)]]):
    """The steps of the training loader on instances, in order; instances are counted after them.

    Steps: ``clip`` (keep so many random points), ``voxel`` (edge in the unit of the points),
    ``drop_classes``, ``keep_classes`` (points of others lose their label), ``min_points`` (of an
    instance), ``captions`` (the field whose ids an instance must have).
    """

    model_config = ConfigDict(frozen=True)

    @property
    def steps(self) -> tuple[tuple[str, Any], ...]:
        """(name, value) of each step, in the order of the schema."""
        return tuple(self.root.items())

    def get(self, name: str) -> Any:
        """Return the value of a step, None without such a step."""
        return self.root.get(name)


class TokenizerSpec(_Model):
    """How text becomes tokens: tokenizer path, vocabulary size, maximum length, supervised part."""

    path: File | None = None
    vocab: Count | None = None
    max_length: Count | None = None
    lengths: dict[str, Count] = Field(default_factory=dict)
    start: str = "<|im_start|>assistant\n"
    end: str = "<|im_end|>\n"


class SplitsSpec(_Model):
    """The key that keeps samples together across splits, and the splits that must not share it."""

    key: str
    match: Regex | None = None
    disjoint: Strings = ()


class DuplicatesSpec(_Model):
    """The severity of exact copies, and the similarity (0 to 1) at which near copies begin."""

    exact: Annotated[Level, BeforeValidator(word_off)] = "warning"
    near: Share | None = None


class RuleSpec(_Model):
    """Settings of one rule: severity, share allowed to fail, waived keys, and its own options."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    severity: Annotated[Level | None, BeforeValidator(word_off)] = None
    allow: Share = 0.0
    ignore: Strings = ()
    reason: str | None = None

    @model_validator(mode="after")
    def _check_reason(self) -> RuleSpec:
        if self.ignore and not self.reason:
            msg = "ignore needs a reason: reason: giant object, checked by lin 2026-11-20"
            raise ValueError(msg)
        return self


def _rule(value: object) -> object:
    return {"severity": value} if value is False or isinstance(value, str) else value


def _change(value: object) -> object:
    if value == "absent":
        return {"absent": True}
    if isinstance(value, dict | FieldSpec):
        return value
    msg = (
        f"found {value!r}; write absent, or the keys of the field that differ, for example "
        f"{{shape: [3]}}"
    )
    raise ValueError(msg)


def _explicit_values(change: FieldSpec) -> dict[str, Any]:
    return change.model_dump(exclude_unset=True, mode="json")


def _name(value: str) -> str:
    if re.fullmatch(r"[^\W_][\w.-]{0,99}", value) is None:
        msg = (
            f"{value!r} cannot name a folder; write letters, digits, '-', '_' and '.', at most 100"
        )
        raise ValueError(msg)
    return value


def _holds(folder: str, root: str, templates: Sequence[Template]) -> bool:
    """Return whether a folder holds a file that a pattern names; searches links last.

    Notes:
        Follows links to folders within `root`, sorted by name, except links to a folder that
        contains the link. Visits at most `_LINKED` folders behind links: two folders that link to
        each other have infinitely many paths.
    """
    waiting = [""]
    linked = deque[str]()
    links_left = _LINKED
    within = f"{root.rstrip('/')}/"
    while templates and (waiting or (linked and links_left)):
        is_link = not waiting
        links_left -= is_link
        head = linked.popleft() if is_link else waiting.pop()
        folders, links, files = _listed(f"{folder}/{head}")
        paths = (
            head + name
            for name in files
            if any(t.match(head + name) is not None for t in templates)
        )
        if any(os.path.isfile(f"{folder}/{path}") for path in paths):  # noqa: PTH113  Path.is_file may raise
            return True
        real_folder = f"{os.path.realpath(f'{folder}/{head}')}/" if links else ""
        goals = ((name, f"{os.path.realpath(f'{folder}/{head}{name}')}/") for name in links)
        linked += [
            f"{head}{name}/"
            for name, goal in goals
            if goal.startswith(within) and not real_folder.startswith(goal)
        ]
        (linked if is_link else waiting).extend(f"{head}{name}/" for name in folders)
        while len(linked) > _LINKED:
            linked.pop()
    return False


def _listed(folder: str) -> tuple[list[str], list[str], list[str]]:
    """Return the sorted names of folders, links to folders, and files in a folder."""
    name_lists: tuple[list[str], list[str], list[str]] = [], [], []
    try:
        with os.scandir(folder) as scan:
            for entry in scan:
                with suppress(OSError):  # a link to itself
                    is_dir = entry.is_dir()
                    name_lists[(1 if entry.is_symlink() else 0) if is_dir else 2].append(entry.name)
    except OSError:  # the listing reports it
        pass
    for names in name_lists:
        names.sort()
    return name_lists


def _replaced(text: str, heads: Mapping[str, str]) -> str:
    head = next((head for head in heads if text.startswith(head)), "")
    return heads[head] + text.removeprefix(head) if head else text


# The changes of a field for a split; includes keys that are set back to their default.
Change = Annotated[
    FieldSpec,
    BeforeValidator(_change),
    PlainSerializer(_explicit_values, return_type=dict[str, Any]),
]
_NOTHING = FieldSpec()
_LINKED = 1_000  # limit for folders behind links in the search for an extra folder


# Each field has up to some tens of measured columns, with its name in each.
MOST_FIELDS = 1_000
_NAME_BYTES = 100_000
_MOST_PLACES = 20_000  # fields times splits in `when`: a scan expands all of them


_MOST_PATTERNS = 2_000  # `ignore` patterns of all rules: each is matched with each failing key


def is_pattern(entry: str) -> bool:
    """Return whether an entry of a rule's ``ignore`` is a pattern rather than a literal key."""
    return any(sign in entry for sign in "*?[")


def exceeded_limit(names: Collection[str]) -> str:
    """Return the limit that these field names exceed, with their number; "" if they exceed none."""
    if len(names) > MOST_FIELDS:
        return f"{len(names):,} fields; a schema declares at most {MOST_FIELDS:,}"
    nbytes = sum(len(name.encode("utf-8", "surrogatepass")) for name in names)
    if nbytes > _NAME_BYTES:
        return (
            f"{len(names):,} fields with names of {nbytes:,} bytes in all; a schema declares at "
            f"most {_NAME_BYTES:,}"
        )
    return ""


class Schema(_Model):
    """The schema of a dataset. Build one from YAML with `datacheck.schema.load`."""

    datacheck: Literal[1]
    name: Annotated[str, AfterValidator(_name)]
    roots: dict[str, Annotated[File | tuple[File, ...], BeforeValidator(as_tuple)]] = Field(
        default_factory=dict
    )
    samples: SamplesSpec
    near_names: bool = False
    columns: Columns | None = None
    fields: dict[str, FieldSpec] = Field(default_factory=dict)
    attrs: dict[str, Counts] = Field(default_factory=dict)
    episode: EpisodeSpec | None = None
    windows: WindowsSpec | None = None
    loader: LoaderSpec | None = None
    tokenizer: TokenizerSpec | None = None
    duplicates: DuplicatesSpec = Field(default_factory=DuplicatesSpec)
    splits: SplitsSpec | None = None
    when: dict[str, dict[str, Change]] = Field(default_factory=dict)
    rules: dict[str, Annotated[RuleSpec, BeforeValidator(_rule)]] = Field(default_factory=dict)
    checks: Strings = ()

    @model_validator(mode="after")
    def _check_field_count(self) -> Schema:
        names = self.fields.keys() | {name for changes in self.when.values() for name in changes}
        if exceeded := exceeded_limit(names):
            msg = (
                f'{exceeded}, those of when included. Declare the fields that are used, and "*" '
                f"for all others"
            )
            raise ValueError(msg)
        if (declaration_count := len(names) * (1 + len(self.when))) > _MOST_PLACES:
            count_text = (
                f"{len(names):,} fields for {len(self.when):,} splits of when are {declaration_count:,} "
                f"declarations"
            )
            msg = f"{count_text}; at most {_MOST_PLACES:,} are allowed. Declare fewer of either"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_pattern_count(self) -> Schema:
        patterns = sum(
            is_pattern(entry) for settings in self.rules.values() for entry in settings.ignore
        )
        if patterns > _MOST_PATTERNS:
            msg = (
                f"rules: {patterns:,} entries of ignore hold *, ? or [; at most "
                f"{_MOST_PATTERNS:,} may. "
            )
            msg += "Write keys in full ([ as [[]), fewer patterns that mean more of them, or allow"
            raise ValueError(msg)
        return self

    @property
    def digest(self) -> str:
        """Digest of the schema without defaults, so that a new option changes no digest."""
        document = self.as_dict()
        if self.loader is not None:  # the order of its steps matters, and canonical JSON sorts keys
            document["loader"] = [list(step) for step in self.loader.steps]
        return digest_value(document)

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"datacheck": 1}

    def for_split(self, split: str) -> Schema:
        """Return the schema with the ``when: split=...`` block and ``max_length`` of a split."""
        changes = self.when.get(f"split={split}", {})
        if self.tokenizer is not None and split in self.tokenizer.lengths:
            length = {"max_length": self.tokenizer.lengths[split], "lengths": {}}
            split_schema = self.model_copy(
                update={"tokenizer": self.tokenizer.model_copy(update=length)}
            )
            return split_schema.for_split(split)
        if not changes:
            return self
        fields = {name: _explicit_values(spec) for name, spec in self.fields.items()}
        for name, change in changes.items():
            fields[name] = fields.get(name, {}) | _explicit_values(change)
        data = self.model_dump(exclude_unset=True, mode="json", exclude={"fields", "when"})
        return Schema.model_validate(data | {"fields": fields})

    def located(self, data: Path, given: Collection[str] = ()) -> Schema:
        """Resolve each extra folder with several default places to the place that holds its files.

        Args:
            data: the data folder.
            given: names of the extra folders that the user gave; their default places are ignored.

        Raises:
            UsageError: several places hold files that the schema's patterns name.
        """
        several = {
            name: places
            for name, places in self.roots.items()
            if isinstance(places, tuple) and name not in given
        }
        if not several:
            return self
        resolved = {name: self._place_of(name, places, data) for name, places in several.items()}
        return self.model_copy(update={"roots": {**self.roots, **resolved}})

    def _place_of(self, name: str, places: Sequence[str], data: Path) -> str:
        head = f"{{{name}}}/"
        texts = [text.removeprefix(head) for text in self._companions() if text.startswith(head)]
        templates = [parse(text, f"{self.name}, roots.{name}") for text in dict.fromkeys(texts)]
        root = os.path.realpath(data)
        real = {place: os.path.realpath(f"{data}/{place}") for place in places}
        inside = [place for place in places if f"{real[place]}/".startswith(f"{root.rstrip('/')}/")]
        holding = [place for place in inside if _holds(real[place], root, templates)]
        # Otherwise the files in one place would hide those in another.
        if len({real[place] for place in holding}) > 1:
            msg = (
                f"schema {self.name}: {' and '.join(holding)} hold files of {name}. Say which "
                f"counts (--root "
                f"{name}=DIR), or remove the others."
            )
            raise UsageError(msg)
        return next(iter(holding), next((p for p in places if os.path.isdir(real[p])), places[0]))  # noqa: PTH112

    def _companions(self) -> Iterator[str]:
        """Yield the patterns of companion files and of the fields' own files."""
        for change in (self.fields, *self.when.values()):
            yield from (spec.file for spec in change.values() if spec.file)
        for patterns in self.samples.companions.values():
            yield from patterns

    def placed(self, given: Collection[str], data: Path | None = None) -> Schema:
        """Return the schema with default places for extra folders that the user did not give.

        Args:
            given: names of the extra folders that the user gave (``--root objects=DIR``).
            data: the data folder. With it, a relative tokenizer path becomes absolute, and an
                existing default place takes precedence. Without it, the first default place is
                used.

        Raises:
            UsageError: the schema has no extra folder of that name.

        Notes:
            Default places are below the data folder. A folder without a default place stays
            unresolved: the source requires it.
        """
        for name in sorted(given):
            if name not in self.roots:
                hint = suggestion(name, self.roots) or f"; it has {', '.join(self.roots) or 'none'}"
                msg = f"schema {self.name} has no extra folder called {name!r}{hint}"
                raise UsageError(msg)
        places = (self if data is None else self.located(data, given)).roots.items()
        default_paths = {
            name: path[0] if isinstance(path, tuple) else path for name, path in places
        }
        replacements = {
            f"{{{name}}}/": f"{path}/"
            for name, path in default_paths.items()
            if path and name not in given
        }
        moved = self._with_files(replacements) if replacements else self
        if data is None or moved.tokenizer is None or moved.tokenizer.path is None:
            return moved
        tokenizer = moved.tokenizer.model_copy(
            update={"path": tokenization.located(data, moved.tokenizer.path)}
        )
        return moved.model_copy(update={"tokenizer": tokenizer})

    def _with_files(self, replacements: Mapping[str, str]) -> Schema:
        data = self.model_dump(exclude_unset=True, mode="json")
        for fields in (data.get("fields", {}), *data.get("when", {}).values()):
            for spec in fields.values():
                if spec.get("file"):
                    spec["file"] = _replaced(spec["file"], replacements)
        companions = data["samples"].get("companions", {})
        for name, patterns in companions.items():
            companions[name] = [_replaced(pattern, replacements) for pattern in patterns]
        return Schema.model_validate(data)

    def parts(self, name: str) -> dict[str, tuple[int, int]]:
        """Return {part: (start, stop)} of a field that declares ``columns``, else {}."""
        spec = self.fields.get(name)
        return parse_columns(spec.columns) if spec is not None and spec.columns else {}

    def part_of(self, name: str) -> tuple[str, tuple[int, int]] | None:
        """Return (field, (start, stop)) of a column entry ``field.part``, else None."""
        field, _, part = name.rpartition(".")
        columns = self.parts(field).get(part)
        return None if columns is None else (field, columns)

    @property
    def needed_attrs(self) -> list[str]:
        """Names of the attributes that every sample must have.

        Attributes that count the contents of a file may be missing.
        """
        return sorted(
            n for n, what in self.attrs.items() if what != SAMPLES and not str(what).startswith(SUM)
        )

    @property
    def reads_unlisted(self) -> bool:
        """Whether a scan also reads numeric fields that the schema does not list."""
        rule = self.rules.get(UNLISTED)
        return (
            bool(self.stored)
            and ANY not in self.fields
            and (rule is None or rule.severity != "off")
        )

    @property
    def stored(self) -> dict[str, FieldSpec]:
        """The entries that are values of their own: neither parts of a field nor ``"*"``."""
        return {
            name: spec
            for name, spec in self.fields.items()
            if name != ANY and self.part_of(name) is None
        }

    def spec(self, name: str) -> FieldSpec:
        """Return the declaration of a field or part, or else the ``"*"`` entry, or an empty one."""
        return self.fields.get(name) or self.fields.get(ANY) or _NOTHING

    def of_role(self, *roles: str) -> Iterator[tuple[str, FieldSpec]]:
        """Yield (name, spec) of the present fields with one of these roles, in name order."""
        for name in sorted(self.fields):
            if self.fields[name].role in roles and not self.fields[name].absent:
                yield name, self.fields[name]


_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_VIDEOS = (".mp4", ".m4v", ".mov")  # only their headers are read


def pixels(schema: Schema) -> frozenset[str]:
    """Return the pixel fields: images, videos stored as arrays, depth maps in image files."""
    pixel_fields = set()
    for name, spec in schema.stored.items():
        files = (spec.file,) if spec.file is not None else schema.samples.files
        as_images = spec.role == "depth" and all(file.lower().endswith(_IMAGES) for file in files)
        as_array = spec.role == "video" and not all(
            file.lower().endswith(_VIDEOS) for file in files
        )
        if spec.role == "image" or as_images or as_array:
            pixel_fields.add(name)
    return frozenset(pixel_fields)
