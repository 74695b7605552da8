"""Mutants of every format and every document: is each read, or refused with a message?

    python scripts/bench/faults/fuzz.py [--minutes 10] [--only npy,run] [--seed 0] [--keep]
    [--folder DIR]

The time is shared among all formats (`datacheck.formats.base.formats`), whose mutants come from
tests/corpus, and all documents that datacheck has written or looks for: runs, caches, manifests,
baselines, schemas, lists, LeRobot's and MDS's documents. Mutants know what they are made of: JSON
by its values, NPZ by members, gzip behind its compression, other bytes by numbers and words. Where
Atheris is installed it gets half of the time of a format. Each target runs in a process of its own,
with limits of memory and time, that may die.

A mutant may be read or refused (`FormatError`); a command ends with 0, 1, 2, 3 or 7 and a message.
With --keep one of each failure goes to tests/hostile/seeds, which the tests try again. Ends with 1
where anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from datacheck.formats.base import formats
from tests.hostile.ground import REPOSITORY as ROOT
from tests.hostile.ground import Ground
from tests.hostile.mutating import DOCUMENTS, SEEDS
from tests.hostile.places import documents

GUIDED = "tests.hostile.guided"
ITEM_S = 60.0  # a mutant that takes longer hangs


@dataclass
class Found:
    """What came of one target."""

    counts: Counter = field(default_factory=Counter)
    failed: dict[str, Path] = field(default_factory=dict)  # by reason


def reason_of(text: str) -> str:
    """Return what two failures of the same cause have in common: the error's kind, and where it was raised."""
    lines = text.strip().splitlines() or ["?"]
    places = re.findall(r'File ".*?/((?:datacheck|tests)/[^"]+)", line (\d+)', text)
    return " at ".join(
        [re.sub(r"\d+", "N", lines[0])[:160], *(f"{name}:{line}" for name, line in places[-1:])]
    )


def tried(command: list[str], folder: Path, seconds: float, found: Found, number: int) -> None:
    """Run one process of a target to its end, its death or its time; keep what it was at where it died."""
    env = os.environ | {
        "TMPDIR": str(folder / "scratch"),
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]]),
    }
    (folder / "scratch").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
        )
        until, last, sign = time.monotonic() + seconds + ITEM_S, time.monotonic(), 0.0
        while (
            process.poll() is None and time.monotonic() < until and time.monotonic() - last < ITEM_S
        ):
            time.sleep(0.2)
            with contextlib.suppress(OSError):
                now = (folder / "counts").stat().st_mtime
                last, sign = (time.monotonic(), now) if now != sign else (last, sign)
            last = time.monotonic() if GUIDED in command else last
        hung = process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    with contextlib.suppress(OSError, ValueError):
        found.counts.update(json.loads((folder / "counts").read_bytes()))
    (folder / "counts").unlink(missing_ok=True)
    units = re.search(
        r"number_of_executed_units: (\d+)", (folder / "log").read_text(errors="replace")
    )
    found.counts.update({"guided": int(units[1])} if units else {})
    artifacts = GUIDED in command and any(
        path.is_file() for path in (folder / "failed").glob("*-*")
    )
    if hung or (code != 0 and not artifacts):
        kept = folder / "failed" / f"died-{number}"
        kept.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            shutil.copytree(folder / "current", kept, symlinks=True)
        how = f"still busy after {ITEM_S:g} s" if hung else f"died with {code}"
        kept.with_suffix(".txt").write_text(
            f"{how}\n" + (folder / "log").read_text(errors="replace")[-2000:]
        )
        found.counts["failed"] += 1


def fuzzed(target: str, seconds: float, seed: int, folder: Path, honest: Path | None) -> Found:
    """Try mutants of one target for a time."""
    found, until, number = Found(), time.monotonic() + seconds, 0
    folder.mkdir(parents=True)
    both = (
        honest is None
        and formats()[target].suffixes
        and importlib.util.find_spec("atheris") is not None
    )
    while (left := until - time.monotonic()) > 1:
        guided = both and number % 2 == 1
        part = left / 2 if both and number == 0 else left
        module, more = (
            (GUIDED, [])
            if guided
            else ("tests.hostile.fuzzed", [] if honest is None else [str(honest)])
        )
        command = [
            sys.executable,
            "-m",
            module,
            target,
            str(seed + number),
            f"{part:.1f}",
            str(folder),
            *more,
        ]
        tried(command, folder, part, found, number)
        number += 1
    for path in sorted((folder / "failed").glob("*")) if (folder / "failed").is_dir() else []:
        if path.suffix == ".txt":
            found.failed.setdefault(
                reason_of(path.read_text(errors="replace")), path.with_suffix("")
            )
        elif path.is_file():  # of Atheris
            found.failed.setdefault(f"Atheris: {path.name.split('-')[0]}", path)
            found.counts["failed"] += 1
    return found


def keep(target: str, mutant: Path, honest: Path | None) -> Path | None:
    """Keep a mutant below tests/hostile/seeds; of a document the one file that differs. Return where, if anywhere."""
    if honest is None:
        one = mutant if mutant.is_file() else next(iter(sorted(mutant.iterdir())))
        place, name = (
            SEEDS / target,
            one.name if mutant.is_dir() else f"x{formats()[target].suffixes[0]}",
        )
    else:
        names = [path.relative_to(honest) for path in sorted(honest.rglob("*")) if path.is_file()]
        changed = [
            n
            for n in names
            if (mutant / n).is_file() and not filecmp.cmp(honest / n, mutant / n, shallow=False)
        ]
        if not changed:
            return None
        name = changed[0].as_posix()
        one, place = mutant / name, SEEDS / target
    digest = hashlib.sha256(
        b"".join(p.read_bytes() for p in sorted([one, *one.rglob("*")]) if p.is_file())
    ).hexdigest()
    goal = place / digest[:8] / name
    if not goal.exists():
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(one, goal) if one.is_dir() else shutil.copyfile(one, goal)
    return goal.relative_to(ROOT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--only", default="", help="names of formats and documents, with commas between"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    every = [*formats(), *DOCUMENTS]
    targets = [name for name in asked.only.split(",") if name] or every
    if unknown := sorted(set(targets) - set(every)):
        parser.error(f"no target is called {', '.join(unknown)}; there are {', '.join(every)}")
    wrong = 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        honest = (
            documents(Ground(Path(folder, "honest"))) if set(targets) & set(DOCUMENTS) else None
        )
        for target in targets:
            of = honest if target in DOCUMENTS else None
            found = fuzzed(
                target, asked.minutes * 60 / len(targets), asked.seed, Path(folder, target), of
            )
            said = ", ".join(f"{count:,} {how}" for how, count in found.counts.most_common(6))
            print(f"{target:12} {sum(found.counts.values()):>8,} mutants: {said}", flush=True)
            for reason, mutant in found.failed.items():
                wrong += 1
                print(
                    f"  WRONG {reason}{f' ({keep(target, mutant, of)})' if asked.keep else ''}",
                    flush=True,
                )
            shutil.rmtree(Path(folder, target))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
