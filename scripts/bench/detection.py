"""How well each rule finds its fault, and what it says of clean data: recall by size, cause named, false alarms.

    python scripts/bench/detection.py [--seeds 30] [--only DC201] [--folders 8] [--disk 30]
    [--lerobot 30] [--served 8] [--workers 2]
        [--write]

Six parts: trials in memory (tests.trials), every one of them with every size and seed; trials of
folders (tests/testing/folders.py), likewise; faults planted in the files of the five systems
(datacheck.testing.faults); clean files of the five systems; both for LeRobot datasets
(`--only lerobot` runs this part alone); loaders of the five systems, as they were and as they
should be (tests/audit/loaders). Ends with 1 where a documented size is found in less than 99 % of
the samples, a cause is not named, or clean data raise an error.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from datacheck.demo.course import SCHEMAS
from datacheck.model.finding import Severity
from datacheck.rules import catalogue
from datacheck.scan import Request, run_scan, scan_loader, schema_for
from datacheck.schema.model import Schema
from datacheck.testing import faults, synth

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.audit import test_systems as tests  # noqa: E402  the loaders that the tests have, and their fields
from tests.testing.folders import FOLDERS, Folder, clean_folder, planted_folder  # noqa: E402
from tests.trials import Trial, trials  # noqa: E402
from tests.trials.run import Outcome, clean, planted  # noqa: E402

PAGE = ROOT / "docs" / "detection.md"
ON_DISK = (*synth.SYSTEMS, "scannet", "scannet_raw")
LEROBOT = ("lerobot", "lerobot_v21")
NEED = 0.99


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson)."""
    if not of:
        return 0.0, 1.0
    z, p = 1.959964, hits / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(
        1.0, (middle + half) / (1 + z * z / of)
    )


def share(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{hits / of:.3f} ({low:.2f}..{high:.2f})" if of else "-"


# ---------------------------------------------------------------------------------------- in memory


def try_one(job: tuple[str, str, int]) -> tuple[str, list[tuple[str, ...]], dict[str, list]]:
    code, name, seeds = job
    trial = next(t for t in trials() if (t.code, t.name) == (code, name))
    alarms = [clean(trial, seed) for seed in range(seeds)]
    return (
        f"{code} {name}",
        alarms,
        {s.name: [planted(trial, s, seed) for seed in range(seeds)] for s in trial.sizes},
    )


def _judged(
    trial: Trial | Folder,
    alarms: list[tuple[str, ...]],
    sizes: dict[str, list[Outcome]],
    head: str,
    rows: list[str],
    bad: list[str],
) -> None:
    """Add a row for each size of a trial, and what is not good enough."""
    label, false = f"{trial.code} {trial.name}", Counter(code for said in alarms for code in said)
    if false:
        bad.append(f"{label}: clean data raise {dict(false)}")
    for size in trial.sizes:
        outcomes = sizes[size.name]
        found, wanted = sum(o.found for o in outcomes), sum(o.wanted for o in outcomes)
        named = sum(o.named for o in outcomes)
        others = Counter(code for o in outcomes for code in o.wrongly)
        untouched = sum(o.untouched for o in outcomes)
        rows.append(
            f"| {head} {trial.name} | {size.name} | {'yes' if size.documented else 'no'} | "
            f"{share(found, wanted)} | {share(named, len(outcomes)) if trial.cause else '-'} | "
            f"{untouched} | {', '.join(f'{c} {n}' for c, n in sorted(others.items())) or '0'} | "
            f"{sum(map(bool, alarms))} of {len(alarms)} |"
        )
        print(rows[-1], flush=True)
        if size.documented and found < NEED * wanted:
            bad.append(f"{label}, {size.name}: recall {found / wanted:.3f}")
        if size.documented and named < NEED * len(outcomes):
            bad.append(f"{label}, {size.name}: cause named in {named} of {len(outcomes)} runs")


def in_memory(seeds: int, only: str, workers: int) -> tuple[list[str], list[str]]:
    """Return rows of the table and what is not good enough."""
    chosen = [t for t in trials() if only in f"{t.code} {t.name}"]
    jobs = [(t.code, t.name, seeds) for t in chosen]
    rows, bad = [], []
    with ProcessPoolExecutor(workers) as pool:
        for trial, (_, alarms, sizes) in zip(chosen, pool.map(try_one, jobs), strict=True):
            _judged(trial, alarms, sizes, f"{trial.code} |", rows, bad)
    return rows, bad


# ------------------------------------------------------------------------------------------ folders


def try_folder(job: tuple[int, int]) -> tuple[tuple[str, ...], dict[str, Outcome]]:
    """Return what a clean folder of one seed raises, and what came of each size of the fault."""
    number, seed = job
    trial, here = FOLDERS[number], Path(tempfile.mkdtemp(prefix="folders-"))
    try:
        alarms = clean_folder(trial, here, seed)
        return alarms, {size.name: planted_folder(trial, size, here, seed) for size in trial.sizes}
    finally:
        shutil.rmtree(here, ignore_errors=True)


def in_folders(seeds: int, only: str, workers: int) -> tuple[list[str], list[str]]:
    """Return rows of the table of folders and what is not good enough."""
    chosen = [n for n, t in enumerate(FOLDERS) if only in f"{t.code} {t.name}"]
    rows: list[str] = []
    bad: list[str] = []
    with ProcessPoolExecutor(workers) as pool:
        runs = pool.map(try_folder, [(n, seed) for n in chosen for seed in range(seeds)])
        for n in chosen:
            alarms, outcomes = zip(*(next(runs) for _ in range(seeds)), strict=True)
            sizes = {size.name: [told[size.name] for told in outcomes] for size in FOLDERS[n].sizes}
            _judged(
                FOLDERS[n],
                list(alarms),
                sizes,
                f"{FOLDERS[n].code} | {FOLDERS[n].system} |",
                rows,
                bad,
            )
    return rows, bad


# ------------------------------------------------------------------------------------------ on disk


def scan_system(job: tuple[str, int]) -> tuple[str, list[str], dict[str, tuple[str, bool]]]:
    """Return (system, alarms on clean files, (code, found) by fault) for one seed.

    Errors are alarms; of LeRobot datasets warnings are alarms too.
    """
    system, seed = job
    here = Path(tempfile.mkdtemp(prefix="detection-"))
    os.chdir(here)
    try:
        # Of 12 sequences seed 16 leaves none for the last fault
        room = {"train": 16} if system == "ho3d" else {}
        synth.write(system, here / "data", seed=seed, **room)
        mild = {Severity.INFO} if system in LEROBOT else {Severity.INFO, Severity.WARNING}
        calm = [
            f"{f.code} {f.id}"
            for run in _runs(system, here)
            for f in run.report.findings
            if f.severity not in mild
        ]
        told: dict[str, tuple[str, bool]] = {}
        batches = faults.batches_of(system)
        if len(batches) > 1:
            shutil.copytree(here / "data", here / "clean")
        for batch in batches:
            if batch:
                shutil.rmtree(here / "data")
                shutil.copytree(here / "clean", here / "data")
            first = [fault.name for fault in faults.faults_of(system, batch=batch)]
            said = faults.plant(system, here / "data", first, seed=seed)
            runs = _runs(system, here)
            later = [fault.name for fault in faults.faults_of(system, later=True, batch=batch)]
            if later:
                told |= _answers(said, runs)
                spare = [key for p in said for key in (*p.keys, *p.others)]
                said = faults.plant(system, here / "data", later, seed=seed, spare=spare)
                runs = _runs(system, here)
            told |= _answers(said, runs)
        return system, calm, told
    finally:
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)


def _runs(system: str, here: Path) -> list:
    names = SCHEMAS.get(system, ("lerobot" if system in LEROBOT else None,))
    return [
        run_scan(
            schema_for(here / "data", name),
            Request(here / "data", workers=1, output=here / f"scan-{name}"),
        )
        for name in names
    ]


def _answers(said, runs) -> dict[str, tuple[str, bool]]:
    named = [
        (f.code, f.kind, {run.table.keys[int(i)] for i in f.rows})
        for run in runs
        for f in run.report.findings
    ]
    return {
        p.what: (
            p.code,
            any(
                c == p.code and (not p.kind or kind == p.kind) and keys.issuperset(p.keys)
                for c, kind, keys in named
            ),
        )
        for p in said
    }


def on_disk(
    seeds: int, workers: int, systems: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """Return rows of the faults, rows of the clean systems, and what is not good enough."""
    jobs = [(system, seed) for system in systems for seed in range(seeds)]
    hits: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    calm: dict[str, list[list[str]]] = defaultdict(list)
    with ProcessPoolExecutor(workers) as pool:
        for system, alarms, told in pool.map(scan_system, jobs):
            calm[system].append(alarms)
            for what, (code, found) in told.items():
                hits[system, code, what].append(found)
    rows, bad = [], []
    for (system, code, what), found in sorted(hits.items()):
        rows.append(f"| {code} | {system} | {what} | {share(sum(found), len(found))} |")
        if sum(found) < NEED * len(found):
            bad.append(f"{system}, {what}: found in {sum(found)} of {len(found)} runs")
    quiet = [
        f"| {system} | {len(runs)} | {sum(map(bool, runs))} |"
        for system, runs in sorted(calm.items())
    ]
    bad += [
        f"{system}: clean files raise {sorted({e for r in runs for e in r})}"
        for system, runs in calm.items()
        if any(runs)
    ]
    return rows, quiet, bad


# ------------------------------------------------------------------------------------------- served

_SCENES = {"split": "train", "loader": tests.LOADER}
# system, loader, fields, size of its data, options, what must be said of it: (code, kind of cause),
# else nothing
LOADERS: list[tuple[str, str, dict, dict, dict, tuple[str, str] | None]] = [
    ("sceneleap", "Grasps", tests.GRASPS, {"train": 8, "test": 2}, {}, None),
    ("sceneleap", "GraspsAsTheyWere", tests.GRASPS, {"train": 8, "test": 2}, {}, ("DC904", "seed")),
    (
        "ho3d",
        "train",
        tests.HANDS,
        {"train": 3, "evaluation": 1, "frames": (12, 16)},
        {"split": "train"},
        None,
    ),
    (
        "ho3d",
        "evaluation_as_it_was",
        tests.HANDS,
        {"train": 3, "evaluation": 2, "frames": (12, 16)},
        {"split": "evaluation"},
        ("DC905", "made:DC602"),
    ),
    ("scannet", "Scenes", tests.SCENES, tests.SMALL, _SCENES, None),
    ("scannet", "relabelled", tests.SCENES, tests.SMALL, _SCENES, ("DC905", "made:DC401")),
    ("scannet", "emptied", tests.SCENES, tests.SMALL, _SCENES, ("DC905", "made:DC405")),
    ("scannet", "KnownBad", tests.SCENES, tests.SMALL, _SCENES, ("DC905", "substituted")),
    ("scannet", "InPlace", tests.SCENES, tests.SMALL, _SCENES, ("DC904", "again")),
    (
        "libero",
        "Windows",
        tests.CHUNKS,
        {"tasks": 1, "demos": 2, "image": 0},
        {"compare": 60},
        None,
    ),
    (
        "libero",
        "WindowsAsTheyWere",
        {},
        {"tasks": 1, "demos": 2, "image": 0},
        {},
        ("DC905", "index-ignored"),
    ),
    ("minimind", "Chats", tests.CHATS, {"sft": 30, "pretrain": 5, "dpo": 5}, {}, None),
    (
        "minimind",
        "Shifted",
        tests.CHATS,
        {"sft": 30, "pretrain": 5, "dpo": 5},
        {},
        ("DC710", "lag 1"),
    ),
    (
        "minimind",
        "RandomPrompt",
        tests.CHATS,
        {"sft": 30, "pretrain": 5, "dpo": 5},
        {},
        ("DC904", "seed"),
    ),
]


def scan_served(job: tuple[int, int]) -> tuple[int, set[tuple[str, str]]]:
    """Return which loader was scanned with one seed's data, and the code and cause of every error and warning."""
    number, seed = job
    system, factory, fields, size, options, _ = LOADERS[number]
    options = dict(options)
    here = Path(tempfile.mkdtemp(prefix="served-"))
    os.chdir(here)
    try:
        synth.write(system, here / "data", seed=seed, **size)
        base = {"datacheck": 1, "name": "served", "samples": {"files": "*"}, "fields": fields}
        base |= {"loader": options.pop("loader")} if "loader" in options else {}
        schema = Schema.model_validate(base) if fields else None
        run = scan_loader(
            f"tests.audit.loaders.{system}:{factory}", schema, here / "data", **options
        )
    finally:
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)
    loud = [f for f in run.report.findings if f.severity is not Severity.INFO]
    return number, {(f.code, f.cause.kind if f.cause else "") for f in loud}


def served(seeds: int, workers: int) -> tuple[list[str], list[str]]:
    """Return rows of the loaders, and what is not good enough."""
    found: dict[int, list[set[tuple[str, str]]]] = defaultdict(list)
    with ProcessPoolExecutor(workers) as pool:
        for number, told in pool.map(
            scan_served, [(n, seed) for n in range(len(LOADERS)) for seed in range(seeds)]
        ):
            found[number].append(told)
    rows, bad = [], []
    for number, runs in found.items():
        system, factory, *_, wanted = LOADERS[number]
        right = sum(wanted in told if wanted else not told for told in runs)
        code, cause = wanted or ("none", "silent")
        rows.append(f"| {code} | {system} | {factory} | {cause} | {share(right, len(runs))} |")
        if right < NEED * len(runs):
            bad.append(
                f"{system}:{factory}: {right} of {len(runs)} runs say {code} {cause}, others {runs}"
            )
    return rows, bad


# --------------------------------------------------------------------------------------------- page


def lerobot_section(seeds: int, files: Sequence[str], quiet: Sequence[str]) -> list[str]:
    return [
        f"## Faults in the files of LeRobot datasets, {seeds} seeds each",
        "",
        "Each dataset has 24 episodes and two cameras. Several faults of different kinds are "
        "planted in one copy; a fault counts as found if the rule names its kind and every broken "
        "episode.",
        "",
        "| rule | system | fault | recall |",
        "| --- | --- | --- | --- |",
        *files,
        "",
        "| clean | seeds | with an error or a warning |",
        "| --- | --- | --- |",
        *quiet,
        "",
    ]


def page(
    said: argparse.Namespace,
    memory: list[str],
    folders: list[str],
    files: list[str],
    quiet: list[str],
    episodes: tuple[list[str], list[str]],
    loaders: list[str],
    bad: list[str],
) -> str:
    seeds, disk = said.seeds, said.disk
    covered = {
        row.split("|")[1].strip() for row in [*memory, *folders, *files, *episodes[0], *loaders]
    }
    missing = sorted(set(catalogue()) - covered)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# Detection",
        "",
        f"Made by `python scripts/bench/detection.py --seeds {seeds} --folders {said.folders} "
        f"--disk {disk} --lerobot {said.lerobot} --served "
        f"{said.served} --write` on {datetime.now(UTC):%Y-%m-%d} ({machine}).",
        "",
        "- *Recall*: the share of the broken samples that the rule names (for faults of a dataset: "
        "the share of the runs in which the rule fails), with its 95 % interval (Wilson).",
        "- *Documented*: `yes` promises a recall of 0.99 or more for faults of this size.",
        "- *Cause*: the share of the runs that name the right cause, alone or among causes that "
        "fit equally well.",
        "- *Untouched*: samples without a fault that the rule names.",
        "- *Others*: runs in which another rule raises an error or warning that does not follow "
        "from the fault.",
        "- *Clean*: seeds whose data raise an error or a warning of any rule without the fault.",
        "",
        f"## Trials in memory, {seeds} seeds each",
        "",
        "| rule | fault | size | documented | recall | cause | untouched | others | clean |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *memory,
        "",
        f"## Trials of folders, {said.folders} seeds each",
        "",
        "| rule | data | fault | size | documented | recall | cause | untouched | others | clean |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *folders,
        "",
        f"## Faults in the files of the five systems, {disk} seeds each",
        "",
        "| rule | system | fault | recall |",
        "| --- | --- | --- | --- |",
        *files,
        "",
        f"## Clean files of the five systems, {disk} seeds each",
        "",
        "| system | seeds | with an error |",
        "| --- | --- | --- |",
        *quiet,
        "",
        *lerobot_section(said.lerobot, *episodes),
        f"## Loaders of the five systems (`--loader`), {said.served} seeds each",
        "",
        "| rule | system | loader | cause | share of the runs |",
        "| --- | --- | --- | --- | --- |",
        *loaders,
        "",
        "## Not good enough",
        "",
        *([f"- {line}" for line in bad] or ["None."]),
        "",
    ]
    if missing:
        lines += ["Rules without a trial or a planted fault here: " + ", ".join(missing) + ".", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--folders", type=int, default=8, help="seeds of the trials of folders")
    parser.add_argument("--disk", type=int, default=30, help="seeds of the five systems on disk")
    parser.add_argument("--lerobot", type=int, default=30, help="seeds of LeRobot datasets on disk")
    parser.add_argument("--served", type=int, default=8, help="seeds of their loaders")
    parser.add_argument(
        "--only",
        default="",
        help="a code, or part of a trial's name; then none of the five systems; or lerobot",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write docs/detection.md")
    asked = parser.parse_args()
    memory, bad = in_memory(asked.seeds, asked.only, asked.workers)
    folders, worse = (
        in_folders(asked.folders, asked.only, asked.workers) if asked.folders else ([], [])
    )
    bad += worse
    files, quiet, loaders = [], [], []
    if not asked.only and asked.disk:
        files, quiet, worse = on_disk(asked.disk, asked.workers, ON_DISK)
        bad += worse
        print("\n".join([*files, *quiet]))
    episodes: tuple[list[str], list[str]] = ([], [])
    if asked.only in ("", "lerobot") and asked.lerobot:
        found, calm, worse = on_disk(asked.lerobot, asked.workers, LEROBOT)
        episodes = (found, calm)
        bad += worse
        print("\n".join(lerobot_section(asked.lerobot, *episodes)))
    if not asked.only and asked.served:
        loaders, worse = served(asked.served, asked.workers)
        bad += worse
        print("\n".join(loaders))
    if asked.write:
        PAGE.write_text(
            page(asked, memory, folders, files, quiet, episodes, loaders, bad), encoding="utf-8"
        )
    print("\n".join(f"NOT GOOD ENOUGH {line}" for line in bad) or "all good")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
