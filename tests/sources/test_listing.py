"""The listing: order, what is left out and why, what counts as unchanged."""

import contextlib
import json
import os
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import xxhash
import zarr
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import FormatError, StorageError, UsageError
from datacheck.repro import manifest
from datacheck.sources import listing
from datacheck.sources.listing import (
    Listing,
    carried_digests,
    digest_entry,
    list_files,
    locate,
    stat_entry,
    target,
)
from datacheck.sources.roots import Entries, Entry


def write(root: Path, *paths: str, data: bytes = b"x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def paths(listing: Listing) -> list[str]:
    return [entry.path for entry in listing.entries]


def reasons(listing: Listing) -> dict[str, str]:
    return dict(listing.skipped)


def test_files_come_sorted_by_the_bytes_of_their_path(tmp_path):
    names = ["b", "a/z", "a.b", "a/é", "a-b", "Z", "a/B", "ü", "𝄞", "\uffff"]
    write(tmp_path, *names)
    assert paths(list_files(tmp_path)) == sorted(names, key=os.fsencode)


@given(
    st.lists(
        st.text("abé-.0", min_size=1, max_size=3).filter(lambda n: not n.startswith(".")),
        unique=True,
        max_size=8,
    ),
    st.integers(),
)
def test_the_order_of_creation_does_not_matter(tmp_path_factory, names, seed):
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    write(first, *names)
    shuffled = list(names)
    random.Random(seed).shuffle(shuffled)
    write(second, *shuffled)
    assert paths(list_files(first)) == paths(list_files(second)) == sorted(names, key=os.fsencode)
    assert list_files(first).digest == list_files(second).digest


def test_an_entry_says_what_stat_says(tmp_path):
    write(tmp_path, "a/x.npy", data=b"12345")
    status = (tmp_path / "a/x.npy").stat()
    (entry,) = list_files(tmp_path).entries
    assert (entry.path, entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode, entry.digest) == (
        "a/x.npy",
        5,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        None,
    )
    assert entry.seen_ns >= status.st_mtime_ns
    now = stat_entry(tmp_path, "a/x.npy")
    assert now is not None
    assert now[:5] == entry[:5]


def test_clutter_is_reported_and_the_folders_of_tools_are_not(tmp_path):
    write(
        tmp_path,
        "x.npy",
        ".git/config",
        "a/.datacheck/20261126T111143Z-t-842fd203/report.html",
        "a/__pycache__/m.pyc",
    )
    write(tmp_path, "._x.npy", ".DS_Store", "a/Thumbs.db", ".hidden/y.npy")
    listing = list_files(tmp_path)
    assert paths(listing) == ["x.npy"]
    assert sorted(reasons(listing)) == [".DS_Store", "._x.npy", ".hidden", "a/Thumbs.db"]


@pytest.mark.parametrize(
    "file",
    [
        ".git/9.npy",
        ".datacheck/9.npy",
        "__pycache__/9.npy",
        "__pycache__/sub/9.npy",
        ".git/lfs/9.npy",
    ],
)
def test_data_in_a_folder_that_is_called_as_one_of_a_tool_are_told(tmp_path, file):
    write(tmp_path, "x.npy", file)
    listing, folder = list_files(tmp_path), file.split("/")[0]
    assert (paths(listing), reasons(listing)) == (
        ["x.npy"],
        {folder: "hidden or left behind by another program"},
    )


def test_a_repository_of_git_is_none_of_the_data(tmp_path):
    write(tmp_path, "x.npy", ".git/HEAD", ".git/objects/ab/cd", ".git/lfs/objects/9.npy")
    assert reasons(list_files(tmp_path)) == {}


def test_links_are_followed_inside_the_folder_only(tmp_path):
    root = tmp_path / "data"
    write(root, "real/x.npy", data=b"abc")
    write(tmp_path, "outside/secret.npy")
    write(tmp_path, "data2/near.npy")  # its path starts with the root's, and is not in it
    (root / "file.npy").symlink_to(root / "real/x.npy")
    (root / "folder").symlink_to(root / "real")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "near.npy").symlink_to(tmp_path / "data2/near.npy")
    (root / "gone.npy").symlink_to(root / "nothing")
    listing = list_files(root)
    assert paths(listing) == ["file.npy", "folder/x.npy", "real/x.npy"]
    assert {entry.size for entry in listing.entries} == {3}
    found = reasons(listing)
    assert sorted(found) == ["gone.npy", "near.npy", "out"]
    assert "to nothing" in found["gone.npy"]
    assert "out of the data folder" in found["out"]
    assert "out of the data folder" in found["near.npy"]


def test_links_that_lead_back_end(tmp_path):
    write(tmp_path, "a/x.npy", "b/y.npy", "ab/z.npy")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/self").symlink_to(tmp_path / "a")
    (tmp_path / "a/across").symlink_to(tmp_path / "b")
    (tmp_path / "b/across").symlink_to(tmp_path / "a")
    (tmp_path / "ab/sibling").symlink_to(tmp_path / "b")  # "ab" only looks as if it were above "a"
    listing = list_files(tmp_path)
    assert {"a/x.npy", "b/y.npy", "a/across/y.npy", "b/across/x.npy", "ab/sibling/y.npy"} <= set(
        paths(listing)
    )
    assert len(listing.entries) < 40
    assert "leads back" in reasons(listing)["a/up"]
    assert "leads back" in reasons(listing)["a/self"]


def test_pipes_sockets_and_odd_names_are_skipped(tmp_path):
    write(tmp_path, "x.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            server.bind("socket.npy")
        finally:
            os.chdir(here)
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.npy")).write_bytes(b"x")
        listing = list_files(tmp_path)
    assert paths(listing) == ["x.npy"]
    found = reasons(listing)
    assert sorted(found) == ["bad\\xff.npy", "pipe.npy", "socket.npy"]
    assert "UTF-8" in found["bad\\xff.npy"]
    assert all(path.isprintable() for path, _ in listing.skipped)


def test_names_with_newlines_and_control_characters_are_kept(tmp_path):
    write(tmp_path, "a\nb.npy", "c\x1b[31m.npy", "\u202ex.npy", "n" * 250 + ".npy")
    assert len(list_files(tmp_path).entries) == 4


def test_a_zarr_store_is_one_entry_that_changes_when_a_chunk_does(tmp_path):
    store = tmp_path / "d/replay.zarr"
    zarr.create_array(store / "data/action", shape=(4, 2), chunks=(2, 2), dtype="f4")[:] = 1.0
    zarr.open_group(store, mode="a")
    first = list_files(tmp_path)
    assert paths(first) == ["d/replay.zarr"]
    inner = [p for p in store.rglob("*") if p.is_file()]
    assert first.entries[0].size == sum(p.stat().st_size for p in inner)
    before = digest_entry(tmp_path, "d/replay.zarr")
    inner[0].write_bytes(inner[0].read_bytes() + b" ")
    second = list_files(tmp_path)
    assert second.entries[0][:4] != first.entries[0][:4]
    assert digest_entry(tmp_path, "d/replay.zarr") != before
    now = stat_entry(tmp_path, "d/replay.zarr")
    assert now is not None
    assert now[:5] == second.entries[0][:5]


def test_one_file_alone(tmp_path):
    write(tmp_path, "a/x.npy", "a/y.npy")
    assert paths(list_files(tmp_path, only="a/x.npy")) == ["a/x.npy"]
    for wrong in ("a/z.npy", "../x", "/etc/passwd"):
        with pytest.raises(UsageError, match="no file"):
            list_files(tmp_path, only=wrong)


def test_a_target_is_a_folder_a_file_or_a_store(tmp_path):
    write(tmp_path, "a/x.npy", "z.zarr/.zgroup")
    assert target(tmp_path) == (tmp_path, None)
    assert target(tmp_path / "a/x.npy") == (tmp_path / "a", "x.npy")
    assert target(tmp_path / "z.zarr") == (tmp_path, "z.zarr")
    with pytest.raises(UsageError, match="no such file or folder"):
        target(tmp_path / "none")


def test_roots_that_are_not_there_are_one_message(tmp_path):
    write(tmp_path, "x")
    for wrong in (tmp_path / "none", tmp_path / "x"):
        with pytest.raises(UsageError, match=str(wrong)):
            list_files(wrong)
        with pytest.raises(UsageError, match=str(wrong)):
            list_files(tmp_path, {"objects": wrong})


def test_an_empty_folder_is_an_empty_listing(tmp_path):
    listing = list_files(tmp_path)
    assert (list(listing.entries), listing.nbytes, listing.skipped) == ([], 0, [])
    assert listing.digest == list_files(tmp_path).digest


def test_extra_roots_are_listed_under_their_name(tmp_path):
    write(tmp_path, "data/x.npy", "meshes/mug/mesh.obj")
    listing = list_files(tmp_path / "data", {"objects": tmp_path / "meshes"})
    assert paths(listing) == ["@objects/mug/mesh.obj", "x.npy"]
    assert (
        locate(listing.root, listing.roots, "@objects/mug/mesh.obj")
        == tmp_path / "meshes/mug/mesh.obj"
    )
    assert locate(listing.root, listing.roots, "@other/x") == tmp_path / "data/@other/x"


def test_more_than_a_thousand_extra_roots_are_one_message(tmp_path):
    write(tmp_path, "data/x.npy", "meshes/mesh.obj")
    roots = {f"r{number}": tmp_path / "meshes" for number in range(1001)}
    with pytest.raises(UsageError, match=r"1,001 extra folders; at most 1,000 are read"):
        list_files(tmp_path / "data", roots)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_name_in_the_data_that_stands_for_an_extra_root_is_left_out(tmp_path, kind):
    write(tmp_path, "data/x.npy", "data/deep/@objects", "meshes/mug/mesh.obj")
    if kind == "link":
        (tmp_path / "data/@objects").symlink_to("deep")
    else:
        write(tmp_path, "data/@objects" + ("/mug/mesh.obj" if kind == "folder" else ""))
    listing = list_files(tmp_path / "data", {"objects": tmp_path / "meshes"})
    assert paths(listing) == ["@objects/mug/mesh.obj", "deep/@objects", "x.npy"]
    assert listing.skipped == [("@objects", "named as files of --root objects= are; rename it")]
    if kind == "file":
        with pytest.raises(UsageError, match="@objects is named as files of --root objects= are"):
            list_files(tmp_path / "data", {"objects": tmp_path / "meshes"}, "@objects")
    assert (
        "@objects" in {path.partition("/")[0] for path in paths(list_files(tmp_path / "data"))}
        or kind == "link"
    )


def test_digests_are_xxh3_of_the_bytes(tmp_path):
    write(tmp_path, "x.npy", data=b"abc" * 1000)
    assert digest_entry(tmp_path, "x.npy") == xxhash.xxh3_128_hexdigest(b"abc" * 1000)
    with pytest.raises(FormatError, match=r"y\.npy"):
        digest_entry(tmp_path, "y.npy")
    assert stat_entry(tmp_path, "y.npy") is None


def test_the_digest_of_a_listing_sees_names_and_contents_and_no_times(tmp_path):
    write(tmp_path, "x", "y")
    digests = np.array(["1" * 32, "2" * 32], "S32")
    first = list_files(tmp_path).with_digests(digests)
    os.utime(tmp_path / "x", ns=(1, 1))
    again = list_files(tmp_path).with_digests(digests)
    assert again.digest == first.digest
    assert again.with_digests(digests[::-1]).digest != first.digest


def entry(**changes) -> Entry:
    base = {
        "path": "x",
        "size": 5,
        "mtime_ns": 10**10,
        "ctime_ns": 10**10,
        "inode": 7,
        "seen_ns": 12 * 10**9,
    }
    return Entry(**(base | {"digest": "d" * 32} | changes))


def kept(old: Entry, new: Entry) -> str | None:
    before, now = (Listing(Path("/data"), Entries.of([entry])) for entry in (old, new))
    return now.with_digests(carried_digests(now, before)).entries[0].digest


def test_a_digest_is_carried_when_nothing_changed():
    assert kept(entry(), entry(digest=None, seen_ns=10**18)) == "d" * 32


@pytest.mark.parametrize(
    "change", [{"size": 6}, {"mtime_ns": 1}, {"ctime_ns": 1}, {"inode": 8}, {"path": "y"}]
)
def test_a_digest_is_not_carried_when_anything_changed(change):
    assert kept(entry(), entry(digest=None, **change)) is None


def test_a_digest_is_not_carried_within_two_seconds_of_the_write():
    assert kept(entry(seen_ns=10**10 + 2 * 10**9 - 1), entry(digest=None)) is None
    assert kept(entry(seen_ns=10**10 + 2 * 10**9), entry(digest=None)) == "d" * 32


def named(folder):
    """Return the path of a folder that is given by its path or its descriptor."""
    return os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) else os.fspath(folder)


def test_a_folder_is_opened_once_and_a_plain_file_is_looked_at_by_its_folder_alone(
    tmp_path, monkeypatch
):
    write(
        tmp_path,
        *(f"{folder:03d}/{number:04d}.pkl" for folder in range(20) for number in range(100)),
    )
    opened, closer = [], []
    scan, visit = os.scandir, listing._Walk._visit
    monkeypatch.setattr(os, "scandir", lambda folder: opened.append(named(folder)) or scan(folder))
    monkeypatch.setattr(
        listing._Walk, "_visit", lambda *args: closer.append(args[1].name) or visit(*args)
    )
    assert len(list_files(tmp_path).entries) == 2000
    assert sorted(opened[1:]) == [
        str(tmp_path),
        *(str(tmp_path / f"{folder:03d}") for folder in range(20)),
    ]
    assert sorted(closer) == [f"{folder:03d}" for folder in range(20)]  # not one of 2,000 files


def test_folders_that_link_to_one_another_do_not_list_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "LINKED", 500)
    for i in range(7):
        write(tmp_path, f"{i}/a.npy")
        for j in range(7):
            if i != j:
                (tmp_path / str(i) / f"to{j}").symlink_to(tmp_path / str(j))
    listed = list_files(tmp_path)  # 13,699 paths behind up to six links
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: Reversed(scandir(folder)))
    again = list_files(tmp_path)
    # Whatever the order on disk
    assert (paths(again), again.skipped) == (paths(listed), listed.skipped)
    # A file behind each link, of which each round follows seven
    assert 500 - 7 < len(listed.entries) - 7 <= 500
    assert {f"{i}/to{j}/a.npy" for i in range(7) for j in range(7) if i != j} <= {*paths(listed)}
    left = [pair for pair in listed.skipped if "leads back to itself" not in pair[1]]
    assert len(left) == 101
    assert all("links lead to more than 500 folders" in reason for _, reason in left[:100])
    assert "more links to folders that are not followed" in left[100][1]


class Reversed(contextlib.AbstractContextManager):
    """A scan of a folder as another disk gives it."""

    def __init__(self, scan):
        with scan:
            self.found = list(scan)[::-1]

    def __iter__(self):
        return iter(self.found)

    def __exit__(self, *_):
        return None


def test_many_links_to_one_folder_hide_no_link_to_another(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "BEHIND", 100)
    write(tmp_path, *(f"notes/{i}.log" for i in range(10)), ".s/9.npy")
    for i in range(120):
        (tmp_path / f"a{i:03}").symlink_to("notes")
    (tmp_path / "b").symlink_to(".s")
    listed = list_files(tmp_path)
    assert "b/9.npy" in paths(listed)
    assert "a000/0.log" in paths(listed)
    left = [path for path, reason in listed.skipped if "not followed" in reason]
    assert left == [f"a{i:03}" for i in range(120 - len(left), 120)]


def test_links_behind_which_much_lies_hide_no_other_link(tmp_path, monkeypatch):
    """Each leads to another folder, so that all are followed at once; 50 of them hid the one link to good files."""
    monkeypatch.setattr(listing, "BEHIND", 100)
    deep = tmp_path / "h"
    for i in range(20):
        deep /= "d"
        deep.mkdir(parents=True)
        (tmp_path / f"h/l{i:02}").symlink_to("/".join(["."] + ["d"] * (i + 1)))
    write(deep, *(str(i) for i in range(40)))
    write(tmp_path, "store/chunk/0.npy", "store/chunk/1.npy")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/chunk").symlink_to("../store/chunk")
    listed = list_files(tmp_path)
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: Reversed(scandir(folder)))
    again = list_files(tmp_path)
    # Whatever the order on disk
    assert (paths(again), again.skipped) == (paths(listed), listed.skipped)
    assert {"data/chunk/0.npy", "data/chunk/1.npy"} <= set(paths(listed))
    left = [path for path, reason in listed.refused if "not followed" in reason]
    # in the data folder 3 names, 20 folders d, 20 links to them, 40 files; chunk twice, and its 2
    # files
    plain = 3 + 20 + 20 + 40 + 2 + 2
    behind = [40 + 19 - i for i in range(20)]
    followed = sorted(set(range(20)) - {int(path[-2:]) for path in left})
    assert followed == [i for i in range(20) if sum(behind[: i + 1]) + 2 <= 100 + plain]


def test_no_file_behind_links_is_looked_at_for_each_of_them(tmp_path, monkeypatch):
    """60 links to folders around 100,000 files took 45 s."""
    monkeypatch.setattr(listing, "BEHIND", 0)
    deep = tmp_path / "h"
    for i in range(30):
        deep /= "d"
        deep.mkdir(parents=True)
        (tmp_path / f"l{i:02}").symlink_to("/".join(["h"] + ["d"] * (i + 1)))
    write(deep, *(str(i) for i in range(1000)))
    looked = []
    unusual = listing._Walk._unusual
    monkeypatch.setattr(
        listing._Walk,
        "_unusual",
        lambda walk, found, path: looked.append(len(found)) or unusual(walk, found, path),
    )
    listed = list_files(tmp_path)
    assert len(listed.entries) == 2 * 1000  # there, and behind the first link
    assert sum(looked) < 5 * 1000


def test_a_store_behind_a_link_that_is_followed_again_is_told_once(tmp_path, monkeypatch):
    stores = [f"s{i:02}" for i in range(20)]
    write(tmp_path, *(f"big/{i}" for i in range(100)))
    write(tmp_path, "store/a/zarr.json", *(f"store/a/{store}/zarr.json" for store in stores))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").symlink_to("../store/a")
    (tmp_path / "data/b").symlink_to("../big")
    # names in the data folder: 3, 100, a, 21 and 20 in it, each looked at twice as parts of a
    # store, and 2 links
    plain, behind_a = 3 + 100 + 1 + 2 * 41 + 2, 2 * 41
    # Room for what lies behind the first link, in half of it not
    monkeypatch.setattr(listing, "BEHIND", 120 - plain)
    assert 120 // 2 < behind_a < 120
    listed = list_files(tmp_path)
    assert [path for path, reason in listed.refused if "not followed" in reason] == ["data/b"]
    assert listed.nodes == {
        f"{place}/a": [f"{place}/a/{store}" for store in stores] for place in ("data", "store")
    }


def test_too_many_links_hide_no_file_that_is_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "LINKED", 5)
    write(tmp_path, "x/a.npy", "good.npy")
    for i in range(5):
        (tmp_path / f"l{i}").symlink_to("x")
    assert len(list_files(tmp_path).entries) == 2 + 5
    (tmp_path / "l5").symlink_to("x")
    listed = list_files(tmp_path)
    assert paths(listed) == ["good.npy", *(f"l{i}/a.npy" for i in range(5)), "x/a.npy"]
    assert [(path, why[:24]) for path, why in listed.skipped] == [
        ("l5", "a link to a folder that ")
    ]


def test_too_many_links_are_followed_from_the_top_and_the_others_are_refused(tmp_path, monkeypatch):
    """Links to empty folders once hid the one link to a split: nothing else named its samples."""
    monkeypatch.setattr(listing, "LINKED", 5)
    for i in range(9):
        (tmp_path / f"!e/{i}").mkdir(parents=True)
        (tmp_path / "!l").mkdir(exist_ok=True)
        (tmp_path / f"!l/{i}").symlink_to(f"../!e/{i}")
    write(tmp_path, "store/v1/0.npy", "val/0.npy")
    (tmp_path / "train").symlink_to("store/v1")
    listed = list_files(tmp_path)
    assert paths(listed) == ["store/v1/0.npy", "train/0.npy", "val/0.npy"]
    assert [path for path, _ in listed.refused] == [f"!l/{i}" for i in range(4, 9)]


@pytest.mark.parametrize("links", [25, 26])
@pytest.mark.parametrize(
    ("names", "looked"),
    [
        ([f"x/{i}.npy" for i in range(10)], 10),
        ([f"x/.{i}" for i in range(10)], 10),
        ([f"x/{i}/" for i in range(10)], 10),
        # As a store, and for files in it
        (["x/a.zarr/zarr.json", *(f"x/a.zarr/{i}" for i in range(3))], 1 + 4 + 4),
    ],
    ids=["files", "left out", "folders", "a store"],
)
def test_links_that_multiply_names_are_not_followed(tmp_path, monkeypatch, links, names, looked):
    # Without links 1 + links + looked names; behind them links * looked: as many again are
    # followed, and BEHIND.
    monkeypatch.setattr(listing, "BEHIND", 25 * looked - (1 + 25 + looked))
    for name in names:
        (tmp_path / name).mkdir(parents=True) if name.endswith("/") else write(tmp_path, name)
    plain = paths(list_files(tmp_path))
    for i in range(links):
        (tmp_path / f"l{i:02}").symlink_to("x")
    told = []
    listed = list_files(tmp_path, found=lambda found, _: told.extend(found))
    assert sorted(told) == paths(listed)  # files that are hashed while others are listed
    assert len(listed.entries) == 26 * len(plain)  # behind 25 links, and without
    last = dict(listed.skipped).get("l25", "")
    assert (f"files and folders, where {1 + 26 + looked} lie there without links" in last) == (
        links == 26
    )


@pytest.mark.parametrize(("most", "letters"), [(2, 1 << 20), (5, 2 * (2 + 40))])  # letters of two
def test_of_many_names_that_are_left_out_the_first_are_kept_and_the_rest_counted(
    tmp_path, monkeypatch, most, letters
):
    """A run that held all of them could not be read again."""
    write(tmp_path, "a.npy", *(f".{i}" for i in range(5)))
    assert [path for path, _ in list_files(tmp_path).skipped] == [".0", ".1", ".2", ".3", ".4"]
    monkeypatch.setattr(listing, "_MOST_SKIPPED", most)
    monkeypatch.setattr(listing, "_SKIPPED_LETTERS", letters)
    hidden = "hidden or left behind by another program"
    assert list_files(tmp_path).skipped == [
        (".0", hidden),
        (".1", hidden),
        (".2", "one of 3 more names left out"),
    ]


def test_a_folder_in_a_store_that_cannot_be_listed_refuses_the_store(tmp_path, monkeypatch):
    write(tmp_path, "a.zarr/zarr.json", "a.zarr/C/0/0", "b.bin")
    scandir = os.scandir

    def refusing(folder):
        if named(folder).endswith("/C"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    listed = list_files(tmp_path)
    assert paths(listed) == ["b.bin"]
    assert listed.refused == [
        ("a.zarr", "folder C in it cannot be read: permission denied"),
        ("a.zarr/C", "folder cannot be read: permission denied"),
    ]
    with pytest.raises(
        FormatError, match=r"a\.zarr: folder C in it cannot be read: permission denied"
    ):
        digest_entry(tmp_path, "a.zarr")
    assert stat_entry(tmp_path, "a.zarr") is None


@pytest.mark.parametrize(
    "goal", ["../../out", "../../out/x", "nowhere", ".", "..", "../pipe", "zarr.json"]
)
def test_links_in_a_store_are_not_followed(tmp_path, goal):
    """No reader follows them: the store counts without what is behind them, and its digest tells where they lead."""
    write(tmp_path, "data/a.zarr/zarr.json", "data/a.zarr/c/0", "out/x", data=b"AAAA")
    os.mkfifo(tmp_path / "data/pipe")
    link = tmp_path / "data/a.zarr/D"
    link.symlink_to(goal)
    seen = list_files(tmp_path / "data").by_path["a.zarr"]
    assert (seen.size, seen.mtime_ns) == (
        4 + 4,
        max(p.lstat().st_mtime_ns for p in (link, link.parent)),
    )
    assert seen[1:5] == stat_entry(tmp_path / "data", "a.zarr")[1:5]
    digest = digest_entry(tmp_path / "data", "a.zarr")
    write(tmp_path, "out/x", data=b"BBBB")
    assert digest_entry(tmp_path / "data", "a.zarr") == digest
    link.unlink()
    link.symlink_to("elsewhere")
    assert digest_entry(tmp_path / "data", "a.zarr") != digest
    with pytest.raises(
        StorageError, match="D in it is a link, which is not followed in a Zarr folder"
    ):
        manifest.make(tmp_path / "data")


def test_a_store_that_is_reached_by_a_link_or_below_an_extra_root(tmp_path):
    write(tmp_path, "data/real/a.zarr/zarr.json", "data/x", "more/b.zarr/zarr.json", "more/c0")
    (tmp_path / "data/to").symlink_to("real")
    (tmp_path / "more/b.zarr/c0").symlink_to("../c0")
    roots = {"m": tmp_path / "more"}
    for entry in list_files(tmp_path / "data", roots).entries:
        assert stat_entry(tmp_path / "data", entry.path, roots)[1:5] == entry[1:5]
    names = ["@m/b.zarr", "@m/b.zarr/c0", "@m/c0", "real/a.zarr", "to/a.zarr", "x"]
    assert paths(list_files(tmp_path / "data", roots)) == names
    assert digest_entry(tmp_path / "data", "to/a.zarr") == digest_entry(
        tmp_path / "data", "real/a.zarr"
    )


def test_a_marker_of_a_store_hides_no_file(tmp_path):
    """A .zgroup makes a folder one container: what else lies there, and below it, is listed beside it."""
    train = tmp_path / "train"
    chunks = train / "points"
    (train / "more").mkdir(parents=True)
    chunks.mkdir()
    (train / ".zgroup").write_text('{"zarr_format": 2}')
    (chunks / ".zarray").write_text("{}")
    for path in ("bad.npy", "more/worse.npy", "points/0.0", "points/worst.npy"):
        (train / path).write_bytes(b"junk")
    names = ["train", "train/bad.npy", "train/more/worse.npy", "train/points/worst.npy"]
    assert list(list_files(tmp_path).by_path) == names
    (tmp_path / "beside.npy").write_bytes(b"secret")
    (train / "link.npy").symlink_to("../beside.npy")
    (train / "points/link.npy").symlink_to("worst.npy")
    # Its root is the folder above: a link in it might lead beside it
    alone = list_files(tmp_path, only="train")
    assert list(alone.by_path) == names
    assert [path for path, _ in alone.skipped] == ["train/link.npy", "train/points/link.npy"]
    assert list(list_files(tmp_path).by_path) == [
        "beside.npy",
        *names[:2],
        "train/link.npy",
        *names[2:3],
        "train/points/link.npy",
        names[3],
    ]


MARKERS = {"zarr.json": '{"zarr_format": 3, "node_type": "group"}', ".zgroup": '{"zarr_format": 2}'}


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_of_a_store_hides_no_link_and_no_other_store(tmp_path, marker):
    write(
        tmp_path, "train/b.zarr/.zgroup", "store/0", "store/5", "train/.hidden.npy", "store/d/x.npy"
    )
    (tmp_path / "train" / marker).write_text(MARKERS[marker])
    (tmp_path / "train/a.npy").symlink_to("../store/0")
    (tmp_path / "train/0").symlink_to("../store/d")
    (tmp_path / "train/gone").symlink_to("nowhere")
    listed = list_files(tmp_path)
    expected = [
        "store/0",
        "store/5",
        "store/d/x.npy",
        "train",
        "train/0/x.npy",
        "train/a.npy",
        "train/b.zarr",
    ]
    assert paths(listed) == expected
    assert [path for path, _ in listed.skipped] == ["train/.hidden.npy", "train/gone"]


@pytest.mark.parametrize("name", ["0", "c", "x", "zarr.json"])
@pytest.mark.parametrize("goal", ["0", "x", "n" * 300, "/root/nobody"])
def test_no_link_in_a_store_ends_the_listing(tmp_path, name, goal):
    write(tmp_path, "a.npy", "x.zarr/.zgroup")
    (tmp_path / "x.zarr" / name).symlink_to(goal)
    assert paths(list_files(tmp_path)) == ["a.npy", "x.zarr"]


def test_files_behind_a_link_are_told_though_the_last_folder_is_refused(tmp_path):
    """Whoever hashes them while the rest is listed counts on that."""
    deep = tmp_path.joinpath(".h", *["d"] * 70)
    deep.mkdir(parents=True)
    write(tmp_path, ".h/x.npy", "top.npy")
    (tmp_path / "l").symlink_to(".h")
    told = []
    listed = list_files(tmp_path, found=lambda names, sizes: told.extend(names))
    assert sorted(told) == paths(listed) == ["l/x.npy", "top.npy"]


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        ((), True),
        (("data/.zarray", "meta/.zgroup"), True),
        ((".zattrs", "0.0", "0.1"), True),
        (("c/0/0",), True),
        (("00/x.npy", "01/x.npy"), False),
        (("0/0", "0/1"), True),
        (("locked/x.npy",), False),
        (("data/.zarray", "readme.txt"), False),
        (("0.npy",), False),
        (("train/0.npy", "val/0.npy"), False),
        (("a_replay.zarr/.zgroup",), False),
        (("data/.zarray", "a.zarr/zarr.json"), False),
        (("x/zarr.json", "x/c/0/0", "data/chunk/0.parquet"), False),
        (("x/zarr.json", "data/zarr.json", "data/chunk/0.parquet"), False),
        (("x/zarr.json", "data/zarr.json", "data/chunk/zarr.json", "data/chunk/0.parquet"), False),
        (("x/zarr.json", *(f"x/c/{n}" for n in range(300)), "x/c/a.npy"), False),
        (("x/zarr.json", "x/c/0/a.npy"), False),
        (("x/zarr.json", "x/y/zarr.json", "x/y/c/0/0", "0/.zarray", "0/0.0"), True),
        (
            (
                ".DS_Store",
                "x/zarr.json",
                "x/.DS_Store",
                "x/c/.DS_Store",
                "x/c/0/.DS_Store",
                "x/c/0/0",
            ),
            True,
        ),
    ],
)
@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_makes_no_store_of_a_folder_of_data(tmp_path, marker, others, alone):
    """The folder above a store is the root: what lies beside DATA could be read."""
    write(tmp_path, *(f"DATA/{path}" for path in others), f"DATA/{marker}")
    folder = tmp_path / "DATA"
    # A group has no chunks
    alone &= marker != ".zgroup" or others[:1] not in {(".zattrs",), ("c/0/0",), ("0/0",)}
    assert target(folder) == ((tmp_path, "DATA") if alone else (folder, None))
    named = folder.rename(tmp_path / "DATA.zarr")  # whoever says so means a store
    assert target(named) == (tmp_path, "DATA.zarr")


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("file", ["000001", "0.0", "c", "scans/000001", "0/1"])
def test_a_group_has_no_chunks(tmp_path, marker, file):
    """Files without an ending, called by numbers, were no part of any sample and named nowhere."""
    write(tmp_path, f"DATA/{file}", f"DATA/s.zarr/{file}", data=b"12345")
    for folder in ("DATA", "DATA/s.zarr"):
        (tmp_path / folder / marker).write_text(MARKERS[marker])
    assert target(tmp_path / "DATA") == (tmp_path / "DATA", None)
    listed = list_files(tmp_path / "DATA").by_path
    assert {*listed} - {"zarr.json"} == {file, "s.zarr", f"s.zarr/{file}"}
    assert listed["s.zarr"].size == len(MARKERS[marker])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("nested", [False, True])
def test_chunks_of_arrays_are_no_files_of_their_own(tmp_path, version, nested):
    store = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=version)
    encoding = {"name": "v2" if version == 2 else "default", "separator": "/" if nested else "."}
    array = store.create_array(
        "g/x", shape=(4, 4), chunks=(2, 2), dtype="int8", chunk_key_encoding=encoding
    )
    array[:] = 1
    store.create_array("y", shape=(), dtype="int8")[...] = 1
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    listed = list_files(tmp_path).by_path
    assert {path: entry.size for path, entry in listed.items()} == {"s.zarr": size}
    (tmp_path / "s.zarr").rename(tmp_path / "s")
    assert target(tmp_path / "s") == (tmp_path, "s")


def test_a_store_has_the_size_of_its_own_files(tmp_path):
    """A recording in whose folder somebody writes a small array would count as read, too."""
    write(tmp_path, "rec/zarr.json", "rec/x/zarr.json", "rec/x/c/0", "rec/.zattrs", data=b"1234")
    write(tmp_path, "rec/a.mcap", "rec/x/b.mcap", data=bytes(1000))
    listed = list_files(tmp_path).by_path
    assert {path: entry.size for path, entry in listed.items()} == {
        "rec": 16,
        "rec/a.mcap": 1000,
        "rec/x/b.mcap": 1000,
    }
    assert stat_entry(tmp_path, "rec")[1:5] == listed["rec"][1:5]


def test_arrays_and_groups_of_a_store_are_named_where_its_name_does_not_say_that_it_is_one(
    tmp_path,
):
    write(
        tmp_path,
        "a/.zgroup",
        "a/x/.zarray",
        "a/g/.zgroup",
        "a/g/y/.zarray",
        "b.zarr/.zgroup",
        "b.zarr/x/.zarray",
    )
    write(tmp_path, "more/c/.zgroup", "more/c/x/.zarray")
    listed = list_files(tmp_path, {"m": tmp_path / "more"})
    assert {store: sorted(nodes) for store, nodes in listed.nodes.items()} == {
        "a": ["a/g", "a/g/y", "a/x"],
        "more/c": ["more/c/x"],
        "@m/c": ["@m/c/x"],
    }


def test_a_whole_store_is_one_entry(tmp_path):
    import zarr

    for version in (2, 3):
        group = zarr.open_group(tmp_path / f"v{version}", mode="w", zarr_format=version)
        group.create_array("a/b", shape=(10, 4), chunks=(5, 2), dtype="f4")[:] = 1
        group.create_array("c", shape=(), dtype="f4")[...] = 1
    assert list(list_files(tmp_path).by_path) == ["v2", "v3"]


def test_a_folder_of_a_store_that_becomes_a_link_is_not_listed(tmp_path, monkeypatch):
    (tmp_path / "data/a.zarr/c").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    listed = listing._listed

    def swapped(opened, path):
        found = list(listed(opened, path))
        if not path:
            (tmp_path / "data/a.zarr/c").rename(tmp_path / "c")
            (tmp_path / "data/a.zarr/c").symlink_to(tmp_path / "outside")
        return found

    monkeypatch.setattr(listing, "_listed", swapped)
    with pytest.raises(
        OSError, match="folder c in it cannot be read: a link out of the data folder"
    ):
        listing.store_entry("a.zarr", str(tmp_path / "data/a.zarr"), str(tmp_path / "data"), 0)


def test_hard_links_to_one_large_zarr_document_are_parsed_once(tmp_path, monkeypatch):
    from datacheck.runtime.documents import parse_json

    parsed = []
    monkeypatch.setattr(
        "datacheck.sources.listing.parse_json", lambda data: parsed.append(1) or parse_json(data)
    )
    write(tmp_path, "a.zarr/zarr.json", data=b'{"zarr_format": 3, "node_type": "group"}')
    folders = [tmp_path / f"a.zarr/g{n}" for n in range(5)]
    for folder in folders:
        folder.mkdir()
        (folder / "0").write_bytes(b"no chunk")
    first = folders[0] / "zarr.json"
    first.write_text(json.dumps({"node_type": "group", "attributes": {"a": "x" * (1 << 20)}}))
    for folder in folders[1:]:
        os.link(first, folder / "zarr.json")
    assert paths(list_files(tmp_path)) == ["a.zarr", *(f"a.zarr/g{n}/0" for n in range(5))]
    assert len(parsed) <= 3
