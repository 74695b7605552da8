"""What a name promises is on the device before the name is there: all else before the manifest, it before the cache."""

from __future__ import annotations

import os

import pytest

from datacheck.build import make_shards, publish
from datacheck.build.builder import build_cache
from datacheck.build.finish import CacheFinisher
from datacheck.cache import layout
from datacheck.plugins import resolve
from datacheck.runtime import fsops
from datacheck.runtime.fsops import System
from datacheck.workers.parallel import TaskResult
from tests.build.make import MIXED, job_of, mixed, schema_of


class Watch(System):
    """Knows by inode what has changed since it was synced, and looks at every rename what it makes visible."""

    def __init__(self, target_parent):
        self.dirty, self.target_parent, self.early = set(), target_parent, []

    def changed(self, path):
        self.dirty.add(path.parent.stat().st_ino)

    def create(self, path, mode, folder=None):
        self.changed(path)
        return super().create(path, mode, folder)

    def write(self, descriptor, data):
        self.dirty.add(os.fstat(descriptor).st_ino)
        return super().write(descriptor, data)

    def write_at(self, descriptor, data, offset):
        self.dirty.add(os.fstat(descriptor).st_ino)
        return super().write_at(descriptor, data, offset)

    def sync(self, descriptor):
        self.dirty.discard(os.fstat(descriptor).st_ino)
        super().sync(descriptor)

    def mkdir(self, path, *more):
        super().mkdir(path, *more)
        self.dirty.add(path.stat().st_ino)
        self.changed(path)

    def unlink(self, path, folder=None):
        self.changed(path)
        super().unlink(path, folder)

    def rename(self, source, target, folder=None, to=None):
        if target.name == layout.MANIFEST:
            self.early += [
                p.name
                for p in target.parent.rglob("*")
                if p != source and p.stat().st_ino in self.dirty
            ]
        if target.parent == self.target_parent:
            self.early += [
                p.name for p in (source, *source.rglob("*")) if p.stat().st_ino in self.dirty
            ]
        self.changed(source)
        super().rename(source, target, folder, to)
        self.changed(target)


def inline(function, tasks, **_):
    for task in tasks:
        yield TaskResult(task, [resolve(function)(task, lambda _: None)])


@pytest.fixture
def watched(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 14)
    mixed(tmp_path / "data", 12)
    job = job_of(schema_of(MIXED), tmp_path / "data")
    watch = Watch(tmp_path / "new/out/tiny/all")
    monkeypatch.setattr(make_shards, "ordered_map", inline)
    monkeypatch.setattr(fsops, "SYSTEM", watch)

    def build(**options):
        built = build_cache(job, tmp_path / "new/out", **options)
        above = [built.path, *list(built.path.parents)[:5]]
        return watch.early, [place.name for place in above if place.stat().st_ino in watch.dirty]

    return build


def test_nothing_is_named_before_it_is_durable(watched):
    assert watched() == ([], [])


@pytest.mark.parametrize("left_out", ["sync_files", "sync_directory", "_sync"])
def test_the_watch_sees_a_sync_that_is_left_out(watched, monkeypatch, left_out):
    monkeypatch.setattr(fsops, left_out, lambda *_: None)
    early, _ = watched()
    assert early


class EndedError(Exception):
    """Ends a build; what it wrote without a sync stays so."""


def ending(*_, **__):
    raise EndedError


@pytest.mark.parametrize(
    "place", ["_write_row_tables", "_write_documents", "_write_build_document"]
)
def test_what_a_build_before_left_unsynced_is_synced_before_it_is_named(
    watched, monkeypatch, place
):
    real = getattr(CacheFinisher, place)
    monkeypatch.setattr(CacheFinisher, place, ending)
    with pytest.raises(EndedError):
        watched()
    monkeypatch.setattr(CacheFinisher, place, real)
    assert watched() == ([], [])


def test_shards_of_a_build_before_are_synced_before_they_are_named(watched):
    with pytest.raises(EndedError):
        watched(progress=lambda tick: ending() if tick.files else None)
    assert watched() == ([], [])


def test_a_name_that_another_builder_made_is_synced_before_it_is_told(watched, monkeypatch):
    """It may have been killed between its rename and its sync."""
    real = publish.acknowledge
    monkeypatch.setattr(publish, "acknowledge", ending)
    with pytest.raises(EndedError):
        watched()
    monkeypatch.setattr(publish, "acknowledge", real)
    assert watched() == ([], [])


def test_the_watch_sees_what_a_build_before_left_unsynced(watched, monkeypatch):
    real = CacheFinisher._write_documents
    monkeypatch.setattr(CacheFinisher, "_write_documents", ending)
    with pytest.raises(EndedError):
        watched()
    monkeypatch.setattr(CacheFinisher, "_write_documents", real)
    monkeypatch.setattr(fsops, "sync_files", lambda *_: None)
    assert watched()[0]
