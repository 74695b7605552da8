"""Trials of whole folders: faults of files, lists and tables that no sample in memory can have, in several sizes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from datacheck.model.finding import Severity
from datacheck.scan import Request, run_scan, schema_for
from datacheck.schema.load import load_schema
from datacheck.schema.model import Schema
from datacheck.testing import synth
from datacheck.testing.minimind import SFT, key
from tests.trials.base import Size
from tests.trials.run import Outcome, outcome


@dataclass(frozen=True, eq=False)
class Folder:
    """A named corruption of a folder.

    Args:
        name, code, sizes, cause, also: as of `tests.trials.base.Trial`.
        system: what the table calls its data.
        schema: name of a built-in schema, or the keys of one.
        write: makes a folder that nothing is wrong with: (folder, seed).
        plant: breaks it (folder, value of the size, generator); returns the keys that must be
            named, none for a fault of the dataset.
    """

    name: str
    code: str
    system: str
    schema: str | dict[str, Any]
    write: Callable[[Path, int], None]
    plant: Callable[[Path, float, np.random.Generator], Sequence[str]]
    sizes: tuple[Size, ...]
    cause: str = ""
    also: frozenset[str] = field(default_factory=frozenset)


def _scan(trial: Folder, data: Path, output: Path) -> Any:
    if isinstance(trial.schema, str):
        schema = schema_for(data, trial.schema)
    else:
        schema = Schema.model_validate({"datacheck": 1, "name": "folder"} | trial.schema)
    return run_scan(schema, Request(data, workers=1, output=output))


def clean_folder(trial: Folder, here: Path, seed: int) -> tuple[str, ...]:
    """Write the folder of a seed to ``here/clean``; return the codes of errors and warnings that it raises."""
    trial.write(here / "clean", seed)
    said = _scan(trial, here / "clean", here / "scan-clean").report.findings
    return tuple(
        sorted({f"{f.code} {f.severity}" for f in said if f.severity is not Severity.INFO})
    )


def planted_folder(trial: Folder, size: Size, here: Path, seed: int) -> Outcome:
    """Break a copy of ``here/clean``; return what a scan says of it."""
    data = here / "broken"
    shutil.copytree(here / "clean", data)
    try:
        keys = trial.plant(data, size.value, np.random.default_rng([seed, trial.sizes.index(size)]))
        run = _scan(trial, data, here / "scan-broken")
        return outcome(
            run.report.findings, run.table.keys, keys, trial.code, trial.cause, trial.also
        )
    finally:
        shutil.rmtree(data)
        shutil.rmtree(here / "scan-broken", ignore_errors=True)


# ------------------------------------------------------------------------------- files of strangers


def _recordings(folder: Path, seed: int) -> None:
    """Write 40 arrays, and a recording that holds a fifth of the bytes."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for i in range(40):
        np.save(folder / f"{i:04d}.npy", rng.normal(size=(int(rng.integers(90, 110)), 4)))
    _record(folder, 0.2)


def _record(folder: Path, share: float) -> None:
    known = sum(path.stat().st_size for path in folder.glob("*.npy"))
    (folder / "run_0.rrd").write_bytes(b"RRF2\0\0\0\0" + bytes(round(known * share / (1 - share))))


def _unread(folder: Path, share: float, rng: np.random.Generator) -> Sequence[str]:
    _record(folder, share)
    return ()


UNREAD = Folder(
    "data-unread",
    "DC113",
    "npy, Rerun",
    {"samples": {"files": "*.npy"}, "fields": {"": {"role": "value", "shape": ["T", 4]}}},
    _recordings,
    _unread,
    (Size("45 % of the bytes", 0.45, documented=False), Size("55 %", 0.55), Size("99 %", 0.99)),
)


def _pointers(folder: Path, share: float, rng: np.random.Generator) -> Sequence[str]:
    keys = names_in(folder, "train/*.npy")
    hit = sorted(rng.choice(keys, max(1, round(share * len(keys))), replace=False).tolist())
    for name in hit:
        told = f"oid sha256:{rng.bytes(32).hex()}\nsize {(folder / name).stat().st_size}\n"
        (folder / name).write_text(
            f"version https://git-lfs.github.com/spec/v1\n{told}", encoding="utf-8"
        )
    return hit


def names_in(folder: Path, pattern: str) -> list[str]:
    """Return the files that match, as sorted relative POSIX paths."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern))


def _grasps(folder: Path, seed: int) -> None:
    synth.write("sceneleap", folder, seed=seed, train=20, test=4, rings=6)


POINTERS = Folder(
    "git-lfs-pointers",
    "DC102",
    "sceneleap",
    "sceneleap",
    _grasps,
    _pointers,
    (Size("one file", 0.01), Size("a tenth", 0.1), Size("the whole split", 1.0)),
    cause="lfs",
    also=frozenset({"DC805"}),
)

# --------------------------------------------------------------------------------------- companions


def _frames(folder: Path, seed: int) -> None:
    """Write HO3D with an image and a depth map beside each annotation; their bytes are not read."""
    synth.write("ho3d", folder, seed=seed, train=3, evaluation=1, frames=(14, 20), vertices=False)
    for name in names_in(folder, "*/*/meta/*.pkl"):
        for what, end in (("rgb", ".jpg"), ("depth", ".png")):
            path = folder / name.replace("/meta/", f"/{what}/").replace(".pkl", end)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(f"{what} of {name}".encode())


def _gone(
    what: str, end: str, *, empty: bool = False
) -> Callable[[Path, float, np.random.Generator], Sequence[str]]:
    def plant(folder: Path, share: float, rng: np.random.Generator) -> Sequence[str]:
        keys = names_in(folder, "train/*/meta/*.pkl")
        hit = sorted(rng.choice(keys, max(1, round(share * len(keys))), replace=False).tolist())
        for name in hit:
            path = folder / name.replace("/meta/", f"/{what}/").replace(".pkl", end)
            path.write_bytes(b"") if empty else path.unlink()
        return hit

    return plant


_SHARES = (Size("one", 0.01), Size("a tenth", 0.1), Size("two fifths", 0.4))
RGB = Folder(
    "images-of-some-frames",
    "DC129",
    "ho3d",
    "ho3d",
    _frames,
    _gone("rgb", ".jpg"),
    _SHARES,
    cause="rgb",
)
DEPTH = Folder(
    "depth-of-some-frames",
    "DC129",
    "ho3d",
    "ho3d",
    _frames,
    _gone("depth", ".png"),
    _SHARES,
    cause="depth",
)
EMPTY_DEPTH = Folder(
    "depth-of-0-bytes",
    "DC129",
    "ho3d",
    "ho3d",
    _frames,
    _gone("depth", ".png", empty=True),
    _SHARES,
    cause="depth",
)


def _meshes_gone(folder: Path, share: float, rng: np.random.Generator) -> Sequence[str]:
    keys = names_in(folder, "train/*.npy")
    hit = sorted(rng.choice(keys, max(1, round(share * len(keys))), replace=False).tolist())
    for name in hit:
        (folder / "objects" / Path(name).stem / "mesh" / "simplified.obj").unlink()
    return hit


MESHES = Folder(
    "meshes-of-some-objects",
    "DC129",
    "sceneleap",
    "sceneleap",
    _grasps,
    _meshes_gone,
    (Size("one of 20", 0.05), Size("a tenth", 0.1), Size("two fifths", 0.4)),
    cause="faces, verts",
)

# ------------------------------------------------------------------------------------- label tables


def _scenes(folder: Path, seed: int) -> None:
    synth.write("scannetpp", folder, seed=seed, train=8, validation=2, instances=(6, 9))


def _table(folder: Path, change: Callable[[dict[int, Any]], None]) -> None:
    path = folder / "label_database.yaml"
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(table)
    path.write_text(yaml.safe_dump(table, sort_keys=False), encoding="utf-8")


def _classes(folder: Path, name: str) -> set[int]:
    """Return the classes of a scene's instances."""
    cloud = np.load(folder / name)
    return {int(n) for n in np.unique(cloud[cloud[:, 11] >= 0, 10])}


def _emptied(
    how: Callable[[dict[int, Any], int], None],
) -> Callable[[Path, float, np.random.Generator], Sequence[str]]:
    def plant(folder: Path, count: float, rng: np.random.Generator) -> Sequence[str]:
        """Take the classes of some scenes out of the table; others may have no more than these either."""
        keys = names_in(folder, "train/*.npy")
        gone = set[int]().union(
            *(_classes(folder, n) for n in rng.choice(keys, int(count), replace=False).tolist())
        )
        _table(folder, lambda table: [how(table, number) for number in gone] and None)
        return [n for n in names_in(folder, "*/*.npy") if _classes(folder, n) <= gone]

    return plant


def _untrained(table: dict[int, Any], number: int) -> None:
    table[number]["validation"] = False


def _null(folder: Path, count: float, rng: np.random.Generator) -> Sequence[str]:
    def change(table: dict[int, Any]) -> None:
        table.update(dict.fromkeys(rng.choice(sorted(table), int(count), replace=False).tolist()))

    _table(folder, change)
    return ()


_SCENES = (Size("classes of one scene", 1), Size("of three", 3))
DROPPED = Folder(
    "classes-dropped-by-the-table",
    "DC402",
    "scannetpp",
    "scannetpp",
    _scenes,
    _emptied(_untrained),
    _SCENES,
    cause="keep_classes",
)
ABSENT = Folder(
    "classes-absent-from-the-table",
    "DC402",
    "scannetpp",
    "scannetpp",
    _scenes,
    _emptied(lambda table, number: table.pop(number)),
    _SCENES,
    cause="keep_classes",
)
NULL = Folder(
    "null-in-the-label-table",
    "DC404",
    "scannetpp",
    "scannetpp",
    _scenes,
    _null,
    (Size("one class", 1), Size("ten", 10)),
    cause="table",
)

# --------------------------------------------------------------------------------------- statistics

_NORMALISED = load_schema("scannetpp").as_dict()
# As for statistics of the same scenes
_NORMALISED["rules"]["DC228"] = {"mean": 0.1, "std": [0.8, 1.25]}


def _tinted(folder: Path, seed: int) -> None:
    """Write scenes whose numbers of points differ by a factor of about three: the loader's statistics weigh scenes."""
    synth.write(
        "scannetpp",
        folder,
        seed=seed,
        train=8,
        validation=2,
        instances=(6, 9),
        spread=0.6,
        low=9_000,
    )


def _statistics(folder: Path, how: float, rng: np.random.Generator) -> Sequence[str]:
    path = folder / "color_mean_std.yaml"
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    if how == 0:  # of other scenes
        told["mean"] = [value + (0.2 if value < 0.5 else -0.2) for value in told["mean"]]
    else:
        told = {name: [value * how for value in values] for name, values in told.items()}
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return ()


STATISTICS = Folder(
    "colour-statistics-rescaled",
    "DC228",
    "scannetpp, stats",
    _NORMALISED,
    _tinted,
    _statistics,
    (Size("divided by 255 twice", 1 / 255), Size("halved", 0.5)),
    cause="scaled",
)
OTHER_STATISTICS = Folder(
    "colour-statistics-of-other-scenes",
    "DC228",
    "scannetpp, stats",
    _NORMALISED,
    _tinted,
    _statistics,
    (Size("brighter or darker by 0.2", 0),),
    cause="values",
)

# -------------------------------------------------------------------------------------------- lines

_EVAL = SFT.replace("sft_", "sft_eval_")


def _chats(folder: Path, seed: int) -> None:
    """Write chats for training, and other ones for evaluation."""
    synth.write("minimind", folder, seed=seed, sft=120, pretrain=10, dpo=10)
    other = folder.with_name("other")
    synth.write("minimind", other, seed=seed + 1_000_000, sft=20, pretrain=1, dpo=1)
    (other / SFT).rename(folder / _EVAL)
    shutil.rmtree(other)


def _leak(folder: Path, count: float, rng: np.random.Generator) -> Sequence[str]:
    """Append lines of the evaluation to the training file."""
    lines = (folder / _EVAL).read_bytes().splitlines(keepends=True)
    hit = sorted(rng.choice(len(lines), int(count), replace=False).tolist())
    with (folder / SFT).open("ab") as file:
        file.writelines(lines[i] for i in hit)
    return [key(_EVAL, i) for i in hit]


def _page(folder: Path, length: float, rng: np.random.Generator) -> Sequence[str]:
    """Replace the training file by the page that a server sends for a file that it does not give."""
    body = "<p>You need to sign in to see this dataset.</p>\n" * int(length)
    (folder / SFT).write_text(
        f"<!DOCTYPE html>\n<html><body>\n{body}</body></html>\n", encoding="utf-8"
    )
    return [SFT]


LEAK = Folder(
    "evaluation-lines-in-training",
    "DC801",
    "minimind",
    "minimind",
    _chats,
    _leak,
    (Size("1 line", 1), Size("5 lines", 5), Size("all 20", 20)),
)
PAGE = Folder(
    "page-for-json-lines",
    "DC102",
    "minimind",
    "minimind",
    _chats,
    _page,
    (Size("1 line of text", 1), Size("1,000 lines", 1000)),
    cause="page",
    also=frozenset({"DC805"}),
)

FOLDERS = (
    UNREAD,
    POINTERS,
    RGB,
    DEPTH,
    EMPTY_DEPTH,
    MESHES,
    DROPPED,
    ABSENT,
    NULL,
    STATISTICS,
    OTHER_STATISTICS,
    LEAK,
    PAGE,
)
