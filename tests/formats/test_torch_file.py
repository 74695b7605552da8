"""Files of torch.save have the values that PyTorch loads from them, and nothing of theirs is run."""

from __future__ import annotations

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
    assert all(np.array_equal(found[str(place)], tensor.numpy()) for place, tensor in enumerate(wanted))


def test_a_lone_tensor_or_array_is_called_array():
    assert np.array_equal(read_all(TORCH / "y_tensor.pruned_init")["array"], np.arange(24).reshape(4, 6))
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
