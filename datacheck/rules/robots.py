"""Joint limits of robots that rules know by name (``robot: panda``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_FINGER = ((-1.047, 1.047), (-0.314, 2.23), (-0.506, 1.885), (-0.366, 2.042))
_THUMB = ((-0.349, 2.094), (-0.47, 2.443), (-1.2, 1.9), (-1.34, 1.88))


@dataclass(frozen=True, eq=False)
class Robot:
    """One arm or hand.

    Args:
        limits: (lowest, highest) angle of each joint [rad].
        speeds: highest speed of each joint [rad/s].
        orders: by name, which joint stands in each column; the first is that of `limits`.
    """

    limits: tuple[tuple[float, float], ...]
    speeds: tuple[float, ...]
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def joints(self) -> int:
        """Number of joints."""
        return len(self.limits)


ROBOTS: Mapping[str, Robot] = {
    # Franka Robotics, "Robot and interface specifications": limits of the Panda in joint space
    "panda": Robot(
        limits=(
            (-2.8973, 2.8973), (-1.7628, 1.7628), (-2.8973, 2.8973), (-3.0718, -0.0698), (-2.8973, 2.8973),
            (-0.0175, 3.7525), (-2.8973, 2.8973),
        ),
        speeds=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
        orders={"from the base": tuple(range(7))},
    ),
    # robot.urdf of LEAP_Hand_Sim; simulators that walk the tree of links meet joint 1 of a finger before joint 0
    "leap": Robot(
        limits=(*_FINGER, *_FINGER, *_FINGER, *_THUMB),
        speeds=(8.48,) * 16,
        orders={
            "by number": tuple(range(16)),
            "along the fingers": (1, 0, 2, 3, 5, 4, 6, 7, 9, 8, 10, 11, 12, 13, 14, 15),
        },
    ),
}  # fmt: skip
