"""safetensors: every value as the library reads it, parts of tensors, and damage that it refuses, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all

torch = pytest.importorskip("torch")
library = pytest.importorskip("safetensors.torch")

FOLDER = CORPUS / "safetensors"


def expected(tensor):
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def test_values_are_those_of_the_library():
    theirs = library.load_file(FOLDER / "y_state.safetensors")
    ours = read_all(FOLDER / "y_state.safetensors")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], expected(tensor))
        assert ours[name].dtype == expected(tensor).dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parts_of_a_large_tensor(tmp_path: Path, dtype: str):
    """Above 16 MiB a tensor is mapped."""
    x = torch.arange(5_000_000).reshape(-1, 5).to(getattr(torch, dtype))
    library.save_file({"a": torch.ones(3), "x": x}, tmp_path / "x.safetensors")
    container = open_container(tmp_path / "x.safetensors")
    assert container.sliced("x") == 1_000_000
    assert container.peek("x") == ((1_000_000, 5), "<f4")
    np.testing.assert_array_equal(container.read("x"), x.float().numpy())
    for start, stop in ((0, 2), (777_777, 777_780), (999_999, 1_000_005), (5, 5)):
        rows = container.read_rows("x", start, stop)
        np.testing.assert_array_equal(rows, x[start:stop].float().numpy())


def test_a_type_that_is_not_read_leaves_the_others_readable(tmp_path: Path):
    x = torch.arange(6.0)
    library.save_file({"a": x.to(torch.float8_e5m2), "b": x}, tmp_path / "x.safetensors")
    container = open_container(tmp_path / "x.safetensors")
    assert container.names() == ["a", "b"]
    np.testing.assert_array_equal(container.read("b"), x.numpy())
    with pytest.raises(FormatError, match="F8_E5M2 are not read"):
        container.read("a")


def test_what_the_library_refuses_is_refused():
    """All but a type, a shape without values and a long name, which its files may have."""
    may_be_valid = {"n_float8", "n_wide", "n_name"}
    accepted = set()
    for path in FOLDER.glob("n_*"):
        try:
            library.load(path.read_bytes())
            accepted.add(path.stem)
        except Exception:  # noqa: BLE001  the library raises its own error, and others
            continue
    assert accepted <= may_be_valid
