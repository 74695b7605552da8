import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.formats.limits import matching
from datacheck.model.sample import Column, Container, Origin, Peeked, Piece, stack


def piece(key, **fields):
    return Piece(key, fields, Origin(key))


lengths = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(lengths, st.sampled_from([(), (3,), (2, 2)]))
def test_a_column_gives_back_each_samples_rows(sizes, item):
    arrays = [np.random.default_rng(n).random((size, *item)) for n, size in enumerate(sizes)]
    column = Column.of(arrays)
    assert len(column) == len(sizes)
    for i, array in enumerate(arrays):
        np.testing.assert_array_equal(column[i], array)
        assert column.shape(i) == array.shape
    picked = column.take([len(sizes) - 1, 0])
    np.testing.assert_array_equal(picked[0], arrays[-1])
    np.testing.assert_array_equal(picked[1], arrays[0])


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(1, 3))))
def test_samples_of_one_length_stack_without_a_copy(array):
    column = Column.of(list(array))
    stacked = column.stacked()
    np.testing.assert_array_equal(stacked, array)
    assert stacked.size == 0 or np.shares_memory(stacked, column.values)


def test_samples_of_another_signature_lie_in_another_block():
    blocks = stack(
        [
            piece("a", x=np.zeros((2, 3)), t="hi"),
            piece("b", x=np.zeros((2, 4)), t="hi"),
            piece("c", x=np.ones((5, 3)), t="ho"),
            piece("d", x=np.zeros((2, 3))),
            piece("e", x=np.zeros((2, 3), np.float32), t=""),
        ]
    )
    assert [b.keys for b in blocks] == [["a", "c"], ["b"], ["d"], ["e"]]
    np.testing.assert_array_equal(blocks[0].fields["x"].lengths, [2, 5])
    assert blocks[0].fields["t"].objects == ["hi", "ho"]


def test_json_values_travel_as_canonical_text_and_come_back():
    chat = [{"role": "user", "content": "你好"}]
    (block,) = stack([piece("a", c=chat)])
    assert block[0].fields["c"] == chat
    assert bytes(block.fields["c"].values).decode() == '[{"content":"你好","role":"user"}]'


def test_a_part_of_a_field_is_a_view_and_a_single_column_loses_its_axis():
    column = Column.of([np.arange(10.0).reshape(2, 5), np.arange(5.0).reshape(1, 5)])
    np.testing.assert_array_equal(column.slice_items(1, 3)[1], [[1, 2]])
    np.testing.assert_array_equal(column.slice_items(4, 5)[0], [4, 9])
    assert np.shares_memory(column.slice_items(1, 3).values, column.values)


def test_a_part_of_vectors_without_rows_is_cut_from_each_sample():
    column = Column.of([np.arange(7.0), np.arange(10.0, 17.0)])
    pose = column.slice_items(3, 7)
    np.testing.assert_array_equal(pose.stacked(), [[3, 4, 5, 6], [13, 14, 15, 16]])
    assert column.slice_items(0, 1).lengths is None
    np.testing.assert_array_equal(column.slice_items(2, 3).values, [2, 12])


@given(
    lengths,
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from(["uint8", "float32"]),
    st.data(),
)
def test_what_was_peeked_at_stacks_as_the_values_would(lengths, item, dtype, data):
    real = Column.of([np.zeros((n, *item), dtype) for n in lengths])
    seen = Column.of([Peeked((n, *item), np.dtype(dtype)) for n in lengths])
    pick = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=4))
    for mine, other in ((real, seen), (real.take(pick), seen.take(pick))):
        assert other.peeked
        assert not mine.peeked
        assert (other.values.shape, other.values.dtype) == (mine.values.shape, mine.values.dtype)
        assert other.lengths.tolist() == mine.lengths.tolist()
        assert not any(other.values.strides)


def test_scalars_that_were_peeked_at_have_no_rows():
    seen = Column.of([Peeked((), np.dtype("f4"))] * 3)
    assert (len(seen), seen.lengths, seen.values.shape) == (3, None, (3,))


def test_a_part_of_a_peeked_column_is_peeked():
    whole = Column.of([Peeked((4, 7), np.dtype("f4"))])
    assert whole.slice_items(0, 3).peeked
    assert whole.slice_items(0, 3).shape(0) == (4, 3)
    assert whole.slice_items(6, 7).shape(0) == (4,)


def test_peeked_values_and_read_ones_do_not_share_a_block():
    pieces = [Piece("a", {"x": Peeked((2,), np.dtype("f4"))}, Origin("a"))]
    pieces.append(Piece("b", {"x": np.zeros(2, np.float32)}, Origin("b")))
    assert [block.keys for block in stack(pieces)] == [["a"], ["b"]]


def test_groups_match_level_by_level_and_no_pattern_takes_for_ever():
    class Named(Container):
        def names(self):
            return [
                "data/demo_1/x",
                "data/demo_1/y/z",
                "data/demo_10/x",
                "data/a[1]?/x",
                "data/demo_2",
                "a" * 5000 + "/x",
            ]

        def read(self, name):
            raise KeyError(name)

    assert Named().groups("/data/demo_*") == ["data/demo_1", "data/demo_10"]
    assert Named().groups("/data/a[1]?") == ["data/a[1]?"]
    assert Named().groups("*/*") == ["data/a[1]?", "data/demo_1", "data/demo_10"]
    assert Named().groups("*a" * 40 + "*b") == []
    assert matching("*a" * 40 + "*b", lambda path: ["a" * 5000], lambda path: True) == []
