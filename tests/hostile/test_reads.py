"""No command opens or shows a file outside of the folder that it was given, whatever leads there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.hostile.commands import (
    DATA,
    LIKE_SCAN,
    OF_CACHE,
    OF_RUN,
    OF_TRAINING,
    RUN,
    SEVERAL,
    TRAIN,
    filled,
    without_sandbox,
)
from tests.hostile.ground import ENDS, Watch
from tests.hostile.reads import CANARIES, parts

ENDED = "ended with "


def run_all(ground, asked):
    """Run commands one after another in a process of their own; return what was wrong."""
    program, words = ground.base / "bin" / "several.py", ground.base / "bin" / "words.json"
    program.write_text(SEVERAL)
    words.write_text(json.dumps(asked))
    with Watch(ground.outside) as watch:
        ended = ground.run(sys.executable, program, words)
        opened = watch.seen()
    said = [line.removeprefix(ENDED) for line in ended.text.splitlines() if line.startswith(ENDED)]
    odd = [line for line in said if int(line.split()[0]) not in ENDS]
    opened = [Path(name).relative_to(ground.outside).as_posix() for name in opened]
    wrong = {
        "opened": opened,
        "shown": ground.leaks(ended),
        "ended": odd,
        "done": len(said),
        "killed": ended.code,
    }
    if "Traceback" in ended.text or "internal error" in ended.text:
        wrong["said"] = ended.text[-2000:]
    return wrong


def right(asked):
    return {"opened": [], "shown": [], "ended": [], "done": len(asked), "killed": 0}


def numbered(asked):
    """Give each command folders of its own for what it makes."""
    return [
        [
            word.replace("made/", f"made/{number}-") if word.startswith("made/") else word
            for word in words
        ]
        for number, words in enumerate(asked)
    ]


FEW = ("companions", "lists", "statistics", "lerobot_documents")


@pytest.mark.parametrize("command", sorted(DATA))
def test_no_command_follows_what_leads_out_of_its_data(command, ground):
    asked = []
    for name, make in CANARIES.items():
        if command not in LIKE_SCAN or name in FEW:
            places = {"DATA": name, "SCHEMA": make(ground, ground.place / name)}
            keys = [path.name for path in (ground.place / name).glob("s[0-9].npy")]
            asked += [
                filled(words, KEY=min(keys, default="x"), **places) for words in DATA[command][:1]
            ]
    asked = together(asked) if command.startswith("repro") else numbered(asked)
    assert run_all(ground, asked) == right(asked)


def test_no_scan_without_the_sandbox_follows_it_either(ground):
    asked = []
    for name in ("links_to_files", "parts_of_zarr", "places_in_hdf5", "companions"):
        schema = CANARIES[name](ground, ground.place / name)
        asked.append(
            [*without_sandbox(), "scan", name, "--schema", schema, "--output", f"made/{name}"]
        )
    assert run_all(ground, asked) == right(asked)


def together(asked):
    """Ask once for all data: what starts PyTorch takes seconds."""
    first = [
        word
        for word in asked[0]
        if word not in {words[words.index("--data") + 1] for words in asked}
    ]
    at = first.index("--data")
    named = [word for words in asked for word in ("--data", words[words.index("--data") + 1])]
    return [[*first[:at], *named, *first[at + 1 :]]]


@pytest.mark.parametrize("command", sorted(OF_RUN))
def test_no_command_follows_a_part_of_a_run(command, ground):
    run = (ground.place / RUN).resolve()
    runs = list(parts(ground, run, ground.place / "shared"))
    asked = numbered(
        [filled(words, RUN=str(place)) for place in runs for words in OF_RUN[command][:1]]
    )
    assert run_all(ground, asked) == right(asked)


@pytest.mark.parametrize("command", ["scan", "manifest"])
def test_a_scan_follows_no_part_of_the_run_before_it(command, ground):
    run = (ground.place / RUN).resolve()
    for place in parts(ground, run, ground.place / "shared"):
        for path in place.iterdir():
            if path.is_symlink():
                (run / path.name).unlink()
                path.rename(run / path.name)
    asked = numbered([list(words) for words in OF_RUN[command][-1:]])
    assert run_all(ground, asked) == right(asked)


@pytest.mark.parametrize("command", sorted(OF_CACHE))
def test_no_command_follows_a_part_of_a_cache(command, ground):
    (cache,) = (path.parent for path in (ground.place / "caches").rglob("manifest.json"))
    kept = ground.place / "shared"
    few = command in {"cache build", "cache repair", "cache explain-key"}
    caches = [moved(place, kept) for place in parts(ground, cache, kept, few=few)]
    asked = [
        filled(words, CACHE=str(place)) for place in caches for words in OF_CACHE[command][-1:]
    ]
    asked = together(asked) if command.startswith("repro") else numbered(asked)
    assert run_all(ground, asked) == right(asked)


def moved(cache: Path, kept: Path) -> Path:
    """Put a cache where a folder of caches has it; return that folder."""
    place = cache.parent / "plain" / "all"
    place.mkdir(parents=True)
    cache.rename(place / cache.name)
    return cache.parent.relative_to(kept.parent)


def test_a_training_process_follows_no_part_of_a_cache(ground):
    (cache,) = (path.parent for path in (ground.place / "caches").rglob("manifest.json"))
    train = ground.base / "bin" / "train.py"
    train.write_text(TRAIN)
    caches = list(parts(ground, cache, ground.place / "shared"))
    with Watch(ground.outside) as watch:
        ended = ground.run(sys.executable, train, *caches)
        assert watch.seen() == []
    assert (ground.leaks(ended), ended.sound) == ([], True), ended.text[-2000:]


@pytest.mark.parametrize("command", sorted(OF_TRAINING))
def test_no_command_follows_a_part_of_a_run_of_training(command, ground):
    runs = list(parts(ground, ground.place / "runs/a", ground.place / "shared"))
    asked = [
        filled(words, TRAINED=str(place)) for place in runs for words in OF_TRAINING[command][:1]
    ]
    assert run_all(ground, asked) == right(asked)
