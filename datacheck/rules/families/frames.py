"""Rules about frames and centres: side of the camera, projection into the image, centring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.table import Rows
from datacheck.rules.base import (
    Info,
    RuleContext,
    Skip,
    count_phrase,
    format_number,
    pluralize,
    rule,
)
from datacheck.rules.measures import leaf, norms, of_role, place
from datacheck.rules.placement import FRAMES, READINGS, Signs, projection, stored
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_BEFORE = {"camera_opengl": "behind", "camera_opencv": "front"}
_NEIGHBOURS = 3  # good samples of a group that locate its others
# Fewest good samples that give the usual distance to another field; the largest such distance, as a
# share of the distance from the camera.
_COMPANIONS = 8
_BESIDE = 0.3
# In multiples of the usual distance: one that fits, and the largest that counts. The third is the
# lead in summed squares that makes a correction the best.
_NEAR = 2.0
_FAR = 6.0
_BETTER = 16.0
_OTHER = {"camera_opengl": "camera_opencv", "camera_opencv": "camera_opengl"}


@rule(
    "DC303",
    "camera-frame",
    Severity.ERROR,
    Level.DATASET,
    measures=(place, projection),
    suppressed_by=("DC109", "DC122", "DC221", "DC301", "DC306", "DC602"),
    applies=lambda s: leaf(s) and s.role in {"points", "joints", "position"} and s.frame in _BEFORE,
    defaults={"wrong": 0.5, "sure": 0.999, "better": 0.5, "inside": 0.9},
)
def camera_frame(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Positions lie on the other side of the camera than the declared frame says.

    What:
        In ``camera_opengl`` (x right, y up) all positions have z < 0, in ``camera_opencv`` (y down)
        z > 0. With ``intrinsics`` and ``image_size``, positions also project into the image. All
        eight ways to reverse axes are tried; the one that brings the positions into the image is
        named, or all of them if several do so equally well.
    Why it matters:
        Projected in the wrong convention, crops are empty and x is mirrored, while the loss stays
        finite.
    Measure:
        Share of positions with z on either side; share inside the image for every choice of signs.
        Positions behind the camera may also come from a root or centroid that was subtracted twice.
        Good samples of the same group, and another position near it in the same sample
        (``handTrans`` in HO3D), decide between these causes: with the right correction, the
        positions lie where they indicate. If they do not decide, all candidates are listed and none
        is named.
    When it is wrong:
        Objects behind the camera are recorded on purpose: raise ``wrong``.
    Options:
        wrong: share of a sample's positions on the wrong side above which the sample fails (0.5).
        sure: share on the wrong side from which the other convention is named (0.999).
        better: share of the positions that another choice of signs must bring into the image in
        addition (0.5).
        inside: median share inside the image; a smaller one is a warning (0.9).
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
        HO3D uses OpenGL, HandOccNet's JSON of it uses OpenCV: one name, two conventions.
    """
    measured = rows.measured("front")
    frame = case.spec.frame or ""
    if not measured.any():
        return
    wrong_side = rows[_BEFORE[_OTHER[frame]]]
    column = f":{case.name}:inside"
    projected = rows.measured(column) & measured
    inside = rows[column] if projected.any() else np.zeros((len(rows), len(READINGS)))
    own = inside[:, READINGS.index(FRAMES[frame])]
    aside = measured & (wrong_side > float(case.options["wrong"]))
    turned = projected & ~aside & (inside.max(axis=1) - own > float(case.options["better"]))
    good = measured & ~aside & ~turned
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
    judged = projected & good
    least = float(case.options["inside"])
    if judged.any() and float(np.median(own[judged])) < least:
        yield _outside(judged, own, least)


def _steps(inside: Array, frame: str, *, behind: bool) -> list[Signs]:
    """Return the sign changes of positions that bring equally many of them into the image.

    Notes:
        The step between the two camera conventions comes first, as it is the one usually forgotten.
        Without a projection it is the only one.
    """
    flip = _signs(FRAMES[frame], FRAMES[_OTHER[frame]])
    if not len(inside):
        return [flip]
    middle = np.median(inside, axis=0)
    steps = [
        _signs(FRAMES[frame], r)
        for r, share in zip(READINGS, middle, strict=True)
        if share >= middle.max() - 0.05
    ]
    return sorted(
        (s for s in steps if s != (1, 1, 1) and (s[2] < 0 or not behind)), key=lambda s: s != flip
    ) or [flip]


def _signs(a: Signs, b: Signs) -> Signs:
    x, y, z = (int(p * q) for p, q in zip(a, b, strict=True))
    return x, y, z


def _diag(signs: Signs) -> str:
    return f"diag({', '.join(map(str, signs))})"


def _cause(
    rows: Rows, case: RuleContext, bad: Array, good: Array, steps: list[Signs], count: int
) -> tuple[Cause, Signs | None]:
    """Return the cause, and the signs that correct it: one of the steps, or a doubled centring.

    Notes:
        A forgotten frame conversion and a centre subtracted twice both move objects behind the
        camera. Once the right cause is corrected, positions lie where good samples of the group do,
        and as near to another position of the sample (of a hand: its translation). Where neither
        decides between several corrections, or none of them fits, all are listed and none is the
        cause.
    """
    frame = case.spec.frame or ""
    centres = {"joints": ("root", "centroid"), "points": ("centroid",)}
    ways: list[tuple[str, str, Signs | None, Array]] = [
        (_kind(step, frame), _named(step, frame), step, _corrected(rows, np.array(step)))
        for step in steps
    ]
    if all(step[2] < 0 for step in steps):
        for centre in centres.get(case.spec.role or "", ()):
            ways.append(
                (
                    f"twice-{centre}",
                    f"the {centre} was subtracted twice",
                    None,
                    _corrected(rows, centre),
                )
            )
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
    words = (
        f"probably {kind}"
        if kind in FRAMES
        else f"{' and '.join(kind.removeprefix('reversed-'))} reversed"
    )
    return f"{words}: {_diag(step)}"


def _corrected(rows: Rows, way: Array | str) -> Array:
    """Return the first position and the centroid of each sample, corrected by signs or a centre."""
    places = _places(rows)
    if isinstance(way, str):
        return np.asarray(places - 2 * np.tile(rows["first" if way == "root" else "centroid"], 2))
    return np.asarray(places * np.tile(way, 2))


def _nearest(
    rows: Rows, case: RuleContext, bad: Array, good: Array, ways: list[Array]
) -> tuple[bool, int | None]:
    """Return whether good samples locate the offenders, and the correction that fits, or None."""
    total = np.zeros(len(ways))
    distance_count = 0
    for off in (
        *_distances_to_group(rows, bad, good, ways),
        *_distances_to_field(rows, case, bad, good, ways),
    ):
        total, distance_count = (
            total + (np.minimum(off, _FAR) ** 2).sum(axis=1),
            distance_count + off.shape[1],
        )
    best, *rest = np.argsort(total, kind="stable").tolist()
    clear = all(total[other] - total[best] >= _BETTER for other in rest)
    return distance_count > 0, best if distance_count and clear and total[
        best
    ] <= _NEAR**2 * distance_count else None


def _distances_to_group(rows: Rows, bad: Array, good: Array, ways: list[Array]) -> Iterator[Array]:
    """Yield the distance of corrected offenders from good samples of their group.

    It is divided by the usual distance of those from their median.
    """
    places = _places(rows)
    for _, group in rows.by_group():
        mine = group[bad[group]]
        others = group[good[group]]
        if len(mine) and len(others) >= _NEIGHBOURS:
            middle = np.median(places[others], axis=0)
            usual = max(float(np.median(norms((places[others] - middle).T))), 1e-9)
            yield np.stack([norms((way[mine] - middle).T) for way in ways]) / usual


def _distances_to_field(
    rows: Rows, case: RuleContext, bad: Array, good: Array, ways: list[Array]
) -> Iterator[Array]:
    """Yield the same for another field that stays near the judged one in good samples."""
    first = _places(rows)[:, :3]
    for name, spec in case.schema.of_role("position"):
        column = f"{name}:first"
        measured = (
            rows.measured(column)
            if name != case.name and spec.unit == case.spec.unit
            else bad & False
        )
        fine = good & measured
        mine = bad & measured
        if int(fine.sum()) < _COMPANIONS or not mine.any():
            continue
        distances = norms((first[fine] - rows[column][fine]).T)
        middle = float(np.median(distances))
        usual = max(float(np.median(np.abs(distances - np.median(distances)))), 1e-9)
        if middle + _FAR * usual < _BESIDE * float(np.median(norms(first[fine].T))):
            gap = [norms((way[mine][:, :3] - rows[column][mine]).T) for way in ways]
            off = np.maximum(np.stack(gap) - middle, 0) / max(usual, 0.1 * middle)
            # Elsewhere the other field is wrong too and decides nothing.
            yield off[:, off.min(axis=0) < _FAR]


def _places(rows: Rows) -> Array:
    return np.concatenate([rows["first"], rows["centroid"]], axis=1)


def _other_side(
    bad: Array, wrong_side: Array, frame: str, step: Signs, cause: Cause | None
) -> Failure:
    sign = "above" if _BEFORE[frame] == "behind" else "below"
    return Failure(
        bad,
        f"{count_phrase(bad, 'lie')} at z {sign} 0 ({100 * float(np.median(wrong_side[bad])):.3g} "
        f"% of their "
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
        return (
            f"Find out which: compare with the images. {_diag(step)} would put the most likely "
            f"frame right."
        )
    if cause is not None and cause.kind.startswith("twice-"):
        return "Subtract it once: in the files or in the loader."
    return f"Multiply by {_diag(step)}{_or_declare(cause)}."


def _or_declare(cause: Cause | None) -> str:
    return f", or declare frame: {cause.kind}" if cause is not None and cause.kind in FRAMES else ""


def _reversed(bad: Array, gain: Array, frame: str, step: Signs, cause: Cause) -> Failure:
    return Failure(
        bad,
        f"{count_phrase(bad, 'project')} into the image only if multiplied by {_diag(step)}: "
        f"{100 * float(np.median(gain[bad])):.3g} % more of their positions do (median); {frame} "
        f"is declared.",
        measured={"gain": float(np.median(gain[bad]))},
        expected={"frame": frame},
        cause=cause,
        fix=_advice(cause, step).removesuffix(".")
        + "; then every image must be mirrored the same way.",
        kind=cause.kind,
        order=gain,
    )


def _outside(measured: Array, share: Array, least: float) -> Failure:
    middle = float(np.median(share[measured]))
    return Failure(
        measured & (share < least),
        f"only {100 * middle:.3g} % of the positions project into the image (median of "
        f"{pluralize(int(measured.sum()))}): "
        "intrinsics, image size or frame do not belong to them.",
        measured={"inside": middle},
        severity=Severity.WARNING,
        kind="outside",
        fix="Check intrinsics and image_size; an image that was resized needs its own intrinsics.",
    )


def _has_camera(spec: FieldSpec) -> bool:
    camera = spec.intrinsics is not None and spec.image_size is not None
    return leaf(spec) and spec.role == "joints" and spec.frame in FRAMES and camera


@rule(
    "DC606",
    "out-of-view",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(projection,),
    applies=_has_camera,
    suppressed_by=("DC109", "DC122", "DC201", "DC221", "DC222", "DC301", "DC303", "DC306", "DC602"),
    defaults={"outside": 0.5, "most": 0.9},
)
def out_of_view(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Most joints of a sample are outside the image or behind the camera.

    What:
        At least half of a sample's joints project into the image. Samples are judged only if the
        joints of most samples do; otherwise the camera is wrong (DC303).
    Why it matters:
        A crop around such a hand is empty or shows something else, and the label then teaches
        noise.
    Measure:
        Share of joints that have a positive depth and project inside ``image_size``.
    When it is wrong:
        Hands that leave the image are part of the task: raise ``outside``.
    Options:
        outside: largest share of joints that may be outside (0.5).
        most: median share inside, over all samples, from which single samples are judged (0.9).
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
        HO3D hands are cut off by the image border, but stay mostly inside.
    """
    column = f":{case.name}:inside"
    measured = rows.measured(column)
    if not measured.any():
        return
    inside = rows[column][:, READINGS.index(FRAMES[case.spec.frame or ""])]
    if float(np.median(inside[measured])) < float(case.options["most"]):
        yield Skip(measured, "most positions are outside the image (DC303)")
        return
    bad = measured & (1 - inside > float(case.options["outside"]))
    if bad.any():
        yield Failure(
            bad,
            f"{count_phrase(bad, 'have')} most of the joints outside the image or behind the "
            f"camera "
            f"({100 * float(np.median(1 - inside[bad])):.3g} %, median).",
            measured={"outside": float(np.median(1 - inside[bad]))},
            expected={"outside": float(case.options["outside"])},
            fix="Mask these joints, or leave the samples out.",
            order=1 - inside,
        )


_WORDS = {
    "root": "the root",
    "centroid": "the centroid",
    "box": "the box",
    "xy": "an axis (x and y only)",
    "z": "a plane (z only)",
}
_STEPS = {"right": 0.0, "double": -1.0, "never": 1.0}  # remaining multiple of a stored centre
_SUPPRESSED_BY = ("DC109", "DC122", "DC221", "DC602")


def _centres(rows: Rows, role: str | None) -> dict[str, Array]:
    """Return the distance of each candidate centre from the origin.

    It is divided by half the diagonal of the bounding box.
    """
    names = {"root": "first", "centroid": "centroid", "box": "middle"}
    names = names if role == "joints" else {k: v for k, v in names.items() if k != "root"}
    radius = np.where(rows["box"] > 0, rows["box"] / 2, np.inf)
    far = {
        name: np.sqrt((rows[column] ** 2).sum(axis=1)) / radius for name, column in names.items()
    }
    both = [rows[column] for column in ("centroid", "middle")]
    flat = [np.sqrt((centre[:, :2] ** 2).sum(axis=1)) / radius for centre in both]
    high = [np.abs(centre[:, 2]) / radius for centre in both]
    level = (rows["front"] == 0) & (rows["behind"] == 0)  # flat at z = 0: not a centring
    return far | {"xy": np.minimum(*flat), "z": np.where(level, np.inf, np.minimum(*high))}


def _labels(
    rows: Rows, measured: Array, role: str | None, tolerance: float
) -> tuple[dict[str, Array], Array]:
    """Return where each centre is at the origin, and a label for each sample.

    The label is the first complete centre at the origin, "none" without one.
    """
    exact = {name: measured & (far <= tolerance) for name, far in _centres(rows, role).items()}
    label = np.full(len(measured), "none", dtype=object)
    for name in ("box", "centroid", "root"):
        if name in exact:
            label[exact[name]] = name
    return exact, label


@rule(
    "DC301",
    "wrong-centre",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(place, stored),
    suppressed_by=(*_SUPPRESSED_BY, "DC201", "DC203"),
    applies=of_role("points", "joints"),
    defaults={"at": 1e-3, "off": 0.05, "xy": 1.0, "told": 0.99, "sure": 3.0},
)
def wrong_centre(rows: Rows, case: RuleContext) -> Iterator[Failure | Info]:
    """Positions are centred on another point than declared.

    What:
        The rule determines which centre lies at the origin, and compares it with ``centered``: root
        (first joint), centroid, centre of the bounding box, x and y only, or z only. ``no`` means
        absolute positions, where none of the first three may lie there. The verdict lists the
        centres found; if none is declared, an info names the centre that nearly all samples share.
        With ``centered_on``, the rule also checks the remainder of the stored centre: nothing if it
        was subtracted once, minus the centre if twice, the centre if never.
    Why it matters:
        Centring twice on the same centre does no harm. A loader that centres on the mean does harm
        if the data are centred on the root, and so does a stored centre that is subtracted twice.
        Testing whether "the mean of joints minus root is 0" proves nothing: this mean is several
        centimetres for every real hand.
    Measure:
        Distance of each candidate from the origin, divided by half the diagonal of the bounding
        box. For a stored centre c and the centre r of the data: which of r, r + c, r - c is the
        same in all samples; slope and correlation of r on c are reported as well.
    When it is wrong:
        A cloud is symmetric about the origin by construction: declare the centre that it has.
    Options:
        at: largest distance from the origin, over half the diagonal, of a centre that counts as at
        the origin (0.001).
        off: largest distance of a declared centre, measured in the same way (0.05).
        xy: the same for ``xy`` (1.0: the origin lies below the body).
        told: share of samples that must agree to report a centre that is not declared (0.99).
        sure: how many times better "twice" or "never" must explain a centre than "once" (3.0).
    Bad::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m, centered: no}}}
        samples:
          - {n: 3, j: {hand: 1, root: [0.1, 0.0, -0.6]}}
          - {j: {hand: 1, root: [0, 0, 0]}}

    Good::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m, centered: no}}}
        samples:
          - {n: 4, j: {hand: 1, root: [0.1, 0.0, -0.6]}}

    Fix:
        Centre once, in the loader; or declare the centre that the data have.
    Reference:
        UTNet on HO3D: centred on the mean in one place, on the wrist in another.
    """
    measured = rows.measured("box")
    if not measured.any():
        return
    measured &= rows["box"] > 0
    exact, label = _labels(rows, measured, case.spec.role, float(case.options["at"]))
    if case.spec.centered_on is not None:
        yield from _subtracted(rows, case, measured)
    elif case.spec.centered is None:
        yield from _undeclared_centre(measured, exact, float(case.options["told"]))
    if case.spec.centered is not None and measured.any():
        yield Info(f"centred on: {_shares(label[measured])}")
        yield from _off_declared_centre(rows, case, measured, exact)


def _off_declared_centre(
    rows: Rows, case: RuleContext, measured: Array, exact: dict[str, Array]
) -> Iterator[Failure]:
    """Yield samples whose centre at the origin contradicts the declared one."""
    centres = _centres(rows, case.spec.role)
    declared = case.spec.centered or ""
    if declared == "no":
        bad = measured & np.logical_or.reduce(
            [where for name, where in exact.items() if name not in {"xy", "z"}]
        )
    elif declared in centres:
        bad = measured & (
            centres[declared] > float(case.options["xy" if declared == "xy" else "off"])
        )
    else:
        return
    if bad.any():
        yield _off_centre(bad, declared, centres, exact)


def _shares(labels: Array) -> str:
    """Return each centre with its count of samples at the origin, the most frequent first."""
    counts = sorted(Counter(labels.tolist()).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} ({count:,} of {len(labels):,})" for name, count in counts)


def _off_centre(
    bad: Array, declared: str, centres: dict[str, Array], exact: dict[str, Array]
) -> Failure:
    kind, words, count = _named_centre(bad, exact)
    declaration = "absolute positions are declared"
    far = 0.0
    if declared in centres:
        far = float(np.median(centres[declared][bad]))
        declaration = (
            f"centered: {declared} is declared and {format_number(far)} of the radius away"
        )
    fix = (
        f"Declare centered: {kind}, or export absolute positions."
        if kind not in {"none", "z"}
        else "Centre them once."
    )
    return Failure(
        bad,
        f"{count_phrase(bad, 'are')} centred on {words}; {declaration}.",
        measured={
            "centre": kind,
            "median": far,
            "at_origin": {n: int((w & bad).sum()) for n, w in exact.items()},
        },
        expected={"centered": declared},
        cause=Cause(f"centred on {words}", kind, explains=count) if kind != "none" else None,
        fix=fix,
        kind=kind,
    )


def _named_centre(bad: Array, exact: dict[str, Array]) -> tuple[str, str, int]:
    """Return the centre at the origin in nine tenths of the samples.

    A complete one comes before x and y, or z, alone.
    """
    for names in ([n for n in ("root", "centroid", "box") if n in exact], ["xy"], ["z"]):
        counts = {name: int((bad & exact[name]).sum()) for name in names}
        best = max(counts, key=lambda name: counts[name])
        if counts[best] * 10 >= int(bad.sum()) * 9:
            return best, _WORDS[best], counts[best]
    return "none", "no known centre", 0


def _undeclared_centre(measured: Array, exact: dict[str, Array], share: float) -> Iterator[Failure]:
    for name in ("root", "centroid", "box"):
        where = exact.get(name, measured & False)
        if measured.any() and int(where.sum()) >= share * int(measured.sum()):
            yield Failure(
                np.zeros(len(measured), bool),
                f"centred on: {name} ({int(where.sum()):,} of {int(measured.sum()):,} samples); the "
                f"schema does not say.",
                measured={"centre": name},
                severity=Severity.INFO,
                fix=f"Declare centered: {name}.",
                kind="told",
            )
            return


def _subtracted(rows: Rows, case: RuleContext, measured: Array) -> Iterator[Failure | Info]:
    """Yield the samples from which the stored centre was subtracted twice, or never.

    An `Info` states how many samples do not decide.
    """
    column = f":{case.name}:stored"
    measured = measured & rows.measured(column)
    if not measured.any():
        return
    c = rows[column]
    names = (
        ("first", "centroid", "middle") if case.spec.role == "joints" else ("centroid", "middle")
    )
    tried = [(_unexplained(rows[name], c, measured), name) for name in names]
    rest, name = min(
        tried, key=lambda t: (float(np.median(t[0].min(axis=1)[measured])), names.index(t[1]))
    )
    best = np.argmin(rest, axis=1)
    size = np.sqrt((c**2).sum(axis=1))
    clear = measured & (size > float(case.options["off"]) * rows["box"] / 2)
    clear &= rest[:, 0] > float(case.options["sure"]) * rest.min(axis=1)
    yield Info(
        f"{int((measured & ~clear).sum()):,} of {int(measured.sum()):,} samples hold nothing of "
        f"{case.spec.centered_on}"
    )
    for step, kind in enumerate(_STEPS):
        bad = clear & (best == step)
        if kind != "right" and bad.any():
            yield _left_over(bad, kind, rows[name], c, case.spec.centered_on or "")


def _unexplained(r: Array, c: Array, measured: Array) -> Array:
    """Return float64 (rows, 3): the residual of the centres for once, twice and never.

    Notes:
        Data need not be centred exactly on the stored centre (an object's pose is not its
        centroid). Where there are enough different centres, the offset common to all samples is
        subtracted.
    """
    residuals = np.stack([r - step * c for step in _STEPS.values()], axis=1)
    middle = np.median(c[measured], axis=0)
    scatter = np.median(np.sqrt(((c[measured] - middle) ** 2).sum(axis=1)))
    common = np.zeros(3)
    if int(measured.sum()) >= 10 and scatter > 0.25 * np.sqrt((middle**2).sum()):
        offsets = np.median(residuals[measured], axis=0)
        loss = [
            np.median(np.abs(residuals[measured][:, i] - offsets[i]).sum(axis=1))
            for i in range(len(_STEPS))
        ]
        common = offsets[int(np.argmin(loss))]
    out: Array = np.sqrt(((residuals - common) ** 2).sum(axis=2))
    return out


def _left_over(bad: Array, kind: str, r: Array, c: Array, other: str) -> Failure:
    slope, correlation = _line(c[bad], r[bad])
    words = {
        "double": ("minus the centre", "subtracted twice"),
        "never": ("the centre", "never subtracted"),
    }[kind]
    measured = {"slope": slope, "correlation": correlation} if slope is not None else {}
    shape = f" (slope {slope:.3g}, correlation {correlation:.3g})" if slope is not None else ""
    return Failure(
        bad,
        f"{count_phrase(bad, 'lie')} at {words[0]} that {other} stores{shape}: it was {words[1]}.",
        measured=measured,
        expected={"centered_on": other},
        cause=Cause(f"the stored centre was {words[1]}", kind, explains=int(bad.sum())),
        fix="Subtract the stored centre once: in the files or in the loader.",
        kind=kind,
    )


def _line(c: Array, r: Array) -> tuple[float | None, float | None]:
    """Return slope and correlation of r on c over samples and axes, None if centres hardly vary."""
    x = c - c.mean(axis=0)
    y = r - r.mean(axis=0)
    xx = float((x * x).sum())
    yy = float((y * y).sum())
    xy = float((x * y).sum())
    if len(c) < 3 or xx <= 1e-12 * float((c * c).sum()) or yy <= 0:
        return None, None
    return xy / xx, xy / float(np.sqrt(xx * yy))


@rule(
    "DC302",
    "mixed-centring",
    Severity.WARNING,
    Level.DATASET,
    measures=(place,),
    suppressed_by=(*_SUPPRESSED_BY, "DC203"),
    applies=lambda s: (
        of_role("points", "joints")(s) and s.centered is None and s.centered_on is None
    ),
    defaults={"at": 1e-3, "least": 0.01, "samples": 20},
)
def mixed_centring(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Some samples are centred and others are not, or they are centred differently.

    What:
        Without a declared centre, all samples have the same centre at the origin: root, centroid,
        bounding box or none.
    Why it matters:
        Half of the data at the origin and half where they were recorded are two distributions. The
        network learns to tell the exporters apart.
    Measure:
        Which centre lies at the origin in each sample, as in DC301. Samples whose centroid and box
        centre both lie there are symmetric and do not count. A centre does not count either if many
        uncentred samples (more than a fifth of those that have it) miss it by less than 5 % of half
        the diagonal.
    When it is wrong:
        Models of objects, some of which are symmetric about their origin: declare ``centered``, or
        switch the rule off.
    Options:
        at: largest distance from the origin, over half the diagonal, of a centre that counts as at
        the origin (0.001).
        least: share of samples that each kind of centring needs to count (0.01).
        samples: fewest samples to judge (20).
    Bad::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m}}}
        samples:
          - {n: 20, j: {hand: 1, root: [0.1, 0.0, -0.6]}}
          - {n: 5, j: {hand: 1, root: [0, 0, 0]}}

    Good::

        schema: {fields: {j: {role: joints, shape: [21, 3], unit: m}}}
        samples:
          - {n: 25, j: {hand: 1, root: [0.1, 0.0, -0.6]}}

    Fix:
        Centre all of them or none; then declare ``centered``.
    Reference:
        Mask3D subtracts the mean in place from a cached array: samples are centred from the second
        epoch on.
    """
    measured = rows.measured("box")
    if not measured.any():
        return
    measured &= rows["box"] > 0
    exact, label = _labels(rows, measured, case.spec.role, float(case.options["at"]))
    measured &= ~(exact["centroid"] & exact["box"])  # symmetric about the origin: not a centring
    count = int(measured.sum())
    if count < int(case.options["samples"]):
        return
    least = max(2, float(case.options["least"]) * count)
    sizes = {
        name: int((measured & (label == name)).sum())
        for name in ("none", "root", "centroid", "box")
    }
    # Symmetric objects come near to a centre without being centred.
    for name, far in _centres(rows, case.spec.role).items():
        if (
            name in sizes
            and 5 * int((measured & (label == "none") & (far < 0.05)).sum()) > sizes[name]
        ):
            sizes[name] = 0
    kinds = sorted((n for n, size in sizes.items() if size >= least), key=lambda n: -sizes[n])
    if len(kinds) > 1:
        deviating = measured & np.isin(label, kinds[1:])
        yield Failure(
            deviating,
            f"{pluralize(count)} are centred in {len(kinds)} ways: on {_shares(label[measured])}.",
            measured={"centres": sizes},
            cause=Cause(
                f"two exporters, or a loader that writes back: {kinds[0]} and {kinds[1]}",
                kinds[1],
                explains=int((deviating & (label == kinds[1])).sum()),
            ),
            fix="Centre all of them or none, and declare centered.",
            kind=kinds[1],
        )
