"""Convert vectors between the OpenGL and the OpenCV camera frame."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec, Block
from datacheck.schema.grammar import Strings
from datacheck.transforms.base import Result, Specs, Transform, with_columns, with_entries


class Camera(Transform):
    """Multiply x, y, z by (1, -1, -1).

    OpenGL looks along -z with y up, OpenCV along +z with y down.

    Shapes:
        fields: float (..., 3 or more): x, y, z in the first three columns of the last axis

    Args:
        fields: the fields to convert: positions and directions, not rotations.
        to: the target frame.

    Notes:
        Exact, and its own inverse. A field that the schema declares to be in the target frame
        already is an error.
    """

    name: ClassVar[str] = "camera"
    version: ClassVar[int] = 1
    lists: ClassVar[tuple[str, ...]] = ("fields",)
    fields: Strings
    to: Literal["opengl", "opencv"]

    @property
    def partly_changed_fields(self) -> tuple[str, ...]:
        """The fields; their first column does not change."""
        return tuple(self.fields)

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with the new frame in their attributes."""
        frame = f"camera_{self.to}"
        changed = {}
        for name in self.fields:
            spec = self.numeric(specs, name)
            if not spec.item or spec.item[-1] < 3:
                msg = f"camera: {name} has no three columns x, y, z in its last axis"
                raise UsageError(msg)
            if spec.attrs.get("frame") == frame:
                msg = f"camera: the schema declares {name} to be in {frame} already"
                raise UsageError(msg)
            changed[name] = replace(spec, attrs={**spec.attrs, "frame": frame})
        return {**specs, **changed}

    def apply(self, block: Block) -> Result:
        """Return the block with y and z negated."""
        present = [name for name in self.fields if name in block.fields]
        return [
            with_columns(
                block, {n: with_entries(block.fields[n], 1, 3, np.negative) for n in present}
            )
        ], []
