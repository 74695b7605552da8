"""Scans of whole datasets, one kind after the other, against reading the same bytes and against the naive loop.

    python scripts/bench/scan.py [KIND ...] [--scale 1.0] [--rounds 3] [--workers 1 2] [--folder
    DIR] [--peers PYTHON]

clouds   120 scenes of ScanNet's size distribution, float32 [N, 12] .npy, schema scannet; then with
their ground truth pickles  83,325 annotations as HO-3D stores them, schema ho3d
demos    500 LIBERO episodes with two cameras, schema libero; the images take no room on the disk
and are not read jsonl    1 GB of JSON lines of each of three kinds, schemas minimind_pretrain and
minimind_sft; then some tokenized

`reading` opens every file and reads it whole (of demos: the arrays that are no images, with h5py).
`naive loop` is that of a validate_dataset(), see naive.py: `dataset[idx]` of the system's own
loader (of demos: of every 64th step only; of JSON lines only with --peers, a Python that has
Hugging Face datasets). `least loop` is the least that a script can do: pickle.load and arithmetic
on joints without their picture, json.loads of each line. A scan is a fresh command at the default
level, every rule. Data are synthetic, in a temporary folder and so in the page cache. Speeds are
per second of processor time, that of all processes together: what one core does. What a scan of one
file takes (starting Python twice, imports) is shown and taken off. Medians over the rounds, which
are interleaved.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import naive
import numpy as np
from PIL import Image
from processes import Cost, datacheck

from datacheck.testing import demonstrations, ho3d, minimind, scannet
from datacheck.testing.draw import generator


@dataclass
class Data:
    """One table: a folder of data, how its bytes are read, and the loop that people write first.

    `one` is a file or folder with a single small part of it; `read` returns bytes, `naive` how many
    samples are bad (or a `Cost`); `least` is a shorter loop.
    """

    what: str
    folder: Path
    schema: str | Path
    samples: int
    one: Path
    read: Callable[[], int]
    naive: Callable[[], Any]
    least: Callable[[], int] | None = None


# ------------------------------------------------------------------------------------------- timing


def timed(call: Callable[[], object]) -> Cost:
    """Run a function in this process, unless it tells what it took itself."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    if isinstance(found, Cost):
        return found
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def times(factor: int, call: Callable[[], object]) -> Cost:
    """Run a function over one sample in `factor`, and return what all of them would take."""
    cost = timed(call)
    return Cost(cost.wall * factor, cost.cpu * factor)


def median(costs: list[Cost]) -> Cost:
    """Return the run of the median processor time, with the most memory of all runs."""
    middle = sorted(costs, key=lambda cost: cost.cpu)[len(costs) // 2]
    return Cost(
        statistics.median(cost.wall for cost in costs),
        middle.cpu,
        max(cost.coordinator for cost in costs),
        max(cost.worker for cost in costs),
        middle.tokenized,
    )


def scan(data: Path, schema: str | Path, workers: int, samples: int | None = None) -> Cost:
    """Run ``datacheck scan`` anew and watch it; it must check so many samples."""
    with tempfile.TemporaryDirectory() as here:
        arguments = ["scan", str(data), "--schema", str(schema), "--workers", str(workers)]
        arguments += ["--format", "json", "--output", str(Path(here, "run"))]
        code, answer, cost = datacheck(arguments, Path(here))
        if code not in {0, 1} or samples not in {
            None,
            json.loads(answer)["dataset"]["samples"]["checked"],
        }:
            raise SystemExit(answer)
        return replace(cost, tokenized=json.loads(answer)["run"]["tokenized"])


def table(data: Data, rounds: int, workers: Sequence[int]) -> Iterator[str]:
    """Measure one dataset and yield the lines of its table."""
    nbytes = data.read()
    yield f"{data.what}: {data.samples:,} samples, {nbytes / 1e6:,.0f} MB to read"
    scans = {f"scan, {count} worker{'s' * (count > 1)}": count for count in workers}
    loops = {"reading": data.read, "naive loop": data.naive} | (
        {"least loop": data.least} if data.least else {}
    )
    found: dict[str, list[Cost]] = {name: [] for name in (*loops, "start", *scans)}
    for _ in range(rounds):
        for name, call in loops.items():
            found[name].append(timed(call))
        found["start"].append(scan(data.one, data.schema if data.one.is_dir() else "files", 1))
        for name, count in scans.items():
            found[name].append(scan(data.folder, data.schema, count, data.samples))
    costs = {name: median(runs) for name, runs in found.items()}
    start = costs.pop("start").cpu
    for name, cost in costs.items():
        net = cost.cpu - start if name in scans else cost.cpu
        if net <= 0:
            yield f"  {name:16} too little data to tell: {cost.cpu:.2f} s, {start:.2f} s to start"
            continue
        ratios = "  ".join(f"{costs[other].cpu / net:5.2f} of {other}" for other in loops)
        yield (
            f"  {name:16}{data.samples / net:10,.0f} samples/s {nbytes / net / 1e6:7,.0f} MB/s "
            f"per core  {ratios}"
        )
        if name in scans:
            tokenized = f"{cost.tokenized:,} tokenized; " if cost.tokenized else ""
            yield (
                f"    {tokenized}{cost.cpu:.2f} s, of them {start:.2f} s to start; {cost.wall:.2f} "
                f"s by the clock; "
                f"peak {cost.worker / 1e6:,.0f} MB of a worker, {cost.coordinator / 1e6:,.0f} MB "
                f"of the coordinator"
            )


# -------------------------------------------------------------------------------------------- files

_IMAGES = ("agentview_rgb", "eye_in_hand_rgb")
_SIDE = 128
_FRAMES = 1000
_NTH = 40  # frame whose picture is decoded: all of them would take minutes


def read_files(files: list[Path]) -> int:
    """Read files whole, each into the same buffer."""
    buffer = bytearray(1 << 20)
    total = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                total += size
    return total


def files_of(
    what: str, folder: Path, schema: str, pattern: str, good: Callable[[Path], bool]
) -> Data:
    files = sorted(folder.glob(pattern))
    every = sorted(path for path in folder.rglob("*") if path.suffix in {files[0].suffix, ".txt"})
    loop = partial(naive.checked, files, good)
    return Data(what, folder, schema, len(files), files[0], lambda: read_files(every), loop)


def clouds(folder: Path, scale: float) -> Iterator[Data]:
    """Scenes without and with the ground truth of their evaluation."""
    scannet.write(
        folder,
        0,
        replace(scannet.REAL, train=max(1, round(120 * scale)), validation=0),
        variant="scannet",
    )
    for name in ("train_list.txt", "val_list.txt"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "validation", ignore_errors=True)
    truth = folder.parent / "truth"
    shutil.move(folder / "instance_gt", truth)

    yield files_of("clouds", folder, "scannet", "train/*.npy", naive.scene)
    shutil.move(truth, folder / "instance_gt")
    yield files_of("clouds with ground truth", folder, "scannet", "train/*.npy", naive.scene)


def pickles(folder: Path, scale: float) -> Iterator[Data]:
    """Annotations of frames."""
    ho3d.write(
        folder,
        0,
        ho3d.Ho3dSize(train=max(1, round(83.325 * scale)), evaluation=0, frames=(_FRAMES, _FRAMES)),
    )
    picture = folder.parent / "picture.jpg"
    y, x = np.mgrid[:480, :640]
    Image.fromarray(
        np.stack([x % 256, y % 256, (x * y) // 512 % 256], axis=-1).astype(np.uint8)
    ).save(picture)
    found = files_of("pickles", folder, "ho3d", "train/*/meta/*.pkl", naive.hand)
    some = sorted(folder.glob("train/*/meta/*.pkl"))[::_NTH]
    yield replace(
        found,
        naive=lambda: times(
            _NTH, lambda: naive.checked(some, partial(naive.frame, picture=picture))
        ),
        least=found.naive,
    )


def demos(folder: Path, scale: float) -> Iterator[Data]:
    """Episodes with pictures that are not read."""
    demonstrations.write_libero(
        folder,
        0,
        demonstrations.LiberoSize(
            suites=("libero_spatial",), tasks=10, demos=max(1, round(50 * scale)), image=0
        ),
    )
    files = sorted(folder.rglob("*.hdf5"))
    for path in files:
        with h5py.File(path, "a") as file:
            for demo in file["data"].values():
                for name in _IMAGES:  # no chunk is ever written: nothing but the header is there
                    demo.create_dataset(
                        f"obs/{name}", (len(demo["actions"]), _SIDE, _SIDE, 3), np.uint8
                    )

    starts = [
        (path, demo, start)
        for path in files
        for demo, values in arrays(path).items()
        for start in range(0, len(values[f"data/{demo}/actions"]), naive.CHUNK)
    ]
    yield Data(
        "demos",
        folder,
        "libero",
        len({(path, demo) for path, demo, _ in starts}),
        files[0],
        lambda: sum(
            a.nbytes
            for path in files
            for episode in arrays(path).values()
            for a in episode.values()
        ),
        lambda: naive.checked(starts, lambda start: naive.window(*start)),
    )


def arrays(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return every array that is no image, by episode."""
    found: dict[str, dict[str, np.ndarray]] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and name.rpartition("/")[2] not in _IMAGES:
            found.setdefault(name.split("/")[1], {})[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


# --------------------------------------------------------------------------------------- JSON lines

_DIFFERENT = 4000  # synthetic records; the others differ from them by a number
_TOKENIZED = 50  # times smaller is the file that is also tokenized
_GIGABYTE = 1_000_000_000
PEERS: list[str] = []

LINES: dict[str, tuple[str, Callable[..., dict]]] = {
    "texts, 1.4 kB a line": (
        "pretrain",
        lambda rng: minimind.pretrain(rng, minimind.MinimindSize(characters=560)),
    ),
    "texts, 0.35 kB a line": (
        "pretrain",
        lambda rng: minimind.pretrain(rng, minimind.MinimindSize(characters=125)),
    ),
    "chats, 1.9 kB a line": (
        "sft",
        lambda rng: {
            "conversations": minimind.chat(rng, minimind.MinimindSize(answer=240, turns=2))
        },
    ),
}


def write_lines(path: Path, make: Callable[..., dict], nbytes: float) -> int:
    """Write about so many bytes of JSON lines; return how many lines."""
    path.parent.mkdir(exist_ok=True)
    base = [make(generator(0, path.name, number)) for number in range(_DIFFERENT)]
    count = 0
    with path.open("wb") as file:
        while file.tell() < nbytes:
            for record in base:
                if "text" in record:
                    record = {"text": f"{count} {record['text']}"}
                else:
                    *before, last = record["conversations"]
                    record = {
                        "conversations": [*before, last | {"content": f"{last['content']} {count}"}]
                    }
                file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                count += 1
            file.truncate()
    return count


def served(python: str, path: Path) -> Cost:
    """Run the loop over Hugging Face datasets in another environment."""
    wall = time.perf_counter()
    said = subprocess.run(
        [python, naive.__file__, str(path)], check=True, capture_output=True, text=True
    ).stdout
    return Cost(time.perf_counter() - wall, float(said.split()[-1]))


def jsonl(folder: Path, scale: float) -> Iterator[Data]:
    """One file of each kind of line; then the smaller one of which some lines are tokenized."""
    model = folder.parent / "model"
    minimind.write_tokenizer(model)
    for what, (name, make) in LINES.items():
        path = folder / f"{name}.jsonl"
        said = Path(f"schemas/minimind_{name}.yaml").read_text()
        for tokens, nbytes in ((False, scale * _GIGABYTE), (True, scale * _GIGABYTE / _TOKENIZED)):
            count = write_lines(path, make, nbytes)
            schema = folder.parent / f"{name}.yaml"
            schema.write_text(said.replace("path: model, ", f"path: {model}, " if tokens else ""))
            one = folder.parent / "one"
            one.mkdir(exist_ok=True)
            with path.open("rb") as file:
                (one / path.name).write_bytes(file.readline())
            label = f"JSON lines, {what}{', some tokenized' * tokens}"
            loop = partial(naive.lines, path)
            yield Data(
                label,
                folder,
                schema,
                count,
                one,
                lambda path=path: read_files([path]),
                partial(served, PEERS[0], path) if PEERS else loop,
                loop if PEERS else None,
            )
        shutil.rmtree(folder)


# --------------------------------------------------------------------------------------------- main

KINDS: dict[str, Callable[[Path, float], Iterator[Data]]] = {
    "clouds": clouds,
    "pickles": pickles,
    "demos": demos,
    "jsonl": jsonl,
}


def main() -> int:
    """Print the tables that were asked for."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation holds its modules compiled
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", choices=[*KINDS, []], help="default: all"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[1])
    parser.add_argument(
        "--folder", default=None, help="where to write the data; removed afterwards"
    )
    parser.add_argument(
        "--peers", nargs=1, default=[], metavar="PYTHON", help="one with Hugging Face datasets"
    )
    asked = parser.parse_args()
    PEERS[:] = asked.peers
    print(
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, {asked.rounds} rounds"
    )
    for kind in asked.kinds or KINDS:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            for data in KINDS[kind](Path(name, "data"), asked.scale):
                for line in table(data, asked.rounds, asked.workers):
                    print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
