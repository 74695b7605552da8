"""Thin a cloud to one point per voxel."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from datacheck.errors import InvalidSample, UsageError
from datacheck.model import voxel_grid
from datacheck.model.sample import ArraySpec, Block
from datacheck.schema.grammar import Strings
from datacheck.transforms.base import Array, Result, Specs, Transform, choose_rows, row_fields


class Voxel(Transform):
    """Keep the lowest row of every occupied voxel, in ascending order.

    Shapes:
        points: float (rows, 3 or more) [unit of `edge`]: x, y, z first

    Args:
        points: the field that decides.
        edge: edge length of a voxel, above 0.
        along: further fields to cut in the same way; fields that share the ragged dimension of
            `points` always are.

    Notes:
        cell = floor((xyz - min) / edge) in float64, as training loaders do. A sample with a point
        that is not finite is refused.
    """

    name: ClassVar[str] = "voxel"
    version: ClassVar[int] = 1
    lists: ClassVar[tuple[str, ...]] = ("along",)
    points: str
    edge: float = Field(gt=0, strict=False)
    along: Strings = ()

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs; cut fields of fixed length become ragged.

        Their dimension is that of `points`, or is named after `points`.
        """
        spec = self.numeric(specs, self.points, rank=2)
        if spec.item[-1] < 3:
            msg = f"voxel: {self.points} has no three columns x, y, z in its last axis"
            raise UsageError(msg)
        dim = spec.dim or self.points
        cut = {
            name: self.numeric(specs, name, kinds="fiub")
            for name in row_fields(specs, self.points, self.along)
        }
        return {
            **specs,
            **{
                n: replace(s, dim=dim, item=s.item if s.dim else s.item[1:]) for n, s in cut.items()
            },
        }

    def bind(self, specs: Specs) -> Voxel:
        """Return the step with all fields that are cut listed in `along`."""
        self.spec(specs, self.points)
        return self.model_copy(update={"along": row_fields(specs, self.points, self.along)})

    def apply(self, block: Block) -> Result:
        """Return the thinned clouds."""
        return choose_rows(block, self.points, self.along, lambda _key, values: self._kept(values))

    def _kept(self, values: Array) -> Array:
        xyz = values[:, :3]
        if len(xyz) and not (np.isfinite(xyz.min()) and np.isfinite(xyz.max())):
            msg = f"{self.points}: a coordinate is not finite, so voxels have no place"
            raise InvalidSample(msg)
        if len(xyz) and float(np.max(np.ptp(xyz.astype(np.float64), axis=0))) / self.edge >= 2**62:
            msg = f"{self.points}: the extent is too large for voxels of {self.edge:g}"
            raise InvalidSample(msg)
        return voxel_grid.representatives(xyz, self.edge)
