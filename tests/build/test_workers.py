"""The same bytes from one child, from local Dask workers, and from a Dask cluster of two worker processes over TCP."""

from __future__ import annotations

import json

import pytest

from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.errors import StorageError
from tests.build.cluster import cluster
from tests.build.make import MIXED, job_of, mixed, schema_of, tree

STEPS = [
    {"voxel": {"points": "cloud", "edge": 0.5}},
    {"center": {"field": "joints", "at": "centroid"}},
]


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 13)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 13)
    mixed(tmp_path / "data", 40)
    return job_of(schema_of(MIXED), tmp_path / "data", steps=STEPS, invalid={"009.npz": ("DC201",)})


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.slow
def test_bytes_do_not_depend_on_who_builds(job, tmp_path, dask_python):
    alone = build_cache(job, tmp_path / "alone")
    golden = tree(alone.path)
    assert len([p for p in golden if p.startswith("fields/cloud/c.")]) >= 5
    local = build_cache(job, tmp_path / "local", workers=2)
    assert tree(local.path) == golden
    with cluster(tmp_path, scheduler=dask_python, worker=dask_python) as dask:
        far = build_cache(job, tmp_path / "far", scheduler=dask.address)
        assert all(worker.poll() is None for worker in dask.workers)
    assert tree(far.path) == golden
    assert {p.name for p in (alone.path, local.path, far.path)} == {alone.path.name}
    assert json.loads((far.path / "build.json").read_text())["host"]


def test_an_absent_scheduler_is_one_message_and_nothing_is_left(job, tmp_path, monkeypatch):
    monkeypatch.setattr("datacheck.workers.parallel._CONNECT_S", 0.5)
    with pytest.raises(StorageError, match="no Dask scheduler answers"):
        build_cache(job, tmp_path / "out", scheduler="tcp://127.0.0.1:9")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
