"""Simulated power losses: is what is published whole, is what was acknowledged there, does the next run go on?

    python scripts/bench/faults/power.py [--random 6] [--reruns 8] [--kills 24] [--stride 1] [--only
    NAME] [--seed 0]

A `System` records what a build does to files, by inode. Between any two of its calls the power
goes, and the disk holds one of the states that a file system with a journal may leave: everything;
what was synced and nothing else; all names and only synced bytes (files without content after a
rename); all bytes and only synced names; and random subsets of the names (each create, rename,
link, unlink a single step, in no order between folders), with each unsynced write there, not there,
cut off or zeros. A sync of a file keeps its bytes, a sync of a folder its names (a rename is kept
by a sync of where it leads), and nothing else does. In every state the folder must show nothing or
the golden cache byte for byte, and the golden cache once the build has returned. Every
`--reruns`-th distinct state is laid out as files, and a plain re-run must complete with the golden
bytes and leave nothing beside them.

Builds: plain; with zstd; killed at a call and run again, the page cache kept, for kills all over a
build; published by another that was killed before it said so; one that lost the race to such
another; in place of a damaged cache; and one that goes on after a first power loss and meets a
second.

Each sync is taken out once: the losses must show it. Ends with 1 where anything was wrong, or a
sync was not missed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

from disk import KINDS, Disk, Log, Recorder, Tree
from subject import (
    MEMORY,
    KilledError,
    Subject,
    again,
    build_json_left_out,
    machine,
    subject,
    write,
)

from datacheck.build import publish
from datacheck.runtime import fsops

# ------------------------------------------------------------------------------------------- trials


@dataclass
class Tally:
    """What came of the losses of one build."""

    states: int = 0
    distinct: int = 0
    nothing: int = 0
    right: int = 0
    reruns: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Losses:
    """Loses the power in builds of one subject.

    Args:
        one: what is built; every log is of the folder ``top`` with the caches in ``top/new/out``.
        place: where trees are laid out.
        extra: random states between two calls.
        reruns: run again from every so many distinct states; 0: from none.
        stride: lose it after every so many calls only.
        seed: of everything random.
    """

    one: Subject
    place: Path
    extra: int = 6
    reruns: int = 8
    stride: int = 1
    seed: int = 0
    seen: set[bytes] = field(default_factory=set)
    OUT = Path("new/out")

    def lose(
        self, name: str, log: Log, first: int = 0, stride: int = 1, damaged: bytes = b""
    ) -> Tally:
        """Lose the power after every `stride`-th step of a log from `first` on, and after each of the last 40.

        Args:
            name: of the build.
            log: what it did.
            first, stride: which steps.
            damaged: the manifest of a cache that may be seen until the build returns.
        """
        tally, disk = Tally(), Disk(replaced(log))
        last = len(log.steps)
        for point in range(last + 1):
            if point:
                disk.do(log.steps[point - 1])
            if point < first or (
                (point - first) % (stride * self.stride) and point < last - 40 // self.stride
            ):
                continue
            more = self.extra * (10 if point == last else 1)
            for number, (names, content) in enumerate(
                [(1, 1), (0, 0), (1, 0), (0, 1), *[(None, None)] * more]
            ):
                rng = random.Random(f"{self.seed} {name} {point} {number}")
                shares = [
                    rng.choice((0.1, 0.5, 0.9)) if share is None else share
                    for share in (names, content)
                ]
                tree = disk.after(*shares, rng)
                self._judge(
                    tally,
                    tree,
                    f"{name}, step {point} of {last}, state {number}",
                    disk.returned,
                    damaged,
                )
        return tally

    def _judge(self, tally: Tally, tree: Tree, where: str, returned: bool, damaged: bytes) -> None:  # noqa: FBT001
        tally.states += 1
        shown = self.shown(tree, damaged)
        tally.nothing += shown in {"nothing", "the damaged one"}
        tally.right += shown == "right"
        if shown not in {"nothing", "right", "the damaged one"}:
            tally.wrong.append(f"{where}: {shown}")
        elif returned and shown != "right":
            tally.wrong.append(f"{where}: it was acknowledged, and the disk shows {shown}")
        if self.reruns and (digest := tree.digest()) not in self.seen:
            self.seen.add(digest)
            tally.distinct += 1
            if tally.distinct % self.reruns == 0:
                tally.reruns += 1
                with self.laid_out(tree) as top:
                    wrong = again(self.one, top / self.OUT, {".trash"} if damaged else set())
                tally.wrong += [f"{where}: {wrong}"] if wrong else []

    def shown(self, tree: Tree, damaged: bytes = b"") -> str:
        """Return what a tree shows, as `Subject.shown`."""
        folder = tree.folder(self.one.place(self.OUT))
        names = (
            [name for name in tree.names.get(folder, {}) if not name.startswith(".")]
            if folder is not None
            else []
        )
        if not names:
            return "nothing"
        found = tree.contents(tree.names[folder][self.one.key]) if names == [self.one.key] else {}
        if build_json_left_out(found) == self.one.golden:
            return "right"
        if damaged and found.get("manifest.json") == damaged:
            return "the damaged one"
        differing = [
            path
            for path in {**found, **self.one.golden}
            if found.get(path) != self.one.golden.get(path)
        ]
        return f"wrong: {names}, {len(differing)} paths differ, such as {sorted(differing)[:3]}"

    @contextlib.contextmanager
    def laid_out(self, tree: Tree | None = None) -> Iterator[Path]:
        """Hold a tree as files; None: an empty one."""
        with tempfile.TemporaryDirectory(dir=self.place) as name:
            if tree is not None:
                tree.laid_out(Path(name))
            yield Path(name)

    # -------------------------------------------------------------------------------------- builds

    def recorder(self, top: Path, without: str = "") -> Recorder:
        """Return what records a build in a folder."""
        return Recorder(top, without, self.one.place(top / self.OUT))

    def build(self, recorder: Recorder, dies: int = 0) -> None:
        """Build to the end, or until it dies."""
        recorder.dies(dies)
        with contextlib.suppress(KilledError):
            self.one.build(recorder.top / self.OUT, recorder)
            recorder.log.steps.append(("returned",))

    def whole(self, without: str = "") -> Recorder:
        """Record a build from nothing."""
        with self.laid_out() as top:
            recorder = self.recorder(top, without)
            self.build(recorder)
        return recorder

    def killed(self, at: int, without: str = "") -> tuple[Log, int]:
        """Record a build that is killed at a change, and the one that goes on; return where the second begins."""
        with self.laid_out() as top:
            recorder = self.recorder(top, without)
            self.build(recorder, at)
            first = len(recorder.log.steps)
            self.build(recorder)
        return recorder.log, first

    def raced(self) -> Log:
        """Record a build that finds at its rename the cache of another, which was killed before it synced the name."""
        with self.laid_out() as top:
            recorder, target = self.recorder(top), self.one.place(top / self.OUT) / self.one.key
            real = publish.publish

            def other(*arguments: object) -> str:
                with (
                    patch.object(publish, "publish", real),
                    patch.object(recorder, "sync", stop(recorder, target)),
                ):
                    self.build(recorder)
                if not target.exists():
                    msg = "the other build did not publish"
                    raise SystemExit(msg)
                return real(*arguments)

            with patch.object(publish, "publish", other):
                self.build(recorder)
        return recorder.log

    def over_damage(self) -> tuple[Log, bytes]:
        """Record a build in place of a damaged cache; return also that one's manifest."""
        with self.laid_out() as top:
            cache = self.one.build(top / self.OUT).path
            (cache / "manifest.json").chmod(0o644)
            damaged = (cache / "manifest.json").read_bytes()[:-9]
            (cache / "manifest.json").write_bytes(damaged)
            recorder = self.recorder(top)
            self.build(recorder)
        return recorder.log, damaged

    def twice(self, log: Log, rng: random.Random) -> Log:
        """Record a build that goes on after a power loss somewhere in another."""
        disk, point = Disk(replaced(log)), rng.randrange(len(log.steps) // 8, len(log.steps))
        for step in log.steps[:point]:
            disk.do(step)
        with self.laid_out(disk.after(0.9, 0.5, rng)) as top:
            recorder = self.recorder(top)
            self.build(recorder)
        return recorder.log


def stop(recorder: Recorder, target: Path) -> Callable[[int], None]:
    """Return a sync that kills who calls it once a cache is published."""
    real = recorder.sync

    def sync(descriptor: int) -> None:
        if target.exists():
            raise KilledError
        real(descriptor)

    return sync


def replaced(log: Log) -> Log:
    """Return a log whose base a `Disk` may change."""
    return Log(log.names, log.content, dict(log.modes), log.steps)


def trials(losses: Losses, packed: Losses, kills: int) -> Iterator[tuple[str, Callable[[], Tally]]]:
    """Yield the builds and what loses the power in them."""
    rng = random.Random(losses.seed)
    whole = losses.whole().log
    yield "plain", lambda: losses.lose("plain", whole)
    yield "zstd", lambda: packed.lose("zstd", packed.whole().log)
    changes = sum(step[0] != "returned" for step in whole.steps)
    early, late = [*range(1, 17)], [*range(changes - 24, changes - 8)]
    some = sorted({*early, *late, *(rng.randrange(17, changes - 24) for _ in range(kills))})
    some = some[:: max(1, round(len(some) / (kills * 2)))] if kills < 16 else some

    def all_killed() -> Tally:
        return added(losses.lose(f"killed at {at}", *losses.killed(at), stride=16) for at in some)

    yield "killed, run again", all_killed
    yield ("lost the race to a killed one", lambda: losses.lose("raced", losses.raced(), stride=8))
    yield (
        "over a damaged cache",
        lambda: losses.lose("over", *(m := losses.over_damage())[:1], stride=8, damaged=m[1]),
    )
    yield (
        "lost power before",
        lambda: added(
            losses.lose(
                f"twice {n}", losses.twice(whole, random.Random(f"{losses.seed} {n}")), stride=16
            )
            for n in range(kills)
        ),
    )


def added(tallies: Iterator[Tally]) -> Tally:
    """Return tallies as one."""
    whole = Tally()
    for one in tallies:
        for name, value in vars(one).items():
            setattr(whole, name, getattr(whole, name) + value)
    return whole


FOUND = "the name of a folder that was there"


def control(losses: Losses, without: str) -> Tally:
    """Lose the power in builds whose disk does not take one kind of sync."""
    if without != FOUND:
        return losses.lose(without, losses.whole(without).log, stride=16)
    # Missed where who made the folder was killed before it
    with patch.object(fsops, "_sync_name", lambda _: None):
        return added(
            losses.lose(f"{without} {at}", *losses.killed(at), stride=64) for at in (2, 3, 4, 5, 6)
        )


HEAD = ("states", "nothing", "right", "distinct", "reruns", "wrong")


def line(name: str, tally: Tally) -> None:
    """Print what came of the losses of one build."""
    cells = [len(tally.wrong) if what == "wrong" else getattr(tally, what) for what in HEAD]
    print(f"{name:44}" + "".join(f"{cell:>9,}" for cell in cells), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run all trials; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--random", type=int, default=6, help="random states between two calls")
    parser.add_argument(
        "--reruns", type=int, default=8, help="run again from every so many distinct states"
    )
    parser.add_argument(
        "--kills", type=int, default=24, help="builds killed, and builds that lost power, before"
    )
    parser.add_argument(
        "--stride", type=int, default=1, help="lose the power after every so many calls only"
    )
    parser.add_argument("--only", default="", help="part of the name of a row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=MEMORY, help="where to write; removed afterwards")
    asked = parser.parse_args(arguments)
    start, whole, unmissed = time.perf_counter(), Tally(), []
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place = Path(name)
        write(place)
        options = (place, asked.random, asked.reruns, asked.stride, asked.seed)
        losses = Losses(subject(place), *options)
        packed = Losses(subject(place, "zstd"), *options)
        print(f"{'':44}" + "".join(f"{what:>9}" for what in HEAD))
        for what, trial in trials(losses, packed, asked.kills):
            if asked.only in what:
                tally = trial()
                line(what, tally)
                print(
                    *(f"    {wrong}" for wrong in tally.wrong[:8]),
                    sep="\n",
                    end="\n" if tally.wrong else "",
                )
                whole = added(iter([whole, tally]))
        line("all", whole)
        losses.reruns = 0
        for without, needed in (KINDS | {FOUND: True}).items():
            if asked.only in without:
                tally = control(losses, without)
                line(f"control: without {without}", tally)
                unmissed += [without] if bool(tally.wrong) != needed else []
        known = losses.whole().kinds
    print(
        *(
            f"{one}: {'needed' if KINDS.get(one, True) else 'not needed'}, yet it was not so\n"
            for one in unmissed
        ),
        end="",
    )
    print(machine(time.perf_counter() - start))
    return int(bool(whole.wrong or unmissed or known - KINDS.keys()))


if __name__ == "__main__":
    sys.exit(main())
