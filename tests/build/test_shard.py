"""One shard in memory: blocks in any order give the same packed bytes, and they are what arithmetic says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.build.shard import Shard, chunk_digests
from datacheck.cache import layout
from datacheck.model.sample import ArraySpec, Origin, Piece, stack
from datacheck.runtime.hashing import canonical_json

SPECS = {
    "x": ArraySpec("float32", (3,), "P"),
    "m": ArraySpec("bool", (), "P", optional=True),
    "v": ArraySpec("int16", (2,)),
    "t": ArraySpec("uint8", (), "fields.t", "text"),
}


def piece(key, rows, *, mask=True, seed=0):
    rng = np.random.Generator(np.random.Philox(key=rows + 1000 * seed))
    fields = {
        "x": rng.random((rows, 3), np.float32),
        "v": rng.integers(-9, 9, 2).astype(np.int16),
        "t": key * rows,
    }
    if mask:
        fields["m"] = rng.integers(0, 2, rows).astype(bool)
    return Piece(key, fields, Origin("f"))


def copied(block):
    return replace(
        block, fields={n: replace(c, values=c.values.copy()) for n, c in block.fields.items()}
    )


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
    cut=st.integers(1, 12),
    ours=st.booleans(),
)
@settings(max_examples=100)
def test_the_order_of_arrival_does_not_matter(lengths, order, cut, ours):
    keys = [f"{i:02d}" for i in range(len(lengths))]
    pieces = [
        piece(key, n, mask=i % 3 != 1, seed=i)
        for i, (key, n) in enumerate(zip(keys, lengths, strict=True))
    ]
    left_out = {0} if len(keys) > 3 else set()
    arriving = [p for i, p in enumerate(pieces) if i not in left_out]
    order.shuffle(arriving)
    shard = Shard(keys, SPECS)
    for i in range(0, len(arriving), cut):
        for block in map(copied, stack(arriving[i : i + cut])):
            shard.put(block, ours=ours)
            if not ours:
                block.fields["v"].values.fill(1)  # by whoever keeps it
    rows = shard.close()
    assert shard.made.tolist() == [i not in left_out for i in range(len(keys))]
    assert rows.lengths["P"].tolist() == [0 if i in left_out else n for i, n in enumerate(lengths)]
    kept = [p.fields for i, p in enumerate(pieces) if i not in left_out]
    x = np.frombuffer(rows.padded("x", 8), np.float32).reshape(-1, 3)
    wanted = np.concatenate([f["x"] for f in kept]) if kept else np.zeros((0, 3))
    assert np.array_equal(x[: len(wanted)], wanted)
    assert np.isnan(x[len(wanted) :]).all()
    mask = np.frombuffer(rows.padded("m", 8), bool)
    masks = [f.get("m", np.zeros(len(f["x"]), bool)) for f in kept]
    assert np.array_equal(mask[: len(wanted)], np.concatenate([*masks, np.zeros(0, bool)]))
    assert not mask[len(wanted) :].any()
    text = bytes(rows.padded("t", 64)).rstrip(b"\0").decode()
    assert text == "".join(f["t"] for f in kept)
    v = np.frombuffer(rows.padded("v", 4), np.int16).reshape(-1, 2)
    assert all(
        np.array_equal(v[i], pieces[i].fields["v"] if i not in left_out else [0, 0])
        for i in range(len(keys))
    )


def test_payloads_are_whole_chunks_and_digested_one_by_one():
    shard = Shard(["a", "b"], {"x": ArraySpec("float32", (5000,), "P")})
    for block in stack(
        [
            Piece(k, {"x": np.full((3, 5000), i, np.float32)}, Origin("f"))
            for i, k in enumerate("ab")
        ]
    ):
        shard.put(block)
    chunk = layout.chunk_rows(20_000)
    assert chunk == 2
    payload = shard.close().padded("x", chunk)
    assert len(payload) == 6 * 20_000
    raw = bytes(payload)
    wanted = [xxhash.xxh3_64_intdigest(raw[i : i + 40_000]) for i in range(0, len(raw), 40_000)]
    assert chunk_digests(payload, 40_000).tolist() == wanted


def test_a_shard_without_samples_has_no_rows():
    shard = Shard(["a"], SPECS)
    rows = shard.close()
    assert shard.reasons == {0: "the source did not give it"}
    assert len(rows.padded("x", 8)) == 0
    assert rows.sample_digests().tolist() == [0]


@pytest.mark.parametrize("item", [(), (3,), (0,), (5000,)])
def test_samples_of_fixed_fields_are_digested_each_with_its_frame_and_0_stands_for_one_not_made(
    item,
):
    # More than are joined at once; one is too large to be joined
    count = 2500 if item != (5000,) else 5
    shard = Shard(
        [f"{i:04d}" for i in range(count)],
        {"x": ArraySpec("float32", item), "n": ArraySpec("uint8", ())},
    )
    made = [i for i in range(count) if i != 1]
    values = {i: np.full(item, i, np.float32) for i in made}
    pieces = [
        Piece(f"{i:04d}", {"x": values[i], "n": np.array(i % 256, np.uint8)}, Origin("f"))
        for i in made
    ]
    for block in stack(pieces):
        shard.put(block)
    shape = ",".join(map(str, item)).encode()
    framed = {
        i: b"n\0|u1\0\0" + bytes([i % 256]) + b"x\0<f4\0" + shape + b"\0" + values[i].tobytes()
        for i in made
    }
    wanted = [xxhash.xxh3_64_intdigest(framed[i]) if i in framed else 0 for i in range(count)]
    assert shard.close().sample_digests().tolist() == wanted


NUMBERS = (
    st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(1e-7, 1e-3)
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(JSON.map(lambda value: [value]), min_size=1, max_size=3))
def test_json_is_stored_as_canonical_json(values):
    (block,) = stack([Piece(f"{i}", {"j": value}, Origin("f")) for i, value in enumerate(values)])
    shard = Shard(
        [f"{i}" for i in range(len(values))], {"j": ArraySpec("uint8", (), "fields.j", "json")}
    )
    shard.put(block)
    stored = bytes(shard.close().padded("j", 1))
    assert stored.rstrip(b"\0") == b"".join(canonical_json(value) for value in values)


def test_a_reason_is_cut_and_escaped_so_that_its_record_can_be_read():
    shard = Shard(["a", "b"], {"x": ArraySpec("float32", (), "")})
    shard.refuse("a", "too long: " + "x" * 200_000)
    shard.refuse("b", "half \ud800")
    assert shard.reasons == {0: "too long: " + "x" * 99_990, 1: "half \\ud800"}


def test_a_wrong_length_of_a_fixed_axis_is_named_before_the_dtype():
    """The reason was the dtype, with the advice of a cast that cannot help."""
    values = {
        "a": np.zeros((9, 3), "uint16"),
        "b": np.zeros((8, 3), "uint16"),
        "c": np.zeros((8, 3), "uint8"),
    }
    shard = Shard(list(values), {"x": ArraySpec("uint8", (8, 3))})
    for block in stack([Piece(key, {"x": value}, Origin("f")) for key, value in values.items()]):
        shard.put(block)
    assert shard.reasons == {
        0: "x: 9 rows; the cache holds 8",
        1: "x: uint16 does not fit uint8; put a cast into the pipeline",
    }
    assert shard.made.tolist() == [False, False, True]
