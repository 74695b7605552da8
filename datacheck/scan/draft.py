"""``datacheck init``: a schema drafted from data, every guess marked; a person reads and edits it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import UsageError
from datacheck.formats.base import format_of
from datacheck.parallel import Limits, ordered_map
from datacheck.rules.base import counted
from datacheck.scan.axes import name_axes
from datacheck.scan.guess import Guess, guess, inner_samples, says_role
from datacheck.scan.look import Seen
from datacheck.scan.pattern import patterns
from datacheck.scan.together import Part, together
from datacheck.schema.dump import dump_schema
from datacheck.schema.load import FILES, WHOLE, builtin, load_schema, parse_schema
from datacheck.schema.model import Schema
from datacheck.sources import matches, plan_work
from datacheck.sources.listing import Listing, list_files, target
from datacheck.sources.roots import sandbox_of

MOST = 200  # samples looked at
_FILES = 40  # files looked into
_NEARLY_ALL = 0.9
_BESIDE = frozenset({".jpg", ".jpeg", ".png", ".yaml", ".yml", ".json", ".txt"})  # rather beside data than the data
_MARK = "# inferred"
_GROUPS, _LOOK = "datacheck.scan.look:inner_groups", "datacheck.scan.look:look"


@dataclass(frozen=True)
class Draft:
    """A drafted schema.

    Args:
        text: YAML with comments.
        fields: how many fields it declares.
        samples: how many samples were looked at.
        notes: what a person should know, a sentence each.
    """

    text: str
    fields: int
    samples: int
    notes: tuple[str, ...]


class Look(NamedTuple):
    """What a few samples hold: fields by name, how many were looked at, why some could not be."""

    fields: dict[str, Seen]
    samples: int
    unread: list[str]


def draft(data: Path) -> Draft:
    """Draft a schema for a folder or file.

    Raises:
        UsageError: the data are missing, or no format reads any of them.
    """
    root, only = target(data)
    listing = list_files(root, {}, only)
    readable = [path for path in listing.entries.paths if format_of(path) is not None]
    known = _builtin(listing, set(readable))
    if known is not None:
        return known
    if not readable:
        msg = f"{data}: no format reads any of its {len(listing.entries):,} files. Name a folder of data."
        raise UsageError(msg)
    parts = together(readable)
    several = _of_parts(data, parts, listing) if parts else None
    if several is not None:
        return several
    kind, paths = _main_kind(readable)
    (pattern,) = patterns([(paths, kind)])
    depths = len({path.count("/") for path in paths})
    why = f"{len(paths):,} files at {depths} depths" if depths > 1 else counted(len(paths), "file")
    said: dict[str, Any] = {"datacheck": 1, "name": _name(data), "samples": {"files": pattern}}
    each = _each(root, kind, _spread(paths, 5))
    if each:
        said["samples"] |= {"each": each}
    look = _look(_open(said), listing)
    inner = "" if each else inner_samples(look.fields, len(paths), kind)
    if inner:
        said["samples"] |= {"each": inner}
        why += f", each {'row' if inner == 'row' else 'element'} of which looks like a sample"
        look = _look(_open(said), listing)
    fields, samples, unread = look
    if not fields:
        why = f"could be read. {'; '.join(unread)}" if unread else "holds a field: they are empty."
        msg = f"{root}: none of {counted(min(len(paths), _FILES), 'file')} {why}"
        raise UsageError(msg)
    axes = name_axes(fields, episodes="demo" in each or "episode" in each)
    files = f"{_name(data)} {pattern}"
    guesses = {name: guess(name, seen, axes, samples, files) for name, seen in sorted(fields.items())}
    return _written(said, guesses, samples, [*_others(readable, set(paths)), *_unread(unread)], why)


def _others(readable: Sequence[str], paths: Container[str]) -> list[str]:
    """Say which files a draft does not describe."""
    others = Counter(PurePosixPath(path).suffix for path in readable if path not in paths)
    return [f"not described: {counted(count, f'{suffix} file'.strip())}" for suffix, count in others.most_common(4)]


def _unread(reasons: Sequence[str]) -> list[str]:
    return [f"could not be read: {reason}" for reason in reasons]


def _of_parts(data: Path, parts: Sequence[Part], listing: Listing) -> Draft | None:
    """Return a draft of samples of several files each, None where the files are rather samples of their own.

    The samples' own file is the largest; the fields of the others have a ``file``.
    """
    head = {"datacheck": 1, "name": _name(data)}
    looks = {
        part: _look(_open(head | {"samples": {"files": part.pattern}}), _only(listing, part.whole), len(part.paths))
        for part in parts
    }
    kept = [part for part in parts if looks[part].fields]
    if len(kept) < 2 or not _differ(kept, looks) or any(_holds_samples(part, listing) for part in kept):
        return None
    main = min(kept, key=partial(_rank, kept, listing))
    fields: dict[str, Seen] = {}
    places: dict[str, tuple[Part, dict[str, Any]]] = {}
    for part in sorted(kept, key=lambda one: (len(looks[one].fields) > 1, one is not main)):  # one array has one name
        several = len(looks[part].fields) > 1
        for inner, seen in looks[part].fields.items():
            name = _free(part, inner if several or not part.name else part.name, inner, fields)
            place: dict[str, Any] = {} if part is main else {"file": part.pattern}
            if several and (part is not main or name != inner):
                place["at"] = inner
            fields[name], places[name] = seen, (part, place | ({"optional": True} if part.optional else {}))
    axes = name_axes(fields, episodes=False)
    guesses = {}
    for name, seen in sorted(fields.items()):
        part, place = places[name]
        found = guess(name, seen, axes, looks[part].samples, f"{_name(data)} {part.pattern}")
        guesses[name] = replace(found, spec=place | found.spec)
    left = _others(list(listing.entries.paths), {path for part in kept for path in part.paths})
    unread = [reason for part in parts for reason in looks[part].unread]
    most, why = max(looks[part].samples for part in kept), f"{len(main.paths):,} samples of {len(kept)} files each"
    return _written(head | {"samples": {"files": main.pattern}}, guesses, most, [*left, *_unread(unread)], why)


def _differ(parts: Sequence[Part], looks: Mapping[Part, Look]) -> bool:
    """Tell whether files of a sample hold different things, or arrays of which their names say different things."""
    first, *others = (looks[part].fields for part in parts)
    if any(len(first) != len(other) or (len(first) > 1 and first.keys() != other.keys()) for other in others):
        return True
    if any(not one.like(two) for other in others for one, two in zip(*map(_sorted, (first, other)), strict=True)):
        return True
    return len(first) == 1 and sum(says_role(part.name) for part in parts) > 1


def _sorted(fields: Mapping[str, Seen]) -> list[Seen]:
    return [fields[name] for name in sorted(fields)]


def _holds_samples(part: Part, listing: Listing) -> bool:
    ending = _ending(part.paths[0])
    return ending.lower() not in _BESIDE and bool(_each(listing.root, ending, _spread(part.paths, 5)))


def _rank(parts: Sequence[Part], listing: Listing, part: Part) -> tuple[Any, ...]:
    """Return what orders parts: which of them is rather the samples' own file."""
    within = any(one.ending != part.ending and one.ending.endswith(part.ending) for one in parts)  # fits its files, too
    size = sum(listing.by_path[path].size for path in _spread(part.paths, MOST))
    return part.optional, within, _ending(part.paths[0]).lower() in _BESIDE, -size, part.name


def _free(part: Part, name: str, inner: str, taken: Container[str]) -> str:
    """Return a name for a field that no other has."""
    own = part.name or re.sub(r"\W+", "_", part.ending).strip("_")
    while name in taken or name == "*":  # which stands for fields that are not listed
        name, inner = f"{own}_{inner}", f"{inner}_"
    return name


def _only(listing: Listing, paths: Sequence[str]) -> Listing:
    index = np.array([listing.entries.find(path) for path in _spread(paths, _FILES)])
    return replace(listing, entries=listing.entries.take(index))


def _builtin(listing: Listing, readable: set[str]) -> Draft | None:
    """Return a draft that extends the one built-in schema that leaves hardly a readable file over, else None."""
    fitting = [(load_schema(name), name) for name in builtin() if name not in {FILES, *WHOLE}]
    fitting = [(schema, name) for schema, name in fitting if matches(schema, listing)]
    if len(fitting) != 1:
        return None
    schema, name = fitting[0]
    left = len(readable.intersection(plan_work(schema, listing).unclaimed))
    if left > (1 - _NEARLY_ALL) * len(readable) or not _holds(schema, listing):
        return None
    text = (
        f"datacheck: 1\nname: my_{name}\nextends: {name}    {_MARK}: it claims {len(readable) - left:,} of "
        f"{len(readable):,} files; datacheck scan DATA --schema {name} works as it is\n"
    )
    return Draft(text, len(schema.fields), 0, ())


def _holds(schema: Schema, listing: Listing) -> bool:
    """Tell whether files hold at least half of the fields that a schema asks for; others may be called as they are."""
    look = _look(schema, listing)
    wanted = {name for name, spec in schema.stored.items() if not spec.optional}
    return not look.samples or 2 * len(wanted & look.fields.keys()) >= len(wanted)


def _main_kind(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Return the ending that most files of the main format have, and these files; pictures only if nothing else."""
    counted = Counter(_ending(path) for path in paths)
    ending = max(counted, key=lambda e: (e.lower() not in _BESIDE, counted[e], e))
    return ending, [path for path in paths if _ending(path) == ending]


def _ending(path: str) -> str:
    """Return the ending of a path as it is written: patterns tell capitals."""
    found = format_of(path)
    known = (s for s in (found.suffixes if found else ()) if path.lower().endswith(s))
    return path[-len(next(known, PurePosixPath(path).suffix)) or len(path) :]


def _name(data: Path) -> str:
    return (re.sub(r"[^A-Za-z0-9_.-]+", "_", data.resolve().stem).strip("._-") or "dataset")[:60]


def _spread(paths: Sequence[str], count: int) -> list[str]:
    step = max(1, len(paths) // count)
    return list(paths[::step][:count])


def _each(root: Path, ending: str, paths: Sequence[str]) -> str:
    """Return ``samples.each``: lines, groups or episodes inside the files, "" where a file is a sample."""
    if ending.lower() in {".jsonl", ".ndjson", ".jsonl.gz"}:
        return "line"
    task = {"root": str(root.absolute()), "items": [{"path": path} for path in paths]}
    found: Counter[str] = Counter()
    for outcome in ordered_map(_GROUPS, [task], limits=Limits(item_s=30), sandbox=sandbox_of(root, {})):
        for payload in outcome.payloads:
            found.update(payload["found"].values())
    return found.most_common(1)[0][0] if found else ""


def _open(said: Mapping[str, Any]) -> Schema:
    """Return a schema of which nothing is known but where its samples are."""
    return Schema.model_validate({**said, "fields": {"*": {}}})


def _look(schema: Schema, listing: Listing, files: int = 0) -> Look:
    """Look into some files of a listing, of which there are so many, or those that a schema names."""
    items = plan_work(schema, listing).items
    chosen = [items[i] for i in range(0, len(items), max(1, len(items) // _FILES))][:_FILES]
    task = {
        "schema": schema.as_dict(), "root": str(listing.root.absolute()),
        "items": [item.as_dict() for item in chosen], "most": MOST,
    }  # fmt: skip
    fields: dict[str, Seen] = {}
    samples, unread = 0, list[str]()
    for outcome in ordered_map(_LOOK, [task], sandbox=sandbox_of(listing.root, {})):
        unread += [f"{death.item['path']}: {death.how}".splitlines()[0] for death in outcome.deaths]
        for payload in outcome.payloads:
            samples += payload["samples"]
            unread += payload["unread"]
            found = {name: Seen(**seen) for name, seen in payload["fields"].items() if name not in fields}
            for seen in found.values():
                seen.thinned |= len(chosen) < (files or len(items))
            fields |= found
    return Look(fields, samples, unread[:3])


# ------------------------------------------------------------------------------------------------- text


def _written(
    said: Mapping[str, Any], guesses: Mapping[str, Guess], samples: int, notes: Sequence[str], why: str
) -> Draft:
    fields = {name: found.spec for name, found in guesses.items()}
    schema = Schema.model_validate({**said, "fields": fields})
    made = f"Drafted by datacheck init from {counted(samples, 'sample')}."
    lines = [
        f"# {made} What is marked {_MARK!r} is a guess: read it, mend it.",
        *(f"# {_inert(note)}" for note in notes),
        *_commented(dump_schema(schema).splitlines(), guesses, why),
    ]
    text = "\n".join(lines) + "\n"
    parse_schema(text)  # a draft that does not load would be worse than none
    return Draft(text, len(fields), samples, tuple(notes))


def _inert(comment: str) -> str:
    """Return a comment that no name of a file or field in it can end."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in comment)


def _commented(lines: Sequence[str], guesses: Mapping[str, Guess], why: str) -> Iterator[str]:
    names = iter(guesses)
    inside = False
    for line in lines:
        if line.startswith("fields:"):
            inside = True
        elif inside and line[:2] == "  " and line[2] not in " ?":  # a long name has a line of its own: "  ? name"
            reasons = _inert("; ".join(guesses[next(names)].why))
            line += f"    {_MARK}{': ' if reasons else ''}{reasons}"
        elif line.startswith("samples:"):
            line += f"    {_MARK}: {why}"
        yield line
