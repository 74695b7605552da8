"""Scans of synthetic data: nothing is wrong with clean data, and whatever is planted is named, in every seed."""

from __future__ import annotations

import shutil

import pytest

from datacheck.scan import scan
from datacheck.testing import faults, synth

SCHEMAS = {"minimind": ("minimind_sft", "minimind_pretrain", "minimind_dpo")}
# Of the released files, so of their likeness
TRUE_OF_LIBERO = ("can start a window of 64", "vectors are longer than pi")


def runs_of(system, data, folder):
    return [scan(data, name, output=folder / str(name)) for name in SCHEMAS.get(system, (None,))]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("system", [*synth.SYSTEMS, "scannet", "scannet_raw", "robomimic", "aloha"])
def test_clean_data_scan_clean_with_the_schema_that_fits(system, seed, clean_data, tmp_path):
    for run in runs_of(system, clean_data(system, seed), tmp_path / "scan"):
        assert run.report.schema["name"].startswith(system)
        # An info asks for nothing
        alarms = [f for f in run.report.findings if f.severity != "info"]
        assert [f.message for f in alarms if not any(t in f.message for t in TRUE_OF_LIBERO)] == []
        assert run.report.valid == run.report.dataset["samples"]["checked"] == len(run.table) > 10
        assert not [v for v in run.report.verdicts if v.verdict == "crash"]


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("system", [*synth.SYSTEMS, "scannet", "scannet_raw"])
def test_every_planted_fault_is_named_with_its_code_and_nothing_else_is_an_error(
    system, seed, clean_data, tmp_path
):
    shutil.copytree(clean_data(system, seed), tmp_path / "data")
    planted = faults.plant(system, tmp_path / "data", seed=seed)
    named: dict[str, set[str]] = {}
    errors: dict[str, set[str]] = {}
    for run in runs_of(system, tmp_path / "data", tmp_path / "scan"):
        for finding in run.report.findings:
            keys = {run.table.keys[int(i)] for i in finding.rows}
            named.setdefault(finding.code, set()).update(keys)
            if finding.severity == "error":
                errors.setdefault(finding.code, set()).update(keys)
    for fault in planted:
        assert set(fault.keys) <= named.get(fault.code, set()), fault
        assert fault.code in named
    for code, keys in errors.items():
        assert keys <= {k for p in planted if p.code == code for k in (*p.keys, *p.others)}, code
