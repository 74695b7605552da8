"""MP4: the times of the frames come from the header, and nothing else is read."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.scan import scan
from tests.formats.reading import CORPUS, read_all
from tests.rules.harness import schema_of

MP4 = CORPUS / "mp4"


def test_times_are_ticks_over_the_clock():
    np.testing.assert_array_equal(
        read_all(MP4 / "y_end.mp4")["times"], np.arange(10) * 512 / 12_800
    )
    np.testing.assert_array_equal(read_all(MP4 / "y_front.mp4")["times"], np.arange(10) / 25)


def test_of_sound_and_video_the_video_is_taken_with_its_uneven_steps():
    np.testing.assert_array_equal(
        read_all(MP4 / "y_sound.mov")["times"], np.array([0, 20, 40, 100, 120, 140]) / 600
    )


def test_frames_that_are_shown_in_another_order_are_put_in_order():
    decoded, later = np.array([0, 200, 400, 600]), np.array([0, 600, -200, -200])
    np.testing.assert_array_equal(
        read_all(MP4 / "y_order.m4v")["times"], np.sort(decoded + later) / 1000
    )


def test_a_file_that_ends_early_is_never_read_as_a_shorter_video(tmp_path):
    data = (MP4 / "y_end.mp4").read_bytes()
    for end in range(len(data)):
        (tmp_path / "cut.mp4").write_bytes(data[:end])
        with pytest.raises(FormatError):
            read_all(tmp_path / "cut.mp4")


def test_pictures_are_not_read(tmp_path):
    """A sparse file of 8 GB between header and end costs nothing."""
    header = (MP4 / "y_front.mp4").read_bytes()[:-90]
    with (tmp_path / "long.mp4").open("wb") as file:
        file.write(header)
        file.truncate(8 << 30)
    with open_container(tmp_path / "long.mp4") as container:
        assert container.peek("times") == ((10,), "<f8")


def test_a_scan_pairs_videos_with_rows_without_decoding_them(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name, rows in (("a", 10), ("b", 11)):
        np.save(data / f"{name}.npy", np.random.default_rng(rows).normal(size=(rows, 3)))
        (data / f"{name}.mp4").write_bytes((MP4 / "y_end.mp4").read_bytes())
    schema = schema_of(
        """
        samples: {files: "{name}.npy"}
        episode: {fps: 25}
        fields: {a: {role: action, shape: [T, 3], at: array}, cam: {role: video, file: "{name}.mp4"}}
        """
    )
    (finding,) = scan(data, schema, output=tmp_path / "out").report.findings
    assert (finding.code, finding.examples, finding.cause.kind) == ("DC508", ("b.npy",), "one")


def test_a_file_without_a_suffix_is_known_by_its_first_bytes(tmp_path):
    (tmp_path / "video").write_bytes((MP4 / "y_end.mp4").read_bytes())
    assert len(read_all(tmp_path / "video")["times"]) == 10


def placed(width):
    """Return a file whose track says where its frames are, and whose last box has no size."""
    data = bytearray((MP4 / "y_front.mp4").read_bytes())
    kind = {4: b"stco", 8: b"co64"}[width]
    table = data.index(b"stsz") - 4
    added = 16 + width
    mdat = data.rindex(b"mdat") + 4 + added
    box = added.to_bytes(4, "big") + kind + bytes(4) + (1).to_bytes(4, "big")
    data[table:table] = box + mdat.to_bytes(width, "big")
    for parent in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
        place = data.index(parent) - 4
        size = int.from_bytes(data[place : place + 4], "big") + added
        data[place : place + 4] = size.to_bytes(4, "big")
    data[mdat - 8 : mdat - 4] = bytes(4)
    return data, mdat


@pytest.mark.parametrize("width", [4, 8])
def test_frames_behind_the_end_of_a_file_are_refused(tmp_path, width):
    """A last box without a size reaches to the end of the file, wherever that is."""
    data, mdat = placed(width)
    path = tmp_path / "a.mp4"
    path.write_bytes(data)
    assert len(read_all(path)["times"]) == 10
    for end in (mdat, mdat + 2, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(FormatError, match="its frames reach to byte"):
            read_all(path)
