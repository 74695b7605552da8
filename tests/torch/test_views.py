"""Samples that are not copied: read-only, checked like others, and collated to the same batches."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datacheck.cache import layout, open_cache
from datacheck.cache.codec import Codec
from datacheck.errors import CorruptionError
from datacheck.model.sample import ArraySpec
from datacheck.torch import CachedDataset, CachedLoader, Windows, collate_pad, collate_ragged
from tests.cache.make import make_cache

SPECS = {
    "cloud": ArraySpec("float32", (64, 3)),
    "label": ArraySpec("int64"),
    "points": ArraySpec("float32", (3,), "P"),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text"),
    "depth": ArraySpec("float32", (2,), optional=True),
}
FIXED = ["cloud", "label", "say", "depth"]
COUNT = 11


def written():
    rng = np.random.default_rng(3)
    return [
        {
            "cloud": rng.random((64, 3), np.float32),
            "label": np.int64(i),
            "points": rng.random((i % 4, 3), np.float32),
            "say": f"nummer {i}",
        }
        | ({"depth": np.full(2, i, np.float32)} if i % 2 else {})
        for i in range(COUNT)
    ]


@pytest.fixture(scope="module", params=[Codec(), Codec("zstd", 3)], ids=str)
def path(request, tmp_path_factory):
    valid = [i != 3 for i in range(COUNT)]
    return make_cache(
        tmp_path_factory.mktemp("cache"), SPECS, written(), valid=valid, codec=request.param
    )


def part(row):
    """A transform that keeps some of them and makes new ones of others."""
    points = {"points": row["points"][:2]} if "points" in row else {}
    return row | points | {"head": row["cloud"][:2], "twice": row["label"] * 2}


def equal(left, right):
    assert list(left) == list(right)
    for name, value in left.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(right[name], value, rtol=0, atol=0, equal_nan=True)
        else:
            assert right[name] == value


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("collate", [None, collate_ragged, collate_pad])
@pytest.mark.parametrize("transform", [None, part])
def test_batches_are_those_of_copies_and_nothing_warns(path, io, collate, transform):
    fields = FIXED if collate is None else None
    asked = [[9, 2, 6], [3, 3, 10]]  # of more than one row each; 3 is invalid
    options = {"fields": fields, "io": io, "transform": transform}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = DataLoader(CachedDataset(path, **options), batch_sampler=asked, collate_fn=collate)
        for workers in (0, 1):
            data = CachedDataset(path, copy=False, **options)
            loader = DataLoader(data, batch_sampler=asked, collate_fn=collate, num_workers=workers)
            for left, right in zip(copied, loader, strict=True):
                equal(left, right)
        data = CachedDataset(path, copy=False, **options)
        for left, right in zip(
            copied, CachedLoader(data, batch_sampler=asked, collate_fn=collate), strict=True
        ):
            equal(left, right)


def test_arrays_lie_in_the_map_and_cannot_be_written(path):
    data = CachedDataset(path, copy=False)
    row, again = data[5], data.__getitems__([5])[0]
    for name in ("cloud", "label", "points", "depth"):
        np.testing.assert_array_equal(row[name], written()[5][name])
        assert not row[name].flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            row[name][...] = 0
        if data.cache.compression == "none":
            assert np.shares_memory(row[name], again[name])
    assert data[4]["points"].shape == (0, 3)
    assert CachedDataset(path)[5]["cloud"].numpy().flags.writeable


def test_a_view_outlives_its_dataset(path):
    data = CachedDataset(path, copy=False)
    cloud = data[7]["cloud"]
    del data
    gc.collect()
    np.testing.assert_array_equal(cloud, written()[7]["cloud"])


def test_windows_are_copied_and_whole_fields_are_not(tmp_path):
    specs = {"x": ArraySpec("int64", (), "T"), "goal": ArraySpec("int64", (4,))}
    make_cache(tmp_path, specs, [{"x": np.arange(9), "goal": np.arange(4)}] * 3)
    cut = Windows(3, history=1, pad="edge")
    data, copied = (
        CachedDataset(tmp_path, windows=cut, copy=False),
        CachedDataset(tmp_path, windows=cut),
    )
    row = data[9]
    assert isinstance(row["goal"], np.ndarray)
    assert row["x"].tolist() == [0, 0, 1, 2]
    assert row["x_is_pad"].tolist() == [True, False, False, False]
    equal(copied[[0, 9, 17]], data[[0, 9, 17]])


@pytest.mark.parametrize("verify", ["touch", "always"])
@pytest.mark.parametrize("field", ["cloud", "points"])
def test_damage_is_raised_before_anything_is_seen(tmp_path, verify, field):
    folder = make_cache(tmp_path, SPECS, written())
    file = next((folder / "fields" / field).glob("c.0.*"))
    raw = bytearray(file.read_bytes())
    raw[20] ^= 1
    file.write_bytes(raw)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=f"fields/{field}/.*sample/00000"):
            CachedDataset(folder, copy=False, verify=verify)[1]
    assert open_cache(folder, verify="manifest").view(field, 1).shape == written()[1][field].shape
    with pytest.raises(IndexError):
        open_cache(folder).view(field, COUNT)
