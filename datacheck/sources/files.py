"""One file is one sample: a pickle per frame, an ``.npy`` per scene with its companions, an HDF5 file per episode."""

from __future__ import annotations

from collections.abc import Iterator

from datacheck.errors import FormatError
from datacheck.sample import Origin, Piece
from datacheck.sources.base import Item, Part, Source, Unread
from datacheck.sources.facts import About
from datacheck.sources.fields import Shelf
from datacheck.sources.names import Names


class FileSource(Source):
    """Samples that are whole files; the key is the file's path."""

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the one sample of the file.

        Raises:
            FormatError: the file cannot be read.
        """
        for key in [item.path] if item.keys is None else item.keys:
            yield self._piece(item, shelf) if key == item.path else Unread(key, "DC101", f"not a sample of {item.path}")

    def _piece(self, item: Item, shelf: Shelf) -> Part:
        fields, facts = self.way(item.split)
        with self.opened(item, fields.hint) as container:
            known = Names(container)
            values = fields.read(container, "", known)
            self.left_out(item.path, values)
            attrs = container.attrs() if fields.reads_attributes or facts.oriented else {}
            fields.add_noted(values, attrs)
            others = self.others(item, container, values, known=known)
        about = About(item.path, item.path, "", item.names, item.nbytes)
        try:
            absent = self.with_companions(values, item, item.names, shelf)
        except FormatError as error:
            return Unread(item.path, error.code, str(error), facts.group(about))
        told, group = self.facts(item, about, values, attrs)
        return Piece(item.path, others | fields.drop_unasked(values), Origin(item.path), group, told | absent)
