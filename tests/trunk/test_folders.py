"""Folders are emptied and removed by handle: a link, be it put there meanwhile, leads nowhere."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from pathlib import Path

import pytest

from datacheck.errors import StorageError
from datacheck.runtime import folders, fsops
from datacheck.runtime.fsops import System

SWAPS = 300


def files(folder):
    return sorted(
        str(path.relative_to(folder))
        for path in Path(folder).rglob("*")
        if not folders.is_real(path)
    )


@pytest.fixture
def outside(tmp_path):
    """A folder whose files must stay."""
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "outside/file").write_text("mine")
    (tmp_path / "outside/deep/file").write_text("mine")
    return tmp_path / "outside"


def tree(folder):
    (folder / "deep").mkdir(parents=True)
    (folder / "file").touch()
    (folder / "deep/file").touch()


def test_links_go_and_what_they_lead_to_stays(tmp_path, outside):
    tree(tmp_path / "tree")
    (tmp_path / "tree/deep/folder").symlink_to(outside)
    (tmp_path / "tree/name").symlink_to(outside / "file")
    (tmp_path / "tree/dangling").symlink_to("nowhere")
    (tmp_path / "tree/loop").symlink_to("loop")
    os.mkfifo(tmp_path / "tree/pipe")
    assert folders.remove_tree(tmp_path / "tree") == []
    (tmp_path / "tree").symlink_to(outside)
    assert folders.remove_tree(tmp_path / "tree") == []
    assert os.listdir(tmp_path) == ["outside"]
    assert files(outside) == ["deep/file", "file"]


def test_what_is_not_ours_stays_and_is_named(tmp_path, outside):
    tree(tmp_path / "tree")
    (tmp_path / "tree/notes").touch()
    (tmp_path / "tree/deep/link").symlink_to(outside)
    (tmp_path / "tree/empty/empty").mkdir(parents=True)
    left = folders.remove_tree(tmp_path / "tree", {"file", "deep/file", "deep/link"}.__contains__)
    assert sorted(left) == [tmp_path / "tree/deep/link", tmp_path / "tree/notes"]
    assert files(tmp_path / "tree") == ["deep/link", "notes"]
    assert not (tmp_path / "tree/empty").exists()
    assert files(outside) == ["deep/file", "file"]


def test_an_open_folder_is_emptied_under_whatever_name(tmp_path, outside):
    tree(tmp_path / "tree")
    with folders.open_folder(tmp_path / "tree") as held:
        (tmp_path / "tree").rename(tmp_path / "moved")
        (tmp_path / "tree").symlink_to(outside)
        assert folders.empty(tmp_path / "tree", held, keep="file") == []
    assert files(tmp_path / "moved") == ["file"]
    assert files(outside) == ["deep/file", "file"]
    with pytest.raises(NotADirectoryError):
        folders.open_folder(tmp_path / "tree").__enter__()


def test_folders_that_are_nested_deeper_than_any_of_ours_are_told(tmp_path):
    def nest(depth):
        (tmp_path / "tree").mkdir()
        here = os.open(tmp_path / "tree", os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)

    nest(folders.DEEPEST - 1)
    folders.remove_tree(tmp_path / "tree")
    assert os.listdir(tmp_path) == []
    nest(folders.DEEPEST)
    with pytest.raises(StorageError, match="nested more than 200 deep"):
        folders.remove_tree(tmp_path / "tree")
    (left,) = folders.remove_tree(tmp_path / "tree", lambda _: True)
    assert left.parts.count("d") == folders.DEEPEST


def test_links_and_pipes_are_dropped_and_nothing_else(tmp_path, outside):
    tree(tmp_path / "tree")
    (tmp_path / "tree/deep/link").symlink_to(outside)
    (tmp_path / "tree/link").symlink_to(outside / "file")
    os.mkfifo(tmp_path / "tree/pipe")
    folders.drop_links(tmp_path / "tree")
    assert files(tmp_path / "tree") == ["deep/file", "file"]
    assert files(outside) == ["deep/file", "file"]


# -------------------------------------------------------------------------------------------- races


def by_name(path):
    """How a tree was removed before: a control."""
    with os.scandir(path) as entries:
        found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for place, folder in found:
        by_name(place) if folder else fsops.SYSTEM.unlink(place)
    fsops.SYSTEM.rmdir(path)


class Swapping(System):
    """Puts a link in the place of a folder just before the N-th removal."""

    def __init__(self, number, folder, outside):
        self.left, self.folder, self.outside = number, folder, outside

    def swap(self):
        self.left -= 1
        if not self.left and self.folder.is_dir():
            self.folder.rename(self.folder.with_name("moved"))
            self.folder.symlink_to(self.outside)

    def unlink(self, path, folder=None):
        self.swap()
        super().unlink(path, folder)

    def rmdir(self, path, folder=None):
        self.swap()
        super().rmdir(path, folder)


@pytest.mark.parametrize("which", ["tree", "tree/deep"])
def test_a_folder_that_becomes_a_link_at_any_removal_leads_nowhere(tmp_path, monkeypatch, which):
    def trial(remove, number):
        place = tmp_path / f"{remove.__name__} {number}"
        (outside := place / "outside").mkdir(parents=True)
        for name in ("file", "deep/file", "tree/file", "tree/deep/file"):
            (outside / name).parent.mkdir(exist_ok=True, parents=True)
            (outside / name).touch()
        before = files(outside)
        tree(place / "tree")
        monkeypatch.setattr(fsops, "SYSTEM", Swapping(number, place / which, outside))
        with contextlib.suppress(StorageError, OSError):
            remove(place / "tree")
        monkeypatch.setattr(fsops, "SYSTEM", System())
        return files(outside) == before

    assert all(trial(folders.remove_tree, number) for number in range(1, 6))
    assert not all(trial(by_name, number) for number in range(1, 6))


def test_a_folder_that_changes_places_with_a_link_all_the_time_leads_nowhere(tmp_path, outside):
    """A thread swaps a folder of the tree for a link and back while the tree is removed, again and again."""
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    folder, link = tmp_path / "tree/deep", tmp_path / "link"
    ended, swaps = threading.Event(), 0

    def swap():
        nonlocal swaps
        while not ended.is_set():
            swaps += not exchange(-100, os.fsencode(folder), -100, os.fsencode(link), 2)

    swapping = threading.Thread(target=swap)
    swapping.start()
    removed = 0
    while swaps < SWAPS or removed < SWAPS:
        with contextlib.suppress(OSError):  # the thread may be at it
            folder.mkdir(parents=True)
            (tmp_path / f"kept {removed}").mkdir()
            (tmp_path / f"kept {removed}/link").symlink_to(outside)
            (tmp_path / f"kept {removed}/link").rename(link)
        # A link that comes while the folder is emptied is no folder
        with contextlib.suppress(StorageError):
            folders.remove_tree(tmp_path / "tree")
            removed += 1
    ended.set()
    swapping.join()
    assert files(outside) == ["deep/file", "file"]


# -------------------------------------------------------------------------------------- whose it is


@pytest.mark.parametrize(
    ("owner", "above", "mode", "fine"),
    [
        (1000, 0, 0o1777, False),  # another user's in /tmp
        (0, 0, 0o1777, True),  # root's, as a container leaves it
        (1000, 1000, 0o1777, True),  # of the owner of the folder above
        (1000, 0, 0o777, True),
        (1000, 1000, 0o755, True),  # a container's root in a user's folder
        (1000, 2000, 0o2775, True),  # the people of a project
    ],
)
def test_a_folder_of_another_user_is_refused_only_where_everybody_may_make_one(
    tmp_path, owner, above, mode, fine
):
    if os.geteuid():
        pytest.skip("only root gives files away")
    (tmp_path / "above/own").mkdir(parents=True)
    os.chown(tmp_path / "above/own", owner, owner)
    os.chown(tmp_path / "above", above, above)
    (tmp_path / "above").chmod(mode)
    if fine:
        folders.check_own(tmp_path / "above/own", "")
    else:
        with pytest.raises(
            StorageError, match=r"own: is user 1000's, in a folder where everybody may write"
        ):
            folders.check_own(tmp_path / "above/own", "")
    folders.check_own(tmp_path / "above/none", "")
