"""Processes that read data, ended by others: is a sample ever lost, or a verdict wrong, with exit code 0?

    python scripts/bench/faults/weak.py [--runs 200] [--seed 0] [--only NAME] [--folder DIR]

A small dataset (two of its samples broken) is scanned and built while somebody ends the processes
that read: each is killed (SIGKILL), stopped (SIGSTOP) or left without memory (`prlimit`) with a
chance, soon after it has started. So on one machine, and on a Dask cluster of real workers of which
one is weak and one is not. Then the same is done once more in peace.

A scan is right where its rows are those of a scan in peace, or where it ends with 1 and each other
row says that the file could not be read. A build is right where it publishes what a build in peace
publishes, or nothing, with exit code
3. What is done in peace afterwards must be what it always was: nothing is remembered. Two controls
   must be told: one
that gives a file up at once, and builds without it as it was before, and one that remembers. Ends
with 1 where anything was wrong, or a control was not told.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3]))

from subject import machine

from datacheck import pipeline
from datacheck.cache import open_cache
from datacheck.errors import DatacheckError, StorageError
from datacheck.scan import Request, measuring, run_scan
from datacheck.schema.load import parse_schema
from datacheck.workers import child, parallel
from datacheck.workers.parallel import Limits
from tests.build.cluster import cluster

SCHEMA = parse_schema(
    'datacheck: 1\nname: weak\nsamples: {files: "*.npy"}\n'
    "fields: {x: {role: points, shape: [P, 3], dtype: float32, unit: m}}\n"
)
SAMPLES, BROKEN = 40, {"03.npy", "17.npy"}
HOW = ("kill", "stop", "memory")
OPTIONS: dict[str, Any] = {"limits": Limits(item_s=1.0), "output": None}


def write(folder: Path) -> None:
    """Write samples; a few hold NaN."""
    folder.mkdir()
    for i in range(SAMPLES):
        points = np.random.default_rng(i).uniform(-1, 1, (60, 3)).astype(np.float32)
        if f"{i:02d}.npy" in BROKEN:
            points[5] = np.nan
        np.save(folder / f"{i:02d}.npy", points)


# --------------------------------------------------------------------------------------- the reaper


class Reaper(threading.Thread):
    """Ends processes that read, children of some processes.

    Args:
        parents: of the processes.
        how: one of `HOW`.
        chance: with which a process is ended.
        seed: of the chances.
    """

    def __init__(self, parents: list[int], how: str, chance: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._parents, self._how, self._chance, self._random = (
            parents,
            how,
            chance,
            random.Random(seed),
        )
        self._over, self._met = threading.Event(), set[int]()
        self.ended = 0

    def run(self) -> None:
        while not self._over.wait(0.005):
            for pid in children(self._parents) - self._met:
                self._met.add(pid)
                if self._random.random() < self._chance:
                    self._over.wait(self._random.uniform(0, 0.35))
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        self._end(pid)
                        self.ended += 1

    def _end(self, pid: int) -> None:
        if self._how == "memory":
            resource.prlimit(pid, resource.RLIMIT_DATA, (1 << 20, 1 << 20))
        else:
            os.kill(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[self._how])

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Reaper]:
        """Start, and end after the block."""
        self.start()
        try:
            yield self
        finally:
            self._over.set()
            self.join()


def children(parents: list[int]) -> set[int]:
    """Return the processes of datacheck that some processes have started."""
    found = set()
    for parent in parents:
        with contextlib.suppress(OSError):  # a process may end at any moment
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found |= {int(pid) for pid in task.read_text().split() if is_reader(pid)}
    # Those that a server of theirs has forked
    return found | (children(list(found)) if found else set())


def is_reader(pid: str) -> bool:
    """Tell whether a process is one that reads data."""
    with contextlib.suppress(OSError):
        said = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"datacheck.workers.child" in said or b"datacheck.workers.fork_server" in said
    return False


# ------------------------------------------------------------------------------------- what is done


@dataclass
class Place:
    """Where runs work.

    Args:
        data: the dataset.
        scheduler: of a cluster; None: on this machine.
        rows: reason and verdict of each sample, in peace.
        root: the content of the cache, in peace.
    """

    data: Path
    scheduler: str | None = None
    rows: dict[str, tuple[str, bool]] | None = None
    root: str = ""


def scanned(place: Place) -> tuple[dict[str, tuple[str, bool]], int]:
    """Scan; return the reason and the verdict of each sample, and the exit code."""
    run = run_scan(SCHEMA, Request(place.data, workers=2, scheduler=place.scheduler, **OPTIONS))
    rows = zip(run.table.keys, run.table.reasons, run.valid.tolist(), strict=True)
    return {key: (why, valid) for key, why, valid in rows}, run.report.exit_code


def scan(place: Place) -> str:
    """Scan; return what is wrong with that, or ""."""
    assert place.rows is not None
    rows, code = scanned(place)
    if rows.keys() != place.rows.keys():
        return f"samples {sorted(rows.keys() ^ place.rows.keys())}"
    other = {key: said for key, said in rows.items() if said != place.rows[key]}
    if not other:
        return ""
    told = all(why.startswith("DC101") and not valid for why, valid in other.values())
    return "" if told and code == 1 else f"exit code {code}, and {other}"


def build(place: Place) -> str:
    """Build anew; return what is wrong with that, or ""."""
    out = place.data.parent / "cache"
    shutil.rmtree(out, ignore_errors=True)
    try:
        run = run_scan(SCHEMA, Request(place.data, workers=2, scheduler=place.scheduler, **OPTIONS))
        (built,) = pipeline.build(
            SCHEMA, place.data, out, run=run, workers=2, scheduler=place.scheduler
        )
    except StorageError:
        left = (
            [path for path in out.rglob("manifest.json") if ".building" not in path.parts]
            if out.exists()
            else []
        )
        return f"published {left}" if left else ""
    if open_cache(built.path).manifest.content_root == place.root:
        return ""
    reasons = {why for why in run.table.reasons if why}
    return f"published {built.valid} valid of {built.samples} samples: {sorted(reasons)[:3]}"


def once(place: Place, what: Callable[[Place], str], reaper: Reaper) -> tuple[str, str]:
    """Do something while processes are ended, then in peace; return what came of it, and what is wrong or ""."""
    shutil.rmtree(".datacheck", ignore_errors=True)
    try:
        with reaper.at_work():
            wrong = what(place)
        came = "done"
    except StorageError:
        wrong, came = "", "refused"
    except DatacheckError:  # a library could not be loaded; no sample is lost
        wrong, came = "", "failed"
    rows, _ = scanned(place)
    if rows != place.rows:
        other = {
            key: why
            for key, (why, valid) in rows.items()
            if (why, valid) != (place.rows or {})[key]
        }
        wrong = wrong or f"remembered: {other}"
    return came, wrong


def line(name: str, came: Counter[str], ended: int, wrong: list[str]) -> None:
    """Print what came of some runs."""
    cells = [came.total(), came["done"], came["refused"], came["failed"], ended, len(wrong)]
    print(f"{name:36}" + "".join(f"{cell:>10,}" for cell in cells), flush=True)
    for one in dict.fromkeys(wrong):
        print(f"    {one[:300]}")


def tried(place: Place, name: str, runs: int, parents: Callable[[], list[int]], seed: int) -> int:
    """Try a way to end processes so often, on scans and builds in turn; return how often something was wrong."""
    bad = 0
    for what in (scan, build):
        for how in HOW:
            came, wrong, ended = Counter[str](), list[str](), 0
            for number in range(-(-runs // (2 * len(HOW)))):
                chance = (0.3, 0.6, 0.95)[number % 3]
                reaper = Reaper(parents(), how, chance, seed + number)
                done, fault = once(place, what, reaper)
                came[done] += 1
                wrong += [fault] if fault else []
                ended += reaper.ended
            line(f"{name}: {what.__name__}, {how}", came, ended, wrong)
            bad += len(wrong)
    return bad


def controls(place: Place, seed: int) -> list[str]:
    """Return the broken ways that were not told."""
    believed = []
    hasty = [
        patch.object(parallel, "_KILLED", 1),
        patch.object(pipeline, "check_nothing_missing", lambda *_: None),
    ]

    def remembering(*given: Any) -> Any:
        answer = real(*given)
        item = given[0].item
        return dataclasses.replace(answer, items=[(item["path"], item["split"], [item["path"]])])

    real = vars(measuring)["_answer_for"]
    for name, broken, what in (
        ("one that builds without what it gave up", hasty, build),
        (
            "one that remembers what died",
            [patch.object(measuring, "_answer_for", remembering)],
            scan,
        ),
    ):
        with contextlib.ExitStack() as stack:
            for one in broken:
                stack.enter_context(one)
            told = any(
                once(place, what, Reaper([os.getpid()], "kill", 0.95, seed + n))[1]
                for n in range(20)
            )
        if not told:
            believed.append(name)
    return believed


def main(arguments: list[str] | None = None) -> int:
    """Do all runs; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=200, help="on one machine, and so many on a cluster"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="machine or cluster")
    parser.add_argument("--folder", default=None, help="where to write; removed afterwards")
    asked = parser.parse_args(arguments)
    began, bad, believed = time.perf_counter(), 0, list[str]()
    with (
        tempfile.TemporaryDirectory(dir=asked.folder) as name,
        contextlib.chdir(name),
        patch.object(measuring, "TASK_ITEMS", 4),
        patch.object(child, "STOPPED_S", 0.5),
    ):
        place = Place(Path(name) / "data")
        write(place.data)
        place.rows, _ = scanned(place)
        (built,) = pipeline.build(SCHEMA, place.data, Path(name) / "peace")
        place.root = open_cache(built.path).manifest.content_root
        assert {key for key, (_, valid) in place.rows.items() if not valid} == BROKEN
        print(
            f"{'':36}{'runs':>10}{'done':>10}{'refused':>10}{'failed':>10}{'ended':>10}{'wrong':>10}"
        )
        if asked.only in "machine":
            bad += tried(place, "machine", asked.runs, lambda: [os.getpid()], asked.seed)
            believed = controls(place, asked.seed)
        if asked.only in "cluster":
            with cluster(Path(name), 1) as running:
                weak = running.worker()
                running.wait()
                place.scheduler = running.address
                bad += tried(place, "cluster", asked.runs, lambda: [weak.pid], asked.seed)
    print(
        "controls: "
        + ("; ".join(f"{one} was believed" for one in believed) or "two broken ways were told")
    )
    print(machine(time.perf_counter() - began))
    return int(bool(bad or believed))


if __name__ == "__main__":
    sys.exit(main())
