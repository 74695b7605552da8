"""The badge of a README: JSON that shields.io draws (its endpoint badge, schemaVersion 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def badge(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as an endpoint badge, a JSON value; it holds numbers and no text of the data.

    Args:
        said: ``datacheck.result/1``.
    """
    listed, valid = said["dataset"]["samples"]["listed"], said["verdict"]["valid"]
    status, warned = said["verdict"]["status"], said["verdict"]["counts"]["warning"]
    share = f"{valid:,} of {listed:,} samples valid"
    colour = {"crash": "lightgrey", "fail": "red"}.get(status, "brightgreen")
    if status == "pass" and (warned or valid < listed):
        colour = "yellow"
    message = "crashed" if status == "crash" else share
    return {
        "schemaVersion": 1, "label": "datacheck", "message": message, "color": colour, "isError": status == "crash",
    }  # fmt: skip


def is_badge(data: bytes) -> bool:
    """Return whether a file's bytes are those of a badge, which the next run may replace."""
    try:
        said = orjson.loads(data)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("schemaVersion") == 1 and said.get("label") == "datacheck"
