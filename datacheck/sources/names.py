"""The names of the values of an opened file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from datacheck.errors import FormatError
from datacheck.sample import Container


class Names:
    """The names of a container's values, asked for when they are needed, and once: some formats walk the whole file.

    Args:
        container: an opened file.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._found: list[str] | FormatError | None = None

    def below(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with `prefix`, in bytewise order; the header of a CSV table is none.

        Args:
            prefix: "" or a group with a "/" at its end.

        Raises:
            FormatError: the file cannot tell them; each call says so again.
        """
        if self._found is None:
            try:
                self._found = sorted(self._container.names())
            except FormatError as error:
                self._found = error
        if isinstance(self._found, FormatError):
            raise self._found
        if self._found == ["columns", "table"]:
            return ["table"]
        if not prefix:
            return self._found
        start = bisect_left(self._found, prefix)
        return self._found[start : bisect_left(self._found, f"{prefix[:-1]}0", lo=start)]  # "0" comes behind "/"
