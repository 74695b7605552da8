"""Rules about frames: on which side of the camera things are, and whether they project into the image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Skip, counted, rule, those
from datacheck.rules.measures import leaf, norms, place
from datacheck.rules.projection import FRAMES, READINGS, Signs, projection
from datacheck.schema.model import FieldSpec
from datacheck.table import Rows

Array = np.ndarray[Any, Any]

_BEFORE = {"camera_opengl": "behind", "camera_opencv": "front"}
_NEIGHBOURS = 3  # good samples of a group from which it tells where the others belong
_COMPANIONS, _BESIDE = 8, 0.3  # good samples that tell how near another field lies; over the distance from the camera
_NEAR, _FAR, _BETTER = 2.0, 6.0, 16.0  # distances over the usual one: that fits; that counts at most; squares, in all
_OTHER = {"camera_opengl": "camera_opencv", "camera_opencv": "camera_opengl"}


@rule(
    "DC303", "camera-frame", Severity.ERROR, Level.DATASET, measures=(place, projection),
    needs=("DC109", "DC122", "DC221", "DC301", "DC306", "DC602"),
    applies=lambda s: leaf(s) and s.role in {"points", "joints", "position"} and s.frame in _BEFORE,
    defaults={"wrong": 0.5, "sure": 0.999, "better": 0.5, "inside": 0.9},
)  # fmt: skip
def camera_frame(rows: Rows, case: Case) -> Iterator[Failure]:
    """Positions are on the other side of the camera than the declared frame says.

    What:
        In ``camera_opengl`` (x right, y up) everything lies at z < 0, in ``camera_opencv`` (y down) at z > 0. With
        ``intrinsics`` and ``image_size`` positions also project into the image; the eight ways to reverse axes are
        tried, and the one that brings them there is named, ties as ties.
    Why it matters:
        Projected in the wrong convention, crops are empty and x is mirrored; the loss stays finite.
    Measure:
        Share of positions with z on either side; share inside the image for every choice of signs. What is behind the
        camera may also be a root or centroid that was subtracted twice. The good samples of the same group, and a
        position beside it in the same sample (of HO3D ``handTrans``), tell which: mended by the right way, it lies
        where they say. Where they do not tell, all ways are listed and none is named.
    When it is wrong:
        Things behind the camera are recorded on purpose: raise ``wrong``.
    Options:
        wrong: share of a sample's positions on the wrong side from which it fails (0.5). sure: share from which the
        other convention is named (0.999). better: by how much another choice of signs must bring more positions into
        the image (0.5). inside: median share inside the image below which a warning is given (0.9).
    Bad::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m, frame: camera_opengl, centered: no}}}
        samples:
          - {n: 3, j: {hand: 1, root: [0.1, 0.0, -0.6]}}
          - {j: {hand: 1, root: [0.1, 0.0, -0.6], flip: true}}

    Good::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m, frame: camera_opengl, centered: no}}}
        samples:
          - {n: 4, j: {hand: 1, root: [0.1, 0.0, -0.6]}}

    Fix:
        Multiply by diag(1, -1, -1) once, or declare the frame that the data are in.
    Reference:
        HO3D is OpenGL; HandOccNet's JSON of it is OpenCV: one name, two conventions.
    """
    known, frame = rows.measured("front"), case.spec.frame or ""
    if not known.any():
        return
    wrong_side, column = rows[_BEFORE[_OTHER[frame]]], f":{case.name}:inside"
    projected = rows.measured(column) & known
    inside = rows[column] if projected.any() else np.zeros((len(rows), len(READINGS)))
    own = inside[:, READINGS.index(FRAMES[frame])]
    aside = known & (wrong_side > float(case.options["wrong"]))
    turned = projected & ~aside & (inside.max(axis=1) - own > float(case.options["better"]))
    good = known & ~aside & ~turned
    if aside.any():
        steps = _steps(inside[aside & projected], frame, behind=True)
        sure = int((aside & (wrong_side >= float(case.options["sure"]))).sum())
        cause, step = _cause(rows, case, aside, good, steps, sure)
        named = sure >= 0.9 * int(aside.sum())
        yield _other_side(aside, wrong_side, frame, step or steps[0], cause if named else None)
    if turned.any():
        steps = _steps(inside[turned], frame, behind=False)
        cause, step = _cause(rows, case, turned, good, steps, int(turned.sum()))
        yield _reversed(turned, inside.max(axis=1) - own, frame, step or steps[0], cause)
    judged, least = projected & good, float(case.options["inside"])
    if judged.any() and float(np.median(own[judged])) < least:
        yield _outside(judged, own, least)


def _steps(inside: Array, frame: str, *, behind: bool) -> list[Signs]:
    """Return by which signs to multiply positions, all that bring equally many into the image.

    Notes:
        The step between the two camera conventions comes first: it is the one that is forgotten. Without a projection
        it is the only one.
    """
    flip = _signs(FRAMES[frame], FRAMES[_OTHER[frame]])
    if not len(inside):
        return [flip]
    middle = np.median(inside, axis=0)
    steps = [
        _signs(FRAMES[frame], r) for r, share in zip(READINGS, middle, strict=True) if share >= middle.max() - 0.05
    ]
    return sorted((s for s in steps if s != (1, 1, 1) and (s[2] < 0 or not behind)), key=lambda s: s != flip) or [flip]


def _signs(a: Signs, b: Signs) -> Signs:
    x, y, z = (int(p * q) for p, q in zip(a, b, strict=True))
    return x, y, z


def _diag(signs: Signs) -> str:
    return f"diag({', '.join(map(str, signs))})"


def _cause(
    rows: Rows, case: Case, bad: Array, good: Array, steps: list[Signs], count: int
) -> tuple[Cause, Signs | None]:  # fmt: skip
    """Return what was done to the data, and the signs that mend it: one of the steps, or a centre subtracted twice.

    Notes:
        A frame that was forgotten and a centre subtracted twice both put things behind the camera. Once the right one
        is mended, things lie where those of good samples of the group do, and as near to another position of the sample
        (of a hand: its translation). Where neither decides between several ways, or none of them fits, all ways are
        listed and none is the cause.
    """
    frame, centres = case.spec.frame or "", {"joints": ("root", "centroid"), "points": ("centroid",)}
    ways: list[tuple[str, str, Signs | None, Array]] = [
        (_kind(step, frame), _named(step, frame), step, _mended(rows, np.array(step))) for step in steps
    ]
    if all(step[2] < 0 for step in steps):
        for centre in centres.get(case.spec.role or "", ()):
            ways.append((f"twice-{centre}", f"the {centre} was subtracted twice", None, _mended(rows, centre)))
    evidence, best = _nearest(rows, case, bad, good, [places for *_, places in ways])
    if best is None and (evidence or len(ways) > 1):
        names = tuple(words for _, words, _, _ in ways)
        return Cause(f"not clear: {', or '.join(names)}", alternatives=names), None
    kind, words, step, _ = ways[best or 0]
    return Cause(words, kind, explains=count), step


def _kind(step: Signs, frame: str) -> str:
    if step == _signs(FRAMES[frame], FRAMES[_OTHER[frame]]):
        return _OTHER[frame]
    return "reversed-" + "".join(axis for axis, sign in zip("xyz", step, strict=True) if sign < 0)


def _named(step: Signs, frame: str) -> str:
    kind = _kind(step, frame)
    words = f"probably {kind}" if kind in FRAMES else f"{' and '.join(kind.removeprefix('reversed-'))} reversed"
    return f"{words}: {_diag(step)}"


def _mended(rows: Rows, way: Array | str) -> Array:
    """Return where the first position and the centroid of each sample are once signs, or a centre, are put right."""
    places = _places(rows)
    if isinstance(way, str):
        return np.asarray(places - 2 * np.tile(rows["first" if way == "root" else "centroid"], 2))
    return np.asarray(places * np.tile(way, 2))


def _nearest(rows: Rows, case: Case, bad: Array, good: Array, ways: list[Array]) -> tuple[bool, int | None]:
    """Return whether good samples say where offenders belong, and which way of mending puts them there, None: none."""
    total, asked = np.zeros(len(ways)), 0
    for off in (*_beside_others(rows, bad, good, ways), *_beside_fields(rows, case, bad, good, ways)):
        total, asked = total + (np.minimum(off, _FAR) ** 2).sum(axis=1), asked + off.shape[1]
    best, *rest = np.argsort(total, kind="stable").tolist()
    clear = all(total[other] - total[best] >= _BETTER for other in rest)
    return asked > 0, best if asked and clear and total[best] <= _NEAR**2 * asked else None


def _beside_others(rows: Rows, bad: Array, good: Array, ways: list[Array]) -> Iterator[Array]:
    """Yield how far each way puts offenders from the good samples of their group, over how far those lie from it."""
    places = _places(rows)
    for _, group in rows.by_group():
        mine, others = group[bad[group]], group[good[group]]
        if len(mine) and len(others) >= _NEIGHBOURS:
            middle = np.median(places[others], axis=0)
            usual = max(float(np.median(norms((places[others] - middle).T))), 1e-9)
            yield np.stack([norms((way[mine] - middle).T) for way in ways]) / usual


def _beside_fields(rows: Rows, case: Case, bad: Array, good: Array, ways: list[Array]) -> Iterator[Array]:
    """Yield the same of another field of the sample, where its position keeps near the judged one in good samples."""
    first = _places(rows)[:, :3]
    for name, spec in case.schema.of_role("position"):
        column = f"{name}:first"
        known = rows.measured(column) if name != case.name and spec.unit == case.spec.unit else bad & False
        fine, mine = good & known, bad & known
        if int(fine.sum()) < _COMPANIONS or not mine.any():
            continue
        apart = norms((first[fine] - rows[column][fine]).T)
        middle, usual = float(np.median(apart)), max(float(np.median(np.abs(apart - np.median(apart)))), 1e-9)
        if middle + _FAR * usual < _BESIDE * float(np.median(norms(first[fine].T))):
            gap = [norms((way[mine][:, :3] - rows[column][mine]).T) for way in ways]
            off = np.maximum(np.stack(gap) - middle, 0) / max(usual, 0.1 * middle)
            yield off[:, off.min(axis=0) < _FAR]  # else the other field is wrong as well, and says nothing


def _places(rows: Rows) -> Array:
    return np.concatenate([rows["first"], rows["centroid"]], axis=1)


def _other_side(bad: Array, wrong_side: Array, frame: str, step: Signs, cause: Cause | None) -> Failure:
    sign = "above" if _BEFORE[frame] == "behind" else "below"
    return Failure(
        bad,
        f"{those(bad, 'lie')} at z {sign} 0 ({100 * float(np.median(wrong_side[bad])):.3g} % of their "
        f"positions, median); {frame} is declared.",
        measured={"wrong_side": float(np.median(wrong_side[bad]))},
        expected={"frame": frame},
        cause=cause,
        fix=_advice(cause, step),
        kind=cause.kind if cause else "mixed",
        order=wrong_side,
    )


def _advice(cause: Cause | None, step: Signs) -> str:
    if cause is not None and not cause.kind:
        return f"Find out which: compare with the images. {_diag(step)} would put the most likely frame right."
    if cause is not None and cause.kind.startswith("twice-"):
        return "Subtract it once: in the files or in the loader."
    return f"Multiply by {_diag(step)}{_or_declare(cause)}."


def _or_declare(cause: Cause | None) -> str:
    return f", or declare frame: {cause.kind}" if cause is not None and cause.kind in FRAMES else ""


def _reversed(bad: Array, gain: Array, frame: str, step: Signs, cause: Cause) -> Failure:
    return Failure(
        bad,
        f"{those(bad, 'project')} into the image only if multiplied by {_diag(step)}: "
        f"{100 * float(np.median(gain[bad])):.3g} % more of their positions do (median); {frame} is declared.",
        measured={"gain": float(np.median(gain[bad]))},
        expected={"frame": frame},
        cause=cause,
        fix=_advice(cause, step).removesuffix(".") + "; then every image must be mirrored the same way.",
        kind=cause.kind,
        order=gain,
    )


def _outside(known: Array, share: Array, least: float) -> Failure:
    middle = float(np.median(share[known]))
    return Failure(
        known & (share < least),
        f"only {100 * middle:.3g} % of the positions project into the image (median of {counted(int(known.sum()))}): "
        "intrinsics, image size or frame do not belong to them.",
        measured={"inside": middle},
        severity=Severity.WARNING,
        kind="outside",
        fix="Check intrinsics and image_size; an image that was resized needs its own intrinsics.",
    )


def _seen(spec: FieldSpec) -> bool:
    camera = spec.intrinsics is not None and spec.image_size is not None
    return leaf(spec) and spec.role == "joints" and spec.frame in FRAMES and camera


@rule(
    "DC606", "out-of-view", Severity.WARNING, Level.SAMPLE, measures=(projection,), applies=_seen,
    needs=("DC109", "DC122", "DC201", "DC221", "DC222", "DC301", "DC303", "DC306", "DC602"),
    defaults={"outside": 0.5, "most": 0.9},
)  # fmt: skip
def out_of_view(rows: Rows, case: Case) -> Iterator[Failure | Skip]:
    """Most joints of a sample are outside the image or behind the camera.

    What:
        At least half of a sample's joints project into the image. Only judged where the joints of most samples do: if
        they do not, it is the camera that is wrong (DC303).
    Why it matters:
        A crop around such a hand is empty or shows something else; the label then teaches noise.
    Measure:
        Share of joints with positive depth whose pixel is inside ``image_size``.
    When it is wrong:
        Hands that leave the picture are part of the task: raise ``outside``.
    Options:
        outside: share of joints that may be outside (0.5). most: median share inside, over all samples, from which
        single samples are judged (0.9).
    Bad::

        schema:
          fields:
            j: {role: joints, shape: [21, 3], unit: m, frame: camera_opengl, intrinsics: k, image_size: [640, 480]}
            k: {role: intrinsics, shape: [3, 3]}
        samples:
          - {n: 9, j: {hand: 1, root: [0.0, 0.0, -0.6]}, k: [[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]}
          - {j: {hand: 1, root: [0.9, 0.0, -0.6]}, k: [[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]}

    Good::

        schema:
          fields:
            j: {role: joints, shape: [21, 3], unit: m, frame: camera_opengl, intrinsics: k, image_size: [640, 480]}
            k: {role: intrinsics, shape: [3, 3]}
        samples:
          - {n: 9, j: {hand: 1, root: [0.0, 0.0, -0.6]}, k: [[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]}

    Fix:
        Mask these joints in the loss, or leave the samples out.
    Reference:
        HO3D hands are cut by the image border, and stay inside for the most part.
    """
    column = f":{case.name}:inside"
    known = rows.measured(column)
    if not known.any():
        return
    inside = rows[column][:, READINGS.index(FRAMES[case.spec.frame or ""])]
    if float(np.median(inside[known])) < float(case.options["most"]):
        yield Skip(known, "most positions are outside the image (DC303)")
        return
    bad = known & (1 - inside > float(case.options["outside"]))
    if bad.any():
        yield Failure(
            bad,
            f"{those(bad, 'have')} most of the joints outside the image or behind the camera "
            f"({100 * float(np.median(1 - inside[bad])):.3g} %, median).",
            measured={"outside": float(np.median(1 - inside[bad]))},
            expected={"outside": float(case.options["outside"])},
            fix="Mask these joints, or leave the samples out.",
            order=1 - inside,
        )
