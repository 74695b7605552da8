"""Faults planted in recordings are found with a drafted schema, and a cache holds the others."""

from __future__ import annotations

import numpy as np
import pytest
from mcap import writer as mcap_writer

import datacheck
from datacheck.infer.draft import draft
from datacheck.scan import scan
from tests.formats.test_bag import JOINTS, ROS2
from tests.formats.test_rosbag2 import change, write_db3

STEPS = 60


def recorded(path, *, kept=range(STEPS), late=0, swapped=(), together=1):
    """Write a recording at 50 Hz; from step 30 on, the clock of the header is `late` ms behind.

    The recorder takes `together` messages at a time.
    """
    types = ROS2.types
    clock = [i * 20 - (late if i >= 30 else 0) for i in range(STEPS)]  # ms
    for a, b in swapped:
        clock[a], clock[b] = clock[b], clock[a]
    with path.open("wb") as file:
        writer = mcap_writer.Writer(file)
        writer.start("ros2", "test")
        text, _ = ROS2.generate_msgdef(JOINTS, ros_version=2)
        schema = writer.register_schema(JOINTS, "ros2msg", text.encode())
        channel = writer.register_channel("/joints", "cdr", schema)
        for i in kept:
            stamp = types["builtin_interfaces/msg/Time"](
                100 + clock[i] // 1000, clock[i] % 1000 * 10**6
            )
            header = types["std_msgs/msg/Header"](stamp, "")
            position = np.sin(np.arange(6) + i / 20)
            message = types[JOINTS](header, [], position, np.zeros(0), np.zeros(0))
            logged = 100 * 10**9 + i // together * together * 20 * 10**6
            data = bytes(ROS2.serialize_cdr(message, JOINTS))
            writer.add_message(channel, logged, data, logged)
        writer.finish()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("recordings")
    data = place / "data"
    data.mkdir()
    for i in range(12):
        recorded(data / f"ep_{i:02d}.mcap")
    recorded(data / "ep_03.mcap", kept=[*range(20), *range(35, STEPS)])
    recorded(data / "ep_05.mcap", late=500)
    recorded(data / "ep_07.mcap", swapped=[(40, 41)])
    whole = (data / "ep_09.mcap").read_bytes()
    (data / "ep_09.mcap").write_bytes(whole[: len(whole) * 2 // 3])
    (place / "rec.yaml").write_text(draft(data).text)
    return place


def test_gaps_falling_clocks_and_a_cut_file_are_found(folder):
    run = scan(folder / "data", folder / "rec.yaml")
    found = {
        (finding.code, *finding.fields, finding.kind): finding.examples
        for finding in run.report.findings
        if finding.code in {"DC101", "DC502"}
    }
    assert found["DC502", "joints/header/stamp", "order"] == ("ep_05.mcap", "ep_07.mcap")
    gaps = [key for key in found if key[0] == "DC502" and found[key] == ("ep_03.mcap",)]
    assert {key[1] for key in gaps} == {
        "joints/header/stamp",
        "joints/log_time",
        "joints/publish_time",
    }
    (cut,) = [finding for finding in run.report.findings if finding.code == "DC101"]
    assert cut.examples == ("ep_09.mcap",)
    assert "mcap recover" in cut.message
    assert {key for examples in found.values() for key in examples} == {
        f"ep_0{i}.mcap" for i in (3, 5, 7, 9)
    }


def test_a_cache_gives_one_topic(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (built,) = datacheck.build_cache("rec.yaml", "data", "cache")
    assert built.made == 11  # all but the cut one
    samples = datacheck.CachedDataset("cache", fields=["joints/position"])
    expected = np.sin(np.arange(6) + np.arange(STEPS)[:, None] / 20)
    np.testing.assert_array_equal(samples[0]["joints/position"], expected)


def test_messages_that_are_recorded_together_are_no_frozen_clock(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for i in range(4):
        recorded(data / f"ep_{i}.mcap", together=2)
    drafted = draft(data).text
    lines = {
        name.strip(): line for name, _, line in (x.partition(":") for x in drafted.split("\n"))
    }
    assert "role: timestamp" in lines["joints/header/stamp"]
    for name in ("joints/log_time", "joints/publish_time"):
        assert "role" not in lines[name].partition("#")[0]
        assert "range" not in lines[name]
        assert "several messages have one time" in lines[name]
    (tmp_path / "rec.yaml").write_text(drafted)
    assert scan(data, tmp_path / "rec.yaml").report.findings == []


def test_a_folder_of_ros_2_is_drafted_and_scanned(tmp_path):
    for i in range(4):
        write_db3(tmp_path / "data" / f"run_{i}", count=40 + i, definitions=i != 1)
    drafted = draft(tmp_path / "data").text
    assert "joint_states/position: {role: joint_angle, shape: [P, 3], unit: deg}" in drafted
    (tmp_path / "rec.yaml").write_text(drafted)
    assert scan(tmp_path / "data", tmp_path / "rec.yaml").report.findings == []
    (one,) = (tmp_path / "data" / "run_1").glob("*.db3")
    change(one, "DELETE FROM messages WHERE id BETWEEN 8 AND 12")
    run = scan(tmp_path / "data", tmp_path / "rec.yaml")
    found = {(f.code, f.kind, *f.fields, *f.examples) for f in run.report.findings}
    assert found == {("DC108", "", f"run_1/{one.name}")} | {
        ("DC502", "gaps", f"joint_states/{clock}", f"run_1/{one.name}")
        for clock in ("header/stamp", "log_time")
    }
