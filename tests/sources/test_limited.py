"""Whoever reads files limits what each may take by its size: the same file is as dear in every command."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.build import field_stats
from datacheck.errors import FormatError
from datacheck.infer.inner_samples import inner_groups
from datacheck.infer.worker import profile_samples
from datacheck.preview.reading import draw_items, read_joints
from datacheck.repro.sample_digests import digest_items
from datacheck.repro.values import compare_files, compare_items
from datacheck.runtime.beneath import ConfinedFolder, File
from datacheck.schema.load import parse_schema
from datacheck.sources import named_files
from datacheck.sources.lerobot import read_meta
from datacheck.sources.loader_tables import read_values
from datacheck.workers.child import Pulse

SCHEMA = parse_schema(
    "datacheck: 1\nname: t\nsamples: {files: '{id}.npz'}\nfields: {xyz: {role: joints, shape: "
    "[J,3]}}\n"
)


class Told(Pulse):
    """What is said of the sizes of items."""

    def __init__(self):
        self.sizes = []

    def __call__(self, item):
        pass

    def files(self, nbytes):
        self.sizes.append(nbytes)


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "a.npz", xyz=np.zeros((21, 3), np.float32))
    return tmp_path


def place(data):
    return {"schema": SCHEMA.as_dict(), "root": str(data), "roots": {}}


def asked(data, count=1):
    from datacheck.sources.listing import list_files
    from datacheck.sources.planning import plan_work

    items = [item.as_dict() for item in plan_work(SCHEMA, list_files(data)).items]
    assert len(items) == count
    return items if count > 1 else items[0]


COMMANDS = {
    "init": lambda data, beat: profile_samples(
        place(data) | {"items": [asked(data)], "most": 9}, beat
    ),
    "groups": lambda data, beat: inner_groups(
        {"root": str(data), "roots": {}, "items": [{"path": "a.npz"}]}, beat
    ),
    "view": lambda data, beat: draw_items(
        place(data) | {"items": [{"item": asked(data), "first": {}}], "points": 9, "most": 9999},
        beat,
    ),
    "overlay": lambda data, beat: read_joints(
        place(data) | {"items": [{"item": asked(data)}], "field": "xyz"}, beat
    ),
    "build": lambda data, beat: field_stats.look(place(data) | {"items": [asked(data)]}, beat),
    "manifest": lambda data, beat: digest_items(place(data) | {"items": [asked(data)]}, beat),
    "document": lambda data, beat: read_values(place(data) | {"items": ["a.npz"]}, beat),
    "index": lambda data, beat: named_files.read_named_files(
        place(data) | {"index": "index.json", "most": 9, "items": [{"path": "a.npz"}]}, beat
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_child_says_how_large_the_files_of_an_item_are(data, command):
    """An archive of 8 MB took 3 to 5 GB: only a scan held its memory against its size."""
    told = Told()
    COMMANDS[command](data, told)
    assert told.sizes == [(data / "a.npz").stat().st_size]


def test_files_that_are_read_together_may_take_as_much_as_all(data):
    np.savez(data / "b.npz", xyz=np.ones((21, 3), np.float32))
    size, (one, other) = (data / "a.npz").stat().st_size, asked(data, 2)
    told = Told()
    assert len(digest_items(place(data) | {"items": [one, other]}, told)["blocks"]) == 1
    assert told.sizes == [size, 2 * size]


@pytest.fixture
def holes(data):
    """The same file behind a hole, which an archive may have: it takes no room on the disk."""
    stored = (data / "a.npz").read_bytes()
    with (data / "a.npz").open("wb") as file:
        file.seek(512 << 20)
        file.write(stored)
    return data


@pytest.mark.parametrize("command", COMMANDS)
def test_holes_justify_no_memory(holes, command):
    told = Told()
    COMMANDS[command](holes, told)
    assert told.sizes == [16 << 20]  # as of a file without holes in which any part may be missing


def test_holes_of_two_files_that_are_compared_justify_no_memory(holes):
    side, told = {"root": str(holes), "roots": {}}, Told()
    compare_files({"first": side, "second": side, "items": [["a.npz", "a.npz"]]}, told)
    compare_items(
        {"first": place(holes), "second": place(holes), "items": [[asked(holes)] * 2]}, told
    )
    assert told.sizes == [2 * (16 << 20)] * 2


def test_two_files_that_are_compared_may_take_as_much_as_both(data):
    size, side = (data / "a.npz").stat().st_size, {"root": str(data), "roots": {}}
    told = Told()
    compare_files({"first": side, "second": side, "items": [["a.npz", "a.npz"]]}, told)
    compare_items({"first": place(data), "second": place(data), "items": [[asked(data)] * 2]}, told)
    assert told.sizes == [2 * size, 2 * size]


def test_a_table_of_far_more_episodes_than_its_bytes_can_hold_is_refused(tmp_path):
    """349 kB took 8 GB: each row became a mapping."""
    (tmp_path / "meta/episodes/chunk-000").mkdir(parents=True)
    (tmp_path / "meta/info.json").write_text('{"codebase_version": "v3.0", "features": {}}')
    zeros = pa.array(np.zeros(300_000, np.int64))
    names = ("episode_index", "length", "data/chunk_index", "data/file_index")
    file = tmp_path / "meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(
        pa.table(dict.fromkeys(names, zeros)), file, compression="zstd", row_group_size=300_000
    )
    assert 16 * file.stat().st_size < 262_144
    with pytest.raises(FormatError, match="300,000"):
        read_meta(File(ConfinedFolder(str(tmp_path)), ""))
