"""Damaged documents, read by every command: none ends in an internal error, hangs, or takes much memory.

    python scripts/bench/faults/documents.py [--number 2000] [--seed 0] [--rare 10] [--only NAME]
    [--folder DIR]

A small scan, its baseline, a manifest and two recorded runs are made. Then, `--number` times, one
of their documents is damaged (bits, values, types, shapes, a pipe or a sparse file in its place
..., see damage.py) and read by every command that reads such a document, each in a process of its
own that shares what this one has imported. `view` and `scan`, which start children, are tried after
each `--rare`-th damage.

Each must end with 0, 1, 2, 3 or 7, without a traceback, in less than 30 s and with less than 500
MB, and must not have imported the module that some of the damaged schemas name. Three controls must
be told: a command that ends with 4, one that takes 600 MB, and one that waits for a pipe. A seed
repeats its damage: --seed S --number 1. Ends with 1 where anything was wrong, or a control was not
told.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from damage import BYTES, JSON, LINES, NPZ, PARQUET, PLACES, YAML, Damage, copied

from datacheck.cli.main import run as run_command
from datacheck.errors import DatacheckError
from datacheck.plugins import resolve
from datacheck.preview.run_previews import write_previews
from datacheck.report.html import write_page
from datacheck.scan import scan
from datacheck.scan.row_reuse import interrupted_run
from datacheck.scan.run_dir import Journal, RunLocation
from datacheck.scan.run_state import read_state
from datacheck.schema.load import parse_schema

ALLOWED = {0, 1, 2, 3, 7}
MOST_BYTES, MOST_SECONDS = 500_000_000, 30
_SPACE = 2 << 30  # of addresses, beyond what the process has

SCHEMA = """datacheck: 1
name: hands
samples: {files: "{id}.npy"}
fields: {x: {role: joints, shape: [21, 3], unit: m, range: -1..1}}
"""

RUN = {  # documents of a run, and how they are damaged
    "result.json": JSON,
    "valid.json": JSON,
    "previews.json": JSON,
    "listing.npz": NPZ,
    "samples.parquet": PARQUET,
    "schema.yaml": YAML,
}
NEEDED = [
    "pyarrow.parquet",
    "datacheck.cli.main",
    "datacheck.cli.finished_run",
    "datacheck.cli.card",
    "datacheck.preview.single",
    "datacheck.preview.run_previews",
    "datacheck.repro.compare",
    "datacheck.repro.run_diff",
    "datacheck.report.croissant",
    "datacheck.report.exports.badge",
    "datacheck.report.exports.github",
    "datacheck.report.exports.junit",
    "datacheck.report.exports.sarif",
    "datacheck.report.html",
    "datacheck.report.text",
    "datacheck.scan",
    "datacheck.scan.rescore",
    "datacheck.scan.split",
]
PART = "part-00000000"  # of an interrupted scan
RECORDED = {"env.json": JSON, "config.json": JSON, "trace-00000.jsonl": LINES}


DOCUMENTS: dict[str, Sequence[Damage]] = {
    **RUN,
    **RECORDED,
    "manifest.json": JSON,
    "baseline.json": JSON,
    PART: BYTES,
}


@dataclass(frozen=True)
class Told:
    """What became of one command.

    Args:
        code: exit code; below 0 the signal that ended it.
        text: what it printed.
        nbytes: of memory, at most.
        seconds: it took.
    """

    code: int
    text: str
    nbytes: int
    seconds: float

    @property
    def wrong(self) -> str:
        """What is wrong with that, "" for nothing."""
        if self.code == -signal.SIGALRM:
            return f"no end after {MOST_SECONDS} s"
        if self.code not in ALLOWED:
            return f"ended with {self.code}"
        if "Traceback" in self.text or "internal error" in self.text:
            return "a traceback"
        if self.nbytes > MOST_BYTES:
            return f"{self.nbytes / 1e6:,.0f} MB"
        return ""


def forked(work: Callable[[], int], log: Path) -> Told:
    """Return what becomes of a function that runs in a process of its own."""
    began = time.monotonic()
    if (child := os.fork()) == 0:
        code = 4
        with contextlib.suppress(BaseException):
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(MOST_SECONDS)
            held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            # Children have their own
            resource.setrlimit(resource.RLIMIT_AS, (held + _SPACE, resource.RLIM_INFINITY))
            try:
                code = work()
            except BaseException as error:  # noqa: BLE001  what a command lets through is what is looked for
                os.write(2, f"Traceback: {type(error).__name__}: {error}".encode())
            sys.stdout.flush()
        os._exit(code)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    text = log.read_bytes().decode(errors="replace") if log.exists() else ""
    return Told(code, text, used.ru_maxrss * 1024, time.monotonic() - began)


def command(*args: object) -> Callable[[], int]:
    def work() -> int:
        return run_command([str(arg) for arg in args])

    return work


def journal() -> Journal:
    return Journal(RunLocation(Path("journal"), "some"), "key")


def parts() -> int:
    """Read what an interrupted scan has left."""
    held = journal()
    with held.held():
        past = interrupted_run(held, Path("data"), parse_schema(SCHEMA))
    return 0 if past is None else len(list(past.table.keys)) * 0


def part() -> int:
    """Leave what an interrupted scan leaves."""
    past, held = read_state(Path("whole")), journal()
    items = [[path, split, list(files)] for (path, split), files in past.items.items()]
    with held.held():
        held.add(
            {
                "table": past.table.as_wire(),
                "items": items,
                "entries": list(past.listing.entries),
                "undeclared": [],
            }
        )
    return 0


def part_file(folder: Path) -> Path:
    """Return the part of the interrupted scan."""
    return next((folder / "journal").glob(f".work-some.*/{PART}"))


def page(folder: Path) -> int:
    try:
        write_page(folder)
    except DatacheckError as error:
        return error.exit_code
    return 0


# ------------------------------------------------------------------------------------- what is read


def scanned() -> int:
    """Scan with a reference, and draw however long it takes."""
    run = scan("data", "hands.yaml", reference=Path("reference"), output=Path("whole"))
    write_previews(run, 100.0)
    write_page(run)
    return run.report.exit_code


class Subject:
    """Sound documents in a folder, from which damaged copies are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        for name in ("data", "other"):
            (folder / name).mkdir(parents=True)
            for number in range(12):
                hand = rng.normal(size=(21, 3)).astype("f4") * (40 if number == 3 else 0.05)
                np.save(folder / name / f"{number:03d}.npy", hand)
        (folder / "hands.yaml").write_text(SCHEMA)
        (folder / "canary.py").write_text(
            "import pathlib\npathlib.Path('BURNT').touch()\ndef touch(sample): ...\n"
        )
        os.chdir(folder)
        made = [
            ["scan", "other", "--schema", "hands.yaml", "--output", "reference"],
            ["baseline", "whole", "-o", "baseline.json"],
            ["manifest", "data", "-o", "manifest.json", "--schema", "hands.yaml"],
        ]
        sys.path.insert(0, str(folder))  # so that whoever imports the module, does
        for work in (command(*made[0]), scanned, *(command(*args) for args in made[1:]), part):
            told = forked(work, folder / "log")
            if told.code not in {0, 1}:
                raise SystemExit(told.text)
        for name in ("one", "two"):
            record(folder / name)
        self.part_path = part_file(folder)
        self.part = self.part_path.read_bytes()

    def copy(self, name: str) -> Path:
        """Return a document that may be damaged, among sound ones."""
        if name in RUN or name in RECORDED:
            source, goal = ("whole", "damaged") if name in RUN else ("one", "recorded")
            copied(self.folder / source, self.folder / goal)
            path = self.folder / goal / name
        else:
            path = self.part_path if name == PART else self.folder / "damaged.json"
            _removed(path)
            path.write_bytes(self.part if name == PART else (self.folder / name).read_bytes())
        path.chmod(0o644)
        return path

    def tries(self, name: str, *, rare: bool) -> Iterator[tuple[str, Callable[[], int]]]:
        """Yield commands that read a document, by their names."""
        scan = ("scan", "data", "--schema", "hands.yaml", "--output")
        if name in RECORDED:
            yield "repro diff", command("repro", "diff", "recorded", "two")
            yield "repro diff json", command("repro", "diff", "recorded", "two", "--format", "json")
            yield "diff", command("diff", "two", "recorded")
        elif name == "manifest.json":
            yield "diff manifests", command("diff", "damaged.json", "manifest.json")
            yield "diff data", command("diff", "data", "damaged.json")
            yield "manifest -o", command("manifest", "data", "-o", "damaged.json")
        elif name == "baseline.json":
            yield (
                "rescore --baseline",
                command("rescore", "whole", "--baseline", "damaged.json", "--output", "made"),
            )
        elif name == PART:
            yield "parts", parts
        else:
            yield from self._tries_of_run("damaged")
            if rare:
                yield (
                    "view",
                    command(
                        "view", "003.npy", "--run", "damaged", "--no-open", "--out", "view.html"
                    ),
                )
                yield "scan --reference", command(*scan, "made", "--reference", "damaged")
                yield "scan", command(*scan, "damaged")

    def _tries_of_run(self, run: str) -> Iterator[tuple[str, Callable[[], int]]]:
        for form in ("text", "json", "sarif", "junit", "github"):
            yield (
                f"report {form}",
                command("report", run, "--format", form, "--badge", "badge.json"),
            )
        yield "rescore", command("rescore", run, "--output", "made")
        yield (
            "rescore --schema",
            command("rescore", run, "--schema", "hands.yaml", "--output", "made"),
        )
        yield (
            "rescore --reference",
            command("rescore", "whole", "--reference", run, "--output", "made"),
        )
        yield "baseline", command("baseline", run, "-o", "made.json")
        yield "card", command("card", run)
        yield (
            "split",
            command("split", run, "--by", "id", "--train", 0.5, "--val", 0.5, "--to", "lists"),
        )
        yield "page", lambda: page(Path(run))


def record(folder: Path) -> None:
    """Write a recorded run as a Recorder does."""
    folder.mkdir()
    env = {
        "code": {"a.py": "c0"},
        "packages": {"numpy": "2.0"},
        "native": {},
        "data": {"a": "d0"},
        "torch": {},
        "switches": {"cudnn": True},
    }
    (folder / "env.json").write_text(json.dumps(env))
    (folder / "config.json").write_text(
        json.dumps({"version": 1, "config": {"lr": 0.1, "model": {"layers": [1, 2]}}})
    )
    start = {
        "kind": "start",
        "version": 1,
        "rank": 0,
        "world": 1,
        "every": 1,
        "first": 0,
        "hyper": [{"lr": 0.1}],
        "weights": {"w": "w0"},
        "optimizer": ["o0"],
        "kinds": ["SGD"],
    }
    lines = [start, {"kind": "loader", "samples": 40}]
    for number in range(20):
        line = {"kind": "step", "step": number, "epoch": 0, "samples": 4, "updates": 1, "lr": [0.1]}
        line |= {
            name: f"{name} {number}"
            for name in ("indices", "input", "grads", "params", "optimizer")
        }
        lines.append(
            line
            | {
                "loss": float(number).hex(),
                "grad_norm": (0.5).hex(),
                "random": {"torch": f"r{number}"},
            }
        )
    lines += [
        {
            "kind": "eval",
            "name": "val",
            "step": 9,
            "epoch": 0,
            "values": {"acc": (0.5).hex()},
            "seen": 10,
            "of": 10,
        },
        {"kind": "epoch", "epoch": 0},
        {"kind": "note", "said": "a note"},
        {"kind": "end", "step": 20, "status": "done"},
    ]
    (folder / "trace-00000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


# --------------------------------------------------------------------------------------- the trials


@dataclass(frozen=True)
class Fault:
    """What went wrong, and the seed that repeats it."""

    seed: int
    document: str
    damage: str
    command: str
    wrong: str
    text: str


def trial(
    subject: Subject, seed: int, only: str = "", *, rare: bool
) -> tuple[list[Fault], Counter[int]]:
    """Damage one document, let all commands read it, return what went wrong and the exit codes."""
    rng = Random(seed)
    name = only or rng.choice([*RUN, *DOCUMENTS])  # those of a run twice as often
    path = subject.copy(name)
    damage = rng.choice(DOCUMENTS[name] if rng.random() < 0.8 else PLACES)
    said = f"{damage.__name__}: {damage(path, rng)}"
    faults, codes = [], Counter[int]()
    for what, work in subject.tries(name, rare=rare):
        for left in ("made.json", "badge.json", "view.html", "made", "lists"):
            _removed(Path(left))
        told = forked(work, subject.folder / "log")
        codes[told.code] += 1
        wrong = told.wrong or (
            "the module that it names was imported" if Path("BURNT").exists() else ""
        )
        Path("BURNT").unlink(missing_ok=True)
        if wrong:
            faults.append(Fault(seed, name, said, what, wrong, told.text[-600:]))
    return faults, codes


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def controls(folder: Path) -> list[str]:
    """Return which of three planted faults are not told."""

    def waits() -> int:
        os.mkfifo(folder / "pipe")
        signal.alarm(1)
        return len((folder / "pipe").read_bytes())

    planted: dict[str, Callable[[], int]] = {
        "ends with 4": lambda: 4,
        "takes 600 MB": lambda: int(np.ones(600_000_000, np.uint8)[0]) - 1,
        "waits": waits,
    }
    return [name for name, work in planted.items() if not forked(work, folder / "log").wrong]


def imported() -> None:
    """Import what the commands need, so that a process that is forked has it."""
    for name in NEEDED:
        resolve(name)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rare", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(argv)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="documents-", dir=asked.folder) as made:
        try:
            imported()
            subject = Subject(Path(made).resolve())
            untold = controls(subject.folder)
            faults: list[Fault] = []
            codes: Counter[int] = Counter()
            for seed in range(asked.seed, asked.seed + asked.number):
                found, ended = trial(subject, seed, asked.only, rare=seed % asked.rare == 0)
                codes += ended
                for fault in found:
                    print(
                        f"seed {fault.seed}: {fault.document}, {fault.damage}: {fault.command}: "
                        f"{fault.wrong}",
                        flush=True,
                    )
                    print("    " + fault.text.strip().replace("\n", "\n    "), flush=True)
                faults += found
        finally:
            os.chdir(here)
    last, ended = asked.seed + asked.number - 1, dict(sorted(codes.items()))
    print(f"seeds {asked.seed} to {last}: {codes.total():,} commands, exit codes {ended}")
    print(f"{len(faults)} wrong; controls not told: {', '.join(untold) or 'none'}")
    return int(bool(faults or untold))


if __name__ == "__main__":
    sys.exit(main())
