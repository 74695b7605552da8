"""A step that does not give the same twice is found and named, and nothing of it is published; one that does passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from datacheck.build import check
from datacheck.build.builder import build_cache
from datacheck.build.trace import trace_steps
from datacheck.cache.codec import Codec
from datacheck.cli.main import run
from datacheck.errors import NondeterministicBuildError
from datacheck.runtime import hashing
from datacheck.workers.parallel import ordered_map
from tests.build.make import MIXED, job_of, mixed, schema_of, tree
from tests.golden import make as golden

STEPS = """
import random, threading, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from datacheck.model.sample import Block, Column
from datacheck.errors import InvalidSample


def clean(sample):
    return sample.fields

def by_chance(sample):
    return {**sample.fields, "score": sample.fields["score"] + random.random()}

def by_numpy(sample):
    return {**sample.fields, "score": sample.fields["score"] + np.float32(np.random.random())}

def by_the_clock(sample):
    return {**sample.fields, "score": np.float32(time.time_ns() % 1_000_003)}

def by_set(sample):
    names = {f"name {i}" for i in range(20)}
    return {**sample.fields, "score": np.float32([int(name[5:]) for name in names] @ np.arange(20))}

def by_hash(sample):
    return {**sample.fields, "score": np.float32(hash(sample.key) % 1_000_003)}

def by_address(sample):
    return {**sample.fields, "score": np.float32(id(sample) % 1_000_003)}

CALLS = 0
def by_counting(sample):
    global CALLS
    CALLS += 1
    return {**sample.fields, "score": np.float32(CALLS)}

LAST = np.float32(0)
def by_the_one_before(sample):
    global LAST
    before, LAST = LAST, sample.fields["score"]
    return {**sample.fields, "score": sample.fields["score"] - before}

def by_its_block(block: Block):
    column = block.fields["score"]
    return replace(block, fields={**block.fields, "score": Column(column.values - column.values.mean(), None)})

def by_threads(sample):
    order = []
    def wait(number):
        time.sleep(0.001)
        order.append(number)
    threads = [threading.Thread(target=wait, args=(number,)) for number in range(12)]
    [t.start() for t in threads], [t.join() for t in threads]
    return {**sample.fields, "score": np.float32(np.arange(12) @ np.array(order))}

def refusing(sample):
    global CALLS
    CALLS += 1
    if CALLS % 2:
        raise InvalidSample("not today")
    return sample.fields

def by_a_file(sample):
    here = Path(__file__).with_name("once")
    if sample.key == "005.npz" and not here.exists():
        here.touch()
        return {**sample.fields, "score": np.float32(7)}
    return sample.fields
"""
# All samples can lie in one block
FIELDS = {name: said for name, said in MIXED.items() if not said.get("optional")}
WRONG = [
    "by_chance",
    "by_numpy",
    "by_the_clock",
    "by_set",
    "by_hash",
    "by_address",
    "by_counting",
    "by_the_one_before",
    "by_its_block",
    "by_threads",
    "refusing",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    mixed(folder / "data", 8)
    (folder / "steps_here.py").write_text(STEPS)
    return folder


@pytest.fixture
def made(data, monkeypatch):
    """A job with a step between two that are clean, in shards of four samples."""
    monkeypatch.setattr("datacheck.cache.layout.SHARD_BYTES", 1 << 13)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 16)

    def job(*functions):
        steps = [
            {"center": {"field": "joints", "at": "centroid"}},
            *(f"steps_here:{f}" for f in functions),
        ]
        return job_of(
            schema_of(FIELDS),
            data / "data",
            steps=[*steps, {"cast": {"fields": "joints", "to": "float32"}}],
            paths=[str(data)],
        )

    return job


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_the_same_twice_is_found_and_its_step_is_named(made, tmp_path, name):
    with pytest.raises(NondeterministicBuildError) as caught:
        build_cache(made("clean", name), tmp_path / "out", check="all")
    said = str(caught.value)
    assert caught.value.exit_code == 6
    assert f"    It comes by step 3 of 4, steps_here:{name}: " in said, said
    assert ("its refusal of " if name == "refusing" else ": score of 0") in said
    assert "No cache was published" in said
    assert not files(tmp_path / "out")


def test_field_shard_samples_and_both_digests_are_said(made, tmp_path, monkeypatch):
    """What the second sample of the third shard was and is, from the digest of a sample as the format has it."""
    with pytest.raises(NondeterministicBuildError) as caught:
        build_cache(made("by_the_clock"), tmp_path / "out", check="all")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(
        "split all: the build is not deterministic. Made a second time, shard 1 differs in 3 of 4 "
    )
    assert lines[1].startswith("    004.npz: ")
    words = lines[1].replace(",", "").split()
    assert len(words[1]) == len(words[3]) == 16
    assert words[1] != words[3]
    (fields,) = [line for line in lines if "fields whose files differ" in line]
    assert fields == "    fields whose files differ: score"
    (cause,) = [line for line in lines if "It comes by" in line]
    assert len({word.strip(".,") for word in cause.split() if len(word.strip(".,")) == 32}) == 2


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_clean_build_passes_and_is_the_same_cache(made, tmp_path, codec, workers):
    job = replace(made("clean"), codec=Codec.parse(codec))
    plain = build_cache(job, tmp_path / "plain")
    ticks = []
    built = build_cache(job, tmp_path / "out", workers=workers, check="all", progress=ticks.append)
    count = len(list(built.path.glob("fields/score/c.*")))
    assert (plain.checked, built.checked) == (0, count)
    assert count > 1
    assert tree(built.path) == tree(plain.path)
    assert [path.name for path in built.path.parent.iterdir()] == [built.path.name]
    assert [(tick.doing, tick.files, tick.all_files) for tick in ticks[-2:]] == [
        ("checking all", n, count) for n in (count - 1, count)
    ]
    assert ticks[-1].nbytes == ticks[-1].all_nbytes > 0


def test_a_cache_that_is_there_is_held_against_and_not_touched(made, tmp_path):
    for name in ("clean", "by_chance", "by_a_file"):
        job, out = made(name), tmp_path / name
        path = build_cache(job, out).path
        before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in files(out)}
        if name == "clean":
            built = build_cache(job, out, check="all")
            assert (built.reused, built.checked) == (True, len(list(path.glob("fields/score/c.*"))))
        else:
            with pytest.raises(
                NondeterministicBuildError, match="one that was there before was not touched"
            ):
                build_cache(job, out, check="all")
        assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in files(out)} == before
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_does_not_come_again_is_said_to_be_rare(made, tmp_path, data):
    (data / "once").unlink(missing_ok=True)
    with pytest.raises(NondeterministicBuildError) as caught:
        build_cache(made("by_a_file"), tmp_path / "out", check="all")
    assert "shard 1 differs in 1 of 4 samples:\n    005.npz: " in str(caught.value)
    assert "did not come again in 4 tries" in str(caught.value)
    assert "Look at center, steps_here:by_a_file, cast" in str(caught.value)


@pytest.mark.parametrize(
    ("shards", "some"),
    [
        (1, [0]),
        (8, list(range(8))),
        (9, [0, 1, 2, 3, 4, 5, 6, 8]),
        (701, [0, 100, 200, 300, 400, 500, 600, 700]),
    ],
)
def test_some_are_the_first_the_last_and_a_few_between(shards, some):
    assert check.choose_shards(shards, "some") == some
    assert check.choose_shards(shards, "all") == list(range(shards))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_second_time_has_other_processes_another_seed_and_another_order(
    made, tmp_path, monkeypatch, workers
):
    seen = []

    def watching(function, tasks, **how):
        tasks = list(tasks)
        seen.append(([[order["g"] for order in task["items"]] for task in tasks], how))
        return ordered_map(function, tasks, **how)

    monkeypatch.setenv("PYTHONHASHSEED", "1")
    monkeypatch.setattr(check, "ordered_map", watching)
    count = build_cache(made("clean"), tmp_path / "out", check="all", workers=workers).checked
    backwards = [[g] for g in range(count)][::-1]
    assert [order for order, _ in seen] == (
        [[one] for one in backwards] if workers == 1 else [backwards]
    )
    assert {how.get("workers", 1) for _, how in seen} == {1}
    assert {how["environment"]["PYTHONHASHSEED"] for _, how in seen} == {"3"}


@pytest.mark.parametrize("codec", golden.CODECS)
def test_every_kind_of_field_passes(tmp_path, codec):
    golden.write_sources(tmp_path)
    with golden.small_shards():
        for job in golden.jobs(tmp_path, golden.CODECS[codec]):
            assert build_cache(job, tmp_path / "out", check="all").checked >= 1


def test_the_command_says_it_and_ends_with_6(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(
        "datacheck: 1\nname: tiny\nsamples: {files: '*.npz'}\nfields: {score: {}}\n"
    )
    (tmp_path / "steps_here.py").write_text(STEPS)
    for name, option, code in (
        ("clean", "--check", 0),
        ("by_chance", "--check-all", 6),
        ("by_chance", "--check", 6),
    ):
        text = f"datacheck: 1\nname: tiny\nschema: schema.yaml\ntransforms: ['steps_here:{name}']\n"
        (tmp_path / "pipeline.yaml").write_text(text)
        command = ["cache", "build", "pipeline.yaml", "--data", str(data / "data"), option]
        assert run(command) == code
        said, errors = capsys.readouterr()
        assert ("1 shard built twice, with equal bytes" in said) == (code == 0), errors
        assert ("steps_here:by_chance" in errors) == (code == 6)


def test_digests_of_a_step_are_those_of_its_values(made, tmp_path, data):
    job = made("clean")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            check,
            "_compare",
            lambda prepared, first, second, folder: found.append(
                trace_steps(prepared, 0, ["001.npz"], folder, again=False)
            ),
        )
        found = []
        build_cache(job, tmp_path / "out", check="some")
    with np.load(data / "data/001.npz") as file:
        values = dict(file)
    read, centred, *_, last = [stage["001.npz"] for stage in found[0]]
    assert read["cloud"] == hashing.digest_array(values["cloud"])
    moved = values["joints"] - values["joints"].mean(axis=0)
    assert centred["joints"] == hashing.digest_array(moved)
    assert last["joints"] == hashing.digest_array(moved.astype(np.float32))
