"""What a policy needs is held against a LeRobot dataset."""

from __future__ import annotations

import json

import pytest

from datacheck.errors import UsageError
from datacheck.scan import scan
from datacheck.schema.load import load_schema, parse_schema
from tests.sources.test_episodes import FEATURES, info_of, v3
from tests.sources.test_lerobot_audit import statistics

CAMERAS = {"observation.images.top": {"dtype": "image", "shape": [4, 6, 3]}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Scans leave their results in the working directory."""
    monkeypatch.chdir(tmp_path)


def needs(folder, policy):
    """Return severity by kind of what a policy lacks."""
    run = scan(folder, load_schema(f"lerobot_{policy}"))
    return {f.kind: str(f.severity) for f in run.report.findings if f.code == "DC518"}


@pytest.fixture
def folder(tmp_path):
    """A dataset with a camera, whose pictures no rule of policies reads, and all statistics."""
    folder = v3(tmp_path / "data")
    info_of(folder, features=FEATURES | CAMERAS)
    picture = {"min": [0.0] * 3, "max": [1.0] * 3, "mean": [0.5] * 3, "std": [0.2] * 3}
    statistics(folder, **{"observation.images.top": picture})
    return folder


@pytest.mark.parametrize("policy", ["act", "diffusion", "pi0", "pi05", "smolvla", "rdt"])
def test_a_dataset_that_has_all_lacks_only_length(folder, policy):
    assert needs(folder, policy) == {"short": "warning"} | (
        {"empty": "warning"} if policy == "diffusion" else {}
    )


def test_gr00t_is_told_of_its_own_document(folder):
    assert needs(folder, "groot") == {"short": "warning", "modality": "warning"}
    (folder / "meta/modality.json").write_text("{}")
    assert needs(folder, "groot") == {"short": "warning"}


@pytest.mark.parametrize(
    ("policy", "lacking"), [("act", "std"), ("diffusion", "max"), ("pi05", "q99")]
)
def test_a_missing_statistic_of_the_normalizer_is_an_error(folder, policy, lacking):
    path = folder / "meta/stats.json"
    stats = json.loads(path.read_text())
    del stats["action"][lacking]
    path.write_text(json.dumps(stats))
    run = scan(folder, load_schema(f"lerobot_{policy}"))
    (finding,) = [f for f in run.report.findings if (f.code, f.kind) == ("DC518", "statistics")]
    assert f"{lacking} of action in meta/stats.json" in finding.message


def test_a_policy_of_pictures_needs_a_camera(folder):
    info_of(folder, features=FEATURES)
    assert needs(folder, "pi0")["camera"] == "error"
    info_of(folder, features=FEATURES | CAMERAS | {"side": {"dtype": "image", "shape": [8, 6, 3]}})
    assert needs(folder, "diffusion")["sizes"] == "error"
    assert "sizes" not in needs(folder, "act")


def test_a_policy_of_instructions_needs_texts(folder):
    (folder / "meta/tasks.parquet").unlink()
    assert needs(folder, "smolvla")["task"] == "error"
    assert "task" not in needs(folder, "act")


def test_an_unknown_policy_is_refused(folder):
    text = "datacheck: 1\nname: mine\nextends: lerobot\nrules: {DC518: {policy: gpt}}\n"
    with pytest.raises(UsageError, match="allowed are act, diffusion, pi0"):
        scan(folder, parse_schema(text, "mine.yaml"))


def test_without_a_policy_nothing_is_needed(folder):
    info_of(folder, features=FEATURES)
    run = scan(folder)
    assert "DC518" not in {finding.code for finding in run.report.findings}
