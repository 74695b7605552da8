"""Random bit flips and other damage of files: is each found, and is it named with file, field, shard and samples?

    python scripts/bench/faults/flips.py [--flips 10000] [--reads 20] [--seed 0] [--compress zstd]
    [--folder DIR]

A real build of clouds, images, texts and scalars is damaged, one bit at a time: half of the flips
fall on any byte, half on any file and a byte of it. What must be named is reckoned here, with json
and numpy alone, from the intact cache. After every `--reads`-th flip the whole cache is also read
through `open_cache`: an error or the right values, never others. Then each file is emptied, cut,
made longer, removed, swapped with another, linked (both ways), replaced by a folder and by a pipe,
and copied to another name. Two controls must be caught: a check that reads no bytes, and one that
names the next shard. Ends with 1 where anything was missed. `build.json` is outside of every
digest: a flip in it must raise nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from oracle import Named, Oracle, make

from datacheck.cache import open_cache
from datacheck.cache.problem import Problem
from datacheck.cache.verify import verify
from datacheck.errors import DatacheckError

Check = Callable[[Path], list[Problem]]


@dataclass
class Tally:
    """What came of trials of one kind."""

    tried: int = 0
    found: int = 0
    named: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, *, found: bool, named: bool, said: object) -> None:
        """Count a trial."""
        self.tried, self.found, self.named = (
            self.tried + 1,
            self.found + found,
            self.named + (found and named),
        )
        if not (found and named):
            self.wrong.append(f"{what}: {'other than expected' if found else 'not found'}: {said}")


def of(problem: Problem) -> Named:
    """Return what a problem names."""
    return problem.field, problem.shard, problem.first, problem.stop


@contextmanager
def flipped(path: Path, at: int, bit: int) -> Iterator[None]:
    """Hold one bit of a file flipped, in place."""
    with path.open("r+b", buffering=0) as file:
        whole = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([whole[0] ^ (1 << bit)]), at)
        try:
            yield
        finally:
            os.pwrite(file.fileno(), whole, at)


def flips(
    oracle: Oracle, count: int, rng: random.Random, check: Check, reads: int = 0
) -> dict[str, Tally]:
    """Flip `count` bits, one at a time."""
    files, tallies = sorted(oracle.files), {"bit flips": Tally(), "reads after a flip": Tally()}
    golden = contents(oracle.cache)
    for i in range(count):
        by_byte = rng.choices(files, [oracle.files[f] for f in files])[0]
        file = by_byte if i % 2 else rng.choice(files)
        at, bit = rng.randrange(oracle.files[file]), rng.randrange(8)
        with flipped(oracle.cache / file, at, bit):
            problems = check(oracle.cache)
            if reads and i % reads == 0:
                read = contents(oracle.cache)
                tallies["reads after a flip"].note(
                    f"{file} {at}", found=True, named=read in ({}, golden), said="read"
                )
        named = [of(p) for p in problems if p.file == file and p.samples]
        good = named == [oracle.byte(file, at)] and len(problems) == 1
        tallies["bit flips"].note(
            f"{file}, byte {at}, bit {bit}", found=bool(problems), named=good, said=named
        )
    return tallies


def contents(cache: Path) -> dict[str, bytes]:
    """Return everything that the cache serves; {} where it refuses."""
    try:
        opened = open_cache(cache)
        whole = np.arange(len(opened))
        read = {"keys": "\n".join(opened.keys(whole)).encode(), "usable": opened.usable.tobytes()}
        for name, spec in opened.fields.items():
            ragged = (
                opened.gather_ragged(name, whole) if spec.dim else (opened.gather(name, whole),)
            )
            present = opened.present(name, whole)
            read[name] = b"|".join(
                a.tobytes() for a in (*ragged, *([] if present is None else [present]))
            )
    except DatacheckError:
        return {}
    return read


# -------------------------------------------------------------------------------------- whole files


def emptied(path: Path, other: Path, away: Path) -> None:
    """Leave a file of no bytes."""
    os.truncate(path, 0)


def shortened(path: Path, other: Path, away: Path) -> None:
    """Cut the file at its half."""
    os.truncate(path, path.stat().st_size // 2)


def lengthened(path: Path, other: Path, away: Path) -> None:
    """Append a byte."""
    with path.open("ab") as file:
        file.write(b"x")


def missing(path: Path, other: Path, away: Path) -> None:
    """Leave nothing."""
    path.unlink()


def swapped(path: Path, other: Path, away: Path) -> None:
    """Exchange two files."""
    path.rename(away)
    other.rename(path)
    away.rename(other)


def linked(path: Path, other: Path, away: Path) -> None:
    """Put a symbolic link to the right bytes in the file's place."""
    path.rename(away)
    path.symlink_to(away)


def hard_linked(path: Path, other: Path, away: Path) -> None:
    """Put a hard link to another file in the file's place."""
    path.unlink()
    path.hardlink_to(other)


def made_folder(path: Path, other: Path, away: Path) -> None:
    """Put a folder in the file's place."""
    path.unlink()
    path.mkdir()


def made_pipe(path: Path, other: Path, away: Path) -> None:
    """Put a pipe in the file's place: who opens it waits for ever."""
    path.unlink()
    os.mkfifo(path)


KINDS = (
    emptied,
    shortened,
    lengthened,
    missing,
    swapped,
    linked,
    hard_linked,
    made_folder,
    made_pipe,
)


@contextmanager
def damaged(
    kind: Callable[[Path, Path, Path], None], path: Path, other: Path, away: Path
) -> Iterator[None]:
    """Hold a file damaged."""
    held = {file: file.read_bytes() for file in (path, other)}
    kind(path, other, away)
    try:
        yield
    finally:
        for file, raw in held.items():
            if file.is_dir():
                file.rmdir()
            file.unlink(missing_ok=True)
            file.write_bytes(raw)
        away.unlink(missing_ok=True)


def whole_files(
    oracle: Oracle, rng: random.Random, check: Check, away: Path, share: float = 1.0
) -> dict[str, Tally]:
    """Damage a share of the files in every way, one at a time, and put an extra file beside each."""
    tallies = {name: Tally() for name in (*(kind.__name__ for kind in KINDS), "extra")}
    for file in sorted(oracle.files):
        if rng.random() >= share:
            continue
        path, other = oracle.cache / file, oracle.cache / partner(oracle, file, rng)
        for kind in KINDS:
            gone = (kind, file) == (missing, "manifest.json")
            with damaged(kind, path, other, away):
                try:
                    problems = check(oracle.cache)
                except DatacheckError as error:  # without a manifest it is no cache
                    problems = [Problem(file, str(error), samples="all")] if gone else []
            good = any(fits(oracle, p, file) for p in problems)
            if kind is swapped and file != "manifest.json":
                good &= any(
                    fits(oracle, p, other.relative_to(oracle.cache).as_posix()) for p in problems
                )
            tallies[kind.__name__].note(
                f"{file} {kind.__name__}", found=bool(problems), named=good, said=problems
            )
        extra = path.with_name(path.name + ".bak")
        shutil.copyfile(path, extra)
        problems = check(oracle.cache)
        extra.unlink()
        good = [p.file for p in problems] == [f"{file}.bak"]
        tallies["extra"].note(f"{file}.bak", found=bool(problems), named=good, said=problems)
    return tallies


def partner(oracle: Oracle, file: str, rng: random.Random) -> str:
    """Return another file to swap with, with other bytes: of its size where there is one, a shard for a shard."""
    raw, is_shard = (oracle.cache / file).read_bytes(), oracle.shard(file) is not None
    others = [
        o for o in sorted(oracle.files) if (oracle.shard(o) is not None) == is_shard and o != file
    ]
    others = [o for o in others if o != "manifest.json" and (oracle.cache / o).read_bytes() != raw]
    return rng.choice([o for o in others if oracle.files[o] == len(raw)] or others)


def fits(oracle: Oracle, problem: Problem, file: str) -> bool:
    """Tell whether a problem names a file, its field and shard, and no sample outside of its shard.

    Notes:
        Where the other of two damaged files says which fields share a row table, or how many
        samples there are, what
        it says is not believed: then fewer fields and "all samples" are right, too.
    """
    name, shard, low, high = oracle.whole(file)
    fields = set(problem.field.split(", ")) - {""}
    right = fields == set(name.split(", ")) - {""} or (
        file.startswith("rows/") and fields <= set(name.split(", "))
    )
    inside = low <= problem.first <= problem.stop <= high
    return (
        problem.file == file
        and right
        and (shard is None or problem.shard == shard)
        and inside
        and bool(problem.samples)
    )


# ----------------------------------------------------------------------------------------- controls


def sees_no_bytes(cache: Path) -> list[Problem]:
    """Check names and sizes only."""
    return verify(cache, "quick")


def names_the_next(cache: Path) -> list[Problem]:
    """Check everything and name the shard behind."""
    return [replace(p, shard=None if p.shard is None else p.shard + 1) for p in verify(cache)]


def controls(oracle: Oracle, seed: int) -> list[str]:
    """Return what the trials say of two broken checks; each must be told, else the trials prove nothing."""
    silent = flips(oracle, 40, random.Random(seed), sees_no_bytes)["bit flips"]
    beside = flips(oracle, 40, random.Random(seed), names_the_next)["bit flips"]
    with flipped(oracle.cache / "build.json", 3, 0):
        free = verify(oracle.cache)
    return [
        *(["a check that reads no bytes was believed"] if silent.found > silent.tried // 4 else []),
        *(
            ["a check that names the next shard was believed"]
            if beside.named == beside.tried
            else []
        ),
        *([f"a flip in build.json raised {free}"] if free else []),
    ]


def report(tallies: dict[str, Tally], faults: list[str], seconds: float) -> None:
    """Print the table."""
    print(f"{'':26}{'tried':>8}{'found':>8}{'named':>8}")
    for what, tally in tallies.items():
        print(f"{what:26}{tally.tried:8,}{tally.found:8,}{tally.named:8,}")
        for line in tally.wrong[:5]:
            print(f"    {line}")
    print(
        "controls: "
        + ("; ".join(faults) or "a check without bytes and one that names the next shard were told")
    )
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{seconds:.0f} s"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run all trials; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument(
        "--reads", type=int, default=20, help="read the whole cache after every so many flips"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the files that are damaged as a whole"
    )
    parser.add_argument("--compress", default="none", help="none, zstd or zstd:LEVEL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None, help="where to write; removed afterwards")
    asked = parser.parse_args(arguments)
    start, rng = time.perf_counter(), random.Random(asked.seed)
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        oracle = Oracle(make(Path(name), asked.compress))
        if problems := verify(oracle.cache):
            print("the intact cache has problems:", *problems, sep="\n    ")
            return 1
        shards, size = -(-oracle.samples // oracle.k), sum(oracle.files.values())
        print(f"{oracle.samples} samples in {shards} shards, {len(oracle.files)} files, {size:,} B")
        tallies = flips(oracle, asked.flips, rng, verify, asked.reads)
        tallies |= whole_files(oracle, rng, verify, Path(name, "away"), asked.share)
        faults = controls(oracle, asked.seed)
        left = verify(oracle.cache)
    report(tallies, [*faults, *map(str, left)], time.perf_counter() - start)
    return 1 if faults or left or any(tally.wrong for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
