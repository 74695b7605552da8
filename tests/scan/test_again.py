"""Judging a finished run again says what scanning the data afresh with the other thresholds says."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.rules import catalogue
from datacheck.scan import Request, run_scan
from datacheck.scan.rescore import Rescore, rescore
from datacheck.scan.run_documents import NAMES, result, valid
from datacheck.schema.model import Schema

BASE = {
    "datacheck": 1,
    "name": "clouds",
    "samples": {"files": "{split:train|val}/{id}.npz"},
    "fields": {
        "xyz": {
            "role": "points",
            "shape": ["P", 3],
            "unit": "m",
            "size": "0.5..4",
            "range": "-3..3",
            "centered": "box",
        },
        "label": {"role": "class", "shape": ["P"], "classes": 5},
        "actions": {"role": "action", "shape": ["T", 2], "range": "-1..1"},
    },
    "splits": {"key": "file", "disjoint": ["train", "val"]},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Clouds of two scales, off centre, with NaN, labels out of range, a copy in both splits and a damaged file."""
    root = tmp_path_factory.mktemp("clouds")
    rng = np.random.default_rng(0)
    for number in range(24):
        split = "val" if number % 4 == 3 else "train"
        xyz = rng.uniform(-0.5, 0.5, (60, 3)) * (1000 if number in {5, 6} else 1 + number / 8)
        xyz[0] += 0.2 * number
        if number == 9:
            xyz[3] = np.nan
        label = rng.integers(0, 7 if number == 10 else 5, 60)
        actions = rng.uniform(-1.5 if number % 5 == 0 else -1, 1, (30, 2))
        (root / split).mkdir(exist_ok=True)
        np.savez(root / split / f"{number:02d}.npz", xyz=xyz, label=label, actions=actions)
    shutil.copy(root / "train/01.npz", root / "val/copy.npz")
    (root / "train/02.npz").write_bytes((root / "train/02.npz").read_bytes()[:200])
    return root


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run with the thresholds of `BASE`."""
    return run_scan(
        Schema.model_validate(BASE), Request(data, output=tmp_path_factory.mktemp("runs") / "first")
    )


def told(run):
    """All that a run says but for what is about the run itself, and about changes since the one before."""
    report = result(run.report)
    rules = {code: rule for code, rule in report["rules"].items() if code != "DC108"}
    out = valid(run.report, run.table, run.codes)
    return report["dataset"], report["findings"], rules, report["unchecked"], report["crashes"], out


def changed(rng):
    """Draw other thresholds: of the fields, of the rules, of the dataset."""
    low = float(rng.uniform(0.1, 1.2))
    fields = {
        "xyz": {
            "size": f"{low:.3g}..{low * float(rng.uniform(1, 6)):.3g}",
            "range": f"-{rng.uniform(0.3, 4):.2f}..3",
            "unit": str(rng.choice(["m", "mm", "cm"])),
            "centered": str(rng.choice(["box", "centroid", "no"])),
        },
        "actions": {"range": f"-1..{rng.uniform(0.5, 1.2):.2f}"},
    }
    rules = {}
    for code in rng.choice([c for c in catalogue() if c != "DC108"], 6, replace=False).tolist():
        kind = rng.integers(3)
        rules[code] = [
            {"severity": str(rng.choice(["off", "info", "warning", "error"]))},
            {"allow": 0.3},
            {},
        ][kind]
        for name, value in catalogue()[code].defaults.items() if kind == 2 else ():
            if isinstance(value, float) and value:
                rules[code][name] = value * float(rng.choice([0.5, 2.0]))
    said = json.loads(json.dumps(BASE))
    for name, keys in fields.items():
        said["fields"][name] |= {key: value for key, value in keys.items() if rng.uniform() < 0.6}
    return said | {
        "rules": rules,
        "duplicates": {"exact": str(rng.choice(["error", "warning", "info", "off"]))},
    }


@pytest.mark.parametrize("seed", range(8))
def test_other_thresholds_give_what_a_fresh_scan_with_them_gives(data, finished, tmp_path, seed):
    rng = np.random.default_rng(seed)
    schema = Schema.model_validate(changed(rng))
    again = rescore(Rescore(Path(finished.report.folder), output=tmp_path / "again"), schema)
    fresh = run_scan(schema, Request(data, output=tmp_path / "fresh", rehash=True))
    assert repr(told(again)) == repr(told(fresh))
    assert again.report.exit_code == fresh.report.exit_code


def test_the_same_thresholds_give_the_same_run_and_link_its_rows(finished, tmp_path):
    again = rescore(Rescore(Path(finished.report.folder), output=tmp_path / "again"))
    assert repr(told(again)) == repr(told(finished))
    folder, before = Path(again.report.folder), Path(finished.report.folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert (folder / "samples.parquet").samefile(before / "samples.parquet")
    assert (
        json.loads((folder / "result.json").read_bytes())["run"]["rescored"]
        == finished.report.run["id"]
    )
    assert repr(told(rescore(Rescore(folder, output=tmp_path / "third")))) == repr(told(finished))


def test_the_data_may_be_gone(data, finished, tmp_path):
    hidden = data.with_name("elsewhere")
    data.rename(hidden)
    try:
        again = rescore(Rescore(Path(finished.report.folder), output=tmp_path / "again"))
    finally:
        hidden.rename(data)
    assert repr(told(again)) == repr(told(finished))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples": {"files": "**/*.npz"}}, "'samples' decides which samples there are"),
        ({"fields": BASE["fields"] | {"more": {"role": "value"}}}, "field 'more' was not declared"),
        (
            {"fields": {k: v for k, v in BASE["fields"].items() if k != "label"}},
            "field 'label' is not declared",
        ),
        (
            {
                "fields": BASE["fields"]
                | {"label": {"role": "class", "shape": ["P"], "at": "labels"}}
            },
            "another 'at'",
        ),
        (
            {"fields": BASE["fields"] | {"label": {"role": "value", "shape": ["P"]}}},
            "another 'role' of field 'label'",
        ),
        (
            {"fields": BASE["fields"] | {"label": BASE["fields"]["label"] | {"range": "0..4"}}},
            "field 'label', which was not measured .measured by extent",
        ),
        (
            {"fields": BASE["fields"] | {"xyz": BASE["fields"]["xyz"] | {"sentinels": [0]}}},
            "another 'sentinels' of field 'xyz'",
        ),
    ],
)
def test_what_needs_the_data_is_refused_with_the_measurement_that_would_change(
    finished, tmp_path, change, said
):
    with pytest.raises(UsageError, match=said) as refused:
        rescore(
            Rescore(Path(finished.report.folder), output=tmp_path / "again"),
            Schema.model_validate(BASE | change),
        )
    assert "the data must be read" in str(refused.value)
    assert not (tmp_path / "again").exists()


def test_a_rule_that_was_off_has_no_measurements_to_judge(data, tmp_path):
    off = Schema.model_validate(BASE | {"rules": {"DC221": {"severity": "off"}}})
    first = run_scan(off, Request(data, output=tmp_path / "first"))
    again = rescore(Rescore(Path(first.report.folder), output=tmp_path / "again"), off)
    assert repr(told(again)) == repr(told(first))


@pytest.mark.parametrize(
    "damage", ["nothing", "empty", "listing.npz", "schema.yaml", "samples.parquet"]
)
def test_a_folder_that_is_no_whole_run_is_refused(finished, tmp_path, damage):
    folder = tmp_path / "run"
    if damage != "nothing":
        shutil.copytree(finished.report.folder, folder)
        for path in folder.iterdir():
            if damage == "empty":
                path.unlink()
            elif path.name == damage:
                path.write_bytes(b"{")
    with pytest.raises(UsageError, match=r"no finished run|cannot be read"):
        rescore(Rescore(folder))
