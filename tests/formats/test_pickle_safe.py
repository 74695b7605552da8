"""Pickles: equal to what pickle gives for honest files, and nothing runs for the others."""

from __future__ import annotations

import copyreg
import pickle
import time
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from datacheck.errors import FormatError
from datacheck.formats import pickle_safe
from datacheck.formats.pickle_safe import unpickle
from datacheck.workers import budget
from tests.formats.reading import CORPUS, read_all

NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())
ARRAYS = arrays.arrays(
    st.sampled_from(["<f4", "<f8", ">f8", "<i2", "?", "u1"]),
    arrays.array_shapes(min_dims=0, min_side=0),
)


@settings(max_examples=200)
@given(
    items=st.dictionaries(
        st.text("abcXYZ_ é", min_size=1), st.one_of(ARRAYS, NUMBERS, st.text("xyé中"))
    ),
    protocol=st.sampled_from([0, 2, 3, 4, 5]),
)
def test_values_are_those_that_were_pickled(items, protocol):
    found = unpickle(pickle.dumps(items, protocol))
    assert set(found) == set(items)
    for name, value in items.items():
        if isinstance(value, str):
            assert found[name] == value
        else:
            np.testing.assert_array_equal(found[name], value)
            assert found[name].shape == np.shape(value)


@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
def test_ho3d_frames_of_every_protocol(protocol):
    path = CORPUS / f"pickle/y_ho3d_{protocol}.pkl"
    values = read_all(path)
    reference = pickle.loads(path.read_bytes())  # noqa: S301  our own file
    assert "objRot" not in values  # None: absent
    for name in (
        "camMat",
        "handJoints3D",
        "handPose",
        "objCorners3D",
        "handVertContact",
        "objLabel",
        "scale",
    ):
        np.testing.assert_array_equal(values[name], reference[name])
        assert values[name].dtype == np.asarray(reference[name]).dtype
    assert values["camIDList"] == ["0", "1"]
    assert values["objName"] == "010_potted_meat_can"


def test_python_2_pickle_is_read_as_latin_1():
    path = CORPUS / "pickle/y_ho3d_python_2.pkl"
    values = read_all(path)
    reference = pickle.loads(path.read_bytes(), encoding="latin1")  # noqa: S301  our own file
    assert sorted(values) == ["camMat", "handJoints3D", "objName"]
    np.testing.assert_array_equal(values["camMat"], reference["camMat"])
    np.testing.assert_array_equal(values["handJoints3D"], reference["handJoints3D"])
    assert values["objName"] == reference["objName"] == "010_café"


def test_nested_mappings_lists_and_ordered_mappings():
    data = {"a": {"b": np.arange(2), "c": None}, "l": [[1, 2], [3, 4]], "r": [[1], [2, 3]]}
    data["a2"] = {"d": [{"k": np.ones(2)}]}
    found = unpickle(pickle.dumps(OrderedDict(data), 4))
    assert sorted(found) == ["a/b", "a2/d", "l", "r"]
    assert found["l"].tolist() == [[1, 2], [3, 4]]
    assert found["r"] == [[1], [2, 3]]
    assert found["a2/d"] == [{"k": [1.0, 1.0]}]


@pytest.mark.parametrize(("within", "kind"), [("", np.asarray), ("", list), ("demos/", np.asarray)])
def test_mappings_with_arrays_in_a_list_are_groups_in_the_order_of_the_list(within, kind):
    demos = [
        {"obs": kind([0.5, i, float("nan") if i == 7 else 1.0]), "task": "pick"} for i in range(11)
    ]
    found = unpickle(pickle.dumps({"demos": demos, "n": 3} if within else demos, 4))
    assert [name for name in found if name != "n"] == [
        f"{within}{i:02}/{name}" for i in range(11) for name in ("obs", "task")
    ]
    assert [i for i in range(11) if not np.isfinite(found[f"{within}{i:02}/obs"]).all()] == [7]


def test_annotations_in_an_entry_stay_one_value():
    said = [{"bbox": [1, 2, 3, 4], "class": "cup"}]
    found = unpickle(pickle.dumps({"pose": np.eye(4), "instances": said}))
    assert sorted(found) == ["instances", "pose"]
    assert found["instances"] == said


def test_lists_of_texts_and_of_more_values_than_a_file_may_have_stay_one_value(monkeypatch):
    texts = [{"instruction": "a", "turns": ["b"]}, {"instruction": "c"}]
    assert unpickle(pickle.dumps(texts)) == {"records": texts}
    monkeypatch.setattr(pickle_safe, "FIELDS", 3)
    assert sorted(unpickle(pickle.dumps([{"a": [1, 2]}] * 3))) == ["0/a", "1/a", "2/a"]
    assert unpickle(pickle.dumps([{"a": [1, 2]}] * 4)) == {"records": [{"a": [1, 2]}] * 4}


def test_tuples_of_text_and_numbers_are_keys():
    """The cameras of Human3.6M, by subject and serial number."""
    said = {("S1", "54138969"): {"R": np.eye(3)}, ("S1", 2): {"R": np.eye(3)}}
    assert sorted(unpickle(pickle.dumps(said))) == ["S1,2/R", "S1,54138969/R"]
    for key in (("S1", None), (True, 1), (), ("S1", ("a",))):
        with pytest.raises(FormatError, match="a mapping key of type tuple"):
            unpickle(pickle.dumps({key: np.eye(3)}))


def test_what_is_no_mapping_has_a_name_of_its_kind():
    assert unpickle(pickle.dumps(np.arange(3)))["array"].tolist() == [0, 1, 2]
    assert unpickle(pickle.dumps([{"a": 1}]))["records"] == [{"a": 1}]
    assert unpickle(pickle.dumps("text"))["value"] == "text"
    assert unpickle(pickle.dumps(None)) == {}


def test_one_value_that_cannot_be_handed_on_does_not_lose_the_others():
    found = unpickle(
        pickle.dumps(
            {"good": np.arange(2), "bad": {1, 2}, "nan": [float("nan"), "x"], "big": 2**70}, 4
        )
    )
    assert found["good"].tolist() == [0, 1]
    assert all(isinstance(found[name], FormatError) for name in ("bad", "nan", "big"))


def test_two_values_of_one_name_are_refused():
    with pytest.raises(FormatError, match="two values are named a/b"):
        unpickle(pickle.dumps({"a": {"b": 1}, "a/b": 2}))


class Planted:
    """Would create a file if it were unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_nothing_is_called(protocol, tmp_path):
    data = pickle.dumps({"a": Planted(str(tmp_path / "hacked"))}, protocol)
    with pytest.raises(FormatError, match=r"asks for (_?io|builtins|__builtin__)\.open"):
        unpickle(data)
    pickle.loads(data)["a"].close()  # noqa: S301  the control: it would have
    assert (tmp_path / "hacked").exists()


def test_the_extension_registry_is_no_way_around():
    copyreg.add_extension("os", "system", 0x41)
    try:
        copyreg._extension_cache[0x41] = "anything"
        with pytest.raises(FormatError, match="asks for os"):
            unpickle(b"\x80\x02\x82\x41.")
    finally:
        copyreg.remove_extension("os", "system", 0x41)


@pytest.mark.parametrize(
    "name", ["n_memo", "n_long_text", "n_huge_reconstruct", "n_laughs", "n_call_ndarray"]
)
def test_bombs_end_at_once(name):
    start = time.process_time()
    with pytest.raises(FormatError):
        unpickle((CORPUS / f"pickle/{name}.pkl").read_bytes())
    assert time.process_time() - start < 1


def test_the_allowed_functions_cannot_be_changed():
    before = unpickle((CORPUS / "pickle/y_ho3d_2.pkl").read_bytes())
    with pytest.raises(FormatError):
        unpickle(b"\x80\x02cnumpy\ndtype\nN}U\x09_functionNs\x86b.")
    after = unpickle((CORPUS / "pickle/y_ho3d_2.pkl").read_bytes())
    assert before.keys() == after.keys()


@pytest.mark.parametrize("value", [{"a": ["x" * 1_000_000] * 400}, {"b": [b"y" * 99_999] * 4000}])
def test_one_large_value_named_again_and_again_is_refused(value):
    with pytest.raises(FormatError, match="far larger than its bytes"):
        unpickle(pickle.dumps(value))


def test_one_array_under_thousands_of_names_is_refused():
    cloud = np.zeros(250_000, ">f4")
    with pytest.raises(FormatError, match="far larger than its bytes"):
        unpickle(pickle.dumps({str(i): cloud for i in range(300)}))
    assert len(unpickle(pickle.dumps({str(i): cloud for i in range(200)}))) == 200


def test_a_giant_integer_is_refused_in_one_sentence():
    found = unpickle(pickle.dumps({"n": 1 << 100_000, "m": 7}))
    assert "100001 bits; at most 64" in str(found["n"])
    assert found["m"] == 7


def _built(*states, dtype=b"f4", again=b"", flags=b"\x89\x88"):
    """Return opcodes that make an array of two numbers, with its states set one after another.

    Args:
        states: opcodes of the data of each.
        dtype: its name.
        again: opcodes behind the array, which is entry 9 of the memo; its dtype is entry 8.
        flags: opcodes of those of the dtype: not aligned, a copy.
    """
    made = b"cnumpy\ndtype\nU\x02" + dtype + flags + b"\x87Rq\x08"
    made += b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb0"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rq\x09"
    for data in states:
        array += b"(K\x01K\x02\x85h\x08\x89" + data + b"tb"
    return b"\x80\x02" + made + array + again + b"."


def test_an_array_or_dtype_takes_one_state():
    good, other = (b"U\x08" + np.array(v, "<f4").tobytes() for v in ([1, 2], [np.nan, 1e9]))
    assert unpickle(_built(good))["array"].tolist() == [1, 2]
    turned = b"0h\x08(K\x03U\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb0h\x09"
    seen = pickle.loads(_built(good, again=turned), encoding="latin1")  # noqa: S301  our own
    assert seen.tolist() != [1, 2]  # NumPy turns it
    for data in (_built(good, other), _built(good, again=turned), _built(good, flags=b"\x89\x89")):
        with pytest.raises(FormatError, match=r"state is set twice|which NumPy does not write"):
            unpickle(data)


@pytest.mark.parametrize("name", ["y_joblib.pkl", "y_joblib_zlib.pkl"])
@pytest.mark.parametrize("by_size", [True, False])
def test_arrays_that_joblib_appends_are_read(name, by_size, monkeypatch):
    # A child's unpickler, and the one of a process without limits
    monkeypatch.setattr(budget, "BY_SIZE", by_size)
    found = read_all(CORPUS / "pickle" / name)
    assert np.array_equal(found["dof"], np.arange(12).reshape(4, 3))
    assert (found["dof"].dtype, found["root"].dtype, found["none"].shape) == ("f4", "i8", (0, 3))
    assert found["root"].tolist() == [0, 1, 2, 3]
    assert (found["names"], int(found["fps"])) == (["a", "b"], 30)


def test_the_attributes_of_an_ordered_dict_are_dropped(tmp_path):
    entries = OrderedDict(x=np.arange(3))
    entries._metadata = {"version": 1}  # as the state of a model of PyTorch has
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(entries))
    assert list(read_all(tmp_path / "x.pkl")) == ["x"]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_of_any_order_of_axes_are_as_they_were(protocol):
    values = np.arange(60.0).reshape(3, 4, 5)
    made = {
        "t": values.transpose(2, 0, 1),
        "f": np.asfortranarray(values),
        "s": values.swapaxes(0, 1),
        "c": values,
    }
    found = unpickle(pickle.dumps(made, protocol))
    for name, value in made.items():
        assert np.array_equal(found[name], value), name


def test_axes_of_an_array_that_it_has_not_are_refused():
    numpy_call = np._core.numeric._frombuffer

    class Odd:
        def __reduce__(self):
            return numpy_call, (b"\0" * 480, np.dtype("f8"), (3, 4, 5), "K", (0, 0, 9))

    with pytest.raises(FormatError):
        unpickle(pickle.dumps(Odd(), 5))
