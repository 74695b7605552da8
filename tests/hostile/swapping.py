"""A race: while commands read a dataset, another process puts links to files outside in the place of its files."""

from __future__ import annotations

import ctypes
import itertools
import json
import multiprocessing
import os
import random
import time
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import h5py
import numpy as np
import zarr

from tests.hostile.ground import ALL, SCRIPT, Ended, Ground, Watch

_EXCHANGE = 2  # RENAME_EXCHANGE: at no moment is a name missing
SCHEMA = (
    'datacheck: 1\nname: race\nsamples: {files: "**/{id}.npy"}\nfields:\n  x: {role: value, shape: '
    "[4, 3]}\n"
    '  text: {role: text, file: "{id}.json", at: text, optional: true}\n'
)
COMMANDS = (
    ("scan", "data", "--schema", "race.yaml", "--rehash", "--level", "deep", "--previews", "5"),
    ("scan", "data", "--schema", "all.yaml", "--rehash"),
    ("manifest", "data", "--deep", "--schema", "race.yaml", "-o", "made/{n}.json"),
    ("cache", "build", "race.yaml", "--data", "data", "--out", "made/{n}"),
)


@dataclass
class Race:
    """What came of a race.

    Args:
        swaps: exchanges of a file or folder with a link, all while a command ran.
        runs: commands that ran.
        opened: files outside that were opened.
        shown: where the token stands.
        odd: commands that ended as no command may.
    """

    swaps: int = 0
    runs: int = 0
    opened: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    odd: list[Ended] = field(default_factory=list)


def prepare(ground: Ground, samples: int = 16) -> list[tuple[Path, Path]]:
    """Write data, what lies outside, and return pairs to exchange: a file or folder, and a link to one outside."""
    data, outside = ground.place / "data", ground.outside
    (ground.place / "race.yaml").write_text(SCHEMA)
    (ground.place / "all.yaml").write_text(ALL)
    (ground.place / "made").mkdir(exist_ok=True)
    secret = np.frombuffer(ground.token.encode().ljust(48), "f4").reshape(4, 3)
    for top, values, text in (
        (data, np.ones((4, 3), "f4"), "good"),
        (outside, secret, ground.token),
    ):
        for folder in (top, top / "inner"):
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(samples):
                np.save(folder / f"{folder.name[:1]}{number}.npy", values)
                (folder / f"{folder.name[:1]}{number}.json").write_text(json.dumps({"text": text}))
        zarr.create_array(top / "store.zarr", data=values, chunks=(1, 3), overwrite=True)
        with h5py.File(top / "demos.h5", "w") as file:
            file["x"], file["x"].attrs["text"] = values, text
    pairs = []
    for number, path in enumerate(
        [*sorted(data.iterdir()), *sorted((data / "store.zarr").iterdir())]
    ):
        name = path.relative_to(data).as_posix()
        away = outside / (name if (outside / name).exists() else f"o{path.name[1:]}")
        link = ground.base / "links" / str(number)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(away)
        pairs.append((path, link))
    return pairs


def exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(first), -100, os.fsencode(second), _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(first))


def _swap(
    pairs: list[tuple[Path, Path]], going: Synchronized[int], count: Synchronized[int], seed: int
) -> None:
    """Exchange pairs, each twice, while told to; a link stays for about as long as lies between two system calls."""
    rng = random.Random(seed)
    while going.value >= 0:
        if not going.value:
            time.sleep(0.001)
            continue
        pair = rng.choice(pairs)
        for _ in range(2):
            exchange(*pair)
            count.value += 1
            time.sleep(rng.choice((0, 0, 1e-5, 1e-4, 1e-3)))


def race(ground: Ground, *, swaps: int, runs: int, seed: int = 0) -> Race:
    """Run commands while files are exchanged, until so many swaps and so many runs were made.

    Notes:
        Nothing depends on which of the two is faster: it ends by counts.
    """
    found, pairs = Race(), prepare(ground)
    context = multiprocessing.get_context("spawn")
    going, count = context.Value("i", 0), context.Value("q", 0)
    swapper = context.Process(target=_swap, args=(pairs, going, count, seed), daemon=True)
    swapper.start()
    try:
        with Watch(ground.outside) as watch:
            for number in itertools.count():
                if found.runs >= runs and count.value >= swaps:
                    break
                words = COMMANDS[number % len(COMMANDS)]
                going.value = 1
                while count.value == found.swaps:  # it has begun
                    time.sleep(0.001)
                ended = ground.run(SCRIPT, *(word.format(n=number) for word in words))
                going.value = 0
                found.swaps, found.runs = count.value, found.runs + 1
                found.opened |= set(watch.seen())
                found.shown |= set(ground.leaks(ended))
                found.odd += [] if ended.sound else [ended]
    finally:
        going.value = -1
        swapper.join(10)
        swapper.kill()
    return found


def control(ground: Ground, *, swaps: int, seed: int = 0) -> Race:
    """Read the same names plainly during as many swaps: what `race` is to find none of."""
    found, pairs = Race(), prepare(ground)
    context = multiprocessing.get_context("spawn")
    going, count = context.Value("i", 1), context.Value("q", 0)
    swapper = context.Process(target=_swap, args=(pairs, going, count, seed), daemon=True)
    swapper.start()
    try:
        with Watch(ground.outside) as watch:
            while count.value < swaps or not found.opened:
                for path, _ in pairs:
                    if path.is_file():
                        path.read_bytes()
                found.opened |= set(watch.seen())
            found.swaps = count.value
    finally:
        going.value = -1
        swapper.join(10)
        swapper.kill()
    return found
