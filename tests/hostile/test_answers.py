"""A child that was taken over may answer anything: what is no answer of its function is refused where it arrives."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.model.table import Measured
from datacheck.plugins import resolve
from datacheck.rules.measures import in_form
from datacheck.workers.wire import check_answer

HALF = "\ud800"


def seen(**changed):
    said = {
        "samples": 1,
        "dtypes": {"float32": 1},
        "ndims": {"1": 1},
        "item": [3],
        "lengths": [4],
        "low": -1.5,
        "high": 2.5,
        "nonfinite_samples": 0,
        "nonfinite_share": 0.0,
        "whole": False,
        "distinct": [],
        "negative": [],
        "row_norms": [0.0, 1.0],
        "box_diagonals": [],
        "mostly_rising": False,
        "falling_samples": 0,
        "tied_samples": 0,
        "trailing_nonzero": [],
        "record_keys": [],
        "chat_samples": 0,
        "speakers": {},
        "marked": {},
        "varied_lists": 0,
        "shuffled_lists": 0,
        "smooth_samples": 0,
        "longest_text": 0,
        "empty_texts": 0,
        "rises": -1,
        "columns": [],
        "unit_triples": [],
        "thinned": False,
    }
    lists = {"unread": [], "unsupported": [], "near_names": {}}
    return {"fields": {"x": said | changed}, "samples": 1, "failed": 0} | lists


def signature(name="x", kind="array", dtype="float32", rank=2, item=(3,), key="k", length=4):
    return [
        {"keys": [key], "fields": {name: [[kind, dtype, rank, list(item)], np.array([length])]}}
    ]


def row(key="a", name="x", digests="0" * 16):
    return {"blocks": [[[name], [key], digests]], "unread": [], "lacking": False}


def drawn(key="k", name="x", why="", kind="text", **more):
    return [
        {
            "key": key,
            "split": "",
            "fields": [{"field": name, "kind": kind} | more],
            "left_out": [],
            "why": why,
        }
    ]


def joints(**changed):
    return [
        {"key": "k", "split": "", "why": "", "joints": np.zeros((5, 3)), "moment": ""} | changed
    ]


CASES = {
    "datacheck.build.field_stats:look": (
        signature(),
        [
            *(signature(dtype=dtype) for dtype in ("object", "str", "datetime64[ns]", "float7")),
            signature(name=HALF),
            signature(key=HALF),
            signature(item=(-5,)),
            signature(length=-1),
        ],
    ),
    "datacheck.repro.sample_digests:digest_items": (
        row(),
        [
            row(key=HALF),
            row(name=HALF),
            row(digests="12"),
            row(digests="g" * 16),
            row(digests="0" * 17),
        ],
    ),
    "datacheck.preview.reading:draw_items": (
        drawn(),
        [
            drawn(key=HALF),
            drawn(name=HALF),
            drawn(why=HALF),
            drawn(text=np.zeros(2)),
            drawn(kind=None),
        ],
    ),
    "datacheck.preview.reading:read_joints": (
        joints(),
        [
            joints(moment=None),
            joints(moment=HALF),
            joints(joints=np.zeros((0, 3))),
            joints(joints=None),
            joints(joints=np.zeros(3)),
            joints(joints=np.full((5, 3), "a")),
            joints(key=HALF),
        ],
    ),
    "datacheck.infer.worker:profile_samples": (
        seen(),
        [
            seen(dtypes={"zz": 4}),
            seen(dtypes={"float32": -1}),
            seen(ndims={"a": 1}),
            seen(item=[-1]),
            seen(item=["a"]),
            seen(low=float("nan")),
            seen(high=10**400),
            seen(row_norms=[10**400]),
            seen(box_diagonals=[None]),
            seen(distinct=[2**70]),
            seen(record_keys=[HALF]),
            seen(lengths=[-1]),
            seen(columns=[[HALF]]),
            seen(unit_triples=[-1]),
        ],
    ),
}


@pytest.mark.parametrize("function", CASES)
def test_an_answer_is_taken_and_none_of_another_shape(function):
    asked = resolve(function)
    good, others = CASES[function]
    check_answer(asked, good, {})
    for other in others:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            check_answer(asked, other, {})


OTHER_FORMS = {
    "text for numbers": ("x:min", np.full((2, 3), "zz")),
    "numbers for text": ("x:dtype", np.zeros(2)),
    "several for one": ("x:count", np.zeros((2, 3), np.int64)),
    "one for several": ("x:min", np.zeros(2)),
    "a fraction for a count": ("x:ndim", np.full(2, np.nan)),
    "text for one or several": ("x:still", np.full(2, "9", object)),
    "text for an attribute": (":attr/frames", np.full(2, "9", object)),
    "several for an attribute": (":attr/frames", np.zeros((2, 3), np.int64)),
}


@pytest.mark.parametrize(("name", "values"), OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_a_column_of_another_form_is_told(name, values):
    assert not in_form({name: Measured(values, np.ones(2, bool))})


def test_columns_in_their_form_and_unknown_ones_are_taken():
    columns = {
        "x:min": np.zeros((2, 3)),
        "x:dtype": np.full(2, "float32", object),
        "x:ndim": np.ones(2, np.int64),
        ":plug:in": np.zeros((2, 5)),
        "x:attr/version": np.full(2, "1"),
        **{
            f":attr/{name}": np.ones(2, np.int64)
            for name in ("seq:max", "ns:dtype", "total:min", "a:b:classes")
        },
    }
    assert in_form({name: Measured(values, np.ones(2, bool)) for name, values in columns.items()})
