"""Which format opens what, and what is light to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import format_of, formats, open_container, store_markers
from datacheck.formats.limits import wrap_errors
from tests.formats.reading import CORPUS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.NPY", "npy"),
        ("scan.pcd", "pcd"),
        ("scan.pcd.bin", "kitti"),
        ("a.bin", "kitti"),
        ("a.json.gz", "jsonl"),
        ("a.json", "json"),
        ("a.copc.laz", "las"),
        ("a.hdf5", "hdf5"),
        ("a.tar", "tar"),
        ("data-00000-of-00002.arrow", "arrow"),
        ("bridge-train.tfrecord-00012-of-01024", "tfrecord"),
        ("a.npy-of-b", None),
        ("a.rar", None),
    ],
)
def test_the_longest_suffix_decides(name, expected):
    found = format_of(name)
    assert (found and found.name) == expected


def test_no_suffix_is_claimed_twice():
    suffixes = [suffix for f in formats().values() for suffix in f.suffixes]
    assert len(suffixes) == len(set(suffixes))


@pytest.mark.parametrize(
    "source",
    [
        "npy/y_points.npy",
        "hdf5/y_demos.hdf5",
        "ply/y_ascii.ply",
        "las/y_points.las",
        "image/y_color.png",
    ],
)
def test_magic_bytes_decide_where_the_name_says_nothing(tmp_path, source):
    path = tmp_path / "without_suffix"
    path.write_bytes((CORPUS / source).read_bytes())
    with open_container(path) as container:
        assert container.names()


def test_folders_are_stores_by_their_marker(tmp_path):
    assert store_markers() == {".zarray", ".zgroup", "zarr.json"}
    with pytest.raises(FormatError, match="no format reads"):
        open_container(tmp_path)
    with open_container(CORPUS / "zarr/y_sharded.zarr") as container:
        assert container.names() == ["array"]


@pytest.mark.parametrize(
    "suffix", sorted(s for f in formats().values() for s in f.suffixes if not f.directory)
)
def test_missing_and_unreadable_files_are_format_errors(tmp_path, suffix):
    with pytest.raises(FormatError), open_container(tmp_path / f"missing{suffix}") as container:
        container.read(container.names()[0])
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(FormatError):
        open_container(tmp_path / f"folder{suffix}")


def test_knowing_the_formats_imports_no_heavy_library():
    code = (
        "import sys; from datacheck.formats.base import formats; assert len(formats()) > 14;"
        "print(sorted({'h5py', 'zarr', 'laspy', 'plyfile', 'PIL', 'torch', 'dask', 'pandas'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("no array called x"), "x.h5: no array called x"),
        # H5py, of numbers in VAX byte order
        (KeyError(2), "x.h5: the library that reads it fails (KeyError: 2)"),
        (
            IndexError("tuple index out of range"),
            "x.h5: the library that reads it fails (IndexError: tuple index out of",
        ),
        (OSError("truncated file"), "x.h5: truncated file"),
        (MemoryError(), "x.h5: MemoryError"),
        (
            ValueError("malformed node: <ast.Call object at 0x7f00aB12>"),
            "x.h5: malformed node: <ast.Call object>",
        ),
    ],
)
def test_what_a_library_raises_becomes_a_sentence(error, told):
    with pytest.raises(FormatError) as said, wrap_errors("x.h5"):
        raise error
    assert str(said.value).startswith(told)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n"
PAGE = b"  <!DOCTYPE html>\n<html><body>404</body></html>\n"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("x.npy", POINTER, "DC102"),
        ("x.jsonl", POINTER, "DC102"),
        ("x.txt", POINTER, "DC102"),
        ("x.hdf5", PAGE, "DC102"),
        ("x.jsonl", PAGE, "DC102"),
        ("x.npy", b"<?xml version='1.0'?><Error/>", "DC102"),
        ("x.pkl", PAGE * 200, "DC102"),
        ("x.npy", b"", "DC103"),
        ("x.hdf5", b"", "DC103"),
        ("x.npy", b"other", "DC101"),
        ("x.pkl", b"cos\nsystem\n(S'true'\ntR.", "DC110"),
    ],
)
def test_what_stands_in_place_of_data_has_a_code_of_its_own(tmp_path, name, data, code):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FormatError) as caught:
        open_container(tmp_path / name)
    assert caught.value.code == code


def test_text_may_be_a_page_and_may_be_empty(tmp_path):
    (tmp_path / "page.txt").write_bytes(PAGE)
    (tmp_path / "none.txt").write_bytes(b"")
    assert open_container(tmp_path / "page.txt").read("text").lstrip().startswith("<!DOCTYPE")
    assert open_container(tmp_path / "none.txt").read("text") == ""
