"""BVH motion capture: "positions" and "rotations" of each frame, the skeleton, the frame time.

Values: "positions" [frames, channels] in the file's unit of length and "rotations" [frames,
channels] in degrees, each with the channels of its kind in file order; "channels", the names of all
channels ("Hips.Xrotation"); "joints", the names of the joints; "parents" [joints], -1 for a root;
"offsets" [joints, 3]; "frame_time" in seconds. End sites have no channels and are no joints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    TEXT_BYTES,
    Values,
    check_bytes,
    check_longest,
    numbers,
    text,
    text_lines,
)
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_FRAMES = re.compile(r"\s*Frames\s*:\s*(\d{1,18})\s*", re.IGNORECASE)
_FRAME_TIME = re.compile(r"\s*Frame\s+Time\s*:\s*(\S+)\s*", re.IGNORECASE)
_CHANNEL = re.compile(r"[XYZ](position|rotation)", re.IGNORECASE)
_BRACE = re.compile(r"([{}])")
_END_SITE = -2  # stands for an end site in place of a joint's number


@dataclass
class _JointTree:
    joints: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    offsets: list[list[float]] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[int]:
        """Return the indices of the channels whose names end with `kind`."""
        return [index for index, name in enumerate(self.channels) if name.lower().endswith(kind)]


def _parse(data: bytes, hint: Hint) -> Values:
    del hint
    check_bytes(len(data), "the file", TEXT_BYTES)
    lines = text_lines(data.removeprefix(b"\xef\xbb\xbf"))
    if not lines or lines[0].split() != [b"HIERARCHY"]:
        msg = f"not a BVH file: it starts with {data[:16]!r}"
        raise FormatError(msg)
    end = next((index for index, line in enumerate(lines) if line.split() == [b"MOTION"]), 0)
    if not end:
        msg = "a hierarchy without a MOTION line: the file is cut short"
        raise FormatError(msg)
    skeleton = _hierarchy(lines[1:end])
    frames, frame_time = _motion_header(lines[end + 1 : end + 3])
    motion = _motion(lines[end + 3 :], frames, len(skeleton.channels), end + 4)
    return Values(
        {
            "positions": np.ascontiguousarray(motion[:, skeleton.of_kind("position")]),
            "rotations": np.ascontiguousarray(motion[:, skeleton.of_kind("rotation")]),
            "channels": skeleton.channels,
            "joints": skeleton.joints,
            "parents": np.array(skeleton.parents, dtype=np.int64),
            "offsets": np.array(skeleton.offsets, dtype=np.float64),
            "frame_time": np.asarray(frame_time),
        }
    )


def _hierarchy(lines: list[bytes]) -> _JointTree:
    """Return the skeleton that the lines after HIERARCHY declare."""
    skeleton = _JointTree()
    open_ = list[int]()
    named = list[int]()
    for number, line in enumerate(lines, 2):
        for statement in _BRACE.split(text(line, f"line {number:,}")):
            if words := statement.split():
                _parse_statement(words, skeleton, open_, named, number)
    if open_ or named or not skeleton.joints:
        msg = (
            f"the hierarchy has {len(skeleton.joints):,} joints and {len(open_):,} open braces "
            f"before MOTION"
        )
        raise FormatError(msg)
    if len(skeleton.offsets) < len(skeleton.joints):
        msg = (
            f"the hierarchy has {len(skeleton.joints):,} joints and {len(skeleton.offsets):,} "
            f"OFFSET lines of joints"
        )
        raise FormatError(msg)
    return skeleton


def _parse_statement(
    words: list[str], skeleton: _JointTree, open_: list[int], named: list[int], number: int
) -> None:
    """Parse a brace, or one statement.

    Args:
        words: words of the statement, not empty.
        skeleton: receives the joint, offset or channels.
        open_: joints and end sites whose braces are open, the innermost last.
        named: the joint or end site that the next brace belongs to.
        number: line number, for messages.
    """
    keyword = words[0].upper()
    arguments = words[1:]
    if keyword == "{" and named:
        open_.append(named.pop())
    elif keyword == "}" and open_ and not named:
        open_.pop()
    elif (
        keyword in {"ROOT", "JOINT", "END"}
        and arguments
        and not named
        and bool(open_) == (keyword != "ROOT")
    ):
        named.append(_joint_number(keyword, " ".join(arguments), skeleton, open_))
    elif keyword in {"OFFSET", "CHANNELS"} and open_ and not named:
        _parse_joint(keyword, arguments, skeleton, open_[-1], number)
    else:
        _refuse(number, f"{' '.join(words)[:60]!r} stands where the hierarchy has no place for it")


def _joint_number(keyword: str, name: str, skeleton: _JointTree, open_: list[int]) -> int:
    """Return the number of a new joint, or the number of end sites."""
    if keyword == "END":
        return _END_SITE
    check_longest([name])  # the name of each of its channels contains it
    skeleton.joints.append(name)
    skeleton.parents.append(open_[-1] if open_ else -1)
    return len(skeleton.joints) - 1


def _parse_joint(
    keyword: str, arguments: list[str], skeleton: _JointTree, joint: int, number: int
) -> None:
    """Add the offset or the channels of a joint; the offset of an end site is only checked."""
    if keyword == "OFFSET":
        offset = numbers(" ".join(arguments).encode()).tolist()
        if len(offset) != 3:
            _refuse(number, f"an OFFSET of {len(offset):,} numbers; 3 are read")
        if joint not in {_END_SITE, len(skeleton.offsets)}:
            _refuse(
                number,
                f"the joint {skeleton.joints[joint][:40]!r}, or one before it, has no OFFSET or two",
            )
        skeleton.offsets += [offset] * (joint != _END_SITE)
        return
    count = arguments[:1]
    names = arguments[1:]
    are_unique = len({name.lower() for name in names}) == len(names)
    if (
        joint == _END_SITE
        or count != [str(len(names))]
        or not are_unique
        or not all(map(_CHANNEL.fullmatch, names))
    ):
        why = (
            f"CHANNELS {' '.join(arguments)[:60]!r}; a number, and as many of Xposition to Zrotation, "
            f"each once, are read"
        )
        _refuse(number, why)
    skeleton.channels += [f"{skeleton.joints[joint]}.{name}" for name in names]


def _refuse(number: int, why: str) -> NoReturn:
    msg = f"line {number:,}: {why}"
    raise FormatError(msg)


def _motion_header(lines: list[bytes]) -> tuple[int, float]:
    """Return the declared number of frames and seconds per frame, from the lines after MOTION."""
    texts = [line.decode("latin1") for line in lines] + ["", ""]
    frames = _FRAMES.fullmatch(texts[0])
    frame_time = _FRAME_TIME.fullmatch(texts[1])
    if frames is None or frame_time is None:
        msg = (
            f"{texts[0][:30]!r} and {texts[1][:30]!r} follow MOTION; 'Frames: N' and 'Frame Time: "
            f"SECONDS' are read"
        )
        raise FormatError(msg)
    seconds = numbers(frame_time[1].encode("latin1"))
    return int(frames[1]), float(seconds[0])


def _motion(lines: list[bytes], frames: int, channels: int, first_line: int) -> Array:
    """Return the numbers of all frames, one line each.

    Shapes:
        returns: float64 (frames, channels)

    Raises:
        FormatError: there are more or fewer lines than declared, or a line has another number of
            columns.
    """
    widths = [(number, len(line.split())) for number, line in enumerate(lines, first_line)]
    line_count = sum(width > 0 for _, width in widths)
    if line_count != frames:
        msg = (
            f"Frames of the header is not the number of motion lines: {frames:,} and {line_count:,}"
        )
        raise FormatError(msg)
    for number, width in widths:
        if width not in {0, channels}:
            _refuse(
                number,
                f"{width:,} numbers in a frame; the hierarchy declares {channels:,} channels",
            )
    return numbers(b"\n".join(lines)).reshape(frames, channels)


def _open(path: AnyPath, hint: Hint) -> Values:
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    return _parse(path.read_bytes(), hint)


BVH = Format("bvh", (".bvh",), _open, parse=_parse, magic=(b"HIERARCHY",))
