import pytest

from datacheck.formats.base import format_of
from datacheck.formats.foreign import UNSUPPORTED, is_ancillary, unsupported_format


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("run_0.rrd", "Rerun"),
        ("run.sqlite3", "SQLite"),
        ("run_0.db3.zstd", "archive"),
        ("bridge-train.tfrecord.gz-00012-of-01024", "packed TFRecord"),
        ("data.mdb", "LMDB"),
        ("mesh/A.STL", "STL"),
        ("train.tar.gz", "archive"),
        ("scene.nii.gz", "NIfTI"),
        ("speech.flac", "audio"),
    ],
)
def test_a_format_without_a_reader_is_known_by_its_name(path, name):
    found = unsupported_format(path)
    assert found is not None
    assert found.name == name
    assert found.way


def test_a_file_of_another_name_is_known_by_its_first_bytes():
    assert unsupported_format("recording", b"RRF2\0\0\0\1").name == "Rerun"
    assert unsupported_format("recording.dat", b"SQLite format 3\0").name == "SQLite"
    assert unsupported_format("recording.dat", b"\0\0\0\0") is None
    assert unsupported_format("recording.dat") is None


def test_no_format_that_has_a_reader_is_in_the_table():
    assert [
        suffix for one in UNSUPPORTED for suffix in one.suffixes if format_of(f"x{suffix}")
    ] == []


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "a/LICENSE",
        "licence.txt",
        "convert.py",
        "SHA256SUMS.sha256",
        "x.log",
        "requirements.txt",
        "requirements-dev.txt",
        "version-1.2",
        "CITATION.cff",
    ],
)
def test_what_lies_beside_data_is_no_data(path):
    assert is_ancillary(path)


@pytest.mark.parametrize(
    "path",
    [
        "data.txt",
        "readings.csv",
        "license/0001.npy",
        "noticed.npy",
        "run.rrd",
        "x.json",
        "version-3.rrd",
        "version_2.h5",
        "authors.parquet",
        "requirements.parquet",
        "Notice.tar.gz",
    ],
)
def test_data_are_not_taken_for_what_lies_beside_them(path):
    assert not is_ancillary(path)
