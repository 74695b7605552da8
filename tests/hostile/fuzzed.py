"""The expendable process of the fuzzer: makes mutants of one target and tries them, until its time is over.

    python -m tests.hostile.fuzzed TARGET SEED SECONDS FOLDER [HONEST | --guided]

FOLDER/current is the mutant at hand, FOLDER/failed/NUMBER what failed with the reason in FOLDER/failed/NUMBER.txt,
FOLDER/counts what the others came to. Whoever started it sees to it that it ends.
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

from tests.hostile.mutating import DOCUMENTS, command_ended, corpus, mutant_of, mutate, read_or_refused

MEMORY = 2 << 30  # bytes beyond the start: the files of the corpus have a few kB


def limited() -> None:
    """Allow this process some memory more, and no files beyond a size."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    wanted = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + MEMORY,
        resource.RLIMIT_FSIZE: 1 << 30,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in wanted.items():  # not the hard limits: a command sets its own for its children
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def of_a_format(name: str, rng: random.Random, folder: Path) -> str:
    """Read a new mutant; return how that went."""
    shutil.rmtree(folder / "current", ignore_errors=True)
    (folder / "current").mkdir()
    files = corpus(name)
    good = [path for path in files if path.name.startswith("y_")] or files
    made = mutant_of(rng.choice(good if rng.random() < 0.8 else files), folder / "current", rng, files)
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
        return read_or_refused(mutant)
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


def guided(name: str, seed: int, seconds: float, folder: Path) -> None:
    """Let Atheris choose the mutants of a format, by the branches of the reader that they reach."""
    import atheris

    with atheris.instrument_imports(include=["datacheck.formats"]):
        from datacheck.formats.base import formats
    place = folder / "current" / f"x{formats()[name].suffixes[0]}"

    def read(data: bytes) -> None:
        place.write_bytes(data)
        read_or_refused(place)

    for inner in ("current", "failed", "known"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    for path in corpus(name):
        if path.is_file():
            shutil.copyfile(path, folder / "known" / path.name)
    options = (
        f"-max_total_time={int(seconds)}",
        f"-seed={seed + 1}",
        "-timeout=20",
        "-rss_limit_mb=3000",
        "-verbosity=0",
    )
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/failed/", str(folder / "known")], read)
    atheris.Fuzz()


def main() -> None:
    if sys.argv[5:] == ["--guided"]:
        guided(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
        return
    target, seed, seconds, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    honest = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    rng, counts, until = random.Random(f"{target} {seed}"), Counter[str](), time.monotonic() + seconds
    (folder / "failed").mkdir(parents=True, exist_ok=True)
    limited()
    number = 0
    while time.monotonic() < until:
        number += 1
        try:
            how = of_a_format(target, rng, folder) if honest is None else of_a_document(target, rng, folder, honest)
        except BaseException as error:  # whatever it is, it is what is looked for
            how = "failed"
            kept = folder / "failed" / f"{seed}-{number}"
            with contextlib.suppress(OSError):
                shutil.copytree(folder / "current", kept, symlinks=True)
                kept.with_suffix(".txt").write_text(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        counts[how] += 1
        (folder / "counts").write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
