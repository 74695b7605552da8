"""What lies in the working folder when the blocks of a page are run: small synthetic data, caches, recorded runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import obstore
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
import zarr
from torch.utils.data import DataLoader, Dataset

from datacheck import CachedDataset, build_cache
from datacheck.cache import obstore_client
from datacheck.demo import course
from datacheck.testing import faults, synth
from tests.conftest import REPOSITORY
from tests.docs.pages import blocks
from tests.s3.server import BUCKET, Server, environment

Words = dict[str, str | tuple[str, ...]]
Names = dict[str, Any]
STAGES: dict[str, Callable[..., tuple[Words, Names]]] = {}

TRAIN = """
import sys
import numpy, random, torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]) if "--lr" in sys.argv else 0.1)
loader = torch.utils.data.DataLoader(torch.rand(16, 3), 4, shuffle=True)
for batch in loader:
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOADER = """
import glob
import numpy as np


class Clouds:
    def __init__(self):
        self.files = sorted(glob.glob("clouds/*.npy"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        both = np.load(self.files[index])
        return both[:, :3], {"instance": both[:, 3].astype(np.int64)}
"""
CHECK = {
    "--steps 20": "--steps 2 --only cache",
    "check -- train.py": "check --no-probe -- train.py",
}


def stage(page: str, request: Any) -> tuple[Words, Names]:
    """Prepare the current folder for a page; return what its placeholders stand for, and names for its Python code."""
    for block in blocks(REPOSITORY, page):
        if block.mark == "file:":
            Path(block.said).parent.mkdir(parents=True, exist_ok=True)
            Path(block.said).write_text(block.text, encoding="utf-8")
    return STAGES[page](request) if page in STAGES else ({}, {})


def of(
    page: str,
) -> Callable[[Callable[..., tuple[Words, Names]]], Callable[..., tuple[Words, Names]]]:
    def known(function: Callable[..., tuple[Words, Names]]) -> Callable[..., tuple[Words, Names]]:
        STAGES[page] = function
        return function

    return known


# --------------------------------------------------------------------------------------------- data


def hands(name: str = "hands", broken: tuple[str, ...] = ("joints-in-mm",)) -> Path:
    synth.write("ho3d", Path(name), train=6, evaluation=2, frames=(8, 10), vertices=False)
    faults.plant("ho3d", Path(name), list(broken))
    return Path(name)


def promised() -> None:
    """Write the folder `data`, in which nothing is broken, and a schema for it."""
    synth.write("ho3d", Path("data"), train=6, evaluation=2, frames=(8, 10), vertices=False)
    Path("my.yaml").write_text("datacheck: 1\nname: mine\nextends: ho3d\n")


def demos(name: str = "demos") -> Path:
    synth.write("libero", Path(name), tasks=1, demos=4, image=8)
    return Path(name)


def cached(pipeline: str, data: Path, out: str = "cache", **options: Any) -> str:
    """Build a cache and return its path, that of the split train where there are several."""
    built = build_cache(pipeline, data, out, **options)
    path = next((one.path for one in built if one.split == "train"), built[0].path)
    return os.path.relpath(path)


class RecordedRuns:
    """Recorded trainings, each made once for all pages.

    Args:
        folder: where they are made.
        python: the interpreter that runs them.
    """

    ASKED: ClassVar[dict[str, dict[str, Any]]] = {
        "a": {},
        "b": {"nudge": 50},
        "a2": {"seed": 2},
        "a3": {"seed": 3},
    }

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python
        rng = np.random.Generator(np.random.Philox(0))
        (folder / "bytes").mkdir()
        for i in range(1000):
            rng.standard_normal(8).astype(np.float32).tofile(folder / f"bytes/{i:04d}.bin")

    def copy(self, *names: str) -> None:
        """Copy runs into the folder `runs`; train, each in a process of its own, where one is missing."""
        env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        for name in names:
            if not (self.folder / "runs" / name).exists():
                asked = {"runs": "runs", "name": name, "data": "bytes", **self.ASKED[name]}
                subprocess.run(
                    [self.python, REPOSITORY / "tests/repro/train.py"],
                    input=json.dumps(asked),
                    cwd=self.folder,
                    env=env,
                    text=True,
                    check=True,
                )
            shutil.copytree(self.folder / "runs" / name, Path("runs", name))


class Mine(Dataset):
    """A dataset of somebody else."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"boxes": torch.ones(2, 4) * index}


def script() -> None:
    Path("train.py").write_text(TRAIN, encoding="utf-8")


# -------------------------------------------------------------------------------------------- pages


@of("README.md")
def _readme(request: Any) -> tuple[Words, Names]:
    synth.write("ho3d", Path("HO3D_v3"))
    faults.plant("ho3d", Path("HO3D_v3"))
    hands()
    cached("libero", demos())
    request.getfixturevalue("recorded").copy("a", "b")
    synth.write("lerobot", Path("robot"), episodes=3)
    words: Words = {
        "export DATA --as lerobot --to DIR": "export robot --as lerobot --to valid",
        "DATA": "hands",
        "CODE": "DC201",
        "view KEY": "view evaluation/AP10/meta/0000.pkl --no-open",
        "DIR": "fixed",
        "PIPELINE|SCHEMA": "ho3d",
        "PATH": cached("ho3d", Path("hands"), "other", split="train"),
        "range(10)": "range(2)",
    }
    return words, {"DataLoader": DataLoader}


@of("docs/scan.md")
def _scan(request: Any) -> tuple[Words, Names]:
    hands()
    hands("HO3D_v3")
    hands("later", ("nan-joint",))
    Path("my.yaml").write_text("datacheck: 1\nname: mine\nextends: ho3d\n")
    synth.write("lerobot", Path("robot"), episodes=3)
    words: Words = {
        "export DATA --as lerobot --to DIR": "export robot --as lerobot --to valid",
        "DATA": "hands",
        "CODE": "DC201",
        "view KEY": "view evaluation/AP10/meta/0000.pkl --no-open",
        "DIR": "fixed",
        "FILE": "new.json",
        "RUN": ".datacheck/latest",
        "A B": "hands later",
        "KEY": "seq",
        "--workers 8": "--workers 2",
    }
    return words, {"pq": pq, "pc": pc, "run": ".datacheck/latest"}


@of("docs/cache.md")
def _cache(request: Any) -> tuple[Words, Names]:
    hands()
    Path("mine.yaml").write_text("datacheck: 1\nname: mine\nschema: ho3d\nsource: {data: hands}\n")
    words: Words = {
        "DATA": "hands",
        "--to DIR --as robomimic|webdataset|npz": ("--to a --as npz", "--to b --as webdataset"),
        "[--workers N | --scheduler ADDRESS]": "--workers 2",
        "PIPELINE|SCHEMA": "ho3d",
        "PIPELINE": "mine.yaml",
        "PATH": cached("ho3d", Path("hands"), "other", split="train"),
    }
    return words, {}


@of("pipelines/README.md")
def _pipelines(request: Any) -> tuple[Words, Names]:
    demos()
    return {"--data DIR": "--data demos", "--out DIR": "--out cache"}, {}


@of("docs/cache-format.md")
def _cache_format(request: Any) -> tuple[Words, Names]:
    Path("clouds").mkdir()
    Path("clouds.yaml").write_text(
        'datacheck: 1\nname: clouds\nsamples: {files: "{split}_{i}.npz"}\n'
        "fields: {joints: {shape: [21, 3]}, points: {shape: [P, 3]}}\n"
    )
    for i in range(8):
        np.savez(
            f"clouds/train_{i}.npz",
            joints=np.full((21, 3), i, "f4"),
            points=np.ones((i + 1, 3), "f4"),
        )
    build_cache("clouds.yaml", "clouds", "cache")
    return {"cache/ho3d": "cache/clouds"}, {}


@of("docs/ci.md")
def _ci(request: Any) -> tuple[Words, Names]:
    cached("ho3d", hands("data"), split="train")
    return {}, {}


@of("docs/export.md")
def _export(request: Any) -> tuple[Words, Names]:
    formats = tuple(f"{name} --as {name}" for name in ("robomimic", "webdataset", "npz"))
    return {"PATH": cached("libero", demos()), "DIR --as robomimic|webdataset|npz": formats}, {}


@of("docs/gc.md")
def _gc(request: Any) -> tuple[Words, Names]:
    cached("libero", demos())
    return {}, {}


@of("docs/loader.md")
def _loader(request: Any) -> tuple[Words, Names]:
    Path("clouds").mkdir()
    for i in range(4):
        cloud = np.random.default_rng(i).uniform(0, 5, (50, 4)).astype(np.float32)
        cloud[:, 3] = i
        np.save(f"clouds/train_{i}.npy", cloud)
    Path("served.py").write_text(LOADER)
    Path("clouds.yaml").write_text(
        'datacheck: 1\nname: clouds\nsamples: {files: "{split}_{i}.npy"}\ncolumns: "xyz:3 '
        'instance"\n'
        "fields: {xyz: {role: points, shape: [P, 3]}, instance: {role: instance, shape: [P]}}\n"
    )
    words: Words = {
        "package.module:make": "served:Clouds",
        "DATA": "clouds --files-schema clouds.yaml",
    }
    return words, {"GraspDataset": lambda **options: options}


@of("docs/manifest.md")
def _manifest(request: Any) -> tuple[Words, Names]:
    for name in ("DATA", "A", "B"):
        (Path(name) / "train").mkdir(parents=True)
    for i in range(8):
        np.save(f"DATA/train/{i:03d}.npy", np.arange(4.0) + i)
        for name in ("A", "B"):
            np.savez(f"{name}/train/{i:03d}.npz", pose=np.arange(4.0) + i, label=np.int64(i))
    np.savez("B/train/004.npz", pose=np.array([4.0, 5.0, 3.0, 8.0]), label=np.int64(4))
    return {}, {}


@of("docs/object-stores.md")
def _object_stores(request: Any) -> tuple[Words, Names]:
    server = Server(Path("server").absolute())
    server.start()
    request.addfinalizer(server.remove)
    request.addfinalizer(obstore_client._cached_client.cache_clear)
    for name, value in environment(server.port).items():
        request.getfixturevalue("monkeypatch").setenv(name, value)
    server.make_bucket(BUCKET)
    data = hands("HO3D_v3")
    here = cached("ho3d", data, split="train")
    there = build_cache("ho3d", data, f"s3://{BUCKET}/caches", split="train")[0]
    key = Path(here).name
    words: Words = {
        "s3://bucket/caches/ho3d/train/9ac078d144ecd6da": str(there.path),
        "s3://bucket": f"s3://{BUCKET}",
        "9ac078d144ecd6da": key,
        "/nvme": str(Path.cwd() / "nvme"),
        "DIR": "exported",
    }
    store = obstore.store.from_url(f"s3://{BUCKET}")
    commit = json.loads(bytes(store.get(f"caches/ho3d/train/{key}/commit.json").bytes()))
    names = {
        "CachedDataset": CachedDataset,
        "obstore": obstore,
        "zarr": zarr,
        "key": key,
        "attempt": commit["attempt"],
    }
    return words, names


@of("docs/orchestration.md")
def _orchestration(request: Any) -> tuple[Words, Names]:
    promised()
    return {}, {}


@of("docs/outputs.md")
def _outputs(request: Any) -> tuple[Words, Names]:
    hands()
    promised()
    set_variable = request.getfixturevalue("monkeypatch").setenv
    set_variable("MLFLOW_TRACKING_URI", Path("mlruns").absolute().as_uri())
    set_variable("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes MLflow ten seconds to make
    set_variable("MLFLOW_DISABLE_TELEMETRY", "true")
    return {"DATA": "hands"}, {}


@of("docs/recording.md")
def _recording(request: Any) -> tuple[Words, Names]:
    request.getfixturevalue("recorded").copy(*RecordedRuns.ASKED)
    return {"runs/a1": "runs/a"}, {}


@of("docs/repro.md")
def _repro(request: Any) -> tuple[Words, Names]:
    script()
    cached("libero", demos(), "cache")
    python = request.getfixturevalue("forked_python")
    request.getfixturevalue("monkeypatch").setattr(sys, "executable", python)
    return CHECK, {}


@of("docs/training.md")
def _training(request: Any) -> tuple[Words, Names]:
    fields = "action: {shape: [T, 7]}, image: {shape: [T, 3]}, instance: {shape: [T], dtype: int64}"
    head = 'datacheck: 1\nname: episodes\nsamples: {files: "*.npz"}\n'
    Path("episodes.yaml").write_text(
        f"{head}fields: {{{fields}}}\nepisode: {{fps: 10}}\nwindows: {{length: 16, stride: 16}}\n"
    )
    Path("served.yaml").write_text(f"{head}fields: {{{fields}}}\n")
    Path("episodes").mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        steps = {
            "action": rng.random((80, 7), np.float32),
            "image": rng.random((80, 3), np.float32),
        }
        np.savez(f"episodes/{i:02d}.npz", instance=np.ones(80, np.int64), **steps)
    path = cached("episodes.yaml", Path("episodes"))
    data = CachedDataset(path)
    files = sorted(file.name for file in Path("episodes").iterdir())
    mine = Mine(files)
    names = {
        "path": path,
        "test": path,
        "data": data,
        "mine": mine,
        "indices": range(len(data)),
        "torch": torch,
        "random_crop": lambda row, rng: row,
        "losses": lambda model, batch: list(batch["action"].mean(dim=(1, 2))),
        "ddp": torch.nn.DataParallel(torch.nn.Identity()),
    }
    return {"range(90)": "range(2)", "num_workers=4": "num_workers=2"}, names


@of("docs/verify.md")
def _verify(request: Any) -> tuple[Words, Names]:
    path = cached("ho3d", hands())
    (shard,) = Path(cached("ho3d", Path("hands"), "damaged")).glob("fields/handJoints3D/c.*")
    flipped = bytearray(shard.read_bytes())
    flipped[1000] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(flipped)
    other = cached("ho3d", hands("second", ("nan-joint",)), "second-cache")
    return {
        "PATH": path,
        "PIPELINE|SCHEMA": "ho3d",
        "DATA": "hands",
        "FIRST": path,
        "SECOND": other,
    }, {}


@of("docs/quickstart/README.md")
def _quickstarts(request: Any) -> tuple[Words, Names]:
    synth.write("ho3d", Path("demo/ho3d/data"))
    faults.plant("ho3d", Path("demo/ho3d/data"))
    return {}, {}


@of("docs/quickstart/grasps.md")
@of("docs/quickstart/hands.md")
@of("docs/quickstart/language.md")
@of("docs/quickstart/robots.md")
@of("docs/quickstart/scenes.md")
def _quickstart(request: Any) -> tuple[Words, Names]:
    # Of the demo's training, in place of 300
    request.getfixturevalue("monkeypatch").setattr(course, "STEPS", 30)
    return {}, {}
