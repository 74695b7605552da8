"""Sparse files: one that is mostly holes is refused before terabytes of zeros are read, and justifies no memory."""

from __future__ import annotations

import errno
import math
import os
import stat

HOLE_BYTES = 16 << 30  # a preallocated array may have holes; a second or two of zeros harms no scan

SMALL_BYTES = 16 << 20  # of which any part may be missing where no half may be


def check_holes(file: int | str | os.PathLike[str]) -> None:
    """Refuse a file with more than 16 GiB of holes.

    Args:
        file: a descriptor, or a path whose links are followed.

    Raises:
        OSError: it has more (EFBIG), or is missing.

    Notes:
        A file system that compresses stores fewer bytes than a file has, too: there the extents tell holes from data.
    """
    status = os.stat(file)  # noqa: PTH116  of a descriptor, too
    if status.st_size - 512 * status.st_blocks <= HOLE_BYTES:
        return
    descriptor = file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        refused = _has_holes(descriptor, status.st_size, HOLE_BYTES)
    finally:
        if descriptor != file:
            os.close(descriptor)
    if refused:
        stored = 512 * status.st_blocks
        msg = f"a sparse file: {status.st_size:,} bytes, {stored:,} of them stored; at most {HOLE_BYTES:,} may be holes"
        raise OSError(errno.EFBIG, msg)


def is_mostly_holes(descriptor: int, status: os.stat_result) -> bool:
    """Tell whether more than half of a file of more than 16 MiB was never written.

    Args:
        descriptor: of the file; its position stays.
        status: of the file.
    """
    size, half = status.st_size, status.st_size // 2
    return size > SMALL_BYTES and size - 512 * status.st_blocks > half and _has_holes(descriptor, size, half)


def written_bytes(descriptor: int) -> int:
    """Return the bytes of a file, or of all files in a folder, that are no holes.

    Raises:
        OSError: the folder cannot be read.
    """
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        walked = os.fwalk(dir_fd=descriptor)
        return sum(_written_in(folder, name) for _, _, names, folder in walked for name in names)
    missing = 512 * status.st_blocks < status.st_size
    return status.st_size - (_holes(descriptor, status.st_size) if missing else 0)


def _written_in(folder: int, name: str) -> int:
    """Return the bytes of a file in a folder that are no holes, 0 for anything else."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= 512 * status.st_blocks:
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    opened = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    try:
        return status.st_size - _holes(opened, status.st_size)
    finally:
        os.close(opened)


def _has_holes(descriptor: int, size: int, most: int) -> bool:
    return _holes(descriptor, size, most) > most


def _holes(descriptor: int, size: int, most: float = math.inf) -> int:
    """Return how many of a file's `size` bytes are holes, or more than `most` where they are more; its position stays.

    Notes:
        Where the file system does not know, a file has none.
    """
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    place = total = 0
    try:
        while total <= most and place < size:
            hole = os.lseek(descriptor, place, os.SEEK_HOLE)
            try:
                place = os.lseek(descriptor, hole, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # else: no data behind it
                    raise
                place = size
            total += place - hole
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:
            raise
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
    return total
