"""Second scans of unchanged data, and rescores, against the limit of 0.5 s + 10 us per file + 2 us per sample.

    python scripts/bench/again.py [KIND ...] [--share 1] [--rounds 5] [--folder DIR]

Kinds: pickles (83,325 HO3D frames), lines (1,000,000 JSON lines in one file), scenes (1,201 small
ScanNet scenes). A run is a fresh command: interpreter, imports, listing, judging and writing are
all in it. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from processes import Cost, datacheck

from datacheck.testing import ho3d


def pickles(folder: Path, share: float) -> None:
    """Write frames without their per-vertex fields: what a second scan costs does not depend on bytes."""
    frames = max(1, int(1225 * share))
    ho3d.write(
        folder,
        0,
        ho3d.Ho3dSize(train=55, evaluation=13, frames=(frames, frames + 1), vertices=False),
    )


def lines(folder: Path, share: float) -> None:
    """Write one file of short texts."""
    with (folder / "pretrain.jsonl").open("w") as file:
        file.writelines(
            json.dumps({"text": f"text number {i} of many"}) + "\n"
            for i in range(int(1_000_000 * share))
        )


def scenes(folder: Path, share: float) -> None:
    """Write clouds in the rows of Mask3D: 12 columns, few points."""
    rng = np.random.default_rng(0)
    (folder / "train").mkdir()
    for i in range(max(1, int(1201 * share))):
        np.save(
            folder / f"train/{i // 10:04d}_{i % 10:02d}.npy",
            rng.uniform(0, 5, (200, 12)).astype(np.float32),
        )


KINDS: dict[str, tuple[str, Callable[[Path, float], None]]] = {
    "pickles": ("ho3d", pickles),
    "lines": ("minimind_pretrain", lines),
    "scenes": ("scannet", scenes),
}


def run(here: Path, *arguments: str) -> Cost:
    """Run the command line; stop where it fails."""
    code, answer, cost = datacheck([*arguments, "--format", "json"], here)
    if code not in {0, 1}:
        raise SystemExit(answer)
    return cost


def measure(kind: str, here: Path, share: float, rounds: int) -> None:
    """Print what a first scan, second scans and rescores took."""
    schema, write = KINDS[kind]
    (here / "data").mkdir()
    write(here / "data", share)
    time.sleep(2.5)  # what was written just now is read again
    first = run(here, "scan", "data", "--schema", schema)
    again = [run(here, "scan", "data", "--schema", schema) for _ in range(rounds)]
    said = json.loads((here / "said").read_bytes())
    rescored = [run(here, "rescore", ".datacheck/latest") for _ in range(rounds)]
    files, samples = said["run"]["kept_files"], said["dataset"]["samples"]["listed"]
    limit = 0.5 + 1e-5 * files + 2e-6 * samples
    print(
        f"{kind}: {files:,} files, {samples:,} samples; first scan {first.wall:.1f} s, "
        f"{first.coordinator >> 20} MiB"
    )
    for what, runs in (("second scan", again), ("rescore", rescored)):
        wall, cpu = (
            statistics.median(getattr(cost, what) for cost in runs) for what in ("wall", "cpu")
        )
        most = max(cost.coordinator for cost in runs) >> 20
        print(
            f"  {what:12} {wall:6.2f} s, {cpu:.2f} s of processors, {most} MiB; limit {limit:.2f} s"
        )


def main() -> int:
    """Print the table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation holds its modules compiled
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", choices=[*KINDS, []], help="default: all"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the samples of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", default=None, help="where to write the data; removed afterwards"
    )
    asked = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{asked.rounds} rounds"
    )
    for kind in asked.kinds or KINDS:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            measure(kind, Path(name), asked.share, asked.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
