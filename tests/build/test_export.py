"""Caches for other loaders: what the cache holds, in layouts that others read; equal bytes of equal caches."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.build import export as exporting
from datacheck.build.export import export, file_name
from datacheck.build.export import samples as samples_of
from datacheck.cache import Cache, open_cache
from datacheck.cache.codec import Codec
from datacheck.cache.reader import blocks
from datacheck.errors import CorruptionError, OutOfSpaceError, StorageError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.pipeline import build
from datacheck.runtime import fsops
from datacheck.runtime.fsops import System
from datacheck.testing.demonstrations import RobomimicSize, write_robomimic
from tests.build.make import schema_of
from tests.build.test_resume import KilledError, Killing, Refusing, edited
from tests.cache.make import HalfPair, make_cache
from tests.cache.test_hostile import rewritten, sealed

SPECS = {
    "actions": ArraySpec("float64", (2,), "T"),
    "obs/pose": ArraySpec("float32", (3,), "T"),
    "Label": ArraySpec("int16", ()),
    "label": ArraySpec("bool", (2,)),
    "mask.near": ArraySpec("float16", (2,), optional=True),
    "text": ArraySpec("uint8", (), "fields.text", "text"),
    "more": ArraySpec("uint8", (), "fields.more", "json", optional=True),
}
KEYS = ["a.b/c.npz/0", "a.b/c.npz/1", "__x__/.hidden", "d/é 7/..", "d/%2E", "plain", "q", "r"]


def content(count):
    rng = np.random.Generator(np.random.Philox(6))
    found = []
    for i in range(count):
        rows = 0 if i == 6 else i + 1
        sample = {
            "actions": rng.standard_normal((rows, 2)),
            "obs/pose": rng.standard_normal((rows, 3)).astype(np.float32),
            "Label": np.int16(i),
            "label": np.array([i % 2 == 1, True]),
            "text": f"cloud {i} é\0" if i % 2 else "",
        }
        if i % 3:
            sample |= {
                "mask.near": rng.standard_normal(2).astype(np.float16),
                "more": {"n": [i, None, "x"]},
            }
        found.append(sample)
    return found


@pytest.fixture
def cache(tmp_path):
    """Eight samples: one is not valid (2), one could not be made (5), one has no steps (6)."""
    samples = content(8)
    order = sorted(range(8), key=lambda i: KEYS[i].encode())
    made, valid = np.arange(8) != 5, np.arange(8) != 2
    folder = make_cache(
        tmp_path / "out",
        SPECS,
        [samples[i] for i in order],
        keys=[KEYS[i] for i in order],
        made=made[order],
        valid=valid[order],
        k=2,
    )
    return folder, {KEYS[i]: samples[i] for i in order}


VALID = [key for i, key in enumerate(KEYS) if i not in {2, 5}]


def same(found, wanted):
    assert found.dtype == np.asarray(wanted).dtype
    assert found.shape == np.shape(wanted)
    assert found.tobytes() == np.asarray(wanted).tobytes()


def tree(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def about(folder):
    return json.loads((folder / "export.json").read_text())


# ---------------------------------------------------------------------------------------------- npz


def test_npz_holds_every_field_of_every_valid_sample(cache, tmp_path):
    folder, samples = cache
    done = export(folder, tmp_path / "to", "npz")
    assert done.left_out == {"not made": 1, "not valid": 1}
    assert (done.samples, done.files) == (6, 7)
    assert done.nbytes == sum(map(len, tree(done.path).values()))
    names = sorted(str(p.relative_to(done.path)) for p in done.path.rglob("*.npz") if p.is_file())
    assert sorted(unquote(name.removesuffix(".npz")) for name in names) == sorted(VALID)
    for name in names:
        wanted = samples[unquote(name.removesuffix(".npz"))]
        with np.load(done.path / name, allow_pickle=False) as found:
            assert sorted(found) == sorted(wanted)
            for field in found:
                if field == "text":
                    assert found[field].tobytes().decode() == wanted[field]
                elif field == "more":
                    assert json.loads(found[field].tobytes()) == wanted[field]
                else:
                    same(found[field], wanted[field])


def test_two_keys_that_are_one_file_are_refused(tmp_path, monkeypatch):
    folder = make_cache(
        tmp_path / "c", {"x": ArraySpec("int8", ())}, [{"x": np.int8(1)}] * 2, keys=["A", "a"]
    )
    # As a Mac's disk does it
    monkeypatch.setattr(exporting, "_name", lambda key: key.lower() + ".npz")
    with pytest.raises(UsageError, match="another sample has the same file name"):
        export(folder, tmp_path / "to", "npz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c"]


@pytest.mark.parametrize("key", ["export.json/0", "a.npz/export.json/x", "export.json"])
def test_a_folder_of_samples_may_be_called_as_what_lies_beside_them(tmp_path, key):
    folder = make_cache(
        tmp_path / "c", {"x": ArraySpec("int8", ())}, [{"x": np.int8(1)}], keys=[key]
    )
    done = export(folder, tmp_path / "to", "npz")
    (name,) = [str(p.relative_to(done.path)) for p in done.path.rglob("*.npz") if p.is_file()]
    assert unquote(name.removesuffix(".npz")) == key
    assert about(done.path)["samples"] == 1


@pytest.mark.parametrize("key", ["a/" + "é" * 100, "a/" * 1700 + "b", "/".join(["é" * 25] * 38)])
def test_a_key_that_no_file_can_have_gets_another_name_that_is_told(tmp_path, key):
    folder = make_cache(
        tmp_path / "c",
        {"x": ArraySpec("int8", ())},
        [{"x": np.int8(i)} for i in (1, 2)],
        keys=[key, "b"],
    )
    done = export(folder, tmp_path / "to", "npz")
    assert done.samples == 2
    ((name, told),) = about(done.path)["names"]["renamed"].items()
    assert told == key
    assert np.load(done.path / name)["x"] == 1
    assert np.load(done.path / "b.npz")["x"] == 2
    assert export(folder, tmp_path / "tar", "webdataset").samples == 2


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["../../up"], "no safe name for the field '../../up'"),
        (["/up"], "no safe name for the field '\\x00/up'"),
        (["a/./b"], "no safe name for the field 'a/./b'"),
        (["more", "more.npy\0"], "no safe name for the field 'more.npy\\x00'"),
        (["a\nb"], "no safe name for the field 'a\\nb'"),
        (["..\\up"], r"no safe name for the field '..\\up'"),
        (["C:/up"], "no safe name for the field 'C:/up'"),
        (["more", "more.npy"], "the fields 'more' and 'more.npy' have one name"),
        (["more", "more.npy/x"], "the fields 'more' and 'more.npy/x' have one name"),
    ],
)
def test_a_field_whose_name_is_no_safe_member_is_refused(tmp_path, names, said):
    specs = {name: ArraySpec("int8", ()) for name in names}
    folder = make_cache(tmp_path / "c", specs, [dict.fromkeys(names, np.int8(1))])
    with pytest.raises(UsageError, match=re.escape(said)):
        export(folder, tmp_path / "to", "npz")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_other_names_of_fields_are_the_names_of_members(tmp_path):
    names = ["obs/rgb", "点云 1", "a..b", "...", ".x", "50%", "q: why?", "x.npy"]
    specs = {name: ArraySpec("int8", ()) for name in names}
    sample = {name: np.int8(i) for i, name in enumerate(names)}
    folder = make_cache(tmp_path / "c", specs, [sample], keys=["k"])
    export(folder, tmp_path / "to", "npz")
    with np.load(tmp_path / "to/k.npz") as found:
        assert {name: int(found[name]) for name in found} == {n: i for i, n in enumerate(names)}


# --------------------------------------------------------------------------------------- WebDataset


def read_as_webdataset(path):
    """Group the files of a tar as the webdataset package documents it: what is before the first dot is the key."""
    found = []
    with tarfile.open(path) as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.mode) == (
                0,
                0,
                0,
                "",
                0o644,
            )
            if re.match(r"__[^/]*__($|/)", member.name):
                continue  # taken for metadata
            key, suffix = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", member.name).groups()
            if not found or found[-1]["__key__"] != key:
                assert key not in [sample["__key__"] for sample in found]
                found.append({"__key__": key})
            assert suffix == suffix.lower()  # as which readers take it
            assert suffix not in found[-1]
            found[-1][suffix] = tar.extractfile(member).read()
    return found


def test_webdataset_tars_hold_every_field_under_names_that_it_splits_rightly(
    cache, tmp_path, monkeypatch
):
    folder, samples = cache
    monkeypatch.setattr(exporting, "SHARD_BYTES", 12_000)
    done = export(folder, tmp_path / "to", "webdataset")
    tars = sorted(done.path.glob("shard-*.tar"))
    assert len(tars) > 1
    found = [sample for tar in tars for sample in read_as_webdataset(tar)]
    assert [unquote(sample["__key__"]) for sample in found] == sorted(VALID, key=str.encode)
    names = about(done.path)["names"]["fields"]
    assert names == {
        "actions": "actions.npy",
        "obs/pose": "obs%2fpose.npy",
        "Label": "%4cabel.npy",
        "label": "label.npy",
        "mask.near": "mask.near.npy",
        "text": "text.txt",
        "more": "more.json",
    }
    for sample in found:
        wanted = samples[unquote(sample.pop("__key__"))]
        assert len(sample) == len(wanted)
        for field, value in wanted.items():
            raw = sample[names[field]]
            if field == "text":
                assert raw.decode() == value
            elif field == "more":
                assert json.loads(raw) == value
            else:
                same(np.load(io.BytesIO(raw), allow_pickle=False), value)
    assert all(tar.stat().st_size % tarfile.RECORDSIZE == 0 for tar in tars)


@given(st.text(max_size=12))
def test_names_are_plain_and_give_the_key_again(key):
    """A NUL alone stands for an empty part, which no listed file has."""
    for escaped, flat in (("", False), (".", False), ("ABC", True)):
        name = file_name(key, escaped, flat=flat)
        assert re.fullmatch(r"[A-Za-z0-9_.~ @+=,()\[\]%/-]+", name)
        assert not set(name.split("/")) & {"", ".", ".."}
        assert "." not in name or not escaped.startswith(".")
        back = "/".join(
            "" if part == "%00" else unquote(part, errors="surrogatepass")
            for part in name.split("/")
        )
        assert back == "/".join("" if part == "\0" else part for part in key.split("/"))


# ---------------------------------------------------------------------------------------- robomimic


def read_as_robomimic(path, obs, others, mask=None):
    """Make the accesses that robomimic's `SequenceDataset` makes when it loads a file into memory."""
    with h5py.File(path, "r", swmr=True, libver="latest") as file:
        demos = (
            file["data"]
            if mask is None
            else [name.decode("utf-8") for name in np.array(file[f"mask/{mask}"])]
        )
        found = {}
        for name in sorted(demos, key=lambda name: int(name[5:])):
            demo = file[f"data/{name}"]
            steps = demo.attrs["num_samples"]
            assert steps >= 1
            values = {key: file[f"data/{name}/obs/{key}"][()] for key in obs}
            values |= {key: demo[key][()].astype("float32") for key in others if key in demo}
            # It takes steps by number, up to the last
            assert {len(value) for value in values.values()} == {steps}
            found[demo.attrs["key"]] = values
        return found


def test_robomimic_finds_its_layout(cache, tmp_path):
    folder, samples = cache
    done = export(folder, tmp_path / "to", "robomimic")
    assert done.left_out == {"not made": 1, "not valid": 1, "empty": 1}
    keys = [key for key in sorted(VALID, key=str.encode) if key != KEYS[6]]
    for mask in (None, "train"):
        found = read_as_robomimic(done.path / "demo.hdf5", ["pose"], ["actions", "rewards"], mask)
        assert list(found) == keys
        for key, values in found.items():
            same(values["pose"], samples[key]["obs/pose"])
            same(values["actions"], samples[key]["actions"].astype(np.float32))
    with h5py.File(done.path / "demo.hdf5") as file:
        demos = sorted(file["data"], key=lambda name: int(name[5:]))
        assert json.loads(file["data"].attrs["env_args"]) == {}
        assert file["data"].attrs["total"] == sum(len(samples[key]["actions"]) for key in keys)
        for name, key in zip(demos, keys, strict=True):
            demo, wanted = file["data"][name], samples[key]
            assert sorted(demo) == sorted({field.split("/")[0] for field in wanted})
            for field in ("actions", "obs/pose", "Label", "label", "mask.near"):
                if field in wanted:
                    same(demo[field][()], wanted[field])
            assert demo["text"][()].tobytes().decode() == wanted["text"]


def test_robomimic_names_the_valid_ones_among_all(cache, tmp_path):
    folder, _ = cache
    done = export(folder, tmp_path / "to", "robomimic", invalid=True)
    assert done.left_out == {"not made": 1, "empty": 1}
    assert read_as_robomimic(done.path / "demo.hdf5", [], ["actions"]).keys() == {
        *VALID,
        KEYS[2],
    } - {KEYS[6]}
    assert read_as_robomimic(done.path / "demo.hdf5", [], ["actions"], "train").keys() == {
        *VALID
    } - {KEYS[6]}


def test_an_episode_without_actions_is_left_out_whatever_else_it_has(tmp_path):
    specs = {
        "actions": ArraySpec("float64", (2,), "T", optional=True),
        "obs/pose": ArraySpec("float32", (3,), "T"),
    }
    whole = {"actions": np.ones((2, 2)), "obs/pose": np.ones((2, 3))}
    folder = make_cache(
        tmp_path / "c", specs, [whole, {"obs/pose": np.ones((4, 3))}], keys=["a", "b"]
    )
    done = export(folder, tmp_path / "to", "robomimic")
    assert (done.samples, done.left_out) == (1, {"empty": 1})
    assert list(read_as_robomimic(done.path / "demo.hdf5", ["pose"], ["actions"], "train")) == ["a"]


def test_robomimic_comes_back_as_the_same_samples(tmp_path):
    write_robomimic(tmp_path / "data", 5, RobomimicSize(tasks=2, demos=4, steps=50))
    (first,) = build("robomimic", tmp_path / "data", tmp_path / "one")
    done = export(first.path, tmp_path / "to", "robomimic")
    (second,) = build("robomimic", tmp_path / "to", tmp_path / "two")
    one, two = open_cache(first.path), open_cache(second.path)
    assert one.usable.all()
    assert two.usable.all()
    with h5py.File(done.path / "demo.hdf5") as file:
        before = {f"demo.hdf5/{name}": demo.attrs["key"] for name, demo in file["data"].items()}
    digests = dict(
        zip(one.keys(range(len(one))), one.digests(range(len(one))).tolist(), strict=True)
    )
    again = dict(zip(two.keys(range(len(two))), two.digests(range(len(two))).tolist(), strict=True))
    names = {
        key: next(old for name, old in before.items() if name.split("/")[-1] == key.split("/")[-1])
        for key in again
    }
    assert len(set(names.values())) == len(digests) == 8
    assert {names[key]: digest for key, digest in again.items()} == digests


def test_webdataset_comes_back_as_the_same_samples(tmp_path):
    rng = np.random.Generator(np.random.Philox(8))
    specs = {"obs/points": ArraySpec("float32", (3,), "P"), "label": ArraySpec("int16", ())}
    values = [
        {"obs/points": rng.random((i + 1, 3), np.float32), "label": np.int16(i)} for i in range(5)
    ]
    first = make_cache(tmp_path / "one", specs, values, keys=[f"scan.{i}/a" for i in range(5)])
    names = about(export(first, tmp_path / "to", "webdataset").path)["names"]["fields"]
    fields = {
        "obs/points": {"at": names["obs/points"], "shape": ["P", 3]},
        "label": {"at": names["label"], "shape": []},
    }
    (second,) = build(
        schema_of(fields, files="*.tar", samples={"each": "key"}), tmp_path / "to", tmp_path / "two"
    )
    one, two = open_cache(first), open_cache(second.path)
    assert [
        unquote(key.removeprefix("shard-000000.tar:/")) for key in two.keys(range(5))
    ] == one.keys(range(5))
    assert two.digests(range(5)).tolist() == one.digests(range(5)).tolist()
    assert two.usable.all()


@pytest.mark.parametrize(
    "spec", [ArraySpec("float32", (7, 2)), ArraySpec("float32", (), "T"), None]
)
def test_what_holds_no_episodes_is_refused(tmp_path, spec):
    specs = {"x": ArraySpec("int8", ()), **({"actions": spec} if spec else {})}
    sample = {
        "x": np.int8(1),
        **({"actions": np.zeros((7, 2) if spec.dim is None else 3)} if spec else {}),
    }
    folder = make_cache(tmp_path / "c", specs, [sample])
    with pytest.raises(UsageError, match=r"robomimic needs a field actions .*; there are"):
        export(folder, tmp_path / "to", "robomimic")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("split", ["", ".", "/", "//", "a\0b", "\ud800"])
def test_a_split_that_hdf5_cannot_name_is_refused(tmp_path, split):
    specs = {"actions": ArraySpec("float32", (2,), "T")}
    folder = make_cache(tmp_path / "c", specs, [{"actions": np.ones((3, 2))}])
    rewritten(folder / "zarr.json", ("attributes", "datacheck", "split"), split)
    sealed(folder)
    with pytest.raises(UsageError, match="HDF5 has no name"):
        export(folder, tmp_path / "to", "robomimic")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("key", ["a\0b", "\0", "a\ud800b", "caf\udce9"])
def test_a_key_that_hdf5_cannot_hold_is_named_before_anything_is_written(
    tmp_path, monkeypatch, key
):
    monkeypatch.setattr(exporting, "_AT_ONCE", 1)
    specs = {"actions": ArraySpec("float32", (2,), "T")}
    samples = [{"actions": np.ones((3, 2))}] * 2
    folder = make_cache(
        tmp_path / "c", specs, samples, keys=["good", HalfPair(key)], valid=[True, False]
    )
    with pytest.raises(
        UsageError, match=f"HDF5 can hold no key {re.escape(repr(key))}. Choose another format"
    ):
        export(folder, tmp_path / "to", "robomimic", invalid=True)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    # What is left out is written nowhere
    assert export(folder, tmp_path / "valid", "robomimic").samples == 1
    for form in ("npz", "webdataset"):
        assert export(folder, tmp_path / form, form, invalid=True).samples == 2


@pytest.mark.parametrize("name", ["x/./y", ".", "a\0b"])
def test_a_field_that_hdf5_would_call_otherwise_is_refused(tmp_path, name):
    specs = {"actions": ArraySpec("float32", (2,), "T"), name: ArraySpec("int8", ())}
    folder = make_cache(tmp_path / "c", specs, [{"actions": np.ones((3, 2)), name: np.int8(1)}])
    with pytest.raises(UsageError, match="HDF5 has no name"):
        export(folder, tmp_path / "to", "robomimic")
    with pytest.raises(UsageError, match="npz has no safe name"):
        export(folder, tmp_path / "to", "npz")
    assert export(folder, tmp_path / "to", "webdataset").samples == 1


@pytest.mark.parametrize(("axes", "dim"), [(32, None), (33, None), (31, "T"), (32, "T")])
def test_a_field_of_more_axes_than_hdf5_has_is_refused(tmp_path, axes, dim):
    item = (1,) * axes
    specs = {"actions": ArraySpec("float32", (2,), "T"), "deep": ArraySpec("int8", item, dim)}
    deep = np.ones((3, *item) if dim else item, np.int8)
    folder = make_cache(tmp_path / "c", specs, [{"actions": np.ones((3, 2)), "deep": deep}])
    if axes + (dim is not None) > 32:
        with pytest.raises(UsageError, match="deep: HDF5 holds no array of more than 32 axes"):
            export(folder, tmp_path / "to", "robomimic")
        assert not (tmp_path / "to").exists()
        assert export(folder, tmp_path / "npz", "npz").samples == 1
    else:
        assert export(folder, tmp_path / "to", "robomimic").samples == 1


# ----------------------------------------------------------------------------------- of all formats

FORMATS = ["robomimic", "webdataset", "npz"]


@pytest.mark.parametrize("form", FORMATS)
def test_equal_caches_give_equal_bytes(cache, tmp_path, form, monkeypatch):
    folder, _ = cache
    one = export(folder, tmp_path / "one", form)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    mask = os.umask(0o077)
    try:
        two = export(folder, tmp_path / "two", form)
    finally:
        os.umask(mask)
        monkeypatch.undo()
        time.tzset()
    assert tree(one.path) == tree(two.path)
    said = about(one.path)
    assert said["cache"]["digest"] == open_cache(folder).manifest.digest
    assert (said["samples"], said["left_out"]) == (one.samples, one.left_out)


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_is_overwritten_and_nothing_half_written(cache, tmp_path, form):
    folder, _ = cache
    (tmp_path / "to").mkdir()
    (tmp_path / "to/mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("to", "file", "link"):
        with pytest.raises(UsageError, match="is there already, and nothing is overwritten"):
            export(folder, tmp_path / name, form)
    for number, (damaged, _) in enumerate([("fields/actions/c.3.0", 0), ("fields/text/c.3", 0)]):
        edited(folder / damaged, lambda raw: bytes([raw[0] ^ 1]) + raw[1:])
        with pytest.raises(CorruptionError):
            export(folder, tmp_path / f"new{number}", form)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link", "out", "to"]
    assert tree(tmp_path / "to") == {"mine": b"mine"}


def test_what_a_killed_export_left_goes_with_the_next_to_that_name(cache, tmp_path):
    folder, _ = cache
    to = tmp_path / "to.[x]"
    script = (
        "import os, sys\nfrom pathlib import Path\nimport datacheck.build.export as e\n"
        "e.new_folder.publish = lambda *_: (print('grown', flush=True), "
        "sys.stdin.read())\ne.export(*sys.argv[1:], 'npz')"
    )
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        running = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", script, folder, to], **pipes)
            )
            for _ in range(2)
        ]
        for one in running:
            stack.callback(one.kill)
            assert one.stdout.readline() == b"grown\n"
        names = [f".to.[x].{'g' * 32}.partial", f".tox.{'1' * 32}.partial", ".to.[x].partial"]
        kept = {tmp_path / name for name in names}
        for other in kept:
            other.mkdir()
        (linked := tmp_path / f".to.[x].{'2' * 32}.partial").symlink_to(names[0])
        kept.add(linked)
        growing = set(tmp_path.glob(".to*")) - kept
        assert len(growing) == 2
        (tmp_path / f".to.[x].{'3' * 32}.partial").mkdir()
        running[0].kill()
        running[0].wait()
        assert export(folder, to, "npz").samples == 6
        left = set(tmp_path.glob(".to*")) - kept
        assert len(left) == 1  # of the one that is at work
        assert left < growing
        running[1].stdin.close()
        running[1].wait()
        assert set(tmp_path.glob(".to*")) == kept


def test_an_export_whose_folder_another_takes_for_one_that_was_left_makes_another(
    cache, tmp_path, monkeypatch
):
    folder, _ = cache
    real, lost = fsops.hold, []

    def hold(path, *, shared):
        if path.name.endswith(".partial") and len(lost) < 2:
            lost.append(path)
            if len(lost) == 2:
                path.rmdir()
            else:
                return None
        return real(path, shared=shared)

    monkeypatch.setattr(fsops, "hold", hold)
    assert export(folder, tmp_path / "to", "npz").samples == 6
    assert len(set(lost)) == 2


def test_an_empty_folder_is_filled_and_one_that_comes_meanwhile_is_left(
    cache, tmp_path, monkeypatch
):
    folder, _ = cache
    (tmp_path / "to").mkdir()
    assert export(folder, tmp_path / "to", "npz").samples == 6
    real = fsops.rename

    def slow(source, target):
        target.mkdir()
        (target / "theirs").touch()
        real(source, target)

    monkeypatch.setattr(fsops, "rename", slow)
    with pytest.raises(UsageError, match="was created in the meantime"):
        export(folder, tmp_path / "late", "npz")
    assert tree(tmp_path / "late") == {"theirs": b""}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["late", "out", "to"]


def test_where_nothing_is_left_there_is_nothing_to_export(tmp_path):
    folder = make_cache(
        tmp_path / "c", {"x": ArraySpec("int8", ())}, [{"x": np.int8(1)}] * 3, valid=[False] * 3
    )
    with pytest.raises(UsageError, match=r"no sample is left to export \(3 not valid\)"):
        export(folder, tmp_path / "to", "npz")
    assert export(folder, tmp_path / "to", "npz", invalid=True).samples == 3


def test_a_sample_without_any_field_is_left_out(tmp_path):
    specs = {
        "x": ArraySpec("int8", (), optional=True),
        "t": ArraySpec("uint8", (), "fields.t", "text", optional=True),
    }
    folder = make_cache(tmp_path / "c", specs, [{"x": np.int8(1)}, {}, {"t": ""}])
    done = export(folder, tmp_path / "to", "webdataset")
    assert done.left_out == {"empty": 1}
    assert [sorted(s) for s in read_as_webdataset(done.path / "shard-000000.tar")] == [
        ["__key__", "x.npy"],
        ["__key__", "t.txt"],
    ]


def test_blocks_are_as_large_as_what_is_decoded(tmp_path, monkeypatch):
    specs = {"x": ArraySpec("uint8", (60_000,))}
    folder = make_cache(
        tmp_path / "c", specs, [{"x": np.zeros(60_000, np.uint8)}] * 3, k=2, codec=Codec("zstd")
    )
    monkeypatch.setattr("datacheck.build.export.blocks", partial(blocks, most=100_000))
    real, read = Cache.gather, []
    monkeypatch.setattr(
        Cache, "gather", lambda *given: read.append(real(*given).nbytes) or real(*given)
    )
    opened = open_cache(folder, verify="manifest")
    assert (
        [one.arrays["x"].nbytes for one in samples_of(opened, np.arange(3))] == read == [60_000] * 3
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_kill_at_any_call_leaves_no_folder_of_that_name(cache, tmp_path, form, monkeypatch):
    folder, _ = cache
    golden = tree(export(folder, tmp_path / "golden", form).path)
    counting = Killing(10**9)
    monkeypatch.setattr(fsops, "SYSTEM", counting)
    export(folder, tmp_path / "counted", form)
    for number in range(1, counting.calls + 1, max(1, counting.calls // 25)):
        to = tmp_path / str(number)
        monkeypatch.setattr(fsops, "SYSTEM", Killing(number))
        with pytest.raises(KilledError):
            export(folder, to, form)
        monkeypatch.setattr(fsops, "SYSTEM", System())
        assert not to.exists() or tree(to) == golden
        if not to.exists():
            assert tree(export(folder, to, form).path) == golden


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["create", "write", "write_at", "sync", "close", "rename"])
def test_a_full_or_failing_disk_is_one_typed_error_and_leaves_nothing(
    cache, tmp_path, form, kind, monkeypatch
):
    folder, _ = cache
    for number, code in ((0, errno.ENOSPC), (3, errno.EIO)):
        refusing = Refusing(kind, number, code)
        monkeypatch.setattr(fsops, "SYSTEM", refusing)
        raised = None
        try:
            export(folder, tmp_path / f"{number}", form)
        except StorageError as caught:
            raised = caught
        monkeypatch.setattr(fsops, "SYSTEM", System())
        assert (raised is None) == (refusing.left >= 0)
        assert (
            raised is None
            or kind == "sync"
            or isinstance(raised, OutOfSpaceError) == (code == errno.ENOSPC)
        )
        assert [p.name for p in tmp_path.glob(".*")] == []
        assert (tmp_path / f"{number}").exists() == (raised is None)


HDF5 = """
import sys
from pathlib import Path
from datacheck.runtime import fsops
from datacheck.build.export import export
from datacheck.errors import OutOfSpaceError
from tests.build.make import schema_of
from tests.build.test_resume import Refusing
import errno
for number in range(int(sys.argv[3])):
    fsops.SYSTEM = Refusing("write_at", number, errno.ENOSPC)
    try:
        export(sys.argv[1], Path(sys.argv[2], str(number)), "robomimic")
    except OutOfSpaceError:
        print("told", flush=True)
"""


def test_a_disk_that_is_full_at_any_write_does_not_kill_the_process(cache, tmp_path, repository):
    """HDF5 2.0 ends with a segmentation fault where it cannot write while it closes a file."""
    folder, _ = cache

    class Counting(System):
        calls = 0

        def write_at(self, descriptor, data, offset):
            Counting.calls += 1
            return super().write_at(descriptor, data, offset)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(fsops, "SYSTEM", Counting())
        export(folder, tmp_path / "counted", "robomimic")
    script = [sys.executable, "-c", HDF5, str(folder), str(tmp_path), str(Counting.calls)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(repository), *filter(None, sys.path)])
    }
    done = subprocess.run(script, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.split()) == (0, ["told"] * Counting.calls), done.stderr
    assert Counting.calls > 20


def test_the_file_of_robomimic_has_the_name_that_its_schema_looks_for():
    assert Path(exporting.FILE).suffix == ".hdf5"
    assert re.fullmatch(r"demo(?:_v\d+)?\.hdf5", exporting.FILE)
