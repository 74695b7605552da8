"""Arrow IPC: columns have the values that pyarrow reads, whole and in part, from files and from streams."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all

ARROW = CORPUS / "arrow"
GOOD = ["y_file.arrow", "y_stream.arrow", "y_lz4.arrow", "y_zstd.feather"]


@pytest.mark.parametrize("name", GOOD)
def test_columns_are_those_that_pyarrow_reads(name):
    data = (ARROW / name).read_bytes()
    table = (ipc.open_stream if name == "y_stream.arrow" else ipc.open_file)(data).read_all()
    found = read_all(ARROW / name)
    for column in ("state", "action", "done", "half"):
        assert np.array_equal(found[column], np.array(table[column].to_pylist()))
    assert (found["state"].dtype, found["action"].dtype, found["half"].dtype) == ("f8", "f4", "f2")
    for column in ("task", "ragged", "label"):
        assert found[column] == table[column].to_pylist()
    assert found["time"].tolist() == list(range(6))
    assert "picture" not in found


@pytest.mark.parametrize("name", GOOD)
def test_rows_of_a_part_are_those_of_the_whole(name):
    whole = read_all(ARROW / name)["state"]
    with open_container(ARROW / name) as container:
        assert container.sliced("state") == 6
        assert container.seek_points("state").tolist() == ([0] if name == "y_zstd.feather" else [0, 4])
        for start, stop in ((3, 5), (0, 2), (4, 6), (2, 2)):
            assert np.array_equal(container.read_rows("state", start, stop), whole[start:stop])


def test_bytes_are_told_as_passed_over():
    with open_container(ARROW / "y_file.arrow") as container:
        assert (container.passed, container.opaque) == (["picture"], True)
        with pytest.raises(FormatError, match="picture: values of type binary"):
            container.read("picture")


def test_a_file_cut_anywhere_is_refused(tmp_path):
    data = (ARROW / "y_file.arrow").read_bytes()
    for size in range(1, len(data), 7):
        (tmp_path / "x.arrow").write_bytes(data[:size])
        with pytest.raises(FormatError):
            read_all(tmp_path / "x.arrow")


def test_a_large_column_is_read_over_many_batches(tmp_path):
    numbers = np.random.default_rng(0).normal(size=10_000)
    feather.write_feather(pa.table({"x": numbers}), tmp_path / "x.feather", chunksize=300)
    with open_container(tmp_path / "x.feather") as container:
        parts = [container.read_rows("x", at, at + 1000) for at in range(0, 10_000, 1000)]
    assert np.array_equal(np.concatenate(parts), numbers)
