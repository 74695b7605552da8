"""One extreme but well-formed value, count or name in a small sound folder, taken through the whole life of a dataset.

    python scripts/bench/faults/extremes.py [--kind NAME ...] [--extreme PART ...] [--number N]
    [--seed 0] [--keep DIR]

For each kind of data (see extreme_data.py) a sound folder of 16 samples is written, drafted and
scanned. Then one extreme is put into one value, one sample or all samples, and each command runs
over that folder in a process of its own: scan, init and a scan with its draft, baseline, rescore,
view, manifest, diff, split, fix, cache build, verify, info, report, and the samples by
CachedDataset alone and by a DataLoader with one worker.

Wrong is: an exit code that the command does not promise, a traceback, 30 s of processor time, 120 s
by the clock, 500 MB more than at the start, a scan or a build that one odd sample ends, another
verdict for a sound sample, a draft by which a sound sample fails, and a value in the cache that
differs from the reader's by a bit.

`--number` takes so many pairs of kind and extreme, in an order that the seed decides; all of them
by default. Two controls must be told: a command that raises, and one that sleeps. Ends with 1 where
anything was wrong, or a control was not told. A pair that no writer can write is counted as none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))

import documents
from documents import MOST_BYTES, command, forked, imported
from extreme_data import EXTREMES, KINDS, Case, UnfitError, written

from datacheck.errors import DatacheckError, FormatError
from datacheck.repro.sample_digests import items_of
from datacheck.scan import scan
from datacheck.schema.load import load_schema
from datacheck.sources import Unread, list_files, open_source
from datacheck.torch import CachedDataset, collate_ragged
from datacheck.workers import fork_server

SECONDS = 30  # of a processor
CLOCK = 120  # a loaded machine may take several times as long
FIXED = {"DC201", "DC202", "DC105", "DC701", "DC228"}
NONE = re.compile(
    "none of [0-9,]+ |no sample could be made|no sample is fit|too long for the name of a file"
)  # a refusal where all samples are odd
MASKS = ("_is_present", "_is_pad")


# ------------------------------------------------------------------------------------- the commands


class Server:
    """One fork server that all commands share: to start one takes as long as the command that asks for it.

    Args:
        home: an empty folder.
    """

    def __init__(self, home: Path) -> None:
        (home / "warm").mkdir()
        np.save(home / "warm/0.npy", np.zeros(3))
        self._home, self._known = home, vars(fork_server)["_SERVERS"]
        # Who is forked of this one asks it too
        vars(fork_server).update(_key=lambda *_: "one", _close_all=lambda: None)

    def keep(self) -> None:
        """Start it where it does not run, and have children believe that it lives: it is no child of theirs."""
        for server in self._known.values():
            vars(server).pop("poll", None)
        if all(server.poll() is not None for server in self._known.values()):
            self._known.clear()
            shutil.rmtree(self._home / "warmed", ignore_errors=True)
            scan(self._home / "warm", "files", output=self._home / "warmed")
        for server in self._known.values():
            server.poll = lambda: None


@dataclass
class Life:
    """The commands over one folder, in the working folder, and what was wrong with them.

    Args:
        server: that forks the children of the commands.
        log: what the last command printed.
        all_odd: no sample is sound.
        wrong: (command, what was wrong, the end of what it printed).
    """

    server: Server
    log: Path
    all_odd: bool = False
    wrong: list[tuple[str, str, str]] = field(default_factory=list)

    def tried(self, name: str, work: Callable[[], int], allowed: Collection[int]) -> int:
        """Run one command; note what is wrong with it."""
        self.server.keep()
        began = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def limited() -> int:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            return work()

        told = forked(limited, self.log)
        wrong = told.wrong
        if self.all_odd and told.code == 2 and NONE.search(told.text):
            return told.code
        if told.code not in allowed:
            wrong = wrong or f"ended with {told.code}"
        elif wrong.endswith("MB"):
            wrong = ""  # that limit is of the whole process; here it is of what the command adds
        if not wrong and told.nbytes - began > MOST_BYTES:
            wrong = f"{(told.nbytes - began) / 1e6:,.0f} MB more than at the start"
        if wrong:
            self.note(name, wrong, told.text)
        return told.code

    def note(self, name: str, wrong: str, text: str = "") -> None:
        self.wrong.append((name, wrong, text[-700:]))

    def of(self, *args: object, allowed: Collection[int] = (0,), name: str = "") -> int:
        """Run one command line."""
        return self.tried(name or " ".join(map(str, args)), command(*args), allowed)


def verdicts(run: str) -> dict[str, tuple[str, ...]]:
    """Return the codes that each sample of a run fails; of one that was not read its status stands with them."""
    table = pq.read_table(f"{run}/samples.parquet", columns=["key", "status", "codes"]).to_pylist()
    return {row["key"]: (row["status"], *sorted(row["codes"] or [])) for row in table}


def excluded(run: str) -> set[str]:
    return set(json.loads(Path(run, "valid.json").read_text())["excluded"])


def codes(run: str) -> set[str]:
    return {found["rule"] for found in json.loads(Path(run, "result.json").read_text())["findings"]}


# ----------------------------------------------------------------------------------- what is served


def same(served: Any, read: Any) -> bool:
    """Tell whether a value of the cache is that of the reader, in the reader's dtype bit for bit (any NaN is one)."""
    if not isinstance(served, torch.Tensor):
        return (
            str(served) == str(read)
            if isinstance(read, str | np.str_)
            else served == json.loads(json.dumps(read))
        )
    source = np.asarray(read)
    with np.errstate(all="ignore"):
        back = served.numpy().astype(source.dtype)
    nan = (back != back) & (source != source)
    plain = source.dtype.newbyteorder("=")
    return (
        back.shape == source.shape
        and back[~nan].astype(plain).tobytes() == source[~nan].astype(plain).tobytes()
    )


def sources(data: str, schema: str) -> dict[str, dict[str, Any]]:
    """Return the fields of each sample as the reader of its format gives them."""
    asked, root = load_schema(schema), Path(data)
    source, found = open_source(asked, root), {}
    for item in items_of(asked, list_files(root)):
        with contextlib.suppress(FormatError):
            for block in source.read(item):
                if not isinstance(block, Unread):
                    found |= {sample.key: sample.fields for sample in block}
    return found


def loaded(cache: str, data: str, schema: str, workers: int) -> Callable[[], int]:
    """Return a command that reads every sample, and holds them against their sources where there is no worker."""

    def work() -> int:
        for path in sorted(Path(cache).glob("*/*/*/manifest.json")):
            try:
                dataset = CachedDataset(path.parent, on_invalid="keep", windows=False)
                if workers:
                    batches = DataLoader(dataset, 4, num_workers=workers, collate_fn=collate_ragged)
                    assert sum(1 for _ in batches) == len(batches)
                else:
                    compare(dataset, sources(data, schema))
            except DatacheckError as error:
                print(f"{type(error).__name__}: {error}")
                return 0 if not dataset_has_samples(path.parent) else error.exit_code
        return 0

    return work


def dataset_has_samples(path: Path) -> bool:
    from datacheck.cache import open_cache

    return bool(open_cache(path).made.any())


def compare(dataset: CachedDataset, read: dict[str, dict[str, Any]]) -> None:
    """Raise `AssertionError` where a sample of a dataset differs from its source."""
    for index in range(len(dataset)):
        if dataset.substituted(index) != index:  # not made: another one is served in its place
            continue
        key, row = dataset.key(index), dataset[index]
        for name, value in row.items():
            if name in read.get(key, {}) and not name.endswith(MASKS):
                assert same(value, read[key][name]), (
                    f"differs: {key} {name}: {value!r:.200} {read[key][name]!r:.200}"
                )


# ------------------------------------------------------------------------------------------- a life


@dataclass(frozen=True)
class Sound:
    """What is known of the sound folder of a kind: its keys in the order of its samples, and their verdicts."""

    folder: Path
    keys: list[str]
    verdicts: dict[str, tuple[str, ...]]


def sound(kind: str, server: Server, folder: Path) -> Sound:
    """Write, draft and scan the sound folder of a kind; its draft finds nothing wrong with it."""
    folder.mkdir()
    os.chdir(folder)
    written(Case.sound(kind), folder / "sound")
    life = Life(server, folder / "log")
    life.of("init", "sound", "-o", "sound.yaml")
    life.of("scan", "sound", "--schema", "sound.yaml", "--output", "sound_run", "--no-previews")
    if life.wrong:
        msg = f"{kind}: {life.wrong}"
        raise SystemExit(msg)
    found = verdicts("sound_run")
    return Sound(folder, sorted(found), found)


def judged(life: Life, name: str, run: str, given: Sound, exempt: set[str]) -> None:
    """Note each sound sample that a run does not judge as it judged it in the sound folder."""
    if not Path(run, "samples.parquet").exists():
        return
    found = verdicts(run)
    other = [
        key for key in given.keys if key not in exempt and found.get(key) != given.verdicts[key]
    ]
    if other:
        life.note(
            name,
            f"{len(other)} sound samples judged otherwise: {other[0]!r}: {found.get(other[0])}",
        )


def cached(life: Life, schema: str, out: str) -> None:
    """Build, check and read the cache of a schema."""
    if life.of("cache", "build", schema, "--data", "data", "--out", out):
        return
    for what in (["verify", "--values"], ["info"], ["report", "-o", f"{out}.html"]):
        for path in sorted(Path(out).glob("*/*/*/manifest.json")):
            life.of("cache", what[0], path.parent, *what[1:])
    for workers in (0, 1):
        life.tried(f"read {out} with {workers} workers", loaded(out, "data", schema, workers), (0,))


def lived(case: Case, given: Sound, server: Server) -> Life:
    """Run all commands over the folder of a case, in the working folder."""
    life = Life(server, Path("log").absolute(), case.all_odd)
    shutil.copy(given.folder / "sound.yaml", "sound.yaml")
    exempt = {given.keys[i] for i in case.touched()}
    shown = [given.keys[0], given.keys[case.at]]
    scanned = ("scan", "data", "--no-previews", "--output")
    life.of(*scanned, "files", "--schema", "files", allowed=(0, 1))
    first = life.of("scan", "data", "--schema", "sound.yaml", "--output", "run", allowed=(0, 1))
    judged(life, "scan data --schema sound.yaml", "run", given, exempt)
    if Path("run/result.json").exists():
        life.of("baseline", "run", "-o", "baseline.json", "--reason", "known")
        life.of(
            *scanned,
            "based",
            "--schema",
            "sound.yaml",
            "--baseline",
            "baseline.json",
            allowed=(0, 1),
        )
        life.of("rescore", "run", "--output", "again", allowed=(first,))
        for key in shown:
            life.of("view", key, "--run", "run", "--no-open", "--out", "view.html", allowed=(0, 2))
        life.of("split", "run", "--by", "key", "--train", 0.5, "--val", 0.5, "--to", "lists")
        for code in sorted(codes("run") & FIXED):
            life.of(
                "fix",
                code,
                "data",
                "--schema",
                "sound.yaml",
                "--to",
                f"fixed-{code}",
                allowed=(0, 2),
            )
    life.of("manifest", "data", "-o", "manifest.json", "--schema", "sound.yaml", allowed=(0, 1))
    life.of("diff", "data", given.folder / "sound", "--schema", "sound.yaml", allowed=(0, 1))
    if not case.all_odd:
        cached(life, "sound.yaml", "cache")
    if not life.of("init", "data", "-o", "draft.yaml"):
        life.of(*scanned, "drafted", "--schema", "draft.yaml", allowed=(0, 1))
        if Path("drafted/valid.json").exists():
            lost = sorted(excluded("drafted") & (set(given.keys) - exempt))
            if lost:
                life.note(
                    "scan data --schema draft.yaml",
                    f"the draft refuses {len(lost)} sound samples: {lost[0]!r}",
                )
            cached(life, "draft.yaml", "drafted_cache")
    return life


def controls(server: Server, home: Path) -> list[str]:
    """Return which of two planted faults are not told."""

    def raises() -> int:
        raise ZeroDivisionError

    def sleeps() -> int:
        time.sleep(CLOCK)
        return 0

    untold = []
    for name, work in {"raises": raises, "sleeps": sleeps}.items():
        documents.MOST_SECONDS = 2
        life = Life(server, home / "log")
        life.tried(name, work, (0,))
        untold += [] if life.wrong else [name]
    documents.MOST_SECONDS = CLOCK
    return untold


# ---------------------------------------------------------------------------------------------- all


def chosen(asked: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the pairs of kind and extreme that are asked for."""
    pairs = [
        (kind, name)
        for kind in (asked.kind or KINDS)
        for name in EXTREMES
        if not asked.extreme or any(part in name for part in asked.extreme)
    ]
    Random(asked.seed).shuffle(pairs)
    return pairs[: asked.number]


def tried(
    kind: str, name: str, seed: int, given: Sound, server: Server, *, keep: bool
) -> Life | None:
    """Run one pair; return None where it cannot be written."""
    place = Path(tempfile.mkdtemp(dir=given.folder.parent))
    os.chdir(place)
    try:
        case = Case.sound(kind)
        EXTREMES[name](case, Random(f"{kind} {name} {seed}"))
        written(case, place / "data")
    except UnfitError:
        os.chdir(given.folder)
        shutil.rmtree(place, ignore_errors=True)
        return None
    life = lived(case, given, server)
    os.chdir(given.folder)
    if not (keep and life.wrong):
        shutil.rmtree(place, ignore_errors=True)
    return life


def table(done: Counter[tuple[str, str]], bad: Counter[tuple[str, str]]) -> None:
    sorts = list(dict.fromkeys(name.partition(": ")[0] for name in EXTREMES))
    print(f"{'':12}" + "".join(f"{sort:>12}" for sort in sorts))
    for kind in KINDS:
        cells = [
            f"{bad[kind, sort]}/{done[kind, sort]}" if done[kind, sort] else "" for sort in sorts
        ]
        print(f"{kind:12}" + "".join(f"{cell:>12}" for cell in cells))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", nargs="*", choices=KINDS)
    parser.add_argument("--extreme", nargs="*", help="parts of the names of extremes")
    parser.add_argument("--number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep",
        type=Path,
        help="a new folder, where what was wrong stays: the data of a pair, its runs",
    )
    asked = parser.parse_args(argv)
    documents.MOST_SECONDS = CLOCK
    home = (asked.keep or Path(tempfile.mkdtemp(prefix="extremes-"))).resolve()
    home.mkdir(exist_ok=True)
    imported()
    server = Server(home)
    untold = controls(server, home)
    known: dict[str, Sound] = {}
    done, bad, unfit = Counter[tuple[str, str]](), Counter[tuple[str, str]](), 0
    causes = defaultdict[str, list[str]](list)
    for kind, name in chosen(asked):
        if kind not in known:
            known[kind] = sound(kind, server, home / f"sound-{kind}")
        life = tried(kind, name, asked.seed, known[kind], server, keep=bool(asked.keep))
        if life is None:
            unfit += 1
            continue
        cell = kind, name.partition(": ")[0]
        done[cell] += 1
        bad[cell] += bool(life.wrong)
        for what, wrong, text in life.wrong:
            causes[wrong].append(what)
            print(f"{kind}, {name}: {what}: {wrong}", flush=True)
            print(
                f"    python {sys.argv[0]} --kind {kind} --extreme {name!r} --seed {asked.seed}",
                flush=True,
            )
            print("    " + text.strip().replace("\n", "\n    "), flush=True)
    table(done, bad)
    print(
        f"{done.total()} pairs, {bad.total()} wrong; {unfit} cannot be written; untold: "
        f"{', '.join(untold) or 'none'}"
    )
    if not asked.keep:
        shutil.rmtree(home, ignore_errors=True)
    return int(bool(bad.total() or untold))


if __name__ == "__main__":
    sys.exit(main())
