"""Canaries of writes: links and names in places where a command writes or clears, that lead to what is not its own.

Each writes into the hostile place and returns the commands that would change files outside if they
followed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.hostile.commands import RUN
from tests.hostile.ground import SCRIPT, Ground
from tests.hostile.reads import bait

CANARIES: dict[str, Callable[[Ground], list[list[str]]]] = {}

SCAN = ["scan", "clean", "--schema", "plain.yaml"]
HEX = "0123456789abcdef" * 2
BUILD = ["cache", "build", "plain.yaml", "--data", "clean", "--out"]


def canary(make: Callable[[Ground], list[list[str]]]) -> Callable[[Ground], list[list[str]]]:
    CANARIES[make.__name__] = make
    return make


def victims(ground: Ground) -> Path:
    """Write a folder outside that looks like something of ours, and return it."""
    folder = ground.outside / "victim"
    for name in (
        "keep.txt",
        "part-00000000",
        "lock",
        "run/result.json",
        "result.json",
        "old/keep.txt",
        "plain/all/keep.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("keep")
    return folder


def work_of(ground: Ground) -> str:
    """Return the name of the folder that the next scan works in; that of the newest run tells it."""
    assert ground.run(SCRIPT, *SCAN).code == 0
    name = max(
        path.name for path in (ground.place / ".datacheck").iterdir() if path.name[:2] == "20"
    ).partition("-")[2]
    return f".work-{name}"


@canary
def the_folder_of_runs(ground: Ground) -> list[list[str]]:
    """`.datacheck` is a link."""
    (ground.place / ".datacheck").rename(ground.place / "moved")
    bait(ground.place / ".datacheck", victims(ground))
    return [
        SCAN,
        ["manifest", "clean", "-o", "made/manifest.json"],
        ["view", "s0.npy", "--data", "clean", "--schema", "plain.yaml", "--no-open"],
    ]


@canary
def the_folder_of_work(ground: Ground) -> list[list[str]]:
    """The folder that a scan works in is a link; its name follows from the name of the newest run."""
    name = work_of(ground)
    bait(ground.place / f".datacheck/{name}", victims(ground))
    for number in range(2, 6):
        bait(ground.place / f".datacheck/{name}-{number}", victims(ground))
    bait(ground.place / ".datacheck/.work-manifest", victims(ground))
    bait(ground.place / ".results.work", victims(ground))
    manifest = ["manifest", "clean", "--deep", "--schema", "plain.yaml", "-o", "made/manifest.json"]
    return [
        [*SCAN, "--rehash"],
        [*SCAN, "--level", "deep", "--previews", "3"],
        [*SCAN, "--output", "results"],
        manifest,
    ]


@canary
def parts_of_the_folder_of_work(ground: Ground) -> list[list[str]]:
    """The folder is there, and its lock, its parts and the run in it are links."""
    name = work_of(ground)
    work = ground.place / ".datacheck" / name
    victim = victims(ground)
    for name in ("lock", ".lock", "part-00000000", "part-00000001"):
        bait(work / name, victim / "keep.txt")
    for name in ("run", "old", "previews"):
        bait(work / name, victim)
    return [[*SCAN, "--rehash"], SCAN]


@canary
def the_newest_run(ground: Ground) -> list[list[str]]:
    """`latest` leads out, and so do parts of the run before."""
    run = (ground.place / RUN).resolve()
    victim = victims(ground)
    bait(ground.place / RUN, victim)
    for name in ("report.html", "previews.json", "valid.json"):
        bait(run / name, victim / "keep.txt")
    return [SCAN, [*SCAN, "--previews", "3"], [*SCAN, "--rehash"]]


@canary
def outputs(ground: Ground) -> list[list[str]]:
    """What a user may name as an output is a link in the hostile folder."""
    victim = victims(ground)
    for name in (
        "card.json",
        "page.html",
        "view.html",
        "badge.svg",
        "drafted.yaml",
        "manifest.json",
        "baseline.json",
        "capture.json",
    ):
        bait(ground.place / name, victim / "keep.txt")
    for name in ("rescored", "fixed", "lists", "exported", "results", "caches2"):
        bait(ground.place / name, victim)
    bait(ground.place / ".datacheck/view.html", victim / "keep.txt")
    return [
        ["card", RUN, "-o", "card.json"],
        ["cache", "report", "caches", "-o", "page.html"],
        ["view", "s0.npy", "--no-open", "--out", "view.html"],
        ["view", "s0.npy", "--no-open"],
        ["report", RUN, "--badge", "badge.svg"],
        ["init", "clean", "-o", "drafted.yaml"],
        ["manifest", "clean", "-o", "manifest.json"],
        ["baseline", RUN, "-o", "baseline.json"],
        ["rescore", RUN, "--output", "rescored"],
        [*SCAN, "--output", "results"],
        ["fix", "DC105", "clean", "--to", "fixed", "--schema", "plain.yaml"],
        [
            "split",
            "clean",
            "--by",
            "key",
            "--train",
            "1",
            "--to",
            "lists",
            "--schema",
            "plain.yaml",
        ],
        ["cache", "export", "caches", "--to", "exported", "--as", "npz"],
    ]


@canary
def outputs_inside_a_folder(ground: Ground) -> list[list[str]]:
    """The folder that is named is there, and a file that would be written into it is a link."""
    victim = victims(ground)
    for name in (
        "result.json",
        "samples.parquet",
        "valid.json",
        "listing.npz",
        "schema.yaml",
        "report.html",
    ):
        bait(ground.place / "results" / name, victim / "keep.txt")
    for name in ("train.txt", "val.txt", "test.txt"):
        bait(ground.place / "lists" / name, victim / "keep.txt")
    for name in ("s0.npy", "s1.npy", "s0.npy.npz", "00000000.npz", "keys.txt", "manifest.json"):
        bait(ground.place / "exported" / name, victim / "keep.txt")
        bait(ground.place / "fixed" / name, victim / "keep.txt")
    return [
        [*SCAN, "--output", "results"],
        [
            "split",
            "clean",
            "--by",
            "key",
            "--train",
            "1",
            "--to",
            "lists",
            "--schema",
            "plain.yaml",
        ],
        ["cache", "export", "caches", "--to", "exported", "--as", "npz"],
        ["fix", "DC105", "clean", "--to", "fixed", "--schema", "plain.yaml"],
    ]


@canary
def places_of_builds(ground: Ground) -> list[list[str]]:
    """In the folder of caches the places where a build works, waits and is published are links."""
    (cache,) = (path.parent for path in (ground.place / "caches").rglob("manifest.json"))
    key, victim = cache.name, victims(ground)
    asked = []
    for number, name in enumerate(
        (".building", ".trash", "plain", "plain/all", "plain/.building", "plain/all/.building")
    ):
        bait(ground.place / f"caches{number}" / name, victim)
        asked += [[*BUILD, f"caches{number}"], ["cache", "repair", *BUILD[2:], f"caches{number}"]]
    for number, name in enumerate(
        (f".building/{key}.{HEX}", f".building/{key}", f"plain/all/.building/{key}.{HEX}")
    ):
        bait(ground.place / f"more{number}" / name, victim)
        bait(ground.place / f"more{number}" / "plain/all/latest", victim)
        asked.append([*BUILD, f"more{number}"])
        asked.append(["cache", "repair", *BUILD[2:], f"more{number}"])
    return asked


@canary
def what_is_collected(ground: Ground) -> list[list[str]]:
    """Folders that `cache gc --delete` takes for unfinished or old ones are links, or hold links."""
    (cache,) = (path.parent for path in (ground.place / "caches").rglob("manifest.json"))
    victim, top = victims(ground), ground.place / "caches"
    building = cache.parent / ".building"
    for place in (top / ".building", building, top / ".trash", cache.parent / ".trash"):
        bait(place / f"{cache.name}.{HEX}", victim)
        bait(place / f"{'0' * 16}.{HEX}" / "fields", victim)
        bait(place / f"{'0' * 16}.{HEX}" / "zarr.json", victim / "keep.txt")
    bait(cache.parent / ("f" * 16), victim)
    bait(top / "other", victim)
    for name in ("trashed", "damaged"):
        copy = ground.place / name / cache.relative_to(top)
        shutil.copytree(cache, copy)
        bait(copy.parent / ".trash", victim)
    copy.chmod(0o755)
    (copy / "manifest.json").unlink()
    (copy / "manifest.json").write_text("{}")
    bait(ground.place / "linked/.trash", victim)
    bait(ground.place / "linked2/.building", victim)
    return [
        ["cache", "gc", name, "--keep", "0", "--unlocked", "--delete"]
        for name in ("caches", "linked", "linked2", "trashed")
    ] + [["cache", "repair", *BUILD[2:], "damaged"], [*BUILD, "damaged"]]
