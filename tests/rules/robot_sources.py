"""Limits and speeds of robots, typed from the files that their profiles name.

The numbers stand as in the source: in degrees where it has degrees, with pi where it has pi. Each
row: joint, lower, upper, speed; - for none.
"""

import math
import re

DEG = math.pi / 180

# By robot: the file, the factor of its angles to radians, its rows.
SOURCES = {
    "panda": (
        "franka_description/robots/panda/joint_limits.yaml",
        1.0,
        """
        panda_joint1 -2.8973 2.8973 2.1750
        panda_joint2 -1.7628 1.7628 2.1750
        panda_joint3 -2.8973 2.8973 2.1750
        panda_joint4 -3.0718 -0.0698 2.1750
        panda_joint5 -2.8973 2.8973 2.6100
        panda_joint6 -0.0175 3.7525 2.6100
        panda_joint7 -2.8973 2.8973 2.6100
        """,
    ),
    "leap": (
        "assets/leap_hand/robot.urdf",
        1.0,
        """
        0 -1.047 1.047 8.48
        1 -0.314 2.23 8.48
        2 -0.506 1.885 8.48
        3 -0.366 2.042 8.48
        4 -1.047 1.047 8.48
        5 -0.314 2.23 8.48
        6 -0.506 1.885 8.48
        7 -0.366 2.042 8.48
        8 -1.047 1.047 8.48
        9 -0.314 2.23 8.48
        10 -0.506 1.885 8.48
        11 -0.366 2.042 8.48
        12 -0.349 2.094 8.48
        13 -0.47 2.443 8.48
        14 -1.20 1.90 8.48
        15 -1.34 1.88 8.48
        """,
    ),
    "ur5e": (
        "config/ur5e/joint_limits.yaml",
        DEG,
        """
        shoulder_pan_joint -360 360 180
        shoulder_lift_joint -360 360 180
        elbow_joint -180 180 180
        wrist_1_joint -360 360 180
        wrist_2_joint -360 360 180
        wrist_3_joint -360 360 180
        """,
    ),
    "ur10e": (
        "config/ur10e/joint_limits.yaml",
        DEG,
        """
        shoulder_pan_joint -360 360 120
        shoulder_lift_joint -360 360 120
        elbow_joint -180 180 180
        wrist_1_joint -360 360 180
        wrist_2_joint -360 360 180
        wrist_3_joint -360 360 180
        """,
    ),
    "xarm6": (
        "xarm_description/urdf/xarm6/xarm6.urdf.xacro",
        1.0,
        """
        joint1 -2.0*pi 2.0*pi 3.14
        joint2 -2.059 2.0944 3.14
        joint3 -3.927 0.19198 3.14
        joint4 -2.0*pi 2.0*pi 3.14
        joint5 -1.69297 pi 3.14
        joint6 -2.0*pi 2.0*pi 3.14
        """,
    ),
    "xarm7": (
        "xarm_description/urdf/xarm7/xarm7.urdf.xacro",
        1.0,
        """
        joint1 -2.0*pi 2.0*pi 3.14
        joint2 -2.059 2.0944 3.14
        joint3 -2.0*pi 2.0*pi 3.14
        joint4 -0.19198 3.927 3.14
        joint5 -2.0*pi 2.0*pi 3.14
        joint6 -1.69297 pi 3.14
        joint7 -2.0*pi 2.0*pi 3.14
        """,
    ),
    "gen3": (
        "kortex_description/arms/gen3/7dof/urdf/gen3_macro.xacro",
        1.0,
        """
        joint_1 - - 1.3963
        joint_2 -2.24 2.24 1.3963
        joint_3 - - 1.3963
        joint_4 -2.57 2.57 1.3963
        joint_5 - - 1.2218
        joint_6 -2.09 2.09 1.2218
        joint_7 - - 1.2218
        """,
    ),
    "iiwa14": (
        "kuka_lbr_iiwa_support/urdf/lbr_iiwa14_r820_macro.xacro",
        DEG,
        """
        joint_1 -170 170 85
        joint_2 -120 120 85
        joint_3 -170 170 100
        joint_4 -120 120 75
        joint_5 -170 170 130
        joint_6 -120 120 135
        joint_7 -175 175 135
        """,
    ),
    "so100": (
        "Simulation/SO100/so100.urdf",
        1.0,
        """
        shoulder_pan -2 2 -
        shoulder_lift 0 3.5 -
        elbow_flex -3.14158 0 -
        wrist_flex -2.5 1.2 -
        wrist_roll -3.14158 3.14158 -
        gripper -0.2 2.0 -
        """,
    ),
    "so101": (
        "Simulation/SO101/so101_new_calib.urdf",
        1.0,
        """
        shoulder_pan -1.91986 1.91986 -
        shoulder_lift -1.74533 1.74533 -
        elbow_flex -1.69 1.69 -
        wrist_flex -1.65806 1.65806 -
        wrist_roll -2.74385 2.84121 -
        gripper -0.174533 1.74533 -
        """,
    ),
    "so101_old_calib": (
        "Simulation/SO101/so101_old_calib.urdf",
        1.0,
        """
        shoulder_pan -1.91986 1.91986 -
        shoulder_lift -3.31613 0.174533 -
        elbow_flex -0.174533 3.14159 -
        wrist_flex -1.65806 1.65806 -
        wrist_roll -2.79253 2.79253 -
        gripper -0.174533 1.74533 -
        """,
    ),
    "vx300s": (
        "interbotix_ros_xsarms/interbotix_xsarm_descriptions/urdf/vx300s.urdf.xacro",
        DEG,
        """
        waist -180+0.00001/DEG 180-0.00001/DEG -
        shoulder -106 72 -
        elbow -101 92 -
        forearm_roll -180+0.00001/DEG 180-0.00001/DEG -
        wrist_angle -107 128 -
        wrist_rotate -180+0.00001/DEG 180-0.00001/DEG -
        """,
    ),
    "g1": (
        "resources/robots/g1_description/g1_29dof_rev_1_0.urdf",
        1.0,
        """
        left_hip_pitch_joint -2.5307 2.8798 32
        left_hip_roll_joint -0.5236 2.9671 20
        left_hip_yaw_joint -2.7576 2.7576 32
        left_knee_joint -0.087267 2.8798 20
        left_ankle_pitch_joint -0.87267 0.5236 37
        left_ankle_roll_joint -0.2618 0.2618 37
        right_hip_pitch_joint -2.5307 2.8798 32
        right_hip_roll_joint -2.9671 0.5236 20
        right_hip_yaw_joint -2.7576 2.7576 32
        right_knee_joint -0.087267 2.8798 20
        right_ankle_pitch_joint -0.87267 0.5236 37
        right_ankle_roll_joint -0.2618 0.2618 37
        waist_yaw_joint -2.618 2.618 32
        waist_roll_joint -0.52 0.52 37
        waist_pitch_joint -0.52 0.52 37
        left_shoulder_pitch_joint -3.0892 2.6704 37
        left_shoulder_roll_joint -1.5882 2.2515 37
        left_shoulder_yaw_joint -2.618 2.618 37
        left_elbow_joint -1.0472 2.0944 37
        left_wrist_roll_joint -1.972222054 1.972222054 37
        left_wrist_pitch_joint -1.614429558 1.614429558 22
        left_wrist_yaw_joint -1.614429558 1.614429558 22
        right_shoulder_pitch_joint -3.0892 2.6704 37
        right_shoulder_roll_joint -2.2515 1.5882 37
        right_shoulder_yaw_joint -2.618 2.618 37
        right_elbow_joint -1.0472 2.0944 37
        right_wrist_roll_joint -1.972222054 1.972222054 37
        right_wrist_pitch_joint -1.614429558 1.614429558 22
        right_wrist_yaw_joint -1.614429558 1.614429558 22
        """,
    ),
    "allegro": (
        "wonik_allegro/right_hand.xml",
        1.0,
        """
        ffj0 -0.47 0.47 -
        ffj1 -0.196 1.61 -
        ffj2 -0.174 1.709 -
        ffj3 -0.227 1.618 -
        mfj0 -0.47 0.47 -
        mfj1 -0.196 1.61 -
        mfj2 -0.174 1.709 -
        mfj3 -0.227 1.618 -
        rfj0 -0.47 0.47 -
        rfj1 -0.196 1.61 -
        rfj2 -0.174 1.709 -
        rfj3 -0.227 1.618 -
        thj0 0.263 1.396 -
        thj1 -0.105 1.163 -
        thj2 -0.189 1.644 -
        thj3 -0.162 1.719 -
        """,
    ),
    "shadow_hand": (
        "shadow_hand/right_hand.xml",
        1.0,
        """
        rh_WRJ2 -0.523599 0.174533 -
        rh_WRJ1 -0.698132 0.488692 -
        rh_FFJ4 -0.349066 0.349066 -
        rh_FFJ3 -0.261799 1.5708 -
        rh_FFJ2 0 1.5708 -
        rh_FFJ1 0 1.5708 -
        rh_MFJ4 -0.349066 0.349066 -
        rh_MFJ3 -0.261799 1.5708 -
        rh_MFJ2 0 1.5708 -
        rh_MFJ1 0 1.5708 -
        rh_RFJ4 -0.349066 0.349066 -
        rh_RFJ3 -0.261799 1.5708 -
        rh_RFJ2 0 1.5708 -
        rh_RFJ1 0 1.5708 -
        rh_LFJ5 0 0.785398 -
        rh_LFJ4 -0.349066 0.349066 -
        rh_LFJ3 -0.261799 1.5708 -
        rh_LFJ2 0 1.5708 -
        rh_LFJ1 0 1.5708 -
        rh_THJ5 -1.0472 1.0472 -
        rh_THJ4 0 1.22173 -
        rh_THJ3 -0.20944 0.20944 -
        rh_THJ2 -0.698132 0.698132 -
        rh_THJ1 -0.261799 1.5708 -
        """,
    ),
}


def _number(text):
    """Return a number of a source, None for a dash: a sum and product of numbers, pi and DEG."""
    if text == "-":
        return None
    names = {"pi": math.pi, "DEG": DEG}
    total = 0.0
    for term in re.findall(r"[-+]?[^-+]+", text):
        sign, product = (-1.0, 1.0) if term[0] == "-" else (1.0, 1.0)
        head, *divisors = term.lstrip("+-").split("/")
        for factor in head.split("*"):
            product *= names.get(factor) or float(factor)
        for divisor in divisors:
            product /= names.get(divisor) or float(divisor)
        total += sign * product
    return total


def rows_of(name):
    """Return the rows of a robot: (joint, lower, upper, speed), in radians and seconds."""
    if (
        name == "aloha"
    ):  # aloha_scripts/real_env.py: left_arm_qpos (6), left_gripper_positions (1), right ...
        arm = [*rows_of("vx300s"), ("gripper", None, None, None)]
        return [(f"{side}_{joint}", *ends) for side in ("left", "right") for joint, *ends in arm]
    if name == "g1_23":  # g1_23dof_rev_1_0.urdf: equal to that of 29 joints without these
        fixed = ("waist_roll", "waist_pitch", "wrist_pitch", "wrist_yaw")
        return [row for row in rows_of("g1") if not any(part in row[0] for part in fixed)]
    _, unit, text = SOURCES[name]
    rows = [line.split() for line in text.strip().splitlines()]
    return [
        (joint, *(None if value is None else value * unit for value in map(_number, numbers)))
        for joint, *numbers in rows
    ]


NAMES = sorted([*SOURCES, "aloha", "g1_23"])
