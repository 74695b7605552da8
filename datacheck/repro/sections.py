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
    pending = [iter([(a, b, name)])]  # no recursion: a file may nest without limit
    while pending:
        pair = next(pending[-1], None)
        if pair is None:
            pending.pop()
            continue
        value_a, value_b, path = pair
        if isinstance(value_a, Mapping) and isinstance(value_b, Mapping):
            pending.append(_entries(value_a, value_b, path))
        elif isinstance(value_a, list) and isinstance(value_b, list):
            pending.append(_items(value_a, value_b, path))
        elif type(value_a) is not type(value_b) or value_a != value_b:
            yield RunDifference(path, _shallow_value(value_a), _shallow_value(value_b))


# Values of both and their path, generated one by one: there may be millions.
_Pairs = Iterator[tuple[Any, Any, str]]


def _entries(mapping_a: Mapping[str, Any], mapping_b: Mapping[str, Any], path: str) -> _Pairs:
    return (
        (mapping_a.get(k, _ABSENT), mapping_b.get(k, _ABSENT), _child_path(path, k))
        for k in sorted({*mapping_a, *mapping_b})
    )


def _items(list_a: list[Any], list_b: list[Any], path: str) -> _Pairs:
    pairs = enumerate(itertools.zip_longest(list_a, list_b, fillvalue=_ABSENT))
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
        contents = [list(item.values()) if isinstance(item, Mapping) else item for item in level]
        level = [x for item in contents if isinstance(item, list) for x in item]
        if not level:
            return None if value is _ABSENT else value
    return f"nested deeper than {_LEVELS} levels"


def _limit_differences(
    differences: Iterable[RunDifference], section: str, ignore: Sequence[str]
) -> Iterator[RunDifference]:
    """Yield the differences that fit into a section, by number and by characters of their paths."""
    room = _MOST_CHARS
    counted = (
        difference for difference in differences if not _ignored(section, difference.name, ignore)
    )
    for difference in itertools.islice(counted, _MOST_DIFFERENCES):
        room -= len(difference.name)
        if room < 0:
            return
        yield difference


def start_sections(a: RecordedRun, b: RecordedRun, ignore: Sequence[str] = ()) -> list[Section]:
    """Return the sections from config to seeds, and the initial weights.

    Args:
        a, b: the runs.
        ignore: names to leave out, with all below them ("config.out").
    """
    captured = _environment_sections(a, b)
    for section in captured:
        section.differences = [
            difference
            for difference in section.differences
            if not _ignored(section.name, difference.name, ignore)
        ]
    return [_config_section(a, b, ignore), *captured, _weights_section(a, b, ignore)]


def _ignored(section: str, name: str, ignore: Sequence[str]) -> bool:
    return any(
        full == ignored_name or full.startswith((f"{ignored_name}.", f"{ignored_name}["))
        for ignored_name in ignore
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
        lacking_runs = " and ".join(
            name for name, run in (("A", a), ("B", b)) if not run.environment
        )
        return [Section(name, unknown=f"not captured in {lacking_runs}") for name in _CAPTURE_PARTS]
    try:
        capture_differences = of_captures(a.environment, b.environment)
    except Exception as error:  # noqa: BLE001  a foreign file may hold anything
        return [
            Section(name, unknown=f"{type(error).__name__} in the captures")
            for name in _CAPTURE_PARTS
        ]
    for difference in capture_differences:
        section = sections[
            "seeds"
            if difference.section == "rng"
            else "code"
            if difference.section == "git"
            else difference.section
        ]
        if difference.section == "git" or (
            difference.section == "packages" and not _loaded(difference.name, a, b)
        ):
            section.note = (
                "the repository differs"
                if difference.section == "git"
                else "packages differ that were not loaded"
            )
        else:
            section.differences.append(
                RunDifference(
                    difference.name, _shallow_value(difference.a), _shallow_value(difference.b)
                )
            )
    if mismatch := _start_mismatch(a, b):
        sections["seeds"] = Section("seeds", unknown=mismatch)
    for section in sections.values():
        section.note = "" if section.differences else section.note
        if not section and not section.unknown:
            _note_unknown(section, a.environment, b.environment)
    return list(sections.values())


def _note_unknown(section: Section, a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Add what neither run knows to a section without differences: unknown is not equal."""
    unknown: list[str] = []
    known_count = 0
    for part in _CAPTURE_PARTS[section.name]:
        section_a = a.get(part)
        section_b = b.get(part)
        if (
            not (isinstance(section_a, Mapping) and isinstance(section_b, Mapping))
            or "missing" in section_a
        ):
            unknown.append(f"{part}: {_missing_reason(section_a)}")
            continue
        for name in sorted({*section_a} & {*section_b}):
            value = section_a[name]
            if part == "rng":
                fine = all(
                    isinstance(side[name], Mapping) and side[name].get("seeded")
                    for side in (section_a, section_b)
                )
                unknown += [] if fine else [f"{name}: not seeded"]
            else:
                fine = value != "missing" and not (
                    isinstance(value, Mapping) and "missing" in value
                )
                unknown += [] if fine else [f"{name}: {_missing_reason(value)}"]
            known_count += fine
    more_text = f", and {len(unknown) - _MOST_SHOWN:,} more" if len(unknown) > _MOST_SHOWN else ""
    summary = "; ".join(unknown[:_MOST_SHOWN]) + more_text
    if not known_count:
        section.unknown = summary or "nothing of it is in either run"
    elif summary and section.name != "seeds":  # unseeded generators are normal
        section.note = "; ".join(filter(None, (section.note, f"not known in either: {summary}")))


def _missing_reason(value: Any) -> str:
    reason = value.get("missing") if isinstance(value, Mapping) else None
    return reason if isinstance(reason, str) else "not captured"


def _loaded(name: str, a: RecordedRun, b: RecordedRun) -> bool:
    """Return whether a package was loaded in either run.

    A name without such a fact in both captures counts as loaded.
    """
    entries = [run.environment.get("packages", {}).get(name) for run in (a, b)]
    loaded_flags = [
        entry["loaded"] for entry in entries if isinstance(entry, dict) and "loaded" in entry
    ]
    return any(loaded_flags) or not loaded_flags


def _config_section(a: RecordedRun, b: RecordedRun, ignore: Sequence[str]) -> Section:
    """Return the section of the configuration, or of the command line if one run has none."""
    starts_differ = bool(_start_mismatch(a, b))
    config_a = _requested_config(a, apart=starts_differ)
    config_b = _requested_config(b, apart=starts_differ)
    main = next(
        (name for name in ("config", "command") if name in config_a and name in config_b), ""
    )
    unsaid = {"config", "command"} - {main} | (
        {"loader"} if not (a.loaders and b.loaders) else set()
    )
    names = [name for name in {**config_a, **config_b} if name not in unsaid]
    compared_a, compared_b = (
        {name: side[name] for name in names if name in side} for side in (config_a, config_b)
    )
    section = Section(
        "config",
        list(_limit_differences(json_differences(compared_a, compared_b), "config", ignore)),
    )
    if not main:
        section.unknown = "no configuration and no command line that both have recorded"
    elif "config" in {*config_a} ^ {*config_b} and not section:
        section.note = (
            f"the configuration was not recorded in {'B' if 'config' in config_a else 'A'}: "
            f"command lines"
        )
    return section


def _requested_config(run: RecordedRun, *, apart: bool) -> dict[str, Any]:
    """Return the requested settings of a run.

    The command line is the last resort: it often contains the name of the run.
    """
    process = run.environment.get("process")
    settings = {
        "config": run.config,
        "ranks": run.world,
        "optimizer": _optimizer_settings(run, apart=apart),
        "kind of optimizer": _start_value(run, "kinds"),
        "loader": [
            {name: value for name, value in line.items() if name != "kind"} for line in run.loaders
        ],
        "command": process.get("argv") if isinstance(process, Mapping) else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


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
    start_a = began(a, rank)
    start_b = began(b, rank)
    return f"began at step {start_a:,} in A and {start_b:,} in B" if start_a != start_b else ""


def _weights_section(a: RecordedRun, b: RecordedRun, ignore: Sequence[str]) -> Section:
    """Return the section of the initial weights, over all ranks that both have."""
    section = Section("initial weights")
    unknown = list[str]()
    ranks = sorted({*a.traces} & {*b.traces})
    several = len(ranks) > 1
    differences = (
        difference
        for rank in ranks
        for difference in _rank_differences(a, b, rank, unknown, several=several)
    )
    section.differences = [*_limit_differences(differences, section.name, ignore)]
    reasons = "; ".join([*dict.fromkeys(unknown)][:2])
    if not section and len(unknown) == len(ranks) * len(_INITIAL_PARTS):
        section.unknown = reasons or "no rank that both have"
    elif not section:
        section.note = reasons
    return section


def _rank_differences(
    a: RecordedRun, b: RecordedRun, rank: int, unknown: list[str], *, several: bool
) -> Iterator[RunDifference]:
    """Yield the differences of a rank's initial state; append reasons to `unknown`."""
    state_a = _initial_state(a, rank)
    state_b = _initial_state(b, rank)
    rank_text = f" of rank {rank}" if several else ""
    for part in _INITIAL_PARTS:
        if mismatch := _start_mismatch(a, b, rank):
            unknown.append(mismatch)
        elif part not in state_a or part not in state_b:
            side_text = (
                ""
                if part not in state_a and part not in state_b
                else " in A"
                if part in state_b
                else " in B"
            )
            unknown.append(f"{part}{rank_text} not recorded{side_text}")
        else:
            yield from _digest_differences(
                state_a[part], state_b[part], f"{part}{rank_text}", unknown
            )


def _digest_differences(
    digests_a: Any, digests_b: Any, name: str, unknown: list[str]
) -> Iterator[RunDifference]:
    """Yield the differences of digests; append to `unknown` if some are incomparable."""
    unsure = False
    for pair in itertools.islice(json_differences(digests_a, digests_b, name), _MOST_DIFFERENCES):
        if unlike(pair.a, pair.b):
            unsure = True
        else:
            yield pair
    if unsure:
        unknown.append(f"{name} digested on a device in one run and in main memory in the other")


def weights_equal(a: RecordedRun, b: RecordedRun, rank: int) -> bool | None:
    """Return whether a rank began with equal weights and optimiser states; None: unknown."""
    state_a = _initial_state(a, rank)
    state_b = _initial_state(b, rank)
    if _start_mismatch(a, b, rank):
        return None
    unknown: list[str] = []
    shared_parts = {*state_a} & {*state_b}
    if any(
        True
        for part in shared_parts
        for _ in _digest_differences(state_a[part], state_b[part], part, unknown)
    ):
        return False
    return True if "weights" in shared_parts and not unknown else None


def _initial_state(run: RecordedRun, rank: int) -> dict[str, Any]:
    state = {
        "weights": run.initial(rank, "weights"),
        "optimiser state": run.initial(rank, "optimizer"),
    }
    return {name: value for name, value in state.items() if value}
