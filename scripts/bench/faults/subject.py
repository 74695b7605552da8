"""What the scripts about ended builds build, in process or by the command, and how they judge what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck import pipeline
from datacheck.build import builder, make_shards, plan
from datacheck.build.job import BuildJob
from datacheck.cache import layout
from datacheck.cache.codec import Codec
from datacheck.cache.verify import verify
from datacheck.plugins import resolve
from datacheck.runtime import fsops
from datacheck.runtime.fsops import System
from datacheck.scan import Request, run_scan
from datacheck.workers.parallel import TaskResult

SCHEMA = """datacheck: 1
name: small
samples: {files: '*.npz'}
fields:
  cloud: {role: points, shape: [P, 3], dtype: float32, unit: m}
  number: {role: value, shape: []}
  weight: {role: value, shape: [2], optional: true}
  said: {role: text, optional: true}
"""
PIPELINE = """datacheck: 1
name: small
schema: small_schema.yaml
transforms:
  - cast: {fields: number, to: uint8}
"""
# Quicker than a disk, where nothing hangs on it
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SHARD_BYTES = 1 << 11  # four samples
SETTINGS = f"""
from datacheck.build import plan
from datacheck.cache import layout
layout.SHARD_BYTES = plan.SOURCE_BYTES = {SHARD_BYTES}
"""


def write(place: Path, count: int = 7) -> None:
    """Write a pipeline and its data: one sample has no rows, one cannot be read, one is refused by the transform."""
    rng = np.random.Generator(np.random.Philox(3))
    (place / "data").mkdir(parents=True)
    for i in range(count):
        sample = {
            "cloud": rng.normal(0, 1, (0 if i == 2 else int(rng.integers(1, 60)), 3)).astype(
                np.float32
            ),
            "number": np.float32(300 if i == 1 else i),
        }
        if i % 2:
            sample["weight"] = rng.normal(0, 1, 2)
        if i % 3:
            sample["said"] = np.array(f"Grüße {i} 😀")
        np.savez(place / f"data/{i:03d}.npz", **sample)
    (place / "data/004.npz").write_bytes(b"PK\x03\x04 no archive")
    (place / "small_schema.yaml").write_text(SCHEMA, encoding="utf-8")
    (place / "small.yaml").write_text(PIPELINE, encoding="utf-8")


# --------------------------------------------------------------------------------------- in process


def _here(function: str, tasks: Any, **_: Any) -> Iterator[TaskResult]:
    """Run tasks in this process, so that one `System` sees all that a build changes."""
    for task in tasks:
        yield TaskResult(task, [resolve(function)(task, lambda _: None)])


@contextlib.contextmanager
def settings(system: System | None = None) -> Iterator[None]:
    """Hold shards small, tasks here, and every change of files in the hands of `system`."""
    before = fsops.SYSTEM, make_shards.ordered_map, layout.SHARD_BYTES, plan.SOURCE_BYTES
    layout.SHARD_BYTES = plan.SOURCE_BYTES = SHARD_BYTES
    make_shards.ordered_map, fsops.SYSTEM = _here, system or System()
    try:
        yield
    finally:
        fsops.SYSTEM, make_shards.ordered_map, layout.SHARD_BYTES, plan.SOURCE_BYTES = before


def begun(folder: Path) -> bool:
    """Tell whether a folder is one that a builder was making when it was killed."""
    found = {
        path.relative_to(folder).as_posix().rpartition(".OWNER.")[1] or path.name
        for path in folder.rglob("*")
    }
    return (
        folder.name.startswith(".")
        and found <= {"work", "OWNER", ".OWNER."}
        and not folder.name.endswith(".gone")
    )


class KilledError(BaseException):
    """A build in process is gone: whatever still runs of it changes no file any more."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A build of which the right outcome is known.

    Args:
        job: what it builds.
        golden: every path of the right cache with its bytes, None for a folder; build.json, which
            is no part of what a cache says, is empty.
        key: the name of the right cache.
    """

    job: BuildJob
    golden: dict[str, bytes | None]
    key: str

    def place(self, out: Path) -> Path:
        """Return the folder in which the cache goes."""
        return out / self.job.pipeline / layout.NO_SPLIT

    def build(self, out: Path, system: System | None = None) -> builder.Built:
        """Build in this process."""
        with settings(system):
            return builder.build_cache(self.job, out)

    def shown(self, out: Path) -> str:
        """Return what a folder of caches shows: "nothing", "right", or what is wrong with it."""
        place = self.place(out)
        names = (
            sorted(p.name for p in place.iterdir() if not p.name.startswith("."))
            if place.is_dir()
            else []
        )
        if not names:
            return "nothing"
        return (
            "right"
            if names == [self.key] and contents(place / self.key) == self.golden
            else f"wrong: {names}"
        )

    def left(self, out: Path) -> list[str]:
        """Return what lies beside the cache, and in the folder of unfinished builds.

        Notes:
            A hidden folder that a builder had only begun to make is not told: another may be about
            to, so that it is left to `cache gc`.
        """
        place = self.place(out)
        beside = {p.name for p in place.iterdir()} - {self.key} if place.is_dir() else set()
        if layout.BUILDING in beside:
            inside = {p: begun(p) for p in (place / layout.BUILDING).iterdir()}
            beside |= {
                f"{layout.BUILDING}/{path.name}" for path, only in inside.items() if not only
            }
            beside -= {layout.BUILDING} if inside and all(inside.values()) else set()
        return sorted(beside)


def again(one: Subject, out: Path, kept: Collection[str] = ()) -> str:
    """Run a build plainly where another ended; return what is wrong then, if there is more beside it than `kept`."""
    try:
        one.build(out)
    except Exception as error:  # noqa: BLE001  what is wrong is told
        return f"the re-run raised {type(error).__name__}: {error}"
    shown, left = one.shown(out), [name for name in one.left(out) if name not in kept]
    return (
        ""
        if shown == "right" and not left
        else f"after the re-run the folder shows {shown}, beside it {left}"
    )


def subject(place: Path, compress: str = "none") -> Subject:
    """Scan the data of `write` and build the cache that all others are held against; it is verified in full."""
    chosen = replace(pipeline.load_pipeline(place / "small.yaml"), codec=Codec.parse(compress))
    job = pipeline.job_of(
        chosen,
        run_scan(chosen.schema, Request(place / "data", workers=1, output=place / "run")),
        "",
    )
    with settings():
        built = builder.build_cache(job, place / "golden")
    problems = verify(built.path, "values")
    if problems or (built.samples, built.made) != (7, 5):
        msg = f"the golden cache is wrong: {built} {problems}"
        raise SystemExit(msg)
    return Subject(job, contents(built.path), built.path.name)


def contents(cache: Path) -> dict[str, bytes | None]:
    """Return every path below a folder with its bytes; see `Subject.golden`."""
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(cache):
        base = folder[len(str(cache)) :].lstrip("/")
        found |= {os.path.join(base, name): None for name in folders}  # noqa: PTH118  a hundred thousand times
        for name in files:
            found[os.path.join(base, name)] = Path(folder, name).read_bytes()  # noqa: PTH118
    return build_json_left_out(found)


def build_json_left_out(found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Return contents with an empty build.json where it is whole: it says when and where, which differs."""
    said = found.get(layout.BUILD)
    with contextlib.suppress(ValueError):
        if said and {"built", "host", "not_made"} <= json.loads(said).keys():
            return found | {layout.BUILD: b""}
    return {**found, layout.BUILD: b"not whole"}


# ------------------------------------------------------------------------------------------ reports


def by_file(folder: Path, target: Path, manifest: object) -> str:
    """Publish file by file: a control, in the place of `publish.publish`."""
    for place, _, names in os.walk(folder):
        to = target / Path(place).relative_to(folder)
        fsops.make_directory(to)
        for name in names:
            fsops.SYSTEM.rename(Path(place, name), to / name)
    return "new"


def machine(seconds: float) -> str:
    """Return the line that says where a table was made."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{seconds:.0f} s"
    )


def command(place: Path, out: Path, *options: str) -> list[str]:
    """Return the real command that builds `place` with small shards."""
    code = f"import sys{SETTINGS}from datacheck.cli.main import main\nsys.exit(main())"
    said = [
        "cache",
        "build",
        str(place / "small.yaml"),
        "--data",
        str(place / "data"),
        "--out",
        str(out),
    ]
    return [sys.executable, "-c", code, *said, *options]
