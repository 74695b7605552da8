"""The pictures of a run in its page: as many of previews.json as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datacheck.rules.base import counted
from datacheck.scan.documents import read_previews


def pictures(folder: Path, room: int, size: Callable[[Any], int]) -> dict[str, Any] | None:
    """Return the pictures of a run's worst samples; None where it has none.

    Args:
        folder: of the run.
        room: bytes that they may take in the page.
        size: bytes that a value takes there.

    Notes:
        The worst samples come first in the file, so what finds no room is what is missed least.
    """
    found = read_previews(folder)
    if found is None:
        return None
    laid, left = [], 0
    for one in found.get("overlays", []):  # few, and small
        taken = size(one) + 1
        if taken > room // 4:
            left += 1
            continue
        room -= taken
        laid.append(one)
    kept = kept_within(found, room, size)
    said = [f"joints of {counted(left, 'field')} not overlaid: the page has no more room"] if left else []
    return kept | {"overlays": laid, "left_out": [*kept["left_out"], *said]}


def kept_within(found: Mapping[str, Any], room: int, size: Callable[[Any], int]) -> dict[str, Any]:
    """Return the first pictures that fit into so many bytes of a page, and what is left out.

    Args:
        found: samples, of each row of pictures (findings) the places of its own among them, and what was left out.
        room, size: as above.
    """
    kept: list[Any] = []
    room -= size([found["findings"], found["left_out"]]) + 200
    for sample in found["samples"]:
        room -= size(sample) + 1
        if room < 0:
            break
        kept.append(sample)
    left = len(found["samples"]) - len(kept)
    said = [f"{counted(left, 'sample')} not drawn: the page has no more room"] if left else []
    places = {name: [at for at in mine if at < len(kept)] for name, mine in found["findings"].items()}
    return {"samples": kept, "findings": places, "left_out": [*found["left_out"], *said]}
