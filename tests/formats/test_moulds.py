"""Pickles that differ in the data of their arrays alone are cut, not unpickled: the values are the same."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.errors import FormatError
from datacheck.formats import pickle_file
from datacheck.formats.base import Hint
from datacheck.formats.pickle_file import PICKLE, _parse
from datacheck.formats.pickle_safe import unpickle
from datacheck.testing import draw


@pytest.fixture(autouse=True)
def forget():
    pickle_file._templates.clear()


@pytest.fixture
def unpickled(monkeypatch):
    """How many pickles were really unpickled."""
    calls = []
    monkeypatch.setattr(pickle_file, "unpickle", lambda data: calls.append(1) or unpickle(data))
    return calls


def same(container, data):
    wanted = unpickle(data)
    assert container.names() == sorted(wanted)
    for name, value in wanted.items():
        found = container.read(name)
        assert type(found) is type(value)
        if isinstance(value, np.ndarray):
            assert (found.dtype, found.shape, found.tobytes()) == (
                value.dtype,
                value.shape,
                value.tobytes(),
            )
            assert container.peek(name) == (value.shape, value.dtype.str)
        else:
            assert found == value


def frame(seed, name="mug"):
    rng = np.random.default_rng(seed)
    joints, flags = rng.random((21, 3)), rng.integers(0, 2, 778).astype(np.uint8)
    return {
        "joints": joints,
        "flags": flags,
        "cam": ["0", "1"],
        "label": 7,
        "name": name,
        "beta": None,
    }


@pytest.mark.parametrize(
    "write", [draw.dumps, *(lambda r, p=p: pickle.dumps(r, protocol=p) for p in range(2, 6))]
)
def test_the_third_of_many_alike_is_cut_and_holds_its_own_values(write, unpickled):
    for seed in range(6):
        data = write(frame(seed))
        same(_parse(data, Hint()), data)
    # Newer protocols may hold bytes as text, whose length differs from file to file
    if write is draw.dumps:
        assert len(unpickled) == 3  # the first, the second, and the proof


def test_another_text_of_the_same_length_is_another_pickle(unpickled):
    for seed, name in enumerate(["mug", "mug", "cup", "mug", "cup", "pan"]):
        data = draw.dumps(frame(seed, name))
        container = _parse(data, Hint())
        assert container.read("name") == name
        same(container, data)


def complaint(data, parse):
    try:
        parse(data)
    except FormatError as error:
        return str(error)
    return None


def test_damage_outside_the_arrays_is_found_as_before():
    datas = [draw.dumps(frame(seed)) for seed in range(4)]
    for data in datas[:3]:
        _parse(data, Hint())
    for place in range(0, len(datas[3]), 7):
        broken = datas[3][:place] + bytes([datas[3][place] ^ 0x11]) + datas[3][place + 1 :]
        said = complaint(broken, unpickle)
        assert said == complaint(broken, lambda data: _parse(data, Hint()))
        if said is None and not any(
            isinstance(value, FormatError) for value in unpickle(broken).values()
        ):
            same(_parse(broken, Hint()), broken)


numbers = hnp.arrays(
    st.sampled_from(["u1", "<f4", "<f8", ">f8", "<i8", "?"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=3), numbers, min_size=1, max_size=4),
    st.sampled_from([2, 3, 4, 5]),
    st.binary(min_size=8, max_size=8),
)
def test_whatever_the_arrays_cutting_gives_what_unpickling_gives(record, protocol, noise):
    pickle_file._templates.clear()
    others = [
        {
            name: np.frombuffer((noise * (a.nbytes + 1))[n : n + a.nbytes], a.dtype).reshape(
                a.shape
            )
            for name, a in record.items()
        }
        for n in range(3)
    ]
    for some in (record, record, *others):
        data = pickle.dumps(some, protocol=protocol)
        same(_parse(data, Hint()), data)


def test_the_store_of_moulds_stays_small(tmp_path):
    for size in range(1, 200):
        data = draw.dumps({"a": np.arange(size)})
        for _ in range(2):
            PICKLE.parse(data, Hint())
    assert len(pickle_file._templates) <= pickle_file._MAX_TEMPLATES


def _array(data, name, size, put=b""):
    """Return opcodes of protocol 2 that make an array of one axis; `put` stands behind the text of its data."""
    dtype = (
        b"cnumpy\ndtype\nU\x02"
        + name
        + b"K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    head = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01(K"
        + bytes([size])
        + b"t"
    )
    return head + dtype + b"\x89U" + bytes([len(data)]) + data + put + b"tb"


# The data of the second array once more as a key: None under it
@pytest.mark.parametrize("again", [b"h\x05Ns", b""])
def test_an_array_whose_bytes_are_a_key_as_well_is_never_cut(again, unpickled):
    for mark in (b"AAAAAA", b"BBBBBB", b"joints", b"CCCCCC"):
        joints = np.arange(20, dtype="<f4") + mark[0]
        data = b"\x80\x02}U\x06joints" + _array(joints.tobytes(), b"f4", 20) + b"sU\x04mark"
        data += _array(mark, b"u1", 6, b"q\x05") + b"s" + again + b"."
        told = pickle.loads(data, encoding="latin1")  # noqa: S301  our own
        found = _parse(data, Hint())
        assert ("joints" in found.names()) == (told["joints"] is not None)
    # Where it may be cut: the first, the second, and the proof
    assert len(unpickled) == (4 if again else 3)
