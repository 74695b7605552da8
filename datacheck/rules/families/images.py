"""Rules about images: order of rows and channels, equal sizes, scale of colours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows, Texts
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    format_number,
    match_texts,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.measures import form, is_numeric, leaf, numbers, of_role
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

# robosuite's image conventions.
_ORIGINS = {"opengl": "bottom_left", "opencv": "top_left"}
_BANDS = 32
_ONE_SCENE = 0.9  # share of a group that must look alike, or it is not from one camera
_FRAMES = 8  # sampled frames of a film
_NUMBER = re.compile(r"\d+")
_SIZED = frozenset({"image", "depth", "mask"})
_PICTURE = "image"  # the field of a picture file without a schema entry
_MOST_CHANNELS = 4
_FACTORS = (2, 3, 4, 8)  # tried scale factors of pictures
_PIXELS = 1 << 14  # sampled pixels of a picture
_STEADY = 0.5  # of 255: least spread of means, for the noise and motion of a still scene
_MOST_SIZES = 3  # most usual sizes; photographs of the world have many more


def _oriented(spec: FieldSpec) -> bool:
    return leaf(spec) and spec.role == "image" and spec.origin is not None


@measure("image_convention", per="sample", uses=("fields.origin",), depth="structure")
def image_convention(block: Block, schema: Schema) -> Columns:
    """Orientation of the file's images as it states: `image_convention`, in lower case."""
    del schema
    column = block.facts.get("image_convention")
    return (
        {}
        if column is None
        else {"image_convention": [str(text).strip().lower() for text in column.objects]}
    )


@measure("bands", version=2, applies=of_role("image"), uses=("shape",), depth="deep")
def bands(column: Column, spec: FieldSpec) -> Columns:
    """Brightness of an image from first to last row: `bands` (32), from 8 frames of a film."""
    if not is_numeric(column) or column.lengths is None or column.values.ndim not in {2, 3, 4}:
        return {}
    film = column.values.ndim == 4 or (
        column.values.ndim == 3 and (spec.ragged or "").startswith("T")
    )
    out = np.zeros((len(column), _BANDS))
    present = np.zeros(len(column), bool)
    for i in range(len(column)):
        image = column[i]
        rows = image[:: max(1, -(-len(image) // _FRAMES))] if film else image[None]
        height = rows.shape[1]
        if height < _BANDS or not rows.size:
            continue
        profile = rows.mean(axis=(0, *range(2, rows.ndim)), dtype=np.float64)
        edges = np.linspace(0, height, _BANDS + 1).astype(np.int64)
        out[i] = np.add.reduceat(profile, edges[:-1]) / np.diff(edges)
        present[i] = True
    return {"bands": Measured(out, present)}


@rule(
    "DC309",
    "image-orientation",
    Severity.WARNING,
    Level.DATASET,
    measures=(image_convention,),
    applies=_oriented,
)
def image_orientation(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The file states another image orientation than the declared origin.

    What:
        robosuite's attribute ``macros_image_convention`` (of the sample's group or the one above)
        agrees with ``origin``: ``opengl`` writes the bottom row first, ``opencv`` the top row. No
        pixels are read.
    Why it matters:
        A policy trained on upside-down images fails on a camera with upright images, and nothing
        else shows why.
    Measure:
        The value of the attribute.
    When it is wrong:
        The attribute was copied although the images had been flipped: declare the origin that the
        images have.
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
        LIBERO writes ``opengl``: its images are upside down, and OpenVLA rotates them by 180
        degrees.
    """
    measured = rows.measured(":image_convention")
    bad = np.zeros(len(rows), bool)
    if measured.any():
        text = rows[":image_convention"]
        bad = measured & match_texts(
            text, lambda convention: _ORIGINS.get(convention, case.spec.origin) != case.spec.origin
        )
    if bad.any():
        convention = sorted(set(text[bad]))[0]
        yield Failure(
            bad,
            f"files of {pluralize(int(bad.sum()))} say {convention}: the "
            f"{_ORIGINS[convention].replace('_', ' ')} comes first; "
            f"origin: {case.spec.origin} is declared.",
            measured={"convention": convention},
            expected={"origin": case.spec.origin},
            cause=Cause(f"written as {convention} does", convention, explains=int(bad.sum())),
            fix=f"Declare origin: {_ORIGINS[convention]}, or reverse the rows when reading.",
            kind=convention,
        )


@rule(
    "DC314",
    "turned-image",
    Severity.WARNING,
    Level.GROUP,
    measures=(bands,),
    suppressed_by=("DC109", "DC122"),
    applies=of_role("image"),
    defaults={"like": 0.8, "unlike": 0.3, "samples": 5},
)
def turned_image(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An image is upside down compared with the other images of its group.

    What:
        The brightness from the first row to the last follows that of the group, not that of the
        group reversed. Groups that look the same either way, and groups with images of many scenes,
        are not judged. Needs ``--level deep``, because pixels are read.
    Why it matters:
        If half of the files were flipped when they were read or converted, a policy learns both
        orientations and is right about half of the time.
    Measure:
        Correlation of the mean brightness of 32 bands of rows with the median of the group, and
        with that median reversed. At least nine of ten other images must correlate with the median
        by more than ``like``.
    When it is wrong:
        The camera itself turns over.
    Options:
        like: smallest correlation with the reversed bands (0.8).
        unlike: largest correlation with the bands as they are (0.3).
        samples: fewest images of a group to judge (5).
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
        Raw LIBERO images are upside down, those of its re-rendered copies are not: mixing both
        mixes orientations.
    """
    measured = rows.measured("bands")
    if not measured.any():
        return
    bad, mirrored = _upside_down(rows, measured, case)
    if bad.any():
        value = float(np.median(mirrored[bad]))
        yield Failure(
            bad,
            f"{count_phrase(bad, 'look')} like the others of their group upside down (correlation "
            f"{format_number(value)}, median).",
            measured={"correlation": value},
            cause=Cause("turned upside down against the others", "turned", explains=int(bad.sum())),
            fix="Reverse the rows of these images.",
            kind="turned",
            order=mirrored,
        )


def _upside_down(rows: Rows, measured: Array, case: RuleContext) -> tuple[Array, Array]:
    """Return images upside down against their group, and their likeness to it once turned."""
    like = float(case.options["like"])
    unlike = float(case.options["unlike"])
    bad = measured & False
    mirrored = np.zeros(len(rows))
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine) < int(case.options["samples"]):
            continue
        profiles = rows["bands"][mine]
        middle = np.median(profiles, axis=0)
        if _correlations(middle[None], middle[::-1])[0] > unlike:
            continue  # the group itself looks the same upside down
        mirrored[mine], own = _correlations(profiles, middle[::-1]), _correlations(profiles, middle)
        flipped = (mirrored[mine] > like) & (own < unlike)
        others = ~flipped & (np.ptp(profiles, axis=1) > 0)
        # Photos of many scenes have sky and floor in varying places.
        if others.any() and np.mean(own[others] > like) >= _ONE_SCENE:
            bad[mine] = flipped & (2 * int(flipped.sum()) < len(mine))
    return bad, mirrored


def _correlations(profiles: Array, other: Array) -> Array:
    """Return the correlation of each profile with another one, 0 where one is constant."""
    a = profiles - profiles.mean(axis=1, keepdims=True)
    b = other - other.mean()
    size = np.sqrt((a * a).sum(axis=1) * float((b * b).sum()))
    out: Array = np.where(size > 0, (a @ b) / np.maximum(size, 1e-300), 0.0)
    return out


# ----------------------------------------------------------------------------------------- channels


@measure("channels", applies=of_role("image"), depth="deep")
def channels(column: Column, spec: FieldSpec) -> Columns:
    """Mean of each of three 8-bit channels: `channels` (3), from samples of the pixels.

    At most 8 frames of a film are sampled.
    """
    del spec
    values = column.values
    if (
        values.dtype != np.uint8
        or column.lengths is None
        or values.ndim not in {3, 4}
        or values.shape[-1] != 3
    ):
        return {}
    out = np.zeros((len(column), 3))
    present = np.zeros(len(column), bool)
    for i in range(len(column)):
        image = column[i]
        frames = image[:: max(1, -(-len(image) // _FRAMES))] if image.ndim == 4 else image[None]
        each = max(1, int((frames.shape[1] * frames.shape[2] / _PIXELS) ** 0.5))
        sampled = frames[:, ::each, ::each]
        if sampled.size:
            out[i], present[i] = sampled.reshape(-1, 3).mean(axis=0, dtype=np.float64), True
    return {"channels": Measured(out, present)}


@rule(
    "DC317",
    "channel-order",
    Severity.WARNING,
    Level.GROUP,
    measures=(channels,),
    suppressed_by=("DC109", "DC122"),
    applies=of_role("image"),
    defaults={"samples": 20, "share": 0.2, "apart": 10.0},
)
def channel_order(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A few images have red and blue exchanged compared with all others of their group.

    What:
        If the mean colours of a group's images are nearly equal, no image has its first and third
        channel exchanged. Groups of many scenes, and scenes with as much red as blue, are not
        judged. Needs ``--level deep``, because pixels are read.
    Why it matters:
        OpenCV reads and writes blue first. A policy that saw both orders does not learn colours.
    Measure:
        Means of the three channels, their median in the group, and their deviation from it (median
        absolute deviation). In an exchanged image, the first and the third channel are ``apart``
        deviations or more from their own median and, once exchanged, within four of it; all other
        images are within four deviations of the medians.
    When it is wrong:
        The scene itself changes its colours like this.
    Options:
        samples: fewest images of a group to judge (20).
        share: exchanged images are reported only up to this share of the group (0.2).
        apart: smallest distance of both channels from their medians, in deviations (10).
    Bad::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8}}}
        samples:
          - {n: 20, i: {choice: [9, 9], among: [[90, 120, 200], [94, 122, 206]], dtype: uint8}}
          - {i: {choice: [9, 9], among: [[200, 120, 90], [206, 122, 94]], dtype: uint8}}

    Good::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8}}}
        samples:
          - {n: 21, i: {choice: [9, 9], among: [[90, 120, 200], [94, 122, 206]], dtype: uint8}}

    Fix:
        Reverse the channels of these images (``image[..., ::-1]``).
    Reference:
        ``cv2.imread`` and ``cv2.imwrite`` order the channels blue, green, red.
    """
    measured = rows.measured("channels")
    bad = np.zeros(len(rows), bool)
    others = np.zeros(len(rows), bool)
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine) >= int(case.options["samples"]):
            bad[mine] = _exchanged(
                rows["channels"][mine], float(case.options["share"]), float(case.options["apart"])
            )
            others[mine] = ~bad[mine] & bad[mine].any()
    if bad.any():
        mean = np.median(rows["channels"][bad], axis=0).round(1).tolist()
        usual = np.median(rows["channels"][others], axis=0).round(1).tolist()
        yield Failure(
            bad,
            f"{count_phrase(bad, 'have')} the first and the third channel exchanged against the "
            f"others of their group: means "
            f"{mean[0]:g}, {mean[1]:g}, {mean[2]:g}; {usual[0]:g}, {usual[1]:g}, {usual[2]:g} are "
            f"usual.",
            measured={"means": mean},
            expected={"means": usual},
            cause=Cause(
                "probably blue and red exchanged (BGR and RGB)",
                "exchanged",
                explains=int(bad.sum()),
            ),
            fix="Look at these images; reverse the channels of those in which blue and red are "
            "exchanged.",
            kind="exchanged",
        )


def _exchanged(means: Array, share: float, min_deviation: float) -> Array:
    """Return images with exchanged first and third channel; none where other images vary, too."""
    middle = np.median(means, axis=0)
    spread = np.maximum(_STEADY, 1.4826 * np.median(np.abs(means - middle), axis=0))
    near = (np.abs(means - middle) <= 4 * spread).all(axis=1)
    turned = (np.abs(means[:, ::-1] - middle) <= 4 * spread).all(axis=1)
    exchanged: Array = turned & (np.abs(means - middle) >= min_deviation * spread)[:, [0, 2]].all(
        axis=1
    )
    few = bool(exchanged.sum() <= share * len(means)) and bool((near | exchanged).all())
    return exchanged & few


# -------------------------------------------------------------------------------------------- sizes


@measure("picture_sizes", per="sample", uses=("fields.role", "fields.shape"), depth="structure")
def picture_sizes(block: Block, schema: Schema) -> Columns:
    """Height and width of each picture, depth map and mask: `<field>:size` (2).

    Picture files without a schema entry count, too.
    """
    columns: dict[str, Array] = {}
    for name, column in block.fields.items():
        spec = schema.fields.get(name)
        if (name == _PICTURE if spec is None else _is_picture(column, spec)) and (
            size := _size(column)
        ) is not None:
            columns[f"{name}:size"] = size
    return columns


def _is_picture(column: Column, spec: FieldSpec) -> bool:
    """Tell whether a listed field holds pictures, by its role, else by dtype and shape."""
    if spec.role is not None or spec.is_text or column.kind != "array":
        return spec.role in _SIZED
    return (
        column.values.dtype == np.uint8
        and column.values.ndim == 3
        and column.values.shape[-1] in {3, 4}
    )


def _size(column: Column) -> Array | None:
    """Return height and width, int64 (samples, 2), None for axes unlike a picture or a film."""
    if column.kind != "array" or column.lengths is None or column.values.ndim not in {2, 3, 4}:
        return None
    item = column.values.shape[1:]
    axes = [column.lengths, *(np.full(len(column), size, np.int64) for size in item)]
    if len(item) == 1:
        return np.stack(axes, axis=1)
    if item[-1] <= _MOST_CHANNELS:
        return np.stack(axes[-3:-1], axis=1)
    return np.stack(axes[-2:], axis=1)


@rule(
    "DC315",
    "picture-size",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(picture_sizes,),
    suppressed_by=("DC109", "DC122"),
    defaults={"share": 0.9, "samples": 20},
)
def picture_size(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A few images have another size than nearly all others of their field and folder.

    What:
        If the images of a folder have one usual size, or three at most, no other image has such a
        size with height and width exchanged, or scaled up or down by a factor of 2, 3, 4 or 8. Any
        other size is reported as info if there is one usual size. Folders with few images are
        judged together if their paths differ only in numbers. Folders with images of many sizes are
        not judged.
    Why it matters:
        Boxes, key points and camera matrices are in pixels, so they do not fit an image that was
        rotated or scaled.
    Measure:
        Height and width as stored; EXIF orientation is not applied, and no pixels are read. A size
        that at least a tenth of the images have is usual. In a dataset that holds only images,
        rotated ones are info: some may have been taken upright.
    When it is wrong:
        Some photographs were taken upright or with another camera, and nothing in the data refers
        to their pixels.
    Options:
        share: share of the images that must have a usual size (0.9).
        samples: fewest images to judge (20).
    Bad::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8}}}
        samples:
          - {n: 20, i: {choice: [24, 32, 3], among: [0, 90, 200], dtype: uint8}}
          - {i: {choice: [32, 24, 3], among: [0, 90, 200], dtype: uint8}}

    Good::

        schema: {fields: {i: {role: image, shape: [H, W, 3], dtype: uint8}}}
        samples:
          - {n: 12, i: {choice: [24, 32, 3], among: [0, 90, 200], dtype: uint8}}
          - {n: 9, i: {choice: [32, 24, 3], among: [0, 90, 200], dtype: uint8}}

    Fix:
        Export these images again like the others, or transform all values that are given in their
        pixels.
    Reference:
        NeRF scenes whose camera wrote some photographs rotated: one ``w`` and ``h`` is given for
        all of them.
    """
    columns = sorted(
        name for name in rows.table.columns if name.startswith(":") and name.endswith(":size")
    )
    files = rows.files
    least = int(case.options["samples"])
    within = _folders(files) if columns else (files, files)
    for column in columns:
        measured = rows.measured(column)
        sizes = rows[column]
        kinds: dict[str, dict[str, list[int]]] = {}
        for mine in _size_groups(files, within, measured, least):
            for size, usual, kind in _odd_sizes(sizes[mine], float(case.options["share"])):
                words = f"{_shown(size)} beside {_shown(usual)}"
                places = kinds.setdefault(kind, {}).setdefault(words, [])
                places += mine[(sizes[mine] == size).all(axis=1)].tolist()
        for kind, size_places in sorted(kinds.items()):
            yield _of_size(column[1:].removesuffix(":size"), kind, size_places, rows, case)


def _of_size(
    name: str, kind: str, size_places: dict[str, list[int]], rows: Rows, case: RuleContext
) -> Failure:
    """Return the finding of one kind; `size_places` maps the text of a size to the places of pictures."""
    mask = np.zeros(len(rows), bool)
    for places in size_places.values():
        mask[places] = True
    harmless = kind == "other" or (
        kind.startswith("turned") and _pictures_alone(name, rows, case.schema)
    )
    cause = Cause(f"probably {kind}", kind.partition(" ")[0], explains=int(mask.sum()))
    return Failure(
        mask,
        f"{count_phrase(mask, 'have')} pictures of another size than nearly all others (width x "
        f"height): "
        f"{first_few(f'{words} ({len(members):,})' for words, members in size_places.items())}.",
        measured={"sizes": list(size_places)[:10]},
        cause=cause if kind != "other" else None,
        fix="Export these pictures again as the others were, or transform what is given in their "
        "pixels.",
        severity=Severity.INFO if harmless else None,
        kind=kind,
        extra=(name,),
    )


def _pictures_alone(name: str, rows: Rows, schema: Schema) -> bool:
    """Tell whether samples hold a picture and nothing else in its pixels: no boxes, no cameras."""
    others = [
        other for other, spec in schema.stored.items() if other != name and spec.role != "class"
    ]
    return not others and bool(rows.measured(f":{name}:size").all())


def _folders(files: Texts) -> tuple[Texts, Texts]:
    """Return the folder of each file, and its path with each number replaced by a mark."""
    folders = Texts.of([path.rpartition("/")[0] for path in files.words])
    return folders, Texts.of([_NUMBER.sub("#", path) for path in files.words])


def _size_groups(
    files: Texts, within: tuple[Texts, Texts], measured: Array, least: int
) -> Iterator[Array]:
    """Yield the positions of rows that share a folder with enough rows, or similar names.

    Small folders are grouped by name.

    Notes:
        ``episode_1/top.png`` and ``episode_2/top.png`` are similar: they differ in numbers alone.
    """
    rows = files.rows[measured]
    mine = np.flatnonzero(measured)
    folder, name_pattern = (texts.rows[rows].astype(np.int64) for texts in within)
    large = np.bincount(folder, minlength=1)[folder] >= least
    groups = np.where(large, folder, len(within[0].words) + name_pattern)
    order = np.argsort(groups, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        if len(places) >= least:
            yield mine[places]


def _odd_sizes(
    sizes: Array, share: float
) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    """Yield each unusual size, the usual size that explains it, and the kind of change.

    The kind is "other" where the change is unknown.
    """
    counts = Counter((height, width) for height, width in sizes.tolist())
    usual = [
        size for size, count in counts.most_common(_MOST_SIZES) if count >= (1 - share) * len(sizes)
    ]
    if len(counts) > 2 * _MOST_SIZES or sum(counts[size] for size in usual) < share * len(sizes):
        return
    for size in sorted(counts.keys() - usual):
        explanations = [(other, kind) for other in usual if (kind := _size_cause(size, other))]
        if explanations:
            yield size, *explanations[0]
        elif len(usual) == 1:
            yield size, usual[0], "other"


def _size_cause(size: tuple[int, int], usual: tuple[int, int]) -> str:
    """Return the change from the usual size to this one, "" if neither turning nor scaling fits."""
    if size == usual[::-1]:
        return "turned by 90 degrees"
    for factor in _FACTORS:
        if all(abs(large / factor - small) < 1 for small, large in zip(size, usual, strict=True)):
            return f"scaled by {1 / factor:.3g}"
        if all(small * factor == large for small, large in zip(usual, size, strict=True)):
            return f"scaled by {factor}"
    return ""


def _shown(size: tuple[int, int]) -> str:
    height, width = size
    return f"{width} x {height}"


_ROWS = 1 << 14  # sampled rows: means and spreads need no more
_BYTE = 255.5
_ONE = 1.0 + 1e-6
_TWICE = _ONE / 255
_KINDS = {
    "twice": "0..0.004",
    "unit": "0..1",
    "byte": "0..255",
    "signed": "below 0",
    "beyond": "above 255",
}
_FULL = {"twice": 1 / 255, "unit": 1.0, "byte": 255.0}


@measure("shade", applies=of_role("color"))
def shade(column: Column, spec: FieldSpec) -> Columns:
    """Mean and spread of each colour channel, from sampled rows: `mean`, `std`.

    Samples without rows have no value.
    """
    del spec
    if (
        not is_numeric(column)
        or column.lengths is None
        or column.values.ndim != 2
        or column.values.shape[1] > 4
    ):
        return {}
    width = column.values.shape[1]
    mean = np.zeros((len(column), width))
    std = np.zeros((len(column), width))
    for i in np.flatnonzero(column.lengths > 0):
        rows = column[int(i)]
        sampled = np.ascontiguousarray(rows[:: -(-len(rows) // _ROWS)].T, dtype=np.float64)
        mean[i] = sampled.mean(axis=1)
        std[i] = np.sqrt(np.maximum(((sampled - mean[i][:, None]) ** 2).mean(axis=1), 0))
    return {"mean": Measured(mean, column.lengths > 0), "std": Measured(std, column.lengths > 0)}


def _scales(rows: Rows, measured: Array) -> Array:
    """Return text (rows): the scale of each sample's colours, "" where it is unclear."""
    low = rows["min"].min(axis=1)
    high = rows["max"].max(axis=1)
    whole = np.array([name.startswith(("uint8", "bool")) for name in rows["dtype"]], dtype=bool)
    conditions = [low < 0, high > _BYTE, high > _ONE, high > _TWICE]
    scales = np.select(
        conditions,
        ["signed", "beyond", "byte", "unit"],
        np.where(_graded(rows, high), "twice", "unit"),
    )
    scales = np.where(whole, "byte", scales).astype(object)
    scales[~measured | (high == 0) & (low == 0)] = ""  # black is black on every scale
    return scales


def _graded(rows: Rows, high: Array) -> Array:
    """Tell which samples have values between 0 and their largest.

    With two values only, a small step is no sign of a scale.
    """
    if "std" not in rows:
        return np.zeros(len(high), bool)
    # The variance of values that are only 0 or the largest.
    two = rows["mean"] * (high[:, None] - rows["mean"])
    graded: Array = (rows["std"] ** 2 < 0.9 * two).any(axis=1)
    return graded


def _declared(spec: FieldSpec) -> str:
    ends = spec.range
    if ends is None or ends.high is None or ends.low is None:
        return ""
    return (
        "signed"
        if ends.low < 0
        else "unit"
        if ends.high <= _ONE
        else "byte"
        if ends.high <= _BYTE
        else ""
    )


@rule(
    "DC205",
    "color-range",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(numbers, form, shade),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("color"),
    defaults={
        "mean": (0.03, 0.97),
        "std": 0.03,
        "all_mean": (0.3, 0.65),
        "all_std": (0.15, 0.4),
        "least": 8,
    },
)
def color_range(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Colours are on another scale than declared or than in other samples, or a sample has none.

    What:
        Errors: colours of 0..1 if ``range: 0..255`` is declared, or the other way round; colours
        that were divided by 255 twice; colours below 0 (already normalised); without ``range``,
        samples on different scales. Warnings, if ``range`` is declared: a sample that is black,
        white or of one colour; a dataset whose mean colour or spread is far from that of real
        scenes.
    Why it matters:
        If a loader divides by 255 a second time, every colour is about 0.002, and the network
        learns from shape alone.
    Measure:
        Smallest and largest value; mean and standard deviation of each channel, as shares of the
        full scale.
    When it is wrong:
        Night, snow or objects of one colour: widen the ranges below.
    Options:
        mean: allowed mean of a sample, as a share of full scale (0.03..0.97).
        std: smallest spread that some channel must have (0.03).
        all_mean: allowed mean over the dataset (0.30..0.65).
        all_std: allowed mean spread over the dataset (0.15..0.40).
        least: fewest samples to judge the dataset (8).
    Bad::

        schema: {fields: {rgb: {role: color, shape: [P, 3], range: 0..255}}}
        samples:
          - {n: 3, rgb: {choice: [60, 3], among: [20, 90, 160, 230], dtype: float32}}
          - {rgb: {choice: [60, 3], among: [0.1, 0.4, 0.6, 0.9], dtype: float32}}

    Good::

        schema: {fields: {rgb: {role: color, shape: [P, 3], range: 0..255}}}
        samples:
          - {n: 4, rgb: {choice: [60, 3], among: [20, 90, 160, 230], dtype: float32}}

    Fix:
        Normalise in one place; declare the ``range`` of the values in the files.
    Reference:
        1,513 ScanNet scenes: means 0.055 to 0.914, spreads 0.063 to 0.361 of full scale; over all
        scenes 0.42 and 0.28.
    """
    measured = rows.measured("min", "dtype")
    if not measured.any():
        return
    scales = _scales(rows, measured)
    declared = _declared(case.spec)
    scale_names = sorted(set(scales) - {""})
    most = max(scale_names, key=lambda name: (int((scales == name).sum()), name), default="")
    wanted = declared or most
    for name in scale_names:
        if name != wanted and not (declared and wanted == "signed"):
            yield _other_scale(scales == name, name, wanted, declared=bool(declared))
    right = (scales == wanted) | (scales == "")
    if declared and "mean" in rows and wanted in {"unit", "byte"}:
        full = 1.0 if wanted == "unit" else 255.0
        yield from _shades(rows, case, right & rows.measured("mean"), full)


def _other_scale(bad: Array, name: str, wanted: str, *, declared: bool) -> Failure:
    cause = None
    if name in _FULL and wanted in _FULL:
        by = _FULL[wanted] / _FULL[name]
        words = "divided by 255 twice" if name == "twice" else f"scaled to {_KINDS[name]}"
        cause = Cause(f"{words}: x{by:.4g} gives {_KINDS[wanted]}", name, by, int(bad.sum()))
    elif name == "signed":
        cause = Cause("normalised before (a mean was subtracted)", name, None, int(bad.sum()))
    return Failure(
        bad,
        f"{count_phrase(bad, 'hold')} colours of {_KINDS[name]}; {_KINDS[wanted]} is "
        f"{'declared' if declared else 'usual'}.",
        measured={"scale": _KINDS[name]},
        expected={"scale": _KINDS[wanted]},
        cause=cause,
        kind=name,
        fix="Bring all colours to one scale, and declare it with range.",
    )


def _shades(rows: Rows, case: RuleContext, measured: Array, full: float) -> Iterator[Failure]:
    mean = rows["mean"].mean(axis=1) / full
    std = rows["std"].max(axis=1) / full
    low, high = map(float, case.options["mean"])
    flat = measured & ((mean < low) | (mean > high) | (std < float(case.options["std"])))
    if flat.any():
        yield Failure(
            flat,
            f"{count_phrase(flat, 'are')} black, white or of one colour: mean "
            f"{format_number(float(np.median(mean[flat])))} of full "
            f"scale (allowed {low:g}..{high:g}), spread "
            f"{format_number(float(np.median(std[flat])))} (at least "
            f"{case.options['std']:g}).",
            measured={"mean": float(np.median(mean[flat])), "std": float(np.median(std[flat]))},
            severity=Severity.WARNING,
            kind="flat",
            fix="Look at them: colours may not have been stored.",
        )
    measured = measured & ~flat
    if int(measured.sum()) < int(case.options["least"]):
        return
    unusual = []
    for label, values, band in (
        ("mean", mean, case.options["all_mean"]),
        ("spread", std, case.options["all_std"]),
    ):
        value = float(values[measured].mean())
        if not float(band[0]) <= value <= float(band[1]):
            unusual.append(f"{label} {format_number(value)} (usual {band[0]:g}..{band[1]:g})")
    if unusual:
        yield Failure(
            np.zeros(len(rows), bool),
            f"colours of {pluralize(int(measured.sum()))} have {first_few(unusual)} of full scale.",
            measured={"mean": float(mean[measured].mean()), "std": float(std[measured].mean())},
            severity=Severity.WARNING,
            kind="dataset",
            fix="Compare some samples with their images; a gamma or a normaliser may have been "
            "applied.",
        )
