"""NumPy files: the values are NumPy's own, the refusals are the parser's."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from datacheck.errors import FormatError
from datacheck.formats import npy
from datacheck.formats.base import open_container
from datacheck.runtime.beneath import ConfinedFolder, File
from tests.formats.reading import CORPUS, read_all

PLAIN = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
ARRAYS = PLAIN.flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=ARRAYS, fortran=st.booleans())
def test_any_numeric_array_comes_back_equal(array, fortran, tmp_path):
    saved = np.asfortranarray(array) if fortran and array.ndim else array
    np.save(tmp_path / "a.npy", saved)
    found = read_all(tmp_path / "a.npy")["array"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.shape == array.shape


@pytest.mark.parametrize("count", [10, 20_000, 5_000_000])  # in the first read, in one read, mapped
@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_every_way_of_reading_gives_the_same(tmp_path, count, dtype):
    array = np.arange(count, dtype=dtype).reshape(-1, 2)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_all(tmp_path / "a.npy")["array"], array)


@pytest.mark.parametrize(
    "door", [lambda path: path, lambda path: File(ConfinedFolder(path.parent), path.name)]
)
def test_large_plain_arrays_are_mapped_not_read(tmp_path, door):
    np.save(tmp_path / "a.npy", np.zeros((3_000_000, 3), "f4"))
    with open_container(door(tmp_path / "a.npy")) as container:
        assert container.peek("array") == ((3_000_000, 3), "<f4")
        found = container.read("array")
    while isinstance(found, np.ndarray) and not isinstance(found, np.memmap):
        found = found.base
    assert isinstance(found, np.memmap)


def test_a_large_file_that_grew_or_shrank_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(100_000))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(
            FormatError, match=r"needs 800,000 bytes, the file holds (799,999|800,001)"
        ):
            open_container(path)


def test_saved_dict_gives_its_entries():
    values = read_all(CORPUS / "npy/y_grasps.npy")
    assert sorted(values) == ["grasp_qpos", "obj_pose"]
    reference = np.load(CORPUS / "npy/y_grasps.npy", allow_pickle=True).item()
    np.testing.assert_array_equal(values["grasp_qpos"], reference["grasp_qpos"])
    assert values["grasp_qpos"].dtype == np.float32
    assert values["obj_pose"].tolist() == [0, 0, 0, 1, 0, 0, 0]


def test_objects_strings_structures_and_complex_numbers():
    assert read_all(CORPUS / "npy/y_captions.npy") == {"array": ["a cup", None, "two cups"]}
    assert read_all(CORPUS / "npy/y_strings.npy") == {"array": ["mug", "bowl"]}
    structured = read_all(CORPUS / "npy/y_structured.npy")
    assert {name: value.tolist() for name, value in structured.items()} == {
        "array.x": [1.5, 3.5],
        "array.id": [2, 4],
    }
    assert read_all(CORPUS / "npy/y_complex.npy")["array"].tolist() == [[1, 2], [3, -4]]


def test_a_mapping_may_hold_any_key_names(tmp_path):
    np.save(tmp_path / "a.npy", np.array({"value": 1.5}, dtype=object), allow_pickle=True)
    assert read_all(tmp_path / "a.npy")["value"] == 1.5


def test_npz_values_are_numpys(tmp_path):
    reference = {"acts": np.arange(6).reshape(2, 3), "obs": np.array([0.5, -1.5], "f4")}
    for kind in ("plain", "compressed"):
        values = read_all(CORPUS / f"npz/y_{kind}.npz")
        assert sorted(values) == sorted(reference)
        for name, array in reference.items():
            np.testing.assert_array_equal(values[name], array)
    assert read_all(CORPUS / "npz/y_objects.npz")["infos"] == [{"a": 1}, None]
    assert sorted(read_all(CORPUS / "npz/y_structured.npz")) == ["points.red", "points.x"]


def test_one_bad_member_does_not_lose_the_others(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("good.npy", stream.getvalue())
        archive.writestr("bad.npy", stream.getvalue()[:-1])
    with open_container(tmp_path / "a.npz") as container:
        assert container.names() == ["bad", "good"]
        assert container.read("good").tolist() == [0, 1, 2]
        with pytest.raises(FormatError, match="bad: shape"):
            container.read("bad")
        with pytest.raises(KeyError):
            container.read("other")


def test_a_zip_entry_that_unpacks_to_more_than_it_says_is_refused(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.arange(100))
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", stream.getvalue())
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02") + 24  # the uncompressed size in the directory
    data[at : at + 4] = (300).to_bytes(4, "little")
    path.write_bytes(data)
    with open_container(path) as container, pytest.raises(FormatError):
        container.read("x")


def test_headers_are_parsed_once_per_text():
    npy._parse.cache_clear()
    for _ in range(3):
        read_all(CORPUS / "npy/y_points.npy")
    assert npy._parse.cache_info().misses == 1


@pytest.mark.parametrize(("place", "byte"), [(7, 1), (7, 203), (100, 0x1F)])
def test_a_header_that_numpy_refuses_is_refused(tmp_path, place, byte):
    np.save(tmp_path / "a.npy", np.arange(3.0))
    data = bytearray((tmp_path / "a.npy").read_bytes())
    assert data[place] in {0, ord(" ")}  # the minor version, the padding
    data[place] = byte
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises((ValueError, SyntaxError)):
        np.load(tmp_path / "a.npy")
    with pytest.raises(FormatError):
        read_all(tmp_path / "a.npy")


def test_names_of_columns_are_as_they_are_and_headers_of_python_2_are_read(tmp_path):
    rows = np.zeros(3, [("q1L", "<f4"), ("q1", "<f4"), ("arm0L", "<i8")])
    rows["q1L"] = [1, 2, 3]
    np.save(tmp_path / "a.npy", rows)
    found = read_all(tmp_path / "a.npy")
    assert {name.rpartition(".")[2].rpartition("/")[2] for name in found} >= {"q1L", "q1", "arm0L"}
    assert next(value for name, value in found.items() if name.endswith("q1L")).tolist() == [
        1,
        2,
        3,
    ]
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "b.npy").write_bytes(whole.replace(b"'shape': (3,), ", b"'shape': (3L,),"))
    with pytest.warns(UserWarning, match="created on Python 2"):
        assert np.load(tmp_path / "b.npy").tolist() == rows.tolist()
    assert read_all(tmp_path / "b.npy").keys() == found.keys()


def _npz(rows: int, **options: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.arange(rows), **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("first", "second"), [(2000, 3), (3, 2000), (3, 3)], ids=["larger", "smaller", "equal"]
)
def test_two_npz_joined_are_refused(tmp_path, first, second):
    path = tmp_path / "a.npz"
    path.write_bytes(_npz(first) + _npz(second))
    with pytest.raises(FormatError, match=f"{len(_npz(first)):,} bytes at byte 0 .*two files"):
        open_container(path)


def test_an_npz_with_a_member_that_its_directory_lost_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a.npy", "b.npy", "c.npy"):
            with archive.open(name, "w") as member:
                np.lib.format.write_array(member, np.arange(3))
        lost = archive.filelist.pop(1)
    size = 30 + len("b.npy") + lost.file_size  # the local header, the name, the bytes
    with pytest.raises(FormatError, match=f"{size} bytes at byte {lost.header_offset} belong"):
        open_container(path)


def test_an_npz_with_bytes_behind_its_end_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    data = _npz(3)
    path.write_bytes(data + b"tail")
    with pytest.raises(FormatError, match=f"4 bytes at byte {len(data)} belong"):
        open_container(path)


class _Pipe(io.RawIOBase):
    """A sink that cannot seek, so that sizes follow each member."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.data += bytes(data)
        return len(data)


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_npz_with_descriptors_comments_and_padding_is_read(tmp_path, zip64, compression):
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", compression) as archive:
        for name in ("a.npy", "b.npy"):
            with archive.open(name, "w", force_zip64=zip64) as member:
                np.lib.format.write_array(member, np.arange(5))
        archive.comment = b"made by a pipe"
    (tmp_path / "a.npz").write_bytes(pipe.data + bytes(512))
    assert read_all(tmp_path / "a.npz")["b"].tolist() == list(range(5))
