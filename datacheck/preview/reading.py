"""Functions for the expendable child: read samples again and draw them as small JSON values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.errors import DatacheckError, MissingDependencyError, UsageError
from datacheck.model.row_keys import storable
from datacheck.preview.drawings import NotDrawableError
from datacheck.preview.overlays import pose
from datacheck.preview.pictures import PreviewBuilder, draw_within
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source, Unread
from datacheck.tokenization import Tokenizer
from datacheck.workers.wire import answers, text


@answers(type(None))
def ready(task: dict[str, Any], beat: Callable[[int], None]) -> None:
    """Do nothing, so that the caller learns that the child has started and imported this module."""
    del task, beat


@answers(
    [
        {
            "key": text,
            "split": text,
            "fields": [{"field": text, "kind": text}],
            "left_out": [text],
            "why": text,
        }
    ],
    lambda answer, _: bool(orjson.dumps(answer)),  # the page can encode it
    raises=(UsageError, MissingDependencyError),
)
def draw_items(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Read samples and draw them (see `parallel.run_task`).

    Args:
        task: schema (`Schema.as_dict`), root, roots, points (of a cloud), most (bytes of one
            sample's pictures), items: each an item (`Item.as_dict` with keys) and first (the fields
            of interest by key).
        beat: called with an item's index before its file is touched.

    Returns:
        For each sample: key, split, fields (`previews`), left_out (fields without room), why ("" or
        a reason).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            sample
            for place, request in enumerate(task["items"])
            for sample in _draw_item(task, request, place, beat)
        ]


def _draw_item(
    task: Mapping[str, Any], request: Mapping[str, Any], place: int, beat: Callable[[int], None]
) -> list[dict[str, Any]]:
    beat(place)
    item = Item.from_dict(request["item"])
    source_key = _source_key(task)
    drawn_samples = {}
    source = _source(source_key)
    source.limit_item(item, beat)
    for outcome in source.read_all([item], lambda _: beat(place)):
        beat(place)
        if isinstance(outcome, Unread):
            drawn_samples[outcome.key] = {"fields": [], "left_out": [], "why": outcome.reason}
            continue
        for sample in outcome:
            schema, tokenizer = _schema(source_key, item.split)
            wanted_fields = tuple(request["first"].get(sample.key, ()))
            drawn = draw_within(
                PreviewBuilder(sample.fields, schema, wanted_fields, tokenizer, task["points"]),
                task["most"],
            )
            drawn_samples[sample.key] = drawn | {
                "why": "" if drawn["fields"] else "it has none of the fields"
            }
    return [
        {"key": key, "split": item.split} | entry
        for key, entry in zip(storable(list(drawn_samples)), drawn_samples.values(), strict=True)
    ]


def _are_joints(answer: Any, _: Any) -> bool:
    return all(
        entry["why"] or (_is_points(entry.get("joints")) and text(entry.get("moment")))
        for entry in answer
    )


def _is_points(joints: Any) -> bool:
    return (
        isinstance(joints, np.ndarray)
        and joints.dtype == np.float64
        and joints.ndim == 2
        and joints.shape[1] == 3
        and len(joints) > 0
    )


@answers(
    [{"key": text, "split": text, "why": text}],
    _are_joints,
    raises=(UsageError, MissingDependencyError),
)
def read_joints(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Read the joints of samples (see `parallel.run_task`).

    Args:
        task: schema, root, roots as in `draw_items`; field; items: each an item (`Item.as_dict`
            with keys).
        beat: see `draw_items`.

    Returns:
        For each sample: key, split, why (""), joints, float64 (joints, 3), and moment, which of
        several it is; or only why there are none.
    """
    entries = []
    name = task["field"]
    source = _source(_source_key(task), name)
    for place, request in enumerate(task["items"]):
        beat(place)
        item = Item.from_dict(request["item"])
        source.limit_item(item, beat)
        for outcome in source.read_all([item], lambda _, place=place: beat(place)):  # type: ignore[misc]
            beat(place)
            if isinstance(outcome, Unread):
                entries.append(
                    {"key": storable([outcome.key])[0], "split": item.split, "why": outcome.reason}
                )
                continue
            entries += [
                {"key": storable([sample.key])[0], "split": item.split}
                | _read_pose(sample.fields, name)
                for sample in outcome
            ]
    return entries


def _read_pose(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    if name not in fields:
        return {"why": "the field is missing"}
    try:
        posed = pose(fields[name], None)
    except (NotDrawableError, ValueError, TypeError, OverflowError) as error:
        return {"why": f"its field {error}"[:300]}
    return {"why": "", "joints": posed.joints, "moment": posed.moment}


def _source_key(task: Mapping[str, Any]) -> bytes:
    return orjson.dumps([task["schema"], task["root"], task["roots"]])


@lru_cache(maxsize=2)
def _source(what: bytes, field: str = "") -> Source:
    """Return the source that reads samples: one field, or all."""
    schema, root, roots = orjson.loads(what)
    fields = frozenset({field}) if field else None
    places = {name: Path(path) for name, path in roots.items()}
    return open_source(Schema.model_validate(schema), Path(root), places, fields=fields)


@lru_cache(maxsize=16)
def _schema(what: bytes, split: str) -> tuple[Schema, Tokenizer | None]:
    """Return the schema of a split, and its tokenizer if there is one that can be loaded."""
    schema = Schema.model_validate(orjson.loads(what)[0]).for_split(split)
    if schema.tokenizer is None or schema.tokenizer.path is None:
        return schema, None
    try:
        return schema, Tokenizer(schema.tokenizer.path)
    except DatacheckError:  # the preview's text says that it is not tokenized
        return schema, None
