"""Large memory begins at a cache line."""

import numpy as np
import pytest

from datacheck.runtime.aligned import empty


@pytest.mark.parametrize("dtype", ["uint8", "<f4", ">i8", "bool", "<c16"])
@pytest.mark.parametrize("shape", [(0,), (3,), (0, 5), (64, 4096, 6), (1 << 16,), (1, 123_457), ()])
def test_an_array_is_as_that_of_numpy_and_a_large_one_begins_at_a_line(shape, dtype):
    for _ in range(5):
        found, expected = empty(shape, dtype), np.empty(shape, dtype)
        assert (found.shape, found.dtype, found.nbytes) == (
            expected.shape,
            expected.dtype,
            expected.nbytes,
        )
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found.nbytes < 1 << 16 or found.ctypes.data % 64 == 0


def test_arrays_do_not_share_memory():
    arrays = [empty((1 << 17,), "uint8") for _ in range(4)]
    for i, array in enumerate(arrays):
        array[:] = i
    assert [set(array.tolist()) for array in arrays] == [{0}, {1}, {2}, {3}]


def test_numpy_alone_begins_elsewhere():
    """The control: were malloc's memory aligned, this module would do nothing."""
    held = [np.empty((1 << 20) + 16 * i, np.uint8) for i in range(64)]
    assert any(array.ctypes.data % 64 for array in held)
