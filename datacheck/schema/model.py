"""The schema as frozen pydantic models.

Every key of the schema language is an attribute here, with its meaning and default below it.
``schemas/README.md`` describes the same keys for users, with examples. A `Schema` checks each value
on its own; `datacheck.schema.validate` checks whether the keys fit one another.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

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
from datacheck.masks import MaskSettings, Trainer
from datacheck.runtime.hashing import digest_value
from datacheck.schema.folder_search import holds_match, is_below
from datacheck.schema.grammar import (
    CENTRES,
    DTYPES,
    FRAMES,
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
from datacheck.schema.robots import AS_NAME, AS_ROBOT, Robot

__all__ = ["ANY", "FieldSpec", "Range", "Schema", "parse_columns"]

# Value types that only the models below use; the grammar defines the others.
Ints = Annotated[tuple[int, ...], BeforeValidator(as_tuple)]
Floats = Annotated[tuple[float, ...], BeforeValidator(as_tuple)]
Count = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Level = Literal["error", "warning", "info", "off"]
Pair = Annotated[tuple[str, str], BeforeValidator(as_tuple)]

# The name in `fields` for all fields that a schema does not list.
ANY = "*"
# The rule about fields that a schema does not list; a scan reads them unless the rule is off.
UNLISTED = "DC130"
# Suffixes of the list formats whose entries may be mappings instead of names.
RECORDS = (".yaml", ".yml", ".json")


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )


class StatsSpec(_Model):
    """The normalization statistics of a field: one number per column, declared or read from a file."""

    file: File | None = None
    """JSON or YAML file with the statistics, relative to the data folder."""
    optional: bool = False
    """Whether the file may be absent, because the normalizer works without it."""
    at: str | None = None
    """The entry of `file` that holds the statistics of this field."""
    mean: Floats = ()
    """Mean of each column, in the field's unit."""
    std: Floats = ()
    """Standard deviation of each column, in the field's unit."""
    min: Floats = ()
    """Smallest value of each column, in the field's unit."""
    max: Floats = ()
    """Largest value of each column, in the field's unit."""


class FieldSpec(_Model):
    """One field: its role, its shape and dtype, and the conditions on its values.

    Every key is optional. None or () leaves a property undeclared: the rules that need it do not
    apply, or use the default that the key states. `datacheck.schema.validate.READ_BY` lists the
    roles that a key is for.
    """

    # Kind of the values.

    role: Annotated[str | None, one_of(ROLES, "role")] = None
    """The meaning of the values; decides which rules apply."""
    shape: Shape | None = None
    """Axes of one sample: sizes, or names of axes that fields share (``T`` is time)."""
    dtype: Annotated[str | None, one_of(DTYPES, "dtype")] = None
    """Type of the stored values: a NumPy dtype, ``text`` or ``json``."""
    unit: Annotated[str | None, one_of(UNITS, "unit")] = None
    """Unit of the stored values, such as ``m``, ``deg`` or ``s``."""

    # Presence and location.

    optional: bool = False
    """Whether samples may lack the field."""
    absent: bool = False
    """Whether samples must lack the field, for the splits of `when`."""
    at: str | None = None
    """Name of the values inside their file, with ``@`` an attribute; default: the field's name."""
    file: File | None = None
    """Pattern of the file that holds the field; default: the sample's own file."""
    columns: Columns | None = None
    """Names of the columns of the last axis, such as ``pos:3 quat:4``."""

    # Limits of the values.

    range: Interval | None = None
    """Allowed values, in the field's unit."""
    size: Interval | None = None
    """Allowed extent, in the field's unit: diagonal of the points, bone of a skeleton, or distance
    of a position from the origin."""
    distance: Interval | None = None
    """Allowed distance from the origin, or from the field `near`, in the field's unit."""
    finite: bool = True
    """Whether NaN and infinity are forbidden."""

    # Coordinate frame and camera.

    centered: Annotated[str | None, one_of(CENTRES, "centre"), BeforeValidator(word_no)] = None
    """The centre that lies at the origin; ``no`` if none does."""
    centered_on: str | None = None
    """The field with the centre that was subtracted from the coordinates."""
    frame: Annotated[str | None, one_of(FRAMES, "frame")] = None
    """The coordinate frame."""
    up: Literal["x", "y", "z", "-x", "-y", "-z"] | None = None
    """The axis that points up; default: that of the frame, if it defines one."""
    intrinsics: str | None = None
    """The field with the camera matrix."""
    extrinsics: str | None = None
    """The field with the camera's pose, a transform from the camera to the world."""

    # Depth maps and images.

    scale: PositiveFloat | None = None
    """Value of one stored unit in the field's unit, for depth and for points before `posed_by`;
    default 1."""
    channels: Floats = ()
    """Value of one step of each channel in stored units, for depth in several channels."""
    origin: Literal["top_left", "bottom_left"] | None = None
    """The corner of the image that its first row starts at."""
    image_size: Annotated[tuple[Count, Count], BeforeValidator(as_tuple)] | None = None
    """Width and height of the camera's images, in pixels."""

    # Bodies, robots and their motion.

    skeleton: Annotated[str | None, one_of(SKELETONS, "skeleton")] = None
    """The known order of joints, which gives the bones."""
    robot: Annotated[Robot | None, AS_ROBOT, AS_NAME] = None
    """The robot, which gives names, limits and speeds of the joints: the name of a built-in one, or
    the path of its profile relative to this schema."""
    max_speed: PositiveFloat | None = None
    """Highest speed that is no jump, in the field's unit per second."""
    drives: str | None = None
    """The field that shows the effect of this command, column by column."""
    lag: int | None = None
    """Steps from a command to its effect in the field `drives`; default: 0 and 1 are allowed."""
    values: Floats = ()
    """The only allowed values; of a gripper first open, then closed."""
    order: Literal["wxyz", "xyzw"] | None = None
    """Order of the components of a quaternion; default ``wxyz``."""

    # Relations to other fields.

    near: str | None = None
    """The field that `distance` is measured from; default: the origin."""
    posed_by: str | None = None
    """The pose or transform that puts these points into the world."""
    rests: Interval | None = None
    """Allowed height of the lowest point after `posed_by`, in the field's unit."""
    indexes: str | None = None
    """The points that these faces index."""
    encloses: str | None = None
    """The points that must lie in these boxes."""
    areas: str | None = None
    """The area of each of these boxes, in squares of their unit."""
    pixels_of: str | None = None
    """The image that these boxes lie in, or that has this width and height."""
    box_format: Literal["xyxy", "xywh", "cxcywh"] | None = None
    """The four numbers of these boxes: corners (the default), corner and size, centre and size."""
    annotates: str | None = None
    """The instance or segment field whose ids these annotations use."""
    encodes: Pair | None = None
    """The class and instance fields of a ground truth ``class * 1000 + instance + 1``."""
    share: Interval | None = None
    """Allowed share (0 to 1) of pixels that a mask sets, or that have a depth."""

    # Statistics, labels and marks for missing values.

    stats: StatsSpec | None = None
    """The statistics that the normalizer uses."""
    ignore: Ints = ()
    """Labels that mean "no label"."""
    sentinels: Floats = ()
    """Values that mean "no value"."""
    classes: Classes | None = None
    """Allowed classes: a count, a range or a list."""
    min_points: Count | None = None
    """Fewest points of a cloud or instance, or fewest poses."""
    min_instances: Count | None = None
    """Fewest instances that the steps of `Schema.loader` must leave; default 1."""
    must_be: MustBe | None = None
    """The one allowed value."""

    # Text and tokens.

    speakers: Strings = ()
    """Allowed speakers of a chat; default: any."""
    train_on: str | None = None
    """The speaker whose turns are trained on; default ``assistant``."""
    continues: str | None = None
    """The chat with the turns before these: the prompt of an answer."""
    tools: str | None = None
    """The field with the tools that a chat may call, a list of OpenAI's form or its JSON text."""
    images: str | None = None
    """The field with the pictures that a chat refers to: a list, or one path."""
    videos: str | None = None
    """The field with the videos that a chat refers to: a list, or one path."""
    audios: str | None = None
    """The field with the sounds that a chat refers to: a list, or one path."""
    preferred_over: str | None = None
    """The field with the rejected answer to the same prompt."""
    spans_of: str | None = None
    """The text that these answers are spans of, by the number of their first character."""
    unanswerable: str | None = None
    """The flag that says that a question has no answer; default: few or many may have none."""
    label_of: str | None = None
    """The tokens that these labels belong to."""
    shift: Literal[0, 1] | None = None
    """Tokens that the labels are already shifted by; default 0: the model shifts them."""
    min_trained_tokens: Count | None = None
    """Fewest trained tokens after template and truncation; default 1."""

    @property
    def ragged(self) -> str | None:
        """The name of the first axis if it has one: its size then differs between samples."""
        return self.shape[0] if self.shape and isinstance(self.shape[0], str) else None

    @property
    def is_text(self) -> bool:
        """Whether the values are text or JSON rather than arrays."""
        return self.role in {"text", "chat", "captions", "answers"} or self.dtype in {
            "text",
            "json",
        }


class SamplesSpec(_Model):
    """Where samples come from: their files, lists, contents, groups and companions."""

    files: Files
    """Patterns of the files that hold samples; the first pattern that matches a file counts."""
    split: dict[str, Files] = Field(default_factory=dict)
    """Patterns by split, for files whose path does not name their split."""
    list: Lists | None = None
    """Pattern of the files that name the samples, or one file for each split."""
    records: File | None = None
    """Pattern of the files that hold one mapping for each sample."""
    counts: dict[str, Counts] = Field(default_factory=dict)
    """The axis that a number in the mappings of `list` or `records` counts."""
    companions: dict[str, Files] = Field(default_factory=dict)
    """Patterns of files that must exist for each sample and that no field reads."""
    each: str | None = None
    """The unit of a file that is one sample, such as ``line`` or ``/data/demo_*``; default: the
    file."""
    group: str | None = None
    """Pattern of the name that the samples of one sequence share."""
    masks: str | None = None
    """The HDF5 group whose arrays name samples (robomimic's filter keys)."""


class EpisodeSpec(_Model):
    """The time axis of an episode."""

    fps: Annotated[float, Field(ge=1e-6, le=1e9)] | None = None
    """Steps per second: a time step is 1 / fps."""
    length: Interval | None = None
    """Allowed number of steps."""
    max_idle: Share | None = None
    """Allowed share of steps without motion; default: the rule's option."""


class WindowsSpec(_Model):
    """How training cuts episodes into windows."""

    length: Count
    """Steps of a window."""
    stride: Count = 1
    """Steps from the start of one window to that of the next."""
    pad: Literal["none", "edge", "zero"] = "none"
    """How windows continue beyond the end of an episode; none: they do not."""
    short: Literal["drop", "pad", "raise"] = "drop"
    """What training does with an episode that is shorter than a window."""


class _LoaderStep(NamedTuple):
    takes: str
    accepts: Callable[[object], bool]


def _is_positive_count(value: object) -> bool:
    # `type()`, not `isinstance`: True is not a number.
    return type(value) is int and value > 0


def _is_positive_number(value: object) -> bool:
    return _is_positive_count(value) or (type(value) is float and 0 < value < math.inf)


def _is_class_list(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int for number in value)


def _is_class_list_or_file(value: object) -> bool:
    return _is_class_list(value) or (isinstance(value, str) and _is_inside(value))


def _is_inside(path: str) -> bool:
    """Return whether a path can only name a file below the folder that it is relative to."""
    if not path or "\0" in path:
        return False
    return not Path(path).is_absolute() and ".." not in Path(path).parts


_LOADER_STEPS: Mapping[str, _LoaderStep] = {
    "clip": _LoaderStep("a whole number of points above 0", _is_positive_count),
    "voxel": _LoaderStep("an edge above 0 in the unit of the points", _is_positive_number),
    "drop_classes": _LoaderStep("a list of class numbers", _is_class_list),
    "keep_classes": _LoaderStep(
        "a list of class numbers, or the file of the table that holds them, below the data folder",
        _is_class_list_or_file,
    ),
    "min_points": _LoaderStep("a whole number of points above 0", _is_positive_count),
    "captions": _LoaderStep(
        "the name of the field that holds the captions", lambda value: isinstance(value, str)
    ),
}


def _check_loader_step(name: object, value: object) -> None:
    if name not in _LOADER_STEPS:
        known = ", ".join(_LOADER_STEPS)
        msg = f"unknown step {name!r}{suggestion(name, _LOADER_STEPS) or f'; known are {known}'}"
        raise ValueError(msg)
    step = _LOADER_STEPS[str(name)]
    if not step.accepts(value):
        msg = f"{name}: found {value!r}; this step takes {step.takes}"
        raise ValueError(msg)


def _check_loader_steps(value: object) -> object:
    if isinstance(value, dict):
        for name, setting in value.items():
            _check_loader_step(name, setting)
    return value


class LoaderSpec(RootModel[Annotated[dict[str, Any], BeforeValidator(_check_loader_steps)]]):
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
    """How text becomes tokens, and which part of a text is trained on."""

    path: File | None = None
    """Tokenizer file or folder, relative to the data folder."""
    vocab: Count | None = None
    """Size of the vocabulary."""
    max_length: Count | None = None
    """Tokens at which training truncates a sample."""
    lengths: dict[str, Count] = Field(default_factory=dict)
    """`max_length` by split, for splits with another one."""
    start: str = "<|im_start|>assistant\n"
    """Text before the part that is trained on; depends on the chat template."""
    end: str = "<|im_end|>\n"
    """Text after the part that is trained on."""
    trainer: Trainer = "minimind"
    """Program whose rules decide which tokens of a chat are trained on; minimind takes those
    between `start` and `end`."""
    assistant_only_loss: bool = False
    """TRL's setting of this name: only the parts that the template marks as generated count."""
    template: str | None = None
    """Name of LLaMA-Factory's template, such as qwen; without one it reads the tokenizer's."""

    def mask_settings(self) -> MaskSettings:
        """Return the settings that decide the mask of a chat."""
        return MaskSettings(
            trainer=self.trainer,
            start=self.start,
            end=self.end,
            max_length=self.max_length,
            assistant_only_loss=self.assistant_only_loss,
            template=self.template,
        )


class SplitsSpec(_Model):
    """The key that keeps samples together across splits, and the splits that must not share it."""

    key: str
    """A placeholder of `SamplesSpec.files`, ``file``, ``group``, or the name of a field."""
    match: Regex | None = None
    """The part of the key that counts: the expression's first group, or all that it finds."""
    disjoint: Strings = ()
    """The splits that must not share a key."""


class DuplicatesSpec(_Model):
    """How copies of samples are judged."""

    exact: Annotated[Level, BeforeValidator(word_off)] = "warning"
    """Severity of exact copies."""
    near: Share | None = None
    """Similarity (0 to 1) from which two samples are near copies."""


class RuleSpec(_Model):
    """Settings of one rule; further keys are options of the rule."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    severity: Annotated[Level | None, BeforeValidator(word_off)] = None
    """Severity in place of the rule's own."""
    allow: Share = 0.0
    """Share of the samples that may fail."""
    ignore: Strings = ()
    """Keys of samples that may fail, or patterns of keys."""
    reason: str | None = None
    """Why samples are ignored; required with `ignore`."""

    @model_validator(mode="after")
    def _check_reason(self) -> RuleSpec:
        if self.ignore and not self.reason:
            msg = "ignore needs a reason: reason: giant object, checked by lin 2026-11-20"
            raise ValueError(msg)
        return self


# A schema has at most so many fields: each of them has up to some tens of measured columns.
MOST_FIELDS = 1_000
# Bytes of the names of all fields together: each measured column repeats the name of its field.
_MOST_NAME_BYTES = 100_000
# Fields times splits in `when`: a scan expands the schema for each split.
_MOST_DECLARATIONS = 20_000
# Patterns in the `ignore` of all rules: each is matched with each failing key.
_MOST_PATTERNS = 2_000


def is_pattern(entry: str) -> bool:
    """Return whether an entry of a rule's ``ignore`` is a pattern rather than a literal key."""
    return any(sign in entry for sign in "*?[")


def exceeded_limit(names: Collection[str]) -> str:
    """Return the limit that these field names exceed, with their number; "" if they exceed none."""
    if len(names) > MOST_FIELDS:
        return f"{len(names):,} fields; a schema declares at most {MOST_FIELDS:,}"
    nbytes = sum(len(name.encode("utf-8", "surrogatepass")) for name in names)
    if nbytes > _MOST_NAME_BYTES:
        return (
            f"{len(names):,} fields with names of {nbytes:,} bytes in all; a schema declares at "
            f"most {_MOST_NAME_BYTES:,}"
        )
    return ""


def _read_rule(value: object) -> object:
    """Return a rule's settings as a mapping: a severity alone (or ``off``) is a short form."""
    return {"severity": value} if value is False or isinstance(value, str) else value


def _read_change(value: object) -> object:
    """Return a field's change for a split as its keys: ``absent`` alone is a short form."""
    if value == "absent":
        return {"absent": True}
    if isinstance(value, dict | FieldSpec):
        return value
    msg = (
        f"found {value!r}; write absent, or the keys of the field that differ, for example "
        f"{{shape: [3]}}"
    )
    raise ValueError(msg)


def _explicit_values(spec: FieldSpec) -> dict[str, Any]:
    return spec.model_dump(exclude_unset=True, mode="json")


def _check_name(value: str) -> str:
    if re.fullmatch(r"[^\W_][\w.-]{0,99}", value) is None:
        msg = (
            f"{value!r} cannot name a folder; write letters, digits, '-', '_' and '.', at most 100"
        )
        raise ValueError(msg)
    return value


# The changes of a field for a split. Serialized with the keys that are set back to their default.
Change = Annotated[
    FieldSpec,
    BeforeValidator(_read_change),
    PlainSerializer(_explicit_values, return_type=dict[str, Any]),
]
_UNDECLARED = FieldSpec()


class Schema(_Model):
    """The schema of a dataset. Build one from YAML with `datacheck.schema.load`."""

    datacheck: Literal[1]
    """Version of the language."""
    name: Annotated[str, AfterValidator(_check_name)]
    """Names results and caches, so it can name a folder."""
    roots: dict[str, Annotated[File | tuple[File, ...], BeforeValidator(as_tuple)]] = Field(
        default_factory=dict
    )
    """Extra folders: their default places below the data folder, "" for none."""
    samples: SamplesSpec
    """Which files there are, and what one sample is."""
    near_names: bool = False
    """Whether a required field may be read from a similar name that all samples have."""
    columns: Columns | None = None
    """How the only array of a file is cut into fields, such as ``xyz:3 rgb:3 label``."""
    fields: dict[str, FieldSpec] = Field(default_factory=dict)
    """The fields by name; `ANY` describes all others."""
    attrs: dict[str, Counts] = Field(default_factory=dict)
    """What an attribute counts: an axis, a number, ``samples``, or ``sum`` of an axis."""
    episode: EpisodeSpec | None = None
    """The time axis; None: samples are no episodes, or nothing is declared of them."""
    windows: WindowsSpec | None = None
    """How training cuts episodes; None: not at all."""
    loader: LoaderSpec | None = None
    """Steps of the training loader before it counts instances; None: no steps."""
    tokenizer: TokenizerSpec | None = None
    """How text becomes tokens; None: tokens are not counted."""
    duplicates: DuplicatesSpec = Field(default_factory=DuplicatesSpec)
    """How copies of samples are judged."""
    splits: SplitsSpec | None = None
    """Which samples must stay in one split; None: undeclared."""
    when: dict[str, dict[str, Change]] = Field(default_factory=dict)
    """Changes of fields by condition (``split=NAME``) and field."""
    rules: dict[str, Annotated[RuleSpec, BeforeValidator(_read_rule)]] = Field(default_factory=dict)
    """Settings by rule code, or by the name of a check."""
    checks: Strings = ()
    """The user's own checks, as ``package.module:function``."""

    @model_validator(mode="after")
    def _check_field_count(self) -> Schema:
        changed_names = {name for changes in self.when.values() for name in changes}
        names = self.fields.keys() | changed_names
        if exceeded := exceeded_limit(names):
            msg = (
                f'{exceeded}, counting those of when. Declare the fields that are used, and "*" for '
                f"all others"
            )
            raise ValueError(msg)
        declarations = len(names) * (1 + len(self.when))
        if declarations > _MOST_DECLARATIONS:
            msg = (
                f"{len(names):,} fields for {len(self.when):,} splits of when are "
                f"{declarations:,} declarations; at most {_MOST_DECLARATIONS:,} are allowed. "
                f"Declare fewer fields or fewer splits"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_pattern_count(self) -> Schema:
        patterns = sum(
            is_pattern(entry) for settings in self.rules.values() for entry in settings.ignore
        )
        if patterns > _MOST_PATTERNS:
            msg = (
                f"rules: {patterns:,} entries of ignore are patterns (with *, ? or [); at most "
                f"{_MOST_PATTERNS:,} are allowed. Write full keys ([ as [[]), fewer patterns that "
                f"match more keys, or allow"
            )
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
        if self.tokenizer is not None and split in self.tokenizer.lengths:
            length = {"max_length": self.tokenizer.lengths[split], "lengths": {}}
            tokenizer = self.tokenizer.model_copy(update=length)
            return self.model_copy(update={"tokenizer": tokenizer}).for_split(split)
        changes = self.when.get(f"split={split}", {})
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
        located = {
            name: self._locate(name, places, data)
            for name, places in self.roots.items()
            if isinstance(places, tuple) and name not in given
        }
        return self.model_copy(update={"roots": {**self.roots, **located}}) if located else self

    def _locate(self, name: str, places: Sequence[str], data: Path) -> str:
        """Return the place that holds the files, or else the first that exists, or the first."""
        data_root = os.path.realpath(data)
        real_paths = {place: os.path.realpath(f"{data}/{place}") for place in places}
        templates = self._templates_below(name)
        holding = [
            place
            for place, path in real_paths.items()
            if is_below(path, data_root) and holds_match(path, data_root, templates)
        ]
        # Two names of one folder are fine. The files of two folders would hide one another.
        if len({real_paths[place] for place in holding}) > 1:
            msg = (
                f"schema {self.name}: {' and '.join(holding)} hold files of {name}. Say which "
                f"counts (--root {name}=DIR), or remove the others."
            )
            raise UsageError(msg)
        existing = (place for place, path in real_paths.items() if os.path.isdir(path))  # noqa: PTH112
        return holding[0] if holding else next(existing, places[0])

    def _templates_below(self, root: str) -> list[Template]:
        """Return the patterns below an extra folder, relative to it."""
        head = f"{{{root}}}/"
        texts = [text.removeprefix(head) for text in self._file_patterns() if text.startswith(head)]
        return [parse(text, f"{self.name}, roots.{root}") for text in dict.fromkeys(texts)]

    def _file_patterns(self) -> Iterator[str]:
        """Yield the patterns of companion files and of the fields' own files."""
        for specs in (self.fields, *self.when.values()):
            yield from (spec.file for spec in specs.values() if spec.file)
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
        self._check_roots(given)
        located = self if data is None else self.located(data, given)
        default_paths = {
            name: places[0] if isinstance(places, tuple) else places
            for name, places in located.roots.items()
        }
        replacements = {
            f"{{{name}}}/": f"{path}/"
            for name, path in default_paths.items()
            if path and name not in given
        }
        placed = self._with_replaced_roots(replacements) if replacements else self
        if data is None or placed.tokenizer is None or placed.tokenizer.path is None:
            return placed
        path = tokenization.located(data, placed.tokenizer.path)
        tokenizer = placed.tokenizer.model_copy(update={"path": path})
        return placed.model_copy(update={"tokenizer": tokenizer})

    def with_tokenizer(self, path: str | Path | None, trainer: Trainer | None) -> Schema:
        """Return the schema with another tokenizer or trainer; None keeps that of the schema.

        Args:
            path: a tokenizer file or folder; relative paths begin in the working folder.
            trainer: as `TokenizerSpec.trainer`.

        Raises:
            UsageError: there is no tokenizer.
        """
        given: dict[str, Any] = {}
        if path is not None:
            tokenization.tokenizer_digest(path)
            given["path"] = os.path.abspath(path)  # noqa: PTH100  keeps links, which a hub's folder is made of
        if trainer is not None:
            given["trainer"] = trainer
        if not given:
            return self
        spec = (self.tokenizer or TokenizerSpec()).model_copy(update=given)
        return self.model_copy(update={"tokenizer": spec})

    def _check_roots(self, given: Collection[str]) -> None:
        for name in sorted(given):
            if name not in self.roots:
                hint = suggestion(name, self.roots) or f"; it has {', '.join(self.roots) or 'none'}"
                msg = f"schema {self.name} has no extra folder called {name!r}{hint}"
                raise UsageError(msg)

    def _with_replaced_roots(self, replacements: Mapping[str, str]) -> Schema:
        """Return the schema with the beginnings of file patterns replaced."""
        data = self.model_dump(exclude_unset=True, mode="json")
        for fields in (data.get("fields", {}), *data.get("when", {}).values()):
            for spec in fields.values():
                if spec.get("file"):
                    spec["file"] = _with_replaced_head(spec["file"], replacements)
        companions = data["samples"].get("companions", {})
        for name, patterns in companions.items():
            companions[name] = [_with_replaced_head(text, replacements) for text in patterns]
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
            name
            for name, counted in self.attrs.items()
            if counted != SAMPLES and not str(counted).startswith(SUM)
        )

    @property
    def reads_unlisted(self) -> bool:
        """Whether a scan also reads numeric fields that the schema does not list."""
        rule = self.rules.get(UNLISTED)
        is_off = rule is not None and rule.severity == "off"
        return bool(self.stored) and ANY not in self.fields and not is_off

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
        return self.fields.get(name) or self.fields.get(ANY) or _UNDECLARED

    def of_role(self, *roles: str) -> Iterator[tuple[str, FieldSpec]]:
        """Yield (name, spec) of the present fields with one of these roles, in name order."""
        for name in sorted(self.fields):
            if self.fields[name].role in roles and not self.fields[name].absent:
                yield name, self.fields[name]


def file_templates(schema: Schema) -> list[Template]:
    """Return the parsed patterns of ``samples.files``.

    Raises:
        SchemaError: a pattern is malformed.
    """
    return [parse(text, f"{schema.name}, samples.files") for text in schema.samples.files]


def _with_replaced_head(text: str, replacements: Mapping[str, str]) -> str:
    for head, replacement in replacements.items():
        if text.startswith(head):
            return replacement + text.removeprefix(head)
    return text


# Files that hold one image each.
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
# Videos of which a scan reads the header only: the times of the frames, no pixels.
_VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov")


def pixels(schema: Schema) -> frozenset[str]:
    """Return the pixel fields: images, videos stored as arrays, depth maps in image files."""
    return frozenset(name for name, spec in schema.stored.items() if _has_pixels(spec, schema))


def _has_pixels(spec: FieldSpec, schema: Schema) -> bool:
    files = schema.samples.files if spec.file is None else (spec.file,)
    if spec.role == "depth":
        return all(file.lower().endswith(_IMAGE_SUFFIXES) for file in files)
    if spec.role == "video":
        return not all(file.lower().endswith(_VIDEO_SUFFIXES) for file in files)
    return spec.role == "image"
