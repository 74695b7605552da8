"""Files by their listing path: those that a parser takes whole are read once, for the parser and the digest alike."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from datacheck.digest import digest_bytes
from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint, format_of, open_container, parse_container
from datacheck.sample import Container
from datacheck.sources.listing import locate

WHOLE_BYTES = 64 << 20  # larger files are read piece by piece, or mapped


class Opener:
    """Opens files of one dataset.

    Args:
        root, roots: the data folder and the extra ones.
        whole: read files whole where their format allows; a scan of headers alone does not.

    Attributes:
        digests: of the files that were read whole, by listing path.
    """

    def __init__(self, root: Path, roots: Mapping[str, Path], *, whole: bool) -> None:
        self._root, self._roots, self._whole = root, roots, whole
        self._base = os.fspath(root)
        self.digests: dict[str, str] = {}

    def place(self, path: str) -> str:
        """Return where a listing path is on disk."""
        return str(locate(self._root, self._roots, path)) if path.startswith("@") else f"{self._base}/{path}"

    def takes(self, path: str, nbytes: int) -> Format | None:
        """Return the format that takes a file of so many bytes whole, None where it is opened in another way."""
        found = format_of(path) if self._whole and 0 < nbytes <= WHOLE_BYTES else None
        return None if found is None or found.parse is None else found

    def parsed(self, found: Format, path: str, nbytes: int, hint: Hint | None) -> Container:
        """Read a file whole and parse it.

        Raises:
            FormatError: it cannot be read, changed, or is damaged.
        """
        data = _read(self.place(path), nbytes)
        self.digests[path] = digest_bytes(data)
        return parse_container(found, data, hint)

    def opened(self, path: str, hint: Hint) -> Container:
        """Open a companion, whatever its size.

        Raises:
            FormatError: it cannot be read, or is damaged.
        """
        place = self.place(path)
        try:
            nbytes = os.stat(place).st_size  # noqa: PTH116  asked for every sample of a scan
        except OSError as error:
            raise FormatError((error.strerror or str(error)).lower()) from error
        found = self.takes(path, nbytes)
        return open_container(Path(place), hint) if found is None else self.parsed(found, path, nbytes, hint)


def _read(place: str, nbytes: int) -> bytes:
    """Return the bytes of a file that has the listed size and is not written meanwhile."""
    try:
        file = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(file)
            if before.st_size != nbytes:
                msg = f"changed after it was listed: {nbytes} bytes then, {before.st_size} now"
                raise FormatError(msg)
            data = os.read(file, nbytes + 1)
            while len(data) < nbytes and (more := os.read(file, nbytes + 1 - len(data))):
                data += more
            after = os.fstat(file)
        finally:
            os.close(file)
    except OSError as error:
        raise FormatError((error.strerror or str(error)).lower()) from error
    if len(data) != nbytes or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        msg = "changed while it was read"
        raise FormatError(msg)
    return data
