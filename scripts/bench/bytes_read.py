"""How many bytes a build reads of one large file, for each byte of it, and how much memory a scan of rows takes.

    python scripts/bench/bytes_read.py [FORMAT ...] [--megabytes 300 ...] [--workers 1 2] [--rows
    100000 1000000]
                                       [--folder DIR]

Each FORMAT (jsonl, jsonl.gz, npy, npz, parquet, hdf5; default: all) is one file whose lines or rows
are the samples. It is scanned by `datacheck scan` and then built by `datacheck cache build`, which
finds the scan. Needs strace.

read     bytes of the file that all processes of the command got from read, pread and the like, as
strace counts them mapped   pages of the file that were mapped into memory, which no system call
tells: of each mapping the most that
         /proc/PID/smaps showed while it was there, looked at every 20 ms
times    read and mapped, divided by the size of the file
worker   the most memory that one worker held, coordinator the same; resident pages of mapped files
are part of it

Rows have 1,024 bytes. `--rows` adds .npy, .npz, Parquet and HDF5 files of so many rows of 72 bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from processes import children, family, peak

_COMMAND = "import sys; from datacheck.cli.main import main; sys.exit(main())"
_TRACED = [
    "strace",
    "-ff",
    "-y",
    "-s",
    "0",
    "--seccomp-bpf",
    "-e",
    "trace=read,pread64,readv,preadv",
    "-o",
]
_POLL_S = 0.02
_WIDTH, _NARROW = 256, 18  # float32 numbers of a row, and of one of many
_RESTS_S = 2.5  # a file that was written just now is read again by the next scan
_PACKED = 3  # times smaller is a packed file of these texts, about


@dataclass
class Read:
    """What a command read, by calls and through maps, and the most that its processes held [bytes]; the time [s]."""

    calls: int
    mapped: int
    worker: int
    coordinator: int
    wall: float


# -------------------------------------------------------------------------------------------- files


def jsonl(path: Path, nbytes: int, width: int = 0) -> None:
    """Write about so many bytes of texts of 0.5 to 1.5 kB."""
    del width
    rng = np.random.default_rng(0)
    words = ["".join(chr(c) for c in rng.integers(97, 123, n)) for n in rng.integers(2, 10, 5000)]
    with (
        gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file
    ):
        number = written = 0
        while written < nbytes:
            text = " ".join(
                words[i] for i in rng.integers(0, len(words), int(rng.integers(80, 220)))
            )
            written += file.write(json.dumps({"text": f"{number} {text}"}).encode() + b"\n")
            number += 1


def packed(path: Path, nbytes: int, width: int) -> None:
    """Write JSON lines that take about so many bytes when they are packed."""
    jsonl(path, nbytes * _PACKED, width)


def _rows(nbytes: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.random((max(4, nbytes // (4 * width)), width), np.float32)


def npy(path: Path, nbytes: int, width: int) -> None:
    """Write rows of float32."""
    np.save(path, _rows(nbytes, width))


def npz(path: Path, nbytes: int, width: int) -> None:
    """Write the same, packed: random numbers do not become much smaller."""
    np.savez_compressed(path, array=_rows(nbytes, width))


def parquet(path: Path, nbytes: int, width: int) -> None:
    """Write the same as a column of lists, in row groups as Arrow makes them."""
    rows = _rows(nbytes, width)
    flat = pa.array(rows.reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, width)
    pq.write_table(pa.table({"array": column}), path, use_dictionary=False)


def hdf5(path: Path, nbytes: int, width: int) -> None:
    """Write the same in chunks, as h5py makes them."""
    with h5py.File(path, "w") as file:
        file.create_dataset("array", data=_rows(nbytes, width), chunks=True)


FORMATS: dict[str, Callable[[Path, int, int], None]] = {
    "jsonl": jsonl,
    "jsonl.gz": packed,
    "npy": npy,
    "npz": npz,
    "parquet": parquet,
    "hdf5": hdf5,
}
ROWS = ("npy", "npz", "parquet", "hdf5")


def schema(folder: Path, name: str, width: int) -> Path:
    """Write the schema of a format."""
    lines = name.startswith("jsonl")
    field = (
        {"text": {"dtype": "text"}} if lines else {"array": {"shape": [width], "dtype": "float32"}}
    )
    said = {
        "datacheck": 1,
        "name": "one",
        "samples": {"files": f"*.{name}", "each": "line" if lines else "row"},
        "fields": field,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(said))
    return path


# ----------------------------------------------------------------------------------------- counting


def watched(arguments: Sequence[str], folder: Path, file: Path) -> Read:
    """Run a datacheck command; count what it reads."""
    start = time.perf_counter()
    with (folder / "said").open("wb") as out:
        command = [*_TRACED, str(folder / "calls"), sys.executable, "-c", _COMMAND, *arguments]
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
        most: dict[int, int] = {}
        maps: dict[tuple[int, str], int] = {}
        first: set[int] = set()  # what strace has started
        while process.poll() is None:
            first |= set(children(process.pid))
            for pid in family(process.pid):
                if pid in first or not _begins(pid):
                    most[pid] = max(most.get(pid, 0), peak(pid))
                for place, resident in _maps(pid, file):
                    maps[pid, place] = max(maps.get((pid, place), 0), resident)
            time.sleep(_POLL_S)
    if process.returncode not in {0, 1}:
        raise SystemExit((folder / "said").read_text())
    wall = time.perf_counter() - start
    coordinator = max((size for pid, size in most.items() if pid in first), default=0)
    worker = max(
        (size for pid, size in most.items() if pid not in {process.pid, *first}), default=0
    )
    return Read(_calls(folder, file), sum(maps.values()), worker, coordinator, wall)


def _calls(folder: Path, file: Path) -> int:
    """Return the bytes of a file that calls gave, by what strace wrote down for each process; remove that."""
    total = 0
    for traced in folder.glob("calls.*"):
        with traced.open("rb") as lines:
            total += sum(
                int(line.rpartition(b"= ")[2].split()[0])
                for line in lines
                if f"<{file}>".encode() in line
            )
        traced.unlink()
    return total


def _begins(pid: int) -> bool:
    """Tell whether a process still shares the memory of the coordinator that starts it."""
    with contextlib.suppress(OSError):
        return _COMMAND.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return True


def _maps(pid: int, file: Path) -> list[tuple[str, int]]:
    """Return the place and the resident bytes of each map of a file in a process."""
    found: list[tuple[str, int]] = []
    try:
        if str(file) not in Path(f"/proc/{pid}/maps").read_text():
            return found
        place = ""
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            head = line.split()
            if "-" in head[0] and not head[0].endswith(":"):
                place = head[0] if head[-1] == str(file) else ""
            elif place and head[0] == "Rss:":
                found.append((place, int(head[1]) << 10))
    except OSError:  # it has just ended
        pass
    return found


def built(
    name: str, nbytes: int, workers: int, folder: Path, width: int = _WIDTH
) -> tuple[Read, Read, int]:
    """Scan and build one file; return what each of the two read, and the size of the file."""
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    for rest in ("out", ".datacheck"):
        shutil.rmtree(folder / rest, ignore_errors=True)
    data.mkdir()
    file = data / f"one.{name}"
    FORMATS[name](file, nbytes, width)
    time.sleep(_RESTS_S)
    asked = [
        str(schema(folder, name, width)),
        "--data",
        str(data),
        "--out",
        str(folder / "out"),
        "--workers",
        str(workers),
    ]
    scan = watched(
        ["scan", str(data), "--schema", asked[0], "--workers", str(workers)], folder, file
    )
    build = watched(["cache", "build", *asked], folder, file)
    return scan, build, file.stat().st_size


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--megabytes", type=int, nargs="*", default=[300])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rows", type=int, nargs="*", default=[], help="such as 100000 1000000")
    parser.add_argument("--folder", type=Path, help="where to write the data; removed afterwards")
    asked = parser.parse_args()
    names = asked.formats or list(FORMATS)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation holds its modules compiled
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        folder = Path(place).resolve()
        print(
            f"{'':30}{'size':>8}{'read':>10}{'mapped':>10}{'times':>7}{'worker':>10}{'coordinator':>13}{'':>9}"
        )
        for name in names:
            for workers in asked.workers:
                for size in asked.megabytes:
                    *found, nbytes = built(name, size * 1_000_000, workers, folder)
                    for what, one in zip(("scan", "build"), found, strict=True):
                        row(f"{name}, {workers} worker{'s' * (workers > 1)}, {what}", one, nbytes)
        for name in ROWS if asked.rows else ():
            for count in asked.rows:
                *found, nbytes = built(name, count * 4 * _NARROW, 1, folder, _NARROW)
                row(f"{name}, {count:,} rows, scan", found[0], nbytes)
                row(f"{name}, {count:,} rows, build", found[1], nbytes)
    return 0


def row(what: str, one: Read, nbytes: int) -> None:
    """Print one line."""
    print(
        f"{what:30}{nbytes / 1e6:>6.0f}MB{one.calls / 1e6:>8.0f}MB{one.mapped / 1e6:>8.0f}MB"
        f"{(one.calls + one.mapped) / nbytes:>7.2f}{one.worker / 1e6:>8.0f}MB{one.coordinator / 1e6:>11.0f}MB"
        f"{one.wall:>7.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
