"""Ways to damage a document: its bytes, its values, its arrays, its columns, or what lies in its place."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Damage = Callable[[Path, Random], str]  # returns what was done

ODD: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    4,
    300,
    0.5,
    -1e308,
    1e308,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**40,
    "",
    "x",
    "x" * 5000,
    "\x1b[31m\u202e",
    "a\0b",
    "../../etc/passwd",
    "/etc/passwd",
    [],
    {},
    [[]],
    [None],
    [1, "a", {}],
    {"a": 1},
    {"": []},
]
DTYPES = ["i1", "<i4", "<i8", ">i8", "u8", "f2", "f8", "c16", "S1", "S32", "U4", "?"]
ROWS = 30_000_000


_DEEP = "nested, "


def dumped(value: Any) -> bytes:
    """Return JSON in which texts like "nested, 300" are lists that deep."""
    text = json.dumps(value)
    return re.sub(
        f'"{_DEEP}(\\d+)"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), text
    ).encode()


# -------------------------------------------------------------------------------------------- bytes


def flip(path: Path, rng: Random) -> str:
    data = bytearray(path.read_bytes())
    places = [rng.randrange(len(data)) for _ in range(rng.choice([1, 1, 2, 8, 64]))]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"bits flipped at {places[:4]}"


def cut(path: Path, rng: Random) -> str:
    data = path.read_bytes()
    size = rng.choice([0, 1, len(data) - 1, rng.randrange(len(data)), rng.randrange(len(data))])
    path.write_bytes(data[:size])
    return f"cut to {size} bytes"


def overwritten(path: Path, rng: Random) -> str:
    data = bytearray(path.read_bytes())
    start, size = rng.randrange(len(data)), rng.choice([1, 4, 8, 64, 512])
    data[start : start + size] = rng.choice([b"\0", b"\xff", b"[", b'"', b"9"]) * min(
        size, len(data) - start
    )
    path.write_bytes(data)
    return f"{size} bytes overwritten at {start}"


def longer(path: Path, rng: Random) -> str:
    data = path.read_bytes()
    start = rng.randrange(len(data))
    path.write_bytes(data[:start] + data[: rng.choice([1, 100, len(data)])] + data[start:])
    return f"its beginning inserted at {start}"


BYTES = [flip, cut, overwritten, longer]


# --------------------------------------------------------------------------------------------- JSON


def paths_in(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [here, *(path for key, one in inner for path in paths_in(one, (*here, key)))]


def changed(value: Any, rng: Random) -> tuple[Any, str]:
    """Return a JSON value with one change, and which."""
    where = rng.choice(paths_in(value))
    if not where:
        return rng.choice([*ODD, f"{_DEEP}100000"]), "another document"
    place = value
    for key in where[:-1]:
        place = place[key]
    how = rng.randrange(8)
    if how == 0 and isinstance(place, dict):
        del place[where[-1]]
        return value, f"{where} removed"
    if how == 1 and isinstance(place, list):
        place[:] = place * rng.choice([2, 100])
        return value, f"{where[:-1]} repeated"
    if how == 2:
        other = rng.choice(paths_in(value))
        found = value
        for key in other:
            found = found[key]
        place[where[-1]] = json.loads(json.dumps(found))
        return value, f"{where} is {other}"
    place[where[-1]] = (
        f"{_DEEP}{rng.choice([70, 300, 1000, 100_000])}" if how == 3 else rng.choice(ODD)
    )
    return value, f"{where} is {str(place[where[-1]])[:40]!r}"


def json_changed(path: Path, rng: Random) -> str:
    value, said = changed(json.loads(path.read_bytes()), rng)
    path.write_bytes(dumped(value))
    return said


def json_large(path: Path, rng: Random) -> str:
    size = rng.choice([1, 4, 30])
    what = rng.choice([b"[],", b"{},", b"1,", b'"a",'])
    path.write_bytes(b"[" + what * (size * 1_000_000 // len(what)) + b"1]")
    return f"{size} MB of {what!r}"


def line_changed(path: Path, rng: Random) -> str:
    lines = path.read_bytes().split(b"\n")
    place = rng.randrange(max(1, len(lines) - 1))
    try:
        value, said = changed(json.loads(lines[place]), rng)
    except ValueError:
        return flip(path, rng)
    lines[place] = dumped(value)
    path.write_bytes(b"\n".join(lines))
    return f"line {place}: {said}"


JSON = [*BYTES, json_changed, json_changed, json_changed, json_changed, json_large]
LINES = [*BYTES, line_changed, line_changed, line_changed, json_large]


# --------------------------------------------------------------------------------------------- YAML

SAID = [
    "checks: [canary:touch]",
    "extends: /etc/passwd",
    "extends: ../other.yaml",
    "extends: files",
    "tokenizer: {path: /etc/passwd}",
    "tokenizer: {path: ../../..}",
    "roots: {more: /etc}",
    "roots: {more: }",
    "episode: {fps: 1e308}",
    "splits: {key: '(x+x+)+y'}",
    "samples: {files: '{a:(x+x+)+y}.npy'}",
    "rules: {DC201: off}",
    "fields: {x: {role: points}}",
    "fields: {x: {role: joints, shape: [99999999, 3]}}",
    "name: ../../x",
    "datacheck: 2",
    "when: {split=a: {x: absent}}",
    "loader: {voxel: 1e-300}",
    "duplicates: {near: 0.5}",
    "columns: a:9999999",
]


def yaml_changed(path: Path, rng: Random) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    said = rng.choice(SAID)
    how = rng.randrange(4)
    if how == 0:
        lines.append(said)
    elif how == 1:
        head = said.partition(":")[0]
        lines = [line for line in lines if not line.startswith(f"{head}:")] + [said]
    elif how == 2:
        del lines[rng.randrange(len(lines))]
    else:
        lines.append(f"{'a' * 10}: {'[' * rng.choice([5, 20, 100_000])}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{said} ({how})"


YAML = [*BYTES, yaml_changed, yaml_changed, yaml_changed]


# ---------------------------------------------------------------------------------------------- npz


def npz_changed(path: Path, rng: Random) -> str:
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    name = rng.choice(list(arrays))
    array, how = arrays[name], rng.randrange(6)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = array.reshape(-1).view(np.uint8)[: array.size].astype(rng.choice(DTYPES))
    elif how == 2:
        arrays[name] = np.concatenate([array, array]) if array.ndim else np.zeros(3)
    elif how == 3:
        arrays[name] = array[: array.shape[0] // 2] if array.ndim else array.reshape(1, 1)
    elif how == 4 and array.dtype.kind == "i" and array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([-1, 2**31 - 1, 10**6, -(2**31)])
    else:
        head, said = changed(json.loads(arrays["head"].tobytes()), rng)
        arrays["head"] = np.frombuffer(dumped(head), np.uint8)
        name, how = f"head {said}", 5
    file = io.BytesIO()
    np.savez(file, **arrays)
    path.write_bytes(file.getvalue())
    return f"{name} ({how})"


def npz_bomb(path: Path, rng: Random) -> str:
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    name = rng.choice(list(arrays))
    if rng.randrange(2):
        file = io.BytesIO()
        np.savez_compressed(file, **arrays | {name: np.zeros(200_000_000, np.uint8)})
        path.write_bytes(file.getvalue())
        return f"{name} of 200 MB, compressed"
    head = io.BytesIO()
    shape = rng.choice([(10**12,), (10**9, 10**9), (0, 10**18), (-1, 5), (2**63,)])
    np.lib.format.write_array_header_1_0(
        head, {"descr": rng.choice(["<i8", "|S0", "|u1"]), "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w") as made:
        for one, array in arrays.items():
            data = io.BytesIO()
            np.save(data, array)
            made.writestr(f"{one}.npy", head.getvalue() if one == name else data.getvalue())
    return f"{name} says that its shape is {shape}"


NPZ = [*BYTES, npz_changed, npz_changed, npz_changed, npz_bomb]


# ------------------------------------------------------------------------------------------ Parquet


def parquet_changed(path: Path, rng: Random) -> str:
    table = pq.read_table(path)
    names, how = table.column_names, rng.randrange(8)
    place = rng.randrange(len(names))
    name, rows = names[place], len(table)
    other: Any = rng.choice(
        [
            pa.array(["a"] * rows),
            pa.nulls(rows, pa.int64()),
            pa.nulls(rows, pa.string()),
            pa.array([1.5] * rows),
            pa.array([2**63 - 1] * rows),
            pa.array([[1, 2]] * rows),
            pa.array([b"\xff"] * rows),
            pa.array([True] * rows),
            pa.array([[1.0] * 3] * rows, pa.list_(pa.float64(), 3)),
            pa.array([{"a": 1}] * rows),
            pa.nulls(rows),
        ]
    )
    if how == 0:
        table = table.drop_columns([name])
    elif how <= 3:
        table = table.set_column(place, name, other)
    elif how == 4:
        table = table.rename_columns(
            [*names[:place], rng.choice(["", "key", "x:y:z", ":"]), *names[place + 1 :]]
        )
    elif how == 5:
        table = (
            pa.concat_tables([table] * rng.choice([2, 5]))
            if rng.randrange(2)
            else table.slice(0, rows // 2)
        )
    elif how == 6:
        said = rng.choice([b"", b"{}", b"[]", b'{"files_are_keys": 3, "codes": []}'])
        table = table.replace_schema_metadata({b"datacheck": said})
    else:
        table = table.take(list(reversed(range(rows))))
    pq.write_table(table, path, compression=rng.choice(["lz4", "none", "zstd", "snappy"]))
    return f"{name} ({how})"


def parquet_bomb(path: Path, rng: Random) -> str:
    table, count = pq.read_table(path), rng.choice([1_000_000, ROWS])
    empty = table.slice(0, 0)
    how = rng.choice(["lz4", "zstd"])
    with pq.ParquetWriter(path, table.schema, compression=how, use_dictionary=True) as writer:
        piece = pa.table(
            {
                column.name: pa.nulls(65_536, column.type)
                if column.name != "key"
                else pa.array(["k"] * 65_536)
                for column in empty.schema
            }
        )
        for _ in range(count // 65_536):
            writer.write_table(piece.cast(table.schema))
    return f"{count:,} rows of nothing ({how})"


PARQUET = [*BYTES, parquet_changed, parquet_changed, parquet_changed, parquet_bomb]


# ------------------------------------------------------------------------------------- in its place


def folder(path: Path, rng: Random) -> str:
    del rng
    path.unlink()
    path.mkdir()
    return "a folder"


def pipe(path: Path, rng: Random) -> str:
    del rng
    path.unlink()
    os.mkfifo(path)
    return "a pipe"


def device(path: Path, rng: Random) -> str:
    goal = rng.choice(["/dev/zero", "/dev/null", "/proc/self/mem", "/nowhere", path.name])
    path.unlink()
    path.symlink_to(goal)
    return f"a link to {goal}"


def sparse(path: Path, rng: Random) -> str:
    data, size = path.read_bytes(), rng.choice([1 << 30, 1 << 40])
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(size)
        if rng.randrange(2):  # the end is where a zip and a Parquet file begin to be read
            file.seek(size - len(data))
            file.write(data)
    return f"a sparse file of {size:,} bytes"


def listening(path: Path, rng: Random) -> str:
    del rng
    path.unlink()
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)
    return "a socket"


def swapped(path: Path, rng: Random) -> str:
    other = rng.choice(
        sorted(one for one in path.parent.iterdir() if one.is_file() and one != path) or [path]
    )
    data = other.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return f"what {other.name} holds"


def missing(path: Path, rng: Random) -> str:
    del rng
    path.unlink()
    return "missing"


PLACES: list[Damage] = [folder, pipe, device, sparse, sparse, listening, swapped, swapped, missing]


def copied(source: Path, goal: Path) -> None:
    shutil.rmtree(goal, ignore_errors=True)
    shutil.copytree(source, goal, symlinks=True)
