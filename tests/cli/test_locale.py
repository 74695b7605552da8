"""A locale that knows ASCII only loses no file: names are taken for UTF-8, or nothing is done."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SCHEMA = """
datacheck: 1
name: clouds
samples: {files: "**/*.npy"}
fields: {points: {role: points, shape: [P, 3], unit: m}}
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    for folder in ("a", "é"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        for i in range(3):
            points = np.random.default_rng(i).uniform(0, 1, (20, 3)).astype(np.float32)
            np.save(tmp_path / "data" / folder / f"{i}.npy", points)
    return tmp_path


def run(place, *words):
    return subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=os.environ | ASCII,
        capture_output=True,
        text=True,
        check=False,
    )


def test_names_with_accents_are_scanned_and_built(place):
    scan = run(place, "-m", "datacheck", "scan", "data", "--schema", "s.yaml", "--format", "json")
    assert (scan.returncode, json.loads(scan.stdout)["dataset"]["samples"]["listed"]) == (0, 6)
    plain = run(place, "-m", "datacheck", "scan", "data", "--schema", "s.yaml")
    assert (plain.returncode, "all 6 samples are fit" in plain.stdout) == (0, True)
    assert plain.stdout.isascii()  # what is printed is still for the terminal
    build = run(place, "-m", "datacheck", "cache", "build", "s.yaml", "--data", "data")
    assert (build.returncode, "6 samples: 6 valid" in build.stdout) == (0, True)


def test_a_program_that_cannot_begin_again_is_refused(place):
    code = "from datacheck.scan import scan; scan('data', 's.yaml')"
    done = run(place, "-c", code)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(
        "files with other names would be left out. Set PYTHONUTF8=1."
    )


@pytest.mark.parametrize(
    "words", [("data", "--schema", "s.yaml", "--output", "s3://bucket/out"), ("s3://bucket/data",)]
)
def test_an_address_is_no_folder_of_this_machine(place, words):
    done = run(place, "-m", "datacheck", "scan", *words)
    assert (done.returncode, "is an address; only caches lie in object stores" in done.stderr) == (
        2,
        True,
    )
    assert not [path for path in place.iterdir() if path.name.startswith("s3")]
