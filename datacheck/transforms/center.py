"""Move a field so that its centre is at the origin."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from datacheck.errors import InvalidSample, UsageError
from datacheck.model.sample import ArraySpec, Block
from datacheck.schema.grammar import Strings
from datacheck.transforms.base import Array, Result, Specs, Transform, map_samples


class Center(Transform):
    """Subtract a centre from the first three columns of a field.

    Shapes:
        field: float (..., n, 3 or more): points or joints along the second to last axis; with a
            time axis in front, each step has its own centre

    Args:
        field: the field that defines the centre.
        at: "root" (the row `joint`), "centroid" (the mean), "box" (the middle of the bounding box),
            or "xy" (the mean of x and y; z stays).
        joint: row of the root.
        also: other fields from which the same centre is subtracted ((..., n, 3) or (..., 3)).

    Notes:
        Computed in float64, rounded once to the field's dtype. NaN in the centre makes the whole
        sample NaN. A sample without rows, or without the root's row, is refused.
    """

    name: ClassVar[str] = "center"
    version: ClassVar[int] = 1
    lists: ClassVar[tuple[str, ...]] = ("also",)
    field: str
    at: Literal["root", "centroid", "box", "xy"]
    joint: int = 0
    also: Strings = ()

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with the centre in the attributes."""
        spec = self.numeric(specs, self.field, rank=2)
        for name in (self.field, *self.also):
            last_axis = self.numeric(specs, name).item[-1:]
            if not last_axis or last_axis[0] < 3:
                msg = f"center: {name} has no three columns x, y, z in its last axis"
                raise UsageError(msg)
        return {**specs, self.field: replace(spec, attrs={**spec.attrs, "centered": self.at})}

    def apply(self, block: Block) -> Result:
        """Return the block with the centre subtracted, sample by sample."""
        if self.field not in block.fields:
            return [], [(key, f"{self.field} is absent") for key in block.keys]
        names = [name for name in (self.field, *self.also) if name in block.fields]

        def moved(i: int) -> dict[str, Array]:
            centre = self._centre(block.fields[self.field][i])
            return {name: _subtract(block.fields[name][i], centre, name) for name in names}

        return map_samples(block, names, moved)

    def _centre(self, values: Array) -> Array:
        rows = values[..., :3].astype(np.float64)
        if rows.shape[-2] <= (self.joint if self.at == "root" else 0):
            msg = (
                f"{self.field}: {rows.shape[-2]} rows, so no "
                f"{'root' if self.at == 'root' else 'centre'}"
            )
            raise InvalidSample(msg)
        if self.at == "root":
            centre: Array = rows[..., self.joint : self.joint + 1, :]
        elif self.at == "box":
            centre = (rows.min(axis=-2, keepdims=True) + rows.max(axis=-2, keepdims=True)) / 2
        else:
            centre = rows.mean(axis=-2, keepdims=True)
        if self.at == "xy":
            centre[..., 2] = 0
        return centre


def _subtract(values: Array, centre: Array, name: str) -> Array:
    if values.ndim == centre.ndim - 1:
        centre = centre[..., 0, :]
    moved = values.copy()
    try:
        moved[..., :3] = values[..., :3].astype(np.float64) - centre
    except ValueError as error:
        msg = (
            f"{name}: shape {list(values.shape)} does not go with centres of shape "
            f"{list(centre.shape)}"
        )
        raise InvalidSample(msg) from error
    return moved
