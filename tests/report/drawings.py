"""A run of which every kind of drawing has something to draw."""

import numpy as np
import orjson

from datacheck.model.table import CHECKED, Measured, Table, Texts
from datacheck.rules.skeletons import SKELETONS
from datacheck.scan.run_documents import RESULT, SAMPLES, SCHEMA, VALID
from datacheck.scan.samples import table_bytes
from tests.report.conftest import result

DRAWN_SCHEMA = """\
datacheck: 1
name: drawn
samples: {files: "*.npy"}
fields:
  a: {role: action, shape: [T, 3], unit: m, columns: 'move:2 grip', range: -4..4, drives: p, lag: 1}
  p: {role: position, shape: [T, 3], unit: m}
  j: {role: joints, shape: [21, 3], unit: m, skeleton: mano21}
"""


def columns_of(rows):
    rng = np.random.default_rng(0)
    skeleton, lags = SKELETONS["mano21"], np.zeros((rows, 11))
    lags[:, 7] = 0.7
    low = rng.uniform(-1, 0, (rows, 3))
    low[:, 0] = 3
    high = np.where(np.arange(3) == 0, 3, low + 1)
    content = np.arange(rows)
    content[-1] = 0
    bones = np.full((rows, len(skeleton.pairs)), 0.1, np.float32)
    return {
        ":a:delta": lags,
        "a:min": low,
        "a:max": high,
        "p:centroid": rng.normal(0, 0.2, (rows, 3)),
        "p:box": np.full(rows, 0.1),
        "j:pairs": bones,
        ":content": content,
        ":bytes": content + 5,
    }


def drawn_run(folder, rows=40, unfit=10, schema=DRAWN_SCHEMA, **more):
    """Write such a run, of which the last samples are not fit, with more columns; return its folder."""
    whole = np.ones(rows, bool)
    keys = [f"{n}.npy" for n in range(rows)]
    made = Table(
        keys=keys,
        files=[""] * rows,
        inner=[""] * rows,
        splits=[""] * rows,
        groups=[""] * rows,
        reasons=[""] * rows,
        status=np.full(rows, CHECKED, np.int8),
        nbytes=np.full(rows, 9),
        columns={
            name: Measured(values, whole) for name, values in (columns_of(rows) | more).items()
        },
    )
    failing = Texts(["", "DC201"], (np.arange(rows) >= rows - unfit).astype(np.int32))
    (folder / RESULT).write_bytes(orjson.dumps(result(rows, unfit, [])))
    (folder / SAMPLES).write_bytes(table_bytes(made, failing))
    (folder / VALID).write_bytes(
        orjson.dumps({"excluded": {key: ["DC201"] for key in keys[rows - unfit :]}})
    )
    (folder / SCHEMA).write_text(schema, encoding="utf-8")
    return folder
