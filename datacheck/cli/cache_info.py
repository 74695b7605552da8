"""``datacheck cache info`` and ``ls``: show one cache, or list those below a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.options import PathOrUrl, path_argument, split_option
from datacheck.cli.output import say

if TYPE_CHECKING:
    from datacheck.cache import Cache
    from datacheck.errors import StorageError
    from datacheck.model.sample import ArraySpec

# Names and attributes of a foreign cache have any length.
_MOST_LETTERS = 1_000  # of an entry of a table
_MOST_CELLS = 100  # of a terminal's line that a column of a table takes


# --------------------------------------------------------------------------------------------- info


@click.command()
@path_argument
@split_option
def info(path: Path | str, split: str | None) -> None:
    """Show the fields, shapes, counts, sizes and windows of the cache at PATH."""
    from datacheck.cache import open_cache

    say(*_cache_lines(open_cache(path, split=split)))


def _cache_lines(cache: Cache) -> Iterator[str]:
    from datacheck.report.words import format_bytes

    root = cache.root
    made = int(cache.made.sum())
    valid = int(cache.usable.sum())
    yield f"{cache.path}"
    yield f"pipeline {root.pipeline}, schema {root.schema}, split {root.split}, key {root.key}"
    yield (
        f"{len(cache):,} samples: {valid:,} valid, {made - valid:,} invalid, "
        f"{len(cache) - made:,} not made"
    )
    if root.windows is not None:
        yield "windows " + ", ".join(f"{name} {value}" for name, value in root.windows.items())
    compressed = "" if cache.compression == "none" else f", compressed with {cache.compression}"
    yield (
        f"{format_bytes(_cache_bytes(cache))} in {len(cache.manifest.files):,} files, "
        f"{root.shard_samples:,} samples per shard{compressed}"
    )
    yield f"digest {cache.manifest.digest}"
    yield f"content root {cache.manifest.content_root}"
    yield ""
    yield from _table_lines(
        [
            ("field", "type", "shape", "bytes", ""),
            *(_field_row(cache, name, spec) for name, spec in cache.fields.items()),
        ]
    )


def _field_row(cache: Cache, name: str, spec: ArraySpec) -> tuple[str, ...]:
    from datacheck.report.words import format_bytes

    nbytes = format_bytes(sum(cache.manifest.files[file][0] for file in cache.shard_files(name)))
    if spec.kind != "array":
        return (name, spec.kind, "", nbytes, _attributes_text(spec))
    ragged_axis = [spec.dim] if spec.dim else []
    shape = f"[{', '.join(map(str, [*ragged_axis, *spec.item]))}]"
    return (name, spec.dtype, shape, nbytes, _attributes_text(spec))


def _attributes_text(spec: ArraySpec) -> str:
    words = [
        f"{name} {value}"
        for name, value in sorted(spec.attrs.items())
        if isinstance(value, str | int | float)
    ]
    if spec.optional:
        words.append("optional")
    return ", ".join(words)


def _cache_bytes(cache: Cache) -> int:
    return sum(size for size, _ in cache.manifest.files.values())


# ----------------------------------------------------------------------------------------------- ls


@click.command()
@click.argument("folder", type=PathOrUrl(), default=Path("cache"))
def ls(folder: Path | str) -> None:
    """List the finished caches below FOLDER or a URL (default: cache).

    Of a folder, unfinished builds, the trash and links are listed, too.
    """
    from datacheck.cache.find import find_caches
    from datacheck.errors import UsageError

    if isinstance(folder, Path) and not folder.is_dir():
        msg = f"{folder}: no such folder"
        raise UsageError(msg)
    unlisted: list[StorageError] = []
    rows = [_cache_row(path) for path in find_caches(folder, unlisted=unlisted)]
    rows += [_note_row("", f"not looked at: {error}") for error in unlisted]
    rows += [_note_row(name, note) for name, note in _unfinished(folder)]
    if not rows:
        say(f"{folder}: no cache here. datacheck cache build makes one.")
        return
    head = ("pipeline", "split", "key", "samples", "valid", "size", "")
    say(*_table_lines([head, *rows]))


def _cache_row(path: Path | str) -> tuple[str, ...]:
    from datacheck.cache import open_cache
    from datacheck.errors import DatacheckError
    from datacheck.report.words import format_bytes

    try:
        cache = open_cache(path)
        valid = int(cache.usable.sum())
    except DatacheckError as error:  # still list the others
        pipeline, split, key = ("", "", *str(path).split("/"))[-3:]
        return (pipeline, split, key, "", "", "", f"cannot be used: {error}")
    size = format_bytes(_cache_bytes(cache))
    root = cache.root
    return (root.pipeline, root.split, root.key, f"{len(cache):,}", f"{valid:,}", size, "")


def _note_row(name: str, note: str) -> tuple[str, ...]:
    return ("", "", name, "", "", "", note)


def _unfinished(folder: Path | str) -> Iterator[tuple[str, str]]:
    """Yield the name of everything that is no finished cache, and what it is."""
    from datacheck.cache.bucket import find_attempts
    from datacheck.cache.find import find_builds, find_links, find_trash

    if not isinstance(folder, Path):
        for url in find_attempts(folder):
            cache, _, name = url.rpartition("/")
            yield name, f"uncommitted, in {cache}"
        return
    for path in find_builds(folder):
        yield path.name, f"unfinished, in {path.parent}"
    for path in find_trash(folder):
        yield path.name, f"moved aside, in {path.parent}"
    for path in find_links(folder):
        yield path.name, f"a link in {path.parent}, not followed"


# -------------------------------------------------------------------------------------------- table


def _table_lines(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows, escaped, with aligned columns."""
    from rich.cells import cell_len

    escaped = [[_entry_text(entry) for entry in row] for row in rows]
    widths = [min(_MOST_CELLS, max(map(cell_len, column))) for column in zip(*escaped, strict=True)]
    for row in escaped:
        padded = (
            entry + " " * (width - cell_len(entry))
            for entry, width in zip(row, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _entry_text(entry: str) -> str:
    from datacheck.report.words import clean

    if len(entry) > _MOST_LETTERS:
        entry = f"{entry[:_MOST_LETTERS]}..."
    return clean(entry, spaces=True)
