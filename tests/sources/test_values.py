"""Values as blocks can hold them."""

import warnings

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis.extra import numpy as npst

from datacheck.errors import FormatError
from datacheck.model.sample import Container, value_bytes
from datacheck.schema.model import FieldSpec
from datacheck.sources.values import plain, read_value

ANY = FieldSpec()


def same(found, values, dtype):
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.dtype(dtype)
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, values)


def test_arrays_become_native_and_c_ordered():
    values = np.arange(6.0).reshape(2, 3)
    same(plain(values.astype(">f8"), ANY), values, "f8")
    same(plain(np.asfortranarray(values), ANY), values, "f8")
    same(plain(values[:, ::-1], ANY), values[:, ::-1], "f8")
    same(plain(np.array([1, 2], ">i2"), ANY), [1, 2], "i2")
    same(plain(np.array([True]), ANY), [True], "?")


def test_arrays_without_axes_stay_so():
    assert plain(np.array(3, ">i4"), ANY).shape == ()
    assert plain(np.float32(2), ANY).shape == ()
    assert plain(np.float32(2), ANY).dtype == np.float32


def test_text_arrays_become_text_and_lists():
    assert plain(np.array("mug"), ANY) == "mug"
    assert plain(np.array(b"caf\xc3\xa9"), ANY) == "café"
    assert plain(np.array(["a", "b"]), ANY) == ["a", "b"]
    assert plain(np.array([[b"a"], [b"b"]]), ANY) == [["a"], ["b"]]
    assert plain(b"mug", ANY) == "mug"


def test_dates_and_long_doubles_become_plain_numbers():
    same(plain(np.array(["1970-01-02"], "M8[s]"), ANY), [86400], "i8")
    same(plain(np.array([1.5], np.longdouble), ANY), [1.5], "f8")
    same(plain(np.array(["1970-01-02"], ">M8[s]"), ANY), [86400], "i8")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.array([{}, None], dtype=object), "type object"),
        (np.zeros(2, dtype=[("x", "f4"), ("y", "f4")]), "are not read"),
        (b"\xff\xfe", "not UTF-8"),
        ({"a": object()}, "only text, finite numbers"),
        (2**70, "type object"),
    ],
)
def test_what_is_no_value_is_refused(value, says):
    with pytest.raises(FormatError, match=says):
        plain(value, ANY)


def test_none_is_absent():
    assert plain(None, ANY) is None


def test_lists_become_arrays_where_numbers_are_declared():
    same(plain([[1, 2], [3, 4]], FieldSpec(role="joints")), [[1, 2], [3, 4]], "i8")
    same(plain([1.5, 2], FieldSpec(shape=(2,))), [1.5, 2.0], "f8")
    same(plain([1, 2], FieldSpec(dtype="float32")), [1, 2], "f4")
    same(plain([], FieldSpec(dtype="int32")), [], "i4")
    assert plain([1, 2], ANY) == [1, 2]
    assert plain([1, 2], FieldSpec(role="chat")) == [1, 2]


@pytest.mark.parametrize("value", [[[1, 2], [3]], [1, None], [1, "a"], ["a"], [{}]])
def test_lists_that_are_no_arrays_are_refused_where_numbers_are_declared(value):
    with pytest.raises(FormatError, match="list"):
        plain(value, FieldSpec(role="joints"))


def test_json_numbers_take_the_declared_dtype_where_they_fit():
    same(plain(3, FieldSpec(dtype="float32")), 3.0, "f4")
    # 300 does not fit: the dtype rule sees it
    same(plain([1, 300], FieldSpec(dtype="uint8")), [1, 300], "i8")
    same(plain([1, 200], FieldSpec(dtype="uint8")), [1, 200], "u1")
    same(plain([1.5], FieldSpec(dtype="int32")), [1.5], "f8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(plain([1e300], FieldSpec(dtype="float32")), [1e300], "f8")


def test_arrays_keep_the_dtype_that_the_file_has():
    same(plain(np.array([1], "i4"), FieldSpec(dtype="float32")), [1], "i4")


def test_text_and_json_roles_keep_what_is_there():
    assert plain("hi", FieldSpec(role="text")) == "hi"
    assert plain(5, FieldSpec(role="text")) == 5
    assert plain([{"role": "user"}], FieldSpec(role="chat")) == [{"role": "user"}]


def test_mappings_with_numbers_for_keys_and_arrays_inside_become_json():
    assert plain({1: np.array([1, 2]), "b": (3,)}, ANY) == {"1": [1, 2], "b": [3]}


@given(
    npst.arrays(
        npst.scalar_dtypes(), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)
def test_any_array_is_taken_or_refused(array):
    try:
        found = plain(array, ANY)
    except FormatError:
        return
    if isinstance(found, np.ndarray):
        assert found.shape == (*array.shape, *([2] if array.dtype.kind == "c" else []))
        assert found.dtype.kind in "biuf"
        assert found.dtype.isnative
    else:
        orjson.dumps(found)


def test_weights_are_close_to_what_values_take():
    assert value_bytes(np.zeros((3, 4), np.float32)) == 48
    assert value_bytes("abcd") == 4
    assert 100 < value_bytes([{"role": "user", "content": "x" * 100}]) < 150


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("obs/a: compressed with filter 305", "a: compressed with filter 305"),
        ("obs/a/b: a soft link", "a: obs/a/b: a soft link"),
        ("obs: damaged", "a: damaged"),
        ("holds records, not numbers", "a: holds records, not numbers"),
        ("damaged HDF5 group: addr overflow", "a: damaged HDF5 group: addr overflow"),
    ],
)
def test_a_reason_names_the_field_once(reason, told):
    class Broken(Container):
        def names(self):
            return ["obs/a"]

        def read(self, name):
            raise FormatError(reason)

        def peek(self, name):
            return (), "<f4"

    with pytest.raises(FormatError) as said:
        read_value(Broken(), "obs/a", FieldSpec(), "a")
    assert str(said.value) == told
