"""How others read random batches of the same samples, each by the fast call of its own documentation.

Run by reading.py, in a Python that has the library. Three environments hold them all, as two of
them pin others:

    pip install datasets webdataset zarr
    pip install mosaicml-streaming litdata torch
    pip install pylance tensorstore array-record h5py

Nothing is compressed; shards are of 64 MB where that can be said. A batch is what a training loop
gets: arrays in memory of their own, stacked where samples have one shape. Of several ways that a
library has, the one is here that was fastest in the page cache.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
from flat import Array, Batch, Data, Items

SHARD = 64 << 20


class Store:
    """A store of the samples of `data` in `folder`; `read` returns the rows of items, or others (`served` says)."""

    package = ""

    def __init__(self, data: Data, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.served: Items = []
        self.opened: Any = None

    def write(self) -> None:
        """Write it."""
        raise NotImplementedError

    def open(self) -> None:
        """Open what was written."""
        raise NotImplementedError

    def read(self, items: Items) -> Batch:
        """Return a batch, read record by record where a store has no better way."""
        return self.data.batch([self.opened[number] for number in self.data.numbers(items)])


def arrow(data: Data) -> Any:
    """Return all records as an Arrow table: lists of one length, or of any."""
    import pyarrow as pa

    columns = {}
    for name, rows in data.maps().items():
        flat, size = pa.array(rows.reshape(-1)), rows[0].size
        if data.ragged:
            ends = pa.array(np.append(data.starts, data.rows) * size)
            columns[name] = pa.LargeListArray.from_arrays(ends, flat)
        else:
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.table(columns)


def of_arrow(data: Data, table: Any) -> Batch:
    """Return the batch of some rows of such a table, ragged ones behind one another."""
    return {
        name: table[name].combine_chunks().flatten().to_numpy().reshape(-1, *item)
        for name, (_, item) in data.fields.items()
    }


class Datasets(Store):
    """Hugging Face datasets: memory-mapped Arrow, a list of indices of the numpy format."""

    package = "datasets"

    def write(self) -> None:
        """Lists of one length; ragged: of any."""
        from datasets import Dataset

        Dataset(arrow(self.data)).save_to_disk(self.folder, max_shard_size=SHARD)

    def open(self) -> None:
        """Memory maps are its default."""
        from datasets import load_from_disk

        dtype = next(dtype for dtype, _ in self.data.fields.values())
        # Else integers become int64
        self.opened = load_from_disk(self.folder).with_format("numpy", dtype=dtype)

    def read(self, items: Items) -> Batch:
        """Return the rows at indices."""
        found = self.opened[self.data.numbers(items)]
        if self.data.ragged:  # views of the map, nothing was read yet
            found = {name: np.concatenate(list(rows)) for name, rows in found.items()}
        return {
            name: found[name].reshape(-1, *item) for name, (_, item) in self.data.fields.items()
        }


class ArrowDatasets(Datasets):
    """The same in its arrow format: views of what it gathered."""

    def open(self) -> None:
        """As the other."""
        super().open()
        self.opened = self.opened.with_format("arrow")

    def read(self, items: Items) -> Batch:
        """Return the rows at indices."""
        return of_arrow(self.data, self.opened[self.data.numbers(items)])


class WebDataset(Store):
    """WebDataset: sequential reads of tar, shuffled by shards and in a buffer, so samples and order are its own.

    Of an episode as many windows are cut as it has room for.
    """

    package = "webdataset"

    def write(self) -> None:
        """A sample is one member of a tar."""
        from webdataset import ShardWriter

        self.folder.mkdir()
        maps = self.data.maps()
        with ShardWriter(f"{self.folder}/%06d.tar", maxsize=SHARD, verbose=0) as writer:
            for i, (start, length) in enumerate(
                zip(self.data.starts, self.data.lengths, strict=True)
            ):
                record = {name: rows[start : start + length] for name, rows in maps.items()}
                writer.write({"__key__": f"{i:08d}", "x": self.data.packed(record)})

    def open(self) -> None:
        """A buffer of 1000 samples, or of 1 GB."""
        from webdataset import WebDataset as Tars

        held = int(min(1000, 1e9 // (self.data.row_bytes * self.data.lengths.max()))) or 1
        urls = sorted(str(path) for path in self.folder.iterdir())
        tars = (
            Tars(urls, shardshuffle=100, empty_check=False)
            .shuffle(held, initial=min(held, 100))
            .repeat()
        )
        self.opened = (window for sample in tars for window in self._windows(sample))

    def _windows(self, sample: dict[str, Any]) -> Iterator[tuple[int, int, dict[str, Array]]]:
        first = int(self.data.starts[int(sample["__key__"])])
        record = self.data.unpacked(sample["x"], rows=bool(self.data.steps))
        if not self.data.steps:
            yield first, len(record["x"]) if self.data.ragged else 1, record
            return
        for at in range(0, len(next(iter(record.values()))) - self.data.steps + 1, self.data.steps):
            yield (
                first + at,
                self.data.steps,
                {n: rows[at : at + self.data.steps] for n, rows in record.items()},
            )

    def read(self, items: Items) -> Batch:
        """Return as many, of its own choice."""
        found = [next(self.opened) for _ in items]
        self.served = [[first, count] for first, count, _ in found]
        return self.data.batch([record for *_, record in found])


class Zarr(Store):
    """zarr-python: shards; `oindex` of one chunk a sample, a slice for each cloud or window."""

    package = "zarr"

    def chunk(self) -> int:
        """Return the rows of an inner chunk."""
        if self.data.ragged:
            return 1 << 15
        return 16 if self.data.steps else max(1, (64 << 10) // self.data.row_bytes)

    def write(self) -> None:
        """Shards of 64 MB."""
        import zarr

        maps, chunk = self.data.maps(), self.chunk()
        for name, (dtype, item) in self.data.fields.items():
            k = max(1, SHARD // (chunk * dtype.itemsize * int(np.prod(item)))) * chunk
            array = zarr.create_array(
                str(self.folder / name),
                shape=(self.data.rows, *item),
                dtype=dtype,
                chunks=(chunk, *item),
                shards=(k, *item),
                compressors=None,
                filters=None,
            )
            for first in range(0, self.data.rows, k):
                array[first : first + k] = maps[name][first : first + k]

    def open(self) -> None:
        """An array for each field."""
        import zarr

        self.opened = {
            name: zarr.open_array(str(self.folder / name), mode="r") for name in self.data.fields
        }

    def read(self, items: Items) -> Batch:
        """Return the rows."""
        if self.data.ragged or self.data.steps:
            return {
                n: [array[first : first + count] for first, count in items]
                for n, array in self.opened.items()
            }
        rows = np.array([first for first, _ in items])
        return {name: array.oindex[rows] for name, array in self.opened.items()}


class TensorStore(Zarr):
    """TensorStore: the same layout; all reads of a batch at once."""

    package = "tensorstore"

    def _opened(self, name: str, **options: Any) -> Any:
        import tensorstore as ts

        store = {"driver": "file", "path": str(self.folder / name)}
        return ts.open({"driver": "zarr3", "kvstore": store}, **options).result()

    def write(self) -> None:
        """Shards of 64 MB."""
        import tensorstore as ts

        maps, chunk = self.data.maps(), self.chunk()
        for name, (dtype, item) in self.data.fields.items():
            k = max(1, SHARD // (chunk * dtype.itemsize * int(np.prod(item)))) * chunk
            array = self._opened(
                name,
                create=True,
                shape=(self.data.rows, *item),
                dtype=dtype.name,
                chunk_layout=ts.ChunkLayout(
                    read_chunk_shape=(chunk, *item), write_chunk_shape=(k, *item)
                ),
            )
            for first in range(0, self.data.rows, k):
                last = min(first + k, self.data.rows)
                array[first:last].write(maps[name][first:last]).result()

    def open(self) -> None:
        """An array for each field."""
        self.opened = {name: self._opened(name, read=True) for name in self.data.fields}

    def read(self, items: Items) -> Batch:
        """Return the rows."""
        import tensorstore as ts

        if self.data.ragged or self.data.steps:
            with ts.Batch() as batch:
                waiting = {
                    name: [array[first : first + count].read(batch=batch) for first, count in items]
                    for name, array in self.opened.items()
                }
            return {name: [one.result() for one in some] for name, some in waiting.items()}
        rows = np.array([first for first, _ in items])
        with ts.Batch() as batch:
            found = {name: array[rows].read(batch=batch) for name, array in self.opened.items()}
        return {name: some.result() for name, some in found.items()}


class Streaming(Store):
    """MosaicML Streaming: MDS, sample by sample."""

    package = "mosaicml-streaming"

    def _imported(self) -> Any:
        # it imports torchvision for datasets of pictures, which has no build for processors alone
        for name in ("", ".datasets", ".transforms", ".transforms.functional"):
            sys.modules[f"torchvision{name}"] = module = types.ModuleType(f"torchvision{name}")
            module.__spec__ = ModuleSpec(f"torchvision{name}", None)
            vars(module).update(VisionDataset=object, to_tensor=None)
        import streaming.base

        return streaming.base

    def write(self) -> None:
        """A record is an array of fixed shape; ragged: of any."""
        columns = {}
        for name, (dtype, item) in self.data.fields.items():
            columns[name] = f"ndarray:{dtype.name}" + (
                "" if self.data.ragged else ":" + ",".join(map(str, item))
            )
        with self._imported().MDSWriter(
            out=str(self.folder), columns=columns, size_limit=SHARD
        ) as writer:
            for number in self.data.records():
                writer.write(self.data.record(number))

    def open(self) -> None:
        """All of it is local."""
        base = self._imported()
        base.util.clean_stale_shared_memory()
        self.opened = base.StreamingDataset(local=str(self.folder), batch_size=1)


class LitData(Store):
    """LitData: chunks, sample by sample."""

    package = "litdata"

    def write(self) -> None:
        """One process."""
        from litdata import optimize

        optimize(
            fn=self.data.record,
            inputs=list(self.data.records()),
            output_dir=str(self.folder),
            chunk_bytes=SHARD,
            num_workers=1,
            verbose=False,
            start_method="fork",
        )

    def open(self) -> None:
        """All of it is local."""
        from litdata import StreamingDataset

        self.opened = StreamingDataset(str(self.folder), max_cache_size="200GB", batch_decode=0)


class Lance(Store):
    """Lance: lists of one length (ragged: of any) taken at indices."""

    package = "pylance"

    def write(self) -> None:
        """One table."""
        import lance

        lance.write_dataset(arrow(self.data), self.folder)

    def open(self) -> None:
        """Open the newest version."""
        import lance

        self.opened = lance.dataset(str(self.folder))

    def read(self, items: Items) -> Batch:
        """Return the rows taken."""
        return of_arrow(self.data, self.opened.take(self.data.numbers(items)))


class ArrayRecord(Store):
    """ArrayRecord: records of bytes, a batch in one call."""

    package = "array-record"

    def write(self) -> None:
        """One record in a group, as random access wants it."""
        from array_record.python.array_record_module import ArrayRecordWriter

        self.folder.mkdir()
        writer, size, files = None, 0, 0
        for number in self.data.records():
            raw = self.data.packed(self.data.record(number))
            if writer is None or size + len(raw) > SHARD:
                if writer is not None:
                    writer.close()
                writer, size = (
                    ArrayRecordWriter(f"{self.folder}/{files:06d}", "group_size:1,uncompressed"),
                    0,
                )
                files += 1
            writer.write(raw)
            size += len(raw)
        writer.close()

    def open(self) -> None:
        """All files of the folder."""
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        self.opened = ArrayRecordDataSource(sorted(str(path) for path in self.folder.iterdir()))

    def read(self, items: Items) -> Batch:
        """Return the records."""
        found = self.opened.__getitems__(self.data.numbers(items))
        return self.data.batch([self.data.unpacked(raw) for raw in found])


class Robomimic(Store):
    """The HDF5 layout of robomimic: data/demo_i/obs/NAME, a slice for each; samples of one shape are steps of demos."""

    package = "h5py"
    steps = 200

    def write(self) -> None:
        """One file."""
        import h5py

        self.folder.mkdir()
        maps = self.data.maps()
        fixed = not self.data.ragged and not self.data.steps
        starts = np.arange(0, self.data.rows, self.steps) if fixed else self.data.starts
        with h5py.File(self.folder / "data.hdf5", "w") as file:
            for i, (start, stop) in enumerate(
                zip(starts, [*starts[1:], self.data.rows], strict=True)
            ):
                for name, rows in maps.items():
                    file[f"data/demo_{i}/obs/{name}"] = rows[start:stop]

    def open(self) -> None:
        """Look the arrays up once."""
        import h5py

        self.file = h5py.File(self.folder / "data.hdf5", "r")
        demos = self.file["data"]
        self.opened = {
            n: [demos[f"demo_{i}/obs/{n}"] for i in range(len(demos))] for n in self.data.fields
        }
        self.starts = np.cumsum([0, *map(len, next(iter(self.opened.values())))])

    def read(self, items: Items) -> Batch:
        """Return the slices."""
        firsts = np.array([first for first, _ in items])
        demos = np.searchsorted(self.starts, firsts, side="right") - 1
        at, counts = (firsts - self.starts[demos]).tolist(), [count for _, count in items]
        batch: Batch = {}
        for name, arrays in self.opened.items():
            dtype, item = self.data.fields[name]
            batch[name] = out = np.empty((sum(counts), *item), dtype)
            to = 0
            for demo, first, count in zip(demos.tolist(), at, counts, strict=True):
                out[to : to + count] = arrays[demo][first : first + count]
                to += count
        return batch


KNOWN = (
    Datasets,
    ArrowDatasets,
    WebDataset,
    Zarr,
    Streaming,
    LitData,
    Lance,
    ArrayRecord,
    TensorStore,
    Robomimic,
)
STORES = {store.__name__.lower(): store for store in KNOWN}
