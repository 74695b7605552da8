"""Small datasets in many layouts, and jobs for the builder made from them without a scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build import provenance
from datacheck.build.field_stats import stats_of_blocks
from datacheck.build.job import BuildJob, SplitSamples
from datacheck.schema.model import Schema
from datacheck.sources import list_files, open_source, plan_work
from datacheck.sources.base import Unread
from datacheck.sources.listing import digest_entry
from datacheck.transforms import step


def schema_of(fields: Mapping[str, Any], *, files: str = "*.npz", **more: Any) -> Schema:
    said = {
        "datacheck": 1,
        "name": "tiny",
        "samples": {"files": files, **more.pop("samples", {})},
        "fields": fields,
    }
    return Schema.model_validate(said | more)


def job_of(
    schema: Schema,
    root: Path,
    *,
    steps: Sequence[Any] = (),
    invalid: Mapping[str, tuple[str, ...]] | None = None,
    split: str = "",
    pipeline: str = "tiny",
    paths: Sequence[str] = (),
) -> BuildJob:
    """Read everything once, as a scan would, and judge by `invalid`."""
    invalid = invalid or {}
    listing = list_files(root)
    items = [item for item in plan_work(schema, listing).items if item.split == split]
    source = open_source(schema, root)
    rows: dict[str, tuple[int, bool, int]] = {}
    blocks = []
    for number, item in enumerate(items):
        for found in source.read_all([item], lambda _: None):
            if isinstance(found, Unread):
                rows[found.key] = (number, False, 0)
                continue
            blocks.append(found)
            for key, sample in zip(found.keys, found, strict=True):
                size = sum(
                    len(v) if isinstance(v, str) else np.asarray(v).nbytes
                    for v in sample.fields.values()
                )
                rows[key] = (number, True, size)
    keys = sorted(rows, key=str.encode)
    codes = [invalid.get(key, () if rows[key][1] else ("DC101",)) for key in keys]
    files = [source.files(item) for item in items]
    entries = {
        path: listing.by_path[path]._replace(digest=digest_entry(root, path))
        for some in files
        for path in some
    }
    return BuildJob(
        pipeline=pipeline,
        schema=schema,
        split=split,
        root=root,
        roots={},
        steps=[step(entry) for entry in steps],
        samples=SplitSamples(
            keys=keys,
            items=items,
            item_of=np.array([rows[k][0] for k in keys]),
            inner=["" for _ in keys],
            readable=np.array([rows[k][1] for k in keys]),
            valid=np.array([not c for c in codes]),
            codes=codes,
            nbytes=np.array([rows[k][2] for k in keys]),
        ),
        field_stats=stats_of_blocks(keys, blocks),
        files=files,
        sources=entries,
        paths=paths,
    )


MIXED = {
    "cloud": {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"},
    "labels": {"role": "class", "shape": ["P"], "dtype": "int32"},
    "joints": {"role": "joints", "shape": [21, 3], "dtype": "float64", "unit": "m"},
    "score": {"role": "value", "shape": []},
    "good": {"role": "flag", "shape": [], "dtype": "bool"},
    "bits": {"role": "mask", "shape": ["B"], "dtype": "bool"},
    "extra/weight": {"role": "value", "shape": [2], "optional": True},
    "near": {"role": "points", "shape": ["P", 3], "dtype": "float16", "optional": True},
}


def mixed(root: Path, count: int = 23, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Write `count` .npz samples: ragged, fixed, scalar, bool, optional; one without rows, one unreadable.

    Returns:
        What was written of the readable ones, by key.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    root.mkdir(parents=True, exist_ok=True)
    written = {}
    for i in range(count):
        rows = 0 if i == 4 else int(rng.integers(1, 400))
        sample = {
            "cloud": rng.standard_normal((rows, 3)).astype(np.float32),
            "labels": rng.integers(0, 20, rows).astype(np.int32),
            "joints": rng.standard_normal((21, 3)),
            "score": np.float32(rng.standard_normal()),
            "good": np.bool_(i % 2),
            "bits": rng.integers(0, 2, int(rng.integers(0, 9))).astype(bool),
        }
        if i % 3:
            sample["extra/weight"] = rng.standard_normal(2)
        if i % 4:
            sample["near"] = rng.standard_normal((rows, 3)).astype(np.float16)
        key = f"{i:03d}.npz"
        np.savez(root / key, **sample)
        written[key] = sample
    (root / "007.npz").write_bytes(b"PK\x03\x04 not a zip file")
    written.pop("007.npz", None)
    return written


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file of a cache but build.json."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != "build.json"
    }


def saved_record(folder: Path, g: int) -> provenance.ShardRecord | None:
    """Read the record in a file, whoever wrote it."""
    path = folder / str(g)
    raw = path.read_bytes() if path.is_file() and path.stat().st_size < 1 << 30 else b""
    return provenance.read(folder, g, len(raw) - 32, raw[-32:].decode("ascii", "replace"))
