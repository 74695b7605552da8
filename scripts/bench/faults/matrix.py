"""One digest in every cell: the same build under every circumstance that must not change its bytes.

    python scripts/bench/faults/matrix.py [--megabytes 200] [--only NAME] [--folder DIR]

Each cell is a command of its own, `datacheck cache build` with its scan, over the same clouds,
joints and texts (voxels, a centre, sampling, a change of unit); compared is every file but
build.json. A cell that cannot be had here (a locale, a CPU feature, another file system) is named
and not counted. Ends with 1 where a cell differs, or a control does not.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from datacheck.cli.main import main; sys.exit(main())",
]
SCHEMA = """datacheck: 1
name: cells
samples: {files: '{split:train|test}/{name}.npz'}
fields:
  cloud: {role: points, shape: [P, 3], dtype: float32, unit: m}
  label: {role: class, shape: [P], dtype: int32, classes: 0..19}
  joints: {role: joints, shape: [21, 3], dtype: float64, unit: m}
  score: {role: value, shape: []}
  said: {role: text, optional: true}
"""
PIPELINE = """datacheck: 1
name: cells
schema: cells_schema.yaml
transforms:
  - scale: {fields: joints, to: mm}
  - center: {field: joints, at: centroid}
  - center: {field: cloud, at: centroid}
  - voxel: {points: cloud, edge: 0.02}
  - sample_points: {points: cloud, n: 1024}
  - cast: {fields: joints, to: float32}
"""
SHUFFLED = """
import os, random
_scan = os.scandir
class _Scan:
    def __init__(self, path="."):
        with _scan(path) as found:
            self.left = list(found)
        random.shuffle(self.left)
    def __iter__(self): return self
    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop()
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def close(self): pass
os.scandir = _Scan
_list = os.listdir
def listdir(path="."):
    found = _list(path)
    random.shuffle(found)
    return found
os.listdir = listdir
open(os.environ["SHUFFLED_SEEN"], "a").close()
"""


@dataclass(frozen=True)
class Cell:
    """One circumstance.

    Args:
        name: what it is called.
        options: of the command.
        environment: over the usual one.
        prepare: changes the place before the build; returns why the cell cannot be had here, or "".
        same: False for a control, which must differ.
    """

    name: str
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], str] = lambda place: ""
    around: Callable[[Path], contextlib.AbstractContextManager[Sequence[str]]] | None = None
    kills: int = 0
    same: bool = True


# --------------------------------------------------------------------------------------------- data


def write(place: Path, megabytes: float) -> None:
    """Write clouds of 2,000 to 30,000 points until there are so many megabytes; one file is none, one sample empty."""
    rng = np.random.Generator(np.random.Philox(11))
    total, number = 0, 0
    while total < megabytes * 1e6 or number < 12:
        rows = 0 if number == 5 else int(rng.integers(2000, 30_000))
        sample = {
            "cloud": rng.normal(0, 1.5, (rows, 3)).astype(np.float32),
            "label": rng.integers(0, 20, rows).astype(np.int32),
            "joints": rng.normal(0, 0.1, (21, 3)),
            "score": np.float32(rng.normal()),
        }
        if number % 3:
            sample["said"] = np.array(f"Grüße {number} 😀")
        path = (
            place
            / "data"
            / ("train" if number % 4 else "test")
            / f"{rng.integers(1 << 40):010x}.npz"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **sample)
        total, number = total + path.stat().st_size, number + 1
    (place / "data/train/zz broken.npz").write_bytes(b"PK\x03\x04 no archive")
    (place / "cells_schema.yaml").write_text(SCHEMA)
    (place / "cells.yaml").write_text(PIPELINE)


def digest(folder: Path) -> str:
    """Return one digest of all files of all finished caches but build.json; what a kill left behind lies elsewhere."""
    found = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and path.name != "build.json" and not hidden:
            found.update(
                f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode() + path.read_bytes()
            )
    return found.hexdigest()


# -------------------------------------------------------------------------------------------- cells


def touched(place: Path) -> str:
    for path in (place / "data").rglob("*.npz"):
        when = random.randrange(10**9, 17 * 10**8)
        os.utime(path, (when, when))
    return ""


def moved(place: Path) -> str:
    elsewhere = place / "a longer way/näher"
    elsewhere.mkdir(parents=True)
    shutil.move(place / "data", elsewhere / "data")
    (place / "data").symlink_to(elsewhere / "data", target_is_directory=True)
    return ""


def tampered(place: Path) -> str:
    path = sorted((place / "data/train").glob("*.npz"))[0]
    with np.load(path) as file:
        sample = dict(file)
    sample["score"] = np.nextafter(sample["score"], np.float32(9))
    np.savez(path, **sample)
    return ""


def locale(name: str) -> Callable[[Path], str]:
    def there(_: Path) -> str:
        known = subprocess.run(
            ["locale", "-a"], capture_output=True, text=True, check=False
        ).stdout.lower()
        return (
            "" if name.lower().replace("-", "") in known.replace("-", "") else f"no locale {name}"
        )

    return there


def feature(names: str) -> Callable[[Path], str]:
    """Tell why switching a CPU feature off changes nothing here."""

    def effective(_: Path) -> str:
        code = (
            "from numpy._core._multiarray_umath import __cpu_features__ as f; print(sorted(n "
            "for n in f if f[n]))"
        )
        call = partial(
            subprocess.run,
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            check=False,
        )
        with_, without = (
            call().stdout,
            call(env=os.environ | {"NPY_DISABLE_CPU_FEATURES": names}).stdout,
        )
        return "" if without and with_ != without else f"NumPy here does not switch {names} off"

    return effective


@contextlib.contextmanager
def cluster(place: Path) -> Iterator[Sequence[str]]:
    """A Dask scheduler and two workers over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    calls = [["scheduler", "--host", "127.0.0.1", "--port", str(port)]]
    calls += [["worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny"]] * 2
    running = []
    try:
        for call in calls:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *call, "--no-dashboard"],
                    cwd=place,
                    stdout=-3,
                    stderr=-3,
                )
            )
            for _ in range(600 * (call[0] == "scheduler")):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
        yield ["--scheduler", address]
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


CELLS = [
    Cell("one worker"),
    Cell("two workers", ["--workers", "2"]),
    Cell("eight workers", ["--workers", "8"]),
    Cell("a Dask cluster over TCP", around=cluster),
    *[Cell(f"hash seed {s}", environment={"PYTHONHASHSEED": s}) for s in ("0", "1", "random")],
    Cell(
        "folders listed in any order",
        environment={"PYTHONPATH": "{place}/site", "SHUFFLED_SEEN": "{place}/seen"},
    ),
    Cell("time zone Asia/Kathmandu", environment={"TZ": "Asia/Kathmandu"}),
    Cell("locale C", environment={"LC_ALL": "C", "PYTHONUTF8": "0"}),
    *[
        Cell(f"locale {n}", environment={"LC_ALL": n}, prepare=locale(n))
        for n in ("de_DE.UTF-8", "tr_TR.UTF-8")
    ],
    Cell("umask 077", environment={"UMASK": "077"}),
    Cell("other times of files", prepare=touched),
    Cell("data and caches elsewhere", prepare=moved),
    *[Cell(f"killed {k} times and run again", kills=k) for k in (1, 5)],
    *[
        Cell(f"without {n}", environment={"NPY_DISABLE_CPU_FEATURES": n}, prepare=feature(n))
        for n in ("X86_V4", "X86_V3", "AVX512F", "AVX2")
    ],
    *[
        Cell(f"BLAS for {n}", environment={"OPENBLAS_CORETYPE": n})
        for n in ("Haswell", "SkylakeX", "Prescott")
    ],
    Cell("memory as file system", environment={"OUT": "/dev/shm"}),
    Cell("control: one bit of one number", prepare=tampered, same=False),
]


def build(place: Path, cell: Cell, out: Path) -> str:
    """Build in one circumstance; return the digest."""
    said = {name: value.format(place=place) for name, value in cell.environment.items()}
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONDONTWRITEBYTECODE"}}
    said_path = [p for p in (said.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")) if p]
    environment |= said | {"PYTHONPATH": os.pathsep.join(said_path)}
    command = [
        *COMMAND,
        "cache",
        "build",
        "cells.yaml",
        "--data",
        "data",
        "--out",
        str(out),
        *cell.options,
    ]
    how = {"cwd": place, "env": environment, "umask": int(said.get("UMASK", "022"), 8)}
    with (cell.around or (lambda _: contextlib.nullcontext(())))(place) as more:
        wait = random.Random(cell.name)
        for _ in range(cell.kills):
            process = subprocess.Popen(
                [*command, *more], stdout=-3, stderr=-3, start_new_session=True, **how
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait.uniform(0.3, 2.5))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False, **how)
    seen = Path(said.get("SHUFFLED_SEEN", place)).exists()
    if done.returncode or not seen:
        msg = (
            f"{cell.name}: exit {done.returncode}, "
            f"{'' if seen else 'nothing was shuffled, '}{done.stdout}{done.stderr}"
        )
        raise SystemExit(msg)
    return digest(out)


def run(cell: Cell, source: Path, folder: Path) -> str:
    """Return the digest of a cell, or why it cannot be had here."""
    with tempfile.TemporaryDirectory(dir=folder) as name, contextlib.ExitStack() as after:
        place = Path(name)
        shutil.copytree(source, place, dirs_exist_ok=True)
        (place / "site").mkdir()
        (place / "site/sitecustomize.py").write_text(SHUFFLED)
        why = cell.prepare(place)
        if why:
            return f"not here: {why}"
        out = place / "out"
        if "OUT" in cell.environment:
            if not Path(cell.environment["OUT"]).is_dir():
                return f"not here: no {cell.environment['OUT']}"
            out = Path(
                after.enter_context(tempfile.TemporaryDirectory(dir=cell.environment["OUT"]))
            )
        return build(place, cell, out)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument(
        "--only", default="", help="part of a cell's name; the first one is always run"
    )
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}"
    )
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        source = Path(name, "source")
        source.mkdir()
        write(source, asked.megabytes)
        golden, bad, count = "", 0, 0
        for number, cell in enumerate(CELLS):
            if number and asked.only not in cell.name:
                continue
            began = time.perf_counter()
            found = run(cell, source, Path(name))
            golden = golden or found
            wrong = not found.startswith("not here") and (found == golden) != cell.same
            bad, count = bad + wrong, count + (not found.startswith("not here"))
            print(
                f"{cell.name:36} {found:18} {time.perf_counter() - began:6.1f} "
                f"s{'  DIFFERS' * wrong}",
                flush=True,
            )
    print(f"{count} cells, {bad} wrong" if bad else f"{count} cells: one digest, {golden}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
