"""Rules about the orientation of images: which row comes first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those, where_text
from datacheck.rules.measures import is_numeric, leaf, of_role
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_ORIGINS = {"opengl": "bottom_left", "opencv": "top_left"}  # what robosuite's image convention means
_BANDS = 32
_ONE_SCENE = 0.9  # share of a group that must look alike: else it is no camera's
_FRAMES = 8  # of a film are looked at


def _oriented(spec: FieldSpec) -> bool:
    return leaf(spec) and spec.role == "image" and spec.origin is not None


@measure("image_convention", per="sample", uses=("fields.origin",), depth="structure")
def image_convention(block: Block, schema: Schema) -> Columns:
    """What the file says of the orientation of its images: `image_convention`, in lower case."""
    del schema
    column = block.facts.get("image_convention")
    return {} if column is None else {"image_convention": [str(text).strip().lower() for text in column.objects]}


@measure("bands", version=2, applies=of_role("image"), uses=("shape",), depth="deep")
def bands(column: Column, spec: FieldSpec) -> Columns:
    """How bright an image is from its first row to its last: `bands` (32), the mean of 8 frames of a film."""
    if not is_numeric(column) or column.lengths is None or column.values.ndim not in {2, 3, 4}:
        return {}
    film = column.values.ndim == 4 or (column.values.ndim == 3 and (spec.ragged or "").startswith("T"))
    out, known = np.zeros((len(column), _BANDS)), np.zeros(len(column), bool)
    for i in range(len(column)):
        image = column[i]
        rows = image[:: max(1, -(-len(image) // _FRAMES))] if film else image[None]
        height = rows.shape[1]
        if height < _BANDS or not rows.size:
            continue
        profile = rows.mean(axis=(0, *range(2, rows.ndim)), dtype=np.float64)
        edges = np.linspace(0, height, _BANDS + 1).astype(np.int64)
        out[i] = np.add.reduceat(profile, edges[:-1]) / np.diff(edges)
        known[i] = True
    return {"bands": Measured(out, known)}


@rule(
    "DC309", "image-orientation", Severity.WARNING, Level.DATASET, measures=(image_convention,),
    applies=_oriented,
)  # fmt: skip
def image_orientation(rows: Rows, case: Case) -> Iterator[Failure]:
    """The file says that its images begin with the other row than declared.

    What:
        robosuite's attribute ``macros_image_convention`` (of the sample's group or the one above): ``opengl`` writes
        the bottom row first, ``opencv`` the top row, against ``origin``. No pixel is read.
    Why it matters:
        A policy trained on images that stand on their head fails on a camera that does not; nothing else tells.
    Measure:
        The attribute.
    When it is wrong:
        The attribute was copied along after the images had been turned: declare what the images are.
    Options:
        none
    Bad::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8, origin: bottom_left}}}
        samples:
          - {n: 3, i: {picture: 40}, facts: {image_convention: opengl}}
          - {i: {picture: 40}, facts: {image_convention: opencv}}

    Good::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8, origin: bottom_left}}}
        samples:
          - {n: 4, i: {picture: 40}, facts: {image_convention: opengl}}

    Fix:
        Reverse the rows when reading (``image[::-1]``), or declare the other origin.
    Reference:
        LIBERO writes ``opengl``: its images are upside-down, and OpenVLA turns them by 180 degrees.
    """
    known = rows.measured(":image_convention")
    bad = np.zeros(len(rows), bool)
    if known.any():
        text = rows[":image_convention"]
        bad = known & where_text(text, lambda said: _ORIGINS.get(said, case.spec.origin) != case.spec.origin)
    if bad.any():
        said = sorted(set(text[bad]))[0]
        yield Failure(
            bad,
            f"files of {counted(int(bad.sum()))} say {said}: the {_ORIGINS[said].replace('_', ' ')} comes first; "
            f"origin: {case.spec.origin} is declared.",
            measured={"convention": said},
            expected={"origin": case.spec.origin},
            cause=Cause(f"written as {said} does", said, explains=int(bad.sum())),
            fix=f"Declare origin: {_ORIGINS[said]}, or reverse the rows when reading.",
            kind=said,
        )


@rule(
    "DC314", "turned-image", Severity.WARNING, Level.GROUP, measures=(bands,), needs=("DC109", "DC122"),
    applies=of_role("image"), defaults={"like": 0.8, "unlike": 0.3, "samples": 5},
)  # fmt: skip
def turned_image(rows: Rows, case: Case) -> Iterator[Failure]:
    """An image looks like the others of its group upside down.

    What:
        The brightness from the first row to the last follows that of the group, and not that of the group reversed.
        Groups that look the same either way, and those whose images are of many scenes, are not judged. Needs
        ``--level deep``: pixels are read.
    Why it matters:
        Half of the files were turned when they were read or converted; a policy then learns both, and is right about
        half of the time.
    Measure:
        Correlation of the mean brightness of 32 bands of rows with the median of the group, and with that reversed. The
        others must be ``like`` the median, nine of ten at least.
    When it is wrong:
        The camera itself turns over.
    Options:
        like: correlation with the reversed bands (0.8). unlike: with the bands as they are (0.3). samples: fewest
        images of a group (5).
    Bad::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8}}}
        samples:
          - {n: 6, i: {picture: 40}}
          - {i: {picture: 40, turned: true}}

    Good::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8}}}
        samples:
          - {n: 7, i: {picture: 40}}

    Fix:
        Reverse the rows of these images (``image[::-1]``).
    Reference:
        Raw LIBERO is upside-down, its re-rendered copies are not: mixing both mixes orientations.
    """
    known = rows.measured("bands")
    if not known.any():
        return
    bad, mirrored = _upside_down(rows, known, case)
    if bad.any():
        value = float(np.median(mirrored[bad]))
        yield Failure(
            bad,
            f"{those(bad, 'look')} like the others of their group upside down (correlation {shown(value)}, median).",
            measured={"correlation": value},
            cause=Cause("turned upside down against the others", "turned", explains=int(bad.sum())),
            fix="Reverse the rows of these images.",
            kind="turned",
            order=mirrored,
        )


def _upside_down(rows: Rows, known: Array, case: Case) -> tuple[Array, Array]:
    """Return which images are turned against their group, and how like it they are then."""
    like, unlike = float(case.options["like"]), float(case.options["unlike"])
    bad, mirrored = known & False, np.zeros(len(rows))
    for _, places in rows.by_group():
        mine = places[known[places]]
        if len(mine) < int(case.options["samples"]):
            continue
        profiles = rows["bands"][mine]
        middle = np.median(profiles, axis=0)
        if _alike(middle[None], middle[::-1])[0] > unlike:
            continue  # the group itself looks the same upside down
        mirrored[mine], own = _alike(profiles, middle[::-1]), _alike(profiles, middle)
        odd = (mirrored[mine] > like) & (own < unlike)
        others = ~odd & (np.ptp(profiles, axis=1) > 0)
        if np.mean(own[others] > like) >= _ONE_SCENE:  # photos of many scenes have sky and floor in every place
            bad[mine] = odd & (2 * int(odd.sum()) < len(mine))
    return bad, mirrored


def _alike(profiles: Array, other: Array) -> Array:
    """Return the correlation of each profile with another one, 0 where one is constant."""
    a, b = profiles - profiles.mean(axis=1, keepdims=True), other - other.mean()
    size = np.sqrt((a * a).sum(axis=1) * float((b * b).sum()))
    out: Array = np.where(size > 0, (a @ b) / np.maximum(size, 1e-300), 0.0)
    return out
