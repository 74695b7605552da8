"""From files to batches: what the real builder writes is what the real dataset serves."""

from __future__ import annotations

import numpy as np
from torch.utils.data import DataLoader

from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.cache.verify import verify
from datacheck.torch import CachedDataset, collate_ragged
from tests.build.make import MIXED, job_of, mixed, schema_of


def test_what_was_built_is_served_and_nothing_invalid_is(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 14)
    written = mixed(tmp_path / "data")
    job = job_of(schema_of(MIXED), tmp_path / "data", invalid={"003.npz": ("DC201",)})
    built = build_cache(job, tmp_path / "out")
    assert verify(built.path) == []
    data = CachedDataset(tmp_path / "out", verify="always")
    assert len(data) == len(job.samples.keys) == 23
    for i in range(len(data)):
        key, row = data.key(data.substituted(i)), data[i]
        assert key not in {"003.npz", "007.npz"}
        assert key == data.key(i) or data.key(i) in {"003.npz", "007.npz"}
        for name in MIXED:
            if name in written[key]:
                np.testing.assert_array_equal(row[name].numpy(), written[key][name])
            else:
                assert not row[f"{name}_is_present"]
    batch = next(iter(DataLoader(data, batch_size=23, collate_fn=collate_ragged)))
    assert len(batch["cloud"]) == int(batch["cloud_offset"][-1]) == len(batch["labels"])
