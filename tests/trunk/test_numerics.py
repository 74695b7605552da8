"""The same on every CPU and for every setting; another as soon as one operation gives another bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from datacheck.errors import StorageError
from datacheck.runtime import numerics

SETTINGS = [
    {"NPY_DISABLE_CPU_FEATURES": "X86_V4"},
    {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR X86_V3"},
    {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX2 FMA3"},  # as older NumPy calls them
    {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "2"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Kathmandu"},
]


@pytest.fixture(autouse=True)
def computed_anew():
    numerics._computed.cache_clear()
    yield
    numerics._computed.cache_clear()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: " ".join(s.values()))
def test_it_is_the_same_whatever_the_cpu_offers(repository, setting):
    code = "from datacheck.runtime import numerics; print(numerics.digest())"
    environment = os.environ | {"PYTHONPATH": str(repository)} | setting
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == numerics.digest()


def a_little_more(function):
    """The last bit of every result is another."""

    def wrapped(*given, **named):
        found = np.asarray(function(*given, **named))
        return np.nextafter(found, np.inf).astype(found.dtype) if found.dtype.kind == "f" else found

    return wrapped


def backwards(function):
    """Ties come in the other order."""
    return lambda values, kind=None: len(values) - 1 - function(values[::-1], kind=kind)


CHANGES = {
    "sqrt": (a_little_more, {"square roots of float32", "square roots of float64"}),
    "einsum": (
        a_little_more,
        {f"{n} of float{b}" for n in ("products", "lengths") for b in (32, 64)},
    ),
    "cumsum": (a_little_more, {"running sums of float32", "running sums of float64"}),
    "rint": (a_little_more, {"casts"}),
    "floor": (lambda f: np.trunc, {"casts"}),
    "argsort": (backwards, {"sorts"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_bit_in_one_operation_is_told_by_name(monkeypatch, name):
    planned = numerics.numeric_environment()
    numerics.check_same(planned)
    change, expected = CHANGES[name]
    monkeypatch.setattr(np, name, change(getattr(np, name)))
    numerics._computed.cache_clear()
    here = numerics.numeric_environment()
    assert {what for what in planned if here[what] != planned[what]} == expected
    with pytest.raises(StorageError) as caught:
        numerics.check_same(planned)
    assert f"the worker on {socket.gethostname()} " in str(caught.value)
    assert f"other results of: {', '.join(sorted(expected))}." in str(caught.value)


@pytest.mark.parametrize("name", ["datacheck", "NumPy", "Python", "byte order"])
def test_another_version_is_told_with_both(name):
    planned = numerics.numeric_environment() | {name: "0.0.1"}
    with pytest.raises(StorageError, match=rf"has {name} \S+ instead of 0.0.1\. It made nothing"):
        numerics.check_same(planned)


def test_what_only_one_of_them_computes_differs():
    with pytest.raises(StorageError, match="other results of: cosines"):
        numerics.check_same(numerics.numeric_environment() | {"cosines": "0"})
