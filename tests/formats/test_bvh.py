"""BVH: by hand, and hierarchies deeper than Python can recurse."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from datacheck.errors import FormatError
from tests.formats.reading import CORPUS, read_all


def test_values_by_hand():
    values = read_all(CORPUS / "bvh/y_two_joints.bvh")
    assert values["positions"].tolist() == [[0, 90, 0], [1, 91, 2]]
    assert values["rotations"].tolist() == [[1, 2, 3, 10, 20, 30], [4, 5, 6, 40, 50, -180]]
    assert values["channels"] == [
        *(
            "Hips.Xposition",
            "Hips.Yposition",
            "Hips.Zposition",
            "Hips.Zrotation",
            "Hips.Xrotation",
            "Hips.Yrotation",
        ),
        *("Left Leg.Zrotation", "Left Leg.Xrotation", "Left Leg.Yrotation"),
    ]
    assert values["joints"] == ["Hips", "Left Leg"]
    assert values["parents"].tolist() == [-1, 0]
    assert values["offsets"].tolist() == [[0, 0, 0], [10, -1.5, 0]]  # without the end site
    assert values["frame_time"] == 0.0333333
    assert values["frame_time"].shape == ()


def test_line_ends_braces_and_several_roots():
    crlf, plain = (read_all(CORPUS / f"bvh/{name}.bvh") for name in ("y_crlf", "y_two_joints"))
    assert crlf.keys() == plain.keys()
    assert all(np.array_equal(crlf[name], plain[name]) for name in plain)
    values = read_all(CORPUS / "bvh/y_one_line.bvh")
    assert values["parents"].tolist() == [-1, 0, -1]
    assert values["channels"] == ["A.Zrotation", "C.Xposition"]
    assert (values["rotations"].tolist(), values["positions"].tolist()) == ([[7]], [[8]])


def test_a_clip_without_frames_has_its_channels():
    values = read_all(CORPUS / "bvh/y_nothing.bvh")
    assert values["positions"].shape == (0, 3)
    assert values["rotations"].shape == (0, 6)


def chain(joints: int) -> str:
    opened = "\n".join(
        f"{'JOINT' if at else 'ROOT'} J{at}\n{{\nOFFSET {at} 0 0" for at in range(joints)
    )
    return f"HIERARCHY\n{opened}\nCHANNELS 1 Zrotation\n{'}' * joints}\nMOTION\nFrames: 1\nFrame Time: 0.01\n5\n"


def test_a_deep_hierarchy_needs_no_recursion(tmp_path):
    path, joints = tmp_path / "deep.bvh", 5 * sys.getrecursionlimit()
    path.write_text(chain(joints))
    values = read_all(path)
    assert values["parents"].tolist() == list(range(-1, joints - 1))
    assert values["rotations"].tolist() == [[5]]


@pytest.mark.parametrize(
    "line", ["JOINT A {" * 300_000, "{" * 1_000_000, "ROOT A { OFFSET 0 0 0 " + "}" * 1_000_000]
)
def test_a_long_line_takes_time_in_proportion(tmp_path, line):
    path = tmp_path / "long.bvh"
    path.write_text(f"HIERARCHY\nROOT R {{\n{line}\nMOTION\n")
    start = time.process_time()
    with pytest.raises(FormatError):
        read_all(path)
    assert time.process_time() - start < 5


def test_names_of_channels_take_no_more_than_their_file(tmp_path):
    head = "HIERARCHY\nROOT {}\n{{\nOFFSET 0 0 0\nCHANNELS {} {}\n}}\nMOTION\nFrames: 0\nFrame Time: 1\n"
    path = tmp_path / "a.bvh"
    path.write_text(head.format("j" * 1001, 1, "Xposition"))
    with pytest.raises(FormatError, match="a name of 1,001 characters"):
        read_all(path)
    path.write_text(head.format("j" * 1000, 100_000, "Xposition " * 100_000))  # 100 MB of names
    with pytest.raises(FormatError, match="each once"):
        read_all(path)
