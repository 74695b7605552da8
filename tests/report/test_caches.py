"""The page of a cache: its numbers against those of zarr, json and NumPy, and what it says of a damaged one."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from itertools import pairwise

import html5lib
import numpy as np
import pytest
import zarr

from datacheck import CachedDataset
from datacheck.build.builder import build_cache
from datacheck.cache import layout, open_cache
from datacheck.cache.codec import Codec
from datacheck.cache.manifest import measure_files, write_manifest
from datacheck.cache.reader import provenance
from datacheck.model.sample import ArraySpec
from datacheck.report.cache_page import _cache_contents, cache_page, cache_summary
from datacheck.runtime import numerics
from tests.build import rebuild
from tests.cache.make import HalfPair, _Writer, make_cache
from tests.report.hostile import HOSTILE

ROOT = "{http://www.w3.org/1999/xhtml}"
LIMIT = 3_000_000
INVALID = {"002.npz": ("DC301",), "009.npz": ("DC201", "DC301"), "010.npz": ("DC201",)}


def parsed(folder, **options):
    """What the page of a cache says, as a browser's parser reads it; and its tags."""
    parser = html5lib.HTMLParser()
    tree = parser.parse(cache_page(cache_summary(folder, **options)).decode())
    assert parser.errors == []
    (block,) = (s for s in tree.iter(f"{ROOT}script") if s.get("type") == "application/json")
    return json.loads(block.text), [node.tag for node in tree.iter()]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two builds of one dataset: a file changed, one came, one went, one is judged otherwise."""
    place = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        rebuild.small(patch)
        rebuild.dataset(place / "data")
        first = build_cache(rebuild.job(place / "data", invalid=INVALID), place / "out")
        os.utime(first.path, (1e9, 1e9))
        rebuild.write(place / "data", "004.npz", 204)
        rebuild.write(place / "data", "900.npz", 14)
        (place / "data/029.npz").unlink()
        second = build_cache(
            rebuild.job(place / "data", invalid=INVALID | {"012.npz": ("DC221",)}), place / "out"
        )
    return first, second


def test_only_the_script_and_the_style_of_ours_may_run_and_nothing_is_asked_of_the_network(built):
    text = cache_page(cache_summary(built[1].path)).decode()
    tree = html5lib.parse(text)
    (policy,) = (m.get("content") for m in tree.iter(f"{ROOT}meta") if m.get("http-equiv"))
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    (script,) = (s for s in tree.iter(f"{ROOT}script") if s.get("type") is None)
    (style,) = tree.iter(f"{ROOT}style")
    digests = [
        base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode()
        for node in (script, style)
    ]
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digests[0]}'",
        "style-src": f"'sha256-{digests[1]}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    # Without the numbers of pictures, which are base64
    spelled = re.sub(r'"(?:xyz|label|rgb|url)":"[^"]*"', "", text)
    assert not re.search(r"(?:https?:)?//[a-z]", spelled.replace("http://www.w3.org/2000/svg", ""))
    assert not any(
        name.startswith("on") or name in {"src", "style"}
        for node in tree.iter()
        for name in node.attrib
    )


def test_sizes_and_shapes_are_those_of_zarr_and_of_the_files(built):
    _, second = built
    said, _ = parsed(second.path)
    group = zarr.open_group(second.path, mode="r")
    manifest = json.loads((second.path / "manifest.json").read_text())
    cache = said["cache"]
    assert cache["bytes"] == sum(
        f.stat().st_size for f in second.path.rglob("*") if f.is_file()
    ) - sum((second.path / name).stat().st_size for name in ("manifest.json", "build.json"))
    assert cache["files"] == len(manifest["files"])
    assert (cache["digest"], cache["content_root"]) == (
        manifest["digest"],
        manifest["content_root"],
    )
    assert (cache["samples"], cache["made"], cache["valid"]) == (
        group["samples/made"].shape[0],
        int(group["samples/made"][:].sum()),
        int(group["samples/valid"][:].sum()),
    )
    assert cache["key"] == second.path.name
    fields = {field["name"]: field for field in said["fields"]}
    assert set(fields) == set(group["fields"].array_keys()) == set(rebuild.FIELDS)
    lengths = {dim: group[f"rows/{dim}/length"][:] for dim in ("P",)}
    for name, field in fields.items():
        array = group[f"fields/{name}"]
        dim = array.attrs["datacheck"]["dim"]
        rows = lengths[dim].sum() if dim else cache["samples"]
        item = int(np.prod(array.shape[1:], dtype=int)) * array.dtype.itemsize
        assert field["raw"] == rows * item
        assert field["stored"] == sum(
            f.stat().st_size for f in (second.path / "fields" / name).glob("c.*")
        )
        assert field["dtype"] == array.dtype.name
        assert field["shape"] == str(
            [dim, *array.shape[1:]] if dim else list(array.shape[1:])
        ).replace("'", "")
        optional = f"present/{name}" in group
        assert field["present"] == (int(group[f"present/{name}"][:].sum()) if optional else None)
    made = lengths["P"][group["samples/made"][:]]
    assert fields["cloud"]["rows"] == [made.min(), int(np.median(made)), made.max()]
    assert cache["stored"] == sum(field["stored"] for field in said["fields"])
    assert cache["raw"] == sum(field["raw"] for field in said["fields"])


def test_shards_are_those_of_the_files_and_the_unchanged_ones_are_links_to_the_earlier_cache(built):
    first, second = built
    said, _ = parsed(second.path)
    valid = zarr.open_group(second.path, mode="r")["samples/valid"][:]
    k, shards = said["cache"]["shard_samples"], said["shards"]
    assert [row[0] for row in shards] == list(range(-(-len(valid) // k)))
    assert len(shards) == said["cache"]["shards"] == second.shards > 5
    before = {(f.stat().st_dev, f.stat().st_ino) for f in (first.path / "fields").rglob("c.*")}
    for g, start, stop, good, size, same in shards:
        files = list((second.path / "fields").glob(f"*/c.{g}.*")) + list(
            (second.path / "fields").glob(f"*/c.{g}")
        )
        assert (start, stop) == (g * k, min(len(valid), (g + 1) * k))
        assert good == valid[start:stop].sum()
        assert size == sum(f.stat().st_size for f in files)
        assert same == all((f.stat().st_dev, f.stat().st_ino) in before for f in files)
    assert sum(row[5] for row in shards) == second.reuse.linked > 0
    ends = [cell[1] for cell in said["strip"]]
    assert [cell[0] for cell in said["strip"]] == [0, *(end + 1 for end in ends[:-1])]
    assert sum(cell[3] for cell in said["strip"]) == sum(row[5] for row in shards)


def test_what_is_not_served_is_told_by_code_with_what_stands_in_for_it(built):
    _, second = built
    said, _ = parsed(second.path)
    findings = json.loads((second.path / "findings.json").read_text())
    reasons = json.loads((second.path / "build.json").read_text())["not_made"]
    dataset = CachedDataset(second.path)
    keys = dataset.cache.keys(range(len(dataset)))
    groups = {group["code"]: group for group in said["unserved"]["codes"]}
    assert {code: group["samples"] for code, group in groups.items()} == {
        code: sum(code in codes for codes in findings.values())
        for codes in findings.values()
        for code in codes
    }
    assert [group["samples"] for group in said["unserved"]["codes"]] == sorted(
        (group["samples"] for group in groups.values()), reverse=True
    )
    assert groups["DC301"]["samples"] == 2
    for code, group in groups.items():
        assert [row[1] for row in group["rows"]] == [
            key for key in keys if code in findings.get(key, [])
        ][:10]
        for number, key, made, codes, reason, instead in group["rows"]:
            assert keys[number] == key
            assert made == bool(dataset.cache.made[number])
            assert codes.split() == findings[key]
            assert reason == reasons.get(key, "")
            served = dataset.substituted(number)
            assert instead == [served, keys[served], None]
            assert keys[served] not in findings
    assert any(row[4] for row in groups["DC961"]["rows"])
    assert {code: (group["name"], group["rule"]) for code, group in groups.items()} == {
        "DC101": ("unreadable-file", True),
        "DC201": ("length-unit", True),
        "DC221": ("non-finite", True),
        "DC301": ("wrong-centre", True),
        "DC961": ("read, but refused by a transform or by the layout", False),
    }


def test_what_changed_since_the_last_build_is_what_was_changed(built):
    first, second = built
    changed = parsed(second.path)[0]["changed"]
    assert changed["before"]
    assert changed["path"] == str(first.path)
    assert [one["key"] for one in changed["pair"]] == [first.path.name, second.path.name]
    assert [one["valid"] for one in changed["pair"]] == [first.valid, second.valid]
    assert changed["added"] == {"all": 1, "rows": [["900.npz"]]}
    assert changed["removed"] == {"all": 1, "rows": [["029.npz"]]}
    assert [row[0] for row in changed["changed"]["rows"]] == ["004.npz"]
    assert changed["verdicts"] == {"all": 1, "rows": [["012.npz", "valid", "DC221"]]}
    parts = {where: now for where, _, now in changed["parts"]}
    assert set(parts) == {"samples", "sources"}
    assert parts["sources"] == "30 files: 1 added (900.npz); 1 gone (029.npz); 1 changed (004.npz)"
    assert "1 judged otherwise (012.npz)" in parts["samples"]
    later = parsed(first.path)[0]["changed"]
    assert not later["before"]  # the first has none before it, and is held against the later one
    assert [one["key"] for one in later["pair"]] == [first.path.name, second.path.name]
    assert later["added"]["rows"] == [["900.npz"]]


def test_values_beyond_the_bound_are_counted_and_not_read(built, monkeypatch):
    monkeypatch.setattr("datacheck.report.cache_changes._MAX_COMPARED_BYTES", 0)
    changed = parsed(built[1].path)[0]["changed"]
    assert (changed["changed"]["all"], changed["unread"], changed["alike"]) == (0, 1, True)


def test_provenance_is_what_the_documents_say(built):
    _, second = built
    inputs, build = (
        json.loads((second.path / f"{name}.json").read_text()) for name in ("inputs", "build")
    )
    said = parsed(second.path)[0]["provenance"]
    assert said["build"] == {
        name: build[name]
        for name in ("built", "host", "machine", "datacheck", "python", "numpy", "numerics")
    }
    assert said["build"]["numerics"] == numerics.computation_digest()
    assert (said["recipe"], said["sources"]) == (inputs["recipe"], inputs["said"]["sources"])
    sources = json.loads((second.path / "sources.json").read_text())["files"].values()
    assert (said["files"], said["nbytes"]) == (len(sources), sum(size for size, _ in sources))
    (step,) = inputs["said"]["transforms"]
    assert said["steps"] == [
        {
            "name": "cast",
            "code": f"version {step['version']}",
            "options": json.dumps(step["options"]),
        }
    ]
    assert json.loads(said["schema"]) == inputs["said"]["schema"]


def test_an_earlier_cache_that_cannot_be_read_is_passed_over_or_told(built, tmp_path):
    shutil.copytree(built[0].path.parent, tmp_path / "split", copy_function=shutil.copy2)
    first, second = (tmp_path / "split" / one.path.name for one in built)
    os.utime(first, (1e9, 1e9))
    inputs = first / "inputs.json"
    inputs.chmod(0o644)
    inputs.write_bytes(inputs.read_bytes().replace(b'"tiny"', b'"tinx"'))
    assert "inputs.json" in parsed(second)[0]["changed"]["failed"]
    (first / "manifest.json").unlink()
    said = parsed(second)[0]
    assert said["changed"] is None
    assert {row[5] for row in said["shards"]} == {None}


def test_caches_of_another_pipeline_or_of_the_same_key_are_no_earlier_builds(tmp_path):
    specs, data = {"x": ArraySpec("float32", ())}, [{"x": np.float32(1)}]
    here = make_cache(tmp_path / "a", specs, data)
    for number, pipeline in enumerate(["tiny", "other"]):
        other = make_cache(
            tmp_path / "b", specs, data, pipeline=pipeline, **({"key": "f" * 16} if number else {})
        )
        shutil.move(other, here.parent / f"copy{number}")
    assert parsed(here)[0]["changed"] is None


@pytest.mark.parametrize("short", ["drop", "pad"])
def test_of_a_cache_with_windows_the_first_of_each_episode_is_told(tmp_path, short):
    specs = {"action": ArraySpec("float32", (2,), "T")}
    lengths = [5, 1, 9, 7, 2, 6]
    data = [{"action": np.zeros((n, 2), np.float32)} for n in lengths]
    windows = {"dim": "T", "length": 3, "stride": 2, "pad": "none", "short": short}
    folder = make_cache(
        tmp_path, specs, data, valid=[i not in {0, 3, 4} for i in range(6)], windows=windows
    )
    (group,) = parsed(folder)[0]["unserved"]["codes"]
    dataset = CachedDataset(folder)
    counts = [max((n - 3) // 2 + 1, 1 if short == "pad" else 0) for n in lengths]
    firsts = {i: sum(counts[:i]) if counts[i] else None for i in (0, 3, 4)}
    assert firsts[4] is None or short == "pad"
    for number, *_, instead in group["rows"]:
        if firsts[number] is None:
            assert instead is None
            continue
        served = dataset.substituted(firsts[number])
        episode = next(i for i in range(6) if served < sum(counts[: i + 1]))
        assert instead == [episode, f"sample/{episode:06d}", 2 * (served - sum(counts[:episode]))]


def test_a_cache_of_which_nothing_is_valid_says_why_nothing_is_served(tmp_path):
    folder = make_cache(
        tmp_path, {"x": ArraySpec("float32", ())}, [{"x": np.float32(1)}] * 3, valid=[False] * 3
    )
    unserved = parsed(folder)[0]["unserved"]
    assert "none of the 3 samples is valid" in unserved["why"]
    assert [row[5] for row in unserved["codes"][0]["rows"]] == [None] * 3
    assert parsed(folder)[0]["previews"] is None


def test_a_cache_without_samples_has_its_page(tmp_path):
    said, _ = parsed(make_cache(tmp_path, {"x": ArraySpec("float32", ())}, []))
    assert (said["cache"]["samples"], said["shards"], said["strip"], said["changed"]) == (
        0,
        [],
        [],
        None,
    )


def test_the_lengths_of_a_dimension_are_read_once_for_all_its_fields(tmp_path, monkeypatch):
    specs = {f"x{i}": ArraySpec("float32", (), "P") for i in range(5)}
    cache = open_cache(
        make_cache(
            tmp_path, specs, [dict.fromkeys(specs, np.ones(i, np.float32)) for i in range(3)]
        )
    )
    asked = []
    lengths = type(cache).lengths
    monkeypatch.setattr(
        type(cache), "lengths", lambda self, dim, *of: asked.append(dim) or lengths(self, dim, *of)
    )
    said = _cache_contents(cache, provenance(cache))
    assert asked == ["P"]
    assert [field["rows"] for field in said["fields"]] == [[0, 1, 2]] * 5


@pytest.mark.parametrize("k", [1, 4])
def test_fields_that_are_cut_otherwise_than_the_root_group_says_count_for_no_shard(tmp_path, k):
    specs = {"joints": ArraySpec("float32", (3,))}
    cache = make_cache(tmp_path, specs, [{"joints": np.ones(3, np.float32)}] * 9, k=2)
    rewritten(
        cache, "zarr.json", lambda said: said["attributes"]["datacheck"].update(shard_samples=k)
    )
    said, _ = parsed(cache)
    assert said["checked"]["all_problems"] == 0
    shards = [
        [g, first, min(9, first + k), min(9, first + k) - first, 0, None]
        for g, first in enumerate(range(0, 9, k))
    ]
    assert said["shards"] == shards
    assert said["fields"][0]["stored"] == sum(
        f.stat().st_size for f in (cache / "fields/joints").glob("c.*")
    )


def test_compressed_fields_are_told_with_what_they_take(tmp_path):
    data = [{"x": np.zeros((64, 64), np.float32)} for _ in range(4)]
    folder = make_cache(
        tmp_path, {"x": ArraySpec("float32", (64, 64))}, data, codec=Codec("zstd", 5)
    )
    said, _ = parsed(folder)
    assert said["cache"]["compression"] == "zstd:5"
    assert said["fields"][0]["raw"] == 4 * 64 * 64 * 4
    assert (
        said["fields"][0]["stored"]
        == sum(f.stat().st_size for f in (folder / "fields/x").glob("c.*"))
        < 2000
    )


def test_pictures_are_of_valid_samples_and_of_those_that_stand_in_for_others(built):
    said, _ = parsed(built[1].path)
    dataset = CachedDataset(built[1].path)
    samples, rows = said["previews"]["samples"], said["previews"]["findings"]
    keys = [one["key"] for one in samples]
    assert len(rows["valid"]) == len({keys[at] for at in rows["valid"]}) == 6
    findings = json.loads((built[1].path / "findings.json").read_text())
    assert not set(keys) & set(findings)
    told = [row[5][1] for group in said["unserved"]["codes"] for row in group["rows"]]
    assert [keys[at] for at in rows["instead"]] == list(dict.fromkeys(told))[:6]
    everything = dataset.cache.keys(range(len(dataset)))
    for one in samples:
        joints = dataset.cache.gather("joints", [everything.index(one["key"])])[0]
        (box,) = (field["box"] for field in one["fields"] if field["field"] == "joints")
        np.testing.assert_allclose(box, [joints.min(axis=0), joints.max(axis=0)], rtol=1e-4)
    assert said["previews"]["left_out"] == []


def test_damage_that_is_found_while_samples_are_drawn_is_a_problem(damaged):
    for file in (damaged / "fields/joints").glob("c.*"):
        flip(file)
    said, _ = parsed(damaged)
    assert said["checked"]["depth"] == "quick"
    assert said["checked"]["all_problems"] > 0
    assert "joints" in said["checked"]["problems"][0]["what"]
    assert said["cache"]["samples"] == 30
    undrawn = [one for one in said["previews"]["samples"] if not one["fields"]]
    assert len(undrawn) == said["checked"]["all_problems"]
    assert all("joints" in one["why"] for one in undrawn)


# ------------------------------------------------------------------------------------------ damage


@pytest.fixture
def damaged(built, tmp_path):
    """A copy of a cache whose files may be written."""
    return shutil.copytree(
        built[1].path, tmp_path / built[1].path.name, copy_function=shutil.copyfile
    )


def flip(path, at=0):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 4
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "name", ["fields/joints/c.0.0.0", "zarr.json", "samples/key/c.0", "findings.json"]
)
def test_a_missing_file_is_named(damaged, name):
    (damaged / name).unlink()
    said, _ = parsed(damaged)
    assert said["checked"]["problems"][0]["file"] == name
    assert said["checked"]["problems"][0]["what"] == "missing"
    assert said["cache"] is None


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("manifest.json", "damaged"),
        ("inputs.json", "inputs.json"),
        ("findings.json", "findings.json"),
        ("sources.json", "sources.json"),
        ("samples/made/c.0", "samples/made"),
        ("samples/key/c.0", "samples/key"),
        ("rows/P/length/zarr.json", "rows/P/length"),
    ],
)
def test_what_is_damaged_and_shown_is_found_also_by_a_quick_check(damaged, name, word):
    flip(damaged / name)
    said, _ = parsed(damaged)
    assert said["checked"]["all_problems"] == 1
    assert word in said["checked"]["problems"][0]["what"]


def test_damage_that_the_comparison_with_the_earlier_cache_meets_is_damage_of_the_cache(
    built, tmp_path
):
    place = shutil.copytree(built[1].path.parent, tmp_path / "split", copy_function=shutil.copy2)
    first, second = (place / one.path.name for one in built)
    os.utime(first, (1e9, 1e9))
    k = json.loads((second / "zarr.json").read_text())["attributes"]["datacheck"]["shard_samples"]
    shard = second / f"fields/score/c.{4 // k}"  # of the sample that changed
    shard.chmod(0o644)
    flip(shard)
    said, _ = parsed(second)
    assert "fields/score" in said["checked"]["problems"][0]["what"]
    assert said["cache"] is None
    shutil.copyfile(built[1].path / shard.relative_to(second), shard)
    shard = first / shard.relative_to(second)
    shard.chmod(0o644)
    flip(shard)
    said, _ = parsed(second)
    assert said["checked"]["all_problems"] == 0
    assert "fields/score" in said["changed"]["failed"]


def test_what_is_damaged_in_a_shard_is_found_by_a_full_check_and_the_rest_is_shown(damaged):
    flip(damaged / "fields/joints/c.1.0.0")
    (damaged / "build.json").unlink()
    assert parsed(damaged)[0]["checked"]["all_problems"] == 0
    said, _ = parsed(damaged, depth="full")
    assert [one["file"] for one in said["checked"]["problems"]] == ["fields/joints/c.1.0.0"]
    assert "field joints" in said["checked"]["problems"][0]["whom"]
    assert said["cache"]["samples"] == 30
    assert said["provenance"]["build"] == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"built": ["x"], "not_made": [1]}', '{"built": {"a": 1}}', "\x80"]
)
def test_nothing_guards_build_json_and_nothing_rests_on_it(damaged, text):
    (damaged / "build.json").write_bytes(text.encode("latin1"))
    assert parsed(damaged)[0]["checked"]["all_problems"] == 0


def rewritten(folder, name, change):
    """Change a document of a cache, and its digest with it."""
    said = json.loads((folder / name).read_text())
    change(said)
    (folder / name).unlink()
    (folder / name).write_text(json.dumps(said))
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), "0" * 32)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("transforms", None),
        ("transforms", 3),
        ("transforms", "ab"),
        ("transforms", {"a": 1}),
        ("transforms", [None, 3]),
        ("transforms", [{"function": 3}]),
        ("transforms", [{"use": [1], "options": 4}]),
        ("schema", 3),
        ("schema", None),
        ("schema", {"fields": {"cloud": {"shape": "ab"}}}),
        ("schema", {"fields": {"cloud": 3}}),
        ("sources", [1]),
        ("layout", 3),
        ("codec", {}),
    ],
)
def test_documents_of_a_right_digest_that_make_no_sense_are_no_crash(built, tmp_path, part, value):
    place = shutil.copytree(built[1].path.parent, tmp_path / "split", copy_function=shutil.copy2)
    folder = place / built[1].path.name
    rewritten(folder, "inputs.json", lambda said: said["said"].update({part: value}))
    said, _ = parsed(folder)
    assert said["cache"] is not None or "inputs.json" in said["checked"]["problems"][0]["what"]


@pytest.mark.parametrize(
    "windows",
    [{"length": "x"}, {"what": 3}, {"dim": "none", "length": 3}, {"dim": "P", "delta_indices": 3}],
)
def test_windows_that_make_no_sense_say_why_nothing_is_told_of_what_is_served(damaged, windows):
    rewritten(
        damaged, "zarr.json", lambda said: said["attributes"]["datacheck"].update(windows=windows)
    )
    said, _ = parsed(damaged)
    assert said["checked"]["all_problems"] == 0
    assert said["unserved"]["why"]


# ---------------------------------------------------------------------------- hostile names, bounds


def evil_cache(place, evil):
    """A cache with a text in every place that is not ours."""
    evil = evil.encode("utf-8", "backslashreplace").decode()
    name = evil[:20].encode()[:60].decode("utf-8", "ignore") or "empty"
    specs = {
        f"a{name}": ArraySpec("float32", (), attrs={"unit": evil, evil: evil}),
        "t": ArraySpec("uint8", (), layout.text_dim("t"), "text"),
    }
    data = [{f"a{name}": np.float32(i), "t": evil} for i in range(9)]
    keys = [f"{n} {evil}" for n in range(9)]
    folder = make_cache(
        place, specs, data, keys=keys, valid=[i % 3 > 0 for i in range(9)], split="s"
    )
    root = json.loads((folder / "zarr.json").read_text())
    root["attributes"]["datacheck"] |= {
        "pipeline": evil,
        "schema": evil,
        "split": evil,
        "windows": None,
    }
    said = {
        "pipeline": evil,
        "schema": {"fields": {f"a{name}": {"shape": [], "unit": evil}}, evil: [evil]},
        "layout": [],
        "transforms": [
            {"use": evil, "version": evil, "options": {evil: evil}},
            {"function": [evil, evil], "source": evil},
        ],
        "sources": evil,
        "codec": evil,
        "values": evil,
    }
    documents = {
        "zarr.json": root,
        "inputs.json": {"said": said, "recipe": evil},
        "sources.json": {"files": {evil: [3, evil]}},
        "findings.json": {key: [evil, "DC301"] for key in keys[::3]},
        "build.json": {
            "built": evil,
            "host": evil,
            "not_made": dict.fromkeys(keys, evil),
            "numpy": evil,
        },
    }
    (folder / "manifest.json").unlink()
    for file, document in documents.items():
        (folder / file).unlink(missing_ok=True)
        (folder / file).write_text(json.dumps(document))
    write_manifest(folder, measure_files(folder), evil)
    return folder


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_the_users_is_parsed_as_markup(tmp_path, name):
    _, tags = parsed(evil_cache(tmp_path / "plain", "x"))
    evil = HOSTILE[name].encode("utf-8", "backslashreplace").decode()
    said, found = parsed(evil_cache(tmp_path / "evil", HOSTILE[name]))
    assert found == tags
    assert said["cache"]["pipeline"] == (evil if len(evil) <= 1000 else f"{evil[:998]} …")
    rows = {row[1] for group in said["unserved"]["codes"] for row in group["rows"]}
    assert rows == {
        key if len(key) <= 300 else f"{key[:298]} …" for key in (f"{n} {evil}" for n in (0, 3, 6))
    }


def test_keys_and_paths_that_are_no_utf_8_are_spelled(tmp_path, built):
    folder = shutil.copytree(built[1].path, tmp_path / "caf\udce9", copy_function=shutil.copyfile)
    (folder / "more\udce9").write_text("x")
    said, _ = parsed(folder)
    assert said["place"].endswith("/caf\\udce9")
    assert said["checked"]["problems"][0]["file"] == "more\\udce9"


def test_keys_and_texts_with_half_of_a_surrogate_pair_are_spelled(tmp_path):
    """Three bytes that no strict UTF-8 has; keys that come from names which are no UTF-8 look so, too."""
    specs = {"x": ArraySpec("float32", (2,), "T"), "t": ArraySpec("uint8", (), "t", "text")}
    samples = [{"x": np.ones((3, 2)), "t": HalfPair("text \ud800")}] * 3
    keys = [HalfPair(key) for key in ("a\ud800", "b\ud800", "c\udc80")]
    said, _ = parsed(make_cache(tmp_path, specs, samples, keys=keys, valid=[True, False, True]))
    assert said["checked"]["problems"] == []
    assert [one["key"] for one in said["previews"]["samples"]] == ["a\\ud800", "c\\udc80"]
    (row,) = (row for group in said["unserved"]["codes"] for row in group["rows"])
    assert (row[1], row[3]) == ("b\\ud800", "DC301")


def large(place, samples, k, key, codes, *, every=20):
    """A cache of one number per sample, with as much to say as there can be.

    Args:
        every: each such sample is invalid.
    """
    folder = place / "tiny/all/0123456789abcdef"
    writer = _Writer(folder, Codec.parse("none"))
    grid = layout.fixed_grid(ArraySpec("float32", ()), samples, k)
    values = np.arange(samples, dtype=np.float32)
    parts = [values[g * k : (g + 1) * k] for g in range(grid.shards)]
    writer.array(
        "fields/x", grid, layout.field_attributes(ArraySpec("float32", ())), parts, "sample"
    )
    keys = [key.format(i) for i in range(samples)]
    writer.ragged_table("key", layout.KEY_DIM, "text", [one.encode() for one in keys])
    writer.ragged_table("origin", layout.ORIGIN_DIM, "json", [b"[]"] * samples)
    writer.table("samples/digest", np.arange(samples, dtype=np.uint64))
    valid = np.arange(samples) % every > 0
    writer.table("samples/made", np.ones(samples, bool))
    writer.table("samples/valid", valid)
    writer.digests()
    writer.groups(layout.Root(folder.name, "tiny", "tiny", "all", samples, k))
    bad = [one for one, good in zip(keys, valid.tolist(), strict=True) if not good]
    (folder / "findings.json").write_text(
        json.dumps({one: [codes(i)] for i, one in enumerate(bad)})
    )
    (folder / "sources.json").write_text(
        json.dumps({"files": {one: [1, "0" * 32] for one in keys[:1000]}})
    )
    (folder / "inputs.json").write_text(json.dumps({"said": {"pipeline": "tiny"}, "recipe": ""}))
    write_manifest(folder, measure_files(folder), "0" * 32)
    return folder


def test_a_million_samples_in_thousands_of_shards_take_less_than_3_mb(tmp_path):
    folder = large(tmp_path, 1_000_000, 256, "s/{:07d}", lambda i: f"DC{i % 7}")
    raw = cache_page(cache_summary(folder))
    assert len(raw) < LIMIT
    said = json.loads(re.search(rb'id="run">(.*?)</script>', raw, re.DOTALL)[1])
    assert said["cache"]["shards"] == -(-1_000_000 // 256) == len(said["shards"])
    assert len(said["strip"]) <= 200
    assert all(one[1] + 1 == other[0] for one, other in pairwise(said["strip"]))
    assert sum(group["samples"] for group in said["unserved"]["codes"]) == 50_000


def test_the_page_stays_small_whatever_is_said(tmp_path):
    listed = 0
    for sign in ("<", "名", "\x01", "\U0001fffe"):
        long = sign * 2000
        place, key = tmp_path / str(ord(sign)), "{:05d}" + long[:400]
        # What is said of shards has no text of the user's: one page with all of it tells its bytes
        k = 6000 if listed else 1
        folder = large(place, 6000, k, key, lambda i, e=long: f"{i}{e}", every=10)
        raw = cache_page(cache_summary(folder))
        said = json.loads(re.search(rb'id="run">(.*?)</script>', raw, re.DOTALL)[1])
        if k == 1:
            assert said["cache"]["shards"] == 6000
            assert len(said["shards"]) == 5000
            assert len(raw) < LIMIT, sign
            listed = len(json.dumps([said["shards"], said["strip"]]))
        assert len(raw) + (listed if k > 1 else 0) < LIMIT, sign
        assert said["unserved"]["all_codes"] == 600
        assert 0 < len(said["unserved"]["codes"]) < 600
        assert said["checked"]["problems"] == []
