"""A record comes back as it was written, or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.build import provenance
from datacheck.build.provenance import ShardRecord
from datacheck.errors import StorageError
from datacheck.workers.wire import encode
from tests.build.make import saved_record

NAMES = st.text(max_size=6) | st.sampled_from(["$array", "obs/pose", "größe"])


@st.composite
def records(draw):
    count = draw(st.integers(1, 5))
    array = lambda dtype, size: draw(hnp.arrays(dtype, size))  # noqa: E731
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    chunks = {name: array("uint64", draw(st.integers(0, 3))) for name in names}
    texts = [
        text.encode()
        for text in draw(st.lists(st.text(max_size=5), min_size=count, max_size=count))
    ]
    return ShardRecord(
        g=draw(st.integers(0, 10**6)),
        made=array("bool", count),
        digest=array("uint64", count),
        present={name: array("bool", count) for name in names[:1]},
        lengths={"P": array("int64", count)},
        files={name: (draw(st.integers(0, 2**40)), "0" * 32) for name in names},
        chunks=chunks,
        sizes={name: np.full(len(found), 65536, np.uint64) for name, found in chunks.items()},
        origins=np.frombuffer(b"".join(texts), np.uint8),
        origin_lengths=np.array([len(t) for t in texts]),
        reasons=draw(
            st.lists(st.tuples(st.integers(0, count - 1), st.text(max_size=9)), max_size=2)
        ),
    )


def same(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one == other


@given(records())
@settings(max_examples=50)
def test_a_record_comes_back(written):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        g, size, digest = provenance.write(folder, written)
        raw = (folder / str(g)).read_bytes()
        assert (g, size, digest) == (written.g, len(raw) - 32, xxhash.xxh3_128_hexdigest(raw[:-32]))
        assert raw[-32:] == digest.encode()
        assert same(vars(saved_record(folder, g)), vars(written))
        assert same(vars(provenance.read(folder, g, size, digest)), vars(written))
        assert provenance.write(folder, written) == [g, size, digest]
        assert [path.name for path in folder.iterdir()] == [str(g)]


@pytest.fixture
def kept(tmp_path):
    empty = np.zeros(0, np.uint64)
    one = ShardRecord(
        3,
        np.ones(2, bool),
        np.array([5, 6], np.uint64),
        {},
        {},
        {"x": (9, "ab")},
        {"x": empty},
        {"x": empty},
        np.frombuffer(b"abcd", np.uint8),
        np.array([2, 2]),
        [],
    )
    answer = provenance.write(tmp_path, one)
    (tmp_path / "3").chmod(0o644)
    return tmp_path, answer


def test_what_is_damaged_torn_or_gone_is_none(kept):
    folder, answer = kept
    raw = (folder / "3").read_bytes()
    for at in range(len(raw)):
        (folder / "3").write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert provenance.read(folder, *answer) is saved_record(folder, 3) is None
    for size in range(0, len(raw), 7):
        (folder / "3").write_bytes(raw[:size])
        assert provenance.read(folder, *answer) is saved_record(folder, 3) is None
    (folder / "3").write_bytes(raw)
    assert provenance.read(folder, *answer).digest.tolist() == [5, 6]
    assert provenance.read(folder, 3, answer[1], "0" * 32) is None
    (folder / "3").unlink()
    assert provenance.read(folder, *answer) is saved_record(folder, 3) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"another frame",
        b"".join(encode([3])),
        b"".join(encode(3)),
        b"".join(encode({"g": 3, "made": [True]})),
    ],
)
def test_a_record_of_another_version_is_none(kept, raw):
    folder, _ = kept
    (folder / "3").write_bytes(raw + xxhash.xxh3_128_hexdigest(raw).encode())
    assert saved_record(folder, 3) is None


def test_a_record_under_the_name_of_another_shard_is_none(kept):
    folder, answer = kept
    (folder / "3").rename(folder / "4")
    assert saved_record(folder, 4) is provenance.read(folder, 4, *answer[1:]) is None


def test_a_refusal_is_not_taken_for_absence(kept):
    folder, answer = kept
    (folder / "3").unlink()
    (folder / "3").mkdir()
    with pytest.raises(StorageError, match="is a directory"):
        provenance.read(folder, *answer)
