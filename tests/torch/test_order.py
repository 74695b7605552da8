"""The order of an epoch: an exact, uniform bijection that no process has to remember."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.torch.order import MAX_EPOCH, MAX_ITEMS, pack, unpack


@given(st.integers(0, MAX_EPOCH), st.lists(st.integers(0, MAX_ITEMS - 1), max_size=5), st.integers(-(2**30), 2**40 - 1))
def test_epoch_and_item_come_back_from_one_number(epoch, items, plain):
    packed = pack(epoch, np.array(items, dtype=np.int64))
    assert packed.tolist() == [(epoch + 1) * 2**40 + item for item in items]
    epochs, back = unpack(np.append(packed, plain), 77)
    assert epochs.tolist() == [epoch] * len(items) + [77]
    assert back.tolist() == [*items, plain]


@pytest.mark.parametrize("epoch", [-1, MAX_EPOCH + 1, 0.5, True, None])
def test_an_epoch_that_is_none_is_refused_in_words(epoch):
    with pytest.raises(UsageError, match=r"epoch=.* is no whole number from 0 to 8388606"):
        pack(epoch, np.arange(3))
