"""Joints and the bones between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from datacheck.preview.numbers import Array, UnfitError, floats, numeric, short, shown
from datacheck.rules.skeletons import SKELETONS, Skeleton

_HAND = 21
_MOST = 512


class Pose(NamedTuple):
    """The joints of one moment.

    Shapes:
        joints: float64 (joints, 3)
        finite: bool (joints): which have a place

    Args:
        skeleton: their order, None where it is not known.
        guessed: it is the one in which bones are shortest; the schema names none.
        moment: which one it is of several, else "".
    """

    joints: Array
    finite: Array
    skeleton: Skeleton | None
    guessed: bool
    moment: str

    @property
    def chains(self) -> list[Any]:
        """The bones as JSON: of each finger its name and its joints."""
        return (
            [] if self.skeleton is None else [[finger, list(chain)] for finger, chain in self.skeleton.chains.items()]
        )


def pose(value: object, name: str | None) -> Pose:
    """Return the joints of one moment; of several that of the middle one.

    Shapes:
        value: as of `skeleton`

    Args:
        name: of the skeleton that the schema declares, or None.

    Raises:
        UnfitError: it has no finite joint, or is of another shape.
    """
    joints, moment = _joints(numeric(value))
    finite = np.asarray(np.isfinite(joints).all(axis=1))
    if not finite.any():
        msg = f"has {len(joints)} joints, none of them finite"
        raise UnfitError(msg)
    return Pose(joints, finite, *_bones(joints, finite, name), moment)


def skeleton(value: object, name: str | None = None, unit: str = "", up: str | None = None) -> dict[str, Any]:
    """Return the preview of the joints of one moment; of several that of the middle one.

    Shapes:
        value: number (joints, 3), (joints, 2), (3), or (T, joints, 3)

    Args:
        name: of the skeleton that the schema declares, or None.
        unit: of the coordinates, "" where it is not known.
        up: the axis that points up; None: z.

    Raises:
        UnfitError: it has no finite joint, or is of another shape.
    """
    posed = pose(value, name)
    joints, finite, found = posed.joints, posed.finite, posed.skeleton
    low, high = joints[finite].min(axis=0), joints[finite].max(axis=0)
    with np.errstate(over="ignore"):
        span = float((high - low).max())
    kept = [[short(v, span) for v in joint] if fine else None for joint, fine in zip(joints, finite, strict=True)]
    made = {
        "kind": "skeleton", "unit": unit, "up": up or "z", "box": [low.tolist(), high.tolist()],
        "joints": kept, "chains": posed.chains,
        "skeleton": "" if found is None else found.name, "guessed": posed.guessed, "unfinite": int((~finite).sum()),
    }  # fmt: skip
    return made | {"about": _about(made, posed.moment, low, high)}


def _joints(values: Array) -> tuple[Array, str]:
    """Return the joints of one moment, float64 (joints, 3), and which moment that is."""
    moment = ""
    if values.ndim == 3 and len(values):
        place = len(values) // 2
        values, moment = values[place], f"step {place:,} of {len(values):,}"
    if values.ndim == 1 and len(values) == 3:
        values = values[None]
    if values.ndim != 2 or values.shape[1] not in {2, 3} or not 0 < len(values) <= _MOST:
        msg = f"has shape {list(values.shape)}; joints are [J, 3], at most {_MOST}"
        raise UnfitError(msg)
    made = np.zeros((len(values), 3))
    made[:, : values.shape[1]] = floats(values)
    return made, moment


def _bones(joints: Array, finite: Array, name: str | None) -> tuple[Skeleton | None, bool]:
    """Return the order of the joints, and whether it was guessed: of known hands the one with the shortest bones."""
    known = SKELETONS.get(name or "")
    if known is not None:
        return (known, False) if known.joints == len(joints) else (None, False)
    if name is not None or len(joints) != _HAND or not finite.all():
        return None, False

    def length(one: Skeleton) -> float:
        ends = np.array(one.bones)
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.sqrt(np.square(joints[ends[:, 0]] - joints[ends[:, 1]]).sum(axis=1)).sum())

    return min(SKELETONS.values(), key=length), True


def _about(made: dict[str, Any], moment: str, low: Array, high: Array) -> str:
    with np.errstate(over="ignore"):
        edges = " x ".join(shown(float(edge)) for edge in high - low)
    count = len(made["joints"])
    parts = [f"{count} {'joint' if count == 1 else 'joints'}", f"{edges} {made['unit'] or '(no unit declared)'}"]
    if moment:
        parts.insert(0, moment)
    if made["unfinite"]:
        parts.append(f"{made['unfinite']} not finite and not drawn")
    if made["guessed"]:
        parts.append(f"the schema names no skeleton; bones as in {made['skeleton']}, in which they are shortest")
    elif made["skeleton"]:
        parts.append(f"bones of {made['skeleton']}")
    else:
        parts.append("bones are not known")
    return f"Skeleton: {'; '.join(parts)}."
