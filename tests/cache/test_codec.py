"""Compression changes files and no value; a damaged frame is never a row, and never asks for memory."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import xxhash
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.zstd import Zstd

from datacheck.cache import layout, open_cache, row_readers, sharded_array
from datacheck.cache.codec import PLAIN, Codec, most_stored
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.store import open_store
from datacheck.cache.verify import verify
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache

ZSTD = Codec("zstd")
SPECS = {
    "joints": ArraySpec("float32", (21, 3)),
    "image": ArraySpec("uint8", (300, 300)),  # a chunk of its own for each sample
    "points": ArraySpec("float64", (3,), "P"),
    "scan": ArraySpec("float32", (20_000,), "L"),  # a chunk of its own for each row
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
}


def samples(count=11, seed=0):
    rng = np.random.default_rng(seed)
    made = [
        {
            "joints": rng.integers(0, 4, (21, 3)).astype(np.float32),
            "image": rng.integers(0, 3, (300, 300)).astype(np.uint8),
            "points": rng.random((int(rng.integers(0, 5000)), 3)),
            "scan": rng.random((i % 3, 20_000)).astype(np.float32),
        }
        for i in range(count)
    ]
    made[2]["say"] = "hello"
    return made


@pytest.fixture
def packed(tmp_path):
    written = samples()
    return make_cache(tmp_path, SPECS, written, k=4, codec=ZSTD), written


# -------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("text", ["none", "zstd:1", "zstd:3", "zstd:22"])
def test_a_codec_is_what_its_words_say(text):
    codec = Codec.parse(text)
    assert str(codec) == text
    assert Codec.of(codec.document()) == codec


def test_the_level_of_zstd_need_not_be_said():
    assert Codec.parse("zstd") == Codec("zstd", 3)


@pytest.mark.parametrize(
    "text", ["", "zstd:", "zstd:0", "zstd:23", "zstd:-1", "zstd:3.5", "zstd:٣", "none:3", "blosc"]
)
def test_unknown_compression_is_refused(text):
    with pytest.raises(UsageError, match="zstd:1 to zstd:22"):
        Codec.parse(text)


@pytest.mark.parametrize(
    "said",
    [
        [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}],
        [{"name": "zstd", "configuration": {"level": 0, "checksum": True}}],
        [{"name": "zstd", "configuration": {"level": 3, "checksum": True}}, {"name": "crc32c"}],
        [{"name": "blosc", "configuration": {}}],
        [{"name": "gzip"}],
        None,
        ["zstd"],
    ],
)
def test_another_chain_is_not_ours(said):
    assert Codec.of(said) is None


# ------------------------------------------------------------------------------------------- frames


CHUNKS = st.binary(min_size=1, max_size=2000) | st.sampled_from(
    [bytes(70_000), b"ab" * 100_000, bytes(1)]
)


@given(CHUNKS, st.sampled_from([1, 3, 19]))
def test_a_chunk_comes_back_here_and_elsewhere(raw, level):
    codec = Codec("zstd", level)
    parts, sizes = codec.encode(memoryview(raw * 3), len(raw))
    assert [len(part) for part in parts] == sizes.tolist()
    assert len(parts) == 3
    out = bytearray(b"\xff" * len(raw))
    codec.decode(memoryview(parts[1]), memoryview(out))
    assert bytes(out) == raw
    assert pa.decompress(parts[1], decompressed_size=len(raw), codec="zstd", asbytes=True) == raw


def test_equal_chunks_are_equal_bytes():
    """Whatever was compressed before, in whatever order: a shard made again must be the same."""
    rng = np.random.default_rng(3)
    sharded_array = [rng.integers(0, 9, 65536).astype(np.uint8).tobytes() for _ in range(4)]
    together, _ = ZSTD.encode(memoryview(b"".join(sharded_array)), 65536)
    alone = [
        Codec("zstd").encode(memoryview(chunk), 65536)[0][0] for chunk in reversed(sharded_array)
    ]
    assert together == alone[::-1]


def refused(stored, size):
    with pytest.raises(CorruptionError):
        ZSTD.decode(memoryview(stored), memoryview(bytearray(size)))


@pytest.mark.parametrize("size", [1, 100, 300, 65536, 300_000])
def test_a_flipped_bit_of_a_frame_never_gives_other_values(size):
    raw = np.random.default_rng(size).integers(0, 20, size).astype(np.uint8).tobytes()
    (frame,), _ = ZSTD.encode(memoryview(raw), size)
    head = range(min(len(frame), 24))  # magic, header, first block
    some = {
        *head,
        *range(len(frame) - 6, len(frame)),
        *range(0, len(frame), max(1, len(frame) // 200)),
    }
    seen = 0
    for at in some:
        for bit in range(8):
            damaged = bytearray(frame)
            damaged[at] ^= 1 << bit
            out = bytearray(size)
            try:
                ZSTD.decode(memoryview(damaged), memoryview(out))
            except CorruptionError:
                seen += 1
            else:  # a bit that zstd gives no meaning to, or that says the same in another way
                assert bytes(out) == raw, (at, bit)
    assert seen > 0.96 * 8 * len(some)


@given(st.data())
def test_nothing_but_one_whole_frame_is_taken(data):
    """The library itself takes frames that hold less, and several of them, and says nothing."""
    raw = data.draw(st.binary(min_size=2, max_size=400))
    (frame,), _ = ZSTD.encode(memoryview(raw), len(raw))
    half = len(raw) // 2
    pieces, _ = ZSTD.encode(memoryview(raw[: 2 * half]), half)
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    refused(b"".join(pieces), 2 * half)
    refused(frame + frame, len(raw))
    refused(frame + b"\0", len(raw))
    refused(skippable + frame, len(raw))
    refused(frame + skippable, len(raw))
    refused(frame[: data.draw(st.integers(0, len(frame) - 1))], len(raw))
    refused(frame, len(raw) + data.draw(st.integers(1, 99)))
    refused(frame, len(raw) - 1)
    refused(Zstd(level=3, checksum=False).encode(raw), len(raw))
    refused(data.draw(st.binary(max_size=60)), len(raw))


@pytest.mark.parametrize(
    ("empty", "taken"), [(0, True), (255, True), (256, False), (100_000, False)]
)
def test_a_frame_has_few_blocks(empty, taken):
    """Each takes its time, and may be empty."""
    raw = bytes(range(8))
    blocks = bytes(3) * empty + ((8 << 3) | 1).to_bytes(3, "little") + raw
    frame = (
        struct.pack("<IBB", 0xFD2FB528, 0x24, 8)
        + blocks
        + struct.pack("<I", xxhash.xxh64_intdigest(raw) % 2**32)
    )
    if not taken:
        return refused(frame, 8)
    out = bytearray(8)
    ZSTD.decode(memoryview(frame), memoryview(out))
    assert bytes(out) == raw
    return None


@pytest.mark.parametrize("level", [1, 3, 9, 15, 19, 22])
@pytest.mark.parametrize("size", [8, 300, 65536, 1 << 20])
def test_no_frame_of_zstd_is_too_large_or_has_too_many_blocks(level, size):
    """Bytes without order, and those of which the parts are so different that they are split."""
    rng = np.random.default_rng(size)
    odd = rng.integers(0, 256, size, np.uint8)
    parts = [rng.integers(0, 1 + i % 7 * 40, 1024, np.uint8) for i in range(-(-size // 1024))]
    words = rng.integers(97, 123, (50, 4), np.uint8)[rng.integers(0, 50, -(-size // 4))].reshape(
        -1
    )[:size]
    for raw in (odd, np.concatenate(parts)[:size], words):
        (frame,), _ = Codec("zstd", level).encode(memoryview(raw), size)
        assert len(frame) <= most_stored(size)
        out = bytearray(size)
        ZSTD.decode(memoryview(frame), memoryview(out))
        assert bytes(out) == raw.tobytes()


def test_a_frame_cannot_ask_for_memory():
    header = struct.pack("<IBQ", 0xFD2FB528, 0b11100100, 1 << 46)  # says 64 TiB, with a checksum
    tracemalloc.start()
    refused(header + b"\x01\0\0" + bytes(4), 65536)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_plain_chunks_are_what_they_are():
    raw = bytes(range(10))
    parts, sizes = PLAIN.encode(memoryview(raw), 5)
    assert (b"".join(parts), sizes.tolist()) == (raw, [5, 5])
    out = bytearray(5)
    PLAIN.decode(memoryview(raw)[:5], memoryview(out))
    assert bytes(out) == raw[:5]
    with pytest.raises(CorruptionError):
        PLAIN.decode(memoryview(raw)[:4], memoryview(out))


# ------------------------------------------------------------------------------------------- caches


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "complex128"])
@pytest.mark.parametrize("level", [1, 3, 22])
def test_a_shard_is_the_one_that_zarr_writes(tmp_path, dtype, level):
    grid = layout.Grid(dtype, (10, 5), 16, 4)
    codec = Codec("zstd", level)
    values = np.random.default_rng(1).integers(0, 2, grid.shape).astype(dtype)
    whole = layout.fill_array(dtype, (12, 5))
    whole[:10] = values
    parts, sizes = codec.encode(memoryview(whole.tobytes()), grid.chunk_bytes)
    document = layout.array_document(grid, {}, None, codec)
    array = zarr.create_array(
        tmp_path / "theirs",
        shape=grid.shape,
        dtype=dtype,
        shards=(16, 5),
        chunks=(4, 5),
        compressors=zarr.codecs.ZstdCodec(level=level, checksum=True),
        fill_value=layout.fill_array(dtype, ())[()],
        chunk_key_encoding=document["chunk_key_encoding"],
        config={"write_empty_chunks": True},
    )
    array[:] = values
    assert (tmp_path / "theirs/c.0.0").read_bytes() == b"".join(
        [*parts, layout.pack_index(grid, sizes)]
    )
    assert layout.grid_of(document) == (grid, codec)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/zarr.json").write_text(json.dumps(document))
    (tmp_path / "ours/c.0.0").write_bytes(b"".join([*parts, layout.pack_index(grid, sizes)]))
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "ours", mode="r")[:], values)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("checks", ["manifest", "touch", "always", "full"])
def test_compressed_fields_come_back(packed, io, checks):
    folder, written = packed
    cache = open_cache(folder, io=io, verify=checks)
    order = [10, 0, 3, 3, 7, 0]
    for _ in range(2):
        for name in ("joints", "image"):
            np.testing.assert_array_equal(
                cache.gather(name, order), np.stack([written[i][name] for i in order])
            )
        for name in ("points", "scan"):
            values, lengths = cache.gather_ragged(name, order)
            np.testing.assert_array_equal(values, np.concatenate([written[i][name] for i in order]))
            assert lengths.tolist() == [len(written[i][name]) for i in order]
    assert cache.texts("say", [2, 3]) == ["hello", ""]
    assert cache.gather("joints", []).shape == (0, 21, 3)
    for name in SPECS:
        assert isinstance(cache._arrays[f"fields/{name}"].rows, sharded_array.ChunkRows)
    assert isinstance(
        cache._arrays["samples/made"].rows,
        row_readers.MappedRows if io == "mmap" else row_readers.ReadRows,
    )


def test_only_files_of_fields_differ_and_not_what_they_hold(tmp_path):
    written = samples()
    folders = {
        name: make_cache(tmp_path / name, SPECS, written, k=k, codec=codec)
        for name, codec, k in (("plain", PLAIN, 4), ("zstd", ZSTD, 4), ("cut", Codec("zstd", 9), 2))
    }
    manifests = {name: read_manifest(open_store(folder)) for name, folder in folders.items()}
    assert len({manifest.content_root for manifest in manifests.values()}) == 1
    plain, zstd = manifests["plain"].files, manifests["zstd"].files
    assert plain.keys() == zstd.keys()
    differ = {path for path in plain if plain[path] != zstd[path]}
    without_rows = {"fields/say/c.1", "fields/say/c.2"}
    assert (
        differ == {p for p in plain if p.startswith("fields/") and p.count("/") > 1} - without_rows
    )
    assert sum(size for size, _ in zstd.values()) < sum(size for size, _ in plain.values())
    assert [verify(folder) for folder in folders.values()] == [[], [], []]


def damage(folder, file, at, bit=1):
    raw = bytearray((folder / file).read_bytes())
    raw[at] ^= bit
    (folder / file).write_bytes(raw)


@pytest.mark.parametrize("checks", ["manifest", "touch", "always"])
def test_a_damaged_frame_is_named_and_the_rest_is_served(packed, checks):
    folder, written = packed
    index = np.frombuffer((folder / "fields/image/c.1.0.0").read_bytes()[-68:-4], "<u8").reshape(
        4, 2
    )
    # Shard 1 holds samples 4 to 7, a chunk each
    damage(folder, "fields/image/c.1.0.0", int(index[2, 0]) + 500)
    cache = open_cache(folder, verify=checks)
    np.testing.assert_array_equal(cache.gather("image", [5, 7])[1], written[7]["image"])
    for _ in range(2):
        with pytest.raises(CorruptionError) as caught:
            cache.gather("image", [5, 6])
        for part in (
            "fields/image/c.1.0.0",
            "shard 1",
            "sample 6, sample/000006",
            "does not decompress",
        ):
            assert part in str(caught.value)
    (problem,) = verify(folder)
    assert (problem.file, problem.shard, problem.samples) == (
        "fields/image/c.1.0.0",
        1,
        "sample 6, sample/000006",
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    written = samples(6, seed=2)
    return make_cache(tmp_path_factory.mktemp("whole"), SPECS, written, k=2, codec=ZSTD), written


@settings(max_examples=60)
@given(st.data())
def test_a_flip_anywhere_in_a_shard_is_never_another_value(whole, data):
    """Either an error, or the right values: zstd gives no meaning to some bits of a frame."""
    folder, written = whole
    files = sorted(p.relative_to(folder).as_posix() for p in (folder / "fields").rglob("c.*"))
    file = data.draw(st.sampled_from(files))
    raw = (folder / file).read_bytes()
    damage(folder, file, data.draw(st.integers(0, len(raw) - 1)), 1 << data.draw(st.integers(0, 7)))
    try:
        problems = verify(folder)
        assert problems
        for problem in problems:
            assert problem.file == file
            assert problem.field == file.split("/")[1]
            assert problem.shard == int(file.split("/")[2].split(".")[1])
        cache = open_cache(folder, verify=data.draw(st.sampled_from(["touch", "always"])))
        for i in range(6):
            for name in SPECS:
                with contextlib.suppress(CorruptionError):
                    if SPECS[name].dim is None:
                        np.testing.assert_array_equal(cache.gather(name, [i])[0], written[i][name])
                    elif name == "say":
                        assert cache.texts(name, [i]) == [written[i].get(name, "")]
                    else:
                        np.testing.assert_array_equal(
                            cache.gather_ragged(name, [i])[0], written[i][name]
                        )
    finally:
        (folder / file).write_bytes(raw)
    assert verify(folder, "quick") == []


def test_a_frame_of_another_chunk_is_seen(packed):
    """It decompresses and its own checksum is right: only the digest tells."""
    folder, _ = packed
    file = folder / "fields/image/c.0.0.0"
    raw = file.read_bytes()
    index = np.frombuffer(raw[-68:-4], "<u8").reshape(4, 2)
    frames = [raw[a : a + n] for a, n in index.tolist()]
    order = [1, 0, 2, 3]
    sizes = np.array([len(frames[i]) for i in order], np.uint64)
    grid = layout.Grid("uint8", (11, 300, 300), 4, 1)
    file.write_bytes(b"".join([*(frames[i] for i in order), layout.pack_index(grid, sizes)]))
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), "0" * 32)
    for checks in ("touch", "always"):
        with pytest.raises(CorruptionError, match=r"sample 0, sample/000000.*expected xxh3_64"):
            open_cache(folder, verify=checks).gather("image", [0])
    open_cache(folder, verify="manifest").gather("image", [0])  # the control: nothing looks


@pytest.mark.parametrize(
    ("what", "said"), [(1, 1 << 40), (1, (1 << 64) - 1), (0, 1 << 63), (0, 400_000), (1, 200_000)]
)
def test_an_index_that_points_outside_is_never_followed(packed, what, said):
    folder, _ = packed
    file = folder / "fields/image/c.0.0.0"
    raw = file.read_bytes()
    index = np.frombuffer(raw[-68:-4], "<u8").reshape(4, 2).copy()
    index[3, what] = said
    body = index.tobytes()
    import google_crc32c

    file.write_bytes(raw[:-68] + body + google_crc32c.value(body).to_bytes(4, "little"))
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), "0" * 32)
    cache = open_cache(folder)
    with pytest.raises(CorruptionError, match="points outside of the file"):
        cache.gather("image", [3])


def test_a_chunk_is_decoded_once_for_all_that_is_asked_of_it(packed, monkeypatch):
    folder, _ = packed
    cache = open_cache(folder)
    cache.gather("joints", [4])
    decoded = []
    once = Codec.decode
    monkeypatch.setattr(Codec, "decode", lambda *args: decoded.append(1) or once(*args))
    cache.gather("joints", [1, 8, 9, 2, 8, 0, 1])  # four samples lie in one chunk
    assert len(decoded) == 2
    cache.gather("joints", [9, 8])  # and the last one is still at hand
    assert len(decoded) == 2
    decoded.clear()
    cache.gather("image", [4, 1, 4, 4])
    assert len(decoded) == 2


def test_texts_of_one_chunk_are_decoded_together(tmp_path, monkeypatch):
    specs = {"say": ArraySpec("uint8", (), layout.text_dim("say"), "text")}
    written = [f"text {i} " * 900 for i in range(40)]  # nine in a chunk
    cache = open_cache(
        make_cache(tmp_path, specs, [{"say": text} for text in written], k=64, codec=ZSTD)
    )
    order = np.random.default_rng(0).permutation(40)
    decoded = []
    once = Codec.decode
    monkeypatch.setattr(Codec, "decode", lambda *args: decoded.append(1) or once(*args))
    assert cache.texts("say", order) == [written[i] for i in order]
    assert len(decoded) == -(-sum(map(len, written)) // 65536)


def test_the_first_read_decodes_no_chunk_twice(packed, monkeypatch):
    decoded = []
    once = Codec.decode
    monkeypatch.setattr(Codec, "decode", lambda *args: decoded.append(1) or once(*args))
    open_cache(packed[0], verify="touch").gather("joints", range(11))
    assert len(decoded) == 3


def test_reading_plain_fields_loads_no_codec(packed, tmp_path):
    plain = make_cache(tmp_path / "plain", SPECS, samples(3))
    script = (
        "import sys; from datacheck.cache import open_cache; c = open_cache(sys.argv[1]); "
        "c.keys([1]); c.made; "
        "print('numcodecs' in sys.modules); c.gather('image', [1]); print('numcodecs' in "
        "sys.modules)"
    )
    for folder, said in ((plain, "False\nFalse\n"), (packed[0], "False\nTrue\n")):
        line = [sys.executable, "-c", script, str(folder)]
        assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == said
