"""Pictures of LeRobot's videos: what a deep scan decodes, finds, and survives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datacheck.model.finding import RuleVerdict, Verdict
from datacheck.model.table import Note
from datacheck.scan import scan
from datacheck.schema.load import load_schema
from datacheck.sources import lerobot_pictures, list_files, plan_work, with_pictures
from datacheck.sources.lerobot_clips import list_clips, read_clips
from datacheck.sources.roots import sandbox_of
from datacheck.workers.child import Death
from datacheck.workers.parallel import TaskResult, ordered_map
from tests.sources import clips
from tests.sources.clips import ROWS, SIZE, scene

av = pytest.importorskip("av", reason="PyAV writes the videos of these tests (extra: video)")

BLACK = np.zeros((SIZE, SIZE, 3), np.uint8)
TOP = "observation.images.top"
WRIST = "observation.images.wrist"


def notes_of(folder: Path) -> list[Note]:
    spec, listing = load_schema("lerobot"), list_files(folder)
    work = with_pictures(plan_work(spec, listing), spec, listing)
    return [note for note in work.notes if note.code == "DC517"]


def found(folder: Path) -> set[tuple[str, str, int]]:
    return named(notes_of(folder))


def named(notes: list[Note]) -> set[tuple[str, str, int]]:
    """Kind, camera and episode of each note but those about what was looked at."""
    return {
        (note.about["kind"], note.about["camera"], int(note.key[-12:]))
        for note in notes
        if note.about["kind"] != "seen"
    }


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    clips.write(folder)
    return folder


@pytest.mark.parametrize(
    ("codec", "gop"), [("libx264", 2), ("libx264", 250), ("mpeg4", 12), ("libsvtav1", 2)]
)
def test_clean_videos_give_nothing(tmp_path: Path, codec: str, gop: int) -> None:
    before = os.sched_getscheduler(0)
    clips.write(tmp_path, codec=codec, gop=gop)
    assert os.sched_getscheduler(0) == before
    (note,) = notes_of(tmp_path)
    assert note.about == {"kind": "seen"}
    assert note.reason.endswith("pictures of 12 clips")


def test_rows_and_pictures_are_those_that_were_written(tmp_path: Path) -> None:
    """Each row is drawn as one grey level, so that a picture says which row it is of."""
    grey = [40 + 4 * row for row in range(ROWS)]
    clips.write(
        tmp_path,
        lambda c, e, r: np.full((SIZE, SIZE, 3), grey[r] + 10 * (e % 2), np.uint8),
        episodes=3,
        cameras=("top",),
    )
    task = {"root": str(tmp_path), "roots": {}}
    (dataset,) = list_clips(task | {"items": [{"path": "meta/info.json"}]}, lambda item: None)
    (video,) = read_clips(task | {"items": dataset["files"]}, lambda item: None)
    assert len(video["clips"]) == 3
    for episode, clip in enumerate(video["clips"]):
        rows, mean = clip[3], clip[5]
        assert rows[0] == 0
        assert rows[-1] == ROWS - 1
        assert len(rows) >= 9
        expected = [grey[row] + 10 * (episode % 2) for row in rows]
        assert np.abs(np.subtract(mean, expected)).max() < 3  # neighbouring rows differ by 4


@pytest.mark.parametrize("gop", [2, 100])
def test_black_clip(tmp_path: Path, gop: int) -> None:
    def draw(camera: int, episode: int, row: int) -> np.ndarray:
        return BLACK if (camera, episode) == (0, 2) else scene(camera, episode, row)

    clips.write(tmp_path, draw, gop=gop)
    assert found(tmp_path) == {("black", TOP, 2)}


def test_partly_black_clip_counts_where_it_is_unusual(tmp_path: Path) -> None:
    def draw(camera: int, episode: int, row: int) -> np.ndarray:
        covered = row < 25 and (camera == 1 or episode == 4)
        return BLACK if covered else scene(camera, episode, row)

    clips.write(tmp_path, draw)
    assert found(tmp_path) == {("black", TOP, 4)}


def freeze(camera: int, episode: int, row: int) -> np.ndarray:
    """The wrist camera of episode 3 repeats the picture of row 10 up to row 34."""
    stands = (camera, episode) == (1, 3) and 10 <= row < 35
    return scene(camera, episode, 10 if stands else row)


@pytest.mark.parametrize(("codec", "gop"), [("libx264", 2), ("libx264", 250), ("libsvtav1", 2)])
def test_frozen_camera(tmp_path: Path, codec: str, gop: int) -> None:
    clips.write(tmp_path, freeze, codec=codec, gop=gop)
    notes = notes_of(tmp_path)
    assert named(notes) == {("frozen", WRIST, 3)}
    (note,) = [note for note in notes if note.about["kind"] == "frozen"]
    assert 10 <= note.about["first"] < note.about["last"] < 35


def test_camera_that_often_sees_a_resting_scene_is_not_frozen(tmp_path: Path) -> None:
    clips.write(tmp_path, lambda c, e, r: scene(c, e, max(r, 20)))
    assert found(tmp_path) == set()


def verdict(folder: Path, out: Path) -> tuple[RuleVerdict, list[str]]:
    """The verdict of DC517, and severity and kind of its findings."""
    report = scan(folder, "lerobot", level="deep", output=out).report
    findings = [finding for finding in report.findings if finding.code == "DC517"]
    (rule,) = [rule for rule in report.verdicts if rule.code == "DC517"]
    return rule, [f"{finding.severity.value} {finding.kind}" for finding in findings]


@pytest.mark.parametrize(("moves", "expected"), [(True, [f"warning frozen:{WRIST}"]), (False, [])])
def test_frozen_counts_only_while_the_state_moves(
    tmp_path: Path, moves: bool, expected: list[str]
) -> None:
    def state(episode: int, row: int) -> list[float]:
        stands = not moves and episode == 3 and 10 <= row < 35
        return clips.motion(episode, 10 if stands else row)

    clips.write(tmp_path / "data", freeze, state=state)
    assert verdict(tmp_path / "data", tmp_path / "out")[1] == expected


@pytest.mark.parametrize("gop", [2, 100])
def test_pictures_of_the_next_episode(tmp_path: Path, gop: int) -> None:
    """The whole video of one camera begins three pictures late."""

    def draw(camera: int, episode: int, row: int) -> np.ndarray:
        if camera:
            return scene(camera, episode, row)
        return scene(camera, *divmod(min(episode * ROWS + row + 3, 6 * ROWS - 1), ROWS))

    clips.write(tmp_path, draw, gop=gop)
    notes = notes_of(tmp_path)
    assert named(notes) == {("next", TOP, episode) for episode in range(5)}
    reasons = {note.reason[:19] for note in notes if note.about["kind"] == "next"}
    assert reasons == {"the last 3 pictures"}


def test_episodes_cut_from_one_recording(tmp_path: Path) -> None:
    """Without a jump, pictures that go on in the next episode are no fault."""
    clips.write(tmp_path, lambda c, e, r: scene(c, 0, (e * ROWS + r) // 6))
    assert found(tmp_path) == set()


def test_two_cameras_with_the_same_pictures(tmp_path: Path) -> None:
    """The third camera is another one."""
    clips.write(tmp_path, lambda c, e, r: scene(c // 2, e, r), cameras=("left", "right", "top"))
    pair = "observation.images.left and observation.images.right"
    assert found(tmp_path) == {("same", pair, episode) for episode in range(6)}


def test_two_covered_cameras_are_not_the_same(tmp_path: Path) -> None:
    clips.write(tmp_path, lambda c, e, r: BLACK if e == 1 else scene(c, e, r))
    assert {kind for kind, *_ in found(tmp_path)} == {"black"}


# ------------------------------------------------------------------------------------------- damage

CONFIG = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd", b"avc1", b"avcC")
EDITS = (b"moov", b"trak", b"edts")


def noise(data: bytes, share: float = 0.0) -> bytes:
    """Random bytes in the place of the pictures, behind a share of them."""
    ((start, stop),) = [(a, b) for kind, a, b in clips.boxes(data) if kind == b"mdat"]
    begin = start + 8 + int(share * (stop - start - 8))
    return data[:begin] + np.random.default_rng(0).bytes(stop - begin) + data[stop:]


def damaged(clean: Path, folder: Path, damage: Callable[[bytes], bytes]) -> Path:
    shutil.copytree(clean, folder)
    path = folder / f"videos/{TOP}/chunk-000/file-000.mp4"
    path.write_bytes(damage(path.read_bytes()))
    return folder


EVERY = {("undecodable", TOP, episode) for episode in range(6)}


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda data: data[: len(data) * 2 // 3], {("unread", TOP, e) for e in range(6)}),
        (noise, EVERY),
        (lambda data: noise(data, 0.6), {("undecodable", TOP, e) for e in (4, 5)}),
        (lambda data: clips.replace_box(data, CONFIG, clips.huge_h264_config(100_000)), EVERY),
        (lambda data: clips.replace_box(data, CONFIG, clips.huge_h264_config(16_384)), EVERY),
        (lambda data: clips.replace_box(data, EDITS, clips.endless_edits(1_000)), EVERY),
        (lambda data: clips.replace_box(data, EDITS, clips.endless_edits(500_000)), EVERY),
    ],
    ids=["truncated", "random", "later", "huge", "large", "edits", "endless"],
)
def test_damaged_video(
    clean: Path,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    expected: set[tuple[str, str, int]],
) -> None:
    """The other camera is judged all the same; memory stays below 1 GB."""
    folder = damaged(clean, tmp_path / "data", damage)
    notes = notes_of(folder)
    assert expected <= named(notes)
    assert {camera for _, camera, _ in named(notes)} == {TOP}
    assert len([note for note in notes if note.about["kind"] == "seen"]) == 1
    assert peak_memory(folder) < 1e9


def peak_memory(folder: Path) -> int:
    """The largest memory, in bytes, of a child that reads the videos of a dataset."""
    task = {"root": str(folder), "roots": {}}
    (dataset,) = list_clips(task | {"items": [{"path": "meta/info.json"}]}, lambda item: None)
    sandbox = sandbox_of(folder, {})
    (outcome,) = ordered_map(
        "tests.sources.test_pictures:read_and_measure",
        [task | {"items": dataset["files"]}],
        sandbox=sandbox,
    )
    peaks = [int(line.split()[1]) << 10 for line in outcome.payloads[0]]
    return max(peaks)


def read_and_measure(task: dict[str, object], beat: Callable[[int], None]) -> list[str]:
    read_clips(task, beat)
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("VmHWM")]


def test_scan_of_a_damaged_video(clean: Path, tmp_path: Path) -> None:
    folder = damaged(clean, tmp_path / "data", noise)
    rule, findings = verdict(folder, tmp_path / "out")
    assert findings == [f"error undecodable:{TOP}"]
    assert rule.verdict is Verdict.FAIL


def test_video_whose_header_cannot_be_read_is_skipped(clean: Path, tmp_path: Path) -> None:
    folder = damaged(clean, tmp_path / "data", lambda data: data[:-5_000])
    rule, findings = verdict(folder, tmp_path / "out")
    assert findings == []
    assert rule.verdict is Verdict.SKIP


def test_missing_video(clean: Path, tmp_path: Path) -> None:
    shutil.copytree(clean, tmp_path / "data")
    (tmp_path / f"data/videos/{WRIST}/chunk-000/file-000.mp4").unlink()
    assert found(tmp_path / "data") == {("unread", WRIST, e) for e in range(6)}


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("silent", "unread"),
        ("endless", "unread"),
        ("busy", "unread"),
        ("killed", "unread"),
        ("memory", "fault"),
        ("", "fault"),
    ],
)
def test_a_slow_machine_condemns_no_video(kind: str, field: str) -> None:
    death = Death({"path": "a.mp4", "clips": [["k", 40, 0.0, None]]}, "how", kind=kind)
    clips = lerobot_pictures._by_path(iter([TaskResult(None, deaths=[death])]))
    (clip,) = clips["a.mp4"]
    assert (clip.fault, clip.unread) == (("how", "") if field == "fault" else ("", "how"))


@pytest.mark.parametrize("start", [-1e300, 1e300, 1.7e308, -1.7e308])
def test_a_start_that_no_video_has_is_unread(clean: Path, start: float) -> None:
    item = {
        "path": f"videos/{TOP}/chunk-000/file-000.mp4",
        "camera": TOP,
        "fps": 10.0,
        "depth": False,
        "clips": [["a", ROWS, 0.0, None], ["b", ROWS, start, None], ["c", ROWS, start, None]],
    }
    task = {"root": str(clean), "roots": {}, "items": [item]}
    (video,) = read_clips(task, lambda _: None)
    faults = [clip[1] for clip in video["clips"]]
    assert faults == ["", "", ""]
    assert [bool(clip[2]) for clip in video["clips"]] == [False, True, True]


def test_each_picture_is_a_sign_of_work(clean: Path) -> None:
    task = {"root": str(clean), "roots": {}}
    (dataset,) = list_clips(task | {"items": [{"path": "meta/info.json"}]}, lambda item: None)
    beats: list[int] = []
    (video,) = read_clips(task | {"items": dataset["files"][:1]}, beats.append)
    assert len(beats) >= sum(len(clip[3]) - 1 for clip in video["clips"])


# ------------------------------------------------------------------------------------ level, library


def test_without_the_library(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lerobot_pictures, "is_installed", lambda module: False)
    rule, findings = verdict(clean, tmp_path / "out")
    assert findings == []
    assert rule.verdict is Verdict.SKIP
    assert "pip install 'datacheck[video]'" in repr(rule)


def test_only_a_deep_scan_decodes(clean: Path, tmp_path: Path) -> None:
    """A numeric scan before it must not hide what the deep scan finds."""
    folder = damaged(clean, tmp_path / "data", noise)
    numeric = scan(folder, "lerobot", level="numeric", output=tmp_path / "out").report
    (rule,) = [rule for rule in numeric.verdicts if rule.code == "DC517"]
    assert (rule.verdict, rule.why) == (Verdict.SKIP, "needs --level deep")
    assert verdict(folder, tmp_path / "out")[1] == [f"error undecodable:{TOP}"]
    # Nothing has changed: the notes come from the run before.
    assert verdict(folder, tmp_path / "out")[1] == [f"error undecodable:{TOP}"]
