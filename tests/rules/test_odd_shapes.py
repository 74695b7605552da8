"""Whatever shape and numbers a field has, no measurement and no rule fails: one odd file would end the scan."""

import random

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece
from datacheck.schema.grammar import ROLES
from tests.rules.harness import judged, measured, schema_of

SHAPES = [
    (),
    (0,),
    (1,),
    (3,),
    (5,),
    (7,),
    (0, 0),
    (0, 3),
    (1, 0),
    (1, 3),
    (2, 2),
    (3, 3),
    (5, 2),
    (5, 5),
    (6, 1),
    (6, 3),
    (6, 4),
    (6, 7),
    (21, 3),
    (4, 4),
    (1, 1, 3),
    (3, 0, 3),
    (6, 3, 3),
    (4, 4, 3),
    (2, 21, 3),
    (2, 4, 4),
    (8, 8, 1),
]
DTYPES = ["?", "u1", "i4", "i8", "u8", "f2", "f4", "f8"]
NAMES = ["a", "b", "c"]
OTHERS = ["drives", "near", "posed_by", "indexes", "centered_on", "annotates", "encloses"]


def array(rng):
    dtype, shape = np.dtype(rng.choice(DTYPES)), rng.choice(SHAPES)
    if dtype.kind == "b":
        return np.zeros(shape, dtype)
    ends = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    plain = np.random.default_rng(rng.randrange(99)).integers(0, 3, shape).astype(dtype)
    return rng.choice(
        [
            plain,
            plain,
            plain,
            np.zeros(shape, dtype),
            np.full(shape, ends.max),
            np.full(shape, ends.min),
        ]
    )


def field(rng):
    said = {"role": rng.choice(sorted(ROLES))}
    said |= {"shape": rng.choice([["T", 7], ["P", 3], ["T"], [7]])} if rng.random() < 0.3 else {}
    said |= {rng.choice(OTHERS): rng.choice(NAMES)} if rng.random() < 0.3 else {}
    said |= {"columns": "pos:3 quat:4"} if rng.random() < 0.1 else {}
    said |= {"stats": {"mean": [0.0], "std": [1.0]}} if rng.random() < 0.1 else {}
    return said | ({"min_points": 3} if said["role"] == "instance" else {})


@pytest.mark.parametrize("seed", range(40))
def test_no_measurement_fails_on_odd_shapes(seed):
    rng, tried = random.Random(seed), 0
    while tried < 8:
        try:
            schema = schema_of(
                {"fields": {name: field(rng) for name in rng.sample(NAMES, rng.randint(1, 3))}}
            )
        except ValueError:  # roles that do not go together
            continue
        tried += 1
        names = list(schema.fields)
        pieces = [
            ("", Piece(str(i), {name: array(rng) for name in names}, Origin(str(i))))
            for i in range(4)
        ]
        # `measured` refuses failed measurements itself
        assert judged(schema, measured(schema, pieces)).crashes == []
