"""One flipped bit of a sample is told the first time it is read: where it lies, whom it concerns and what to do."""

from __future__ import annotations

import contextlib
import random
import sys
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from datacheck.cache.layout import shard_of
from datacheck.errors import CorruptionError, DatacheckError
from datacheck.torch import CachedDataset, CachedLoader, collate_ragged

REPAIR = "Repair it: datacheck cache repair"


@pytest.fixture(scope="module")
def script(repository):
    sys.path.insert(0, str(repository / "scripts/bench/faults"))
    try:
        import flips

        yield flips
    finally:
        sys.path.remove(str(repository / "scripts/bench/faults"))


@pytest.fixture(scope="module", params=["none", "zstd"])
def oracle(script, tmp_path_factory, request):
    """What each byte concerns, reckoned with json and numpy alone."""
    return script.Oracle(script.make(tmp_path_factory.mktemp("flips"), request.param))


@pytest.fixture(scope="module")
def intact(oracle):
    """The right value of a field of a sample."""
    data = CachedDataset(oracle.cache, on_invalid="keep")
    rows = [{name: plain(value) for name, value in data[i].items()} for i in range(len(data))]
    return lambda i, field: rows[i][field]


def plain(value):
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


@lru_cache(2)
def held(oracle):
    """Return where the bytes of samples lie: file, offset and size of each chunk."""
    files = {file: shard_of(file) for file in sorted(oracle.files)}
    paths = {
        file: found[0] for file, found in files.items() if found and found[0].startswith("fields/")
    }
    return [
        (file, *chunk)
        for file, path in paths.items()
        for chunk in oracle.index(file, oracle.arrays[path])
    ]


def data_byte(oracle, share):
    """Return a byte of the samples, each equally likely: file and offset."""
    at = int(share * sum(size for _, _, size in held(oracle)))
    for file, start, size in held(oracle):
        if at < size:
            return file, start + at
        at -= size
    raise AssertionError


def told_by(loader):
    """Return what a loader raises, and keep nothing of it: PyTorch waits 5 s for each worker of a forgotten one."""
    try:
        for _ in loader:
            pass
    except CorruptionError as error:
        return str(error)
    return "nothing was raised"


def assert_told(error, oracle, file, at):
    field, shard, first, stop = oracle.byte(file, at)
    words = f"sample {first}, " if stop - first == 1 else f"samples {first} to {stop - 1}, "
    assert f"{oracle.cache}: {file} (field {field}, shard {shard}, {words}" in str(error)
    assert f"{first:03d}.npz" in str(error)
    assert REPAIR in str(error)


def reader_of(oracle, file, at):
    """Return the field of a byte, the samples that read its chunk, and those that do not."""
    field, _, first, stop = oracle.byte(file, at)
    # In the place of 9, which could not be made, another is served
    made = [i for i in range(oracle.samples) if i != 9]
    return field, [i for i in made if first <= i < stop], [i for i in made if not first <= i < stop]


flip = given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
often = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("verify", ["touch", "always", "full"])
@often
@flip
def test_it_is_told_at_the_first_read(script, oracle, intact, verify, share, bit):
    file, at = data_byte(oracle, share)
    field, served, others = reader_of(oracle, file, at)
    with script.flipped(oracle.cache / file, at, bit):
        if verify == "full":
            with pytest.raises(CorruptionError) as told:
                CachedDataset(oracle.cache, verify=verify)
            assert_told(told.value, oracle, file, at)
            return
        data = CachedDataset(oracle.cache, verify=verify, on_invalid="keep", fields=[field])
        for i in others:  # nobody else is touched
            assert plain(data[i][field]) == intact(i, field)
        for i in served:
            if holds_rows(data, field, i):
                with pytest.raises(CorruptionError) as told:
                    data[i]
                assert_told(told.value, oracle, file, at)


def holds_rows(data, field, i):
    dim = data.cache.fields[field].dim
    return dim is None or int(data.cache.lengths(dim, [i])[0]) > 0


def flips_of(oracle, count):
    rng = random.Random(5)
    found = [(data_byte(oracle, rng.random()), rng.randrange(8)) for _ in range(count)]
    return [(file, at, bit) for (file, at), bit in found if reader_of(oracle, file, at)[1]]


@pytest.mark.parametrize("verify", ["touch", "always"])
def test_it_crosses_the_processes_of_a_loader(script, oracle, verify):
    """The exception of a worker is rebuilt from its text: that must say all of it."""
    for file, at, bit in flips_of(oracle, 5):
        with script.flipped(oracle.cache / file, at, bit):
            data = CachedDataset(oracle.cache, verify=verify, fields=[oracle.byte(file, at)[0]])
            loader = DataLoader(data, batch_size=4, num_workers=2, collate_fn=collate_ragged)
            assert_told(told_by(loader), oracle, file, at)


def test_it_crosses_from_a_spawned_process(script, oracle, forked_workers):
    file, at, bit = flips_of(oracle, 8)[0]
    with script.flipped(oracle.cache / file, at, bit):
        data = CachedDataset(oracle.cache, fields=[oracle.byte(file, at)[0]])
        how = {"num_workers": 1, "multiprocessing_context": "spawn"}
        assert_told(
            told_by(DataLoader(data, batch_size=4, collate_fn=collate_ragged, **how)),
            oracle,
            file,
            at,
        )


@pytest.mark.parametrize("verify", ["touch", "always"])
def test_threads_of_a_loader_tell_it(script, oracle, verify):
    for file, at, bit in flips_of(oracle, 8):
        with script.flipped(oracle.cache / file, at, bit):
            data = CachedDataset(oracle.cache, verify=verify, fields=[oracle.byte(file, at)[0]])
            with CachedLoader(data, batch_size=4, collate_fn=collate_ragged, threads=3) as loader:
                assert_told(told_by(loader), oracle, file, at)


def test_a_flip_that_comes_later_is_told_where_each_read_is_checked(script, oracle):
    file, at, bit = flips_of(oracle, 8)[0]
    i = reader_of(oracle, file, at)[1][0]
    data = CachedDataset(oracle.cache, verify="always", on_invalid="keep")
    data[i]
    with script.flipped(oracle.cache / file, at, bit):
        with pytest.raises(CorruptionError) as told:
            data[i]
        assert_told(told.value, oracle, file, at)


@pytest.mark.parametrize("verify", ["touch", "always", "full"])
@often
@given(number=st.integers(0, 10**9), share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flip_in_any_file_serves_other_values(
    script, oracle, intact, verify, number, share, bit
):
    """Tables, digests, documents and indices too: an error, or the right values."""
    file = sorted(oracle.files)[number % len(oracle.files)]
    flipped = script.flipped(oracle.cache / file, int(share * oracle.files[file]), bit)
    with flipped, contextlib.suppress(DatacheckError):
        data = CachedDataset(oracle.cache, verify=verify, on_invalid="keep")
        for i in set(range(len(data))) - {9}:
            assert all(plain(value) == intact(i, name) for name, value in data[i].items())


def test_the_flips_fall_on_all_fields(oracle):
    rng = np.random.default_rng(0)
    files = {data_byte(oracle, share)[0].rpartition("/")[0] for share in rng.random(3000)}
    assert files >= {"fields/cloud", "fields/labels", "fields/depth", "fields/hand/joints"}
