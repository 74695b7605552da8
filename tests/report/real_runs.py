"""Real runs of many kinds, each made once: what every machine output has to be able to say."""

import os

import numpy as np
import pytest

from datacheck.scan import baseline, scan, scan_loader
from datacheck.scan.rescore import Rescore, rescore
from datacheck.schema.load import parse_schema
from datacheck.testing.faults import faults_of, plant
from datacheck.testing.synth import write

PLAIN = """
datacheck: 1
name: plain
samples: {files: "*.npy"}
fields: {x: {role: value, shape: [4], range: -100..100}}
rules: {DC225: off}
"""

RAISES = """
def raises(sample):
    return sample.fields["y"]
"""


class Served:
    """A dataset with a broken sample."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 3:
            raise ValueError("no such file")
        return {"x": np.full(4, np.nan if index == 2 else index, np.float32)}


def _folder(place, broken=()):
    place.mkdir()
    for i in range(10):
        np.save(
            place / f"{i}.npy",
            np.random.default_rng(i).normal(size=4) * (1e6 if i in broken else 1),
        )
        os.utime(place / f"{i}.npy", (1e9, 1e9 + i))
    return place


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Runs by name: clean, broken, unreadable, faults, rescored, baseline, partly, reference, crash, loader."""
    place = tmp_path_factory.mktemp("runs")
    before = os.getcwd()
    os.chdir(place)
    try:
        return dict(_runs(place))
    finally:
        os.chdir(before)


def _runs(place):
    plain = parse_schema(PLAIN)
    clean = scan(_folder(place / "good"), plain, output=place / "clean")
    broken = scan(_folder(place / "bad", {3, 5}), plain, output=place / "broken")
    yield from {"clean": clean, "broken": broken}.items()
    (place / "bad/7.npy").write_bytes(b"no array")
    (place / "bad/eight.npy").write_bytes((place / "bad/8.npy").read_bytes()[:90])
    yield "unreadable", scan(place / "bad", plain, output=place / "unreadable")
    known = place / "baseline.json"
    known.write_bytes(
        baseline.make(broken.report.findings, broken.table, "plain", "2026-11-20", "the old rig")
    )
    yield "baseline", scan(place / "bad", plain, output=place / "baseline", baseline=known)
    np.save(place / "bad/9.npy", np.full(4, 1e6))
    yield "partly", scan(place / "bad", plain, output=place / "partly", baseline=known)
    other = parse_schema(PLAIN.replace("-100..100", "-1e9..1e9"))
    yield "rescored", rescore(Rescore(place / "broken", place / "rescored"), other)
    yield (
        "reference",
        scan(place / "bad", plain, output=place / "reference", reference=place / "clean"),
    )
    write("ho3d", place / "ho3d", seed=0)
    plant("ho3d", place / "ho3d", [fault.name for fault in faults_of("ho3d")])
    yield "faults", scan(place / "ho3d", "ho3d", output=place / "faults", fail_on="warning")
    (place / "own.py").write_text(RAISES)
    crashing = parse_schema(PLAIN + "checks: [own:raises]")
    yield "crash", scan(place / "good", crashing, output=place / "crash", paths=[str(place)])
    yield "loader", scan_loader("tests.report.real_runs:Served", output=place / "loader")
