"""Files of torch.save, as PyTorch writes them, and as an attacker would."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import torch
from corpus.put import put

X = torch.arange(24, dtype=torch.float32).reshape(4, 6)


def saved(value: object, *, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


def rezipped(data: bytes, **members: bytes | None) -> bytes:
    """Return a file with other bytes in members, None for one that is left out; names without what stands above."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for info in old.infolist():
            inner = members.get(
                info.filename.partition("/")[2].replace("/", "_").replace(".", "_"), old.read(info)
            )
            if inner is not None:
                new.writestr(info.filename, inner)
    return stream.getvalue()


def good() -> None:
    state = {
        "plain": X,
        "turned": X.t(),
        "part": X[1:3, 2:5],
        "brain": X.bfloat16(),
        "half": X.half(),
        "mask": X > 3,
        "complex": torch.complex(X, X),
        "none": torch.zeros(0, 3),
        "number": torch.tensor(3),
        "numpy": np.arange(3),
        "spread": torch.ones(1).expand(5, 5),
        "weight": torch.nn.Parameter(X),
        "size": X.shape,
        "text": "a cup",
        "net": torch.nn.Linear(3, 2).state_dict(),
        "device": torch.device("cpu"),
        "type": torch.float32,
    }
    put("torch/y_state.pt", saved(state | {"counts": torch.arange(4).to(torch.uint16)}))
    put("torch/y_old.pth", saved(state, zipped=False))
    put("torch/y_cloud.pth", saved((X[:, :3], X[:, 3:], torch.arange(4))))
    put("torch/y_tensor.pruned_init", saved(X))
    put("torch/y_numpy.init", saved(np.arange(6.0).reshape(2, 3)))
    put("torch/y_pickle.pth", pickle.dumps({"x": np.arange(3)}, 2))


def bad() -> None:
    whole, old = saved({"x": X}), saved({"x": X}, zipped=False)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        inner = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
    put("torch/n_module.pt", saved(torch.nn.Linear(2, 2)))
    put("torch/n_cut.pt", whole[: len(whole) // 2])
    put("torch/n_old_cut.pth", old[:-30])
    put("torch/n_old_more.pth", old + b"x")
    put("torch/n_no_pickle.pt", rezipped(whole, data_pkl=None))
    put("torch/n_no_storage.pt", rezipped(whole, data_0=None))
    put("torch/n_short_storage.pt", rezipped(whole, data_0=bytes(92)))
    put("torch/n_system.pt", rezipped(whole, data_pkl=b"cos\nsystem\n(S'touch hacked'\ntR."))
    put("torch/n_order.pt", rezipped(whole, byteorder=b"middle"))
    put(
        "torch/n_bounds.pt",
        rezipped(whole, data_pkl=inner.replace(b"K\x04K\x06\x86", b"K\x05K\x06\x86")),
    )
    put(
        "torch/n_stride.pt",
        rezipped(whole, data_pkl=inner.replace(b"K\x06K\x01\x86", b"K\xffK\x01\x86")),
    )
    huge = inner.replace(b"K\x04K\x06\x86", b"J\xff\xff\xff\x7fK\x06\x86").replace(
        b"K\x06K\x01\x86", b"K\x00K\x00\x86"
    )
    put("torch/n_bomb.pt", rezipped(whole, data_pkl=huge))
    put(
        "torch/n_storage_is_text.pt",
        rezipped(whole, data_pkl=inner.replace(b"torch\nFloatStorage", b"torch\nfloat32")),
    )
    put("torch/n_text.pt", b"not a file of this kind\n")
    put("torch/n_empty.pt", b"")
