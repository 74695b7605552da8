"""Scanning after random edits says what scanning everything anew says, whatever earlier scans have seen."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import DamagedRunError
from datacheck.scan import Request, judging, run_scan
from datacheck.scan.run_documents import result, valid
from datacheck.schema.load import parse_schema

LISTED = """
datacheck: 1
name: listed
samples: {files: "{split:train|val}/{seq}/{id}.npy", list: "{split}.txt", group: "{seq}"}
fields:
  x: {role: points, shape: [P, 3], size: 0.5..2, at: array}
  label: {role: class, shape: [P], classes: 5, file: "labels/{id}.npy", optional: true}
splits: {key: seq, disjoint: [train, val]}
"""
JUDGED_AGAINST_THE_LAST = "DC108"


def write(folder, rng):
    for split, seq in (("train", "a"), ("train", "b"), ("val", "c")):
        (folder / split / seq).mkdir(parents=True)
        for i in range(4):
            points = rng.uniform(-0.4, 0.4, (30, 3)).astype(np.float32)
            np.save(folder / split / seq / f"{seq}{i}.npy", points)
    (folder / "labels").mkdir()
    for i in range(4):
        np.save(folder / f"labels/a{i}.npy", rng.integers(0, 5, 30))
    for split in ("train", "val"):
        names = sorted(
            path.relative_to(folder / split).with_suffix("")
            for path in folder.glob(f"{split}/*/*.npy")
        )
        (folder / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))


def cut(path, rng):
    path.write_bytes(path.read_bytes()[: int(rng.integers(0, path.stat().st_size + 1))])


def flip(path, rng):
    data = bytearray(path.read_bytes())
    for place in rng.integers(0, max(1, len(data)), min(1, len(data))):
        data[int(place)] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


EDITS = {
    "remove": lambda path, rng, other: path.unlink(),
    "swap": lambda path, rng, other: path != other and shutil.copy(path, other),
    "copy": lambda path, rng, other: shutil.copy(
        path, path.with_name(f"{path.stem}x{path.suffix}")
    ),
    "cut": lambda path, rng, other: cut(path, rng),
    "flip": lambda path, rng, other: flip(path, rng),
    "touch": lambda path, rng, other: os.utime(path),
}


def edit(folder, rng):
    """Change one file, or the lines of one list; return what, for the message of a failure."""
    kind = str(rng.choice([*EDITS, "unlist", "list"]))
    if kind in EDITS:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        one, other = (files[int(i)] for i in rng.integers(0, len(files), 2))
        EDITS[kind](one, rng, other)
        return f"{kind} {one.relative_to(folder)}"
    names = folder / f"{rng.choice(['train', 'val'])}.txt"
    lines = names.read_text(errors="replace").splitlines() if names.exists() else []
    lines = lines[1:] if kind == "unlist" else [*lines, *lines[:1], f"a/new{rng.integers(9)}"]
    names.write_text("".join(f"{line}\n" for line in lines))
    return f"{kind} {names.name}"


def settle(folder, rng):
    """Make what was written just now look as if it had been there for long."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mtime > 1_500_000_000:
            os.utime(path, (int(rng.integers(1_000_000_000, 1_400_000_000)),) * 2)


def said(run):
    """Everything a scan says but for what is about the run itself, and about changes since the one before."""
    report = result(run.report)
    samples = report["dataset"]["samples"]
    assert (
        samples["listed"]
        == samples["checked"] + samples["unreadable"] + samples["skipped"]
        == len(run.table)
    )
    out = valid(run.report, run.table, run.codes)
    assert out["samples"] - out["valid"] == len(out["excluded"])
    findings = [f for f in report["findings"] if f["rule"] != JUDGED_AGAINST_THE_LAST]
    rules = {
        code: rule for code, rule in report["rules"].items() if code != JUDGED_AGAINST_THE_LAST
    }
    table = run.table
    columns = {
        name: [
            v if there else None
            for v, there in zip(c.values.tolist(), c.present.tolist(), strict=True)
        ]
        for name, c in table.columns.items()
        if c.present.any()
    }
    rows = [
        table.keys,
        table.files,
        table.splits,
        table.groups,
        table.status.tolist(),
        table.reasons,
    ]
    return report["dataset"], findings, rules, report["unchecked"], out, rows, columns


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_after_edits_says_what_a_scan_from_scratch_says(in_tmp, seed):
    rng = np.random.default_rng(seed)
    data, schema = in_tmp / "data", parse_schema(LISTED)
    write(data, rng)
    kept = 0
    for step in range(5):
        done = [edit(data, rng) for _ in range(3)] if step else []
        settle(data, rng)
        again = run_scan(schema, Request(data))
        anew = run_scan(schema, Request(data, output=in_tmp / "anew", rehash=True))
        assert repr(said(again)) == repr(said(anew)), done
        kept += again.report.run["kept_files"]
    assert kept > 20


@pytest.mark.parametrize(
    "change", [lambda path: path.unlink(), lambda path: path.write_text("name: another\n")]
)
def test_the_schema_of_a_run_is_what_it_was_judged_by_whatever_became_of_the_last_one(
    in_tmp, change
):
    rng, schema = np.random.default_rng(0), parse_schema(LISTED)
    write(in_tmp / "data", rng)
    settle(in_tmp / "data", rng)
    kept = Path(run_scan(schema, Request(in_tmp / "data")).report.folder, "schema.yaml")
    said = kept.read_text()
    change(kept)
    again = run_scan(schema, Request(in_tmp / "data"))
    assert again.report.run["kept_files"] > 0
    assert Path(again.report.folder, "schema.yaml").read_text() == said


def test_a_scan_that_begins_again_for_a_damaged_earlier_one_lists_the_files_anew(
    in_tmp, monkeypatch
):
    """Files may change until it is known that the earlier run is damaged."""
    rng, judge = np.random.default_rng(0), judging.judge
    schema = parse_schema(
        "datacheck: 1\nname: clouds\nsamples: {files: '*.npy'}\nfields: {x: {shape: [P, 3]}}\n"
    )
    for name in ("0", "1"):
        np.save(in_tmp / f"{name}.npy", rng.normal(size=(10, 3)))
    run_scan(schema, Request(in_tmp))
    judged = []

    def judge_after_a_change(*arguments, **options):
        judged.append(None)
        if len(judged) == 1:
            np.save(in_tmp / "1.npy", rng.normal(size=(20, 3)))
            np.save(in_tmp / "2.npy", rng.normal(size=(30, 3)))
            raise DamagedRunError("damaged")
        return judge(*arguments, **options)

    monkeypatch.setattr(judging, "judge", judge_after_a_change)
    report = run_scan(schema, Request(in_tmp)).report
    assert (report.exit_code, report.dataset["samples"]["checked"], len(judged)) == (0, 3, 2)
