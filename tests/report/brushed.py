"""A run whose histograms are chosen from: values on the edges of bins, NaN, infinity, absent ones, every type."""

import numpy as np
import orjson

from datacheck.model.table import CHECKED, Measured, Table, Texts
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
from datacheck.scan.run_documents import RESULT, SAMPLES, SCHEMA, VALID
from datacheck.scan.samples import table_bytes
from tests.report.conftest import result

EVIL = "a.b['\"\\\n\u202e\u540d</script>#{}"
SCHEMA_OF_BRUSHED = (
    'datacheck: 1\nname: brushed\nsamples: {files: "*.npy"}\nfields:\n  x: {role: '
    "points, shape: [P, 3]}\n"
)


def planted(rows):
    """Return columns by name, with what is measured where it cannot be told from the column: (values, present)."""
    rng, whole = np.random.default_rng(7), np.ones(rows, bool)
    size = rng.integers(0, 49, rows) / 48  # each on an edge of a bin, 1 in the last
    size[:2], size[2:5] = [0, 1], [np.nan, np.inf, -np.inf]
    known = whole.copy()
    known[5] = False
    low = rng.normal(0, 1, (rows, 3)).astype(np.float32)
    low[0, 1], low[1, 2], low[2, 0] = np.nan, np.inf, -np.inf
    count = rng.integers(0, 6, rows)
    far = rng.normal(0, 1, rows).astype(np.float32)
    far[:6] = 1e9, 2e9, -1e9, np.inf, -np.inf, np.nan
    prompt = rng.integers(10, 20, rows)
    prompt[:9] = UNKNOWN_LENGTH
    prompt[9] = 5000
    return {
        "x:box": (size, known),
        "x:min": (low, whole),
        "x:max": (-low.astype(np.float64), whole),
        "x:dims": (np.stack([rng.integers(100, 10_000, rows), np.full(rows, 3)], axis=1), whole),
        "x:near": (rng.uniform(0.1, 0.4, rows).astype(np.float32), known),
        "c:ignored": (rng.integers(0, 6, rows) % (count + 1), whole),
        "c:count": (count, whole),
        "x:p99": (far, known),
        ":c:prompt_bytes": (prompt, whole),
        "q:longest": (1 + rng.uniform(0, 1e-3, rows), whole),
        ":bytes": (rng.integers(2**53, 2**54, rows), whole),
        ":largest": (np.exp(rng.normal(0, 4, rows)), whole),
        f"{EVIL}:box": (rng.uniform(0.2, 1, rows).astype(np.float32), known),
        f"{EVIL}:tokens": (rng.integers(3, 9, rows), known),
    }


def brushed_run(folder, rows=400, columns=None, splits=("train", "val")):
    """Write such a run, of which the last ten samples are not fit; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = columns or planted(rows)
    keys = [f"{n}.npy" for n in range(rows)]
    made = Table(
        keys=keys,
        files=[""] * rows,
        inner=[""] * rows,
        splits=Texts([*splits], np.arange(rows, dtype=np.int32) % 2),
        groups=[""] * rows,
        reasons=[""] * rows,
        status=np.full(rows, CHECKED, np.int8),
        nbytes=np.full(rows, 9),
        columns={
            name: Measured(np.asarray(values), present)
            for name, (values, present) in columns.items()
        },
    )
    failing = Texts(["", "DC201"], (np.arange(rows) >= rows - 10).astype(np.int32))
    (folder / RESULT).write_bytes(orjson.dumps(result(rows, 10, [])))
    (folder / SAMPLES).write_bytes(table_bytes(made, failing))
    (folder / VALID).write_bytes(
        orjson.dumps({"excluded": {key: ["DC201"] for key in keys[rows - 10 :]}})
    )
    (folder / SCHEMA).write_text(SCHEMA_OF_BRUSHED, encoding="utf-8")
    return folder
