"""CachedDataset in a plain DataLoader: the values written, in every way of loading, never a broken sample."""

from __future__ import annotations

import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from datacheck.cache import layout
from datacheck.cache.codec import Codec
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, Windows, collate_pad, collate_ragged
from datacheck.torch.order import pack
from tests.cache.make import make_cache

SPECS = {
    "joints": ArraySpec("float32", (21, 3)),
    "label": ArraySpec("int64", ()),
    "points": ArraySpec("float32", (3,), "P"),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text"),
    "talk": ArraySpec("uint8", (), layout.text_dim("talk"), "json"),
    "depth": ArraySpec("float32", (2,), optional=True),
}
FIXED = ["joints", "label", "say", "talk"]


def samples(count=11):
    rng = np.random.default_rng(0)
    return [
        {
            "joints": rng.random((21, 3), np.float32),
            "label": np.int64(i),
            "points": rng.random((i % 4 + 1, 3), np.float32),
            "say": f"nummer {i} ü",
            "talk": [{"role": "user", "content": str(i)}] * (i % 3),
        }
        | ({"depth": np.full(2, i, np.float32)} if i % 2 else {})
        for i in range(count)
    ]


BAD = [2, 5, 6]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("clean"), SPECS, samples(), k=4)


@pytest.fixture(scope="module")
def dirty(tmp_path_factory):
    """Samples 2 and 5 are invalid, 6 was not made."""
    made, valid = np.ones(11, bool), np.ones(11, bool)
    made[6] = valid[2] = valid[5] = False
    return make_cache(
        tmp_path_factory.mktemp("dirty"), SPECS, samples(), k=4, made=made, valid=valid
    )


def double(row):
    return row | {"joints": row["joints"] * 2}


def assert_equal(got, expected):
    assert list(got) == list(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(got[name], value, rtol=0, atol=0, equal_nan=True)
        else:
            assert got[name] == value


@pytest.mark.parametrize("name", ["x_is_present", "x_is_pad"])
def test_a_field_that_is_called_as_a_mask_is_refused(tmp_path, name):
    specs = {
        "x": ArraySpec(
            "float32", (), "T" if name == "x_is_pad" else None, optional=name == "x_is_present"
        )
    }
    specs[name] = ArraySpec("float32", ())
    rows = [
        {"x": np.ones(4 if name == "x_is_pad" else (), np.float32), name: np.float32(9)}
        for _ in range(3)
    ]
    cache, windows = (
        make_cache(tmp_path, specs, rows, k=2),
        Windows(2) if name == "x_is_pad" else None,
    )
    with pytest.raises(UsageError, match=f"the field {name} has the name of the mask of x"):
        CachedDataset(cache, windows=windows)
    assert list(CachedDataset(cache, fields=["x"], windows=windows)[0]) == ["x", name]


def test_a_sample_is_a_dict_of_tensors_and_texts(path):
    row = CachedDataset(path)[3]
    written = samples()[3]
    assert isinstance(row, dict)
    assert list(row) == ["depth", "depth_is_present", "joints", "label", "points", "say", "talk"]
    for name in ("joints", "points", "depth"):
        np.testing.assert_array_equal(row[name].numpy(), written[name])
    assert (row["label"].shape, int(row["label"])) == ((), 3)
    assert (row["say"], row["talk"]) == (written["say"], written["talk"])
    assert bool(row["depth_is_present"])


def test_an_absent_value_is_marked(path):
    row = CachedDataset(path)[4]
    assert not row["depth_is_present"]
    assert row["depth"].isnan().all()


def test_fields_are_served_in_the_order_asked_for(path):
    assert list(CachedDataset(path, fields=["label", "joints"])[0]) == ["label", "joints"]
    with pytest.raises(UsageError, match="no field pose"):
        CachedDataset(path, fields=["pose"])


def test_indices_behave_like_those_of_a_list(path):
    data = CachedDataset(path, fields=["label"])
    assert [int(row["label"]) for row in data] == list(range(11))
    assert int(data[-1]["label"]) == 10
    assert int(data[torch.tensor(4)]["label"]) == 4
    assert data[[3, 1]]["label"].tolist() == [3, 1]
    for index in (11, -12):
        with pytest.raises(IndexError):
            data[index]
    for wrong in ("label", 0.5, [0.5], np.ones(11, bool)):
        with pytest.raises(TypeError):
            data[wrong]


def test_default_collate_gives_what_stacking_gives(path):
    data = CachedDataset(path, fields=FIXED)
    (batch,) = list(DataLoader(data, batch_size=11))
    written = samples()
    assert type(batch) is dict
    np.testing.assert_array_equal(batch["joints"].numpy(), np.stack([s["joints"] for s in written]))
    assert batch["label"].tolist() == list(range(11))
    assert batch["say"] == [s["say"] for s in written]
    assert batch["talk"] == [s["talk"] for s in written]


def test_the_gathered_batch_passes_through_the_default_collate_uncopied(path, monkeypatch):
    data = CachedDataset(path, fields=["joints"])
    given = []
    gather = data.__getitems__
    monkeypatch.setattr(
        CachedDataset, "__getitems__", lambda _, i: given.append(gather(i)) or given[-1]
    )
    (batch,) = list(DataLoader(data, batch_size=11))
    assert batch["joints"].data_ptr() == given[0].columns["joints"].data_ptr()


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_give_equal_batches(dirty, workers, context):
    data = CachedDataset(dirty, fields=FIXED, transform=double)
    alone = list(DataLoader(data, batch_size=4))
    method = multiprocessing.get_context(context)
    loader = DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=method)
    for got, expected in zip(loader, alone, strict=True):
        assert_equal(got, expected)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_compressed_cache_serves_what_the_plain_one_does(path, tmp_path, context):
    packed = make_cache(tmp_path, SPECS, samples(), k=4, codec=Codec("zstd"))
    method = multiprocessing.get_context(context)
    data = [CachedDataset(folder, fields=FIXED) for folder in (path, packed)]
    data[1][0]  # the parent has opened it, and the codec, before workers are forked
    expected = list(DataLoader(data[0], batch_size=4))
    for workers in (0, 2):
        how = {"num_workers": workers, "multiprocessing_context": method if workers else None}
        for got, plain in zip(DataLoader(data[1], batch_size=4, **how), expected, strict=True):
            assert_equal(got, plain)


def test_shuffle_serves_each_sample_once(path):
    data = CachedDataset(path, fields=["label"])
    order = torch.Generator().manual_seed(0)
    got = torch.cat(
        [b["label"] for b in DataLoader(data, batch_size=3, shuffle=True, generator=order)]
    ).tolist()
    assert sorted(got) == list(range(11))
    assert got != list(range(11))


@pytest.mark.parametrize(
    "load",
    [
        lambda d: DataLoader(Subset(d, range(11)), batch_size=4),
        lambda d: DataLoader(ConcatDataset([d]), batch_size=4),
        lambda d: DataLoader(
            d, batch_size=4, collate_fn=lambda rows: torch.utils.data.default_collate(list(rows))
        ),
        lambda d: DataLoader(
            d, batch_size=4, collate_fn=lambda rows: torch.utils.data.default_collate(rows[:])
        ),
        lambda d: map(
            torch.utils.data.default_collate,
            DataLoader(d, batch_size=4, collate_fn=lambda rows: rows),
        ),
        lambda d: DataLoader(d, batch_sampler=[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
        lambda d: DataLoader(d, batch_size=None, sampler=[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
    ],
)
def test_every_way_around_the_fast_path_gives_the_same(path, load):
    data = CachedDataset(path, fields=FIXED)
    for got, expected in zip(load(data), DataLoader(data, batch_size=4), strict=True):
        assert_equal(got, expected)


def test_a_transform_sees_plain_dicts_and_its_result_is_collated(path):
    data = CachedDataset(path, fields=["joints", "talk"], transform=double)
    (batch,) = list(DataLoader(data, batch_size=11))
    np.testing.assert_array_equal(
        batch["joints"].numpy(), np.stack([s["joints"] * 2 for s in samples()])
    )
    seen = []
    CachedDataset(path, fields=["joints"], transform=lambda row: seen.append(type(row)) or row)[0]
    assert seen == [dict]
    assert CachedDataset(path, fields=["label"], transform=lambda row: int(row["label"]))[5] == 5


def test_invalid_samples_are_replaced_by_valid_ones_and_never_served(dirty):
    data = CachedDataset(dirty, fields=["label"])
    assert len(data) == 11
    seen = set()
    for epoch in range(40):
        data.set_epoch(epoch)
        labels = data[list(range(11))]["label"].tolist()
        assert [labels[i] for i in range(11) if i not in BAD] == [
            i for i in range(11) if i not in BAD
        ]
        assert not set(labels) & set(BAD)
        assert labels == [data.substituted(i) for i in range(11)]
        assert labels == [int(data[i]["label"]) for i in range(11)]
        seen.update(labels[i] for i in BAD)
    assert seen == set(range(11)) - set(BAD)  # every valid sample stands in some time


def test_skip_counts_valid_samples_only(dirty):
    data = CachedDataset(dirty, fields=["label"], on_invalid="skip")
    assert len(data) == 8
    assert [int(row["label"]) for row in data] == [i for i in range(11) if i not in BAD]
    assert data.key(2) == "sample/000003"


def test_raise_names_the_sample_and_its_codes(dirty):
    data = CachedDataset(dirty, on_invalid="raise", fields=["label"])
    assert int(data[3]["label"]) == 3
    with pytest.raises(UsageError, match=r"sample/000002, is invalid \(DC301\)"):
        data[2]
    with pytest.raises(UsageError, match="sample/000006"):
        next(iter(DataLoader(data, batch_size=1, sampler=[6])))


def test_keys_are_those_of_the_index_asked_for(dirty):
    data = CachedDataset(dirty)
    assert data.key(5) == "sample/000005"
    assert data.substituted(5) not in BAD


def test_nothing_valid_is_an_error_at_construction(tmp_path):
    make_cache(tmp_path, {"x": ArraySpec("int8")}, [{"x": np.int8(1)}] * 3, valid=[False] * 3)
    with pytest.raises(UsageError, match="none of the 3 samples is valid"):
        CachedDataset(tmp_path)
    with pytest.raises(UsageError, match="resample, skip, raise"):
        CachedDataset(tmp_path, on_invalid="ignore")


def test_an_empty_cache_is_an_error_at_construction(tmp_path):
    make_cache(tmp_path, {"x": ArraySpec("int8")}, [])
    with pytest.raises(UsageError, match="none of the 0 samples"):
        CachedDataset(tmp_path)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_persistent_workers_see_a_new_epoch(dirty, context):
    data = CachedDataset(dirty, fields=["label"])
    method = multiprocessing.get_context(context)
    loader = DataLoader(
        data, batch_size=11, num_workers=1, persistent_workers=True, multiprocessing_context=method
    )
    for epoch in (0, 3, 7):
        data.set_epoch(epoch)
        (batch,) = list(loader)
        assert batch["label"].tolist() == [data.substituted(i) for i in range(11)]
    del loader


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_an_index_that_carries_its_epoch_is_of_that_epoch_in_any_worker(dirty, context):
    data, other = CachedDataset(dirty, fields=["label"]), CachedDataset(dirty, fields=["label"])
    expected = []
    for epoch in (4, 9):
        other.set_epoch(epoch)
        expected.append([other.substituted(i) for i in range(11)])
    data.set_epoch(1)
    lists = [pack(epoch, np.arange(11)).tolist() for epoch in (4, 9)]
    assert [data.substituted(i) for i in lists[1]] == expected[1]
    assert [data.key(i) for i in lists[1]] == [data.key(i) for i in range(11)]
    assert data[lists[0][:3] + lists[1][3:]]["label"].tolist() == expected[0][:3] + expected[1][3:]
    loader = DataLoader(data, batch_sampler=lists, num_workers=1, multiprocessing_context=context)
    assert [batch["label"].tolist() for batch in loader] == expected
    with pytest.raises(
        IndexError, match="index 11 is out of range: the dataset has 11 items, 0 to 10"
    ):
        data[int(pack(4, np.array(11)))]


def test_an_epoch_that_is_none_is_refused(path):
    with pytest.raises(UsageError, match="epoch=-1 is no whole number"):
        CachedDataset(path).set_epoch(-1)


def test_shared_memory_files_are_needed_for_spawned_workers_only(dirty, monkeypatch):
    # As in a container with a full /dev/shm
    monkeypatch.setattr(torch.Tensor, "share_memory_", None)
    data = CachedDataset(dirty, fields=["label"])
    data.set_epoch(3)
    (batch,) = list(DataLoader(data, batch_size=11))
    assert batch["label"].tolist() == [data.substituted(i) for i in range(11)]
    assert pickle.loads(pickle.dumps(data)).epoch == 3  # noqa: S301  our own bytes


def test_a_pickled_dataset_is_small_and_serves_the_same(dirty):
    data = CachedDataset(dirty, fields=FIXED, seed=5)
    raw = pickle.dumps(data)
    assert len(raw) < 2000
    assert_equal(pickle.loads(raw)[[2, 5, 6]], data[[2, 5, 6]])  # noqa: S301  our own bytes


def test_batches_are_writable_and_belong_to_nobody_else(path):
    data = CachedDataset(path, fields=["joints"])
    first = data[[0, 1]]
    first["joints"].zero_()
    assert data[[0, 1]]["joints"].count_nonzero() > 0


def test_a_damaged_chunk_reaches_no_batch(tmp_path):
    folder = make_cache(tmp_path, SPECS, samples(), k=4)
    file = folder / "fields/joints/c.1.0.0"
    raw = bytearray(file.read_bytes())
    raw[9] ^= 1
    file.write_bytes(raw)
    data = CachedDataset(folder, fields=["joints"])
    assert data[[0, 8]]["joints"].shape == (2, 21, 3)
    for workers in (0, 1):
        with pytest.raises(CorruptionError, match=r"fields/joints/c\.1\.0\.0"):
            list(DataLoader(data, batch_size=11, num_workers=workers))
    with pytest.raises(CorruptionError, match="samples 4 to 7"):
        CachedDataset(folder, verify="full")


EPISODES = {
    "action": ArraySpec("float32", (2,), "T"),
    "reward": ArraySpec("int32", (), "T"),
    "name": ArraySpec("uint8", (), layout.text_dim("name"), "text"),
    "scale": ArraySpec("float64", (1,)),
}


def episodes(lengths):
    return [
        {
            "action": np.arange(2 * n, dtype=np.float32).reshape(n, 2) + 100 * i,
            "reward": np.arange(n, dtype=np.int32) + 1,
            "name": f"e{i}",
            "scale": np.full(1, float(i)),
        }
        for i, n in enumerate(lengths)
    ]


LENGTHS = [5, 0, 3, 8, 2, 6]


@pytest.mark.parametrize("pad", ["none", "edge", "zero"])
@pytest.mark.parametrize("short", ["drop", "pad"])
def test_windows_serve_the_steps_of_the_enumeration(tmp_path, pad, short):
    written = episodes(LENGTHS)
    make_cache(
        tmp_path,
        EPISODES,
        written,
        k=2,
        windows={"length": 3, "stride": 2, "pad": pad, "short": short, "dim": "T"},
    )
    data = CachedDataset(tmp_path)
    expected = []
    for i, n in enumerate(LENGTHS):
        if n == 0 or (n < 3 and short == "drop"):
            continue
        starts = range(0, n, 2) if pad != "none" else range(0, max(n - 3, 0) + 1, 2)
        expected += [(i, first) for first in starts]
    assert len(data) == len(expected)
    batch = data[list(range(len(data)))]
    for at, (i, first) in enumerate(expected):
        steps = np.arange(first, first + 3)
        real = steps < LENGTHS[i]
        for name in ("action", "reward"):
            value = written[i][name][np.minimum(steps, LENGTHS[i] - 1)]
            if pad == "zero":
                value[~real] = 0
            np.testing.assert_array_equal(batch[name][at].numpy(), value)
            assert batch[f"{name}_is_pad"][at].tolist() == (~real).tolist()
        assert batch["name"][at] == f"e{i}"
        assert data.key(at) == f"sample/{i:06d}"
        torch.testing.assert_close(data[at]["action"], batch["action"][at])


def test_windows_of_invalid_episodes_are_replaced_by_windows_of_valid_ones(tmp_path):
    valid = [True, True, False, False, True, True]
    make_cache(tmp_path, EPISODES, episodes(LENGTHS), k=2, valid=valid)
    cut = Windows(2)
    data = CachedDataset(tmp_path, windows=cut)
    assert len(data) == 4 + 0 + 2 + 7 + 1 + 5
    skipped = CachedDataset(tmp_path, windows=cut, on_invalid="skip")
    assert len(skipped) == 4 + 0 + 1 + 5
    good = {tuple(a.flatten().tolist()) for a in skipped[list(range(len(skipped)))]["action"]}
    for epoch in range(5):
        data.set_epoch(epoch)
        batch = data[list(range(len(data)))]
        assert {tuple(a.flatten().tolist()) for a in batch["action"]} <= good
        assert not set(batch["name"]) & {"e2", "e3"}
        again = data[list(range(len(data)))]
        torch.testing.assert_close(batch["action"], again["action"])


def test_windows_false_serves_whole_episodes(tmp_path):
    make_cache(tmp_path, EPISODES, episodes([3, 4]), windows={"length": 2, "dim": "T"})
    assert len(CachedDataset(tmp_path)) == 2 + 3
    whole = CachedDataset(tmp_path, windows=False)
    assert [len(row["action"]) for row in whole] == [3, 4]


def test_no_window_at_all_is_an_error_that_says_how_long_the_episodes_are(tmp_path):
    make_cache(tmp_path, EPISODES, episodes([50, 30]))
    with pytest.raises(
        UsageError, match="none of the 2 valid episodes has 64 steps; the longest has 50"
    ):
        CachedDataset(tmp_path, windows=Windows(64))


def test_ragged_and_padded_batches(path):
    data = CachedDataset(path, fields=["points", "label"])
    written = samples()
    for workers in (0, 1):
        (ragged,) = list(
            DataLoader(data, batch_size=11, collate_fn=collate_ragged, num_workers=workers)
        )
        np.testing.assert_array_equal(
            ragged["points"].numpy(), np.concatenate([s["points"] for s in written])
        )
        assert (
            ragged["points_offset"].tolist()
            == np.cumsum([len(s["points"]) for s in written]).tolist()
        )
        (padded,) = list(
            DataLoader(data, batch_size=11, collate_fn=collate_pad, num_workers=workers)
        )
        assert padded["points"].shape == (11, 4, 3)
        for i, sample in enumerate(written):
            np.testing.assert_array_equal(
                padded["points"][i][padded["points_mask"][i]].numpy(), sample["points"]
            )
            assert padded["points"][i][~padded["points_mask"][i]].count_nonzero() == 0
        assert ragged["label"].tolist() == padded["label"].tolist() == list(range(11))


@pytest.mark.parametrize("transform", [None, dict])
def test_default_collate_of_ragged_fields_says_what_to_use(path, transform):
    data = CachedDataset(path, fields=["points"], transform=transform)
    for workers in (0, 1):
        with pytest.raises(
            UsageError, match=r"points has 1 to 4 rows .*collate_ragged.*collate_pad"
        ):
            list(DataLoader(data, batch_size=11, num_workers=workers))
    (same,) = list(DataLoader(data, batch_sampler=[[1, 5, 9]]))  # equal lengths stack
    assert same["points"].shape == (3, 2, 3)
