"""Spans of episodes in a video: gaps are episodes that were left out, overlaps are faults."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from datacheck.errors import FormatError
from datacheck.sources import lerobot_videos
from datacheck.sources.lerobot import Span, read_info, read_meta, read_spans
from datacheck.sources.roots import Roots
from tests.export import make

RATE = 10.0


def kinds(monkeypatch, folder, spans, frames=60):
    """The faults of a video with spans (start, stop) in frames, as (kind, episode)."""

    class Track:
        times = np.arange(frames) / RATE
        height, width, codec = 48, 64, "avc1"

    monkeypatch.setattr(lerobot_videos, "read_video", lambda _: Track)
    found = [Span(i, "v", start / RATE, stop / RATE) for i, (start, stop) in enumerate(spans)]
    lengths = {i: stop - start for i, (start, stop) in enumerate(spans)}
    feature = {"shape": [48, 64, 3]}
    (folder / "v").touch()
    video = Roots(folder, {}).file("v")
    faults = lerobot_videos._of_file(video, "top", found, lengths, RATE, feature)
    return [(fault.kind, fault.episode) for fault in faults]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 20), (20, 30), (30, 60)], []),
        # Episodes are left out in the middle, in front, behind.
        ([(0, 20), (30, 60)], [("surplus", 1)]),
        ([(20, 30), (30, 60)], [("surplus", 1)]),
        ([(0, 20), (20, 30)], [("surplus", 1)]),
        # A span that is shifted reaches into the next one, or behind the end.
        ([(0, 20), (25, 35), (30, 60)], [("gap", 1), ("gap", 2), ("surplus", 2)]),
        ([(0, 20), (15, 25), (30, 60)], [("gap", 1), ("surplus", 2)]),
        ([(0, 20), (20, 30), (35, 65)], [("end", 2), ("surplus", 2)]),
    ],
)
def test_frames_between_episodes_are_no_fault_and_overlaps_are(
    monkeypatch, tmp_path, spans, expected
):
    assert kinds(monkeypatch, tmp_path, spans) == expected


@pytest.mark.parametrize("missing", ["to", "from"])
def test_a_missing_end_of_a_span_follows_from_the_length(tmp_path, missing):
    camera = make.CAMERAS[0]
    folder = make.v3(tmp_path / "data")
    path = folder / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([f"videos/{camera}/{missing}_timestamp"]), path)
    base = Roots(folder, {}).file("")
    found = read_spans(base, camera, read_info(base))
    assert [span.has_start for span in found] == [missing == "to"] * 5
    starts, stops = zip(*make.spans(camera), strict=True)
    assert [span.start for span in found] == pytest.approx(starts)
    assert [span.stop for span in found] == pytest.approx(stops)


def test_a_template_that_makes_longer_paths_than_files_have_is_refused(tmp_path):
    folder = make.v2(tmp_path / "data", videos=False)
    info = json.loads((folder / "meta/info.json").read_text())
    for length, is_read in ((4096, True), (4097, False)):
        template = "{episode_index:06d}".rjust(length - 6 + len("{episode_index:06d}"), "x")
        (folder / "meta/info.json").write_text(json.dumps(info | {"data_path": template}))
        base = Roots(folder, {}).file("")
        if is_read:
            assert {len(path) for path in read_meta(base).files} == {length}
        else:
            with pytest.raises(FormatError, match="makes one of 4,097 characters"):
                read_meta(base)


def test_more_than_1000_videos_are_refused_with_their_number(tmp_path):
    folder = make.v3(tmp_path / "data")
    info = json.loads((folder / "meta/info.json").read_text())
    more = {f"camera{i}": {"dtype": "video", "shape": [1, 1, 3]} for i in range(998)}
    info["features"] |= more
    (folder / "meta/info.json").write_text(json.dumps(info))
    base = Roots(folder, {}).file("")
    assert len(read_meta(base).lengths) == 5
    info["features"] |= {"one more": more["camera0"]}
    (folder / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(FormatError, match="declares 1,001 videos; at most 1,000 are read"):
        read_meta(base)


@pytest.mark.parametrize(
    ("rate", "first", "has_far"),
    [(15, 27_523, True), (25, 38_242, True), (30, 60_000, False), (15, 300, False)],
)
def test_rows_that_lerobot_misses_by_rounding_are_counted(rate, first, has_far):
    """The comparison is that of `decode_video_frames` in LeRobot 0.4.4, which raises where it fails."""
    start, length = first / rate, 3_000
    times = (first + np.arange(-5, length + 5)) / rate
    stamps = torch.arange(length, dtype=torch.float64).div(rate).float().tolist()
    queries = torch.tensor([start + stamp for stamp in stamps])
    frames = torch.tensor(times[5:-5].tolist())  # the nearest frame of each row
    far = int((queries - frames).abs().ge(lerobot_videos.TOLERANCE).sum())
    assert (far > 0) == has_far
    fault = lerobot_videos._unmatched(times, start, length, float(rate))
    if not far:
        assert fault is None
        return
    kind, words = fault
    assert kind == "rounding"
    assert words.startswith(f"{far:,} of {length:,} rows lie ")
    assert words.endswith("up to 0.00012 s off: it needs a tolerance_s of 0.00013 or more")
