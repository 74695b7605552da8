"""Captures the environment of this process as sections of plain JSON, and compares two captures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.repro.code import InstalledPackages, code, free_name, git, installed
from datacheck.repro.hardware import blas, container, gpu, hardware, native
from datacheck.repro.process import interpreter, process, rng, switches

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

    made: dict[str, Callable[[], Section]] = {
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
    said = {name: _run_section(name, make, seconds) for name, make in made.items()}
    said["process"].setdefault("volatile", {})["seconds"] = seconds
    return {name: said[name] for name in SECTIONS}


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
    found = InstalledPackages()
    known = {
        name: said[name]
        for name in ("packages", "native", "code")
        if name in said and not is_missing(said[name])
    }
    if not known:
        return False
    try:
        found = installed()
    except Exception:  # noqa: BLE001  as in `capture`
        return False
    made: dict[str, Callable[[], Section]] = {
        "packages": lambda: found.packages,
        "native": lambda: native(found),
        "code": lambda: dict(code(found)),
    }
    volatile = said.setdefault("process", {}).setdefault("volatile", {})
    later = volatile.setdefault("later", {})
    grew, volatile["ended"] = ended, ended
    for name, section in known.items():
        now = _run_section(name, made[name], seconds)
        for key, value in now.items() if not is_missing(now) else ():
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
    said: Section = {}
    seen: set[Path] = set()
    for place in places:
        path = Path(os.path.realpath(place))
        if path in seen:
            continue
        seen.add(path)
        name = free_name(str(path), said)
        try:
            said[name] = _data_digests(path)
        except Exception as error:  # noqa: BLE001  one of several: the others are still captured
            said[name] = {"missing": str(error).partition("\n")[0]}
    return said


def _data_digests(path: Path) -> dict[str, str]:
    from datacheck.cache.manifest import read_manifest  # noqa: PLC0415  only if data are named
    from datacheck.cache.store import FolderStore  # noqa: PLC0415
    from datacheck.errors import UsageError  # noqa: PLC0415
    from datacheck.repro.manifest import is_manifest, make, read  # noqa: PLC0415

    if path.is_dir():
        try:
            of_cache = read_manifest(FolderStore(path))
        except UsageError:
            pass  # not a cache
        else:
            return {
                "kind": "cache",
                "digest": of_cache.digest,
                "content_root": of_cache.content_root,
            }
    if is_manifest(path):
        return {"kind": "manifest", "digest": read(path).root}
    return {"kind": "folder" if path.is_dir() else "file", "digest": make(path).root}


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
        for name, said in side.get("packages", {}).items()
        if _entry_value(said, "loaded")
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
        else {name: frozenset(map(str, some)) for name, some in side.get("later", {}).items()}
        for side, other in ((in_a, in_b), (in_b, in_a))
    ]

    def comes(one: CaptureDifference) -> bool:
        alone = one.a is None or one.b is None
        return alone and one.name in later[one.b is not None].get(one.section, ())

    return comes


def _entry_value(said: Any, name: str) -> Any:
    return said.get(name) if isinstance(said, dict) else None


def _section_differences(
    a: Mapping[str, Section], b: Mapping[str, Section], name: str, group: str, head: str = ""
) -> list[CaptureDifference]:
    one = a.get(name, {})
    other = b.get(name, {})
    if is_missing(one) or is_missing(other):
        said = [side["missing"] if is_missing(side) else "there" for side in (one, other)]
        return [] if one == other else [CaptureDifference(group, name, *said)]
    keys = sorted({*one, *other} - _NOT_COMPARED.get(name, set()))
    pairs = ((key, _without_loaded(one.get(key)), _without_loaded(other.get(key))) for key in keys)
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
    found = _section_differences(a, b, "data", "data")
    if any(is_missing(side.get("data", {})) for side in (a, b)):
        return found
    found = [
        one
        for one in found
        if _data_identity(one.a) is None or _data_identity(one.a) != _data_identity(one.b)
    ]
    twins: dict[Any, list[CaptureDifference]] = {}
    for one in reversed([one for one in found if one.a is None]):
        twins.setdefault(_data_identity(one.b), []).append(one)
    left = []
    for one in found:
        digest = _data_identity(one.a) if one.b is None else None
        if digest is not None and twins.get(digest):
            twins[digest].pop()
        elif one.a is not None:
            left.append(one)
    there = sorted((one for some in twins.values() for one in some), key=lambda one: one.name)
    alone = [one for one in left if one.b is None]
    if len(alone) == len(there) == 1:
        pair = CaptureDifference(
            "data", f"{alone[0].name} in A, {there[0].name} in B", alone[0].a, there[0].b
        )
        return sorted([pair, *(one for one in left if one.b is not None)], key=lambda one: one.name)
    return sorted([*left, *there], key=lambda one: one.name)


def _data_identity(said: Any) -> Any:
    """Return the digests that identify data; None if there are none."""
    return (
        (said.get("digest"), said.get("content_root"))
        if isinstance(said, dict) and said.get("digest")
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
        one, other = (dict(side.get(section, {}).get(name, {})) for side in (a, b))
        if name == "env":
            _drop_device_indices(one, other)
        yield from _section_differences({name: one}, {name: other}, name, "flags", head)
    for name in ("locale", "timezone", "start_method"):
        x, y = (side.get("process", {}).get(name) for side in (a, b))
        if x != y:
            yield CaptureDifference("flags", name, x, y)


_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def _drop_device_indices(one: Section, other: Section) -> None:
    """Drop the device variables from both sides unless the number of GPUs differs.

    Another index on the same machine changes no result.
    """
    for name in _DEVICE_VARIABLES:
        counts = [_device_count(side.get(name)) for side in (one, other)]
        # Without the variable all GPUs are visible, at least one.
        known = [count for count in counts if count is not None]
        if counts[0] == counts[1] or (len(known) == 1 and known[0]):
            one.pop(name, None)
            other.pop(name, None)


def _device_count(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    names = [name.strip() for name in value.split(",")]
    # CUDA stops at the first invalid name.
    return next((i for i, name in enumerate(names) if name in {"", "-1"}), len(names))


def _rng_differences(
    a: Mapping[str, Section], b: Mapping[str, Section]
) -> Iterator[CaptureDifference]:
    one = a.get("rng", {})
    other = b.get("rng", {})
    for name in sorted({*one, *other} - {"missing"}):
        pair = one.get(name) or {}, other.get(name) or {}
        if all(said.get("seeded") for said in pair) and pair[0]["digest"] != pair[1]["digest"]:
            yield CaptureDifference("rng", name, pair[0]["digest"], pair[1]["digest"])
