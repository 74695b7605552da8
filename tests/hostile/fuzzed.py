"""The expendable process of the fuzzer: makes mutants of one target and tries them, until its time is over.

    python -m tests.hostile.fuzzed TARGET SEED SECONDS FOLDER [HONEST]

FOLDER/current is the mutant at hand, FOLDER/failed/NUMBER what failed with the reason in
FOLDER/failed/NUMBER.txt, FOLDER/counts what the others came to. Whoever started it sees to it that
it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.hostile.mutating import (
    DOCUMENTS,
    command_ended,
    corpus,
    mutant_of,
    mutate,
    read_or_refused,
)

MEMORY = 2 << 30  # bytes of address space beyond the start
TAKEN = 800 << 10  # kB of memory in all: the files of the corpus have a few kB


def limited() -> None:
    """Allow this process some memory more, and no files beyond a size."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    wanted = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + MEMORY,
        resource.RLIMIT_FSIZE: 1 << 30,
        resource.RLIMIT_CORE: 0,
    }
    for (
        kind,
        most,
    ) in wanted.items():  # not the hard limits: a command sets its own for its children
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def check_memory() -> None:
    """Raise where this process has ever taken more than files as small as these need."""
    status = Path(
        "/proc/self/status"
    ).read_text()  # ru_maxrss begins with what the process had that started this one
    taken = int(status.partition("VmHWM:")[2].split()[0])
    assert taken < TAKEN, f"took {taken:,} kB of memory"


def of_a_format(name: str, rng: random.Random, folder: Path) -> str:
    """Read a new mutant; return how that went."""
    shutil.rmtree(folder / "current", ignore_errors=True)
    (folder / "current").mkdir()
    files = corpus(name)
    good = [path for path in files if path.name.startswith("y_")] or files
    made = mutant_of(
        rng.choice(good if rng.random() < 0.8 else files), folder / "current", rng, files
    )
    return read_or_refused(made)


def of_a_document(name: str, rng: random.Random, folder: Path, honest: Path) -> str:
    """Let commands read a place in which one document is a mutant."""
    from datacheck.cli.main import run

    place = folder / "current"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(honest, place, symlinks=True)
    pattern, commands = DOCUMENTS[name]
    files = sorted(path for path in place.glob(pattern) if path.is_file())
    one = rng.choice(files)
    one.write_bytes(mutate(one.read_bytes(), rng, [rng.choice(files).read_bytes()]))
    os.chdir(place)
    return " ".join(command_ended(words, run) for words in commands)


def again(target: str, mutant: Path, folder: Path, honest: Path | None) -> str:
    """Try a mutant that was kept: a file or folder of a format, or what stands in the place of one document."""
    from datacheck.cli.main import run

    limited()
    if honest is None:
        how = read_or_refused(mutant)
        check_memory()
        return how
    place = folder / "current"
    shutil.copytree(honest, place, symlinks=True)
    kept = next(path for path in sorted(mutant.rglob("*")) if path.is_file())
    name = kept.relative_to(mutant)
    goal = place / name
    if not goal.exists():  # its name has a digest or a time in it
        pattern, _ = DOCUMENTS[target]
        goal = next(path for path in sorted(place.glob(pattern)) if path.name == name.name)
    shutil.copyfile(kept, goal)
    os.chdir(place)
    return " ".join(command_ended(words, run) for words in DOCUMENTS[target][1])


def main() -> None:
    target, seed, seconds, folder = (
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
    honest = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    rng, counts, until = (
        random.Random(f"{target} {seed}"),
        Counter[str](),
        time.monotonic() + seconds,
    )
    (folder / "failed").mkdir(parents=True, exist_ok=True)
    limited()
    number = 0
    while time.monotonic() < until:
        number += 1
        try:
            how = (
                of_a_format(target, rng, folder)
                if honest is None
                else of_a_document(target, rng, folder, honest)
            )
            check_memory()
        except BaseException as error:  # whatever it is, it is what is looked for
            how = "failed"
            kept = folder / "failed" / f"{seed}-{number}"
            with contextlib.suppress(OSError):
                shutil.copytree(folder / "current", kept, symlinks=True)
                kept.with_suffix(".txt").write_text(
                    f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
                )
            # Known for ever
            until = until if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < TAKEN else 0.0
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        counts[how] += 1
        (folder / "counts").write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
