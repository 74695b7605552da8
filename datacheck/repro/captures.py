"""Captures the environment of this process as sections of plain JSON, and compares two captures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datacheck.repro.code import InstalledPackages, code, free_name, git, installed
from datacheck.repro.hardware import blas, container, gpu, hardware, native
from datacheck.repro.process import interpreter, process, rng, switches

if TYPE_CHECKING:
    from datacheck.cache import Cache

SECTIONS = (
    "process",
    "interpreter",
    "packages",
    "native",
    "code",
    "git",
    "hardware",
    "blas",
    "gpu",
    "container",
    "torch",
    "rng",
    "data",
)

Section = dict[str, Any]
Capture = dict[str, Section]


@dataclass(frozen=True)
class CaptureDifference:
    """One difference between two captures.

    Args:
        section: code, packages, native, hardware, flags, data, rng or git.
        name: the file, package, library or switch that differs.
        a, b: the value in each capture, None if it has none.
    """

    section: str
    name: str
    a: Any
    b: Any


def capture(*, data: Sequence[str | os.PathLike[str]] = ()) -> Capture:
    """Return the environment of this process as JSON values.

    Args:
        data: caches, manifests and folders of data, to be identified by their digests.

    Returns:
        The sections `SECTIONS`. A section that failed is {"missing": why}. Values that differ in
        each run (process id, time) are in process.volatile only, with the seconds of each section.

    Notes:
        Never raises, changes nothing in the process, does not start CUDA. Compiled libraries and
        the data are read once. A second call in the same process reads only libraries that have
        changed, and in folders of data only files that have changed since their last manifest
        (`datacheck.repro.manifest.make` remembers them).
    """
    seconds: dict[str, float] = {}
    found = InstalledPackages()

    def read_packages() -> Section:
        nonlocal found
        found = installed()
        return found.packages

    section_makers: dict[str, Callable[[], Section]] = {
        "packages": read_packages,
        "native": lambda: native(found),
        "code": lambda: dict(code(found)),
        "git": git,
        "process": process,
        "interpreter": interpreter,
        "hardware": hardware,
        "blas": blas,
        "gpu": gpu,
        "container": container,
        "torch": switches,
        "rng": rng,
        "data": lambda: _data_section(data),
    }
    sections = {name: _run_section(name, make, seconds) for name, make in section_makers.items()}
    sections["process"].setdefault("volatile", {})["seconds"] = seconds
    return {name: sections[name] for name in SECTIONS}


def extend_capture(said: Capture, *, ended: bool = False) -> bool:
    """Add what this process has loaded since a capture: packages, compiled libraries, code.

    Args:
        said: the result of `capture`; changed in place. Existing values stay unchanged.
        ended: whether nothing more will be loaded. Otherwise entries may still be missing, and
            `differences` does not report them.

    Returns:
        Whether anything was added.

    Notes:
        Never raises. Sections that failed or are absent stay so.
    """
    seconds: dict[str, float] = {}
    installed_packages = InstalledPackages()
    known_sections = {
        name: said[name]
        for name in ("packages", "native", "code")
        if name in said and not is_missing(said[name])
    }
    if not known_sections:
        return False
    try:
        installed_packages = installed()
    except Exception:  # noqa: BLE001  as in `capture`
        return False
    section_makers: dict[str, Callable[[], Section]] = {
        "packages": lambda: installed_packages.packages,
        "native": lambda: native(installed_packages),
        "code": lambda: dict(code(installed_packages)),
    }
    volatile = said.setdefault("process", {}).setdefault("volatile", {})
    later = volatile.setdefault("later", {})
    grew, volatile["ended"] = ended, ended
    for name, section in known_sections.items():
        current = _run_section(name, section_makers[name], seconds)
        for key, value in current.items() if not is_missing(current) else ():
            if key not in section or (
                _entry_value(value, "loaded") and not _entry_value(section[key], "loaded")
            ):
                if key not in section:
                    later.setdefault(name, []).append(key)
                section[key] = {**section[key], "loaded": True} if key in section else value
                grew = True
    return grew


def _run_section(name: str, make: Callable[[], Section], seconds: dict[str, float]) -> Section:
    start = time.perf_counter()
    try:
        return make()
    except Exception as error:  # noqa: BLE001  an unknown section must not end a training run
        return {"missing": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    finally:
        seconds[name] = round(time.perf_counter() - start, 3)


def _data_section(places: Sequence[str | os.PathLike[str]]) -> Section:
    section: Section = {}
    seen_paths: set[Path] = set()
    for place in places:
        path = Path(os.path.realpath(place))
        if path in seen_paths:
            continue
        seen_paths.add(path)
        name = free_name(str(path), section)
        try:
            section[name] = _data_digests(path)
        except Exception as error:  # noqa: BLE001  one of several: the others are still captured
            section[name] = {"missing": str(error).partition("\n")[0]}
    return section


def _data_digests(path: Path) -> dict[str, str]:
    from datacheck.repro.manifest import is_manifest, make, read  # noqa: PLC0415  only if data are named

    if path.is_dir() and (cache := _whole_cache(path)) is not None:
        manifest = cache.manifest
        return {"kind": "cache", "digest": manifest.digest, "content_root": manifest.content_root}
    if is_manifest(path):
        return {"kind": "manifest", "digest": read(path).root}
    return {"kind": "folder" if path.is_dir() else "file", "digest": make(path).root}


def _whole_cache(path: Path) -> Cache | None:
    """Return the cache in a folder; None unless it has exactly the files of its manifest.

    Any folder of data may hold a file of that name, which says nothing about the other files.
    """
    from datacheck.cache import open_cache  # noqa: PLC0415  only if data are named
    from datacheck.cache.verify import verify  # noqa: PLC0415
    from datacheck.errors import CorruptionError, UsageError  # noqa: PLC0415

    try:
        cache = open_cache(path, verify="manifest")
        return None if verify(path, depth="quick") else cache
    except (CorruptionError, UsageError):
        return None


# --------------------------------------------------------------------------------------- comparison


def differences(a: Mapping[str, Section], b: Mapping[str, Section]) -> list[CaptureDifference]:
    """Return the differences of two captures, most likely causes of different results first.

    Returns:
        Code, loaded packages, libraries, hardware, flags (interpreter, variables, threads,
        switches), data, random states; then differences that cannot change a result by themselves:
        packages that neither process has loaded, and the commit. Empty if there are none.

    Notes:
        Not compared: the command line and the working folder (they belong to the run's
        configuration), variables that only hold a location, and random states of generators that
        were not seeded. A section that only one capture has counts as one difference, under the
        name of the section. Data under another name in b are matched by their digest.
    """
    may_come = _loads_later(a, b)
    packages = [d for d in _section_differences(a, b, "packages", "packages") if not may_come(d)]
    loaded = {
        name
        for side in (a, b)
        for name, package in side.get("packages", {}).items()
        if _entry_value(package, "loaded")
    }
    return [
        *(d for d in _section_differences(a, b, "code", "code") if not may_come(d)),
        *_section_differences(a, b, "interpreter", "packages", "python "),
        *(d for d in packages if d.name in loaded or d.name == "packages"),
        *(d for d in _section_differences(a, b, "native", "native") if not may_come(d)),
        *(
            d
            for name in ("hardware", "gpu", "container")
            for d in _section_differences(a, b, name, "hardware", f"{name} ")
        ),
        *_section_differences(a, b, "blas", "hardware", "blas "),
        *_flag_differences(a, b),
        *_data_differences(a, b),
        *_rng_differences(a, b),
        *(d for d in packages if d.name not in loaded and d.name != "packages"),
        *_section_differences(a, b, "git", "git"),
    ]


# State at the time of the capture, or compared elsewhere.
_NOT_COMPARED = {"gpu": {"started", "none"}, "blas": {"threads"}}


def _loads_later(
    a: Mapping[str, Section], b: Mapping[str, Section]
) -> Callable[[CaptureDifference], bool]:
    """Return a predicate for differences that only show when each run was captured.

    True for an entry that one run loaded after its start, if the other has no capture from its end.
    """
    in_a, in_b = (side.get("process", {}).get("volatile", {}) for side in (a, b))
    later = [
        {}
        if other.get("ended")
        else {
            name: frozenset(map(str, entry_names))
            for name, entry_names in side.get("later", {}).items()
        }
        for side, other in ((in_a, in_b), (in_b, in_a))
    ]

    def comes(difference: CaptureDifference) -> bool:
        one_sided = difference.a is None or difference.b is None
        return one_sided and difference.name in later[difference.b is not None].get(
            difference.section, ()
        )

    return comes


def _entry_value(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _section_differences(
    a: Mapping[str, Section], b: Mapping[str, Section], name: str, group: str, head: str = ""
) -> list[CaptureDifference]:
    section_a = a.get(name, {})
    section_b = b.get(name, {})
    if is_missing(section_a) or is_missing(section_b):
        side_states = [
            side["missing"] if is_missing(side) else "there" for side in (section_a, section_b)
        ]
        return [] if section_a == section_b else [CaptureDifference(group, name, *side_states)]
    keys = sorted({*section_a, *section_b} - _NOT_COMPARED.get(name, set()))
    pairs = (
        (key, _without_loaded(section_a.get(key)), _without_loaded(section_b.get(key)))
        for key in keys
    )
    return [CaptureDifference(group, f"{head}{key}", x, y) for key, x, y in pairs if x != y]


def is_missing(section: Mapping[str, Any]) -> bool:
    """Return whether a section failed, rather than holding an entry named "missing"."""
    return isinstance(section.get("missing"), str)


def _data_differences(
    a: Mapping[str, Section], b: Mapping[str, Section]
) -> list[CaptureDifference]:
    """Return the data that differ.

    Notes:
        Data with the same digest are equal under any name. If one entry is left on each side, these
        two are compared with each other.
    """
    all_differences = _section_differences(a, b, "data", "data")
    if any(is_missing(side.get("data", {})) for side in (a, b)):
        return all_differences
    all_differences = [
        difference
        for difference in all_differences
        if _data_identity(difference.a) is None
        or _data_identity(difference.a) != _data_identity(difference.b)
    ]
    twins: dict[Any, list[CaptureDifference]] = {}
    for difference in reversed(
        [difference for difference in all_differences if difference.a is None]
    ):
        twins.setdefault(_data_identity(difference.b), []).append(difference)
    remaining = []
    for difference in all_differences:
        digest = _data_identity(difference.a) if difference.b is None else None
        if digest is not None and twins.get(digest):
            twins[digest].pop()
        elif difference.a is not None:
            remaining.append(difference)
    only_b = sorted(
        (difference for group in twins.values() for difference in group),
        key=lambda difference: difference.name,
    )
    only_a = [difference for difference in remaining if difference.b is None]
    if len(only_a) == len(only_b) == 1:
        pair = CaptureDifference(
            "data", f"{only_a[0].name} in A, {only_b[0].name} in B", only_a[0].a, only_b[0].b
        )
        return sorted(
            [pair, *(difference for difference in remaining if difference.b is not None)],
            key=lambda difference: difference.name,
        )
    return sorted([*remaining, *only_b], key=lambda difference: difference.name)


def _data_identity(entry: Any) -> Any:
    """Return the digests that identify data; None if there are none."""
    return (
        (entry.get("digest"), entry.get("content_root"))
        if isinstance(entry, dict) and entry.get("digest")
        else None
    )


def _without_loaded(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "loaded"} if isinstance(value, dict) else value


def _flag_differences(
    a: Mapping[str, Section], b: Mapping[str, Section]
) -> Iterator[CaptureDifference]:
    yield from _section_differences(a, b, "torch", "flags", "torch.")
    for section, name, head in (
        ("blas", "threads", "threads of "),
        ("process", "flags", "sys.flags."),
        ("process", "env", "$"),
    ):
        values_a, values_b = (dict(side.get(section, {}).get(name, {})) for side in (a, b))
        if name == "env":
            _drop_device_indices(values_a, values_b)
        yield from _section_differences({name: values_a}, {name: values_b}, name, "flags", head)
    for name in ("locale", "timezone", "start_method"):
        x, y = (side.get("process", {}).get(name) for side in (a, b))
        if x != y:
            yield CaptureDifference("flags", name, x, y)


_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def _drop_device_indices(env_a: Section, env_b: Section) -> None:
    """Drop the device variables from both sides unless the number of GPUs differs.

    Another index on the same machine changes no result.
    """
    for name in _DEVICE_VARIABLES:
        counts = [_device_count(side.get(name)) for side in (env_a, env_b)]
        # Without the variable all GPUs are visible, at least one.
        known_counts = [count for count in counts if count is not None]
        if counts[0] == counts[1] or (len(known_counts) == 1 and known_counts[0]):
            env_a.pop(name, None)
            env_b.pop(name, None)


def _device_count(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    names = [name.strip() for name in value.split(",")]
    # CUDA stops at the first invalid name.
    return next((i for i, name in enumerate(names) if name in {"", "-1"}), len(names))


def _rng_differences(
    a: Mapping[str, Section], b: Mapping[str, Section]
) -> Iterator[CaptureDifference]:
    rng_a = a.get("rng", {})
    rng_b = b.get("rng", {})
    for name in sorted({*rng_a, *rng_b} - {"missing"}):
        pair = rng_a.get(name) or {}, rng_b.get(name) or {}
        if (
            all(generator.get("seeded") for generator in pair)
            and pair[0]["digest"] != pair[1]["digest"]
        ):
            yield CaptureDifference("rng", name, pair[0]["digest"], pair[1]["digest"])
