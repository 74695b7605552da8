"""DC229: few rows far larger than the others and labels far beyond the others are told; what is usual is not."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.sample import Origin, Piece
from tests.rules.harness import judged, measured, schema_of

RNG = np.random.default_rng(7)


def findings(values, role="value"):
    """Return what is said of a field of one sample, which is looked at on its own."""
    schema = schema_of({"fields": {"x": {"role": role}}})
    pieces = [("", Piece("s0", {"x": values}, Origin("f")))]
    return [f for f in judged(schema, measured(schema, pieces)).findings if f.code == "DC229"]


def table(rows=1000, columns=6):
    return RNG.normal(size=(rows, columns)).clip(-3, 3)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.19])
@pytest.mark.parametrize("factor", [300, 1000])
def test_rows_in_another_unit_are_counted(share, factor):
    values = table()
    count = int(share * len(values))
    values[RNG.choice(len(values), count, replace=False)] *= factor
    (finding,) = findings(values)
    assert (finding.measured["rows"], finding.measured["of"]) == (count, 1000)
    assert finding.severity.value == "warning"
    assert finding.cause is None or finding.cause.factor is None  # no unit is guessed, nothing is converted


@pytest.mark.parametrize("factor", [300, 1000])
def test_one_of_few_tables_in_another_unit_is_told(factor):
    values = RNG.normal(size=(4, 17, 3))
    values[2] *= 10 * factor
    assert len(findings(values)) == 1


def held(values, at, by):
    values[at] = by
    return values


@pytest.mark.parametrize(
    "values",
    [
        table(),
        np.exp(RNG.normal(size=(5000, 3)) * 1.5),  # log-normal: a long tail without a gap
        held(table(), slice(0, 50), -9999.0),  # a mark
        table() * np.where(np.arange(1000) < 500, 1, 1000)[:, None],  # half and half is no exception
        held(np.zeros((1000, 2)), slice(0, 20), 0.5),  # sparse events over nothing
        np.concatenate([RNG.normal(size=990) / 100, RNG.normal(size=10) * 100]),  # one column: rewards, events
        np.diag([1600.0, 1600.0, 1.0]),  # a camera
        RNG.normal(size=(4, 17, 3)) * np.array([1, 2, 5, 40])[:, None, None],
        held(table(), 3, np.inf),
    ],
    ids=["normal", "tail", "mark", "half", "sparse", "rewards", "camera", "few", "infinite"],
)
def test_what_is_usual_is_not_told(values):
    assert findings(values) == []


@pytest.mark.parametrize(("label", "rest"), [(99, 5), (200, 18), (77, 1)])
def test_a_label_far_beyond_all_others_is_told(label, rest):
    values = np.arange(2000) % (rest + 1)
    values[::100] = label
    (finding,) = findings(values, "class")
    assert (finding.measured["rows"], finding.measured["low"], finding.measured["rest"]) == (20, label, rest)


@pytest.mark.parametrize(
    ("label", "rest", "number"),
    [(255, 18, 2000), (99, 25, 2000), (40, 5, 2000), (26001, 11, 2000), (99, 5, 60), (99, 200, 2000)],
    ids=["ignored", "near", "small", "instances", "few", "among"],
)
def test_labels_that_may_well_be_meant_are_not_told(label, rest, number):
    values = np.arange(number) % (rest + 1)
    values[::100] = label
    assert findings(values, "class") == []


def test_depth_and_pictures_have_no_labels():
    values = np.arange(4000).reshape(40, 100) % 6
    values[3] = 200
    assert findings(values.astype(np.uint16), "depth") == []
