"""HDF5: values equal to h5py's, nothing outside the file, one fault loses one value."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats import hdf5
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all

DEMOS = CORPUS / "hdf5/y_demos.hdf5"


def test_names_values_and_headers_are_h5pys():
    values = read_all(DEMOS)
    with h5py.File(DEMOS) as file:
        found = []
        file.visititems(
            lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None
        )
        assert sorted(values) == sorted(found)
        for name in found:
            if name != "mask/train":
                np.testing.assert_array_equal(values[name], file[name][()])
    assert values["mask/train"] == ["demo_0"]
    with open_container(DEMOS) as container:
        assert container.peek("data/demo_1/obs/agentview_rgb") == ((5, 4, 4, 3), "|u1")


def test_groups_match_within_one_level():
    with open_container(DEMOS) as container:
        assert container.groups("/data/demo_*") == ["data/demo_0", "data/demo_1"]
        assert container.groups("data/*") == ["data/demo_0", "data/demo_1"]
        assert container.groups("/*") == ["data", "mask"]
        assert container.groups("/data/*/obs") == ["data/demo_0/obs", "data/demo_1/obs"]
        assert container.groups("/data/demo_?/actions") == []  # a dataset is no group
        assert container.groups("/nothing/*") == []


def test_attributes_are_numbers_and_text():
    with open_container(DEMOS) as container:
        assert container.attrs("data") == {"env_args": '{"env_name": "Lift"}', "total": np.int64(9)}
        demo = container.attrs("/data/demo_1")
        assert int(demo["num_samples"]) == 5
        assert demo["init_state"].tolist() == [0, 0, 0]
        assert container.attrs() == {}


def test_names_that_do_not_exist():
    with open_container(DEMOS) as container:
        for name in (
            "data",
            "data/demo_0/nothing",
            "nothing/x",
            "",
            "data/./demo_0/actions",
            "data/demo_0/actions.x",
        ):
            with pytest.raises(KeyError):
                container.read(name)


def test_types_that_are_values():
    values = read_all(CORPUS / "hdf5/y_types.hdf5")
    assert values["bool"].dtype == bool
    assert values["half"].dtype == np.float16
    assert values["big"].tolist() == [0, 1, 2]
    assert values["complex"].tolist() == [[1, 2]]
    assert values["text"] == "a mug"
    assert values["texts"] == ["a", "bé"]
    assert values["fixed"] == ["ab", "c"]
    assert values["jpeg"].tolist() == [[255, 216, 255, 224], [255, 216, 0, 0]]
    assert values["compound.real"].tolist() == [1.5]
    assert values["compound.tag"] == ["x"]
    assert values["compound.p.q.a"].tolist() == [1]
    assert values["compound.p.q.b"].tolist() == [2]
    assert values["enum"].tolist() == [0, 2]
    assert values["images"].tolist() == [1, 2, 3, 4]
    assert values["images.lengths"].tolist() == [3, 1]
    assert values["no_rows"].shape == (0, 3)
    assert values["filtered"].tolist() == list(range(100))


@pytest.mark.parametrize(
    ("name", "why"), [("empty", "empty dataspace"), ("reference", "type"), ("opaque", "type")]
)
def test_types_that_are_no_values_are_not_listed_but_say_why(name, why):
    with open_container(CORPUS / "hdf5/y_types.hdf5") as container:
        assert name not in container.names()
        with pytest.raises(FormatError, match=why):
            container.read(name)


def test_entries_that_are_no_values_are_named_once_the_values_are_listed(tmp_path):
    """Else a scan says that all of a file was read, whatever these entries hold."""
    with open_container(CORPUS / "hdf5/y_types.hdf5") as container:
        container.names()
        # An empty dataspace holds nothing.
        assert (container.passed, container.opaque) == (["opaque", "reference"], True)
    cloud = h5py.vlen_dtype(np.dtype([("p", "f4", (3,))]))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.zeros(3)
        file.create_dataset("g/cloud", (2,), cloud)
        member = np.dtype([("x", "f4"), ("raw", "V7"), ("deep", [("n", "i4"), ("blob", "V3")])])
        file.create_dataset("t", (2,), member)
        file.create_dataset("bits", (2,), h5py.ref_dtype)
    with open_container(tmp_path / "a.h5") as container:
        assert container.names() == ["a", "t.deep.n", "t.x"]
        assert container.passed == ["bits", "g/cloud", "t.deep.blob", "t.raw"]
        assert container.opaque


def test_names_of_entries_that_are_no_values_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "_MOST_PASSED", 3)
    monkeypatch.setattr(hdf5, "_LONGEST_PASSED", 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(9):
            file[f"{number}-long-name"] = np.void(b"x")
    with open_container(tmp_path / "a.h5") as container:
        assert container.names() == []
        assert container.passed == ["0-lon", "1-lon", "2-lon"]


def test_references_alone_hold_no_bytes(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("r", (2,), h5py.ref_dtype)
    with open_container(tmp_path / "a.h5") as container:
        container.names()
        assert (container.passed, container.opaque) == (["r"], False)


def test_links_inside_the_file_are_followed_and_circles_end():
    with open_container(CORPUS / "hdf5/y_links.hdf5") as container:
        # C is a second link to the group a, a/up leads back
        assert container.names() == ["a/rel", "a/x", "b"]
        for name in ("a/x", "a/rel", "b", "c/x", "a/up/a/up/a/x"):
            assert container.read(name).tolist() == [0, 1, 2]


def test_one_broken_link_does_not_lose_the_rest():
    with open_container(CORPUS / "hdf5/n_dangling.hdf5") as container:
        assert container.names() == ["ok", "x"]
        assert container.read("ok") == 1
        with pytest.raises(FormatError, match="does not exist"):
            container.read("x")


def test_other_files_are_not_read_even_where_they_exist(tmp_path):
    secret = tmp_path / "secret.hdf5"
    with h5py.File(secret, "w") as file:
        file["g/x"] = np.arange(4)
    (tmp_path / "secret.bin").write_bytes(b"abcd")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["link"] = h5py.ExternalLink(str(secret), "/g")
        file["soft"] = h5py.SoftLink("/link/x")
        file.create_dataset("raw", (4,), "u1", external=[(str(tmp_path / "secret.bin"), 0, 4)])
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(str(secret), "g/x", (4,))
        file.create_virtual_dataset("virtual", layout)
    with h5py.File(tmp_path / "a.hdf5") as file:  # the control: h5py reads all of them
        assert file["link/x"][3] == 3
        assert file["soft"][3] == file["virtual"][3] == 3
        assert bytes(file["raw"][()]) == b"abcd"
    with open_container(tmp_path / "a.hdf5") as container:
        assert container.names() == ["link", "raw", "soft", "virtual"]
        for name in ("link", "link/x", "soft", "raw", "virtual"):
            with pytest.raises(FormatError, match=r"external link|other files"):
                container.read(name)
        with pytest.raises(FormatError, match="external link"):
            container.attrs("link")


def test_exponentially_many_paths_are_walked_once(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        group = file
        for _ in range(40):
            inner = group.create_group("l")
            group["r"] = inner
            group = inner
        group["x"] = 1
    with open_container(tmp_path / "a.hdf5") as container:
        assert len(container.names()) == 1


def test_many_groups_are_found_without_reading_them(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for i in range(3000):
            file.create_group(str(i)).create_dataset("is_error", data=False)
    with open_container(tmp_path / "a.hdf5") as container:
        assert len(container.groups("/*")) == 3000
        assert container.read("2999/is_error") == 0


def test_plug_in_folders_are_not_searched():
    with open_container(DEMOS):
        assert h5py.h5pl.size() == 0


def test_only_stars_stand_for_other_names(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for group in ("data[0]/demo_1", "data0/demo_1", "data[0]/dem?"):
            file[f"{group}/x"] = [1.0]
    with open_container(tmp_path / "a.h5") as container:
        assert container.groups("/data[0]/demo_*") == ["data[0]/demo_1"]
        assert container.groups("/data[0]/dem?") == ["data[0]/dem?"]
        assert container.groups("/*/*_1") == ["data0/demo_1", "data[0]/demo_1"]
        assert container.groups("/data0/demo_1/*") == []


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"chunks": (64, 7, 2)},
        {"chunks": (64, 4, 5), "compression": "gzip"},
        {"chunks": (1000, 7, 5)},
    ],
    ids=["contiguous", "chunks", "packed", "one chunk"],
)
@pytest.mark.parametrize("kept", [64 << 20, 0])
def test_rows_are_those_of_the_whole_wherever_the_last_were(tmp_path, monkeypatch, how, kept):
    rows = np.arange(35_000, dtype=np.float32).reshape(1000, 7, 5)
    monkeypatch.setattr(hdf5, "_BEHIND_BYTES", kept)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=rows, **how)
        file["b"] = file["a"]
    with open_container(tmp_path / "a.h5") as container:
        for start, stop in [
            (0, 10),
            (10, 100),
            (100, 130),
            (50, 70),
            (60, 300),
            (300, 300),
            (290, 1200),
            (5, 4),
        ]:
            for name in ("a", "b"):
                found = container.read_rows(name, start, stop)
                assert found.dtype == np.float32
                np.testing.assert_array_equal(found, rows[start:stop])


def test_a_chunk_that_two_calls_ask_for_is_read_once(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).random((1000, 400), np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=rows, chunks=(250, 400), compression="gzip")
        size = file["a"].id.get_storage_size()
    asked = [(start, start + 100) for start in range(0, 1000, 100)]
    # As if chunks were too large for its cache
    monkeypatch.setattr(h5py, "File", partial(h5py.File, rdcc_nbytes=1000))

    def read():
        with open_container(tmp_path / "a.h5") as container:
            before = _read_bytes()
            np.testing.assert_array_equal(
                np.concatenate([container.read_rows("a", *one) for one in asked]), rows
            )
            return _read_bytes() - before

    assert read() < 1.02 * size
    monkeypatch.setattr(hdf5, "_BEHIND_BYTES", 0)  # the control
    assert read() > 2 * size


def _read_bytes():
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])
