"""MCAP and ROS 1 bags: the libraries' own values, and recordings that are cut, damaged or hostile."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from mcap import writer as mcap_writer
from mcap.reader import make_reader
from rosbags import rosbag1, typesys

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.ros_messages import Decoder
from tests.formats.reading import read_all

ROS2 = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
ROS1 = typesys.get_typestore(typesys.Stores.ROS1_NOETIC)
JOINTS = "sensor_msgs/msg/JointState"
COMPRESSIONS = list(mcap_writer.CompressionType)


def joint_state(store, i, joints=3):
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](sec=100 + i // 10, nanosec=i % 10 * 100_000_000)
    header = {"stamp": stamp, "frame_id": "base" * (i % 3)}
    if "seq" in types["std_msgs/msg/Header"].__annotations__:
        header["seq"] = i
    return types[JOINTS](
        header=types["std_msgs/msg/Header"](**header),
        name=[f"joint_{j}" for j in range(joints)],
        position=np.arange(joints) + i / 8,
        velocity=np.zeros(0),
        effort=np.arange(joints) * -0.5,
    )


def write_mcap(path, *, count=20, joints=lambda i: 3, order=None, options=None, more=None):
    """Write `count` messages at 10 Hz from 100 s on, on /joint_states."""
    with path.open("wb") as file:
        writer = mcap_writer.Writer(file, **(options or {}))
        writer.start("ros2", "test")
        text, _ = ROS2.generate_msgdef(JOINTS, ros_version=2)
        schema = writer.register_schema(JOINTS, "ros2msg", text.encode())
        channel = writer.register_channel("/joint_states", "cdr", schema)
        for i in order or range(count):
            data = bytes(ROS2.serialize_cdr(joint_state(ROS2, i, joints(i)), JOINTS))
            logged = 100_000_000_000 + i * 100_000_000
            writer.add_message(channel, logged, data, logged - 1_000_000)
        if more is not None:
            more(writer)
        writer.finish()
    return path


def add_json(writer):
    schema = writer.register_schema("Pose", "jsonschema", b"{}")
    channel = writer.register_channel("/pose", "json", schema)
    for i in range(4):
        pose = {"t": {"sec": 5, "nsec": i * 1000}, "xyz": [i, 2.5, -1], "ok": True, "label": "a"}
        writer.add_message(channel, i, json.dumps(pose).encode(), i)
    writer.add_attachment(0, 0, "notes.txt", "text/plain", b"notes" * 1000)
    unknown = writer.register_channel("/blob", "protobuf", 0)
    writer.add_message(unknown, 7, b"12345", 7)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_mcap_has_the_values_that_were_written(tmp_path, compression):
    path = write_mcap(tmp_path / "a.mcap", options={"compression": compression, "chunk_size": 400})
    values = read_all(path)
    steps = np.arange(20)
    np.testing.assert_array_equal(
        values["joint_states/position"], np.arange(3)[None] + steps[:, None] / 8
    )
    np.testing.assert_array_equal(values["joint_states/effort"], [[0, -0.5, -1]] * 20)
    assert "joint_states/velocity" not in values  # empty in each message
    np.testing.assert_allclose(values["joint_states/header/stamp"], 100 + steps / 10, rtol=1e-15)
    np.testing.assert_allclose(values["joint_states/log_time"], 100 + steps / 10, rtol=1e-15)
    np.testing.assert_allclose(values["joint_states/publish_time"], 99.999 + steps / 10, rtol=1e-15)


def test_json_is_read_and_another_encoding_keeps_times_and_sizes(tmp_path):
    with open_container(write_mcap(tmp_path / "a.mcap", more=add_json)) as container:
        assert container.read("pose/xyz").tolist() == [[i, 2.5, -1] for i in range(4)]
        assert container.read("pose/ok").tolist() == [1, 1, 1, 1]
        np.testing.assert_allclose(container.read("pose/t"), 5 + np.arange(4) * 1e-6, rtol=1e-15)
        assert container.read("blob/size").tolist() == [5]
        assert container.read("blob/log_time").tolist() == [7e-9]
        assert "blob (messages in protobuf: not read)" in container.passed
        assert "joint_states/name" in container.passed
        assert "joint_states/velocity (empty in each message)" in container.passed


def test_a_changing_number_of_joints_is_flat_with_lengths(tmp_path):
    values = read_all(write_mcap(tmp_path / "a.mcap", count=4, joints=lambda i: 1 + i % 2))
    assert values["joint_states/position.lengths"].tolist() == [1, 2, 1, 2]
    assert values["joint_states/position"].tolist() == [0, 0.125, 1.125, 0.25, 0.375, 1.375]


def test_messages_are_sorted_by_log_time(tmp_path):
    values = read_all(write_mcap(tmp_path / "a.mcap", order=[0, 2, 1, 3]))
    assert values["joint_states/position"][:, 0].tolist() == [0, 0.125, 0.25, 0.375]


@pytest.mark.parametrize("compression", [None, "BZ2", "LZ4"])
def test_a_ros1_bag_has_the_values_that_the_library_reads(tmp_path, compression):
    path = tmp_path / "a.bag"
    writer = rosbag1.Writer(path)
    if compression:
        writer.set_compression(getattr(rosbag1.Writer.CompressionFormat, compression))
    image = ROS1.types["sensor_msgs/msg/Image"]
    with writer:
        joints = writer.add_connection("/joints", JOINTS, typestore=ROS1)
        images = writer.add_connection("/image", "sensor_msgs/msg/Image", typestore=ROS1)
        for i in range(5):
            message = joint_state(ROS1, i)
            writer.write(joints, 10**9 * i, ROS1.serialize_ros1(message, JOINTS))
        pixels = np.zeros(60000, np.uint8)
        picture = image(message.header, 100, 200, "rgb8", 0, 600, pixels)
        writer.write(images, 9, ROS1.serialize_ros1(picture, "sensor_msgs/msg/Image"))
    values = read_all(path)
    with rosbag1.Reader(path) as reader:
        messages = [
            ROS1.deserialize_ros1(data, c.msgtype)
            for c, _, data in reader.messages()
            if c.topic == "/joints"
        ]
    np.testing.assert_array_equal(values["joints/position"], [m.position for m in messages])
    stamps = [m.header.stamp.sec + m.header.stamp.nanosec * 1e-9 for m in messages]
    np.testing.assert_array_equal(values["joints/header/stamp"], stamps)
    assert values["joints/header/seq"].tolist() == [0, 1, 2, 3, 4]
    assert values["joints/log_time"].tolist() == [0, 1, 2, 3, 4]
    assert values["image/data.size"].tolist() == [60000]
    assert values["image/width"].tolist() == [200]
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"ends early.*6 messages.*rosbag reindex"):
        read_all(path)


def test_a_recording_without_its_end_is_named_with_the_repair(tmp_path):
    path = write_mcap(tmp_path / "a.mcap", options={"chunk_size": 400})
    data = path.read_bytes()
    whole = len(data)
    path.write_bytes(data[: whole // 2])
    with pytest.raises(FormatError, match=r"was not finished.*\d+ messages.*mcap recover"):
        read_all(path)
    path.write_bytes(data[:-8])
    with pytest.raises(FormatError, match=r"no end mark.*20 messages"):
        read_all(path)


def chunked(inner, *, size=None, crc=None, compression=b"", packed=None):
    """Return an MCAP file with one chunk and no index."""
    body = inner if packed is None else packed
    chunk = struct.pack("<QQQI", 0, 0, len(inner) if size is None else size, crc or 0)
    chunk += struct.pack("<I", len(compression)) + compression + struct.pack("<Q", len(body)) + body
    magic = b"\x89MCAP0\r\n"
    out = magic + record(1, struct.pack("<II", 0, 0)) + record(6, chunk)
    return out + record(15, bytes(4)) + record(2, bytes(20)) + magic


def record(opcode, data):
    return struct.pack("<BQ", opcode, len(data)) + data


def text(value):
    return struct.pack("<I", len(value)) + value


def schema(number, definition):
    return record(3, struct.pack("<H", number) + text(b"p/A") + text(b"ros2msg") + text(definition))


def channel(number, schema_number):
    body = struct.pack("<HH", number, schema_number) + text(b"/t") + text(b"cdr")
    return record(4, body + bytes(4))


def message(number, data):
    return record(5, struct.pack("<HIQQ", number, 0, 0, 0) + data)


FLOAT = schema(1, b"float32 x") + channel(1, 1)
HOSTILE = {
    "a bomb": (chunked(b"", size=2 << 30, compression=b"zstd"), "2,147,483,648 bytes"),
    "less than declared": (chunked(b"", size=99, packed=b"abc"), "99 bytes are declared, 3 found"),
    "a checksum": (chunked(FLOAT, crc=zlib.crc32(FLOAT) ^ 1), "its checksum is"),
    "a compression": (chunked(FLOAT, compression=b"xz"), "compression 'xz'"),
    "two definitions": (chunked(FLOAT + schema(1, b"float64 x")), "definitions have the number 1"),
    "no definition": (chunked(channel(1, 9)), "the definition 9 is not in the file"),
    "no channel": (chunked(message(4, b"")), "a message of channel 4, which is not declared"),
    "a short message": (
        chunked(FLOAT + message(1, b"\0\1\0\0ab")), "message 1: .*1 values of 4 bytes"
    ),
    "a chunk in a chunk": (
        chunked(chunked(FLOAT + message(1, b"\0\1\0\0abcd"))[8:-8]), "a chunk lies in it"
    ),
    "another recording behind the end": (chunked(FLOAT) + chunked(FLOAT), "bytes follow the end"),
    "a message behind the end": (
        chunked(FLOAT)[:-37] + message(1, b"\0\1\0\0abcd") + chunked(b"")[-37:],
        "a message lies behind the end of the data",
    ),
    "a list": (
        chunked(schema(1, b"float32[] x") + channel(1, 1) + message(1, b"\0\1\0\0\xff\xff\xff\xff")),
        "a list of 4,294,967,295 entries",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_damage_is_refused_with_its_reason(tmp_path, case):
    data, reason = HOSTILE[case]
    (tmp_path / "a.mcap").write_bytes(data)
    with pytest.raises(FormatError, match=reason):
        read_all(tmp_path / "a.mcap")


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (b"A inner", "more than 32 types deep"),
        (b"Missing m", "p/Missing is not defined"),
        (b"B[4000000000] m\n====\nMSG: p/B\n", "a list of p/B, which has no fields"),
        (b"import os; os.system('x')", "p/import is not defined"),
        (b"B a\nB b\n" + b"".join(
            b"====\nMSG: p/%c\n" % n + b"".join(b"%c f%d\n" % (n + 1, i) for i in range(9))
            for n in b"BCDEFGHIJ"
        ) + b"====\nMSG: p/K\nfloat32 x\n", "30,000 fields"),
        (b"float32 = x", "is no field"),
        (b"float32[" + b"9" * 5000 + b"] x", "is no field"),
    ],
)  # fmt: skip
def test_a_hostile_definition_costs_its_topic_only(tmp_path, definition, reason):
    data = chunked(schema(1, definition) + channel(1, 1) + message(1, b"\0\1\0\0"))
    (tmp_path / "a.mcap").write_bytes(data)
    with open_container(tmp_path / "a.mcap") as container:
        assert container.names() == ["t/log_time", "t/publish_time", "t/size"]
        assert reason in container.passed[0]


def test_an_index_that_points_elsewhere_is_refused(tmp_path):
    path = write_mcap(tmp_path / "a.mcap", options={"use_summary_offsets": False})
    data = bytearray(path.read_bytes())
    reader = make_reader(io.BytesIO(bytes(data)))
    start = reader.get_summary().chunk_indexes[0].chunk_start_offset
    found = data.rfind(struct.pack("<Q", start))
    data[found : found + 8] = struct.pack("<Q", start + 5)
    path.write_bytes(data)
    with pytest.raises(FormatError, match="where none starts"):
        read_all(path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_type_without_fields_takes_the_bytes_that_the_library_writes(version):
    store = typesys.get_typestore(
        typesys.Stores.ROS1_NOETIC if version == 1 else typesys.Stores.ROS2_HUMBLE
    )
    text = "uint8 a\nstd_msgs/Empty marker\nuint8 b\nfloat64 c\n"
    store.register(typesys.get_types_from_msg(text, "p/msg/A"))
    empty = store.types["std_msgs/msg/Empty"]()
    made = store.types["p/msg/A"](a=1, marker=empty, b=2, c=0.5)
    is_cdr = version == 2
    data = store.serialize_cdr(made, "p/msg/A") if is_cdr else store.serialize_ros1(made, "p/msg/A")
    definition, _ = store.generate_msgdef("p/msg/A", ros_version=version)
    decoder = Decoder("p/msg/A", definition, cdr=is_cdr)
    decoder.add(bytes(data))
    order = np.zeros(1, np.int64)
    found = {name: leaf.values(order)[0].tolist() for name, leaf in decoder.leaves.items()}
    assert found == {"a": [1], "b": [2], "c": [0.5]}


def test_a_long_list_of_types_without_bytes_is_refused():
    text = "B[4000000000] many\n====\nMSG: p/B\nC inner\n====\nMSG: p/C\n"
    with pytest.raises(FormatError, match="a list of p/B, which has no fields"):
        Decoder("p/msg/A", text, cdr=False)


def of_topic(topic, encoding, *messages):
    """Return an MCAP file whose channel has no definition."""
    body = struct.pack("<HH", 1, 0) + text(topic) + text(encoding) + bytes(4)
    return chunked(record(4, body) + b"".join(message(1, one) for one in messages))


@pytest.mark.parametrize(
    "data",
    [
        of_topic(b"/t", b"json", b"\xff\xfe", b"\xff\xfe"),
        of_topic(b"/t", b"json", b"[" * 100_000 + b"]" * 100_000),
        of_topic(b"/t", b"json", b'{"x": 1e999}'),
        chunked(
            schema(1, b"string name") + channel(1, 1) + message(1, b"\0\1\0\0\xff\xff\xff\xff")
        ),
    ],
)
def test_a_damaged_message_without_any_number_is_refused(tmp_path, data):
    (tmp_path / "a.mcap").write_bytes(data)
    with pytest.raises(FormatError, match=r"t, message 1: "):
        read_all(tmp_path / "a.mcap")


def test_texts_of_json_and_attachments_are_listed_as_not_read(tmp_path):
    data = of_topic(b"/t", b"json", b'{"label": "cup", "x": 2, "in": [{"side": "left"}]}')
    attached = record(9, bytes(64))
    (tmp_path / "a.mcap").write_bytes(data[:-50] + attached * 2 + data[-50:])
    with open_container(tmp_path / "a.mcap") as container:
        assert container.read("t/x").tolist() == [2]
        assert container.passed == ["t/in/side", "t/label", "attachments (2)"]


def test_topics_whose_names_meet_are_kept_apart(tmp_path):
    topics = [b"/a", b"a", b"/a/b", b"/", b""]
    messages = [b'{"b": {"x": 1, "size": 9}}', b'{"b": 2}', b'{"x": 3}', b"4", b"5"]
    inner = b"".join(
        record(4, struct.pack("<HH", i, 0) + text(topic) + text(b"json") + bytes(4))
        + message(i, content)
        for i, (topic, content) in enumerate(zip(topics, messages, strict=True))
    )
    (tmp_path / "a.mcap").write_bytes(chunked(inner))
    values = read_all(tmp_path / "a.mcap")
    found = {name: v.tolist() for name, v in values.items() if name.endswith(("x", "b", "value"))}
    assert found == {
        "a/b/x": [1],
        "a.2/b": [2],
        "a/b.2/x": [3],
        "messages/value": [4],
        "messages.2/value": [5],
    }


def ros1_record(header, data=b""):
    fields = b"".join(
        struct.pack("<I", len(name) + 1 + len(value)) + name + b"=" + value
        for name, value in header.items()
    )
    return struct.pack("<I", len(fields)) + fields + struct.pack("<I", len(data)) + data


def bag_of(*records, index=14, chunks=0):
    head = {b"op": b"\3", b"index_pos": struct.pack("<Q", index)}
    head[b"chunk_count"] = struct.pack("<I", chunks)
    return b"#ROSBAG V2.0\n" + ros1_record(head) + b"".join(records)


def ros1_chunk(data):
    head = {b"op": b"\5", b"compression": b"none", b"size": struct.pack("<I", len(data))}
    return ros1_record(head, data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bag_of(index=10_000), "ends early .its index begins at byte 10,000 of"),
        (bag_of(ros1_chunk(b""), chunks=2), "ends early .2 chunks are declared, 1 found"),
        (bag_of(ros1_chunk(ros1_chunk(b"")), chunks=1), "a chunk lies in a chunk"),
        (bag_of(ros1_record({b"x": b"1"})), "has no 'op'"),
        (
            bag_of(ros1_record({b"op": b"\2", b"time": b"1"})),
            "'time' of a record has 1 bytes, not 8",
        ),
        (
            bag_of(ros1_record({b"op": b"\2", b"time": bytes(8), b"conn": b"1" * 9000})),
            "'conn' of a record has 9,000 bytes, not 4",
        ),
    ],
)
def test_a_damaged_bag_is_refused_with_its_reason(tmp_path, data, reason):
    (tmp_path / "a.bag").write_bytes(data)
    with pytest.raises(FormatError, match=reason):
        read_all(tmp_path / "a.bag")
