"""Manifests of real folders: what is in them, what changes them, what is remembered, what is refused."""

import json
import os
import random
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import orjson
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.errors import MissingDependencyError, StorageError, UsageError
from datacheck.repro import manifest, sample_digests
from datacheck.repro.manifest import DatasetManifest, Files
from datacheck.repro.sample_digests import SampleDigests
from datacheck.runtime.beneath import ConfinedFolder
from datacheck.runtime.hashing import READ_BYTES
from datacheck.schema.load import load_schema
from datacheck.sources import file_digests, listing
from datacheck.sources.kinds import FileSource


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of 40 files, written a while ago; the working folder is beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(manifest, "SETTLED_NS", 0)  # nobody can make a ctime older
    folder = tmp_path / "data"
    (folder / "deep/er").mkdir(parents=True)
    for i in range(40):
        (folder / ("deep/er" if i % 3 else "") / f"{i:02d}.bin").write_bytes(
            random.Random(i).randbytes(i * 100)
        )
    settle(folder)
    return folder


def settle(folder):
    """Let all files be as old as files mostly are; those that were just written are never remembered."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, ns=(10**18, 10**18))


def expected(folder):
    """Path, size and digest of every file, by other means."""
    files = sorted((p.relative_to(folder).as_posix(), p) for p in folder.rglob("*") if p.is_file())
    return [
        [name, p.stat().st_size, xxhash.xxh3_128(p.read_bytes()).hexdigest()] for name, p in files
    ]


def files_of(made):
    files = made.files
    rows = zip(files.paths, files.sizes.tolist(), files.digests.tolist(), strict=True)
    return [[path, size, digest.decode()] for path, size, digest in rows]


def test_every_file_is_there_with_its_size_and_digest(data):
    made = manifest.make(data)
    assert files_of(made) == expected(data)
    assert (made.read, made.kept, made.skipped) == (40, 0, [])


@pytest.mark.parametrize("workers", [1, 2])
def test_children_make_the_same_manifest(data, workers, monkeypatch):
    monkeypatch.setattr(file_digests, "TASK_FILES", 7)
    monkeypatch.setattr(file_digests, "TASK_BYTES", 3500)  # some files are large then: a task each
    assert manifest.document(manifest.make(data, workers=workers)) == manifest.document(
        manifest.make(data, deep=True)
    )


def test_files_larger_than_the_buffer_are_read_to_their_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for size in (READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES + 5, 0):
        (tmp_path / f"data/{size}").write_bytes(random.Random(size).randbytes(size))
    assert files_of(manifest.make("data")) == expected(tmp_path / "data")


@pytest.mark.parametrize("again", [False, True])
def test_links_to_one_file_are_read_once(data, again, monkeypatch):
    if again:
        manifest.make(data)
    monkeypatch.setattr(file_digests, "LINKED_BYTES", 3900)
    monkeypatch.setattr(file_digests, "TASK_BYTES", 3900)  # each large file has a task of its own
    (data / "x.bin").write_bytes(b"x" * 5000)
    (data / "other.bin").write_bytes(b"y" * 5000)
    for name in ("1.bin", "2.bin", "z.bin"):
        (data / name).hardlink_to(data / "x.bin")
    (data / "link.bin").symlink_to("x.bin")
    settle(data)
    read = []

    def counted(task, beat):
        read.extend(path for path in task["items"] if Path(data, path).stat().st_size == 5000)
        return digest_files(task, beat)

    digest_files = file_digests.digest_files
    monkeypatch.setattr(file_digests, "digest_files", counted)
    assert files_of(manifest.make(data)) == expected(data)
    assert len(read) == 2
    assert "other.bin" in read


def test_the_order_on_disk_changes_nothing(data, monkeypatch):
    straight = manifest.document(manifest.make(data))
    scandir = os.scandir

    class Shuffled:
        def __init__(self, path):
            with scandir(path) as found:
                self.found = list(found)
            random.Random(len(self.found)).shuffle(self.found)

        def __enter__(self):
            return iter(self.found)

        def __exit__(self, *_):
            pass

    shuffled = []
    monkeypatch.setattr(listing.os, "scandir", lambda path: shuffled.append(path) or Shuffled(path))
    assert manifest.document(manifest.make(data)) == straight
    assert len(shuffled) >= 3


def test_the_place_the_times_and_the_owner_of_files_change_nothing(data, tmp_path):
    copy = tmp_path / "elsewhere/copy"
    shutil.copytree(data, copy)
    (copy / "00.bin").chmod(0o600)
    assert manifest.document(manifest.make(copy)) == manifest.document(manifest.make(data))


@pytest.mark.parametrize("change", ["byte", "name", "gone", "new", "longer"])
def test_whatever_changes_gives_another_root(data, change):
    before = manifest.make(data).root
    file = data / "deep/er/07.bin"
    content = file.read_bytes()
    if change == "byte":
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif change == "longer":
        file.write_bytes(content + b"\0")
    elif change == "name":
        file.rename(data / "deep/er/07.bim")
    elif change == "gone":
        file.unlink()
    else:
        (data / "empty").touch()
    assert manifest.make(data).root != before


def test_extra_folders_are_in_it_under_their_names(data, tmp_path):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes/a.obj").write_bytes(b"v 0 0 0\n")
    made = manifest.make(data, roots={"meshes": tmp_path / "meshes"})
    assert made.files.paths[-0] == "00.bin"
    assert made.files.by_path()["@meshes/a.obj"] == xxhash.xxh3_128(b"v 0 0 0\n").hexdigest()
    assert manifest.make(data).root != made.root


def test_a_zarr_folder_is_one_entry_and_changes_with_any_of_its_files(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    zarr.save(str(tmp_path / "data/x.zarr"), np.arange(100))
    before = manifest.make("data")
    assert before.files.paths == ["x.zarr"]
    chunk = next(p for p in (tmp_path / "data/x.zarr").rglob("c/*") if p.is_file())
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    assert manifest.make("data").root != before.root


def test_a_zarr_folder_a_part_of_which_cannot_be_read_is_no_manifest(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    zarr.save(str(tmp_path / "data/x.zarr"), np.arange(100))

    def refusing(path, beat=None):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(listing, "digest_file", refusing)
    with pytest.raises(StorageError, match=r"x\.zarr cannot be read: permission denied"):
        manifest.make("data")


# ------------------------------------------------------------------------------- what is remembered


def test_a_second_manifest_reads_nothing_and_is_the_same(data, monkeypatch):
    first = manifest.make(data)
    monkeypatch.setattr(file_digests, "digest_files", None)  # whoever reads fails
    again = manifest.make(data)
    assert (again.read, again.kept) == (0, 40)
    assert manifest.document(again) == manifest.document(first)


def test_a_file_that_changed_is_read_again_and_no_other(data):
    manifest.make(data)
    file = data / "deep/er/20.bin"
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(10**18, 10**18))  # size, mtime and inode are what they were; ctime is not
    again = manifest.make(data)
    assert (again.read, again.kept) == (1, 39)
    assert files_of(again) == expected(data)


def test_a_file_in_the_place_of_another_is_read_again(data):
    manifest.make(data)
    (data / "x").write_bytes(bytes(2000))
    os.utime(data / "x", ns=(10**18, 10**18))
    (data / "x").rename(data / "deep/er/20.bin")
    again = manifest.make(data)
    assert again.read == 1
    assert files_of(again) == expected(data)


def test_what_was_just_written_is_not_remembered(data):
    (data / "00.bin").write_bytes(b"now")
    manifest.make(data)
    assert manifest.make(data).read == 1


def test_what_was_just_written_and_made_to_look_old_is_not_remembered(data, monkeypatch):
    monkeypatch.setattr(manifest, "SETTLED_NS", 2 * 10**9)
    manifest.make(data)
    assert manifest.make(data).read == 40
    now = listing.time.time_ns
    # Listed three seconds later
    monkeypatch.setattr(listing.time, "time_ns", lambda: now() + 3 * 10**9)
    manifest.make(data)
    assert manifest.make(data).read == 0


def test_deep_reads_all_and_says_what_changed_behind_its_back(data, monkeypatch):
    manifest.make(data)
    place = next(Path(".datacheck/manifests").iterdir())
    with np.load(place) as arrays:
        known = dict(arrays)
    known["digests"][3] = b"0" * 32  # as if the bytes had changed and nothing else
    np.savez(place, **known)
    assert manifest.make(data).files.digests[3] == b"0" * 32  # a memory is believed
    deep = manifest.make(data, deep=True)
    assert files_of(deep) == expected(data)
    assert deep.read == 40
    assert deep.files.paths[3] in deep.notes[0]
    assert manifest.make(data).notes == ()


@pytest.mark.parametrize("damage", [b"", b"no archive", "cut", "flip"])
def test_a_damaged_memory_is_none(data, damage):
    manifest.make(data)
    place = next(Path(".datacheck/manifests").iterdir())
    whole = place.read_bytes()
    if damage == "cut":
        damage = whole[: len(whole) // 2]
    elif damage == "flip":
        damage = whole[:600] + bytes([whole[600] ^ 1]) + whole[601:]
    place.chmod(0o600)
    place.write_bytes(damage)
    again = manifest.make(data)
    assert again.read == 40
    assert files_of(again) == expected(data)
    assert manifest.make(data).read == 0  # and the next one is sound


def test_a_memory_that_cannot_be_written_is_told(data, monkeypatch):
    Path(".datacheck").write_text("a file where the folder should be")
    made = manifest.make(data)
    assert "cannot be written" in made.notes[0]
    assert files_of(made) == expected(data)


def test_two_datasets_have_two_memories(data, tmp_path):
    shutil.copytree(data, tmp_path / "copy")
    settle(tmp_path / "copy")
    manifest.make(data)
    assert manifest.make("copy").read == 40
    assert manifest.make(data).read == 0


# ------------------------------------------------------------------------------------------ samples


def test_samples_are_digested_field_by_field(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for i in range(5):
        np.savez(tmp_path / f"data/{i}.npz", x=rng.normal(size=3), y=np.int64(i))
    schema = load_schema("files", lambda _: [])
    before = manifest.make("data", schema=schema).samples
    with np.load("data/3.npz") as arrays:
        np.savez("data/3.npz", x=arrays["x"], y=np.int64(7))
    # Other bytes may be
    np.savez("data/4.npz", **{name: np.load("data/4.npz")[name] for name in ("x", "y")})
    after = manifest.make("data", schema=schema).samples
    assert sorted(before.rows) == [f"{i}.npz" for i in range(5)]
    assert {key for key in before.rows if before.rows[key] != after.rows[key]} == {"3.npz"}
    assert before.rows["3.npz"]["x"] == after.rows["3.npz"]["x"]
    assert before.rows["3.npz"]["y"] != after.rows["3.npz"]["y"]
    value = np.int64(3)
    framed = b"y\0<i8\0\0" + value.tobytes()
    assert before.rows["3.npz"]["y"] == xxhash.xxh3_64(framed).hexdigest()


def test_samples_of_unchanged_files_are_not_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for i in range(3):
        np.save(f"data/{i}.npy", np.arange(i + 1))
    schema = load_schema("files", lambda _: [])
    first = manifest.make("data", schema=schema)
    real, calls = manifest.digest_samples, []
    monkeypatch.setattr(
        manifest, "digest_samples", lambda *given: calls.append(given) or real(*given)
    )
    assert manifest.make("data", schema=schema).samples == first.samples
    assert calls == []
    assert manifest.make("data", schema=schema, deep=True).samples == first.samples
    other = schema.model_copy(update={"name": "others"})
    assert manifest.make("data", schema=other).samples.schema == "others"
    np.save("data/1.npy", np.arange(2)[::-1])
    changed = manifest.make("data", schema=schema).samples
    assert len(calls) == 3
    assert {key for key in changed.rows if changed.rows[key] != first.samples.rows[key]} == {
        "1.npy"
    }


def test_a_sample_that_cannot_be_made_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    np.save("data/a.npy", np.zeros(3))
    Path("data/b.npy").write_bytes(b"no array")
    made = manifest.make("data", schema=load_schema("files", lambda _: []))
    assert list(made.samples.rows) == ["a.npy"]
    assert list(made.samples.unread) == ["b.npy"]
    assert made.samples.unread["b.npy"].startswith("DC1")
    assert manifest._parsed(orjson.loads(manifest.document(made))).samples == made.samples


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """Three arrays of one sample each, and the schema that reads them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for i in range(3):
        np.save(f"data/{i}.npy", np.arange(i + 1))
    return load_schema("files", lambda _: [])


def digests_of(*arrays):
    """What the digests of the samples of such files are, by other means."""
    names = {
        f"{i}.npy": b"array\0<i8\0" + f"{len(a)}".encode() + b"\0" + a.tobytes()
        for i, a in enumerate(arrays)
    }
    return {name: {"array": xxhash.xxh3_64(framed).hexdigest()} for name, framed in names.items()}


def test_samples_take_little_memory_and_their_digest_is_that_of_the_whole_document(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    count = 20_000
    rows = {f"d/{i:06}.npy": {"a": f"{i:016x}", "ü": f"{i * i:016x}"} for i in range(count)}
    said = [(key, tuple(row), bytes.fromhex("".join(row.values()))) for key, row in rows.items()]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = SampleDigests("s", sample_digests.DigestRows(said), {"x": "DC101 why"})
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Keys and digests are those of `said`; a dict with two texts takes 360 bytes more
    assert held < 200 * count
    assert made.rows == rows
    text = json.dumps(
        ["s", rows, {"x": "DC101 why"}], sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    assert made.digest == xxhash.xxh3_128_hexdigest(text.encode())


@pytest.mark.parametrize(("values", "nbytes"), [(16_000_000, 0), (16_000_001, 64_000_004)])
def test_more_values_than_a_manifest_names_are_an_error(lines, values, nbytes):
    sample_digests._check_count(values, nbytes, 5, lines)
    with pytest.raises(
        UsageError, match=rf"5 samples and more have {values + 1:,} values by schema files; a man"
    ):
        sample_digests._check_count(values + 1, nbytes, 5, lines)


def test_values_are_counted_while_samples_are_read(lines, monkeypatch):
    counted = []
    monkeypatch.setattr(sample_digests, "TASK_ITEMS", 1)
    monkeypatch.setattr(sample_digests, "_check_count", lambda *given: counted.append(given[:3]))
    manifest.make("data", schema=lines)
    nbytes = sum(file.stat().st_size for file in Path("data").iterdir())
    assert counted == [(1, nbytes, 1), (2, nbytes, 2), (3, nbytes, 3)]


@pytest.mark.parametrize("name", ["1.npy", "3.npy"])
def test_data_that_change_before_their_samples_are_read_are_no_manifest(lines, name, monkeypatch):
    real = manifest.digest_samples

    def raced(*given):
        np.save(f"data/{name}", np.arange(2)[::-1])  # of the length that it had
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "digest_samples", raced)
        with pytest.raises(StorageError, match=rf"{name} changed while samples were read"):
            manifest.make("data", schema=lines)
    if name == "3.npy":
        Path("data/3.npy").unlink()
    else:
        np.save("data/1.npy", np.arange(2))
    # Of these bytes, and of none that lay there meanwhile
    made = manifest.make("data", schema=lines)
    assert made.samples.rows == digests_of(*(np.arange(i + 1) for i in range(3)))


@pytest.mark.parametrize("how", ["die", "lack"])
def test_samples_that_another_call_may_be_able_to_read_are_not_remembered(lines, how, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sample_digests, "_TASK", f"tests.repro.test_manifest:{how}")
        assert list(manifest.make("data", schema=lines).samples.unread) == [
            "0.npy",
            "1.npy",
            "2.npy",
        ]
    made = manifest.make("data", schema=lines)
    assert made.samples.unread == {}
    assert made.samples.rows == digests_of(*(np.arange(i + 1) for i in range(3)))


def lack(task, beat):
    """Read samples as where a library is not installed."""

    def parts(self, item, shelf):
        msg = "needs a library"
        raise MissingDependencyError(msg)
        yield

    before, FileSource.parts = FileSource.parts, parts
    try:
        return sample_digests.digest_items(task, beat)
    finally:
        FileSource.parts = before


# ---------------------------------------------------------------------------------------- as a file

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
FILES = st.dictionaries(
    TEXT, st.tuples(st.integers(0, 2**63 - 1), st.binary(min_size=16, max_size=16))
)
FIELDS = st.dictionaries(TEXT, st.binary(min_size=8, max_size=8).map(bytes.hex))
SAMPLES = st.none() | st.builds(
    SampleDigests,
    TEXT,
    st.dictionaries(TEXT, FIELDS, max_size=4),
    st.dictionaries(TEXT, TEXT, max_size=2),
)


def built(files, samples, skipped):
    paths = sorted(files)
    digests = np.array([files[p][1].hex().encode() for p in paths], "S32")
    return DatasetManifest(
        Files(paths, np.array([files[p][0] for p in paths], np.int64), digests), samples, skipped
    )


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=FILES, samples=SAMPLES, skipped=st.lists(st.tuples(TEXT, TEXT), max_size=3))
def test_what_is_written_and_read_back_is_equal(tmp_path, files, samples, skipped):
    made = built(files, samples, skipped)
    manifest.write(made, tmp_path / "m.json")
    back = manifest.read(tmp_path / "m.json")
    assert (back.files.paths, back.files.sizes.tolist()) == (
        made.files.paths,
        made.files.sizes.tolist(),
    )
    assert (back.files.digests.tolist(), back.root) == (made.files.digests.tolist(), made.root)
    assert (back.samples, back.skipped) == (made.samples, made.skipped)
    said = orjson.loads((tmp_path / "m.json").read_bytes())  # plain JSON
    assert [row[0] for row in said["files"]] == sorted(files)
    # A line each, for people and git
    assert len((tmp_path / "m.json").read_bytes().splitlines()) >= len(files)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damage_goes_unseen(tmp_path, data):
    whole = manifest.document(built({"a": (1, bytes(16)), "b/c": (2, bytes(range(16)))}, None, []))
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    other = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    damaged = whole[:place] if cut else whole[:place] + other + whole[place + 1 :]
    (tmp_path / "m.json").write_bytes(damaged)
    with pytest.raises(UsageError, match=r"m\.json: "):
        manifest.read(tmp_path / "m.json")


def sealed(text):
    body = text.encode()
    return body + f'\n"digest": "{xxhash.xxh3_128(body).hexdigest()}"}}\n'.encode()


HEAD = '{"format": "datacheck.manifest/1",'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no manifest"),
        (b"\x93NUMPY" + bytes(200), "is no manifest"),
        (b'{"format": "datacheck.manifest/9",\n', "another version"),
        (HEAD.encode(), "ends too soon"),
        (sealed(HEAD + "["), "no manifest that datacheck wrote"),
        (sealed(HEAD + '"files": 3,'), "no manifest that datacheck wrote"),
        (sealed(HEAD + '"files": [[]],'), "no manifest that datacheck wrote"),
        (sealed(HEAD + '"files": [["a",1]],'), "no manifest that datacheck wrote"),
        (
            sealed(HEAD + '"files": [["b",1,"' + "0" * 32 + '"],["a",1,"' + "0" * 32 + '"]],'),
            "not in the order",
        ),
        (sealed(HEAD + '"files": [["a",-1,"' + "0" * 32 + '"]],'), "a size is no number"),
        (sealed(HEAD + '"files": [["a",true,"' + "0" * 32 + '"]],'), "a size is no number"),
        (
            sealed(HEAD + '"files": [["a",1e400,"' + "0" * 32 + '"]],'),
            "no manifest that datacheck wrote",
        ),
        (sealed(HEAD + '"files": [["a",99999999999999999999,"' + "0" * 32 + '"]],'), "no manifest"),
        (sealed(HEAD + '"files": [["a",1,"xyz"]],'), "a digest is none"),
        (sealed(HEAD + '"files": [[1,1,"' + "0" * 32 + '"]],'), "a path is no text"),
        (
            sealed(HEAD + '"root": "0", "skipped": [], "files": [["a",1,"' + "0" * 32 + '"]],'),
            "its root is not",
        ),
        (sealed(HEAD + '"files": ' + "[" * 100_000), "no manifest that datacheck wrote"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(tmp_path, content, said):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(UsageError, match=said) as refused:
        manifest.read(tmp_path / "m.json")
    assert "\n" not in str(refused.value)


def test_places_that_hold_no_manifest(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file"):
        manifest.read(tmp_path / "pipe")  # and does not wait for a writer
    with pytest.raises(UsageError, match="is no file"):
        manifest.read(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        manifest.read(tmp_path / "nowhere")
    with pytest.raises(StorageError):
        manifest.read(tmp_path / ("long" * 100))


def test_a_manifest_replaces_a_manifest_and_nothing_else(tmp_path):
    made = built({"a": (1, bytes(16))}, None, [])
    (tmp_path / "precious.json").write_text('{"mine": 1}')
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    whys = {
        "precious.json": "was not written by datacheck manifest",
        "link": "is a link",
        "pipe": "is no regular file",
        ".": "is no regular file",
    }
    for name, why in whys.items():
        with pytest.raises(UsageError, match=f"exists and {why}, so it is not replaced"):
            manifest.write(made, tmp_path / name)
    assert (tmp_path / "precious.json").read_text() == '{"mine": 1}'
    with pytest.raises(UsageError, match="no folder"):
        manifest.write(made, tmp_path / "nowhere/m.json")
    manifest.write(made, tmp_path / "m.json")
    manifest.write(built({}, None, []), tmp_path / "m.json")
    assert manifest.read(tmp_path / "m.json").files.paths == []


@pytest.fixture
def circle(data, tmp_path):
    """Two links that lead to each other, beside the data."""
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    return tmp_path / "one"


@pytest.mark.parametrize(("below", "said"), [("", "is a link"), ("m.json", "there is no folder")])
def test_links_that_lead_in_a_circle_are_no_place_for_a_manifest(data, circle, below, said):
    with pytest.raises(UsageError, match=said):
        manifest.check_output(circle / below, [data])


@pytest.mark.parametrize("below", ["", "x"])
def test_links_that_lead_in_a_circle_are_no_folder_of_data(data, circle, tmp_path, below):
    manifest.check_output(tmp_path / "m.json", [data, circle / below])
    with pytest.raises(UsageError, match="too many levels of symbolic links"):
        manifest.make(data, roots={"x": circle / below})
    with pytest.raises(UsageError, match="too many levels of symbolic links"):
        manifest.make(circle / below)


def test_a_manifest_does_not_lie_in_the_data_behind_a_link_either(data, tmp_path):
    (tmp_path / "link").symlink_to(data / "deep")
    with pytest.raises(UsageError, match="lies in the data"):
        manifest.check_output(tmp_path / "link/m.json", [data])


# ----------------------------------------------------------------------------------------- bad data


def test_missing_and_empty_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no such file or folder"):
        manifest.make("nowhere")
    Path("empty").mkdir()
    with pytest.raises(UsageError, match="holds no files"):
        manifest.make("empty")
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match=r"holds no files.*not a regular file"):
        manifest.make("pipe")


def test_what_is_no_file_is_told_and_not_waited_for(data):
    os.mkfifo(data / "pipe")
    (data / "out").symlink_to("/etc/hostname")
    (data / ".hidden").touch()
    Path(os.fsdecode(os.fsencode(data) + b"/\xff")).touch()
    made = manifest.make(data)
    assert len(made.files) == 40
    assert [path for path, _ in made.skipped] == [".hidden", "\\xff", "out", "pipe"]
    assert manifest._parsed(orjson.loads(manifest.document(made))).skipped == made.skipped


def relist(monkeypatch, listed):
    """Let the next listing be one that was made before."""

    def again(root, roots, only, found):
        entry = dict(zip(listed.told.tolist(), listed.entries, strict=True))
        told = [entry[i] for i in range(len(entry))]
        found([one.path for one in told], [one.size for one in told])
        return listed

    monkeypatch.setattr(listing, "list_files", again)


@pytest.mark.parametrize("workers", [None, 1])
def test_a_file_that_cannot_be_read_is_no_manifest(data, workers, monkeypatch):
    listed = listing.list_files(data)
    (data / "deep/er/20.bin").unlink()
    (data / "deep/er/22.bin").unlink()
    relist(monkeypatch, listed)
    with pytest.raises(
        StorageError, match=r"deep/er/20\.bin cannot be read \(and 1 more\): no such file"
    ):
        manifest.make(data, workers=workers)
    # Of all others, for the next time
    known = manifest._recall(manifest._store_path(data, {}, None), listed)
    lost = [
        path
        for path, digest in zip(listed.entries.paths, known.tolist(), strict=True)
        if not digest
    ]
    assert lost == ["deep/er/20.bin", "deep/er/22.bin"]


@pytest.mark.parametrize("how", ["refused", "changed"])
def test_one_bad_file_does_not_throw_away_what_was_read(data, how, monkeypatch):
    opened = ConfinedFolder.open

    def bad(self, path, **options):
        if path.endswith("20.bin"):
            if how == "refused":
                raise PermissionError(13, "Permission denied")
            (data / path).write_bytes(b"written while it was read")
            os.utime(data / path, ns=(10**18 + 1, 10**18 + 1))
        return opened(self, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ConfinedFolder, "open", bad)
        with pytest.raises(StorageError, match=r"deep/er/20\.bin"):
            manifest.make(data)
    made = manifest.make(data)
    assert (made.read, made.kept) == (1, 39)
    assert files_of(made) == expected(data)


def test_other_bytes_are_told_after_a_run_that_ended_with_an_error(data, monkeypatch):
    manifest.make(data)
    place = manifest._store_path(data, {}, None)
    listed = listing.list_files(data)
    known = manifest._recall(place, listed)
    known[0] = b"0" * 32  # as if the bytes had been others, and nothing but reading told so
    manifest._remember(place, listed.with_digests(known))
    with monkeypatch.context() as patch:
        relist(patch, listed)
        (data / "deep/er/20.bin").rename(data / "away")
        with pytest.raises(StorageError, match=r"deep/er/20\.bin"):
            manifest.make(data, deep=True)
    (data / "away").rename(data / "deep/er/20.bin")
    assert "1 files have other bytes than before" in manifest.make(data, deep=True).notes[0]


def test_a_file_that_changes_meanwhile_is_no_manifest(data, monkeypatch):
    listed = listing.list_files(data)
    (data / "deep/er/20.bin").write_bytes(bytes(2000))
    relist(monkeypatch, listed)
    with pytest.raises(StorageError, match=r"a file changed: deep/er/20\.bin"):
        manifest.make(data)


def test_a_pipe_in_the_place_of_a_listed_file_is_not_waited_for(data, monkeypatch):
    listed = listing.list_files(data)
    (data / "deep/er/20.bin").unlink()
    os.mkfifo(data / "deep/er/20.bin")
    relist(monkeypatch, listed)
    with pytest.raises(StorageError, match=r"deep/er/20\.bin"):
        manifest.make(data)


def test_a_folder_that_cannot_be_listed_is_no_manifest(data, monkeypatch):
    opened = ConfinedFolder.listed

    def refusing(self, path):
        if path.endswith("/er"):
            raise PermissionError(13, "Permission denied")
        return opened(self, path)

    monkeypatch.setattr(ConfinedFolder, "listed", refusing)
    monkeypatch.setattr(file_digests, "digest_files", None)  # and none of the other files is read
    with pytest.raises(StorageError, match="deep/er: folder cannot be read: permission denied"):
        manifest.make(data)


def test_a_file_that_may_not_be_opened(data, monkeypatch):
    opened = ConfinedFolder.open

    def refusing(self, path, **options):
        if path.endswith("20.bin"):
            raise PermissionError(13, "Permission denied")
        return opened(self, path, **options)

    monkeypatch.setattr(ConfinedFolder, "open", refusing)
    with pytest.raises(StorageError, match=r"deep/er/20\.bin cannot be read: permission denied"):
        manifest.make(data)


def test_a_reader_that_is_killed_ends_with_a_message(tmp_path, monkeypatch):
    data = tmp_path / "few"  # each file ends two processes
    data.mkdir()
    for name in "ab":
        (data / name).write_bytes(b"x")
    monkeypatch.setattr(file_digests, "_TASK", "tests.repro.test_manifest:die")
    with pytest.raises(StorageError, match="reading it failed"):
        manifest.make(data, workers=1)


def die(task, beat):
    beat(0)
    os._exit(9)


def test_the_same_manifest_comes_from_a_process_of_its_own(data, repository):
    script = (
        "from datacheck.repro.manifest import *; import sys; "
        "sys.stdout.buffer.write(document(make('data')))"
    )
    env = os.environ | {
        "PYTHONPATH": str(repository),
        "PYTHONHASHSEED": "7",
        "LC_ALL": "C",
        "TZ": "Asia/Kathmandu",
    }
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=env)
    assert run.stdout == manifest.document(manifest.make(data))
    assert manifest._store_path(data, {}, None).exists()


def test_an_interrupt_ends_a_walk_that_would_go_on(tmp_path, monkeypatch):
    ended = []

    def endless(found):
        try:
            while True:
                found(["x"], [1])
        finally:
            ended.append(True)

    def interrupted(root, roots, tasks, workers, progress):
        next(tasks)
        raise KeyboardInterrupt

    monkeypatch.setattr(file_digests, "_digested", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file_digests.digest_while_listed(tmp_path, {}, endless, None, None)
    assert ended == [True]


def test_data_that_cannot_be_listed_say_so_though_a_thread_lists_them(data, tmp_path):
    with pytest.raises(UsageError, match="nowhere: no such file or directory"):
        manifest.make(data, roots={"x": tmp_path / "nowhere"})
