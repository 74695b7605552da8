"""The process that holds a user's dataset, and its answers to all indices.

Batches of indices bound the memory; a process that dies is started again (`workers.child`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datacheck.errors import UsageError
from datacheck.model.sample import value_bytes
from datacheck.workers.budget import Limits
from datacheck.workers.child import Child, ChildSpec, Death
from datacheck.workers.parallel import run_task
from datacheck.workers.wire import Json

Answer = dict[str, Any]

BATCH_BYTES = 16 << 20
BATCH_SAMPLES = 256

_CHILD = "datacheck.scan.loader_audit.loader_child"
_BUILD_S = 900.0  # indexing a large dataset may take minutes


@dataclass(frozen=True)
class ProcessSettings:
    """The settings of a process that may change its samples.

    Args:
        seed: of the global random numbers when the dataset is built.
        listing: "reversed": directories list their names in reverse.
        hash_seed: of ``hash()``, which decides the order of sets.
    """

    seed: int = 0
    listing: str = ""
    hash_seed: int = 0


class Loader(Child):
    """The process that holds a user's dataset; after a death, a new process builds it again.

    Args:
        factory: ``module:function``.
        whole: fields that stay one JSON value where they are dicts or lists.
        limits: of time and memory, per sample.
        settings: of the process.
    """

    def __init__(
        self,
        factory: str,
        whole: Sequence[str],
        limits: Limits,
        settings: ProcessSettings | None = None,
    ) -> None:
        settings = settings or ProcessSettings()
        environment = {"PYTHONHASHSEED": str(settings.hash_seed)}
        super().__init__(
            limits, ChildSpec("the loader", environment, limited=False, beside=True, doubted=False)
        )
        self._build_task = {
            "factory": factory,
            "whole": list(whole),
            "memory_b": limits.memory_b,
            "seed": settings.seed,
            "listing": settings.listing,
        }
        self.length = 0
        self.torch = False

    def run(
        self, function: str, task: dict[str, Json], patience: float = 0.0
    ) -> tuple[Json, Death | None]:
        """Run a function of the audit in the child; build the dataset there if it is not built.

        Raises:
            UsageError: it cannot be built.
        """
        if not self.running:
            self.build()
        return super().run(f"{_CHILD}:{function}", self._build_task | task, patience)

    def build(self) -> None:
        """Build the dataset in a new process.

        Raises:
            UsageError: there is no such factory, it raises or dies, or it does not return a
                map-style dataset.
        """
        answer, death = super().run(f"{_CHILD}:open_dataset", self._build_task, _BUILD_S)
        if death is not None:
            words = death.how.strip().splitlines()[-1]
            msg = f"--loader {self._build_task['factory']}: its dataset cannot be built: {words}"
            raise UsageError(msg)
        self.length, self.torch = answer["length"], answer["torch"]


def read_all(loader: Loader) -> Iterator[Answer]:
    """Yield the dataset's answer to every index, in order.

    An answer has index, values, digests and instead; or index, error and where.

    Notes:
        Batches bound the memory. An index that kills or hangs the child gives an error; ``crash``
        marks an error of datacheck's own.
    """
    start, size = 0, 1
    while start < loader.length:
        items = list(range(start, min(start + size, loader.length)))
        outcome = run_task(loader, "read", {"items": items})
        answers = {answer["index"]: answer for payload in outcome.payloads for answer in payload}
        answers |= {death.item: _death_answer(death) for death in outcome.deaths}
        yield from (answers[index] for index in items)
        nbytes = sum(
            value_bytes(value)
            for answer in answers.values()
            for value in answer.get("values", {}).values()
        )
        start += size
        size = max(1, min(BATCH_SAMPLES, 4 * size, size * BATCH_BYTES // max(1, nbytes)))


def _death_answer(death: Death) -> Answer:
    if death.crash:
        return {"index": death.item, "error": death.how, "where": "", "crash": True}
    return {"index": death.item, "error": death.how, "where": ""}
