"""What a build takes beyond bytes: a million tiny samples, and the memory that large scenes and files need.

    python scripts/bench/overhead.py [KIND ...] [--share 1] [--rounds 3] [--folder DIR]

tiny     1,000,000 samples of 252 B ([21, 3] float32), the rows of four .npy files
scenes   64 clouds of 300,000 points of 12 float32 columns, ragged: 14.4 MB each
hdf5     two robot files of 2 GB each: 40 episodes of 1,300 steps with two cameras of 80 x 80

A build is a fresh command that finds its scan; what a build of two samples takes (starting Python
twice, imports) is taken off where samples are counted. Speeds are per second of processor time,
that of all processes together: what one core does. Medians over the rounds; memory is the most that
one process held. Ends with 1 where a limit is missed: 50,000 tiny samples a second, 1 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from processes import Cost, datacheck

NEEDED, MOST = 50_000, 1e9  # samples a second; bytes
_SCHEMA = "datacheck: 1\nname: {name}\nsamples: {{files: '{files}'{each}}}\nfields:\n{fields}"


def tiny(folder: Path, share: float) -> str:
    """Write rows of arrays."""
    rng = np.random.Generator(np.random.Philox(0))
    for i in range(4):
        np.save(folder / f"{i}.npy", rng.random((max(2, int(250_000 * share)), 21, 3), np.float32))
    fields = "  value: {shape: [21, 3], dtype: float32}\n"
    return _SCHEMA.format(name="tiny", files="*.npy", each=", each: row", fields=fields)


def scenes(folder: Path, share: float) -> str:
    """Write large clouds."""
    rng = np.random.Generator(np.random.Philox(0))
    for i in range(max(2, int(64 * share))):
        np.save(folder / f"{i:04d}.npy", rng.random((300_000, 12), np.float32))
    return _SCHEMA.format(
        name="scenes", files="*.npy", each="", fields="  value: {shape: [P, 12], dtype: float32}\n"
    )


def hdf5(folder: Path, share: float) -> str:
    """Write files of robot episodes."""
    rng = np.random.Generator(np.random.Philox(0))
    for i in range(2):
        with h5py.File(folder / f"{i}.hdf5", "w") as file:
            for demo in range(max(2, int(40 * share))):
                steps = 1300
                group = file.create_group(f"data/demo_{demo}")
                group["actions"] = rng.random((steps, 7), np.float32)
                for camera in ("front", "wrist"):
                    group[f"obs/{camera}"] = rng.integers(0, 255, (steps, 80, 80, 3), np.uint8)
    fields = "  actions: {shape: [T, 7]}\n" + "".join(
        f"  {camera}: {{shape: [T, 80, 80, 3], dtype: uint8, at: obs/{camera}}}\n"
        for camera in ("front", "wrist")
    )
    return _SCHEMA.format(
        name="demos", files="*.hdf5", each=", each: '/data/demo_*'", fields=fields
    )


KINDS: dict[str, Callable[[Path, float], str]] = {"tiny": tiny, "scenes": scenes, "hdf5": hdf5}


def built(here: Path, workers: int) -> Cost:
    """Scan, then build anew."""
    arguments = ["cache", "build", "schema.yaml", "--data", "data", "--workers", str(workers)]
    code, answer, cost = datacheck(arguments, here)
    if code:
        raise SystemExit(answer)
    return cost


def measure(kind: str, here: Path, share: float, rounds: int) -> bool:
    """Print what builds took; return whether they stayed in their limits."""
    small = here / "small"
    for place, part in ((here, share), (small, 1e-9)):
        (place / "data").mkdir(parents=True)
        (place / "schema.yaml").write_text(KINDS[kind](place / "data", part))
        code, answer, _ = datacheck(["scan", "data", "--schema", "schema.yaml"], place)
        if code:
            raise SystemExit(answer)
    size = sum(path.stat().st_size for path in (here / "data").iterdir())
    runs, least = [], []
    for _ in range(rounds):
        for place, costs in ((here, runs), (small, least)):
            costs.append(built(place, 1))
            shutil.rmtree(place / "cache")
    cpu = statistics.median(cost.cpu for cost in runs) - statistics.median(
        cost.cpu for cost in least
    )
    wall = statistics.median(cost.wall for cost in runs)
    worker, coordinator = (
        max(getattr(cost, who) for cost in runs) for who in ("worker", "coordinator")
    )
    print(
        f"{kind}: {size / 1e6:,.0f} MB; {wall:.2f} s by the clock, {cpu:.2f} s of processors "
        f"beyond the start"
    )
    print(
        f"  peak {worker / 1e6:,.0f} MB of a worker, {coordinator / 1e6:,.0f} MB of the coordinator"
    )
    speed = 4 * max(2, int(250_000 * share)) / cpu
    if kind == "tiny":
        print(f"  {speed:,.0f} samples a second and core; needed {NEEDED:,}")
    return worker < MOST and (kind != "tiny" or speed >= NEEDED)


def main() -> int:
    """Print the table; return the exit status."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation holds its modules compiled
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", choices=[*KINDS, []], help="default: all"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the samples of each kind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", default=None, help="where to write the data; removed afterwards"
    )
    asked = parser.parse_args()
    machine = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}"
    print(f"{machine}, Python {platform.python_version()}, {asked.rounds} rounds")
    good = []
    for kind in asked.kinds or KINDS:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            good.append(measure(kind, Path(name), asked.share, asked.rounds))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
