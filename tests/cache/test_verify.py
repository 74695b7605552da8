"""Verification: nothing can be changed, added or taken away unseen."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from datacheck.cache import layout, open_cache, sharded_array
from datacheck.cache.damage import DamageLocator, RowToSample
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.reader import Cache
from datacheck.cache.store import FolderStore, open_store
from datacheck.cache.verify import _check_packing, _check_values, verify
from datacheck.errors import StorageError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime.hashing import canonical_json, digest_bytes
from tests.cache.make import make_cache

SPECS = {
    "joints": ArraySpec("float32", (21, 3)),
    "points": ArraySpec("float64", (3,), "P"),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
}


@pytest.fixture
def cache(tmp_path):
    rng = np.random.default_rng(0)
    samples = [
        {"joints": rng.random((21, 3), np.float32), "points": rng.random((n % 3, 3))}
        for n in range(5)
    ]
    samples[2]["say"] = "hello"
    return make_cache(tmp_path, SPECS, samples, k=2, valid=[True, False, True, True, True])


def remade(folder, root):
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), root)


def test_an_intact_cache_has_no_problems(cache):
    assert verify(cache) == []
    assert verify(cache, "quick") == []


def test_a_flipped_bit_in_any_file_is_found_and_the_file_named(cache):
    rng = np.random.default_rng(1)
    files = [path for path, _ in open_store(cache).files()]
    assert len(files) > 40
    for name in files:
        path = cache / name
        raw = path.read_bytes()
        at = int(rng.integers(len(raw)))
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :])
        assert {p.file for p in verify(cache)} == {name}, name
        path.write_bytes(raw)
    assert verify(cache) == []


def test_damage_in_a_shard_names_its_samples(cache):
    path = cache / "fields/joints/c.1.0.0"
    raw = bytearray(path.read_bytes())
    raw[5] ^= 8
    path.write_bytes(raw)
    (problem,) = verify(cache)
    assert (problem.file, problem.shard) == ("fields/joints/c.1.0.0", 1)
    assert problem.samples == "samples 2 to 3, sample/000002 to sample/000003"
    assert "expected xxh3_64" in problem.what
    assert verify(cache, "quick") == []


def test_missing_extra_short_and_linked_files_are_found_quickly(cache, tmp_path):
    (cache / "extra.txt").write_text("x")
    (cache / "samples/made/c.0").rename(tmp_path / "made")
    (cache / "samples/valid/c.0").rename(tmp_path / "valid")
    (cache / "samples/valid/c.0").symlink_to(tmp_path / "valid")
    with (cache / "sources.json").open("ab") as file:
        file.write(b" ")
    for depth in ("quick", "full"):
        found = {p.file: p.what for p in verify(cache, depth)}
        assert sorted(found) == [
            "extra.txt",
            "samples/made/c.0",
            "samples/valid/c.0",
            "sources.json",
        ]
        assert "missing" in found["samples/made/c.0"]
        assert "symbolic link" in found["samples/valid/c.0"]


def test_build_json_is_outside(cache):
    (cache / "build.json").write_text("{}")
    assert verify(cache) == []


def test_a_row_table_that_swaps_samples_is_found_though_every_digest_fits(cache):
    """Somebody who rewrites manifest and chunk digests cannot swap two samples unseen."""
    root = verify_root(cache)
    for what in ("start", "length"):
        file = cache / f"rows/P/{what}/c.0"
        raw = bytearray(file.read_bytes())
        raw[8:16], raw[16:24] = raw[16:24], raw[8:16]
        file.write_bytes(raw)
        rewrite_digests(cache, f"rows/P/{what}")
    remade(cache, root)
    assert {p.file for p in verify(cache)} == {"rows/P/start"}
    assert {p.file for p in verify(cache, "values")} == {"rows/P/start", "samples/digest"}


def test_keys_that_are_no_text_each_are_found_though_all_together_are(tmp_path):
    cache = make_cache(
        tmp_path, {"x": ArraySpec("uint8", ())}, [{"x": 0}, {"x": 1}], keys=["ab", "cd"]
    )
    with (cache / "samples/key/c.0").open("r+b") as file:
        file.write(b"a\xc3\xa9d")  # a letter of two bytes, one in each key
    rewrite_digests(cache, "samples/key")
    remade(cache, verify_root(cache))
    assert [(p.file, p.what) for p in verify(cache)] == [("samples/key", "a key is no UTF-8")]


def test_a_wrong_content_root_is_found(cache):
    remade(cache, "0" * 32)
    (problem,) = verify(cache)
    assert "content root" in problem.what


def test_what_is_no_cache_is_a_wrong_request(tmp_path):
    with pytest.raises(UsageError, match="no finished cache"):
        verify(tmp_path)


def test_inputs_that_are_nested_too_deep_are_told(cache):
    root = verify_root(cache)
    (cache / "inputs.json").write_text('{"said": ' + "[" * 100_000 + "]" * 100_000 + "}")
    remade(cache, root)
    assert [(p.file, p.what) for p in verify(cache)] == [
        ("inputs.json", "does not say what the key is a digest of")
    ]
    (cache / "inputs.json").write_text('{"said": ' + "[" * 600 + "]" * 600 + "}")
    remade(cache, root)
    assert {p.file for p in verify(cache)} == {"inputs.json"}


def verify_root(cache):
    from datacheck.cache.manifest import read_manifest

    return read_manifest(open_store(cache)).content_root


def rewrite_digests(cache, array):
    """Make the chunk digests of a one-chunk table fit it."""
    import xxhash

    chunk = (cache / array / "c.0").read_bytes()[:65536]
    file = cache / "digests" / array / "c.0"
    raw = bytearray(file.read_bytes())
    raw[:8] = xxhash.xxh3_64_intdigest(chunk).to_bytes(8, "little")
    file.write_bytes(raw)


# ------------------------------------------------------------------------------------ what is named

BIG = {
    "image": ArraySpec("float32", (128, 128)),  # 65,536 bytes: a chunk is one row
    "points": ArraySpec("float64", (3,), "P"),  # 24 bytes: a chunk is 2,048 rows, 49,152 bytes
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
}
LENGTHS = (2000, 100, 0, 3000, 5)  # rows of points; a shard has two samples and 4,096 rows
EVERYTHING = (None, 0, 5)
NAMED = {  # (file, byte): field, shard, samples [first, stop)
    ("fields/image/c.0.0.0", 0): ("image", 0, 0, 1),
    ("fields/image/c.0.0.0", 65_536): ("image", 0, 1, 2),
    ("fields/image/c.1.0.0", 65_535): ("image", 1, 2, 3),
    ("fields/image/c.2.0.0", 9): ("image", 2, 4, 5),
    ("fields/image/c.0.0.0", 131_072): ("image", 0, 0, 2),  # the index
    ("fields/image/c.2.0.0", 65_536 + 33): ("image", 2, 4, 5),  # the crc
    ("fields/image/zarr.json", 40): ("image", *EVERYTHING),
    # Sample 1 begins in row 2,000 of the chunk's 2,048
    ("fields/points/c.0.0", 0): ("points", 0, 0, 2),
    ("fields/points/c.0.0", 49_152): ("points", 0, 1, 2),
    # Padding of a chunk that holds rows of sample 1
    ("fields/points/c.0.0", 98_303): ("points", 0, 1, 2),
    ("fields/points/c.1.0", 49_151): ("points", 1, 3, 4),  # sample 2 has no rows
    ("fields/points/c.2.0", 49_152 + 3): ("points", 2, 4, 5),  # the index
    ("fields/say/c.1", 2): ("say", 1, 2, 3),
    ("rows/P/start/c.0", 3): ("points", *EVERYTHING),
    ("rows/P/length/c.0", 8): ("points", *EVERYTHING),
    ("rows/P/zarr.json", 8): ("points", *EVERYTHING),
    ("rows/fields.say/start/zarr.json", 8): ("say", *EVERYTHING),
    ("rows/samples.key/start/c.0", 0): ("", *EVERYTHING),
    ("present/say/c.0", 2): ("say", *EVERYTHING),
    ("samples/key/c.0", 5): ("", *EVERYTHING),
    ("samples/origin/c.0", 65_540): ("", *EVERYTHING),
    ("samples/made/c.0", 1): ("", *EVERYTHING),
    ("samples/digest/c.0", 65_536): ("", *EVERYTHING),
    ("digests/fields/image/c.0", 0): ("image", 0, 0, 1),
    ("digests/fields/image/c.0", 31): ("image", 1, 3, 4),
    ("digests/fields/image/c.0", 40): ("image", *EVERYTHING),  # behind the fifth
    ("digests/fields/points/c.0", 8): ("points", 0, 1, 2),
    ("digests/fields/points/c.0", 65_540): ("points", *EVERYTHING),  # the index
    ("digests/fields/say/zarr.json", 0): ("say", *EVERYTHING),
    ("digests/samples/made/c.0", 0): ("", *EVERYTHING),
    ("digests/rows/P/start/c.0", 0): ("points", *EVERYTHING),
    ("digests/zarr.json", 0): ("", *EVERYTHING),
    ("zarr.json", 30): ("", *EVERYTHING),
    ("findings.json", 0): ("", *EVERYTHING),
    ("sources.json", 1): ("", *EVERYTHING),
    ("inputs.json", 1): ("", *EVERYTHING),
}


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    rng = np.random.default_rng(0)
    samples = [
        {"image": rng.random((128, 128), np.float32), "points": rng.random((n, 3))} for n in LENGTHS
    ]
    samples[2]["say"] = "hello"
    return make_cache(
        tmp_path_factory.mktemp("big"), BIG, samples, k=2, valid=[True, False, True, True, True]
    )


@contextmanager
def changed(path, raw):
    """Hold other bytes in a file for a while."""
    before = path.read_bytes()
    path.write_bytes(raw)
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def flipped(path, at, bit=3):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << bit
    with changed(path, raw):
        yield


def named(problem):
    return problem.field, problem.shard, problem.first, problem.stop


@pytest.mark.parametrize(("file", "at"), list(NAMED))
def test_a_flipped_bit_is_named_with_field_shard_and_samples(big, file, at):
    with flipped(big / file, at):
        (problem,) = verify(big)
    assert (problem.file, *named(problem)) == (file, *NAMED[file, at])
    first, stop = problem.first, problem.stop
    keys = [f"sample/{i:06d}" for i in (first, stop - 1)]
    if (first, stop) == (0, 5):
        assert problem.samples == "all 5 samples"
    elif stop - first == 1:
        assert problem.samples == f"sample {first}, {keys[0]}"
    else:
        assert problem.samples == f"samples {first} to {stop - 1}, {keys[0]} to {keys[1]}"


def test_the_table_of_regions_names_every_kind_of_file(big):
    def kind(file):
        return file.partition("/")[0], file.endswith("zarr.json")

    kinds = {kind(path) for path, _ in open_store(big).files()} - {("manifest.json", False)}
    # As the groups that are in it
    groups = {("fields", True), ("samples", True), ("present", True)}
    assert kinds - groups == {kind(file) for file, _ in NAMED} - groups


@pytest.mark.parametrize("at", [0, 20, 3000, -1, -30])
def test_a_damaged_manifest_concerns_all_samples(big, at):
    with flipped(big / "manifest.json", at):
        (problem,) = verify(big)
    assert (problem.file, problem.samples) == ("manifest.json", "all samples")


def test_a_key_table_of_many_chunks_names_the_samples_of_the_damaged_one(tmp_path):
    keys = [f"{i:01024d}" for i in range(200)]  # 64 keys to a chunk
    specs = {"x": ArraySpec("uint8", ())}
    cache = make_cache(tmp_path, specs, [{"x": 0}] * 200, keys=keys, k=64)
    with flipped(cache / "samples/key/c.0", 2 * 65_536 + 7):
        (problem,) = verify(cache)
    assert named(problem) == ("", 2, 128, 192)
    with flipped(cache / "samples/key/c.0", 200 * 1024):  # behind the last key, in its chunk
        (problem,) = verify(cache)
    assert named(problem) == ("", 3, 192, 200)


@pytest.mark.parametrize("raw", [b"", b"x", b"x" * 200_000])
@pytest.mark.parametrize(
    "file", ["fields/points/c.1.0", "rows/P/start/c.0", "fields/image/zarr.json", "zarr.json"]
)
def test_a_file_of_another_size_is_named_at_every_depth(big, file, raw):
    expected = ("points", 1, 2, 4) if file == "fields/points/c.1.0" else EVERYTHING
    with changed(big / file, raw):
        for depth in ("quick", "full", "values"):
            (problem,) = verify(big, depth)
            assert problem.file == file
            assert named(problem)[-len(expected) :] == expected


def swap(a, b):
    held = a.with_name("held")
    a.rename(held)
    b.rename(a)
    held.rename(b)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("fields/image/c.0.0.0", "fields/image/c.1.0.0", [("image", 0, 0, 2), ("image", 1, 2, 4)]),
        ("rows/P/start/c.0", "rows/P/length/c.0", [("points", *EVERYTHING)] * 2),
        ("samples/made/c.0", "samples/valid/c.0", [("", *EVERYTHING)] * 2),
    ],
)
def test_swapped_files_of_one_size_are_both_named(big, one, other, expected):
    assert (big / one).stat().st_size == (big / other).stat().st_size
    swap(big / one, big / other)
    try:
        problems = verify(big)
        assert verify(big, "quick") == []
    finally:
        swap(big / one, big / other)
    assert {p.file for p in problems} == {one, other}
    assert sorted({named(p) for p in problems if p.file in {one, other}}, key=str) == sorted(
        set(expected), key=str
    )


def linked(file, other):
    file.symlink_to(other)


def hard(file, other):
    file.hardlink_to(other)


def pipe(file, other):
    os.mkfifo(file)


def folder(file, other):
    file.mkdir()


def full_folder(file, other):
    file.mkdir()
    (file / "c.0").write_bytes(other.read_bytes())


def socketed(file, other):
    held = Path.cwd()
    os.chdir(file.parent)  # the address of a socket is short
    try:
        socket.socket(socket.AF_UNIX).bind(file.name)
    finally:
        os.chdir(held)


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("instead", [None, linked, hard, pipe, folder, full_folder, socketed])
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("fields/image/c.1.0.0", ("image", 1, 2, 4)),
        ("fields/image/zarr.json", ("image", *EVERYTHING)),
        ("digests/fields/image/c.0", ("image", *EVERYTHING)),
        ("rows/P/start/c.0", ("points", *EVERYTHING)),
        ("samples/key/c.0", ("", *EVERYTHING)),
        ("zarr.json", ("", *EVERYTHING)),
        ("inputs.json", ("", *EVERYTHING)),
        ("manifest.json", ("", None, 0, 0)),
    ],
)
def test_what_is_no_file_of_its_own_is_named_and_never_opened(
    big, tmp_path, file, expected, instead
):
    path, kept = big / file, tmp_path / "kept"
    path.rename(kept)
    try:
        if instead is not None:
            instead(path, big / "fields/image/c.0.0.0")
        if (file, instead) == ("manifest.json", None):
            with pytest.raises(UsageError, match="no finished cache"):
                verify(big)
        else:
            problem = next(p for p in verify(big) if p.file == file)
            assert named(problem) == expected
            if instead is not hard:
                assert (
                    "missing" if instead is None else "link" if instead is linked else "no file"
                ) in problem.what
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        kept.rename(path)
    assert verify(big) == []


@pytest.mark.parametrize("instead", [linked, pipe])
def test_even_a_file_that_nothing_is_said_of_is_a_file(big, instead):
    instead(big / "build.json", big / "zarr.json")
    try:
        assert [p.file for p in verify(big, "quick")] == ["build.json"]
    finally:
        (big / "build.json").unlink()


def test_damage_in_many_places_names_each(big):
    """A table that would tell is not believed when it is damaged itself: the answer is wider."""
    with flipped(big / "fields/points/c.0.0", 49_152), flipped(big / "rows/P/start/c.0", 3):
        found = {p.file: named(p) for p in verify(big)}
    assert found == {
        "fields/points/c.0.0": ("points", 0, 0, 2),
        "rows/P/start/c.0": ("points", *EVERYTHING),
    }
    with flipped(big / "fields/image/c.0.0.0", 0), flipped(big / "digests/fields/image/c.0", 0):
        found = {p.file: named(p) for p in verify(big)}
    assert found["fields/image/c.0.0.0"] == ("image", 0, 0, 2)
    with flipped(big / "fields/image/c.0.0.0", 0), flipped(big / "samples/key/c.0", 0):
        (problem,) = (p for p in verify(big) if p.field)
    assert problem.samples == "sample 0"
    with flipped(big / "fields/image/c.1.0.0", 0), flipped(big / "zarr.json", 0):
        found = {p.file: named(p) for p in verify(big)}
    assert found == {"fields/image/c.1.0.0": ("image", 1, 2, 3), "zarr.json": ("", *EVERYTHING)}
    with changed(big / "fields/image/c.1.0.0", b""), flipped(big / "zarr.json", 0):
        found = {p.file: named(p) for p in verify(big)}
    assert found["fields/image/c.1.0.0"] == ("image", 1, 0, 5)


def test_chunks_side_by_side_are_one_problem(big):
    raw = bytearray((big / "fields/image/c.1.0.0").read_bytes())
    raw[0], raw[65_536] = raw[0] ^ 1, raw[65_536] ^ 1
    with changed(big / "fields/image/c.1.0.0", raw):
        (problem,) = verify(big)
    assert named(problem) == ("image", 1, 2, 4)
    assert "chunks 0 to 1" in problem.what


# ------------------------------------------------------------------------------------ what is asked


@pytest.mark.parametrize("parts", [1, 2, 3, 10])
def test_all_parts_together_are_the_whole(big, parts):
    files = [f"fields/image/c.{g}.0.0" for g in range(3)] + [
        f"fields/points/c.{g}.0" for g in range(3)
    ]
    found = []
    with ExitStack() as stack:
        for file in files:
            stack.enter_context(flipped(big / file, 0))
        for n in range(1, parts + 1):
            found += [p.file for p in verify(big, subset=(n, parts))]
        assert sorted(found) == sorted(files) == [p.file for p in verify(big)]


def test_a_part_always_has_the_metadata(big):
    with flipped(big / "samples/valid/c.0", 0):
        assert [p.file for n in (1, 2) for p in verify(big, subset=(n, 2))] == [
            "samples/valid/c.0"
        ] * 2
    for wrong in ((0, 2), (3, 2), (1, 0)):
        with pytest.raises(UsageError, match="subset"):
            verify(big, subset=wrong)
    with pytest.raises(UsageError, match="subset"):
        verify(big, "quick", subset=(1, 2))


def test_a_cache_that_is_another_one_is_found_by_what_is_expected(big):
    manifest = read_manifest(open_store(big))
    assert (
        verify(big, expect=manifest.digest)
        == verify(big, "quick", expect=manifest.content_root)
        == []
    )
    (problem,) = verify(big, "quick", expect="ab" * 16)
    assert (problem.file, manifest.digest in problem.what) == ("manifest.json", True)
    for wrong in ("", "AB" * 16, "ab" * 8):
        with pytest.raises(UsageError, match="32 hex digits"):
            verify(big, expect=wrong)


def test_a_key_that_is_not_of_its_inputs_is_found(tmp_path):
    specs, samples = {"x": ArraySpec("uint8", ())}, [{"x": 0}]
    other = make_cache(tmp_path / "a", specs, samples, key="0" * 16)
    assert [p.file for p in verify(other)] == ["inputs.json"]
    cache = make_cache(tmp_path / "b", specs, samples)
    moved = cache.rename(cache.with_name("f" * 16))
    (problem,) = verify(moved)
    assert (problem.file, "f" * 16 in problem.what) == ("zarr.json", True)
    assert verify(moved.rename(cache.with_name("my-copy"))) == []


def test_findings_that_are_not_of_the_invalid_samples_are_found(big, tmp_path):
    copy = Path(shutil.copytree(big, tmp_path / "copy"))
    (copy / "findings.json").write_text('{"sample/000004":["DC301"]}')
    remade(copy, verify_root(big))
    assert [p.file for p in verify(copy)] == ["findings.json"]


@pytest.mark.parametrize("depth", ["quick", "full", "values"])
def test_nothing_is_mapped(big, monkeypatch, depth):
    """A map of a file that shrinks, or of a disk that fails, ends the process."""

    class Mapped(sharded_array.MappedRows):
        def __init__(self, *_):
            raise AssertionError

    monkeypatch.setattr(sharded_array, "MappedRows", Mapped)
    with pytest.raises(AssertionError):
        open_cache(big, io="mmap").gather("image", [0])
    assert verify(big, depth) == []


def test_a_disk_that_fails_while_it_reads_is_damage(big, monkeypatch):
    def refused(store, path):
        if path == "fields/image/c.1.0.0":
            raise StorageError(path) from OSError(errno.EIO, "Input/output error")
        return digest(store, path)

    digest = FolderStore.digest
    monkeypatch.setattr(FolderStore, "digest", refused)
    problems = verify(big)
    assert {p.file for p in problems} == {"fields/image/c.1.0.0"}
    assert named(problems[0]) == ("image", 1, 2, 4)
    assert "input/output error" in problems[0].what


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"files": 3},
        {"files": {"a": 1}},
        {"files": {"a": ["x", "y"]}},
        {"files": {"../a": [1, "0"]}},
        {"files": {"/etc/passwd": [1, "0"]}},
        {"files": {"a//b": [1, "0"]}},
        {"files": {"a\0": [1, "0"]}},
    ],
)
def test_a_manifest_that_somebody_made_up_is_damage(tmp_path, said):
    said = {"format": 1, "content_root": "0" * 32} | said
    (tmp_path / "manifest.json").write_bytes(
        canonical_json(said | {"digest": digest_bytes(canonical_json(said))})
    )
    (problem,) = verify(tmp_path)
    assert problem.file == "manifest.json"


def test_an_extra_file_of_any_name_is_named(big):
    for name in (b"\xff", b"fields/image/c.7.0.0", b".hidden"):
        path = Path(os.fsdecode(os.fsencode(big) + b"/" + name))
        path.touch()
        try:
            (problem,) = verify(big, "quick")
        finally:
            path.unlink()
        assert os.fsencode(problem.file) == name
        str(problem).encode()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([1], [(1, 2, 4)]),
        ([0, 1, 2], [(None, 0, 6)]),
        ([0, 2, 3, 5], [(0, 0, 2), (None, 4, 8), (5, 10, 11)]),
        ([0, 2, 4], [(0, 0, 2), (2, 4, 6), (4, 8, 10)]),
        ([0, 1, 3, 5], [(None, 0, 4), (3, 6, 8), (5, 10, 11)]),
    ],
)
@pytest.mark.parametrize("at_once", [1, 4, 1 << 20])
def test_shards_whose_rows_lie_elsewhere_are_told_as_runs(
    tmp_path, monkeypatch, wrong, told, at_once
):
    monkeypatch.setattr("datacheck.cache.verify._AT_ONCE", at_once)
    specs = {"points": ArraySpec("float64", (2,), "P")}
    folder = make_cache(
        tmp_path, specs, [{"points": np.ones((i % 3 + 1, 2))} for i in range(11)], k=2
    )
    cache = open_cache(folder)
    start, length = cache.row_table("P")
    start = start.copy()
    for shard in wrong:
        start[min(2 * shard + 1, 10)] += 1
    with mock.patch.object(type(cache), "row_table", return_value=(start, length)):
        found = list(_check_packing(cache, "P", 1000))
        assert [(one.shard, one.first, one.stop) for one in found] == told
        assert {(one.file, one.field) for one in found} == {("rows/P/start", "points")}
        assert [(one.first, one.stop) for one in _check_packing(cache, "P", 1)] == (
            [one[1:] for one in told]
            if len(told) == 1
            else [told[0][1:], (told[1][1], told[-1][2])]
        )


def test_chunks_of_other_digests_are_told_as_few_runs(tmp_path, monkeypatch):
    folder = make_cache(
        tmp_path, {"a": ArraySpec("uint8", (1 << 16,))}, [{"a": np.zeros(1 << 16)}] * 8, k=8
    )
    raw = bytearray((folder / "digests/fields/a/c.0").read_bytes())
    for i in (0, 2, 3, 5, 7):
        raw[8 * i] ^= 1
    (folder / "digests/fields/a/c.0").write_bytes(bytes(raw))
    damage = DamageLocator(
        open_store(folder), read_manifest(open_store(folder)), ("digests/fields/a/c.0",)
    )
    found = [(one.first, one.stop) for one in damage.chunks("digests/fields/a/c.0")]
    assert found == [(0, 1), (2, 4), (5, 6), (7, 8)]
    monkeypatch.setattr("datacheck.cache.damage.MOST_RUNS", 2)
    damage = DamageLocator(
        open_store(folder), read_manifest(open_store(folder)), ("digests/fields/a/c.0",)
    )
    assert [(one.first, one.stop) for one in damage.chunks("digests/fields/a/c.0")] == [
        (0, 1),
        (2, 4),
        (5, 8),
    ]


def test_samples_of_another_digest_are_told_up_to_a_thousand(tmp_path, monkeypatch):
    keys = [f"{i}" + "x" * 2000 for i in range(9)]
    folder = make_cache(
        tmp_path, {"a": ArraySpec("float32", ())}, [{"a": i} for i in range(9)], k=2, keys=keys
    )
    cache = open_cache(folder)
    said = cache.digests(np.arange(9))
    said[[1, 4, 5, 7]] += 1
    monkeypatch.setattr("datacheck.cache.verify._MOST_REPORTED", 2)
    with mock.patch.object(type(cache), "digests", return_value=said):
        found = list(_check_values(cache))
    assert [(one.first, one.stop, one.shard) for one in found] == [
        (1, 2, 0),
        (4, 5, 2),
        (5, 8, None),
    ]
    assert found[0].samples == f"sample 1, 1{'x' * 999}..."
    assert found[0].what.startswith(
        f"expected xxh3_64 {int(said[1]):016x}, found {int(said[1]) - 1:016x}"
    )
    assert (
        str(found[2]) == "samples/digest (samples 5 to 7): 2 more of another xxh3_64 than expected"
    )


def test_the_fields_below_a_folder_are_named_once_and_ten_at_most(tmp_path):
    specs = {f"a/{i:02d}": ArraySpec("float32", ()) for i in range(12)} | {
        "a0": ArraySpec("float32", ())
    }
    folder = make_cache(tmp_path, specs, [dict.fromkeys(specs, 0.0)], k=1)
    damage = DamageLocator(open_store(folder), read_manifest(open_store(folder)), ())
    first, second = (
        damage.problems(f"present/a/c.{i}", "missing", inside=False)[0].field for i in (0, 1)
    )
    assert first == ", ".join(f"a/{i:02d}" for i in range(10)) + " and 2 more"
    assert second is first
    assert damage.problems("fields/a/03/c.0", "missing", inside=False)[0].field == "a/03"


def test_a_long_key_is_told_in_short_by_every_file_of_its_shard(tmp_path):
    folder = make_cache(
        tmp_path,
        {"a": ArraySpec("float32", ())},
        [{"a": 0.0}] * 4,
        k=2,
        keys=["a", "b", "c", "d" * 4000],
    )
    damage = DamageLocator(open_store(folder), read_manifest(open_store(folder)), ())
    (problem,) = damage.problems("fields/a/c.1", "missing", inside=False)
    assert problem.samples == f"samples 2 to 3, c to {'d' * 1000}..."


def test_a_file_of_digests_larger_than_its_table_is_not_read_whole(tmp_path):
    folder = make_cache(tmp_path, {"a": ArraySpec("uint8", ())}, [{"a": 1}] * 4)
    digests = "digests/fields/a/c.0"
    # One digest and its index have 8 and 16 bytes; a table is padded by less than two chunks of
    # 64 KiB.
    for size, what in [
        (8 + 16 + 2 * 65536, "digest of chunk 0: "),
        (8 + 16 + 2 * 65536 + 1, "expected xxh3_128 "),
    ]:
        (folder / digests).write_bytes(bytes(size))
        manifest = read_manifest(open_store(folder))
        (folder / "manifest.json").unlink()
        files = measure_files(folder) | {digests: (size, "0" * 32)}
        write_manifest(folder, files, manifest.content_root)
        (problem,) = verify(folder)
        assert (problem.file, problem.stop) == (digests, 4)
        assert problem.what.startswith(what)


def flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))


def test_a_limited_number_of_problems_of_a_cache_names_keys_and_chunks(tmp_path, monkeypatch):
    folder = make_cache(
        tmp_path,
        {name: ArraySpec("uint8", (1 << 16,)) for name in "abc"},
        [dict.fromkeys("abc", np.zeros(1 << 16))] * 10,
        k=10,
        keys=list("0123456789"),
    )
    for name in "abc":
        for i in (1, 3, 4, 6):
            flip(folder / f"fields/{name}/c.0.0", i << 16)
    monkeypatch.setattr("datacheck.cache.damage.MOST_RUNS", 4)
    found = verify(folder)
    assert [(one.field, one.first, one.stop, one.samples) for one in found] == [
        ("a", 1, 2, "sample 1, 1"),
        ("a", 3, 5, "samples 3 to 4, 3 to 4"),
        ("a", 6, 7, "sample 6, 6"),
        ("b", 1, 2, "sample 1, 1"),
        ("b", 3, 7, "samples 3 to 6, 3 to 6"),
        ("c", 0, 10, "all 10 samples"),
    ]
    assert found[1].what == "chunks 3 to 4: other xxh3_64 than expected"
    assert found[4].what == "3 of chunks 3 to 6: other xxh3_64 than expected"
    assert found[5].what.startswith("expected xxh3_128 ")
    damage = DamageLocator(open_store(folder), read_manifest(open_store(folder)), ())
    found = [one for name in "abc" for one in damage.chunks(f"fields/{name}/c.0.0")]
    assert [(one.first, one.stop) for one in found[3:]] == [(1, 2), (3, 7), (0, 10)]
    assert found[-1].what == "4 of chunks 1 to 6: other xxh3_64 than expected"


def test_a_row_table_is_read_once_for_all_runs_of_damaged_chunks(tmp_path, monkeypatch):
    # A chunk of 64 KiB holds 8,192 float64, so that sample n has chunk n, and sample 4 none.
    rows = [0 if n == 4 else 1 << 13 for n in range(10)]
    folder = make_cache(
        tmp_path,
        {"a": ArraySpec("float64", (), "A")},
        [{"a": np.zeros(count)} for count in rows],
        k=10,
    )
    for chunk in (0, 2, 4, 6, 8):
        flip(folder / "fields/a/c.0", chunk << 16)
    reads = []
    unchecked = sharded_array.StoredArray.unchecked
    monkeypatch.setattr(
        sharded_array.StoredArray, "unchecked", lambda a: reads.append(a.path) or unchecked(a)
    )
    found = [(one.first, one.stop) for one in verify(folder)]
    assert found == [(0, 1), (2, 3), (5, 6), (7, 8), (9, 10)]
    assert reads.count("rows/A/start") == reads.count("rows/A/length") == 1


def test_rows_that_do_not_ascend_give_a_wider_range_of_samples():
    tables = {"start": np.array([20, 0, 5, 10, 30]), "length": np.array([5, 5, 0, 10, 5])}

    class Table:
        def __init__(self, path):
            self.path = path

        def unchecked(self):
            return tables[self.path.rpartition("/")[2]].copy()

    rows = RowToSample(Table, {"a": ArraySpec("uint8", (), "A")})
    assert rows.of("fields/a", 0, 5) == (0, 2)  # of sample 1
    assert rows.of("fields/a", 10, 12) == (0, 4)  # of sample 3
    assert rows.of("fields/a", 20, 22) == (0, 4)  # of sample 0
    assert rows.of("fields/a", 25, 30) == (0, 0)
    assert rows.of("fields/a", 34, 40) == (4, 5)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("keys", "found"),
    [("abcd", []), ("abca", ["samples/key"]), ("abbd", ["samples/key"]), ("bacd", ["samples/key"])],
)
def test_keys_are_checked_in_blocks(tmp_path, monkeypatch, keys, found, at_once):
    for module in ("reader", "verify"):
        monkeypatch.setattr(f"datacheck.cache.{module}.KEYS_AT_ONCE", at_once)
    asked = []
    for name in ("keys", "key_rows"):
        method = getattr(Cache, name)
        monkeypatch.setattr(
            Cache, name, lambda c, n, method=method: asked.append(len(n)) or method(c, n)
        )
    folder = make_cache(
        tmp_path, {"a": ArraySpec("float32", ())}, [{"a": 0}] * 4, keys=list(keys), valid=[0] * 4
    )
    assert [problem.file for problem in verify(folder)] == found
    assert max(asked) == min(at_once, 4)
    (folder / "findings.json").write_text('{"a":["DC301"],"b":["DC301"],"c":["DC301"]}')
    remade(folder, read_manifest(open_store(folder)).content_root)
    expected = [*found, "findings.json"] if "d" in keys else found
    assert [problem.file for problem in verify(folder)] == sorted(expected)
