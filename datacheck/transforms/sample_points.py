"""Resample every cloud to the same number of points."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from datacheck.errors import InvalidSample
from datacheck.model.sample import ArraySpec, Block
from datacheck.runtime.hashing import digest64
from datacheck.schema.grammar import Strings
from datacheck.transforms.base import Array, Result, Specs, Transform, choose_rows, row_fields


class SamplePoints(Transform):
    """Keep exactly `n` rows of every cloud.

    Shapes:
        points: any (rows, ...); becomes (n, ...)

    Args:
        points: the field that decides.
        n: number of rows to keep, above 0.
        along: further fields to cut in the same way; fields that share the ragged dimension of
            `points` always are.

    Notes:
        A cloud with more than `n` rows keeps the first `n` of a permutation that depends on the
        sample's key alone, in ascending order. A cloud with `n` rows is unchanged. A smaller cloud
        keeps all rows and repeats rows in the order of that permutation. A cloud without rows is
        refused.
    """

    name: ClassVar[str] = "sample_points"
    version: ClassVar[int] = 1
    lists: ClassVar[tuple[str, ...]] = ("along",)
    points: str
    n: int = Field(gt=0)
    along: Strings = ()

    def bind(self, specs: Specs) -> SamplePoints:
        """Return the step with all fields that are cut listed in `along`."""
        self.spec(specs, self.points)
        return self.model_copy(update={"along": row_fields(specs, self.points, self.along)})

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with the cut fields fixed at `n` rows."""
        cut = {
            n: self.numeric(specs, n, kinds="fiub")
            for n in row_fields(specs, self.points, self.along)
        }
        return {
            **specs,
            **{
                n: replace(s, dim=None, item=(self.n, *(s.item if s.dim else s.item[1:])))
                for n, s in cut.items()
            },
        }

    def apply(self, block: Block) -> Result:
        """Return the clouds with `n` points each."""
        return choose_rows(block, self.points, self.along, self._chosen)

    def _chosen(self, key: str, values: Array) -> Array:
        rows = len(values)
        if rows == 0:
            msg = f"{self.points} has no rows to take {self.n} from"
            raise InvalidSample(msg)
        if rows == self.n:
            return np.arange(rows)
        order = permutation(key, rows)
        if rows > self.n:
            return np.sort(order[: self.n], kind="stable")
        return np.concatenate([np.arange(rows), np.resize(order, self.n - rows)])


def permutation(key: str, rows: int) -> Array:
    """Return a permutation of 0 .. rows-1 that depends on (key, rows) only.

    It is the same on every machine and with every version of NumPy.

    Notes:
        The stable order of the first `rows` words of Philox keyed by xxh3_64 of the key: NumPy
        guarantees the words of a bit generator, but not the result of its `permutation`.
    """
    words = np.random.Philox(key=digest64(key.encode("utf-8", "surrogatepass"))).random_raw(rows)
    order: Array = np.argsort(words, kind="stable")
    return order
