"""The JSON documents of a run's folder as they may be read: within their sizes, and each value of its type."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from datacheck.runtime.documents import MIB, VALUES, parse_json, read_json
from datacheck.scan import store
from datacheck.scan.document_types import Began, Head, Previews, Result, Valid
from datacheck.schema.model import Schema

RESULT_BYTES = 64 * MIB  # a scan writes less than 1 MB unless messages are long
VALID_BYTES, VALID_BYTES_EACH = 4 * MIB, 4096  # and so many for each sample
PREVIEWS_BYTES = 32 * MIB  # a scan writes at most 1.5 MB
HEAD_BYTES, HEAD_BYTES_EACH = 64 * MIB, 4096  # of listing.npz; and so many for each sample and file
_VALUES_EACH = 32


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _checked(kind: Any, value: Any, name: str) -> Any:
    """Return a value of which every part is of the type that a run writes.

    Raises:
        ValueError: one is not; the message names the first.
    """
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        msg = f"{name} is damaged: {where or 'it'}: {first['msg']}"
        raise ValueError(msg) from None
    return value


def read_result(folder: Path) -> dict[str, Any]:
    """Return the result.json of a run.

    Raises:
        OSError: it is missing, no regular file, or larger than a scan writes it.
        ValueError: it is damaged, or of another format.
    """
    said = read_json(folder / store.RESULT, RESULT_BYTES, links=False)
    found = said.get("format") if isinstance(said, dict) else None
    if found != store.RESULT_FORMAT:
        msg = f"{store.RESULT} is of format {str(found)[:40]!r}, and this datacheck reads {store.RESULT_FORMAT!r}"
        raise ValueError(msg)
    result: dict[str, Any] = _checked(Result, said, store.RESULT)
    verdict = result["verdict"]
    crashed = bool(result["crashes"]) or "crashes" in result.get("left_out", {})
    if {"pass": 0, "fail": 1, "crash": 4}[verdict["status"]] != verdict["exit_code"] or crashed != (
        verdict["status"] == "crash"
    ):
        msg = f"{store.RESULT} is damaged: verdict.status, verdict.exit_code and crashes contradict one another"
        raise ValueError(msg)
    return result


def read_started(folder: Path) -> str:
    """Return when a run began, as text.

    Raises:
        OSError, ValueError: as of `read_result`.
    """
    said = read_json(folder / store.RESULT, RESULT_BYTES, links=False)
    started: str = _checked(Began, said, store.RESULT)["run"]["started"]
    return started


def read_valid(folder: Path, samples: int) -> dict[str, Any]:
    """Return the valid.json of a run of so many samples.

    Raises:
        OSError, ValueError: as of `read_result`.
    """
    limit = VALID_BYTES + VALID_BYTES_EACH * samples
    said = read_json(folder / store.VALID, limit, VALUES + _VALUES_EACH * samples, links=False)
    found: dict[str, Any] = _checked(Valid, said, store.VALID)
    return found


def read_previews(folder: Path) -> dict[str, Any] | None:
    """Return the previews.json of a run; None where there is none that can be read."""
    try:
        said = read_json(folder / store.PREVIEWS, PREVIEWS_BYTES, links=False)
        found: dict[str, Any] = _checked(Previews, said, store.PREVIEWS)
    except (OSError, ValueError):  # none were made, or somebody wrote into the file
        return None
    return found if found["format"] == store.PREVIEWS_FORMAT else None


def read_schema(folder: Path) -> Schema:
    """Return the schema of a run, whose file names no other files and whose code is not imported.

    Raises:
        SchemaError: it cannot be read, or is wrong.
    """
    from datacheck.schema.load import parse_schema, read_text  # noqa: PLC0415  YAML is not needed with a Schema

    path = folder / store.SCHEMA
    return parse_schema(read_text(path, links=False), str(path), files=False)


def parse_head(data: bytes, rows: int) -> dict[str, Any]:
    """Return the JSON of a listing.npz of so many rows: samples and files.

    Raises:
        ValueError: it is larger than a scan writes it, or damaged.
    """
    limit = HEAD_BYTES + HEAD_BYTES_EACH * rows
    if len(data) > limit:
        msg = f"the head of {store.LISTING} has {len(data):,} bytes; at most {limit:,} are read"
        raise ValueError(msg)
    said: dict[str, Any] = _checked(
        Head, parse_json(data, VALUES + _VALUES_EACH * rows), f"the head of {store.LISTING}"
    )
    return said
