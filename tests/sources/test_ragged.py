"""Episodes behind one another, cut by an array of their ends."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import FormatError
from datacheck.sources import Item, list_files, open_source, plan_work, row_slices
from tests.sources.schemas import every, schema

REPLAY = {"files": "**/*.zarr", "each": "ends:meta/episode_ends"}
FIELDS = {"action": {"at": "data/action"}, "state": {"at": "data/state"}}


def write(path, ends, *, total=None, version=2):
    total = (max(ends, default=0)) if total is None else total
    root = zarr.open_group(path, mode="w", zarr_format=version)
    for name, width in (("data/action", 2), ("data/state", 5)):
        values = np.arange(total * width, dtype=np.float32).reshape(total, width)
        root.create_array(name, data=values, chunks=(4, width))
    root.create_array("meta/episode_ends", data=np.array(ends, dtype=np.int64))


def key(number, file="replay.zarr"):
    return f"{file}:{number:012d}"


@pytest.mark.parametrize("version", [2, 3])
def test_episodes_are_cut_at_their_ends(tmp_path, version):
    write(tmp_path / "d/replay.zarr", [3, 3, 10], version=version)
    spec = schema(REPLAY, FIELDS)
    work = plan_work(spec, list_files(tmp_path))
    assert [item.path for item in work.items] == ["d/replay.zarr"]
    source = open_source(spec, tmp_path)
    samples, unread = every(source, work.items[0])
    assert unread == []
    assert [s["action"].shape for s in samples.values()] == [(3, 2), (0, 2), (7, 2)]
    np.testing.assert_array_equal(samples[key(2, "d/replay.zarr")]["action"][0], [6, 7])
    (block,) = source.read(work.items[0])
    assert [origin.rows for origin in block.origins] == [(0, 3), (3, 3), (3, 10)]


def test_undeclared_arrays_of_the_same_length_come_along(tmp_path):
    # As many episodes as steps: the ends themselves are still no field
    write(tmp_path / "replay.zarr", [1, 2])
    zarr.open_group(tmp_path / "replay.zarr", mode="a").create_array(
        "data/calibration", data=np.zeros(9)
    )
    source = open_source(schema(REPLAY, {"action": {"at": "data/action"}, "*": {}}), tmp_path)
    samples, _ = every(source, Item("replay.zarr"))
    assert [sorted(s) for s in samples.values()] == [["action", "data/state"]] * 2


@pytest.mark.parametrize(
    ("ends", "total", "says"),
    [
        ([3, 2], 3, "entry 1 is 2, less than the one before it"),
        ([3, 9], 10, "action has 10 rows, meta/episode_ends ends at 9"),
        ([3, 11], 10, "action has 10 rows, meta/episode_ends ends at 11"),
        ([], 0, "holds no sample"),
    ],
)
def test_ends_that_do_not_fit_are_refused(tmp_path, ends, total, says):
    write(tmp_path / "replay.zarr", ends, total=total)
    with pytest.raises(FormatError, match=says):
        list(open_source(schema(REPLAY, FIELDS), tmp_path).read(Item("replay.zarr")))


@pytest.mark.parametrize("ends", [None, np.array([1.5]), np.array([[1]])])
def test_ends_that_are_none_are_refused(tmp_path, ends):
    values = {"action": np.zeros((3, 2))} | ({} if ends is None else {"ends": ends})
    np.savez(tmp_path / "a.npz", **values)
    with pytest.raises(FormatError, match="where the ends of the episodes should be"):
        list(
            open_source(
                schema({"files": "*.npz", "each": "ends:ends"}, {"action": {}}), tmp_path
            ).read(Item("a.npz"))
        )


def test_texts_are_cut_like_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", words=["a", "b", "c"], ends=np.array([1, 3]))
    source = open_source(
        schema({"files": "*.npz", "each": "ends:ends"}, {"words": {"dtype": "json"}}), tmp_path
    )
    assert [s["words"] for s in every(source, Item("a.npz"))[0].values()] == [["a"], ["b", "c"]]


def test_large_stores_are_read_in_slices(tmp_path, monkeypatch):
    write(tmp_path / "replay.zarr", [5, 9, 20])
    monkeypatch.setattr(row_slices, "_WHOLE_BYTES", 10)
    monkeypatch.setattr(row_slices, "BLOCK_BYTES", 300)
    from datacheck.formats import zarr_store

    read, asked = zarr_store._ZarrStore.read_rows, []
    monkeypatch.setattr(
        zarr_store._ZarrStore,
        "read_rows",
        lambda self, name, a, b: asked.append((name, a, b)) or read(self, name, a, b),
    )
    blocks = list(open_source(schema(REPLAY, FIELDS), tmp_path).read(Item("replay.zarr")))
    assert [len(b) for b in blocks] == [2, 1]
    assert asked == [(f"data/{n}", a, b) for a, b in ((0, 9), (9, 20)) for n in ("action", "state")]
    np.testing.assert_array_equal(
        np.concatenate([b.fields["action"].values for b in blocks]), np.arange(40).reshape(20, 2)
    )


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.lists(st.integers(0, 7), max_size=6, unique=True),
    st.integers(1, 400),
)
def test_any_choice_of_episodes_in_any_blocks_is_the_same(
    tmp_path_factory, lengths, numbers, limit
):
    root = tmp_path_factory.mktemp("ends")
    ends = np.cumsum(lengths)
    np.savez(root / "a.npz", x=np.arange(int(ends[-1]) * 2).reshape(-1, 2), ends=ends)
    source = open_source(schema({"files": "*.npz", "each": "ends:ends"}, {"x": {}}), root)
    everything, _ = every(source, Item("a.npz"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_slices, "BLOCK_BYTES", limit)
        samples, unread = every(source, Item("a.npz", keys=tuple(key(n, "a.npz") for n in numbers)))
        again, _ = every(source, Item("a.npz"))
    starts = ends - lengths
    assert list(samples) == [key(n, "a.npz") for n in numbers if n < len(lengths)]
    assert len(unread) == len(numbers) - len(samples)
    for number, (start, stop) in enumerate(zip(starts, ends, strict=True)):
        expected = np.arange(2 * start, 2 * stop).reshape(-1, 2)
        name = key(number, "a.npz")
        for found in (everything, again, samples):
            if name in found:
                np.testing.assert_array_equal(found[name]["x"], expected)
