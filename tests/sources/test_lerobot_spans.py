"""Spans of episodes in a video: gaps are episodes that were left out, overlaps are faults."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from datacheck.sources import lerobot_videos
from datacheck.sources.lerobot import Span, read_spans
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
    found = read_spans(Roots(folder, {}).file(""), camera)
    assert [span.has_start for span in found] == [missing == "to"] * 5
    starts, stops = zip(*make.spans(camera), strict=True)
    assert [span.start for span in found] == pytest.approx(starts)
    assert [span.stop for span in found] == pytest.approx(stops)
