"""YAML: the safe loader's values, and no document that is far larger than its text."""

from __future__ import annotations

import time

import numpy as np
import pytest
import yaml

from datacheck.errors import FormatError
from tests.formats.reading import CORPUS, read_all


def test_databases_and_label_tables():
    (record,) = read_all(CORPUS / "yaml/y_database.yaml")["records"]
    assert record["filepath"] == "data/scene0000_00.npy"
    assert record["color_mean"] == [0.5, 0.25, 0.1]
    labels = read_all(CORPUS / "yaml/y_labels.yaml")
    assert labels["0"] == {"name": "wall", "color": [1, 2, 3]}
    assert labels["1"] == labels["2"] == {"name": "floor"}
    assert labels["day"] == "2024-05-06"


def test_merged_keys_and_numbers_that_json_does_not_have():
    values = read_all(CORPUS / "yaml/y_merge.yaml")
    assert values["more"] == {"x": 1, "y": 3}
    np.testing.assert_array_equal(values["mean"], [np.nan, 1])
    assert read_all(CORPUS / "yaml/y_nothing.yaml") == {}


def test_honest_aliases_are_not_counted_as_a_bomb(tmp_path):
    shared = [1.0, 2.0, 3.0]
    records = [{"mean": shared, "i": i} for i in range(3000)]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(records))
    assert (tmp_path / "a.yaml").read_text().count("*id001") == 2999
    assert read_all(tmp_path / "a.yaml")["records"] == records


@pytest.mark.parametrize("name", ["laughs", "merge_laughs", "circle", "deep"])
def test_bombs_end_at_once(name):
    start = time.process_time()
    with pytest.raises(FormatError):
        read_all(CORPUS / f"yaml/n_{name}.yaml")
    assert time.process_time() - start < 2
