"""What a range of a histogram stands for: the same samples in its bins, in the page's rows and in samples.parquet."""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datacheck.report.field_figures import histogram
from datacheck.report.html import MOST_ROWS, run_summary, write_page
from datacheck.report.sample_table import EXTRA_SIGNS, SIGNS
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
from tests.report.brushed import EVIL, brushed_run, planted

ALIKE = st.sampled_from([1e16, 1e16 + 2, 1e16 + 4, 0.1, 0.1 + 2**-56, 0.3, -5e-324, 0.0])


@given(
    arrays(np.float64, st.integers(1, 60), elements=ALIKE | st.floats(-1e6, 1e6)),
    st.sampled_from([1.0, 1e-3, 7.0, 1e12]),
    st.booleans(),
)
def test_a_value_is_counted_in_the_bin_whose_edges_it_lies_between(values, factor, positive):
    values = np.abs(values) * factor if positive else values
    said = histogram(values, np.zeros(len(values), np.int64), 1)
    edges = said["edges"]
    for n, many in enumerate(said["counts"][0] if edges else []):
        closed = n == len(edges) - 2
        assert many == sum(
            edges[n] <= v and (v <= edges[n + 1] if closed else v < edges[n + 1]) for v in values
        )


def test_values_on_the_edges_of_a_logarithmic_axis_are_counted_above_them():
    edges = np.geomspace(0.01, 100, 49)
    edges[[0, -1]] = 0.01, 100
    said = histogram(edges, np.zeros(49, np.int64), 1)
    assert (said["edges"], said["log"]) == (edges.tolist(), True)
    assert said["counts"] == [[1] * 47 + [2]]


def numbers_of(name, columns):
    """What is drawn of a column, by arithmetic of ours."""
    values, present = columns.get(name, (None, None))
    stat = name.rpartition(":")[2]
    if stat == "ignored/count":
        (few, _), (every, _) = columns["c:ignored"], columns["c:count"]
        return np.array(
            [a / max(b, 1) for a, b in zip(few.tolist(), every.tolist(), strict=True)]
        ), every > 0
    if values.ndim == 2:
        rows = values.astype(np.float64).tolist()
        picked = {"min": min, "max": max, "dims": lambda row: row[0]}[stat]
        values = np.array(
            [np.nan if any(one != one for one in row) else picked(row) for row in rows]
        )
    values = (
        np.array([round(one, 5) for one in values.tolist()])
        if stat == "longest"
        else values.astype(np.float64)
    )
    present = present & (values < UNKNOWN_LENGTH) if stat == "prompt_bytes" else present
    return values, present


def ranges(edges):
    last = len(edges) - 1
    return [
        (0, last),
        (0, 1),
        (last - 1, last),
        (last // 3, last // 2 + 1),
        (last // 2, last // 2 + 1),
        (1, last),
    ]


def test_bins_rows_and_pyarrow_agree_on_every_kind_of_column(tmp_path):
    columns = planted(400)
    run = run_summary(folder := brushed_run(tmp_path))
    keys = [row[0] for row in run["samples"]["rows"]]
    met = {"below": 0, "above": 0, "nonfinite": 0}
    drawn = {*columns, "c:ignored/count"} - {"c:ignored", "c:count"}
    assert set(run["brushes"]) == drawn
    for measure in (m for field in run["fields"] for m in field["measures"] if m["edges"]):
        brush, edges = run["brushes"][measure["column"]], measure["edges"]
        (values, known), v = (
            numbers_of(measure["column"], columns),
            eval(brush["value"], {"pc": pc}),  # noqa: S307
        )
        for start, stop in ranges(edges):
            upper = (values <= edges[stop]) if stop == len(edges) - 1 else (values < edges[stop])
            wanted = {f"{n}.npy" for n in np.flatnonzero(known & (values >= edges[start]) & upper)}
            assert sum(sum(part[start:stop]) for part in measure["counts"]) == len(wanted), measure[
                "column"
            ]
            assert {
                key
                for key, sign in zip(keys, brush["bins"], strict=True)
                if sign in SIGNS[start:stop]
            } == wanted
            below = (v <= edges[stop]) if stop == len(edges) - 1 else (v < edges[stop])
            found = pq.read_table(folder / "samples.parquet", filters=(v >= edges[start]) & below)
            assert set(found["key"].to_pylist()) == wanted, measure["column"]
        finite = known & np.isfinite(values)
        sides = [
            finite & (values < edges[0]),
            finite & (values > edges[-1]),
            known & ~np.isfinite(values),
        ]
        exprs = [
            (v < edges[0]) & pc.is_finite(v),
            (v > edges[-1]) & pc.is_finite(v),
            ~pc.is_finite(v),
        ]
        for side, rows, expr, sign in zip(
            ("below", "above", "nonfinite"), sides, exprs, EXTRA_SIGNS, strict=True
        ):
            wanted = {f"{n}.npy" for n in np.flatnonzero(rows)}
            assert measure[side] == len(wanted), (measure["column"], side)
            assert {
                key for key, one in zip(keys, brush["bins"], strict=True) if one == sign
            } == wanted
            assert (
                set(pq.read_table(folder / "samples.parquet", filters=expr)["key"].to_pylist())
                == wanted
            )
            met[side] += len(wanted)
    assert min(met.values()) > 0
    assert [name for name, brush in run["brushes"].items() if brush["whole"]] == [f"{EVIL}:tokens"]


def test_only_so_many_columns_have_the_bins_of_their_rows_and_the_first_of_each_field_come_first(
    tmp_path,
):
    rows, whole = MOST_ROWS, np.ones(MOST_ROWS, bool)
    numbers = np.random.default_rng(0).uniform(0, 1, rows)
    columns = {
        f"f{n:02}:{stat}": (numbers + n, whole) for n in range(40) for stat in ("box", "near")
    }
    run = run_summary(folder := brushed_run(tmp_path, rows, columns))
    held = [name for name, brush in run["brushes"].items() if "bins" in brush]
    assert 40 < len(held) < 60
    assert held == [
        *(f"f{n:02}:box" for n in range(40)),
        *(f"f{n:02}:near" for n in range(len(held) - 40)),
    ]
    assert len(run["brushes"]) == 80  # how pyarrow finds them is known of all
    assert write_page(folder).stat().st_size < 3_000_000


@pytest.mark.parametrize("word", ["x", "\x01", "\u540d"])
def test_long_names_of_fields_leave_the_page_small(tmp_path, word):
    columns = {
        f"{n}{word * 20_000}:box": (np.arange(20.0) + n, np.ones(20, bool)) for n in range(20)
    }
    run = run_summary(folder := brushed_run(tmp_path, 20, columns))
    assert 0 < len(run["brushes"]) < 20
    assert write_page(folder).stat().st_size < 3_000_000
