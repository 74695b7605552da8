"""Closed lists of units, frames, skeletons and roles, with exact factors."""

from __future__ import annotations

import math

LENGTH: dict[str, float] = {"m": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254, "ft": 0.3048}
ANGLE: dict[str, float] = {"rad": 1.0, "deg": math.pi / 180}
TIME: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
OTHER: frozenset[str] = frozenset({"px", "1"})
UNITS: frozenset[str] = frozenset({*LENGTH, *ANGLE, *TIME, *OTHER})

FRAMES: frozenset[str] = frozenset(
    {"camera_opengl", "camera_opencv", "world", "object", "robot_base", "sensor", "root_relative"}
)
CENTRES: frozenset[str] = frozenset({"no", "root", "centroid", "box", "xy"})

SKELETONS: frozenset[str] = frozenset(
    {"mano21", "mano21_ho3d", "mano21_openpose"}
)  # their bones are known to the rules

ROBOTS: frozenset[str] = frozenset({"panda", "leap"})  # their joint limits are known to the rules

SPATIAL_ROLES: frozenset[str] = frozenset({"points", "joints", "position"})
JOINT_NAMES, JOINT_COUNTS = r"joint|keypoint|landmark|kpt|skelet", range(14, 71)  # what skeletons are called, and have
POINT_NAMES = r"point|xyz|cloud|^pc|_pc|coord|vert|scan"
RATE_NAMES = (
    r"(?:^|_|q)(?:vel(?:$|_|oc)|acc(?:$|_|el)|torque|effort|force|wrench)|_(?:cos|sin)$"  # of joints, and no places
)
PACE_NAMES = (
    r"(?:^|[./])(?:(?:sampl\w*_?|frame_?)?(?:rate|freq(?:uency)?)|fps|hz|sr|dt|frame_?time)$"  # of a whole recording
)

ROLES: frozenset[str] = SPATIAL_ROLES | {
    "pose", "rotvec", "quaternion", "transform", "action", "joint_angle", "image", "depth", "color", "normal",
    "segment", "class", "instance", "mask", "flag", "intrinsics", "text", "chat", "tokens", "labels", "faces",
    "shape", "timestamp", "reward", "value", "captions", "id", "gripper", "done", "boxes", "video", "ground_truth",
}  # fmt: skip


def factor(unit: str) -> float:
    """Return what one `unit` is in the base unit of its kind (metre, radian, second); 1 for pixels and counts."""
    for kind in (LENGTH, ANGLE, TIME):
        if unit in kind:
            return kind[unit]
    return 1.0
