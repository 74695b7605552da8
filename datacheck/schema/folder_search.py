"""Finds out which default places of an extra folder hold files that a schema names.

An extra folder may have several default places below the data folder (`Schema.roots`). The search
follows links within the data folder and ends after a bounded number of them, so that folders that
link to one another cost a bounded time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from datacheck.schema.patterns import Template

# Folders behind links that one search visits. Two folders that link to each other have infinitely
# many paths.
_MOST_LINKED = 1_000


@dataclass
class _FolderEntries:
    """The sorted names in a folder."""

    folders: list[str] = field(default_factory=list)
    folder_links: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it; both are real paths."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def holds_match(folder: str, root: str, templates: Sequence[Template]) -> bool:
    """Return whether a folder holds a file that a template matches.

    Args:
        folder: real path of the folder; the templates are relative to it.
        root: real path of the data folder; links that leave it are not followed.
        templates: patterns of files.
    """
    if not templates:
        return False
    for path in _paths_below(folder, root):
        matches = any(template.match(path) is not None for template in templates)
        if matches and os.path.isfile(f"{folder}/{path}"):  # noqa: PTH113  Path.is_file may raise
            return True
    return False


def _paths_below(folder: str, root: str) -> Iterator[str]:
    """Yield the relative paths of all entries that are no folders; those behind links last."""
    waiting = [""]
    behind_links = deque[str]()
    visits_left = _MOST_LINKED
    while waiting or (behind_links and visits_left):
        is_behind_link = not waiting
        if is_behind_link:
            visits_left -= 1
            head = behind_links.popleft()
        else:
            head = waiting.pop()
        entries = _list_folder(f"{folder}/{head}")
        yield from (head + name for name in entries.files)
        behind_links += _followed_links(folder, head, entries.folder_links, root)
        subfolders = (f"{head}{name}/" for name in entries.folders)
        (behind_links if is_behind_link else waiting).extend(subfolders)
        while len(behind_links) > _MOST_LINKED:
            behind_links.pop()


def _followed_links(folder: str, head: str, names: Sequence[str], root: str) -> list[str]:
    """Return the linked folders within `root` that do not contain the link itself."""
    if not names:
        return []
    own_folder = os.path.realpath(f"{folder}/{head}")
    followed = []
    for name in names:
        target = os.path.realpath(f"{folder}/{head}{name}")
        if is_below(target, root) and not is_below(own_folder, target):
            followed.append(f"{head}{name}/")
    return followed


def _list_folder(folder: str) -> _FolderEntries:
    entries = _FolderEntries()
    # A folder that cannot be listed counts as empty here; the listing of the data reports it.
    with suppress(OSError), os.scandir(folder) as scan:
        for entry in scan:
            with suppress(OSError):  # a link to itself
                _names_of_kind(entries, entry).append(entry.name)
    for names in (entries.folders, entries.folder_links, entries.files):
        names.sort()
    return entries


def _names_of_kind(entries: _FolderEntries, entry: os.DirEntry[str]) -> list[str]:
    if not entry.is_dir():
        return entries.files
    return entries.folder_links if entry.is_symlink() else entries.folders
