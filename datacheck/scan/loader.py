"""A user's own dataset as a source of samples: the child that holds it, and its answers as pieces of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.budget import Limits
from datacheck.child import Child, Death, Program
from datacheck.errors import FormatError, UsageError
from datacheck.parallel import run_task
from datacheck.sample import Container, Origin, Piece
from datacheck.schema.model import Schema
from datacheck.schema.patterns import Template, parse
from datacheck.sources.base import Unread
from datacheck.sources.fields import FieldMap
from datacheck.sources.values import weigh
from datacheck.wire import Json

Answer = dict[str, Any]

BATCH_BYTES = 16 << 20
BATCH_SAMPLES = 256

_HOME = "datacheck.torch.audit"
_BUILD_S = 900.0  # indexing a large dataset may well take minutes


@dataclass(frozen=True)
class How:
    """What may decide a sample besides its index.

    Args:
        seed: of the global random numbers when the dataset is built.
        listing: "reversed": directories list their names the other way round.
        hash_seed: of ``hash()``, and so the order of sets.
    """

    seed: int = 0
    listing: str = ""
    hash_seed: int = 0


class Loader(Child):
    """The process in which a user's dataset lives; a new one, after a death, builds it again.

    Args:
        factory: ``module:function``.
        whole: fields that stay one JSON value where they are dicts or lists.
        limits: of each sample.
        how: what may decide the samples.
    """

    def __init__(self, factory: str, whole: Sequence[str], limits: Limits, how: How | None = None) -> None:
        how = how or How()
        environment = {"PYTHONHASHSEED": str(how.hash_seed)}
        super().__init__(limits, Program("the loader", environment, limited=False, beside=True, doubted=False))
        self._said = {
            "factory": factory, "whole": list(whole), "memory_b": limits.memory_b, "seed": how.seed,
            "listing": how.listing,
        }  # fmt: skip
        self.length = 0
        self.torch = False

    def run(self, function: str, task: dict[str, Json], patience: float = 0.0) -> tuple[Json, Death | None]:
        """Run a function of the audit in the child, in which the dataset has been built.

        Raises:
            UsageError: it cannot be built.
        """
        if not self.running:
            self.build()
        return super().run(f"{_HOME}:{function}", self._said | task, patience)

    def build(self) -> None:
        """Build the dataset in a new process.

        Raises:
            UsageError: there is no such factory, it raises or dies, or what it returns is no map-style dataset.
        """
        said, death = super().run("datacheck.torch.factory:open_dataset", self._said, _BUILD_S)
        if death is not None:
            words = death.how.strip().splitlines()[-1]
            msg = f"--loader {self._said['factory']}: its dataset cannot be built: {words}"
            raise UsageError(msg)
        self.length, self.torch = said["length"], said["torch"]


def read_all(loader: Loader) -> Iterator[Answer]:
    """Yield the dataset's answer to every index, in order: index, values, digests, instead; or error and where.

    Notes:
        What is under way is bounded. An index that kills or hangs the child is an error; ``crash`` marks one of ours.
    """
    start, size = 0, 1
    while start < loader.length:
        items = list(range(start, min(start + size, loader.length)))
        outcome = run_task(loader, "read", {"items": items})
        answers = {said["index"]: said for payload in outcome.payloads for said in payload}
        answers |= {death.item: _dead(death) for death in outcome.deaths}
        yield from (answers[index] for index in items)
        nbytes = sum(weigh(value) for said in answers.values() for value in said.get("values", {}).values())
        start += size
        size = max(1, min(BATCH_SAMPLES, 4 * size, size * BATCH_BYTES // max(1, nbytes)))


def _dead(death: Death) -> Answer:
    if death.crash:
        return {"index": death.item, "error": death.how, "where": "", "crash": True}
    return {"index": death.item, "error": death.how, "where": ""}


# ------------------------------------------------------------------------------------------ schema, samples


def whole_fields(schema: Schema) -> list[str]:
    """Return the names that the loader uses for fields which are one text or JSON value."""
    return sorted(spec.at or name for name, spec in schema.stored.items() if spec.is_text)


class _Returned(Container):
    """The named values of one sample, in the place of an opened file."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def names(self) -> list[str]:
        return sorted(self._values)

    def read(self, name: str) -> Any:
        return self._values[name]


class Shaper:
    """Makes the pieces of blocks out of a loader's answers.

    Args:
        schema: from `served`, of the split.
        factory: what the samples come from.
    """

    def __init__(self, schema: Schema, factory: str) -> None:
        self._map, self._factory = FieldMap(schema.model_copy(update={"columns": None})), factory
        self._table = FieldMap(schema)  # for a loader that returns the one array that the schema cuts into columns
        self._id = next((name for name, _ in schema.of_role("id")), "")
        group = schema.samples.group
        self._group: Template | None = None if group is None else parse(group, "samples.group", path=False)
        self.keys: list[str] = []
        self._known: set[str] = set()

    def piece(self, answer: Answer) -> Piece | Unread:
        """Return the sample, or why there is none; its key is kept under its index (call it in index order)."""
        index = int(answer["index"])
        number = f"{index:012d}"
        if "error" in answer:
            self.keys.append(self._new(number))
            last = str(answer["error"]).strip().splitlines()[-1]
            where = f" ({answer['where']})" if answer["where"] else ""
            return Unread(
                self.keys[-1], "DC101", f"datacheck failed on it: {last}" if "crash" in answer else last + where
            )
        try:
            fields = self._table if len(answer["values"]) == 1 else self._map
            values = fields.read(_Returned(answer["values"]))
        except FormatError as error:
            self.keys.append(self._new(number))
            return Unread(self.keys[-1], error.code, str(error))
        name = _word(values.get(self._id))
        key = self._new(name or number, number)
        self.keys.append(key)
        size = np.asarray(sum(map(weigh, values.values())), dtype=np.int64)
        return Piece(key, values, Origin(self._factory, number), self._of_group(values), {"id": key, "size": size})

    def _new(self, key: str, number: str = "") -> str:
        key = key.encode("utf-8", "backslashreplace").decode()
        unique = key if key not in self._known else f"{key}#{number}"
        self._known.add(unique)
        return unique

    def _of_group(self, values: Mapping[str, Any]) -> str:
        if self._group is None:
            return ""
        return self._group.substitute({name: _word(values.get(name)) for name in self._group.names})


def _word(value: Any) -> str:
    """Return an identifier as text, "" where it is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu":
        return f"{int(value.reshape(-1)[0]):012d}"
    return ""
