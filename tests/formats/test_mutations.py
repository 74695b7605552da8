"""Damaged bytes give a value or a FormatError: nothing else, and quickly."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.errors import FormatError
from tests.formats.reading import CORPUS, read_all

PURE = (
    *(
        "bvh",
        "json",
        "jsonl",
        "kitti",
        "mcap",
        "mds",
        "mp4",
        "npy",
        "npz",
        "obj",
        "off",
        "pcd",
        "pickle",
        "ply",
        "rosbag",
        "rosbag2",
        "safetensors",
        "sktime",
        "tar",
        "text",
    ),
    *("tfrecord", "torch", "wav", "yaml"),
)
FOREIGN = ("arrow", "hdf5", "image", "las", "parquet")
FILES = sorted(p for name in PURE for p in (CORPUS / name).glob("y_*"))

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "delete", "insert", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([0, 1, 9, 10, 32, 34, 40, 46, 47, 48, 57, 91, 127, 128, 255, 65, 101]),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, edits) -> bytes:
    out = bytearray(data)
    for kind, where, value in edits:
        at = int(where * (len(out) + 1))
        if kind == "insert":
            out[at:at] = bytes([value]) * 3
        elif kind == "cut":
            del out[at:]
        elif at < len(out) and kind == "delete":
            del out[at]
        elif at < len(out):
            out[at] = value if kind == "set" else out[at] ^ (1 << value % 8)
    return bytes(out)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_an_edited_file_is_read_or_refused(path, edits, tmp_path):
    damaged = tmp_path / path.name
    damaged.write_bytes(edited(path.read_bytes(), edits))
    start = time.process_time()
    with contextlib.suppress(FormatError):
        read_all(damaged)
    assert time.process_time() - start < 5


IN_A_CHILD = """
import random, sys, tempfile
from pathlib import Path
from datacheck.errors import FormatError
from tests.formats.reading import read_all

files = [Path(name) for name in sys.argv[2:]]
rng, read, refused = random.Random(int(sys.argv[1])), 0, 0
with tempfile.TemporaryDirectory() as folder:
    for path in files:
        data = path.read_bytes()
        for _ in range(60):
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            here = Path(folder) / path.name
            here.write_bytes(damaged)
            try:
                read_all(here)
                read += 1
            except FormatError:
                refused += 1
print(read, refused)
"""


@pytest.mark.parametrize("name", FOREIGN)
def test_flipped_bits_do_not_kill_a_library(name, repository):
    files = sorted(str(p) for p in (CORPUS / name).glob("y_*"))
    command = [sys.executable, "-W", "ignore", "-c", IN_A_CHILD, "7", *files]
    done = subprocess.run(
        command, cwd=repository, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert read + refused == 60 * len(files)
    assert refused > 0
