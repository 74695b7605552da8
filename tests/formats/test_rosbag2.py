"""ROS 2 bags in SQLite: the library's own values, bags without definitions, damage and hostile files."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from rosbags import rosbag2, typesys

from datacheck.errors import FormatError
from datacheck.formats.base import Hint, open_container
from datacheck.formats.rosbag2 import ROS2_BAG, _standard_types
from datacheck.runtime.beneath import ConfinedFolder, File
from tests.formats.reading import read_all
from tests.formats.test_bag import JOINTS, ROS2, joint_state

EVERY_STORE = [
    typesys.get_typestore(store) for store in typesys.Stores if store.name.startswith("ROS2")
]
POINT = "geometry_msgs/msg/PointStamped"


def write_db3(folder, *, count=20, definitions=True):
    """Write `count` messages at 10 Hz from 100 s on, on /joint_states, and one point."""
    with rosbag2.Writer(folder, version=9, storage_plugin=rosbag2.StoragePlugin.SQLITE3) as writer:
        joints = writer.add_connection("/joint_states", JOINTS, typestore=ROS2)
        points = writer.add_connection("/point", POINT, typestore=ROS2)
        for i in range(count):
            data = ROS2.serialize_cdr(joint_state(ROS2, i), JOINTS)
            writer.write(joints, 100_000_000_000 + i * 100_000_000, data)
        point = ROS2.types["geometry_msgs/msg/Point"](x=0.5, y=-2.0, z=1e9)
        stamped = ROS2.types[POINT](header=joint_state(ROS2, 0).header, point=point)
        writer.write(points, 100_000_000_000, ROS2.serialize_cdr(stamped, POINT))
    (path,) = folder.glob("*.db3")
    if not definitions:
        change(path, "DROP TABLE message_definitions")
    return path


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("definitions", [True, False])
def test_a_bag_has_the_values_that_the_library_reads(tmp_path, definitions):
    path = write_db3(tmp_path / "bag")
    with rosbag2.Reader(tmp_path / "bag") as reader:
        wanted = [
            (time, ROS2.deserialize_cdr(data, connection.msgtype))
            for connection, time, data in reader.messages()
            if connection.topic == "/joint_states"
        ]
    assert len(wanted) == 20
    if not definitions:
        change(path, "DROP TABLE message_definitions")
    values = read_all(path)
    for name in ("position", "effort"):
        rows = [getattr(message, name) for _, message in wanted]
        np.testing.assert_array_equal(values[f"joint_states/{name}"], rows)
    stamps = [m.header.stamp.sec + m.header.stamp.nanosec * 1e-9 for _, m in wanted]
    np.testing.assert_array_equal(values["joint_states/header/stamp"], stamps)
    np.testing.assert_array_equal(values["joint_states/log_time"], [t / 1e9 for t, _ in wanted])
    assert [values[f"point/point/{axis}"].tolist() for axis in "xyz"] == [[0.5], [-2.0], [1e9]]


def test_a_definition_in_the_bag_comes_before_the_standard_one(tmp_path):
    path = write_db3(tmp_path / "bag")
    own = "Header header\nfloat64[3] xyz\n" + "=" * 80 + "\nMSG: std_msgs/Header\n"
    own += "builtin_interfaces/Time stamp\nstring frame_id\n"
    change(
        path,
        f"UPDATE message_definitions SET encoded_message_definition = '{own}' "
        f"WHERE topic_type = '{POINT}'",
    )
    assert read_all(path)["point/xyz"].tolist() == [[0.5, -2.0, 1e9]]


def test_a_type_that_is_not_known_keeps_times_and_sizes(tmp_path):
    path = write_db3(tmp_path / "bag", definitions=False)
    change(path, "UPDATE topics SET type = 'own_msgs/msg/Thing' WHERE name = '/point'")
    with open_container(path) as container:
        names = [name for name in container.names() if name.startswith("point/")]
        assert names == ["point/log_time", "point/size"]
        assert "point (the definition of own_msgs/msg/Thing is not in the file)" in container.passed


def test_the_standard_types_are_those_of_every_release_of_ros_2():
    _, standard = _standard_types()
    assert {"sensor_msgs/JointState", "tf2_msgs/TFMessage", "sensor_msgs/Image"} <= standard.keys()
    for name, text in standard.items():
        full = name.replace("/", "/msg/")
        own = typesys.get_types_from_msg(text, full)[full][1]
        if name == "std_msgs/Empty":  # its one byte is none of the message's own
            continue
        known = [store.fielddefs[full][1] for store in EVERY_STORE if full in store.fielddefs]
        assert known, name
        assert all(own == fields for fields in known), name


DAMAGE = {
    "no bag": (["DROP TABLE messages", "DROP TABLE topics"], "without the table messages"),
    "a view": (
        [
            "ALTER TABLE messages RENAME TO m",
            "CREATE VIEW messages AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
            "SELECT x AS topic_id, x AS timestamp, x AS data FROM c",
        ],
        "messages is no plain table",
    ),
    "a generated column": (
        [
            "ALTER TABLE topics RENAME COLUMN type TO t",
            "ALTER TABLE topics ADD COLUMN type TEXT AS (hex(zeroblob(1000000)))",
        ],
        "topics is no plain table",
    ),
    "a virtual table": (
        ["ALTER TABLE topics RENAME TO t", "CREATE VIRTUAL TABLE topics USING fts5(id, name, type)"],
        "topics is no plain table",
    ),
    "a text": (["UPDATE messages SET data = 'abc' WHERE id = 2"], "message 2 has values of other"),
    "a time": (["UPDATE messages SET timestamp = -5 WHERE id = 3"], "message 3 has the time -5"),
    "a topic": (["UPDATE messages SET topic_id = 77 WHERE id = 1"], "a message of channel 77"),
    "a name": (["UPDATE topics SET name = x'00ff' WHERE id = 1"], "a value of topic 1 is bytes"),
    "compression": (
        ["UPDATE messages SET data = x'28b52ffd00' WHERE id = 1"], "compressed one by one"
    ),
    "a short message": (
        ["UPDATE messages SET data = x'00010000aa' WHERE id = 1"], "message 1: .*values of 4 bytes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused_with_its_reason(tmp_path, case):
    statements, reason = DAMAGE[case]
    path = write_db3(tmp_path / "bag")
    change(path, *statements)
    with pytest.raises(FormatError, match=reason):
        read_all(path)


def test_a_file_cut_short_is_damaged(tmp_path):
    path = write_db3(tmp_path / "bag", count=400)
    path.write_bytes(path.read_bytes()[:-20_000])
    with pytest.raises(FormatError, match=r"damaged SQLite file.*malformed.*\.recover"):
        read_all(path)
    path.write_bytes(b"SQLite")
    with pytest.raises(FormatError, match="not an SQLite file"):
        read_all(path)


def test_nothing_is_written_beside_the_bag(tmp_path):
    path = write_db3(tmp_path / "bag")
    change(path, "PRAGMA journal_mode = WAL")
    before = sorted(path.parent.iterdir()), path.read_bytes()
    read_all(path)
    assert (sorted(path.parent.iterdir()), path.read_bytes()) == before


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_link_under_the_name_of_a_removed_bag_is_not_followed(tmp_path, monkeypatch, is_checked):
    """SQLite opens the name to which /proc/self/fd/N leads: that of a removed file ends in "(deleted)".

    Without the check the outside bag is read, so the exchange works.
    """
    (tmp_path / "data").mkdir()
    inside, outside = (write_db3(tmp_path / name) for name in ("inside", "outside"))
    change(outside, "UPDATE topics SET name = '/secret' WHERE id = 1")
    bag = inside.rename(tmp_path / "data/a.db3")
    (tmp_path / "data/a.db3 (deleted)").symlink_to(outside)
    connect = sqlite3.connect

    def exchanged(database, **options):
        bag.unlink()
        return connect(database, **options)

    monkeypatch.setattr("datacheck.formats.rosbag2.sqlite3.connect", exchanged)
    file = File(ConfinedFolder(tmp_path / "data"), "a.db3")
    if is_checked:
        with pytest.raises(FormatError, match="another file took its place while it was opened"):
            ROS2_BAG.open(file, Hint())
    else:
        status, numbers = bag.stat(), iter(range(2))
        monkeypatch.setattr(
            "datacheck.formats.rosbag2._descriptors",
            lambda: {next(numbers): (status.st_dev, status.st_ino)},
        )
        assert any("secret" in name for name in ROS2_BAG.open(file, Hint()).names())
