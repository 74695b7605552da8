"""The texts of the KITTI object layout: calibrations and labels.

A calibration has a name and numbers in each line (``P2: 7.2e+02 ...``), each of which is a value; 9,
12 and 16 numbers are a matrix of 3, 3 and 4 rows. `camera_to_velo` leads from the rectified camera
to the lidar, the inverse of ``R0_rect`` times ``Tr_velo_to_cam``.

A label has a line for each object: class, truncation, occlusion, alpha, four corners in the picture,
height, width, length, the middle of the underside in the camera, yaw, and of results a score.
``DontCare`` marks regions without an object, and is left out. `boxes` [N, 7] are centre, size and yaw
in the axes of the camera; `boxes_2d` are absent where all are zeros: the objects were labelled in the
cloud alone.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.model.sample import Array

_MOST_LINES = 64  # of a calibration
_LONGEST_LINE = 4096  # characters of the first line that are looked at
_NAMED = re.compile(r"([A-Za-z_]\w{0,40}):?[ \t]++(\S.*+)")
_SHAPES = {9: (3, 3), 12: (3, 4), 16: (4, 4)}
_FEWEST_NUMBERS = 3  # of a calibration's line
# Numbers behind the class of an object, without and with a score.
_WIDTHS = (14, 15)
_OCCLUSIONS = range(-1, 4)
_REGION = "DontCare"


def kitti_values(body: str) -> dict[str, Any] | None:
    """Return the values of a calibration or of labels, None for any other text.

    Raises:
        FormatError: the first line is a label, and another one is not.
    """
    first_line = body.lstrip()[:_LONGEST_LINE].partition("\n")[0].split()
    if len(first_line) < 1 + _FEWEST_NUMBERS:
        return None
    if first_line[0].endswith(":"):
        return _calibration(body)
    return _labels(body) if _is_label(first_line) else None


def _numbers(words: list[str]) -> list[float] | None:
    try:
        return [float(word) for word in words]
    except ValueError:
        return None


def _calibration(body: str) -> dict[str, Any] | None:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if not 1 < len(lines) <= _MOST_LINES:
        return None
    values = dict[str, Array]()
    for line in lines:
        named = _NAMED.fullmatch(line)
        numbers = _numbers(named[2].split()) if named else None
        if named is None or numbers is None or len(numbers) < _FEWEST_NUMBERS or named[1] in values:
            return None
        values[named[1]] = np.array(numbers).reshape(_SHAPES.get(len(numbers), (-1,)))
    rotation = values.get("R0_rect", values.get("R_rect", np.zeros(0)))
    motion = values.get("Tr_velo_to_cam", values.get("Tr_velo_cam", np.zeros(0)))
    if rotation.shape == (3, 3) and motion.shape == (3, 4):
        inverse = _inverse(rotation @ motion)
        if inverse is not None:
            values["camera_to_velo"] = inverse
    return values


def _inverse(motion: Array) -> Array | None:
    whole = np.eye(4)
    whole[:3] = motion
    try:
        return np.linalg.inv(whole)
    except np.linalg.LinAlgError:
        return None


def _is_label(words: list[str]) -> bool:
    """Tell whether words are the line of an object: a class, a share, a small whole number, numbers."""
    numbers = _numbers(words[1:])
    if numbers is None or len(numbers) not in _WIDTHS or _numbers(words[:1]) is not None:
        return False
    return -1 <= numbers[0] <= 1 and numbers[1] in _OCCLUSIONS


def _labels(body: str) -> dict[str, Any]:
    names = list[str]()
    rows = list[list[float]]()
    width = 0
    for number, line in enumerate(body.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        numbers = _numbers(words[1:])
        width = width or len(words) - 1
        if numbers is None or len(numbers) != width:
            what = "holds words" if numbers is None else f"has {len(numbers)} numbers"
            msg = f"line {number:,} {what} behind the class; the first line has {width} numbers"
            raise FormatError(msg)
        if words[0] != _REGION:
            names.append(words[0])
            rows.append(numbers)
    table = np.array(rows, np.float64).reshape(-1, width)
    values: dict[str, Any] = {
        "names": names,
        "truncated": table[:, 0],
        "occluded": table[:, 1],
        "alpha": table[:, 2],
        "dimensions": table[:, 7:10],
        "location": table[:, 10:13],
        "rotation_y": table[:, 13],
        "boxes": _boxes(*np.hsplit(table[:, 7:14], 7)),
    }
    if table[:, 3:7].any() or not len(table):
        values["boxes_2d"] = table[:, 3:7]
    if width > _WIDTHS[0]:
        values["score"] = table[:, 14]
    return {
        name: value if isinstance(value, list) else np.ascontiguousarray(value)
        for name, value in values.items()
    }


def _boxes(height: Array, width: Array, length: Array, *place: Array) -> Array:
    x, y, z, yaw = place
    return np.hstack([x, y - height / 2, z, length, height, width, yaw])
