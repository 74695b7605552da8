"""TFRecord: features have the values that the published formats say, and each checksum is looked at."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats import tfrecord
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all

RLDS = CORPUS / "tfrecord/y_rlds.tfrecord-00000-of-00001"
STEPS = np.arange(12, dtype="f4").reshape(6, 2) / 4


def tensor(*sizes):
    return {
        "tensor": {
            "shape": {"dimensions": [str(n) for n in sizes]} if sizes else {},
            "dtype": "float32",
        }
    }


def test_features_of_records_are_flat_where_nothing_says_their_shape():
    found = read_all(RLDS)
    assert np.array_equal(found["000000000000/steps/action"], STEPS.ravel())
    assert np.array_equal(found["000000000001/steps/action"], STEPS[:4].ravel())
    assert found["000000000000/steps/count"].tolist() == [0, 1, 127, 128, -1, 1 << 62]
    assert found["000000000000/steps/is_last"].tolist() == [0, 0, 0, 0, 0, 1]
    assert found["000000000001/steps/language"] == ["a cup"] * 4
    assert found["000000000001/metadata/path"] == "café"


def test_features_json_beside_them_says_their_shape(tmp_path):
    shutil.copy(RLDS, tmp_path)
    steps = {"action": tensor(2), "reward": tensor(), "count": tensor(5)}  # 5 does not divide 6
    said = {
        "featuresDict": {
            "features": {"steps": {"sequence": {"feature": {"featuresDict": {"features": steps}}}}}
        }
    }
    (tmp_path / "features.json").write_text(json.dumps(said))
    found = read_all(tmp_path / RLDS.name)
    assert np.array_equal(found["000000000000/steps/action"], STEPS)
    assert (
        found["000000000000/steps/reward"].shape == found["000000000000/steps/count"].shape == (6,)
    )


@pytest.mark.parametrize("said", ["", "[]", "{", '{"featuresDict": {"features": {"steps": 3}}}'])
def test_a_features_json_that_says_nothing_leaves_the_records_as_they_are(tmp_path, said):
    shutil.copy(RLDS, tmp_path)
    (tmp_path / "features.json").write_text(said)
    assert np.array_equal(
        read_all(tmp_path / RLDS.name)["000000000000/steps/action"], STEPS.ravel()
    )


def test_pictures_are_told_as_passed_over():
    with open_container(RLDS) as container:
        assert container.keys() == ["000000000000", "000000000001"]
        assert (container.passed, container.opaque) == (["steps/image"], True)
        with pytest.raises(FormatError, match="bytes that are no text"):
            container.read("000000000000/steps/image")


def test_each_flipped_bit_is_told(tmp_path):
    data = RLDS.read_bytes()
    for at in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[at] ^= 4
        (tmp_path / "x.tfrecord").write_bytes(flipped)
        with pytest.raises(FormatError):
            read_all(tmp_path / "x.tfrecord")


@pytest.mark.parametrize("values", [1, 2])
def test_an_entry_with_two_values_is_none(values):
    """Protocol buffers merge them, so other readers see other numbers."""

    def part(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    floats = part(2, part(1, np.float32([1, 2]).tobytes()))  # a Feature of a FloatList
    example = part(1, part(1, part(1, b"x") + part(2, floats) * values))
    if values == 1:
        assert tfrecord._features(example) == {"x": floats}
        return
    with pytest.raises(FormatError):
        tfrecord._features(example)


@pytest.mark.parametrize("document", ['{"splits": [{"name": "tr', "", "\xff"])
def test_a_damaged_dataset_info_json_in_the_folder_of_a_file_is_a_fault_of_the_file(
    tmp_path, document
):
    path = tmp_path / "toy-train.tfrecord-00000-of-00001"
    path.write_bytes(RLDS.read_bytes())
    (tmp_path / "dataset_info.json").write_text('{"name": "toy"}')
    assert read_all(path)
    (tmp_path / "dataset_info.json").write_bytes(document.encode("latin1"))
    with pytest.raises(FormatError, match=r"dataset_info.json in its folder cannot be read"):
        read_all(path)
