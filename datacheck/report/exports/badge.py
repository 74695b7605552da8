"""Results as a badge: the JSON of a shields.io endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from datacheck.runtime import outputs

_OPTION = "datacheck scan --badge"


def badge(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as an endpoint badge, a JSON value with numbers but no text of the data.

    Args:
        result: ``datacheck.result/1``.
    """
    verdict = result["verdict"]
    has_crashed = verdict["status"] == "crash"
    share = f"{verdict['valid']:,} of {result['dataset']['samples']['listed']:,} samples valid"
    return {
        "schemaVersion": 1,
        "label": "datacheck",
        "message": "crashed" if has_crashed else share,
        "color": _colour(result),
        "isError": has_crashed,
    }


def _colour(result: Mapping[str, Any]) -> str:
    verdict = result["verdict"]
    if verdict["status"] == "crash":
        return "lightgrey"
    if verdict["status"] == "fail":
        return "red"
    some_invalid = verdict["valid"] < result["dataset"]["samples"]["listed"]
    if some_invalid or verdict["counts"]["warning"]:
        return "yellow"
    return "brightgreen"


def check_badge_file(path: Path) -> None:
    """Check that a badge can be written to a path: a new file, or one that replaces a badge.

    Raises:
        UsageError: another file exists there.
    """
    outputs.check_output(path, _OPTION, _is_badge)


def write_badge(path: Path, data: bytes) -> None:
    """Write the JSON of a badge; a badge that exists is replaced.

    Raises:
        UsageError: another file exists there.
        OutOfSpaceError: the disk is full.
        StorageError: any other refusal of the operating system.
    """
    outputs.write_output(path, data, _OPTION, _is_badge)


def _is_badge(data: bytes) -> bool:
    """Return whether a file's bytes are a badge, which the next run may replace."""
    try:
        document = orjson.loads(data)
    except ValueError:
        return False
    return (
        isinstance(document, dict)
        and document.get("schemaVersion") == 1
        and document.get("label") == "datacheck"
    )
