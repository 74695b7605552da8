"""``datacheck view``: one sample of a scan or of data, as a page or for Rerun."""

import json
import os
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from datacheck.preview.drawings import image
from datacheck.preview.overlays import projection
from datacheck.preview.single import row_of
from datacheck.report.sample_page import log_to_rerun, points_of
from datacheck.schema.model import FieldSpec
from tests.report.pictured import pictures

CLOUDS = """
datacheck: 1
name: clouds
samples: {files: "{split}/{name}.npy"}
fields: {xyz: {role: points, shape: [P, 3], unit: m, size: 0.1..10}}
"""


@pytest.fixture
def clouds(place):
    """Three clouds of which one is a thousand times too large, and their schema."""
    (place / "clouds/train").mkdir(parents=True)
    for number, name in enumerate(["a", "b", "large"]):
        points = np.random.default_rng(number).uniform(0, 1, (50, 3))
        np.save(place / f"clouds/train/{name}.npy", points * (1000 if name == "large" else 1))
    (place / "clouds.yaml").write_text(CLOUDS)
    return place


def said(path):
    """What a page holds."""
    return json.loads(re.search(r'id="run">(.*?)</script>', path.read_text(), re.DOTALL)[1])


def test_a_sample_of_the_newest_scan_is_shown_with_its_findings(clouds, here):
    here("scan", "clouds", "--schema", "clouds.yaml", "--no-previews")
    code, out, err = here("view", "train/large.npy", "--no-open")
    assert (code, out, err) == (0, ".datacheck/view.html\n", "")
    found = said(clouds / ".datacheck/view.html")
    assert (found["key"], found["split"], found["schema"]) == ("train/large.npy", "train", "clouds")
    assert "DC201" in found["codes"]
    assert "DC201" in [finding["rule"] for finding in found["findings"]]
    assert [(one["field"], one["kind"]) for one in found["sample"]["fields"]] == [("xyz", "cloud")]
    # Of other data than those of the newest scan
    code, _, err = here("view", "0007.pkl", "--no-open")
    assert code == 2
    assert ".datacheck, a scan of clouds: no sample '0007.pkl'" in err
    assert "Of another scan: --run DIR; of other data: --data DATA." in err
    here("view", "b.npy", "--no-open", "--out", "b.html")
    assert (said(clouds / "b.html")["key"], said(clouds / "b.html")["findings"]) == (
        "train/b.npy",
        [],
    )


def test_a_sample_of_data_that_nobody_scanned_is_shown(clouds, here):
    data = ("--data", "clouds", "--schema", "clouds.yaml", "--no-open", "--out", "page.html")
    assert here("view", "train/a.npy", *data)[0] == 0
    assert said(clouds / "page.html")["sample"]["fields"][0]["points"] == 50
    code, _, err = here("view", "train/c.npy", *data)
    assert (code, "Did you mean train/a.npy?" in err or "Did you mean train/b.npy?" in err) == (
        2,
        True,
    )
    (clouds / "clouds/train/b.npy").write_bytes(b"no array")
    code, _, err = here("view", "train/b.npy", *data)
    assert (
        code,
        "nothing can be shown of 'train/b.npy': not an .npy file" in err,
        "Did you" in err,
    ) == (2, True, False)


def test_a_file_that_is_not_what_a_run_scanned_is_not_shown_for_it(clouds, here):
    np.save(clouds / "clouds/train/b.npy", b := np.ones((7, 3)))
    here("scan", "clouds", "--schema", "clouds.yaml", "--no-previews")
    path = clouds / "clouds/train/b.npy"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    os.utime(path, (0, 0))  # the bytes are those that were scanned
    here("view", "train/b.npy", "--no-open")
    assert said(clouds / ".datacheck/view.html")["sample"]["fields"][0]["points"] == 7
    np.save(path, b + 1)
    assert here("view", "train/b.npy", "--no-open")[0] == 0
    sample = said(clouds / ".datacheck/view.html")["sample"]
    assert (sample["fields"], "train/b.npy is not what was scanned" in sample["why"]) == ([], True)
    here("view", "train/b.npy", "--data", "clouds", "--schema", "clouds.yaml", "--no-open")
    assert said(clouds / ".datacheck/view.html")["sample"]["fields"][0]["points"] == 7
    # A stranger cannot know the time of a private file, but its size
    path.write_bytes(b"x" * path.stat().st_size)
    os.utime(path, ns=times)
    here("view", "train/b.npy", "--no-open")
    assert "not an .npy file" in said(clouds / ".datacheck/view.html")["sample"]["why"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train/a.npy"], "is no finished run. Scan the data first, or name them"),
        (["train/a.npy", "--schema", "clouds.yaml"], "--schema and --root go with --data"),
        (["train/a.npy", "--data", "clouds", "--run", "x"], "not both"),
        (["train/a.npy", "--data", "nowhere", "--schema", "clouds.yaml"], "nowhere"),
    ],
)
def test_a_request_that_cannot_be_met_says_what_to_do(clouds, here, args, words):
    code, _, err = here("view", *args, "--no-open")
    assert (code, words in err, "Traceback" in err) == (2, True, False), err


def test_a_file_that_is_no_page_of_ours_is_not_overwritten(clouds, here):
    data = ("--data", "clouds", "--schema", "clouds.yaml", "--no-open")
    code, _, err = here("view", "train/a.npy", *data, "--out", "clouds.yaml")
    assert (
        code,
        "was not written by datacheck view, so it is not replaced" in err,
        (clouds / "clouds.yaml").read_text(),
    ) == (2, True, CLOUDS)


def test_the_page_is_opened_unless_it_is_not_wanted(clouds, here, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) > 1)
    data = ("--data", "clouds", "--schema", "clouds.yaml", "--out", "page.html")
    assert "no browser could be opened" in here("view", "train/a.npy", *data)[2]
    assert here("view", "train/a.npy", *data)[2] == ""
    assert opened == [(clouds / "page.html").as_uri()] * 2


def test_the_end_of_a_key_is_enough_where_only_one_ends_so(tmp_path):
    table = SimpleNamespace(keys=["a/1", "b/1", "b/2", "1"])
    table_of = SimpleNamespace(keys=["a/1", "b/1", "b/2"])
    assert (row_of(table, "2", tmp_path), row_of(table, "1", tmp_path)) == (2, 3)
    with pytest.raises(Exception, match="2 samples end with '1'"):
        row_of(table_of, "1", tmp_path)


# -------------------------------------------------------------------------------------------- Rerun


def test_without_rerun_it_is_said_how_to_get_it(clouds, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "rerun", None)
    data = ("--data", "clouds", "--schema", "clouds.yaml")
    code, _, err = here("view", "train/a.npy", *data, "--rerun")
    assert (code, "pip install 'rerun-sdk" in err) == (3, True)


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """What is logged of pictures to a Rerun that is none: pairs of a path and what stands there, with its arguments."""
    logged = []

    class Stream:
        def __init__(self, name):
            assert name == "datacheck"

        def log(self, path, value):
            logged.append(("/".join(path), value))

        def save(self, path):
            logged.append(("saved", path))

        def set_time(self, name, sequence):
            assert (name, type(sequence)) == ("step", int)

        def flush(self):
            logged.append(("flushed", ""))

    kinds = ("Points2D", "Points3D", "LineStrips3D", "EncodedImage", "Scalars", "TextDocument")
    fake = SimpleNamespace(
        RecordingStream=Stream, **{k: lambda *a, _k=k, **b: (_k, a, b) for k in kinds}
    )
    monkeypatch.setitem(sys.modules, "rerun", fake)

    def recorded(fields):
        logged.clear()
        log_to_rerun({"sample": {"fields": fields}}, tmp_path / "x.rrd")
        assert (logged[0], logged[-1]) == (("saved", str(tmp_path / "x.rrd")), ("flushed", ""))
        return logged[1:-1]

    return recorded


def test_every_picture_is_logged_to_rerun(recorded):
    logged = [
        (path, value[0])
        for path, value in recorded([{"field": f"a/{k}", **v} for k, v in pictures().items()])
    ]
    kinds_of = dict(logged)
    assert kinds_of["a/cloud"] == kinds_of["a/skeleton"] == "Points3D"
    assert (kinds_of["a/skeleton/bones"], kinds_of["a/film"], kinds_of["a/note"]) == (
        "LineStrips3D",
        "EncodedImage",
        "TextDocument",
    )
    assert kinds_of["a/timeline/grip"] == "Scalars"
    assert kinds_of["a/projection/projected/joints"] == "Points2D"
    assert len([path for path, _ in logged if path == "a/film"]) == 6


# At most 160 a side
@pytest.mark.parametrize(("side", "by"), [((80, 100), 1), ((40, 50), 0.5), ((320, 400), 1.6)])
def test_projected_joints_are_logged_over_their_image_as_large_as_it_is_and_by_other_axes(
    recorded, side, by
):
    # U = 50 + 100 x/z, v = 40 + 200 y/z
    joints = np.array([[0.5, -0.2, -2.0], [0.4, 0.1, -1], [0, 0.1, 1]])
    camera = FieldSpec(
        role="joints", frame="camera_opencv", intrinsics="k", image_size=(100, 80), shape=[3, 3]
    )
    made = {
        "field": "hand",
        "over": "photo",
        **projection(joints, np.array([100.0, 200, 50, 40]), camera),
    }
    photo = {"field": "photo", **image(np.zeros((*side, 3), np.uint8))}
    logged = dict(recorded([made, photo]))
    assert logged["hand/projected"] == logged["photo"]
    assert logged["hand/projected/joints"][1] == ([[50 * by, 60 * by]],)
    assert logged["hand/projected/as camera_opengl"][1] == (
        [[75 * by, 60 * by], [90 * by, 20 * by]],
    )
    assert "hand/projected" not in dict(recorded([{**made, "over": ""}, photo]))


def test_the_points_of_a_cloud_come_back_from_its_picture():
    made = pictures()["cloud"]
    points = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    np.testing.assert_allclose(points_of(made), points, atol=1e-4)
