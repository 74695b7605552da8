"""HDF5 files and Zarr stores."""

from __future__ import annotations

import json

import h5py
import numpy as np
import zarr
from corpus.put import OUT, put


def new(name: str) -> h5py.File:
    path = OUT / "hdf5" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return h5py.File(path, "w")


def hdf5_good() -> None:
    with new("y_demos.hdf5") as f:
        f.create_group("data").attrs.update(
            {"env_args": json.dumps({"env_name": "Lift"}), "total": 9}
        )
        for i, steps in ((0, 4), (1, 5)):
            demo = f.create_group(f"data/demo_{i}")
            demo.attrs.update({"num_samples": steps, "init_state": np.zeros(3)})
            demo["actions"] = np.full((steps, 7), 0.25)
            demo.create_dataset(
                "obs/agentview_rgb", data=np.zeros((steps, 4, 4, 3), "u1"), compression="gzip"
            )
        f["mask/train"] = np.array([b"demo_0"])
    with new("y_types.hdf5") as f:
        f["bool"] = np.array([True, False])
        f["half"] = np.float16([1, 2])
        f["big"] = np.arange(3, dtype=">i4")
        f["complex"] = np.array([1 + 2j])
        f["text"] = "a mug"
        f["texts"] = ["a", "b\u00e9"]
        f["fixed"] = np.array([b"ab", b"c"])
        f["jpeg"] = np.array([b"\xff\xd8\xff\xe0", b"\xff\xd8"], dtype="S4")
        f["compound"] = np.array(
            [(1.5, b"x", (1, 2))],
            [("real", "f4"), ("tag", "S2"), ("p.q", [("a", "i4"), ("b", "i4")])],
        )
        enum = h5py.enum_dtype({"RED": 0, "BLUE": 2}, basetype="u1")
        f.create_dataset("enum", data=np.array([0, 2], "u1"), dtype=enum)
        ragged = f.create_dataset("images", (2,), dtype=h5py.vlen_dtype(np.uint8))
        ragged[0], ragged[1] = np.array([1, 2, 3], "u1"), np.array([4], "u1")
        f["empty"] = h5py.Empty("f4")
        f["no_rows"] = np.empty((0, 3))
        f["reference"] = np.array([f["bool"].ref], dtype=h5py.ref_dtype)
        f["opaque"] = np.zeros(2, "V3")
        f.create_dataset(
            "filtered",
            data=np.arange(100),
            chunks=(10,),
            compression="lzf",
            shuffle=True,
            fletcher32=True,
        )
    with new("y_links.hdf5") as f:
        f["a/x"] = np.arange(3)
        f["b"] = h5py.SoftLink("/a/x")
        f["c"] = f["a"]
        f["a/up"] = f["/"]
        f["a/rel"] = h5py.SoftLink("x")
    with new("y_nothing.hdf5"):
        pass


def hdf5_bad() -> None:
    with new("n_external_link.hdf5") as f:
        f["x"] = h5py.ExternalLink("y_demos.hdf5", "/data/demo_0/actions")
    with new("n_external_storage.hdf5") as f:
        f.create_dataset("x", (4,), "u1", external=[("/etc/hostname", 0, 4)])
    with new("n_virtual.hdf5") as f:
        layout = h5py.VirtualLayout((4, 7), "f8")
        layout[:] = h5py.VirtualSource("y_demos.hdf5", "data/demo_0/actions", (4, 7))
        f.create_virtual_dataset("x", layout)
    with new("n_petabyte.hdf5") as f:
        f.create_dataset("x", (1 << 50,), "u1", chunks=(1 << 20,))
    with new("n_no_storage.hdf5") as f:
        f.create_dataset("x", (1 << 30,), "u1", chunks=(1 << 20,))
    with new("n_huge_chunk.hdf5") as f:
        f.create_dataset("x", (1,), "f8", maxshape=(None,), chunks=(1 << 28,))
    with new("n_filter.hdf5") as f:
        f.create_dataset("x", data=np.arange(20), chunks=(20,), scaleoffset=0)
    with new("n_dangling.hdf5") as f:
        f["ok"] = 1
        f["x"] = h5py.SoftLink("/nowhere")
    with new("n_soft_circle.hdf5") as f:
        f["x"] = h5py.SoftLink("/y")
        f["y"] = h5py.SoftLink("/x")
    good = (OUT / "hdf5/y_demos.hdf5").read_bytes()
    put("hdf5/n_truncated.hdf5", good[: len(good) // 2])
    put("hdf5/n_text.hdf5", b"not a file of this kind\n")
    put("hdf5/n_lfs.hdf5", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n")


V2 = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<i2",
    "compressor": None,
    "filters": None,
}
V2 |= {"fill_value": 0, "order": "C"}
CHUNKS = {"0": b"\1\0\2\0", "1": b"\3\0\4\0"}


def written(name: str, files: dict[str, object]) -> None:
    for inner, data in files.items():
        put(f"zarr/{name}/{inner}", data if isinstance(data, bytes) else json.dumps(data).encode())


def zarr_good() -> None:
    folder = OUT / "zarr"
    folder.mkdir(parents=True, exist_ok=True)

    for version in (2, 3):
        group = zarr.open_group(folder / f"y_replay_v{version}.zarr", mode="w", zarr_format=version)
        group.attrs["fps"] = 10
        group.create_array("data/action", data=np.arange(12.0).reshape(6, 2), chunks=(4, 2))
        group.create_array("meta/episode_ends", data=np.array([2, 6]), chunks=(2,))
    zarr.create_array(
        folder / "y_sharded.zarr",
        data=np.arange(16, dtype="u2"),
        chunks=(4,),
        shards=(8,),
        overwrite=True,
    )
    zarr.create_array(
        folder / "y_fill.zarr", shape=(4,), chunks=(2,), dtype="f4", fill_value=1.5, overwrite=True
    )
    written(
        "y_structured.zarr",
        {".zarray": V2 | {"dtype": [["x", "<i2"]], "fill_value": "AAA="}, **CHUNKS},
    )


def zarr_bad() -> None:
    written(
        "n_pickle_codec.zarr",
        {".zarray": V2 | {"dtype": "|O", "filters": [{"id": "pickle"}]}, **CHUNKS},
    )
    written("n_unknown_codec.zarr", {".zarray": V2 | {"compressor": {"id": "zfpy"}}, **CHUNKS})
    written("n_no_fill.zarr", {".zarray": V2 | {"fill_value": None}, "0": b"\1\0\2\0"})
    written(
        "n_misplaced.zarr", {".zarray": V2 | {"shape": [2, 2], "chunks": [2, 2]}, "0/0": bytes(8)}
    )
    written("n_huge.zarr", {".zarray": V2 | {"shape": [1 << 50], "chunks": [1 << 20]}, **CHUNKS})
    written("n_huge_chunk.zarr", {".zarray": V2 | {"chunks": [1 << 50]}, **CHUNKS})
    written("n_many_chunks.zarr", {".zarray": V2 | {"shape": [1 << 26], "chunks": [1]}, **CHUNKS})
    written("n_short_chunk.zarr", {".zarray": V2, "0": b"\1", "1": b"\3\0\4\0"})
    written("n_text.zarr", {".zarray": b"not json"})
    written("n_negative.zarr", {".zarray": V2 | {"shape": [-4]}, **CHUNKS})
    written(
        "n_draft.zarr",
        {"zarr.json": {"zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0"}},
    )
