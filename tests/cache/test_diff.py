"""What differs between two caches, against two dictionaries."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from datacheck.cache import layout, open_cache
from datacheck.cache.diff import ValueChange, compare_values, diff
from datacheck.cli.main import run
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache

SPECS = {
    "x": ArraySpec("float32", (2,)),
    "rows": ArraySpec("int64", (), "R", optional=True),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
    "on": ArraySpec("bool", ()),
}

samples = st.fixed_dictionaries(
    {
        "x": npst.arrays(
            "<f4", 2, elements=st.sampled_from([0.0, -0.0, 1.5, np.nan, np.inf, 3e38, -3e38])
        ),
        "on": st.booleans().map(np.bool_),
    },
    optional={
        "rows": npst.arrays("<i8", st.integers(0, 3), elements=st.integers(-3, 3)),
        "say": st.sampled_from(["", "a", "größe"]),
    },
)
judged = st.tuples(samples, st.sampled_from(["valid", "invalid", "not made"]))
datasets = st.dictionaries(st.sampled_from([f"k{i}" for i in range(8)]), judged, max_size=8)


def stored(root, data, k, specs=SPECS):
    """Write a dataset as a cache."""
    keys = sorted(data)
    folder = make_cache(
        root,
        specs,
        [data[key][0] if data[key][1] != "not made" else {} for key in keys],
        keys=keys,
        k=k,
        made=[data[key][1] != "not made" for key in keys],
        valid=[data[key][1] == "valid" for key in keys],
    )
    return open_cache(folder)


def has(data, key, name):
    """Return a value of the model; None where the sample lacks it or was not made."""
    sample, state = data[key]
    if state == "not made" or name not in sample:
        return None
    value = sample[name]
    return np.frombuffer(value.encode(), np.uint8) if isinstance(value, str) else np.asarray(value)


def same(x, y):
    return (x is None and y is None) or (
        x is not None and y is not None and x.shape == y.shape and x.tobytes() == y.tobytes()
    )


@settings(max_examples=25, deadline=None)
@given(datasets, datasets, st.sampled_from([1, 2, 8]), st.sampled_from([1, 4]))
def test_a_diff_is_that_of_two_dictionaries(one, other, k, j):
    with tempfile.TemporaryDirectory() as root:
        found = diff(stored(Path(root, "a"), one, k), stored(Path(root, "b"), other, j))
    both = sorted(one.keys() & other.keys())
    assert found.added == sorted(other.keys() - one.keys())
    assert found.removed == sorted(one.keys() - other.keys())
    wanted = {
        key: names
        for key in both
        if (names := {n for n in SPECS if not same(has(one, key, n), has(other, key, n))})
    }
    assert {key: set(of) for key, of in found.changed.items()} == wanted
    codes = {"valid": ()}
    verdicts = {
        key: tuple(codes.get(data[key][1], ("DC301",)) for data in (one, other)) for key in both
    }
    assert found.verdicts == {key: pair for key, pair in verdicts.items() if pair[0] != pair[1]}
    assert found.fields == {}
    for key, of in found.changed.items():
        for name, told in of.items():
            x, y = has(one, key, name), has(other, key, name)
            assert told.before == (None if x is None else x.shape)
            assert told.after == (None if y is None else y.shape)
    assert bool(found) == bool(wanted or found.added or found.removed or found.verdicts)


def one_sample(x, **more):
    return {"k": ({"x": np.array(x, "<f4"), "on": np.bool_(True), **more}, "valid")}


@pytest.mark.parametrize(
    ("x", "y", "count", "largest", "relative", "first"),
    [
        ([1, 2], [1, 2.5], 1, 0.5, 0.2, 1),
        ([np.nan, 2], [1, 2], 1, None, None, 0),
        ([np.nan, 2], [np.nan, 5], 1, 3.0, 0.6, 1),
        ([0.0, 1], [-0.0, 1], 1, 0.0, 0.0, 0),
        ([np.inf, 1], [0, 4], 2, 3.0, 0.75, 0),
        ([4, 64], [2, 48], 2, 16.0, 0.5, 0),
    ],
)
def test_how_far_values_are_apart(tmp_path, x, y, count, largest, relative, first):
    found = diff(stored(tmp_path / "a", one_sample(x), 1), stored(tmp_path / "b", one_sample(y), 1))
    assert found.changed == {
        "k": {"x": ValueChange((2,), (2,), count, largest, relative, (first,))}
    }


def test_whole_numbers_and_text(tmp_path):
    a = one_sample([1, 2], rows=np.array([1, 2], "<i8"), say="ab")
    b = one_sample([1, 2], rows=np.array([1, -5], "<i8"), say="ax")
    found = diff(stored(tmp_path / "a", a, 1), stored(tmp_path / "b", b, 1)).changed["k"]
    assert found == {
        "rows": ValueChange((2,), (2,), 1, 7.0, 1.4, (1,)),
        "say": ValueChange((2,), (2,), 1, None, None, (1,)),
    }
    assert str(found["rows"]) == "1 of 2 values, by up to 7 (relative 1.4), first at [1]"


@pytest.mark.parametrize(
    ("x", "y", "largest", "relative"),
    [
        (2**62, 2**62 + 1, 1.0, 2.0**-62),
        (-(2**63), 2**63 - 1, 2.0**64, 2.0),
        (-(2**62), 2**62, 2.0**63, 2.0),
    ],
)
def test_large_whole_numbers_are_not_rounded_before_they_are_compared(
    tmp_path, x, y, largest, relative
):
    one, two = (
        rows_of(tmp_path / name, np.array([value], "<i8")) for name, value in (("a", x), ("b", y))
    )
    assert diff(one, two).changed["k"] == {
        "rows": ValueChange((1,), (1,), 1, largest, relative, (0,))
    }


@pytest.mark.parametrize(
    ("x", "y", "largest", "relative"),
    [
        (-1.7e308, 1.7e308, sys.float_info.max, 2.0),
        (5e-324, 1e-323, 5e-324, 0.5),
        (3 - 4j, 0j, 5.0, 1.0),
        (-1.7e308 * (1 + 1j), 1.7e308 * (1 + 1j), sys.float_info.max, 2.0),
    ],
)
def test_the_largest_numbers_there_are_have_a_finite_difference(x, y, largest, relative):
    found = compare_values(*(np.array([0, value]) for value in (x, y)), number=True)
    assert found == ValueChange((2,), (2,), 1, largest, pytest.approx(relative, rel=1e-15), (1,))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_values_are_held_together_in_parts_and_the_worst_of_all_is_told(monkeypatch, dtype):
    monkeypatch.setattr("datacheck.cache.diff._AT_ONCE", 3)
    x, y = np.full(10, 8, dtype), np.full(10, 7, dtype)
    x[2:6] = y[2:6]
    y[8] = 2  # the differing ones are 8 and 7 but for one: 8 and 2
    assert compare_values(x, y, number=True) == ValueChange((10,), (10,), 6, 6.0, 0.75, (0,))
    if dtype == "float32":
        x[6:] = np.nan  # and a part of which nothing is finite
        assert compare_values(x, y, number=True) == ValueChange((10,), (10,), 6, 1.0, 0.125, (0,))


def rows_of(place, rows):
    return stored(place, one_sample([0, 0], rows=rows), 1)


def test_fields_that_only_one_has_or_that_are_stored_otherwise(tmp_path):
    wide = {**SPECS, "x": ArraySpec("float64", (2,)), "z": ArraySpec("uint8", ())}
    data = one_sample([1, 2])
    more = {"k": ({**data["k"][0], "z": np.uint8(3), "on": np.bool_(False)}, "valid")}
    a, b = stored(tmp_path / "a", data, 1), stored(tmp_path / "b", more, 1, wide)
    found = diff(a, b)
    assert found.fields == {"x": ("float32 [2]", "float64 [2]"), "z": ("", "uint8 []")}
    assert set(found.changed["k"]) == {"on"}
    assert not diff(a, b, ["rows"])
    assert diff(a, b, ["on"]).fields == {}
    with pytest.raises(UsageError, match="no field 'nothing'"):
        diff(a, b, ["nothing"])


def test_samples_of_one_digest_are_not_read(tmp_path):
    """Damage in a sample that is equal by its digest is no matter of a diff; in one that differs it is an error."""
    data = {
        f"k{i}": ({"x": np.array([i, 0], "<f4"), "on": np.bool_(True)}, "valid") for i in range(4)
    }
    a, b = (
        stored(tmp_path / "a", data, 1),
        stored(tmp_path / "b", data | {"k3": one_sample([9, 9])["k"]}, 1),
    )
    shard = b.path / "fields/x/c.1.0"
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    assert set(diff(a, b).changed) == {"k3"}
    shard = b.path / "fields/x/c.3.0"
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    with pytest.raises(CorruptionError, match=r"c\.3\.0"):
        diff(a, open_cache(b.path))


@pytest.mark.parametrize(
    ("most", "read"), [(None, 4), (0, 0), (8, 0), (9, 1), (26, 2), (27, 3), (1000, 4)]
)
def test_no_more_than_so_many_bytes_are_compared_and_the_rest_is_counted(tmp_path, most, read):
    """A sample has two float32 and a bool: 9 bytes. One of five is equal."""
    specs = {name: SPECS[name] for name in ("x", "on")}
    data = [
        {f"k{i}": ({"x": np.array([i, n], "<f4"), "on": np.bool_(True)}, "valid") for i in range(5)}
        for n in (0, 1)
    ]
    data[1]["k2"] = data[0]["k2"]
    a, b = (stored(tmp_path / str(n), one, 2, specs) for n, one in enumerate(data))
    found = diff(a, b, most=most)
    assert list(found.changed) == ["k0", "k1", "k3", "k4"][:read]
    assert found.unread == 4 - read
    assert found


def numbered(first, count=6):
    return {
        f"k{i}": ({"x": np.full(2, first + i, "<f4"), "on": np.bool_(True)}, "valid")
        for i in range(count)
    }


def test_no_more_changes_are_held_than_somebody_may_look_at(tmp_path, monkeypatch, capsys):
    """Each takes 250 bytes and 16 us: a thousand fields of a byte and 5,000 samples took 83 s."""
    monkeypatch.setattr("datacheck.cache.diff.MOST_CHANGES", 3)
    monkeypatch.setattr("datacheck.cache.reader.blocks.__defaults__", (1,))
    a, b = stored(tmp_path / "a", numbered(0), 2), stored(tmp_path / "b", numbered(9), 2)
    found = diff(a, b)
    assert (list(found.changed), found.unread) == (["k0", "k1", "k2"], 3)
    assert run(["cache", "diff", str(a.path), str(b.path)]) == 1
    more = "3 more samples that both have were not looked at, as 3 values had changed before"
    assert more in capsys.readouterr().out
    assert run(["diff", str(a.path), str(b.path)]) == 1
    said = capsys.readouterr()
    assert "6 samples changed" in said.out
    assert more.replace("more ", "") in said.out + said.err


def test_values_that_are_equal_are_held_together_at_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "datacheck.cache.diff.compare_values",
        lambda *pair, number: calls.append(pair) or compare_values(*pair, number=number),
    )
    one, other = numbered(0), numbered(0)
    other["k4"] = ({"x": np.zeros(2, "<f4"), "on": np.bool_(True)}, "valid")
    a, b = (stored(tmp_path / name, data, 2) for name, data in (("a", one), ("b", other)))
    assert list(diff(a, b).changed) == ["k4"]
    assert len(calls) == 1


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_samples_are_matched_in_blocks_of_keys(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("datacheck.cache.reader.KEYS_AT_ONCE", at_once)
    specs = {"a": ArraySpec("float32", ())}
    keys = [["a", "b", "d", "e", "g", "h", "i"], ["b", "c", "d", "f", "g", "i", "j", "k"]]
    caches = [
        open_cache(
            make_cache(
                tmp_path / str(which),
                specs,
                [{"a": which if key in "dg" else 0} for key in names],
                keys=names,
                valid=[key != "bi"[which] for key in names],
            )
        )
        for which, names in enumerate(keys)
    ]
    asked = [record_asked(monkeypatch, cache) for cache in caches]
    found = diff(*caches)
    assert (found.added, found.removed) == (["c", "f", "j", "k"], ["a", "e", "h"])
    assert list(found.changed) == ["d", "g"]
    assert found.verdicts == {"b": (("DC301",), ()), "i": ((), ("DC301",))}
    # the two keys that changed are asked for together
    assert max(max(sizes, default=0) for sizes in asked) <= max(at_once, 2)


def record_asked(monkeypatch, cache):
    sizes = []
    keys = cache.keys
    monkeypatch.setattr(cache, "keys", lambda numbers: sizes.append(len(numbers)) or keys(numbers))
    return sizes


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize("names", ["aab", "abb", "bac", "acb"])
def test_keys_that_do_not_ascend_are_damage(tmp_path, monkeypatch, names, at_once):
    monkeypatch.setattr("datacheck.cache.reader.KEYS_AT_ONCE", at_once)
    specs = {"a": ArraySpec("float32", ())}
    good, bad = (
        open_cache(make_cache(tmp_path / keys, specs, [{"a": 0}] * 3, keys=list(keys)))
        for keys in ("abc", names)
    )
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(CorruptionError, match="the keys do not ascend"):
            diff(*pair)
