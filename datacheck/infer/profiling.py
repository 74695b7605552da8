"""The parent's side of profiling: sends files to a child process and collects its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from datacheck.infer.data_files import JSON_LINES
from datacheck.infer.inner_samples import GROUPS, SENTENCES, TABLE, InnerSamples
from datacheck.infer.profile import FieldProfile
from datacheck.rules.base import first_few
from datacheck.schema.model import ANY, Schema
from datacheck.sources import plan_work
from datacheck.sources.kinds import NO_GROUP, SourceSetup
from datacheck.sources.listing import Listing
from datacheck.sources.roots import sandbox_of
from datacheck.workers.parallel import Limits, TaskResult, ordered_map

# Samples that are profiled, and files that they are drawn from.
MOST_SAMPLES = 200
MOST_FILES = 40
# Names in one line of the notes, and characters of a name.
MOST_SHOWN = 6
_MOST_SHOWN_CHARACTERS = 100
# Reasons in the notes why samples could not be read.
_MOST_REASONS = 3
# Seconds for looking into one file.
_LOOK_SECONDS = 30
# Files that are looked into for samples inside.
FEW_FILES = 5
# More files of columns are rather a sample each.
_MOST_TABLES = 6
# A cache cannot hold a field beyond these: bytes of a part of its name, bytes of the name, axes.
_MOST_PART_BYTES = 240
_MOST_NAME_BYTES = 2_000
_MOST_AXES = 62

_INNER_GROUPS = "datacheck.infer.inner_samples:inner_groups"
_PROFILE_SAMPLES = "datacheck.infer.worker:profile_samples"


@dataclass(frozen=True)
class SampleProfile:
    """The profile of a few samples.

    Args:
        fields: by name.
        samples: how many were read.
        unread: why others could not be read, for a few of them.
        failed: how many could not be read.
        unsupported: names of values of an unsupported kind.
        near_names: near names, by the field that they were read for.
        unstorable: names of fields that no cache can hold and few samples have (a build leaves them
            out if no schema lists them), or that are empty.
    """

    fields: dict[str, FieldProfile]
    samples: int
    unread: list[str]
    failed: int
    unsupported: list[str]
    near_names: dict[str, str]
    unstorable: list[str]

    @property
    def notes(self) -> list[str]:
        """Sentences on the values and samples that were not read."""
        notes = [f"could not be read: {reason}" for reason in self.unread]
        more = self.failed - len(self.unread)
        if more > 0:
            total = self.samples + self.failed
            notes.append(f"could not be read: {more:,} more of {total:,} that were looked at")
        if self.unsupported:
            notes.append(f"of a kind that is not read: {first_few(self.unsupported, MOST_SHOWN)}")
        if self.unstorable:
            names = [name[:_MOST_SHOWN_CHARACTERS] for name in self.unstorable]
            notes.append(
                f"left out, as no cache can hold a field of such a name or shape: "
                f"{first_few(names, MOST_SHOWN)}"
            )
        return notes

    @property
    def lacks_group(self) -> bool:
        """Whether files hold no group of the kind that the schema reads as a sample."""
        return any(NO_GROUP in reason for reason in self.unread)

    @property
    def has_several_tables(self) -> bool:
        """Whether hardly any column is in most files: they are tables of several kinds."""
        fields = self.fields.values()
        return bool(fields) and all(2 * field.samples <= self.samples for field in fields)

    def has_same_columns(self, other: SampleProfile) -> bool:
        """Tell whether samples have fields, and others have the same ones."""
        if not self.fields or self.fields.keys() != other.fields.keys():
            return False
        return all(
            profile.is_same_column(other.fields[name]) for name, profile in self.fields.items()
        )


def any_field_schema(head: Mapping[str, Any]) -> Schema:
    """Return a schema that says only where the samples are, and reads all fields."""
    return Schema.model_validate({**head, "fields": {ANY: {}}})


def evenly_spaced(paths: Sequence[str], count: int) -> list[str]:
    """Return at most so many paths from the whole list."""
    step = max(1, len(paths) // count)
    return list(paths[::step][:count])


def find_inner_samples(root: Path, paths: Sequence[str]) -> dict[str, InnerSamples]:
    """Return what each readable file says of samples inside it."""
    items = [{"path": path} for path in paths]
    task = {"root": str(root.absolute()), "roots": {}, "items": items}
    limits = Limits(item_s=_LOOK_SECONDS)
    found: dict[str, InnerSamples] = {}
    for outcome in ordered_map(_INNER_GROUPS, [task], limits=limits, sandbox=sandbox_of(root, {})):
        for payload in outcome.payloads:
            for path, inner in payload["found"].items():
                found[path] = InnerSamples(
                    inner["kind"],
                    inner["pattern"],
                    inner["count"],
                    tuple(inner["keys"]),
                    tuple(inner["files"]),
                    tuple(inner["classes"]),
                    known=inner["known"],
                    views=inner["views"],
                    groups=inner["groups"],
                    columns=inner["columns"],
                )
    return found


def look_into_some(root: Path, ending: str, paths: Sequence[str]) -> dict[str, InnerSamples]:
    """Return what some files of one kind say of samples inside them; {} for JSON lines."""
    if ending.lower() in JSON_LINES:
        return {}
    return find_inner_samples(root, evenly_spaced(paths, FEW_FILES))


def guess_each(ending: str, paths: Sequence[str], inner: Mapping[str, InnerSamples]) -> str:
    """Return ``samples.each``: lines, groups or episodes in the files; "" if a file is a sample.

    Args:
        ending, paths: of the files.
        inner: what some of them say, from `look_into_some`.
    """
    if ending.lower() in JSON_LINES:
        return "line"
    if 2 * sum(samples.kind == SENTENCES for samples in inner.values()) > len(inner):
        return "line"
    tables = sum(samples.kind == TABLE for samples in inner.values())
    if tables and 2 * tables >= len(inner) and len(paths) <= _MOST_TABLES:
        return "line"
    counts = Counter(
        samples.pattern if samples.kind == GROUPS else samples.groups for samples in inner.values()
    )
    own_names = [text for text in counts if text.count("/") == 1 and not text.endswith("*")]
    # Each file has one group under a name of its own.
    if len(own_names) > 1 and len(own_names) == counts.total():
        return "/*"
    # Most files decide: a few others are then the ones that do not fit.
    pattern, count = counts.most_common(1)[0] if counts else ("", 0)
    return "" if pattern in own_names or 2 * count <= counts.total() else pattern


def profile_files(schema: Schema, listing: Listing, files: int = 0) -> SampleProfile:
    """Profile some files of a listing.

    Args:
        schema: names the files.
        listing: the files to choose from.
        files: how many files there are in all, if `listing` is a part of them.
    """
    (profile,) = profile_by_schema([schema], listing, files)
    return profile


def profile_by_schema(
    schemas: Sequence[Schema], listing: Listing, files: int = 0
) -> list[SampleProfile]:
    """Profile some files of a listing as samples of each schema, one after another in one child.

    Args:
        schemas, listing, files: as for `profile_files`.
    """
    tasks = list[dict[str, Any]]()
    thinned = list[bool]()
    for schema in schemas:
        items = plan_work(schema, listing).items
        chosen = items[:: max(1, len(items) // MOST_FILES)][:MOST_FILES]
        thinned.append(len(chosen) < (files or len(items)))
        tasks.append(
            SourceSetup(schema, listing.root, {}).absolute().as_dict()
            | {"items": [item.as_dict() for item in chosen], "most": MOST_SAMPLES}
        )
    outcomes = ordered_map(_PROFILE_SAMPLES, tasks, sandbox=sandbox_of(listing.root, {}))
    return [
        _profile_of(outcome, thinned=part) for outcome, part in zip(outcomes, thinned, strict=True)
    ]


def _profile_of(outcome: TaskResult, *, thinned: bool) -> SampleProfile:
    samples = 0
    failed = len(outcome.deaths)
    unread = [  # of a crash the last line of its traceback
        f"{death.item['path']}: {death.how.strip().splitlines()[-1]}" for death in outcome.deaths
    ]
    unsupported = set[str]()
    near_names = dict[str, str]()
    fields = dict[str, FieldProfile]()
    for payload in outcome.payloads:
        samples += payload["samples"]
        failed += payload["failed"]
        unread += payload["unread"]
        unsupported.update(payload["unsupported"])
        near_names |= payload["near_names"]
        for name, values in payload["fields"].items():
            fields.setdefault(name, FieldProfile(**values))
    if thinned:
        for field_profile in fields.values():
            field_profile.thinned = True
    unstorable = sorted(name for name in fields if not _is_storable(name, fields[name], samples))
    return SampleProfile(
        {name: profile for name, profile in fields.items() if name not in unstorable},
        samples,
        unread[:_MOST_REASONS],
        failed,
        sorted(unsupported),
        near_names,
        unstorable,
    )


def _is_storable(name: str, profile: FieldProfile, samples: int) -> bool:
    """Tell whether a cache can hold a field, or most samples have it, so that a scan reports it."""
    if not name:  # "" names no field
        return False
    if 2 * profile.samples >= samples:
        return True
    parts = [quote(part, errors="surrogatepass") for part in name.split("/")]
    has_storable_name = (
        all(0 < len(part) <= _MOST_PART_BYTES for part in parts)
        and sum(map(len, parts)) <= _MOST_NAME_BYTES
        and "\0" not in name
    )
    axes = max(map(int, profile.ndims), default=0)
    return has_storable_name and 0 not in (profile.item or ()) and axes < _MOST_AXES
