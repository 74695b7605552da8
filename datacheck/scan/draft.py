"""``datacheck init``: a schema drafted from data, every guess marked; a person reads and edits it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from datacheck.errors import UsageError
from datacheck.formats.base import format_of
from datacheck.parallel import Limits, ordered_map
from datacheck.scan.guess import Guess, are_rows, guess, name_axes, says_role
from datacheck.scan.look import Seen
from datacheck.scan.together import Part, together
from datacheck.schema.dump import dump_schema
from datacheck.schema.load import builtin, load_schema, parse_schema
from datacheck.schema.model import Schema
from datacheck.sources import matches, plan_work
from datacheck.sources.listing import Listing, list_files, target

MOST = 200  # samples looked at
_FILES = 40  # files looked into
_NEARLY_ALL = 0.9
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "eval", "evaluation", "dev"})
_BESIDE = frozenset({".jpg", ".jpeg", ".png", ".yaml", ".yml", ".json", ".txt"})  # rather beside data than the data
_MARK = "# inferred"


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
    parts = together(readable, _SPLITS)
    several = _of_parts(data, parts, listing) if parts else None
    if several is not None:
        return several
    kind, paths = _main_kind(readable)
    pattern, why = _pattern(paths, kind)
    said: dict[str, Any] = {"datacheck": 1, "name": _name(data), "samples": {"files": pattern}}
    each = _each(root, kind, _spread(paths, 5))
    if each:
        said["samples"] |= {"each": each}
    fields, samples, unread = _look(said, listing)
    if not each and are_rows(fields, len(paths)):
        said["samples"] |= {"each": "row"}
        why += ", each row of which looks like a sample"
        fields, samples, unread = _look(said, listing)
    axes = name_axes(fields, episodes="demo" in each or "episode" in each)
    files = f"{_name(data)} {pattern}"
    guesses = {name: guess(name, seen, axes, samples, files) for name, seen in sorted(fields.items())}
    return _written(said, guesses, samples, [*_others(readable, set(paths)), *unread], why)


def _others(readable: Sequence[str], paths: Container[str]) -> list[str]:
    """Say which files a draft does not describe."""
    others = Counter(PurePosixPath(path).suffix or "no suffix" for path in readable if path not in paths)
    return [f"not described: {count:,} {suffix} files" for suffix, count in others.most_common(4)]


def _of_parts(data: Path, parts: Sequence[Part], listing: Listing) -> Draft | None:
    """Return a draft of samples of several files each, None where all files hold the same, or one holds many samples.

    The samples' own file is the largest; the fields of the others have a ``file``.
    """
    ends = [part.ending for part in parts]  # of which one may end with another: its pattern would fit that, too

    def rank(part: Part) -> tuple[Any, ...]:
        within = any(end != part.ending and end.endswith(part.ending) for end in ends)
        beside = _ending(part.paths[0]).lower() in _BESIDE
        return part.optional, within, beside, -sum(listing.by_path[path].size for path in part.paths), part.name

    main, *others = sorted(parts, key=rank)
    if _each(listing.root, _ending(main.paths[0]), _spread(main.paths, 5)):
        return None
    said: dict[str, Any] = {
        "datacheck": 1,
        "name": _name(data),
        "samples": {"files": _pattern(main.paths, main.ending)[0]},
    }
    fields: dict[str, Seen] = {}
    places: dict[str, dict[str, Any]] = {}
    most, notes, kinds = 0, list[str](), []
    for part in (main, *others):
        pattern = _pattern(part.paths, part.ending)[0]
        seen, samples, unread = _look(said | {"samples": {"files": pattern}}, listing)
        most, notes = max(most, samples), [*notes, *unread]
        kinds.append(sorted((name if len(seen) > 1 else "", one.alike) for name, one in seen.items()))
        for inner, one in seen.items():
            name = part.name if len(seen) == 1 else f"{part.name}_{inner}" if inner in fields else inner
            place = {} if part is main else {"file": pattern}
            if len(seen) > 1 and (part is not main or name != inner):
                place["at"] = inner
            fields[name], places[name] = one, place | ({"optional": True} if part.optional else {})
    if all(kind == kinds[0] for kind in kinds) and sum(says_role(part.name) for part in parts) < 2:
        return None
    axes = name_axes(fields, episodes=False)
    guesses = {name: guess(name, seen, axes, seen.samples) for name, seen in sorted(fields.items())}
    placed = {name: replace(one, spec=places[name] | one.spec) for name, one in guesses.items()}
    left = _others(list(listing.entries.paths), {path for part in parts for path in part.paths})
    return _written(said, placed, most, [*left, *notes], f"{len(main.paths):,} samples of {len(parts)} files each")


def _builtin(listing: Listing, readable: set[str]) -> Draft | None:
    """Return a draft that extends the one built-in schema that leaves hardly a readable file over, else None."""
    fitting = [(load_schema(name), name) for name in builtin() if name != "files"]
    fitting = [(schema, name) for schema, name in fitting if matches(schema, listing)]
    if len(fitting) != 1:
        return None
    schema, name = fitting[0]
    left = len(readable.intersection(plan_work(schema, listing).unclaimed))
    if left > (1 - _NEARLY_ALL) * len(readable):
        return None
    text = (
        f"datacheck: 1\nname: my_{name}\nextends: {name}    {_MARK}: it claims {len(readable) - left:,} of "
        f"{len(readable):,} files; datacheck scan DATA --schema {name} works as it is\n"
    )
    return Draft(text, len(schema.fields), 0, ())


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


def _pattern(paths: Sequence[str], ending: str) -> tuple[str, str]:
    """Return the file pattern that all these paths follow, and why it is that one."""
    parts = [path.split("/") for path in paths]
    depth = {len(p) for p in parts}
    if len(depth) > 1:
        return f"**/*{ending}", f"{len(paths):,} files at {len(depth)} depths"
    folders: list[str] = []
    for level in range(depth.pop() - 1):
        values = {p[level] for p in parts}
        if len(values) == 1 and not values & _SPLITS:
            folders.append(_plain(values.pop()))
        elif values <= _SPLITS and "{split}" not in folders:  # twice in a pattern it is the same split
            folders.append("{split}")
        else:
            folders.append(f"{{folder{level + 1}}}")
    stems = {p[-1][: len(p[-1]) - len(ending)] for p in parts}
    if len(paths) == 1:
        return "/".join([*folders, _plain(stems.pop()) + ending]), "1 file"
    stem = "" if stems == {""} else "{split}" if stems <= _SPLITS and "{split}" not in folders else "{id}"
    return "/".join([*folders, stem + ending]), f"{len(paths):,} files"


def _plain(text: str) -> str:
    return text if not re.search(r"[{}*\[\]?]", text) else "*"


def _each(root: Path, ending: str, paths: Sequence[str]) -> str:
    """Return ``samples.each``: lines, groups or episodes inside the files, "" where a file is a sample."""
    if ending.lower() in {".jsonl", ".ndjson", ".jsonl.gz"}:
        return "line"
    task = {"root": str(root.absolute()), "items": [{"path": path} for path in paths]}
    found: Counter[str] = Counter()
    for outcome in ordered_map("datacheck.scan.look:inner_groups", [task], limits=Limits(item_s=30)):
        for payload in outcome.payloads:
            found.update(payload["found"].values())
    return found.most_common(1)[0][0] if found else ""


def _look(said: Mapping[str, Any], listing: Listing) -> tuple[dict[str, Seen], int, list[str]]:
    schema = Schema.model_validate({**said, "fields": {"*": {}}})
    items = plan_work(schema, listing).items
    chosen = [items[i] for i in range(0, len(items), max(1, len(items) // _FILES))][:_FILES]
    task = {
        "schema": schema.as_dict(), "root": str(listing.root.absolute()),
        "items": [item.as_dict() for item in chosen], "most": MOST,
    }  # fmt: skip
    fields: dict[str, Seen] = {}
    samples, unread = 0, list[str]()
    for outcome in ordered_map("datacheck.scan.look:look", [task]):
        unread += [f"{death.item['path']}: {death.how}".splitlines()[0] for death in outcome.deaths]
        for payload in outcome.payloads:
            samples += payload["samples"]
            unread += payload["unread"]
            fields |= {name: Seen(**seen) for name, seen in payload["fields"].items() if name not in fields}
    if not fields:
        msg = f"{listing.root}: none of {len(chosen):,} files could be read. {'; '.join(unread[:3])}"
        raise UsageError(msg)
    return fields, samples, [f"could not be read: {reason}" for reason in unread[:3]]


# ------------------------------------------------------------------------------------------------- text


def _written(
    said: Mapping[str, Any], guesses: Mapping[str, Guess], samples: int, notes: Sequence[str], why: str
) -> Draft:
    fields = {name: found.spec for name, found in guesses.items()}
    schema = Schema.model_validate({**said, "fields": fields})
    lines = [
        f"# Drafted by datacheck init from {samples:,} samples. What is marked {_MARK!r} is a guess: read it, mend it.",
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
