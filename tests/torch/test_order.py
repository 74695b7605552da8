"""The order of an epoch: an exact, uniform bijection that no process has to remember."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.torch.order import MAX_EPOCH, MAX_ITEMS, Order, pack, unpack

FROZEN = [0, 9, 7, 1, 5, 2, 6, 8, 4, 3]  # a change of the order is a change of the state's version


@given(
    st.integers(0, MAX_EPOCH),
    st.lists(st.integers(0, MAX_ITEMS - 1), max_size=5),
    st.integers(-(2**30), 2**40 - 1),
)
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


# ------------------------------------------------------------------------------------ the bijection


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, MAX_EPOCH))
def test_every_item_has_exactly_one_position(n, seed, epoch):
    order = Order(n, seed)
    whole = order.items(epoch, np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    backwards = np.arange(n)[::-1]
    assert (order.items(epoch, backwards) == whole[backwards]).all()
    assert order.items(epoch, np.array([n // 2])).tolist() == [whole[n // 2]]


@given(st.integers(1, 400), st.integers(1, 60), st.integers(1, 6), st.integers(0, 99))
def test_blocks_and_pools_leave_no_item_out(n, block, pool, epoch):
    order = Order(n, 3, blocks=block, pool=pool)
    whole = order.items(epoch, np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    assert order.items(epoch, np.arange(n)[::-1]).tolist() == whole.tolist()[::-1]


def test_threads_may_share_an_order_each_in_its_own_epoch():
    class Interrupted(Order):
        """Another thread comes in between, with another epoch."""

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "_last" and value is not None and value[0] == 0:
                self.items(1, np.arange(10))

    whole = Order(100, 3, blocks=7, pool=2).items(0, np.arange(100))
    assert Interrupted(100, 3, blocks=7, pool=2).items(0, np.arange(100)).tolist() == whole.tolist()


def test_a_trillion_items_need_no_memory():
    n = MAX_ITEMS - 1
    first = Order(n, 0).items(0, np.arange(1000))
    assert len(set(first.tolist())) == 1000
    assert 0 <= first.min() < n / 100
    assert n - n / 100 < first.max() < n


def test_the_order_is_the_same_in_another_process_and_another_year():
    assert Order(10, 0).items(0, np.arange(10)).tolist() == FROZEN


def test_seed_and_epoch_matter_and_without_shuffling_neither_does():
    whole = np.arange(1000)
    first = Order(1000, 0).items(0, whole)
    assert (first == Order(1000, 0).items(1, whole)).sum() < 10  # one in a thousand stays by chance
    assert (first == Order(1000, 1).items(0, whole)).sum() < 10
    for epoch in (0, 5):
        assert Order(1000, 7, shuffle=False).items(epoch, whole).tolist() == list(range(1000))


# ------------------------------------------------------------------------------------------ uniform


def too_far(counts: np.ndarray) -> bool:
    """Say whether counts that should be equal are not: chi-square, beyond what one seed in a million gives."""
    expected = counts.sum() / counts.size
    return bool(chi2_far(((counts - expected) ** 2 / expected).sum(), counts.size - 1))


def chi2_far(statistic: float, freedom: int) -> bool:
    third = 2 / (9 * freedom)  # Wilson and Hilferty: the cube root is normal
    return bool(((statistic / freedom) ** (1 / 3) - (1 - third)) / third**0.5 > 4.75)


def test_the_test_of_uniformity_sees_a_fault():
    draws = np.random.default_rng(0).integers(0, 10, 5000)
    assert not too_far(np.bincount(draws, minlength=10))
    assert too_far(np.bincount(np.append(draws, np.full(150, 3)), minlength=10))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_permutations_of_a_few_items_are_equally_frequent(n):
    order, whole = Order(n, 11), np.arange(n)
    seen = Counter(tuple(order.items(epoch, whole).tolist()) for epoch in range(3000))
    counts = [seen[p] for p in permutations(range(n))]
    assert sum(counts) == 3000
    assert not too_far(np.array(counts))


@pytest.mark.parametrize(
    ("n", "block"), [(6, None), (8, None), (9, None), (16, None), (17, None), (33, None), (20, 3)]
)
def test_items_and_pairs_of_items_are_uniform_over_positions(n, block):
    order, whole, epochs = Order(n, 5, blocks=block, pool=2), np.arange(n), 2500
    at, pair = np.zeros((n, n)), np.zeros((n, n))
    for epoch in range(epochs):
        items = order.items(epoch, whole)
        at[whole, items] += 1
        pair[items[0], items[n // 2]] += 1
    assert not too_far(at[0])
    assert not too_far(at[n // 2])
    # rows and columns sum to the number of epochs, which leaves (n - 1)^2 degrees of freedom
    assert not chi2_far(((at - epochs / n) ** 2 / (epochs / n)).sum() * (n - 1) / n, (n - 1) ** 2)
    if block is None:
        assert not too_far(pair[~np.eye(n, dtype=bool)])


@pytest.mark.parametrize("n", [100, 1000, 2048, 5000])
def test_thousands_of_items_are_uniform_over_positions_and_pairs(n):
    order, whole, cells = Order(n, 1), np.arange(n), 10
    at, pair, later = (np.zeros((cells, cells)) for _ in range(3))
    for epoch in range(60):
        items = order.items(epoch, whole)
        tens = items * cells // n
        np.add.at(at, (whole * cells // n, tens), 1)
        np.add.at(pair, (tens[:-1], tens[1:]), 1)
        np.add.at(later, (tens, order.items(epoch + 1, whole) * cells // n), 1)
    for counts in (at, pair, later):
        assert not too_far(counts)


# ---------------------------------------------------------------------------------- blocks, weights


def test_a_stretch_of_positions_touches_the_blocks_of_two_pools_only():
    def most_blocks(order):
        blocks = order.items(6, np.arange(1030)) // 10
        return max(len(set(blocks[at : at + 30].tolist())) for at in range(1000))

    assert 4 < most_blocks(Order(1030, 2, blocks=10, pool=4)) <= 8
    assert most_blocks(Order(1030, 2)) > 20
    first, second = (
        Order(1030, 2, blocks=10, pool=4).items(epoch, np.arange(1030)).tolist() for epoch in (6, 7)
    )
    assert first != second


def test_a_pool_of_all_blocks_shuffles_everything():
    order, cells = Order(400, 9, blocks=40, pool=10), np.zeros((10, 10))
    for epoch in range(60):
        items = order.items(epoch, np.arange(400)) // 40
        np.add.at(cells, (items[:-1], items[1:]), 1)
    # neighbours are of one block as often as in a full shuffle: 39 of 399 pairs
    same = np.trace(cells) / cells.sum()
    assert abs(same - 39 / 399) < 5 * (39 / 399 / cells.sum()) ** 0.5


def test_how_often_neighbours_share_a_block_is_what_the_docs_say():
    n, block, pool = 8000, 20, 8
    items = np.concatenate(
        [Order(n, 0, blocks=block, pool=pool).items(e, np.arange(n)) // block for e in range(5)]
    )
    same = (items[:-1] == items[1:]).mean()
    expected = (block - 1) / (block * pool - 1)  # within a pool; in a full shuffle 19 in 7,999
    assert abs(same - expected) < 5 * (expected / len(items)) ** 0.5 + 1 / (block * pool)


def test_items_are_drawn_as_often_as_their_weights_say():
    weights = [0.0, 1, 3, 0, 6, 0]
    draws = Order(6, 4, weights=weights, samples=20_000).items(3, np.arange(20_000))
    counts = np.bincount(draws, minlength=6)
    assert counts[[0, 3, 5]].tolist() == [0, 0, 0]
    expected = np.array([2000, 6000, 12000])
    assert not chi2_far(((counts[[1, 2, 4]] - expected) ** 2 / expected).sum(), 2)
    scaled = Order(6, 4, weights=np.array(weights) * 1e300, samples=20_000)
    assert scaled.items(3, np.arange(20_000)).tolist() == draws.tolist()


def test_draws_by_weight_are_independent_of_one_another():
    pairs = np.zeros((4, 4))
    order = Order(4, 0, weights=np.ones(4), samples=4000)
    for epoch in range(5):
        draws = order.items(epoch, np.arange(4000))
        np.add.at(pairs, (draws[:-1], draws[1:]), 1)
    assert not too_far(pairs)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n": 0}, "items=0 is no whole number from 1"),
        ({"seed": -1}, "seed=-1 is no whole number from 0"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"weights": [1, np.nan, 1]}, "1 are negative or not finite, the first at item 1: nan"),
        ({"weights": [1, 1, -2.0]}, "the first at item 2: -2.0"),
        ({"weights": [0, 0, 0]}, "all 3 are 0"),
        ({"weights": [1, 1]}, r"weights of shape \(2,\); one per item is wanted: \(3,\)"),
        ({"weights": ["a", "b", "c"]}, "one number per item"),
        ({"weights": [1, 1, 1], "blocks": 2}, "exclude each other"),
        ({"weights": [1, 1, 1], "shuffle": False}, "weights say how to shuffle"),
        ({"weights": [1, 1, 1], "samples": 0}, "samples=0"),
        ({"samples": 5}, "samples=5 is for weights"),
        ({"blocks": 0}, "block=0 is no whole number from 1"),
        ({"blocks": np.array([1, 2])}, "rise from 0 to below 3"),
        ({"blocks": 2, "pool": 0}, "pool=0"),
        ({"blocks": 2, "shuffle": False}, "blocks say how to shuffle"),
    ],
)
def test_bad_parameters_are_refused_in_words(wrong, said):
    with pytest.raises(UsageError, match=said):
        Order(**({"n": 3, "seed": 0} | wrong))


def test_equal_orders_have_equal_digests_and_others_have_not():
    orders = [
        Order(9, 0),
        Order(8, 0),
        Order(9, 1),
        Order(9, 0, shuffle=False),
        Order(9, 0, blocks=3),
        Order(9, 0, blocks=3, pool=2),
        Order(9, 0, blocks=4),
        Order(9, 0, weights=np.ones(9)),
        Order(9, 0, weights=np.arange(9)),
        Order(9, 0, weights=np.ones(9), samples=4),
    ]
    assert len({order.digest for order in orders}) == len(orders)
    assert Order(9, 0, weights=np.full(9, 2.0)).digest == orders[7].digest
    assert Order(9, 0, blocks=np.array([0, 3, 6])).digest == orders[4].digest
