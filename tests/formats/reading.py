"""Open a file and read every value of it, checking what a format promises of its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.formats.base import open_container

CORPUS = Path(__file__).parents[1] / "corpus"


def read_all(path: Path) -> dict[str, Any]:
    """Return every value of a file by name; raises FormatError where one is refused."""
    with open_container(path) as container:
        names = container.names()
        assert names == sorted(set(names))
        values = {name: container.read(name) for name in names}
        for name, value in values.items():
            check_value(name, value)
            shape, dtype = container.peek(name)
            if isinstance(value, np.ndarray):
                assert (shape, dtype) == (value.shape, value.dtype.str), name
    return values


def check_value(name: str, value: Any) -> None:
    """A value is a plain array, a str, or JSON that survives the way through JSON."""
    if isinstance(value, np.ndarray):
        assert value.dtype.kind in "biuf", name
        assert value.dtype.isnative, name
        assert value.flags.c_contiguous, name
        assert value.dtype.itemsize <= 8, name
    elif isinstance(value, str):
        value.encode("utf-8")
    else:
        assert isinstance(value, list | dict), name
        assert orjson.loads(orjson.dumps(value)) == value
