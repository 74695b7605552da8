"""Reading: what was written comes back, by map and by read, equal to zarr-python; damage never does."""

from __future__ import annotations

import gc
import json
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.cache import addresses, layout, open_cache, row_readers, sharded_array
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.row_readers import ForeignRows
from datacheck.cache.store import FolderStore, open_store
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime import machine
from tests.cache.make import make_cache

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@st.composite
def caches(draw):
    fixed, ragged = (draw(st.sampled_from(DTYPES)) for _ in "ab")
    specs = {
        "fixed": ArraySpec(
            fixed, draw(st.sampled_from([(), (1,), (3,), (21, 3), (2, 2, 2), (1024,)]))
        ),
        "obs/größe": ArraySpec(ragged, draw(st.sampled_from([(), (3,), (2, 5)])), "P"),
        "label": ArraySpec("int64", (), "P"),
        "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
        "talk": ArraySpec("uint8", (), layout.text_dim("talk"), "json"),
    }
    samples = []
    for _ in range(draw(st.integers(0, 9))):
        rows = draw(st.integers(0, 6))
        values = {
            "fixed": draw(
                hnp.arrays(
                    fixed,
                    specs["fixed"].item,
                    fill=st.nothing() if specs["fixed"].item == () else None,
                )
            ),
            "obs/größe": draw(hnp.arrays(ragged, (rows, *specs["obs/größe"].item))),
            "label": np.arange(rows),
            "talk": draw(
                st.sampled_from([{"a": [1, None]}, [], [{"role": "user", "content": "hällo\n"}]])
            ),
        }
        if draw(st.booleans()):
            values["say"] = draw(
                st.text(max_size=8).filter(lambda t: not any("\ud800" <= c <= "\udfff" for c in t))
            )
        samples.append(values)
    return (
        specs,
        samples,
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from(["none", "zstd", "zstd:1"])),
    )


@settings(max_examples=25)
@given(caches(), st.randoms(use_true_random=False))
def test_what_was_written_comes_back(written, random):
    specs, samples, k, codec = written
    order = [random.randrange(len(samples)) for _ in range(7)] if samples else []
    with tempfile.TemporaryDirectory() as root:
        folder = make_cache(Path(root), specs, samples, k=k, codec=Codec.parse(codec))
        fields = zarr.open_group(folder, mode="r")["fields"]
        for io in ("mmap", "pread"):
            cache = open_cache(root, io=io, verify="always")
            assert len(cache) == len(samples)
            got = cache.gather("fixed", order)
            assert got.tobytes() == b"".join(samples[i]["fixed"].tobytes() for i in order)
            assert got.tobytes() == b"".join(
                np.asarray(fields["fixed"][i]).tobytes() for i in order
            )
            values, lengths = cache.gather_ragged("obs/größe", order)
            assert lengths.tolist() == [len(samples[i]["label"]) for i in order]
            assert values.tobytes() == b"".join(samples[i]["obs/größe"].tobytes() for i in order)
            assert values.dtype == specs["obs/größe"].dtype
            present = cache.present("say", order)
            assert present.tolist() == ["say" in samples[i] for i in order]
            assert cache.texts("say", order) == [samples[i].get("say", "") for i in order]
            assert cache.texts("talk", order) == [samples[i]["talk"] for i in order]
            assert cache.keys(order) == [f"sample/{i:06d}" for i in order]
            del cache
        gc.collect()


CLOUDS = {"cloud": ArraySpec("float32", (1024,)), "points": ArraySpec("float32", (3,), "P")}


def clouds(count=10):
    rng = np.random.default_rng(0)
    return [
        {
            "cloud": rng.random(1024, dtype=np.float32),
            "points": rng.random((i % 4, 3), dtype=np.float32),
        }
        for i in range(count)
    ]


@pytest.fixture
def made(tmp_path):
    samples = clouds()
    return make_cache(tmp_path, CLOUDS, samples, k=4), samples


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def remade(folder: Path) -> None:
    """Write a manifest that fits the files as they are now."""
    os.unlink(folder / "manifest.json")
    write_manifest(folder, measure_files(folder), "0" * 32)


def test_page_sized_samples_lie_in_one_contiguous_range(made):
    folder, samples = made
    rows = open_cache(folder)._arrays["fields/cloud"].rows
    assert isinstance(rows, row_readers.MappedRows)
    assert rows._rows is not None
    assert rows._rows.flags.c_contiguous
    np.testing.assert_array_equal(rows._rows[: len(samples)], [s["cloud"] for s in samples])


def test_the_map_lives_as_long_as_an_array_looks_at_it(made):
    folder, samples = made
    mapped = lambda: Path("/proc/self/maps").read_text().count(f"{folder}/fields/cloud")  # noqa: E731
    view = open_cache(folder)._arrays["fields/cloud"].rows._rows[5:6]
    gc.collect()
    assert mapped() == 3
    np.testing.assert_array_equal(view[0], samples[5]["cloud"])
    del view
    gc.collect()
    assert mapped() == 0


@pytest.mark.parametrize(
    ("codec", "io"), [(PLAIN, "mmap"), (PLAIN, "pread"), (Codec("zstd", 3), "auto")]
)
def test_who_lets_a_cache_go_lets_its_files_go_at_once(tmp_path, codec, io):
    folder = make_cache(tmp_path, CLOUDS, clouds(), codec=codec)
    held = lambda: [  # noqa: E731
        *(line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line),
        *(
            link
            for file in Path("/proc/self/fd").iterdir()
            if str(folder) in (link := os.path.realpath(file))
        ),
    ]
    gc.collect()
    gc.disable()
    try:
        cache = open_cache(folder, io=io, verify="always")
        cache.gather("cloud", [1, 9])
        cache.gather_ragged("points", [1, 9])
        assert held()
        del cache
        assert held() == []
    finally:
        gc.enable()


def test_a_map_survives_a_cache_that_is_replaced(made, tmp_path):
    folder, samples = made
    cache = open_cache(folder)
    cache.gather("cloud", [0])
    folder.rename(tmp_path / "old")
    for file in (tmp_path / "old").rglob("c.*"):
        if file.is_file():
            file.unlink()
    np.testing.assert_array_equal(cache.gather("cloud", [9])[0], samples[9]["cloud"])


def test_rows_side_by_side_are_read_at_once(made, monkeypatch):
    """A call each for a million rows of eight bytes took longer than reading all fields."""
    folder, samples = made
    cache, calls, read_into = (
        open_cache(folder, io="pread", verify="manifest"),
        [],
        FolderStore.read_into,
    )

    def counted(store, path, start, view):
        calls.append((path, start, len(view)))
        read_into(store, path, start, view)

    expected = np.array([s["cloud"] for s in samples])
    cache.gather("cloud", [0])  # opens the shards
    monkeypatch.setattr(FolderStore, "read_into", counted)
    for asked, count in ((range(10), 3), ([2, 3, 9, 1, 0], 4), ([7, 6], 2), ([5, 5], 2), ([], 0)):
        calls.clear()
        assert cache.gather("cloud", list(asked)).tobytes() == expected[list(asked)].tobytes()
        assert len(calls) == count
    with pytest.raises(UsageError, match="contiguous"):
        cache.gather("cloud", [1], np.empty((1, 2048), np.float32)[:, ::2])


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("verify", ["manifest", "always"])
def test_rows_go_where_the_caller_says(made, io, verify):
    folder, samples = made
    cache, asked = open_cache(folder, io=io, verify=verify), [7, 0, 9, 9]
    fixed = np.full((4, *samples[0]["cloud"].shape), -1, np.float32)
    assert cache.gather("cloud", asked, fixed) is fixed
    np.testing.assert_array_equal(fixed, np.array([samples[i]["cloud"] for i in asked]))
    expected = np.concatenate([samples[i]["points"] for i in asked])
    ragged = np.full_like(expected, -1)
    values, lengths = cache.gather_ragged("points", asked, ragged)
    assert values is ragged
    assert lengths.tolist() == [len(samples[i]["points"]) for i in asked]
    np.testing.assert_array_equal(ragged, expected)
    full = [i for i, s in enumerate(samples) if len(s["points"])][:2]
    steps, zeros = np.full((2, 3, *expected.shape[1:]), -1, expected.dtype), np.zeros(2, np.int64)
    assert cache.gather_steps("points", full, zeros, np.array([-2, -1, 0]), "edge", steps) is steps
    np.testing.assert_array_equal(steps, np.stack([samples[i]["points"][[0, 0, 0]] for i in full]))


def test_memory_of_another_shape_or_dtype_is_refused(made):
    folder, samples = made
    cache, rows = open_cache(folder), len(samples[1]["points"])
    with pytest.raises(UsageError, match=r"fields/points: out is .* is wanted"):
        cache.gather_ragged(
            "points", [1], np.empty((rows + 1, *samples[1]["points"].shape[1:]), np.float32)
        )
    with pytest.raises(UsageError, match=r"fields/cloud: out is float64 "):
        cache.gather("cloud", [1], np.empty((1, *samples[1]["cloud"].shape)))


def test_gathered_arrays_are_writable_copies(made):
    folder, samples = made
    cache = open_cache(folder)
    got = cache.gather("cloud", [1])
    got[:] = 0
    np.testing.assert_array_equal(cache.gather("cloud", [1])[0], samples[1]["cloud"])


def test_touch_raises_at_the_first_read_of_a_damaged_chunk_and_only_there(made):
    folder, _ = made
    # Shard 1 holds samples 4 to 7; a chunk holds four of them
    flip(folder / "fields/cloud/c.1.0", 4096 * 2 + 7)
    cache = open_cache(folder)
    cache.gather("cloud", [0, 3, 8])
    with pytest.raises(CorruptionError) as caught:
        cache.gather("cloud", [0, 6])
    for part in (
        str(folder),
        "fields/cloud/c.1.0",
        "shard 1",
        "sample/000004 to sample/000007",
        "datacheck cache repair",
    ):
        assert part in str(caught.value)
    with pytest.raises(CorruptionError):  # and again: a chunk that failed is not taken for checked
        cache.gather("cloud", [6])
    open_cache(folder, verify="manifest").gather("cloud", [6])  # the control: nothing looks


def test_always_sees_damage_that_comes_later(made):
    folder, _ = made
    touch, always = open_cache(folder), open_cache(folder, verify="always")
    for cache in (touch, always):
        cache.gather("cloud", range(10))
    with (folder / "fields/cloud/c.0.0").open("r+b") as file:
        file.write(b"\xff")
    touch.gather("cloud", [0])
    with pytest.raises(CorruptionError):
        always.gather("cloud", [0])


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("verify", ["touch", "always"])
def test_a_truth_that_is_neither_0_nor_1_is_damage(tmp_path, io, verify):
    """NumPy makes 1 of it wherever it makes a scalar of it."""
    folder = make_cache(tmp_path, {"on": ArraySpec("bool", ())}, [{"on": True}, {"on": False}], k=1)
    assert open_cache(folder, verify=verify, io=io).gather("on", [1, 0]).tolist() == [False, True]
    (file := folder / "fields/on/c.0").write_bytes(b"\3" + file.read_bytes()[1:])
    with pytest.raises(CorruptionError, match="fields/on"):
        open_cache(folder, verify=verify, io=io).gather("on", [0])


@pytest.mark.parametrize("verify", ["touch", "always"])
@pytest.mark.parametrize("some", [1, 4096, 20_000, 1 << 20])
def test_rows_that_are_copied_and_checked_in_pieces_are_whole_and_damage_is_seen(
    tmp_path, monkeypatch, verify, some
):
    """Samples of one chunk, chunks of many samples, and clouds of many chunks; asked for twice and out of order."""
    monkeypatch.setattr(sharded_array, "_COPY_BYTES", some)
    rng = np.random.default_rng(3)
    specs = {
        "one": ArraySpec("float32", (20_000,)),
        "many": ArraySpec("float32", (63,)),
        "rows": ArraySpec("float32", (3,), "P"),
    }
    counts = [30_000, 0, 5, 12_000, 1, 7_000, 40_000, 16]
    samples = [
        {
            "one": rng.random(20_000, np.float32),
            "many": rng.random(63, np.float32),
            "rows": rng.random((n, 3), np.float32),
        }
        for n in counts
    ]
    folder = make_cache(tmp_path, specs, samples, k=4)
    order = [6, 0, 2, 3, 0, 7, 5, 1, 4]
    cache = open_cache(folder, verify=verify)
    for _ in range(2):
        for name in ("one", "many"):
            np.testing.assert_array_equal(
                cache.gather(name, order), [samples[i][name] for i in order]
            )
        values, lengths = cache.gather_ragged("rows", order)
        assert lengths.tolist() == [counts[i] for i in order]
        np.testing.assert_array_equal(values, np.concatenate([samples[i]["rows"] for i in order]))
    grids = {name: cache._arrays[f"fields/{name}"].grid for name in specs}
    assert grids["one"].chunk == 1
    assert grids["many"].chunk == 4
    assert 3 * grids["rows"].chunk < 40_000
    del cache
    # Sample 6
    flip(folder / "fields/one" / grids["one"].shard_file(1), 2 * grids["one"].row_bytes + 5)
    # Sample 5
    flip(folder / "fields/one" / grids["one"].shard_file(1), 1 * grids["one"].row_bytes + 5)
    flip(folder / "fields/many" / grids["many"].shard_file(1), 9)
    # The last point of sample 6
    flip(folder / "fields/rows" / grids["rows"].shard_file(1), (1 + 7_000 + 39_999) * 12)
    damaged = open_cache(folder, verify=verify)
    sound = [i for i in order if i < 4]
    for name in ("one", "many"):
        np.testing.assert_array_equal(
            damaged.gather(name, sound), [samples[i][name] for i in sound]
        )
        with pytest.raises(
            CorruptionError, match=r"000005\): chunk" if name == "one" else r"00000[67]\): chunk"
        ):
            damaged.gather(name, order)  # the first one is named, which is not asked for first
    assert damaged.gather_ragged("rows", sound)[1].tolist() == [counts[i] for i in sound]
    with pytest.raises(CorruptionError, match="sample/000006"):
        damaged.gather_ragged("rows", order)


@pytest.mark.parametrize(
    ("most", "cuts"), [(1 << 20, [(0, 160_000)]), (100_000, [(0, 100_000), (100_000, 60_000)])]
)
def test_chunks_that_nobody_has_read_are_read_ahead_together(tmp_path, monkeypatch, most, cuts):
    asked = []
    monkeypatch.setattr(row_readers, "_AHEAD", most)
    monkeypatch.setattr(
        addresses.AddressRange, "will_need", lambda _, offset, size: asked.append((offset, size))
    )
    samples = [{"x": np.full(20_000, i, np.float32)} for i in range(8)]
    cache = open_cache(make_cache(tmp_path, {"x": ArraySpec("float32", (20_000,))}, samples, k=4))
    second = -(-4 * 80_000 // mmap.PAGESIZE) * mmap.PAGESIZE  # the shard begins at a page
    for order, wanted in [
        ([], []),
        ([6, 0, 1, 0], [*cuts, (second + 160_000, 80_000)]),
        ([0, 6, 1], []),
        ([7, 1, 2], [(160_000, 80_000), (second + 240_000, 80_000)]),
    ]:
        asked.clear()
        assert cache.gather("x", order)[:, 7].tolist() == order
        assert asked == wanted


def test_reading_ahead_leaves_the_bytes_alone(made):
    folder, samples = made
    rows = open_cache(folder)._arrays["fields/cloud"].rows
    rows.will_need(np.arange(1))
    rows._addresses.will_need(rows._addresses.size - 5, 5)  # what is not mapped is not read
    np.testing.assert_array_equal(rows._rows[: len(samples)], [s["cloud"] for s in samples])


@pytest.mark.parametrize("order", [[0, 0, 0], [2, 0, 1], [0, 2, 2]])
@pytest.mark.parametrize("verify", ["touch", "always"])
def test_chunks_of_one_byte_are_read_ahead_as_others_are(tmp_path, verify, order):
    """A byte before the first chunk is no neighbour of it."""
    samples = [{"label": np.uint8(i)} for i in (7, 0, 255)]
    folder = make_cache(tmp_path, {"label": ArraySpec("uint8", ())}, samples, k=1)
    got = open_cache(folder, verify=verify).gather("label", order)
    assert got.tolist() == [(7, 0, 255)[i] for i in order]


def test_full_names_the_samples_at_open(made):
    folder, _ = made
    flip(folder / "fields/points/c.2.0", 3)
    with pytest.raises(CorruptionError, match="shard 2, sample 9, sample/000009"):
        open_cache(folder, verify="full")


def test_large_samples_are_checked_one_by_one(tmp_path):
    spec = {"big": ArraySpec("float32", (16384,))}
    folder = make_cache(
        tmp_path, spec, [{"big": np.full(16384, i, np.float32)} for i in range(5)], k=2
    )
    flip(folder / "fields/big/c.1.0", 70_000)  # sample 3
    cache = open_cache(folder)
    assert cache.gather("big", [4, 2, 0])[:, 0].tolist() == [4, 2, 0]
    with pytest.raises(CorruptionError, match="sample 3, sample/000003"):
        cache.gather("big", [2, 3])


def test_forked_children_share_what_has_been_checked(made):
    folder, _ = made
    cache = open_cache(folder)
    child = os.fork()
    if child == 0:
        cache.gather("cloud", [0])
        os._exit(0)
    os.waitpid(child, 0)
    assert cache._arrays["fields/cloud"].seen.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "file",
    ["fields/cloud/c.1.0", "rows/P/start/c.0", "samples/valid/c.0", "fields/cloud/zarr.json"],
)
def test_a_shorter_file_is_refused_at_open(made, file):
    folder, _ = made
    with (folder / file).open("r+b") as f:
        f.truncate((folder / file).stat().st_size - 1)
    with pytest.raises(CorruptionError, match=file):
        open_cache(folder)


def test_a_file_that_shrinks_after_the_open_is_refused_before_it_is_mapped(made):
    folder, _ = made
    cache = open_cache(folder)
    with (folder / "fields/cloud/c.1.0").open("r+b") as f:
        f.truncate(100)
    with pytest.raises(CorruptionError, match=r"fields/cloud/c\.1\.0"):
        cache.gather("cloud", [0])


@pytest.mark.parametrize("start", [-1, 10**9, 2**62, 1000])
def test_a_row_table_that_points_elsewhere_is_damage_not_a_crash(made, start):
    folder, _ = made
    file = folder / "rows/P/start/c.0"
    raw = bytearray(file.read_bytes())
    raw[8 * 3 : 8 * 4] = np.int64(start if start != 1000 else 40_000).tobytes()
    file.write_bytes(raw)
    remade(folder)
    cache = open_cache(folder, verify="manifest")
    with pytest.raises(CorruptionError, match="rows that are not there"):
        cache.gather_ragged("points", [3])
    with pytest.raises(CorruptionError, match="rows/P/start"):
        open_cache(folder).gather_ragged("points", [3])


def test_a_damaged_index_is_seen(made):
    folder, _ = made
    file = folder / "fields/cloud/c.0.0"
    flip(file, file.stat().st_size - 10)
    with pytest.raises(CorruptionError, match="crc32c"):
        open_cache(folder, verify="manifest").gather("cloud", [0])


def test_a_chunk_marked_absent_is_damage_not_fill(made):
    folder, _ = made
    grid = layout.Grid("float32", (10, 1024), 4, 4)
    file = folder / "fields/cloud/c.1.0"
    file.write_bytes(layout.pack_index(grid, layout.plain_sizes(grid, 0)))
    remade(folder)
    with pytest.raises(CorruptionError, match="holds 0 of 1 chunks"):
        open_cache(folder, verify="manifest").gather("cloud", [0])


def test_shards_in_another_order_are_read(tmp_path):
    spec = {"big": ArraySpec("float32", (16384,))}
    folder = make_cache(
        tmp_path, spec, [{"big": np.full(16384, i, np.float32)} for i in range(4)], k=4
    )
    file = folder / "fields/big/c.0.0"
    raw = file.read_bytes()
    chunks = [raw[i * 65536 : (i + 1) * 65536] for i in (2, 0, 3, 1)]
    index = np.array([[1, 65536], [3, 65536], [0, 65536], [2, 65536]], dtype="<u8")
    index[:, 0] *= 65536
    import google_crc32c

    file.write_bytes(
        b"".join(chunks)
        + index.tobytes()
        + google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    )
    remade(folder)
    cache = open_cache(folder)
    assert cache.gather("big", [3, 1])[:, 0].tolist() == [3, 1]
    assert isinstance(cache._arrays["fields/big"].rows, ForeignRows)


def test_a_compressed_array_that_zarr_wrote_is_read_and_still_checked(made):
    folder, samples = made
    values = np.stack([s["cloud"] for s in samples])
    attributes = json.loads((folder / "fields/cloud/zarr.json").read_text())["attributes"]
    (folder / "fields/cloud/zarr.json").unlink()
    array = zarr.create_array(
        folder / "fields/cloud",
        shape=values.shape,
        dtype="float32",
        shards=(4, 1024),
        chunks=(4, 1024),
        compressors=zarr.codecs.ZstdCodec(level=3, checksum=True),
        fill_value=float("nan"),
        attributes=attributes,
        overwrite=True,
    )
    array[:] = values
    remade(folder)
    cache = open_cache(folder)
    np.testing.assert_array_equal(cache.gather("cloud", [9, 0, 5]), values[[9, 0, 5]])
    array[0] = 0
    remade(folder)
    with pytest.raises(CorruptionError, match="sample/000000"):
        open_cache(folder).gather("cloud", [1])


def test_reads_keep_few_files_open(tmp_path):
    spec = {"x": ArraySpec("int64", ())}
    folder = make_cache(tmp_path, spec, [{"x": np.int64(i)} for i in range(150)], k=1)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    cache = open_cache(folder, io="pread", verify="manifest")
    assert cache.gather("x", range(150)).tolist() == list(range(150))
    assert cache.gather("x", range(150)).tolist() == list(range(150))
    # And the manifest, which says that it is read
    assert len(os.listdir("/proc/self/fd")) <= before + 128 + 1
    del cache
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_no_more_maps_are_granted_reads_serve_the_same(made, monkeypatch):
    folder, samples = made

    def refuse(*_):
        raise OSError(12, "no memory")

    monkeypatch.setattr(addresses.AddressRange, "place", refuse)
    np.testing.assert_array_equal(open_cache(folder).gather("cloud", [7])[0], samples[7]["cloud"])


def test_local_file_systems_are_told_from_remote_ones(tmp_path, monkeypatch):
    assert machine.is_local(tmp_path)
    table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /mnt/my\\040disk rw - nfs4 server:/ rw\n"
    monkeypatch.setattr(machine.Path, "read_text", lambda *_, **__: table)
    assert machine.is_local(Path("/home"))
    assert machine.is_local(Path("/mnt/my diskette"))
    assert not machine.is_local(Path("/mnt/my disk/cache"))


def test_the_only_cache_below_a_folder_is_chosen(tmp_path):
    train = make_cache(tmp_path, CLOUDS, clouds(2), split="train")
    val = make_cache(tmp_path, CLOUDS, clouds(3), split="val")
    assert open_cache(tmp_path / "tiny", split="val").path == val
    assert open_cache(tmp_path / "tiny" / "train").path == train
    with pytest.raises(UsageError, match="2 finished caches") as caught:
        open_cache(tmp_path / "tiny")
    assert str(train) in str(caught.value)
    assert str(val) in str(caught.value)
    with pytest.raises(UsageError, match="there is train, val"):
        open_cache(tmp_path / "tiny", split="test")
    with pytest.raises(UsageError, match="no such folder"):
        open_cache(tmp_path / "other")


def test_an_unfinished_build_is_not_a_cache(tmp_path):
    folder = make_cache(tmp_path, CLOUDS, clouds(2))
    hidden = folder.parent / ".building"
    hidden.mkdir()
    folder.rename(hidden / "0123.abc")
    with pytest.raises(UsageError, match="no finished cache"):
        open_cache(tmp_path)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: c.gather("other", [0]), UsageError, "cloud, points"),
        (lambda c: c.gather("points", [0]), UsageError, "gather_ragged"),
        (lambda c: c.gather_ragged("cloud", [0]), UsageError, "use gather"),
        (lambda c: c.gather("cloud", [10]), IndexError, "0 to 9"),
        (lambda c: c.gather("cloud", [-1]), IndexError, "0 to 9"),
        (lambda c: c.lengths("Q"), UsageError, "P"),
    ],
)
def test_wrong_requests_are_named(made, call, error, words):
    with pytest.raises(error, match=words):
        call(open_cache(made[0]))


def test_unknown_options_are_refused(made):
    with pytest.raises(UsageError, match="manifest, touch, always, full"):
        open_cache(made[0], verify="never")
    with pytest.raises(UsageError, match="auto, mmap, pread"):
        open_cache(made[0], io="dma")


def test_a_pickled_cache_is_small_and_opens_again(made):
    folder, samples = made
    cache = open_cache(folder)
    cache.gather("cloud", range(10))
    raw = pickle.dumps(cache)
    assert len(raw) < 1000
    opened = pickle.loads(raw)  # noqa: S301  our own bytes
    np.testing.assert_array_equal(opened.gather("cloud", [2])[0], samples[2]["cloud"])


def test_reading_imports_no_zarr(made):
    script = (
        "import sys; from datacheck.cache import open_cache; c = open_cache(sys.argv[1]); "
        "c.gather('cloud', [1]); c.gather_ragged('points', [1]); c.keys([1]); "
        "print(sorted({'zarr', 'pydantic', 'yaml', 'dask', 'h5py', 'torch'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(made[0])], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_counts_and_origins(tmp_path):
    folder = make_cache(
        tmp_path, CLOUDS, clouds(3), made=[True, False, True], valid=[False, True, True]
    )
    cache = open_cache(folder)
    assert (cache.made.tolist(), cache.usable.tolist()) == (
        [True, False, True],
        [False, False, True],
    )
    assert cache.origin(2) == [{"file": "sample/000002.npy"}]
    assert cache.codes("sample/000000") == ["DC301"]
    assert cache.codes("sample/000002") == []
    assert read_manifest(open_store(folder)).format == 1


def test_a_file_that_is_read_stays_open_while_others_push_it_out(tmp_path):
    """Else the descriptor of one thread's read could be closed and reused by another's: rows of the wrong file."""
    grid = layout.Grid("int64", (8, 2), 4, 1)
    for g in range(2):
        np.full((4, 2), g).tofile(tmp_path / f"{g}")
    store = FolderStore(tmp_path, 1)
    rows = row_readers.ReadRows(grid, store, ["0", "1"])
    held = store._opened("0")
    out = np.empty((2, 2), np.int64)
    rows.take(np.array([5, 1]), out)
    assert out.tolist() == [[1, 1], [0, 0]]
    assert os.pread(held.number, 8, 0) == bytes(8)
    number = held.number
    del held, rows, store
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_rows_in_order_come_back_from_full_shards_and_empty_samples(tmp_path, k, io):
    """4,096 rows of 12 bytes fill a shard to its last row: the next sample begins in another file."""
    lengths = [4096, 0, 0, 4096, 5, 0, 7, 4000] if k < 4 else [96, 0, 4000, 0, 1, 2, 0, 0]
    samples = [{"points": np.full((n, 3), i, np.float32)} for i, n in enumerate(lengths)]
    cache = open_cache(
        make_cache(tmp_path, {"points": CLOUDS["points"]}, samples, k=k), io=io, verify="always"
    )
    for order in (range(8), range(2, 6), [0, 1, 1, 2, 3], [7, 6, 5, 4], []):
        values, found = cache.gather_ragged("points", list(order))
        assert found.tolist() == [lengths[i] for i in order]
        assert values[:, 1].tolist() == [i for i in order for _ in range(lengths[i])]
    assert cache.keys(range(8)) == [f"sample/{i:06d}" for i in range(8)]
