"""How fast a scan is, per core, against reading the same bytes and against the loop that people write first.

    python scripts/bench/scan_files.py [clouds] [pickles] [demos] [--scale 1.0] [--rounds 3] [--folder DIR]

clouds   120 scenes of ScanNet's size distribution, float32 [N, 12] .npy, schema scannet (voxels of 0.02 m, labels)
pickles  83,325 annotations as HO-3D stores them, schema ho3d
demos    500 LIBERO episodes with two cameras, schema libero; the images take no room on the disk and are not read

`read` opens every file and reads it whole into one buffer (of demos: the arrays that are no images, with h5py).
`naive` is the loop of a validate_dataset(): load each sample, look whether it has what training needs. `scan` is
datacheck's default level with one worker, every rule. Each runs in a process of its own, rounds interleaved; medians.
Seconds are those of the processor, of the coordinating process and its child together, so a figure is per core; what a
scan of one file takes (starting Python twice, imports) is shown and taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from datacheck.scan import Request, run_scan
from datacheck.schema.load import load_schema
from datacheck.testing.synth import ho3d, libero, scannet

SCHEMAS = {"clouds": "scannet", "pickles": "ho3d", "demos": "libero"}
PATTERNS = {"clouds": "train/*.npy", "pickles": "train/*/meta/*.pkl", "demos": "*/*.hdf5"}
IMAGES = ("agentview_rgb", "eye_in_hand_rgb")
SIDE = 128
FRAMES = 1000


def write_clouds(folder: Path, scale: float) -> None:
    scannet.write(folder, 0, replace(scannet.REAL, train=max(1, round(120 * scale)), validation=0), variant="scannet")
    for extra in ("instance_gt", "validation"):
        for path in sorted((folder / extra).rglob("*.txt")):
            path.unlink()


def write_pickles(folder: Path, scale: float) -> None:
    sequences = max(1, round(83.325 * scale))
    ho3d.write(folder, 0, ho3d.Size(train=sequences, evaluation=0, frames=(FRAMES, FRAMES)))


def write_demos(folder: Path, scale: float) -> None:
    libero.write(folder, 0, libero.Size(suites=("libero_spatial",), tasks=10, demos=max(1, round(50 * scale)), image=0))
    for path in sorted(folder.rglob("*.hdf5")):
        with h5py.File(path, "a") as file:
            for demo in file["data"].values():
                for name in IMAGES:  # no chunk is ever written: nothing but the header is there
                    demo.create_dataset(f"obs/{name}", (len(demo["actions"]), SIDE, SIDE, 3), np.uint8)


WRITE: dict[str, Callable[[Path, float], None]] = {
    "clouds": write_clouds, "pickles": write_pickles, "demos": write_demos,
}  # fmt: skip


def arrays(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return every array that is no image, by episode."""
    found: dict[str, dict[str, np.ndarray]] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and name.rpartition("/")[2] not in IMAGES:
            found.setdefault(name.split("/")[1], {})[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


def read(kind: str, files: list[Path]) -> tuple[int, int]:
    """Return (samples, bytes) of just reading."""
    if kind == "demos":
        episodes = [episode for path in files for episode in arrays(path).values()]
        return len(episodes), sum(array.nbytes for episode in episodes for array in episode.values())
    buffer = bytearray(max(path.stat().st_size for path in files))
    total = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            total += file.readinto(buffer) or 0
    return len(files), total


def naive(kind: str, files: list[Path]) -> tuple[int, int]:
    """Return (samples, bad ones) as a first validate_dataset() finds them."""
    bad = count = 0
    for path in files:
        try:
            if kind == "clouds":
                labels = np.load(path)[:, 10:12]
                instances = labels[:, 1][labels[:, 1] != -1]
                good = [len(instances) > 0]
            elif kind == "pickles":
                with path.open("rb") as file:
                    record = pickle.load(file, encoding="latin1")  # noqa: S301  we wrote it
                good = [record["handJoints3D"] is not None]
            else:
                good = [all(len(array) for array in episode.values()) for episode in arrays(path).values()]
        except Exception:  # noqa: BLE001  that loop does so
            good = [False]
        bad += good.count(False)
        count += len(good)
    return count, bad


def one(kind: str, what: str, folder: Path, out: Path) -> None:
    """Do one thing and print what it took."""
    files = sorted(folder.glob(PATTERNS[kind]))
    request = Request(files[0] if what == "start" else folder, workers=1, output=out)
    schema = load_schema(SCHEMAS[kind] if what != "start" else "files")
    before, began = _cpu(), time.perf_counter()
    if what == "read":
        count, nbytes = read(kind, files)
    elif what == "naive":
        count, nbytes = naive(kind, files)
    else:
        run = run_scan(schema, request)
        count, nbytes = len(run.table), int(run.table.nbytes.sum())
    took, wall = _cpu() - before, time.perf_counter() - began
    worker, mine = (resource.getrusage(who).ru_maxrss / 1e3 for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    print(json.dumps({"count": count, "nbytes": nbytes, "cpu": took, "wall": wall, "worker": worker, "mine": mine}))


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measured(kind: str, folder: Path, rounds: int) -> None:
    """Measure one kind of data and print its table."""
    found: dict[str, list[dict[str, float]]] = {what: [] for what in ("read", "naive", "start", "scan")}
    for _ in range(rounds):
        for what, results in found.items():
            with tempfile.TemporaryDirectory() as out:
                call = [sys.executable, __file__, "--one", kind, what, str(folder), f"{out}/run"]
                said = subprocess.run(call, check=True, capture_output=True, text=True).stdout
            results.append(json.loads(said.splitlines()[-1]))
    cpu = {what: statistics.median(r["cpu"] for r in results) for what, results in found.items()}
    first, scan = found["read"][0], found["scan"][0]
    count, size = int(scan["count"]), first["nbytes"] / 1e6
    net = max(cpu["scan"] - cpu["start"], 1e-9)
    print(f"{kind}: {count:,} samples, {size:,.0f} MB of values to read")
    for what, seconds in (("read", cpu["read"]), ("naive", cpu["naive"]), ("scan", net)):
        against = f"{cpu['read'] / seconds:6.2f} of reading {cpu['naive'] / seconds:6.2f} of naive"
        print(f"  {what:6}{count / seconds:11,.0f} samples/s {size / seconds:9,.0f} MB/s per core {against}")
    memory = {name: max(r[name] for r in found["scan"]) for name in ("worker", "mine")}
    wall = statistics.median(r["wall"] for r in found["scan"])
    print(
        f"  scan: start {cpu['start']:.2f} s of {cpu['scan']:.2f} s, {wall:.2f} s by the clock; "
        f"peak {memory['worker']:,.0f} MB of the worker, {memory['mine']:,.0f} MB of the coordinator"
    )


def main() -> None:
    if "--one" in sys.argv:
        kind, what, folder, out = sys.argv[2:6]
        one(kind, what, Path(folder), Path(out))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(WRITE))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write the data (removed afterwards)")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    for kind in asked.kinds or WRITE:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            WRITE[kind](Path(folder, "data"), asked.scale)
            measured(kind, Path(folder, "data"), asked.rounds)


if __name__ == "__main__":
    main()
