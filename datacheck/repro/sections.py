"""Compares the initial states of two runs in sections, most likely causes first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datacheck.repro.recorded import RecordedRun
from datacheck.repro.steps import began, unlike

ORDER = (
    "config",
    "code",
    "packages",
    "native",
    "hardware",
    "flags",
    "data",
    "seeds",
    "order",
    "initial weights",
    "step trace",
    "evaluations",
)

_INITIAL_PARTS = ("weights", "optimiser state")
_SCHEDULED = {"lr", "momentum", "betas"}  # settings that schedules change
_CAPTURE_PARTS = {  # by section: the sections of a capture
    "code": ("code",),
    "packages": ("packages", "interpreter"),
    "native": ("native",),
    "hardware": ("hardware", "blas", "gpu", "container"),
    "flags": ("torch", "process"),
    "data": ("data",),
    "seeds": ("rng",),
}
_MOST_SHOWN = 3  # unknown items named in a message
_PATH_CHARS = 1000  # limit of a name
# Limits of a section: differences held; characters of all their names
_MOST_DIFFERENCES = 100_000
_MOST_CHARS = 16_000_000
_LEVELS = 32  # depth of a value that is shown
_ABSENT = object()


@dataclass(frozen=True)
class RunDifference:
    """One difference between two runs.

    Args:
        name: the name of the value.
        a, b: its value in each run; None: absent.
    """

    name: str
    a: Any
    b: Any


@dataclass
class Section:
    """One section of `ORDER`.

    Args:
        name: its name.
        differences: in name order, at most 100,000, and fewer if names are long.
        unknown: why it could not be compared; empty if it was.
        note: a sentence on the result.
        step: the first step that differs, for sections with steps.
    """

    name: str
    differences: list[RunDifference] = field(default_factory=list)
    unknown: str = ""
    note: str = ""
    step: int | None = None

    def __bool__(self) -> bool:
        return bool(self.differences)


def json_differences(a: Any, b: Any, name: str = "") -> Iterator[RunDifference]:
    """Yield the differences of two JSON values by path (``torch.num_threads``), in name order."""
    left = [iter([(a, b, name)])]  # no recursion: a file may nest without limit
    while left:
        pair = next(left[-1], None)
        if pair is None:
            left.pop()
            continue
        one, other, path = pair
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            left.append(_entries(one, other, path))
        elif isinstance(one, list) and isinstance(other, list):
            left.append(_items(one, other, path))
        elif type(one) is not type(other) or one != other:
            yield RunDifference(path, _shallow_value(one), _shallow_value(other))


# Values of both and their path, generated one by one: there may be millions.
_Pairs = Iterator[tuple[Any, Any, str]]


def _entries(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> _Pairs:
    return (
        (one.get(k, _ABSENT), other.get(k, _ABSENT), _child_path(path, k))
        for k in sorted({*one, *other})
    )


def _items(one: list[Any], other: list[Any], path: str) -> _Pairs:
    pairs = enumerate(itertools.zip_longest(one, other, fillvalue=_ABSENT))
    return ((x, y, _shorten_path(f"{path}[{i}]")) for i, (x, y) in pairs)


def _child_path(path: str, key: Any) -> str:
    return _shorten_path(f"{path}.{key}" if path else str(key))


def _shorten_path(path: str) -> str:
    """Return a path of limited length: a file can have many values with long paths."""
    return (
        path
        if len(path) <= _PATH_CHARS
        else f"{path[: _PATH_CHARS // 2]}...{path[-_PATH_CHARS // 4 :]}"
    )


def _shallow_value(value: Any) -> Any:
    """Return a value that can be written, or a text if it nests deeper than `_LEVELS`."""
    level = [value]
    for _ in range(_LEVELS):
        within = [list(one.values()) if isinstance(one, Mapping) else one for one in level]
        level = [x for one in within if isinstance(one, list) for x in one]
        if not level:
            return None if value is _ABSENT else value
    return f"nested deeper than {_LEVELS} levels"


def _limit_differences(
    found: Iterable[RunDifference], section: str, ignore: Sequence[str]
) -> Iterator[RunDifference]:
    """Yield the differences that fit into a section, by number and by characters of their paths."""
    room = _MOST_CHARS
    counted = (one for one in found if not _ignored(section, one.name, ignore))
    for one in itertools.islice(counted, _MOST_DIFFERENCES):
        room -= len(one.name)
        if room < 0:
            return
        yield one


def start_sections(a: RecordedRun, b: RecordedRun, ignore: Sequence[str] = ()) -> list[Section]:
    """Return the sections from config to seeds, and the initial weights.

    Args:
        a, b: the runs.
        ignore: names to leave out, with all below them ("config.out").
    """
    captured = _environment_sections(a, b)
    for section in captured:
        section.differences = [
            one for one in section.differences if not _ignored(section.name, one.name, ignore)
        ]
    return [_config_section(a, b, ignore), *captured, _weights_section(a, b, ignore)]


def _ignored(section: str, name: str, ignore: Sequence[str]) -> bool:
    return any(
        full == one or full.startswith((f"{one}.", f"{one}["))
        for one in ignore
        for full in (name, f"{section}.{name}")
    )


def _environment_sections(a: RecordedRun, b: RecordedRun) -> list[Section]:
    """Return the sections of the environment.

    Differences that cannot change a result by themselves become notes.
    """
    # It loads much, so it is imported on demand.
    from datacheck.repro.captures import differences as of_captures  # noqa: PLC0415

    sections = {name: Section(name) for name in _CAPTURE_PARTS}
    if not (a.environment and b.environment):
        which = " and ".join(name for name, run in (("A", a), ("B", b)) if not run.environment)
        return [Section(name, unknown=f"not captured in {which}") for name in _CAPTURE_PARTS]
    try:
        found = of_captures(a.environment, b.environment)
    except Exception as error:  # noqa: BLE001  a foreign file may hold anything
        return [
            Section(name, unknown=f"{type(error).__name__} in the captures")
            for name in _CAPTURE_PARTS
        ]
    for one in found:
        section = sections[
            "seeds" if one.section == "rng" else "code" if one.section == "git" else one.section
        ]
        if one.section == "git" or (one.section == "packages" and not _loaded(one.name, a, b)):
            section.note = (
                "the repository differs"
                if one.section == "git"
                else "packages differ that were not loaded"
            )
        else:
            section.differences.append(
                RunDifference(one.name, _shallow_value(one.a), _shallow_value(one.b))
            )
    if apart := _start_mismatch(a, b):
        sections["seeds"] = Section("seeds", unknown=apart)
    for section in sections.values():
        section.note = "" if section.differences else section.note
        if not section and not section.unknown:
            _note_unknown(section, a.environment, b.environment)
    return list(sections.values())


def _note_unknown(section: Section, a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Add what neither run knows to a section without differences: unknown is not equal."""
    unknown: list[str] = []
    known = 0
    for part in _CAPTURE_PARTS[section.name]:
        one = a.get(part)
        other = b.get(part)
        if not (isinstance(one, Mapping) and isinstance(other, Mapping)) or "missing" in one:
            unknown.append(f"{part}: {_missing_reason(one)}")
            continue
        for name in sorted({*one} & {*other}):
            value = one[name]
            if part == "rng":
                fine = all(
                    isinstance(side[name], Mapping) and side[name].get("seeded")
                    for side in (one, other)
                )
                unknown += [] if fine else [f"{name}: not seeded"]
            else:
                fine = value != "missing" and not (
                    isinstance(value, Mapping) and "missing" in value
                )
                unknown += [] if fine else [f"{name}: {_missing_reason(value)}"]
            known += fine
    more = f", and {len(unknown) - _MOST_SHOWN:,} more" if len(unknown) > _MOST_SHOWN else ""
    said = "; ".join(unknown[:_MOST_SHOWN]) + more
    if not known:
        section.unknown = said or "nothing of it is in either run"
    elif said and section.name != "seeds":  # unseeded generators are normal
        section.note = "; ".join(filter(None, (section.note, f"not known in either: {said}")))


def _missing_reason(value: Any) -> str:
    why = value.get("missing") if isinstance(value, Mapping) else None
    return why if isinstance(why, str) else "not captured"


def _loaded(name: str, a: RecordedRun, b: RecordedRun) -> bool:
    """Return whether a package was loaded in either run.

    A name without such a fact in both captures counts as loaded.
    """
    said = [run.environment.get("packages", {}).get(name) for run in (a, b)]
    known = [one["loaded"] for one in said if isinstance(one, dict) and "loaded" in one]
    return any(known) or not known


def _config_section(a: RecordedRun, b: RecordedRun, ignore: Sequence[str]) -> Section:
    """Return the section of the configuration, or of the command line if one run has none."""
    apart = bool(_start_mismatch(a, b))
    one = _requested_config(a, apart=apart)
    other = _requested_config(b, apart=apart)
    main = next((name for name in ("config", "command") if name in one and name in other), "")
    unsaid = {"config", "command"} - {main} | (
        {"loader"} if not (a.loaders and b.loaders) else set()
    )
    names = [name for name in {**one, **other} if name not in unsaid]
    mine, theirs = ({name: side[name] for name in names if name in side} for side in (one, other))
    section = Section(
        "config", list(_limit_differences(json_differences(mine, theirs), "config", ignore))
    )
    if not main:
        section.unknown = "no configuration and no command line that both have recorded"
    elif "config" in {*one} ^ {*other} and not section:
        section.note = (
            f"the configuration was not recorded in {'B' if 'config' in one else 'A'}: "
            f"command lines"
        )
    return section


def _requested_config(run: RecordedRun, *, apart: bool) -> dict[str, Any]:
    """Return the requested settings of a run.

    The command line is the last resort: it often contains the name of the run.
    """
    process = run.environment.get("process")
    known = {
        "config": run.config,
        "ranks": run.world,
        "optimizer": _optimizer_settings(run, apart=apart),
        "kind of optimizer": _start_value(run, "kinds"),
        "loader": [
            {name: value for name, value in line.items() if name != "kind"} for line in run.loaders
        ],
        "command": process.get("argv") if isinstance(process, Mapping) else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _start_value(run: RecordedRun, name: str) -> Any:
    """Return a value of the start line of the lowest rank."""
    return run.starts[min(run.starts)].get(name) if run.starts else None


def _optimizer_settings(run: RecordedRun, *, apart: bool) -> Any:
    """Return the initial settings of the optimizers.

    For runs that began at different steps (`apart`), without the settings that a schedule changes.
    """
    groups = _start_value(run, "hyper")
    if not apart or not isinstance(groups, list):
        return groups
    return [
        {name: value for name, value in group.items() if name not in _SCHEDULED}
        if isinstance(group, dict)
        else group
        for group in groups
    ]


def _start_mismatch(a: RecordedRun, b: RecordedRun, rank: int | None = None) -> str:
    """Return a sentence if a rank began at different steps, so that initial states do not compare.

    The rank defaults to the lowest that both runs have.
    """
    rank = min({*a.traces} & {*b.traces}, default=0) if rank is None else rank
    here = began(a, rank)
    there = began(b, rank)
    return f"began at step {here:,} in A and {there:,} in B" if here != there else ""


def _weights_section(a: RecordedRun, b: RecordedRun, ignore: Sequence[str]) -> Section:
    """Return the section of the initial weights, over all ranks that both have."""
    section = Section("initial weights")
    unknown = list[str]()
    ranks = sorted({*a.traces} & {*b.traces})
    several = len(ranks) > 1
    found = (
        one for rank in ranks for one in _rank_differences(a, b, rank, unknown, several=several)
    )
    section.differences = [*_limit_differences(found, section.name, ignore)]
    said = "; ".join([*dict.fromkeys(unknown)][:2])
    if not section and len(unknown) == len(ranks) * len(_INITIAL_PARTS):
        section.unknown = said or "no rank that both have"
    elif not section:
        section.note = said
    return section


def _rank_differences(
    a: RecordedRun, b: RecordedRun, rank: int, unknown: list[str], *, several: bool
) -> Iterator[RunDifference]:
    """Yield the differences of a rank's initial state; append reasons to `unknown`."""
    one = _initial_state(a, rank)
    other = _initial_state(b, rank)
    whose = f" of rank {rank}" if several else ""
    for what in _INITIAL_PARTS:
        if apart := _start_mismatch(a, b, rank):
            unknown.append(apart)
        elif what not in one or what not in other:
            where = (
                ""
                if what not in one and what not in other
                else " in A"
                if what in other
                else " in B"
            )
            unknown.append(f"{what}{whose} not recorded{where}")
        else:
            yield from _digest_differences(one[what], other[what], f"{what}{whose}", unknown)


def _digest_differences(
    one: Any, other: Any, name: str, unknown: list[str]
) -> Iterator[RunDifference]:
    """Yield the differences of digests; append to `unknown` if some are incomparable."""
    unsure = False
    for pair in itertools.islice(json_differences(one, other, name), _MOST_DIFFERENCES):
        if unlike(pair.a, pair.b):
            unsure = True
        else:
            yield pair
    if unsure:
        unknown.append(f"{name} digested on a device in one run and in main memory in the other")


def weights_equal(a: RecordedRun, b: RecordedRun, rank: int) -> bool | None:
    """Return whether a rank began with equal weights and optimiser states; None: unknown."""
    one = _initial_state(a, rank)
    other = _initial_state(b, rank)
    if _start_mismatch(a, b, rank):
        return None
    unknown: list[str] = []
    both = {*one} & {*other}
    if any(
        True for what in both for _ in _digest_differences(one[what], other[what], what, unknown)
    ):
        return False
    return True if "weights" in both and not unknown else None


def _initial_state(run: RecordedRun, rank: int) -> dict[str, Any]:
    start = run.starts.get(rank, {})
    known = {"weights": start.get("weights"), "optimiser state": start.get("optimizer")}
    return {name: value for name, value in known.items() if value}
