"""Read a cache with JSON, struct, NumPy and xxhash alone, as docs/cache-format.md says it, and hold it to every MUST.

    python read_by_hand.py CACHE OUT.npz

It knows neither datacheck nor Zarr. zstd frames are decompressed by pyarrow, which brings a library
of its own.
"""

import json
import struct
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import xxhash

ABSENT = 2**64 - 1


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def canonical(value):
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()


def check_files(folder):
    """Hold the manifest, and every file to it; return what it says."""
    said = json.loads((folder / "manifest.json").read_bytes())
    assert said["format"] == 1
    assert said["digest"] == xxhash.xxh3_128_hexdigest(
        canonical({k: v for k, v in said.items() if k != "digest"})
    )
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if not p.is_dir()}
    assert not any(path.is_symlink() for path in found.values())
    assert found.keys() - {"manifest.json", "build.json"} == said["files"].keys()
    for name, (size, digest) in said["files"].items():
        raw = found[name].read_bytes()
        assert (len(raw), xxhash.xxh3_128_hexdigest(raw)) == (size, digest), name
        if name.endswith(".json"):
            assert raw == canonical(json.loads(raw)), name
    for path in {parent for name in said["files"] for parent in Path(name).parents}:
        assert (folder / path / "zarr.json").is_file(), path
    return said


def decoded(stored, codecs, size):
    """Return an inner chunk."""
    if len(codecs) == 1:
        return stored
    assert [codec["name"] for codec in codecs] == ["bytes", "zstd"]
    assert codecs[1]["configuration"]["checksum"] is True
    return pa.decompress(stored, decompressed_size=size, codec="zstd", asbytes=True)


class Array:
    """One array: `values` of its whole shape, `chunks` the digest of every inner chunk, as found."""

    def __init__(self, folder, path):
        said = json.loads((folder / path / "zarr.json").read_text())
        (codec,) = said["codecs"]
        chain = codec["configuration"]
        self.shape, (self.shard, *item) = (
            said["shape"],
            said["chunk_grid"]["configuration"]["chunk_shape"],
        )
        self.chunk = chain["chunk_shape"][0]
        assert codec["name"] == "sharding_indexed"
        assert item == chain["chunk_shape"][1:] == self.shape[1:]
        assert said["chunk_key_encoding"] == {
            "name": "default",
            "configuration": {"separator": "."},
        }
        assert self.shard % self.chunk == 0
        self.dtype = np.dtype(
            "bool" if said["data_type"] == "bool" else said["data_type"]
        ).newbyteorder("<")
        self.type = said["data_type"]
        self.said = said["attributes"].get("datacheck", {})
        fill = {"NaN": float("nan")}.get(str(said["fill_value"]), said["fill_value"])
        self.fill = np.array(complex("nan+nanj") if isinstance(fill, list) else fill, self.dtype)
        self.values = np.full(self.shape, self.fill, self.dtype)
        self.chunks = []
        self.files = [
            ".".join([f"{path}/c", str(g), *["0"] * len(item)])
            for g in range(-(-self.shape[0] // self.shard))
        ]
        for g, file in enumerate(self.files):
            self.read(folder / file, g, chain["codecs"])
        self.chunks = self.chunks[: -(-self.shape[0] // self.chunk)]

    def read(self, file, g, codecs):
        raw, count = file.read_bytes(), self.shard // self.chunk
        index = raw[len(raw) - (count * 16 + 4) :]
        assert struct.unpack("<I", index[-4:])[0] == crc32c(index[:-4]), file
        end, absent = 0, False
        size = self.chunk * int(np.prod(self.shape[1:], dtype=int)) * self.dtype.itemsize
        for j, (offset, stored) in enumerate(struct.iter_unpack("<QQ", index[:-4])):
            if (offset, stored) == (ABSENT, ABSENT):
                absent = True
                self.chunks.append(0)
                continue
            assert not absent, f"{file}: a chunk behind an absent one"
            assert offset == end, f"{file}: chunk {j} does not lie behind the one before"
            end += stored
            rows = decoded(raw[offset:end], codecs, size)
            self.chunks.append(xxhash.xxh3_64_intdigest(rows))
            first = g * self.shard + j * self.chunk
            values = np.frombuffer(rows, self.dtype).reshape(self.chunk, *self.shape[1:])
            inside = max(0, self.shape[0] - first)
            self.values[first : first + self.chunk] = values[:inside]
            padding = values[inside:]
            assert padding.tobytes() == np.full_like(padding, self.fill).tobytes(), (
                f"{file}: padding is not fill"
            )
        assert end + len(index) == len(raw), file


class Cache:
    """A cache, held to the specification while it is read."""

    def __init__(self, folder):
        self.folder = folder
        self.manifest = check_files(folder)
        self.root = json.loads((folder / "zarr.json").read_text())["attributes"]["datacheck"]
        inputs = json.loads((folder / "inputs.json").read_text())
        assert self.root["format"] == 1
        assert (
            self.root["key"]
            == folder.name
            == xxhash.xxh3_128_hexdigest(canonical(inputs["said"]))[:16]
        )
        files = [Path(name) for name in self.manifest["files"] if name.endswith("/zarr.json")]
        nodes = {file.parent.as_posix(): json.loads((folder / file).read_text()) for file in files}
        self.arrays = {
            path: Array(folder, path)
            for path, said in nodes.items()
            if said["node_type"] == "array"
        }
        for path, array in self.arrays.items():
            if not path.startswith("digests/"):
                assert self.arrays[f"digests/{path}"].values.tolist() == array.chunks, path
        shards = [file for array in self.arrays.values() for file in array.files]
        documents = [
            "zarr.json",
            *(f"{path}/zarr.json" for path in nodes),
            "findings.json",
            "inputs.json",
            "sources.json",
        ]
        assert sorted([*shards, *documents]) == sorted(self.manifest["files"])
        self.samples = self.root["samples"]
        self.paths = {
            unquote(path[7:]): path[7:] for path in self.arrays if path.startswith("fields/")
        }
        self.fields = {name: self.arrays[f"fields/{path}"] for name, path in self.paths.items()}
        self.made, self.valid = (
            self.arrays[f"samples/{what}"].values for what in ("made", "valid")
        )
        assert not (self.valid & ~self.made).any()
        self.check_rows()
        self.keys = self.texts("key")
        assert all(a.encode() < b.encode() for a, b in pairwise(self.keys))
        findings = json.loads((folder / "findings.json").read_text())
        assert set(findings) == {
            key for key, ok in zip(self.keys, self.valid, strict=True) if not ok
        }
        self.check_content()

    def rows(self, dim):
        return (self.arrays[f"rows/{dim}/{what}"].values for what in ("start", "length"))

    def texts(self, what):
        start, length = self.rows(f"samples.{what}")
        data = self.arrays[f"samples/{what}"].values
        return [bytes(data[a : a + n]).decode() for a, n in zip(start, length, strict=True)]

    def check_rows(self):
        k = self.root["shard_samples"]
        for dim, r in self.root["dims"].items():
            start, length = self.rows(dim)
            for g in range(-(-self.samples // k)):
                part = slice(g * k, (g + 1) * k)
                assert (
                    start[part].tolist()
                    == (g * r + np.cumsum(length[part]) - length[part]).tolist()
                )
                assert length[part].sum() <= r
        for name, array in self.fields.items():
            dim = array.said["dim"]
            assert array.shape[0] == (
                self.samples if dim is None else -(-self.samples // k) * self.root["dims"][dim]
            )
            assert array.shard == (k if dim is None else self.root["dims"][dim]), name

    def sample(self, i):
        """Return the fields that sample `i` has, by name."""
        found = {}
        for name, array in sorted(self.fields.items()):
            if array.said["optional"] and not self.arrays[f"present/{self.paths[name]}"].values[i]:
                continue
            if array.said["dim"] is None:
                found[name] = np.asarray(array.values[i])
            else:
                start, length = self.rows(array.said["dim"])
                found[name] = array.values[start[i] : start[i] + length[i]]
        return found

    def check_content(self):
        digests = self.arrays["samples/digest"].values
        for i in range(self.samples):
            hasher = xxhash.xxh3_64()
            for name, value in self.sample(i).items():
                hasher.update(
                    f"{name}\0{value.dtype.str}\0{','.join(map(str, value.shape))}\0".encode()
                    + value.tobytes()
                )
            assert digests[i] == (hasher.intdigest() if self.made[i] else 0)
        fields = [
            [name, array.type, array.shape[1:]] for name, array in sorted(self.fields.items())
        ]
        keys = [key.encode() for key in self.keys]
        lengths = np.array([len(key) for key in keys], "<i8")
        whole = canonical(fields) + b"\0" + lengths.tobytes() + b"".join(keys) + digests.tobytes()
        assert self.manifest["content_root"] == xxhash.xxh3_128_hexdigest(whole)


def main(folder, out):
    cache = Cache(Path(folder))
    made = (i for i in range(cache.samples) if cache.made[i])
    np.savez(
        out,
        **{
            f"{cache.keys[i]}|{name}": value
            for i in made
            for name, value in cache.sample(i).items()
        },
    )
    assert not [name for name in sys.modules if name.startswith(("datacheck", "zarr", "numcodecs"))]


if __name__ == "__main__":
    main(*sys.argv[1:])
