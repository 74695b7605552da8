"""Canaries of reads: datasets, runs and caches that lead a reader to files outside of their folder.

Each writes a dataset into a folder below the hostile place and returns the schema under which its
bait is read. The files outside hold a token; it may stand in no output, and the files may not even
be opened.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import zarr

from tests.hostile.ground import REPOSITORY, Ground, plain_samples

CANARIES: dict[str, Callable[[Ground, Path], str]] = {}

FEW_PARTS = ("manifest.json", "inputs.json", "build.json", "fields")
LEROBOT = REPOSITORY / "tests/sources/lerobot"
MDS = REPOSITORY / "tests/sources/mds/plain"


def canary(make: Callable[[Ground, Path], str]) -> Callable[[Ground, Path], str]:
    CANARIES[make.__name__] = make
    return make


def schema(ground: Ground, name: str, text: str) -> str:
    """Write a schema that the user names, and return its name."""
    (ground.place / f"{name}.yaml").write_text(f"datacheck: 1\nname: {name}\n{text}")
    return f"{name}.yaml"


def out(ground: Ground, folder: Path) -> str:
    """Return the way from a folder to what lies outside, as `../../outside`."""
    return os.path.relpath(ground.outside, folder)


def _names(ground: Ground, folder: Path, name: str) -> list[tuple[str, str]]:
    """Return names of a file outside as a file in `folder` may write them."""
    return [("absolute", str(ground.outside / name)), ("relative", f"{out(ground, folder)}/{name}")]


def bait(link: Path, target: str | Path) -> None:
    """Put a link in the place of whatever lies there."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


# -------------------------------------------------------------------------------------------- links


@canary
def links_to_files(ground: Ground, folder: Path) -> str:
    """Links to files of every kind: absolute, relative, by way of another link, through /proc."""
    plain_samples(folder)
    for path in sorted(ground.outside.iterdir()):
        suffix = "00007.mds" if path.suffix == ".mds" else path.suffix[1:]
        bait(folder / f"absolute.{suffix}", path)
        bait(folder / f"relative.{suffix}", f"{out(ground, folder)}/{path.name}")
        bait(folder / f"chain.{suffix}", f"relative.{suffix}")
        bait(folder / f"proc.{suffix}", f"/proc/self/root{path}")
    return "all.yaml"


@canary
def links_to_folders(ground: Ground, folder: Path) -> str:
    """Links to folders: one that holds files, a Zarr store, one by way of a folder inside."""
    plain_samples(folder)
    bait(folder / "folder", ground.outside)
    bait(folder / "store.zarr", ground.outside / "secret.zarr")
    bait(folder / "inner/deeper", f"{out(ground, folder / 'inner')}")
    bait(folder / "again", "inner/deeper")
    return "all.yaml"


@canary
def parts_of_zarr(ground: Ground, folder: Path) -> str:
    """Links in a Zarr store: its metadata, a chunk, a folder of chunks, a group, a shard."""
    secret = ground.outside / "secret.zarr"
    for version in (2, 3):
        for part in ("metadata", "chunk", "chunks", "group"):
            place = folder / f"{part}{version}.zarr"
            group = zarr.open_group(place, mode="w", zarr_format=version)
            group.create_array("x", data=np.arange(32, dtype="u1"), chunks=(8,))
            group.create_array("y", data=np.arange(32, dtype="u1"), chunks=(8,))
            if part == "metadata":
                bait(
                    place / "x" / ("zarr.json" if version == 3 else ".zarray"),
                    secret / "x/zarr.json",
                )
            elif part == "chunk":
                bait(place / ("x/c/0" if version == 3 else "x/0"), secret / "x/c/0")
            elif part == "chunks":
                bait(place / ("x/c" if version == 3 else "x"), secret / "x/c")
            else:
                bait(place / "x", secret / "x")
    shards = zarr.create_array(
        folder / "sharded.zarr", data=np.arange(32, dtype="u1"), chunks=(4,), shards=(16,)
    )
    assert shards.shards == (16,)
    bait(folder / "sharded.zarr/c/0", secret / "x/c/0")
    return "all.yaml"


# ----------------------------------------------------------------------------------- names in files


@canary
def places_in_hdf5(ground: Ground, folder: Path) -> str:
    """External links and storage, virtual datasets of fixed, unlimited and printf sources, soft links."""
    folder.mkdir(parents=True)
    for way, name in _names(ground, folder, "secret.h5"):
        with h5py.File(folder / f"{way}-link.h5", "w") as file:
            file["x"] = h5py.ExternalLink(name, "x")
            file["soft"] = h5py.SoftLink("/x")
            file["folder"] = h5py.ExternalLink(name, "/")
            file["through"] = h5py.SoftLink("/folder/x")
        with h5py.File(folder / f"{way}-storage.h5", "w") as file:
            raw = name.replace("secret.h5", "secret.bin")
            file.create_dataset("x", (32,), "u1", external=[(raw, 0, 32)])
        with h5py.File(folder / f"{way}-fixed.h5", "w") as file:
            layout = h5py.VirtualLayout((32,), "u1")
            layout[:] = h5py.VirtualSource(name, "x", (32,))
            file.create_virtual_dataset("x", layout)
        _unlimited(folder / f"{way}-unlimited.h5", name.encode(), b"x")
        _printf(folder / f"{way}-printf.h5", name.replace("secret", "secre%bt").encode(), b"x")
        _printf(folder / f"{way}-printf-name.h5", name.encode(), b"x%b")
    return "all.yaml"


def _unlimited(path: Path, file: bytes, name: bytes) -> None:
    unlimited = h5py.h5s.UNLIMITED
    with h5py.File(path, "w", libver="latest") as made:
        space = h5py.h5s.create_simple((32,), (unlimited,))
        space.select_hyperslab((0,), (1,), block=(unlimited,))
        source = h5py.h5s.create_simple((32,), (unlimited,))
        source.select_hyperslab((0,), (1,), block=(unlimited,))
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_virtual(space, file, name, source)
        h5py.h5d.create(
            made.id, b"x", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((32,), (unlimited,)), plan
        )


def _printf(path: Path, file: bytes, name: bytes) -> None:
    unlimited = h5py.h5s.UNLIMITED
    with h5py.File(path, "w", libver="latest") as made:
        space = h5py.h5s.create_simple((32,), (unlimited,))
        space.select_hyperslab((0,), (unlimited,), stride=(32,), block=(32,))
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_virtual(space, file, name, h5py.h5s.create_simple((32,)))
        h5py.h5d.create(
            made.id, b"x", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((32,), (unlimited,)), plan
        )


@canary
def members_of_archives(ground: Ground, folder: Path) -> str:
    """Members of tars and zips that are links, or whose names lead out."""
    folder.mkdir(parents=True)
    secret = str(ground.outside / "secret.txt")
    for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE)):
        with tarfile.open(folder / f"links-{number:06d}.tar", "w") as file:
            member = tarfile.TarInfo("0000.txt")
            member.type, member.linkname = kind, secret
            file.addfile(member)
    for number, name in enumerate((secret, f"{out(ground, folder)}/secret.txt")):
        with tarfile.open(folder / f"names-{number:06d}.tar", "w") as file:
            member = tarfile.TarInfo(name)
            member.size = 5
            file.addfile(member, io.BytesIO(b"other"))
        with zipfile.ZipFile(folder / f"names-{number}.npz", "w") as packed:
            packed.writestr(f"{name}.npy", b"other")
    return "all.yaml"


# --------------------------------------------------------------------------------- what lies beside


@canary
def companions(ground: Ground, folder: Path) -> str:
    """Files that a schema reads with a sample: one for each, one for all, one whose folder is a link."""
    plain_samples(folder, 3)
    bait(folder / "s0.json", ground.outside / "secret.json")
    bait(folder / "s1.json", f"{out(ground, folder)}/secret.json")
    bait(folder / "shared.json", ground.outside / "secret.json")
    bait(folder / "labels", ground.outside)
    (folder / "s2.json").write_text('{"text": "good"}')
    fields = (
        "fields:\n  x: {role: value, shape: [4, 3]}\n"
        '  mine: {role: text, file: "{id}.json", at: text, optional: true}\n'
        "  all: {role: text, file: shared.json, at: text, optional: true}\n"
        "  other: {role: text, file: labels/secret.json, at: text, optional: true}\n"
        "  number: {role: value, file: labels/secret.npy, optional: true}\n"
    )
    return schema(ground, "companions", f'samples: {{files: "{{id}}.npy"}}\n{fields}')


@canary
def statistics(ground: Ground, folder: Path) -> str:
    """What a normaliser believes, in a file that is a link."""
    plain_samples(folder, 2)
    bait(folder / "stats.json", ground.outside / "secret.json")
    fields = "fields: {x: {role: value, shape: [4, 3], stats: {file: stats.json, at: text}}}\n"
    return schema(ground, "statistics", f'samples: {{files: "*.npy"}}\n{fields}')


@canary
def tokenizers(ground: Ground, folder: Path) -> str:
    """A tokenizer that is a link."""
    folder.mkdir(parents=True)
    (folder / "sft.jsonl").write_text('{"conversations": [{"role": "user", "content": "hello"}]}\n')
    bait(folder / "model", ground.outside)
    shutil.copyfile(ground.outside / "secret.json", ground.outside / "tokenizer.json")
    shutil.copyfile(ground.outside / "secret.json", ground.outside / "tokenizer_config.json")
    return "minimind_sft"


def _lists(ground: Ground, folder: Path) -> Iterator[tuple[str, str | None]]:
    yield "train.txt", None
    here = out(ground, folder)
    yield "up.txt", f"s0\n{here}/secret\n{here}/secret.npy\n"
    yield "absolute.txt", f"s0\n{ground.outside}/secret\n{ground.outside}/secret.npy\n"


@canary
def lists(ground: Ground, folder: Path) -> str:
    """Lists of samples that are links, or whose lines lead out of the folder."""
    plain_samples(folder)
    for name, text in _lists(ground, folder):
        if text is None:
            bait(folder / name, ground.outside / "secret.txt")
        else:
            (folder / name).write_text(text)
    names = [
        {"filepath": f"{out(ground, folder)}/secret.npy"},
        {"filepath": str(ground.outside / "secret.npy")},
    ]
    (folder / "mapped.json").write_text(json.dumps([*names, {"filepath": "s1.npy"}]))
    bait(folder / "linked.yaml", ground.outside / "secret.yaml")
    bait(folder / "linked.json", ground.outside / "secret.json")
    said = (
        "{a: train.txt, b: up.txt, c: absolute.txt, d: mapped.json, e: linked.yaml, f: linked.json}"
    )
    fields = "fields: {x: {role: value, shape: [4, 3]}}\n"
    return schema(ground, "lists", f'samples: {{files: "{{id}}.npy", list: {said}}}\n{fields}')


# ------------------------------------------------------------------------------------- LeRobot, MDS


def _lerobot(folder: Path, version: str) -> Path:
    shutil.copytree(LEROBOT / version, folder)
    return folder


@canary
def lerobot_documents(ground: Ground, folder: Path) -> str:
    """Each document of a LeRobot dataset is a link, in a dataset of its own; so is the folder of all, and the data."""
    for version, names in (
        ("v2.1", ("info.json", "episodes.jsonl", "tasks.jsonl", "episodes_stats.jsonl")),
        (
            "v3.0",
            ("info.json", "tasks.parquet", "stats.json", "episodes/chunk-000/file-000.parquet"),
        ),
    ):
        for number, name in enumerate(names):
            here = _lerobot(folder / f"{version}-{number}", version)
            bait(here / "meta" / name, ground.outside / f"secret{Path(name).suffix}")
        bait(_lerobot(folder / f"{version}-meta", version) / "meta", ground.outside)
        bait(_lerobot(folder / f"{version}-data", version) / "data/chunk-000", ground.outside)
        here = _lerobot(folder / f"{version}-template", version)
        said = json.loads((here / "meta/info.json").read_bytes())
        said["data_path"] = f"{out(ground, here)}/secret.parquet"
        said["video_path"] = f"{ground.outside}/secret.parquet"
        (here / "meta/info.json").write_text(json.dumps(said))
    return "lerobot"


@canary
def indexes_of_shards(ground: Ground, folder: Path) -> str:
    """The index of MDS shards is a link, or names shards outside."""
    shutil.copytree(MDS, folder / "linked")
    bait(folder / "linked/index.json", ground.outside / "secret.json")
    shutil.copytree(MDS, folder / "named")
    said = json.loads((folder / "named/index.json").read_bytes())
    for shard, (_, name) in zip(
        said["shards"], _names(ground, folder / "named", "secret.mds"), strict=False
    ):
        shard["raw_data"]["basename"] = name
    (folder / "named/index.json").write_text(json.dumps(said))
    shutil.copytree(MDS, folder / "shard")
    bait(folder / "shard/shard.00000.mds", ground.outside / "secret.mds")
    return "mds"


# ------------------------------------------------------------------------------------ what we wrote


def parts(ground: Ground, folder: Path, kept: Path, *, few: bool = False) -> Iterator[Path]:
    """Yield copies of a folder, in each of which another part is a link to the same bytes outside.

    Args:
        folder: a finished run or cache, or a run of training.
        kept: where the copies go.
        few: of a cache one part of each kind that is read at all.
    """
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    chosen = [name for name in names if "/" not in name]  # and of what lies deeper one of a kind
    deeper = [name for name in names if "/" in name and not name.startswith("digests/")]
    chosen += {
        f"{'zarr' if name.endswith('zarr.json') else name.split('/')[0]}": name for name in deeper
    }.values()
    chosen = [name for name in chosen if not few or name.split("/")[0] in FEW_PARTS]
    for number, name in enumerate(chosen):
        copy = kept / f"part{number}" / folder.name
        shutil.copytree(folder, copy)
        away = ground.outside / f"{folder.name}-{number}-{Path(name).name}"
        data = (folder / name).read_bytes()
        away.write_bytes(data)
        bait(copy / name, away)
        yield copy
