"""Damaged and hostile documents of caches: does every command that reads one end as promised, soon, in little memory?

    python scripts/bench/faults/cache_documents.py [--count 1000] [--seed 0]
                                                   [--only KIND | --each] [--actions NAME,...]
                                                   [--seconds 30] [--folder DIR]

A real build of clouds, images, episodes and texts is made twice (plain and compressed, with an
older cache beside it). Each mutation changes one file of a copy: bits, bytes, its length, a value
of its JSON, or what lies in its place (a pipe, a folder, a device, a link, a sparse file of 1 TB).
Half of those that change bytes are sealed: digests and manifest fit, as those of an attacker would.
Then every reading command and CachedDataset run on it, each in a process of its own that may take
30 s and 500 MB more than it began with; on every tenth also those that need the data.

Allowed are the exit codes 0, 1, 2, 3 and 7 (of `repair` also 6), and exceptions of
datacheck.errors; `ls`, `gc` and `verify` must also name the cache beside it. What lies in a file's
place is refused by all that read the file. Controls (an error of Python's, a process that hangs,
one that takes too much, one that dies) must be told. Ends with 1 where anything was not as it must
be. The seed of a mutation is printed with it: `--seed N --count 1` makes it again
(after `--each` with `--only KIND`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from datacheck.cache import layout, open_cache
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.store import open_store
from datacheck.cli.main import run
from datacheck.errors import DatacheckError
from datacheck.pipeline import build
from datacheck.runtime.hashing import digest64, digest_bytes
from datacheck.schema.model import Schema
from datacheck.torch import CachedDataset

SECONDS, BYTES = 30.0, 500 << 20
ALLOWED = frozenset({0, 1, 2, 3, 7})
WITH_DATA = 10  # of so many mutations one is also read by what needs the sources
SCHEMA = """\
datacheck: 1
name: small
samples: {files: "*.npz"}
windows: {length: 2, pad: edge, short: pad}
fields:
  cloud: {role: points, shape: [P, 3], dtype: float32, unit: m}
  image: {role: value, shape: [64, 64], dtype: uint8}
  action: {role: action, shape: [T, 2], dtype: float32}
  say: {role: text, optional: true}
  more: {role: value, shape: [], dtype: int64}
"""


def make(place: Path) -> list[Path]:
    """Build a plain and a compressed cache of nine samples, each with an older one beside it; return the newer two."""
    rng, data = np.random.Generator(np.random.Philox(0)), place / "data"
    data.mkdir(parents=True)
    (place / "schema.yaml").write_text(SCHEMA)
    for i in range(9):
        write_sample(data, i, rng)
    schema = Schema.model_validate(yaml.safe_load(SCHEMA))
    usual, layout.SHARD_BYTES = layout.SHARD_BYTES, 1 << 14
    try:
        for compress in ("none", "zstd"):
            build(schema, data, place / compress, workers=1, compress=compress)
        write_sample(data, 9, rng)
        (data / "010.npz").write_bytes(b"PK\x03\x04 no archive")
        made = [
            build(schema, data, place / c, workers=1, compress=c)[0].path for c in ("none", "zstd")
        ]
    finally:
        layout.SHARD_BYTES = usual
    for path in place.rglob("*"):
        path.chmod(path.stat().st_mode | 0o200)
    return made


def write_sample(data: Path, i: int, rng: np.random.Generator) -> None:
    """Write one source file."""
    sample = {
        "cloud": rng.standard_normal((int(rng.integers(1, 90)), 3)).astype(np.float32),
        "image": rng.integers(0, 255, (64, 64)).astype(np.uint8),
        "action": rng.random((int(rng.integers(1, 6)), 2)).astype(np.float32),
        "more": np.int64(i),
    }
    if i % 3:
        sample["say"] = np.array(f"sample {i}")
    np.savez(data / f"{i:03d}.npz", **sample)


# ---------------------------------------------------------------------------------------- mutations


@dataclass
class Mutation:
    """What was done to a cache.

    Args:
        kind: a word for it.
        file: the file of the cache.
        replaced: whether something else than a file of that size lies there now: all who read it
            must refuse it.
    """

    kind: str
    file: str
    replaced: bool = False

    def __str__(self) -> str:
        return f"{self.kind} of {self.file}"


DEEP: Any = 1
for _ in range(500):
    DEEP = [DEEP]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2**31,
    2**40,
    2**62,
    2**63,
    2**64,
    10**400,
    0.5,
    5.0,
    1e300,
    -1e-300,
    "",
    "5",
    "\ud800",
    "../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "x" * 1_000_000,
    "\x1b[2J",
    [],
    {},
    [[]],
    [1, 2],
    {"a": {}},
    DEEP,
    [0] * 100_000,
    [{}] * 100_000,
    {str(i): 0 for i in range(50_000)},
]
CODECS: list[Any] = [
    [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": name, "configuration": configuration},
    ]
    for name, configuration in [
        ("gzip", {"level": 5}),
        ("blosc", {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0}),
        ("numcodecs.bz2", {"level": 1}),
        ("numcodecs.lzma", {"preset": 1}),
        ("numcodecs.pickle", {}),
        ("zstd", {"level": 3, "checksum": False}),
        ("zstd", {"level": 3, "checksum": True}),
        ("crc32c", {}),
        ("transpose", {"order": [0]}),
        ("sharding_indexed", {"chunk_shape": [1], "codecs": [], "index_codecs": []}),
    ]
]


def mutated(cache: Path, rng: random.Random, only: str | None) -> Mutation:
    """Change one file of a cache."""
    files = [path for path, _ in open_store(cache).files()]
    documents = [path for path in files if path.endswith(".json")]
    top = [path for path in documents if "/" not in path]
    any_file = documents if only in {"value", "key"} else files
    file = rng.choice(rng.choice([any_file, documents, top, ["manifest.json"]]))
    kinds = [
        name
        for name in KINDS
        if only in {None, name} and (file in documents or name not in {"value", "key"})
    ]
    kind = rng.choice(kinds or ["bits"])
    replaced = KINDS[kind](cache / file, rng)
    sealed = not replaced and rng.random() < 0.5
    if sealed:
        with suppress(
            DatacheckError,
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            seal(cache, file)  # as far as it goes
    return Mutation(kind + (", sealed" if sealed else ""), file, replaced)


def seal(cache: Path, file: str) -> None:
    """Make digests fit: of the chunks of a table or field, and of the manifest."""
    manifest = cache / layout.MANIFEST
    if file == layout.MANIFEST:
        said = json.loads(manifest.read_bytes())
        said.pop("digest", None)
        said["digest"] = digest_bytes(json.dumps(said, **COMPACT).encode("utf-8", "surrogatepass"))
        manifest.write_bytes(json.dumps(said, **COMPACT).encode("utf-8", "surrogatepass"))
        return
    array, _, name = file.rpartition("/")
    if name == "c.0" and (cache / "digests" / file).exists():  # a table: one shard of plain chunks
        grid, _ = layout.grid_of(json.loads((cache / array / layout.ZARR).read_bytes())) or (
            None,
            None,
        )
        if grid is not None:
            raw, other, size = (
                (cache / file).read_bytes(),
                cache / "digests" / file,
                grid.chunk_bytes,
            )
            found = [
                digest64(raw[at : at + size])
                for at in range(0, grid.shape[0] * grid.row_bytes, size)
            ]
            whole = bytearray(other.read_bytes())
            whole[: 8 * len(found)] = np.array(found, "<u8").tobytes()
            other.write_bytes(whole)
    root = read_manifest(open_store(cache)).content_root
    manifest.unlink()
    write_manifest(cache, measure_files(cache), root)


COMPACT: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}


def bits(path: Path, rng: random.Random) -> bool:
    """Flip one to eight bits."""
    raw = bytearray(path.read_bytes() or b"\0")
    for _ in range(rng.randint(1, 8)):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    return False


def numbers(path: Path, rng: random.Random) -> bool:
    """Put a hostile number of eight bytes somewhere, as tables and indices hold them."""
    raw = bytearray(path.read_bytes().ljust(8, b"\0"))
    at = rng.randrange(max(1, len(raw) // 8)) * 8
    raw[at : at + 8] = (rng.choice([2**64 - 1, 2**63, 2**62, 2**40, 2**31, 1, 0]) % 2**64).to_bytes(
        8, "little"
    )
    path.write_bytes(raw)
    return False


def cut(path: Path, rng: random.Random) -> bool:
    """Cut it."""
    os.truncate(path, rng.randint(0, path.stat().st_size))
    return False


def longer(path: Path, rng: random.Random) -> bool:
    """Append bytes, or the file itself."""
    raw = path.read_bytes()
    path.write_bytes(raw + rng.choice([b"\0", b"]", raw, b" " * 100_000, rng.randbytes(1000)]))
    return False


def noise(path: Path, rng: random.Random) -> bool:
    """Replace all of it."""
    texts = [
        b"",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"9" * 100_000,
        b"[{}" * 9,
    ]
    path.write_bytes(rng.choice([*texts, rng.randbytes(500)]))
    return False


def value(path: Path, rng: random.Random) -> bool:
    """Replace a value of a JSON document."""
    said = json.loads(path.read_bytes())
    spots = list(places(said))
    outer, name = rng.choice(spots) if spots else ([said], 0)
    known = CODECS if name in {"codecs", "index_codecs"} and rng.random() < 0.8 else VALUES
    outer[name] = rng.choice(known)
    path.write_bytes(json.dumps(said, **COMPACT).encode("utf-8", "surrogatepass"))
    return False


def key(path: Path, rng: random.Random) -> bool:
    """Rename, remove or add a member of a JSON object."""
    said = json.loads(path.read_bytes())
    objects = [
        said,
        *(outer[name] for outer, name in places(said) if isinstance(outer[name], dict)),
    ]
    chosen = rng.choice([one for one in objects if isinstance(one, dict)] or [{}])
    name = rng.choice([*chosen, "new"])
    taken = chosen.pop(name, 1)
    if rng.random() < 0.6:
        chosen[
            rng.choice(["", "../x", "\ud800", "a\0b", "new", "x" * 5000, "fields/x/c.99999999"])
        ] = taken
    path.write_bytes(json.dumps(said, **COMPACT).encode("utf-8", "surrogatepass"))
    return False


def places(said: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON document with each of its keys."""
    names = (
        list(said) if isinstance(said, dict) else range(len(said)) if isinstance(said, list) else ()
    )
    for name in names:
        yield said, name
        yield from places(said[name])


def pipe(path: Path, rng: random.Random) -> bool:
    """Put a pipe that nobody writes into in its place."""
    path.unlink()
    os.mkfifo(path)
    return True


def folder(path: Path, rng: random.Random) -> bool:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()
    return True


def link(path: Path, rng: random.Random) -> bool:
    """Put a link to the same bytes, to a device or to nothing in its place."""
    away = OUTSIDE[0] / path.name
    shutil.copyfile(path, away)
    path.unlink()
    path.symlink_to(rng.choice([away, Path("/dev/zero"), Path("/nowhere"), path]))
    return True


def linked_folder(path: Path, rng: random.Random) -> bool:
    """Put a link to the same files in the place of the file's folder; of a file at the top, of `fields`."""
    inside = path.parent / "fields" if (path.parent / layout.MANIFEST).exists() else path.parent
    away = OUTSIDE[0] / "moved"
    shutil.move(inside, away)
    inside.symlink_to(away)
    return True


def sparse(path: Path, rng: random.Random) -> bool:
    """Make it 1 TB long."""
    os.truncate(path, 1 << 40)
    return True


def missing(path: Path, rng: random.Random) -> bool:
    """Remove it."""
    path.unlink()
    return True


OUTSIDE: list[Path] = []
KINDS: dict[str, Callable[[Path, random.Random], bool]] = {
    "bits": bits,
    "numbers": numbers,
    "cut": cut,
    "longer": longer,
    "noise": noise,
    "value": value,
    "key": key,
    "pipe": pipe,
    "folder": folder,
    "link": link,
    "linked folder": linked_folder,
    "sparse": sparse,
    "missing": missing,
}


# --------------------------------------------------------------------------------------- what reads


def actions(
    root: Path, cache: Path, whole: Path, away: Path, place: Path | None
) -> dict[str, Callable[[], int]]:
    """Return what is done with a damaged cache: by name, a call that returns an exit code.

    Args:
        root: the folder of caches, damaged one included.
        cache: the damaged one.
        whole: an intact cache.
        away: an empty folder.
        place: where the pipeline and its sources lie; None: nothing is built.
    """
    commands: dict[str, list[Any]] = {
        "ls": ["cache", "ls", root],
        "gc": ["cache", "gc", root, "--keep", "1"],
        "verify all": ["cache", "verify", root, "--quick"],
        "verify": ["cache", "verify", cache],
        "verify values": ["cache", "verify", cache, "--values"],
        "info": ["cache", "info", cache],
        "report": ["cache", "report", cache, "-o", away / "page.html"],
        "report full": ["cache", "report", cache, "--full", "-o", away / "page.html"],
        "report of another": ["cache", "report", beside(cache), "-o", away / "page.html"],
        "diff": ["cache", "diff", cache, whole],
        "diff back": ["cache", "diff", whole, cache],
        "datasets": ["diff", cache, whole],
        "npz": ["cache", "export", cache, "--as", "npz", "--to", away / "npz"],
        "webdataset": [
            "cache",
            "export",
            cache,
            "--as",
            "webdataset",
            "--to",
            away / "web",
            "--invalid",
        ],
    }
    if place is not None:
        compress = ["--compress", open_cache(whole).compression, "--workers", "1"]
        said = [place / "schema.yaml", "--data", place / "data", "--out", root, *compress]
        commands |= {name: ["cache", name, *said] for name in ("explain-key", "build", "repair")}
    calls = {name: partial(run, [str(word) for word in words]) for name, words in commands.items()}
    return calls | {
        "dataset": lambda: trained(cache),
        "dataset pread": lambda: trained(cache, io="pread", verify="always"),
        "episodes": lambda: trained(cache, windows=False, verify="full"),
        "everything": lambda: served(cache),
    }


def beside(cache: Path) -> Path:
    """Return the other cache in the folder of one."""
    return next(
        path for path in cache.parent.iterdir() if path != cache and not path.name.startswith(".")
    )


def trained(cache: Path, **options: Any) -> int:
    """Take every item of a dataset."""
    dataset = CachedDataset(cache, **options)
    for index in range(min(len(dataset), 500)):
        dataset[index]
    return 0


def served(cache: Path) -> int:
    """Ask for everything that a cache holds."""
    opened = open_cache(cache)
    whole = np.arange(len(opened))
    (
        opened.keys(whole),
        opened.origins(whole),
        opened.findings(),
        opened.digests(whole),
        repr(opened),
    )
    for name, spec in opened.fields.items():
        opened.present(name, whole)
        opened.gather(name, whole) if spec.dim is None else opened.gather_ragged(name, whole)
        if spec.kind != "array":
            opened.texts(name, whole)
    return 0


@dataclass
class Outcome:
    """How an action ended."""

    code: int
    seconds: float
    peak: int
    text: str
    wrong: list[str] = field(default_factory=list)


def contained(
    action: Callable[[], int],
    log: Path,
    seconds: float = SECONDS,
    allowed: frozenset[int] = ALLOWED,
) -> Outcome:
    """Run an action in a fork of this process, under limits of time and memory."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        within(action, log)
    code, usage = None, None
    while time.monotonic() - began < seconds:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        _, _, usage = os.wait4(child, 0)
    grown = usage.ru_maxrss * 1024 - IDLE[0] if usage is not None else 0
    text = log.read_text("utf-8", "replace")
    made = Outcome(-99 if code is None else code, time.monotonic() - began, grown, text)
    if code is None:
        made.wrong.append(f"not ended after {seconds:g} s")
    elif code not in allowed:
        made.wrong.append(f"exit code {code}")
    if grown > BYTES:
        made.wrong.append(f"{grown >> 20} MB")
    if "Traceback" in text or "internal error" in text:
        made.wrong.append("a traceback")
    return made


IDLE = [0]  # bytes that a fork of this process takes which does nothing


def within(action: Callable[[], int], log: Path) -> None:
    """Call an action and end this process with what it returns."""
    code = 4
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + (8 << 30),) * 2)
        code = action()
    except DatacheckError as error:
        os.write(2, str(error).encode("utf-8", "replace"))
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001  told by the code
        os.write(2, "".join(traceback.format_exception(error)[-5:]).encode("utf-8", "replace"))
    finally:
        sys.stdout.flush()
        os._exit(code)


# ------------------------------------------------------------------------------------------- trials


def trial(
    seed: int,
    made: list[Path],
    place: Path,
    work: Path,
    asked: argparse.Namespace,
    only: str | None,
) -> Iterator[tuple[str, str, Outcome]]:
    """Mutate a copy of a cache, run every action on it, and yield (mutation, action, outcome)."""
    rng = random.Random(seed)
    source = rng.choice(made)
    shutil.rmtree(work, ignore_errors=True)
    outside = work / "outside"
    outside.mkdir(parents=True)
    OUTSIDE[:] = [outside]
    root = work / "caches"
    shutil.copytree(source.parents[2], root, copy_function=shutil.copy2)
    cache = root / source.relative_to(source.parents[2])
    mutation = mutated(cache, rng, only)
    away = work / "away"
    for name, action in actions(
        root, cache, source, away, place if seed % WITH_DATA == 0 else None
    ).items():
        if asked.actions and name not in asked.actions.split(","):
            continue
        shutil.rmtree(away, ignore_errors=True)
        away.mkdir()
        allowed = ALLOWED | ({6} if name == "repair" else set())
        outcome = contained(action, work / "log", asked.seconds, allowed)
        outcome.wrong += expected(name, mutation, outcome, cache)
        yield str(mutation), name, outcome


def expected(action: str, mutation: Mutation, outcome: Outcome, cache: Path) -> list[str]:
    """Return what is wrong beyond the code: others not listed, what lies in a file's place read."""
    wrong = []
    if action in {"ls", "gc", "verify all"}:
        other = beside(cache).name
        wrong += [] if other in outcome.text else [f"does not name {other}"]
    refusing = {"verify", "verify values", "everything", "dataset", "npz"}
    if (
        mutation.replaced
        and action in refusing
        and outcome.code in {0, 1}
        and mutation.file != layout.BUILD
    ):
        wrong.append("took what lies in the place of a file")
    return wrong


def controls(work: Path) -> list[str]:
    """Return the controls that were not told."""
    work.mkdir(parents=True, exist_ok=True)
    planted: dict[str, Callable[[], int]] = {
        "an error of Python's": lambda: [][1],
        "a process that hangs": lambda: time.sleep(60) or 0,
        "too much memory": lambda: len(b"x" * (BYTES + (64 << 20))) and 0,
        "a death": lambda: os.abort() or 0,
        "exit code 4": lambda: 4,
    }
    IDLE[0] = 0
    IDLE[0] = contained(lambda: 0, work / "log").peak
    outcomes = {name: contained(action, work / "log", 1.5) for name, action in planted.items()}
    told = [name for name, outcome in outcomes.items() if not outcome.wrong]
    return told + (["a good one"] if contained(lambda: 0, work / "log").wrong else [])


def main(asked: list[str] | None = None) -> int:
    """Run all trials and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--only", choices=sorted(KINDS))
    kinds.add_argument("--each", action="store_true", help="one mutation of each kind")
    parser.add_argument("--actions", default="")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(asked)
    chosen = list(KINDS) if options.each else [options.only] * options.count
    codes: Counter[tuple[str, int]] = Counter()
    worst = [0.0, 0]
    wrong = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as tmp:
        place = Path(tmp)
        silent = controls(place / "work")
        for name in silent:
            print(f"control not told: {name}")
        made = make(place / "made")
        for seed, only in enumerate(chosen, options.seed):
            for mutation, action, outcome in trial(
                seed, made, place / "made", place / "work", options, only
            ):
                codes[action, outcome.code] += 1
                worst = [max(worst[0], outcome.seconds), max(worst[1], outcome.peak)]
                if outcome.wrong:
                    wrong += 1
                    last = outcome.text.strip().splitlines()[-1:] or [""]
                    print(
                        f"seed {seed}: {mutation}: {action}: {', '.join(outcome.wrong)}: "
                        f"{last[0][:300]}",
                        flush=True,
                    )
    for action in dict.fromkeys(name for name, _ in codes):
        ended = ", ".join(
            f"{count} with {code}"
            for (name, code), count in sorted(codes.items())
            if name == action
        )
        print(f"{action:18} {ended}")
    print(
        f"{len(chosen)} mutations, seeds {options.seed} to {options.seed + len(chosen) - 1}; "
        f"{wrong} wrong; "
        f"longest {worst[0]:.1f} s, most {worst[1] >> 20} MB"
    )
    return int(bool(wrong or silent))


if __name__ == "__main__":
    sys.exit(main())
