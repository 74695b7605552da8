"""What decides the rows of a scan besides the bytes of the files, and how two scans differ in it.

A scan keeps the rows of an earlier one only where the settings are equal. A rescore, which has no
data to read, says which differences stand in its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from datacheck import __version__
from datacheck.formats.base import formats
from datacheck.model.sample import Depth
from datacheck.rules.base import Measure, first_few
from datacheck.rules.selection import variants
from datacheck.runtime.hashing import digest_value
from datacheck.schema.model import ANY, Schema, pixels

_TABLE_VERSION = 3
# The keys of a field's declaration that decide how files are read.
_READING_KEYS = ("at", "file", "columns", "shape", "dtype", "absent")
# The keys of a schema that decide which samples there are, and what is known of them.
_SAMPLE_KEYS = ("samples", "near_names", "columns", "attrs", "splits")

Settings = Mapping[str, Any]
# The reading of each field by name, and the settings of each measurement.
Variant = tuple[Mapping[str, Settings], Sequence[Settings]]


@dataclass(frozen=True, eq=False)
class MeasurementSettings:
    """Everything besides the files' bytes that decides what rows hold; thresholds are not part.

    Args:
        versions: of datacheck, its tables and its formats.
        samples: the settings that decide which samples there are.
        variants: for each variant of the schema, how its fields are read and measured.
    """

    versions: Settings
    samples: Settings
    variants: Sequence[Variant]

    @classmethod
    def of(
        cls,
        schema: Schema,
        measures: Sequence[Measure],
        level: Depth = "deep",
        *,
        outside: bool = True,
    ) -> MeasurementSettings:
        """Return the settings of a scan.

        Args:
            schema: the schema in force.
            measures: the measurements.
            level: how deep the scan reads; it counts only where another level would read something
                else.
            outside: as in `Measure.settings`.
        """
        versions = {
            "version": __version__,
            "table": _TABLE_VERSION,
            "formats": {name: list(kind.suffixes) for name, kind in sorted(formats().items())},
        }
        every = [
            (_field_reading(variant), [m.settings(variant, outside=outside) for m in measures])
            for variant in variants(schema)
        ]
        return cls(versions, _sample_settings(schema, level), every)

    @classmethod
    def from_json(cls, record: Sequence[Any]) -> MeasurementSettings:
        """Return the settings that an earlier scan has stored."""
        return cls(record[0], record[1], record[2:])

    def as_json(self) -> list[Any]:
        """Return the settings as JSON values."""
        return [self.versions, self.samples, *map(list, self.variants)]

    @cached_property
    def key(self) -> str:
        """The digest of the settings: rows with equal keys may be kept."""
        return digest_value(self.as_json())


def _sample_settings(schema: Schema, level: Depth) -> Settings:
    declared = schema.as_dict()
    settings = {key: declared.get(key) for key in _SAMPLE_KEYS}
    if schema.reads_unlisted:
        settings["fields that the schema does not list"] = True
    every_level_reads_the_same = level != "structure" and all(
        variant.stored and ANY not in variant.fields and not pixels(variant)
        for variant in variants(schema)
    )
    settings["when"] = sorted(schema.when)
    settings["level"] = "" if every_level_reads_the_same else level
    return settings


def _field_reading(variant: Schema) -> dict[str, Settings]:
    fields = variant.as_dict().get("fields", {})
    return {
        name: {key: value for key, value in spec.items() if key in _READING_KEYS}
        for name, spec in fields.items()
    }


# ----------------------------------------------------------------------------- missing measurements


def missing_measurements(
    have: MeasurementSettings, want: MeasurementSettings, measures: Sequence[Measure]
) -> Iterator[str]:
    """Yield phrases that say why rows measured as in `have` cannot be judged as in `want`.

    Args:
        have, want: the settings of the rows, and those that a schema needs.
        measures: the measurements of `want`.
    """
    if have.versions != want.versions:
        yield (
            f"the run was made by another version of datacheck or other plug-ins "
            f"({have.versions.get('version')})"
        )
        return
    differing = [key for key, value in want.samples.items() if value != have.samples.get(key)]
    yield from (
        f"{key!r} decides which samples there are and what is known of them, and is another"
        for key in differing
    )
    if len(have.variants) == len(want.variants):
        per_field = {measure.name for measure in measures if measure.per == "field"}
        yield from _causes(have.variants, want.variants, per_field)


def _causes(have: Sequence[Variant], want: Sequence[Variant], per_field: set[str]) -> Iterator[str]:
    """Yield the differences in how fields are read and measured, with the measurements affected."""
    causes: dict[str, dict[str, None]] = {}
    for (fields_before, measures_before), (fields, measures) in zip(have, want, strict=True):
        for phrase in _read_otherwise(fields_before, fields):
            causes.setdefault(phrase, {})
        for phrase, name in _unmeasured(measures_before, measures, per_field):
            causes.setdefault(phrase, {})[name] = None
    for phrase, names in causes.items():
        yield phrase + (f" (measured by {first_few(names)})" if names else "")


def _read_otherwise(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        if name not in before or name not in now:
            yield f"field {name!r} {'was' if name in now else 'is'} not declared"
        for key in sorted({*before.get(name, {}), *now.get(name, {})}):
            if name in before and name in now and before[name].get(key) != now[name].get(key):
                yield f"field {name!r} is read otherwise: another {key!r}"


def _unmeasured(
    before: Sequence[Any], now: Sequence[Any], per_field: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a difference and the measurement that it affects."""
    earlier = {settings["name"]: settings for settings in before}
    for settings in now:
        name = settings["name"]
        old = earlier.get(settings["name"])
        if old is None:
            yield "what no rule of the run has asked for", name
        elif (
            settings["version"] != old["version"]
            or settings.get("outside", old["outside"]) != old["outside"]
        ):
            yield "a tokenizer, or a check of your own, that has changed", name
        else:
            for phrase in _used_otherwise(
                old["uses"], settings["uses"], per_field=name in per_field
            ):
                yield phrase, name


def _used_otherwise(
    before: Mapping[str, Any], now: Mapping[str, Any], *, per_field: bool
) -> Iterator[str]:
    for key, values in now.items():
        old = before.get(key)
        # A field that is no longer used does not matter, unless a measurement sees all at once.
        if key == "fields":
            dropped = set() if per_field else set(old or ()) - set(values)
            yield from (
                f"field {name!r}, which was not measured"
                for name in values
                if name not in (old or ())
            )
            yield from (f"without field {name!r}" for name in sorted(dropped))
        elif per_field or key.startswith("fields."):
            for name in now["fields"]:
                if name in before["fields"] and values.get(name) != (old or {}).get(name):
                    yield f"another {key.removeprefix('fields.')!r} of field {name!r}"
        elif values != old:
            yield f"another {key!r}"
