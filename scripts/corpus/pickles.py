"""Pickles: HO3D frames of every protocol, and what an attacker would write."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import zlib

import numpy as np
from corpus.put import RNG, put


def frame() -> dict:
    return {
        "camIDList": ["0", "1"],
        "camMat": np.eye(3),
        "handJoints3D": RNG.normal(size=(21, 3)),
        "handPose": RNG.normal(size=48),
        "handVertContact": np.array([True, False]),
        "objCorners3D": np.asfortranarray(RNG.normal(size=(8, 3))),
        "objLabel": 3,
        "objName": "010_potted_meat_can",
        "scale": np.float32(0.5),
        "objRot": None,
    }


def honest() -> None:
    meta = frame()
    for protocol in (0, 2, 3, 4, 5):
        put(f"pickle/y_ho3d_{protocol}.pkl", pickle.dumps(meta, protocol))
    put("pickle/y_ho3d_python_2.pkl", python_2_pickle())
    put(
        "pickle/y_nested.pkl",
        pickle.dumps({"metainfo": {"name": "x"}, "data": [{"box": [1, 2]}, {"box": []}]}, 4),
    )
    put("pickle/y_array.pkl", pickle.dumps(np.arange(5), 4))
    put("pickle/y_structured.pkl", pickle.dumps({"p": np.zeros(2, [("x", "f4"), ("n", "u1")])}, 2))


def hostile() -> None:
    meta = frame()
    put("pickle/n_system.pkl", b"cos\nsystem\n(S'touch hacked'\ntR.")
    put("pickle/n_builtins_eval.pkl", b"c__builtin__\neval\n(S'1'\ntR.")
    put("pickle/n_dotted.pkl", b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tolist\x93.")
    put("pickle/n_numpy_builtins.pkl", b"cnumpy\n__builtins__\n.")
    put("pickle/n_distutils.pkl", b"cnumpy.distutils.exec_command\nexec_command\n(S'true'\ntR.")
    put("pickle/n_extension.pkl", b"\x80\x02\x82\x01.")
    put("pickle/n_persistent.pkl", b"Pfile\n.")
    put("pickle/n_instance.pkl", b"(ios\nsystem\n.")
    huge = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1099511627776\ntS'b'\ntR."
    put("pickle/n_huge_reconstruct.pkl", huge)
    put("pickle/n_call_ndarray.pkl", b"cnumpy\nndarray\n((I1099511627776\nttR.")
    put("pickle/n_build_on_function.pkl", b"\x80\x02c_codecs\nencode\nN}U\x08__code__Ns\x86b.")
    put(
        "pickle/n_size_mismatch.pkl",
        python_2_pickle().replace(b"K\x03K\x03\x86", b"K\x03K\x04\x86", 1),
    )
    put("pickle/n_truncated.pkl", pickle.dumps(meta, 4)[:-40])
    put("pickle/n_trailing.pkl", pickle.dumps(meta, 4) + b"\0\0")
    put("pickle/n_empty.pkl", b"")
    laughs: list = ["ha"]
    for _ in range(12):
        laughs = [laughs] * 9
    put("pickle/n_laughs.pkl", pickle.dumps({"a": laughs}, 4))
    circle: list = []
    circle.append(circle)
    put("pickle/n_circle.pkl", pickle.dumps({"a": circle}, 4))
    put("pickle/n_memo.pkl", b"\x80\x02r\xff\xff\xff\x7f.")
    put("pickle/n_long_text.pkl", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.")
    put(
        "pickle/n_object.pkl",
        b"\x80\x02ccopy_reg\n_reconstructor\n(c__main__\nA\nc__builtin__\nobject\nNtR.",
    )


def python_2_pickle() -> bytes:
    """A HO3D meta pickle as Python 2's cPickle wrote it: protocol 2, bytes as `str` (SHORT_BINSTRING)."""

    def short(raw: bytes) -> bytes:
        return b"U" + bytes([len(raw)]) + raw

    def array(values: np.ndarray) -> bytes:
        shape = b"".join(b"K" + bytes([n]) for n in values.shape) + (
            b"\x86" if values.ndim == 2 else b"\x85"
        )
        dtype = b"cnumpy\ndtype\n" + short(b"f8") + b"K\x00K\x01\x87R(K\x03" + short(b"<") + b"NNN"
        dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        start = (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
            + short(b"b")
            + b"\x87R"
        )
        raw = values.astype("<f8").tobytes()
        data = short(raw) if len(raw) < 256 else b"T" + struct.pack("<I", len(raw)) + raw
        return start + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"

    camera = np.arange(9.0).reshape(3, 3)
    joints = np.linspace(-0.2, 0.2, 63).reshape(21, 3)
    items = short(b"camMat") + array(camera) + short(b"handJoints3D") + array(joints)
    items += short(b"objName") + short(b"010_caf\xe9") + short(b"objRot") + b"N"
    data = b"\x80\x02}(" + items + b"u."
    pickletools.dis(data, io.StringIO())
    return data


def wrapped(array: np.ndarray, *, aligned: bool = True, inner: bytes = b"") -> bytes:
    """Return how joblib writes an array inside a pickle: a wrapper's state, then the numbers.

    Args:
        array: to write.
        aligned: numbers begin at a multiple of 16 bytes somewhere; a byte says how many are passed
            over.
        inner: what stands in place of the numbers (a pickle, of an array of objects).
    """
    state = {"shape": array.shape, "order": "C", "dtype": array.dtype, "allow_mmap": not inner}
    state |= {"numpy_array_alignment_bytes": 16} if aligned else {}
    parts = [pickle.dumps(part, 2)[2:-1] for entry in state.items() for part in entry]
    named = b"X\x08\x00\x00\x00subclasscnumpy\nndarray\n"
    numbers = (bytes([3]) + bytes(3) if aligned and not inner else b"") + (inner or array.tobytes())
    return (
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}("
        + named
        + b"".join(parts)
        + b"ub"
        + numbers
    )


def joblib(**entries: bytes) -> bytes:
    named = [pickle.dumps(name, 2)[2:-1] + data for name, data in entries.items()]
    return b"\x80\x02}(" + b"".join(named) + b"u."


def appended() -> None:
    """Arrays behind their wrappers, as joblib writes them."""
    dof, root = np.arange(12, dtype="f4").reshape(4, 3), np.arange(4, dtype="<i8")
    names = np.array(["a", "b"], object)
    whole = joblib(
        dof=wrapped(dof),
        root=wrapped(root, aligned=False),
        fps=b"K\x1e",
        none=wrapped(np.zeros((0, 3))),
        names=wrapped(names, inner=pickle.dumps(names, 2)),
    )
    put("pickle/y_joblib.pkl", whole)
    put("pickle/y_joblib_zlib.pkl", zlib.compress(whole, 3))
    put("pickle/n_joblib_cut.pkl", joblib(dof=wrapped(dof))[:-20])
    put("pickle/n_joblib_zlib_cut.pkl", zlib.compress(whole, 3)[:-9])
    put(
        "pickle/n_joblib_system.pkl",
        joblib(names=wrapped(names, inner=b"cos\nsystem\n(S'touch hacked'\ntR.")),
    )
    put("pickle/n_joblib_nested.pkl", joblib(names=wrapped(names, inner=wrapped(dof))))
    huge = joblib(dof=wrapped(dof)).replace(b"K\x04K\x03\x86", b"J\xff\xff\xff\x7fK\x03\x86")
    put("pickle/n_joblib_huge.pkl", huge)
    put("pickle/n_joblib_bomb.pkl", zlib.compress(bytes(300 << 20), 9)[:90_000])
