"""``datacheck cache info`` and ``ls``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.say import say

if TYPE_CHECKING:
    from datacheck.cache import Cache


class PathOrUrl(click.ParamType[Path | str]):
    """A folder, or a URL in an object store."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """Keep a URL unchanged: a path would lose one of its slashes."""
        from datacheck.cache.store import is_url

        return value if is_url(value) else Path(value)


path_argument = click.argument("path", type=PathOrUrl())
_LONGEST = 1_000  # characters of a table's entry
_WIDEST = 100  # cells of its widest column
split_option = click.option(
    "--split", metavar="NAME", help="The split, where the folder holds several."
)


@click.command()
@path_argument
@split_option
def info(path: Path | str, split: str | None) -> None:
    """Show what a cache holds: fields, shapes, counts, sizes, windows."""
    from datacheck.cache import open_cache

    say(*_cache_lines(open_cache(path, split=split)))


@click.command()
@click.argument("folder", type=PathOrUrl(), default=Path("cache"))
def ls(folder: Path | str) -> None:
    """List finished caches, unfinished builds and the trash below FOLDER (default: cache), or caches below a URL."""
    from datacheck.cache.bucket import find_attempts
    from datacheck.cache.find import find_builds, find_caches, find_links, find_trash
    from datacheck.errors import StorageError, UsageError

    if isinstance(folder, Path) and not folder.is_dir():
        msg = f"{folder}: no such folder"
        raise UsageError(msg)
    rows: list[tuple[str, ...]] = [("pipeline", "split", "key", "samples", "valid", "size", "")]
    unlisted: list[StorageError] = []
    rows += [_cache_row(path) for path in find_caches(folder, unlisted=unlisted)]
    rows += [("", "", "", "", "", "", f"not looked at: {error}") for error in unlisted]
    if isinstance(folder, Path):
        others = [(path.name, f"unfinished, in {path.parent}") for path in find_builds(folder)]
        others += [(path.name, f"moved aside, in {path.parent}") for path in find_trash(folder)]
        others += [
            (path.name, f"a link in {path.parent}, not followed") for path in find_links(folder)
        ]
    else:
        attempts = [url.rpartition("/") for url in find_attempts(folder)]
        others = [(name, f"uncommitted, in {cache}") for cache, _, name in attempts]
    rows += [("", "", name, "", "", "", note) for name, note in others]
    say(
        *(
            _table(rows)
            if len(rows) > 1
            else [f"{folder}: no cache here. datacheck cache build makes one."]
        )
    )


def _cache_row(path: Path | str) -> tuple[str, ...]:
    from datacheck.cache import open_cache
    from datacheck.errors import DatacheckError

    try:
        opened = open_cache(path)
        valid = int(opened.usable.sum())
    except DatacheckError as error:  # still list the others
        pipeline, split, key = ("", "", *str(path).split("/"))[-3:]
        return (pipeline, split, key, "", "", "", f"cannot be used: {error}")
    root = opened.root
    return (
        root.pipeline,
        root.split,
        root.key,
        f"{len(opened):,}",
        f"{valid:,}",
        _size(_bytes(opened)),
        "",
    )


def _cache_lines(opened: Cache) -> Iterator[str]:
    root = opened.root
    made = int(opened.made.sum())
    valid = int(opened.usable.sum())
    yield f"{opened.path}"
    yield f"pipeline {root.pipeline}, schema {root.schema}, split {root.split}, key {root.key}"
    yield (
        f"{len(opened):,} samples: {valid:,} valid, {made - valid:,} invalid, "
        f"{len(opened) - made:,} not made"
    )
    if root.windows is not None:
        yield "windows " + ", ".join(f"{name} {value}" for name, value in root.windows.items())
    files = len(opened.manifest.files)
    packed = "" if opened.compression == "none" else f", compressed with {opened.compression}"
    yield (
        f"{_size(_bytes(opened))} in {files:,} files, {root.shard_samples:,} samples per "
        f"shard{packed}"
    )
    yield f"digest {opened.manifest.digest}"
    yield f"content root {opened.manifest.content_root}"
    yield ""
    rows: list[tuple[str, ...]] = [("field", "type", "shape", "bytes", "")]
    for name, spec in opened.fields.items():
        shape = f"[{', '.join(map(str, [*([spec.dim] if spec.dim else []), *spec.item]))}]"
        kind = spec.dtype if spec.kind == "array" else spec.kind
        rows.append(
            (
                name,
                kind,
                shape if spec.kind == "array" else "",
                _size(_field_bytes(opened, name)),
                _attrs_text(spec),
            )
        )
    yield from _table(rows)


def _attrs_text(spec: Any) -> str:
    declared = [
        f"{name} {value}"
        for name, value in sorted(spec.attrs.items())
        if isinstance(value, str | int | float)
    ]
    return ", ".join([*declared, *(["optional"] if spec.optional else [])])


def _field_bytes(opened: Cache, name: str) -> int:
    return sum(opened.manifest.files[file][0] for file in opened.shard_files(name))


def _bytes(opened: Cache) -> int:
    return sum(size for size, _ in opened.manifest.files.values())


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows, escaped, with aligned columns of at most 100 terminal cells."""
    from rich.cells import cell_len

    from datacheck.report.words import clean

    short = [[e if len(e) <= _LONGEST else f"{e[:_LONGEST]}..." for e in row] for row in rows]
    cleaned = [[clean(entry, spaces=True) for entry in row] for row in short]
    widths = [min(_WIDEST, max(map(cell_len, column))) for column in zip(*cleaned, strict=True)]
    for row in cleaned:
        padded = (
            entry + " " * (width - cell_len(entry))
            for entry, width in zip(row, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()
