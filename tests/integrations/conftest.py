"""A folder as a user's repository has it: data with a schema, of which one sample is broken."""

import numpy as np
import pytest

PLAIN = """
datacheck: 1
name: plain
samples: {files: "*.npy"}
fields:
  x: {role: value, shape: [4], range: -100..100}
"""


def write_data(folder):
    """Ten samples, of which 3.npy is broken, and plain.yaml beside them."""
    (folder / "data").mkdir()
    for i in range(10):
        np.save(
            folder / f"data/{i}.npy", np.random.default_rng(i).normal(size=4).astype(np.float32)
        )
    np.save(folder / "data/3.npy", np.array([1, np.nan, 2, 3], np.float32))
    (folder / "plain.yaml").write_text(PLAIN)
    return folder


@pytest.fixture
def place(tmp_path):
    return write_data(tmp_path)
