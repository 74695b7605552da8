"""Loading that ends in any way: does it end within its time, as it should, and is no process left behind?

    python scripts/bench/faults/hangs.py [--count 200] [--limit 60] [--seed 0] [--starts fork spawn
    forkserver]
                                         [--plain] [--folder DIR]

Each run is a process of its own that loads with a CachedLoader, or with a DataLoader of 1 to 3
workers, persistent or not, of `worker_context` (with --plain: as PyTorch has them, whose lock may
be taken along by a worker that ends). It ends in one of these ways: it goes through two epochs;
leaves the loop midway, and begins anew; closes the loader; raises in the loop; meets a transform
that raises, a damaged chunk, or more failures than are allowed; loses a worker to a kill, from
outside or in the middle of a sample; is interrupted; is killed itself; forks workers while threads
load. A run that does not end within the limit hangs; its stacks are printed. What still runs 20 s
after it is left behind. (Workers of a fork server outlive a loader's process that was killed:
PyTorch looks whether the server lives. They are left out where it is.)

Two controls must be told: a transform that never ends, and a process that is left. Ends with 1
where a run hung, left a process or ended otherwise than it should, or a control was not told.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import multiprocessing
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))

from served import KINDS, cached, crop, write

from datacheck.errors import BudgetExceededError, CorruptionError
from datacheck.torch import Budget, CachedDataset, CachedLoader, collate_ragged, worker_context

LEFT_S = 20  # a worker looks every five seconds whether its loader's process is there
WORKERS_DIE = (RuntimeError, OSError, EOFError)  # as PyTorch says that a worker is gone


# --------------------------------------------------------------------------------------- transforms


def fails(row: dict[str, Any]) -> dict[str, Any]:
    """Raise what nobody expects."""
    if int(row["label"]) % 7 == 3:
        raise ValueError(int(row["label"]))
    return row


def dies(row: dict[str, Any]) -> dict[str, Any]:
    """End the worker in the middle of a sample."""
    if int(row["label"]) % 7 == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def never(row: dict[str, Any]) -> dict[str, Any]:
    """Wait for ever: a control."""
    while True:
        time.sleep(1)


def leaves(row: dict[str, Any]) -> dict[str, Any]:
    """Leave a process that outlives the run: a control."""
    subprocess.Popen(["sleep", "600"])
    raise ValueError


# -------------------------------------------------------------------------------------------- a run


@dataclass(frozen=True)
class Run:
    """What is random in a run."""

    caches: list[Path]
    damaged: Path
    rng: random.Random
    starts: list[str]
    context: Callable[[str], Any] = worker_context

    def loader(self, data: Any, *, processes: bool | None = None) -> Any:
        """Return a loader of any kind, or one with worker processes, or one without."""
        batches = (
            data.sampler(self.rng.choice((1, 2, 4)), seed=self.rng.randrange(100))
            if hasattr(data, "sampler")
            else None
        )
        how = {"batch_size": 2, "shuffle": False} if batches is None else {"batch_sampler": batches}
        if processes is None:
            processes = self.rng.random() < 0.7
        if not processes:
            some = {"threads": self.rng.randint(1, 4), "ahead": self.rng.choice((None, 1, 4))}
            return CachedLoader(data, **how, **some, collate_fn=collate_ragged)
        return DataLoader(
            data,
            **how,
            collate_fn=collate_ragged,
            num_workers=self.rng.randint(1, 3),
            prefetch_factor=self.rng.randint(1, 4),
            persistent_workers=self.rng.random() < 0.5,
            multiprocessing_context=self.context(self.rng.choice(self.starts)),
        )

    def data(self) -> Any:
        """Return a dataset of any kind."""
        return self.rng.choice([*KINDS.values()]).make(self.caches)

    def some(self, loader: Any) -> Any:
        """Take a few batches; return the pass, which is not over."""
        passing = iter(loader)
        for _ in range(self.rng.randint(1, 3)):
            next(passing)
        return passing


def whole(run: Run) -> None:
    loader = run.loader(run.data())
    for _ in range(2):
        assert len(list(loader)) == len(loader)


def left_midway(run: Run) -> None:
    loader = run.loader(run.data())
    for number, _ in enumerate(loader):
        if number == 1:
            break
    assert len(list(loader)) == len(loader)


def closed(run: Run) -> None:
    loader = run.loader(run.data(), processes=False)
    passing = run.some(loader)
    loader.close()
    assert not list(passing)
    assert len(list(loader)) == len(loader)


def raised_in(run: Run) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for _ in run.loader(run.data()):
            raise ZeroDivisionError


def expects(error: type[Exception] | tuple[type[Exception], ...], loader: Any) -> None:
    try:
        for _ in loader:
            pass
    except error:
        return
    raise AssertionError(error)


def transform_fails(run: Run) -> None:
    expects(ValueError, run.loader(cached(run.caches[0], transform=fails)))


def damaged_chunk(run: Run) -> None:
    expects(CorruptionError, run.loader(cached(run.damaged)))


def budget_exceeded(run: Run) -> None:
    expects(
        BudgetExceededError,
        run.loader(CachedDataset(run.caches[0], transform=crop, budget=Budget(share=0))),
    )


def worker_killed(run: Run) -> None:
    loader = run.loader(run.data(), processes=True)
    passing = run.some(loader)
    os.kill(run.rng.choice(passing._workers).pid, signal.SIGKILL)  # noqa: SLF001
    with contextlib.suppress(*WORKERS_DIE):  # all may have been fetched already
        for _ in passing:
            pass


def worker_dies(run: Run) -> None:
    expects(WORKERS_DIE, run.loader(cached(run.caches[0], transform=dies), processes=True))


def interrupted(run: Run) -> None:
    passing = run.some(run.loader(run.data()))
    try:
        os.killpg(0, signal.SIGINT)
        for _ in passing:
            pass
        time.sleep(5)
    except KeyboardInterrupt:
        return
    raise AssertionError


def killed(run: Run) -> None:
    run = replace(run, starts=[start for start in run.starts if start != "forkserver"] or ["fork"])
    passing = run.some(run.loader(run.data()))
    os.kill(os.getpid(), signal.SIGKILL)
    del passing


def forked_beside_threads(run: Run) -> None:
    data = cached(run.caches[0], transform=crop)
    threads = run.some(run.loader(data, processes=False))
    loader = run.loader(data, processes=True)
    assert len(list(loader)) == len(loader)
    list(threads)


ENDINGS: list[Callable[[Run], None]] = [
    whole,
    left_midway,
    closed,
    raised_in,
    transform_fails,
    damaged_chunk,
    budget_exceeded,
    worker_killed,
    worker_dies,
    interrupted,
    killed,
    forked_beside_threads,
]


def hangs(run: Run) -> None:
    list(run.loader(cached(run.caches[0], transform=never)))


def leaves_one(run: Run) -> None:
    expects(ValueError, run.loader(cached(run.caches[0], transform=leaves)))


# ----------------------------------------------------------------------------------------- watching


@dataclass
class Tally:
    """What came of the runs of one ending."""

    runs: int = 0
    hung: int = 0
    left: int = 0
    longest: float = 0.0
    wrong: list[str] = field(default_factory=list)


def started(ending: Callable[[Run], None], run: Run, said: Path) -> int:
    """Start a run in a process of its own, and of its own group; return its number."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        out = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1), os.dup2(out, 2)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ending(run)
        code = 0
    except BaseException as error:  # noqa: BLE001  told by the parent
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        try:
            sys.stdout.flush()
            multiprocessing.util._exit_function()  # noqa: SLF001  as a process that ends by itself
        finally:  # also where an interrupt comes late: what lies behind this function is the parent's to do
            os._exit(code)


def until(done: Callable[[], bool], limit: float) -> float | None:
    """Return how long it took, None where it takes longer; what stops this process too (a debugger) does not count."""
    spent, before = 0.0, time.monotonic()
    while not done():
        time.sleep(0.02)
        now = time.monotonic()
        spent, before = spent + min(0.5, now - before), now
        if spent > limit:
            return None
    return spent


def watched(
    ending: Callable[[Run], None],
    run: Run,
    limit: float,
    said: Path,
    tally: Tally,
    left: float = LEFT_S,
) -> None:
    """Run once."""
    process, codes = started(ending, run, said), []

    def ended() -> bool:
        if not codes and (found := os.waitpid(process, os.WNOHANG))[0]:
            codes.append(os.waitstatus_to_exitcode(found[1]))
        return bool(codes)

    def gone() -> bool:
        try:
            os.killpg(process, 0)
        except ProcessLookupError:
            return True
        return False

    tally.runs += 1
    took = until(ended, limit)
    if took is None:
        os.kill(process, signal.SIGUSR1)
        time.sleep(1)
        tally.hung += 1
    tally.longest = max(tally.longest, limit if took is None else took)
    tally.left += took is not None and until(gone, left) is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    until(ended, limit)
    expected = -signal.SIGKILL if ending is killed else 0
    if took is None or codes != [expected]:
        tally.wrong.append(
            f"{ending.__name__}: {codes}: {said.read_text()[-3000:] if said.exists() else ''}"
        )


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--starts", nargs="+", default=["fork", "fork", "forkserver", "spawn"])
    parser.add_argument("--plain", action="store_true", help="workers as PyTorch starts them")
    parser.add_argument("--folder", default=None, help="where to write; removed afterwards")
    asked = parser.parse_args()
    began, tallies = (
        time.perf_counter(),
        {ending.__name__: Tally() for ending in (*ENDINGS, hangs, leaves_one)},
    )
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores
    context = multiprocessing.get_context if asked.plain else worker_context
    multiprocessing.set_forkserver_preload(["torch", "datacheck.torch.dataset"])
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        caches = write(Path(name))
        damaged = Path(shutil.copytree(caches[0], Path(name, "damaged")))
        shard = next(damaged.glob("fields/cloud/c.1.*"))
        shard.chmod(0o600)
        raw = bytearray(shard.read_bytes())
        raw[5] ^= 1
        shard.write_bytes(raw)
        for number in range(asked.count):
            ending = ENDINGS[number % len(ENDINGS)]
            run = Run(
                caches, damaged, random.Random(f"{asked.seed} {number}"), asked.starts, context
            )
            watched(
                ending, run, asked.limit, Path(name, f"said {number}"), tallies[ending.__name__]
            )
        for ending in (hangs, leaves_one):
            run = Run(caches, damaged, random.Random(asked.seed), ["fork"])
            watched(
                ending,
                run,
                6,
                Path(name, f"said {ending.__name__}"),
                tallies[ending.__name__],
                left=3,
            )
    told = tallies.pop("hangs").hung == 1 == tallies.pop("leaves_one").left
    print(f"{'':28}{'runs':>6}{'hung':>6}{'left':>6}{'wrong':>7}{'longest, s':>12}")
    for what, tally in tallies.items():
        cells = (
            f"{tally.runs:6}{tally.hung:6}{tally.left:6}{len(tally.wrong):7}{tally.longest:12.1f}"
        )
        print(f"{what.replace('_', ' '):28}{cells}", *tally.wrong[:3], sep="\n    ")
    print(
        f"controls: a run that hangs and a process that is left were {'' if told else 'not '}told"
    )
    seconds = time.perf_counter() - began
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{seconds:.0f} s"
    )
    return int(
        not told or any(tally.hung or tally.left or tally.wrong for tally in tallies.values())
    )


if __name__ == "__main__":
    sys.exit(main())
