"""Parquet: columns as arrays, read row group by row group; equal-length lists add an axis.

Names are those of the columns. Values are numbers, times (as integers in the unit that the file
declares), text, and lists of them. Lists of different lengths, lists of texts, and records (the
messages of a chat) are JSON, one entry per row. Bytes (pictures) are no values: they are not listed,
and reading them raises an error that says why. A null is NaN among floats, "" among texts, and an
error elsewhere: no integer, time or list is invented for it. In a record null and NaN are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

from datacheck.errors import FormatError
from datacheck.formats.arrow_columns import ArrowColumns, ByteCounter
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import DEPTH, check_bytes, check_expansion, wrap_errors
from datacheck.formats.parquet_extents import check_extents
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath, stamp_of

_MARK = b"PAR1"
_FOOTER_BYTES = 64 << 20
_ENTRIES = 1_000_000  # entries of one list in the footer
_BATCH = 1 << 16  # rows
_BATCH_BYTES = 16 << 20  # as stored: a batch has fewer rows where they are large
# From `_LARGE_BYTES` on, a column of a row group is read through a buffer, not held as stored.
_LARGE_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20


@cache
def _libraries() -> tuple[Any, Any]:
    import pyarrow as pa  # noqa: PLC0415  0.1 s, for files of this format only
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pa, pq


class ParquetFile(ArrowColumns):
    """An open Parquet file."""

    def __init__(self, path: AnyPath) -> None:
        nbytes = _check_ends(path)
        status = path.stat()
        pa, pq = _libraries()
        with wrap_errors("damaged Parquet file"):
            self._file = pq.ParquetFile(
                path,
                pre_buffer=False,
                thrift_string_size_limit=_FOOTER_BYTES,
                thrift_container_size_limit=_ENTRIES,
                schema_depth_limit=DEPTH,
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
                buffer_size=_BUFFER_BYTES if nbytes > _LARGE_BYTES else 0,
            )
            meta = self._file.metadata
            groups = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            if min(groups, default=0) < 0 or sum(groups) != meta.num_rows:
                msg = f"{meta.num_rows:,} rows are declared, its row groups have {sum(groups):,}"
                raise FormatError(msg)
            with path.open("rb") as file:
                check_extents(file, nbytes)
            super().__init__(
                pa, self._file.schema_arrow, groups, nbytes, (status.st_dev, *stamp_of(status))
            )
        self._batch = min(_BATCH, max(1, _BATCH_BYTES * self._rows // nbytes))

    def close(self) -> None:
        """Close the file."""
        with wrap_errors("cannot close the file"):
            self._file.close()

    def _batches(self, name: str, groups: Iterable[int]) -> Iterator[Any]:
        # What the footer says of a column is not read: a wrong value there makes Arrow abort the
        # process.
        counted = ByteCounter(self._pa)
        options: dict[str, Any] = {
            "batch_size": self._batch,
            "columns": [name],
            "use_threads": False,
        }
        for batch in chain.from_iterable(
            self._file.iter_batches(row_groups=[group], **options) for group in groups
        ):
            column = _column(batch, name)
            yield column
            check_expansion(counted.add(column), self._nbytes, name)

    def record_batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows in record batches, which never cross a row group.

        Args:
            columns: names; None: all, also those that are no values here, such as pictures.

        Raises:
            FormatError: a column is damaged, or far larger than the file.
        """
        counted: dict[str, ByteCounter] = {}
        with wrap_errors("damaged Parquet file"):
            for group in range(self._file.metadata.num_row_groups):
                for batch in self._file.iter_batches(
                    batch_size=self._batch, row_groups=[group], columns=columns, use_threads=False
                ):
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        counter = counted.setdefault(name, ByteCounter(self._pa))
                        check_expansion(counter.add(column), self._nbytes, name)
                    yield batch

    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of the file, with its metadata."""
        return self._file.schema_arrow

    def _first(self, name: str, group: int) -> Any:
        options: dict[str, Any] = {"row_groups": [group], "columns": [name], "use_threads": False}
        return _column(next(self._file.iter_batches(batch_size=1, **options)), name)


def _column(batch: Any, name: str) -> Any:
    """Return a column; Arrow takes the name "a.b" for a field of the record "a" as well."""
    return batch.column(batch.schema.names.index(name))


def _check_ends(path: AnyPath) -> int:
    """Check that a file begins and ends as Parquet, before a library opens it; return its size.

    Raises:
        FormatError: it does not.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(max(0, size - 8))
        tail = file.read(8)
    if head != _MARK or size < 12:
        msg = f"not a Parquet file: it starts with {head!r}, not with {_MARK!r}" + (
            " (encrypted)" * (head == b"PARE")
        )
        raise FormatError(msg)
    if tail[4:] != _MARK:
        msg = (
            f"it ends with {tail[4:]!r}, not with {_MARK!r}: the file is cut short, or was not "
            f"finished"
        )
        raise FormatError(msg)
    footer = int.from_bytes(tail[:4], "little")
    if footer > size - 12:
        msg = f"a footer of {footer:,} bytes in a file of {size:,}"
        raise FormatError(msg)
    check_bytes(footer, "the footer", _FOOTER_BYTES)
    return size


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return ParquetFile(path)


PARQUET = Format("parquet", (".parquet", ".pq"), _open, magic=(_MARK,), points=True)
