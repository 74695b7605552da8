"""One digest in every cell: the same epochs by any number of workers and ranks, resumed at every step.

    python scripts/bench/faults/loading.py [--workers 0 1 2 8] [--starts fork spawn forkserver]
    [--worlds 1 2 4]
                                           [--kinds NAME ...] [--folder DIR]

A cell is a way of loading: a DataLoader with so many workers, persistent or not, forked, spawned or
of a fork server, or a CachedLoader with so many threads, which are given one batch or several at
once, for 1, 2 and 4 ranks with the same global batch. Of each kind (random crops that may fail,
plain indices, blocks, weights, windows, two caches mixed; one file is none, one sample is not
finite, two are refused when they are loaded) a cell serves two epochs, and then the rest of the
second from the state at each step.

What must come out is had one plain index at a time in this process, without sampler and loader, and
held against the arrays that were written. A cell's digest is that of all samples in global order,
names, dtypes, shapes and bytes, and of all states. Three controls must be told: a transform that
draws from the global generator, a dataset whose workers hold the epoch that they were started with,
and one that leaves failed samples out. Ends with 1 where a cell differs, or a control is not told.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent))

from served import (
    GLOBAL_BATCH,
    KINDS,
    STEPS,
    Kind,
    alone,
    cached,
    faults,
    refuse,
    rows,
    told,
    write,
)

from datacheck.torch import CachedLoader, collate_ragged, prefetch
from datacheck.torch.order import pack

Pass = list[list[str]]  # of one rank: of each batch, the digests of its samples
STARTS = ("fork", "spawn", "forkserver")


@dataclass(frozen=True)
class Way:
    """A way of loading; with `threads`, by a CachedLoader, which are given several batches at once if `quick`."""

    workers: int = 0
    persistent: bool = False
    start: str = ""
    world: int = 1
    threads: int = 0
    quick: bool = False

    def __str__(self) -> str:
        kept = ", persistent" if self.persistent else ""
        how = f"{self.workers} workers, {self.start}{kept}" if self.workers else "in this process"
        return (
            f"CachedLoader, {self.threads} threads{', quick' if self.quick else ''}"
            if self.threads
            else how
        )

    def loader(self, dataset: Any, batches: Any) -> Any:
        """Return the loader."""
        if self.threads:
            prefetch.QUICK = 60 if self.quick else 1e-9
            return CachedLoader(
                dataset, batch_sampler=batches, collate_fn=collate_ragged, threads=self.threads
            )
        return DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=collate_ragged,
            num_workers=self.workers,
            persistent_workers=self.persistent,
            timeout=600 if self.workers else 0,
            multiprocessing_context=multiprocessing.get_context(self.start)
            if self.workers
            else None,
        )


def ways(workers: list[int], starts: list[str]) -> Iterator[Way]:
    """Yield every way of one rank, the plainest first."""
    if 0 in workers:
        yield Way()
    yield from (Way(threads=threads, quick=quick) for threads in (1, 3) for quick in (False, True))
    for count in filter(None, workers):
        for start in starts:
            yield from (Way(count, persistent, start) for persistent in (False, True))


# ------------------------------------------------------------------------------------------- a cell


class Together(Dataset):
    """Several datasets behind one loader."""

    def __init__(self, datasets: list[Any]) -> None:
        self.datasets = datasets

    def __getitems__(self, indices: list[tuple[int, int]]) -> Any:
        return self.datasets[indices[0][0]].__getitems__([index for _, index in indices])


class Behind:
    """The batches of several samplers, one sampler behind the other."""

    def __init__(self, samplers: list[Any]) -> None:
        self.samplers = samplers

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for number, batches in enumerate(self.samplers):
            yield from ([(number, index) for index in batch] for batch in batches)


def passed(loader: Any, take: Callable[[int], None] = lambda had: None) -> Pass:
    """Return what one pass serves; `take` is told how many batches the loop has had."""
    found = []
    for had, batch in enumerate(loader, start=1):
        found.append([told(sample) for sample in rows(batch)])
        take(had)
    return found


def of_rank(
    kinds: list[Kind], caches: list[Path], way: Way, rank: int
) -> list[tuple[list[Pass], list[Any]]]:
    """Return the passes of a rank for each kind, and the states of the second one."""

    def begin() -> tuple[list[Any], Any]:
        datasets, samplers = zip(
            *(kind.opened(caches, rank, way.world) for kind in kinds), strict=True
        )
        if len(kinds) == 1:
            return samplers, way.loader(datasets[0], samplers[0])
        return samplers, way.loader(Together(datasets), Behind(samplers))

    def take(had: int) -> None:
        of, before = divmod(had - 1, STEPS)
        states[of].append(samplers[of].state_dict(batches=before + 1))

    samplers, loader = begin()
    passes = [passed(loader)]
    states = [[batches.state_dict(batches=STEPS)] for batches in samplers]
    passes.append(passed(loader, take))
    for step in range(STEPS + 1):
        if not (way.persistent or way.threads):
            samplers, loader = begin()
        for batches, said in zip(samplers, states, strict=True):
            batches.load_state_dict(json.loads(json.dumps(said[step])))
        passes.append(passed(loader))
    cut = [
        [one[i * len(one) // len(kinds) : (i + 1) * len(one) // len(kinds)] for one in passes]
        for i in range(len(kinds))
    ]
    return list(zip(cut, states, strict=True))


def cell(kinds: list[Kind], caches: list[Path], way: Way) -> list[str]:
    """Return a digest of what each kind serves, in global order, and of its states."""
    # Who is spawned imports PyTorch, for seconds: once for all kinds
    if way.start != "spawn" and len(kinds) > 1:
        return [found for kind in kinds for found in cell([kind], caches, way)]
    ranks = [of_rank(kinds, caches, way, rank) for rank in range(way.world)]
    return [joined([rank[of] for rank in ranks]) for of in range(len(kinds))]


def joined(ranks: list[tuple[list[Pass], list[Any]]]) -> str:
    """Return one digest of what all ranks serve; all must have equally many batches and the same states."""
    states = ranks[0][1]
    if any(other != states for _, other in ranks):
        return "states of ranks"
    whole = []
    for each in zip(*(passes for passes, _ in ranks), strict=True):
        if len({len(one) for one in each}) > 1:
            return "number of batches"  # one rank would wait for the others
        whole.append(
            [sample for step in zip(*each, strict=True) for batch in step for sample in batch]
        )
    return digest(whole, states)


def digest(whole: list[list[str]], states: list[Any]) -> str:
    """Return one digest of a cell; what belongs to the machine is left out."""
    said = json.dumps([whole, states], sort_keys=True)
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def expected(kind: Kind, caches: list[Path]) -> str:
    """Return the digest that each cell must have."""
    batches = kind.opened(caches)[1]
    epochs = [[told(sample) for sample in alone(kind, caches, epoch)] for epoch in range(3)]
    rests = [epochs[1][step * GLOBAL_BATCH :] for step in range(STEPS)]
    of = {"version": 1, "seed": 5, "fingerprint": batches.fingerprint}
    states = [of | {"epoch": 1, "consumed": step * GLOBAL_BATCH} for step in range(STEPS)]
    return digest([*epochs[:2], *rests, epochs[2]], [*states, of | {"epoch": 2, "consumed": 0}])


def judged(name: str, caches: list[Path]) -> list[str]:
    """Return what is wrong with what is expected itself."""
    kind = KINDS[name]
    _, batches = kind.opened(caches)
    positions = np.arange(len(batches) * GLOBAL_BATCH) % len(batches.order)
    wrong, good = [], {"by blocks": 19, "shuffled, random crops": 15}.get(name, 0)
    for epoch in range(3):
        samples = alone(kind, caches, epoch)
        plain = name not in ("windows", "two caches mixed")
        wrong += faults(
            name, samples, batches.order.items(epoch, positions).tolist() if plain else []
        )
        if len({int(sample["label"]) for sample in samples}) < good:
            wrong.append(f"epoch {epoch}: samples are missing")
    return [f"{name}: {one}" for one in wrong]


# ----------------------------------------------------------------------------------------- controls


def careless(row: dict[str, Any]) -> dict[str, Any]:
    """Draw from the global generator."""
    return refuse(row) | {"drawn": torch.tensor(np.random.random())}  # noqa: NPY002  what it is about


class Wrapped(Dataset):
    """A dataset around one, as people write them."""

    def __init__(self, path: Path) -> None:
        self.inner, self.epoch = cached(path), 0

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def fingerprint(self) -> str:
        """That of the dataset inside."""
        return self.inner.fingerprint

    def set_epoch(self, epoch: int) -> None:
        """Hear of an epoch, in the process that is told."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        return self.inner[int(pack(self.epoch, np.array(index)))]

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Leaving(Wrapped):
    """Leaves bad samples out of its batches."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices if self.inner.substituted(index) == index] or [
            self[0]
        ]


CONTROLS = {
    "global random numbers": (
        Kind(lambda caches: cached(caches[0], transform=careless)),
        lambda way: True,
    ),
    "an epoch of its own": (Kind(lambda caches: Wrapped(caches[0])), lambda way: way.persistent),
    "bad samples left out": (Kind(lambda caches: Leaving(caches[0])), lambda way: True),
}
"""By name: a dataset that is wrong, and in which ways of loading that must show; in others it must not."""


def told_wrong(
    name: str, kind: Kind, shows: Callable[[Way], bool], caches: list[Path], all_ways: list[Way]
) -> str:
    """Return what is wrong with how a control was told, "" where nothing is."""
    right, told_in = expected(kind, caches), []
    for way in all_ways:
        if (cell([kind], caches, way) != [right]) != shows(way):
            return (
                f"control: {name} {'was not told' if shows(way) else 'shows'}: {way}, "
                f"{way.world} ranks"
            )
        told_in += [way] if shows(way) else []
    print(f"control: {name}: differs in {len(told_in)} of {len(all_ways)} cells, where it must")
    return "" if told_in else f"control: {name}: no way in which it shows was asked for"


def table(kinds: list[str], caches: list[Path], rows_: list[Way], worlds: list[int]) -> int:
    """Print a row for each way and a digest for each number of ranks; return how many cells differ."""
    right = [expected(KINDS[name], caches) for name in kinds]
    print(f"{'':32}" + "".join(f"{f'{world} ranks':>20}" for world in worlds))
    bad = 0
    for way in rows_:
        print(f"{way!s:32}", end="", flush=True)
        for world in worlds:
            found = cell([KINDS[name] for name in kinds], caches, replace(way, world=world))
            wrong = [
                name for name, one, other in zip(kinds, found, right, strict=True) if one != other
            ]
            whole = hashlib.blake2b("".join(found).encode(), digest_size=8).hexdigest()
            print(
                f"{whole:>20}{' DIFFERS: ' + ', '.join(wrong) if wrong else ''}", end="", flush=True
            )
            bad += len(wrong)
        print(flush=True)
    return bad


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 8])
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    parser.add_argument("--worlds", type=int, nargs="+", choices=[1, 2, 4, 8], default=[1, 2, 4])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--folder", default=None, help="where to write; removed afterwards")
    asked = parser.parse_args()
    began, all_ways = time.perf_counter(), [*ways(asked.workers, asked.starts)]
    # More workers than cores: that is asked for
    warnings.filterwarnings("ignore", "This DataLoader will create")
    multiprocessing.set_forkserver_preload(["torch", "datacheck.torch.dataset"])
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        caches = write(Path(name))
        wrong = [fault for kind in asked.kinds for fault in judged(kind, caches)]
        bad = table(asked.kinds, caches, all_ways, asked.worlds)
        least = min(filter(None, asked.workers), default=0)
        few = [
            way for way in all_ways if way.workers <= least and way.start in ("", asked.starts[0])
        ]
        wrong += filter(
            None, (told_wrong(what, *how, caches, few) for what, how in CONTROLS.items())
        )
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    count = len(all_ways) * len(asked.worlds) * len(asked.kinds)
    print(
        f"{count} cells, {bad} wrong"
        if bad
        else f"{count} cells: of each kind one digest, the expected one"
    )
    seconds = time.perf_counter() - began
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{seconds:.0f} s"
    )
    return int(bool(bad or wrong))


if __name__ == "__main__":
    sys.exit(main())
