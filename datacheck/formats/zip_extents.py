"""The bytes of a zip archive that its directory names; readers skip all others.

A zip is read from its end. Archives joined with ``cat``, and members without an entry in the
directory, open without an error, and readers see only a part of the file.
"""

from __future__ import annotations

import os
import struct
import zipfile
from itertools import pairwise
from typing import IO

from datacheck.errors import FormatError

_LOCAL = struct.Struct("<26xHH")  # lengths of the name and of the extra field
_ENTRY = struct.Struct("<28xHHH12x")  # of the name, the extra field and the comment
_DESCRIPTOR = 24  # bytes behind a member whose writer could not seek, at most
_STREAMED = 8  # the flag of such a member
_END = b"PK\5\6"
_END_BYTES = 22  # without its comment
_END64 = b"PK\6\6"
_LOCATOR_BYTES = 20
_PIECE_BYTES = 1 << 20


def check_extents(archive: zipfile.ZipFile) -> None:
    """Refuse an archive with bytes that its directory does not name, except zeros (padding).

    Raises:
        FormatError: such bytes lie before, between or behind the members and the directory.
    """
    file = archive.fp
    assert file is not None
    stop = _directory_end(file, archive)
    extents = sorted(_extent(file, info) for info in archive.filelist)
    extents = [(0, 0), *extents, (archive.start_dir, stop)]
    furthest = 0
    for (_, end), (start, _) in pairwise(extents):
        furthest = max(furthest, end)
        _check_gap(file, furthest, start)
    _check_gap(file, stop, file.seek(0, os.SEEK_END))


def _extent(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[int, int]:
    """Return start and end of a member, with the descriptor that may follow it."""
    file.seek(info.header_offset)
    name, extra = _unpacked(_LOCAL, file)
    end = info.header_offset + _LOCAL.size + name + extra + info.compress_size
    return info.header_offset, end + (_DESCRIPTOR if info.flag_bits & _STREAMED else 0)


def _directory_end(file: IO[bytes], archive: zipfile.ZipFile) -> int:
    """Return the end of the directory, of the records behind it and of their comment."""
    file.seek(archive.start_dir)
    for _ in archive.filelist:
        file.seek(sum(_unpacked(_ENTRY, file)), os.SEEK_CUR)
    position = file.tell()
    head = file.read(12)
    if head[:4] == _END64:
        position += 12 + int.from_bytes(head[4:], "little") + _LOCATOR_BYTES
        file.seek(position)
        head = file.read(4)
    return position + (_END_BYTES + len(archive.comment) if head[:4] == _END else 0)


def _unpacked(form: struct.Struct, file: IO[bytes]) -> tuple[int, ...]:
    data = file.read(form.size)
    if len(data) < form.size:
        msg = "the directory of the archive names bytes behind its end"
        raise FormatError(msg)
    return form.unpack(data)


def _check_gap(file: IO[bytes], start: int, stop: int) -> None:
    file.seek(start)
    left = stop - start
    while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
        if piece.count(0) < len(piece):
            msg = (
                f"{stop - start:,} bytes at byte {start:,} belong to no member that the directory "
                f"names, so readers skip them: two files joined, or a lost member. Write the file "
                f"again, or split it"
            )
            raise FormatError(msg)
        left -= len(piece)
