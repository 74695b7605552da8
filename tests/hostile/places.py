"""Places in which honest users have worked, of which tests and scripts change copies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.hostile.ground import ALL, PLAIN, REPOSITORY, SCRIPT, Ground, plain_samples
from tests.repro.traces import make_run


def honest(ground: Ground) -> Path:
    """Make data, a finished run, a cache and runs of training with the real commands; return the place."""
    place = ground.place
    plain_samples(place / "clean")
    (place / "plain.yaml").write_text(PLAIN)
    (place / "all.yaml").write_text(ALL)
    for name in ("a", "b"):
        make_run(place / "runs" / name, steps=3)
    made = ("--data", "clean", "--out", "caches")
    for words in (
        ("scan", "clean", "--schema", "plain.yaml"),
        ("cache", "build", "plain.yaml", *made),
    ):
        ended = ground.run(SCRIPT, *words)
        assert ended.code == 0, ended.text
    return place


def documents(ground: Ground) -> Path:
    """Make a place that has every document that datacheck has written, or looks for beside data."""
    place = honest(ground)
    shutil.copytree(place / "caches", place / "copied")
    for words in (
        ("manifest", "clean", "-o", "manifest.json"),
        ("baseline", ".datacheck/latest", "-o", "baseline.json"),
    ):
        ended = ground.run(SCRIPT, *words)
        assert ended.code == 0, ended.text
    steps = "transforms:\n  - cast: {fields: [x], to: float64}\n"
    (place / "pipe.yaml").write_text(
        f"datacheck: 1\nname: pipe\nschema: plain.yaml\n{steps}cache: {{out: caches}}\n"
    )
    plain_samples(place / "listed")
    (place / "listed/a.list").write_text("s0\ns1\n")
    (place / "listed/b.yaml.list").write_text("s2\n")
    (place / "listed/c.yaml").write_text("- {filepath: s2.npy, file_len: 4}\n")
    (place / "listed/d.json.l").write_text("s3\n")
    said = "{a: a.list, b: b.yaml.list, c: c.yaml, d: d.json.l}"
    fields = "fields: {x: {role: value, shape: [P, 3]}}\n"
    schema = (
        f'datacheck: 1\nname: listed\nsamples: {{files: "{{id}}.npy", list: {said}, counts: '
        f"{{file_len: P}}}}\n{fields}"
    )
    (place / "listed.yaml").write_text(schema)
    shutil.copytree(REPOSITORY / "tests/sources/lerobot/v2.1", place / "v2")
    shutil.copytree(REPOSITORY / "tests/sources/lerobot/v3.0", place / "v3")
    shutil.copytree(REPOSITORY / "tests/sources/mds/plain", place / "mds")
    plain_samples(place / "normed")
    (place / "normed/stats.json").write_text(
        json.dumps({"x": {"mean": [0.0] * 3, "std": [1.0] * 3}})
    )
    stats = "fields: {x: {role: value, shape: [4, 3], stats: {file: stats.json, at: x}}}\n"
    (place / "normed.yaml").write_text(
        f'datacheck: 1\nname: normed\nsamples: {{files: "*.npy"}}\n{stats}'
    )
    (place / "made").mkdir(exist_ok=True)
    return place
