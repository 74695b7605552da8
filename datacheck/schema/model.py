"""What a dataset promises: the schema, as frozen models.

The language is described for people in ``schemas/README.md``; every key there is one attribute here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    field_validator,
    model_validator,
)

from datacheck.digest import digest_value
from datacheck.schema.dims import Dim, parse_dim
from datacheck.schema.units import CENTRES, FRAMES, ROLES, UNITS

ANY = "*"  # the field name that stands for every field a schema does not list


class Range(BaseModel):
    """A closed interval, written ``low..high``; either side may be left open."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{_number(self.low)}..{_number(self.high)}"


def _number(value: float | None) -> str:
    return "" if value is None else repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _range(value: object) -> Range:
    if isinstance(value, Range):
        return value
    if not isinstance(value, str) or ".." not in value:
        msg = f"{value!r} is not a range; write low..high, for example 0.02..0.4"
        raise ValueError(msg)
    low, _, high = value.partition("..")
    try:
        parsed = Range(low=float(low) if low.strip() else None, high=float(high) if high.strip() else None)
    except ValueError as error:
        msg = f"{value!r} is not a range; write low..high, for example 0.02..0.4"
        raise ValueError(msg) from error
    if parsed.low is None and parsed.high is None:
        msg = "a range needs at least one end"
        raise ValueError(msg)
    if parsed.low is not None and parsed.high is not None and parsed.low > parsed.high:
        msg = f"low end {parsed.low:g} is above high end {parsed.high:g}"
        raise ValueError(msg)
    return parsed


def _share(value: object) -> float:
    if isinstance(value, str) and value.endswith("%"):
        value = float(value[:-1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    msg = f"{value!r} is not a share; write 0.005 or 0.5%"
    raise ValueError(msg)


def _one_of(known: frozenset[str], what: str) -> BeforeValidator:
    def check(value: object) -> object:
        if value is not None and value not in known:
            msg = f"{value!r} is not a known {what}; known are {', '.join(sorted(known))}"
            raise ValueError(msg)
        return value

    return BeforeValidator(check)


Interval = Annotated[Range, BeforeValidator(_range), PlainSerializer(str, return_type=str)]
Share = Annotated[float, BeforeValidator(_share)]
Axis = Annotated[Dim, BeforeValidator(parse_dim)]
Strings = Annotated[
    tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else tuple(v) if isinstance(v, list) else v)
]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


_PART = re.compile(r"^([A-Za-z_][\w]*)(?::([1-9]\d*))?$")


def parse_columns(text: str) -> dict[str, tuple[int, int]]:
    """Return {name: (start, stop)} of ``"pos:3 quat:4 flag"`` (a bare name is one column).

    Raises:
        ValueError: a part is not ``name`` or ``name:count``, or a name stands twice.
    """
    parts: dict[str, tuple[int, int]] = {}
    start = 0
    for word in text.split():
        match = _PART.match(word)
        if match is None or match[1] in parts:
            msg = f"cannot read {word!r}; columns are written name or name:count, each name once"
            raise ValueError(msg)
        stop = start + int(match[2] or 1)
        parts[match[1]] = (start, stop)
        start = stop
    return parts


class FieldSpec(_Model):
    """One field: what it is (role), how it looks (shape, dtype) and what must hold of its values."""

    role: Annotated[str | None, _one_of(ROLES, "role")] = None
    shape: tuple[Axis, ...] | None = None
    dtype: str | None = None
    unit: Annotated[str | None, _one_of(UNITS, "unit")] = None
    optional: bool = False
    absent: bool = False
    at: str | None = None
    file: str | None = None
    columns: str | None = None
    range: Interval | None = None
    size: Interval | None = None
    distance: Interval | None = None
    finite: bool = True
    centered: Annotated[str | None, _one_of(CENTRES, "centre")] = None
    frame: Annotated[str | None, _one_of(FRAMES, "frame")] = None
    intrinsics: str | None = None
    image_size: tuple[int, int] | None = None
    skeleton: str | None = None
    order: Literal["wxyz", "xyzw"] | None = None
    near: str | None = None
    ignore: tuple[int, ...] = ()
    sentinels: tuple[float, ...] = ()
    classes: int | Interval | tuple[int, ...] | None = None
    min_points: int | None = None
    min_instances: int | None = None
    must_be: bool | int | None = None
    speakers: tuple[str, ...] = ()
    train_on: str | None = None
    min_trained_tokens: int | None = None

    @field_validator("shape", "image_size", "ignore", "sentinels", "classes", "speakers", mode="before")
    @classmethod
    def _sequences(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: str | None) -> str | None:
        if value is not None:
            parse_columns(value)
        return value

    @property
    def ragged(self) -> str | None:
        """The name of the first axis where it is named (its size differs from sample to sample)."""
        return self.shape[0] if self.shape and isinstance(self.shape[0], str) else None

    @property
    def is_text(self) -> bool:
        """Whether the values are text or JSON rather than arrays."""
        return self.role in {"text", "chat", "captions"} or self.dtype in {"text", "json"}


class SamplesSpec(_Model):
    """What one sample is: which files, which list names them, what each of them holds, what belongs together."""

    files: Strings
    list: str | None = None
    each: str | None = None
    group: str | None = None


class EpisodeSpec(_Model):
    """The time axis: rate, allowed lengths, share of idle steps."""

    fps: float | None = None
    length: Interval | None = None
    max_idle: Share | None = None


class WindowsSpec(_Model):
    """How training cuts episodes: window length in steps, stride, padding, what becomes of short episodes."""

    length: int = Field(gt=0)
    stride: int = Field(default=1, gt=0)
    pad: Literal["none", "edge", "zero"] = "none"
    short: Literal["drop", "pad", "raise"] = "drop"


_STEPS: dict[str, type | tuple[type, ...]] = {
    "clip": int, "voxel": (int, float), "drop_classes": list, "min_points": int, "captions": str,
}  # fmt: skip


class LoaderSpec(RootModel[dict[str, Any]]):
    """What the training loader does to instances, in the order written: they are counted after these steps.

    Steps: ``clip`` (keep so many random points), ``voxel`` (edge in the unit of the points), ``drop_classes``,
    ``min_points`` (of an instance), ``captions`` (the field whose ids an instance must have).
    """

    model_config = ConfigDict(frozen=True)

    @field_validator("root")
    @classmethod
    def _known(cls, steps: dict[str, Any]) -> dict[str, Any]:
        for name, value in steps.items():
            if name not in _STEPS:
                msg = f"unknown step {name!r}; known are {', '.join(_STEPS)}"
                raise ValueError(msg)
            fits = isinstance(value, _STEPS[name]) and not isinstance(value, bool)
            if not fits:
                msg = f"{name}: {value!r} is not what this step takes"
                raise ValueError(msg)
            if isinstance(value, int | float) and value <= 0:
                msg = f"{name}: {value!r} must be above 0"
                raise ValueError(msg)
        return steps

    @property
    def steps(self) -> tuple[tuple[str, Any], ...]:
        """(name, value) of each step in the order in which the schema lists them."""
        return tuple(self.root.items())

    def get(self, name: str) -> Any:
        """Return the value of a step, or None where the loader has no such step."""
        return self.root.get(name)


class TokenizerSpec(_Model):
    """How text becomes tokens: tokenizer file or folder, vocabulary size, maximum length, what is supervised."""

    path: str | None = None
    vocab: int | None = Field(default=None, gt=0)
    max_length: int | None = Field(default=None, gt=0)
    start: str = "<|im_start|>assistant\n"
    end: str = "<|im_end|>\n"


class SplitsSpec(_Model):
    """Which key keeps samples together across splits, and which splits must not share it."""

    key: str
    match: str | None = None
    disjoint: tuple[str, ...] = ()

    @field_validator("disjoint", mode="before")
    @classmethod
    def _sequences(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("match")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                msg = f"{value!r} is not a regular expression: {error}"
                raise ValueError(msg) from error
        return value


class DuplicatesSpec(_Model):
    """How exact copies of a sample are judged."""

    exact: Literal["error", "warning", "info", "off"] = "warning"


class RuleSpec(_Model):
    """Settings of one rule: severity, share of samples allowed to fail, waived keys, and its own options."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    severity: Literal["error", "warning", "info", "off"] | None = None
    allow: Share = 0.0
    ignore: tuple[str, ...] = ()
    reason: str | None = None

    @field_validator("ignore", mode="before")
    @classmethod
    def _sequences(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _reasoned(self) -> RuleSpec:
        if self.ignore and not self.reason:
            msg = "ignore needs a reason: reason: giant object, checked by lin 2026-11-20"
            raise ValueError(msg)
        return self


def _rule(value: object) -> object:
    if value is False or value == "off":
        return {"severity": "off"}
    return {"severity": value} if isinstance(value, str) else value


class Schema(_Model):
    """A dataset's promise. Build one from YAML with `datacheck.schema.load`."""

    datacheck: Literal[1]
    name: str
    extends: str | None = None
    roots: dict[str, str] = Field(default_factory=dict)
    samples: SamplesSpec
    columns: str | None = None
    fields: dict[str, FieldSpec] = Field(default_factory=dict)
    attrs: dict[str, Axis] = Field(default_factory=dict)
    episode: EpisodeSpec | None = None
    windows: WindowsSpec | None = None
    loader: LoaderSpec | None = None
    tokenizer: TokenizerSpec | None = None
    duplicates: DuplicatesSpec = Field(default_factory=DuplicatesSpec)
    splits: SplitsSpec | None = None
    when: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rules: dict[str, Annotated[RuleSpec, BeforeValidator(_rule)]] = Field(default_factory=dict)
    checks: tuple[str, ...] = ()

    @field_validator("checks", mode="before")
    @classmethod
    def _sequences(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: str | None) -> str | None:
        if value is not None:
            parse_columns(value)
        return value

    @property
    def digest(self) -> str:
        """Digest of what the schema says, defaults left out (adding an option changes no digest)."""
        said = self.as_dict()
        if self.loader is not None:  # the order of its steps matters, and canonical JSON sorts keys
            said["loader"] = [list(step) for step in self.loader.steps]
        return digest_value(said)

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values, defaults left out."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"datacheck": 1}

    def for_split(self, split: str) -> Schema:
        """Return the schema with the ``when: split=...`` block of `split` applied."""
        changes = self.when.get(f"split={split}")
        if not changes:
            return self
        fields = {name: spec.model_dump(exclude_unset=True, mode="json") for name, spec in self.fields.items()}
        for name, change in changes.items():
            fields[name] = fields.get(name, {}) | ({"absent": True} if change == "absent" else dict(change))
        data = self.model_dump(exclude_unset=True, mode="json", exclude={"fields", "when"})
        return Schema.model_validate(data | {"fields": fields})

    def parts(self, name: str) -> dict[str, tuple[int, int]]:
        """Return {part: (start, stop)} of a field that declares ``columns``, else {}."""
        spec = self.fields.get(name)
        return parse_columns(spec.columns) if spec is not None and spec.columns else {}

    def of_role(self, *roles: str) -> Iterator[tuple[str, FieldSpec]]:
        """Yield (name, spec) of the present fields with one of these roles, in name order."""
        for name in sorted(self.fields):
            if self.fields[name].role in roles and not self.fields[name].absent:
                yield name, self.fields[name]
