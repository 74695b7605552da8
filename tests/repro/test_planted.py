"""Causes planted into a small real training run, each in a process of its own: the first difference names them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from datacheck.repro.run_diff import diff_runs

FILES = 1000
LIMIT_S = 800


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with 1,000 files of data, a package, a library."""
    here = tmp_path_factory.mktemp("planted")
    rng = np.random.Generator(np.random.Philox(0))
    (here / "a/data").mkdir(parents=True)
    for i in range(FILES):
        rng.standard_normal(8).astype(np.float32).tofile(here / f"a/data/{i:04d}.bin")
    package(here / "a", "1.0")
    library = next(Path(np.__file__).parent.rglob("*.so"))
    shutil.copy(library, here / "a/libplanted.so")
    return here


def package(folder, version):
    """A package that is imported; its code is the same in every version."""
    info = folder / f"site/planted-{version}.dist-info"
    info.mkdir(parents=True)
    (folder / "site/planted.py").write_text("VALUE = 1\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: planted\nVersion: {version}\n")
    (info / "RECORD").write_text(f"planted.py,,\nplanted-{version}.dist-info/METADATA,,\n")


@pytest.fixture(scope="module")
def train(place, repository, forked_python):
    """Train as asked, once for each answer; return the folder of the run."""
    made = {}

    def train(name, *, side="a", **asked):
        if name in made:
            return made[name]
        here = place / side
        asked = {
            "runs": str(place / "runs"),
            "name": name,
            "data": str(here / "data"),
            "imports": ["planted"],
            "libraries": [str(here / "libplanted.so")],
            **asked,
        }
        done = subprocess.run(
            [forked_python, str(repository / "tests/repro/train.py")],
            input=json.dumps(asked),
            cwd=place,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [repository, here / "site"]))},
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        made[name] = place / "runs" / name
        return made[name]

    return train


@pytest.fixture
def other(place):
    """A second side, equal to the first, that a test may change."""
    shutil.rmtree(place / "b", ignore_errors=True)
    shutil.copytree(place / "a", place / "b")
    return place / "b"


def first(found):
    return found.first.name, found.first.differences[0].name


def column(found):
    return found.column.name, found.column.step


def names(found):
    return {section.name for section in found.sections if section}


def test_an_unchanged_pair_gives_no_difference(train, other):
    found = diff_runs(train("a"), train("again", side="b"))
    assert not found, found.headline
    assert found.compared == 100
    assert found.headline == "no difference: what was recorded is equal, 100 steps compared"
    assert not [(section.name, section.unknown) for section in found.sections if section.unknown]
    assert found.warnings == {}


def test_one_byte_in_one_of_1000_files(train, other):
    path = other / "data/0417.bin"
    raw = bytearray(path.read_bytes())
    raw[0] ^= 1
    path.write_bytes(raw)
    found = diff_runs(train("a"), train("byte", side="b"))
    assert first(found)[0] == "data"
    assert found.column.name == "input"
    assert "order" not in names(found)


def test_two_files_swapped(train, other):
    one, two = other / "data/0003.bin", other / "data/0900.bin"
    one.rename(other / "data/x")
    two.rename(one)
    (other / "data/x").rename(two)
    found = diff_runs(train("a"), train("swapped", side="b"))
    assert first(found)[0] == "data"
    assert "the same samples come in another order" in found.meaning


def test_the_order_of_a_directory(train):
    plain = train("listed", listed="as they come", shuffle=False)
    found = diff_runs(plain, train("reversed", listed="reversed", shuffle=False))
    assert first(found) == ("order", "step 0, input")
    assert "os.listdir" in found.headline
    assert "data" not in names(found)


def test_the_version_of_a_package(train, other):
    shutil.rmtree(other / "site")
    package(other, "1.1")
    found = diff_runs(train("a"), train("package", side="b"))
    assert first(found) == ("packages", "planted")
    assert names(found) == {"packages"}


def test_one_library(train, other):
    with (other / "libplanted.so").open("ab") as file:
        file.write(b"\0")
    found = diff_runs(train("a"), train("library", side="b"))
    assert first(found)[0] == "native"
    assert "libplanted.so" in first(found)[1]
    assert names(found) == {"native"}


def test_the_number_of_threads(train):
    found = diff_runs(train("a"), train("threads", threads=2))
    assert found.first.name == "flags"
    assert any("num_threads" in one.name for one in found.first.differences)


def test_the_number_of_workers_with_a_global_random_transform(train):
    found = diff_runs(
        train("one worker", workers=1, noise=True), train("two workers", workers=2, noise=True)
    )
    assert first(found) == ("config", "loader[0].num_workers")
    # The second batch is the first that another worker makes
    assert column(found) == ("input", 20 // 20)
    assert "order" not in names(found)


def test_an_epoch_that_does_not_reach_persistent_workers(train):
    found = diff_runs(
        train("reaches", workers=1, epochs="shared"), train("told", workers=1, epochs="told")
    )
    assert found.first.name == "step trace"
    assert column(found) == ("input", 50)
    assert "epoch may not reach the workers" in found.headline


def test_a_hyper_parameter(train):
    found = diff_runs(train("a"), train("rate", lr=0.02))
    assert first(found) == ("config", "config.lr")
    assert found.column.name == "lr"


def test_a_hyper_parameter_that_no_config_names(train):
    found = diff_runs(train("a"), train("momentum", momentum=0.8))
    assert first(found) == ("config", "optimizer[0].momentum")


def test_the_state_of_the_optimiser(train):
    found = diff_runs(train("zero", buffer=0.0), train("one", buffer=1.0))
    assert first(found) == ("initial weights", "optimiser state[0]")


def test_the_state_of_the_optimiser_within_the_run(train):
    found = diff_runs(train("fine", every=1), train("forgets", every=1, forget=30))
    assert found.first.name == "step trace"
    assert column(found) == ("params", 30)
    assert "the optimiser or AMP" in found.headline


def test_an_input_changed_by_a_millionth_at_step_50(train):
    found = diff_runs(train("a"), train("nudged", nudge=50))
    assert found.first.name == "step trace"
    assert column(found) == ("input", 50)
    assert "data, a transform or its random numbers" in found.headline
    assert "from step 50 (epoch 1) on" in found.headline
    assert "at 1 of 50 steps" in found.headline
    assert "workers" not in found.headline


def test_another_seed(train):
    found = diff_runs(train("a"), train("seed", seed=1))
    assert found.first.name == "seeds"
    assert names(found) == {"seeds", "order", "initial weights", "step trace", "evaluations"}
