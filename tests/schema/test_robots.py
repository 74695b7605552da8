"""Profiles of robots: what is built in, where a path is looked for, what is refused and at which line."""

import re
import subprocess
import sys

import pytest

from datacheck.errors import SchemaError
from datacheck.schema.grammar import ROBOTS
from datacheck.schema.load import dump_schema, load_schema, parse_schema
from datacheck.schema.model import FieldSpec
from datacheck.schema.robots import load_robot
from tests.rules.robot_sources import NAMES, rows_of

SCHEMA = """datacheck: 1
name: mine
samples: {files: '*.npy'}
fields:
  q: {role: joint_angle, shape: [T, 2], unit: rad, robot: ./arm.yaml}
"""
ARM = """datacheck: 1
name: arm
about: a test arm
joints:
  - {name: lift, unit: m, range: 0..0.8, speed: 0.5}
  - {name: turn, range: -1..1}
sources:
  - {url: "https://example.org/arm.urdf", version: "3", license: MIT, gives: limits}
"""


def saved(tmp_path, arm=ARM, schema=SCHEMA):
    (tmp_path / "arm.yaml").write_text(arm, encoding="utf-8")
    (tmp_path / "s.yaml").write_text(schema, encoding="utf-8")
    return tmp_path / "s.yaml"


# ----------------------------------------------------------------------------------------- built in


def test_every_built_in_robot_has_numbers_typed_from_its_source():
    assert sorted(ROBOTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_has_the_numbers_of_its_source(name):
    robot = load_robot(name)
    rows = rows_of(name)
    assert robot.name == name
    assert [joint.name for joint in robot.joints] == [row[0] for row in rows]
    for joint, (_, low, high, speed) in zip(robot.joints, rows, strict=True):
        found = (None, None) if joint.range is None else (joint.range.low, joint.range.high)
        assert found == (pytest.approx(low, abs=1e-8), pytest.approx(high, abs=1e-8))
        assert joint.speed == pytest.approx(speed, abs=1e-8)
    for source in robot.sources:
        assert source.url.startswith("https://github.com/")
        assert len(source.version) == 40  # a commit
        assert source.license
        assert source.gives


def test_the_orders_of_the_columns():
    assert list(load_robot("panda").columns) == ["from the base"]
    assert load_robot("leap").columns == {
        "by number": tuple(range(16)),
        "along the fingers": (1, 0, 2, 3, 5, 4, 6, 7, 9, 8, 10, 11, 12, 13, 14, 15),
    }
    aloha = [joint.name for joint in load_robot("aloha").joints]
    assert (aloha[6], aloha[13]) == ("left_gripper", "right_gripper")


@pytest.mark.parametrize(
    ("robot", "message"),
    [
        ("pandas", "'pandas' is not a known robot. Did you mean 'panda'?"),
        ("'./arm.yaml'", "'./arm.yaml' is a path, which only the file of a schema can name"),
        ("7", "7 is not a robot; write the path of a profile, or one of allegro, aloha, "),
    ],
)
def test_what_names_no_robot_is_refused_with_the_known_ones(robot, message):
    with pytest.raises(ValueError, match="robot") as refused:
        FieldSpec(role="joint_angle", robot=7 if robot == "7" else robot.strip("'"))
    assert message in str(refused.value)


# ------------------------------------------------------------------------------------ own profiles


def test_a_profile_beside_the_schema_travels_with_it(tmp_path):
    schema = load_schema(saved(tmp_path))
    robot = schema.fields["q"].robot
    assert (robot.name, robot.limits) == ("arm", ((0.0, 0.8), (-1.0, 1.0)))
    assert [joint.unit for joint in robot.joints] == ["m", "rad"]
    # The schema of a run has no folder: it holds the numbers.
    (tmp_path / "arm.yaml").unlink()
    again = parse_schema(dump_schema(schema), files=False)
    assert again == schema
    assert again.digest == schema.digest
    (tmp_path / "arm.yaml").write_text(ARM.replace("-1..1", "-2..1"), encoding="utf-8")
    assert load_schema(tmp_path / "s.yaml").digest != schema.digest


def test_the_name_of_a_built_in_robot_is_kept_and_a_file_of_that_name_is_not_taken_for_it(tmp_path):
    named = parse_schema(SCHEMA.replace("./arm.yaml", "panda").replace("[T, 2]", "[T, 7]"))
    assert named.as_dict()["fields"]["q"]["robot"] == "panda"
    other = load_schema(saved(tmp_path, ARM.replace("name: arm", "name: panda")))
    assert other.as_dict()["fields"]["q"]["robot"]["joints"][0]["name"] == "lift"


def test_a_base_finds_its_robot_in_its_own_folder_and_is_replaced_as_a_whole(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    saved(base)
    (tmp_path / "s.yaml").write_text("datacheck: 1\nname: top\nextends: ./base/s.yaml\n")
    assert load_schema(tmp_path / "s.yaml").fields["q"].robot.name == "arm"
    (tmp_path / "s.yaml").write_text(
        "datacheck: 1\nname: top\nextends: ./base/s.yaml\nfields: {q: {robot: ur5e}}\n"
    )
    assert load_schema(tmp_path / "s.yaml").fields["q"].robot.name == "ur5e"


def test_a_split_may_have_another_robot(tmp_path):
    when = "when:\n  split=b:\n    q: {robot: ./arm.yaml}\n"
    schema = load_schema(
        saved(
            tmp_path,
            schema=SCHEMA.replace("./arm.yaml", "ur5e").replace("*.npy", "{split}/*.npy") + when,
        )
    )
    assert schema.fields["q"].robot.name == "ur5e"
    assert schema.for_split("b").fields["q"].robot.name == "arm"
    assert parse_schema(dump_schema(schema)) == schema


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("range: -1..1", "range: 1..-1", "6, joints[1].range: low end 1 is above high end -1."),
        ("range: -1..1", "range: -90..90", "6, joints[1].range: -90..90 is more than four turns"),
        ("range: -1..1", "rnage: -1..1", "6, joints[1].rnage: unknown key 'rnage'. Did you mean"),
        ("speed: 0.5", "speed: 0", "5, joints[0].speed: found the number 0; a number above 0"),
        ("speed: 0.5", "speed: .inf", "5, joints[0].speed: YAML reads .inf as a number"),
        ("unit: m", "unit: deg", "5, joints[0].unit: found the text 'deg'; allowed: rad, m"),
        ("name: turn", "name: lift", "6, joints[1].name: two joints are called 'lift'"),
        ("name: arm\n", "", "1: name is missing; it is required"),
        ("datacheck: 1", "datacheck: 2", "1, datacheck: found the number 2; allowed: 1"),
        ("license: MIT, ", "", "8, sources[0]: license is missing"),
        (
            "sources:",
            "orders: [{name: back, joints: [turn]}]\nsources:",
            "7, orders[0].joints: the order 'back' must name each joint once: lift, turn",
        ),
        ("about: a test arm", "about: !!python/object:os.system x", "3, about: the tag"),
    ],
)
def test_a_wrong_profile_is_refused_at_its_line(tmp_path, old, new, message):
    with pytest.raises(SchemaError) as refused:
        load_schema(saved(tmp_path, ARM.replace(old, new)))
    assert f"{tmp_path}/arm.yaml:{message}" in str(refused.value)


def test_a_missing_profile_is_refused_at_the_line_of_the_schema(tmp_path):
    path = saved(tmp_path, schema=SCHEMA.replace("arm.yaml", "leg.yaml"))
    with pytest.raises(SchemaError) as refused:
        load_schema(path)
    assert f"{path}:5, fields.q.robot: no robot './leg.yaml'" in str(refused.value)
    with pytest.raises(SchemaError, match="the schema of a run may name built-in robots only"):
        parse_schema(SCHEMA, files=False)


def test_a_robot_has_at_most_64_joints_times_orders(tmp_path):
    joints = "".join(f"  - {{name: j{number}}}\n" for number in range(33))
    orders = "orders: [{name: a}, {name: b}]\n"
    arm = f"datacheck: 1\nname: arm\nabout: many\njoints:\n{joints}"
    assert load_schema(saved(tmp_path, arm)).fields["q"].robot.size == 33
    with pytest.raises(SchemaError, match="33 joints in 2 orders; at most 64"):
        load_schema(saved(tmp_path, arm + orders))


# ------------------------------------------------------------------------------------------- pages


def test_the_examples_of_the_page_load(tmp_path, repository):
    text = (repository / "docs" / "robots.md").read_text(encoding="utf-8")
    first, profile, second = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    arm = parse_schema(first).fields["state.arm"].robot
    assert (arm.name, arm.size) == ("panda", 7)
    (tmp_path / "lift_arm.yaml").write_text(profile, encoding="utf-8")
    (tmp_path / "s.yaml").write_text(second, encoding="utf-8")
    robot = load_schema(tmp_path / "s.yaml").fields["q"].robot
    assert robot.columns == {"from the base": (0, 1, 2), "wheel first": (2, 0, 1)}
    assert robot.limits[:2] == ((0.0, 0.8), (-1.57, 1.57))
    assert robot.gripper.width == 0.08
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} >= ROBOTS


URDF = """<robot name="two">
  <joint name="base" type="fixed"/>
  <joint name="a" type="revolute"><limit lower="-1.5" upper="2.25" velocity="3" effort="1"/></joint>
  <joint name="b" type="continuous"><limit velocity="0" effort="1"/></joint>
  <joint name="c" type="prismatic"><limit lower="0" upper="0.04" velocity="0.2"/></joint>
  <joint name="d" type="prismatic"><limit lower="0" upper="0.04"/><mimic joint="c"/></joint>
</robot>
"""


def test_a_urdf_becomes_a_profile(tmp_path, repository):
    (tmp_path / "two.urdf").write_text(URDF, encoding="utf-8")
    script = repository / "scripts" / "robot_profile.py"
    run = subprocess.run(
        [sys.executable, script, tmp_path / "two.urdf"], capture_output=True, text=True, check=True
    )
    (tmp_path / "arm.yaml").write_text(run.stdout, encoding="utf-8")
    robot = load_robot(tmp_path / "arm.yaml")
    found = [(joint.name, joint.unit, joint.speed) for joint in robot.joints]
    assert found == [("a", "rad", 3.0), ("b", "rad", None), ("c", "m", 0.2)]
    assert robot.limits == ((-1.5, 2.25), (float("-inf"), float("inf")), (0.0, 0.04))
