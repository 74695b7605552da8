"""What every measurement of fields keeps to: rows of the sample alone, and columns of its own."""

from itertools import combinations

import numpy as np
import pytest

from datacheck.model.sample import Column
from datacheck.model.table import Measured
from datacheck.rules import catalogue
from datacheck.schema.grammar import ROLES
from datacheck.schema.model import FieldSpec

MEASURES = {m.name: m for rule in catalogue().values() for m in rule.measures if m.per == "field"}
SPECS = [
    FieldSpec.model_validate({"role": role} | more)
    for role in (None, *sorted(ROLES))
    for more in (
        {},
        {"shape": ["T", 7], "unit": "rad", "robot": "panda", "order": "wxyz"},
        {"shape": ["P"], "ignore": [-1]},
        {"shape": ["P", 3], "unit": "m", "skeleton": "mano21_ho3d", "up": "z"},
        {"shape": [7], "sentinels": [-1]},
        {"shape": ["T", 7], "columns": "pos:3 quat:4"},
        {"shape": [7], "columns": "pos:3 quat:4"},
        {"classes": 10},
        {"shape": ["T", 3], "unit": "m", "max_speed": 1.0},
        {"shape": ["H", "W", 3], "origin": "top_left"},
    )
]
ITEMS = [(), (1,), (2,), (3,), (4,), (7,), (16,), (0,), (3, 3), (4, 4), (21, 3), (6, 5, 3), (80,)]
LENGTHS = [
    [0],
    [1],
    [2, 0, 1],
    [3, 3, 3],
    [7, 6, 7],
    [5, 1, 9, 0],
    [21, 21, 3],
    [40, 60],
    [5000, 3],
]
DTYPES = ["float64", "float32", "float16", "int64", "int16", "uint8", "bool", "uint64"]
VALUES = {
    "random": lambda rng, shape: 3 * rng.normal(size=shape),
    "equal": lambda rng, shape: np.ones(shape),
    "zero": lambda rng, shape: np.zeros(shape),
    "rising": lambda rng, shape: 0.05 * np.cumsum(np.ones(shape), axis=0),
    "holes": lambda rng, shape: rng.choice([0.0, 1.0, np.nan, np.inf], shape),
    "huge": lambda rng, shape: np.full(shape, 1e300),
}


def array(rng, length, item, dtype, kind):
    values = VALUES[kind](rng, (length, *item))
    if dtype[0] not in "fb" and kind in {"huge", "holes"}:
        return np.full(values.shape, np.iinfo(dtype).max, dtype)
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def told(columns, i):
    """Return what was said of one sample: {column: value} of those that it has."""
    found = {}
    for name, values in columns.items():
        if not isinstance(values, Measured):
            values = Measured(np.array(values), np.ones(len(values), bool))
        if values.present[i]:
            found[name] = np.asarray(values.values[i])
    return found


def exact(said):
    """Return what only equal values have in common: most are compared in a moment so."""
    return {name: (value.dtype, value.shape, value.tobytes()) for name, value in said.items()}


def applicable(measure, most=6):
    specs = [spec for spec in SPECS if measure.applies(spec)]
    return specs[:: max(1, len(specs) // most)][: most + 1]


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_a_sample_is_measured_alike_alone_and_in_a_block(name):
    rng = np.random.default_rng(3)
    measure = MEASURES[name]
    for spec in applicable(measure):
        for item in ITEMS:
            for lengths in LENGTHS:
                if sum(lengths) * np.prod(item) > 50_000:
                    continue
                dtype = DTYPES[rng.integers(len(DTYPES))] if rng.random() < 0.5 else "float32"
                kinds = [list(VALUES)[n] for n in rng.integers(len(VALUES), size=len(lengths))]
                arrays = [
                    array(rng, n, item, dtype, kind) for n, kind in zip(lengths, kinds, strict=True)
                ]
                block = measure.function(Column.of(arrays), spec)
                for i, alone in enumerate(arrays):
                    mine = told(measure.function(Column.of([alone]), spec), 0)
                    beside = told(block, i)
                    if exact(beside) != exact(mine):
                        np.testing.assert_equal(
                            {name: value.tolist() for name, value in beside.items()},
                            {name: value.tolist() for name, value in mine.items()},
                            f"{spec} {item} {lengths} {dtype} {kinds}",
                        )


def test_no_two_measurements_of_one_field_have_a_column_in_common():
    names = {}
    for name, measure in MEASURES.items():
        names[name] = set()
        for spec in applicable(measure):
            for item in ITEMS:
                for dtype in ("float32", "int16", "uint8"):
                    arrays = [np.ones((length, *item), dtype) for length in (40, 21)]
                    names[name] |= set(measure.function(Column.of(arrays), spec))
    for (one, a), (other, b) in combinations(MEASURES.items(), 2):
        if any(a.applies(spec) and b.applies(spec) for spec in SPECS):
            assert not names[one] & names[other], f"{one} and {other}"
