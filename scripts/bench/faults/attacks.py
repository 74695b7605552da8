"""Folders of slow or large attacks mixed into good files: what each kind costs a scan, and whether all is told.

    python scripts/bench/faults/attacks.py [KIND ...] [--count 50] [--good 1000] [--workers 2]
    [--together]
                                           [--folder DIR]

A folder holds `--count` attacks of one kind and `--good` small files of the kinds that are
attacked; with `--together` one folder holds all of them. For each folder it prints the seconds by
the clock, those of all processors, the most memory of the coordinator and of all processes
together, how many good files were judged and how many attacks were named, and the reasons. The last
line says whether everything holds: all good files judged, all attacks named, at most 180 s, 500 MB
of the coordinator, 3 GB of all. "read" counts attacks that are read as samples after all: of a
picture bomb, say, a scan looks at the header only.
"""

from __future__ import annotations

import argparse
import bz2
import collections
import contextlib
import gzip
import io
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TERABYTE = 1 << 40
SCHEMA = """
datacheck: 1
name: attacked
samples: {files: "**/*"}
fields: {"*": {}}
"""
BESIDE = """
datacheck: 1
name: attacked
samples: {files: "{name}.npy"}
fields:
  array: {}
  label: {file: "{name}.txt", optional: true}
"""
LIMITS = {"seconds": 180.0, "coordinator": 500e6, "tree": 3e9}


# --------------------------------------------------------------------------------------- good files


def npy(array: Any) -> bytes:
    """Return an array as the bytes of an .npy file."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _good_ply(path: Path, points: Any) -> None:
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n"
    head += "".join(f"property float {axis}\n" for axis in "xyz") + "end_header\n"
    path.write_bytes(head.encode() + bytes(points))


def _good_h5(path: Path, points: Any) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["points"] = points


def _good_png(path: Path, points: Any) -> None:
    from PIL import Image

    Image.fromarray((points * 255).astype(np.uint8)).save(path)


def _good_parquet(path: Path, points: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), path)


def _good_tar(path: Path, points: Any) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key in range(4):
            member = tarfile.TarInfo(f"{path.stem}_{key}.points.npy")
            data = npy(points)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


GOOD: dict[str, Callable[[Path, Any], Any]] = {
    "npy": np.save,
    "npz": lambda path, points: np.savez_compressed(path, points=points),
    "json": lambda path, points: path.write_text(
        json.dumps({"name": path.stem, "pose": points[:4].tolist()})
    ),
    "yaml": lambda path, points: path.write_text(
        json.dumps({"name": path.stem, "pose": points[:4].tolist()})
    ),
    "pkl": lambda path, points: path.write_bytes(
        pickle.dumps({"points": points, "name": path.stem})
    ),
    "txt": lambda path, points: np.savetxt(path, points, fmt="%.5f"),
    "ply": _good_ply,
    "jsonl": lambda path, _: path.write_text(
        "".join(json.dumps({"text": f"{path} {i}"}) + "\n" for i in range(20))
    ),
    "h5": _good_h5,
    "png": _good_png,
    "parquet": _good_parquet,
    "tar": _good_tar,
}


def good(folder: Path, number: int) -> Path:
    """Write one small file of a kind that is attacked, too."""
    kind = list(GOOD)[number % len(GOOD)]
    path = folder / f"good_{number:04d}.{kind}"
    GOOD[kind](path, np.random.default_rng(number).random((200, 3)).astype(np.float32))
    return path


# ------------------------------------------------------------------------------------------ attacks

Write = Callable[[Path], None]
KINDS: dict[str, tuple[str, Write]] = {}  # name: (ending, how one file is written)


def kind(name: str, ending: str) -> Callable[[Write], Write]:
    """Register a kind of attack."""

    def keep(write: Write) -> Write:
        KINDS[name] = ending, write
        return write

    return keep


def beside(path: Path) -> None:
    """Write a good array to which a hostile companion belongs."""
    np.save(path.with_suffix(".npy"), np.arange(6.0))


@kind("companion pipe", ".txt")
def _(path):
    beside(path)
    os.mkfifo(path)


@kind("companion device", ".txt")
def _(path):
    beside(path)
    path.symlink_to("/dev/zero")


@kind("companion outside", ".txt")
def _(path):
    beside(path)
    path.symlink_to("/etc/passwd")


def sparse(head: bytes, tail: bytes = b"") -> Write:
    """Return what writes a file of a terabyte with some bytes at its start and end, and holes between."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(head)
            file.truncate(TERABYTE)
            file.seek(TERABYTE - len(tail))
            file.write(tail)

    return write


def _npy_head(count: int) -> bytes:
    return npy(np.zeros(0, np.float32)).replace(
        b"(0,), }" + b" " * (len(str(count)) - 1), f"({count},), }}".encode()
    )


_LINES = b'{"text": "a"}\n'
_SPARSE = {
    "npy": _npy_head((TERABYTE - 128) // 4),
    "pkl": b"\x80\x04]\x94.",
    "hdf5": b"\x89HDF\r\n\x1a\n",
    "json": b'{"a": 1',
    "jsonl": _LINES,
    "txt": b"1 2 3\n",
    "yaml": b"a: 1\n",
    "png": b"\x89PNG\r\n\x1a\n",
    "obj": b"v 1 2 3\n",
    "ply": b"ply\nformat binary_little_endian 1.0\nelement vertex 91625968981\nproperty float "
    b"x\nproperty float y\n"
    b"property float z\nend_header\n",
    "tar": b"a" * 100,
    "mds": struct.pack("<3I", 1, 100, 200),
    "las": b"LASF",
    "pcd": b"# .PCD v0.7\nVERSION 0.7\n",
    "bin": b"\0" * 16,
    "npz": b"PK\x03\x04",
    "mp4": b"\0\0\0\x18ftypmp42",
}
for _ending, _head in _SPARSE.items():
    KINDS[f"sparse {_ending}"] = f".{_ending}", sparse(_head)
KINDS["sparse parquet"] = ".parquet", sparse(b"PAR1", struct.pack("<I", 64) + b"PAR1")


@kind("npz of 4 GB of zeros", ".npz")
def _(path):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as out,
    ):
        _zeros(out, 4 << 30)


@kind("npz of 900 MB of zeros", ".npz")
def _(path):
    _zeros(path, 900 << 20)


def _zeros(path: Path, nbytes: int) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as out,
    ):
        out.write(
            npy(np.zeros(0, np.uint8)).replace(
                b"(0,), }" + b" " * 9, b"(%010d,), }" % (nbytes - 128)
            )
        )
        for _ in range((nbytes - 128) >> 20):
            out.write(bytes(1 << 20))
        out.write(bytes((nbytes - 128) % (1 << 20)))


@kind("npz of 100,000 members", ".npz")
def _(path):
    data = npy(np.arange(2.0))
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(100_000):
            archive.writestr(f"m{number}.npy", data)


@kind("JSON lines, gzip of 20 million", ".jsonl.gz")
def _(path):
    piece = b"1\n" * (1 << 20)
    with gzip.open(path, "wb") as out:
        for _ in range(20):
            out.write(piece)


@kind("JSON lines, gzip of one line of 10 GB", ".jsonl.gz")
def _(path):
    one = zlib.compressobj(9, zlib.DEFLATED, 31)
    with path.open("wb") as out:
        for _ in range(10 << 10):
            out.write(one.compress(b"a" * (1 << 20)))
        out.write(one.flush())


@kind("JSON, gzip of 1 GB", ".json.gz")
def _(path):
    with gzip.open(path, "wb") as out:
        out.write(b"[0")
        for _ in range(500):
            out.write(b",0" * (1 << 20))
        out.write(b"]")


@kind("MDS, zstd of 1 GB", ".mds.zstd")
def _(path):
    import pyarrow as pa

    config = b'{"version":2,"format":"mds","column_names":["a"],"column_encodings":["bytes"],"column_sizes":[null]}'
    size = (1 << 30) - 4096
    start = 12 + len(config)
    with pa.output_stream(str(path), compression="zstd") as out:
        out.write(struct.pack("<3I", 1, start, start + 4 + size) + config + struct.pack("<I", size))
        for _ in range(size >> 20):
            out.write(bytes(1 << 20))
        out.write(bytes(size % (1 << 20)))


@kind("MDS of 2 million samples", ".mds")
def _(path):
    config = b'{"version":2,"format":"mds","column_names":["a"],"column_encodings":["uint8"],"column_sizes":[1]}'
    count = 2_000_000
    start = 8 + 4 * count + len(config)
    stops = np.arange(start, start + count + 1, dtype="<u4")
    path.write_bytes(struct.pack("<I", count) + stops.tobytes() + config + bytes(count))


def _zarr(
    path: Path, shape: list[int], chunks: list[int], compressor: Any, dtype: str = "|u1"
) -> None:
    path.mkdir()
    said = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": chunks,
        "dtype": dtype,
        "compressor": compressor,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    (path / ".zarray").write_text(json.dumps(said))


@kind("Zarr, bz2 chunk of 1 GB", ".zarr")
def _(path):
    _zarr(path, [1 << 30], [1 << 30], {"id": "bz2", "level": 1})
    one = bz2.BZ2Compressor(9)
    with (path / "0").open("wb") as out:
        for _ in range(1 << 10):
            out.write(one.compress(bytes(1 << 20)))
        out.write(one.flush())


@kind("Zarr, gzip chunk of 4 GB", ".zarr")
def _(path):
    _zarr(path, [1 << 20], [1 << 20], {"id": "gzip", "level": 1})
    with gzip.open(path / "0", "wb") as out:
        for _ in range(4 << 10):
            out.write(bytes(1 << 20))


@kind("Zarr of 900,000 absent chunks", ".zarr")
def _(path):
    _zarr(path, [900_000], [1], None)


@kind("Zarr, rows of 900,000 absent chunks", ".zarr")
def _(path):
    _zarr(path, [900_000, 200], [1, 200], None)


@kind("JSON of 800,000 keys", ".json")
def _(path):
    path.write_text(json.dumps({f"k{number}": number for number in range(800_000)}))


@kind("JSON, 100,000 deep", ".json")
def _(path):
    path.write_bytes(b"[" * 100_000 + b"]" * 100_000)


@kind("JSON of 40 MB of empty lists", ".json")
def _(path):
    path.write_bytes(b'{"a":[' + b"[]," * 13_000_000 + b"[]]}")


@kind("JSON lines of 100,000 keys each", ".jsonl")
def _(path):
    with path.open("w") as out:
        for line in range(10):
            out.write(json.dumps({f"k{line}_{number}": number for number in range(100_000)}) + "\n")


@kind("YAML aliases", ".yaml")
def _(path):
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path.write_text("\n".join(lines))


@kind("YAML aliases to 19 million", ".yaml")
def _(path):
    path.write_text(
        "a: &a [" + ",".join(["1"] * 4000) + "]\nb: [" + ",".join(["*a"] * 4700) + "]\n"
    )


@kind("YAML of 800,000 keys", ".yaml")
def _(path):
    path.write_text("".join(f"k{number}: 1\n" for number in range(800_000)))


def _hdf5(path: Path, fill: Callable[[Any], None]) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        fill(file)


@kind("HDF5, 1 PB declared", ".h5")
def _(path):
    _hdf5(path, lambda file: file.create_dataset("a", (1 << 50,), np.uint8, chunks=(1 << 20,)))


@kind("HDF5, 4 GB of zeros in gzip", ".h5")
def _(path):
    def fill(file):
        made = file.create_dataset(
            "a", (4000 << 20,), np.uint8, chunks=(500 << 20,), compression="gzip"
        )
        block = zlib.compress(bytes(500 << 20), 9)
        for place in range(8):
            made.id.write_direct_chunk((place * (500 << 20),), block)

    _hdf5(path, fill)


@kind("HDF5, a chunk that unpacks to more", ".h5")
def _(path):
    def fill(file):
        made = file.create_dataset("a", (1 << 20,), np.uint8, chunks=(1 << 20,), compression="gzip")
        made.id.write_direct_chunk((0,), zlib.compress(bytes(2 << 30), 9))

    _hdf5(path, fill)


@kind("HDF5 of 300,000 groups", ".h5")
def _(path):
    def fill(file):
        for outer in range(300):
            for inner in range(1000):
                file.create_group(f"g{outer}/g{inner}")

    _hdf5(path, fill)


@kind("HDF5 of 100,000 datasets", ".h5")
def _(path):
    def fill(file):
        for number in range(100_000):
            file.create_dataset(f"d{number}", data=1)

    _hdf5(path, fill)


@kind("HDF5 of 60,000 attributes", ".h5")
def _(path):
    import h5py

    with h5py.File(path, "w", libver="latest", track_order=False) as file:
        file["a"] = 1
        for number in range(60_000):
            file.attrs[f"a{number}"] = number


@kind("pickle of doubled tuples", ".pkl")
def _(path):
    value: Any = (1,)
    for _ in range(60):
        value = (value, value)
    path.write_bytes(pickle.dumps({"a": value}))


@kind("pickle of shared lists", ".pkl")
def _(path):
    value: Any = [1] * 100
    for _ in range(5):
        value = [value] * 100
    path.write_bytes(pickle.dumps({"a": value}))


@kind("pickle that declares 1 TB", ".pkl")
def _(path):
    path.write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", TERABYTE) + b"a.")


@kind("pickle of 800,000 keys", ".pkl")
def _(path):
    path.write_bytes(pickle.dumps({f"k{number}": number for number in range(800_000)}))


@kind("PNG of 13,000 x 13,000", ".png")
def _(path):
    side = 13_000
    pixels = zlib.compressobj(9)
    body = b"".join([*(pixels.compress(bytes(1 + 4 * side)) for _ in range(side)), pixels.flush()])
    parts = [
        (b"IHDR", struct.pack(">2I5B", side, side, 8, 6, 0, 0, 0)),
        (b"IDAT", body),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in parts
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


@kind("PNG of 100,000 x 100,000", ".png")
def _(path):
    parts = [
        (b"IHDR", struct.pack(">2I5B", 100_000, 100_000, 8, 6, 0, 0, 0)),
        (b"IDAT", b"x"),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in parts
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


@kind("JPEG 2000", ".png")
def _(path):
    from PIL import Image

    Image.new("RGB", (8000, 8000)).save(path, format="JPEG2000")


@kind("PLY of 9 * 10^18 vertices", ".ply")
def _(path):
    path.write_bytes(
        b"ply\nformat ascii 1.0\nelement vertex 9000000000000000000\nproperty float "
        b"x\nend_header\n1\n"
    )


@kind("PLY of vertices without properties", ".ply")
def _(path):
    path.write_bytes(
        b"ply\nformat binary_little_endian 1.0\nelement vertex 9000000000000000000\nend_header\n"
    )


@kind("PLY of 3,000 properties", ".ply")
def _(path):
    names = "".join(f"property uchar p{number}\n" for number in range(3_000))
    path.write_bytes(
        f"ply\nformat binary_little_endian 1.0\nelement vertex 1000\n{names}end_header\n".encode()
        + bytes(3_000_000)
    )


@kind("PLY of 2 million empty lists", ".ply")
def _(path):
    head = b"ply\nformat binary_little_endian 1.0\nelement face 2000001\n"
    path.write_bytes(
        head
        + b"property list uchar int vertex_indices\nend_header\n"
        + b"\x01\0\0\0\0"
        + bytes(2_000_000)
    )


@kind("PCD of 10^18 points", ".pcd")
def _(path):
    path.write_text(
        "VERSION 0.7\nFIELDS x\nSIZE 4\nTYPE F\nCOUNT 1\nWIDTH 1000000000000000000\nHEIGHT 1\nDATA "
        "binary\n1234"
    )


@kind("PCD, LZF of 250 MB", ".pcd")
def _(path):
    count = 62_500_000
    body = bytearray(b"\0\0")  # a literal, then copies of 264 bytes each
    left = 4 * count - 1
    while left:
        step = min(264, left)
        step = step if step >= 9 else left
        body += bytes([(7 << 5), step - 9, 0]) if step >= 9 else bytes([step - 1]) + bytes(step)
        left -= step
    head = (
        f"VERSION 0.7\nFIELDS x\nSIZE 4\nTYPE F\nCOUNT 1\nWIDTH {count}\nHEIGHT 1\nDATA "
        f"binary_compressed\n"
    )
    path.write_bytes(head.encode() + struct.pack("<2I", len(body), 4 * count) + bytes(body))


@kind("LAS of 4 * 10^9 points", ".las")
def _(path):
    head = bytearray(375)
    head[:4] = b"LASF"
    head[24:26] = bytes([1, 2])
    struct.pack_into("<HIIBHI", head, 94, 227, 227, 0, 0, 20, 4_000_000_000)
    path.write_bytes(bytes(head))


@kind("Parquet of 500 million zeros", ".parquet")
def _(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = pa.table({"a": pa.array(np.zeros(50_000_000, np.int64))})
    with pq.ParquetWriter(path, part.schema, compression="zstd") as out:
        for _ in range(10):
            out.write_table(part, row_group_size=50_000_000)


@kind("Parquet of one text, 20 million times", ".parquet")
def _(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"a": pa.array(["a" * 100] * 20_000_000).dictionary_encode()}),
        path,
        compression="zstd",
    )


@kind("Parquet of 10,000 columns", ".parquet")
def _(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"c{number}": [1.0, 2.0] for number in range(10_000)}), path)


@kind("tar with a member of 8 EB", ".tar")
def _(path):
    member = tarfile.TarInfo("0.txt")
    member.size = 1 << 60
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(10240))


@kind("tar of 100,000 members", ".tar")
def _(path):
    with path.open("wb") as out:
        for number in range(100_000):
            member = tarfile.TarInfo(f"{number:06d}.txt")
            member.size = 1
            out.write(member.tobuf(tarfile.USTAR_FORMAT) + b"a".ljust(512, b"\0"))
        out.write(bytes(1024))


@kind("text of one line of 30 MB", ".txt")
def _(path):
    path.write_bytes(b"1 " * 15_000_000 + b"x")


@kind("OBJ of one face of 5 million corners", ".obj")
def _(path):
    path.write_bytes(b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf" + b" 1 2 3" * 1_700_000 + b"\n")


# ---------------------------------------------------------------------------------------- measuring


def fill(folder: Path, kinds: list[str], count: int, goods: int) -> None:
    """Write a folder: each attack once, then links to it, for time's sake."""
    for name in kinds:
        ending, write = KINDS[name]
        first = folder / f"{name.replace(' ', '-')}_00{ending}"
        write(first)
        linked = not name.startswith(("companion", "sparse")) and first.is_file()
        for number in range(1, count):
            path = folder / f"{name.replace(' ', '-')}_{number:02d}{ending}"
            if linked:
                os.link(first, path)
            else:
                write(path) if not first.is_dir() else shutil.copytree(
                    first, path, copy_function=os.link
                )
    for number in range(goods):
        good(folder, number)


def memory(pid: int) -> int:
    """Return the resident bytes of a process, memory that it shares counted in part."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def family(pid: int) -> list[int]:
    """Return a process and all that it started."""
    found = [pid]
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [
                    p
                    for child in (thread / "children").read_text().split()
                    for p in family(int(child))
                ]
    return found


def scan(folder: Path, schema: Path, workers: int, level: str, limit_s: float) -> dict[str, Any]:
    """Run a scan and watch it."""
    with tempfile.TemporaryDirectory() as here:
        command = "import sys; from datacheck.cli.main import main; sys.exit(main())"
        arguments = [
            "scan",
            str(folder),
            "--schema",
            str(schema),
            "--level",
            level,
            "--format",
            "json",
        ]
        arguments += ["--output", f"{here}/run"] + (["--workers", str(workers)] if workers else [])
        began = time.perf_counter()
        with Path(f"{here}/said").open("w") as said, Path(f"{here}/noise").open("w") as noise:
            process = subprocess.Popen(
                [sys.executable, "-c", command, *arguments], stdout=said, stderr=noise, cwd=here
            )
            coordinator = tree = 0
            while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
                parts = [memory(pid) for pid in family(process.pid)]
                coordinator, tree = max(coordinator, parts[0]), max(tree, sum(parts))
                time.sleep(0.05)
                if time.perf_counter() - began > limit_s:
                    os.kill(process.pid, signal.SIGKILL)
        code = process.returncode = os.waitstatus_to_exitcode(ended[1])
        found: dict[str, Any] = {
            "code": code,
            "wall": time.perf_counter() - began,
            "cpu": ended[2].ru_utime + ended[2].ru_stime,
            "coordinator": coordinator,
            "tree": tree,
            "noise": Path(f"{here}/noise").read_text()[-2000:],
            "rows": [],
        }
        if code in {0, 1}:
            from datacheck.scan.samples import read_table

            table = read_table(Path(f"{here}/run/samples.parquet"))
            found["rows"] = list(
                zip(table.files, table.status.tolist(), table.reasons, strict=True)
            )
            found["said"] = Path(f"{here}/run/result.json").read_text()
        return found


def judge(
    found: dict[str, Any], names: list[str]
) -> tuple[int, int, int, collections.Counter[str]]:
    """Return (good files judged, attacks named, attacks read as samples, reasons)."""
    judged = {file for file, status, _ in found["rows"] if file.startswith("good_") and status == 0}
    bad = {
        file: reason
        for file, status, reason in found["rows"]
        if not file.startswith("good_") and status != 0
    }
    read = {
        file for file, status, _ in found["rows"] if not file.startswith("good_") and status == 0
    } - set(bad)
    told = found.get("said", "")
    named = {name for name in names if name in bad or (name not in read and name in told)}
    reasons = collections.Counter(reason.replace(file, "FILE") for file, reason in bad.items())
    return len(judged), len(named), len(read), reasons


def trial(kinds: list[str], options: argparse.Namespace) -> bool:
    """Measure one folder; print and tell whether it holds."""
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = Path(place, "data")
        folder.mkdir()
        companions = kinds[0].startswith("companion")
        fill(folder, kinds, options.count, 0 if companions else options.good)
        if companions:
            for number in range(options.good):
                np.save(folder / f"good_{number:04d}.npy", np.arange(6.0))
        schema = Path(place, "schema.yaml")
        schema.write_text(BESIDE if companions else SCHEMA)
        names = [
            f"{name.replace(' ', '-')}_{number:02d}{KINDS[name][0]}"
            for name in kinds
            for number in range(options.count)
        ]
        names = [str(Path(name).with_suffix(".npy")) for name in names] if companions else names
        found = scan(folder, schema, options.workers, options.level, options.limit)
    judged, named, read, reasons = judge(found, names)
    holds = (
        found["wall"] <= LIMITS["seconds"]
        and found["coordinator"] <= LIMITS["coordinator"]
        and found["tree"] <= LIMITS["tree"]
        and judged == options.good
        and named + read == len(names)
    )
    what = kinds[0] if len(kinds) == 1 else f"{len(kinds)} kinds together"
    print(
        f"{'holds' if holds else 'FAILS':6}{what:40} {found['wall']:6.1f} s  {found['cpu']:6.1f} s "
        f"of processors  "
        f"{found['coordinator'] / 1e6:5.0f} MB, {found['tree'] / 1e6:6.0f} MB of all  exit "
        f"{found['code']}  "
        f"good {judged:,} of {options.good:,}, named {named}, read {read} of {len(names)}"
    )
    for reason, many in reasons.most_common(options.reasons):
        print(f"          {many:5} {reason[:160]}")
    if found["code"] not in {0, 1}:
        print(found["noise"])
    return bool(holds)


def main() -> int:
    """Print what each folder costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help="names, or their first words; default: all"
    )
    parser.add_argument("--count", type=int, default=50, help="attacks of each kind")
    parser.add_argument("--good", type=int, default=1000, help="good files in each folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--level", default="numeric")
    parser.add_argument(
        "--limit", type=float, default=600.0, help="seconds after which a scan is ended"
    )
    parser.add_argument("--reasons", type=int, default=3, help="how many reasons are shown")
    parser.add_argument("--together", action="store_true", help="all kinds in one folder")
    parser.add_argument(
        "--folder", default=None, help="where to write the data; removed afterwards"
    )
    options = parser.parse_args()
    kinds = [
        name
        for name in KINDS
        if not options.kinds or any(name.startswith(k) for k in options.kinds)
    ]
    folders = [[name] for name in kinds]
    if options.together:
        folders = [
            part
            for flag in (True, False)
            if (part := [n for n in kinds if n.startswith("companion") == flag])
        ]
    held = [trial(part, options) for part in folders]
    print(f"{sum(held)} of {len(held)} hold")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
