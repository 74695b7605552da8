"""Choose and draw the pictures of a sample, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import orjson

from datacheck.errors import UsageError
from datacheck.preview.drawings import (
    MAX_POINTS,
    Array,
    Colour,
    NotDrawableError,
    cloud,
    film,
    floats,
    image,
    names_of,
    number_text,
    spread_indices,
    timeline,
    truncated_text,
)
from datacheck.preview.overlays import near_points, projection, skeleton
from datacheck.preview.texts import chat, decoded, plain, tokenized, tokens
from datacheck.rules.placement import FRAMES, up_of
from datacheck.schema.model import FieldSpec, Schema
from datacheck.tokenization import Tokenizer

# Budgets of a document with the pictures of many samples: the bytes of a sample, and the points of a
# cloud, as sixty clouds of 2,048 points would not leave room for others.
SAMPLE_BYTES = 25_000
POINTS = 1024

_LABELS = ("segment", "class", "instance", "mask")
# in display order
_KINDS = ("cloud", "skeleton", "projection", "film", "image", "text", "timeline", "note")
_NOTE_VALUES = 12
_NOTE_LETTERS = 300
_ASPECT = 0.02  # tolerance of an image's aspect ratio: a downscaled image has rounded sides
_CLOUD_POINTS = 32  # rows from which an undeclared table of three columns counts as points


@dataclass(frozen=True)
class PreviewBuilder:
    """A sample to draw.

    Args:
        fields: values by name.
        schema: the schema for the sample's split.
        first: names of fields of interest; their pictures come first, and labels among them colour
            point clouds.
        tokenizer: of the schema; None if there is none.
        points: maximum number of points of a cloud.
    """

    fields: Mapping[str, Any]
    schema: Schema
    first: Sequence[str] = ()
    tokenizer: Tokenizer | None = None
    points: int = MAX_POINTS

    @cached_property
    def wanted(self) -> set[str]:
        """The fields of interest and the fields that contain them."""
        return {*self.first, *(name.rpartition(".")[0] for name in self.first)} - {""}

    @property
    def fps(self) -> float | None:
        """Steps per second, if the schema declares it."""
        return None if self.schema.episode is None else self.schema.episode.fps


def previews(builder: PreviewBuilder) -> list[dict[str, Any]]:
    """Return the pictures of a sample as JSON values, fields of interest first.

    Notes:
        A field that cannot be drawn becomes a note with the reason; no value makes this raise.
    """
    pictures = [
        picture for name in sorted(builder.fields) for picture in _field_pictures(builder, name)
    ]
    rank = {kind: place for place, kind in enumerate(_KINDS)}

    def first(picture: Mapping[str, Any]) -> tuple[bool, int, str]:
        # joints that fall into the image only with other axes: the most telling picture
        other_axes = bool(picture.get("other"))
        return (
            picture["field"] not in builder.wanted,
            -1 if other_axes else rank[picture["kind"]],
            picture["field"],
        )

    return sorted(pictures, key=first)


def draw_within(builder: PreviewBuilder, room: int) -> dict[str, Any]:
    """Return the pictures of a sample that fit into `room` bytes, at least one.

    Also return the fields without room.
    """
    pictures: list[dict[str, Any]] = []
    omitted: list[str] = []
    for picture in previews(builder):
        size = len(orjson.dumps(picture))
        if pictures and size > room:
            omitted.append(picture["field"])
            continue
        room -= size
        pictures.append(picture)
    return {"fields": pictures, "left_out": omitted}


def _field_pictures(builder: PreviewBuilder, name: str) -> Iterator[dict[str, Any]]:
    spec = builder.schema.spec(name)
    value = builder.fields[name]
    drawn = _draw_or_note(name, value, lambda: _picture(builder, name, spec, value))
    yield {"field": name} | drawn
    if drawn["kind"] == "skeleton" and value.shape[-1] == 3 and _has_camera(builder, spec):
        yield {"field": name} | _draw_or_note(
            name, value, lambda: _projection(builder, spec, value)
        )
    for part, (start, stop) in builder.schema.parts(name).items():
        inner = f"{name}.{part}"
        if (
            builder.schema.spec(inner).role in {"position", "points"}
            and stop - start == 3
            and _is_table(value, spec)
        ):
            yield {"field": inner} | _draw_or_note(
                inner, value, partial(_place_cloud, builder, inner, value[:, start:stop])
            )


def _place_cloud(builder: PreviewBuilder, name: str, places: Array) -> dict[str, Any]:
    """Return the cloud of places, with the object they should be near if its shape is known."""
    spec = builder.schema.spec(name)
    nearby = near_points(spec, builder.fields, builder.schema)
    if nearby is None:
        return _cloud(builder, spec, places)
    object_name, points = nearby
    points = points[
        spread_indices(len(points), max(builder.points - len(places), builder.points // 2))
    ]
    labels = np.repeat([0, 1], [len(places), len(points)])
    all_points = np.concatenate([floats(places), points])
    return cloud(
        all_points,
        spec.unit or "",
        spec.up,
        Colour("field", labels, names=(name, object_name)),
        builder.points,
    )


def _draw_or_note(name: str, value: Any, draw: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        with np.errstate(all="ignore"):  # huge values overflow
            return draw()
    except NotDrawableError as error:
        return _note(f"{truncated_text(name, 200)[0]} {error}: no picture.")
    except (
        ValueError,
        TypeError,
        OverflowError,
        IndexError,
        KeyError,
        RecursionError,
        UsageError,
    ) as error:
        return _note(
            f"{truncated_text(name, 200)[0]} ({_kind_of(value)}) could not be drawn: "
            f"{truncated_text(str(error), 200)[0]}."
        )


def _picture(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Any) -> dict[str, Any]:
    """Return the picture of a field by its role, or by its values' shape if it has none."""
    if not isinstance(value, np.ndarray):
        return _text_picture(builder, spec, value)
    role = spec.role or _role_of(value, spec) or ""
    draw = _BY_ROLE.get(role, _series)
    return draw(builder, name, spec, value)


def _points(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Array) -> dict[str, Any]:
    del name
    return _cloud(
        builder, spec, value[len(value) // 2] if value.ndim == 3 and len(value) else value
    )


def _joints(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Array) -> dict[str, Any]:
    del builder, name
    return skeleton(value, spec.skeleton, spec.unit or "", up_of(spec))


def _has_camera(builder: PreviewBuilder, spec: FieldSpec) -> bool:
    return (
        spec.frame in FRAMES and spec.image_size is not None and spec.intrinsics in builder.fields
    )


def _projection(builder: PreviewBuilder, spec: FieldSpec, value: Any) -> dict[str, Any]:
    """Return the projection of joints; ``over`` names the image field to draw it on, or ""."""
    projected = projection(value, builder.fields[spec.intrinsics or ""], spec)
    images = {
        name: image_spec
        for name, image_spec in builder.schema.of_role("image")
        if _has_camera_sides(builder.fields.get(name), projected["size"])
    }
    # a single image without a declared camera counts as this camera's
    undeclared = None if len(images) == 1 else spec.intrinsics
    camera_images = [
        name
        for name, image_spec in images.items()
        if image_spec.intrinsics in {undeclared, spec.intrinsics}
    ]
    return projected | {"over": camera_images[0] if camera_images else ""}


def _has_camera_sides(value: Any, size: Sequence[int]) -> bool:
    """Return whether a value is an image with the aspect ratio of a camera."""
    if (
        not isinstance(value, np.ndarray)
        or value.ndim not in {2, 3}
        or value.shape[2:] not in {(), (1,), (3,), (4,)}
    ):
        return False
    across = value.shape[1] * size[1]
    down = value.shape[0] * size[0]
    return bool(down) and abs(across - down) <= _ASPECT * down


def _pixels(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Array) -> dict[str, Any]:
    if value.ndim < 2:  # sources read the frame times of a video, not its pixels
        return _series(builder, name, spec, value)
    flip = spec.origin == "bottom_left"
    films = value.ndim == 4 or (value.ndim == 3 and _is_timed(spec))
    return film(value, flip=flip, fps=builder.fps) if films else image(value, flip=flip)


def _position(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Array) -> dict[str, Any]:
    if _is_table(value, spec) and value.shape[1:] == (3,):
        return _place_cloud(builder, name, value)
    return _series(builder, name, spec, value)


def _series(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Array) -> dict[str, Any]:
    if _is_timed(spec) and value.ndim and value.dtype.kind in "biuf":
        return timeline(value, names_of(builder.schema, name), spec.unit or "", builder.fps)
    return _note(_array_text(value))


def _role_of(value: Array, spec: FieldSpec) -> str | None:
    """Return the likely role of an undeclared array."""
    if spec.shape is not None or value.dtype.kind not in "biuf":
        return None
    if value.dtype == np.uint8 and value.ndim in {3, 4} and value.shape[-1] in {1, 3, 4}:
        return "image"
    if (
        value.ndim == 2
        and value.shape[1] == 3
        and value.dtype.kind == "f"
        and len(value) >= _CLOUD_POINTS
    ):
        return "points"
    return None


def _is_table(value: Any, spec: FieldSpec) -> bool:
    return (
        isinstance(value, np.ndarray) and value.ndim == 2 and len(value) > 1 and not _is_timed(spec)
    )


def _is_timed(spec: FieldSpec) -> bool:
    return (spec.ragged or "").startswith("T")


def _cloud(builder: PreviewBuilder, spec: FieldSpec, points: Array) -> dict[str, Any]:
    return cloud(
        points, spec.unit or "", up_of(spec), _colour(builder, len(points)), builder.points
    )


def _colour(builder: PreviewBuilder, points: int) -> Colour | None:
    """Return the colouring of points: a label field of interest, the colours, or another label."""

    def rank(name: str) -> tuple[bool, int]:
        role = builder.schema.spec(name).role
        return name not in builder.wanted, 0 if role == "color" else 1 + _LABELS.index(role or "")

    candidates = [
        name
        for name in sorted(builder.fields)
        if builder.schema.spec(name).role in {"color", *_LABELS}
        and isinstance(builder.fields[name], np.ndarray)
        and builder.fields[name].ndim
        and len(builder.fields[name]) == points
    ]
    if not candidates:
        return None
    name = min(candidates, key=rank)
    spec = builder.schema.spec(name)
    return Colour(name, builder.fields[name], spec.ignore, declared=_declared(spec))


def _declared(spec: FieldSpec) -> Callable[[Array], Array] | None:
    """Return a predicate for declared classes, if the schema lists them."""
    classes = spec.classes
    if classes is None or spec.role == "color":
        return None
    if isinstance(classes, tuple):
        return lambda labels: np.isin(labels, classes)
    low, high = (0, classes - 1) if isinstance(classes, int) else (classes.low, classes.high)
    least = -np.inf if low is None else low
    most = np.inf if high is None else high
    return lambda labels: (labels >= least) & (labels <= most)


def _text_picture(builder: PreviewBuilder, spec: FieldSpec, value: Any) -> dict[str, Any]:
    how = builder.schema.tokenizer
    if spec.role == "chat":
        fields = builder.fields
        prompt, tools = (fields.get(other or "") for other in (spec.continues, spec.tools))
        return chat(value, spec, how, builder.tokenizer, prompt=prompt, tools=tools)
    if isinstance(value, str):
        trained = spec.role == "text" and spec.min_trained_tokens is not None
        if trained and how is not None and builder.tokenizer is not None:
            return tokenized(value, how, builder.tokenizer)
        return plain(value)
    return _note(f"JSON: {truncated_text(repr(value), _NOTE_LETTERS)[0]}")


def _tokens(builder: PreviewBuilder, name: str, spec: FieldSpec, value: Array) -> dict[str, Any]:
    del spec
    labels = next(
        (
            n
            for n, label_spec in builder.schema.of_role("labels")
            if label_spec.label_of in {name, None}
        ),
        "",
    )
    label_spec = builder.schema.spec(labels)
    tokenizer = builder.tokenizer
    return tokens(
        value,
        builder.fields.get(labels),
        ignored=label_spec.ignore,
        shift=label_spec.shift or 0,
        pad=None if tokenizer is None else tokenizer.id_of("pad_token"),
        decode=None if tokenizer is None else partial(decoded, tokenizer),
    )


_BY_ROLE: Mapping[str, Callable[[PreviewBuilder, str, FieldSpec, Array], dict[str, Any]]] = {
    "points": _points,
    "joints": _joints,
    "image": _pixels,
    "depth": _pixels,
    "video": _pixels,
    "tokens": _tokens,
    "position": _position,
}


# -------------------------------------------------------------------------------------------- notes


def _note(text: str) -> dict[str, Any]:
    return {"kind": "note", "about": text}


def _kind_of(value: Any) -> str:
    return (
        f"{value.dtype} {list(value.shape)}"
        if isinstance(value, np.ndarray)
        else type(value).__name__
    )


def _array_text(value: Array) -> str:
    """Return the values of a small array, or the range of a large one."""
    flat = value.reshape(-1)
    if value.dtype.kind not in "biuf":
        return (
            f"{_kind_of(value)}: "
            f"{truncated_text(str(flat[:_NOTE_VALUES].tolist()), _NOTE_LETTERS)[0]}"
        )
    if flat.size <= _NOTE_VALUES:
        return f"{_kind_of(value)}: {' '.join(number_text(float(v)) for v in flat)}".rstrip()
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return f"{_kind_of(value)}: no finite value"
    bad = flat.size - finite.size
    range_text = (
        f"{_kind_of(value)}: {number_text(float(finite.min()))} to "
        f"{number_text(float(finite.max()))}"
    )
    return range_text + (f", {bad:,} not finite" if bad else "")
