"""A cache whose digests all fit and whose documents make no sense: each is refused by name, whoever wrote it."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import tempfile
import traceback
import tracemalloc
from contextlib import suppress
from functools import reduce
from pathlib import Path
from unittest import mock

import google_crc32c
import numpy as np
import pytest
import xxhash
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.cache import layout, open_cache, parsing, reader
from datacheck.cache.codec import Codec
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.reader import RowTables, provenance
from datacheck.cache.store import open_store
from datacheck.cache.verify import verify
from datacheck.cache.windows import Windows
from datacheck.errors import CorruptionError, DatacheckError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset
from tests.cache.make import make_cache
from tests.independent.test_readers import edit, redigest

SPECS = {
    "joints": ArraySpec("float32", (3,)),
    "points": ArraySpec("float64", (2,), "P"),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
    "more": ArraySpec("uint8", (), layout.text_dim("more"), "json"),
}
SHAPE = ("chunk_grid", "configuration", "chunk_shape")
CHUNK = ("codecs", 0, "configuration", "chunk_shape")
ZSTD = Codec("zstd", 3)
ROOT = ("attributes", "datacheck")
OF_A_FIELD = "fields/joints/zarr.json"


def small(place):
    rng = np.random.default_rng(0)
    samples = [
        {"joints": rng.random(3, np.float32), "points": rng.random((i % 3, 2)), "more": [i]}
        for i in range(5)
    ]
    samples[1]["say"] = "hello"
    return make_cache(place, SPECS, samples, k=2, valid=[True] * 4 + [False])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return small(tmp_path_factory.mktemp("whole"))


def sealed(folder):
    """Write a manifest that fits the files as they are now."""
    root = read_manifest(open_store(folder)).content_root
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), root)


def rewritten(path, place, value):
    """Put a value into a JSON document."""
    said = json.loads(path.read_bytes())
    if place:
        reduce(lambda inside, name: inside[name], place[:-1], said)[place[-1]] = value
    said = said if place else value
    path.write_text(json.dumps(said, sort_keys=True, separators=(",", ":")))


def used(folder):
    """Read everything that a cache holds."""
    cache = open_cache(folder)
    numbers = np.arange(len(cache))
    assert (
        cache.keys(numbers),
        cache.findings(),
        cache.usable,
        cache.compression,
        repr(cache),
    ) is not None
    for name, spec in cache.fields.items():
        cache.present(name, numbers)
        if spec.dim is None:
            cache.gather(name, numbers)
        else:
            cache.gather_ragged(name, numbers)
        if spec.kind != "array":
            cache.texts(name, numbers)
    return [cache.origin(i) for i in range(len(cache))]


HOSTILE = [
    (OF_A_FIELD, (), []),
    (OF_A_FIELD, ("shape", 0), 5.0),
    (OF_A_FIELD, ("shape", 0), -1),
    (OF_A_FIELD, ("shape",), []),
    (OF_A_FIELD, (*SHAPE, 0), 0),
    (OF_A_FIELD, (*SHAPE, 0), True),
    (OF_A_FIELD, (*CHUNK, 0), 0),
    (OF_A_FIELD, (*CHUNK, 0), 4),
    (OF_A_FIELD, ("data_type",), "object"),
    (OF_A_FIELD, ("data_type",), None),
    (OF_A_FIELD, ("data_type",), ">f4"),
    (OF_A_FIELD, ("data_type",), "<f4"),
    (OF_A_FIELD, ("data_type",), "f"),
    (OF_A_FIELD, ("data_type",), ["float32"]),
    ("samples/digest/zarr.json", ("data_type",), "<u8"),
    (OF_A_FIELD, ("chunk_key_encoding",), 7),
    (OF_A_FIELD, ("codecs", 0, "configuration", "index_codecs", 0, "name"), "../x"),
    (OF_A_FIELD, (*ROOT, "kind"), "picture"),
    (OF_A_FIELD, (*ROOT, "kind"), "text"),
    (OF_A_FIELD, (*ROOT, "dim"), ["P"]),
    ("fields/points/zarr.json", ("shape", 0), 2**62),
    ("samples/made/zarr.json", ("shape", 0), 2**40),
    ("samples/made/zarr.json", ("data_type",), "uint8"),
    ("samples/digest/zarr.json", ("data_type",), "int64"),
    ("rows/P/start/zarr.json", ("data_type",), "float64"),
    ("zarr.json", (*ROOT, "samples"), "5"),
    ("zarr.json", (*ROOT, "dims"), ""),
    ("zarr.json", (*ROOT, "dims"), []),
    ("zarr.json", (*ROOT, "samples"), 5.0),
    ("zarr.json", (*ROOT, "samples"), 2**64),
    ("zarr.json", (*ROOT, "shard_samples"), 0),
    ("zarr.json", (*ROOT, "dims"), ["P"]),
    ("zarr.json", (*ROOT, "dims", "P"), -4096),
    ("zarr.json", (*ROOT, "dims", "samples.key"), 1),
    ("zarr.json", (*ROOT, "dims", "samples.origin"), 1),
    ("zarr.json", (*ROOT, "windows"), 3),
    ("zarr.json", (*ROOT, "key"), None),
    ("zarr.json", (*ROOT, "key"), "x" * 1_001),
    ("zarr.json", (*ROOT, "format"), "1"),
    ("findings.json", (), [["a"]]),
    ("findings.json", (), {"sample/000004": 5}),
]


@pytest.mark.parametrize(("file", "place", "value"), HOSTILE)
def test_a_document_that_makes_no_sense_is_damage_and_named(whole, tmp_path, file, place, value):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(folder / file, place, value)
    sealed(folder)
    with pytest.raises(CorruptionError, match=file.removesuffix("/zarr.json")):
        used(folder)
    assert any(
        file.removesuffix("/zarr.json") in str(problem) for problem in verify(folder, "values")
    )


@pytest.mark.parametrize("axes", [61, 100_000])
def test_axes_without_end_make_no_long_names_of_files(whole, tmp_path, axes):
    """Each shard file has two letters for each axis: 20,000 shards of 600,000 axes had names of 24 GB."""
    folder, shards = shutil.copytree(whole, tmp_path / whole.name), 5_000
    ones = [1] * axes
    rewritten(folder / "zarr.json", (*ROOT, "dims", "P"), -(-shards // 3))
    for place, value in (
        (("shape",), [3 * -(-shards // 3), *ones]),
        (SHAPE, [1, *ones]),
        (CHUNK, [1, *ones]),
    ):
        rewritten(folder / "fields/points/zarr.json", place, value)
    (folder / "digests/fields/points/c.0").write_bytes(bytes(8 * shards + 100))
    sealed(folder)
    tracemalloc.start()
    said = (
        "missing in manifest.json"
        if axes < 62
        else "an array of 100,001 axes; a cache has at most 62"
    )
    with pytest.raises(CorruptionError, match=said):
        open_cache(folder)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60 << 20


@pytest.mark.parametrize(("second", "fps"), [(10**400, 1), (1, 10**400)])
def test_windows_by_default_that_make_no_sense_leave_the_rest_to_be_read(
    whole, tmp_path, second, fps
):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(
        folder / "zarr.json",
        (*ROOT, "windows"),
        {"delta_timestamps": {"joints": [second]}, "fps": fps},
    )
    sealed(folder)
    assert len(used(folder)) == 5
    assert verify(folder, "values") == []


@pytest.mark.parametrize("listed", [True, False])
def test_a_dimension_with_half_of_a_surrogate_pair_is_damage(whole, tmp_path, listed):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    dims = json.loads((folder / "zarr.json").read_bytes())["attributes"]["datacheck"]["dims"]
    rewritten(folder / "fields/points/zarr.json", (*ROOT, "dim"), "P\ud800")
    if listed:
        rewritten(
            folder / "zarr.json",
            (*ROOT, "dims"),
            {"P\ud800" if n == "P" else n: r for n, r in dims.items()},
        )
    else:
        rewritten(folder / "fields/points/zarr.json", ("shape", 0), 0)
    sealed(folder)
    with pytest.raises(
        CorruptionError, match=r"zarr\.json: not what a cache .* holds half of a surrogate pair"
    ):
        open_cache(folder)
    assert any("zarr.json" in str(problem) for problem in verify(folder, "values"))


def test_windows_along_half_of_a_surrogate_pair_are_refused_in_words(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(folder / "zarr.json", (*ROOT, "windows"), {"dim": "P\ud800", "length": 2})
    sealed(folder)
    assert len(used(folder)) == 5
    with pytest.raises(UsageError, match=r"windows: dim: 'P\\ud800' is no name of a dimension"):
        CachedDataset(folder)
    assert len(CachedDataset(folder, windows=False)) > 0


@pytest.mark.parametrize(
    "lengths", [[3, -1, 2], [5], [2**62] * 4, [4, -4] * 3, [2**63 - 1, 2**63 - 1, 4]]
)
def test_lengths_that_no_texts_have_are_refused(lengths):
    with pytest.raises(ValueError, match=r"lengths that are negative, or add up to more than 4$"):
        layout.ends_of(np.array(lengths), 4)


def test_lengths_give_where_texts_end():
    assert layout.ends_of(np.array([1, 0, 3]), 4).tolist() == [1, 1, 4]
    assert layout.ends_of(np.zeros(0, np.int64), 0).tolist() == []


def test_a_document_nested_without_end_is_damage(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    (folder / OF_A_FIELD).write_text("[" * 100_000)
    sealed(folder)
    with pytest.raises(CorruptionError, match=OF_A_FIELD):
        open_cache(folder)


@pytest.mark.parametrize("what", ["pipe", "folder", "endless"])
def test_what_is_no_file_is_refused_before_it_is_opened(whole, tmp_path, what):
    """A pipe has the size 0, and so may the manifest say."""
    folder = shutil.copytree(whole, tmp_path / whole.name)
    path = folder / "sources.json"
    path.write_bytes(b"")
    sealed(folder)
    path.unlink()
    {"pipe": os.mkfifo, "folder": os.mkdir, "endless": lambda p: os.symlink("/dev/zero", p)}[what](
        path
    )
    with pytest.raises(CorruptionError, match=r"sources\.json: no plain file"):
        open_cache(folder)
    assert {problem.file for problem in verify(folder)} == {"sources.json"}


def test_chunks_that_do_not_fill_a_shard_are_refused_before_anything_is_mapped(tmp_path):
    """Rows behind the last whole chunk would be addresses without a file: the process would end there."""
    rows = np.ones((4, 128, 128), np.float32)  # 64 KiB a row
    folder = make_cache(
        tmp_path, {"x": ArraySpec("float32", (128, 128))}, [{"x": row} for row in rows], k=4
    )
    rewritten(folder / "fields/x/zarr.json", (*CHUNK, 0), 3)
    index = layout.pack_index(
        layout.Grid("float32", (3, 128, 128), 3, 3), np.array([rows[:3].nbytes], np.uint64)
    )
    (folder / "fields/x/c.0.0.0").write_bytes(rows[:3].tobytes() + index)
    sealed(folder)
    with pytest.raises(CorruptionError, match="4 and 3 rows"):
        open_cache(folder, verify="manifest").gather("x", [3])


@pytest.mark.parametrize(
    ("array", "at", "what"),
    [
        ("samples/key", 0, "samples/key: "),
        ("samples/origin", 3, "samples/origin: "),
        ("fields/more", 0, "fields/more"),
    ],
)
def test_text_that_is_none_is_damage(whole, tmp_path, array, at, what):
    folder = shutil.copytree(whole, tmp_path / whole.name)

    def spoil(raw):
        raw[at] = 0xFF
        return raw

    edit(next((folder / array).glob("c.0*")), spoil)
    redigest(folder, array)
    sealed(folder)
    with pytest.raises(CorruptionError, match=what):
        used(folder)


def test_rows_that_lie_over_each_other_are_told_and_not_added_up(tmp_path):
    """Each of 2,000 samples claims all keys: 2,000 times 60 kB."""
    keys = [f"{i:030d}" for i in range(2000)]
    folder = make_cache(
        tmp_path, {"x": ArraySpec("uint8", ())}, [{"x": 0}] * 2000, keys=keys, k=1024
    )
    for what, number in (("start", 0), ("length", 30 * 2000)):
        edit(
            folder / f"rows/samples.key/{what}/c.0",
            lambda raw, number=number: np.full(2000, number, "<i8").tobytes() + raw[16_000:],
        )
        redigest(folder, f"rows/samples.key/{what}")
    sealed(folder)
    tracemalloc.start()
    problems = verify(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [problem.file for problem in problems] == ["rows/samples.key/start"]
    assert peak < 20 << 20


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("format",), "1"),
        (("format",), None),
        (("format",), True),
        (("content_root",), 5),
        (("files", "zarr.json", 0), -1),
        (("files", "zarr.json", 0), True),
        (("files", "zarr.json", 0), 1e300),
        (("files", "zarr.json", 0), "9"),
        (("files", "zarr.json", 1), 7),
        (("files", "\ud800"), [1, "0"]),
        (("files", "fields/joints/c." + "9" * 5000), [1, "0"]),
    ],
)
def test_a_manifest_whose_digest_fits_is_still_held_to_what_it_may_say(
    whole, tmp_path, place, value
):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    path = folder / "manifest.json"
    said = json.loads(path.read_text())
    del said["digest"]
    path.write_text(json.dumps(said))
    rewritten(path, place, value)
    digest = xxhash.xxh3_128_hexdigest(path.read_bytes())
    path.write_bytes(
        path.read_bytes().replace(b'"files":', f'"digest":"{digest}","files":'.encode(), 1)
    )
    with pytest.raises(CorruptionError):
        open_cache(folder)
    assert verify(folder)


def test_what_zarr_wrote_with_a_shard_that_is_not_full_is_intact(tmp_path):
    """The last shard has one chunk of two."""
    rows = np.arange(3 * 128 * 128, dtype=np.float32).reshape(3, 128, 128)
    folder = make_cache(
        tmp_path, {"x": ArraySpec("float32", (128, 128))}, [{"x": row} for row in rows], k=2
    )
    attributes = json.loads((folder / "fields/x/zarr.json").read_text())["attributes"]
    shutil.rmtree(folder / "fields/x")
    array = zarr.create_array(
        folder / "fields/x",
        shape=rows.shape,
        dtype="float32",
        shards=(2, 128, 128),
        chunks=(1, 128, 128),
        compressors=zarr.codecs.ZstdCodec(level=3, checksum=True),
        fill_value=float("nan"),
        attributes=attributes,
        chunk_key_encoding={"name": "default", "separator": "."},
    )
    array[:] = rows
    sealed(folder)
    assert verify(folder, "values") == []
    assert open_cache(folder).gather("x", [2])[0].tobytes() == rows[2].tobytes()


def places(said, path=()):
    """Yield the place of every value of a JSON document."""
    yield path
    for name, inside in (
        said.items()
        if isinstance(said, dict)
        else enumerate(said if isinstance(said, list) else ())
    ):
        yield from places(inside, (*path, name))


VALUES = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            0,
            -1,
            1,
            3,
            2**31,
            2**40,
            2**63,
            2**64,
            0.5,
            5.0,
            1e300,
            "",
            "5",
            [],
            {},
            [[1]],
        ]
    ),
    st.integers(-(2**65), 2**65),
    st.text(max_size=3),
)


@settings(max_examples=40)
@given(st.data())
def test_any_value_anywhere_is_read_or_refused(whole, data):
    parsing = sorted(
        p.relative_to(whole).as_posix() for p in whole.rglob("*.json") if p.name != "manifest.json"
    )
    file = data.draw(st.sampled_from(parsing))
    place = data.draw(st.sampled_from(list(places(json.loads((whole / file).read_text())))))
    with tempfile.TemporaryDirectory() as tmp:
        folder = shutil.copytree(whole, Path(tmp) / whole.name)
        rewritten(folder / file, place, data.draw(VALUES))
        sealed(folder)
        with suppress(DatacheckError):
            used(folder)
        for depth in ("quick", "full", "values"):
            assert all(str(problem) for problem in verify(folder, depth))


def traced(call):
    """Return the most bytes that a call takes, and what it raises."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError) as told:
            call()
        return tracemalloc.get_traced_memory()[1], str(told.value)
    finally:
        tracemalloc.stop()


def test_a_manifest_of_any_size_is_refused_before_it_is_read(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    os.truncate(folder / "manifest.json", 1 << 40)
    peak, said = traced(lambda: open_cache(folder))
    assert "manifest.json: 1,099,511,627,776 bytes; at most 67,108,864 are read" in said
    assert peak < 1 << 20
    assert [problem.file for problem in verify(folder)] == ["manifest.json"]


@pytest.mark.parametrize(
    "digest", ["/etc/passwd", "../" * 10 + "x", "", "0" * 31, "A" * 32, "0" * 31 + "\n"]
)
def test_a_digest_that_is_none_is_damage(whole, tmp_path, digest):
    """Shards that are kept nearby are files that the digest names: read, written and removed there."""
    folder = shutil.copytree(whole, tmp_path / whole.name)
    said = json.loads((folder / "manifest.json").read_text())
    said["files"]["fields/joints/c.1.0"][1] = digest
    resealed(folder, said)
    with pytest.raises(
        CorruptionError, match="where a digest of 32 hexadecimal digits is expected"
    ):
        open_cache(folder)


@pytest.mark.parametrize(
    "file", ["zarr.json", OF_A_FIELD, "inputs.json", "sources.json", "findings.json"]
)
def test_a_document_larger_than_any_is_refused_before_it_is_read(whole, tmp_path, file):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    most = parsing.findings_bytes(5) if file == "findings.json" else parsing.most_bytes(file)
    os.truncate(folder / file, most + 1)
    raw = json.loads((folder / "manifest.json").read_text())
    raw["files"][file][0] = most + 1  # the digest of so many bytes need not fit: nobody reads them
    resealed(folder, raw)
    peak, said = traced(
        lambda: provenance(open_cache(folder)) if file not in {"findings.json"} else used(folder)
    )
    assert f"{file}: {most + 1:,} bytes; at most {most:,} are read" in said
    assert peak < 4 << 20


def resealed(folder, said):
    """Write a manifest that fits itself."""
    del said["digest"]
    raw = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    digest = f'"digest":"{xxhash.xxh3_128_hexdigest(raw)}",'.encode()
    (folder / "manifest.json").write_bytes(raw.replace(b'"files":', digest + b'"files":', 1))


@pytest.mark.parametrize(
    "text", ["[{}" + ",{}" * 9_000_000 + "]", "[" * 70 + "]" * 70, '{"a":' * 65 + "1" + "}" * 65]
)
def test_a_document_of_too_many_values_or_levels_is_refused(text):
    raw = b'{"a":' + text.encode() + b"}"
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"about 18,000,003 values; at most 8,000,000|nested deeper than 64 levels"
    ):
        parsing.parse_document(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert parsing.parse_document(b'{"a":' * 64 + b"1" + b"}" * 64)


def test_documents_of_a_cache_share_one_limit_of_values(whole, tmp_path):
    """One file of 4 MiB under 62 names took 80 s of a processor whenever the cache was opened."""
    folder = shutil.copytree(whole, tmp_path / whole.name)
    document = b'{"node_type":"group","a":[' + b"[]," * 1_398_000 + b"1]}"
    first = folder / "fields/g0/zarr.json"
    for i in range(62):
        (folder / f"fields/g{i}").mkdir()
        if i:
            os.link(first, folder / f"fields/g{i}/zarr.json")
        else:
            first.write_bytes(document)
    sealed(folder)
    # 1,398,000 commas and brackets each, and two: only one of the documents is below the limit.
    assert 2 * 1_398_000 < parsing.DOCUMENTS_VALUES < 4 * 1_398_000
    parsed = []
    parse = parsing.parse_document

    def counted(raw, path=""):
        parsed.append(path)
        return parse(raw, path)

    said = r"fields/g1/zarr\.json: .* more than 4,000,000 values"
    with (
        mock.patch.object(parsing, "parse_document", counted),
        pytest.raises(CorruptionError, match=said),
    ):
        open_cache(folder)
    assert [path for path in parsed if path.startswith("fields/g")] == ["fields/g0/zarr.json"]
    # With damage elsewhere, the documents of the fields are read to name the damage.
    edit(folder / "samples/digest/c.0", lambda raw: bytes(8) + raw[8:])
    sizes = []
    with mock.patch(
        "datacheck.cache.damage.parse_document", lambda raw: sizes.append(len(raw)) or parse(raw)
    ):
        assert [problem.file for problem in verify(folder)] == ["samples/digest/c.0"]
    assert sizes.count(len(document)) == 1


def test_many_arrays_and_attributes_are_far_below_the_limit_of_values(tmp_path):
    """Columns of 500 names in each field, and arrays beyond the fields."""
    columns = [f"column {i}" for i in range(500)]
    specs = {
        f"x{i}": ArraySpec("int8", (), f"D{i}", optional=True, attrs={"columns": columns})
        for i in range(50)
    }
    folder = make_cache(tmp_path, specs, [dict.fromkeys(specs, np.zeros(2, np.int8))])
    cache = open_cache(folder)
    assert len(cache.fields) == 50
    # 500 for the columns of a field, and less than 100 for each of its four arrays
    assert 50 * 500 < cache._document_values < 50 * (500 + 4 * 100) + 1000


def test_findings_have_no_more_values_than_so_many_samples_can_have(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    assert open_cache(folder).findings()
    raw = b'{"k":[' + b",".join([b'""'] * 2_100_000) + b"]}"
    with pytest.raises(ValueError, match="values; at most 2,000,160 are read"):
        parsing.parse_findings(raw, 5)
    assert len(parsing.parse_findings(raw, 5_000)["k"]) == 2_100_000
    (folder / "findings.json").write_bytes(raw)
    sealed(folder)
    with pytest.raises(CorruptionError, match="bytes; at most 4,214,784 are read"):
        open_cache(folder).findings()


@pytest.mark.parametrize("most", [parsing.FIELDS_BYTES, 100_000])
def test_attributes_of_fields_are_bounded_in_bytes(whole, tmp_path, monkeypatch, most):
    monkeypatch.setattr(parsing, "FIELDS_BYTES", most)
    folder = shutil.copytree(whole, tmp_path / whole.name)
    for size, refused in ((90_000, ""), (300_000, "says 300,"), (120_000, "of attributes")):
        rewritten(folder / OF_A_FIELD, (*ROOT, "unit"), "m" * size)
        sealed(folder)
        if refused and (size > 200_000 or most == 100_000):
            with pytest.raises(CorruptionError, match=refused):
                open_cache(folder)
        else:
            assert len(open_cache(folder)) == 5


PLAIN = {"name": "bytes", "configuration": {"endian": "little"}}
REFUSED = [
    [PLAIN, {"name": "gzip", "configuration": {"level": 5}}],
    [PLAIN, {"name": "zstd", "configuration": {"level": 3, "checksum": False}}],
    [PLAIN, {"name": "numcodecs.pickle"}],
    [{"name": "bytes", "configuration": {"endian": "big"}}],
    [{"name": "transpose", "configuration": {"order": [1, 0]}}, PLAIN],
    [
        {
            "name": "sharding_indexed",
            "configuration": {"chunk_shape": [1, 3], "codecs": [PLAIN], "index_codecs": []},
        }
    ],
    ["gzip"],
    [],
    [5],
    "gzip",
    {"name": "gzip"},
    5,
    None,
]


@pytest.mark.parametrize("codecs", REFUSED, ids=str)
@pytest.mark.parametrize("place", [("codecs",), ("codecs", 0, "configuration", "codecs")])
def test_codecs_of_other_formats_are_refused_by_name(whole, tmp_path, place, codecs):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(folder / OF_A_FIELD, place, codecs)
    sealed(folder)
    with pytest.raises(CorruptionError, match=OF_A_FIELD):
        open_cache(folder, verify="manifest").gather("joints", [0])


@pytest.mark.parametrize("codecs", [[PLAIN], [PLAIN, PLAIN], [{"name": "crc32c"}]], ids=str)
def test_codecs_of_an_index_are_those_of_the_format(whole, tmp_path, codecs):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(folder / OF_A_FIELD, ("codecs", 0, "configuration", "index_codecs"), codecs)
    rewritten(folder / OF_A_FIELD, ("chunk_key_encoding", "configuration", "separator"), "/")
    sealed(folder)
    with pytest.raises(CorruptionError, match=OF_A_FIELD):
        open_cache(folder, verify="manifest")


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize(
    ("size", "refused"),
    [(16 << 20, "does not decompress"), (64 << 20, "at most 1,056 are read of 32 decoded")],
)
def test_a_chunk_takes_no_more_than_is_declared_of_it(tmp_path, separator, sharded, size, refused):
    """Of 32 bytes declared 16 or 64 MiB come: whatever the order and the names of the files."""
    folder = make_cache(
        tmp_path,
        {"x": ArraySpec("float32", (4,))},
        [{"x": np.arange(4, dtype=np.float32)}] * 2,
        k=2,
    )
    attributes = json.loads((folder / "fields/x/zarr.json").read_text())["attributes"]
    shutil.rmtree(folder / "fields/x")
    array = zarr.create_array(
        folder / "fields/x",
        shape=(2, 4),
        dtype="float32",
        shards=(2, 4) if sharded else None,
        chunks=(2, 4),
        compressors=zarr.codecs.ZstdCodec(level=3, checksum=True),
        fill_value=float("nan"),
        attributes=attributes,
        chunk_key_encoding={"name": "default", "separator": separator},
    )
    array[:] = np.tile(np.arange(4, dtype=np.float32), (2, 1))
    sealed(folder)
    assert open_cache(folder).gather("x", [1, 0]).tolist() == [[0, 1, 2, 3]] * 2
    assert verify(folder, "values") == []
    bomb = bytes(Codec("zstd", 3).encode(memoryview(bytes(size)), size)[0][0])
    index = np.array([[0, len(bomb)]], "<u8").tobytes() if sharded else b""
    crc = google_crc32c.value(index).to_bytes(4, "little") if sharded else b""
    (folder / "fields/x" / separator.join("c00")).write_bytes(bomb + index + crc)
    sealed(folder)
    peak, said = traced(lambda: open_cache(folder, verify="manifest").gather("x", [0]))
    assert refused in said
    assert peak < 4 << 20


def test_a_chunk_larger_than_any_is_refused_when_the_cache_is_opened(tmp_path):
    folder = make_cache(
        tmp_path,
        {"x": ArraySpec("uint8", (4,))},
        [{"x": np.zeros(4, np.uint8)}],
        codec=Codec("zstd", 3),
    )
    path = folder / "fields/x/zarr.json"
    rewritten(path, ("shape",), [1, 5 << 30])
    rewritten(path, SHAPE, [4, 5 << 30])
    rewritten(path, CHUNK, [1, 5 << 30])
    sealed(folder)
    with pytest.raises(
        CorruptionError,
        match=r"zarr\.json.*inner chunks of 5,368,709,120 bytes; at most 4,294,967,296",
    ):
        open_cache(folder)


def of_zeros(folder, path, rows):
    """Store an array of rows of one byte as one compressed inner chunk of zeros."""
    document = folder / path / "zarr.json"
    for place in (("shape",), SHAPE, CHUNK):
        rewritten(document, place, [rows])
    rewritten(
        document, ("codecs", 0, "configuration", "codecs"), [{"name": "bytes"}, *ZSTD.document()]
    )
    frame = bytes(ZSTD.encode(memoryview(bytes(rows)), rows)[0][0])
    index = layout.pack_index(
        layout.Grid("uint8", (rows,), rows, rows), np.array([len(frame)], np.uint64)
    )
    (folder / path / "c.0").write_bytes(frame + index)
    digest = xxhash.xxh3_64_intdigest(bytes(rows)).to_bytes(8, "little")
    edit(folder / "digests" / path / "c.0", lambda raw: digest + raw[8:])


@pytest.mark.parametrize("size", [1 << 16, 1 << 20, 1 << 21])
def test_one_row_takes_no_more_than_a_small_chunk(tmp_path, size):
    """Chunks of zeros cost nothing to send, whatever they hold."""
    specs = {"say": ArraySpec("uint8", (), layout.text_dim("say"), "text")}
    folder = make_cache(tmp_path, specs, [{"say": "xy"}], k=1, codec=ZSTD)
    of_zeros(folder, "fields/say", size)
    rewritten(folder / "zarr.json", (*ROOT, "dims"), {layout.text_dim("say"): size})
    sealed(folder)
    if size > 1 << 20:
        with pytest.raises(
            CorruptionError, match=r"chunks of 2,097,152 bytes; at most 1,048,576.* 2,097,152 rows"
        ):
            open_cache(folder)
        return
    cache = open_cache(folder)
    assert cache.texts("say", [0]) == ["\0\0"]
    held = cache._arrays["fields/say"].rows._last  # of each of thousands of fields
    assert (held is not None) == (size == 1 << 16)


def test_a_sample_larger_than_any_is_refused_when_the_cache_is_opened(tmp_path):
    """Each field has one of the largest chunks that there may be."""
    specs = {name: ArraySpec("uint8", (4,)) for name in "xy"}
    folder = make_cache(
        tmp_path, specs, [dict.fromkeys("xy", np.zeros(4, np.uint8))], codec=Codec("zstd", 3)
    )
    for name in "xy":
        path = folder / f"fields/{name}/zarr.json"
        rewritten(path, ("shape",), [1, 3 << 30])
        rewritten(path, SHAPE, [4, 3 << 30])
        rewritten(path, CHUNK, [1, 3 << 30])
    sealed(folder)
    with pytest.raises(
        CorruptionError, match=r"samples of 6,442,450,944 bytes; at most 4,294,967,296"
    ):
        open_cache(folder)


def test_chunks_that_are_not_stored_take_no_memory(tmp_path):
    """Another writer leaves out chunks that are all fill value: a gigabyte of them costs nothing to send."""
    folder = make_cache(
        tmp_path, {"x": ArraySpec("float32", (4,))}, [{"x": np.zeros(4, np.float32)}] * 2, k=2
    )
    path = folder / "fields/x/zarr.json"
    for place in (("shape",), SHAPE):
        rewritten(path, place, [2, 1 << 28])
    rewritten(path, CHUNK, [1, 1 << 28])
    rewritten(path, ("codecs", 0, "configuration", "index_location"), "start")
    index = np.full((2, 2), layout.ABSENT, "<u8").tobytes()
    (folder / "fields/x/c.0.0").write_bytes(
        index + google_crc32c.value(index).to_bytes(4, "little")
    )
    sealed(folder)
    peak, said = traced(lambda: open_cache(folder, verify="manifest").gather("x", [0]))
    assert "2,147,483,648 bytes of chunks that are not stored; at most 268,435,456" in said
    assert peak < (1 << 30) + (4 << 20)  # the room for one sample was asked for, and not touched


@pytest.mark.parametrize(
    "table", ["samples/made", "samples/valid", "rows/P/length", "samples/key", "present/say"]
)
def test_a_table_is_never_compressed(whole, tmp_path, table):
    """Eighty million samples would be had for a megabyte: how many there are is then what a document says."""
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(
        folder / table / "zarr.json",
        ("codecs", 0, "configuration", "codecs"),
        [PLAIN, *ZSTD.document()],
    )
    sealed(folder)
    with pytest.raises(CorruptionError, match=rf"{table}/zarr\.json: .*codec"):
        open_cache(folder, verify="manifest")


def sparse(place, chunks, entry):
    """A cache whose samples are all of chunks that are not stored, as `entry` says it in the index of each table."""
    folder = make_cache(place, {"x": ArraySpec("uint8", ())}, [{"x": 0}], k=1, made=[False])
    rows = chunks << 16
    rewritten(folder / "zarr.json", (*ROOT, "samples"), rows)
    rewritten(folder / "zarr.json", (*ROOT, "shard_samples"), rows)
    for path in sorted(
        {p.parent.relative_to(folder).as_posix() for p in folder.glob("[!d]*/**/c.0")}
    ):
        document = folder / path / "zarr.json"
        said = json.loads(document.read_bytes())
        if path in {"samples/key", "samples/origin"}:
            continue
        chunk = (
            said["codecs"][0]["configuration"]["chunk_shape"][0] if path != "fields/x" else 1 << 16
        )
        for where, value in ((("shape",), rows), (SHAPE, rows), (CHUNK, chunk)):
            rewritten(document, where, [value])
        rewritten(document, ("codecs", 0, "configuration", "index_location"), "start")
        index = np.tile(np.array(entry, "<u8"), (rows // chunk, 1)).tobytes()
        (folder / path / "c.0").write_bytes(
            index + google_crc32c.value(index).to_bytes(4, "little")
        )
        digest = xxhash.xxh3_64_intdigest(bytes(1 << 16)).to_bytes(8, "little")
        raw = digest * (rows // chunk)
        (folder / "digests" / path / "c.0").write_bytes(raw + bytes(1 << 16))
    sealed(folder)
    return folder


@pytest.mark.parametrize("k", [1, 4096])
def test_shards_are_not_many_more_than_files(tmp_path, k):
    """Samples of tables that are not stored were a problem for each shard: 2 MB took 4.7 GB and 77 s."""
    folder = sparse(tmp_path, 4, [layout.ABSENT, layout.ABSENT])
    rewritten(folder / "zarr.json", (*ROOT, "shard_samples"), k)
    sealed(folder)
    if k == 1:
        with pytest.raises(CorruptionError, match=r"262,144 shards of [0-9]+ files"):
            open_cache(folder)
    else:
        assert len(open_cache(folder)) == 4 << 16


@pytest.mark.parametrize("entry", [[layout.ABSENT, layout.ABSENT], [0, 0]], ids=["absent", "empty"])
@pytest.mark.parametrize(("chunks", "refused"), [(256, False), (257, True)])
def test_samples_of_tables_that_are_not_stored_are_few(tmp_path, entry, chunks, refused):
    """Other writers leave out chunks that are all fill value: 16 million samples are had for nothing, and no more."""
    cache = open_cache(sparse(tmp_path, chunks, entry))
    if refused:
        with pytest.raises(
            CorruptionError, match=r"samples/made: 16,842,752 bytes of chunks that are not stored"
        ):
            cache.made  # noqa: B018
    else:
        assert len(cache.made) == 16 << 20
        assert not cache.made.any()


@pytest.mark.parametrize(("chunks", "refused"), [(4, False), (5, True)])
def test_small_chunks_that_are_not_stored_count_with_their_entries(tmp_path, chunks, refused):
    """A chunk of one byte that is not stored takes 16 bytes of the index: it counts as 64."""
    folder = sparse(tmp_path, chunks, [layout.ABSENT, layout.ABSENT])
    rows = chunks << 16
    rewritten(folder / "samples/made/zarr.json", CHUNK, [1])
    index = np.full((rows, 2), layout.ABSENT, "<u8").tobytes()
    (folder / "samples/made/c.0").write_bytes(
        index + google_crc32c.value(index).to_bytes(4, "little")
    )
    digest = xxhash.xxh3_64_intdigest(b"\0").to_bytes(8, "little")
    (folder / "digests/samples/made/c.0").write_bytes(digest * rows + bytes(1 << 16))
    sealed(folder)
    cache = open_cache(folder)
    if refused:
        with pytest.raises(CorruptionError, match=r"samples/made: 20,971,520 bytes of chunks"):
            cache.made  # noqa: B018
    else:
        assert not cache.made.any()


@pytest.mark.parametrize(
    ("blocks", "apart", "said"),
    [
        (0, True, ""),
        (0, False, r"fields/x/c\.0: the shard index has chunks that lie over each other"),
        (300, True, "does not decompress"),
        (2700, True, r"fields/x/c\.0: a chunk of 8,121 bytes; at most 1,032 are read of 8 decoded"),
    ],
)
@pytest.mark.parametrize("sharded", [True, False])
def test_a_chunk_is_stored_in_no_more_bytes_than_it_may_have_and_once(
    tmp_path, blocks, apart, said, sharded
):
    """One frame of millions of empty blocks, which is that of every sample, took a second of each."""
    folder = make_cache(
        tmp_path, {"x": ArraySpec("float64", ())}, [{"x": 1.5}] * 4, k=4, codec=ZSTD
    )
    path, raw = folder / "fields/x/zarr.json", np.array(1.5).tobytes()
    head, last = (
        (0xFD2FB528).to_bytes(4, "little") + bytes([0x24, 8]),
        (8 << 3 | 1).to_bytes(3, "little"),
    )
    frame = head + bytes(3 * blocks) + last + raw + xxhash.xxh64_digest(raw)[:3:-1]
    if sharded:
        rewritten(path, CHUNK, [1])
        index = np.array(
            [[len(frame) * i if apart else 0, len(frame)] for i in (2, 0, 3, 1)], "<u8"
        ).tobytes()
        crc = google_crc32c.value(index).to_bytes(4, "little")
        (folder / "fields/x/c.0").write_bytes(frame * (4 if apart else 1) + index + crc)
    else:
        rewritten(path, ("codecs",), [PLAIN, *ZSTD.document()])
        rewritten(path, SHAPE, [1])
        for i in range(4):
            (folder / f"fields/x/c.{i}").write_bytes(frame)
    digests = xxhash.xxh3_64_intdigest(raw).to_bytes(8, "little") * 4
    edit(folder / "digests/fields/x/c.0", lambda raw: digests + raw[32:])
    sealed(folder)
    if not said or not (sharded or apart):
        assert open_cache(folder).gather("x", [3, 0]).tolist() == [1.5, 1.5]
        return
    with pytest.raises(CorruptionError, match=said):
        open_cache(folder).gather("x", [3, 0])


def with_a_sparse_index(place, chunks):
    """A compressed field of one shard whose index claims that many chunks: a hole, and its crc32c."""
    samples = [{"x": np.zeros((9, 3), np.float32)}] * 2
    folder = make_cache(place, {"x": ArraySpec("float32", (3,), "P")}, samples, codec=ZSTD)
    rewritten(folder / "zarr.json", (*ROOT, "dims"), {"P": chunks})
    for where, value in ((("shape", 0), chunks), ((*SHAPE, 0), chunks), ((*CHUNK, 0), 1)):
        rewritten(folder / "fields/x/zarr.json", where, value)
    crc = google_crc32c.Checksum()
    for _ in range(chunks >> 16):
        crc.update(bytes(16 << 16))
    shard = folder / "fields/x/c.0.0"
    shard.write_bytes(b"")
    os.truncate(shard, 16 * chunks)
    with shard.open("ab") as file:
        file.write(crc.digest()[::-1])
    os.truncate(folder / "digests/fields/x/c.0", 8 * chunks)
    sealed(folder)
    return folder


@pytest.mark.parametrize(
    ("chunks", "said", "most"),
    [
        (1 << 22, r"fields/x/c\.0\.0: the shard index has a chunk of 0 bytes", 4 * (16 << 22)),
        (1 << 23, "8,388,608 inner chunks of a shard; at most 4,194,304 are read", 8 << 20),
    ],
)
def test_an_index_of_holes_takes_little_memory(tmp_path, chunks, said, most):
    """A shard of 64 million chunks, 2 MB on the disk, took 6 GB of the training at its first sample."""
    folder = with_a_sparse_index(tmp_path, chunks)
    peak, told = traced(lambda: open_cache(folder).gather_ragged("x", [0]))
    assert re.search(said, told)
    assert peak < most


def test_a_copy_that_keeps_zeros_as_holes_is_read(tmp_path):
    """As ``cp --sparse=always`` makes it: of the 40 MiB of this shard one byte a sample is stored."""
    rows = np.zeros((4, 10 << 20), np.uint8)
    rows[:, 5] = range(4)
    folder = make_cache(
        tmp_path, {"x": ArraySpec("uint8", (10 << 20,))}, [{"x": row} for row in rows], k=4
    )
    file = folder / "fields/x/c.0.0"
    raw = file.read_bytes()
    file.unlink()
    with file.open("wb") as copy:
        os.truncate(copy.fileno(), len(raw))
        for place in range(0, len(raw), 4096):
            if piece := raw[place : place + 4096].rstrip(b"\0"):
                os.pwrite(copy.fileno(), piece, place)
    assert 512 * file.stat().st_blocks < len(raw) / 2
    assert [row[5] for row in open_cache(folder, verify="always").gather("x", [0, 1, 2, 3])] == [
        0,
        1,
        2,
        3,
    ]
    assert verify(folder) == []


def filled(folder, table, number):
    """Put a number into each place of a table of five samples."""
    edit(folder / f"{table}/c.0", lambda raw: np.full(5, number, "<i8").tobytes() + raw[40:])
    redigest(folder, table)


@pytest.mark.parametrize("number", [2**62, 2**40, 4097, -1, -(2**63)])
@pytest.mark.parametrize(
    "table", ["rows/P/length", "rows/samples.key/length", "rows/fields.more/length"]
)
def test_a_sample_with_more_rows_than_a_shard_is_damage(whole, tmp_path, table, number):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    filled(folder, table, 65537 if number == 4097 and "P" not in table else number)
    sealed(folder)
    with pytest.raises(CorruptionError, match=table):
        used(folder)
    with pytest.raises(CorruptionError, match=table):
        open_cache(folder).lengths(table.split("/")[1])


def test_rows_that_several_samples_claim_take_no_memory(tmp_path):
    """Each of 2,000 samples claims all keys; asked for two at a time each has its rows."""
    keys = [f"{i:030d}" for i in range(2000)]
    folder = make_cache(
        tmp_path, {"x": ArraySpec("uint8", ())}, [{"x": 0}] * 2000, keys=keys, k=1024
    )
    for what, number in (("start", 0), ("length", 30 * 2000)):
        edit(
            folder / f"rows/samples.key/{what}/c.0",
            lambda raw, number=number: np.full(2000, number, "<i8").tobytes() + raw[16_000:],
        )
        redigest(folder, f"rows/samples.key/{what}")
    sealed(folder)
    cache = open_cache(folder)
    peak, said = traced(lambda: cache.keys(range(2000)))
    assert "rows/samples.key/start: rows belong to several samples" in said
    assert peak < 20 << 20
    assert len(cache.keys([3])[0]) == 60_000


def test_samples_that_are_asked_for_many_times_are_served(whole):
    """More rows than the array has, and nothing is wrong."""
    cache = open_cache(whole)
    values, lengths = cache.gather_ragged("points", [4, 1, 2] * 3000)
    assert (len(values), lengths.tolist()) == (9000 + 3000, [1, 1, 2] * 3000)


WINDOWS = [
    {"foo": 1},
    {"dim": 5},
    {"dim": ["P"]},
    {"length": "x"},
    {"length": 0},
    {"pad": []},
    {"stride": True},
]


def declaring(whole, place, windows):
    """A copy of a cache that declares such windows."""
    folder = shutil.copytree(whole, place / whole.name)
    rewritten(folder / "zarr.json", (*ROOT, "windows"), windows)
    sealed(folder)
    return folder


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_windows_that_make_no_sense_are_a_wrong_request(whole, tmp_path, windows):
    """The arrays are sound, so the cache opens: only whoever asks for its windows meets them."""
    cache = open_cache(declaring(whole, tmp_path, windows))
    with pytest.raises(UsageError, match="windows"):
        Windows.of(cache.root.windows)


@pytest.mark.parametrize("share", [0.25, 2**40])
def test_lengths_are_held_to_the_rows_that_are_stored(tmp_path, share):
    """Windows come from the lengths alone: 1.5 MB had half a billion of them, and a sum of 2 ** 63 less than none."""
    cache = make_cache(
        tmp_path,
        {"points": ArraySpec("float64", (2,), "P")},
        [{"points": np.ones((1, 2))}] * 5,
        k=5,
    )
    windows = {"dim": "P", "length": 1, "pad": "edge", "short": "pad"}
    rewritten(cache / "zarr.json", (*ROOT, "windows"), windows)
    sealed(cache)
    assert len(CachedDataset(cache)) == open_cache(cache).lengths("P").sum() == 5
    rows = open_cache(cache)._arrays["fields/points"].held_rows
    with mock.patch.object(RowTables, "lengths", return_value=np.full(5, int(rows * share))):
        for read in (lambda: open_cache(cache).lengths("P"), lambda: CachedDataset(cache)):
            with pytest.raises(CorruptionError, match=r"rows/P/length: .*add up to more than"):
                read()


def test_windows_along_a_dimension_of_no_field_are_damage(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    for what in ("start", "length"):
        for above in ("rows", "digests/rows"):
            shutil.copytree(folder / above / "P" / what, folder / above / "T" / what)
    rewritten(folder / "zarr.json", (*ROOT, "dims", "T"), 2**47)
    rewritten(
        folder / "zarr.json",
        (*ROOT, "windows"),
        {"dim": "T", "length": 1, "pad": "edge", "short": "pad"},
    )
    sealed(folder)
    with pytest.raises(CorruptionError, match=r"rows/T/length: .*add up to more than 0"):
        CachedDataset(folder)


def test_windows_that_would_take_all_memory_are_damage(whole, tmp_path):
    folder = declaring(whole, tmp_path, {"dim": "P", "length": 1 << 30})
    with pytest.raises(CorruptionError, match=r"zarr\.json: .*windows"):
        open_cache(folder)


def test_a_shard_that_the_manifest_leaves_out_is_missing(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    (folder / "fields/joints/c.1.0").unlink()
    sealed(folder)
    with pytest.raises(CorruptionError, match=r"fields/joints/c\.1\.0: missing"):
        open_cache(folder)


def test_a_json_value_has_no_more_levels_than_a_worker_can_send(tmp_path):
    """One of 1,020 levels could not be pickled, and the loop waited for its batch without end."""
    values = [reduce(lambda inner, _: [inner], range(levels - 1), []) for levels in (254, 255, 300)]
    cache = open_cache(
        make_cache(tmp_path, {"more": SPECS["more"]}, [{"more": value} for value in values])
    )
    assert cache.texts("more", [0]) == values[:1]
    assert pickle.loads(pickle.dumps(values[0])) == values[0]  # noqa: S301
    for number in (1, 2):
        with pytest.raises(CorruptionError, match=r"fields/more: .*nested deeper than 254 levels"):
            cache.texts("more", [number])


def test_a_message_is_no_longer_than_a_screen(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    rewritten(folder / OF_A_FIELD, (*ROOT, "kind"), "x" * 1_000_000)
    sealed(folder)
    with pytest.raises(CorruptionError, match=OF_A_FIELD) as told:
        open_cache(folder)
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize("size", [1e300, 10**400, -1, True, "5", None, 2**62])
def test_sizes_of_sources_are_sizes(whole, tmp_path, size):
    folder = shutil.copytree(whole, tmp_path / whole.name)
    (folder / "sources.json").write_text(json.dumps({"files": {"a": [size, "0" * 32]}}))
    sealed(folder)
    with pytest.raises(CorruptionError, match=r"sources\.json: .*a size that no file has"):
        provenance(open_cache(folder))


def test_windows_of_many_small_steps_are_too_large_too():
    """Where each step lies and whether it is padding take more than a value of one byte."""
    fields = {"a": ArraySpec("uint8", (), "T")}
    parsing.check_sizes({"length": 1 << 20}, fields)
    with pytest.raises(ValueError, match=r"windows of 69,793,218,560 bytes"):
        parsing.check_sizes({"length": 1 << 30}, fields)
    with pytest.raises(ValueError, match=r"windows of 1,048,577 steps; at most 1,048,576"):
        parsing.check_sizes({"length": 1 << 20, "history": 1}, fields)


def test_a_text_of_too_many_json_values_is_damage(tmp_path):
    specs = {"talk": ArraySpec("uint8", (), layout.text_dim("talk"), "json")}
    cache = open_cache(make_cache(tmp_path, specs, [{"talk": [1, [2]]}, {"talk": [[]] * 99}], k=2))
    with mock.patch.object(parsing, "VALUES", 100):
        assert cache.texts("talk", [0]) == [[1, [2]]]
        with pytest.raises(CorruptionError, match="about 198 values; at most 100 are read"):
            cache.texts("talk", [1])


def test_texts_of_a_batch_share_the_limit_of_json_values(tmp_path):
    specs = {"talk": ArraySpec("uint8", (), layout.text_dim("talk"), "json")}
    cache = open_cache(make_cache(tmp_path, specs, [{"talk": [[]] * 40}] * 3, k=2))
    with mock.patch.object(parsing, "VALUES", 100), mock.patch.object(reader, "_MANY_VALUES", 10):
        assert cache.texts("talk", [0]) == [[[]] * 40]
        said = r"2 samples of talk hold about 160 JSON values; at most 100 are read at once.*batch \(about 1\)"
        with pytest.raises(UsageError, match=said):  # each may be read: the cache is sound
            cache.texts("talk", [0, 1])
    with mock.patch.object(parsing, "VALUES", 100), mock.patch.object(reader, "_MANY_VALUES", 80):
        assert cache.texts("talk", [0, 1]) == [[[]] * 40] * 2
    with (
        mock.patch.object(parsing, "VALUES", 79),
        pytest.raises(CorruptionError, match="about 80 values; at most 79"),
    ):
        cache.texts("talk", [0, 1])


def test_a_name_in_a_cache_acts_on_no_terminal_where_python_prints_it(tmp_path):
    name = "a\x1b]0;owned\x07"
    folder = make_cache(tmp_path, {name: ArraySpec("float32", ())}, [{name: np.float32(1)}])
    for shown in (repr(open_cache(folder)), repr(CachedDataset(folder))):
        assert r"a\x1b]0;owned\x07" in shown
        assert "\x1b" not in shown
    with pytest.raises(UsageError) as caught:
        Windows.of({name: 1})
    place = open_cache(folder)._place
    with pytest.raises(CorruptionError) as damaged, place.checked_content("x"):
        raise ValueError(name)
    for error in (caught.value, damaged.value):
        assert "\x1b" not in "".join(traceback.format_exception(error)).replace(repr(name), "")


@pytest.mark.parametrize(("count", "refused"), [(100, False), (3_000, True)])
def test_what_is_said_of_a_field_has_few_values(count, refused):
    said = {"kind": "array", "dim": None, "optional": False, "junk": [[]] * count}
    document = {"attributes": {"datacheck": said}, "data_type": "float32", "shape": [1, 3]}
    if not refused:
        assert parsing.parse_spec("fields/x", document).item == (3,)
        return
    with pytest.raises(ValueError, match="more than 2,000 values of a field"):
        parsing.parse_spec("fields/x", document)


def test_a_field_inside_a_field_is_damage(tmp_path):
    """A build refuses both: an array of Zarr holds no array, and HDF5 ended the export with an internal error."""
    spec = ArraySpec("float32", (2,))
    cache = make_cache(
        tmp_path,
        {"a/b": spec, "a-x": spec, "c": spec},
        [{n: np.ones(2) for n in ("a/b", "a-x", "c")}],
    )
    assert used(cache)
    for top in ("fields", "digests/fields"):
        shutil.copytree(cache / top / "c", cache / top / "a", dirs_exist_ok=True)
    sealed(cache)
    with pytest.raises(CorruptionError, match="a field inside a field: fields/a/b"):
        open_cache(cache)
    assert any("a field inside a field" in str(problem) for problem in verify(cache, "values"))


@pytest.mark.parametrize(("field", "size"), [("say", 5), ("more", 3)])
def test_a_text_has_a_limit_of_its_own(whole, monkeypatch, field, size):
    """Its object in Python takes up to seven times as much: 4 GiB of text took 24 in each worker."""
    monkeypatch.setattr(parsing, "TEXT_BYTES", size)
    assert open_cache(whole).texts(field, [1]) == [{"say": "hello", "more": [1]}[field]]
    monkeypatch.setattr(parsing, "TEXT_BYTES", size - 1)
    with pytest.raises(
        UsageError,
        match=f"fields/{field}: a sample has {size} bytes; at most {size - 1} are served",
    ):
        open_cache(whole).texts(field, [1])
    # The bytes have that of all rows
    assert len(open_cache(whole).gather_ragged(field, [1])[0]) == size


@pytest.mark.parametrize(("letter", "times"), [("a", 2.2), ("\U0001f600", 6.2)])
def test_a_text_is_decoded_without_a_copy_of_its_bytes(tmp_path, letter, times):
    size = 8 << 20
    spec = {"say": ArraySpec("uint8", (), layout.text_dim("say"), "text")}
    cache = open_cache(make_cache(tmp_path, spec, [{"say": letter + "a" * size}], k=1, codec=ZSTD))
    tracemalloc.start()
    try:
        (text,) = cache.texts("say", [0])
        assert tracemalloc.get_traced_memory()[1] < times * size
    finally:
        tracemalloc.stop()
    assert len(text) == size + 1
