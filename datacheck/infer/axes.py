"""Names the first axes of fields, so that a scan can compare their lengths.

Fields whose lengths are equal in every sample share an axis. Fields whose lengths are equal in
nearly all samples share it too: in the other samples values are probably cut off, which a scan
should report. An axis of time is called ``T``; rules of episodes apply to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from datacheck.infer.profile import NEARLY_ALL, FieldProfile

# Names of fields that have a value for each step in time.
_STEP_NAMES = (
    r"^acts?$|action|^rew(?:ards?)?$|^dones?$|terminal|^frame_index$|^time_?steps?$|^rotations$"
)


class Axis(NamedTuple):
    """The first axis of a field.

    Args:
        name: its name.
        deviating: in how many samples its length differs from the other fields with this axis.
    """

    name: str
    deviating: int = 0


def name_axes(profiles: Mapping[str, FieldProfile], *, episodes: bool) -> dict[str, Axis]:
    """Return the first axis of each field whose length differs between samples.

    Args:
        profiles: the fields.
        episodes: the samples are episodes, so the axis that most fields share is time.
    """
    groups = _group_by_lengths(profiles, episodes=episodes)
    free_names = _axis_names(episodes=episodes)
    has_time = episodes
    axes: dict[tuple[int, ...], Axis] = {}
    for lengths, names in sorted(groups.items(), key=_most_fields_first):
        axis = _similar_axis(lengths, axes)
        if axis is None and not has_time:
            has_time = any(_has_value_per_step(name, profiles[name]) for name in names)
            axis = Axis("T") if has_time else None
        axes[lengths] = axis or Axis(next(free_names))
    return {name: axes[lengths] for lengths, names in groups.items() for name in names}


def _most_fields_first(group: tuple[tuple[int, ...], list[str]]) -> tuple[int, list[str]]:
    _, names = group
    return -len(names), names


def _group_by_lengths(
    profiles: Mapping[str, FieldProfile], *, episodes: bool
) -> dict[tuple[int, ...], list[str]]:
    """Return the names of the fields that need an axis, by their lengths in all samples."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, profile in sorted(profiles.items()):
        # One or two samples of one length do not show that the length is fixed.
        is_open = _has_varying_length(profile) or len(profile.lengths) <= 2
        if profile.lengths and (is_open or episodes):
            groups.setdefault(tuple(profile.lengths), []).append(name)
    if episodes:
        return groups
    return {
        lengths: names
        for lengths, names in groups.items()
        if len(names) > 1 or not profiles[names[0]].fixed_row_length
    }


def _similar_axis(lengths: tuple[int, ...], axes: Mapping[tuple[int, ...], Axis]) -> Axis | None:
    """Return the axis whose lengths differ in the fewest samples, None if in too many."""
    candidates = [
        Axis(axis.name, _deviating_samples(axis_lengths, lengths))
        for axis_lengths, axis in axes.items()
        if not axis.deviating
    ]
    similar = [axis for axis in candidates if axis.deviating]
    return min(similar, key=lambda axis: (axis.deviating, axis.name), default=None)


def _deviating_samples(lengths: Sequence[int], other_lengths: Sequence[int]) -> int:
    """Return in how many samples lengths differ that are equal in nearly all, else 0."""
    if len(lengths) != len(other_lengths):
        return 0
    pairs = list(zip(lengths, other_lengths, strict=True))
    equal = [length for length, other in pairs if length == other]
    deviating = len(pairs) - len(equal)
    # Few different lengths may be equal by chance: texts that are cut at 512 tokens.
    is_chance = len(set(equal)) <= deviating
    return 0 if is_chance or len(equal) < NEARLY_ALL * len(pairs) else deviating


def _has_value_per_step(name: str, profile: FieldProfile) -> bool:
    """Tell whether a field has a value for each step in time."""
    if not _has_varying_length(profile):
        return False
    base_name = name.rpartition("/")[2].lower()
    has_moving_joints = len(profile.item or []) == 2 and profile.joint_count > 0
    return has_moving_joints or re.search(_STEP_NAMES, base_name) is not None


def _has_varying_length(profile: FieldProfile) -> bool:
    # Joints of a torn sample: the axis counts joints, whose number is fixed.
    are_joints = len(profile.item or []) == 1 and profile.joint_count > 0
    return len(set(profile.lengths)) > 1 and not are_joints


def _axis_names(*, episodes: bool) -> Iterator[str]:
    yield "T" if episodes else "P"
    yield from "NMKGVFQRS"
    yield from (f"N{number}" for number in count(1))
