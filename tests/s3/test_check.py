"""What is built to a bucket is made a second time like any other: before it is there, and when it was there before."""

from __future__ import annotations

import pytest

from datacheck.build.builder import build_cache
from datacheck.cache import layout, open_cache
from datacheck.errors import NondeterministicBuildError
from tests.build.make import MIXED, job_of, mixed, schema_of
from tests.s3.make import everything, listed

STEPS = """
import random

def clean(sample):
    return sample.fields

def by_chance(sample):
    return {**sample.fields, "score": sample.fields["score"] + random.random()}
"""
FIELDS = {name: said for name, said in MIXED.items() if not said.get("optional")}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A job with one step, in shards of a few samples."""
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 13)
    mixed(tmp_path / "data", 5)
    (tmp_path / "steps_there.py").write_text(STEPS)
    return lambda step: job_of(
        schema_of(FIELDS), tmp_path / "data", steps=[f"steps_there:{step}"], paths=[str(tmp_path)]
    )


def test_a_build_that_passes_is_published_and_one_that_does_not_leaves_nothing(url, tmp_path, made):
    built = build_cache(made("clean"), url, staging=tmp_path / "staging", check="all", workers=2)
    assert built.checked == built.shards > 1
    assert open_cache(built.path).manifest.digest
    before = everything(url)
    with pytest.raises(
        NondeterministicBuildError,
        match="It comes by step 1 of 1, steps_there:by_chance: score of 0",
    ):
        build_cache(made("by_chance"), url, staging=tmp_path / "staging", check="all", workers=2)
    assert everything(url) == before
    assert not [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]


def test_a_cache_that_is_there_is_held_against_and_not_touched(url, tmp_path, made):
    for step in ("clean", "by_chance"):
        path = build_cache(made(step), url, staging=tmp_path / "staging").path
        before = listed(path)
        if step == "clean":
            built = build_cache(
                made(step), url, staging=tmp_path / "staging", check="all", workers=2
            )
            assert (built.reused, built.checked) == (True, built.shards)
        else:
            with pytest.raises(
                NondeterministicBuildError, match="one that was there before was not touched"
            ):
                build_cache(made(step), url, staging=tmp_path / "staging", check="all", workers=2)
        assert listed(path) == before
        assert not [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]
