"""Robots: names, limits and speeds of joints, each robot in a YAML file (``robot: panda``).

The built-in profiles lie in ``robots/``, beside the built-in schemas; ``docs/robots.md`` describes
their keys for users. A profile is data: nothing in it runs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from datacheck.errors import SchemaError
from datacheck.schema.complaints import Complaint, Lines, raise_complaints, to_model
from datacheck.schema.grammar import ROBOT_FOLDER, ROBOTS, Interval, Strings, as_tuple, suggestion

__all__ = ["AS_NAME", "AS_ROBOT", "Robot", "is_path", "load_robot"]

# The rules keep a few numbers for each joint in each order.
MOST_JOINTS = 64
MOST_ORDERS = 8
# Turns that are no robot's: a limit of that size is in degrees.
_MOST_ANGLE = 8 * math.pi

Text = Annotated[str, Field(min_length=1, max_length=400)]
Positive = Annotated[float, Field(gt=0)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Joint(_Model):
    """One joint, or one column that is none, such as the opening of a gripper."""

    name: Text
    """Name of the joint, as in the robot's URDF."""
    unit: Literal["rad", "m"] = "rad"
    """Unit of `range` and, per second, of `speed`."""
    range: Interval | None = None
    """Lower and upper limit; None: the joint turns without end, or its limits are unknown."""
    speed: Positive | None = None
    """Highest speed; None: the maker states none."""


class Order(_Model):
    """An order in which the columns of datasets hold the joints."""

    name: Text
    """What the order is called in reports."""
    joints: Strings = ()
    """Names of all joints; without them, the order of `Robot.joints`."""


class Gripper(_Model):
    """The gripper that follows the joints, in columns of its own."""

    width: Positive
    """Largest opening in metres."""


class Source(_Model):
    """Where numbers of a profile come from."""

    url: Text
    """Address of the URDF or data sheet."""
    version: Text
    """Version, or commit, that was read."""
    license: Text
    """Licence of the source."""
    gives: Text
    """The numbers that were taken from it."""


class Robot(_Model):
    """One robot: an arm, a hand, or a whole body."""

    datacheck: Literal[1]
    """Version of the language."""
    name: Text
    """Name in schemas and reports."""
    about: Text
    """Maker and model."""
    joints: Annotated[
        tuple[Joint, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MOST_JOINTS)
    ]
    """The joints in the order of the columns."""
    orders: Annotated[
        tuple[Order, ...], BeforeValidator(as_tuple), Field(max_length=MOST_ORDERS)
    ] = ()
    """All orders that datasets use; without them, the order of `joints` alone."""
    gripper: Gripper | None = None
    """The gripper that datasets append to the joints."""
    sources: Annotated[tuple[Source, ...], BeforeValidator(as_tuple)] = ()
    """Where the numbers come from."""
    notes: Strings = ()
    """What users must know of the values: zero position, normalization, variants."""

    @property
    def size(self) -> int:
        """Number of joints."""
        return len(self.joints)

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """Lowest and highest value of each joint, in its unit; infinite without a limit."""
        return tuple(_ends(joint) for joint in self.joints)

    @property
    def speeds(self) -> tuple[float, ...]:
        """Highest speed of each joint, in its unit per second; infinite if none is stated."""
        return tuple(joint.speed or math.inf for joint in self.joints)

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """By order: which joint each column holds."""
        places = {joint.name: number for number, joint in enumerate(self.joints)}
        orders = self.orders or (Order(name="as listed"),)
        return {
            order.name: tuple(places[name] for name in order.joints or places) for order in orders
        }


def _ends(joint: Joint) -> tuple[float, float]:
    span = joint.range
    low = None if span is None else span.low
    high = None if span is None else span.high
    return -math.inf if low is None else low, math.inf if high is None else high


def is_path(text: str) -> bool:
    """Return whether the value of ``robot`` is the path of a profile rather than a name."""
    return "/" in text or "\\" in text or text.endswith((".yaml", ".yml"))


def load_robot(name_or_path: str | Path) -> Robot:
    """Return a built-in robot by name, or the robot in a file by path.

    Raises:
        SchemaError: no such name or file, or the file is wrong: lists every fault with line, key
            and what is allowed.
    """
    if isinstance(name_or_path, str) and not is_path(name_or_path):
        return _built_in(name_or_path)
    # A schema that names no robot needs no YAML, in a training process for example.
    from datacheck.schema.yaml_text import read_text, read_yaml  # noqa: PLC0415

    data, lines = read_yaml(read_text(Path(name_or_path)), str(name_or_path))
    return _parse(data, lines)


@functools.cache
def _built_in(name: str) -> Robot:
    if name not in ROBOTS or ROBOT_FOLDER is None:
        near = suggestion(name, ROBOTS) or f"; known are {', '.join(sorted(ROBOTS))}"
        msg = f"{name!r} is not a known robot{near}"
        raise SchemaError(msg)
    return load_robot(ROBOT_FOLDER / f"{name}.yaml")


def _parse(data: object, lines: Lines) -> Robot:
    robot = to_model(Robot, data, lines)
    raise_complaints(_faults(robot), lines)
    return robot


def _faults(robot: Robot) -> Iterator[Complaint]:
    names = [joint.name for joint in robot.joints]
    for number, joint in enumerate(robot.joints):
        if joint.name in names[:number]:
            yield ("joints", number, "name"), f"two joints are called {joint.name!r}"
        ends = [end for end in _ends(joint) if math.isfinite(end)]
        if joint.unit == "rad" and any(abs(end) > _MOST_ANGLE for end in ends):
            yield (
                ("joints", number, "range"),
                f"{joint.range} is more than four turns; limits are in radians",
            )
    for number, order in enumerate(robot.orders):
        if order.name in [other.name for other in robot.orders[:number]]:
            yield ("orders", number, "name"), f"two orders are called {order.name!r}"
        if order.joints and sorted(order.joints) != sorted(names):
            yield (
                ("orders", number, "joints"),
                f"the order {order.name!r} must name each joint once: {', '.join(names)}",
            )
    columns = len(names) * max(1, len(robot.orders))
    if columns > MOST_JOINTS:
        yield (
            ("orders",),
            f"{len(names)} joints in {len(robot.orders)} orders; at most {MOST_JOINTS} joints times "
            f"orders are allowed",
        )


def _read(value: object) -> object:
    """Return the robot that a schema names, or that stands in the schema itself."""
    if value is None or isinstance(value, Robot):
        return value
    known = ", ".join(sorted(ROBOTS))
    if isinstance(value, str) and is_path(value):
        msg = f"{value!r} is a path, which only the file of a schema can name; built in are {known}"
    elif isinstance(value, str | Mapping):
        try:
            return load_robot(value) if isinstance(value, str) else _parse(dict(value), {})
        except SchemaError as error:
            raise ValueError(str(error)) from error
    else:
        msg = f"{value!r} is not a robot; write the path of a profile, or one of {known}"
    raise ValueError(msg)


def _written(robot: Robot | None) -> Any:
    """Return a robot as a schema holds it: the name of a built-in one, otherwise its profile."""
    if robot is None:
        return None
    if robot.name in ROBOTS and load_robot(robot.name) == robot:
        return robot.name
    return robot.model_dump(mode="json", exclude_defaults=True) | {"datacheck": 1}


# The value of ``robot`` in a schema: read by the first, written by the second.
AS_ROBOT = BeforeValidator(_read)
AS_NAME = PlainSerializer(_written, return_type=Any)
