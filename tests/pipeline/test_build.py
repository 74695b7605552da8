"""The whole way with the real scan: what is broken is named, kept out of training, and never looks like data."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from PIL import Image

from datacheck.build import plan, source_digests
from datacheck.cache import layout, open_cache
from datacheck.cli import main as cli
from datacheck.cli.cache_build import _unlisted_lines
from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.model.finding import RuleVerdict, Verdict
from datacheck.pipeline import build
from datacheck.scan import Request, measuring, run_scan, scanned_dataset
from datacheck.schema.model import Schema
from tests.build.make import MIXED, mixed, schema_of, tree

POINTS = {"points": {"role": "points", "shape": ["P", 3], "unit": "m", "size": "0.1..10"}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Scans leave their results in the working directory."""
    monkeypatch.chdir(tmp_path)


def clouds(folder, count=12, seed=1):
    folder.mkdir(parents=True)
    rng = np.random.Generator(np.random.Philox(seed))
    made = {}
    for i in range(count):
        made[f"{i:02d}.npy"] = rng.uniform(-1, 1, (int(rng.integers(30, 90)), 3)).astype(np.float32)
        np.save(folder / f"{i:02d}.npy", made[f"{i:02d}.npy"])
    return made


def rows(group, name, i):
    dim = group["fields"][name].attrs["datacheck"]["dim"]
    start, length = group[f"rows/{dim}/start"][i], group[f"rows/{dim}/length"][i]
    return group["fields"][name][start : start + length]


def test_what_the_machine_could_not_read_is_missed_before_anything_is_built(
    tmp_path, monkeypatch, repository
):
    monkeypatch.syspath_prepend(str(repository))
    data = tmp_path / "data"
    made = clouds(data)
    # The last is the file's own fault, as it seems
    for name in ("ended_1.npy", "ended_2.npy", "kill_3.npy"):
        np.save(data / name, made["03.npy"])
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "_MEASURE", "tests.scan.misbehaving:measure_items")
        with pytest.raises(
            StorageError,
            match=r"2 samples could not be .*: ended_1\.npy, ended_2\.npy\. Nothing was",
        ):
            build(schema_of(POINTS, files="*.npy"), data, tmp_path / "cache", allow_missing=1)
        assert not list((tmp_path / "cache").rglob(layout.MANIFEST))
        (built,) = build(
            schema_of(POINTS, files="*.npy"), data, tmp_path / "cache", allow_missing=2
        )
        assert (built.samples, built.valid) == (15, 12)
    (built,) = build(schema_of(POINTS, files="*.npy"), data, tmp_path / "cache")
    assert (built.samples, built.valid) == (15, 15)


def test_what_the_scan_finds_is_kept_out(tmp_path):
    data = tmp_path / "data"
    made = clouds(data)
    made["03.npy"] *= 1000
    made["05.npy"][7, 1] = np.nan
    for key in ("03.npy", "05.npy"):
        np.save(data / key, made[key])
    (data / "08.npy").write_bytes(b"\x93NUMPY broken")
    (built,) = build(schema_of(POINTS, files="*.npy"), data, tmp_path / "cache")
    assert (built.samples, built.made, built.valid) == (12, 11, 9)
    group = zarr.open_group(built.path, mode="r")
    assert np.flatnonzero(~group["samples/valid"][:]).tolist() == [3, 5, 8]
    assert np.flatnonzero(~group["samples/made"][:]).tolist() == [8]
    for i, key in enumerate(sorted(made)):
        if i != 8:
            assert np.array_equal(rows(group, "points", i), made[key], equal_nan=True)
    findings = json.loads((built.path / layout.FINDINGS).read_text())
    assert sorted(findings) == ["03.npy", "05.npy", "08.npy"]
    assert all(findings.values())
    assert len(open_cache(built.path, verify="full")) == 12


def test_every_layout_through_the_scan(tmp_path):
    written = mixed(tmp_path / "data")
    (built,) = build(schema_of(MIXED), tmp_path / "data", tmp_path / "cache")
    group = zarr.open_group(built.path, mode="r")
    keys = sorted([*written, "007.npz"])
    made = group["samples/made"][:]
    assert [key for key, ok in zip(keys, made, strict=True) if not ok] == ["007.npz"]
    for i, key in enumerate(keys):
        for name, value in written.get(key, {}).items():
            dim = group["fields"][name].attrs["datacheck"]["dim"]
            stored = rows(group, name, i) if dim else group["fields"][name][i]
            assert np.array_equal(stored, value), (key, name)
            assert stored.dtype == value.dtype


def test_a_folder_that_no_schema_knows(tmp_path):
    """The schema `files`: nothing is declared, so the builder looks itself; what is not like the rest is not made."""
    data = tmp_path / "data"
    made = clouds(data, 6)
    np.save(data / "zz.npy", np.zeros((4, 5)))
    (built,) = build("files", data, tmp_path / "cache")
    group = zarr.open_group(built.path, mode="r")
    (name,) = group["fields"].array_keys()
    assert group["samples/made"][:].tolist() == [True] * 6 + [False]
    assert built.not_made == [("zz.npy", f"{name}: shape [n, 5] does not fit [n, 3]")]
    assert np.array_equal(rows(group, name, 2), made["02.npy"])


def test_episodes_of_hdf5_with_text_and_names_with_slashes(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.Generator(np.random.Philox(2))
    with h5py.File(data / "a.hdf5", "w") as file:
        for n in (0, 1, 2, 10):
            demo = file.create_group(f"data/demo_{n}")
            demo["actions"] = rng.uniform(-1, 1, (n + 3, 7)).astype(np.float32)
            demo["obs/image"] = rng.integers(0, 255, (n + 3, 8, 8, 3)).astype(np.uint8)
            demo["task"] = "pick"
    fields = {
        "actions": {"role": "action", "shape": ["T", 7]},
        "obs/image": {"role": "image", "shape": ["T", "H", "W", 3]},
        "task": {"role": "text"},
    }
    schema = schema_of(
        fields, files="*.hdf5", samples={"each": "/data/demo_*"}, windows={"length": 3}
    )
    (built,) = build(schema, data, tmp_path / "cache")
    group = zarr.open_group(built.path, mode="r")
    # Bytewise: demo_10 stands before demo_2
    assert group["rows/T/length"][:].tolist() == [3, 4, 13, 5]
    assert bytes(rows(group, "task", 2)) == b"pick"
    assert group["fields/obs/image"].shape[1:] == (8, 8, 3)
    with h5py.File(data / "a.hdf5") as file:
        assert np.array_equal(rows(group, "obs/image", 2), file["data/demo_10/obs/image"][:])


def test_a_cache_per_split_with_its_own_schema(tmp_path):
    for name, shape in (("train", (21, 3)), ("evaluation", (3,))):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        for i in range(4):
            np.savez(folder / f"{i}.npz", joints=np.full(shape, i / 10, np.float32))
    schema = Schema.model_validate(
        {
            "datacheck": 1,
            "name": "hands",
            "samples": {"files": "{split}/*.npz"},
            "fields": {"joints": {"shape": [21, 3]}},
            "when": {"split=evaluation": {"joints": {"shape": [3]}}},
        }
    )
    run = run_scan(schema, Request(tmp_path / "data", output=tmp_path / "scan"))
    caches = build(schema, tmp_path / "data", tmp_path / "cache", run=run)
    assert [one.path.parent.relative_to(tmp_path / "cache").as_posix() for one in caches] == [
        "hands/evaluation",
        "hands/train",
    ]
    shapes = [zarr.open_group(one.path, mode="r")["fields/joints"].shape for one in caches]
    assert shapes == [(4, 3), (4, 21, 3)]
    (only,) = build(schema, tmp_path / "data", tmp_path / "other", split="train", run=run)
    assert only.split == "train"
    with pytest.raises(UsageError, match=r"no split 'trian'.*Did you mean 'train'"):
        build(schema, tmp_path / "data", tmp_path / "other", split="trian", run=run)


def test_a_folder_that_cannot_be_listed_stops_no_other_split_and_is_named(tmp_path, monkeypatch):
    for split in ("train", "val"):
        (tmp_path / "data" / split).mkdir(parents=True)
        np.save(tmp_path / f"data/{split}/0.npy", np.zeros((4, 3), np.float32))
    monkeypatch.setattr("datacheck.sources.listing.DEPTH", 0)
    (tmp_path / "data/deep.zarr/a/b").mkdir(parents=True)
    (tmp_path / "data/deep.zarr/.zgroup").write_text("{}")
    fields = {"points": {"shape": ["P", 3], "at": "array"}}
    schema = Schema.model_validate(
        {"datacheck": 1, "name": "s", "samples": {"files": "{split}/{id}.npy"}, "fields": fields}
    )
    run = run_scan(schema, Request(tmp_path / "data", output=tmp_path / "scan"))
    made = build(schema, tmp_path / "data", tmp_path / "caches", run=run)
    assert [one.split for one in made] == ["train", "val"]
    assert made[0].unlisted == [("deep.zarr", "a/b in it is more than 0 folders deep")]
    assert list(_unlisted_lines(made[0].unlisted)) == [
        "These folders could not be listed; their samples are in no cache:",
        "    deep.zarr: a/b in it is more than 0 folders deep",
    ]


def test_a_new_threshold_is_a_new_cache_and_a_new_file_too(tmp_path):
    data = tmp_path / "data"
    clouds(data)
    schema = schema_of(POINTS, files="*.npy")
    strict = schema_of({"points": POINTS["points"] | {"size": "5..10"}}, files="*.npy")
    (first,) = build(schema, data, tmp_path / "cache")
    (again,) = build(schema, data, tmp_path / "cache")
    assert (again.path, again.reused) == (first.path, True)
    (other,) = build(strict, data, tmp_path / "cache")
    assert other.path != first.path
    assert (first.valid, other.valid, other.made) == (12, 0, 12)
    assert tree(other.path)["fields/points/c.0.0"] == tree(first.path)["fields/points/c.0.0"]
    np.save(data / "zz.npy", np.ones((40, 3), np.float32))
    (more,) = build(schema, data, tmp_path / "cache")
    assert more.samples == 13
    assert more.path != first.path


def test_a_crashed_rule_stops_the_build(tmp_path, ran):
    data = tmp_path / "data"
    clouds(data)
    schema = schema_of(POINTS, files="*.npy")
    run = run_scan(schema, Request(data, output=tmp_path / "scan"))
    verdict = run.report.verdicts[0]
    run.report.verdicts[0] = RuleVerdict(
        verdict.code, verdict.name, Verdict.CRASH, verdict.severity, verdict.level
    )
    with pytest.raises(DatacheckError, match=f"rule {verdict.code} crashed"):
        build(schema, data, tmp_path / "cache", run=run)
    assert not (tmp_path / "cache").exists()


# ------------------------------------------------------------------------------------- command line


def command(*words, before=""):
    """Start a build in a new process, which a test may interrupt."""
    code = f"{before}from datacheck.cli.main import main; main()"
    line = [sys.executable, "-c", code, "cache", "build", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture
def ran(capsys):
    """Run a build by the command line in this process; return exit code, output and errors."""

    def called(*words):
        code = cli.run(["cache", "build", *map(str, words)])
        said, errors = capsys.readouterr()
        assert "Traceback" not in errors
        return code, said, errors

    return called


PIPELINE = """\
datacheck: 1
name: mine
schema: clouds.yaml
transforms:
  - center: {field: points, at: centroid}
  - steps:nudged
"""
CLOUDS = (
    "datacheck: 1\nname: clouds\nsamples: {files: '*.npy'}\nfields: {points: {role: points, "
    "shape: [P, 3]}}\n"
)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "clouds.yaml").write_text(CLOUDS)
    (tmp_path / "mine.yaml").write_text(PIPELINE)
    (tmp_path / "steps.py").write_text("def nudged(sample):\n    return {**sample.fields}\n")
    return clouds(tmp_path / "data")


def test_the_command_builds_and_says_so(tmp_path, project, ran):
    code, said, errors = ran("mine.yaml", "--data", "data", "--out", "cache")
    assert (code, errors) == (0, "")
    assert "12 samples: 12 valid, 0 invalid, 0 not made" in said
    (folder,) = (tmp_path / "cache/mine/all").iterdir()
    assert said.startswith(f"cache/mine/all/{folder.name}\n")
    values = rows(zarr.open_group(folder, mode="r"), "points", 0)
    wanted = project["00.npy"] - project["00.npy"].astype(np.float64).mean(0)
    assert np.allclose(values, wanted, atol=1e-6)
    assert "built before" in ran("mine.yaml", "--data", "data", "--out", "cache")[1]


def test_fit_samples_that_no_cache_holds_are_named_and_are_no_success(tmp_path, ran):
    """Of 200 pictures a cache held 25, since the others had other widths; the build ended with 0."""
    (tmp_path / "pictures.yaml").write_text(
        "datacheck: 1\nname: pictures\nsamples: {files: 'data/*.npy'}\nfields: {image: {role: "
        "image}}\n"
    )
    (tmp_path / "data").mkdir()
    for i, (height, width) in enumerate([(9, 8), (7, 8), (9, 8), (9, 6), (8, 5)]):
        pixels = (
            np.random.Generator(np.random.Philox(i))
            .integers(0, 255, (height, width, 3))
            .astype(np.uint8)
        )
        np.save(tmp_path / f"data/{i}.npy", pixels)
    words = ("pictures.yaml", "--data", ".", "--out", "cache")
    for _ in range(2):  # the second finds it built
        code, said, errors = ran(*words)
        assert (code, errors) == (1, "")
        assert (
            said.splitlines()[1]
            .strip()
            .startswith("2 samples that passed the scan cannot be stored in this cache, ")
        )
        assert "which holds image as [n, 8, 3] only." in said
        assert (
            "transforms: [{steps:resized: {fields: {image: {shape: [...], dtype: ...}}}}]" in said
        )
        assert "5 samples: 3 valid, 0 invalid, 2 not made" in said
    assert ran(*words, "--allow-missing", "1")[0] == 1
    assert ran(*words, "--allow-missing", "2")[0] == 0
    (tmp_path / "sized.yaml").write_text(
        "datacheck: 1\nname: sized\nschema: pictures.yaml\ntransforms:\n"
        "  - steps:resized: {fields: {image: {shape: [5, 5, 3], dtype: uint8}}}\n"
    )
    (tmp_path / "steps.py").write_text(
        "def resized(sample):\n    return {**sample.fields, 'image': sample.fields['image'][:5, "
        ":5]}\n"
    )
    code, said, errors = ran("sized.yaml", *words[1:])
    assert (code, errors) == (0, "")
    assert "5 samples: 5 valid" in said


def test_samples_that_a_step_refuses_for_another_reason_are_not_said_to_have_other_sizes(
    tmp_path, ran
):
    """A step changes the rows of all: one that it refused was called of a size that no cache holds."""
    (tmp_path / "clouds.yaml").write_text(
        "datacheck: 1\nname: clouds\nsamples: {files: 'data/*.npy'}\nfields: {points: {role: "
        "points, shape: [P, 3]}}\n"
    )
    (tmp_path / "data").mkdir()
    for i in range(12):
        rng = np.random.Generator(np.random.Philox(i))
        points = rng.uniform(0, 1, (70 + i, 3)).astype(np.float32) * (1e6 if i == 4 else 1)
        np.save(tmp_path / f"data/{i}.npy", points)
    (tmp_path / "small.yaml").write_text(
        "datacheck: 1\nname: small\nschema: clouds.yaml\ntransforms:\n"
        "  - sample_points: {points: points, n: 64}\n  - cast: {fields: [points], to: float16}\n"
    )
    code, said, errors = ran("small.yaml", "--data", ".", "--out", "cache")
    assert (code, errors) == (0, "")
    assert "that passed the scan" not in said
    assert "values do not fit float16" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["mine.yaml"], 2, "does not say where the data are"),
        (["mine.yaml", "--data", "nowhere"], 2, "nowhere"),
        (["nothing", "--data", "data"], 2, "no pipeline or schema is called 'nothing'"),
        (["mine.yaml", "--data", "data", "--split", "train"], 2, "no split 'train'"),
        (["mine.yaml", "--data", "data", "--out", "data/00.npy"], 3, "00.npy"),
        (["mine.yaml", "--data", "data", "--root", "x"], 2, "NAME=DIR"),
    ],
)
def test_bad_requests_end_in_one_message(project, words, code, said, ran):
    returned, _, errors = ran(*words)
    assert (returned, said in errors) == (code, True), errors
    assert len(errors.strip().splitlines()) == 1


def test_a_function_that_fails_ends_in_one_message(tmp_path, project, ran):
    (tmp_path / "steps.py").write_text("def nudged(sample):\n    return 1 / 0\n")
    code, _, errors = ran("mine.yaml", "--data", "data", "--out", "cache")
    assert code == 2
    assert "steps:nudged: ZeroDivisionError: division by zero (at sample 00.npy)" in errors
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    ("number", "code", "more"),
    [
        (signal.SIGINT, 130, []),
        (signal.SIGTERM, 143, []),
        pytest.param(signal.SIGINT, 130, ["--workers", "2"], marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_leaves_nothing(tmp_path, project, number, code, more):
    (tmp_path / "steps.py").write_text(
        "import pathlib, time\ndef nudged(sample):\n"
        "    pathlib.Path('busy').touch()\n    time.sleep(5)\n    return sample.fields\n"
    )
    process = command("mine.yaml", "--data", "data", "--out", "cache", *more)
    end = time.monotonic() + 800
    while not (tmp_path / "busy").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=800)
    assert process.returncode == code
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert not list((tmp_path / "cache").rglob(".building"))


@pytest.mark.parametrize(
    ("number", "code", "more"),
    [
        (signal.SIGINT, 130, []),
        (signal.SIGTERM, 143, []),
        pytest.param(signal.SIGTERM, 143, ["--workers", "2"], marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_goes_on(tmp_path, project, number, code, more, ran, monkeypatch):
    (tmp_path / "steps.py").write_text(
        "import pathlib, time\ndef nudged(sample):\n    calls = pathlib.Path('calls')\n"
        "    with calls.open('a') as file:\n        file.write('.')\n"
        "    while pathlib.Path('wait').exists() and calls.stat().st_size > 5:\n        "
        "time.sleep(0.01)\n"
        "    return sample.fields\n"
    )
    (tmp_path / "wait").touch()
    request = ["mine.yaml", "--data", "data", "--out", "cache", *more]
    small = (
        "from datacheck.build import plan; from datacheck.cache import layout; layout.SHARD_BYTES "
        "= plan.SOURCE_BYTES = 9; "
    )
    process = command(*request, before=small)
    end = time.monotonic() + 800
    while (
        not ((tmp_path / "calls").exists() and (tmp_path / "calls").stat().st_size > 5)
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=800)
    said = re.fullmatch(
        r"datacheck: interrupted\. (\d) shards are done and kept: the same command goes on\.\n",
        errors,
    )
    assert (process.returncode, said is not None) == (code, True), errors
    (tmp_path / "wait").unlink()
    monkeypatch.setattr(layout, "SHARD_BYTES", 9)
    monkeypatch.setattr(plan, "SOURCE_BYTES", 9)
    returned, output, errors = ran(*request)
    assert (returned, errors) == (0, "")
    kept = int(re.search(r"(\d) shards kept from an unfinished build", output)[1])
    assert kept >= int(said[1]) >= 4
    (again,) = (tmp_path / "cache/mine/all").iterdir()
    assert ran("mine.yaml", "--data", "data", "--out", "golden")[0] == 0
    assert tree(again) == tree(next((tmp_path / "golden/mine/all").iterdir()))


def test_files_that_no_scan_reads_whole_are_hashed_once(tmp_path, monkeypatch):
    """Of pictures a scan reads the headers, so a build has to take their digests: not again for the next one."""
    monkeypatch.setattr(scanned_dataset, "SMALL", 0)
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.Generator(np.random.Philox(4))
    for i in range(5):
        Image.fromarray(rng.integers(0, 255, (6, 8, 3), np.uint8)).save(data / f"{i}.png")
        (data / f"{i}.json").write_text(json.dumps({"score": i}))
    fields = {
        "rgb": {"role": "image", "file": "{id}.png", "shape": [6, 8, 3]},
        "score": {"role": "value", "range": "0..9"},
    }
    hashed = []
    real = source_digests.digest_entry
    monkeypatch.setattr(
        source_digests,
        "digest_entry",
        lambda root, path, roots: hashed.append(path) or real(root, path, roots),
    )
    for path in data.iterdir():
        os.utime(path, (1e9, 1e9))  # long ago: a file that was just written may be written again
    (first,) = build(schema_of(fields, files="{id}.json"), data, tmp_path / "cache")
    assert hashed == [f"{i}.png" for i in range(5)]
    hashed.clear()
    Image.fromarray(rng.integers(0, 255, (6, 8, 3), np.uint8)).save(data / "2.png")
    os.utime(data / "2.png", (1.1e9, 1.1e9))
    fields["score"]["range"] = "0..8"
    (second,) = build(schema_of(fields, files="{id}.json"), data, tmp_path / "cache")
    assert hashed == ["2.png"]
    (fresh,) = build(schema_of(fields, files="{id}.json"), data, tmp_path / "fresh", reuse=False)
    assert tree(second.path) == tree(fresh.path)
    hashed.clear()
    said = json.loads((second.path / layout.BUILD).read_text())
    stamps = {path: [1, *stamp[1:]] for path, stamp in said["stamps"].items()} | {
        "4.png": "no stamp"
    }
    (second.path / layout.BUILD).unlink()
    (second.path / layout.BUILD).write_text(json.dumps(said | {"stamps": stamps}))
    build(schema_of(fields, files="{id}.json"), data, tmp_path / "cache")
    assert hashed == [f"{i}.png" for i in range(5)]  # what cannot be believed is read
    assert first.path != second.path


def test_a_field_of_one_vector_each_is_turned_in_every_sample_and_has_a_key_of_its_own(
    tmp_path, ran
):
    """Of each block the first sample alone was turned; caches of that time are not taken for equal ones."""
    (tmp_path / "data").mkdir()
    roots = np.random.Generator(np.random.Philox(3)).uniform(0.2, 1, (6, 3)).astype(np.float32)
    for i, vector in enumerate(roots):
        np.savez(tmp_path / f"data/{i}.npz", root=vector, points=np.full((4, 3), i, np.float32))
    (tmp_path / "s.yaml").write_text(
        "datacheck: 1\nname: s\nsamples: {files: 'data/*.npz'}\n"
        "fields: {root: {role: position, shape: [3]}, points: {role: value, shape: [4, 3]}}\n"
    )
    said = {}
    for field in ("root", "points"):
        (tmp_path / f"{field}.yaml").write_text(
            f"datacheck: 1\nname: {field}\nschema: s.yaml\ntransforms: [camera: {{fields: {field}, "
            f"to: opencv}}]\n"
        )
        code, out, errors = ran(f"{field}.yaml", "--data", ".", "--out", "cache", "--check-all")
        assert (code, errors) == (0, "")
        cache = open_cache(out.splitlines()[0].split()[0])
        (said[field],) = json.loads(Path(cache.path, "inputs.json").read_bytes())["said"][
            "transforms"
        ]
        if field == "root":
            assert np.array_equal(
                cache.gather("root", np.arange(6)), roots * np.float32([1, -1, -1])
            )
    assert said["root"].get("vectors") == 2
    assert "vectors" not in said["points"]


def test_a_cache_without_a_valid_sample_is_no_success(tmp_path, ran):
    """A build whose scan found every sample invalid ended with exit code 0."""
    (tmp_path / "clouds.yaml").write_text(
        "datacheck: 1\nname: clouds\nsamples: {files: 'data/*.npy'}\nfields: {points: {role: "
        "points}}\n"
    )
    (tmp_path / "data").mkdir()
    for i in range(3):
        np.save(tmp_path / f"data/{i}.npy", np.full((50, 3), np.nan, np.float32))
    words = ("clouds.yaml", "--data", ".", "--out", "cache")
    for _ in range(2):  # the second finds it built
        code, said, errors = ran(*words)
        assert (code, errors) == (1, "")
        assert "3 samples: 0 valid, 3 invalid, 0 not made" in said
        assert "No sample is valid, so a training can read nothing from this cache." in said
    rng = np.random.Generator(np.random.Philox(1))
    np.save(tmp_path / "data/0.npy", rng.uniform(-1, 1, (50, 3)).astype(np.float32))
    code, said, _ = ran(*words)
    assert code == 0
    assert "No sample is valid" not in said
