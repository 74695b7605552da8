"""Names inside files that are no Unicode: one escaped form, everywhere, and never two values under one name."""

import json
import os
import pickle

import h5py
import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.model.row_keys import storable_names
from datacheck.sources import Item, Unread, open_source
from tests.sources.schemas import every, schema

X = np.arange(3, dtype=np.float32)
ANY = {"*": {}}


def hdf5(path, names, folder=b""):
    """Write float32 datasets under names that are bytes; returns the path."""
    with h5py.File(path, "w") as file:
        place = h5py.h5g.create(file.id, folder) if folder else file.id
        for name in names:
            made = h5py.h5d.create(place, name, h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)))
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, X)
    return path


def pickled(path, names):
    path.write_bytes(pickle.dumps(dict.fromkeys(names, X), 2))
    return path


def structured(path):
    head = (
        "{'descr': [('good', '<f4'), ('\\udc80', '<f4')], 'fortran_order': False, 'shape': (3,), }".ljust(
            117
        )
        + "\n"
    )
    path.write_bytes(
        b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head.encode() + bytes(24)
    )
    return path


def zarr(path):
    for name in (b"good", b"a\x80b"):
        os.makedirs(os.fsencode(path) + b"/" + name)
        with open(os.fsencode(path) + b"/" + name + b"/.zarray", "w") as file:
            file.write('{"zarr_format":2,"shape":[3],"chunks":[3],"dtype":"<f4","compressor":null,')
            file.write('"fill_value":0,"order":"C","filters":null}')
        with open(os.fsencode(path) + b"/" + name + b"/0", "wb") as file:
            file.write(X.tobytes())
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    return path


def item(path, **more):
    return Item(path.name, nbytes=0 if path.is_dir() else path.stat().st_size, **more)


def read(path, fields=ANY):
    return every(open_source(schema("*", fields), path.parent), item(path))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda p: hdf5(p / "x.h5", [b"good", b"a\x80b"]), r"a\udc80b"),
        (lambda p: pickled(p / "x.pkl", ["good", "a\udc80b"]), r"a\udc80b"),
        (lambda p: structured(p / "x.npy"), r"array.\udc80"),
        (lambda p: zarr(p / "x.zarr"), r"a\udc80b"),
    ],
    ids=["hdf5", "pickle", "npy", "zarr"],
)
def test_a_field_is_called_by_the_escaped_form_of_its_name(tmp_path, write, name):
    path = write(tmp_path)
    samples, unread = read(path)
    assert unread == []
    values = samples[path.name]
    assert len(values) == 2
    assert values[name].shape == (3,)
    assert read(path, {name: {"shape": [3]}})[0][path.name].keys() == {name}


@pytest.mark.parametrize("fields", [ANY, {r"a\udc80b": {}}])
def test_two_names_that_become_equal_are_refused(tmp_path, fields):
    path = pickled(tmp_path / "x.pkl", ["a\udc80b", r"a\udc80b"])
    source = open_source(schema("*", fields), tmp_path)
    (unread,) = source.read_all([item(path)], lambda place: None)
    assert (
        r"two names in it read a\udc80b once what is no Unicode in them is escaped" in unread.reason
    )


def test_a_group_with_a_name_that_is_no_unicode_has_an_escaped_key(tmp_path):
    path = hdf5(tmp_path / "x.h5", [b"a\x80b", b"good"], folder=b"demo_\xff")
    source = open_source(schema({"files": "*", "each": "/demo_{number}"}, ANY), tmp_path)
    key = r"x.h5:/demo_\udcff"
    samples, unread = every(source, item(path))
    assert (list(samples), unread) == ([key], [])
    assert samples[key].keys() == {r"a\udc80b", "good"}
    again, unread = every(source, item(path, keys=(key,)))
    assert (list(again), unread) == ([key], [])


def test_what_is_said_of_a_sample_that_cannot_be_read_can_be_written(tmp_path):
    path = hdf5(tmp_path / "x.h5", [b"good"])
    with h5py.File(path, "a") as file:
        file.id.links.create_soft(b"a\x80b", b"/nowhere\xff")
    source = open_source(schema("*", ANY), tmp_path)
    (unread,) = source.read_all([item(path)], lambda place: None)
    assert r"a\udc80b" in unread.reason
    assert unread.reason.encode()


def test_names_keep_their_order_and_equal_ones_are_no_collision():
    assert list(storable_names(["b", "a\ud800", "a", "b"]).items()) == [
        ("b", "b"),
        (r"a\ud800", "a\ud800"),
        ("a", "a"),
    ]
    with pytest.raises(FormatError, match="two names"):
        storable_names(["a\ud800", r"a\ud800"])


def reasons(path, **samples):
    """What is said of a file, as a scan reads it."""
    source = open_source(schema({"files": "*", **samples}, ANY), path.parent)
    return [
        part.reason
        for part in source.read_all([item(path)], lambda place: None)
        if isinstance(part, Unread)
    ]


def test_names_longer_than_any_are_refused(tmp_path):
    """A name of 5 MB packs into 5 kB, and whoever coordinates a scan holds all names."""
    name = "x" * 1001
    said = "holds a name of 1,001 characters, 'xxxxxxxxxxxxxxxxxxxx'...; at most 1,000 are read"
    assert reasons(hdf5(tmp_path / "a.h5", [b"good", name.encode()])) == [said]
    (tmp_path / "b.jsonl").write_text(json.dumps({"good": 1}) + "\n" + json.dumps({name: 1}) + "\n")
    assert reasons(tmp_path / "b.jsonl", each="line") == [said]
    assert reasons(hdf5(tmp_path / "c.h5", [b"good", name[1:].encode()])) == []


def test_many_long_names_are_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({f"{n:0900}": 1 for n in range(1200)}))
    (said,) = reasons(path)
    assert "1,200 names of 1,080,000 characters in all; at most 1,048,576" in said


def test_a_group_whose_path_would_be_too_long_a_key_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("good", "g" * 1001):
            file.create_group(name)["x"] = X
    (said,) = reasons(tmp_path / "a.h5", each="/*")
    assert "holds a name of 1,00" in said


def test_keys_of_any_length_stay_apart_and_short():
    """A run has 4 KiB for each of its samples; keys that were cut alike were two samples of one name."""
    one, other = (Unread("x" * 200_000 + end, "DC101", "y" * 5_000, "z" * 200_000) for end in "ab")
    assert one.key != other.key
    assert one.key.startswith("x" * 100 + "… (200,001 characters, ")
    assert max(map(len, (one.key, one.group))) < 200
    assert len(one.reason) == 1_000
    assert Unread("a/" * 2_048, "DC101", "r").key == "a/" * 2_048
