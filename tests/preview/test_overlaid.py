"""Which samples' joints of a run are laid over which, read again within the time and the room of the pictures."""

import shutil
from types import SimpleNamespace

import numpy as np
import orjson
import pytest

from datacheck.model.finding import Severity
from datacheck.model.table import CHECKED, UNREADABLE
from datacheck.preview import run_previews as pictures
from datacheck.preview import sample_reader
from datacheck.preview.run_previews import overlay_requests
from datacheck.scan import scan
from datacheck.schema.load import parse_schema
from tests.preview.hands import MANO, bones, hand, moved

HANDS = """
datacheck: 1
name: hands
samples: {files: "*.npz"}
fields:
  hand: {role: joints, shape: [21, 3], unit: m, size: 0.014..0.056, skeleton: mano21}
  photo: {role: image, shape: [H, W, 3]}
"""
OF_SPLITS = """
datacheck: 1
name: hands
samples: {files: "{split}/*.npz"}
fields:
  hand: {role: joints, shape: [21, 3], unit: m, size: 0.014..0.056, skeleton: mano21}
when:
  split=val: {hand: {unit: mm, size: 14..56}}
"""
PATIENCE = 60.0


def write_hands(folder):
    """Write thirty hands in metres, and three in millimetres; a file to die of is named so."""
    folder.mkdir()
    for number in range(33):
        name, factor = (
            (f"kill_{number}", 1000)
            if number == 30
            else (f"{number:02}", 1000 if number > 30 else 1)
        )
        np.savez(
            folder / f"{name}.npz",
            hand=moved(hand(), number) * factor,
            photo=np.zeros((8, 8, 3), np.uint8),
        )
    return folder


def scanned(data, schema=HANDS):
    return scan(data, parse_schema(schema), output=data.parent / "run")


@pytest.fixture
def data(tmp_path):
    return write_hands(tmp_path / "data")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return scanned(write_hands(tmp_path_factory.mktemp("hands") / "data"))


def test_the_failing_lie_over_the_mean_of_the_fit_ones(run):
    made = orjson.loads(pictures.write_previews(run, PATIENCE).read_bytes())
    (one,) = made["overlays"]
    assert (one["field"], one["fit"], one["unit"], one["skeleton"]) == ("hand", 30, "m", "mano21")
    assert bones(np.array(one["joints"])) == pytest.approx(MANO.table, abs=2e-4)
    assert {worst["key"] for worst in one["worst"]} == {"kill_30.npz", "31.npz", "32.npz"}
    assert [worst["ratio"] for worst in one["worst"]] == pytest.approx([1000] * 3, rel=1e-3)
    assert {worst["rule"] for worst in one["worst"]} == {"DC201"}
    assert made["left_out"] == one["left_out"] == []
    assert made == pictures.previews_of(run, PATIENCE)


def test_of_moments_the_middle_one_is_laid_over(data):
    for number in range(30):
        steps = np.stack(
            [moved(hand(0.8), number), moved(hand(), number), moved(hand(0.1), number)]
        )
        np.savez(data / f"{number:02}.npz", hand=steps, photo=np.zeros((8, 8, 3), np.uint8))
    for path in sorted(data.glob("*3[0-2].npz")):
        np.savez(
            path, hand=np.stack([moved(hand(), 1) * 1000] * 3), photo=np.zeros((8, 8, 3), np.uint8)
        )
    run = scanned(data, HANDS.replace("[21, 3]", "[T, 21, 3]"))
    (one,) = pictures.previews_of(run, PATIENCE)["overlays"]
    assert one["spread"] == pytest.approx([0] * 21, abs=1e-9)
    assert bones(np.array(one["joints"])) == pytest.approx(MANO.table, abs=2e-4)
    assert [worst["moment"] for worst in one["worst"]] == ["step 1 of 3"] * 3


def test_each_split_is_laid_over_in_one_unit(data):
    for split, factor in (("train", 1), ("val", 1000)):
        write_hands(data / split)
        for path in (data / split).iterdir():
            with np.load(path) as parts:
                np.savez(path, hand=parts["hand"] * factor, photo=parts["photo"])
    for path in data.glob("*.npz"):
        path.unlink()
    (one,) = pictures.previews_of(scanned(data, OF_SPLITS), PATIENCE)["overlays"]
    assert {worst["split"] for worst in one["worst"]} == {"train", "val"}
    assert [worst["ratio"] for worst in one["worst"]] == pytest.approx([1000] * 6, rel=1e-3)
    meters = {"m": 1, "mm": 0.001}[one["unit"]]
    assert bones(np.array(one["joints"])) * meters == pytest.approx(MANO.table, abs=2e-4)
    assert np.array(one["spread"]) * meters == pytest.approx(np.zeros(21), abs=1e-9)


def test_where_no_time_is_left_it_is_said(run):
    made = pictures.previews_of(run, 0.0)
    assert made["overlays"] == [
        {
            "field": "hand",
            "why": "0 fit samples to take the mean of, 5 are needed; the others found no time",
        }
    ]
    assert made["left_out"][-1] == "33 of 33 samples of hand not overlaid: no time left"


def test_what_no_longer_can_be_read_is_counted_with_a_reason(data):
    run = scanned(data)
    (data / "00.npz").write_bytes(b"torn")
    (one,) = pictures.previews_of(run, PATIENCE)["overlays"]
    assert one["fit"] == 29
    assert one["left_out"][0].startswith("1 sample without joints: ")
    assert "changed after it was listed" in one["left_out"][0]
    shutil.rmtree(data)
    (one,) = pictures.previews_of(run, PATIENCE)["overlays"]
    assert one["why"].startswith(
        "0 fit samples to take the mean of, 5 are needed; 33 samples without joints: "
    )
    assert orjson.loads(pictures.write_previews(run, PATIENCE).read_bytes())["left_out"]


def test_a_sample_that_kills_its_reader_is_counted(run, monkeypatch):
    monkeypatch.setattr(sample_reader, "_JOINTS", "tests.preview.misbehaving:read_joints")
    (one,) = pictures.previews_of(run, PATIENCE)["overlays"]
    assert {worst["key"] for worst in one["worst"]} == {"31.npz", "32.npz"}
    assert one["fit"] == 30
    assert one["left_out"] == [
        "1 sample without joints: it could not be read again: the parser was killed by SIGSEGV"
    ]


def test_a_sample_that_its_file_no_longer_holds_is_counted(run, monkeypatch):
    monkeypatch.setattr(sample_reader, "_JOINTS", "tests.preview.misbehaving:read_joints_but_one")
    (one,) = pictures.previews_of(run, PATIENCE)["overlays"]
    assert (one["fit"], len(one["worst"])) == (29, 3)
    assert one["left_out"] == ["1 sample without joints: it is no longer in its file"]


def test_what_finds_no_room_is_said(run, monkeypatch):
    monkeypatch.setattr(pictures, "OVERLAY_BYTES", 2000)
    made = pictures.previews_of(run, PATIENCE)
    assert (made["overlays"], made["left_out"]) == ([], ["hand not overlaid: no room"])


def test_without_a_finding_about_joints_there_is_none(data):
    for path in data.glob("*3[0-2].npz"):
        path.unlink()
    np.savez(data / "x.npz", hand=moved(hand(), 0), photo=np.zeros((1, 1, 3), np.float32))
    run = scanned(data, HANDS.replace("role: image", "role: image, dtype: uint8"))
    assert {name for one in run.report.findings for name in one.fields} == {"photo"}
    assert pictures.previews_of(run, PATIENCE)["overlays"] == []


# ------------------------------------------------------------------------------------ which samples


def table(count, splits):
    status = np.full(count, CHECKED)
    status[100] = UNREADABLE
    keys = [str(n) for n in range(count)]
    return SimpleNamespace(
        keys=keys, splits=splits, files=keys, status=status, reasons=[""] * count
    )


def found(code, rows, worst=(), fields=("hand",), severity=Severity.ERROR):
    rows = np.array(rows)
    return SimpleNamespace(
        code=code, rows=rows, worst=tuple(worst), fields=fields, severity=severity
    )


def test_of_each_finding_the_worst_come_first_and_fit_ones_are_spread_over_the_same_splits():
    splits = ["val" if n >= 600 else "train" for n in range(1000)]
    findings = [
        found("DC201", range(100, 110), [101, 100, 102]),
        found("DC605", range(110, 120), [101]),
        found("DC122", range(120, 130), fields=("photo",)),
        found("DC606", range(130, 160), severity=Severity.WARNING),
        found("DC607", range(160, 190), severity=Severity.INFO),
        found("DC801", [], fields=("hand",)),
    ]
    valid = np.ones(1000, bool)
    valid[:5] = valid[100:130] = False
    (one,) = overlay_requests(findings, table(1000, splits), valid, parse_schema(HANDS))
    assert one.field == "hand"
    first = [(rank, rule, sample.key) for rank, rule, sample in one.failing[:4]]
    assert first == [
        (0, "DC201", "101"),
        (0, "DC606", "130"),
        (1, "DC605", "110"),
        (1, "DC606", "132"),
    ]
    assert len(one.failing) == 24
    rows = [int(sample.key) for sample in one.fit]
    assert (len(rows), len(set(rows))) == (48, 48)
    # Not fit, failing, of another split
    assert not {*range(5), *range(100, 160), *range(600, 1000)} & set(rows)
    fit = [n for n in range(600) if n >= 5 and not 100 <= n < 160]
    assert sorted(rows) == [fit[n * len(fit) // 48] for n in range(48)]
    assert np.ptp(rows[:12]) > 450  # a quarter of them is spread over all, too


def test_what_is_not_read_anyway_is_laid_over_nothing():
    findings = [found("DC201", [100], [100])]
    assert (
        list(
            overlay_requests(
                findings, table(200, ["train"] * 200), np.ones(200, bool), parse_schema(HANDS)
            )
        )
        == []
    )
