"""What tells the key of a build from that of a finished cache."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from datacheck.build.input_differences import InputDifference, compare_caches, differences
from datacheck.cache.manifest import measure_files, write_manifest
from datacheck.errors import CorruptionError
from datacheck.pipeline import build, explain
from tests.build.make import schema_of

CLOUDS = {"points": {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"}}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.Generator(np.random.Philox(3))
    (tmp_path / "data").mkdir()
    for i in range(6):
        np.save(tmp_path / f"data/{i}.npy", rng.uniform(-1, 1, (40, 3)).astype(np.float32))
    return tmp_path / "data"


def schema(**more):
    return schema_of({"points": CLOUDS["points"] | more}, files="*.npy")


def told(data, wanted):
    (one,) = explain(wanted, data, "out")
    return {d.where: (d.before, d.now) for d in one.differences}, one


def test_the_same_build_differs_in_nothing(data):
    (made,) = build(schema(), data, "out")
    found, one = told(data, schema())
    assert (found, one.path, one.newest) == ({}, made.path, made.path)


def test_without_a_cache_there_is_nothing_to_compare_with(data):
    found, one = told(data, schema())
    assert (found, one.newest, one.path.exists()) == ({}, None, False)


def test_a_declaration_is_named_by_its_path(data):
    build(schema(), data, "out")
    assert told(data, schema(size="0.1..10"))[0] == {
        "schema.fields.points.size": ("absent", "0.1..10")
    }
    found = told(data, schema(unit="cm"))[0]
    assert found["schema.fields.points.unit"] == ("m", "cm")
    assert found["layout.points.attrs.unit"] == ("m", "cm")


def test_compression_is_named(data):
    build(schema(), data, "out")
    (one,) = explain(schema(), data, "out", compress="zstd")
    assert one.differences == [InputDifference("codec", "none", "zstd:3")]


def test_files_that_came_went_and_changed_are_named(data):
    build(schema(), data, "out")
    (data / "1.npy").unlink()
    shutil.copy(data / "2.npy", data / "9.npy")
    np.save(data / "3.npy", np.ones((40, 3), np.float32))
    found = told(data, schema())[0]
    assert found["sources"] == (
        "6 files",
        "6 files: 1 added (9.npy); 1 gone (1.npy); 1 changed (3.npy)",
    )
    assert found["samples"][1].startswith("6 samples: 1 added (9.npy); 1 gone (1.npy)")


def test_a_sample_that_is_judged_otherwise_is_named(data):
    build(schema(), data, "out")
    found = told(data, schema(size="50..60"))[0]
    assert found["samples"] == (
        "6 samples",
        "6 samples: 6 judged otherwise (0.npy, 1.npy, 2.npy, and 3 more)",
    )


def test_two_caches_are_told_apart_as_a_build_is_from_a_cache(data):
    (first,) = build(schema(), data, "out")
    (data / "1.npy").unlink()
    shutil.copy(data / "2.npy", data / "9.npy")
    np.save(data / "3.npy", np.full((40, 3), 99, np.float32))
    wanted = schema(size="0.1..5")
    said, _ = told(data, wanted)
    assert set(said) == {"sources", "samples", "schema.fields.points.size"}
    (second,) = build(wanted, data, "out")
    assert {d.where: (d.before, d.now) for d in compare_caches(second.path, first.path)} == said
    assert compare_caches(first.path, first.path) == []
    (there,) = [
        d for d in compare_caches(first.path, second.path) if d.where == "schema.fields.points.size"
    ]
    assert (there.before, there.now) == ("0.1..5", "absent")


def test_the_newest_cache_is_the_one_to_compare_with(data):
    (first,) = build(schema(), data, "out")
    np.save(data / "0.npy", np.ones((7, 3), np.float32))
    (second,) = build(schema(), data, "out")
    assert told(data, schema(up="z"))[1].newest == second.path != first.path


@pytest.mark.parametrize(("was", "now"), [(b'"said"', b'"saie"'), (b'"unit":"m"', b'"unit":"n"')])
def test_what_a_damaged_cache_says_is_not_told(data, was, now):
    (built,) = build(schema(), data, "out")
    path = built.path / "inputs.json"
    raw = path.read_bytes()
    assert was in raw
    path.chmod(0o644)
    path.write_bytes(raw.replace(was, now))
    with pytest.raises(CorruptionError, match=r"inputs\.json"):
        told(data, schema(up="z"))


@pytest.mark.parametrize(
    ("now", "before", "found"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [("a.b[1]", "3", "2")]),
        ({"a": [1]}, {"a": [1, 2]}, [("a", "[1, 2]", "[1]")]),
        ({"a": None}, {}, [("a", "absent", "null")]),
        ({"a": True}, {"a": 1}, [("a", "1", "true")]),
        ({"a": "x"}, {"a": "x"}, []),
    ],
)
def test_leaves_are_told_by_their_path(now, before, found):
    assert list(differences(now, before)) == [InputDifference(*one) for one in found]


def run(*args):
    code = "import sys; from datacheck.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", [0, None])
@pytest.mark.parametrize("which", [0, 1])
def test_a_field_that_has_no_name_is_damage(tmp_path, name, which):
    caches = pair_of(tmp_path, [{"layout": [["x", "float32"]]}] * 2)
    said = json.loads((caches[which] / "inputs.json").read_text())
    said["said"]["layout"][0][0] = name
    (caches[which] / "inputs.json").write_text(json.dumps(said))
    (caches[which] / "manifest.json").unlink()
    write_manifest(caches[which], measure_files(caches[which]), "0" * 32)
    with pytest.raises(CorruptionError, match=r"inputs\.json: .*a field without a name"):
        compare_caches(*caches)


def test_differences_are_few_and_their_paths_short(tmp_path):
    """A name of 1.5 MB was repeated for each leaf below it: two caches took 3 GB."""
    inputs = [{"x" * 100_000: {str(n): i for n in range(20_000)}, "layout": []} for i in (0, 1)]
    found = compare_caches(*pair_of(tmp_path, inputs))
    assert len(found) == 10_000
    assert {(len(one.where) < 1_100, one.where[:500]) for one in found} == {(True, "x" * 500)}


def pair_of(place, inputs):
    """Return two folders with these inputs, as far as `between` reads them."""
    folders = [place / str(i) for i in range(2)]
    for folder, said in zip(folders, inputs, strict=True):
        layout = [[*one, [], None, "array", False, {}] for one in said["layout"]]
        folder.mkdir()
        (folder / "inputs.json").write_text(
            json.dumps({"said": said | {"layout": layout, "transforms": []}})
        )
        write_manifest(folder, measure_files(folder), "0" * 32)
    return folders


def test_the_command_ends_with_1_where_another_cache_would_be_made(data):
    (data.parent / "clouds.yaml").write_text(
        "datacheck: 1\nname: clouds\nsamples: {files: '*.npy'}\nfields: "
        + json.dumps(CLOUDS)
        + "\n"
    )
    call = ("cache", "explain-key", "clouds.yaml", "--data", "data", "--out", "out")
    assert run(*call)[0] == 1
    assert run("cache", "build", *call[2:])[0] == 0
    code, said = run(*call)
    assert (code, "(built; nothing differs)" in said) == (0, True)
