"""How fast a manifest is made, against `xxhsum -H2` over the same files, and how fast it is made again.

    python scripts/bench/manifest.py [--files 100000] [--gigabytes 50] [--rounds 5] [--folder DIR]
    [--cold]
        [--written] [--need 0.8] [--again 50]

Two datasets: many small files (200 to 7,000 random bytes), and files of 5 GB that are sparse, so
that they take no space: both programs read every byte of them, as fast as memory is cleared. With
`--written` they are random bytes on the disk; more than the memory holds, they are read from there
each time. Each way is a process of its own, as a user would start it:
`datacheck manifest DATA -o FILE` without a memory, the same once more, and
`find | xargs xxhsum -H2`. All figures come from one run, rounds interleaved; medians. Files are in
the page cache as far as it holds them; with `--cold` the system is asked to drop the bytes of the
files before each reading of all. Ends with 1 where the first manifest stays below `--need` of
xxhsum, or the second is less than `--again` times faster than the first.

The floor of a second manifest is one call of stat per file: `find -printf` with size, times and
inode is timed as well; so is a second manifest within one process, without the start of Python, its
imports and the file that is written.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PART = 5_000_000_000
COMMAND = [sys.executable, "-c", "from datacheck.cli.main import main; main()", "manifest"]
XXHSUM = "find . -type f -print0 | xargs -0 xxhsum -H2 > ../sums 2> ../told"
STAT = "find . -type f -printf '%s %T@ %C@ %i %p\\n' > ../stats"


def write_small(folder: Path, files: int) -> None:
    """Write files of random bytes, a thousand in a folder."""
    rng = random.Random(0)
    for i in range(files):
        place = folder / f"{i // 1000:04d}/{i:07d}.npy"
        if i % 1000 == 0:
            place.parent.mkdir(parents=True)
        place.write_bytes(rng.randbytes(rng.randint(200, 7000)))


def write_large(folder: Path, nbytes: int) -> None:
    """Make sparse files that differ in their last bytes."""
    folder.mkdir()
    number = 0
    while nbytes > 0:
        with (folder / f"{number:03d}.bin").open("wb") as file:
            file.truncate(min(PART, nbytes))
            file.seek(-8, os.SEEK_END)
            file.write(number.to_bytes(8, "little"))
        nbytes -= PART
        number += 1


def write_real(folder: Path, nbytes: int) -> None:
    """Write files of random bytes that differ from block to block."""
    folder.mkdir()
    block, number = bytearray(random.Random(0).randbytes(1 << 26)), 0
    for start in range(0, nbytes, PART):
        with (folder / f"{start // PART:03d}.bin").open("wb") as file:
            left = min(PART, nbytes - start)
            while left > 0:
                block[:8] = number.to_bytes(8, "little")
                left -= file.write(memoryview(block)[:left])
                number += 1
    os.sync()


def forget(folder: Path) -> None:
    """Ask the system to drop what it holds of the files."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def shell(line: str) -> Callable[[Path], None]:
    """Return what runs a line of the shell in the data folder."""
    return lambda data: subprocess.run(["sh", "-c", line], cwd=data, check=True) and None


def manifest(data: Path) -> None:
    """Write the manifest of a folder, from the folder above it."""
    subprocess.run(
        [*COMMAND, data.name, "-o", f"{data.name}.json"],
        cwd=data.parent,
        check=True,
        capture_output=True,
    )


def first(data: Path) -> None:
    """Write it without a memory."""
    shutil.rmtree(data.parent / ".datacheck", ignore_errors=True)
    manifest(data)


def within(data: Path) -> float:
    """Return the seconds of a manifest that is made again within one process."""
    line = (
        "make(sys.argv[1]); begun = perf_counter(); make(sys.argv[1]); print(perf_counter() - "
        "begun)"
    )
    script = (
        f"import sys; from time import perf_counter; from datacheck.repro.manifest import "
        f"make; {line}"
    )
    command = [sys.executable, "-c", script, data.name]
    return float(
        subprocess.run(command, cwd=data.parent, check=True, capture_output=True, text=True).stdout
    )


def same(data: Path) -> bool:
    """Tell whether the manifest says what xxhsum says."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from datacheck.repro.manifest import read

    said = (line.split("  ./", 1) for line in (data.parent / "sums").read_text().splitlines())
    return {path: digest for digest, path in said} == read(
        data.parent / f"{data.name}.json"
    ).files.by_path()


def measured(data: Path, rounds: int, *, cold: bool) -> dict[str, float]:
    """Return the median seconds of each way."""
    ways = {
        "xxhsum -H2": shell(XXHSUM),
        "first manifest": first,
        "second manifest": manifest,
        "stat": shell(STAT),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):  # the first one warms up
        for name, way in ways.items():
            if cold and name in {"xxhsum -H2", "first manifest"}:
                forget(data)
            start = time.perf_counter()
            way(data)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    seconds["within a process"] = [within(data) for _ in range(rounds)]
    for name, found in seconds.items():
        print(
            f"    {name:18}{statistics.median(found):9.3f} s   ({min(found):.3f} .. "
            f"{max(found):.3f})"
        )
    return {name: statistics.median(found) for name, found in seconds.items()}


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--gigabytes", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", default=None, help="where to write the data; removed afterwards"
    )
    parser.add_argument(
        "--cold", action="store_true", help="ask the system to drop the files before each reading"
    )
    parser.add_argument(
        "--written", action="store_true", help="large files of random bytes on the disk, not sparse"
    )
    parser.add_argument(
        "--need", type=float, default=0.8, help="share of xxhsum that the first manifest must reach"
    )
    parser.add_argument(
        "--again", type=float, default=50.0, help="how many times faster the second one must be"
    )
    asked = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(
        f"{machine}, load {os.getloadavg()[0]:.1f}, {asked.rounds} rounds, "
        f"{'cold' if asked.cold else 'in memory'}"
    )
    good = True
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        large = write_real if asked.written else write_large
        sets = {"small": (write_small, asked.files), "large": (large, int(asked.gigabytes * 1e9))}
        for kind, (write, amount) in sets.items():
            data = Path(name, kind)
            write(data, amount)
            time.sleep(2.5)  # what was just written is not remembered
            of = f"{'written' if asked.written else 'sparse'} files of {PART / 1e9:g} GB"
            print(f"{amount:,} small files" if kind == "small" else f"{amount / 1e9:g} GB in {of}")
            took = measured(data, asked.rounds, cold=asked.cold)
            share = took["xxhsum -H2"] / took["first manifest"]
            again = took["first manifest"] / took["second manifest"]
            equal = same(data)
            print(f"    first manifest at {share:.2f} of xxhsum, needed {asked.need:.2f}")
            here = took["first manifest"] / took["within a process"]
            print(f"    second manifest {again:.1f} times faster, needed {asked.again:g}")
            print(f"    second manifest {here:.1f} times faster within a process")
            print(f"    digests {'are' if equal else 'ARE NOT'} those of xxhsum")
            good &= equal and share >= asked.need and again >= asked.again
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
