"""A peer's store of the same samples, written and read in a process of its own, as it may need another Python.

    PYTHON reading.py NAME DATA STORE

Writes the store, prints the version of what wrote it, and answers each line of JSON with one: see
`Served.answer`. NAME is a class of readers.py in small letters.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flat import Data, Items, checksum, drop, fetched, paced
from readers import STORES


class Served:
    """A store that answers.

    Args:
        name: of its class.
        data: what it holds.
        folder: where it is written.
    """

    def __init__(self, name: str, data: Data, folder: Path) -> None:
        self._made, self._folder = partial(STORES[name], data, folder), folder
        self._store = self._made()
        self._store.write()
        self.version = version(self._store.package)
        self._store.open()

    def answer(self, batches: list[Items], seconds: float, *, cold: bool, check: bool) -> list[Any]:
        """Read batches, each once, or for so many seconds; opened anew with nothing in memory where it is to be cold.

        Returns:
            Seconds, rows and bytes from disks. Of a check, which reads the first batch: its
            checksum, and the items where they were not those asked for.
        """
        if cold:
            del self._store
            gc.collect()
            drop(self._folder)
        begun: list[Items] = []
        before, rows, start = fetched(), 0, time.perf_counter()
        if cold:
            self._store = self._made()
            self._store.open()
        store = self._store
        if check:
            return [checksum(store.data, store.read(batches[0])), store.served]
        for items in paced(batches, seconds, begun):
            store.read(items)
            rows += sum(count for _, count in store.served or items)
        return [time.perf_counter() - start, rows, fetched() - before]


def main() -> None:
    """Write a store and read from it."""
    name, data, folder = sys.argv[1], Data(Path(sys.argv[2])), Path(sys.argv[3])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some print what they do
    served = Served(name, data, folder)
    print(served.version, file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(served.answer(**json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
