import json
import math

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.runtime.hashing import (
    canonical_json,
    digest_array,
    digest_bytes,
    digest_file,
    digest_rows,
    digest_sample,
    digest_value,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_the_digest_of_nothing_is_the_published_xxh3_vector():
    assert digest_bytes(b"") == "99aa06d3014798d86001c324468d497f"


@given(json_values)
def test_canonical_json_reads_back_and_is_its_own_canonical_form(value):
    once = canonical_json(value)
    try:
        text = once.decode()
    except UnicodeDecodeError:
        return  # lone surrogates: canonical bytes exist, JSON text does not
    assert canonical_json(json.loads(text)) == once


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(mapping):
    backwards = dict(reversed(list(mapping.items())))
    assert digest_value(mapping) == digest_value(backwards)


@pytest.mark.parametrize(
    "value", [{1, 2}, frozenset(), object(), b"x", {1: 2}, np.zeros(2), {"a": {3}}]
)
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(TypeError, match="canonical"):
        canonical_json(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf]])
def test_numbers_that_json_cannot_write_are_refused(value):
    with pytest.raises(ValueError, match="canonical"):
        canonical_json(value)


def test_minus_zero_is_zero():
    assert canonical_json(-0.0) == b"0.0"


@given(
    hnp.arrays(hnp.floating_dtypes(sizes=(32, 64), endianness="<"), hnp.array_shapes(max_dims=3))
)
def test_memory_layout_and_byte_order_do_not_change_an_arrays_digest(array):
    assert digest_array(np.asfortranarray(array)) == digest_array(array)
    assert digest_array(array.astype(array.dtype.newbyteorder(">"))) == digest_array(array)


def test_shape_dtype_and_values_change_an_arrays_digest():
    base = np.arange(6, dtype=np.int32)
    others = [base.reshape(2, 3), base.astype(np.int64), base + 1, base[:5]]
    assert len({digest_array(a) for a in [base, *others]}) == 5


def test_a_files_digest_is_that_of_its_bytes(tmp_path):
    data = bytes(range(256)) * 9000  # more than two read pieces
    (tmp_path / "x").write_bytes(data)
    assert digest_file(tmp_path / "x") == xxhash.xxh3_128_hexdigest(data)


def test_fields_of_a_sample_are_framed_so_that_bytes_cannot_move_between_them():
    a, b = np.array([1, 2], np.uint8), np.array([3], np.uint8)
    c, d = np.array([1], np.uint8), np.array([2, 3], np.uint8)
    assert digest_sample([("x", a), ("y", b)]) != digest_sample([("x", c), ("y", d)])
    assert digest_sample([("x", a), ("y", b)]) != digest_sample([("y", a), ("x", b)])


@given(
    count=st.integers(1, 5),
    forms=st.lists(
        st.tuples(
            st.sampled_from(["<f4", "<i8", "|u1", "|b1", "<f2"]),
            st.lists(st.integers(0, 3), max_size=3),
        ),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 9),
)
def test_the_digest_of_many_samples_is_that_of_each_of_them_framed_by_hand(count, forms, seed):
    rng = np.random.Generator(np.random.Philox(seed))
    fields = [
        (f"f{i}", rng.integers(0, 2, (count, *item)).astype(dtype))
        for i, (dtype, item) in enumerate(forms)
    ]
    framed = [
        b"".join(
            f"{name}\0{array.dtype.str}\0{','.join(map(str, array.shape[1:]))}\0".encode()
            + array[i].tobytes()
            for name, array in fields
        )
        for i in range(count)
    ]
    assert digest_rows(fields).tolist() == [xxhash.xxh3_64_intdigest(whole) for whole in framed]
