"""NumPy files."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile

import numpy as np
from corpus.put import RNG, put


def saved(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def header(text: str, body: bytes = b"", version: int = 1) -> bytes:
    raw = text.encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes([version, 0]) + size + raw + body


def described(descr: str, shape: str, body: bytes = b"", **more) -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}", body, **more)


def grasps() -> dict:
    return {
        "grasp_qpos": RNG.normal(size=(5, 23)).astype("f4"),
        "obj_pose": np.array([0, 0, 0, 1, 0, 0, 0.0]),
    }


def npy() -> None:
    points = RNG.normal(size=(7, 3)).astype("f4")
    put("npy/y_points.npy", saved(points))
    put("npy/y_fortran.npy", saved(np.asfortranarray(points)))
    put("npy/y_big_endian.npy", saved(points.astype(">f8")))
    put("npy/y_scalar.npy", saved(np.float64(2.5)))
    put("npy/y_no_rows.npy", saved(np.empty((0, 3), "i4")))
    put("npy/y_complex.npy", saved(np.array([1 + 2j, 3 - 4j])))
    put("npy/y_strings.npy", saved(np.array(["mug", "bowl"])))
    put(
        "npy/y_structured.npy",
        saved(np.array([(1.5, 2), (3.5, 4)], dtype=[("x", "<f4"), ("id", "<i8")])),
    )
    put("npy/y_version_2.npy", described("'<i2'", "(3,)", b"\1\0\2\0\3\0", version=2))
    put("npy/y_python_2_longs.npy", described("'<i2'", "(3L,)", b"\1\0\2\0\3\0"))
    put("npy/y_grasps.npy", saved(np.array(grasps(), dtype=object)))
    put("npy/y_captions.npy", saved(np.array(["a cup", None, "two cups"], dtype=object)))
    put("npy/n_8_tib.npy", described("'<f8'", f"({1 << 40},)"))
    put("npy/n_overflow.npy", described("'<f8'", f"({1 << 32}, {1 << 32})"))
    put("npy/n_negative.npy", described("'<f8'", "(-1,)"))
    put("npy/n_trailing.npy", saved(points) + b"more")
    put("npy/n_truncated.npy", saved(points)[:-5])
    put("npy/n_no_header.npy", saved(points)[:9])
    put("npy/n_empty.npy", b"")
    put("npy/n_magic.npy", b"NUMPY" + saved(points))
    put("npy/n_version_9.npy", b"\x93NUMPY\x09" + saved(points)[7:])
    put("npy/n_no_bytes_per_item.npy", described("'|S0'", f"({1 << 50},)"))
    put("npy/n_call_in_header.npy", described("'<f8'", "(__import__('os').getpid(),)"))
    put("npy/n_long_header.npy", header("#" * 20_000, version=2))
    put("npy/n_deep_header.npy", header("(" * 4000 + ")" * 4000))
    put("npy/n_system.npy", described("'|O'", "()", b"cos\nsystem\n(S'true'\ntR."))
    put("npy/n_lfs.npy", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n")


def npz() -> None:
    def zipped(members: dict[str, bytes], kind=zipfile.ZIP_DEFLATED) -> bytes:
        stream = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", kind) as archive:
            warnings.simplefilter("ignore")
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name.rstrip("#")), data, kind)
        return stream.getvalue()

    a, b = saved(np.arange(6).reshape(2, 3)), saved(np.array([0.5, -1.5], "f4"))
    good = zipped({"acts.npy": a, "obs.npy": b})
    put("npz/y_plain.npz", zipped({"acts.npy": a, "obs.npy": b}, zipfile.ZIP_STORED))
    put("npz/y_compressed.npz", good)
    put(
        "npz/y_structured.npz",
        zipped({"points.npy": saved(np.zeros(3, [("x", "f4"), ("red", "u1")]))}),
    )
    put(
        "npz/y_objects.npz",
        zipped({"infos.npy": saved(np.array([{"a": 1}, None], object)), "obs.npy": b}),
    )
    put("npz/n_bomb.npz", zipped({"x.npy": described("'|u1'", f"({80 << 20},)") + bytes(80 << 20)}))
    put("npz/n_parent.npz", zipped({"../x.npy": a}))
    put("npz/n_absolute.npz", zipped({"/etc/x.npy": a}))
    put("npz/n_drive.npz", zipped({"C:x.npy": a}))
    put("npz/n_backslash.npz", zipped({"..\\x.npy": a}))
    put("npz/n_twice.npz", zipped({"x.npy": a, "x.npy#": b}))
    put("npz/n_nested.npz", zipped({"x.npz": good}))
    put("npz/n_truncated.npz", good[:-30])
    stored = bytearray(zipped({"acts.npy": a}, zipfile.ZIP_STORED))
    stored[stored.index(a) + len(a) - 1] ^= 1
    put("npz/n_checksum.npz", bytes(stored))
    put("npz/n_member.npz", zipped({"x.npy": a[:-1]}))
    put(
        "npz/n_system.npz",
        zipped({"x.npy": described("'|O'", "()", b"cos\nsystem\n(S'true'\ntR.")}),
    )
