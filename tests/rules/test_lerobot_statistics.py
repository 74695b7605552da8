"""Statistics of LeRobot's meta folder against rows; expected values are NumPy's and LeRobot's formulas."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from datacheck.scan import scan
from datacheck.testing import synth

SIZE = {"episodes": 9, "rows_files": 5, "video_files": 9}
SHARES = {"q01": 0.01, "q10": 0.1, "q90": 0.9, "q99": 0.99}


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("statistics")
    synth.write("lerobot", folder, seed=5, **SIZE)
    return folder


def actions(folder):
    rows = [pq.read_table(path) for path in sorted(folder.glob("data/*/*.parquet"))]
    return [
        np.array(table["action"].to_pylist())[table["episode_index"].to_numpy() == number]
        for table in rows
        for number in np.unique(table["episode_index"].to_numpy())
    ]


def histogram_quantile(values, share):
    """Return what LeRobot's RunningQuantileStats computes: 5,000 bins, linear within a bin."""
    edges = np.linspace(values.min() - 1e-10, values.max() + 1e-10, 5001)
    total = np.cumsum(np.histogram(values, bins=edges)[0])
    at = int(np.searchsorted(total, share * len(values)))
    if at == 0:
        return edges[0]
    inside = total[at] - total[at - 1]
    return edges[at] + (share * len(values) - total[at - 1]) / inside * (edges[at + 1] - edges[at])


def by_episode(folder, share):
    return np.array(
        [[histogram_quantile(c, share) for c in values.T] for values in actions(folder)]
    )


def exact(folder, name):
    return np.quantile(np.concatenate(actions(folder)), SHARES[name], axis=0)


def mean(folder, name):
    weights = [len(values) for values in actions(folder)]
    return np.average(by_episode(folder, SHARES[name]), axis=0, weights=weights)


def envelope(folder, name):
    ends = np.min if SHARES[name] <= 0.5 else np.max
    return ends(by_episode(folder, SHARES[name]), axis=0)


def told(folder, tmp_path, **quantiles):
    path = folder / "meta/stats.json"
    kept = path.read_text(encoding="utf-8")
    stats = json.loads(kept)
    stats["action"] |= {name: np.asarray(value).tolist() for name, value in quantiles.items()}
    path.write_text(json.dumps(stats), encoding="utf-8")
    try:
        report = scan(folder, output=tmp_path / "scan").report
    finally:
        path.write_text(kept, encoding="utf-8")
    return [f.kind for f in report.findings if f.code == "DC519"]


@pytest.mark.parametrize("formula", [exact, mean, envelope])
def test_quantiles_by_each_formula_of_lerobot_are_accepted(clean, tmp_path, formula):
    values = {name: formula(clean, name) for name in SHARES}
    assert told(clean, tmp_path, **values) == []


def test_quantiles_between_the_formulas_are_reported(clean, tmp_path):
    # A tenth of the range away from what each formula gives.
    low, high = exact(clean, "q90"), envelope(clean, "q99")
    values = np.concatenate(actions(clean))
    wrong = high + 0.1 * np.ptp(values, axis=0)
    assert (np.abs(wrong - mean(clean, "q99")) > 0.05 * np.ptp(values, axis=0)).all()
    assert (wrong > low).all()
    assert told(clean, tmp_path, q99=wrong) == ["whole:action"]


def test_a_std_that_32_bits_lost_is_a_warning_that_names_the_cause(tmp_path):
    folder = tmp_path / "data"
    synth.write("lerobot", folder, seed=5, **SIZE)
    for path in sorted(folder.glob("data/*/*.parquet")):
        table = pq.read_table(path)
        values = np.array(table["action"].to_pylist(), dtype=np.float32)
        values[:, 0] = 152.5 + 1e-3 * np.sin(np.arange(len(values)))
        column = table.schema.get_field_index("action")
        kept = type(table["action"].chunk(0)).from_arrays(values.ravel(), 7)
        pq.write_table(table.set_column(column, "action", kept), path)
    path = folder / "meta/stats.json"
    stats = json.loads(path.read_text(encoding="utf-8"))
    moved = np.concatenate(actions(folder))[:, 0]
    for name, value in {"min": moved.min(), "max": moved.max(), "mean": moved.mean()}.items():
        stats["action"][name][0] = float(value)
    for name, share in {**SHARES, "q50": 0.5}.items():
        stats["action"][name][0] = float(np.quantile(moved, share))
    # 10 times the spread: less than 152.5 squared loses in about 100 sums of 32 bits, 0.28.
    stats["action"]["std"][0] = 0.0071
    path.write_text(json.dumps(stats), encoding="utf-8")
    report = scan(folder, output=tmp_path / "scan").report
    (finding,) = [f for f in report.findings if f.code == "DC228"]
    assert (finding.severity, finding.kind) == ("warning", "rounding")
    assert [f.kind for f in report.findings if f.code == "DC114"] == []


def test_a_dataset_below_another_has_statistics_of_its_own(tmp_path):
    synth.write("lerobot", tmp_path / "data", seed=5, **SIZE)
    synth.write("lerobot", tmp_path / "data/other", seed=6, **SIZE)
    for path in sorted((tmp_path / "data/other").glob("data/*/*.parquet")):
        table = pq.read_table(path)
        values = np.array(table["action"].to_pylist(), dtype=np.float32) + 500
        column = table.schema.get_field_index("action")
        kept = type(table["action"].chunk(0)).from_arrays(values.ravel(), 7)
        pq.write_table(table.set_column(column, "action", kept), path)
    report = scan(tmp_path / "data", "lerobot", output=tmp_path / "scan").report
    assert [f.message for f in report.findings if f.code == "DC228"] == []
    moved = [f for f in report.findings if f.code == "DC519"]
    assert {f.kind for f in moved} == {"range:action", "whole:action"}
    keys = {report_key for f in moved for report_key in f.rows}
    assert len(keys) == SIZE["episodes"]
