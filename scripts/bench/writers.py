"""What others write of the same clouds, each by the call that its own documentation starts with.

    PYTHON writers.py NAME DATA OUT WORKERS     prints seconds until it returned, and until its
    files were on the disk

NAME is streaming, litdata, webdataset, datasets or zarr; PYTHON is one that has it. Samples are
read with `np.load`; shards are of 64 MB where that can be said, nothing is compressed. Starting
Python and importing are not counted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np

SHARD = 64 << 20  # bytes
ITEM = (4096, 6)


def load(path: str) -> dict[str, Any]:
    """Return one sample."""
    return {"cloud": np.load(path)}


def rows(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a list of files."""
    yield from map(load, paths)


def streaming(workers: int) -> Callable[[list[str], Path], None]:
    """MosaicML Streaming's MDSWriter."""
    # it imports torchvision for datasets of pictures, which has no build for processors alone
    for name in (
        "torchvision",
        "torchvision.datasets",
        "torchvision.transforms",
        "torchvision.transforms.functional",
    ):
        sys.modules[name] = module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(VisionDataset=object, to_tensor=None)
    from streaming.base import MDSWriter

    def write(paths: list[str], out: Path) -> None:
        columns = {"cloud": f"ndarray:float32:{','.join(map(str, ITEM))}"}
        with MDSWriter(out=str(out), columns=columns, size_limit=SHARD) as writer:
            for sample in rows(paths):
                writer.write(sample)

    return write


def litdata(workers: int) -> Callable[[list[str], Path], None]:
    """LitData's optimize."""
    from litdata import optimize

    return lambda paths, out: optimize(
        fn=load,
        inputs=paths,
        output_dir=str(out),
        chunk_bytes=SHARD,
        num_workers=workers,
        verbose=False,
    )


def webdataset(workers: int) -> Callable[[list[str], Path], None]:
    """WebDataset's ShardWriter."""
    from webdataset import ShardWriter

    def write(paths: list[str], out: Path) -> None:
        with ShardWriter(f"{out}/%06d.tar", maxsize=SHARD, verbose=0) as writer:
            for path in paths:
                writer.write({"__key__": Path(path).stem, "cloud.npy": np.load(path)})

    return write


def datasets(workers: int) -> Callable[[list[str], Path], None]:
    """Hugging Face's Dataset.from_generator."""
    from datasets import Array2D, Dataset, Features, disable_progress_bars

    disable_progress_bars()
    several = {"num_proc": workers} if workers > 1 else {}
    features = Features({"cloud": Array2D(ITEM, "float32")})
    return lambda paths, out: Dataset.from_generator(
        rows, features=features, cache_dir=str(out), gen_kwargs={"paths": paths}, **several
    )


def zarr(workers: int) -> Callable[[list[str], Path], None]:
    """zarr-python: shards of whole batches, one sample an inner chunk."""
    import zarr as zarr_python

    def write(paths: list[str], out: Path) -> None:
        k = SHARD // (4 * ITEM[0] * ITEM[1])
        array = zarr_python.create_array(
            str(out / "clouds.zarr"),
            shape=(len(paths), *ITEM),
            dtype="float32",
            chunks=(1, *ITEM),
            shards=(k, *ITEM),
            compressors=None,
        )
        for first in range(0, len(paths), k):
            array[first : first + k] = np.stack(
                [np.load(path) for path in paths[first : first + k]]
            )

    return write


WRITERS = {one.__name__: one for one in (streaming, litdata, webdataset, datasets, zarr)}


def on_disk(folder: Path) -> None:
    """Wait until every file below a folder is on the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def timed(write: Callable[[], object], out: Path) -> tuple[float, float]:
    """Return the seconds until a call returned, and until its files were on the disk."""
    start = time.perf_counter()
    write()
    returned = time.perf_counter() - start
    on_disk(out)
    return returned, time.perf_counter() - start


def main() -> None:
    """Write, and print what it took."""
    name, data, out, workers = sys.argv[1:]
    paths = sorted(str(path) for path in Path(data).iterdir())
    Path(out).mkdir(parents=True)
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
        write = WRITERS[name](int(workers))
        took = timed(partial(write, paths, Path(out)), Path(out))
    print(*took)


if __name__ == "__main__":
    main()
