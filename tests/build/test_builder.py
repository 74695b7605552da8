"""A cache holds what the files hold, whatever the layout; what cannot be stored is marked, never filled in."""

from __future__ import annotations

import dataclasses
import json
import os
import stat

import numpy as np
import pytest
import xxhash
import zarr

from datacheck.build import make_shards
from datacheck.build.builder import build_cache
from datacheck.build.fingerprint import Fingerprint
from datacheck.build.target import FolderTarget
from datacheck.cache import layout, open_cache, parsing
from datacheck.cache.manifest import content_root, measure_files, read_manifest
from datacheck.cache.store import open_store
from datacheck.errors import NondeterministicBuildError, UsageError
from datacheck.runtime.hashing import digest_file, digest_sample
from datacheck.sources import listing
from tests.build.make import MIXED, job_of, mixed, schema_of, tree


@pytest.fixture
def small_shards(monkeypatch):
    """Several shards and several tasks from little data."""
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 14)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 15)


def values(group, name, i):
    array = group["fields"][name]
    dim = array.attrs["datacheck"]["dim"]
    if dim is None:
        return array[i]
    start, length = group[f"rows/{dim}/start"][i], group[f"rows/{dim}/length"][i]
    return array[start : start + length]


def check(folder, keys, written, fields):
    group = zarr.open_group(folder, mode="r")
    made = group["samples/made"][:]
    for i, key in enumerate(keys):
        assert made[i] == (key in written), key
        for name in fields:
            optional = group["fields"][name].attrs["datacheck"]["optional"]
            present = bool(group[f"present/{name}"][i]) if optional else made[i]
            assert present == (name in written.get(key, {})), (key, name)
            if present:
                stored = values(group, name, i)
                assert stored.dtype == written[key][name].dtype
                assert np.array_equal(stored, written[key][name]), (key, name)


def test_every_layout_of_a_field_comes_back(tmp_path, small_shards):
    written = mixed(tmp_path / "data")
    job = job_of(schema_of(MIXED), tmp_path / "data", invalid={"003.npz": ("DC201", "DC304")})
    built = build_cache(job, tmp_path / "out")
    assert built.path.parent == tmp_path / "out" / "tiny" / "all"
    assert (built.samples, built.made, built.valid, built.reused, built.not_made) == (
        23,
        22,
        21,
        False,
        [],
    )
    assert len(list((built.path / "fields/joints").glob("c.*"))) > 2
    check(built.path, job.samples.keys, written, MIXED)
    group = zarr.open_group(built.path, mode="r")
    valid = group["samples/valid"][:]
    assert [k for k, ok in zip(job.samples.keys, valid, strict=True) if not ok] == [
        "003.npz",
        "007.npz",
    ]
    assert json.loads((built.path / layout.FINDINGS).read_text()) == {
        "003.npz": ["DC201", "DC304"],
        "007.npz": ["DC101"],
    }
    digests = group["samples/digest"][:]
    for i, key in enumerate(job.samples.keys):
        sample = written.get(key)
        wanted = (
            digest_sample(sorted((n, np.asarray(v)) for n, v in sample.items())) if sample else 0
        )
        assert digests[i] == wanted


def test_the_manifest_and_every_chunk_digest_hold(tmp_path, small_shards):
    mixed(tmp_path / "data")
    built = build_cache(job_of(schema_of(MIXED), tmp_path / "data"), tmp_path / "out")
    manifest = read_manifest(open_store(built.path))
    assert manifest.files == measure_files(built.path)
    assert sum(size for size, _ in manifest.files.values()) == built.nbytes
    cache = open_cache(built.path, verify="full")
    assert len(cache) == 23
    group = zarr.open_group(built.path, mode="r")
    lengths = group["rows/samples.key/length"][:]
    content = [(n, group["fields"][n].dtype.name, group["fields"][n].shape[1:]) for n in MIXED]
    assert manifest.content_root == content_root(
        content, lengths, [group["samples/key"][:]], group["samples/digest"][:]
    )


def test_files_are_read_only_and_nothing_unfinished_stays(tmp_path):
    mixed(tmp_path / "data", 5)
    built = build_cache(job_of(schema_of(MIXED), tmp_path / "data"), tmp_path / "out")
    modes = {stat.S_IMODE(p.stat().st_mode) for p in built.path.rglob("*") if p.is_file()}
    assert modes == {0o444}
    assert [p.name for p in (tmp_path / "out/tiny/all").iterdir()] == [built.path.name]
    assert not [p for p in built.path.rglob("*") if p.name.endswith(".partial")]


def test_the_key_is_the_digest_of_what_inputs_json_says(tmp_path):
    mixed(tmp_path / "data", 5)
    job = job_of(schema_of(MIXED), tmp_path / "data", steps=[{"select": ["cloud"]}])
    path = build_cache(job, tmp_path / "out").path
    inputs = json.loads((path / layout.INPUTS).read_text())
    text = json.dumps(inputs["said"], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert path.name == xxhash.xxh3_128_hexdigest(text.encode())[:16]
    assert inputs["said"]["pipeline"] == "tiny"
    assert len(inputs["said"]["transforms"]) == 1
    assert len(inputs["recipe"]) == 32
    (tmp_path / "data/zz.npz").write_bytes((tmp_path / "data/000.npz").read_bytes())
    more = build_cache(
        job_of(schema_of(MIXED), tmp_path / "data", steps=[{"select": ["cloud"]}]), tmp_path / "out"
    )
    other = json.loads((more.path / layout.INPUTS).read_text())
    assert other["recipe"] == inputs["recipe"]
    changed = {name for name, value in other["said"].items() if value != inputs["said"][name]}
    assert changed - {"shard_samples"} == {"samples", "sources"}


def test_no_path_time_or_name_of_this_machine_is_stored(tmp_path):
    mixed(tmp_path / "data", 5)
    built = build_cache(job_of(schema_of(MIXED), tmp_path / "data"), tmp_path / "out")
    for path, content in tree(built.path).items():
        assert str(tmp_path).encode() not in content, path
        assert os.uname().nodename.encode() not in content or path.startswith("fields"), path


def test_the_same_files_elsewhere_give_the_same_cache(tmp_path, small_shards):
    mixed(tmp_path / "a/data")
    mixed(tmp_path / "b/other")
    one = build_cache(job_of(schema_of(MIXED), tmp_path / "a/data"), tmp_path / "a/out")
    two = build_cache(job_of(schema_of(MIXED), tmp_path / "b/other"), tmp_path / "elsewhere")
    assert one.path.name == two.path.name
    assert tree(one.path) == tree(two.path)


def test_a_finished_cache_is_used_again(tmp_path, monkeypatch):
    mixed(tmp_path / "data", 6)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    first = build_cache(job, tmp_path / "out")
    monkeypatch.setattr(make_shards, "ordered_map", lambda *a, **k: pytest.fail("built again"))
    again = build_cache(job, tmp_path / "out")
    assert (again.path, again.reused) == (first.path, True)
    assert (again.samples, again.made, again.valid, again.nbytes) == (
        first.samples,
        first.made,
        first.valid,
        first.nbytes,
    )


@pytest.mark.parametrize("damage", ["truncate", "manifest", "missing"])
def test_a_damaged_cache_in_the_way_is_moved_aside(tmp_path, damage):
    mixed(tmp_path / "data", 6)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    first = build_cache(job, tmp_path / "out")
    golden = tree(first.path)
    victim = first.path / ("manifest.json" if damage == "manifest" else "fields/joints/c.0.0.0")
    victim.chmod(0o644)
    victim.unlink() if damage == "missing" else victim.write_bytes(victim.read_bytes()[:-9])
    again = build_cache(job, tmp_path / "out")
    assert not again.reused
    assert tree(again.path) == golden
    assert again.moved is not None
    assert again.moved.is_dir()
    assert again.moved.parent.name == layout.TRASH


def test_the_loser_of_a_race_uses_the_winner_s_cache(tmp_path, monkeypatch):
    mixed(tmp_path / "data", 6)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    first = build_cache(job, tmp_path / "out")
    # As if it had not been there yet
    monkeypatch.setattr(FolderTarget, "finished", lambda target: (None, None))
    second = build_cache(job, tmp_path / "out")
    assert (second.path, second.reused) == (first.path, True)
    assert [p.name for p in first.path.parent.iterdir()] == [first.path.name]


def test_a_race_of_different_contents_is_an_error(tmp_path, monkeypatch):
    mixed(tmp_path / "data", 6)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    other = job_of(
        schema_of(MIXED),
        tmp_path / "data",
        steps=[{"camera": {"fields": ["cloud"], "to": "opencv"}}],
    )
    first = build_cache(job, tmp_path / "out")
    golden = tree(first.path)
    monkeypatch.setattr(FolderTarget, "finished", lambda target: (None, None))
    monkeypatch.setattr(Fingerprint, "key", first.path.name)
    with pytest.raises(
        NondeterministicBuildError,
        match=r"differs: digests/fields/cloud/c\.0\. .*not deterministic",
    ):
        build_cache(other, tmp_path / "out")
    assert tree(first.path) == golden
    assert sorted(p.name for p in first.path.parent.iterdir()) == [layout.TRASH, first.path.name]
    (aside,) = (first.path.parent / layout.TRASH).iterdir()
    assert (aside / "manifest.json").is_file()


def test_a_source_that_changes_after_the_scan_stops_the_build(tmp_path):
    mixed(tmp_path / "data", 6)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    content = (tmp_path / "data/002.npz").read_bytes()
    (tmp_path / "data/002.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"002\.npz: changed during the build"):
        build_cache(job, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.json"))
    assert not list((tmp_path / "out").rglob(".building"))


def test_bytes_that_changed_under_the_same_times_stop_the_build(tmp_path):
    (tmp_path / "data").mkdir()
    for i in range(3):
        np.save(tmp_path / f"data/{i}.npy", np.full((4, 3), i, np.float32))
    schema = schema_of(
        {"x": {"role": "points", "shape": ["P", 3], "dtype": "float32"}}, files="*.npy"
    )
    job = job_of(schema, tmp_path / "data")
    np.save(tmp_path / "data/2.npy", np.full((4, 3), 7, np.float32))
    # As if neither size nor times nor inode told
    seen = listing.stat_entry(tmp_path / "data", "2.npy", {})
    sources = {**job.sources, "2.npy": seen._replace(digest=job.sources["2.npy"].digest)}
    with pytest.raises(UsageError, match=r"2\.npy: changed during the build"):
        build_cache(dataclasses.replace(job, sources=sources), tmp_path / "out")
    sources["2.npy"] = seen._replace(digest=digest_file(tmp_path / "data/2.npy"))
    assert build_cache(dataclasses.replace(job, sources=sources), tmp_path / "out").made == 3


def test_what_does_not_fit_is_not_made_and_says_why(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    good = {"x": np.ones((4, 3), np.float32), "n": np.ones(4, np.int32), "v": np.float64(1)}
    changes = {
        "b-shape": {"x": np.ones((4, 2), np.float32)},
        "c-rows": {"n": np.ones(5, np.int32)},
        "d-dtype": {"x": np.ones((4, 3))},
        "e-rank": {"v": np.ones(2)},
        "f-missing": {"v": None},
        "g-wide": {"v": np.int64(2**53 + 1)},
        "h-fits": {"v": np.int64(3), "n": np.ones(4, np.int8)},
    }
    for name, change in ({"a": {}} | changes).items():
        np.savez(
            data / f"{name}.npz", **{k: v for k, v in (good | change).items() if v is not None}
        )
    fields = {
        "x": {"role": "points", "shape": ["P", 3], "dtype": "float32"},
        "n": {"shape": ["P"], "dtype": "int32"},
        "v": {"shape": [], "dtype": "float64"},
    }
    built = build_cache(job_of(schema_of(fields), data), tmp_path / "out")
    assert dict(built.not_made) == {
        "b-shape.npz": "x: shape [n, 2] does not fit [P, 3]",
        "c-rows.npz": "x: 4 rows; n, which shares the axis P, has another number",
        "d-dtype.npz": "x: float64 does not fit float32; put a cast into the pipeline",
        "e-rank.npz": "v: shape [n] does not fit []",
        "f-missing.npz": "v: missing",
        "g-wide.npz": "v: values do not fit float64; declare the dtype that they have",
    }
    group = zarr.open_group(built.path, mode="r")
    assert group["samples/made"][:].tolist() == [
        True,
        False,
        False,
        False,
        False,
        False,
        False,
        True,
    ]
    assert group["samples/valid"][:].tolist() == group["samples/made"][:].tolist()
    assert group["rows/P/length"][:].tolist() == [4, 0, 0, 0, 0, 0, 0, 4]
    assert np.isnan(group["fields/v"][1:7]).all()
    assert group["fields/v"][7] == 3
    findings = json.loads((built.path / layout.FINDINGS).read_text())
    assert findings == {key: ["DC961"] for key, _ in built.not_made}
    assert json.loads((built.path / layout.BUILD).read_text())["not_made"] == dict(built.not_made)


def test_a_cache_of_nothing_is_an_error(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=np.ones((4, 2), np.float32))
    with pytest.raises(UsageError, match=r"no sample could be made; the first: a\.npz: x: shape"):
        build_cache(
            job_of(schema_of({"x": {"shape": [4, 3], "dtype": "float32"}}), data), tmp_path / "out"
        )
    (data / "a.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match="none of 1 samples can be read"):
        build_cache(job_of(schema_of({"x": {"shape": [4, 3]}}), data), tmp_path / "out")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


def test_a_shard_of_more_chunks_than_readers_accept_is_refused(tmp_path, monkeypatch):
    """Rows of 12 bytes: 4,096 of them are 48 KiB, so 5,000 take two inner chunks."""
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "a.npz", points=np.ones((5000, 3), np.float32))
    schema = schema_of({"points": {"role": "points", "shape": ["P", 3], "dtype": "float32"}})
    monkeypatch.setattr(parsing, "SHARD_CHUNKS", 1)
    with pytest.raises(
        UsageError, match="points: a shard of 2 inner chunks; a cache has 1 at most"
    ):
        build_cache(job_of(schema, data), tmp_path / "out")
    assert not list((tmp_path / "out").rglob("manifest.json"))


def test_text_and_json_come_back_canonical(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    records = [
        {"text": "grüße 你好 \U0001f600", "turns": [{"role": "user", "content": "hi"}]},
        {"text": "", "turns": [{"b": 1e-7, "a": -0.0, "c": 1e16}]},
        {"text": "lone \ud800 surrogate", "turns": []},
        {"text": "z", "turns": [{"content": "x" * 1000}] * 3},
    ]
    lines = [json.dumps(record) for record in records]
    (data / "a.jsonl").write_text("\n".join(lines) + "\n")
    fields = {"text": {"role": "text"}, "turns": {"role": "chat"}}
    job = job_of(schema_of(fields, files="*.jsonl", samples={"each": "line"}), data)
    built = build_cache(job, tmp_path / "out")
    group = zarr.open_group(built.path, mode="r")
    text = {i: bytes(values(group, "text", i)).decode() for i in (0, 1, 3)}
    assert text == {i: records[i]["text"] for i in text}
    assert bytes(values(group, "turns", 1)) == b'[{"a":0.0,"b":1e-07,"c":1e+16}]'
    assert json.loads(bytes(values(group, "turns", 3))) == records[3]["turns"]
    assert group["samples/made"][:].tolist() == [True, True, False, True]
    origin = bytes(group["samples/origin"][:])[: group["rows/samples.origin/length"][0]]
    assert json.loads(origin) == [{"file": "a.jsonl", "rows": [0, 1]}]


def test_transforms_run_and_their_refusals_are_marked(tmp_path):
    written = mixed(tmp_path / "data")
    steps = [{"sample_points": {"points": "cloud", "n": 32}}, {"select": ["cloud", "labels"]}]
    built = build_cache(job_of(schema_of(MIXED), tmp_path / "data", steps=steps), tmp_path / "out")
    assert built.not_made == [("004.npz", "cloud has no rows to take 32 from")]
    group = zarr.open_group(built.path, mode="r")
    assert sorted(group["fields"].array_keys()) == ["cloud", "labels"]
    assert group["fields/cloud"].shape == (23, 32, 3)
    assert np.isnan(group["fields/cloud"][4]).all()
    for i in (0, 12):
        rows = {r.tobytes() for r in written[f"{i:03d}.npz"]["cloud"]}
        assert {r.tobytes() for r in group["fields/cloud"][i]} <= rows


def test_a_user_s_function_is_found_beside_the_pipeline(tmp_path, monkeypatch):
    mixed(tmp_path / "data", 6)
    code = (
        "import numpy as np\ndef plain(sample):\n    return {**sample.fields, 'score': "
        "np.float32(7)}\n"
    )
    (tmp_path / "beside_it.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    job = job_of(
        schema_of(MIXED), tmp_path / "data", steps=["beside_it:plain"], paths=[str(tmp_path)]
    )
    built = build_cache(job, tmp_path / "out")
    group = zarr.open_group(built.path, mode="r")
    assert set(group["fields/score"][:][group["samples/made"][:]].tolist()) == {7}
    (tmp_path / "beside_it.py").write_text(code.replace("np.float32(7)", "1 / 0"))
    with pytest.raises(UsageError, match=r"ZeroDivisionError.*at sample 000\.npz"):
        build_cache(job, tmp_path / "out")


def test_windows_are_declared_with_the_axis_of_the_actions(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    np.savez(
        data / "a.npz",
        action=np.ones((9, 7), np.float32),
        points=np.ones((5, 3)),
        marks=np.ones((5, 1)),
    )
    fields = {
        "action": {"role": "action", "shape": ["T", 7]},
        "points": {"role": "points", "shape": ["P", 3]},
        "marks": {"shape": ["P", 1]},
    }
    built = build_cache(
        job_of(schema_of(fields, windows={"length": 4, "stride": 2}), data), tmp_path / "out"
    )
    root = json.loads((built.path / "zarr.json").read_text())["attributes"]["datacheck"]
    assert root["windows"] == {"dim": "T", "length": 4, "pad": "none", "short": "drop", "stride": 2}


def test_progress_ends_at_all(tmp_path, small_shards):
    mixed(tmp_path / "data")
    ticks = []
    build_cache(
        job_of(schema_of(MIXED), tmp_path / "data"), tmp_path / "out", progress=ticks.append
    )
    assert ticks[-1].samples == 23
    assert (ticks[-1].files, ticks[-1].nbytes) == (ticks[-1].all_files, ticks[-1].all_nbytes)
    assert len(ticks) > 1
    assert ticks == sorted(ticks)
