"""Others read a cache: a process with json and zarr, and one with struct and numpy; neither knows datacheck."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from datacheck.build.builder import build_cache
from datacheck.cache import layout
from tests.build.make import MIXED, job_of, mixed, schema_of

ZARR = """
import json, sys, warnings
import numpy as np
import zarr

folder, out = sys.argv[1:]
group = zarr.open_group(folder, mode="r")
assert group.attrs["datacheck"]["format"] == 1
fields, made = group["fields"], group["samples/made"][:]

def texts(name):
    start, length = group[f"rows/samples.{name}/start"][:], group[f"rows/samples.{name}/length"][:]
    data = group[f"samples/{name}"][:]
    return [bytes(data[a : a + n]).decode() for a, n in zip(start, length)]

def arrays(group, prefix=""):
    for name, member in sorted(group.members()):
        yield from arrays(member, prefix + name + "/") if isinstance(member, zarr.Group) else [(prefix + name, member)]

keys, saved = texts("key"), {}
for name, array in arrays(fields):
    dim = array.attrs["datacheck"]["dim"]
    if dim:
        start, length = group[f"rows/{dim}/start"][:], group[f"rows/{dim}/length"][:]
    for i, key in enumerate(keys):
        if made[i] and (not array.attrs["datacheck"]["optional"] or group[f"present/{name}"][i]):
            saved[f"{key}|{name}"] = array[start[i] : start[i] + length[i]] if dim else np.asarray(array[i])
np.savez(out, **saved)
assert not [name for name in sys.modules if name.startswith("datacheck")]
"""

# By hand, as docs/cache-format.md says it: JSON, struct, crc32c bit by bit, memory maps. No zarr.
BARE = """
import json, struct, sys
from pathlib import Path
import numpy as np

folder, out = Path(sys.argv[1]), sys.argv[2]

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

def array(path):
    said = json.loads((folder / path / "zarr.json").read_text())
    shape, chain = said["shape"], said["codecs"][0]["configuration"]
    shard, chunk = said["chunk_grid"]["configuration"]["chunk_shape"], chain["chunk_shape"]
    assert said["codecs"][0]["name"] == "sharding_indexed" and shard[1:] == chunk[1:] == shape[1:]
    dtype = np.dtype("bool" if said["data_type"] == "bool" else "<" + np.dtype(said["data_type"]).str[1:])
    fill = float("nan") if said["fill_value"] == "NaN" else said["fill_value"]
    whole, count, rows = np.full(shape, fill, dtype), shard[0] // chunk[0], chunk[0]
    for g in range(-(-shape[0] // shard[0])):
        raw = (folder / path / ".".join(["c", str(g), *["0"] * (len(shape) - 1)])).read_bytes()
        index = raw[-(count * 16 + 4) :]
        assert struct.unpack("<I", index[-4:])[0] == crc32c(index[:-4]), path
        for j, (offset, size) in enumerate(struct.iter_unpack("<QQ", index[:-4])):
            if offset != 2**64 - 1:
                first = g * shard[0] + j * rows
                values = np.frombuffer(raw[offset : offset + size], dtype).reshape(rows, *shape[1:])
                whole[first : first + rows] = values[: max(0, shape[0] - first)]
    return whole, said["attributes"].get("datacheck", {})

def texts(name):
    start, length = array(f"rows/samples.{name}/start")[0], array(f"rows/samples.{name}/length")[0]
    data = array(f"samples/{name}")[0]
    return [bytes(data[a : a + n]).decode() for a, n in zip(start, length)]

keys, made, saved = texts("key"), array("samples/made")[0], {}
for file in sorted((folder / "fields").rglob("zarr.json")):
    if json.loads(file.read_text())["node_type"] != "array":
        continue
    name = file.parent.relative_to(folder / "fields").as_posix()
    values, said = array(f"fields/{name}")
    if said["dim"]:
        start, length = array(f"rows/{said['dim']}/start")[0], array(f"rows/{said['dim']}/length")[0]
    has = array(f"present/{name}")[0] if said["optional"] else made
    for i, key in enumerate(keys):
        if has[i]:
            saved[f"{key}|{name}"] = values[start[i] : start[i] + length[i]] if said["dim"] else np.asarray(values[i])
np.savez(out, **saved)
assert not [name for name in sys.modules if name.startswith(("datacheck", "zarr"))]
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("independent")
    written = mixed(tmp / "data")
    whole = layout.SHARD_BYTES
    layout.SHARD_BYTES = 1 << 14
    try:
        built = build_cache(job_of(schema_of(MIXED), tmp / "data", invalid={"002.npz": ("DC201",)}), tmp / "out")
    finally:
        layout.SHARD_BYTES = whole
    return built.path, written


@pytest.mark.parametrize("script", [ZARR, BARE], ids=["zarr", "bare"])
def test_another_program_reads_the_same_values(cache, tmp_path, script):
    folder, written = cache
    out = tmp_path / "read.npz"
    line = [sys.executable, "-I", "-c", script, str(folder), str(out)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    with np.load(out) as read:
        assert sorted(read.files) == sorted(f"{key}|{name}" for key, sample in written.items() for name in sample)
        for key, sample in written.items():
            for name, value in sample.items():
                stored = read[f"{key}|{name}"]
                assert stored.dtype == value.dtype
                assert np.array_equal(stored, value), (key, name)


def test_every_document_is_canonical_json(cache):
    folder, _ = cache
    for path in folder.rglob("*.json"):
        text = path.read_text()
        assert text == json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")), path
