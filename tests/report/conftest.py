"""Made runs whose pages are tested: tables of any size, without data."""

import numpy as np
import orjson
import pytest

from datacheck.model.table import CHECKED, Measured, Table, Texts
from datacheck.scan.run_documents import RESULT, SAMPLES, SCHEMA, VALID
from datacheck.scan.samples import table_bytes
from tests.report.real_runs import runs

__all__ = ["runs"]

SCHEMA_TEXT = """\
datacheck: 1
name: made
samples: {files: "*.npy"}
fields:
  xyz: {role: points, shape: [P, 3], unit: m, size: 0.02..0.4}
"""


def finding(code="DC201", failed=3, of=10, **more):
    said = {
        "id": f"{code}:xyz",
        "rule": code,
        "name": "length-unit",
        "severity": "error",
        "level": "sample",
        "fields": ["xyz"],
        "split": "",
        "kind": "mm",
        "message": "size 156 m, allowed 0.02..0.4 m.",
        "failed": failed,
        "of": of,
        "share": failed / of,
        "measured": {"stat": "size", "median": 156.0, "unit": "m"},
        "expected": {"range": [0.02, 0.4], "unit": "m"},
        "cause": {
            "text": "probably mm",
            "kind": "mm",
            "factor": 0.001,
            "explains": failed,
            "alternatives": [],
        },
        "examples": ["a/0.npy"],
        "more": max(0, failed - 1),
        "hides": {"DC226": 2},
        "fix": "Convert the values.",
    }
    return said | more


def result(rows, failed, findings, **more):
    crashed = bool(more.get("crashes"))
    rules = {
        code: {
            "name": "some",
            "status": status,
            "level": "sample",
            "severity": "error",
            "checked": rows,
            "failed": 0,
            "skipped": {},
            "why": "",
            "options": {},
        }
        for code, status in {
            "DC201": "fail",
            "DC221": "pass",
            "DC804": "skip",
            "DC902": "pass",
        }.items()
    }
    said = {
        "format": "datacheck.result/1",
        "run": {
            "id": "R",
            "started": "2026-11-20T00:00:00Z",
            "seconds": 1.5,
            "version": "0.1.0",
            "level": "numeric",
            "command": "datacheck scan data",
            "fail_on": "error",
            "kept_files": 0,
            "kept_samples": 0,
            "rule_seconds": {"DC201": 0.012},
        },
        "dataset": {
            "name": "made",
            "root": "data",
            "digest": "d" * 32,
            "files": 3,
            "bytes": 1000,
            "samples": {"listed": rows, "checked": rows, "unreadable": 0, "skipped": 0},
            "splits": {
                "train": {"samples": rows - rows // 5, "valid": rows - rows // 5 - failed},
                "val": {"samples": rows // 5, "valid": rows // 5},
            },
        },
        "schema": {"name": "made", "digest": "s" * 32},
        "verdict": {
            "status": "crash" if crashed else "fail",
            "exit_code": 4 if crashed else 1,
            "counts": {"error": len(findings), "warning": 0, "info": 0},
            "valid": rows - failed,
        },
        "rules": rules,
        "findings": findings,
        "unchecked": ["pixels of rgb: only shape and dtype were read"],
        "crashes": [],
        "files": {},
    }
    return said | more


def table(rows, failed, *, key="a/{}.npy", keys=None, splits=("train", "val"), shared=None):
    """Rows of which the last `failed` are a thousand times too large; every fifth is of val.

    `shared` is the name of a group in both splits, of which two samples are the same, too.
    """
    size = np.random.default_rng(0).uniform(0.05, 0.3, rows)
    size[rows - failed :] *= 1000
    split = Texts([*splits], (np.arange(rows) % 5 == 4).astype(np.int32))
    whole = np.ones(rows, bool)
    made = Table(
        keys=keys or [key.format(n) for n in range(rows)],
        files=[""] * rows,
        inner=[""] * rows,
        splits=split,
        groups=[""] * rows,
        reasons=[""] * rows,
        status=np.full(rows, CHECKED, np.int8),
        nbytes=np.full(rows, 9),
        columns={
            "xyz:box": Measured(size, whole),
            "xyz:ndim": Measured(np.full(rows, 2), whole),
            "xyz:centroid": Measured(size[:, None] * [0.1, -0.1, 1.0], whole),
            "xyz:min": Measured(-size[:, None] * [1.0, 0.5, 0.1], whole),
            "xyz:dims": Measured(
                np.stack([np.arange(rows) % 7 + 3, np.full(rows, 3)], axis=1), whole
            ),
        },
    )
    if shared is not None:
        content = np.arange(rows)
        content[[4, 9]] = 0, 1
        groups = np.array([shared if n in {0, 4} else f"g{n}" for n in range(rows)], object)
        made.columns.update(
            {":content": Measured(content, whole), ":split_key": Measured(groups, whole)}
        )
    return made, Texts(["", "DC201"], (np.arange(rows) >= rows - failed).astype(np.int32))


@pytest.fixture
def made_run(tmp_path):
    """Return a function that writes a run's files and returns their folder."""

    def make(
        rows=100,
        failed=10,
        findings=None,
        schema=SCHEMA_TEXT,
        keys=None,
        splits=("train", "val"),
        shared=None,
        **more,
    ):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        said = result(
            rows,
            failed,
            [finding(failed=failed, of=rows)] if findings is None else findings,
            **more,
        )
        (folder / RESULT).write_bytes(orjson.dumps(said))
        made, failing = table(rows, failed, keys=keys, splits=splits, shared=shared)
        (folder / SAMPLES).write_bytes(table_bytes(made, failing))
        excluded = {key: ["DC201"] for key in made.keys[rows - failed :]}
        (folder / VALID).write_bytes(orjson.dumps({"excluded": excluded}))
        (folder / SCHEMA).write_text(schema, encoding="utf-8")
        return folder

    return make
