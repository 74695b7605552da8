"""States of the global random generators, told step by step."""
# ruff: noqa: NPY002  the global generator is what this is about

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import xxhash

from datacheck.repro.tensors import RandomStates

DRAWS = {
    "nothing": (lambda: None, set()),
    "python": (random.random, {"python"}),
    "python, normal": (lambda: random.gauss(0, 1), {"python"}),
    "numpy": (np.random.rand, {"numpy"}),
    "numpy, normal": (np.random.randn, {"numpy"}),
    "numpy, 700 words": (lambda: np.random.bytes(2800), {"numpy"}),
    "numpy, another seed": (lambda: np.random.seed(np.random.randint(2**31)), {"numpy"}),
    "torch": (lambda: torch.rand(()), {"torch"}),
}


@pytest.fixture(autouse=True)
def put_back():
    states = (
        random.getstate(),
        np.random.get_state(),
        torch.get_rng_state(),
        np.random.get_bit_generator(),
    )
    yield
    np.random.set_bit_generator(states[3])
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@pytest.mark.parametrize("first", DRAWS)
@pytest.mark.parametrize("second", DRAWS)
def test_a_digest_changes_where_its_generator_has_drawn(first, second):
    states = RandomStates()
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    before = states.digests()
    for draw, of in (DRAWS[first], DRAWS[second], DRAWS[second]):
        draw()
        now = states.digests()
        assert {name for name in now if now[name] != before[name]} == of
        assert now == RandomStates().digests()  # as one says that has remembered nothing
        before = now


def test_digests_are_of_the_whole_state():
    np.random.seed(5)
    np.random.randn()  # the second number is kept
    torch.manual_seed(5)
    name, keys, place, kept, number = np.random.get_state()
    expected = xxhash.xxh3_64_hexdigest(keys.tobytes() + f"{name} {[place, kept, number]}".encode())
    found = RandomStates().digests()
    assert kept == 1
    assert found["numpy"] == expected
    assert found["torch"] == xxhash.xxh3_64_hexdigest(torch.get_rng_state().numpy().tobytes())


def test_a_state_that_is_put_back_is_told_as_before():
    states = RandomStates()
    held = np.random.get_state()
    before = states.digests()
    np.random.randn()
    assert states.digests() != before
    np.random.set_state(held)
    assert states.digests() == before


def test_another_generator_of_numpy_is_told():
    states = RandomStates()
    first = states.digests()
    np.random.set_bit_generator(np.random.PCG64(1))
    second = states.digests()
    assert second == states.digests()
    np.random.rand()
    assert len({told["numpy"] for told in (first, second, states.digests())}) == 3
