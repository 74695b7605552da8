"""Files of torch.save have the values that PyTorch loads from them, and nothing of theirs is run."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
import torch

from datacheck.errors import FormatError
from tests.formats.reading import CORPUS, read_all

TORCH = CORPUS / "torch"


def loaded(path) -> dict:
    return torch.load(path, weights_only=False)  # a file of this repository


@pytest.mark.parametrize("name", ["y_state.pt", "y_old.pth"])
def test_tensors_are_those_that_pytorch_loads(name):
    found, wanted = read_all(TORCH / name), loaded(TORCH / name)
    wanted |= {f"net/{key}": value for key, value in wanted.pop("net").items()}
    for key, value in wanted.items():
        if key == "complex":
            assert np.array_equal(found[key], torch.view_as_real(value).numpy())
        elif isinstance(value, torch.Tensor):
            tensor = value.detach().float() if value.dtype == torch.bfloat16 else value.detach()
            assert np.array_equal(found[key], tensor.numpy()), key
            assert found[key].dtype == tensor.numpy().dtype
    assert found["numpy"].tolist() == [0, 1, 2]
    assert (found["text"], found["device"], found["type"]) == ("a cup", "cpu", "float32")
    assert found["size"].tolist() == [4, 6]


def test_a_tuple_of_tensors_has_its_places_for_names():
    found, wanted = read_all(TORCH / "y_cloud.pth"), loaded(TORCH / "y_cloud.pth")
    assert list(found) == ["0", "1", "2"]
    assert all(
        np.array_equal(found[str(place)], tensor.numpy()) for place, tensor in enumerate(wanted)
    )


def test_a_lone_tensor_or_array_is_called_array():
    assert np.array_equal(
        read_all(TORCH / "y_tensor.pruned_init")["array"], np.arange(24).reshape(4, 6)
    )
    assert np.array_equal(read_all(TORCH / "y_numpy.init")["array"], np.arange(6).reshape(2, 3))


def test_a_class_of_pytorch_is_refused_as_one_that_runs_code():
    with pytest.raises(FormatError) as caught:
        read_all(TORCH / "n_module.pt")
    assert caught.value.code == "DC110"


@pytest.mark.parametrize("flips", range(20))
def test_a_flipped_bit_in_a_storage_is_told(tmp_path, flips):
    data = bytearray((TORCH / "y_tensor.pruned_init").read_bytes())
    at = data.index(np.arange(24, dtype="<f4").tobytes()) + 4 * flips
    data[at] ^= 1
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(FormatError, match="CRC"):
        read_all(tmp_path / "x.pt")


def test_what_pytorch_has_put_off_is_done(tmp_path):
    values = torch.complex(torch.zeros(5, 3), torch.arange(15.0).reshape(5, 3))
    tensors = {"neg": values.conj().imag, "both": values.conj().imag[1:], "plain": values.imag}
    assert tensors["neg"].is_neg()
    torch.save(tensors, tmp_path / "a.pt")
    torch.save({"conj": values.conj()}, tmp_path / "b.pt")
    found, wanted = read_all(tmp_path / "a.pt"), torch.load(tmp_path / "a.pt", weights_only=True)
    assert found["neg"].tolist() == (-torch.arange(15.0).reshape(5, 3)).tolist()
    for name in ("neg", "both", "plain"):
        assert np.array_equal(found[name], wanted[name].resolve_neg().numpy())
    wanted = torch.load(tmp_path / "b.pt", weights_only=True)["conj"].resolve_conj()
    assert np.array_equal(read_all(tmp_path / "b.pt")["conj"], torch.view_as_real(wanted).numpy())


def directories(raw):
    """Return members, directory and end of a zip without the records of zip64."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as read, zipfile.ZipFile(out, "w") as write:
        for name in read.namelist():
            write.writestr(zipfile.ZipInfo(name), read.read(name))
    data = out.getvalue()
    size, where = struct.unpack("<II", data[-10:-2])
    return data[:where], data[where : where + size], data[-22:]


def saved(value):
    out = io.BytesIO()
    torch.save({"x": torch.full((5,), value)}, out)
    return out.getvalue()


@pytest.mark.parametrize("behind", [b"", b"\0" * 64, b"more"])
def test_a_zip_of_which_pytorch_may_read_another_directory_is_refused(tmp_path, behind):
    """Python looks for the directory in front of its end, PyTorch at the offset that the end says."""
    members, directory, end = directories(saved(1.0))
    others, other, _ = directories(saved(2.0))
    path = tmp_path / "a.pt"
    path.write_bytes(members + directory + end)
    assert read_all(path)["x"].tolist() == [1.0] * 5
    path.write_bytes(members + directory + others + other + end + behind)
    with pytest.raises(FormatError):
        read_all(path)
    if not behind:
        assert torch.load(path, weights_only=True)["x"].tolist() == [1.0] * 5


def test_a_zip_with_records_of_zip64_has_one_directory(tmp_path):
    raw = saved(3.0)
    assert raw[-42:-38] == b"PK\6\7"
    (tmp_path / "a.pt").write_bytes(raw)
    assert read_all(tmp_path / "a.pt")["x"].tolist() == [3.0] * 5
    # How many members, where the directory is, where this record is
    for place in (-98 + 32, -98 + 48, -42 + 8):
        changed = bytearray(raw)
        changed[place] ^= 1
        (tmp_path / "b.pt").write_bytes(changed)
        with pytest.raises(FormatError):
            read_all(tmp_path / "b.pt")


def test_two_members_that_are_one_to_pytorch_are_refused(tmp_path):
    members, directory, end = directories(saved(1.0))
    path = tmp_path / "a.pt"
    path.write_bytes(members + directory + end)
    with zipfile.ZipFile(path, "a") as archive:
        (name,) = [one for one in archive.namelist() if one.endswith("/data/0")]
        archive.writestr(name.replace("/data/", "/DATA/"), archive.read(name))
    with pytest.raises(FormatError, match="two members of one name"):
        read_all(path)


def test_a_zip_of_two_roots_is_refused(tmp_path):
    """PyTorch takes the root of the first member, and its data.pkl in whatever case."""
    members, directory, end = directories(saved(1.0))
    path = tmp_path / "a.pt"
    path.write_bytes(members + directory + end)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in held.items():
            archive.writestr(name.replace("data.pkl", "DATA.PKL"), data)
            archive.writestr(f"{name.partition('/')[0]}/inner/{name.partition('/')[2]}", data)
    with pytest.raises(FormatError, match=r"no file of torch\.save"):
        read_all(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
        archive.writestr("other/data/0", b"")
    with pytest.raises(FormatError, match="two roots"):
        read_all(path)


def test_a_storage_that_the_directory_lost_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"a": torch.arange(3)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a/data/lost", b"x" * 100)
        archive.filelist.pop()
    with pytest.raises(FormatError, match=r"bytes at byte \d+ belong to no member"):
        read_all(path)
