"""Rules about frames: which centre lies at the origin, and on which side of the camera things are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import leaf, of_role, place, positions
from datacheck.sample import Block, Column
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_FLIP = np.array([1.0, -1.0, -1.0])
_BEFORE = {"camera_opengl": "behind", "camera_opencv": "front"}
_OTHER = {"camera_opengl": "camera_opencv", "camera_opencv": "camera_opengl"}


def _centres(rows: Rows, role: str | None) -> dict[str, Array]:
    """Return how far each candidate centre is from the origin, over half the diagonal of the bounding box."""
    names = {"root": "first", "centroid": "centroid", "box": "middle"}
    names = names if role == "joints" else {k: v for k, v in names.items() if k != "root"}
    radius = np.where(rows["box"] > 0, rows["box"] / 2, np.inf)
    far = {name: np.sqrt((rows[column] ** 2).sum(axis=1)) / radius for name, column in names.items()}
    flat = [np.sqrt((rows[column][:, :2] ** 2).sum(axis=1)) / radius for column in ("centroid", "middle")]
    return far | {"xy": np.minimum(*flat)}


@rule(
    "DC301", "wrong-centre", Severity.ERROR, Level.SAMPLE, measures=(place,),
    needs=("DC109", "DC122", "DC221", "DC602"),
    applies=of_role("points", "joints"), defaults={"at": 1e-3, "off": 0.05, "xy": 1.0, "told": 0.99},
)  # fmt: skip
def wrong_centre(rows: Rows, case: Case) -> Iterator[Failure]:
    """Positions are centred otherwise than declared.

    What:
        Which of root (first joint), centroid, centre of the bounding box lies at the origin, against ``centered``.
        ``no`` means absolute positions: none of them may. Without ``centered`` the answer is only told.
    Why it matters:
        Centring twice on the same centre does no harm; data centred on the root and a loader that centres on the
        mean do. "The mean of joints minus root is 0" tests nothing: it is centimetres for every real hand.
    Measure:
        Distance of each candidate from the origin, over half the diagonal of the bounding box.
    When it is wrong:
        A cloud is symmetric about the origin by construction: declare the centre it has.
    Options:
        at: a centre this near is at the origin (0.001). off: a declared centre may be so far (0.05). xy: the same for
        ``xy`` (1.0: the origin lies below the body). told: share that must agree for the undeclared case (0.99).
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
        UTNet on HO3D: centre of the mean in one place, of the wrist in another.
    """
    known = rows.measured("box")
    if not known.any():
        return
    known &= rows["box"] > 0
    centres, options = _centres(rows, case.spec.role), case.options
    exact = {name: known & (far <= float(options["at"])) for name, far in centres.items() if name != "xy"}
    declared = case.spec.centered
    if declared is None:
        yield from _told(known, exact, float(options["told"]))
        return
    if declared == "no":
        bad = np.logical_or.reduce(list(exact.values()))
    elif declared in centres:
        bad = known & (centres[declared] > float(options["xy" if declared == "xy" else "off"]))
    else:
        return
    if bad.any():
        yield _off_centre(bad, declared, centres, exact)


def _off_centre(bad: Array, declared: str, centres: dict[str, Array], exact: dict[str, Array]) -> Failure:
    kind, words, count = _named(bad, exact)
    said = "absolute positions are declared"
    far = 0.0
    if declared in centres:
        far = float(np.median(centres[declared][bad]))
        said = f"centered: {declared} is declared and {shown(far)} of the radius away"
    return Failure(
        bad,
        f"{those(bad, 'are')} centred on {words}; {said}.",
        measured={"centre": kind, "median": far},
        expected={"centered": declared},
        cause=Cause(f"centred on {words}", kind, explains=count) if kind != "none" else None,
        fix=f"Declare centered: {kind}, or export absolute positions." if kind != "none" else "Centre them once.",
        kind=kind,
    )


def _named(bad: Array, exact: dict[str, Array]) -> tuple[str, str, int]:
    counts = {name: int((bad & where).sum()) for name, where in exact.items()}
    best = max(counts, key=lambda name: counts[name])
    if counts[best] * 10 < int(bad.sum()) * 9:
        return "none", "no known centre", 0
    return best, {"root": "the root", "centroid": "the centroid", "box": "the box"}[best], counts[best]


def _told(known: Array, exact: dict[str, Array], share: float) -> Iterator[Failure]:
    for name, where in exact.items():
        if known.any() and int(where.sum()) >= share * int(known.sum()):
            yield Failure(
                np.zeros(len(known), bool),
                f"centred on: {name} ({int(where.sum()):,} of {int(known.sum()):,} samples); the schema does not say.",
                measured={"centre": name},
                severity=Severity.INFO,
                fix=f"Declare centered: {name}.",
                kind="told",
            )
            return


@measure("projection", per="sample", uses=("fields.intrinsics", "fields.image_size"))
def projection(block: Block, schema: Schema) -> Columns:
    """Share of positions inside the image, by the field's intrinsics, taken for either camera convention.

    ``<field>:camera_opencv``: as they are; ``<field>:camera_opengl``: with y and z reversed. What is behind the camera
    is outside.
    """
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        column, camera = block.fields.get(name), block.fields.get(spec.intrinsics or "")
        here = None if column is None or camera is None or spec.image_size is None else positions(column)
        if here is None or camera is None or spec.image_size is None:
            continue
        xyz, lengths = here
        count = np.ones(len(block), np.int64) if lengths is None else lengths
        k, fits = _matrices(camera, len(block))
        k = np.repeat(k, count, axis=0)
        for frame, sign in (("camera_opencv", np.ones(3)), ("camera_opengl", _FLIP)):
            x, y, z = xyz * sign[:, None]
            u, v = k[:, 0, 0] * x / z + k[:, 0, 2], k[:, 1, 1] * y / z + k[:, 1, 2]
            width, height = spec.image_size
            inside = (z > 0) & (u >= 0) & (u < width) & (v >= 0) & (v < height)
            sample = np.repeat(np.arange(len(block)), count)
            hits = np.bincount(sample, weights=inside, minlength=len(block))
            found[f"{name}:{frame}"] = Measured(hits / np.maximum(count, 1), fits & (count > 0))
    return dict(found)


def _matrices(camera: Column, count: int) -> tuple[Array, Array]:
    """Return the 3x3 matrix of each sample, and where there is one."""
    if camera.kind != "array" or camera.values.shape[1:] != (3,) or camera.lengths is None:
        return np.zeros((count, 3, 3)), np.zeros(count, bool)
    fits = camera.lengths == 3
    matrices = np.zeros((count, 3, 3))
    matrices[fits] = camera.values[np.repeat(fits, camera.lengths)].reshape(-1, 3, 3)
    return matrices, fits


@rule(
    "DC303", "camera-frame", Severity.ERROR, Level.DATASET, measures=(place, projection),
    needs=("DC109", "DC122", "DC221", "DC301", "DC602"),
    applies=lambda s: leaf(s) and s.role in {"points", "joints", "position"} and s.frame in _BEFORE,
    defaults={"wrong": 0.5, "sure": 0.999, "inside": 0.9},
)  # fmt: skip
def camera_frame(rows: Rows, case: Case) -> Iterator[Failure]:
    """Positions are on the other side of the camera than the declared frame says.

    What:
        In ``camera_opengl`` (x right, y up) everything lies at z < 0, in ``camera_opencv`` (y down) at z > 0. With
        ``intrinsics`` and ``image_size`` positions also project into the image.
    Why it matters:
        Projected in the wrong convention, crops are empty and x is mirrored; the loss stays finite.
    Measure:
        Share of positions with z on either side; share inside the image under both conventions.
    When it is wrong:
        Things behind the camera are recorded on purpose: raise ``wrong``.
    Options:
        wrong: share of a sample's positions on the wrong side from which it fails (0.5). sure: share from which the
        other convention is named (0.999). inside: median share inside the image below which a warning is given (0.9).
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
    wrong_side = rows[_BEFORE[_OTHER[frame]]]
    bad = known & (wrong_side > float(case.options["wrong"]))
    if bad.any():
        yield _other_side(bad, wrong_side, frame, float(case.options["sure"]))
    column = f":{case.name}:{frame}"
    inside = rows.measured(column) & known & ~bad
    least = float(case.options["inside"])
    if inside.any() and float(np.median(rows[column][inside])) < least:
        yield _outside(inside, rows[column], least)


def _other_side(bad: Array, wrong_side: Array, frame: str, surely: float) -> Failure:
    sure = int((bad & (wrong_side >= surely)).sum())
    named, other = sure >= 0.9 * int(bad.sum()), _OTHER[frame]
    sign = "above" if _BEFORE[frame] == "behind" else "below"
    return Failure(
        bad,
        f"{those(bad, 'lie')} at z {sign} 0 ({100 * float(np.median(wrong_side[bad])):.3g} % of their "
        f"positions, median); {frame} is declared.",
        measured={"wrong_side": float(np.median(wrong_side[bad]))},
        expected={"frame": frame},
        cause=Cause(f"probably {other}", other, explains=sure) if named else None,
        fix=f"Multiply by diag(1, -1, -1), or declare frame: {other}.",
        kind=other if named else "mixed",
        order=wrong_side,
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
