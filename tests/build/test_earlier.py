"""A rebuild takes from an earlier cache what must be equal, and its bytes are those of a build from nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.build import builder
from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.cache.codec import Codec
from datacheck.cache.verify import verify
from datacheck.cli.main import run
from datacheck.model.row_keys import keys_from_runs
from tests.build.make import job_of, schema_of
from tests.build.rebuild import (
    CAST,
    FIELDS,
    agree,
    dataset,
    flip,
    job,
    read,
    rebuilt,
    shards,
    small,
    write,
)


@pytest.fixture
def orders(monkeypatch):
    return small(monkeypatch)


# ----------------------------------------------------------------------------------------- any edit

EDITS = st.one_of(
    st.tuples(
        st.sampled_from(["change", "remove", "add", "rename"]),
        st.integers(0, 40),
        st.integers(0, 400),
    ),
    st.tuples(st.just("judge"), st.sets(st.integers(0, 40), max_size=4), st.just(0)),
    st.tuples(st.just("codec"), st.sampled_from(["none", "zstd:1"]), st.just(0)),
    st.tuples(st.just("steps"), st.booleans(), st.just(0)),
)


@settings(max_examples=15)
@given(
    count=st.integers(1, 16),
    steps=st.lists(st.lists(EDITS, min_size=1, max_size=3), min_size=1, max_size=2),
)
def test_any_edit_gives_the_bytes_of_a_build_from_nothing(count, steps):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        small(patch)
        place = Path(folder)
        data, said = place / "data", {"invalid": {}, "codec": Codec(), "steps": [CAST]}
        dataset(data, count)

        def now():
            there = {key: codes for key, codes in said["invalid"].items() if (data / key).exists()}
            return replace(job(data, said["steps"], invalid=there), codec=said["codec"])

        if build_cache_or_none(now(), place / "out") is None:
            return
        for edits in steps:
            for edit in edits:
                apply(edit, data, said)
            made = now()
            if (
                made.samples.readable.any()
                and build_cache_or_none(made, place / "fresh") is not None
            ):
                assert verify(rebuilt(made, place).path) == []


def build_cache_or_none(job, out):
    """Build, where any sample can be made."""
    if not job.samples.readable.any():
        return None
    try:
        return build_cache(job, out)
    except builder.UsageError:
        return None


def apply(edit, data, said):
    what, which, seed = edit
    names = sorted(path.name for path in data.iterdir())
    if what == "judge":
        said["invalid"] = {f"{i:03d}.npz": ("DC201",) for i in which}
    elif what == "codec":
        said["codec"] = Codec.parse(which)
    elif what == "steps":
        said["steps"] = [CAST] if which else []
    elif what == "add":
        write(data, f"{which:03d}{seed % 3}.npz", seed)
    elif what == "change":
        write(data, names[which % len(names)], seed)
    elif what == "rename":
        (data / names[which % len(names)]).rename(data / f"{seed:03d}r.npz")
    elif len(names) > 1:
        (data / names[which % len(names)]).unlink()


# ----------------------------------------------------------------------------------- what is reused


def test_a_changed_file_costs_its_shard_and_nothing_else(tmp_path, orders):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    assert first.reuse is None
    write(tmp_path / "data", "013.npz", 1013)
    changed = job(tmp_path / "data")
    orders.clear()
    second = build_cache(changed, tmp_path / "out")
    assert read(orders) == ["013.npz"]
    (order,) = orders
    names = {f"{path}" for path in shards(second.path)}
    same = {
        n
        for n in names
        if shards(first.path)[n].stat().st_ino == shards(second.path)[n].stat().st_ino
    }
    count = len({n for n in names if n.startswith("fields/score/")})
    assert count == 8
    assert {int(n.split("/c.")[1].split(".")[0]) for n in names - same} == {order["g"]}
    reuse = second.reuse
    assert (reuse.path, reuse.linked, reuse.copied, reuse.lost) == (
        first.path,
        count - 1,
        len(order["keys"]) - 1,
        [],
    )
    agree(second, build_cache(changed, tmp_path / "fresh"))


def test_a_new_verdict_links_every_shard(tmp_path, orders):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    orders.clear()
    second = rebuilt(
        job(tmp_path / "data", invalid={"001.npz": ("DC221",), "008.npz": ("DC221",)}), tmp_path
    )
    assert second.path != first.path
    assert {n: p.stat().st_ino for n, p in shards(second.path).items()} == {
        n: p.stat().st_ino for n, p in shards(first.path).items()
    }
    assert second.valid == first.valid - 2


@pytest.mark.parametrize("name", ["0000.npz", "zzz.npz"])
def test_an_added_file_moves_samples_that_are_copied_and_not_read(tmp_path, orders, name):
    dataset(tmp_path / "data")
    build_cache(job(tmp_path / "data"), tmp_path / "out")
    write(tmp_path / "data", name, 2)
    orders.clear()
    second = build_cache(job(tmp_path / "data"), tmp_path / "out")
    assert read(orders) == [name]
    linked = second.reuse.linked
    assert (linked == 0) == (name < "001.npz")  # what lies before the new one stays where it is
    agree(second, build_cache(job(tmp_path / "data"), tmp_path / "fresh"))


def test_a_renamed_file_is_another_sample(tmp_path, orders):
    """A transform may depend on the key."""
    dataset(tmp_path / "data")
    steps = [{"sample_points": {"points": "cloud", "n": 8, "along": ["near"]}}]
    build_cache(job(tmp_path / "data", steps), tmp_path / "out")
    (tmp_path / "data/013.npz").rename(tmp_path / "data/0130.npz")
    orders.clear()
    one = build_cache(job(tmp_path / "data", steps), tmp_path / "out")
    assert read(orders) == ["0130.npz"]
    agree(one, build_cache(job(tmp_path / "data", steps), tmp_path / "fresh"))


def test_a_changed_file_of_many_samples_is_read_for_all_of_them(tmp_path, orders):
    data = tmp_path / "data"
    data.mkdir()
    for name in "abc":
        lines(data / f"{name}.jsonl", name, 100)
    schema = schema_of(
        {"text": {"role": "text"}, "turns": {"role": "chat"}},
        files="*.jsonl",
        samples={"each": "line"},
    )
    build_cache(job_of(schema, data), tmp_path / "out")
    lines(data / "b.jsonl", "b", 104, changed=7)
    orders.clear()
    one = build_cache(job_of(schema, data), tmp_path / "out")
    keys = {order["g"]: keys_from_runs(order["keys"]) for order in orders}
    assert read(orders) == [f"b.jsonl:{i:012d}" for i in range(104)]
    assert (
        one.reuse.copied
        == sum(not key.startswith("b") for some in keys.values() for key in some)
        > 0
    )
    assert one.reuse.linked > 0
    agree(one, build_cache(job_of(schema, data), tmp_path / "fresh"))


def lines(path, name, count, changed=-1):
    records = [
        {"text": f"{name} {i} " + "ü" * (i % 9), "turns": [{"x": i / 3, "e": 1e-7}] * (i % 4)}
        for i in range(count)
    ]
    if changed >= 0:
        records[changed]["text"] = "another"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_companion_that_comes_changes_or_goes_is_told(tmp_path, orders):
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.Generator(np.random.Philox(3))
    for folder in (data / "x", data / "m"):
        folder.mkdir()
        for i in range(12):
            np.save(folder / f"{i:02d}.npy", rng.standard_normal((20, 3)))
    (data / "m/04.npy").unlink()
    fields = {
        "x": {"role": "points", "shape": ["P", 3], "at": "."},
        "m": {"role": "points", "shape": ["P", 3], "file": "m/{stem}.npy", "optional": True},
    }
    schema = schema_of(fields, files="x/{stem}.npy")
    build_cache(job_of(schema, data), tmp_path / "out")
    shutil.copy(data / "m/03.npy", data / "m/04.npy")
    shutil.copy(data / "m/03.npy", data / "m/07.npy")
    (data / "m/09.npy").unlink()
    orders.clear()
    one = build_cache(job_of(schema, data), tmp_path / "out")
    assert read(orders) == ["x/04.npy", "x/07.npy", "x/09.npy"]
    agree(one, build_cache(job_of(schema, data), tmp_path / "fresh"))


def test_a_function_of_blocks_is_reused_by_whole_shards_only(tmp_path, orders):
    """It may look at the neighbours of a sample, and in a mixed shard these would be others."""
    (tmp_path / "beside.py").write_text(BESIDE)
    dataset(tmp_path / "data")
    steps = [CAST, "beside:beside"]
    first = build_cache(job(tmp_path / "data", steps, paths=[str(tmp_path)]), tmp_path / "out")
    write(tmp_path / "data", "013.npz", 1016)
    orders.clear()
    changed = job(tmp_path / "data", steps, paths=[str(tmp_path)])
    second = build_cache(changed, tmp_path / "out")
    assert read(orders) == ["012.npz", "013.npz", "014.npz", "015.npz"]
    assert (second.reuse.path, second.reuse.linked, second.reuse.copied) == (
        first.path,
        second.shards - 1,
        0,
    )
    agree(second, build_cache(changed, tmp_path / "fresh"))


BESIDE = """
from dataclasses import replace
from datacheck.model.sample import Block
from datacheck.model.sample import Column
def beside(block: Block):
    score = block.fields["score"]
    return replace(block, fields={**block.fields, "score": Column(score.values - score.values.mean(dtype="float32"))})
"""


# ----------------------------------------------------------------------------- which cache is asked


def test_the_newest_cache_of_the_recipe_is_asked_and_others_are_not(tmp_path, orders):
    dataset(tmp_path / "data")
    out = tmp_path / "out"
    older = build_cache(job(tmp_path / "data"), out).path
    newer = build_cache(job(tmp_path / "data", invalid={"001.npz": ("DC201",)}), out).path
    build_cache(job(tmp_path / "data", []), out)  # another recipe, newest of all
    packed = replace(job(tmp_path / "data"), codec=Codec("zstd"))
    assert build_cache(packed, out).reuse is None
    asked = job(tmp_path / "data", invalid={"002.npz": ("DC201",)})
    assert build_cache(asked, out).reuse.path == newer != older
    (newer / layout.BUILD).write_text(
        json.dumps({"not_made": {}, "numerics": "of another machine"})
    )
    asked = job(tmp_path / "data", invalid={"004.npz": ("DC201",)})
    os.utime(newer, (2e9, 2e9))
    assert build_cache(asked, out).reuse.path not in {newer, older}


def test_nothing_is_taken_where_that_is_asked(tmp_path, orders):
    dataset(tmp_path / "data", 12)
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    orders.clear()
    asked = job(tmp_path / "data", invalid={"001.npz": ("DC201",)})
    second = build_cache(asked, tmp_path / "out", reuse=False)
    assert second.reuse is None
    assert len(orders) == second.shards
    assert all(
        p.stat().st_ino != shards(first.path)[n].stat().st_ino
        for n, p in shards(second.path).items()
    )


def test_caches_of_another_format_or_of_other_values_are_not_asked(tmp_path, orders, monkeypatch):
    dataset(tmp_path / "data", 12)
    path = build_cache(job(tmp_path / "data"), tmp_path / "out").path
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datacheck.build.fingerprint.VALUES", 99)
        assert build_cache(job(tmp_path / "data"), tmp_path / "out").reuse is None
    monkeypatch.setattr(layout, "FORMAT", 0)  # those that are there are of a newer one
    assert (
        build_cache(job(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out").reuse
        is None
    )
    assert path.exists()


@pytest.mark.parametrize(
    "name",
    [
        layout.MANIFEST,
        layout.INPUTS,
        layout.SOURCES,
        layout.FINDINGS,
        "samples/made/c.0",
        "rows/P/length/c.0",
    ],
)
def test_a_cache_whose_tables_are_damaged_is_passed_over(tmp_path, orders, name):
    dataset(tmp_path / "data", 12)
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    flip(first.path / name)
    asked = job(tmp_path / "data", invalid={"001.npz": ("DC201",)})
    second = build_cache(asked, tmp_path / "out")
    assert second.reuse is None
    agree(second, build_cache(asked, tmp_path / "fresh"))


def test_without_a_reason_a_sample_that_was_refused_is_tried_again(tmp_path, orders):
    dataset(tmp_path / "data")
    first = build_cache(job(tmp_path / "data"), tmp_path / "out")
    refused = [key for key, _ in first.not_made]
    assert refused == ["003.npz", "010.npz", "017.npz", "024.npz"]
    (first.path / layout.BUILD).unlink()
    orders.clear()
    second = build_cache(job(tmp_path / "data", invalid={"001.npz": ("DC201",)}), tmp_path / "out")
    assert read(orders) == refused
    assert second.not_made == first.not_made


# ------------------------------------------------------------------------------------- what is said


def test_the_command_says_what_was_taken(tmp_path, orders, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    for i in range(12):
        write(data, f"{i:02d}.npz", 1 + 22 * i)
    schema = tmp_path / "tiny.yaml"
    schema.write_text(
        json.dumps(
            {"datacheck": 1, "name": "tiny", "samples": {"files": "*.npz"}, "fields": FIELDS}
        )
    )
    command = ["cache", "build", str(schema), "--data", str(data), "--out", "out"]
    assert run(command) == 0
    assert "shards linked from" not in capsys.readouterr().out
    (first,) = (tmp_path / "out/tiny/all").glob("*/")
    write(data, "070.npz", 9)
    assert run(command) == 0
    said = capsys.readouterr().out
    assert f" shards linked from {first.relative_to(tmp_path)}; " in said
    assert "samples of other shards copied" in said
    (data / "00.npz").unlink()
    assert run([*command, "--no-reuse"]) == 0
    assert "shards linked from" not in capsys.readouterr().out
